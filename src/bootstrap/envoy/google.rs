//! `GrpcService.GoogleGrpc` as a management server: a target with credentials.

use serde_json::Value;

use super::{
    cluster::{self, Upstream},
    message::Message,
    tls,
};
use crate::config::{CallCredentials, ChannelCredentials, CustomCredentials, Server, TlsConfig};

/// Reads the server. `None` if it is invalid.
pub(super) fn server(grpc: &Message<'_>) -> Option<Server> {
    grpc.refuse(&["channel_credentials_plugin", "call_credentials_plugin"]);
    grpc.heed(&["stat_prefix"]);
    grpc.warn("channel_args", "not used: connections have the settings of the client");
    let credentials = match grpc.message("channel_credentials") {
        None => Some(ChannelCredentials::Insecure),
        Some(credentials) => channel_credentials(&credentials),
    };
    let calls = grpc.messages("call_credentials");
    let calls: Vec<_> = calls.iter().filter_map(call_credentials).collect();
    if credentials == Some(ChannelCredentials::Insecure) && !calls.is_empty() {
        grpc.fail(
            "call_credentials",
            "are sent over secured connections only: there are no channel_credentials",
        );
    }
    let uri = grpc.required_text("target_uri").and_then(|text| cluster::parse(grpc, "target_uri", text));
    grpc.end();
    let (uri, credentials) = uri.zip(credentials)?;
    if let Err(reason) = Server::check_scheme(&uri, &credentials) {
        grpc.fail("target_uri", reason);
    }
    let server = Upstream { uri, credentials, keepalive: None }.into_server(None);
    Some(Server { call_credentials: calls, ..server })
}

/// Reads the credentials of a connection.
fn channel_credentials(credentials: &Message<'_>) -> Option<ChannelCredentials> {
    credentials.refuse(&["local_credentials"]);
    let (ssl, default) = (credentials.message("ssl_credentials"), credentials.has(GOOGLE_DEFAULT));
    credentials.end();
    match (ssl, default) {
        (Some(ssl), false) => ssl_credentials(&ssl).map(ChannelCredentials::Tls),
        (None, true) => Some(ChannelCredentials::Custom(CustomCredentials::new(GOOGLE_DEFAULT, Value::Null))),
        (Some(_), true) => {
            credentials.fail(GOOGLE_DEFAULT, "is there beside ssl_credentials");
            None
        }
        (None, false) => {
            // `refuse` has reported those already.
            if !credentials.has("local_credentials") {
                credentials.fail("ssl_credentials", "missing");
            }
            None
        }
    }
}

/// Reads TLS credentials.
fn ssl_credentials(ssl: &Message<'_>) -> Option<TlsConfig> {
    let roots = tls::file(ssl, "root_certs");
    let identity = (tls::file(ssl, "cert_chain"), tls::file(ssl, "private_key"));
    if ssl.has("cert_chain") != ssl.has("private_key") {
        ssl.fail_whole("cert_chain and private_key come together");
    }
    ssl.end();
    let mut tls = TlsConfig { ca_certificate_file: roots, ..TlsConfig::default() };
    if let (Some(chain), Some(key)) = identity {
        tls = tls.with_identity(chain, key);
    }
    Some(tls)
}

/// Reads an entry of `call_credentials`, for an implementation of the application with the name of the field. The configuration
/// is that of the field.
fn call_credentials(credentials: &Message<'_>) -> Option<CallCredentials> {
    let given: Vec<_> = CALL_CREDENTIALS.iter().filter(|name| credentials.has(name)).collect();
    credentials.end();
    match *given.as_slice() {
        [name] => {
            let config = credentials.get(name)?.value().clone();
            Some(CallCredentials::Custom(CustomCredentials::new(*name, config)))
        }
        [] => {
            credentials
                .fail_whole(format!("no credentials: one of {} is missing", CALL_CREDENTIALS.join(", ")));
            None
        }
        [first, second, ..] => {
            credentials.fail(second, format!("is there beside {first}"));
            None
        }
    }
}

/// The credentials of Google Cloud, which an application provides.
const GOOGLE_DEFAULT: &str = "google_default";
/// The alternatives of `CallCredentials`, each of which the application has to implement.
const CALL_CREDENTIALS: [&str; 7] = [
    "access_token",
    "google_compute_engine",
    "google_refresh_token",
    "service_account_jwt_access",
    "google_iam",
    "from_plugin",
    "sts_service",
];
