//! What the measured programs in Rust have in common: how they are told what to do, and what they tell.
//!
//! `PROGRAM ADDRESS COUNT [all]` watches COUNT clusters and COUNT assignments, one watch a name, or with `all` the clusters by one
//! watch. On standard output it tells, a JSON object a line, when everything was `delivered`, when the resource was `changed`
//! that the line `expect clusters I` or `expect endpoints I` on standard input named, and what it has used so far, on the line
//! `report`. It ends with its input.

use std::{
    io::{self, BufRead},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use tokio::sync::Notify;

/// What to do.
pub(crate) struct Args {
    pub(crate) address: String,
    pub(crate) count: usize,
    /// `all`, or nothing.
    pub(crate) mode: String,
}

impl Args {
    pub(crate) fn from_env() -> Self {
        let mut args = std::env::args().skip(1);
        let (Some(address), Some(Ok(count))) = (args.next(), args.next().map(|count| count.parse())) else {
            panic!("usage: PROGRAM ADDRESS COUNT [MODE]");
        };
        Self { address, count, mode: args.next().unwrap_or_default() }
    }
}

/// The name of a cluster and of its assignment, as the server has it.
pub(crate) fn name(number: usize) -> String {
    format!("outbound|8080||service-{number:06}.shop.svc.cluster.local")
}

/// What a watch watches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Clusters,
    Endpoints,
}

/// What was delivered so far.
#[derive(Debug)]
pub(crate) struct Progress {
    started: u64,
    missing: AtomicUsize,
    errors: AtomicUsize,
    /// The number of the resource that is expected to change, twice, and one more for endpoints; 0 for none.
    expected: AtomicU64,
    told: [Notify; 2],
}

impl Progress {
    /// Begins to measure: so many resources are to be delivered.
    pub(crate) fn new(missing: usize) -> Self {
        Self {
            started: now(),
            missing: AtomicUsize::new(missing),
            errors: AtomicUsize::new(0),
            expected: AtomicU64::new(0),
            told: Default::default(),
        }
    }

    /// So many resources were seen for the first time.
    pub(crate) fn on_first(&self, count: usize) {
        if self.missing.fetch_sub(count, Ordering::Relaxed) == count {
            let (delivered, errors) = (now(), self.errors.load(Ordering::Relaxed));
            let (cpu, peak) = used();
            let started = self.started;
            println!(
                r#"{{"event":"delivered","started":{started},"delivered":{delivered},"errors":{errors},"cpu":{cpu},"peak":{peak}}}"#
            );
        }
    }

    /// A watch saw an error.
    pub(crate) fn on_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// A resource was seen again, as something else or the same.
    pub(crate) fn on_again(&self, kind: Kind, number: usize) {
        let at = now();
        let expected = Self::expectation(kind, number);
        if self.expected.compare_exchange(expected, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            println!(r#"{{"event":"changed","at":{at}}}"#);
        }
    }

    /// Waits until another resource of this kind is expected to change.
    #[allow(dead_code, reason = "for who would not be called for each")]
    pub(crate) async fn next_expected(&self, kind: Kind) -> usize {
        loop {
            self.told[kind as usize].notified().await;
            if let Some((_, number)) = self.expected() {
                return number;
            }
        }
    }

    /// Which resource is expected to change, if any.
    pub(crate) fn expected(&self) -> Option<(Kind, usize)> {
        let expected = self.expected.load(Ordering::Relaxed).checked_sub(2)?;
        let kind = if expected % 2 == 0 { Kind::Clusters } else { Kind::Endpoints };
        Some((kind, usize::try_from(expected / 2).ok()?))
    }

    /// Obeys standard input, in a thread of its own until it ends, and then ends the process.
    pub(crate) fn obey(&'static self) {
        thread::spawn(|| {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                let words: Vec<_> = line.split_whitespace().collect();
                match words[..] {
                    ["expect", kind, number] => {
                        let kind = if kind == "clusters" { Kind::Clusters } else { Kind::Endpoints };
                        let number = number.parse().expect("a number");
                        self.expected.store(Self::expectation(kind, number), Ordering::Relaxed);
                        self.told[kind as usize].notify_one();
                        println!(r#"{{"event":"expecting"}}"#);
                    }
                    ["report"] => self.report(),
                    _ => panic!("a line that is not understood: {line}"),
                }
            }
            std::process::exit(0);
        });
    }

    fn report(&self) {
        let (cpu, peak) = used();
        let missing = self.missing.load(Ordering::Relaxed);
        let errors = self.errors.load(Ordering::Relaxed);
        println!(r#"{{"event":"report","missing":{missing},"errors":{errors},"cpu":{cpu},"peak":{peak}}}"#);
    }

    fn expectation(kind: Kind, number: usize) -> u64 {
        number as u64 * 2 + kind as u64 + 2
    }
}

/// Nanoseconds since 1970, by the clock that all processes of this machine share.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// What this process has used: time of the processor in nanoseconds, and at most so many bytes of memory.
fn used() -> (u64, u64) {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let peak = peak.and_then(|peak| peak.trim().parse::<u64>().ok()).unwrap_or(0) * 1024;
    (cpu.tv_sec.unsigned_abs() * 1_000_000_000 + cpu.tv_nsec.unsigned_abs(), peak)
}
