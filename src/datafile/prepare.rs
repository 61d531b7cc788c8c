//! A dropped file made ready for the log: taken over, rewritten or split, with its statistics.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch, StringArray};

use super::adopt::{Inspected, inspect};
use super::conform::{Conformance, Outcome, Partition, Target, conform};
use super::convert::relaxed_fields;
use super::convert::{
    MappingMode, NullTally, Rows, Rules, convert_columns, find, record_batch, seal, show,
};
use super::error::DataFileError;
use super::int96;
use super::pages::check_pages;
use super::physical;
use super::source::{BATCH_ROWS, Batches, Source};
use super::split::{Splitter, partition_text};
use super::stats::{Partial, StatsBuilder, footer_stats};
use crate::log::PartitionValues;
use crate::schema::{DataType, Primitive, Scalar, StructType};

/// Judges rows before they are accepted (constraints; the engine implements it).
pub trait RowCheck {
    /// `batch` has all columns of the table, partition columns included, by logical names and in the table's
    /// Arrow types; its rows follow each other from `first_row` of the file on.
    ///
    /// # Errors
    /// Refuses the file, best as [`DataFileError::Refused`].
    fn check(&mut self, batch: &RecordBatch, first_row: u64) -> Result<(), DataFileError>;
}

/// What became of a file.
#[derive(Debug)]
pub struct Prepared {
    /// None when the file has no rows (D68).
    pub files: Vec<PreparedFile>,
    pub rows: u64,
}

/// One data file for the log.
#[derive(Debug)]
pub struct PreparedFile {
    pub bytes: Bytes,
    /// By physical name.
    pub partition_values: PartitionValues,
    /// Bytes.
    pub size: u64,
    /// The text for `add.stats`.
    pub stats: String,
    pub rows: u64,
}

/// Where a data file's bytes are.
#[derive(Debug)]
pub enum Bytes {
    /// In the dropped file, as it is.
    Original,
    /// In a file from `new_file`; on the disk.
    New(File),
}

/// Checks `input` against the table and makes it ready to be committed. `new_file` opens empty files for rows
/// that have to be written anew; `check` sees every row.
///
/// Memory is bounded by a batch where the file is taken over, else by row groups in progress (256 MiB in sum).
///
/// # Errors
/// Everything that is wrong with the file, its schema or its values; see [`DataFileError`].
pub fn prepare(
    input: &File,
    target: &Target,
    new_file: &mut dyn FnMut() -> Result<File, DataFileError>,
    check: Option<&mut dyn RowCheck>,
) -> Result<Prepared, DataFileError> {
    let file = inspect(input)?;
    // A file without rows is held against the schema, too: it says what the next one will be.
    if file.rows == 0 && file.schema.fields().is_empty() {
        return Ok(Prepared {
            files: Vec::new(),
            rows: 0,
        });
    }
    let plan = conform(&file, target)?;
    if file.rows == 0 {
        return Ok(Prepared {
            files: Vec::new(),
            rows: 0,
        });
    }
    let copy = input
        .try_clone()
        .map_err(|e| DataFileError::io("reading", e))?;
    let source = Source::new(copy, Arc::clone(&file.metadata))?;
    int96::check(&source)?;
    let files = match plan.outcome {
        Outcome::Adopt => {
            check_pages(input, &file.metadata)?;
            vec![adopt(&file, &source, target, &plan, check)?]
        }
        Outcome::Rewrite | Outcome::Split => rewrite(&source, target, &plan, new_file, check)?,
    };
    Ok(Prepared {
        files,
        rows: file.rows,
    })
}

