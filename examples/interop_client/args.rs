//! The command line, as `doc/xds-test-descriptions.md` and the clients of gRPC have it.

use std::{fmt::Display, str::FromStr, time::Duration};

use tonic::Code;

use super::messages::RpcType;

pub(crate) const USAGE: &str = "\
usage: interop_client --server=xds:///TARGET [--FLAG=VALUE | --FLAG VALUE]...

Makes calls of grpc.testing.TestService to the target. The bootstrap is that of
GRPC_XDS_BOOTSTRAP, a file, or GRPC_XDS_BOOTSTRAP_CONFIG, its content.

  --num_channels=N            channels to the target (1)
  --qps=N                     calls a second on each channel, of each method (1)
  --rpc=METHODS               UnaryCall, EmptyCall, or both with a comma (UnaryCall)
  --metadata=METHOD:KEY:VALUE,...
                              metadata of the calls of a method
  --rpc_timeout_sec=SECONDS   the deadline of a call (20); also --rpc_timeout=20s
  --stats_port=PORT           the port of the services (8081); 0 takes a free one
  --fail_on_failed_rpcs       end with exit code 1 if a call fails after the first
                              success; also --fail_on_failed_rpc
  --expect_status=STATUS      the status that is the success of a call (OK)
  --print_response            print each response
  --log_rpc_start_and_end     log the beginning and the end of each call
  --request_payload_size=N    bytes that UnaryCall sends (0)
  --response_payload_size=N   bytes that UnaryCall requests (0)
  --secure_mode               TLS as the clusters configure it (off)
  --enable_csm_observability=false";

/// The parsed command line.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) server: String,
    pub(crate) num_channels: usize,
    pub(crate) qps: u32,
    pub(crate) methods: Vec<RpcType>,
    pub(crate) metadata: Vec<(RpcType, String, String)>,
    pub(crate) timeout: Duration,
    pub(crate) stats_port: u16,
    pub(crate) expect_status: Code,
    pub(crate) request_payload_size: usize,
    pub(crate) response_payload_size: i32,
    /// TLS as the clusters configure it.
    pub(crate) secure_mode: bool,
    pub(crate) output: Output,
}

/// What is done about the outcome of a call beside counting it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Output {
    pub(crate) fails_on_failure: bool,
    pub(crate) prints_response: bool,
    pub(crate) logs_calls: bool,
}

impl Args {
    /// `None` if the usage is asked for.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let mut parsed = Self {
            server: String::new(),
            num_channels: 1,
            qps: 1,
            methods: vec![RpcType::UnaryCall],
            metadata: Vec::new(),
            timeout: Duration::from_secs(20),
            stats_port: 8081,
            expect_status: Code::Ok,
            request_payload_size: 0,
            response_payload_size: 0,
            secure_mode: false,
            output: Output::default(),
        };
        let mut args = args.into_iter().peekable();
        while let Some(arg) = args.next() {
            let flag = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'));
            let flag = flag.ok_or_else(|| format!("unexpected argument {arg}"))?;
            let (flag, mut value) = match flag.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (flag, None),
            };
            if flag == "help" || flag == "h" {
                return Ok(None);
            }
            // A flag that is on or off needs no value, so the next argument may be another flag.
            let is_value = |next: &String| !is_switch(flag) || boolean(flag, next).is_ok();
            value = value.or_else(|| args.next_if(is_value));
            let value = value.or_else(|| is_switch(flag).then(|| "true".to_owned()));
            parsed.set(flag, &value.ok_or_else(|| format!("--{flag} needs a value"))?)?;
        }
        if parsed.server.is_empty() {
            return Err("--server is needed".to_owned());
        }
        Ok(Some(parsed))
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        match flag {
            "server" => value.clone_into(&mut self.server),
            "num_channels" => self.num_channels = at_least_1(flag, value)?,
            "qps" => self.qps = at_least_1(flag, value)?,
            "rpc" => self.methods = methods(value)?,
            "metadata" => self.metadata = metadata(value)?,
            "rpc_timeout_sec" => self.timeout = Duration::from_secs(number(flag, value)?),
            "rpc_timeout" => self.timeout = duration(flag, value)?,
            "stats_port" => self.stats_port = number(flag, value)?,
            "expect_status" => self.expect_status = code(value)?,
            "request_payload_size" => self.request_payload_size = number(flag, value)?,
            "response_payload_size" => self.response_payload_size = number(flag, value)?,
            "fail_on_failed_rpcs" | "fail_on_failed_rpc" => {
                self.output.fails_on_failure = boolean(flag, value)?;
            }
            "print_response" => self.output.prints_response = boolean(flag, value)?,
            "log_rpc_start_and_end" => self.output.logs_calls = boolean(flag, value)?,
            "secure_mode" => self.secure_mode = boolean(flag, value)?,
            "enable_csm_observability" if boolean(flag, value)? => {
                return Err("--enable_csm_observability is not supported: there is no exporter".to_owned());
            }
            "enable_csm_observability" => {}
            _ => return Err(format!("unknown flag --{flag}")),
        }
        Ok(())
    }
}

