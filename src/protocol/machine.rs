use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tracing::{debug, info, trace, warn};

use super::{
    channel::{Channel, is_awaited},
    envelope::Envelope,
    event::{Event, Timer, Verdict},
    id::{EntryId, ServerId, StreamId, TypeId},
    input::{Disconnect, Input},
    interest::{Interest, Phase, Sub, SubId},
    output::Output,
    settings::Settings,
    sotw::{Answer, Written},
    stream::{End, Stream},
    timers::Waiting,
};
use crate::config::Server;

/// The protocol with one management server.
#[derive(Debug)]
pub(crate) struct Machine {
    server: Arc<Server>,
    node: Bytes,
    settings: Arc<Settings>,
    random: fastrand::Rng,
    stream: Stream,
    /// By [`TypeId`], which is the order of first use.
    types: Vec<Option<Channel>>,
    waiting: Waiting,
    outputs: VecDeque<Output>,
    events: VecDeque<Event>,
}

impl Machine {
    pub(crate) fn new(
        id: ServerId,
        server: Arc<Server>,
        node: Bytes,
        settings: Arc<Settings>,
        (seed, now): (u64, Instant),
    ) -> Self {
        let stream = Stream::new(id, settings.keepalive, now);
        Self {
            server,
            node,
            settings,
            random: fastrand::Rng::with_seed(seed),
            stream,
            types: Vec::new(),
            waiting: Waiting::default(),
            outputs: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// What is asked for, or sent, in a place.
    pub(crate) fn sub(&self, ty: TypeId, id: SubId) -> Option<&Sub> {
        self.types.get(ty.index())?.as_ref()?.sotw.interest.get(id)
    }

    /// The names of a type, if any was ever wanted.
    pub(crate) fn interest(&mut self, ty: TypeId) -> Option<&mut Interest> {
        Some(&mut self.channel(ty)?.sotw.interest)
    }

    /// Asks for a name that has its place.
    pub(crate) fn subscribe(&mut self, (ty, type_url): (TypeId, &'static str), sub: SubId, now: Instant) {
        let doubt = self.resource_timeout();
        let channel = self.channel_or_new(ty, type_url);
        if channel.sotw.interest.name(sub) {
            channel.sotw.on_named(sub, doubt, now);
        }
        self.proceed(now);
    }

    /// Makes room for a name that nothing is known of; it is not asked for yet.
    pub(crate) fn insert(
        &mut self,
        (ty, type_url): (TypeId, &'static str),
        name: Arc<str>,
        entry: EntryId,
    ) -> SubId {
        self.channel_or_new(ty, type_url).sotw.interest.insert(name, entry)
    }

    /// Asks for a name no longer. It is released at once, or when the server was told.
    pub(crate) fn unsubscribe(&mut self, ty: TypeId, sub: SubId, now: Instant) {
        self.withdraw(ty, sub, now);
        self.proceed(now);
    }

    /// The same without acting on it yet: others follow, and then [`rest`](Self::rest).
    pub(crate) fn withdraw(&mut self, ty: TypeId, sub: SubId, now: Instant) {
        let told = self.stream.as_open().is_some();
        let Some(channel) = self.channel(ty) else { return };
        if !channel.sotw.interest.get(sub).is_some_and(|sub| sub.named) {
            return;
        }
        channel.sotw.interest.unname(sub);
        if told && channel.sotw.is_requested() {
            channel.sotw.on_unnamed(sub, now);
        } else {
            self.release(ty, &[sub]);
        }
    }

    /// Asks for everything of a type.
    pub(crate) fn subscribe_all(&mut self, (ty, type_url): (TypeId, &'static str), now: Instant) {
        let channel = self.channel_or_new(ty, type_url);
        let stuck = channel.sotw.is_wildcard_stuck();
        if !channel.sotw.interest.wildcard {
            channel.sotw.on_wildcard(now);
        }
        if stuck {
            self.close("a wildcard that could not be ended is wanted again");
        }
        self.proceed(now);
    }

    /// Asks for everything of a type no longer. What came only because of that is released at once, or when the server
    /// was told.
    pub(crate) fn unsubscribe_all(&mut self, ty: TypeId, now: Instant) {
        self.withdraw_all(ty, now);
        self.proceed(now);
    }

    /// The same without acting on it yet: others follow, and then [`rest`](Self::rest).
    pub(crate) fn withdraw_all(&mut self, ty: TypeId, now: Instant) {
        let told = self.stream.as_open().is_some();
        let Some(channel) = self.channel(ty).filter(|channel| channel.sotw.interest.wildcard) else { return };
        channel.sotw.on_wildcard_ended(now);
        if !told || !channel.sotw.is_requested() {
            self.release_all(ty);
        }
    }

    /// Closes the stream at once if nothing is wanted of it: another server has taken over.
    pub(crate) fn rest(&mut self, now: Instant) {
        if !self.is_wanted() && self.stream.is_current(self.stream.id()) {
            self.close("another server has taken over");
            self.events.push_back(Event::Rested);
        }
        self.proceed(now);
    }

    /// Forgets a name that is neither asked for nor a member any more, such as a member that was deleted.
    pub(crate) fn release(&mut self, ty: TypeId, subs: &[SubId]) {
        let Some(Some(channel)) = self.types.get_mut(ty.index()) else { return };
        let interest = &mut channel.sotw.interest;
        for id in subs {
            if let Some(sub) = interest.get(*id).filter(|sub| !sub.named && !sub.member) {
                self.events.push_back(Event::Released(sub.entry));
                interest.remove(*id);
            }
        }
    }

    /// Forgets what came only because everything was asked for.
    fn release_all(&mut self, ty: TypeId) {
        let Some(channel) = self.channel(ty) else { return };
        let interest = &mut channel.sotw.interest;
        interest.wildcard_leaving = false;
        let members = interest.iter_mut().filter_map(|(id, sub)| mem::take(&mut sub.member).then_some(id));
        let members: Vec<_> = members.collect();
        self.release(ty, &members);
        self.events.push_back(Event::ReleasedAll(ty));
    }

    /// Something is held under a name that another server has sent. Its absence here proves nothing until this server
    /// has had its time.
    pub(crate) fn doubt(&mut self, ty: TypeId, id: SubId, now: Instant) {
        let length = self.resource_timeout();
        if let Some(sub) = self.interest(ty).and_then(|interest| interest.get_mut(id)) {
            sub.doubt_until.get_or_insert(now + length);
        }
    }

    /// A name is missing from a response: true when that means that it is gone. Otherwise a timer decides.
    pub(crate) fn is_gone(&mut self, ty: TypeId, id: SubId, now: Instant) -> bool {
        let length = self.resource_timeout();
        let Self { types, waiting, .. } = self;
        let Some(Some(channel)) = types.get_mut(ty.index()) else { return true };
        let Some(sub) = channel.sotw.interest.get_mut(id) else { return true };
        if !sub.named || sub.doubt_until.is_none_or(|until| until <= now) {
            return true;
        }
        if mem::replace(&mut sub.phase, Phase::Doubted) != Phase::Doubted {
            waiting.start(ty, id, sub, (now, length));
        }
        false
    }

    /// Acts on what happens to streams, but for [`Input::Received`].
    pub(crate) fn handle_input(&mut self, input: Input, now: Instant) {
        match input {
            Input::Connected { stream } if self.stream.is_current(stream) => self.on_connected(now),
            Input::RequestSent { stream } if self.stream.is_current(stream) => self.on_request_sent(now),
            Input::Disconnected { stream, reason } if self.stream.is_current(stream) => {
                self.on_disconnected(reason, now);
            }
            // Of a stream that was given up meanwhile.
            Input::Connected { .. } | Input::RequestSent { .. } | Input::Disconnected { .. } => {}
            Input::Received { .. } => debug_assert!(false, "responses go through `receive`"),
            Input::Resolved { .. } => debug_assert!(false, "lookups are not a server's"),
        }
        self.proceed(now);
    }

    /// Opens a response and finds its type; `None` when there is nothing in it for us. Whoever gets one concludes it.
    pub(crate) fn receive(
        &mut self,
        stream: StreamId,
        message: Bytes,
        now: Instant,
    ) -> Option<(TypeId, Envelope)> {
        if !self.stream.is_current(stream) {
            return None;
        }
        let opened = self.open(message);
        if opened.is_none() {
            // Nothing will be concluded, so go on reading here: no response, however odd, stalls anything.
            self.outputs.push_back(Output::Read { stream });
        }
        self.proceed(now);
        opened
    }

    fn open(&mut self, message: Bytes) -> Option<(TypeId, Envelope)> {
        let envelope = match Envelope::parse(message) {
            Ok(envelope) => envelope,
            Err(malformed) => {
                // Without type and nonce there is nothing to answer; good data stays, and so does the stream.
                warn!(server = %self.server.uri, %malformed, "ignoring a message that is no DiscoveryResponse");
                return None;
            }
        };
        if self.stream.on_response() {
            debug!(server = %self.server.uri, "the server answers");
            self.events.push_back(Event::Recovered);
        }
        let mut types = self.types.iter_mut().enumerate();
        let found = types.find_map(|(index, channel)| {
            let channel = channel.as_mut()?;
            (channel.sotw.type_url() == envelope.type_url() && channel.sotw.is_requested())
                .then_some((index, channel))
        });
        let Some((index, channel)) = found else {
            // Rule B0.7: dropped without an answer.
            warn!(server = %self.server.uri, type_url = envelope.type_url(), "ignoring a response of a type that was never asked for");
            return None;
        };
        trace!(
            server = %self.server.uri, type_url = envelope.type_url(), version = envelope.version(),
            nonce = envelope.nonce(), resources = envelope.len(), bytes = envelope.size(), "received"
        );
        channel.sotw.on_response();
        Some((TypeId(index as u16), envelope))
    }

    /// Answers a response, and reads on.
    pub(crate) fn conclude(&mut self, verdict: Verdict, now: Instant) {
        let Verdict { ty, stream, version, nonce, error, fingerprint } = verdict;
        let current = self.stream.is_current(stream);
        let random = &mut self.random;
        let Some(Some(channel)) = self.types.get_mut(ty.index()) else { return };
        let mut not_before = now;
        if error.is_empty() {
            channel.rejected = None;
            channel.sotw.on_accepted(&version);
        } else {
            let delay = channel.on_rejected(fingerprint, now, random);
            let type_url = channel.sotw.type_url();
            if delay.is_zero() {
                warn!(server = %self.server.uri, type_url, %version, %error, "rejecting a response");
            } else {
                debug!(server = %self.server.uri, type_url, %version, ?delay, "rejecting the same response again");
            }
            not_before += delay;
        }
        if current {
            let version = if error.is_empty() { version } else { channel.sotw.version().clone() };
            let error = (!error.is_empty()).then_some(error);
            channel.sotw.on_answer(Answer { version, nonce, error, not_before });
            self.outputs.push_back(Output::Read { stream });
        }
        self.proceed(now);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(wait) = self.waiting.pop(now) {
            if !is_awaited(&self.types, &wait) {
                continue;
            }
            if let Some(sub) = self.interest(wait.ty).and_then(|interest| interest.get_mut(wait.sub)) {
                (sub.phase, sub.doubt_until) = (Phase::TimedOut, None);
                let entry = sub.entry;
                self.events.push_back(Event::TimedOut(entry));
            }
        }
        if self.stream.paused_until().is_some_and(|until| until <= now) {
            self.stream.on_paused_enough();
            if !self.is_wanted() {
                self.events.push_back(Event::Rested);
            }
        }
        let linger = self.settings.linger;
        if self.stream.as_open().and_then(|open| open.idle_since).is_some_and(|since| since + linger <= now) {
            self.close("nothing is wanted of it");
            self.events.push_back(Event::Rested);
        }
        self.proceed(now);
    }

    /// The earliest deadline; in the past when something is due.
    pub(crate) fn next_timeout(&self) -> Option<(Instant, Timer)> {
        let waiting = self.waiting.next().map(|at| (at, Timer::DoesNotExist));
        let reconnect = self.stream.paused_until().map(|at| (at, Timer::Reconnect));
        let open = self.stream.as_open();
        let linger =
            open.and_then(|open| open.idle_since).map(|since| (since + self.settings.linger, Timer::Linger));
        let write = open.filter(|open| open.pending.is_none()).and_then(|_| self.next_write());
        [waiting, reconnect, linger, write].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn next_write(&self) -> Option<(Instant, Timer)> {
        let due = self.types.iter().flatten().filter_map(|channel| channel.sotw.due());
        due.min().map(|at| (at, Timer::Write))
    }

    fn on_connected(&mut self, now: Instant) {
        info!(server = %self.server.uri, "connected");
        self.stream.on_connected();
        for channel in self.types.iter_mut().flatten() {
            channel.sotw.on_stream_opened(now);
        }
        self.outputs.push_back(Output::Read { stream: self.stream.id() });
    }

    fn on_request_sent(&mut self, now: Instant) {
        let Some(written) = self.stream.open().and_then(|open| open.pending.take()) else { return };
        self.on_written(written, now);
    }

    /// A request is on its way: what it asked for has its time from now on, what it let go is released (A57-5).
    fn on_written(&mut self, written: Written, now: Instant) {
        let Written { ty, fresh, leaving, .. } = written;
        let length = self.resource_timeout();
        if let Some(Some(channel)) = self.types.get_mut(ty.index()) {
            for id in fresh {
                let Some(sub) = channel.sotw.interest.get_mut(id) else { continue };
                if sub.phase == Phase::New && sub.named && sub.asked {
                    sub.phase = Phase::Requested;
                    if !sub.held {
                        self.waiting.start(ty, id, sub, (now, length));
                    }
                }
            }
        }
        self.release(ty, &leaving);
    }

    fn close(&mut self, why: &'static str) {
        info!(server = %self.server.uri, why, "closing the stream");
        let stream = self.stream.id();
        self.on_stream_gone();
        self.stream.close();
        self.outputs.push_back(Output::Disconnect { stream });
    }

    fn on_disconnected(&mut self, reason: Disconnect, now: Instant) {
        self.on_stream_gone();
        let end = self.stream.on_disconnected(&reason, now, &mut self.random);
        match end {
            End::Silent => info!(server = %self.server.uri, reason = reason.message, "the stream ended"),
            End::Failure => {
                warn!(server = %self.server.uri, reason = reason.message, "no stream to the server")
            }
        }
        if end == End::Failure {
            self.events.push_back(Event::Failed(reason));
        }
    }

    fn on_stream_gone(&mut self) {
        self.waiting.clear();
        // What a request that was not taken let go is let go by its stream's end as well.
        if let Some(pending) = self.stream.open().and_then(|open| open.pending.take()) {
            self.release(pending.ty, &pending.leaving);
        }
        for index in 0..self.types.len() {
            let ty = TypeId(index as u16);
            let Some(channel) = self.channel(ty) else { continue };
            let leaving = channel.sotw.on_stream_closed();
            let wildcard_leaving = channel.sotw.interest.wildcard_leaving;
            for (_, sub) in channel.sotw.interest.iter_mut() {
                sub.doubt_until = None;
                if !sub.held || sub.phase == Phase::Requested {
                    sub.phase = Phase::New;
                } else if sub.phase == Phase::Doubted {
                    sub.phase = Phase::Answered;
                }
            }
            self.release(ty, &leaving);
            if wildcard_leaving {
                self.release_all(ty);
            }
        }
    }

    /// Does what has become possible: connect, write, notice that nothing is wanted.
    fn proceed(&mut self, now: Instant) {
        let wanted = self.is_wanted();
        if wanted && let Some(stream) = self.stream.connect() {
            debug!(server = %self.server.uri, %stream, "connecting");
            let keepalive = self.stream.keepalive();
            self.outputs.push_back(Output::Connect { stream, server: self.server.clone(), keepalive });
        }
        self.write(now);
        let unwritten = self.types.iter().flatten().any(|channel| channel.sotw.has_unwritten());
        if let Some(open) = self.stream.open() {
            let idle = !wanted && !unwritten && open.pending.is_none();
            open.idle_since = idle.then(|| open.idle_since.unwrap_or(now));
        }
        self.waiting.settle(|wait| is_awaited(&self.types, wait));
    }

    /// Hands out the next request that is due; answers go before changes of subscription (B0.18).
    fn write(&mut self, now: Instant) {
        let stream = self.stream.id();
        while let Some(open) = self.stream.open().filter(|open| open.pending.is_none()) {
            let due = |channel: &Channel| channel.sotw.due().is_some_and(|at| at <= now);
            let types = self.types.iter_mut().enumerate();
            let ready = types.filter_map(|(i, c)| Some((i, c.as_mut().filter(|c| due(c))?)));
            let Some((index, channel)) = ready.min_by_key(|(_, c)| !c.sotw.is_answer_due(now)) else {
                return;
            };
            let node = (!open.node_sent).then_some(&self.node);
            let ty = TypeId(index as u16);
            let (message, written) = channel.sotw.write(ty, node, now);
            let wildcard_left = written.wildcard_left;
            match message {
                Some(message) => {
                    let type_url = channel.sotw.type_url();
                    trace!(server = %self.server.uri, type_url, bytes = message.len(), "request");
                    open.node_sent = true;
                    open.pending = Some(written);
                    self.outputs.push_back(Output::Send { stream, message });
                }
                None => self.on_written(written, now),
            }
            if wildcard_left {
                self.release_all(ty);
            }
        }
    }

    fn is_wanted(&self) -> bool {
        self.types.iter().flatten().any(|channel| !channel.sotw.interest.is_empty())
    }

    fn resource_timeout(&self) -> Duration {
        // A88-5: twice the time, since it is the server that is suspected then.
        let factor = if self.server.features.resource_timer_is_transient_error { 2 } else { 1 };
        self.settings.resource_timeout * factor
    }

    fn channel(&mut self, ty: TypeId) -> Option<&mut Channel> {
        self.types.get_mut(ty.index())?.as_mut()
    }

    fn channel_or_new(&mut self, ty: TypeId, type_url: &'static str) -> &mut Channel {
        if self.types.len() <= ty.index() {
            self.types.resize_with(ty.index() + 1, || None);
        }
        self.types[ty.index()].get_or_insert_with(|| Channel::new(type_url))
    }
}
