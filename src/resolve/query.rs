//! A request, as far as routes depend on it.

use std::{borrow::Cow, fmt, str};

use crate::resource::{VirtualHost, matcher::HeaderMatcher, route::Route, route_match::RouteMatch};

/// The properties of a request that decide its route: see [`Snapshot::route`](super::Snapshot::route).
///
/// It borrows its values. Only [`with_header`](Self::with_header) allocates; [`with_headers`](Self::with_headers) reads the
/// application's own collection of headers.
///
/// ```
/// use xdskit::resolve::RouteQuery;
///
/// let headers = [("x-user", "ada"), ("x-canary", "yes")];
/// let query = RouteQuery::new("/shop.Cart/Get", 0x5eed).with_headers(&headers);
/// assert_eq!(query.header_value("X-User").as_deref(), Some(&b"ada"[..]));
/// ```
#[derive(Clone)]
pub struct RouteQuery<'a> {
    /// The path, without the query. Routes of gRPC match the path alone.
    path: &'a str,
    /// The host, if it is not that of the target.
    host: Option<&'a str>,
    /// The headers of the request.
    headers: Option<&'a (dyn RequestHeaders + Sync)>,
    /// Headers that were added one by one. Empty for most queries, and then nothing is allocated.
    more_headers: Vec<(&'a str, &'a str)>,
    /// The number that decides where there are fractions or weights.
    random: u64,
}

/// The headers of a request, in the application's own type.
///
/// It is implemented for lists of pairs of name and value, and with the feature `client` for `http::HeaderMap`. The
/// metadata of tonic can be converted to the latter by `metadata.as_ref()`.
///
/// ```
/// use xdskit::resolve::{RequestHeaders, RouteQuery};
///
/// /// What a framework has parsed.
/// struct Parsed {
///     user: Option<String>,
/// }
///
/// impl RequestHeaders for Parsed {
///     fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
///         if name.eq_ignore_ascii_case("x-user") {
///             self.user.iter().for_each(|user| each(user.as_bytes()));
///         }
///     }
/// }
///
/// let parsed = Parsed { user: Some("ada".to_owned()) };
/// let query = RouteQuery::new("/shop.Cart/Get", 0).with_headers(&parsed);
/// assert_eq!(query.header_value("X-User").as_deref(), Some(&b"ada"[..]));
/// ```
pub trait RequestHeaders {
    /// Calls `each` with all values of one header, in order. The name is compared without regard to case.
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8]));
}

impl<'a> RouteQuery<'a> {
    /// A request for a path, to the host of the target. The query of the path (`?…`) is ignored.
    ///
    /// `random` is a number for this request, uniformly distributed over all of `u64`. All choices that routing makes by chance
    /// are computed from it, each independently of the others: routes for a fraction of the requests, and the cluster among
    /// [weighted ones](super::RouteView::pick_cluster). Equal numbers lead to equal choices, so that a request can be routed
    /// again, and a constant sends all requests to the same cluster.
    pub fn new(path: &'a str, random: u64) -> Self {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        Self { path, host: None, headers: None, more_headers: Vec::new(), random }
    }

    /// Sets the host of the request, if it is not the one of the target ([`Snapshot::authority`](super::Snapshot::authority)).
    #[must_use]
    pub fn with_host(mut self, host: &'a str) -> Self {
        self.host = Some(host);
        self
    }

    /// Sets the headers of the request. Several values of a header are matched as one text, joined by commas.
    ///
    /// As in gRPC, only metadata can be matched: pseudo headers (`:path`) and binary ones (`x-trace-bin`) are treated
    /// as absent, and a missing `content-type` as `application/grpc`.
    #[must_use]
    pub fn with_headers(mut self, headers: &'a (impl RequestHeaders + Sync)) -> Self {
        self.headers = Some(headers);
        self
    }

    /// Adds one header, after those of [`with_headers`](Self::with_headers).
    #[must_use]
    pub fn with_header(mut self, name: &'a str, value: &'a str) -> Self {
        self.more_headers.push((name, value));
        self
    }

