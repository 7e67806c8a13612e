//! Changes of the headers of calls, and of the trailers of their responses (CH5.16 to CH5.18).

#[cfg(feature = "channel")]
use http::{HeaderMap, HeaderName, HeaderValue};

use super::chain::{Compiled, Compiling, FilterSite};
#[cfg(feature = "channel")]
use super::{Decision, FilterRequest, Hooks, StreamFilter};
#[cfg(feature = "channel")]
use crate::resource::http_filter::{AppendAction, HeaderAppend};
use crate::resource::http_filter::{
    EffectiveFilter, HeaderAction, HeaderMutations, HttpFilterOverride, OverrideSetting,
};

/// Changes headers by the mutations of the listener and of the overrides, in the order of their execution.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeaderMutationFilter {
    request: Mutations,
    response: Mutations,
    trailers: Mutations,
}

/// Mutations in their order.
type Mutations = Box<[Mutation]>;

/// A change of headers, with names and values that are cloned without an allocation.
#[cfg(feature = "channel")]
#[derive(Debug, Clone, PartialEq)]
enum Mutation {
    Append(HeaderName, HeaderValue, AppendAction),
    Remove(HeaderName),
    /// Removes all headers that the [action](HeaderAction::removes) removes.
    RemoveAll(HeaderAction),
}

/// A change of headers, which is never executed.
#[cfg(not(feature = "channel"))]
#[derive(Debug, Clone, PartialEq)]
struct Mutation(HeaderAction);

impl HeaderMutationFilter {
    /// The overrides of all levels are executed after the configuration of the listener (CH5.17).
    pub(super) fn compile(
        effective: EffectiveFilter<'_>,
        site: &FilterSite<'_, '_>,
        _: &mut Compiling<'_>,
    ) -> Compiled<Self> {
        let EffectiveFilter::HeaderMutation(config) = effective else { return Compiled::Unknown };
        let mut levels: Vec<_> = site.overrides().filter_map(of_override).collect();
        if config.most_specific_header_mutations_wins {
            // The last mutation of a header wins, so the most specific level has to be the last.
            levels.reverse();
        }
        // The listener is the first in either order (CH5.17).
        levels.insert(0, &config.mutations);
        let all = |list: fn(&HeaderMutations) -> &[HeaderAction]| {
            levels.iter().flat_map(|mutations| list(mutations)).filter_map(Mutation::new).collect()
        };
        let filter = Self {
            request: all(|mutations| &mutations.request_mutations),
            response: all(|mutations| &mutations.response_mutations),
            trailers: all(|mutations| &mutations.response_trailers_mutations),
        };
        match filter.request.is_empty() && filter.response.is_empty() && filter.trailers.is_empty() {
            true => Compiled::WithoutEffect,
            false => Compiled::Filter(filter),
        }
    }
}

#[cfg(feature = "channel")]
impl StreamFilter for HeaderMutationFilter {
    type State = ();

    fn hooks(&self) -> Hooks {
        Hooks {
            changes_request: !self.request.is_empty(),
            on_response: !self.response.is_empty(),
            on_trailers: !self.trailers.is_empty(),
            handler: false,
        }
    }

    fn on_request<'a>(&'a self, _: &'a mut Option<()>, request: &'a mut FilterRequest<'_>) -> Decision<'a> {
        execute(&self.request, request.headers);
        Decision::Continue
    }

    fn on_response(&self, _: &mut Option<()>, headers: &mut HeaderMap) {
        execute(&self.response, headers);
    }

    fn on_trailers(&self, _: &mut Option<()>, trailers: &mut HeaderMap) {
        execute(&self.trailers, trailers);
    }
}

#[cfg(not(feature = "channel"))]
impl Mutation {
    fn new(action: &HeaderAction) -> Option<Self> {
        Some(Self(action.clone()))
    }
}

#[cfg(feature = "channel")]
impl Mutation {
    /// `None` cannot be: the parser has validated names and values.
    fn new(action: &HeaderAction) -> Option<Self> {
        Some(match action {
            HeaderAction::Append(HeaderAppend { name, value, append_action, .. }) => Self::Append(
                HeaderName::try_from(&**name).ok()?,
                HeaderValue::try_from(&**value).ok()?,
                *append_action,
            ),
            HeaderAction::Remove(name) => Self::Remove(HeaderName::try_from(&**name).ok()?),
            HeaderAction::RemoveOnMatch(_) => Self::RemoveAll(action.clone()),
        })
    }

