//! Sources of resources: `ConfigSource`, `ApiConfigSource` and `GrpcService`.

use std::sync::Arc;

use super::{
    super::{metadata, reader::Reader},
    cluster::Clusters,
    google,
    message::Message,
};
use crate::config::{
    ApiType, ConfigSource, PathSource, Polling, Server, TransportApiVersion, check_connection, check_polling,
};

/// The context of sources.
#[derive(Debug)]
pub(super) struct SourceContext<'a> {
    /// The clusters that servers are named by.
    pub(super) clusters: Clusters<'a>,
    /// The sources in `ads_config`, if present.
    pub(super) ads: Option<Vec<ConfigSource>>,
}

/// The sources in a `ConfigSource`.
#[derive(Debug)]
pub(super) enum Found {
    /// The sources of `ads_config`.
    Ads(Vec<ConfigSource>),
    /// Sources of its own.
    Own(Vec<ConfigSource>),
}

impl Found {
    /// The sources, wherever they were found.
    pub(super) fn into_sources(self) -> Vec<ConfigSource> {
        match self {
            Self::Ads(sources) | Self::Own(sources) => sources,
        }
    }
}

impl<'a> SourceContext<'a> {
    /// The sources of a `ConfigSource`; `None` if it is invalid.
    pub(super) fn config_source(&self, source: &Message<'a>) -> Option<Found> {
        // The function `authorities` reads them, where a source has a scope.
        source.heed(&["authorities"]);
        source.warn("initial_fetch_timeout", "not used: the time to wait is the client's resource_timeout");
        let version = version(source, "resource_api_version");
        let given: Vec<_> = SPECIFIERS.iter().copied().filter(|name| source.has(name)).collect();
        let found = match *given.as_slice() {
            ["ads"] => self.ads(source, "ads"),
            ["self"] => self.ads(source, "self"),
            ["path"] => source.text("path").map(|path| Found::Own(vec![file(PathSource::new(path))])),
            ["path_config_source"] => {
                source.message("path_config_source").and_then(|path| path_source(&path))
            }
            ["api_config_source"] => source
                .message("api_config_source")
                .map(|api| Found::Own(self.api_config_source(&api, version, false))),
            [] => {
                source.fail_whole(format!("no source: one of {} is missing", SPECIFIERS.join(", ")));
                None
            }
            [first, second, ..] => {
                source.fail(second, format!("is there beside {first}"));
                None
            }
            // Unreachable: each of `SPECIFIERS` has an arm above.
            [_] => None,
        };
        source.end();
        found
    }

    /// Reads a reference to `ads_config`.
    fn ads(&self, source: &Message<'a>, name: &str) -> Option<Found> {
        if let Some(detail) = source.message(name) {
            detail.heed(&["transport_api_version"]);
            detail.end();
        }
        if self.ads.is_none() {
            source.fail(name, "there is no dynamic_resources.ads_config");
        }
        self.ads.clone().map(Found::Ads)
    }

    /// The servers of an `ApiConfigSource`, in order; none if it is invalid.
    pub(super) fn api_config_source(
        &self,
        source: &Message<'a>,
        resources: Option<TransportApiVersion>,
        aggregated: bool,
    ) -> Vec<ConfigSource> {
        source.refuse(&["config_validators"]);
        source.warn("rate_limit_settings", "not used: requests are coalesced");
        // This is the default behavior of the client.
        source.heed(&["set_node_on_first_message_only"]);
        let transport = version(source, "transport_api_version");
        if resources.zip(transport).is_some_and(|(resources, transport)| resources != transport) {
            source.fail("transport_api_version", "another one than resource_api_version is not supported");
        }
        if !source.has("api_type") {
            source.fail("api_type", "missing");
        }
        let api_type = source.choice("api_type", &API_TYPES);
        let api_type = api_type.map(|api_type| if aggregated { of_ads(source, api_type) } else { api_type });
        let is_rest = api_type == Some(ApiType::Rest);
        let servers = if is_rest { self.rest(source) } else { self.grpc(source) };
        let polling = if is_rest { polling(source) } else { None };
        source.end();
        let Some(api_type) = api_type else { return Vec::new() };
        let mut known: Vec<ConfigSource> = Vec::new();
        for mut server in servers {
            server.api_type = Some(api_type);
            server.polling = polling;
            server.transport_api_version = transport.or(resources).unwrap_or_default();
            let server = ConfigSource::Server(Arc::new(server));
            // A cluster that is named twice is not a fallback for itself.
            if !known.contains(&server) {
                known.push(server);
            }
        }
        known
    }

    /// The servers of `cluster_names`, in fallback order.
    fn rest(&self, source: &Message<'a>) -> Vec<Server> {
        if source.has("grpc_services") {
            source.fail("grpc_services", "not valid for REST: use cluster_names");
        }
        let names = source.texts("cluster_names");
        if names.is_empty() {
            source.fail("cluster_names", "must have at least one cluster");
        }
        let upstreams = names.iter().flat_map(|(reader, name)| self.clusters.find(name, reader));
        upstreams.map(|upstream| upstream.into_server(None)).collect()
    }

    /// Reads a source of gRPC servers.
    fn grpc(&self, source: &Message<'a>) -> Vec<Server> {
        if source.has("cluster_names") {
            source.fail("cluster_names", "valid for REST only: use grpc_services");
        }
        let services = source.messages("grpc_services");
        if services.is_empty() {
            source.fail("grpc_services", "must have at least one service");
        }
        services.iter().flat_map(|service| self.grpc_service(service)).collect()
    }

