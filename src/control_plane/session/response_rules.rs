//! An independent reading of a stream: what the protocol document says of the responses to these requests. It shares no code
//! with the sessions that it judges, and knows nothing of their store.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use super::pb::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
            ResourceError,
        },
    },
    google::protobuf::Any,
};

/// The requests and responses of one stream so far.
#[derive(Debug, Default)]
pub(crate) struct ResponseRules {
    /// The features of the stream's node; `None` before the first request.
    features: Option<Features>,
    /// The state of each type, by URL.
    types: BTreeMap<String, OfType>,
    /// All nonces of the stream: each is for one response.
    nonces: BTreeSet<String>,
    /// What is not checked.
    leeway: Leeway,
}

/// What is not checked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Leeway {
    /// Responses may be older than the last requests, as on a connection.
    pub(crate) in_flight: bool,
    /// The server is one of those that deviate: only the form of responses is checked.
    pub(crate) form_only: bool,
}

/// The features of a node that change the form of responses.
#[derive(Debug, Clone, Copy)]
struct Features {
    /// Whether resources may be wrapped in the state-of-the-world variant.
    wrapper: bool,
    /// Whether resources may have times to live.
    ttl: bool,
}

/// The subscription and the responses of a type.
#[derive(Debug, Default)]
struct OfType {
    /// Whether the wildcard is subscribed to.
    wildcard: bool,
    /// The subscribed names.
    names: BTreeSet<String>,
    /// All names that were subscribed to at some time, or held from earlier streams.
    ever: BTreeSet<String>,
    /// Whether the wildcard was subscribed to at some time.
    ever_wildcard: bool,
    /// Whether a name was subscribed to at some time, after which an empty list is no wildcard.
    ever_named: bool,
    /// The nonce of the last response.
    nonce: String,
    /// Whether the client has not answered the last response.
    is_unanswered: bool,
    /// The version of the last response with resources.
    version: String,
    /// The versions and bodies by name.
    sent: BTreeMap<String, (String, Vec<u8>)>,
}

impl ResponseRules {
    /// The rules at the begin of a stream.
    pub(crate) fn new(leeway: Leeway) -> Self {
        Self { leeway, ..Self::default() }
    }

    /// Records a response that the session did not write, whose ACK or NACK is one nevertheless.
    pub(crate) fn note_sent(&mut self, type_url: &str, nonce: &str) {
        let of_type = self.types.entry(type_url.to_owned()).or_default();
        (of_type.nonce, of_type.is_unanswered) = (nonce.to_owned(), true);
    }

    /// Notes what a request of the state-of-the-world variant subscribes to. Outdated requests change nothing.
    pub(crate) fn on_sotw_request(&mut self, request: &DiscoveryRequest) {
        self.see_node(request.node.as_ref());
        let is_first = !self.types.contains_key(&request.type_url);
        let of_type = self.types.entry(request.type_url.clone()).or_default();
        if is_first {
            // A server may take it for known, and confirm its resources.
            of_type.version.clone_from(&request.version_info);
        }
        if request.response_nonce != of_type.nonce {
            return;
        }
        of_type.is_unanswered = false;
        let names: BTreeSet<_> = request.resource_names.iter().map(|name| sorted(name)).collect();
        of_type.ever_named |= !names.is_empty();
        of_type.wildcard = names.contains("*") || !of_type.ever_named;
        of_type.names = names;
        of_type.remember();
    }

    /// Notes what a request of the incremental variant subscribes to. Its names count even if its nonce is outdated.
    pub(crate) fn on_delta_request(&mut self, request: &DeltaDiscoveryRequest) {
        self.see_node(request.node.as_ref());
        let is_first = !self.types.contains_key(&request.type_url);
        let of_type = self.types.entry(request.type_url.clone()).or_default();
        if request.response_nonce == of_type.nonce {
            of_type.is_unanswered = false;
        }
        let (added, removed) = (&request.resource_names_subscribe, &request.resource_names_unsubscribe);
        if is_first {
            of_type.wildcard = added.is_empty() && removed.is_empty();
            of_type.ever.extend(request.initial_resource_versions.keys().map(|name| sorted(name)));
        }
        of_type.names.extend(added.iter().map(|name| sorted(name)));
        of_type.wildcard |= added.iter().any(|name| name == "*");
        of_type.remember();
        for name in removed {
            of_type.names.remove(&sorted(name));
        }
        of_type.wildcard &= !removed.iter().any(|name| name == "*");
    }

