//! The listeners of servers: filter chains, and the choice of one for a connection.

use std::{collections::BTreeSet, net::SocketAddr};

use serde::Serialize;

mod connection;

pub use self::connection::Connection;

use self::connection::{Chains, Conditions};
use super::{
    Context, DownstreamTls, Invalid, connection_manager::HttpConnectionManager, http_filter::Side,
    matcher::Cidr, parts, remarks,
};
use crate::pb::envoy::config::{
    core::v3 as core,
    listener::v3::{self as pb, filter::ConfigType, filter_chain_match::ConnectionSourceType},
};

/// The listening socket of a server, with the filter chains of its connections.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SocketListener {
    /// The address that the server must be listening on.
    pub address: SocketAddr,
    /// The filter chains, in the order of the message; no two have the same conditions. Chains that can never be
    /// chosen are omitted.
    pub filter_chains: Box<[FilterChain]>,
    /// Destinations for which all chains are unusable: connections to them use the default chain, even if another
    /// chain matches a wider range.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub unserved_ranges: Box<[Cidr]>,
    /// The chain for connections that match no other; without it they are closed.
    pub default_filter_chain: Option<Box<FilterChain>>,
    /// Indexes in `filter_chains`, for the choice of a chain for each connection. JSON leaves it out, as it follows from the chains.
    #[serde(skip)]
    by_connection: Chains,
}

/// The handling of the connections that match its conditions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FilterChain {
    /// The name, for display; often empty.
    pub name: Box<str>,
    /// The connections that the chain is for; ignored for a default chain.
    #[serde(rename = "match")]
    pub conditions: FilterChainMatch,
    /// The handling of requests on the connections.
    pub connection_manager: HttpConnectionManager,
    /// TLS settings of the connections; `None` is plaintext.
    pub tls: Option<DownstreamTls>,
}

/// The place of a chain in its listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChainIndex {
    /// One of [`SocketListener::filter_chains`].
    Listed(usize),
    /// [`SocketListener::default_filter_chain`].
    Default,
}

/// The conditions on connections of a [`FilterChain`]. An empty list matches everything.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct FilterChainMatch {
    /// Ranges of destination addresses.
    pub prefix_ranges: Box<[Cidr]>,
    /// The type of source.
    pub source_type: SourceType,
    /// Ranges of source addresses.
    pub source_prefix_ranges: Box<[Cidr]>,
    /// Source ports.
    pub source_ports: Box<[u32]>,
}

/// The type of a connection's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SourceType {
    /// Any source.
    #[default]
    Any,
    /// Connections from the address of the destination, or from a loopback address.
    SameIpOrLoopback,
    /// Connections from another host.
    External,
}

impl SocketListener {
    /// Rules S1 to S25.
    pub(super) fn parse(message: pb::Listener, cx: &Context<'_>) -> Result<Self, Invalid> {
        // S1, S2: both could change the addresses by which chains are selected, which the application has from its socket.
        if !message.listener_filters.is_empty() {
            return Err(Invalid::field("listener_filters", "not supported; must be empty"));
        }
        if message.use_original_dst.is_some_and(|used| used.value) {
            return Err(Invalid::field("use_original_dst", "not supported; must be false"));
        }
        // A36-2: the server compares it with the address of its socket.
        let address = address(message.address.as_ref()).map_err(|e| e.at("address"))?;
        let mut candidates = Vec::new();
        for (i, chain) in message.filter_chains.into_iter().enumerate() {
            let candidate = remarks::within("filter_chains", i, || Candidate::parse(i, chain, cx));
            let candidate = candidate.map_err(|e| e.at_index("filter_chains", i))?;
            if candidate.as_ref().is_none_or(|candidate| candidate.never) {
                let reason = "no connection can match it: servers of gRPC have no server names, application \
                              protocols, other transport protocols and destination ports";
                remarks::leave_out(Invalid::field("filter_chain_match", reason).at_index("filter_chains", i));
            }
            candidates.extend(candidate);
        }
        let selection = Selection::of(candidates)?;
        let default_filter_chain = match message.default_filter_chain {
            Some(chain) => {
                let chain = FilterChain::parse(chain, cx).map_err(|e| e.at("default_filter_chain"))?;
                Some(Box::new(chain))
            }
            None => None,
        };
        if selection.chains.is_empty() && default_filter_chain.is_none() {
            let reason = "no chain can ever be chosen, and there is no default_filter_chain";
            return Err(Invalid::field("filter_chains", reason));
        }
        Ok(Self {
            address,
            filter_chains: selection.chains.into(),
            unserved_ranges: selection.unserved.into(),
            default_filter_chain,
            by_connection: selection.by_connection,
        })
    }

