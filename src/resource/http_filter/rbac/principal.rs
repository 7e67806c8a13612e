//! The principals of a policy.

use serde::Serialize;

use super::{header, parse_all, url_path};
use crate::{
    pb::envoy::config::rbac::v3::{Principal as Message, principal::Identifier},
    resource::{
        Invalid,
        matcher::{Cidr, HeaderMatcher, StringMatcher},
    },
};

/// A principal: the origin of a request. They are nested at most 100 deep, as every message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Principal {
    /// Any.
    Any,
    /// All of these; without any, any.
    AndIds(Box<[Self]>),
    /// One of these; without any, none.
    OrIds(Box<[Self]>),
    /// Any but this.
    NotId(Box<Self>),
    /// A peer with TLS, and with one of these names if there is a matcher (A41-4).
    #[non_exhaustive]
    Authenticated {
        /// For the URIs of the certificate, or else its DNS names, or else its subject; `""` without a certificate.
        principal_name: Option<StringMatcher>,
    },
    /// A peer with such an address: `direct_remote_ip`, and with the same meaning `remote_ip` and `source_ip`, since
    /// no hop in between is trusted (L3, L4).
    DirectRemoteIp(Cidr),
    /// A request with such a header. Its name is none that begins with `grpc-`, and not `:scheme`; `host` is `:authority`.
    Header(HeaderMatcher),
    /// A request with such a path, without the query.
    UrlPath(StringMatcher),
    /// A request with metadata, which none has outside of proxies.
    #[non_exhaustive]
    Metadata {
        /// Whether the opposite is meant, so that it is always true; otherwise it never is (A41-3).
        invert: bool,
    },
}

impl Principal {
    /// Rules H4, H6 and H7.
    pub(super) fn parse(message: Message) -> Result<Self, Invalid> {
        Ok(match message.identifier {
            Some(Identifier::Any(_)) => Self::Any,
            Some(Identifier::AndIds(set)) => {
                Self::AndIds(parse_all("ids", set.ids, Self::parse).map_err(|e| e.at("and_ids"))?)
            }
            Some(Identifier::OrIds(set)) => {
                Self::OrIds(parse_all("ids", set.ids, Self::parse).map_err(|e| e.at("or_ids"))?)
            }
            Some(Identifier::NotId(id)) => {
                Self::NotId(Box::new(Self::parse(*id).map_err(|e| e.at("not_id"))?))
            }
            Some(Identifier::Authenticated(by)) => {
                let name = by.principal_name.map(StringMatcher::parse).transpose();
                let principal_name = name.map_err(|e| e.at("principal_name").at("authenticated"))?;
                Self::Authenticated { principal_name }
            }
            // H6: three names of one condition, since no hop between the peer and the server is trusted.
            Some(Identifier::SourceIp(range)) => {
                Self::DirectRemoteIp(Cidr::parse(&range).map_err(|e| e.at("source_ip"))?)
            }
            Some(Identifier::DirectRemoteIp(range)) => {
                Self::DirectRemoteIp(Cidr::parse(&range).map_err(|e| e.at("direct_remote_ip"))?)
            }
            Some(Identifier::RemoteIp(range)) => {
                Self::DirectRemoteIp(Cidr::parse(&range).map_err(|e| e.at("remote_ip"))?)
            }
            Some(Identifier::Header(matcher)) => Self::Header(header(matcher).map_err(|e| e.at("header"))?),
            Some(Identifier::UrlPath(path)) => Self::UrlPath(url_path(path).map_err(|e| e.at("url_path"))?),
            Some(Identifier::Metadata(metadata)) => Self::Metadata { invert: metadata.invert },
            None => return Err(Invalid::new("no identifier that is supported")),
        })
    }
}
