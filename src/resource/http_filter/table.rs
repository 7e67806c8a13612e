//! The enums over the built-in types of HTTP filters.

/// Generates the enums of configurations, overrides and effective filters, and the list of built-in types, from one entry for
/// each type of filter. A router has neither settings nor overrides, and filters of applications are [`Custom`].
macro_rules! http_filters {
    ($(
        $(#[$config_doc:meta])*
        $filter:ident($config:ty),
        $(#[$override_doc:meta])*
        override($override:ty),
        $(#[$effective_doc:meta])*
        effective($effective:ty);
    )*) => {
        /// The configuration of an [`HttpFilter`]. In JSON, its type in snake case, as the key of its
        /// settings where it has any.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum HttpFilterConfig {
            /// Sends the request along the route; the last filter of a listener (A39-7).
            Router,
            $($(#[$config_doc])* $filter($config),)*
            /// A filter of the application.
            Custom(CustomFilter),
            /// A filter whose configuration is a resource of its own; not in the listeners of snapshots.
            Discovered(Arc<DiscoveredFilter>),
        }

        /// A replacement of a filter's configuration. It has no effect on a filter of another type.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum HttpFilterOverride {
            $($(#[$override_doc])* $filter($override),)*
            /// For [`HttpFilterConfig::Custom`].
            Custom(Custom),
        }

        /// The effect of an [`HttpFilter`] together with its override: made by
        /// [`HttpFilter::effective`].
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[non_exhaustive]
        pub enum EffectiveFilter<'a> {
            /// No effect: the filter is disabled, or its configuration has no rules.
            Nothing,
            /// Sends the request along the route.
            Router,
            $($(#[$effective_doc])* $filter(&'a $effective),)*
            /// A filter of the application, which combines both itself.
            #[non_exhaustive]
            Custom {
                /// The configuration in the listener.
                filter: &'a CustomFilter,
                /// The override, of the type in the filter's [`HttpFilterExtension`].
                setting: Option<&'a Custom>,
            },
            /// Not known: its configuration is a resource of its own. Snapshots have the configuration in its place.
            Discovered(&'a DiscoveredFilter),
        }

        /// The built-in types of filters.
        const BUILT_IN: &[FilterType] = &[
            FilterType::new::<Router>(
                |payload, cx| Router::parse(payload, cx).map(|Router| HttpFilterConfig::Router),
                |payload, cx| NoOverride::parse(payload, cx).map(|none| match none {}),
            ),
            $(FilterType::new::<$config>(
                |payload, cx| <$config>::parse(payload, cx).map(HttpFilterConfig::$filter),
                |payload, cx| <$override>::parse(payload, cx).map(HttpFilterOverride::$filter),
            ),)*
        ];

        impl HttpFilterConfig {
            /// The effect of the filter without an override.
            fn by_itself(&self) -> EffectiveFilter<'_> {
                match self {
                    Self::Router => EffectiveFilter::Router,
                    $(Self::$filter(config) => {
                        config.effective().map_or(EffectiveFilter::Nothing, EffectiveFilter::$filter)
                    })*
                    Self::Custom(filter) => EffectiveFilter::Custom { filter, setting: None },
                    Self::Discovered(filter) => EffectiveFilter::Discovered(filter),
                }
            }

            /// The effect of the filter under an override; `None` if the override is for another type of filter.
            fn under<'a>(&'a self, setting: &'a HttpFilterOverride) -> Option<EffectiveFilter<'a>> {
                match self {
                    Self::Router | Self::Discovered(_) => None,
                    $(Self::$filter(config) => {
                        let HttpFilterOverride::$filter(setting) = setting else { return None };
                        let effective = config.overridden(setting);
                        Some(effective.map_or(EffectiveFilter::Nothing, EffectiveFilter::$filter))
                    })*
                    Self::Custom(filter) => {
                        let HttpFilterOverride::Custom(setting) = setting else { return None };
                        let setting = Some(setting).filter(|setting| filter.takes(setting))?;
                        Some(EffectiveFilter::Custom { filter, setting: Some(setting) })
                    }
                }
            }
        }
    };
}

pub(super) use http_filters;
