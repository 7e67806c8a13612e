//! The material of a certificate provider of the application, which runs on a thread of its own (CH7.29 to CH7.31).
//!
//! ```text
//!   thread: CertificateProviderPlugin::run ──▶ CertificatePublisher ──▶ PluginMaterial ──▶ handshakes
//!   task:   starts runs, one at a time, and delays those after a failure
//! ```

use std::{
    future::{Future, pending},
    hash::{BuildHasher, Hasher, RandomState},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, OwnedMutexGuard, oneshot, watch},
    time::timeout,
};
use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::{
    Crypto,
    explain::with_causes,
    files::{self, KeyPairError, MAX_FILE, Unusable, key_pair},
    material::now,
    published::{Identity, IdentityOrigin, Need, Published},
    spiffe::TrustBundleMap,
    verifier::TrustRoots,
};
use crate::{
    background::panic_message,
    backoff::Backoff,
    base::Custom,
    resource::tls::{
        CertificateIdentity, CertificatePublisher, CertificateRoots, MaterialError,
        certificate_provider::{IdentityEncoding, MaterialSink, RootsEncoding, StartPlugin},
    },
};

/// The material of an instance of a plugin, and how the plugin is run.
pub(super) struct PluginMaterial {
    /// What the material is of, for errors and logs: `certificate provider instance "a"`.
    origin: Box<str>,
    /// The cryptography that loads keys.
    crypto: Crypto,
    /// The configuration of the instance.
    config: Custom,
    /// Starts a run of the plugin.
    start: StartPlugin,
    /// The latest material.
    latest: watch::Sender<Latest>,
    /// Is notified of rotations.
    changes: watch::Sender<()>,
    /// Held by the thread of a run, so that there is one at a time even if a run blocks for ever.
    turn: Arc<AsyncMutex<()>>,
    /// The delays between failed runs.
    backoff: Mutex<Backoff>,
}

/// The latest material of a plugin.
struct Latest {
    /// What handshakes use.
    published: Published,
    /// The identity as it was published, so that an equal one changes nothing.
    identity: Option<CertificateIdentity>,
    /// The roots as they were published.
    roots: Option<CertificateRoots>,
    /// Whether the plugin has reported a failure since it published something: then nobody waits for it.
    is_failing: bool,
}

impl PluginMaterial {
    /// Creates material that nobody has published yet.
    pub(super) fn new(
        origin: String,
        plugin: (Custom, StartPlugin),
        crypto: &Crypto,
        changes: watch::Sender<()>,
    ) -> Self {
        let (config, start) = plugin;
        let published = Published::none(NOTHING_YET, NOTHING_YET);
        let latest = Latest { published, identity: None, roots: None, is_failing: false };
        Self {
            origin: origin.into(),
            crypto: crypto.clone(),
            config,
            start,
            latest: watch::Sender::new(latest),
            changes,
            turn: Arc::default(),
            backoff: Mutex::default(),
        }
    }

    /// What the material is of: `certificate provider instance "a"`.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The last good material.
    pub(super) fn published(&self) -> Published {
        self.latest.borrow().published.clone()
    }

    /// Waits for the next publication or failure from now on.
    pub(super) fn subscribe(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut latest = self.latest.subscribe();
        // An error means that the provider is gone, which those who wait hold.
        async move { drop(latest.changed().await) }
    }

    /// Returns the material for a handshake. A plugin that has neither published it nor failed is waited for.
    pub(super) async fn for_handshake(&self, need: Need) -> Published {
        let mut latest = self.latest.subscribe();
        let is_decided = |latest: &Latest| latest.published.has(need) || latest.is_failing;
        if let Ok(Ok(latest)) = timeout(SILENCE, latest.wait_for(is_decided)).await {
            return latest.published.clone();
        }
        let mut published = self.published();
        published.set_reason(&format!("it has published none within {} s", SILENCE.as_secs()).into());
        published
    }

    /// Runs the plugin until that ends, and returns when it is to be run again; `None` if the runtime ends.
    pub(super) async fn run(self: Arc<Self>) -> Option<Instant> {
        let turn = self.turn.clone().lock_owned().await;
        match self.run_on_thread(turn).await? {
            Ok(()) => {
                self.handle_end();
                pending().await
            }
            Err(reason) => {
                self.handle_failure(&reason);
                let mut random = fastrand::Rng::with_seed(RandomState::new().build_hasher().finish());
                let mut backoff = self.backoff.lock().unwrap_or_else(PoisonError::into_inner);
                Some(now() + backoff.next(&mut random))
            }
        }
    }

