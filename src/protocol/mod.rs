//! The protocol with one management server, without I/O: streams, versions, nonces, requests, answers, timers.
//!
//! A [`Machine`] is driven by the events of its streams (`handle_event`), timers (`handle_timeout`) and subscriptions
//! (`subscribe`, `unsubscribe`), and yields commands for the transport (`poll_command`), events for its owner (`poll_event`), and its next deadline (`next_timeout`). Each mutation is
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
mod burst;
mod channel;
mod channels;
mod crossed;
mod delta;
mod digests;
mod envelope;
mod event;
mod id;
mod intake;
mod machine;
mod node;
mod phase;
mod poll;
mod quarantine;
mod recent_unsubscribes;
mod rejections;
mod request;
mod request_batcher;
mod sent_names;
mod settings;
mod sotw;
mod source_key;
mod stream;
mod stream_command;
mod stream_event;
mod subscription;
mod subscriptions;
mod timers;
mod traffic;
mod variant;

#[cfg(any(test, feature = "client", feature = "fuzzing"))]
pub(crate) use self::source_key::ConnectTarget;
pub(crate) use self::{
    channel::Channel,
    digests::Digests,
    envelope::{Body, Envelope, Item, ServerError, Span, Unusable},
    event::{Event, ResponseOutcome, Timer},
    id::{EntryId, GroupId, NamedType, ServerId, StreamId, TypeAtServer, TypeId, TypeInGroup},
    machine::{Client, Machine},
    node::encode as encode_node,
    settings::Settings,
    source_key::SourceKey,
    stream_command::StreamCommand,
    stream_event::StreamEvent,
    subscription::{Extent, Subscription},
    subscriptions::{SubId, Subscriptions},
    traffic::{Messages, RequestKind, StreamEnd, Traffic},
};
pub use self::{
    stream::ConnectionState,
    stream_event::{Disconnect, DisconnectKind},
};
