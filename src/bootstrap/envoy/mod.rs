//! Envoy's bootstrap format: the parts that configure the sources of resources. Each function reads one message,
//! reports every error in it, and returns the usable part.
//!
//! Settings that would change what the client trusts, sends or receives, such as unsupported credentials, are errors; settings
//! without a meaning for it, such as static listeners or an admin port, and wishes about connecting, such as retries and timeouts,
//! are warnings. Nothing is ignored
//! silently.

mod cluster;
mod google;
mod message;
mod secret_file;
mod source;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::{BTreeMap, btree_map::Entry};

use serde_json::Value;

use self::{
    cluster::Clusters,
    message::Message,
    source::{Found, SourceContext, authorities, file},
};
use super::reader::{Problems, Reader};
use crate::{
    config::{
        AuthorityParts, Bootstrap, ConfigSource, ContextParamKeys, Locality, Node, Parts, PathSource,
        Sources, ValidationError,
    },
    name::{Directives, ResourceName, encoding},
    resource::{Cluster, Listener, Resource},
};

/// Returns whether a document is in this format and not gRPC's.
pub(super) fn is_envoys(document: &Value) -> bool {
    let has = |names: &[&str]| names.iter().any(|name| document.get(name).is_some());
    // gRPC ignores unknown fields (BS1), so that fields of its own decide if a document has both.
    has(&MARKS) && !has(&["xds_servers", "authorities", "type_sources"])
}

/// Reads the document.
pub(super) fn read(document: &Value) -> Result<Bootstrap, Vec<ValidationError>> {
    let problems = Problems::default();
    let root = Message::new(&Reader::new(document, &problems));
    let parts = root.map(|root| parts(&root));
    let (problems, warnings) = problems.into_parts();
    match parts {
        Some(parts) if problems.is_empty() => {
            // Static clusters are read once more, each with problems of its own: most of them are of the data plane.
            let named_servers = cluster::named_servers(document);
            Ok(Bootstrap::assemble(Parts { warnings, named_servers, ..parts }))
        }
        Some(_) | None => Err(problems),
    }
}

/// Reads all of the message; what is invalid is reported, and left out of the result.
fn parts(root: &Message<'_>) -> Parts {
    let node = root.message("node").map(|message| node(&message)).unwrap_or_default();
    let context = context(root, &node);
    let resources = root.message("static_resources");
    let dynamic = root.message("dynamic_resources");
    let mut cx = SourceContext { clusters: Clusters::new(resources.as_ref()), ads: None };
    if let Some(resources) = &resources {
        resources.end();
    }
    // Before all other sources, which may refer to it by `ads`.
    let ads = dynamic.as_ref().and_then(|dynamic| dynamic.message("ads_config"));
    cx.ads = ads.map(|ads| cx.api_config_source(&ads, None, true));
    let mut table = Table::read(root, &cx);
    if let Some(dynamic) = &dynamic {
        table.add_types(dynamic, &cx);
        // Only now have all readers of the message marked their fields.
        dynamic.end();
    }
    if !root.has("dynamic_resources") && !root.has("config_sources") && !root.has("default_config_source") {
        root.fail("dynamic_resources", "missing: no source of resources");
    } else if cx.ads.is_none() && table.is_empty() {
        root.fail("dynamic_resources", "names no source of any resource");
    }
    root.end();
    Parts {
        sources: Sources::new(cx.ads.unwrap_or_default(), table.by_type),
        authorities: table.authorities.into_iter().map(|(name, sources)| (name, sources.into())).collect(),
        default_authority: table.default.map(|all| OfAuthority { all, ..OfAuthority::default() }.into()),
        node,
        context,
        collections: table.collections,
        ..Parts::default()
    }
}

/// The configured sources, beside those of `ads_config`.
#[derive(Debug, Default)]
struct Table {
    /// The sources of types that have their own: listeners and clusters, by type URL.
    by_type: BTreeMap<String, Vec<ConfigSource>>,
    /// The sources of `config_sources` and of sources of a type, by the authority of names.
    authorities: BTreeMap<String, OfAuthority>,
    /// The sources for authorities that no other source names.
    default: Option<Vec<ConfigSource>>,
    /// The collections in place of the wildcard, by type URL.
    collections: BTreeMap<String, ResourceName>,
    /// Whether any source was configured, even an invalid one.
    is_configured: bool,
}

