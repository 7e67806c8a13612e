//! A count, in tests, of the entries that linear searches visit, which must not grow with the size of the state.

use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The count of this thread so far.
pub(crate) fn count() -> u64 {
    COUNT.get()
}

/// Adds one.
pub(crate) fn add_one() {
    COUNT.set(COUNT.get() + 1);
}
