//! A channel as one of the crate `grpc`: calls of the clients that are generated for it.
//!
//! Each call is made by the same path as those of [`Channel`] as a service, which has all retries, deadlines and picks. A task makes
//! it until its response begins, since its streams may be polled late, or one of them alone.

mod messages;
mod metadata;
mod receive;
mod send;

use grpc::{
    client::{CallOptions, Invoke},
    core::RequestHeaders,
};
use tokio::time::Instant;
use tracing::{Instrument, Span};

pub use self::{receive::GrpcRecvStream, send::GrpcSendStream};
use super::Channel;

/// Calls of the clients that are generated for the crate `grpc` (feature `grpc`).
///
/// This implementation is **unstable**: that crate is a preview, whose version is pinned exactly. It changes with that crate, and is
/// exempt from semantic versioning.
///
/// ```no_run
/// use grpc::{
///     client::{CallOptions, Invoke},
///     core::RequestHeaders,
/// };
/// use xdskit::channel::{GrpcRecvStream, GrpcSendStream};
///
/// async fn add(shop: &xdskit::Channel) -> (GrpcSendStream, GrpcRecvStream) {
///     // Generated clients take the channel, and do this.
///     let headers = RequestHeaders::new().with_method_name("/shop.Cart/Add");
///     shop.invoke(headers, CallOptions::new()).await
/// }
/// ```
impl Invoke for Channel {
    type SendStream = GrpcSendStream;
    type RecvStream = GrpcRecvStream;

    /// Begins a call, and returns at once: a call that waits for the configuration, an endpoint or a stream of HTTP/2 waits in its
    /// streams. The deadline of the options and that of the route (A31) limit all of it, whether the streams are polled or not.
    ///
    /// # Panics
    /// It is called outside of a tokio runtime.
    async fn invoke(
        &self,
        headers: RequestHeaders,
        options: CallOptions,
    ) -> (GrpcSendStream, GrpcRecvStream) {
        let (sender, body) = send::stream();
        let limit = self.shared.calls.max_receive_message_size;
        let request = match metadata::request(headers, body) {
            Ok(request) => request,
            Err(status) => return (sender, GrpcRecvStream::failed(status)),
        };
        let calls = self.shared.calls.clone();
        let deadline = options.deadline().map(Instant::from_std);
        // In a box at once: the runtime moves what it is given several times (CH11.5).
        let call = Box::pin(async move { calls.call_until(request, deadline).await });
        // The spans of the call have the same parent as if the caller polled it.
        let call = tokio::spawn(call.instrument(Span::current()));
        let receiver = GrpcRecvStream::new(call, sender.failure(), limit);
        (sender, receiver)
    }
}
