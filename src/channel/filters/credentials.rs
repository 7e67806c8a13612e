//! Credentials of calls, which are sent on private connections alone (CH2.21).

use std::sync::Arc;

use http::{HeaderName, HeaderValue, header::AUTHORIZATION};
use tonic::Status;

use super::super::{call::Call, connection::Handle};
use crate::{balance::picker::ReadyEndpoint, filters::gcp_authn::IdentityTokens};

/// A credential that filters have added to a call.
pub(in crate::channel) enum Credential {
    Header(HeaderName, HeaderValue),
    /// The token for an audience.
    Identity(Arc<IdentityTokens>, Arc<str>),
}

/// The headers of a request with the credentials of its call.
pub(in crate::channel) type CredentialHeaders = Vec<(HeaderName, HeaderValue)>;

impl Call<'_> {
    /// The headers with the credentials for a request to an endpoint. Tokens are fetched if need be.
    ///
    /// # Errors
    /// The connection is not private, or there is no token.
    pub(in crate::channel) async fn authenticate(
        &mut self,
        endpoint: &ReadyEndpoint<Handle>,
    ) -> Result<CredentialHeaders, Status> {
        // All connections to an endpoint are made alike.
        if !endpoint.connections.oldest().handle().is_private() {
            return Err(Status::unauthenticated(format!(
                "{}: the connection is plaintext, and the call has credentials, which are sent with TLS alone",
                endpoint.address
            )));
        }
        let mut headers = Vec::new();
        for place in 0..self.credentials.len() {
            headers.push(match &self.credentials[place] {
                Credential::Header(name, value) => (name.clone(), value.clone()),
                Credential::Identity(tokens, audience) => {
                    let (tokens, audience) = (tokens.clone(), audience.clone());
                    (AUTHORIZATION, self.bearer(&tokens, &audience).await?)
                }
            });
        }
        Ok(headers)
    }
}
