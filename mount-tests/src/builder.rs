//! Tables as another system would have written them: version 0 by hand.

use std::fs;
use std::path::PathBuf;

use arrow::record_batch::RecordBatch;
use serde_json::{Map, Value, json};

use crate::table::Table;
use crate::{sample, vector};

/// A field of a Delta schema.
pub(crate) fn field(name: &str, kind: impl Into<Value>) -> Value {
    json!({"name": name, "type": kind.into(), "nullable": true, "metadata": {}})
}

pub(crate) fn not_null(mut field: Value) -> Value {
    field["nullable"] = Value::Bool(false);
    field
}

/// The field with one entry of metadata.
pub(crate) fn with_metadata(mut field: Value, key: &str, value: impl Into<Value>) -> Value {
    field["metadata"][key] = value.into();
    field
}

pub(crate) fn structure(fields: Vec<Value>) -> Value {
    json!({"type": "struct", "fields": fields})
}

/// Version 0 of a table.
pub(crate) struct Builder {
    path: PathBuf,
    protocol: Value,
    fields: Vec<Value>,
    partition_columns: Vec<String>,
    properties: Map<String, Value>,
    actions: Vec<Value>,
}

impl Builder {
    /// A table with deletion vectors enabled and no columns yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        fs::create_dir_all(path.join("_delta_log")).unwrap();
        let features = json!(["deletionVectors"]);
        let builder = Builder {
            path,
            protocol: json!({"minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": features, "writerFeatures": features}),
            fields: Vec::new(),
            partition_columns: Vec::new(),
            properties: Map::new(),
            actions: Vec::new(),
        };
        builder.property("delta.enableDeletionVectors", "true")
    }

    /// A reader 1 / writer N table without deletion vectors.
    pub(crate) fn legacy(mut self, writer: u32) -> Self {
        self.protocol = json!({"minReaderVersion": 1, "minWriterVersion": writer});
        self.properties.remove("delta.enableDeletionVectors");
        self
    }

    /// Maps the columns given so far, at every depth: `col-1` has the id 1.
    pub(crate) fn mapped(mut self, mode: &str) -> Self {
        let mut last = 0;
        for field in &mut self.fields {
            map_field(field, &mut last);
        }
        self.features(&["columnMapping"], &["columnMapping"])
            .property("delta.columnMapping.mode", mode)
            .property("delta.columnMapping.maxColumnId", &last.to_string())
    }

    /// Row tracking, enabled from the start.
    pub(crate) fn row_tracking(self) -> Self {
        let name = |kind: &str| format!("delta.rowTracking.materialized{kind}ColumnName");
        self.features(&[], &["rowTracking", "domainMetadata"])
            .property("delta.enableRowTracking", "true")
            .property(&name("RowId"), "_row-id-col-x")
            .property(&name("RowCommitVersion"), "_row-commit-version-col-x")
    }

    /// Adds table features, to the writer's list or to both.
    pub(crate) fn features(mut self, reader: &[&str], writer: &[&str]) -> Self {
        for (kind, names) in [("readerFeatures", reader), ("writerFeatures", writer)] {
            let list = self.protocol[kind].as_array_mut().unwrap();
            list.extend(names.iter().map(|name| json!(name)));
        }
        self
    }

    /// The columns `id`, `name`, `amount` of `batch::orders`.
    pub(crate) fn orders(self) -> Self {
        self.fields(vec![
            field("id", "long"),
            field("name", "string"),
            field("amount", "double"),
        ])
    }

    pub(crate) fn fields(mut self, fields: Vec<Value>) -> Self {
        self.fields.extend(fields);
        self
    }

    pub(crate) fn partitioned_by(mut self, columns: &[&str]) -> Self {
        self.partition_columns = columns.iter().map(|c| (*c).to_owned()).collect();
        self
    }

    pub(crate) fn property(mut self, key: &str, value: &str) -> Self {
        self.properties.insert(key.to_owned(), json!(value));
        self
    }

    /// A data file in the root of the table.
    pub(crate) fn file(self, path: &str, rows: &RecordBatch) -> Self {
        self.file_in(path, rows, &[])
    }

    /// A data file with partition values.
    pub(crate) fn file_in(
        self,
        path: &str,
        rows: &RecordBatch,
        values: &[(&str, Option<&str>)],
    ) -> Self {
        let add = self.write(path, rows, values);
        self.action("add", add)
    }

    /// A data file of which another system has deleted rows.
    pub(crate) fn file_with_vector(self, path: &str, rows: &RecordBatch, deleted: &[u16]) -> Self {
        let mut add = self.write(path, rows, &[]);
        let id = self.actions.len() as u8 + 1;
        add["deletionVector"] = vector::write(&self.path, id, deleted);
        add["stats"] =
            json!(json!({"numRecords": rows.num_rows(), "tightBounds": false}).to_string());
        self.action("add", add)
    }

    fn write(&self, path: &str, rows: &RecordBatch, values: &[(&str, Option<&str>)]) -> Value {
        let file = self.path.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        sample::write_parquet(&file, rows);
        add(
            path,
            fs::metadata(&file).unwrap().len(),
            rows.num_rows(),
            values,
        )
    }

    /// Any action: `action("add", …)`.
    pub(crate) fn action(mut self, kind: &str, body: Value) -> Self {
        self.actions.push(json!({kind: body}));
        self
    }

    /// Writes version 0.
    pub(crate) fn create(self) -> Table {
        let metadata = json!({
            "id": "11111111-2222-3333-4444-555555555555",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": structure(self.fields).to_string(),
            "partitionColumns": self.partition_columns,
            "configuration": self.properties,
            "createdTime": 1_700_000_000_000_u64,
        });
        let head = [
            json!({"commitInfo": {"timestamp": 1_700_000_000_000_u64, "operation": "WRITE",
                "operationParameters": {"mode": "Append"}}}),
            json!({"protocol": self.protocol}),
            json!({"metaData": metadata}),
        ];
        let lines = head
            .iter()
            .chain(&self.actions)
            .map(|action| format!("{action}\n"));
        let table = Table::at(self.path);
        fs::write(table.commit_path(0), lines.collect::<String>()).unwrap();
        table
    }
}

