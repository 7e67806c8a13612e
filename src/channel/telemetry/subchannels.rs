//! The connections of a channel, for metrics (CH9.18).

use std::{collections::HashMap, sync::Arc};

use super::{ChannelObserver, SecurityLevel, SubchannelEvent};
use crate::balance::{command::ConnectionId, disconnect::Disconnect, observer::PickLabels};

/// Counts connections, if somebody listens.
#[derive(Debug)]
pub(in crate::channel) struct Subchannels {
    observer: Option<Arc<dyn ChannelObserver>>,
    /// A connection is closed with the labels that it was opened with, whatever endpoint has it by then.
    open: HashMap<ConnectionId, (PickLabels, SecurityLevel)>,
}

impl Subchannels {
    pub(in crate::channel) fn new(observer: Option<Arc<dyn ChannelObserver>>) -> Self {
        Self { observer, open: HashMap::new() }
    }

    /// A connection is established, with TLS or not. To be called before the balancer knows of it.
    pub(in crate::channel) fn on_connected(
        &mut self,
        id: ConnectionId,
        is_private: bool,
        labels: impl FnOnce() -> PickLabels,
    ) {
        let Some(observer) = &self.observer else { return };
        let level = if is_private { SecurityLevel::PrivacyAndIntegrity } else { SecurityLevel::None };
        let labels = labels();
        observer.on_subchannel(&labels, SubchannelEvent::Connected(level));
        self.open.insert(id, (labels, level));
    }

    /// An attempt has failed. One that the channel itself has ended is none.
    pub(in crate::channel) fn on_failed(&self, labels: impl FnOnce() -> PickLabels) {
        if let Some(observer) = &self.observer {
            observer.on_subchannel(&labels(), SubchannelEvent::ConnectionFailed);
        }
    }

    /// A connection takes no new streams any more. The first reason counts.
    pub(in crate::channel) fn on_lost(&mut self, id: ConnectionId, reason: Disconnect) {
        if let (Some(observer), Some((labels, level))) = (&self.observer, self.open.remove(&id)) {
            observer.on_subchannel(&labels, SubchannelEvent::Disconnected(level, reason.name()));
        }
    }
}
