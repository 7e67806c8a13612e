//! pick_first (A61, A62): the first of some addresses that can be connected to. It is the only leaf of all policies: the others
//! have one for each endpoint (CH3.24).

use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    addresses::interleaved,
    backoff::ConnectSettings,
    command::{Commands, ConnectionId},
    connect_error::ConnectError,
    connectivity::Connectivity,
    identity::Destination,
    observer::Observer,
    released_connections::ReleasedConnections,
    rotation::Rotated,
    scope::Scope,
    stream_queue::OnFull,
    stream_queue::streams::Streams,
    subchannel::{Established, Subchannel},
};

/// Settings of [`PickFirst`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PickFirstSettings {
    pub(crate) backoff: ConnectSettings,
    /// How long an attempt is the only one in the first pass (RFC 8305): 100 ms to 2 s; 250 ms (CH3.16).
    pub(crate) attempt_delay: Duration,
    /// Is called when a further connection is needed.
    pub(crate) on_full: OnFull,
    /// What metrics count.
    pub(crate) observer: Observer,
}

/// The addresses of an endpoint, and the connection to one of them, or the connections (CH4.9).
///
/// ```text
///           connect               on_connected
///   Idle ─────────────▶ FirstPass ─────────────▶ Ready ──▶ Idle, or FirstPass (on_lost)
///                          │ every address failed  ▲
///                          ▼                       │ on_connected
///                        Failing ──────────────────┘
/// ```
///
/// `H` is what requests are sent with on a connection.
#[derive(Debug)]
pub(crate) struct PickFirst<H> {
    settings: PickFirstSettings,
    /// The addresses in the order in which they are tried.
    addresses: Vec<Address<H>>,
    phase: Phase,
    /// A connection was requested once.
    is_started: bool,
    /// Transient failure is reported until a connection is ready (CH3.10).
    is_failing: bool,
    /// Attempts that failed since a connection was ready, also to addresses that are no longer listed (CH3.20).
    failures: usize,
    /// The newest error.
    error: Option<Arc<str>>,
}

#[derive(Debug)]
struct Address<H> {
    subchannel: Subchannel<H>,
    /// An attempt failed since the pass began, or the pass skipped it as it was in backoff (CH3.18).
    has_failed: bool,
}

/// How far the attempts to connect have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The addresses are tried in their order. `next_at` is when the one after `current` is tried as well.
    FirstPass {
        current: usize,
        next_at: Option<Instant>,
    },
    /// Every address failed: each is tried again as soon as its backoff is over (CH3.19).
    Failing {
        /// Failures since the last request to resolve again.
        failures: usize,
    },
    /// One of the subchannels is ready; the others have nothing.
    Ready,
}

impl Default for PickFirstSettings {
    fn default() -> Self {
        Self {
            backoff: ConnectSettings::default(),
            attempt_delay: Duration::from_millis(250),
            on_full: OnFull::default(),
            observer: Observer::default(),
        }
    }
}

impl<H> PickFirst<H> {
    /// No addresses yet.
    pub(crate) fn new(settings: PickFirstSettings) -> Self {
        let attempt_delay = settings.attempt_delay.clamp(SHORTEST_DELAY, LONGEST_DELAY);
        Self {
            settings: PickFirstSettings { attempt_delay, ..settings },
            addresses: Vec::new(),
            phase: Phase::Idle,
            is_started: false,
            is_failing: false,
            failures: 0,
            error: None,
        }
    }

    /// The connectivity that policies above see. A transient failure lasts until a connection is ready (CH3.10).
    pub(crate) fn connectivity(&self) -> Connectivity {
        match self.phase {
            Phase::Ready => Connectivity::Ready,
            Phase::Idle | Phase::FirstPass { .. } | Phase::Failing { .. } if self.is_failing => {
                Connectivity::TransientFailure
            }
            Phase::Idle | Phase::Failing { .. } if self.addresses.is_empty() => {
                Connectivity::TransientFailure
            }
            Phase::Idle => Connectivity::Idle,
            Phase::FirstPass { .. } | Phase::Failing { .. } => Connectivity::Connecting,
        }
    }

