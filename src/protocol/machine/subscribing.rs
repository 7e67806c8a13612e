//! The subscriptions at a server, and the state of each name there.

use std::{sync::Arc, time::Instant};

use super::Machine;
use crate::{
    protocol::{
        channel::Channel,
        event::Event,
        id::{EntryId, NamedType, StreamId, TypeId},
        stream::ConnectionState,
        subscription::{Absence, Subscription},
        subscriptions::{SubId, Subscriptions},
    },
    resource::Version,
};

impl Machine {
    /// Subscribes to a name that has its slot.
    pub(crate) fn subscribe(&mut self, named: NamedType, sub: SubId, now: Instant) {
        let ty = named.id;
        let channel = self.channel_or_new(named);
        if channel.subscriptions.name(sub) {
            channel.variant.on_named(&mut channel.subscriptions, sub, now);
            let is_held = channel.subscriptions.get(sub).is_some_and(Subscription::is_held);
            if !is_held && channel.variant.may_skip_names() {
                self.close("a name is subscribed to that the server may have sent for a wildcard");
            }
            self.doubt_missed(ty, sub, now);
        }
        if self.quarantine.is_held_back(ty)
            && let Some(sub) = self.sub(ty, sub)
        {
            let entry = sub.entry();
            self.events.push_back(Event::HeldBack(entry));
        }
        self.proceed(now);
    }

    /// A name that the last response lacked while it was unsubscribed gets its time again when it is resubscribed (B1.13).
    fn doubt_missed(&mut self, ty: TypeId, id: SubId, now: Instant) {
        let length = self.resource_timeout();
        let is_delta = self.is_delta();
        let Self { types, waiting, .. } = self;
        let Some(Some(channel)) = types.get_mut(ty.index()) else { return };
        let Some(sub) = channel.subscriptions.get_mut(id).filter(|_| !is_delta) else { return };
        if sub.doubt_missing(now + length) {
            waiting.start(ty, id, sub, now + length);
        }
    }

    /// Adds a name without a state; it is not requested yet.
    pub(crate) fn insert(&mut self, named: NamedType, name: Arc<str>, entry: EntryId) -> SubId {
        self.channel_or_new(named).subscriptions.insert(name, entry)
    }

    /// Unsubscribes from a name. It is released at once, or when the server was notified.
    pub(crate) fn unsubscribe(&mut self, ty: TypeId, sub: SubId, now: Instant) {
        self.withdraw(ty, sub, now);
        self.proceed(now);
    }

    /// The same as part of a batch: others follow, and then [`rest`](Self::rest).
    pub(crate) fn withdraw(&mut self, ty: TypeId, sub: SubId, now: Instant) {
        let is_open = self.stream.as_open().is_some();
        let Some(channel) = self.channel(ty) else { return };
        if !channel.subscriptions.get(sub).is_some_and(Subscription::is_named) {
            return;
        }
        channel.subscriptions.unname(sub);
        if is_open && channel.variant.is_requested() {
            channel.variant.on_unnamed(sub, now);
        } else {
            self.release(ty, &[sub]);
        }
    }

    /// Subscribes to everything of a type.
    pub(crate) fn subscribe_all(&mut self, named: NamedType, now: Instant) {
        let channel = self.channel_or_new(named);
        let stuck = channel.variant.is_wildcard_stuck(&channel.subscriptions);
        if !channel.subscriptions.wildcard {
            channel.variant.on_wildcard(&mut channel.subscriptions, now);
        }
        if stuck {
            self.close("a wildcard is subscribed to again that the server may not take to be ended");
        }
        self.proceed(now);
    }

    /// Unsubscribes from everything of a type. The resources that were sent only because of that are released at once,
    /// or when the server was notified.
    pub(crate) fn unsubscribe_all(&mut self, ty: TypeId, now: Instant) {
        self.withdraw_all(ty, now);
        self.proceed(now);
    }

