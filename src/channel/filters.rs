//! The HTTP filters of a call, which run once before its attempts (CH5.1).

use http::{HeaderMap, request::Parts};
use tokio::time::sleep;
use tonic::{Code, Status};

use super::{call::Call, headers::Visible, session::SessionClusters};
use crate::{
    filters::{
        Filter, FilterChain,
        fault::{self, ActiveFaults, FaultDraws, Injected},
    },
    resource::http_filter::Fault,
};

/// The faults of all channels of the process (CH5.10).
static FAULTS: ActiveFaults = ActiveFaults::new();

#[cfg(test)]
pub(super) fn running_faults() -> u32 {
    FAULTS.running()
}

impl Call<'_> {
    /// Runs the filters of the call's route.
    ///
    /// # Errors
    /// The call ends: with a status of a filter, which may be OK, or because its time is over.
    pub(super) async fn filter(
        &mut self,
        chain: &FilterChain,
        parts: &Parts,
        clusters: &mut SessionClusters,
    ) -> Result<(), Status> {
        for filter in chain.filters() {
            match filter {
                Filter::Fault(fault) => self.inject(fault, &parts.headers).await?,
                Filter::Session(cookie) => {
                    clusters.read(cookie, parts.uri.path(), &Visible(&parts.headers));
                }
            }
        }
        Ok(())
    }

    /// Delays the call, or fails it, or both in turn (CH5.6).
    async fn inject(&mut self, fault: &Fault, headers: &HeaderMap) -> Result<(), Status> {
        let mut draw = || self.random.u32(..1_000_000);
        let draws = FaultDraws { delay: draw(), abort: draw() };
        let injected = fault::inject(fault, &Visible(headers), draws, &FAULTS);
        // The fault counts until the end of this function, or until the call is dropped.
        let Some(Injected { delay, abort, active: _active }) = injected else { return Ok(()) };
        if let Some(delay) = delay {
            // It does not wait for an endpoint meanwhile, so it is none of the calls that are queued.
            self.place = None;
            let waited = self.until_shut_down(sleep(delay)).await;
            waited.map_err(|over| self.over(over, "the delay of an injected fault is not over"))?;
        }
        match abort.map(|code| Code::from(code as i32)) {
            None => Ok(()),
            // A response without messages (A33-2).
            Some(Code::Ok) => Err(Status::ok("")),
            Some(code) => Err(Status::new(code, "fault injected")),
        }
    }
}
