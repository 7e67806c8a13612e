//! The streams of a peer's connection, and the responses on them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use bytes::BytesMut;
use tokio::time::Instant;

use super::super::{
    behavior::Behavior,
    frames::{self, HeaderBlock},
    plan::{PREFIX, Plan, PlanEnd, Planned},
};

/// The streams that are open.
#[derive(Debug)]
pub(super) struct Streams {
    open: BTreeMap<u32, Stream>,
    /// Those with a frame to write, one after the other.
    ready: VecDeque<u32>,
    /// When streams go on.
    due: BTreeSet<(Instant, u32)>,
    /// What may be sent on the connection.
    window: i64,
    initial_window: i64,
    largest_frame: usize,
    goes_on_after_reset: bool,
    /// Streams that have ended since the last look.
    ended: Vec<u32>,
    /// The number of complete responses since the last look.
    completed: usize,
}

#[derive(Debug)]
struct Stream {
    plan: Option<Plan>,
    /// The number of the request, if that was read.
    number: Option<u32>,
    has_request_ended: bool,
    window: i64,
    phase: Phase,
    messages: u32,
    /// The bytes of the message that are not written yet.
    left: usize,
    is_ready: bool,
    /// Set while time has to pass.
    waits_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The request is read.
    Request,
    /// The time before the response passes.
    Delay,
    Headers,
    Messages,
    /// Nothing follows.
    Open,
}

impl Streams {
    pub(super) fn new(behavior: &Behavior) -> Self {
        Self {
            open: BTreeMap::new(),
            ready: VecDeque::new(),
            due: BTreeSet::new(),
            window: WINDOW,
            initial_window: WINDOW,
            largest_frame: behavior.frame(),
            goes_on_after_reset: behavior.goes_on_after_reset(),
            ended: Vec::new(),
            completed: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn contains(&self, stream: u32) -> bool {
        self.open.contains_key(&stream)
    }

    /// A request begins. One whose data do not follow soon is answered without them.
    pub(super) fn begin(&mut self, stream: u32, now: Instant) {
        let new = Stream {
            plan: None,
            number: None,
            has_request_ended: false,
            window: self.initial_window,
            phase: Phase::Request,
            messages: 0,
            left: 0,
            is_ready: false,
            waits_until: None,
        };
        self.open.insert(stream, new);
        self.wait(stream, now + PATIENCE);
    }

    /// Whether the plan of a request is not known yet.
    pub(super) fn needs_plan(&self, stream: u32) -> bool {
        self.open.get(&stream).is_some_and(|stream| stream.plan.is_none())
    }

    /// The number of a request, if that was read.
    pub(super) fn number(&self, stream: u32) -> Option<u32> {
        self.open.get(&stream)?.number
    }

    pub(super) fn set_plan(&mut self, id: u32, planned: Planned, now: Instant) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        (stream.plan, stream.number) = (Some(planned.plan), Some(planned.number));
        self.respond_when_due(id, now);
    }

    pub(super) fn end_request(&mut self, id: u32, now: Instant) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        stream.has_request_ended = true;
        self.respond_when_due(id, now);
    }

