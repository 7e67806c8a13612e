use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use imbl::OrdMap;

use super::{
    aggregate::Child,
    grace::Grace,
    link::Leafless,
    node::{Endpoints, Node, Source},
    resolver::{Key, Order},
    snapshot::ClusterEntry,
};
use crate::{error::WatchError, observed::Observed, resource::Cluster};

/// The clusters of a resolution: which are needed, which of them are ready, and what a snapshot shows of them.
///
/// Each change marks what it touches; [`settle`](Self::settle) then works on that alone. Aggregates, whose answer depends
/// on others, are linked anew when one of them or something below one comes, goes or turns.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: HashMap<Arc<str>, Node>,
    sources: HashMap<Source, SourceState>,
    /// The nodes that are aggregates.
    pub(super) aggregates: BTreeSet<Arc<str>>,
    /// What some aggregate leads to.
    pub(super) below: BTreeSet<Arc<str>>,
    /// The same by the latest configurations alone.
    pub(super) below_latest: BTreeSet<Arc<str>>,
    /// What aggregates that the next routes lead to lead to.
    pub(super) below_next: BTreeSet<Arc<str>>,
    /// What aggregates that are shown lead to as they are shown.
    pub(super) below_shown: BTreeSet<Arc<str>>,
    /// The same of those alone that the current routes lead to.
    pub(super) below_current: BTreeSet<Arc<str>>,
    /// The aggregates in use whose latest configuration leads to no leaf.
    pub(super) leafless: Leafless,
    current: Vec<Arc<str>>,
    pub(super) next: Next,
    pub(super) next_since: Option<Instant>,
    /// Until when the next routes wait for a cluster that there is not.
    pub(super) patience: Option<Instant>,
    /// Requests are sent by the current routes.
    pub(super) serving: bool,
    /// What a snapshot holds.
    entries: OrdMap<Arc<str>, Arc<ClusterEntry>>,
    /// The nodes that are not ready.
    pub(super) unready: BTreeSet<Arc<str>>,
    /// The nodes of which there is nothing because their server cannot be reached.
    cut_off: BTreeSet<Arc<str>>,
    /// The nodes of which it is known that they do not exist.
    pub(super) missing: BTreeSet<Arc<str>>,
    /// The nodes that outlive their deletion.
    pub(super) graces: BTreeSet<Arc<str>>,
    pub(super) dirty: BTreeSet<Arc<str>>,
    /// What may not be needed any more.
    loose: BTreeSet<Arc<str>>,
    /// What may have to be shown otherwise.
    pub(super) touched: BTreeSet<Arc<str>>,
    /// Aggregates are to be linked anew.
    unlinked: bool,
    pub(super) grace: Duration,
    pub(super) node_id: Arc<str>,
    orders: Vec<Order>,
    work: u64,
}

/// The clusters that the routes lead to which are to be used next.
#[derive(Debug, Clone, Default)]
pub(super) enum Next {
    /// There are none.
    #[default]
    Nothing,
    /// There will be others, but they are not known yet.
    Unknown,
    Clusters(Vec<Arc<str>>),
}

#[derive(Debug, Default)]
struct SourceState {
    users: BTreeSet<Arc<str>>,
    seen: Option<Endpoints>,
}

impl Graph {
    pub(super) fn new(node_id: Arc<str>, grace: Duration) -> Self {
        Self {
            nodes: HashMap::new(),
            sources: HashMap::new(),
            aggregates: BTreeSet::new(),
            below: BTreeSet::new(),
            below_latest: BTreeSet::new(),
            below_next: BTreeSet::new(),
            below_shown: BTreeSet::new(),
            below_current: BTreeSet::new(),
            leafless: Leafless::default(),
            current: Vec::new(),
            next: Next::Nothing,
            next_since: None,
            patience: None,
            serving: false,
            entries: OrdMap::new(),
            unready: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            missing: BTreeSet::new(),
            graces: BTreeSet::new(),
            dirty: BTreeSet::new(),
            loose: BTreeSet::new(),
            touched: BTreeSet::new(),
            unlinked: false,
            grace,
            node_id,
            orders: Vec::new(),
            work: 0,
        }
    }

    /// What a snapshot holds.
    pub(super) fn entries(&self) -> &OrdMap<Arc<str>, Arc<ClusterEntry>> {
        &self.entries
    }

    /// What is to be watched, and what not any more.
    pub(super) fn take_orders(&mut self) -> Vec<Order> {
        mem::take(&mut self.orders)
    }

