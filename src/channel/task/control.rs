//! Requests to the task of a channel.

use std::{sync::Arc, time::Duration};

use tokio::sync::{
    mpsc::{UnboundedReceiver, WeakUnboundedSender},
    oneshot,
};

use crate::{
    balance::{
        connect_request::ConnectRequest,
        status::{ClusterStatus, LeafStatus},
    },
    client::Resolution,
};

/// Requests of calls and handles to the task of their channel.
pub(in crate::channel) enum Control {
    /// Leave the idle state.
    Wake,
    /// The application subscribes to a cluster (CH2.8).
    Subscribe(Arc<str>),
    /// The application ends a subscription.
    Unsubscribe(Arc<str>),
    /// A pick requested a connection of a cluster.
    Connect { cluster: Arc<str> },
    /// A pick requested the connection of an endpoint.
    ConnectEndpoint(ConnectRequest),
    /// The application requested connections: leave the idle state, also that of the clusters.
    ExitIdle,
    /// Calls have released a cluster, which may be unused now.
    Release,
    /// The application ends the delays between attempts to connect.
    ResetBackoff,
    /// The application requests the resolution of the target, which begins if the channel is idle.
    Resolution(oneshot::Sender<Resolution>),
    /// The application waits until calls use the latest state of the resolution.
    UseLatest(oneshot::Sender<()>),
    /// The application requests the state of the clusters.
    Status(oneshot::Sender<Collected>),
    /// The application shuts the channel down; `done` is dropped or sent at its end.
    Shutdown { grace: Duration, done: oneshot::Sender<()> },
}

/// The part of a status that the task of the channel knows.
#[derive(Debug, Default)]
pub(in crate::channel) struct Collected {
    /// Why the target cannot be resolved, or why the configuration may be stale.
    pub(in crate::channel) error: Option<Arc<str>>,
    /// The clusters that routes name.
    pub(in crate::channel) clusters: Vec<ClusterStatus>,
    /// The clusters with endpoints that these consist of.
    pub(in crate::channel) leaves: Vec<LeafStatus>,
    /// The parts of the configuration that the channel does not use.
    pub(in crate::channel) not_executed: Vec<Arc<str>>,
}

/// The queue from the handles of a channel to its task.
pub(in crate::channel) struct ControlQueue {
    /// The handles own the queue: with a strong sender here, the task would never see that the last one is gone (CH1.5).
    pub(in crate::channel) sender: WeakUnboundedSender<Control>,
    /// The end of the task.
    pub(in crate::channel) receiver: UnboundedReceiver<Control>,
}
