//! The resolution of the target of a channel: by xDS, or by DNS if it is a lookup service that is not a target of xDS.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    Client,
    background::supervise,
    client::{ClusterSubscription, Resolution},
    config::Target,
    error::{Blame, Code, Subject, WatchError},
    resolve::Snapshot,
    resource::{Listener, Resource as _},
};

/// What is known of a target: a snapshot, or the reason why there is none.
type Resolved = Result<Arc<Snapshot>, WatchError>;

/// A host with its port, which DNS resolves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::channel) struct DnsTarget {
    host: Arc<str>,
    port: u16,
}

/// A target with what resolves it.
pub(super) struct TargetSource {
    client: Client,
    target: Target,
    /// The host of the target, if it is no target of xDS.
    host: Option<DnsTarget>,
}

/// A resolution of either kind.
pub(super) enum TargetResolution {
    Xds(Resolution),
    Dns(DnsResolution),
}

/// The resolution of a host, which is repeated while the channel is in use.
pub(super) struct DnsResolution {
    target: Target,
    states: watch::Receiver<Option<Resolved>>,
    /// The lookups, which a drop ends.
    _lookups: JoinSet<()>,
}

impl DnsTarget {
    /// Parses a target of gRPC's name syntax: `dns:///host:port`, `dns:host:port`, `ipv4:address:port`, `ipv6:[address]:port`, or without
    /// a scheme `host:port`. The port is 443 by default.
    ///
    /// # Errors
    /// The target has another scheme, or is no host with a port.
    pub(in crate::channel) fn parse(target: &str) -> Result<Self, String> {
        let endpoint = match target.split_once(':') {
            Some(("dns" | "ipv4" | "ipv6", endpoint)) => match endpoint.strip_prefix("//") {
                // An authority is a DNS server, which the system's resolver has of its own.
                Some(rest) => rest.split_once('/').map(|(_, endpoint)| endpoint),
                None => Some(endpoint),
            },
            Some((_, rest)) if rest.starts_with('/') => None,
            Some(_) | None => Some(target),
        };
        let parsed = endpoint.and_then(|endpoint| {
            let (host, port) = match endpoint.rsplit_once(':') {
                Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
                Some(_) | None => (endpoint, HTTPS),
            };
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let is_host = !host.is_empty() && !host.contains(['/', ',', '@']);
            is_host.then(|| Self { host: host.into(), port })
        });
        parsed.ok_or_else(|| {
            format!("{target:?} is no target of the schemes xds, dns, ipv4 and ipv6 with one host and a port")
        })
    }

    /// Looks up the addresses.
    async fn look_up(&self) -> Result<Vec<SocketAddr>, String> {
        let host = &self.host;
        let found = timeout(TIMEOUT, tokio::net::lookup_host((&**host, self.port))).await;
        let found = found.map_err(|_| format!("host {host:?}: no response of DNS within {TIMEOUT:?}"))?;
        let found = found.map_err(|error| format!("host {host:?}: {error}"))?;
        let mut addresses = Vec::new();
        for address in found.take(MAX_ADDRESSES) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() { Err(format!("host {host:?} has no addresses")) } else { Ok(addresses) }
    }
}

impl TargetSource {
    pub(super) fn new(client: Client, target: Target, host: Option<DnsTarget>) -> Self {
        Self { client, target, host }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Begins the resolution.
    pub(super) fn resolve(&self) -> TargetResolution {
        let target = self.target.clone();
        let Some(host) = self.host.clone() else {
            return TargetResolution::Xds(self.client.resolve(&target));
        };
        let (sender, states) = watch::channel(None);
        let mut lookups = JoinSet::new();
        let task = resolve(host, target.clone(), sender);
        lookups.spawn(supervise("resolution of a lookup service", task, |_| {}));
        TargetResolution::Dns(DnsResolution { target, states, _lookups: lookups })
    }
}

impl TargetResolution {
    /// The next state; `None` if none follows.
    ///
    /// # Cancel safety
    /// No state is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Option<Resolved> {
        match self {
            Self::Xds(resolution) => resolution.next().await,
            Self::Dns(resolution) => {
                resolution.states.changed().await.ok()?;
                resolution.states.borrow_and_update().clone()
            }
        }
    }

