//! Batches to a Parquet file and its statistics.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatch, StructArray};
use arrow::datatypes::{DataType as Arrow, Field, FieldRef, Fields, Schema};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::conform::written_schema;
use super::convert::{MappingMode, record_batch};
use super::error::DataFileError;
use super::stats::{StatsBuilder, StatsConfig};
use crate::schema::{DataType, Primitive, StructField, StructType, arrow_type};

const ROW_GROUP_ROWS: usize = 1 << 20;
const ROW_GROUP_BYTES: usize = 128 << 20;
const CREATED_BY: &str = concat!("deltafs version ", env!("CARGO_PKG_VERSION"));

/// Writes one data file. Buffers at most one row group.
pub struct Writer {
    writer: ArrowWriter<File>,
    /// The same file: the writer gives it back only with its I/O errors made unrecognisable.
    file: File,
    stats: StatsBuilder,
    schema: StructType,
    physical: Arc<Schema>,
    /// Physical and logical arrays are the same.
    plain: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("rows", &self.stats.rows())
            .finish_non_exhaustive()
    }
}

/// What a data file holds.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    /// Columns of the table, by logical names.
    pub schema: &'a StructType,
    /// Those among them that get no statistics: partition columns, where files hold them.
    pub partition_columns: &'a [String],
    /// 64-bit integers that the table's schema does not know, by their name in the file; the last columns of every
    /// batch. They have no statistics and no field id.
    pub hidden: &'a [&'a str],
}

/// A finished data file; its bytes are on the disk.
#[derive(Debug)]
pub struct Written {
    pub file: File,
    /// Bytes.
    pub size: u64,
    pub rows: u64,
    /// The text for `add.stats`.
    pub stats: String,
}

impl Writer {
    /// A writer into the empty `file`. `schema` is the table's without its partition columns. With column
    /// mapping, physical names and field ids are written (PROTOCOL.md C); void columns never are.
    ///
    /// # Errors
    /// [`DataFileError::Unwritable`] for types that deltafs does not write, and when no column is left.
    pub fn new(
        file: File,
        schema: &StructType,
        stats: &StatsConfig,
        mapping: MappingMode,
    ) -> Result<Self, DataFileError> {
        let columns = Columns {
            schema,
            partition_columns: &[],
            hidden: &[],
        };
        Writer::open(file, &columns, stats, mapping)
    }

    /// As [`Writer::new`], with columns that are in the file and not, or not only, the table's.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn open(
        file: File,
        columns: &Columns<'_>,
        stats: &StatsConfig,
        mapping: MappingMode,
    ) -> Result<Self, DataFileError> {
        let schema = columns.schema;
        let written = written_schema(schema)?;
        if written.fields.is_empty() {
            return Err(DataFileError::Unwritable {
                column: "*".to_owned(),
                found: DataType::Struct(schema.clone()).to_string(),
            });
        }
        let fields = physical_fields(&written, mapping)?;
        let hidden = columns.hidden.iter();
        let hidden = hidden.map(|name| Arc::new(Field::new(*name, Arrow::Int64, true)));
        let fields: Fields = fields.iter().cloned().chain(hidden).collect();
        let physical = Arc::new(Schema::new(fields));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(CREATED_BY.to_owned())
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
            .build();
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(true)
            .with_schema_root("spark_schema".to_owned());
        let copy = file
            .try_clone()
            .map_err(|e| DataFileError::io("writing", e))?;
        let writer = ArrowWriter::try_new_with_options(copy, Arc::clone(&physical), options)
            .map_err(DataFileError::Write)?;
        Ok(Writer {
            writer,
            file,
            stats: StatsBuilder::new(schema, columns.partition_columns, stats),
            plain: mapping == MappingMode::None && written == *schema,
            schema: schema.clone(),
            physical,
        })
    }

    /// Appends rows of the schema's logical Arrow types ([`crate::schema::arrow_schema`]).
    ///
    /// # Errors
    /// [`DataFileError::Write`]; [`DataFileError::Rows`] when the columns are others.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), DataFileError> {
        self.stats.update(batch)?;
        let columns = if self.plain {
            batch.columns().to_vec()
        } else {
            let hidden = batch.columns().iter().skip(self.schema.fields.len());
            written_fields(&self.schema)
                .zip(self.physical.fields())
                .map(|((index, field), physical)| {
                    let column = batch.columns().get(index).ok_or_else(short)?;
                    physical_array(column, &field.data_type, physical)
                })
                .chain(hidden.map(|column| Ok(Arc::clone(column))))
                .collect::<Result<_, _>>()?
        };
        let batch = record_batch(self.physical.fields().clone(), columns, batch.num_rows())?;
        self.writer.write(&batch).map_err(DataFileError::Write)
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.stats.rows()
    }

    /// Bytes of memory that the row group in progress takes.
    pub fn buffered_bytes(&self) -> usize {
        self.writer.memory_size()
    }

    /// Ends the row group in progress.
    ///
    /// # Errors
    /// [`DataFileError::Write`].
    pub fn flush(&mut self) -> Result<(), DataFileError> {
        self.writer.flush().map_err(DataFileError::Write)
    }

    /// Writes the footer and waits until the file is on the disk.
    ///
    /// # Errors
    /// [`DataFileError::Write`], [`DataFileError::Io`].
    pub fn finish(mut self) -> Result<Written, DataFileError> {
        let writing = |e| DataFileError::io("writing", e);
        self.writer.finish().map_err(DataFileError::Write)?;
        self.writer.sync().map_err(writing)?;
        self.file.sync_all().map_err(writing)?;
        Ok(Written {
            size: self.file.metadata().map_err(writing)?.len(),
            rows: self.stats.rows(),
            stats: self.stats.finish(),
            file: self.file,
        })
    }
}

