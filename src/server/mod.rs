//! The xDS-enabled server: it serves the requests that its Listener permits (A36).
//!
//! A [`Server`] watches a Listener for each address that it listens on, and the route configurations that it names. Connections are
//! accepted once both are known. Each request is matched with the routes of the filter chain of its connection, passes the
//! HTTP filters of its route, and then reaches the service of the application.
//!
//! ```no_run
//! use http::{Request, Response};
//! use tower_service::Service;
//! use xdskit::{
//!     Bootstrap, Server,
//!     server::{Fallback, RequestBody},
//! };
//!
//! /// Serves the routes of tonic, of axum, or any other service.
//! async fn serve<S>(service: S) -> Result<(), Box<dyn std::error::Error>>
//! where
//!     S: Service<Request<RequestBody>, Response = Response<tonic::body::Body>, Error = std::convert::Infallible>,
//!     S: Clone + Send + Sync + 'static,
//!     S::Future: Send,
//! {
//!     let server = Server::builder(Bootstrap::from_env()?)
//!         .xds_credentials(Fallback::Plaintext)
//!         .listen("0.0.0.0:8080".parse()?)
//!         .on_state(|address, state| println!("{address}: {state}"))
//!         .serve(service)?;
//!     server.serving().await;
//!     server.stopped().await;
//!     Ok(())
//! }
//! ```

mod acceptor;
mod body;
mod builder;
mod chain;
mod connection;
mod credentials;
mod error;
mod exchange;
mod filter_run;
mod handle;
mod info;
mod listener_task;
mod preface;
mod reply;
mod request;
mod settings;
mod socket;
mod states;

use std::sync::Arc;

pub use self::{
    body::{BodyError, RequestBody},
    builder::ServerBuilder,
    credentials::{Fallback, OwnCredentials},
    error::ServerError,
    handle::ServerHandle,
    info::InboundRequest,
};
use crate::config::Bootstrap;
pub use crate::serve::{ConnectionCounts, ListenerStatus, NotServing, ServingState};

/// An xDS-enabled server.
#[derive(Debug)]
pub struct Server {
    _private: (),
}

impl Server {
    /// A builder of a server for this bootstrap, with the default settings.
    pub fn builder(bootstrap: impl Into<Arc<Bootstrap>>) -> ServerBuilder {
        ServerBuilder::new(bootstrap.into())
    }
}
