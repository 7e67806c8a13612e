//! Warnings of what is configured for a target and not executed by channels: each when the configuration begins to have it.

use std::collections::BTreeSet;

use tracing::warn;

use crate::{resolve::Snapshot, resource::Remarks};

/// What was logged of the newest listener and its routes.
#[derive(Debug, Default)]
pub(super) struct Unexecuted {
    /// HTTP filters.
    pub(super) filters: BTreeSet<String>,
    /// Fields.
    fields: BTreeSet<&'static str>,
}

impl Unexecuted {
    /// Logs the fields of the listener and its routes that are not executed, unless those before had them.
    pub(super) fn warn_of_fields(&mut self, snapshot: &Snapshot) {
        let fields: BTreeSet<_> =
            remarks_of_routes(snapshot).into_iter().flat_map(Remarks::not_executed).copied().collect();
        for field in fields.difference(&self.fields) {
            warn!(
                target = snapshot.target(),
                "the channel does not execute a part of the configuration: {field}"
            );
        }
        self.fields = fields;
    }

    /// Logs the HTTP filters that are not executed, unless the routes before had them.
    pub(super) fn warn_of_filters(&mut self, target: &str, filters: BTreeSet<&str>) {
        let filters: BTreeSet<_> = filters.into_iter().map(str::to_owned).collect();
        for filter in filters.difference(&self.filters) {
            warn!(
                target,
                %filter, "the channel does not execute a part of the configuration: HTTP filter"
            );
        }
        self.filters = filters;
    }
}

/// What is not used of the listener and of the routes of a target.
pub(super) fn remarks_of_routes(snapshot: &Snapshot) -> [&Remarks; 3] {
    [&snapshot.listener().remarks, &snapshot.route_config().remarks, &snapshot.virtual_host().remarks]
}
