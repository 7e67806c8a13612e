//! The metadata of the application among the headers of a request.

use http::HeaderMap;

use crate::resolve::RequestHeaders;

/// The headers that routes and filters read: the metadata of the application (CH2.9).
pub(crate) struct Visible<'a>(pub(crate) &'a HeaderMap);

impl RequestHeaders for Visible<'_> {
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        if !is_hidden(name) {
            self.0.get_all(name).iter().for_each(|value| each(value.as_bytes()));
        }
    }
}

/// Whether a header is none of the metadata of the application.
pub(crate) fn is_hidden(name: &str) -> bool {
    // `get`, since a matcher may have any name, and five bytes may end within a character. `content-type` is visible (CH2.10).
    let is_grpc = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("grpc-"));
    is_grpc || HIDDEN.iter().any(|hidden| name.eq_ignore_ascii_case(hidden))
}

/// Headers beside those of gRPC that are none of the metadata of the application.
const HIDDEN: [&str; 9] = [
    "host",
    "te",
    "user-agent",
    "connection",
    "proxy-connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "trailer",
];
