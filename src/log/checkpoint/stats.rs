//! `add.stats_parsed` to the JSON of `add.stats` (PROTOCOL.md E).

use std::fmt::Write as _;

use arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, Date32Array, Decimal128Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, StringArray, StructArray,
};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType,
};
use chrono::{DateTime, Datelike as _, NaiveDate, TimeDelta};

use crate::schema::partition::format_decimal;

/// The statistics of a batch.
pub(super) struct ParsedStats<'a>(Values<'a>);

/// A column and how it is written. What has no place in statistics has no variant.
enum Values<'a> {
    Group(&'a StructArray, Vec<Member<'a>>),
    Byte(&'a Int8Array),
    Short(&'a Int16Array),
    Int(&'a Int32Array),
    Long(&'a Int64Array),
    Float(&'a Float32Array),
    Double(&'a Float64Array),
    Decimal(&'a Decimal128Array, i8),
    Boolean(&'a BooleanArray),
    Text(&'a StringArray),
    Date(&'a Date32Array),
    Timestamp {
        millis: Box<dyn Fn(usize) -> Option<i64> + 'a>,
        suffix: &'static str,
    },
}

struct Member<'a> {
    /// `"name":`
    key: String,
    values: Values<'a>,
}

impl<'a> ParsedStats<'a> {
    pub(super) fn of(array: &'a StructArray) -> Self {
        ParsedStats(Values::group(array))
    }

    /// The JSON of a row; `None` when there are no statistics.
    pub(super) fn json(&self, row: usize) -> Option<String> {
        let mut out = String::new();
        self.0.write(row, &mut out)?;
        (out.len() > 2).then_some(out)
    }
}

impl<'a> Values<'a> {
    fn group(array: &'a StructArray) -> Self {
        let member = |(field, column): (_, &'a ArrayRef)| {
            let field: &arrow::datatypes::FieldRef = field;
            let mut key = String::new();
            push_text(&mut key, field.name());
            key.push(':');
            Some(Member {
                key,
                values: Self::of(column)?,
            })
        };
        let members = array.fields().iter().zip(array.columns());
        Values::Group(array, members.filter_map(member).collect())
    }

    fn of(array: &'a ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Struct(_) => Self::group(array.as_struct_opt()?),
            DataType::Int8 => Values::Byte(array.as_primitive_opt::<Int8Type>()?),
            DataType::Int16 => Values::Short(array.as_primitive_opt::<Int16Type>()?),
            DataType::Int32 => Values::Int(array.as_primitive_opt::<Int32Type>()?),
            DataType::Int64 => Values::Long(array.as_primitive_opt::<Int64Type>()?),
            DataType::Float32 => Values::Float(array.as_primitive_opt::<Float32Type>()?),
            DataType::Float64 => Values::Double(array.as_primitive_opt::<Float64Type>()?),
            DataType::Decimal128(_, scale) if *scale >= 0 => {
                Values::Decimal(array.as_primitive_opt::<Decimal128Type>()?, *scale)
            }
            DataType::Boolean => Values::Boolean(array.as_boolean_opt()?),
            DataType::Utf8 => Values::Text(array.as_string_opt()?),
            DataType::Date32 => Values::Date(array.as_primitive_opt::<Date32Type>()?),
            DataType::Timestamp(unit, zone) => Values::Timestamp {
                millis: millis(array, unit)?,
                suffix: if zone.is_some() { "Z" } else { "" },
            },
            _ => return None,
        })
    }

    /// Appends the JSON of a row; `None`, with anything appended, when there is no value.
    fn write(&self, row: usize, out: &mut String) -> Option<()> {
        let done = match self {
            Values::Group(array, members) => {
                present(*array, row)?;
                out.push('{');
                let mut mark = out.len();
                for member in members {
                    out.push_str(&member.key);
                    if member.values.write(row, out).is_some() {
                        out.push(',');
                        mark = out.len();
                    } else {
                        out.truncate(mark);
                    }
                }
                if out.ends_with(',') {
                    out.pop();
                }
                out.push('}');
                return Some(());
            }
            Values::Text(array) => {
                present(*array, row)?;
                push_text(out, array.value(row));
                return Some(());
            }
            Values::Timestamp { millis, suffix } => {
                let time = DateTime::from_timestamp_millis(millis(row)?)?.naive_utc();
                writable_year(time.year())?;
                write!(out, "\"{}{suffix}\"", time.format("%Y-%m-%dT%H:%M:%S%.3f"))
            }
            Values::Date(array) => {
                present(*array, row)?;
                let days = TimeDelta::try_days(array.value(row).into())?;
                let date = NaiveDate::default().checked_add_signed(days)?;
                writable_year(date.year())?;
                write!(out, "\"{date}\"")
            }
            Values::Byte(array) => {
                present(*array, row).map(|()| write!(out, "{}", array.value(row)))?
            }
            Values::Short(array) => {
                present(*array, row).map(|()| write!(out, "{}", array.value(row)))?
            }
            Values::Int(array) => {
                present(*array, row).map(|()| write!(out, "{}", array.value(row)))?
            }
            Values::Long(array) => {
                present(*array, row).map(|()| write!(out, "{}", array.value(row)))?
            }
            Values::Boolean(array) => {
                present(*array, row).map(|()| write!(out, "{}", array.value(row)))?
            }
            Values::Decimal(array, scale) => {
                present(*array, row)?;
                write!(out, "{}", format_decimal(array.value(row), *scale))
            }
            // JSON has no NaN and no infinity: no bound is the honest answer.
            Values::Float(array) => {
                present(*array, row)?;
                let value = array.value(row);
                value.is_finite().then(|| write!(out, "{value:?}"))?
            }
            Values::Double(array) => {
                present(*array, row)?;
                let value = array.value(row);
                value.is_finite().then(|| write!(out, "{value:?}"))?
            }
        };
        done.ok()
    }
}

fn present(array: &dyn Array, row: usize) -> Option<()> {
    array.is_valid(row).then_some(())
}

/// Text of other years parses differently from reader to reader.
fn writable_year(year: i32) -> Option<()> {
    (0..=9999).contains(&year).then_some(())
}

/// Rounded down, as the text form is in JSON.
fn millis<'a>(
    array: &'a ArrayRef,
    unit: &TimeUnit,
) -> Option<Box<dyn Fn(usize) -> Option<i64> + 'a>> {
    Some(match unit {
        TimeUnit::Millisecond => {
            let array = array.as_primitive_opt::<TimestampMillisecondType>()?;
            Box::new(|row| array.is_valid(row).then(|| array.value(row)))
        }
        TimeUnit::Microsecond => {
            let array = array.as_primitive_opt::<TimestampMicrosecondType>()?;
            Box::new(|row| {
                array
                    .is_valid(row)
                    .then(|| array.value(row).div_euclid(1000))
            })
        }
        TimeUnit::Nanosecond => {
            let array = array.as_primitive_opt::<TimestampNanosecondType>()?;
            Box::new(|row| {
                array
                    .is_valid(row)
                    .then(|| array.value(row).div_euclid(1_000_000))
            })
        }
        TimeUnit::Second => return None,
    })
}

/// A JSON string.
fn push_text(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c < ' ' || c == '"' || c == '\\') {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        let mut chars = tail.chars();
        match chars.next() {
            Some(c @ ('"' | '\\')) => {
                out.push('\\');
                out.push(c);
            }
            Some(c) => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.push('"');
}
