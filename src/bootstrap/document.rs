//! gRPC's bootstrap format. Each function reads one object, reports every error in it, and returns the usable part.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use serde_json::Value;

use crate::config::{
    AllowedGrpcService, ApiType, AuthorityParts, Bootstrap, CallCredentials, CertificateProvider,
    ChannelCredentials, ConfigSource, ContextParamKeys, CredentialTypes, CustomCredentials,
    DEFAULT_REFRESH_INTERVAL, FileWatcherConfig, FilesError, Locality, NO_SERVERS, Node, Parts, PathSource,
    Polling, Server, ServerFeatures, ServerUri, Sources, Template, TlsConfig, TransportApiVersion,
    ValidationError, check_polling, foreign_template, full_type_url,
};

use super::{
    metadata,
    reader::{Fields, Problems, Reader},
};

/// Reads the document.
pub(super) fn read(document: &Value, types: &CredentialTypes) -> Result<Bootstrap, Vec<ValidationError>> {
    let problems = Problems::default();
    let parts = Reader::new(document, &problems).fields().map(|root| parts(&root, types));
    let (problems, warnings) = problems.into_parts();
    match parts {
        Some(parts) if problems.is_empty() => Ok(Bootstrap::assemble(Parts { warnings, ..parts })),
        Some(_) | None => Err(problems),
    }
}

/// Reads all parts of a bootstrap in gRPC's form.
/// Invalid parts are reported and left out, so that one pass finds the problems of all fields.
fn parts(root: &Fields<'_>, types: &CredentialTypes) -> Parts {
    warn_of_others(root, &ROOT_FIELDS);
    Parts {
        sources: required_sources(root, types),
        node: root.fields("node").map(|fields| node(&fields)).unwrap_or_default(),
        context: context(root),
        certificate_providers: map(root, "certificate_providers", |_, fields| certificate_provider(fields)),
        client_listener_template: template(root, "client_default_listener_resource_name_template"),
        server_listener_template: template(root, "server_listener_resource_name_template"),
        authorities: map(root, "authorities", |name, fields| Some(authority(Some(name), fields, types))),
        default_authority: root.fields("default_authority").map(|fields| authority(None, &fields, types)),
        allowed_grpc_services: map(root, "allowed_grpc_services", |_, fields| {
            allowed_grpc_service(fields, types)
        }),
        named_servers: map(root, "named_servers", |_, fields| server(fields, types).map(Arc::new)),
        ..Parts::default()
    }
}

