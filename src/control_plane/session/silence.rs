//! The silence of a session after a NACK.

/// Whether a session sends nothing after a NACK; see [`AfterNack::Silence`](super::AfterNack::Silence).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Silence {
    /// Whether the last request was a NACK, and nothing has changed since.
    is_on: bool,
    /// The state of the resources at the last call.
    state: u64,
}

impl Silence {
    /// Handles a request; a NACK begins the silence, any other ends it.
    pub(super) fn on_request(&mut self, is_silencing: bool) {
        self.is_on = is_silencing;
    }

    /// Whether nothing is sent in this state of the resources, a number that grows with each change.
    pub(super) fn holds(&mut self, state: u64) -> bool {
        let before = std::mem::replace(&mut self.state, state);
        self.is_on &= before == state;
        self.is_on
    }
}
