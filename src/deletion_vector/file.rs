//! Vector files: a version byte, then size, data and checksum of each vector.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use uuid::Uuid;

use super::descriptor::{file_id, file_path, is_prefix};
use super::{
    DeletionVectorDescriptor, Location, RowSet, VectorError, VectorFault, decode_rows, encode_rows,
    z85,
};
use crate::store::StoreError;

/// First byte of a vector file.
const VERSION: u8 = 1;

/// More than any data file needs (2³³ rows that no run compresses), less than what takes the machine down.
const MAX_DATA_BYTES: u64 = 1 << 30;

/// A file to be written, and what the log says about the vectors in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorFile {
    /// From the table's root.
    pub path: String,
    pub bytes: Vec<u8>,
    /// In the order of the sets.
    pub descriptors: Vec<DeletionVectorDescriptor>,
}

/// Reads the vector that `descriptor` tells of. `open` is called for a vector in a file; `num_records` are the
/// physical rows of the data file, where known.
///
/// # Errors
/// [`VectorError`] unless size, checksum, magic, cardinality and range are right.
pub fn read_vector(
    descriptor: &DeletionVectorDescriptor,
    open: impl FnOnce(&Location) -> Result<File, StoreError>,
    num_records: Option<u64>,
) -> Result<RowSet, VectorError> {
    let location = descriptor.location()?;
    let read = || {
        let rows = match &location {
            // What Delta Spark writes for "no row".
            Location::Inline(data) if data.is_empty() => RowSet::new(),
            Location::Inline(data) => decode_rows(data)?,
            Location::Relative { offset, size, .. } | Location::Absolute { offset, size, .. } => {
                decode_rows(&read_data(&open(&location)?, *offset, *size)?)?
            }
        };
        check_rows(&rows, descriptor.cardinality, num_records)?;
        Ok(rows)
    };
    read().map_err(|fault: VectorFault| fault.of(&descriptor.unique_id()))
}

fn read_data(file: &File, offset: u64, size: u32) -> Result<Vec<u8>, VectorFault> {
    let bytes = u64::from(size);
    if bytes > MAX_DATA_BYTES {
        return Err(VectorFault::TooLarge {
            bytes,
            limit: MAX_DATA_BYTES,
        });
    }
    let (found, expected) = (file.metadata()?.len(), offset + 4 + bytes + 4);
    if found < expected {
        return Err(VectorFault::Short { found, expected });
    }
    let mut version = [0];
    file.read_exact_at(&mut version, 0)?;
    if version != [VERSION] {
        return Err(VectorFault::FileVersion(version[0]));
    }
    let stored = u32::from_be_bytes(read_at(file, offset)?);
    if stored != size {
        return Err(VectorFault::Size {
            declared: size,
            stored,
        });
    }
    let mut data = vec![0; size as usize];
    file.read_exact_at(&mut data, offset + 4)?;
    let stored = u32::from_be_bytes(read_at(file, offset + 4 + bytes)?);
    let computed = crc32fast::hash(&data);
    if stored != computed {
        return Err(VectorFault::Checksum { stored, computed });
    }
    Ok(data)
}

fn read_at(file: &File, offset: u64) -> Result<[u8; 4], VectorFault> {
    let mut field = [0; 4];
    file.read_exact_at(&mut field, offset)?;
    Ok(field)
}

fn check_rows(
    rows: &RowSet,
    cardinality: i64,
    num_records: Option<u64>,
) -> Result<(), VectorFault> {
    if u64::try_from(cardinality) != Ok(rows.len()) {
        return Err(VectorFault::Cardinality {
            declared: cardinality,
            found: rows.len(),
        });
    }
    if let (Some(row), Some(num_records)) = (rows.max(), num_records)
        && row >= num_records
    {
        return Err(VectorFault::Row { row, num_records });
    }
    Ok(())
}

/// One file with a vector for each of `sets`. `prefix` is a directory below the table's root, or empty.
///
/// # Errors
/// [`VectorFault::Path`] for a prefix that leaves the table, [`VectorFault::TooLarge`] when a position does not
/// fit the descriptor.
pub fn write_vectors(
    uuid: Uuid,
    prefix: &str,
    sets: &[&RowSet],
) -> Result<VectorFile, VectorError> {
    let id = file_id(prefix, uuid);
    if !is_prefix(prefix) {
        return Err(VectorFault::Path(prefix.to_owned()).of(&id));
    }
    let mut bytes = vec![VERSION];
    let mut descriptors = Vec::with_capacity(sets.len());
    for rows in sets {
        let data = encode_rows(rows);
        let size = data_size(&data).map_err(|fault| fault.of(&id))?;
        let offset = i32::try_from(bytes.len()).map_err(|_| {
            VectorFault::TooLarge {
                bytes: bytes.len() as u64,
                limit: i32::MAX.unsigned_abs().into(),
            }
            .of(&id)
        })?;
        bytes.extend_from_slice(&size.unsigned_abs().to_be_bytes());
        bytes.extend_from_slice(&data);
        bytes.extend_from_slice(&crc32fast::hash(&data).to_be_bytes());
        descriptors.push(DeletionVectorDescriptor {
            storage_type: "u".to_owned(),
            path_or_inline_dv: id.clone(),
            offset: Some(offset),
            size_in_bytes: size,
            cardinality: i64::try_from(rows.len()).unwrap_or(i64::MAX),
        });
    }
    Ok(VectorFile {
        path: file_path(prefix, uuid),
        bytes,
        descriptors,
    })
}

/// A vector that lives in the log itself.
///
/// # Errors
/// [`VectorFault::TooLarge`].
pub fn inline_vector(rows: &RowSet) -> Result<DeletionVectorDescriptor, VectorError> {
    let data = encode_rows(rows);
    Ok(DeletionVectorDescriptor {
        storage_type: "i".to_owned(),
        size_in_bytes: data_size(&data).map_err(|fault| fault.of("inline"))?,
        path_or_inline_dv: z85::encode(&data),
        offset: None,
        cardinality: i64::try_from(rows.len()).unwrap_or(i64::MAX),
    })
}

fn data_size(data: &[u8]) -> Result<i32, VectorFault> {
    let bytes = data.len() as u64;
    match i32::try_from(bytes) {
        Ok(size) if bytes <= MAX_DATA_BYTES => Ok(size),
        _ => Err(VectorFault::TooLarge {
            bytes,
            limit: MAX_DATA_BYTES,
        }),
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
