//! An example as a process.

use std::{
    env,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::mpsc,
    time::timeout,
};

/// A running example. It is killed when dropped.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Result<mpsc::UnboundedReceiver<String>, Unread>,
    stderr: mpsc::UnboundedReceiver<String>,
}

/// Kept open without being read.
type Unread = Option<ChildStdout>;

impl Process {
    pub(crate) fn start<S: AsRef<str>>(example: &str, args: impl IntoIterator<Item = S>) -> Self {
        Self::example(example, args, &[])
    }

    /// Starts it with an environment.
    pub(crate) fn example<S: AsRef<str>>(
        example: &str,
        args: impl IntoIterator<Item = S>,
        env: &[(&str, &str)],
    ) -> Self {
        Self::start_program(&["examples", example], args, env)
    }

    /// Starts it without a reader of its standard output.
    pub(crate) fn start_unread<S: AsRef<str>>(example: &str, args: impl IntoIterator<Item = S>) -> Self {
        Self::spawn(command(&["examples", example], args).stdout(Stdio::piped()))
    }

    /// Starts the tool with an environment.
    pub(crate) fn tool<S: AsRef<str>>(args: impl IntoIterator<Item = S>, env: &[(&str, &str)]) -> Self {
        Self::start_program(&["xdskit"], args, env)
    }

    fn start_program<S: AsRef<str>>(
        program: &[&str],
        args: impl IntoIterator<Item = S>,
        env: &[(&str, &str)],
    ) -> Self {
        let mut command = command(program, args);
        let mut process = Self::spawn(command.envs(env.iter().copied()).stdout(Stdio::piped()));
        if let Err(Some(stdout)) = process.stdout.as_mut().map_err(Option::take) {
            process.stdout = Ok(lines(stdout));
        }
        process
    }

    /// Starts the tool with a closed output.
    pub(crate) fn tool_into_a_broken_pipe<S: AsRef<str>>(args: impl IntoIterator<Item = S>) -> Self {
        Self::spawn(command(&["xdskit"], args).stdout(broken_pipe()))
    }

    /// Starts an example with a closed output.
    pub(crate) fn into_a_broken_pipe<S: AsRef<str>>(
        example: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        Self::spawn(command(&["examples", example], args).stdout(broken_pipe()))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take();
        let stdout = Err(child.stdout.take());
        let stderr = lines(child.stderr.take().expect("stderr is piped"));
        Self { child, stdin, stdout, stderr }
    }

    /// Reads standard output to its end.
    pub(crate) async fn text(&mut self) -> String {
        let mut text = String::new();
        while let Some(line) = self.line().await {
            text += &line;
            text.push('\n');
        }
        text
    }

    /// Reads standard error to its end.
    pub(crate) async fn complaints(&mut self) -> String {
        let mut text = String::new();
        while let Some(line) = timeout(PATIENCE, self.stderr.recv()).await.expect("the end of stderr") {
            text += &line;
            text.push('\n');
        }
        text
    }

    /// Reads the next line of standard output; `None` at its end.
    pub(crate) async fn line(&mut self) -> Option<String> {
        let Ok(stdout) = &mut self.stdout else { panic!("it is not read") };
        timeout(PATIENCE, stdout.recv()).await.expect("a line on stdout")
    }

    /// Reads the next line of standard output, which is JSON.
    pub(crate) async fn json(&mut self) -> Value {
        let line = self.line().await.expect("a line before the end");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Reads standard output until a line fulfils a condition.
    pub(crate) async fn json_until(&mut self, is_met: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.json().await;
            if is_met(&line) {
                return line;
            }
        }
    }

    /// Whether there is unread standard output.
    pub(crate) fn has_line(&mut self) -> bool {
        self.stdout.as_ref().is_ok_and(|stdout| !stdout.is_empty())
    }

    /// Reads standard error until a line contains `part`.
    pub(crate) async fn complaint(&mut self, part: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match timeout(PATIENCE, self.stderr.recv()).await {
                Ok(Some(line)) if line.contains(part) => return line,
                Ok(Some(line)) => seen.push(line),
                Ok(None) | Err(_) => panic!("{part:?} does not come on stderr, but {seen:#?}"),
            }
        }
    }

    pub(crate) async fn send(&mut self, command: &[u8]) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(command).await.expect("the program reads");
        stdin.write_all(b"\n").await.expect("the program reads");
        stdin.flush().await.expect("the program reads");
    }

    /// Ends the program's input.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends SIGINT.
    #[cfg(unix)]
    pub(crate) fn interrupt(&self) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args(["-INT", &id]).status().expect("kill is there");
        assert!(sent.success());
    }

    pub(crate) async fn exit(&mut self) -> ExitStatus {
        timeout(PATIENCE, self.child.wait()).await.expect("its end").expect("it was started")
    }
}

/// Assertions about programs that end by themselves.
impl Process {
    /// The program prints its help, which contains a text in any case, and ends with exit code 0.
    pub(crate) async fn assert_is_help(&mut self, part: &str) {
        let text = self.text().await;
        assert!(text.to_lowercase().contains(part), "{part:?} is not in {text}");
        assert_eq!(self.exit().await.code(), Some(0), "{text}");
    }

    /// The program prints nothing but a complaint with a text, and ends with exit code 2.
    pub(crate) async fn assert_is_rejected(&mut self, part: &str) {
        self.complaint(part).await;
        assert_eq!(self.exit().await.code(), Some(2), "{part}");
        assert_eq!(self.line().await, None, "{part}");
    }

    /// The program ends with exit code 0, and without a panic.
    pub(crate) async fn assert_ends_well(&mut self, command: &str) {
        assert_eq!(self.exit().await.code(), Some(0), "{command}");
        let complaints = self.complaints().await;
        assert!(!complaints.contains("panicked"), "{command}: {complaints}");
    }
}

/// A pipe without a reader.
fn broken_pipe() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer
}

impl Drop for Process {
    fn drop(&mut self) {
        while thread::panicking()
            && let Ok(line) = self.stderr.try_recv()
        {
            eprintln!("on stderr: {line}");
        }
    }
}

fn lines(from: impl AsyncRead + Unpin + Send + 'static) -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A program with an empty environment.
fn command<S: AsRef<str>>(program: &[&str], args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(path_of(program));
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.args(args.into_iter().map(|arg| arg.as_ref().to_owned()));
    command
}

/// Cargo's directories of programs and examples are next to that of the test programs.
fn path_of(program: &[&str]) -> PathBuf {
    let mut path = env::current_exe().expect("a test knows where it is");
    path.pop();
    path.pop();
    path.extend(program);
    path.set_extension(env::consts::EXE_EXTENSION);
    assert!(
        path.exists(),
        "{} is not built: `cargo build --bins --examples`, or a plain `cargo test`",
        path.display()
    );
    path
}

/// The environment variables that programs read.
const VARIABLES: [&str; 3] = ["GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG", "RUST_LOG"];

/// The timeout of an expected event; the longest legitimate wait is for some reconnections.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