    /// Runs the plugin on a thread of its own: it may block. The run is dropped with the returned future, at its next await.
    async fn run_on_thread(self: &Arc<Self>, turn: OwnedMutexGuard<()>) -> Option<Result<(), String>> {
        let (_stop, stopped) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel();
        let (this, runtime) = (self.clone(), Handle::current());
        let run = async move {
            let publisher = CertificatePublisher::new(this.clone());
            let run =
                (this.start)(&this.config, publisher).ok_or("its configuration is of another plugin")?;
            run.await.map_err(|e| with_causes(&*e))
        };
        let run = move || {
            let run = async {
                tokio::select! {
                    biased;
                    // Either way, the task has ended.
                    _ = stopped => Ok(()),
                    end = run => end,
                }
            };
            // What the plugin has in scope is dropped here, too, so that its panics are caught.
            let end = catch_unwind(AssertUnwindSafe(|| runtime.block_on(run)));
            let end = end.unwrap_or_else(|panic| Err(format!("it panicked: {}", panic_message(&*panic))));
            drop(turn);
            // An error means that the task has ended.
            let _ = done.send(end);
        };
        match thread::Builder::new().name("xdskit-certs".to_owned()).spawn(run) {
            Ok(_) => ended.await.ok(),
            Err(e) => Some(Err(format!("it has no thread to run on: {e}"))),
        }
    }

    /// Handles the end of a plugin that has published its last.
    fn handle_end(&self) {
        let published = self.published();
        if published.has(Need::Identity) || published.has(Need::Roots) {
            tracing::debug!(origin = &*self.origin, "certificate provider has completed");
            // Who waits for the other kind waits in vain.
            self.latest.send_modify(|latest| {
                latest.is_failing = true;
                latest.published.set_reason(&"it has completed, and published none".into());
            });
        } else {
            self.handle_failure("it has completed, and published nothing");
        }
    }

    /// Publishes material. A change that is a rotation is notified.
    fn publish(&self, change: impl FnOnce(&mut Latest)) {
        let (mut is_rotated, mut is_mended) = (false, false);
        self.latest.send_modify(|latest| {
            let before = latest.published.rotations;
            change(latest);
            is_rotated = latest.published.rotations != before;
            is_mended = std::mem::take(&mut latest.is_failing);
        });
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner).reset();
        if is_mended {
            tracing::info!(origin = &*self.origin, "certificate provider has recovered");
        }
        if is_rotated {
            self.changes.send_replace(());
        }
    }

    /// Handles material that cannot be used: a failure like those that the plugin reports.
    fn refuse(&self, kind: &str, reason: &str) -> MaterialError {
        let reason = format!("{kind} that cannot be used: {reason}");
        self.handle_failure(&reason);
        MaterialError::new(reason)
    }

    /// Reads an identity.
    fn identity(&self, identity: &CertificateIdentity) -> Result<Identity, Unusable> {
        check_size(identity.len(), MAX_IDENTITY, "64 KiB")?;
        let (chain, key) = match &identity.0 {
            IdentityEncoding::Pem { chain, key } => (
                pem_certificates(chain)?,
                PrivateKeyDer::from_pem_slice(key)
                    .map_err(|e| Unusable::new(format!("no private key in PEM: {e}")))?,
            ),
            IdentityEncoding::Der { chain, key } => (
                chain.iter().map(|one| CertificateDer::from(one.clone())).collect(),
                PrivateKeyDer::try_from(key.clone())
                    .map_err(|e| Unusable::new(format!("no private key in DER: {e}")))?,
            ),
        };
        if chain.is_empty() {
            return Err(Unusable::new("the chain is empty".to_owned()));
        }
        let crypto = self.crypto.provider().map_err(|missing| Unusable::new(missing.to_string()))?;
        let pair = key_pair(chain, key, crypto).map_err(|e| {
            Unusable::new(match e {
                KeyPairError::Key(e) => format!("a key that cannot be used: {e}"),
                KeyPairError::Certificate(e) => files::unusable(&e),
                KeyPairError::Mismatch => "the key is not that of the certificate".to_owned(),
            })
        })?;
        Ok(Identity::new(pair, IdentityOrigin::Provider(self.origin.clone())))
    }
}

