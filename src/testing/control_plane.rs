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
    bootstrap::bootstrap_json,
    expect::{Ack, ExpectTimeout, Nack},
    loads::{self, TakenLoads},
    record::{AnswerKind, Log, RecordedRequest, Recorder, Requests},
};
use crate::{
    Resource,
    control_plane::{
        self, AnyResource, Headers, LoadFault, LoadReport, LoadReporting, LoadTotals, Loads, Response,
        ServerHandle,
        session::{Answer, Held},
        store::{Transaction, loads::ClusterLoad},
    },
};

/// A management server on loopback for the tests of an application, with faults and expectations.
///
/// It is the real [`control_plane::ControlPlane`], so a client cannot distinguish it from a production server.
/// Requests are recorded from the start. Each `expect_*` method waits for an event, and fails with a description of
/// the actual events if it does not occur in time.
///
/// ```
/// use xdskit::{
///     control_plane::type_url::CLUSTER,
///     testing::{TestControlPlane, ExpectTimeout, resources::cluster},
/// };
///
/// async fn an_application_rejects_a_cluster_without_a_type() -> Result<(), ExpectTimeout> {
///     let control_plane = TestControlPlane::start().await;
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
pub struct TestControlPlane {
    /// The state, which outlives the server when it is stopped.
    inner: control_plane::ControlPlane,
    /// The requests since the start.
    recorder: Arc<Recorder>,
    /// What expectations of loads have returned.
    loads: TakenLoads,
    /// The address of the first start, which later ones bind again.
    addr: SocketAddr,
    /// `None` while the server is stopped.
    server: Mutex<Option<ServerHandle>>,
    /// The timeout of all expectations but those that take one.
    timeout: Duration,
}

impl TestControlPlane {
    /// Starts a server on a free loopback port, without resources.
    ///
    /// # Panics
    /// There is no free port.
    pub async fn start() -> Self {
        Self::start_with(control_plane::ControlPlane::builder()).await
    }

    /// Starts a server with custom settings.
    ///
    /// # Panics
    /// There is no free port.
    pub async fn start_with(settings: control_plane::ControlPlaneBuilder) -> Self {
        let recorder = Arc::new(Recorder::new());
        let observer = recorder.clone();
        let inner = settings.observe(move |event| observer.record(event)).build();
        let server = serve(&inner, (Ipv4Addr::LOCALHOST, 0).into()).await;
        let (addr, loads) = (server.addr(), TakenLoads::default());
        Self { inner, recorder, loads, addr, server: Mutex::new(Some(server)), timeout: TIMEOUT }
    }

    /// Sets the timeout of expectations, 10 s by default.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The control plane itself.
    pub fn control_plane(&self) -> &control_plane::ControlPlane {
        &self.inner
    }

    /// The address, which never changes.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address as a URI.
    pub fn uri(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A bootstrap for clients of this server, with the node `test`.
    pub fn bootstrap_json(&self) -> String {
        bootstrap_json(self.addr)
    }

    /// Starts a proxy to this server, which can break connections.
    ///
    /// # Panics
    /// There is no free port.
    pub async fn proxy(&self) -> FaultyProxy {
        FaultyProxy::start(self.addr).await
    }
}

/// # Resources
impl TestControlPlane {
    /// Changes resources; all changes of one call are sent together. Returns whether anything changed.
    pub fn update(&self, change: impl FnOnce(&mut Transaction<'_>)) -> bool {
        self.inner.update(change)
    }

    /// Adds or replaces one resource: a builder, a message, or an [`AnyResource`]. Returns whether anything changed.
    pub fn set(&self, resource: impl Into<AnyResource>) -> bool {
        self.inner.set(resource)
    }

    /// Removes one resource, by its type URL. Returns whether it existed.
    pub fn remove(&self, type_url: &str, name: &str) -> bool {
        self.inner.remove(type_url, name)
    }

    /// Removes one resource of a type that clients parse. Returns whether it existed.
    ///
    /// ```
    /// use xdskit::{
    ///     resource::Cluster,
    ///     testing::{TestControlPlane, resources::cluster},
    /// };
    ///
    /// # #[tokio::main]
    /// # async fn main() {
    /// let control_plane = TestControlPlane::start().await;
    /// control_plane.set(cluster("shop"));
    /// assert!(control_plane.remove_resource::<Cluster>("shop"));
    /// # }
    /// ```
    pub fn remove_resource<T: Resource>(&self, name: &str) -> bool {
        self.inner.remove(T::TYPE_URL, name)
    }

    /// Sets an error in place of a resource, with the number of a gRPC status code; see [`Transaction::set_error`].
    /// Returns whether anything changed.
    pub fn set_error(&self, type_url: &str, name: &str, code: i32, message: &str) -> bool {
        self.inner.update(|tx| {
            tx.set_error(type_url, name, code, message);
        })
    }

    /// The current version of a type in responses.
    pub fn version(&self, type_url: &str) -> String {
        let store = self.inner.store();
        store.version(store.get(type_url).version())
    }
}

/// # Expectations
impl TestControlPlane {
    /// Waits for the next ACK of a type: the first that no expectation has returned yet.
    ///
    /// # Errors
    /// None is received in time.
    pub async fn expect_ack(&self, type_url: &str) -> Result<Ack, ExpectTimeout> {
        let take = |log: &mut Log| {
            let request = log.take_answer(type_url, AnswerKind::Accepted)?;
            let Some(Answer::Accepted { version }) = request.answer() else { return None };
            Some(Ack { stream: request.stream(), version: version.clone(), names: request.owned_names() })
        };
        self.expect(|| format!("ACK of {type_url}"), Some(type_url), take).await
    }