    /// Returns the chain for a connection: the most specific one, or else the default one; `None` if the
    /// connection is to be closed without a response.
    ///
    /// Conditions are evaluated in this order: destination address, plaintext by name, type of source, source
    /// address, source port. Each step takes the most specific condition that matches, without backtracking: a chain
    /// for `10.0.0.0/8` whose other conditions do not match still takes precedence over a chain for all addresses.
    ///
    /// ```
    /// use xdskit::resource::filter_chain::{Connection, FilterChain, SocketListener};
    ///
    /// /// The name of the chain for an accepted connection.
    /// fn choose<'a>(
    ///     listener: &'a SocketListener,
    ///     socket: &std::net::TcpStream,
    /// ) -> std::io::Result<Option<&'a FilterChain>> {
    ///     let connection = Connection::new(socket.local_addr()?, socket.peer_addr()?);
    ///     Ok(listener.filter_chain(&connection))
    /// }
    /// ```
    pub fn filter_chain(&self, connection: &Connection) -> Option<&FilterChain> {
        self.chain_index(connection).and_then(|index| self.chain(index))
    }

    /// The place of the [chain](Self::filter_chain) for a connection.
    pub(crate) fn chain_index(&self, connection: &Connection) -> Option<ChainIndex> {
        // A36-9.
        match self.by_connection.find(connection) {
            Some(index) => Some(ChainIndex::Listed(index)),
            None => self.default_filter_chain.is_some().then_some(ChainIndex::Default),
        }
    }

    /// The chain in a place.
    pub(crate) fn chain(&self, index: ChainIndex) -> Option<&FilterChain> {
        match index {
            ChainIndex::Listed(index) => self.filter_chains.get(index),
            ChainIndex::Default => self.default_filter_chain.as_deref(),
        }
    }
}

/// Rule S3.
fn address(address: Option<&core::Address>) -> Result<SocketAddr, Invalid> {
    let protocol = parts::socket_address(address)?.protocol();
    if protocol != core::socket_address::Protocol::Tcp {
        let reason = format!("must be TCP, is {}", protocol.as_str_name());
        return Err(Invalid::field("socket_address.protocol", reason));
    }
    parts::socket_addr(address)
}

/// A chain that may turn out to be unusable.
struct Candidate {
    /// The position in the message.
    position: usize,
    /// The chain.
    chain: FilterChain,
    /// Its conditions name plaintext, so it takes precedence over chains whose conditions do not (S17).
    raw_buffer: bool,
    /// Its conditions match no connection (S15, S16, S18).
    never: bool,
    /// The ranges of destination addresses; `None` is any address.
    destinations: Vec<Option<Cidr>>,
}

impl Candidate {
    /// Returns `None` for a chain with a destination port (S14), whose content must be valid all the same, as in
    /// C-core.
    fn parse(position: usize, message: pb::FilterChain, cx: &Context<'_>) -> Result<Option<Self>, Invalid> {
        let conditions = message.filter_chain_match.clone().unwrap_or_default();
        let chain = FilterChain::parse(message, cx)?;
        if conditions.destination_port.is_some_and(|port| port.value != 0) {
            return Ok(None);
        }
        // Names are evaluated before the transport protocol, application protocols after it.
        let named = !conditions.server_names.is_empty();
        let (raw_buffer, never) = match &*conditions.transport_protocol {
            "" => (false, named || !conditions.application_protocols.is_empty()),
            "raw_buffer" => (!named, named || !conditions.application_protocols.is_empty()),
            _ => (false, true),
        };
        let destinations = any_of(&chain.conditions.prefix_ranges);
        Ok(Some(Self { position, chain, raw_buffer, never, destinations }))
    }
}

/// The usable chains.
#[derive(Default)]
struct Selection {
    /// The chains in the order of the message, without those that can never be chosen.
    chains: Vec<FilterChain>,
    /// The index in `chains` for each combination of conditions.
    by_connection: Chains,
    /// Destinations that hide wider ranges, although no chain is left for them (S25).
    unserved: Vec<Cidr>,
    /// The number of combinations of conditions in `by_connection`.
    combinations: usize,
}

impl Selection {
    /// Omits chains that can never be chosen, and rejects chains with the same conditions (S15 to S18, S23 to S25).
    fn of(candidates: Vec<Candidate>) -> Result<Self, Invalid> {
        let destinations_of = |candidates: &mut dyn Iterator<Item = &Candidate>| -> BTreeSet<Option<Cidr>> {
            candidates.flat_map(|candidate| candidate.destinations.iter().copied()).collect()
        };
        // Candidates that never match are in both sets: they hide others of their destinations all the same (A36-9).
        let plaintext = destinations_of(&mut candidates.iter().filter(|candidate| candidate.raw_buffer));
        let all = destinations_of(&mut candidates.iter());
        let mut selection = Self::default();
        for mut candidate in candidates.into_iter().filter(|candidate| !candidate.never) {
            // S17: for these destinations, chains that do not name plaintext are never looked at.
            if !candidate.raw_buffer {
                candidate.destinations.retain(|destination| !plaintext.contains(destination));
            }
            if !candidate.destinations.is_empty() {
                let position = candidate.position;
                selection.add(candidate).map_err(|e| e.at_index("filter_chains", position))?;
            }
        }
        let chains = &mut selection.by_connection;
        // As in C-core; grpc-go falls back to a wider range instead.
        selection.unserved = all.into_iter().flatten().filter(|range| chains.reserve(*range)).collect();
        Ok(selection)
    }

