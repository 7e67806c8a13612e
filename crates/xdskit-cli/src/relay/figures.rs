//! The statistics of a relay.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use serde_json::json;
use tokio::sync::watch;
use xdskit::{
    control_plane::{
        ControlPlane, Event,
        session::{Answer, Handled},
    },
    tool_support::cut,
};

use super::mirror::{Counters, Mirror};

/// The statistics of a relay, which its tasks count together.
#[derive(Debug)]
pub struct Figures {
    /// The time at which the relay was started.
    start: Instant,
    /// What it has received.
    up: Up,
    /// What it has sent.
    down: Down,
    /// The latest complaint of a server.
    complaint: watch::Sender<Complaint>,
}

/// The latest error of a client, and the number of all so far.
#[derive(Debug, Clone, Default)]
pub struct Complaint {
    /// Counts the complaints, so that a repeated one differs.
    pub number: u64,
    /// The reason, cut if it is long.
    pub text: String,
}

impl Complaint {
    /// The error, with the number of those since the last one that was shown.
    pub fn since(&self, shown: u64) -> String {
        match self.number.saturating_sub(shown + 1) {
            0 => self.text.clone(),
            others => format!("{} (and {others} others)", self.text),
        }
    }
}

/// The statistics of the management server's side.
#[derive(Debug, Default)]
struct Up {
    /// The current subscriptions.
    subscriptions: AtomicU64,
    /// Resources that were added or changed.
    updates: AtomicU64,
    /// Resources that were removed.
    removals: AtomicU64,
    /// The size of resources, without their envelopes.
    bytes: AtomicU64,
    /// The current resources.
    resources: AtomicU64,
    /// The resources that may be outdated.
    stale: AtomicU64,
}

/// The statistics of the clients' side.
#[derive(Debug, Default)]
struct Down {
    /// Messages that were sent.
    responses: AtomicU64,
    /// Resources in them.
    updates: AtomicU64,
    /// Removals in them.
    removals: AtomicU64,
    /// The size of messages.
    bytes: AtomicU64,
    /// Responses that a client has rejected.
    rejections: AtomicU64,
}

impl Figures {
    /// The figures of a relay that starts now.
    pub(super) fn new() -> Self {
        let (up, down) = (Up::default(), Down::default());
        Self { start: Instant::now(), up, down, complaint: watch::Sender::default() }
    }

    /// The latest error of a client, for display. A slow reader skips some.
    pub fn complaints(&self) -> watch::Receiver<Complaint> {
        self.complaint.subscribe()
    }

    /// Notes a complaint.
    pub(super) fn report_error(&self, complaint: String) {
        self.complaint.send_modify(|latest| {
            *latest = Complaint { number: latest.number + 1, text: cut(complaint, LONGEST_COMPLAINT) };
        });
    }

    /// Counts an event of a client.
    pub fn observe(&self, event: &Event) {
        match event {
            Event::Response { resources, removed, bytes, .. } => {
                add(&self.down.responses, 1);
                add(&self.down.updates, *resources as u64);
                add(&self.down.removals, *removed as u64);
                add(&self.down.bytes, *bytes as u64);
            }
            Event::Request {
                stream,
                request,
                handled: Handled::Understood { answer: Some(Answer::Rejected { message, .. }), .. },
                ..
            } => {
                add(&self.down.rejections, 1);
                let type_url = request.type_url();
                let message = cut(message, LONGEST_COMPLAINT);
                self.report_error(format!("the client of stream {stream} rejected {type_url}: {message}"));
            }
            Event::Opened { .. } | Event::Request { .. } | Event::Closed { .. } | _ => {}
        }
    }

    /// Counts what was received.
    pub(super) fn count_updates(&self, counters: Counters) {
        add(&self.up.updates, counters.updates);
        add(&self.up.removals, counters.removals);
        add(&self.up.bytes, counters.bytes);
    }

    /// Sets the current numbers of subscriptions and resources.
    pub(super) fn set_sizes(&self, subscriptions: usize, mirror: &Mirror) {
        self.up.subscriptions.store(subscriptions as u64, Relaxed);
        self.up.resources.store(mirror.present() as u64, Relaxed);
        self.up.stale.store(mirror.stale() as u64, Relaxed);
    }

    /// The line that says where clients connect.
    pub fn listening(addr: SocketAddr, json: bool) -> String {
        match json {
            true => json!({ "listening": addr.to_string() }).to_string(),
            false => format!("relaying on {addr}"),
        }
    }

    /// Formats one report.
    pub fn report(&self, control_plane: &ControlPlane, json: bool) -> String {
        let current = control_plane.subscriptions();
        let Self { up, down, .. } = self;
        let [streams, subscriptions, names] =
            [control_plane.streams(), current.total(), current.len()].map(|number| number as u64);
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let seconds = self.start.elapsed().as_secs_f64();
        if json {
            let report = json!({
                "seconds": (seconds * 10.0).round() / 10.0,
                "downstream": {
                    "streams": streams, "subscriptions": subscriptions, "names": names,
                    "responses": get(&down.responses), "updates": get(&down.updates),
                    "removals": get(&down.removals), "bytes": get(&down.bytes),
                    "rejections": get(&down.rejections),
                },
                "upstream": {
                    "subscriptions": get(&up.subscriptions), "resources": get(&up.resources),
                    "stale": get(&up.stale), "updates": get(&up.updates),
                    "removals": get(&up.removals), "bytes": get(&up.bytes),
                },
            });
            return report.to_string();
        }
        format!(
            "{seconds:7.1} s  down: {streams} streams, {subscriptions} subscriptions to {names} names, {} updates, \
             {} removals, {}, {} rejections  up: {} subscriptions, {} resources ({} stale), {} updates, \
             {} removals, {}",
            get(&down.updates),
            get(&down.removals),
            size(get(&down.bytes)),
            get(&down.rejections),
            get(&up.subscriptions),
            get(&up.resources),
            get(&up.stale),
            get(&up.updates),
            get(&up.removals),
            size(get(&up.bytes)),
        )
    }
}

/// The longest error of a client that is shown, in characters.
const LONGEST_COMPLAINT: usize = 2_000;

/// Adds to a counter.
fn add(counter: &AtomicU64, number: u64) {
    // Relaxed: no other data depend on the numbers.
    counter.fetch_add(number, Relaxed);
}

/// A size in bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cp15_errors_of_clients_are_shown_with_the_number_of_those_left_out() {
        let figures = Figures::new();
        let mut complaints = figures.complaints();
        figures.report_error("first".to_owned());
        let first = complaints.borrow_and_update().clone();
        assert_eq!(first.since(0), "first");
        for number in 2..=5 {
            figures.report_error(format!("error {number}"));
        }
        assert_eq!(complaints.borrow_and_update().since(first.number), "error 5 (and 3 others)");
        figures.report_error("x".repeat(1_000_000));
        assert!(complaints.borrow().text.len() < 2_100);
    }
}
