//! The HTTP filters of a call, which run once before its attempts (CH5.1).

mod credentials;
mod custom;
mod gcp_authn;

use std::mem;

use http::{HeaderMap, Request, Response};
use tokio::time::sleep;
use tonic::{Code, Status, body::Body};

pub(super) use self::credentials::{Credential, CredentialHeaders};
use super::{
    ChannelBody,
    call::{Call, Routed},
    headers::Visible,
};
use crate::{
    filters::{
        Filter, FilterChain,
        fault::{self, ActiveFaults, Controls, FaultDraws, Injected},
    },
    resolve::RouteQuery,
    resource::http_filter::Fault,
};

/// The faults of all channels of the process (CH5.10).
static FAULTS: ActiveFaults = ActiveFaults::new();

#[cfg(test)]
pub(super) fn running_faults() -> u32 {
    FAULTS.running()
}

impl Call<'_> {
    /// Runs the filters of the call's route, and sends the request unless one of them ends the call.
    pub(super) async fn filtered(
        &mut self,
        chain: &FilterChain,
        mut routed: Routed,
        request: &mut Request<Body>,
    ) -> Result<Response<ChannelBody>, Status> {
        let (built_in, rest) = until_custom(chain.filters());
        if !rest.is_empty() {
            // The hash is that of the request of the application, which filters may change (CH6.21).
            let visible = Visible(request.headers());
            let query = RouteQuery::new(request.uri().path(), 0).with_headers(&visible);
            routed.draws.fix_hash(&query, &mut self.random);
        }
        self.filter(built_in, &mut routed, (request.uri().path(), request.headers())).await?;
        if rest.is_empty() {
            self.forward(routed, request).await
        } else {
            custom::run(self, rest, routed, mem::take(request)).await
        }
    }

    /// Runs filters of the crate.
    ///
    /// # Errors
    /// The call ends: with a status of a filter, which may be OK, or because its time is over.
    async fn filter(
        &mut self,
        filters: &[Filter],
        routed: &mut Routed,
        (path, headers): (&str, &HeaderMap),
    ) -> Result<(), Status> {
        for filter in filters {
            match filter {
                Filter::Fault(fault) => self.inject(fault, headers).await?,
                Filter::Session(cookie) => {
                    let malformed = self.context.active.malformed();
                    routed.clusters.read(cookie, (path, &Visible(headers)), malformed);
                }
                Filter::GcpAuthn(tokens) => self.add_identity(tokens, routed.clusters.cluster())?,
                // It is run with the rest of the call.
                Filter::Custom(_) => {}
            }
        }
        Ok(())
    }

    /// Delays the call, or fails it, or both in turn (CH5.6).
    async fn inject(&mut self, fault: &Fault, headers: &HeaderMap) -> Result<(), Status> {
        let mut draw = || self.random.u32(..1_000_000);
        let draws = FaultDraws { delay: draw(), abort: draw() };
        let (injected, malformed) = {
            let headers = Visible(headers);
            let controls = Controls::new(&headers);
            (fault::inject(fault, &controls, draws, &FAULTS), controls.malformed())
        };
        self.context.active.malformed().on_fault_headers(malformed);
        // The fault counts until the end of this function, or until the call is dropped.
        let Some(Injected { delay, abort, active: _active }) = injected else { return Ok(()) };
        if let Some(delay) = delay {
            // It does not wait for an endpoint meanwhile, so it is none of the calls that are queued.
            self.queued = None;
            let waited = self.until_shut_down(sleep(delay)).await;
            waited.map_err(|end| self.ended(end, "the delay of an injected fault is not over"))?;
        }
        match abort.map(|code| Code::from(code as i32)) {
            None => Ok(()),
            // A response without messages (A33-2).
            Some(Code::Ok) => Err(Status::ok("")),
            Some(code) => Err(Status::new(code, "fault injected")),
        }
    }
}

/// The filters before the first one of the application, and those from it on.
fn until_custom(filters: &[Filter]) -> (&[Filter], &[Filter]) {
    let custom = filters.iter().position(|filter| matches!(filter, Filter::Custom(_)));
    filters.split_at(custom.unwrap_or(filters.len()))
}
