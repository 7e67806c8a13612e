//! What a watch sees of each kind of error, with and without a good resource before, under each feature of a server
//! (A46, A53, A57, A88): one table, cell by cell, for both variants of the protocol.

use std::time::Duration;

use super::rig::{Full, Part, Rig, any, in_delta, response};
use crate::{
    config::{ApiType, Bootstrap, Server},
    engine::{OnDeletion, Settings},
    error::Code,
    pb::{
        envoy::service::discovery::v3::{DiscoveryResponse, ResourceError, ResourceName},
        google::{protobuf::Any, rpc::Status},
    },
    protocol::{self, DisconnectKind},
    resource::Resource,
};

/// What happens to a resource, or to its server.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// No connection comes about.
    Unreachable,
    /// The stream ends before it gave a response.
    EndsSilently,
    /// The stream ends after it gave one.
    Ends,
    /// It is sent, and cannot be used.
    Rejected,
    /// A response has others of its type, but not it; or, in the incremental variant, reports that it was removed.
    Missing,
    /// The server has 15 s to send it; or 30 s.
    Timer(u64),
    /// The server sends an error in its place (TP3).
    ServerError(Code),
}

use Event::{Ends, EndsSilently, Missing, Rejected, ServerError, Timer, Unreachable};

/// The features of a server, by the columns of the table.
const FEATURES: [&[&str]; 5] = [
    &[],
    &["ignore_resource_deletion"],
    &["fail_on_data_errors"],
    &["resource_timer_is_transient_error"],
    &["ignore_resource_deletion", "fail_on_data_errors"],
];

/// What a watch sees that has nothing before the event.
const UNCACHED: &[(Event, [&str; 5])] = &[
    (Unreachable, ["absent UNAVAILABLE"; 5]),
    (EndsSilently, ["absent UNAVAILABLE"; 5]),
    (Ends, ["pending"; 5]),
    (Rejected, ["absent INVALID_ARGUMENT"; 5]),
    (Missing, ["pending"; 5]),
    (Timer(15), ["absent NOT_FOUND", "absent NOT_FOUND", "absent NOT_FOUND", "pending", "absent NOT_FOUND"]),
    (
        Timer(30),
        [
            "absent NOT_FOUND",
            "absent NOT_FOUND",
            "absent NOT_FOUND",
            "absent UNAVAILABLE",
            "absent NOT_FOUND",
        ],
    ),
    (ServerError(Code::NotFound), ["absent NOT_FOUND"; 5]),
    (ServerError(Code::PermissionDenied), ["absent PERMISSION_DENIED"; 5]),
    (ServerError(Code::Unavailable), ["absent UNAVAILABLE"; 5]),
    (ServerError(Code::Internal), ["absent INTERNAL"; 5]),
];

const GOOD: &str = "present 1 x";
const STALE: &str = "present 1 x (UNAVAILABLE)";

/// What a watch sees that has a good resource before the event. A Listener or a Cluster is deleted by its absence.
const CACHED: &[(Event, [&str; 5])] = &[
    (Unreachable, [STALE; 5]),
    (EndsSilently, [STALE; 5]),
    (Ends, [GOOD; 5]),
    (
        Rejected,
        [
            "present 1 x (INVALID_ARGUMENT)",
            "present 1 x (INVALID_ARGUMENT)",
            "absent INVALID_ARGUMENT",
            "present 1 x (INVALID_ARGUMENT)",
            "absent INVALID_ARGUMENT",
        ],
    ),
    (
        Missing,
        [
            "absent NOT_FOUND",
            "present 1 x (NOT_FOUND)",
            "absent NOT_FOUND",
            "absent NOT_FOUND",
            "absent NOT_FOUND",
        ],
    ),
    (Timer(30), [GOOD; 5]),
    (
        ServerError(Code::NotFound),
        [
            "present 1 x (NOT_FOUND)",
            "present 1 x (NOT_FOUND)",
            "absent NOT_FOUND",
            "present 1 x (NOT_FOUND)",
            "absent NOT_FOUND",
        ],
    ),
    (
        ServerError(Code::PermissionDenied),
        [
            "present 1 x (PERMISSION_DENIED)",
            "present 1 x (PERMISSION_DENIED)",
            "absent PERMISSION_DENIED",
            "present 1 x (PERMISSION_DENIED)",
            "absent PERMISSION_DENIED",
        ],
    ),
    (ServerError(Code::Unavailable), [STALE; 5]),
    (ServerError(Code::Internal), ["present 1 x (INTERNAL)"; 5]),
];

