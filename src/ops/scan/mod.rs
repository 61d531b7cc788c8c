//! The live rows of a snapshot, as a reader of the table sees them: logical names and types, dead rows left out,
//! partition values from the log. One batch is in memory at a time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::OpError;
use crate::datafile::Reader;
use crate::schema::{Primitive, StructType, arrow_schema};
use crate::table::{DataPath, LiveFile, Snapshot, Table, TableError};

/// Rows of a batch, at most: a batch of wide rows has fewer.
const BATCH_ROWS: usize = 8192;

/// Iterates over the live rows, file by file in the order of their paths. Blocks. Ends after the first error:
/// rows that come before it are right, but they are not all.
pub struct Scan<'a> {
    table: &'a Table,
    snapshot: &'a Snapshot,
    schema: SchemaRef,
    columns: Vec<String>,
    files: Box<dyn Iterator<Item = Arc<LiveFile>> + 'a>,
    open: Option<(Arc<LiveFile>, Reader)>,
}

/// Starts to read `snapshot`, which must be one of `table`.
///
/// # Errors
/// [`OpError::Table`] when the feature gate refuses to read the table, [`OpError::UnreadableType`] when a column
/// has a type that this version does not know. Errors of single files come from the iterator.
pub fn scan<'a>(table: &'a Table, snapshot: &'a Snapshot) -> Result<Scan<'a>, OpError> {
    snapshot.check_read()?;
    check_types(snapshot.schema())?;
    let schema = arrow_schema(snapshot.schema())?;
    let columns = snapshot.schema().fields.iter().map(|f| f.name.clone());
    Ok(Scan {
        table,
        snapshot,
        schema: Arc::new(schema),
        columns: columns.collect(),
        files: Box::new(snapshot.live_files()),
        open: None,
    })
}

impl std::fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan")
            .field("version", &self.snapshot.version())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl Scan<'_> {
    /// The schema of the batches: the table's columns in its Arrow types.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn reader(&self, file: &LiveFile) -> Result<Reader, OpError> {
        let path = match &file.path {
            DataPath::Inside(path) => path,
            DataPath::Outside(path) => return Err(TableError::Outside(path.clone()).into()),
        };
        let dead = self.table.dead_rows(file)?;
        let bytes = self.table.dir().open_file(Path::new(path)).map_err(|e| {
            if e.is_absent() {
                OpError::MissingFile {
                    path: path.clone(),
                    version: self.snapshot.version(),
                }
            } else {
                e.into()
            }
        })?;
        let schema = self.snapshot.schema();
        // Never from the file: it may hold such a column, too, and the log decides (PROTOCOL.md A4, E).
        let mut partition = BTreeMap::new();
        for column in self.snapshot.partition_columns() {
            if let Some(field) = schema.field(column) {
                let value = self.snapshot.partition_value(&file.add, column);
                partition.insert(field.physical_name().to_owned(), value.map(str::to_owned));
            }
        }
        let mapping = self.snapshot.mapping();
        let reader = Reader::open(
            bytes,
            schema,
            &self.columns,
            &partition,
            mapping,
            Some(&dead),
            BATCH_ROWS,
        );
        reader.map_err(|source| in_file(file, source))
    }

    fn step(&mut self) -> Result<Option<RecordBatch>, OpError> {
        loop {
            if let Some((file, reader)) = &mut self.open {
                match reader.next() {
                    Some(Ok((batch, _))) => return Ok(Some(batch)),
                    Some(Err(source)) => return Err(in_file(file, source)),
                    None => self.open = None,
                }
            }
            let Some(file) = self.files.next() else {
                return Ok(None);
            };
            let reader = self.reader(&file)?;
            self.open = Some((file, reader));
        }
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<RecordBatch, OpError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.step().transpose();
        if !matches!(item, Some(Ok(_))) {
            self.open = None;
            self.files = Box::new(std::iter::empty());
        }
        item
    }
}

fn in_file(file: &LiveFile, source: crate::datafile::DataFileError) -> OpError {
    OpError::File {
        path: file.path.key().to_owned(),
        source: Box::new(source),
    }
}

/// A type that we can't name has no form in which its values could be shown.
fn check_types(schema: &StructType) -> Result<(), OpError> {
    for field in &schema.fields {
        let mut unknown = None;
        field.data_type.any_primitive(&mut |p| {
            if let Primitive::Other(name) = p {
                unknown = Some(name.clone());
            }
            unknown.is_some()
        });
        if let Some(found) = unknown {
            return Err(OpError::UnreadableType {
                column: field.name.clone(),
                found,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod round_trip_tests;
#[cfg(test)]
pub(in crate::ops) mod testing;
#[cfg(test)]
mod tests;
