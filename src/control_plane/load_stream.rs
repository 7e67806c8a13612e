//! A stream of load reports.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use prost::Message;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tonic::{Status, Streaming, body::Body};

use super::{
    headers::Headers,
    hub::Hub,
    load_hub::{LoadCommand, LoadFault, LoadState},
    session::LoadSession,
};
use crate::pb::envoy::service::load_stats::v3::LoadStatsRequest;

/// One stream of load reports: a task that runs a [`LoadSession`].
#[derive(Debug)]
pub(super) struct LoadStream {
    /// The number of the stream.
    id: u64,
    /// The state that all streams share.
    hub: Arc<Hub>,
    /// The protocol of the stream.
    session: LoadSession,
    /// The messages to the client; an error ends the stream.
    responses: mpsc::UnboundedSender<Result<Bytes, Status>>,
    /// What the task does to the stream apart from messages.
    signals: Signals,
    /// When a response is sent that a fault delays.
    delayed_until: Option<Instant>,
}

/// The events of a stream that are no messages.
#[derive(Debug)]
pub(super) struct Signals {
    /// Taken when the headers may be sent; dropping it sends them, too.
    pub(super) headers: Option<oneshot::Sender<()>>,
    /// Taken to reset the stream.
    pub(super) reset: Option<oneshot::Sender<()>>,
}

/// The body of a response that can be reset, for which gRPC has no status.
#[derive(Debug)]
pub(super) struct Resettable {
    /// The body as tonic made it.
    body: Body,
    /// Resolves when the stream is to be reset; `None` once its sender is gone.
    reset: Option<oneshot::Receiver<()>>,
}

impl LoadStream {
    pub(super) fn new(
        id: u64,
        hub: Arc<Hub>,
        responses: mpsc::UnboundedSender<Result<Bytes, Status>>,
        signals: Signals,
    ) -> Self {
        Self { id, hub, session: LoadSession::new(id), responses, signals, delayed_until: None }
    }

    /// Serves the stream until either side ends it.
    pub(super) async fn run(
        mut self,
        mut requests: Streaming<Bytes>,
        mut commands: mpsc::UnboundedReceiver<LoadCommand>,
    ) {
        let mut state = self.hub.load_reporting.follow();
        let mut step = self.follow(&mut state);
        while let Ok(()) = step {
            let reading_paused = state.borrow().reading_paused;
            let delayed_until = self.delayed_until;
            step = tokio::select! {
                request = requests.message(), if !reading_paused => self.on_request(request),
                // The hub holds the sender.
                _ = state.changed() => Ok(()),
                command = commands.recv() => self.on_command(command),
                () = self.responses.closed() => Err(None),
                () = alarm(delayed_until) => Ok(()),
            };
            if step.is_ok() {
                step = self.follow(&mut state);
            }
        }
        if let Err(Some(status)) = step {
            let (code, reason) = (status.code(), status.message());
            tracing::debug!(stream = self.id, ?code, reason, "ending the stream of load reports");
            self.respond(Err(status));
        }
    }

    /// Handles a report.
    fn on_request(&mut self, received: Result<Option<Bytes>, Status>) -> Result<(), Option<Status>> {
        let message = match received {
            Ok(Some(message)) => message,
            // The client ended the stream, or disconnected.
            Ok(None) => return Err(None),
            Err(status) => return Err(self.hub.server_limits.status_of(&status)),
        };
        let invalid = |reason: String| Some(Status::invalid_argument(reason));
        let request = LoadStatsRequest::decode(message)
            .map_err(|error| invalid(format!("not a LoadStatsRequest: {error}")))?;
        // The clock of the runtime, which a test may have paused.
        let report = self.session.handle_request(request, Instant::now().into_std());
        let report = report.ok_or_else(|| invalid("the first request has no node".to_owned()))?;
        let (node, bytes, clusters) = (report.node(), report.bytes(), report.message().cluster_stats.len());
        tracing::trace!(stream = self.id, node, bytes, clusters, "load report");
        self.hub.load_reporting.add(report);
        Ok(())
    }

    /// Handles a command.
    fn on_command(&mut self, command: Option<LoadCommand>) -> Result<(), Option<Status>> {
        match command {
            None => Err(None),
            Some(LoadCommand::End(status)) => Err(Some(status)),
            Some(LoadCommand::Send(message)) => {
                self.respond(Ok(message));
                Ok(())
            }
            Some(LoadCommand::Reset) => {
                if let Some(reset) = self.signals.reset.take() {
                    // The receiver is gone if the client is.
                    let _ = reset.send(());
                }
                Err(None)
            }
        }
    }

    /// Reads the state, and sends the response that is due, or acts as the fault demands.
    fn follow(&mut self, state: &mut watch::Receiver<LoadState>) -> Result<(), Option<Status>> {
        let LoadState { config, fault, headers, .. } = state.borrow_and_update().clone();
        if headers == Headers::AtOnce {
            self.signals.headers = None;
        }
        // Without a configuration, the command that ends the stream is on its way.
        let Some(config) = config else { return Ok(()) };
        if !self.session.is_response_due(&config) {
            self.delayed_until = None;
            return Ok(());
        }
        let now = Instant::now();
        // From the first time that the response was due: events in the meantime do not postpone it further.
        let until = if let Some(LoadFault::Delay(time)) = fault {
            Some(self.delayed_until.unwrap_or(now + time))
        } else {
            None
        };
        self.delayed_until = until.filter(|until| *until > now);
        if self.delayed_until.is_some() {
            return Ok(());
        }
        // Before the session is asked, since a response that it has handed out counts as sent.
        match fault {
            Some(LoadFault::NoResponse) => return Ok(()),
            Some(LoadFault::EndBeforeResponse(status)) => return Err(Some(status)),
            Some(LoadFault::Delay(_) | LoadFault::EndAfterResponse(_) | LoadFault::Undecodable) | None => {}
        }
        let Some(response) = self.session.poll_response(&config) else { return Ok(()) };
        tracing::trace!(stream = self.id, ?response, "response to load reports");
        match fault {
            Some(LoadFault::Undecodable) => self.respond(Ok(UNDECODABLE)),
            Some(LoadFault::EndAfterResponse(status)) => {
                self.respond(Ok(response.encode_to_vec().into()));
                return Err(Some(status));
            }
            Some(LoadFault::NoResponse | LoadFault::Delay(_) | LoadFault::EndBeforeResponse(_)) | None => {
                self.respond(Ok(response.encode_to_vec().into()));
            }
        }
        Ok(())
    }

    /// Sends a response or the status of the end, and the headers before it.
    fn respond(&mut self, item: Result<Bytes, Status>) {
        if self.hub.load_reporting.state().headers == Headers::WithFirstResponse {
            self.signals.headers = None;
        }
        // If the receiver is gone, so is the client, which `run` detects next.
        let _ = self.responses.send(item);
    }
}

impl Drop for LoadStream {
    fn drop(&mut self) {
        self.hub.load_reporting.close(self.id);
    }
}

/// Waits for a time; for ever without one.
async fn alarm(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl Resettable {
    pub(super) fn new(body: Body, reset: oneshot::Receiver<()>) -> Self {
        Self { body, reset: Some(reset) }
    }
}

impl HttpBody for Resettable {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(reset) = &mut self.reset {
            match Pin::new(reset).poll(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(Some(Err(Status::internal("reset")))),
                // The stream ends without a reset.
                Poll::Ready(Err(_)) => self.reset = None,
                Poll::Pending => {}
            }
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.reset.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes that are no message: a field whose length is beyond the end.
const UNDECODABLE: Bytes = Bytes::from_static(b"\x0a\xff\x01");
