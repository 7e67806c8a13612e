use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::subscriptions::{Names, Subscriptions};
use crate::control_plane::{
    Event, Request,
    session::{Answer, Handled},
};

/// A request that a [`TestControlPlane`](super::TestControlPlane) received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// The number of the stream.
    stream: u64,
    /// The message as it was received, with the type URL of v3.
    request: Request,
    /// The size of the message as it was received.
    bytes: usize,
    /// What the session made of the request.
    handled: Handled,
    /// The subscription after the request.
    names: Names,
}

impl RecordedRequest {
    /// The number of the stream, from 1.
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// The message.
    pub fn message(&self) -> &Request {
        &self.request
    }

    /// The type URL.
    pub fn type_url(&self) -> &str {
        self.request.type_url()
    }

    /// The names of the type that the client subscribes to with this request, including earlier ones in the
    /// incremental variant. `*` is the wildcard in any form.
    pub fn names(&self) -> Vec<&str> {
        self.names.list(&self.request)
    }

    /// The size of the message in bytes, without gRPC's five for its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The outcome of the request at the server.
    pub fn handled(&self) -> &Handled {
        &self.handled
    }

    /// The subscribed names, for results that outlive the request.
    pub(super) fn owned_names(&self) -> Vec<String> {
        self.names().into_iter().map(str::to_owned).collect()
    }

    /// The last version that the client accepted.
    pub(super) fn accepted_version(&self) -> &str {
        self.request.sotw().map_or("", |request| &request.version_info)
    }

    /// The answer to a response, unless the request is none, or the answer is outdated.
    pub(super) fn answer(&self) -> Option<&Answer> {
        match &self.handled {
            Handled::Understood { answer, .. } => answer.as_ref(),
            Handled::Outdated => None,
        }
    }
}

/// Requests that a [`TestControlPlane`](super::TestControlPlane) received, in order.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    /// The requests, oldest first.
    list: Vec<RecordedRequest>,
}

impl Requests {
    /// The requests of one type.
    #[must_use]
    pub fn of(&self, type_url: &str) -> Self {
        let list = self.list.iter().filter(|request| request.type_url() == type_url).cloned().collect();
        Self { list }
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The total size of the messages in bytes.
    pub fn bytes(&self) -> usize {
        self.list.iter().map(RecordedRequest::bytes).sum()
    }

    /// The newest request.
    pub fn last(&self) -> Option<&RecordedRequest> {
        self.list.last()
    }

    /// Iterates over the requests, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, RecordedRequest> {
        self.list.iter()
    }
}

impl<'a> IntoIterator for &'a Requests {
    type Item = &'a RecordedRequest;
    type IntoIter = std::slice::Iter<'a, RecordedRequest>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The events of a control plane, and a notification of new ones.
#[derive(Debug)]
pub(super) struct Recorder {
    /// What has happened.
    log: Mutex<Log>,
    /// Sends a value for each event that expectations may wait for.
    events: watch::Sender<()>,
}

/// The requests and streams so far.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The requests since the last `clear`, oldest first.
    pub(super) requests: Vec<RecordedRequest>,
    /// The number of open streams.
    pub(super) open: usize,
    /// The subscriptions, which go on when requests are forgotten.
    subscriptions: Subscriptions,
    /// The number of requests up to the last expected answer of a type; see [`Log::take_answer`].
    taken: BTreeMap<(String, AnswerKind), usize>,
}

/// The kind of an answer to a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AnswerKind {
    /// An ACK.
    Accepted,
    /// A NACK.
    Rejected,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self { log: Mutex::default(), events: watch::Sender::new(()) }
    }

    /// Adds an event, and wakes the expectations.
    pub(super) fn record(&self, event: &Event) {
        {
            let mut log = self.log();
            match event {
                Event::Opened { .. } => log.open += 1,
                Event::Closed { stream, .. } => {
                    log.open -= 1;
                    log.subscriptions.on_closed(*stream);
                }
                Event::Request { stream, request, bytes, handled } => {
                    let names = log.subscriptions.on_request(*stream, request);
                    let (request, handled) = (request.clone(), handled.clone());
                    let request = RecordedRequest { stream: *stream, request, bytes: *bytes, handled, names };
                    log.requests.push(request);
                }
                Event::Response { .. } => return,
            }
        }
        // Without the lock, which woken expectations take.
        self.events.send_replace(());
    }

    /// Waits until `look` finds a value in the log. Dropping the future consumes nothing.
    pub(super) async fn find<T>(&self, mut look: impl FnMut(&mut Log) -> Option<T>) -> T {
        // Before the first look, so that no event between a look and the wait is missed.
        let mut events = self.events.subscribe();
        loop {
            if let Some(found) = look(&mut self.log()) {
                return found;
            }
            // The sender lives as long as `self`.
            let _ = events.changed().await;
        }
    }

    /// A copy of the requests.
    pub(super) fn requests(&self) -> Requests {
        Requests { list: self.log().requests.clone() }
    }

    /// Forgets the requests, and with them the positions of expectations.
    pub(super) fn clear(&self) {
        let mut log = self.log();
        log.requests.clear();
        log.taken.clear();
    }

    /// Locks the log.
    fn log(&self) -> MutexGuard<'_, Log> {
        // The log is consistent after each statement, so a test's panic does not corrupt it.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    /// Takes the first answer of a type and kind that was not taken before.
    pub(super) fn take_answer(&mut self, type_url: &str, kind: AnswerKind) -> Option<RecordedRequest> {
        let from = self.taken.entry((type_url.to_owned(), kind)).or_default();
        let found = self.requests.iter().enumerate().skip(*from).find(|(_, request)| {
            request.type_url() == type_url && request.answer().is_some_and(|answer| kind.matches(answer))
        });
        let (at, request) = found?;
        *from = at + 1;
        Some(request.clone())
    }

    /// Describes the events, of a type if one is given.
    pub(super) fn describe(&self, type_url: Option<&str>) -> String {
        let streams = match self.open {
            1 => "1 stream is open".to_owned(),
            open => format!("{open} streams are open"),
        };
        match type_url {
            Some(type_url) => format!("{}; {streams}", self.describe_type(type_url)),
            None => streams,
        }
    }

    /// Describes the requests of a type by their numbers and the newest one.
    fn describe_type(&self, type_url: &str) -> String {
        let of_type: Vec<_> = self.requests.iter().filter(|request| request.type_url() == type_url).collect();
        let Some(last) = of_type.last() else { return "no request of the type".to_owned() };
        let count = |kind: AnswerKind| {
            of_type
                .iter()
                .filter(|request| request.answer().is_some_and(|answer| kind.matches(answer)))
                .count()
        };
        let (requests, accepted, rejected) =
            (of_type.len(), count(AnswerKind::Accepted), count(AnswerKind::Rejected));
        let error = match last.request.error() {
            Some(status) => format!(" with the error {:?}", status.message),
            None => String::new(),
        };
        format!(
            "{requests} requests of the type, among them {accepted} ACKs and {rejected} NACKs; \
             the last names {:?}{error}",
            last.names(),
        )
    }
}

impl AnswerKind {
    /// Whether an answer is of this kind.
    fn matches(self, answer: &Answer) -> bool {
        match answer {
            Answer::Accepted { .. } => self == Self::Accepted,
            Answer::Rejected { .. } => self == Self::Rejected,
        }
    }
}
