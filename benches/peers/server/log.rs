//! What is told on standard output: a JSON object a line.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970, by the clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes a line with these members.
macro_rules! log {
    ($($members:tt)*) => {
        println!("{{{}}}", format_args!($($members)*))
    };
}

pub(crate) use log;
