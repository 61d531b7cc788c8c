//! Data files of the model's rows.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::model::Row;
use super::observe::Contents;

/// In memory, where syncing costs nothing.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(crate) fn write_parquet(out: File, rows: &[Row], with_p: bool) {
    let numbers = |of: fn(&Row) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(of)))
    };
    let mut columns = vec![
        ("id", numbers(|r| r.id), true),
        ("k", numbers(|r| r.k), true),
        ("n", numbers(|r| r.n), true),
    ];
    if with_p {
        let p = rows.iter().map(|r| r.p.to_string());
        columns.push(("p", Arc::new(StringArray::from_iter_values(p)), true));
    }
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut writer = ArrowWriter::try_new(out, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

pub(crate) fn read_parquet(path: &Path, partition: Option<char>) -> Vec<Row> {
    let file = File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let mut rows = Vec::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap().clone();
        let number = |name: &str, i: usize| column(name).as_primitive::<Int64Type>().value(i);
        for i in 0..batch.num_rows() {
            let p = partition.unwrap_or_else(|| {
                let text = column("p");
                text.as_string::<i32>().value(i).chars().next().unwrap()
            });
            rows.push(Row {
                id: number("id", i),
                k: number("k", i),
                p,
                n: number("n", i),
            });
        }
    }
    rows
}

/// Every data file below the directory of a table, whether a version refers to it or not.
pub(crate) fn contents(table: &Path) -> Contents {
    let mut contents = Contents::new();
    for name in names(table) {
        if name.ends_with(".parquet") {
            let partition = name.strip_prefix("p=").and_then(|rest| rest.chars().next());
            let rows = read_parquet(&table.join(&name), partition);
            contents.insert(name, rows);
        }
    }
    contents
}

/// The files below the directory of a table, but for the log.
pub(crate) fn names(table: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(table).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_file() {
            names.push(name);
        } else if name != crate::log::LOG_DIR {
            let below = names_in(&entry.path());
            names.extend(below.into_iter().map(|below| format!("{name}/{below}")));
        }
    }
    names.sort();
    names
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
    names.collect()
}
