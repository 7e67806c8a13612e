//! An index that finds the routes whose paths may match, without a scan of the others.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use super::Route;
use crate::resource::matcher::{PathPattern, Span, Trie};

/// The routes of a table by their paths or prefixes.
///
/// It returns candidates in order, and never omits a route that matches.
#[derive(Debug)]
pub(super) struct PathIndex {
    /// Case-sensitive paths, and regular expressions by their literal prefixes.
    as_written: Paths,
    /// Case-insensitive paths, in lower case.
    in_lower_case: Paths,
    /// Regular expressions without a literal prefix.
    rest: Box<[u32]>,
}

/// The positions of routes by keys, which are paths or prefixes.
#[derive(Debug)]
struct Paths {
    /// The paths and prefixes.
    keys: Trie,
    /// The spots of the keys, by the number of the key.
    spots: Box<[Spot]>,
    /// The routes of all keys.
    places: Box<[u32]>,
}

/// The routes of one key; spans are ranges of `places`, each in ascending order.
#[derive(Debug)]
struct Spot {
    /// The routes for which the key is the whole path.
    whole: Span,
    /// The routes for which the key is a prefix.
    prefix: Span,
    /// The longest shorter key that is a prefix of the key and has routes that can still win.
    shorter: Option<u32>,
}

/// The indexed properties of a route.
struct Entry<'a> {
    /// The path or the prefix.
    key: Cow<'a, [u8]>,
    /// The route.
    place: u32,
    /// Whether the key is the whole path.
    is_whole: bool,
    /// Whether the route has no conditions beside the key.
    is_all: bool,
}

impl PathIndex {
    /// Builds the index; `None` for tables that are scanned as quickly.
    pub(super) fn new(routes: &[Route]) -> Option<Self> {
        if routes.len() <= FEW {
            return None;
        }
        let (mut as_written, mut in_lower_case, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for (route, place) in routes.iter().zip(0..) {
            let matcher = &route.matcher;
            let is_all = matcher.headers.is_empty() && matcher.fraction.is_none();
            let keys: [Option<(Cow<'_, [u8]>, bool)>; 2] = match &matcher.path.pattern {
                PathPattern::Exact(text) => [Some((text.as_bytes().into(), true)), None],
                PathPattern::Prefix(text) => [Some((text.as_bytes().into(), false)), None],
                // Two keys; no path matches both.
                PathPattern::PathSeparatedPrefix(text) => {
                    let below = format!("{text}/").into_bytes();
                    [Some((text.as_bytes().into(), true)), Some((below.into(), false))]
                }
                PathPattern::SafeRegex(regex) => {
                    match regex.literal_start() {
                        start if start.is_empty() => rest.push(place),
                        // Never the whole condition: the rest of the pattern decides.
                        start => as_written.push(Entry {
                            key: start.into(),
                            place,
                            is_whole: false,
                            is_all: false,
                        }),
                    }
                    continue;
                }
            };
            for (key, is_whole) in keys.into_iter().flatten() {
                if matcher.path.case_sensitive {
                    as_written.push(Entry { key, place, is_whole, is_all });
                } else {
                    in_lower_case.push(Entry {
                        key: key.to_ascii_lowercase().into(),
                        place,
                        is_whole,
                        is_all,
                    });
                }
            }
        }
        Some(Self {
            as_written: Paths::new(as_written)?,
            in_lower_case: Paths::new(in_lower_case)?,
            rest: rest.into(),
        })
    }

    /// Returns the position of the first route that `accepts` accepts.
    pub(super) fn first(&self, path: &str, accepts: impl FnMut(usize) -> bool) -> Option<usize> {
        let path = path.as_bytes();
        let mut candidates = Candidates::default();
        self.as_written.add_to(&mut candidates, path, |i| path[i]);
        self.in_lower_case.add_to(&mut candidates, path, |i| path[i].to_ascii_lowercase());
        candidates.add(&self.rest);
        candidates.first(accepts)
    }
}

impl Paths {
    /// The index of some routes.
    fn new(mut entries: Vec<Entry<'_>>) -> Option<Self> {
        entries.sort_unstable_by(|a, b| (&a.key, a.place).cmp(&(&b.key, b.place)));
        let (mut keys, mut spots, mut places) = (Vec::<&[u8]>::new(), Vec::<Spot>::new(), Vec::new());
        // For each key, the last position that can win, given its prefixes and those of shorter keys.
        let mut bounds = Vec::new();
        // The shorter keys that are prefixes of the current one.
        let mut above: Vec<usize> = Vec::new();
        for group in entries.chunk_by(|a, b| a.key == b.key) {
            let key = &*group[0].key;
            while above.pop_if(|above| !key.starts_with(keys[*above])).is_some() {}
            let parent = above.last().copied();
            let mut bound = parent.map_or(u32::MAX, |parent| bounds[parent]);
            let prefix = Self::add(&mut places, group.iter().filter(|entry| !entry.is_whole), &mut bound)?;
            let mut bound_of_whole = bound;
            let whole =
                Self::add(&mut places, group.iter().filter(|entry| entry.is_whole), &mut bound_of_whole)?;
            let mut shorter = parent;
            // Keys that the shorter key skips cannot win here either: its bound is no lower.
            while let Some(above) = shorter.map(|shorter| &spots[shorter])
                && above.prefix.of(&places).first().is_none_or(|first| *first > bound)
            {
                shorter = above.shorter.map(|shorter| shorter as usize);
            }
            above.push(keys.len());
            keys.push(key);
            bounds.push(bound);
            spots.push(Spot { whole, prefix, shorter: shorter.and_then(|shorter| shorter.try_into().ok()) });
        }
        Some(Self { keys: Trie::new(&keys)?, spots: spots.into(), places: places.into() })
    }

    /// Adds the positions below the bound, and lowers the bound to the first route without further conditions.
    fn add<'e, 'k: 'e>(
        places: &mut Vec<u32>,
        entries: impl Iterator<Item = &'e Entry<'k>>,
        bound: &mut u32,
    ) -> Option<Span> {
        let start = places.len();
        for entry in entries.take_while(|entry| entry.place < *bound) {
            places.push(entry.place);
            if entry.is_all {
                *bound = entry.place;
                break;
            }
        }
        Span::new(start..places.len())
    }

    /// Adds the routes for a path. `at` returns its bytes in the case of the keys.
    fn add_to<'a>(&'a self, candidates: &mut Candidates<'a>, path: &[u8], at: impl Fn(usize) -> u8) {
        let Some((key, length)) = self.keys.longest(path.len(), at) else { return };
        let mut spot = &self.spots[key as usize];
        if length == path.len() {
            candidates.add(spot.whole.of(&self.places));
        }
        candidates.add(spot.prefix.of(&self.places));
        while let Some(shorter) = spot.shorter {
            spot = &self.spots[shorter as usize];
            candidates.add(spot.prefix.of(&self.places));
        }
    }
}

