//! The states of filters that outlive the configurations of their routes (CH5.4).

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    mem::{Discriminant, discriminant},
    sync::Arc,
};

use crate::resource::http_filter::{HttpFilter, HttpFilterConfig};

/// The states of the filters of a listener, by the names of the filters (A83-2). The chains of a server's listener may have filters of
/// several types under one name.
#[derive(Default)]
pub(crate) struct Instances(BTreeMap<Box<str>, Vec<Instance>>);

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
        self.retain_of(listed.iter());
    }

    /// Forgets the instances that are not among the filters of any chain.
    #[cfg(any(test, feature = "server"))]
    pub(crate) fn retain_any(&mut self, listed: &[&HttpFilter]) {
        self.retain_of(listed.iter().copied());
    }

    fn retain_of<'a>(&mut self, listed: impl Iterator<Item = &'a HttpFilter>) {
        let mut kinds: BTreeMap<&str, Vec<FilterKind>> = BTreeMap::new();
        for filter in listed {
            kinds.entry(&filter.name).or_default().push(kind(filter));
        }
        self.0.retain(|name, instances| {
            let kinds = kinds.get(&**name).map_or(&[][..], Vec::as_slice);
            instances.retain(|instance| kinds.contains(&instance.kind));
            !instances.is_empty()
        });
    }

    /// Returns the state of a filter, made if there is none of its name and type. `None` if it cannot be made.
    pub(super) fn of(
        &mut self,
        filter: &HttpFilter,
        make: impl FnOnce() -> Option<InstanceState>,
    ) -> Option<InstanceState> {
        let kind = kind(filter);
        let known = self.0.get(&filter.name).and_then(|named| named.iter().find(|known| known.kind == kind));
        if let Some(known) = known {
            return Some(known.state.clone());
        }
        // A state that cannot be made is tried again at the next update.
        let state = make()?;
        let instance = Instance { kind, state: state.clone() };
        self.0.entry(filter.name.clone()).or_default().push(instance);
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
