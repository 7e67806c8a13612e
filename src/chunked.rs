//! Many things of one kind, in numbered places.

use std::mem;

/// Things in places that stay theirs until they are removed; what comes then may get a place that was left.
///
/// It grows by chunks of fixed size: nothing is moved for it, and no room is made for twice as many.
#[derive(Debug)]
pub(crate) struct Chunked<T> {
    chunks: Vec<Vec<Place<T>>>,
    /// Where the next one goes: a place that was left, or the one behind all others.
    next: u32,
    taken: usize,
}

#[derive(Debug)]
enum Place<T> {
    Taken(T),
    /// It was left, and so was this one before it, unless that is behind all others.
    Left(u32),
}

impl<T> Chunked<T> {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        let (chunk, place) = split(at);
        self.chunks.get(chunk)?.get(place)?.taken()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        let (chunk, place) = split(at);
        match self.chunks.get_mut(chunk)?.get_mut(place)? {
            Place::Taken(thing) => Some(thing),
            Place::Left(_) => None,
        }
    }

    /// Gives the place.
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        let at = self.next;
        let (chunk, place) = split(at);
        if chunk == self.chunks.len() {
            // The first one grows as it is used: most clients have little of anything.
            self.chunks.push(if chunk == 0 { Vec::new() } else { Vec::with_capacity(CHUNK) });
        }
        let chunk = &mut self.chunks[chunk];
        self.next = match chunk.get_mut(place) {
            Some(left) => match mem::replace(left, Place::Taken(thing)) {
                Place::Left(next) => next,
                Place::Taken(_) => unreachable!("the next place is not taken"),
            },
            None => {
                chunk.push(Place::Taken(thing));
                at + 1
            }
        };
        self.taken += 1;
        at
    }

    /// `None` when nothing is there.
    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let (chunk, place) = split(at);
        let place = self.chunks.get_mut(chunk)?.get_mut(place)?;
        if let Place::Left(_) = place {
            return None;
        }
        let removed = mem::replace(place, Place::Left(self.next));
        self.next = at;
        self.taken -= 1;
        removed.into_taken()
    }

    /// All, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> + Clone {
        let places = self.chunks.iter().flatten().zip(0..);
        places.filter_map(|(place, at)| Some((at, place.taken()?)))
    }

    /// All, in the order of their places.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let places = self.chunks.iter_mut().flatten().zip(0..);
        places.filter_map(|(place, at)| match place {
            Place::Taken(thing) => Some((at, thing)),
            Place::Left(_) => None,
        })
    }
}

impl<T> Place<T> {
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

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), next: 0, taken: 0 }
    }
}

fn split(at: u32) -> (usize, usize) {
    (at as usize / CHUNK, at as usize % CHUNK)
}

/// So many are some kilobytes.
const CHUNK: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_numbered_in_turn_and_those_left_last_are_taken_first() {
        let mut things = Chunked::default();
        let places: Vec<_> = (0..300).map(|thing| things.insert(thing)).collect();
        assert_eq!(places, (0..300).collect::<Vec<_>>());
        assert_eq!([7, 130, 130].map(|at| things.remove(at)), [Some(7), Some(130), None]);
        assert_eq!((things.len(), things.get(7)), (298, None));
        assert_eq!(things.get_mut(130), None);
        assert_eq!([1000, 1001, 1002].map(|thing| things.insert(thing)), [130, 7, 300]);
        assert_eq!(
            [130, 7, 299, 301].map(|at| things.get(at).copied()),
            [Some(1000), Some(1001), Some(299), None]
        );
    }

    #[test]
    fn all_are_gone_through_in_the_order_of_their_places() {
        let mut things = Chunked::default();
        (0..300).for_each(|thing| _ = things.insert(thing));
        (0..300).filter(|at| at % 3 > 0).for_each(|at| _ = things.remove(at));
        things.iter_mut().for_each(|(_, thing)| *thing += 1);
        let expected: Vec<_> = (0..300).step_by(3).map(|at| (at, at + 1)).collect();
        assert_eq!(things.iter().map(|(at, thing)| (at, *thing)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_room_is_made_for_more_than_a_chunk() {
        let mut things = Chunked::default();
        (0..10).for_each(|thing| _ = things.insert(thing));
        assert!(things.chunks[0].capacity() <= 16);
        (0..1_000).for_each(|thing| _ = things.insert(thing));
        let room: usize = things.chunks.iter().map(Vec::capacity).sum();
        assert_eq!(room, 1_010_usize.next_multiple_of(CHUNK));
    }
}
