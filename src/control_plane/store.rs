//! Versioned resources by type and name.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use imbl::OrdMap;

mod any_resource;
pub mod loads;
mod locator;
mod messages;
mod of_type;

#[cfg(feature = "control-plane")]
pub(crate) use self::locator::locator;
pub(crate) use self::of_type::canonical;
pub use self::{
    any_resource::AnyResource,
    of_type::{Stored, StoredError, Type},
};

/// The resources of a management server, with their versions.
///
/// A store is a value: a clone is cheap and shares unchanged parts, so a reader has a consistent state while a writer
/// continues. The cost of a change depends on its size, not on that of the store.
///
/// Each type has a version of its own, a counter that is incremented by each transaction that changes the type.
///
/// ```
/// use xdskit::control_plane::{AnyResource, Store};
///
/// let mut store = Store::new();
/// store.update(|tx| {
///     tx.set(AnyResource::new("type.googleapis.com/example.Banner", "a", "1"));
///     tx.set(AnyResource::new("type.googleapis.com/example.Banner", "b", "2"));
/// });
/// let banners = store.get("type.googleapis.com/example.Banner");
/// assert_eq!(banners.version(), 1);
/// assert_eq!(banners.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Store {
    /// The prefix of all versions.
    version_prefix: Arc<str>,
    /// The form of versions.
    versions: Versions,
    /// Whether missing resources are unknown.
    on_demand: bool,
    /// Types that have, or once had, resources.
    types: OrdMap<Arc<str>, Type>,
}

impl Store {
    /// A store without resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a prefix of the versions in responses.
    ///
    /// With a prefix that differs from run to run, a restarted server does not reuse the versions of the previous
    /// run.
    #[must_use]
    pub fn with_version_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.version_prefix = prefix.into();
        self
    }

    /// Sets the form of versions.
    #[must_use]
    pub fn with_versions(mut self, versions: Versions) -> Self {
        self.versions = versions;
        self
    }

    /// Sets whether this is the store of a server that fetches resources on demand: a missing resource is unknown,
    /// and absent only if [set](Transaction::set_absent) so. Nothing is sent about unknown resources; a wildcard gets
    /// no response before it is [complete](Transaction::set_complete). In the state-of-the-world variant, types with
    /// complete responses wait for all names of a stream's first request, since absence means deletion.
    #[must_use]
    pub fn with_on_demand(mut self, on_demand: bool) -> Self {
        self.on_demand = on_demand;
        let types = self.types.into_iter();
        self.types = types.map(|(url, of_type)| (url, of_type.on_demand(on_demand))).collect();
        self
    }

    /// Whether it is the store of a server that fetches resources on demand.
    pub fn is_on_demand(&self) -> bool {
        self.on_demand
    }

    /// Changes any number of resources of any types in one step; returns whether anything changed.
    ///
    /// Setting a resource to its current value changes nothing, nor does removing a missing one. The version of a
    /// type is incremented once if any of its resources changed.
    pub fn update(&mut self, change: impl FnOnce(&mut Transaction<'_>)) -> bool {
        let mut transaction =
            Transaction { store: self, changes: BTreeMap::new(), versions: BTreeMap::new() };
        change(&mut transaction);
        let Transaction { mut changes, mut versions, .. } = transaction;
        for type_url in versions.keys() {
            changes.entry(type_url.clone()).or_default();
        }
        changes.into_iter().fold(false, |changed, (type_url, names)| {
            let version = versions.remove(&type_url);
            // In this order: every type is applied, even if an earlier one has changed.
            self.apply(type_url, names, version) || changed
        })
    }

    /// The current resources of one type; none and version 0 for a type that never had any.
    pub fn get(&self, type_url: &str) -> Type {
        let nothing = || Type::default().on_demand(self.on_demand);
        self.types.get(type_url).cloned().unwrap_or_else(nothing)
    }

    /// Iterates over the type URLs that have, or once had, resources, in order.
    pub fn type_urls(&self) -> impl Iterator<Item = &str> {
        self.types.keys().map(|type_url| &**type_url)
    }

    /// A version in the form of responses.
    pub fn version(&self, counter: u64) -> String {
        let counter = match self.versions {
            Versions::Falling => u64::MAX - counter,
            Versions::Rising | Versions::OneForAll => counter,
        };
        format!("{}{counter}", self.version_prefix)
    }

    /// The version of the resources of a type in the form of responses: that which was
    /// [set](Transaction::set_version), or its counter.
    pub fn version_of_type(&self, of_type: &Type) -> String {
        if let Some(version) = &of_type.own_version {
            return version.to_string();
        }
        match self.versions {
            Versions::OneForAll => self.version(self.types.values().map(Type::version).sum()),
            Versions::Rising | Versions::Falling => self.version(of_type.version()),
        }
    }

    /// The version of a resource in the form of responses: its own, or that of the type at its last change.
    pub fn version_of(&self, stored: &Stored) -> String {
        stored.own_version().map_or_else(|| self.version(stored.version()), str::to_owned)
    }

    /// Applies the changes of a type; returns whether anything changed.
    fn apply(
        &mut self,
        type_url: Arc<str>,
        changes: BTreeMap<Arc<str>, Change>,
        own_version: Option<Arc<str>>,
    ) -> bool {
        let mut of_type = self.get(&type_url);
        let version = of_type.version + 1;
        let changed = changes.into_iter().fold(false, |changed, (name, change)| {
            let known = of_type.set_known(name.clone(), matches!(change, Change::Absent | Change::Complete));
            let moved = match change {
                Change::Set(resource) => of_type.set(name, resource, version),
                Change::Fail(error) => of_type.fail(name, error),
                Change::Remove | Change::Absent => of_type.remove(&name),
                Change::Complete => false,
            };
            changed || moved || known
        });
        let has_new_version = own_version.is_some() && own_version != of_type.own_version;
        let changed = changed || has_new_version;
        if changed {
            of_type.version = version;
            // CP3: a change without a version of its own returns to the counter.
            of_type.own_version = own_version;
            self.types.insert(type_url, of_type);
        }
        changed
    }
}

