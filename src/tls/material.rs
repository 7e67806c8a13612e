//! Material from files, kept up to date (CH7.4 to CH7.7).

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::{oneshot, watch},
    task::spawn_blocking,
    time::timeout,
};

use super::{
    Crypto,
    files::{self, Content, Unusable},
    published::{Identity, IdentityOrigin, Need, Published},
    refresh::{Change, Refresh, Trigger, is_due},
    sources::{IdentityBytes, IdentityFiles, RootsContent, Sources},
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
        let published = Published::none(
            none(sources.identity.is_some(), "it has no certificate_file"),
            none(
                sources.roots.is_some(),
                "it has neither a ca_certificate_file nor a spiffe_trust_bundle_map_file",
            ),
        );
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
                let change = identity.handle_reading(now(), reading, |bytes| parse_identity(&files, bytes));
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

/// Reads a certificate with its key, which must fit.
fn parse_identity(from: &IdentityFiles, bytes: &IdentityBytes) -> Result<Identity, Unusable> {
    let content = Content { path: &from.certificate, bytes: &bytes.certificate };
    let private = Content { path: &from.key, bytes: &bytes.key };
    let crypto = from.crypto.provider().map_err(|missing| Unusable::new(missing.to_string()))?;
    let pair = files::identity(&content, &private, crypto)?;
    Ok(Identity::new(pair, IdentityOrigin::File(from.certificate.clone())))
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
