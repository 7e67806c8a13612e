use std::{path::PathBuf, time::Duration};

use crate::config::ApiType;

/// What the command line says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Args {
    pub(crate) bootstrap: PathBuf,
    pub(crate) listen: String,
    pub(crate) api_type: ApiType,
    pub(crate) json: bool,
    /// How often figures are printed.
    pub(crate) report: Duration,
    /// How long a name is kept that nobody wants.
    pub(crate) linger: Duration,
}

pub(crate) const USAGE: &str = "\
usage: relay --bootstrap PATH --listen ADDR [OPTIONS]

Serves many clients from one subscription: what they ask for is asked for once at the management server of the
bootstrap, and passed on as it is. It serves ADS and the services of single types, in both variants of the protocol.

  --bootstrap PATH    the bootstrap that names the management server
  --listen ADDR       where clients connect, such as 127.0.0.1:18001; port 0 is any that is free
  --protocol VARIANT  sotw (the default) or delta, towards a server whose bootstrap names no variant
  --report SECONDS    how often figures are printed; 10 by default
  --linger SECONDS    how long a name is kept that no client wants any more; 30 by default
  --json              figures as JSON, one object a line
  --help              prints this

Figures are printed again at the end. Rejections of clients are told on the standard error.
";

impl Args {
    /// Reads the command line, without the name of the program; `None` if it asks for help.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let mut args = args.into_iter();
        let (mut bootstrap, mut listen, mut api_type) = (None, None, ApiType::AggregatedGrpc);
        let (mut json, mut report, mut linger) = (false, Duration::from_secs(10), Duration::from_secs(30));
        while let Some(option) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{option} needs a value"));
            match &*option {
                "--bootstrap" => bootstrap = Some(PathBuf::from(value()?)),
                "--listen" => listen = Some(value()?),
                "--protocol" => api_type = protocol(&value()?)?,
                "--report" => report = seconds(&option, &value()?)?,
                "--linger" => linger = seconds(&option, &value()?)?,
                "--json" => json = true,
                "--help" | "-h" => return Ok(None),
                other => return Err(format!("unknown option {other}")),
            }
        }
        let bootstrap = bootstrap.ok_or("--bootstrap PATH is missing")?;
        let listen = listen.ok_or("--listen ADDR is missing")?;
        Ok(Some(Self { bootstrap, listen, api_type, json, report, linger }))
    }
}

fn protocol(text: &str) -> Result<ApiType, String> {
    match text {
        "sotw" => Ok(ApiType::AggregatedGrpc),
        "delta" => Ok(ApiType::AggregatedDeltaGrpc),
        _ => Err(format!("--protocol {text:?}: must be sotw or delta")),
    }
}

fn seconds(option: &str, text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST);
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{option} {text:?}: must be a number of seconds over 0, such as 2.5"))
}

/// Seconds; some 30 years, so that adding it to a time cannot overflow.
const LONGEST: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Option<Args>, String> {
        Args::parse(args.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_relay_is_told_where_it_listens_and_what_it_prints() {
        let args = Args {
            bootstrap: "b.json".into(),
            listen: "[::1]:0".into(),
            api_type: ApiType::AggregatedDeltaGrpc,
            json: true,
            report: Duration::from_millis(500),
            linger: Duration::from_secs(1),
        };
        let line = "--bootstrap b.json --listen [::1]:0 --protocol delta --json --report 0.5 --linger 1";
        assert_eq!(parse(line), Ok(Some(args)));
        assert_eq!(parse("--help"), Ok(None));
    }

    #[test]
    fn what_is_wrong_with_the_arguments_of_a_relay_is_named() {
        for (line, named) in [
            ("", "--bootstrap PATH is missing"),
            ("--bootstrap b", "--listen ADDR is missing"),
            ("--bootstrap b --listen", "--listen needs a value"),
            ("--bootstrap b --listen a --report 0", "--report \"0\""),
            ("--bootstrap b --listen a --linger long", "--linger \"long\""),
            ("--bootstrap b --listen a --protocol rest", "rest"),
            ("--bootstrap b --listen a cluster=shop", "cluster=shop"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(named), "{named:?} is not in {error:?} of {line:?}");
        }
    }
}
