//! From one server of an authority to the next, and back (A71).

use std::time::Instant;

use tracing::info;

use super::{
    Engine,
    members::{Collection, Which},
};
use crate::protocol::{ConnectionState, EntryId, GroupId, Phase, ServerId, SourceKey, Subscription, TypeId};

impl Engine {
    /// Opens the next servers of a group, one after the other, while the active one cannot be reached and something is
    /// watched that nothing is known of (A71-3).
    pub(super) fn fall_back(&mut self, id: GroupId, now: Instant) {
        while let Some(next) = self.next_contact(id) {
            let active = self.groups.get(id).active();
            info!(from = %self.peer(active).machine.source(), to = %next.source(), "falling back to the next server");
            let server = self.server_id(&next, now);
            self.forget_versions(id, now);
            self.open_next(id, server);
            // What it sent before, on the stream that is there or an earlier one, may not have counted.
            for ty in (0..self.types.len()).map(|index| TypeId(index as u16)) {
                self.peer(server).machine.on_dropped(ty);
            }
            let is_behind = self.peer(server).machine.has_unwritten_ends();
            // In this order, so that the wildcard has its older form on a stream that is there already.
            for ty in self.types_wanted_whole(id) {
                self.ask_all_at((id, ty), server, now);
            }
            for entry in self.entries_of(id) {
                if self.table.get(entry).is_some_and(|entry| !entry.views.is_empty()) {
                    self.ask_at(entry, server, now);
                }
            }
            if is_behind {
                // The server has sent these resources on the stream already, and would not send them again.
                self.peer(server).machine.reopen("the end of the last fallback was not sent on it", now);
            }
            self.settle(server, now);
        }
    }

    /// A server above the active one sends something that is wanted: it counts again, and those below it are let go
    /// (A71-5). What was held stays until it says otherwise.
    pub(super) fn take_over(&mut self, id: GroupId, server: ServerId, number: u64, now: Instant) {
        let Some(rank) = self.groups.get(id).rank(server) else { return };
        let lower = self.groups.close_from(id, rank + 1);
        if lower.is_empty() {
            return;
        }
        info!(server = %self.peer(server).machine.source(), "reverted to a server of higher priority");
        self.judge(id);
        self.let_go(id, &lower, now);
        self.end_all_unwatched(id);
        for ty in (0..self.types.len()).map(|index| TypeId(index as u16)) {
            if self.peer(server).machine.interest(ty).is_some_and(|interest| interest.told_all) {
                self.collections.complete(&(id, ty, Which::All));
            }
            // While another server was active, nothing was said of types that this one ends streams for, or does not answer.
            self.on_unanswered((server, ty), now);
            self.warn_timed_out(server, ty);
        }
        for entry in self.entries_of(id) {
            if self.has_given_up(entry, server, number) || self.is_missed(entry, (server, number), now) {
                self.on_timed_out(server, entry, now);
            }
        }
    }

    /// Nobody has wanted anything of a server for a while. When the lowest ones of a group rest, it begins above them if
    /// something is wanted again.
    pub(super) fn forget_fallback(&mut self, id: GroupId) {
        while self.groups.get(id).views == 0 && self.groups.get(id).open.len() > 1 {
            let active = self.groups.get(id).active();
            if self.peer(active).machine.stream().connection() != ConnectionState::Idle {
                return;
            }
            let rank = self.groups.get(id).open.len() - 1;
            for closed in self.groups.close_from(id, rank) {
                self.unused.note_server(closed);
            }
            self.end_all_unwatched(id);
            self.judge(id);
        }
    }

    /// Finds out whether there is trouble with a group, and tells it if that is news. The retries of the servers above the
    /// active one are silent (A71-4).
    pub(super) fn judge(&mut self, id: GroupId) {
        let group = self.groups.get(id);
        let failures = group.open.iter().filter_map(|server| self.servers[*server].failure.as_ref());
        let active = &self.servers[group.active()];
        let trouble = active.failure.as_ref().map(|last| last.after(failures));
        if self.groups.get(id).trouble == trouble {
            return;
        }
        self.groups.get_mut(id).trouble = trouble;
        for entry in self.entries_of(id) {
            if !self.table.get(entry).is_some_and(|entry| entry.shows_failure()) {
                continue;
            }
            let error = self.failure_of(entry);
            let news = self.table.get_mut(entry).is_some_and(|entry| entry.on_failure(error).into());
            if news {
                self.publish(entry);
            } else {
                self.publish_to_late(entry);
            }
        }
        self.collections.touch_all(id);
        self.flush();
    }

