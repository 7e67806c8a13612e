use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::debug;

use crate::{
    escape::Escaped,
    protocol::{Backoff, LookupId, Settings, ViewId},
    resource::{
        ClusterLoadAssignment, Endpoint, Locality, Metadata,
        cluster::HostPort,
        endpoints::{LocalityEndpoints, Priority},
    },
};

/// The addresses of a host, as they were looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Addresses {
    /// The addresses, in the order in which they should be tried.
    pub ips: Vec<IpAddr>,
    /// For how long they hold, if it is known.
    pub ttl: Option<Duration>,
}

/// The hosts of logical DNS clusters, and when to look them up.
///
/// A host is looked up when it is first wanted; again when its answer has run out, or when that is asked for, but not sooner
/// than the least time between two lookups; and with growing delays after failures. The last good answer stays through
/// them (F5). What is an address already is not looked up.
///
/// The contract is that of every state machine here: after each mutation, [`poll`](Self::poll) until there is nothing.
#[derive(Debug)]
pub(crate) struct Hosts {
    hosts: BTreeMap<Arc<str>, Host>,
    /// The least time between two lookups.
    refresh: Duration,
    /// How long a lookup may take.
    patience: Duration,
    lookups: u64,
    orders: VecDeque<HostOrder>,
}

/// What is known of the endpoints of a host.
#[derive(Debug, Clone)]
pub(crate) struct HostSeen {
    assignment: Option<Arc<ClusterLoadAssignment>>,
    error: Option<Arc<str>>,
}

/// What is to be done about a host.
#[derive(Debug)]
pub(crate) enum HostOrder {
    LookUp { lookup: LookupId, host: Arc<str> },
    Tell { view: ViewId, address: HostPort, seen: HostSeen },
}

#[derive(Debug)]
struct Host {
    users: BTreeMap<HostPort, BTreeSet<ViewId>>,
    good: Option<Vec<IpAddr>>,
    error: Option<Arc<str>>,
    state: State,
    backoff: Backoff,
}

/// ```text
///  LookingUp ── on_resolved, or no answer in time ──▶ Resting ── until, or asked for after `least` ──▶ LookingUp
/// ```
#[derive(Debug)]
enum State {
    LookingUp {
        lookup: LookupId,
        since: Instant,
    },
    Resting {
        until: Instant,
        /// When a lookup may be asked for.
        least: Instant,
    },
    /// It is an address.
    Final,
}

impl Addresses {
    /// Addresses of which it is not known for how long they hold.
    pub fn new(ips: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { ips: ips.into_iter().collect(), ttl: None }
    }

    /// Says for how long they hold.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

impl Hosts {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            hosts: BTreeMap::new(),
            refresh: settings.dns_refresh,
            patience: settings.resource_timeout,
            lookups: 0,
            orders: VecDeque::new(),
        }
    }

    pub(crate) fn watch(&mut self, view: ViewId, address: &HostPort, now: Instant) {
        let host = self.hosts.entry(address.host.clone()).or_insert_with(|| Host::new(&address.host, now));
        host.users.entry(address.clone()).or_default().insert(view);
        if host.good.is_some() || host.error.is_some() {
            self.orders.push_back(HostOrder::Tell {
                view,
                address: address.clone(),
                seen: host.seen(address),
            });
        }
        self.look_up(&address.host, now);
    }

    pub(crate) fn unwatch(&mut self, view: ViewId, address: &HostPort) {
        let Some(host) = self.hosts.get_mut(&address.host) else { return };
        if let Some(views) = host.users.get_mut(address) {
            views.remove(&view);
            if views.is_empty() {
                host.users.remove(address);
            }
        }
        if host.users.is_empty() {
            self.hosts.remove(&address.host);
        }
    }

    /// Looks up hosts again as soon as that is allowed (A74-7).
    pub(crate) fn look_up_again(&mut self, view: ViewId, now: Instant) {
        let of_view = |host: &Host| host.users.values().any(|views| views.contains(&view));
        let names: Vec<_> =
            self.hosts.iter().filter(|(_, host)| of_view(host)).map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(Host { state: State::Resting { until, least }, .. }) = self.hosts.get_mut(&name) {
                *until = (*until).min(*least);
            }
            self.look_up(&name, now);
        }
    }

    /// Takes over the answer to a lookup.
    pub(crate) fn on_resolved(
        &mut self,
        lookup: LookupId,
        result: Result<Addresses, String>,
        (now, random): (Instant, &mut fastrand::Rng),
    ) {
        let of =
            |host: &Host| matches!(host.state, State::LookingUp { lookup: other, .. } if other == lookup);
        // Nobody wants the host any more, or the answer is too late.
        let Some((name, host)) = self.hosts.iter_mut().find(|(_, host)| of(host)) else { return };
        let State::LookingUp { since, .. } = host.state else { return };
        let result = match result {
            Ok(addresses) if addresses.ips.is_empty() => Err("there are no addresses".to_owned()),
            result => result,
        };
        debug!(host = %Escaped(name), ?result, "looked up");
        let before = (host.good.clone(), host.error.clone());
        let least = since + self.refresh;
        let until = match result {
            Ok(addresses) => {
                host.backoff.reset();
                let holds = addresses.ttl.map_or(self.refresh, |ttl| ttl.max(self.refresh));
                (host.good, host.error) = (Some(addresses.ips), None);
                since + holds
            }
            Err(error) => {
                host.error = Some(format!("dns resolver error for target \"dns:///{name}\": {error}").into());
                now + host.backoff.next(random)
            }
        };
        host.state = State::Resting { until: until.max(now), least: least.max(now) };
        if before != (host.good.clone(), host.error.clone()) {
            for (address, views) in &host.users {
                let seen = host.seen(address);
                let tell = |view: &ViewId| HostOrder::Tell {
                    view: *view,
                    address: address.clone(),
                    seen: seen.clone(),
                };
                self.orders.extend(views.iter().map(tell));
            }
        }
    }

    pub(crate) fn poll(&mut self) -> Option<HostOrder> {
        self.orders.pop_front()
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.hosts.values().filter_map(|host| host.deadline(self.patience)).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, random: &mut fastrand::Rng) {
        let due = |host: &Host| host.deadline(self.patience).is_some_and(|at| at <= now);
        let due: Vec<_> =
            self.hosts.iter().filter(|(_, host)| due(host)).map(|(name, _)| name.clone()).collect();
        for name in due {
            if let Some(Host { state: State::LookingUp { lookup, .. }, .. }) = self.hosts.get(&name) {
                let error = format!("no answer in {:?}", self.patience);
                self.on_resolved(*lookup, Err(error), (now, random));
            } else {
                self.look_up(&name, now);
            }
        }
    }

    /// Looks up a host if its answer has run out.
    fn look_up(&mut self, name: &Arc<str>, now: Instant) {
        let Some(host) = self.hosts.get_mut(name) else { return };
        if let State::Resting { until, .. } = host.state
            && until <= now
        {
            self.lookups += 1;
            let lookup = LookupId(self.lookups);
            host.state = State::LookingUp { lookup, since: now };
            self.orders.push_back(HostOrder::LookUp { lookup, host: name.clone() });
        }
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
            backoff: Backoff::for_connections(now),
        }
    }

    fn deadline(&self, patience: Duration) -> Option<Instant> {
        match self.state {
            State::LookingUp { since, .. } => Some(since + patience),
            State::Resting { until, .. } => Some(until),
            State::Final => None,
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

    /// Why there are none, or why they may be stale.
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
    })
}
