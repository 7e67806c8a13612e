//! What has changed in a tree since it was drawn last.

/// The marks of the lines: `+` new, `~` changed, `-` if something below is gone, and a space.
pub(crate) fn marks(before: &[String], now: &[String]) -> Vec<char> {
    let (old, new): (Vec<_>, Vec<_>) = (
        before.iter().map(|line| Line::new(line)).collect(),
        now.iter().map(|line| Line::new(line)).collect(),
    );
    let mut marks = vec![' '; new.len()];
    let (mut old_at, mut new_at) = (0, 0);
    let ends = [(old.len(), new.len())];
    for (old_end, new_end) in in_common(&old, &new).into_iter().chain(ends) {
        mark_gap(&old[old_at..old_end], &new[new_at..new_end], (&mut marks, new_at));
        (old_at, new_at) = (old_end + 1, new_end + 1);
    }
    marks
}

/// What a line of a tree says, however it is coloured and aligned.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    depth: usize,
    words: Vec<String>,
}

impl Line {
    fn new(line: &str) -> Self {
        let mut plain = String::new();
        let mut rest = line;
        while let Some((text, code)) = rest.split_once('\u{1b}') {
            plain += text;
            rest = code.split_once('m').map_or("", |(_, rest)| rest);
        }
        plain += rest;
        let text = plain.trim_start_matches(['│', '├', '└', '─', ' ']);
        let depth = plain.chars().count() - text.chars().count();
        Self { depth, words: text.split_whitespace().map(str::to_owned).collect() }
    }
}

/// The places of the lines that are the same in both: as many as can be, in order.
fn in_common(old: &[Line], new: &[Line]) -> Vec<(usize, usize)> {
    let first = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let last =
        old[first..].iter().rev().zip(new[first..].iter().rev()).take_while(|(old, new)| old == new).count();
    let (old_end, new_end) = (old.len() - last, new.len() - last);
    let (old_middle, new_middle) = (&old[first..old_end], &new[first..new_end]);
    let mut common: Vec<_> = (0..first).map(|at| (at, at)).collect();
    if old_middle.len() * new_middle.len() <= MOST_COMPARED {
        common
            .extend(longest(old_middle, new_middle).into_iter().map(|(old, new)| (first + old, first + new)));
    }
    common.extend((0..last).map(|at| (old_end + at, new_end + at)));
    common
}

/// The longest common subsequence.
fn longest(old: &[Line], new: &[Line]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    // How many are in common from each pair of places on.
    let mut lengths = vec![0_usize; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i * width + j] = if old[i] == new[j] {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut common) = (0, 0, Vec::new());
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            common.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    common
}

/// Marks what stands between two lines in common. A line of the same depth as an old one is that one, changed.
fn mark_gap(old: &[Line], new: &[Line], (marks, first): (&mut [char], usize)) {
    let mut left: Vec<_> = old.iter().collect();
    for (at, line) in new.iter().enumerate() {
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

/// Pairs of lines, so that a change of a huge tree takes no time. Larger ones are marked as changed.
const MOST_COMPARED: usize = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_marked(before: &[&str], now: &[(char, &str)]) {
        let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        let (wanted, now): (Vec<_>, Vec<_>) = now.iter().copied().unzip();
        assert_eq!(marks(&lines(before), &lines(&now)), wanted);
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
    fn large_trees_are_compared_at_their_ends() {
        let tree = |middle: &str| {
            let lines = (0..3000).map(|number| format!("├─ {middle}{number}"));
            ["● shop".to_owned()].into_iter().chain(lines).chain(["└─ end".to_owned()]).collect::<Vec<_>>()
        };
        let marks = marks(&tree("a"), &tree("b"));
        assert_eq!((marks[0], marks[1], marks[3000], marks[3001]), (' ', '~', '~', ' '));
    }
}
