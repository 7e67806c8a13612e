//! The types that are requested from one server, and the timers that they share.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    channel::{AllDue, Channel},
    envelope::Envelope,
    event::Event,
    id::{NamedType, StreamId, TypeId},
    quarantine::Quarantine,
    settings::Settings,
    source_key::SourceKey,
    subscription::{Absence, Subscription},
    subscriptions::{SubId, Subscriptions},
    timers::{DoesNotExistTimers, Wait},
    traffic::Traffic,
    variant::Written,
};

/// The types of one server. A type is kept from its first use on, as long as the server is.
#[derive(Debug)]
pub(super) struct Channels {
    /// The index is a [`TypeId`]. Types that the client uses with other servers alone have no channel here.
    by_type: Vec<Option<Channel>>,
    /// The does-not-exist timers of all types: one queue, since they have one duration.
    timers: DoesNotExistTimers,
    /// The does-not-exist time, and the time for which absence proves nothing of a name in doubt.
    resource_timeout: Duration,
    /// The most bytes of a request of the incremental variant.
    max_request_size: usize,
    /// The most bytes of responses that wait behind others of their types.
    max_waiting_bytes: usize,
    /// The type of a response by which more bytes wait.
    overfull: Option<TypeId>,
    /// The numbers of messages, and of ends of streams.
    pub(super) traffic: Traffic,
}

impl Channels {
    /// No types. Each is made at its first use.
    pub(super) fn new(source_key: &SourceKey, settings: &Settings) -> Self {
        // Twice the time where a timeout counts against the server (A88-5).
        let factor = if source_key.features().resource_timer_is_transient_error { 2 } else { 1 };
        Self {
            by_type: Vec::new(),
            timers: DoesNotExistTimers::default(),
            resource_timeout: settings.resource_timeout * factor,
            max_request_size: settings.max_request_size,
            max_waiting_bytes: settings.max_waiting_bytes,
            overfull: None,
            traffic: Traffic::default(),
        }
    }

    pub(super) fn resource_timeout(&self) -> Duration {
        self.resource_timeout
    }

