//! The way of a call: selection, pick, stream (CH2.1).

use std::{
    convert::identity,
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use h2::RecvStream;
use http::{Request, Response, request::Parts, uri::Authority};
use tokio::{sync::mpsc::UnboundedSender, time::Instant};
use tonic::{Status, body::Body};

use super::{
    ChannelBody,
    active::{ActiveCall, ActiveCalls},
    body::Guards,
    builder::Settings,
    connection::{Gone, Handle, Reserved, SendError},
    deadline::{Deadline, Over},
    headers::{self, Head, Visible},
    published::{Place, Published, ShutDown},
    request::{Buffer, Pump, RequestBody, Rest},
    status,
    task::Control,
};
use crate::{
    balance::{
        cluster_use::ClusterReference,
        generation::{Selected, Selection},
        picker::{Attempt, Draws, Pick, PickArgs, ReadyEndpoint},
        policy::with_note,
    },
    resolve::RouteQuery,
};

/// An extension of a request: whether the call waits for a usable endpoint instead of failing with UNAVAILABLE (CH1.16). Without
/// it, [`ChannelBuilder::wait_for_ready`](super::ChannelBuilder::wait_for_ready) applies.
///
/// ```
/// use xdskit::channel::WaitForReady;
///
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(WaitForReady(true));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitForReady(pub bool);

/// What calls need of their channel.
pub(super) struct CallContext {
    pub(super) published: Arc<Published>,
    pub(super) active: Arc<ActiveCalls>,
    control: UnboundedSender<Control>,
    authority: Authority,
    node: String,
    wait_for_ready: bool,
    max_queued: usize,
    /// The end of a shared connection is not that of the channel's calls.
    shares_connections: bool,
    pub(super) buffer: Arc<Buffer>,
}

/// A call under way.
struct Call<'a> {
    context: &'a CallContext,
    waits_for_ready: bool,
    /// When it began, if that was noted before its first wait.
    begin: Option<Instant>,
    deadline: Deadline,
    random: fastrand::Rng,
    /// Set when it waits for the first time.
    place: Option<Place<'a>>,
    /// The latest reason why it waits.
    reason: Option<Arc<str>>,
}

/// What the attempts of a call have in common.
struct Attempts<'a> {
    head: Head,
    body: &'a mut RequestBody,
    active: &'a ActiveCall,
    cluster: ClusterReference,
    auto_host_rewrite: bool,
    draws: Draws,
}

/// How an attempt ended without a response.
enum Failure {
    /// The connection was gone before (CH6.12). The next attempt needs a picker that is newer than that of this generation.
    NeverSent(u64),
    /// The server said that it did not process the request (CH6.13).
    NeverProcessed(Status),
    Other(Status),
}

impl CallContext {
    pub(super) fn new(
        authority: Authority,
        node: String,
        settings: &Settings,
        control: UnboundedSender<Control>,
    ) -> Self {
        let (per_call, per_channel) = settings.retry_buffer;
        Self {
            published: Published::new(),
            active: ActiveCalls::new(),
            control,
            authority,
            node,
            wait_for_ready: settings.wait_for_ready,
            max_queued: settings.max_queued,
            shares_connections: settings.share_connections,
            buffer: Buffer::new(per_call, per_channel),
        }
    }

    pub(super) async fn call(&self, request: Request<Body>) -> Result<Response<ChannelBody>, Status> {
        let (active, is_idle) = self.active.begin();
        if is_idle {
            // An error means that the channel was shut down.
            let _ = self.control.send(Control::Wake);
        }
        let (mut parts, body) = request.into_parts();
        let timeout = headers::timeout(&parts.headers)?;
        let mut call = Call {
            context: self,
            waits_for_ready: parts.extensions.get().map_or(self.wait_for_ready, |WaitForReady(wait)| *wait),
            begin: timeout.map(|_| Instant::now()),
            deadline: Deadline::new(self.shares_connections.then(|| self.active.clone().cancelled())),
            random: fastrand::Rng::new(),
            place: None,
            reason: None,
        };
        if let Some(timeout) = timeout {
            call.limit(timeout)?;
        }
        headers::prepare(&mut parts.headers);
        let selected = call.select(&parts).await?;
        if let Some(limit) = selected.max_stream_duration {
            call.limit(limit)?;
        }
        let mut body = RequestBody::new(body, &self.buffer);
        let Selected { cluster, auto_host_rewrite, .. } = selected;
        let (head, draws) = (Head::new(parts), Draws::default());
        let attempts = Attempts { head, body: &mut body, active: &active, cluster, auto_host_rewrite, draws };
        let (mut response, attempt, pump) = call.attempts(attempts).await?;
        status::correct_deadline(response.headers_mut(), call.deadline.at());
        if let Some(status) = status::of_response(&response, attempt.endpoint().address) {
            return Err(status);
        }
        let has_more = pump.filter(|_| !response.body().is_end_stream());
        let rest = has_more.map(|pump| tokio::spawn(Rest::new(body, pump)).abort_handle());
        let guards = Guards { attempt, active, rest };
        Ok(response.map(|stream| ChannelBody::new(stream, call.deadline, guards)))
    }
}

