//! The JSON forms of durations and timestamps.

/// Parses `1.5s`, with up to nine digits after the point.
/// Returns seconds and nanoseconds, both with the sign of the duration.
pub(super) fn parse_duration(text: &str) -> Result<(i64, i32), String> {
    let parse = || {
        let number = text.strip_suffix('s')?;
        let (negative, number) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
        let (whole, nanos) = split_fraction(number)?;
        let seconds = digits(whole)?;
        // Both parts have the sign of the duration, as protobuf requires.
        Some(if negative { (-seconds, -nanos) } else { (seconds, nanos) })
    };
    match parse() {
        Some((seconds, _)) if seconds.abs() > MAX_SECONDS => Err(format!("{text:?} is out of range")),
        Some(duration) => Ok(duration),
        None => Err(format!("must be a duration such as \"1.5s\", not {:?}", cut(text))),
    }
}

/// Formats a duration in seconds; `None` outside of the range of protobuf.
pub(super) fn show_duration(seconds: i64, nanos: i32) -> Option<String> {
    let fits = seconds.unsigned_abs() <= MAX_SECONDS.unsigned_abs() && nanos.unsigned_abs() < 1_000_000_000;
    if !fits || (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0) {
        return None;
    }
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    Some(format!("{sign}{}{}s", seconds.unsigned_abs(), show_fraction(nanos.unsigned_abs())))
}

/// Parses `1972-01-01T10:00:20.021Z`, or with an offset in place of `Z`.
/// Returns the seconds since 1970 in UTC, and the nanoseconds after them.
pub(super) fn parse_timestamp(text: &str) -> Result<(i64, i32), String> {
    let parse = || {
        let (date, rest) = text.split_once(['T', 't'])?;
        let (time, offset) = match rest.strip_suffix(['Z', 'z']) {
            Some(time) => (time, 0),
            None => {
                // An offset such as `+01:00` has six bytes.
                let (time, offset) = rest.split_at_checked(rest.len().checked_sub(6)?)?;
                let (sign, offset) = match offset.strip_prefix('-') {
                    Some(offset) => (-1, offset),
                    None => (1, offset.strip_prefix('+')?),
                };
                let [hours, minutes] = numbers::<2>(offset, ':')?;
                (time, (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))?)
            }
        };
        let (time, nanos) = split_fraction(time)?;
        let ([year, month, day], [hour, minute, second]) =
            (numbers::<3>(date, '-')?, numbers::<3>(time, ':')?);
        // Protobuf's timestamps have no leap seconds.
        let exists = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_of(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        // Computed before `exists` is tested, which is safe: numbers of two and four digits cannot overflow.
        let seconds = days_before(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
        exists.then_some((seconds, nanos))
    };
    // Again, since the offset may lead out of the years from 1 to 9999.
    let parsed = parse().filter(|(seconds, _)| (MIN_TIME..=MAX_TIME).contains(seconds));
    parsed.ok_or_else(|| format!("must be a time of RFC 3339, not {:?}", cut(text)))
}

/// Formats a time of RFC 3339; `None` outside of the range of protobuf.
pub(super) fn show_timestamp(seconds: i64, nanos: i32) -> Option<String> {
    if !(MIN_TIME..=MAX_TIME).contains(&seconds) || !(0..1_000_000_000).contains(&nanos) {
        return None;
    }
    let (mut days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The estimate is not too late, since a year has 365 or 366 days.
    let mut year = 1970 + days.div_euclid(366).min(days.div_euclid(365));
    while days_before(year + 1, 1, 1) <= days {
        year += 1;
    }
    days -= days_before(year, 1, 1);
    let mut month = 1;
    while days >= days_of(year, month) {
        days -= days_of(year, month);
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = show_fraction(nanos.unsigned_abs());
    Some(format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z", days + 1))
}

/// Parses a number of digits alone.
fn digits(text: &str) -> Option<i64> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok())?
}

/// Splits a number into the digits before its point, and the nanoseconds of the one to nine digits after it.
fn split_fraction(number: &str) -> Option<(&str, i32)> {
    let Some((whole, fraction)) = number.split_once('.') else { return Some((number, 0)) };
    let padded = (1..=9).contains(&fraction.len()).then(|| format!("{fraction:0<9}"))?;
    Some((whole, i32::try_from(digits(&padded)?).ok()?))
}

/// Formats with no, three, six or nine digits.
fn show_fraction(nanos: u32) -> String {
    match nanos {
        0 => String::new(),
        _ if nanos.is_multiple_of(1_000_000) => format!(".{:03}", nanos / 1_000_000),
        _ if nanos.is_multiple_of(1_000) => format!(".{:06}", nanos / 1_000),
        _ => format!(".{nanos:09}"),
    }
}

/// Parses numbers of two digits, or of four for the first of three.
fn numbers<const N: usize>(text: &str, separator: char) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (index, number) in numbers.iter_mut().enumerate() {
        let part = parts.next()?;
        let width = if separator == '-' && index == 0 { 4 } else { 2 };
        *number = (part.len() == width).then(|| digits(part))??;
    }
    parts.next().is_none().then_some(numbers)
}

/// Whether a year has 366 days.
fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// The number of days of a month.
fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The number of days from 1970 to a date.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let past = year - 1;
    let years = past * 365 + past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400);
    let months: i64 = (1..month).map(|month| days_of(year, month)).sum();
    years + months + day - 1 - DAYS_TO_1970
}

