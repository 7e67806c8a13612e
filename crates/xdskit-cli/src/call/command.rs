//! The commands that the tool reads from standard input.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use tonic::{
    Status,
    metadata::{AsciiMetadataKey, BinaryMetadataKey, BinaryMetadataValue, MetadataMap},
};

/// A line of standard input.
pub enum Command {
    /// Calls to make.
    Call(Box<Call>),
    /// What the channel is doing, as the answer to this id.
    Status(Value),
    /// The end of the tool.
    Quit,
}

/// Some calls of one method.
#[derive(Debug, Clone, Default, Deserialize)]
// A misspelled field would otherwise have no effect, and the calls would not be what was meant.
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Repeated in the answer.
    pub id: Value,
    /// The path, such as `/package.Service/Method`.
    pub method: String,
    /// The metadata of the request, by name.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The message, as it is sent.
    #[serde(default)]
    pub body: String,
    /// In seconds.
    pub timeout: Option<f64>,
    /// Whether the calls wait while there is no backend, instead of failing.
    pub wait_for_ready: Option<bool>,
    /// The number of calls, one by default.
    #[serde(default = "one")]
    pub count: usize,
    /// The number of calls at a time, one by default.
    #[serde(default = "one")]
    pub parallel: usize,
}

impl Command {
    /// Parses a line.
    ///
    /// # Errors
    /// The id of the line, as far as it has one, and the reason.
    pub fn parse(line: &str) -> Result<Self, (Value, String)> {
        let value: Value = serde_json::from_str(line).map_err(|error| (Value::Null, error.to_string()))?;
        let id = value.get("id").cloned().unwrap_or_default();
        if value.get("quit") == Some(&Value::Bool(true)) {
            return Ok(Self::Quit);
        }
        if value.get("status") == Some(&Value::Bool(true)) {
            return Ok(Self::Status(id));
        }
        let call: Call = serde_json::from_value(value).map_err(|error| (id.clone(), error.to_string()))?;
        call.check().map_err(|reason| (id, reason))?;
        Ok(Self::Call(Box::new(call)))
    }
}

impl Call {
    /// Checks what the types of the fields leave open.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<(), String> {
        // A path may have further segments: servers behind a gateway have them before the service.
        let parts: Vec<_> = self.method.split('/').collect();
        if !matches!(&parts[..], ["", rest @ ..] if rest.len() > 1 && rest.iter().all(|part| !part.is_empty()))
        {
            return Err(format!("the method {:?} must be of the form /pkg.Service/Method", self.method));
        }
        if self.timeout.is_some_and(|seconds| !(seconds > 0.0 && seconds <= LONGEST)) {
            return Err(format!("timeout must be over 0 and at most {LONGEST} seconds"));
        }
        if self.parallel == 0 {
            return Err("parallel must be at least 1".to_owned());
        }
        self.add_headers(&mut MetadataMap::new()).map_err(|status| status.message().to_owned())
    }

    /// The timeout of each call.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs_f64)
    }

    /// Adds the headers; the values of binary ones (`-bin`) are their bytes.
    ///
    /// # Errors
    /// A name or a value is not one of HTTP.
    pub fn add_headers(&self, metadata: &mut MetadataMap) -> Result<(), Status> {
        for (name, value) in &self.headers {
            let invalid = |error: &dyn std::error::Error| {
                Status::invalid_argument(format!("the header {name:?} cannot be sent: {error}"))
            };
            if name.ends_with("-bin") {
                let key = BinaryMetadataKey::from_bytes(name.as_bytes()).map_err(|error| invalid(&error))?;
                metadata.append_bin(key, BinaryMetadataValue::from_bytes(value.as_bytes()));
            } else {
                let key = AsciiMetadataKey::from_bytes(name.as_bytes()).map_err(|error| invalid(&error))?;
                metadata.append(key, value.parse().map_err(|error| invalid(&error))?);
            }
        }
        Ok(())
    }
}

/// The default of numbers.
fn one() -> usize {
    1
}

/// The longest time limit in seconds.
const LONGEST: f64 = 1e8;