    /// The same as part of a batch: others follow, and then [`rest`](Self::rest).
    pub(crate) fn withdraw_all(&mut self, ty: TypeId, now: Instant) {
        let is_open = self.stream.as_open().is_some();
        let Some(channel) = self.channel(ty).filter(|channel| channel.subscriptions.wildcard) else { return };
        channel.variant.on_wildcard_ended(&mut channel.subscriptions, now);
        if !is_open || !channel.variant.is_requested() {
            self.release_all(ty);
        }
    }

    /// Whether the server was not notified of some unsubscription yet.
    pub(crate) fn has_unwritten_ends(&self) -> bool {
        let has_ends = |subscriptions: &Subscriptions| {
            subscriptions.wildcard_leaving
                || subscriptions.iter().any(|(_, sub)| sub.is_requested() && !sub.is_named())
        };
        self.stream.as_open().is_some()
            && self.types.iter().flatten().any(|channel| has_ends(&channel.subscriptions))
    }

    /// Closes the stream at once if it has no subscriptions: another server is active.
    pub(crate) fn rest(&mut self, now: Instant) {
        if !self.has_subscriptions() && self.stream.is_current(self.stream.id()) {
            self.close("a server of higher priority took over");
            self.events.push_back(Event::Rested);
        }
        self.proceed(now);
    }

    /// Whether no subscription is left, and there is no stream to it.
    pub(crate) fn is_unused(&self) -> bool {
        let has_nothing =
            |subscriptions: &Subscriptions| subscriptions.iter().next().is_none() && subscriptions.is_empty();
        self.stream.connection() == ConnectionState::Idle
            && self.events.is_empty()
            && self.commands.is_empty()
            && self.types.iter().flatten().all(|channel| has_nothing(&channel.subscriptions))
    }

    /// Numbers streams from there on.
    pub(crate) fn count_streams_from(&mut self, attempts: u64) {
        self.stream.count_from(attempts);
    }

    /// Forgets a name that is neither requested nor a member any more, such as a member that was deleted. If the server
    /// has to be notified first, it is forgotten then.
    pub(crate) fn release(&mut self, ty: TypeId, subs: &[SubId]) {
        let Some(Some(channel)) = self.types.get_mut(ty.index()) else { return };
        let Channel { subscriptions, variant, .. } = channel;
        for id in subs {
            if let Some(sub) = subscriptions.get(*id).filter(|sub| sub.is_released()) {
                variant.on_released(sub);
                self.events.push_back(Event::Released(sub.entry()));
                subscriptions.remove(*id);
            }
        }
    }

    /// Forgets the resources that were sent only because of the wildcard.
    pub(super) fn release_all(&mut self, ty: TypeId) {
        let Some(channel) = self.channel(ty) else { return };
        let subscriptions = &mut channel.subscriptions;
        subscriptions.wildcard_leaving = false;
        let members = subscriptions.iter_mut().filter_map(|(id, sub)| sub.leave_wildcard().then_some(id));
        let members: Vec<_> = members.collect();
        self.release(ty, &members);
        self.events.push_back(Event::ReleasedAll(ty));
    }

    /// The resource of a name is not held any more, so that no version stands for it (B1.20).
    pub(crate) fn forget_version(&mut self, ty: TypeId, id: SubId) {
        let Some(channel) = self.channel(ty) else { return };
        channel.variant.forget_version();
        if let Some(sub) = channel.subscriptions.get_mut(id) {
            sub.forget_version();
        }
    }

    /// A subscribed resource is not held any more, although the server considers it held: the version of the type does
    /// not stand for it.
    pub(crate) fn on_dropped(&mut self, ty: TypeId) {
        if let Some(channel) = self.channel(ty) {
            channel.variant.on_dropped();
        }
    }

    /// Whether the names of resources in a response of a stream that nothing is subscribed to matter.
    pub(crate) fn notes_skipped(&self, stream: StreamId, ty: TypeId) -> bool {
        let channel = self.types.get(ty.index()).and_then(Option::as_ref);
        self.stream.is_current(stream) && channel.is_some_and(|channel| channel.variant.notes_skipped())
    }

    /// A response has a resource that is not subscribed to.
    pub(crate) fn on_skipped(&mut self, ty: TypeId, name: &str) {
        if let Some(channel) = self.channel(ty) {
            channel.variant.on_skipped(name);
        }
    }

