//! The versions that the log still tells of.

use std::path::Path;

use super::segment::{self, Listing};
use super::{Table, TableError};
use crate::log::{Action, CommitInfo};

/// One version of the history.
#[derive(Debug, Clone)]
pub struct HistoryEntry {
    pub version: u64,
    /// Milliseconds since the epoch: the in-commit timestamp, else the commit file's time.
    pub timestamp: i64,
    /// Empty when the writer left none.
    pub info: CommitInfo,
}

impl Table {
    /// The versions after `after` up to `to`, oldest first. Versions whose commit file is gone are left out
    /// (D97: each entry is of the version that it names).
    ///
    /// # Errors
    /// [`TableError`] when a commit can't be read.
    pub fn history(&self, after: Option<u64>, to: u64) -> Result<Vec<HistoryEntry>, TableError> {
        let listing = Listing::read(&self.dir)?;
        let from = after.map_or(0, |v| v + 1);
        let mut entries = Vec::new();
        if from > to {
            return Ok(entries);
        }
        for &version in listing.commits.range(from..=to) {
            let Some(commit) = segment::read_commit(&self.dir, version)? else {
                continue;
            };
            let info = commit.actions.iter().find_map(|a| match a {
                Action::CommitInfo(info) => Some(info.clone()),
                _ => None,
            });
            let timestamp = commit.in_commit_timestamp().unwrap_or(commit.modified);
            entries.push(HistoryEntry {
                version,
                timestamp,
                info: info.unwrap_or_default(),
            });
        }
        Ok(entries)
    }

    /// The bytes of a file of the table for the physical view (`.delta/raw`).
    ///
    /// # Errors
    /// [`TableError::Store`].
    pub fn raw_file(&self, path: &Path) -> Result<std::fs::File, TableError> {
        Ok(self.dir.open_file(path)?)
    }
}
