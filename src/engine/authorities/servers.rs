//! The machines of all sources, each in a slot of its own, and their deadlines.
//!
//! With a thousand sources that came with resources, an event of one must not cost an iteration over all: deadlines are in
//! one ordered set, and only those of machines that were borrowed mutably are read again. `check_deadlines` compares the set
//! with the machines after each step of a test.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Index, IndexMut},
    time::Instant,
};

use super::{super::failure::Failure, AuthorityState};
use crate::{
    cache::Policy,
    config::{ConfigSource, Server, ServerFeatures},
    engine::{OnDeletion, Settings},
    invariant,
    protocol::{ConnectionState, Machine, ServerId, SourceKey, SubId, Timer, TypeId},
};

/// A management server, and the state that all its resources share.
#[derive(Debug)]
pub(in crate::engine) struct ServerState {
    /// The protocol with the server. Whoever changes it calls `drain_events` afterwards, which handles its events.
    pub(in crate::engine) machine: Machine,
    /// What deletions and invalid updates do to held resources, by the features of the server and the settings.
    pub(in crate::engine) policy: Policy,
    /// The error of the server as a whole; `None` once it has answered.
    pub(in crate::engine) failure: Option<Failure>,
    /// The time of its last failure.
    pub(in crate::engine) failed_at: Option<Instant>,
    /// The state of each type as a whole, by [`TypeId`].
    pub(in crate::engine) types: Vec<TypeState>,
}

/// What the engine keeps of a type at a server beside the machine's channel.
#[derive(Debug, Default)]
pub(in crate::engine) struct TypeState {
    /// The resources of the last response in its order, before the first one in that of the request: the best
    /// prediction for the next response.
    pub(in crate::engine) order: Vec<SubId>,
}

/// All servers. A caller changes one by `IndexMut` or [`get_mut`](Self::get_mut), so that its deadline is read again,
/// and that of no other: the number of servers does not add to the cost of an event.
///
/// A source that came with a resource is removed with its last subscription, and its slot is reused. The numbers of
/// streams continue in a slot, so that late events of an earlier source are not mistaken for those of the next.
#[derive(Debug, Default)]
pub(in crate::engine) struct Servers {
    /// The index is a [`ServerId`].
    slots: Vec<ServerSlot>,
    /// The slots without a machine; the least is used next.
    vacant: BTreeSet<ServerId>,
    /// The slots of each source, by its text. Sources of one text are compared, and are few.
    by_source: BTreeMap<String, Vec<ServerId>>,
    /// The deadlines of all machines, as of the last [`refresh_deadlines`](Self::refresh_deadlines).
    deadlines: BTreeSet<(Instant, ServerId)>,
    /// The servers that were borrowed mutably since, each once.
    touched: Vec<ServerId>,
}

#[derive(Debug)]
/// A place for a machine. It is kept when the machine is removed, for the number of its streams.
struct ServerSlot {
    /// `None` while the slot is vacant.
    state: Option<Box<ServerState>>,
    /// The deadline that is in `Servers::deadlines`.
    deadline: Option<(Instant, Timer)>,
    /// Set while the server is in `Servers::touched`.
    is_touched: bool,
    /// The bootstrap names it: it is never removed.
    is_kept: bool,
    /// The number of streams in the slot before.
    attempts: u64,
}

impl ServerState {
    /// Whether there is a stream to a management server, or there will be one.
    pub(in crate::engine) fn is_connecting_to(&self, server: &Server) -> bool {
        self.machine.source_key().stream_server().is_some_and(|own| own.has_connection_of(server))
            && self.machine.stream().connection() != ConnectionState::Idle
    }

    /// The state of a type, made at its first use.
    pub(in crate::engine) fn of_type(&mut self, ty: TypeId) -> &mut TypeState {
        if self.types.len() <= ty.index() {
            self.types.resize_with(ty.index() + 1, TypeState::default);
        }
        &mut self.types[ty.index()]
    }
}

impl Servers {
    /// The slot of a source, if it has one.
    pub(in crate::engine) fn find(&self, source_key: &SourceKey) -> Option<ServerId> {
        let source = source_key.source();
        self.of_source(&source).find(|id| self[*id].machine.source_key() == source_key)
    }

