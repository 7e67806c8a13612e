//! The family of servers: which freedoms of the protocol each server of a world takes, and which rules are checked beside
//! the invariants of the model.

use super::script::Ty;
use crate::control_plane::{
    Versions,
    session::{AfterNack, Behavior, Settings},
};

/// What servers may do in a world, and what is checked of the client.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    freedoms: Vec<Freedom>,
    rules: Vec<Rule>,
}

/// Something that servers may do or not; see [`Behavior`](crate::control_plane::session::Behavior).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freedom {
    IgnoreNamesInNack,
    SkipKnownVersions,
    ResendKnownVersions,
    ResendAfterNack,
    SilenceAfterNack,
    ShuffleResources,
    HeartbeatsAfterExpiry,
    UnknownType,
    EndsCleanly,
    LegacyWildcardOnly,
    EmptyVersions,
    NewNamesWithNextVersion,
    UnsolicitedResources,
    SendTwice,
    SplitResponses,
    AllNamesOnly,
    EndsOverLimit,
    FallingVersions,
    OneVersionForAll,
    RepeatedVersions,
    ConstantNonces,
    ResendAfterNackLater,
    UnsolicitedRemovals,
    EmptyListIsWildcard,
    KeepsWildcard,
    HeartbeatsAfterNack,
    HeartbeatsChangeTtl,
    SharedNames,
    KeepsKnownNames,
    UnsetWildcard,
    ComparesText,
    InitialResources,
}

/// How a server of a world behaves.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerBehavior {
    pub(super) settings: Settings,
    /// Its streams end with the status OK, or by GOAWAY, after some time.
    pub(super) ends_cleanly: bool,
    /// Its streams end by a message over the client's limit, after a good response.
    pub(super) ends_over_limit: bool,
    pub(super) versions: Versions,
    /// After a restart it has the versions of its earlier life for other content.
    pub(super) repeats_versions: bool,
}

/// A rule about requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A NACK has the names of the request before it (SotW), or changes no subscription (incremental).
    NackNames,
    /// Responses with rejected content that are sent again are answered at most as often as ten times in a burst, and then
    /// once a second.
    NackRate,
    /// Every other response is answered as soon as a request can be written.
    AnswerAtOnce,
    /// A version in the first request of a type stands for resources that are held.
    Claims,
    /// Each request is as the protocol demands, and a version in it stands for nothing that is not held.
    Requests,
}

impl Family {
    /// The freedoms and rules of these names alone, with commas between them; `None` when one is not known.
    #[cfg(test)]
    pub(crate) fn of(names: &str) -> Option<Self> {
        let mut family = Self { freedoms: Vec::new(), rules: Vec::new() };
        for name in names.split(',').filter(|name| !name.is_empty()) {
            let freedom = Freedom::ALL.iter().find(|freedom| format!("{freedom:?}") == name);
            let rule = Rule::ALL.iter().find(|rule| format!("{rule:?}") == name);
            family.freedoms.extend(freedom);
            family.rules.extend(rule);
            if freedom.is_none() && rule.is_none() {
                return None;
            }
        }
        Some(family)
    }

    /// The same with the plain freedoms alone, and without those that a server takes after a NACK: then client and server agree
    /// within the bound of the backoff.
    pub(super) fn for_one_server(self) -> Self {
        let mut plain = self.plain();
        plain.freedoms.retain(|freedom| *freedom != Freedom::ResendAfterNack);
        plain
    }

    /// The names of all freedoms and rules.
    #[cfg(test)]
    pub(crate) fn names() -> impl Iterator<Item = String> {
        let freedoms = Freedom::ALL.iter().map(|freedom| format!("{freedom:?}"));
        freedoms.chain(Rule::ALL.iter().map(|rule| format!("{rule:?}")))
    }

    pub(super) fn has_rule(&self, rule: Rule) -> bool {
        self.rules.contains(&rule)
    }

    /// The same without the freedoms that a model has to consider.
    pub(super) fn plain(mut self) -> Self {
        self.freedoms.retain(|freedom| freedom.is_plain());
        self
    }

