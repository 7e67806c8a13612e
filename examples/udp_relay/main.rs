//! A relay of datagrams: each flow stays at a backend by the hash of its source, until the backend goes silent and is ejected.
//!
//! ```console
//! $ cargo run --example udp_relay
//! ```
//!
//! The management server, the backends, the relay and the players are in this process, on loopback; it ends by itself. `Relay` is what
//! an application would have.

mod backend;
#[path = "../common/print_line.rs"]
mod print_line;

use std::{collections::BTreeMap, env, error::Error, io, net::SocketAddr, process::ExitCode, time::Duration};

use tokio::{
    net::UdpSocket,
    time::{Instant, sleep_until, timeout},
};
use xdskit::{
    Client, Resolution,
    balance::{Attempt, Balancer, Command, Pick, PickRequest, Picker, Settings},
    config::{Bootstrap, Node, Server},
    lrs::Outcome,
};

use self::{
    backend::{Backend, Players},
    print_line::print_line,
};

/// The relay. A datagram has a number on the way to its backend, which is also before the answer.
struct Relay {
    front: UdpSocket,
    back: UdpSocket,
    resolution: Resolution,
    /// A backend is connected as soon as it is known: datagrams need nothing but its address.
    balancer: Balancer<SocketAddr>,
    picker: Picker<SocketAddr>,
    /// Datagrams without an answer, the oldest first.
    pending: BTreeMap<u64, Pending>,
    next: u64,
}

struct Pending {
    attempt: Attempt<SocketAddr>,
    player: SocketAddr,
    until: Instant,
}

impl Relay {
    async fn new(resolution: Resolution) -> io::Result<Self> {
        let mut balancer = Balancer::new(Settings::new(fastrand::u64(..)));
        let picker = balancer.poll_picker(std::time::Instant::now()).expect("the first picker");
        let (front, back) = (UdpSocket::bind(LOOPBACK).await?, UdpSocket::bind(LOOPBACK).await?);
        Ok(Self { front, back, resolution, balancer, picker, pending: BTreeMap::new(), next: 0 })
    }

    async fn run(mut self) -> io::Result<()> {
        let (mut datagram, mut answer) = ([0; 1500], [0; 1500]);
        loop {
            self.execute();
            let unanswered = self.pending.first_key_value().map(|(_, pending)| pending.until);
            let due = self.balancer.poll_timeout().map(Instant::from_std).into_iter().chain(unanswered).min();
            tokio::select! {
                resolved = self.resolution.next() => match resolved {
                    Some(resolved) => self.balancer.handle_resolution(resolved, std::time::Instant::now()),
                    None => return Ok(()),
                },
                received = self.front.recv_from(&mut datagram) => {
                    let (length, player) = received?;
                    self.forward(player, &datagram[..length]).await?;
                }
                received = self.back.recv_from(&mut answer) => {
                    let (length, backend) = received?;
                    self.answer(backend, &answer[..length]).await?;
                }
                () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {
                    self.handle_timeout();
                }
            }
        }
    }

    /// Executes the commands of the balancer, and takes its picker.
    fn execute(&mut self) {
        let now = std::time::Instant::now();
        while let Some(command) = self.balancer.poll_command(now) {
            if let Command::Connect { connection, target, .. } = command {
                self.balancer.handle_connected(connection, target.address(), now);
            }
        }
        self.picker = self.balancer.poll_picker(now).unwrap_or_else(|| self.picker.clone());
    }

    async fn forward(&mut self, player: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        let source = player.to_string();
        let request = PickRequest::to_cluster("game", fastrand::u64(..)).with_hashed(source.as_bytes());
        // A datagram that no backend can take now is lost, as any may be.
        let Pick::Endpoint(mut attempt) = self.picker.pick(&request) else { return Ok(()) };
        let number = self.next;
        self.next += 1;
        self.back.send_to(&[&number.to_be_bytes(), datagram].concat(), attempt.connection()).await?;
        attempt.on_sent();
        self.pending.insert(number, Pending { attempt, player, until: Instant::now() + ANSWER });
        Ok(())
    }

    async fn answer(&mut self, backend: SocketAddr, answer: &[u8]) -> io::Result<()> {
        let Some((number, answer)) = answer.split_first_chunk() else { return Ok(()) };
        let number = u64::from_be_bytes(*number);
        // Another sender than the backend may have guessed the number.
        let is_expected =
            self.pending.get(&number).is_some_and(|pending| pending.attempt.address() == backend);
        if let Some(pending) = self.pending.remove(&number).filter(|_| is_expected) {
            pending.attempt.finish(Outcome::Success);
            self.front.send_to(answer, pending.player).await?;
        }
        Ok(())
    }

    fn handle_timeout(&mut self) {
        while let Some(oldest) =
            self.pending.first_entry().filter(|oldest| oldest.get().until <= Instant::now())
        {
            oldest.remove().attempt.finish(Outcome::Error);
        }
        let now = std::time::Instant::now();
        if self.balancer.poll_timeout().is_some_and(|at| at <= now) {
            self.balancer.handle_timeout(now);
        }
    }
}

async fn play() -> Result<(), Box<dyn Error>> {
    let mut backends = Vec::new();
    for name in ["a", "b", "c"] {
        backends.push(Backend::start(name).await?);
    }
    let mesh = backend::mesh(&backends).await;
    let server = Server::new(mesh.uri()).insecure();
    let client =
        Client::builder(Bootstrap::builder().node(Node::new("relay")).server(server).build()?).build()?;
    let relay = Relay::new(client.resolve("xds:///game")).await?;
    let players = Players::start(30, relay.front.local_addr()?).await?;
    let relay = tokio::spawn(relay.run());

    let before = players.until_answered().await?;
    print_line(format_args!("30 flows: {}", backend::shares(&before)));
    let silent = before[0].clone();
    let flows = before.iter().filter(|backend| **backend == silent).count();
    backends.iter().filter(|backend| backend.name == silent).for_each(Backend::silence);
    print_line(format_args!("{silent} goes silent, which concerns {flows} flows"));
    let after = players.until_answered().await?;
    print_line(format_args!("30 flows: {}", backend::shares(&after)));
    let stayed = before.iter().zip(&after).filter(|(before, after)| before == after).count();
    print_line(format_args!("{} flows have moved, and {stayed} stayed at their backends", 30 - stayed));
    client.shutdown().await;
    relay.await??;
    if stayed + flows == 30 && !after.contains(&silent) {
        Ok(())
    } else {
        Err("other flows have moved".into())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        None => {}
        Some("--help" | "-h") => {
            print_line(
                "usage: udp_relay\n\nRelays datagrams to backends of a mesh on loopback, and ends by itself.",
            );
            return ExitCode::SUCCESS;
        }
        Some(unknown) => {
            eprintln!("udp_relay: unknown argument {unknown}; it takes none");
            return ExitCode::from(2);
        }
    }
    match timeout(CURFEW, play()).await {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => eprintln!("udp_relay: {error}"),
        Err(_) => eprintln!("udp_relay: not at its end after {CURFEW:?}"),
    }
    ExitCode::FAILURE
}

const LOOPBACK: (&str, u16) = ("127.0.0.1", 0);
/// The time after which a datagram counts as not answered.
const ANSWER: Duration = Duration::from_millis(200);
const CURFEW: Duration = Duration::from_secs(20);
