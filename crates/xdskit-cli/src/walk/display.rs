//! All targets as trees on a terminal or in a text.

use std::time::{Duration, SystemTime};

use xdskit::WatchError;

use super::{Seen, trees::Trees};
use crate::{
    paint::Paint,
    tree::{Artist, Warning},
    wrap::Output,
};

/// The trees of all targets.
pub(crate) struct Display {
    /// Colors and marks.
    artist: Artist,
    /// The targets, in the order of the command line.
    targets: Vec<Target>,
    /// Their trees.
    trees: Trees,
}

/// A target of the command line, with what the tree does not remember.
struct Target {
    /// The target as it was written.
    name: String,
    /// The warnings, with the time at which each began.
    warnings: Vec<(WatchError, SystemTime)>,
}

impl Display {
    /// A display of targets whose state is unknown.
    pub(crate) fn new(targets: Vec<String>, output: &impl Output) -> Self {
        let artist = Artist { paint: Paint::for_output(output) };
        let mut trees = Trees::new(output.is_terminal());
        for name in &targets {
            trees.add(vec![format!("{} {name}  …", artist.paint.dim("○"))]);
        }
        let targets = targets.into_iter().map(|name| Target { name, warnings: Vec::new() });
        Self { artist, targets: targets.collect(), trees }
    }

    /// Draws once: one tree below the other, without support for redrawing.
    pub(crate) fn once(self) -> Self {
        Self { trees: self.trees.once(), ..self }
    }

    /// Updates the state of a target.
    pub(crate) fn show(&mut self, index: usize, seen: Seen, now: SystemTime) {
        let target = &mut self.targets[index];
        target.date(&seen, now);
        let lines = self.artist.draw(&target.name, &seen, |warning| target.since(warning).map(time_of_day));
        self.trees.set(index, lines);
    }

    /// Returns the text to print.
    pub(crate) fn draw(&mut self) -> String {
        self.trees.draw()
    }

    /// Returns the same content for a terminal whose size may have changed.
    pub(crate) fn redraw(&self) -> String {
        self.trees.redraw()
    }
}

impl Target {
    /// Updates the warnings with their times.
    fn date(&mut self, seen: &Seen, now: SystemTime) {
        let Ok(snapshot) = seen else { return self.warnings.clear() };
        let warnings = Warning::of(snapshot).into_iter();
        // A warning that goes on keeps its time, although its text may be another one.
        let dated = warnings.map(|warning| (warning.error().clone(), self.since(&warning).unwrap_or(now)));
        self.warnings = dated.collect();
    }

    /// The time at which a warning began, if it is not new.
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

#[cfg(test)]
mod tests {
    use xdskit::tool_support::not_found;

    use super::{super::trees::CLEAR, *};

    /// A display on a terminal, without colours.
    fn display(names: &[&str]) -> Display {
        let nobody = tempfile::tempfile().expect("a file, which is no terminal");
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let mut display = Display::new(names, &nobody);
        display.trees.pretend_terminal();
        display
    }

    fn failure(reason: &str) -> Seen {
        Err(not_found("a/b.Listener", "shop", "me", reason))
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
