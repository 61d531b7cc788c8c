//! Rows as sorted text, for the tests of the scan: equal texts are equal values of one type.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::datatypes::{
    DataType as Arrow, Float32Type, Float64Type, SchemaRef, TimeUnit, TimestampMicrosecondType,
};
use arrow::util::display::array_value_to_string;

use super::super::OpError;
use super::scan;
use crate::env::Env;
use crate::store::Dir;
use crate::table::Table;

pub(super) fn open(path: &Path, version: Option<u64>) -> Result<Table, OpError> {
    let dir = Dir::open(path)?;
    Ok(match version {
        None => Table::open(dir, Env::real())?,
        Some(version) => Table::open_at(dir, Env::real(), version)?,
    })
}

/// The schema and the rows, sorted.
pub(super) fn read(path: &Path, version: Option<u64>) -> Result<(SchemaRef, Vec<String>), OpError> {
    let table = open(path, version)?;
    let snapshot = table.snapshot();
    let rows = scan(&table, &snapshot)?;
    let schema = Arc::clone(rows.schema());
    let mut texts = Vec::new();
    for batch in rows {
        let batch = batch?;
        assert_eq!(batch.schema(), schema);
        texts.extend(rows_of(&batch));
    }
    texts.sort();
    Ok((schema, texts))
}

pub(in crate::ops) fn rows_of(batch: &RecordBatch) -> Vec<String> {
    let row = |i| {
        let values = batch.columns().iter().map(|column| text(column, i));
        values.collect::<Vec<_>>().join("|")
    };
    (0..batch.num_rows()).map(row).collect()
}

fn text(array: &ArrayRef, i: usize) -> String {
    if array.is_null(i) || array.data_type() == &Arrow::Null {
        return "NULL".to_owned();
    }
    let all = |array: &ArrayRef| {
        let texts = (0..array.len()).map(|i| text(array, i));
        texts.collect::<Vec<_>>()
    };
    match array.data_type() {
        Arrow::Utf8 => format!("{:?}", array.as_string::<i32>().value(i)),
        Arrow::Float32 => format!("{:?}", array.as_primitive::<Float32Type>().value(i)),
        Arrow::Float64 => format!("{:?}", array.as_primitive::<Float64Type>().value(i)),
        Arrow::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>();
            format!("{}us", micros.value(i))
        }
        Arrow::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            let members = columns.map(|column| text(column, i));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Arrow::List(_) => format!("[{}]", all(&array.as_list::<i32>().value(i)).join(",")),
        Arrow::Map(..) => {
            let entries: ArrayRef = Arc::new(array.as_map().value(i));
            let mut entries = all(&entries);
            entries.sort();
            format!("map[{}]", entries.join(","))
        }
        _ => array_value_to_string(array, i).unwrap(),
    }
}

/// Where two sorted lists differ.
pub(super) fn differ(ours: &[String], theirs: &[String]) -> String {
    let only = |a: &[String], b: &[String]| {
        let lines = a.iter().filter(|line| !b.contains(line)).take(2);
        format!("{:?}", lines.collect::<Vec<_>>())
    };
    format!(
        "{} rows, expected {}; only ours {}, only expected {}",
        ours.len(),
        theirs.len(),
        only(ours, theirs),
        only(theirs, ours)
    )
}
