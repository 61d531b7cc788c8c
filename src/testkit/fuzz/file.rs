//! Parquet files that somebody dropped.

use std::collections::BTreeMap;
use std::fs::File;

use super::file_of;
use crate::datafile::{
    Bytes, DataFileError, FileStats, MappingMode, Prepared, Reader, StatsConfig, Target, inspect,
    is_parquet_complete, prepare, table_schema,
};
use crate::error::Failure as _;
use crate::schema::StructType;

/// Rows that are read of a file; a run-length-encoded page has as many as it likes.
const MANY_ROWS: u64 = 100_000;

/// The table that seeds fit: as it is, after a conversion, or not.
pub(super) fn table() -> StructType {
    StructType::from_json(
        r#"{"type":"struct","fields":[
        {"name":"id","type":"long","nullable":false,"metadata":{}},
        {"name":"name","type":"string","nullable":true,"metadata":{}},
        {"name":"list","type":{"type":"array","elementType":"integer","containsNull":true},"nullable":true,"metadata":{}},
        {"name":"x","type":"double","nullable":true,"metadata":{}}]}"#,
    )
    .unwrap()
}

/// A dropped file is taken over, written anew or refused. What is taken over or written says what it holds.
pub(super) fn data_file(data: &[u8]) {
    let file = file_of(data);
    let complete = is_parquet_complete(&file).unwrap();
    let inspected = match inspect(&file) {
        Ok(inspected) => inspected,
        Err(error) => return explained(&error),
    };
    assert!(complete, "inspected, but not complete");
    assert_eq!(inspected.size, data.len() as u64);
    if inspected.rows > MANY_ROWS {
        return;
    }
    let own = table_schema(&inspected).ok();
    for schema in [Some(table()), own].into_iter().flatten() {
        let target = Target {
            schema: schema.clone(),
            partition_columns: Vec::new(),
            fixed: BTreeMap::new(),
            stats: StatsConfig::default(),
            mapping: MappingMode::None,
            hidden: Vec::new(),
            materialized: false,
        };
        let mut new_file = || Ok(file_of(&[]));
        match prepare(&file, &target, &mut new_file, None) {
            Ok(prepared) => prepared_right(&prepared, inspected.rows, &schema),
            Err(error) => explained(&error),
        }
        if let Err(error) = rows_of(file.try_clone().unwrap(), &schema) {
            explained(&error);
        }
    }
}

fn prepared_right(prepared: &Prepared, rows: u64, schema: &StructType) {
    assert_eq!(prepared.rows, rows);
    let sum: u64 = prepared.files.iter().map(|file| file.rows).sum();
    assert_eq!(sum, rows);
    for file in &prepared.files {
        let stats = FileStats::parse(&file.stats);
        assert_eq!(stats.num_records(), Some(file.rows), "{}", file.stats);
        if let Bytes::New(new) = &file.bytes {
            let found = rows_of(new.try_clone().unwrap(), schema).unwrap();
            assert_eq!(found, file.rows);
        }
    }
}

fn rows_of(file: File, schema: &StructType) -> Result<u64, DataFileError> {
    let columns: Vec<String> = schema.fields.iter().map(|f| f.name.clone()).collect();
    let none = BTreeMap::new();
    let reader = Reader::open(file, schema, &columns, &none, MappingMode::None, None, 1024)?;
    let mut rows = 0;
    for batch in reader {
        let (batch, positions) = batch?;
        assert_eq!(positions.len(), batch.num_rows() as u64);
        rows += positions.len();
    }
    Ok(rows)
}

fn explained(error: &DataFileError) {
    assert!(!error.to_string().is_empty());
    let _ = (error.kind(), error.hint());
}
