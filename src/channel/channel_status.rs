//! What a channel is doing, for its operators.

use std::{borrow::Cow, fmt, future::Future, pin::Pin, sync::Arc};

use serde::Serialize;
use tokio::sync::oneshot;

use super::{
    Channel, ChannelState,
    lookup::{FoundPlugin, RouterState},
    task::Control,
};
use crate::{
    balance::{
        connectivity::Connectivity,
        status::{
            ClusterStatus, ConnectionSecurity, EndpointStatus, LeafStatus, LocalityStatus, PriorityStatus,
        },
    },
    error::shortened,
    escape::{Escaped, write_columns},
};

/// The state of a channel at one time: its clusters, and their priorities, localities and endpoints with what becomes of calls.
///
/// Made by [`Channel::status`]. Its [`Display`](fmt::Display) form is a table for operators, followed by the errors. It is
/// [`Serialize`], so that a service of the application can show it as JSON to tools; the fields keep their names in later versions,
/// and further ones are added.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ChannelStatus {
    /// The target.
    pub target: Arc<str>,
    /// The state of the channel.
    pub state: ChannelState,
    /// The calls under way, until their responses are read.
    pub calls: usize,
    /// The calls since the channel was built.
    pub calls_begun: u64,
    /// The calls that have ended with the status OK.
    pub calls_succeeded: u64,
    /// The calls that have ended with another status, or were cancelled.
    pub calls_failed: u64,
    /// How many of the calls wait for the configuration, an endpoint or a stream.
    pub waiting: usize,
    /// Why the target cannot be resolved, or why the configuration may be stale.
    pub error: Option<Arc<str>>,
    /// The clusters that routes name, in the order of their names. Empty while the channel is idle.
    pub clusters: Vec<ClusterStatus>,
    /// The clusters with endpoints that these consist of. Those of an aggregate that are not needed are not there.
    pub leaves: Vec<LeafStatus>,
    /// The parts of the configuration that the channel does not use: those that validation has left out, and fields that are not
    /// executed. Each is a warning in the log when it begins.
    pub not_executed: Vec<Arc<str>>,
    /// The lookup services by which routes choose clusters (RLS), in the order of the names of their plugins.
    pub lookups: Vec<LookupStatus>,
}

/// A plugin of routes by which clusters are looked up (RLS).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LookupStatus {
    /// The name of the plugin in the route configuration.
    pub plugin: Arc<str>,
    /// The lookup service. Empty if the plugin is not executed.
    pub service: Arc<str>,
    /// The number of the entries in the cache: responses, and failures with a backoff.
    pub cache_entries: usize,
    /// The size of the cache in bytes.
    pub cache_bytes: usize,
    /// The lookups under way.
    pub pending: usize,
    /// Why there is no channel to the lookup service.
    pub error: Option<Arc<str>>,
    /// The channel to the lookup service.
    pub channel: Option<Box<ChannelStatus>>,
}

impl Channel {
    /// What the channel is doing: its clusters, with the state, the weight and the calls of each endpoint, and what is wrong.
    ///
    /// The task of the channel collects it, between two events; calls are not delayed. It takes time in proportion to the number of
    /// endpoints, so that it is for operators and not for each call.
    ///
    /// ```no_run
    /// # async fn show(shop: xdskit::Channel) -> Result<(), serde_json::Error> {
    /// let status = shop.status().await;
    /// println!("{status}"); // a table
    /// println!("{}", serde_json::to_string(&status)?); // for tools
    /// for leaf in &status.leaves {
    ///     for endpoint in leaf.endpoints().filter(|endpoint| endpoint.ejected_for.is_some()) {
    ///         println!("{}: {:?} is ejected", leaf.name, endpoint.addresses);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn status(&self) -> ChannelStatus {
        let (answer, collected) = oneshot::channel();
        // Without a task the channel is shut down, and has no clusters.
        let _ = self.shared.control.send(Control::Status(answer));
        let collected = collected.await.unwrap_or_default();
        let calls = &self.shared.calls;
        let mut lookups = Vec::new();
        for (plugin, found) in calls.lookups.all() {
            lookups.push(LookupStatus::collect(plugin, found).await);
        }
        let counts = calls.active.counts();
        ChannelStatus {
            target: self.shared.target.as_str().into(),
            state: self.state(),
            calls: counts.running,
            calls_begun: counts.begun,
            calls_succeeded: counts.succeeded,
            calls_failed: counts.failed,
            waiting: calls.published.waiting(),
            error: collected.error,
            clusters: collected.clusters,
            leaves: collected.leaves,
            not_executed: collected.not_executed,
            lookups,
        }
    }
}

