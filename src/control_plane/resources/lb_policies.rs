use super::extension;
use crate::pb::envoy::config::{
    cluster::v3::{LoadBalancingPolicy, load_balancing_policy::Policy},
    core::v3::TypedExtensionConfig,
};

/// A load balancing policy of a cluster; see [`lb_policy`].
#[derive(Debug, Clone, PartialEq)]
pub struct LbPolicyBuilder {
    /// The message so far.
    policy: Policy,
}

/// The load balancing policies of clusters, with the defaults of their messages.
///
/// ```
/// use xdskit::control_plane::resources::{cluster, lb_policy};
///
/// let spread = cluster("a").lb_policy(lb_policy::round_robin());
/// let sticky = cluster("b").lb_policy(lb_policy::ring_hash(1024, 4096)); // with a hash policy of the route
/// let weighted = cluster("c").lb_policy(lb_policy::wrr_locality(lb_policy::least_request(2)));
/// ```
pub mod lb_policy {
    use prost::Message;

    use super::{LbPolicyBuilder, list, policy};
    use crate::{
        control_plane::resources::{duration, number},
        pb::{
            envoy::extensions::load_balancing_policies::{
                client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin,
                least_request::v3::LeastRequest, maglev::v3::Maglev, pick_first::v3::PickFirst,
                random_subsetting::v3::RandomSubsetting, ring_hash::v3::RingHash,
                round_robin::v3::RoundRobin, wrr_locality::v3::WrrLocality,
            },
            google::protobuf::UInt64Value,
        },
    };
    use std::time::Duration;

    /// One endpoint after the other.
    pub fn round_robin() -> LbPolicyBuilder {
        policy("round_robin.v3.RoundRobin", &RoundRobin::default())
    }

    /// The endpoint with the fewest requests in flight of some random ones; at least 2.
    pub fn least_request(choices: u32) -> LbPolicyBuilder {
        let message = LeastRequest { choice_count: number(choices), ..LeastRequest::default() };
        policy("least_request.v3.LeastRequest", &message)
    }

    /// The endpoint at the hash of the request on a ring with these numbers of entries, at most 8,388,608. The hash is that of
    /// [`RouteBuilder::hash_header`](crate::control_plane::resources::RouteBuilder::hash_header).
    pub fn ring_hash(minimum: u64, maximum: u64) -> LbPolicyBuilder {
        let size = |value| Some(UInt64Value { value });
        let message = RingHash {
            minimum_ring_size: size(minimum),
            maximum_ring_size: size(maximum),
            ..RingHash::default()
        };
        policy("ring_hash.v3.RingHash", &message)
    }

    /// The endpoint at the hash of the request in a table.
    pub fn maglev() -> LbPolicyBuilder {
        policy("maglev.v3.Maglev", &Maglev::default())
    }

    /// The first endpoint that can be reached.
    pub fn pick_first() -> LbPolicyBuilder {
        policy("pick_first.v3.PickFirst", &PickFirst::default())
    }

    /// Endpoints by the load that they report with their responses (A58). Until they have done so for the blackout period, weights are
    /// equal.
    pub fn client_side_weighted_round_robin(blackout: Duration) -> LbPolicyBuilder {
        let message = ClientSideWeightedRoundRobin {
            blackout_period: Some(duration(blackout)),
            ..ClientSideWeightedRoundRobin::default()
        };
        policy("client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin", &message)
    }

    /// Localities by their weights, and another policy within each.
    pub fn wrr_locality(child: LbPolicyBuilder) -> LbPolicyBuilder {
        let message = WrrLocality { endpoint_picking_policy: Some(list([child])) };
        policy("wrr_locality.v3.WrrLocality", &message)
    }

    /// Another policy for a random subset of the endpoints, of this size.
    pub fn random_subsetting(size: u32, child: LbPolicyBuilder) -> LbPolicyBuilder {
        let message = RandomSubsetting { subset_size: number(size), child_policy: Some(list([child])) };
        policy("random_subsetting.v3.RandomSubsetting", &message)
    }

    /// A policy by the full name of its message, such as one of the application.
    pub fn custom(type_name: &str, message: &impl Message) -> LbPolicyBuilder {
        LbPolicyBuilder::new(type_name, message)
    }
}

impl LbPolicyBuilder {
    /// A policy by the full name of its message.
    fn new(type_name: &str, message: &impl prost::Message) -> Self {
        let config = TypedExtensionConfig {
            name: type_name.to_owned(),
            typed_config: Some(extension(type_name, message)),
        };
        Self { policy: Policy { typed_extension_config: Some(config) } }
    }
}

/// A policy of Envoy's extensions.
fn policy(type_name: &str, message: &impl prost::Message) -> LbPolicyBuilder {
    LbPolicyBuilder::new(&format!("envoy.extensions.load_balancing_policies.{type_name}"), message)
}

/// A list of policies, of which clients use the first that they support.
pub(super) fn list(policies: impl IntoIterator<Item = LbPolicyBuilder>) -> LoadBalancingPolicy {
    LoadBalancingPolicy { policies: policies.into_iter().map(|builder| builder.policy).collect() }
}
