use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tracing::{debug, info, trace, warn};

use super::{
    burst::WarningRate,
    channel::{AllDue, Channel, is_awaited},
    envelope::Envelope,
    event::{Event, ResponseOutcome, Timer},
    id::{NamedType, ServerId, StreamId, TypeId},
    quarantine::Quarantine,
    rejections::Fingerprint,
    settings::Settings,
    source_key::SourceKey,
    stream::{End, Left, Stream},
    stream_command::StreamCommand,
    stream_event::{Disconnect, StreamEvent},
    subscription::Subscription,
    subscriptions::{SubId, Subscriptions},
    timers::DoesNotExistTimers,
    variant::Answer,
};
use crate::{config::ConfigSource, escape::Escaped, wire::Malformed};

mod polled;
mod reopening;
mod silence;
mod subscribing;
mod writing;

use polled::LastPoll;
use reopening::Reopening;

/// The protocol with one management server, or another source of resources.
#[derive(Debug)]
pub(crate) struct Machine {
    source_key: SourceKey,
    node: Bytes,
    settings: Arc<Settings>,
    random: fastrand::Rng,
    stream: Stream,
    /// By [`TypeId`], which is the order of first use.
    types: Vec<Option<Channel>>,
    quarantine: Quarantine,
    waiting: DoesNotExistTimers,
    reopening: Reopening,
    last_poll: LastPoll,
    /// The server has identified itself in a response.
    is_identified: bool,
    warnings: WarningRate,
    /// The last response of the stream that was none.
    unreadable: Option<Malformed>,
    commands: VecDeque<StreamCommand>,
    events: VecDeque<Event>,
}

/// The properties of a client that its machines share.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// The encoded `Node`, which the first request of each stream has.
    pub(crate) node: Bytes,
    pub(crate) settings: Arc<Settings>,
}

