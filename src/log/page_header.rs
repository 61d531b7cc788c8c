//! The header of a Parquet page, walked before the decoder reads it: it takes hours for some that are a hundred bytes
//! long.

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::ChunkReader;

use super::footer::STATISTICS;
use super::thrift::{BOOL_FALSE, Fields, Shape, Walk};
use Shape::{Bool, Int, Struct};

/// Most headers, that is all without statistics, fit.
const USUAL_BYTES: u64 = 256;
/// A header has two values of the column at most, in its statistics. Arrow's C++ reader has this limit too.
const MAX_BYTES: u64 = 16 << 20;

const HEADER: &Fields = &[
    (1, Int),
    (2, Int),
    (3, Int),
    (4, Int),
    (5, Struct(DATA_PAGE)),
    (6, Struct(&[])),
    (7, Struct(&[(1, Int), (2, Int), (3, Bool)])),
    (8, Struct(DATA_PAGE_2)),
];
const DATA_PAGE: &Fields = &[
    (1, Int),
    (2, Int),
    (3, Int),
    (4, Int),
    (5, Struct(STATISTICS)),
];
const DATA_PAGE_2: &Fields = &[
    (1, Int),
    (2, Int),
    (3, Int),
    (4, Int),
    (5, Int),
    (6, Int),
    (7, Bool),
    (8, Struct(STATISTICS)),
];

const DATA: i32 = 0;
const DICTIONARY: i32 = 2;
const DATA_2: i32 = 3;

/// What a header says of the bytes after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Bytes of the header itself.
    pub(super) len: u64,
    /// Bytes of the page as it lies in the file.
    pub(super) stored: usize,
    /// Bytes that the page is said to have after decompressing, levels included.
    pub(super) claimed: usize,
    /// Bytes at its start that are not compressed.
    pub(super) plain: usize,
    /// Values, NULLs among them; none for a dictionary.
    pub(super) values: u64,
    /// Whether the codec of the column is not used for this page.
    pub(super) uncompressed: bool,
}

/// Reads the header at `start` of a column chunk that ends at `end`.
///
/// # Errors
/// [`ParquetError::General`] says what is wrong with it; those of `input`.
pub(super) fn page_header<R: ChunkReader>(input: &R, start: u64, end: u64) -> Result<PageHeader> {
    let left = end.saturating_sub(start);
    let mut window = USUAL_BYTES;
    loop {
        let whole = window >= left.min(MAX_BYTES);
        let length = usize::try_from(window.min(left)).unwrap_or(usize::MAX);
        let bytes: Bytes = input.get_bytes(start, length)?;
        // What is wrong in a part of it may be right in the whole.
        match parse(&bytes) {
            Ok(header) => return Ok(header),
            Err(reason) if whole => {
                let reason = format!("the header of a page is damaged: {reason}");
                return Err(ParquetError::General(reason));
            }
            Err(_) => window = window.saturating_mul(16).min(MAX_BYTES),
        }
    }
}

fn parse(bytes: &[u8]) -> std::result::Result<PageHeader, String> {
    let mut walk = Walk { bytes };
    let mut header = PageHeader::default();
    let (mut kind, mut stored, mut claimed) = (None, None, None);
    let mut counts = [None; 2];
    walk.fields(&mut |walk, id, field| {
        let mut value = Walk { bytes: walk.bytes };
        walk.field(HEADER, id, field)?;
        match id {
            1 => kind = Some(value.int()?),
            2 => claimed = Some(value.int()?),
            3 => stored = Some(value.int()?),
            5 => counts[0] = Some(numbers(&mut value, DATA_PAGE)?),
            8 => counts[1] = Some(numbers(&mut value, DATA_PAGE_2)?),
            _ => {}
        }
        Ok(())
    })?;
    header.len = (bytes.len() - walk.bytes.len()) as u64;
    let size = |size: Option<i32>, what: &str| {
        let size = size.ok_or_else(|| format!("it lacks {what}"))?;
        usize::try_from(size).map_err(|_| format!("{what} is {size}"))
    };
    header.stored = size(stored, "its size")?;
    header.claimed = size(claimed, "its size without compression")?;
    let counts = match kind {
        Some(DATA) => counts[0],
        Some(DATA_2) => counts[1],
        Some(DICTIONARY) => return Ok(header),
        // Only data and dictionaries are ever written, and the decoder loses its way at anything else.
        Some(other) => return Err(format!("pages of the type {other} are not known")),
        None => return Err("it lacks a type".to_owned()),
    };
    let counts = counts.ok_or_else(|| "it lacks what its type needs".to_owned())?;
    header.values = size(counts.values, "its number of values")? as u64;
    header.uncompressed = counts.uncompressed;
    header.plain = size(Some(counts.levels[0]), "the size of its levels")?
        .checked_add(size(Some(counts.levels[1]), "the size of its levels")?)
        .filter(|plain| *plain <= header.claimed && *plain <= header.stored)
        .ok_or_else(|| "its levels are longer than itself".to_owned())?;
    Ok(header)
}

