//! Measures things side by side: in turns, in one run, so that what else the machine does meets all of them alike.

use std::{collections::BTreeMap, hint::black_box, time::Duration};

/// A thing to measure, by name: does its work so many times, and gives back how long that took.
pub(crate) struct Candidate<'a> {
    name: String,
    run: Box<dyn FnMut(u32) -> Duration + 'a>,
}

impl<'a> Candidate<'a> {
    /// Measures `work`; what it returns is kept until the next round begins.
    ///
    /// So the memory of one round is that of the round before it, and what is measured is the work, not how long the system
    /// takes to bring new pages.
    pub(crate) fn kept<T: 'a>(name: impl Into<String>, mut work: impl FnMut() -> T + 'a) -> Self {
        let mut kept = Vec::new();
        let run = move |times: u32| {
            kept.clear();
            kept.reserve(times as usize);
            let start = spent();
            for _ in 0..times {
                kept.push(black_box(work()));
            }
            spent() - start
        };
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// What the rounds took, in nanoseconds for each time, by candidate.
pub(crate) struct Rounds(Vec<(String, Vec<f64>)>);

impl Rounds {
    /// Takes so many rounds, each of all candidates in turn.
    pub(crate) fn of(mut candidates: Vec<Candidate<'_>>, rounds: usize) -> Self {
        let times = candidates.iter_mut().map(calibrate).collect::<Vec<_>>();
        // Behind what they keep, so that the allocator gives nothing back to the system between rounds.
        let behind = black_box(vec![0_u8; 1 << 10]);
        let mut taken = vec![Vec::with_capacity(rounds); candidates.len()];
        for _ in 0..rounds {
            for ((candidate, times), taken) in candidates.iter_mut().zip(&times).zip(&mut taken) {
                taken.push((candidate.run)(*times).as_nanos() as f64 / f64::from(*times));
            }
        }
        drop(behind);
        Self(candidates.into_iter().map(|candidate| candidate.name).zip(taken).collect())
    }

    /// Each candidate with the median of its rounds, and the median of the ratios to the first candidate in the same round.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, f64, f64)> {
        let floor = self.0.first().map_or(&[][..], |(_, taken)| taken);
        self.0.iter().map(move |(name, taken)| {
            let ratios = taken.iter().zip(floor).map(|(taken, floor)| taken / floor);
            (name.as_str(), median(taken.iter().copied()), median(ratios))
        })
    }
}

/// What was measured in rounds, by name; for what a [`Candidate`] cannot repeat as it likes.
#[derive(Default)]
pub(crate) struct Samples(BTreeMap<&'static str, Vec<f64>>);

impl Samples {
    /// Measures some work on as many things, and notes what it took for each; gives what came of it.
    pub(crate) fn measure<T>(&mut self, name: &'static str, things: usize, work: impl FnOnce() -> T) -> T {
        let start = spent();
        let done = black_box(work());
        self.add(name, (spent() - start).as_nanos() as f64 / things as f64);
        done
    }

    /// Notes what a round took, for what is not measured by the time of the thread.
    pub(crate) fn add(&mut self, name: &'static str, taken: f64) {
        self.0.entry(name).or_default().push(taken);
    }

    /// The median in nanoseconds for each thing.
    pub(crate) fn median(&self, name: &str) -> f64 {
        median(self.0[name].iter().copied())
    }

    /// The median of the ratios to another one in the same round.
    pub(crate) fn ratio(&self, name: &str, to: &str) -> f64 {
        median(self.0[name].iter().zip(&self.0[to]).map(|(taken, floor)| taken / floor))
    }

    /// The median of the differences to another one in the same round.
    pub(crate) fn difference(&self, name: &str, to: &str) -> f64 {
        median(self.0[name].iter().zip(&self.0[to]).map(|(taken, floor)| taken - floor))
    }
}

pub(crate) fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<_> = of.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How many times it takes for a round of some milliseconds. The first, cold runs are not counted.
fn calibrate(candidate: &mut Candidate<'_>) -> u32 {
    let mut times = 1;
    // What took long only because it was the first time does not when it is repeated.
    while (candidate.run)(times) < ROUND || (candidate.run)(times) < ROUND {
        times *= 2;
    }
    times
}

const ROUND: Duration = Duration::from_millis(2);

/// The time that this thread had the processor for, which is what it has worked; others on the machine do not count.
#[cfg(unix)]
pub(crate) fn spent() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

#[cfg(not(unix))]
pub(crate) fn spent() -> Duration {
    use std::{sync::OnceLock, time::Instant};

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
