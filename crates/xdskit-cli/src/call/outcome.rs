//! What came of calls, one by one and in numbers.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tonic::{
    Code, Status,
    metadata::{KeyAndValueRef, MetadataMap},
};
use xdskit::error::Escaped;

use crate::json::printable;

/// What came of a call.
pub struct Outcome {
    /// The status.
    code: Code,
    /// The message of the status.
    message: String,
    /// The response.
    body: String,
    /// The initial metadata.
    headers: BTreeMap<String, String>,
    /// The final metadata.
    trailers: BTreeMap<String, String>,
    /// The time from the call to its status.
    duration: Duration,
}

/// What came of the calls of a command.
#[derive(Default)]
pub struct Outcomes {
    /// Numbers of calls by their statuses.
    codes: BTreeMap<&'static str, usize>,
    /// Numbers of calls by the messages of their statuses.
    messages: BTreeMap<String, usize>,
    /// Numbers of responses by their header `x-backend`.
    by: BTreeMap<String, usize>,
    /// The time of each call.
    durations: Vec<Duration>,
}

impl Outcome {
    /// The outcome of a call with a response.
    pub fn answered(body: &[u8], headers: &MetadataMap, trailers: &MetadataMap) -> Self {
        Self {
            code: Code::Ok,
            message: String::new(),
            body: String::from_utf8_lossy(body).into_owned(),
            headers: read(headers),
            trailers: read(trailers),
            duration: Duration::ZERO,
        }
    }

    /// The metadata of a status are those of its trailers, with headers of a response without messages.
    pub fn failed(status: &Status) -> Self {
        Self {
            code: status.code(),
            message: status.message().to_owned(),
            body: String::new(),
            headers: BTreeMap::new(),
            trailers: read(status.metadata()),
            duration: Duration::ZERO,
        }
    }

    /// Sets the time that the call took.
    pub fn set_duration(&mut self, duration: Duration) {
        self.duration = duration;
    }

    /// Whether the call has succeeded.
    pub fn is_ok(&self) -> bool {
        self.code == Code::Ok
    }

    /// The answer to a single call.
    pub fn json(&self, id: &Value) -> String {
        let answer = json!({
            "id": id,
            "code": name(self.code),
            "message": self.message,
            "body": self.body,
            "headers": self.headers,
            "trailers": self.trailers,
            "ms": millis(self.duration),
        });
        printable(answer.to_string())
    }

    /// For people: what the server has chosen cannot control their terminals, nor look like other lines of this.
    pub fn text(&self) -> String {
        let mut text = format!("{} in {} ms", name(self.code), millis(self.duration));
        if !self.message.is_empty() {
            text += &format!(": {}", Escaped(&self.message));
        }
        text.push('\n');
        for (kind, map) in [("header", &self.headers), ("trailer", &self.trailers)] {
            for (key, value) in map {
                text += &format!("{kind:<8} {key}: {}\n", Escaped(value));
            }
        }
        if self.is_ok() {
            // It comes last, so its lines may be as they are.
            self.body.split('\n').for_each(|line| text += &format!("{}\n", Escaped(line)));
        }
        text
    }
}

impl Outcomes {
    /// Adds the outcome of a call.
    pub fn add(&mut self, outcome: &Outcome) {
        *self.codes.entry(name(outcome.code)).or_default() += 1;
        if !outcome.message.is_empty() {
            *self.messages.entry(outcome.message.clone()).or_default() += 1;
        }
        let backend = outcome.headers.get("x-backend").or_else(|| outcome.trailers.get("x-backend"));
        if let Some(backend) = backend {
            *self.by.entry(backend.clone()).or_default() += 1;
        }
        self.durations.push(outcome.duration);
    }

    /// The answer to several calls. Its times are the least, the median, the 99th percentile and the greatest.
    pub fn json(mut self, id: &Value) -> String {
        self.durations.sort_unstable();
        let at = |percent: usize| {
            // The nearest rank: the first time that at least so many percent of the calls do not exceed.
            let place = (self.durations.len() * percent).div_ceil(100).saturating_sub(1);
            self.durations.get(place).map(|duration| millis(*duration))
        };
        let answer = json!({
            "id": id,
            "count": self.durations.len(),
            "codes": self.codes,
            "messages": self.messages,
            "by": self.by,
            "ms": [at(0), at(50), at(99), at(100)],
        });
        printable(answer.to_string())
    }
}

/// The metadata as text; values of one key are joined by commas.
fn read(metadata: &MetadataMap) -> BTreeMap<String, String> {
    let mut read = BTreeMap::<String, String>::new();
    for entry in metadata.iter() {
        let (key, value) = match entry {
            KeyAndValueRef::Ascii(key, value) => {
                (key.as_str(), String::from_utf8_lossy(value.as_encoded_bytes()).into_owned())
            }
            KeyAndValueRef::Binary(key, value) => {
                (key.as_str(), String::from_utf8_lossy(value.as_encoded_bytes()).into_owned())
            }
        };
        let known = read.entry(key.to_owned()).or_default();
        *known = if known.is_empty() { value } else { format!("{known},{value}") };
    }
    read
}

/// Milliseconds with 3 decimals.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// The name that gRPC gives a code.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_has_chosen_cannot_control_a_terminal() {
        let mut status = Status::not_found("no\u{1b}[2J\nOK in 1 ms");
        status.metadata_mut().insert("x", "a\tb".parse().unwrap());
        let outcome = Outcome::failed(&status);
        let text = outcome.text();
        assert_eq!(text, "NOT_FOUND in 0 ms: no\\u{1b}[2J\\nOK in 1 ms\ntrailer  x: a\\tb\n");
        let body = "one\ntwo\u{9b}2J".as_bytes();
        let outcome = Outcome::answered(body, &MetadataMap::new(), &MetadataMap::new());
        assert_eq!(outcome.text(), "OK in 0 ms\none\ntwo\\u{9b}2J\n");
        assert!(outcome.json(&Value::Null).contains(r#""body":"one\ntwo\u009b2J""#));
    }
}
