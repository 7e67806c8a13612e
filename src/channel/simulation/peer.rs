//! A server that speaks frames, and behaves as it is told.

mod streams;

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use self::streams::{Streams, WINDOW};
use super::{
    behavior::{Behavior, GoAwayStyle, Quirk},
    call_number,
    frames::{self, Frame, Setting},
    pipe::Pipe,
    plan::Plans,
    stats::Stats,
};

/// Serves a connection until it ends.
pub(super) async fn serve(io: Pipe, behavior: Behavior, stats: Arc<Stats>, plans: Arc<Plans>) {
    let number = stats.on_connection();
    let streams = Streams::new(&behavior);
    let mut peer = Peer {
        io,
        unread: BytesMut::new(),
        out: BytesMut::new(),
        has_preface: false,
        behavior,
        streams,
        acts: Vec::new(),
        credits: BTreeMap::new(),
        last: 0,
        block: 0,
        resets: 0,
        state: State::Running,
        has_ended: false,
        timer: Box::pin(sleep_until(Instant::now())),
        number,
        stats: stats.clone(),
        plans,
    };
    peer.begin();
    poll_fn(|cx| peer.poll(cx)).await;
    drop(peer);
    stats.on_connection_end(number);
}

/// The server's end of a connection.
struct Peer {
    io: Pipe,
    unread: BytesMut,
    out: BytesMut,
    has_preface: bool,
    behavior: Behavior,
    streams: Streams,
    acts: Vec<Due>,
    /// The WINDOW_UPDATEs that are not written yet, by their streams. They are merged while others are written before them, as servers
    /// do in other ways: one for each DATA frame would take more of the path than the smallest frames do.
    credits: BTreeMap<u32, u32>,
    /// The last stream that is served.
    last: u32,
    /// The bytes of the header block that is being read.
    block: usize,
    resets: u32,
    state: State,
    has_ended: bool,
    timer: Pin<Box<Sleep>>,
    number: usize,
    stats: Arc<Stats>,
    plans: Arc<Plans>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// New streams are not accepted; the connection ends with the last one.
    Draining,
    /// The connection ends when all is written.
    Ending,
    /// Nothing is read or written any more.
    Silent,
    /// Nothing is written any more. What the client has sent before it sees the end is read, to know of it.
    Closed,
}

/// An act of the connection, and its time.
struct Due {
    at: Instant,
    act: Act,
}

enum Act {
    Permit(u32),
    GoAway(GoAwayStyle),
    /// The second step of GOAWAY.
    Drain,
    Silence,
    Cut,
    /// The end of a closed connection.
    End,
    Pong(Bytes),
}

impl Peer {
    fn begin(&mut self) {
        let now = Instant::now();
        frames::write_settings(&mut self.out, &self.behavior.settings());
        let more = i64::from(self.behavior.connection_window) - WINDOW;
        if more > 0 {
            frames::write_number(&mut self.out, frames::WINDOW_UPDATE, 0, more as u32);
        }
        for quirk in self.behavior.quirks.clone() {
            match quirk {
                Quirk::ChangesMaxStreams { after, to } => self.plan(now + after, Act::Permit(to)),
                Quirk::GoAway { after, style } => self.plan(now + after, Act::GoAway(style)),
                Quirk::Silent { after } => self.plan(now + after, Act::Silence),
                Quirk::Cut { after } => self.plan(now + after, Act::Cut),
                Quirk::GoAwayAfterSettings(after) => {
                    let style = GoAwayStyle::Error { code: frames::NO_ERROR, debug: 10 };
                    self.plan(now + after, Act::GoAway(style));
                }
                Quirk::EndsAfterSettings(after) => self.plan(now + after, Act::Cut),
                Quirk::SmallStreamWindow(_)
                | Quirk::NeverOpensStreams
                | Quirk::NeverOpensConnection
                | Quirk::MaxStreams(_)
                | Quirk::LimitsResets(_)
                | Quirk::NoPong
                | Quirk::LatePong(_)
                | Quirk::SmallFrames(_)
                | Quirk::HeaderLimit(_) => {}
            }
        }
    }

