//! The errors of a command line, in one sentence with the correction.

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// One line without the usage, which `--help` prints.
#[expect(clippy::wildcard_enum_match_arm, reason = "it is clap's, and has kinds that do not occur here")]
pub(crate) fn explain(error: &Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => (!texts.is_empty()).then(|| texts.join(", ")),
        Some(_) | None => None,
    };
    let option = context(ContextKind::InvalidArg).unwrap_or_default();
    let option = name_of(&option);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let what = if option.starts_with('-') { "option" } else { "argument" };
            let suggested = context(ContextKind::SuggestedArg);
            format!("unknown {what} {option}{}", did_you_mean(suggested.as_deref().map(name_of)))
        }
        ErrorKind::InvalidSubcommand => {
            let given = context(ContextKind::InvalidSubcommand).unwrap_or_default();
            let suggested = context(ContextKind::SuggestedSubcommand);
            format!("unknown subcommand {given}{}", did_you_mean(suggested.as_deref()))
        }
        ErrorKind::MissingSubcommand => {
            let valid = match error.get(ContextKind::ValidSubcommand) {
                Some(ContextValue::Strings(valid)) => alternatives(valid),
                Some(_) | None => String::new(),
            };
            format!("a subcommand is missing: {valid}")
        }
        ErrorKind::MissingRequiredArgument => format!("{option} is missing"),
        ErrorKind::InvalidValue => {
            let valid = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(valid)) => alternatives(valid),
                Some(_) | None => String::new(),
            };
            match context(ContextKind::InvalidValue).filter(|value| !value.is_empty()) {
                Some(value) => format!("{option} {value:?}: must be {valid}"),
                None => format!("{option} needs a value"),
            }
        }
        ErrorKind::ValueValidation => {
            let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            match context(ContextKind::InvalidValue) {
                Some(value) if option.starts_with('-') => format!("{option} {value:?}: {reason}"),
                Some(_) | None => reason,
            }
        }
        // The parser has no other errors with these arguments; if it ever has, its own text is printed.
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}

/// Formats `one, two or three`.
fn alternatives(texts: &[String]) -> String {
    match texts {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}

/// Returns the closest of some names, for a hint, if one is close enough.
pub(crate) fn closest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.into_iter().map(|name| (strsim::jaro(&text.to_lowercase(), name), name));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(score, _)| *score > CLOSE).map(|(_, name)| name)
}

/// The hint after an unknown name.
pub(crate) fn did_you_mean(name: Option<&str>) -> String {
    name.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// Returns `--flag` of `--flag <VALUE>`, and `ADDR` of `<ADDR>`.
fn name_of(shown: &str) -> &str {
    match shown.split_once(' ') {
        Some((option, _)) if option.starts_with('-') => option,
        Some(_) | None => shown.trim_matches(['<', '>', '[', ']', '.']),
    }
}

/// The minimum similarity of a hint; 1 is equality.
const CLOSE: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn the_closest_name_is_suggested_if_one_is_close() {
        let types = ["listener", "route", "cluster", "endpoints", "secret"];
        for (text, expected) in [
            ("clusters", Some("cluster")),
            ("Cluster", Some("cluster")),
            ("lisener", Some("listener")),
            ("endpoint", Some("endpoints")),
            ("routes", Some("route")),
            ("xyz", None),
            ("", None),
        ] {
            assert_eq!(closest(text, types), expected, "{text:?}");
        }
    }
}
