//! The schedule of writing: one request at a time, answers before changes of subscription.

use std::time::Instant;

use tracing::trace;

use super::Machine;
use crate::protocol::{
    channel::{AllDue, Channel},
    event::Timer,
    id::TypeId,
    stream_command::StreamCommand,
    variant::{Head, Written},
};

impl Machine {
    pub(super) fn next_write(&self) -> Option<(Instant, Timer)> {
        let types = self.types.iter().enumerate();
        let due = types.filter_map(|(index, channel)| self.due(TypeId(index as u16), channel.as_ref()?));
        due.min().map(|at| (at, Timer::Write))
    }

    /// The time of the next write of a type that may be written.
    fn due(&self, ty: TypeId, channel: &Channel) -> Option<Instant> {
        let due = channel.due()?;
        match channel.variant.is_requested() {
            true => Some(due),
            false => Some(self.quarantine.begins_at(ty, due)?.max(due)),
        }
    }

    /// Hands out the next request that is due; answers go before changes of subscription (B0.18).
    pub(super) fn write(&mut self, now: Instant) {
        let stream = self.stream.id();
        while self.stream.as_open().is_some_and(|open| open.pending.is_none()) {
            let Some(index) = self.next_type(now) else { return };
            let (Some(open), Some(channel)) = (self.stream.open(), self.types[index].as_mut()) else {
                return;
            };
            let node = (!open.node_sent).then_some(&self.node);
            let ty = TypeId(index as u16);
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
                    let type_url = channel.type_url;
                    trace!(server = %self.source_key, type_url, bytes = message.len(), "request sent");
                    // Each poll is an exchange of its own.
                    open.node_sent = self.source_key.capabilities().streaming;
                    open.pending = Some(written);
                    self.commands.push_back(StreamCommand::Send { stream, message });
                }
                None => self.on_written(written, now),
            }
            if wildcard_left {
                self.release_all(ty);
            }
        }
    }

    /// A request was sent: the does-not-exist timers of its new names begin, and its unsubscribed names are released (A57-5).
    pub(super) fn on_written(&mut self, written: Written, now: Instant) {
        let Written { ty, subscribed, unsubscribed, requests_all, spells_all, .. } = written;
        let length = self.resource_timeout();
        if let Some(Some(channel)) = self.types.get_mut(ty.index()) {
            channel.variant.on_sent(now);
            if channel.subscriptions.sends_all {
                match (requests_all, spells_all) {
                    (true, _) => channel.all = AllDue::Until(now + length),
                    (false, true) => channel.on_star_sent(now + length),
                    (false, false) => {}
                }
            }
            for id in subscribed {
                let Some(sub) = channel.subscriptions.get_mut(id) else { continue };
                if sub.on_request_sent() {
                    self.waiting.start(ty, id, sub, now + length);
                }
            }
        }
        self.release(ty, &unsubscribed);
    }

    /// The type to write for next, if one is due.
    fn next_type(&self, now: Instant) -> Option<usize> {
        let types = self.types.iter().enumerate().filter_map(|(index, c)| Some((index, c.as_ref()?)));
        let ready = types.filter(|(i, c)| self.due(TypeId(*i as u16), c).is_some_and(|at| at <= now));
        ready.min_by_key(|(_, c)| !c.variant.is_answer_due(now)).map(|(index, _)| index)
    }
}