    /// The connections that calls use.
    pub(crate) fn ready(&self) -> Option<Established<'_, H>> {
        match self.phase {
            Phase::Ready => self.addresses.iter().find_map(|address| address.subchannel.ready()),
            Phase::Idle | Phase::FirstPass { .. } | Phase::Failing { .. } => None,
        }
    }

    /// The subchannel of each address.
    pub(super) fn subchannels(&self) -> impl Iterator<Item = &Subchannel<H>> {
        self.addresses.iter().map(|address| &address.subchannel)
    }

    /// The newest error of a connection. `None` while there is a connection.
    pub(crate) fn error(&self) -> Option<&Arc<str>> {
        self.error.as_ref().filter(|_| self.phase != Phase::Ready)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let next = match self.phase {
            Phase::FirstPass { next_at, .. } => next_at,
            Phase::Idle | Phase::Failing { .. } | Phase::Ready => None,
        };
        // In the first pass, the end of a delay changes nothing: the address is tried when its turn comes.
        let delays = self.addresses.iter().filter_map(|address| address.subchannel.poll_timeout());
        let counts = matches!(self.phase, Phase::Failing { .. } | Phase::Ready);
        next.into_iter().chain(delays.filter(|_| counts)).min()
    }

    /// Gives away what the next list has no use for; [`update`](Self::update) follows.
    pub(super) fn release_unlisted(&mut self, next: &[Destination], released: &mut ReleasedConnections<H>) {
        let unlisted =
            self.addresses.extract_if(.., |address| !next.contains(address.subchannel.destination()));
        unlisted.for_each(|address| released.offer(address.subchannel));
    }

    /// Gives everything away.
    pub(super) fn release_connections(self, released: &mut ReleasedConnections<H>) {
        self.addresses.into_iter().for_each(|address| released.offer(address.subchannel));
    }

    /// A new list of destinations. A connection to one of them stays, and so do attempts and delays (CH3.20). What other endpoints had
    /// of the others is taken over (CH3.7).
    pub(super) fn update(
        &mut self,
        destinations: impl IntoIterator<Item = Destination>,
        released: &mut ReleasedConnections<H>,
        scope: &mut Scope<'_>,
    ) {
        let destinations = interleaved(destinations);
        self.release_unlisted(&destinations, released);
        let keeps = self.ready().is_some();
        // Most endpoints have one address, and push would make room for four.
        let mut before = mem::replace(&mut self.addresses, Vec::with_capacity(destinations.len()));
        for destination in destinations {
            let known = before.iter().position(|address| *address.subchannel.destination() == destination);
            let is_better = !keeps && released.has_ready(&destination);
            let address = match known {
                Some(known) if !is_better => before.remove(known),
                Some(_) | None => {
                    // The connection in use is enough: other endpoints may need those to further addresses.
                    let adopted = if keeps { None } else { released.take(&destination) };
                    self.address(destination, adopted, scope)
                }
            };
            self.addresses.push(address);
        }
        // An attempt gives way to a connection.
        before.into_iter().for_each(|address| released.offer(address.subchannel));
        if !keeps {
            self.give_back(released);
            self.begin_list(scope);
        }
    }

    /// Of several connections that were taken over, the first is used. The others may be of use elsewhere (CH8.15).
    fn give_back(&mut self, released: &mut ReleasedConnections<H>) {
        let connected = self
            .addresses
            .iter_mut()
            .map(|address| &mut address.subchannel)
            .filter(|subchannel| subchannel.ready().is_some());
        for subchannel in connected.skip(1) {
            let none = Subchannel::new(subchannel.destination().clone(), self.settings.backoff.clone());
            released.offer(mem::replace(subchannel, none));
        }
    }

    /// An address, with the subchannel that it takes over if there is one. Its connections have the scope's owner from now on.
    fn address(
        &self,
        destination: Destination,
        adopted: Option<Subchannel<H>>,
        scope: &mut Scope<'_>,
    ) -> Address<H> {
        adopted.iter().flat_map(Subchannel::ids).for_each(|connection| scope.adopt(connection));
        let subchannel =
            adopted.unwrap_or_else(|| Subchannel::new(destination, self.settings.backoff.clone()));
        Address { subchannel, has_failed: false }
    }

    /// Begins with a list that has just been set, without a connection of the one before.
    fn begin_list(&mut self, scope: &mut Scope<'_>) {
        if self.addresses.is_empty() {
            // The next list is tried at once if this one would have been (CH3.21).
            self.phase = if self.is_started { Phase::Failing { failures: 0 } } else { Phase::Idle };
            (self.is_failing, self.failures) = (false, 0);
            self.error = Some("the list of addresses is empty".into());
            return;
        }
        if let Some(ready) = self.addresses.iter().position(|address| address.subchannel.ready().is_some()) {
            return self.become_ready(ready, scope.commands);
        }
        match self.phase {
            // No connection was requested, or none since the loss of the last one (CH3.22).
            Phase::Idle => {}
            Phase::Ready | Phase::FirstPass { .. } | Phase::Failing { .. } => {
                self.begin_pass(scope);
            }
        }
    }

    /// Connects if it is idle.
    pub(super) fn connect(&mut self, scope: &mut Scope<'_>) {
        self.is_started = true;
        if self.phase == Phase::Idle && !self.addresses.is_empty() {
            self.begin_pass(scope);
        }
    }

    /// An attempt succeeded: those to other addresses are over (CH3.17). An attempt that was cancelled before is nothing to this
    /// endpoint.
    pub(super) fn on_connected(
        &mut self,
        connection: ConnectionId,
        streams: Arc<Streams<H>>,
        scope: &mut Scope<'_>,
    ) {
        let Some(position) = self.position(connection) else { return };
        self.addresses[position].subchannel.on_connected(
            streams,
            scope.now,
            &self.settings.on_full,
            scope.commands,
        );
        self.become_ready(position, scope.commands);
    }

    /// Uses the connection of one address, and ends what the others have.
    fn become_ready(&mut self, position: usize, commands: &mut Commands) {
        self.release_others(position, commands);
        if self.addresses[position].subchannel.ready().is_some() {
            (self.is_started, self.phase) = (true, Phase::Ready);
            (self.is_failing, self.failures, self.error) = (false, 0, None);
        }
    }

    /// An attempt failed, or its timeout is over.
    pub(super) fn on_failed(&mut self, connection: ConnectionId, error: ConnectError, scope: &mut Scope<'_>) {
        let Some(position) = self.position(connection) else { return };
        let it = &mut self.addresses[position];
        it.subchannel.on_failed(error.cause);
        // If that was a further connection, the error is the reason of the delay after the loss of the others (CH4.16).
        self.error = Some(error.text);
        // A further connection, or a replacement: the endpoint stays ready (CH4.15).
        if self.phase == Phase::Ready {
            return;
        }
        it.has_failed = true;
        self.failures += 1;
        match &mut self.phase {
            Phase::FirstPass { current, .. } if *current == position => {
                self.try_from(position + 1, scope);
            }
            // An earlier address, whose attempt went on: the pass may end by it, but does not move on (CH3.18).
            Phase::FirstPass { .. } => self.end_pass(scope),
            Phase::Failing { failures } => {
                *failures += 1;
                if *failures >= self.addresses.len() {
                    *failures = 0;
                    scope.request_reresolution();
                }
                self.retry(scope);
            }
            // There are no attempts then.
            Phase::Idle | Phase::Ready => {}
        }
    }

    /// The connection accepts no new streams any more, or is closed. An attempt that ends like this had succeeded, unseen
    /// (CH3.22). When a further connection is attempted, or has failed, the loss of the last one begins a pass (CH4.16).
    pub(super) fn on_lost(&mut self, connection: ConnectionId, scope: &mut Scope<'_>) {
        let Some(position) = self.position(connection) else { return };
        let it = &mut self.addresses[position].subchannel;
        it.on_lost(connection, scope.now);
        let connectivity = it.connectivity();
        if it.is_delayed() {
            // Calls that fail until the delay is over have no other error. It may be the delay of a further connection.
            self.error = Some(format!("{}: {LOST_UNPROVEN}", it.address()).into());
        }
        if connectivity == Connectivity::Ready {
            return;
        }
        self.release_others(position, scope.commands);
        (self.phase, self.is_failing, self.failures) = (Phase::Idle, false, 0);
        // The address may have moved, so the name is resolved again (CH1.27, CH3.22).
        scope.request_reresolution();
        if connectivity != Connectivity::Idle {
            self.begin_pass(scope);
        }
    }

    /// Attempts a further connection if one is needed (CH4.10); see [`Subchannel::scale`].
    pub(super) fn scale(&mut self, limit: usize, scope: &mut Scope<'_>) {
        let ready = self.addresses.iter_mut().find(|address| address.subchannel.ready().is_some());
        if let Some(it) = ready.filter(|_| self.phase == Phase::Ready) {
            it.subchannel.scale(limit, scope);
        }
    }

    /// To be called when [`poll_timeout`](Self::poll_timeout) says so.
    pub(super) fn handle_timeout(&mut self, scope: &mut Scope<'_>) {
        match self.phase {
            Phase::FirstPass { current, next_at: Some(at) } if at <= scope.now => {
                self.try_from(current + 1, scope);
            }
            Phase::Failing { .. } => self.retry(scope),
            Phase::Ready => {
                self.addresses.iter_mut().for_each(|address| address.subchannel.on_timeout(scope.now))
            }
            Phase::Idle | Phase::FirstPass { .. } => {}
        }
    }

    /// Delays after failures are over, and the next ones are the first (CH3.3).
    pub(super) fn reset_backoff(&mut self, scope: &mut Scope<'_>) {
        self.addresses.iter_mut().for_each(|address| address.subchannel.reset_backoff(scope.now));
        self.handle_timeout(scope);
    }

    /// Certificates were replaced: connections that were made with those before are outdated (CH7.7).
    pub(super) fn on_rotation(&mut self, rotation: &Rotated<'_>, scope: &mut Scope<'_>) {
        let of_it = |subchannel: &&mut Subchannel<H>| subchannel.destination().identity.is_of(rotation.of);
        let subchannels = self.addresses.iter_mut().map(|address| &mut address.subchannel);
        subchannels.filter(of_it).for_each(|subchannel| subchannel.on_rotation(rotation.running, scope.now));
        self.handle_timeout(scope);
    }

    /// Ends the attempts and connections of all addresses but one, and their delays unless connections were lost unproven.
    fn release_others(&mut self, position: usize, commands: &mut Commands) {
        let others = self.addresses.iter_mut().enumerate().filter(|(index, _)| *index != position);
        others.for_each(|(_, it)| it.subchannel.release(commands));
    }

    /// The position of the address with this connection or attempt. `None` if it was cancelled, or is that of another endpoint.
    fn position(&self, connection: ConnectionId) -> Option<usize> {
        self.addresses.iter().position(|address| address.subchannel.has(connection))
    }

    /// Tries the addresses from the first one on. Earlier failures count for addresses in backoff, when it is their turn.
    fn begin_pass(&mut self, scope: &mut Scope<'_>) {
        self.addresses.iter_mut().for_each(|address| address.has_failed = false);
        self.try_from(0, scope);
    }

    /// Tries the next address of the first pass that is not in backoff.
    fn try_from(&mut self, first: usize, scope: &mut Scope<'_>) {
        // An empty list begins no pass, so there is an address.
        let last = self.addresses.len() - 1;
        for current in first..self.addresses.len() {
            let it = &mut self.addresses[current];
            // A delay that is over must not count as a failure.
            it.subchannel.on_timeout(scope.now);
            it.subchannel.connect(scope);
            if it.subchannel.connectivity() == Connectivity::Connecting {
                let next_at = (current < last).then(|| scope.now + self.settings.attempt_delay);
                self.phase = Phase::FirstPass { current, next_at };
                return self.report_failures(scope);
            }
            it.has_failed = true;
        }
        // Attempts at earlier addresses may go on, and then the pass does not end yet.
        self.phase = Phase::FirstPass { current: last, next_at: None };
        self.end_pass(scope);
    }

    /// The first pass ends when every address has failed since it began (CH3.18).
    fn end_pass(&mut self, scope: &mut Scope<'_>) {
        let Phase::FirstPass { next_at: None, .. } = self.phase else { return };
        if !self.addresses.iter().all(|address| address.has_failed) {
            return self.report_failures(scope);
        }
        self.phase = Phase::Failing { failures: 0 };
        self.is_failing = true;
        scope.request_reresolution();
        self.retry(scope);
    }

    /// Lists that come faster than a pass ends do not keep the failure from being reported (CH3.20).
    fn report_failures(&mut self, scope: &mut Scope<'_>) {
        if !self.is_failing && self.failures > self.addresses.len() {
            self.is_failing = true;
            scope.request_reresolution();
        }
    }

    /// Connects the addresses whose backoff is over.
    fn retry(&mut self, scope: &mut Scope<'_>) {
        for it in &mut self.addresses {
            it.subchannel.on_timeout(scope.now);
            it.subchannel.connect(scope);
        }
    }
}

/// The error while the next attempt has to wait after such a loss.
const LOST_UNPROVEN: &str = "the connection was lost again before it had carried a complete call";
/// The lower bound of the time between attempts of the first pass.
const SHORTEST_DELAY: Duration = Duration::from_millis(100);
/// The upper bound of the time between attempts of the first pass.
const LONGEST_DELAY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
