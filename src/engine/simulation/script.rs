//! The operations in a simulated world, as a list that can be generated, found by a fuzzer, and printed.

use std::time::Duration;

use super::parts::{Full, Part};
use crate::resource::{Resource, ResourceType};

/// A world by its seed, and what is done in it. Numbers stand for what there is, modulo how much there is.
#[derive(Debug, Clone)]
pub struct Script {
    /// Decides on the servers, the authorities, and all that the network does by chance.
    pub(super) seed: u64,
    /// Which servers there are.
    pub(super) servers: Servers,
    /// What is done, one after the other.
    pub(super) operations: Vec<Operation>,
}

/// The servers of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Servers {
    /// Several of them for several authorities, in both variants of the protocol.
    Several,
    /// One of the state of the world, with one authority, more names, and a worse network.
    One,
}

/// One thing that an application, an operator or the network does.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    /// An application watches a resource.
    Watch {
        /// Its type.
        ty: Ty,
        /// Its authority: the one of old-style names, or one of two others.
        authority: u8,
        /// The number in its name.
        name: u8,
    },
    /// An application watches everything of a type.
    WatchAll,
    /// A watch ends.
    Unwatch(u8),
    /// An operator changes a resource on some servers.
    Change {
        /// The bits of the servers.
        servers: u8,
        /// The type.
        ty: Ty,
        /// The authority.
        authority: u8,
        /// The number in the name.
        name: u8,
        /// What it becomes.
        text: Text,
    },
    /// An operator changes some resources of all servers at once, of the authority of old-style names.
    ChangeAtOnce(Vec<(Ty, u8, Text)>),
    /// A server accepts no new streams from now on, or does so again. Its open stream stays.
    ToggleAccept(u8),
    /// A server or its network gets better or worse.
    SetMode(u8, ServerMode),
    /// A stream ends.
    Cut(u8),
    /// A server starts again, with what it had at some time.
    Restart(u8, u8),
    /// A server sends a faulty response.
    Fault(u8, Fault),
    /// Time passes: a fraction of one of several lengths.
    Pass(u8, u8),
    /// All faults end but for some servers, by their bits, which stay away; and long after, everything is checked.
    Heal(u8),
}

/// A type of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ty {
    /// Its responses are complete.
    Full,
    /// Its responses hold what is new.
    Part,
}

/// What becomes of a resource.
#[derive(Debug, Clone, Copy)]
pub(super) enum Text {
    /// A valid content that no resource had before.
    Good,
    /// An invalid content.
    Bad,
    /// No resource any more.
    Gone,
}

/// How a server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerMode {
    /// No faults of its own.
    Normal,
    /// Connections are refused, and an open stream ends at once.
    Refusing,
    /// Connecting takes long and comes to nothing.
    Hanging,
    /// Streams and requests are accepted, and nothing is sent.
    Silent,
    /// Nothing of one type is sent.
    SilentFor(Ty),
    /// Its responses take long.
    Slow,
    /// Its streams break soon after they came about.
    Flapping,
    /// Nothing is transferred in either direction; only the keepalive detects it.
    HalfOpen,
}

/// A faulty response of a server.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// A message that cannot be decoded.
    Garbage,
    /// A response of an unknown type.
    UnknownType,
    /// Random bytes, or a response of an unknown type without a version and a nonce.
    RandomBytes,
    /// The last response once more.
    Repeat,
    /// A name twice.
    DuplicateName(Ty),
    /// A resource of another type.
    WrongType(Ty),
    /// An error in place of a resource, with a code by number.
    Error(Ty, u8),
}

impl Script {
    /// The script that some bytes stand for: any do, six for an operation and a pause.
    pub fn of(seed: u64, bytes: &[u8]) -> Self {
        let mut operations = Vec::with_capacity(bytes.len() / 3);
        for step in bytes.as_chunks::<6>().0 {
            let [kind, a, b, c, length, part] = *step;
            operations.extend(Operation::of(kind, [a, b, c]));
            operations.push(Operation::Pass(length, part));
        }
        Self { seed, servers: Servers::Several, operations }
    }

    /// A script by chance.
    pub fn random(seed: u64) -> Self {
        Self::of(seed, &Self::random_bytes(seed))
    }

    /// A script by chance for a world with one server of the state of the world.
    pub fn of_one_server(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let mut operations = Vec::new();
        for _ in 0..random.usize(20..120) {
            operations.extend(Operation::random_of_one(&mut random));
            operations.push(Operation::Pass(random.u8(0..6), random.u8(..)));
        }
        Self { seed, servers: Servers::One, operations }
    }

