//! Compiled permissions and principals.

use super::{ConnectionFacts, header_table::HeaderValues};
use crate::resource::matcher::{Cidr, HeaderMatcher, StringMatcher};

/// A condition on requests: a permission or a principal.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Rule {
    /// The same for every request.
    Constant(bool),
    /// All of these; without any, every request.
    All(Box<[Self]>),
    /// One of these; without any, no request.
    AnyOf(Box<[Self]>),
    Not(Box<Self>),
    /// A header by its index in the table of headers.
    Header(usize, HeaderMatcher),
    UrlPath(StringMatcher),
    LocalIp(Cidr),
    LocalPort(u32),
    /// From the first port on, and before the second one.
    LocalPorts(i32, i32),
    PeerIp(Cidr),
    /// A peer with TLS, and with such a name if there is a matcher.
    Authenticated(Option<StringMatcher>),
}

/// A request, as rules see it.
pub(super) struct View<'a> {
    pub(super) url_path: &'a str,
    pub(super) headers: HeaderValues<'a>,
    pub(super) connection: &'a ConnectionFacts,
}

impl Rule {
    /// Whether a request fulfils the condition.
    // Rules are nested as deep as their messages, at most 100 (H6), so that recursion has a bound.
    pub(super) fn matches(&self, request: &View<'_>) -> bool {
        let connection = request.connection;
        match self {
            Self::Constant(holds) => *holds,
            Self::All(rules) => rules.iter().all(|rule| rule.matches(request)),
            Self::AnyOf(rules) => rules.iter().any(|rule| rule.matches(request)),
            Self::Not(rule) => !rule.matches(request),
            // An index beyond the values does not occur: the table was filled by the same compilation.
            Self::Header(index, matcher) => {
                matcher.matches(request.headers.get(*index).and_then(Option::as_deref))
            }
            Self::UrlPath(matcher) => matcher.matches(request.url_path),
            Self::LocalIp(range) => range.contains(connection.local_address().ip()),
            Self::LocalPort(port) => u32::from(connection.local_address().port()) == *port,
            Self::LocalPorts(start, end) => {
                (*start..*end).contains(&i32::from(connection.local_address().port()))
            }
            Self::PeerIp(range) => range.contains(connection.peer_address().ip()),
            Self::Authenticated(matcher) => is_authenticated(connection, matcher.as_ref()),
        }
    }
}

/// Whether the peer has one of the names that count: its URIs, or else its DNS names, or else its subject (SV9.14, SV9.15).
fn is_authenticated(connection: &ConnectionFacts, matcher: Option<&StringMatcher>) -> bool {
    let (Some(tls), matcher) = (connection.tls(), matcher) else { return false };
    let Some(matcher) = matcher else { return true };
    let of_names = |names: &[Box<str>]| names.iter().any(|name| matcher.matches(name));
    match (tls.uri_sans(), tls.dns_sans()) {
        ([], []) => matcher.matches(tls.subject()),
        ([], dns) => of_names(dns),
        (uris, _) => of_names(uris),
    }
}
