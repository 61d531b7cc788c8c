//! Rows to one new file for each of their partitions.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, RecordBatch, UInt32Array};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow::row::{OwnedRow, RowConverter, SortField};

use super::conform::{Conformance, Target};
use super::error::DataFileError;
use super::prepare::{Bytes, PreparedFile, data_columns};
use super::write::{Columns, Writer};
use crate::log::PartitionValues;
use crate::schema::partition::{format_value, parse_value};
use crate::schema::{DataType, Primitive, Scalar, SchemaError, StructField, StructType};

/// Files open at once. More partitions take more passes over the input.
const MAX_OPEN: usize = 256;
const MAX_PARTITIONS: usize = 10_000;
/// Row groups in progress, in sum; beyond it the largest are ended early.
const MAX_BUFFERED_BYTES: usize = 256 << 20;

/// Writes batches into files by partition, [`MAX_OPEN`] partitions in one pass over the input.
pub(super) struct Splitter<'a> {
    data: &'a StructType,
    target: &'a Target,
    /// Columns whose values tell the partitions apart.
    keys: Vec<&'a StructField>,
    fixed: PartitionValues,
    /// Set with the first batch.
    converter: Option<RowConverter>,
    by_row: HashMap<OwnedRow, usize>,
    by_values: BTreeMap<Vec<Option<String>>, usize>,
    writers: Vec<Option<Writer>>,
    partitions: Vec<PartitionValues>,
    /// The first partition of this pass.
    from: usize,
}

impl<'a> Splitter<'a> {
    /// `fixed` holds the partition values that all rows share.
    pub(super) fn new(
        data: &'a StructType,
        target: &'a Target,
        plan: &'a Conformance,
        fixed: PartitionValues,
    ) -> Self {
        let keys = plan.partitions.iter().filter(|p| p.fixed.is_none());
        Splitter {
            data,
            target,
            keys: keys.map(|p| &p.field).collect(),
            fixed,
            converter: None,
            by_row: HashMap::new(),
            by_values: BTreeMap::new(),
            writers: Vec::new(),
            partitions: Vec::new(),
            from: 0,
        }
    }

    /// Writes the rows of this pass's partitions. `full` has all columns of the table.
    pub(super) fn write(
        &mut self,
        full: &RecordBatch,
        new_file: &mut dyn FnMut() -> Result<File, DataFileError>,
    ) -> Result<(), DataFileError> {
        let rows = data_columns(full, self.target)?;
        if self.keys.is_empty() {
            if self.partitions.is_empty() {
                self.partitions.push(self.fixed.clone());
            }
            return self.append(0, &rows, new_file);
        }
        for (partition, indices) in self.group(full)? {
            if !(self.from..self.from + MAX_OPEN).contains(&partition) {
                continue;
            }
            if indices.len() == rows.num_rows() {
                self.append(partition, &rows, new_file)?;
            } else {
                let indices = UInt32Array::from(indices);
                let some = arrow::compute::take_record_batch(&rows, &indices)
                    .map_err(DataFileError::rows)?;
                self.append(partition, &some, new_file)?;
            }
        }
        self.bound_memory()
    }

    /// Finishes the files of this pass; whether partitions are left for another.
    pub(super) fn end_pass(
        &mut self,
        files: &mut Vec<PreparedFile>,
    ) -> Result<bool, DataFileError> {
        for (writer, values) in self.writers.drain(..).zip(&self.partitions[self.from..]) {
            let Some(writer) = writer else { continue };
            let written = writer.finish()?;
            files.push(PreparedFile {
                bytes: Bytes::New(written.file),
                partition_values: values.clone(),
                size: written.size,
                stats: written.stats,
                rows: written.rows,
            });
        }
        self.from = (self.from + MAX_OPEN).min(self.partitions.len());
        Ok(self.from < self.partitions.len())
    }

    fn append(
        &mut self,
        partition: usize,
        rows: &RecordBatch,
        new_file: &mut dyn FnMut() -> Result<File, DataFileError>,
    ) -> Result<(), DataFileError> {
        let slot = partition - self.from;
        if self.writers.len() <= slot {
            self.writers.resize_with(slot + 1, || None);
        }
        let Some(place) = self.writers.get_mut(slot) else {
            return Ok(());
        };
        let writer = match place {
            Some(writer) => writer,
            None => {
                let columns = Columns {
                    schema: self.data,
                    partition_columns: &self.target.partition_columns,
                    hidden: &[],
                };
                place.insert(Writer::open(
                    new_file()?,
                    &columns,
                    &self.target.stats,
                    self.target.mapping,
                )?)
            }
        };
        writer.write(rows)
    }

