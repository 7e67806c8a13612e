use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::Mutex;
use tonic::Status;

use super::{
    FaultyProxy,
    expect::{Ack, ExpectTimeout, Nack},
    record::{Log, RecordedRequest, Recorder, Requests, Wanted},
};
use crate::control_plane::{
    self, AnyResource, Headers, Response, ServerHandle,
    session::{Answer, Held},
    store::Transaction,
};

/// A management server on loopback for the tests of an application, with faults and expectations.
///
/// It is the real [`control_plane::ControlPlane`], so a client cannot tell it from one in production. Requests are recorded from
/// the start. All `expect_*` wait for what they expect, and fail with what was there instead when it does not come in time.
///
/// ```
/// use xdskit::{
///     control_plane::type_url::CLUSTER,
///     testing::{ControlPlane, ExpectTimeout, resources::cluster},
/// };
///
/// async fn an_application_rejects_a_cluster_without_a_type() -> Result<(), ExpectTimeout> {
///     let control_plane = ControlPlane::start().await;
///     control_plane.set(cluster("shop").eds());
///     println!("give this to the client: {}", control_plane.bootstrap_json());
///
///     // Once the application watches the cluster:
///     let ack = control_plane.expect_ack(CLUSTER).await?;
///     assert_eq!(ack.names, ["shop"]);
///
///     control_plane.set(cluster("shop").edit(|cluster| cluster.cluster_discovery_type = None));
///     let nack = control_plane.expect_nack(CLUSTER).await?;
///     assert!(nack.message.contains("shop"));
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct ControlPlane {
    inner: control_plane::ControlPlane,
    recorder: Arc<Recorder>,
    addr: SocketAddr,
    server: Mutex<Option<ServerHandle>>,
    timeout: Duration,
}

impl ControlPlane {
    /// Starts a server on a free loopback port, without resources.
    ///
    /// # Panics
    /// When there is no port to listen on.
    pub async fn start() -> Self {
        Self::start_with(control_plane::ControlPlane::builder()).await
    }

    /// Starts a server with settings of one's own.
    ///
    /// # Panics
    /// When there is no port to listen on.
    pub async fn start_with(settings: control_plane::ControlPlaneBuilder) -> Self {
        let recorder = Arc::new(Recorder::new());
        let observer = recorder.clone();
        let inner = settings.observe(move |event| observer.record(event)).build();
        let server = serve(&inner, (Ipv4Addr::LOCALHOST, 0).into()).await;
        Self { inner, recorder, addr: server.addr(), server: Mutex::new(Some(server)), timeout: TIMEOUT }
    }

    /// Sets how long expectations wait, 10 s if it is never said.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The control plane itself.
    pub fn control_plane(&self) -> &control_plane::ControlPlane {
        &self.inner
    }

    /// The address, the same for as long as this lives.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address as a URI.
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A bootstrap that leads a client here, as node `test`.
    pub fn bootstrap_json(&self) -> String {
        bootstrap_json(self.addr)
    }

    /// A proxy to connect through, which breaks connections when it is told to.
    ///
    /// # Panics
    /// When there is no port to listen on.
    pub async fn proxy(&self) -> FaultyProxy {
        FaultyProxy::start(self.addr).await
    }
}

/// # Resources
impl ControlPlane {
    /// Changes resources; clients are told of all changes of one call at once. Returns whether anything is different now.
    pub fn update(&self, change: impl FnOnce(&mut Transaction<'_>)) -> bool {
        self.inner.update(change)
    }

    /// Adds or replaces one resource: a builder, a message, or an [`AnyResource`]. Returns whether anything is different now.
    pub fn set(&self, resource: impl Into<AnyResource>) -> bool {
        self.inner.set(resource)
    }

    /// Removes one resource. Returns whether it was there.
    pub fn remove(&self, type_url: &str, name: &str) -> bool {
        self.inner.remove(type_url, name)
    }

    /// Says instead of a resource why it cannot be had, with the number of a gRPC status code; see
    /// [`Transaction::set_error`]. Returns whether anything is different now.
    pub fn set_error(&self, type_url: &str, name: &str, code: i32, message: &str) -> bool {
        self.inner.update(|tx| {
            tx.set_error(type_url, name, code, message);
        })
    }

    /// The version that clients see of a type now.
    pub fn version(&self, type_url: &str) -> String {
        let store = self.inner.store();
        store.version(store.get(type_url).version())
    }
}

/// # What clients did
impl ControlPlane {
    /// Waits for the next ACK of a type: the first that no expectation has returned yet.
    ///
    /// # Errors
    /// When none comes in time.
    pub async fn expect_ack(&self, type_url: &str) -> Result<Ack, ExpectTimeout> {
        let take = |log: &mut Log| {
            let request = log.take_answer(type_url, Wanted::Accepted)?;
            let Some(Answer::Accepted { version }) = request.answer() else { return None };
            Some(Ack { stream: request.stream(), version: version.clone(), names: request.owned_names() })
        };
        self.expect(|| format!("ACK of {type_url}"), Some(type_url), take).await
    }

    /// Waits for the next NACK of a type: the first that no expectation has returned yet.
    ///
    /// # Errors
    /// When none comes in time.
    pub async fn expect_nack(&self, type_url: &str) -> Result<Nack, ExpectTimeout> {
        let take = |log: &mut Log| {
            let request = log.take_answer(type_url, Wanted::Rejected)?;
            let Some(Answer::Rejected { version, code, message }) = request.answer() else { return None };
            Some(Nack {
                stream: request.stream(),
                version: version.clone(),
                accepted_version: request.accepted_version().to_owned(),
                names: request.owned_names(),
                code: *code,
                message: message.clone(),
            })
        };
        self.expect(|| format!("NACK of {type_url}"), Some(type_url), take).await
    }

