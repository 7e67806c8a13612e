//! The listeners of servers: filter chains, and which connections they are for.

use std::{collections::BTreeSet, net::SocketAddr};

use serde::Serialize;

use super::{
    Context, DownstreamTls, Invalid, http_filter::Side, listener::HttpConnectionManager, matcher::Cidr, parts,
};
use crate::pb::envoy::config::{
    core::v3 as core,
    listener::v3::{self as pb, filter::ConfigType, filter_chain_match::ConnectionSourceType},
};

/// A server's socket, and what its connections go through.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SocketListener {
    /// The address that the server must be listening on (A36-2).
    pub address: SocketAddr,
    /// The chains, in the order of the message; no two are for the same connections. Those that can never be chosen are
    /// left out.
    pub filter_chains: Box<[FilterChain]>,
    /// The chain for connections that no other is for; without it they are closed.
    pub default_filter_chain: Option<Box<FilterChain>>,
}

/// What some of the connections go through.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FilterChain {
    /// Its name, for people; often empty.
    pub name: Box<str>,
    /// Which connections it is for; not looked at in a default chain.
    #[serde(rename = "match")]
    pub conditions: FilterChainMatch,
    /// How the requests of the connections are handled.
    pub connection_manager: HttpConnectionManager,
    /// How connections are secured; `None` is plaintext.
    pub tls: Option<DownstreamTls>,
}

/// Which connections a [`FilterChain`] is for. An empty list says nothing about what it lists.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct FilterChainMatch {
    /// Where they go to.
    pub prefix_ranges: Box<[Cidr]>,
    /// What kind of peer they come from.
    pub source_type: SourceType,
    /// Where they come from.
    pub source_prefix_ranges: Box<[Cidr]>,
    /// The ports they come from.
    pub source_ports: Box<[u32]>,
}

/// What kind of peer a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SourceType {
    /// Any.
    #[default]
    Any,
    /// The same address as its own, or the loopback one.
    SameIpOrLoopback,
    /// Another host.
    External,
}

impl SocketListener {
    /// Rules S1 to S25.
    pub(super) fn parse(message: pb::Listener, cx: &Context<'_>) -> Result<Self, Invalid> {
        if !message.listener_filters.is_empty() {
            return Err(Invalid::field("listener_filters", "not supported; must be empty"));
        }
        if message.use_original_dst.is_some_and(|used| used.value) {
            return Err(Invalid::field("use_original_dst", "not supported; must be false"));
        }
        let address = address(message.address.as_ref()).map_err(|e| e.at("address"))?;
        let mut candidates = Vec::new();
        for (i, chain) in message.filter_chains.into_iter().enumerate() {
            candidates.extend(Candidate::parse(i, chain, cx).map_err(|e| e.at_index("filter_chains", i))?);
        }
        let filter_chains = select(candidates)?;
        let default_filter_chain = match message.default_filter_chain {
            Some(chain) => {
                let chain = FilterChain::parse(chain, cx).map_err(|e| e.at("default_filter_chain"))?;
                Some(Box::new(chain))
            }
            None => None,
        };
        if filter_chains.is_empty() && default_filter_chain.is_none() {
            let reason = "no chain can ever be chosen, and there is no default_filter_chain";
            return Err(Invalid::field("filter_chains", reason));
        }
        Ok(Self { address, filter_chains, default_filter_chain })
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

/// A chain that may turn out never to be chosen.
struct Candidate {
    /// In the message.
    position: usize,
    chain: FilterChain,
    /// It asks for plaintext by name, and so wins over one that does not ask (S17).
    raw_buffer: bool,
    /// Where its connections go to; `None` is anywhere.
    destinations: Vec<Option<Cidr>>,
}

impl Candidate {
    /// `None` for a chain that can never be chosen, whose content must be valid all the same (S14 to S16, S18).
    fn parse(position: usize, message: pb::FilterChain, cx: &Context<'_>) -> Result<Option<Self>, Invalid> {
        let conditions = message.filter_chain_match.clone().unwrap_or_default();
        let chain = FilterChain::parse(message, cx)?;
        let raw_buffer = match &*conditions.transport_protocol {
            "" => false,
            "raw_buffer" => true,
            _ => return Ok(None),
        };
        if conditions.destination_port.is_some_and(|port| port.value != 0)
            || !conditions.server_names.is_empty()
            || !conditions.application_protocols.is_empty()
        {
            return Ok(None);
        }
        let destinations = any_of(&chain.conditions.prefix_ranges);
        Ok(Some(Self { position, chain, raw_buffer, destinations }))
    }
}

/// Leaves out what can never be chosen, and finds chains for the same connections (S17, S23 to S25).
fn select(candidates: Vec<Candidate>) -> Result<Box<[FilterChain]>, Invalid> {
    let plaintext: BTreeSet<_> =
        candidates.iter().filter(|c| c.raw_buffer).flat_map(|c| c.destinations.iter().copied()).collect();
    let mut taken = BTreeSet::new();
    let mut chains = Vec::new();
    for Candidate { position, mut chain, raw_buffer, mut destinations } in candidates {
        if !raw_buffer {
            destinations.retain(|destination| !plaintext.contains(destination));
        }
        if destinations.is_empty() {
            continue;
        }
        let conditions = &mut chain.conditions;
        for key in connections(&destinations, conditions) {
            if taken.len() == MAX_CONNECTIONS {
                let reason = format!("the chains combine more than {MAX_CONNECTIONS} conditions");
                return Err(Invalid::new(reason).at_index("filter_chains", position));
            }
            if !taken.insert(key) {
                let reason = format!(
                    "{:?} matches connections that it or an earlier chain matches already",
                    chain.name
                );
                return Err(Invalid::new(reason).at_index("filter_chains", position));
            }
        }
        conditions.prefix_ranges = destinations.into_iter().flatten().collect();
        chains.push(chain);
    }
    Ok(chains.into())
}

/// A kind of connection by all that chains are chosen by; `None` is anything.
type Connections = (Option<Cidr>, SourceType, Option<Cidr>, Option<u32>);

/// Every kind of connection that a chain is for.
fn connections(
    destinations: &[Option<Cidr>],
    conditions: &FilterChainMatch,
) -> impl Iterator<Item = Connections> {
    let source_type = conditions.source_type;
    let sources = any_of(&conditions.source_prefix_ranges);
    let ports = any_of(&conditions.source_ports);
    destinations.iter().flat_map(move |&destination| {
        let ports = ports.clone();
        sources.clone().into_iter().flat_map(move |source| {
            ports.clone().into_iter().map(move |port| (destination, source_type, source, port))
        })
    })
}

/// What a list of conditions allows; an empty one allows anything.
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

/// The one filter that a chain must have (A36-3).
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

/// Chains are compared by all combinations of their conditions, so those must be bounded.
const MAX_CONNECTIONS: usize = 1 << 18;

#[cfg(test)]
mod tests;
