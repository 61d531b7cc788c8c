//! A dropped file, checked before it is taken over as it is.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    RowGroupMetaData,
};

use super::error::DataFileError;
use super::source::{Positioned, Source};
use crate::log::check_footer;

const MAGIC: &[u8; 4] = b"PAR1";
const ENCRYPTED: &[u8; 4] = b"PARE";
/// Magic, footer length, magic.
const FRAME: u64 = 12;
/// A larger footer is a lie or an attack: a million column chunks need about 100 MiB.
const MAX_FOOTER: u64 = 512 << 20;

/// What a checked file says of itself.
#[derive(Debug, Clone)]
pub struct Inspected {
    /// The footer, without page indexes.
    pub metadata: Arc<ParquetMetaData>,
    /// Columns by the Parquet schema; INT96 is a timestamp in microseconds, UTC.
    pub schema: SchemaRef,
    pub rows: u64,
    /// Bytes of the file.
    pub size: u64,
}

/// Whether the file looks like a whole Parquet file: magic at both ends and a footer that fits between.
/// Reads 12 bytes. A `true` is no promise: [`inspect`] checks.
///
/// # Errors
/// Those of reading.
pub fn is_parquet_complete(file: &File) -> std::io::Result<bool> {
    match frame(file) {
        Ok(_) => Ok(true),
        Err(DataFileError::Io { source, .. }) => Err(source),
        Err(_) => Ok(false),
    }
}

/// Parses the footer and checks what it says against the file: pages and indexes lie before the footer, row
/// counts agree, nothing is encrypted or elsewhere. Pages themselves are not decoded.
///
/// # Errors
/// Names what is wrong; see [`DataFileError`].
pub fn inspect(file: &File) -> Result<Inspected, DataFileError> {
    let (metadata, size) = read_footer(file)?;
    let copy = file
        .try_clone()
        .map_err(|e| DataFileError::io("reading", e))?;
    let source = Source::new(copy, Arc::clone(&metadata))?;
    Ok(Inspected {
        schema: Arc::clone(source.schema()),
        rows: source.rows(),
        metadata,
        size,
    })
}

/// The checked footer and the file's size.
pub(crate) fn read_footer(file: &File) -> Result<(Arc<ParquetMetaData>, u64), DataFileError> {
    let (footer_start, size) = frame(file)?;
    let reading = |e| DataFileError::io("reading", e);
    let len = size - 8 - footer_start;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut bytes, footer_start)
        .map_err(reading)?;
    check_footer(&bytes).map_err(|reason| DataFileError::Footer { reason })?;
    let input = Positioned::new(file.try_clone().map_err(reading)?).map_err(reading)?;
    // Whole encoding statistics: who writes this footer again needs them.
    let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
    let metadata = ParquetMetaDataReader::new()
        .with_metadata_options(Some(options))
        .parse_and_finish(&input)
        .map_err(|e| DataFileError::Footer {
            reason: e.to_string(),
        })?;
    check_ranges(&metadata, footer_start)?;
    Ok((Arc::new(metadata), size))
}

/// Where the footer starts, and the file's size.
fn frame(file: &File) -> Result<(u64, u64), DataFileError> {
    let reading = |e| DataFileError::io("reading", e);
    let size = file.metadata().map_err(reading)?.len();
    if size == 0 {
        return Err(DataFileError::Empty);
    }
    let mut head = [0; 4];
    if size < 4 {
        return Err(DataFileError::NotParquet);
    }
    file.read_exact_at(&mut head, 0).map_err(reading)?;
    if &head == ENCRYPTED {
        return Err(DataFileError::Encrypted);
    }
    if &head != MAGIC {
        return Err(DataFileError::NotParquet);
    }
    if size < FRAME {
        return Err(DataFileError::NoTail { size });
    }
    let mut tail = [0; 8];
    file.read_exact_at(&mut tail, size - 8).map_err(reading)?;
    let [a, b, c, d, magic @ ..] = tail;
    if &magic == ENCRYPTED {
        return Err(DataFileError::Encrypted);
    }
    if &magic != MAGIC {
        return Err(DataFileError::NoTail { size });
    }
    let footer = u64::from(u32::from_le_bytes([a, b, c, d]));
    if footer > size - FRAME || footer > MAX_FOOTER {
        return Err(DataFileError::FooterLength { footer, size });
    }
    Ok((size - 8 - footer, size))
}

