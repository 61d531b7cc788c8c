//! Partition values as text, as directories and as paths in the log (PROTOCOL.md E).

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

pub(crate) use super::calendar::{format_date, parse_date};
use super::calendar::{format_micros, parse_moment};
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
/// [`SchemaError::NotPartitionable`] for binary that is not UTF-8 or would not read back.
pub fn format_value(value: &Scalar) -> Result<Option<String>, SchemaError> {
    Ok(Some(match value {
        Scalar::Null => return Ok(None),
        Scalar::String(v) if v.is_empty() => return Ok(None),
        Scalar::String(v) => v.clone(),
        Scalar::Long(v) => v.to_string(),
        Scalar::Integer(v) => v.to_string(),
        Scalar::Short(v) => v.to_string(),
        Scalar::Byte(v) => v.to_string(),
        Scalar::Float(v) => java_float(f64::from(*v), &format!("{v:e}"), &format!("{v:.1e}")),
        Scalar::Double(v) => java_float(*v, &format!("{v:e}"), &format!("{v:.1e}")),
        Scalar::Decimal(v, _, scale) => format_decimal(*v, *scale),
        Scalar::Boolean(v) => v.to_string(),
        Scalar::Binary(v) if v.is_empty() => return Ok(None),
        Scalar::Binary(v) => format_binary(v)?,
        Scalar::Date(days) => format_date(*days),
        Scalar::Timestamp(us) => format!("{}Z", format_micros(*us, 'T')),
        Scalar::TimestampNtz(us) => format_micros(*us, ' '),
    }))
}

/// A text that stands for the value of a partition text, however that is spelled: two files of one partition have the
/// same one. `None` is NULL. A time without a zone is never that of one with a zone: other systems may read it in
/// another zone than UTC.
///
/// # Errors
/// As [`parse_value`].
pub fn identity(text: Option<&str>, data_type: &DataType) -> Result<Option<String>, SchemaError> {
    let value = match parse_value(text, data_type)? {
        Scalar::Timestamp(us) if text.is_some_and(|t| parse_instant(t).is_none()) => {
            Scalar::TimestampNtz(us)
        }
        Scalar::Binary(bytes) => return Ok(Some(format!("{bytes:?}"))),
        value => value,
    };
    format_value(&value)
}

/// Text of a number as Java's `Double.toString` gives it: `1.0`, `1.0E10`, `NaN`, `Infinity`. `shortest` is the
/// shortest scientific form that reads back, `two` the nearest of two digits: Java never has fewer, and takes the
/// nearer one (`4.9E-324`, where `5e-324` would do).
fn java_float(value: f64, shortest: &str, two: &str) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = if shortest.contains('.') {
        shortest
    } else {
        two
    };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits = mantissa.replacen('.', "", 1);
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        significant => significant,
    };
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
    // However many zeros follow, they say nothing.
    let fraction = fraction.trim_end_matches('0');
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

/// Microseconds since the epoch of a zoned text, or of a zone-less one taken as UTC (D59: never the host's zone).
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    let moment = parse_moment(text)?;
    moment.instant().or_else(|| moment.local())
}

/// Microseconds since the epoch of a text with a zone.
pub(crate) fn parse_instant(text: &str) -> Option<i64> {
    parse_moment(text)?.instant()
}

/// Microseconds since the epoch of a text without a zone.
pub(crate) fn parse_ntz(text: &str) -> Option<i64> {
    parse_moment(text)?.local()
}

/// The UTF-8 bytes of the text, or what `\u0001` stands for where the whole text is made of such escapes: delta-rs
/// writes every byte as one, Spark none.
fn parse_binary(text: &str) -> Vec<u8> {
    escaped_bytes(text).unwrap_or_else(|| text.as_bytes().to_vec())
}

fn escaped_bytes(text: &str) -> Option<Vec<u8>> {
    let (escapes, []) = text.as_bytes().as_chunks::<6>() else {
        return None;
    };
    escapes
        .iter()
        .map(|escape| {
            let hex = escape.strip_prefix(b"\\u00")?;
            let hex = std::str::from_utf8(hex).ok()?;
            hex.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
            u8::from_str_radix(hex, 16).ok()
        })
        .collect()
}

/// # Errors
/// [`SchemaError::NotPartitionable`] for bytes that no text gives back.
fn format_binary(bytes: &[u8]) -> Result<String, SchemaError> {
    match std::str::from_utf8(bytes) {
        Ok(text) if escaped_bytes(text).is_none() => Ok(text.to_owned()),
        Ok(_) => Err(SchemaError::NotPartitionable(
            "binary that looks like `\\u0041`".to_owned(),
        )),
        Err(_) => Err(SchemaError::NotPartitionable("non-UTF-8 binary".to_owned())),
    }
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

/// Undoes [`escape_dir`]; a `%` that starts no escape stands for itself, as in Hive. `None` when the result is not
/// UTF-8.
pub fn unescape_dir(text: &str) -> Option<String> {
    percent_decode_str(text)
        .decode_utf8()
        .ok()
        .map(std::borrow::Cow::into_owned)
}

/// The directory `col=val` of one partition value.
pub fn dir_name(column: &str, value: Option<&str>) -> String {
    let value = match value {
        None | Some("") => HIVE_DEFAULT.to_owned(),
        // The text that looks like NULL is not NULL.
        Some(HIVE_DEFAULT) => HIVE_DEFAULT.replacen('_', "%5F", 1),
        Some(value) => escape_dir(value),
    };
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
#[path = "partition_tests.rs"]
mod tests;