impl Machine {
    pub(crate) fn new(id: ServerId, source_key: SourceKey, client: Client, seed: u64, now: Instant) -> Self {
        let Client { node, settings } = client;
        let stream = Stream::new(id, source_key.keepalive().unwrap_or(settings.keepalive), now);
        Self {
            source_key,
            node,
            settings,
            random: fastrand::Rng::with_seed(seed),
            stream,
            types: Vec::new(),
            quarantine: Quarantine::default(),
            waiting: DoesNotExistTimers::default(),
            reopening: Reopening::default(),
            last_poll: LastPoll::default(),
            is_identified: false,
            warnings: WarningRate::default(),
            unreadable: None,
            commands: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn source_key(&self) -> &SourceKey {
        &self.source_key
    }

    pub(crate) fn source(&self) -> ConfigSource {
        self.source_key.source()
    }

    /// The subscription of a requested or received resource.
    pub(crate) fn sub(&self, ty: TypeId, id: SubId) -> Option<&Subscription> {
        self.types.get(ty.index())?.as_ref()?.subscriptions.get(id)
    }

    /// Whether no response of its type was received since a name was requested, whose does-not-exist timer then began.
    pub(crate) fn is_unanswered(&self, ty: TypeId, id: SubId) -> bool {
        let channel = self.types.get(ty.index()).and_then(Option::as_ref);
        let timer = channel.and_then(|channel| Some(channel.subscriptions.get(id)?.timer()));
        timer.zip(channel).is_some_and(|(timer, channel)| timer > channel.answered_timer)
    }

    /// What is wrong with a response that came on the stream and is none: of which type it was meant to be is not known.
    pub(crate) fn unreadable(&self) -> Option<Malformed> {
        self.unreadable
    }

    /// The names of a type that are requested or sent, if any was ever requested.
    pub(crate) fn subscriptions(&self, ty: TypeId) -> Option<&Subscriptions> {
        Some(&self.types.get(ty.index())?.as_ref()?.subscriptions)
    }

    /// The subscriptions of a type, if it ever had any.
    pub(crate) fn subscriptions_mut(&mut self, ty: TypeId) -> Option<&mut Subscriptions> {
        Some(&mut self.channel(ty)?.subscriptions)
    }

    /// Handles an event of a stream. Returns the type and the envelope of a response that is to be applied; the caller
    /// concludes it. Events of a stream that was cancelled meanwhile have no effect.
    pub(crate) fn handle_event(&mut self, event: StreamEvent, now: Instant) -> Option<(TypeId, Envelope)> {
        if !self.stream.is_current(event.stream()) {
            self.proceed(now);
            return None;
        }
        match event {
            StreamEvent::Connected { .. } => self.on_connected(now),
            StreamEvent::Alive { .. } => self.stream.on_alive(),
            StreamEvent::GoingAway { .. } => self.stream.on_going_away(now),
            StreamEvent::RequestSent { .. } => self.on_request_sent(now),
            StreamEvent::Received { stream, message } => return self.on_received(stream, message, now),
            StreamEvent::NotFound { stream } => return self.on_not_found(stream, now),
            StreamEvent::Unchanged { .. } => self.on_unchanged(now),
            StreamEvent::Failed { reason, .. } => self.on_exchange_failed(reason, now),
            StreamEvent::Disconnected { reason, .. } => self.on_disconnected(reason, now),
        }
        self.proceed(now);
        None
    }

    /// Opens a response and finds its type; `None` when there is nothing in it for us. The caller that gets one concludes it.
    fn on_received(&mut self, stream: StreamId, message: Bytes, now: Instant) -> Option<(TypeId, Envelope)> {
        self.note_poll_answered();
        let opened = self.open(message, now);
        if opened.is_none() {
            // Nothing will be concluded, so reading goes on here: no response, however odd, stalls the stream.
            self.commands.push_back(StreamCommand::Read { stream });
        }
        self.proceed(now);
        opened
    }

    fn open(&mut self, message: Bytes, now: Instant) -> Option<(TypeId, Envelope)> {
        let envelope = match Envelope::parse(message, self.is_delta()) {
            Ok(envelope) => envelope,
            Err(malformed) => {
                // Without type and nonce there is nothing to answer; good data is kept, and so is the stream.
                self.unreadable = Some(malformed);
                if let Some(left_out) = self.warnings.take(now) {
                    warn!(server = %self.source_key, %malformed, left_out, "malformed response ignored");
                }
                return None;
            }
        };
        let api_version = self.source_key.api_version();
        self.is_identified |= envelope.has_control_plane();
        if self.stream.on_response() {
            debug!(server = %self.source_key, "server responded");
            self.events.push_back(Event::Recovered);
        }
        let type_url = api_version.spell(api_version.unspell(envelope.type_url()));
        let mut types = self.types.iter_mut().enumerate();
        let found = types.find_map(|(index, channel)| {
            let channel = channel.as_mut()?;
            (channel.type_url == type_url && channel.variant.is_requested()).then_some((index, channel))
        });
        let Some((index, channel)) = found else {
            // Rule B0.7: dropped without an answer.
            if let Some(left_out) = self.warnings.take(now) {
                let type_url = envelope.type_url();
                warn!(server = %self.source_key, type_url, left_out, "response of an unrequested type ignored");
            }
            return None;
        };
        trace!(
            server = %self.source_key, type_url = envelope.type_url(), version = envelope.version(),
            nonce = envelope.nonce(), resources = envelope.len(), bytes = envelope.size(), "response received"
        );
        channel.variant.on_response(&envelope.version().into(), now);
        channel.answered_timer = self.waiting.last();
        channel.on_response();
        let ty = TypeId(index as u16);
        self.quarantine.on_response(ty);
        Some((ty, envelope))
    }

    /// Answers a response, and reads the next.
    pub(crate) fn conclude(&mut self, outcome: ResponseOutcome, now: Instant) {
        let ResponseOutcome { ty, stream, version, nonce, error, digests, .. } = outcome;
        let random = &mut self.random;
        let Some(Some(channel)) = self.types.get_mut(ty.index()) else { return };
        let mut not_before = now;
        if error.is_empty() {
            if !outcome.is_outdated {
                channel.rejections.on_accepted();
                channel.accepted = Some(version.clone());
                channel.variant.on_accepted(&channel.subscriptions, &version);
            }
        } else {
            channel.rejections.on_cause(outcome.is_unattributed);
            if outcome.is_applied {
                channel.variant.on_dropped();
            }
            let response = Fingerprint { version: version.clone(), digests };
            let delay = channel.rejections.on_rejected(response, now, random);
            let type_url = channel.type_url;
            if delay.is_zero() {
                warn!(server = %self.source_key, type_url, version = %Escaped(&version), error = %Escaped(&error), "response rejected");
            } else {
                debug!(server = %self.source_key, type_url, version = %Escaped(&version), ?delay, "response rejected again, NACK delayed");
            }
            not_before += delay;
        }
        if self.stream.is_current(stream) {
            // An answer at once is behind the NACKs before it, as far as their rate permits.
            while not_before == now
                && channel.variant.has_held_back(now)
                && channel.rejections.may_release(now)
            {
                channel.variant.release_held_back(now);
            }
            let error = (!error.is_empty()).then_some(error);
            channel.variant.on_answer(Answer { nonce, error, not_before }, now);
            self.commands.push_back(StreamCommand::Read { stream });
        }
        self.proceed(now);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.give_up_if_silent(now);
        self.reopen_if_due(now);
        self.time_out_wildcards(now);
        while let Some(wait) = self.waiting.pop(now) {
            if !is_awaited(&self.types, &wait) {
                continue;
            }
            if self.has_sent_before(&wait) {
                self.request_name_on_another_stream(wait.ty, now);
                continue;
            }
            if let Some(sub) =
                self.subscriptions_mut(wait.ty).and_then(|subscriptions| subscriptions.get_mut(wait.sub))
            {
                sub.on_deadline();
                let entry = sub.entry();
                self.events.push_back(Event::TimedOut(entry));
            }
        }
        for (index, channel) in self.types.iter_mut().enumerate() {
            let Some(channel) =
                channel.as_mut().filter(|c| c.variant.quiet_from().is_some_and(|at| at <= now))
            else {
                continue;
            };
            let has_answered = channel.variant.on_quiet();
            channel.subscriptions.on_quiet(has_answered);
            self.events.push_back(Event::Quiet(TypeId(index as u16)));
        }
        if self.stream.paused_until().is_some_and(|until| until <= now) {
            self.stream.on_paused_enough();
            if !self.has_subscriptions() {
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
    pub(crate) fn next_timeout(&self) -> Option<(Instant, Timer)> {
        let waiting = self.waiting.next().map(|at| (at, Timer::DoesNotExist));
        let reconnect = self.stream.paused_until().map(|at| (at, Timer::Reconnect));
        let open = self.stream.as_open();
        let idle = open
            .and_then(|open| open.idle_since)
            .map(|since| (since + self.settings.idle_stream_timeout, Timer::IdleStream));
        let quiet = self.types.iter().flatten().filter_map(|channel| channel.variant.quiet_from()).min();
        let quiet = quiet.map(|at| (at, Timer::DoesNotExist));
        let holds = self.stream.holds_at().map(|at| (at, Timer::Reconnect));
        let write = open.filter(|open| open.pending.is_none()).and_then(|_| self.next_write());
        let all = self.types.iter().flatten().filter_map(|channel| channel.all.deadline()).min();
        let all = all.into_iter().chain(self.reopening.due()).min().map(|at| (at, Timer::DoesNotExist));
        let forgotten = self.forgotten_at().map(|at| (at, Timer::DoesNotExist));
        let timers = [waiting, reconnect, idle, quiet, holds, write, all, forgotten];
        timers.into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Another stream shows that the server can be reached.
    pub(crate) fn hasten(&mut self, now: Instant) {
        self.stream.hasten(now);
    }

    pub(crate) fn poll_command(&mut self) -> Option<StreamCommand> {
        self.commands.pop_front()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn on_connected(&mut self, now: Instant) {
        info!(server = %self.source_key, "stream opened");
        self.stream.on_connected(now);
        self.unreadable = None;
        self.quarantine.on_stream_opened(now);
        for channel in self.types.iter_mut().flatten() {
            channel.variant.on_stream_opened(&mut channel.subscriptions, now);
        }
        self.commands.push_back(StreamCommand::Read { stream: self.stream.id() });
    }

    fn on_request_sent(&mut self, now: Instant) {
        let Some(written) = self.stream.open().and_then(|open| open.pending.take()) else { return };
        self.on_written(written, now);
    }

    /// A poll returned nothing new.
    fn on_unchanged(&mut self, now: Instant) {
        self.note_poll_answered();
        if self.stream.on_response() {
            debug!(server = %self.source_key, "server responded");
            self.events.push_back(Event::Recovered);
        }
        for channel in self.types.iter_mut().flatten() {
            channel.variant.on_unchanged(now);
        }
    }

    /// The request has no answer, although the stream goes on; all does-not-exist timers are cancelled.
    fn on_exchange_failed(&mut self, reason: Disconnect, now: Instant) {
        self.note_poll_failed(&reason);
        self.stream.on_failed();
        self.waiting.clear();
        if let Some(pending) = self.stream.open().and_then(|open| open.pending.take()) {
            self.release(pending.ty, &pending.unsubscribed);
        }
        for channel in self.types.iter_mut().flatten() {
            channel.variant.on_failed(&mut channel.subscriptions, now);
        }
        self.events.push_back(Event::Failed(reason));
    }

    /// Requests everything again, on another stream.
    pub(crate) fn reopen(&mut self, why: &'static str, now: Instant) {
        self.close(why);
        self.proceed(now);
    }

    fn close(&mut self, why: &'static str) {
        info!(server = %self.source_key, why, "closing stream");
        let stream = self.stream.id();
        self.on_stream_gone();
        self.quarantine.on_stream_closed();
        self.stream.close();
        self.commands.push_back(StreamCommand::Disconnect { stream });
    }

    fn on_disconnected(&mut self, reason: Disconnect, now: Instant) {
        let ended = self.quarantine.on_disconnected(&reason, now);
        let left = Left { owes: self.is_owed(), is_suspicious: self.quarantine.is_suspicious() };
        self.on_stream_gone();
        let end = self.stream.on_disconnected(&reason, left, now, &mut self.random);
        match end {
            End::Silent => {
                info!(server = %self.source_key, reason = reason.message, "stream closed")
            }
            End::Failure => {
                warn!(server = %self.source_key, reason = reason.message, "stream failed")
            }
        }
        if end == End::Failure {
            // Before types are held back: those that still wait open the next server.
            self.events.push_back(Event::Failed(reason.clone()));
        }
        self.on_unanswered(ended, &reason);
    }

    fn on_stream_gone(&mut self) {
        self.waiting.clear();
        self.reopening.on_stream_gone();
        // The unsubscriptions of a request that was not sent are completed by the end of its stream as well.
        if let Some(pending) = self.stream.open().and_then(|open| open.pending.take()) {
            self.release(pending.ty, &pending.unsubscribed);
        }
        for index in 0..self.types.len() {
            let ty = TypeId(index as u16);
            let Some(channel) = self.channel(ty) else { continue };
            (channel.all, channel.is_answered) = (AllDue::No, false);
            channel.rejections.on_stream_closed();
            // Nothing on the next stream would show that it is gone, if the version stood for its absence.
            if channel.subscriptions.iter().any(|(_, sub)| sub.is_doubted()) {
                channel.variant.forget_version();
            }
            let unsubscribed = channel.variant.on_stream_closed(&mut channel.subscriptions);
            let wildcard_leaving = channel.subscriptions.wildcard_leaving;
            channel.subscriptions.iter_mut().for_each(|(_, sub)| sub.on_stream_gone());
            self.release(ty, &unsubscribed);
            if wildcard_leaving {
                self.release_all(ty);
            }
        }
    }

    /// Does what has become possible: connects, writes, detects that nothing is subscribed, or that the server owes nothing.
    fn proceed(&mut self, now: Instant) {
        if self.stream.may_be_good() && !self.is_owed() {
            self.stream.on_good();
            debug!(server = %self.source_key, "stream healthy without a response");
            self.events.push_back(Event::Recovered);
        }
        let has_subscriptions = self.has_subscriptions();
        if has_subscriptions && let Some(stream) = self.stream.connect() {
            debug!(server = %self.source_key, %stream, "opening stream");
            let keepalive = self.stream.keepalive();
            self.commands.push_back(StreamCommand::Connect {
                stream,
                to: self.source_key.connect_target(),
                keepalive,
            });
        }
        self.write(now);
        let unwritten =
            self.types.iter().flatten().any(|channel| channel.variant.has_unwritten(&channel.subscriptions));
        if let Some(open) = self.stream.open() {
            let idle = !unwritten && open.pending.is_none();
            // Responses that a server sends nevertheless have to be answered, but keep nothing alive.
            open.idle_since = open.idle_since.or(idle.then_some(now)).filter(|_| !has_subscriptions);
        }
        self.waiting.skip_obsolete(|wait| is_awaited(&self.types, wait));
    }

    fn has_subscriptions(&self) -> bool {
        self.types.iter().flatten().any(|channel| !channel.subscriptions.is_empty())
    }

    /// Whether the server's variant of the protocol is the incremental one.
    pub(crate) fn is_delta(&self) -> bool {
        self.source_key.capabilities().incremental
    }

    fn resource_timeout(&self) -> Duration {
        // A88-5: twice the time, since a timeout counts against the server then.
        let factor = if self.source_key.features().resource_timer_is_transient_error { 2 } else { 1 };
        self.settings.resource_timeout * factor
    }

    fn channel(&mut self, ty: TypeId) -> Option<&mut Channel> {
        self.types.get_mut(ty.index())?.as_mut()
    }

    fn channel_or_new(&mut self, NamedType { id: ty, url: type_url }: NamedType) -> &mut Channel {
        if self.types.len() <= ty.index() {
            self.types.resize_with(ty.index() + 1, || None);
        }
        let (doubt, limit) = (self.resource_timeout(), self.settings.max_request_size);
        let Self { source_key, random, .. } = self;
        self.types[ty.index()].get_or_insert_with(|| Channel::new(source_key, type_url, doubt, limit, random))
    }
}
