//! Material from files, kept up to date (CH7.4 to CH7.7).

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tokio_rustls::rustls::{pki_types::CertificateDer, sign::CertifiedKey};

use super::{
    files::{self, Content, Unusable, in_file},
    names::CertificateNames,
    refresh::{Change, Refresh},
    spiffe::TrustBundleMap,
    verifier::TrustRoots,
};
use crate::config::{DEFAULT_REFRESH_INTERVAL, FileWatcherConfig, TlsConfig};

/// Material of one origin: identity, roots or both. Readings are made one after the other, on threads for blocking
/// operations; the last good material is published.
pub(super) struct Material {
    /// What the material is of, for errors and logs: `certificate provider instance "a"`.
    origin: Box<str>,
    sources: Sources,
    readings: Arc<tokio::sync::Mutex<Readings>>,
    published: Mutex<Published>,
    /// Is notified of rotations.
    changes: watch::Sender<()>,
}

/// The last good material, or the reason why there is none.
#[derive(Clone)]
pub(super) struct Published {
    pub(super) identity: Result<Arc<Identity>, Arc<str>>,
    pub(super) roots: Result<Arc<TrustRoots>, Arc<str>>,
    /// When the next reading is due; `None` is at once.
    due: Option<Instant>,
    pub(super) rotations: Rotations,
}

/// How often good material was replaced by other material. The first one replaces nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rotations {
    pub(super) identity: u64,
    pub(super) roots: u64,
}

/// A client's certificate with its key.
pub(super) struct Identity {
    pub(super) key: Arc<CertifiedKey>,
    /// The end of the validity of the certificate, since 1970.
    pub(super) not_after: Option<Duration>,
    /// Its file, for errors.
    pub(super) file: PathBuf,
}

/// What a handshake uses of the material.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Identity,
    Roots,
}

/// The files to read.
#[derive(Clone)]
struct Sources {
    /// The certificate and its key.
    identity: Option<(PathBuf, PathBuf)>,
    roots: Option<RootsSource>,
}

#[derive(Clone)]
enum RootsSource {
    Pem(PathBuf),
    SpiffeMap(PathBuf),
    System,
}

/// The states of both kinds of material, each of which is refreshed apart from the other (CH7.5).
struct Readings {
    identity: Refresh<IdentityBytes, Identity>,
    roots: Refresh<RootsContent, TrustRoots>,
}

/// The contents of two files. They include a private key, so there is no `Debug`.
#[derive(PartialEq)]
struct IdentityBytes {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// What the roots are read from, with its content.
#[derive(PartialEq)]
enum RootsContent {
    Pem(PathBuf, Vec<u8>),
    SpiffeMap(PathBuf, Vec<u8>),
    System(Vec<CertificateDer<'static>>),
}

impl Material {
    /// The files of a `file_watcher`. A map of trust bundles replaces the roots, even if it is unusable (CH7.11).
    pub(super) fn of_file_watcher(origin: String, config: &FileWatcherConfig) -> Self {
        let roots =
            roots_source(config.spiffe_trust_bundle_map_file.as_ref(), config.ca_certificate_file.as_ref());
        let identity = config.certificate_file.clone().zip(config.private_key_file.clone());
        Self::new(origin, Sources { identity, roots }, config.refresh_interval)
    }

    /// The files of TLS without certificate providers. Without roots, those of the system are used (A65).
    pub(super) fn of_config(config: &TlsConfig) -> Self {
        let roots =
            roots_source(config.spiffe_trust_bundle_map_file.as_ref(), config.ca_certificate_file.as_ref());
        let identity = config.certificate_file.clone().zip(config.private_key_file.clone());
        let sources = Sources { identity, roots: roots.or(Some(RootsSource::System)) };
        Self::new("the TLS configuration of the channel".to_owned(), sources, config.refresh_interval)
    }

    /// The roots of the operating system (A82).
    pub(super) fn of_system() -> Self {
        let sources = Sources { identity: None, roots: Some(RootsSource::System) };
        Self::new("the system's root certificates".to_owned(), sources, DEFAULT_REFRESH_INTERVAL)
    }

