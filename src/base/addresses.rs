use std::{net::IpAddr, time::Duration};

/// The addresses of a host: the result of a DNS lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Addresses {
    /// The addresses, in the order of connection attempts.
    pub ips: Vec<IpAddr>,
    /// Their TTL, if it is known; limited to 30 years.
    pub ttl: Option<Duration>,
}

impl Addresses {
    /// Addresses without a TTL.
    pub fn new(ips: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { ips: ips.into_iter().collect(), ttl: None }
    }

    /// Sets the TTL of the addresses.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}