/// The sources for the names of an authority.
#[derive(Debug, Clone, Default)]
struct OfAuthority {
    /// The sources of all types without sources of their own.
    all: Vec<ConfigSource>,
    /// The sources of a type, by type URL.
    by_type: BTreeMap<String, Vec<ConfigSource>>,
}

impl Table {
    /// Reads `config_sources`, of which the first that names an authority is used for it, and `default_config_source`
    /// (X11).
    fn read<'a>(root: &Message<'a>, cx: &SourceContext<'a>) -> Self {
        let mut table = Self::default();
        for source in root.messages("config_sources") {
            table.is_configured = true;
            let names = authorities(&source);
            if names.is_empty() && !source.has("authorities") {
                source.fail("authorities", "missing: it is the source of no authority");
            }
            let sources = cx.config_source(&source).map(Found::into_sources).unwrap_or_default();
            for (place, name) in names {
                match table.authorities.entry(name) {
                    Entry::Vacant(vacant) => {
                        vacant.insert(OfAuthority { all: sources.clone(), ..OfAuthority::default() });
                    }
                    Entry::Occupied(_) => {
                        place.warn("not used: a source before has this authority");
                    }
                }
            }
        }
        if let Some(source) = root.message("default_config_source") {
            table.is_configured = true;
            // It applies to all other authorities, so its own list of them has no effect.
            drop(authorities(&source));
            table.default = cx.config_source(&source).map(Found::into_sources);
        }
        table
    }

    /// Reads the sources of listeners and clusters, and then the collections that are requested from them.
    fn add_types<'a>(&mut self, dynamic: &Message<'a>, cx: &SourceContext<'a>) {
        for kind in [LISTENERS, CLUSTERS] {
            if let Some(source) = dynamic.message(kind.config) {
                self.add_type(&kind, &source, cx);
            }
        }
        for kind in [LISTENERS, CLUSTERS] {
            if let Some(locator) = locator(dynamic, kind.locator) {
                self.is_configured = true;
                let (place, text) = &locator;
                self.add_collection(&kind, place, text, dynamic);
            }
        }
    }

    /// Adds a source of a type. For this type it takes precedence in the authorities that it names, too (X11).
    fn add_type<'a>(&mut self, kind: &Kind, source: &Message<'a>, cx: &SourceContext<'a>) {
        self.is_configured = true;
        let names = authorities(source);
        let Some(found) = cx.config_source(source) else { return };
        for (_, name) in names {
            // For other types an authority without an entry has the sources of `default_config_source`.
            let default =
                || OfAuthority { all: self.default.clone().unwrap_or_default(), ..OfAuthority::default() };
            let authority = self.authorities.entry(name).or_insert_with(default);
            let sources = match &found {
                Found::Ads(sources) | Found::Own(sources) => sources,
            };
            // Lists of the type are resources of a type of their own, and come from the same servers as their members.
            for type_url in [kind.type_url.to_owned(), format!("{}Collection", kind.type_url)] {
                authority.by_type.insert(type_url, sources.clone());
            }
        }
        // `ads` needs no entry: it is the source of all types without their own.
        if let Found::Own(sources) = found {
            self.by_type.insert(kind.type_url.to_owned(), sources);
        }
    }

    /// Reads the collection that replaces the wildcard of a type.
    fn add_collection(&mut self, kind: &Kind, place: &Reader<'_>, text: &str, dynamic: &Message<'_>) {
        if let Some(rest) = text.strip_prefix("file://") {
            match file_path(rest) {
                Ok(path) => {
                    if self.by_type.contains_key(kind.type_url) {
                        let reason = format!("not used: {} names a file", kind.locator);
                        dynamic.warn(kind.config, &reason);
                    }
                    self.by_type.insert(kind.type_url.to_owned(), vec![file(PathSource::new(path))]);
                }
                Err(reason) => place.fail(reason),
            }
            return;
        }
        let name = match ResourceName::parse(text) {
            Ok(name) => name,
            Err(error) => return place.fail(error.to_string()),
        };
        match self.check_collection(kind.type_url, &name) {
            Ok(()) => drop(self.collections.insert(kind.type_url.to_owned(), name)),
            Err(reason) => place.fail(reason),
        }
    }

    /// Checks the locator of a collection, and its alternatives.
    fn check_collection(&self, type_url: &str, name: &ResourceName) -> Result<(), String> {
        let short = type_url.trim_start_matches("type.googleapis.com/");
        let expected = if name.is_list() { format!("{short}Collection") } else { short.to_owned() };
        if !name.is_collection() || name.directives().is_some_and(|directives| directives.entry().is_some()) {
            return Err("must be an xdstp:// URL of a collection, not of an entry, or a file:// URL".into());
        }
        if name.resource_type() != Some(&expected) {
            return Err(format!("must be of type {short} or {short}Collection"));
        }
        let authority = name.authority().unwrap_or_default();
        if self.default.is_none() && !self.authorities.contains_key(authority) {
            return Err(format!("authority {authority:?} has no source"));
        }
        match name.directives().and_then(Directives::alt) {
            Some(alt) => self.check_collection(type_url, alt).map_err(|reason| format!("alt: {reason}")),
            None => Ok(()),
        }
    }

    /// Whether no source was configured. Invalid ones count, which have errors of their own.
    fn is_empty(&self) -> bool {
        !self.is_configured
    }
}

