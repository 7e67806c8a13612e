//! The attempts of a call: pick, stream, response, and whether another one follows (CH2.1, CH6.7).

use std::{
    convert::identity,
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, client::ResponseFuture};
use http::{Response, uri::Authority};
use tokio::time::{Instant, sleep};
use tonic::Status;
use tracing::Instrument;

use super::{
    active::ActiveCall,
    call::Call,
    connection::{Handle, Reserved, SendError},
    deadline::CallEnd,
    filters::CredentialHeaders,
    headers::Head,
    picker_cell::ShutDown,
    request::{RequestBody, RequestUpload},
    session::Sessions,
    status,
    task::Control,
};
use crate::{
    balance::{
        cluster_use::ClusterReference,
        picker::{Attempt, Draws, Pick, PickArgs, ReadyEndpoint},
        retry::{AttemptEnd, MAX_NEVER_SENT, Next, Pushback, Repeatable, Retries},
        stream_queue::Gone,
    },
    error::Code,
    resolve::RouteQuery,
};

/// The state that the attempts of a call share.
pub(super) struct Attempts<'a> {
    /// The request without its body.
    pub(super) head: Head,
    /// The body, kept as long as it may have to be sent again.
    pub(super) body: &'a mut RequestBody,
    pub(super) active: &'a ActiveCall,
    /// The cluster that the call was routed to. Retries keep it (A31-3).
    pub(super) cluster: ClusterReference,
    /// Whether the authority becomes the hostname of the endpoint (A81).
    pub(super) auto_host_rewrite: bool,
    /// Decides whether another attempt follows.
    pub(super) retries: Retries,
    /// Inputs and results of the pick of the current attempt.
    pub(super) draws: Draws,
    /// Headers of the call credentials of the current attempt; empty without credentials.
    pub(super) credentials: CredentialHeaders,
    /// The sessions of the call, from the cookies of the request.
    pub(super) sessions: Sessions,
}

/// A response that has begun, its attempt, and what sends the rest of the request.
pub(super) type Responded = (Response<RecvStream>, Reserved, Option<RequestUpload>);

/// The end of an attempt without a response for the application.
enum Failure {
    /// The connection was gone before anything was written (CH6.12). The next attempt needs a picker that is newer than that of this
    /// generation.
    NeverSent(u64),
    /// The server reported that it did not process the request (CH6.13).
    NeverProcessed(Status),
    /// The connection was lost after the request was sent, and before the response.
    ConnectionLost(Status),
    /// A failure on this side, or a reset of the stream, without a status of the server (CH6.10).
    Failed(Status),
    /// A response without messages, whose headers carry the status.
    Responded(Box<Responded>),
    /// A failure that permits no further attempt (CH6.7).
    Final(Status),
}

