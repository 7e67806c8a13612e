//! What a seed decides.

use std::time::Duration;

use fastrand::Rng;

use super::{
    application::{Application, Cancel, Reading, Sending},
    behavior::{Behavior, GoAwayStyle, Quirk, Real},
    crowd::{self, Crowd},
    defect::{Defect, Defects},
    frames,
    pipe::Link,
    plan::PlanEnd,
    settings::BuilderSetting,
};
use crate::pb::envoy::config::cluster::v3::cluster::LbPolicy;

/// A run.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) duration: Duration,
    pub(super) link: Link,
    /// The endpoint of the applications, and of the calls beside them.
    pub(super) near: Behavior,
    pub(super) crowds: Vec<Crowd>,
    pub(super) settings: Vec<BuilderSetting>,
    /// What happens to the connections to the endpoint.
    pub(super) fault: Option<Fault>,
    /// The endpoints of a preferred priority.
    pub(super) silent: usize,
    pub(super) silence: Silence,
    /// Further endpoints of the cluster, which behave well.
    pub(super) others: usize,
    pub(super) policy: LbPolicy,
    /// The connections to an endpoint that the cluster permits.
    pub(super) max_connections: u32,
    /// The longest time of the applications' calls, by their route.
    pub(super) max_stream_duration: Option<Duration>,
    /// Whether the route of the applications has a retry policy.
    pub(super) retries: bool,
    /// Whether endpoints come and go, which are never used.
    pub(super) churns: bool,
    /// Whether the channel is shut down at the end, or dropped.
    pub(super) shuts_down: bool,
}

/// A fault of the network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    pub(super) after: Duration,
    /// Bytes are lost, and neither end is informed.
    pub(super) is_silent: bool,
}

/// What the endpoints of the preferred priority do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// They accept connections, and send nothing.
    Accepts,
    /// They do not answer at all.
    Ignores,
    Refuses,
}

impl Script {
    pub(super) fn draw(random: &mut Rng, defects: &Defects) -> Self {
        let link = Link {
            delay: Duration::from_millis([0, 1, 5, 20, 50][random.usize(..5)]),
            bytes_per_ms: [4 << 10, 20 << 10, 100 << 10][random.usize(..3)],
            capacity: [16 << 10, 64 << 10, 256 << 10][random.usize(..3)],
        };
        let near = behavior(random, defects);
        let mut crowds: Vec<_> =
            (0..1 + random.usize(..3)).map(|_| crowd::draw(random, &link, defects)).collect();
        let streams = near.fewest_streams();
        if (1..=10).contains(&streams) && random.bool() {
            crowds.push(crowd::holding(streams as usize));
        }
        let fault = (random.usize(..10) == 0).then(|| Fault {
            after: Duration::from_millis(500 + random.u64(..3_000)),
            is_silent: random.bool(),
        });
        let settings = (0..random.usize(..3)).filter_map(|_| BuilderSetting::draw(random, defects)).collect();
        let silent = match random.usize(..12) {
            0 if defects.is_on(Defect::SilentEndpoints) => 300,
            0 => 20,
            1 => 3,
            _ => 0,
        };
        let policy = [LbPolicy::RoundRobin, LbPolicy::LeastRequest, LbPolicy::RingHash][random.usize(..3)];
        let has_limit = random.usize(..8) == 0 && defects.is_on(Defect::DeadlineOfBodies);
        let churns = random.usize(..8) == 0;
        let seconds = if silent > 0 { 14 } else { 2 + random.u64(..6) };
        let mut script = Self {
            duration: Duration::from_secs(seconds),
            link,
            near,
            crowds,
            settings,
            fault,
            silent,
            silence: [Silence::Accepts, Silence::Ignores, Silence::Refuses][random.usize(..3)],
            others: random.usize(..6) / 3,
            policy,
            max_connections: [1, 1, 3][random.usize(..3)],
            max_stream_duration: has_limit.then(|| Duration::from_millis(500 + random.u64(..1_000))),
            retries: random.usize(..4) == 0,
            churns,
            shuts_down: random.bool(),
        };
        script.leave_out_known(defects);
        script
    }

