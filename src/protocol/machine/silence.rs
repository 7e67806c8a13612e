//! Servers that accept a stream and do not answer: with nothing at all, nothing of a type, or nothing but errors.

use std::time::Instant;

use tracing::warn;

use super::Machine;
use crate::protocol::{
    channel::{AllDue, is_awaited},
    event::Event,
    id::TypeId,
    quarantine::Ended,
    stream_event::{Disconnect, DisconnectKind},
};

impl Machine {
    /// Whether the server owes a requested resource that is not held; not of a type that is not requested.
    pub(super) fn is_owed(&self) -> bool {
        let types =
            self.types.iter().enumerate().filter_map(|(index, channel)| Some((index, channel.as_ref()?)));
        let mut requested = types.filter(|(index, _)| !self.quarantine.is_held_back(TypeId(*index as u16)));
        requested.any(|(_, channel)| channel.subscriptions.is_owed_something())
    }

    /// Whether a does-not-exist time has passed without bytes from the connection. That proves nothing of the resource:
    /// a frozen server's kernel accepts connections.
    pub(super) fn has_waited_for_nobody(&mut self, now: Instant) -> bool {
        if !self.source_key.capabilities().streaming
            || self.stream.as_open().is_none()
            || self.stream.is_alive()
        {
            return false;
        }
        self.waiting.skip_obsolete(|wait| is_awaited(&self.types, wait));
        let wildcards = self.types.iter().flatten().filter_map(|channel| channel.all.deadline());
        wildcards.chain(self.waiting.next()).any(|at| at <= now)
    }

    /// Closes a stream on which nothing was read, as if the server had.
    pub(super) fn give_up(&mut self, now: Instant) {
        let stream = self.stream.id();
        let why = "the server accepted the connection but has sent nothing";
        self.commands.push_back(super::StreamCommand::Disconnect { stream });
        self.on_disconnected(Disconnect::new(DisconnectKind::Unreachable, why), now);
    }

    /// Wildcards that were not answered in time.
    pub(super) fn time_out_wildcards(&mut self, now: Instant) {
        for (index, channel) in self.types.iter_mut().enumerate() {
            let Some(channel) = channel.as_mut().filter(|c| c.all.deadline().is_some_and(|at| at <= now))
            else {
                continue;
            };
            channel.all = AllDue::TimedOut;
            self.events.push_back(Event::AllTimedOut(TypeId(index as u16)));
        }
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
