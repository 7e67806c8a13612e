//! The output of the examples.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Prints a line. Errors are ignored, since the reader of the output may have closed it, for which `println!` panics.
pub(crate) fn print_line(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