    /// Whether names of authorities are also sent under the wildcard of a server, in a third of the worlds.
    pub(super) fn shares_names(&self, seed: u64) -> bool {
        let is_drawn = fastrand::Rng::with_seed(seed ^ 0x005_4a3e).u32(0..3) == 0;
        is_drawn && self.freedoms.contains(&Freedom::SharedNames)
    }

    /// Whether the client of a world has initial resources, in a third of the worlds.
    pub(super) fn has_initial_resources(&self, seed: u64) -> bool {
        let is_drawn = fastrand::Rng::with_seed(seed ^ 0x0010_1717).u32(0..3) == 0;
        is_drawn && self.freedoms.contains(&Freedom::InitialResources)
    }

    /// How a server of a world behaves. Half of the servers take no freedom.
    pub(super) fn server_behavior(&self, (seed, id): (u64, usize), is_delta: bool) -> ServerBehavior {
        // Not the randomness of the world, so that it stays as it is when freedoms are added.
        let mut random = fastrand::Rng::with_seed(seed ^ ((id as u64 + 1) << 32) ^ 0x000f_a317);
        let mut server = ServerBehavior::default();
        server.settings.full_state_types.insert(Ty::Full.url().to_owned());
        if random.bool() {
            return server;
        }
        for freedom in Freedom::ALL {
            // All of them are drawn, so that each is the same with and without the others.
            if random.u32(0..3) == 0 && self.freedoms.contains(&freedom) {
                freedom.apply(&mut server, random.u64(..));
            } else {
                random.u64(..);
            }
        }
        // A part that is rejected would keep the others from being sent.
        if server.settings.behavior.after_nack != AfterNack::Nothing {
            server.settings.max_per_response = None;
        }
        // What is sent without a subscription looks like the answer to a wildcard.
        let Behavior { legacy_wildcard_only, unsolicited_resources, keeps_known_names, .. } =
            &mut server.settings.behavior;
        *unsolicited_resources &= is_delta || !*legacy_wildcard_only;
        // What it has sent so and takes for known is never sent by its name. A client that holds it from another server does not wait
        // for it, so that the return of this one is not found.
        *keeps_known_names &= !*unsolicited_resources;
        // There nonces identify outdated requests.
        server.settings.behavior.constant_nonces &= is_delta;
        // A server that takes the content of a version for known must not give the version another one.
        let Settings { behavior, ignore_initial_versions, .. } = &server.settings;
        let is_version_trusted = match is_delta {
            true => !ignore_initial_versions && !behavior.empty_resource_versions,
            false => behavior.skip_known_versions,
        };
        server.repeats_versions &= !is_version_trusted;
        server
    }
}

impl Default for Family {
    /// The default of all worlds.
    fn default() -> Self {
        Self { freedoms: FREEDOMS.to_vec(), rules: RULES.to_vec() }
    }
}

impl Freedom {
    const ALL: [Self; 32] = [
        Self::IgnoreNamesInNack,
        Self::SkipKnownVersions,
        Self::ResendKnownVersions,
        Self::ResendAfterNack,
        Self::SilenceAfterNack,
        Self::ShuffleResources,
        Self::HeartbeatsAfterExpiry,
        Self::UnknownType,
        Self::EndsCleanly,
        Self::LegacyWildcardOnly,
        Self::EmptyVersions,
        Self::NewNamesWithNextVersion,
        Self::UnsolicitedResources,
        Self::SendTwice,
        Self::SplitResponses,
        Self::AllNamesOnly,
        Self::EndsOverLimit,
        Self::FallingVersions,
        Self::OneVersionForAll,
        Self::RepeatedVersions,
        Self::ConstantNonces,
        Self::ResendAfterNackLater,
        Self::UnsolicitedRemovals,
        Self::EmptyListIsWildcard,
        Self::KeepsWildcard,
        Self::HeartbeatsAfterNack,
        Self::HeartbeatsChangeTtl,
        Self::SharedNames,
        Self::KeepsKnownNames,
        Self::UnsetWildcard,
        Self::ComparesText,
        Self::InitialResources,
    ];

