//! Addresses of servers, in the forms that gRPC knows.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use url::{Host, Url};

use crate::escape::debug_as_message;

/// The URI of a management server, as text and parsed.
///
/// | form | meaning |
/// |---|---|
/// | `host:port`, `dns:///host:port`, `dns:host:port` | a host name or an IP address; the port is 443 if there is none, as in gRPC |
/// | `http://host:port`, `https://host:port` | the same, port 80 or 443 if there is none; the scheme must agree with the channel credentials |
/// | `ipv4:10.0.0.1:443,10.0.0.2:443` | IPv4 addresses to try in order |
/// | `ipv6:[2001:db8::1]:443` | IPv6 addresses to try in order |
/// | `unix:path`, `unix:///absolute/path` | a Unix socket |
///
/// URIs are compared by their text, which is part of the identity of a server.
///
/// ```
/// use xdskit::config::{ServerAddress, ServerUri};
///
/// let uri: ServerUri = "dns:///xds.example.com:18000".parse()?;
/// assert_eq!(*uri.address(), ServerAddress::Host { host: "xds.example.com".into(), port: 18000 });
/// assert_eq!(uri.address().authority(), "xds.example.com:18000");
/// # Ok::<(), xdskit::config::InvalidUri>(())
/// ```
#[derive(Debug, Clone)]
pub struct ServerUri {
    /// The URI as it was written.
    text: Arc<str>,
    /// What it names.
    address: ServerAddress,
    /// What the scheme requires of the connection.
    security: Option<Security>,
}

/// The address of a management server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerAddress {
    /// A name to resolve, or an IP address (IPv6 without brackets).
    Host {
        /// The name or address.
        host: String,
        /// The TCP port, 1 to 65535.
        port: u16,
    },
    /// Addresses to try in order; at least one.
    Addresses(Vec<SocketAddr>),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The reason why the URI of a server cannot be parsed.
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidUri {
    /// The URI as it was written.
    text: String,
    /// What is wrong.
    reason: String,
}

/// The security that the scheme implies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Security {
    /// `http://`
    Plain,
    /// `https://`
    Tls,
}

impl ServerUri {
    /// The URI as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The address in the URI.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// What the scheme requires of the connection.
    /// `None` if the scheme leaves it to the channel credentials.
    pub(crate) fn security(&self) -> Option<Security> {
        self.security
    }
}

impl FromStr for ServerUri {
    type Err = InvalidUri;

    fn from_str(text: &str) -> Result<Self, InvalidUri> {
        let (address, security) =
            parse(text).map_err(|reason| InvalidUri { text: text.to_owned(), reason })?;
        Ok(Self { text: Arc::from(text), address, security })
    }
}

impl PartialEq for ServerUri {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ServerUri {}

impl std::hash::Hash for ServerUri {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Display for ServerUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ServerAddress {
    /// The `:authority` of requests: `host:port`, the first address, or `localhost` for a Unix socket.
    pub fn authority(&self) -> String {
        match self {
            Self::Host { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Host { host, port } => format!("{host}:{port}"),
            Self::Addresses(addresses) => addresses.first().map_or_else(String::new, ToString::to_string),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl InvalidUri {
    /// The reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for InvalidUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{:?}: {}", self.text, self.reason)
        }
    }
}

debug_as_message!(InvalidUri);

impl std::error::Error for InvalidUri {}

/// An address, and what the scheme requires.
type Parsed = (ServerAddress, Option<Security>);

/// Parses a URI.
fn parse(text: &str) -> Result<Parsed, String> {
    if text.is_empty() {
        return Err("empty".to_owned());
    }
    let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
    let plain = |address| (address, None);
    match scheme {
        "http" => http_endpoint(text, Security::Plain),
        "https" => http_endpoint(text, Security::Tls),
        "dns" => host_address(dns_path(rest)?).map(plain),
        "ipv4" => addresses(rest, "an IPv4 address", ipv4_address).map(plain),
        "ipv6" => addresses(rest, "an IPv6 address in brackets", ipv6_address).map(plain),
        "unix" => unix_path(rest).map(ServerAddress::Unix).map(plain),
        "xds" => Err("not supported: a management server cannot be found through xDS itself".to_owned()),
        // `host:port` looks like a scheme, too: what follows, or a list of gRPC's schemes, tells them apart.
        _ if rest.starts_with("//") || KNOWN_SCHEMES.contains(&scheme) => {
            Err(format!("scheme {scheme:?} is not supported; {FORMS}"))
        }
        _ => host_address(text).map(plain),
    }
}

/// `http://host:port`: the scheme determines the default port. Nothing may follow, since gRPC has no base path.
fn http_endpoint(text: &str, security: Security) -> Result<Parsed, String> {
    // The URL standard repairs `http:host`, so that the parser would not report it.
    if !text.contains("://") {
        return Err("`//` is missing after the scheme".to_owned());
    }
    let url = Url::parse(text).map_err(|e| e.to_string())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a user in the URI is not supported".to_owned());
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("nothing can follow the port: gRPC has no base path".to_owned());
    }
    let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(BAD_PORT)?;
    let host = url.host().map(unbracketed).ok_or("no host")?;
    Ok((ServerAddress::Host { host, port }, Some(security)))
}

/// `///host:port` or `host:port`; `//server/host` would name a DNS server.
fn dns_path(rest: &str) -> Result<&str, String> {
    let Some(rest) = rest.strip_prefix("//") else { return Ok(rest.trim_start_matches('/')) };
    match rest.split_once('/') {
        Some(("", path)) => Ok(path),
        Some((server, _)) => Err(format!("a DNS server of its own ({server:?}) is not supported")),
        None => Err("the form is `dns:///host:port`, with three slashes".to_owned()),
    }
}

/// Parses a host with or without a port.
fn host_address(text: &str) -> Result<ServerAddress, String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, after)) => {
            host.parse::<Ipv6Addr>().map_err(|_| format!("{host:?} is not an IPv6 address"))?;
            let port = match after.strip_prefix(':') {
                Some(port) => parse_port(port)?,
                None if after.is_empty() => DEFAULT_PORT,
                None => return Err(format!("{after:?} cannot follow an address in brackets")),
            };
            return Ok(ServerAddress::Host { host: host.to_owned(), port });
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, parse_port(port)?),
            None => (text, DEFAULT_PORT),
        },
    };
    if host.is_empty() {
        return Err("no host".to_owned());
    }
    // By the URL standard, which converts international names and rejects characters that no host has.
    let host = Host::parse(host).map_err(|e| format!("{host:?} is not a host: {e}"))?;
    Ok(ServerAddress::Host { host: unbracketed(host), port })
}

