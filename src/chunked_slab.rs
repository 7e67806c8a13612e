//! A slab: many values of one type, at stable indices.

use std::{collections::BTreeSet, mem};

use crate::capacity::Shrink;

/// A slab of values. An index stays valid until its value is removed, and is reused after that.
///
/// It grows by chunks of fixed size, without moving values or doubling its capacity. The first chunk with a free
/// place is filled first, and an empty chunk releases its memory.
#[derive(Debug)]
pub(crate) struct ChunkedSlab<T> {
    /// The chunks, whose places never move.
    chunks: Vec<Chunk<T>>,
    /// The chunks with free places or without allocated memory.
    with_room: BTreeSet<usize>,
    /// The number of values.
    taken: usize,
}

#[derive(Debug)]
struct Chunk<T> {
    /// The places that have been used so far.
    places: Vec<Slot<T>>,
    /// The next free place in the chunk: a vacated one, or the one after all others.
    next: u32,
    /// The number of values.
    taken: u32,
}

#[derive(Debug)]
enum Slot<T> {
    /// A value.
    Taken(T),
    /// Vacated; the number is the place that was vacated before it, or the one after all others.
    Left(u32),
}

impl<T> ChunkedSlab<T> {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    /// The number of allocated places.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.places.capacity()).sum()
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        let (chunk, place) = split(at);
        self.chunks.get(chunk)?.places.get(place)?.taken()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        let (chunk, place) = split(at);
        match self.chunks.get_mut(chunk)?.places.get_mut(place)? {
            Slot::Taken(thing) => Some(thing),
            Slot::Left(_) => None,
        }
    }

    /// Inserts a value and returns its index.
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        let index = self.with_room.first().copied().unwrap_or_else(|| {
            self.chunks.push(Chunk::default());
            self.with_room.insert(self.chunks.len() - 1);
            self.chunks.len() - 1
        });
        let chunk = &mut self.chunks[index];
        // The first chunk grows as it is used: most clients have few values of any type.
        if index > 0 && chunk.places.capacity() == 0 {
            chunk.places.reserve_exact(CHUNK);
        }
        let place = chunk.insert(thing);
        if chunk.taken as usize == CHUNK {
            self.with_room.remove(&index);
        }
        self.taken += 1;
        (index * CHUNK) as u32 + place
    }

    /// Removes a value; `None` if there is none.
    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let (index, place) = split(at);
        let chunk = self.chunks.get_mut(index)?;
        let removed = chunk.remove(place)?;
        self.taken -= 1;
        self.with_room.insert(index);
        if chunk.taken == 0 {
            *chunk = Chunk::default();
        }
        while let Some(Chunk { taken: 0, .. }) = self.chunks.last() {
            self.chunks.pop();
            self.with_room.remove(&self.chunks.len());
        }
        self.chunks.shrink_if_sparse();
        Some(removed)
    }

    /// Iterates over all values, in the order of their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> + Clone {
        self.chunks.iter().zip(0..).flat_map(|(chunk, index)| {
            let places = chunk.places.iter().zip(index * CHUNK as u32..);
            places.filter_map(|(place, at)| Some((at, place.taken()?)))
        })
    }

    /// Iterates over all values, in the order of their indices.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.chunks.iter_mut().zip(0..).flat_map(|(chunk, index)| {
            let places = chunk.places.iter_mut().zip(index * CHUNK as u32..);
            places.filter_map(|(place, at)| match place {
                Slot::Taken(thing) => Some((at, thing)),
                Slot::Left(_) => None,
            })
        })
    }
}

impl<T> Chunk<T> {
    fn insert(&mut self, thing: T) -> u32 {
        let at = self.next;
        self.next = match self.places.get_mut(at as usize) {
            Some(left) => match mem::replace(left, Slot::Taken(thing)) {
                Slot::Left(next) => next,
                Slot::Taken(_) => unreachable!("the next place is not taken"),
            },
            None => {
                self.places.push(Slot::Taken(thing));
                at + 1
            }
        };
        self.taken += 1;
        at
    }

