//! Colours for a terminal, and plain text elsewhere.

use std::{
    env,
    fmt::{self, Display},
    io::IsTerminal,
};

/// A painter that colours text, or leaves it unchanged.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    /// Whether there are colors.
    on: bool,
}

/// The style of text on a terminal.
#[derive(Debug, Clone, Copy)]
enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Paint {
    /// A painter that uses colours for terminals, unless the user disables them (`NO_COLOR`).
    pub fn for_output(output: &impl IsTerminal) -> Self {
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { on: output.is_terminal() && !unwanted }
    }

    /// Bold.
    pub fn bold(self, text: impl Display) -> impl Display {
        self.style(Style::Bold, text)
    }

    /// Dimmed.
    pub fn dim(self, text: impl Display) -> impl Display {
        self.style(Style::Dim, text)
    }

    /// In red.
    pub fn red(self, text: impl Display) -> impl Display {
        self.style(Style::Red, text)
    }

    /// In green.
    pub fn green(self, text: impl Display) -> impl Display {
        self.style(Style::Green, text)
    }

    /// In yellow.
    pub fn yellow(self, text: impl Display) -> impl Display {
        self.style(Style::Yellow, text)
    }

    /// In cyan.
    pub fn cyan(self, text: impl Display) -> impl Display {
        self.style(Style::Cyan, text)
    }

    /// A text in a style, where there are styles.
    fn style<T: Display>(self, style: Style, text: T) -> Painted<T> {
        Painted { style: self.on.then_some(style), text }
    }
}

/// A text with the codes of its style around it.
struct Painted<T> {
    /// `None` is plain text.
    style: Option<Style>,
    /// The text, which is formatted last.
    text: T,
}

impl<T: Display> Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(style) = self.style else { return self.text.fmt(f) };
        let code = match style {
            Style::Bold => 1,
            Style::Dim => 2,
            Style::Red => 31,
            Style::Green => 32,
            Style::Yellow => 33,
            Style::Cyan => 36,
        };
        write!(f, "\x1b[{code}m")?;
        self.text.fmt(f)?;
        f.write_str("\x1b[0m")
    }
}
