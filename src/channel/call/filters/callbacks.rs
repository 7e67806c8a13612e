//! The clocks and the I/O that the filters of a channel use.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::time::sleep;

use crate::{
    channel::{malformed::MalformedCounters, metadata_server::MetadataServer},
    filters::{FilterCallbacks, MalformedValue, OwnedFuture, Token, TokenError},
};

/// What the filters of a channel need of it.
pub(in crate::channel) struct ChannelCallbacks {
    /// The source of identity tokens.
    metadata_server: MetadataServer,
    malformed: Arc<MalformedCounters>,
}

impl ChannelCallbacks {
    pub(in crate::channel) fn new(
        metadata_server: MetadataServer,
        malformed: Arc<MalformedCounters>,
    ) -> Self {
        Self { metadata_server, malformed }
    }
}

impl FilterCallbacks for ChannelCallbacks {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn since_1970(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
    }

    fn sleep(&self, time: Duration) -> OwnedFuture<()> {
        Box::pin(sleep(time))
    }

    fn spawn(&self, task: OwnedFuture<()>) {
        tokio::spawn(task);
    }

    fn fetch_identity_token(&self, audience: Arc<str>) -> OwnedFuture<Result<Token, TokenError>> {
        let server = self.metadata_server.clone();
        Box::pin(async move { server.identity_token(&audience).await })
    }

    fn on_malformed(&self, value: MalformedValue, count: u64) {
        match value {
            MalformedValue::FaultHeader => self.malformed.on_fault_headers(count),
            MalformedValue::SessionCookie => self.malformed.on_session_cookies(count),
        }
    }
}