    fn respond_when_due(&mut self, id: u32, now: Instant) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        let Some(plan) = stream.plan else { return };
        if stream.phase == Phase::Request && (plan.is_early || stream.has_request_ended) {
            stream.phase = Phase::Delay;
            self.wait(id, now + plan.delay);
        }
    }

    /// Lets a stream go on at a time, and not before.
    fn wait(&mut self, id: u32, at: Instant) {
        if let Some(stream) = self.open.get_mut(&id) {
            stream.waits_until = Some(at);
            self.due.insert((at, id));
        }
    }

    /// The client has reset a stream.
    pub(super) fn remove(&mut self, stream: u32) {
        if self.open.remove(&stream).is_some() {
            self.ended.push(stream);
        }
    }

    /// Streams that have ended since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.ended)
    }

    /// The number of responses that are complete since the last call.
    pub(super) fn take_completed(&mut self) -> usize {
        std::mem::take(&mut self.completed)
    }

    /// The client has announced another initial window.
    pub(super) fn set_initial_window(&mut self, window: u32) {
        let more = i64::from(window) - self.initial_window;
        self.initial_window += more;
        self.open.values_mut().for_each(|stream| stream.window += more);
        self.wake_all();
    }

    pub(super) fn open_window(&mut self, stream: u32, bytes: u32) {
        if stream == 0 {
            self.window += i64::from(bytes);
            return self.wake_all();
        }
        if let Some(known) = self.open.get_mut(&stream) {
            known.window += i64::from(bytes);
            self.wake(stream);
        }
    }

    fn wake_all(&mut self) {
        let all: Vec<u32> = self.open.keys().copied().collect();
        all.into_iter().for_each(|stream| self.wake(stream));
    }

    fn wake(&mut self, id: u32) {
        if let Some(stream) = self.open.get_mut(&id)
            && matches!(stream.phase, Phase::Headers | Phase::Messages)
            && !stream.is_ready
            && stream.waits_until.is_none()
        {
            stream.is_ready = true;
            self.ready.push_back(id);
        }
    }

    /// When the next stream goes on.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn handle_time(&mut self, now: Instant) {
        while let Some((at, id)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, id));
            // It may wait for another time by now.
            let Some(stream) = self.open.get_mut(&id).filter(|stream| stream.waits_until == Some(at)) else {
                continue;
            };
            stream.waits_until = None;
            match stream.phase {
                Phase::Request if stream.plan.is_none() => {
                    let plan = Plan { is_early: true, ..Plan::unary(Duration::ZERO) };
                    stream.plan = Some(plan);
                    stream.phase = Phase::Headers;
                }
                Phase::Delay => stream.phase = Phase::Headers,
                Phase::Request | Phase::Headers | Phase::Messages | Phase::Open => {}
            }
            self.wake(id);
        }
    }

    /// Writes frames, one of each stream after the other, until there are enough bytes. False if nothing was written.
    pub(super) fn write(&mut self, out: &mut BytesMut, now: Instant) -> bool {
        let before = out.len();
        while out.len() < ENOUGH
            && let Some(id) = self.ready.pop_front()
        {
            self.write_frame(id, out, now);
        }
        out.len() > before
    }

    fn write_frame(&mut self, id: u32, out: &mut BytesMut, now: Instant) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        let Some(plan) = stream.plan else { return };
        stream.is_ready = false;
        match stream.phase {
            Phase::Headers if plan.end == PlanEnd::TrailersAlone => return self.end(id, plan, out),
            Phase::Headers => {
                let mut block = HeaderBlock::response();
                block.add_padding(plan.metadata);
                block.write(id, false, out);
                stream.phase = Phase::Messages;
            }
            Phase::Messages if stream.left == 0 && stream.messages == plan.messages => {
                return self.end(id, plan, out);
            }
            Phase::Messages => {
                if stream.left == 0 {
                    stream.messages += 1;
                    stream.left = PREFIX + plan.size;
                }
                let window = usize::try_from(stream.window.min(self.window)).unwrap_or(0);
                let length =
                    stream.left.min(window).min(self.largest_frame).min(plan.frame).min(frames::MAX_FRAME);
                if length == 0 {
                    return;
                }
                frames::write_zeros(out, id, length);
                stream.left -= length;
                stream.window -= length as i64;
                self.window -= length as i64;
                if stream.left == 0 && !plan.gap.is_zero() {
                    return self.wait(id, now + plan.gap);
                }
            }
            Phase::Request | Phase::Delay | Phase::Open => return,
        }
        self.wake(id);
    }

    /// Ends a response as it is planned.
    fn end(&mut self, id: u32, plan: Plan, out: &mut BytesMut) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        match plan.end {
            PlanEnd::Open => {
                stream.phase = Phase::Open;
                return;
            }
            PlanEnd::Reset => {
                frames::write_number(out, frames::RST_STREAM, id, frames::CANCEL);
                if self.goes_on_after_reset {
                    frames::write_zeros(out, id, PREFIX);
                    let mut block = HeaderBlock::default();
                    block.add(b"grpc-status", b"1");
                    block.write(id, true, out);
                }
            }
            PlanEnd::Ok | PlanEnd::TrailersAlone => {
                let mut block = match plan.end {
                    PlanEnd::TrailersAlone => HeaderBlock::response(),
                    PlanEnd::Ok | PlanEnd::Reset | PlanEnd::Open => HeaderBlock::default(),
                };
                block.add(b"grpc-status", if plan.end == PlanEnd::Ok { b"0" } else { b"9" });
                block.write(id, true, out);
                self.completed += 1;
                if !stream.has_request_ended {
                    // The rest of the request is not read.
                    frames::write_number(out, frames::RST_STREAM, id, frames::NO_ERROR);
                }
            }
        }
        self.remove(id);
    }
}

/// The windows before SETTINGS and WINDOW_UPDATE.
pub(super) const WINDOW: i64 = 65_535;
/// How long a peer waits for the first data of a request.
const PATIENCE: Duration = Duration::from_millis(20);
/// So many bytes are written at a time.
const ENOUGH: usize = 32 << 10;