impl Call<'_> {
    /// Makes attempts until one of them has the response of the call, or none may follow.
    pub(super) async fn attempts(&mut self, of: &mut Attempts<'_>) -> Result<Responded, Status> {
        let mut seen = None;
        loop {
            let span = self.telemetry.begin_attempt();
            let failure = match pin!(self.attempt(seen, of)).instrument(span).await {
                Ok(responded) => return Ok(responded),
                Err(failure) => failure,
            };
            if let Some(code) = failure.code() {
                self.telemetry.end_attempt(code);
            }
            let Some(end) = failure.end() else { return failure.deliver() };
            if let AttemptEnd::Failed(_, Pushback::Malformed) = end {
                self.context.active.malformed().on_retry_pushback();
            }
            let remaining = self.deadline.at().map(|at| at.saturating_duration_since(Instant::now()));
            let can = Repeatable { is_kept: of.body.is_kept() && !of.active.is_shut_down(), remaining };
            match of.retries.next(end, can, &mut self.random) {
                Next::Deliver => return failure.deliver(),
                Next::NeverSent => return Err(never_sent()),
                Next::Free => {}
                Next::After(delay) => {
                    // What is left of the attempt ends before the delay.
                    drop(failure);
                    self.telemetry.on_delay();
                    Box::pin(self.back_off(delay)).await?;
                    of.repeat();
                    seen = None;
                    continue;
                }
            }
            seen = match failure {
                // The attempt goes on with another connection, from the beginning of the body.
                Failure::NeverSent(number) => {
                    of.body.rewind();
                    Some(number)
                }
                Failure::NeverProcessed(_) => {
                    self.telemetry.on_transparent_retry();
                    of.repeat();
                    None
                }
                Failure::ConnectionLost(_)
                | Failure::Failed(_)
                | Failure::Responded(_)
                | Failure::Final(_) => {
                    of.repeat();
                    None
                }
            };
        }
    }

    /// Picks an endpoint and sends the request to it.
    async fn attempt(&mut self, seen: Option<u64>, of: &mut Attempts<'_>) -> Result<Responded, Failure> {
        let (picked, number) = self.pick(of, seen).await?;
        // CH2.21: after the pick, since credentials may depend on the endpoint, and must not be sent on a connection that is not
        // private.
        if !self.credentials.is_empty() {
            let credentials = Box::pin(self.authenticate(&picked.endpoint)).await;
            of.credentials = credentials.map_err(Failure::Failed)?;
        }
        let reserved = match Reserved::try_new(picked) {
            Ok(reserved) => reserved,
            Err(picked) => Box::pin(self.wait_for_stream(picked, number, of.cluster.name())).await?,
        };
        let mut responded = self.send(reserved, number, of).await?;
        of.sessions.set_cookies(responded.0.headers_mut(), &of.draws, of.cluster.name());
        let (response, reserved, _) = &mut responded;
        if status::in_headers(response.headers()).is_some() {
            reserved.on_trailers(response.headers(), self.context.active.malformed());
        }
        let is_end = response.body().is_end_stream();
        match status::of_response(response, is_end, reserved.endpoint().address) {
            Some(mut status) => {
                of.sessions.set_cookies_of(&mut status, &of.draws, of.cluster.name());
                Err(Failure::Failed(status))
            }
            None if status::is_failure(response) => Err(Failure::Responded(Box::new(responded))),
            None => Ok(responded),
        }
    }

    /// Sends the request, and waits until the response begins.
    async fn send(
        &mut self,
        mut attempt: Reserved,
        number: u64,
        of: &mut Attempts<'_>,
    ) -> Result<Responded, Failure> {
        let is_end = poll_fn(|cx| Poll::Ready(of.body.is_at_end(cx))).await.map_err(Failure::Final)?;
        let (mut response, stream) = self.begin_stream(&attempt, number, of, is_end)?;
        attempt.on_stream(response.stream_id());
        let sent = &attempt;
        // The call leaves the queue, so that another one may wait.
        self.queued = None;
        self.telemetry.on_stream(of.cluster.name(), sent.endpoint().address);
        let counts_bytes = self.telemetry.counts_bytes();
        let (mut upload, deadline) =
            ((!is_end).then(|| RequestUpload::new(stream, counts_bytes)), self.deadline.at());
        let telemetry = &mut self.telemetry;
        let response = poll_fn(|cx| {
            if let Some(sending) = &mut upload {
                let polled = sending.poll(of.body, cx);
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
                if !of.body.is_kept() {
                    of.cluster.release();
                }
            }
            Pin::new(&mut response).poll(cx).map_err(|error| match sent.is_unsent() && of.can_go_on() {
                true => Failure::NeverSent(number),
                false => of.failure(&error, sent, deadline),
            })
        });
        let responded = self.deadline.watch(response).await;
        // The server has not seen an attempt that was never written, so it is not counted.
        self.attempts += u32::from(!attempt.is_unsent());
        match responded {
            Ok(response) => {
                let mut response = response?;
                attempt.on_response();
                status::check_header_list(response.headers(), &attempt).map_err(Failure::Final)?;
                attempt.handle().identify(&mut response);
                status::correct_deadline(response.headers_mut(), deadline);
                Ok((response, attempt, upload))
            }
            Err(end) => Err(Failure::Final(end.status(&of.missing_response(&attempt)))),
        }
    }

    /// Begins the stream of an attempt.
    fn begin_stream(
        &self,
        attempt: &Reserved,
        number: u64,
        of: &mut Attempts<'_>,
        is_end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), Failure> {
        let endpoint = attempt.endpoint();
        let remaining = self.deadline.at().map(|at| at.saturating_duration_since(Instant::now()));
        if remaining.is_some_and(|left| left.is_zero()) {
            return Err(Failure::Final(self.too_late("the request was not sent in time")));
        }
        let authority = of.authority(endpoint, &self.context.authority);
        if authority != self.context.authority
            && let Some(Err(reason)) = attempt.handle().secured().map(|secured| secured.permits(&authority))
        {
            return Err(Failure::Failed(self.unavailable(&format!("{}: {reason}", endpoint.address))));
        }
        let mut request = of.head.request(authority, remaining, of.retries.previous(), attempt.metadata());
        for (name, value) in of.credentials.drain(..) {
            request.headers_mut().insert(name, value);
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
    async fn pick(
        &mut self,
        of: &mut Attempts<'_>,
        mut seen: Option<u64>,
    ) -> Result<(Attempt<Handle>, u64), Failure> {
        loop {
            let waited = match seen {
                Some(seen) => {
                    let waited = Box::pin(self.wait_for_picker(&of.cluster, seen, &mut of.draws)).await;
                    waited.map_err(Failure::Final)?
                }
                None => None,
            };
            let (pick, number) = waited.unwrap_or_else(|| self.pick_now(of));
            self.telemetry.on_pick(&of.draws);
            match pick {
                Pick::Complete(attempt) => return Ok((attempt, number)),
                Pick::Drop(reason) => return Err(Failure::Final(self.unavailable(&reason))),
                Pick::Unknown(reason) => {
                    return Err(Failure::Final(status::internal(&reason, &self.context.node)));
                }
                Pick::Fail(reason) if !self.waits_for_ready => {
                    return Err(Failure::Failed(self.failed(&reason)));
                }
                Pick::FailAs(code, reason) if !self.waits_for_ready => {
                    return Err(Failure::Failed(status::local(code, &reason)));
                }
                Pick::Fail(reason) | Pick::FailAs(_, reason) => self.reason = Some(reason),
                Pick::Broken(reason) => {
                    // The task learns that the policy has failed.
                    self.request_connection(&of.cluster);
                    if !self.waits_for_ready {
                        return Err(Failure::Failed(status::internal(&reason, &self.context.node)));
                    }
                    self.reason = Some(reason);
                }
                Pick::Queue => self.reason = None,
                Pick::QueueAndConnect => self.request_connection(&of.cluster),
            }
            seen = Some(number);
        }
    }

    /// Picks by the newest picker. Also returns the number of its generation.
    fn pick_now(&mut self, of: &mut Attempts<'_>) -> (Pick<Handle>, u64) {
        let Attempts { head, cluster, draws, .. } = of;
        let query = RouteQuery::new(head.path(), 0).with_headers(head);
        if let Some(session) = &mut draws.session {
            session.begin_pick(Instant::now().into_std());
        }
        let mut args = PickArgs { draws, random: &mut self.random, request: &query };
        let (pick, number) = {
            let generation = self.context.published.load();
            (generation.pick(cluster.place(), &mut args), generation.number())
        };
        if let Some(request) = draws.take_connect_request() {
            // An error means that the channel was shut down.
            let _ = self.context.control.send(Control::ConnectEndpoint(request));
        }
        (pick, number)
    }

    /// Requests a connection of a cluster from the task of the channel.
    fn request_connection(&self, cluster: &ClusterReference) {
        // An error means that the channel was shut down.
        let _ = self.context.control.send(Control::Connect { cluster: cluster.name().clone() });
    }

    /// Waits for a pick of a picker that is newer than that of a generation. `None` if there is one that the call picks by itself.
    async fn wait_for_picker(
        &mut self,
        cluster: &ClusterReference,
        seen: u64,
        draws: &mut Draws,
    ) -> Result<Option<(Pick<Handle>, u64)>, Status> {
        let waits_for_ready = self.waits_for_ready;
        let waiter = self
            .queued()?
            .wait_for_picker(cluster, seen, mem::take(draws), waits_for_ready)
            .map_err(|ShutDown| self.shut_down())?;
        let mut waiter = match waiter {
            Ok(waiter) => waiter,
            Err(draws_back) => {
                *draws = draws_back;
                return Ok(None);
            }
        };
        let answer = self.deadline.watch(waiter.answer()).await;
        self.reason = waiter.reason().or(self.reason.take());
        if self.telemetry.has_pick_labels() {
            self.telemetry.set_labels(waiter.labels());
        }
        match answer {
            Ok(Ok((picked, draws_back))) => {
                *draws = draws_back;
                Ok(picked)
            }
            Ok(Err(ShutDown)) => Err(self.shut_down()),
            Err(end) => Err(self.ended(end, &format!("cluster {} is connecting", cluster.name()))),
        }
    }

    /// Waits until the peer permits another stream (CH4.13). If the connection is lost before, nothing was sent (CH6.12).
    async fn wait_for_stream(
        &mut self,
        attempt: Attempt<Handle>,
        number: u64,
        cluster: &str,
    ) -> Result<Reserved, Failure> {
        self.queued().map_err(Failure::Final)?;
        let address = attempt.endpoint.address;
        match self.until_shut_down(Reserved::new(attempt)).await {
            Ok(reserved) => reserved.map_err(|Gone| Failure::NeverSent(number)),
            Err(CallEnd::ShutDown) => Err(Failure::Final(self.shut_down())),
            Err(CallEnd::DeadlineExceeded) => {
                let reason = format!("cluster {cluster}, {address}: {NO_STREAM}");
                Err(Failure::Final(status::deadline_exceeded(&reason)))
            }
        }
    }

    /// Waits before a retry (CH6.4). The call has no stream then, so it ends like one that waits.
    async fn back_off(&mut self, delay: Duration) -> Result<(), Status> {
        let waited = self.until_shut_down(sleep(delay)).await;
        waited.map_err(|end| self.ended(end, "the delay before a retry is not over"))
    }

    /// What a future gives, unless the call ends before, or the shutdown of the channel begins: its connection may be one that other
    /// channels go on using.
    pub(super) async fn until_shut_down<T>(&mut self, future: impl Future<Output = T>) -> Result<T, CallEnd> {
        let shut_down = self.context.active.shut_down_begins();
        let future = async {
            tokio::select! {
                output = future => Ok(output),
                () = shut_down => Err(CallEnd::ShutDown),
            }
        };
        self.deadline.watch(future).await.and_then(identity)
    }
}

impl Attempts<'_> {
    /// Prepares the request to be sent again.
    fn repeat(&mut self) {
        self.draws = mem::take(&mut self.draws).for_next_attempt();
        self.body.rewind();
    }

    /// Whether an attempt whose request was not sent can go on with another connection.
    fn can_go_on(&self) -> bool {
        self.body.is_kept() && !self.active.is_shut_down()
    }

    /// Describes what an attempt without a response is waiting for.
    fn missing_response(&self, attempt: &Reserved) -> String {
        let (cluster, address) = (self.cluster.name(), attempt.endpoint().address);
        let missing = if attempt.is_unsent() { NO_STREAM } else { "no response" };
        format!("cluster {cluster}, {address}: {missing}")
    }

    /// Classifies an error of the stream of an attempt.
    fn failure(&self, error: &h2::Error, attempt: &Reserved, deadline: Option<Instant>) -> Failure {
        match status::of_stream(error, attempt, deadline) {
            _ if self.active.is_shut_down() => Failure::Final(Status::cancelled("channel is shut down")),
            status if status::is_never_processed(error) => Failure::NeverProcessed(status),
            status if status::is_connection_lost(error) => match attempt.is_excluded() {
                // A GOAWAY with an error says so as well (CH6.13).
                true => Failure::NeverProcessed(status),
                false => Failure::ConnectionLost(status),
            },
            status => Failure::Failed(status),
        }
    }

    /// The authority of the request to an endpoint (CH2.24).
    fn authority(&self, endpoint: &ReadyEndpoint<Handle>, channel: &Authority) -> Authority {
        if let Some(own) = self.head.authority.as_ref().filter(|own| *own != channel) {
            return own.clone();
        }
        let hostname = endpoint.hostname.as_deref().filter(|_| self.auto_host_rewrite);
        hostname.and_then(|name| name.parse().ok()).unwrap_or_else(|| channel.clone())
    }
}