    /// The rows of each partition, by its number.
    fn group(&mut self, full: &RecordBatch) -> Result<BTreeMap<usize, Vec<u32>>, DataFileError> {
        let mut columns = Vec::with_capacity(self.keys.len());
        for field in &self.keys {
            columns.extend(full.column_by_name(&field.name).cloned());
        }
        let converter = match self.converter.take() {
            Some(converter) => converter,
            None => {
                let fields = columns
                    .iter()
                    .map(|c| SortField::new(c.data_type().clone()));
                RowConverter::new(fields.collect()).map_err(DataFileError::rows)?
            }
        };
        let rows = converter
            .convert_columns(&columns)
            .map_err(DataFileError::rows)?;
        let mut groups: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            let row = row.owned();
            let partition = match self.by_row.get(&row) {
                Some(partition) => *partition,
                None => {
                    let partition = self.number(&columns, index)?;
                    // Values with one text (NaN of several bit patterns) must not grow this forever.
                    if self.by_row.len() < 4 * MAX_PARTITIONS {
                        self.by_row.insert(row, partition);
                    }
                    partition
                }
            };
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            groups.entry(partition).or_default().push(index);
        }
        self.converter = Some(converter);
        Ok(groups)
    }

    /// The number of the partition that the row at `index` belongs to.
    fn number(&mut self, columns: &[ArrayRef], index: usize) -> Result<usize, DataFileError> {
        let mut texts = Vec::with_capacity(columns.len());
        for (field, column) in self.keys.iter().zip(columns) {
            texts.push(partition_text(&value_at(column, index, field)?, field)?);
        }
        if let Some(partition) = self.by_values.get(&texts) {
            return Ok(*partition);
        }
        if self.partitions.len() == MAX_PARTITIONS {
            return Err(DataFileError::TooManyPartitions {
                limit: MAX_PARTITIONS,
            });
        }
        let mut values = self.fixed.clone();
        for (field, text) in self.keys.iter().zip(&texts) {
            values.insert(field.physical_name().to_owned(), text.clone());
        }
        let partition = self.partitions.len();
        self.partitions.push(values);
        self.by_values.insert(texts, partition);
        Ok(partition)
    }

    fn bound_memory(&mut self) -> Result<(), DataFileError> {
        let sum = |writers: &[Option<Writer>]| -> usize {
            writers.iter().flatten().map(Writer::buffered_bytes).sum()
        };
        while sum(&self.writers) > MAX_BUFFERED_BYTES {
            let writers = self.writers.iter_mut().flatten();
            match writers.max_by_key(|w| w.buffered_bytes()) {
                Some(largest) => largest.flush()?,
                None => break,
            }
        }
        Ok(())
    }
}

/// The text of a partition value, which reads back as the same value.
pub(super) fn partition_text(
    value: &Scalar,
    field: &StructField,
) -> Result<Option<String>, DataFileError> {
    let text = format_value(value)?;
    let back = parse_value(text.as_deref(), &field.data_type)?;
    let same = match (&back, value) {
        (Scalar::Float(a), Scalar::Float(b)) => a.is_nan() == b.is_nan() && (a.is_nan() || a == b),
        (Scalar::Double(a), Scalar::Double(b)) => {
            a.is_nan() == b.is_nan() && (a.is_nan() || a == b)
        }
        (Scalar::Null, Scalar::String(v)) => v.is_empty(),
        (Scalar::Null, Scalar::Binary(v)) => v.is_empty(),
        (a, b) => a == b,
    };
    if same {
        Ok(text)
    } else {
        Err(DataFileError::PartitionText {
            column: field.name.clone(),
            value: format!("{value:?}"),
        })
    }
}

fn value_at(column: &ArrayRef, index: usize, field: &StructField) -> Result<Scalar, DataFileError> {
    if column.is_null(index) {
        return Ok(Scalar::Null);
    }
    fn number<T: ArrowPrimitiveType>(column: &ArrayRef, index: usize) -> Option<T::Native> {
        Some(column.as_primitive_opt::<T>()?.value(index))
    }
    let value = match &field.data_type {
        DataType::Primitive(primitive) => match primitive {
            Primitive::String => column
                .as_string_opt::<i32>()
                .map(|c| Scalar::String(c.value(index).to_owned())),
            Primitive::Binary => column
                .as_binary_opt::<i32>()
                .map(|c| Scalar::Binary(c.value(index).to_owned())),
            Primitive::Boolean => column
                .as_boolean_opt()
                .map(|c| Scalar::Boolean(c.value(index))),
            Primitive::Long => number::<Int64Type>(column, index).map(Scalar::Long),
            Primitive::Integer => number::<Int32Type>(column, index).map(Scalar::Integer),
            Primitive::Short => number::<Int16Type>(column, index).map(Scalar::Short),
            Primitive::Byte => number::<Int8Type>(column, index).map(Scalar::Byte),
            Primitive::Float => number::<Float32Type>(column, index).map(Scalar::Float),
            Primitive::Double => number::<Float64Type>(column, index).map(Scalar::Double),
            Primitive::Date => number::<Date32Type>(column, index).map(Scalar::Date),
            Primitive::Timestamp => {
                number::<TimestampMicrosecondType>(column, index).map(Scalar::Timestamp)
            }
            Primitive::TimestampNtz => {
                number::<TimestampMicrosecondType>(column, index).map(Scalar::TimestampNtz)
            }
            Primitive::Decimal(p, s) => {
                number::<Decimal128Type>(column, index).map(|v| Scalar::Decimal(v, *p, *s))
            }
            Primitive::Void | Primitive::Variant | Primitive::Other(_) => None,
        },
        DataType::Struct(_) | DataType::Array(_) | DataType::Map(_) => None,
    };
    value.ok_or_else(|| SchemaError::NotPartitionable(field.data_type.to_string()).into())
}
