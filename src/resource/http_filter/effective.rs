//! The effect of a filter under an override.

use super::{EffectiveFilter, FilterOverride, HttpFilter, OverrideSetting};

impl HttpFilter {
    /// The override that wins where each of these levels has some, the most specific level first: those of the split, the
    /// route and the virtual host.
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
        self.overrides(levels).next()
    }

    /// The overrides of all levels that are for this filter, and for its kind of filter, in the order of the levels.
    pub(crate) fn overrides<'a>(
        &self,
        levels: &[&'a [FilterOverride]],
    ) -> impl Iterator<Item = &'a OverrideSetting> {
        levels.iter().filter_map(|level| {
            let index = level.binary_search_by(|o| o.filter.cmp(&self.name)).ok()?;
            Some(&level[index].setting).filter(|setting| self.under(setting).is_some())
        })
    }

    /// What the filter does where `setting` is its most specific override, or where it has none.
    ///
    /// An override for another kind of filter counts as none.
    pub fn effective<'a>(&'a self, setting: Option<&'a OverrideSetting>) -> EffectiveFilter<'a> {
        match setting.and_then(|setting| self.under(setting)) {
            Some(effective) => effective,
            None if self.disabled => EffectiveFilter::Nothing,
            None => self.config.by_itself(),
        }
    }

    /// The effect of the filter under an override; `None` if the override is for another type of filter.
    fn under<'a>(&'a self, setting: &'a OverrideSetting) -> Option<EffectiveFilter<'a>> {
        match setting {
            OverrideSetting::Disabled => Some(EffectiveFilter::Nothing),
            OverrideSetting::Config(setting) => self.config.under(setting),
        }
    }
}
