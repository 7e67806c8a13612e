use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use tracing::{debug, warn};

use super::{
    channel::Channel,
    envelope::Envelope,
    event::{Event, ResponseOutcome, Timer},
    id::{EntryId, NamedType, ServerId, StreamId, TypeId},
    settings::Settings,
    source_key::SourceKey,
    stream::{ConnectionState, Stream},
    stream_command::StreamCommand,
    stream_event::{Disconnect, StreamEvent},
    subscription::Subscription,
    subscriptions::{SubId, Subscriptions},
    traffic::Traffic,
    variant::Answer,
};
use crate::{config::ConfigSource, escape::Escaped, observed::ResourceSource, wire::Malformed};

mod control_plane;
mod exchange;
mod polled;
mod reopening;

pub(crate) use self::control_plane::ControlPlaneInfo;
use self::exchange::Exchange;

/// The protocol with one management server, or another source of resources.
///
/// | call | by |
/// |---|---|
/// | `handle_event`, `handle_timeout` | the transport and the clock; a response that is returned is concluded by `conclude` |
/// | `subscribe`, `unsubscribe`, `subscribe_all`, `unsubscribe_all`, `accept_pushed` | watches |
/// | `withdraw`, `withdraw_all`, `set_pushed`, then `rest` | the end of a fallback, which unsubscribes many names at once |
/// | `poll_event`, `poll_command` until `None`, then `next_timeout` | the owner, after each call that takes the time |
///
/// The methods of a machine are what its owner orders; [`Exchange`] is what happens on the wire.
#[derive(Debug)]
pub(crate) struct Machine {
    /// What happens on the wire.
    exchange: Exchange,
}

/// The properties of a client that its machines share.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// The encoded `Node`, which the first request of each stream has.
    pub(crate) node: Bytes,
    /// The settings of the protocol, the same for all servers.
    pub(crate) settings: Arc<Settings>,
}

impl Machine {
    /// A machine without subscriptions: it does not connect before the first one. `seed` is that of its jitter.
    pub(crate) fn new(id: ServerId, source_key: SourceKey, client: Client, seed: u64) -> Self {
        Self { exchange: Exchange::new(id, source_key, client, seed) }
    }

    /// The stream, and the pause between streams.
    pub(crate) fn stream(&self) -> &Stream {
        &self.exchange.stream
    }

    /// The source, and how it is fetched.
    pub(crate) fn source_key(&self) -> &SourceKey {
        &self.exchange.source_key
    }

    /// The source, as the bootstrap or a resource has it.
    pub(crate) fn source(&self) -> ConfigSource {
        self.exchange.source_key.source()
    }

    /// A type, if it was ever requested from the server.
    pub(crate) fn channel(&self, ty: TypeId) -> Option<&Channel> {
        self.exchange.channels.get(ty)
    }

    /// A type, if it was ever requested from the server, to record what a response has of it.
    pub(crate) fn channel_mut(&mut self, ty: TypeId) -> Option<&mut Channel> {
        self.exchange.channels.get_mut(ty)
    }

    /// The subscription of a requested or received resource.
    pub(crate) fn sub(&self, ty: TypeId, id: SubId) -> Option<&Subscription> {
        self.channel(ty)?.subscriptions.get(id)
    }

    /// The names of a type that are requested or sent, if any was ever requested.
    pub(crate) fn subscriptions(&self, ty: TypeId) -> Option<&Subscriptions> {
        Some(&self.channel(ty)?.subscriptions)
    }

    /// The subscriptions of a type, if it ever had any.
    pub(crate) fn subscriptions_mut(&mut self, ty: TypeId) -> Option<&mut Subscriptions> {
        self.exchange.channels.subscriptions_mut(ty)
    }

    /// What is wrong with a response that came on the stream and is none: of which type it was meant to be is not known.
    pub(crate) fn unreadable(&self) -> Option<Malformed> {
        self.exchange.unreadable
    }

    /// The path of the last poll that returned nothing.
    pub(crate) fn not_found_at(&self) -> Option<&str> {
        self.exchange.last_poll.not_found_at(&self.exchange.source_key)
    }

    /// Whether a type without any response may be one whose names have to be requested together: go-control-plane does not identify
    /// itself.
    pub(crate) fn may_want_all_names(&self) -> bool {
        self.exchange.control_plane.identifier.is_none()
    }

    /// The server as the source of its resources.
    pub(crate) fn as_source(&mut self) -> Arc<ResourceSource> {
        let Exchange { control_plane, source_key, .. } = &mut self.exchange;
        control_plane.as_source(|| source_key.source().to_string())
    }

    /// What the server has said of itself.
    pub(crate) fn control_plane(&self) -> &ControlPlaneInfo {
        &self.exchange.control_plane
    }

