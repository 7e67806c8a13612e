//! The filters of one stream.

use std::{mem, ops::Range, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{AttemptResponse, Decision, FilterAttempt, FilterChain, FilterRequest, Hooks, Slot};

/// The filters of a chain with what they keep for a stream.
///
/// An index is that of a filter in the chain. See [`StreamFilter`](super::StreamFilter) for the hooks.
pub(crate) struct StreamFilters {
    chain: Arc<FilterChain>,
    slots: Slots,
}

/// The slots of the filters that have a state.
#[derive(Default)]
struct Slots {
    /// The slot of the first of these filters. Most chains have no other, and their streams allocate nothing for it.
    first: Slot,
    /// The slots of the others, as far as they are used.
    others: Vec<Slot>,
    /// The slot of all filters without a state.
    empty: Slot,
}

impl StreamFilters {
    /// The filters of a stream that begins.
    pub(crate) fn new(chain: Arc<FilterChain>) -> Self {
        Self { chain, slots: Slots::default() }
    }

    /// Takes the slots of some filters, for hooks that are called later.
    pub(crate) fn take(&mut self, filters: Range<usize>) -> Self {
        let mut taken = Slots::default();
        for index in filters {
            // Filters without a state share a slot, which may be swapped without an effect.
            mem::swap(taken.of(&self.chain, index), self.slots.of(&self.chain, index));
        }
        Self { chain: self.chain.clone(), slots: taken }
    }

    /// Returns the chain.
    pub(crate) fn chain(&self) -> &Arc<FilterChain> {
        &self.chain
    }

    /// Returns the number of filters, at least 1.
    pub(crate) fn len(&self) -> usize {
        self.chain.filters().len()
    }

    /// Returns the hooks that some of the filters have.
    pub(crate) fn hooks(&self) -> Hooks {
        self.chain.hooks()
    }

    /// Passes the request to a filter.
    pub(crate) fn on_request<'a>(
        &'a mut self,
        index: usize,
        request: &'a mut FilterRequest<'_>,
    ) -> Decision<'a> {
        let Self { chain, slots } = self;
        chain.filters()[index].on_request(slots.of(chain, index), request)
    }

    /// Adds a credential of the handler at a filter.
    pub(crate) fn add_credential(&mut self, index: usize, name: HeaderName, value: HeaderValue) {
        let Self { chain, slots } = self;
        chain.filters()[index].add_credential(slots.of(chain, index), name, value);
    }

    /// Whether a filter adds credentials to the request.
    pub(crate) fn have_credentials(&mut self) -> bool {
        let Self { chain, slots } = self;
        let mut filters = chain.filters().iter().enumerate();
        filters.any(|(index, filter)| filter.has_credentials(slots.of(chain, index)))
    }

    /// Adds the credentials of a filter to an attempt.
    pub(crate) fn credentials<'a>(&'a mut self, index: usize, attempt: FilterAttempt<'a>) -> Decision<'a> {
        let Self { chain, slots } = self;
        chain.filters()[index].credentials(slots.of(chain, index), attempt)
    }

    /// Passes the response of an endpoint to all filters.
    pub(crate) fn on_attempt_response(&mut self, response: &mut AttemptResponse<'_>) {
        let Self { chain, slots } = self;
        for (index, filter) in chain.filters().iter().enumerate() {
            filter.on_attempt_response(slots.of(chain, index), response);
        }
    }

    /// Passes the headers of the response to some filters, the last one first.
    pub(crate) fn on_response(&mut self, filters: Range<usize>, headers: &mut HeaderMap) {
        let Self { chain, slots } = self;
        for index in filters.rev() {
            chain.filters()[index].on_response(slots.of(chain, index), headers);
        }
    }

    /// Passes the trailers of the response to some filters, the last one first.
    pub(crate) fn on_trailers(&mut self, filters: Range<usize>, trailers: &mut HeaderMap) {
        let Self { chain, slots } = self;
        for index in filters.rev() {
            chain.filters()[index].on_trailers(slots.of(chain, index), trailers);
        }
    }
}

impl Slots {
    /// Returns the slot of a filter.
    fn of(&mut self, chain: &FilterChain, index: usize) -> &mut Slot {
        let filters = chain.filters();
        if !filters[index].has_state() {
            return &mut self.empty;
        }
        // Counted at each hook: chains are short, and a table of indices would be an allocation.
        match filters[..index].iter().filter(|filter| filter.has_state()).count() {
            0 => &mut self.first,
            number => {
                if self.others.len() < number {
                    self.others.resize_with(number, Slot::default);
                }
                &mut self.others[number - 1]
            }
        }
    }
}
