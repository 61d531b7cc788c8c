//! Tables with rows, for the tests of operations that read and write them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use super::log_testing::{NOW, folder};
use super::scan::testing::rows_of;
use super::{
    Append, Delete, OpError, Optimize, Options, Replaces, Report, append, delete, optimize,
    rewrite, scan,
};
use crate::deletion_vector::{DeletionVectorDescriptor, Location};
use crate::env::Env;
use crate::log::{LOG_DIR, LogName};
use crate::schema::{DataType, Primitive, StructField};
use crate::store::Dir;
use crate::table::{LiveFile, Snapshot, Table};

/// What a table is like at version 0.
#[derive(Default)]
pub(in crate::ops) struct Shape<'a> {
    /// Names and types, as JSON has them.
    pub(in crate::ops) columns: Vec<(&'a str, Value)>,
    pub(in crate::ops) partitions: Vec<&'a str>,
    pub(in crate::ops) features: Vec<&'a str>,
    pub(in crate::ops) properties: Vec<(&'a str, &'a str)>,
}

impl<'a> Shape<'a> {
    /// Deletion vectors and a column `id`.
    pub(in crate::ops) fn ids() -> Self {
        Shape {
            columns: vec![("id", json!("long"))],
            features: vec!["deletionVectors"],
            properties: vec![("delta.enableDeletionVectors", "true")],
            ..Shape::default()
        }
    }

    pub(in crate::ops) fn column(mut self, name: &'a str, kind: &str) -> Self {
        self.columns.push((name, json!(kind)));
        self
    }