impl Failure {
    /// Returns the end of the attempt for the retry policy; `None` if no attempt can follow.
    fn end(&self) -> Option<AttemptEnd> {
        Some(match self {
            Self::NeverSent(_) => AttemptEnd::NeverSent,
            Self::NeverProcessed(status) => AttemptEnd::NeverProcessed(status::core_code(status.code())),
            Self::ConnectionLost(status) => AttemptEnd::ConnectionLost(status::core_code(status.code())),
            Self::Failed(status) => AttemptEnd::Failed(status::core_code(status.code()), Pushback::Absent),
            // Only a status of the server can carry a pushback.
            Self::Responded(responded) => {
                let headers = responded.0.headers();
                let code = status::in_headers(headers).unwrap_or(Code::Unknown);
                AttemptEnd::Failed(code, status::pushback(headers))
            }
            Self::Final(_) => return None,
        })
    }

    /// Returns the status of the attempt for telemetry; `None` if the attempt goes on with another connection.
    fn code(&self) -> Option<Code> {
        match self {
            Self::NeverSent(_) => None,
            Self::NeverProcessed(status)
            | Self::ConnectionLost(status)
            | Self::Failed(status)
            | Self::Final(status) => Some(status::core_code(status.code())),
            Self::Responded(responded) => {
                Some(status::in_headers(responded.0.headers()).unwrap_or(Code::Unknown))
            }
        }
    }

    /// Ends the call as this attempt has ended.
    fn deliver(self) -> Result<Responded, Status> {
        match self {
            Self::NeverSent(_) => Err(never_sent()),
            Self::NeverProcessed(status)
            | Self::ConnectionLost(status)
            | Self::Failed(status)
            | Self::Final(status) => Err(status),
            Self::Responded(responded) => Ok(*responded),
        }
    }
}

/// Returns the status of a call whose connections were lost again and again before anything was written.
fn never_sent() -> Status {
    Status::internal(format!("{MAX_NEVER_SENT} connections were lost before the request was sent"))
}

/// Explains a deadline that passes while the call waits for a stream.
const NO_STREAM: &str = "the server permits no further stream on its connections";
