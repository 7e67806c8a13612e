use std::sync::Arc;

use tonic::Status;

use crate::error::WatchError;

/// The status of a call that fails because of the error: `UNAVAILABLE`, whatever the [code](WatchError::code) of the error is, so
/// that `?` is right in the handler of a call. `NOT_FOUND` of a missing cluster would be taken for a result of the application
/// (gRFC [A54]).
///
/// The message is that of the error, after its code. The error itself is the [source](std::error::Error::source), for reports on
/// the configuration that need its code.
///
/// ```
/// use tonic::{Code, Status};
/// use xdskit::{Client, WatchError, resource::Cluster};
///
/// async fn handle(client: &Client) -> Result<(), Status> {
///     let shop = client.watch::<Cluster>("shop").ready().await?; // fails with UNAVAILABLE
///     Ok(())
/// }
///
/// fn report(error: &WatchError) -> Status {
///     let status = Status::from(error.clone()); // It is cheap to clone.
///     assert_eq!(status.code(), Code::Unavailable);
///     Status::new(Code::from(error.code() as i32), error.to_string())
/// }
/// ```
///
/// [A54]: https://github.com/grpc/proposal/blob/master/A54-restrict-control-plane-status-codes.md
impl From<WatchError> for Status {
    fn from(error: WatchError) -> Self {
        // A54: the text has the original code. A88 has no code of a watcher reach a call.
        let mut status = Self::unavailable(format!("{}: {error}", error.code()));
        status.set_source(Arc::new(error));
        status
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::error::{Blame, Code, Subject};

    fn error(code: Code) -> WatchError {
        let type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        let about = Subject { type_url, name: "shop".into(), node: "n1".into() };
        WatchError::new(code, Blame::Peer, about, "it is broken")
    }

    #[test]
    fn a_status_is_unavailable_with_the_code_of_the_error_in_its_message() {
        for number in 0..=16 {
            let code = Code::from_i32(number);
            let status = Status::from(error(code));
            assert_eq!(status.code(), tonic::Code::Unavailable, "{code}");
            assert_eq!(status.message(), format!("{code}: Cluster \"shop\": it is broken [node id: n1]"));
        }
    }

    #[test]
    fn codes_have_the_numbers_of_tonics() {
        for number in 0..=16 {
            let (code, tonics) = (Code::from_i32(number), tonic::Code::from(number));
            assert_eq!((code as i32, tonics as i32), (number, number));
            assert_eq!(code.as_str().replace('_', ""), format!("{tonics:?}").to_uppercase());
        }
    }

    #[test]
    fn a_status_keeps_the_error_as_its_source() {
        let status = Status::from(error(Code::NotFound));
        let source = status.source().and_then(|source| source.downcast_ref::<WatchError>());
        assert_eq!(source, Some(&error(Code::NotFound)));
    }
}