/// The head of a text, for errors.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

/// About 10,000 years, the range of protobuf.
const MAX_SECONDS: i64 = 315_576_000_000;
/// The years 1 to 9999.
const MIN_TIME: i64 = -62_135_596_800;
const MAX_TIME: i64 = 253_402_300_799;
/// The number of days from the year 1 to 1970.
const DAYS_TO_1970: i64 = 719_162;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_with_up_to_nine_digits_after_the_point() {
        for (text, expected) in [
            ("1.5s", (1, 500_000_000)),
            ("0s", (0, 0)),
            ("-0.000000001s", (0, -1)),
            ("-3.25s", (-3, -250_000_000)),
            ("315576000000s", (MAX_SECONDS, 0)),
        ] {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "s",
            "1",
            "1.5",
            "1.s",
            "1 s",
            "+1s",
            "--1s",
            "1.0000000001s",
            "315576000001s",
            "1e3s",
            "1ms",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_with_no_three_six_or_nine_digits() {
        for (text, seconds, nanos) in
            [("1.500s", 1, 500_000_000), ("-0.000001s", 0, -1_000), ("7s", 7, 0), ("0.000000010s", 0, 10)]
        {
            assert_eq!(show_duration(seconds, nanos).as_deref(), Some(text));
            assert_eq!(parse_duration(text), Ok((seconds, nanos)));
        }
        for (seconds, nanos) in
            [(1, -1), (-1, 1), (0, 1_000_000_000), (i64::MIN, 0), (MAX_SECONDS + 1, 0), (0, i32::MIN)]
        {
            assert_eq!(show_duration(seconds, nanos), None);
        }
    }

    #[test]
    fn times_are_those_of_rfc_3339() {
        for (text, seconds, nanos) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("1972-01-01T10:00:20.021Z", 63_108_020, 21_000_000),
            ("2000-02-29T23:59:59Z", 951_868_799, 0),
            ("2024-12-31T00:00:00Z", 1_735_603_200, 0),
            ("0001-01-01T00:00:00Z", MIN_TIME, 0),
            ("9999-12-31T23:59:59.999999999Z", MAX_TIME, 999_999_999),
            ("1969-12-31T23:59:59Z", -1, 0),
        ] {
            assert_eq!(parse_timestamp(text), Ok((seconds, nanos)), "{text}");
            assert_eq!(show_timestamp(seconds, nanos).as_deref(), Some(text));
        }
        assert_eq!(parse_timestamp("1970-01-01T01:00:00+01:00"), Ok((0, 0)));
        assert_eq!(parse_timestamp("1969-12-31T22:30:00-01:30"), Ok((0, 0)));
        assert_eq!(parse_timestamp("1970-01-01T23:59:00+23:59"), Ok((0, 0)));
        for text in [
            "",
            "T",
            "Z",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-13-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "1970-01-01T00:00:00é1:00",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00-00:60",
        ] {
            assert!(parse_timestamp(text).is_err(), "{text}");
        }
    }
}
