use std::{net::IpAddr, time::Duration};

/// The addresses of a host, as they were looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Addresses {
    /// The addresses, in the order in which they should be tried.
    pub ips: Vec<IpAddr>,
    /// For how long they hold, if it is known; at most 30 years, longer is as long.
    pub ttl: Option<Duration>,
}

impl Addresses {
    /// Addresses of which it is not known for how long they hold.
    pub fn new(ips: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { ips: ips.into_iter().collect(), ttl: None }
    }

    /// Says for how long they hold.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}
