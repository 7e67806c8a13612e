//! Load balancing policies of applications that channels execute (CH3.63).

use std::{borrow::Cow, fmt, mem, net::SocketAddr, sync::Arc};

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

    /// Whether endpoints are connected when picks [request](PickRequest::connect) it, as under ring_hash (A42), and not all at once.
    /// Pickers are then made, and picks happen, without any ready endpoint, too.
    ///
    /// While no endpoint of the list is ready and no attempt is under way, the channel connects one idle endpoint after the other by
    /// itself, so that the list recovers from a failure without further calls. Two failing endpoints are a failure of the list.
    fn connects_on_demand(&self) -> bool {
        false
    }
}

/// The state of an [`EndpointPolicy`].
pub trait EndpointBalancer: Send {
    /// Makes the picker for the current endpoints. It is called again after each change of them or of their states, as long as one of
    /// them is ready or they are connected on demand. If it panics, the calls fail with INTERNAL until the next configuration.
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
    /// The endpoint at this index in the list of [`EndpointBalancer::picker`]. If it is not ready, the call waits.
    Endpoint(usize),
    /// The call waits for the next picker.
    Wait,
    /// The call fails with UNAVAILABLE and the latest error of the endpoint at this index, unless it waits for ready.
    Unreachable(usize),
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
    /// What the pick has of the channel.
    resources: &'a mut dyn PickResources,
    /// Metadata that the policy adds to the request.
    added: Vec<AddedMetadata>,
}

/// What a pick has of the channel beside the request.
pub(crate) trait PickResources {
    /// See [`PickRequest::hash`].
    fn hash(&mut self) -> u64;

    /// See [`PickRequest::random`].
    fn random(&mut self) -> u64;

    /// See [`PickRequest::requests_in_flight`].
    fn requests_in_flight(&self, index: usize) -> u32;

    /// See [`PickRequest::connect`].
    fn connect(&mut self, index: usize);
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
    /// The key that hashes of it are made of.
    hash_key: Arc<str>,
    /// The weight of its locality.
    locality_weight: u32,
    /// Its state when the picker is made.
    state: EndpointState,
}

/// State of an endpoint of an [`EndpointPolicy`]. An endpoint that outlier detection has ejected is failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointState {
    /// No connection, and no attempt. Only where endpoints are connected on demand, or for a moment.
    Idle,
    /// An attempt to connect is under way.
    Connecting,
    /// There is a connection.
    Ready,
    /// The last attempt has failed. The next one begins after a delay, by itself.
    Failing,
}

/// The policy of [`LbPolicy::Custom`](super::LbPolicy::Custom). In JSON, an object with the type name as its key.
#[derive(Clone)]
pub struct CustomPolicy {
    /// Shared, since a mesh has many clusters, and few have such a policy.
    policy: Arc<Policy>,
}

/// What the clones of a policy share.
struct Policy {
    /// The configuration.
    config: Custom,
    /// `None` if channels cannot execute it.
    executed: Option<Executed>,
}

/// What channels call of a policy, whose type is known where this was made alone.
struct Executed {
    /// Makes a balancer of the configuration and a seed.
    balancer: fn(&Custom, u64) -> Option<Box<dyn EndpointBalancer>>,
    /// What the policy returns for its configuration.
    connects_on_demand: bool,
}

