//! Routes, and lists of them with an index for the search of each request.

use std::sync::{Arc, OnceLock};

use serde::Serialize;

mod path_index;

use self::path_index::PathIndex;
use super::{
    Invalid,
    http_filter::{self, FilterOverride},
    route_action::{ForwardAction, ProxyAction, RouteAction, Scope},
    route_match::RouteMatch,
    slices::as_slice,
};
use crate::pb::envoy::config::route::v3::{self as pb, route::Action};

/// A route: conditions on a request, and the action on matching requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Route {
    /// The name, for display; often empty.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// The conditions on a request. In JSON `match`.
    #[serde(rename = "match")]
    pub matcher: RouteMatch,
    /// The action on matching requests.
    pub action: RouteAction,
    /// Settings of HTTP filters, sorted by filter; those of a weighted cluster take precedence.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub filter_overrides: Box<[FilterOverride]>,
}

/// The routes of a [`VirtualHost`](super::VirtualHost): a slice, with a search whose time does not grow with its length.
///
/// It is immutable: above a certain length, the first search builds an index of the paths, which clones share.
#[derive(Clone)]
pub struct Routes {
    /// The routes in their order.
    all: Box<[Route]>,
    /// `None` for a list too short for an index.
    index: OnceLock<Option<Arc<PathIndex>>>,
}

impl Route {
    /// Rules R10 to R27; the name of a field for a route to be omitted because of it.
    pub(super) fn parse(
        message: pb::Route,
        scope: &Scope<'_>,
    ) -> Result<Result<Self, &'static str>, Invalid> {
        let Some(matcher) = message.r#match else {
            return Err(Invalid::field("match", "must be set"));
        };
        if !matcher.query_parameters.is_empty() {
            // R11: gRPC requests have no query, so that the route never matches, and later routes apply as if it were absent.
            return Ok(Err("query_parameters"));
        }
        let matcher = RouteMatch::parse(matcher).map_err(|e| e.at("match"))?;
        let action = match message.action {
            Some(Action::Route(action)) => match ForwardAction::parse(action, scope) {
                Ok(Ok(action)) => RouteAction::Forward(action),
                Ok(Err(field)) => return Ok(Err(field)),
                Err(e) => return Err(e.at("route")),
            },
            Some(Action::NonForwardingAction(_)) => RouteAction::NonForwarding,
            Some(Action::Redirect(_)) => RouteAction::Unsupported(ProxyAction::Redirect),
            Some(Action::DirectResponse(_)) => RouteAction::Unsupported(ProxyAction::DirectResponse),
            Some(Action::FilterAction(_)) => RouteAction::Unsupported(ProxyAction::FilterAction),
            None => RouteAction::Unsupported(ProxyAction::Unknown),
        };
        let filter_overrides = http_filter::parse_overrides(message.typed_per_filter_config, scope.cx)?;
        Ok(Ok(Self { name: message.name.into(), matcher, action, filter_overrides }))
    }
}

impl Routes {
    /// A list, whose index is made when it is first searched.
    pub(super) fn new(all: Box<[Route]>) -> Self {
        // Not built yet: an application that only watches route configurations never searches them.
        Self { all, index: OnceLock::new() }
    }

    /// Returns the place of the first route for which `matches` returns true. `matches` is called with the index of each route in
    /// order, except for routes whose path cannot match.
    pub(crate) fn first(&self, path: &str, matches: impl Fn(usize, &Route) -> bool) -> Option<usize> {
        match self.index.get_or_init(|| PathIndex::new(&self.all).map(Arc::new)) {
            Some(index) => index.first(path, |place| matches(place, &self.all[place])),
            None => self.all.iter().enumerate().position(|(place, route)| matches(place, route)),
        }
    }
}

as_slice! {
    Routes of Route;
}
