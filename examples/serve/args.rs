//! The arguments of the program.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

pub(crate) const USAGE: &str = "usage: serve --bootstrap PATH --listen ADDR [--listen ADDR ..] \
    [--credentials insecure|xds] [--template TEXT] [--handshake-timeout S] [--drain-grace S] [--drain-spread S] \
    [--max-connections N] [--max-connection-age S] [--release-port]";

/// The arguments; what is `None` has the default of the library.
#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) bootstrap: PathBuf,
    pub(crate) listen: Vec<SocketAddr>,
    /// Whether the security is that of the filter chains.
    pub(crate) xds_credentials: bool,
    pub(crate) template: Option<String>,
    pub(crate) handshake_timeout: Option<Duration>,
    pub(crate) drain_grace: Option<Duration>,
    pub(crate) drain_spread: Option<Duration>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) max_connection_age: Option<Duration>,
    pub(crate) release_port: bool,
}

impl Args {
    /// Parses the arguments after the name of the program; `None` asks for help.
    pub(crate) fn parse(mut given: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut args = Self::default();
        while let Some(flag) = given.next() {
            match &*flag {
                "--help" => return Ok(None),
                "--release-port" => {
                    args.release_port = true;
                    continue;
                }
                "--drain-on-roots-change" => {
                    return Err(format!("{flag}: not supported, as the server has no TLS"));
                }
                _ => {}
            }
            let value = given.next().ok_or_else(|| format!("{flag}: a value is missing"))?;
            let invalid = |reason: &dyn std::fmt::Display| format!("{flag} {value:?}: {reason}");
            match &*flag {
                "--bootstrap" => args.bootstrap = PathBuf::from(&value),
                "--listen" => args.listen.push(value.parse::<SocketAddr>().map_err(|error| invalid(&error))?),
                "--credentials" => {
                    args.xds_credentials = match &*value {
                        "xds" => true,
                        "insecure" => false,
                        _ => return Err(invalid(&"must be insecure or xds")),
                    };
                }
                "--template" => args.template = Some(value),
                "--handshake-timeout" => args.handshake_timeout = Some(seconds(&flag, &value)?),
                "--drain-grace" => args.drain_grace = Some(seconds(&flag, &value)?),
                "--drain-spread" => args.drain_spread = Some(seconds(&flag, &value)?),
                "--max-connection-age" => args.max_connection_age = Some(seconds(&flag, &value)?),
                "--max-connections" => {
                    args.max_connections = Some(value.parse::<usize>().map_err(|error| invalid(&error))?);
                }
                _ => return Err(format!("{flag}: unknown flag")),
            }
        }
        if args.bootstrap.as_os_str().is_empty() {
            return Err("--bootstrap is missing".to_owned());
        }
        if args.listen.is_empty() {
            return Err("--listen is missing".to_owned());
        }
        Ok(Some(args))
    }
}

/// Seconds, with fractions.
fn seconds(flag: &str, value: &str) -> Result<Duration, String> {
    let seconds = value.parse::<f64>().map_err(|error| format!("{flag} {value:?}: {error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| format!("{flag} {value:?}: {error}"))
}
