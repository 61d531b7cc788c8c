//! Pages of a Parquet file, checked before a decoder believes them.
//!
//! # Why
//! The decoder allocates a dictionary and the lengths of delta-encoded text by the counts that stand in their pages. A
//! file of some hundred bytes claims terabytes so, and an allocation that fails ends the process: nothing can be
//! caught. So each page is looked at: its header before the decoder reads it, its bytes between decompressing and
//! decoding.

use std::sync::Arc;

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups, RowSelection};
use parquet::arrow::parquet_to_arrow_field_levels;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;

use arrow::datatypes::Fields;

use super::inflate;
use super::list_rows::ListRows;
use super::page_header::{PageHeader, page_header};

/// Texts that one page may have in an encoding that keeps the lengths of all of them in memory, four bytes each.
/// Writers start a page after some ten thousand values or a mebibyte.
const MAX_LENGTHS: u64 = 1 << 26;

/// List items for each byte of a page, at most. The levels of a page can repeat one item by the billion in a few bytes,
/// and a row is always decoded as a whole; lists of some 400,000 equal items in every row come near.
const MAX_ITEMS_PER_BYTE: u64 = 1 << 16;

/// Reads the leaves of `mask`, with types by the Parquet schema, or by `types` where given. The footer is one that
/// [`super::check_footer`] has let pass.
///
/// # Errors
/// Those of the decoder; later, for a page that claims more than it holds, too.
pub(crate) fn checked_batches<R: ChunkReader + 'static>(
    input: R,
    metadata: &Arc<ParquetMetaData>,
    mask: ProjectionMask,
    types: Option<&Fields>,
    batch_rows: usize,
    selection: Option<RowSelection>,
) -> Result<ParquetRecordBatchReader> {
    let descriptor = metadata.file_metadata().schema_descr();
    let levels = parquet_to_arrow_field_levels(descriptor, mask, types)?;
    let mut groups = Checked {
        input: Arc::new(input),
        metadata: Arc::clone(metadata),
        batch_rows,
    };
    groups.batch_rows = batch_rows.min(groups.num_rows());
    let batch_rows = groups.batch_rows;
    ParquetRecordBatchReader::try_new_with_row_groups(&levels, &groups, batch_rows, selection)
}

/// All row groups of a file.
struct Checked<R> {
    input: Arc<R>,
    metadata: Arc<ParquetMetaData>,
    batch_rows: usize,
}