fn adopt(
    file: &Inspected,
    source: &Source,
    target: &Target,
    plan: &Conformance,
    mut check: Option<&mut dyn RowCheck>,
) -> Result<PreparedFile, DataFileError> {
    let data = target.data_schema();
    let none = &[];
    let plain = target.mapping == MappingMode::None;
    let Partial { mut builder, scan } = if plain {
        footer_stats(&file.metadata, &data, none, &target.stats)
    } else {
        // Footers are asked by logical names: the file of a mapped table is read instead, which is rare.
        Partial {
            builder: StatsBuilder::new(&data, none, &target.stats),
            scan: data.fields.iter().map(|f| f.name.clone()).collect(),
        }
    };
    let unproven = physical::unproven_not_null(&file.metadata, &data);
    let wanted = StructType {
        fields: data
            .fields
            .iter()
            .filter(|f| check.is_some() || scan.contains(&f.name) || unproven.contains(&f.name))
            .cloned()
            .collect(),
    };
    if !wanted.fields.is_empty() {
        let mut nulls = NullTally::default();
        let mut row = 0;
        for batch in decode(source, &wanted, target.mapping)? {
            let batch = batch?;
            let rows = Rows::From(row);
            let batch = convert_columns(&batch, &wanted, target.mapping, Rules::Exact, rows)?;
            nulls.add(&batch, &wanted);
            builder.update(&batch)?;
            if let Some(check) = check.as_deref_mut()
                && nulls.is_clean()
            {
                let full = with_partitions(&batch, target, plan)?;
                check.check(&seal(full, &target.schema)?, row)?;
            }
            row += batch.num_rows() as u64;
        }
        all_rows(source, row)?;
        nulls.verdict()?;
    }
    Ok(PreparedFile {
        bytes: Bytes::Original,
        partition_values: fixed_values(plan)?,
        size: file.size,
        stats: builder.finish(),
        rows: file.rows,
    })
}

fn rewrite(
    source: &Source,
    target: &Target,
    plan: &Conformance,
    new_file: &mut dyn FnMut() -> Result<File, DataFileError>,
    mut check: Option<&mut dyn RowCheck>,
) -> Result<Vec<PreparedFile>, DataFileError> {
    let data = target.data_schema();
    let mut split = Splitter::new(&data, target, plan, fixed_values(plan)?);
    let mut files = Vec::new();
    let mut first_pass = true;
    loop {
        let mut nulls = NullTally::default();
        let mut row = 0;
        for batch in decode(source, &target.schema, MappingMode::None)? {
            let batch = batch?;
            let rows = Rows::From(row);
            let full = convert_columns(
                &batch,
                &target.schema,
                MappingMode::None,
                Rules::Exact,
                rows,
            )?;
            let full = partitions_in(full, target, plan, row)?;
            if first_pass {
                nulls.add(&full, &target.schema);
            }
            if nulls.is_clean() {
                let full = seal(full, &target.schema)?;
                if let Some(check) = check.as_deref_mut()
                    && first_pass
                {
                    check.check(&full, row)?;
                }
                split.write(&full, new_file)?;
            }
            row += batch.num_rows() as u64;
        }
        all_rows(source, row)?;
        nulls.verdict()?;
        let more = split.end_pass(&mut files)?;
        if !more {
            return Ok(files);
        }
        first_pass = false;
    }
}

/// Decodes the file's columns for those of `wanted`.
fn decode(
    source: &Source,
    wanted: &StructType,
    mapping: MappingMode,
) -> Result<Batches, DataFileError> {
    let fields = source.schema().fields();
    let roots: Vec<usize> = match mapping {
        MappingMode::None => (0..fields.len())
            .filter(|i| {
                fields
                    .get(*i)
                    .is_some_and(|f| wanted.field(f.name()).is_some())
            })
            .collect(),
        MappingMode::Name | MappingMode::Id => {
            let wanted = wanted.fields.iter();
            wanted.filter_map(|f| find(fields, f, mapping)).collect()
        }
    };
    source.batches(&roots, None, BATCH_ROWS)
}

fn all_rows(source: &Source, found: u64) -> Result<(), DataFileError> {
    if found == source.rows() {
        return Ok(());
    }
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    Err(DataFileError::RowCount {
        what: "the file".to_owned(),
        expected: number(source.rows()),
        found: number(found),
    })
}

/// Values of the partitions that are the same for every row, by physical name.
fn fixed_values(plan: &Conformance) -> Result<PartitionValues, DataFileError> {
    let mut values = PartitionValues::new();
    for partition in &plan.partitions {
        if let Some(value) = &partition.fixed {
            values.insert(
                partition.field.physical_name().to_owned(),
                partition_text(value, &partition.field)?,
            );
        }
    }
    Ok(values)
}

