//! Checkpoints: the state of a table at one version as Parquet (PROTOCOL.md A1, A2). Knows files and actions;
//! never which checkpoint to use and never replay.
//!
//! # Why two forms of statistics
//! Some writers store statistics only as typed columns (`stats_parsed`). Readers of actions want the one JSON text,
//! so it is rebuilt here, where the types are known.

mod columns;
mod digest;
mod footer;
mod parsed;
mod read;
mod rows;
mod stats;
mod write;

pub use digest::Digest;
pub use parsed::ParsedColumns;
pub use read::{
    CheckpointBatch, CheckpointBatches, checkpoint_batches, read_checkpoint, read_json_manifest,
    read_sidecar_references,
};
pub use write::{
    CheckpointOptions, CheckpointSummary, write_classic, write_manifest, write_sidecar,
};

use serde::{Deserialize, Serialize};

use super::Action;

/// What a file of a checkpoint holds.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every value is an action, and none is kept in this form"
)]
pub enum CheckpointAction {
    Action(Action),
    /// Exactly one in a V2 checkpoint.
    CheckpointMetadata {
        version: i64,
    },
    Sidecar(Sidecar),
}

/// A Parquet file that holds file actions for a V2 manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sidecar {
    /// Name in `_sidecars`, or a URI; as the manifest has it, not checked.
    pub path: String,
    pub size_in_bytes: i64,
    /// Milliseconds since the epoch.
    pub modification_time: i64,
}

#[cfg(test)]
mod tests;
