//! `_delta_log` on disk: actions, file names, commits, checkpoints (PROTOCOL.md A). Knows bytes; never replay.

mod action;
pub mod checkpoint;
mod commit;
mod name;

pub use action::{
    Action, Add, Cdc, CommitInfo, DomainMetadata, Format, Metadata, PartitionValues, Protocol,
    Remove, Tags, Txn,
};
pub use commit::{parse_commit, write_commit};
pub use name::{LOG_DIR, LogName};

pub use crate::deletion_vector::DeletionVectorDescriptor;
use crate::error::{Failure, Kind};

/// A file of the log that can't be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    #[error("{file}, line {line}: not an action: {reason}")]
    Action {
        file: String,
        line: usize,
        reason: String,
    },
    #[error("{file} is empty: an empty commit file is not a version")]
    Empty { file: String },
    #[error("{file}: {reason}")]
    Checkpoint { file: String, reason: String },
}

impl Failure for LogError {
    fn kind(&self) -> Kind {
        match self {
            LogError::Action { .. } | LogError::Empty { .. } | LogError::Checkpoint { .. } => {
                Kind::Corrupt
            }
        }
    }
}
