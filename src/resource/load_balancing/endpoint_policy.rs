//! Load balancing policies of applications that channels execute (CH3.63).

use std::{borrow::Cow, fmt, net::SocketAddr, sync::Arc};

use serde::{Serialize, Serializer};

use crate::{
    base::Custom,
    error::Code,
    resource::{Extension, Locality},
};

/// The configuration of a load balancing policy of an application, which channels execute.
///
/// [`Registry::with_endpoint_policy`](crate::resource::Registry::with_endpoint_policy) adds it before the client is built, as the
/// client rejects clusters whose policies it does not know. A policy chooses among the endpoints of a priority, or of one of its
/// localities if it stands below `wrr_locality`; the levels above, and all connections, remain those of the channel.
///
/// ```
/// use serde::Serialize;
/// use xdskit::resource::{Context, Extension, Invalid, Payload, Registry, load_balancing::*};
///
/// /// The first endpoint with a connection in the order of the configuration.
/// #[derive(Debug, PartialEq, Serialize)]
/// struct FirstReady {}
///
/// impl Extension for FirstReady {
///     const TYPE_NAME: &'static str = "example.lb.v1.FirstReady";
///
///     fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
///         Ok(Self {})
///     }
/// }
///
/// impl EndpointPolicy for FirstReady {
///     fn balancer(&self, _seed: u64) -> Box<dyn EndpointBalancer> {
///         Box::new(Balancer)
///     }
/// }
///
/// struct Balancer;
///
/// impl EndpointBalancer for Balancer {
///     fn picker(&mut self, endpoints: &[PolicyEndpoint]) -> Box<dyn EndpointPicker> {
///         Box::new(Picker(endpoints.iter().position(PolicyEndpoint::is_ready)))
///     }
/// }
///
/// struct Picker(Option<usize>);
///
/// impl EndpointPicker for Picker {
///     fn pick(&self, request: &mut PickRequest<'_>) -> EndpointPick {
///         request.add_metadata("x-picked-by", "first-ready");
///         self.0.map_or(EndpointPick::Wait, EndpointPick::Endpoint)
///     }
/// }
///
/// let registry = Registry::new().with_endpoint_policy::<FirstReady>();
/// ```
pub trait EndpointPolicy: Extension {
    /// Makes the state of the policy for one list of endpoints. It is kept over changes of the endpoints, as long as the
    /// configuration is equal. The seed is another one each time.
    fn balancer(&self, seed: u64) -> Box<dyn EndpointBalancer>;
}

/// The state of an [`EndpointPolicy`].
pub trait EndpointBalancer: Send {
    /// Makes the picker for the current endpoints. It is called again after each change of them or of their connections, as long as
    /// one of them is ready. If it panics, the calls fail with INTERNAL until the next configuration.
    fn picker(&mut self, endpoints: &[PolicyEndpoint]) -> Box<dyn EndpointPicker>;
}

/// Chooses the endpoint of each call.
pub trait EndpointPicker: Send + Sync {
    /// Chooses an endpoint. It is called concurrently on the path of calls, so it must not block. If it panics, the call fails with
    /// INTERNAL, and so do all others until the next configuration.
    fn pick(&self, request: &mut PickRequest<'_>) -> EndpointPick;
}

/// The result of [`EndpointPicker::pick`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointPick {
    /// The endpoint at this place in the list of [`EndpointBalancer::picker`]. If it is not ready, the call waits.
    Endpoint(usize),
    /// The call waits for the next picker.
    Wait,
    /// The call fails, unless it waits for ready. Codes that are reserved for applications become INTERNAL (CH1.17).
    Fail {
        /// The code of the status.
        code: Code,
        /// The message of the status.
        message: String,
    },
}

/// The request that an endpoint is picked for.
pub struct PickRequest<'a> {
    /// The path.
    path: &'a str,
    /// Returns a header of the request.
    header: &'a dyn Fn(&str) -> Option<Cow<'a, [u8]>>,
    /// Metadata that the policy adds to the request.
    added: Vec<AddedMetadata>,
}

/// A header that a policy adds: its name in lower case, and its value.
pub(crate) type AddedMetadata = (Box<str>, Box<str>);

