//! What recording a call costs, for a bench.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::Request;

use super::Telemetry;
#[cfg(feature = "metrics")]
use crate::metrics::ChannelMetrics;
use crate::{balance::pick_args::CallAttributes, error::Code};

/// Records unary calls that are not made, as a channel records those that are.
#[derive(Debug)]
pub struct CallRecording {
    telemetry: Telemetry,
    request: Request<()>,
    cluster: Arc<str>,
    endpoint: SocketAddr,
    /// The message of a response, with its prefix.
    message: Bytes,
}

impl CallRecording {
    /// A channel without metrics. Its spans are there for whoever wants them.
    pub fn new() -> Self {
        Self::of(Telemetry::new(None, TARGET.into()))
    }

    /// A channel with metrics.
    #[cfg(feature = "metrics")]
    pub fn with_metrics(metrics: &ChannelMetrics) -> Self {
        Self::of(Telemetry::new(Some(metrics.recorder(TARGET)), TARGET.into()))
    }

    fn of(telemetry: Telemetry) -> Self {
        let mut request = Request::new(());
        *request.uri_mut() = http::Uri::from_static("/shop.Cart/Add");
        Self {
            telemetry,
            request,
            cluster: "cart".into(),
            endpoint: ([127, 0, 0, 1], 80).into(),
            message: Bytes::from_static(&[0, 0, 0, 0, 1, 7]),
        }
    }

    /// Records a call with one attempt, from its start to its end.
    #[inline]
    pub fn call(&self) {
        let mut call = self.telemetry.begin(&self.request);
        let attributes = CallAttributes::default().with_labels(call.pick_labels());
        call.begin_attempt("/");
        call.on_pick(&attributes);
        call.on_stream(&self.cluster, self.endpoint);
        if call.counts_bytes() {
            call.set_sent(1);
        }
        call.on_received(&self.message);
        call.end(Code::Ok);
    }
}

impl Default for CallRecording {
    fn default() -> Self {
        Self::new()
    }
}

const TARGET: &str = "xds:///shop";
