//! Requests of HTTP as policies see them.

use http::{HeaderMap, HeaderName, Uri, header};

/// More than one `host`, which servers must refuse (RFC 9112, section 3.2).
#[derive(Debug)]
pub(super) struct AmbiguousHost;

/// Has the headers of a request be those that policies see, and returns the authority.
///
/// `host` is removed beside an authority in the target, which takes precedence (RFC 9112, section 3.2.2). Headers that `connection` names are removed:
/// policies take them for absent, so that the service must not see them either (SV9.7).
pub(super) fn normalize(uri: &Uri, headers: &mut HeaderMap) -> Result<Option<String>, AmbiguousHost> {
    let named: Vec<_> =
        headers.get_all(header::CONNECTION).iter().flat_map(|value| names(value.as_bytes())).collect();
    for name in named {
        headers.remove(name);
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    if hosts.next().is_some() {
        return Err(AmbiguousHost);
    }
    let Some(authority) = uri.authority() else { return Ok(host) };
    headers.remove(header::HOST);
    Ok(Some(authority.as_str().to_owned()))
}

/// The headers that a value of `connection` names, but for those that concern the connection itself: handlers of upgrades read them.
fn names(value: &[u8]) -> impl Iterator<Item = HeaderName> {
    let names =
        value.split(|byte| *byte == b',').filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    names.filter(|name| !OF_THE_CONNECTION.contains(&name.as_str()))
}

/// Headers that policies never see, and handlers may read.
const OF_THE_CONNECTION: [&str; 5] = ["connection", "keep-alive", "te", "trailer", "upgrade"];
