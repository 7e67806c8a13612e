//! The router of one plugin.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{LookupSource, request::look_up};
use crate::{
    background::supervise,
    balance::{
        route_lookup::{Answer, Decision, LookupId, LookupKey, Lookups},
        routes::LookupPlugin,
    },
    channel::{
        Channel, ChannelClusterSubscription, ChannelState, StateWatch, task::Control, telemetry::CacheUsage,
    },
    resolve::RouteQuery,
    resource::route_lookup::RouteLookup,
};

/// The state of a plugin, with its lookups under way. Dropping it cancels them, and lets go of the targets.
pub(in crate::channel) struct LookupRouter {
    host: Arc<str>,
    source: Arc<LookupSource>,
    /// What calls read without the lock.
    current: ArcSwap<Current>,
    state: Mutex<State>,
    /// Notified when calls that have failed may succeed.
    is_ready: Notify,
}

/// What a call does.
pub(in crate::channel) enum Routing {
    /// The call is sent to one of the targets.
    Targets(Arc<Answer>),
    /// The call is sent to the default target.
    Default(Arc<str>),
    /// The call waits until the sender is gone, and decides again.
    Wait(watch::Receiver<()>),
    /// The call fails for the reason, or decides again at the time.
    Fail { reason: Arc<str>, retry_at: Instant },
}

/// What operators see of a router.
pub(in crate::channel) struct RouterState {
    pub(in crate::channel) service: Arc<str>,
    /// The entries of the cache.
    pub(in crate::channel) entries: usize,
    /// Their size in bytes.
    pub(in crate::channel) bytes: usize,
    /// The lookups under way.
    pub(in crate::channel) pending: usize,
    /// The channel to the lookup service, or the reason why there is none.
    pub(in crate::channel) channel: Result<Channel, Arc<str>>,
}

struct Current {
    config: Arc<RouteLookup>,
    /// The lookup service of the configuration.
    service: Arc<str>,
}

struct State {
    lookups: Lookups,
    /// The size of the cache, for metrics.
    usage: Arc<CacheUsage>,
    /// The channel to the lookup service, or the reason why there is none.
    channel: Result<Channel, Arc<str>>,
    /// The ends of the lookups under way.
    ends: BTreeMap<LookupId, watch::Receiver<()>>,
    /// Keeps the targets in the channel.
    targets: BTreeMap<Arc<str>, ChannelClusterSubscription>,
    /// Lookups, which a drop ends.
    tasks: JoinSet<()>,
    /// The watch of the channel, and the removal of expired responses.
    upkeep: JoinSet<()>,
}

/// Ends a lookup when it is dropped, whatever has become of its task.
struct LookupEnd {
    router: Weak<LookupRouter>,
    id: LookupId,
    /// Wakes the calls, after the result was handled.
    _waits: watch::Sender<()>,
}

impl LookupRouter {
    pub(super) fn start(plugin: LookupPlugin, source: Arc<LookupSource>) -> Arc<Self> {
        let channel = (source.connect)(&plugin.config.lookup_service).map_err(Into::into);
        let current = Current::new(plugin.config.clone());
        let usage = source.observe_cache(&current.service);
        let state = State {
            lookups: Lookups::new(plugin.config, source.limits, fastrand::u64(..)),
            usage,
            channel,
            ends: BTreeMap::new(),
            targets: BTreeMap::new(),
            tasks: JoinSet::new(),
            upkeep: JoinSet::new(),
        };
        let (state, is_ready) = (Mutex::new(state), Notify::new());
        let current = ArcSwap::from_pointee(current);
        let router = Arc::new(Self { host: plugin.host, source, current, state, is_ready });
        let mut state = router.lock();
        router.begin_upkeep(&mut state);
        // The default target is known without a lookup.
        router.execute(&mut state);
        drop(state);
        router
    }

    /// Whether keys are made for this host.
    pub(super) fn is_for_host(&self, host: &str) -> bool {
        *self.host == *host
    }

    /// Replaces the configuration.
    pub(super) fn update(self: &Arc<Self>, config: Arc<RouteLookup>) {
        let mut state = self.lock();
        if *state.lookups.config() == config {
            return;
        }
        let current = Current::new(config.clone());
        let service = current.service.clone();
        self.current.store(Arc::new(current));
        if state.lookups.update(config, now()) {
            // Lookups under way end on the channel before, which they keep.
            state.channel = (self.source.connect)(&service).map_err(Into::into);
            state.usage = self.source.observe_cache(&service);
            self.begin_upkeep(&mut state);
        }
        self.execute(&mut state);
        drop(state);
        self.is_ready.notify_waiters();
    }

    /// Decides about a call.
    pub(in crate::channel) fn decide(self: &Arc<Self>, query: &RouteQuery<'_>) -> Routing {
        // Keys are built without the lock.
        let current = self.current.load();
        let mut key = LookupKey::new(&current.config, &self.host, query);
        let mut state = self.lock();
        let newest = state.lookups.config();
        if !Arc::ptr_eq(&current.config, newest) {
            // An update has come in between, and may have other key builders.
            key = LookupKey::new(newest, &self.host, query);
        }
        let decision = state.lookups.decide(&key, now());
        self.execute(&mut state);
        match decision {
            Decision::Route(answer) => Routing::Targets(answer),
            Decision::Default(target) => Routing::Default(target),
            // Without an end it has ended already, and its sender is gone.
            Decision::Wait(id) => {
                Routing::Wait(state.ends.get(&id).cloned().unwrap_or_else(|| watch::channel(()).1))
            }
            Decision::Fail { reason, retry_at } => {
                Routing::Fail { reason, retry_at: Instant::from_std(retry_at) }
            }
        }
    }