#[test]
fn a88_3_a88_4_errors_without_a_cached_resource() {
    for (event, row) in UNCACHED {
        for ((features, expected), api_type) in each(row) {
            Case::<Full>::new(features, false, api_type).happens(*event).shows(expected);
            Case::<Part>::new(features, false, api_type).happens(*event).shows(expected);
        }
    }
}

#[test]
fn a88_3_a88_4_errors_about_a_cached_resource() {
    for (event, row) in CACHED {
        for ((features, expected), api_type) in each(row) {
            Case::<Full>::new(features, true, api_type).happens(*event).shows(expected);
            // B1.11: the absence of a route configuration or of an assignment means nothing. That it was removed does.
            let is_nothing = matches!(event, Missing) && !api_type.is_delta();
            let expected = if is_nothing { GOOD } else { expected };
            Case::<Part>::new(features, true, api_type).happens(*event).shows(expected);
        }
    }
}

#[test]
fn a_warning_and_an_absence_clear_by_themselves_when_the_resource_comes_again() {
    for (event, _) in UNCACHED.iter().chain(CACHED) {
        for ((features, cached), api_type) in each(&[false; 5]).chain(each(&[true; 5])) {
            Case::<Full>::new(features, *cached, api_type).happens(*event).recovers();
            Case::<Part>::new(features, *cached, api_type).happens(*event).recovers();
        }
    }
}

#[test]
fn no_error_is_published_twice() {
    for (event, _) in UNCACHED.iter().chain(CACHED).filter(|(event, _)| !matches!(event, Timer(_))) {
        for ((features, cached), api_type) in each(&[false; 5]).chain(each(&[true; 5])) {
            let mut case = Case::<Full>::new(features, *cached, api_type).happens(*event);
            let published = case.published.len();
            case = case.happens(*event);
            assert_eq!(
                case.published.len(),
                published,
                "{event:?} {features:?} {cached}: {:?}",
                case.published
            );
        }
    }
}

#[test]
fn the_client_may_decide_on_deletions_for_all_servers() {
    for (policy, features, expected) in [
        (OnDeletion::Keep, FEATURES[0], "present 1 x (NOT_FOUND)"),
        (OnDeletion::Drop, FEATURES[1], "absent NOT_FOUND"),
    ] {
        for api_type in VARIANTS {
            let settings = Settings { on_deletion: Some(policy), ..of_type(api_type) };
            Case::<Full>::with(features, true, settings).happens(Missing).shows(expected);
        }
    }
}

#[test]
fn a57_a_failure_that_follows_a_rejection_changes_nothing() {
    for api_type in VARIANTS {
        let case = Case::<Full>::new(&[], true, api_type).happens(Rejected).happens(Unreachable);
        case.shows("present 1 x (INVALID_ARGUMENT)");
        let case = Case::<Full>::new(&[], false, api_type).happens(Rejected).happens(Unreachable);
        case.shows("absent INVALID_ARGUMENT");
    }
}

const VARIANTS: [ApiType; 2] = [ApiType::AggregatedGrpc, ApiType::AggregatedDeltaGrpc];

/// Each cell of a row with its features, in both variants of the protocol.
fn each<T>(row: &[T; 5]) -> impl Iterator<Item = ((&'static [&'static str], &T), ApiType)> {
    let cells = FEATURES.into_iter().zip(row);
    cells.flat_map(|cell| VARIANTS.map(|api_type| (cell, api_type)))
}

/// A watch of `a` on a stream.
struct Case<T> {
    rig: Rig,
    /// Whether it uses the incremental variant.
    delta: bool,
    attempt: u64,
    is_open: bool,
    /// The stream gave a response.
    is_answered: bool,
    cached: bool,
    responses: u32,
    /// All that was published to the watch.
    published: Vec<String>,
    what: String,
    of: std::marker::PhantomData<T>,
}

fn of_type(api_type: ApiType) -> Settings {
    protocol::Settings { api_type, ..protocol::Settings::default() }.into()
}

