//! From a response to changes of entries, slice by slice, so that no step takes long.
//!
//! ```text
//!  Locate ── all names are read ──▶ Apply ── compared, parsed ──▶ Finish ── absence, answer
//!     │  │                            ▲                             ▲
//!     │  └─ Review ─▶ Held ─ decided ─┘                             │
//!     └───────────── a name is in the response twice ───────────────┘
//! ```
//!
//! | phase | modules | changes |
//! |---|---|---|
//! | locate | `locate`, `unchanged`, `aliases`, `globs` | the marks of subscriptions; afterwards, groups return to the server (A71-5) |
//! | review | `reviewer`, `review` | nothing: what would change is proposed to the consumers of the type, if there are any |
//! | apply | `apply`, `unchanged`, `heartbeats`, `globs`, `left_out` | entries, versions, times to live |
//! | finish | `absence`, `rejected`, `finish` | what is missing or rejected as a whole; the answer |
//!
//! Each module works on a [`PendingResponse`], on the [`Feed`] of its server and type, and on the store. Between two steps
//! anything may change: subscriptions may end, and slots be used again. So a subscription is used only while it is marked
//! with the number of the response.
//!
//! A response is parsed in steps so that a large one does not delay the timers and the other streams; the shell calls again
//! as long as [`next_timeout`](Ingest::next_timeout) is in the past. Responses are applied one after the other in the order
//! of their arrival, across servers, which keeps the order of an aggregated stream (B3.2). A response that waits for the
//! consumers of its type lets those of other types pass, and none of its own type.

mod absence;
mod aliases;
mod apply;
mod feed;
mod finish;
mod globs;
mod heartbeats;
mod initial;
mod left_out;
mod locate;
mod located;
mod order_predictor;
mod pending_response;
mod rejected;
mod review;
mod reviewer;
mod unchanged;
mod verdict;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Instant,
};

#[cfg(any(test, feature = "client"))]
pub(crate) use self::initial::check_initial_resources;
pub(super) use self::review::{Decision, Proposal, ProposedChange};
use self::{
    apply::Applier,
    feed::Feed,
    locate::Locator,
    pending_response::{PendingResponse, Stage},
    reviewer::Reviewer,
};
use super::{authorities::Authorities, counts::UpdateCounts, store::Store};
use crate::{
    config::Bootstrap,
    engine::Settings,
    escape::Escaped,
    protocol::{Envelope, ServerId, StreamId, TypeAtServer, TypeId},
    resource::Context,
};

/// The responses in progress, and those that wait, in their order.
#[derive(Debug)]
pub(super) struct Ingest {
    /// The first one is the one that is worked on.
    pending: VecDeque<PendingResponse>,
    /// The types with consumers that decide on responses before they are applied.
    reviewed: BTreeSet<TypeId>,
    /// The responses that wait for consumers: one of a type, from whichever server.
    held: BTreeMap<TypeId, PendingResponse>,
    /// What the consumers of a held response are asked, until it is taken.
    proposal: Option<Proposal>,
    parser: ParserSettings,
    work: WorkCounters,
    /// The numbers of valid and invalid resources, for metrics.
    updates: UpdateCounts,
}

/// The context for parsing resources.
#[derive(Debug)]
struct ParserSettings {
    /// Servers, services and providers that resources may name.
    bootstrap: Arc<Bootstrap>,
    /// Registered extensions, limits, and whether config sources are followed.
    settings: Arc<Settings>,
    /// Certificate provider instances that resources may name.
    providers: BTreeSet<String>,
}

/// Counts of the work, for tests and benches of the work per response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorkCounters {
    /// Responses that were applied.
    pub(crate) responses: u64,
    /// Resources that were parsed.
    pub(crate) parsed: u64,
    /// Resources with the same bytes as the held ones, so that they were not parsed.
    pub(crate) unchanged: u64,
}

/// One step on one response: it routes the phases, whose rules are in the modules below.
struct Step<'a> {
    /// The response, which keeps its place between steps.
    response: &'a mut PendingResponse,
    /// Its server and type.
    feed: Feed<'a>,
    store: &'a mut Store,
    parser: &'a ParserSettings,
    work: &'a mut WorkCounters,
    updates: &'a mut UpdateCounts,
    /// Whether consumers decide on the response before it is applied.
    is_reviewed: bool,
}

impl Ingest {
    pub(super) fn new(bootstrap: Arc<Bootstrap>, settings: Arc<Settings>) -> Self {
        Self {
            pending: VecDeque::new(),
            reviewed: BTreeSet::new(),
            held: BTreeMap::new(),
            proposal: None,
            parser: ParserSettings::new(bootstrap, settings),
            work: WorkCounters::default(),
            updates: UpdateCounts::default(),
        }
    }

    /// Adds a received response. True when it is the only one, so that it can be worked on at once.
    pub(super) fn push(&mut self, stream: StreamId, ty: TypeId, envelope: Envelope, now: Instant) -> bool {
        self.pending.push_back(PendingResponse::new(stream, ty, envelope, now));
        self.pending.len() == 1
    }

