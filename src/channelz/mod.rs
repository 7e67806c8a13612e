//! The channels of a process as a gRPC service for operators: channelz (gRFC A14), which, with [CSDS](crate::csds), is the admin
//! interface of gRPC (A38).
//!
//! Tools such as `grpcdebug channelz` and the drivers of gRPC's interoperability tests query it: channels with their states and
//! counts of calls, their endpoints as subchannels, and the connections as sockets, with addresses, streams and certificates. An
//! application adds it to a server that only its operators can reach.
//!
//! ```no_run
//! use tonic::transport::Server;
//! use xdskit::{Channel, channelz::ChannelzService};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let shop = Channel::builder("xds:///shop").build()?;
//!
//!     let channelz = ChannelzService::new();
//!     channelz.add(&shop);
//!     Server::builder().add_service(channelz).serve("127.0.0.1:18001".parse()?).await?;
//!     Ok(())
//! }
//! ```
//!
//! A subchannel is an endpoint with all of its addresses, of a priority that is in use or was. The calls of a subchannel are those
//! of its connections; a connection that is lost takes its numbers along. The channels to the lookup
//! services of routes (RLS) are not among the top channels, but channels within the one whose calls are looked up. Traces and flow
//! control windows are left out, and there are no servers. Numbers are at most 0.1 s old.

mod service;
mod view;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use self::view::{ChannelIds, View, next_id};
use crate::{Channel, channel::WeakChannel};

/// The channelz service, to be added to a tonic server.
///
/// Clones are handles of the same service, so that channels can be added at any time. It does not keep a channel alive, and omits
/// channels that have ended.
#[derive(Debug, Clone, Default)]
pub struct ChannelzService {
    channels: Arc<Mutex<BTreeMap<i64, Known>>>,
}

/// A channel of the service.
#[derive(Debug)]
struct Known {
    channel: WeakChannel,
    /// The ids of its parts.
    ids: ChannelIds,
    /// What was collected last.
    view: Option<(Instant, Arc<View>)>,
}

impl ChannelzService {
    /// A service without channels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a channel. Further handles of the same channel have no effect.
    pub fn add(&self, channel: &Channel) {
        let mut channels = self.lock();
        channels.retain(|_, known| !known.channel.has_ended());
        let channel = channel.downgrade();
        if channels.values().all(|known| known.channel != channel) {
            channels.insert(next_id(), Known { channel, ids: ChannelIds::default(), view: None });
        }
    }

    /// The channels from an id on, in the order of their ids, and at most so many; with whether there are no further ones.
    async fn views_from(&self, first: i64, most: usize) -> (Vec<Arc<View>>, bool) {
        let ids: Vec<_> = {
            let mut channels = self.lock();
            channels.retain(|_, known| !known.channel.has_ended());
            channels.range(first..).map(|(id, _)| *id).take(most.saturating_add(1)).collect()
        };
        let is_end = ids.len() <= most;
        let mut views = Vec::new();
        for id in ids.into_iter().take(most) {
            views.extend(self.view(id).await);
        }
        (views, is_end)
    }

    /// A channel; `None` if it has ended.
    async fn view(&self, id: i64) -> Option<Arc<View>> {
        // No lock is held while the channel collects its status.
        let channel = {
            let channels = self.lock();
            let known = channels.get(&id)?;
            match &known.view {
                Some((at, view)) if at.elapsed() < MAX_AGE => return Some(view.clone()),
                _ => known.channel.upgrade()?,
            }
        };
        let status = channel.status().await;
        drop(channel);
        let mut channels = self.lock();
        let known = channels.get_mut(&id)?;
        let view = Arc::new(View::new(id, &status, &mut known.ids));
        known.view = Some((Instant::now(), view.clone()));
        Some(view)
    }

    /// The channel with a part of this id; `None` if there is none, or not any more.
    async fn view_with(&self, has: impl Fn(&ChannelIds) -> bool) -> Option<Arc<View>> {
        let id = self.lock().iter().find(|(_, known)| has(&known.ids)).map(|(id, _)| *id)?;
        self.view(id).await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Known>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a status is used: a tool asks for each part of a channel, and each status costs time in proportion to all of them.
const MAX_AGE: Duration = Duration::from_millis(100);
