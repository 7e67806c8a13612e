//! The types of resources that are checked, and what a client does with a resource of each.

use bytes::Bytes;
use xdskit::{
    Resource,
    resource::{
        Cluster, ClusterLoadAssignment, Context, ExtensionConfig, Inspected, Listener, Remarks,
        RouteConfiguration, Runtime, ScopedRouteConfiguration, Secret, VirtualHost,
    },
};

/// A type of resource.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The type URL.
    type_url: &'static str,
    /// The name in the output.
    pub(crate) label: &'static str,
    /// The name of a resource.
    name: fn(&[u8]) -> Option<String>,
    /// What a client does with a resource.
    judge: fn(&Bytes, &Context<'_>) -> Verdict,
}

/// What a client does with a resource.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// The resource is accepted, and this is not used of it.
    Accepted(Remarks),
    /// The resource is rejected.
    Rejected {
        /// The path of the field.
        path: String,
        /// The reason.
        reason: String,
        /// Whether it is no message at all, which clients that only watch reject as well.
        is_malformed: bool,
    },
}

impl Kind {
    /// The type of `T`.
    const fn of_resource<T: Resource>(label: &'static str) -> Self {
        Self {
            type_url: T::TYPE_URL,
            label,
            name: |bytes| T::name(bytes).ok().map(|name| name.into_owned()),
            judge: judge::<T>,
        }
    }

    /// The type of a type URL; `None` if resources of it are not checked.
    pub(crate) fn of(type_url: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.type_url == type_url)
    }

    /// The type URL.
    pub(crate) fn type_url(&self) -> &'static str {
        self.type_url
    }

    /// The name of a resource; empty if it has none.
    pub(crate) fn name(&self, bytes: &[u8]) -> String {
        (self.name)(bytes).unwrap_or_default()
    }

    /// What a client does with a resource.
    pub(crate) fn judge(&self, bytes: &Bytes, cx: &Context<'_>) -> Verdict {
        (self.judge)(bytes, cx)
    }
}

/// What a client does with a resource of a type. A parser that panics rejects it.
fn judge<T: Resource>(bytes: &Bytes, cx: &Context<'_>) -> Verdict {
    let rejected = |invalid: &xdskit::resource::Invalid, is_malformed| Verdict::Rejected {
        path: invalid.path().to_owned(),
        reason: invalid.reason().to_owned(),
        is_malformed,
    };
    match Inspected::<T>::parse(bytes, cx) {
        Err(invalid) => rejected(&invalid, true),
        Ok(inspected) => match inspected.typed() {
            Err(invalid) => rejected(invalid, false),
            Ok(typed) => Verdict::Accepted(typed.remarks().cloned().unwrap_or_default()),
        },
    }
}

/// The name of listeners.
pub(crate) const LISTENER: &str = "listener";
/// The name of route configurations.
pub(crate) const ROUTE: &str = "route";
/// The name of clusters.
pub(crate) const CLUSTER: &str = "cluster";
/// The name of cluster load assignments.
pub(crate) const ENDPOINTS: &str = "endpoints";
/// The name of secrets.
pub(crate) const SECRET: &str = "secret";
/// The name of configurations of extensions.
pub(crate) const EXTENSION: &str = "extension-config";

/// All types.
static KINDS: [Kind; 9] = [
    Kind::of_resource::<Listener>(LISTENER),
    Kind::of_resource::<RouteConfiguration>(ROUTE),
    Kind::of_resource::<Cluster>(CLUSTER),
    Kind::of_resource::<ClusterLoadAssignment>(ENDPOINTS),
    Kind::of_resource::<ScopedRouteConfiguration>("scoped-route"),
    Kind::of_resource::<VirtualHost>("virtual-host"),
    Kind::of_resource::<Secret>(SECRET),
    Kind::of_resource::<Runtime>("runtime"),
    Kind::of_resource::<ExtensionConfig>(EXTENSION),
];
