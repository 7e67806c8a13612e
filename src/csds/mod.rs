//! What the clients of a process know, as a gRPC service for operators: CSDS, the `ClientStatusDiscoveryService` of gRFC A40.
//!
//! It is what tools such as `grpcdebug` ask, and what they show of other languages' clients, too. An application adds it to a
//! server that its operators can reach, and to nobody else: it shows all of the mesh that the clients know, but no
//! [sensitive](crate::Resource::SENSITIVE) resource.
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
/// Clones are handles of the same service, so that clients can be added at any time. It does not keep a client alive; one
/// that has ended is not shown any more.
#[derive(Debug, Clone, Default)]
pub struct ClientStatusService {
    clients: Arc<Mutex<Vec<WeakClient>>>,
}

impl ClientStatusService {
    /// A service without clients.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows a client from now on. Handles of the same client are one.
    ///
    /// Clients are told apart by their [scopes](crate::client::ClientBuilder::scope) (A71-7).
    pub fn add(&self, client: &Client) {
        let client = client.downgrade();
        let mut clients = self.lock();
        clients.retain(|known| !known.has_ended() && *known != client);
        clients.push(client);
    }

    /// What all clients know, in the order in which they were added.
    async fn statuses(&self) -> Vec<ClientStatus> {
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
