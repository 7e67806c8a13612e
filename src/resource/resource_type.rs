//! Types of resources as values.

use std::{
    borrow::Cow,
    fmt,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use bytes::Bytes;

use super::{Context, Invalid, List, Remarks, Resource, collection, matcher};
use crate::{base::Erased, name::ResourceName, observed::ErasedObserved};

/// A type of resource as a value, for code that is generic over types at run time.
#[derive(Clone, Copy)]
// Functions in place of a trait object, so that it is `Copy` and constants can have one.
pub struct ResourceType {
    /// The type URL of v3, whatever the version of the protocol.
    type_url: &'static str,
    /// Whether responses of the state of the world have all resources, so that a missing one is deleted.
    full_state: bool,
    /// Whether contents must not be shown.
    sensitive: bool,
    /// Reads the name in a message. An error for types whose resources have none, and are always wrapped.
    name: fn(&[u8]) -> Result<Cow<'_, str>, Invalid>,
    /// Parses a resource to the type that its watches cast back to.
    parse: fn(&Bytes, &Context<'_>) -> Result<Erased, Invalid>,
    /// Converts an observation to one of the typed resource, behind a pointer that the typed watch casts back.
    observe: fn(ErasedObserved) -> Erased,
    /// Returns what is not used of a parsed resource.
    remarks: fn(&Erased) -> Option<&Remarks>,
    /// The type of lists of these resources.
    list: Option<fn() -> Self>,
    /// Whether the resources are lists of others. There are no lists of lists.
    is_list: bool,
    /// How the content of a resource is taken; `None` for resources that are kept.
    handover: Option<&'static Handover>,
}

/// How the content of a resource is taken. Functions, so that types of resources are `Copy`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handover {
    /// The content, as the typed resource; `None` if it was taken.
    pub(super) take: fn(&Erased) -> Option<Erased>,
    /// A resource whose content is elsewhere from the beginning.
    pub(super) taken: fn() -> Erased,
}

impl ResourceType {
    /// The type of `T`.
    pub const fn of<T: Resource>() -> Self {
        Self {
            type_url: T::TYPE_URL,
            full_state: T::FULL_STATE,
            sensitive: T::SENSITIVE,
            name: T::name,
            parse: |bytes, cx| Ok(Arc::new(T::parse(bytes, cx)?)),
            observe: |observed| Arc::new(observed.typed::<T>()),
            remarks: |resource| resource.downcast_ref::<T>().and_then(T::remarks),
            list: if T::COLLECTION_TYPE_URL.is_some() { Some(Self::list_of::<T>) } else { None },
            is_list: false,
            handover: None,
        }
    }

    /// Sets how the content of a resource is taken, so that it is not kept.
    pub(super) const fn with_handover(mut self, handover: &'static Handover) -> Self {
        self.handover = Some(handover);
        self
    }

    /// The content of a resource for its consumer; `None` if it was taken before and is not kept.
    pub(crate) fn take_content(&self, resource: &Erased) -> Option<Erased> {
        match self.handover {
            Some(handover) => (handover.take)(resource),
            None => Some(resource.clone()),
        }
    }

    /// A resource whose content is in the store of its consumer; `None` for types whose resources are kept.
    pub(crate) fn taken_resource(&self) -> Option<Erased> {
        self.handover.map(|handover| (handover.taken)())
    }

    /// Whether the cache keeps the bytes of resources.
    pub(crate) fn is_kept(&self) -> bool {
        self.handover.is_none()
    }

    /// Returns the type under another type URL, for resources that are not parsed.
    #[cfg(any(feature = "client", feature = "tool-support"))]
    #[doc(hidden)]
    pub const fn with_type_url(mut self, type_url: &'static str) -> Self {
        self.type_url = type_url;
        self
    }

    /// Sets whether absence from a state-of-the-world response means deletion.
    #[cfg(feature = "tool-support")]
    #[doc(hidden)]
    pub const fn with_full_state(mut self, full_state: bool) -> Self {
        self.full_state = full_state;
        self
    }

    /// Sets whether the bytes are excluded from the status of a client.
    #[cfg(feature = "tool-support")]
    #[doc(hidden)]
    pub const fn with_sensitive(mut self, sensitive: bool) -> Self {
        self.sensitive = sensitive;
        self
    }

    /// The type of lists of resources of type `T`.
    fn list_of<T: Resource>() -> Self {
        Self {
            // `of` offers lists of types with a list alone, so that the default is never used.
            type_url: T::COLLECTION_TYPE_URL.unwrap_or_default(),
            full_state: false,
            sensitive: T::SENSITIVE,
            name: |_| {
                Err(Invalid::new("a list collection has no name in it, and must be wrapped in a Resource"))
            },
            parse: |bytes, cx| Ok(Arc::new(List::parse::<T>(bytes, cx)?)),
            observe: |observed| Arc::new(observed),
            remarks: |_| None,
            list: None,
            is_list: true,
            handover: None,
        }
    }

    /// The type of lists of these resources.
    pub(crate) fn list(&self) -> Option<Self> {
        self.list.map(|list| list())
    }

    /// Returns whether the resources are lists of others.
    pub(crate) fn is_list(&self) -> bool {
        self.is_list
    }

    /// Checks the target of a redirect or list entry for the type: a resource or a glob of the type, or an entry in a list of
    /// its resources (X22). An old-style name has no type.
    pub(crate) fn check_locator(&self, locator: &ResourceName) -> Result<(), String> {
        collection::check_locator(self.type_url, locator)
    }

    /// Returns the type URL on the wire.
    pub const fn type_url(&self) -> &'static str {
        self.type_url
    }

    /// Returns whether absence from a state-of-the-world response means deletion.
    pub const fn full_state(&self) -> bool {
        self.full_state
    }

    /// Returns whether the bytes are excluded from the status of a client.
    pub const fn is_sensitive(&self) -> bool {
        self.sensitive
    }

    /// Reads the name of an encoded resource.
    ///
    /// # Errors
    /// The bytes are not a message, or the resources of the type have no name in them and are always wrapped.
    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, str>, Invalid> {
        (self.name)(bytes)
    }

    /// Parses an encoded resource, within the budget of regular expressions. A panic of the parser is an error of this resource.
    pub(crate) fn parse(&self, bytes: &Bytes, cx: &Context<'_>) -> Result<Erased, Invalid> {
        // The parser may be an application's. A panic in it must not affect other resources (G7).
        let cx = cx.with_type_url(self.type_url);
        let parse = || matcher::with_regex_budget(cx.regex_limits, || (self.parse)(bytes, &cx));
        panic::catch_unwind(AssertUnwindSafe(parse))
            .unwrap_or_else(|_| Err(Invalid::new("the parser of this type has panicked")))
    }

    /// Returns what is not used of a resource of the type.
    pub(crate) fn remarks<'a>(&self, resource: &'a Erased) -> Option<&'a Remarks> {
        (self.remarks)(resource).filter(|remarks| !remarks.is_empty())
    }

    /// Converts an observation to the type that the watches of these resources expect.
    pub(crate) fn observe(&self, observed: ErasedObserved) -> Erased {
        (self.observe)(observed)
    }
}

impl fmt::Debug for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResourceType").field(&self.type_url).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An application's resource type with a faulty parser.
    #[derive(Debug)]
    struct Trap(u8);

    impl Resource for Trap {
        const TYPE_URL: &'static str = "type.googleapis.com/test.Trap";

        fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
            Ok(Self(bytes[0]))
        }
    }

    #[test]
    fn g7_rejects_a_resource_whose_parser_panics_and_takes_the_next() {
        let ty = ResourceType::of::<Trap>();
        let e = ty.parse(&Bytes::new(), &Context::new()).unwrap_err();
        assert_eq!(e.to_string(), "the parser of this type has panicked");
        let next = ty.parse(&Bytes::from_static(b"x"), &Context::new()).unwrap();
        assert_eq!(next.downcast_ref::<Trap>().map(|trap| trap.0), Some(b'x'));
    }
}
