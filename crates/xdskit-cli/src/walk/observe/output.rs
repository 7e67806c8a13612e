//! The trees of proxies on standard output.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    sync::Arc,
};

use super::state::ObservedMesh;
use crate::{
    args::Look,
    json::Problem,
    paint::Paint,
    program,
    proxy_tree::{draw_absence, draw_unused, report_absence, report_unused},
    tree::Artist,
    walk::trees::Trees,
};

/// The output, as text or as JSON.
pub(super) enum Output {
    /// The last line of each listener, by the index of its target and its name.
    Json(BTreeMap<(usize, Arc<str>), String>),
    /// The trees of all listeners.
    Text { artist: Artist, trees: Trees, is_drawn: bool },
}

impl Output {
    /// The output that the command line asks for.
    pub(super) fn new(look: &Look) -> Self {
        if look.json {
            return Self::Json(BTreeMap::new());
        }
        let output = io::stdout();
        let is_drawn = output.is_terminal() && !look.once;
        Self::Text {
            artist: Artist { paint: Paint::for_output(&output) },
            trees: Trees::new(is_drawn),
            is_drawn,
        }
    }

    /// Whether the trees are redrawn in place.
    pub(super) fn is_drawn(&self) -> bool {
        matches!(self, Self::Text { is_drawn: true, .. })
    }

    /// Prints the trees that have changed and are known completely.
    pub(super) fn show(&mut self, state: &mut ObservedMesh) -> io::Result<()> {
        let text = match self {
            Self::Json(printed) => report(printed, state),
            Self::Text { artist, trees, .. } => {
                trees.replace(draw(*artist, state));
                trees.draw()
            }
        };
        program::print(&text)
    }

    /// Redraws for a changed size of the terminal.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        match self {
            Self::Json(_) => Ok(()),
            Self::Text { trees, .. } => program::print(&trees.redraw()),
        }
    }
}

/// The lines of each listener; `None` while something of its tree is not known.
fn draw(artist: Artist, state: &mut ObservedMesh) -> Vec<(String, Option<Vec<String>>)> {
    let (mut trees, mut total) = (Vec::new(), 0);
    // The indexes keep equal names of two targets apart.
    let removed = state.take_removed();
    for (index, selection) in state.selections().iter().enumerate() {
        if let Some(reason) = selection.absence() {
            trees.push((format!("{index}"), Some(draw_absence(artist, selection.label(), &reason))));
        }
        for (shown, name) in selection.names().iter().enumerate() {
            if total > MAX_TOTAL {
                let more = selection.names().len() - shown;
                let text =
                    format!("… and {more} more listeners of {}; --json has all of them", selection.label());
                trees.push((format!("{index} …"), Some(vec![text])));
                break;
            }
            let lines = state.mesh.knows(name).then(|| state.mesh.draw(artist, name));
            total += lines.as_ref().map_or(0, Vec::len);
            trees.push((format!("{index} {name}"), lines));
        }
    }
    let unused = state.unused_clusters().filter(|(_, clusters)| !clusters.is_empty());
    trees.extend(unused.map(|(_, clusters)| (UNUSED.to_owned(), Some(draw_unused(artist, &clusters)))));
    // They are drawn once.
    let gone = removed.into_iter().map(|(index, name)| {
        (format!("{index} {name}"), Some(draw_absence(artist, &name, &Problem::not_found(REMOVED))))
    });
    trees.extend(gone);
    trees
}

/// The lines that differ from the printed ones.
fn report(printed: &mut BTreeMap<(usize, Arc<str>), String>, state: &mut ObservedMesh) -> String {
    let mut text = String::new();
    for (index, name) in state.take_removed() {
        if printed.remove(&(index, name.clone())).is_some() {
            text += &report_absence(state.selections()[index].label(), &name, Problem::not_found(REMOVED));
        }
    }
    let unused = state.unused_clusters();
    for (index, selection) in state.selections().iter().enumerate() {
        let label = selection.label();
        let unused = unused.as_ref().filter(|(all, clusters)| {
            // That there are none is a change alone.
            *all == index && (!clusters.is_empty() || printed.contains_key(&(index, UNUSED.into())))
        });
        let unused = unused.map(|(_, clusters)| (UNUSED.into(), report_unused(label, clusters)));
        let absence =
            selection.absence().map(|reason| (ABSENCE.into(), report_absence(label, label, reason)));
        if absence.is_none() {
            // The next absence is a change, even for the same reason.
            printed.remove(&(index, ABSENCE.into()));
        }
        let known = selection.names().iter().filter(|name| state.mesh.knows(name));
        let known = known.map(|name| (name.clone(), state.mesh.report(label, name)));
        for (name, line) in absence.into_iter().chain(known).chain(unused) {
            let before = printed.entry((index, name)).or_default();
            if *before != line {
                text += &line;
                *before = line;
            }
        }
    }
    text
}

