//! Names in `versions/` and `at/`: numbers and times.

use chrono::{FixedOffset, NaiveDate, NaiveTime};

use crate::env::Millis;

/// What a time may look like, for messages and README.
pub const TIME_FORMS: &str = "2026-11-30T12:00:00Z, 2026-11-30T12:00:00.123+02:00, 2026-11-30 12:00:00 (UTC), 2026-11-30 \
     (midnight UTC), or 13 digits of milliseconds since 1970";

/// A version by its one name: decimal, without sign or leading zeros.
pub fn parse_version(name: &str) -> Option<u64> {
    if !is_digits(name) || (name.len() > 1 && name.starts_with('0')) {
        return None;
    }
    name.parse()
        .ok()
        .filter(|version| i64::try_from(*version).is_ok())
}

/// A point of time in milliseconds since the epoch; finer fractions are cut off. Without a zone it is UTC, without a
/// time midnight. See [`TIME_FORMS`].
pub fn parse_time(name: &str) -> Option<Millis> {
    if name.len() == 13 && is_digits(name) {
        return name.parse().ok();
    }
    let (date, rest) = name.split_at_checked(10)?;
    let date = parse_date(date)?;
    let (time, offset) = match rest.strip_prefix(['T', 't', ' ']) {
        None if rest.is_empty() => (NaiveTime::MIN, FixedOffset::east_opt(0)?),
        None => return None,
        Some(rest) => parse_clock(rest)?,
    };
    let local = date.and_time(time).and_local_timezone(offset);
    Some(local.single()?.timestamp_millis())
}

/// `YYYY-MM-DD`.
fn parse_date(text: &str) -> Option<NaiveDate> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let four = number(year, 4)?;
    NaiveDate::from_ymd_opt(
        i32::try_from(four).ok()?,
        number(month, 2)?,
        number(day, 2)?,
    )
    .filter(|_| parts.next().is_none())
}

/// `hh:mm[:ss[.f…]][zone]`.
fn parse_clock(text: &str) -> Option<(NaiveTime, FixedOffset)> {
    let end = text.find(['Z', 'z', '+', '-']).unwrap_or(text.len());
    let (clock, zone) = text.split_at_checked(end)?;
    let mut parts = clock.split(':');
    let (hour, minute) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let (second, millis) = match parts.next() {
        None => (0, 0),
        Some(seconds) => match seconds.split_once('.') {
            None => (number(seconds, 2)?, 0),
            Some((whole, fraction)) => {
                if !is_digits(fraction) || fraction.len() > 9 {
                    return None;
                }
                let digits = format!("{fraction:0<3}");
                (number(whole, 2)?, digits.get(..3)?.parse().ok()?)
            }
        },
    };
    if parts.next().is_some() {
        return None;
    }
    let time = NaiveTime::from_hms_milli_opt(hour, minute, second, millis)?;
    Some((time, parse_zone(zone)?))
}

/// Nothing, `Z`, `±hh:mm` or `±hhmm`.
fn parse_zone(text: &str) -> Option<FixedOffset> {
    if text.is_empty() || text.eq_ignore_ascii_case("z") {
        return FixedOffset::east_opt(0);
    }
    let (sign, rest) = text.split_at_checked(1)?;
    let (hours, minutes) = match rest.split_once(':') {
        Some(parts) => parts,
        None => rest.split_at_checked(2)?,
    };
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = i32::try_from((hours * 60 + minutes) * 60).ok()?;
    FixedOffset::east_opt(if sign == "-" { -seconds } else { seconds })
}

/// A number of exactly so many digits.
fn number(text: &str, digits: usize) -> Option<u32> {
    (text.len() == digits && is_digits(text)).then(|| text.parse().ok())?
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_one_name() {
        assert_eq!(parse_version("0"), Some(0));
        assert_eq!(parse_version("10000"), Some(10_000));
        assert_eq!(
            parse_version("9223372036854775807"),
            Some(i64::MAX.unsigned_abs())
        );
        for odd in [
            "",
            "007",
            "00",
            "+1",
            "-1",
            "1 ",
            " 1",
            "1.0",
            "0x1",
            "１",
            "9223372036854775808",
            "18446744073709551616",
            "99999999999999999999999999",
            "1e3",
            "v1",
        ] {
            assert_eq!(parse_version(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn times_are_read_in_every_form_that_is_promised() {
        let noon = 1_796_040_000_000;
        for (text, expected) in [
            ("2026-11-30T12:00:00Z", noon),
            ("2026-11-30t12:00:00z", noon),
            ("2026-11-30T12:00:00", noon),
            ("2026-11-30 12:00:00", noon),
            ("2026-11-30 12:00:00Z", noon),
            ("2026-11-30T12:00", noon),
            ("2026-11-30T14:00:00+02:00", noon),
            ("2026-11-30T06:30:00-0530", noon),
            ("2026-11-30T12:00:00.5Z", noon + 500),
            ("2026-11-30T12:00:00.1239999+00:00", noon + 123),
            ("2026-11-30T12:00:00.000000001", noon),
            ("2026-11-30", noon - 12 * 3_600_000),
            ("1970-01-01", 0),
            ("1969-12-31T23:59:59.999Z", -1),
            ("0000-01-01", -62_167_219_200_000),
            ("1796040000000", noon),
        ] {
            assert_eq!(parse_time(text), Some(expected), "{text}");
        }
        for odd in [
            "",
            "now",
            "yesterday",
            "2026",
            "2026-11",
            "20261130",
            "2026-13-01",
            "2026-02-30",
            "2026-11-30T",
            "2026-11-30T12",
            "2026-11-30T24:00:00Z",
            "2026-11-30T12:60:00Z",
            "2026-11-30T12:00:60Z",
            "2026-11-30T12:00:00.Z",
            "2026-11-30T12:00:00.1234567890Z",
            "2026-11-30T12:00:00+2:00",
            "2026-11-30T12:00:00+24:00",
            "2026-11-30T12:00:00+02:60",
            "2026-11-30T12:00:00Z ",
            "2026-11-30T12:00:00ZZ",
            "2026-11-30x12:00:00Z",
            "2026-11-30Z",
            "+2026-11-30",
            "26-11-30",
            "2026-1-3",
            "２026-11-30",
            "2026-11-3é",
            "179604000000",
            "17960400000000",
            "-179604000000",
        ] {
            assert_eq!(parse_time(odd), None, "{odd:?}");
        }
    }
}
