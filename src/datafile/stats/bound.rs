//! Bounds: their order, and their text in the log.

use std::cmp::Ordering;

use chrono::DateTime;

use crate::schema::Scalar;
use crate::schema::partition::{format_date, format_decimal};

/// Characters that a bound of strings keeps.
const PREFIX: usize = 32;
/// Characters that a maximum may grow to until a tie-breaker fits.
const LONGEST: usize = 64;
const LOW_TIE: char = '\u{7f}';
const HIGH_TIE: char = '\u{10ffff}';
/// 0001-01-01 and 9999-12-31: what four-digit years can say.
const DAYS: std::ops::RangeInclusive<i32> = -719_162..=2_932_896;
const MICROS_PER_DAY: i64 = 86_400_000_000;

/// The order of two values of one type; `None` across types. Floats in total order, -0.0 before 0.0.
pub(super) fn order(a: &Scalar, b: &Scalar) -> Option<Ordering> {
    Some(match (a, b) {
        (Scalar::String(a), Scalar::String(b)) => a.cmp(b),
        (Scalar::Long(a), Scalar::Long(b)) => a.cmp(b),
        (Scalar::Integer(a), Scalar::Integer(b)) => a.cmp(b),
        (Scalar::Short(a), Scalar::Short(b)) => a.cmp(b),
        (Scalar::Byte(a), Scalar::Byte(b)) => a.cmp(b),
        (Scalar::Float(a), Scalar::Float(b)) => a.total_cmp(b),
        (Scalar::Double(a), Scalar::Double(b)) => a.total_cmp(b),
        (Scalar::Decimal(a, _, s), Scalar::Decimal(b, _, t)) if s == t => a.cmp(b),
        (Scalar::Date(a), Scalar::Date(b)) => a.cmp(b),
        (Scalar::Timestamp(a), Scalar::Timestamp(b))
        | (Scalar::TimestampNtz(a), Scalar::TimestampNtz(b)) => a.cmp(b),
        _ => return None,
    })
}

/// JSON text of a minimum: at most the value. `None` when the log can't say it.
pub(super) fn min_json(value: &Scalar) -> Option<String> {
    match value {
        Scalar::String(v) => {
            let end = v.char_indices().nth(PREFIX).map_or(v.len(), |(at, _)| at);
            serde_json::to_string(&v[..end]).ok()
        }
        Scalar::Float(v) => float_json(f64::from(*v), "-0.0"),
        Scalar::Double(v) => float_json(*v, "-0.0"),
        other => json(other),
    }
}

/// JSON text of a maximum: at least the value, once a reader has added the millisecond that timestamps are cut
/// by. `None` when the log can't say it.
pub(super) fn max_json(value: &Scalar) -> Option<String> {
    match value {
        Scalar::String(v) => serde_json::to_string(&max_prefix(v)?).ok(),
        Scalar::Float(v) => float_json(f64::from(*v), "0.0"),
        Scalar::Double(v) => float_json(*v, "0.0"),
        other => json(other),
    }
}

fn json(value: &Scalar) -> Option<String> {
    Some(match value {
        Scalar::Long(v) => v.to_string(),
        Scalar::Integer(v) => v.to_string(),
        Scalar::Short(v) => v.to_string(),
        Scalar::Byte(v) => v.to_string(),
        Scalar::Decimal(v, _, scale) => format_decimal(*v, *scale),
        Scalar::Date(days) => {
            if !DAYS.contains(days) {
                return None;
            }
            format!("\"{}\"", format_date(*days))
        }
        Scalar::Timestamp(us) => format!("\"{}Z\"", millis(*us)?),
        Scalar::TimestampNtz(us) => format!("\"{}\"", millis(*us)?),
        _ => return None,
    })
}

/// A `f32` is widened, so that readers of either width get the very value.
fn float_json(value: f64, zero: &str) -> Option<String> {
    if value == 0.0 {
        return Some(zero.to_owned());
    }
    value.is_finite().then(|| format!("{value:?}"))
}

/// Cut down to milliseconds.
fn millis(us: i64) -> Option<String> {
    let first = i64::from(*DAYS.start()) * MICROS_PER_DAY;
    let after = (i64::from(*DAYS.end()) + 1) * MICROS_PER_DAY;
    if !(first..after).contains(&us) {
        return None;
    }
    let time = DateTime::from_timestamp_millis(us.div_euclid(1000))?;
    Some(time.format("%Y-%m-%dT%H:%M:%S%.3f").to_string())
}

/// The shortest of 32 to 64 characters that, with a tie-breaker, is no less than `text`.
fn max_prefix(text: &str) -> Option<String> {
    let starts: Vec<(usize, char)> = text.char_indices().take(LONGEST + 1).collect();
    if starts.len() <= PREFIX {
        return Some(text.to_owned());
    }
    for (end, next) in starts.iter().skip(PREFIX) {
        let tie = match *next {
            c if c < LOW_TIE => LOW_TIE,
            c if c < HIGH_TIE => HIGH_TIE,
            _ => continue,
        };
        return Some(format!("{}{tie}", &text[..*end]));
    }
    (starts.len() <= LONGEST).then(|| text.to_owned())
}
