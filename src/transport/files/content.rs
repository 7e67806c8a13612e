//! The content of a file, as a response for the subscribed type.

use std::path::Path;

use bytes::Bytes;
use prost::Message;

use crate::{
    config::TransportApiVersion,
    format::{self, Format, Read},
    pb::{
        envoy::{
            config::listener::v3::ListenerCollection,
            service::discovery::v3::{DiscoveryResponse, Resource},
        },
        google::protobuf::Any,
        xds::core::v3::{
            CollectionEntry,
            collection_entry::{InlineEntry, ResourceSpecifier},
        },
    },
    resource::services::WRAPPER,
};

/// Reads a document: a `DiscoveryResponse`, or a list collection with inline entries (rules D5 to D9). Skipped parts
/// are in its warnings.
///
/// # Errors
/// The document is neither, or of another type.
pub(super) fn read(document: &[u8], path: &Path, type_url: &str) -> Result<Read, String> {
    let read = format::read(document, Format::from_path(path)).map_err(|error| error.to_string())?;
    let response = DiscoveryResponse::decode(read.message).map_err(|error| error.to_string())?;
    if !read.lists_resources && response.type_url.is_empty() {
        // A document that was cut off may have a version alone.
        return Err("it has neither resources, be they an empty list, nor a type_url".to_owned());
    }
    let message = of_type(response, type_url)?.encode_to_vec().into();
    Ok(Read { message, ..read })
}

/// Checks the type of a response and of its resources. The type URL may be missing if the resources have it, and older files have
/// that of v2.
fn of_type(mut response: DiscoveryResponse, type_url: &str) -> Result<DiscoveryResponse, String> {
    // A watch of the list itself has it as a resource (X12).
    if let [only] = &response.resources[..]
        && v3(&response.type_url) != type_url
        && only.type_url == WRAPPER
        && response.type_url.ends_with("Collection")
    {
        let wrapper = Resource::decode(&*only.value).map_err(|error| error.to_string())?;
        let list = wrapper.resource.unwrap_or_default();
        response.resources = entries(&list.value)?;
        // The type of the list shows nothing about its entries, whose own types are checked below.
        response.type_url.clear();
    }
    match v3(&response.type_url) {
        written if written.is_empty() || written == type_url => response.type_url = type_url.to_owned(),
        other => return Err(format!("type_url: it holds {}, not {}", short(&other), short(type_url))),
    }
    for (index, any) in response.resources.iter_mut().enumerate() {
        any.type_url = v3(&any.type_url);
        if any.type_url != type_url && any.type_url != WRAPPER {
            let found = short(&any.type_url);
            return Err(format!("resources[{index}]: it is of the type {found}, not {}", short(type_url)));
        }
    }
    Ok(response)
}

/// The entries of a list as resources of their own, by their names (D9). Entries by locator are not available from a
/// file.
fn entries(list: &Bytes) -> Result<Vec<Any>, String> {
    // All collections have their entries in field 1.
    let list = ListenerCollection::decode(list.clone()).map_err(|error| error.to_string())?;
    let entries = list.entries.into_iter().enumerate();
    let wrapped = entries.map(|(index, CollectionEntry { resource_specifier })| match resource_specifier {
        Some(ResourceSpecifier::InlineEntry(InlineEntry { name, version, resource: Some(resource) })) => {
            let resource = Any { type_url: v3(&resource.type_url), ..resource };
            let wrapper = Resource { name, version, resource: Some(resource), ..Resource::default() };
            Ok(Any { type_url: WRAPPER.to_owned(), value: wrapper.encode_to_vec().into() })
        }
        Some(ResourceSpecifier::InlineEntry(_)) => {
            Err(format!("resource.entries[{index}].inline_entry.resource: must be set"))
        }
        Some(ResourceSpecifier::Locator(_)) => {
            Err(format!("resource.entries[{index}].locator: a file has inline entries alone"))
        }
        None => Err(format!("resource.entries[{index}]: must have an inline_entry")),
    });
    wrapped.collect()
}

/// The v3 name of a type.
fn v3(type_url: &str) -> String {
    TransportApiVersion::V2.unspell(type_url).to_owned()
}

/// Returns a type without its prefix, for errors.
fn short(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or(type_url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{Listener, Resource as _};

    const LIST: &str = "type.googleapis.com/envoy.config.listener.v3.ListenerCollection";

    fn of(yaml: &str, type_url: &str) -> DiscoveryResponse {
        let read = read(yaml.as_bytes(), Path::new("listeners.yaml"), type_url).unwrap();
        DiscoveryResponse::decode(read.message).unwrap()
    }

    const NAMED: &str = "
version: '1'
name: xdstp://a/envoy.config.listener.v3.ListenerCollection/shop
resource:
  '@type': type.googleapis.com/envoy.config.listener.v3.ListenerCollection
  entries:
  - inline_entry:
      name: in
      resource: {'@type': type.googleapis.com/envoy.config.listener.v3.Listener, name: in}
";

    #[test]
    fn d9_a_list_is_a_resource_by_its_name_where_the_list_is_watched() {
        let list = of(NAMED, LIST);
        assert_eq!((&*list.type_url, list.resources.len()), (LIST, 1));
        let wrapper = Resource::decode(&*list.resources[0].value).unwrap();
        assert_eq!(wrapper.name, "xdstp://a/envoy.config.listener.v3.ListenerCollection/shop");
        assert_eq!(wrapper.resource.unwrap().type_url, LIST);
        // Where the members are watched, they are resources of their own.
        let members = of(NAMED, Listener::TYPE_URL);
        let wrapper = Resource::decode(&*members.resources[0].value).unwrap();
        assert_eq!((&*members.type_url, &*wrapper.name), (Listener::TYPE_URL, "in"));
        assert_eq!(wrapper.resource.unwrap().type_url, Listener::TYPE_URL);
    }
}
