//! Resource types, by their names on the command line.

use std::str::FromStr;

use xdskit::control_plane::type_url;

use super::usage::{closest, did_you_mean};

/// A resource type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Listeners (LDS).
    Listener,
    /// Route configurations (RDS).
    Route,
    /// Clusters (CDS).
    Cluster,
    /// Endpoints (EDS).
    Endpoints,
    /// Scopes (SRDS).
    ScopedRoute,
    /// Virtual hosts on demand (VHDS).
    VirtualHost,
    /// Secrets (SDS).
    Secret,
    /// Layers of runtime settings (RTDS).
    Runtime,
}

impl Kind {
    /// All types, in the order in which help texts list them.
    pub const ALL: [Self; 8] = [
        Self::Listener,
        Self::Route,
        Self::Cluster,
        Self::Endpoints,
        Self::ScopedRoute,
        Self::VirtualHost,
        Self::Secret,
        Self::Runtime,
    ];

    /// The name on the command line and in the output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Route => "route",
            Self::Cluster => "cluster",
            Self::Endpoints => "endpoints",
            Self::ScopedRoute => "scoped-route",
            Self::VirtualHost => "virtual-host",
            Self::Secret => "secret",
            Self::Runtime => "runtime",
        }
    }

    /// The type of a type URL, if it is one of these.
    pub fn from_type_url(type_url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }

    /// The type URL of the resources.
    fn type_url(self) -> &'static str {
        match self {
            Self::Listener => type_url::LISTENER,
            Self::Route => type_url::ROUTE_CONFIGURATION,
            Self::Cluster => type_url::CLUSTER,
            Self::Endpoints => type_url::ENDPOINTS,
            Self::ScopedRoute => type_url::SCOPED_ROUTE_CONFIGURATION,
            Self::VirtualHost => type_url::VIRTUAL_HOST,
            Self::Secret => type_url::SECRET,
            Self::Runtime => type_url::RUNTIME,
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::as_str);
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let hint = did_you_mean(closest(text, names));
            format!("unknown type {text:?}{hint} (types are {})", names.join(", "))
        })
    }
}