    /// A type, if it was ever used with the server.
    pub(super) fn get(&self, ty: TypeId) -> Option<&Channel> {
        self.by_type.get(ty.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, ty: TypeId) -> Option<&mut Channel> {
        self.by_type.get_mut(ty.index())?.as_mut()
    }

    /// All types, in the order of first use by the client.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TypeId, &Channel)> {
        let all = self.by_type.iter().zip(0..);
        all.filter_map(|(channel, index)| Some((TypeId(index), channel.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (TypeId, &mut Channel)> {
        let all = self.by_type.iter_mut().zip(0..);
        all.filter_map(|(channel, index)| Some((TypeId(index), channel.as_mut()?)))
    }

    /// A type, which is made if it was never used with the server.
    pub(super) fn get_or_new(
        &mut self,
        NamedType { id, url }: NamedType,
        source_key: &SourceKey,
        random: &mut fastrand::Rng,
    ) -> &mut Channel {
        if self.by_type.len() <= id.index() {
            self.by_type.resize_with(id.index() + 1, || None);
        }
        let (timeout, limit) = (self.resource_timeout, self.max_request_size);
        self.by_type[id.index()].get_or_insert_with(|| Channel::new(source_key, url, timeout, limit, random))
    }

    /// The names of a type, if it was ever used with the server.
    pub(super) fn subscriptions_mut(&mut self, ty: TypeId) -> Option<&mut Subscriptions> {
        Some(&mut self.get_mut(ty)?.subscriptions)
    }

    /// The type that was requested on the stream under a type URL (B0.7).
    pub(super) fn requested(&self, type_url: &str) -> Option<TypeId> {
        let mut requested = self.iter().filter(|(_, channel)| channel.variant.is_requested());
        requested.find(|(_, channel)| channel.type_url == type_url).map(|(ty, _)| ty)
    }

    /// A response of a type is handed out.
    pub(super) fn on_response(&mut self, ty: TypeId, version: &str, now: Instant) {
        let last = self.timers.last();
        if let Some(channel) = self.get_mut(ty) {
            channel.intake.on_handed_out();
            channel.on_response(&version.into(), last, now);
        }
    }

    /// Whether a response of a type is handed out, so that the next one has to wait.
    pub(super) fn is_busy(&self, ty: TypeId) -> bool {
        self.get(ty).is_some_and(|channel| channel.intake.is_busy())
    }

    /// A response waits behind the one of its type that is handed out.
    pub(super) fn wait(&mut self, ty: TypeId, stream: StreamId, envelope: Envelope) {
        if let Some(channel) = self.get_mut(ty) {
            channel.intake.push(stream, envelope);
            channel.variant.on_waiting();
        }
        if self.waiting_bytes() > self.max_waiting_bytes {
            self.overfull = Some(ty);
        }
    }

    /// The type of a response by which more bytes wait than may.
    pub(super) fn take_overfull(&mut self) -> Option<TypeId> {
        self.overfull.take()
    }

    /// The bytes of all responses that wait behind others of their types.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.iter().map(|(_, channel)| channel.intake.waiting_bytes()).sum()
    }

    /// Whether the server owes a requested resource that is not held; not of a type that is not requested.
    pub(super) fn is_owed(&self, quarantine: &Quarantine) -> bool {
        let mut requested = self.iter().filter(|(ty, _)| !quarantine.is_held_back(*ty));
        requested.any(|(_, channel)| channel.subscriptions.is_owed_something())
    }

    /// Whether anything is subscribed: a name, or a wildcard.
    pub(super) fn has_subscriptions(&self) -> bool {
        self.iter().any(|(_, channel)| !channel.subscriptions.is_empty())
    }

    /// Whether there is something to write, now or later.
    pub(super) fn has_unwritten(&self) -> bool {
        self.iter().any(|(_, channel)| channel.variant.has_unwritten(&channel.subscriptions))
    }

    /// Whether some unsubscription is not written yet.
    pub(super) fn has_unwritten_ends(&self) -> bool {
        let is_end = |sub: &Subscription| sub.is_requested() && !sub.is_named();
        self.iter().map(|(_, channel)| &channel.subscriptions).any(|subscriptions| {
            subscriptions.wildcard_leaving || subscriptions.iter().any(|(_, sub)| is_end(sub))
        })
    }

    /// Whether there is no subscription, nor one whose end is not written yet.
    pub(super) fn is_unused(&self) -> bool {
        let mut all = self.iter().map(|(_, channel)| &channel.subscriptions);
        all.all(|subscriptions| subscriptions.iter().next().is_none() && subscriptions.is_empty())
    }

    /// A name that the last response lacked while it was unsubscribed gets its time again when it is resubscribed (B1.13).
    pub(super) fn doubt_missed(&mut self, ty: TypeId, id: SubId, now: Instant) {
        let until = now + self.resource_timeout;
        let Self { by_type, timers, .. } = self;
        let Some(Some(channel)) = by_type.get_mut(ty.index()) else { return };
        let Some(sub) = channel.subscriptions.get_mut(id) else { return };
        if sub.doubt_missing(until) {
            timers.start(ty, id, sub, until);
        }
    }

    /// A name is missing from a response: true when the resource is gone. Otherwise a timer decides.
    ///
    /// The caller drops the resource then, as far as the policy of the server lets it.
    pub(super) fn is_gone(&mut self, ty: TypeId, id: SubId, now: Instant) -> bool {
        let until = now + self.resource_timeout;
        let Self { by_type, timers, .. } = self;
        let Some(Some(channel)) = by_type.get_mut(ty.index()) else { return true };
        let Some(sub) = channel.subscriptions.get_mut(id) else { return true };
        match sub.on_missing(now) {
            Absence::Confirmed => true,
            Absence::Awaited => false,
            Absence::Unconfirmed => {
                timers.start(ty, id, sub, until);
                false
            }
        }
    }

    /// A request was sent: the does-not-exist timers of its new names begin (A57-5).
    pub(super) fn on_sent(&mut self, written: &Written, now: Instant) {
        let until = now + self.resource_timeout;
        let Self { by_type, timers, .. } = self;
        let Some(Some(channel)) = by_type.get_mut(written.ty.index()) else { return };
        channel.variant.on_sent(now);
        if channel.subscriptions.sends_all {
            match (written.requests_all, written.spells_all) {
                (true, _) => channel.all = AllDue::Until(until),
                (false, true) => channel.on_star_sent(until),
                (false, false) => {}
            }
        }
        for id in &written.subscribed {
            // The name may have been unsubscribed and released since the request was handed out.
            let Some(sub) = channel.subscriptions.get_mut(*id) else { continue };
            if sub.on_request_sent() {
                timers.start(written.ty, *id, sub, until);
            }
        }
    }

    /// Forgets names that are neither requested nor members any more. If the server has to be notified first, they are
    /// forgotten then.
    ///
    /// The events have the entries; the ids of the subscriptions are reused from then on.
    pub(super) fn release(&mut self, ty: TypeId, subs: &[SubId], events: &mut VecDeque<Event>) {
        let Some(Channel { subscriptions, variant, .. }) = self.get_mut(ty) else { return };
        for id in subs {
            if let Some(sub) = subscriptions.get(*id).filter(|sub| sub.is_released()) {
                // B1.21: the server may consider the name known on this stream, if it has ever sent it.
                variant.on_released(sub);
                events.push_back(Event::Released(sub.entry()));
                subscriptions.remove(*id);
            }
        }
    }

    /// Forgets the resources that were sent only because of the wildcard.
    pub(super) fn release_all(&mut self, ty: TypeId, events: &mut VecDeque<Event>) {
        let Some(subscriptions) = self.subscriptions_mut(ty) else { return };
        subscriptions.wildcard_leaving = false;
        let members = subscriptions.iter_mut().filter_map(|(id, sub)| sub.leave_wildcard().then_some(id));
        let members: Vec<_> = members.collect();
        self.release(ty, &members, events);
        events.push_back(Event::ReleasedAll(ty));
    }

    /// A stream begins: everything is to be requested again, by each type for itself.
    pub(super) fn on_stream_opened(&mut self, now: Instant) {
        for (_, channel) in self.iter_mut() {
            channel.variant.on_stream_opened(&mut channel.subscriptions, now);
        }
    }

    /// The stream has ended: what was to be unsubscribed on it is released, and no timer runs.
    pub(super) fn on_stream_gone(&mut self, events: &mut VecDeque<Event>) {
        // The next stream begins new ones with its requests (A57-7).
        self.timers.clear();
        for index in 0..self.by_type.len() {
            let ty = TypeId(index as u16);
            let Some(channel) = self.get_mut(ty) else { continue };
            let unsubscribed = channel.on_stream_gone();
            let wildcard_leaving = channel.subscriptions.wildcard_leaving;
            self.release(ty, &unsubscribed, events);
            if wildcard_leaving {
                self.release_all(ty, events);
            }
        }
    }

    /// A poll returned nothing new.
    pub(super) fn on_unchanged(&mut self, now: Instant) {
        self.iter_mut().for_each(|(_, channel)| channel.variant.on_unchanged(now));
    }

    /// A poll has failed: its does-not-exist timers prove nothing any more.
    pub(super) fn on_failed(&mut self, now: Instant) {
        self.iter_mut().for_each(|(_, channel)| channel.variant.on_failed(&mut channel.subscriptions, now));
    }

    /// Ends all does-not-exist timers, since no answer to a request is coming.
    pub(super) fn clear_timers(&mut self) {
        self.timers.clear();
    }

    /// Drops the timers that do not matter any more, so that the next one does.
    /// It is called at the end of each call of the machine, so that no timeout is reported for a name that was answered.
    pub(super) fn skip_obsolete(&mut self) {
        let Self { by_type, timers, .. } = self;
        timers.skip_obsolete(|wait| is_awaited(by_type, wait));
    }

    /// The next does-not-exist timer that has expired, of a name that is still waited for.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Wait> {
        let until = now + self.resource_timeout;
        while let Some(wait) = self.timers.pop(now) {
            if !is_awaited(&self.by_type, &wait) {
                continue;
            }
            let channel = self.by_type.get_mut(wait.ty.index()).and_then(Option::as_mut);
            // A response that waits for its consumers may have the name, or the server may send it once that is answered.
            if let Some(channel) = channel.filter(|channel| channel.intake.is_held()) {
                if let Some(sub) = channel.subscriptions.get_mut(wait.sub) {
                    self.timers.start(wait.ty, wait.sub, sub, until);
                }
                continue;
            }
            return Some(wait);
        }
        None
    }

    /// The end of the first does-not-exist timer of a name.
    pub(super) fn next_does_not_exist(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The time at which the first wildcard without an answer counts as unanswered.
    pub(super) fn next_wildcard(&self) -> Option<Instant> {
        self.iter().filter_map(|(_, channel)| channel.all_deadline()).min()
    }

    /// The time at which a type of the server has been quiet for long enough.
    pub(super) fn next_quiet(&self) -> Option<Instant> {
        self.iter().filter_map(|(_, channel)| channel.quiet_from()).min()
    }

    /// The types of which the server has been quiet for long enough: what it did not send is missing.
    pub(super) fn on_quiet(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        for (ty, channel) in self.iter_mut() {
            if channel.quiet_from().is_some_and(|at| at <= now) {
                let has_answered = channel.variant.on_quiet();
                channel.subscriptions.on_quiet(has_answered);
                events.push_back(Event::Quiet(ty));
            }
        }
    }

    /// The wildcards that were not answered in time. Returns the types of those that were sent as `*`, which the server may have
    /// taken for a name (B1.23).
    pub(super) fn time_out_wildcards(&mut self, now: Instant, events: &mut VecDeque<Event>) -> Vec<TypeId> {
        let mut refused = Vec::new();
        for (ty, channel) in self.iter_mut() {
            if channel.all_deadline().is_none_or(|at| at > now) {
                continue;
            }
            if channel.is_wildcard_spelled() {
                // B1.23: silence about `*` is a sign as well. The time of the wildcard begins anew on the next stream, as an
                // empty list.
                channel.all = AllDue::No;
                refused.push(ty);
            } else {
                channel.all = AllDue::TimedOut;
                events.push_back(Event::AllTimedOut(ty));
            }
        }
        refused
    }

    /// The time of the next write of a type that may be written.
    pub(super) fn next_write(&self, quarantine: &Quarantine) -> Option<Instant> {
        self.iter().filter_map(|(ty, channel)| due(quarantine, ty, channel)).min()
    }

    /// The type to write for next, if one is due; answers go before changes of subscription (B0.18).
    pub(super) fn next_to_write(&self, quarantine: &Quarantine, now: Instant) -> Option<TypeId> {
        let is_due = |ty, channel| due(quarantine, ty, channel).is_some_and(|at| at <= now);
        let ready = self.iter().filter(|(ty, channel)| is_due(*ty, channel));
        ready.min_by_key(|(_, channel)| !channel.variant.is_answer_due(now)).map(|(ty, _)| ty)
    }
}

/// The time of the next write of a type, if it may be written: a type that is held back, or on trial, waits for its turn.
fn due(quarantine: &Quarantine, ty: TypeId, channel: &Channel) -> Option<Instant> {
    let due = channel.due()?;
    match channel.variant.is_requested() {
        true => Some(due),
        false => Some(quarantine.begins_at(ty, due)?.max(due)),
    }
}

/// Whether the name of a timer is still waited for.
fn is_awaited(by_type: &[Option<Channel>], wait: &Wait) -> bool {
    let channel = by_type.get(wait.ty.index()).and_then(Option::as_ref);
    let sub = channel.and_then(|channel| channel.subscriptions.get(wait.sub));
    sub.is_some_and(|sub| sub.is_awaited(wait.number))
}
