//! Counts, in tests, how many places are gone through one by one to find something: what must not grow with how much is held.

use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// How many on this thread so far.
pub(crate) fn count() -> u64 {
    COUNT.get()
}

/// One more.
pub(crate) fn note() {
    COUNT.set(COUNT.get() + 1);
}
