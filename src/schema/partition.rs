//! Partition values as text, as directories and as paths in the log (PROTOCOL.md E).

use std::fmt::Write as _;

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::field::{DataType, Primitive, SchemaError};
use super::scalar::Scalar;

/// The directory text of a NULL.
pub const HIVE_DEFAULT: &str = "__HIVE_DEFAULT_PARTITION__";

/// Parses the text of `add.partitionValues`; absent and empty are NULL.
///
/// # Errors
/// [`SchemaError::Value`] when the text is no value of the type.
pub fn parse_value(text: Option<&str>, data_type: &DataType) -> Result<Scalar, SchemaError> {
    let text = match text {
        None | Some("") => return Ok(Scalar::Null),
        Some(text) => text,
    };
    let bad = || SchemaError::Value {
        text: text.to_owned(),
        expected: data_type.to_string(),
    };
    let DataType::Primitive(primitive) = data_type else {
        return Err(SchemaError::NotPartitionable(data_type.to_string()));
    };
    Ok(match primitive {
        Primitive::String => Scalar::String(text.to_owned()),
        Primitive::Long => Scalar::Long(text.parse().map_err(|_| bad())?),
        Primitive::Integer => Scalar::Integer(text.parse().map_err(|_| bad())?),
        Primitive::Short => Scalar::Short(text.parse().map_err(|_| bad())?),
        Primitive::Byte => Scalar::Byte(text.parse().map_err(|_| bad())?),
        Primitive::Float => Scalar::Float(parse_java_float(text).ok_or_else(bad)?),
        Primitive::Double => Scalar::Double(parse_java_float(text).ok_or_else(bad)?),
        Primitive::Decimal(p, s) => {
            Scalar::Decimal(parse_decimal(text, *p, *s).ok_or_else(bad)?, *p, *s)
        }
        Primitive::Boolean if text.eq_ignore_ascii_case("true") => Scalar::Boolean(true),
        Primitive::Boolean if text.eq_ignore_ascii_case("false") => Scalar::Boolean(false),
        Primitive::Boolean => return Err(bad()),
        Primitive::Binary => Scalar::Binary(parse_binary(text)),
        Primitive::Date => Scalar::Date(parse_date(text).ok_or_else(bad)?),
        Primitive::Timestamp => Scalar::Timestamp(parse_timestamp(text).ok_or_else(bad)?),
        Primitive::TimestampNtz => Scalar::TimestampNtz(parse_ntz(text).ok_or_else(bad)?),
        Primitive::Void | Primitive::Variant | Primitive::Other(_) => {
            return Err(SchemaError::NotPartitionable(data_type.to_string()));
        }
    })
}

/// The text for `add.partitionValues`; `None` is NULL (the empty string is one, too: the protocol can't tell
/// them apart).
///
/// # Errors
/// [`SchemaError::NotPartitionable`] for binary that is not UTF-8.
pub fn format_value(value: &Scalar) -> Result<Option<String>, SchemaError> {
    Ok(Some(match value {
        Scalar::Null => return Ok(None),
        Scalar::String(v) if v.is_empty() => return Ok(None),
        Scalar::String(v) => v.clone(),
        Scalar::Long(v) => v.to_string(),
        Scalar::Integer(v) => v.to_string(),
        Scalar::Short(v) => v.to_string(),
        Scalar::Byte(v) => v.to_string(),
        Scalar::Float(v) => java_float(f64::from(*v), &format!("{v:e}")),
        Scalar::Double(v) => java_float(*v, &format!("{v:e}")),
        Scalar::Decimal(v, _, scale) => format_decimal(*v, *scale),
        Scalar::Boolean(v) => v.to_string(),
        Scalar::Binary(v) if v.is_empty() => return Ok(None),
        Scalar::Binary(v) => String::from_utf8(v.clone())
            .map_err(|_| SchemaError::NotPartitionable("non-UTF-8 binary".to_owned()))?,
        Scalar::Date(days) => format_date(*days),
        Scalar::Timestamp(us) => format!("{}Z", format_micros(*us, 'T')),
        Scalar::TimestampNtz(us) => format_micros(*us, ' '),
    }))
}

/// Text of a number as Java's `Double.toString` gives it: `1.0`, `1.0E10`, `NaN`, `Infinity`.
fn java_float(value: f64, scientific: &str) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    if (-3..7).contains(&exponent) {
        let point = exponent + 1;
        let (whole, fraction) = if point <= 0 {
            let zeros = "0".repeat(point.unsigned_abs() as usize);
            ("0".to_owned(), format!("{zeros}{digits}"))
        } else {
            let point = point.unsigned_abs() as usize;
            let padded = format!("{digits:0<point$}");
            (padded[..point].to_owned(), padded[point..].to_owned())
        };
        let fraction = if fraction.is_empty() || value == 0.0 {
            "0".to_owned()
        } else {
            fraction
        };
        format!("{sign}{whole}.{fraction}")
    } else {
        let (first, rest) = digits.split_at(1);
        let rest = if rest.is_empty() { "0" } else { rest };
        format!("{sign}{first}.{rest}E{exponent}")
    }
}

