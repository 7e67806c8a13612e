//! Picks of the endpoint that a call's cookie names.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use imbl::OrdMap;

use crate::balance::ready_endpoint::ReadyEndpoint;

/// What the session of a call wants of a pick, and learns of it.
#[derive(Debug)]
pub(crate) struct HostOverride {
    /// The addresses of the cookie, the preferred one first; none without a cookie.
    addresses: Box<[SocketAddr]>,
    /// The time of the pick.
    now: Option<Instant>,
    /// All addresses of the endpoint that was picked, as cookies have them.
    picked: Option<Arc<str>>,
}

/// The endpoints of a cluster for calls with sessions. It is immutable, and shares what did not change.
#[derive(Debug)]
pub(in crate::balance) struct HostPicker<H> {
    pub(super) hosts: Hosts<H>,
    /// The time from which the uses by calls are counted.
    pub(super) epoch: Instant,
}

pub(super) type Hosts<H> = OrdMap<SocketAddr, Arc<HostEntry<H>>>;

/// An address of an endpoint.
#[derive(Debug)]
pub(super) struct HostEntry<H> {
    /// All addresses of the endpoint, as cookies have them.
    pub(super) list: Arc<str>,
    /// Its health is one that cookies may lead to.
    pub(super) is_allowed: bool,
    pub(super) last_used: Arc<LastUsed>,
    pub(super) state: HostState<H>,
}

/// What a pick may do with an address.
#[derive(Debug)]
pub(in crate::balance) enum HostState<H> {
    Ready(Arc<ReadyEndpoint<H>>),
    Idle,
    Connecting,
    /// The last attempt failed, and the address is idle at this time, if there is one.
    Failing(Option<Instant>),
    /// There is no subchannel.
    Absent,
}

/// The result of [`HostPicker::pick`].
#[derive(Debug)]
pub(in crate::balance) enum HostPick<'a, H> {
    Endpoint(&'a Arc<ReadyEndpoint<H>>),
    /// Connect this address, and wait.
    Connect(SocketAddr),
    Wait,
    /// The cookie leads nowhere: the policy picks.
    Policy,
}

/// When a call with a session was sent to an endpoint last. The value is the time since the epoch in milliseconds, plus 1; 0
/// before the first use.
#[derive(Debug, Default)]
pub(super) struct LastUsed(AtomicU64);

impl HostOverride {
    /// For the attempts of a call whose cookie has these addresses.
    pub(crate) fn new(addresses: Box<[SocketAddr]>) -> Self {
        Self { addresses, now: None, picked: None }
    }

    /// A pick begins.
    pub(crate) fn begin_pick(&mut self, now: Instant) {
        (self.now, self.picked) = (Some(now), None);
    }

    /// All addresses of the endpoint that the last pick chose, as cookies have them; `None` if it chose none.
    pub(crate) fn picked(&self) -> Option<&Arc<str>> {
        self.picked.as_ref()
    }

    /// The cookie leads the next attempt to the same endpoint (CH6.21).
    pub(in crate::balance) fn for_next_attempt(self) -> Self {
        Self::new(self.addresses)
    }
}

impl<H> HostPicker<H> {
    /// Looks for an endpoint of the cookie (CH8.11).
    pub(in crate::balance) fn pick(&self, of: &HostOverride) -> HostPick<'_, H> {
        let allowed = || {
            let known = of.addresses.iter().filter_map(|address| Some((*address, self.hosts.get(address)?)));
            known.filter(|(_, host)| host.is_allowed)
        };
        // A connected endpoint is preferred to those before it (CH8.11). Cookies have at most 16 addresses, so each state may
        // have a pass.
        let ready = allowed().find_map(|(_, host)| match &host.state {
            HostState::Ready(endpoint) => Some(endpoint),
            HostState::Idle | HostState::Connecting | HostState::Failing(_) | HostState::Absent => None,
        });
        if let Some(endpoint) = ready {
            return HostPick::Endpoint(endpoint);
        }
        if let Some((address, _)) = allowed().find(|(_, host)| host.state.is_idle(of.now)) {
            return HostPick::Connect(address);
        }
        if allowed().any(|(_, host)| matches!(host.state, HostState::Connecting)) {
            return HostPick::Wait;
        }
        match allowed().find(|(_, host)| matches!(host.state, HostState::Absent)) {
            Some((address, _)) => HostPick::Connect(address),
            None => HostPick::Policy,
        }
    }

    /// A call with a session is sent to an address (CH8.13).
    pub(in crate::balance) fn note(&self, address: SocketAddr, of: &mut HostOverride) {
        let Some(host) = self.hosts.get(&address) else { return };
        of.picked = Some(host.list.clone());
        if let Some(now) = of.now {
            host.last_used.set(now.saturating_duration_since(self.epoch));
        }
    }
}

impl<H> HostState<H> {
    /// Whether a connection can be requested: the address is idle, or its delay is over by this time.
    pub(in crate::balance) fn is_idle(&self, now: Option<Instant>) -> bool {
        match self {
            Self::Idle => true,
            // No timer ends the delays of own subchannels, so picks compare the time.
            Self::Failing(Some(until)) => now.is_some_and(|now| *until <= now),
            Self::Ready(_) | Self::Connecting | Self::Failing(None) | Self::Absent => false,
        }
    }

    /// The higher, the better, of several subchannels of one address.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Absent => 0,
            Self::Failing(_) => 1,
            Self::Idle => 2,
            Self::Connecting => 3,
            Self::Ready(_) => 4,
        }
    }

    /// Whether a pick would do the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready(one), Self::Ready(other)) => Arc::ptr_eq(one, other),
            (Self::Failing(one), Self::Failing(other)) => one == other,
            (one, other) => one.rank() == other.rank(),
        }
    }
}

impl<H> Clone for HostState<H> {
    fn clone(&self) -> Self {
        match self {
            Self::Ready(endpoint) => Self::Ready(endpoint.clone()),
            Self::Idle => Self::Idle,
            Self::Connecting => Self::Connecting,
            Self::Failing(until) => Self::Failing(*until),
            Self::Absent => Self::Absent,
        }
    }
}

impl LastUsed {
    /// The time since the epoch, up to a second less; `None` before the first use.
    pub(super) fn get(&self) -> Option<Duration> {
        self.0.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_millis)
    }

    /// Most calls find that the last one was a moment ago, and leave the value to the caches of all processors.
    pub(super) fn set(&self, time: Duration) {
        let (value, before) = (time.as_millis() as u64 + 1, self.0.load(Ordering::Relaxed));
        if before == 0 || value >= before + COARSENESS {
            // Another call may have written a later time.
            self.0.fetch_max(value, Ordering::Relaxed);
        }
    }
}

/// The least difference of two uses that are both written, in milliseconds.
const COARSENESS: u64 = 1_000;
