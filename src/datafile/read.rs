//! A stored data file as the table's rows: logical names and types, dead rows left out.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::arrow::arrow_reader::RowSelection;
use roaring::RoaringTreemap;

use super::adopt::read_footer;
use super::convert::{
    MappingMode, NullTally, Rows, Rules, convert_columns, find, record_batch, relaxed_fields, seal,
};
use super::error::DataFileError;
use super::source::{Batches, Source};
use crate::schema::{
    Scalar, SchemaError, StructType, arrow_schema, check_type_changes, partition::parse_value,
};

/// More runs of live rows than this are kept as bits.
const MANY_RUNS: usize = 100_000;

/// The physical rows of a batch, in order, as ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Positions(Vec<Range<u64>>);

impl Positions {
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().cloned().flatten()
    }

    /// Rows.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|r| r.end - r.start).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Iterates over the live rows of one file.
pub struct Reader {
    batches: Option<Batches>,
    /// Requested columns, in order.
    columns: StructType,
    /// Constant columns: their index in `columns`.
    constants: Vec<(usize, Scalar)>,
    /// The requested columns that may be in the file.
    stored: StructType,
    schema: SchemaRef,
    mapping: MappingMode,
    /// Runs of live rows not delivered yet, the next one last.
    live: Vec<Range<u64>>,
    rows: u64,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("schema", &self.schema)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens `file` of a table with the logical `schema` for the top-level `columns` (logical names; none
    /// still gives row counts). `partition` holds the file's values by physical name: such columns come from
    /// there, never from the file. `dead` rows are skipped. Columns that the file lacks are NULL. A batch has at
    /// most `batch_rows` rows, fewer where they are wide.
    ///
    /// # Errors
    /// Those of [`super::inspect`]; [`DataFileError::Type`] when a column's stored type does not widen to the
    /// table's, [`SchemaError::TypeChange`] when how it should is unknown; [`DataFileError::NoFieldIds`]; [`DataFileError::DeadRow`].
    pub fn open(
        file: File,
        schema: &StructType,
        columns: &[String],
        partition: &BTreeMap<String, Option<String>>,
        mapping: MappingMode,
        dead: Option<&RoaringTreemap>,
        batch_rows: usize,
    ) -> Result<Self, DataFileError> {
        let (metadata, _) = read_footer(&file)?;
        let source = Source::new(file, metadata)?;
        let fields = columns
            .iter()
            .map(|name| schema.field(name).cloned().ok_or_else(|| unknown(name)))
            .collect::<Result<Vec<_>, _>>()?;
        fields.iter().try_for_each(check_type_changes)?;
        let columns = StructType { fields };
        let file_schema = source.schema();
        let with_ids =
            |f: &Arc<arrow::datatypes::Field>| f.metadata().contains_key(PARQUET_FIELD_ID_META_KEY);
        if mapping == MappingMode::Id
            && !file_schema.fields().is_empty()
            && !file_schema.fields().iter().any(with_ids)
        {
            return Err(DataFileError::NoFieldIds);
        }
        let mut constants = Vec::new();
        let mut stored = StructType::default();
        let mut roots = Vec::new();
        for (index, field) in columns.fields.iter().enumerate() {
            if let Some(text) = partition.get(field.physical_name()) {
                constants.push((index, parse_value(text.as_deref(), &field.data_type)?));
            } else {
                roots.extend(find(file_schema.fields(), field, mapping));
                stored.fields.push(field.clone());
            }
        }
        let rows = source.rows();
        let live = live_runs(rows, dead)?;
        let batches = if live.is_empty() {
            None
        } else {
            let selection = selection(&live, rows)?;
            let batch_rows = source.fitting_rows(batch_rows);
            Some(source.batches(&roots, selection, batch_rows)?)
        };
        Ok(Reader {
            batches,
            schema: Arc::new(arrow_schema(&columns)?),
            columns,
            constants,
            stored,
            mapping,
            live: live.into_iter().rev().collect(),
            rows,
        })
    }

    /// The schema of the batches: the requested columns in the table's Arrow types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Physical rows of the file, dead ones included.
    pub fn physical_rows(&self) -> u64 {
        self.rows
    }

    /// The next `count` live rows.
    fn advance(&mut self, count: usize) -> Positions {
        let mut left = count as u64;
        let mut taken = Vec::new();
        while left > 0 {
            let Some(run) = self.live.last_mut() else {
                break;
            };
            let end = run.end.min(run.start.saturating_add(left));
            left -= end - run.start;
            taken.push(run.start..end);
            run.start = end;
            if run.start == run.end {
                self.live.pop();
            }
        }
        Positions(taken)
    }

    fn logical(&mut self, batch: &RecordBatch) -> Result<(RecordBatch, Positions), DataFileError> {
        let positions = self.advance(batch.num_rows());
        if positions.len() != batch.num_rows() as u64 {
            return Err(DataFileError::RowCount {
                what: "the file".to_owned(),
                expected: i64::try_from(self.rows).unwrap_or(i64::MAX),
                found: i64::MAX,
            });
        }
        let stored = convert_columns(
            batch,
            &self.stored,
            self.mapping,
            Rules::Stored,
            Rows::Ranges(positions.ranges()),
        )?;
        let mut found = stored.columns().iter();
        let mut columns = Vec::with_capacity(self.columns.fields.len());
        for (index, field) in self.columns.fields.iter().enumerate() {
            let constant = self.constants.iter().find(|(i, _)| *i == index);
            columns.push(match constant {
                Some((_, value)) => value.to_array(&field.data_type, batch.num_rows())?,
                None => match found.next() {
                    Some(column) => Arc::clone(column),
                    None => continue,
                },
            });
        }
        let full = record_batch(relaxed_fields(&self.columns)?, columns, batch.num_rows())?;
        let mut nulls = NullTally::default();
        nulls.add(&full, &self.columns);
        nulls.verdict()?;
        Ok((seal(full, &self.columns)?, positions))
    }
}

impl Iterator for Reader {
    type Item = Result<(RecordBatch, Positions), DataFileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = match self.batches.as_mut()?.next() {
            Some(Ok(batch)) => self.logical(&batch),
            Some(Err(error)) => Err(error),
            None => {
                self.batches = None;
                let missing: u64 = self.live.iter().map(|r| r.end - r.start).sum();
                if missing == 0 {
                    return None;
                }
                Err(DataFileError::RowCount {
                    what: "the file".to_owned(),
                    expected: i64::try_from(self.rows).unwrap_or(i64::MAX),
                    found: i64::try_from(self.rows - missing).unwrap_or(0),
                })
            }
        };
        if item.is_err() {
            self.batches = None;
        }
        Some(item)
    }
}

