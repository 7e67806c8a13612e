//! The protocol with one management server, without I/O: streams, versions, nonces, requests, answers, timers.
//!
//! A [`Machine`] is driven by inputs (`handle_*`) and subscriptions (`subscribe`, `unsubscribe`), and yields orders
//! (`poll_output`), events for its owner (`poll_event`), and its next deadline (`next_timeout`). Each mutation is
//! followed by polling until `None`. It knows names, not resources: the content of a response is validated outside, and
//! the outcome is passed to `conclude`.
//!
//! ```text
//!   subscribe ──▶ subscriptions ──▶ request_batcher ──▶ request ──▶ Send … RequestSent ──▶ does-not-exist timers
//!                      ▲                                   ▲
//!   Received ──▶ envelope ──▶ (parsed) ──▶ conclude: ACK or NACK
//! ```
//!
//! Variants of the protocol are structs with the same methods; the machine routes to them and holds no rule itself.

mod aliases;
mod backoff;
mod channel;
mod crossed;
mod delta;
mod digests;
mod envelope;
mod event;
mod id;
mod input;
mod machine;
mod node;
mod output;
mod poll;
mod quarantine;
mod recent_unsubscribes;
mod rejections;
mod request;
mod request_batcher;
mod settings;
mod sotw;
mod source_key;
mod stream;
mod subscription;
mod subscriptions;
mod timers;
mod variant;

#[cfg(any(test, feature = "client", feature = "fuzzing"))]
pub(crate) use self::source_key::ConnectTarget;
pub(crate) use self::{
    backoff::Backoff,
    digests::Digests,
    envelope::{Body, Envelope, Item, Span, Unusable},
    event::{Event, ResponseOutcome, Timer},
    id::{ByWatch, EntryId, GroupId, LookupId, ServerId, StreamId, TypeId, WatchId},
    input::Input,
    machine::Machine,
    node::encode as encode_node,
    output::Output,
    settings::Settings,
    source_key::SourceKey,
    subscription::Subscription,
    subscriptions::{SubId, Subscriptions},
};
pub use self::{
    input::{Disconnect, DisconnectKind},
    settings::OnDeletion,
    stream::ConnectionState,
};
