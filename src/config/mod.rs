//! The configuration of a client as values: management servers in order of preference, the node, authorities and
//! certificate providers.
//!
//! A [`Bootstrap`] is read from gRPC's JSON format ([`Bootstrap::from_env`], [`Bootstrap::from_file`],
//! [`Bootstrap::from_json`], see [`bootstrap`](crate::bootstrap)) or Envoy's format ([`Bootstrap::from_envoy_file`]), or
//! built in code:
//!
//! ```
//! use xdskit::config::{AuthorityBuilder, Bootstrap, Node, Server, TlsConfig};
//!
//! let bootstrap = Bootstrap::builder()
//!     .node(Node::new("shop-7f9c").with_cluster("shop"))
//!     .server(Server::new("xds.example.com:443").tls(TlsConfig::default()))
//!     .server(Server::new("127.0.0.1:18000").insecure())
//!     .authority("backup.example.com", AuthorityBuilder::default())
//!     .build()?;
//!
//! assert_eq!(bootstrap.servers().count(), 2);
//! assert_eq!(bootstrap.listener_name("xds:///shop")?.as_str(), "shop");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! These values are valid: server URIs are parsed, templates match their authority, and required lists are not empty.

mod authority;
mod bootstrap;
mod certificates;
mod credentials;
mod duration;
mod locality;
mod metadata;
mod node;
mod server;
mod source;
mod target;
mod template;
mod uri;
mod validation_error;

pub use self::{
    authority::{Authority, UnknownAuthority},
    bootstrap::{AuthorityBuilder, Bootstrap, BootstrapBuilder, SourceBuilder},
    certificates::{CertificateProvider, FileWatcherConfig},
    credentials::{
        CallCredentials, ChannelCredentials, CredentialTypes, CustomCredentials, DEFAULT_REFRESH_INTERVAL,
        TlsConfig,
    },
    locality::Locality,
    metadata::{InvalidMetadata, Metadata},
    node::{CLIENT_FEATURES, Node, USER_AGENT_NAME, USER_AGENT_VERSION},
    server::{
        AllowedGrpcService, ApiType, KeepAlive, Polling, Server, ServerBuilder, ServerFeatures,
        TransportApiVersion,
    },
    source::{ConfigSource, PathSource},
    target::{Target, TargetError},
    template::Template,
    uri::{InvalidUri, ServerAddress, ServerUri},
    validation_error::{ConfigError, ValidationError},
};

#[cfg(feature = "channel")]
pub(crate) use self::target::check_target;
pub(crate) use self::{
    bootstrap::{AuthorityParts, ContextParamKeys, NO_SERVERS, Parts, foreign_template, full_type_url},
    credentials::FilesError,
    duration::bounded,
    server::{NamedServers, check_connection, check_polling},
    source::Sources,
    validation_error::write_errors,
};

#[cfg(test)]
mod tests;
