//! What the service shows of a channel, with the ids of its parts.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use bytes::Bytes;

use crate::{
    channel::{
        ChannelState, ChannelStatus, ConnectionSecurity, ConnectionStatus, Connectivity, EndpointStatus,
    },
    pb::grpc::channelz::v1::{
        self as pb, ChannelConnectivityState, ChannelData, ChannelRef, SocketData, SocketRef, SubchannelRef,
        address::{Address, TcpIpAddress},
        channel_connectivity_state::State,
        security::{Model, Tls, tls::CipherSuite},
    },
};

/// A channel at one time, as messages.
#[derive(Debug)]
pub(super) struct View {
    pub(super) channel: pb::Channel,
    /// The channels to the lookup services of its routes.
    pub(super) nested: BTreeMap<i64, pb::Channel>,
    pub(super) subchannels: BTreeMap<i64, pb::Subchannel>,
    pub(super) sockets: BTreeMap<i64, pb::Socket>,
}

/// The ids of the parts of a channel. They stay as long as the parts are there.
#[derive(Debug, Default)]
pub(super) struct ChannelIds {
    subchannels: BTreeMap<Subchannel, SubchannelIds>,
    nested: BTreeMap<Nested, NestedIds>,
}

/// A channel to a lookup service, by the names of the plugin and of the service.
type Nested = (Arc<str>, Arc<str>);

/// The ids of a channel to a lookup service.
#[derive(Debug)]
struct NestedIds {
    id: i64,
    parts: ChannelIds,
}

/// An endpoint of a cluster, which several of its priorities may have.
type Subchannel = (Arc<str>, Vec<SocketAddr>);

/// The ids of a subchannel and of its connections.
#[derive(Debug)]
struct SubchannelIds {
    id: i64,
    sockets: BTreeMap<u64, i64>,
}

impl View {
    /// Converts the status of a channel. Ids of parts that are gone are forgotten.
    pub(super) fn new(id: i64, status: &ChannelStatus, ids: &mut ChannelIds) -> Self {
        let mut parts = Self {
            channel: channel(id, status),
            nested: BTreeMap::new(),
            subchannels: BTreeMap::new(),
            sockets: BTreeMap::new(),
        };
        parts.add_lookups(status, ids);
        let mut known = std::mem::take(&mut ids.subchannels);
        for leaf in &status.leaves {
            let used = leaf.priorities.iter().filter(|priority| priority.state.is_some());
            let localities = used.flat_map(|priority| &priority.localities);
            for endpoint in localities.flat_map(|locality| &locality.endpoints) {
                let key = (leaf.name.clone(), endpoint.addresses.clone());
                if ids.subchannels.contains_key(&key) {
                    continue;
                }
                let known = known.remove(&key);
                let mut of_endpoint =
                    known.unwrap_or_else(|| SubchannelIds { id: next_id(), sockets: BTreeMap::new() });
                parts.add(endpoint, &mut of_endpoint);
                ids.subchannels.insert(key, of_endpoint);
            }
        }
        parts
    }

    /// The channel, or one to a lookup service of it, with this id.
    pub(super) fn channel_with(&self, id: i64) -> Option<&pb::Channel> {
        let is_it = self.channel.r#ref.as_ref().is_some_and(|of| of.channel_id == id);
        if is_it { Some(&self.channel) } else { self.nested.get(&id) }
    }

