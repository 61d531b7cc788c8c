//! Bytes under a root that nothing leaves: every path is resolved by the kernel beneath the root's descriptor.
//!
//! This is the local fast path (file descriptors for passthrough, links for adoption and commits). It knows
//! nothing of tables. Everything here blocks: call it from a blocking thread.

mod dir;
mod source;

pub use dir::{Dir, EntryKind, Listed, Put};
pub use source::parse_source;

use std::path::PathBuf;

use crate::error::{Failure, Kind, io_kind};

/// A failed operation on stored bytes.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{action} {path}: {source}", path = path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} leads outside of its directory", path = path.display())]
    Outside { path: PathBuf },
    #[error("`{0}` is not a source that can be mounted")]
    Source(String),
}

impl StoreError {
    /// Whether the failure says that nothing is there.
    pub fn is_absent(&self) -> bool {
        self.kind() == Kind::Absent
    }
}

impl Failure for StoreError {
    fn kind(&self) -> Kind {
        match self {
            StoreError::Io { source, .. } => io_kind(source),
            StoreError::Outside { .. } => Kind::Corrupt,
            StoreError::Source(_) => Kind::Invalid,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            StoreError::Io { .. } => None,
            StoreError::Outside { .. } => Some(
                "deltafs never follows a path of the log or a symbolic link out of the table's directory"
                    .to_owned(),
            ),
            StoreError::Source(_) => {
                Some("give a local directory or a file:// URL".to_owned())
            }
        }
    }
}