    /// Asks servers for nothing of a group any more. A stream that serves nobody else is closed at once.
    fn let_go(&mut self, id: GroupId, lower: &[ServerId], now: Instant) {
        for server in lower {
            for entry in self.entries_of(id) {
                let place =
                    self.table.get(entry).and_then(|entry| Some((entry.ty, entry.places.at(*server)?)));
                if let Some((ty, sub)) = place {
                    self.peer(*server).machine.withdraw(ty, sub, now);
                }
            }
            for ty in self.types_wanted_whole(id) {
                self.peer(*server).machine.withdraw_all(ty, now);
            }
            self.peer(*server).machine.rest(now);
            self.settle(*server, now);
            self.unused.note_server(*server);
        }
    }

    /// Ends the wildcards that were kept for a server that is not asked for anything any more.
    fn end_all_unwatched(&mut self, id: GroupId) {
        for ty in (0..self.types.len()).map(|index| TypeId(index as u16)) {
            self.end_unwatched((id, ty));
        }
    }

    /// The server to open, if there is one and a reason to.
    fn next_contact(&self, id: GroupId) -> Option<SourceKey> {
        let group = self.groups.get(id);
        let next = group.contacts.get(group.open.len())?;
        if group.views == 0 || self.servers[group.active()].failure.is_none() {
            return None;
        }
        // What costs a walk of the cache is asked last: only when the active server has failed.
        (group.on_reachability_only || self.is_in_need(id)).then(|| next.clone())
    }

    /// The types of which a group is asked for everything.
    pub(super) fn types_wanted_whole(&self, id: GroupId) -> Vec<TypeId> {
        self.wanted_whole(id).map(|(ty, _)| ty).collect()
    }

    /// The wildcards of a group that are watched. Globs are watched as names are.
    fn wanted_whole(&self, id: GroupId) -> impl Iterator<Item = (TypeId, &Collection)> {
        let all = self.collections.iter().filter(move |((group, _, which), all)| {
            *group == id && *which == Which::All && !all.views.is_empty()
        });
        all.map(|((_, ty, _), all)| (*ty, all))
    }

    /// Whether something of a group is watched that nothing is known of.
    fn is_in_need(&self, id: GroupId) -> bool {
        self.wanted_whole(id).any(|(_, all)| !all.complete)
            || self
                .table
                .iter()
                .any(|(_, entry)| entry.group == id && !entry.views.is_empty() && entry.is_unknown())
    }

    /// Whether a server has had its time to send something while its answers did not count, and does not send it now.
    fn has_given_up(&mut self, id: EntryId, server: ServerId, number: u64) -> bool {
        let Some(entry) = self.table.get(id).filter(|entry| entry.is_waiting()) else { return false };
        let (ty, sub) = (entry.ty, entry.places.at(server));
        let interest = self.peer(server).machine.interest(ty);
        interest.zip(sub).and_then(|(interest, sub)| interest.get(sub)).is_some_and(|sub| {
            let is_over = match sub.phase {
                Phase::TimedOut | Phase::Answered => true,
                Phase::New | Phase::Requested | Phase::AbsenceUnconfirmed => false,
            };
            is_over && sub.seen != number
        })
    }

    /// Whether something is known that a server did not speak of when its answers did not count, although it would have.
    /// If it has a name to be asked for, the server has its time to send it, which begins now.
    fn is_missed(&mut self, id: EntryId, (server, number): (ServerId, u64), now: Instant) -> bool {
        // Of a glob its members may be missed, not itself.
        let known = self.table.get(id).filter(|entry| !entry.is_waiting() && !entry.is_glob);
        let Some(entry) = known else { return false };
        let (ty, Some(sub)) = (entry.ty, entry.places.at(server)) else { return false };
        let machine = &mut self.peer(server).machine;
        let interest = machine.interest(ty);
        let is_missed = |sub: &Subscription| sub.missed && sub.seen != number;
        if !interest.and_then(|interest| interest.get(sub)).is_some_and(is_missed) {
            return false;
        }
        machine.doubt(ty, sub, now);
        machine.is_gone(ty, sub, now)
    }

    fn entries_of(&self, group: GroupId) -> Vec<EntryId> {
        self.table.iter().filter(|(_, entry)| entry.group == group).map(|(id, _)| id).collect()
    }
}
