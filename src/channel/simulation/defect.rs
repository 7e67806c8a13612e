//! Known defects, and what brings them about.

use std::env;

/// A defect that runs have found. While it is not fixed, what brings it about is left out of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defect {
    /// Responses that nobody reads use up the window of the connection.
    UnreadResponses,
    /// Frames for streams that were cancelled end the connection.
    CancelledCalls,
    /// Small DATA frames that wait to be read end the connection.
    SmallFrames,
    /// Attempts to connect wait for those to silent endpoints.
    SilentEndpoints,
    /// The deadline of a call is looked at when its body is polled, and empty.
    DeadlineOfBodies,
    /// Durations that cannot be added to a time end the channel's task, or fail each connection.
    LongestDurations,
    /// Counters of load reports stay for endpoints that are gone.
    DepartedEndpoints,
    /// The retry buffer counts payload, and not what keeps it.
    SmallParts,
    /// A call above MAX_CONCURRENT_STREAMS waits in the transport, and fails with the connection.
    UnsentCalls,
    /// Header lists above the limit of the peer are sent, and end the connection.
    HeaderLists,
    /// An endpoint that ends each connection is connected to again without delay.
    InstantReconnects,
    /// Texts of the peer stand in statuses in full.
    LongTexts,
}

/// The defects whose causes belong to a run.
#[derive(Debug, Clone)]
pub(super) struct Defects(Vec<Defect>);

impl Defect {
    const ALL: [Self; 12] = [
        Self::UnreadResponses,
        Self::CancelledCalls,
        Self::SmallFrames,
        Self::SilentEndpoints,
        Self::DeadlineOfBodies,
        Self::LongestDurations,
        Self::DepartedEndpoints,
        Self::SmallParts,
        Self::UnsentCalls,
        Self::HeaderLists,
        Self::InstantReconnects,
        Self::LongTexts,
    ];
}

impl Defects {
    /// Those that are fixed, and those that `XDSKIT_SIMULATION_FAMILY` names.
    pub(super) fn of_environment() -> Self {
        Self::and(&env::var("XDSKIT_SIMULATION_FAMILY").unwrap_or_default())
    }

    /// Those that are fixed, and one more.
    pub(super) fn and_one(defect: Defect) -> Self {
        Self::and(&format!("{defect:?}"))
    }

    /// Those that are fixed, and those of a list with commas.
    fn and(family: &str) -> Self {
        let named = |defect: &Defect| family.split(',').any(|name| name == format!("{defect:?}"));
        Self(Defect::ALL.into_iter().filter(|defect| !KNOWN.contains(defect) || named(defect)).collect())
    }

    /// Whether the cause of a defect belongs to the run.
    pub(super) fn is_on(&self, defect: Defect) -> bool {
        self.0.contains(&defect)
    }
}

/// The defects that are not fixed yet. Remove one here with its fix: from then on, each run may have its cause.
pub(super) const KNOWN: &[Defect] = &[];
