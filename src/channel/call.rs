//! The way of a call: selection, pick, stream (CH2.1).

use std::{
    error::Error,
    future::{Future as _, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use h2::{SendStream, client::ResponseFuture};
use http::{Request, Response, request::Parts, uri::Authority};
use http_body::Body;
use tokio::{
    sync::{mpsc::UnboundedSender, watch},
    time::{Instant, sleep_until, timeout_at},
};
use tonic::Status;

use super::{
    ChannelBody, ChannelState,
    active::{ActiveCall, ActiveCalls},
    body::{Guards, Pump},
    builder::Settings,
    connection::Handle,
    headers::{self, Visible},
    published::{Published, Queued},
    recorded::Recorded,
    status,
    task::Control,
};
use crate::{
    balance::{
        cluster_use::ClusterHold,
        generation::{Selected, Selection},
        picker::{Attempt, Draws, Pick, PickArgs},
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
}

/// A call under way.
struct Call<'a> {
    context: &'a CallContext,
    waits_for_ready: bool,
    deadline: Option<Instant>,
    /// The latest reason why it waits.
    latest: Option<Arc<str>>,
    /// Set when it waits for the first time.
    versions: Option<watch::Receiver<u64>>,
    queued: Option<Queued<'a>>,
}

/// How an attempt ended without a response.
enum Failure {
    /// The connection was gone before (CH6.12).
    NeverSent,
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
        Self {
            published: Published::new(),
            active: ActiveCalls::new(),
            control,
            authority,
            node,
            wait_for_ready: settings.wait_for_ready,
            max_queued: settings.max_queued,
        }
    }

    pub(super) async fn call<B>(&self, request: Request<B>) -> Result<Response<ChannelBody>, Status>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        let (active, is_idle) = self.active.begin();
        if is_idle {
            // An error means that the channel was shut down.
            let _ = self.control.send(Control::Wake);
        }
        let (mut parts, body) = request.into_parts();
        let timeout = headers::timeout(&parts.headers)?;
        let begin = timeout.map(|_| Instant::now());
        let mut call = Call {
            context: self,
            waits_for_ready: parts.extensions.get().map_or(self.wait_for_ready, |WaitForReady(wait)| *wait),
            deadline: begin.zip(timeout).map(|(begin, timeout)| begin + timeout),
            latest: None,
            versions: None,
            queued: None,
        };
        headers::prepare(&mut parts.headers);
        let begin = begin.unwrap_or_else(Instant::now);
        let selected = match call.deadline {
            None => call.select(&parts).await?,
            Some(deadline) => match timeout_at(deadline, call.select(&parts)).await {
                Ok(selected) => selected?,
                Err(_) => return Err(call.too_late()),
            },
        };
        if let Some(limit) = selected.max_stream_duration {
            call.deadline = Some(call.deadline.map_or(begin + limit, |it| it.min(begin + limit)));
        }
        let Some(deadline) = call.deadline else {
            return call.attempts(&selected, &parts, Recorded::new(body), active).await;
        };
        let attempts =
            timeout_at(deadline, call.attempts(&selected, &parts, Recorded::new(body), active)).await;
        attempts.unwrap_or_else(|_| Err(call.too_late()))
    }
}

impl<'a> Call<'a> {
    fn too_late(&self) -> Status {
        status::deadline_exceeded(self.latest.as_deref().unwrap_or("no response"))
    }

    /// Selects the cluster, once for the call.
    async fn select(&mut self, parts: &Parts) -> Result<Selected, Status> {
        let headers = Visible(&parts.headers);
        let query = RouteQuery::new(parts.uri.path(), fastrand::u64(..)).with_headers(&headers);
        loop {
            let selection = self.context.published.load().select(&query);
            match selection {
                Selection::Selected(selected) => return Ok(selected),
                Selection::NoRoute(reason) => return Err(self.unavailable(&reason)),
                Selection::Fail(reason) if !self.waits_for_ready => return Err(self.unavailable(&reason)),
                Selection::Fail(reason) => self.latest = Some(reason.into()),
                Selection::Wait => {}
            }
            self.wait().await?;
        }
    }

