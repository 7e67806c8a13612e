//! The labels of a record, made of texts that exist already, so that recording allocates nothing itself.

use std::sync::Arc;

use opentelemetry::{KeyValue, StringValue, Value};

use super::{BACKEND_SERVICE, LOCALITY, OptionalLabels, SERVICE_NAME, SERVICE_NAMESPACE};
use crate::balance::observer::{PickLabels, ServiceLabels};

/// Up to so many labels, without an allocation.
#[derive(Clone)]
pub(super) struct Labels {
    /// Room for all labels; the first ones are set.
    all: [KeyValue; MOST],
    /// The number of those.
    count: usize,
}

impl Labels {
    /// Creates labels that begin with `first`.
    pub(super) fn of(first: &[KeyValue]) -> Self {
        // The filler is never passed to an instrument: `all` ends at the count.
        let label = |place| first.get(place).cloned().unwrap_or_else(|| KeyValue::new("", false));
        Self { all: std::array::from_fn(label), count: first.len().min(MOST) }
    }

    /// Adds a label.
    pub(super) fn add(&mut self, name: &'static str, value: impl Into<StringValue>) {
        debug_assert!(self.count < MOST, "{name} is one label too many");
        // Beyond the room a label is left out: telemetry must not fail a call.
        if let Some(label) = self.all.get_mut(self.count) {
            *label = KeyValue::new(name, Value::String(value.into()));
            self.count += 1;
        }
    }

    /// A text, or the empty one.
    pub(super) fn add_text(&mut self, name: &'static str, text: Option<&Arc<str>>) {
        match text {
            Some(text) => self.add(name, text.clone()),
            None => self.add(name, ""),
        }
    }

    /// Adds the labels of a pick that are enabled.
    pub(super) fn add_pick(&mut self, pick: &PickLabels, optional: OptionalLabels) {
        if optional.locality {
            self.add_text(LOCALITY, pick.locality.as_ref());
        }
        if optional.backend_service {
            self.add_text(BACKEND_SERVICE, pick.backend_service.as_ref());
        }
    }

    /// Adds the labels of the cluster's service that are enabled.
    pub(super) fn add_service(&mut self, pick: &PickLabels, optional: OptionalLabels) {
        // As in gRPC, a cluster without them, and an attempt without a cluster, have labels of this value.
        let of = |label: fn(&ServiceLabels) -> &Arc<str>| {
            pick.service
                .as_deref()
                .map_or(StringValue::from("unknown"), |service| label(service).clone().into())
        };
        if optional.service_name {
            self.add(SERVICE_NAME, of(|service| &service.name));
        }
        if optional.service_namespace {
            self.add(SERVICE_NAMESPACE, of(|service| &service.namespace));
        }
    }

    /// The cluster of what happens beside calls (A91), if that label is enabled.
    pub(super) fn add_cluster(&mut self, cluster: &Arc<str>, optional: OptionalLabels) {
        if optional.backend_service {
            self.add_text(BACKEND_SERVICE, Some(cluster));
        }
    }

    /// The labels that were added.
    pub(super) fn all(&self) -> &[KeyValue] {
        &self.all[..self.count]
    }
}

/// The most labels that an instrument has.
/// Those of attempts: target, method, status, the custom label, locality, cluster, and its service with the namespace.
const MOST: usize = 8;
