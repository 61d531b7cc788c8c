//! What a scan does when the table is not what its log says.

use std::path::{Path, PathBuf};

use super::super::OpError;
use super::testing::{open, read};
use super::*;
use crate::error::{Failure as _, Kind};
use crate::log::LOG_DIR;
use arrow::array::{Array as _, ArrayRef, AsArray as _, BinaryArray, Int64Array, StructArray};
use arrow::datatypes::{Field, Fields};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

/// A table with the column `id` in files of ten rows.
struct Made {
    guard: tempfile::TempDir,
    fields: Vec<Value>,
    adds: Vec<Value>,
}

impl Made {
    fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        std::fs::create_dir(guard.path().join(LOG_DIR)).unwrap();
        let id = json!({"name": "id", "type": "long", "nullable": true, "metadata": {}});
        Made {
            guard,
            fields: vec![id],
            adds: Vec::new(),
        }
    }

    fn path(&self) -> &Path {
        self.guard.path()
    }

    /// Ten rows in `path`, which the log calls `named`.
    fn file(self, path: &str, named: &str) -> Self {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
        let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        self.rows(path, named, &rows)
    }

    fn rows(mut self, path: &str, named: &str, batch: &RecordBatch) -> Self {
        let target: PathBuf = self.path().join(path);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        let file = std::fs::File::create(target).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
        self.adds.push(
            json!({"add": {"path": named, "partitionValues": {}, "size": 1, "modificationTime": 1,
            "dataChange": true}}),
        );
        self
    }

    fn commit(self) -> Self {
        let schema = json!({"type": "struct", "fields": self.fields}).to_string();
        let mut lines = vec![
            json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}).to_string(),
            json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
                "schemaString": schema, "partitionColumns": [], "configuration": {}}})
            .to_string(),
        ];
        lines.extend(self.adds.iter().map(Value::to_string));
        let commit = self.path().join("_delta_log/00000000000000000000.json");
        std::fs::write(commit, lines.join("\n")).unwrap();
        self
    }
}

#[test]
fn files_come_in_the_order_of_their_paths_and_a_missing_one_ends_them() {
    let made = Made::new()
        .file("b.parquet", "b.parquet")
        .file("a.parquet", "a.parquet")
        .file("c.parquet", "c.parquet")
        .commit();
    std::fs::remove_file(made.path().join("b.parquet")).unwrap();
    let table = open(made.path(), None).unwrap();
    let snapshot = table.snapshot();
    let mut rows = scan(&table, &snapshot).unwrap();
    assert_eq!(rows.next().unwrap().unwrap().num_rows(), 10);
    let error = rows.next().unwrap().unwrap_err();
    assert!(
        matches!(&error, OpError::MissingFile { path, version: 0 } if path == "b.parquet"),
        "{error}"
    );
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(rows.next().is_none());
}

#[test]
fn a_damaged_file_is_named() {
    let made = Made::new()
        .file("a%20b.parquet", "a%2520b.parquet")
        .commit();
    let path = made.path().join("a%20b.parquet");
    let bytes = std::fs::read(&path).unwrap();
    // A page header, the footer's length, the end.
    for (at, len) in [(4, 16), (bytes.len() - 8, 8), (bytes.len() / 2, 0)] {
        let mut broken = bytes.clone();
        if len == 0 {
            broken.truncate(at);
        } else {
            broken[at..at + len].fill(0xff);
        }
        std::fs::write(&path, &broken).unwrap();
        let error = read(made.path(), None).unwrap_err();
        assert!(error.to_string().contains("a%20b.parquet"), "{error}");
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    }
}

#[test]
fn absolute_paths_are_followed_inside_the_table_only() {
    let made = Made::new();
    let root = std::fs::canonicalize(made.path()).unwrap();
    let uri = format!("file://{}/a.parquet", root.display());
    let made = made.file("a.parquet", &uri).commit();
    assert_eq!(read(made.path(), None).unwrap().1.len(), 10);
    let made = Made::new()
        .file("a.parquet", "file:///elsewhere/a.parquet")
        .commit();
    let error = read(made.path(), None).unwrap_err();
    assert!(
        error.to_string().contains("/elsewhere/a.parquet"),
        "{error}"
    );
}

#[test]
fn a_type_without_a_name_is_refused_with_its_column() {
    let mut made = Made::new();
    made.fields.push(
        json!({"name": "when", "type": "interval year to month", "nullable": true, "metadata": {}}),
    );
    let made = made.commit();
    let error = read(made.path(), None).unwrap_err();
    assert!(
        matches!(&error, OpError::UnreadableType { column, .. } if column == "when"),
        "{error}"
    );
}

#[test]
fn a_table_without_files_has_its_schema() {
    let made = Made::new().commit();
    let (schema, rows) = read(made.path(), None).unwrap();
    assert_eq!(schema.fields().len(), 1);
    assert!(rows.is_empty());
}

/// A variant column as it is stored: two binaries, and where it is shredded a typed value beside them.
fn variant(shredded: bool) -> Result<RecordBatch, OpError> {
    let binary =
        |bytes: &'static [u8]| -> ArrayRef { Arc::new(BinaryArray::from_vec(vec![bytes])) };
    let mut members = vec![
        ("value", binary(b"\x0c\x01"), false),
        ("metadata", binary(b"\x01\x00\x00"), false),
    ];
    if shredded {
        members.push(("typed_value", binary(b"x"), true));
    }
    let fields: Fields = members
        .iter()
        .map(|(name, array, nullable)| Field::new(*name, array.data_type().clone(), *nullable))
        .collect();
    let columns = members.into_iter().map(|(_, array, _)| array).collect();
    let column: ArrayRef = Arc::new(StructArray::new(fields, columns, None));
    let rows = RecordBatch::try_from_iter([("v", column)]).unwrap();
    let mut made = Made::new();
    made.fields = vec![json!({"name": "v", "type": "variant", "nullable": true, "metadata": {}})];
    let made = made.rows("v.parquet", "v.parquet", &rows).commit();
    let table = open(made.path(), None)?;
    let snapshot = table.snapshot();
    scan(&table, &snapshot)?.next().unwrap()
}

#[test]
fn a_variant_is_its_two_binaries() {
    let rows = variant(false).unwrap();
    let found = rows.column(0).as_struct();
    assert_eq!(found.column_names(), ["metadata", "value"]);
    let value = found.column_by_name("value").unwrap();
    assert_eq!(value.as_binary::<i32>().value(0), b"\x0c\x01");
    let error = variant(true).unwrap_err().to_string();
    assert!(
        error.contains("v.parquet") && error.contains("shredded"),
        "{error}"
    );
}