impl<R: ChunkReader + 'static> RowGroups for Checked<R> {
    fn num_rows(&self) -> usize {
        let rows = self.metadata.row_groups().iter().map(|g| g.num_rows());
        rows.fold(0_usize, |sum, rows| {
            sum.saturating_add(usize::try_from(rows).unwrap_or(0))
        })
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        Ok(Box::new(Chunks {
            input: Arc::clone(&self.input),
            metadata: Arc::clone(&self.metadata),
            column,
            next: 0,
            batch_rows: self.batch_rows,
        }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups().iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The chunks of one column, row group by row group.
struct Chunks<R> {
    input: Arc<R>,
    metadata: Arc<ParquetMetaData>,
    column: usize,
    next: usize,
    batch_rows: usize,
}

impl<R: ChunkReader + 'static> Iterator for Chunks<R> {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.metadata.row_groups().get(self.next)?;
        self.next += 1;
        let chunk = group.columns().get(self.column)?;
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let input = Arc::clone(&self.input);
        let pages = CheckedPages::new(input, chunk, rows, self.batch_rows);
        Some(pages.map(|pages| Box::new(pages) as Box<dyn PageReader>))
    }
}

impl<R: ChunkReader + 'static> PageIterator for Chunks<R> {}

/// The pages of one column chunk.
pub(crate) struct CheckedPages<R: ChunkReader> {
    input: Arc<R>,
    pages: SerializedPageReader<R>,
    codec: Compression,
    max_rep: i16,
    max_def: i16,
    /// Where the next page starts, and the chunk ends.
    at: u64,
    end: u64,
    /// The header at `at`, once it is checked.
    header: Option<PageHeader>,
    lists: ListRows,
}

impl<R: ChunkReader> CheckedPages<R> {
    /// The pages of `chunk` in a row group of `rows`, to be decoded in batches of `batch_rows`.
    ///
    /// # Errors
    /// Those of the decoder.
    pub(crate) fn new(
        input: Arc<R>,
        chunk: &ColumnChunkMetaData,
        rows: usize,
        batch_rows: usize,
    ) -> Result<Self> {
        let pages = SerializedPageReader::new(Arc::clone(&input), chunk, rows, None)?;
        let (at, length) = chunk.byte_range();
        let end = at.checked_add(length).filter(|end| *end <= input.len());
        let end = end.ok_or_else(|| bad("a column chunk ends beyond the file"))?;
        let column = chunk.column_descr();
        Ok(CheckedPages {
            input,
            pages,
            codec: chunk.compression(),
            max_rep: column.max_rep_level(),
            max_def: column.max_def_level(),
            at,
            end,
            header: None,
            lists: ListRows::new(batch_rows),
        })
    }

    /// The header of the next page: only what passes here may be read by the decoder.
    fn next_header(&mut self) -> Result<Option<PageHeader>> {
        if self.header.is_none() && self.at < self.end {
            let header = page_header(self.input.as_ref(), self.at, self.end)?;
            let end = self.at.saturating_add(header.len);
            if end.saturating_add(header.stored as u64) > self.end {
                return Err(bad("a page is longer than its column chunk"));
            }
            self.header = Some(header);
        }
        Ok(self.header)
    }

    /// Fails when the page would fill the memory as the decoder decompresses it.
    fn check_size(&self, header: PageHeader) -> Result<()> {
        let claimed = header.claimed - header.plain;
        let stored = header.stored - header.plain;
        if header.uncompressed || claimed == 0 {
            return Ok(());
        }
        if inflate::needs_check(self.codec, stored, claimed).map_err(ParquetError::General)? {
            let start = self.at + header.len + header.plain as u64;
            let page = self.input.get_bytes(start, stored)?;
            inflate::check(self.codec, &page, claimed).map_err(ParquetError::General)?;
        }
        Ok(())
    }

    /// The page of the checked header is behind.
    fn pass(&mut self) {
        if let Some(header) = self.header.take() {
            self.at += header.len + header.stored as u64;
        }
    }
}

fn bad(reason: &str) -> ParquetError {
    ParquetError::General(reason.to_owned())
}

impl<R: ChunkReader> Iterator for CheckedPages<R> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<R: ChunkReader> PageReader for CheckedPages<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        if let Some(header) = self.next_header()? {
            self.check_size(header)?;
        }
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.pass();
            check(page, self.max_rep, self.max_def).map_err(ParquetError::General)?;
            if self.max_rep > 0
                && let Some((levels, values)) = repetition_levels(page)
            {
                let counted = self.lists.add(levels, self.max_rep, values);
                counted.map_err(ParquetError::General)?;
            }
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.next_header()?;
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.next_header()?;
        self.pages.skip_next_page()?;
        self.pass();
        Ok(())
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.next_header()?;
        self.pages.at_record_boundary()
    }
}

/// Repetition levels in runs, and how many. Those that are packed bit by bit take as many bits as they are.
fn repetition_levels(page: &Page) -> Option<(&[u8], u64)> {
    match page {
        Page::DataPage {
            buf,
            num_values,
            rep_level_encoding: Encoding::RLE,
            ..
        } => {
            let (length, rest) = buf.split_first_chunk()?;
            let levels = rest.get(..u32::from_le_bytes(*length) as usize)?;
            Some((levels, (*num_values).into()))
        }
        Page::DataPageV2 {
            buf,
            num_values,
            rep_levels_byte_len,
            ..
        } => {
            let levels = buf.get(..*rep_levels_byte_len as usize)?;
            Some((levels, (*num_values).into()))
        }
        _ => None,
    }
}

