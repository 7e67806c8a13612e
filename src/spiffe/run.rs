//! A run of the provider: streams of an agent, one after the other.

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::sleep;
use tokio_rustls::rustls::pki_types::UnixTime;

use super::{
    WorkloadApi,
    agent::Responses,
    material::{Material, Svid},
    times::Times,
};
use crate::{backoff::Backoff, config::ServerAddress, resource::tls::CertificatePublisher, tls::date};

/// A run, with what it knows across streams.
struct Run<'a> {
    config: &'a WorkloadApi,
    agent: &'a ServerAddress,
    publisher: &'a CertificatePublisher,
    times: &'a Times,
    /// The identity that is in use; `None` before the first one.
    held: Option<Held>,
}

/// An identity that is in use.
struct Held {
    id: String,
    /// The end of the validity, since 1970.
    not_after: Duration,
    /// Whether the end was logged.
    is_logged: bool,
}

/// Publishes the material of an agent for ever. Streams that end are opened again, with a delay that grows.
pub(super) async fn run(
    config: &WorkloadApi,
    agent: &ServerAddress,
    publisher: &CertificatePublisher,
    times: &Times,
) -> Infallible {
    let mut run = Run { config, agent, publisher, times, held: None };
    let mut backoff = Backoff::new(Arc::new(times.backoff));
    let mut random = fastrand::Rng::with_seed(seed());
    loop {
        let end = run.stream(&mut backoff).await;
        if let Err(reason) = end {
            run.report(&reason);
            let delay = backoff.next(&mut random);
            tokio::select! {
                () = sleep(delay) => {}
                () = run.expiry() => {}
            }
            run.log_expiry();
        }
    }
}

impl Run<'_> {
    /// Reads a stream until it ends, with an error, or until another one is to be opened.
    async fn stream(&mut self, backoff: &mut Backoff) -> Result<(), String> {
        let method = if self.config.bundles_only { FETCH_BUNDLES } else { FETCH_IDENTITIES };
        let mut responses = Responses::open(self.agent, method, self.times).await?;
        let mut response = responses.first(self.times).await?;
        loop {
            match self.handle(response) {
                Ok(()) => backoff.reset(),
                // The stream goes on: its next response may be usable.
                Err(reason) => self.report(&reason),
            }
            let renewal = self.renewal();
            response = tokio::select! {
                response = responses.next() => response?,
                // The agent should have replaced an identity that is about to expire, so another stream may have more of it.
                () = renewal => return Ok(()),
            };
        }
    }

    /// Publishes a response.
    fn handle(&mut self, response: Bytes) -> Result<(), String> {
        let material = match self.config.bundles_only {
            true => Material::of_bundles(response)?,
            false => Material::of_identities(response, self.config.hint.as_deref())?,
        };
        if material.revocation_lists > 0 {
            tracing::debug!(lists = material.revocation_lists, "revocation lists of the agent are not used");
        }
        // The roots first: peers may have certificates of a new authority by the time that they see ours.
        self.publisher.publish_roots(material.roots).map_err(|e| e.to_string())?;
        if let Some(Svid { id, certificate, not_after }) = material.identity {
            self.publisher.publish_identity(certificate).map_err(|e| e.to_string())?;
            self.held = Some(Held { id, not_after, is_logged: false });
        }
        Ok(())
    }

    /// Reports a failure, with what is left.
    fn report(&self, reason: &str) {
        match &self.held {
            None => self.publisher.report_failure(reason),
            Some(held) => {
                let state = if held.not_after > wall() { "is valid until" } else { "has expired at" };
                let (id, not_after) = (&held.id, date(held.not_after));
                self.publisher
                    .report_failure(format_args!("{reason}; the identity {id} {state} {not_after}"));
            }
        }
    }

    /// Waits until the identity expires.
    async fn expiry(&self) {
        match self.held.as_ref().filter(|held| !held.is_logged) {
            Some(held) => sleep(held.not_after.saturating_sub(wall())).await,
            None => pending().await,
        }
    }

    /// Logs once that the identity has expired, since nobody may see the failures of handshakes.
    fn log_expiry(&mut self) {
        if let Some(held) = self.held.as_mut().filter(|held| !held.is_logged && held.not_after <= wall()) {
            held.is_logged = true;
            let (id, not_after) = (&*held.id, date(held.not_after));
            tracing::warn!(
                id,
                not_after,
                "the SPIFFE identity has expired, and the agent has provided no other"
            );
        }
    }

    /// Waits until another stream is to be opened, from now on.
    fn renewal(&self) -> impl Future<Output = ()> + use<> {
        let remaining = self.held.as_ref().map(|held| held.not_after.saturating_sub(wall()));
        let time = remaining.map(|remaining| self.times.renewal_of(remaining));
        async move {
            match time {
                Some(time) => sleep(time).await,
                None => pending().await,
            }
        }
    }
}

/// The time of the wall clock, since 1970.
fn wall() -> Duration {
    Duration::from_secs(UnixTime::now().as_secs())
}

/// A seed for the delays of this run.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// The method for identities, each with its bundle.
const FETCH_IDENTITIES: &str = "/SpiffeWorkloadAPI/FetchX509SVID";
/// The method for bundles alone.
const FETCH_BUNDLES: &str = "/SpiffeWorkloadAPI/FetchX509Bundles";