    /// The lookup service.
    pub(in crate::channel) fn service(&self) -> Arc<str> {
        self.current.load().service.clone()
    }

    /// What the router is doing.
    pub(in crate::channel) fn state(&self) -> RouterState {
        let state = self.lock();
        let (entries, bytes) = state.lookups.usage();
        let (pending, channel) = (state.lookups.pending(), state.channel.clone());
        RouterState { service: self.service(), entries, bytes, pending, channel }
    }

    /// Whether the channel has subscribed to a target.
    pub(in crate::channel) fn has_target(&self, target: &str) -> bool {
        self.lock().targets.contains_key(target)
    }

    /// Waits until a call that has failed may succeed: for the time, or for a change.
    pub(in crate::channel) async fn retry(&self, at: Instant) {
        tokio::select! {
            () = sleep_until(at) => {}
            () = self.is_ready.notified() => {}
        }
    }

    /// Begins the lookups that are due, and subscribes to other targets.
    fn execute(self: &Arc<Self>, state: &mut State) {
        // Tasks that have ended.
        while state.tasks.try_join_next().is_some() {}
        while let Some(lookup) = state.lookups.poll_lookup() {
            let (sender, end) = watch::channel(());
            state.ends.insert(lookup.id, end);
            let end = LookupEnd { router: Arc::downgrade(self), id: lookup.id, _waits: sender };
            let (channel, timeout) = (state.channel.clone(), state.lookups.config().lookup_service_timeout);
            let limits = self.source.limits;
            let task = async move {
                let result = match channel {
                    Ok(channel) => look_up(channel, &lookup, timeout, &limits).await,
                    Err(reason) => Err(reason),
                };
                end.handle(result);
            };
            state.tasks.spawn_on(supervise("route lookup", task, |_| {}), &self.source.runtime);
        }
        let (entries, bytes) = state.lookups.usage();
        state.usage.set(entries, bytes);
        if let Some(targets) = state.lookups.poll_targets() {
            state.targets.retain(|name, _| targets.contains(name));
            for name in targets {
                let control = &self.source.control;
                state.targets.entry(name).or_insert_with_key(|name| {
                    if let Some(control) = control.upgrade() {
                        // The end of the channel is its shutdown, after which there are no calls.
                        let _ = control.send(Control::Subscribe(name.clone()));
                    }
                    ChannelClusterSubscription { name: name.clone(), control: control.clone() }
                });
            }
        }
    }

    /// Watches the channel to the lookup service, instead of the one before.
    fn begin_upkeep(self: &Arc<Self>, state: &mut State) {
        let states = state.channel.as_ref().ok().map(Channel::watch_state);
        let upkeep = upkeep(Arc::downgrade(self), states);
        state.upkeep = JoinSet::new();
        state.upkeep.spawn_on(supervise("upkeep of route lookup", upkeep, |_| {}), &self.source.runtime);
    }

    /// The lookup service can be reached again (RL4).
    fn handle_ready(self: &Arc<Self>) {
        let mut state = self.lock();
        state.lookups.handle_ready();
        self.execute(&mut state);
        drop(state);
        self.is_ready.notify_waiters();
    }

    /// Removes expired responses, if that is due.
    fn handle_timeout(self: &Arc<Self>) {
        let mut state = self.lock();
        state.lookups.handle_timeout(now());
        self.execute(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn new(config: Arc<RouteLookup>) -> Self {
        Self { service: (&*config.lookup_service).into(), config }
    }
}

impl LookupEnd {
    /// Handles the result of the lookup. A second one is ignored.
    fn handle(&self, result: Result<Answer, Arc<str>>) {
        let Some(router) = self.router.upgrade() else { return };
        let mut state = router.lock();
        state.lookups.handle_result(self.id, result, now());
        state.ends.remove(&self.id);
        router.execute(&mut state);
    }
}

impl Drop for LookupEnd {
    fn drop(&mut self) {
        self.handle(Err("the lookup was cancelled".into()));
    }
}

impl fmt::Debug for LookupRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupRouter").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Ends backoffs when the lookup service can be reached again, and removes expired responses, until the router is gone.
async fn upkeep(router: Weak<LookupRouter>, mut states: Option<StateWatch>) {
    let mut has_failed = false;
    let mut due = Instant::now() + INTERVAL;
    loop {
        tokio::select! {
            state = next(&mut states) => match state {
                Some(ChannelState::TransientFailure) => has_failed = true,
                Some(ChannelState::Ready) => {
                    let Some(router) = router.upgrade() else { return };
                    if std::mem::take(&mut has_failed) {
                        router.handle_ready();
                    }
                }
                Some(ChannelState::Idle | ChannelState::Connecting) => {}
                Some(ChannelState::Shutdown) | None => states = None,
            },
            () = sleep_until(due) => {
                let Some(router) = router.upgrade() else { return };
                router.handle_timeout();
                due = Instant::now() + INTERVAL;
            }
        }
    }
}

/// The next state of a channel; waits for ever without a channel.
async fn next(states: &mut Option<StateWatch>) -> Option<ChannelState> {
    match states {
        Some(states) => states.next().await,
        None => std::future::pending().await,
    }
}

/// The time of the core, which tests can pause.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// The time between checks for expired responses.
const INTERVAL: Duration = Duration::from_secs(30);
