//! The window of streams, by an estimate of the bandwidth-delay product, as in gRPC.

use std::time::{Duration, Instant};

use super::http2::{Http2Settings, INITIAL_WINDOW};

/// Decides how many bytes an endpoint may send on each stream of a connection before the application reads them.
///
/// The estimate is the number of bytes that applications take while a PING is under way: twice as much keeps the connection busy.
/// Bytes that nobody reads are not counted, so that responses without a reader get no larger windows. A window is never below
/// [`INITIAL_WINDOW`], never above the largest one that is set, and what all streams hold unread above the initial window stays
/// below the limit of the connection.
///
/// A PING is sent only after an application has read half of a window [of one response](is_bulk): responses that are short beside
/// the window gain nothing by a larger one, however many there are.
///
/// ```text
///           wants_sample, on_ping            on_pong
///   Waiting ─────────────────────▶ Sampling ─────────▶ Waiting
/// ```
#[derive(Debug)]
pub(super) struct StreamWindow {
    /// The largest window that is set.
    largest: u32,
    /// The limit of unread bytes of the connection.
    max_unread: u64,
    /// The window that the endpoint knows.
    current: u32,
    /// Twice the bytes that applications read while a PING was in flight; it never shrinks.
    estimate: u64,
    /// The state of sampling.
    sample: Sample,
}

/// The states drawn above; `delay` is that after the next sample without growth.
#[derive(Debug, Clone, Copy)]
enum Sample {
    /// No PING is under way, and none is sent before `not_before`.
    Waiting { not_before: Instant, delay: Duration },
    /// A PING is under way; `from` is the number of bytes that were read before it.
    Sampling { from: u64, delay: Duration },
}

/// The use of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// The number of streams.
    pub(super) streams: u64,
    /// The bytes that wait to be read on all of them.
    pub(super) unread: u64,
}

impl StreamWindow {
    /// Creates a window of the initial size.
    pub(super) fn new(settings: &Http2Settings, now: Instant) -> Self {
        Self {
            largest: settings.max_stream_window.max(INITIAL_WINDOW),
            max_unread: settings.max_unread,
            current: INITIAL_WINDOW,
            estimate: INITIAL_WINDOW.into(),
            sample: Sample::Waiting { not_before: now, delay: FIRST_DELAY },
        }
    }

    /// Whether a PING is to be sent, after half of a window was read of one response.
    pub(super) fn wants_sample(&self, now: Instant) -> bool {
        match self.sample {
            Sample::Waiting { not_before, .. } => self.estimate < self.largest.into() && now >= not_before,
            Sample::Sampling { .. } => false,
        }
    }

    /// Handles that a PING is sent. The sample counts what applications read after `from` bytes.
    pub(super) fn on_ping(&mut self, from: u64) {
        if let Sample::Waiting { delay, .. } = self.sample {
            self.sample = Sample::Sampling { from, delay };
        }
    }

    /// The PING was acknowledged. The estimate grows if applications have taken half of it meanwhile: less than in gRPC, which counts
    /// what arrives, since applications that make one call after the other take a message only after its end. While the estimate
    /// grows, the next sample follows at once; otherwise after growing delays.
    pub(super) fn on_pong(&mut self, consumed: u64, now: Instant) {
        let Sample::Sampling { from, delay } = self.sample else { return };
        let taken = consumed.saturating_sub(from);
        let grows = taken.saturating_mul(2) >= self.estimate;
        let (not_before, delay) = match grows {
            true => (now, FIRST_DELAY),
            false => (now + delay, (delay * 2).min(LONGEST_DELAY)),
        };
        if grows {
            self.estimate = taken.max(self.estimate).saturating_mul(2).min(self.largest.into());
        }
        self.sample = Sample::Waiting { not_before, delay };
    }

    /// Whether [`change`](Self::change) may return another window than the initial one.
    pub(super) fn may_change(&self) -> bool {
        self.estimate > INITIAL_WINDOW.into()
    }

    /// The window that is to be announced, if that differs enough from the one that the endpoint knows.
    pub(super) fn change(&self, load: Load) -> Option<u32> {
        let window = self.window(load);
        // Each announcement costs a SETTINGS frame and its acknowledgement, so that small differences are not announced.
        let is_larger = window > self.current && (window - self.current >= self.current / 4);
        let is_much_smaller = window < self.current / 2;
        (is_larger || is_much_smaller).then_some(window)
    }

    /// Handles that a window was announced.
    pub(super) fn on_announced(&mut self, window: u32) {
        self.current = window;
    }

