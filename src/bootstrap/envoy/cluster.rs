//! Clusters as management servers.

use std::{
    cell::RefCell,
    collections::{BTreeMap, btree_map::Entry},
    net::IpAddr,
    time::Duration,
};

use serde_json::Value;

use super::{
    super::reader::{Problems, Reader},
    message::Message,
    tls,
};
use crate::config::{ChannelCredentials, KeepAlive, NamedServers, Server, ServerUri, check_connection};

/// The static clusters. Each is read when the first source names it: clusters of the data plane are not validated.
#[derive(Debug, Default)]
pub(super) struct Clusters<'a> {
    /// The clusters of the bootstrap.
    by_name: BTreeMap<&'a str, Message<'a>>,
    /// Clusters that were read, so that the problems of each are reported once.
    read: RefCell<BTreeMap<&'a str, Option<Vec<Upstream>>>>,
}

/// The address and the connection settings of a management server.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    /// Where to connect.
    pub(super) uri: ServerUri,
    /// How the connection is secured.
    pub(super) credentials: ChannelCredentials,
    /// How a dead connection is detected.
    pub(super) keepalive: Option<KeepAlive>,
}

/// The management servers that config sources of resources may name: the static clusters with supported settings. The
/// others, which are of the data plane, cause no errors or warnings.
pub(super) fn named_servers(document: &Value) -> NamedServers {
    let ignored = Problems::default();
    let root = Message::new(&Reader::new(document, &ignored));
    let resources = root.and_then(|root| root.message("static_resources"));
    let clusters = resources.map(|resources| resources.items("clusters")).unwrap_or_default();
    let named = clusters.iter().filter_map(|cluster| {
        // Problems of each cluster by itself: one that is not supported is left out, and does not spoil the others.
        let problems = Problems::default();
        let cluster = Message::new(&Reader::new(cluster.value(), &problems))?;
        let name = cluster.required_text("name")?;
        // The first one alone: a name stands for one server.
        let first = upstreams(&cluster)?.into_iter().next()?;
        problems.is_empty().then(|| (name.to_owned(), first.into_server(None).into()))
    });
    named.collect()
}

impl<'a> Clusters<'a> {
    /// The clusters among the static resources.
    pub(super) fn new(resources: Option<&Message<'a>>) -> Self {
        let mut clusters = Self::default();
        let Some(resources) = resources else { return clusters };
        for cluster in resources.messages("clusters") {
            let Some(name) = cluster.required_text("name") else { continue };
            match clusters.by_name.entry(name) {
                Entry::Vacant(place) => drop(place.insert(cluster)),
                Entry::Occupied(_) => cluster.fail("name", format!("{name:?} is there twice")),
            }
        }
        clusters
    }

    /// The addresses of the management server that a cluster defines, in order. The list is empty if the cluster is
    /// invalid, which is reported once, or missing, which is reported at the reference.
    pub(super) fn find(&self, name: &str, named_at: &Reader<'_>) -> Vec<Upstream> {
        let Some((name, cluster)) = self.by_name.get_key_value(name) else {
            named_at.fail(format!("there is no cluster {name:?} in static_resources"));
            return Vec::new();
        };
        let mut read = self.read.borrow_mut();
        read.entry(name).or_insert_with(|| upstreams(cluster)).clone().unwrap_or_default()
    }
}

/// Reads the servers of a cluster.
fn upstreams(cluster: &Message<'_>) -> Option<Vec<Upstream>> {
    cluster.refuse(&["eds_cluster_config"]);
    let discovery = [("STATIC", 0, ()), ("STRICT_DNS", 1, ()), ("LOGICAL_DNS", 2, ())];
    let known = !cluster.has("type") || cluster.choice("type", &discovery).is_some();
    if let Some(custom) = cluster.message("cluster_type") {
        let name = custom.required_text("name").unwrap_or_default();
        if !name.is_empty() && !CUSTOM_TYPES.contains(&name) {
            custom.fail("name", format!("{name:?} is not supported; known are {}", CUSTOM_TYPES.join(", ")));
        }
        custom.heed(&["typed_config"]);
        custom.end();
    }
    let uris = uris(cluster);
    let credentials = tls::credentials(cluster);
    let keepalive = keepalive(cluster);
    cluster.warn("connect_timeout", "not used: it is a setting of the client");
    cluster.end();
    let credentials = credentials.filter(|_| known)?;
    let upstream = |uri| Upstream { uri, credentials: credentials.clone(), keepalive };
    Some(uris.into_iter().map(upstream).collect())
}