/// `limit` is where the footer starts.
fn check_ranges(metadata: &ParquetMetaData, limit: u64) -> Result<(), DataFileError> {
    let mut total = 0_i64;
    for (index, group) in metadata.row_groups().iter().enumerate() {
        let rows = group.num_rows();
        if rows < 0 {
            return Err(row_count(format!("row group {index}"), rows, 0));
        }
        total = total.saturating_add(rows);
        // Some writers leave nonsense where there is nothing to point at.
        if rows == 0 {
            continue;
        }
        for column in group.columns() {
            check_chunk(index, group, column, limit)?;
        }
    }
    let claimed = metadata.file_metadata().num_rows();
    if claimed != total {
        return Err(row_count("the file".to_owned(), claimed, total));
    }
    Ok(())
}

fn row_count(what: String, expected: i64, found: i64) -> DataFileError {
    DataFileError::RowCount {
        what,
        expected,
        found,
    }
}

fn check_chunk(
    row_group: usize,
    group: &RowGroupMetaData,
    chunk: &ColumnChunkMetaData,
    limit: u64,
) -> Result<(), DataFileError> {
    let column = || chunk.column_path().string();
    if let Some(path) = chunk.file_path().filter(|p| !p.is_empty()) {
        return Err(DataFileError::External {
            column: column(),
            path: path.to_owned(),
        });
    }
    let inside = |part: &'static str, start: i64, len: i64| {
        let end = u64::try_from(start)
            .ok()
            .filter(|s| *s >= 4)
            .zip(u64::try_from(len).ok())
            .and_then(|(s, n)| s.checked_add(n));
        match end {
            Some(end) if end <= limit => Ok(()),
            _ => Err(DataFileError::OutOfFile {
                column: column(),
                row_group,
                part,
                start,
                len,
                limit,
            }),
        }
    };
    let data = chunk.data_page_offset();
    let size = chunk.compressed_size();
    // An empty chunk of some writers has neither pages nor a place.
    if size != 0 || chunk.num_values() != 0 {
        let start = match chunk.dictionary_page_offset() {
            Some(dictionary) => {
                inside("dictionary page", dictionary, 0)?;
                let before = data
                    .checked_sub(dictionary)
                    .filter(|n| (0..=size).contains(n));
                if before.is_none() {
                    inside("dictionary page", dictionary, i64::MAX)?;
                }
                dictionary
            }
            None => data,
        };
        inside("first data page", data, 0)?;
        inside("data", start, size)?;
    } else if data < 0 || chunk.dictionary_page_offset().is_some_and(|d| d < 0) {
        inside("data", data.min(-1), size)?;
    }
    if chunk.uncompressed_size() < 0 {
        inside("uncompressed data", data, chunk.uncompressed_size())?;
    }
    for (part, start, len) in [
        (
            "column index",
            chunk.column_index_offset(),
            chunk.column_index_length().map(i64::from),
        ),
        (
            "page index",
            chunk.offset_index_offset(),
            chunk.offset_index_length().map(i64::from),
        ),
        (
            "bloom filter",
            chunk.bloom_filter_offset(),
            chunk.bloom_filter_length().map(i64::from),
        ),
    ] {
        if let Some(start) = start {
            inside(part, start, len.unwrap_or(0))?;
        }
    }
    let values = chunk.num_values();
    let flat = chunk.column_descr().max_rep_level() == 0;
    if values < 0 || (flat && values != group.num_rows()) {
        return Err(row_count(
            format!("column `{}` in row group {row_group}", column()),
            group.num_rows(),
            values,
        ));
    }
    Ok(())
}