    /// Makes attempts until there is a response (CH2.1).
    async fn attempts<B>(
        &mut self,
        selected: &Selected,
        parts: &Parts,
        body: Recorded<B>,
        active: ActiveCall,
    ) -> Result<Response<ChannelBody>, Status>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        let (mut body, mut active) = (Some(body), Some(active));
        let (mut never_sent, mut was_refused) = (0, false);
        let mut draws = Draws::default();
        loop {
            let attempt = self.pick(&selected.cluster, &mut draws, parts).await?;
            let request = self.request(parts, selected, &attempt);
            let (stream, response) =
                match send(&attempt, request, body.as_ref().is_none_or(Recorded::is_empty)) {
                    Ok(sent) => sent,
                    Err(Failure::NeverSent) if never_sent < MAX_NEVER_SENT => {
                        never_sent += 1;
                        self.wait().await?;
                        continue;
                    }
                    Err(failure) => return Err(failure.into_status()),
                };
            let mut guards = Guards { attempt, active: active.take(), pump: None };
            if let (Some(stream), Some(it)) = (stream, body.take()) {
                body = pump(Pump::new(it, stream), &mut guards).await;
            }
            match response.await {
                Ok(response) => {
                    if let Some(status) = status::of_response(&response, guards.attempt.endpoint.address) {
                        return Err(status);
                    }
                    let sleep = self.deadline.map(|deadline| Box::pin(sleep_until(deadline)));
                    return Ok(response.map(|stream| ChannelBody::new(stream, sleep, guards)));
                }
                Err(error) => match Failure::of(&error, &guards, self.deadline) {
                    Failure::NeverProcessed(_)
                        if !was_refused && body.as_mut().is_some_and(Recorded::rewind) =>
                    {
                        (was_refused, draws) = (true, Draws::default());
                        active = guards.active.take();
                    }
                    failure @ (Failure::NeverSent | Failure::NeverProcessed(_) | Failure::Other(_)) => {
                        return Err(failure.into_status());
                    }
                },
            }
        }
    }

    /// Waits for an endpoint.
    async fn pick(
        &mut self,
        cluster: &ClusterHold,
        draws: &mut Draws,
        parts: &Parts,
    ) -> Result<Attempt<Handle>, Status> {
        let headers = Visible(&parts.headers);
        let query = RouteQuery::new(parts.uri.path(), 0).with_headers(&headers);
        loop {
            let random = &mut fastrand::Rng::new();
            let mut args = PickArgs { draws, random, request: &query };
            let pick = self.context.published.load().pick(cluster, &mut args);
            match pick {
                Pick::Complete(attempt) => {
                    self.queued = None;
                    return Ok(attempt);
                }
                Pick::Drop(reason) => return Err(self.unavailable(&reason)),
                Pick::Fail(reason) if !self.waits_for_ready => return Err(self.unavailable(&reason)),
                Pick::Fail(reason) => self.latest = Some(reason),
                Pick::FailAs(code, reason) if !self.waits_for_ready => {
                    return Err(status::local(code, &reason));
                }
                Pick::FailAs(_, reason) => self.latest = Some(reason),
                Pick::Broken(reason) => {
                    // The task learns that the policy has failed.
                    let _ = self.context.control.send(Control::Connect { cluster: cluster.name().clone() });
                    if !self.waits_for_ready {
                        return Err(Status::internal(&*reason));
                    }
                    self.latest = Some(reason);
                }
                Pick::Queue => self.latest = Some("the cluster is connecting".into()),
                Pick::QueueAndConnect => {
                    let _ = self.context.control.send(Control::Connect { cluster: cluster.name().clone() });
                }
            }
            self.wait().await?;
        }
    }

    /// Waits for a newer generation.
    async fn wait(&mut self) -> Result<(), Status> {
        let context = self.context;
        if context.published.states.current() == ChannelState::Shutdown {
            return Err(self.unavailable("channel is shut down"));
        }
        if self.queued.is_none() {
            self.queued = context.published.queue(context.max_queued);
            if self.queued.is_none() {
                let limit = context.max_queued;
                return Err(Status::resource_exhausted(format!("{limit} calls are waiting, the maximum")));
            }
        }
        // The first time, a generation may have been published since this call looked.
        let Some(versions) = &mut self.versions else {
            self.versions = Some(context.published.versions());
            return Ok(());
        };
        versions.changed().await.map_err(|_| self.unavailable("channel is shut down"))
    }

    fn request(&self, parts: &Parts, selected: &Selected, attempt: &Attempt<Handle>) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = parts.method.clone();
        *request.headers_mut() = parts.headers.clone();
        let own = parts.uri.authority().filter(|own| **own != self.context.authority);
        let endpoint = attempt.endpoint.hostname.as_deref().filter(|_| selected.auto_host_rewrite);
        let authority = match (own, endpoint.and_then(|name| name.parse().ok())) {
            (Some(own), _) => own.clone(),
            (None, Some(endpoint)) => endpoint,
            (None, None) => self.context.authority.clone(),
        };
        *request.uri_mut() = headers::uri(authority, &parts.uri);
        headers::add(request.headers_mut(), &attempt.metadata);
        if let Some(deadline) = self.deadline {
            headers::set_timeout(request.headers_mut(), deadline.saturating_duration_since(Instant::now()));
        }
        request
    }

    fn unavailable(&self, reason: &str) -> Status {
        status::unavailable(reason, &self.context.node)
    }
}

/// Begins the stream.
fn send(
    attempt: &Attempt<Handle>,
    request: Request<()>,
    is_end: bool,
) -> Result<(Option<SendStream<bytes::Bytes>>, ResponseFuture), Failure> {
    match attempt.endpoint.handle.send.clone().send_request(request, is_end) {
        Ok((response, stream)) => Ok(((!is_end).then_some(stream), response)),
        // What the connection does not accept was said by the caller, not by the peer.
        Err(error) if error.reason().is_none() && !error.is_io() && !error.is_go_away() => {
            Err(Failure::Other(Status::internal(format!("the request cannot be sent: {error}"))))
        }
        Err(_) => Err(Failure::NeverSent),
    }
}

/// Sends what is there of a request. The rest is sent by a task, which cannot be repeated; otherwise, this returns the body.
async fn pump<B>(mut pump: Pump<B>, guards: &mut Guards) -> Option<Recorded<B>>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>> + Send,
{
    let is_sent = poll_fn(|cx| Poll::Ready(Pin::new(&mut pump).poll(cx).is_ready())).await;
    if is_sent {
        return Some(pump.into_body());
    }
    guards.pump = Some(tokio::spawn(pump).abort_handle());
    None
}

impl Failure {
    fn of(error: &h2::Error, guards: &Guards, deadline: Option<Instant>) -> Self {
        match status::of_stream(error, guards.attempt.endpoint.address, deadline) {
            _ if guards.is_shut_down() => Self::Other(Status::cancelled("channel is shut down")),
            status if status::is_never_processed(error) => Self::NeverProcessed(status),
            status => Self::Other(status),
        }
    }

    fn into_status(self) -> Status {
        match self {
            Self::NeverSent => Status::internal(format!(
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
