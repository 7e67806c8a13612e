//! List collections: resources that list others, by locator or inline (rules X12 to X14).

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;

use super::{Context, Erased, Invalid, Resource, Version, parts};
use crate::{
    name::{ResourceName, is_entry_name},
    wire::{Fields, Malformed},
};

/// The entries of a list collection, in their order.
#[derive(Debug)]
pub(crate) struct List {
    /// The entries in their order.
    pub(crate) entries: Vec<ListEntry>,
}

/// An entry of a [`List`].
#[derive(Debug)]
pub(crate) enum ListEntry {
    /// The locator of the resource, or of a glob whose members are members of the list.
    Locator(ResourceName),
    /// The resource itself.
    Inline(Inline),
}

/// An inline resource of a [`List`].
#[derive(Debug)]
pub(crate) struct Inline {
    /// The name, empty if the resource cannot be addressed.
    pub(crate) name: Arc<str>,
    /// The version, empty if it is that of the list.
    pub(crate) version: Version,
    /// The encoded resource.
    pub(crate) bytes: Bytes,
    /// The typed resource.
    pub(crate) resource: Erased,
}

impl List {
    /// Parses a message with the entries in field 1, as in all collections. A list with an unusable entry is rejected
    /// as a whole: a resource is never applied partially.
    pub(super) fn parse<T: Resource>(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let mut entries = Vec::new();
        let mut names = BTreeSet::new();
        for field in Fields::of(bytes) {
            let field = field.map_err(malformed)?;
            if field.number != 1 {
                continue;
            }
            let at = |invalid: Invalid| invalid.at_index("entries", entries.len());
            let range = field.range().map_err(malformed)?;
            let entry = ListEntry::parse::<T>(&bytes.slice(range), cx).map_err(at)?;
            if let ListEntry::Inline(Inline { name, .. }) = &entry
                && !name.is_empty()
                && !names.insert(name.clone())
            {
                return Err(at(Invalid::field("name", format!("{name:?} occurs twice")).at("inline_entry")));
            }
            entries.push(entry);
        }
        Ok(Self { entries })
    }

    /// Returns the inline entry of a name.
    pub(crate) fn inline(&self, name: &str) -> Option<&Inline> {
        self.entries.iter().find_map(|entry| match entry {
            ListEntry::Inline(inline) if *inline.name == *name => Some(inline),
            ListEntry::Inline(_) | ListEntry::Locator(_) => None,
        })
    }
}

impl ListEntry {
    /// Parses an entry: a locator or a resource.
    fn parse<T: Resource>(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let mut found = None;
        for field in Fields::of(bytes) {
            let field = field.map_err(malformed)?;
            // The last field of the oneof counts.
            if matches!(field.number, 1 | 2) {
                found = Some((field.number, field.range().map_err(malformed)?));
            }
        }
        match found {
            Some((1, range)) => {
                let locator = ResourceName::of_locator(&bytes[range]).map_err(|e| e.at("locator"))?;
                let checked = check_locator(T::TYPE_URL, &locator);
                checked.map_err(|reason| Invalid::field("locator", reason))?;
                Ok(Self::Locator(locator))
            }
            Some((_, range)) => {
                let inline = Inline::parse::<T>(&bytes.slice(range), cx);
                Ok(Self::Inline(inline.map_err(|e| e.at("inline_entry"))?))
            }
            None => Err(Invalid::new("neither a locator nor an inline entry")),
        }
    }
}

impl Inline {
    /// Parses a resource within a list.
    fn parse<T: Resource>(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let (mut name, mut version, mut resource) = ("", "", None);
        for field in Fields::of(bytes) {
            let field = field.map_err(malformed)?;
            match field.number {
                1 => name = field.text().map_err(malformed)?,
                2 => version = field.text().map_err(malformed)?,
                3 => resource = Some(bytes.slice(field.range().map_err(malformed)?)),
                _ => {}
            }
        }
        // X13: the directive `#entry=` cannot spell other names; an empty one is an entry without a name.
        if !name.is_empty() && !is_entry_name(name) {
            return Err(Invalid::field("name", format!("{name:?} is not of letters, digits and `_-./~:`")));
        }
        let any = resource.ok_or_else(|| Invalid::field("resource", "must be set"))?;
        let bytes = value_of::<T>(&any).map_err(|e| e.at("resource"))?;
        // Regular expressions of all entries are within the one budget of the list.
        let resource = T::parse(&bytes, cx).map_err(|e| e.at("resource"))?;
        Ok(Self { name: name.into(), version: version.into(), bytes, resource: Arc::new(resource) })
    }
}

/// Returns the value of an `Any` if it has the type URL of `T`.
fn value_of<T: Resource>(any: &Bytes) -> Result<Bytes, Invalid> {
    let (mut type_url, mut value) = ("", Bytes::new());
    for field in Fields::of(any) {
        let field = field.map_err(malformed)?;
        match field.number {
            1 => type_url = field.text().map_err(malformed)?,
            // A copy, as `Resource::parse` demands: a slice that the resource keeps must not keep the whole list in memory.
            2 => value = Bytes::copy_from_slice(field.bytes().map_err(malformed)?),
            _ => {}
        }
    }
    match type_url == T::TYPE_URL {
        true => Ok(value),
        false => Err(Invalid::field("type_url", format!("is {type_url:?}, not {:?}", T::TYPE_URL))),
    }
}

/// The error of bytes that are no message.
fn malformed(error: Malformed) -> Invalid {
    Invalid::new(format!("not a valid message: {error}"))
}

