//! The exchange with one server: its stream, the requests and responses on it, and the time.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use bytes::Bytes;
use tracing::{debug, info, trace, warn};

use super::{
    Client,
    control_plane::ControlPlaneInfo,
    polled::{LastPoll, empty_response},
    reopening::{Reopening, Why},
};
use crate::{
    protocol::{
        burst::WarningRate,
        channel::Channel,
        channels::Channels,
        envelope::Envelope,
        event::{Event, Timer},
        id::{NamedType, ServerId, TypeId},
        quarantine::{Ended, Quarantine},
        settings::Settings,
        source_key::SourceKey,
        stream::{End, Left, Stream},
        stream_command::StreamCommand,
        stream_event::{Disconnect, StreamEvent},
        variant::{Head, Written},
    },
    wire::Malformed,
};

/// The stream to a server and the state of what is sent and received on it. Each change ends with [`proceed`](Self::proceed).
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) source_key: SourceKey,
    /// The encoded node, for the first request of each stream.
    node: Bytes,
    settings: Arc<Settings>,
    /// The source of jitter.
    pub(super) random: fastrand::Rng,
    pub(super) stream: Stream,
    /// The types, with their subscriptions and timers.
    pub(super) channels: Channels,
    /// The types for which the server ends streams.
    pub(super) quarantine: Quarantine,
    /// The schedule of streams that are opened anew for single resources.
    reopening: Reopening,
    /// The outcome of the last poll, for logs and hints.
    pub(super) last_poll: LastPoll,
    /// What the server has said of itself.
    pub(super) control_plane: ControlPlaneInfo,
    /// The rate of warnings about unusable responses.
    warnings: WarningRate,
    /// The last response of the stream that was none.
    pub(super) unreadable: Option<Malformed>,
    /// The commands that the owner has not taken yet.
    pub(super) commands: VecDeque<StreamCommand>,
    /// The events that the owner has not taken yet, in the order of their causes.
    pub(super) events: VecDeque<Event>,
}

