//! The protocol with one management server, without I/O: streams, versions, nonces, requests, answers, timers.
//!
//! A [`Machine`] is told what happened (`handle_*`) and what is wanted (`subscribe`, `unsubscribe`), and yields orders
//! (`poll_output`), what others must know (`poll_event`), and when it wants to be called next (`next_timeout`). Each
//! mutation is followed by polling until `None`. It knows names, not resources: what a response holds is judged outside,
//! and the verdict comes back as `conclude`.
//!
//! ```text
//!   subscribe ──▶ interest ──▶ pace ──▶ request ──▶ Send … RequestSent ──▶ does-not-exist timers
//!                    ▲                     ▲
//!   Received ──▶ envelope ──▶ (judged) ──▶ conclude: ACK or NACK
//! ```
//!
//! Variants of the protocol are structs with the same verbs; the machine routes to them and holds no rule itself.

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
