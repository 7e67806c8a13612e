//! The steps of a call: routing, pick, stream (CH2.1).

use std::{future::Future, mem, pin::pin, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Request, Response, uri::Authority};
use tokio::{sync::mpsc::UnboundedSender, time::Instant};
use tonic::{Status, body::Body};
use tracing::Instrument;

mod attempts;
mod filters;
mod lookup;

pub(super) use self::filters::TrailerFilters;
use self::{
    attempts::Attempts,
    filters::{AttemptFilters, ChannelCallbacks, FilterRun},
};
use super::{
    ChannelBody,
    active::{ActiveCall, ActiveCalls},
    deadline::{CallEnd, Deadline},
    headers::{self, DefaultHeaders, Head},
    lookup::LookupRouters,
    metadata_server::MetadataServer,
    picker_cell::{PickerCell, QueuedCall, ShutDown},
    plain_http,
    propagator::Propagator,
    request::{DetachedUpload, RequestBody, RetryBuffer},
    response::CallGuards,
    settings::Settings,
    status::{self, ResponseHead},
    task::Control,
    telemetry::{CallTelemetry, DelayType, Telemetry},
};
use crate::{
    balance::{
        cluster_use::ClusterReference,
        hash::RequestHash,
        pick_args::CallAttributes,
        retry::{Retries, RetrySettings},
        routes::{Selected, Selection},
        stale_config::with_stale_config,
    },
    error::Code,
    filters::{FilterCallbacks, Visible},
    resolve::RouteQuery,
};

/// An extension of a request: whether the call waits for a usable endpoint instead of failing with UNAVAILABLE. Without it,
/// [`ChannelBuilder::wait_for_ready`](super::ChannelBuilder::wait_for_ready) applies.
///
/// ```
/// use xdskit::channel::WaitForReady;
///
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(WaitForReady(true));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitForReady(pub bool);

/// An extension of a response: how many times the request was sent, if more than once, whether by a retry policy or because a server
/// had not processed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptCount(pub u32);

/// The state of a channel that its calls share.
pub(super) struct CallContext {
    /// The routes and pickers in use, and the queue of waiting calls.
    pub(super) published: Arc<PickerCell>,
    /// The count of calls.
    pub(super) active: Arc<ActiveCalls>,
    /// The queue to the task of the channel.
    pub(super) control: UnboundedSender<Control>,
    /// The authority of requests that have none of their own.
    pub(super) authority: Authority,
    /// The user agent of requests that have none of their own.
    pub(super) user_agent: HeaderValue,
    /// The id of the node, for errors.
    pub(super) node: String,
    /// The setting of the channel.
    wait_for_ready: bool,
    /// The largest number of waiting calls.
    max_queued: usize,
    /// Whether connections are shared: their end is not that of the calls of this channel, which has to end them itself.
    shares_connections: bool,
    /// The largest message that clients of the crate `grpc` receive, in bytes.
    #[cfg(feature = "grpc")]
    pub(super) max_receive_message_size: usize,
    /// The memory for requests that may be sent again.
    pub(super) buffer: Arc<RetryBuffer>,
    /// The limits of retries, and the throttle if the channel has one.
    retries: RetrySettings,
    /// The input of hash policies by the identity of the channel (CH2.17); random, and constant for its life.
    channel_id: u64,
    /// The clocks and the I/O of HTTP filters.
    pub(super) callbacks: Arc<dyn FilterCallbacks>,
    /// Begins the records of each call.
    telemetry: Telemetry,
    /// Adds the context of traces to the headers of attempts.
    pub(super) propagator: Option<Propagator>,
    /// Executes the plugins of routes.
    pub(super) lookups: Arc<LookupRouters>,
}

/// A call in progress, until its response begins.
pub(super) struct Call<'a> {
    /// The state that the call shares with all calls of its channel.
    pub(super) context: &'a CallContext,
    /// Whether the call goes on waiting after a failed pick.
    pub(super) waits_for_ready: bool,
    /// The begin of the call, if it was read before the first wait. Calls without telemetry and deadline read no clock.
    begin: Option<Instant>,
    /// The deadline, and the end of the channel.
    pub(super) deadline: Deadline,
    /// The source of all random choices of the call: fractions, weighted clusters, picks and delays of retries.
    pub(super) random: fastrand::Rng,
    /// The position in the queue, taken at the first wait and kept by later ones, so that a call does not lose its turn.
    queued: Option<QueuedCall<'a>>,
    /// The reason of the last failed pick, for the status of a deadline.
    pub(super) reason: Option<Arc<str>>,
    /// How many times the request was sent.
    pub(super) attempts: u32,
    /// The records of the call, until its response takes them.
    pub(super) telemetry: CallTelemetry,
    /// The header data of the response by which the cluster was looked up.
    lookup_data: Option<HeaderValue>,
}

