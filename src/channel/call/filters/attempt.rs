//! The filters of a call during its attempts: credentials, and the responses of endpoints.

use std::mem;

use http::HeaderMap;
use tonic::{Status, metadata::MetadataMap};

use crate::{
    balance::{cluster_use::ClusterReference, pick_args::CallAttributes, ready_endpoint::ReadyEndpoint},
    channel::{call::Call, connection::Handle},
    filters::{AttemptResponse, FilterAttempt, StreamFilters},
};

/// The filters that a call has passed; `None` where its route has none.
pub(in crate::channel) struct AttemptFilters<'a>(Option<&'a mut StreamFilters>);

impl<'a> AttemptFilters<'a> {
    /// The filters of a call without any.
    pub(in crate::channel) fn none() -> Self {
        Self(None)
    }

    pub(super) fn new(filters: &'a mut StreamFilters) -> Self {
        Self(Some(filters))
    }

    /// Whether a filter handles the call, which may respond instead of a server.
    pub(in crate::channel) fn has_handler(&self) -> bool {
        self.0.as_ref().is_some_and(|filters| filters.hooks().handler)
    }

    /// Whether the call has credentials, which are sent on private connections alone (CH2.21).
    pub(in crate::channel) fn have_credentials(&mut self) -> bool {
        self.0.as_mut().is_some_and(|filters| filters.have_credentials())
    }

    /// Returns headers with the credentials for a request to an endpoint. Filters may wait for them.
    ///
    /// # Errors
    /// The connection is not private, or a credential is missing.
    pub(in crate::channel) async fn authenticate(
        &mut self,
        call: &mut Call<'_>,
        endpoint: &ReadyEndpoint<Handle>,
    ) -> Result<Box<HeaderMap>, Status> {
        // All connections to an endpoint are made alike.
        if !endpoint.connections.oldest().handle().is_private() {
            return Err(Status::unauthenticated(format!(
                "{}: the connection is plaintext, and the call has credentials, which are sent with TLS alone",
                endpoint.address
            )));
        }
        let mut credentials = Box::<HeaderMap>::default();
        let Some(filters) = &mut self.0 else { return Ok(credentials) };
        let callbacks = &call.context.callbacks;
        // One missing credential fails the attempt before any of them is sent.
        for index in 0..filters.len() {
            let attempt = FilterAttempt { headers: &mut credentials, callbacks };
            super::execute(call, filters.credentials(index, attempt)).await?;
        }
        Ok(credentials)
    }

    /// Passes the response of an endpoint to the filters.
    pub(in crate::channel) fn on_response(
        &mut self,
        headers: &mut HeaderMap,
        attributes: &CallAttributes,
        cluster: &ClusterReference,
    ) {
        let Some(filters) = &mut self.0 else { return };
        let endpoint = attributes.session.as_ref().and_then(|session| session.picked());
        let endpoint = endpoint.map(|addresses| &**addresses);
        filters.on_attempt_response(&mut AttemptResponse { headers, cluster: cluster.name(), endpoint });
    }

    /// Like [`on_response`](Self::on_response), for a response that is the failure of its attempt, such as one of a proxy.
    pub(in crate::channel) fn on_failed_response(
        &mut self,
        status: &mut Status,
        attributes: &CallAttributes,
        cluster: &ClusterReference,
    ) {
        if self.0.is_some() {
            let mut headers = mem::take(status.metadata_mut()).into_headers();
            self.on_response(&mut headers, attributes, cluster);
            *status.metadata_mut() = MetadataMap::from_headers(headers);
        }
    }
}
