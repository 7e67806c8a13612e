//! Whether this process may read its terminal. One in the background that does is stopped by SIGTTIN.

#[cfg(target_os = "linux")]
use std::fs;

/// Whether this process is in the foreground of its terminal, or has none.
#[cfg(target_os = "linux")]
pub(super) fn is_in_foreground() -> bool {
    // `tcgetpgrp` and `getpgrp` without unsafe code.
    fs::read_to_string("/proc/self/stat").map_or(true, |stat| is_foreground(&stat))
}

/// Other systems have no file with the process groups.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_in_foreground() -> bool {
    true
}

/// Whether the process with this `/proc/PID/stat` is in the foreground process group of its terminal, or has no terminal.
#[cfg(target_os = "linux")]
fn is_foreground(stat: &str) -> bool {
    // The second field is the name of the program, which may contain spaces and parentheses.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut fields = fields.split_ascii_whitespace().skip(2);
    let (group, foreground) = (fields.next(), fields.nth(2));
    group == foreground || foreground == Some("-1")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::is_foreground;

    #[test]
    fn a_process_is_in_the_foreground_if_its_group_is_that_of_the_terminal() {
        for (stat, expected) in [
            ("70 (xdskit) S 60 70 60 34816 70 4194304 1", true),
            ("70 (xdskit) S 60 70 60 34816 60 4194304 1", false),
            ("70 (a) 1 2) (b) S 60 70 60 34816 60 4194304 1", false),
            ("70 (a) 1 2) (b) S 60 70 60 34816 70 4194304 1", true),
            ("70 (no terminal) S 60 70 60 0 -1 4194304 1", true),
            ("", true),
        ] {
            assert_eq!(is_foreground(stat), expected, "{stat}");
        }
    }
}
