//! JSON web tokens from files, as call credentials (A97).

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::HeaderValue;
use serde_json::Value;

use crate::file_reads;

/// Reads a JSON web token, and returns it as the value of `authorization` (A97).
///
/// A stream is one call, so it has one token: that in the file when the stream is opened. The server checks the
/// signature; the check here is that the token has not expired.
pub(super) fn read(path: &Path, now: SystemTime) -> Result<HeaderValue, String> {
    let bytes = file_reads::read(FIELD, path, MAX_TOKEN)?;
    parse(&bytes, now).map_err(|reason| file_reads::in_file(FIELD, path, &reason))
}

/// Checks a token, and returns its header.
fn parse(bytes: &[u8], now: SystemTime) -> Result<HeaderValue, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| NOT_A_TOKEN.to_owned())?;
    let token = text.trim();
    let expiry = expiry(token)?;
    let age = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    if expiry <= age.as_secs_f64() {
        return Err(format!("the token has expired at {}: replace it by a new one", date(expiry)));
    }
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| NOT_A_TOKEN.to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the claim `exp` in seconds since 1970.
fn expiry(token: &str) -> Result<f64, String> {
    if token.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let parts: Vec<_> = token.split('.').collect();
    let [_, claims, _] = parts[..] else { return Err(NOT_A_TOKEN.to_owned()) };
    if !parts.iter().all(|part| part.bytes().all(is_base64url)) {
        return Err(NOT_A_TOKEN.to_owned());
    }
    // Header and signature are for the server, which knows the key.
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).map_err(|_| NOT_A_TOKEN.to_owned())?;
    let claims: Value = serde_json::from_slice(&claims).map_err(|_| NOT_A_TOKEN.to_owned())?;
    let exp = claims.get("exp").ok_or("the token has no claim `exp`, so its expiry is unknown")?;
    exp.as_f64().ok_or_else(|| "the token's claim `exp` is not a number of seconds".to_owned())
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Formats seconds since 1970 as a date in UTC, such as `2026-11-20T19:30:00Z`.
fn date(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_secs();
    let (mut days, time) = (seconds / DAY, seconds % DAY);
    let mut year = 1970;
    while days >= days_of(year) {
        days -= days_of(year);
        year += 1;
    }
    let mut month = 1;
    while days >= days_of_month(year, month) {
        days -= days_of_month(year, month);
        month += 1;
    }
    let (day, hour, minute, second) = (days + 1, time / 3600, time / 60 % 60, time % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns the days of a year.
fn days_of(year: u64) -> u64 {
    (1..=12).map(|month| days_of_month(year, month)).sum()
}

fn days_of_month(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The name of the file in the configuration.
pub(super) const FIELD: &str = "jwt_token_file";
/// The largest size of a token's file in bytes. Servers refuse much smaller ones.
const MAX_TOKEN: u64 = 64 << 10;
const DAY: u64 = 24 * 60 * 60;
const NOT_A_TOKEN: &str = "not a JSON web token";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_text(text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, text).unwrap();
        let prefix = format!("jwt_token_file {}: ", path.display());
        let value = read(&path, UNIX_EPOCH + Duration::from_secs(NOW))
            .map_err(|error| error.strip_prefix(&prefix).unwrap().to_owned())?;
        assert!(value.is_sensitive(), "it is in no log");
        Ok(value.to_str().unwrap().to_owned())
    }

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a97_a_token_that_has_not_expired_goes_as_bearer() {
        for exp in ["2000000001", "2000000000.5", "1e12"] {
            let token = token(&format!(r#"{{"sub":"shop","exp":{exp}}}"#));
            assert_eq!(read_text(&format!("\n{token}\n")), Ok(format!("Bearer {token}")), "{exp}");
        }
    }

    #[test]
    fn a97_an_invalid_token_is_an_error_that_does_not_show_it() {
        let ended = "the token has expired at 2033-05-18T03:33:20Z: replace it by a new one";
        let secret = token("secret");
        for (text, reason) in [
            ("", "the file is empty"),
            (" \n", "the file is empty"),
            ("secret", NOT_A_TOKEN),
            ("a.secret", NOT_A_TOKEN),
            ("a.secret.c.d", NOT_A_TOKEN),
            ("a.s ecret.c", NOT_A_TOKEN),
            ("a.sec\nret.c", NOT_A_TOKEN),
            (&secret, NOT_A_TOKEN),
            (&token("{}"), "the token has no claim `exp`, so its expiry is unknown"),
            (&token("[]"), "the token has no claim `exp`, so its expiry is unknown"),
            (&token(r#"{"exp":"soon"}"#), "the token's claim `exp` is not a number of seconds"),
            (&token(r#"{"exp":2000000000}"#), ended),
            (
                &token(r#"{"exp":0}"#),
                "the token has expired at 1970-01-01T00:00:00Z: replace it by a new one",
            ),
            (
                &token(r#"{"exp":-1}"#),
                "the token has expired at 1970-01-01T00:00:00Z: replace it by a new one",
            ),
        ] {
            assert_eq!(read_text(text), Err(reason.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn a97_a_file_that_is_no_token_by_its_size_is_not_read() {
        let error = read_text(&"a".repeat(64 * 1024 + 1)).unwrap_err();
        assert_eq!(error, "larger than 64 KiB");
        assert_eq!(read_text(&"a".repeat(64 * 1024)), Err(NOT_A_TOKEN.to_owned()));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (951_782_399.0, "2000-02-28T23:59:59Z"),
            (951_827_696.0, "2000-02-29T12:34:56Z"),
            (1_709_251_200.0, "2024-03-01T00:00:00Z"),
            (1_798_761_599.0, "2026-12-31T23:59:59Z"),
            (4_107_542_400.0, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    const NOW: u64 = 2_000_000_000;
}
