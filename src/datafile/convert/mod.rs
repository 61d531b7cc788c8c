//! Value-preserving conversion of Arrow arrays to a table's types (PROTOCOL.md D), at every depth.
//!
//! Converted arrays are nullable at every depth; [`nulls`] counts what violates NOT NULL and [`seal`] then
//! gives them the table's exact type.

mod leaf;
mod nested;
mod nulls;
#[cfg(test)]
mod tests;

pub(crate) use nulls::{NullTally, seal};

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType as Arrow, Field, Fields, Schema};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

use super::error::{DataFileError, Loss};
use crate::schema::{DataType, Primitive, SchemaError, StructField, StructType, arrow_type};

/// How a column of the file is found for one of the table (PROTOCOL.md C).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MappingMode {
    /// By its name.
    #[default]
    None,
    /// By its physical name.
    Name,
    /// By its Parquet field id.
    Id,
}

/// How strict a conversion is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Data on its way in: only what keeps every value.
    Exact,
    /// Data that is in the table: whatever other writers stored for the type. Timestamps without a zone are
    /// UTC, nanoseconds are cut.
    Stored,
}

/// Where an array is in its file, for errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) path: Path<'a>,
    pub(crate) rows: Rows<'a>,
}

/// A column path, innermost name last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    name: &'a str,
}

impl<'a> Path<'a> {
    pub(crate) fn top(name: &'a str) -> Self {
        Path { parent: None, name }
    }

    pub(crate) fn join(&'a self, name: &'a str) -> Self {
        Path {
            parent: Some(self),
            name,
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.name)
    }
}

/// Maps an index of an array to the row of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// Consecutive rows from here.
    From(u64),
    /// The rows of these ranges, in order.
    Ranges(&'a [Range<u64>]),
    /// Elements of lists, which have rows of their own.
    Elements(&'a Rows<'a>, &'a OffsetBuffer<i32>),
}

impl Rows<'_> {
    pub(crate) fn row(&self, index: usize) -> u64 {
        match self {
            Rows::From(first) => first.saturating_add(index as u64),
            Rows::Ranges(ranges) => {
                let mut left = index as u64;
                for range in *ranges {
                    let len = range.end.saturating_sub(range.start);
                    if left < len {
                        return range.start + left;
                    }
                    left -= len;
                }
                left
            }
            Rows::Elements(parent, offsets) => {
                let slot = offsets
                    .partition_point(|end| usize::try_from(*end).unwrap_or(0) <= index)
                    .saturating_sub(1);
                parent.row(slot)
            }
        }
    }
}

/// The index of the file's column for `field`: an exact match wins over one that ignores case.
pub(crate) fn find(fields: &Fields, field: &StructField, mode: MappingMode) -> Option<usize> {
    let by_name = |name: &str| {
        fields.iter().position(|f| f.name() == name).or_else(|| {
            let lower = name.to_lowercase();
            fields.iter().position(|f| f.name().to_lowercase() == lower)
        })
    };
    match mode {
        MappingMode::None => by_name(&field.name),
        MappingMode::Name => by_name(field.physical_name()),
        MappingMode::Id => {
            let id_of = |f: &Field| f.metadata().get(PARQUET_FIELD_ID_META_KEY).cloned();
            match field.mapping_id().map(|id| id.to_string()) {
                Some(id) => fields.iter().position(|f| id_of(f).as_ref() == Some(&id)),
                // Not a column of the table's (row tracking keeps such): it has no id in the file either.
                None => fields
                    .iter()
                    .position(|f| f.name() == field.physical_name() && id_of(f).is_none()),
            }
        }
    }
}

/// The Arrow type of `data_type` with NULL allowed wherever Arrow can hold one.
pub(crate) fn relaxed_type(data_type: &DataType) -> Result<Arrow, SchemaError> {
    Ok(match data_type {
        DataType::Struct(fields) => Arrow::Struct(relaxed_fields(fields)?),
        DataType::Array(array) => Arrow::List(Arc::new(Field::new(
            "element",
            relaxed_type(&array.element_type)?,
            true,
        ))),
        DataType::Map(map) => {
            let (key, value) = (relaxed_type(&map.key_type)?, relaxed_type(&map.value_type)?);
            Arrow::Map(Arc::new(nested::entries_field(key, value, true)), false)
        }
        DataType::Primitive(_) => arrow_type(data_type)?,
    })
}

pub(crate) fn relaxed_fields(fields: &StructType) -> Result<Fields, SchemaError> {
    fields
        .fields
        .iter()
        .map(|f| Ok(Field::new(&f.name, relaxed_type(&f.data_type)?, true)))
        .collect()
}

