//! The context parameters that a client adds to names in requests.

use std::sync::Arc;

use super::{ContextParams, ResourceName};

/// The context parameters that a client adds to names in requests (rule X7).
///
/// The parameters of the node are added to collections alone, as in Envoy: with them, the name of a single resource
/// would differ for each client, and resources could not be shared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Additions {
    /// Parameters of the node: the parts of it that the bootstrap lists, with their keys `xds.node.*`.
    node: ContextParams,
    /// The features that the client supports, without the prefix of their keys.
    features: Vec<String>,
}

impl Additions {
    /// Parameters of the node, and the features of the client.
    pub(crate) fn new(node: ContextParams, features: Vec<String>) -> Self {
        Self { node, features }
    }

    /// The name in requests for a name that an application uses. An opaque name is unchanged.
    ///
    /// Called once for each watch. The result identifies the resource in the cache, so that names with and without these
    /// parameters cannot be mixed up.
    pub(crate) fn add_to(&self, name: &ResourceName) -> ResourceName {
        let Some(written) = name.context_params().filter(|_| !self.is_empty()) else { return name.clone() };
        let nothing = ContextParams::default();
        let node = if name.is_collection() { &self.node } else { &nothing };
        let features: Vec<_> = self.features.iter().map(String::as_str).collect();
        // Attributes of the resource are in the name already, and have no other source.
        name.with_context_params(written.composed(node, &features, &[]))
    }

    /// The name that an application uses for a resource: without the added parameters.
    ///
    /// The inverse of [`add_to`](Self::add_to), for the names of members: an application would not find its names in a
    /// collection if they had the id of the node in them.
    pub(crate) fn take_from(&self, canonical: &Arc<str>) -> Arc<str> {
        // It is called for each member of a collection, and most names lack such parameters: these are not parsed.
        if self.is_empty() || !canonical.contains(PREFIX) {
            return canonical.clone();
        }
        let Ok(name) = ResourceName::parse_received(canonical) else { return canonical.clone() };
        let Some(params) = name.context_params() else { return canonical.clone() };
        // Compared by value: a parameter of that key and another value was written by somebody else, and is a part of the name
        // (X9).
        let kept = params.iter().filter(|(key, value)| !self.has_added(key, value)).collect();
        name.with_context_params(kept).canonical()
    }

    /// Whether a parameter is one of these. The value of a feature is always `true`, so that its key decides.
    fn has_added(&self, key: &str, value: &str) -> bool {
        self.node.get(key) == Some(value)
            || key.strip_prefix(FEATURE).is_some_and(|key| self.features.iter().any(|feature| feature == key))
    }

    /// Whether nothing is added.
    fn is_empty(&self) -> bool {
        self.node.is_empty() && self.features.is_empty()
    }
}

/// The common prefix of all added keys.
const PREFIX: &str = "xds.";

/// The prefix of the key of a feature.
const FEATURE: &str = "xds.client_feature.";

#[cfg(test)]
mod tests {
    use super::*;

    fn additions(node: &[(&str, &str)], features: &[&str]) -> Additions {
        Additions::new(node.iter().copied().collect(), features.iter().map(|&f| f.into()).collect())
    }

    fn added(additions: &Additions, name: &str) -> String {
        let name = ResourceName::parse(name).unwrap();
        let whole = additions.add_to(&name);
        assert_eq!(whole.directives(), name.directives());
        assert_eq!(additions.take_from(&whole.canonical()), name.canonical());
        whole.as_str().to_owned()
    }

    #[test]
    fn x7_the_node_goes_to_collections_and_features_to_all_names() {
        let both = additions(&[("xds.node.id", "n"), ("xds.node.cluster", "c")], &["f", "g"]);
        let node = "xds.node.cluster=c&xds.node.id=n";
        let features = "xds.client_feature.f=true&xds.client_feature.g=true";
        for (name, expected) in [
            ("opaque", "opaque".to_owned()),
            ("*", "*".to_owned()),
            ("xdstp://a/T/x", format!("xdstp://a/T/x?{features}")),
            ("xdstp://a/T/x?z=1&b=2", format!("xdstp://a/T/x?b=2&{features}&z=1")),
            ("xdstp://a/T/x#alt=xdstp://b/T/x", format!("xdstp://a/T/x?{features}")),
            ("xdstp://a/T/*", format!("xdstp://a/T/*?{features}&{node}")),
            ("xdstp://a/T/s/*?z=1&b=2", format!("xdstp://a/T/s/*?b=2&{features}&{node}&z=1")),
            ("xdstp://a/p.TCollection/x#entry=e", format!("xdstp://a/p.TCollection/x?{features}&{node}")),
        ] {
            assert_eq!(added(&both, name), expected, "{name}");
        }
        assert_eq!(added(&Additions::default(), "xdstp://a/T/*?b=2&a=1"), "xdstp://a/T/*?a=1&b=2");
    }

    #[test]
    fn x7_attributes_of_a_resource_are_part_of_its_name() {
        let name = ResourceName::parse("xdstp://a/T/x?b=1&z=2#alt=xdstp://b/T/x").unwrap();
        let name = name.with_resource_attribute("vip", "10.0.0.1").with_resource_attribute("vip", "10.0.0.2");
        assert_eq!(name.to_string(), "xdstp://a/T/x?b=1&xds.resource.vip=10.0.0.2&z=2#alt=xdstp://b/T/x");
        let whole = additions(&[], &["f"]).add_to(&name);
        assert_eq!(
            whole.as_str(),
            "xdstp://a/T/x?b=1&xds.client_feature.f=true&xds.resource.vip=10.0.0.2&z=2"
        );
        assert_eq!(additions(&[], &["f"]).take_from(&whole.canonical()), name.canonical());
        let opaque = ResourceName::parse("x").unwrap();
        assert_eq!(opaque.with_resource_attribute("vip", "10.0.0.1"), opaque);
    }

    #[test]
    fn x7_what_the_application_and_others_have_written_stays_in_the_name() {
        let both = additions(&[("xds.node.id", "n")], &["f"]);
        for name in ["x", "xdstp://a/T/x?xds.node.id=other", "xdstp://a/T/x?xds.client_feature.g=true&a=1"] {
            let name = ResourceName::parse_received(name).unwrap();
            assert_eq!(both.take_from(&name.canonical()), name.canonical());
        }
    }
}