    /// Sets whether the responses of a type are decided on by consumers. A response in progress stays as it is.
    pub(super) fn set_reviewed(&mut self, ty: TypeId, is_reviewed: bool) {
        match is_reviewed {
            true => self.reviewed.insert(ty),
            false => self.reviewed.remove(&ty),
        };
    }

    /// What the consumers of a response are asked that is held since the last step. They are to decide by
    /// [`resume`](Self::resume).
    pub(super) fn take_proposal(&mut self) -> Option<Proposal> {
        self.proposal.take()
    }

    /// The consumers of held responses have decided: these are the next ones to be applied.
    pub(super) fn resume(&mut self, decided: Vec<(TypeId, Decision)>, now: Instant) {
        for (ty, decision) in decided {
            if let Some(mut response) = self.held.remove(&ty) {
                response.on_decided(decision, now);
                self.pending.push_front(response);
            }
        }
    }

    /// Whether a response of a type is being applied, or waits for that, and not for consumers. While any response is being applied,
    /// changes of all types may be unpublished.
    pub(super) fn is_busy_with_type(&self, ty: TypeId) -> bool {
        self.is_in_progress() || !self.is_held(ty) && self.pending.iter().any(|response| response.ty() == ty)
    }

    /// Whether a response of a type waits for consumers.
    pub(super) fn is_held(&self, ty: TypeId) -> bool {
        self.held.contains_key(&ty)
    }

    /// Works on the oldest response for a while; gives the span of its logs. A timeout may be for something else than a
    /// response, and then there is none.
    pub(super) fn work(
        &mut self,
        authorities: &mut Authorities,
        store: &mut Store,
        now: Instant,
    ) -> Option<tracing::Span> {
        let next = self.next_index()?;
        let mut response = self.pending.remove(next)?;
        let Self { parser, work, updates, reviewed, .. } = self;
        if !response.has_begun() {
            work.responses += 1;
            response.number = work.responses;
            response.span = span(&response, authorities);
        }
        // The effects of the step are routed in the same span, after this call.
        let span = response.span.clone();
        let within = span.enter();
        let at = TypeAtServer { server: response.server(), ty: response.ty() };
        match Feed::new(authorities, at, now) {
            Some(feed) => {
                let is_reviewed = reviewed.contains(&at.ty);
                Step { response: &mut response, feed, store, parser, work, updates, is_reviewed }.run();
            }
            // There is nobody to answer.
            None => response.stage = Stage::Done,
        }
        drop(within);
        self.put_back(response, authorities, now);
        Some(span)
    }

    /// The response to work on: the oldest one that none of its type goes before.
    fn next_index(&self) -> Option<usize> {
        self.pending.iter().position(|response| !self.is_held(response.ty()))
    }

    /// Keeps a response for its next step, or for the decision of its consumers. Behind one that is done, the next of its type at
    /// the server has its turn.
    fn put_back(&mut self, mut response: PendingResponse, authorities: &mut Authorities, now: Instant) {
        let at = TypeAtServer { server: response.server(), ty: response.ty() };
        match response.stage {
            Stage::Done => {
                if let Some((stream, envelope)) = authorities.next_waiting(at, now) {
                    self.pending.push_back(PendingResponse::new(stream, at.ty, envelope, now));
                }
            }
            Stage::Held => {
                let changes = std::mem::take(&mut response.review.changes);
                let channel = authorities.server(at.server).machine.channel(at.ty);
                let type_url = channel.map_or("", |channel| channel.type_url);
                self.proposal = Some(Proposal { ty: at.ty, type_url, changes });
                self.held.insert(at.ty, response);
            }
            Stage::Locate(_) | Stage::Review(_) | Stage::Apply(_) | Stage::Finish => {
                self.pending.push_front(response);
            }
        }
    }

    /// Whether a response was worked on and is not concluded.
    pub(super) fn is_in_progress(&self) -> bool {
        self.next_index().is_some_and(|next| self.pending[next].has_begun())
    }

    /// Why the resolutions may not show the accepted resources, since they wait for the end of a response.
    pub(super) fn unapplied(&self) -> Option<String> {
        self.is_in_progress().then(|| "a response is being applied".to_owned())
    }

    /// Whether no response is being worked on, or waits for that. Those that wait for consumers do not count.
    pub(super) fn is_empty(&self) -> bool {
        self.next_index().is_none()
    }

