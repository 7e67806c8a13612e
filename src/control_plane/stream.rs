//! The task of one stream: it feeds a session with requests and changes, and sends its responses.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tonic::{Status, Streaming};

use super::{
    event::Event,
    headers::Headers,
    hub::{Command, Hub, State},
    message::Response,
    method::Method,
    stream_session::StreamSession,
    subscriptions::LastTurn,
};

/// One stream of one client: a task that runs a session.
///
/// The queue of responses is unbounded, since there is at most one response per type in it.
#[derive(Debug)]
pub(super) struct Stream {
    /// The number of the stream, counted over the control plane.
    id: u64,
    /// The method that the client called.
    method: Method,
    /// What all streams share.
    hub: Arc<Hub>,
    /// The protocol.
    session: StreamSession,
    /// The turn of the last new name, for fairness between clients.
    turn: LastTurn,
    /// The responses, which the call sends to the client.
    responses: mpsc::UnboundedSender<Result<Bytes, Status>>,
    /// Taken when the headers may be sent; dropping it sends them, too.
    headers: Option<oneshot::Sender<()>>,
}

impl Stream {
    /// A stream that has received nothing.
    pub(super) fn new(
        id: u64,
        method: Method,
        hub: Arc<Hub>,
        responses: mpsc::UnboundedSender<Result<Bytes, Status>>,
        headers: oneshot::Sender<()>,
    ) -> Self {
        let session = StreamSession::new(method.variant, hub.settings.clone());
        let turn = LastTurn::default();
        Self { id, method, hub, session, turn, responses, headers: Some(headers) }
    }

    /// Serves the stream until either side ends it.
    pub(super) async fn run(
        mut self,
        mut requests: Streaming<Bytes>,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) {
        let mut state = self.hub.follow();
        let mut alarm = self.follow(&mut state);
        loop {
            let reading_paused = state.borrow().reading_paused;
            let step = tokio::select! {
                request = requests.message(), if !reading_paused => self.on_request(request),
                // The hub holds the sender.
                _ = state.changed() => Ok(()),
                command = commands.recv() => self.on_command(command),
                () = self.responses.closed() => Err(None),
                () = ring(alarm) => Ok(()),
            };
            if let Err(status) = step {
                if let Some(status) = status {
                    let (code, reason) = (status.code(), status.message());
                    tracing::debug!(stream = self.id, ?code, reason, "ending the stream");
                    self.respond(Err(status));
                }
                return;
            }
            alarm = self.follow(&mut state);
            // Another client has its turn after each step, however many requests of this one are waiting.
            tokio::task::yield_now().await;
        }
    }

    /// Handles a request, or the end of the stream. An error ends it, with a status unless the client has gone.
    fn on_request(&mut self, received: Result<Option<Bytes>, Status>) -> Result<(), Option<Status>> {
        let message = match received {
            Ok(Some(message)) => message,
            // The client ended the stream, or disconnected.
            Ok(None) => return Err(None),
            Err(status) => return Err(self.hub.server_limits.status_of(&status)),
        };
        let bytes = message.len();
        let (request, handled) = self.session.handle_request(message, self.method).map_err(Some)?;
        tracing::trace!(stream = self.id, type_url = request.type_url(), bytes, ?handled, "request");
        self.hub.on_names_changed(request.type_url(), self.session.changes(), &mut self.turn);
        self.hub.emit(&Event::Request { stream: self.id, request, bytes, handled });
        // Only new names can exceed the limit: a client that lets names go is not punished for those of others.
        let is_new = !self.session.changes().subscribed.is_empty();
        let check = |names| self.hub.server_limits.check_total_names(names).map_err(Some);
        if is_new { check(self.hub.subscribed_names()) } else { Ok(()) }
    }

    /// Handles a command of the hub.
    fn on_command(&mut self, command: Option<Command>) -> Result<(), Option<Status>> {
        match command {
            None => Err(None),
            Some(Command::End(status)) => Err(Some(status)),
            Some(Command::Send(response)) => {
                if self.session.note_sent(&response) {
                    self.send(&response);
                }
                Ok(())
            }
            Some(Command::SendRaw(bytes)) => {
                self.emit_response(Summary::default(), bytes.len());
                self.respond(Ok(bytes));
                Ok(())
            }
        }
    }

    /// Reads the state and sends all due responses. Returns the time of the next call if no event occurs.
    fn follow(&mut self, state: &mut watch::Receiver<State>) -> Option<Instant> {
        let State { store, held, headers, .. } = state.borrow_and_update().clone();
        if headers == Headers::AtOnce {
            self.headers = None;
        }
        self.session.set_held(held);
        // The clock of the runtime, which a test may have paused.
        // Before the poll, which sends what the time has made due.
        let alarm = self.session.handle_time(Instant::now().into_std(), &store);
        while let Some(response) = self.session.poll_response(&store) {
            self.send(&response);
        }
        alarm.map(Instant::from_std)
    }

    /// Sends a response, and tells observers.
    fn send(&mut self, response: &Response) {
        let message = response.encode(self.method.api_version);
        self.emit_response(Summary::of(response), message.len());
        self.respond(Ok(message));
    }

    /// Sends an encoded response, or the status that ends the stream.
    fn respond(&mut self, item: Result<Bytes, Status>) {
        if self.hub.state().headers == Headers::WithFirstResponse {
            self.headers = None;
        }
        // If the receiver is gone, so is the client, which `run` detects next.
        let _ = self.responses.send(item);
    }

    /// Tells observers of a response.
    fn emit_response(&self, Summary { type_url, version, resources, removed }: Summary, bytes: usize) {
        let stream = self.id;
        tracing::trace!(stream, type_url, version, resources, removed, bytes, "response");
        self.hub.emit(&Event::Response { stream, type_url, version, resources, removed, bytes });
    }
}

/// Waits until a time; forever if there is none.
async fn ring(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The properties of a response for observers.
#[derive(Debug, Default)]
struct Summary {
    type_url: String,
    version: String,
    /// The number of resources.
    resources: usize,
    /// The number of removed names; 0 in the state-of-the-world variant, where they are implicit.
    removed: usize,
}

impl Summary {
    /// Summarizes a response of either variant.
    fn of(response: &Response) -> Self {
        match response {
            Response::Sotw(response) => Self {
                type_url: response.type_url.clone(),
                version: response.version_info.clone(),
                resources: response.resources.len(),
                removed: 0,
            },
            Response::Delta(response) => Self {
                type_url: response.type_url.clone(),
                version: response.system_version_info.clone(),
                resources: response.resources.len(),
                removed: response.removed_resources.len(),
            },
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.hub.close(self.id);
        self.hub.on_stream_ended(self.session.subscriptions());
        self.hub.emit(&Event::Closed { stream: self.id });
    }
}