/// The keys of what is not the tree of a listener: the clusters that no listener leads to, and the absence of all listeners.
const UNUSED: &str = "\n unused clusters";
/// The key of the absence of all listeners.
const ABSENCE: &str = "\n absence";

/// The reason for the absence of a listener that was there.
const REMOVED: &str = "the management server has it no longer";

/// The number of lines behind which no more listeners are drawn.
const MAX_TOTAL: usize = 100_000;

#[cfg(test)]
mod tests {
    use xdskit::{
        pb::envoy::config::listener::v3::{self as pb, FilterChain},
        resource::{Context, Inspected, Resource},
    };

    use super::*;
    use crate::{
        kind::Kind,
        proxy_tree::{Cluster, Content, Entry, Listener},
        walk::observe::state::{Selection, Status},
        watch::Target,
    };

    fn listener(name: &str, chains: usize) -> Entry<Listener> {
        let filter_chains = vec![FilterChain::default(); chains];
        let message = pb::Listener { name: name.to_owned(), filter_chains, ..Default::default() };
        let bytes = prost::Message::encode_to_vec(&message).into();
        let inspected = Inspected::<<Listener as Content>::Resource>::parse(&bytes, &Context::new());
        Entry::present(&inspected.expect("a message"), None)
    }

    fn state(listeners: usize, chains: usize) -> ObservedMesh {
        let all = "listener=*".parse::<Target>().expect("a target");
        assert_eq!(all.ty.kind(), Some(Kind::Listener));
        let mut state = ObservedMesh::new(vec![Selection::new("*", all)]);
        for number in 0..listeners {
            let name = format!("listener-{number:03}");
            state.set_listener(0, &name.as_str().into(), listener(&name, chains));
        }
        state.set_status(0, Status::Complete);
        state
    }

    fn artist() -> Artist {
        Artist { paint: Paint::for_output(&tempfile::tempfile().expect("a file, which is no terminal")) }
    }

    #[test]
    fn further_listeners_are_counted_behind_the_maximum_of_lines() {
        let trees = draw(artist(), &mut state(20, 9_999));
        let last = trees.last().and_then(|(_, lines)| lines.clone()).expect("a tree");
        assert_eq!((trees.len(), &*last[0]), (12, "… and 9 more listeners of *; --json has all of them"));
        assert_eq!(draw(artist(), &mut state(10, 9_999)).len(), 10);
        assert_eq!(report(&mut BTreeMap::new(), &mut state(20, 9_999)).lines().count(), 20);
    }

    #[test]
    fn lines_of_json_are_replaced_when_they_are_no_longer_true() {
        let mut state = state(1, 1);
        let inspected = Inspected::<<Cluster as Content>::Resource>::parse(
            &b"\x0a\x02db".as_slice().into(),
            &Context::new(),
        );
        let present = Entry::present(&inspected.expect("a message"), None);
        state.mesh.clusters.set(&"db".into(), Some(present));
        let mut printed = BTreeMap::new();
        let unused = |names: &str| format!("{{\"target\":\"*\",\"unused_clusters\":[{names}]}}\n");
        assert!(report(&mut printed, &mut state).ends_with(&unused("\"db\"")));
        assert_eq!(report(&mut printed, &mut state), "");
        state.mesh.clusters.set(&"db".into(), None);
        assert_eq!(report(&mut printed, &mut state), unused(""));
        assert_eq!(report(&mut printed, &mut state), "");

        state.remove_listener(0, &"listener-000".into());
        let gone = report(&mut printed, &mut state);
        assert_eq!(gone.lines().count(), 2, "the listener, and that there are none: {gone}");
        state.set_listener(0, &"listener-000".into(), listener("listener-000", 1));
        assert_eq!(report(&mut printed, &mut state).lines().count(), 1);
        state.remove_listener(0, &"listener-000".into());
        assert_eq!(report(&mut printed, &mut state), gone);
    }

    #[test]
    fn removed_listeners_are_shown_once() {
        let mut state = state(2, 1);
        assert_eq!(draw(artist(), &mut state).len(), 2);
        state.remove_listener(0, &"listener-000".into());
        let trees = draw(artist(), &mut state);
        let gone = "✗ listener listener-000  NOT_FOUND: the management server has it no longer";
        assert_eq!(trees[1], ("0 listener-000".to_owned(), Some(vec![gone.to_owned()])));
        assert_eq!(draw(artist(), &mut state).len(), 1);
    }
}
