//! The SPIFFE Workload API as a certificate provider: certificates with SPIFFE ids from the agent of a machine, such as SPIRE's.
//!
//! The application adds [`WorkloadApi`] to its registry, and instances of the plugin `spiffe_workload_api` in the bootstrap have
//! their certificates, roots and trust bundles from the agent, as soon as something needs them. `docs/channel/providers.md` describes
//! it.

mod agent;
mod endpoint;
mod material;
mod run;
mod times;

use std::env;

use serde::Serialize;
use serde_json::{Map, Value};

use self::times::Times;
use crate::resource::{
    Context, Extension, Invalid, Payload,
    tls::{CertificateProviderPlugin, CertificatePublisher, ProviderRun},
};

/// The plugin `spiffe_workload_api` of the bootstrap's `certificate_providers`: X.509-SVIDs and bundles of the
/// [SPIFFE Workload API](https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE_Workload_API.md).
///
/// | field of `config` | default | meaning |
/// |---|---|---|
/// | `endpoint_socket` | the environment variable `SPIFFE_ENDPOINT_SOCKET` | `unix:///path` or `tcp://ip:port` |
/// | `hint` | none | the identity with this hint; by default, and if several have it, the first that the agent sends |
/// | `bundles_only` | false | trust bundles alone, without an identity |
///
/// The roots are a SPIFFE trust bundle map (A87) of the workload's own trust domain and those federated with it.
///
/// ```
/// use xdskit::{Bootstrap, Client, resource::Registry, spiffe::WorkloadApi};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let bootstrap = Bootstrap::from_json(
///     r#"{
///         "xds_servers": [{"server_uri": "xds.example.com:443", "channel_creds": [{"type": "google_default"}, {"type": "insecure"}]}],
///         "certificate_providers": {
///             "mesh": {"plugin_name": "spiffe_workload_api", "config": {"endpoint_socket": "unix:///run/spire/agent.sock"}}
///         }
///     }"#,
/// )?;
/// let registry = Registry::new().with_certificate_plugin::<WorkloadApi>();
/// let client = Client::builder(bootstrap).extensions(registry).build()?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkloadApi {
    /// The address of the agent, as it is configured.
    endpoint_socket: String,
    /// The hint of the identity; `None` is the first one.
    hint: Option<String>,
    /// Whether there is no identity.
    bundles_only: bool,
}

impl Extension for WorkloadApi {
    const TYPE_NAME: &'static str = "spiffe_workload_api";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let Payload::Struct(config) = payload else { return Err(Invalid::new("must be JSON")) };
        Self::of(config, env::var("SPIFFE_ENDPOINT_SOCKET").ok())
    }
}

impl CertificateProviderPlugin for WorkloadApi {
    fn run(&self, publisher: CertificatePublisher) -> ProviderRun {
        let config = self.clone();
        Box::pin(async move {
            let agent = endpoint::parse(&config.endpoint_socket)?;
            match run::run(&config, &agent, &publisher, &Times::DEFAULT).await {}
        })
    }
}

impl WorkloadApi {
    /// Reads the configuration, with the socket of the environment.
    fn of(config: Map<String, Value>, environment: Option<String>) -> Result<Self, Invalid> {
        let (mut endpoint_socket, mut hint, mut bundles_only) = (environment, None, false);
        for (field, value) in config {
            match (field.as_str(), value) {
                ("endpoint_socket", Value::String(text)) => endpoint_socket = Some(text),
                ("hint", Value::String(text)) => hint = Some(text),
                ("bundles_only", Value::Bool(only)) => bundles_only = only,
                ("endpoint_socket", _) => return Err(Invalid::field("endpoint_socket", "expected a text")),
                ("hint", _) => return Err(Invalid::field("hint", "expected a text")),
                ("bundles_only", _) => return Err(Invalid::field("bundles_only", "expected true or false")),
                (unknown, _) => return Err(Invalid::new(format!("the field {unknown:?} is unknown"))),
            }
        }
        let endpoint_socket = endpoint_socket.ok_or_else(|| {
            let reason = "must be set, since the environment variable SPIFFE_ENDPOINT_SOCKET is not";
            Invalid::field("endpoint_socket", reason)
        })?;
        endpoint::parse(&endpoint_socket).map_err(|why| {
            Invalid::field("endpoint_socket", format!("{endpoint_socket:?} is no endpoint: {why}"))
        })?;
        Ok(Self { endpoint_socket, hint, bundles_only })
    }
}

#[cfg(all(test, unix))]
mod tests;
