//! The client has one core, the servers another one, so that neither moves or disturbs the other. Systems other than Linux run
//! both where they like.

#[cfg(target_os = "linux")]
use std::sync::LazyLock;

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that the process may use, as `taskset` or the system left them.
#[cfg(target_os = "linux")]
static ALLOWED: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let set = sched_getaffinity(None).expect("the system knows them");
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
});

/// Pins the thread, and those that it starts, to the first core.
pub(crate) fn pin_client() {
    #[cfg(target_os = "linux")]
    pin(&ALLOWED[..1]);
}

/// Pins the thread, and those that it starts, to the last core.
pub(crate) fn pin_servers() {
    #[cfg(target_os = "linux")]
    pin(&ALLOWED[ALLOWED.len() - 1..]);
}

/// Lets the thread, and those that it starts, use all cores.
pub(crate) fn unpin() {
    #[cfg(target_os = "linux")]
    pin(&ALLOWED);
}

#[cfg(target_os = "linux")]
fn pin(cores: &[usize]) {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).expect("the process may use these cores");
}