    /// Whether the names of resources in a response of a stream that nothing is subscribed to matter.
    pub(crate) fn notes_skipped(&self, stream: StreamId, ty: TypeId) -> bool {
        self.exchange.stream.is_current(stream)
            && self.channel(ty).is_some_and(|channel| channel.variant.notes_skipped())
    }

    /// The reason of the last end of a stream with a request of a type, if it was never answered; and whether it is held back.
    pub(crate) fn unanswered(&self, ty: TypeId) -> Option<(&Disconnect, bool)> {
        Some((self.channel(ty)?.unanswered.as_ref()?, self.exchange.quarantine.is_held_back(ty)))
    }

    /// Whether the server was not notified of some unsubscription yet.
    pub(crate) fn has_unwritten_ends(&self) -> bool {
        self.exchange.stream.as_open().is_some() && self.exchange.channels.has_unwritten_ends()
    }

    /// Whether no subscription is left, and there is no stream to it.
    pub(crate) fn is_unused(&self) -> bool {
        self.exchange.stream.connection() == ConnectionState::Idle
            && self.exchange.events.is_empty()
            && self.exchange.commands.is_empty()
            && self.exchange.channels.is_unused()
    }

    /// Numbers streams from there on.
    pub(crate) fn count_streams_from(&mut self, attempts: u64) {
        self.exchange.stream.count_from(attempts);
    }

    /// Subscribes to a name that has its slot.
    ///
    /// The name need not be requested: a wildcard may have brought it, or it is in a request already.
    pub(crate) fn subscribe(&mut self, named: NamedType, sub: SubId, now: Instant) {
        let ty = named.id;
        let channel = self.exchange.channel_or_new(named);
        if channel.subscriptions.name(sub) {
            channel.variant.on_named(&mut channel.subscriptions, sub, now);
            let is_held = channel.subscriptions.get(sub).is_some_and(Subscription::is_held);
            // go-control-plane considers the members of an ended wildcard held ever after, and would not send the name.
            if !is_held && channel.variant.may_skip_names() {
                self.exchange.close("a name is subscribed to that the server may have sent for a wildcard");
            }
            // In the incremental variant a response need not have the name, so that its absence is no sign.
            if !self.is_delta() {
                self.exchange.channels.doubt_missed(ty, sub, now);
            }
        }
        if self.exchange.quarantine.is_held_back(ty)
            && let Some(sub) = self.sub(ty, sub)
        {
            let entry = sub.entry();
            self.exchange.events.push_back(Event::HeldBack(entry));
        }
        self.exchange.proceed(now);
    }

    /// Adds a name without a state; it is not requested yet.
    pub(crate) fn insert(&mut self, named: NamedType, name: Arc<str>, entry: EntryId) -> SubId {
        self.exchange.channel_or_new(named).subscriptions.insert(name, entry)
    }

    /// Unsubscribes from a name. It is released at once, or when the server was notified.
    pub(crate) fn unsubscribe(&mut self, ty: TypeId, sub: SubId, now: Instant) {
        self.withdraw(ty, sub, now);
        self.exchange.proceed(now);
    }

    /// Unsubscribes from a name as part of a batch: others follow, and then [`rest`](Self::rest).
    pub(crate) fn withdraw(&mut self, ty: TypeId, sub: SubId, now: Instant) {
        let is_open = self.exchange.stream.as_open().is_some();
        let Some(channel) = self.exchange.channels.get_mut(ty) else { return };
        if !channel.subscriptions.get(sub).is_some_and(Subscription::is_named) {
            return;
        }
        channel.subscriptions.unname(sub);
        // On a stream without a request of the type, the server knows no name of it (B1.5, B2.7).
        if is_open && channel.variant.is_requested() {
            channel.variant.on_unnamed(sub, now);
        } else {
            self.release(ty, &[sub]);
        }
    }

    /// Subscribes to everything of a type.
    pub(crate) fn subscribe_all(&mut self, named: NamedType, now: Instant) {
        let channel = self.exchange.channel_or_new(named);
        // Asked before the wildcard is subscribed, which hides the answer.
        let stuck = channel.variant.is_wildcard_stuck(&channel.subscriptions);
        if !channel.subscriptions.wildcard {
            channel.variant.on_wildcard(&mut channel.subscriptions, now);
        }
        if stuck {
            self.exchange.close("a wildcard is subscribed to again that the server may not take to be ended");
        }
        self.exchange.proceed(now);
    }

    /// Unsubscribes from everything of a type. The resources that were sent only because of that are released at once,
    /// or when the server was notified.
    pub(crate) fn unsubscribe_all(&mut self, ty: TypeId, now: Instant) {
        self.withdraw_all(ty, now);
        self.exchange.proceed(now);
    }

