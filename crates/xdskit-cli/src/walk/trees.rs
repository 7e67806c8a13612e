//! Trees of text as they are printed: drawn anew on a terminal, appended elsewhere.

use std::{collections::BTreeMap, io};

use super::{marks::marks, screen::arrange};
use crate::wrap::{self, Size};

/// Trees in their order. On a terminal all are redrawn when one changes; elsewhere, changed trees are appended to the output.
pub(crate) struct Trees {
    /// Whether they are redrawn in place.
    is_terminal: bool,
    /// The trees.
    trees: Vec<Tree>,
    /// Whether anything was drawn.
    is_begun: bool,
    /// Whether a tree was removed since the last drawing.
    has_removed: bool,
}

/// A tree, with its state at the last drawing.
#[derive(Default)]
struct Tree {
    /// The current lines.
    lines: Vec<String>,
    /// Whether the lines were set since the last drawing.
    has_changed: bool,
    /// The last drawn lines and their marks; `None` before the first tree.
    drawn: Option<Vec<String>>,
    /// The mark of each line, which says whether it has changed.
    marks: Vec<char>,
    /// The name among trees that come and go.
    key: String,
}

impl Trees {
    /// No trees.
    pub(crate) fn new(is_terminal: bool) -> Self {
        Self { is_terminal, trees: Vec::new(), is_begun: false, has_removed: false }
    }

    /// Draws once: one tree below the other, without support for redrawing.
    pub(crate) fn once(self) -> Self {
        Self { is_terminal: false, ..self }
    }

    /// Adds a tree behind the others, which is not drawn before it changes.
    pub(crate) fn add(&mut self, lines: Vec<String>) {
        self.trees.push(Tree { lines, ..Tree::default() });
    }

    /// Replaces the lines of the tree of this index.
    pub(crate) fn set(&mut self, index: usize, lines: Vec<String>) {
        let tree = &mut self.trees[index];
        // `|=`, since a tree may be set several times between two drawings.
        tree.has_changed |= lines != tree.lines;
        tree.lines = lines;
    }

    /// Replaces all trees by others, each with its key. One without lines keeps those that it had.
    pub(crate) fn replace(&mut self, trees: impl IntoIterator<Item = (String, Option<Vec<String>>)>) {
        let mut before: BTreeMap<_, _> = self.trees.drain(..).map(|tree| (tree.key.clone(), tree)).collect();
        for (key, lines) in trees {
            let known = before.remove(&key);
            // A tree that is not known yet is left out, and one that is no longer known stays until it is known again.
            let mut tree = match (known, &lines) {
                (Some(tree), _) => tree,
                (None, Some(_)) => Tree { key, ..Tree::default() },
                (None, None) => continue,
            };
            if let Some(lines) = lines {
                tree.has_changed |= lines != tree.lines;
                tree.lines = lines;
            }
            self.trees.push(tree);
        }
        self.has_removed |= !before.is_empty();
    }

    /// Returns the text to print.
    pub(crate) fn draw(&mut self) -> String {
        let has_changed = self.trees.iter().any(|tree| tree.has_changed);
        let text = if self.is_terminal && (has_changed || self.has_removed) {
            self.trees.iter_mut().for_each(Tree::mark);
            self.redraw()
        } else if has_changed {
            let begin = if self.is_begun { "\n" } else { "" };
            let changed = self.trees.iter().filter(|tree| tree.has_changed);
            let trees: Vec<_> = changed.map(|tree| tree.lines.join("\n") + "\n").collect();
            wrap::for_output(&(begin.to_owned() + &trees.join("\n")), &io::stdout())
        } else {
            return String::new();
        };
        self.trees.iter_mut().for_each(|tree| tree.has_changed = false);
        self.has_removed = false;
        self.is_begun = true;
        text
    }

    /// Returns the same content for a terminal whose size may have changed.
    pub(crate) fn redraw(&self) -> String {
        let trees: Vec<_> = self.trees.iter().map(Tree::marked).collect();
        let trees: Vec<_> = trees.iter().map(Vec::as_slice).collect();
        CLEAR.to_owned() + &arrange(&trees, Size::of_terminal(&io::stdout()))
    }

    /// Draws as on a terminal.
    #[cfg(test)]
    pub(crate) fn pretend_terminal(&mut self) {
        self.is_terminal = true;
    }
}

impl Tree {
    /// Marks the changes since the last drawing.
    fn mark(&mut self) {
        self.marks = match &self.drawn {
            Some(drawn) if self.has_changed => marks(drawn, &self.lines),
            Some(_) | None => Vec::new(),
        };
        if self.has_changed {
            self.drawn = Some(self.lines.clone());
        }
    }

    /// The lines, each with its mark.
    fn marked(&self) -> Vec<String> {
        let marks = self.marks.iter().chain(std::iter::repeat(&' '));
        self.lines.iter().zip(marks).map(|(line, mark)| format!("{mark} {line}")).collect()
    }
}

/// Clears the terminal and moves to its top.
pub(super) const CLEAR: &str = "\x1b[2J\x1b[H";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_that_come_and_go_are_appended_or_redrawn() {
        let tree = |key: &str, text: &str| (key.to_owned(), Some(vec![text.to_owned()]));
        let mut trees = Trees::new(false);
        trees.replace([tree("a", "one"), tree("b", "two")]);
        assert_eq!(trees.draw(), "one\n\ntwo\n");
        trees.replace([tree("b", "three"), tree("c", "four")]);
        assert_eq!(trees.draw(), "\nthree\n\nfour\n");
        trees.replace([("c".to_owned(), None), ("d".to_owned(), None)]);
        assert_eq!(trees.draw(), "", "nothing is appended for what is gone");

        trees.pretend_terminal();
        trees.replace([tree("c", "four"), tree("d", "five")]);
        assert_eq!(trees.draw(), format!("{CLEAR}  four\n\n  five\n"));
        trees.replace([tree("c", "four")]);
        assert_eq!(trees.draw(), format!("{CLEAR}  four\n"));
    }
}
