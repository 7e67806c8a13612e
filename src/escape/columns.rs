//! Tables of text whose cells other parties choose.

use std::fmt;

/// Writes rows of cells below the names of their columns, without the end of the last line. Each column is as wide as its widest
/// cell; a cell of more than [`CELL`] characters, or [`LAST_CELL`] in the last column, is cut in its middle, where names differ least.
///
/// The width in a format string cannot be used for that: one above 65,535 panics.
pub(crate) fn write_columns<const N: usize>(
    f: &mut impl fmt::Write,
    head: &[&str; N],
    rows: &[[String; N]],
) -> fmt::Result {
    let mut rows: Vec<[String; N]> = rows.to_vec();
    for (column, cell) in rows.iter_mut().flat_map(|row| row.iter_mut().enumerate()) {
        cut_middle(cell, if column + 1 == N { LAST_CELL } else { CELL });
    }
    let mut widths = head.map(|cell| cell.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    write_row(f, head, &widths)?;
    for row in &rows {
        f.write_str("\n")?;
        write_row(f, &row.each_ref().map(String::as_str), &widths)?;
    }
    Ok(())
}

/// Writes a row, whose cells are as wide as their columns.
fn write_row<const N: usize>(f: &mut impl fmt::Write, row: &[&str; N], widths: &[usize; N]) -> fmt::Result {
    let mut blanks = 0;
    for (cell, width) in row.iter().zip(widths) {
        // Nothing is written behind the last cell that is not empty.
        if !cell.is_empty() {
            (0..blanks).try_for_each(|_| f.write_char(' '))?;
            f.write_str(cell)?;
            blanks = 0;
        }
        blanks += width - cell.chars().count() + GAP;
    }
    Ok(())
}

/// Cuts a long cell; the head and the tail of a name tell most.
fn cut_middle(cell: &mut String, limit: usize) {
    let length = cell.chars().count();
    if length > limit {
        let (start, end) = (limit / 2, limit / 2 - 1);
        *cell = cell.chars().take(start).chain(['…']).chain(cell.chars().skip(length - end)).collect();
    }
}

/// The most characters of a cell.
const CELL: usize = 60;

/// The longest text in a cell of the last column, which makes no other one wide.
const LAST_CELL: usize = 200;

/// The blanks between columns.
const GAP: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 3]]) -> String {
        let rows: Vec<_> = rows.iter().map(|row| row.map(str::to_owned)).collect();
        let mut out = String::new();
        write_columns(&mut out, &["A", "Name", "C"], &rows).unwrap();
        out
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_without_blanks_at_the_end() {
        let shown = table(&[["x", "", ""], ["éé", "n", "1"], ["", "longer", "2"]]);
        assert_eq!(shown, "A   Name    C\nx\néé  n       1\n    longer  2");
    }

    #[test]
    fn cells_are_cut_at_the_limit_whatever_their_length() {
        let just = "é".repeat(60);
        assert_eq!(table(&[[&just, "", ""]]).lines().last(), Some(&*just));
        let over = format!("start{}end", "é".repeat(60));
        let shown = table(&[[&over, &"x".repeat(1 << 20), "c"]]);
        let line = shown.lines().last().unwrap();
        assert!(
            line.starts_with("start") && line.contains("éend  xxx") && line.ends_with("xxx  c"),
            "{line}"
        );
        assert_eq!(line.chars().count(), 60 + 2 + 60 + 2 + 1);
    }
}