    fn execute(&self, headers: &mut HeaderMap) {
        match self {
            Self::Append(name, value, action) => {
                let exists = headers.contains_key(name);
                // An error means that the map has as many headers as it can have, which no peer accepts.
                let _ = match action {
                    AppendAction::AppendIfExistsOrAdd => {
                        headers.try_append(name.clone(), value.clone()).map(|_| ())
                    }
                    AppendAction::AddIfAbsent if exists => Ok(()),
                    AppendAction::OverwriteIfExists if !exists => Ok(()),
                    AppendAction::AddIfAbsent
                    | AppendAction::OverwriteIfExists
                    | AppendAction::OverwriteIfExistsOrAdd => {
                        headers.try_insert(name.clone(), value.clone()).map(|_| ())
                    }
                };
            }
            Self::Remove(name) => drop(headers.remove(name)),
            Self::RemoveAll(action) => {
                // The names are borrowed from the map, so they are found and removed one by one.
                while let Some(name) = headers.keys().find(|name| action.removes(name.as_str())).cloned() {
                    headers.remove(name);
                }
            }
        }
    }
}

/// Returns the mutations of an override.
fn of_override(setting: &OverrideSetting) -> Option<&HeaderMutations> {
    let OverrideSetting::Config(HttpFilterOverride::HeaderMutation(per_route)) = setting else { return None };
    Some(&per_route.mutations)
}

/// Changes headers by mutations in their order.
#[cfg(feature = "channel")]
fn execute(mutations: &[Mutation], headers: &mut HeaderMap) {
    for mutation in mutations {
        mutation.execute(headers);
    }
}

#[cfg(test)]
#[cfg(feature = "channel")]
mod tests {
    use std::sync::Arc;

    use prost::Message;

    use super::*;
    use crate::{
        filters::{ChainCompiler, FilterChain, StreamFilters},
        pb::envoy::{
            config::{
                common::mutation_rules::v3::{self as rules, header_mutation::Action},
                core::v3::{HeaderValue as Header, HeaderValueOption},
            },
            extensions::filters::http::header_mutation::v3 as pb,
            r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
        },
        resource::{
            Context, Extension, Payload,
            http_filter::{
                FilterOverride, HeaderMutation, HeaderMutationPerRoute, HttpFilter, HttpFilterConfig,
            },
        },
    };

    fn action(action: Action) -> rules::HeaderMutation {
        rules::HeaderMutation { action: Some(action) }
    }

    /// Adds or replaces a header, by the number of an append action.
    fn append(key: &str, value: &str, append_action: i32) -> rules::HeaderMutation {
        let header = Header { key: key.into(), value: value.into(), raw_value: Default::default() };
        action(Action::Append(HeaderValueOption {
            header: Some(header),
            append_action,
            ..Default::default()
        }))
    }

    fn of_requests(mutations: Vec<rules::HeaderMutation>) -> pb::Mutations {
        pb::Mutations { request_mutations: mutations, ..Default::default() }
    }

    fn parsed<T: Extension>(message: &impl Message) -> T {
        T::parse(Payload::Message(message.encode_to_vec().into()), &Context::new()).unwrap()
    }

    fn listed(mutations: pb::Mutations, most_specific_header_mutations_wins: bool) -> [HttpFilter; 1] {
        let message = pb::HeaderMutation { mutations: Some(mutations), most_specific_header_mutations_wins };
        let config = HttpFilterConfig::HeaderMutation(parsed::<HeaderMutation>(&message));
        [HttpFilter { name: "a".into(), config, disabled: false }]
    }

    fn overridden(mutations: pb::Mutations) -> [FilterOverride; 1] {
        let message = pb::HeaderMutationPerRoute { mutations: Some(mutations) };
        let setting = HttpFilterOverride::HeaderMutation(parsed::<HeaderMutationPerRoute>(&message));
        [FilterOverride { filter: "a".into(), setting: OverrideSetting::Config(setting) }]
    }

    fn chain(filters: &[HttpFilter]) -> Option<Arc<FilterChain>> {
        ChainCompiler::new(filters, &[]).chain(&[], &[])
    }

    /// Headers as lines, after mutations of a request with these lines.
    fn after(chain: &FilterChain, lines: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let [crate::filters::Filter::HeaderMutation(filter)] = chain.filters() else { panic!("{chain:?}") };
        execute(&filter.request, &mut headers);
        lines_of(&headers)
    }

