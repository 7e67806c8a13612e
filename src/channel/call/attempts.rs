//! The attempts of a call: pick, stream, response, and whether another one follows (CH2.1, CH6.7).

mod failure;

use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, client::ResponseFuture};
use http::{HeaderMap, Response, uri::Authority};
use tokio::time::{Instant, sleep};
use tonic::Status;
use tracing::Instrument;

use self::failure::{Failure, never_sent};
use super::{Call, Routed, filters::AttemptFilters};
use crate::{
    balance::{
        cluster_use::ClusterReference,
        pick_args::{CallAttributes, PickArgs},
        picker::{Attempt, Pick},
        ready_endpoint::ReadyEndpoint,
        retry::{AttemptEnd, Next, Pushback, Repeatable, Retries},
        stream_queue::Gone,
    },
    channel::{
        active::ActiveCall,
        connection::{Handle, Reserved, SendError},
        deadline::CallEnd,
        headers::Head,
        picker_cell::{ShutDown, connecting_reason},
        request::{RequestBody, RequestUpload},
        status,
        task::Control,
        telemetry::DelayType,
    },
    resolve::RouteQuery,
};

/// The attempts of a call, which share its request, its cluster and its filters.
pub(super) struct Attempts<'a, 'c> {
    call: &'a mut Call<'c>,
    /// The request without its body.
    head: Head,
    /// The body, kept as long as it may have to be sent again.
    body: &'a mut RequestBody,
    /// Counts the call.
    active: ActiveCall,
    /// The cluster that the call was routed to. Retries keep it (A31-3).
    cluster: ClusterReference,
    /// Whether the authority becomes the hostname of the endpoint (A81).
    auto_host_rewrite: bool,
    /// Decides whether another attempt follows.
    retries: Retries,
    /// Inputs and results of the pick of the current attempt.
    attributes: CallAttributes,
    /// Headers with the call credentials of the current attempt, if it has any.
    credentials: Option<Box<HeaderMap>>,
    filters: AttemptFilters<'a>,
}

/// A response that has begun, its attempt, and what sends the rest of the request.
pub(super) type Responded = (Response<RecvStream>, Reserved, Option<RequestUpload>);

impl<'a, 'c> Attempts<'a, 'c> {
    /// The attempts of a call that was routed, with a request without its body.
    pub(super) fn new(
        call: &'a mut Call<'c>,
        routed: Routed,
        head: Head,
        body: &'a mut RequestBody,
        filters: AttemptFilters<'a>,
    ) -> Self {
        let Routed { cluster, others: _, auto_host_rewrite, retries, attributes, active } = routed;
        Self {
            call,
            head,
            body,
            active,
            cluster,
            auto_host_rewrite,
            retries,
            attributes,
            credentials: None,
            filters,
        }
    }

    /// Makes attempts until one of them has the response of the call, or none may follow.
    pub(super) async fn run(&mut self) -> Result<Responded, Status> {
        let mut seen = None;
        loop {
            let span = self.call.telemetry.begin_attempt(self.head.path());
            let failure = match pin!(self.attempt(seen)).instrument(span).await {
                Ok(responded) => return Ok(responded),
                Err(failure) => failure,
            };
            if let Some(code) = failure.code() {
                self.call.telemetry.end_attempt(code);
            }
            let Some(end) = failure.end() else { return failure.deliver() };
            if let AttemptEnd::Failed(_, Pushback::Malformed) = end {
                self.call.context.active.malformed().on_retry_pushback();
            }
            // CH6.6: by the remaining time the policy gives up a retry whose delay would end after the deadline.
            let remaining = self.call.deadline.at().map(|at| at.saturating_duration_since(Instant::now()));
            let can = Repeatable { is_kept: self.body.is_kept() && !self.active.is_shut_down(), remaining };
            match self.retries.next(end, can, &mut self.call.random) {
                Next::Deliver => return failure.deliver(),
                Next::NeverSent => return Err(never_sent()),
                Next::Free => {}
                Next::After(delay) => {
                    // What is left of the attempt ends before the delay.
                    drop(failure);
                    self.call.telemetry.on_delay();
                    Box::pin(self.back_off(delay)).await?;
                    self.repeat();
                    seen = None;
                    continue;
                }
            }
            seen = match failure {
                // The attempt goes on with another connection, from the beginning of the body.
                Failure::NeverSent(number) => {
                    self.body.rewind();
                    Some(number)
                }
                Failure::NeverProcessed(_) => {
                    self.call.telemetry.on_transparent_retry();
                    self.repeat();
                    None
                }
                Failure::ConnectionLost(_)
                | Failure::Failed(_)
                | Failure::Responded(_)
                | Failure::Final(_) => {
                    self.repeat();
                    None
                }
            };
        }
    }

