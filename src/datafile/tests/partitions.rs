//! Partition values of files and directories.

use std::fs::File;
use std::sync::Arc;

use arrow::array::*;

use crate::datafile::testing::{batch, parquet, prepared, table, target};
use crate::datafile::*;
use crate::error::Kind;

use super::*;

fn with_fixed(mut target: Target, values: &[(&str, Option<&str>)]) -> Target {
    for (name, value) in values {
        target
            .fixed
            .insert((*name).to_owned(), value.map(str::to_owned));
    }
    target
}

#[test]
fn the_directory_gives_the_partition_value() {
    let schema = table(&[("a", "long"), ("p", "decimal(5,2)")]);
    let base = target(schema, &["p"]);
    let file = parquet(&batch(vec![("a", longs(&[Some(1)]))]));
    let made = prepared(&file, &with_fixed(base.clone(), &[("P", Some("1.5"))])).unwrap();
    assert!(is_original(&made));
    // D61
    assert_eq!(made.files[0].partition_values["p"], Some("1.50".to_owned()));
    let error = prepared(&file, &with_fixed(base.clone(), &[("p", Some("x"))])).unwrap_err();
    assert!(matches!(error, DataFileError::Schema(_)));
    let error = prepared(&file, &with_fixed(base.clone(), &[("a", Some("1"))])).unwrap_err();
    assert!(matches!(error, DataFileError::NotPartition { .. }));
    // Given by nobody: nobody has said that it is NULL.
    assert!(matches!(
        prepared(&file, &base),
        Err(DataFileError::NoPartition { .. })
    ));
    let strict = target(table(&[("a", "long"), ("p", "!long")]), &["p"]);
    assert!(matches!(
        prepared(&file, &strict),
        Err(DataFileError::MissingRequired { .. })
    ));
}

#[test]
fn a_partition_column_in_the_file_must_agree_with_the_directory() {
    let schema = table(&[("a", "long"), ("p", "long")]);
    let base = target(schema, &["p"]);
    let file = |p: &[Option<i64>]| {
        let a = longs(&vec![Some(1); p.len()]);
        parquet(&batch(vec![("p", longs(p)), ("a", a)]))
    };
    let fixed = with_fixed(base, &[("p", Some("7"))]);
    let made = prepared(&file(&[Some(7), Some(7)]), &fixed).unwrap();
    assert!(!is_original(&made));
    let schema = inspect(&new_file(&made.files[0])).unwrap().schema;
    assert_eq!(schema.fields().len(), 1);
    match prepared(&file(&[Some(7), Some(8), None]), &fixed) {
        Err(DataFileError::PartitionDiffers {
            row,
            expected,
            found,
            ..
        }) => {
            assert_eq!((row, expected.as_str(), found.as_str()), (1, "`7`", "`8`"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn rows_are_split_by_their_partition_values() {
    let schema = table(&[("a", "long"), ("p", "string"), ("q", "double")]);
    let file = parquet(&batch(vec![
        ("a", longs(&[Some(1), Some(2), Some(3), Some(4), Some(5)])),
        (
            "p",
            texts(&[Some("x/y"), None, Some(""), Some("x/y"), Some("x/y")]),
        ),
        (
            "q",
            Arc::new(Float64Array::from(vec![1.0, f64::NAN, -f64::NAN, 1.0, 2.5])) as ArrayRef,
        ),
    ]));
    let made = prepared(&file, &target(schema, &["p", "q"])).unwrap();
    let data = table(&[("a", "long")]);
    let mut seen = Vec::new();
    for one in &made.files {
        let rows = rows_of(new_file(one), &data);
        let a: Vec<i64> = rows
            .column(0)
            .as_primitive::<arrow::datatypes::Int64Type>()
            .values()
            .to_vec();
        assert_eq!(one.rows, a.len() as u64);
        assert_eq!(one.size, new_file(one).metadata().unwrap().len());
        seen.push((
            one.partition_values["p"].clone(),
            one.partition_values["q"].clone(),
            a,
        ));
    }
    let text = |s: &str| Some(s.to_owned());
    assert_eq!(
        seen,
        [
            (text("x/y"), text("1.0"), vec![1, 4]),
            (None, text("NaN"), vec![2, 3]),
            (text("x/y"), text("2.5"), vec![5]),
        ]
    );
}

#[test]
fn more_partitions_than_open_files_take_more_passes() {
    let rows = 3000_i64;
    let a: Vec<Option<i64>> = (0..rows).map(Some).collect();
    let p: Vec<Option<i64>> = (0..rows).map(|i| Some(i % 600)).collect();
    let file = parquet(&batch(vec![("a", longs(&a)), ("p", longs(&p))]));
    let base = target(table(&[("a", "long"), ("p", "long")]), &["p"]);
    struct Count(u64);
    impl RowCheck for Count {
        fn check(&mut self, batch: &RecordBatch, first_row: u64) -> Result<(), DataFileError> {
            assert_eq!(batch.num_columns(), 2);
            assert_eq!(first_row, self.0);
            self.0 += batch.num_rows() as u64;
            Ok(())
        }
    }
    let mut count = Count(0);
    let made = prepare(
        &file,
        &base,
        &mut || Ok(tempfile::tempfile().unwrap()),
        Some(&mut count),
    )
    .unwrap();
    assert_eq!(count.0, 3000);
    assert_eq!(made.files.len(), 600);
    let data = table(&[("a", "long")]);
    for one in &made.files {
        let p: i64 = one.partition_values["p"].as_ref().unwrap().parse().unwrap();
        let rows = rows_of(new_file(one), &data);
        let a = rows.column(0).as_primitive::<arrow::datatypes::Int64Type>();
        assert_eq!(a.len(), 5);
        assert!(a.values().iter().all(|v| v % 600 == p));
    }
    let p: Vec<Option<i64>> = (0..10_001).map(Some).collect();
    let file = parquet(&batch(vec![("p", longs(&p))]));
    assert!(matches!(
        prepared(&file, &base),
        Err(DataFileError::TooManyPartitions { .. })
    ));
}

#[test]
fn a_check_sees_every_row_with_its_partition_value() {
    struct Below(i64);
    impl RowCheck for Below {
        fn check(&mut self, batch: &RecordBatch, first_row: u64) -> Result<(), DataFileError> {
            let a = batch.column_by_name("a").unwrap();
            let a = a.as_primitive::<arrow::datatypes::Int64Type>();
            assert_eq!(batch.column_by_name("p").unwrap().null_count(), 0);
            match a.values().iter().position(|v| *v >= self.0) {
                None => Ok(()),
                Some(row) => Err(DataFileError::Refused {
                    message: format!("row {}", first_row + row as u64),
                    kind: Kind::Invalid,
                    hint: None,
                }),
            }
        }
    }
    let a: Vec<Option<i64>> = (0..20_000).map(Some).collect();
    let file = parquet(&batch(vec![("a", longs(&a))]));
    let base = target(table(&[("a", "long"), ("p", "long")]), &["p"]);
    let fixed = with_fixed(base, &[("p", Some("7"))]);
    let run = |limit| {
        let mut new_file = || -> Result<File, DataFileError> { panic!("adopted") };
        prepare(&file, &fixed, &mut new_file, Some(&mut Below(limit)))
    };
    assert!(is_original(&run(20_000).unwrap()));
    assert_eq!(run(15_000).unwrap_err().to_string(), "row 15000");
}
