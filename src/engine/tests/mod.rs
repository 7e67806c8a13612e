mod batches;
mod collection_alternatives;
mod context;
mod costs;
mod delta;
mod envelopes;
mod failures;
mod fallback;
mod globs;
mod globs_fallback;
mod initial;
mod lists;
mod matrix;
mod metrics;
mod names;
mod operations;
mod polls;
mod redirects;
mod rejections;
mod requests;
mod resolutions;
mod responses;
mod rig;
mod scale;
mod shared_names;
mod silence;
mod simulation;
mod sources;
mod status;
mod timers;
mod traffic;
mod ttl;
mod versions;
mod wildcard;
mod wildcard_and_names;

use super::{Engine, ingest};

impl Engine {
    /// The counts of the work.
    fn work_counters(&self) -> ingest::WorkCounters {
        self.ingest.work_counters()
    }

    /// The number of resources that are held, waited for or known to be missing.
    fn resources(&self) -> usize {
        self.store.len()
    }
}
