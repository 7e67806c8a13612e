//! The client, as `protoc-gen-rust-grpc` would generate it from a `.proto` file: it works with any channel.

use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use grpc::{
    StatusError,
    client::{
        CallOptions, Invoke, RecvStream, ResponseStreamItem, SendOptions, SendStream,
        stream_util::RecvStreamValidator,
    },
    core::{RecvMessage, RequestHeaders, SendMessage},
};

use super::server::GREET;

/// A client of the service.
#[derive(Debug, Clone)]
pub(crate) struct GreeterClient<T> {
    channel: T,
}

impl<T: Invoke> GreeterClient<T> {
    pub(crate) fn new(channel: T) -> Self {
        Self { channel }
    }

    /// Returns the name of the server that greets.
    pub(crate) async fn say_hello(&self, to: &str) -> Result<String, StatusError> {
        let headers = RequestHeaders::new().with_method_name(GREET);
        let mut options = CallOptions::new();
        options.set_deadline(Instant::now() + Duration::from_secs(10));
        let (mut sender, receiver) = self.channel.invoke(headers, options).await;
        // An error has its reason in the trailers.
        let _ = sender.send(&Text(to.to_owned()), SendOptions::new().with_final_msg(true)).await;
        // One message or a failure.
        let mut receiver = RecvStreamValidator::new(receiver, true);
        let mut greeting = Text::default();
        loop {
            if let ResponseStreamItem::Trailers(trailers) = receiver.recv(&mut greeting).await {
                return trailers.into_status().map(|()| greeting.0);
            }
        }
    }
}

/// A message as text, in the place of a generated one.
#[derive(Debug, Default)]
struct Text(String);

impl SendMessage for Text {
    fn encode(&self) -> Result<Box<dyn Buf + Send + Sync>, String> {
        Ok(Box::new(Bytes::copy_from_slice(self.0.as_bytes())))
    }
}

impl RecvMessage for Text {
    fn decode(&mut self, data: &mut dyn Buf) -> Result<(), String> {
        let mut bytes = vec![0; data.remaining()];
        data.copy_to_slice(&mut bytes);
        self.0 = String::from_utf8(bytes).map_err(|error| error.to_string())?;
        Ok(())
    }
}