impl<'a> Call<'a> {
    /// Limits the time of the call, from its beginning (CH2.14).
    ///
    /// # Errors
    /// The time is over (CH2.16).
    fn limit(&mut self, time: Duration) -> Result<(), Status> {
        let begin = *self.begin.get_or_insert_with(Instant::now);
        self.deadline.limit(begin + time);
        if time.is_zero() { Err(self.too_late("there is no time for the call")) } else { Ok(()) }
    }

    /// Selects the cluster, once for the call.
    async fn select(&mut self, parts: &Parts) -> Result<Selected, Status> {
        let headers = Visible(&parts.headers);
        let query = RouteQuery::new(parts.uri.path(), self.random.u64(..)).with_headers(&headers);
        loop {
            let (selection, seen) = {
                let generation = self.context.published.load();
                (generation.select(&query), generation.number())
            };
            match selection {
                Selection::Selected(selected) => return Ok(selected),
                Selection::NoRoute(reason) => return Err(self.failed(&reason)),
                Selection::Fail(reason) if !self.waits_for_ready => return Err(self.unavailable(&reason)),
                Selection::Fail(reason) => self.reason = Some(reason.into()),
                Selection::Wait => {}
            }
            self.wait_for_routes(seen).await?;
        }
    }

    /// Makes attempts until there is a response (CH2.1).
    async fn attempts(
        &mut self,
        mut of: Attempts<'_>,
    ) -> Result<(Response<RecvStream>, Reserved, Option<Pump>), Status> {
        let (mut never_sent, mut was_refused, mut seen) = (0, false, None);
        loop {
            let (attempt, number) = self.pick(&mut of, seen).await?;
            let failure = match self.attempt(attempt, number, &mut of).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            seen = match failure {
                Failure::NeverSent(number) if never_sent < MAX_NEVER_SENT => {
                    never_sent += 1;
                    Some(number)
                }
                Failure::NeverProcessed(_) if !was_refused && of.body.is_kept() => {
                    (was_refused, of.draws) = (true, Draws::default());
                    of.body.rewind();
                    None
                }
                failure @ (Failure::NeverSent(_) | Failure::NeverProcessed(_) | Failure::Other(_)) => {
                    return Err(failure.into_status());
                }
            };
        }
    }