/// Disjoint lists of positions, each in ascending order.
#[derive(Default)]
struct Candidates<'a> {
    /// The routes of the first matching keys, without an allocation.
    few: [&'a [u32]; LISTS],
    /// The number of used elements of `few`.
    count: usize,
    /// The overflow of `few`, used only for paths that match many prefixes whose routes have further conditions.
    more: Vec<&'a [u32]>,
}

impl<'a> Candidates<'a> {
    /// Adds the routes of a key.
    fn add(&mut self, places: &'a [u32]) {
        if places.is_empty() {
            return;
        }
        match self.few.get_mut(self.count) {
            Some(free) => {
                *free = places;
                self.count += 1;
            }
            None => self.more.push(places),
        }
    }

    /// Returns the lowest accepted position; `accepts` is not called with higher ones.
    fn first(mut self, mut accepts: impl FnMut(usize) -> bool) -> Option<usize> {
        let few = &mut self.few[..self.count];
        // The heads of few lists are compared as quickly as in a heap, and without an allocation.
        if self.more.is_empty() {
            loop {
                let next =
                    few.iter_mut().filter(|places| !places.is_empty()).min_by_key(|places| places[0])?;
                let (place, rest) = next.split_first()?;
                *next = rest;
                if accepts(*place as usize) {
                    return Some(*place as usize);
                }
            }
        }
        let mut all: BinaryHeap<_> = few.iter().copied().chain(self.more).map(Reverse).collect();
        loop {
            let mut next = all.peek_mut()?;
            match next.0.split_first() {
                Some((place, _)) if accepts(*place as usize) => return Some(*place as usize),
                Some((_, rest)) => next.0 = rest,
                None => drop(PeekMut::pop(next)),
            }
        }
    }
}

/// The number of routes up to which a scan takes about as long as a search.
const FEW: usize = 32;

/// The number of lists of candidates without an allocation; more are rare.
const LISTS: usize = 8;
