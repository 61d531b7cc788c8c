//! Leaf types.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, NullArray, PrimitiveArray,
    StringArray,
};
use arrow::datatypes::{
    DataType as Arrow, Date32Type, Date64Type, Decimal128Type, Decimal256Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt64Type, i256,
};

use super::{Place, Rules, cast, type_error, value_error};
use crate::datafile::error::{DataFileError, Loss};
use crate::schema::{DataType, Primitive, arrow_type};

const MICROS_PER_DAY: i64 = 86_400_000_000;
const MILLIS_PER_DAY: i64 = 86_400_000;

/// The index of the first value that can't be converted, and why.
type Bad = (usize, Loss);

pub(super) fn to_void(
    array: &ArrayRef,
    rules: Rules,
    at: &Place<'_>,
) -> Result<ArrayRef, DataFileError> {
    let void = DataType::Primitive(Primitive::Void);
    if rules == Rules::Exact
        && let Some(index) = (0..array.len()).find(|i| array.is_valid(*i))
    {
        return Err(value_error(array, index, Loss::NotNull, &void, at));
    }
    Ok(Arc::new(NullArray::new(array.len())))
}

pub(super) fn to_primitive(
    array: &ArrayRef,
    to: &Primitive,
    rules: Rules,
    at: &Place<'_>,
) -> Result<ArrayRef, DataFileError> {
    let expected = DataType::Primitive(to.clone());
    let target = arrow_type(&expected)?;
    if array.data_type() == &target {
        return Ok(Arc::clone(array));
    }
    let bad = |(index, loss): Bad| value_error(array, index, loss, to, at);
    let converted: Result<Option<ArrayRef>, Bad> = match to {
        Primitive::Long => to_int::<Int64Type>(array)?,
        Primitive::Integer => to_int::<Int32Type>(array)?,
        Primitive::Short => to_int::<Int16Type>(array)?,
        Primitive::Byte => to_int::<Int8Type>(array)?,
        Primitive::Float => to_float(array)?,
        Primitive::Double => to_double(array)?,
        Primitive::Decimal(precision, scale) => to_decimal(array, *precision, *scale)?,
        Primitive::String => to_string(array)?,
        Primitive::Binary => to_binary(array)?,
        Primitive::Date => to_date(array),
        Primitive::Timestamp | Primitive::TimestampNtz => to_timestamp(array, to, rules, at)?,
        Primitive::Boolean | Primitive::Void | Primitive::Variant | Primitive::Other(_) => Ok(None),
    };
    match converted.map_err(bad)? {
        None => Err(type_error(array, to, at)),
        Some(made) => Ok(made),
    }
}

fn map<S, T>(
    array: &PrimitiveArray<S>,
    convert: impl Fn(S::Native) -> Result<T::Native, Loss>,
) -> Result<PrimitiveArray<T>, Bad>
where
    S: ArrowPrimitiveType,
    T: ArrowPrimitiveType,
{
    let mut values = Vec::with_capacity(array.len());
    for (index, value) in array.values().iter().enumerate() {
        values.push(if array.is_null(index) {
            T::default_value()
        } else {
            convert(*value).map_err(|loss| (index, loss))?
        });
    }
    Ok(PrimitiveArray::new(values.into(), array.nulls().cloned()))
}

fn some<T: ArrowPrimitiveType>(
    made: Result<PrimitiveArray<T>, Bad>,
) -> Result<Option<ArrayRef>, Bad> {
    made.map(|array| Some(Arc::new(array) as ArrayRef))
}

type Converted = Result<Option<ArrayRef>, Bad>;

/// Every integer type but `uint64` as `int64`.
fn as_long(array: &ArrayRef) -> Result<Option<ArrayRef>, DataFileError> {
    Ok(match array.data_type() {
        Arrow::Int64 => Some(Arc::clone(array)),
        Arrow::Int8
        | Arrow::Int16
        | Arrow::Int32
        | Arrow::UInt8
        | Arrow::UInt16
        | Arrow::UInt32 => Some(cast(array, &Arrow::Int64)?),
        _ => None,
    })
}

/// The narrower decimals as `decimal128`.
fn as_decimal128(array: &ArrayRef) -> Result<Option<(ArrayRef, i8)>, DataFileError> {
    Ok(match array.data_type() {
        Arrow::Decimal128(_, scale) => Some((Arc::clone(array), *scale)),
        Arrow::Decimal32(precision, scale) | Arrow::Decimal64(precision, scale) => {
            Some((cast(array, &Arrow::Decimal128(*precision, *scale))?, *scale))
        }
        _ => None,
    })
}

