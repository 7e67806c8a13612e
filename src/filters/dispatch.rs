//! The enums over all filters, which pass each hook on to the filter. Streams run filters without a virtual call.

/// Generates [`Filter`](super::Filter), the slots of filters in the state of a stream, and the hooks of both, from a list of the
/// filters. A filter may be compiled with a feature alone.
macro_rules! filters {
    ($($(#[doc = $doc:literal])* $(#[cfg($cfg:meta)])? $name:ident($module:ident::$filter:ident),)+) => {
        /// A filter with its effective configuration.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) enum Filter {
            $($(#[doc = $doc])* $(#[cfg($cfg)])? $name($module::$filter),)+
        }

        /// What a filter keeps for a stream.
        #[cfg(feature = "channel")]
        #[derive(Default)]
        pub(crate) enum Slot {
            /// No filter has used the slot.
            #[default]
            Unused,
            $($(#[cfg($cfg)])? $name(Option<<$module::$filter as StreamFilter>::State>),)+
        }

        #[cfg(feature = "channel")]
        impl Slot {
            // The slot is that of one filter, or of all filters without a state, which take it over from each other.
            $(
                $(#[cfg($cfg)])?
                /// The state of a filter of this type; never `None`.
                fn $module(&mut self) -> Option<&mut Option<<$module::$filter as StreamFilter>::State>> {
                    if !matches!(self, Self::$name(_)) {
                        *self = Self::$name(None);
                    }
                    if let Self::$name(state) = self { Some(state) } else { None }
                }
            )+
        }

        impl Filter {
            /// Compiles a filter of the listener for a route, by the first filter of the list that knows its configuration.
            fn compile<'a>(
                effective: EffectiveFilter<'_>,
                site: &FilterSite<'a, '_>,
                compiling: &mut Compiling<'a>,
            ) -> Compiled<Self> {
                $($(#[cfg($cfg)])? match $module::$filter::compile(effective, site, compiling) {
                    Compiled::Unknown => {}
                    Compiled::WithoutEffect => return Compiled::WithoutEffect,
                    Compiled::Filter(filter) => return Compiled::Filter(Self::$name(filter)),
                })+
                Compiled::Unknown
            }
        }

        #[cfg(feature = "channel")]
        impl Filter {
            /// Whether the filter needs a slot.
            fn has_state(&self) -> bool {
                match self {
                    $($(#[cfg($cfg)])? Self::$name(_) => size_of::<<$module::$filter as StreamFilter>::State>() > 0,)+
                }
            }

            /// See [`StreamFilter::hooks`].
            fn hooks(&self) -> Hooks {
                match self {
                    $($(#[cfg($cfg)])? Self::$name(filter) => filter.hooks(),)+
                }
            }

            /// See [`StreamFilter::on_request`].
            fn on_request<'a>(&'a self, slot: &'a mut Slot, request: &'a mut FilterRequest<'_>) -> Decision<'a> {
                match self {
                    $($(#[cfg($cfg)])? Self::$name(filter) => match slot.$module() {
                        Some(state) => filter.on_request(state, request),
                        None => Decision::Continue,
                    })+
                }
            }

            /// See [`StreamFilter::has_credentials`].
            fn has_credentials(&self, slot: &mut Slot) -> bool {
                match self {
                    $($(#[cfg($cfg)])? Self::$name(filter) => {
                        slot.$module().is_some_and(|state| filter.has_credentials(state.as_ref()))
                    })+
                }
            }

            /// See [`StreamFilter::credentials`].
            fn credentials<'a>(&'a self, slot: &'a mut Slot, attempt: FilterAttempt<'a>) -> Decision<'a> {
                match self {
                    $($(#[cfg($cfg)])? Self::$name(filter) => match slot.$module() {
                        Some(state) => filter.credentials(state, attempt),
                        None => Decision::Continue,
                    })+
                }
            }

            /// See [`StreamFilter::on_attempt_response`].
            fn on_attempt_response(&self, slot: &mut Slot, response: &mut AttemptResponse<'_>) {
                match self {
                    $($(#[cfg($cfg)])? Self::$name(filter) => {
                        if let Some(state) = slot.$module() {
                            filter.on_attempt_response(state, response);
                        }
                    })+
                }
            }

            /// See [`StreamFilter::on_response`].
            fn on_response(&self, slot: &mut Slot, headers: &mut HeaderMap) {
                match self {
                    $($(#[cfg($cfg)])? Self::$name(filter) => {
                        if let Some(state) = slot.$module() {
                            filter.on_response(state, headers);
                        }
                    })+
                }
            }

            /// See [`StreamFilter::on_trailers`].
            fn on_trailers(&self, slot: &mut Slot, trailers: &mut HeaderMap) {
                match self {
                    $($(#[cfg($cfg)])? Self::$name(filter) => {
                        if let Some(state) = slot.$module() {
                            filter.on_trailers(state, trailers);
                        }
                    })+
                }
            }

            /// See [`StreamFilter::handler`].
            fn handler(&self) -> Option<Handler<'_>> {
                match self {
                    $($(#[cfg($cfg)])? Self::$name(filter) => filter.handler(),)+
                }
            }

            /// See [`StreamFilter::add_credential`].
            fn add_credential(&self, slot: &mut Slot, name: HeaderName, value: HeaderValue) {
                match self {
                    $($(#[cfg($cfg)])? Self::$name(filter) => {
                        if let Some(state) = slot.$module() {
                            filter.add_credential(state, name, value);
                        }
                    })+
                }
            }
        }
    };
}

pub(super) use filters;
