//! The gRPC servers of `backends/`.

use serde_json::Value;
use tokio::{process::Command, time::Instant};

use crate::{
    peer::{free_port, program},
    process::{PATIENCE, Process},
    security::ServerFiles,
};

/// A gRPC implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    /// grpc-go.
    Go,
    /// grpc-java.
    Java,
    /// grpcio, which is C-core.
    Python,
    /// grpc-js, on Node's own HTTP/2. Without TLS.
    Node,
}

/// A running server.
pub(crate) struct Backend {
    name: &'static str,
    language: Language,
    port: u16,
    tls: Option<ServerFiles>,
    process: Process,
    /// What was reported of calls and not waited for yet.
    events: Vec<Value>,
}

impl Backend {
    pub(crate) async fn start(language: Language, name: &'static str) -> Self {
        Self::start_on(language, name, free_port(), None).await
    }

    /// Starts one that uses TLS.
    pub(crate) async fn start_tls(language: Language, name: &'static str, tls: ServerFiles) -> Self {
        Self::start_on(language, name, free_port(), Some(tls)).await
    }

    async fn start_on(language: Language, name: &'static str, port: u16, tls: Option<ServerFiles>) -> Self {
        let mut command = match language {
            Language::Go => Command::new(program("XDSKIT_INTEROP_BACKEND_GO")),
            Language::Java => Command::new(program("XDSKIT_INTEROP_BACKEND_JAVA")),
            Language::Python => {
                let mut python = Command::new("python3");
                python.env("PYTHONPATH", program("XDSKIT_INTEROP_PYTHONPATH"));
                python.arg(program("XDSKIT_INTEROP_BACKEND_PYTHON"));
                python
            }
            Language::Node => {
                let mut node = Command::new("node");
                node.env("NODE_PATH", program("XDSKIT_INTEROP_NODE_PATH"));
                node.arg(program("XDSKIT_INTEROP_BACKEND_NODE"));
                node
            }
        };
        command.args([name, &port.to_string()]);
        if let Some(files) = &tls {
            command.args([&files.pair.certificate, &files.pair.key]).args(&files.client_ca);
        }
        let mut process = Process::start(name, &mut command);
        let first = process.line(PATIENCE).await.unwrap_or_default();
        assert_eq!(first["address"], format!("127.0.0.1:{port}"), "{}", process.log());
        Self { name, language, port, tls, process, events: Vec::new() }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits until calls of a method have begun or were cancelled, so many since the last time.
    pub(crate) async fn calls(&mut self, event: &str, method: &str, count: usize) {
        let is_met = |line: &Value| line["event"] == event && line["method"] == method;
        for seen in 0..count {
            self.take(&format!("{} of {count} calls of {method} that {event}", seen + 1), is_met).await;
        }
    }

    /// How many calls of a method have begun.
    pub(crate) async fn count(&mut self, method: &str) -> u64 {
        self.command("counts").await["counts"][method].as_u64().unwrap_or_default()
    }

    /// Begins a graceful stop: it sends GOAWAY.
    pub(crate) async fn stop(&mut self) {
        self.command("stop").await;
    }

    /// Waits until a graceful stop is complete.
    pub(crate) async fn stopped(&mut self) {
        self.take("the end of the graceful stop", |line| line["event"] == "stopped").await;
    }

    /// Ends the process, and starts another one on the same port.
    pub(crate) async fn restart(mut self) -> Self {
        self.command("quit").await;
        self.process.exit().await;
        Self::start_on(self.language, self.name, self.port, self.tls).await
    }

    /// The same with other certificates.
    pub(crate) async fn restart_tls(self, tls: ServerFiles) -> Self {
        Self { tls: Some(tls), ..self }.restart().await
    }

    /// Ends the process by SIGKILL. Returns what starts another one on the same port.
    pub(crate) async fn kill(self) -> Killed {
        self.process.kill().await;
        Killed { language: self.language, name: self.name, port: self.port, tls: self.tls }
    }

    async fn command(&mut self, command: &str) -> Value {
        self.process.send(command).await;
        self.take(&format!("the answer to {command}"), |line| line["done"] == command).await
    }

    /// Waits for a line, which is then forgotten.
    async fn take(&mut self, what: &str, is_met: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.events.iter().position(&is_met) {
            return self.events.remove(place);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.process.line(left).await {
                Some(line) if is_met(&line) => return line,
                Some(line) => self.events.push(line),
                None => panic!("{} did not report {what}:\n{}", self.name, self.process.log()),
            }
        }
    }
}

/// A server that was killed.
pub(crate) struct Killed {
    language: Language,
    name: &'static str,
    port: u16,
    tls: Option<ServerFiles>,
}

impl Killed {
    pub(crate) async fn start(self) -> Backend {
        Backend::start_on(self.language, self.name, self.port, self.tls).await
    }
}