fn short() -> DataFileError {
    DataFileError::Write(ParquetError::General("a batch lacks columns".to_owned()))
}

/// The fields that are written, with their index.
fn written_fields(schema: &StructType) -> impl Iterator<Item = (usize, &StructField)> {
    let void = DataType::Primitive(Primitive::Void);
    let fields = schema.fields.iter().enumerate();
    fields.filter(move |(_, f)| f.data_type != void)
}

/// `written` under physical names, with field ids.
fn physical_fields(written: &StructType, mapping: MappingMode) -> Result<Fields, DataFileError> {
    written
        .fields
        .iter()
        .map(|field| {
            let data_type = physical_type(&field.data_type, mapping)?;
            let name = match mapping {
                MappingMode::None => &field.name,
                MappingMode::Name | MappingMode::Id => field.physical_name(),
            };
            let made = Field::new(name, data_type, field.nullable);
            Ok(match field.mapping_id() {
                Some(id) if mapping != MappingMode::None => made.with_metadata(HashMap::from([(
                    PARQUET_FIELD_ID_META_KEY.to_owned(),
                    id.to_string(),
                )])),
                _ => made,
            })
        })
        .collect()
}

fn physical_type(data_type: &DataType, mapping: MappingMode) -> Result<Arrow, DataFileError> {
    // Lists and maps have the names that Parquet's standard gives them already.
    let rename = |field: &FieldRef, inner: &DataType| {
        let made = physical_type(inner, mapping)?;
        Ok::<_, DataFileError>(Arc::new((**field).clone().with_data_type(made)))
    };
    Ok(match (data_type, arrow_type(data_type)?) {
        (DataType::Struct(fields), _) => Arrow::Struct(physical_fields(fields, mapping)?),
        (DataType::Array(array), Arrow::List(field)) => {
            Arrow::List(rename(&field, &array.element_type)?)
        }
        (DataType::Map(map), Arrow::Map(entries, sorted)) => match entries.data_type() {
            Arrow::Struct(kv) => {
                let types = [&map.key_type, &map.value_type];
                let kv = kv.iter().zip(types);
                let kv = kv
                    .map(|(f, t)| rename(f, t))
                    .collect::<Result<Fields, _>>()?;
                let entries = (*entries).clone().with_data_type(Arrow::Struct(kv));
                Arrow::Map(Arc::new(entries), sorted)
            }
            other => other.clone(),
        },
        (_, plain) => plain,
    })
}

/// The array under physical names, without void children.
fn physical_array(
    array: &ArrayRef,
    data_type: &DataType,
    field: &Field,
) -> Result<ArrayRef, DataFileError> {
    if array.data_type() == field.data_type() {
        return Ok(Arc::clone(array));
    }
    let made: ArrayRef = match (data_type, field.data_type()) {
        (DataType::Struct(schema), Arrow::Struct(physical)) => {
            let from = array.as_struct_opt().ok_or_else(short)?;
            let columns = written_fields(schema)
                .zip(physical)
                .map(|((index, f), physical)| {
                    let column = from.columns().get(index).ok_or_else(short)?;
                    physical_array(column, &f.data_type, physical)
                })
                .collect::<Result<_, _>>()?;
            let made = StructArray::try_new(physical.clone(), columns, from.nulls().cloned());
            Arc::new(made.map_err(DataFileError::rows)?)
        }
        (DataType::Array(list), Arrow::List(element)) => {
            let from = array.as_list_opt::<i32>().ok_or_else(short)?;
            let values = physical_array(from.values(), &list.element_type, element)?;
            let made = ListArray::try_new(
                Arc::clone(element),
                from.offsets().clone(),
                values,
                from.nulls().cloned(),
            );
            Arc::new(made.map_err(DataFileError::rows)?)
        }
        (DataType::Map(map), Arrow::Map(entries, sorted)) => {
            let from = array.as_map_opt().ok_or_else(short)?;
            let Arrow::Struct(kv) = entries.data_type() else {
                return Err(short());
            };
            let [key, value] = kv.iter().as_slice() else {
                return Err(short());
            };
            let columns = vec![
                physical_array(from.keys(), &map.key_type, key)?,
                physical_array(from.values(), &map.value_type, value)?,
            ];
            let made = StructArray::try_new(kv.clone(), columns, None).and_then(|made| {
                MapArray::try_new(
                    Arc::clone(entries),
                    from.offsets().clone(),
                    made,
                    from.nulls().cloned(),
                    *sorted,
                )
            });
            Arc::new(made.map_err(DataFileError::rows)?)
        }
        _ => Arc::clone(array),
    };
    Ok(made)
}
