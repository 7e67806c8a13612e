//! The addresses of hosts, of which each is looked up once for all clusters that name it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::debug;

use crate::{
    backoff::Backoff,
    base::{Addresses, WatchId},
    capacity::Shrink,
    config::bounded,
    escape::Escaped,
    invariant,
    resource::{
        ClusterLoadAssignment, Endpoint, Locality, Metadata, Remarks,
        cluster::HostPort,
        endpoints::{LocalityEndpoints, Priority},
    },
};

/// The hosts of logical DNS clusters, and the schedule of their lookups.
///
/// A host is looked up when it is first watched; again when its answer has run out, or when that is requested, but not
/// sooner than the least time between two lookups; and with growing delays after failures. The last good answer stays
/// through them (F5). An address is not looked up. There are at most [`MAX_LOOKUPS`] at a time; the other hosts wait in
/// a queue. No event iterates over unrelated hosts.
///
/// The contract is that of every state machine here: after each mutation, [`poll`](Self::poll) until there is nothing.
#[derive(Debug)]
pub(crate) struct DnsResolver {
    /// The hosts that are watched, in a fixed order, so that runs can be repeated.
    hosts: BTreeMap<Arc<str>, Host>,
    /// The host of each watch: requests to look up again name a watch.
    by_watch: BTreeMap<WatchId, Arc<str>>,
    /// The resting hosts, by the end of their rest.
    resting: BTreeSet<(Instant, Arc<str>)>,
    /// The hosts that wait for a lookup, by the number of their arrival, so that a host whose last watch ends leaves without a
    /// search.
    queue: BTreeMap<u64, Arc<str>>,
    /// The lookups in progress, in the order of their start, since ids ascend: the first one is the first to time out.
    under_way: BTreeMap<LookupId, Lookup>,
    /// The least time between two lookups.
    refresh: Duration,
    /// The maximum duration of a lookup.
    lookup_timeout: Duration,
    /// The number of lookups that were started.
    lookups: u64,
    /// The number of hosts that were queued.
    queued: u64,
    /// What the caller has to do.
    orders: VecDeque<HostOrder>,
}

/// A lookup that has ended.
#[derive(Debug)]
struct Answer {
    /// The addresses, or the reason why there are none.
    result: Result<Addresses, String>,
    /// The time of its start.
    since: Instant,
}

#[derive(Debug)]
struct Lookup {
    /// `None` when the host is not watched any more. The lookup still counts. A resolver of the system cannot be interrupted,
    /// and blocks its thread until it is done.
    host: Option<Arc<str>>,
    /// The time of its start.
    since: Instant,
}

/// The state of the endpoints of a host.
#[derive(Debug, Clone)]
pub(crate) struct HostSeen {
    /// The last addresses, as endpoints.
    assignment: Option<Arc<ClusterLoadAssignment>>,
    /// The reason why the last lookup has failed.
    error: Option<Arc<str>>,
}

/// An order about a host to the owner.
#[derive(Debug)]
pub(crate) enum HostOrder {
    /// Start a lookup.
    LookUp { lookup: LookupId, host: Arc<str> },
    /// Pass a state on to a watch.
    Notify { watch_id: WatchId, address: HostPort, seen: HostSeen },
}

#[derive(Debug)]
struct Host {
    /// The watches by the address that they named: one host may be used with several ports. The host is looked up once for all
    /// of them.
    users: BTreeMap<HostPort, BTreeSet<WatchId>>,
    /// The addresses of the last lookup that has succeeded. Never dropped while the host is watched: stale addresses are better
    /// than none (F5).
    good: Option<Vec<IpAddr>>,
    /// The reason why the last lookup has failed.
    error: Option<Arc<str>>,
    /// What happens next.
    state: State,
    /// The delay after failures, as that of connections; a success resets it.
    backoff: Backoff,
}

