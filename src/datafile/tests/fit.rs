//! Whether a file fits a table.

use std::fs::File;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType as Arrow, Field, Fields};
use parquet::data_type::{Int96, Int96Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::datafile::testing::{batch, parquet, parquet_with, prepared, table, target};
use crate::datafile::*;
use crate::error::{Failure, Kind};
use crate::schema::Scalar;

use super::*;

#[test]
fn a_conforming_file_is_taken_over_as_it_is() {
    let file = parquet(&mixed_batch(50));
    let prepared = prepared(&file, &target(mixed_table(), &[])).unwrap();
    assert!(is_original(&prepared));
    assert_eq!(prepared.rows, 50);
    let one = &prepared.files[0];
    assert_eq!(one.size, file.metadata().unwrap().len());
    assert!(one.partition_values.is_empty());
    assert_eq!(
        one.stats,
        "{\"numRecords\":50,\"minValues\":{\"id\":0,\"name\":\"name 1\",\"x\":-0.0},\
         \"maxValues\":{\"id\":49,\"name\":\"name 9\",\"x\":16.333333333333332},\
         \"nullCount\":{\"id\":0,\"name\":8,\"list\":10,\"x\":0},\"tightBounds\":true}"
    );
}

#[test]
fn order_does_not_matter_but_spelling_does() {
    let file = |a: &str, b: &str| {
        parquet(&batch(vec![
            (a, longs(&[Some(1)])),
            (b, texts(&[Some("x")])),
        ]))
    };
    let schema = table(&[("s", "string"), ("N", "long")]);
    let target = target(schema.clone(), &[]);
    assert!(is_original(&prepared(&file("N", "s"), &target).unwrap()));
    let made = prepared(&file("n", "S"), &target).unwrap();
    assert!(!is_original(&made));
    let rows = rows_of(new_file(&made.files[0]), &schema);
    assert_eq!(rows.schema().field(0).name(), "s");
    assert_eq!(rows.column(1).as_ref(), &Int64Array::from(vec![1]));
}

#[test]
fn two_columns_for_one_are_refused() {
    // D64
    let file = parquet(&batch(vec![
        ("a", longs(&[Some(1)])),
        ("A", longs(&[Some(2)])),
    ]));
    match prepared(&file, &target(table(&[("a", "long")]), &[])) {
        Err(DataFileError::Ambiguous { column, found }) => {
            assert_eq!((column.as_str(), found.as_str()), ("a", "`a`, `A`"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn missing_and_extra_columns() {
    let file = parquet(&batch(vec![
        ("a", longs(&[Some(1)])),
        ("b", longs(&[Some(2)])),
    ]));
    let error = prepared(&file, &target(table(&[("a", "long")]), &[])).unwrap_err();
    assert!(matches!(&error, DataFileError::ExtraColumn { column } if column == "b"));
    assert!(
        error
            .hint()
            .unwrap()
            .contains("add the column to the table first")
    );
    assert_eq!(error.kind(), Kind::Invalid);

    let schema = table(&[("a", "long"), ("b", "long"), ("c", "string")]);
    let made = prepared(&file, &target(schema.clone(), &[])).unwrap();
    let rows = rows_of(new_file(&made.files[0]), &schema);
    assert_eq!(rows.column(2).null_count(), 1);
    assert!(made.files[0].stats.contains("\"c\":1"));

    let schema = table(&[("a", "long"), ("b", "long"), ("c", "!string")]);
    let error = prepared(&file, &target(schema, &[])).unwrap_err();
    assert!(matches!(error, DataFileError::MissingRequired { column } if column == "c"));
}

const POINT: &str = r#"{"type":"struct","fields":[
    {"name":"x","type":"long","nullable":false,"metadata":{}},
    {"name":"Y","type":"double","nullable":true,"metadata":{}}]}"#;

fn points(x: &[Option<i64>], valid: &[bool], more: Option<ArrayRef>) -> ArrayRef {
    let mut columns = vec![longs(x)];
    let mut fields = vec![Field::new("x", Arrow::Int64, true)];
    if let Some(more) = more {
        fields.push(Field::new("y", more.data_type().clone(), true));
        columns.push(more);
    }
    let nulls = Some(valid.to_vec().into());
    Arc::new(StructArray::try_new(Fields::from(fields), columns, nulls).unwrap())
}

#[test]
fn names_are_matched_at_every_depth() {
    let y: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5]));
    let file = parquet(&batch(vec![(
        "P",
        points(&[Some(1), None], &[true, false], Some(y)),
    )]));
    let schema = table(&[("p", POINT)]);
    let made = prepared(&file, &target(schema.clone(), &[])).unwrap();
    let rows = rows_of(new_file(&made.files[0]), &schema);
    let p = rows.column(0).as_struct();
    assert!(p.is_null(1));
    assert_eq!(
        p.column_by_name("Y")
            .unwrap()
            .as_primitive::<arrow::datatypes::Float64Type>()
            .value(0),
        0.5
    );
    assert_eq!(
        made.files[0].stats,
        "{\"numRecords\":2,\"minValues\":{\"p\":{\"x\":1,\"Y\":0.5}},\"maxValues\":{\"p\":{\"x\":1,\"Y\":0.5}},\
         \"nullCount\":{\"p\":{\"x\":1,\"Y\":1}},\"tightBounds\":true}"
    );
    let extra: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let inner = Fields::from(vec![
        Field::new("x", Arrow::Int64, true),
        Field::new("z", Arrow::Int64, true),
    ]);
    let odd = StructArray::try_new(inner, vec![longs(&[Some(1), Some(2)]), extra], None).unwrap();
    let file = parquet(&batch(vec![("p", Arc::new(odd))]));
    let error = prepared(&file, &target(schema, &[])).unwrap_err();
    assert!(matches!(error, DataFileError::ExtraColumn { column } if column == "p.z"));
}

#[test]
fn nulls_in_not_null_columns_are_counted() {
    // D66, D71
    let schema = table(&[("id", "!long"), ("p", POINT)]);
    let ids = longs(&[Some(1), Some(2), Some(3)]);
    let y = || -> ArrayRef { Arc::new(Float64Array::from(vec![1.0; 3])) };
    let fine = points(&[Some(1), None, Some(3)], &[true, false, true], Some(y()));
    let file = parquet(&batch(vec![("id", ids), ("p", fine.clone())]));
    // `y` is spelled another way than the table's `Y`.
    assert!(!is_original(
        &prepared(&file, &target(schema.clone(), &[])).unwrap()
    ));

    let file = parquet(&batch(vec![
        ("id", longs(&[None, None, Some(3)])),
        ("p", fine),
    ]));
    match prepared(&file, &target(schema.clone(), &[])) {
        Err(DataFileError::Nulls { column, rows }) => {
            assert_eq!((column.as_str(), rows), ("id", 2))
        }
        other => panic!("{other:?}"),
    }
    let bad = points(&[Some(1), None, None], &[true, false, true], Some(y()));
    let file = parquet(&batch(vec![("id", longs(&[Some(1); 3])), ("p", bad)]));
    match prepared(&file, &target(schema, &[])) {
        Err(DataFileError::Nulls { column, rows }) => {
            assert_eq!((column.as_str(), rows), ("p.x", 1))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn not_null_is_scanned_where_the_footer_does_not_prove_it() {
    let properties = || {
        WriterProperties::builder()
            .set_statistics_enabled(EnabledStatistics::None)
            .build()
    };
    let schema = table(&[("id", "!long")]);
    let file = |last| {
        let rows = [
            batch(vec![("id", longs(&[Some(1), Some(2)]))]),
            batch(vec![("id", longs(&[last]))]),
        ];
        parquet_with(&rows, properties())
    };
    let made = prepared(&file(Some(7)), &target(schema.clone(), &[])).unwrap();
    assert!(is_original(&made));
    assert!(made.files[0].stats.contains("\"maxValues\":{\"id\":7}"));
    assert!(made.files[0].stats.contains("\"nullCount\":{\"id\":0}"));
    let error = prepared(&file(None), &target(schema, &[])).unwrap_err();
    assert!(matches!(error, DataFileError::Nulls { rows: 1, .. }));
}

#[test]
fn a_file_without_rows_is_no_file() {
    // D68
    let file = parquet(&batch(vec![("a", longs(&[]))]));
    let made = prepared(&file, &target(table(&[("a", "!long")]), &[])).unwrap();
    assert!(made.files.is_empty());
    let file = parquet(&RecordBatch::new_empty(Arc::new(
        arrow::datatypes::Schema::empty(),
    )));
    assert_eq!(
        prepared(&file, &target(table(&[("a", "!long")]), &[]))
            .unwrap()
            .rows,
        0
    );
}

#[test]
fn an_all_null_column_without_a_type_is_null() {
    // D65
    let file = parquet(&batch(vec![
        ("a", longs(&[Some(1)])),
        ("b", Arc::new(NullArray::new(1)) as ArrayRef),
    ]));
    let schema = table(&[("a", "long"), ("b", "date")]);
    let made = prepared(&file, &target(schema.clone(), &[])).unwrap();
    assert_eq!(
        rows_of(new_file(&made.files[0]), &schema)
            .column(1)
            .null_count(),
        1
    );
}

/// Two row groups of INT96: Julian day and nanoseconds.
fn int96(values: &[(u32, u64)]) -> File {
    let schema = Arc::new(parse_message_type("message m { optional int96 t; }").unwrap());
    let file = tempfile::tempfile().unwrap();
    let mut writer =
        SerializedFileWriter::new(file.try_clone().unwrap(), schema, Arc::default()).unwrap();
    for (day, nanos) in values {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let mut value = Int96::new();
        value.set_data(*nanos as u32, (*nanos >> 32) as u32, *day);
        column
            .typed::<Int96Type>()
            .write_batch(&[value], Some(&[1, 0]), None)
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
    file
}

#[test]
fn int96_keeps_the_instant() {
    // D77: 1500-01-01, 2300-01-01, 1970-01-01T00:00:01.
    let file = int96(&[(2_268_933, 0), (2_561_118, 0), (2_440_588, 1_000_000_000)]);
    let schema = table(&[("t", "timestamp")]);
    let made = prepared(&file, &target(schema.clone(), &[])).unwrap();
    assert!(!is_original(&made));
    let expected = vec![
        Some(-14_830_992_000_000_000),
        None,
        Some(10_413_792_000_000_000),
        None,
        Some(1_000_000),
        None,
    ];
    let expected = TimestampMicrosecondArray::from(expected).with_timezone("UTC");
    let rows = rows_of(new_file(&made.files[0]), &schema);
    assert_eq!(rows.column(0).as_ref(), &expected);
    // The same when it is read as it is stored.
    assert_eq!(rows_of(file, &schema).column(0).as_ref(), &expected);
    let stats = FileStats::parse(&made.files[0].stats);
    let timestamp = super::testing::data_type("timestamp");
    assert_eq!(
        stats.min(&["t"], &timestamp),
        Some(Scalar::Timestamp(-14_830_992_000_000_000))
    );
    for (day, nanos, loss) in [
        (2_440_588, 1, Loss::Nanoseconds),
        (i32::MAX as u32, 0, Loss::Range),
    ] {
        let file = int96(&[(2_440_588, 0), (day, nanos)]);
        match prepared(&file, &target(schema.clone(), &[])) {
            Err(DataFileError::Value {
                row, loss: found, ..
            }) => assert_eq!((row, found), (2, loss)),
            other => panic!("{other:?}"),
        }
    }
}