    fn new(origin: String, sources: Sources, interval: Duration) -> Self {
        let none = |is_configured: bool, missing: &str| -> Arc<str> {
            if is_configured { "not read yet" } else { missing }.into()
        };
        let published = Published {
            identity: Err(none(sources.identity.is_some(), "it has no certificate_file")),
            roots: Err(none(
                sources.roots.is_some(),
                "it has neither a ca_certificate_file nor a spiffe_trust_bundle_map_file",
            )),
            due: None,
            rotations: Rotations::default(),
        };
        let readings = Readings { identity: Refresh::new(interval), roots: Refresh::new(interval) };
        Self {
            origin: origin.into(),
            sources,
            readings: Arc::new(tokio::sync::Mutex::new(readings)),
            published: Mutex::new(published),
            changes: watch::Sender::new(()),
        }
    }

    /// The same, which notifies of rotations here.
    pub(super) fn with_changes(self, changes: watch::Sender<()>) -> Self {
        Self { changes, ..self }
    }

    /// What the material is of: `certificate provider instance "a"`.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The last good material.
    pub(super) fn published(&self) -> Published {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The material for a handshake. It is read if something that the handshake needs has never been good; with
    /// `on_demand`, whenever a reading is due.
    pub(super) async fn for_handshake(self: &Arc<Self>, need: Need, on_demand: bool) -> Published {
        let published = self.published();
        let is_due = published.due.is_none_or(|due| due <= now());
        if published.has(need) && !(on_demand && is_due) {
            return published;
        }
        self.read(Some(need)).await;
        self.published()
    }

    /// Reads what is due, and returns when the next reading is.
    pub(super) async fn refresh(self: &Arc<Self>) -> Option<Instant> {
        self.read(None).await;
        self.published().due
    }

    /// Reads what is due. With a need, what has never been good is due earlier.
    async fn read(self: &Arc<Self>, need: Option<Need>) {
        // Handshakes that wait for the same reading find it done. One that is given up leaves a reading that goes on.
        let mut readings = self.readings.clone().lock_owned().await;
        if let Some(need) = need {
            readings.handle_need(need);
        }
        let this = self.clone();
        let read = move || {
            let now = now();
            readings.read_due(&this, now);
            let next = this.publish(&readings);
            let mut published = this.published.lock().unwrap_or_else(PoisonError::into_inner);
            let is_rotated = published.rotations != next.rotations;
            *published = next;
            drop(published);
            if is_rotated {
                this.changes.send_replace(());
            }
        };
        // It fails only if the runtime ends.
        drop(tokio::task::spawn_blocking(read).await);
    }

    fn publish(&self, readings: &Readings) -> Published {
        let old = self.published();
        let identity = self.sources.identity.as_ref().map(|_| &readings.identity);
        let roots = self.sources.roots.as_ref().map(|_| &readings.roots);
        let dues = [identity.map(Refresh::poll_timeout), roots.map(Refresh::poll_timeout)];
        let mut new = Published {
            identity: identity.map_or_else(|| old.identity.clone(), latest),
            roots: roots.map_or_else(|| old.roots.clone(), latest),
            due: dues.into_iter().flatten().min().flatten(),
            rotations: old.rotations,
        };
        new.rotations.identity += u64::from(is_replaced(&old.identity, &new.identity));
        new.rotations.roots += u64::from(is_replaced(&old.roots, &new.roots));
        new
    }

    /// Logs what a reading has changed. A failure is a warning once, until it is over (CH7.6).
    fn log(&self, what: &str, change: &Change, reason: Option<&Arc<str>>) {
        let (origin, reason) = (&*self.origin, reason.map_or("", |reason| &**reason));
        match change {
            Change::None => {}
            Change::Material => tracing::debug!(origin, what, "certificate material loaded"),
            Change::Mended => tracing::info!(origin, what, "certificate files are usable again"),
            Change::Failed => {
                tracing::warn!(
                    origin,
                    what,
                    reason,
                    "certificate files are unusable; the last good material is kept"
                );
            }
            Change::StillFailed => {
                tracing::debug!(origin, what, reason, "certificate files are still unusable")
            }
        }
    }
}

impl Published {
    fn has(&self, need: Need) -> bool {
        match need {
            Need::Identity => self.identity.is_ok(),
            Need::Roots => self.roots.is_ok(),
        }
    }
}

impl Readings {
    fn handle_need(&mut self, need: Need) {
        match need {
            Need::Identity => self.identity.handle_need(),
            Need::Roots => self.roots.handle_need(),
        }
    }

