//! Simulations are run with many seeds; a failing one says how to repeat it.

use std::env;

/// Runs a test with each of many seeds: `XDSKIT_SIMULATION_SEEDS=100000` of them, or only `XDSKIT_SIMULATION_SEED=17`.
pub(super) fn with_seeds(test: &'static str, run: impl Fn(u64)) {
    if let Some(seed) = variable("XDSKIT_SIMULATION_SEED") {
        return run(seed);
    }
    for seed in 0..variable("XDSKIT_SIMULATION_SEEDS").unwrap_or(2_000) {
        let shown = ShownOnPanic { test, seed };
        run(seed);
        drop(shown);
    }
}

fn variable(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// Says how to repeat a failure.
struct ShownOnPanic {
    test: &'static str,
    seed: u64,
}

impl Drop for ShownOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed } = self;
            eprintln!("to repeat it: XDSKIT_SIMULATION_SEED={seed} cargo test --lib {test}");
        }
    }
}