    /// Sends the request to an endpoint.
    async fn attempt(
        &mut self,
        attempt: Attempt<Handle>,
        number: u64,
        of: &mut Attempts<'_>,
    ) -> Result<(Response<RecvStream>, Reserved, Option<Pump>), Failure> {
        let mut attempt = match Reserved::try_new(attempt) {
            Ok(reserved) => reserved,
            Err(attempt) => self.wait_for_stream(attempt, number).await?,
        };
        let endpoint = attempt.endpoint();
        let is_end = poll_fn(|cx| Poll::Ready(of.body.is_at_end(cx))).await.map_err(Failure::Other)?;
        let remaining = self.deadline.at().map(|at| at.saturating_duration_since(Instant::now()));
        if remaining.is_some_and(|it| it.is_zero()) {
            return Err(Failure::Other(self.too_late("the request was not sent in time")));
        }
        let authority = of.authority(endpoint, &self.context.authority);
        let request = of.head.request(authority, remaining, attempt.metadata());
        let sent = endpoint.handle.send(request, is_end);
        let (mut response, stream) = sent.map_err(|error| match error {
            SendError::Gone => Failure::NeverSent(number),
            // What the connection does not accept was said by the caller, not by the peer.
            SendError::Invalid(error) => {
                Failure::Other(Status::internal(format!("the request cannot be sent: {error}")))
            }
        })?;
        self.place = None;
        let (mut pump, deadline) = ((!is_end).then(|| Pump::new(stream)), self.deadline.at());
        let response = poll_fn(|cx| {
            if let Some(sending) = &mut pump {
                match sending.poll(of.body, cx) {
                    Poll::Ready(Ok(())) => pump = None,
                    Poll::Ready(Err(status)) => return Poll::Ready(Err(Failure::Other(status))),
                    Poll::Pending => {}
                }
                if !of.body.is_kept() {
                    of.cluster.release();
                }
            }
            Pin::new(&mut response).poll(cx).map_err(|error| of.failure(&error, endpoint, deadline))
        });
        match self.deadline.watch(response).await {
            Ok(response) => {
                let response = response?;
                attempt.on_response();
                Ok((response, attempt, pump))
            }
            Err(over) => Err(Failure::Other(over.status("no response"))),
        }
    }

    /// Waits for an endpoint, by a picker that is newer than that of a generation.
    async fn pick(
        &mut self,
        of: &mut Attempts<'_>,
        mut seen: Option<u64>,
    ) -> Result<(Attempt<Handle>, u64), Status> {
        loop {
            let waited = match seen {
                Some(seen) => self.wait_for_picker(&of.cluster, seen, &mut of.draws).await?,
                None => None,
            };
            let (pick, number) = waited.unwrap_or_else(|| self.pick_now(of));
            match pick {
                Pick::Complete(attempt) => return Ok((attempt, number)),
                Pick::Drop(reason) => return Err(self.unavailable(&reason)),
                Pick::Unknown(reason) => return Err(status::internal(&reason, &self.context.node)),
                Pick::Fail(reason) if !self.waits_for_ready => return Err(self.failed(&reason)),
                Pick::FailAs(code, reason) if !self.waits_for_ready => {
                    return Err(status::local(code, &reason));
                }
                Pick::Fail(reason) | Pick::FailAs(_, reason) => self.reason = Some(reason),
                Pick::Broken(reason) => {
                    // The task learns that the policy has failed.
                    self.request_connection(&of.cluster);
                    if !self.waits_for_ready {
                        return Err(status::internal(&reason, &self.context.node));
                    }
                    self.reason = Some(reason);
                }
                Pick::Queue => self.reason = None,
                Pick::QueueAndConnect => self.request_connection(&of.cluster),
            }
            seen = Some(number);
        }
    }

    /// A pick by the newest picker, and the number of its generation.
    fn pick_now(&mut self, of: &mut Attempts<'_>) -> (Pick<Handle>, u64) {
        let Attempts { head, cluster, draws, .. } = of;
        let query = RouteQuery::new(head.path(), 0).with_headers(head);
        let mut args = PickArgs { draws, random: &mut self.random, request: &query };
        let generation = self.context.published.load();
        (generation.pick(cluster.place(), &mut args), generation.number())
    }

    fn request_connection(&self, cluster: &ClusterReference) {
        // An error means that the channel was shut down.
        let _ = self.context.control.send(Control::Connect { cluster: cluster.name().clone() });
    }

    /// Waits for routes that are newer than those of a generation.
    async fn wait_for_routes(&mut self, seen: u64) -> Result<(), Status> {
        let waiter = self.place()?.wait_for_routes(seen).map_err(|ShutDown| self.shut_down())?;
        let Some(mut waiter) = waiter else { return Ok(()) };
        match self.deadline.watch(waiter.answer()).await {
            Ok(answer) => answer.map_err(|ShutDown| self.shut_down()),
            Err(over) => Err(self.over(over, "there is no configuration yet")),
        }
    }

