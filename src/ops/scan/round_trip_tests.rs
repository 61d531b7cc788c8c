//! Tables that we write, of every type and partition type, with vectors of every kind, are read as they were written.
//!
//! With `DELTAFS_TABLES=DIR` the tables stay in DIR, where `scripts/interop types` has other systems read them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType as Arrow, Field, Fields};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use super::super::{Append, Optimize, Replaces, append, checkpoint, delete, optimize};
use super::testing::{differ, open, read, rows_of};
use crate::deletion_vector::{DeletionVectorDescriptor, RowSet, inline_vector};
use crate::env::Env;
use crate::log::Action;
use crate::ops::{Delete, Options};
use crate::table::{Operation, Reads, Staged, Table};

const MAPPING_MODE: &str = "delta.columnMapping.mode";

/// What a table needs of the protocol, and its properties.
struct Shape {
    name: &'static str,
    features: &'static [&'static str],
    properties: &'static [(&'static str, &'static str)],
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "plain",
        features: &["deletionVectors", "timestampNtz"],
        properties: &[("delta.enableDeletionVectors", "true")],
    },
    Shape {
        name: "v2",
        features: &["deletionVectors", "timestampNtz", "v2Checkpoint"],
        properties: &[
            ("delta.enableDeletionVectors", "true"),
            ("delta.checkpointPolicy", "v2"),
        ],
    },
    Shape {
        name: "name",
        features: &["columnMapping", "deletionVectors", "timestampNtz"],
        properties: &[
            ("delta.enableDeletionVectors", "true"),
            (MAPPING_MODE, "name"),
        ],
    },
    Shape {
        name: "id",
        features: &[
            "columnMapping",
            "deletionVectors",
            "timestampNtz",
            "v2Checkpoint",
        ],
        properties: &[
            ("delta.enableDeletionVectors", "true"),
            ("delta.checkpointPolicy", "v2"),
            (MAPPING_MODE, "id"),
        ],
    },
];

