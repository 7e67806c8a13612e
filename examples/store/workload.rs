//! The messages of the program.

use xdskit::{
    control_plane::AnyResource,
    resource::{Prost, Resource},
};

/// A process that serves: `message Workload { string name = 1; string address = 2; }` in the package `shop`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Workload {
    /// The name of the resource.
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    /// The IP address and the port.
    #[prost(string, tag = "2")]
    pub(crate) address: String,
}

/// The compiler of protobuf writes this with its setting `enable_type_names`.
impl prost::Name for Workload {
    const NAME: &'static str = "Workload";
    const PACKAGE: &'static str = "shop";
}

/// A workload as the control plane has it.
pub(crate) fn resource(name: &str, address: &str) -> AnyResource {
    let message = Workload { name: name.to_owned(), address: address.to_owned() };
    AnyResource::encode(Prost::<Workload>::TYPE_URL, name, &message)
}
