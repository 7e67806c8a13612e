//! Targets of channels, and the names of their listeners.

use std::{borrow::Cow, fmt, net::SocketAddr, sync::Arc};

use crate::{
    escape::debug_as_message,
    name::{NameError, ResourceName, encoding},
};

use super::{Bootstrap, UnknownAuthority};

/// The target of a resolution: the text `xds:///service` or `xds://authority/service` (A27, A47), with optional properties
/// of the requests.
///
/// The text is parsed when the target is resolved. Characters that are not permitted in a URI must be
/// percent-encoded.
///
/// ```
/// use xdskit::config::Target;
///
/// let shop = Target::new("xds:///shop").with_authority("shop.example.com");
/// assert_eq!(shop.to_string(), "xds:///shop");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The target as it was written.
    text: Arc<str>,
    /// The host of requests, if it is not that of the target.
    authority: Option<Arc<str>>,
    /// The headers that choose the scope.
    headers: Arc<[(Arc<str>, Arc<str>)]>,
}

/// The reason why a target has no listener name.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The target is not of the form `xds:///service` or `xds://authority/service`.
    #[error("target {target:?}: {reason}")]
    Invalid {
        /// The target as given.
        target: String,
        /// The reason.
        reason: String,
    },
    /// Its authority, or that of the resulting name, is not in the bootstrap.
    #[error("target {target:?}: {error}")]
    UnknownAuthority {
        /// The target, or the address of the server, as given.
        target: String,
        /// The unknown authority.
        error: UnknownAuthority,
    },
    /// The result of the template is an `xdstp:` name that cannot be parsed.
    #[error("target {target:?}: {error}")]
    Name {
        /// The target, or the address of the server, as given.
        target: String,
        /// The error of the name.
        error: NameError,
    },
    /// The bootstrap has no `server_listener_resource_name_template`, which a server needs (A36).
    #[error("the bootstrap has no server_listener_resource_name_template")]
    NoServerTemplate,
}

impl Target {
    /// A target with this text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), authority: None, headers: Arc::default() }
    }

    /// Sets the host that selects the virtual host of the route configuration. The default is the service of the target.
    #[must_use]
    pub fn with_authority(mut self, host: impl Into<Arc<str>>) -> Self {
        self.authority = Some(host.into());
        self
    }

    /// Adds a header of the requests, which selects the route configuration if the listener has scoped routes (SRDS).
    /// Names are case-insensitive; of several values, the first one applies.
    ///
    /// A resolution is for requests with the same scope. `:authority` and `host` are the [authority](Self::with_authority)
    /// unless they are added here. Routes do not match these headers, but those of each
    /// [`RouteQuery`](crate::resolve::RouteQuery).
    ///
    /// ```
    /// use xdskit::config::Target;
    ///
    /// let eu = Target::new("xds:///shop").with_header("x-region", "eu");
    /// assert_ne!(eu, Target::new("xds:///shop"));
    /// ```
    #[must_use]
    pub fn with_header(mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        self.headers = self.headers.iter().cloned().chain([(name.into(), value.into())]).collect();
        self
    }

    /// The headers that select the scope, in the order in which they were added.
    pub(crate) fn headers(&self) -> &Arc<[(Arc<str>, Arc<str>)]> {
        &self.headers
    }

    /// Checks the form of the target, without a bootstrap. [`Bootstrap::listener_name`] also checks its authority.
    ///
    /// # Errors
    /// The text is not of the form `xds:///service` or `xds://authority/service`.
    ///
    /// ```
    /// use xdskit::Target;
    ///
    /// assert!(Target::new("xds:///shop").check().is_ok());
    /// let error = Target::new("shop").check().unwrap_err();
    /// assert_eq!(error.to_string(), "target \"shop\": does not start with `xds:`");
    /// ```
    pub fn check(&self) -> Result<(), TargetError> {
        check_target(&self.text)
    }

    /// The text of the target.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of the service, and the host that selects the virtual host. The authority of the target does not matter.
    pub(crate) fn service_and_host(&self) -> Result<(String, Arc<str>), TargetError> {
        let parsed = Parsed::of_target(&self.text)?;
        let host = self.authority.clone().unwrap_or_else(|| parsed.host().into());
        Ok((parsed.path, host))
    }

    /// The host that selects the virtual host, if it was set.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }
}

