//! Material from files, kept up to date (CH7.4 to CH7.7).

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::{oneshot, watch},
    task::spawn_blocking,
    time::timeout,
};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::{
    Crypto,
    files::{self, Content, Unusable, in_file},
    names::CertificateNames,
    refresh::{Change, Refresh, Trigger, is_due},
    sources::{IdentityBytes, IdentityFiles, RootsContent, Sources},
    validity::date,
    verifier::TrustRoots,
};
use crate::{
    background::supervise,
    config::{DEFAULT_REFRESH_INTERVAL, FileWatcherConfig, TlsConfig},
    file_reads::FileReads,
};

/// Material of one origin: identity, roots or both. Readings of a kind are made one after the other, on threads for blocking
/// operations and within a limit of time; the last good material is published.
pub(super) struct Material {
    /// What the material is of, for errors and logs: `certificate provider instance "a"`.
    origin: Box<str>,
    /// What the roots are of, for the errors of verification.
    roots_origin: Box<str>,
    /// The files to read.
    sources: Sources,
    /// The states of both kinds of material, each of which is refreshed apart from the other (CH7.5).
    identity: Arc<tokio::sync::Mutex<Refresh<IdentityBytes, Identity>>>,
    /// The state of the roots.
    roots: Arc<tokio::sync::Mutex<Refresh<RootsContent, TrustRoots>>>,
    /// Bounds the time and the threads of readings.
    reads: FileReads,
    /// The result of the last readings. Locked for a clone alone.
    published: Mutex<Published>,
    /// Is notified of rotations.
    changes: watch::Sender<()>,
}

/// The last good material, or the reason why there is none.
#[derive(Clone)]
pub(super) struct Published {
    /// The client's identity.
    pub(super) identity: Result<Arc<Identity>, Arc<str>>,
    /// The roots that verify servers.
    pub(super) roots: Result<Arc<TrustRoots>, Arc<str>>,
    /// When the next readings are due; `None` is at once.
    identity_due: Option<Instant>,
    roots_due: Option<Instant>,
    /// How often the material was replaced; compared by those who follow rotations.
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
    /// The certificate chain and its key.
    pub(super) key: Arc<CertifiedKey>,
    /// The end of the validity of the certificate, since 1970.
    pub(super) not_after: Option<Duration>,
    /// Its file, for errors.
    pub(super) file: PathBuf,
}

/// The kind of material that a handshake needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Identity,
    Roots,
}

/// How old the material of a handshake may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// As old as it is: a task reads the files at the interval.
    Watched,
    /// As old as the interval.
    Interval,
    /// Read for the handshake.
    Handshake,
}

impl Material {
    /// The material of a `file_watcher`.
    pub(super) fn of_file_watcher(origin: String, config: &FileWatcherConfig, crypto: &Crypto) -> Self {
        Self::new(origin, Sources::of_file_watcher(config, crypto), config.refresh_interval)
    }

    /// The material of TLS without certificate providers.
    pub(super) fn of_config(config: &TlsConfig, origin: String, crypto: &Crypto) -> Self {
        Self::new(origin, Sources::of_config(config, crypto), config.refresh_interval)
    }

    /// The material of TLS to a management server. Errors of verification name the file of the roots.
    pub(super) fn of_server(config: &TlsConfig, server: &str, crypto: &Crypto) -> Self {
        let origin = format!("the TLS configuration of xDS server {server}");
        let material = Self::of_config(config, origin, crypto);
        Self { roots_origin: material.sources.roots_origin().into(), ..material }
    }

    /// The roots of the operating system (A82).
    pub(super) fn of_system() -> Self {
        let origin = "the system's root certificates".to_owned();
        Self::new(origin, Sources::of_system(), DEFAULT_REFRESH_INTERVAL)
    }