    /// What brings about defects by several of its parts together.
    fn leave_out_known(&mut self, defects: &Defects) {
        if !defects.is_on(Defect::SilentEndpoints) && self.silent > 0 {
            self.settings.retain(|setting| setting.slots().is_none());
        }
        // Each frame has its price, also in the simulation.
        let frame = self.near.frame();
        if frame < 256 {
            let frames = if defects.is_on(Defect::SmallFrames) { 15_000 } else { 1_000 };
            self.crowds.iter_mut().for_each(|crowd| crowd.limit_bytes(frame * frames));
        }
        // Attempts that never end beside those that nobody delays would never let time pass.
        if self.silent > 0 {
            self.settings.retain(|setting| !setting.connects_without_delay());
        }
    }

    /// How long a call beside the applications may take, once there is a connection.
    pub(super) fn bound(&self) -> Duration {
        let bytes: usize = self.crowds.iter().map(Crowd::bytes_per_turn).sum();
        // Headers, a message and trailers have a turn each.
        Duration::from_secs(1) + 8 * self.link.delay + self.link.time_of(3 * bytes)
    }

    /// How long the first call may take.
    pub(super) fn first_bound(&self) -> Duration {
        let slots = if self.has_few_slots() { SLOT * 2 } else { Duration::ZERO };
        let failover = if self.silent > 0 { FAILOVER } else { Duration::ZERO };
        self.bound() + 8 * self.link.delay + failover + slots
    }

    /// Whether attempts to connect wait for others.
    pub(super) fn has_few_slots(&self) -> bool {
        self.silent > 0 && self.settings.iter().filter_map(|setting| setting.slots()).any(|slots| slots < 256)
    }

    /// Why calls beside the applications may wait, or fail: the server limits connections or streams, as the protocol permits, or the
    /// settings forbid what would help. `None` if they may not.
    pub(super) fn excuse(&self) -> Option<&'static str> {
        let setting =
            |condition: fn(BuilderSetting) -> bool| self.settings.iter().any(|setting| condition(*setting));
        let goes_away = self.near.has(|quirk| matches!(quirk, Quirk::GoAway { .. }));
        // The h2 crate answers the trailers that follow a reset of the server by a reset of its own.
        let crosses = |crowd: &Crowd| self.near.goes_on_after_reset() && crowd.is_reset_by_server();
        let resets =
            self.crowds.iter().any(|crowd| crowd.resets_streams() || crosses(crowd)) || self.times_out();
        let uploads = self.crowds.iter().any(|crowd| crowd.application.sending != Sending::Unary);
        let streams: usize = self.crowds.iter().map(|crowd| crowd.count).sum();
        let reasons = [
            (self.near.breaks_connections(), "connections break"),
            (self.fault.is_some(), "the network breaks"),
            (streams + OWN >= self.near.fewest_streams() as usize, "streams"),
            (self.near.max_resets().is_some() && resets, "resets"),
            (uploads && self.near.has(|quirk| *quirk == Quirk::NeverOpensConnection), "window"),
            (setting(BuilderSetting::limits_queue), "queue"),
            (goes_away && setting(BuilderSetting::keeps_no_requests), "nothing is kept"),
            (goes_away && setting(BuilderSetting::connects_once), "connects once"),
            (goes_away && self.has_few_slots(), "slots"),
            (self.has_lone_ring_entry(), "ring"),
        ];
        reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
    }

    /// Whether the time limit of the route may end calls: while they wait for a connection behind silent endpoints, or for who reads late.
    fn times_out(&self) -> bool {
        let reads_late = |crowd: &Crowd| {
            matches!(crowd.application.reading, Reading::Slowly(_) | Reading::Late(_) | Reading::Held(_))
        };
        self.max_stream_duration.is_some() && (self.silent > 0 || self.crowds.iter().any(reads_late))
    }

    /// Whether a ring has one entry for several endpoints, of which the others are then never picked (A42).
    fn has_lone_ring_entry(&self) -> bool {
        let is_small = self.settings.contains(&BuilderSetting::RingSizeCap(0));
        self.policy == LbPolicy::RingHash && is_small && self.silent + self.others > 0
    }

    /// Whether a call that was never sent can always be sent on another connection.
    pub(super) fn sends_again(&self) -> bool {
        let hinders = |setting: &BuilderSetting| {
            setting.limits_queue() || setting.connects_once() || setting.keeps_no_requests()
        };
        // A fault of the network loses what was sent.
        let is_hindered = self.fault.is_some() || self.silent > 0 || self.has_lone_ring_entry();
        self.near.serves_again() && !is_hindered && !self.settings.iter().any(hinders)
    }
}

