//! Servers that accept a stream and do not answer: with nothing at all, nothing of a type, or nothing but errors.

use std::time::{Duration, Instant};

use tracing::warn;

use super::Machine;
use crate::protocol::{
    channel::{AllDue, is_awaited},
    event::Event,
    id::TypeId,
    quarantine::Ended,
    stream_event::{Disconnect, DisconnectKind},
    timers::Wait,
};

impl Machine {
    /// Whether the server owes a requested resource that is not held; not of a type that is not requested.
    pub(super) fn is_owed(&self) -> bool {
        let types =
            self.types.iter().enumerate().filter_map(|(index, channel)| Some((index, channel.as_ref()?)));
        let mut requested = types.filter(|(index, _)| !self.quarantine.is_held_back(TypeId(*index as u16)));
        requested.any(|(_, channel)| channel.subscriptions.is_owed_something())
    }

    /// Why the open stream has nobody who serves it, as far as can be detected.
    fn is_unserved(&self) -> Option<(DisconnectKind, &'static str)> {
        if !self.source_key.capabilities().streaming || self.stream.as_open().is_none() {
            return None;
        }
        match self.stream.is_alive() {
            // The kernel of a frozen server accepts connections.
            false => {
                Some((DisconnectKind::Unreachable, "the server accepted the connection but has sent nothing"))
            }
            true => self.stream.unanswered_going_away_since().map(|_| (DisconnectKind::Closed, FORGOTTEN)),
        }
    }

    /// When a stream is given up that was never answered on a connection whose end the server has announced: it may never end it.
    pub(super) fn forgotten_at(&self) -> Option<Instant> {
        Some(self.stream.unanswered_going_away_since()? + self.resource_timeout())
    }

    /// Closes a stream that nobody serves, as if the server had, when a does-not-exist time has passed. That proves nothing of the
    /// resource.
    pub(super) fn give_up_if_silent(&mut self, now: Instant) {
        let Some((kind, why)) = self.is_unserved() else { return };
        self.waiting.skip_obsolete(|wait| is_awaited(&self.types, wait));
        let wildcards = self.types.iter().flatten().filter_map(|channel| channel.all.deadline());
        let mut deadlines = wildcards.chain(self.waiting.next()).chain(self.forgotten_at());
        if deadlines.any(|at| at <= now) {
            self.give_up(kind, why, now);
        }
    }

    fn give_up(&mut self, kind: DisconnectKind, why: &str, now: Instant) {
        let stream = self.stream.id();
        self.commands.push_back(super::StreamCommand::Disconnect { stream });
        self.on_disconnected(Disconnect::new(kind, why), now);
    }

    /// Wildcards that were not answered in time. One that was sent as `*` may have been taken for a name (B1.23).
    pub(super) fn time_out_wildcards(&mut self, now: Instant) {
        let mut refused = Vec::new();
        for (index, channel) in self.types.iter_mut().enumerate() {
            let Some(channel) = channel.as_mut().filter(|c| c.all.deadline().is_some_and(|at| at <= now))
            else {
                continue;
            };
            let ty = TypeId(index as u16);
            if channel.variant.is_wildcard_spelled(&channel.subscriptions) {
                channel.all = AllDue::No;
                refused.push(ty);
            } else {
                channel.all = AllDue::TimedOut;
                self.events.push_back(Event::AllTimedOut(ty));
            }
        }
        refused.into_iter().for_each(|ty| self.ask_for_all_on_another_stream(ty, now));
    }

    /// A response to a wildcard that was sent as `*` has only what is subscribed by name. It may have been under way when the
    /// wildcard was requested, so that the next one is waited for.
    pub(crate) fn doubt_wildcard(&mut self, ty: TypeId, now: Instant) {
        let doubt = DOUBT.min(self.resource_timeout());
        let Some(channel) = self.channel(ty) else { return };
        channel.variant.on_dropped();
        channel.all = match channel.all {
            AllDue::Doubted(at) => AllDue::Doubted(at),
            AllDue::No | AllDue::Until(_) | AllDue::TimedOut => AllDue::Doubted(now + doubt),
        };
    }

    /// A response to the wildcard has something that was not subscribed by name.
    pub(crate) fn trust_wildcard(&mut self, ty: TypeId) {
        if let Some(channel) = self.channel(ty).filter(|channel| !channel.variant.is_wildcard_crossed()) {
            channel.all = AllDue::No;
        }
    }

    /// Whether the wildcard of a type is subscribed, and was sent as `*` on the stream.
    pub(crate) fn is_wildcard_spelled(&self, ty: TypeId) -> bool {
        let channel = self.types.get(ty.index()).and_then(Option::as_ref);
        channel.is_some_and(|channel| channel.variant.is_wildcard_spelled(&channel.subscriptions))
    }

    /// Whether the server has sent a name on this stream before that it does not send now (B1.22). Its resource may be held still,
    /// if its absence is unconfirmed.
    pub(super) fn has_sent_before(&self, wait: &Wait) -> bool {
        let channel = self.types.get(wait.ty.index()).and_then(Option::as_ref);
        channel.is_some_and(|channel| {
            let sub = channel.subscriptions.get(wait.sub);
            sub.is_some_and(|sub| channel.variant.has_sent(sub.name()))
        })
    }

    /// Whether a type without any response may be one whose names have to be requested together: go-control-plane does not identify
    /// itself.
    pub(crate) fn may_want_all_names(&self) -> bool {
        !self.is_identified
    }

    /// Whether everything of a type was requested, and nothing of it was received in time.
    pub(crate) fn has_timed_out_all(&self, ty: TypeId) -> bool {
        let channel = self.types.get(ty.index()).and_then(Option::as_ref);
        channel.is_some_and(|channel| channel.all == AllDue::TimedOut && channel.subscriptions.sends_all)
    }

    /// Types that were never answered on several streams that ended with an error have that error.
    pub(super) fn on_unanswered(&mut self, ended: Ended, reason: &Disconnect) {
        let Ended::Unanswered(types) = ended else { return };
        for ty in types {
            let is_held_back = self.quarantine.is_held_back(ty);
            let Some(channel) = self.types.get_mut(ty.index()).and_then(Option::as_mut) else { continue };
            let (type_url, server) = (channel.type_url, &self.source_key);
            if channel.unanswered.as_ref() != Some(reason) || is_held_back {
                warn!(%server, type_url, reason = reason.message, is_held_back, "no response for the type on repeated streams");
            }
            channel.unanswered = Some(reason.clone());
            self.events.push_back(Event::Unanswered(ty));
        }
    }

    /// The reason of the last end of a stream with a request of a type, if it was never answered; and whether it is held back.
    pub(crate) fn unanswered(&self, ty: TypeId) -> Option<(&Disconnect, bool)> {
        let channel = self.types.get(ty.index())?.as_ref()?;
        Some((channel.unanswered.as_ref()?, self.quarantine.is_held_back(ty)))
    }
}

const FORGOTTEN: &str =
    "the server announced the end of the connection (GOAWAY), and has sent no response on the stream";

/// For how long another response is waited for that shows that `*` is no name for the server.
const DOUBT: Duration = Duration::from_secs(1);
