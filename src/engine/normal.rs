//! Arrow compares floats by their bits: -0.0 is less than 0.0, and there are many NaNs. Spark has one of each. Arrow
//! also leaves anything below a NULL struct, list or map. Both are put in order before an expression sees them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, ListArray, MapArray, PrimitiveArray, StructArray,
    UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{nullif, take};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;

/// The same values with one zero, one NaN, and nothing below NULLs.
pub(super) fn normal(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Float32 => Ok(floats::<Float32Type>(
            array,
            |v| v.is_nan() || (v == 0.0 && v.is_sign_negative()),
            |v| if v.is_nan() { f32::NAN } else { v + 0.0 },
        )),
        DataType::Float64 => Ok(floats::<Float64Type>(
            array,
            |v| v.is_nan() || (v == 0.0 && v.is_sign_negative()),
            |v| if v.is_nan() { f64::NAN } else { v + 0.0 },
        )),
        DataType::Struct(fields) if !fields.is_empty() => {
            let parent = array.as_struct();
            let nulls = parent.nulls().filter(|n| n.null_count() > 0);
            let children = parent
                .columns()
                .iter()
                .map(|child| {
                    let child = match nulls {
                        Some(nulls) => below(child, nulls)?,
                        None => Arc::clone(child),
                    };
                    normal(&child)
                })
                .collect::<Result<Vec<_>, _>>()?;
            // A NOT NULL child of a NULL parent is NULL all the same.
            let fields = fields
                .iter()
                .map(|f| Arc::new(f.as_ref().clone().with_nullable(true)))
                .collect();
            let array = StructArray::try_new(fields, children, parent.nulls().cloned())?;
            Ok(Arc::new(array))
        }
        DataType::List(field) => {
            let array = without_hidden(array, array.as_list::<i32>().value_offsets())?;
            let list = array.as_list::<i32>();
            let values = normal(list.values())?;
            let field = field
                .as_ref()
                .clone()
                .with_data_type(values.data_type().clone());
            Ok(Arc::new(ListArray::try_new(
                Arc::new(field),
                list.offsets().clone(),
                values,
                list.nulls().cloned(),
            )?))
        }
        DataType::Map(field, ordered) => {
            let array = without_hidden(array, array.as_map().value_offsets())?;
            let map = array.as_map();
            let (fields, columns, nulls) = map.entries().clone().into_parts();
            let columns = columns.iter().map(normal).collect::<Result<Vec<_>, _>>()?;
            let fields = fields
                .iter()
                .zip(&columns)
                .map(|(f, c)| Arc::new(f.as_ref().clone().with_data_type(c.data_type().clone())))
                .collect();
            let entries = StructArray::try_new(fields, columns, nulls)?;
            let field = field
                .as_ref()
                .clone()
                .with_data_type(entries.data_type().clone());
            Ok(Arc::new(MapArray::try_new(
                Arc::new(field),
                map.offsets().clone(),
                entries,
                map.nulls().cloned(),
                *ordered,
            )?))
        }
        _ => Ok(Arc::clone(array)),
    }
}

fn floats<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    odd: impl Fn(T::Native) -> bool,
    normal: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    let floats: &PrimitiveArray<T> = array.as_primitive();
    if floats.values().iter().any(|v| odd(*v)) {
        Arc::new(floats.unary::<_, T>(normal))
    } else {
        Arc::clone(array)
    }
}

/// A child of a struct, NULL where the struct is.
fn below(child: &ArrayRef, parent: &NullBuffer) -> Result<ArrayRef, ArrowError> {
    let dead = arrow::array::BooleanArray::new(!parent.inner(), None);
    nullif(child, &dead)
}

/// A list or map whose NULLs have no elements.
fn without_hidden(array: &ArrayRef, offsets: &[i32]) -> Result<ArrayRef, ArrowError> {
    let hidden = array.nulls().is_some_and(|nulls| {
        (0..array.len()).any(|i| {
            nulls.is_null(i)
                && offsets
                    .get(i..i + 2)
                    .is_some_and(|pair| pair.first() != pair.last())
        })
    });
    if !hidden {
        return Ok(Arc::clone(array));
    }
    let live: UInt64Array = (0..array.len() as u64)
        .zip(0..array.len())
        .map(|(index, i)| array.is_valid(i).then_some(index))
        .collect();
    take(array, &live, None)
}
