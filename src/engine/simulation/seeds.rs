//! Simulations are run with many seeds; a failing one prints how to repeat it, and the repetition logs all messages.

use std::{
    env,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use tracing_subscriber::EnvFilter;

use super::Family;

/// Runs a test with each of many seeds: `XDSKIT_SIMULATION_SEEDS=100000` of them, or a range such as `5000..10000`, or only
/// `XDSKIT_SIMULATION_SEED=17`, of which it then logs what `RUST_LOG=xdskit=trace` selects. Returns how many there were.
///
/// The first failure ends the test, unless the number of seeds is given: then all of them run, and those that fail are listed.
pub(in crate::engine) fn with_seeds(test: &'static str, run: impl FnMut(u64)) -> u64 {
    with_many_seeds(test, 500, run)
}

/// The same with another number of seeds unless the variable is set.
pub(in crate::engine) fn with_many_seeds(test: &'static str, usual: u64, mut run: impl FnMut(u64)) -> u64 {
    if let Some(seed) = variable("XDSKIT_SIMULATION_SEED") {
        // It is there already if several tests run.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::from_default_env())
            .without_time()
            .with_ansi(false)
            .with_target(false)
            .with_test_writer()
            .try_init();
        run(seed);
        return 1;
    }
    let Some(seeds) = range() else {
        (0..usual).for_each(|seed| run_with(test, seed, &mut run));
        return usual;
    };
    let fails = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run_with(test, *seed, &mut run))).is_err();
    let failed: Vec<_> = seeds.clone().filter(fails).collect();
    assert!(failed.is_empty(), "{} seeds of {test} fail: {failed:?}", failed.len());
    seeds.end - seeds.start
}

/// The seeds of the variable.
fn range() -> Option<Range<u64>> {
    let text = env::var("XDSKIT_SIMULATION_SEEDS").ok()?;
    let (start, end) = text.split_once("..").unwrap_or(("0", &text));
    let number = |text: &str| {
        text.parse()
            .unwrap_or_else(|_| panic!("XDSKIT_SIMULATION_SEEDS={text} is neither a number nor a range"))
    };
    Some(number(start)..number(end))
}

fn run_with(test: &'static str, seed: u64, run: &mut impl FnMut(u64)) {
    let shown = ShownOnPanic { test, seed };
    run(seed);
    drop(shown);
}

/// How servers may behave, and which rules are checked: `XDSKIT_SIMULATION_FAMILY=SkipKnownVersions,Claims` tries these
/// alone.
pub(in crate::engine) fn family() -> Family {
    let Ok(names) = env::var("XDSKIT_SIMULATION_FAMILY") else { return Family::default() };
    Family::of(&names).unwrap_or_else(|| {
        let known: Vec<_> = Family::names().collect();
        panic!("XDSKIT_SIMULATION_FAMILY={names}: known are {}", known.join(", "))
    })
}

fn variable(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// Prints how to repeat a failure.
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