/// The full batch of a file that has only data columns.
fn with_partitions(
    batch: &RecordBatch,
    target: &Target,
    plan: &Conformance,
) -> Result<RecordBatch, DataFileError> {
    let mut columns = Vec::with_capacity(target.schema.fields.len());
    for field in &target.schema.fields {
        let partition = plan.partitions.iter().find(|p| p.field.name == field.name);
        columns.push(match (partition, batch.column_by_name(&field.name)) {
            (Some(Partition { fixed: Some(v), .. }), _) => {
                v.to_array(&field.data_type, batch.num_rows())?
            }
            (_, Some(column)) => Arc::clone(column),
            (_, None) => Scalar::Null.to_array(&field.data_type, batch.num_rows())?,
        });
    }
    record_batch(relaxed_fields(&target.schema)?, columns, batch.num_rows())
}

/// Holds the file's partition columns against the directory's values, and puts the latter in.
fn partitions_in(
    full: RecordBatch,
    target: &Target,
    plan: &Conformance,
    first_row: u64,
) -> Result<RecordBatch, DataFileError> {
    if plan.partitions.is_empty() {
        return Ok(full);
    }
    let rows = full.num_rows();
    let mut columns = full.columns().to_vec();
    for partition in &plan.partitions {
        let field = &partition.field;
        let index = target
            .schema
            .fields
            .iter()
            .position(|f| f.name == field.name);
        let Some(column) = index.and_then(|i| columns.get_mut(i)) else {
            continue;
        };
        *column = empty_is_null(column, &field.data_type);
        let Some(value) = &partition.fixed else {
            continue;
        };
        let constant = value.to_array(&field.data_type, rows)?;
        if partition.in_file
            && let Some(row) = first_difference(column, &constant)?
        {
            return Err(DataFileError::PartitionDiffers {
                column: field.name.clone(),
                row: first_row + row as u64,
                expected: shown(&constant, row),
                found: shown(column, row),
            });
        }
        *column = constant;
    }
    record_batch(full.schema_ref().fields().clone(), columns, rows)
}

fn shown(array: &ArrayRef, index: usize) -> String {
    if array.is_null(index) {
        "NULL".to_owned()
    } else {
        format!("`{}`", show(array, index))
    }
}

/// The log can't tell an empty string from NULL (PROTOCOL.md E): what is stored is what is checked.
fn empty_is_null(column: &ArrayRef, data_type: &DataType) -> ArrayRef {
    match data_type {
        DataType::Primitive(Primitive::String) => match column.as_string_opt::<i32>() {
            Some(texts) if texts.iter().any(|v| v == Some("")) => Arc::new(
                texts
                    .iter()
                    .map(|v| v.filter(|v| !v.is_empty()))
                    .collect::<StringArray>(),
            ),
            _ => Arc::clone(column),
        },
        DataType::Primitive(Primitive::Binary) => match column.as_binary_opt::<i32>() {
            Some(bytes) => Arc::new(
                bytes
                    .iter()
                    .map(|v| v.filter(|v| !v.is_empty()))
                    .collect::<BinaryArray>(),
            ),
            None => Arc::clone(column),
        },
        _ => Arc::clone(column),
    }
}

fn first_difference(found: &ArrayRef, wanted: &ArrayRef) -> Result<Option<usize>, DataFileError> {
    let same =
        arrow::compute::kernels::cmp::not_distinct(found, wanted).map_err(DataFileError::rows)?;
    Ok((0..same.len()).find(|i| !same.value(*i)))
}

/// The columns of a full batch that go into the file.
pub(super) fn data_columns(
    full: &RecordBatch,
    target: &Target,
) -> Result<RecordBatch, DataFileError> {
    let data = target.data_schema();
    let names = data.fields.iter().map(|f| f.name.as_str());
    let indices = names
        .filter_map(|name| full.schema_ref().index_of(name).ok())
        .collect::<Vec<_>>();
    full.project(&indices).map_err(DataFileError::rows)
}
