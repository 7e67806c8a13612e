//! Versioned resources by type and name.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use imbl::OrdMap;

mod any_resource;
mod locator;
mod messages;
mod of_type;

#[cfg(feature = "test-util")]
pub(crate) use self::locator::locator;
pub(crate) use self::of_type::canonical;
pub use self::{
    any_resource::AnyResource,
    of_type::{Stored, StoredError, Type},
};

/// The resources that a management server has to give, with their versions.
///
/// A store is a value: a clone costs nothing and shares what does not change later, so a reader works on a consistent
/// state while a writer goes on. A change costs time for what it changes, not for what there is.
///
/// Each type has a version of its own, a counter that moves when a transaction changes the type.
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
    version_prefix: Arc<str>,
    versions: Versions,
    on_demand: bool,
    types: OrdMap<Arc<str>, Type>,
}

impl Store {
    /// A store without resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a text before the counter of every version that clients see.
    ///
    /// With a prefix that differs from run to run, a restarted server does not reuse the versions of the one before.
    #[must_use]
    pub fn with_version_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.version_prefix = prefix.into();
        self
    }

    /// Says how versions are written.
    #[must_use]
    pub fn with_versions(mut self, versions: Versions) -> Self {
        self.versions = versions;
        self
    }

    /// Makes it the store of a server that gets resources as they are asked for: what it does not hold is not known, and does not
    /// exist only if that was [said](Transaction::set_absent). Of what is not known clients are told nothing; a wildcard is not
    /// answered before it is [complete](Transaction::set_complete). In the state-of-the-world variant types whose responses
    /// hold everything wait for all names of a stream's first request, since absence says that there is none.
    #[must_use]
    pub fn with_on_demand(mut self, on_demand: bool) -> Self {
        self.on_demand = on_demand;
        let types = self.types.into_iter();
        self.types = types.map(|(url, of_type)| (url, of_type.on_demand(on_demand))).collect();
        self
    }

    /// Changes any number of resources of any types, all at once; returns whether anything is different now.
    ///
    /// Setting a resource to what it is changes nothing, nor does removing one that is not there. The version
    /// of a type moves by one if any of its resources changed.
    pub fn update(&mut self, change: impl FnOnce(&mut Transaction<'_>)) -> bool {
        let mut transaction = Transaction { store: self, changes: BTreeMap::new() };
        change(&mut transaction);
        let Transaction { changes, .. } = transaction;
        changes.into_iter().fold(false, |changed, (type_url, names)| self.apply(type_url, names) || changed)
    }

    /// The resources of one type as they are now; none and version 0 for a type that never had any.
    pub fn get(&self, type_url: &str) -> Type {
        let nothing = || Type::default().on_demand(self.on_demand);
        self.types.get(type_url).cloned().unwrap_or_else(nothing)
    }

    /// The type URLs that have, or once had, resources, in order.
    pub fn type_urls(&self) -> impl Iterator<Item = &str> {
        self.types.keys().map(|type_url| &**type_url)
    }

    /// A version as clients see it.
    pub fn version(&self, counter: u64) -> String {
        let counter = match self.versions {
            Versions::Falling => u64::MAX - counter,
            Versions::Rising | Versions::OneForAll => counter,
        };
        format!("{}{counter}", self.version_prefix)
    }

    /// The version of the resources of a type as clients see it.
    pub fn version_of_type(&self, of_type: &Type) -> String {
        match self.versions {
            Versions::OneForAll => self.version(self.types.values().map(Type::version).sum()),
            Versions::Rising | Versions::Falling => self.version(of_type.version()),
        }
    }

    /// The version of a resource as clients see it: its own, or that of the type when it last changed.
    pub fn version_of(&self, stored: &Stored) -> String {
        stored.own_version().map_or_else(|| self.version(stored.version()), str::to_owned)
    }

    fn apply(&mut self, type_url: Arc<str>, changes: BTreeMap<Arc<str>, Change>) -> bool {
        let mut of_type = self.get(&type_url);
        let version = of_type.version + 1;
        let changed = changes.into_iter().fold(false, |changed, (name, change)| {
            let settled = of_type.settle(name.clone(), matches!(change, Change::Absent | Change::Complete));
            let moved = match change {
                Change::Set(resource) => of_type.set(name, resource, version),
                Change::Fail(error) => of_type.fail(name, error),
                Change::Remove | Change::Absent => of_type.remove(&name),
                Change::Complete => false,
            };
            changed || moved || settled
        });
        if changed {
            of_type.version = version;
            self.types.insert(type_url, of_type);
        }
        changed
    }
}

/// How the versions of a store are written. To clients they are opaque: only whether two of them are equal says anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Versions {
    /// A counter for each type, which rises with each change of it.
    #[default]
    Rising,
    /// The same, falling from [`u64::MAX`].
    Falling,
    /// A counter for all types together, as istiod has it: the version of a type changes with the others. Resources keep the
    /// counter of their type.
    OneForAll,
}

/// Changes that become visible together; see [`Store::update`].
#[derive(Debug)]
pub struct Transaction<'a> {
    store: &'a Store,
    /// By type URL and canonical name.
    changes: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Change>>,
}

#[derive(Debug)]
enum Change {
    Set(AnyResource),
    Fail(StoredError),
    Remove,
    Absent,
    Complete,
}

impl Transaction<'_> {
    /// Adds a resource, or replaces the one of its type and name. The last word on a name counts.
    pub fn set(&mut self, resource: impl Into<AnyResource>) -> &mut Self {
        let resource = resource.into();
        let (type_url, name) = (resource.type_url.clone(), resource.name.clone());
        self.change(type_url, &name, Change::Set(resource))
    }

    /// Says instead of a resource why it cannot be had (`resource_errors`): the number of a gRPC status code, and a reason for
    /// people. The resource is removed, if it is there; setting or removing it takes the error back.
    pub fn set_error(&mut self, type_url: &str, name: &str, code: i32, message: &str) -> &mut Self {
        let error = StoredError { name: name.into(), code, message: message.into() };
        self.change(type_url.into(), &name.into(), Change::Fail(error))
    }

    /// Removes a resource, if it is there, or the error in its place. In a store [on demand](Store::with_on_demand) nothing is known
    /// of it from then on, which is of use when nobody wants it.
    pub fn remove(&mut self, type_url: &str, name: &str) -> &mut Self {
        self.change(type_url.into(), &name.into(), Change::Remove)
    }

    /// Removes a resource, and says that there is none: in a store [on demand](Store::with_on_demand) that is more than that it is not
    /// known.
    pub fn set_absent(&mut self, type_url: &str, name: &str) -> &mut Self {
        self.change(type_url.into(), &name.into(), Change::Absent)
    }

    /// Says that the store holds all that a glob collection, or the wildcard `*`, stands for; [`remove`](Self::remove) takes it
    /// back. It is of use in a store [on demand](Store::with_on_demand).
    pub fn set_complete(&mut self, type_url: &str, collection: &str) -> &mut Self {
        self.change(type_url.into(), &collection.into(), Change::Complete)
    }

    /// Removes all resources and errors of a type, and what is said to be absent or complete, those that this transaction set as well.
    pub fn clear(&mut self, type_url: &str) -> &mut Self {
        let held = self.store.get(type_url);
        let names = held.resources.keys().chain(held.errors.keys()).chain(held.settled.iter());
        let changes = names.map(|name| (name.clone(), Change::Remove)).collect();
        self.changes.insert(type_url.into(), changes);
        self
    }

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
