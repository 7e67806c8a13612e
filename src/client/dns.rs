//! The tasks that look up hosts.

use std::{fmt, future::Future, io, pin::Pin, sync::Arc, time::Duration};

use tokio::{net, sync::mpsc::UnboundedSender, task::JoinSet, time::timeout};

use crate::{engine::Input, resolve::Addresses, resolve::LookupId};

/// A resolver of host names, for `LOGICAL_DNS` clusters (A37).
///
/// The client starts lookups: when a cluster needs a host, after the TTL of the addresses, and when the application
/// [requests it](super::Resolution::request_reresolution). A failed lookup is repeated; the last known good addresses
/// are kept in the meantime.
///
/// ```
/// use std::{io, net::Ipv4Addr};
/// use xdskit::client::{Addresses, Dns, Lookup};
///
/// /// A resolver of one host.
/// #[derive(Debug)]
/// struct Hosts;
///
/// impl Dns for Hosts {
///     fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
///         Box::pin(async move {
///             match host {
///                 "cart.example" => Ok(Addresses::new([Ipv4Addr::new(10, 0, 0, 1).into()])),
///                 _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such host")),
///             }
///         })
///     }
/// }
/// ```
pub trait Dns: fmt::Debug + Send + Sync + 'static {
    /// Looks up all addresses of a host, which may be an IP address itself.
    ///
    /// The future is polled in a separate task of a tokio runtime, and dropped when the client has ended. The lookup fails
    /// if the future panics or exceeds the [timeout](super::ClientBuilder::resource_timeout) of resources.
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a>;
}

/// The result of [`Dns::lookup`]: a future of the addresses of a host. Errors are reported by their text.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = io::Result<Addresses>> + Send + 'a>>;

/// The resolver of the system (`getaddrinfo`), with its order of addresses. It does not provide a TTL.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct SystemDns;

impl Dns for SystemDns {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            let mut ips = Vec::new();
            for found in net::lookup_host((host, 0)).await? {
                // Some systems return an address once per socket type.
                if !ips.contains(&found.ip()) {
                    ips.push(found.ip());
                }
            }
            Ok(Addresses::new(ips))
        })
    }
}

/// Executes lookups, each in a task of its own; dropping it aborts them.
#[derive(Debug)]
pub(super) struct Lookups {
    /// The resolver of the system, or of the application.
    dns: Arc<dyn Dns>,
    /// The maximum duration of a lookup: the time after which the engine gives it up, too.
    lookup_timeout: Duration,
    /// The lookups in progress, which end with the client.
    tasks: JoinSet<()>,
}

impl Lookups {
    /// No lookups.
    pub(super) fn new(dns: Arc<dyn Dns>, lookup_timeout: Duration) -> Self {
        Self { dns, lookup_timeout, tasks: JoinSet::new() }
    }

    /// Begins a lookup, whose outcome is reported exactly once.
    ///
    /// `dns` may be code of an application: it is called within the task, so that a panic, or a long computation, does not
    /// happen in the driver.
    pub(super) fn start(&mut self, lookup: LookupId, host: Arc<str>, reports: UnboundedSender<Input>) {
        // A `JoinSet` keeps the results of ended tasks until somebody takes them.
        while self.tasks.try_join_next().is_some() {}
        let report = Report { lookup, reports: Some(reports) };
        let (dns, lookup_timeout) = (self.dns.clone(), self.lookup_timeout);
        self.tasks.spawn(async move {
            let result = match timeout(lookup_timeout, dns.lookup(&host)).await {
                Ok(found) => found.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer in {lookup_timeout:?}")),
            };
            report.finish(result);
        });
    }
}

/// Reports the outcome of a lookup, even of a panicking one.
///
/// The engine counts lookups in progress, and a host whose lookup is never reported would not be looked up again before its
/// timeout.
#[derive(Debug)]
struct Report {
    /// The lookup.
    lookup: LookupId,
    /// Where its result is sent; `None` once it was.
    reports: Option<UnboundedSender<Input>>,
}

impl Report {
    /// Reports a result.
    fn finish(mut self, result: Result<Addresses, String>) {
        self.send(result);
    }

    /// Reports a result, unless one was reported.
    fn send(&mut self, result: Result<Addresses, String>) {
        if let Some(reports) = self.reports.take() {
            // An error means that the client has ended.
            let _ = reports.send(Input::Resolved { lookup: self.lookup, result });
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        // Also dropped when the client ends and aborts its tasks, when nobody receives it.
        self.send(Err("the resolver panicked".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, net::Ipv4Addr};

    use tokio::sync::mpsc;

    use super::*;

    /// A resolver whose outcome depends on the name of the host.
    #[derive(Debug)]
    struct Fake;

    impl Dns for Fake {
        fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
            assert_ne!(host, "panics at once");
            Box::pin(async move {
                match host {
                    "fails" => Err(io::Error::other("no such host")),
                    "panics" => panic!("as it should"),
                    "hangs" => pending().await,
                    _ => Ok(Addresses::new([Ipv4Addr::LOCALHOST.into()])),
                }
            })
        }
    }

    async fn report(dns: impl Dns, host: &str) -> Result<Addresses, String> {
        let (reports, mut reported) = mpsc::unbounded_channel();
        let mut lookups = Lookups::new(Arc::new(dns), Duration::from_secs(15));
        lookups.start(LookupId(7), host.into(), reports);
        let Some(Input::Resolved { lookup: LookupId(7), result }) = reported.recv().await else {
            panic!("nothing, or something else, was reported")
        };
        assert!(reported.recv().await.is_none(), "one report, and no more");
        result
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_becomes_of_a_lookup_is_reported() {
        let localhost = Addresses::new([Ipv4Addr::LOCALHOST.into()]);
        let cases = [
            ("works", Ok(localhost)),
            ("fails", Err("no such host")),
            ("panics", Err("the resolver panicked")),
            ("panics at once", Err("the resolver panicked")),
            ("hangs", Err("no answer in 15s")),
        ];
        for (host, expected) in cases {
            assert_eq!(report(Fake, host).await, expected.map_err(str::to_owned), "{host}");
        }
    }

    #[tokio::test]
    async fn lookups_end_with_the_client() {
        let (reports, mut reported) = mpsc::unbounded_channel();
        let mut lookups = Lookups::new(Arc::new(Fake), Duration::from_secs(15));
        lookups.start(LookupId(7), "hangs".into(), reports);
        tokio::task::yield_now().await;
        drop(lookups);
        while reported.recv().await.is_some() {}
    }

    #[tokio::test]
    async fn the_system_knows_addresses_and_itself() {
        for (host, ip) in [("10.0.0.1", "10.0.0.1"), ("2001:db8::1", "2001:db8::1")] {
            let found = report(SystemDns, host).await.unwrap();
            assert_eq!((found.ips, found.ttl), (vec![ip.parse().unwrap()], None));
        }
        let found = report(SystemDns, "localhost").await.unwrap();
        assert!(found.ips.iter().any(std::net::IpAddr::is_loopback), "{found:?}");
    }
}