fn to_int<T>(array: &ArrayRef) -> Result<Converted, DataFileError>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64> + TryFrom<u64> + TryFrom<i128>,
{
    if let Some(longs) = as_long(array)? {
        return Ok(some(map::<Int64Type, T>(longs.as_primitive(), |v| {
            T::Native::try_from(v).map_err(|_| Loss::Range)
        })));
    }
    if let Some(longs) = array.as_primitive_opt::<UInt64Type>() {
        return Ok(some(map::<_, T>(longs, |v| {
            T::Native::try_from(v).map_err(|_| Loss::Range)
        })));
    }
    if let Some((decimals, scale)) = as_decimal128(array)? {
        return Ok(some(map::<Decimal128Type, T>(
            decimals.as_primitive(),
            |v| {
                let whole = rescale(v, scale, 0)?;
                T::Native::try_from(whole).map_err(|_| Loss::Range)
            },
        )));
    }
    if let Arrow::Decimal256(_, scale) = array.data_type() {
        return Ok(some(map::<Decimal256Type, T>(array.as_primitive(), |v| {
            let whole = rescale_wide(v, *scale, 0)?;
            T::Native::try_from(whole).map_err(|_| Loss::Range)
        })));
    }
    Ok(Ok(None))
}

fn to_float(array: &ArrayRef) -> Result<Converted, DataFileError> {
    if let Arrow::Float16 = array.data_type() {
        return Ok(Ok(Some(cast(array, &Arrow::Float32)?)));
    }
    if let Some(doubles) = array.as_primitive_opt::<Float64Type>() {
        return Ok(some(map::<_, Float32Type>(doubles, |v| {
            let narrow = v as f32;
            let same = f64::from(narrow).to_bits() == v.to_bits();
            if same || v.is_nan() {
                Ok(narrow)
            } else {
                Err(Loss::Rounded)
            }
        })));
    }
    if let Some(longs) = as_long(array)? {
        return Ok(some(map::<Int64Type, Float32Type>(
            longs.as_primitive(),
            |v| {
                let float = v as f32;
                (float as i128 == i128::from(v))
                    .then_some(float)
                    .ok_or(Loss::Rounded)
            },
        )));
    }
    if let Some(longs) = array.as_primitive_opt::<UInt64Type>() {
        return Ok(some(map::<_, Float32Type>(longs, |v| {
            let float = v as f32;
            (float as i128 == i128::from(v))
                .then_some(float)
                .ok_or(Loss::Rounded)
        })));
    }
    Ok(Ok(None))
}

fn to_double(array: &ArrayRef) -> Result<Converted, DataFileError> {
    if let Arrow::Float16 | Arrow::Float32 = array.data_type() {
        return Ok(Ok(Some(cast(array, &Arrow::Float64)?)));
    }
    if let Some(longs) = as_long(array)? {
        return Ok(some(map::<Int64Type, Float64Type>(
            longs.as_primitive(),
            |v| {
                let float = v as f64;
                (float as i128 == i128::from(v))
                    .then_some(float)
                    .ok_or(Loss::Rounded)
            },
        )));
    }
    if let Some(longs) = array.as_primitive_opt::<UInt64Type>() {
        return Ok(some(map::<_, Float64Type>(longs, |v| {
            let float = v as f64;
            (float as i128 == i128::from(v))
                .then_some(float)
                .ok_or(Loss::Rounded)
        })));
    }
    Ok(Ok(None))
}

/// The unscaled value at another scale, if no digit is lost.
fn rescale(value: i128, from: i8, to: i8) -> Result<i128, Loss> {
    let shift = i32::from(to) - i32::from(from);
    if value == 0 {
        return Ok(0);
    }
    let factor = 10_i128.checked_pow(shift.unsigned_abs());
    if shift >= 0 {
        factor.and_then(|f| value.checked_mul(f)).ok_or(Loss::Range)
    } else {
        match factor {
            Some(f) if value % f == 0 => Ok(value / f),
            _ => Err(Loss::Digits),
        }
    }
}

fn rescale_wide(value: i256, from: i8, to: i8) -> Result<i128, Loss> {
    let shift = i32::from(to) - i32::from(from);
    if shift >= 0 {
        let narrow = value.to_i128().ok_or(Loss::Range)?;
        return rescale(narrow, from, to);
    }
    let mut value = value;
    let ten = i256::from_i128(10);
    for _ in 0..shift.unsigned_abs() {
        match value.checked_rem(ten) {
            Some(i256::ZERO) => value = value.checked_div(ten).ok_or(Loss::Range)?,
            _ => return Err(Loss::Digits),
        }
    }
    value.to_i128().ok_or(Loss::Range)
}