    /// Returns the window for the present use of the connection.
    fn window(&self, load: Load) -> u32 {
        // CH15.7: the endpoint may fill the windows of all streams at once.
        let room = self.max_unread.saturating_sub(load.unread) / load.streams.max(1);
        let room = room.try_into().unwrap_or(u32::MAX).saturating_add(INITIAL_WINDOW);
        let estimate = self.estimate.try_into().unwrap_or(u32::MAX);
        estimate.min(self.largest).min(room).max(INITIAL_WINDOW)
    }
}

/// Whether so many bytes of one response, with this window, ask for a sample: its endpoint may have to wait for a larger window.
pub(super) fn is_bulk(read: u64, window: u32) -> bool {
    read >= u64::from(window / 2)
}

/// The delay after the first sample without growth; it doubles from there.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest delay between samples; short, since one slow reader keeps the estimate as it is for all streams of the connection.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Http2Settings =
        Http2Settings { max_header_list_size: 0, max_stream_window: 16 << 20, max_unread: 64 << 20 };
    const ONE: Load = Load { streams: 1, unread: 0 };

    fn window(now: Instant) -> StreamWindow {
        StreamWindow::new(&SETTINGS, now)
    }

    /// A sample during which applications take so many bytes.
    fn sample(window: &mut StreamWindow, consumed: &mut u64, taken: u64, now: Instant) {
        *consumed += u64::from(INITIAL_WINDOW);
        assert!(window.wants_sample(now));
        window.on_ping(*consumed);
        assert!(!window.wants_sample(now), "one PING at a time");
        *consumed += taken;
        window.on_pong(*consumed, now);
    }

    #[test]
    fn ch15_7_stream_windows_grow_with_what_applications_read_while_a_ping_is_under_way() {
        let (now, mut consumed) = (Instant::now(), 0);
        let mut window = window(now);
        assert_eq!(window.change(ONE), None, "64 KiB at first");
        sample(&mut window, &mut consumed, 60_000, now);
        let next = window.change(ONE).unwrap();
        assert_eq!(next, 2 * INITIAL_WINDOW);
        window.on_announced(next);
        sample(&mut window, &mut consumed, 1 << 20, now);
        assert_eq!(window.change(ONE), Some(2 << 20));
        window.on_announced(2 << 20);
        for _ in 0..8 {
            let taken = window.estimate;
            if window.wants_sample(now) {
                sample(&mut window, &mut consumed, taken, now);
            }
        }
        assert_eq!(window.change(ONE), Some(16 << 20), "never above the largest window");
        assert!(!window.wants_sample(now), "and nothing is left to be found");
    }

    #[test]
    fn ch15_7_a_stable_estimate_is_sampled_after_growing_delays() {
        let (mut now, mut consumed) = (Instant::now(), 0);
        let mut window = window(now);
        for expected in [100, 200, 400, 800, 1_000, 1_000] {
            sample(&mut window, &mut consumed, 0, now);
            let delay = Duration::from_millis(expected);
            assert!(!window.wants_sample(now + delay - Duration::from_nanos(1)));
            now += delay;
        }
        assert_eq!(window.change(ONE), None);
    }

    #[test]
    fn ch15_7_windows_without_a_reader_stay_within_the_limit_of_the_connection() {
        let (now, mut consumed) = (Instant::now(), 0);
        let mut window = window(now);
        sample(&mut window, &mut consumed, 16 << 20, now);
        window.on_announced(16 << 20);
        let load = |streams, unread| Load { streams, unread };
        assert_eq!(window.change(load(2, 0)), None);
        assert_eq!(window.change(load(1_000, 0)), Some((64 << 20) / 1_000 + INITIAL_WINDOW));
        assert_eq!(window.change(load(1, 64 << 20)), Some(INITIAL_WINDOW), "all of it is in use");
        assert_eq!(window.change(load(1, u64::MAX)), Some(INITIAL_WINDOW));
        window.on_announced(INITIAL_WINDOW);
        assert_eq!(window.change(load(1, 0)), Some(16 << 20), "and what is read may be used again");
    }

    #[test]
    fn ch15_7_the_largest_window_is_never_below_the_initial_one() {
        let settings = Http2Settings { max_stream_window: 0, max_unread: 0, ..SETTINGS };
        let window = StreamWindow::new(&settings, Instant::now());
        assert!(!window.wants_sample(Instant::now()));
        assert_eq!(window.change(ONE), None);
    }
}