    /// Creates material that is not read yet.
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
            identity_due: None,
            roots_due: None,
            rotations: Rotations::default(),
        };
        Self {
            roots_origin: origin.as_str().into(),
            origin: origin.into(),
            sources,
            identity: Arc::new(tokio::sync::Mutex::new(Refresh::new(interval))),
            roots: Arc::new(tokio::sync::Mutex::new(Refresh::new(interval))),
            reads: FileReads::default(),
            published: Mutex::new(published),
            changes: watch::Sender::new(()),
        }
    }

    /// Sets where rotations are notified.
    pub(super) fn with_changes(self, changes: watch::Sender<()>) -> Self {
        Self { changes, ..self }
    }

    /// What the material is of: `certificate provider instance "a"`.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// What the roots are of, for the errors of verification.
    pub(super) fn roots_origin(&self) -> &str {
        &self.roots_origin
    }

    /// The last good material.
    pub(super) fn published(&self) -> Published {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the material for a handshake. It is read if it is too old, or if what the handshake needs has never been good.
    pub(super) async fn for_handshake(self: &Arc<Self>, need: Need, freshness: Freshness) -> Published {
        let (published, now) = (self.published(), now());
        let is_fresh = match freshness {
            Freshness::Watched => true,
            Freshness::Interval => !is_due(published.due(need), now),
            Freshness::Handshake => false,
        };
        if published.has(need) && is_fresh {
            return published;
        }
        let trigger = match freshness {
            Freshness::Watched | Freshness::Interval => Trigger::Missing,
            Freshness::Handshake => Trigger::Handshake(now),
        };
        let read = async {
            match need {
                Need::Identity => self.read_identity(trigger).await,
                Need::Roots => self.read_roots(trigger).await,
            }
        };
        match published.has(need) {
            // The reading goes on, for the next handshake. Good material is better than none because of a file that hangs.
            true => drop(timeout(REFRESH_WAIT, read).await),
            false => read.await,
        }
        self.published()
    }

    /// Reads what is due, and returns when the next reading is.
    pub(super) async fn refresh(self: &Arc<Self>) -> Option<Instant> {
        tokio::join!(self.read_identity(Trigger::Interval), self.read_roots(Trigger::Interval));
        let published = self.published();
        // A kind without files is left out: it is never read, so that it would be due at once for ever.
        let identity = self.sources.identity.as_ref().map(|_| published.identity_due);
        let roots = self.sources.roots.as_ref().map(|_| published.roots_due);
        [identity, roots].into_iter().flatten().min().flatten()
    }

    /// Reads certificate and key if that is due. The trigger may have them due earlier.
    async fn read_identity(self: &Arc<Self>, trigger: Trigger) {
        let Some(files) = self.sources.identity.clone() else { return };
        let this = self.clone();
        read_in_background(async move {
            // Handshakes that wait for the same reading find it done.
            let mut identity = this.identity.clone().lock_owned().await;
            if !identity.begin_reading(trigger, now()) {
                return;
            }
            let reader = files.clone();
            let read = move || reader.read();
            let reading = this.reads.read("certificate_file", &files.certificate, read).await;
            let parse = move || {
                let change = identity.handle_reading(now(), reading, |bytes| Identity::parse(&files, bytes));
                this.log("identity", &change, identity.failure());
                if let Some(identity) = identity.material().filter(|_| change == Change::Material) {
                    identity.warn_if_expired(&this.origin);
                }
                let (latest, due) = (latest(&identity), identity.poll_timeout());
                this.publish(|published| published.set_identity(latest, due));
            };
            // It fails only if the runtime ends.
            drop(spawn_blocking(parse).await);
        })
        .await;
    }

    /// Reads the roots if that is due. The trigger may have them due earlier.
    async fn read_roots(self: &Arc<Self>, trigger: Trigger) {
        let Some(source) = self.sources.roots.clone() else { return };
        let this = self.clone();
        read_in_background(async move {
            let mut roots = this.roots.clone().lock_owned().await;
            if !roots.begin_reading(trigger, now()) {
                return;
            }
            let (field, path) = source.file();
            let reading = this.reads.read(field, &path, move || source.read()).await;
            let parse = move || {
                let change = roots.handle_reading(now(), reading, RootsContent::parse);
                this.log("roots", &change, roots.failure());
                let (latest, due) = (latest(&roots), roots.poll_timeout());
                this.publish(|published| published.set_roots(latest, due));
            };
            drop(spawn_blocking(parse).await);
        })
        .await;
    }

    /// Publishes what a reading has led to. A change that is a rotation is notified.
    fn publish(&self, change: impl FnOnce(&mut Published)) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let before = published.rotations;
        change(&mut published);
        let is_rotated = published.rotations != before;
        // The watchers are woken without the lock, since they read `published` at once.
        drop(published);
        if is_rotated {
            self.changes.send_replace(());
        }
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
    /// Whether there is material of a kind.
    fn has(&self, need: Need) -> bool {
        match need {
            Need::Identity => self.identity.is_ok(),
            Need::Roots => self.roots.is_ok(),
        }
    }

    /// Returns when a kind is to be read again; `None` is at once.
    fn due(&self, need: Need) -> Option<Instant> {
        match need {
            Need::Identity => self.identity_due,
            Need::Roots => self.roots_due,
        }
    }

    /// Sets the result of a reading of the identity, and counts a rotation.
    fn set_identity(&mut self, latest: Result<Arc<Identity>, Arc<str>>, due: Option<Instant>) {
        // Counted, and not flagged: each follower compares with the number that it has seen, in its own time.
        self.rotations.identity += u64::from(is_replaced(&self.identity, &latest));
        (self.identity, self.identity_due) = (latest, due);
    }

    /// Sets the result of a reading of the roots, and counts a rotation.
    fn set_roots(&mut self, latest: Result<Arc<TrustRoots>, Arc<str>>, due: Option<Instant>) {
        self.rotations.roots += u64::from(is_replaced(&self.roots, &latest));
        (self.roots, self.roots_due) = (latest, due);
    }
}