    /// Adds the channels to lookup services, with their parts.
    fn add_lookups(&mut self, status: &ChannelStatus, ids: &mut ChannelIds) {
        let mut known = std::mem::take(&mut ids.nested);
        for lookup in &status.lookups {
            let Some(status) = &lookup.channel else { continue };
            let key = (lookup.plugin.clone(), lookup.service.clone());
            let mut nested = known
                .remove(&key)
                .unwrap_or_else(|| NestedIds { id: next_id(), parts: ChannelIds::default() });
            let view = Self::new(nested.id, status, &mut nested.parts);
            self.channel.channel_ref.extend(view.channel.r#ref.clone());
            self.nested.insert(nested.id, view.channel);
            self.nested.extend(view.nested);
            self.subchannels.extend(view.subchannels);
            self.sockets.extend(view.sockets);
            ids.nested.insert(key, nested);
        }
    }

    /// Adds an endpoint with its connections.
    fn add(&mut self, endpoint: &EndpointStatus, ids: &mut SubchannelIds) {
        let known = std::mem::take(&mut ids.sockets);
        let mut socket_ref = Vec::new();
        for connection in &endpoint.connections {
            let id = known.get(&connection.id).copied().unwrap_or_else(next_id);
            ids.sockets.insert(connection.id, id);
            let socket = socket(id, connection);
            socket_ref.extend(socket.r#ref.clone());
            self.sockets.insert(id, socket);
        }
        let addresses: Vec<_> = endpoint.addresses.iter().map(SocketAddr::to_string).collect();
        let name = addresses.join(",");
        let count = |of: fn(&ConnectionStatus) -> u64| endpoint.connections.iter().map(of).sum::<u64>();
        let data = ChannelData {
            state: Some(state(of_endpoint(endpoint.state))),
            target: name.clone(),
            calls_started: number(count(|connection| connection.streams_begun)),
            calls_succeeded: number(count(|connection| connection.streams_completed)),
            calls_failed: number(count(failed)),
        };
        let subchannel_ref = SubchannelRef { subchannel_id: ids.id, name };
        self.channel.subchannel_ref.push(subchannel_ref.clone());
        let subchannel = pb::Subchannel { r#ref: Some(subchannel_ref), data: Some(data), socket_ref };
        self.subchannels.insert(ids.id, subchannel);
    }
}

impl ChannelIds {
    /// Whether a channel to a lookup service has this id.
    pub(super) fn has_nested(&self, id: i64) -> bool {
        self.nested.values().any(|nested| nested.id == id || nested.parts.has_nested(id))
    }

    /// Whether a subchannel has this id.
    pub(super) fn has_subchannel(&self, id: i64) -> bool {
        self.subchannels.values().any(|ids| ids.id == id)
            || self.nested.values().any(|nested| nested.parts.has_subchannel(id))
    }

    /// Whether a connection has this id.
    pub(super) fn has_socket(&self, id: i64) -> bool {
        self.subchannels.values().any(|ids| ids.sockets.values().any(|known| *known == id))
            || self.nested.values().any(|nested| nested.parts.has_socket(id))
    }
}

/// An id that nothing in the process has.
pub(super) fn next_id() -> i64 {
    static LAST: AtomicI64 = AtomicI64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A channel without its subchannels.
fn channel(id: i64, status: &ChannelStatus) -> pb::Channel {
    let target = status.target.to_string();
    let data = ChannelData {
        state: Some(state(of_channel(status.state))),
        target: target.clone(),
        calls_started: number(status.calls_begun),
        calls_succeeded: number(status.calls_succeeded),
        calls_failed: number(status.calls_failed),
    };
    let channel_ref = ChannelRef { channel_id: id, name: target };
    pb::Channel { r#ref: Some(channel_ref), data: Some(data), ..pb::Channel::default() }
}

/// A connection.
fn socket(id: i64, connection: &ConnectionStatus) -> pb::Socket {
    let name = match connection.local_address {
        Some(local) => format!("{local} -> {}", connection.address),
        None => connection.address.to_string(),
    };
    let data = SocketData {
        streams_started: number(connection.streams_begun),
        streams_succeeded: number(connection.streams_completed),
        streams_failed: number(failed(connection)),
    };
    let security = connection.tls.as_ref().map(|tls| pb::Security {
        model: Some(Model::Tls(Tls {
            cipher_suite: tls.cipher_suite.map(|name| CipherSuite::StandardName(name.to_owned())),
            local_certificate: tls
                .local_certificate
                .as_deref()
                .map(Bytes::copy_from_slice)
                .unwrap_or_default(),
            remote_certificate: Bytes::copy_from_slice(&tls.peer_certificate),
        })),
    });
    pb::Socket {
        r#ref: Some(SocketRef { socket_id: id, name }),
        data: Some(data),
        local: connection.local_address.map(address),
        remote: Some(address(connection.address)),
        security,
        remote_name: peer(&connection.security).unwrap_or_default().to_owned(),
    }
}

/// The streams that have ended without a status.
fn failed(connection: &ConnectionStatus) -> u64 {
    let ended = connection.streams_begun.saturating_sub(connection.calls);
    ended.saturating_sub(connection.streams_completed)
}

/// What the peer has proved to be.
fn peer(security: &ConnectionSecurity) -> Option<&str> {
    match security {
        ConnectionSecurity::Plaintext => None,
        ConnectionSecurity::Fallback { peer } | ConnectionSecurity::Cluster { peer, .. } => peer.as_deref(),
    }
}

fn address(of: SocketAddr) -> pb::Address {
    let ip_address = match of.ip() {
        IpAddr::V4(ip) => Bytes::copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => Bytes::copy_from_slice(&ip.octets()),
    };
    pb::Address { address: Some(Address::TcpipAddress(TcpIpAddress { ip_address, port: of.port().into() })) }
}

fn state(state: State) -> ChannelConnectivityState {
    ChannelConnectivityState { state: state.into() }
}

fn of_channel(state: ChannelState) -> State {
    match state {
        ChannelState::Idle => State::Idle,
        ChannelState::Connecting => State::Connecting,
        ChannelState::Ready => State::Ready,
        ChannelState::TransientFailure => State::TransientFailure,
        ChannelState::Shutdown => State::Shutdown,
    }
}

fn of_endpoint(state: Connectivity) -> State {
    match state {
        Connectivity::Idle => State::Idle,
        Connectivity::Connecting => State::Connecting,
        Connectivity::Ready => State::Ready,
        Connectivity::TransientFailure => State::TransientFailure,
    }
}

/// A count in the type that the protocol has for it.
fn number(count: u64) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
