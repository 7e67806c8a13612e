//! The properties of a request that decide about it.

use std::fmt;

use super::{ConnectionFacts, path};
use crate::resolve::RequestHeaders;

/// A request with its connection, as policies see it. It borrows its values, and allocates nothing.
#[derive(Clone, Copy)]
pub struct RequestFacts<'a> {
    pub(super) method: &'a str,
    /// The path with its query.
    pub(super) path: &'a str,
    pub(super) authority: Option<&'a str>,
    pub(super) headers: Option<&'a (dyn RequestHeaders + Sync)>,
    pub(super) connection: &'a ConnectionFacts,
    pub(super) strict_path: bool,
}

impl<'a> RequestFacts<'a> {
    /// A request with an HTTP method and a path as it was received, with its query.
    pub fn new(method: &'a str, path: &'a str, connection: &'a ConnectionFacts) -> Self {
        Self { method, path, authority: None, headers: None, connection, strict_path: true }
    }

    /// Sets the authority: `:authority`, or else the header `host`. Rules about either of them see this value.
    #[must_use]
    pub fn with_authority(mut self, authority: &'a str) -> Self {
        self.authority = Some(authority);
        self
    }

    /// Sets the headers, which are never looked at for the method, the path and the authority.
    ///
    /// Rules see several values of a header as one text, joined by commas, and those of binary headers (`-bin`) as their base64
    /// without padding. Headers of the connection are absent: `connection` and those that it names, `te`, `upgrade` and others that
    /// concern one hop alone.
    #[must_use]
    pub fn with_headers(mut self, headers: &'a (impl RequestHeaders + Sync)) -> Self {
        self.headers = Some(headers);
        self
    }

    /// Sets whether a request with an ambiguous path is refused if a policy matches paths; `true` by default. Requests of gRPC are
    /// not concerned, whose paths are names.
    ///
    /// Policies compare the bytes of the path. A framework that decodes or normalizes the path after that would open a way around
    /// them. So these are refused: empty segments (`//`), `.` and `..` as segments, also where dots are escaped, escaped slashes and
    /// backslashes (`%2F`, `%5C`), and backslashes.
    #[must_use]
    pub fn with_strict_path(mut self, strict: bool) -> Self {
        self.strict_path = strict;
        self
    }

    /// The path as it was received, with its query.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The path without the query and without a fragment, as `url_path` matches it.
    pub fn url_path(&self) -> &'a str {
        path::url_path(self.path)
    }

    /// The connection of the request.
    pub fn connection(&self) -> &'a ConnectionFacts {
        self.connection
    }

    /// Whether the content type is that of gRPC.
    pub(super) fn is_grpc(&self) -> bool {
        let mut is_grpc = false;
        if let Some(headers) = self.headers {
            headers.for_each_value("content-type", &mut |value| is_grpc |= is_grpc_content_type(value));
        }
        is_grpc
    }
}

/// Whether a content type is that of gRPC: `application/grpc`, also with a suffix or parameters.
pub(crate) fn is_grpc_content_type(value: &[u8]) -> bool {
    value
        .strip_prefix(b"application/grpc")
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

impl fmt::Debug for RequestFacts<'_> {
    /// Leaves out the headers: they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestFacts")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("authority", &self.authority)
            .field("connection", &self.connection)
            .field("strict_path", &self.strict_path)
            .finish_non_exhaustive()
    }
}
