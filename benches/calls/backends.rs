//! Echo servers in a process of their own: the bench's program, started once more.

use std::{
    env,
    io::{BufRead, BufReader, Write, stdin},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::Ordering,
    thread,
};

use tokio::{net::TcpListener, runtime};

use super::{cores, echo, tls};

/// Running servers. They end with this value.
pub(crate) struct Backends {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Where the servers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// On the last core alone.
    Pinned,
    /// On all cores.
    Free,
}

impl Backends {
    pub(crate) fn start(count: usize, placement: Placement) -> Self {
        Self::start_as(count, placement, None)
    }

    /// With TLS, by the files in a folder.
    pub(crate) fn start_secured(count: usize, placement: Placement, files: &Path) -> Self {
        Self::start_as(count, placement, Some(files))
    }

    fn start_as(count: usize, placement: Placement, files: Option<&Path>) -> Self {
        // The process has the cores of the thread that starts it.
        cores::unpin();
        let program = env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.args([
            ROLE,
            &count.to_string(),
            if placement == Placement::Pinned { "pinned" } else { "free" },
        ]);
        if let Some(files) = files {
            command.env(FILES, files);
        }
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.expect("it can be started");
        let input = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut backends = Self { process, input, output, addresses: Vec::new() };
        backends.addresses =
            backends.line().split_whitespace().map(|it| it.parse().expect("an address")).collect();
        assert_eq!(backends.addresses.len(), count);
        cores::pin_client();
        backends
    }

    /// The number of connections that are open.
    pub(crate) fn connections(&mut self) -> usize {
        writeln!(self.input, "connections").expect("it runs");
        self.line().parse().expect("a number")
    }

    /// Ends the process at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it was killed");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it runs");
        line.trim().to_owned()
    }
}

impl Drop for Backends {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves if this process was started for that, until its standard input ends; false otherwise.
pub(crate) fn serve_if_requested() -> bool {
    let args: Vec<_> = env::args().skip(1).collect();
    let Some([count, placement]) = args.strip_prefix(&[ROLE.to_owned()]) else { return false };
    if placement == "pinned" {
        cores::pin_servers();
    }
    let count: usize = count.parse().expect("a number");
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listeners = (0..count).map(|_| runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))));
    let listeners: Vec<_> = listeners.map(|it| it.expect("there are free ports")).collect();
    let addresses = listeners.iter().map(|it| it.local_addr().expect("it is bound").to_string());
    println!("{}", addresses.collect::<Vec<_>>().join(" "));
    let tls = env::var_os(FILES).map(|files| tls::acceptor(Path::new(&files)));
    listeners.into_iter().for_each(|it| drop(runtime.spawn(echo::serve(it, tls.clone()))));
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    // The end of the input is the end of the bench.
    for _ in stdin().lock().lines().map_while(Result::ok) {
        println!("{}", echo::CONNECTIONS.load(Ordering::Relaxed));
    }
    true
}

/// The environment variable with the folder of certificates, if the servers have TLS.
const FILES: &str = "XDSKIT_BENCH_TLS";
/// The first argument of a process of servers.
const ROLE: &str = "backends";