impl<T: Resource> Case<T> {
    fn new(features: &[&'static str], cached: bool, api_type: ApiType) -> Self {
        Self::with(features, cached, of_type(api_type))
    }

    fn with(features: &[&'static str], cached: bool, settings: Settings) -> Self {
        let server = Server::new("127.0.0.1:1").insecure().features(features.iter().copied());
        let delta = settings.protocol.api_type.is_delta();
        let what = format!("{} {features:?} cached {cached} in {}", T::TYPE_URL, settings.protocol.api_type);
        let rig = Rig::of(Bootstrap::builder().server(server).build().unwrap(), settings);
        let mut case = Self {
            rig,
            delta,
            attempt: 1,
            is_open: false,
            is_answered: false,
            cached,
            responses: 0,
            published: Vec::new(),
            what,
            of: std::marker::PhantomData,
        };
        let outputs = case.rig.watch::<T>("a").1;
        case.record(outputs);
        case.open();
        if cached {
            case.receive(vec![any::<T>("a", "x")]);
        }
        case
    }

    fn happens(mut self, event: Event) -> Self {
        self.what = format!("{}, {event:?}", self.what);
        match event {
            Unreachable => {
                self.reconnect();
                self.end(DisconnectKind::Unreachable);
            }
            EndsSilently => {
                self.reconnect();
                self.open();
                self.end(DisconnectKind::Failed(Code::Unavailable));
            }
            Ends => {
                if !self.is_open {
                    self.open();
                }
                self.receive_unless_answered();
                self.end(DisconnectKind::Failed(Code::Unavailable));
            }
            Rejected => self.receive(vec![any::<T>("a", "bad")]),
            Missing if self.delta && self.cached => {
                let response = self.response(Vec::new());
                self.receive_response(&response, &["a"]);
            }
            Missing => self.receive(vec![any::<T>("b", "y")]),
            Timer(seconds) => self.pass(seconds),
            ServerError(code) => {
                let error_detail =
                    Some(Status { code: code as i32, message: "why".into(), ..Status::default() });
                let resource_name = Some(ResourceName { name: "a".into(), ..ResourceName::default() });
                let error = ResourceError { resource_name, error_detail };
                let response = self.response(Vec::new());
                self.receive_response(&DiscoveryResponse { resource_errors: vec![error], ..response }, &[]);
            }
        }
        self
    }

    /// This was published to the watch last, and one that joins sees the same: value and warning together.
    fn shows(mut self, expected: &str) {
        let last = self.published.last().map_or("pending", String::as_str);
        assert_eq!(last, expected, "{}", self.what);
        let joined = self.rig.watch::<T>("a").1;
        let joined = joined.first().map_or("pending", |outputs| outputs.trim_start_matches("#2 "));
        assert_eq!(joined, expected, "for a watch that joins: {}", self.what);
    }

    /// When the server is there and sends the resource as it was, it is there without a warning.
    fn recovers(mut self) {
        self.reconnect();
        self.open();
        self.receive(vec![any::<T>("a", "x")]);
        let version = self.responses;
        let last = self.published.last().map(String::as_str);
        let unchanged = [format!("present {version} x"), GOOD.to_owned()];
        assert!(
            last.is_some_and(|last| unchanged.iter().any(|good| good == last)),
            "{last:?}: {}",
            self.what
        );
        let outputs = self.rig.watch::<T>("a").1;
        assert_eq!(outputs, [format!("#2 present {version} x")], "{}", self.what);
    }

    /// Begins another attempt; the stream that was ended as streams do.
    fn reconnect(&mut self) {
        if self.is_open {
            self.receive_unless_answered();
            self.end(DisconnectKind::Closed);
        }
    }

    fn open(&mut self) {
        self.is_open = true;
        let attempt = self.attempt;
        let mut outputs = self.rig.connect(attempt);
        outputs.extend(self.rig.sent(attempt));
        self.record(outputs);
    }

    /// Ends the stream, and waits until the next attempt is due.
    fn end(&mut self, kind: DisconnectKind) {
        let outputs = self.rig.disconnect(self.attempt, kind);
        self.record(outputs);
        self.pass(3);
        self.attempt += 1;
        (self.is_open, self.is_answered) = (false, false);
    }

    /// A response without any change, if the stream gave none yet.
    fn receive_unless_answered(&mut self) {
        if !self.is_answered {
            self.receive(vec![any::<T>(if self.cached { "a" } else { "other" }, "x")]);
        }
    }

    fn receive(&mut self, resources: Vec<Any>) {
        let response = self.response(resources);
        self.receive_response(&response, &[]);
    }

    fn response(&mut self, resources: Vec<Any>) -> DiscoveryResponse {
        self.responses += 1;
        self.is_answered = true;
        response::<T>(&self.responses.to_string(), resources)
    }

    fn receive_response(&mut self, response: &DiscoveryResponse, removed: &[&str]) {
        let mut outputs = match self.delta {
            true => self.rig.receive_raw(self.attempt, in_delta(response, removed)),
            false => self.rig.receive(self.attempt, response),
        };
        outputs.extend(self.rig.sent(self.attempt));
        self.record(outputs);
    }

    fn pass(&mut self, seconds: u64) {
        let outputs = self.rig.pass(Duration::from_secs(seconds));
        self.record(outputs);
    }

    fn record(&mut self, outputs: Vec<String>) {
        let published = outputs.iter().filter_map(|outputs| outputs.strip_prefix("#1 ")).map(str::to_owned);
        self.published.extend(published);
    }
}