/// The result of routing, as far as attempts need it. Filters may change it (`filters::upstream`).
pub(super) struct Routed {
    /// The cluster of the call.
    pub(super) cluster: ClusterReference,
    /// Clusters of the route that filters may select instead.
    pub(super) others: Vec<ClusterReference>,
    /// Whether the authority becomes the hostname of the endpoint, if the request has none of its own (A81).
    pub(super) auto_host_rewrite: bool,
    /// The retry policy of the route, within the limits of the channel.
    pub(super) retries: Retries,
    /// Inputs of the picks.
    pub(super) attributes: CallAttributes,
    /// Counts the call.
    pub(super) active: ActiveCall,
}

impl CallContext {
    pub(super) fn new(
        headers: DefaultHeaders,
        node: String,
        settings: &Settings,
        control: UnboundedSender<Control>,
        telemetry: Telemetry,
    ) -> Self {
        let (per_call, per_channel) = settings.retry_buffer;
        let active = ActiveCalls::new();
        let metadata_server = MetadataServer::new(settings.metadata_server.as_deref());
        let callbacks = Arc::new(ChannelCallbacks::new(metadata_server, active.malformed().clone()));
        Self {
            published: PickerCell::new(),
            active,
            control,
            authority: headers.authority,
            user_agent: headers.user_agent,
            node,
            wait_for_ready: settings.wait_for_ready,
            max_queued: settings.max_queued,
            shares_connections: settings.share_connections,
            #[cfg(feature = "grpc")]
            max_receive_message_size: settings.max_receive_message_size,
            buffer: RetryBuffer::new(per_call, per_channel),
            retries: settings.retries.clone(),
            channel_id: fastrand::u64(..),
            callbacks,
            telemetry,
            propagator: settings.propagator.clone(),
            lookups: Arc::default(),
        }
    }

    /// Executes the plugins of routes.
    pub(super) fn with_lookups(self, lookups: Arc<LookupRouters>) -> Self {
        Self { lookups, ..self }
    }

    /// Makes a call. Its failures are responses, too (CH2.27).
    pub(super) fn call(&self, request: Request<Body>) -> impl Future<Output = Response<ChannelBody>> + Send {
        self.call_until(request, None)
    }

    /// Makes a call that ends at a deadline, unless its headers have an earlier one.
    ///
    /// The states of calls are moved as they begin, so each of them is small: what is rare has a box of its own, and what is large
    /// is passed by reference (CH11.5).
    pub(super) async fn call_until(
        &self,
        mut request: Request<Body>,
        deadline: Option<Instant>,
    ) -> Response<ChannelBody> {
        let (active, is_idle) = self.active.begin();
        if is_idle {
            // An error means that the channel was shut down.
            let _ = self.control.send(Control::Wake);
        }
        let is_grpc = status::is_grpc(request.headers());
        // CH1.16: the extension of the request precedes the setting of the channel.
        let wait = request.extensions().get().map_or(self.wait_for_ready, |WaitForReady(wait)| *wait);
        let telemetry = self.telemetry.begin(&request);
        let mut call = Call {
            context: self,
            waits_for_ready: wait,
            begin: telemetry.begin(),
            deadline: Deadline::new(self.shares_connections.then(|| self.active.clone().cancelled())),
            random: fastrand::Rng::new(),
            queued: None,
            reason: None,
            attempts: 0,
            telemetry,
            lookup_data: None,
        };
        let span = call.telemetry.span();
        let responded = pin!(call.run(&mut request, active, deadline)).instrument(span).await;
        // The body of a response ends the records of its call; without a response they end here.
        if let Err(status) = &responded {
            call.telemetry.end(status::core_code(status.code()));
        }
        let mut response = responded.unwrap_or_else(Status::into_http);
        if !is_grpc {
            plain_http::fail(&mut response);
        }
        if call.attempts > 1 {
            // CH6.20: everything else of earlier attempts, such as their headers, is dropped.
            response.extensions_mut().insert(AttemptCount(call.attempts));
        }
        response
    }
}

