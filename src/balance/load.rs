//! The attempts under way to each endpoint.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// The number of attempts under way to an endpoint, as long as it is listed (CH3.39).
#[derive(Debug, Clone)]
pub(crate) struct Load {
    block: Arc<Block>,
    /// The counter's place in the block, below [`BLOCK`].
    place: u8,
}

/// Makes the counters of a cluster's endpoints.
///
/// They stand close together, so that those of some thousand endpoints stay in the caches of a processor: a pick compares those of
/// random endpoints. A counter is never used again for another endpoint, whose attempts would be added to those still running.
#[derive(Debug, Default)]
pub(super) struct Loads {
    block: Arc<Block>,
    /// The number of places that were given to endpoints.
    used: u8,
}

/// Whole cache lines.
#[derive(Debug)]
#[repr(align(64))]
struct Block([AtomicU32; BLOCK]);

impl Loads {
    /// A counter for another endpoint.
    pub(super) fn add(&mut self) -> Load {
        if usize::from(self.used) == BLOCK {
            // The full block lives on with its counters.
            *self = Self::default();
        }
        let place = self.used;
        self.used += 1;
        Load { block: self.block.clone(), place }
    }
}

impl Load {
    /// The attempts under way.
    pub(crate) fn running(&self) -> u32 {
        self.counter().load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) {
        self.counter().fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the count of an attempt; to be called once for each [`begin`](Self::begin).
    pub(super) fn end(&self) {
        self.counter().fetch_sub(1, Ordering::Relaxed);
    }

    fn counter(&self) -> &AtomicU32 {
        // The remainder is the place itself, and spares the check of bounds.
        &self.block.0[usize::from(self.place) % BLOCK]
    }
}

/// Whether they are the same counter.
impl PartialEq for Load {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.block, &other.block) && self.place == other.place
    }
}

impl Default for Block {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; BLOCK])
    }
}

/// The counters of a block.
const BLOCK: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ch3_39_each_endpoint_has_a_counter_of_its_own() {
        let mut loads = Loads::default();
        let all: Vec<_> = (0..100).map(|_| loads.add()).collect();
        for (number, load) in all.iter().enumerate() {
            (0..number).for_each(|_| load.begin());
        }
        assert!(all.iter().enumerate().all(|(number, load)| load.running() as usize == number));
        all[3].clone().end();
        assert_eq!([all[3].running(), all[4].running()], [2, 4], "clones are the same counter");
    }
}