/// A column: its name, its Delta type as JSON, its values in the type's Arrow form.
type Column = (&'static str, Value, ArrayRef);

/// Where the tables are written.
enum Place {
    Kept(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Place {
    fn new() -> Self {
        match std::env::var_os("DELTAFS_TABLES") {
            Some(folder) => Place::Kept(folder.into()),
            None => Place::Temporary(tempfile::tempdir().unwrap()),
        }
    }

    fn table(&self, name: &str) -> PathBuf {
        match self {
            Place::Kept(folder) => folder.join(name),
            Place::Temporary(guard) => guard.path().join(name),
        }
    }
}

/// A new table without rows: its version 0 is the only thing that is written by hand.
fn create(path: &Path, shape: &Shape, columns: &[Column], partition_columns: &[&str]) -> Table {
    fs::create_dir_all(path.join("_delta_log")).unwrap();
    let fields = columns.iter().map(|(name, data_type, _)| {
        json!({"name": name, "type": data_type, "nullable": true, "metadata": {}})
    });
    let mut schema = json!({"type": "struct", "fields": fields.collect::<Vec<_>>()});
    let mut properties: BTreeMap<&str, String> = BTreeMap::new();
    properties.extend(shape.properties.iter().map(|(k, v)| (*k, (*v).to_owned())));
    if properties.contains_key(MAPPING_MODE) {
        let mut ids = 0;
        map_columns(&mut schema, &mut ids);
        properties.insert("delta.columnMapping.maxColumnId", ids.to_string());
    }
    let schema = schema.to_string();
    let actions = [
        json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": shape.features, "writerFeatures": shape.features}}),
        json!({"metaData": {"id": Env::real().uuid().to_string(), "format": {"provider": "parquet", "options": {}},
            "schemaString": schema, "partitionColumns": partition_columns, "configuration": properties,
            "createdTime": 1_700_000_000_000_i64}}),
    ];
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    let commit = path.join("_delta_log/00000000000000000000.json");
    fs::write(commit, lines.join("\n")).unwrap();
    open(path, None).unwrap()
}

/// Gives every field of the type an id and a physical name that tells nothing.
fn map_columns(data_type: &mut Value, ids: &mut u32) {
    let fields = data_type.get_mut("fields").and_then(Value::as_array_mut);
    for field in fields.into_iter().flatten() {
        *ids += 1;
        field["metadata"]["delta.columnMapping.id"] = json!(ids);
        field["metadata"]["delta.columnMapping.physicalName"] = json!(format!("col-{ids:04}"));
        map_columns(&mut field["type"], ids);
    }
    for inner in ["elementType", "keyType", "valueType"] {
        if let Some(inner) = data_type.get_mut(inner) {
            map_columns(inner, ids);
        }
    }
}

fn batch(columns: &[Column]) -> RecordBatch {
    let columns = columns.iter();
    RecordBatch::try_from_iter_with_nullable(columns.map(|(n, _, a)| (*n, a.clone(), true)))
        .unwrap()
}

fn scratch() -> std::io::Result<File> {
    tempfile::tempfile()
}

/// Appends rows by the way of every dropped file.
fn write(table: &Table, rows: &RecordBatch) {
    let input = tempfile::tempfile().unwrap();
    let copy = input.try_clone().unwrap();
    let mut writer = ArrowWriter::try_new(copy, rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
    // Partitioned files can't be linked from nowhere: each lies in the table's directory first.
    let directory = table.dir().path().to_owned();
    let beside = move || tempfile::tempfile_in(&directory);
    let stored = format!("{}.parquet", table.env().uuid());
    let request = Append {
        input: &input,
        name: "rows.parquet",
        fixed: &BTreeMap::new(),
        stored: &stored,
        replaces: Replaces::Nothing,
        scratch: &beside,
    };
    append(table, &request).unwrap();
}

#[track_caller]
fn assert_rows(path: &Path, mut expected: Vec<String>) {
    expected.sort();
    let (_, rows) = read(path, None).unwrap();
    assert!(
        rows == expected,
        "{}: {}",
        path.display(),
        differ(&rows, &expected)
    );
}

// ---- values

fn list(element: &Value) -> Value {
    json!({"type": "array", "elementType": element, "containsNull": true})
}

fn map(key: &Value, value: &Value) -> Value {
    json!({"type": "map", "keyType": key, "valueType": value, "valueContainsNull": true})
}

fn structure(members: &[(&str, Value)]) -> Value {
    let field = |(name, data_type): &(&str, Value)| json!({"name": name, "type": data_type, "nullable": true, "metadata": {}});
    json!({"type": "struct", "fields": members.iter().map(field).collect::<Vec<_>>()})
}

fn decimals(precision: u8, scale: i8, values: Vec<Option<i128>>) -> ArrayRef {
    let array = Decimal128Array::from(values);
    Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
}

/// Lists of the array's values: two, none, NULL, and the rest.
fn lists(values: ArrayRef) -> ArrayRef {
    let rest = values.len() - 2;
    let field = Field::new("element", values.data_type().clone(), true);
    let offsets = OffsetBuffer::from_lengths([2, 0, 0, rest]);
    let nulls = NullBuffer::from(vec![true, true, false, true]);
    Arc::new(ListArray::new(
        Arc::new(field),
        offsets,
        values,
        Some(nulls),
    ))
}

/// Maps of the arrays' values, as [`lists`].
fn maps(keys: ArrayRef, values: ArrayRef) -> ArrayRef {
    let rest = keys.len() - 2;
    let fields = Fields::from(vec![
        Field::new("key", keys.data_type().clone(), false),
        Field::new("value", values.data_type().clone(), true),
    ]);
    let entries = StructArray::new(fields.clone(), vec![keys, values], None);
    let field = Field::new("key_value", Arrow::Struct(fields), false);
    let offsets = OffsetBuffer::from_lengths([2, 0, 0, rest]);
    let nulls = NullBuffer::from(vec![true, true, false, true]);
    Arc::new(MapArray::new(
        Arc::new(field),
        offsets,
        entries,
        Some(nulls),
        false,
    ))
}

fn structs(members: &[(&str, ArrayRef)], nulls: Vec<bool>) -> ArrayRef {
    let fields = members
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
    let columns = members.iter().map(|(_, array)| array.clone()).collect();
    Arc::new(StructArray::new(
        fields.collect(),
        columns,
        Some(NullBuffer::from(nulls)),
    ))
}

/// The last microsecond of the year 9999, the first of the year 1, and one before 1970 (BUGS.md D60).
const INSTANTS: [Option<i64>; 4] = [
    Some(253_402_300_799_999_999),
    Some(-62_135_596_800_000_000),
    None,
    Some(-2_342_342_342),
];

/// Four rows of every type.
fn every_type() -> Vec<Column> {
    let strings = || -> ArrayRef {
        Arc::new(StringArray::from(vec![
            Some(""),
            Some("é\u{1F980}\u{FFFD}\n\"\\,'|"),
            None,
            Some(" \u{0}\u{7f}\u{10FFFF} "),
        ]))
    };
    let longs = || -> ArrayRef {
        Arc::new(Int64Array::from(vec![
            Some(i64::MIN),
            Some(i64::MAX),
            None,
            Some(-1),
        ]))
    };
    let zoned = || -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(INSTANTS.to_vec()).with_timezone("UTC"))
    };
    let keys = || -> ArrayRef { Arc::new(StringArray::from(vec!["a", "", "é", "z"])) };
    let zip = structure(&[("zip", json!("string")), ("at", json!("timestamp"))]);
    let zips = || {
        let members = [("zip", strings()), ("at", zoned())];
        structs(&members, vec![true, true, false, true])
    };
    let wide = 10_i128.pow(38) - 1;
    vec![
        (
            "id",
            json!("long"),
            Arc::new(Int64Array::from(vec![0, 1, 2, 3])),
        ),
        ("long", json!("long"), longs()),
        (
            "int",
            json!("integer"),
            Arc::new(Int32Array::from(vec![
                Some(i32::MIN),
                Some(i32::MAX),
                None,
                Some(0),
            ])),
        ),
        (
            "short",
            json!("short"),
            Arc::new(Int16Array::from(vec![
                Some(i16::MIN),
                Some(i16::MAX),
                None,
                Some(0),
            ])),
        ),
        (
            "byte",
            json!("byte"),
            Arc::new(Int8Array::from(vec![
                Some(i8::MIN),
                Some(i8::MAX),
                None,
                Some(0),
            ])),
        ),
        (
            "float",
            json!("float"),
            Arc::new(Float32Array::from(vec![
                Some(f32::NAN),
                Some(-0.0),
                None,
                Some(f32::MIN_POSITIVE),
            ])),
        ),
        (
            "double",
            json!("double"),
            Arc::new(Float64Array::from(vec![
                Some(f64::NEG_INFINITY),
                Some(0.1),
                None,
                Some(f64::MAX),
            ])),
        ),
        (
            "bool",
            json!("boolean"),
            Arc::new(BooleanArray::from(vec![
                Some(true),
                Some(false),
                None,
                Some(true),
            ])),
        ),
        ("string", json!("string"), strings()),
        (
            "binary",
            json!("binary"),
            Arc::new(BinaryArray::from_opt_vec(vec![
                Some(b""),
                Some(b"\x00\xff\x80"),
                None,
                Some(b"text"),
            ])),
        ),
        (
            "date",
            json!("date"),
            Arc::new(Date32Array::from(vec![
                Some(2_932_896),
                Some(-719_162),
                None,
                Some(-1),
            ])),
        ),
        ("at", json!("timestamp"), zoned()),
        (
            "ntz",
            json!("timestamp_ntz"),
            Arc::new(TimestampMicrosecondArray::from(INSTANTS.to_vec())),
        ),
        (
            "d5_2",
            json!("decimal(5,2)"),
            decimals(5, 2, vec![Some(99_999), Some(-150), None, Some(0)]),
        ),
        (
            "d9_0",
            json!("decimal(9,0)"),
            decimals(9, 0, vec![Some(999_999_999), Some(-1), None, Some(0)]),
        ),
        (
            "d10_2",
            json!("decimal(10,2)"),
            decimals(10, 2, vec![Some(9_999_999_999), Some(-10), None, Some(1)]),
        ),
        (
            "d18_18",
            json!("decimal(18,18)"),
            decimals(
                18,
                18,
                vec![Some(10_i128.pow(18) - 1), Some(-1), None, Some(0)],
            ),
        ),
        (
            "d19_4",
            json!("decimal(19,4)"),
            decimals(
                19,
                4,
                vec![Some(10_i128.pow(19) - 1), Some(-1), None, Some(0)],
            ),
        ),
        (
            "d38_0",
            json!("decimal(38,0)"),
            decimals(38, 0, vec![Some(wide), Some(-wide), None, Some(0)]),
        ),
        (
            "d38_38",
            json!("decimal(38,38)"),
            decimals(38, 38, vec![Some(wide), Some(-wide), None, Some(1)]),
        ),
        ("struct", zip.clone(), zips()),
        ("list", list(&json!("long")), lists(longs())),
        (
            "lists",
            list(&list(&json!("string"))),
            lists(lists(strings())),
        ),
        ("structs", list(&zip), lists(zips())),
        (
            "map",
            map(&json!("string"), &json!("decimal(38,0)")),
            maps(
                keys(),
                decimals(38, 0, vec![Some(wide), None, Some(0), Some(-1)]),
            ),
        ),
        (
            "maps",
            map(&json!("date"), &zip),
            maps(Arc::new(Date32Array::from(vec![0, -1, 2, 3])), zips()),
        ),
        (
            "deep",
            structure(&[("m", map(&json!("string"), &list(&zip)))]),
            structs(
                &[("m", maps(keys(), lists(zips())))],
                vec![true, true, true, false],
            ),
        ),
    ]
}

/// Types that can partition, their values, and the value that stands for NULL among them.
fn partition_types() -> Vec<Column> {
    vec![
        (
            "string",
            json!("string"),
            Arc::new(StringArray::from(vec![
                None,
                Some(""),
                Some("a/b"),
                Some("50%"),
                Some("x=y z+"),
                Some("é\u{1F980}"),
                Some("__HIVE_DEFAULT_PARTITION_"),
                Some(".."),
                Some("a:b'c\"d#e?f[g]"),
                Some("tab\tand\nline"),
                Some(" "),
            ])),
        ),
        (
            "long",
            json!("long"),
            Arc::new(Int64Array::from(vec![
                None,
                Some(i64::MIN),
                Some(i64::MAX),
                Some(0),
            ])),
        ),
        (
            "int",
            json!("integer"),
            Arc::new(Int32Array::from(vec![None, Some(i32::MIN), Some(i32::MAX)])),
        ),
        (
            "short",
            json!("short"),
            Arc::new(Int16Array::from(vec![None, Some(i16::MIN), Some(i16::MAX)])),
        ),
        (
            "byte",
            json!("byte"),
            Arc::new(Int8Array::from(vec![None, Some(i8::MIN), Some(i8::MAX)])),
        ),
        (
            "float",
            json!("float"),
            Arc::new(Float32Array::from(vec![
                None,
                Some(0.1),
                Some(-1.5e-30),
                Some(f32::MAX),
                Some(1e10),
            ])),
        ),
        (
            "double",
            json!("double"),
            Arc::new(Float64Array::from(vec![
                None,
                Some(0.1),
                Some(-1.5e-300),
                Some(f64::MAX),
                Some(1e10),
                Some(1.0),
            ])),
        ),
        (
            "not_finite",
            json!("double"),
            Arc::new(Float64Array::from(vec![
                Some(f64::NAN),
                Some(f64::INFINITY),
                Some(f64::NEG_INFINITY),
            ])),
        ),
        (
            "bool",
            json!("boolean"),
            Arc::new(BooleanArray::from(vec![None, Some(true), Some(false)])),
        ),
        (
            "binary",
            json!("binary"),
            Arc::new(BinaryArray::from_opt_vec(vec![
                None,
                Some(b"text"),
                Some("é/".as_bytes()),
            ])),
        ),
        (
            "date",
            json!("date"),
            Arc::new(Date32Array::from(vec![
                None,
                Some(0),
                Some(-1),
                Some(2_932_896),
                Some(-719_162),
            ])),
        ),
        (
            "at",
            json!("timestamp"),
            Arc::new(TimestampMicrosecondArray::from(INSTANTS.to_vec()).with_timezone("UTC")),
        ),
        (
            "ntz",
            json!("timestamp_ntz"),
            Arc::new(TimestampMicrosecondArray::from(INSTANTS.to_vec())),
        ),
        (
            "d10_2",
            json!("decimal(10,2)"),
            decimals(
                10,
                2,
                vec![None, Some(150), Some(0), Some(-10), Some(9_999_999_999)],
            ),
        ),
        (
            "d38_18",
            json!("decimal(38,18)"),
            decimals(38, 18, vec![None, Some(10_i128.pow(38) - 1), Some(-1)]),
        ),
    ]
}

// ---- tests

#[test]
fn every_type_is_read_as_it_was_written() {
    let place = Place::new();
    for shape in SHAPES {
        let path = place.table(&format!("types-{}", shape.name));
        let columns = every_type();
        let rows = batch(&columns);
        let table = create(&path, shape, &columns, &[]);
        assert_rows(&path, Vec::new());
        write(&table, &rows);
        write(&table, &rows);
        let once = rows_of(&rows);
        assert_rows(&path, [once.clone(), once.clone()].concat());
        remove_rows(&table, "id = 1 OR long IS NULL");
        let live = [&once[0], &once[3]].map(String::clone);
        let live = [live.clone(), live].concat();
        assert_rows(&path, live.clone());
        checkpoint(&table, &table.refresh().unwrap()).unwrap();
        assert_rows(&path, live);
    }
}

#[test]
fn every_partition_type_is_read_as_it_was_written() {
    let place = Place::new();
    for shape in SHAPES {
        for (name, data_type, values) in partition_types() {
            let path = place.table(&format!("partition-{name}-{}", shape.name));
            let ids: Vec<i64> = (0..values.len() as i64).collect();
            let columns: Vec<Column> = vec![
                ("p", data_type, values),
                ("id", json!("long"), Arc::new(Int64Array::from(ids))),
            ];
            let rows = batch(&columns);
            let table = create(&path, shape, &columns, &["p"]);
            write(&table, &rows);
            // The protocol has no empty partition value: it is a NULL.
            let text = rows_of(&rows).into_iter();
            let once: Vec<String> = text.map(|row| row.replace("\"\"|", "NULL|")).collect();
            assert_rows(&path, once.clone());
            remove_rows(&table, "id = 0");
            write(&table, &rows);
            let live = [&once[1..], &once[..]].concat();
            assert_rows(&path, live.clone());
            checkpoint(&table, &table.refresh().unwrap()).unwrap();
            assert_rows(&path, live);
        }
    }
}

#[test]
fn files_that_are_put_together_hold_what_they_held() {
    let place = Place::new();
    for shape in SHAPES {
        let path = place.table(&format!("optimized-{}", shape.name));
        let columns = every_type();
        let rows = batch(&columns);
        let table = create(&path, shape, &columns, &[]);
        for _ in 0..3 {
            write(&table, &rows);
        }
        remove_rows(&table, "id = 1 OR (id = 0 AND long IS NOT NULL)");
        let text = rows_of(&rows);
        let live = [&text[2], &text[3]].map(String::clone);
        let live = vec![live; 3].concat();
        assert_rows(&path, live.clone());
        put_together(&table, 1);
        assert_rows(&path, live.clone());
        checkpoint(&table, &table.refresh().unwrap()).unwrap();
        assert_rows(&path, live);
        for (name, data_type, values) in partition_types() {
            let path = place.table(&format!("optimized-{name}-{}", shape.name));
            let ids: Vec<i64> = (0..values.len() as i64).collect();
            let columns: Vec<Column> = vec![
                ("p", data_type, values),
                ("id", json!("long"), Arc::new(Int64Array::from(ids))),
            ];
            let rows = batch(&columns);
            let table = create(&path, shape, &columns, &["p"]);
            write(&table, &rows);
            write(&table, &rows);
            let text = rows_of(&rows).into_iter();
            let once: Vec<String> = text.map(|row| row.replace("\"\"|", "NULL|")).collect();
            let mut values: Vec<&str> = once
                .iter()
                .map(|row| row.split_once('|').unwrap().0)
                .collect();
            values.sort_unstable();
            values.dedup();
            put_together(&table, values.len());
            assert_rows(&path, [once.clone(), once.clone()].concat());
        }
    }
}

/// Leaves so many files.
#[track_caller]
fn put_together(table: &Table, files: usize) {
    let options = Options::default();
    let request = Optimize {
        predicate: None,
        options: &options,
    };
    let done = optimize(table, &request, None, &scratch).unwrap();
    assert!(done.version.is_some(), "{done:?}");
    assert_eq!(table.refresh().unwrap().live_files().count(), files);
}

fn remove_rows(table: &Table, predicate: &str) {
    let options = Options::default();
    let request = Delete {
        predicate,
        options: &options,
    };
    delete(table, &request, None, &scratch).unwrap();
}

/// A table of ids 0 to 9 in a file each for vectors of all storage types.
#[test]
fn every_kind_of_vector_hides_its_rows() {
    let place = Place::new();
    let path = place.table("vectors");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
    let columns: Vec<Column> = vec![("id", json!("long"), ids)];
    let table = create(&path, &SHAPES[0], &columns, &[]);
    for _ in 0..4 {
        write(&table, &batch(&columns));
    }
    let sets: Vec<RowSet> = [vec![0, 9], vec![1, 2, 3], (0..9).collect()]
        .into_iter()
        .map(|rows: Vec<u64>| rows.into_iter().collect())
        .collect();
    // Two vectors in one file: one as it is, one by its absolute path. The third is inline.
    let (stored, mut vectors) = table.write_vectors(&[&sets[0], &sets[1]]).unwrap();
    let absolute = format!(
        "file://{}",
        fs::canonicalize(path.join(stored)).unwrap().display()
    );
    vectors[1] = DeletionVectorDescriptor {
        storage_type: "p".to_owned(),
        path_or_inline_dv: absolute,
        ..vectors[1].clone()
    };
    vectors.push(inline_vector(&sets[2]).unwrap());
    let base = table.refresh().unwrap();
    let files = base.live_files();
    let mut actions = Vec::new();
    for (file, vector) in files.zip(vectors) {
        actions.push(Action::Remove(file.add.to_remove(table.env().now(), true)));
        let mut add = file.add.clone();
        add.deletion_vector = Some(vector);
        add.stats = Some(r#"{"numRecords":10,"tightBounds":false}"#.to_owned());
        actions.push(Action::Add(add));
    }
    let mut staged = Staged::with(actions, Operation::new("DELETE"), Reads::Restage);
    let _ = table.commit(&base, &mut staged).unwrap();
    let live = sets
        .iter()
        .flat_map(|dead| (0..10).filter(|id| !dead.contains(*id)));
    let live = live.chain(0..10).map(|id: u64| id.to_string());
    assert_rows(&path, live.collect());
}
