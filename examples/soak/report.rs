//! The final report.

use std::{
    collections::BTreeMap,
    fmt, fs,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use crate::watchers::Counters;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) updates: u64,
    /// Short watches, and those of them that received a value.
    pub(crate) visits: (u64, u64),
    pub(crate) counters: Arc<Counters>,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) agreement: Agreement,
    /// The memory usage with all watches, at the start and at the end.
    pub(crate) memory: (Memory, Memory),
    pub(crate) left: Left,
}

/// The agreement of all watchers after the last fault.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) time: Duration,
    /// The maximum time.
    pub(crate) bound: Duration,
    pub(crate) watchers: usize,
    /// The watchers that do not agree.
    pub(crate) disagreeing: Vec<String>,
}

/// The memory usage of the process, in KiB; `None` if the system does not report it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    resident: Option<u64>,
    peak: Option<u64>,
}

/// Resources that remain after the client's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) tasks: usize,
    pub(crate) streams: usize,
}

impl Report {
    pub(crate) fn is_good(&self) -> bool {
        let lost = self.counters.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let agreement = &self.agreement;
        lost.is_empty()
            && agreement.disagreeing.is_empty()
            && agreement.time <= agreement.bound
            && self.left == Left { tasks: 0, streams: 0 }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delivered = self.counters.delivered.load(Ordering::Relaxed);
        let from_fallback = self.counters.from_fallback.load(Ordering::Relaxed);
        writeln!(f, "updates sent        {}", self.updates)?;
        writeln!(f, "updates delivered   {delivered}, of them {from_fallback} by a fallback server")?;
        let (visits, served) = self.visits;
        writeln!(f, "short watches       {visits}, of them {served} served within their time")?;
        writeln!(f, "faults              {}", self.faults.values().sum::<u64>())?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind:<22}{count}")?;
        }
        let lost = self.counters.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        writeln!(f, "values lost         {}", lost.len())?;
        lost.iter().take(SOME).try_for_each(|one| writeln!(f, "  {one}"))?;
        let Agreement { time, bound, watchers, disagreeing } = &self.agreement;
        let (time, bound) = (time.as_secs_f64(), bound.as_secs_f64());
        match disagreeing.len() {
            0 => writeln!(
                f,
                "agreement           of all {watchers} watchers, {time:.2} s after the last fault"
            )?,
            wrong => {
                writeln!(f, "agreement           not on {wrong} resources, {time:.2} s after the last fault")?
            }
        }
        writeln!(f, "  bound               {bound:.2} s")?;
        disagreeing.iter().take(SOME).try_for_each(|one| writeln!(f, "  {one}"))?;
        let (before, after) = self.memory;
        let mib =
            |kib: Option<u64>| kib.map_or("?".to_owned(), |kib| format!("{:.1} MiB", kib as f64 / 1024.0));
        writeln!(
            f,
            "resident memory     {} before, {} after, {} at the peak (client and servers)",
            mib(before.resident),
            mib(after.resident),
            mib(after.peak)
        )?;
        writeln!(f, "left at the end     {} tasks, {} streams", self.left.tasks, self.left.streams)?;
        writeln!(f, "{}", if self.is_good() { "good" } else { "NOT GOOD" })
    }
}

impl Memory {
    /// Reads it from Linux's `/proc`.
    pub(crate) fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix(" kB")?.trim().parse().ok()
        };
        Self { resident: field("VmRSS:"), peak: field("VmHWM:") }
    }
}

/// The maximum number of printed errors.
const SOME: usize = 10;
