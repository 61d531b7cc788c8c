//! Stored files as rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType as Arrow, Field};
use parquet::file::properties::WriterProperties;
use roaring::RoaringTreemap;

use crate::datafile::testing::{batch, parquet, parquet_with, prepared, table, target};
use crate::datafile::*;
use crate::error::{Failure, Kind};
use crate::schema::StructType;

use super::*;

#[test]
fn dead_rows_are_skipped_and_positions_stay_physical() {
    let file = parquet_with(
        &[mixed_batch(300), mixed_batch(200)],
        WriterProperties::default(),
    );
    let schema = mixed_table();
    let dead: RoaringTreemap = (0..500_u64)
        .filter(|i| i % 3 == 0 || (290..310).contains(i))
        .collect();
    let none = BTreeMap::new();
    for columns in [
        vec![],
        vec!["id".to_owned()],
        vec!["list".to_owned(), "id".to_owned()],
    ] {
        let reader = Reader::open(
            file.try_clone().unwrap(),
            &schema,
            &columns,
            &none,
            MappingMode::None,
            Some(&dead),
            64,
        )
        .unwrap();
        assert_eq!(reader.physical_rows(), 500);
        let mut positions = Vec::new();
        for item in reader {
            let (batch, at) = item.unwrap();
            let at: Vec<u64> = at.iter().collect();
            assert_eq!(batch.num_rows(), at.len());
            if let Some(ids) = batch.column_by_name("id") {
                let ids = ids.as_primitive::<arrow::datatypes::Int64Type>();
                for (id, at) in ids.values().iter().zip(&at) {
                    assert_eq!(*id as u64, if *at < 300 { *at } else { *at - 300 });
                }
            }
            positions.extend(at);
        }
        let live: Vec<u64> = (0..500).filter(|i| !dead.contains(*i)).collect();
        assert_eq!(positions, live);
    }
    let outside = RoaringTreemap::from_iter([500]);
    let error = Reader::open(
        file,
        &schema,
        &[],
        &none,
        MappingMode::None,
        Some(&outside),
        64,
    );
    assert!(matches!(
        error,
        Err(DataFileError::DeadRow {
            row: 500,
            rows: 500
        })
    ));
}

#[test]
fn mapped_columns_are_written_and_read_under_physical_names() {
    let json = r#"{"type":"struct","fields":[
        {"name":"id","type":"long","nullable":false,"metadata":
            {"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"c-1"}},
        {"name":"p","type":{"type":"struct","fields":[
            {"name":"x","type":"double","nullable":true,"metadata":
                {"delta.columnMapping.id":3,"delta.columnMapping.physicalName":"c-3"}}]},
            "nullable":true,"metadata":
            {"delta.columnMapping.id":2,"delta.columnMapping.physicalName":"c-2"}}]}"#;
    let schema = StructType::from_json(json).unwrap();
    let x: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.5), None]));
    let p = StructArray::from(vec![(Arc::new(Field::new("x", Arrow::Float64, true)), x)]);
    let file = parquet(&batch(vec![
        ("id", longs(&[Some(1), Some(2)])),
        ("p", Arc::new(p)),
    ]));
    for mapping in [MappingMode::Name, MappingMode::Id] {
        let mut target = target(schema.clone(), &[]);
        target.mapping = mapping;
        let made = prepared(&file, &target).unwrap();
        assert!(
            made.files[0]
                .stats
                .contains("\"minValues\":{\"c-1\":1,\"c-2\":{\"c-3\":0.5}}")
        );
        let stored = inspect(&new_file(&made.files[0])).unwrap();
        assert_eq!(stored.schema.field(0).name(), "c-1");
        let mut renamed = schema.clone();
        renamed.fields[0].name = "key".to_owned();
        let columns = ["p".to_owned(), "key".to_owned()];
        let none = BTreeMap::new();
        let mut reader = Reader::open(
            new_file(&made.files[0]),
            &renamed,
            &columns,
            &none,
            mapping,
            None,
            10,
        )
        .unwrap();
        let (rows, _) = reader.next().unwrap().unwrap();
        assert_eq!(rows.column(1).as_ref(), &Int64Array::from(vec![1, 2]));
        assert_eq!(rows.column(0).as_struct().column(0).null_count(), 1);
    }
    let none = BTreeMap::new();
    let error = Reader::open(file, &schema, &[], &none, MappingMode::Id, None, 10);
    assert!(matches!(error, Err(DataFileError::NoFieldIds)));
}

