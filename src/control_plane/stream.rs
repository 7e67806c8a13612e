use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::{Status, Streaming};

use super::{
    event::Event,
    hub::{Command, Headers, Hub, State},
    session::Session,
};
use crate::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

/// One stream of one client: a task that lets a [`Session`] speak.
///
/// There is no bound on what waits to be written, because there is never more than one response of each type.
#[derive(Debug)]
pub(super) struct Stream {
    id: u64,
    hub: Arc<Hub>,
    session: Session,
    responses: mpsc::UnboundedSender<Result<Bytes, Status>>,
    /// Taken when the headers may be sent; dropping it lets them go as well.
    headers: Option<oneshot::Sender<()>>,
}

impl Stream {
    pub(super) fn new(
        id: u64,
        hub: Arc<Hub>,
        responses: mpsc::UnboundedSender<Result<Bytes, Status>>,
        headers: oneshot::Sender<()>,
    ) -> Self {
        let session = Session::new(hub.settings.clone());
        Self { id, hub, session, responses, headers: Some(headers) }
    }

    /// Serves the stream until either side ends it.
    pub(super) async fn run(
        mut self,
        mut requests: Streaming<Bytes>,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) {
        let mut state = self.hub.follow();
        self.follow(&mut state);
        loop {
            let deaf = state.borrow().deaf;
            let step = tokio::select! {
                request = requests.message(), if !deaf => self.on_request(request),
                // The hub keeps the sender.
                _ = state.changed() => Ok(()),
                command = commands.recv() => self.on_command(command),
                () = self.responses.closed() => Err(None),
            };
            if let Err(status) = step {
                if let Some(status) = status {
                    tracing::debug!(stream = self.id, code = ?status.code(), "ending the stream: {}", status.message());
                    self.respond(Err(status));
                }
                return;
            }
            self.follow(&mut state);
        }
    }

    fn on_request(&mut self, received: Result<Option<Bytes>, Status>) -> Result<(), Option<Status>> {
        let Ok(Some(message)) = received else {
            // The client ended the stream, or is gone.
            return Err(None);
        };
        let bytes = message.len();
        let request = DiscoveryRequest::decode(message)
            .map_err(|error| Some(Status::invalid_argument(format!("not a DiscoveryRequest: {error}"))))?;
        let request = Arc::new(request);
        let handled = self
            .session
            .handle_request(DiscoveryRequest::clone(&request))
            .map_err(|misuse| Some(Status::invalid_argument(misuse.to_string())))?;
        tracing::trace!(stream = self.id, type_url = request.type_url, bytes, ?handled, "request");
        self.hub.emit(&Event::Request { stream: self.id, request, bytes, handled });
        Ok(())
    }

    fn on_command(&mut self, command: Option<Command>) -> Result<(), Option<Status>> {
        match command {
            None => Err(None),
            Some(Command::End(status)) => Err(Some(status)),
            Some(Command::Send(response)) => {
                self.session.note_sent(&response);
                self.send(&response);
                Ok(())
            }
            Some(Command::SendRaw(bytes)) => {
                self.emit_response(&DiscoveryResponse::default(), bytes.len());
                self.respond(Ok(bytes));
                Ok(())
            }
        }
    }

    /// Looks at the state and sends all that is due.
    fn follow(&mut self, state: &mut watch::Receiver<State>) {
        let State { store, held, headers, .. } = state.borrow_and_update().clone();
        if headers == Headers::AtOnce {
            self.headers = None;
        }
        self.session.set_held(held);
        while let Some(response) = self.session.poll_response(&store) {
            self.send(&response);
        }
    }

    fn send(&mut self, response: &DiscoveryResponse) {
        let message = Bytes::from(response.encode_to_vec());
        self.emit_response(response, message.len());
        self.respond(Ok(message));
    }

    fn respond(&mut self, item: Result<Bytes, Status>) {
        if self.hub.state().headers == Headers::WithFirstResponse {
            self.headers = None;
        }
        // When the receiver is gone, so is the client, which `run` notices next.
        let _ = self.responses.send(item);
    }

    fn emit_response(&self, response: &DiscoveryResponse, bytes: usize) {
        let (type_url, version) = (response.type_url.clone(), response.version_info.clone());
        let (stream, resources) = (self.id, response.resources.len());
        tracing::trace!(stream, type_url, version, resources, bytes, "response");
        self.hub.emit(&Event::Response { stream, type_url, version, resources, bytes });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.hub.close(self.id);
        self.hub.emit(&Event::Closed { stream: self.id });
    }
}
