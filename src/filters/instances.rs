//! The states of filters that outlive the configurations of their routes (CH5.4).

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    mem::{Discriminant, discriminant},
    sync::Arc,
};

use crate::resource::http_filter::{HttpFilter, HttpFilterConfig};

/// The states of the filters of a listener, by the names of the filters (A83-2).
#[derive(Default)]
pub(crate) struct Instances(BTreeMap<Box<str>, Instance>);

/// The state of a filter with this name.
struct Instance {
    kind: FilterKind,
    state: InstanceState,
}

/// The type of a filter: another type under the same name is another filter, and must not get its state.
type FilterKind = (Discriminant<HttpFilterConfig>, Option<&'static str>);

/// The state of any filter.
pub(super) type InstanceState = Arc<dyn Any + Send + Sync>;

impl Instances {
    /// Forgets the instances that are not among the filters of a listener.
    pub(super) fn retain(&mut self, listed: &[HttpFilter]) {
        self.0.retain(|name, instance| {
            let filter = listed.iter().find(|filter| filter.name == *name);
            filter.is_some_and(|filter| kind(filter) == instance.kind)
        });
    }

    /// Returns the state of a filter, made if there is none of its name and type. `None` if it cannot be made.
    pub(super) fn of(
        &mut self,
        filter: &HttpFilter,
        make: impl FnOnce() -> Option<InstanceState>,
    ) -> Option<InstanceState> {
        let kind = kind(filter);
        if let Some(known) = self.0.get(&filter.name).filter(|instance| instance.kind == kind) {
            return Some(known.state.clone());
        }
        // A state that cannot be made is tried again at the next update.
        let state = make()?;
        self.0.insert(filter.name.clone(), Instance { kind, state: state.clone() });
        Some(state)
    }
}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Returns the type of a filter.
fn kind(filter: &HttpFilter) -> FilterKind {
    let custom =
        if let HttpFilterConfig::Custom(custom) = &filter.config { Some(custom.type_name()) } else { None };
    (discriminant(&filter.config), custom)
}