/// ```text
///  LookingUp ── on_resolved, or no answer in time ──▶ Resting ── until, or requested after `least` ──▶ LookingUp
///      ▲                                                 │
///      └────────── when another lookup ends ── Queued ◀──┘ too many lookups are under way
/// ```
#[derive(Debug)]
enum State {
    /// A lookup is in progress.
    LookingUp { lookup: LookupId },
    /// A lookup starts when others have ended. `position` is its key in the queue.
    Queued { position: u64 },
    /// The next lookup is due later.
    Resting {
        until: Instant,
        /// The earliest time of the next requested lookup.
        least: Instant,
    },
    /// The host is an address. A host that is removed gets this state, too, since it is in no index.
    Final,
}

/// A host whose addresses are looked up. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LookupId(pub(crate) u64);

impl DnsResolver {
    /// A resolver that looks a host up again after `refresh`, or the TTL of its addresses if that is longer, and waits
    /// `lookup_timeout` for the answer of a lookup.
    pub(crate) fn new(refresh: Duration, lookup_timeout: Duration) -> Self {
        Self {
            hosts: BTreeMap::new(),
            by_watch: BTreeMap::new(),
            resting: BTreeSet::new(),
            queue: BTreeMap::new(),
            under_way: BTreeMap::new(),
            refresh: refresh.min(LONGEST),
            lookup_timeout: lookup_timeout.min(LONGEST),
            lookups: 0,
            queued: 0,
            orders: VecDeque::new(),
        }
    }

    /// Begins a watch of an address. A host that is known already is reported at once.
    ///
    /// A host without an answer so far is reported when it has one. Two watches of one address are two users.
    pub(crate) fn watch(&mut self, watch_id: WatchId, address: &HostPort, now: Instant) {
        let name = &address.host;
        let host = self.hosts.entry(name.clone()).or_insert_with(|| {
            let host = Host::new(name, now);
            if let State::Resting { until, .. } = host.state {
                self.resting.insert((until, name.clone()));
            }
            host
        });
        host.users.entry(address.clone()).or_default().insert(watch_id);
        self.by_watch.insert(watch_id, name.clone());
        if host.good.is_some() || host.error.is_some() {
            self.orders.push_back(HostOrder::Notify {
                watch_id,
                address: address.clone(),
                seen: host.seen(address),
            });
        }
        self.look_up(name, now);
    }

    /// Ends a watch of an address.
    ///
    /// A lookup of a host without watches goes on, as nothing can end it, and its answer is dropped.
    pub(crate) fn unwatch(&mut self, watch_id: WatchId, address: &HostPort) {
        self.by_watch.remove(&watch_id);
        let Some(host) = self.hosts.get_mut(&address.host) else {
            return invariant::broken("a watched host is known");
        };
        if let Some(watches) = host.users.get_mut(address) {
            watches.remove(&watch_id);
            if watches.is_empty() {
                host.users.remove(address);
            }
        }
        if host.users.is_empty() {
            self.set_state(&address.host, State::Final);
            self.hosts.remove(&address.host);
        }
    }

    /// Looks up hosts again as soon as that is allowed (A74-7).
    ///
    /// Called for each failed connection to such an endpoint, so that it must be cheap, and must not exceed the rate of
    /// `refresh`.
    pub(crate) fn look_up_again(&mut self, watch_id: WatchId, now: Instant) {
        // Any watch may request it, and few are of hosts.
        let Some(name) = self.by_watch.get(&watch_id).cloned() else { return };
        if let Some(Host { state: State::Resting { until, least }, .. }) = self.hosts.get(&name) {
            // An answer that is valid for longer is looked up early; a delay after a failure that is shorter stays.
            let (until, least) = ((*until).min(*least), *least);
            self.set_state(&name, State::Resting { until, least });
        }
        self.look_up(&name, now);
    }

    /// Handles the answer to a lookup.
    ///
    /// The place of the lookup goes to the first host in the queue, whatever the answer.
    pub(crate) fn on_resolved(
        &mut self,
        lookup: LookupId,
        result: Result<Addresses, String>,
        now: Instant,
        random: &mut fastrand::Rng,
    ) {
        // The answer may be too late.
        let Some(Lookup { host, since }) = self.under_way.remove(&lookup) else { return };
        if let Some(name) = host {
            self.on_answer(&name, Answer { result, since }, now, random);
        }
        while self.under_way.len() < MAX_LOOKUPS
            && let Some((_, name)) = self.queue.pop_first()
        {
            self.start_lookup(&name, now);
        }
    }

