//! The resources of one type at one time, and indexes of them.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use imbl::{OrdMap, OrdSet, ordmap::DiffItem};

use super::any_resource::{AnyResource, Attributes};
use crate::name::ResourceName;

/// The resources of one type at one time.
///
/// Names are compared as in the protocol: `xdstp:` names that only differ in the order of their parameters are equal.
#[derive(Debug, Clone, Default)]
pub struct Type {
    /// The number of changes.
    pub(super) version: u64,
    /// The version in responses, in place of the counter.
    pub(super) own_version: Option<Arc<str>>,
    /// The resources by canonical name.
    pub(super) resources: OrdMap<Arc<str>, Stored>,
    /// The errors in place of resources, by canonical name.
    pub(super) errors: OrdMap<Arc<str>, StoredError>,
    /// Whether missing resources count as unknown unless they are recorded as known.
    on_demand: bool,
    /// Canonical names whose state is completely known: those of absent resources, of complete collections, or `*`.
    pub(super) known: OrdSet<Arc<str>>,
    /// The resources by other keys.
    index: Index,
}

/// Indexes of the resources by other keys than their names. All names are canonical.
#[derive(Debug, Clone, Default)]
struct Index {
    /// The members of each glob.
    globs: Names<Arc<str>>,
    /// The resources with each alias.
    aliases: Names<Arc<str>>,
    /// The resources with each time to live.
    ttls: Names<Duration>,
}

/// One resource in a [`Store`](super::Store).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The encoded message.
    pub(super) bytes: Bytes,
    /// The version of the type at the last change of the resource.
    pub(super) version: u64,
    /// The name as it was written.
    pub(super) name: Arc<str>,
    /// What the resource has beside its message.
    pub(super) attributes: Attributes,
    /// The only glob collection of which it can be a member.
    pub(super) glob: Option<Arc<str>>,
}

/// The error in place of a resource in a [`Store`](super::Store).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredError {
    /// The name as it was written.
    pub(super) name: Arc<str>,
    /// The number of a gRPC status code.
    pub(super) code: i32,
    /// The reason.
    pub(super) message: Arc<str>,
}

impl Type {
    /// The number of changes of the type.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The resource of a name.
    pub fn resource(&self, name: &str) -> Option<&Stored> {
        self.resources.get(&*canonical(name))
    }

    /// The error in place of the resource of a name, if one was set.
    pub fn error(&self, name: &str) -> Option<&StoredError> {
        self.errors.get(&*canonical(name))
    }

