//! Applications of one kind, many at a time.

use std::time::Duration;

use fastrand::Rng;

use super::{
    application::{Application, Cancel, Reading, Sending},
    defect::{Defect, Defects},
    pipe::Link,
    plan::{Plan, PlanEnd},
};

/// Equal applications.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    pub(super) application: Application,
    pub(super) count: usize,
    /// The calls of each application, one after the other.
    pub(super) rounds: usize,
    /// When they begin.
    pub(super) begin: Duration,
}

impl Crowd {
    /// The bytes that go before a frame of another stream, if each stream has one turn.
    pub(super) fn bytes_per_turn(&self) -> usize {
        let Application { plan, sending, metadata, .. } = &self.application;
        let response = plan.frame.min(plan.size + 5).min(16 << 10) + plan.metadata;
        let request = match sending {
            Sending::Endless { size, .. } => *size,
            Sending::Unary | Sending::AfterResponse | Sending::SmallParts(_) => 64,
        };
        self.count * (response + request.min(16 << 10) + metadata + 100)
    }
}

impl Crowd {
    /// Limits the bytes of all responses at a time.
    pub(super) fn limit_bytes(&mut self, bytes: usize) {
        let (plan, bytes) = (&mut self.application.plan, bytes / self.count);
        plan.size = plan.size.min(bytes);
        plan.messages = plan.messages.min((bytes / (plan.size + 5)).max(1) as u32);
    }
}

/// Any crowd, but for those that a known defect does not permit.
pub(super) fn draw(random: &mut Rng, link: &Link, defects: &Defects) -> Crowd {
    let mut crowd = match random.usize(..10) {
        0 | 1 => unread(random, defects),
        2 => cancelled(random, link, defects),
        3 => small_messages(random, defects),
        4 => uploads(random),
        5 => large_metadata(random, defects),
        6 => small_parts(random, defects),
        7 => downloads(random),
        8 => failing(random),
        _ => after_deadline(random, defects),
    };
    crowd.application.moves = random.usize(..4) == 0;
    crowd.begin = Duration::from_millis(200 + random.u64(..800));
    crowd
}

/// Responses that have begun, and are held: so many streams.
pub(super) fn holding(streams: usize) -> Crowd {
    let plan = Plan { is_early: true, end: PlanEnd::Open, ..Plan::unary(Duration::ZERO) };
    let mut crowd = crowd(plan);
    crowd.count = streams;
    crowd.application.reading = Reading::Held(1);
    crowd.begin = Duration::from_millis(200);
    crowd
}

fn crowd(plan: Plan) -> Crowd {
    let application = Application {
        plan,
        sending: Sending::Unary,
        reading: Reading::AtOnce,
        deadline: None,
        cancel: Cancel::Never,
        metadata: 0,
        moves: false,
    };
    Crowd { application, count: 1, rounds: 1, begin: Duration::ZERO }
}

fn millis(random: &mut Rng, below: u64) -> Duration {
    Duration::from_millis(random.u64(..below))
}

/// Streams that are read slowly, late, or never.
fn unread(random: &mut Rng, defects: &Defects) -> Crowd {
    let size = [1_000, 16 << 10, 64 << 10][random.usize(..3)];
    let plan = Plan {
        messages: [1, 5, u32::MAX][random.usize(..3)],
        size,
        is_early: true,
        end: [PlanEnd::Ok, PlanEnd::Open][random.usize(..2)],
        ..Plan::unary(millis(random, 10))
    };
    let mut crowd = crowd(plan);
    crowd.count = 1 + random.usize(..12);
    crowd.application.reading = match random.usize(..4) {
        0 => Reading::Slowly(Duration::from_millis(50)),
        1 => Reading::Late(Duration::from_secs(2)),
        _ => Reading::Held(random.usize(..3)),
    };
    if !defects.is_on(Defect::UnreadResponses) {
        crowd.limit_bytes(MAX_UNREAD);
    }
    crowd
}

/// Calls that end before their responses arrive, or while these do.
fn cancelled(random: &mut Rng, link: &Link, defects: &Defects) -> Crowd {
    let plan = Plan::unary(millis(random, 50));
    let mut crowd = crowd(plan);
    let (count, rounds) = if defects.is_on(Defect::CancelledCalls) { (300, 6) } else { (15, 1) };
    (crowd.count, crowd.rounds) = (1 + random.usize(..count), 1 + random.usize(..rounds));
    let time = plan.delay + 2 * link.delay;
    let earlier = millis(random, 1 + link.delay.as_millis() as u64);
    match random.usize(..4) {
        0 => crowd.application.cancel = Cancel::AfterPolls(random.usize(..6)),
        1 => crowd.application.cancel = Cancel::AfterTime(time.saturating_sub(earlier)),
        2 => {
            crowd.application.reading = Reading::DropAfter(random.usize(..2));
            crowd.application.plan.messages = 20;
        }
        _ => {
            let deadline = time.saturating_sub(earlier).max(Duration::from_millis(1));
            crowd.application.deadline = Some(deadline);
        }
    }
    crowd
}

