//! Single values as text. The table of forms is in [`super`].

use std::fmt::Display;
use std::io::Write as _;

use arrow::array::{Array, ArrayRef, AsArray as _, StructArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};

use super::FormatError;
use crate::schema::partition::format_decimal;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Appends the value at an index.
pub(super) type Print<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

/// Values as JSON.
pub(super) fn json(array: &ArrayRef) -> Result<Print<'_>, FormatError> {
    let print: Print<'_> = match array.data_type() {
        DataType::Null => return Ok(Box::new(|_, out| out.extend_from_slice(b"null"))),
        DataType::Utf8 => {
            let strings = array.as_string::<i32>();
            Box::new(|i, out| json_string(strings.value(i), out))
        }
        DataType::Date32 | DataType::Timestamp(..) | DataType::Binary => {
            let print = plain(array)?;
            Box::new(move |i, out| {
                out.push(b'"');
                print(i, out);
                out.push(b'"');
            })
        }
        DataType::Float32 => {
            let floats = array.as_primitive::<Float32Type>();
            json_float(array, |i| floats.value(i).is_finite())?
        }
        DataType::Float64 => {
            let floats = array.as_primitive::<Float64Type>();
            json_float(array, |i| floats.value(i).is_finite())?
        }
        DataType::Struct(_) => object(array.as_struct())?,
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let value = json(lists.values())?;
            let offsets = lists.offsets();
            Box::new(move |i, out| sequence(offsets, i, &value, out))
        }
        DataType::Map(..) => {
            let maps = array.as_map();
            // Entries are named by the form, not by what the array calls them.
            let (keys, values) = (json(maps.keys())?, json(maps.values())?);
            let offsets = maps.offsets();
            let entry: Print<'_> = Box::new(move |i, out| {
                out.extend_from_slice(b"{\"key\":");
                keys(i, out);
                out.extend_from_slice(b",\"value\":");
                values(i, out);
                out.push(b'}');
            });
            Box::new(move |i, out| sequence(offsets, i, &entry, out))
        }
        _ => plain(array)?,
    };
    Ok(or(array, b"null", print))
}

/// Values as fields of CSV.
pub(super) fn csv(array: &ArrayRef) -> Result<Print<'_>, FormatError> {
    let print: Print<'_> = match array.data_type() {
        DataType::Null => return Ok(Box::new(|_, _| {})),
        DataType::Utf8 => {
            let strings = array.as_string::<i32>();
            Box::new(|i, out| csv_field(strings.value(i).as_bytes(), out))
        }
        DataType::Binary => {
            let binary = array.as_binary::<i32>();
            Box::new(|i, out| match binary.value(i) {
                [] => out.extend_from_slice(b"\"\""),
                bytes => hex(bytes, out),
            })
        }
        DataType::Struct(_) | DataType::List(_) | DataType::Map(..) => {
            let print = json(array)?;
            Box::new(move |i, out| {
                let mut text = Vec::new();
                print(i, &mut text);
                csv_field(&text, out);
            })
        }
        _ => plain(array)?,
    };
    Ok(or(array, b"", print))
}

/// `print` where there is a value, else `null`.
fn or<'a>(array: &'a ArrayRef, null: &'static [u8], print: Print<'a>) -> Print<'a> {
    if array.null_count() == 0 {
        return print;
    }
    Box::new(move |i, out| {
        if array.is_null(i) {
            out.extend_from_slice(null);
        } else {
            print(i, out);
        }
    })
}

/// Values that are there, of leaf types, without quotes.
fn plain(array: &ArrayRef) -> Result<Print<'_>, FormatError> {
    Ok(match array.data_type() {
        DataType::Boolean => {
            let booleans = array.as_boolean();
            Box::new(|i, out| display(booleans.value(i), out))
        }
        DataType::Int8 => number::<Int8Type>(array),
        DataType::Int16 => number::<Int16Type>(array),
        DataType::Int32 => number::<Int32Type>(array),
        DataType::Int64 => number::<Int64Type>(array),
        DataType::Float32 => {
            let floats = array.as_primitive::<Float32Type>();
            Box::new(|i, out| match floats.value(i) {
                v if v.is_finite() => drop(write!(out, "{v:?}")),
                v => not_finite(f64::from(v), out),
            })
        }
        DataType::Float64 => {
            let floats = array.as_primitive::<Float64Type>();
            Box::new(|i, out| match floats.value(i) {
                v if v.is_finite() => drop(write!(out, "{v:?}")),
                v => not_finite(v, out),
            })
        }
        DataType::Decimal128(_, scale) => {
            let decimals = array.as_primitive::<Decimal128Type>();
            let scale = *scale;
            Box::new(move |i, out| display(format_decimal(decimals.value(i), scale), out))
        }
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>();
            Box::new(|i, out| date(i64::from(days.value(i)), out))
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>();
            let zoned = zone.is_some();
            Box::new(move |i, out| {
                instant(micros.value(i), out);
                if zoned {
                    out.push(b'Z');
                }
            })
        }
        DataType::Binary => {
            let binary = array.as_binary::<i32>();
            Box::new(|i, out| hex(binary.value(i), out))
        }
        other => return Err(FormatError::Type(other.to_string())),
    })
}