/// An endpoint of an [`EndpointPolicy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyEndpoint {
    /// The addresses of the endpoint, the preferred one first.
    addresses: Vec<SocketAddr>,
    /// Its locality.
    locality: Locality,
    /// Its weight.
    weight: u32,
    /// The name of its host.
    hostname: Option<Arc<str>>,
    /// Whether there is a connection.
    is_ready: bool,
}

/// The policy of [`LbPolicy::Custom`](super::LbPolicy::Custom). In JSON, an object with the type name as its key.
#[derive(Clone)]
pub struct CustomPolicy {
    /// Shared, since a mesh has many clusters, and few have such a policy.
    policy: Arc<Policy>,
}

struct Policy {
    /// The configuration.
    config: Custom,
    /// `None` if channels cannot execute it.
    make: Option<MakeBalancer>,
}

/// Makes a balancer of the configuration and a seed.
type MakeBalancer = fn(&Custom, u64) -> Option<Box<dyn EndpointBalancer>>;

impl<'a> PickRequest<'a> {
    pub(crate) fn new(path: &'a str, header: &'a dyn Fn(&str) -> Option<Cow<'a, [u8]>>) -> Self {
        Self { path, header, added: Vec::new() }
    }

    /// The path without a query, such as `/shop.Cart/Get`.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The value of a header as routes match it: several values are joined by commas, binary headers are absent.
    pub fn header(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        (self.header)(name)
    }

    /// Adds a header to the request, if this endpoint is used. The name is one of gRPC metadata, in lower case, and the value visible
    /// ASCII; anything else is left out.
    pub fn add_metadata(&mut self, name: &str, value: &str) {
        self.added.push((name.into(), value.into()));
    }

    /// The metadata that the policy has added.
    pub(crate) fn into_added(self) -> Vec<AddedMetadata> {
        self.added
    }
}

impl PolicyEndpoint {
    pub(crate) fn new(
        addresses: Vec<SocketAddr>,
        locality: Locality,
        weight: u32,
        hostname: Option<Arc<str>>,
    ) -> Self {
        Self { addresses, locality, weight, hostname, is_ready: false }
    }

    /// Sets whether there is a connection.
    pub(crate) fn set_ready(&mut self, is_ready: bool) {
        self.is_ready = is_ready;
    }

    /// The addresses, the preferred one first.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The locality.
    pub fn locality(&self) -> &Locality {
        &self.locality
    }

    /// The weight in its locality, at least 1.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// The hostname.
    pub fn hostname(&self) -> Option<&str> {
        self.hostname.as_deref()
    }

    /// Whether there is a connection.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }
}

impl CustomPolicy {
    /// A policy that is parsed alone, for applications with load balancing of their own.
    pub(crate) fn parsed(config: Custom) -> Self {
        Self { policy: Arc::new(Policy { config, make: None }) }
    }

    /// A policy that channels execute.
    pub(crate) fn executed<T: EndpointPolicy>(config: Custom) -> Self {
        let make: MakeBalancer = |config, seed| config.get::<T>().map(|policy| policy.balancer(seed));
        Self { policy: Arc::new(Policy { config, make: Some(make) }) }
    }

    /// The full name of its message.
    pub fn type_name(&self) -> &'static str {
        self.policy.config.type_name()
    }

    /// The configuration, if it is of type `T`.
    pub fn get<T: Extension>(&self) -> Option<&T> {
        self.policy.config.get()
    }

    /// Whether channels execute it.
    pub fn is_executed(&self) -> bool {
        self.policy.make.is_some()
    }

    /// Makes a balancer, if channels can execute the policy.
    pub(crate) fn balancer(&self, seed: u64) -> Option<Box<dyn EndpointBalancer>> {
        self.policy.make.and_then(|make| make(&self.policy.config, seed))
    }
}

impl fmt::Debug for PickRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PickRequest").field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Debug for CustomPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy.config.fmt(f)
    }
}

impl PartialEq for CustomPolicy {
    fn eq(&self, other: &Self) -> bool {
        self.policy.config == other.policy.config && self.is_executed() == other.is_executed()
    }
}

impl Serialize for CustomPolicy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.policy.config.serialize(to)
    }
}
