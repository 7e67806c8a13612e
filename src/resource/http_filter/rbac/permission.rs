//! The permissions of a policy.

use serde::Serialize;

use super::{header, parse_all, url_path};
use crate::{
    pb::envoy::config::rbac::v3::{Permission as Message, permission::Rule},
    resource::{
        Invalid,
        matcher::{Cidr, HeaderMatcher, StringMatcher},
    },
};

/// A permission: the action that a request takes. They are nested at most 100 deep, as every message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Permission {
    /// Anything.
    Any,
    /// All of these; without any, anything.
    AndRules(Box<[Self]>),
    /// One of these; without any, nothing.
    OrRules(Box<[Self]>),
    /// Anything but this.
    NotRule(Box<Self>),
    /// A request with such a header. Its name is none that begins with `grpc-`, and not `:scheme`; `host` is `:authority`.
    Header(HeaderMatcher),
    /// A path, without the query.
    UrlPath(StringMatcher),
    /// The server's address.
    DestinationIp(Cidr),
    /// The server's port; one over 65,535 is that of no server.
    DestinationPort(u32),
    /// The server's port, from `start` on and before `end`.
    #[non_exhaustive]
    DestinationPortRange {
        /// The first port of the range.
        start: i32,
        /// The first port after the range; not before `start`.
        end: i32,
    },
    /// Metadata, which no request has outside of proxies.
    #[non_exhaustive]
    Metadata {
        /// Whether the result is inverted, so that it is always true; otherwise it never is (A41-3).
        invert: bool,
    },
    /// The server name (SNI) in the TLS handshake, which counts as empty (A41-3).
    RequestedServerName(StringMatcher),
}

impl Permission {
    /// Rules H4, H6 and H7.
    pub(super) fn parse(message: Message) -> Result<Self, Invalid> {
        Ok(match message.rule {
            Some(Rule::Any(_)) => Self::Any,
            Some(Rule::AndRules(set)) => {
                Self::AndRules(parse_all("rules", set.rules, Self::parse).map_err(|e| e.at("and_rules"))?)
            }
            Some(Rule::OrRules(set)) => {
                Self::OrRules(parse_all("rules", set.rules, Self::parse).map_err(|e| e.at("or_rules"))?)
            }
            Some(Rule::NotRule(rule)) => {
                Self::NotRule(Box::new(Self::parse(*rule).map_err(|e| e.at("not_rule"))?))
            }
            Some(Rule::Header(matcher)) => Self::Header(header(matcher).map_err(|e| e.at("header"))?),
            Some(Rule::UrlPath(path)) => Self::UrlPath(url_path(path).map_err(|e| e.at("url_path"))?),
            Some(Rule::DestinationIp(range)) => {
                Self::DestinationIp(Cidr::parse(&range).map_err(|e| e.at("destination_ip"))?)
            }
            Some(Rule::DestinationPort(port)) => Self::DestinationPort(port),
            Some(Rule::DestinationPortRange(range)) if range.start > range.end => {
                let reason = format!("start {} is after end {}", range.start, range.end);
                return Err(Invalid::field("destination_port_range", reason));
            }
            Some(Rule::DestinationPortRange(range)) => {
                Self::DestinationPortRange { start: range.start, end: range.end }
            }
            Some(Rule::Metadata(metadata)) => Self::Metadata { invert: metadata.invert },
            Some(Rule::RequestedServerName(name)) => {
                let name = StringMatcher::parse(name).map_err(|e| e.at("requested_server_name"));
                Self::RequestedServerName(name?)
            }
            None => return Err(Invalid::new("no rule that is supported")),
        })
    }
}
