//! Bounds that other writers rounded, made wide enough again (PROTOCOL.md E: statistics are outer bounds).

use crate::schema::partition::{parse_decimal, parse_instant, parse_ntz};

/// Which bound a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Min,
    Max,
}

/// Doubles tell numbers of so many digits apart.
const DOUBLE_DIGITS: u32 = 15;
/// The shortest text of a double has no more.
const DOUBLE_TEXT_DIGITS: usize = 17;
/// The zones on earth are within so much of UTC (Java's `ZoneOffset`).
const ZONES_MICROS: i64 = 18 * 3_600_000_000;
/// What old Delta Spark put behind a cut maximum.
const LEGACY_TIE: char = '\u{fffd}';

/// The unscaled bound. delta-rs (1.6) writes decimals as doubles, rounded to the nearest: a text with as few digits as
/// a double's, for a number that has more than a double can tell apart, is moved outwards by what that may have cost.
pub(super) fn decimal(text: &str, precision: u8, scale: i8, side: Side) -> Option<i128> {
    let value = parse_decimal(text, precision, scale)?;
    let mantissa = text.split(['e', 'E']).next()?;
    let digits = mantissa
        .bytes()
        .filter(u8::is_ascii_digit)
        .skip_while(|digit| *digit == b'0')
        .count();
    if digits > DOUBLE_TEXT_DIGITS || value.unsigned_abs() < 10_u128.pow(DOUBLE_DIGITS) {
        return Some(value);
    }
    // A double is within 2⁻⁵³ of the number, its shortest text within as much of the double.
    let slack = (value.abs() >> 51) + 1;
    let most = 10_i128.checked_pow(u32::from(precision))? - 1;
    Some(match side {
        Side::Min => (value - slack).max(-most),
        Side::Max => (value + slack).min(most),
    })
}

/// A bound of doubles. Where the column was `float` when the file was written (PROTOCOL.md D), the shortest text of a
/// float is not its value as a double: the bound is moved to the float that the text may stand for.
pub(super) fn double(value: f64, side: Side) -> f64 {
    let float = f64::from(value as f32);
    match side {
        _ if !float.is_finite() => value,
        Side::Min => value.min(float),
        Side::Max => value.max(float),
    }
}

/// Microseconds since the epoch. A text without a zone may mean any (D59).
pub(super) fn moment(text: &str, side: Side) -> Option<i64> {
    if let Some(instant) = parse_instant(text) {
        return Some(instant);
    }
    let local = parse_ntz(text)?;
    Some(match side {
        Side::Min => local.saturating_sub(ZONES_MICROS),
        Side::Max => local.saturating_add(ZONES_MICROS),
    })
}

/// A maximum as it must be read. Until 2.x, Delta Spark cut strings by UTF-16 units and put U+FFFD behind, which is less
/// than every character beyond U+FFFF; half of such a character became `?`. What is left says only how the string
/// begins: the bound is the next text that begins otherwise, `None` where there is none.
pub(super) fn legacy_max(text: String) -> Option<String> {
    let Some(prefix) = text.strip_suffix(LEGACY_TIE) else {
        return Some(text);
    };
    let mut prefix = prefix.strip_suffix('?').unwrap_or(prefix).to_owned();
    while let Some(last) = prefix.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            prefix.push(next);
            return Some(prefix);
        }
    }
    None
}
