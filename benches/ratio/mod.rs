//! Measures things side by side: in turns, in one run, so that what else the machine does meets all of them alike.

use std::{hint::black_box, time::Duration};

/// A thing to measure, by name: does its work so many times, and gives back how long that took.
pub(crate) struct Candidate<'a> {
    name: String,
    run: Box<dyn FnMut(u32) -> Duration + 'a>,
}

impl<'a> Candidate<'a> {
    /// Measures `work`; what it returns is kept until the clock has stopped, and dropped then.
    pub(crate) fn kept<T>(name: impl Into<String>, mut work: impl FnMut() -> T + 'a) -> Self {
        let run = move |times: u32| {
            let mut kept = Vec::with_capacity(times as usize);
            let start = spent();
            for _ in 0..times {
                kept.push(black_box(work()));
            }
            spent() - start
        };
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Medians of rounds, in nanoseconds for each time, in the order of the candidates.
pub(crate) struct Medians(Vec<(String, f64)>);

impl Medians {
    /// Takes so many rounds, each of all candidates in turn.
    pub(crate) fn of(mut candidates: Vec<Candidate<'_>>, rounds: usize) -> Self {
        let times = candidates.iter_mut().map(calibrate).collect::<Vec<_>>();
        let mut taken = vec![Vec::with_capacity(rounds); candidates.len()];
        for _ in 0..rounds {
            for ((candidate, times), taken) in candidates.iter_mut().zip(&times).zip(&mut taken) {
                taken.push((candidate.run)(*times).as_nanos() as f64 / f64::from(*times));
            }
        }
        let medians = candidates.into_iter().zip(taken).map(|(candidate, mut taken)| {
            taken.sort_by(f64::total_cmp);
            (candidate.name, taken[taken.len() / 2])
        });
        Self(medians.collect())
    }

    /// The figures of each candidate, and the ratio to the first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, f64, f64)> {
        let floor = self.0.first().map_or(f64::NAN, |(_, first)| *first);
        self.0.iter().map(move |(name, median)| (name.as_str(), *median, median / floor))
    }
}

/// How many times it takes for a round of about 20 ms; the first, cold runs are not counted.
fn calibrate(candidate: &mut Candidate<'_>) -> u32 {
    let mut times = 1;
    loop {
        let taken = (candidate.run)(times);
        if taken > Duration::from_millis(5) || times >= 1 << 20 {
            let one = taken.as_secs_f64() / f64::from(times);
            return ((0.02 / one) as u32).clamp(1, 1 << 20);
        }
        times *= 2;
    }
}

/// The time that this thread had the processor for, which is what it has worked; others on the machine do not count.
#[cfg(unix)]
fn spent() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

#[cfg(not(unix))]
fn spent() -> Duration {
    use std::{sync::OnceLock, time::Instant};

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