    fn read_due(&mut self, of: &Material, now: Instant) {
        let is_due = |due: Option<Instant>| due.is_none_or(|due| due <= now);
        if let Some((certificate, key)) =
            of.sources.identity.as_ref().filter(|_| is_due(self.identity.poll_timeout()))
        {
            let change = self.identity.handle_reading(now, IdentityBytes::read(certificate, key), |bytes| {
                Identity::parse(certificate, key, bytes)
            });
            of.log("identity", &change, self.identity.failure());
            if let Some(identity) = self.identity.material().filter(|_| change == Change::Material) {
                identity.warn_if_expired(&of.origin);
            }
        }
        if let Some(source) = of.sources.roots.as_ref().filter(|_| is_due(self.roots.poll_timeout())) {
            let change = self.roots.handle_reading(now, source.read(), RootsContent::parse);
            of.log("roots", &change, self.roots.failure());
        }
    }
}

impl Identity {
    fn parse(certificate: &Path, key: &Path, bytes: &IdentityBytes) -> Result<Self, Unusable> {
        let content = Content { path: certificate, bytes: &bytes.certificate };
        let private = Content { path: key, bytes: &bytes.key };
        let pair = files::identity(&content, &private, &files::crypto())?;
        let names = pair.cert.first().map(|leaf| CertificateNames::of(leaf));
        let not_after = names.and_then(Result::ok).map(|names| names.not_after());
        Ok(Self { key: Arc::new(pair), not_after, file: certificate.to_owned() })
    }

    /// The reason why servers will refuse the certificate, if it has expired.
    pub(super) fn expired(&self, now: Duration) -> Option<String> {
        let ago = now.checked_sub(self.not_after?).filter(|ago| !ago.is_zero())?;
        let why = format!("the client's certificate has expired {} s ago: replace it", ago.as_secs());
        Some(in_file("certificate_file", &self.file, &why))
    }

    /// It is used all the same: it is for servers to refuse it, by their clocks.
    fn warn_if_expired(&self, origin: &str) {
        let now = tokio_rustls::rustls::pki_types::UnixTime::now().as_secs();
        if let Some(reason) = self.expired(Duration::from_secs(now)) {
            tracing::warn!(origin, reason, "the client's certificate has expired");
        }
    }
}

impl IdentityBytes {
    fn read(certificate: &Path, key: &Path) -> Result<Self, String> {
        let certificate = files::read("certificate_file", certificate)?;
        Ok(Self { certificate, key: files::read("private_key_file", key)? })
    }
}

impl RootsSource {
    fn read(&self) -> Result<RootsContent, String> {
        Ok(match self {
            Self::Pem(path) => RootsContent::Pem(path.clone(), files::read("ca_certificate_file", path)?),
            Self::SpiffeMap(path) => {
                RootsContent::SpiffeMap(path.clone(), files::read("spiffe_trust_bundle_map_file", path)?)
            }
            Self::System => RootsContent::System(files::system_certificates()?),
        })
    }
}

impl RootsContent {
    fn parse(&self) -> Result<TrustRoots, Unusable> {
        match self {
            Self::Pem(path, bytes) => {
                let roots = files::roots(&Content { path, bytes })?;
                Ok(TrustRoots::Certificates(Arc::new(roots)))
            }
            Self::SpiffeMap(path, bytes) => TrustBundleMap::parse(bytes)
                .map(TrustRoots::Spiffe)
                .map_err(|why| Unusable::incomplete(in_file("spiffe_trust_bundle_map_file", path, &why))),
            Self::System(certificates) => {
                let roots = files::system_roots(certificates).map_err(Unusable::new)?;
                Ok(TrustRoots::Certificates(Arc::new(roots)))
            }
        }
    }
}

fn roots_source(map: Option<&PathBuf>, roots: Option<&PathBuf>) -> Option<RootsSource> {
    map.cloned().map(RootsSource::SpiffeMap).or_else(|| roots.cloned().map(RootsSource::Pem))
}

/// Whether there was good material, and there is another one now.
fn is_replaced<M>(old: &Result<Arc<M>, Arc<str>>, new: &Result<Arc<M>, Arc<str>>) -> bool {
    matches!((old, new), (Ok(old), Ok(new)) if !Arc::ptr_eq(old, new))
}

/// The last good material of one kind, or the reason of the last failure.
fn latest<S: PartialEq, M>(refresh: &Refresh<S, M>) -> Result<Arc<M>, Arc<str>> {
    refresh
        .material()
        .cloned()
        .ok_or_else(|| refresh.failure().cloned().unwrap_or_else(|| "not read yet".into()))
}

/// The current time of the runtime.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests;