fn parse_java_float<T: std::str::FromStr>(text: &str) -> Option<T> {
    match text {
        "Infinity" => "inf".parse().ok(),
        "-Infinity" => "-inf".parse().ok(),
        other => other.parse().ok(),
    }
}

/// The unscaled value at exactly `scale`; `None` when digits would be lost or the precision exceeded.
pub(crate) fn parse_decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((m, e)) => (m, e.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (negative, mantissa) = match mantissa.as_bytes().first()? {
        b'-' => (true, &mantissa[1..]),
        b'+' => (false, &mantissa[1..]),
        _ => (false, mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value
            .checked_mul(10)?
            .checked_add(i128::from(digit - b'0'))?;
    }
    let mut shift = i64::from(scale) - i64::try_from(fraction.len()).ok()? + i64::from(exponent);
    if value == 0 {
        shift = 0;
    }
    while shift > 0 {
        value = value.checked_mul(10)?;
        shift -= 1;
    }
    while shift < 0 {
        if value % 10 != 0 {
            return None;
        }
        value /= 10;
        shift += 1;
    }
    let limit = 10_i128.checked_pow(u32::from(precision))?;
    (value < limit).then_some(if negative { -value } else { value })
}

/// Scale-exact text: `1.50` for 150 at scale 2.
pub(crate) fn format_decimal(value: i128, scale: i8) -> String {
    let scale = usize::from(scale.max(0).unsigned_abs());
    let sign = if value < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if fraction.is_empty() {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

pub(crate) fn parse_date(text: &str) -> Option<i32> {
    // Spark writes plain dates; some writers append a midnight.
    let day = text.split([' ', 'T']).next()?;
    let date = NaiveDate::parse_from_str(day, "%Y-%m-%d").ok()?;
    i32::try_from(date.signed_duration_since(NaiveDate::default()).num_days()).ok()
}

pub(crate) fn format_date(days: i32) -> String {
    let date = NaiveDate::default()
        .checked_add_signed(chrono::TimeDelta::try_days(i64::from(days)).unwrap_or_default());
    date.map_or_else(|| days.to_string(), |d| d.format("%Y-%m-%d").to_string())
}

/// Microseconds since the epoch of a zoned text, or of a zone-less one taken as UTC (D59: never the host's zone).
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    if let Ok(zoned) = DateTime::parse_from_rfc3339(text) {
        return Some(zoned.timestamp_micros());
    }
    for format in ["%Y-%m-%d %H:%M:%S%.f%:z", "%Y-%m-%dT%H:%M:%S%.f%z"] {
        if let Ok(zoned) = DateTime::parse_from_str(text, format) {
            return Some(zoned.timestamp_micros());
        }
    }
    parse_ntz(text.strip_suffix('Z').unwrap_or(text))
}

pub(crate) fn parse_ntz(text: &str) -> Option<i64> {
    for format in ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"] {
        if let Ok(naive) = NaiveDateTime::parse_from_str(text, format) {
            return Some(naive.and_utc().timestamp_micros());
        }
    }
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    Some(date.and_hms_opt(0, 0, 0)?.and_utc().timestamp_micros())
}

fn format_micros(us: i64, separator: char) -> String {
    DateTime::from_timestamp_micros(us).map_or_else(
        || us.to_string(),
        |t| {
            t.naive_utc()
                .format(&format!("%Y-%m-%d{separator}%H:%M:%S%.6f"))
                .to_string()
        },
    )
}

/// Undoes the `\u0001` escapes that Spark writes for binary partition values; other text is its UTF-8 bytes.
fn parse_binary(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\u") {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let code = rest
            .get(at + 2..at + 6)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[at + 6..];
            }
            None => {
                bytes.extend_from_slice(b"\\u");
                rest = &rest[at + 2..];
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// Hive's escaping of one side of `col=val`.
pub fn escape_dir(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_control() || "\"#%'*/:=?\\{[]^".contains(c) {
            let _ = write!(out, "%{:02X}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Undoes [`escape_dir`]; `None` when an escape is cut short or the result is not UTF-8.
pub fn unescape_dir(text: &str) -> Option<String> {
    percent_decode_str(text)
        .decode_utf8()
        .ok()
        .map(std::borrow::Cow::into_owned)
}

/// The directory `col=val` of one partition value.
pub fn dir_name(column: &str, value: Option<&str>) -> String {
    let value = value
        .filter(|v| !v.is_empty())
        .map_or_else(|| HIVE_DEFAULT.to_owned(), escape_dir);
    format!("{}={value}", escape_dir(column))
}

/// Splits `col=val` into the unescaped column and value (`None` for the Hive default name).
pub fn parse_dir(name: &str) -> Option<(String, Option<String>)> {
    let (column, value) = name.split_once('=')?;
    let column = unescape_dir(column).filter(|c| !c.is_empty())?;
    let value = match value {
        "" => None,
        HIVE_DEFAULT => None,
        other => Some(unescape_dir(other)?),
    };
    Some((column, value))
}

/// What must be encoded in `add.path` (RFC 2396, as Spark's `new Path(..).toUri`); `/` separates.
const URI_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Encodes a relative path for `add.path`.
pub fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, URI_PATH).to_string()
}

/// Decodes `add.path` exactly once; `None` when the result is not UTF-8.
pub fn decode_path(path: &str) -> Option<String> {
    percent_decode_str(path)
        .decode_utf8()
        .ok()
        .map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(primitive: Primitive) -> DataType {
        DataType::Primitive(primitive)
    }

    fn round(text: &str, primitive: Primitive) -> String {
        format_value(&parse_value(Some(text), &of(primitive)).unwrap())
            .unwrap()
            .unwrap()
    }

    #[test]
    fn values_keep_their_text() {
        assert_eq!(round("-0.10", Primitive::Decimal(10, 2)), "-0.10");
        assert_eq!(round("1.5", Primitive::Decimal(10, 2)), "1.50");
        assert_eq!(round("0", Primitive::Decimal(10, 2)), "0.00");
        assert_eq!(round("1969-12-31", Primitive::Date), "1969-12-31");
        assert_eq!(round("true", Primitive::Boolean), "true");
        assert_eq!(
            round("2020-01-01 00:00:00", Primitive::Timestamp),
            "2020-01-01T00:00:00.000000Z"
        );
        assert_eq!(
            round("2020-01-01T01:00:00+01:00", Primitive::Timestamp),
            "2020-01-01T00:00:00.000000Z"
        );
        assert_eq!(
            round("2020-01-01 00:00:00.5", Primitive::TimestampNtz),
            "2020-01-01 00:00:00.500000"
        );
    }

    #[test]
    fn a_timestamp_before_1970_keeps_its_second() {
        // D60
        assert_eq!(
            format_value(&Scalar::Timestamp(-2_342_342_342))
                .unwrap()
                .unwrap(),
            "1969-12-31T23:20:57.657658Z"
        );
    }

    #[test]
    fn floats_are_written_as_java_does() {
        for (value, text) in [
            (1.0, "1.0"),
            (1e10, "1.0E10"),
            (0.001, "0.001"),
            (1e-4, "1.0E-4"),
            (1_234_567.0, "1234567.0"),
            (12_345_678.0, "1.2345678E7"),
            (-0.0, "-0.0"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(format_value(&Scalar::Double(value)).unwrap().unwrap(), text);
            assert_eq!(
                parse_value(Some(text), &of(Primitive::Double)).unwrap(),
                Scalar::Double(value)
            );
        }
        assert_eq!(
            format_value(&Scalar::Float(f32::NAN)).unwrap().unwrap(),
            "NaN"
        );
        assert_eq!(format_value(&Scalar::Float(0.1)).unwrap().unwrap(), "0.1");
    }

    #[test]
    fn odd_values_become_one_path_segment_and_come_back() {
        // D55, D56
        for value in [
            "a/b", "50%", "a b", "x=y", "#", "?", "é", "\"q\"", "it's", "a:b", "..", "\u{1}",
        ] {
            let dir = dir_name("p", Some(value));
            assert!(!dir.contains('/'), "{dir}");
            assert_eq!(
                parse_dir(&dir),
                Some(("p".to_owned(), Some(value.to_owned())))
            );
            let path = encode_path(&format!("{dir}/f.parquet"));
            assert_eq!(decode_path(&path), Some(format!("{dir}/f.parquet")));
        }
        assert_eq!(encode_path(&dir_name("p", Some("a:b"))), "p=a%253Ab");
        assert_eq!(dir_name("p", None), "p=__HIVE_DEFAULT_PARTITION__");
        assert_eq!(dir_name("p", Some("")), "p=__HIVE_DEFAULT_PARTITION__");
    }

    #[test]
    fn a_decimal_that_does_not_fit_is_refused() {
        assert_eq!(parse_decimal("100", 3, 1), None);
        assert_eq!(parse_decimal("0.05", 3, 1), None);
        assert_eq!(parse_decimal("1E2", 5, 1), Some(1000));
        assert_eq!(
            parse_decimal("99999999999999999999999999999999999999", 38, 0).map(|v| v > 0),
            Some(true)
        );
    }
}
