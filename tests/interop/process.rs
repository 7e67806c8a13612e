//! A program with an interface of JSON lines.

use std::{
    collections::VecDeque,
    fs,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

/// A running program: it writes JSON lines, and reads commands. It is killed when dropped, and if the test failed,
/// its last lines are printed.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    stdin: ChildStdin,
    lines: mpsc::UnboundedReceiver<Value>,
    log: Log,
}

impl Process {
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Self {
        Self::start_reading(name, command, Output::Standard)
    }

    /// Starts a program that writes a log to its standard error instead.
    pub(crate) fn start_logging(name: &'static str, command: &mut Command) -> Self {
        Self::start_reading(name, command, Output::Error)
    }

    fn start_reading(name: &'static str, command: &mut Command, read: Output) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}: {command:?}"));
        let log = Log::default();
        let (sender, lines) = mpsc::unbounded_channel();
        let keep = move |line: &str| {
            let value = serde_json::from_str(line).unwrap_or_else(|_| Value::String(line.to_owned()));
            let _ = sender.send(value); // the test may have ended
        };
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        match read {
            Output::Standard => {
                tokio::spawn(log.clone().follow(stdout, keep));
                tokio::spawn(log.clone().follow(stderr, |_| {}));
            }
            Output::Error => {
                tokio::spawn(log.clone().follow(stderr, keep));
                tokio::spawn(log.clone().follow(stdout, |_| {}));
            }
        }
        let stdin = child.stdin.take().expect("stdin is piped");
        Self { name, child, stdin, lines, log }
    }

    /// Returns the next line, which must be a JSON object. `None` if there is none within `patience`, or at the end.
    pub(crate) async fn line(&mut self, patience: Duration) -> Option<Value> {
        let line = timeout(patience, self.lines.recv()).await.ok()??;
        assert!(line.is_object(), "{} wrote a line that is no JSON object: {line}", self.name);
        Some(line)
    }

    /// Returns the next line, if there is one already.
    pub(crate) fn ready_line(&mut self) -> Option<Value> {
        self.lines.try_recv().ok()
    }

    /// Waits for a line of text that contains `part`.
    pub(crate) async fn logged(&mut self, part: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match timeout_at(deadline, self.lines.recv()).await {
                Ok(Some(Value::String(line))) if line.contains(part) => return line,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => panic!("{} does not write {part:?}", self.name),
            }
        }
    }

    pub(crate) async fn send(&mut self, command: &str) {
        self.log.keep(&format!("> {command}"));
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.expect("the program reads");
        self.stdin.flush().await.expect("the program reads");
    }

    /// Waits for its end.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => status.expect("it was started"),
            Err(_) => panic!("{} does not end", self.name),
        }
    }

    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args([&format!("-{signal}"), &id]).status();
        assert!(sent.expect("kill is there").success());
    }

    /// Stops it, and waits until all of its threads are stopped: after the signal alone they could still send some
    /// responses.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.child.id().expect("it runs"));
        let begin = std::time::Instant::now();
        loop {
            let threads = fs::read_dir(&tasks).expect("it runs");
            let states = threads.map(|thread| {
                let status = thread.and_then(|thread| fs::read_to_string(thread.path().join("stat")));
                // The state follows the name, which is in parentheses and may contain any character.
                status.ok().and_then(|status| status.rsplit_once(") ")?.1.chars().next())
            });
            if states.into_iter().all(|state| state == Some('T')) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{} does not stop", self.name);
            thread::yield_now();
        }
    }

    pub(crate) fn log(&self) -> String {
        self.log.text()
    }
}

/// The stream with the output of interest.
enum Output {
    Standard,
    Error,
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- {}, its last lines:\n{}", self.name, self.log.text());
        }
    }
}

/// The last lines of a program.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<VecDeque<String>>>);

impl Log {
    fn keep(&self, line: &str) {
        let mut lines = self.0.lock().expect("nothing panics while it is held");
        lines.push_back(line.chars().take(LINE).collect());
        if lines.len() > LINES {
            lines.pop_front();
        }
    }

    fn text(&self) -> String {
        let lines = self.0.lock().expect("nothing panics while it is held");
        lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    async fn follow(self, from: impl AsyncRead + Unpin, mut each: impl FnMut(&str)) {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            each(&line);
            self.keep(&line);
        }
    }
}

/// The timeout of an expected event. The longest legitimate wait is for a reconnection, some seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const LINES: usize = 60;
const LINE: usize = 600;
