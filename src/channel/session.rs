//! The sessions of a call: the cookies of its request, and those of its responses (A55, A60).

use std::{mem, sync::Arc};

use http::{HeaderMap, HeaderValue, header::SET_COOKIE};
use tonic::{Status, metadata::MetadataMap};
use tracing::debug;

use super::malformed::MalformedCounters;
use crate::{
    balance::{cluster_use::ClusterReference, picker::Draws, session_endpoints::HostOverride},
    filters::session::{SessionState, set_cookie},
    resolve::RequestHeaders,
    resource::http_filter::SessionCookie,
};

/// The cluster of a call while its filters run: a filter for sessions may replace it by that of the session (CH8.9).
pub(super) struct SessionClusters {
    /// The cluster of the call.
    cluster: ClusterReference,
    /// Clusters of the route that a cookie of the request may select instead.
    others: Vec<ClusterReference>,
    sessions: Sessions,
}

/// The cookies that the session filters of a call have read, in the order of the filters; mostly none.
#[derive(Default)]
pub(super) struct Sessions(Vec<Session>);

/// A session filter that applies to the path of the request.
struct Session {
    /// The configuration of the cookie.
    cookie: Arc<SessionCookie>,
    /// The cookie of the request; `None` if it has none, or an unusable one.
    state: Option<SessionState>,
}

impl SessionClusters {
    pub(super) fn new(cluster: ClusterReference, others: Vec<ClusterReference>) -> Self {
        Self { cluster, others, sessions: Sessions::default() }
    }

    /// Runs a session filter: its cookie selects the cluster, if the route has that cluster (CH8.1 to CH8.4).
    pub(super) fn read(
        &mut self,
        cookie: &Arc<SessionCookie>,
        (path, headers): (&str, &dyn RequestHeaders),
        malformed: &MalformedCounters,
    ) {
        if !cookie.is_for(path) {
            return;
        }
        let state = SessionState::read(&cookie.name, headers).unwrap_or_else(|reason| {
            malformed.on_session_cookie();
            debug!(cookie = &*cookie.name, %reason, "the cookie of a session is ignored");
            None
        });
        if let Some(state) = &state
            && !state.names(self.cluster.name())
            && let Some(named) = self.others.iter_mut().find(|cluster| state.names(cluster.name()))
        {
            mem::swap(&mut self.cluster, named);
        }
        self.sessions.0.push(Session { cookie: cookie.clone(), state });
    }

    /// Returns the cluster as the filters so far have left it.
    pub(super) fn cluster(&self) -> &ClusterReference {
        &self.cluster
    }

    /// Returns the cluster of the call, and its sessions. The references to other clusters are released.
    pub(super) fn into_parts(self) -> (ClusterReference, Sessions) {
        (self.cluster, self.sessions)
    }
}

impl Sessions {
    /// Returns the addresses of the last cookie, for picks (CH8.8). `None` if no filter keeps a session.
    pub(super) fn host_override(&self) -> Option<Box<HostOverride>> {
        if self.0.is_empty() {
            return None;
        }
        let last = self.0.iter().rev().find_map(|session| session.state.as_ref());
        let addresses = last.map(|state| state.addresses.clone()).unwrap_or_default();
        Some(Box::new(HostOverride::new(addresses)))
    }

    /// Adds cookies that lead to the endpoint of the attempt to the headers of its response (CH8.5 to CH8.7).
    pub(super) fn set_cookies(&self, headers: &mut HeaderMap, draws: &Draws, cluster: &str) {
        let Some(addresses) = draws.session.as_ref().and_then(|session| session.picked()) else { return };
        for Session { cookie, state } in &self.0 {
            let Some(value) = set_cookie(cookie, state.as_ref(), addresses, cluster) else { continue };
            match HeaderValue::try_from(value) {
                Ok(value) => drop(headers.append(SET_COOKIE, value)),
                Err(_) => debug!(cookie = &*cookie.name, "the cookie of a session cannot be a header"),
            }
        }
    }

    /// Like [`set_cookies`](Self::set_cookies), for a response that is the failure of its attempt, such as one of a proxy.
    pub(super) fn set_cookies_of(&self, status: &mut Status, draws: &Draws, cluster: &str) {
        if !self.0.is_empty() {
            let mut headers = mem::take(status.metadata_mut()).into_headers();
            self.set_cookies(&mut headers, draws, cluster);
            *status.metadata_mut() = MetadataMap::from_headers(headers);
        }
    }
}
