use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::bootstrap::bootstrap_json;

/// A TCP proxy on loopback that breaks connections on command, or at a given byte.
///
/// ```no_run
/// use xdskit::{control_plane::type_url, testing::TestControlPlane};
///
/// async fn cut(control_plane: &TestControlPlane) {
///     let proxy = control_plane.proxy().await;
///     println!("give this to the client: {}", proxy.bootstrap_json());
///     // Once the client is connected: break its connection in the middle of the next response.
///     proxy.cut_after(100);
///     control_plane.remove(type_url::CLUSTER, "shop");
///     proxy.expect_cut().await;
/// }
/// ```
#[derive(Debug)]
pub struct FaultyProxy {
    /// The address to connect to.
    addr: SocketAddr,
    /// The state, whose changes wake the connections.
    control: Arc<watch::Sender<Control>>,
    /// Ends the connections when dropped.
    task: JoinHandle<()>,
}

/// A direction through a [`FaultyProxy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: responses.
    ToClient,
}

/// The state that the connections follow. Directions are indexes.
#[derive(Debug, Default)]
struct Control {
    /// The number of cuts of all connections.
    cuts: u64,
    /// The number of bytes to clients before the next cut.
    budget: Option<u64>,
    /// Whether nothing is read.
    stalled: [bool; 2],
    /// The number of open connections.
    connections: usize,
    /// The number of bytes so far, over all connections.
    passed: [u64; 2],
}

impl FaultyProxy {
    /// Starts a proxy to a server on a free loopback port.
    ///
    /// # Panics
    /// There is no free port.
    pub async fn start(server: SocketAddr) -> Self {
        match Self::try_start(server).await {
            Ok(proxy) => proxy,
            Err(error) => panic!("cannot listen on a loopback port: {error}"),
        }
    }

    /// Starts a proxy, unless there is no port.
    async fn try_start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let control = Arc::new(watch::Sender::new(Control::default()));
        let task = tokio::spawn(accept(listener, server, control.clone()));
        Ok(Self { addr, control, task })
    }

    /// The address to connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address as a URI.
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A bootstrap for clients of this proxy, with the node `test`.
    pub fn bootstrap_json(&self) -> String {
        bootstrap_json(self.addr)
    }

    /// Cuts all connections now. Later connections work.
    pub fn cut(&self) {
        self.control.send_modify(Control::cut);
    }

    /// Cuts all connections once this many further bytes were sent to clients, or at once if it is 0. The bytes are
    /// those of HTTP/2.
    ///
    /// Connections after the cut work. Another call replaces the number. Returns the number of bytes that have
    /// [`passed`](Self::passed) to clients so far.
    pub fn cut_after(&self, bytes: u64) -> u64 {
        let mut passed = 0;
        self.control.send_modify(|control| {
            passed = control.passed[Direction::ToClient.index()];
            match bytes {
                0 => control.cut(),
                bytes => control.budget = Some(bytes),
            }
        });
        passed
    }

    /// Cancels [`cut_after`](Self::cut_after) if the cut has not occurred; returns whether there was one to cancel.
    pub fn cancel_cut(&self) -> bool {
        self.control.send_if_modified(|control| control.budget.take().is_some())
    }

    /// Waits until no cut is pending.
    pub async fn expect_cut(&self) {
        let mut control = self.control.subscribe();
        // The sender is a field of `self`.
        let _ = control.wait_for(|control| control.budget.is_none()).await;
    }

    /// Stops reading in a direction until [`resume`](Self::resume), so that the sender fills the connection's
    /// buffers.
    pub fn stall(&self, direction: Direction) {
        self.control.send_modify(|control| control.stalled[direction.index()] = true);
    }

    /// Resumes a direction; no bytes were lost.
    pub fn resume(&self, direction: Direction) {
        self.control.send_modify(|control| control.stalled[direction.index()] = false);
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.control.borrow().connections
    }

    /// The number of bytes that have passed in a direction so far, over all connections.
    pub fn passed(&self, direction: Direction) -> u64 {
        self.control.borrow().passed[direction.index()]
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Direction {
    /// The index in the arrays of `Control`.
    fn index(self) -> usize {
        match self {
            Self::ToServer => 0,
            Self::ToClient => 1,
        }
    }
}

impl Control {
    /// Counts a cut, which replaces a pending one.
    fn cut(&mut self) {
        self.cuts += 1;
        self.budget = None;
    }

    /// Returns how many of these bytes may pass.
    fn pass(&self, direction: Direction, bytes: usize) -> usize {
        match (direction, self.budget) {
            (Direction::ToClient, Some(budget)) => {
                usize::try_from(budget).map_or(bytes, |budget| bytes.min(budget))
            }
            (Direction::ToClient, None) | (Direction::ToServer, _) => bytes,
        }
    }

    /// Counts passed bytes, and cuts if the budget is used up; returns whether there was a cut.
    fn passed(&mut self, direction: Direction, bytes: usize) -> bool {
        let bytes = bytes as u64;
        self.passed[direction.index()] += bytes;
        let (Direction::ToClient, Some(budget)) = (direction, self.budget) else { return false };
        self.budget = Some(budget.saturating_sub(bytes));
        let cut = self.budget == Some(0);
        if cut {
            self.cut();
        }
        cut
    }
}

/// Accepts connections. Dropping the future drops all of them.
async fn accept(listener: TcpListener, server: SocketAddr, control: Arc<watch::Sender<Control>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    connections.spawn(connection(client, server, control.clone()));
                }
                Err(error) => tracing::warn!(%error, "the proxy cannot accept a connection"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Forwards a connection in both directions, until it is cut or one of its sides is closed.
async fn connection(client: TcpStream, server: SocketAddr, control: Arc<watch::Sender<Control>>) {
    let mut changes = control.subscribe();
    // Before the connection to the server, so that a cut in the meantime is not missed.
    let cuts = changes.borrow().cuts;
    let Ok(server) = TcpStream::connect(server).await else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    control.send_modify(|control| control.connections += 1);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        biased;
        _ = changes.wait_for(|control| control.cuts != cuts) => {}
        _ = pump(from_client, to_server, Direction::ToServer, &control) => {}
        _ = pump(from_server, to_client, Direction::ToClient, &control) => {}
    }
    control.send_modify(|control| control.connections -= 1);
}

/// Forwards bytes until one side is closed.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    control: &watch::Sender<Control>,
) -> io::Result<()> {
    let mut changes = control.subscribe();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // The sender is borrowed, so it is alive.
        let _ = changes.wait_for(|control| !control.stalled[direction.index()]).await;
        let read = tokio::select! {
            biased;
            _ = changes.wait_for(|control| control.stalled[direction.index()]) => continue,
            read = from.read(&mut buffer) => read?,
        };
        if read == 0 {
            return Ok(());
        }
        // Not reserved: of several connections at once, each may use the rest of the budget.
        let pass = control.borrow().pass(direction, read);
        to.write_all(&buffer[..pass]).await?;
        let mut cut = false;
        control.send_modify(|control| cut = control.passed(direction, pass));
        if cut {
            return Ok(());
        }
    }
}
