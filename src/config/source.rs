//! Where resources come from: servers and files.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use super::{Server, ServerFeatures};
use crate::{base::type_url, escape::Escaped};

/// A source of resources, as in `envoy.config.core.v3.ConfigSource`.
///
/// Equal sources are the same source: their resources share one stream, or one watch of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigSource {
    /// A management server (`ads`, `api_config_source`), with the variant of the protocol in
    /// [`api_type`](Server::api_type).
    Server(Arc<Server>),
    /// A file (`path_config_source`).
    Path(Arc<PathSource>),
}

/// A file with the resources of one type in a `DiscoveryResponse`.
///
/// The extension selects the format: `.pb` binary, `.pb_text` protobuf text, `.yaml` or `.yml` YAML, any other JSON.
///
/// ```
/// use xdskit::config::PathSource;
///
/// // A Kubernetes mount: the file is a link into a directory that is swapped as a whole.
/// let clusters = PathSource::new("/etc/xds/clusters.yaml").with_watched_directory("/etc/xds");
/// assert_eq!(clusters.to_string(), "/etc/xds/clusters.yaml");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PathSource {
    /// The file.
    pub path: PathBuf,
    /// The directory in which a move triggers a reload of the file; without it, any change of the file does.
    pub watched_directory: Option<PathBuf>,
    /// Whether a file with a watched directory is also read again when it is written in place (`watch_modify`).
    pub watch_modify: bool,
    /// The features, as for a server.
    pub features: ServerFeatures,
    /// The directory that must contain it, with links resolved: set for a path from a server.
    pub(crate) root: Option<Arc<Path>>,
}

/// The sources of resources: by type for types with their own, else the same for all types.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sources {
    /// For all types without sources of their own, the preferred ones first.
    all: Vec<ConfigSource>,
    /// Sources of single types by type URL, which replace `all`.
    by_type: BTreeMap<String, Vec<ConfigSource>>,
}

impl ConfigSource {
    /// The management server, if it is one.
    pub fn server(&self) -> Option<&Arc<Server>> {
        match self {
            Self::Server(server) => Some(server),
            Self::Path(_) => None,
        }
    }

    /// The file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Server(_) => None,
            Self::Path(file) => Some(&file.path),
        }
    }

    /// The features, as for a server.
    pub fn features(&self) -> ServerFeatures {
        match self {
            Self::Server(server) => server.features,
            Self::Path(file) => file.features,
        }
    }
}

/// The server's URI, or the file's path.
impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => Escaped(&server.uri).fmt(f),
            Self::Path(file) => file.fmt(f),
        }
    }
}

impl PathSource {
    /// A file with this path, which is relative to the working directory if it is not absolute.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            watched_directory: None,
            watch_modify: false,
            features: ServerFeatures::default(),
            root: None,
        }
    }

    /// Limits the paths to this directory, where relative ones begin.
    ///
    /// # Errors
    /// The field whose path leads out of the directory. The file system is not accessed; links are resolved when the
    /// file is read.
    pub(crate) fn within(mut self, root: &Arc<Path>) -> Result<Self, &'static str> {
        self.path = inside(root, &self.path).ok_or("path")?;
        if let Some(directory) = &self.watched_directory {
            self.watched_directory = Some(inside(root, directory).ok_or("watched_directory.path")?);
        }
        self.root = Some(root.clone());
        Ok(self)
    }

    /// Reloads the file only when something is moved in this directory.
    #[must_use]
    pub fn with_watched_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.watched_directory = Some(directory.into());
        self
    }

    /// Reloads the file also when it is written in place.
    #[must_use]
    pub fn with_watch_modify(mut self) -> Self {
        self.watch_modify = true;
        self
    }

    /// Enables features, by their names in a bootstrap's `server_features`; unknown ones are ignored.
    #[must_use]
    pub fn with_features<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.features = names.into_iter().collect();
        self
    }
}

impl PathSource {
    /// Checks the paths; returns the invalid field and the reason.
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.path.as_os_str().is_empty() {
            return Err(("path", "empty"));
        }
        if self.watched_directory.as_ref().is_some_and(|directory| directory.as_os_str().is_empty()) {
            return Err(("watched_directory.path", "empty"));
        }
        Ok(())
    }
}

/// The path.
impl fmt::Display for PathSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaped(self.path.display()).fmt(f)
    }
}

