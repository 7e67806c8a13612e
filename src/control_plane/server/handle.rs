//! A control plane that serves on an address.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tonic::Status;

use super::ControlPlane;
#[cfg(not(feature = "tls"))]
use crate::control_plane::incoming::ServerTls;
#[cfg(feature = "tls")]
use crate::control_plane::server_tls::ServerTls;
use crate::{control_plane::incoming::Incoming, escape::Escaped};

/// A [`ControlPlane`] that serves on an address. Dropping it shuts down the control plane, without waiting for the
/// end.
#[derive(Debug)]
pub struct ServerHandle {
    control_plane: ControlPlane,
    addr: SocketAddr,
    /// Ends the acceptance of connections; taken by the first shutdown.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// The task of the server; taken by [`shutdown`](Self::shutdown).
    task: Option<JoinHandle<Result<(), tonic::transport::Error>>>,
}

impl ServerHandle {
    /// Begins to serve.
    pub(super) fn start(
        control_plane: ControlPlane,
        listener: TcpListener,
        tls: Option<ServerTls>,
    ) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let limits = control_plane.server_limits().clone();
        let max_streams = limits.max_streams_per_connection;
        let incoming = Incoming::new(listener, tls, limits);
        let server = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(max_streams)
            // REST uses HTTP/1.1 as well.
            .accept_http1(cfg!(feature = "json"));
        let service = control_plane.service();
        let serving = server.serve_with_incoming_shutdown(service, incoming, async move {
            // Dropping the sender is a signal, too.
            let _ = stopped.await;
        });
        let task = tokio::spawn(async move {
            let served = serving.await;
            if let Err(error) = &served {
                tracing::error!(%addr, error = %Escaped(error), "serving ended with an error");
            }
            served
        });
        Ok(Self { control_plane, addr, stop: Mutex::new(Some(stop)), task: Some(task) })
    }

    /// The listening address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address as a URI for bootstraps, without TLS.
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The control plane.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Ends all streams of the control plane with `UNAVAILABLE`, closes all connections and releases the address.
    ///
    /// Waits until all is closed, but only for some seconds if a client does not read.
    pub async fn shutdown(mut self) {
        self.begin_shutdown();
        let Some(mut task) = self.task.take() else { return };
        match tokio::time::timeout(SHUTDOWN_GRACE, &mut task).await {
            // An error was logged when it occurred.
            Ok(Ok(Ok(()) | Err(_))) => {}
            Ok(Err(error)) => {
                tracing::warn!(addr = %self.addr, error = %Escaped(&error), "serving ended");
            }
            Err(_) => task.abort(),
        }
    }

    /// Ends the acceptance of connections, and all streams.
    fn begin_shutdown(&self) {
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The receiver is gone if the server has ended already.
            let _ = stop.send(());
        }
        // A graceful shutdown waits for open streams, and streams of xDS do not end by themselves.
        let status = Status::unavailable("the management server shuts down");
        self.control_plane.disconnect(status.clone());
        self.control_plane.disconnect_load_streams(status);
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.begin_shutdown();
    }
}

/// The interval of keepalive pings.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// The timeout of the response to a ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The flow-control window for requests on a stream, in bytes.
const WINDOW: u32 = 1 << 20;
/// The flow-control window of a connection. A stream that is not read leaves enough of it to the others.
const CONNECTION_WINDOW: u32 = 8 * WINDOW;
/// The time after which a shutdown aborts connections that are still open.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);
