//! Dates and times as ISO text, for every day that 32 bits and every microsecond that 64 bits can say: the
//! proleptic Gregorian calendar, years beyond 9999 with a sign, as Java and Spark write them.

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;
const DAYS_PER_ERA: i64 = 146_097;
/// Further from UTC no zone is (Java's `ZoneOffset`).
const MAX_OFFSET_SECONDS: i64 = 18 * 3600;

/// A date and a time, and how far its clock is ahead of UTC where the text says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Microseconds since the epoch as the clock shows them. Wide: the zone may bring them back into 64 bits.
    local_micros: i128,
    offset_seconds: Option<i64>,
}

impl Moment {
    /// Microseconds since the epoch in UTC; `None` for a text without a zone, and beyond 64 bits.
    pub(crate) fn instant(self) -> Option<i64> {
        let offset = i128::from(self.offset_seconds? * MICROS_PER_SECOND);
        i64::try_from(self.local_micros - offset).ok()
    }

    /// What the clock shows; `None` for a text with a zone, and beyond 64 bits.
    pub(crate) fn local(self) -> Option<i64> {
        match self.offset_seconds {
            Some(_) => None,
            None => i64::try_from(self.local_micros).ok(),
        }
    }
}

/// `yyyy-MM-dd`.
pub(crate) fn format_date(days: i32) -> String {
    let (year, month, day) = civil(i64::from(days));
    let sign = match year {
        0..=9999 => "",
        10_000.. => "+",
        _ => "-",
    };
    format!("{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs())
}

/// `yyyy-MM-dd`, the separator, `HH:mm:ss.ffffff`.
pub(crate) fn format_micros(micros: i64, separator: char) -> String {
    let days = micros.div_euclid(MICROS_PER_DAY);
    let rest = micros.rem_euclid(MICROS_PER_DAY);
    let (seconds, fraction) = (rest / MICROS_PER_SECOND, rest % MICROS_PER_SECOND);
    // 64 bits of microseconds are some hundred million days.
    let date = format_date(i32::try_from(days).unwrap_or_default());
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!(
        "{date}{separator}{hours:02}:{minutes:02}:{:02}.{fraction:06}",
        seconds % 60
    )
}

/// Days since the epoch. A time behind the date is left away: some writers append a midnight.
pub(crate) fn parse_date(text: &str) -> Option<i32> {
    let (days, rest) = date(text.trim_ascii())?;
    if !rest.is_empty() && !rest.starts_with([' ', 'T']) {
        return None;
    }
    i32::try_from(days).ok()
}

/// A date alone is its midnight. Digits beyond microseconds are cut.
pub(crate) fn parse_moment(text: &str) -> Option<Moment> {
    let (days, rest) = date(text.trim_ascii())?;
    let midnight = i128::from(days) * i128::from(MICROS_PER_DAY);
    if rest.is_empty() {
        return Some(Moment {
            local_micros: midnight,
            offset_seconds: None,
        });
    }
    let rest = rest.strip_prefix([' ', 'T'])?;
    let (hours, rest) = number(rest, 2)?;
    let (minutes, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (seconds, rest) = match rest.strip_prefix(':') {
        Some(rest) => number(rest, 2)?,
        None => (0, rest),
    };
    let (micros, rest) = match rest.strip_prefix('.') {
        Some(rest) => fraction(rest)?,
        None => (0, rest),
    };
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let time = ((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + micros;
    Some(Moment {
        local_micros: midnight + i128::from(time),
        offset_seconds: offset(rest)?,
    })
}

/// Seconds ahead of UTC; `Some(None)` for no zone at all, `None` for what is none.
fn offset(text: &str) -> Option<Option<i64>> {
    if text.is_empty() {
        return Some(None);
    }
    let text = text.strip_prefix(' ').unwrap_or(text);
    if matches!(text, "Z" | "z" | "UTC" | "GMT") {
        return Some(Some(0));
    }
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, text.get(1..)?),
        b'-' => (-1, text.get(1..)?),
        _ => return None,
    };
    let (hours, rest) = number(rest, 2)?;
    let (minutes, rest) = match rest.strip_prefix(':').unwrap_or(rest) {
        "" if rest.is_empty() => (0, ""),
        minutes => number(minutes, 2)?,
    };
    let seconds = (hours * 60 + minutes) * 60;
    (rest.is_empty() && minutes < 60 && seconds <= MAX_OFFSET_SECONDS)
        .then_some(Some(sign * seconds))
}

/// Days since the epoch and what follows the date.
fn date(text: &str) -> Option<(i64, &str)> {
    let (sign, text) = match text.as_bytes().first()? {
        b'+' => (1, text.get(1..)?),
        b'-' => (-1, text.get(1..)?),
        _ => (1, text),
    };
    let (year, rest) = number(text, 7)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = number(rest.strip_prefix('-')?, 2)?;
    Some((days(sign * year, month, day)?, rest))
}

/// The number of one to `most` digits that the text begins with.
fn number(text: &str, most: usize) -> Option<(i64, &str)> {
    let (number, rest) = text.split_at_checked(digits(text).min(most))?;
    Some((number.parse().ok()?, rest))
}

fn fraction(text: &str) -> Option<(i64, &str)> {
    let (digits, rest) = text.split_at_checked(digits(text))?;
    if digits.is_empty() {
        return None;
    }
    let micros = digits
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(6)
        .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some((micros, rest))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// The date of a day; the algorithm counts from 1 March of a leap century, so that February is last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The day of a date; `None` for one that the calendar lacks.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) {
        return None;
    }
    let shifted_year = year - i64::from(month <= 2);
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let shifted_month = (month + 9) % 12;
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * DAYS_PER_ERA + day_of_era - EPOCH;
    // A day too many is one of the next month.
    (civil(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn days_beyond_four_digit_years_have_a_text() {
        for (days, text) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (-719_528, "0000-01-01"),
            (-719_529, "-0001-12-31"),
            (2_932_896, "9999-12-31"),
            (2_932_897, "+10000-01-01"),
            (i32::MAX, "+5881580-07-11"),
            (i32::MIN, "-5877641-06-23"),
        ] {
            assert_eq!(format_date(days), text);
            assert_eq!(parse_date(text), Some(days));
        }
        for (micros, text) in [
            (i64::MAX, "+294247-01-10T04:00:54.775807"),
            (i64::MIN, "-290308-12-21T19:59:05.224192"),
            (-1, "1969-12-31T23:59:59.999999"),
        ] {
            assert_eq!(format_micros(micros, 'T'), text);
            assert_eq!(parse_moment(text).unwrap().local(), Some(micros));
        }
    }

    #[test]
    fn what_is_no_date_or_time_is_refused() {
        for text in [
            "",
            "2020",
            "2020-01",
            "2020-13-01",
            "2021-02-29",
            "2020-00-01",
            "2020-01-00",
            "2020-01-32",
            "2020-01-01x",
            "--2020-01-01",
            "99999999-01-01",
            "2020-01-01T",
            "2020-01-01 24:00:00",
            "2020-01-01 00:60:00",
            "2020-01-01 00:00:60",
            "2020-01-01 00:00:00.",
            "2020-01-01 00:00:00 Europe/Rome",
            "2020-01-01 00:00:00+19:00",
            "2020-01-01 00:00:00+01:60",
            "2020-01-01 00:00:00+01:",
            "2020-01-01 00:00:00Zx",
            "+294247-01-10T04:00:54.775808",
        ] {
            let moment = parse_moment(text).and_then(|m| m.local().or(m.instant()));
            assert_eq!(moment, None, "{text}");
        }
        assert_eq!(parse_date("+9999999-01-01"), None);
    }

    #[test]
    fn every_form_of_a_zone_is_read() {
        for zone in ["Z", " UTC", "GMT", "+00:00", "-0000", "+00"] {
            let moment = parse_moment(&format!("1970-01-01 00:00:01.5{zone}")).unwrap();
            assert_eq!(moment.instant(), Some(1_500_000), "{zone}");
            assert_eq!(moment.local(), None);
        }
        let ahead = parse_moment("1970-01-01T01:00+01:00").unwrap();
        assert_eq!(ahead.instant(), Some(0));
        let behind = parse_moment("1969-12-31T18:15:00.1234567-0545").unwrap();
        assert_eq!(behind.instant(), Some(123_456));
        assert_eq!(parse_moment("1970-1-2").unwrap().instant(), None);
        assert_eq!(
            parse_moment("1970-1-2").unwrap().local(),
            Some(MICROS_PER_DAY)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_day_and_microsecond_comes_back(days: i32, micros: i64) {
            prop_assert_eq!(parse_date(&format_date(days)), Some(days));
            for separator in [' ', 'T'] {
                let text = format_micros(micros, separator);
                prop_assert_eq!(parse_moment(&text).and_then(Moment::local), Some(micros));
                let zoned = parse_moment(&format!("{text}Z")).and_then(Moment::instant);
                prop_assert_eq!(zoned, Some(micros));
            }
        }

        #[test]
        fn chrono_agrees(days in -90_000_000_i64..90_000_000) {
            let date = chrono::NaiveDate::default()
                .checked_add_signed(chrono::TimeDelta::days(days));
            if let Some(date) = date {
                let text = date.format("%Y-%m-%d").to_string();
                prop_assert_eq!(format_date(i32::try_from(days).unwrap()), text);
            }
        }

        #[test]
        fn no_text_panics(text in "[-+0-9TZ:. UTC]{0,40}") {
            let _ = parse_date(&text);
            let _ = parse_moment(&text).map(|m| (m.instant(), m.local()));
        }
    }
}