    /// All slots of the same source.
    pub(in crate::engine) fn of_source<'a>(
        &'a self,
        source: &'a ConfigSource,
    ) -> impl Iterator<Item = ServerId> + 'a {
        let ids = self.by_source.get(&source.to_string()).into_iter().flatten().copied();
        ids.filter(move |id| {
            #[cfg(test)]
            crate::scans::add_one();
            self[*id].machine.source() == *source
        })
    }

    /// Assigns a slot to a machine, which is made for it.
    pub(in crate::engine) fn insert(
        &mut self,
        settings: &Settings,
        machine: impl FnOnce(ServerId) -> Machine,
    ) -> ServerId {
        let id = self.vacant.pop_first().unwrap_or_else(|| {
            let id = ServerId(self.slots.len() as u32);
            let slot =
                ServerSlot { state: None, deadline: None, is_touched: false, is_kept: false, attempts: 0 };
            self.slots.push(slot);
            id
        });
        let mut machine = machine(id);
        self.by_source.entry(machine.source().to_string()).or_default().push(id);
        let slot = &mut self.slots[id.0 as usize];
        machine.count_streams_from(slot.attempts);
        let policy = policy(machine.source_key().features(), settings);
        let state = ServerState { machine, policy, failure: None, failed_at: None, types: Vec::new() };
        slot.state = Some(Box::new(state));
        id
    }

    /// The bootstrap names the source: it is never removed.
    pub(in crate::engine) fn keep(&mut self, id: ServerId) {
        self.slots[id.0 as usize].is_kept = true;
    }

    /// Whether it can be removed, if nothing else needs it.
    pub(in crate::engine) fn is_unused(&self, id: ServerId) -> bool {
        let slot = &self.slots[id.0 as usize];
        !slot.is_kept && slot.state.as_ref().is_some_and(|state| state.machine.is_unused())
    }

    /// Removes an unused machine. Late events of its streams find an empty slot, or one with other numbers of streams.
    pub(in crate::engine) fn remove(&mut self, id: ServerId) {
        let slot = &mut self.slots[id.0 as usize];
        let Some(state) = slot.state.take() else {
            invariant::broken("a server is removed once");
            return;
        };
        slot.attempts = state.machine.stream().id().attempt;
        if let Some((at, _)) = slot.deadline.take() {
            self.deadlines.remove(&(at, id));
        }
        let source = state.machine.source().to_string();
        if let Some(same) = self.by_source.get_mut(&source) {
            same.retain(|other| *other != id);
            if same.is_empty() {
                self.by_source.remove(&source);
            }
        }
        self.vacant.insert(id);
    }

    /// A server, if its slot is in use, whose deadline is to be read again.
    pub(in crate::engine) fn get_mut(&mut self, id: ServerId) -> Option<&mut ServerState> {
        let slot = self.slots.get_mut(id.0 as usize)?;
        let state = slot.state.as_deref_mut()?;
        if !std::mem::replace(&mut slot.is_touched, true) {
            self.touched.push(id);
        }
        Some(state)
    }

    /// The error of a group: that of its active server, with those of the servers above it. The retries of the servers above
    /// the active one are silent (A71-4).
    pub(in crate::engine) fn error_of(&self, group: &AuthorityState) -> Option<Failure> {
        let failures = group.open.iter().filter_map(|server| self[*server].failure.as_ref());
        self[group.active()].failure.as_ref().map(|last| last.after(failures))
    }

    /// All servers, in the order of their slots.
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = &ServerState> {
        self.slots.iter().filter_map(|slot| slot.state.as_deref())
    }

    /// Reads the deadlines of the servers that may have changed.
    pub(in crate::engine) fn refresh_deadlines(&mut self) {
        for id in self.touched.drain(..) {
            let slot = &mut self.slots[id.0 as usize];
            slot.is_touched = false;
            #[cfg(test)]
            crate::scans::add_one();
            let deadline = slot.state.as_ref().and_then(|state| state.machine.next_timeout());
            let before = std::mem::replace(&mut slot.deadline, deadline);
            // The timer may be another one at the same time. It is read from the slot.
            if before.map(|(at, _)| at) == deadline.map(|(at, _)| at) {
                continue;
            }
            if let Some((at, _)) = before {
                self.deadlines.remove(&(at, id));
            }
            if let Some((at, _)) = deadline {
                self.deadlines.insert((at, id));
            }
        }
        #[cfg(test)]
        self.check_deadlines();
    }

    /// Whether the deadlines are those of the machines.
    #[cfg(test)]
    fn check_deadlines(&self) {
        let mut known = 0;
        for (slot, index) in self.slots.iter().zip(0..) {
            let deadline = slot.state.as_ref().and_then(|state| state.machine.next_timeout());
            assert_eq!(slot.deadline, deadline, "the deadline of server {index}");
            known +=
                usize::from(deadline.is_some_and(|(at, _)| self.deadlines.contains(&(at, ServerId(index)))));
        }
        assert_eq!(self.deadlines.len(), known);
    }

    /// The deadlines in their order, as they were when they were refreshed last.
    pub(in crate::engine) fn deadlines(&self) -> impl Iterator<Item = (ServerId, (Instant, Timer))> {
        self.deadlines.iter().filter_map(|(_, id)| {
            #[cfg(test)]
            crate::scans::add_one();
            Some((*id, self.slots[id.0 as usize].deadline?))
        })
    }

    /// The servers whose deadline has passed, in the order of their slots.
    pub(in crate::engine) fn due(&self, now: Instant) -> BTreeSet<ServerId> {
        self.deadlines().take_while(|(_, (at, _))| *at <= now).map(|(id, _)| id).collect()
    }

    #[cfg(test)]
    pub(in crate::engine) fn len(&self) -> usize {
        self.iter().count()
    }
}

impl Index<ServerId> for Servers {
    type Output = ServerState;

    fn index(&self, id: ServerId) -> &ServerState {
        self.slots[id.0 as usize].state.as_deref().expect("what names a server keeps its slot")
    }
}

impl IndexMut<ServerId> for Servers {
    fn index_mut(&mut self, id: ServerId) -> &mut ServerState {
        self.get_mut(id).expect("what names a server keeps its slot")
    }
}

/// What deletions and invalid updates do to held resources. A setting of the client for deletions goes before the feature of
/// the server.
fn policy(features: ServerFeatures, settings: &Settings) -> Policy {
    let keep_deleted = match settings.on_deletion {
        Some(OnDeletion::Keep) => true,
        Some(OnDeletion::Drop) => false,
        None => features.ignore_resource_deletion,
    };
    Policy { keep_deleted, fail_on_data_errors: features.fail_on_data_errors }
}