impl<'a> Call<'a> {
    /// Routes the call, and runs its filters or its attempts.
    async fn run(
        &mut self,
        request: &mut Request<Body>,
        active: ActiveCall,
        deadline: Option<Instant>,
    ) -> Result<Response<ChannelBody>, Status> {
        if let Some(deadline) = deadline {
            self.limit_until(deadline.min(Instant::now() + headers::LONGEST_TIMEOUT))?;
        }
        if let Some(timeout) = headers::timeout(request.headers())? {
            self.limit(timeout)?;
        }
        headers::prepare(request.headers_mut(), &self.context.user_agent);
        let Selected {
            cluster,
            max_stream_duration,
            auto_host_rewrite,
            retry_policy,
            hash_policies,
            filters,
            others,
        } = self.select(request.uri().path(), request.headers()).await?;
        if let Some(data) = self.lookup_data.take() {
            request.headers_mut().insert(lookup::LOOKUP_DATA, data);
        }
        // A31-2: the shorter one of both limits applies, whichever was set first.
        if let Some(limit) = max_stream_duration {
            self.limit(limit)?;
        }
        let hash = RequestHash::new(hash_policies, self.context.channel_id);
        let routed = Routed {
            cluster,
            others,
            auto_host_rewrite,
            retries: Retries::new(retry_policy, &self.context.retries),
            attributes: CallAttributes::new(hash).with_labels(self.telemetry.pick_labels()),
            active,
        };
        match filters {
            Some(filters) => {
                self.telemetry.on_wait();
                Box::pin(FilterRun::new(self, filters, routed).respond(request)).await
            }
            None => self.forward(routed, request, AttemptFilters::none()).await,
        }
    }

    /// Makes the attempts of a call that has passed its filters.
    pub(super) async fn forward(
        &mut self,
        routed: Routed,
        request: &mut Request<Body>,
        filters: AttemptFilters<'_>,
    ) -> Result<Response<ChannelBody>, Status> {
        let (parts, body) = mem::take(request).into_parts();
        let mut body = RequestBody::new(body, &self.context.buffer);
        let (throttled, has_handler) = (routed.retries.throttled(), filters.has_handler());
        let mut attempts = Attempts::new(self, routed, Head::new(parts), &mut body, filters);
        let (mut response, attempt, upload) = attempts.run().await?;
        let active = attempts.into_active();
        let telemetry = self.telemetry.take(has_handler);
        let is_end = response.body().is_end_stream();
        let head = ResponseHead::new(&mut response, is_end);
        let cancellation = None;
        let mut guards =
            CallGuards { attempt, head, active, upload: None, cancellation, throttled, telemetry };
        match status::in_headers(response.headers()) {
            Some(Code::Ok) => guards.on_status(Code::Ok),
            // A failure without a body was counted when it was decided that no attempt follows.
            Some(code) => {
                guards.attempt.on_complete();
                guards.telemetry.end(code);
            }
            None => {}
        }
        // A server that has ended the call does not read the rest of the request: the drop of the upload resets the stream.
        let mut upload = upload.filter(|_| !is_end);
        if let (Some(upload), true) = (&mut upload, guards.telemetry.counts_bytes()) {
            guards.telemetry.share_sent(upload.share_sent());
        }
        // The upload goes on in a task of its own, so that the application may read the response without polling the request
        // (CH6.17).
        guards.upload = upload.map(|upload| tokio::spawn(DetachedUpload::new(body, upload)).abort_handle());
        let deadline = mem::take(&mut self.deadline);
        Ok(response.map(|stream| ChannelBody::new(stream, deadline, guards)))
    }

    /// Limits the time of the call, from its beginning (CH2.14).
    ///
    /// # Errors
    /// The time is over (CH2.16).
    pub(super) fn limit(&mut self, time: Duration) -> Result<(), Status> {
        let begin = *self.begin.get_or_insert_with(Instant::now);
        self.limit_until(begin + time)
    }

    /// Limits the time of the call to a deadline.
    ///
    /// # Errors
    /// The time is over (CH2.16).
    fn limit_until(&mut self, deadline: Instant) -> Result<(), Status> {
        let begin = *self.begin.get_or_insert_with(Instant::now);
        self.deadline.limit(deadline);
        if deadline <= begin { Err(self.too_late("there is no time for the call")) } else { Ok(()) }
    }

    /// Selects the cluster, once for the call.
    async fn select(&mut self, path: &str, headers: &HeaderMap) -> Result<Selected, Status> {
        let headers = Visible(headers);
        let query = RouteQuery::new(path, self.random.u64(..)).with_headers(&headers);
        loop {
            // The guard of the generation is dropped before the wait: it would keep an old generation in memory.
            let (selection, seen) = {
                let generation = self.context.published.load();
                (generation.select(&query), generation.number())
            };
            match selection {
                Selection::Selected(selected) => return Ok(selected),
                Selection::Lookup(plugin) => match Box::pin(self.look_up(&plugin, &query, seen)).await? {
                    Some(selected) => return Ok(selected),
                    None => continue,
                },
                Selection::NoRoute(reason) => return Err(self.failed(&reason)),
                Selection::Fail(reason) if !self.waits_for_ready => return Err(self.unavailable(&reason)),
                Selection::Fail(reason) => self.reason = Some(reason.into()),
                Selection::Wait => {}
            }
            Box::pin(self.wait_for_routes(seen)).await?;
        }
    }

