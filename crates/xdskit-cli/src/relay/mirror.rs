//! The resources of the relay, and their transfer to the control plane.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use xdskit::{
    config::{ApiType, Bootstrap, Server},
    control_plane::{AnyResource, store::Transaction},
};

use super::{
    raw::{UpstreamState, is_own_name},
    source::{Topic, Update},
};

/// All resources with a known state, by type and name.
#[derive(Debug, Default)]
pub struct Mirror {
    /// The resources by type and name.
    slots: BTreeMap<Topic, Slot>,
    /// The number of resources that exist.
    present: usize,
    /// The number of those of them that may be outdated.
    stale: usize,
    /// What versions clients get.
    versions: Versions,
}

/// The versions of types at the management server.
#[derive(Debug, Default)]
enum Versions {
    /// There are none: each resource has its own, or several servers have theirs.
    #[default]
    OfResources,
    /// The newest version by type.
    OfTypes(BTreeMap<Arc<str>, Arc<str>>),
}

/// The state of a resource. It may be subscribed to on two streams, by its name and by collections, whose states may
/// differ for a moment.
#[derive(Debug, Default)]
struct Slot {
    /// The state by its name, if the name is subscribed to.
    named: Option<UpstreamState>,
    /// The collections that contain it, and its state there.
    member_of: BTreeSet<Arc<str>>,
    /// The state in the collections; unknown if there are none.
    member: UpstreamState,
}

/// The effect of an update on the statistics.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Resources that were added or changed.
    pub(crate) updates: u64,
    /// Resources that were removed.
    pub(crate) removals: u64,
    /// The size of the former.
    pub(crate) bytes: u64,
}

impl Mirror {
    /// A mirror of the servers in a bootstrap, with the variant of the protocol where it names none.
    pub fn of_servers(bootstrap: &Bootstrap, api_type: ApiType) -> Self {
        match has_type_versions(bootstrap, api_type) {
            true => Self::with_type_versions(),
            false => Self::default(),
        }
    }

    /// A mirror of one server of the state-of-the-world variant, whose resources have the version of their type.
    fn with_type_versions() -> Self {
        Self { versions: Versions::OfTypes(BTreeMap::new()), ..Self::default() }
    }

    /// The number of resources.
    pub(crate) fn present(&self) -> usize {
        self.present
    }

    /// The number of unconfirmed resources.
    pub(crate) fn stale(&self) -> usize {
        self.stale
    }

    /// Applies an update of a topic.
    pub(crate) fn apply(&mut self, topic: &Topic, update: Update, tx: &mut Transaction<'_>) -> Counters {
        match update {
            Update::Complete => {
                tx.set_complete(&topic.type_url, &topic.name);
                Counters::default()
            }
            Update::Resource { name, state } => {
                self.note_version(&topic.type_url, &state);
                let counters = self.apply_resource(topic, name, state, tx);
                self.set_version(&topic.type_url, tx);
                counters
            }
        }
    }

    /// Notes the newest version of a type, where types have versions.
    fn note_version(&mut self, type_url: &Arc<str>, state: &UpstreamState) {
        match (&mut self.versions, state) {
            // A stale resource has the version of an earlier response.
            (Versions::OfTypes(newest), UpstreamState::Present { version, stale: false, .. })
                if !version.is_empty() =>
            {
                newest.insert(type_url.clone(), version.as_str().into());
            }
            (Versions::OfTypes(_) | Versions::OfResources, _) => {}
        }
    }

    /// Gives a changed type its version at the management server.
    fn set_version(&self, type_url: &Arc<str>, tx: &mut Transaction<'_>) {
        let Versions::OfTypes(newest) = &self.versions else { return };
        if let Some(version) = newest.get(type_url) {
            tx.set_version(type_url, version.clone());
        }
    }

