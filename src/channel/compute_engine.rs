//! Access tokens of Google Cloud, as credentials for management servers.

use std::fmt;

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

use super::metadata_server::MetadataServer;
use crate::{
    config::TlsConfig,
    transport::credentials::{
        CallCredentialsPlugin, ChannelCredentialsPlugin, ConnectionCredentials, CredentialsContext, Loading,
    },
};

/// Credentials for management servers of Google Cloud, such as Traffic Director: an access token of the default service account, from the
/// metadata server of the machine, with each call.
///
/// As call credentials they are `google_compute_engine` of Envoy's bootstrap. As channel credentials they are `google_default` on a machine
/// of Google Cloud: TLS with the system's roots, and the token. The metadata server is that of the environment variable
/// `GCE_METADATA_HOST`, or else `metadata.google.internal`. It is asked for each stream and each REST request, for at most 10 s; it keeps
/// tokens until shortly before their end.
///
/// ```no_run
/// use xdskit::{
///     Client, channel::ComputeEngineCredentials, config::Bootstrap,
///     transport::credentials::CredentialsRegistry,
/// };
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let credentials = CredentialsRegistry::default()
///         .with_call("google_compute_engine", ComputeEngineCredentials::default())
///         .with_channel("google_default", ComputeEngineCredentials::default());
///     let bootstrap = Bootstrap::from_envoy_file("/etc/envoy/bootstrap.yaml")?;
///     let client = Client::builder(bootstrap).credentials(credentials).build()?;
///     let shop = client.resolve("xds:///shop");
///     Ok(())
/// }
/// ```
pub struct ComputeEngineCredentials {
    server: MetadataServer,
}

impl ComputeEngineCredentials {
    /// Fetches a token, as the value of the header `authorization`.
    async fn authorization(&self) -> Result<HeaderValue, String> {
        let token = self.server.access_token().await?;
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| "the access token of the metadata server is malformed".to_owned())?;
        // Sensitive values are in no log, and in no table of the compression of headers.
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Default for ComputeEngineCredentials {
    fn default() -> Self {
        Self { server: MetadataServer::new(None) }
    }
}

impl fmt::Debug for ComputeEngineCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputeEngineCredentials").finish_non_exhaustive()
    }
}

impl CallCredentialsPlugin for ComputeEngineCredentials {
    fn load<'a>(&'a self, _: CredentialsContext<'a>) -> Loading<'a, HeaderMap> {
        Box::pin(async { Ok(HeaderMap::from_iter([(AUTHORIZATION, self.authorization().await?)])) })
    }
}

impl ChannelCredentialsPlugin for ComputeEngineCredentials {
    fn load<'a>(&'a self, _: CredentialsContext<'a>) -> Loading<'a, ConnectionCredentials> {
        Box::pin(async {
            let token = self.authorization().await?;
            Ok(ConnectionCredentials::tls(TlsConfig::default()).with_header(AUTHORIZATION, token))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{
        channel::metadata_server::tests::{Answer, Metadata},
        config::Server,
    };

    async fn load(answer: Answer) -> Result<HeaderMap, String> {
        let metadata = Metadata::start([answer]).await;
        let credentials = ComputeEngineCredentials { server: MetadataServer::new(Some(&metadata.host)) };
        let server = Server::new("https://trafficdirector.googleapis.com:443").build().unwrap();
        let context = CredentialsContext { server: &server, config: &Value::Null };
        let loaded = CallCredentialsPlugin::load(&credentials, context).await;
        loaded.map_err(|error| error.to_string().replace(&metadata.host, "HOST"))
    }

    #[tokio::test]
    async fn the_token_is_that_of_the_metadata_server() {
        let answer = r#"{"access_token":"ya29.MARKER","expires_in":3599,"token_type":"Bearer"}"#;
        let headers = load(Answer::Respond(200, answer.to_owned())).await.unwrap();
        let value = &headers[AUTHORIZATION];
        assert_eq!(value.to_str().unwrap(), "Bearer ya29.MARKER");
        assert!(value.is_sensitive(), "it is in no log");
    }

    #[tokio::test]
    async fn a_metadata_server_without_a_token_is_an_error_without_its_answer() {
        for (answer, expected) in [
            (Answer::Respond(404, "MARKER".to_owned()), "metadata server HOST: HTTP status 404"),
            (
                Answer::Respond(200, "MARKER".to_owned()),
                "metadata server HOST: the response has no access token",
            ),
            (
                Answer::Respond(200, r#"{"access_token":"MARKER\n"}"#.to_owned()),
                "the access token of the metadata server is malformed",
            ),
        ] {
            assert_eq!(load(answer).await.unwrap_err(), expected);
        }
    }
}
