//! The hash of a request (A42).

use std::{borrow::Cow, sync::Arc};

use twox_hash::XxHash64;

use crate::{
    resolve::RouteQuery,
    resource::route_action::{HashPolicy, HashSource},
};

/// The hash of a call: what it is computed from, and the hash once a picker needed it.
///
/// It is computed once for a call, so that all its attempts have the same one, and not at all if no picker looks at it (CH2.18,
/// CH2.19).
#[derive(Debug, Default)]
pub(crate) struct RequestHash {
    /// Hash policies of the route, if it has any.
    policies: Option<Arc<[HashPolicy]>>,
    /// The random number of the channel, which policies by channel hash to.
    channel_id: u64,
    known: Option<u64>,
}

impl RequestHash {
    /// Computes the hash by the policies of a route, on a channel with this id.
    pub(crate) fn new(policies: Option<Arc<[HashPolicy]>>, channel_id: u64) -> Self {
        Self { policies, channel_id, known: None }
    }

    /// A hash that is known already.
    pub(super) fn of(hash: u64) -> Self {
        Self { known: Some(hash), ..Self::default() }
    }

    /// Whether the route has hash policies. Without them the hash does not depend on the request.
    pub(super) fn has_policies(&self) -> bool {
        self.policies.is_some()
    }

    /// Whether the request is not needed any more.
    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// The hash, which is random if no policy has one.
    pub(super) fn get(&mut self, request: &RouteQuery<'_>, random: &mut fastrand::Rng) -> u64 {
        let Self { policies, channel_id, known } = self;
        *known.get_or_insert_with(|| {
            let policies = policies.as_deref().unwrap_or_default();
            combined(policies, *channel_id, request).unwrap_or_else(|| random.u64(..))
        })
    }
}

/// The hash function of all rings: XXH64 with the seed 0.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    XxHash64::oneshot(0, bytes)
}

/// The hash of all policies that have one.
fn combined(policies: &[HashPolicy], channel_id: u64, request: &RouteQuery<'_>) -> Option<u64> {
    let mut combined: Option<u64> = None;
    for policy in policies {
        if let Some(hash) = of_source(&policy.source, channel_id, request) {
            // Rotated as in A42, so that two equal hashes do not cancel each other out.
            combined = Some(combined.map_or(hash, |before| before.rotate_left(1) ^ hash));
        }
        // A terminal policy ends the list as soon as there is a hash, be it of an earlier policy (CH2.18).
        if policy.terminal && combined.is_some() {
            break;
        }
    }
    combined
}

