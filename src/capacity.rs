//! The release of capacity that a burst has needed.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, Hash},
};

/// A container that may have more capacity than it needs.
pub(crate) trait Shrink {
    /// Releases most of the capacity if little of it is used. To be called after a removal; the amortized cost is
    /// constant.
    fn shrink_if_sparse(&mut self);
}

/// The capacity to keep, if a release is worthwhile.
fn target(len: usize, capacity: usize) -> Option<usize> {
    (capacity > LEAST && len < capacity / 8).then_some((2 * len).max(LEAST / 2))
}

impl<T> Shrink for Vec<T> {
    fn shrink_if_sparse(&mut self) {
        if let Some(room) = target(self.len(), self.capacity()) {
            self.shrink_to(room);
        }
    }
}

impl<T> Shrink for VecDeque<T> {
    fn shrink_if_sparse(&mut self) {
        if let Some(room) = target(self.len(), self.capacity()) {
            self.shrink_to(room);
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Shrink for HashMap<K, V, S> {
    fn shrink_if_sparse(&mut self) {
        if let Some(room) = target(self.len(), self.capacity()) {
            self.shrink_to(room);
        }
    }
}

/// The minimum capacity for which a release is worthwhile.
const LEAST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_burst_has_needed_is_given_back_and_little_is_kept() {
        let mut queue: VecDeque<_> = (0..100_000).collect();
        let mut shrunk = 0;
        while queue.pop_front().is_some() {
            let before = queue.capacity();
            queue.shrink_if_sparse();
            shrunk += usize::from(queue.capacity() < before);
        }
        assert!(queue.capacity() <= LEAST, "{}", queue.capacity());
        assert!((2..10).contains(&shrunk), "{shrunk}");
        let mut map: HashMap<_, _> = (0..100_000).map(|number| (number, ())).collect();
        for number in 0..99_990 {
            map.remove(&number);
            map.shrink_if_sparse();
        }
        assert!(map.len() == 10 && map.capacity() <= 2 * LEAST, "{}", map.capacity());
        let mut list = vec![0; 100_000];
        list.truncate(1_000);
        list.shrink_if_sparse();
        assert!((1_000..4_000).contains(&list.capacity()), "{}", list.capacity());
    }
}