    /// Waits for the next NACK of a type: the first that no expectation has returned yet.
    ///
    /// # Errors
    /// None is received in time.
    pub async fn expect_nack(&self, type_url: &str) -> Result<Nack, ExpectTimeout> {
        let take = |log: &mut Log| {
            let request = log.take_answer(type_url, AnswerKind::Rejected)?;
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

    /// Waits until the newest request of a type results in a subscription to exactly these resources, in any order;
    /// `*` stands for the wildcard in any form. Returns that request.
    ///
    /// # Errors
    /// There is no such request in time.
    pub async fn expect_names(
        &self,
        type_url: &str,
        names: &[&str],
    ) -> Result<RecordedRequest, ExpectTimeout> {
        let mut expected: Vec<&str> = names.to_vec();
        expected.sort_unstable();
        let look = |log: &mut Log| {
            let newest = log.requests.iter().rev().find(|request| request.type_url() == type_url)?;
            let mut names = newest.names();
            names.sort_unstable();
            (names == expected).then(|| newest.clone())
        };
        self.expect(|| format!("request for {expected:?} of {type_url}"), Some(type_url), look).await
    }

    /// Waits until this many streams are open.
    ///
    /// # Errors
    /// The number is not reached in time.
    pub async fn expect_clients(&self, clients: usize) -> Result<(), ExpectTimeout> {
        let look = |log: &mut Log| (log.open == clients).then_some(());
        self.expect(|| format!("moment with {clients} open streams"), None, look).await
    }

    /// The number of open streams.
    pub fn clients(&self) -> usize {
        self.inner.streams()
    }

    /// All requests since the start or the last [`clear_requests`](Self::clear_requests).
    pub fn requests(&self) -> Requests {
        self.recorder.requests()
    }

    /// Forgets all previous requests, including those that no expectation has returned.
    pub fn clear_requests(&self) {
        self.recorder.clear();
    }

    /// Waits until `look` finds a value in the log. The error describes the requests of a type, or just the streams.
    async fn expect<T>(
        &self,
        expected: impl FnOnce() -> String,
        type_url: Option<&str>,
        look: impl FnMut(&mut Log) -> Option<T>,
    ) -> Result<T, ExpectTimeout> {
        if let Ok(found) = tokio::time::timeout(self.timeout, self.recorder.find(look)).await {
            return Ok(found);
        }
        // Without a wait: the first look returns.
        let seen = self.recorder.find(|log| Some(log.describe(type_url))).await;
        Err(ExpectTimeout { expected: expected(), waited: self.timeout, seen })
    }
}

/// # Load reports
impl TestControlPlane {
    /// Asks all clients for load reports, and open streams anew; until then, load reporting is not implemented. See
    /// [`ControlPlane::ask_reports`](control_plane::ControlPlane::ask_reports).
    pub fn ask_reports(&self, reporting: LoadReporting) {
        self.inner.ask_reports(reporting);
    }

    /// Waits for the next load of a cluster: the first that no expectation for the cluster has returned yet.
    ///
    /// # Errors
    /// None is received in time.
    pub async fn expect_load(&self, cluster: &str, within: Duration) -> Result<ClusterLoad, ExpectTimeout> {
        let take = |loads: &Loads| self.loads.take_load(loads, cluster);
        self.expect_in_loads(|| format!("load of the cluster {cluster:?}"), within, take).await
    }

    /// Waits for the next load report: the first with loads that was not returned yet.
    ///
    /// # Errors
    /// None is received in time.
    pub async fn expect_load_report(&self) -> Result<Arc<LoadReport>, ExpectTimeout> {
        let take = |loads: &Loads| self.loads.take_report(loads);
        self.expect_in_loads(|| "load report".to_owned(), self.timeout, take).await
    }

    /// Waits until the sums of all load reports of a cluster meet a condition.
    ///
    /// # Errors
    /// They do not in time; the error contains them.
    pub async fn expect_load_totals(
        &self,
        cluster: &str,
        mut condition: impl FnMut(&LoadTotals) -> bool,
    ) -> Result<LoadTotals, ExpectTimeout> {
        let look = |loads: &Loads| Some(loads.totals(cluster)).filter(&mut condition);
        let expected =
            || format!("expected sums of {cluster:?}, which are {:?},", self.inner.load_totals(cluster));
        self.expect_in_loads(expected, self.timeout, look).await
    }

    /// Waits until this many streams of load reports are open.
    ///
    /// # Errors
    /// The number is not reached in time.
    pub async fn expect_load_streams(&self, streams: usize) -> Result<(), ExpectTimeout> {
        let look = |_: &Loads| (self.inner.load_streams() == streams).then_some(());
        let expected = || format!("moment with {streams} open streams of load reports");
        self.expect_in_loads(expected, self.timeout, look).await
    }

    /// All requests on streams of load reports, as far as they are kept, including the first ones of streams, which have no loads.
    pub fn load_requests(&self) -> Vec<Arc<LoadReport>> {
        self.inner.look_at_loads(|loads| loads.reports().cloned().collect())
    }

    /// Waits until `look` finds a value in the load reports. The error describes them.
    async fn expect_in_loads<T>(
        &self,
        expected: impl FnOnce() -> String,
        within: Duration,
        look: impl FnMut(&Loads) -> Option<T>,
    ) -> Result<T, ExpectTimeout> {
        if let Ok(found) = tokio::time::timeout(within, self.inner.find_in_loads(look)).await {
            return Ok(found);
        }
        let streams = self.inner.load_streams();
        let seen = self.inner.look_at_loads(|loads| loads::describe(loads, streams));
        Err(ExpectTimeout { expected: expected(), waited: within, seen })
    }
}

/// # Faults
impl TestControlPlane {
    /// Sets a fault of load reporting, or ends it. [`control_plane`](Self::control_plane) has further ones.
    pub fn set_load_fault(&self, fault: Option<LoadFault>) {
        self.inner.set_load_fault(fault);
    }

    /// Sends nothing until [`release`](Self::release), not even heartbeats of resources with a time to live. Requests
    /// are still read.
    pub fn hold(&self) {
        self.inner.set_held(Held::all());
    }

    /// Sends everything that is due, of all types.
    pub fn release(&self) {
        self.inner.set_held(Held::none());
    }

    /// Sends nothing of one type until it is released.
    pub fn hold_type(&self, type_url: &str) {
        let mut held = self.inner.held();
        held.hold(type_url);
        self.inner.set_held(held);
    }

    /// Sends everything that is due of one type, unless all types are held.
    pub fn release_type(&self, type_url: &str) {
        let mut held = self.inner.held();
        held.release(type_url);
        self.inner.set_held(held);
    }

    /// Ends all streams with `UNAVAILABLE`; clients may reconnect at once.
    pub fn disconnect(&self) {
        self.inner.disconnect(Status::unavailable("disconnected by the test"));
    }

    /// Stops the server: streams end, connections are closed, and the port is released. Does nothing if it is
    /// stopped.
    pub async fn stop(&self) {
        if let Some(server) = self.server.lock().await.take() {
            server.shutdown().await;
        }
    }

    /// Stops the server if it runs, and starts it again on the same address, with the same resources and versions.
    ///
    /// # Panics
    /// Another process has bound the port in the meantime.
    pub async fn restart(&self) {
        self.stop().await;
        *self.server.lock().await = Some(serve(&self.inner, self.addr).await);
    }

    /// Sets the time at which streams get the response headers, for new streams and those without headers.
    pub fn set_headers(&self, headers: Headers) {
        self.inner.set_headers(headers);
    }

    /// Sets whether requests are read.
    pub fn set_reading(&self, reading: bool) {
        self.inner.set_reading(reading);
    }

    /// Sets a status for all REST responses, in place of resources; `None` ends this.
    ///
    /// A REST request is a stream of its own, which ends with its response: a request for a [held](Self::hold) type
    /// can be completed by [`inject`](Self::inject), [`inject_raw`](Self::inject_raw) and
    /// [`disconnect`](Self::disconnect), too.
    #[cfg(feature = "json")]
    pub fn set_rest_status(&self, status: Option<http::StatusCode>) {
        self.inner.set_rest_status(status);
    }

    /// Sets whether REST requests without matching resources get the status 404, as with sovereign.
    #[cfg(feature = "json")]
    pub fn set_rest_not_found(&self, not_found: bool) {
        self.inner.set_rest_not_found(not_found);
    }

    /// Sends a response unchanged on all open streams of its variant that are aggregated or of its type; returns
    /// their number. It is a `DiscoveryResponse` or a `DeltaDiscoveryResponse`.
    ///
    /// It should have a unique nonce (such as `"injected-1"`), by which the client's ACK or NACK is recognized.
    pub fn inject(&self, response: impl Into<Response>) -> usize {
        self.inner.inject(response)
    }

    /// Sends bytes in place of a response on all open streams; returns their number.
    pub fn inject_raw(&self, bytes: impl Into<Bytes>) -> usize {
        self.inner.inject_raw(bytes)
    }
}

/// Listens on an address.
async fn serve(control_plane: &control_plane::ControlPlane, addr: SocketAddr) -> ServerHandle {
    match control_plane.serve(addr).await {
        Ok(server) => server,
        Err(error) => panic!("cannot listen on {addr}: {error}"),
    }
}

/// The default timeout of expectations.
const TIMEOUT: Duration = Duration::from_secs(10);
