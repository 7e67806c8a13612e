//! Load balancing without I/O: from the endpoints of a cluster to the connection of each call.
//!
//! What is here so far is the lowest level, of which all policies are made: the connections of one endpoint.
//! [`Subchannel`](subchannel::Subchannel) is one address, [`PickFirst`](pick_first::PickFirst) an endpoint with its addresses.
//!
//! Each part is a state machine like the engine: events and the time go in, [`Command`](command::Command)s come out.

mod addresses;
mod backoff;
mod command;
mod connectivity;
mod pick_first;
mod subchannel;