    /// Handles the end of a lookup.
    fn on_answer(&mut self, name: &Arc<str>, answer: Answer, now: Instant, random: &mut fastrand::Rng) {
        let Some(host) = self.hosts.get_mut(name) else {
            return invariant::broken("a lookup is detached when its host is removed");
        };
        let Answer { result, since } = answer;
        let result = match result {
            // An empty answer would remove endpoints that serve.
            Ok(addresses) if addresses.ips.is_empty() => Err("there are no addresses".to_owned()),
            result => result,
        };
        debug!(host = %Escaped(name), ?result, "dns lookup completed");
        let before = (host.good.clone(), host.error.clone());
        // The time of the lookup counts: the starts of two lookups are `refresh` apart.
        let least = since + self.refresh;
        let until = match result {
            Ok(addresses) => {
                host.backoff.reset();
                let holds =
                    // Resolvers of applications set the TTL: 0 would look up without a pause.
                    addresses.ttl.map_or(self.refresh, |ttl| bounded(ttl).clamp(self.refresh, LONGEST));
                (host.good, host.error) = (Some(addresses.ips), None);
                since + holds
            }
            Err(error) => {
                host.error = Some(format!("dns resolver error for target \"dns:///{name}\": {error}").into());
                now + host.backoff.next(random)
            }
        };
        // Each notification makes a snapshot, and most lookups find what is known.
        if before != (host.good.clone(), host.error.clone()) {
            for (address, watches) in &host.users {
                let seen = host.seen(address);
                let notify = |watch_id: &WatchId| HostOrder::Notify {
                    watch_id: *watch_id,
                    address: address.clone(),
                    seen: seen.clone(),
                };
                self.orders.extend(watches.iter().map(notify));
            }
        }
        self.set_state(name, State::Resting { until: until.max(now), least: least.max(now) });
    }

    /// Returns the next order.
    pub(crate) fn poll(&mut self) -> Option<HostOrder> {
        let order = self.orders.pop_front();
        self.orders.shrink_if_sparse();
        order
    }

