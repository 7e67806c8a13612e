use crate::balance::{breaker::Breaker, load::Load, outlier::outcomes::Outcomes};

/// Who counts the end of an attempt; outlier detection with whether it has succeeded.
#[derive(Debug, Clone, Copy)]
pub(super) enum End<'a> {
    Policy(&'a Load),
    Breaker(&'a Breaker),
    Outliers(&'a Outcomes, bool),
}

impl End<'_> {
    pub(super) fn count(self) {
        match self {
            Self::Policy(load) => load.end(),
            Self::Breaker(breaker) => breaker.release(),
            Self::Outliers(outcomes, true) => outcomes.on_success(),
            Self::Outliers(outcomes, false) => outcomes.on_failure(),
        }
    }
}
