//! The conditions of routes on requests.

use serde::Serialize;

use super::{
    Invalid,
    matcher::{Fraction, HeaderMatcher, PathMatcher},
    parts,
};
use crate::pb::envoy::config::route::v3 as pb;

/// The conditions of a route on a request, all of which must hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RouteMatch {
    /// The path, without the query: a prefix, an exact path, a regular expression, or a prefix of whole segments,
    /// which gRPC does not support.
    #[serde(flatten)]
    pub path: PathMatcher,
    /// The headers.
    pub headers: Box<[HeaderMatcher]>,
    /// The fraction of requests that match; `None` is all of them.
    pub fraction: Option<Fraction>,
}

impl RouteMatch {
    /// Rules R12 to R17. The caller handles query parameters (R11).
    pub(super) fn parse(message: pb::RouteMatch) -> Result<Self, Invalid> {
        let case_sensitive = message.case_sensitive.is_none_or(|sensitive| sensitive.value);
        let path = PathMatcher::parse(message.path_specifier, case_sensitive)?;
        let headers = parts::each("headers", message.headers, HeaderMatcher::parse)?;
        let fraction = message.runtime_fraction.map(Fraction::parse_default).transpose();
        let fraction = fraction.map_err(|e| e.at("runtime_fraction"))?.flatten();
        Ok(Self { path, headers, fraction })
    }
}