/// Many small messages, which wait until the application has time for them.
fn small_messages(random: &mut Rng, defects: &Defects) -> Crowd {
    let plan = Plan {
        messages: 100 + random.u32(..400),
        size: 10 + random.usize(..90),
        frame: 128,
        is_early: true,
        ..Plan::unary(Duration::ZERO)
    };
    let mut crowd = crowd(plan);
    crowd.count = 1 + random.usize(..40);
    crowd.application.reading = match random.usize(..3) {
        0 => Reading::AtOnce,
        1 => Reading::OtherTask,
        _ => Reading::Late(Duration::from_millis(500 + random.u64(..1_500))),
    };
    if !defects.is_on(Defect::SmallFrames) {
        crowd.application.plan.messages = plan.messages.min(3_000 / crowd.count as u32);
    }
    crowd
}

/// Requests that do not end by themselves, or only after the response.
fn uploads(random: &mut Rng) -> Crowd {
    let plan = Plan {
        is_early: random.bool(),
        messages: random.u32(..3),
        end: [PlanEnd::Ok, PlanEnd::Open, PlanEnd::Reset, PlanEnd::TrailersAlone][random.usize(..4)],
        ..Plan::unary(millis(random, 1_000))
    };
    let mut crowd = crowd(plan);
    crowd.count = 1 + random.usize(..8);
    crowd.application.sending = match random.usize(..3) {
        0 => Sending::AfterResponse,
        _ => Sending::Endless {
            size: 1 << random.usize(1..13),
            gap: Duration::from_millis(20 + random.u64(..80)),
        },
    };
    crowd.application.reading = if random.bool() { Reading::AtOnce } else { Reading::Held(1) };
    crowd
}

/// Requests with much metadata, or responses with it.
fn large_metadata(random: &mut Rng, defects: &Defects) -> Crowd {
    let largest = if defects.is_on(Defect::HeaderLists) { 4 } else { 1 };
    let mut crowd = crowd(Plan::unary(millis(random, 50)));
    crowd.application.plan.metadata = [0, 1_000, 20_000, 100_000][random.usize(..4)];
    crowd.application.metadata = [2_000, 9_000, 20_000, 70_000][random.usize(..largest)];
    (crowd.count, crowd.rounds) = (1 + random.usize(..3), 1 + random.usize(..3));
    crowd
}

/// Requests of many small parts, which are kept until the response begins.
fn small_parts(random: &mut Rng, defects: &Defects) -> Crowd {
    let mut crowd = crowd(Plan::unary(Duration::from_secs(1)));
    crowd.count = 1 + random.usize(..2);
    let parts = if defects.is_on(Defect::SmallParts) { 12_000 } else { 100 };
    crowd.application.sending = Sending::SmallParts(parts);
    crowd
}

/// Large responses that are read as they arrive.
fn downloads(random: &mut Rng) -> Crowd {
    let plan = Plan {
        messages: 1 + random.u32(..50),
        size: 1 + random.usize(..32 << 10),
        is_early: random.bool(),
        ..Plan::unary(millis(random, 50))
    };
    let mut crowd = crowd(plan);
    (crowd.count, crowd.rounds) = (1 + random.usize(..3), 1 + random.usize(..3));
    crowd.application.reading = if random.bool() { Reading::AtOnce } else { Reading::OtherTask };
    crowd
}

/// Calls that the server ends early.
fn failing(random: &mut Rng) -> Crowd {
    let plan = Plan {
        end: [PlanEnd::TrailersAlone, PlanEnd::Reset][random.usize(..2)],
        messages: random.u32(..3),
        ..Plan::unary(millis(random, 50))
    };
    let mut crowd = crowd(plan);
    (crowd.count, crowd.rounds) = (1 + random.usize(..20), 1 + random.usize(..5));
    crowd
}

/// Responses that go on after the deadline.
fn after_deadline(random: &mut Rng, defects: &Defects) -> Crowd {
    let plan = Plan {
        messages: 40,
        size: 1 + random.usize(..1_000),
        gap: Duration::from_millis(random.u64(..100)),
        is_early: true,
        end: PlanEnd::Open,
        ..Plan::unary(Duration::ZERO)
    };
    let mut crowd = crowd(plan);
    crowd.count = 1 + random.usize(..5);
    crowd.application.reading = match random.usize(..3) {
        _ if !defects.is_on(Defect::DeadlineOfBodies) => Reading::AtOnce,
        0 => Reading::Slowly(Duration::from_millis(100)),
        1 => Reading::AtOnce,
        _ => Reading::Held(random.usize(..3)),
    };
    if random.bool() {
        crowd.application.sending = Sending::Endless { size: 10, gap: Duration::from_millis(50) };
    }
    crowd.application.deadline = Some(Duration::from_millis(300 + random.u64(..700)));
    crowd
}

/// The bytes that wait to be read in a crowd, while more are a known defect.
const MAX_UNREAD: usize = 1 << 20;