    /// Iterates over all resources in the order of their names, each with its name as it was written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Stored)> {
        self.resources.values().map(|stored| (stored.name(), stored))
    }

    /// The number of resources.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether there are no resources.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// The canonical names, in order, of resources that differ from those at another time: added, changed or removed.
    /// Takes time linear in the differences, if both states have a common past.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a str> {
        self.differences(before).map(|difference| difference.name)
    }

    /// Like [`changed_since`](Self::changed_since), with the resource before and after.
    pub(crate) fn differences<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Difference<'a>> {
        before.resources.diff(&self.resources).map(|item| match item {
            DiffItem::Add(name, stored) => Difference { name, before: None, now: Some(stored) },
            DiffItem::Update { old: (_, old), new: (name, new) } => {
                Difference { name, before: Some(old), now: Some(new) }
            }
            DiffItem::Remove(name, stored) => Difference { name, before: Some(stored), now: None },
        })
    }

    /// The canonical names of resources whose errors differ from those at another time.
    pub(crate) fn errors_changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a str> {
        before.errors.diff(&self.errors).map(|item| match item {
            DiffItem::Add(name, _) | DiffItem::Remove(name, _) => &**name,
            DiffItem::Update { new: (name, _), .. } => &**name,
        })
    }

    /// Whether the state of a canonical name is known, including absence.
    pub(crate) fn knows(&self, name: &str) -> bool {
        !self.on_demand
            || self.resources.contains_key(name)
            || self.errors.contains_key(name)
            || self.known.contains(name)
    }

    /// The canonical names that are known now and were not at another time.
    pub(crate) fn known_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a str> {
        before.known.diff(&self.known).filter_map(|item| match item {
            imbl::ordset::DiffItem::Add(name) => Some(&**name),
            imbl::ordset::DiffItem::Remove(_) => None,
        })
    }

    /// Iterates over the resources with their canonical names, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Stored)> {
        self.resources.iter().map(|(name, stored)| (&**name, stored))
    }

    /// A resource by its canonical name.
    pub(crate) fn entry(&self, name: &str) -> Option<(&str, &Stored)> {
        self.resources.get_key_value(name).map(|(name, stored)| (&**name, stored))
    }

    /// An error by the canonical name of its resource.
    pub(crate) fn error_entry(&self, name: &str) -> Option<(&str, &StoredError)> {
        self.errors.get_key_value(name).map(|(name, error)| (&**name, error))
    }

    /// Iterates over the errors with their canonical names, in order.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (&str, &StoredError)> {
        self.errors.iter().map(|(name, error)| (&**name, error))
    }

    /// The canonical names of a glob's members.
    pub(crate) fn members(&self, glob: &str) -> impl Iterator<Item = &str> {
        self.index.globs.get(glob).into_iter().flatten().map(|name| &**name)
    }

    /// The canonical names of the resources with an alias.
    pub(crate) fn aliased(&self, alias: &str) -> impl Iterator<Item = &str> {
        self.index.aliases.get(alias).into_iter().flatten().map(|name| &**name)
    }

    /// All times to live of resources.
    pub(crate) fn ttls(&self) -> impl Iterator<Item = Duration> {
        self.index.ttls.keys().copied()
    }

    /// The canonical names of the resources with a time to live.
    pub(crate) fn of_ttl(&self, ttl: Duration) -> impl Iterator<Item = &str> {
        self.index.ttls.get(&ttl).into_iter().flatten().map(|name| &**name)
    }

    /// Sets a resource, in place of an error. Returns whether anything changed, as do the other changes.
    pub(super) fn set(&mut self, name: Arc<str>, resource: AnyResource, version: u64) -> bool {
        if self.resources.get(&name).is_some_and(|held| held.is(&resource)) {
            return false;
        }
        // Also an error in its place, and what the index has of the resource before.
        self.remove(&name);
        let glob = ResourceName::parse_received(&name).ok().and_then(|name| name.enclosing_glob());
        let AnyResource { bytes, attributes, name: written, .. } = resource;
        let glob = glob.map(|glob| glob.canonical());
        let stored = Stored { bytes, version, name: written, attributes, glob };
        self.index.add(&name, &stored);
        self.resources.insert(name, stored);
        true
    }

    /// Sets whether missing resources count as unknown.
    pub(super) fn on_demand(mut self, on_demand: bool) -> Self {
        self.on_demand = on_demand;
        self
    }

    /// Sets whether the state of a name is completely known. Without effect unless the store is on demand.
    pub(super) fn set_known(&mut self, name: Arc<str>, known: bool) -> bool {
        let known = known && self.on_demand;
        if known { self.known.insert(name).is_none() } else { self.known.remove(&name).is_some() }
    }

    /// Removes a resource or an error.
    pub(super) fn remove(&mut self, name: &Arc<str>) -> bool {
        // A name has a resource or an error, never both.
        let Some(stored) = self.resources.remove(name) else { return self.errors.remove(name).is_some() };
        self.index.drop(name, &stored);
        true
    }

    /// Sets an error, in place of a resource.
    pub(super) fn fail(&mut self, name: Arc<str>, error: StoredError) -> bool {
        if self.errors.get(&name) == Some(&error) {
            return false;
        }
        self.remove(&name);
        self.errors.insert(name, error);
        true
    }
}

impl Stored {
    /// The bytes of the message.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The version of the type at the last change of the resource.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The name as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time to live; `None` is no limit.
    pub fn ttl(&self) -> Option<Duration> {
        self.attributes.ttl()
    }