/// Converts an array to `to`, with NULL allowed everywhere. Values under a NULL parent are not looked at.
///
/// # Errors
/// [`DataFileError::Type`] and its kin when no conversion exists (an empty array is enough to find out),
/// [`DataFileError::Value`] for the first value that would change.
pub(crate) fn convert(
    array: &ArrayRef,
    to: &DataType,
    mode: MappingMode,
    rules: Rules,
    at: &Place<'_>,
) -> Result<ArrayRef, DataFileError> {
    let cx = nested::Cx { mode, rules };
    match array.data_type() {
        Arrow::Dictionary(_, value) => {
            let plain = cast(array, value)?;
            return convert(&plain, to, mode, rules, at);
        }
        Arrow::RunEndEncoded(_, value) => {
            let plain = cast(array, value.data_type())?;
            return convert(&plain, to, mode, rules, at);
        }
        Arrow::Null => {
            return Ok(new_null_array(&relaxed_type(to)?, array.len()));
        }
        _ => {}
    }
    match to {
        DataType::Primitive(Primitive::Void) => leaf::to_void(array, rules, at),
        DataType::Primitive(Primitive::Variant) if rules == Rules::Stored => {
            nested::to_variant(array, at)
        }
        DataType::Primitive(Primitive::Variant) => Err(DataFileError::Unwritable {
            column: at.path.to_string(),
            found: to.to_string(),
        }),
        DataType::Primitive(primitive) => leaf::to_primitive(array, primitive, rules, at),
        DataType::Struct(fields) => nested::to_struct(array, fields, cx, at),
        DataType::Array(element) => nested::to_list(array, element, cx, at),
        DataType::Map(map) => nested::to_map(array, map, cx, at),
    }
}

/// Converts the columns of a batch to those of `schema`, in its order; missing columns become NULL.
///
/// # Errors
/// As [`convert`].
pub(crate) fn convert_columns(
    batch: &RecordBatch,
    schema: &StructType,
    mode: MappingMode,
    rules: Rules,
    rows: Rows<'_>,
) -> Result<RecordBatch, DataFileError> {
    let file = batch.schema();
    let mut columns = Vec::with_capacity(schema.fields.len());
    for field in &schema.fields {
        let at = Place {
            path: Path::top(&field.name),
            rows,
        };
        columns.push(match find(file.fields(), field, mode) {
            Some(index) => convert(batch.column(index), &field.data_type, mode, rules, &at)?,
            None => new_null_array(&relaxed_type(&field.data_type)?, batch.num_rows()),
        });
    }
    record_batch(relaxed_fields(schema)?, columns, batch.num_rows())
}

/// A batch that keeps its row count without columns.
pub(crate) fn record_batch(
    fields: Fields,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, DataFileError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(DataFileError::rows)
}

/// Arrow's cast where it can't lose anything.
fn cast(array: &ArrayRef, to: &Arrow) -> Result<ArrayRef, DataFileError> {
    let options = arrow::compute::CastOptions {
        safe: false,
        ..Default::default()
    };
    arrow::compute::cast_with_options(array, to, &options).map_err(DataFileError::rows)
}

/// The array with everything under `parent`'s NULLs NULL, too.
fn mask(array: &ArrayRef, parent: Option<&NullBuffer>) -> Result<ArrayRef, DataFileError> {
    match parent {
        Some(parent) if parent.null_count() > 0 && array.data_type() != &Arrow::Null => {
            // Dictionaries keep NULLs among their values, too; a merge of the keys' is enough here.
            let nulls = NullBuffer::union(Some(parent), array.nulls());
            let data = array.to_data().into_builder().nulls(nulls).build();
            Ok(arrow::array::make_array(data.map_err(DataFileError::rows)?))
        }
        _ => Ok(Arc::clone(array)),
    }
}

fn type_error(array: &ArrayRef, expected: &dyn fmt::Display, at: &Place<'_>) -> DataFileError {
    DataFileError::Type {
        column: at.path.to_string(),
        expected: expected.to_string(),
        found: array.data_type().to_string(),
    }
}

/// Names the value at `index` of the array as it was found.
fn value_error(
    array: &ArrayRef,
    index: usize,
    loss: Loss,
    expected: &dyn fmt::Display,
    at: &Place<'_>,
) -> DataFileError {
    DataFileError::Value {
        column: at.path.to_string(),
        expected: expected.to_string(),
        found: array.data_type().to_string(),
        value: show(array, index),
        row: at.rows.row(index),
        loss,
    }
}

/// A value as text for messages, cut to 100 characters.
pub(crate) fn show(array: &ArrayRef, index: usize) -> String {
    let text = arrow::util::display::array_value_to_string(array, index)
        .unwrap_or_else(|_| "?".to_owned());
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