fn unknown(name: &str) -> DataFileError {
    DataFileError::Schema(SchemaError::Value {
        text: name.to_owned(),
        expected: "a column of the table".to_owned(),
    })
}

/// Runs of rows that `dead` does not mark.
fn live_runs(rows: u64, dead: Option<&RoaringTreemap>) -> Result<Vec<Range<u64>>, DataFileError> {
    let mut runs = Vec::new();
    let mut start = 0;
    for row in dead.into_iter().flatten() {
        if row >= rows {
            return Err(DataFileError::DeadRow { row, rows });
        }
        if start < row {
            runs.push(start..row);
        }
        start = row + 1;
    }
    if start < rows {
        runs.push(start..rows);
    }
    Ok(runs)
}

/// `None` when all rows are live.
fn selection(live: &[Range<u64>], rows: u64) -> Result<Option<RowSelection>, DataFileError> {
    if let [only] = live
        && *only == (0..rows)
    {
        return Ok(None);
    }
    let index = |n: u64| usize::try_from(n).map_err(|_| DataFileError::TooLarge { rows });
    let total = index(rows)?;
    let runs = live
        .iter()
        .map(|r| Ok(index(r.start)?..index(r.end)?))
        .collect::<Result<Vec<_>, DataFileError>>()?;
    if runs.len() <= MANY_RUNS {
        return Ok(Some(RowSelection::from_consecutive_ranges(
            runs.into_iter(),
            total,
        )));
    }
    let mut bits = arrow::array::BooleanBufferBuilder::new(total);
    let mut at = 0;
    for run in runs {
        bits.append_n(run.start - at, false);
        bits.append_n(run.end - run.start, true);
        at = run.end;
    }
    bits.append_n(total - at, false);
    let bits: BooleanBuffer = bits.finish();
    Ok(Some(RowSelection::from_boolean_buffer(bits)))
}
