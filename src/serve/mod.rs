//! The xDS-enabled server without I/O: what one listening socket does with its connections and their requests (A36).
//!
//! ```text
//!   Listener ──────▶ ┌──────────────── ListenerMachine ────────────────┐
//!   RouteConfiguration│ Configs: pending, active                        │──▶ watches of routes, the socket,
//!   connections, time │ RouteWatches ─▶ ChainTable ─▶ Routing of a chain │    serving state, routing of chains,
//!                     │ Connections: handshakes, draining     Port      │    draining and closing of connections
//!                     └─────────────────────────────────────────────────┘
//!                       accept ─▶ chain of the connection
//!   head of a request ─▶ Routing ─▶ virtual host, route, filters, or a Refusal
//! ```
//!
//! A [`ListenerMachine`] belongs to one listening socket. Each change is followed by polling its outputs until there is none; time
//! and the seed of its random numbers are arguments. A connection has the configuration of the moment in which it was accepted for its
//! whole life. The [`Routing`] of its chain is a value that is replaced as a whole, so that each request sees one.

mod address;
mod chain_ref;
mod chain_table;
mod compiled_routes;
mod configs;
mod connections;
mod head;
mod identity;
mod ids;
mod io;
mod machine;
mod port;
mod refusal;
mod route_watches;
mod routing;
mod settings;
mod state;
mod status;

pub(crate) use self::{
    address::TlsSupport,
    chain_ref::ChainRef,
    head::{authority, check_path},
    identity::Identity,
    ids::{ChainId, ConnectionId},
    io::{Accept, AcceptError, CloseReason, Output, RejectReason, Timer},
    machine::ListenerMachine,
    refusal::Refusal,
    routing::{RoutedRequest, Routing},
    settings::Settings,
};
pub use self::{
    state::{NotServing, ServingState},
    status::{ConnectionCounts, ListenerStatus},
};

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