    /// Adds a chain; two chains must not have the same conditions.
    fn add(&mut self, candidate: Candidate) -> Result<(), Invalid> {
        let Candidate { mut chain, destinations, .. } = candidate;
        for connections in combinations(&destinations, &chain.conditions) {
            if self.combinations == MAX_COMBINATIONS {
                let reason = format!("the chains combine more than {MAX_COMBINATIONS} conditions");
                return Err(Invalid::new(reason));
            }
            self.combinations += 1;
            if !self.by_connection.add(&connections, self.chains.len()) {
                let reason = format!(
                    "{:?} matches connections that it or an earlier chain matches already",
                    chain.name
                );
                return Err(Invalid::new(reason));
            }
        }
        // Without the ranges that chains for plaintext hide.
        chain.conditions.prefix_ranges = destinations.into_iter().flatten().collect();
        self.chains.push(chain);
        Ok(())
    }
}

/// Returns all combinations of a chain's conditions.
fn combinations(
    destinations: &[Option<Cidr>],
    conditions: &FilterChainMatch,
) -> impl Iterator<Item = Conditions> {
    let source_type = conditions.source_type;
    let sources = any_of(&conditions.source_prefix_ranges);
    let ports = any_of(&conditions.source_ports);
    destinations.iter().flat_map(move |&destination| {
        let ports = ports.clone();
        sources.clone().into_iter().flat_map(move |source| {
            ports.clone().into_iter().map(move |source_port| Conditions {
                destination,
                source_type,
                source,
                source_port,
            })
        })
    })
}

/// Returns the values that a list of conditions allows; an empty one allows any.
fn any_of<T: Copy>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() { vec![None] } else { list.iter().copied().map(Some).collect() }
}

impl FilterChain {
    /// Rules S6 to S13, S19 to S22 and S26 to S35.
    fn parse(message: pb::FilterChain, cx: &Context<'_>) -> Result<Self, Invalid> {
        let conditions = FilterChainMatch::parse(message.filter_chain_match.unwrap_or_default())
            .map_err(|e| e.at("filter_chain_match"))?;
        let connection_manager = connection_manager(message.filters, cx)?;
        let tls =
            message.transport_socket.as_ref().map(|socket| DownstreamTls::parse(socket, cx)).transpose();
        let tls = tls.map_err(|e| e.at("transport_socket"))?;
        Ok(Self { name: message.name.into(), conditions, connection_manager, tls })
    }
}

impl FilterChainMatch {
    /// Parses the conditions of a chain.
    fn parse(message: pb::FilterChainMatch) -> Result<Self, Invalid> {
        let source_type = match ConnectionSourceType::try_from(message.source_type) {
            Ok(ConnectionSourceType::Any) => SourceType::Any,
            Ok(ConnectionSourceType::SameIpOrLoopback) => SourceType::SameIpOrLoopback,
            Ok(ConnectionSourceType::External) => SourceType::External,
            Err(_) => {
                let reason = format!("{} is no known type", message.source_type);
                return Err(Invalid::field("source_type", reason));
            }
        };
        Ok(Self {
            prefix_ranges: Cidr::parse_list("prefix_ranges", &message.prefix_ranges)?,
            source_type,
            source_prefix_ranges: Cidr::parse_list("source_prefix_ranges", &message.source_prefix_ranges)?,
            source_ports: message.source_ports.into(),
        })
    }
}

/// Returns the only filter that a chain must have (A36-3).
fn connection_manager(filters: Vec<pb::Filter>, cx: &Context<'_>) -> Result<HttpConnectionManager, Invalid> {
    let count = filters.len();
    let Ok([filter]) = <[pb::Filter; 1]>::try_from(filters) else {
        let reason = format!("must be exactly one, an HttpConnectionManager; there are {count}");
        return Err(Invalid::field("filters", reason));
    };
    let parsed = match filter.config_type {
        _ if filter.name.is_empty() => Err(Invalid::field("name", "must not be empty")),
        Some(ConfigType::TypedConfig(any)) => {
            HttpConnectionManager::parse(&any, Side::Server, cx).map_err(|e| e.at("typed_config"))
        }
        Some(ConfigType::ConfigDiscovery(_)) => Err(Invalid::new("config_discovery is not supported")),
        None => Err(Invalid::new("typed_config must be set")),
    };
    parsed.map_err(|e| e.at_index("filters", 0))
}

/// The maximum number of combinations of conditions, by which chains are compared.
/// Ranges and ports of a chain multiply, so that a small listener could take any amount of memory without it.
const MAX_COMBINATIONS: usize = 1 << 18;

#[cfg(test)]
mod tests;