/// Checks the target of a redirect or list entry for a type: a resource or a glob of the type, or an entry in a list of its resources
/// (X22). An old-style name has no type.
pub(super) fn check_locator(type_url: &str, locator: &ResourceName) -> Result<(), String> {
    let Some(named) = locator.resource_type() else {
        return match locator.as_str() {
            // In requests `*` is the wildcard.
            name @ ("" | "*") => Err(format!("leads to {name:?}, which is not one resource")),
            _ => Ok(()),
        };
    };
    let own = parts::message_name(type_url);
    let is_entry = locator.directives().is_some_and(|directives| directives.entry().is_some());
    let of_type = if is_entry { named.strip_suffix("Collection") } else { Some(named) };
    match of_type == Some(own) {
        true => Ok(()),
        false => Err(format!("leads to a resource of type {named}, not of {own}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::{
        cache::Redirect,
        pb::{
            envoy::config::cluster::v3::ClusterCollection,
            google::protobuf::Any,
            xds::core::v3::{
                CollectionEntry, ResourceLocator,
                collection_entry::{InlineEntry, ResourceSpecifier},
            },
        },
        resource::{Context, ResourceType},
    };

    #[derive(Debug)]
    struct Thing;

    impl Resource for Thing {
        const TYPE_URL: &'static str = "type.googleapis.com/test.Thing";

        fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
            if bytes == "bad" { Err(Invalid::field("text", "it is bad")) } else { Ok(Self) }
        }
    }

    fn inline(name: &str, type_url: &str, value: &'static str) -> CollectionEntry {
        let resource = Any { type_url: type_url.into(), value: value.into() };
        let entry = InlineEntry { name: name.into(), version: "7".into(), resource: Some(resource) };
        CollectionEntry { resource_specifier: Some(ResourceSpecifier::InlineEntry(entry)) }
    }

    fn good(name: &str) -> CollectionEntry {
        inline(name, Thing::TYPE_URL, "good")
    }

    fn locator(ty: &str, id: &str) -> CollectionEntry {
        let (authority, resource_type, id) = ("a".into(), ty.into(), id.into());
        let locator = ResourceLocator { authority, resource_type, id, ..ResourceLocator::default() };
        CollectionEntry { resource_specifier: Some(ResourceSpecifier::Locator(locator)) }
    }

    /// All collections have the same encoding.
    fn parse(entries: Vec<CollectionEntry>) -> Result<List, String> {
        let bytes = ClusterCollection { entries }.encode_to_vec().into();
        List::parse::<Thing>(&bytes, &Context::new()).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn x12_x13_entries_are_locators_and_inline_resources() {
        let list = parse(vec![locator("test.Thing", "x"), good("i"), good(""), good("")]).unwrap();
        let ListEntry::Locator(name) = &list.entries[0] else { panic!("{list:?}") };
        assert_eq!((name.as_str(), list.entries.len()), ("xdstp://a/test.Thing/x", 4));
        let inline = list.inline("i").unwrap();
        assert_eq!((inline.version.as_str(), inline.resource.is::<Thing>()), ("7", true));
        assert!(list.inline("x").is_none());
        assert!(parse(vec![]).unwrap().entries.is_empty());
    }

    #[test]
    fn x12_a_locator_may_be_a_glob() {
        let list = parse(vec![locator("test.Thing", "shop/*")]).unwrap();
        let ListEntry::Locator(name) = &list.entries[0] else { panic!("{list:?}") };
        assert!(name.is_glob(), "{name}");
    }

    #[test]
    fn x12_a_locator_may_be_text() {
        let name = "xdstp://a/test.Thing/x?b=2&a=1";
        // An entry with a string in field 1, in a list.
        let mut bytes = vec![0x0a, name.len() as u8 + 2, 0x0a, name.len() as u8];
        bytes.extend(name.bytes());
        let list = List::parse::<Thing>(&bytes.into(), &Context::new()).unwrap();
        let ListEntry::Locator(found) = &list.entries[0] else { panic!("{list:?}") };
        assert_eq!(found.as_str(), "xdstp://a/test.Thing/x?a=1&b=2");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let bytes = Bytes::from(bytes);
            let _ = List::parse::<Thing>(&bytes, &Context::new());
            let _ = ListEntry::parse::<Thing>(&bytes, &Context::new());
            let _ = Inline::parse::<Thing>(&bytes, &Context::new());
            let _ = Redirect::parse(&bytes, ResourceType::of::<Thing>());
            let _ = ResourceName::of_locator(&bytes);
        }
    }

    #[test]
    fn x13_a_list_is_rejected_for_any_entry_that_cannot_be_used() {
        for (entry, expected) in [
            (good("i"), "entries[1].inline_entry.name: \"i\" occurs twice"),
            (good("a b"), "entries[1].inline_entry.name: \"a b\" is not of letters"),
            (inline("j", Thing::TYPE_URL, "bad"), "entries[1].inline_entry.resource.text: it is bad"),
            (inline("j", "t/T", "good"), "entries[1].inline_entry.resource.type_url: is \"t/T\""),
            (locator("T", "x"), "entries[1].locator: leads to a resource of type T"),
            (locator("T", "*"), "entries[1].locator: leads to a resource of type T"),
            (CollectionEntry::default(), "entries[1]: neither a locator nor an inline entry"),
        ] {
            let error = parse(vec![good("i"), entry]).unwrap_err();
            assert!(error.starts_with(expected), "{error} does not start with {expected}");
        }
        assert!(List::parse::<Thing>(&Bytes::from_static(b"\xff"), &Context::new()).is_err());
    }
}
