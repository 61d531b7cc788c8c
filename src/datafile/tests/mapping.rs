//! Files of mapped tables, hidden columns, partition columns in files.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType as Arrow, Field};
use parquet::schema::types::Type;

use crate::datafile::testing::{batch, parquet, prepared, table, target};
use crate::datafile::*;
use crate::schema::{MAPPING_ID, MAPPING_PHYSICAL_NAME, StructType, mapping};

use super::*;

/// `id`, and structs in an array and in a map, mapped under other names than their own.
fn mapped_table() -> StructType {
    let inner =
        r#"{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}"#;
    let list = format!(r#"{{"type":"array","elementType":{inner},"containsNull":true}}"#);
    let map = format!(
        r#"{{"type":"map","keyType":"string","valueType":{inner},"valueContainsNull":true}}"#
    );
    let mut schema = table(&[
        ("id", "long"),
        ("p", "string"),
        ("list", &list),
        ("map", &map),
    ]);
    mapping::assign(&mut schema, 0, &mut String::new);
    rename(&mut schema, &mut 0);
    schema
}

/// Physical names `c1`, `c2`, …
fn rename(schema: &mut StructType, count: &mut u32) {
    for field in &mut schema.fields {
        *count += 1;
        field
            .metadata
            .insert(MAPPING_PHYSICAL_NAME.to_owned(), format!("c{count}").into());
        let inner = match &mut field.data_type {
            crate::schema::DataType::Array(array) => &mut array.element_type,
            crate::schema::DataType::Map(map) => &mut map.value_type,
            other => other,
        };
        if let crate::schema::DataType::Struct(inner) = inner {
            rename(inner, count);
        }
    }
}

fn logical_rows() -> RecordBatch {
    let x = Arc::new(Field::new("x", Arrow::Int64, true));
    let element = StructArray::from(vec![(Arc::clone(&x), longs(&[Some(1), None, Some(3)]))]);
    let values = StructArray::from(vec![(x, longs(&[Some(7), Some(8)]))]);
    let item = Arc::new(Field::new("element", element.data_type().clone(), true));
    let offsets = arrow::buffer::OffsetBuffer::new(vec![0, 2, 3].into());
    let list = ListArray::new(item, offsets, Arc::new(element), None);
    let entries = StructArray::from(vec![
        (
            Arc::new(Field::new("key", Arrow::Utf8, false)),
            texts(&[Some("a"), Some("b")]),
        ),
        (
            Arc::new(Field::new("value", values.data_type().clone(), true)),
            Arc::new(values) as ArrayRef,
        ),
    ]);
    let entries_field = Arc::new(Field::new("key_value", entries.data_type().clone(), false));
    let offsets = arrow::buffer::OffsetBuffer::new(vec![0, 1, 2].into());
    let map = MapArray::new(entries_field, offsets, entries, None, false);
    batch(vec![
        ("map", Arc::new(map) as ArrayRef),
        ("id", longs(&[Some(1), Some(2)])),
        ("list", Arc::new(list) as ArrayRef),
    ])
}

fn mapped_target(mode: MappingMode) -> Target {
    let mut target = target(mapped_table(), &["p"]);
    target.mapping = mode;
    target.fixed = BTreeMap::from([("p".to_owned(), Some("v".to_owned()))]);
    target
}

/// Names and ids of all fields with an id, in the order of the file.
fn fields(file: &File) -> Vec<(String, i32)> {
    fn visit(ty: &Type, found: &mut Vec<(String, i32)>) {
        if ty.get_basic_info().has_id() {
            found.push((ty.name().to_owned(), ty.get_basic_info().id()));
        }
        if ty.is_group() {
            ty.get_fields().iter().for_each(|f| visit(f, found));
        }
    }
    let mut found = Vec::new();
    visit(
        inspect(file).unwrap().metadata.file_metadata().schema(),
        &mut found,
    );
    found
}

fn rows(file: &File, schema: &StructType, mode: MappingMode, columns: &[&str]) -> RecordBatch {
    let columns: Vec<String> = columns.iter().map(|c| (*c).to_owned()).collect();
    let partition = BTreeMap::from([("c2".to_owned(), Some("v".to_owned()))]);
    let copy = file.try_clone().unwrap();
    let mut reader = Reader::open(copy, schema, &columns, &partition, mode, None, 100).unwrap();
    reader.next().unwrap().unwrap().0
}

fn new_file(prepared: &Prepared) -> &File {
    match prepared.files.as_slice() {
        [one] => match &one.bytes {
            Bytes::New(file) => file,
            Bytes::Original => panic!("the file was taken over as it is"),
        },
        several => panic!("{} files", several.len()),
    }
}

/// D58, D80, D81: physical names and ids at every depth, in both modes, and everything keyed by them.
#[test]
fn a_dropped_file_becomes_one_of_physical_names_and_ids() {
    for mode in [MappingMode::Name, MappingMode::Id] {
        let target = mapped_target(mode);
        let input = parquet(&logical_rows());
        let made = prepared(&input, &target).unwrap();
        let file = new_file(&made);
        let names = ["c1", "c3", "c4", "c5", "c6"].map(str::to_owned);
        let wanted: Vec<_> = names.into_iter().zip([1, 3, 4, 5, 6]).collect();
        assert_eq!(fields(file), wanted);
        let one = made.files.first().unwrap();
        let values = BTreeMap::from([("c2".to_owned(), Some("v".to_owned()))]);
        assert_eq!(one.partition_values, values);
        let stats: serde_json::Value = serde_json::from_str(&one.stats).unwrap();
        assert_eq!(stats["minValues"], serde_json::json!({"c1": 1}));
        let back = rows(file, &target.schema, mode, &["map", "id", "list", "p"]);
        assert_eq!(back.column(0).to_data(), relaxed(&logical_rows(), 0));
        assert_eq!(back.column(1), logical_rows().column(1));
        assert_eq!(back.column(2).to_data(), relaxed(&logical_rows(), 2));
        assert_eq!(back.column(3).as_string::<i32>().value(0), "v");
        // Written once, it is a file of this table: dropped again it is taken over as it is.
        let again = prepared(file, &target).unwrap();
        assert!(is_original(&again), "{mode:?}");
        assert_eq!(again.files[0].stats, one.stats);
        assert_eq!(again.files[0].partition_values, values);
    }
}

fn relaxed(batch: &RecordBatch, column: usize) -> arrow::array::ArrayData {
    batch.column(column).to_data()
}

/// What looks like a file of the table and is none is not taken for one.
#[test]
fn names_or_ids_alone_make_no_file_of_the_table() {
    let target = mapped_target(MappingMode::Name);
    // Physical names without ids: columns that the table does not have.
    let bare = parquet(&batch(vec![("c1", longs(&[Some(1)]))]));
    assert!(matches!(
        prepared(&bare, &target),
        Err(DataFileError::ExtraColumn { .. })
    ));
    // Ids of another table: its own names count.
    let mut schema = table(&[("id", "long"), ("b", "long")]);
    mapping::assign(&mut schema, 0, &mut String::new);
    let mut swapped = self::target(schema.clone(), &[]);
    swapped.mapping = MappingMode::Name;
    let file = parquet(&batch(vec![
        ("b", longs(&[Some(1)])),
        ("id", longs(&[Some(2)])),
    ]));
    let made = prepared(&file, &swapped).unwrap();
    assert_eq!(
        fields(new_file(&made)),
        [("id".to_owned(), 1), ("b".to_owned(), 2)]
    );
    for (field, id) in schema.fields.iter_mut().zip([2, 1]) {
        field.metadata.insert(MAPPING_ID.to_owned(), id.into());
    }
    let mut other = swapped.clone();
    other.schema = schema;
    let again = prepared(new_file(&made), &other).unwrap();
    assert_eq!(
        fields(new_file(&again)),
        [("id".to_owned(), 2), ("b".to_owned(), 1)]
    );
    let read = rows(
        new_file(&again),
        &other.schema,
        MappingMode::Name,
        &["id", "b"],
    );
    assert_eq!(read.column(0), &longs(&[Some(2)]), "by name");
}

/// D79: what a column is called now says nothing of the file.
#[test]
fn a_renamed_column_keeps_its_values() {
    let target = mapped_target(MappingMode::Name);
    let made = prepared(&parquet(&logical_rows()), &target).unwrap();
    let mut renamed = target.schema.clone();
    renamed.fields[0].name = "list".to_owned();
    renamed.fields[2].name = "id".to_owned();
    for mode in [MappingMode::Name, MappingMode::Id] {
        let back = rows(new_file(&made), &renamed, mode, &["list"]);
        assert_eq!(back.column(0), logical_rows().column(1), "{mode:?}");
    }
}

#[test]
fn not_null_and_checks_hold_for_a_file_that_is_taken_over() {
    let mut schema = table(&[("id", "long")]);
    mapping::assign(&mut schema, 0, &mut String::new);
    schema.fields[0]
        .metadata
        .insert(MAPPING_PHYSICAL_NAME.to_owned(), "c1".into());
    let mut target = target(schema, &[]);
    target.mapping = MappingMode::Id;
    let nulls = parquet(&batch(vec![("id", longs(&[Some(1), None]))]));
    let made = prepared(&nulls, &target).unwrap();
    let file = new_file(&made).try_clone().unwrap();
    target.schema.fields[0].nullable = false;
    assert!(matches!(
        prepared(&file, &target),
        Err(DataFileError::Nulls { rows: 1, .. })
    ));
}

/// Rows that come in are new rows, whatever they were in the file that they come from.
#[test]
fn hidden_columns_are_not_taken_in() {
    let mut target = target(table(&[("id", "long")]), &[]);
    target.hidden = vec!["_row-id".to_owned()];
    let file = parquet(&batch(vec![
        ("id", longs(&[Some(1)])),
        ("_row-id", longs(&[Some(99)])),
    ]));
    let made = prepared(&file, &target).unwrap();
    let inside = inspect(new_file(&made)).unwrap();
    assert_eq!(inside.schema.fields().len(), 1);
    // In any other table it is a column too many.
    target.hidden.clear();
    assert!(matches!(
        prepared(&file, &target),
        Err(DataFileError::ExtraColumn { .. })
    ));
}

#[test]
fn hidden_columns_are_written_and_read_in_every_mode() {
    let mut schema = table(&[("id", "long"), ("none", "void")]);
    mapping::assign(&mut schema, 0, &mut String::new);
    for mode in [MappingMode::None, MappingMode::Name, MappingMode::Id] {
        let columns = Columns {
            schema: &schema,
            partition_columns: &[],
            hidden: &["_row-id"],
        };
        let out = tempfile::tempfile().unwrap();
        let mut writer = Writer::open(out, &columns, &StatsConfig::default(), mode).unwrap();
        let nulls: ArrayRef = Arc::new(NullArray::new(2));
        let rows = batch(vec![
            ("id", longs(&[Some(1), Some(2)])),
            ("none", nulls),
            ("_row-id", longs(&[Some(7), None])),
        ]);
        writer.write(&rows).unwrap();
        let written = writer.finish().unwrap();
        assert!(!written.stats.contains("_row-id"), "{}", written.stats);
        let mut wide = schema.clone();
        wide.fields
            .push(table(&[("_row-id", "long")]).fields.remove(0));
        let back = self::rows(&written.file, &wide, mode, &["_row-id", "id"]);
        assert_eq!(back.column(0), &longs(&[Some(7), None]), "{mode:?}");
        assert_eq!(back.column(1), &longs(&[Some(1), Some(2)]), "{mode:?}");
    }
}

#[test]
fn partition_columns_are_in_the_file_where_the_table_wants_them() {
    let mut target = target(table(&[("id", "long"), ("p", "string")]), &["p"]);
    target.materialized = true;
    target.fixed = BTreeMap::from([("p".to_owned(), Some("v".to_owned()))]);
    for columns in [
        vec![("id", longs(&[Some(1)]))],
        vec![("p", texts(&[Some("v")])), ("id", longs(&[Some(1)]))],
    ] {
        let made = prepared(&parquet(&batch(columns)), &target).unwrap();
        let inside = inspect(new_file(&made)).unwrap();
        let names: Vec<_> = inside
            .schema
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        assert_eq!(names, ["id", "p"]);
        let stats: serde_json::Value = serde_json::from_str(&made.files[0].stats).unwrap();
        assert_eq!(
            stats["nullCount"],
            serde_json::json!({"id": 0}),
            "none for p"
        );
        let batches = rows(new_file(&made), &target.schema, MappingMode::None, &["p"]);
        assert_eq!(batches.column(0).as_string::<i32>().value(0), "v");
    }
    // The file must not contradict the log.
    let wrong = parquet(&batch(vec![
        ("id", longs(&[Some(1)])),
        ("p", texts(&[Some("w")])),
    ]));
    assert!(matches!(
        prepared(&wrong, &target),
        Err(DataFileError::PartitionDiffers { .. })
    ));
}
