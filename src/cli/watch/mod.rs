//! Prints what a management server sends, on each change, for people or as JSON.
//!
//! Watches can be added and ended on the standard input while it runs.

mod observe;
mod print;
mod target;

use std::{
    collections::HashMap,
    io::{self, BufRead},
    process::ExitCode,
    thread,
};

use futures_util::{
    StreamExt,
    stream::{AbortHandle, Abortable, BoxStream, SelectAll},
};
use tokio::sync::mpsc;

use self::{
    print::Printer,
    target::{Command, Target, USAGE},
};
use super::{
    args::Args,
    paint::Paint,
    program::{self, Program, Stop},
};
use crate::{Client, config::Bootstrap};

pub(super) fn main() -> ExitCode {
    Program { name: "watch", usage: USAGE, needs: None, takes_headers: false }.main(run)
}

/// The client works on the runtime's thread. This one looks and prints: if nobody reads what it prints, the client is not
/// held up, and states that nobody saw are skipped.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn run(args: &Args<Target>, bootstrap: Bootstrap) -> io::Result<()> {
    let client = program::client(args, bootstrap)?;
    let printer = if args.json { Printer::Json } else { Printer::Text(Paint::for_output(&io::stdout())) };
    let mut watches = Watches { client, printer, handles: HashMap::new(), lines: SelectAll::new() };
    for target in &args.targets {
        watches.watch(target);
    }

    let stop = Stop::on_interrupt();
    let mut commands = read_commands(stop.clone());
    loop {
        tokio::select! {
            biased;
            () = stop.wanted() => return Ok(()),
            Some(command) = commands.recv() => match command {
                Command::Watch(target) => watches.watch(&target),
                Command::Unwatch(target) => watches.unwatch(&target),
                Command::Quit => return Ok(()),
            },
            Some(lines) = watches.lines.next(), if !watches.lines.is_empty() => program::print(&lines)?,
        }
    }
}

/// What is watched, and what is to be printed about it.
struct Watches {
    client: Client,
    printer: Printer,
    handles: HashMap<Target, AbortHandle>,
    lines: SelectAll<Abortable<BoxStream<'static, String>>>,
}

impl Watches {
    /// Does nothing if it is watched already.
    fn watch(&mut self, target: &Target) {
        if self.handles.contains_key(target) {
            return;
        }
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(target.clone(), handle);
        let lines = observe::observe(&self.client, target, self.printer);
        self.lines.push(Abortable::new(lines, registration));
    }

    fn unwatch(&mut self, target: &Target) {
        if let Some(handle) = self.handles.remove(target) {
            handle.abort();
        }
    }
}

/// Reads the commands on the standard input, and says on stderr what is wrong with them. The end of the input is not the
/// end of the program.
fn read_commands(stop: Stop) -> mpsc::UnboundedReceiver<Command> {
    let (sender, receiver) = mpsc::unbounded_channel();
    // A thread of its own, since reading cannot be cancelled: it ends with the process.
    thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            let command = line.map_err(|error| format!("the standard input cannot be read: {error}"));
            match command.and_then(|line| Command::parse(&line)) {
                Ok(Some(Command::Quit)) => stop.want(),
                Ok(Some(command)) => {
                    let _ = sender.send(command); // It fails only at the end of the program.
                }
                Ok(None) => {}
                Err(error) => eprintln!("watch: {error}"),
            }
        }
    });
    receiver
}