/// The addresses of the endpoints, by priority. If all are IP addresses of one family, they form one server with
/// several addresses; otherwise each is a server, in fallback order.
fn uris(cluster: &Message<'_>) -> Vec<ServerUri> {
    let mut endpoints = Vec::new();
    // The form of version 2.
    for host in cluster.messages("hosts") {
        endpoints.extend(address(&host).map(|address| (0, address)));
    }
    let assignment = cluster.message("load_assignment");
    if let Some(assignment) = &assignment {
        assignment.heed(&["cluster_name"]);
        for locality in assignment.messages("endpoints") {
            let priority = locality.number("priority").unwrap_or(0);
            locality.heed(&["locality"]);
            for endpoint in locality.messages("lb_endpoints") {
                endpoints.extend(lb_endpoint(&endpoint).map(|address| (priority, address)));
            }
            locality.end();
        }
        assignment.end();
    }
    // Hosts of which none is usable were reported, each with its own error.
    let hosts = cluster.get("hosts");
    let has_no_hosts = hosts.as_ref().is_none_or(|hosts| hosts.value().as_array().is_some_and(Vec::is_empty));
    if endpoints.is_empty() && has_no_hosts {
        let path = match (&assignment, &hosts) {
            (Some(_), _) => "load_assignment",
            (None, Some(_)) => "hosts",
            (None, None) => "name",
        };
        cluster.fail(path, "has no endpoint, where a management server is expected");
    }
    // Stable: within a priority the order of the document is that of fallback.
    endpoints.sort_by_key(|(priority, _)| *priority);
    let endpoints: Vec<_> = endpoints.into_iter().map(|(_, address)| address).collect();
    if let Some(all) = family(&endpoints) {
        return vec![all];
    }
    endpoints.into_iter().map(|(_, uri)| uri).collect()
}

/// The address of a server, also as IP address and port if it is one.
type Address = (Option<(IpAddr, u32)>, ServerUri);

/// All endpoints as one target, if they are IP addresses of one family.
fn family(endpoints: &[Address]) -> Option<ServerUri> {
    let all: Vec<_> = endpoints.iter().map(|(address, _)| *address).collect::<Option<_>>()?;
    // The target schemes `ipv4:` and `ipv6:` have addresses of one family each, so that others are separate servers.
    let scheme = match all.as_slice() {
        [] | [_] => return None,
        all if all.iter().all(|(ip, _)| ip.is_ipv4()) => "ipv4",
        all if all.iter().all(|(ip, _)| ip.is_ipv6()) => "ipv6",
        _ => return None,
    };
    let list: Vec<_> = all.iter().map(|(ip, port)| host_and_port(&ip.to_string(), *port)).collect();
    format!("{scheme}:{}", list.join(",")).parse().ok()
}

/// Reads an endpoint.
fn lb_endpoint(endpoint: &Message<'_>) -> Option<Address> {
    endpoint.refuse(&["endpoint_name"]);
    let inner = endpoint.required("endpoint").and_then(|inner| endpoint.of(&inner))?;
    let found = inner.required("address").and_then(|address| inner.of(&address));
    inner.end();
    endpoint.end();
    address(&found?)
}

