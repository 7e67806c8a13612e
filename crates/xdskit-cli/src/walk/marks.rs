//! Marks of the changes between two drawings of a tree.

use similar::{Algorithm, DiffTag, capture_diff_slices};

/// The marks of the lines: `+` new, `~` changed, `-` if a line below was removed, and a space.
pub(crate) fn marks(before: &[String], now: &[String]) -> Vec<char> {
    let lines = |lines: &[String]| lines.iter().map(|line| Line::new(line)).collect::<Vec<_>>();
    let (old, new) = (lines(before), lines(now));
    let mut marks = vec![' '; new.len()];
    for op in capture_diff_slices(Algorithm::Myers, &old, &new) {
        let (tag, old_range, new_range) = op.as_tag_tuple();
        if tag != DiffTag::Equal {
            mark_gap(&old[old_range], &new[new_range.clone()], &mut marks, new_range.start);
        }
    }
    marks
}

/// The content of a line, apart from its colours and alignment.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Line {
    /// The width of the branches before the text.
    depth: usize,
    /// The words of the text, without colors.
    words: Vec<String>,
}

impl Line {
    /// Reads a drawn line.
    fn new(line: &str) -> Self {
        let mut plain = String::new();
        let mut rest = line;
        while let Some((text, code)) = rest.split_once('\u{1b}') {
            plain += text;
            rest = code.split_once('m').map_or("", |(_, rest)| rest);
        }
        plain += rest;
        let text = plain.trim_start_matches(['│', '├', '└', '─', ' ']);
        // Guides count as depth, and their form does not: a new last sibling changes `└` to `├`.
        let depth = plain.chars().count() - text.chars().count();
        Self { depth, words: text.split_whitespace().map(str::to_owned).collect() }
    }
}

/// Marks the lines between two common ones. A line with the same depth as an old one counts as its changed form.
fn mark_gap(old: &[Line], new: &[Line], marks: &mut [char], first: usize) {
    let mut left: Vec<_> = old.iter().collect();
    for (at, line) in new.iter().enumerate() {
        // The first one of the depth, and what is above it is gone: marks never point across each other.
        marks[first + at] = match left.iter().position(|old| old.depth == line.depth) {
            Some(same) => {
                left.drain(..=same);
                '~'
            }
            None => '+',
        };
    }
    if let Some(above) = (first + new.len()).checked_sub(1)
        && !left.is_empty()
        && marks[above] == ' '
    {
        marks[above] = '-';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_marked(before: &[&str], now: &[(char, &str)]) {
        let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        let (expected, now): (Vec<_>, Vec<_>) = now.iter().copied().unzip();
        assert_eq!(marks(&lines(before), &lines(&now)), expected);
    }

    #[test]
    fn nothing_is_marked_where_nothing_changed() {
        assert_marked(&[], &[]);
        assert_marked(
            &["● shop", "├─ a  → b", "└─ c"],
            &[(' ', "● shop"), (' ', "├─ \u{1b}[32ma\u{1b}[0m → b"), (' ', "├─ c")],
        );
    }

    #[test]
    fn lines_are_new_or_changed() {
        assert_marked(&["● shop", "└─ a"], &[(' ', "● shop"), (' ', "├─ a"), ('+', "└─ b")]);
        assert_marked(&["● shop", "├─ a", "└─ b"], &[(' ', "● shop"), ('~', "├─ A"), (' ', "└─ b")]);
        assert_marked(
            &["● shop", "└─ ● a  EDS  1"],
            &[(' ', "● shop"), ('~', "└─ ● a  EDS"), ('+', "   ├─ 1"), ('+', "   └─ 2")],
        );
        assert_marked(&["● shop"], &[('~', "✗ shop"), ('+', "└─ NOT_FOUND")]);
    }

    #[test]
    fn what_is_gone_is_marked_above() {
        assert_marked(&["● shop", "├─ a", "└─ b"], &[(' ', "● shop"), ('-', "└─ a")]);
        assert_marked(&["● shop", "├─ a", "└─ b"], &[('-', "● shop"), (' ', "└─ b")]);
        assert_marked(&["● shop", "├─ a", "└─ b"], &[(' ', "● shop"), ('~', "└─ c")]);
    }

    #[test]
    fn large_trees_are_compared() {
        let tree = |middle: &str| {
            let lines = (0..3000).map(|number| format!("├─ {middle}{number}"));
            ["● shop".to_owned()].into_iter().chain(lines).chain(["└─ end".to_owned()]).collect::<Vec<_>>()
        };
        let marks = marks(&tree("a"), &tree("b"));
        assert_eq!((marks[0], marks[1], marks[3000], marks[3001]), (' ', '~', '~', ' '));
    }
}