/// Reads a map with objects as values.
fn map<T>(
    parent: &Fields<'_>,
    key: &str,
    read: impl Fn(&str, &Fields<'_>) -> Option<T>,
) -> BTreeMap<String, T> {
    let entries = parent.entries(key).into_iter();
    entries.filter_map(|(name, value)| Some((name.to_owned(), read(name, &value.fields()?)?))).collect()
}

/// Servers may be missing if each type has sources of its own.
fn required_sources(root: &Fields<'_>, types: &CredentialTypes) -> Sources {
    if root.get("type_sources").is_none()
        && let Some(list) = root.required("xds_servers")
        && list.value().as_array().is_some_and(Vec::is_empty)
    {
        list.fail(NO_SERVERS);
    }
    sources(root, types)
}

/// `type_sources` is an extension: gRPC ignores it.
fn sources(fields: &Fields<'_>, types: &CredentialTypes) -> Sources {
    let servers = fields.items("xds_servers");
    let servers = servers.iter().filter_map(|item| server(&item.fields()?, types));
    let all = servers.map(|server| ConfigSource::Server(Arc::new(server))).collect();
    let by_type = fields.entries("type_sources").into_iter().map(|(name, list)| {
        let items = list.items();
        if items.as_ref().is_some_and(Vec::is_empty) {
            list.fail("must have at least one source");
        }
        let own = items.unwrap_or_default();
        (full_type_url(name), own.iter().filter_map(|item| source(&item.fields()?, types)).collect())
    });
    Sources::new(all, by_type.collect())
}

/// A server, or `path_config_source`.
fn source(fields: &Fields<'_>, types: &CredentialTypes) -> Option<ConfigSource> {
    let Some(file) = fields.fields("path_config_source") else {
        return server(fields, types).map(|server| ConfigSource::Server(Arc::new(server)));
    };
    let mut source = PathSource::new(file.required_text("path")?);
    warn_of_others(fields, &["path_config_source", "server_features"]);
    warn_of_others(&file, &["path", "watched_directory"]);
    if let Some(directory) = file.fields("watched_directory") {
        warn_of_others(&directory, &["path", "watch_modify"]);
        source = source.with_watched_directory(directory.required_text("path")?);
        source.watch_modify = directory.flag("watch_modify");
    }
    source.features = server_features(fields);
    Some(ConfigSource::Path(Arc::new(source)))
}

/// Reads a management server.
fn server(fields: &Fields<'_>, types: &CredentialTypes) -> Option<Server> {
    warn_of_others(fields, &SERVER_FIELDS);
    let uri = fields.required_text("server_uri").and_then(|text| {
        text.parse::<ServerUri>().map_err(|error| fields.fail("server_uri", error.to_string())).ok()
    });
    let channel_credentials = channel_credentials(fields, types);
    let call_credentials = call_credentials(fields, types);
    let initial_metadata = metadata::read(&fields.items("initial_metadata"), |text| Ok(text.to_owned()));
    let features = server_features(fields);
    let api_type = api_type(fields);
    let polling = polling(fields, api_type);
    let transport_api_version = transport_api_version(fields);
    // Only now, after all fields were read, so that all of their problems are reported.
    let (uri, channel_credentials) = uri.zip(channel_credentials)?;
    if let Err(reason) = Server::check_scheme(&uri, &channel_credentials) {
        fields.fail("server_uri", reason);
    }
    Some(Server {
        uri,
        channel_credentials,
        call_credentials,
        initial_metadata,
        features,
        api_type,
        polling,
        transport_api_version,
        authority: None,
        keep_alive: None,
    })
}

/// The first entry of a supported type is used (A27-7); the configuration of the others must be valid, too, as in
/// gRPC's C core.
fn channel_credentials(fields: &Fields<'_>, types: &CredentialTypes) -> Option<ChannelCredentials> {
    let list = fields.required("channel_creds")?;
    let items = list.items()?;
    if items.is_empty() {
        list.fail("must have at least one entry");
    }
    let (mut seen, mut first) = (Vec::new(), None);
    for (name, entry) in items.iter().filter_map(credentials) {
        // Each entry is read, also behind the first supported one, so that its problems are reported.
        let supported = match name {
            "insecure" => Some(ChannelCredentials::Insecure),
            "tls" => Some(ChannelCredentials::Tls(tls(&entry))),
            _ if types.has_channel(name) => Some(ChannelCredentials::Custom(custom(name, &entry))),
            _ => None,
        };
        first = first.or(supported);
        seen.push(format!("{name:?}"));
    }
    if first.is_none() && !seen.is_empty() {
        let supported = types.channel_names().join(", ");
        list.fail(format!("no supported type among {}; supported are {supported}", seen.join(", ")));
    }
    first
}

/// All entries of a supported type are used (A97-1).
fn call_credentials(fields: &Fields<'_>, types: &CredentialTypes) -> Vec<CallCredentials> {
    let read = |(name, entry): (&str, Fields<'_>)| match name {
        "jwt_token_file" => {
            let config = entry.required("config")?.fields()?;
            warn_of_others(&config, &["jwt_token_file"]);
            config.required_text("jwt_token_file").map(|path| CallCredentials::JwtTokenFile(path.into()))
        }
        _ if types.has_call(name) => Some(CallCredentials::Custom(custom(name, &entry))),
        _ => None,
    };
    fields.items("call_creds").iter().filter_map(credentials).filter_map(read).collect()
}

/// Reads credentials that the application provides.
fn custom(name: &str, entry: &Fields<'_>) -> CustomCredentials {
    CustomCredentials::new(name, entry.get("config").map_or(Value::Null, |config| config.value().clone()))
}

/// Reads `{type, config}`.
fn credentials<'a>(entry: &Reader<'a>) -> Option<(&'a str, Fields<'a>)> {
    let fields = entry.fields()?;
    warn_of_others(&fields, &["type", "config"]);
    Some((fields.required_text("type")?, fields))
}