    /// Reads a gRPC service.
    fn grpc_service(&self, service: &Message<'a>) -> Vec<Server> {
        service.warn("retry_policy", RECONNECTS);
        service.warn("timeout", "not used: a stream has no end");
        let envoy = service.message("envoy_grpc");
        let google = service.message("google_grpc");
        let initial_metadata = metadata::read(&service.items("initial_metadata"), without_commands);
        service.end();
        let servers = match (envoy, google) {
            (Some(envoy), None) => self.envoy_grpc(&envoy),
            (None, Some(google)) => google::server(&google).into_iter().collect(),
            (Some(_), Some(_)) => {
                service.fail("google_grpc", "is there beside envoy_grpc");
                Vec::new()
            }
            (None, None) => {
                service.fail_whole("no service: one of envoy_grpc, google_grpc is missing");
                Vec::new()
            }
        };
        servers
            .into_iter()
            .map(|server| Server { initial_metadata: initial_metadata.clone(), ..server })
            .collect()
    }

    /// Reads a gRPC service that is a cluster.
    fn envoy_grpc(&self, grpc: &Message<'a>) -> Vec<Server> {
        grpc.warn("retry_policy", RECONNECTS);
        grpc.heed(&["skip_envoy_headers"]);
        grpc.warn("max_receive_message_length", "not used: it is a setting of the client");
        let authority = grpc.text("authority");
        if let Err((field, reason)) = check_connection(authority, None) {
            grpc.fail(field, reason);
        }
        let Some(name) = grpc.required_text("cluster_name") else { return Vec::new() };
        grpc.end();
        // Once more, for the position of errors: `required_text` returns the text alone.
        let Some(reader) = grpc.get("cluster_name") else { return Vec::new() };
        let upstreams = self.clusters.find(name, &reader).into_iter();
        upstreams.map(|upstream| upstream.into_server(authority)).collect()
    }
}

/// A value of metadata, in which Envoy replaces commands such as `%HOSTNAME%`; `%%` is `%`.
fn without_commands(value: &str) -> Result<String, &'static str> {
    let plain = value.replace("%%", "");
    if plain.contains('%') {
        return Err("commands (`%...%`) are not supported; `%` itself is written `%%`");
    }
    Ok(value.replace("%%", "%"))
}

/// Reads a file as a source.
fn path_source(source: &Message<'_>) -> Option<Found> {
    let mut path = source.required_text("path").map(PathSource::new);
    if let Some(directory) = source.message("watched_directory") {
        let modify = directory.flag("watch_modify");
        let watched = directory.required_text("path");
        directory.end();
        path = path.zip(watched).map(|(path, watched)| path.with_watched_directory(watched));
        path = path.map(|path| if modify { path.with_watch_modify() } else { path });
    }
    source.end();
    path.map(|path| Found::Own(vec![file(path)]))
}

/// A file as a source.
pub(super) fn file(path: PathSource) -> ConfigSource {
    ConfigSource::Path(Arc::new(path))
}

/// REST needs a polling interval, `refresh_delay` (rule D12).
fn polling(source: &Message<'_>) -> Option<Polling> {
    let delay = source.duration("refresh_delay");
    let timeout = source.duration("request_timeout");
    // A malformed delay was reported: it is not missing as well.
    if delay.is_none() && source.has("refresh_delay") {
        return None;
    }
    let mut polling = delay.map(Polling::every);
    if let (Some(polling), Some(timeout)) = (&mut polling, timeout) {
        polling.request_timeout = timeout;
    }
    if let Err((field, reason)) = check_polling(Some(ApiType::Rest), polling) {
        source.fail(field, reason);
    }
    polling
}

/// `ads_config` always means an aggregated stream, whatever its type.
fn of_ads(source: &Message<'_>, api_type: ApiType) -> ApiType {
    match api_type {
        ApiType::Grpc | ApiType::AggregatedGrpc => ApiType::AggregatedGrpc,
        ApiType::DeltaGrpc | ApiType::AggregatedDeltaGrpc => ApiType::AggregatedDeltaGrpc,
        ApiType::Rest => {
            source.fail("api_type", "there is no aggregated REST");
            api_type
        }
    }
}

/// A version, unless the client chooses it.
fn version(message: &Message<'_>, name: &str) -> Option<TransportApiVersion> {
    let (v2, v3) = (TransportApiVersion::V2, TransportApiVersion::V3);
    message.choice(name, &[("AUTO", 0, None), ("V2", 1, Some(v2)), ("V3", 2, Some(v3))]).flatten()
}

/// The names of the authorities of a `ConfigSource`, each with its path.
pub(super) fn authorities<'a>(source: &Message<'a>) -> Vec<(Reader<'a>, String)> {
    let mut names: Vec<(Reader<'a>, String)> = Vec::new();
    for item in source.items("authorities") {
        let Some(authority) = source.of(&item) else { continue };
        // The empty name is for names that start with `xdstp:///`.
        let Some(name) = authority.required("name").and_then(|name| name.text()) else { continue };
        authority.end();
        match names.iter().any(|(_, known)| known == name) {
            true => item.fail(format!("authority {name:?} is there twice")),
            false => names.push((item, name.to_owned())),
        }
    }
    names
}

/// The warning for retry policies of streams.
const RECONNECTS: &str = "not used: the client reconnects with a backoff of its own";
/// The fields of a source, of which there is one.
const SPECIFIERS: [&str; 5] = ["path", "path_config_source", "api_config_source", "ads", "self"];
/// The values of `ApiType` with an API, by name and number.
const API_TYPES: [(&str, u64, ApiType); 5] = [
    ("REST", 1, ApiType::Rest),
    ("GRPC", 2, ApiType::Grpc),
    ("DELTA_GRPC", 3, ApiType::DeltaGrpc),
    ("AGGREGATED_GRPC", 5, ApiType::AggregatedGrpc),
    ("AGGREGATED_DELTA_GRPC", 6, ApiType::AggregatedDeltaGrpc),
];
