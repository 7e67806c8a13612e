use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// The parsed command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Args {
    pub(crate) time: Duration,
    pub(crate) seed: u64,
}

impl Args {
    /// Parses the command line, without the name of the program; `None` if it requests help.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut parsed = Self { time: Duration::from_secs(600), seed: RandomState::new().hash_one(()) };
        while let Some(option) = args.next() {
            let mut number = || {
                let number = args.next().and_then(|text| text.parse::<u64>().ok());
                number.ok_or_else(|| format!("{option} needs a whole number"))
            };
            match option.as_str() {
                "--minutes" => parsed.time = Duration::from_secs(60 * number()?),
                "--seconds" => parsed.time = Duration::from_secs(number()?),
                "--seed" => parsed.seed = number()?,
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown argument {option}")),
            }
        }
        Ok(Some(parsed))
    }
}
