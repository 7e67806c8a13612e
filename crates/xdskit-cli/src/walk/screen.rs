//! Trees side by side, to show as many as possible at once.

use std::collections::BTreeSet;

use crate::wrap::{Size, wrap};

/// Arranges trees in the fewest columns in which all of them fit, or if none suffice, in as many as are readable.
/// With several columns, lines that are too long are truncated, and truncated errors are repeated in full below the
/// trees. In one column, lines are wrapped.
pub(crate) fn arrange(trees: &[&[String]], size: Size) -> String {
    // The cursor is on the last line.
    let rows = size.rows.saturating_sub(1).max(1);
    let most = (size.columns + GAP) / (NARROWEST + GAP);
    let wrapped = |tree: &[String]| tree.iter().flat_map(|line| wrap(line, size.columns)).collect::<Vec<_>>();
    let one_column: Vec<_> = trees.iter().map(|tree| wrapped(tree)).collect();
    let height_of = |line: &String| width(line).div_ceil(size.columns).max(1);
    let height = one_column.iter().map(|tree| tree.iter().map(height_of).sum::<usize>() + 1).sum::<usize>();
    if most <= 1 || height <= rows + 1 {
        return one_column.iter().map(|tree| tree.join("\n") + "\n").collect::<Vec<_>>().join("\n");
    }
    let columns = flow_into(trees, rows, most);
    let notes = below(&cut_errors(trees, width_of(size, columns.len())), size.columns);
    // The errors below take their rows from the columns. Where this makes more columns, and so cuts more errors, the screen may overflow.
    let columns = match notes.lines().count() {
        0 => columns,
        notes => flow_into(trees, rows.saturating_sub(notes), most),
    };
    let width = width_of(size, columns.len());
    side_by_side(&columns, width) + &below(&cut_errors(trees, width), size.columns)
}

/// The width of one of several columns.
fn width_of(size: Size, columns: usize) -> usize {
    (size.columns - GAP * (columns - 1)) / columns
}

/// Fills one column of this height after the other, without splitting trees.
fn flow(trees: &[&[String]], rows: usize) -> Vec<Vec<String>> {
    let mut columns: Vec<Vec<String>> = Vec::new();
    for tree in trees {
        match columns.last_mut() {
            Some(column) if column.len() + 1 + tree.len() <= rows => {
                column.push(String::new());
                column.extend_from_slice(tree);
            }
            Some(_) | None => columns.push(tree.to_vec()),
        }
    }
    columns
}

/// Like [`flow`], but with at most `most` columns, which are as high as necessary.
fn flow_into(trees: &[&[String]], rows: usize, most: usize) -> Vec<Vec<String>> {
    let all: usize = trees.iter().map(|tree| tree.len() + 1).sum();
    // At the height of all trees together, one column has them all.
    let mut heights = rows.min(all)..=all;
    let columns = heights.find_map(|rows| Some(flow(trees, rows)).filter(|columns| columns.len() <= most));
    columns.expect("they all fit into one that is as high as all of them")
}

/// The errors that do not fit into columns of this width. One that several trees share is returned once.
fn cut_errors<'a>(trees: &[&'a [String]], column_width: usize) -> Vec<&'a str> {
    let mut reasons = BTreeSet::new();
    let lines = trees.iter().flat_map(|tree| tree.iter());
    // Errors contain the node.
    let errors = lines.filter(|line| line.contains("[node id: ") && width(line) > column_width);
    let errors = errors.map(|line| line.trim_start_matches(['+', '~', '-', '│', '├', '└', '─', ' ']));
    // An unreachable server affects all trees, each with other resources.
    let reason = |error: &'a str| error.split_once(" more resource").map_or(error, |(_, rest)| rest);
    errors.filter(|error| reasons.insert(reason(error).trim_start_matches('s'))).collect()
}

/// Formats errors in lines of this width, after an empty line.
fn below(errors: &[&str], columns: usize) -> String {
    let mut text = String::new();
    for error in errors.iter().take(SHOWN_ERRORS) {
        text += &format!("\n{}", wrap(error, columns).join("\n"));
    }
    if errors.len() > SHOWN_ERRORS {
        text += &format!("\n… and {} more", errors.len() - SHOWN_ERRORS);
    }
    if text.is_empty() { text } else { text + "\n" }
}

