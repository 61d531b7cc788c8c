//! NOT NULL at every depth, and the exact types that promise it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatch, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType as Arrow;
use arrow::error::ArrowError;

use super::{Path, record_batch};
use crate::datafile::error::DataFileError;
use crate::schema::{DataType, StructType, arrow_schema};

/// NULLs found in columns that may have none, over all batches of a file.
#[derive(Debug, Default)]
pub(crate) struct NullTally {
    found: Vec<(String, u64)>,
}

impl NullTally {
    /// Counts the violations in a converted batch whose columns are those of `schema`.
    pub(crate) fn add(&mut self, batch: &RecordBatch, schema: &StructType) {
        for (field, column) in schema.fields.iter().zip(batch.columns()) {
            let path = Path::top(&field.name);
            self.walk(column, &field.data_type, field.nullable, None, &path);
        }
    }

    fn walk(
        &mut self,
        array: &ArrayRef,
        data_type: &DataType,
        nullable: bool,
        parent: Option<&NullBuffer>,
        path: &Path<'_>,
    ) {
        let nulls = NullBuffer::union(parent, array.logical_nulls().as_ref());
        if !nullable {
            let own = nulls.as_ref().map_or(0, NullBuffer::null_count)
                - parent.map_or(0, NullBuffer::null_count);
            if own > 0 {
                self.count(path, own as u64);
            }
        }
        match data_type {
            DataType::Primitive(_) => {}
            DataType::Struct(fields) => {
                if let Some(array) = array.as_struct_opt() {
                    for (field, child) in fields.fields.iter().zip(array.columns()) {
                        let inner = path.join(&field.name);
                        self.walk(
                            child,
                            &field.data_type,
                            field.nullable,
                            nulls.as_ref(),
                            &inner,
                        );
                    }
                }
            }
            DataType::Array(list) => {
                if let Some(array) = array.as_list_opt::<i32>() {
                    let inner = path.join("element");
                    self.walk(
                        array.values(),
                        &list.element_type,
                        list.contains_null,
                        None,
                        &inner,
                    );
                }
            }
            DataType::Map(map) => {
                if let Some(array) = array.as_map_opt() {
                    let (key, value) = (path.join("key"), path.join("value"));
                    self.walk(array.keys(), &map.key_type, false, None, &key);
                    self.walk(
                        array.values(),
                        &map.value_type,
                        map.value_contains_null,
                        None,
                        &value,
                    );
                }
            }
        }
    }

    fn count(&mut self, path: &Path<'_>, rows: u64) {
        let column = path.to_string();
        match self.found.iter_mut().find(|(c, _)| *c == column) {
            Some((_, total)) => *total += rows,
            None => self.found.push((column, rows)),
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// # Errors
    /// [`DataFileError::Nulls`] for the first column that has any.
    pub(crate) fn verdict(&self) -> Result<(), DataFileError> {
        match self.found.first() {
            None => Ok(()),
            Some((column, rows)) => Err(DataFileError::Nulls {
                column: column.clone(),
                rows: *rows,
            }),
        }
    }
}

/// Gives a converted batch, which has no violations, the exact types of `schema`.
pub(crate) fn seal(batch: RecordBatch, schema: &StructType) -> Result<RecordBatch, DataFileError> {
    let exact = arrow_schema(schema)?;
    if **batch.schema_ref() == exact {
        return Ok(batch);
    }
    let rows = batch.num_rows();
    let columns = batch
        .columns()
        .iter()
        .zip(exact.fields())
        .map(|(column, field)| seal_array(column, field.data_type()))
        .collect::<Result<Vec<_>, _>>()?;
    record_batch(exact.fields().clone(), columns, rows)
}

fn other_type() -> DataFileError {
    DataFileError::Rows(ArrowError::CastError("not a converted array".to_owned()))
}

fn seal_array(array: &ArrayRef, exact: &Arrow) -> Result<ArrayRef, DataFileError> {
    if array.data_type() == exact {
        return Ok(Arc::clone(array));
    }
    let sealed: ArrayRef = match exact {
        Arrow::Struct(fields) => {
            let from = array.as_struct_opt().ok_or_else(other_type)?;
            let columns = from
                .columns()
                .iter()
                .zip(fields)
                .map(|(column, field)| seal_array(column, field.data_type()))
                .collect::<Result<Vec<_>, _>>()?;
            let made = StructArray::try_new(fields.clone(), columns, from.nulls().cloned());
            Arc::new(made.map_err(DataFileError::rows)?)
        }
        Arrow::List(field) => {
            let from = array.as_list_opt::<i32>().ok_or_else(other_type)?;
            let values = seal_array(from.values(), field.data_type())?;
            let made = ListArray::try_new(
                Arc::clone(field),
                from.offsets().clone(),
                values,
                from.nulls().cloned(),
            );
            Arc::new(made.map_err(DataFileError::rows)?)
        }
        Arrow::Map(field, sorted) => {
            let from = array.as_map_opt().ok_or_else(other_type)?;
            let entries: ArrayRef = Arc::new(from.entries().clone());
            let entries = seal_array(&entries, field.data_type())?;
            let made = MapArray::try_new(
                Arc::clone(field),
                from.offsets().clone(),
                entries.as_struct_opt().ok_or_else(other_type)?.clone(),
                from.nulls().cloned(),
                *sorted,
            );
            Arc::new(made.map_err(DataFileError::rows)?)
        }
        other => super::cast(array, other)?,
    };
    Ok(sealed)
}
