//! Settings of the channel at their extremes.

use std::time::Duration;

use fastrand::Rng;

use super::defect::{Defect, Defects};
use crate::channel::ChannelBuilder;

/// A setting of the builder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum BuilderSetting {
    IdleTimeout(Duration),
    WaitForReady(bool),
    MaxQueued(usize),
    RetryBuffer { per_call: usize, per_channel: usize },
    MaxAttempts(u32),
    RetryThrottle { tokens: u32, ratio: f64 },
    MaxConcurrentConnects(usize),
    RingSizeCap(u32),
    MaxConnectionsCap(usize),
    ConnectBackoff { initial: Duration, max: Duration },
    ConnectTimeout(Duration),
    KeepAliveInterval(Duration),
    KeepAliveTimeout(Duration),
    KeepAliveWithoutCalls(bool),
    DrainLimit(Duration),
    ShareConnections(bool),
}

impl BuilderSetting {
    /// Any setting at one of its extremes, but for those that a defect does not permit.
    pub(super) fn draw(random: &mut Rng, defects: &Defects) -> Option<Self> {
        let extreme = [Duration::ZERO, Duration::from_secs(1), Duration::MAX][random.usize(..3)];
        let number = [0, 1, usize::MAX][random.usize(..3)];
        let setting = match random.usize(..16) {
            0 => Self::IdleTimeout(extreme),
            1 => Self::WaitForReady(random.bool()),
            2 => Self::MaxQueued(number),
            3 => Self::RetryBuffer { per_call: number, per_channel: [0, usize::MAX][random.usize(..2)] },
            4 => Self::MaxAttempts([0, 1, u32::MAX][random.usize(..3)]),
            5 => Self::RetryThrottle { tokens: [1, 1_000][random.usize(..2)], ratio: 0.001 },
            6 => Self::MaxConcurrentConnects(number),
            7 => Self::RingSizeCap([0, u32::MAX][random.usize(..2)]),
            8 => Self::MaxConnectionsCap(number),
            9 => Self::ConnectBackoff { initial: extreme, max: extreme },
            10 => Self::ConnectTimeout(extreme.max(Duration::from_secs(1))),
            11 => Self::KeepAliveInterval(extreme),
            // The answer to a PING takes a round trip.
            12 => Self::KeepAliveTimeout(extreme.max(Duration::from_secs(1))),
            13 => Self::KeepAliveWithoutCalls(random.bool()),
            14 => Self::DrainLimit(extreme),
            _ => Self::ShareConnections(random.bool()),
        };
        let ends_task = matches!(
            setting,
            Self::IdleTimeout(Duration::MAX) | Self::ConnectBackoff { initial: Duration::MAX, .. }
        );
        (!ends_task || defects.is_on(Defect::LongestDurations)).then_some(setting)
    }

    pub(super) fn apply(self, builder: ChannelBuilder) -> ChannelBuilder {
        match self {
            Self::IdleTimeout(time) => builder.idle_timeout(time),
            Self::WaitForReady(wait) => builder.wait_for_ready(wait),
            Self::MaxQueued(calls) => builder.max_queued(calls),
            Self::RetryBuffer { per_call, per_channel } => builder.retry_buffer(per_call, per_channel),
            Self::MaxAttempts(attempts) => builder.max_attempts(attempts),
            Self::RetryThrottle { tokens, ratio } => builder.retry_throttle(tokens, ratio),
            Self::MaxConcurrentConnects(attempts) => builder.max_concurrent_connects(attempts),
            Self::RingSizeCap(entries) => builder.ring_size_cap(entries),
            Self::MaxConnectionsCap(connections) => builder.max_connections_cap(connections),
            Self::ConnectBackoff { initial, max } => builder.connect_backoff(initial, max),
            Self::ConnectTimeout(timeout) => builder.connect_timeout(timeout),
            // Without a second setting there are no pings.
            Self::KeepAliveInterval(interval) => builder.keep_alive_interval(interval),
            Self::KeepAliveTimeout(timeout) => {
                builder.keep_alive_interval(Duration::from_secs(10)).keep_alive_timeout(timeout)
            }
            Self::KeepAliveWithoutCalls(enabled) => {
                builder.keep_alive_interval(Duration::from_secs(10)).keep_alive_while_idle(enabled)
            }
            Self::DrainLimit(limit) => builder.drain_limit(limit),
            Self::ShareConnections(share) => builder.share_connections(share),
        }
    }

    /// Calls that wait may fail at once.
    pub(super) fn limits_queue(self) -> bool {
        matches!(self, Self::MaxQueued(0 | 1))
    }

    /// Requests that were not processed may not be sent again.
    pub(super) fn keeps_no_requests(self) -> bool {
        matches!(self, Self::RetryBuffer { per_call: 0 | 1, .. } | Self::RetryBuffer { per_channel: 0, .. })
    }

    /// There may be no second attempt to connect.
    pub(super) fn connects_once(self) -> bool {
        matches!(self, Self::ConnectBackoff { initial: Duration::MAX, .. })
    }

    /// Connections to sick endpoints are attempted without delay, as configured.
    pub(super) fn connects_without_delay(self) -> bool {
        matches!(self, Self::ConnectBackoff { initial: Duration::ZERO, .. })
    }

    pub(super) fn slots(self) -> Option<usize> {
        let Self::MaxConcurrentConnects(attempts) = self else { return None };
        Some(attempts.max(1))
    }

    pub(super) fn kept_of_one_call(self) -> Option<usize> {
        let Self::RetryBuffer { per_call, per_channel } = self else { return None };
        Some(per_call.min(per_channel))
    }
}
