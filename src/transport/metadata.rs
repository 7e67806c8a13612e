//! Metadata of the calls to management servers that an application supplies: [`MetadataSource`].

use std::{error::Error, fmt, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::credentials::Loading;
use crate::config::{Metadata, Server};

/// A source of the metadata of calls to management servers, such as tokens that expire.
///
/// It is asked for each new stream, of load reports too, and for each REST request. A [`Metadata`] is a source of the same
/// entries for all calls, and a function that returns metadata is one that does not wait:
///
/// ```no_run
/// use xdskit::{
///     Client,
///     config::{Bootstrap, Metadata, Server},
/// };
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let token = |server: &Server| -> std::io::Result<Metadata> {
///         match server.uri.as_str() {
///             "consul.example:8503" => {
///                 let token = std::env::var("CONSUL_HTTP_TOKEN").map_err(std::io::Error::other)?;
///                 Metadata::default().with_entry("x-consul-token", token).map_err(std::io::Error::other)
///             }
///             _ => Ok(Metadata::default()),
///         }
///     };
///     let client = Client::builder(Bootstrap::from_env()?).initial_metadata(token).build()?;
///     let shop = client.resolve("xds:///shop");
///     Ok(())
/// }
/// ```
pub trait MetadataSource: Send + Sync + 'static {
    /// Loads the metadata of one call. An error ends the attempt; the client reports it to the watches, with the text of the
    /// error, and retries with backoff.
    ///
    /// The future is dropped when the [`connect_timeout`](crate::client::ClientBuilder::connect_timeout) expires, for REST the
    /// `request_timeout` of the server.
    fn load<'a>(&'a self, server: &'a Server) -> Loading<'a, Metadata>;
}

/// A fixed set of metadata, for all calls to all servers.
impl MetadataSource for Metadata {
    fn load<'a>(&'a self, _: &'a Server) -> Loading<'a, Metadata> {
        Box::pin(async { Ok(self.clone()) })
    }
}

impl<F, E> MetadataSource for F
where
    F: Fn(&Server) -> Result<Metadata, E> + Send + Sync + 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    fn load<'a>(&'a self, server: &'a Server) -> Loading<'a, Metadata> {
        let loaded = self(server).map_err(Into::into);
        Box::pin(async { loaded })
    }
}

/// The metadata sources of a client.
#[derive(Clone, Default)]
pub(super) struct MetadataSources(Vec<Arc<dyn MetadataSource>>);

impl MetadataSources {
    /// Adds a source behind the others.
    pub(super) fn push(&mut self, source: impl MetadataSource) {
        self.0.push(Arc::new(source));
    }

    /// Loads the headers of one call: those of the bootstrap, then those of the sources.
    pub(super) async fn headers(&self, server: &Server) -> Result<HeaderMap, Box<dyn Error + Send + Sync>> {
        let mut headers = HeaderMap::new();
        append(&mut headers, &server.initial_metadata)?;
        for source in &self.0 {
            append(&mut headers, &source.load(server).await?)?;
        }
        Ok(headers)
    }
}

/// Sources are equal if they are one and its clones.
impl PartialEq for MetadataSources {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl fmt::Debug for MetadataSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataSources").field("len", &self.0.len()).finish()
    }
}

/// Adds metadata to headers, marked as sensitive, so that they are not logged.
fn append(headers: &mut HeaderMap, metadata: &Metadata) -> Result<(), Box<dyn Error + Send + Sync>> {
    for (key, value) in metadata.iter() {
        let mut value = match key.ends_with("-bin") {
            true => HeaderValue::try_from(BASE64_STANDARD_NO_PAD.encode(value))?,
            false => HeaderValue::from_maybe_shared(Bytes::copy_from_slice(value))?,
        };
        value.set_sensitive(true);
        headers.try_append(HeaderName::try_from(key)?, value)?;
    }
    Ok(())
}
