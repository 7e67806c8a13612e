//! What a response is answered: the problems that were found in it, and what they are known to concern.

use std::fmt::{Display, Write};

use super::super::counts::ReceivedCounts;
use crate::escape::Escaped;

/// The verdict on a response, as far as it was worked on. Without a problem it is accepted.
///
/// A problem with a name concerns that name alone. Two kinds concern more: a name that occurs twice rejects the response as a
/// whole, and something without a name may be what any name waits for.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The problems, separated by semicolons; it ends soon behind [`LONGEST_ERROR`] bytes.
    problems: String,
    received: ReceivedCounts,
    is_duplicate: bool,
    is_nameless: bool,
}

impl Verdict {
    /// A resource is valid, or was found to be the held one.
    pub(super) fn on_valid(&mut self) {
        self.received.valid += 1;
    }

    /// A resource is rejected, whose name is known or does not matter.
    pub(super) fn reject(&mut self, place: &dyn Display, reason: &dyn Display) {
        self.received.invalid += 1;
        self.add(place, reason);
    }

    /// A resource without a name is rejected: absence proves nothing any more, and nothing is known of the names that wait.
    pub(super) fn reject_nameless(&mut self, place: &dyn Display, reason: &dyn Display) {
        self.is_nameless = true;
        self.reject(place, reason);
    }

    /// A name occurs twice, so that nothing of the response counts (B1.14, B2.12).
    pub(super) fn reject_duplicate(&mut self, name: &str) {
        self.is_duplicate = true;
        self.reject(&format_args!("{name:?}"), &"the name is in the response twice");
    }

    /// An error that the server has sent in place of a resource is rejected. It is no resource, and is not counted as one.
    pub(super) fn reject_error(&mut self, place: &dyn Display, reason: &dyn Display) {
        self.add(place, reason);
    }

    /// An error without a name is rejected, which may be that of any name that waits.
    pub(super) fn reject_nameless_error(&mut self, place: &dyn Display, reason: &dyn Display) {
        self.is_nameless = true;
        self.add(place, reason);
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether the response is rejected as a whole.
    pub(super) fn is_duplicate(&self) -> bool {
        self.is_duplicate
    }

    /// Whether the response has something without a name.
    pub(super) fn is_nameless(&self) -> bool {
        self.is_nameless
    }

    /// Whether names are concerned that are not known.
    pub(super) fn is_unattributed(&self) -> bool {
        self.is_duplicate || self.is_nameless
    }

    pub(super) fn problems(&self) -> &str {
        &self.problems
    }

    /// The number of resources so far.
    pub(super) fn received(&self) -> ReceivedCounts {
        self.received
    }

    /// The error of the NACK, at most 4 KiB, cut between characters (B0.9); empty for an ACK.
    pub(super) fn take_error(&mut self) -> String {
        let mut error = std::mem::take(&mut self.problems);
        if error.len() > LONGEST_ERROR {
            let end = (0..=LONGEST_ERROR - CUT.len()).rev().find(|end| error.is_char_boundary(*end));
            error.truncate(end.unwrap_or(0));
            error.push_str(CUT);
        }
        error
    }

    /// Adds a problem. Texts of the server are escaped, since the error goes to logs.
    fn add(&mut self, place: &dyn Display, reason: &dyn Display) {
        // One bad resource more makes no difference to an error that is truncated anyway.
        if self.problems.len() <= LONGEST_ERROR {
            let glue = if self.problems.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(self.problems, "{glue}{}: {}", Escaped(place), Escaped(reason));
        }
    }
}

/// The longest error in a NACK, in bytes.
const LONGEST_ERROR: usize = 4096;

/// The end of an error that was cut.
const CUT: &str = "...(truncated)";
