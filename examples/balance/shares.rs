//! The share of each backend in the calls.

use std::fmt::Write;

use xdskit::cli::Paint;

pub(crate) const PHASES: usize = 3;
pub(crate) const DRAINED: usize = 1;
pub(crate) const ADDED: usize = 2;

const TITLES: [&str; PHASES] = ["before", "after the drain", "after the addition"];
/// The backends, and the phases in which each of them must receive some of the calls that begin then, or none.
const BACKENDS: [(&str, [bool; PHASES]); 4] = [
    ("one", [true, true, true]),
    ("two", [true, false, false]),
    ("three", [true, true, true]),
    ("four", [false, false, true]),
];
/// The width of a column: a percentage, and a bar.
const WIDTH: usize = "100 % ".len() + BAR;
const BAR: usize = 17;

#[derive(Debug, Clone, Default)]
pub(crate) struct Shares {
    calls: [[usize; PHASES]; BACKENDS.len()],
    failed: Vec<String>,
}

impl Shares {
    pub(crate) fn count(&mut self, phase: usize, answer: Result<String, String>) {
        let backend = answer.and_then(|name| {
            let known = BACKENDS.iter().position(|(backend, _)| *backend == name);
            known.ok_or_else(|| format!("answered by {name:?}, which there is not"))
        });
        match backend {
            Ok(backend) => self.calls[backend][phase] += 1,
            Err(why) => self.failed.push(why),
        }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.iter().flatten().sum::<usize>() + self.failed.len()
    }

    pub(crate) fn failures(&self) -> usize {
        self.failed.len()
    }

    /// Formats a line for each backend, with its share of the calls of each phase.
    pub(crate) fn table(&self, paint: Paint) -> String {
        let mut table = String::new();
        let titles = TITLES.map(|title| format!("{title:<WIDTH$}")).concat();
        let _ = writeln!(table, "         {}", paint.bold(titles.trim_end()));
        let totals: [usize; PHASES] =
            std::array::from_fn(|phase| self.calls.iter().map(|of| of[phase]).sum());
        for ((name, _), calls) in BACKENDS.iter().zip(&self.calls) {
            let _ = write!(table, "  {name:<7}");
            for (calls, total) in calls.iter().zip(totals) {
                let percent = calls * 100 / total.max(1);
                let bar = "█".repeat(calls * BAR / total.max(1));
                let space = " ".repeat(BAR - bar.chars().count());
                let share = if *calls == 0 { "    –".to_owned() } else { format!("{percent:>3} %") };
                let _ = write!(table, "{share} {}{space}", paint.cyan(bar));
            }
            table.truncate(table.trim_end().len());
            table.push('\n');
        }
        let totals = totals.map(|total| format!("{:<WIDTH$}", format!("{total:>5} calls"))).concat();
        let _ = writeln!(table, "         {}", paint.dim(totals.trim_end()));
        table
    }

    /// Checks the expected shares.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(first) = self.failed.first() {
            return Err(format!("{} calls failed, the first of them: {first}", self.failed.len()));
        }
        for ((name, expected), calls) in BACKENDS.iter().zip(&self.calls) {
            for ((expected, calls), phase) in expected.iter().zip(calls).zip(TITLES) {
                if *expected != (*calls > 0) {
                    return Err(format!("{name} got {calls} calls {phase}"));
                }
            }
        }
        Ok(())
    }
}