impl Exchange {
    /// No stream, and no type.
    pub(super) fn new(id: ServerId, source_key: SourceKey, client: Client, seed: u64) -> Self {
        let Client { node, settings } = client;
        let stream = Stream::new(id, source_key.keepalive().unwrap_or(settings.keepalive));
        Self {
            channels: Channels::new(&source_key, &settings),
            source_key,
            node,
            settings,
            random: fastrand::Rng::with_seed(seed),
            stream,
            quarantine: Quarantine::default(),
            reopening: Reopening::default(),
            last_poll: LastPoll::default(),
            control_plane: ControlPlaneInfo::default(),
            warnings: WarningRate::default(),
            unreadable: None,
            commands: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The server considers something held that is not: a resource without its version in the requests of the next
    /// stream is sent there. At most one stream is opened for that in the does-not-exist time.
    pub(super) fn request_again_on_another_stream(&mut self, ty: TypeId, now: Instant) {
        let why = Why { text: "the server confirms a resource that has expired", wildcard: None };
        self.ask_on_another_stream(ty, why, now);
    }

    /// The server considered the wildcard a name: it needs none in the first request of a type on a stream (B2.4).
    /// Until then it does not send everything.
    pub(super) fn ask_for_all_on_another_stream(&mut self, ty: TypeId, now: Instant) {
        let Some(channel) = self.channels.get_mut(ty) else { return };
        channel.variant.on_wildcard_refused(&mut channel.subscriptions);
        let why = Why { text: "the server takes the wildcard for a name", wildcard: Some(ty) };
        self.ask_on_another_stream(ty, why, now);
    }

    /// The last response may be no answer to `*`, which the server may take for a name: another stream begins with the empty list.
    pub(super) fn try_wildcard_on_another_stream(&mut self, ty: TypeId, now: Instant) {
        let why = Why { text: "a change may have crossed the wildcard", wildcard: Some(ty) };
        self.ask_on_another_stream(ty, why, now);
    }

    /// Forgets the version of a type, and opens another stream now, or once that may be. A source without streams gets everything
    /// with each request anyway.
    fn ask_on_another_stream(&mut self, ty: TypeId, why: Why, now: Instant) {
        // Each poll is answered with everything that was requested.
        if !self.source_key.capabilities().streaming {
            return;
        }
        let Some(channel) = self.channels.get_mut(ty) else { return };
        channel.variant.forget_version();
        if self.reopening.begin(why, self.channels.resource_timeout(), now) {
            self.reopen(why.text, now);
        }
    }

    /// Handles an event of a stream. Returns the type and the envelope of a response that is to be applied; the caller
    /// concludes it. Events of a stream that was cancelled meanwhile have no effect.
    pub(super) fn handle_event(&mut self, event: StreamEvent, now: Instant) -> Option<(TypeId, Envelope)> {
        if !self.stream.is_current(event.stream()) {
            // A late event of a stream that was closed here: the transport had reported it before it got the command.
            self.proceed(now);
            return None;
        }
        match event {
            StreamEvent::Connected { .. } => self.on_connected(now),
            StreamEvent::Alive { .. } => self.stream.on_alive(),
            StreamEvent::GoingAway { .. } => self.stream.on_going_away(now),
            StreamEvent::RequestSent { .. } => self.on_request_sent(now),
            StreamEvent::Received { message, at, .. } => {
                return self.on_received(message, at.unwrap_or(now), now);
            }
            StreamEvent::NotFound { .. } => return self.on_not_found(now),
            StreamEvent::Unchanged { .. } => self.on_unchanged(now),
            StreamEvent::Failed { reason, .. } => self.on_exchange_failed(reason, now),
            StreamEvent::Disconnected { reason, .. } => self.on_disconnected(reason, now),
        }
        self.proceed(now);
        None
    }

    /// Opens a response and finds its type; `None` when there is nothing in it for us. The caller that gets one concludes it.
    fn on_received(&mut self, message: Bytes, at: Instant, now: Instant) -> Option<(TypeId, Envelope)> {
        self.last_poll.on_answered(&self.source_key);
        let opened = self.open(message, at, now);
        if opened.is_none() {
            // Nothing will be concluded, or another response of the type first, so reading goes on here: no response, however odd,
            // stalls the stream.
            self.commands.push_back(StreamCommand::Read { stream: self.stream.id() });
        }
        self.proceed(now);
        opened
    }

    /// The server has none of the requested resources: the same as a response of the type without resources (MS6).
    fn on_not_found(&mut self, now: Instant) -> Option<(TypeId, Envelope)> {
        let before = std::mem::take(&mut self.last_poll);
        let opened = self.on_received(empty_response(&self.source_key), now, now);
        if opened.is_some() {
            self.last_poll.on_not_found(&self.source_key, &before);
        }
        opened
    }

    /// Slices a response and finds its type. What is no response of a requested type is logged, at a limited rate.
    fn open(&mut self, message: Bytes, at: Instant, now: Instant) -> Option<(TypeId, Envelope)> {
        let bytes = message.len();
        let mut envelope = match Envelope::parse(message, self.is_delta()) {
            Ok(envelope) => envelope,
            Err(malformed) => {
                self.channels.traffic.on_response(None, bytes);
                // Without type and nonce there is nothing to answer; good data is kept, and so is the stream.
                self.unreadable = Some(malformed);
                if let Some(left_out) = self.warnings.take(now) {
                    warn!(server = %self.source_key, %malformed, left_out, "malformed response ignored");
                }
                return None;
            }
        };
        let api_version = self.source_key.api_version();
        envelope.arrived_at = Some(at);
        self.control_plane.on_response(&envelope);
        if self.stream.on_response() {
            debug!(server = %self.source_key, "server responded");
            self.events.push_back(Event::Recovered);
        }
        let type_url = api_version.spell(api_version.unspell(envelope.type_url()));
        let ty = self.channels.requested(type_url);
        self.channels.traffic.on_response(ty, bytes);
        let Some(ty) = ty else {
            // Rule B0.7: dropped without an answer.
            if let Some(left_out) = self.warnings.take(now) {
                let type_url = envelope.type_url();
                warn!(server = %self.source_key, type_url, left_out, "response of an unrequested type ignored");
            }
            return None;
        };
        trace!(
            server = %self.source_key, type_url = envelope.type_url(), version = envelope.version(),
            nonce = envelope.nonce(), resources = envelope.len(), bytes, "response received"
        );
        self.quarantine.on_response(ty);
        if self.channels.is_busy(ty) {
            self.channels.wait(ty, self.stream.id(), envelope);
            return None;
        }
        self.channels.on_response(ty, envelope.version(), now);
        Some((ty, envelope))
    }

    /// Handles everything that is due. A silent stream is given up first: its timers prove nothing then.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.give_up_if_silent(now);
        self.reopen_if_due(now);
        for ty in self.channels.time_out_wildcards(now, &mut self.events) {
            self.ask_for_all_on_another_stream(ty, now);
        }
        self.time_out_names(now);
        self.channels.on_quiet(now, &mut self.events);
        if self.stream.paused_until().is_some_and(|until| until <= now) {
            self.stream.on_paused_enough();
            if !self.channels.has_subscriptions() {
                self.events.push_back(Event::Rested);
            }
        }
        if self.stream.holds_at().is_some_and(|at| at <= now) {
            self.stream.on_held();
        }
        let timeout = self.settings.idle_stream_timeout;
        if self.stream.as_open().and_then(|open| open.idle_since).is_some_and(|since| since + timeout <= now)
        {
            self.close("no subscription is left");
            self.events.push_back(Event::Rested);
        }
        self.proceed(now);
    }

    /// The earliest deadline; in the past when something is due.
    pub(super) fn next_timeout(&self) -> Option<(Instant, Timer)> {
        let open = self.stream.as_open();
        let idle =
            open.and_then(|open| open.idle_since).map(|since| since + self.settings.idle_stream_timeout);
        let may_write = open.is_some_and(|open| open.pending.is_none());
        let write = if may_write { self.channels.next_write(&self.quarantine) } else { None };
        let timers = [
            (self.channels.next_does_not_exist(), Timer::DoesNotExist),
            (self.stream.paused_until(), Timer::Reconnect),
            (idle, Timer::IdleStream),
            (self.channels.next_quiet(), Timer::DoesNotExist),
            (self.stream.holds_at(), Timer::Reconnect),
            (write, Timer::Write),
            (self.channels.next_wildcard(), Timer::DoesNotExist),
            (self.reopening.due(), Timer::DoesNotExist),
            (self.forgotten_at(), Timer::DoesNotExist),
        ];
        // Among equal deadlines the first one is named.
        timers.into_iter().filter_map(|(at, timer)| Some((at?, timer))).min_by_key(|(at, _)| *at)
    }

    /// The stream is open: the first read is ordered, and requests are written by `proceed`.
    fn on_connected(&mut self, now: Instant) {
        info!(server = %self.source_key, "stream opened");
        self.stream.on_connected(now);
        // It was received on the stream before.
        self.unreadable = None;
        self.quarantine.on_stream_opened(now);
        self.channels.on_stream_opened(now);
        self.commands.push_back(StreamCommand::Read { stream: self.stream.id() });
    }

    /// The transport has taken the pending request: its timers begin, and the next one can be written.
    fn on_request_sent(&mut self, now: Instant) {
        let Some(written) = self.stream.open().and_then(|open| open.pending.take()) else { return };
        self.on_written(&written, now);
    }

    /// A poll returned nothing new.
    fn on_unchanged(&mut self, now: Instant) {
        self.last_poll.on_answered(&self.source_key);
        if self.stream.on_response() {
            debug!(server = %self.source_key, "server responded");
            self.events.push_back(Event::Recovered);
        }
        self.channels.on_unchanged(now);
    }

    /// The request has no answer, although the stream goes on; all does-not-exist timers are cancelled.
    fn on_exchange_failed(&mut self, reason: Disconnect, now: Instant) {
        self.last_poll.on_failed(&self.source_key, &reason);
        self.stream.on_failed();
        self.channels.clear_timers();
        self.release_pending();
        self.channels.on_failed(now);
        self.events.push_back(Event::Failed(reason));
    }

    /// Requests everything again, on another stream.
    pub(super) fn reopen(&mut self, why: &'static str, now: Instant) {
        self.close(why);
        self.proceed(now);
    }

    /// Ends the stream from this side. Without subscriptions, none follows; otherwise `proceed` opens the next one at once.
    pub(super) fn close(&mut self, why: &'static str) {
        info!(server = %self.source_key, why, "closing stream");
        let stream = self.stream.id();
        // While the stream is still open, since its pending request is released.
        self.on_stream_gone();
        self.quarantine.on_stream_closed();
        self.channels.traffic.on_cancelled();
        self.stream.close();
        self.commands.push_back(StreamCommand::Disconnect { stream });
    }

    /// The stream has ended, or could not be opened. The next attempt has to wait. A failure is reported unless the stream
    /// was healthy.
    fn on_disconnected(&mut self, reason: Disconnect, now: Instant) {
        self.channels.traffic.on_disconnected(&reason);
        let ended = self.quarantine.on_disconnected(&reason, now);
        // Read before the state of the stream ends.
        let left = Left {
            owes: self.channels.is_owed(&self.quarantine),
            is_suspicious: self.quarantine.is_suspicious(),
        };
        self.on_stream_gone();
        let end = self.stream.on_disconnected(&reason, left, now, &mut self.random);
        match end {
            End::Silent => info!(server = %self.source_key, reason = reason.message, "stream closed"),
            End::Failure => {
                warn!(server = %self.source_key, reason = reason.message, "stream failed");
                // Before types are held back: those that still wait open the next server.
                self.events.push_back(Event::Failed(reason.clone()));
            }
        }
        self.on_unanswered(ended, &reason);
    }

    /// The state that belongs to the stream ends with it (B0.5).
    fn on_stream_gone(&mut self) {
        self.reopening.on_stream_gone();
        self.release_pending();
        self.channels.on_stream_gone(&mut self.events);
    }

    /// The unsubscriptions of a request that was not sent are completed by its failure, or by the end of its stream, as well.
    fn release_pending(&mut self) {
        if let Some(pending) = self.stream.open().and_then(|open| open.pending.take()) {
            self.channels.release(pending.ty, &pending.unsubscribed, &mut self.events);
        }
    }

    /// Types that were never answered on several streams that ended with an error have that error.
    fn on_unanswered(&mut self, ended: Ended, reason: &Disconnect) {
        let Ended::Unanswered(types) = ended else { return };
        for ty in types {
            let is_held_back = self.quarantine.is_held_back(ty);
            let Some(channel) = self.channels.get_mut(ty) else { continue };
            let (type_url, server) = (channel.type_url, &self.source_key);
            if channel.unanswered.as_ref() != Some(reason) || is_held_back {
                warn!(%server, type_url, reason = reason.message, is_held_back, "no response for the type on repeated streams");
            }
            channel.unanswered = Some(reason.clone());
            self.events.push_back(Event::Unanswered(ty));
        }
    }

    /// When a stream is given up that was never answered on a connection whose end the server has announced: it may never end it.
    fn forgotten_at(&self) -> Option<Instant> {
        Some(self.stream.unanswered_going_away_since()? + self.channels.resource_timeout())
    }

    /// Closes a stream that nobody serves, as if the server had, when a does-not-exist time has passed. That proves nothing of the
    /// resource.
    fn give_up_if_silent(&mut self, now: Instant) {
        let is_streaming = self.source_key.capabilities().streaming;
        let Some((kind, why)) = self.stream.unserved().filter(|_| is_streaming) else { return };
        self.channels.skip_obsolete();
        let Self { channels, .. } = self;
        let deadlines = [channels.next_wildcard(), channels.next_does_not_exist(), self.forgotten_at()];
        if deadlines.into_iter().flatten().any(|at| at <= now) {
            self.commands.push_back(StreamCommand::Disconnect { stream: self.stream.id() });
            self.on_disconnected(Disconnect::new(kind, why), now);
        }
    }

    /// The does-not-exist timers that have expired.
    fn time_out_names(&mut self, now: Instant) {
        while let Some(wait) = self.channels.pop_expired(now) {
            let Some(channel) = self.channels.get_mut(wait.ty) else { continue };
            if channel.has_sent_before(wait.sub) {
                // On another stream the server knows of nothing that it has sent (B1.22).
                channel.variant.forget_version();
                let pause = self.channels.resource_timeout();
                self.reopening.plan("the server does not send again what it has sent before", pause, now);
                continue;
            }
            if let Some(sub) = channel.subscriptions.get_mut(wait.sub) {
                sub.on_deadline();
                let entry = sub.entry();
                self.events.push_back(Event::TimedOut(entry));
            }
        }
    }

    /// Opens the stream anew for the names that have waited for that, if they are still subscribed.
    fn reopen_if_due(&mut self, now: Instant) {
        let Some(waiting) = self.reopening.take_due(now) else { return };
        let lacks_all = |ty| {
            self.channels
                .get(ty)
                .map(|channel| &channel.subscriptions)
                .is_some_and(|subscriptions| subscriptions.wildcard && !subscriptions.sends_all)
        };
        if waiting.wildcard.is_none_or(lacks_all) {
            self.reopening.on_reopened(now);
            self.reopen(waiting.why, now);
        }
    }

    /// Does what has become possible: connects, writes, detects that nothing is subscribed, or that the server owes nothing.
    pub(super) fn proceed(&mut self, now: Instant) {
        if self.stream.may_be_good() && !self.channels.is_owed(&self.quarantine) {
            self.stream.on_good();
            debug!(server = %self.source_key, "stream healthy without a response");
            self.events.push_back(Event::Recovered);
        }
        let has_subscriptions = self.channels.has_subscriptions();
        if has_subscriptions && let Some(stream) = self.stream.connect() {
            debug!(server = %self.source_key, %stream, "opening stream");
            let (to, keepalive) = (self.source_key.connect_target(), self.stream.keepalive());
            self.commands.push_back(StreamCommand::Connect { stream, to, keepalive });
        }
        self.write(now);
        let unwritten = self.channels.has_unwritten();
        if let Some(open) = self.stream.open() {
            let idle = !unwritten && open.pending.is_none();
            // Responses that a server sends nevertheless have to be answered, but keep nothing alive.
            open.idle_since = open.idle_since.or(idle.then_some(now)).filter(|_| !has_subscriptions);
        }
        self.channels.skip_obsolete();
    }

    /// Hands out the requests that are due, one at a time.
    fn write(&mut self, now: Instant) {
        let stream = self.stream.id();
        while self.stream.as_open().is_some_and(|open| open.pending.is_none()) {
            let Some(ty) = self.channels.next_to_write(&self.quarantine, now) else { return };
            let (Some(open), Some(channel)) = (self.stream.open(), self.channels.get_mut(ty)) else { return };
            let node = (!open.node_sent).then_some(&self.node);
            let (was_requested, sent_all) = (channel.variant.is_requested(), channel.subscriptions.sends_all);
            let (message, mut written) =
                channel.variant.write(&mut channel.subscriptions, Head { ty, node }, now);
            written.requests_all = channel.subscriptions.sends_all && !sent_all;
            let wildcard_left = written.wildcard_left;
            match message {
                Some(message) => {
                    if !was_requested {
                        self.quarantine.on_requested(ty, now);
                    }
                    let (type_url, kind) = (channel.type_url, written.kind);
                    self.channels.traffic.on_request(ty, kind, message.len());
                    trace!(server = %self.source_key, type_url, bytes = message.len(), "request sent");
                    // Each poll is an exchange of its own.
                    open.node_sent = self.source_key.capabilities().streaming;
                    open.pending = Some(written);
                    self.commands.push_back(StreamCommand::Send { stream, message });
                }
                None => self.on_written(&written, now),
            }
            if wildcard_left {
                self.channels.release_all(ty, &mut self.events);
            }
        }
    }

    /// A request was sent: its unsubscribed names are released.
    fn on_written(&mut self, written: &Written, now: Instant) {
        self.channels.on_sent(written, now);
        self.channels.release(written.ty, &written.unsubscribed, &mut self.events);
    }

    /// A type, which has its state from its first use on.
    pub(super) fn channel_or_new(&mut self, named: NamedType) -> &mut Channel {
        let Self { channels, source_key, random, .. } = self;
        channels.get_or_new(named, source_key, random)
    }

    /// Whether the variant is the incremental one.
    pub(super) fn is_delta(&self) -> bool {
        self.source_key.capabilities().incremental
    }
}