    /// Whether no model has to consider it.
    fn is_plain(self) -> bool {
        match self {
            Self::IgnoreNamesInNack
            | Self::SkipKnownVersions
            | Self::ResendKnownVersions
            | Self::ResendAfterNack
            | Self::ShuffleResources
            | Self::HeartbeatsAfterExpiry
            | Self::HeartbeatsAfterNack
            | Self::HeartbeatsChangeTtl
            | Self::EmptyVersions => true,
            Self::SilenceAfterNack
            | Self::UnknownType
            | Self::EndsCleanly
            | Self::LegacyWildcardOnly
            | Self::NewNamesWithNextVersion
            | Self::UnsolicitedResources
            | Self::SendTwice
            | Self::SplitResponses
            | Self::AllNamesOnly
            | Self::EndsOverLimit
            | Self::FallingVersions
            | Self::OneVersionForAll
            | Self::RepeatedVersions
            | Self::ConstantNonces
            | Self::ResendAfterNackLater
            | Self::UnsolicitedRemovals
            | Self::EmptyListIsWildcard
            | Self::KeepsWildcard
            | Self::SharedNames
            | Self::KeepsKnownNames
            | Self::UnsetWildcard
            | Self::ComparesText
            | Self::InitialResources => false,
        }
    }

    fn apply(self, server: &mut ServerBehavior, seed: u64) {
        let settings = &mut server.settings;
        let behavior = &mut settings.behavior;
        match self {
            Self::IgnoreNamesInNack => behavior.ignore_names_in_nack = true,
            Self::SkipKnownVersions => behavior.skip_known_versions = true,
            Self::ResendKnownVersions => settings.ignore_initial_versions = true,
            // Who reads no names from a NACK does not answer it either (istiod, Consul): names that always cross the next
            // response would never be read.
            Self::ResendAfterNack => {
                behavior.ignore_names_in_nack = false;
                behavior.after_nack = AfterNack::SameResources;
            }
            Self::SilenceAfterNack => behavior.after_nack = AfterNack::Silence,
            Self::ShuffleResources => behavior.shuffle_resources = Some(seed),
            Self::HeartbeatsAfterExpiry => behavior.heartbeats_after_expiry = true,
            Self::UnknownType => {
                behavior.unknown_types.insert(Ty::ALL[(seed % 2) as usize].url().to_owned());
            }
            Self::EndsCleanly => server.ends_cleanly = true,
            Self::LegacyWildcardOnly => behavior.legacy_wildcard_only = true,
            Self::EmptyVersions => behavior.empty_resource_versions = true,
            Self::NewNamesWithNextVersion => behavior.new_names_with_next_version = true,
            Self::UnsolicitedResources => behavior.unsolicited_resources = true,
            Self::SendTwice => behavior.send_twice = true,
            Self::AllNamesOnly => behavior.all_names_only = true,
            Self::EndsOverLimit => server.ends_over_limit = true,
            Self::FallingVersions => server.versions = Versions::Falling,
            Self::OneVersionForAll => server.versions = Versions::OneForAll,
            Self::RepeatedVersions => server.repeats_versions = true,
            Self::ConstantNonces => behavior.constant_nonces = true,
            Self::ResendAfterNackLater => {
                behavior.ignore_names_in_nack = false;
                behavior.after_nack = AfterNack::SameResourcesLater;
            }
            Self::UnsolicitedRemovals => behavior.unsolicited_removals = true,
            Self::EmptyListIsWildcard => behavior.empty_list_is_wildcard = true,
            Self::KeepsWildcard => behavior.keeps_wildcard = true,
            Self::HeartbeatsAfterNack => behavior.heartbeats_after_nack = true,
            Self::HeartbeatsChangeTtl => behavior.heartbeats_change_ttl = true,
            Self::KeepsKnownNames => behavior.keeps_known_names = true,
            Self::UnsetWildcard => (behavior.legacy_wildcard_only, behavior.unset_wildcard) = (true, true),
            Self::ComparesText => behavior.compares_text = true,
            // It is one of the world.
            Self::SharedNames | Self::InitialResources => {}
            Self::SplitResponses => settings.max_per_response = Some(1 + (seed % 2) as usize),
        }
    }
}

impl Rule {
    const ALL: [Self; 5] =
        [Self::NackNames, Self::NackRate, Self::AnswerAtOnce, Self::Claims, Self::Requests];
}

/// The freedoms with which all worlds pass.
const FREEDOMS: &[Freedom] = &Freedom::ALL;

/// The rules to which the client keeps in all worlds.
const RULES: &[Rule] = &Rule::ALL;