/// A host without the brackets of an IPv6 address.
fn unbracketed<S: AsRef<str>>(host: Host<S>) -> String {
    match host {
        Host::Domain(name) => name.as_ref().to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    }
}

/// Parses a port.
fn parse_port(text: &str) -> Result<u16, String> {
    if text.contains(':') {
        return Err("too many colons: an IPv6 address needs brackets".to_owned());
    }
    // `parse` alone would accept a sign.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0).ok_or_else(|| format!("port {text:?}: {BAD_PORT}"))
}

/// Parses a list of IP addresses; `what` is what each must be.
fn addresses(rest: &str, what: &str, parse: fn(&str) -> Option<SocketAddr>) -> Result<ServerAddress, String> {
    let parse_one = |text: &str| {
        parse(text)
            // Port 0 has a meaning for listening alone.
            .filter(|address| address.port() != 0)
            .ok_or_else(|| format!("{text:?} is not {what} with a port from 1 to 65535"))
    };
    rest.split(',').map(parse_one).collect::<Result<_, _>>().map(ServerAddress::Addresses)
}

/// Parses an IPv4 address with or without a port.
fn ipv4_address(text: &str) -> Option<SocketAddr> {
    let without_port = || text.parse::<Ipv4Addr>().map(|ip| SocketAddrV4::new(ip, DEFAULT_PORT));
    text.parse::<SocketAddrV4>().or_else(|_| without_port()).ok().map(SocketAddr::V4)
}

/// Parses an IPv6 address with or without a port.
fn ipv6_address(text: &str) -> Option<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let without_port = || bare.parse::<Ipv6Addr>().map(|ip| SocketAddrV6::new(ip, DEFAULT_PORT, 0, 0));
    text.parse::<SocketAddrV6>().or_else(|_| without_port()).ok().map(SocketAddr::V6)
}

/// Parses the path of a socket.
fn unix_path(rest: &str) -> Result<PathBuf, String> {
    let path = match rest.strip_prefix("//") {
        Some(absolute) if absolute.starts_with('/') => absolute,
        Some(_) => return Err("after `unix://` the path must be absolute".to_owned()),
        None => rest,
    };
    // System calls take paths that end at the first NUL.
    if path.is_empty() || path.contains('\0') {
        return Err("no path of a socket".to_owned());
    }
    Ok(Path::new(path).to_owned())
}

/// The default port of gRPC's DNS resolver.
const DEFAULT_PORT: u16 = 443;
/// What a port is, for errors.
const BAD_PORT: &str = "a port is a number from 1 to 65535";
/// The known forms, for errors.
const FORMS: &str = "known are host:port, dns:, ipv4:, ipv6:, unix:, http:// and https://";
/// gRPC's schemes without `//`, which would otherwise be taken for a host.
const KNOWN_SCHEMES: &[&str] =
    &["unix-abstract", "vsock", "passthrough", "google-c2p", "google-c2p-experimental"];
