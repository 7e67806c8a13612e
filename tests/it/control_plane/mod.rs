//! The embedded control plane over real connections, with a client that knows nothing but gRPC.
mod delta;
mod limits;
mod loads;
mod peer;
mod rest;
mod service;
mod services;
mod subscriptions;
mod testing;
