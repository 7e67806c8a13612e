//! The last good material of a source, as handshakes use it.

use std::{
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_rustls::rustls::{pki_types::UnixTime, sign::CertifiedKey};

use super::{names::CertificateNames, validity::date, verifier::TrustRoots};

/// The last good material, or the reason why there is none.
#[derive(Clone)]
pub(super) struct Published {
    /// The own certificate with its key.
    pub(super) identity: Result<Arc<Identity>, Arc<str>>,
    /// The roots that verify peers.
    pub(super) roots: Result<Arc<TrustRoots>, Arc<str>>,
    /// When the next readings of files are due; `None` is at once.
    pub(super) identity_due: Option<Instant>,
    pub(super) roots_due: Option<Instant>,
    /// How often the material was replaced; compared by those who follow rotations.
    pub(super) rotations: Rotations,
}

/// How often good material was replaced by other material. The first one replaces nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rotations {
    pub(super) identity: u64,
    pub(super) roots: u64,
}

/// A certificate with its key: that of a client in channels, and of the server in servers.
pub(super) struct Identity {
    /// The certificate chain and its key.
    pub(super) key: Arc<CertifiedKey>,
    /// The end of the validity of the certificate, since 1970.
    pub(super) not_after: Option<Duration>,
    /// Its source, for errors.
    pub(super) origin: IdentityOrigin,
}

/// The source of a certificate, for errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IdentityOrigin {
    /// A `certificate_file`.
    File(PathBuf),
    /// A certificate provider of the application: `certificate provider instance "a"`.
    Provider(Box<str>),
}

/// The kind of material that a handshake needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Identity,
    Roots,
}

impl Published {
    /// Creates the state before there is any material.
    pub(super) fn none(identity: impl Into<Arc<str>>, roots: impl Into<Arc<str>>) -> Self {
        Self {
            identity: Err(identity.into()),
            roots: Err(roots.into()),
            identity_due: None,
            roots_due: None,
            rotations: Rotations::default(),
        }
    }

    /// Whether there is material of a kind.
    pub(super) fn has(&self, need: Need) -> bool {
        match need {
            Need::Identity => self.identity.is_ok(),
            Need::Roots => self.roots.is_ok(),
        }
    }

    /// Returns when a kind is to be read again; `None` is at once.
    pub(super) fn due(&self, need: Need) -> Option<Instant> {
        match need {
            Need::Identity => self.identity_due,
            Need::Roots => self.roots_due,
        }
    }

    /// Sets the result of a reading of the identity, and counts a rotation.
    pub(super) fn set_identity(&mut self, latest: Result<Arc<Identity>, Arc<str>>, due: Option<Instant>) {
        // Counted, and not flagged: each follower compares with the number that it has seen, in its own time.
        self.rotations.identity += u64::from(is_replaced(&self.identity, &latest));
        (self.identity, self.identity_due) = (latest, due);
    }

    /// Sets the result of a reading of the roots, and counts a rotation.
    pub(super) fn set_roots(&mut self, latest: Result<Arc<TrustRoots>, Arc<str>>, due: Option<Instant>) {
        self.rotations.roots += u64::from(is_replaced(&self.roots, &latest));
        (self.roots, self.roots_due) = (latest, due);
    }

    /// Sets the reason why there is no material of the kinds that are missing.
    pub(super) fn set_reason(&mut self, reason: &Arc<str>) {
        if let Err(known) = &mut self.identity {
            *known = reason.clone();
        }
        if let Err(known) = &mut self.roots {
            *known = reason.clone();
        }
    }
}

impl Identity {
    /// Creates an identity of a chain with its key.
    pub(super) fn new(pair: CertifiedKey, origin: IdentityOrigin) -> Self {
        let names = pair.cert.first().map(|leaf| CertificateNames::of(leaf));
        let not_after = names.and_then(Result::ok).map(|names| names.not_after());
        Self { key: Arc::new(pair), not_after, origin }
    }

    /// The reason why peers will refuse the certificate, if it has expired.
    pub(super) fn expired(&self, now: Duration) -> Option<String> {
        let ago = now.checked_sub(self.not_after?).filter(|ago| !ago.is_zero())?;
        let not_after = date(self.not_after?);
        let why =
            format!("certificate has expired {} s ago (not after {not_after}): replace it", ago.as_secs());
        Some(match &self.origin {
            IdentityOrigin::File(path) => {
                format!("certificate_file {}: the client's {why}", path.display())
            }
            IdentityOrigin::Provider(origin) => format!("{origin}: the {why}"),
        })
    }

    /// Logs that the certificate has expired. It is used nevertheless: peers refuse it by their own clocks.
    pub(super) fn warn_if_expired(&self, origin: &str) {
        if let Some(reason) = self.expired(Duration::from_secs(UnixTime::now().as_secs())) {
            tracing::warn!(origin, reason, "the client's certificate has expired");
        }
    }
}

/// Follows "the certificate".
impl fmt::Display for IdentityOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "in {}", path.display()),
            Self::Provider(origin) => write!(f, "of {origin}"),
        }
    }
}

/// Whether there was good material, and there is another one now.
fn is_replaced<M>(old: &Result<Arc<M>, Arc<str>>, new: &Result<Arc<M>, Arc<str>>) -> bool {
    matches!((old, new), (Ok(old), Ok(new)) if !Arc::ptr_eq(old, new))
}
