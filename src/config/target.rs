use std::net::SocketAddr;

use crate::name::{NameError, ResourceName, encoding};

use super::{Bootstrap, UnknownAuthority};

/// Why a target does not lead to the name of a listener.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// It is not of the form `xds:///service` or `xds://authority/service`.
    #[error("target {target:?}: {reason}")]
    Invalid {
        /// The target as given.
        target: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Its authority, or that of the name made from it, is not in the bootstrap.
    #[error("target {target:?}: {error}")]
    UnknownAuthority {
        /// The target, or the address of the server, as given.
        target: String,
        /// Which authority.
        error: UnknownAuthority,
    },
    /// The template made an `xdstp:` name that cannot be parsed.
    #[error("target {target:?}: {error}")]
    Name {
        /// The target, or the address of the server, as given.
        target: String,
        /// What is wrong with the name.
        error: NameError,
    },
    /// The bootstrap has no `server_listener_resource_name_template`, which a server needs (A36).
    #[error("the bootstrap has no server_listener_resource_name_template")]
    NoServerTemplate,
}

impl Bootstrap {
    /// The name of the listener that a client's target means (A47): `xds:///service` by the bootstrap's template,
    /// `xds://authority/service` by the authority's. `xds:service` is the same as `xds:///service`.
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
    /// A target of another form, an authority that is not in the bootstrap, or a template whose result is no name.
    pub fn listener_name(&self, target: &str) -> Result<ResourceName, TargetError> {
        let parsed = Target::parse(target)
            .map_err(|reason| TargetError::Invalid { target: target.to_owned(), reason })?;
        let template = if parsed.authority.is_empty() {
            self.client_listener_template()
        } else {
            self.authority(&parsed.authority)
                .map_err(|error| TargetError::UnknownAuthority { target: target.to_owned(), error })?
                .client_listener_template()
        };
        self.checked_name(target, &template.expand(&parsed.path))
    }

    /// The name of the listener that configures a server on this address (A36).
    ///
    /// # Errors
    ///
    /// A bootstrap without a `server_listener_resource_name_template`, or one that makes a name which is invalid or whose
    /// authority is not in the bootstrap.
    pub fn server_listener_name(&self, address: SocketAddr) -> Result<ResourceName, TargetError> {
        let template = self.server_listener_template().ok_or(TargetError::NoServerTemplate)?;
        let address = address.to_string();
        self.checked_name(&address, &template.expand(&address))
    }

    fn checked_name(&self, target: &str, name: &str) -> Result<ResourceName, TargetError> {
        let name = ResourceName::parse(name)
            .map_err(|error| TargetError::Name { target: target.to_owned(), error })?;
        self.sources_for(&name)
            .map_err(|error| TargetError::UnknownAuthority { target: target.to_owned(), error })?;
        Ok(name)
    }
}

/// `xds:[//authority/]path`, decoded.
struct Target {
    authority: String,
    path: String,
}

impl Target {
    fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("xds:").ok_or("does not start with `xds:`")?;
        if rest.contains(['?', '#']) {
            return Err(
                "a query or a fragment has no meaning; write `%3F` or `%23` for the characters".to_owned()
            );
        }
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
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