impl<'a> PickRequest<'a> {
    /// A request with this path, whose headers are looked up by `header`.
    pub(crate) fn new(
        path: &'a str,
        header: &'a dyn Fn(&str) -> Option<Cow<'a, [u8]>>,
        resources: &'a mut dyn PickResources,
    ) -> Self {
        Self { path, header, resources, added: Vec::new() }
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

    /// The hash of the call by the hash policies of its route (A42), which is the same for all its attempts; random without these.
    pub fn hash(&mut self) -> u64 {
        self.resources.hash()
    }

    /// A random number, of all 64 bits.
    pub fn random(&mut self) -> u64 {
        self.resources.random()
    }

    /// The attempts of this channel on the endpoint at an index that have not ended; 0 for an endpoint that is not ready.
    pub fn requests_in_flight(&self, index: usize) -> u32 {
        self.resources.requests_in_flight(index)
    }

    /// Requests a connection of the endpoint at an index, whatever the result of the pick is. Without effect unless the endpoint is
    /// idle; of several requests of a pick the last one counts.
    pub fn connect(&mut self, index: usize) {
        self.resources.connect(index);
    }

    /// The metadata that the policy has added.
    pub(crate) fn into_added(self) -> Vec<AddedMetadata> {
        self.added
    }
}

impl PolicyEndpoint {
    /// An endpoint without a hostname, idle, whose locality has the weight 1.
    pub(crate) fn new(
        addresses: Vec<SocketAddr>,
        locality: Locality,
        weight: u32,
        hash_key: Arc<str>,
    ) -> Self {
        Self {
            addresses,
            locality,
            weight,
            hostname: None,
            hash_key,
            locality_weight: 1,
            state: EndpointState::Idle,
        }
    }

    /// Sets the name of the host.
    pub(crate) fn with_hostname(self, hostname: Option<Arc<str>>) -> Self {
        Self { hostname, ..self }
    }

    /// Sets the weight of the locality in its priority, which is at least 1.
    pub(crate) fn with_locality_weight(self, locality_weight: u32) -> Self {
        Self { locality_weight, ..self }
    }

    /// Sets the state, and returns the one before.
    pub(crate) fn replace_state(&mut self, state: EndpointState) -> EndpointState {
        mem::replace(&mut self.state, state)
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

    /// The weight of the locality in its priority, at least 1.
    pub fn locality_weight(&self) -> u32 {
        self.locality_weight
    }

    /// The hostname.
    pub fn hostname(&self) -> Option<&str> {
        self.hostname.as_deref()
    }

    /// The key that hashes of the endpoint are made of: `hash_key` in its metadata, or its first address (A42).
    pub fn hash_key(&self) -> &str {
        &self.hash_key
    }

    /// The state.
    pub fn state(&self) -> EndpointState {
        self.state
    }

    /// Whether there is a connection.
    pub fn is_ready(&self) -> bool {
        self.state == EndpointState::Ready
    }
}

impl CustomPolicy {
    /// A policy that is parsed alone, for applications with load balancing of their own.
    pub(crate) fn parsed(config: Custom) -> Self {
        Self { policy: Arc::new(Policy { config, executed: None }) }
    }

    /// A policy that channels execute.
    pub(crate) fn executed<T: EndpointPolicy>(config: Custom) -> Self {
        let connects_on_demand = config.get::<T>().is_some_and(EndpointPolicy::connects_on_demand);
        let executed = Executed {
            // Always of type `T`: the configuration was parsed as one.
            balancer: |config, seed| config.get::<T>().map(|policy| policy.balancer(seed)),
            connects_on_demand,
        };
        Self { policy: Arc::new(Policy { config, executed: Some(executed) }) }
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
        self.policy.executed.is_some()
    }

    /// Makes a balancer, if channels can execute the policy.
    pub(crate) fn balancer(&self, seed: u64) -> Option<Box<dyn EndpointBalancer>> {
        self.policy.executed.as_ref().and_then(|executed| (executed.balancer)(&self.policy.config, seed))
    }

    /// See [`EndpointPolicy::connects_on_demand`]. False for a policy that channels do not execute.
    pub(crate) fn connects_on_demand(&self) -> bool {
        self.policy.executed.as_ref().is_some_and(|executed| executed.connects_on_demand)
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
        // The same configuration executed and not executed are two behaviors of a channel.
        self.policy.config == other.policy.config && self.is_executed() == other.is_executed()
    }
}

impl Serialize for CustomPolicy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.policy.config.serialize(to)
    }
}
