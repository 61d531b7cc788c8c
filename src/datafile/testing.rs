//! Small tables and files for the tests of this layer.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::convert::MappingMode;
use super::stats::StatsConfig;
use super::{DataFileError, Prepared, Target, prepare};
use crate::schema::{DataType, StructField, StructType};

/// A type by its JSON, or by its bare name.
pub(super) fn data_type(text: &str) -> DataType {
    if text.starts_with('{') {
        serde_json::from_str(text).unwrap()
    } else {
        serde_json::from_value(serde_json::Value::String(text.to_owned())).unwrap()
    }
}

/// Nullable columns; a `!` before the type makes one NOT NULL.
pub(super) fn table(columns: &[(&str, &str)]) -> StructType {
    StructType {
        fields: columns
            .iter()
            .map(|(name, text)| match text.strip_prefix('!') {
                Some(text) => StructField::new(*name, data_type(text), false),
                None => StructField::new(*name, data_type(text), true),
            })
            .collect(),
    }
}

pub(super) fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

pub(super) fn parquet_with(batches: &[RecordBatch], properties: WriterProperties) -> File {
    let file = tempfile::tempfile().unwrap();
    let copy = file.try_clone().unwrap();
    let mut writer = ArrowWriter::try_new(copy, batches[0].schema(), Some(properties)).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    file
}

pub(super) fn parquet(batch: &RecordBatch) -> File {
    parquet_with(std::slice::from_ref(batch), WriterProperties::default())
}

pub(super) fn target(schema: StructType, partition_columns: &[&str]) -> Target {
    Target {
        hidden: Vec::new(),
        materialized: false,
        schema,
        partition_columns: partition_columns.iter().map(|c| (*c).to_owned()).collect(),
        fixed: BTreeMap::new(),
        stats: StatsConfig::default(),
        mapping: MappingMode::None,
    }
}

pub(super) fn prepared(file: &File, target: &Target) -> Result<Prepared, DataFileError> {
    prepare(
        file,
        target,
        &mut || Ok(tempfile::tempfile().unwrap()),
        None,
    )
}