/// Entries of any JSON type are tolerated, since later features may not be strings.
fn server_features(fields: &Fields<'_>) -> ServerFeatures {
    fields.items("server_features").iter().filter_map(|entry| entry.value().as_str()).collect()
}

/// Reads the transport and the variant of the protocol.
fn api_type(fields: &Fields<'_>) -> Option<ApiType> {
    let name = fields.text("api_type")?;
    let api_type = ApiType::from_name(name);
    if api_type.is_none() {
        let known = ApiType::ALL.map(ApiType::name).join(", ");
        fields.fail("api_type", format!("unknown {name:?}; known are {known}"));
    }
    api_type
}

/// Fields have the names of `ApiConfigSource`'s fields. REST needs a polling interval, `refresh_delay` (rule D12).
fn polling(fields: &Fields<'_>, api_type: Option<ApiType>) -> Option<Polling> {
    let timeout = fields.get("request_timeout").and_then(|field| field.duration());
    let delay = fields.get("refresh_delay");
    let mut polling = delay.as_ref().and_then(Reader::duration).map(Polling::every);
    // A malformed delay was reported: it is not missing as well.
    if polling.is_none() && delay.is_some() {
        return None;
    }
    if let (Some(polling), Some(timeout)) = (&mut polling, timeout) {
        polling.request_timeout = timeout;
    }
    if let Err((field, reason)) = check_polling(api_type, polling) {
        fields.fail(field, reason);
    }
    polling
}

/// Reads the version of the protocol.
fn transport_api_version(fields: &Fields<'_>) -> TransportApiVersion {
    match fields.text("transport_api_version") {
        None | Some("V3" | "AUTO") => TransportApiVersion::V3,
        Some("V2") => TransportApiVersion::V2,
        Some(other) => {
            // The version after it is not used, since the bootstrap is rejected.
            fields.fail("transport_api_version", format!("unknown {other:?}; known are V2, V3"));
            TransportApiVersion::V3
        }
    }
}

/// Reads TLS credentials.
fn tls(entry: &Fields<'_>) -> TlsConfig {
    let Some(config) = entry.fields("config") else { return TlsConfig::default() };
    warn_of_others(&config, &FILES_FIELDS);
    let tls = TlsConfig {
        ca_certificate_file: file(&config, "ca_certificate_file"),
        certificate_file: file(&config, "certificate_file"),
        private_key_file: file(&config, "private_key_file"),
        spiffe_trust_bundle_map_file: file(&config, "spiffe_trust_bundle_map_file"),
        server_name: None,
        refresh_interval: refresh_interval(&config),
    };
    report(&config, tls.check());
    tls
}

/// Reads a certificate provider; one of an unknown plugin is kept for the application.
fn certificate_provider(fields: &Fields<'_>) -> Option<CertificateProvider> {
    warn_of_others(fields, &["plugin_name", "config"]);
    let plugin_name = fields.required_text("plugin_name")?;
    let config = fields.get("config");
    if plugin_name != CertificateProvider::FILE_WATCHER {
        // Not parsed here: the registry with the plugins of the application is known when the client is built.
        let config = config.map_or(Value::Null, |config| config.value().clone());
        return Some(CertificateProvider::Unknown { plugin_name: plugin_name.to_owned(), config });
    }
    let config = fields.required("config")?.fields()?;
    warn_of_others(&config, &FILES_FIELDS);
    let watcher = FileWatcherConfig {
        ca_certificate_file: file(&config, "ca_certificate_file"),
        certificate_file: file(&config, "certificate_file"),
        private_key_file: file(&config, "private_key_file"),
        spiffe_trust_bundle_map_file: file(&config, "spiffe_trust_bundle_map_file"),
        refresh_interval: refresh_interval(&config),
    };
    report(&config, watcher.check());
    Some(CertificateProvider::FileWatcher(watcher))
}

/// Reads a path.
fn file(config: &Fields<'_>, key: &str) -> Option<PathBuf> {
    config.filled(key).map(PathBuf::from)
}

/// Reads the time between two readings of certificate files.
fn refresh_interval(config: &Fields<'_>) -> Duration {
    config.get("refresh_interval").and_then(|field| field.duration()).unwrap_or(DEFAULT_REFRESH_INTERVAL)
}