    fn lines_of(headers: &HeaderMap) -> Vec<String> {
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn ch5_16_an_append_action_decides_about_headers_that_are_there() {
        for (append_action, absent, present) in [
            (0, vec!["x: new"], vec!["x: 1", "x: 2", "x: new"]),
            (1, vec!["x: new"], vec!["x: 1", "x: 2"]),
            (2, vec!["x: new"], vec!["x: new"]),
            (3, vec![], vec!["x: new"]),
        ] {
            let chain = chain(&listed(of_requests(vec![append("X", "new", append_action)]), false)).unwrap();
            assert_eq!(after(&chain, &[]), absent, "{append_action}");
            assert_eq!(after(&chain, &[("x", "1"), ("x", "2")]), present, "{append_action}");
        }
    }

    #[test]
    fn ch5_16_mutations_are_executed_in_their_order() {
        let remove = action(Action::Remove("X".into()));
        let mutations = vec![append("x", "a", 0), remove.clone(), append("x", "b", 0), append("x", "c", 3)];
        let chain_of = |mutations| chain(&listed(of_requests(mutations), false));
        assert_eq!(after(&chain_of(mutations).unwrap(), &[("x", "1")]), ["x: c"]);
        assert_eq!(after(&chain_of(vec![append("x", "a", 0), remove]).unwrap(), &[("y", "1")]), ["y: 1"]);
        assert!(chain_of(vec![append("x", "", 2)]).is_none(), "an empty value is not added");
    }

    #[test]
    fn ch5_16_responses_and_their_trailers_have_mutations_of_their_own() {
        let mutations = pb::Mutations {
            response_mutations: vec![append("x", "response", 0)],
            response_trailers_mutations: vec![append("x", "trailers", 0)],
            ..Default::default()
        };
        let mut filters = StreamFilters::new(chain(&listed(mutations, false)).unwrap());
        let hooks = filters.hooks();
        assert_eq!((hooks.changes_request, hooks.on_response, hooks.on_trailers), (false, true, true));
        let [mut headers, mut trailers] = [HeaderMap::new(), HeaderMap::new()];
        filters.on_response(0..1, &mut headers);
        filters.on_trailers(0..1, &mut trailers);
        assert_eq!(
            (lines_of(&headers), lines_of(&trailers)),
            (vec!["x: response".into()], vec!["x: trailers".into()])
        );
    }

    #[test]
    fn ch5_17_the_mutations_of_all_levels_follow_those_of_the_listener() {
        let of = |value| of_requests(vec![append("x", value, 0)]);
        let [host, route, split] = ["host", "route", "split"].map(|level| overridden(of(level)));
        for (wins, order) in [(false, ["split", "route", "host"]), (true, ["host", "route", "split"])] {
            let filters = listed(of("listener"), wins);
            let chain = ChainCompiler::new(&filters, &host).chain(&route, &split).unwrap();
            let expected: Vec<_> =
                ["listener"].iter().chain(&order).map(|level| format!("x: {level}")).collect();
            assert_eq!(after(&chain, &[]), expected);
        }
        let (filters, off) = (listed(of("listener"), false), OverrideSetting::Disabled);
        let off = [FilterOverride { filter: "a".into(), setting: off }];
        assert!(ChainCompiler::new(&filters, &host).chain(&route, &off).is_none());
        let chain = ChainCompiler::new(&filters, &host).chain(&off, &split).unwrap();
        assert_eq!(after(&chain, &[]), ["x: listener", "x: split", "x: host"]);
    }

    #[test]
    fn ch5_18_a_matcher_removes_no_reserved_header() {
        let key_matcher =
            StringMatcher { match_pattern: Some(MatchPattern::Contains("t".into())), ignore_case: false };
        let matching = rules::header_mutation::RemoveOnMatch { key_matcher: Some(key_matcher) };
        let mutations = of_requests(vec![action(Action::RemoveOnMatch(matching))]);
        let chain = chain(&listed(mutations, false)).unwrap();
        let kept = ["te: trailers", "grpc-timeout: 1S", "content-type: application/grpc", "x: 1"];
        let lines = [
            ("te", "trailers"),
            ("x-test", "1"),
            ("grpc-timeout", "1S"),
            ("x-test", "2"),
            ("content-type", "application/grpc"),
            ("cookie-t", "1"),
            ("x", "1"),
        ];
        let mut left = after(&chain, &lines);
        left.sort_unstable();
        let mut kept = kept.map(str::to_owned);
        kept.sort_unstable();
        assert_eq!(left, kept);
    }
}
