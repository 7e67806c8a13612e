//! The state of the clients of a process as a gRPC service for operators: CSDS, the `ClientStatusDiscoveryService` of gRFC
//! A40.
//!
//! Tools such as `grpcdebug` query this service, which gRPC clients in other languages provide, too. An application adds it
//! to a server that only its operators can reach, since it exposes all resources of the clients except
//! [sensitive](crate::Resource::SENSITIVE) ones. Credentials in resources, such as inline private keys, are redacted.
//!
//! ```no_run
//! use tonic::transport::Server;
//! use xdskit::{Client, config::Bootstrap, csds::ClientStatusService};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = Client::builder(Bootstrap::from_env()?).scope("xds:///shop").build()?;
//!
//!     let status = ClientStatusService::new();
//!     status.add(&client);
//!     Server::builder().add_service(status).serve("127.0.0.1:18001".parse()?).await?;
//!     Ok(())
//! }
//! ```

mod message;
mod service;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client::{Client, ClientStatus, WeakClient};

/// The client status service, to be added to a tonic server.
///
/// Clones are handles of the same service, so that clients can be added at any time. It does not keep a client alive, and
/// omits clients that have ended.
#[derive(Debug, Clone, Default)]
pub struct ClientStatusService {
    clients: Arc<Mutex<Vec<WeakClient>>>,
}

impl ClientStatusService {
    /// A service without clients.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a client. Further handles of the same client have no effect.
    ///
    /// Clients are identified by their [scopes](crate::client::ClientBuilder::scope).
    pub fn add(&self, client: &Client) {
        let client = client.downgrade();
        let mut clients = self.lock();
        clients.retain(|known| !known.has_ended() && *known != client);
        clients.push(client);
    }

    /// The status of all clients, in the order in which they were added.
    async fn statuses(&self) -> Vec<ClientStatus> {
        // A copy, since no lock is held across the awaits below.
        let clients = {
            let mut clients = self.lock();
            clients.retain(|known| !known.has_ended());
            clients.clone()
        };
        let mut statuses = Vec::with_capacity(clients.len());
        for client in clients {
            statuses.extend(client.status().await);
        }
        statuses
    }

    fn lock(&self) -> MutexGuard<'_, Vec<WeakClient>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
