//! Type URLs that are known at run time alone.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Registry, ResourceValue, SharedWatch, WatchedNames};
use crate::resource::{AnyMessage, Resource, ResourceType, services::Service};

/// The watch of these names of a type by its URL.
pub(in crate::client) fn watch<V: ResourceValue<Resource = AnyMessage>>(
    registry: &Arc<Registry>,
    type_url: &str,
    names: WatchedNames<'_>,
) -> Arc<SharedWatch<V>> {
    match any_type(type_url) {
        Ok(ty) => registry.resources_of_type(ty, names),
        Err(reason) => {
            let id = registry.lock().next_id();
            registry.refused(id, AnyMessage::TYPE_URL, names, reason)
        }
    }
}

/// The type of a URL, or the reason why it cannot be watched so.
fn any_type(type_url: &str) -> Result<ResourceType, String> {
    check(type_url)?;
    Ok(ResourceType::of::<AnyMessage>().with_type_url(kept(type_url)?))
}

/// Whether a type URL can be watched so.
///
/// # Errors
/// The reason why it cannot.
pub(crate) fn check(type_url: &str) -> Result<(), String> {
    if Service::of(type_url).is_some() {
        return Err(format!(
            "{type_url} is one of the protocol's own types, which are watched as typed resources"
        ));
    }
    let message = type_url.rsplit_once('/').map(|(_, message)| message);
    if message.is_none_or(str::is_empty) || type_url.len() > LONGEST {
        return Err(format!(
            "{type_url:.80?} is no type URL: it has a `/` before the name of a message, and {LONGEST} bytes at most"
        ));
    }
    Ok(())
}

/// The text for as long as the process lasts. There are few different ones.
fn kept(type_url: &str) -> Result<&'static str, String> {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.get(type_url) {
        return Ok(known);
    }
    if known.len() >= MOST {
        return Err(format!("the process has watched {MOST} types by their URLs, which is the limit"));
    }
    let text: &'static str = Box::leak(type_url.into());
    known.insert(text);
    Ok(text)
}

/// The maximum length of a type URL in bytes.
const LONGEST: usize = 512;

/// The maximum number of type URLs of a process. Each is kept until it ends.
const MOST: usize = 256;
