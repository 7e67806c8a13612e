//! Why the configuration may be stale (CH1.9).

use std::{borrow::Cow, sync::Arc};

use crate::error::{MergedError, WatchError};

/// The reasons why the listener or the routes may be stale, for the messages of calls that fail anyway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StaleConfig {
    text: Arc<str>,
    reasons: Box<[StaleReason]>,
}

/// The resources that may be stale for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StaleReason {
    /// The resources, as messages name them.
    subject: String,
    /// What keeps them from being current, without their names.
    cause: String,
    /// The resources and the cause.
    text: String,
}

impl StaleConfig {
    /// `None` without errors.
    pub(crate) fn of<'a>(errors: impl Iterator<Item = &'a WatchError>) -> Option<Arc<Self>> {
        let merged = MergedError::of(errors);
        let text = joined(&merged)?.into();
        let reasons = merged.iter().map(|error| StaleReason {
            subject: error.subject(),
            cause: error.cause(),
            text: error.to_string(),
        });
        Some(Arc::new(Self { text, reasons: reasons.collect() }))
    }

    /// All reasons.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Adds the reasons to that of a failed call. One that it contains, as the cluster has the same, is not repeated.
    fn add_to(&self, reason: &str) -> String {
        let reasons = self.reasons.iter().map(|stale| match reason.contains(&stale.cause) {
            true => Cow::from(format!("{}: the same", stale.subject)),
            false => Cow::from(&stale.text),
        });
        marked(reason, &reasons.collect::<Vec<_>>().join("; "))
    }
}

/// The reason why a call fails, and why the listener or the routes may be stale.
pub(crate) fn with_stale_config(reason: &str, stale_config: Option<&StaleConfig>) -> String {
    stale_config.map_or_else(|| reason.to_owned(), |stale| stale.add_to(reason))
}

/// The reason why a call fails, and why its cluster or the endpoints of that may be stale.
pub(super) fn with_stale_cluster(reason: String, stale: Option<&str>) -> String {
    stale.map_or(reason.clone(), |stale| marked(&reason, stale))
}

/// Errors in their order, merged; `None` if there is none.
pub(super) fn merged<'a>(errors: impl Iterator<Item = &'a WatchError>) -> Option<String> {
    joined(&MergedError::of(errors))
}

fn joined(errors: &[MergedError<'_>]) -> Option<String> {
    errors.iter().map(ToString::to_string).reduce(|one, other| format!("{one}; {other}"))
}

fn marked(reason: &str, stale: &str) -> String {
    format!("{reason} (the configuration may be stale: {stale})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::{Blame, Code, Subject},
        resource::{Cluster, ClusterLoadAssignment, Listener, Resource, RouteConfiguration},
    };

    fn error<R: Resource>(name: &str, reason: &str) -> WatchError {
        let about = Subject { type_url: R::TYPE_URL, name: name.into(), node: "test".into() };
        WatchError::new(Code::Unavailable, Blame::Network, about, reason)
    }

    #[test]
    fn ch1_9_a_reason_that_four_resources_share_is_in_the_message_once() {
        let away = "cannot reach the server";
        let cluster = [error::<Cluster>("cart", away), error::<ClusterLoadAssignment>("eds", away)];
        let above = [error::<Listener>("shop", away), error::<RouteConfiguration>("routes", away)];
        let cluster = with_stale_cluster("no endpoint".to_owned(), merged(cluster.iter()).as_deref());
        let message = with_stale_config(&cluster, StaleConfig::of(above.iter()).as_deref());
        assert_eq!(message.matches(away).count(), 1, "{message}");
        assert_eq!(
            message,
            "no endpoint (the configuration may be stale: Cluster \"cart\" and 1 more resource: cannot reach the server \
             [node id: test]) (the configuration may be stale: Listener \"shop\" and 1 more resource: the same)"
        );
    }

    #[test]
    fn ch1_9_reasons_that_differ_are_all_in_the_message() {
        let above = [error::<Listener>("shop", "one"), error::<RouteConfiguration>("routes", "other")];
        let stale = StaleConfig::of(above.iter()).unwrap();
        assert_eq!(
            with_stale_config("no route", Some(&stale)),
            "no route (the configuration may be stale: Listener \"shop\": one [node id: test]; RouteConfiguration \
             \"routes\": other [node id: test])"
        );
        assert_eq!(with_stale_config("no route", None), "no route");
        assert_eq!(StaleConfig::of(std::iter::empty()), None);
    }
}