    /// Applies the state of a resource in a topic.
    fn apply_resource(
        &mut self,
        topic: &Topic,
        name: Arc<str>,
        state: UpstreamState,
        tx: &mut Transaction<'_>,
    ) -> Counters {
        let id = Topic { type_url: topic.type_url.clone(), name };
        let slot = self.slots.entry(id.clone()).or_default();
        let before = slot.shown().is_present_and_stale();
        let (joins, counters) = match topic.is_collection() {
            true => slot.apply_member(&topic.name, state),
            false => slot.apply_named(state),
        };
        let now = slot.shown().is_present_and_stale();
        self.count(before, now);
        if joins || counters != Counters::default() {
            self.sync(&id, tx);
        }
        counters
    }

    /// Updates the counts by the state of one resource before and after, each as the number present and stale.
    fn count(&mut self, before: (usize, usize), now: (usize, usize)) {
        self.present = self.present + now.0 - before.0;
        self.stale = self.stale + now.1 - before.1;
    }

    /// Removes a topic that is no longer subscribed to, with the resources that it alone stands for.
    pub(crate) fn remove_topic(&mut self, topic: &Topic, tx: &mut Transaction<'_>) {
        tx.remove(&topic.type_url, &topic.name);
        let is_of = |slot: &mut Slot, id: &Topic| match topic.is_collection() {
            true => id.type_url == topic.type_url && slot.member_of.remove(&topic.name),
            false => id == topic && slot.named.take().is_some(),
        };
        let mut left = Vec::new();
        let first = Topic { type_url: topic.type_url.clone(), name: "".into() };
        // A member may have any name of the type; a name is at one place.
        let from = if topic.is_collection() { &first } else { topic };
        for (id, slot) in self.slots.range_mut(from..) {
            let before = slot.shown().is_present_and_stale();
            if is_of(slot, id) {
                left.push((id.clone(), before, slot.shown().is_present_and_stale()));
            } else if !topic.is_collection() || id.type_url != topic.type_url {
                // Topics are sorted by type and name: what belongs to this one has come before.
                break;
            }
        }
        for (id, before, now) in left {
            self.count(before, now);
            self.sync(&id, tx);
        }
        self.set_version(&topic.type_url, tx);
    }

    /// Updates the control plane with the state of a resource, or removes it if nothing refers to it.
    fn sync(&mut self, id: &Topic, tx: &mut Transaction<'_>) {
        let Some(slot) = self.slots.get(id) else { return };
        let type_url = &id.type_url;
        match slot.shown() {
            UpstreamState::Present { bytes, ttl, version, .. } => {
                let mut resource = AnyResource::new(type_url.clone(), id.name.clone(), bytes.clone());
                // The name of a wrapped resource may differ from that in its message.
                if !is_own_name(bytes, &id.name) {
                    resource = resource.with_name(id.name.clone());
                }
                if let Some(ttl) = ttl {
                    resource = resource.with_ttl(*ttl);
                }
                if !version.is_empty() {
                    resource = resource.with_version(version.as_str());
                }
                // Clients with a wildcard get what the server lists for one, and not what other clients have asked for by name.
                let is_listed = slot.member_of.contains("*");
                tx.set(if is_listed { resource } else { resource.with_listed(false) });
            }
            UpstreamState::Absent => {
                tx.set_absent(type_url, &id.name);
            }
            UpstreamState::Refused(code, why) => {
                tx.set_error(type_url, &id.name, *code, why);
            }
            UpstreamState::Unknown => {
                tx.remove(type_url, &id.name);
            }
        }
        if slot.named.is_none() && slot.member_of.is_empty() {
            self.slots.remove(id);
        }
    }
}

impl Slot {
    /// The state for clients: that by the name, or else that as a member.
    fn shown(&self) -> &UpstreamState {
        match &self.named {
            Some(UpstreamState::Unknown) | None if self.member_of.is_empty() => &UpstreamState::Unknown,
            Some(UpstreamState::Unknown) | None => &self.member,
            Some(state) => state,
        }
    }

