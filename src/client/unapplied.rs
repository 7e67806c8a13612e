//! Waits until a resolution shows the latest resources.

use std::time::Duration;

use tokio::sync::watch;

use super::{command::Command, registry::SharedWatch};
use crate::{base::WatchId, error::Escaped, escape::debug_as_message, resolve::Resolved};

/// The reason why [`Resolution::wait_until_applied`](super::Resolution::wait_until_applied) or `Channel::wait_until_applied` has
/// ended before the accepted configuration was in use.
#[derive(Clone, PartialEq, thiserror::Error)]
#[error(
    "the accepted configuration of {} is not in use after {waited:?}: {}",
    Escaped(target),
    Escaped(reason)
)]
pub struct NotAppliedError {
    /// The target.
    target: Box<str>,
    /// The limit of the wait.
    waited: Duration,
    /// What the configuration waits for.
    reason: Box<str>,
}

/// The waits for the latest resources of resolutions, each with the last report to it.
#[derive(Debug, Default)]
pub(super) struct UnappliedReports {
    waits: Vec<(WatchId, watch::Sender<Option<String>>)>,
}

impl NotAppliedError {
    pub(crate) fn new(target: &str, waited: Duration, reason: &str) -> Self {
        Self { target: target.into(), waited, reason: reason.into() }
    }

    /// What the configuration waits for, such as the endpoints of a cluster that new routes name.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl UnappliedReports {
    /// Adds a wait, which gets its first report by the next [`report`](Self::report).
    pub(super) fn add(&mut self, watch_id: WatchId, reports: watch::Sender<Option<String>>) {
        self.waits.push((watch_id, reports));
    }

    /// Reports what keeps the latest resources out of resolutions. A wait ends with its resolution up to date, or when it is given
    /// up.
    pub(super) fn report(&mut self, mut unapplied: impl FnMut(WatchId) -> Option<String>) {
        self.waits.retain(|(watch_id, reports)| {
            let unapplied = unapplied(*watch_id);
            let goes_on = unapplied.is_some() && !reports.is_closed();
            reports.send_if_modified(|before| {
                let is_modified = *before != unapplied;
                *before = unapplied;
                is_modified
            });
            goes_on
        });
    }
}

/// Waits until a resolution shows the latest resources. A driver that has ended counts as well, since no resolution changes after it.
pub(super) async fn wait_until_applied(
    resolution: &SharedWatch<Resolved>,
    limit: Duration,
) -> Result<(), NotAppliedError> {
    let (reports, mut received) = watch::channel(Some(UNREPORTED.to_owned()));
    resolution.order(|watch_id| Command::ReportUnapplied { watch_id, reports });
    if tokio::time::timeout(limit, received.wait_for(Option::is_none)).await.is_ok() {
        return Ok(());
    }
    let reason = received.borrow().clone().unwrap_or_default();
    Err(NotAppliedError::new(&resolution.subject().name, limit, &reason))
}

debug_as_message!(NotAppliedError);

/// The reason while the driver has not reported.
const UNREPORTED: &str = "the client is busy";