    /// Picks an endpoint and sends the request to it.
    async fn attempt(&mut self, seen: Option<u64>) -> Result<Responded, Failure> {
        let (picked, number) = self.pick(seen).await?;
        // CH2.21: after the pick, since credentials may depend on the endpoint, and must not be sent on a connection that is not
        // private.
        if self.filters.have_credentials() {
            let credentials = Box::pin(self.filters.authenticate(self.call, &picked.endpoint)).await;
            self.credentials = Some(credentials.map_err(Failure::Failed)?);
        }
        // CH4.10: the pick stays while the attempt waits for a stream, in the queue of the connections to its endpoint.
        let reserved = match Reserved::try_new(picked) {
            Ok(reserved) => reserved,
            Err(picked) => Box::pin(self.wait_for_stream(picked, number)).await?,
        };
        let mut responded = self.send(reserved, number).await?;
        self.filters.on_response(responded.0.headers_mut(), &self.attributes, &self.cluster);
        let (response, reserved, _) = &mut responded;
        if status::in_headers(response.headers()).is_some() {
            reserved.on_trailers(response.headers(), self.call.context.active.malformed());
        }
        let is_end = response.body().is_end_stream();
        match status::of_response(response, is_end, reserved.endpoint().address) {
            Some(mut status) => {
                self.filters.on_failed_response(&mut status, &self.attributes, &self.cluster);
                Err(Failure::Failed(status))
            }
            // CH6.11: headers that are the end have shown nothing to the application yet, so that a retry may replace them.
            None if status::is_failure(response) => Err(Failure::Responded(Box::new(responded))),
            None => Ok(responded),
        }
    }

    /// Sends the request, and waits until the response begins.
    async fn send(&mut self, mut attempt: Reserved, number: u64) -> Result<Responded, Failure> {
        let is_end = poll_fn(|cx| Poll::Ready(self.body.is_at_end(cx))).await.map_err(Failure::Final)?;
        let (mut response, stream) = self.begin_stream(&attempt, number, is_end)?;
        attempt.on_stream(response.stream_id());
        let sent = &attempt;
        self.call.leave_queue();
        self.call.telemetry.on_stream(self.cluster.name(), sent.endpoint().address);
        let counts_bytes = self.call.telemetry.counts_bytes();
        let (mut upload, deadline) =
            ((!is_end).then(|| RequestUpload::new(stream, counts_bytes)), self.call.deadline.at());
        let Self { call, body, active, cluster, .. } = self;
        let Call { telemetry, deadline: limit, .. } = &mut **call;
        let response = poll_fn(|cx| {
            if let Some(sending) = &mut upload {
                let polled = sending.poll(body, cx);
                if let Some(bytes) = sending.sent() {
                    telemetry.set_sent(bytes);
                }
                match polled {
                    Poll::Ready(Ok(())) => upload = None,
                    Poll::Ready(Err(status)) => return Poll::Ready(Err(Failure::Final(status))),
                    Poll::Pending => {}
                }
                // CH6.16: a request that cannot be sent again needs its cluster no more. It may be removed while the response is
                // read.
                if !body.is_kept() {
                    cluster.release();
                }
            }
            Pin::new(&mut response).poll(cx).map_err(|error| {
                // An attempt whose request was not sent can go on with another connection.
                match sent.is_unsent() && body.is_kept() && !active.is_shut_down() {
                    true => Failure::NeverSent(number),
                    false => Failure::of_stream(&error, sent, deadline, active),
                }
            })
        });
        let responded = limit.watch(response).await;
        // The server has not seen an attempt that was never written, so it is not counted.
        self.call.attempts += u32::from(!attempt.is_unsent());
        match responded {
            Ok(response) => {
                let mut response = response?;
                attempt.on_response();
                status::check_header_list(response.headers(), &attempt).map_err(Failure::Final)?;
                attempt.handle().identify(&mut response);
                status::correct_deadline(response.headers_mut(), deadline);
                Ok((response, attempt, upload))
            }
            Err(end) => Err(Failure::Final(end.status(&self.missing_response(&attempt)))),
        }
    }

