use std::{collections::VecDeque, mem};

use super::{envelope::Envelope, id::StreamId};

/// The responses of one type: the one that is handed out, and those that have arrived since.
///
/// ```text
///            handed out                 held
///   Idle ─────────────────▶ Handed out ──────▶ Held: other types of the stream go on
///     ▲                         │               │
///     └──────── concluded ──────┴───────────────┘   then the next one that waits is handed out
/// ```
///
/// At most one response of a type is handed out at a time. What arrives meanwhile waits unread, so that for the protocol it arrives when
/// it is handed out: a response is answered before the next one of its type begins, whatever the variant.
#[derive(Debug, Default)]
pub(super) struct Intake {
    state: State,
    /// The responses that have arrived behind it, with the streams that they came on, in their order.
    waiting: VecDeque<(StreamId, Envelope)>,
    /// The credit for the message behind the response was given when it was held, or began to wait.
    has_read_on: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// A response is being applied, which takes no time.
    HandedOut,
    /// A response waits for its consumers, which may take long.
    Held,
}

impl Intake {
    /// Whether a response is handed out, and not concluded.
    pub(super) fn is_busy(&self) -> bool {
        self.state != State::Idle
    }

    /// Whether a response waits for its consumers.
    pub(super) fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// A response is handed out.
    pub(super) fn on_handed_out(&mut self) {
        self.state = State::HandedOut;
    }

    /// The response waits for its consumers. True when another message is to be read behind it: `reads_on` is whether the stream
    /// carries other types, which must not wait.
    pub(super) fn hold(&mut self, reads_on: bool) -> bool {
        self.state = State::Held;
        reads_on && !mem::replace(&mut self.has_read_on, true)
    }

    /// The response is concluded. True when the credit for the next message is still to be given.
    pub(super) fn conclude(&mut self) -> bool {
        self.state = State::Idle;
        !mem::take(&mut self.has_read_on)
    }

    /// A response has arrived behind the one that is handed out.
    pub(super) fn push(&mut self, stream: StreamId, envelope: Envelope) {
        self.waiting.push_back((stream, envelope));
    }

    /// The next response that waits, unless another one is handed out. Its credit was given when it began to wait.
    pub(super) fn pop(&mut self) -> Option<(StreamId, Envelope)> {
        if self.is_busy() {
            return None;
        }
        let next = self.waiting.pop_front();
        if next.is_some() {
            self.has_read_on = true;
        } else {
            self.waiting = VecDeque::new();
        }
        next
    }

    /// The bytes of the responses that wait, with an allowance for each of them.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(|(_, envelope)| envelope.size() + ENVELOPE).sum()
    }

    /// The stream has ended. What was not handed out is sent again on the next one.
    pub(super) fn on_stream_gone(&mut self) {
        self.waiting = VecDeque::new();
    }
}

/// What a response without resources takes, in bytes.
const ENVELOPE: usize = 256;
