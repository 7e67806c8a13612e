//! Pings on a connection that is silent (CH3.6).

use std::{
    collections::HashMap,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep_until};

use super::inbound::Inbound;
use crate::config::bounded;

/// The settings of keepalive pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::channel) struct KeepAlive {
    /// How long a connection is silent before a ping; never by default, since servers that do not permit pings end connections
    /// that send them (A8).
    pub(in crate::channel) interval: Option<Duration>,
    /// How long the answer may take.
    pub(in crate::channel) timeout: Duration,
    /// Whether pings are sent while no call runs on the connection.
    pub(in crate::channel) without_calls: bool,
}

/// The intervals between pings to addresses that permit fewer of them than configured (CH3.5).
#[derive(Debug, Default)]
pub(in crate::channel) struct LongerIntervals {
    /// The interval of each address that has reported too many pings.
    by_address: HashMap<SocketAddr, Duration>,
    /// The number of addresses at which unused ones are removed.
    sweep_at: usize,
}

impl LongerIntervals {
    /// The settings of connections to an address.
    pub(in crate::channel) fn apply(&self, address: SocketAddr, settings: KeepAlive) -> KeepAlive {
        let interval = self.by_address.get(&address).copied().or(settings.interval);
        KeepAlive { interval, ..settings }
    }

    /// Handles a server that reports too many pings. Returns the interval of its next connections. Addresses that are not used
    /// are removed when their number has doubled since the last time.
    pub(in crate::channel) fn double(
        &mut self,
        address: SocketAddr,
        settings: KeepAlive,
        is_used: impl Fn(&SocketAddr) -> bool,
    ) -> Option<Duration> {
        let doubled = bounded(self.apply(address, settings).interval?.saturating_mul(2));
        self.by_address.insert(address, doubled);
        if self.by_address.len() >= self.sweep_at.max(MAX_UNUSED_INTERVALS) {
            self.by_address.retain(|known, _| *known == address || is_used(known));
            self.sweep_at = 2 * self.by_address.len();
        }
        Some(doubled)
    }
}

#[cfg(test)]
impl LongerIntervals {
    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { interval: None, timeout: Duration::from_secs(20), without_calls: false }
    }
}

/// The keepalive pings of a connection.
///
/// ```text
///            no call runs               silent for the interval          nothing is read in time
///   Dormant ◀──────────── Watching ──────────────────────────▶ Awaiting ────────────────────────▶ lost
///           ────────────▶          ◀──────────────────────────
///            a call runs                  anything is read
/// ```
pub(super) struct KeepAliveTimer {
    /// The time of silence before a ping.
    interval: Duration,
    /// The time for the response.
    timeout: Duration,
    /// Whether pings are sent while no call runs.
    without_calls: bool,
    /// The time of the last read.
    inbound: Arc<Inbound>,
    state: State,
    /// One timer for both states, reset when it is due and not at each read.
    timer: Pin<Box<Sleep>>,
}

/// The states drawn above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No pings, and no timer: an idle connection wakes nobody.
    Dormant,
    /// The timer runs until the peer may have been silent for the interval.
    Watching,
    /// A ping was sent at this time.
    Awaiting(Instant),
}

impl KeepAliveTimer {
    /// The pings of a connection by the settings, unless they are off.
    pub(super) fn new(settings: KeepAlive, inbound: &Arc<Inbound>) -> Option<Self> {
        let KeepAlive { interval, timeout, without_calls } = settings;
        let interval = interval?;
        let timer = Box::pin(sleep_until(due(inbound.last_read(), interval)));
        let (inbound, state) = (inbound.clone(), State::Watching);
        Some(Self { interval, timeout, without_calls, inbound, state, timer })
    }

    /// Sends pings when they are due. Ready when the peer has not answered in time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, has_calls: bool, pings: &mut PingPong) -> Poll<()> {
        let is_needed = has_calls || self.without_calls;
        loop {
            match self.state {
                State::Dormant if !is_needed => return Poll::Pending,
                State::Dormant => self.watch(),
                // Any bytes of the peer are an answer.
                State::Awaiting(sent) if self.inbound.last_read() >= sent => self.watch(),
                State::Watching | State::Awaiting(_) => {}
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match self.state {
                State::Awaiting(_) => return Poll::Ready(()),
                State::Dormant | State::Watching => self.on_timer(is_needed, pings),
            }
        }
    }

    /// Why the connection is lost.
    pub(super) fn reason(&self) -> String {
        format!("no answer to a keepalive ping within {:?}", self.timeout)
    }

    /// Handles the timer: the peer may have been silent for the interval.
    fn on_timer(&mut self, is_needed: bool, pings: &mut PingPong) {
        let now = Instant::now();
        if due(self.inbound.last_read(), self.interval) > now {
            self.watch();
        } else if is_needed {
            // An error means that the connection ends, or that an earlier ping is not answered yet, which will do as well.
            let _ = pings.send_ping(Ping::opaque());
            self.state = State::Awaiting(now);
            self.timer.as_mut().reset(due(now, self.timeout));
        } else {
            self.state = State::Dormant;
        }
    }

    /// Waits for silence, from the last read on.
    fn watch(&mut self) {
        self.state = State::Watching;
        self.timer.as_mut().reset(due(self.inbound.last_read(), self.interval));
    }
}

/// Returns a time that can be waited for: intervals that were doubled may be longer than the longest setting.
fn due(from: Instant, after: Duration) -> Instant {
    from + bounded(after)
}

/// The addresses without a connection whose intervals are kept: as many as a channel may lose connections to at a time, so that few of
/// them report too many pings again.
pub(super) const MAX_UNUSED_INTERVALS: usize = 1_024;
