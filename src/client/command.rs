//! The commands of handles and watches to the driver.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use tokio::sync::{oneshot, watch};

use super::slot::Wakers;
use crate::{
    base::WatchId,
    config::Target,
    engine::{BatchAnswer, BatchOutcome, SelectedBatches, Selection, Status},
    lrs::LoadStreamReport,
    resource::{Erased, ResourceType},
};

/// A command to the driver.
#[derive(Debug)]
pub(super) enum Command {
    Watch {
        watch_id: WatchId,
        ty: ResourceType,
        names: Selection,
        publish: Weak<dyn Publish>,
    },
    Resolve {
        watch_id: WatchId,
        target: Target,
        publish: Weak<dyn Publish>,
    },
    /// Begins a consumer of batches.
    Batches {
        watch_id: WatchId,
        selected: Box<SelectedBatches>,
        publish: Weak<dyn Publish>,
    },
    /// Adds a subscription to a consumer of batches, or ends one.
    ChangeBatches {
        watch_id: WatchId,
        names: Selection,
        is_subscribed: bool,
    },
    /// Answers a batch.
    AnswerBatch {
        watch_id: WatchId,
        answer: BatchAnswer,
        reply: Option<oneshot::Sender<BatchOutcome>>,
    },
    /// Ends a watch of any kind.
    Unwatch {
        watch_id: WatchId,
    },
    /// The first subscription to a cluster within a resolution.
    SubscribeCluster {
        watch_id: WatchId,
        name: Arc<str>,
    },
    /// The end of the last subscription to it.
    UnsubscribeCluster {
        watch_id: WatchId,
        name: Arc<str>,
    },
    RequestReresolution {
        watch_id: WatchId,
    },
    /// Reports what keeps the latest resources out of a resolution, until nothing does.
    ReportUnapplied {
        watch_id: WatchId,
        reports: watch::Sender<Option<String>>,
    },
    /// Returns the current status.
    Status {
        reply: oneshot::Sender<(Status, Vec<LoadStreamReport>)>,
    },
    /// Something has changed for the streams of load reports.
    LoadsChanged,
    Shutdown,
}

/// A watch with its type erased, for the driver.
pub(super) trait Publish: fmt::Debug + Send + Sync {
    fn publish(&self, observed: Erased) -> Wakers;

    /// Closes the watch: nothing is published after this.
    fn close(&self) -> Wakers;
}