    fn remove(&mut self, at: usize) -> Option<T> {
        let place = self.places.get_mut(at)?;
        place.taken()?;
        let removed = mem::replace(place, Slot::Left(self.next));
        self.next = at as u32;
        self.taken -= 1;
        removed.into_taken()
    }
}

impl<T> Default for Chunk<T> {
    fn default() -> Self {
        Self { places: Vec::new(), next: 0, taken: 0 }
    }
}

impl<T> Slot<T> {
    fn taken(&self) -> Option<&T> {
        match self {
            Self::Taken(thing) => Some(thing),
            Self::Left(_) => None,
        }
    }

    fn into_taken(self) -> Option<T> {
        match self {
            Self::Taken(thing) => Some(thing),
            Self::Left(_) => None,
        }
    }
}

impl<T> Default for ChunkedSlab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), with_room: BTreeSet::new(), taken: 0 }
    }
}

fn split(at: u32) -> (usize, usize) {
    (at as usize / CHUNK, at as usize % CHUNK)
}

/// The number of places in a chunk, which amounts to some kilobytes.
const CHUNK: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_numbered_in_turn_and_those_left_are_taken_first() {
        let mut things = ChunkedSlab::default();
        let places: Vec<_> = (0..300).map(|thing| things.insert(thing)).collect();
        assert_eq!(places, (0..300).collect::<Vec<_>>());
        assert_eq!([7, 130, 130].map(|at| things.remove(at)), [Some(7), Some(130), None]);
        assert_eq!((things.len(), things.get(7)), (298, None));
        assert_eq!(things.get_mut(130), None);
        assert_eq!([1000, 1001, 1002].map(|thing| things.insert(thing)), [7, 130, 300]);
        assert_eq!(
            [7, 130, 299, 301].map(|at| things.get(at).copied()),
            [Some(1000), Some(1001), Some(299), None]
        );
    }

    #[test]
    fn all_are_gone_through_in_the_order_of_their_places() {
        let mut things = ChunkedSlab::default();
        (0..300).for_each(|thing| _ = things.insert(thing));
        (0..300).filter(|at| at % 3 > 0).for_each(|at| _ = things.remove(at));
        things.iter_mut().for_each(|(_, thing)| *thing += 1);
        let expected: Vec<_> = (0..300).step_by(3).map(|at| (at, at + 1)).collect();
        assert_eq!(things.iter().map(|(at, thing)| (at, *thing)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_room_is_made_for_more_than_a_chunk() {
        let mut things = ChunkedSlab::default();
        (0..10).for_each(|thing| _ = things.insert(thing));
        assert!(things.room() <= 16);
        (0..1_000).for_each(|thing| _ = things.insert(thing));
        assert_eq!(things.room(), 1_010_usize.next_multiple_of(CHUNK));
    }

    #[test]
    fn what_a_burst_has_needed_is_given_back() {
        let mut things = ChunkedSlab::default();
        (0..100_000_u32).for_each(|thing| _ = things.insert(thing));
        (0..100_000).filter(|at| *at != 50_000).for_each(|at| _ = things.remove(at));
        assert_eq!((things.len(), things.room(), things.get(50_000)), (1, CHUNK, Some(&50_000)));
        assert_eq!([1, 2].map(|thing| things.insert(thing)), [0, 1], "the first chunk is filled first");
        assert_eq!([0, 1, 50_000].map(|at| things.remove(at)), [Some(1), Some(2), Some(50_000)]);
        assert_eq!((things.len(), things.room(), things.iter().count()), (0, 0, 0));
        assert_eq!(things.insert(3), 0);
    }

    /// Compares a slab with a plain map.
    #[test]
    fn places_hold_what_was_put_there_whatever_comes_and_goes() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut things, mut model) = (ChunkedSlab::default(), std::collections::BTreeMap::new());
        for step in 0..20_000_u32 {
            let removes = random.usize(..2_000) < model.len();
            let at = random.u32(..2_000);
            if removes {
                assert_eq!(things.remove(at), model.remove(&at));
            } else {
                assert_eq!(model.insert(things.insert(step), step), None, "a place is given once");
            }
        }
        assert!(things.iter().map(|(at, thing)| (at, *thing)).eq(model));
    }
}