    /// Returns whether it becomes a member, or ceases to be one, and its previous state.
    fn apply_member(&mut self, collection: &Arc<str>, state: UpstreamState) -> (bool, Counters) {
        if !state.is_present() {
            let leaves = self.member_of.remove(collection);
            return (leaves, Counters { removals: u64::from(leaves), ..Counters::default() });
        }
        let counters = Counters::of(&self.member, &state);
        self.member = state;
        (self.member_of.insert(collection.clone()), counters)
    }

    /// Returns whether its name was unknown before, and its previous state.
    fn apply_named(&mut self, state: UpstreamState) -> (bool, Counters) {
        match (&mut self.named, state) {
            // A known resource is kept.
            (Some(UpstreamState::Present { stale, .. }), UpstreamState::Unknown) => {
                *stale = true;
                (false, Counters::default())
            }
            (named, state) => {
                let before = named.replace(state);
                let counters =
                    Counters::of(before.as_ref().unwrap_or(&UpstreamState::Unknown), self.shown_by_name());
                (before.is_none(), counters)
            }
        }
    }

    /// The state by its name.
    fn shown_by_name(&self) -> &UpstreamState {
        self.named.as_ref().unwrap_or(&UpstreamState::Unknown)
    }
}

impl Counters {
    /// Compares the state of a resource before and after.
    fn of(before: &UpstreamState, now: &UpstreamState) -> Self {
        match (before, now) {
            (
                UpstreamState::Present { bytes: old, ttl: before, .. },
                UpstreamState::Present { bytes, ttl, .. },
            ) if old == bytes && before == ttl => Self::default(),
            (_, UpstreamState::Present { bytes, .. }) => {
                Self { updates: 1, bytes: bytes.len() as u64, ..Self::default() }
            }
            (before, now) if before == now => Self::default(),
            (_, UpstreamState::Absent | UpstreamState::Refused(..)) => {
                Self { removals: 1, ..Self::default() }
            }
            (_, UpstreamState::Unknown) => Self::default(),
        }
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.updates += other.updates;
        self.removals += other.removals;
        self.bytes += other.bytes;
    }
}