    /// How many clusters were looked at so far.
    #[cfg(test)]
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    pub(super) fn count(&mut self, clusters: usize) {
        self.work += clusters as u64;
    }

    /// Sets, or withdraws, the clusters that the next routes lead to.
    pub(super) fn set_next(&mut self, next: Next) {
        if let Next::Clusters(before) = mem::take(&mut self.next) {
            for name in before {
                self.node(&name).roots.next = false;
                self.loose.insert(name);
            }
        }
        if let Next::Clusters(names) = &next {
            for name in names {
                self.node(name).roots.next = true;
                self.unlinked |= self.aggregates.contains(name);
            }
        }
        (self.next, self.next_since) = (next, None);
        self.unlinked |= !self.below_next.is_empty();
    }

    /// Whether all that the next routes lead to is ready. While others serve, what is missing only because the server
    /// cannot be reached is waited for; and for a while what does not exist, since that may be older news than the routes.
    pub(super) fn is_next_ready(&self) -> bool {
        let waits = |name: &Arc<str>| self.is_next(name);
        let cut_off = |name: &Arc<str>| self.is_next(name) && self.is_awaited(name);
        matches!(self.next, Next::Clusters(_))
            && !self.unready.iter().any(waits)
            && !(self.serving && self.cut_off.iter().any(cut_off))
            && self.patience.is_none()
    }

    /// The next routes are those in use from now on.
    pub(super) fn commit(&mut self) {
        let Next::Clusters(names) = mem::take(&mut self.next) else { return };
        for name in mem::take(&mut self.current) {
            self.node(&name).roots.current = false;
            self.touched.insert(name.clone());
            self.loose.insert(name);
        }
        for name in &names {
            let roots = &mut self.node(name).roots;
            (roots.current, roots.next) = (true, false);
            self.touched.insert(name.clone());
        }
        self.current = names;
        self.unlinked |= !self.aggregates.is_empty();
    }

    /// A call holds a cluster, or none does any more.
    pub(super) fn set_held(&mut self, name: &Arc<str>, held: bool) {
        if !held && !self.nodes.contains_key(name) {
            return;
        }
        self.node(name).roots.held = held;
        self.unlinked |= self.aggregates.contains(name);
        self.touched.insert(name.clone());
        self.loose.insert(name.clone());
    }

