//! The predicted position of a resource of a response: behind the one before it, in the order of the last response.

use crate::protocol::SubId;

/// The prediction of the next resource by the order of the last response.
///
/// Each resource that was added, removed or moved costs a search by name or two, and then the order is followed again
/// from the position of the one that was found. A random order is not followed, so that no prediction is made in vain.
#[derive(Debug, Default)]
pub(super) struct OrderPredictor {
    /// The predicted position of the next resource.
    next: usize,
    /// The number of wrong predictions in a row.
    wrong: u8,
}

impl OrderPredictor {
    /// The predicted resource, if the order is reliable.
    pub(super) fn next(&self, order: &[SubId]) -> Option<SubId> {
        if self.wrong < MAX_WRONG { order.get(self.next).copied() } else { None }
    }

    /// The prediction was right.
    pub(super) fn on_right(&mut self) {
        (self.next, self.wrong) = (self.next + 1, 0);
    }

    /// The resource had to be searched for, and its position in the last response that contained it was `stood`.
    pub(super) fn on_found(&mut self, found: SubId, stood: u32, order: &[SubId]) {
        if order.get(self.next) == Some(&found) {
            return self.on_right();
        }
        self.wrong = self.wrong.saturating_add(1);
        if order.get(stood as usize) == Some(&found) {
            self.next = stood as usize;
        }
        self.next += 1;
    }
}

/// The number of wrong predictions in a row after which the order is unreliable, until a prediction would have been right.
const MAX_WRONG: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of searches when the resources of `order` come in another one.
    fn searched(order: &[u32], comes: &[u32]) -> usize {
        let order: Vec<_> = order.iter().copied().map(SubId).collect();
        let mut predictor = OrderPredictor::default();
        let right = comes.iter().map(|sub| SubId(*sub)).filter(|sub| {
            let is_right = predictor.next(&order) == Some(*sub);
            match (is_right, order.iter().position(|other| other == sub)) {
                (true, _) => predictor.on_right(),
                (false, Some(stood)) => predictor.on_found(*sub, stood as u32, &order),
                (false, None) => {}
            }
            is_right
        });
        comes.len() - right.count()
    }

    #[test]
    fn an_order_that_is_shifted_is_followed_on() {
        let order: Vec<u32> = (0..100).collect();
        assert_eq!(searched(&order, &order), 0);
        assert_eq!(searched(&order, &order[1..]), 1, "one is gone");
        let mut more = order.clone();
        more.insert(50, 1000);
        assert_eq!(searched(&order, &more), 1, "one is new");
        let mut moved = order.clone();
        moved.swap(10, 80);
        assert_eq!(searched(&order, &moved), 6, "two have changed places");
        let mut halves = order.clone();
        halves.rotate_left(50);
        assert_eq!(searched(&order, &halves), 2, "what was first is last");
    }

    #[test]
    fn an_order_that_is_random_is_not_relied_on() {
        let order: Vec<u32> = (0..100).collect();
        let reversed: Vec<u32> = (0..100).rev().collect();
        assert_eq!(searched(&order, &reversed), 100);
        let order: Vec<_> = order.into_iter().map(SubId).collect();
        let mut predictor = OrderPredictor::default();
        for sub in [70, 30] {
            assert!(predictor.next(&order).is_some());
            predictor.on_found(SubId(sub), sub, &order);
        }
        assert_eq!(predictor.next(&order), None);
        predictor.on_found(SubId(31), 31, &order);
        assert_eq!(predictor.next(&order), Some(SubId(32)), "it foretold one, and is relied on again");
    }
}