/// Whether all resources are from one server of the state-of-the-world variant, so that a type has a version.
fn has_type_versions(bootstrap: &Bootstrap, api_type: ApiType) -> bool {
    let is_sotw = |server: &Arc<Server>| !server.api_type.unwrap_or(api_type).is_delta();
    let mut servers = bootstrap.servers();
    let only = servers.next().is_some_and(is_sotw) && servers.next().is_none();
    only && bootstrap.authorities().is_empty() && bootstrap.default_authority().is_none()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xdskit::{
        config::{BootstrapBuilder, Node},
        control_plane::{Store, type_url::CLUSTER},
    };

    use super::*;

    struct Rig {
        mirror: Mirror,
        store: Store,
    }

    impl Rig {
        fn new() -> Self {
            Self { mirror: Mirror::default(), store: Store::new().with_on_demand(true) }
        }

        fn apply(&mut self, of: &str, name: &str, state: UpstreamState) -> Counters {
            let mut counters = Counters::default();
            let update = Update::Resource { name: name.into(), state };
            self.store.update(|tx| counters = self.mirror.apply(&topic(of), update, tx));
            counters
        }

        fn unsubscribe(&mut self, name: &str) {
            self.store.update(|tx| self.mirror.remove_topic(&topic(name), tx));
        }

        fn text(&self, name: &str) -> Option<String> {
            let stored = self.store.get(CLUSTER).resource(name).cloned()?;
            Some(String::from_utf8_lossy(stored.bytes()).into_owned())
        }
    }

    fn topic(name: &str) -> Topic {
        Topic { type_url: CLUSTER.into(), name: name.into() }
    }

    fn present(text: &'static str, ttl: Option<Duration>) -> UpstreamState {
        UpstreamState::Present { bytes: text.into(), ttl, version: "7".into(), stale: false }
    }

    #[test]
    fn a_resource_is_removed_when_neither_its_name_nor_the_wildcard_is_subscribed() {
        let mut rig = Rig::new();
        assert_eq!(rig.apply("*", "a", present("1", None)), Counters { updates: 1, removals: 0, bytes: 1 });
        rig.apply("a", "a", present("1", None));
        assert_eq!(rig.apply("a", "a", present("1", None)), Counters::default());
        rig.unsubscribe("*");
        assert_eq!((rig.text("a").as_deref(), rig.mirror.present()), (Some("1"), 1));
        rig.unsubscribe("a");
        assert_eq!((rig.text("a"), rig.mirror.present(), rig.mirror.slots.len()), (None, 0, 0));
    }

    #[test]
    fn cp14_a_type_has_its_version_at_a_server_of_the_state_of_the_world() {
        for passes in [true, false] {
            let mut rig = Rig::new();
            if passes {
                rig.mirror = Mirror::with_type_versions();
            }
            let version = |rig: &Rig| rig.store.version_of_type(&rig.store.get(CLUSTER));
            let stale =
                UpstreamState::Present { bytes: "1".into(), ttl: None, version: "6".into(), stale: true };
            rig.apply("b", "b", stale);
            assert_eq!(version(&rig), "1", "an unconfirmed resource has an old version");
            rig.apply("a", "a", present("1", None));
            assert_eq!(version(&rig), if passes { "7" } else { "2" });
            rig.apply("a", "a", UpstreamState::Absent);
            rig.unsubscribe("b");
            assert_eq!(version(&rig), if passes { "7" } else { "4" });
        }
    }

    #[test]
    fn the_state_of_the_name_precedes_that_of_the_member() {
        let mut rig = Rig::new();
        rig.apply("a", "a", present("2", None));
        rig.apply("*", "a", present("1", None));
        assert_eq!(rig.text("a").as_deref(), Some("2"));
        rig.unsubscribe("a");
        assert_eq!(rig.text("a").as_deref(), Some("1"));
        assert_eq!(rig.apply("*", "a", UpstreamState::Absent).removals, 1);
        assert_eq!(rig.text("a"), None);
    }

    #[test]
    fn a_good_resource_is_kept_while_its_state_is_unknown_and_counts_as_stale() {
        let mut rig = Rig::new();
        let ttl = Some(Duration::from_secs(5));
        rig.apply("a", "a", present("1", ttl));
        rig.apply("a", "a", UpstreamState::Unknown);
        let stored = rig.store.get(CLUSTER).resource("a").cloned().unwrap();
        assert_eq!((stored.ttl(), rig.store.version_of(&stored)), (ttl, "7".into()));
        assert_eq!((rig.mirror.present(), rig.mirror.stale()), (1, 1));
        assert_eq!(rig.apply("a", "a", UpstreamState::Absent).removals, 1);
        assert_eq!((rig.mirror.present(), rig.mirror.stale()), (0, 0));
        rig.apply("a", "a", UpstreamState::Refused(7, "no".into()));
        assert_eq!(rig.store.get(CLUSTER).error("a").unwrap().code(), 7);
    }

    #[test]
    fn cp14_only_a_single_server_of_the_state_of_the_world_has_versions_of_types() {
        let server = || Server::new("http://127.0.0.1:1");
        let bootstrap = || Bootstrap::builder().node(Node::new("relay")).server(server());
        let built = |builder: BootstrapBuilder| builder.build().unwrap();
        let one = built(bootstrap());
        assert!(has_type_versions(&one, ApiType::AggregatedGrpc));
        assert!(!has_type_versions(&one, ApiType::AggregatedDeltaGrpc));
        let two = built(bootstrap().server(Server::new("http://127.0.0.1:2")));
        assert!(!has_type_versions(&two, ApiType::AggregatedGrpc));
    }
}