    fn plan(&mut self, at: Instant, act: Act) {
        self.acts.push(Due { at, act });
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.state == State::Silent {
                return self.poll_end(cx);
            }
            let now = Instant::now();
            self.act(now);
            if self.has_ended {
                return Poll::Ready(());
            }
            self.streams.handle_time(now);
            let has_read = match self.poll_read(cx) {
                Poll::Ready(true) => true,
                Poll::Ready(false) => return Poll::Ready(()),
                Poll::Pending => false,
            };
            let Ok(has_written) = self.poll_write(cx, now) else { return Poll::Ready(()) };
            self.stats.on_served(self.streams.take_completed(), now);
            for stream in self.streams.take_ended() {
                self.stats.on_stream_end(self.number, stream);
            }
            let is_drained = self.state == State::Draining && self.streams.len() == 0;
            if self.out.is_empty() && (self.state == State::Ending || is_drained) {
                self.close(cx, now);
            }
            if !has_read && !has_written && self.poll_timer(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn close(&mut self, cx: &mut Context<'_>, now: Instant) {
        // The pipe closes at once.
        let _ = Pin::new(&mut self.io).poll_shutdown(cx);
        self.state = State::Closed;
        self.streams = Streams::new(&self.behavior);
        self.stats.on_connection_end(self.number);
        self.acts = vec![Due { at: now + LINGER, act: Act::End }];
    }

    /// Waits for the end of a connection on which nothing happens any more.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Without a read there is no end; the network cuts the connection.
        let mut bytes = [0; 1 << 10];
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.io).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let due = self.acts.iter().map(|due| due.at).chain(self.streams.due()).min();
        let Some(due) = due else { return Poll::Pending };
        self.timer.as_mut().reset(due);
        self.timer.as_mut().poll(cx)
    }

    fn act(&mut self, now: Instant) {
        while let Some(place) = self.acts.iter().position(|due| due.at <= now) {
            match self.acts.swap_remove(place).act {
                // The last stream of a GOAWAY is never above that of one before.
                Act::GoAway(GoAwayStyle::TwoSteps) if self.state == State::Draining => {}
                Act::Permit(streams) => {
                    let setting = Setting { id: frames::MAX_CONCURRENT_STREAMS, value: streams };
                    frames::write_settings(&mut self.out, &[setting]);
                    self.behavior.max_streams = Some(streams);
                }
                Act::GoAway(GoAwayStyle::TwoSteps) => {
                    frames::write_go_away(&mut self.out, u32::MAX >> 1, frames::NO_ERROR, b"");
                    frames::write(&mut self.out, frames::PING, 0, 0, b"goodbye!");
                    self.plan(now + Duration::from_millis(100), Act::Drain);
                }
                Act::GoAway(GoAwayStyle::OneStep) | Act::Drain => {
                    frames::write_go_away(&mut self.out, self.last, frames::NO_ERROR, b"max_age");
                    self.state = State::Draining;
                }
                Act::GoAway(GoAwayStyle::Error { code, debug }) => self.go_away(code, &vec![b'd'; debug]),
                Act::Silence => self.state = State::Silent,
                Act::Cut => self.state = State::Ending,
                Act::End => self.has_ended = true,
                Act::Pong(payload) => frames::write(&mut self.out, frames::PING, frames::ACK, 0, &payload),
            }
        }
    }

    /// Ends the connection with an error.
    fn go_away(&mut self, code: u32, debug: &[u8]) {
        frames::write_go_away(&mut self.out, self.last, code, debug);
        self.state = State::Ending;
    }

