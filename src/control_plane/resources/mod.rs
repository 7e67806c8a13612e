//! Builders for the resources of a mesh, in the form that gRPC's clients accept.
//!
//! ```
//! use xdskit::control_plane::{
//!     AnyResource,
//!     resources::{cluster, endpoints, listener, route, route_config},
//! };
//!
//! let mesh: [AnyResource; 4] = [
//!     listener("edge").rds("routes").into(),
//!     route_config("routes")
//!         .virtual_host(
//!             ["shop.example"],
//!             [
//!                 route::prefix("/cart/").weighted([("cart", 90), ("cart-canary", 10)]),
//!                 route::prefix("/").cluster("shop"),
//!             ],
//!         )
//!         .into(),
//!     cluster("shop").eds().into(),
//!     endpoints("shop").locality("eu", "a", ["10.0.0.1:80", "10.0.0.2:80"]).draining("10.0.0.2:80").into(),
//! ];
//! ```
//!
//! Each builder contains a message of [`crate::pb`]; `edit` gives access to fields without a method, and can
//! invalidate the message on purpose.

mod cluster;
mod collection;
mod endpoints;
mod http_filters;
mod lb_policies;
mod listener;
mod outlier_detection;
mod retry;
mod route_config;
mod scope;
mod upstream_tls;

pub use cluster::{ClusterBuilder, cluster};
pub use collection::{CollectionBuilder, collection};
pub use endpoints::{EndpointsBuilder, endpoints};
pub use http_filters::{FaultBuilder, HeaderMutationBuilder, HttpFilterBuilder, http_filter};
pub use lb_policies::{LbPolicyBuilder, lb_policy};
pub use listener::{ListenerBuilder, listener};
pub use outlier_detection::{OutlierDetectionBuilder, outlier_detection};
pub use retry::{RetryPolicyBuilder, retry_on};
pub use route_config::{RouteBuilder, RouteConfigBuilder, RouteMatchBuilder, route, route_config};
pub use scope::{ScopeBuilder, scope};
pub use upstream_tls::{UpstreamTlsBuilder, upstream_tls};

use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use crate::pb::{
    envoy::config::core::v3::{
        Address, AggregatedConfigSource, ApiVersion, ConfigSource, SocketAddress, address::Address as Kind,
        config_source::ConfigSourceSpecifier, socket_address::PortSpecifier,
    },
    google::protobuf::{self as pb, Any},
};

/// The methods of every builder of a resource.
macro_rules! builder {
    ($builder:ident: $message:ident) => {
        $crate::control_plane::resources::message_builder!($builder: $message);

        impl From<$builder> for $crate::control_plane::AnyResource {
            fn from(builder: $builder) -> Self {
                builder.message.into()
            }
        }
    };
}
use builder;

/// The methods of every builder, also of those of a part of a resource.
macro_rules! message_builder {
    ($builder:ident: $message:ident) => {
        impl $builder {
            /// Edits the message directly.
            #[must_use]
            pub fn edit(mut self, edit: impl FnOnce(&mut $message)) -> Self {
                edit(&mut self.message);
                self
            }

            /// The message.
            pub fn into_message(self) -> $message {
                self.message
            }
        }
    };
}
use message_builder;

/// The config source `ads`: the stream of the referring resource.
fn ads() -> ConfigSource {
    ConfigSource {
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        resource_api_version: ApiVersion::V3.into(),
        ..ConfigSource::default()
    }
}

/// A message with its type.
fn any(type_url: &str, message: &impl Message) -> Any {
    Any { type_url: type_url.to_owned(), value: Bytes::from(message.encode_to_vec()) }
}

/// A type of Envoy's extensions, and a message of it.
fn extension(type_name: &str, message: &impl Message) -> Any {
    any(&format!("type.googleapis.com/{type_name}"), message)
}

/// A duration as a message, up to the largest one of protobuf.
fn duration(duration: Duration) -> pb::Duration {
    pb::Duration {
        seconds: duration.as_secs().try_into().unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos().try_into().unwrap_or_default(),
    }
}

/// A number that a message can leave out.
fn number(value: u32) -> Option<pb::UInt32Value> {
    Some(pb::UInt32Value { value })
}

/// An address of a host, which is an IP address or a name.
fn socket_address(host: &str, port: u16) -> Address {
    let socket_address = SocketAddress {
        address: host.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..SocketAddress::default()
    };
    Address { address: Some(Kind::SocketAddress(socket_address)) }
}

#[cfg(test)]
mod tests;