impl From<&str> for Target {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Target {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&String> for Target {
    fn from(text: &String) -> Self {
        Self::new(text.as_str())
    }
}

impl From<Cow<'_, str>> for Target {
    fn from(text: Cow<'_, str>) -> Self {
        Self::new(text)
    }
}

/// A target with an authority, such as `xds://mesh/shop`. One without, as `xds:///shop`, is no URI of the crate `http`, and is
/// converted from its text.
#[cfg(feature = "client")]
impl From<http::Uri> for Target {
    fn from(uri: http::Uri) -> Self {
        Self::from(&uri)
    }
}

/// A target with an authority, such as `xds://mesh/shop`.
#[cfg(feature = "client")]
impl From<&http::Uri> for Target {
    fn from(uri: &http::Uri) -> Self {
        Self::new(uri.to_string())
    }
}

impl From<&Self> for Target {
    fn from(target: &Self) -> Self {
        target.clone()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

debug_as_message!(TargetError);

impl Bootstrap {
    /// The listener name of a target (A47): `xds:///service` by the template of the bootstrap, `xds://authority/service` by
    /// that of the authority. `xds:service` is the same as `xds:///service`.
    ///
    /// ```
    /// use xdskit::config::{AuthorityBuilder, Bootstrap, Server};
    ///
    /// let bootstrap = Bootstrap::builder()
    ///     .server(Server::new("http://127.0.0.1:18000"))
    ///     .authority("a.example", AuthorityBuilder::default())
    ///     .build()?;
    /// assert_eq!(bootstrap.listener_name("xds:///shop")?.as_str(), "shop");
    /// assert_eq!(
    ///     bootstrap.listener_name("xds://a.example/shop")?.as_str(),
    ///     "xdstp://a.example/envoy.config.listener.v3.Listener/shop",
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The target has another form, its authority is not in the bootstrap, or the result of the template is not a name.
    pub fn listener_name(&self, target: &str) -> Result<ResourceName, TargetError> {
        self.read_target(target).map(|(name, _)| name)
    }

    /// The name of the listener, and the host in the target: its service, without slashes (A47-4).
    pub(crate) fn read_target(&self, target: &str) -> Result<(ResourceName, String), TargetError> {
        let parsed = Parsed::of_target(target)?;
        // A47-1, A47-2: `xds:///service` has no authority; an entry with the empty name is for `xdstp:///` names alone.
        let template = if parsed.authority.is_empty() {
            self.client_listener_template().clone()
        } else {
            self.template_of(&parsed.authority)
                .map_err(|error| TargetError::UnknownAuthority { target: target.to_owned(), error })?
        };
        let name = self.checked_name(target, &template.expand(&parsed.path))?;
        Ok((name, parsed.host()))
    }

    /// The listener name of a server on this address (A36).
    ///
    /// # Errors
    ///
    /// The bootstrap has no `server_listener_resource_name_template`, or its result is not a name or has an authority that
    /// is not in the bootstrap.
    pub fn server_listener_name(&self, address: SocketAddr) -> Result<ResourceName, TargetError> {
        let template = self.server_listener_template().ok_or(TargetError::NoServerTemplate)?;
        let address = address.to_string();
        self.checked_name(&address, &template.expand(&address))
    }

    /// Parses the name of a listener, whose authority must be known.
    /// A template of the bootstrap may lead to any authority, also to one without an entry.
    fn checked_name(&self, target: &str, name: &str) -> Result<ResourceName, TargetError> {
        let name = ResourceName::parse(name)
            .map_err(|error| TargetError::Name { target: target.to_owned(), error })?;
        if let Some(authority) = name.authority() {
            self.authority(authority)
                .map_err(|error| TargetError::UnknownAuthority { target: target.to_owned(), error })?;
        }
        Ok(name)
    }
}

/// Checks the form of a target, for which no bootstrap is needed.
pub(crate) fn check_target(target: &str) -> Result<(), TargetError> {
    Parsed::of_target(target).map(drop)
}

/// `xds:[//authority/]path`, decoded.
struct Parsed {
    /// The authority; empty if there is none.
    /// Percent-decoded, and still not checked to be in the bootstrap.
    authority: String,
    /// The name of the service, not empty; slashes in it are parts of the name.
    path: String,
}

impl Parsed {
    /// The host of the target: its service, without slashes (A47-4).
    fn host(&self) -> String {
        // A47: each character that an authority cannot have is escaped, not `/` alone.
        let mut host = String::new();
        encoding::encode_into(&mut host, &self.path, encoding::AUTHORITY);
        host
    }

    /// Parses a target; errors contain it.
    fn of_target(target: &str) -> Result<Self, TargetError> {
        Self::parse(target).map_err(|reason| TargetError::Invalid { target: target.to_owned(), reason })
    }

    /// Parses a target.
    fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("xds:").ok_or("does not start with `xds:`")?;
        if rest.contains(['?', '#']) {
            return Err(
                "a query or a fragment has no meaning; write `%3F` or `%23` for the characters".to_owned()
            );
        }
        let (authority, path) = match rest.strip_prefix("//") {
            // `xds://service` has an authority alone, which is reported below as a missing service.
            Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
            // A27-9: `xds:service` is the same target as `xds:///service`.
            None => ("", rest.strip_prefix('/').unwrap_or(rest)),
        };
        if path.is_empty() {
            return Err("no name of a service".to_owned());
        }
        let decode = |part, what| {
            encoding::decode(part).map(String::from).map_err(|e| format!("{what}: {}", e.reason))
        };
        Ok(Self { authority: decode(authority, "authority")?, path: decode(path, "service")? })
    }
}