    /// The latest state.
    pub(super) fn latest(&self) -> Option<Resolved> {
        match self {
            Self::Xds(resolution) => resolution.latest(),
            Self::Dns(resolution) => resolution.states.borrow().clone(),
        }
    }

    /// Keeps a cluster in the snapshots; those of a host have one that stays.
    pub(super) fn subscribe_cluster(&self, name: &str) -> Option<ClusterSubscription> {
        match self {
            Self::Xds(resolution) => Some(resolution.subscribe_cluster(name)),
            Self::Dns(_) => None,
        }
    }

    /// Passes the resolution to the application; there is none for a channel to a host, which is not the application's.
    pub(super) fn answer(&self, answer: oneshot::Sender<Resolution>) {
        if let Self::Xds(resolution) = self {
            // Without a receiver nobody waits.
            let _ = answer.send(resolution.clone());
        }
    }

    /// Requests another resolution. A host is resolved at intervals anyway.
    pub(super) fn request_reresolution(&self) {
        if let Self::Xds(resolution) = self {
            resolution.request_reresolution();
        }
    }

    /// The error after the end of the states.
    pub(super) fn shut_down(&self) -> WatchError {
        match self {
            Self::Xds(resolution) => resolution.shut_down(),
            Self::Dns(resolution) => failed(&resolution.target, "the resolution has ended"),
        }
    }
}

/// Resolves a host at intervals. A failure is published unless there are addresses, which stay in use.
async fn resolve(host: DnsTarget, target: Target, states: watch::Sender<Option<Resolved>>) {
    let mut current = Vec::new();
    while !states.is_closed() {
        match host.look_up().await {
            Ok(addresses) => {
                if addresses != current {
                    let snapshot = Snapshot::builder(SNAPSHOT_TARGET).cluster(CLUSTER, [&*addresses]);
                    let snapshot = snapshot.build(Instant::now().into_std());
                    current = addresses;
                    states.send_replace(Some(snapshot.map_err(|error| failed(&target, &error.to_string()))));
                }
                sleep(INTERVAL).await;
            }
            Err(reason) => {
                if current.is_empty() {
                    states.send_replace(Some(Err(failed(&target, &reason))));
                }
                sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

fn failed(target: &Target, reason: &str) -> WatchError {
    let name = target.as_str().into();
    let about = Subject { type_url: Listener::TYPE_URL, name, node: Arc::default() };
    WatchError::new(Code::Unavailable, Blame::Network, about, reason)
}

/// The default port.
const HTTPS: u16 = 443;
/// The target of the snapshots of hosts, which are no targets of xDS themselves.
const SNAPSHOT_TARGET: &str = "xds:///lookup-service";
/// The cluster with the addresses of a host.
const CLUSTER: &str = "lookup-service";
/// How many addresses of a host are used.
const MAX_ADDRESSES: usize = 100;
/// The time that a lookup may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The time between lookups of a host, as gRPC's least one.
const INTERVAL: Duration = Duration::from_secs(30);
/// The time after a failed lookup.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl13_lookup_services_are_hosts_with_ports() {
        for (target, host, port) in [
            ("dns:///lookup.example:8443", "lookup.example", 8443),
            ("dns://8.8.8.8/lookup.example:8443", "lookup.example", 8443),
            ("dns:lookup.example", "lookup.example", 443),
            ("lookup.example:80", "lookup.example", 80),
            ("lookup.example", "lookup.example", 443),
            ("ipv4:10.0.0.1:80", "10.0.0.1", 80),
            ("ipv6:[::1]:80", "::1", 80),
            ("ipv6:[::1]", "::1", 443),
        ] {
            assert_eq!(DnsTarget::parse(target), Ok(DnsTarget { host: host.into(), port }), "{target}");
        }
        for target in
            ["unix:///a/b", "google-c2p:///lookup", "dns:///", "a:b", "ipv4:10.0.0.1:1,10.0.0.2:1", ""]
        {
            let error = DnsTarget::parse(target).unwrap_err();
            assert!(error.starts_with(&format!("{target:?} is no target of the schemes")), "{error}");
        }
    }
}
