use std::net::SocketAddr;

use super::{builder, socket_address};
use crate::pb::{
    envoy::{
        config::{
            core::v3::{HealthStatus, Locality},
            endpoint::v3::{
                ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
                cluster_load_assignment::{Policy, policy::DropOverload},
                lb_endpoint::HostIdentifier,
            },
        },
        r#type::v3::FractionalPercent,
    },
    google::protobuf::UInt32Value,
};

/// The endpoints of a cluster, initially none.
pub fn endpoints(cluster: impl Into<String>) -> EndpointsBuilder {
    let message = ClusterLoadAssignment { cluster_name: cluster.into(), ..ClusterLoadAssignment::default() };
    EndpointsBuilder { message }
}

/// A builder of a ClusterLoadAssignment; see [`endpoints`].
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointsBuilder {
    /// The message so far.
    message: ClusterLoadAssignment,
}

impl EndpointsBuilder {
    /// Adds a locality of weight 1 and priority 0 with endpoints, each an IP address with a port.
    ///
    /// # Panics
    /// An address cannot be parsed.
    #[must_use]
    #[track_caller]
    pub fn locality<'a>(
        mut self,
        region: &str,
        zone: &str,
        addresses: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let locality = Locality { region: region.into(), zone: zone.into(), ..Locality::default() };
        let mut lb_endpoints = Vec::new();
        for text in addresses {
            lb_endpoints.push(lb_endpoint(parse(text)));
        }
        self.message.endpoints.push(LocalityLbEndpoints {
            locality: Some(locality),
            lb_endpoints,
            load_balancing_weight: Some(UInt32Value { value: 1 }),
            ..LocalityLbEndpoints::default()
        });
        self
    }

    /// Sets the priority of the last locality; 0 is the highest, and there must be no gaps.
    ///
    /// # Panics
    /// There is no locality.
    #[must_use]
    #[track_caller]
    pub fn priority(mut self, priority: u32) -> Self {
        self.last_locality().priority = priority;
        self
    }

    /// Sets the weight of the last locality. A locality with weight 0 is not used.
    ///
    /// # Panics
    /// There is no locality.
    #[must_use]
    #[track_caller]
    pub fn weight(mut self, weight: u32) -> Self {
        self.last_locality().load_balancing_weight = Some(UInt32Value { value: weight });
        self
    }

    /// Sets the health of an endpoint to healthy.
    ///
    /// # Panics
    /// There is no such endpoint.
    #[must_use]
    #[track_caller]
    pub fn healthy(self, address: &str) -> Self {
        self.health(address, HealthStatus::Healthy)
    }

    /// Sets the health of an endpoint to unhealthy.
    ///
    /// # Panics
    /// There is no such endpoint.
    #[must_use]
    #[track_caller]
    pub fn unhealthy(self, address: &str) -> Self {
        self.health(address, HealthStatus::Unhealthy)
    }

    /// Sets the health of an endpoint to draining: it completes running requests and gets no new ones.
    ///
    /// # Panics
    /// There is no such endpoint.
    #[must_use]
    #[track_caller]
    pub fn draining(self, address: &str) -> Self {
        self.health(address, HealthStatus::Draining)
    }

    /// Sets the weight of an endpoint within its locality, 1 by default.
    ///
    /// # Panics
    /// There is no such endpoint.
    #[must_use]
    #[track_caller]
    pub fn endpoint_weight(mut self, address: &str, weight: u32) -> Self {
        self.endpoint(address).load_balancing_weight = Some(UInt32Value { value: weight });
        self
    }

    /// Drops this percentage of requests, in a category.
    #[must_use]
    pub fn drop_percent(mut self, category: impl Into<String>, percent: u32) -> Self {
        let drop_percentage = FractionalPercent { numerator: percent, ..FractionalPercent::default() };
        let drop = DropOverload { category: category.into(), drop_percentage: Some(drop_percentage) };
        self.message.policy.get_or_insert_with(Policy::default).drop_overloads.push(drop);
        self
    }

    /// Sets the health of an endpoint.
    #[track_caller]
    fn health(mut self, address: &str, status: HealthStatus) -> Self {
        self.endpoint(address).health_status = status.into();
        self
    }

    /// The locality that was added last.
    #[track_caller]
    fn last_locality(&mut self) -> &mut LocalityLbEndpoints {
        match self.message.endpoints.last_mut() {
            Some(locality) => locality,
            None => panic!("the endpoints of {:?} have no locality yet", self.message.cluster_name),
        }
    }

    /// The endpoint with an address, in any locality.
    #[track_caller]
    fn endpoint(&mut self, address: &str) -> &mut LbEndpoint {
        let identifier = lb_endpoint(parse(address)).host_identifier;
        let Self { message: ClusterLoadAssignment { cluster_name, endpoints, .. } } = self;
        let mut all = endpoints.iter_mut().flat_map(|locality| &mut locality.lb_endpoints);
        match all.find(|endpoint| endpoint.host_identifier == identifier) {
            Some(endpoint) => endpoint,
            None => panic!("{address} is no endpoint of {cluster_name:?}"),
        }
    }
}

builder!(EndpointsBuilder: ClusterLoadAssignment);

/// Parses an address; an invalid one is a mistake in the test.
#[track_caller]
fn parse(text: &str) -> SocketAddr {
    match text.parse() {
        Ok(address) => address,
        Err(_) => panic!("{text:?} is not an IP address with a port"),
    }
}

/// An endpoint with an address, and defaults for everything else.
fn lb_endpoint(address: SocketAddr) -> LbEndpoint {
    let address = socket_address(&address.ip().to_string(), address.port());
    let endpoint = Endpoint { address: Some(address), ..Endpoint::default() };
    LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..LbEndpoint::default() }
}
