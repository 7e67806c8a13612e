//! What is wrong with a command line, in one sentence that says what to write instead.

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// One line without the usage, which `--help` has.
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
        // Nothing else is asked of the parser; if it ever is, its own words will do.
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}

/// `one, two or three`.
fn alternatives(texts: &[String]) -> String {
    match texts {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}

/// The closest of some names, for a hint, if one is close.
pub(crate) fn closest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.into_iter().map(|name| (strsim::jaro(&text.to_lowercase(), name), name));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(score, _)| *score > CLOSE).map(|(_, name)| name)
}

/// The hint, behind what is unknown.
pub(crate) fn did_you_mean(name: Option<&str>) -> String {
    name.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// `--flag` of `--flag <VALUE>`, and `ADDR` of `<ADDR>`.
fn name_of(shown: &str) -> &str {
    match shown.split_once(' ') {
        Some((option, _)) if option.starts_with('-') => option,
        Some(_) | None => shown.trim_matches(['<', '>', '[', ']', '.']),
    }
}

/// Of 1, which is the same text.
const CLOSE: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn the_closest_name_is_suggested_if_one_is_close() {
        let types = ["listener", "route", "cluster", "endpoints", "secret"];
        for (text, wanted) in [
            ("clusters", Some("cluster")),
            ("Cluster", Some("cluster")),
            ("lisener", Some("listener")),
            ("endpoint", Some("endpoints")),
            ("routes", Some("route")),
            ("xyz", None),
            ("", None),
        ] {
            assert_eq!(closest(text, types), wanted, "{text:?}");
        }
    }
}
