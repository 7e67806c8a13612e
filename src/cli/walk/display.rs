//! All targets as trees on a terminal or in a text.

use std::{
    io,
    time::{Duration, SystemTime},
};

use super::{Seen, marks::marks, screen::arrange};
use crate::{
    WatchError,
    cli::{
        paint::Paint,
        tree::{Artist, Warning},
        wrap::{self, Output, Size},
    },
};

/// The trees of all targets. On a terminal all are redrawn when one changes; elsewhere, changed trees are appended to
/// the output.
pub(crate) struct Display {
    artist: Artist,
    is_terminal: bool,
    targets: Vec<Target>,
    is_begun: bool,
}

struct Target {
    name: String,
    lines: Vec<String>,
    has_changed: bool,
    /// The last drawn lines and their marks; `None` before the first tree.
    drawn: Option<Vec<String>>,
    marks: Vec<char>,
    /// The warnings, with the time at which each began.
    warnings: Vec<(WatchError, SystemTime)>,
}

impl Display {
    pub(crate) fn new(targets: Vec<String>, output: &impl Output) -> Self {
        let artist = Artist { paint: Paint::for_output(output) };
        let targets = targets.into_iter().map(|name| {
            let lines = vec![format!("{} {name}  …", artist.paint.dim("○"))];
            Target { name, lines, has_changed: false, drawn: None, marks: Vec::new(), warnings: Vec::new() }
        });
        Self { artist, is_terminal: output.is_terminal(), targets: targets.collect(), is_begun: false }
    }

    /// Draws once: one tree below the other, without support for redrawing.
    pub(crate) fn once(self) -> Self {
        Self { is_terminal: false, ..self }
    }

    /// Updates the state of a target.
    pub(crate) fn show(&mut self, index: usize, seen: Seen, now: SystemTime) {
        let target = &mut self.targets[index];
        target.date(&seen, now);
        let lines = self.artist.draw(&target.name, &seen, |warning| target.since(warning).map(time_of_day));
        target.has_changed |= lines != target.lines;
        target.lines = lines;
    }

    /// Returns the text to print.
    pub(crate) fn draw(&mut self) -> String {
        if !self.targets.iter().any(|target| target.has_changed) {
            return String::new();
        }
        let text = if self.is_terminal {
            self.targets.iter_mut().for_each(Target::mark);
            self.redraw()
        } else {
            let begin = if self.is_begun { "\n" } else { "" };
            let changed = self.targets.iter().filter(|target| target.has_changed);
            let trees: Vec<_> = changed.map(|target| target.lines.join("\n") + "\n").collect();
            wrap::for_output(&(begin.to_owned() + &trees.join("\n")), &io::stdout())
        };
        self.targets.iter_mut().for_each(|target| target.has_changed = false);
        self.is_begun = true;
        text
    }

    /// Returns the same content for a terminal whose size may have changed.
    pub(crate) fn redraw(&self) -> String {
        let trees: Vec<_> = self.targets.iter().map(Target::marked).collect();
        let trees: Vec<_> = trees.iter().map(Vec::as_slice).collect();
        CLEAR.to_owned() + &arrange(&trees, Size::of_terminal(&io::stdout()))
    }
}

impl Target {
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

    /// Updates the warnings with their times.
    fn date(&mut self, seen: &Seen, now: SystemTime) {
        let Ok(snapshot) = seen else { return self.warnings.clear() };
        let warnings = Warning::of(snapshot).into_iter();
        let dated = warnings.map(|warning| (warning.error().clone(), self.since(&warning).unwrap_or(now)));
        self.warnings = dated.collect();
    }

    fn since(&self, warning: &Warning<'_>) -> Option<SystemTime> {
        // While a server is unreachable, the reason may change with each attempt.
        let goes_on = |before: &WatchError| {
            warning.error() == before || (warning.error().is_transient() && before.is_transient())
        };
        self.warnings.iter().find(|(error, _)| goes_on(error)).map(|(_, begin)| *begin)
    }
}

/// Formats a time as in operators' logs.
fn time_of_day(time: SystemTime) -> String {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let second = since_1970.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// Clears the terminal and moves to its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Blame, Code, Subject};

    /// A display on a terminal, without colours.
    fn display(names: &[&str]) -> Display {
        let nobody = tempfile::tempfile().expect("a file, which is no terminal");
        let names = names.iter().map(|&name| name.to_owned()).collect();
        Display { is_terminal: true, ..Display::new(names, &nobody) }
    }

    fn failure(reason: &str) -> Seen {
        let about = Subject { type_url: "a/b.Listener", name: "shop".into(), node: "me".into() };
        Err(WatchError::new(Code::NotFound, Blame::Peer, about, reason))
    }

    #[test]
    fn what_has_changed_is_marked_until_it_is_drawn_again() {
        let mut display = display(&["a", "b"]);
        assert_eq!(display.draw(), "");
        display.show(0, failure("one"), SystemTime::UNIX_EPOCH);
        let unmarked =
            |reason: &str| format!("  ✗ a\n  └─ NOT_FOUND: Listener \"shop\": {reason} [node id: me]\n");
        assert_eq!(display.draw(), format!("{CLEAR}{}\n  ○ b  …\n", unmarked("one")), "the first is not new");

        display.show(0, failure("two"), SystemTime::UNIX_EPOCH);
        let marked = unmarked("two").replace("  └─", "~ └─");
        assert_eq!(display.draw(), format!("{CLEAR}{marked}\n  ○ b  …\n"));
        assert_eq!(display.redraw(), format!("{CLEAR}{marked}\n  ○ b  …\n"), "a resize is no change");
        display.show(0, failure("two"), SystemTime::UNIX_EPOCH);
        assert_eq!(display.draw(), "");

        display.show(1, failure("three"), SystemTime::UNIX_EPOCH);
        let other = unmarked("three").replace("✗ a", "✗ b");
        assert_eq!(display.draw(), format!("{CLEAR}{}\n{other}", unmarked("two")));
    }
}