/// Adds the result of a check to the problems.
fn report(config: &Fields<'_>, checked: Result<(), FilesError>) {
    if let Err(error) = checked {
        config.problems().add(error.at(config.path()));
    }
}

/// The JSON form of the `Node` message, in which both spellings of `sub_zone` are valid.
fn node(fields: &Fields<'_>) -> Node {
    warn_of_others(fields, &["id", "cluster", "locality", "metadata"]);
    let mut node = Node::new(fields.text("id").unwrap_or_default());
    node.cluster = fields.text("cluster").unwrap_or_default().to_owned();
    node.locality = fields.fields("locality").map(|locality| {
        warn_of_others(&locality, &["region", "zone", "sub_zone", "subZone"]);
        let part = |key| locality.text(key).unwrap_or_default();
        // Both spellings of protobuf's JSON.
        let sub_zone = locality.text("sub_zone").or_else(|| locality.text("subZone")).unwrap_or_default();
        Locality::new(part("region"), part("zone"), sub_zone)
    });
    let metadata = fields.entries("metadata").into_iter();
    node.metadata = metadata.map(|(key, value)| (key.to_owned(), value.value().clone())).collect();
    node
}

/// An extension: gRPC ignores these fields.
fn context(root: &Fields<'_>) -> ContextParamKeys {
    let texts = |key| root.items(key).iter().filter_map(Reader::text).map(str::to_owned).collect();
    let keys = ContextParamKeys {
        node: texts("node_context_params"),
        features: texts("client_feature_context_params"),
    };
    keys.check().into_iter().for_each(|problem| root.problems().add(problem));
    keys
}

/// The default authority has no name.
fn authority(name: Option<&str>, fields: &Fields<'_>, types: &CredentialTypes) -> AuthorityParts {
    let key = "client_listener_resource_name_template";
    warn_of_others(fields, &[key, "xds_servers", "type_sources", "fallback_on_reachability_only"]);
    let template = template(fields, key);
    // A47-5: names by another template would be requested from the servers of another authority.
    if let Some(name) = name.filter(|name| template.as_ref().is_some_and(|own| !own.belongs_to(name))) {
        fields.fail(key, foreign_template(name));
    }
    AuthorityParts {
        template,
        sources: sources(fields, types),
        fallback_on_reachability_only: fields.flag("fallback_on_reachability_only"),
    }
}

/// Reads a template of resource names.
fn template(fields: &Fields<'_>, key: &str) -> Option<Template> {
    let text = fields.filled(key)?;
    Template::parse(text).map_err(|error| fields.fail(key, error.to_string())).ok()
}

/// Reads the credentials of a service that resources may name.
fn allowed_grpc_service(fields: &Fields<'_>, types: &CredentialTypes) -> Option<AllowedGrpcService> {
    warn_of_others(fields, &["channel_creds", "call_creds"]);
    // First, so that their problems are reported even if there are no channel credentials.
    let call_credentials = call_credentials(fields, types);
    Some(AllowedGrpcService { channel_credentials: channel_credentials(fields, types)?, call_credentials })
}

/// Warns of all fields but these: gRPC ignores unknown fields (BS1), among which are misspelled ones.
fn warn_of_others(fields: &Fields<'_>, known: &[&str]) {
    fields.warn_of_others(|name| known.contains(&name));
}

/// The fields of the document.
const ROOT_FIELDS: [&str; 12] = [
    "xds_servers",
    "type_sources",
    "node",
    "node_context_params",
    "client_feature_context_params",
    "certificate_providers",
    "client_default_listener_resource_name_template",
    "server_listener_resource_name_template",
    "authorities",
    "default_authority",
    "allowed_grpc_services",
    "named_servers",
];

/// The fields of a management server.
const SERVER_FIELDS: [&str; 9] = [
    "server_uri",
    "channel_creds",
    "call_creds",
    "initial_metadata",
    "server_features",
    "api_type",
    "refresh_delay",
    "request_timeout",
    "transport_api_version",
];

/// The fields of `tls` and `file_watcher`.
const FILES_FIELDS: [&str; 5] = [
    "ca_certificate_file",
    "certificate_file",
    "private_key_file",
    "spiffe_trust_bundle_map_file",
    "refresh_interval",
];
