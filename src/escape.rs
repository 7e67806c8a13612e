use std::fmt::{self, Display, Write};

/// Shows text that comes from elsewhere so that it can neither break a line nor control a terminal.
///
/// Control characters (line ends and ESC among them), line separators and what changes the direction of text are written as
/// escapes, `\n` or `\u{1b}`; all else is shown as it is. Names, versions, error messages and whatever else a server, a
/// file or a resolver of names has sent belong in this when they go to a log or to a terminal. The [`Display`] form of this
/// crate's errors and statuses does so by itself.
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

/// Escapes what is written through it.
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

fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Implements `Debug` for errors as `Type(message)`: that is what is seen of an error that `main` returns, or that is
/// unwrapped, and a dump of the fields leaves out what the message explains.
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
}
