//! The certificate providers of a bootstrap (CH7.4).

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::pending,
    sync::Arc,
};

use tokio::sync::watch;

use super::{
    Crypto,
    material::{Material, Rotations},
    watching::{Watch, Watching},
};
use crate::config::{Bootstrap, CertificateProvider, FileWatcherConfig};

/// The certificate providers of one client (CH7.4). Making it does no I/O: an instance is started by its first user, and
/// stops with its last one; its last good material is kept for the next user.
pub(crate) struct Providers {
    /// Instances by name, or the reason why one cannot be used.
    instances: BTreeMap<Box<str>, Result<Arc<Provider>, Box<str>>>,
    /// The cryptography that loads keys and makes handshakes.
    crypto: Crypto,
    /// The operating system's roots (A82). They are read for handshakes, when they are older than the interval.
    system: Arc<Material>,
    /// Is notified of rotations of any instance.
    changes: watch::Sender<()>,
}

/// A subscription to the rotations of a client's certificate providers.
pub(crate) struct ProviderRotations {
    providers: Arc<Providers>,
    changes: watch::Receiver<()>,
    /// Rotations that were returned, by instance.
    seen: BTreeMap<Box<str>, Rotations>,
}

/// A certificate provider whose good material was replaced by other material (CH7.7).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RotatedInstance {
    pub(crate) name: Box<str>,
    /// Whether the client certificate was replaced.
    pub(crate) identity: bool,
    /// Whether the roots were replaced.
    pub(crate) roots: bool,
}

/// An instance, which instances of the same configuration share.
pub(super) struct Provider {
    material: Arc<Material>,
    /// The task that reads the files again, while somebody needs it.
    watch: Watch,
}

impl Providers {
    /// Creates the providers of a bootstrap.
    pub(crate) fn new(bootstrap: &Bootstrap, crypto: Crypto) -> Arc<Self> {
        let (instances, changes) = (bootstrap.certificate_providers(), watch::Sender::new(()));
        // Instances with equal configurations share one, so that files are read once, and logged once.
        let mut names: HashMap<&FileWatcherConfig, Vec<&str>> = HashMap::new();
        for (name, provider) in instances {
            if let CertificateProvider::FileWatcher(config) = provider {
                names.entry(config).or_default().push(name);
            }
        }
        let shared: HashMap<_, _> = names
            .into_iter()
            .map(|(config, names)| {
                let provider = Provider::of_file_watcher(&names, config, &crypto, changes.clone());
                (config, Arc::new(provider))
            })
            .collect();
        let instance = |(name, provider): (&String, &CertificateProvider)| {
            let provider = match provider {
                CertificateProvider::FileWatcher(config) => {
                    shared.get(config).cloned().ok_or_else(Box::default)
                }
                CertificateProvider::Custom(_) | CertificateProvider::Unknown { .. } => {
                    let plugin = provider.plugin_name();
                    let why = format!(
                        "its plugin {plugin:?} provides no certificates to channels, only `file_watcher` does"
                    );
                    Err(why.into())
                }
            };
            (name.as_str().into(), provider)
        };
        let instances = instances.iter().map(instance).collect();
        Arc::new(Self { instances, crypto, system: Arc::new(Material::of_system()), changes })
    }

    /// An instance by its name, or the reason why it is not usable.
    pub(super) fn instance(&self, name: &str) -> Result<&Arc<Provider>, String> {
        let instance = self.instances.get(name);
        let instance =
            instance.ok_or_else(|| format!("{}: the bootstrap has none of this name", origin(&[name])))?;
        instance.as_ref().map_err(|why| format!("{}: {why}", origin(&[name])))
    }

    /// Returns the cryptography.
    pub(crate) fn crypto(&self) -> &Crypto {
        &self.crypto
    }

    /// Returns the roots of the operating system.
    pub(super) fn system(&self) -> &Arc<Material> {
        &self.system
    }

    /// Returns the rotations of each usable instance.
    fn rotations(&self) -> impl Iterator<Item = (&str, Rotations)> {
        let usable =
            self.instances.iter().filter_map(|(name, provider)| Some((&**name, provider.as_ref().ok()?)));
        usable.map(|(name, provider)| (name, provider.material.published().rotations))
    }
}

impl ProviderRotations {
    /// Subscribes to the rotations from now on.
    pub(crate) fn new(providers: Arc<Providers>) -> Self {
        let changes = providers.changes.subscribe();
        let seen = providers.rotations().map(|(name, rotations)| (name.into(), rotations)).collect();
        Self { providers, changes, seen }
    }

    /// Waits for rotations, and returns all since the last time.
    ///
    /// # Cancel safety
    /// No rotation is lost.
    pub(crate) async fn next(&mut self) -> Vec<RotatedInstance> {
        loop {
            if self.changes.changed().await.is_err() {
                // Not while there are providers.
                return pending().await;
            }
            let rotated = self.rotated();
            if !rotated.is_empty() {
                return rotated;
            }
        }
    }

    /// Returns the instances with rotations since the last call.
    fn rotated(&mut self) -> Vec<RotatedInstance> {
        let mut rotated = Vec::new();
        for (name, now) in self.providers.rotations() {
            let before = self.seen.insert(name.into(), now).unwrap_or_default();
            let (identity, roots) = (before.identity != now.identity, before.roots != now.roots);
            if identity || roots {
                rotated.push(RotatedInstance { name: name.into(), identity, roots });
            }
        }
        rotated
    }
}

impl fmt::Debug for ProviderRotations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderRotations").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Providers").field("instances", &self.instances.keys()).finish_non_exhaustive()
    }
}

impl Provider {
    /// Creates the provider of the instances with these names.
    fn of_file_watcher(
        names: &[&str],
        config: &FileWatcherConfig,
        crypto: &Crypto,
        changes: watch::Sender<()>,
    ) -> Self {
        let material = Material::of_file_watcher(origin(names), config, crypto).with_changes(changes);
        Self { material: Arc::new(material), watch: Watch::default() }
    }

    /// Returns the material, as it was last read.
    pub(super) fn material(&self) -> &Arc<Material> {
        &self.material
    }

    /// Keeps the material up to date while the result is held. To be called within a runtime.
    pub(super) fn watch(&self) -> Arc<Watching> {
        let material = self.material.clone();
        self.watch.start(move || {
            let material = material.clone();
            async move { material.refresh().await }
        })
    }
}

/// What instances are called in errors and logs.
fn origin(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    format!("certificate provider instance {}", names.join(", "))
}

#[cfg(test)]
mod tests;