    /// The path, without its query.
    #[cfg(any(test, feature = "balance", feature = "fuzzing"))]
    pub(crate) fn path(&self) -> &'a str {
        self.path
    }

    /// The value of a header as it is matched, see [`with_headers`](Self::with_headers). The hash policy of a header is
    /// computed from the same value.
    pub fn header_value(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        // A28-10, A42-1: what other implementations cannot see must not select a route here.
        if name.starts_with(':') || ends_with_ignoring_case(name, "-bin") {
            return None;
        }
        // One value, as almost always, is borrowed. Values are not text: one that is not UTF-8 is matched by its presence
        // alone.
        let mut joined: Option<Cow<'a, [u8]>> = None;
        let mut each = |value: &'a [u8]| match &mut joined {
            None => joined = Some(Cow::Borrowed(value)),
            Some(values) => {
                let values = values.to_mut();
                values.push(b',');
                values.extend_from_slice(value);
            }
        };
        if let Some(headers) = self.headers {
            headers.for_each_value(name, &mut each);
        }
        for (_, value) in self.more_headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)) {
            each(value.as_bytes());
        }
        let assumed = || name.eq_ignore_ascii_case("content-type").then_some(Cow::Borrowed(GRPC));
        joined.or_else(assumed)
    }

    /// The route of the request in a virtual host: the first matching one. The host of the request is ignored.
    ///
    /// This is for servers, and for applications that watch virtual hosts directly; clients use [`Snapshot::route`](super::Snapshot::route).
    pub fn route_in<'h>(&self, host: &'h VirtualHost) -> Option<&'h Route> {
        // A28-9.
        self.place_in(host).map(|place| &host.routes[place])
    }

    /// The index of the [route](Self::route_in).
    #[cfg(any(test, feature = "server"))]
    pub(crate) fn index_in(&self, host: &VirtualHost) -> Option<usize> {
        self.place_in(host)
    }

    /// The place of the [route](Self::route_in).
    pub(super) fn place_in(&self, host: &VirtualHost) -> Option<usize> {
        host.routes.first(self.path, |index, route| self.matches(&route.matcher, index))
    }

    /// The random number of the request.
    pub(crate) fn random_number(&self) -> u64 {
        self.random
    }

    /// The host that the request is for, if not the one that the target was resolved for.
    pub(super) fn target_host(&self) -> Option<&'a str> {
        self.host
    }

    /// Whether the request matches; `index` is the place of the route, so that each draws another number.
    ///
    /// Cheap conditions first: headers are read from the application only if the path matches.
    fn matches(&self, matcher: &RouteMatch, index: usize) -> bool {
        matcher.path.matches(self.path)
            && matcher.headers.iter().all(|header| self.matches_header(header))
            && matcher.fraction.is_none_or(|part| part.matches(draw(self.random, index as u64, 1_000_000)))
    }

    /// Whether the request has a header as a route requires.
    fn matches_header(&self, matcher: &HeaderMatcher) -> bool {
        matcher.matches_bytes(self.header_value(&matcher.name).as_deref())
    }
}

impl fmt::Debug for RouteQuery<'_> {
    /// Leaves out the headers: they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteQuery")
            .field("path", &self.path)
            .field("host", &self.host)
            .field("random", &self.random)
            .finish_non_exhaustive()
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> RequestHeaders for [(N, V)] {
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        let named = self.iter().filter(|(other, _)| other.as_ref().eq_ignore_ascii_case(name));
        named.for_each(|(_, value)| each(value.as_ref()));
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>, const COUNT: usize> RequestHeaders for [(N, V); COUNT] {
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        self.as_slice().for_each_value(name, each);
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> RequestHeaders for Vec<(N, V)> {
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        self.as_slice().for_each_value(name, each);
    }
}

impl<H: RequestHeaders + ?Sized> RequestHeaders for &H {
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        (**self).for_each_value(name, each);
    }
}

#[cfg(feature = "client")]
impl RequestHeaders for http::HeaderMap {
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        self.get_all(name).iter().for_each(|value| each(value.as_bytes()));
    }
}

/// A number below `bound`, uniform and independent for each `salt` if `random` is uniform.
///
/// The salts are the places of routes, and constants at the end of the range for clusters and endpoints.
pub(super) fn draw(random: u64, salt: u64, bound: u32) -> u32 {
    scale(spread(random, salt), bound)
}

/// A number that is uniform and independent for each `salt` if `random` is uniform.
pub(super) fn spread(random: u64, salt: u64) -> u64 {
    mix(mix(random).wrapping_add(salt))
}

/// Maps all numbers evenly to those below `bound`, in their order. A remainder would prefer small numbers where `bound` does
/// not divide 2⁶⁴, and look at the low bits alone.
fn scale(number: u64, bound: u32) -> u32 {
    ((u128::from(number) * u128::from(bound)) >> 64) as u32
}

/// SplitMix64, so that numbers which are close to each other end up far apart.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Whether a text ends with another one, whatever the case of its letters.
fn ends_with_ignoring_case(text: &str, end: &str) -> bool {
    let text = text.as_bytes();
    text.len().checked_sub(end.len()).is_some_and(|start| text[start..].eq_ignore_ascii_case(end.as_bytes()))
}

/// The media type of gRPC.
const GRPC: &[u8] = b"application/grpc";

#[cfg(test)]
mod tests;
