//! The oracle: what a table holds according to its backing directory. A replay of its own, of JSON commits only.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow::array::{
    Array, ArrayRef, AsArray as _, Int64Array, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray,
};
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Type as PhysicalType;
use serde_json::Value;

use crate::vector;

/// A table's directory.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) path: PathBuf,
}

/// A version of a table.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) protocol: Value,
    pub(crate) metadata: Value,
    /// The live `add` actions by path and vector.
    live: BTreeMap<(String, String), Value>,
}

impl Table {
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Table { path: path.into() }
    }

    fn log(&self) -> PathBuf {
        self.path.join("_delta_log")
    }

    pub(crate) fn commit_path(&self, version: u64) -> PathBuf {
        self.log().join(format!("{version:020}.json"))
    }

    pub(crate) fn exists(&self) -> bool {
        self.commit_path(0).exists()
    }

    /// The versions that have a commit file, ascending.
    pub(crate) fn versions(&self) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(self.log()) else {
            return Vec::new();
        };
        let names = entries.flatten().map(|e| e.file_name());
        let mut versions: Vec<u64> = names
            .filter_map(|name| {
                let digits = name.to_str()?.strip_suffix(".json")?;
                (digits.len() == 20).then(|| digits.parse().ok())?
            })
            .collect();
        versions.sort_unstable();
        versions
    }

    #[track_caller]
    pub(crate) fn version(&self) -> u64 {
        let versions = self.versions();
        *versions
            .last()
            .unwrap_or_else(|| panic!("{} is no table", self.path.display()))
    }

    /// Every version from 0 on has a commit file.
    #[track_caller]
    pub(crate) fn assert_contiguous(&self) {
        let versions = self.versions();
        let expected: Vec<u64> = (0..versions.len() as u64).collect();
        assert_eq!(versions, expected, "versions of {}", self.path.display());
    }

    /// The actions of a commit.
    #[track_caller]
    pub(crate) fn commit(&self, version: u64) -> Vec<Value> {
        let path = self.commit_path(version);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
            .collect()
    }

    /// The actions of one kind in a commit: `actions(3, "add")`.
    #[track_caller]
    pub(crate) fn actions(&self, version: u64, kind: &str) -> Vec<Value> {
        let actions = self.commit(version).into_iter();
        actions
            .filter_map(|mut action| action.get_mut(kind).map(Value::take))
            .collect()
    }

    #[track_caller]
    pub(crate) fn commit_info(&self, version: u64) -> Value {
        let mut found = self.actions(version, "commitInfo");
        assert_eq!(found.len(), 1, "commitInfo actions of version {version}");
        found.remove(0)
    }

    #[track_caller]
    pub(crate) fn state(&self) -> State {
        self.state_at(self.version())
    }

    #[track_caller]
    pub(crate) fn state_at(&self, version: u64) -> State {
        let mut state = State::default();
        for v in 0..=version {
            // Removes first: a commit may replace one vector of a file by another.
            for remove in self.actions(v, "remove") {
                let gone = state.live.remove(&key(&remove));
                assert!(
                    gone.is_some(),
                    "version {v} removes what is not live: {remove}"
                );
            }
            for action in self.commit(v) {
                if let Some(add) = action.get("add") {
                    state.live.insert(key(add), add.clone());
                } else if let Some(metadata) = action.get("metaData") {
                    state.metadata = metadata.clone();
                } else if let Some(protocol) = action.get("protocol") {
                    state.protocol = protocol.clone();
                }
            }
        }
        let paths = state.live.keys().map(|(path, _)| path);
        let mut unique: Vec<&String> = paths.collect();
        unique.dedup();
        assert_eq!(unique.len(), state.live.len(), "a path is live twice");
        state
    }

    /// The rows, each as text in the order of the schema, sorted. NULL is `NULL`.
    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<String> {
        let state = self.state();
        let columns = state.columns();
        let mut rows = Vec::new();
        for add in state.live() {
            rows.extend(self.file_rows(&state, &columns, add));
        }
        rows.sort();
        rows
    }

    /// The values of the column `id`, sorted.
    #[track_caller]
    pub(crate) fn ids(&self) -> Vec<i64> {
        let state = self.state();
        let columns = vec!["id".to_owned()];
        let mut ids: Vec<i64> = state
            .live()
            .flat_map(|add| self.file_rows(&state, &columns, add))
            .map(|id| id.parse().unwrap())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// The file of an `add`.
    pub(crate) fn file(&self, add: &Value) -> PathBuf {
        self.path.join(decoded(add["path"].as_str().unwrap()))
    }

    fn file_rows(&self, state: &State, columns: &[String], add: &Value) -> Vec<String> {
        let path = self.file(add);
        let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(
            Some(file.metadata().unwrap().len()),
            add["size"].as_u64(),
            "the size of {} in the log",
            path.display()
        );
        let deleted = match &add["deletionVector"] {
            Value::Null => Default::default(),
            descriptor => vector::deleted(&self.path, descriptor),
        };
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        check_types(state, &reader, &path);
        let mut rows = Vec::new();
        let mut position = 0_u64;
        let mut ids = Vec::new();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let sources: Vec<Source> = columns
                .iter()
                .map(|column| {
                    let stored = state.physical(column);
                    if state.is_partition(column) {
                        let value = &add["partitionValues"][&stored];
                        return Source::Constant(value.as_str().unwrap_or("NULL").to_owned());
                    }
                    match batch.column_by_name(&stored) {
                        Some(array) => Source::Array(array.clone()),
                        None => Source::Constant("NULL".to_owned()),
                    }
                })
                .collect();
            for i in 0..batch.num_rows() {
                if !deleted.contains(&position) {
                    let values = sources.iter().map(|source| source.at(i));
                    rows.push(values.collect::<Vec<_>>().join("|"));
                }
                position += 1;
            }
            let id = batch.column_by_name(&state.physical("id")).cloned();
            ids.extend(id.filter(|a| a.data_type() == &DataType::Int64));
        }
        let last = deleted.last().copied();
        assert!(
            last < Some(position),
            "a vector deletes row {last:?} of {position}"
        );
        check_statistics(state, add, position, &ids);
        rows
    }

    /// Row id and row commit version of each live row, by its `id`: what the file says, else what its entry does
    /// (row tracking).
    #[track_caller]
    pub(crate) fn identities(&self) -> BTreeMap<i64, (i64, i64)> {
        let state = self.state();
        let hidden = |key: &str| state.property(&format!("delta.rowTracking.{key}ColumnName"));
        let columns = [
            (hidden("materializedRowId"), "baseRowId"),
            (
                hidden("materializedRowCommitVersion"),
                "defaultRowCommitVersion",
            ),
        ];
        let mut found = BTreeMap::new();
        let mut given = BTreeMap::new();
        for add in state.live() {
            let deleted = match &add["deletionVector"] {
                Value::Null => Default::default(),
                descriptor => vector::deleted(&self.path, descriptor),
            };
            let file = File::open(self.file(add)).unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            let mut position = 0_u64;
            for batch in reader.build().unwrap() {
                let batch = batch.unwrap();
                let ids = batch[state.physical("id").as_str()].as_primitive::<Int64Type>();
                for row in 0..batch.num_rows() {
                    let [row_id, version] = columns.map(|(name, fallback)| {
                        let column = name.and_then(|name| batch.column_by_name(name));
                        let column = column.map(|c| c.as_primitive::<Int64Type>());
                        match column.filter(|c| c.is_valid(row)) {
                            Some(column) => column.value(row),
                            None => {
                                let first = add[fallback].as_i64();
                                let first = first.unwrap_or_else(|| panic!("no {fallback}: {add}"));
                                let offset = position as i64;
                                first + if fallback == "baseRowId" { offset } else { 0 }
                            }
                        }
                    });
                    if !deleted.contains(&position) {
                        let old = given.insert(row_id, ids.value(row));
                        assert_eq!(old, None, "row id {row_id} is given twice");
                        found.insert(ids.value(row), (row_id, version));
                    }
                    position += 1;
                }
            }
        }
        found
    }
}

