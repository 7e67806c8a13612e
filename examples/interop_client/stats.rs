//! Where calls went, and how they ended.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};
use tonic::{Code, metadata::KeyAndValueRef, metadata::MetadataMap};

use super::messages::{
    LoadBalancerAccumulatedStatsResponse, LoadBalancerStatsRequest, LoadBalancerStatsResponse, MetadataEntry,
    MetadataType, MethodStats, RpcMetadata, RpcType,
};

/// All counts, and the requests for the distribution of calls that are under way.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    accumulated: LoadBalancerAccumulatedStatsResponse,
    last_watcher: u64,
    watchers: BTreeMap<u64, Watcher>,
}

/// A request for the distribution of the next calls.
#[derive(Debug)]
struct Watcher {
    request: LoadBalancerStatsRequest,
    /// The calls that may still begin.
    to_begin: i32,
    /// The calls that have not ended.
    to_end: i32,
    response: LoadBalancerStatsResponse,
    is_complete: Option<oneshot::Sender<()>>,
}

/// A call that has begun.
#[derive(Debug)]
#[must_use = "a call that does not end is missing in the counts"]
pub(crate) struct Begun {
    method: RpcType,
    watchers: Vec<u64>,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Code,
    pub(crate) is_success: bool,
    /// The name of the backend, if it is known.
    pub(crate) hostname: Option<String>,
    pub(crate) headers: MetadataMap,
    pub(crate) trailers: MetadataMap,
}

impl Stats {
    pub(crate) fn begin(&self, method: RpcType) -> Begun {
        let mut state = self.lock();
        let name = method.type_name();
        add_1(&mut state.accumulated.num_rpcs_started_by_method, name);
        state.of_method(method).rpcs_started += 1;
        let mut watchers = Vec::new();
        for (id, watcher) in state.watchers.iter_mut().filter(|(_, it)| it.to_begin > 0) {
            watcher.to_begin -= 1;
            watchers.push(*id);
        }
        Begun { method, watchers }
    }

    pub(crate) fn end(&self, Begun { method, watchers }: Begun, outcome: &Outcome) {
        let mut state = self.lock();
        let accumulated = &mut state.accumulated;
        let counts = if outcome.is_success {
            &mut accumulated.num_rpcs_succeeded_by_method
        } else {
            &mut accumulated.num_rpcs_failed_by_method
        };
        add_1(counts, method.type_name());
        *state.of_method(method).result.entry(outcome.code.into()).or_default() += 1;
        for id in watchers {
            // One that is missing did not wait so long.
            if let Some(watcher) = state.watchers.get_mut(&id) {
                watcher.end(method, outcome);
            }
        }
    }

    /// Waits until as many calls as requested have begun and ended, up to the timeout of the request.
    pub(crate) async fn distribution(&self, request: LoadBalancerStatsRequest) -> LoadBalancerStatsResponse {
        let limit = Duration::from_secs(request.timeout_sec.try_into().unwrap_or(0));
        let (is_complete, complete) = oneshot::channel();
        let id = {
            let mut state = self.lock();
            state.last_watcher += 1;
            let id = state.last_watcher;
            state.watchers.insert(id, Watcher::new(request, is_complete));
            id
        };
        // The request may be cancelled meanwhile.
        let guard = Registered { stats: self, id };
        // What is there after the timeout is the response.
        let _ = timeout(limit, complete).await;
        let watcher = self.lock().watchers.remove(&guard.id);
        watcher.map(Watcher::into_response).unwrap_or_default()
    }

    pub(crate) fn accumulated(&self) -> LoadBalancerAccumulatedStatsResponse {
        self.lock().accumulated.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of_method(&mut self, method: RpcType) -> &mut MethodStats {
        self.accumulated.stats_per_method.entry(method.type_name().to_owned()).or_default()
    }
}

/// Removes a watcher when its request is over.
struct Registered<'a> {
    stats: &'a Stats,
    id: u64,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.stats.lock().watchers.remove(&self.id);
    }
}

impl Watcher {
    fn new(request: LoadBalancerStatsRequest, is_complete: oneshot::Sender<()>) -> Self {
        let calls = request.num_rpcs.max(0);
        let response = LoadBalancerStatsResponse::default();
        let is_complete = (calls > 0).then_some(is_complete);
        Self { request, to_begin: calls, to_end: calls, response, is_complete }
    }

    fn end(&mut self, method: RpcType, outcome: &Outcome) {
        self.to_end -= 1;
        match &outcome.hostname {
            Some(hostname) if outcome.is_success => {
                let response = &mut self.response;
                add_1(&mut response.rpcs_by_peer, hostname);
                let of_method = response.rpcs_by_method.entry(method.method().to_owned()).or_default();
                add_1(&mut of_method.rpcs_by_peer, hostname);
                let metadata = selected(&self.request.metadata_keys, outcome);
                let of_peer = self.response.metadatas_by_peer.entry(hostname.clone()).or_default();
                of_peer.rpc_metadata.push(RpcMetadata { metadata });
            }
            Some(_) | None => self.response.num_failures += 1,
        }
        if self.to_end == 0 {
            self.is_complete.take();
        }
    }

    /// Calls that have not ended are failures.
    fn into_response(self) -> LoadBalancerStatsResponse {
        let num_failures = self.response.num_failures + self.to_end;
        LoadBalancerStatsResponse { num_failures, ..self.response }
    }
}

/// The requested metadata of a response. Keys are compared without their case; here they are in lower case.
fn selected(keys: &[String], outcome: &Outcome) -> Vec<MetadataEntry> {
    let mut entries = Vec::new();
    for (metadata, r#type) in
        [(&outcome.headers, MetadataType::Initial), (&outcome.trailers, MetadataType::Trailing)]
    {
        for entry in metadata.iter() {
            let (key, value) = match entry {
                KeyAndValueRef::Ascii(key, value) => (key.as_str(), value.as_encoded_bytes()),
                KeyAndValueRef::Binary(key, value) => (key.as_str(), value.as_encoded_bytes()),
            };
            if keys.iter().any(|wanted| wanted == "*" || wanted.eq_ignore_ascii_case(key)) {
                let value = String::from_utf8_lossy(value).into_owned();
                entries.push(MetadataEntry { key: key.to_owned(), value, r#type: r#type.into() });
            }
        }
    }
    entries
}

fn add_1(counts: &mut BTreeMap<String, i32>, key: &str) {
    match counts.get_mut(key) {
        Some(count) => *count += 1,
        None => drop(counts.insert(key.to_owned(), 1)),
    }
}
