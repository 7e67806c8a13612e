//! What remains of a filter under an override.

use super::{
    Custom, CustomFilter, Fault, FilterOverride, GcpAuthn, HttpFilter, HttpFilterConfig, HttpFilterOverride,
    OverrideSetting, Rbac, RbacRules, SessionCookie, StatefulSession,
};

/// What an [`HttpFilter`] does where an override is looked at too: made by [`HttpFilter::effective`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum EffectiveFilter<'a> {
    /// Nothing: the filter is disabled, or its configuration says that there is nothing to do.
    Nothing,
    /// It sends the request along the route.
    Router,
    /// It delays and aborts requests.
    Fault(&'a Fault),
    /// It lets only some requests pass.
    Rbac(&'a RbacRules),
    /// It keeps the requests of a session on one endpoint, by this cookie.
    StatefulSession(&'a SessionCookie),
    /// It gives requests identity tokens.
    GcpAuthn(&'a GcpAuthn),
    /// What a filter of the application's own does, which combines both itself.
    #[non_exhaustive]
    Custom {
        /// As in the listener.
        filter: &'a CustomFilter,
        /// The override, of the type that the filter's [`HttpFilterExtension`](super::HttpFilterExtension) names.
        setting: Option<&'a Custom>,
    },
}

impl HttpFilter {
    /// The override that wins where each of these levels has some, the most specific level first: those of the split, the
    /// route and the virtual host (A39-6).
    ///
    /// One for another kind of filter is of no use to it, and skipped. Each level is sorted by filter, as it comes.
    ///
    /// ```
    /// use xdskit::resource::{
    ///     VirtualHost,
    ///     http_filter::{EffectiveFilter, HttpFilter},
    ///     route::Route,
    /// };
    ///
    /// /// What a filter of a server does with the requests on a route.
    /// fn on_route<'a>(filter: &'a HttpFilter, host: &'a VirtualHost, route: &'a Route) -> EffectiveFilter<'a> {
    ///     filter.effective(filter.winning_override(&[&route.filter_overrides, &host.filter_overrides]))
    /// }
    /// ```
    pub fn winning_override<'a>(&self, levels: &[&'a [FilterOverride]]) -> Option<&'a OverrideSetting> {
        levels.iter().find_map(|level| {
            let index = level.binary_search_by(|o| o.filter.cmp(&self.name)).ok()?;
            Some(&level[index].setting).filter(|setting| self.config.takes(setting))
        })
    }

    /// What the filter does where `setting` is its most specific override (A39-6), or where it has none.
    ///
    /// An override for another kind of filter counts as none.
    pub fn effective<'a>(&'a self, setting: Option<&'a OverrideSetting>) -> EffectiveFilter<'a> {
        match setting.filter(|setting| self.config.takes(setting)) {
            None if self.disabled => EffectiveFilter::Nothing,
            None => self.config.by_itself(),
            Some(OverrideSetting::Disabled) => EffectiveFilter::Nothing,
            Some(OverrideSetting::Config(other)) => self.config.replaced_by(other),
        }
    }
}

impl HttpFilterConfig {
    /// Whether an override is of use to the filter.
    fn takes(&self, setting: &OverrideSetting) -> bool {
        let OverrideSetting::Config(setting) = setting else { return true };
        match (self, setting) {
            (Self::Fault(_), HttpFilterOverride::Fault(_))
            | (Self::Rbac(_), HttpFilterOverride::Rbac(_))
            | (Self::StatefulSession(_), HttpFilterOverride::StatefulSession(_))
            | (Self::GcpAuthn(_), HttpFilterOverride::GcpAuthn(_)) => true,
            (Self::Custom(filter), HttpFilterOverride::Custom(setting)) => filter.takes(setting),
            (
                Self::Router
                | Self::Fault(_)
                | Self::Rbac(_)
                | Self::StatefulSession(_)
                | Self::GcpAuthn(_)
                | Self::Custom(_),
                HttpFilterOverride::Fault(_)
                | HttpFilterOverride::Rbac(_)
                | HttpFilterOverride::StatefulSession(_)
                | HttpFilterOverride::GcpAuthn(_)
                | HttpFilterOverride::Custom(_),
            ) => false,
        }
    }

    fn by_itself(&self) -> EffectiveFilter<'_> {
        match self {
            Self::Router => EffectiveFilter::Router,
            Self::Fault(fault) => EffectiveFilter::Fault(fault),
            Self::Rbac(rbac) => EffectiveFilter::of_rbac(rbac),
            Self::StatefulSession(session) => EffectiveFilter::of_session(session),
            Self::GcpAuthn(authn) => EffectiveFilter::GcpAuthn(authn),
            Self::Custom(filter) => EffectiveFilter::Custom { filter, setting: None },
        }
    }

    /// `setting` is of use to the filter.
    fn replaced_by<'a>(&'a self, setting: &'a HttpFilterOverride) -> EffectiveFilter<'a> {
        match setting {
            HttpFilterOverride::Fault(fault) => EffectiveFilter::Fault(fault),
            // Rule H9: an override without rules switches the filter off.
            HttpFilterOverride::Rbac(route) => {
                route.rbac.as_ref().map_or(EffectiveFilter::Nothing, EffectiveFilter::of_rbac)
            }
            HttpFilterOverride::StatefulSession(route) => {
                route.session.as_ref().map_or(EffectiveFilter::Nothing, EffectiveFilter::of_session)
            }
            HttpFilterOverride::GcpAuthn(_) => self.by_itself(),
            HttpFilterOverride::Custom(setting) => match self {
                Self::Custom(filter) => EffectiveFilter::Custom { filter, setting: Some(setting) },
                Self::Router
                | Self::Fault(_)
                | Self::Rbac(_)
                | Self::StatefulSession(_)
                | Self::GcpAuthn(_) => self.by_itself(),
            },
        }
    }
}

impl<'a> EffectiveFilter<'a> {
    fn of_rbac(rbac: &'a Rbac) -> Self {
        rbac.rules.as_ref().map_or(Self::Nothing, Self::Rbac)
    }

    fn of_session(session: &'a StatefulSession) -> Self {
        session.cookie.as_ref().map_or(Self::Nothing, Self::StatefulSession)
    }
}