impl LookupStatus {
    async fn collect(plugin: Arc<str>, found: FoundPlugin) -> Self {
        let state = match found {
            FoundPlugin::Router(router) => router.state(),
            FoundPlugin::BeyondLimit(limit) => RouterState {
                service: "".into(),
                entries: 0,
                bytes: 0,
                pending: 0,
                channel: Err(format!("the routes have more than {limit} plugins, the maximum").into()),
            },
        };
        let RouterState { service, entries, bytes, pending, channel } = state;
        let (channel, error) = match channel {
            Ok(channel) => (Some(Box::new(nested_status(channel).await)), None),
            Err(error) => (None, Some(error)),
        };
        Self { plugin, service, cache_entries: entries, cache_bytes: bytes, pending, error, channel }
    }
}

/// The status of a channel within that of another one. A channel to a lookup service executes no plugins (RL12).
fn nested_status(channel: Channel) -> Pin<Box<dyn Future<Output = ChannelStatus> + Send>> {
    Box::pin(async move { channel.status().await })
}

impl LeafStatus {
    /// The endpoints of all priorities.
    pub fn endpoints(&self) -> impl Iterator<Item = &EndpointStatus> {
        let localities = self.priorities.iter().flat_map(|priority| &priority.localities);
        localities.flat_map(|locality| &locality.endpoints)
    }
}

impl fmt::Display for ChannelStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, state, calls, waiting, error, clusters, leaves, not_executed, .. } = self;
        let Self { calls_succeeded, calls_failed, lookups, .. } = self;
        write!(f, "Channel {}: {state}, {calls} calls, {waiting} of them waiting; ", Escaped(target))?;
        write!(f, "{calls_succeeded} succeeded, {calls_failed} failed")?;
        for cluster in clusters {
            write!(f, "\n{cluster}")?;
        }
        for leaf in leaves {
            write!(f, "\n\n{leaf}")?;
        }
        for part in not_executed {
            write!(f, "\n- {}", shortened(part, LONGEST_ERROR))?;
        }
        if let Some(error) = error {
            write!(f, "\n! {}", Escaped(shortened(error, LONGEST_ERROR)))?;
        }
        lookups.iter().try_for_each(|lookup| write!(f, "\n\n{lookup}"))
    }
}

impl fmt::Display for LookupStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plugin, service, cache_entries, cache_bytes, pending, error, channel } = self;
        write!(f, "Lookups of {} by {}: {cache_entries} entries", named(plugin), named(service))?;
        write!(f, " of {cache_bytes} bytes, {pending} lookups under way")?;
        if let Some(channel) = channel {
            write!(f, "\n{channel}")?;
        }
        error.as_ref().map_or(Ok(()), |error| write!(f, "\n! {}", Escaped(shortened(error, LONGEST_ERROR))))
    }
}

impl fmt::Display for ClusterStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster {}: {}", named(&self.name), self.state)?;
        if self.leaves.len() != 1 || self.leaves.first() != Some(&self.name) {
            let leaves: Vec<_> = self.leaves.iter().map(|leaf| named(leaf).to_string()).collect();
            write!(f, ", leaves {}", leaves.join(", "))?;
            if let Some(active) = &self.active_leaf {
                write!(f, " (active: {})", named(active))?;
            }
        }
        self.error
            .as_ref()
            .map_or(Ok(()), |error| write!(f, "; {}", Escaped(shortened(error, LONGEST_ERROR))))
    }
}

impl fmt::Display for LeafStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, state, policy, requests, max_requests, priorities, unused } = self;
        write!(f, "Endpoints of {}: {state}, {policy}, {requests} of {max_requests} requests", named(name))?;
        let all = priorities.iter().enumerate();
        let rows = all.flat_map(|(number, priority)| priority.rows(number)).collect::<Vec<_>>();
        f.write_str("\n")?;
        write_columns(f, &HEAD, &rows)?;
        for endpoint in unused {
            write!(f, "\n- {} gets no calls: {:?}", endpoint.address, endpoint.health)?;
        }
        for endpoint in self.endpoints() {
            if let (Some(address), Some(error)) = (endpoint.addresses.first(), &endpoint.error) {
                write!(f, "\n! {address}: {}", Escaped(shortened(error, LONGEST_ERROR)))?;
            }
        }
        Ok(())
    }
}

impl PriorityStatus {
    /// Returns a row for each endpoint.
    fn rows(&self, number: usize) -> impl Iterator<Item = Row> {
        let priority = format!("{number}{}", if self.is_active { " active" } else { "" });
        self.localities.iter().flat_map(move |locality| {
            let priority = priority.clone();
            locality.endpoints.iter().map(move |endpoint| endpoint.row(&priority, locality))
        })
    }
}

impl EndpointStatus {
    /// Returns the columns of an endpoint.
    fn row(&self, priority: &str, of: &LocalityStatus) -> Row {
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        let parts = [of.locality.region(), of.locality.zone(), of.locality.sub_zone()];
        let parts: Vec<_> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| Escaped(part).to_string()).collect();
        let weight =
            self.load_weight.map_or_else(|| self.weight.to_string(), |load| format!("{load:.1} by load"));
        [
            addresses.join(", "),
            priority.to_owned(),
            parts.join("/"),
            self.state.to_string(),
            self.health.map(|health| format!("{health:?}")).unwrap_or_default(),
            weight,
            self.calls.to_string(),
            self.connections.len().to_string(),
            self.ejected_for.map(|duration| format!("for {} s", duration.as_secs())).unwrap_or_default(),
            // That of its connections is configured alike.
            self.connections.first().map(|connection| connection.security.to_string()).unwrap_or_default(),
        ]
    }
}