/// What is cut off or garbled is left to the decoder, which fails on it: here it is about counts.
fn check(page: &Page, max_rep: i16, max_def: i16) -> std::result::Result<(), String> {
    let (data, encoding, values) = match page {
        // A value takes a byte at least; only booleans take less, and they have no dictionary.
        Page::DictionaryPage {
            buf, num_values, ..
        } if *num_values as usize > buf.len() => {
            return Err(format!(
                "a dictionary claims {num_values} values in {} bytes",
                buf.len()
            ));
        }
        Page::DictionaryPage { .. } => return Ok(()),
        Page::DataPage {
            buf,
            num_values,
            encoding,
            def_level_encoding,
            rep_level_encoding,
            ..
        } => {
            let after =
                |data, encoding: &Encoding, max| skip_levels(data, *encoding, max, *num_values);
            let data = after(buf.as_ref(), rep_level_encoding, max_rep)
                .and_then(|data| after(data, def_level_encoding, max_def));
            (data, encoding, num_values)
        }
        Page::DataPageV2 {
            buf,
            num_values,
            encoding,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => {
            let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
            let data = usize::try_from(levels).ok().and_then(|at| buf.get(at..));
            (data, encoding, num_values)
        }
    };
    let bytes = page.buffer().len();
    if max_rep > 0 && u64::from(*values) > (bytes as u64).saturating_mul(MAX_ITEMS_PER_BYTE) {
        return Err(format!(
            "a page claims {values} list items in {bytes} bytes"
        ));
    }
    let Some(data) = data else {
        return Ok(());
    };
    let within = |count: u64| {
        if count > MAX_LENGTHS.min((*values).into()) {
            return Err(format!("a page of {values} values claims {count} texts"));
        }
        Ok(())
    };
    match encoding {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => Deltas::of(data).map_or(Ok(()), |d| within(d.count)),
        Encoding::DELTA_BYTE_ARRAY => {
            let Some(prefixes) = Deltas::of(data) else {
                return Ok(());
            };
            within(prefixes.count)?;
            let suffixes = prefixes.rest().and_then(Deltas::of);
            suffixes.map_or(Ok(()), |d| within(d.count))
        }
        _ => Ok(()),
    }
}

/// What follows the levels of a page of version 1.
fn skip_levels(data: &[u8], encoding: Encoding, max: i16, values: u32) -> Option<&[u8]> {
    if max == 0 {
        return Some(data);
    }
    if encoding == Encoding::RLE {
        let (length, data) = data.split_first_chunk()?;
        return data.get(u32::from_le_bytes(*length) as usize..);
    }
    let bits = u64::from(values) * u64::from(i16::BITS - max.leading_zeros());
    data.get(usize::try_from(bits.div_ceil(8)).ok()?..)
}

/// Numbers in DELTA_BINARY_PACKED.
struct Deltas<'a> {
    count: u64,
    mini_blocks: usize,
    /// Values of a mini block.
    mini_values: u64,
    /// From the first block on.
    blocks: &'a [u8],
}

impl<'a> Deltas<'a> {
    fn of(mut data: &'a [u8]) -> Option<Self> {
        let block_values = varint(&mut data)?;
        let mini_blocks = usize::try_from(varint(&mut data)?).ok()?;
        let count = varint(&mut data)?;
        varint(&mut data)?;
        Some(Deltas {
            count,
            mini_blocks,
            mini_values: block_values.checked_div(mini_blocks as u64)?,
            blocks: data,
        })
    }

    /// What follows the last block, as far as that is a whole one.
    fn rest(&self) -> Option<&'a [u8]> {
        let mut data = self.blocks;
        // The first value stands in the head.
        let mut left = self.count.saturating_sub(1);
        while left > 0 {
            // A block without values has no end.
            if self.mini_values == 0 {
                return None;
            }
            varint(&mut data)?;
            let (widths, values) = data.split_at_checked(self.mini_blocks)?;
            let mut bytes = 0_u64;
            for width in widths {
                // The width of a mini block that no value is left for means nothing.
                if left > 0 {
                    bytes =
                        bytes.checked_add(self.mini_values.checked_mul((*width).into())? / 8)?;
                }
                left = left.saturating_sub(self.mini_values);
            }
            data = values.get(usize::try_from(bytes).ok()?..)?;
        }
        Some(data)
    }
}

/// A number in as many bytes as it needs.
pub(super) fn varint(data: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = data.split_first()?;
        *data = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
