//! Unary calls with a client of the crate `grpc`, on any channel of it.

use std::time::Instant;

use bytes::{Buf, Bytes};
use grpc::{
    client::{
        CallOptions, Invoke, RecvStream, ResponseStreamItem, SendOptions, SendStream,
        stream_util::RecvStreamValidator,
    },
    core::{RecvMessage, RequestHeaders, SendMessage},
};
use tonic::{Code, Status};

use super::{
    echo,
    load::{Call, Load, repeat, so_many},
};

/// A message as bytes.
#[derive(Debug, Default)]
struct Raw(Bytes);

impl SendMessage for Raw {
    fn encode(&self) -> Result<Box<dyn Buf + Send + Sync>, String> {
        Ok(Box::new(self.0.clone()))
    }
}

impl RecvMessage for Raw {
    fn decode(&mut self, data: &mut dyn Buf) -> Result<(), String> {
        let length = data.remaining();
        self.0 = data.copy_to_bytes(length);
        Ok(())
    }
}

/// Makes calls, each of as many tasks one after the other as are to be in flight.
pub(crate) async fn run<T: Invoke + Clone + Send + 'static>(channel: &T, load: Load) -> Vec<Call> {
    let channel = channel.clone();
    let call = move |message| call(channel.clone(), message);
    repeat((load.in_flight, load.size), so_many(load.calls), call).await
}

/// A unary call, as the generated code makes it.
async fn call<T: Invoke + Clone + Send + 'static>(channel: T, message: Bytes) -> Call {
    let (start, size) = (Instant::now(), message.len());
    let headers = RequestHeaders::new().with_method_name(echo::METHOD);
    let (mut sender, receiver) = channel.invoke(headers, CallOptions::default()).await;
    let mut receiver = RecvStreamValidator::new(receiver, true);
    // An error has its reason in the trailers.
    let _ = sender.send(&Raw(message), SendOptions::new().with_final_msg(true)).await;
    let mut response = Raw::default();
    loop {
        if let ResponseStreamItem::Trailers(trailers) = receiver.recv(&mut response).await {
            let status = trailers.into_status();
            let error = status.map(|()| assert_eq!(response.0.len(), size)).err();
            let error = error.map(|error| Status::new(Code::from(error.code() as i32), error.message()));
            return Call { start, end: Instant::now(), error };
        }
    }
}
