//! The execution of the HTTP filters of a call, which see it once, whatever its attempts are (CH5.1).

mod attempt;
mod callbacks;
mod handler;
mod trailers;
mod upstream;

use std::{mem, ops::Range, sync::Arc};

use http::{HeaderMap, Request, Response};
use tonic::{Code, Status, body::Body, metadata::MetadataMap};

use self::handler::HandledCall;
pub(in crate::channel) use self::trailers::TrailerFilters;
pub(super) use self::{attempt::AttemptFilters, callbacks::ChannelCallbacks};
use super::{Call, Routed};
use crate::{
    channel::ChannelBody,
    filters::{Decision, FilterChain, FilterRequest, LocalReply, StreamFilters, Upstream, Visible, Waiting},
    resolve::RouteQuery,
};

/// A call that its filters handle.
pub(super) struct FilterRun<'a, 'c> {
    /// The call.
    call: &'a mut Call<'c>,
    /// The filters of its route, with their slots for this call.
    filters: StreamFilters,
    /// What the call is sent with; `None` once it is sent.
    routed: Option<Routed>,
}

/// How far a request has come.
struct Passed {
    /// The filters before this index have let the request pass, and see the response.
    filters: usize,
    /// How the call goes on behind these filters.
    next: Step,
}

/// What follows for a request.
enum Step {
    /// The request has passed all filters.
    Forward,
    /// The next filter handles the rest of the call.
    Handle,
    /// The next filter has ended the call, or the call has ended while the filter waited.
    End(Status),
}

impl<'a, 'c> FilterRun<'a, 'c> {
    pub(super) fn new(call: &'a mut Call<'c>, chain: Arc<FilterChain>, routed: Routed) -> Self {
        Self { call, filters: StreamFilters::new(chain), routed: Some(routed) }
    }

    /// Runs the filters, and sends the request unless one of them ends the call.
    pub(super) async fn respond(
        mut self,
        request: &mut Request<Body>,
    ) -> Result<Response<ChannelBody>, Status> {
        self.fix_hash(request);
        // The headers are separated from the path, which filters read meanwhile.
        let mut headers = mem::take(request.headers_mut());
        let Passed { filters, next } = self.pass(0, request.uri().path(), &mut headers).await;
        *request.headers_mut() = headers;
        let mut result = match next {
            Step::Forward => self.forward(request).await,
            Step::Handle => {
                let request = mem::take(request);
                return Box::pin(HandledCall::new(self).respond(filters, request)).await;
            }
            Step::End(status) => Err(status),
        };
        self.on_response(0..filters, &mut result);
        let trailers = TrailerFilters::new(&mut self.filters, 0..filters);
        result.map(|response| response.map(|body| body.with_filters(trailers)))
    }

    /// Has the hash of the call be that of the request of the application, if filters may change the request (CH6.21).
    fn fix_hash(&mut self, request: &Request<Body>) {
        if let Some(routed) = &mut self.routed
            && self.filters.hooks().changes_request
        {
            let visible = Visible(request.headers());
            let query = RouteQuery::new(request.uri().path(), 0).with_headers(&visible);
            routed.attributes.fix_hash(&query, &mut self.call.random);
        }
    }

    /// Passes a request through the filters from an index on, up to one that does not let it pass.
    async fn pass(&mut self, from: usize, path: &str, headers: &mut HeaderMap) -> Passed {
        let callbacks = &self.call.context.callbacks;
        // A fork: the call itself is borrowed while a filter waits.
        let mut random = self.call.random.fork();
        for index in from..self.filters.len() {
            if self.filters.chain().handler(index).is_some() {
                return Passed { filters: index, next: Step::Handle };
            }
            let upstream = self.routed.as_mut().map(|routed| -> &mut dyn Upstream { routed });
            let downstream = None;
            let mut request =
                FilterRequest { path, headers, upstream, downstream, random: &mut random, callbacks };
            let decision = self.filters.on_request(index, &mut request);
            if let Decision::Wait(_) = &decision {
                // The call does not wait for an endpoint meanwhile, so that it is none of the calls that are queued.
                self.call.leave_queue();
            }
            if let Err(status) = execute(self.call, decision).await {
                return Passed { filters: index, next: Step::End(status) };
            }
        }
        Passed { filters: self.filters.len(), next: Step::Forward }
    }

    /// Sends a request that has passed all filters.
    async fn forward(&mut self, request: &mut Request<Body>) -> Result<Response<ChannelBody>, Status> {
        // A handler has sent the request already: `Next` is used up by the first request.
        let Some(routed) = self.routed.take() else {
            return Err(Status::internal("sent twice by a filter"));
        };
        self.call.forward(routed, request, AttemptFilters::new(&mut self.filters)).await
    }

    /// Passes the headers of the response to the filters that the request has passed. The status of a call that has failed
    /// becomes a response without messages.
    fn on_response<B>(&mut self, filters: Range<usize>, result: &mut Result<Response<B>, Status>) {
        if !self.filters.hooks().on_response {
            return;
        }
        match result {
            Ok(response) => self.filters.on_response(filters, response.headers_mut()),
            Err(status) => {
                let mut headers = mem::take(status.metadata_mut()).into_headers();
                self.filters.on_response(filters, &mut headers);
                *status.metadata_mut() = MetadataMap::from_headers(headers);
            }
        }
    }
}

/// Executes the decision of a filter.
///
/// # Errors
/// The status of the call, which may be OK: it ends by the filter, or because its time is over.
async fn execute(call: &mut Call<'_>, decision: Decision<'_>) -> Result<(), Status> {
    let LocalReply { code, message, is_misconfigured } = match decision {
        Decision::Continue => return Ok(()),
        Decision::Reply(reply) => reply,
        Decision::Wait(Waiting { future, reason }) => match call.until_shut_down(future).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(reply)) => reply,
            Err(end) => return Err(call.ended(end, reason)),
        },
    };
    Err(match is_misconfigured {
        true => call.unavailable(&message),
        false => Status::new(Code::from(code as i32), message),
    })
}
