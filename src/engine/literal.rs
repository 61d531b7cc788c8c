//! What a literal means in the type of the column that it meets.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;

use crate::schema::partition;

/// How a literal goes with a type.
pub(super) enum Fit {
    Exact(ScalarValue),
    /// A number that no value of the type is equal to: unscaled digits and scale.
    Beyond((i128, i8)),
    /// Not ours to judge.
    Other,
}

/// Literals in the forms that `typing` knows: no unsigned integers, no negative scales, one zero
/// and one NaN.
pub(super) fn plain(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::UInt64(Some(v)) => ScalarValue::Decimal128(Some(i128::from(v)), 20, 0),
        ScalarValue::Decimal128(Some(v), _, scale) if scale < 0 => {
            let wide = 10_i128
                .checked_pow(u32::from(scale.unsigned_abs()))
                .and_then(|power| v.checked_mul(power))
                .filter(|v| v.unsigned_abs() < 10_u128.pow(38));
            match wide {
                Some(v) => ScalarValue::Decimal128(Some(v), 38, 0),
                None => ScalarValue::Float64(format!("{v}e{}", -i32::from(scale)).parse().ok()),
            }
        }
        ScalarValue::Float64(Some(v)) if v.is_nan() => ScalarValue::Float64(Some(f64::NAN)),
        ScalarValue::Float32(Some(v)) if v.is_nan() => ScalarValue::Float32(Some(f32::NAN)),
        ScalarValue::Float64(Some(v)) => ScalarValue::Float64(Some(v + 0.0)),
        ScalarValue::Float32(Some(v)) => ScalarValue::Float32(Some(v + 0.0)),
        ScalarValue::Utf8View(v) | ScalarValue::LargeUtf8(v) => ScalarValue::Utf8(v),
        other => other,
    }
}

/// An exact number as unscaled digits and scale.
pub(super) fn number(value: &ScalarValue) -> Option<(i128, i8)> {
    Some(match value {
        ScalarValue::Int8(Some(v)) => (i128::from(*v), 0),
        ScalarValue::Int16(Some(v)) => (i128::from(*v), 0),
        ScalarValue::Int32(Some(v)) => (i128::from(*v), 0),
        ScalarValue::Int64(Some(v)) => (i128::from(*v), 0),
        ScalarValue::Decimal128(Some(v), _, scale) => (*v, *scale),
        _ => return None,
    })
}

/// A number as Spark casts it to text.
pub(super) fn number_text(value: &ScalarValue) -> String {
    match number(value) {
        Some((digits, scale)) => partition::format_decimal(digits, scale),
        None => value.to_string(),
    }
}

pub(super) fn fit_number(number: (i128, i8), target: &DataType) -> Fit {
    let (digits, scale) = number;
    let whole = || {
        let power = 10_i128.checked_pow(u32::from(scale.max(0).unsigned_abs()))?;
        (digits % power == 0).then_some(digits / power)
    };
    let text = || partition::format_decimal(digits, scale);
    let exact = match target {
        DataType::Int8 => whole()
            .and_then(|v| v.try_into().ok())
            .map(|v| ScalarValue::Int8(Some(v))),
        DataType::Int16 => whole()
            .and_then(|v| v.try_into().ok())
            .map(|v| ScalarValue::Int16(Some(v))),
        DataType::Int32 => whole()
            .and_then(|v| v.try_into().ok())
            .map(|v| ScalarValue::Int32(Some(v))),
        DataType::Int64 => whole()
            .and_then(|v| v.try_into().ok())
            .map(|v| ScalarValue::Int64(Some(v))),
        // Through text, which rounds once.
        DataType::Float32 => text().parse().ok().map(|v| ScalarValue::Float32(Some(v))),
        DataType::Float64 => text().parse().ok().map(|v| ScalarValue::Float64(Some(v))),
        DataType::Decimal128(p, s) => partition::parse_decimal(&text(), *p, *s)
            .map(|v| ScalarValue::Decimal128(Some(v), *p, *s)),
        _ => return Fit::Other,
    };
    exact.map_or(Fit::Beyond(number), Fit::Exact)
}

/// The value that a text literal has in `target`; `None` when it is no such value.
pub(super) fn from_literal_text(text: &str, target: &DataType) -> Option<Fit> {
    let text = text.trim();
    let value = match target {
        t if t.is_numeric() => {
            if let Some(number) = exact_number(text) {
                return Some(match fit_number(number, target) {
                    Fit::Other => return None,
                    fit => fit,
                });
            }
            let float: f64 = text.parse().ok()?;
            match target {
                DataType::Float32 => plain(ScalarValue::Float32(text.parse().ok())),
                DataType::Float64 => plain(ScalarValue::Float64(Some(float))),
                // NaN, an infinity, or too many digits: the other side becomes a double.
                _ => return Some(Fit::Exact(plain(ScalarValue::Float64(Some(float))))),
            }
        }
        DataType::Boolean => match text.to_ascii_lowercase().as_str() {
            "t" | "true" | "y" | "yes" | "1" => ScalarValue::Boolean(Some(true)),
            "f" | "false" | "n" | "no" | "0" => ScalarValue::Boolean(Some(false)),
            _ => return None,
        },
        DataType::Date32 => ScalarValue::Date32(Some(partition::parse_date(text)?)),
        DataType::Timestamp(_, zone) => {
            let micros = match zone {
                Some(_) => partition::parse_timestamp(text)?,
                None => partition::parse_ntz(text).or_else(|| partition::parse_timestamp(text))?,
            };
            ScalarValue::TimestampMicrosecond(Some(micros), zone.clone())
        }
        _ => return Some(Fit::Other),
    };
    Some(Fit::Exact(value))
}

/// Digits and scale of a plain decimal number.
fn exact_number(text: &str) -> Option<(i128, i8)> {
    let fraction = text.split_once('.').map_or("", |(_, f)| f);
    let scale = i8::try_from(fraction.len()).ok().filter(|s| *s <= 38)?;
    if fraction.contains(['e', 'E']) {
        return None;
    }
    Some((partition::parse_decimal(text, 38, scale)?, scale))
}