fn map_field(field: &mut Value, last: &mut i64) {
    *last += 1;
    field["metadata"]["delta.columnMapping.id"] = json!(*last);
    field["metadata"]["delta.columnMapping.physicalName"] = json!(format!("col-{last}"));
    map_type(&mut field["type"], last);
}

fn map_type(kind: &mut Value, last: &mut i64) {
    let Some(object) = kind.as_object_mut() else {
        return;
    };
    for inner in ["elementType", "keyType", "valueType"] {
        if let Some(inner) = object.get_mut(inner) {
            map_type(inner, last);
        }
    }
    for field in object
        .get_mut("fields")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        map_field(field, last);
    }
}

/// An `add` action. `path` is as the log has it: percent-encoded.
pub(crate) fn add(path: &str, size: u64, rows: usize, values: &[(&str, Option<&str>)]) -> Value {
    let values: Map<String, Value> = values
        .iter()
        .map(|(column, value)| ((*column).to_owned(), json!(value)))
        .collect();
    json!({
        "path": path,
        "partitionValues": values,
        "size": size,
        "modificationTime": 1_700_000_000_000_u64,
        "dataChange": true,
        "stats": json!({"numRecords": rows}).to_string(),
    })
}

/// Appends a version to a table's log by hand, as another writer would.
pub(crate) fn commit(table: &Table, actions: &[Value]) {
    let lines = actions.iter().map(|action| format!("{action}\n"));
    let path = table.commit_path(table.version() + 1);
    let hidden = path.with_extension("hidden");
    fs::write(&hidden, lines.collect::<String>()).unwrap();
    fs::rename(hidden, path).unwrap();
}