/// The hash of one policy, if the request has what it hashes (CH2.17).
fn of_source(source: &HashSource, channel_id: u64, request: &RouteQuery<'_>) -> Option<u64> {
    match source {
        HashSource::ChannelId => Some(channel_id),
        HashSource::Header { name, regex_rewrite } => {
            let value = request.header_value(name)?;
            let rewritten = match regex_rewrite {
                Some(rewrite) => rewrite.apply_to_bytes(&value),
                None => Cow::Borrowed(&*value),
            };
            Some(hash(&rewritten))
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::{
        balance::pick_args::CallAttributes,
        pb::envoy::{
            config::route::v3::{
                self as pb,
                route::Action,
                route_action::{
                    ClusterSpecifier, HashPolicy as Policy,
                    hash_policy::{FilterState, Header, PolicySpecifier},
                },
                route_match::PathSpecifier,
            },
            r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher},
        },
        resource::{Context, Resource, VirtualHost, route_action::RouteAction},
    };

    const CHANNEL: u64 = 0x8000_0000_0000_0003;

    fn header(name: &str, rewrite: Option<(&str, &str)>) -> PolicySpecifier {
        let regex_rewrite = rewrite.map(|(regex, substitution)| RegexMatchAndSubstitute {
            pattern: Some(RegexMatcher { regex: regex.into() }),
            substitution: substitution.into(),
        });
        PolicySpecifier::Header(Header { header_name: name.into(), regex_rewrite })
    }

    fn channel_id() -> PolicySpecifier {
        PolicySpecifier::FilterState(FilterState { key: "io.grpc.channel_id".into() })
    }

    /// The policies as a server configures them, each with whether it is terminal.
    fn policies(policies: impl IntoIterator<Item = (PolicySpecifier, bool)>) -> Arc<[HashPolicy]> {
        let policy = |(specifier, terminal)| Policy { policy_specifier: Some(specifier), terminal };
        let action = pb::RouteAction {
            hash_policy: policies.into_iter().map(policy).collect(),
            cluster_specifier: Some(ClusterSpecifier::Cluster("shop".into())),
            ..Default::default()
        };
        let prefix = Some(PathSpecifier::Prefix(String::new()));
        let route = pb::Route {
            r#match: Some(pb::RouteMatch { path_specifier: prefix, ..Default::default() }),
            action: Some(Action::Route(action)),
            ..Default::default()
        };
        let host = pb::VirtualHost {
            name: "shop".into(),
            domains: vec!["*".into()],
            routes: vec![route],
            ..Default::default()
        };
        let bytes = host.encode_to_vec().into();
        let host = VirtualHost::parse(&bytes, &Context::new()).unwrap();
        let RouteAction::Forward(forward) = &host.routes[0].action else { panic!("{host:?}") };
        forward.hash_policies.clone()
    }

    fn get(policies: Arc<[HashPolicy]>, request: &RouteQuery<'_>) -> u64 {
        RequestHash::new(Some(policies), CHANNEL).get(request, &mut fastrand::Rng::with_seed(1))
    }

    fn random(seed: u64) -> u64 {
        fastrand::Rng::with_seed(seed).u64(..)
    }

    #[test]
    fn ch2_17_a_header_is_hashed_with_all_its_values_after_its_rewriting() {
        let request = RouteQuery::new("/", 0)
            .with_header("x-user", "ada")
            .with_header("X-User", "bob")
            .with_header("x-empty", "");
        let of = |name, rewrite| get(policies([(header(name, rewrite), false)]), &request);
        assert_eq!(of("x-user", None), hash(b"ada,bob"));
        assert_eq!(of("x-user", Some(("(a)|(b)", "<\\1\\2>"))), hash(b"<a>d<a>,<b>o<b>"));
        assert_eq!(of("x-user", Some(("z", "y"))), hash(b"ada,bob"));
        assert_eq!(of("x-empty", None), 0xef46_db37_51d8_e999, "XXH64 of nothing");
        assert_eq!(of("x-user-bin", None), random(1), "absent");
        assert_eq!(get(policies([(channel_id(), false)]), &request), CHANNEL);
    }

    #[test]
    fn ch2_18_later_hashes_are_combined_with_rotated_ones_until_a_terminal_one() {
        let request = RouteQuery::new("/", 0).with_header("x-a", "a").with_header("x-b", "b");
        let (a, b) = (hash(b"a"), hash(b"b"));
        let [of_a, of_b, none] = ["x-a", "x-b", "x-c"].map(|name| move || header(name, None));
        let all = policies([(channel_id(), false), (of_a(), false), (of_b(), false)]);
        assert_eq!(get(all, &request), (7 ^ a).rotate_left(1) ^ b, "the highest bit becomes the lowest");
        assert_eq!(get(policies([(of_a(), true), (of_b(), false)]), &request), a);
        assert_eq!(get(policies([(none(), true), (of_b(), false)]), &request), b, "absent, and so no end");
        assert_eq!(get(policies([(of_a(), false), (none(), true), (of_b(), false)]), &request), a);
    }

    #[test]
    fn ch2_18_ch2_19_a_call_without_a_hash_has_one_random_number_once_it_is_needed() {
        let request = RouteQuery::new("/", 0);
        let random = &mut fastrand::Rng::with_seed(1);
        for mut hash in [
            RequestHash::default(),
            RequestHash::new(Some(policies([(header("x-a", None), false)])), CHANNEL),
        ] {
            assert!(!hash.is_known());
            let first = hash.get(&request, random);
            assert!(hash.is_known());
            assert_eq!(hash.get(&request, random), first);
            assert_ne!(RequestHash::default().get(&request, random), first);
        }
    }

    #[test]
    fn ch2_18_the_hash_of_a_call_is_that_of_its_first_pick() {
        let mut hash = RequestHash::new(Some(policies([(header("x-a", None), false)])), CHANNEL);
        let random = &mut fastrand::Rng::with_seed(1);
        let first = hash.get(&RouteQuery::new("/", 0).with_header("x-a", "a"), random);
        assert_eq!(hash.get(&RouteQuery::new("/", 0), random), first);
    }

    #[test]
    fn ch6_21_the_hash_is_that_of_the_request_before_filters_change_it() {
        let random = &mut fastrand::Rng::with_seed(1);
        let [before, after] = ["a", "b"].map(|value| RouteQuery::new("/", 0).with_header("x-a", value));
        let attributes = |policies| CallAttributes::new(RequestHash::new(policies, CHANNEL));
        let policies = policies([(header("x-a", None), false)]);
        let [mut fixed, mut late] = [attributes(Some(policies.clone())), attributes(Some(policies))];
        fixed.fix_hash(&before, random);
        assert_eq!((fixed.hash(&after, random), late.hash(&after, random)), (hash(b"a"), hash(b"b")));
    }
}
