//! Which calls count as errors.

use crate::error::Code;

/// How a call has ended, for load reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A success, counted in `total_successful_requests`.
    Success,
    /// An error, counted in `total_error_requests`.
    Error,
}

impl Outcome {
    /// The outcome of a gRPC call, as gRPC's own clients count it: each status but `OK` is an error.
    pub fn of_grpc(code: Code) -> Self {
        // LR5.3.
        if code == Code::Ok { Self::Success } else { Self::Error }
    }

    /// The outcome of a gRPC call, as Envoy counts it: only the statuses that a server has to answer for are errors.
    pub fn of_grpc_as_envoy(code: Code) -> Self {
        match code {
            Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => Self::Error,
            Code::Ok
            | Code::Cancelled
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unauthenticated => Self::Success,
        }
    }

    /// The outcome of a plain HTTP request with a response of this status: 5xx is an error. A request without a response, by a reset
    /// or a timeout, is an [`Error`](Self::Error), too.
    pub fn of_http(status: u16) -> Self {
        // LR5.4.
        if (500..600).contains(&status) { Self::Error } else { Self::Success }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lr5_3_each_status_but_ok_is_an_error() {
        for code in (0..17).map(Code::from_i32) {
            assert_eq!(Outcome::of_grpc(code) == Outcome::Success, code == Code::Ok, "{code:?}");
        }
        let errors: Vec<_> = (0..17)
            .filter(|code| Outcome::of_grpc_as_envoy(Code::from_i32(*code)) == Outcome::Error)
            .collect();
        assert_eq!(errors, [2, 4, 12, 13, 14, 15]);
    }

    #[test]
    fn lr5_4_statuses_from_500_are_errors() {
        let of = |status| Outcome::of_http(status);
        assert_eq!([100, 200, 304, 404, 499, 500, 503, 599, 600].map(of), {
            use Outcome::{Error, Success};
            [Success, Success, Success, Success, Success, Error, Error, Error, Success]
        });
    }
}