fn to_decimal(array: &ArrayRef, precision: u8, scale: i8) -> Result<Converted, DataFileError> {
    let limit = 10_u128.pow(u32::from(precision.min(38)));
    let fit = |v: i128| {
        if v.unsigned_abs() < limit {
            Ok(v)
        } else {
            Err(Loss::Range)
        }
    };
    let made = if let Some(longs) = as_long(array)? {
        map::<Int64Type, Decimal128Type>(longs.as_primitive(), |v| {
            rescale(i128::from(v), 0, scale).and_then(fit)
        })
    } else if let Some(longs) = array.as_primitive_opt::<UInt64Type>() {
        map::<_, Decimal128Type>(longs, |v| rescale(i128::from(v), 0, scale).and_then(fit))
    } else if let Some((decimals, from)) = as_decimal128(array)? {
        map::<Decimal128Type, Decimal128Type>(decimals.as_primitive(), |v| {
            rescale(v, from, scale).and_then(fit)
        })
    } else if let Arrow::Decimal256(_, from) = array.data_type() {
        map::<Decimal256Type, Decimal128Type>(array.as_primitive(), |v| {
            rescale_wide(v, *from, scale).and_then(fit)
        })
    } else {
        return Ok(Ok(None));
    };
    Ok(match made {
        Err(bad) => Err(bad),
        Ok(made) => Ok(Some(Arc::new(
            made.with_precision_and_scale(precision, scale)
                .map_err(DataFileError::rows)?,
        ))),
    })
}

fn to_string(array: &ArrayRef) -> Result<Converted, DataFileError> {
    match array.data_type() {
        Arrow::LargeUtf8 | Arrow::Utf8View => Ok(Ok(Some(cast(array, &Arrow::Utf8)?))),
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => {
            let bytes = cast(array, &Arrow::Binary)?;
            let bytes: &BinaryArray = bytes.as_binary();
            for (index, value) in bytes.iter().enumerate() {
                if value.is_some_and(|v| std::str::from_utf8(v).is_err()) {
                    return Ok(Err((index, Loss::Utf8)));
                }
            }
            // Bytes under a NULL may be anything: they go.
            let texts: StringArray = bytes
                .iter()
                .map(|v| v.and_then(|v| std::str::from_utf8(v).ok()))
                .collect();
            Ok(Ok(Some(Arc::new(texts))))
        }
        _ => Ok(Ok(None)),
    }
}

fn to_binary(array: &ArrayRef) -> Result<Converted, DataFileError> {
    let texts = match array.data_type() {
        Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => {
            return Ok(Ok(Some(cast(array, &Arrow::Binary)?)));
        }
        Arrow::Utf8 => Arc::clone(array),
        Arrow::LargeUtf8 | Arrow::Utf8View => cast(array, &Arrow::Utf8)?,
        _ => return Ok(Ok(None)),
    };
    let texts: &StringArray = texts.as_string();
    Ok(Ok(Some(Arc::new(BinaryArray::from(texts.clone())))))
}

fn to_date(array: &ArrayRef) -> Converted {
    let Some(millis) = array.as_primitive_opt::<Date64Type>() else {
        return Ok(None);
    };
    some(map::<_, Date32Type>(millis, |v| {
        if v % MILLIS_PER_DAY != 0 {
            return Err(Loss::TimeOfDay);
        }
        i32::try_from(v / MILLIS_PER_DAY).map_err(|_| Loss::Range)
    }))
}

fn to_timestamp(
    array: &ArrayRef,
    to: &Primitive,
    rules: Rules,
    at: &Place<'_>,
) -> Result<Converted, DataFileError> {
    let instants = *to == Primitive::Timestamp;
    let (unit, zone) = match array.data_type() {
        Arrow::Timestamp(unit, zone) => (*unit, zone),
        Arrow::Date32 if !instants => {
            return Ok(some(map::<Date32Type, TimestampMicrosecondType>(
                array.as_primitive(),
                |days| {
                    i64::from(days)
                        .checked_mul(MICROS_PER_DAY)
                        .ok_or(Loss::Range)
                },
            )));
        }
        _ => return Ok(Ok(None)),
    };
    if rules == Rules::Exact && instants != zone.is_some() {
        let column = at.path.to_string();
        let found = array.data_type().to_string();
        return Err(if instants {
            DataFileError::NoZone { column, found }
        } else {
            DataFileError::Zoned { column, found }
        });
    }
    let times = |factor: i64| move |v: i64| v.checked_mul(factor).ok_or(Loss::Range);
    let made = match unit {
        TimeUnit::Second => map::<TimestampSecondType, TimestampMicrosecondType>(
            array.as_primitive(),
            times(1_000_000),
        ),
        TimeUnit::Millisecond => map::<TimestampMillisecondType, TimestampMicrosecondType>(
            array.as_primitive(),
            times(1000),
        ),
        TimeUnit::Microsecond => {
            map::<TimestampMicrosecondType, TimestampMicrosecondType>(array.as_primitive(), Ok)
        }
        TimeUnit::Nanosecond => {
            map::<TimestampNanosecondType, TimestampMicrosecondType>(array.as_primitive(), |v| {
                if rules == Rules::Exact && v % 1000 != 0 {
                    return Err(Loss::Nanoseconds);
                }
                Ok(v.div_euclid(1000))
            })
        }
    };
    Ok(match made {
        Err(bad) => Err(bad),
        Ok(made) if instants => Ok(Some(Arc::new(made.with_timezone("UTC")))),
        Ok(made) => Ok(Some(Arc::new(made))),
    })
}
