//! Rows of a data file marked dead (PROTOCOL.md B). Owns the descriptor, the row set and the bytes of both; knows
//! nothing of logs, data files or tables.
//!
//! Whatever does not add up is an error: a vector that is read as empty brings deleted rows back.

mod bitmap;
mod descriptor;
mod file;
pub(crate) mod z85;

pub use bitmap::{decode_rows, encode_rows};
pub use descriptor::{DeletionVectorDescriptor, Location};
pub use file::{VectorFile, inline_vector, read_vector, write_vectors};

use crate::error::{Failure, Kind, io_kind};
use crate::store::StoreError;

/// Physical row indexes in a data file, from 0.
pub type RowSet = roaring::RoaringTreemap;

/// A deletion vector that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("deletion vector {vector}: {fault}")]
pub struct VectorError {
    /// The descriptor's unique id.
    pub vector: String,
    pub fault: VectorFault,
}

/// What is wrong with a vector.
#[derive(Debug, thiserror::Error)]
pub enum VectorFault {
    #[error("storage type `{0}` is not supported")]
    StorageType(String),
    #[error("`{0}` does not name a file")]
    Path(String),
    #[error("the inline text is not Z85")]
    Text,
    #[error("{field} is {value}")]
    Field { field: &'static str, value: i64 },
    #[error("{bytes} bytes are more than the {limit} that a vector may have")]
    TooLarge { bytes: u64, limit: u64 },
    #[error("{found} bytes are there, {expected} are needed")]
    Short { found: u64, expected: u64 },
    #[error("the file has version {0}, not 1")]
    FileVersion(u8),
    #[error("the log says {declared} bytes, the file says {stored}")]
    Size { declared: u32, stored: u32 },
    #[error("the checksum is {stored:08x}, that of the bytes is {computed:08x}")]
    Checksum { stored: u32, computed: u32 },
    #[error("the magic number is {0}")]
    Magic(u32),
    #[error("{buckets} buckets can't be in {bytes} bytes")]
    Buckets { buckets: u64, bytes: usize },
    #[error("bucket {key} is out of order or range")]
    Key { key: u32 },
    #[error("bucket {key}: {source}")]
    Bitmap { key: u32, source: std::io::Error },
    #[error("{bytes} bytes follow the last bucket")]
    Trailing { bytes: usize },
    #[error("the log says {declared} rows, the vector has {found}")]
    Cardinality { declared: i64, found: u64 },
    #[error("nobody has counted the rows of the data file")]
    Uncounted,
    #[error("row {row} is marked, the data file has {num_records} rows")]
    Row { row: u64, num_records: u64 },
    #[error(transparent)]
    Open(#[from] StoreError),
    #[error("reading: {0}")]
    Read(#[from] std::io::Error),
}

impl VectorFault {
    fn of(self, vector: &str) -> VectorError {
        VectorError {
            vector: vector.to_owned(),
            fault: self,
        }
    }
}

impl Failure for VectorError {
    fn kind(&self) -> Kind {
        match &self.fault {
            VectorFault::StorageType(_) => Kind::Unsupported,
            // The log promises the file: that it is gone is damage, not a wrong path of the caller.
            VectorFault::Open(error) => match error.kind() {
                Kind::Absent => Kind::Corrupt,
                kind => kind,
            },
            VectorFault::Read(error) => io_kind(error),
            VectorFault::Path(_)
            | VectorFault::Text
            | VectorFault::Field { .. }
            | VectorFault::TooLarge { .. }
            | VectorFault::Short { .. }
            | VectorFault::FileVersion(_)
            | VectorFault::Size { .. }
            | VectorFault::Checksum { .. }
            | VectorFault::Magic(_)
            | VectorFault::Buckets { .. }
            | VectorFault::Key { .. }
            | VectorFault::Bitmap { .. }
            | VectorFault::Trailing { .. }
            | VectorFault::Cardinality { .. }
            | VectorFault::Uncounted
            | VectorFault::Row { .. } => Kind::Corrupt,
        }
    }

    fn hint(&self) -> Option<String> {
        match &self.fault {
            VectorFault::StorageType(_) => {
                Some("read the table with the system that has written it".to_owned())
            }
            VectorFault::Open(error) => error.hint(),
            _ => None,
        }
    }
}