    /// # Errors
    /// The rule that the response breaks.
    pub(crate) fn on_sotw_response(&mut self, response: &DiscoveryResponse) -> Result<(), String> {
        let features = self.begin(&response.type_url, &response.nonce)?;
        let leeway = self.leeway;
        let of_type =
            self.types.get_mut(&response.type_url).ok_or("a response of a type without a request")?;
        let mut names = BTreeSet::new();
        let mut heartbeats = 0;
        for any in &response.resources {
            let is_wrapped = any.type_url.ends_with("/envoy.service.discovery.v3.Resource");
            ensure(!is_wrapped || features.wrapper, || {
                "a wrapper for a client that does not announce it".into()
            })?;
            ensure(is_wrapped || any.type_url == response.type_url, || {
                format!("a resource of type {}", any.type_url)
            })?;
            let resource = match is_wrapped {
                true => Resource::decode(&*any.value).map_err(|e| format!("not a Resource: {e}"))?,
                false => bare(any),
            };
            ensure(!is_wrapped || !resource.name.is_empty(), || "a wrapper without a name".into())?;
            let is_unset_wildcard = leeway.form_only && resource.name == "*";
            heartbeats += usize::from(resource.resource.is_none() && !is_unset_wildcard);
            of_type.check_resource(&resource, &response.type_url, features, leeway)?;
            if resource.name.is_empty() {
                // The content of a test that is no message.
                continue;
            }
            ensure(names.insert(sorted(&resource.name)), || format!("{} twice", resource.name))?;
            of_type.check_covered(&resource.name, &[], leeway)?;
            of_type.check_version(&resource, &response.version_info)?;
        }
        check_errors(&response.resource_errors, &names)?;
        ensure(!response.version_info.is_empty(), || "a response without a version".into())?;
        match heartbeats {
            0 => of_type.version.clone_from(&response.version_info),
            _ if heartbeats < response.resources.len() => return Err("heartbeats beside resources".into()),
            _ => ensure(response.version_info == of_type.version, || {
                "heartbeats of a version that was not sent".into()
            })?,
        }
        of_type.sent_nonce(&response.nonce, leeway)
    }

    /// # Errors
    /// The rule that the response breaks.
    pub(crate) fn on_delta_response(&mut self, response: &DeltaDiscoveryResponse) -> Result<(), String> {
        let features = self.begin(&response.type_url, &response.nonce)?;
        let leeway = self.leeway;
        let of_type =
            self.types.get_mut(&response.type_url).ok_or("a response of a type without a request")?;
        let mut names = BTreeSet::new();
        for resource in &response.resources {
            let name = &resource.name;
            ensure(!name.is_empty(), || "a resource without a name".into())?;
            ensure(names.insert(sorted(name)), || format!("{name} twice"))?;
            of_type.check_resource(resource, &response.type_url, features, leeway)?;
            of_type.check_covered(name, &resource.aliases, leeway)?;
            ensure(leeway.form_only || !resource.version.is_empty() || resource.resource.is_none(), || {
                format!("{name} without a version")
            })?;
            if !leeway.form_only {
                of_type.check_version(resource, &resource.version)?;
            }
        }
        for name in &response.removed_resources {
            ensure(names.insert(sorted(name)), || format!("{name} twice, and removed"))?;
            let was_sent = of_type.sent.contains_key(&sorted(name));
            let is_known = of_type.ever_wildcard || was_sent || of_type.ever.contains(&sorted(name));
            ensure(leeway.form_only || is_known || of_type.has_glob(name, true), || {
                format!("{name} is removed, and was never requested")
            })?;
            of_type.sent.remove(&sorted(name));
        }
        check_errors(&response.resource_errors, &names)?;
        of_type.sent_nonce(&response.nonce, leeway)
    }

    /// Notes the features of the node, which the first request of a stream has.
    fn see_node(&mut self, node: Option<&Node>) {
        self.features.get_or_insert_with(|| {
            let has = |name: &str| {
                node.is_some_and(|node| node.client_features.iter().any(|feature| feature == name))
            };
            let wrapper = has("xds.config.resource-in-sotw") || has("xds.config.supports-resource-in-sotw");
            Features { wrapper, ttl: has("xds.config.supports-resource-ttl") }
        });
    }

    /// Checks what responses of both variants have in common, and returns the features.
    fn begin(&mut self, type_url: &str, nonce: &str) -> Result<Features, String> {
        ensure(!type_url.is_empty(), || "a response without a type".into())?;
        ensure(!nonce.is_empty(), || "a response without a nonce".into())?;
        ensure(self.nonces.insert(nonce.to_owned()) || self.leeway.form_only, || {
            format!("the nonce {nonce} twice")
        })?;
        self.features.ok_or_else(|| "a response before a request".into())
    }
}

