//! `_delta_log` on disk: actions, file names, commits, checkpoints (PROTOCOL.md A). Knows bytes; never replay.

mod action;
mod checkpoint;
mod commit;
mod crc;
mod footer;
mod inflate;
mod last_checkpoint;
mod list_rows;
mod md5;
mod name;
mod page_header;
mod pages;
mod thrift;

pub use action::{
    Action, Add, Cdc, CommitInfo, DomainMetadata, Format, Metadata, PartitionValues, Protocol,
    Remove, Tags, Txn,
};
pub use checkpoint::{
    CheckpointAction, CheckpointBatch, CheckpointBatches, CheckpointOptions, CheckpointSummary,
    Digest, ParsedColumns, Sidecar, checkpoint_batches, read_checkpoint, read_json_manifest,
    read_sidecar_references, write_classic, write_manifest, write_sidecar,
};
pub use commit::{each_action, parse_commit, write_commit};
pub use crc::{Crc, DeletedRecordCounts, FileSizeHistogram};
pub(crate) use footer::check_footer;
pub use last_checkpoint::{HintFault, LAST_CHECKPOINT, LastCheckpoint, V2Hint};
pub use name::{LOG_DIR, LogName, SIDECAR_DIR};
pub(crate) use pages::{CheckedPages, checked_batches};

pub use crate::deletion_vector::DeletionVectorDescriptor;
use crate::error::{Failure, Kind, io_kind};

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
    /// The file as such is damaged.
    #[error("{file}: {reason}")]
    Checkpoint { file: String, reason: String },
    /// A column contradicts the protocol.
    #[error("{file}: column {column} {reason}")]
    CheckpointColumn {
        file: String,
        column: String,
        reason: String,
    },
    /// The system did not deliver the bytes.
    #[error("reading {file}: {reason}")]
    Read {
        file: String,
        reason: String,
        kind: Kind,
    },
    #[error("writing a checkpoint: {reason}")]
    Write { reason: String, kind: Kind },
}

impl Failure for LogError {
    fn kind(&self) -> Kind {
        match self {
            LogError::Action { .. }
            | LogError::Empty { .. }
            | LogError::Checkpoint { .. }
            | LogError::CheckpointColumn { .. } => Kind::Corrupt,
            LogError::Read { kind, .. } | LogError::Write { kind, .. } => *kind,
        }
    }
}

/// What went wrong in decoding `file`: the system, if it did, else the bytes.
fn read_failure(file: &str, error: &(dyn std::error::Error + 'static)) -> LogError {
    let (file, reason) = (file.to_owned(), error.to_string());
    match io_cause(error) {
        Some(io) => LogError::Read {
            file,
            reason,
            kind: io_kind(io),
        },
        None => LogError::Checkpoint { file, reason },
    }
}

/// What went wrong in writing a checkpoint: the system, if it did, else what was to be written.
fn write_failure(error: &(dyn std::error::Error + 'static)) -> LogError {
    LogError::Write {
        reason: error.to_string(),
        kind: io_cause(error).map_or(Kind::Invalid, io_kind),
    }
}

fn io_cause<'e>(mut error: &'e (dyn std::error::Error + 'static)) -> Option<&'e std::io::Error> {
    loop {
        if let Some(io) = error.downcast_ref() {
            return Some(io);
        }
        error = error.source()?;
    }
}

#[cfg(test)]
mod round_trip_tests;