fn is_switch(flag: &str) -> bool {
    [
        "fail_on_failed_rpcs",
        "fail_on_failed_rpc",
        "print_response",
        "log_rpc_start_and_end",
        "secure_mode",
        "enable_csm_observability",
    ]
    .contains(&flag)
}

/// `True` is what drivers in Python write.
fn boolean(flag: &str, value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("--{flag} is true or false, not {value}")),
    }
}

fn number<T: FromStr<Err: Display>>(flag: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|error| format!("--{flag}={value}: {error}"))
}

fn at_least_1<T: FromStr<Err: Display> + Default + PartialEq>(flag: &str, value: &str) -> Result<T, String> {
    let number = number(flag, value)?;
    if number == T::default() { Err(format!("--{flag} is at least 1")) } else { Ok(number) }
}

/// As Go writes it, in seconds or milliseconds.
fn duration(flag: &str, value: &str) -> Result<Duration, String> {
    if let Some(millis) = value.strip_suffix("ms") {
        return number(flag, millis).map(Duration::from_millis);
    }
    let seconds = number(flag, value.strip_suffix('s').unwrap_or(value))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| format!("--{flag}={value}: {error}"))
}

fn methods(value: &str) -> Result<Vec<RpcType>, String> {
    let names = value.split(',').filter(|name| !name.is_empty());
    let methods = names.map(method).collect::<Result<Vec<_>, _>>()?;
    Ok(if methods.is_empty() { vec![RpcType::UnaryCall] } else { methods })
}

fn method(name: &str) -> Result<RpcType, String> {
    let both = [RpcType::UnaryCall, RpcType::EmptyCall];
    let known = both.into_iter().find(|method| method.method() == name);
    known.ok_or_else(|| format!("{name} is neither UnaryCall nor EmptyCall"))
}

/// `EmptyCall:key1:value1,UnaryCall:key2:value2`, where a method may have several pairs.
fn metadata(value: &str) -> Result<Vec<(RpcType, String, String)>, String> {
    let mut all = Vec::new();
    for entry in value.split(',').filter(|entry| !entry.is_empty()) {
        let parts: Vec<_> = entry.split(':').collect();
        let (name, pairs) = parts.split_first().ok_or("no method")?;
        let (pairs, rest) = pairs.as_chunks();
        if !rest.is_empty() {
            return Err(format!("--metadata: {entry} is not METHOD:KEY:VALUE"));
        }
        let method = method(name)?;
        all.extend(pairs.iter().map(|[key, value]| (method, key.to_ascii_lowercase(), (*value).to_owned())));
    }
    Ok(all)
}

/// A status by its name, such as `UNAVAILABLE`, or by its number.
fn code(value: &str) -> Result<Code, String> {
    let numbers = 0..=16;
    let is_it = |code: &i32| value.parse() == Ok(*code) || code_name(Code::from_i32(*code)) == value;
    let found = numbers.into_iter().find(is_it);
    found.map(Code::from_i32).ok_or_else(|| format!("--expect_status={value} is no status"))
}

/// The name of a status as gRPC writes it.
fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() && code != Code::Ok {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
