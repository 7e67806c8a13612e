//! The behavior of servers in use, for tests of clients.

use std::collections::BTreeSet;

/// The freedoms that the protocol leaves to a server, and the behavior of servers in use. The default is the behavior
/// that is easiest for clients; each switch selects that of the named servers.
///
/// The switches are for tests of clients. A production server needs none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Behavior {
    /// Ignores the resource names of a request with `error_detail` (NACK): changes of the subscription in it are
    /// lost, in both variants. istiod and Consul do so.
    pub ignore_names_in_nack: bool,
    /// Supports the legacy wildcard alone, an empty list of names in the first request of a type; `*` is an ordinary
    /// name. Consul does so, and in the state-of-the-world variant istiod's generator for gRPC clients.
    pub legacy_wildcard_only: bool,
    /// In the state-of-the-world variant, sends no response to the first request of a type on a stream if its
    /// `version_info` is the current version: always for a wildcard, as go-control-plane and java-control-plane do,
    /// and for names if the client accepted all these resources on earlier streams that the session
    /// [resumes](super::Session::resume). The incremental variant always does so for each resource, unless
    /// [`ignore_initial_versions`](super::Settings::ignore_initial_versions) is set.
    pub skip_known_versions: bool,
    /// Type URLs for which the server ends the stream with an error. istiod does so for unknown types.
    pub unknown_types: BTreeSet<String>,
    /// Sends empty versions of resources in the incremental variant, so that a client has no initial versions for its
    /// next stream. istiod does so.
    pub empty_resource_versions: bool,
    /// In the state-of-the-world variant, responds to added names only when the version of the type changes. Cilium
    /// does so.
    pub new_names_with_next_version: bool,
    /// In the state-of-the-world variant, responds only to requests with the names of all resources of the type, or
    /// the wildcard. go-control-plane does so in ADS mode.
    pub all_names_only: bool,
    /// Adds a resource without a subscription to responses, as the protocol allows.
    pub unsolicited_resources: bool,
    /// Sends the resources of an accepted response again, in another response.
    pub send_twice: bool,
    /// In the incremental variant, reports each removed resource also to clients without a subscription to it.
    pub unsolicited_removals: bool,
    /// In the state-of-the-world variant, treats an empty list of names as the wildcard even after names were
    /// requested. go-control-plane does so.
    pub empty_list_is_wildcard: bool,
    /// Continues to send all resources of a wildcard until the stream ends, although the client has unsubscribed from
    /// it. go-control-plane does so in the incremental variant, on a stream without any requested name.
    pub keeps_wildcard: bool,
    /// In the incremental variant, uses the same nonce for all responses of a stream. In the other variant nonces
    /// must differ, since they identify outdated requests.
    pub constant_nonces: bool,
    /// Every second heartbeat has twice the resource's time to live.
    pub heartbeats_change_ttl: bool,
    /// In the state-of-the-world variant, keeps the names whose resources it has sent for as long as the stream lasts, and
    /// responds to added names only if one of them is another, the version changes, or the request has no version.
    /// go-control-plane does so up to 0.13.1.
    pub keeps_known_names: bool,
    /// Reports that there is nothing by the name `*` as a `Resource` with that name and without a resource, where `*` is an
    /// ordinary name (`legacy_wildcard_only`).
    pub unset_wildcard: bool,
    /// Compares names as text, so that another spelling of a name is another name. Traffic Director and go-control-plane do so.
    pub compares_text: bool,
    /// The reaction to a NACK.
    pub after_nack: AfterNack,
    /// Shuffles the resources of each response, with this seed. Go servers that iterate over a map do so, such as
    /// go-control-plane.
    pub shuffle_resources: Option<u64>,
    /// Sends heartbeats even when so much time has passed since the last one that the resources have expired. Servers
    /// with a simple heartbeat timer do so, such as go-control-plane.
    pub heartbeats_after_expiry: bool,
    /// Sends heartbeats for the newest version even when the client has rejected it. go-control-plane does so.
    pub heartbeats_after_nack: bool,
}

/// The reaction of a server to a rejected response, while the resources do not change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterNack {
    /// Sends no rejected resource until it changes or is subscribed to again. istiod does so.
    #[default]
    Nothing,
    /// Sends the same resources again, at once. go-control-plane does so in the state-of-the-world variant.
    SameResources,
    /// Sends the same resources again after five seconds, a timer that runs in
    /// [`handle_time`](super::Session::handle_time).
    SameResourcesLater,
    /// Sends no response of any type until the client sends a request other than a NACK, or resources of one of its
    /// types change. Consul does so.
    Silence,
}

impl Behavior {
    /// The nonce of the response with this number.
    pub(super) fn nonce(&self, response: u64) -> String {
        if self.constant_nonces { "constant".to_owned() } else { response.to_string() }
    }

    /// Orders the resources of the response with this number.
    pub(super) fn order<T>(&self, resources: &mut [T], response: u64) {
        if let Some(seed) = self.shuffle_resources {
            fastrand::Rng::with_seed(seed ^ response).shuffle(resources);
        }
    }
}