    /// Sets whether resources of a type count that the server sends without a request for them. Those that it has sent so are released
    /// when they do not count any more.
    pub(crate) fn accept_pushed(&mut self, named: NamedType, is_accepted: bool, now: Instant) {
        self.set_pushed(named, is_accepted, now);
        self.exchange.proceed(now);
    }

    /// The same as part of a batch: others follow, and then [`rest`](Self::rest).
    pub(crate) fn set_pushed(&mut self, named: NamedType, is_accepted: bool, now: Instant) {
        let channel = self.exchange.channel_or_new(named);
        if channel.subscriptions.pushed != is_accepted {
            channel.subscriptions.pushed = is_accepted;
            channel.subscriptions.opens_for_pushed = is_accepted && channel.variant.on_pushed(now);
            if !is_accepted && !channel.subscriptions.requests_all() {
                self.exchange.channels.release_all(named.id, &mut self.exchange.events);
            }
        }
    }

    /// Unsubscribes from everything of a type as part of a batch: others follow, and then [`rest`](Self::rest).
    pub(crate) fn withdraw_all(&mut self, ty: TypeId, now: Instant) {
        let is_open = self.exchange.stream.as_open().is_some();
        let Some(channel) =
            self.exchange.channels.get_mut(ty).filter(|channel| channel.subscriptions.wildcard)
        else {
            return;
        };
        channel.variant.on_wildcard_ended(&mut channel.subscriptions, now);
        // As for a name: nothing has to be sent.
        if !is_open || !channel.variant.is_requested() {
            self.exchange.channels.release_all(ty, &mut self.exchange.events);
        }
    }

    /// Closes the stream at once if it has no subscriptions: another server is active.
    pub(crate) fn rest(&mut self, now: Instant) {
        if !self.exchange.channels.has_subscriptions()
            && self.exchange.stream.is_current(self.exchange.stream.id())
        {
            self.exchange.close("a server of higher priority took over");
            self.exchange.events.push_back(Event::Rested);
        }
        self.exchange.proceed(now);
    }

    /// Forgets a name that is neither requested nor a member any more, such as a member that was deleted. If the server
    /// has to be notified first, it is forgotten then.
    pub(crate) fn release(&mut self, ty: TypeId, subs: &[SubId]) {
        self.exchange.channels.release(ty, subs, &mut self.exchange.events);
    }

    /// The server considers a name held that is not. Where repeated names are sent again, the name is repeated (B2.8).
    /// In the other variant this cannot be expressed on the stream, so that another one is opened.
    pub(crate) fn request_again(&mut self, ty: TypeId, id: SubId, now: Instant) {
        if !self.is_delta() {
            return self.exchange.request_again_on_another_stream(ty, now);
        }
        let Some(channel) = self.exchange.channels.get_mut(ty) else { return };
        if channel.subscriptions.get(id).is_some_and(Subscription::is_named) {
            // A name that is subscribed again on the stream is sent again, whatever the server considers held.
            channel.variant.on_named(&mut channel.subscriptions, id, now);
        } else {
            self.exchange.request_again_on_another_stream(ty, now);
        }
    }

    /// A name is missing from a response: true when the resource is gone. Otherwise a timer decides.
    pub(crate) fn is_gone(&mut self, ty: TypeId, id: SubId, now: Instant) -> bool {
        self.exchange.channels.is_gone(ty, id, now)
    }

    /// Answers a response, and reads the next.
    ///
    /// It is called once for each response that [`handle_event`](Self::handle_event) has returned, in their order. A response of
    /// a stream that has ended since gets no answer, but its version counts for the next stream unless the response is late.
    pub(crate) fn conclude(&mut self, outcome: ResponseOutcome, now: Instant) {
        let is_late = self.is_late(outcome.ty, outcome.stream);
        let Exchange { channels, random, source_key, stream: current, commands, .. } = &mut self.exchange;
        let Some(channel) = channels.get_mut(outcome.ty) else { return };
        if is_late {
            channel.on_late_outcome(&outcome);
            channel.end_hold(now);
            return self.exchange.proceed(now);
        }
        let delay = channel.on_outcome(&outcome, now, random);
        let ResponseOutcome { stream, version, nonce, error, .. } = outcome;
        let (type_url, version) = (channel.type_url, Escaped(&version));
        match (error.is_empty(), delay.is_zero()) {
            (true, _) => {}
            (false, true) => {
                warn!(server = %source_key, type_url, %version, error = %Escaped(&error), "response rejected");
            }
            (false, false) => {
                debug!(server = %source_key, type_url, %version, ?delay, "response rejected again, NACK delayed");
            }
        }
        // B0.5: the nonce has ended with its stream. The version has not, and was noted above.
        if current.is_current(stream) {
            let error = (!error.is_empty()).then_some(error);
            channel.answer(Answer { nonce, error, not_before: now + delay }, now);
        }
        let is_next_due = channel.end_hold(now);
        if is_next_due && current.is_current(stream) {
            // The credit for one more message. Flow control of HTTP/2 slows a server that sends faster than its responses are
            // applied.
            commands.push_back(StreamCommand::Read { stream });
        }
        self.exchange.proceed(now);
    }

