//! The certificate providers of a bootstrap (CH7.4).

use std::{
    collections::BTreeMap,
    fmt,
    future::{Future, pending},
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;

use super::{
    Crypto,
    generation::NoMaterial,
    material::{Freshness, Material},
    plugin::PluginMaterial,
    published::{Identity, Need, Published, Rotations},
    verifier::TrustRoots,
    watching::{Watch, Watching},
};
use crate::{
    config::{Bootstrap, CertificateProvider, FileWatcherConfig},
    resource::Registry,
};

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
    source: Source,
    /// The task that reads the files again, or runs the plugin, while somebody needs it.
    watch: Watch,
}

/// The source of an instance's material.
enum Source {
    /// Files that are read again at an interval.
    Files(Arc<Material>),
    /// A plugin of the application.
    Plugin(Arc<PluginMaterial>),
}

impl Providers {
    /// Creates the providers of a bootstrap. The plugins are those of the registry.
    pub(crate) fn new(bootstrap: &Bootstrap, registry: &Registry, crypto: Crypto) -> Arc<Self> {
        let changes = watch::Sender::new(());
        // Instances with equal configurations share one, so that files are read once, and a plugin is run once.
        let mut groups: Vec<(&CertificateProvider, Vec<&str>)> = Vec::new();
        for (name, config) in bootstrap.certificate_providers() {
            match groups.iter_mut().find(|(known, _)| *known == config) {
                Some((_, names)) => names.push(name),
                None => groups.push((config, vec![name])),
            }
        }
        let mut instances = BTreeMap::new();
        for (config, names) in groups {
            let source = Source::new(config, origin(&names), &crypto, registry, &changes);
            let provider = source.map(|source| Arc::new(Provider { source, watch: Watch::default() }));
            instances.extend(names.into_iter().map(|name| (name.into(), provider.clone())));
        }
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
        usable.map(|(name, provider)| (name, provider.rotations()))
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
    /// Creates the provider of files that are no instance of the bootstrap.
    pub(super) fn of_files(origin: String, config: &FileWatcherConfig, crypto: &Crypto) -> Arc<Self> {
        let material = Material::of_file_watcher(origin, config, crypto);
        Arc::new(Self { source: Source::Files(Arc::new(material)), watch: Watch::default() })
    }

    /// How often the material was replaced.
    pub(super) fn rotations(&self) -> Rotations {
        self.published().rotations
    }

    /// Returns the roots for a handshake.
    pub(super) async fn roots(&self) -> Result<Arc<TrustRoots>, NoMaterial> {
        self.for_handshake(Need::Roots)
            .await
            .roots
            .map_err(|reason| NoMaterial::new(format!("root certificates of {}", self.origin()), reason))
    }

    /// Returns the own certificate with its key for a handshake; `whose` is for the error.
    pub(super) async fn identity(&self, whose: &str) -> Result<Arc<Identity>, NoMaterial> {
        self.for_handshake(Need::Identity)
            .await
            .identity
            .map_err(|reason| NoMaterial::new(format!("{whose} certificate of {}", self.origin()), reason))
    }

    /// What the material is of: `certificate provider instance "a"`.
    pub(super) fn origin(&self) -> &str {
        match &self.source {
            Source::Files(material) => material.origin(),
            Source::Plugin(plugin) => plugin.origin(),
        }
    }

    /// Keeps the material up to date while the result is held. To be called within a runtime.
    pub(super) fn watch(&self) -> Arc<Watching> {
        match &self.source {
            Source::Files(material) => {
                let material = material.clone();
                self.watch.start(move || {
                    let material = material.clone();
                    async move { material.refresh().await }
                })
            }
            Source::Plugin(plugin) => {
                let plugin = plugin.clone();
                self.watch.start(move || plugin.clone().run())
            }
        }
    }

    /// Waits until there may be material that was missing, from now on.
    pub(super) fn retry(&self) -> impl Future<Output = ()> + Send + use<> {
        let plugin = match &self.source {
            // The shortest time between readings that handshakes cause.
            Source::Files(_) => None,
            Source::Plugin(plugin) => Some(plugin.subscribe()),
        };
        async move {
            match plugin {
                Some(change) => change.await,
                None => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// The last good material.
    fn published(&self) -> Published {
        match &self.source {
            Source::Files(material) => material.published(),
            Source::Plugin(plugin) => plugin.published(),
        }
    }

    /// Returns the material for a handshake, or the reason why there is none.
    async fn for_handshake(&self, need: Need) -> Published {
        match &self.source {
            Source::Files(material) => material.for_handshake(need, Freshness::Watched).await,
            Source::Plugin(plugin) => plugin.for_handshake(need).await,
        }
    }
}

impl Source {
    /// Creates the source of the instances with an origin, or the reason why it cannot be used.
    fn new(
        config: &CertificateProvider,
        origin: String,
        crypto: &Crypto,
        registry: &Registry,
        changes: &watch::Sender<()>,
    ) -> Result<Self, Box<str>> {
        let custom = match config {
            CertificateProvider::FileWatcher(config) => {
                let material = Material::of_file_watcher(origin, config, crypto);
                return Ok(Self::Files(Arc::new(material.with_changes(changes.clone()))));
            }
            CertificateProvider::Custom(custom) => Some(custom),
            CertificateProvider::Unknown { .. } => None,
        };
        let plugin = custom
            .and_then(|custom| Some((custom.clone(), registry.certificate_plugin(custom.type_name())?)));
        let Some(plugin) = plugin else {
            let name = config.plugin_name();
            let why = format!(
                "its plugin {name:?} provides no certificates: it is neither `file_watcher` nor added by \
                 `Registry::with_certificate_plugin`"
            );
            return Err(why.into());
        };
        Ok(Self::Plugin(Arc::new(PluginMaterial::new(origin, plugin, crypto, changes.clone()))))
    }
}

/// What instances are called in errors and logs.
fn origin(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    format!("certificate provider instance {}", names.join(", "))
}

/// The time until files are tried again by a handshake that waits for them.
const RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
