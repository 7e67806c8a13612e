//! Conversions of the messages of the protocol's resource types to resources.

use prost::Message;

use super::{super::type_url, AnyResource};
use crate::pb::envoy::{
    config::{
        cluster::v3::Cluster,
        endpoint::v3::ClusterLoadAssignment,
        listener::v3::Listener,
        route::v3::{RouteConfiguration, ScopedRouteConfiguration, VirtualHost},
    },
    extensions::transport_sockets::tls::v3::Secret,
    service::runtime::v3::Runtime,
};

macro_rules! named_by {
    ($($message:ident . $name:ident: $type_url:ident,)*) => {$(
        impl From<&$message> for AnyResource {
            fn from(message: &$message) -> Self {
                Self::new(type_url::$type_url, message.$name.as_str(), message.encode_to_vec())
            }
        }

        impl From<$message> for AnyResource {
            fn from(message: $message) -> Self {
                Self::from(&message)
            }
        }
    )*};
}

named_by! {
    Listener.name: LISTENER,
    RouteConfiguration.name: ROUTE_CONFIGURATION,
    ScopedRouteConfiguration.name: SCOPED_ROUTE_CONFIGURATION,
    VirtualHost.name: VIRTUAL_HOST,
    Cluster.name: CLUSTER,
    ClusterLoadAssignment.cluster_name: ENDPOINTS,
    Secret.name: SECRET,
    Runtime.name: RUNTIME,
}
