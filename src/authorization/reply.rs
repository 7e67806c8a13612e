//! Replies to requests that do not reach the service.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::{error::Code, rbac::is_grpc_content_type};

/// A reply without the service: trailers alone for gRPC, and a text for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) code: Code,
    /// ASCII without `%`, so that it is its own percent-encoding.
    pub(super) message: &'static str,
}

pin_project! {
    /// The body of a response behind an [`RbacLayer`](super::RbacLayer): that of the service, or the text of a denial.
    #[derive(Debug)]
    pub struct RbacBody<B> {
        #[pin]
        content: Content<B>,
    }
}

pin_project! {
    #[project = Projected]
    #[derive(Debug)]
    enum Content<B> {
        Service { #[pin] body: B },
        Text { text: Option<Bytes> },
    }
}

impl<B> RbacBody<B> {
    /// The body of the service.
    pub(super) fn of_service(body: B) -> Self {
        Self { content: Content::Service { body } }
    }
}

impl Reply {
    /// The response to a request with these headers.
    pub(super) fn response<B>(self, request: &HeaderMap) -> Response<RbacBody<B>> {
        let content_type = request.get(header::CONTENT_TYPE);
        let is_grpc = content_type.is_some_and(|value| is_grpc_content_type(value.as_bytes()));
        let text = if is_grpc { None } else { Some(Bytes::from_static(self.message.as_bytes())) };
        let mut response = Response::new(RbacBody { content: Content::Text { text } });
        if is_grpc {
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert("grpc-status", HeaderValue::from(self.code as i32));
            headers.insert("grpc-message", HeaderValue::from_static(self.message));
        } else {
            *response.status_mut() = self.status;
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        }
        response
    }
}

impl<B: Body<Data = Bytes>> Body for RbacBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().content.project() {
            Projected::Service { body } => body.poll_frame(cx),
            Projected::Text { text } => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Service { body } => body.is_end_stream(),
            Content::Text { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Service { body } => body.size_hint(),
            Content::Text { text } => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}

/// A request that the policies deny (SV9.3).
pub(super) const DENIED: Reply = Reply {
    status: StatusCode::FORBIDDEN,
    code: Code::PermissionDenied,
    message: "Unauthorized request rejected",
};
/// A request that cannot be decided about (SV9.9, SV9.11).
pub(super) const MALFORMED: Reply =
    Reply { status: StatusCode::BAD_REQUEST, code: Code::Internal, message: "malformed request" };
/// A request whose connection is unknown, though the policies depend on it.
pub(super) const UNKNOWN_CONNECTION: Reply = Reply {
    status: StatusCode::INTERNAL_SERVER_ERROR,
    code: Code::Internal,
    message: "no facts about the connection",
};