impl MaterialSink for PluginMaterial {
    fn handle_identity(&self, identity: CertificateIdentity) -> Result<(), MaterialError> {
        // Equal material keeps the sessions.
        if self.latest.borrow().identity.as_ref() == Some(&identity) {
            self.publish(|_| {});
            return Ok(());
        }
        let parsed = files::parsed(|| self.identity(&identity));
        let new = parsed.map_err(|e| self.refuse("a certificate with a key", &e.reason))?;
        new.warn_if_expired(&self.origin);
        self.publish(|latest| {
            latest.published.set_identity(Ok(Arc::new(new)), None);
            latest.identity = Some(identity);
        });
        Ok(())
    }

    fn handle_roots(&self, roots: CertificateRoots) -> Result<(), MaterialError> {
        if self.latest.borrow().roots.as_ref() == Some(&roots) {
            self.publish(|_| {});
            return Ok(());
        }
        let new = files::parsed(|| trust_roots(&roots)).map_err(|e| self.refuse("roots", &e.reason))?;
        self.publish(|latest| {
            latest.published.set_roots(Ok(Arc::new(new)), None);
            latest.roots = Some(roots);
        });
        Ok(())
    }

    fn handle_failure(&self, reason: &str) {
        let reason: Arc<str> = reason.chars().take(MAX_REASON).collect::<String>().into();
        let mut is_first = false;
        self.latest.send_modify(|latest| {
            is_first = !std::mem::replace(&mut latest.is_failing, true);
            latest.published.set_reason(&reason);
        });
        let (origin, reason) = (&*self.origin, &*reason);
        // A warning once, until it is over.
        match is_first {
            true => {
                tracing::warn!(origin, reason, "certificate provider failed; the last good material is kept")
            }
            false => tracing::debug!(origin, reason, "certificate provider is still failing"),
        }
    }
}

/// Reads roots.
fn trust_roots(roots: &CertificateRoots) -> Result<TrustRoots, Unusable> {
    check_size(roots.len(), usize::try_from(MAX_FILE).unwrap_or(usize::MAX), "16 MiB")?;
    let certificates = match &roots.0 {
        RootsEncoding::Pem(bytes) => pem_certificates(bytes)?,
        RootsEncoding::Der(certificates) => {
            certificates.iter().map(|one| CertificateDer::from(one.clone())).collect()
        }
        RootsEncoding::SpiffeJson(json) => {
            return TrustBundleMap::parse(json).map(TrustRoots::Spiffe).map_err(Unusable::new);
        }
        RootsEncoding::Spiffe(bundles) => {
            return TrustBundleMap::of_certificates(bundles).map(TrustRoots::Spiffe).map_err(Unusable::new);
        }
    };
    if certificates.is_empty() {
        return Err(Unusable::new("there is no certificate".to_owned()));
    }
    let mut store = RootCertStore::empty();
    for certificate in certificates {
        store.add(certificate).map_err(|e| Unusable::new(files::unusable(&e)))?;
    }
    Ok(TrustRoots::Certificates(Arc::new(store)))
}

/// Reads the certificates of a text.
fn pem_certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    certificates.map_err(|e| Unusable::new(format!("no certificates in PEM: {e}")))
}

/// Checks the size of material.
fn check_size(length: usize, limit: usize, shown: &str) -> Result<(), Unusable> {
    match length > limit {
        true => Err(Unusable::new(format!("it is larger than {shown}"))),
        false => Ok(()),
    }
}

/// The reason before a plugin has published anything.
const NOTHING_YET: &str = "it has published none yet";
/// How long a handshake waits for a plugin that has neither published nor failed.
const SILENCE: Duration = Duration::from_secs(10);
/// The largest chain with its key, in bytes: peers refuse larger chains.
const MAX_IDENTITY: usize = 64 << 10;
/// The characters of the reason of a failure that are kept.
const MAX_REASON: usize = 500;

#[cfg(test)]
mod tests;