impl From<OfAuthority> for AuthorityParts {
    fn from(authority: OfAuthority) -> Self {
        Self {
            template: None,
            sources: Sources::new(authority.all, authority.by_type),
            fallback_on_reachability_only: false,
        }
    }
}

/// A type with sources in the bootstrap.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// The field of the source in `dynamic_resources`.
    config: &'static str,
    /// The field of the collection in `dynamic_resources`.
    locator: &'static str,
    /// The type of the resources.
    type_url: &'static str,
}

/// Listeners (LDS).
const LISTENERS: Kind =
    Kind { config: "lds_config", locator: "lds_resources_locator", type_url: Listener::TYPE_URL };
/// Clusters (CDS).
const CLUSTERS: Kind =
    Kind { config: "cds_config", locator: "cds_resources_locator", type_url: Cluster::TYPE_URL };

/// Reads a URL, or an object with the URL as its `name`, the form of the proposal.
fn locator<'a>(dynamic: &Message<'a>, name: &str) -> Option<(Reader<'a>, &'a str)> {
    let field = dynamic.get(name)?;
    let field = if field.value().is_object() {
        let locator = dynamic.of(&field)?;
        let name = locator.required("name");
        locator.end();
        name?
    } else {
        field
    };
    let text = field.text().filter(|text| !text.is_empty())?;
    Some((field, text))
}

/// Reads the path of a `file://` URL without its scheme.
fn file_path(rest: &str) -> Result<String, String> {
    if !rest.starts_with('/') || rest.len() == 1 {
        return Err("the form is `file:///path`, with three slashes".to_owned());
    }
    if rest.contains(['#', '?']) {
        return Err("a file has no directives and no parameters".to_owned());
    }
    let path = encoding::decode(rest).map_err(|error| error.reason.to_owned())?;
    Ok(path.into_owned())
}

/// Reads the node. What the library sends in its own name is a warning.
fn node(message: &Message<'_>) -> Node {
    let mut node = Node::new(message.text("id").unwrap_or_default());
    node.cluster = message.text("cluster").unwrap_or_default().to_owned();
    node.locality = message.message("locality").map(|locality| {
        let part = |name| locality.text(name).unwrap_or_default();
        let parts = Locality::new(part("region"), part("zone"), part("sub_zone"));
        locality.end();
        parts
    });
    let metadata = message.get("metadata").and_then(|metadata| metadata.entries()).unwrap_or_default();
    node.metadata =
        metadata.into_iter().map(|(key, value)| (key.to_owned(), value.value().clone())).collect();
    for own in ["user_agent_name", "user_agent_version", "user_agent_build_version", "client_features"] {
        message.warn(own, "not used: it is the library's own");
    }
    message.end();
    node
}

/// Reads the properties of the node for the names of collections. `metadata` means all of it.
fn context(root: &Message<'_>, node: &Node) -> ContextParamKeys {
    let mut keys = ContextParamKeys::default();
    for (place, key) in root.texts("node_context_params") {
        match key {
            "metadata" => {
                // The parameter of an empty key would be `metadata.`, which `Node::is_context_param` does not accept.
                let all = node.metadata.keys().filter(|key| !key.is_empty());
                keys.node.extend(all.map(|key| format!("metadata.{key}")));
            }
            _ if Node::is_context_param(key) => keys.node.push(key.to_owned()),
            _ => place.fail(format!("{key:?} is no part of a node, such as \"id\" or \"locality.zone\"")),
        }
    }
    keys
}

/// Top-level fields that only this format has.
const MARKS: [&str; 8] = [
    "dynamic_resources",
    "dynamicResources",
    "static_resources",
    "staticResources",
    "config_sources",
    "configSources",
    "default_config_source",
    "defaultConfigSource",
];