/// Reads the address of an endpoint.
fn address(address: &Message<'_>) -> Option<Address> {
    address.refuse(&["envoy_internal_address"]);
    if let Some(pipe) = address.message("pipe") {
        let path = pipe.required_text("path")?;
        pipe.end();
        if path.starts_with('@') {
            pipe.fail("path", "an abstract socket is not supported");
            return None;
        }
        let prefix = if path.starts_with('/') { "unix://" } else { "unix:" };
        return parse(&pipe, "path", &format!("{prefix}{path}")).map(|uri| (None, uri));
    }
    let socket = address.required("socket_address").and_then(|socket| address.of(&socket))?;
    address.end();
    socket.choice("protocol", &[("TCP", 0, ())]);
    socket.refuse(&["named_port", "resolver_name", "network_namespace_filepath"]);
    socket.heed(&["ipv4_compat"]);
    let host = socket.required_text("address");
    if !socket.has("port_value") && !socket.has("named_port") {
        socket.fail("port_value", "missing");
    }
    let port = socket.number("port_value");
    socket.end();
    let (host, port) = host.zip(port)?;
    if port == 0 || port > u32::from(u16::MAX) {
        socket.fail("port_value", "a port is a number from 1 to 65535");
        return None;
    }
    let ip = host.parse().ok().map(|ip: IpAddr| (ip, port));
    parse(&socket, "address", &host_and_port(host, port)).map(|uri| (ip, uri))
}

/// A host, in brackets if it is an IPv6 address, and a port.
fn host_and_port(host: &str, port: u32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Parses a URI that was built from a field.
pub(super) fn parse(message: &Message<'_>, field: &str, text: &str) -> Option<ServerUri> {
    text.parse().map_err(|error: crate::config::InvalidUri| message.fail(field, error.to_string())).ok()
}

/// `connection_keepalive`, at its place in version 3 or in version 2.
fn keepalive(cluster: &Message<'_>) -> Option<KeepAlive> {
    let mut found = cluster.message("http2_protocol_options").and_then(|options| http2(&options));
    if let Some(options) = cluster.get("typed_extension_protocol_options") {
        for (name, value) in options.entries().unwrap_or_default() {
            let Some(options) = cluster.of(&value) else { continue };
            match name {
                HTTP_OPTIONS => found = http(&options).or(found),
                _ => options.warn_whole("not used"),
            }
        }
    }
    found
}

/// Reads the HTTP options of a cluster.
fn http(options: &Message<'_>) -> Option<KeepAlive> {
    options.heed(&["@type"]);
    let mut found = None;
    if let Some(explicit) = options.message("explicit_http_config") {
        found = explicit.message("http2_protocol_options").and_then(|options| http2(&options));
        explicit.end();
    }
    options.end();
    found
}

/// Reads the HTTP/2 options of a cluster.
fn http2(options: &Message<'_>) -> Option<KeepAlive> {
    let settings = options.message("connection_keepalive");
    let found = settings.and_then(|settings| {
        let timeout = settings.duration("timeout");
        if !settings.has("timeout") {
            settings.fail("timeout", "missing");
        }
        let interval = settings.duration("interval");
        settings.end();
        let keepalive = KeepAlive::new(interval.unwrap_or(INTERVAL), timeout?);
        if let Err((field, reason)) = check_connection(None, Some(keepalive)) {
            settings.fail(field.trim_start_matches("keep_alive."), reason);
        }
        Some(keepalive)
    });
    options.end();
    found
}

impl Upstream {
    /// The server, unless its URI contradicts its credentials.
    pub(super) fn into_server(self, authority: Option<&str>) -> Server {
        Server {
            uri: self.uri,
            channel_credentials: self.credentials,
            call_credentials: Vec::new(),
            initial_metadata: Default::default(),
            features: Default::default(),
            api_type: None,
            polling: None,
            transport_api_version: Default::default(),
            authority: authority.map(str::to_owned),
            keep_alive: self.keepalive,
        }
    }
}

/// The names of these types as custom cluster types.
const CUSTOM_TYPES: [&str; 4] =
    ["envoy.cluster.static", "envoy.cluster.dns", "envoy.cluster.strict_dns", "envoy.cluster.logical_dns"];
/// The key of the HTTP options in a cluster.
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
/// The interval if only a timeout is set: the client's default.
const INTERVAL: Duration = Duration::from_secs(30);