impl Sources {
    /// The sources of all types, and of single ones.
    pub(crate) fn new(all: Vec<ConfigSource>, by_type: BTreeMap<String, Vec<ConfigSource>>) -> Self {
        Self { all, by_type }
    }

    /// The sources of types without their own.
    /// May be empty, if each type has its own.
    pub(super) fn all(&self) -> &[ConfigSource] {
        &self.all
    }

    /// The sources of a type. Without any of its own or for all types, a type has the sources of the type that refers
    /// to it (`self`), if these are servers: a file contains one type alone.
    pub(super) fn of(&self, type_url: &str) -> &[ConfigSource] {
        let own = self.by_type.get(type_url).unwrap_or(&self.all);
        // `self` without `ads`: a resource without a source of its type is requested where the resource that names it came from.
        let naming = naming(type_url).filter(|_| own.is_empty()).and_then(|naming| self.by_type.get(naming));
        let of_servers = |sources: &&Vec<ConfigSource>| sources.iter().all(|one| one.server().is_some());
        naming.filter(of_servers).unwrap_or(own)
    }

    /// Whether there are no sources at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.by_type.is_empty()
    }

    /// Whether any type has its own sources.
    pub(super) fn differ(&self) -> bool {
        !self.by_type.is_empty()
    }

    /// Iterates over all sources, those for all types first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ConfigSource> {
        self.all.iter().chain(self.by_type.values().flatten())
    }

    /// Deduplicates equal sources, which makes comparing and keeping them cheap.
    pub(super) fn share(self, known: &mut Vec<ConfigSource>) -> Self {
        // Compared one by one: a bootstrap has few sources, and a hash of one reads all of it as well.
        let mut shared = |sources: Vec<ConfigSource>| -> Vec<ConfigSource> {
            let share = |source| match known.iter().find(|other| **other == source) {
                Some(other) => other.clone(),
                None => {
                    known.push(source.clone());
                    source
                }
            };
            sources.into_iter().map(share).collect()
        };
        let all = shared(self.all);
        Self { all, by_type: self.by_type.into_iter().map(|(ty, own)| (ty, shared(own))).collect() }
    }
}

/// The type whose resources refer to those of another.
fn naming(type_url: &str) -> Option<&'static str> {
    match type_url {
        type_url::ROUTE_CONFIGURATION
        | type_url::SCOPED_ROUTE_CONFIGURATION
        | type_url::VIRTUAL_HOST
        | type_url::EXTENSION_CONFIG => Some(type_url::LISTENER),
        type_url::ENDPOINTS => Some(type_url::CLUSTER),
        _ => None,
    }
}

/// A path in a directory, unless it leads out of it by `..`.
fn inside(root: &Path, path: &Path) -> Option<PathBuf> {
    // An absolute path takes the place of the root, and may still lead into it.
    let whole = plain(&root.join(path))?;
    whole.starts_with(plain(root)?).then_some(whole)
}

/// A path without `.` and `..`; `None` if it leads above its beginning.
/// The file system is not asked: links are resolved when the file is read.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                let is_named = matches!(plain.components().next_back(), Some(Component::Normal(_)));
                if !is_named || !plain.pop() {
                    return None;
                }
            }
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(root: &str, path: &str) -> Option<String> {
        let found = PathSource::new(path).within(&Path::new(root).into());
        found.ok().map(|file| file.path.display().to_string())
    }

    #[test]
    fn a_path_within_a_root_does_not_lead_out_of_it() {
        for (path, expected) in [
            ("/etc/xds/a.json", Some("/etc/xds/a.json")),
            ("a/../b.json", Some("/etc/xds/b.json")),
            ("./a.json", Some("/etc/xds/a.json")),
            ("/etc/xds/../xds/a.json", Some("/etc/xds/a.json")),
            ("/etc/xds2/a.json", None),
            ("/etc/passwd", None),
            ("../passwd", None),
            ("/etc/xds/../passwd", None),
            ("../../../../../a.json", None),
        ] {
            assert_eq!(within("/etc/xds", path).as_deref(), expected, "{path}");
            assert_eq!(within("/etc/./xds/", path).as_deref(), expected, "{path}");
        }
        let root: Arc<Path> = Path::new("/etc/xds").into();
        let watched = |directory| PathSource::new("a.json").with_watched_directory(directory).within(&root);
        assert_eq!(watched("/etc"), Err("watched_directory.path"));
        assert_eq!(watched(".").unwrap().watched_directory, Some("/etc/xds".into()));
    }
}
