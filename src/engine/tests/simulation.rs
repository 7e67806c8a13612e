//! The engine against the server's session under one virtual clock, with faults from a seed.
//!
//! After each step the invariants of [`model`](super::model) hold; when the faults end, client and server agree within
//! the bound of the backoff.

use std::{convert::Infallible, time::Duration};

use super::{
    model::Model,
    network::{Network, Told},
    rig::{Full, Part, Rig, message},
    seeds::{family, with_seeds},
};
use crate::{
    base::WatchId,
    control_plane::{AnyResource, session::Held},
    engine::Selection,
    resource::{Resource, ResourceType},
};

#[test]
fn simulation_of_many_seeds() {
    with_seeds("simulation::simulation_of_many_seeds", |seed| World::new(seed).run());
}

/// Both sides, the network between them, and what should be seen.
struct World {
    network: Network<Infallible>,
    versions: usize,
    views: u64,
    model: Model,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            network: Network::new(seed, Rig::new(), family().without_nacks().settings(seed)),
            versions: 0,
            views: 0,
            model: Model::default(),
        }
    }

    fn run(mut self) {
        for _ in 0..self.network.random.usize(20..120) {
            self.act();
            let pause = [0, 1, 5, 50, 1_000, 20_000][self.network.random.usize(0..6)];
            let pause = self.network.random.u64(0..=pause);
            self.pass(Duration::from_millis(pause));
        }
        self.network.heal();
        // The longest backoff, the does-not-exist time, and the longest delay of an answer.
        self.pass(Duration::from_secs(150 + 15 + 15));
        self.model.check_convergence(&self.network);
    }

    /// One thing that an application, an operator or the network does.
    fn act(&mut self) {
        match self.network.random.u32(0..100) {
            0..25 => self.watch(),
            25..40 => self.unwatch(),
            40..70 => self.change(),
            70..78 => self.network.cut(),
            78..82 => self.network.down = !self.network.down,
            82..90 => self.hold(),
            90..94 => self.network.misbehave(),
            _ => {}
        }
    }

    fn watch(&mut self) {
        self.views += 1;
        let view = WatchId::new(self.views);
        let name = self.name();
        let (ty, names) = match self.network.random.u32(0..10) {
            0 => (ResourceType::of::<Full>(), Selection::All),
            1..6 => (ResourceType::of::<Full>(), Selection::One(name.as_str().into())),
            _ => (ResourceType::of::<Part>(), Selection::One(name.as_str().into())),
        };
        let watched = matches!(names, Selection::One(_)).then_some(name);
        self.model.on_watch(view, ty.type_url(), watched);
        let now = self.network.now();
        self.network.engine().subscribe(view, ty, names, now);
    }

    fn unwatch(&mut self) {
        if let Some(view) = self.model.any_view(&mut self.network.random) {
            self.model.on_unwatch(view);
            let now = self.network.now();
            self.network.engine().unsubscribe(view, now);
        }
    }

    /// The operator changes some resources.
    fn change(&mut self) {
        for _ in 0..self.network.random.usize(1..4) {
            self.versions += 1;
            let name = self.name();
            let type_url = if self.network.random.bool() { Full::TYPE_URL } else { Part::TYPE_URL };
            let text = match self.network.random.u32(0..10) {
                0..2 => None,
                2..4 => Some("bad".to_owned()),
                _ => Some(format!("text {}", self.versions)),
            };
            self.network.store.update(|tx| match &text {
                Some(text) => drop(tx.set(AnyResource::new(type_url, name.as_str(), message(&name, text)))),
                None => drop(tx.remove(type_url, &name)),
            });
            self.model.on_change(type_url, &name, text);
        }
        self.network.serve();
    }

    fn hold(&mut self) {
        let held = match self.network.random.u32(0..4) {
            0 => Held::all(),
            1 => {
                let mut held = Held::none();
                held.hold(if self.network.random.bool() { Full::TYPE_URL } else { Part::TYPE_URL });
                held
            }
            _ => Held::none(),
        };
        self.network.hold(held);
    }

    /// Lets time pass, with everything that happens in it on both sides.
    fn pass(&mut self, time: Duration) {
        let until = self.network.now() + time;
        while let Some(told) = self.network.poll(until) {
            match told {
                Told::Published(view, observed) => {
                    self.model.on_notify(view, &observed, self.network.is_repeated());
                }
                Told::Lookup(..) => unreachable!("no target is resolved"),
                Told::Due(never) => match never {},
            }
        }
    }

    fn name(&mut self) -> String {
        format!("r{}", self.network.random.u32(0..8))
    }
}
