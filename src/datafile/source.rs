//! Reading an open file at positions, and decoding its rows batch by batch.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, RowSelection,
};
use parquet::basic::Type as Physical;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::schema::types::SchemaDescriptor;

use super::error::DataFileError;
use crate::error::caught;
use crate::log::checked_batches;

/// Rows of a decoded batch.
pub(crate) const BATCH_ROWS: usize = 8192;

/// Bytes that a decoded batch should not exceed by much.
const BATCH_BYTES: u64 = 32 << 20;

/// Bytes of a decoded list item and its levels.
const ITEM_BYTES: i64 = 8;

/// A file read by position: parquet's own reader of `File` seeks, and a seek moves every clone's offset.
#[derive(Debug, Clone)]
pub(crate) struct Positioned {
    file: Arc<File>,
    len: u64,
}

impl Positioned {
    pub(crate) fn new(file: File) -> std::io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Positioned {
            file: Arc::new(file),
            len,
        })
    }
}

/// A cursor of its own over a [`Positioned`] file.
#[derive(Debug)]
pub(crate) struct Cursor {
    file: Arc<File>,
    at: u64,
}

impl Read for Cursor {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read_at(buf, self.at)?;
        self.at = self.at.saturating_add(n as u64);
        Ok(n)
    }
}

impl Length for Positioned {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Positioned {
    type T = BufReader<Cursor>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(BufReader::new(Cursor {
            file: Arc::clone(&self.file),
            at: start,
        }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let fits = start
            .checked_add(length as u64)
            .is_some_and(|end| end <= self.len);
        if !fits {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} of a file of {}",
                self.len
            )));
        }
        let mut buffer = vec![0; length];
        self.file.read_exact_at(&mut buffer, start)?;
        Ok(buffer.into())
    }
}

/// A checked file, ready to decode. Types come from the Parquet schema alone: an embedded Arrow schema is
/// advice of the writer, and decoding a hostile one can bring the process down.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    input: Positioned,
    reader: ArrowReaderMetadata,
    /// The columns' types, where they are not those of the Parquet schema alone.
    types: Option<Fields>,
}

impl Source {
    /// Prepares decoding with `metadata` that [`super::adopt`] has checked.
    pub(crate) fn new(file: File, metadata: Arc<ParquetMetaData>) -> Result<Self, DataFileError> {
        let input = Positioned::new(file).map_err(|e| DataFileError::io("reading", e))?;
        let (reader, types) = reader_metadata(metadata)?;
        Ok(Source {
            input,
            reader,
            types,
        })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        self.reader.schema()
    }

    pub(crate) fn metadata(&self) -> &Arc<ParquetMetaData> {
        self.reader.metadata()
    }

    pub(crate) fn input(&self) -> &Positioned {
        &self.input
    }