    /// The aliases of the resource.
    pub fn aliases(&self) -> impl Iterator<Item = &str> {
        self.attributes.aliases().iter().map(|alias| &**alias)
    }

    /// The type URL of the message, if it is not that of the resource.
    pub fn body_type(&self) -> Option<&str> {
        self.attributes.values().and_then(|values| values.body_type_url.as_deref())
    }

    /// Whether the resource has anything that only the wrapper can express.
    pub(crate) fn prefers_wrapper(&self) -> bool {
        let values = self.attributes.values();
        self.needs_wrapper()
            || values.is_some_and(|values| values.ttl.is_some() || !values.aliases.is_empty())
    }

    /// Whether the resource would be another one without the wrapper.
    pub(crate) fn needs_wrapper(&self) -> bool {
        self.attributes.values().is_some_and(|values| values.renamed || values.body_type_url.is_some())
    }

    /// Whether wildcards include it.
    pub(crate) fn is_listed(&self) -> bool {
        self.attributes.values().is_none_or(|values| !values.unlisted)
    }

    /// The version in the wrapper, if it was set.
    pub(super) fn own_version(&self) -> Option<&str> {
        self.attributes.values().and_then(|values| values.version.as_deref())
    }

    /// Whether it would be the same if another resource were set in its place.
    fn is(&self, resource: &AnyResource) -> bool {
        self.bytes == resource.bytes && self.attributes == resource.attributes && self.name == resource.name
    }

    /// The canonical name of the only glob collection of which it can be a member.
    pub(crate) fn glob(&self) -> Option<&str> {
        self.glob.as_deref()
    }
}

impl StoredError {
    /// The name as it was written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of a gRPC status code.
    pub fn code(&self) -> i32 {
        self.code
    }

    /// The reason, for display.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl Index {
    /// Adds a resource under all its keys.
    fn add(&mut self, name: &Arc<str>, stored: &Stored) {
        let Self { globs, aliases, ttls } = self;
        add(globs, &stored.glob, name);
        add(aliases, stored.attributes.aliases(), name);
        add(ttls, &stored.ttl(), name);
    }

    /// Drops a resource from all its keys.
    fn drop(&mut self, name: &Arc<str>, stored: &Stored) {
        let Self { globs, aliases, ttls } = self;
        drop_from(globs, &stored.glob, name);
        drop_from(aliases, stored.attributes.aliases(), name);
        drop_from(ttls, &stored.ttl(), name);
    }
}

/// A resource that differs between two times.
#[derive(Debug)]
pub(crate) struct Difference<'a> {
    /// The canonical name.
    pub(crate) name: &'a str,
    /// The resource before; `None` if it was added.
    pub(crate) before: Option<&'a Stored>,
    /// The resource after; `None` if it was removed.
    pub(crate) now: Option<&'a Stored>,
}

/// The canonical form of a name; a name that cannot be parsed is unchanged.
pub(crate) fn canonical(name: &str) -> Cow<'_, str> {
    ResourceName::canonicalize(name).unwrap_or(Cow::Borrowed(name))
}

/// Canonical names by key. A key without names is dropped.
type Names<K> = OrdMap<K, OrdSet<Arc<str>>>;

/// Adds a name under some keys.
fn add<'a, K: Ord + Clone + 'a>(
    index: &mut Names<K>,
    keys: impl IntoIterator<Item = &'a K>,
    name: &Arc<str>,
) {
    for key in keys {
        index.entry(key.clone()).or_default().insert(name.clone());
    }
}

/// Drops a name from some keys.
fn drop_from<'a, K: Ord + Clone + 'a>(
    index: &mut Names<K>,
    keys: impl IntoIterator<Item = &'a K>,
    name: &Arc<str>,
) {
    for key in keys {
        if let Some(names) = index.get_mut(key) {
            names.remove(name);
            if names.is_empty() {
                index.remove(key);
            }
        }
    }
}