    /// The resources of a type's version are not held any more, so that the server has to send everything again. True
    /// when the version was sent on this stream, which is final.
    pub(crate) fn forget_type_version(&mut self, ty: TypeId) -> bool {
        self.channel(ty).is_some_and(|channel| channel.variant.forget_version())
    }

    /// The server considers a name held that is not. Where repeated names are sent again, the name is repeated (B2.8).
    /// In the other variant this cannot be expressed on the stream, so that another one is opened.
    pub(crate) fn request_again(&mut self, ty: TypeId, id: SubId, now: Instant) {
        if !self.is_delta() {
            return self.request_again_on_another_stream(ty, now);
        }
        let Some(channel) = self.channel(ty) else { return };
        if channel.subscriptions.get(id).is_some_and(Subscription::is_named) {
            channel.variant.on_named(&mut channel.subscriptions, id, now);
        } else {
            self.request_again_on_another_stream(ty, now);
        }
    }

    /// Whether the last response of a type that was accepted, heartbeats aside, had this version.
    pub(crate) fn is_accepted(&self, ty: TypeId, version: &Version) -> bool {
        let channel = self.types.get(ty.index()).and_then(Option::as_ref);
        channel.is_some_and(|channel| channel.accepted.as_ref() == Some(version))
    }

    /// Whether the last response of a type that was not a heartbeat was rejected.
    pub(crate) fn is_last_rejected(&self, ty: TypeId) -> bool {
        let channel = self.types.get(ty.index()).and_then(Option::as_ref);
        channel.is_some_and(|channel| channel.rejections.is_last_rejected())
    }

    /// A held resource is a member here because another server has sent it, or its version is unknown: this server has to
    /// send it as well. Where each response has everything (`full_state`), its last response shows that it will not.
    pub(crate) fn on_joined(&mut self, ty: TypeId, full_state: bool, id: SubId, now: Instant) {
        let is_delta = self.is_delta();
        let Some(channel) = self.channel(ty) else { return };
        let has_received_all = full_state && !is_delta && channel.subscriptions.received_all;
        if channel.subscriptions.get_mut(id).is_some_and(|sub| sub.on_joined(has_received_all)) {
            channel.variant.on_unconfirmed(now);
        }
    }

    /// The version of a resource does not count any more, so that the server has to send it again. True when it was
    /// sent on this stream, which is final.
    pub(crate) fn take_back_version(&mut self, ty: TypeId, id: SubId) -> bool {
        let Some(channel) = self.channel(ty) else { return false };
        let is_requested = channel.variant.is_requested();
        let Some(sub) = channel.subscriptions.get_mut(id) else { return false };
        let was_sent = is_requested && sub.has_version() && !sub.is_unconfirmed();
        sub.forget_version();
        was_sent
    }

    /// The responses of a type are decided on when the server has been quiet for a while.
    pub(crate) fn await_quiet(&mut self, ty: TypeId, now: Instant) {
        if let Some(channel) = self.channel(ty) {
            channel.variant.on_undecided(now);
        }
    }

    /// A resource from another server is held under a name. Its absence here proves nothing until the does-not-exist
    /// time of this server has passed.
    pub(crate) fn doubt(&mut self, ty: TypeId, id: SubId, now: Instant) {
        let length = self.resource_timeout();
        if let Some(sub) = self.subscriptions_mut(ty).and_then(|subscriptions| subscriptions.get_mut(id)) {
            sub.doubt(now + length);
        }
    }

    /// A name is missing from a response: true when the resource is gone. Otherwise a timer decides.
    pub(crate) fn is_gone(&mut self, ty: TypeId, id: SubId, now: Instant) -> bool {
        let length = self.resource_timeout();
        let Self { types, waiting, .. } = self;
        let Some(Some(channel)) = types.get_mut(ty.index()) else { return true };
        let Some(sub) = channel.subscriptions.get_mut(id) else { return true };
        match sub.on_missing(now) {
            Absence::Confirmed => true,
            Absence::Awaited => false,
            Absence::Unconfirmed => {
                waiting.start(ty, id, sub, now + length);
                false
            }
        }
    }
}
