//! The other end of a response: the subscriptions of its server and type, and what hangs on them.

use std::{sync::Arc, time::Instant};

use super::super::{
    authorities::{
        Absence, Authorities, CollectionMembers, Globs, Groups, Memberships, Placement, ResponseId,
        ServerState, Unanswered,
    },
    counts::AppliedResponse,
    store::Store,
};
use crate::{
    invariant,
    protocol::{
        Channel, EntryId, GroupId, Machine, ServerId, SubId, Subscription, Subscriptions, TypeAtServer,
        TypeId,
    },
};

/// The server and the type of a response, for the time of one step.
///
/// That the type has subscriptions at the server is checked once, when the feed is made; the parts of a step rely on it. It lasts
/// for the whole step, since a machine keeps each type from its first use on, and a server is not removed while one of its
/// responses is in progress (`Authorities::sweep`).
pub(super) struct Feed<'a> {
    /// All servers: what a resource of one changes may concern others, too.
    authorities: &'a mut Authorities,
    at: TypeAtServer,
    /// The time of the step, which is later than the arrival of the response if that had to wait.
    now: Instant,
}

impl<'a> Feed<'a> {
    /// The feed of a response; `None`, which is a defect, if its type was never requested from the server.
    pub(super) fn new(authorities: &'a mut Authorities, at: TypeAtServer, now: Instant) -> Option<Self> {
        if authorities.subscriptions(at.server, at.ty).is_none() {
            invariant::broken("a type that is answered was requested");
            return None;
        }
        Some(Self { authorities, at, now })
    }

    pub(super) fn at(&self) -> TypeAtServer {
        self.at
    }

    pub(super) fn server(&self) -> ServerId {
        self.at.server
    }

    pub(super) fn ty(&self) -> TypeId {
        self.at.ty
    }

    /// The time of the step.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// The type at the server.
    pub(super) fn channel(&self) -> &Channel {
        self.machine().channel(self.at.ty).expect(REQUESTED)
    }

    /// The type at the server, to record what the response has of it.
    pub(super) fn channel_mut(&mut self) -> &mut Channel {
        let TypeAtServer { server, ty } = self.at;
        self.authorities.server_mut(server).machine.channel_mut(ty).expect(REQUESTED)
    }

    /// The subscriptions of the type at the server.
    pub(super) fn subscriptions(&mut self) -> &mut Subscriptions {
        &mut self.channel_mut().subscriptions
    }

    /// One of the subscriptions; `None` if it was removed between two steps.
    pub(super) fn sub(&mut self, id: SubId) -> Option<&mut Subscription> {
        self.subscriptions().get_mut(id)
    }

    /// The subscriptions, and the order of the last response, by which the next resource is predicted.
    pub(super) fn subscriptions_and_order(&mut self) -> (&mut Subscriptions, &[SubId]) {
        let ServerState { machine, types, .. } = self.authorities.server_mut(self.at.server);
        let order = types.get(self.at.ty.index()).map_or(&[][..], |state| &state.order);
        let subscriptions = machine.subscriptions_mut(self.at.ty);
        (subscriptions.expect(REQUESTED), order)
    }

    /// The subscriptions, and the groups of all servers.
    pub(super) fn subscriptions_and_groups(&mut self) -> (&mut Subscriptions, &Groups) {
        let (servers, groups) = self.authorities.servers_and_groups();
        let subscriptions = servers[self.at.server].machine.subscriptions_mut(self.at.ty);
        (subscriptions.expect(REQUESTED), groups)
    }

    /// Before the first response of a type, the expected order is that of the request.
    pub(super) fn expect_order(&mut self) {
        let state = self.authorities.server_mut(self.at.server);
        state.of_type(self.at.ty);
        let ServerState { machine, types, .. } = state;
        let order = &mut types[self.at.ty.index()].order;
        if order.is_empty()
            && let Some(subscriptions) = machine.subscriptions_mut(self.at.ty)
        {
            order.extend(subscriptions.listed());
        }
    }

    /// Keeps the order of a response for the prediction of the next one.
    pub(super) fn set_order(&mut self, order: Vec<SubId>) {
        self.authorities.server_mut(self.at.server).of_type(self.at.ty).order = order;
    }

    /// The server, with its policy.
    pub(super) fn state(&self) -> &ServerState {
        self.authorities.server(self.at.server)
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.state().machine
    }

    /// The machine of the server. Its events are handled when the response is concluded (`drain_events`).
    pub(super) fn machine_mut(&mut self) -> &mut Machine {
        &mut self.authorities.server_mut(self.at.server).machine
    }

    /// The groups of all servers.
    pub(super) fn groups(&self) -> &Groups {
        self.authorities.groups()
    }

    /// Whether the server is the active one of a group.
    pub(super) fn is_active_in(&self, group: GroupId) -> bool {
        self.groups().active(group) == self.at.server
    }

    /// Whether what the server sends for an entry counts: it is the active one of the entry's group.
    pub(super) fn counts(&self, store: &Store, id: EntryId) -> bool {
        store.get(id).is_some_and(|entry| self.is_active_in(entry.group))
    }

    pub(super) fn placement(&mut self) -> Placement<'_> {
        self.authorities.placement()
    }

    pub(super) fn members(&mut self) -> CollectionMembers<'_> {
        self.authorities.members()
    }

    pub(super) fn memberships(&self) -> Memberships<'_> {
        self.authorities.memberships()
    }

    pub(super) fn globs(&mut self) -> Globs<'_> {
        self.authorities.globs()
    }

    pub(super) fn absence(&mut self) -> Absence<'_> {
        self.authorities.absence()
    }

    pub(super) fn unanswered(&mut self) -> Unanswered<'_> {
        self.authorities.unanswered()
    }

    /// Makes the server the active one of a group again (A71-5).
    pub(super) fn revert_to_primary(&mut self, store: &mut Store, group: GroupId, number: u64) {
        let response = ResponseId { server: self.at.server, number };
        self.authorities.revert_to_primary(store, group, response, self.now);
    }

    /// A resource is not held any more that servers consider held: their versions do not stand for it.
    pub(super) fn on_dropped(&mut self, store: &Store, id: EntryId) {
        let Some(entry) = store.get(id) else { return };
        for (server, _) in entry.subscriptions.iter() {
            if let Some(channel) = self.authorities.server_mut(server).machine.channel_mut(entry.ty) {
                channel.on_dropped();
            }
        }
    }

    /// Handles the events of the server's machine.
    pub(super) fn drain_events(&mut self, store: &mut Store) {
        self.authorities.drain_events(store, self.at.server, self.now);
    }

    /// The authorities whose active server it is; `None` is that of the names of the older form.
    pub(super) fn served_authorities(&self) -> Vec<Option<Arc<str>>> {
        let groups = self.authorities.groups();
        let served = groups.with(self.at.server).into_iter().map(|group| groups.get(group));
        served
            .filter(|group| group.active() == self.at.server)
            .map(|group| group.authority().cloned())
            .collect()
    }

    /// Notes for metrics that a response was applied and answered.
    pub(super) fn note_applied(&mut self, arrived_at: Instant, is_accepted: bool) {
        let response = AppliedResponse { from: self.at, arrived_at, is_accepted };
        self.authorities.traffic().on_applied(response);
    }
}

/// Checked by [`Feed::new`].
const REQUESTED: &str = "the type of a feed was requested, and a machine keeps its types";
