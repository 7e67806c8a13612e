//! Received frames and bytes, as far as h2 does not report them.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use tokio::time::Instant;

use super::{
    frames::{DATA, FrameHead, FramePart, FrameReader, GO_AWAY, Prefix, RESERVED, SETTINGS},
    http2::{COMPACT_AFTER, INITIAL_WINDOW, LARGEST_WINDOW},
    late_frames::{Change, LateFrames},
    window::is_bulk,
};

/// Counts of what an endpoint has sent on a connection. The socket writes them, from one task; driver and calls read them.
#[derive(Debug)]
pub(super) struct Inbound {
    /// The origin of `last_read`.
    start: Instant,
    /// The time of the last read, in nanoseconds since the start.
    last_read: AtomicU64,
    /// The bytes that applications have read of responses.
    consumed: AtomicU64,
    /// Whether half of a window of one response was read since the last [look](Self::take_bulk).
    has_bulk: AtomicBool,
    /// The window of streams that was announced last.
    window: AtomicU32,
    /// The bytes of late DATA frames, which are part of the connection's window for good.
    ignored: AtomicU64,
    /// The number of small DATA frames since the last [compaction](Self::on_compacted).
    small_frames: AtomicU32,
    /// SETTINGS_MAX_HEADER_LIST_SIZE of the endpoint; `u32::MAX` is no limit.
    max_header_list_size: AtomicU32,
    /// The lowest last stream of all GOAWAY frames; `u32::MAX` before the first one.
    last_stream: AtomicU32,
    /// The last GOAWAY frame, for errors.
    go_away: Mutex<Option<GoAway>>,
}

/// A GOAWAY frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GoAway {
    /// The last stream that the endpoint may process.
    last_stream: u32,
    /// The error code.
    code: u32,
    /// The beginning of the debug data.
    debug_data: Vec<u8>,
}

/// Follows the frames of an endpoint.
#[derive(Debug)]
pub(super) struct InboundFrames {
    /// The counts, shared with the driver and with calls.
    counts: Arc<Inbound>,
    /// Finds the frames.
    reader: FrameReader,
    /// Finds frames on streams that the endpoint has reset.
    late: LateFrames,
    /// The type of the current frame.
    kind: Kind,
    /// The parameter of SETTINGS that is being read.
    parameter: Prefix<6>,
    /// The payload of GOAWAY so far.
    go_away: Vec<u8>,
}

/// The frames whose payload is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// SETTINGS of the endpoint, without acknowledgements.
    Settings,
    /// GOAWAY, whose payload is kept for errors.
    GoAway,
    /// Any other frame. Its payload is skipped.
    Other,
}

