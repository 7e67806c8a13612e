//! pick_first beside servers that accept, refuse, fall silent and go away, and lists that change, all from a seed.

use std::collections::BTreeMap;

use super::*;
use crate::balance::command::Command;

/// A network of ten addresses, and what is known of each connection.
struct World {
    pick_first: PickFirst<()>,
    commands: Commands,
    now: Instant,
    random: fastrand::Rng,
    list: Vec<u8>,
    /// Which addresses accept connections.
    accepts: [bool; 10],
    /// The attempts under way, with the time at which each is decided.
    attempts: BTreeMap<ConnectionId, (SocketAddr, Instant)>,
    /// The connections that are established and not drained.
    open: BTreeMap<ConnectionId, SocketAddr>,
}

#[test]
fn something_is_always_tried_or_waited_for() {
    let mut ready = 0;
    for seed in 0..2_000 {
        let mut world = World::new(seed);
        for _ in 0..100 {
            world.act();
            world.check();
            ready += u32::from(world.pick_first.ready().is_some());
        }
        world.heal();
    }
    assert!(ready > 20_000, "{ready}: the simulation must get at what it is for");
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            pick_first: PickFirst::new(PickFirstSettings::default()),
            commands: Commands::default(),
            now: Instant::now(),
            random: fastrand::Rng::with_seed(seed),
            list: Vec::new(),
            accepts: [true; 10],
            attempts: BTreeMap::new(),
            open: BTreeMap::new(),
        };
        world.change_list();
        world.pick_first.connect(&mut Scope::of_test(world.now, &mut world.random, &mut world.commands));
        world.obey();
        world
    }

    fn act(&mut self) {
        match self.random.u32(0..20) {
            0..2 => self.change_list(),
            2..5 => {
                let number = self.random.usize(0..10);
                self.accepts[number] = self.random.bool();
            }
            5..7 => {
                let number = self.random.usize(0..self.open.len().max(1));
                if let Some(connection) = self.open.keys().nth(number).copied() {
                    self.open.remove(&connection);
                    self.pick_first.on_lost(
                        connection,
                        &mut Scope::of_test(self.now, &mut self.random, &mut self.commands),
                    );
                }
            }
            7..9 => {
                self.pick_first.connect(&mut Scope::of_test(self.now, &mut self.random, &mut self.commands))
            }
            9 => self.pick_first.reset_backoff(&mut Scope::of_test(
                self.now,
                &mut self.random,
                &mut self.commands,
            )),
            _ => {
                let time = [100, 1_000, 30_000][self.random.usize(0..3)];
                let time = Duration::from_millis(self.random.u64(0..time));
                self.pass(time);
            }
        }
        self.obey();
    }

    fn change_list(&mut self) {
        let count = self.random.usize(0..6);
        self.list = (0..count).map(|_| self.random.u8(0..10)).collect();
        let addresses: Vec<_> = self.list.iter().copied().map(address).map(Destination::from).collect();
        let mut released = ReleasedConnections::new();
        self.pick_first.update(
            addresses,
            &mut released,
            &mut Scope::of_test(self.now, &mut self.random, &mut self.commands),
        );
        released.release(&mut self.commands);
        self.obey();
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        for step in 0.. {
            assert!(step < 10_000, "a timer is due again and again: {:?}", self.pick_first);
            let attempt = self.attempts.iter().map(|(id, (_, at))| (*at, Some(*id))).min();
            let timer = self.pick_first.poll_timeout().map(|at| (at.max(self.now), None));
            let Some((at, what)) = attempt.into_iter().chain(timer).min().filter(|(at, _)| *at <= until)
            else {
                break;
            };
            self.now = at;
            match what {
                None => self.pick_first.handle_timeout(&mut Scope::of_test(
                    self.now,
                    &mut self.random,
                    &mut self.commands,
                )),
                Some(connection) => self.decide(connection),
            }
            self.obey();
            self.check();
        }
        self.now = until;
    }

    fn decide(&mut self, connection: ConnectionId) {
        let Some((address, _)) = self.attempts.remove(&connection) else { return };
        let scope = &mut Scope::of_test(self.now, &mut self.random, &mut self.commands);
        if self.accepts[number(address)] {
            self.open.insert(connection, address);
            let streams = Streams::new((), usize::MAX);
            self.pick_first.on_connected(connection, streams, scope);
        } else {
            self.pick_first.on_failed(connection, "refused".into(), scope);
        }
    }

    fn obey(&mut self) {
        while let Some(command) = self.commands.poll() {
            match command {
                Command::Connect {
                    connection, destination: Destination { address, .. }, timeout, ..
                } => {
                    let taken = if self.random.u32(0..4) == 0 {
                        timeout
                    } else {
                        Duration::from_millis(self.random.u64(1..600))
                    };
                    let same = self.attempts.values().any(|(other, _)| *other == address);
                    assert!(!same, "two attempts to {address}");
                    self.attempts.insert(connection, (address, self.now + taken));
                }
                Command::Cancel { connection } => {
                    assert!(self.attempts.remove(&connection).is_some(), "it is no attempt");
                }
                Command::Drain { connection } => {
                    assert!(self.open.remove(&connection).is_some(), "it is no connection");
                }
                Command::WatchLoad { .. } | Command::UnwatchLoad { .. } => panic!("it has no weight"),
                Command::RequestReresolution => {}
            }
        }
    }

    fn check(&self) {
        let listed = |address: &SocketAddr| self.list.contains(&(number(*address) as u8));
        assert!(self.attempts.values().all(|(address, _)| listed(address)), "an address that is not listed");
        assert!(self.open.values().all(listed), "a connection to an address that is not listed");
        assert!(self.open.len() <= 1, "one connection: {:?}", self.open);
        assert_eq!(
            self.pick_first.ready().map(|it| it.connections[0].0),
            self.open.keys().next().copied(),
            "calls use the connection there is"
        );
        match self.pick_first.connectivity() {
            Connectivity::Idle | Connectivity::Ready => assert!(self.attempts.is_empty(), "nothing is tried"),
            Connectivity::Connecting => assert!(!self.attempts.is_empty(), "something is tried"),
            Connectivity::TransientFailure => {
                let waits = self.pick_first.poll_timeout().is_some();
                assert!(
                    self.list.is_empty() || waits || !self.attempts.is_empty(),
                    "nothing is tried any more"
                );
            }
        }
    }

    /// Every address accepts connections: one is ready within the longest backoff, and an attempt.
    fn heal(&mut self) {
        self.accepts = [true; 10];
        self.pick_first.connect(&mut Scope::of_test(self.now, &mut self.random, &mut self.commands));
        self.obey();
        self.pass(Duration::from_secs(144 + 144));
        let expected =
            if self.list.is_empty() { Connectivity::TransientFailure } else { Connectivity::Ready };
        assert_eq!(self.pick_first.connectivity(), expected, "{:?}", self.pick_first);
    }
}

fn number(address: SocketAddr) -> usize {
    match address.ip() {
        std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]),
        std::net::IpAddr::V6(_) => unreachable!("the world has no such addresses"),
    }
}