    pub(super) fn on_cluster(&mut self, name: &Arc<str>, seen: Arc<Observed<Cluster>>) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.latest = Some(seen);
            self.dirty.insert(name.clone());
        }
    }

    pub(super) fn on_endpoints(&mut self, source: &Source, seen: Endpoints) {
        if let Some(state) = self.sources.get_mut(source) {
            state.seen = Some(seen);
            self.dirty.extend(state.users.iter().cloned());
        }
    }

    /// Works on all that was touched, while requests are sent by the current routes or not. Says whether a snapshot would
    /// hold something else than before.
    pub(super) fn settle(&mut self, serving: bool, now: Instant) -> bool {
        self.serving = serving;
        loop {
            self.end_graces(now);
            while let Some(name) = self.dirty.pop_first() {
                self.judge(&name, now);
            }
            if mem::take(&mut self.unlinked) || self.leafless.due.is_some_and(|due| due <= now) {
                self.link(now);
            }
            while let Some(name) = self.loose.pop_first() {
                self.drop_if_loose(&name);
            }
            if self.dirty.is_empty() && !self.unlinked && !self.end_graces(now) {
                break;
            }
        }
        self.patience = self.patience(now);
        let mut changed = false;
        for name in mem::take(&mut self.touched) {
            self.work += 1;
            let shown =
                self.nodes.get(&name).filter(|_| self.is_in_tree(&name)).and_then(|node| node.shown.clone());
            changed |= match (shown, self.entries.get(&name)) {
                (Some(shown), Some(entry)) if Arc::ptr_eq(&shown, entry) => false,
                (None, None) => false,
                (Some(shown), _) => {
                    self.entries.insert(name, shown);
                    true
                }
                (None, Some(_)) => self.entries.remove(&name).is_some(),
            };
        }
        changed
    }

    /// Decides what is shown of a cluster, by what is known of it.
    fn judge(&mut self, name: &Arc<str>, now: Instant) {
        self.work += 1;
        let Some(latest) = self.nodes.get(name).and_then(|node| node.latest.clone()) else { return };
        match &*latest {
            Observed::Pending => {}
            Observed::Present { resource, warning, .. } => match Source::of(resource) {
                Some(source) => self.judge_endpoints(name, (resource, warning.clone()), (&source, now)),
                None => {
                    self.show_old(name, None);
                    let node = self.node(name);
                    (node.ready, node.grace, node.overdue) = (true, None, false);
                    self.unlinked = true;
                }
            },
            Observed::Absent { reason } => {
                let grace = Some(reason).filter(|reason| reason.is_not_found());
                match grace.and_then(|_| self.grace(name, now)) {
                    Some(Grace::Runs) => self.keep_old(name, Some(reason.clone())),
                    Some(Grace::Overdue) => {
                        self.keep_old(name, Some(reason.clone()));
                        let node = self.node(name);
                        (node.ready, node.overdue) = (true, true);
                    }
                    None => self.show(name, ClusterEntry::failed(name, None, reason.clone())),
                }
            }
        }
        let Some(node) = self.nodes.get_mut(name) else { return };
        set(&mut self.unready, name, !node.ready);
        set(&mut self.cut_off, name, node.is_cut_off());
        set(&mut self.missing, name, node.is_missing());
        set(&mut self.graces, name, node.grace.is_some());
        let after = node.judge_standing();
        let before = mem::replace(&mut node.standing, after);
        set(&mut self.aggregates, name, after.is_aggregate);
        let turned = before != after && self.below.contains(name);
        self.unlinked |= turned || after.is_aggregate || before.is_aggregate;
    }

    /// Decides the same of a cluster with endpoints of its own.
    fn judge_endpoints(
        &mut self,
        name: &Arc<str>,
        (config, warning): (&Arc<Cluster>, Option<WatchError>),
        (source, now): (&Source, Instant),
    ) {
        self.watch_source(name, source);
        let Some(seen) = self.sources.get(source).and_then(|state| state.seen.clone()) else {
            return self.keep_old(name, None);
        };
        if self.serves_without(name, source) {
            if seen.is_cut_off() {
                return self.keep_old(name, None);
            }
            // That may be older news than the cluster.
            if seen.are_lacking() && self.grace(name, now) == Some(Grace::Runs) {
                let until = self.node(name).grace;
                self.keep_old(name, None);
                self.node(name).grace = until;
                return;
            }
        }
        let entry = ClusterEntry::with_endpoints(name, config, warning, (&seen, &self.node_id));
        let removed = self.nodes.get(name).and_then(|node| node.removed(source, &seen));
        let grace = removed.as_ref().and_then(|_| self.grace(name, now));
        let until = grace.and_then(|_| self.node(name).grace);
        self.show(name, entry.or_endpoints(removed.filter(|_| grace.is_some())));
        let node = self.node(name);
        (node.grace, node.overdue) = (until, grace == Some(Grace::Overdue));
    }

    /// The latest is what is shown.
    pub(super) fn show(&mut self, name: &Arc<str>, entry: ClusterEntry) {
        let node = self.node(name);
        (node.old, node.grace, node.ready, node.overdue) = (None, None, true, false);
        self.set_shown(name, entry);
        self.release_sources(name);
    }

    /// Shows something of a cluster, unless that is shown already.
    pub(super) fn set_shown(&mut self, name: &Arc<str>, entry: ClusterEntry) {
        let node = self.node(name);
        if node.shown.as_ref().is_none_or(|shown| !shown.says(&entry)) {
            node.shown = Some(Arc::new(entry));
            self.touched.insert(name.clone());
        }
    }

    /// What served until now goes on, since the latest cannot serve yet.
    fn keep_old(&mut self, name: &Arc<str>, deleted: Option<WatchError>) {
        let node = self.node(name);
        (node.ready, node.overdue) = (false, false);
        if deleted.is_none() {
            node.grace = None;
        }
        self.show_old(name, deleted);
        self.release_sources(name);
    }

    /// Shows what served until now with its latest endpoints.
    fn show_old(&mut self, name: &Arc<str>, deleted: Option<WatchError>) {
        let is_in_tree = self.is_in_tree(name);
        let node = self.node(name);
        if !is_in_tree && matches!(node.as_shown_child(), Child::Aggregate(_)) {
            // What it has led to is let go, and would be missing if a call held it.
            node.shown = None;
        }
        if node.old.is_none() {
            node.old = node.serving().cloned();
        }
        let (old, shown) = (node.old.clone(), node.shown.clone());
        if let (Some(old), Some(shown)) = (old, shown)
            && let Some(source) = Source::of(&old)
            && let Some(seen) = self.sources.get(&source).and_then(|state| state.seen.clone())
        {
            let warning = deleted.or_else(|| shown.warning.clone());
            let entry = ClusterEntry::with_endpoints(name, &old, warning, (&seen, &self.node_id));
            let removed = self.node(name).removed(&source, &seen);
            self.set_shown(name, entry.or_endpoints(removed));
        }
    }

    /// Whether a cluster serves by something else than what the latest configuration says.
    fn serves_without(&self, name: &Arc<str>, source: &Source) -> bool {
        let Some(shown) = self.nodes.get(name).and_then(|node| node.shown.as_ref()) else { return false };
        let serving = shown.endpoints.is_some() || !shown.leaves.is_empty();
        serving && shown.config.as_ref().and_then(|config| Source::of(config)).as_ref() != Some(source)
    }

    pub(super) fn is_next(&self, name: &Arc<str>) -> bool {
        self.below_next.contains(name) || self.nodes.get(name).is_some_and(|node| node.roots.next)
    }

    /// Whether the next routes need it otherwise than the routes in use: if these do without it, the next can, too.
    pub(super) fn is_awaited(&self, name: &Arc<str>) -> bool {
        let roots = self.nodes.get(name).map(|node| node.roots).unwrap_or_default();
        !roots.current && (roots.next || !self.below_current.contains(name))
    }

    /// Whether the routes in use, a call, or an aggregate of these lead to it.
    pub(super) fn is_in_tree(&self, name: &Arc<str>) -> bool {
        self.below_shown.contains(name)
            || self.nodes.get(name).is_some_and(|node| node.roots.current || node.roots.held)
    }

    /// The node of a cluster; it is watched from now on if it was not.
    pub(super) fn node(&mut self, name: &Arc<str>) -> &mut Node {
        self.nodes.entry(name.clone()).or_insert_with(|| {
            self.orders.push(Order::Watch(Key::Cluster(name.clone())));
            self.unready.insert(name.clone());
            Node::default()
        })
    }

    /// An aggregate is ready when it is linked.
    pub(super) fn set_linked(&mut self, name: &Arc<str>, linked: bool) {
        set(&mut self.unready, name, !linked);
    }

    pub(super) fn may_be_loose(&mut self, name: Arc<str>) {
        self.loose.insert(name);
    }

    fn drop_if_loose(&mut self, name: &Arc<str>) {
        let needed = |node: &Node| node.roots.any() || self.below.contains(name);
        if self.nodes.get(name).is_none_or(needed) {
            return;
        }
        let Some(node) = self.nodes.remove(name) else { return };
        for source in &node.sources {
            self.leave_source(name, source);
        }
        self.unlinked |= self.aggregates.remove(name);
        self.unready.remove(name);
        self.cut_off.remove(name);
        self.missing.remove(name);
        self.graces.remove(name);
        self.touched.insert(name.clone());
        self.orders.push(Order::Unwatch(Key::Cluster(name.clone())));
    }

    fn watch_source(&mut self, name: &Arc<str>, source: &Source) {
        let state = self.sources.entry(source.clone()).or_insert_with(|| {
            self.orders.push(Order::Watch(source.into()));
            SourceState::default()
        });
        if state.users.insert(name.clone()) {
            self.node(name).sources.push(source.clone());
        }
    }

    /// Lets go of the sources that neither the latest nor the old configuration of a cluster has.
    fn release_sources(&mut self, name: &Arc<str>) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let of = |cluster: Option<&Arc<Cluster>>| cluster.and_then(|cluster| Source::of(cluster));
        let wanted = [of(node.config()), of(node.old.as_ref())];
        let (kept, gone) = mem::take(&mut node.sources)
            .into_iter()
            .partition::<Vec<_>, _>(|source| wanted.iter().flatten().any(|wanted| wanted == source));
        node.sources = kept;
        gone.iter().for_each(|source| self.leave_source(name, source));
    }

    fn leave_source(&mut self, name: &Arc<str>, source: &Source) {
        let Some(state) = self.sources.get_mut(source) else { return };
        state.users.remove(name);
        if state.users.is_empty() {
            self.sources.remove(source);
            self.orders.push(Order::Unwatch(source.into()));
        }
    }
}

fn set(names: &mut BTreeSet<Arc<str>>, name: &Arc<str>, is_in: bool) {
    if !is_in {
        names.remove(name);
    } else if !names.contains(name) {
        names.insert(name.clone());
    }
}