    /// Reads what there is. Ready with false at the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut bytes = [0; 16 << 10];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.io).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
            Poll::Ready(_) => return Poll::Ready(false),
            Poll::Pending => return Poll::Pending,
        }
        self.unread.extend_from_slice(buffer.filled());
        if !self.has_preface {
            if self.unread.len() < frames::PREFACE {
                return Poll::Ready(true);
            }
            self.unread.advance(frames::PREFACE);
            self.has_preface = true;
        }
        while let Some(frame) = Frame::take(&mut self.unread) {
            match self.state {
                // It is not processed, but it was sent.
                State::Closed => self.note(&frame),
                State::Running | State::Draining | State::Ending | State::Silent => self.handle(frame),
            }
        }
        Poll::Ready(true)
    }

    fn handle(&mut self, frame: Frame) {
        let now = Instant::now();
        match frame.kind {
            frames::SETTINGS if !frame.has(frames::ACK) => {
                for Setting { id, value } in frames::settings(frame.payload) {
                    if id == frames::INITIAL_WINDOW_SIZE {
                        self.streams.set_initial_window(value);
                    }
                }
                frames::write(&mut self.out, frames::SETTINGS, frames::ACK, 0, &[]);
            }
            frames::HEADERS | frames::CONTINUATION => self.handle_headers(&frame, now),
            frames::DATA => self.handle_data(&frame, now),
            frames::RST_STREAM => {
                self.streams.remove(frame.stream);
                self.resets += 1;
                if self.behavior.max_resets().is_some_and(|limit| self.resets > limit) {
                    self.go_away(frames::ENHANCE_YOUR_CALM, b"too_many_resets");
                }
            }
            frames::WINDOW_UPDATE => self.streams.open_window(frame.stream, frame.number()),
            frames::PING if !frame.has(frames::ACK) => {
                if let Some(after) = self.behavior.pong_after() {
                    self.plan(now + after, Act::Pong(frame.payload));
                }
            }
            frames::GOAWAY => {
                let code = frame.payload.get(4..8).map_or(0, |mut bytes| bytes.get_u32());
                if code != frames::NO_ERROR {
                    self.stats.on_go_away(code, frame.payload.get(8..).unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    /// Whose request a frame is of.
    fn note(&self, frame: &Frame) {
        match frame.kind {
            frames::HEADERS => {
                if let Some(number) = call_number::read(&frame.payload) {
                    self.plans.on_headers(number);
                }
            }
            frames::DATA => drop(self.plans.read(&frame.payload)),
            _ => {}
        }
    }

    fn handle_headers(&mut self, frame: &Frame, now: Instant) {
        self.block += frame.payload.len();
        if frame.kind == frames::HEADERS {
            self.note(frame);
            if self.state == State::Running {
                // It stays what it is after GOAWAY, which may be repeated, but not with a higher number (RFC 9113, section 6.8).
                self.last = self.last.max(frame.stream);
                self.streams.begin(frame.stream, now);
                self.stats.on_stream(self.number, frame.stream, None);
            }
            if frame.has(frames::END_STREAM) {
                self.streams.end_request(frame.stream, now);
            }
        }
        if !frame.has(frames::END_HEADERS) {
            return;
        }
        let size = std::mem::take(&mut self.block);
        if self.behavior.header_limit.is_some_and(|limit| size > limit as usize) {
            return self.go_away(frames::ENHANCE_YOUR_CALM, b"header list too large");
        }
        if self.behavior.max_streams.is_some_and(|limit| self.streams.len() > limit as usize + SLACK) {
            frames::write_number(&mut self.out, frames::RST_STREAM, frame.stream, frames::REFUSED_STREAM);
            self.streams.remove(frame.stream);
        } else if self.behavior.stream_window == 0 {
            frames::write_number(&mut self.out, frames::WINDOW_UPDATE, frame.stream, 1 << 10);
        }
    }

    fn handle_data(&mut self, frame: &Frame, now: Instant) {
        let length = frame.payload.len() as u32;
        if self.streams.needs_plan(frame.stream)
            && let Some(planned) = self.plans.read(&frame.payload)
        {
            self.streams.set_plan(frame.stream, planned, now);
            self.stats.on_stream(self.number, frame.stream, planned.deadline);
        }
        if !self.streams.contains(frame.stream) {
            self.note(frame);
        }
        if let Some(number) = self.streams.number(frame.stream) {
            self.plans.on_data(number, frame.payload.len());
        }
        if frame.has(frames::END_STREAM) {
            self.streams.end_request(frame.stream, now);
        }
        if length == 0 {
            return;
        }
        if !self.behavior.has(|quirk| *quirk == Quirk::NeverOpensConnection) {
            *self.credits.entry(0).or_insert(0) += length;
        }
        let is_read = !self.behavior.has(|quirk| *quirk == Quirk::NeverOpensStreams);
        if is_read && self.streams.contains(frame.stream) && !frame.has(frames::END_STREAM) {
            *self.credits.entry(frame.stream).or_insert(0) += length;
        }
    }

    fn write_credits(&mut self) {
        for (stream, bytes) in std::mem::take(&mut self.credits) {
            if stream == 0 || self.streams.contains(stream) {
                frames::write_number(&mut self.out, frames::WINDOW_UPDATE, stream, bytes);
            }
        }
    }

    /// Writes what there is. An error is the end of the connection.
    fn poll_write(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, ()> {
        let mut has_written = false;
        loop {
            if self.out.is_empty() && self.state != State::Ending {
                self.write_credits();
                self.streams.write(&mut self.out, now);
            }
            if self.out.is_empty() {
                return Ok(has_written);
            }
            match Pin::new(&mut self.io).poll_write(cx, &self.out) {
                Poll::Ready(Ok(written)) => {
                    self.out.advance(written);
                    has_written = true;
                }
                Poll::Ready(Err(_)) => return Err(()),
                Poll::Pending => return Ok(has_written),
            }
        }
    }
}

/// The longest round trip on a path whose buffers are full in both directions, after which nothing arrives any more: twice 50 ms, and
/// 256 KiB at 4 KiB each millisecond.
const LINGER: Duration = Duration::from_millis(2 * (50 + 64));
/// Streams above a limit that was lowered, and those whose end is under way, are not refused.
const SLACK: usize = 64;
