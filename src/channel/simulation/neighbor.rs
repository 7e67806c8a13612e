//! Calls beside the applications: nothing that these, their streams or their endpoint do makes one of them fail or wait.

use std::time::Duration;

use http::Request;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;
use tower_service::Service;

use super::{
    application::{Environment, GRPC, Upload, finish},
    call_number,
    plan::{PREFIX, Plan},
};

/// A call of one message each way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neighbor {
    pub(super) endpoint: Endpoint,
    /// When it begins, since the begin of the run.
    pub(super) at: Duration,
    pub(super) rule: Rule,
    /// How long it may take.
    pub(super) bound: Duration,
    /// The longest text of its status.
    pub(super) text: usize,
}

/// The endpoint of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// That of the applications, and mostly their connection.
    Near,
    /// Another one, of another cluster.
    Far,
}

/// What the call has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// OK within the bound.
    Succeeds,
    /// As before, but it may be refused since others wait.
    SucceedsOrIsRefused,
    /// The server, or the protocol, makes it wait or fail. It has a deadline and ends at that.
    Ends {
        /// A call that was never sent does not fail with its connection.
        unless_sent: bool,
    },
}

impl Neighbor {
    pub(super) async fn call(self, environment: Environment) {
        let Environment { mut channel, plans, report, .. } = environment;
        let plan = Plan::unary(Duration::from_millis(2));
        let (number, message) = plans.add(plan, None);
        let mut request = Request::post(match self.endpoint {
            Endpoint::Near => "/near/Neighbor",
            Endpoint::Far => "/far/Neighbor",
        })
        .header("content-type", GRPC)
        .header(CALL, call_number::value(number));
        let is_limited = matches!(self.rule, Rule::Ends { .. }) || number % 2 == 0;
        let limit = if is_limited { DEADLINE.max(self.bound) } else { self.bound };
        if is_limited {
            request = request.header("grpc-timeout", format!("{}m", limit.as_millis()));
        }
        let request = request.body(Upload::unary(message)).expect("it is valid");
        let begin = Instant::now();
        let call = async {
            let response = channel.call(request).await.unwrap_or_else(|error| match error {});
            finish(response).await
        };
        // Timers take up to a millisecond more than they should.
        let ended = timeout(limit.max(self.bound) + GRACE, call).await;
        let time = begin.elapsed();
        let name = format!("{:?} of {:?}", self.endpoint, self.at);
        match (ended, self.rule) {
            (Ok(Ok(bytes)), Rule::Succeeds | Rule::SucceedsOrIsRefused) => {
                report.check(bytes == plan.size + PREFIX, || format!("{name} has read {bytes} bytes"));
                let bound = self.bound;
                report.check(time <= bound + GRACE, || format!("{name} took {time:?}, and not {bound:?}"));
                report.outcome("ok");
            }
            (Ok(Ok(_)), Rule::Ends { .. }) => report.outcome("ok nevertheless"),
            (Ok(Err(status)), Rule::SucceedsOrIsRefused) if status.code() == Code::ResourceExhausted => {
                report.outcome("refused");
            }
            (Ok(Err(status)), Rule::Succeeds | Rule::SucceedsOrIsRefused) => {
                report.violation(format!("{name} failed after {time:?}: {status}"));
            }
            (Ok(Err(status)), Rule::Ends { unless_sent }) => {
                // What was sent may still be on its way.
                sleep(ON_ITS_WAY).await;
                let has_attempts = !status.message().contains("no endpoint can be reached");
                let was_sent = plans.is_seen(number) || !has_attempts;
                let is_lost = unless_sent && !was_sent && status.code() == Code::Unavailable;
                report.check(!is_lost, || format!("{name} failed, but was never sent: {status}"));
                let length = status.message().len();
                report.check(length <= self.text, || format!("a text of {length} bytes"));
                report.outcome("excused");
            }
            (Err(_), _) => report.violation(format!("{name} has not ended after {time:?}")),
        }
    }
}

/// The header with the number of the call.
const CALL: &str = "x-call";
/// The deadline of calls that need one.
const DEADLINE: Duration = Duration::from_secs(3);
/// The time after which what was sent has arrived: the longest of a path whose buffer is full.
const ON_ITS_WAY: Duration = Duration::from_millis(200);
/// What timers of the simulation may be late by.
const GRACE: Duration = Duration::from_millis(100);
