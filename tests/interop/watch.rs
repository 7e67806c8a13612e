//! The example `watch`, driven by a script.

use std::{collections::BTreeMap, process::ExitStatus};

use serde_json::Value;
use tokio::{process::Command, time::Instant};

use crate::{
    peer::{Peer, program},
    process::{PATIENCE, Process},
};

/// A running `watch --json`, and the latest line for each resource.
pub(crate) struct Watch {
    process: Process,
    seen: Seen,
    lines: usize,
}

/// The latest line by the target and the name in it.
pub(crate) type Seen = BTreeMap<(String, String), Value>;

impl Watch {
    /// Watches `targets`, each as TYPE=NAME.
    pub(crate) fn start<S: AsRef<str>>(peer: &Peer, targets: impl IntoIterator<Item = S>) -> Self {
        Self::start_with(&[], peer, targets)
    }

    /// Starts it with a resource timeout of three seconds.
    pub(crate) fn start_impatient<S: AsRef<str>>(peer: &Peer, targets: impl IntoIterator<Item = S>) -> Self {
        Self::start_with(&["--resource-timeout", "3"], peer, targets)
    }

    fn start_with<S: AsRef<str>>(
        options: &[&str],
        peer: &Peer,
        targets: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut command = Command::new(program("XDSKIT_INTEROP_WATCH"));
        command.arg("--bootstrap").arg(peer.bootstrap_path()).arg("--json").args(options);
        command.args(targets.into_iter().map(|one| one.as_ref().to_owned()));
        Self { process: Process::start("watch", &mut command), seen: Seen::new(), lines: 0 }
    }

    pub(crate) async fn send(&mut self, command: &str) {
        self.process.send(command).await;
    }

    pub(crate) async fn exit(&mut self) -> ExitStatus {
        self.process.exit().await
    }

    /// Waits until the lines fulfil a condition. Returns the number of lines since the start.
    pub(crate) async fn until(&mut self, what: &str, is_met: impl Fn(&Seen) -> bool) -> usize {
        self.until_minding(what, is_met, |_| {}).await
    }

    /// Like [`until`](Self::until); `mind` checks each line.
    pub(crate) async fn until_minding(
        &mut self,
        what: &str,
        is_met: impl Fn(&Seen) -> bool,
        mind: impl Fn(&Value),
    ) -> usize {
        let deadline = Instant::now() + PATIENCE;
        while !is_met(&self.seen) {
            let Some(line) = self.process.line(deadline.saturating_duration_since(Instant::now())).await
            else {
                panic!("watch does not show {what}; the latest of {}: {:#?}", self.seen.len(), self.brief())
            };
            self.see(line, &mind);
            // Thousands of lines may be pending, and checking thousands takes time.
            while let Some(line) = self.process.ready_line() {
                self.see(line, &mind);
            }
        }
        self.lines
    }

    fn see(&mut self, line: Value, mind: impl Fn(&Value)) {
        mind(&line);
        let key = |field: &str| line[field].as_str().expect("each line has it").to_owned();
        self.seen.insert((key("watch"), key("name")), line);
        self.lines += 1;
    }

    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The latest line of a target by name, as TYPE=NAME.
    pub(crate) fn latest(&self, watched: &str) -> &Value {
        latest(&self.seen, watched)
    }

    fn brief(&self) -> Vec<String> {
        let some = self.seen.values().take(12);
        some.map(|line| line.to_string().chars().take(200).collect()).collect()
    }
}

/// The latest line of a target by name, as TYPE=NAME; null if there was none.
pub(crate) fn latest<'a>(seen: &'a Seen, watched: &str) -> &'a Value {
    let name = watched.split_once('=').expect("TYPE=NAME").1;
    seen.get(&(watched.to_owned(), name.to_owned())).unwrap_or(&Value::Null)
}

/// Whether a line has a resource without a warning.
pub(crate) fn is_good(line: &Value) -> bool {
    line["state"] == "present" && line["warning"].is_null()
}

/// All strings in a line's resource.
pub(crate) fn texts(line: &Value) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), vec![&line["resource"]]);
    while let Some(value) = rest.pop() {
        match value {
            Value::String(text) => found.push(text.as_str()),
            Value::Array(values) => rest.extend(values),
            Value::Object(fields) => rest.extend(fields.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    found
}

/// Whether a number occurs in a line's resource.
pub(crate) fn holds_number(line: &Value, expected: u64) -> bool {
    let mut rest = vec![&line["resource"]];
    while let Some(value) = rest.pop() {
        match value {
            Value::Number(number) if number.as_u64() == Some(expected) => return true,
            Value::Array(values) => rest.extend(values),
            Value::Object(fields) => rest.extend(fields.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}
