use std::sync::Arc;

use tonic::Status;

use crate::error::WatchError;

/// A status with the same code, the message of the error, and the error itself as the
/// [source](std::error::Error::source).
///
/// It is intended for reports on the configuration, such as an admin service or a test. Calls of an application
/// without a configuration fail with `UNAVAILABLE`, whatever the code of the error is (A54): create their status with
/// `Status::unavailable(error.to_string())`.
///
/// ```
/// use tonic::{Code, Status};
/// use xdskit::WatchError;
///
/// fn report(error: &WatchError) -> Status {
///     let status = Status::from(error.clone()); // It is cheap to clone.
///     assert!(!error.is_not_found() || status.code() == Code::NotFound);
///     status
/// }
/// ```
impl From<WatchError> for Status {
    fn from(error: WatchError) -> Self {
        // Both enums have the numbers of gRPC's codes, which a test compares.
        let mut status = Self::new((error.code() as i32).into(), error.to_string());
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
    fn a_status_has_the_code_and_the_message_of_the_error() {
        for number in 0..=16 {
            let code = Code::from_i32(number);
            let status = Status::from(error(code));
            assert_eq!((status.code() as i32, code as i32), (number, number));
            assert_eq!(status.message(), "Cluster \"shop\": it is broken [node id: n1]");
        }
        // The names of the codes are equal, too.
        for (code, expected) in [
            (Code::Cancelled, tonic::Code::Cancelled),
            (Code::InvalidArgument, tonic::Code::InvalidArgument),
            (Code::NotFound, tonic::Code::NotFound),
            (Code::Unavailable, tonic::Code::Unavailable),
            (Code::Unauthenticated, tonic::Code::Unauthenticated),
        ] {
            assert_eq!(Status::from(error(code)).code(), expected);
        }
    }

    #[test]
    fn a_status_keeps_the_error_as_its_source() {
        let status = Status::from(error(Code::NotFound));
        let source = status.source().and_then(|source| source.downcast_ref::<WatchError>());
        assert_eq!(source, Some(&error(Code::NotFound)));
    }
}
