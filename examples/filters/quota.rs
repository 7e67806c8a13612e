//! The filter: each tenant has a number of requests, which routes can change.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;
use tonic::codegen::http::Request;
use xdskit::{
    error::Code,
    resource::{
        Context, Extension, Invalid, Payload,
        http_filter::{
            CallFilter, ClientFilter, FilterBody, FilterError, FilterFuture, HttpFilterExtension, Next, Sides,
        },
    },
};

/// The configuration, in the listener and as an override: `{"requests": 2}`.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Quota {
    requests: u64,
}

/// The requests of each tenant up to now.
type Counts = Mutex<HashMap<Vec<u8>, u64>>;

/// The filter of the calls on some routes.
struct QuotaFilter {
    requests: u64,
    counts: Arc<Counts>,
}

impl Extension for Quota {
    const TYPE_NAME: &'static str = "example.filters.v1.Quota";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let Payload::Struct(settings) = payload else {
            return Err(Invalid::new("must be a TypedStruct"));
        };
        let requests = settings.get("requests").and_then(|requests| requests.as_f64());
        let requests = requests.filter(|requests| *requests >= 0.0);
        let requests = requests.ok_or(Invalid::field("requests", "must be a number, at least 0"))?;
        Ok(Self { requests: requests as u64 })
    }
}

impl HttpFilterExtension for Quota {
    const SIDES: Sides = Sides::Client;
    type Override = Self;
}

impl ClientFilter for Quota {
    /// It outlives updates of the configuration, as long as the filter keeps its name.
    type State = Counts;

    fn state(&self, _name: &str) -> Counts {
        Counts::default()
    }

    /// Called when the configuration changes. The override replaces the configuration of the listener.
    fn call_filter(&self, setting: Option<&Self>, state: &Arc<Counts>) -> Box<dyn CallFilter> {
        Box::new(QuotaFilter { requests: setting.unwrap_or(self).requests, counts: state.clone() })
    }
}

impl CallFilter for QuotaFilter {
    /// Called for each call.
    fn call<'a>(&'a self, request: Request<FilterBody>, next: Next<'a>) -> FilterFuture<'a> {
        Box::pin(async move {
            let tenant = request.headers().get("x-tenant").map_or(Vec::new(), |it| it.as_bytes().to_vec());
            let Some(left) = self.take(tenant) else {
                let message = format!("the quota of {} requests is used up", self.requests);
                return Err(FilterError::new(Code::ResourceExhausted, message));
            };
            let mut response = next.run(request).await;
            response.headers_mut().insert("x-quota-left", left.into());
            Ok(response)
        })
    }
}

impl QuotaFilter {
    /// Counts a request. Returns how many are left; `None` if it is one too many.
    fn take(&self, tenant: Vec<u8>) -> Option<u64> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(tenant).or_default();
        let left = self.requests.checked_sub(*count + 1)?;
        *count += 1;
        Some(left)
    }
}