impl Inbound {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            last_read: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            has_bulk: AtomicBool::new(false),
            window: AtomicU32::new(INITIAL_WINDOW),
            ignored: AtomicU64::new(0),
            small_frames: AtomicU32::new(0),
            max_header_list_size: AtomicU32::new(u32::MAX),
            last_stream: AtomicU32::new(u32::MAX),
            go_away: Mutex::default(),
        })
    }

    /// When bytes were last read, if reads are noted.
    pub(super) fn last_read(&self) -> Instant {
        self.start + std::time::Duration::from_nanos(self.last_read.load(Ordering::Relaxed))
    }

    /// Records the time of a read.
    pub(super) fn on_read(&self) {
        let elapsed = self.start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        self.last_read.store(elapsed, Ordering::Relaxed);
    }

    /// Counts bytes of a response that the application has read.
    pub(super) fn on_consumed(&self, bytes: usize) {
        self.consumed.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The bytes that applications have read of responses, since the connection was made.
    pub(super) fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Relaxed)
    }

    /// Handles that the application has read `read` bytes of one response. Returns the bytes that are still to be counted for the
    /// next sample.
    pub(super) fn on_response_read(&self, read: u64) -> u64 {
        if !is_bulk(read, self.window.load(Ordering::Relaxed)) {
            return read;
        }
        self.has_bulk.store(true, Ordering::Relaxed);
        0
    }

    /// Whether half of a window of one response was read since the last time.
    pub(super) fn take_bulk(&self) -> bool {
        // The load spares most polls the write, for which they would take the cache line from the calls.
        self.has_bulk.load(Ordering::Relaxed) && self.has_bulk.swap(false, Ordering::Relaxed)
    }

    /// Sets the initial window of streams, after it was announced to the peer.
    pub(super) fn set_window(&self, window: u32) {
        self.window.store(window, Ordering::Relaxed);
    }

    /// Whether so many small DATA frames have arrived that they are to be merged before more are read.
    pub(super) fn needs_compaction(&self) -> bool {
        self.small_frames.load(Ordering::Relaxed) >= COMPACT_AFTER
    }

    /// Handles that the small frames were merged.
    pub(super) fn on_compacted(&self) {
        self.small_frames.store(0, Ordering::Relaxed);
    }

    /// Whether so much of the connection's window is lost to late frames that the connection is to be replaced.
    pub(super) fn is_window_used_up(&self) -> bool {
        self.ignored.load(Ordering::Relaxed) >= u64::from(LARGEST_WINDOW / 2)
    }

    #[cfg(test)]
    pub(super) fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }

    /// The largest header list that the endpoint accepts, if it has a limit.
    pub(super) fn max_header_list_size(&self) -> Option<u32> {
        let size = self.max_header_list_size.load(Ordering::Relaxed);
        (size != u32::MAX).then_some(size)
    }

    /// Whether the endpoint has excluded a stream by GOAWAY, whatever its code is: it does not process what is above the last stream
    /// (RFC 9113, section 6.8).
    pub(super) fn is_excluded(&self, stream: u32) -> bool {
        stream > self.last_stream.load(Ordering::Acquire)
    }

    /// The GOAWAY frame that has arrived last.
    pub(super) fn go_away(&self) -> Option<GoAway> {
        self.go_away.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl InboundFrames {
    pub(super) fn new(counts: Arc<Inbound>) -> Self {
        Self {
            counts,
            reader: FrameReader::default(),
            late: LateFrames::default(),
            kind: Kind::Other,
            parameter: Prefix::default(),
            go_away: Vec::new(),
        }
    }

    pub(super) fn counts(&self) -> &Arc<Inbound> {
        &self.counts
    }

    /// Takes the next bytes that have arrived, and changes those frames among them that are late.
    ///
    /// Returns how many bytes at the end are not taken: the beginning of a head, which can be changed only when it is complete.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> usize {
        let length = bytes.len();
        let mut changes = Vec::new();
        let mut rest: &[u8] = bytes;
        while let Some(part) = self.reader.next(&mut rest) {
            match part {
                FramePart::Head(head) => match self.late.look(head) {
                    Some(change) => {
                        self.kind = Kind::Other;
                        changes.push((length - rest.len(), change));
                        if change == Change::Ignored {
                            self.counts.ignored.fetch_add(head.length.into(), Ordering::Relaxed);
                        }
                    }
                    None => self.begin_frame(head),
                },
                FramePart::Payload(payload) => self.read_payload(payload),
            }
        }
        // Changed after the loop: the reader borrows the bytes while it finds the heads.
        for (end, change) in changes {
            if let Some(head) = bytes[..end].last_chunk_mut() {
                change.apply(head);
            }
        }
        if self.late.is_possible() { self.reader.take_back_head() } else { 0 }
    }

    /// Takes bytes of which none is left and none is changed.
    pub(super) fn read_all(&mut self, mut bytes: &[u8]) {
        while let Some(part) = self.reader.next(&mut bytes) {
            match part {
                FramePart::Head(head) => self.begin_frame(head),
                FramePart::Payload(payload) => self.read_payload(payload),
            }
        }
    }

    /// Handles the head of a frame.
    fn begin_frame(&mut self, head: FrameHead) {
        self.kind = match head.kind {
            // An acknowledgement answers the SETTINGS of this side, and has no parameters.
            SETTINGS if head.flags & ACK == 0 => Kind::Settings,
            GO_AWAY => Kind::GoAway,
            DATA if head.length < SMALL => {
                self.counts.small_frames.fetch_add(1, Ordering::Relaxed);
                Kind::Other
            }
            _ => Kind::Other,
        };
        self.parameter = Prefix::default();
        self.go_away.clear();
    }

    /// Handles a part of the payload of the current frame.
    fn read_payload(&mut self, mut payload: &[u8]) {
        match self.kind {
            Kind::Other => {}
            Kind::Settings => {
                while let Some([high, low, value @ ..]) = self.parameter.take(&mut payload) {
                    if [high, low] == MAX_HEADER_LIST_SIZE {
                        let size = u32::from_be_bytes(value);
                        self.counts.max_header_list_size.store(size, Ordering::Relaxed);
                    }
                }
            }
            Kind::GoAway => {
                // The rest of a frame, up to 64 KiB that the peer chooses, is of no use in an error.
                let room = (GO_AWAY_HEAD + MAX_DEBUG_DATA).saturating_sub(self.go_away.len());
                self.go_away.extend(payload.iter().take(room));
                if self.reader.is_at_end() {
                    let go_away = GoAway::parse(&self.go_away);
                    if let Some(go_away) = &go_away {
                        // A graceful shutdown begins with 2^31-1 and repeats GOAWAY with the real number, which must not grow
                        // (RFC 9113, section 6.8).
                        self.counts.last_stream.fetch_min(go_away.last_stream, Ordering::Release);
                    }
                    *self.counts.go_away.lock().unwrap_or_else(PoisonError::into_inner) = go_away;
                }
            }
        }
    }
}

impl GoAway {
    /// Parses a payload; `None` if it is too short.
    fn parse(payload: &[u8]) -> Option<Self> {
        let (head, debug_data) = payload.split_at_checked(GO_AWAY_HEAD)?;
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes);
        let last_stream = number(&head[..4])? & !RESERVED;
        let code = number(&head[4..])?;
        Some(Self { last_stream, code, debug_data: debug_data.to_vec() })
    }
}

impl fmt::Display for GoAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GOAWAY {:?}", h2::Reason::from(self.code))?;
        match &*self.debug_data {
            [] => Ok(()),
            data => write!(f, " {:?}", String::from_utf8_lossy(data)),
        }
    }
}

/// The flag of SETTINGS that acknowledge others.
const ACK: u8 = 1;
/// The identifier of a parameter of SETTINGS.
const MAX_HEADER_LIST_SIZE: [u8; 2] = [0, 6];
/// DATA frames below this length take more memory than their payload in h2.
const SMALL: u32 = 256;
/// The last stream and the code.
const GO_AWAY_HEAD: usize = 8;
/// How much of the debug data is kept.
const MAX_DEBUG_DATA: usize = 200;