    /// Waits for routes that are newer than those of a generation.
    async fn wait_for_routes(&mut self, seen: u64) -> Result<(), Status> {
        let waiter = self.queued()?.wait_for_routes(seen).map_err(|ShutDown| self.shut_down())?;
        let Some(mut waiter) = waiter else { return Ok(()) };
        self.telemetry.on_wait();
        let reason =
            || self.reason.clone().map_or(NO_CONFIGURATION.into(), |reason| reason.to_string().into());
        let mut delay = self.telemetry.delay_call(DelayType::Resolving, reason);
        match self.deadline.watch(waiter.answer()).await {
            Ok(answer) => {
                answer.map_err(|ShutDown| self.shut_down())?;
                if let Some(delay) = &mut delay {
                    delay.complete();
                }
                Ok(())
            }
            Err(end) => Err(self.ended(end, NO_CONFIGURATION)),
        }
    }

    /// Returns the call as one that waits, with its position among others from its first wait on.
    ///
    /// # Errors
    /// As many calls are waiting as permitted (CH1.12).
    pub(super) fn queued(&mut self) -> Result<&QueuedCall<'a>, Status> {
        let CallContext { published, max_queued, .. } = self.context;
        self.begin.get_or_insert_with(Instant::now);
        if self.queued.is_none() {
            self.queued = published.enqueue(*max_queued);
        }
        let limit = self.context.max_queued;
        let full = || Status::resource_exhausted(format!("{limit} calls are waiting, the maximum"));
        self.queued.as_ref().ok_or_else(full)
    }

    /// Leaves the queue, so that another call may wait: this one is sent, or waits for something else than an endpoint.
    pub(super) fn leave_queue(&mut self) {
        self.queued = None;
    }

    /// Returns the output of a future that is not bound to a connection; see [`Deadline::until_shut_down`].
    pub(super) async fn until_shut_down<T>(&mut self, future: impl Future<Output = T>) -> Result<T, CallEnd> {
        self.deadline.until_shut_down(&self.context.active, future).await
    }

    /// Returns the status of a call whose deadline passed while it waited.
    pub(super) fn too_late(&self, reason: &str) -> Status {
        match &self.reason {
            Some(reason) => status::deadline_exceeded(&self.with_stale_config(reason)),
            None => status::deadline_exceeded(reason),
        }
    }

    /// The status of a call without a route or a usable endpoint.
    pub(super) fn failed(&self, reason: &str) -> Status {
        self.unavailable(&self.with_stale_config(reason))
    }

    /// Appends the reason why the configuration may be stale, if there is one.
    fn with_stale_config(&self, reason: &str) -> String {
        with_stale_config(reason, self.context.published.load().stale_config.as_deref())
    }

    /// Returns the status of a call that ended while it waited for routes, an endpoint or a stream.
    pub(super) fn ended(&self, end: CallEnd, reason: &str) -> Status {
        match end {
            CallEnd::DeadlineExceeded => self.too_late(reason),
            CallEnd::ShutDown => self.shut_down(),
        }
    }

    /// Returns the status of a call for which the channel has ended.
    pub(super) fn shut_down(&self) -> Status {
        match self.context.published.closed() {
            Some(reason) => self.unavailable(&reason),
            // The shutdown has begun.
            None => self.unavailable(SHUT_DOWN),
        }
    }

    /// Returns the status UNAVAILABLE with the node id.
    pub(super) fn unavailable(&self, reason: &str) -> Status {
        status::unavailable(reason, &self.context.node)
    }
}

/// What calls wait for before the first configuration.
const NO_CONFIGURATION: &str = "there is no configuration yet";

/// The reason of calls that fail after [`Channel::shutdown`](super::Channel::shutdown).
pub(super) const SHUT_DOWN: &str = "channel is shut down";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Channel, config::Bootstrap};

    #[tokio::test]
    async fn ch11_5_the_state_of_a_call_is_small() {
        let bootstrap = r#"{
            "xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}],
            "node": {"id": "a"}
        }"#;
        let bootstrap = Bootstrap::from_json(bootstrap).unwrap();
        let channel = Channel::builder("xds:///shop").bootstrap(bootstrap).build().unwrap();
        let call = channel.shared.calls.call(Request::new(Body::empty()));
        let size = size_of_val(&call);
        assert!(size <= 4 << 10, "{size} bytes are moved several times for each call");
    }
}
