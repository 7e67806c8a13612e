//! An index that finds the virtual host of a host without a scan of all domains.

use std::borrow::Cow;

use crate::resource::{
    VirtualHost,
    matcher::{DomainKind, Trie},
};

/// The indexes of virtual hosts by their domains.
#[derive(Debug)]
pub(super) struct HostIndex {
    /// Domains without a wildcard.
    exact: Places,
    /// Domains with a leading wildcard, by the text after it, reversed.
    by_end: Places,
    /// Domains with a trailing wildcard, by the text before it.
    by_start: Places,
    /// The virtual host of the domain `*`.
    everything: Option<u32>,
}

/// The first virtual host of each of several texts.
#[derive(Debug)]
struct Places {
    /// The texts.
    keys: Trie,
    /// The virtual host of each text.
    places: Box<[u32]>,
}

impl HostIndex {
    /// Builds the index; `None` for lists that are scanned as quickly.
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
                DomainKind::Exact(host) => exact.push((in_lower_case(host), place)),
            }
        }
        Some(Self {
            exact: Places::new(exact)?,
            by_end: Places::new(by_end)?,
            by_start: Places::new(by_start)?,
            everything,
        })
    }

    /// Returns the index of the virtual host whose domain matches best, see [`Fit`](crate::resource::matcher::Fit).
    pub(super) fn best(&self, host: &str) -> Option<usize> {
        let host = host.as_bytes();
        let forwards = |i: usize| host[i].to_ascii_lowercase();
        let backwards = |i: usize| host[host.len() - 1 - i].to_ascii_lowercase();
        let exact = self.exact.longest(host.len(), forwards).filter(|(_, length)| *length == host.len());
        // The wildcard stands for at least one character.
        let rest = host.len().checked_sub(1);
        // A28-1: whole domains, then leading wildcards, then trailing ones; within a kind the longest text.
        let best = exact
            .or_else(|| self.by_end.longest(rest?, backwards))
            .or_else(|| self.by_start.longest(rest?, forwards));
        best.map(|(place, _)| place).or(self.everything).map(|place| place as usize)
    }
}

impl Places {
    /// The index of some texts; the first of equal ones applies.
    fn new(mut texts: Vec<(Cow<'_, [u8]>, u32)>) -> Option<Self> {
        // By the text and then by the place, so that the first virtual host of a text stays.
        texts.sort_unstable();
        texts.dedup_by(|later, first| later.0 == first.0);
        let (keys, places): (Vec<_>, Vec<_>) = texts.into_iter().unzip();
        Some(Self { keys: Trie::new(&keys)?, places: places.into() })
    }

    /// Returns the virtual host of the longest text that the input begins with, and the length of that text.
    fn longest(&self, length: usize, at: impl Fn(usize) -> u8) -> Option<(u32, usize)> {
        self.keys.longest(length, at).map(|(key, length)| (self.places[key as usize], length))
    }
}

/// Most names are in lower case already.
fn in_lower_case(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().any(u8::is_ascii_uppercase) { text.to_ascii_lowercase().into() } else { text.into() }
}

/// The number of domains up to which a scan takes about as long as a search.
const FEW: usize = 8;