    /// Rows of the file, by its footer.
    pub(crate) fn rows(&self) -> u64 {
        u64::try_from(self.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// At most `wanted` rows, and fewer where the footer says that so many would take more than [`BATCH_BYTES`].
    pub(crate) fn fitting_rows(&self, wanted: usize) -> usize {
        let row_bytes = self.metadata().row_groups().iter().map(|group| {
            let chunk_bytes = |chunk: &ColumnChunkMetaData| {
                // A dictionary keeps a value once that comes in many rows.
                let values = chunk.unencoded_byte_array_data_bytes().unwrap_or(0);
                // Equal items of lists hardly take a byte in the file.
                let items = match chunk.column_descr().max_rep_level() {
                    0 => 0,
                    _ => chunk.num_values().saturating_mul(ITEM_BYTES),
                };
                let bytes = chunk.uncompressed_size().max(values).max(items);
                u64::try_from(bytes).unwrap_or(0)
            };
            let bytes: u64 = group.columns().iter().map(chunk_bytes).sum();
            bytes / u64::try_from(group.num_rows()).unwrap_or(0).max(1)
        });
        let rows = BATCH_BYTES / row_bytes.max().unwrap_or(0).max(1);
        wanted
            .min(usize::try_from(rows).unwrap_or(usize::MAX))
            .max(1)
    }

    /// Decodes the top-level columns `roots` (indices into [`Self::schema`]; none still gives row counts).
    pub(crate) fn batches(
        &self,
        roots: &[usize],
        selection: Option<RowSelection>,
        batch_rows: usize,
    ) -> Result<Batches, DataFileError> {
        let descriptor = self.metadata().file_metadata().schema_descr();
        let mask = ProjectionMask::roots(
            descriptor,
            roots.iter().filter_map(|i| parquet_root(descriptor, *i)),
        );
        let open = || {
            checked_batches(
                self.input.clone(),
                self.metadata(),
                mask,
                self.types.as_ref(),
                batch_rows.max(1),
                selection,
            )
        };
        let built = caught(open).ok_or(DataFileError::Decoder)?;
        Ok(Batches(Some(built.map_err(DataFileError::Pages)?)))
    }
}

/// Decoded batches. Damage that makes the decoder panic is an error like other damage, and the last item.
pub(crate) struct Batches(Option<ParquetRecordBatchReader>);

impl Iterator for Batches {
    type Item = Result<RecordBatch, DataFileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.0.as_mut()?;
        let item = match caught(|| reader.next()) {
            Some(item) => item.map(|batch| batch.map_err(DataFileError::rows)),
            None => Some(Err(DataFileError::Decoder)),
        };
        if !matches!(item, Some(Ok(_))) {
            self.0 = None;
        }
        item
    }
}

/// The index among the Parquet root's children of the `index`-th column of the Arrow schema: groups without
/// leaves have no Arrow column.
fn parquet_root(descriptor: &SchemaDescriptor, index: usize) -> Option<usize> {
    let mut roots: Vec<usize> = (0..descriptor.num_columns())
        .map(|leaf| descriptor.get_column_root_idx(leaf))
        .collect();
    roots.dedup();
    roots.get(index).copied()
}

/// Types by the Parquet schema; INT96 as instants in microseconds, since nanoseconds would wrap (D77).
fn reader_metadata(
    metadata: Arc<ParquetMetaData>,
) -> Result<(ArrowReaderMetadata, Option<Fields>), DataFileError> {
    let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let plain =
        ArrowReaderMetadata::try_new(Arc::clone(&metadata), options()).map_err(footer_error)?;
    let descriptor = metadata.file_metadata().schema_descr();
    let has_int96 = (0..descriptor.num_columns())
        .any(|i| descriptor.column(i).physical_type() == Physical::INT96);
    if !has_int96 {
        return Ok((plain, None));
    }
    let mut leaf = 0;
    let fields = micros_for_int96(plain.schema().fields(), descriptor, &mut leaf);
    let schema = Arc::new(Schema::new_with_metadata(
        fields.clone(),
        plain.schema().metadata().clone(),
    ));
    let reader = ArrowReaderMetadata::try_new(metadata, options().with_schema(schema));
    Ok((reader.map_err(footer_error)?, Some(fields)))
}

fn footer_error(error: ParquetError) -> DataFileError {
    DataFileError::Footer {
        reason: error.to_string(),
    }
}

fn micros_for_int96(fields: &Fields, descriptor: &SchemaDescriptor, leaf: &mut usize) -> Fields {
    fields
        .iter()
        .map(|field| micros_field(field, descriptor, leaf))
        .collect()
}

/// Arrow leaves come in the order of Parquet's.
fn micros_field(field: &Field, descriptor: &SchemaDescriptor, leaf: &mut usize) -> Field {
    let data_type = match field.data_type() {
        DataType::Struct(children) => {
            DataType::Struct(micros_for_int96(children, descriptor, leaf))
        }
        DataType::List(item) => DataType::List(Arc::new(micros_field(item, descriptor, leaf))),
        DataType::Map(entries, sorted) => {
            DataType::Map(Arc::new(micros_field(entries, descriptor, leaf)), *sorted)
        }
        other => {
            let index = *leaf;
            *leaf += 1;
            if index < descriptor.num_columns()
                && descriptor.column(index).physical_type() == Physical::INT96
            {
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            } else {
                other.clone()
            }
        }
    };
    field.clone().with_data_type(data_type)
}