impl Identity {
    /// Reads a certificate with its key, which must fit.
    fn parse(from: &IdentityFiles, bytes: &IdentityBytes) -> Result<Self, Unusable> {
        let content = Content { path: &from.certificate, bytes: &bytes.certificate };
        let private = Content { path: &from.key, bytes: &bytes.key };
        let crypto = from.crypto.provider().map_err(|missing| Unusable::new(missing.to_string()))?;
        let pair = files::identity(&content, &private, crypto)?;
        let names = pair.cert.first().map(|leaf| CertificateNames::of(leaf));
        let not_after = names.and_then(Result::ok).map(|names| names.not_after());
        Ok(Self { key: Arc::new(pair), not_after, file: from.certificate.clone() })
    }

    /// The reason why servers will refuse the certificate, if it has expired.
    pub(super) fn expired(&self, now: Duration) -> Option<String> {
        let ago = now.checked_sub(self.not_after?).filter(|ago| !ago.is_zero())?;
        let not_after = date(self.not_after?);
        let why = format!(
            "the client's certificate has expired {} s ago (not after {not_after}): replace it",
            ago.as_secs()
        );
        Some(in_file("certificate_file", &self.file, &why))
    }

    /// Logs that the certificate has expired. It is used nevertheless: servers refuse it by their own clocks.
    fn warn_if_expired(&self, origin: &str) {
        let now = tokio_rustls::rustls::pki_types::UnixTime::now().as_secs();
        if let Some(reason) = self.expired(Duration::from_secs(now)) {
            tracing::warn!(origin, reason, "the client's certificate has expired");
        }
    }
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

/// Executes a reading in a task of its own: a handshake that is given up leaves a reading that goes on.
pub(super) async fn read_in_background(reading: impl Future<Output = ()> + Send + 'static) {
    let (done, is_done) = oneshot::channel();
    tokio::spawn(supervise("reading of certificate files", reading, move |_| {
        // The handshake may have been given up.
        let _ = done.send(());
    }));
    // An error means that the runtime has ended.
    let _ = is_done.await;
}

/// The current time of the runtime.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// How long a handshake that has good material waits for a reading.
const REFRESH_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
