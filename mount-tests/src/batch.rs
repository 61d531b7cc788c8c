//! Rows to drop, briefly.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array,
    StringArray, TimestampMicrosecondArray,
};
use arrow::record_batch::RecordBatch;

/// Columns that are all declared nullable, as most tools write them.
pub(crate) fn columns(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let nullable = columns.into_iter().map(|(name, array)| (name, array, true));
    RecordBatch::try_from_iter_with_nullable(nullable).unwrap()
}

/// Rows of the table that `Builder::orders` declares: `id`, `name` = `n<id>`, `amount` = id / 2.
pub(crate) fn orders(ids: Range<i64>) -> RecordBatch {
    let names: Vec<String> = ids.clone().map(|id| format!("n{id}")).collect();
    columns(vec![
        ("id", longs(ids.clone())),
        ("name", Arc::new(StringArray::from(names))),
        ("amount", doubles(ids.map(|id| id as f64 / 2.0))),
    ])
}

/// What the oracle prints for `orders(ids)`, sorted.
pub(crate) fn order_rows(ids: impl IntoIterator<Item = i64>) -> Vec<String> {
    let mut rows: Vec<String> = ids
        .into_iter()
        .map(|id| format!("{id}|n{id}|{:?}", id as f64 / 2.0))
        .collect();
    rows.sort();
    rows
}

pub(crate) fn longs<V: Into<Option<i64>>>(values: impl IntoIterator<Item = V>) -> ArrayRef {
    Arc::new(values.into_iter().map(Into::into).collect::<Int64Array>())
}

pub(crate) fn ints<V: Into<Option<i32>>>(values: impl IntoIterator<Item = V>) -> ArrayRef {
    Arc::new(values.into_iter().map(Into::into).collect::<Int32Array>())
}

pub(crate) fn doubles<V: Into<Option<f64>>>(values: impl IntoIterator<Item = V>) -> ArrayRef {
    Arc::new(values.into_iter().map(Into::into).collect::<Float64Array>())
}

pub(crate) fn bools<V: Into<Option<bool>>>(values: impl IntoIterator<Item = V>) -> ArrayRef {
    Arc::new(values.into_iter().map(Into::into).collect::<BooleanArray>())
}

pub(crate) fn texts<'a, V: Into<Option<&'a str>>>(values: impl IntoIterator<Item = V>) -> ArrayRef {
    let values: Vec<Option<&str>> = values.into_iter().map(Into::into).collect();
    Arc::new(StringArray::from(values))
}

/// Days since 1970-01-01.
pub(crate) fn dates<V: Into<Option<i32>>>(values: impl IntoIterator<Item = V>) -> ArrayRef {
    Arc::new(values.into_iter().map(Into::into).collect::<Date32Array>())
}

/// Microseconds since 1970-01-01, in a zone or in none.
pub(crate) fn micros(zone: Option<&str>, values: &[Option<i64>]) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(values.to_vec()).with_timezone_opt(zone))
}

/// Unscaled decimals.
pub(crate) fn decimals(precision: u8, scale: i8, values: &[Option<i128>]) -> ArrayRef {
    let array = Decimal128Array::from(values.to_vec());
    Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
}
