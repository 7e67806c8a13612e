//! Random configurations, failures and picks under virtual time, beside a reference model.
//!
//! A seed, or the bytes of a fuzzer, choose configurations of two clusters over two leaves, whether backends are up, when attempts to
//! connect end, which connections are lost, which events come late, how many streams peers permit, how time passes, when calls
//! begin and end, whether calls have sessions, where their cookies lead, and when certificates are rotated. After each step
//! the [model](model) checks that something is tried or waited for, that picks find the endpoints that they have to, that calls are
//! counted exactly, that no call waits for nothing, and that changes of the configuration and ejections keep connections. At the end
//! all backends are up and well, no endpoint is ejected any more, and each cluster has to use its first priority.
//!
//! [Another world](connecting) has many silent endpoints and few slots for attempts, and a bound of the time to the first pick.
//!
//! One seed in eight of a fuzzer chooses the [ends of attempts](retries) instead, and the policies and limits that decide whether
//! another one follows.

mod choices;
mod configs;
#[cfg(test)]
mod connecting;
mod model;
#[cfg(test)]
pub(in crate::balance) mod network;
mod retries;
mod streams;
mod world;

use std::collections::BTreeMap;

use self::{choices::Choices, retries::Calls, world::World};

/// Plays a script; returns how often picks had each outcome.
///
/// # Panics
/// An invariant is violated.
#[cfg_attr(test, allow(dead_code, reason = "the fuzzer plays it"))]
pub(crate) fn play(seed: u64, script: &[u8]) -> BTreeMap<&'static str, u64> {
    match seed % 8 {
        0 => Calls::new(seed, Choices::Bytes(script)).play(),
        _ => run(seed, Choices::Bytes(script)),
    }
}

fn run(seed: u64, choices: Choices<'_>) -> BTreeMap<&'static str, u64> {
    let mut world = World::new(seed, choices);
    while world.step() {}
    world.settle();
    world.end()
}

#[cfg(test)]
mod tests {
    use super::{connecting::Connecting, *};

    #[test]
    fn ch11_8_simulation_of_connecting_to_silent_endpoints() {
        of_seeds(1_000, &["served", "added", "failover from more than the limit"], |seed, _| {
            Connecting::new(seed).play()
        });
    }

    #[test]
    fn simulation_of_balancing() {
        let picks = ["complete", "queue", "connect", "request", "fail", "drop", "ejected", "unejected"];
        let rest = ["between slices", "waits", "granted", "gone", "scaled", "led", "not led", "outdated"];
        let all: Vec<_> = picks.into_iter().chain(rest).collect();
        of_seeds(1_000, &all, |seed, random| run(seed, Choices::Seed { random, operations: 80 }));
    }

    #[test]
    fn simulation_of_retries() {
        of_seeds(2_000, &["deliver", "free", "retry", "never sent"], |seed, random| {
            Calls::new(seed, Choices::Seed { random, operations: 40 }).play()
        });
    }

    /// Runs so many seeds, in which each outcome has to be met often, or the checks of it show nothing.
    ///
    /// `XDSKIT_SIMULATION_SEED` repeats one, `XDSKIT_SIMULATION_SEEDS` sets how many there are.
    fn of_seeds(
        count: u64,
        all: &[&'static str],
        run: impl Fn(u64, fastrand::Rng) -> BTreeMap<&'static str, u64>,
    ) {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let count = number("XDSKIT_SIMULATION_SEEDS").unwrap_or(count);
        let seeds = number("XDSKIT_SIMULATION_SEED").map_or(0..count, |seed| seed..seed + 1);
        let mut outcomes = BTreeMap::new();
        for seed in seeds.clone() {
            let run = || run(seed, fastrand::Rng::with_seed(seed));
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                Ok(some) => {
                    some.into_iter().for_each(|(name, count)| *outcomes.entry(name).or_insert(0) += count)
                }
                Err(panic) => {
                    eprintln!("seed {seed} fails: XDSKIT_SIMULATION_SEED={seed} repeats it");
                    std::panic::resume_unwind(panic);
                }
            }
        }
        // The rarest one is met in two worlds of a hundred.
        let worlds = seeds.end - seeds.start;
        let is_rare = all.iter().any(|it| outcomes.get(it) < Some(&(worlds / 100)));
        assert!(worlds < 1_000 || !is_rare, "{outcomes:?}");
    }
}