    /// Whether a type was requested on the current stream.
    pub(crate) fn is_requested(&self, ty: TypeId) -> bool {
        self.channel(ty).is_some_and(|channel| channel.variant.is_requested())
    }

    /// Whether the stream of a response has ended, and the response confirms nothing on a later one: the type was requested there, or
    /// [the response may be applied in part](Channel::is_incomplete_without_stream).
    pub(crate) fn is_late(&self, ty: TypeId, stream: StreamId) -> bool {
        let is_late =
            |channel: &Channel| channel.variant.is_requested() || channel.is_incomplete_without_stream();
        !self.exchange.stream.is_current(stream) && self.channel(ty).is_some_and(is_late)
    }

    /// A response of a type waits for its consumers, and is concluded later. Where the stream carries other types it is read on for
    /// them; elsewhere flow control has the server wait.
    pub(crate) fn hold(&mut self, ty: TypeId, stream: StreamId) {
        let reads_on = self.exchange.source_key.capabilities().type_url.is_none();
        let is_current = self.exchange.stream.is_current(stream);
        let Some(channel) = self.exchange.channels.get_mut(ty) else { return };
        if channel.hold(reads_on && is_current) {
            self.exchange.commands.push_back(StreamCommand::Read { stream });
        }
    }

    /// The next response of a type that has arrived while another one was applied, once that is concluded.
    pub(crate) fn next_waiting(&mut self, ty: TypeId, now: Instant) -> Option<(StreamId, Envelope)> {
        let (stream, envelope) = self.exchange.channels.get_mut(ty)?.intake.pop()?;
        self.exchange.channels.on_response(ty, envelope.version(), now);
        Some((stream, envelope))
    }

    /// The bytes of the responses that wait behind others of their types, to find what grows.
    #[cfg(test)]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.exchange.channels.waiting_bytes()
    }

    /// The type of which a response has arrived, if more bytes wait since than may: what is held of it is to be concluded.
    pub(crate) fn take_overfull(&mut self) -> Option<TypeId> {
        self.exchange.channels.take_overfull()
    }

    /// Whether the server's variant of the protocol is the incremental one.
    pub(crate) fn is_delta(&self) -> bool {
        self.exchange.source_key.capabilities().incremental
    }

    /// Handles an event of a stream. Returns the type and the envelope of a response that is to be applied; the caller
    /// concludes it. Events of a stream that was cancelled meanwhile have no effect.
    pub(crate) fn handle_event(&mut self, event: StreamEvent, now: Instant) -> Option<(TypeId, Envelope)> {
        self.exchange.handle_event(event, now)
    }

    /// Handles what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.exchange.handle_timeout(now);
    }

    /// The earliest deadline; in the past when something is due.
    pub(crate) fn next_timeout(&self) -> Option<(Instant, Timer)> {
        self.exchange.next_timeout()
    }

    /// Ends a pause: a stream of another type shows that the server can be reached.
    pub(crate) fn hasten(&mut self, now: Instant) {
        self.exchange.stream.hasten(now);
    }

    /// The numbers of messages and of ends of streams since the last call, if there are any.
    pub(crate) fn take_traffic(&mut self) -> Option<Traffic> {
        self.exchange.channels.traffic.take()
    }

    /// The next command for the transport; to be called until there is none.
    pub(crate) fn poll_command(&mut self) -> Option<StreamCommand> {
        self.exchange.commands.pop_front()
    }

    /// The next event for the owner; to be called until there is none.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.exchange.events.pop_front()
    }

    /// Requests everything again, on another stream.
    pub(crate) fn reopen(&mut self, why: &'static str, now: Instant) {
        self.exchange.reopen(why, now);
    }

    /// The server considers something held that is not: a resource without its version in the requests of the next
    /// stream is sent there. At most one stream is opened for that in the does-not-exist time.
    pub(crate) fn request_again_on_another_stream(&mut self, ty: TypeId, now: Instant) {
        self.exchange.request_again_on_another_stream(ty, now);
    }

    /// The server considered the wildcard a name: it needs none in the first request of a type on a stream (B2.4).
    /// Until then it does not send everything.
    pub(crate) fn ask_for_all_on_another_stream(&mut self, ty: TypeId, now: Instant) {
        self.exchange.ask_for_all_on_another_stream(ty, now);
    }

    /// The last response may be no answer to `*`, which the server may take for a name: another stream begins with the empty list.
    pub(crate) fn try_wildcard_on_another_stream(&mut self, ty: TypeId, now: Instant) {
        self.exchange.try_wildcard_on_another_stream(ty, now);
    }
}