    /// The time of the next call of `handle_timeout`.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        // A lookup of a host that is not watched any more matters only to the hosts in the queue.
        let mut awaited = self.under_way.values().filter(|one| one.host.is_some() || !self.queue.is_empty());
        let answer = awaited.next().map(|one| one.since + self.lookup_timeout);
        let rest = self.resting.first().map(|(until, _)| *until);
        answer.into_iter().chain(rest).min()
    }

    /// Ends lookups that take too long, and starts those that are due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, random: &mut fastrand::Rng) {
        while let Some((&lookup, one)) = self.under_way.first_key_value()
            && one.since + self.lookup_timeout <= now
        {
            let error = format!("no answer in {:?}", self.lookup_timeout);
            self.on_resolved(lookup, Err(error), now, random);
        }
        while let Some((until, name)) = self.resting.first().cloned()
            && until <= now
        {
            self.look_up(&name, now);
        }
    }

    /// Looks up a host if its answer has run out.
    fn look_up(&mut self, name: &Arc<str>, now: Instant) {
        // The others are looked up already, wait for it, or are addresses.
        let Some(Host { state: State::Resting { until, .. }, .. }) = self.hosts.get(name) else { return };
        if *until > now {
            return;
        }
        if self.under_way.len() < MAX_LOOKUPS {
            self.start_lookup(name, now);
        } else {
            self.queued += 1;
            self.queue.insert(self.queued, name.clone());
            self.set_state(name, State::Queued { position: self.queued });
        }
    }

    /// Starts the lookup of a host.
    fn start_lookup(&mut self, name: &Arc<str>, now: Instant) {
        self.lookups += 1;
        let lookup = LookupId(self.lookups);
        self.set_state(name, State::LookingUp { lookup });
        self.under_way.insert(lookup, Lookup { host: Some(name.clone()), since: now });
        self.orders.push_back(HostOrder::LookUp { lookup, host: name.clone() });
    }

    /// Whether each host is in the index of its state, and in no other.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        assert_eq!(invariant::count(), 0);
        let (mut resting, mut queued, mut looking_up) = (0, 0, 0);
        for (name, host) in &self.hosts {
            match host.state {
                State::LookingUp { lookup } => {
                    looking_up += 1;
                    assert_eq!(self.under_way[&lookup].host.as_ref(), Some(name));
                }
                State::Queued { position } => {
                    queued += 1;
                    assert_eq!(self.queue.get(&position), Some(name));
                }
                State::Resting { until, .. } => {
                    resting += 1;
                    assert!(self.resting.contains(&(until, name.clone())));
                }
                State::Final => {}
            }
        }
        let under_way = self.under_way.values().filter(|one| one.host.is_some()).count();
        assert_eq!((self.resting.len(), self.queue.len(), under_way), (resting, queued, looking_up));
        assert!(self.under_way.len() <= MAX_LOOKUPS);
        assert!(self.queue.is_empty() || self.under_way.len() == MAX_LOOKUPS, "nobody waits for nothing");
        let watches = self.hosts.values().flat_map(|host| host.users.values()).map(BTreeSet::len);
        assert_eq!(self.by_watch.len(), watches.sum::<usize>());
    }

    /// Puts a host into a state, and into the index of that.
    fn set_state(&mut self, name: &Arc<str>, state: State) {
        let Some(host) = self.hosts.get_mut(name) else {
            return invariant::broken("only a known host changes its state");
        };
        match host.state {
            State::LookingUp { lookup } => {
                if let Some(one) = self.under_way.get_mut(&lookup) {
                    one.host = None;
                }
            }
            State::Queued { position } => drop(self.queue.remove(&position)),
            State::Resting { until, .. } => drop(self.resting.remove(&(until, name.clone()))),
            State::Final => {}
        }
        if let State::Resting { until, .. } = state {
            self.resting.insert((until, name.clone()));
        }
        host.state = state;
    }
}

impl Host {
    fn new(name: &str, now: Instant) -> Self {
        let address = name.parse::<IpAddr>().ok();
        Self {
            users: BTreeMap::new(),
            state: if address.is_some() { State::Final } else { State::Resting { until: now, least: now } },
            good: address.map(|ip| vec![ip]),
            error: None,
            backoff: Backoff::default(),
        }
    }

    fn seen(&self, address: &HostPort) -> HostSeen {
        let assignment = self.good.as_ref().and_then(|ips| assignment(address, ips));
        HostSeen { assignment: assignment.map(Arc::new), error: self.error.clone() }
    }
}

impl HostSeen {
    /// The endpoints; `None` if there never was a good answer.
    pub(crate) fn assignment(&self) -> Option<&Arc<ClusterLoadAssignment>> {
        self.assignment.as_ref()
    }

    /// The reason why there are none, or why they may be stale.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// One priority with one locality without a name, and in it one endpoint with all addresses (A37-5, A61).
fn assignment(address: &HostPort, ips: &[IpAddr]) -> Option<ClusterLoadAssignment> {
    let mut sockets = ips.iter().map(|ip| SocketAddr::new(*ip, address.port));
    let endpoint = Endpoint::new(sockets.next()?, sockets.collect(), &address.to_string());
    let locality = LocalityEndpoints {
        locality: Locality::default(),
        weight: NonZeroU32::MIN,
        endpoints: [endpoint].into(),
        metadata: Metadata::default(),
    };
    Some(ClusterLoadAssignment {
        cluster_name: address.to_string().into(),
        priorities: [Priority { localities: [locality].into() }].into(),
        drops: [].into(),
        unweighted_localities: [].into(),
        leds_localities: [].into(),
        remarks: Remarks::default(),
    })
}

/// The maximum number of lookups at a time. The system's resolver blocks a thread with each, of the 512 that a tokio runtime
/// has for files and applications as well.
const MAX_LOOKUPS: usize = 64;

/// The maximum of all durations here, so that no deadline is beyond the range of the clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