#[derive(Debug, Clone, Copy, Default)]
struct Numbers {
    values: Option<i32>,
    /// Bytes of both kinds of levels; nothing where they are among the values' bytes.
    levels: [i32; 2],
    uncompressed: bool,
}

fn numbers(walk: &mut Walk<'_>, known: &'static Fields) -> std::result::Result<Numbers, String> {
    let mut numbers = Numbers::default();
    let of_version_2 = known.len() == DATA_PAGE_2.len();
    walk.fields(&mut |walk, id, field| {
        let mut value = Walk { bytes: walk.bytes };
        walk.field(known, id, field)?;
        match id {
            1 => numbers.values = Some(value.int()?),
            5 if of_version_2 => numbers.levels[0] = value.int()?,
            6 if of_version_2 => numbers.levels[1] = value.int()?,
            7 if of_version_2 => numbers.uncompressed = field == BOOL_FALSE,
            _ => {}
        }
        Ok(())
    })?;
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8], reason: &str) {
        let error = parse(bytes).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn a_header_says_what_follows() {
        let dictionary = [
            0x15, 4, 0x15, 40, 0x15, 20, 0x4c, 0x15, 6, 0x15, 0, 0x12, 0, 0,
        ];
        let header = PageHeader {
            len: 14,
            stored: 10,
            claimed: 20,
            ..PageHeader::default()
        };
        let mut with_page = dictionary.to_vec();
        with_page.extend([0xff; 10]);
        assert_eq!(parse(&with_page), Ok(header));
        let data = [
            0x15, 6, 0x15, 40, 0x15, 20, 0x5c, 0x15, 6, 0x15, 2, 0x15, 4, 0x15, 0, 0x15, 6, 0x15,
            8, 0x12, 0, 0,
        ];
        let header = PageHeader {
            len: 22,
            stored: 10,
            claimed: 20,
            plain: 7,
            values: 3,
            uncompressed: true,
        };
        assert_eq!(parse(&data), Ok(header));
    }

    #[test]
    fn a_header_that_the_decoder_reads_otherwise_is_refused() {
        let start = [0x15, 4, 0x15, 40, 0x15, 20];
        let with = |rest: &[u8]| [&start, rest].concat();
        refused(&with(&[0x4c, 0x18, 0, 0x15, 0, 0, 0]), "Thrift type 8");
        refused(&with(&[0x45, 2, 0]), "Thrift type 5");
        // Fields that nobody knows.
        let unknown = |value: &[u8]| with(&[&[0x4c, 0x15, 6, 0x15, 0, 0], value, &[0]].concat());
        assert!(parse(&unknown(&[0x95, 2])).is_ok());
        refused(
            &unknown(&[0x9b, 0xed, 0xea, 0x12, 0xd7]),
            "claims 308589 items",
        );
        refused(&unknown(&[0x99, 0x12, 0]), "Thrift type 2");
        refused(&unknown(&[0x98, 0x80, 0x80, 0x80, 0x04]), "ends too early");
        refused(&[0x15, 2, 0x15, 40, 0x15, 20, 0x3c, 0, 0], "type 1");
        refused(&[0x15, 0, 0x15, 40, 0x15, 20, 0], "lacks");
        refused(&[0x15, 0, 0x15, 40, 0x15, 21, 0], "its size is -11");
    }
}