/// Puts columns of lines side by side; long lines are cut.
fn side_by_side(columns: &[Vec<String>], column_width: usize) -> String {
    let mut text = String::new();
    for row in 0..columns.iter().map(Vec::len).max().unwrap_or(0) {
        let mut line = String::new();
        let mut missing = 0;
        for column in columns {
            let cell = cut(column.get(row).map_or("", String::as_str), column_width);
            line += &" ".repeat(missing);
            missing = column_width + GAP - width(&cell);
            line += &cell;
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The text, truncated to this width.
fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut left = most.saturating_sub(1);
    let mut kept = String::new();
    for (part, is_seen) in parts(text) {
        if is_seen && left == 0 {
            break;
        }
        left -= usize::from(is_seen);
        kept.push(part);
    }
    let end = if kept.contains(ESCAPE) { "\u{1b}[0m" } else { "" };
    format!("{kept}…{end}")
}

/// The number of visible characters of a text, each of which is one column wide.
fn width(text: &str) -> usize {
    parts(text).filter(|(_, is_seen)| *is_seen).count()
}

/// The characters of a text, and whether each is visible: those of colour codes are not.
fn parts(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut in_code = false;
    text.chars().map(move |c| {
        in_code |= c == ESCAPE;
        let is_seen = !in_code;
        in_code &= c != 'm';
        (c, is_seen)
    })
}

/// The first character of an escape sequence.
const ESCAPE: char = '\u{1b}';

/// The gap between columns.
const GAP: usize = 3;

/// The maximum number of errors below the columns.
const SHOWN_ERRORS: usize = 6;

/// The minimum width of a readable column.
const NARROWEST: usize = 45;

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(title: &str, lines: usize) -> Vec<String> {
        (0..lines).map(|line| format!("{title}{line}")).collect()
    }

    fn arranged(trees: &[Vec<String>], columns: usize, rows: usize) -> Vec<String> {
        let trees: Vec<_> = trees.iter().map(Vec::as_slice).collect();
        arrange(&trees, Size { columns, rows }).lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_fits_stands_one_below_the_other() {
        let trees = [tree("a", 2), tree("b", 1)];
        assert_eq!(arranged(&trees, 200, 5), ["a0", "a1", "", "b0"]);
        assert_eq!(arranged(&trees, 80, 2), ["a0", "a1", "", "b0"], "there is no room for a second column");
    }

    #[test]
    fn what_does_not_fit_stands_side_by_side() {
        let trees = [tree("a", 2), tree("b", 1), tree("c", 3)];
        let column = " ".repeat(98);
        let expected =
            [format!("a0{column}c0"), format!("a1{column}c1"), format!("{column}  c2"), "b0".to_owned()];
        assert_eq!(arranged(&trees, 197, 5), expected);
    }

    #[test]
    fn what_fits_nowhere_stands_in_columns_of_the_same_height() {
        let trees: Vec<_> = (0..25).map(|_| tree("x", 3)).collect();
        let lines = arranged(&trees, 160, 10);
        assert_eq!(lines.len(), 9 * 4 - 1);
        assert!(lines[0].split_whitespace().eq(["x0"; 3]), "{}", lines[0]);
    }

    #[test]
    fn errors_that_are_cut_stand_below() {
        let mut trees: Vec<_> = (0..4).map(|_| tree("x", 3)).collect();
        let error = format!("NOT_FOUND: {} [node id: me]", "x".repeat(60));
        trees[3][2] = format!("└─ {error}");
        let lines = arranged(&trees, 100, 10);
        assert_eq!(lines.len(), 9, "{lines:#?}");
        assert!(lines[6].ends_with("xxx…"), "{}", lines[6]);
        assert_eq!(lines[7..], [String::new(), error]);

        let error = |number| format!("NOT_FOUND: {} {number} [node id: me]", "x".repeat(60));
        let many: Vec<_> = (0..10).map(|number| [error(number), error(number)].to_vec()).collect();
        let lines = arranged(&many, 100, 20);
        assert_eq!(lines[lines.len() - 2..], [error(5), "… and 4 more".to_owned()]);

        let lost =
            |name| format!("├─ Listener {name:?} and 1 more resource: {} [node id: me]", "x".repeat(60));
        let trees = ["a", "b", "c", "d"].map(|name| vec![lost(name); 3]);
        let lines = arranged(&trees, 100, 10);
        // Once, wrapped at a word.
        assert_eq!(lines[lines.len() - 3], "", "{lines:?}");
        assert_eq!(lines[lines.len() - 1], "  id: me]");
    }

    #[test]
    fn lines_are_cut_where_they_are_seen() {
        for (text, most, expected) in [
            ("short", 5, "short"),
            ("longer", 5, "long…"),
            ("\u{1b}[31mred\u{1b}[0m", 3, "\u{1b}[31mred\u{1b}[0m"),
            ("\u{1b}[31mred\u{1b}[0m", 2, "\u{1b}[31mr…\u{1b}[0m"),
            ("├─ ●", 3, "├─…"),
        ] {
            assert_eq!(cut(text, most), expected, "{text:?} in {most}");
            assert!(width(expected) <= most);
        }
    }
}
