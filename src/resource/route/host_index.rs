//! Finds the virtual host of a host without looking at all domains.

use std::borrow::Cow;

use crate::resource::{
    VirtualHost,
    matcher::{DomainKind, Trie},
};

/// The places of virtual hosts by their domains.
#[derive(Debug)]
pub(super) struct HostIndex {
    exact: Places,
    /// By what follows the wildcard, backwards.
    by_end: Places,
    /// By what is before the wildcard.
    by_start: Places,
    /// The one for all other hosts.
    everything: Option<u32>,
}

/// The first place of each of some texts.
#[derive(Debug)]
struct Places {
    keys: Trie,
    places: Box<[u32]>,
}

impl HostIndex {
    /// `None` for lists that are searched as quickly without.
    pub(super) fn new(hosts: &[VirtualHost]) -> Option<Self> {
        if hosts.iter().map(|host| host.domains.len()).sum::<usize>() <= FEW {
            return None;
        }
        let (mut exact, mut by_end, mut by_start) = (Vec::new(), Vec::new(), Vec::new());
        let mut everything = None;
        let domains =
            hosts.iter().zip(0..).flat_map(|(host, place)| host.domains.iter().map(move |d| (d, place)));
        for (domain, place) in domains {
            match domain.kind() {
                DomainKind::Everything => everything = everything.or(Some(place)),
                DomainKind::EndsWith(end) => {
                    let backwards: Vec<_> = end.iter().rev().map(u8::to_ascii_lowercase).collect();
                    by_end.push((backwards.into(), place));
                }
                DomainKind::StartsWith(start) => by_start.push((in_lower_case(start), place)),
                DomainKind::Exactly(host) => exact.push((in_lower_case(host), place)),
            }
        }
        Some(Self {
            exact: Places::new(exact)?,
            by_end: Places::new(by_end)?,
            by_start: Places::new(by_start)?,
            everything,
        })
    }

    /// The place of the virtual host whose domain fits best, see [`Fit`](crate::resource::matcher::Fit).
    pub(super) fn best(&self, host: &str) -> Option<usize> {
        let host = host.as_bytes();
        let forwards = |i: usize| host[i].to_ascii_lowercase();
        let backwards = |i: usize| host[host.len() - 1 - i].to_ascii_lowercase();
        let exact = self.exact.longest(host.len(), forwards).filter(|(_, length)| *length == host.len());
        // The wildcard stands for at least one character.
        let rest = host.len().checked_sub(1);
        let best = exact
            .or_else(|| self.by_end.longest(rest?, backwards))
            .or_else(|| self.by_start.longest(rest?, forwards));
        best.map(|(place, _)| place).or(self.everything).map(|place| place as usize)
    }
}

impl Places {
    fn new(mut texts: Vec<(Cow<'_, [u8]>, u32)>) -> Option<Self> {
        texts.sort_unstable();
        texts.dedup_by(|later, first| later.0 == first.0);
        let (keys, places): (Vec<_>, Vec<_>) = texts.into_iter().unzip();
        Some(Self { keys: Trie::new(&keys)?, places: places.into() })
    }

    /// The place of the longest text that something begins with, and how long that is.
    fn longest(&self, length: usize, at: impl Fn(usize) -> u8) -> Option<(u32, usize)> {
        self.keys.longest(length, at).map(|(key, length)| (self.places[key as usize], length))
    }
}

/// Most names are in lower case as they are.
fn in_lower_case(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().any(u8::is_ascii_uppercase) { text.to_ascii_lowercase().into() } else { text.into() }
}

/// To look at as many domains one by one takes about as long as a search.
const FEW: usize = 8;
