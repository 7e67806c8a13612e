//! The execution of `gcp_authn` (A83): identity tokens of the metadata server for the calls that need them (CH5.14, CH5.15).

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::HeaderValue;
use tokio::{sync::oneshot, time::Instant};
use tonic::{Code, Status};

use super::{
    super::{call::Call, metadata_server::MetadataServer},
    credentials::Credential,
};
use crate::{
    balance::cluster_use::ClusterReference,
    filters::gcp_authn::{FetchTime, IdentityTokens, Token, TokenDecision, TokenError, TokenResult},
};

/// A fetch that runs. However it ends, the calls that wait for it have an answer.
struct Fetch {
    tokens: Arc<IdentityTokens>,
    audience: Arc<str>,
    is_finished: bool,
}

impl Call<'_> {
    /// The call has a token for the audience of its cluster, if that has one (CH5.12).
    pub(super) fn add_identity(
        &mut self,
        tokens: &Arc<IdentityTokens>,
        cluster: &ClusterReference,
    ) -> Result<(), Status> {
        let resource = cluster.resource();
        let audience = tokens.audience(cluster.name(), resource.as_deref());
        if let Some(audience) = audience.map_err(|reason| self.unavailable(&reason))? {
            self.credentials.push(Credential::Identity(tokens.clone(), audience));
        }
        Ok(())
    }

    /// The token as the value of `authorization`. It is fetched if there is none.
    pub(super) async fn bearer(
        &mut self,
        tokens: &Arc<IdentityTokens>,
        audience: &Arc<str>,
    ) -> Result<HeaderValue, Status> {
        let (answer, answered) = oneshot::channel();
        let waiter = Box::new(move |token: TokenResult| {
            // The call may have ended.
            let _ = answer.send(token);
        });
        let decision = tokens.lock().request(audience, Instant::now().into_std(), waiter);
        let result = match decision {
            TokenDecision::Now(result) => result,
            TokenDecision::NowAndFetch(token) => {
                Fetch::spawn(tokens, audience, &self.context.metadata_server);
                Ok(token)
            }
            TokenDecision::Fetch => {
                Fetch::spawn(tokens, audience, &self.context.metadata_server);
                self.wait_for_token(answered).await?
            }
            TokenDecision::Wait => self.wait_for_token(answered).await?,
        };
        let token = result.map_err(|TokenError { code, message }| {
            // The code is UNAVAILABLE or UNAUTHENTICATED.
            Status::new(Code::from(code as i32), &*message)
        })?;
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| Status::unauthenticated("the identity token is malformed"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn wait_for_token(&mut self, token: oneshot::Receiver<TokenResult>) -> Result<TokenResult, Status> {
        match self.until_shut_down(token).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => Err(self.unavailable("the fetch of the identity token was aborted")),
            Err(end) => Err(self.ended(end, "the identity token is being fetched")),
        }
    }
}

impl Fetch {
    /// Fetches a token in a task of its own, since the call that needs it first may end before others that wait for it.
    fn spawn(tokens: &Arc<IdentityTokens>, audience: &Arc<str>, server: &MetadataServer) {
        let fetch = Self { tokens: tokens.clone(), audience: audience.clone(), is_finished: false };
        let server = server.clone();
        tokio::spawn(async move {
            let outcome = server.identity_token(&fetch.audience).await;
            fetch.finish(outcome);
        });
    }

    fn finish(mut self, outcome: Result<Token, TokenError>) {
        self.is_finished = true;
        self.report(outcome);
    }

    fn report(&self, outcome: Result<Token, TokenError>) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let at = FetchTime { now: Instant::now().into_std(), since_1970 };
        let fetched = self.tokens.lock().on_fetched(&self.audience, outcome, at, &mut fastrand::Rng::new());
        let (waiters, result) = fetched;
        if let Err(error) = &result {
            tracing::debug!(audience = &*self.audience, error = &*error.message, "no identity token");
        }
        for waiter in waiters {
            waiter(result.clone());
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if !self.is_finished {
            self.report(Err(TokenError::unavailable(&self.audience, "the fetch was aborted")));
        }
    }
}