    pub(in crate::ops) fn partitioned_by(mut self, columns: &[&'a str]) -> Self {
        self.partitions = columns.to_vec();
        self
    }

    pub(in crate::ops) fn feature(mut self, name: &'a str) -> Self {
        self.features.push(name);
        self
    }

    pub(in crate::ops) fn property(mut self, key: &'a str, value: &'a str) -> Self {
        self.properties.push((key, value));
        self
    }

    pub(in crate::ops) fn without_vectors(mut self) -> Self {
        self.features.retain(|f| *f != "deletionVectors");
        let on = "delta.enableDeletionVectors";
        self.properties.retain(|(key, _)| *key != on);
        self
    }

    pub(in crate::ops) fn row_tracking(self) -> Self {
        self.feature("rowTracking")
            .feature("domainMetadata")
            .property("delta.enableRowTracking", "true")
            .property(ROW_ID.0, ROW_ID.1)
            .property(ROW_VERSION.0, ROW_VERSION.1)
    }

    /// Each column has an id and a physical name.
    fn fields(&self) -> Vec<Value> {
        let mode = "delta.columnMapping.mode";
        let mapped = self.properties.iter().any(|(key, _)| *key == mode);
        let columns = self.columns.iter().zip(1..);
        let field = |((name, kind), id): (&(&str, Value), i32)| {
            let metadata = if mapped {
                json!({"delta.columnMapping.id": id, "delta.columnMapping.physicalName": format!("col-{id}")})
            } else {
                json!({})
            };
            json!({"name": name, "type": kind, "nullable": true, "metadata": metadata})
        };
        columns.map(field).collect()
    }
}

const ROW_ID: (&str, &str) = ("delta.rowTracking.materializedRowIdColumnName", "_row-id-x");
const ROW_VERSION: (&str, &str) = (
    "delta.rowTracking.materializedRowCommitVersionColumnName",
    "_row-commit-version-x",
);

/// A table in a directory of its own. One clock and one dice for whoever opens it.
pub(in crate::ops) struct Made {
    guard: tempfile::TempDir,
    env: Env,
    pub(in crate::ops) table: Table,
}

impl Made {
    pub(in crate::ops) fn create(shape: &Shape<'_>) -> Self {
        let guard = folder();
        std::fs::create_dir(guard.path().join(LOG_DIR)).unwrap();
        let reader = [
            "deletionVectors",
            "columnMapping",
            "timestampNtz",
            "typeWidening",
        ];
        let readers: Vec<&&str> = shape
            .features
            .iter()
            .filter(|f| reader.contains(f))
            .collect();
        let schema = json!({"type": "struct", "fields": shape.fields()}).to_string();
        let configuration: BTreeMap<_, _> = shape.properties.iter().copied().collect();
        let lines = [
            json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers,
                "writerFeatures": shape.features}}),
            json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                "partitionColumns": shape.partitions, "configuration": configuration}}),
        ];
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        let first = guard.path().join(LOG_DIR).join(LogName::commit(0));
        std::fs::write(first, lines.join("\n")).unwrap();
        let env = Env::fixed(NOW);
        let table = Table::open(Dir::open(guard.path()).unwrap(), env.clone()).unwrap();
        Made { guard, env, table }
    }

    pub(in crate::ops) fn path(&self) -> &Path {
        self.guard.path()
    }

    /// The table as another process sees it.
    pub(in crate::ops) fn open(&self) -> Table {
        Table::open(Dir::open(self.path()).unwrap(), self.env.clone()).unwrap()
    }

    pub(in crate::ops) fn newest(&self) -> Arc<Snapshot> {
        self.table.refresh().unwrap()
    }

    pub(in crate::ops) fn version(&self) -> u64 {
        self.newest().version()
    }

    /// What somebody else commits.
    pub(in crate::ops) fn commit(&self, lines: &[Value]) {
        let version = self.version() + 1;
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        let path = self.path().join(LOG_DIR).join(LogName::commit(version));
        std::fs::write(path, lines.join("\n")).unwrap();
    }

    /// The actions of a version, of one kind.
    pub(in crate::ops) fn actions(&self, version: u64, kind: &str) -> Vec<Value> {
        let path = self.path().join(LOG_DIR).join(LogName::commit(version));
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|mut l| l[kind].take())
            .filter(|a| !a.is_null())
            .collect()
    }

    /// A file of rows, by the way of every dropped file.
    pub(in crate::ops) fn append(&self, columns: Vec<(&str, ArrayRef)>) {
        let columns = columns.into_iter().map(|(name, array)| (name, array, true));
        let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let input = tempfile::tempfile_in(self.path()).unwrap();
        let copy = input.try_clone().unwrap();
        let mut writer = ArrowWriter::try_new(copy, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let stored = format!("{}.parquet", self.env.uuid());
        let request = Append {
            input: &input,
            name: "rows.parquet",
            fixed: &BTreeMap::new(),
            stored: &stored,
            replaces: Replaces::Nothing,
            scratch: &|| tempfile::tempfile_in(self.path()),
        };
        append(&self.open(), &request).unwrap();
    }

    pub(in crate::ops) fn append_ids(&self, ids: impl IntoIterator<Item = i64>) {
        self.append(vec![("id", longs(ids))]);
    }

    /// Several files of ten ids each.
    pub(in crate::ops) fn append_files(&self, files: Range<i64>) {
        for file in files {
            self.append_ids(file * 10..file * 10 + 10);
        }
    }

    pub(in crate::ops) fn scratch(&self) -> std::io::Result<File> {
        tempfile::tempfile_in(self.path())
    }

    /// As a statement that was begun when `base` was the newest version.
    pub(in crate::ops) fn try_delete(
        &self,
        predicate: &str,
        base: &Arc<Snapshot>,
    ) -> Result<Report, OpError> {
        let options = Options::default();
        let request = Delete {
            predicate,
            options: &options,
        };
        delete(&self.open(), &request, Some(base), &|| self.scratch())
    }

    pub(in crate::ops) fn delete(&self, predicate: &str) -> Report {
        self.try_delete(predicate, &self.newest()).unwrap()
    }

    /// As [`Made::try_delete`].
    pub(in crate::ops) fn try_optimize(
        &self,
        predicate: Option<&str>,
        base: &Arc<Snapshot>,
    ) -> Result<Report, OpError> {
        let options = Options::default();
        let request = Optimize {
            predicate,
            options: &options,
        };
        optimize(&self.open(), &request, Some(base), &|| self.scratch())
    }

    pub(in crate::ops) fn optimize(&self) -> Report {
        self.try_optimize(None, &self.newest()).unwrap()
    }

    pub(in crate::ops) fn files(&self) -> Vec<Arc<LiveFile>> {
        self.newest().live_files().collect()
    }

    /// The rows as text, file by file in the order of their paths.
    pub(in crate::ops) fn rows(&self) -> Vec<String> {
        let table = self.open();
        let snapshot = table.snapshot();
        let batches = scan(&table, &snapshot).unwrap();
        batches.flat_map(|batch| rows_of(&batch.unwrap())).collect()
    }

    pub(in crate::ops) fn sorted(&self) -> Vec<String> {
        let mut rows = self.rows();
        rows.sort();
        rows
    }

    /// Holds the rows of a table of ids against what they should be, each once; and the table's directory against the
    /// log.
    #[track_caller]
    pub(in crate::ops) fn holds(&self, ids: impl IntoIterator<Item = i64>) {
        let mut expected: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
        expected.sort();
        let found = self.sorted();
        assert!(found == expected, "found {found:?}\nexpected {expected:?}");
        self.has_no_orphans();
    }

    /// Row id and version of each row, by its text (row tracking).
    pub(in crate::ops) fn identities(&self) -> BTreeMap<String, (i64, i64)> {
        let base = self.newest();
        let hidden = [ROW_ID.1, ROW_VERSION.1];
        let mut schema = (**base.schema()).clone();
        let names: Vec<String> = schema.fields.iter().map(|f| f.name.clone()).collect();
        let columns = [names.clone(), hidden.map(str::to_owned).to_vec()].concat();
        let long = DataType::Primitive(Primitive::Long);
        schema
            .fields
            .extend(hidden.map(|n| StructField::new(n, long.clone(), true)));
        let mut found = BTreeMap::new();
        let mut given = BTreeSet::new();
        for file in base.live_files() {
            let dead = self.table.dead_rows(&file).unwrap();
            let base_id = file.add.base_row_id.unwrap();
            let version = file.add.default_row_commit_version.unwrap();
            let reader =
                rewrite::open(&self.table, &base, &file, &schema, &columns, &dead).unwrap();
            for batch in reader {
                let (batch, positions) = batch.unwrap();
                let own: Vec<usize> = (0..names.len()).collect();
                let texts = rows_of(&batch.project(&own).unwrap());
                let stored = |column: usize, row: usize| {
                    let array = batch
                        .column(names.len() + column)
                        .as_primitive::<Int64Type>();
                    array.is_valid(row).then(|| array.value(row))
                };
                for (row, (text, position)) in texts.into_iter().zip(positions.iter()).enumerate() {
                    let id = stored(0, row).unwrap_or(base_id + position as i64);
                    assert!(given.insert(id), "the row id {id} is given twice");
                    found.insert(text, (id, stored(1, row).unwrap_or(version)));
                }
            }
        }
        let mark = base.domains().find(|d| d.domain == "delta.rowTracking");
        let mark: Value = serde_json::from_str(&mark.unwrap().configuration).unwrap();
        let highest = given.last().copied();
        assert!(highest <= mark["rowIdHighWaterMark"].as_i64(), "{mark}");
        found
    }

    /// Whatever lies in the directory is, or was, part of a version.
    #[track_caller]
    pub(in crate::ops) fn has_no_orphans(&self) {
        let mut named = BTreeSet::new();
        for version in 0..=self.version() {
            for add in self.actions(version, "add") {
                let path = add["path"].as_str().unwrap();
                named.insert(crate::schema::partition::decode_path(path).unwrap());
                let vector: Option<DeletionVectorDescriptor> =
                    serde_json::from_value(add["deletionVector"].clone()).unwrap();
                if let Some(Location::Relative { path, .. }) = vector.map(|v| v.location().unwrap())
                {
                    named.insert(path);
                }
            }
        }
        let mut found = BTreeSet::new();
        walk(self.path(), "", &mut found);
        let orphans: Vec<&String> = found.difference(&named).collect();
        assert!(orphans.is_empty(), "{orphans:?}");
    }
}

fn walk(root: &Path, below: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name == LOG_DIR {
            continue;
        }
        let path = if below.is_empty() {
            name
        } else {
            format!("{below}/{name}")
        };
        if entry.file_type().unwrap().is_dir() {
            walk(root, &path, found);
        } else {
            found.insert(path);
        }
    }
}

pub(in crate::ops) fn longs(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}
