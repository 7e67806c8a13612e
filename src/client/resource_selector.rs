use self::sealed::Name;
use super::registry::WatchedNames;
use crate::{
    engine::{self, SelectedName},
    name::ResourceName,
};

/// A selection of resources of a type, for [`Client::watch_all`](super::Client::watch_all).
///
/// The text `*` is converted to a wildcard, and any other text to the name of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResourceSelector {
    /// All resources that the first management server provides for this client (wildcard, `*`).
    All,
    /// The resources that the first management server sends of the type without having been asked for them by name (pushed), beside what
    /// other watches subscribe to. Nothing is requested for them: in the incremental variant the type begins with a subscription to
    /// nothing; in the state of the world they come in the answers to names alone. There is no sign of their completeness, so that
    /// [`WatchAll::ready`](super::WatchAll::ready) does not return before an error.
    ///
    /// A resource that is subscribed by name as well leaves when that subscription ends, since the server is notified of that.
    Pushed,
    /// Nothing: for [`Client::batches`](super::Client::batches) whose names are added by
    /// [`Batches::subscribe`](super::Batches::subscribe). A watch of it is refused.
    Nothing,
    /// The members of a collection, by its `xdstp://` name. A glob, such as
    /// `xdstp://mesh.example/envoy.config.cluster.v3.Cluster/shop/*`, has all members one segment below `shop`. A list, such as
    /// `xdstp://mesh.example/envoy.config.cluster.v3.ClusterCollection/shop`, has its entries: they are named by their locators, or
    /// `<list>#entry=<name>` and `<list>#<index>` if they are inline.
    Collection(String),
    /// The members of a collection with a name constructed in code, possibly with
    /// [attributes](ResourceName::with_resource_attribute).
    Exactly(ResourceName),
}

/// A name for [`Client::watch`](super::Client::watch): text, or a [`ResourceName`] that was constructed in code,
/// possibly with [attributes](ResourceName::with_resource_attribute).
///
/// It is sealed: it has no methods and cannot be implemented outside of this crate.
pub trait WatchName: sealed::AsName {}

impl From<&str> for ResourceSelector {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for ResourceSelector {
    fn from(text: String) -> Self {
        if text == "*" { Self::All } else { Self::Collection(text) }
    }
}

impl From<&String> for ResourceSelector {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<ResourceName> for ResourceSelector {
    fn from(name: ResourceName) -> Self {
        Self::Exactly(name)
    }
}

impl From<&ResourceName> for ResourceSelector {
    fn from(name: &ResourceName) -> Self {
        Self::Exactly(name.clone())
    }
}

impl From<ResourceSelector> for WatchedNames<'_> {
    fn from(names: ResourceSelector) -> Self {
        let selected = match names {
            ResourceSelector::All => return Self::All,
            ResourceSelector::Pushed => return Self::Other(engine::Selection::Pushed),
            ResourceSelector::Nothing => return Self::Other(engine::Selection::Nothing),
            ResourceSelector::Collection(text) => SelectedName::Text(text.into()),
            ResourceSelector::Exactly(name) => SelectedName::Name(Box::new(name)),
        };
        Self::Other(engine::Selection::Collection(selected))
    }
}

// `ResourceName` has no `AsRef<str>`, so that these implementations do not overlap. A parsed name may have attributes, which
// its text lacks.
impl<T: AsRef<str> + ?Sized> WatchName for T {}

impl WatchName for ResourceName {}

impl WatchName for &ResourceName {}

/// The selection of a consumer of batches: the name of a resource selects that alone.
pub(super) fn some(names: ResourceSelector) -> WatchedNames<'static> {
    let one = match &names {
        ResourceSelector::All | ResourceSelector::Pushed | ResourceSelector::Nothing => None,
        ResourceSelector::Collection(text) => ResourceName::parse(text)
            .is_ok_and(|name| !name.is_collection())
            .then(|| SelectedName::Text(text.as_str().into())),
        ResourceSelector::Exactly(name) => {
            (!name.is_collection()).then(|| SelectedName::Name(Box::new(name.clone())))
        }
    };
    match one {
        Some(one) => WatchedNames::Other(engine::Selection::One(one)),
        None => names.into(),
    }
}

/// The selection of one resource by its name.
///
/// Text is borrowed: a watch that exists already is joined without an allocation.
pub(super) fn one<N: WatchName + ?Sized>(name: &N) -> WatchedNames<'_> {
    match name.as_name() {
        Name::Text(text) => WatchedNames::One(text),
        Name::Parsed(name) => {
            WatchedNames::Other(engine::Selection::One(SelectedName::Name(Box::new(name.clone()))))
        }
    }
}

mod sealed {
    use super::ResourceName;

    /// A name in the form that the application passed.
    #[derive(Debug)]
    pub enum Name<'a> {
        /// Text that is parsed when the watch begins.
        Text(&'a str),
        /// A name that was constructed in code.
        Parsed(&'a ResourceName),
    }

    /// The method of [`WatchName`](super::WatchName), which is not part of the API.
    pub trait AsName {
        /// The name as text or in its parsed form.
        fn as_name(&self) -> Name<'_>;
    }

    impl<T: AsRef<str> + ?Sized> AsName for T {
        fn as_name(&self) -> Name<'_> {
            Name::Text(self.as_ref())
        }
    }

    impl AsName for ResourceName {
        fn as_name(&self) -> Name<'_> {
            Name::Parsed(self)
        }
    }

    impl AsName for &ResourceName {
        fn as_name(&self) -> Name<'_> {
            Name::Parsed(self)
        }
    }
}
