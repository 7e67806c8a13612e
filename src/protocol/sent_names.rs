use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

/// The names that a server has sent on a stream, and that were not held then or were let go later.
///
/// Servers may take them to be known for as long as the stream lasts (go-control-plane up to 0.13.1), or at the version that they
/// were sent in (java-control-plane), and do not send them again then. So no version is claimed with such a name (B1.21).
#[derive(Debug, Default)]
pub(super) struct SentNames {
    /// Hashes, which take little memory whatever the names: of two names with the same one, the other is requested without a
    /// version as well, which does no harm.
    hashes: HashSet<u64>,
    /// There were too many. Any name may be one of them.
    is_full: bool,
}

impl SentNames {
    /// Adds a name; beyond the limit, all names count as added.
    pub(super) fn add(&mut self, name: &str) {
        if self.is_full {
            return;
        }
        self.hashes.insert(hash_of(name));
        if self.hashes.len() > MOST_SENT_NAMES {
            (self.hashes, self.is_full) = (HashSet::new(), true);
        }
    }

    /// Whether a name may be one of them.
    pub(super) fn may_contain(&self, name: &str) -> bool {
        self.is_full || self.contains(name)
    }

    /// Whether a name is one of them, as far as they are known.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.hashes.contains(&hash_of(name))
    }

    /// Whether there is room for more of them.
    pub(super) fn has_room(&self) -> bool {
        !self.is_full
    }
}

fn hash_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// The number of names that are told apart, for each type and stream.
const MOST_SENT_NAMES: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b1_21_names_are_told_apart_up_to_the_limit_and_all_are_known_past_it() {
        let mut sent = SentNames::default();
        assert!(!sent.may_contain("a"));
        for number in 0..MOST_SENT_NAMES {
            sent.add(&number.to_string());
        }
        assert!(sent.contains("0") && !sent.may_contain("a") && sent.has_room());
        sent.add("one more");
        assert!(sent.may_contain("a") && !sent.contains("0") && !sent.has_room());
        assert_eq!(sent.hashes.capacity(), 0, "nothing is kept of them");
    }
}
