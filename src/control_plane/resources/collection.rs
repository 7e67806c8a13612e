use crate::{
    control_plane::{AnyResource, store::locator},
    name::ResourceName,
    pb::{
        envoy::config::listener::v3::ListenerCollection,
        google::protobuf::Any,
        xds::core::v3::{
            CollectionEntry,
            collection_entry::{InlineEntry, ResourceSpecifier},
        },
    },
};

/// An empty list collection: a resource whose entries are other resources, by name or inline. Its type is that of its
/// name.
///
/// ```
/// use xdskit::control_plane::{
///     AnyResource,
///     resources::{cluster, collection},
/// };
///
/// let shop: AnyResource = collection("xdstp://mesh/envoy.config.cluster.v3.ClusterCollection/shop")
///     .locator("xdstp://mesh/envoy.config.cluster.v3.Cluster/cart")
///     .inline("pay", "1", cluster("pay"))
///     .into();
/// ```
///
/// # Panics
/// The name is not an `xdstp:` name.
#[track_caller]
pub fn collection(name: &str) -> CollectionBuilder {
    CollectionBuilder { name: parse(name), entries: Vec::new() }
}

/// A builder of a list collection; see [`collection`].
#[derive(Debug, Clone, PartialEq)]
pub struct CollectionBuilder {
    /// The name, which is not a part of the message.
    name: ResourceName,
    /// The entries so far.
    entries: Vec<CollectionEntry>,
}

impl CollectionBuilder {
    /// Adds an entry by name, which clients subscribe to.
    ///
    /// # Panics
    /// The name is not an `xdstp:` name.
    #[must_use]
    #[track_caller]
    pub fn locator(self, name: &str) -> Self {
        let locator = locator(&parse(name));
        self.entry(locator.map(ResourceSpecifier::Locator))
    }

    /// Adds an inline entry with a version of its own. Without a name it cannot be addressed.
    #[must_use]
    pub fn inline(
        self,
        name: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<AnyResource>,
    ) -> Self {
        let resource = resource.into();
        let any = Any { type_url: resource.type_url().to_owned(), value: resource.bytes().clone() };
        let entry = InlineEntry { name: name.into(), version: version.into(), resource: Some(any) };
        self.entry(Some(ResourceSpecifier::InlineEntry(entry)))
    }

    /// Edits the entries directly.
    #[must_use]
    pub fn edit(mut self, edit: impl FnOnce(&mut Vec<CollectionEntry>)) -> Self {
        edit(&mut self.entries);
        self
    }

    /// Adds an entry.
    fn entry(mut self, resource_specifier: Option<ResourceSpecifier>) -> Self {
        self.entries.push(CollectionEntry { resource_specifier });
        self
    }
}

impl From<CollectionBuilder> for AnyResource {
    fn from(CollectionBuilder { name, entries }: CollectionBuilder) -> Self {
        let type_url = format!("type.googleapis.com/{}", name.resource_type().unwrap_or_default());
        // The collections of all types have the same encoding. None of them contains its name.
        let collection = ListenerCollection { entries };
        Self::encode(type_url, "", &collection).with_name(name.canonical())
    }
}

/// Parses a name; one that is not an `xdstp:` name is a mistake in the test.
#[track_caller]
fn parse(name: &str) -> ResourceName {
    match ResourceName::parse_received(name) {
        Ok(parsed) if parsed.is_xdstp() => parsed,
        Ok(_) => panic!("{name:?} is not an xdstp: name"),
        Err(error) => panic!("{error}"),
    }
}