    /// The arrival time of the oldest response.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.next_index().map(|next| self.pending[next].since())
    }

    /// Whether a response of a server is being worked on, or waits for that.
    pub(super) fn has_response_of(&self, server: ServerId) -> bool {
        self.pending.iter().any(|response| response.server() == server && !self.is_held(response.ty()))
    }

    /// Whether a server must not be removed: a response of it is in progress, or the counts of its resources are not read yet.
    pub(super) fn is_busy_with(&self, server: ServerId) -> bool {
        let mut all = self.pending.iter().chain(self.held.values());
        all.any(|response| response.server() == server) || self.updates.has_unread_of(server)
    }

    /// Whether a response of a type of a server is being worked on, or waits for that.
    pub(super) fn has_response_of_type(&self, of: TypeAtServer) -> bool {
        let is_of = |response: &PendingResponse| response.server() == of.server && response.ty() == of.ty;
        !self.is_held(of.ty) && self.pending.iter().any(is_of)
    }

    /// The counts of the work.
    #[cfg(test)]
    pub(super) fn work_counters(&self) -> WorkCounters {
        self.work
    }

    pub(super) fn updates(&mut self) -> &mut UpdateCounts {
        &mut self.updates
    }

    /// The context for parsing the resources of a server, by whether it is trusted.
    #[cfg(test)]
    pub(super) fn context(&self, trusted: bool) -> Context<'_> {
        self.parser.context(trusted)
    }
}

impl ParserSettings {
    fn new(bootstrap: Arc<Bootstrap>, settings: Arc<Settings>) -> Self {
        let known = bootstrap.certificate_providers().iter().filter(|(_, provider)| provider.is_known());
        let providers = known.map(|(name, _)| name.clone()).collect();
        Self { bootstrap, settings, providers }
    }

    /// The context for parsing a resource of a server; the caller adds the peer, the name and the time to live.
    fn context(&self, trusted: bool) -> Context<'_> {
        let named_servers = self.settings.follow_config_sources.then(|| self.bootstrap.named_servers());
        Context::new()
            .with_certificate_providers(&self.providers)
            .with_allowed_grpc_services(self.bootstrap.allowed_grpc_services())
            .with_registry(&self.settings.registry)
            .with_named_servers(named_servers)
            .with_file_root(self.settings.config_source_root.as_ref())
            .with_regex_limits(self.settings.regex_limits)
            .with_trusted_server(trusted)
    }
}

impl<'f> Step<'f> {
    /// Continues the response where the last step has ended. The last phase is in the same step as the end of the second one, so
    /// that a response without resources takes one step.
    fn run(mut self) {
        self.response.is_late = self.feed.machine().is_late(self.response.ty, self.response.stream);
        match self.response.stage {
            Stage::Locate(from) => self.locate(from),
            Stage::Review(from) => self.review(from),
            Stage::Apply(from) => self.applier().apply(from),
            Stage::Held | Stage::Finish | Stage::Done => {}
        }
        if self.response.stage == Stage::Finish {
            self.finish();
        }
    }

    /// Reads names. Behind the last one, groups may return to the server of the response.
    fn locate(&mut self, from: usize) {
        if from == 0 {
            self.feed.expect_order();
        }
        let mut locator = Locator { response: self.response, feed: &mut self.feed, store: self.store };
        locator.locate(from);
        if locator.response.stage == Stage::Apply(0) {
            // Before anything is applied: what a server above the active one sends counts only once that one is active again.
            for group in locator.returning() {
                self.feed.revert_to_primary(self.store, group, self.response.number);
            }
            if self.is_reviewed {
                self.response.stage = Stage::Review(0);
            }
        }
    }

    /// Finds out what the response would change. If it changes anything, it is held, and its server may go on with other types.
    fn review(&mut self, from: usize) {
        Reviewer { applier: self.applier() }.review(from);
        if self.response.stage == Stage::Held {
            let (ty, stream) = (self.response.ty, self.response.stream);
            self.feed.machine_mut().hold(ty, stream);
            self.feed.drain_events(self.store);
        }
    }

    /// The second phase, with the parts of the step that it needs.
    fn applier(&mut self) -> Applier<'_, 'f> {
        let Self { response, feed, store, parser, work, .. } = self;
        Applier { response, feed, store, parser, work }
    }

    /// Looks for what is missing, answers the server, and ends the response. Of a response with a duplicate nothing counts but
    /// the rejection.
    fn finish(mut self) {
        if !self.response.verdict.is_duplicate() {
            self.applier().apply_errors();
            let Self { response, feed, store, .. } = &mut self;
            finish::find_narrow(response, feed, store);
            absence::apply(response, feed, store);
            finish::complete(response, feed, store);
            finish::end_initial(response, feed, store);
        }
        let Self { response, mut feed, store, updates, .. } = self;
        // AP6: a removal is in effect whatever its consumers say, and the server gets to know.
        for (name, reason) in response.review.take_rejections() {
            response.verdict.reject_error(&format_args!("{name:?}"), &reason);
        }
        rejected::reject_unattributed(response, &mut feed, store);
        let is_accepted = response.verdict.is_accepted();
        updates.add(feed.at(), finish::conclude(response, &mut feed, store));
        feed.note_applied(response.arrived_at(), is_accepted);
        response.stage = Stage::Done;
    }
}

/// The log events of a response are in this span, however many steps it takes.
fn span(response: &PendingResponse, authorities: &Authorities) -> tracing::Span {
    let server = authorities.server(response.server()).machine.source();
    let (type_url, nonce) = (response.envelope.type_url(), response.envelope.nonce());
    tracing::debug_span!("response", %server, type_url, version = %Escaped(&response.version), nonce)
}
