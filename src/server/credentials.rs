//! The choice of the security of a server.

/// The security of the connections of filter chains without TLS, for a server that uses that of its chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// No security.
    Plaintext,
}

/// The security of all connections, for a server that does not use that of its filter chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnCredentials {
    /// No security.
    Plaintext,
}

/// The choice of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Credentials {
    Xds(Fallback),
    Own(OwnCredentials),
}
