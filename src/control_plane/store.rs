//! Versioned resources by type and name.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use imbl::OrdMap;
use prost::Message;

mod messages;

/// A resource as a management server holds it: its type, its name and the bytes of its message.
///
/// The messages of the protocol's own resource types in [`crate::pb`] turn into it by themselves, and so do the builders of
/// `xdskit::testing::resources`:
///
/// ```
/// use xdskit::{control_plane::AnyResource, pb::envoy::config::cluster::v3::Cluster};
///
/// let resource: AnyResource = Cluster { name: "shop".into(), ..Cluster::default() }.into();
/// assert_eq!(resource.name(), "shop");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnyResource {
    type_url: Arc<str>,
    name: Arc<str>,
    bytes: Bytes,
}

impl AnyResource {
    /// A resource of any type, with the bytes of its message, which may as well be no message at all.
    pub fn new(type_url: impl Into<Arc<str>>, name: impl Into<Arc<str>>, bytes: impl Into<Bytes>) -> Self {
        Self { type_url: type_url.into(), name: name.into(), bytes: bytes.into() }
    }

    /// A resource of any type, with its message.
    pub fn encode(type_url: impl Into<Arc<str>>, name: impl Into<Arc<str>>, message: &impl Message) -> Self {
        Self::new(type_url, name, message.encode_to_vec())
    }

    /// The type URL.
    pub fn type_url(&self) -> &str {
        &self.type_url
    }

    /// The name that clients subscribe to.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes of the message.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

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

    /// Changes any number of resources of any types, all at once; returns whether anything is different now.
    ///
    /// Setting a resource to the bytes that it has changes nothing, nor does removing one that is not there. The version
    /// of a type moves by one if any of its resources changed.
    pub fn update(&mut self, change: impl FnOnce(&mut Transaction<'_>)) -> bool {
        let mut transaction = Transaction { store: self, changes: BTreeMap::new() };
        change(&mut transaction);
        let Transaction { changes, .. } = transaction;
        changes.into_iter().fold(false, |changed, (type_url, names)| self.apply(type_url, names) || changed)
    }

    /// The resources of one type as they are now; none and version 0 for a type that never had any.
    pub fn get(&self, type_url: &str) -> Type {
        self.types.get(type_url).cloned().unwrap_or_default()
    }

    /// The type URLs that have, or once had, resources, in order.
    pub fn type_urls(&self) -> impl Iterator<Item = &str> {
        self.types.keys().map(|type_url| &**type_url)
    }

    /// A version as clients see it.
    pub fn version(&self, counter: u64) -> String {
        format!("{}{counter}", self.version_prefix)
    }

    fn apply(&mut self, type_url: Arc<str>, names: BTreeMap<Arc<str>, Option<Bytes>>) -> bool {
        let mut of_type = self.get(&type_url);
        let version = of_type.version + 1;
        let mut changed = false;
        for (name, bytes) in names {
            match bytes {
                Some(bytes) if of_type.resources.get(&name).is_some_and(|held| held.bytes == bytes) => {}
                Some(bytes) => {
                    changed = true;
                    of_type.resources.insert(name, Stored { bytes, version });
                }
                None => changed |= of_type.resources.remove(&name).is_some(),
            }
        }
        if changed {
            of_type.version = version;
            self.types.insert(type_url, of_type);
        }
        changed
    }
}

/// Changes that become visible together; see [`Store::update`].
#[derive(Debug)]
pub struct Transaction<'a> {
    store: &'a Store,
    changes: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Option<Bytes>>>,
}

impl Transaction<'_> {
    /// Adds a resource, or replaces the one of its type and name. The last word on a name counts.
    pub fn set(&mut self, resource: impl Into<AnyResource>) -> &mut Self {
        let AnyResource { type_url, name, bytes } = resource.into();
        self.changes.entry(type_url).or_default().insert(name, Some(bytes));
        self
    }

    /// Removes a resource, if it is there.
    pub fn remove(&mut self, type_url: &str, name: &str) -> &mut Self {
        self.changes.entry(type_url.into()).or_default().insert(name.into(), None);
        self
    }

    /// Removes all resources of a type, those that this transaction set as well.
    pub fn clear(&mut self, type_url: &str) -> &mut Self {
        let held = self.store.get(type_url).resources;
        self.changes.insert(type_url.into(), held.keys().map(|name| (name.clone(), None)).collect());
        self
    }
}

/// The resources of one type at one moment.
#[derive(Debug, Clone, Default)]
pub struct Type {
    version: u64,
    resources: OrdMap<Arc<str>, Stored>,
}

/// One resource in a [`Store`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    bytes: Bytes,
    version: u64,
}

impl Type {
    /// How often the type changed so far.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// One resource.
    pub fn resource(&self, name: &str) -> Option<&Stored> {
        self.resources.get(name)
    }