impl OfType {
    /// Notes the subscription for responses that are in flight when it ends.
    fn remember(&mut self) {
        self.ever.extend(self.names.iter().cloned());
        self.ever_wildcard |= self.wildcard;
    }

    /// Checks the form of a resource, by the features of the client.
    fn check_resource(
        &self,
        resource: &Resource,
        type_url: &str,
        features: Features,
        leeway: Leeway,
    ) -> Result<(), String> {
        let name = &resource.name;
        ensure(resource.ttl.is_none() || features.ttl, || {
            format!("{name} has a ttl, which the client does not announce")
        })?;
        match &resource.resource {
            Some(body) => ensure(
                body.type_url == type_url || body.type_url.ends_with("/xds.core.v3.ResourceLocator"),
                || format!("{name} is of type {}", body.type_url),
            ),
            // Some servers answer a wildcard without resources by its name.
            None if leeway.form_only && name == "*" => Ok(()),
            None => ensure(resource.ttl.is_some() || !resource.aliases.is_empty(), || {
                format!("{name} has neither a body nor a ttl")
            }),
        }
    }

    /// Checks that a resource was asked for: by its name, an alias, a glob or the wildcard.
    fn check_covered(&self, name: &str, aliases: &[String], leeway: Leeway) -> Result<(), String> {
        let (wildcard, names) = match leeway.in_flight {
            true => (self.ever_wildcard, &self.ever),
            false => (self.wildcard, &self.names),
        };
        let is_named =
            names.contains(&sorted(name)) || aliases.iter().any(|alias| names.contains(&sorted(alias)));
        let is_covered = wildcard || is_named || self.has_glob(name, leeway.in_flight);
        ensure(leeway.form_only || is_covered, || format!("{name} was not requested"))
    }

    /// A resource that changes has another version.
    fn check_version(&mut self, resource: &Resource, version: &str) -> Result<(), String> {
        let Some(body) = &resource.resource else { return Ok(()) };
        let now = (version.to_owned(), body.value.to_vec());
        let before = self.sent.insert(sorted(&resource.name), now.clone());
        let is_new = before.is_none_or(|before| before.0 != now.0 || before.1 == now.1);
        ensure(is_new, || format!("{} has changed, and its version {version} has not", resource.name))
    }

    /// Whether the glob collection that contains the name is subscribed to, now or ever.
    fn has_glob(&self, name: &str, ever: bool) -> bool {
        let names = if ever { &self.ever } else { &self.names };
        let name = sorted(name);
        let (path, parameters) =
            name.split_once('?').map_or((name.as_str(), None), |(path, rest)| (path, Some(rest)));
        let Some((folder, _)) = path.rsplit_once('/').filter(|_| path.starts_with("xdstp:")) else {
            return false;
        };
        let parameters = parameters.map(|parameters| format!("?{parameters}")).unwrap_or_default();
        names.contains(&format!("{folder}/*{parameters}"))
    }

    /// Notes a response. The next one must wait for its answer.
    fn sent_nonce(&mut self, nonce: &str, leeway: Leeway) -> Result<(), String> {
        let was_unanswered = std::mem::replace(&mut self.is_unanswered, true);
        nonce.clone_into(&mut self.nonce);
        ensure(!was_unanswered || leeway.form_only, || {
            "a second response before the answer to the first".into()
        })
    }
}

/// Checks errors in place of resources: each has a code, and its resource is not there, too.
fn check_errors(errors: &[ResourceError], names: &BTreeSet<String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for error in errors {
        let name =
            error.resource_name.as_ref().map(|name| sorted(&name.name)).ok_or("an error without a name")?;
        let is_error = error.error_detail.as_ref().is_some_and(|status| status.code != 0);
        ensure(is_error, || format!("an error of {name} without a code"))?;
        ensure(!names.contains(&name), || format!("{name} beside an error of it"))?;
        ensure(seen.insert(name.clone()), || format!("two errors of {name}"))?;
    }
    Ok(())
}

/// A resource without a wrapper, whose name is its first field if that can be read.
fn bare(any: &Any) -> Resource {
    let name = match *any.value {
        [10, length, ref rest @ ..] if length < 128 => rest.get(..usize::from(length)),
        _ => None,
    };
    let name = name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default().to_owned();
    Resource { name, resource: Some(any.clone()), ..Resource::default() }
}

/// A name with its context parameters in order.
fn sorted(name: &str) -> String {
    match name.split_once('?').filter(|_| name.starts_with("xdstp:")) {
        None => name.to_owned(),
        Some((path, parameters)) => {
            let mut parameters: Vec<_> = parameters.split('&').collect();
            parameters.sort_unstable();
            format!("{path}?{}", parameters.join("&"))
        }
    }
}

/// Returns the problem unless the condition holds.
fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}
