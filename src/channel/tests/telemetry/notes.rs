//! An observer that writes down what it is told.

use std::sync::{Arc, Mutex, Weak};

use super::super::*;
use crate::{
    balance::observer::{Observation, PickLabels},
    channel::telemetry::{
        AttemptSummary, CacheUsage, CallSummary, ChannelObserver, DelayScope, DelayType, LookupTarget,
        MethodObserver, PickResult, Retried, SubchannelEvent,
    },
};

/// Writes down what it is told.
#[derive(Debug, Default)]
pub(in crate::channel::tests) struct Notes {
    pub(super) calls: Mutex<Vec<String>>,
    pub(super) connections: Mutex<Vec<String>>,
    /// Of attempts and calls, as they end.
    pub(super) durations: Mutex<Vec<Duration>>,
    /// Of delays, as they end.
    delays: Mutex<Vec<(String, Duration)>>,
    lookups: Mutex<Vec<String>>,
    /// The caches of lookup services, with these.
    caches: Mutex<Vec<(Arc<str>, Weak<CacheUsage>)>>,
}

impl Notes {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    pub(super) fn connections(&self) -> Vec<String> {
        std::mem::take(&mut self.connections.lock().unwrap())
    }

    /// The durations of the attempt and the call that have ended.
    pub(super) fn durations(&self) -> [Duration; 2] {
        let durations = std::mem::take(&mut *self.durations.lock().unwrap());
        durations.try_into().unwrap_or_else(|other| panic!("{other:?}"))
    }

    /// The delays that have ended.
    pub(in crate::channel::tests) fn delays(&self) -> Vec<(String, Duration)> {
        std::mem::take(&mut self.delays.lock().unwrap())
    }

    /// What became of calls whose clusters were looked up.
    pub(in crate::channel::tests) fn lookups(&self) -> Vec<String> {
        std::mem::take(&mut self.lookups.lock().unwrap())
    }

    /// The lookup services with the number of the entries in their caches, which are there.
    pub(in crate::channel::tests) fn caches(&self) -> Vec<(String, usize)> {
        let caches = self.caches.lock().unwrap();
        let caches = caches.iter().filter_map(|(service, usage)| Some((service, usage.upgrade()?)));
        caches.map(|(service, usage)| (service.to_string(), usage.entries())).collect()
    }

    fn write(&self, line: String) {
        self.calls.lock().unwrap().push(line);
    }
}

fn text(labels: &PickLabels) -> String {
    let [cluster, locality] =
        [&labels.backend_service, &labels.locality].map(|it| it.as_deref().unwrap_or(""));
    format!("{cluster:?} {locality}")
}

impl ChannelObserver for Arc<Notes> {
    fn method(&self, path: &str, _: bool) -> Arc<dyn MethodObserver> {
        Arc::new(NotesOfMethod { notes: self.clone(), path: path.into() })
    }

    fn on_subchannel(&self, labels: &PickLabels, event: SubchannelEvent) {
        self.connections.lock().unwrap().push(format!("{} {event:?}", text(labels)));
    }

    fn on_balance(&self, _: Observation<'_>) {}

    fn on_lookup_cache(&self, service: &Arc<str>, usage: &Arc<CacheUsage>) {
        self.caches.lock().unwrap().push((service.clone(), Arc::downgrade(usage)));
    }
}

/// What is noted of the calls of a path.
#[derive(Debug)]
struct NotesOfMethod {
    notes: Arc<Notes>,
    path: String,
}

impl MethodObserver for NotesOfMethod {
    fn has_pick_labels(&self) -> bool {
        true
    }

    fn on_attempt_started(&self, custom: Option<&Arc<str>>) {
        let custom = custom.map_or(String::new(), |it| format!(" {it}"));
        self.notes.write(format!("{}{custom} started", self.path));
    }

    fn on_attempt_ended(&self, _: Option<&Arc<str>>, attempt: &AttemptSummary<'_>) {
        let AttemptSummary { code, duration, sent, received, labels } = attempt;
        self.notes.durations.lock().unwrap().push(*duration);
        let attempt = format!("{} attempt {code} {sent}/{received} {}", self.path, text(labels).trim_end());
        self.notes.write(attempt);
    }

    fn on_delay(&self, _: Option<&Arc<str>>, scope: DelayScope, kind: DelayType, duration: Duration) {
        self.notes.delays.lock().unwrap().push((format!("{} {scope:?} {kind}", self.path), duration));
    }

    fn on_lookup_pick(&self, target: &LookupTarget, result: PickResult) {
        let LookupTarget { service, cluster, is_default } = target;
        let default = if *is_default { " by default" } else { "" };
        self.notes.lookups.lock().unwrap().push(format!("{service} {cluster}{default} {}", result.as_str()));
    }

    fn on_lookup_failed(&self, service: &Arc<str>) {
        self.notes.lookups.lock().unwrap().push(format!("{service} failed"));
    }

    fn on_call_ended(&self, _: Option<&Arc<str>>, summary: &CallSummary) {
        let Retried { retries, transparent, delay } = summary.retries;
        assert!(delay <= summary.duration, "{summary:?}");
        self.notes.durations.lock().unwrap().push(summary.duration);
        let retried = match (retries, transparent) {
            (0, 0) => String::new(),
            _ => format!(" {retries}+{transparent} retries, delay {}", !delay.is_zero()),
        };
        self.notes.write(format!("{} call {}{retried}", self.path, summary.code));
    }
}