    /// Waits for a pick of a picker that is newer than that of a generation. `None` if there is one that the call picks by itself.
    async fn wait_for_picker(
        &mut self,
        cluster: &ClusterReference,
        seen: u64,
        draws: &mut Draws,
    ) -> Result<Option<(Pick<Handle>, u64)>, Status> {
        let wait = (mem::take(draws), self.waits_for_ready);
        let waiter =
            self.place()?.wait_for_picker(cluster, seen, wait).map_err(|ShutDown| self.shut_down())?;
        let mut waiter = match waiter {
            Ok(waiter) => waiter,
            Err(draws_back) => {
                *draws = draws_back;
                return Ok(None);
            }
        };
        let answer = self.deadline.watch(waiter.answer()).await;
        self.reason = waiter.reason().or(self.reason.take());
        match answer {
            Ok(Ok((picked, draws_back))) => {
                *draws = draws_back;
                Ok(picked)
            }
            Ok(Err(ShutDown)) => Err(self.shut_down()),
            Err(over) => Err(self.over(over, "the cluster is connecting")),
        }
    }

    /// Waits until the peer permits another stream (CH4.13). If the connection is lost before, nothing was sent (CH6.12).
    async fn wait_for_stream(&mut self, attempt: Attempt<Handle>, number: u64) -> Result<Reserved, Failure> {
        self.place().map_err(Failure::Other)?;
        let address = attempt.endpoint.address;
        // The connection may be one that other channels go on using.
        let shut_down = self.context.active.shut_down_begins();
        let reserved = async {
            tokio::select! {
                reserved = Reserved::new(attempt) => Ok(reserved),
                () = shut_down => Err(Over::ShutDown),
            }
        };
        match self.deadline.watch(reserved).await.and_then(identity) {
            Ok(reserved) => reserved.map_err(|Gone| Failure::NeverSent(number)),
            Err(Over::ShutDown) => Err(Failure::Other(self.shut_down())),
            Err(Over::Time) => Err(Failure::Other(status::deadline_exceeded(&format!(
                "{address}: the server permits no further stream on its connection"
            )))),
        }
    }

    /// The place of the call among those that wait.
    fn place(&mut self) -> Result<&Place<'a>, Status> {
        let CallContext { published, max_queued, .. } = self.context;
        self.begin.get_or_insert_with(Instant::now);
        if self.place.is_none() {
            self.place = published.place(*max_queued);
        }
        let limit = self.context.max_queued;
        let full = || Status::resource_exhausted(format!("{limit} calls are waiting, the maximum"));
        self.place.as_ref().ok_or_else(full)
    }

    fn too_late(&self, reason: &str) -> Status {
        match &self.reason {
            Some(reason) => status::deadline_exceeded(&self.with_note(reason)),
            None => status::deadline_exceeded(reason),
        }
    }

    /// The status of a call without a route or a usable endpoint.
    fn failed(&self, reason: &str) -> Status {
        self.unavailable(&self.with_note(reason))
    }

    fn with_note(&self, reason: &str) -> String {
        with_note(reason.to_owned(), self.context.published.load().note.as_deref())
    }

    /// The end of a call that waits for what comes before its stream.
    fn over(&self, over: Over, reason: &str) -> Status {
        match over {
            Over::Time => self.too_late(reason),
            Over::ShutDown => self.shut_down(),
        }
    }

    fn shut_down(&self) -> Status {
        self.unavailable("channel is shut down")
    }

    fn unavailable(&self, reason: &str) -> Status {
        status::unavailable(reason, &self.context.node)
    }
}

impl Attempts<'_> {
    /// The end of an attempt by an error of its stream.
    fn failure(
        &self,
        error: &h2::Error,
        endpoint: &ReadyEndpoint<Handle>,
        deadline: Option<Instant>,
    ) -> Failure {
        match status::of_stream(error, endpoint, deadline) {
            _ if self.active.is_shut_down() => Failure::Other(Status::cancelled("channel is shut down")),
            status if status::is_never_processed(error) => Failure::NeverProcessed(status),
            status => Failure::Other(status),
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
    fn into_status(self) -> Status {
        match self {
            Self::NeverSent(_) => Status::internal(format!(
                "{MAX_NEVER_SENT} connections were lost before the request was sent"
            )),
            Self::NeverProcessed(status) | Self::Other(status) => status,
        }
    }
}

/// Attempts on connections that were gone (CH6.12).
const MAX_NEVER_SENT: u32 = 1_000;

/// The longest time that a deadline is computed for; longer ones are none.
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
