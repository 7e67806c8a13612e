//! Finds the routes whose paths may fit without looking at the others.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use super::Route;
use crate::resource::matcher::{PathPattern, Span, Trie};

/// The places of the routes of a table by what their paths are or begin with.
///
/// It says which routes to look at, in their order, and never leaves out one that matches.
#[derive(Debug)]
pub(super) struct PathIndex {
    /// The paths whose case matters; by how they begin, regular expressions as well.
    as_written: Paths,
    /// The others, in lower case.
    in_lower_case: Paths,
    /// Regular expressions that may begin with anything.
    rest: Box<[u32]>,
}

/// Places by the beginnings of paths.
#[derive(Debug)]
struct Paths {
    keys: Trie,
    /// Of each key.
    spots: Box<[Spot]>,
    places: Box<[u32]>,
}

/// The routes of one key; spans are in `places`, each in ascending order.
#[derive(Debug)]
struct Spot {
    /// Those for which the key is the whole path.
    whole: Span,
    /// Those for which it is the beginning.
    prefix: Span,
    /// The longest shorter key that the key begins with and that has prefixes which can still win.
    shorter: Option<u32>,
}

/// What is to be known of a route.
struct Entry<'a> {
    key: Cow<'a, [u8]>,
    place: u32,
    /// Whether the key is the whole path.
    is_whole: bool,
    /// Whether nothing but the key decides whether the route matches.
    is_all: bool,
}

impl PathIndex {
    /// `None` for tables that are searched as quickly without.
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
                // Two keys, of which no path fits both.
                PathPattern::PathSeparatedPrefix(text) => {
                    let below = format!("{text}/").into_bytes();
                    [Some((text.as_bytes().into(), true)), Some((below.into(), false))]
                }
                PathPattern::SafeRegex(regex) => {
                    match regex.literal_start() {
                        start if start.is_empty() => rest.push(place),
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

    /// The place of the first route that `accepts` says matches.
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
    fn new(mut entries: Vec<Entry<'_>>) -> Option<Self> {
        entries.sort_unstable_by(|a, b| (&a.key, a.place).cmp(&(&b.key, b.place)));
        let (mut keys, mut spots, mut places) = (Vec::<&[u8]>::new(), Vec::<Spot>::new(), Vec::new());
        // Of each key the last place that can win, of its prefixes and those of what it begins with.
        let mut bounds = Vec::new();
        // The keys that this one begins with.
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
            // What the one above skips cannot win here either: its bound is no lower.
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

    /// Adds the places before the bound, which the first one that always matches becomes.
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

    /// Adds the routes for a path. `at` gives its bytes as the keys are written.
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

/// Lists of places, each in ascending order, none of which is in two of them.
#[derive(Default)]
struct Candidates<'a> {
    few: [&'a [u32]; LISTS],
    /// How many of `few` there are.
    count: usize,
    /// What does not fit into `few`: only paths that many prefixes with conditions of their own fit have any.
    more: Vec<&'a [u32]>,
}

impl<'a> Candidates<'a> {
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

    /// The lowest place that is accepted; higher ones are not asked about.
    fn first(mut self, mut accepts: impl FnMut(usize) -> bool) -> Option<usize> {
        let few = &mut self.few[..self.count];
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

/// To look at as many routes one by one takes about as long as a search.
const FEW: usize = 32;

/// Paths with more lists of candidates are rare, and allocate.
const LISTS: usize = 8;