    /// Begins the stream of an attempt.
    fn begin_stream(
        &mut self,
        attempt: &Reserved,
        number: u64,
        is_end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), Failure> {
        let endpoint = attempt.endpoint();
        let remaining = self.call.deadline.at().map(|at| at.saturating_duration_since(Instant::now()));
        if remaining.is_some_and(|left| left.is_zero()) {
            return Err(Failure::Final(self.call.too_late("the request was not sent in time")));
        }
        let authority = self.authority(endpoint, &self.call.context.authority);
        // CH2.24: the handshake of the fallback has verified the authority of the channel, and no other one.
        if authority != self.call.context.authority
            && let Some(Err(reason)) = attempt.handle().secured().map(|secured| secured.permits(&authority))
        {
            return Err(Failure::Failed(self.call.unavailable(&format!("{}: {reason}", endpoint.address))));
        }
        let mut request =
            self.head.request(authority, remaining, self.retries.previous(), attempt.metadata());
        // Taken: the filters make other credentials for the next attempt, which may reach another endpoint.
        for (name, value) in self.credentials.take().into_iter().flat_map(|headers| *headers) {
            // A name is absent before the second value of a header; credentials have one value each.
            if let Some(name) = name {
                request.headers_mut().insert(name, value);
            }
        }
        if let Some(propagator) = &self.call.context.propagator {
            propagator.inject(request.headers_mut());
        }
        let sent = attempt.handle().send(request, is_end);
        sent.map_err(|error| match error {
            SendError::Gone => Failure::NeverSent(number),
            SendError::TooLarge { size, limit } => {
                Failure::Final(status::request_too_large(endpoint.address, size, limit))
            }
            // What the connection does not accept was said by the caller, not by the peer.
            SendError::Invalid(error) => {
                Failure::Final(Status::internal(format!("the request cannot be sent: {error}")))
            }
        })
    }

    /// Waits for an endpoint, by a picker that is newer than that of a generation.
    async fn pick(&mut self, mut seen: Option<u64>) -> Result<(Attempt<Handle>, u64), Failure> {
        // An attempt that waits before its first pick has lost the connection of the last one.
        let mut delay = DelayType::SubchannelMismatch;
        loop {
            let waited = match seen {
                Some(seen) => {
                    let waited = Box::pin(self.wait_for_picker(seen, delay)).await;
                    waited.map_err(Failure::Final)?
                }
                None => None,
            };
            let (pick, number) = waited.unwrap_or_else(|| self.pick_now());
            self.call.telemetry.on_pick(&self.attributes);
            match pick {
                Pick::Complete(attempt) => return Ok((attempt, number)),
                // CH6.7: a drop is final, and so is a cluster that is gone or unknown, also for calls that wait for ready.
                Pick::Drop(_, reason) => return Err(Failure::Final(self.call.unavailable(&reason))),
                Pick::Unknown(reason) => {
                    return Err(Failure::Final(status::internal(&reason, &self.call.context.node)));
                }
                Pick::Fail(reason) if !self.call.waits_for_ready => {
                    return Err(Failure::Failed(self.call.failed(&reason)));
                }
                Pick::FailAs(code, reason) if !self.call.waits_for_ready => {
                    return Err(Failure::Failed(status::local(code, &reason)));
                }
                Pick::Fail(reason) | Pick::FailAs(_, reason) => {
                    delay = DelayType::PickerFailing;
                    self.call.reason = Some(reason);
                }
                Pick::Broken(reason) => {
                    // The task learns that the policy has failed.
                    self.request_connection();
                    if !self.call.waits_for_ready {
                        return Err(Failure::Failed(status::internal(&reason, &self.call.context.node)));
                    }
                    delay = DelayType::PickerFailing;
                    self.call.reason = Some(reason);
                }
                // A connection is under way: an earlier failure would explain the end at the deadline wrongly.
                Pick::Queue => {
                    delay = self.connecting();
                    self.call.reason = None;
                }
                Pick::QueueAndConnect => {
                    delay = self.connecting();
                    self.request_connection();
                }
            }
            seen = Some(number);
        }
    }

    /// Picks by the newest picker. Also returns the number of its generation.
    fn pick_now(&mut self) -> (Pick<Handle>, u64) {
        let Self { call, head, cluster, attributes, .. } = self;
        let Call { context, random, .. } = &mut **call;
        // The number, 0, chooses among fractions and weighted clusters, which were drawn when the call was routed (CH2.4).
        let query = RouteQuery::new(head.path(), 0).with_headers(head);
        if let Some(session) = &mut attributes.session {
            session.begin_pick(Instant::now().into_std());
        }
        let mut args = PickArgs { attributes, random, request: &query };
        let (pick, number) = {
            let generation = context.published.load();
            (generation.pick(cluster.place(), &mut args), generation.number())
        };
        if let Some(request) = attributes.take_connect_request() {
            // An error means that the channel was shut down.
            let _ = context.control.send(Control::ConnectEndpoint(request));
        }
        (pick, number)
    }

