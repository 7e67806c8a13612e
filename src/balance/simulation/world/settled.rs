//! The end of a world, when nothing fails any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    super::configs::{LEAVES, PORTS, TARGETS, address},
    World,
};
use crate::balance::{command::ConnectionId, picker::Pick};

impl World<'_> {
    /// With all backends up and time enough, each target uses the first priority with endpoints.
    pub(in crate::balance::simulation) fn settle(&mut self) {
        self.up = (1..=PORTS).map(address).collect();
        self.sick.clear();
        self.serve_waiting();
        self.end_calls(0);
        for _ in 0..400 {
            if self.extremes.waits_long() {
                self.balancer.reset_backoff(self.now);
            }
            while let Some(connection) = self.attempts.keys().next().copied() {
                self.decide(connection);
                self.drain();
            }
            self.wait(Duration::from_secs(1));
            self.pick();
            self.end_calls(0);
        }
        for target in TARGETS {
            let Some(pick) = self.picked_at_last(target) else { continue };
            let expected = self.expected(target);
            match (&pick, expected) {
                (Pick::Complete(attempt), Some(addresses)) => {
                    assert!(addresses.contains(&attempt.endpoint.destination()), "{pick:?} of {addresses:?}");
                    assert_eq!(self.unconnected(target), None, "{target}: an endpoint has no connection");
                }
                (Pick::Fail(_), None) => {}
                (Pick::Drop(..), _) => assert_eq!(self.is_wrong_drop(target), None, "{pick:?}"),
                (pick, expected) => panic!("{target}: {pick:?} instead of {expected:?}"),
            }
        }
        assert!(self.ejected.values().all(BTreeSet::is_empty), "no call fails: {:?}", self.ejected);
        for name in LEAVES {
            assert_eq!(self.running(name), 0, "{name}: calls are counted for ever");
            self.check_idle_hosts(&name.into());
        }
        self.check_loads();
        self.check_outdated();
    }

    /// Closes everything; says how often picks had each outcome.
    pub(in crate::balance::simulation) fn end(mut self) -> BTreeMap<&'static str, u64> {
        self.balancer.close(self.now);
        self.drain();
        assert!(self.attempts.is_empty() && self.connections.is_empty(), "everything is closed");
        assert!(self.balancer.is_unconnected(), "no connection is remembered");
        assert_eq!(self.balancer.poll_timeout(), None);
        self.outcomes
    }

    /// A pick after those that have to wait for their endpoints, all of which can be connected.
    fn picked_at_last(&mut self, target: &str) -> Option<Pick<ConnectionId>> {
        for _ in 0..100 {
            match self.picked(target) {
                Some(Pick::Queue) => {}
                other => return other,
            }
            while let Some(connection) = self.attempts.keys().next().copied() {
                self.decide(connection);
                self.drain();
            }
        }
        self.picked(target)
    }
}