/// The form of a store's versions. Versions are opaque to clients, which only compare them for equality.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Versions {
    /// A counter for each type, incremented by each change of it.
    #[default]
    Rising,
    /// Such a counter that decreases from [`u64::MAX`].
    Falling,
    /// One counter for all types, as in istiod: the version of a type changes with those of the others. Resources
    /// keep the counter of their type.
    OneForAll,
}

/// Changes that become visible together; see [`Store::update`].
#[derive(Debug)]
pub struct Transaction<'a> {
    store: &'a Store,
    /// Changes of the transaction by type URL and canonical name.
    changes: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Change>>,
    /// Versions of types that the application sets itself, by type URL.
    versions: BTreeMap<Arc<str>, Arc<str>>,
}

/// The last change of a name in a transaction.
#[derive(Debug)]
enum Change {
    /// The resource is added or replaced.
    Set(AnyResource),
    /// An error stands in place of the resource.
    Fail(StoredError),
    /// Neither the resource nor an error nor a mark remains.
    Remove,
    /// The name is marked as one that does not exist.
    Absent,
    /// The name is marked as complete.
    Complete,
}

impl Transaction<'_> {
    /// Adds a resource, or replaces the one of its type and name. The last change of a name applies.
    pub fn set(&mut self, resource: impl Into<AnyResource>) -> &mut Self {
        let resource = resource.into();
        let (type_url, name) = (resource.type_url.clone(), resource.name.clone());
        self.change(type_url, &name, Change::Set(resource))
    }

    /// Sets an error in place of a resource (`resource_errors`): the number of a gRPC status code, and a reason for
    /// display. An existing resource is removed; setting or removing the resource removes the error.
    pub fn set_error(&mut self, type_url: &str, name: &str, code: i32, message: &str) -> &mut Self {
        let error = StoredError { name: name.into(), code, message: message.into() };
        self.change(type_url.into(), &name.into(), Change::Fail(error))
    }

    /// Removes a resource, or the error in its place. In a store [on demand](Store::with_on_demand) its state becomes
    /// unknown, which is appropriate for a resource without subscriptions.
    pub fn remove(&mut self, type_url: &str, name: &str) -> &mut Self {
        self.change(type_url.into(), &name.into(), Change::Remove)
    }

    /// Removes a resource and marks it as absent, which differs from unknown in a store [on
    /// demand](Store::with_on_demand).
    pub fn set_absent(&mut self, type_url: &str, name: &str) -> &mut Self {
        self.change(type_url.into(), &name.into(), Change::Absent)
    }

    /// Marks a glob collection, or the wildcard `*`, as complete; [`remove`](Self::remove) takes it back. It is
    /// needed in a store [on demand](Store::with_on_demand) alone.
    pub fn set_complete(&mut self, type_url: &str, collection: &str) -> &mut Self {
        self.change(type_url.into(), &collection.into(), Change::Complete)
    }

    /// Sets the version of a type, for responses with the changes of this transaction and later ones, in place of its
    /// counter. The next transaction that changes the type without setting a version returns to the counter.
    ///
    /// It should differ whenever the resources do: clients that poll over REST compare it. A version alone, without a
    /// change of a resource, is sent with the next response.
    ///
    /// ```
    /// use xdskit::{
    ///     control_plane::{ControlPlane, type_url::CLUSTER},
    ///     pb::envoy::config::cluster::v3::Cluster,
    /// };
    ///
    /// let control_plane = ControlPlane::new();
    /// control_plane.update(|tx| {
    ///     tx.clear(CLUSTER).set(Cluster { name: "shop".into(), ..Cluster::default() });
    ///     tx.set_version(CLUSTER, "release-42");
    /// });
    /// let store = control_plane.store();
    /// assert_eq!(store.version_of_type(&store.get(CLUSTER)), "release-42");
    /// ```
    pub fn set_version(&mut self, type_url: &str, version: impl Into<Arc<str>>) -> &mut Self {
        self.versions.insert(type_url.into(), version.into());
        self
    }

    /// Removes all resources and errors of a type, and its marks of absence and completeness, including those of this
    /// transaction.
    pub fn clear(&mut self, type_url: &str) -> &mut Self {
        let held = self.store.get(type_url);
        let names = held.resources.keys().chain(held.errors.keys()).chain(held.known.iter());
        let changes = names.map(|name| (name.clone(), Change::Remove)).collect();
        // In place of the changes so far, which would apply to what is gone.
        self.changes.insert(type_url.into(), changes);
        self
    }

    /// Records a change under the canonical name.
    fn change(&mut self, type_url: Arc<str>, name: &Arc<str>, change: Change) -> &mut Self {
        let name = match canonical(name) {
            Cow::Borrowed(_) => name.clone(),
            Cow::Owned(canonical) => canonical.into(),
        };
        self.changes.entry(type_url).or_default().insert(name, change);
        self
    }
}

#[cfg(test)]
mod tests;