    /// One resource, with the name as it is kept.
    pub(crate) fn entry(&self, name: &str) -> Option<(&str, &Stored)> {
        self.resources.get_key_value(name).map(|(name, stored)| (&**name, stored))
    }

    /// All resources in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Stored)> {
        self.resources.iter().map(|(name, stored)| (&**name, stored))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// The names, in order, of resources that differ from those of another moment: added, changed or removed. Takes time for
    /// the differences, as far as both moments share their past.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a str> {
        before.resources.diff(&self.resources).map(|difference| match difference {
            imbl::ordmap::DiffItem::Add(name, _) | imbl::ordmap::DiffItem::Remove(name, _) => &**name,
            imbl::ordmap::DiffItem::Update { new: (name, _), .. } => &**name,
        })
    }
}

impl Stored {
    /// The bytes of the message.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The version of the type at which the resource last changed.
    pub fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(store: &mut Store, type_url: &str, name: &str, bytes: &str) -> bool {
        store.update(|tx| {
            tx.set(AnyResource::new(type_url, name, bytes.to_owned()));
        })
    }

    fn contents(store: &Store, type_url: &str) -> Vec<(String, String, u64)> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        store
            .get(type_url)
            .iter()
            .map(|(name, stored)| (name.to_owned(), text(stored.bytes()), stored.version()))
            .collect()
    }

    #[test]
    fn a_transaction_moves_each_changed_type_once() {
        let mut store = Store::new();
        assert!(store.update(|tx| {
            tx.set(AnyResource::new("t", "b", "1")).set(AnyResource::new("t", "a", "1"));
            tx.set(AnyResource::new("u", "c", "1"));
        }));
        assert_eq!((store.get("t").version(), store.get("u").version(), store.get("v").version()), (1, 1, 0));
        assert_eq!(contents(&store, "t"), [("a".into(), "1".into(), 1), ("b".into(), "1".into(), 1)]);

        assert!(set(&mut store, "t", "b", "2"));
        assert_eq!((store.get("t").version(), store.get("u").version()), (2, 1));
        assert_eq!(contents(&store, "t"), [("a".into(), "1".into(), 1), ("b".into(), "2".into(), 2)]);
        assert_eq!(store.type_urls().collect::<Vec<_>>(), ["t", "u"]);
    }

    #[test]
    fn equal_bytes_and_missing_names_change_nothing() {
        let mut store = Store::new();
        assert!(set(&mut store, "t", "a", "1"));
        assert!(!set(&mut store, "t", "a", "1"));
        assert!(!store.update(|tx| {
            tx.remove("t", "z").remove("u", "a").clear("w");
        }));
        assert_eq!((store.get("t").version(), store.get("u").version()), (1, 0));
    }

    #[test]
    fn the_last_word_on_a_name_counts() {
        let mut store = Store::new();
        set(&mut store, "t", "a", "1");
        assert!(!store.update(|tx| {
            tx.remove("t", "a").set(AnyResource::new("t", "a", "1"));
            tx.set(AnyResource::new("t", "b", "1")).remove("t", "b");
        }));
        assert!(store.update(|tx| {
            tx.set(AnyResource::new("t", "b", "1")).clear("t").set(AnyResource::new("t", "c", "1"));
        }));
        assert_eq!(contents(&store, "t"), [("c".into(), "1".into(), 2)]);
    }

    #[test]
    fn a_clone_is_a_moment() {
        let mut store = Store::new();
        set(&mut store, "t", "a", "1");
        set(&mut store, "t", "b", "1");
        let before = store.clone();
        store.update(|tx| {
            tx.remove("t", "a").set(AnyResource::new("t", "c", "1"));
        });
        assert_eq!(before.get("t").len(), 2);
        let (old, new) = (before.get("t"), store.get("t"));
        assert_eq!(new.changed_since(&old).collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(new.changed_since(&new).count(), 0);
    }

    #[test]
    fn versions_carry_the_prefix() {
        assert_eq!(Store::new().with_version_prefix("run-1-").version(7), "run-1-7");
        assert_eq!(Store::new().version(7), "7");
    }

    #[test]
    fn differences_among_many_are_all_found() {
        let mut store = Store::new();
        let name = |i: u32| format!("resource-{i:06}");
        store.update(|tx| {
            (0..20_000).for_each(|i| {
                tx.set(AnyResource::new("t", name(i), "1"));
            });
        });
        let before = store.get("t");
        let mut expected = Vec::new();
        for i in (0..20_000).step_by(777) {
            match i % 3 {
                0 => store.update(|tx| {
                    tx.remove("t", &name(i));
                }),
                1 => set(&mut store, "t", &name(i), "2"),
                _ => set(&mut store, "t", &format!("{}x", name(i)), "1"),
            };
            expected.push(if i % 3 == 2 { format!("{}x", name(i)) } else { name(i) });
        }
        assert_eq!(store.get("t").changed_since(&before).collect::<Vec<_>>(), expected);
    }
}
