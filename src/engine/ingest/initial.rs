//! The parsing of initial resources, by the rules for those of a trusted server.

use std::sync::Arc;

use bytes::Bytes;

use super::{Ingest, ParserSettings};
use crate::{
    cache::InitialResource,
    config::Bootstrap,
    engine::{Settings, store::Store},
    escape::Escaped,
    protocol::EntryId,
    resource::{Erased, Invalid, ResourceType},
};

/// Checks the initial resources of the settings, before a client is built with them.
///
/// # Errors
/// The first resource that is none, with its place.
pub(crate) fn check_initial_resources(
    bootstrap: &Arc<Bootstrap>,
    settings: &Settings,
) -> Result<(), Invalid> {
    let initial = &settings.initial_resources;
    if initial.is_empty() {
        return Ok(());
    }
    let parser = ParserSettings::new(bootstrap.clone(), Arc::new(settings.clone()));
    for (given, name) in initial.named(bootstrap)? {
        let parsed = parser.parse_initial(given.ty, &name.canonical(), &given.bytes);
        parsed.map_err(|invalid| given.at(name.as_str(), invalid))?;
    }
    Ok(())
}

impl Ingest {
    /// The name of an entry is watched: its initial resource serves, if it has one and nothing is known of it.
    pub(in crate::engine) fn begin_initial(&self, store: &mut Store, id: EntryId) {
        let Some(entry) = store.get(id).filter(|entry| entry.is_waiting()) else { return };
        let (ty, name) = (store.ty(entry.ty), entry.name.clone());
        let Some(bytes) = store.initial().get(ty.type_url(), &name).cloned() else { return };
        let about = store.subject(entry);
        match self.parser.parse_initial(ty, &name, &bytes) {
            Ok(resource) => {
                let initial = InitialResource::new(resource, bytes, about);
                let changed = store.apply(id, |entry| entry.on_initial(initial));
                store.note_change(id, changed, false);
            }
            // It was checked as another type with the same URL.
            Err(invalid) => {
                tracing::warn!(type_url = ty.type_url(), %name, error = %Escaped(&invalid), "initial resource rejected");
            }
        }
    }
}

impl ParserSettings {
    fn parse_initial(&self, ty: ResourceType, name: &Arc<str>, bytes: &Bytes) -> Result<Erased, Invalid> {
        ty.parse(bytes, &self.context(true).with_name(name))
    }
}