/// The behavior of the endpoint.
fn behavior(random: &mut Rng, defects: &Defects) -> Behavior {
    let real = Real::ALL[random.usize(..Real::ALL.len())];
    let mut quirks: Vec<_> = (0..random.usize(..3)).filter_map(|_| quirk(random, defects)).collect();
    if random.usize(..12) == 0 {
        // What waits for a stream when the connection ends.
        let after = Duration::from_millis(1_500 + random.u64(..2_000));
        let style = GoAwayStyle::Error { code: frames::NO_ERROR, debug: 0 };
        let end = [Quirk::Cut { after }, Quirk::GoAway { after, style }][random.usize(..2)];
        quirks.extend([Quirk::MaxStreams([1, 2, 5, 10][random.usize(..4)]), end]);
    }
    Behavior::of(real).with(quirks)
}

fn quirk(random: &mut Rng, defects: &Defects) -> Option<Quirk> {
    let after = Duration::from_millis(500 + random.u64(..3_000));
    let few = [1, 2, 5, 10, 100][random.usize(..5)];
    Some(match random.usize(..17) {
        0 => Quirk::SmallStreamWindow([0, 16, 1_000][random.usize(..3)]),
        1 => Quirk::NeverOpensStreams,
        2 => Quirk::NeverOpensConnection,
        3 | 4 => Quirk::MaxStreams(few),
        5 => Quirk::ChangesMaxStreams { after, to: [0, few, u32::MAX][random.usize(..3)] },
        6 => Quirk::LimitsResets([20, 200][random.usize(..2)]),
        7 => Quirk::GoAway { after, style: GoAwayStyle::TwoSteps },
        8 => Quirk::GoAway { after, style: GoAwayStyle::OneStep },
        9 => {
            let debug = [0, 10, 5_000][random.usize(..3)];
            Quirk::GoAway { after, style: GoAwayStyle::Error { code: random.u32(..14), debug } }
        }
        10 => Quirk::NoPong,
        11 => Quirk::LatePong(Duration::from_millis(random.u64(..2_000))),
        12 => Quirk::SmallFrames([1, 100, 1_000][random.usize(..3)]),
        13 => Quirk::Silent { after },
        14 => Quirk::Cut { after },
        15 => Quirk::HeaderLimit([4 << 10, 8 << 10][random.usize(..2)]),
        _ if !defects.is_on(Defect::InstantReconnects) => return None,
        _ => {
            let after = Duration::from_millis([0, 1, 20][random.usize(..3)]);
            [Quirk::GoAwayAfterSettings(after), Quirk::EndsAfterSettings(after)][random.usize(..2)]
        }
    })
}

impl Crowd {
    /// Whether calls end before their streams.
    pub(super) fn resets_streams(&self) -> bool {
        let Application { reading, deadline, cancel, sending, plan, .. } = &self.application;
        deadline.is_some()
            || *cancel != Cancel::Never
            || matches!(reading, Reading::DropAfter(_))
            || (*sending != Sending::Unary && plan.is_early)
    }

    /// Whether the server ends calls by a reset.
    fn is_reset_by_server(&self) -> bool {
        self.application.plan.end == PlanEnd::Reset
    }
}

/// The time after which the next priority is used (A56).
const FAILOVER: Duration = Duration::from_secs(10);
/// The longest time that an attempt to connect has its slot.
const SLOT: Duration = Duration::from_secs(2);
/// The streams of the calls beside the applications.
const OWN: usize = 30;