    /// The bytes of a script by chance.
    pub fn random_bytes(seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let count = random.usize(20..120);
        (0..6 * count).map(|_| random.u8(..)).collect()
    }
}

impl Operation {
    /// What is done, as often as its kind has numbers.
    fn of(kind: u8, [a, b, c]: [u8; 3]) -> Option<Self> {
        let ty = Ty::of(a);
        Some(match kind {
            0..62 => Self::Watch { ty, authority: b, name: c },
            62..70 => Self::WatchAll,
            70..98 => Self::Unwatch(a),
            98..160 => {
                // Most servers have most of it.
                let servers = (a >> 1) | (a >> 4);
                let text = match c >> 5 {
                    0 => Text::Gone,
                    1 => Text::Bad,
                    _ => Text::Good,
                };
                Self::Change { servers, ty, authority: b, name: c, text }
            }
            160..198 => Self::SetMode(a, ServerMode::of(b, c)),
            198..211 => Self::Cut(a),
            211..216 => Self::Restart(a, b),
            216..239 => Self::Fault(a, Fault::of(b, c)),
            239..244 => Self::Heal(a & b),
            244.. => return None,
        })
    }

    /// What is done in a world with one server.
    fn random_of_one(random: &mut fastrand::Rng) -> Option<Self> {
        let mut ty = || Ty::of(random.u8(..));
        let (watched, mute) = (ty(), ty());
        Some(match random.u32(0..100) {
            0..3 => Self::WatchAll,
            3..25 => Self::Watch { ty: watched, authority: 0, name: random.u8(..) },
            25..40 => Self::Unwatch(random.u8(..)),
            40..70 => {
                let text = |random: &mut fastrand::Rng| match random.u32(0..10) {
                    0..2 => Text::Gone,
                    2..4 => Text::Bad,
                    _ => Text::Good,
                };
                let count = random.usize(1..4);
                let change = |_| (Ty::of(random.u8(..)), random.u8(..), text(random));
                Self::ChangeAtOnce((0..count).map(change).collect())
            }
            70..78 => Self::Cut(0),
            78..82 => Self::ToggleAccept(0),
            82..84 => Self::SetMode(0, ServerMode::Silent),
            84..86 => Self::SetMode(0, ServerMode::SilentFor(mute)),
            86..90 => Self::SetMode(0, ServerMode::Normal),
            90..94 => {
                Self::Fault(0, [Fault::RandomBytes, Fault::RandomBytes, Fault::Repeat][random.usize(0..3)])
            }
            _ => return None,
        })
    }

    /// How much time passes.
    ///
    /// From nothing to 20 s, more than the does-not-exist time, so that all orders of messages, timers and operations occur.
    pub(super) fn pause(length: u8, part: u8) -> Duration {
        let longest = [0, 1, 5, 50, 1_000, 20_000][usize::from(length) % 6];
        Duration::from_micros(longest * 1_000 * u64::from(part) / 255)
    }
}

impl Ty {
    pub(super) const ALL: [Self; 2] = [Self::Full, Self::Part];

    pub(super) fn url(self) -> &'static str {
        match self {
            Self::Full => Full::TYPE_URL,
            Self::Part => Part::TYPE_URL,
        }
    }

    pub(super) fn resource(self) -> ResourceType {
        match self {
            Self::Full => ResourceType::of::<Full>(),
            Self::Part => ResourceType::of::<Part>(),
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Full => Self::Part,
            Self::Part => Self::Full,
        }
    }

    fn of(number: u8) -> Self {
        Self::ALL[usize::from(number & 1)]
    }
}

impl ServerMode {
    fn of(kind: u8, number: u8) -> Self {
        match kind % 12 {
            0 | 1 => Self::Refusing,
            2 => Self::Hanging,
            3 => Self::Silent,
            4 => Self::SilentFor(Ty::of(number)),
            5 => Self::Slow,
            6 => Self::Flapping,
            7 => Self::HalfOpen,
            _ => Self::Normal,
        }
    }
}

impl Fault {
    fn of(kind: u8, number: u8) -> Self {
        let ty = Ty::of(kind >> 4);
        match kind % 9 {
            0 => Self::Garbage,
            1 => Self::UnknownType,
            2 | 3 => Self::Repeat,
            4 => Self::DuplicateName(ty),
            5 => Self::WrongType(ty),
            _ => Self::Error(ty, number),
        }
    }
}
