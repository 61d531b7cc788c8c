//! The rules for dropped files, end to end.

mod damage;
mod fit;
mod mapping;
mod partitions;
mod reading;
mod widening;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::Int32Type;

use super::testing::{batch, table};
use super::*;
use crate::schema::StructType;

pub(super) fn longs(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

pub(super) fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

pub(super) fn is_original(prepared: &Prepared) -> bool {
    matches!(prepared.files.as_slice(), [one] if matches!(one.bytes, Bytes::Original))
}

pub(super) fn new_file(prepared: &PreparedFile) -> File {
    match &prepared.bytes {
        Bytes::New(file) => file.try_clone().unwrap(),
        Bytes::Original => panic!("not rewritten"),
    }
}

pub(super) fn rows_of(file: File, schema: &StructType) -> RecordBatch {
    let columns: Vec<String> = schema.fields.iter().map(|f| f.name.clone()).collect();
    let none = BTreeMap::new();
    let reader = Reader::open(file, schema, &columns, &none, MappingMode::None, None, 100).unwrap();
    let arrow = Arc::clone(reader.schema());
    let batches: Vec<RecordBatch> = reader.map(|r| r.unwrap().0).collect();
    arrow::compute::concat_batches(&arrow, &batches).unwrap()
}

pub(super) fn mixed_batch(rows: usize) -> RecordBatch {
    let ids: Vec<Option<i64>> = (0..rows).map(|i| Some(i as i64)).collect();
    let names: Vec<Option<String>> = (0..rows)
        .map(|i| (i % 7 != 0).then(|| format!("name {}", i % 50)))
        .collect();
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..rows).map(|i| (i % 5 != 0).then(|| (0..i % 4).map(|x| Some(x as i32)))),
    );
    let floats: Vec<Option<f64>> = (0..rows).map(|i| Some(i as f64 / 3.0)).collect();
    batch(vec![
        ("id", longs(&ids)),
        ("name", Arc::new(StringArray::from(names))),
        ("list", Arc::new(lists)),
        ("x", Arc::new(Float64Array::from(floats))),
    ])
}

pub(super) fn mixed_table() -> StructType {
    table(&[
        ("id", "long"),
        ("name", "string"),
        (
            "list",
            r#"{"type":"array","elementType":"integer","containsNull":true}"#,
        ),
        ("x", "double"),
    ])
}