fn number<T>(array: &ArrayRef) -> Print<'_>
where
    T: ArrowPrimitiveType,
    T::Native: Display,
{
    let numbers = array.as_primitive::<T>();
    Box::new(|i, out| display(numbers.value(i), out))
}

fn display(value: impl Display, out: &mut Vec<u8>) {
    // A vector takes everything.
    drop(write!(out, "{value}"));
}

fn not_finite(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(match value {
        v if v.is_nan() => b"NaN",
        v if v > 0.0 => b"Infinity",
        _ => b"-Infinity",
    });
}

/// JSON has no numbers for what is not finite.
fn json_float<'a>(
    array: &'a ArrayRef,
    is_finite: impl Fn(usize) -> bool + 'a,
) -> Result<Print<'a>, FormatError> {
    let print = plain(array)?;
    Ok(Box::new(move |i, out| {
        let quoted = !is_finite(i);
        if quoted {
            out.push(b'"');
        }
        print(i, out);
        if quoted {
            out.push(b'"');
        }
    }))
}

fn object(array: &StructArray) -> Result<Print<'_>, FormatError> {
    let mut members = Vec::with_capacity(array.num_columns());
    for (name, column) in array.column_names().iter().zip(array.columns()) {
        let mut key = Vec::new();
        json_string(name, &mut key);
        key.push(b':');
        members.push((key, json(column)?));
    }
    Ok(Box::new(move |i, out| {
        out.push(b'{');
        for (index, (key, value)) in members.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(key);
            value(i, out);
        }
        out.push(b'}');
    }))
}

fn sequence(offsets: &[i32], i: usize, value: &Print<'_>, out: &mut Vec<u8>) {
    let at = |i: usize| {
        let offset = offsets.get(i).copied().unwrap_or_default();
        usize::try_from(offset).unwrap_or_default()
    };
    out.push(b'[');
    for (index, element) in (at(i)..at(i + 1)).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        value(element, out);
    }
    out.push(b']');
}

/// A JSON string. Line ends are escaped, so a row stays on its line.
pub(super) fn json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 | 0x7f => drop(write!(out, "\\u{byte:04x}")),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// A field of CSV that is not NULL: quoted where it must be, where blanks could be trimmed, and where it is empty.
pub(super) fn csv_field(text: &[u8], out: &mut Vec<u8>) {
    let blank = |b: Option<&u8>| b.is_none_or(u8::is_ascii_whitespace);
    let special = |b: &u8| matches!(b, b',' | b'"' | b'\n' | b'\r');
    if !blank(text.first()) && !blank(text.last()) && !text.iter().any(special) {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for byte in text {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        drop(write!(out, "{byte:02x}"));
    }
}

/// Every day of an `i32` and every microsecond of an `i64` has its text, also where calendars of libraries end.
fn date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil(days);
    if (0..=9999).contains(&year) {
        drop(write!(out, "{year:04}-{month:02}-{day:02}"));
    } else {
        drop(write!(out, "{year:+05}-{month:02}-{day:02}"));
    }
}

fn instant(micros: i64, out: &mut Vec<u8>) {
    let seconds = micros.div_euclid(MICROS_PER_SECOND);
    let fraction = micros.rem_euclid(MICROS_PER_SECOND);
    date(seconds.div_euclid(SECONDS_PER_DAY), out);
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    drop(write!(
        out,
        "T{hour:02}:{minute:02}:{second:02}.{fraction:06}"
    ));
}

/// Year, month and day of a day since 1970-01-01, in the proleptic Gregorian calendar. Counts from a first of March
/// in years of which the leap day is the last, in cycles of 400 years.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_CYCLE: i64 = 146_097;
    const MARCH_OF_YEAR_0: i64 = 719_468;
    let days = days + MARCH_OF_YEAR_0;
    let (cycle, day) = (
        days.div_euclid(DAYS_OF_CYCLE),
        days.rem_euclid(DAYS_OF_CYCLE),
    );
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year + cycle * 400 + i64::from(month <= 2);
    (year, month, day)
}