#[test]
fn stored_columns_widen_and_partition_columns_come_from_the_log() {
    let file = parquet(&batch(vec![
        (
            "a",
            Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef,
        ),
        ("p", Arc::new(Int32Array::from(vec![9, 9])) as ArrayRef),
    ]));
    let schema = table(&[("a", "decimal(20,2)"), ("p", "date"), ("n", "string")]);
    let columns: Vec<String> = ["n", "p", "a"].map(str::to_owned).to_vec();
    let partition = BTreeMap::from([("p".to_owned(), Some("2020-02-29".to_owned()))]);
    let mut reader = Reader::open(
        file,
        &schema,
        &columns,
        &partition,
        MappingMode::None,
        None,
        10,
    )
    .unwrap();
    let (rows, positions) = reader.next().unwrap().unwrap();
    assert_eq!(positions.iter().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(rows.column(0).null_count(), 2);
    assert_eq!(rows.column(1).as_ref(), &Date32Array::from(vec![18_321; 2]));
    let a = rows
        .column(2)
        .as_primitive::<arrow::datatypes::Decimal128Type>();
    assert_eq!((a.value(0), a.is_null(1)), (100, true));
    assert!(reader.next().is_none());
}

#[test]
fn void_columns_are_never_written() {
    let schema = table(&[("a", "long"), ("v", "void")]);
    let file = parquet(&batch(vec![("a", longs(&[Some(1)]))]));
    assert!(is_original(
        &prepared(&file, &target(schema.clone(), &[])).unwrap()
    ));
    let file = parquet(&batch(vec![
        ("v", Arc::new(NullArray::new(1)) as ArrayRef),
        ("a", longs(&[Some(1)])),
    ]));
    let made = prepared(&file, &target(schema.clone(), &[])).unwrap();
    let stored = inspect(&new_file(&made.files[0])).unwrap();
    assert_eq!(stored.schema.fields().len(), 1);
    assert_eq!(rows_of(new_file(&made.files[0]), &schema).num_columns(), 2);
    assert!(matches!(
        prepared(
            &file,
            &target(table(&[("a", "long"), ("v", "variant")]), &[])
        ),
        Err(DataFileError::Unwritable { .. })
    ));
}

#[test]
fn a_full_disk_is_told_from_bad_rows() {
    let Ok(full) = File::options().write(true).open("/dev/full") else {
        return;
    };
    let schema = mixed_table();
    let mut writer =
        Writer::new(full, &schema, &StatsConfig::default(), MappingMode::None).unwrap();
    let rows = rows_of(parquet(&mixed_batch(10)), &schema);
    let result = writer
        .write(&rows)
        .and_then(|()| writer.finish().map(|_| ()));
    assert_eq!(result.unwrap_err().kind(), Kind::NoSpace);
}

#[test]
fn batches_of_wide_rows_have_fewer_rows() {
    let text = |i: usize| "x".repeat(1 << 20) + &i.to_string();
    let texts = StringArray::from_iter_values((0..100).map(text));
    let file = parquet(&batch(vec![("s", Arc::new(texts) as ArrayRef)]));
    let schema = table(&[("s", "string")]);
    let none = BTreeMap::new();
    let columns = ["s".to_owned()];
    let mode = MappingMode::None;
    let reader = Reader::open(file, &schema, &columns, &none, mode, None, 8192).unwrap();
    let rows: Vec<usize> = reader.map(|item| item.unwrap().0.num_rows()).collect();
    assert_eq!(rows.iter().sum::<usize>(), 100);
    assert!(rows.iter().all(|n| *n <= 32), "{rows:?}");
}