    /// The delay of an attempt that waits for a connection.
    fn connecting(&self) -> DelayType {
        DelayType::Connecting(self.call.context.published.load().priority(self.cluster.place()))
    }

    /// Requests a connection of the cluster from the task of the channel.
    fn request_connection(&self) {
        // An error means that the channel was shut down.
        let _ = self.call.context.control.send(Control::Connect { cluster: self.cluster.name().clone() });
    }

    /// Waits for a pick of a picker that is newer than that of a generation. `None` if there is one that the call picks by itself.
    async fn wait_for_picker(
        &mut self,
        seen: u64,
        delay: DelayType,
    ) -> Result<Option<(Pick<Handle>, u64)>, Status> {
        let Self { call, cluster, attributes, .. } = self;
        let waits_for_ready = call.waits_for_ready;
        let waiter = call
            .queued()?
            .wait_for_picker(cluster, seen, mem::take(attributes), waits_for_ready)
            .map_err(|ShutDown| call.shut_down())?;
        let mut waiter = match waiter {
            Ok(waiter) => waiter,
            Err(returned_attributes) => {
                *attributes = returned_attributes;
                return Ok(None);
            }
        };
        let reason = || match (delay, &call.reason) {
            (DelayType::PickerFailing, Some(reason)) => reason.to_string().into(),
            _ => connecting_reason(cluster.name()).into(),
        };
        if let Some(delay) = call.telemetry.delay_attempt(delay, reason) {
            waiter.set_delay(delay);
        }
        let answer = call.deadline.watch(waiter.answer()).await;
        call.reason = waiter.reason().or(call.reason.take());
        if call.telemetry.has_pick_labels() {
            call.telemetry.set_labels(waiter.labels());
        }
        match answer {
            Ok(Ok((picked, returned_attributes))) => {
                *attributes = returned_attributes;
                Ok(picked)
            }
            Ok(Err(ShutDown)) => Err(call.shut_down()),
            Err(end) => Err(call.ended(end, &format!("cluster {} is connecting", cluster.name()))),
        }
    }

    /// Waits until the peer permits another stream (CH4.13). If the connection is lost before, nothing was sent (CH6.12).
    async fn wait_for_stream(&mut self, attempt: Attempt<Handle>, number: u64) -> Result<Reserved, Failure> {
        self.call.queued().map_err(Failure::Final)?;
        let address = attempt.endpoint.address;
        match self.call.until_shut_down(Reserved::new(attempt)).await {
            Ok(reserved) => reserved.map_err(|Gone| Failure::NeverSent(number)),
            Err(CallEnd::ShutDown) => Err(Failure::Final(self.call.shut_down())),
            Err(CallEnd::DeadlineExceeded) => {
                let reason = format!("cluster {}, {address}: {NO_STREAM}", self.cluster.name());
                Err(Failure::Final(status::deadline_exceeded(&reason)))
            }
        }
    }

    /// Waits before a retry (CH6.4). The call has no stream then, so it ends like one that waits.
    async fn back_off(&mut self, delay: Duration) -> Result<(), Status> {
        let waited = self.call.until_shut_down(sleep(delay)).await;
        waited.map_err(|end| self.call.ended(end, "the delay before a retry is not over"))
    }

    /// Returns what counts the call, which goes on with its response.
    pub(super) fn into_active(self) -> ActiveCall {
        self.active
    }

    /// Prepares the request to be sent again.
    fn repeat(&mut self) {
        self.attributes = mem::take(&mut self.attributes).for_next_attempt();
        self.body.rewind();
    }

    /// Describes what an attempt without a response is waiting for.
    fn missing_response(&self, attempt: &Reserved) -> String {
        let (cluster, address) = (self.cluster.name(), attempt.endpoint().address);
        let missing = if attempt.is_unsent() { NO_STREAM } else { "no response" };
        format!("cluster {cluster}, {address}: {missing}")
    }

    /// The authority of the request to an endpoint (CH2.24).
    fn authority(&self, endpoint: &ReadyEndpoint<Handle>, channel: &Authority) -> Authority {
        if let Some(own) = self.head.authority.as_ref().filter(|own| *own != channel) {
            return own.clone();
        }
        let hostname = endpoint.hostname.as_deref().filter(|_| self.auto_host_rewrite);
        // A hostname of EDS that cannot be an authority must not fail calls: the authority of the channel stays.
        hostname.and_then(|name| name.parse().ok()).unwrap_or_else(|| channel.clone())
    }
}

/// Explains a deadline that passes while the call waits for a stream.
const NO_STREAM: &str = "the server permits no further stream on its connections";
