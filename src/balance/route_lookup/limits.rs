//! The limits of route lookup.

/// The largest quantities of route lookup (RLS) in a channel, for `ChannelBuilder::lookup_limits`. Each of them is at least 1.
///
/// The number of plugins is that of the channel, and the other limits are those of each plugin.
///
/// ```
/// use xdskit::channel::LookupLimits;
///
/// let limits = LookupLimits::new().with_pending_lookups(100).with_cache_size(1 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupLimits {
    pub(crate) plugins: usize,
    pub(crate) pending_lookups: usize,
    pub(crate) cache_size: usize,
    pub(crate) clusters: usize,
    pub(crate) key_size: usize,
    pub(crate) response_size: usize,
    pub(crate) response_targets: usize,
    pub(crate) header_data_size: usize,
}

impl LookupLimits {
    /// The default limits.
    pub const fn new() -> Self {
        Self {
            plugins: 100,
            pending_lookups: 1000,
            cache_size: 5 << 20,
            clusters: 1000,
            key_size: 16 << 10,
            response_size: 64 << 10,
            response_targets: 16,
            header_data_size: 16 << 10,
        }
    }

    /// Sets how many plugins of the routes are executed: 100 by default. Calls on the routes of further ones fail with UNAVAILABLE; those
    /// that are executed already stay.
    #[must_use]
    pub const fn with_plugins(self, plugins: usize) -> Self {
        Self { plugins: at_least_one(plugins), ..self }
    }

    /// Sets how many lookups are under way at a time: 1,000 by default. Calls with further keys are those of failed lookups.
    #[must_use]
    pub const fn with_pending_lookups(self, lookups: usize) -> Self {
        Self { pending_lookups: at_least_one(lookups), ..self }
    }

    /// Sets the size of the cache in bytes: 5 MiB by default, which is also the largest `cache_size_bytes` of a configuration. A larger one
    /// is reduced to the limit. The responses of the last 5 s may take as much again.
    #[must_use]
    pub const fn with_cache_size(self, bytes: usize) -> Self {
        Self { cache_size: at_least_one(bytes), ..self }
    }

    /// Sets how many clusters the cached responses name together: 1,000 by default. A response with further ones is a failed lookup.
    #[must_use]
    pub const fn with_clusters(self, clusters: usize) -> Self {
        Self { clusters: at_least_one(clusters), ..self }
    }

    /// Sets the size of the path and the keys of a request in bytes: 16 KiB by default. A request with larger ones is not looked up: its
    /// call is that of a failed lookup.
    #[must_use]
    pub const fn with_key_size(self, bytes: usize) -> Self {
        Self { key_size: at_least_one(bytes), ..self }
    }

    /// Sets the size of the message of a response in bytes: 64 KiB by default. A larger one is a failed lookup.
    #[must_use]
    pub const fn with_response_size(self, bytes: usize) -> Self {
        Self { response_size: at_least_one(bytes), ..self }
    }

    /// Sets how many clusters of a response are used: the first 16 by default.
    #[must_use]
    pub const fn with_response_targets(self, targets: usize) -> Self {
        Self { response_targets: at_least_one(targets), ..self }
    }

    /// Sets the size of the header data of a response in bytes: 16 KiB by default. Larger ones are left out, with a warning, and the calls
    /// have no header `x-google-rls-data`: many servers refuse requests with more headers.
    #[must_use]
    pub const fn with_header_data_size(self, bytes: usize) -> Self {
        Self { header_data_size: at_least_one(bytes), ..self }
    }
}

impl Default for LookupLimits {
    fn default() -> Self {
        Self::new()
    }
}

/// Without anything permitted, no call would be looked up.
const fn at_least_one(number: usize) -> usize {
    if number == 0 { 1 } else { number }
}
