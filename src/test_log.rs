//! What tests see of the log.

use std::{
    io,
    sync::{Arc, LazyLock, Mutex, MutexGuard},
};

use tracing::{
    Dispatch, Subscriber,
    subscriber::{DefaultGuard, NoSubscriber, set_default},
};
use tracing_subscriber::fmt::format::FmtSpan;

/// What a subscriber of this thread writes: events, and the ends of spans.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Begins to write what a filter permits, until the guard is dropped.
    pub(crate) fn start(filter: &str) -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        (log, set_subscriber(subscriber))
    }

    /// The lines, without how long spans took.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.written().clone()).expect("a log is text");
        let line = |line: &str| line.split(" time.busy").next().unwrap_or_default().trim().to_owned();
        text.lines().map(line).collect()
    }

    fn written(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("no writer panics")
    }
}

/// Has a subscriber log what this thread does, until the guard is dropped.
pub(crate) fn set_subscriber(subscriber: impl Subscriber + Send + Sync + 'static) -> DefaultGuard {
    LazyLock::force(&FURTHER_SUBSCRIBERS);
    set_default(subscriber)
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// While a process has one subscriber only, `tracing` asks that of the thread that comes first to a span or event, which may be
/// another test's without any, and disables it for all threads. With two that are never dropped, it always asks all.
static FURTHER_SUBSCRIBERS: LazyLock<[Dispatch; 2]> =
    LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::new())));