    /// Waits until exactly these resources of a type are wanted according to its newest request, in any order; `*` stands for
    /// the wildcard, however a client writes it. Returns that request.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn expect_names(
        &self,
        type_url: &str,
        names: &[&str],
    ) -> Result<RecordedRequest, ExpectTimeout> {
        let mut wanted: Vec<&str> = names.to_vec();
        wanted.sort_unstable();
        let look = |log: &mut Log| {
            let newest = log.requests.iter().rev().find(|request| request.type_url() == type_url)?;
            let mut names = newest.names();
            names.sort_unstable();
            (names == wanted).then(|| newest.clone())
        };
        self.expect(|| format!("request for {wanted:?} of {type_url}"), Some(type_url), look).await
    }

    /// Waits until this many streams are open.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn expect_clients(&self, clients: usize) -> Result<(), ExpectTimeout> {
        let look = |log: &mut Log| (log.open == clients).then_some(());
        self.expect(|| format!("moment with {clients} open streams"), None, look).await
    }

    /// How many streams are open.
    pub fn clients(&self) -> usize {
        self.inner.streams()
    }

    /// All requests that came, since the start or the last [`clear_requests`](Self::clear_requests).
    pub fn requests(&self) -> Requests {
        self.recorder.requests()
    }

    /// Forgets the requests that came so far, also those that no expectation has returned.
    pub fn clear_requests(&self) {
        self.recorder.clear();
    }

    async fn expect<T>(
        &self,
        expected: impl FnOnce() -> String,
        type_url: Option<&str>,
        look: impl FnMut(&mut Log) -> Option<T>,
    ) -> Result<T, ExpectTimeout> {
        if let Ok(found) = tokio::time::timeout(self.timeout, self.recorder.find(look)).await {
            return Ok(found);
        }
        let seen = self.recorder.find(|log| Some(log.describe(type_url))).await;
        Err(ExpectTimeout { expected: expected(), waited: self.timeout, seen })
    }
}

/// # Faults
impl ControlPlane {
    /// Sends nothing until [`release`](Self::release), not even what confirms resources with a time to live. Requests are read
    /// as ever.
    pub fn hold(&self) {
        self.inner.set_held(Held::all());
    }

    /// Sends all that is due, of every type.
    pub fn release(&self) {
        self.inner.set_held(Held::none());
    }

    /// Sends nothing of one type until it is released.
    pub fn hold_type(&self, type_url: &str) {
        let mut held = self.inner.held();
        held.hold(type_url);
        self.inner.set_held(held);
    }

    /// Sends all that is due of one type, unless everything is held.
    pub fn release_type(&self, type_url: &str) {
        let mut held = self.inner.held();
        held.release(type_url);
        self.inner.set_held(held);
    }

    /// Ends all streams with `UNAVAILABLE`; clients may come back at once.
    pub fn disconnect(&self) {
        self.inner.disconnect(Status::unavailable("disconnected by the test"));
    }

    /// Stops the server: streams end, connections close, and nobody listens on the address. Does nothing if it is stopped.
    pub async fn stop(&self) {
        if let Some(server) = self.server.lock().await.take() {
            server.shutdown().await;
        }
    }

    /// Stops the server if it runs, and starts it again on the same address, with the same resources and versions.
    ///
    /// # Panics
    /// When somebody else has taken the port meanwhile.
    pub async fn restart(&self) {
        self.stop().await;
        *self.server.lock().await = Some(serve(&self.inner, self.addr).await);
    }

    /// Says when streams get the headers of the response, those that open later and those that have none yet.
    pub fn set_headers(&self, headers: Headers) {
        self.inner.set_headers(headers);
    }

    /// Says whether requests are read.
    pub fn set_reading(&self, reading: bool) {
        self.inner.set_reading(reading);
    }

    /// Answers all requests of REST by a status and without a response, until it is told otherwise.
    ///
    /// A request of REST is a stream of its own, which ends with its answer: one that is [held](Self::hold) can be answered by
    /// [`inject`](Self::inject), [`inject_raw`](Self::inject_raw) and [`disconnect`](Self::disconnect), too.
    #[cfg(feature = "json")]
    pub fn set_rest_status(&self, status: Option<http::StatusCode>) {
        self.inner.set_rest_status(status);
    }

    /// Answers requests of REST for which there are no resources by the status 404, as sovereign does.
    #[cfg(feature = "json")]
    pub fn set_rest_not_found(&self, not_found: bool) {
        self.inner.set_rest_not_found(not_found);
    }

    /// Sends a response as it is on all open streams of its variant that are aggregated or of its type; returns how many these
    /// are. It is a `DiscoveryResponse` or a `DeltaDiscoveryResponse`.
    ///
    /// Give it a nonce of its own (such as `"injected-1"`): the client's answer is understood by it.
    pub fn inject(&self, response: impl Into<Response>) -> usize {
        self.inner.inject(response)
    }

    /// Sends bytes in place of a response on all open streams; returns how many these are.
    pub fn inject_raw(&self, bytes: impl Into<Bytes>) -> usize {
        self.inner.inject_raw(bytes)
    }
}

pub(super) fn bootstrap_json(addr: SocketAddr) -> String {
    format!(
        r#"{{"xds_servers":[{{"server_uri":"{addr}","channel_creds":[{{"type":"insecure"}}],"server_features":["xds_v3"]}}],"node":{{"id":"test"}}}}"#
    )
}

async fn serve(control_plane: &control_plane::ControlPlane, addr: SocketAddr) -> ServerHandle {
    match control_plane.serve(addr).await {
        Ok(server) => server,
        Err(error) => panic!("cannot listen on {addr}: {error}"),
    }
}

/// How long expectations wait.
const TIMEOUT: Duration = Duration::from_secs(10);