/// Describes the security in one line, without secrets.
impl fmt::Display for ConnectionSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |peer: &Option<Arc<str>>| match peer {
            Some(peer) => Escaped(peer).to_string(),
            None => "a server without names".to_owned(),
        };
        match self {
            Self::Plaintext => f.write_str("plaintext"),
            Self::Fallback { peer } => write!(f, "fallback TLS to {}", named(peer)),
            Self::Cluster { roots, identity, server_name, peer } => {
                write!(f, "TLS to {}", named(peer))?;
                match roots {
                    Some(roots) => write!(f, ", roots {}", Escaped(roots))?,
                    None => f.write_str(", system roots")?,
                }
                for (what, value) in [("identity", identity), ("SNI", server_name)] {
                    if let Some(value) = value {
                        write!(f, ", {what} {}", Escaped(value))?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Connectivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ChannelState::from(*self).fmt(f)
    }
}

/// Shows a name that comes from another party.
fn named(name: &str) -> Escaped<Cow<'_, str>> {
    Escaped(shortened(name, LONGEST_NAME))
}

/// The columns of the table.
type Row = [String; 10];

/// The longest name or error of another party in a line, in bytes; the middle of a longer one is left out.
const LONGEST_NAME: usize = 200;
const LONGEST_ERROR: usize = 2048;

/// The titles of the columns.
const HEAD: [&str; 10] = [
    "Address",
    "Priority",
    "Locality",
    "State",
    "Health",
    "Weight",
    "Calls",
    "Connections",
    "Ejected",
    "Security",
];

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::{
        balance::status::{ConnectionStatus, UnusedEndpoint},
        config::Locality,
        resource::HealthStatus,
    };

    /// A connection with these texts.
    fn connection(address: SocketAddr, long: &Arc<str>) -> ConnectionStatus {
        let security = ConnectionSecurity::Cluster {
            roots: Some(long.clone()),
            identity: Some(long.clone()),
            server_name: Some(long.clone()),
            peer: Some(long.clone()),
        };
        ConnectionStatus {
            address,
            id: 1,
            local_address: Some(address),
            calls: 0,
            streams_begun: 0,
            streams_completed: 0,
            max_calls: 1,
            security,
            tls: None,
        }
    }

    fn lookup(long: &Arc<str>) -> LookupStatus {
        LookupStatus {
            plugin: long.clone(),
            service: long.clone(),
            cache_entries: 0,
            cache_bytes: 0,
            pending: 0,
            error: Some(long.clone()),
            channel: None,
        }
    }

    /// A width in a format string is a `u16`, and names of servers may be longer.
    #[test]
    fn a_status_can_be_shown_whatever_the_length_of_its_texts() {
        let long: Arc<str> = "é".repeat(1 << 20).into();
        let address = ([127, 0, 0, 1], 80).into();
        let endpoint = EndpointStatus {
            addresses: vec![address; 10_000],
            hostname: Some(long.clone()),
            health: Some(HealthStatus::Healthy),
            state: Connectivity::Ready,
            weight: 1,
            load_weight: None,
            calls: 0,
            connections: vec![connection(address, &long)],
            ejected_for: None,
            error: Some(long.clone()),
        };
        let locality = LocalityStatus {
            locality: Locality::new(&long, &long, &long),
            weight: 1,
            endpoints: vec![endpoint],
        };
        let priority = PriorityStatus {
            state: Some(Connectivity::Ready),
            is_active: true,
            error: Some(long.clone()),
            localities: vec![locality],
        };
        let leaf = LeafStatus {
            name: long.clone(),
            state: Connectivity::Ready,
            policy: "round_robin",
            requests: 0,
            max_requests: 1,
            priorities: vec![priority],
            unused: vec![UnusedEndpoint { address, health: HealthStatus::Draining }],
        };
        let cluster = ClusterStatus {
            name: long.clone(),
            state: Connectivity::Ready,
            leaves: vec![long.clone(), long.clone()],
            active_leaf: Some(long.clone()),
            error: Some(long.clone()),
        };
        let status = ChannelStatus {
            target: "xds:///shop".into(),
            state: ChannelState::Ready,
            calls: 0,
            calls_begun: 0,
            calls_succeeded: 0,
            calls_failed: 0,
            waiting: 0,
            error: Some(long.clone()),
            clusters: vec![cluster],
            leaves: vec![leaf],
            not_executed: vec!["x".repeat(1 << 20).into()],
            lookups: vec![lookup(&long)],
        };
        let shown = status.to_string();
        assert!(shown.len() < 20_000, "{} bytes", shown.len());
    }
}