impl State {
    pub(crate) fn live(&self) -> impl Iterator<Item = &Value> {
        self.live.values()
    }

    /// The live `add` of the only file.
    #[track_caller]
    pub(crate) fn only(&self) -> &Value {
        assert_eq!(self.live.len(), 1, "live files: {:?}", self.live.keys());
        self.live.values().next().unwrap()
    }

    /// The live `add` that shows under this name.
    #[track_caller]
    pub(crate) fn named(&self, name: &str) -> &Value {
        let found = self.live().find(|add| visible_name(add) == name);
        found.unwrap_or_else(|| panic!("no live file is called {name}: {:?}", self.live.keys()))
    }

    pub(crate) fn schema(&self) -> Value {
        serde_json::from_str(self.metadata["schemaString"].as_str().unwrap()).unwrap()
    }

    pub(crate) fn columns(&self) -> Vec<String> {
        let schema = self.schema();
        let fields = schema["fields"].as_array().unwrap().iter();
        fields
            .map(|field| field["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Whether the table maps its columns.
    pub(crate) fn is_mapped(&self) -> bool {
        let mode = self.property("delta.columnMapping.mode");
        mode.is_some_and(|mode| mode != "none")
    }

    /// The name of a top-level column in files, statistics and partition values.
    pub(crate) fn physical(&self, column: &str) -> String {
        let schema = self.schema();
        let mut fields = schema["fields"].as_array().unwrap().iter();
        let field = fields.find(|f| f["name"] == column);
        let name = field.map(|f| &f["metadata"]["delta.columnMapping.physicalName"]);
        match name.and_then(Value::as_str) {
            Some(name) if self.is_mapped() => name.to_owned(),
            _ => column.to_owned(),
        }
    }

    fn is_partition(&self, column: &str) -> bool {
        let columns = self.metadata["partitionColumns"].as_array();
        columns.is_some_and(|columns| columns.iter().any(|c| c == column))
    }

    /// The sorted features of a kind: `features("writerFeatures")`.
    pub(crate) fn features(&self, kind: &str) -> Vec<String> {
        let listed = self.protocol[kind].as_array().cloned().unwrap_or_default();
        let names = listed.iter().map(|f| f.as_str().unwrap().to_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    pub(crate) fn property(&self, name: &str) -> Option<&str> {
        self.metadata["configuration"][name].as_str()
    }
}

/// The name that a file shows in its directory.
pub(crate) fn visible_name(add: &Value) -> String {
    match add["tags"]["deltafs.name"].as_str() {
        Some(name) => name.to_owned(),
        None => {
            let path = decoded(add["path"].as_str().unwrap());
            path.rsplit('/').next().unwrap().to_owned()
        }
    }
}

fn key(action: &Value) -> (String, String) {
    let vector = &action["deletionVector"];
    let id = match vector {
        Value::Null => String::new(),
        _ => format!(
            "{}{}@{}",
            vector["storageType"], vector["pathOrInlineDv"], vector["offset"]
        ),
    };
    (action["path"].as_str().unwrap().to_owned(), id)
}

/// Decodes a path of the log: percent signs, exactly once.
pub(crate) fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::new();
    let mut i = 0;
    while i < bytes.len() {
        let code = path.get(i + 1..i + 3);
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[i] == b'%' => {
                out.push(byte);
                i += 3;
            }
            _ => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8(out).unwrap()
}

/// A stored file has the table's types, as every other reader expects; and its field ids, where it maps columns.
fn check_types(state: &State, file: &ParquetRecordBatchReaderBuilder<File>, path: &Path) {
    let schema = state.schema();
    for field in schema["fields"].as_array().unwrap() {
        let name = &state.physical(field["name"].as_str().unwrap());
        let Some((index, found)) = file.schema().column_with_name(name) else {
            continue;
        };
        let root = &file.parquet_schema().root_schema().get_fields()[index];
        if state.is_mapped() {
            let info = root.get_basic_info();
            let id = info.has_id().then(|| info.id());
            let wanted = field["metadata"]["delta.columnMapping.id"].as_i64();
            assert_eq!(
                id.map(i64::from),
                wanted,
                "field id of {name} in {}",
                path.display()
            );
        }
        let Some(kind) = field["type"].as_str() else {
            continue;
        };
        if root.is_primitive() && root.get_physical_type() == PhysicalType::INT96 {
            assert_eq!(
                kind,
                "timestamp",
                "column {name} of {} is INT96",
                path.display()
            );
            continue;
        }
        let found = found.data_type();
        let fits = match kind {
            "long" => *found == DataType::Int64,
            "integer" => *found == DataType::Int32,
            "short" => *found == DataType::Int16,
            "byte" => *found == DataType::Int8,
            "double" => *found == DataType::Float64,
            "float" => *found == DataType::Float32,
            "boolean" => *found == DataType::Boolean,
            "date" => *found == DataType::Date32,
            "timestamp" | "timestamp_ntz" => match found {
                DataType::Timestamp(TimeUnit::Nanosecond, _) => false,
                DataType::Timestamp(_, zone) => zone.is_some() == (kind == "timestamp"),
                _ => false,
            },
            decimal if decimal.starts_with("decimal") => match found {
                DataType::Decimal128(p, s) => decimal == format!("decimal({p},{s})"),
                _ => false,
            },
            _ => true,
        };
        let path = path.display();
        assert!(
            fits,
            "{path} stores column {name} as {found}, the table says {kind}"
        );
    }
}

/// The statistics never claim what isn't so: the count is right and the bounds of `id` hold every value.
fn check_statistics(state: &State, add: &Value, rows: u64, ids: &[ArrayRef]) {
    let Some(text) = add["stats"].as_str() else {
        return;
    };
    let stats: Value = serde_json::from_str(text).unwrap();
    let path = &add["path"];
    assert_eq!(
        stats["numRecords"].as_u64(),
        Some(rows),
        "numRecords of {path}"
    );
    let values: Vec<i64> = ids
        .iter()
        .flat_map(|array| array.as_primitive::<Int64Type>().iter().flatten())
        .collect();
    let (Some(min), Some(max)) = (values.iter().min(), values.iter().max()) else {
        return;
    };
    let id = state.physical("id");
    let (low, high) = (&stats["minValues"][&id], &stats["maxValues"][&id]);
    assert!(
        low.as_i64().is_none_or(|low| low <= *min),
        "minimum of {path}: {text}"
    );
    assert!(
        high.as_i64().is_none_or(|high| high >= *max),
        "maximum of {path}: {text}"
    );
}

enum Source {
    Constant(String),
    Array(ArrayRef),
}

impl Source {
    fn at(&self, row: usize) -> String {
        match self {
            Source::Constant(value) => value.clone(),
            Source::Array(array) => render(array, row),
        }
    }
}

/// A value as text; instants as microseconds since 1970 and a `us`, whatever their zone.
fn render(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "NULL".to_owned();
    }
    match array.data_type() {
        DataType::Timestamp(unit, _) => {
            let micros = match unit {
                TimeUnit::Second => unreachable!("Parquet has no seconds"),
                TimeUnit::Millisecond => {
                    let array = array.as_any().downcast_ref::<TimestampMillisecondArray>();
                    array.unwrap().value(row) * 1000
                }
                TimeUnit::Microsecond => {
                    let array = array.as_any().downcast_ref::<TimestampMicrosecondArray>();
                    array.unwrap().value(row)
                }
                TimeUnit::Nanosecond => {
                    let array = array.as_any().downcast_ref::<TimestampNanosecondArray>();
                    array.unwrap().value(row).div_euclid(1000)
                }
            };
            format!("{micros}us")
        }
        DataType::Struct(fields) => {
            let array = array.as_struct();
            let parts = fields.iter().zip(array.columns());
            let parts = parts.map(|(f, c)| format!("{}:{}", f.name(), render(c, row)));
            format!("{{{}}}", parts.collect::<Vec<_>>().join(","))
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            let parts = (0..items.len()).map(|i| render(&items, i));
            format!("[{}]", parts.collect::<Vec<_>>().join(","))
        }
        _ => {
            let options = FormatOptions::default();
            let formatter = ArrayFormatter::try_new(array, &options).unwrap();
            formatter.value(row).to_string()
        }
    }
}

/// The values of a Parquet file's `id` column, in order.
pub(crate) fn ids_of_file(path: &Path) -> Vec<i64> {
    let file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let batches = reader.build().unwrap();
    batches
        .flat_map(|batch| {
            let ids: Int64Array = batch.unwrap()["id"].as_primitive().clone();
            ids.values().to_vec()
        })
        .collect()
}
