use std::collections::BTreeSet;

/// The freedoms that the protocol leaves to a server, and the habits of servers in use. The default is a server that makes
/// it as easy for its clients as the protocol allows; with a switch it behaves as the named servers do.
///
/// The switches are for tests of clients. A server for production needs none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Behavior {
    /// Reads no resource names from a request with `error_detail` (NACK): changes of the subscription in it are lost, in both
    /// variants. istiod and Consul do so.
    pub ignore_names_in_nack: bool,
    /// Knows no wildcard but the legacy one, an empty list of names in the first request of a type; `*` is a name like others.
    /// Consul does so, and in the state-of-the-world variant istiod's generator for gRPC clients.
    pub legacy_wildcard_only: bool,
    /// In the state-of-the-world variant, sends nothing for the first request of a type on a stream if its `version_info` is
    /// the current version: to a wildcard always, as go-control-plane and java-control-plane do, and to names if the client
    /// accepted all these resources on earlier streams that the session [resumes](super::Session::resume). The incremental
    /// variant always does so for each resource, unless
    /// [`ignore_initial_versions`](super::Settings::ignore_initial_versions) is set.
    pub skip_known_versions: bool,
    /// URLs of types for which the server ends the stream with an error. istiod does so for types that it does not know.
    pub unknown_types: BTreeSet<String>,
    /// Gives resources of the incremental variant empty versions, so that a client cannot tell on its next stream what it holds.
    /// istiod does so.
    pub empty_resource_versions: bool,
    /// In the state-of-the-world variant, answers names that are added on a stream only when the version of the type rises. Cilium
    /// does so.
    pub new_names_with_next_version: bool,
    /// In the state-of-the-world variant, answers only to requests that name all resources of the type, or the wildcard.
    /// go-control-plane does so in ADS mode.
    pub all_names_only: bool,
    /// Sends resources that the client has not subscribed to beside others, as the protocol allows.
    pub unsolicited_resources: bool,
    /// Sends the resources of an accepted response once more, in another one.
    pub send_twice: bool,
    /// In the incremental variant, says of every resource that it is removed, also to clients that have not subscribed to it.
    pub unsolicited_removals: bool,
    /// In the state-of-the-world variant, takes an empty list of names for the wildcard, also after names were requested.
    /// go-control-plane does so.
    pub empty_list_is_wildcard: bool,
    /// Sends everything that a wildcard stands for until the stream ends, although the client has unsubscribed from it.
    /// go-control-plane does so in the incremental variant, on a stream on which nothing was named.
    pub keeps_wildcard: bool,
    /// In the incremental variant, gives all responses of a stream the same nonce. In the other one nonces have to differ, since
    /// they tell outdated requests (B1.8).
    pub constant_nonces: bool,
    /// Every other heartbeat gives twice the time to live that the resource had.
    pub heartbeats_change_ttl: bool,
    /// What follows a NACK.
    pub after_nack: AfterNack,
    /// Gives the resources of each response another order, by this seed. Servers in Go that iterate a map do so, such as
    /// go-control-plane.
    pub shuffle_resources: Option<u64>,
    /// Sends heartbeats although so much time has passed since the last one that the resources have expired. Servers whose
    /// heartbeats are made by a timer alone do so, such as go-control-plane.
    pub heartbeats_after_expiry: bool,
    /// Sends heartbeats for the newest version although the client has rejected it. go-control-plane does so.
    pub heartbeats_after_nack: bool,
}

/// What a server sends when a response was rejected and nothing has changed since.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterNack {
    /// Nothing of what was rejected until it changes or is subscribed to again. istiod does so.
    #[default]
    Nothing,
    /// The same resources again, at once. go-control-plane does so in the state-of-the-world variant.
    SameResources,
    /// The same resources again, by a timer of five seconds, which runs in [`handle_time`](super::Session::handle_time).
    SameResourcesLater,
    /// No response of any type until the client sends another request than a NACK, or resources of one of its types change.
    /// Consul does so.
    Silence,
}

impl Behavior {
    /// The nonce of the response with a number.
    pub(super) fn nonce(&self, response: u64) -> String {
        if self.constant_nonces { "constant".to_owned() } else { response.to_string() }
    }

    /// Orders the resources of the response with a number.
    pub(super) fn order<T>(&self, resources: &mut [T], response: u64) {
        if let Some(seed) = self.shuffle_resources {
            fastrand::Rng::with_seed(seed ^ response).shuffle(resources);
        }
    }
}
