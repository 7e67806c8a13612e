//! The settings that an application chooses, often at the ends of their ranges.

use std::{sync::Arc, time::Duration};

use crate::{
    backoff::BackoffSettings,
    balance::{backoff::ConnectSettings, clusters::ClusterConfigs, policies::PolicyLimits},
    config::bounded,
};

/// What a channel's builder sets.
#[derive(Debug)]
pub(super) struct Extremes {
    pub(super) backoff: ConnectSettings,
    ring_size_cap: u32,
    cluster_ring_entries: u32,
}

impl Extremes {
    pub(super) fn draw(random: &mut fastrand::Rng) -> Self {
        let (usual, delays) = (ConnectSettings::default(), BackoffSettings::default());
        let (shortest, longest) = (Duration::from_millis(1), bounded(Duration::MAX));
        let mut one_of = |usual, extremes: [Duration; 2]| match random.u8(..6) {
            0 => extremes[0],
            1 => extremes[1],
            _ => usual,
        };
        let delays = BackoffSettings {
            initial: one_of(delays.initial, [shortest, longest]),
            max: one_of(delays.max, [shortest, longest]),
            ..delays
        };
        let backoff = ConnectSettings {
            backoff: Arc::new(delays),
            min_connect_timeout: one_of(usual.min_connect_timeout, [Duration::ZERO, longest]),
        };
        Self {
            backoff,
            // Smaller rings leave endpoints out, also while a policy is replaced, which the model does not follow.
            ring_size_cap: [64, 64, 64, 4_096, 4_096, 4_096, 8_388_608][random.usize(..7)],
            cluster_ring_entries: [0, 1, 150, 65_536, u32::MAX][random.usize(..5)],
        }
    }

    /// Applies the limits of hash rings, as the configuration of a channel's clusters has them.
    pub(super) fn cap_rings(&self, configs: &mut ClusterConfigs) {
        let limits = PolicyLimits {
            table_entries: self.ring_size_cap,
            cluster_table_entries: self.cluster_ring_entries,
        };
        for leaf in configs.leaves.values_mut() {
            let limited = leaf.policy.policy.clone().limited(&limits);
            Arc::make_mut(leaf).policy.policy = limited;
        }
    }

    /// Whether delays between attempts may be longer than a run.
    pub(super) fn waits_long(&self) -> bool {
        let delays = &self.backoff.backoff;
        delays.initial.min(delays.max) > Duration::from_secs(1)
            || delays.max > BackoffSettings::default().max
            || self.backoff.min_connect_timeout > ConnectSettings::default().min_connect_timeout
    }
}
