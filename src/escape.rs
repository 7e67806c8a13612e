use std::fmt::{self, Display, Write};

#[cfg(any(test, feature = "client"))]
mod columns;

#[cfg(any(test, feature = "client"))]
pub(crate) use columns::write_columns;

/// Displays text from other parties so that it can neither break a line nor control a terminal.
///
/// Control characters (including line feeds and ESC), line separators and bidirectional controls are replaced by
/// escapes, `\n` or `\u{1b}`; other characters are unchanged. Wrap names, versions, error messages and any other text
/// from a server, a file or a DNS resolver in this before it is written to a log or a terminal. The [`Display`] form
/// of this crate's errors and statuses does so already.
///
/// ```
/// use xdskit::error::Escaped;
///
/// let name = "shop\n2026-11-22 ERROR forged \u{1b}[31m";
/// assert_eq!(Escaped(name).to_string(), r"shop\n2026-11-22 ERROR forged \u{1b}[31m");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

/// The text of another party up to so many characters, with a mark if it is longer. What is cut off is not even formatted.
#[cfg(any(test, feature = "balance", feature = "fuzzing"))]
pub(crate) fn cut(text: impl Display, limit: usize) -> String {
    let mut cut = Cut { text: String::new(), left: limit };
    if write!(cut, "{text}").is_err() {
        cut.text.push_str("...(truncated)");
    }
    cut.text
}

/// A writer that takes so many characters. Further ones are an error.
#[cfg(any(test, feature = "balance", feature = "fuzzing"))]
struct Cut {
    /// What was written so far.
    text: String,
    /// The number of characters that there is room for.
    left: usize,
}

#[cfg(any(test, feature = "balance", feature = "fuzzing"))]
impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match text.char_indices().nth(self.left) {
            None => {
                self.left -= text.chars().count();
                self.text.push_str(text);
                Ok(())
            }
            Some((end, _)) => {
                self.left = 0;
                self.text.push_str(&text[..end]);
                Err(fmt::Error)
            }
        }
    }
}

/// The longest text of a peer in a message, in characters.
#[cfg(any(test, feature = "balance", feature = "fuzzing"))]
pub(crate) const PEER_TEXT: usize = 200;

/// A writer that escapes its input.
struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, odd)) = rest.char_indices().find(|(_, c)| is_odd(*c)) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "{}", odd.escape_default())?;
            rest = &rest[at + odd.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// Whether a character can break a line or control a terminal.
pub(crate) fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Implements `Debug` for errors as `Type(message)`, the output for an error that `main` returns or that is
/// unwrapped: a derived dump of the fields would lack the explanations in the message.
macro_rules! debug_as_message {
    ($($error:ident),+) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!(stringify!($error), "({})"), $crate::escape::Escaped(self))
            }
        }
    )+};
}
pub(crate) use debug_as_message;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_line_separators_are_escaped_and_all_else_is_not() {
        for (text, shown) in [
            ("", ""),
            ("Zürich \"shop\" \\ 市場", "Zürich \"shop\" \\ 市場"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{1b}[2J\u{7f}\0", "\\u{1b}[2J\\u{7f}\\u{0}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\u{2028}b\u{202e}c\u{2066}", "a\\u{2028}b\\u{202e}c\\u{2066}"),
        ] {
            assert_eq!(Escaped(text).to_string(), shown);
        }
    }

    #[test]
    fn the_parts_of_what_is_shown_are_escaped() {
        assert_eq!(Escaped(format_args!("{}{:?}{}", "\n", "\n", 7)).to_string(), "\\n\"\\n\"7");
    }

    #[test]
    fn texts_of_peers_are_cut_between_characters_with_a_mark() {
        for (text, shown) in [
            ("", ""),
            ("市場市", "市場市"),
            ("市場市場", "市場市...(truncated)"),
            ("abcdefgh", "abc...(truncated)"),
        ] {
            assert_eq!(cut(text, 3), shown);
        }
        assert_eq!(cut(format_args!("{}{:?}", 12, "市"), 5), "12\"市\"");
        assert_eq!(cut(format_args!("{}{:?}", 12, "市場"), 4), "12\"市...(truncated)");
        assert_eq!(cut("a", 0), "...(truncated)");
    }
}
