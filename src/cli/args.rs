//! The command line that `watch` and `walk` share.

use std::{ffi::OsString, fmt::Display, path::PathBuf, str::FromStr, time::Duration};

use crate::config::ApiType;

/// What the command line says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Args<T> {
    pub(crate) bootstrap: PathBuf,
    /// For servers whose bootstrap entry names no variant.
    pub(crate) api_type: ApiType,
    pub(crate) resource_timeout: Option<Duration>,
    pub(crate) json: bool,
    /// Of the requests that targets are resolved for.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) targets: Vec<T>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Invocation<T> {
    Run(Args<T>),
    Help,
}

impl<T: FromStr<Err: Display>> Invocation<T> {
    /// Reads the command line, without the name of the program.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let (mut bootstrap, mut api_type, mut resource_timeout) = (None, ApiType::AggregatedGrpc, None);
        let (mut json, mut headers, mut targets) = (false, Vec::new(), Vec::new());
        while let Some(arg) = args.next() {
            let Some(text) = arg.to_str() else { return Err(format!("{arg:?} is not UTF-8")) };
            match text {
                "--bootstrap" => bootstrap = Some(PathBuf::from(value_of("--bootstrap", args.next())?)),
                "--protocol" => api_type = protocol(&text_of("--protocol", args.next())?)?,
                "--resource-timeout" => {
                    resource_timeout = Some(seconds(&text_of("--resource-timeout", args.next())?)?);
                }
                "--json" => json = true,
                "--header" => headers.push(header(&text_of("--header", args.next())?)?),
                "--help" | "-h" => return Ok(Self::Help),
                option if option.starts_with('-') => return Err(format!("unknown option {option}")),
                target => targets.push(target.parse().map_err(|error: T::Err| error.to_string())?),
            }
        }
        let bootstrap = bootstrap.ok_or("--bootstrap PATH is missing")?;
        Ok(Self::Run(Args { bootstrap, api_type, resource_timeout, json, headers, targets }))
    }
}

fn value_of(option: &str, value: Option<OsString>) -> Result<OsString, String> {
    value.ok_or_else(|| format!("{option} needs a value"))
}

fn text_of(option: &str, value: Option<OsString>) -> Result<String, String> {
    let not_utf8 = |value| format!("the value {value:?} of {option} is not UTF-8");
    value_of(option, value)?.into_string().map_err(not_utf8)
}

fn protocol(text: &str) -> Result<ApiType, String> {
    match text {
        "sotw" => Ok(ApiType::AggregatedGrpc),
        "delta" => Ok(ApiType::AggregatedDeltaGrpc),
        _ => Err(format!("--protocol {text:?}: must be sotw or delta")),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err(format!("--header {text:?}: must be NAME=VALUE")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        format!("--resource-timeout {text:?}: must be a number of seconds over 0, such as 2.5")
    })
}

/// Seconds; some 30 years, so that adding it to a time cannot overflow.
const LONGEST: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Invocation<u8>, String> {
        Invocation::parse(args.split_whitespace().map(OsString::from))
    }

    #[test]
    fn everything_can_be_said() {
        let args = Args {
            bootstrap: "b.json".into(),
            api_type: ApiType::AggregatedDeltaGrpc,
            resource_timeout: Some(Duration::from_millis(2500)),
            json: true,
            headers: vec![("x-a".into(), "1=2".into()), ("x-b".into(), String::new())],
            targets: vec![1, 2],
        };
        let line = "1 --bootstrap b.json --protocol delta --json --resource-timeout 2.5 --header x-a=1=2 --header x-b= 2";
        assert_eq!(parse(line), Ok(Invocation::Run(args)));
        let args = Args {
            bootstrap: "b".into(),
            api_type: ApiType::AggregatedGrpc,
            resource_timeout: None,
            json: false,
            headers: vec![],
            targets: vec![],
        };
        assert_eq!(parse("--bootstrap b"), Ok(Invocation::Run(args.clone())));
        assert_eq!(parse("--bootstrap b --protocol sotw"), Ok(Invocation::Run(args)));
        assert_eq!(parse("--bootstrap b --help"), Ok(Invocation::Help));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, named) in [
            ("", "--bootstrap"),
            ("--bootstrap", "--bootstrap"),
            ("--bootstrap b --bogus", "--bogus"),
            ("--bootstrap b -j", "-j"),
            ("--bootstrap b --protocol", "--protocol"),
            ("--bootstrap b --header", "--header"),
            ("--bootstrap b --header x-a", "NAME=VALUE"),
            ("--bootstrap b --header =1", "NAME=VALUE"),
            ("--bootstrap b --protocol rest", "rest"),
            ("--bootstrap b --resource-timeout soon", "soon"),
            ("--bootstrap b --resource-timeout 0", "\"0\""),
            ("--bootstrap b --resource-timeout -1", "-1"),
            ("--bootstrap b --resource-timeout inf", "inf"),
            ("--bootstrap b --resource-timeout NaN", "NaN"),
            ("--bootstrap b --resource-timeout 1e300", "1e300"),
            ("--bootstrap b one", "digit"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(named), "{named:?} is not in {error:?} of {line:?}");
        }
    }
}
