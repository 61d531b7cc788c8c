//! What can go wrong with a table.

use super::Conflict;
use crate::datafile::DataFileError;
use crate::deletion_vector::VectorError;
use crate::error::{Failure, Kind};
use crate::log::LogError;
use crate::schema::SchemaError;
use crate::store::StoreError;

/// A table that can't be read or written as asked.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error("deletion vector of {path}: {source}")]
    Vector { path: String, source: VectorError },
    #[error("{path}: {source}")]
    DataFile {
        path: String,
        source: Box<DataFileError>,
    },
    #[error("{0} is not a Delta table")]
    NotATable(String),
    #[error("version {0} does not exist")]
    NoSuchVersion(u64),
    #[error("version {version} can't be rebuilt any more: the log before it was cleaned up")]
    Forgotten {
        version: u64,
        /// The oldest one that can.
        earliest: Option<u64>,
    },
    #[error("the table has no version of {}", utc(*asked))]
    BeforeHistory {
        /// Milliseconds since the epoch, as are the others.
        asked: i64,
        /// The oldest version that can be rebuilt, and when it was committed.
        earliest: Option<(u64, i64)>,
    },
    #[error("the log has a gap: version {missing} is missing, but version {present} is there")]
    Gap { missing: u64, present: u64 },
    #[error(
        "no usable checkpoint, and the log does not start at version 0: version {0} is missing"
    )]
    NoStart(u64),
    #[error("version {version} has no {action} action, and none came before it")]
    Incomplete { version: u64, action: &'static str },
    #[error(
        "version {version} has two live entries for {path}, with the deletion vectors {first:?} and {second:?}"
    )]
    TwoLive {
        version: u64,
        path: String,
        first: Option<String>,
        second: Option<String>,
    },
    #[error("version {version} has the impossible {what}: {reason}")]
    Malformed {
        version: u64,
        what: &'static str,
        reason: String,
    },
    #[error("{access} this table needs {feature}")]
    Feature {
        access: &'static str,
        feature: String,
        help: String,
    },
    #[error("the table is append-only (delta.appendOnly=true)")]
    AppendOnly,
    #[error("the file {0} of the log is not inside the table's directory")]
    Outside(String),
    #[error("{0}")]
    Conflict(Box<Conflict>),
    #[error(
        "version {version} came first, and the log of it is cleaned up: nobody can tell any more whether it was in the way"
    )]
    Overtaken { version: u64 },
    #[error("the table was created by somebody else at the same moment")]
    Created,
    #[error("gave up after {attempts} attempts in {millis} ms, each lost to another writer")]
    Contention { attempts: u32, millis: i64 },
    #[error("version {version} may have been committed: {reason}")]
    Unknown { version: u64, reason: String },
}

impl Failure for TableError {
    fn kind(&self) -> Kind {
        match self {
            TableError::Store(e) => e.kind(),
            TableError::Log(e) => e.kind(),
            TableError::Schema(e) => e.kind(),
            TableError::Vector { source, .. } => source.kind(),
            TableError::DataFile { source, .. } => source.kind(),
            TableError::NotATable(_)
            | TableError::NoSuchVersion(_)
            | TableError::Forgotten { .. }
            | TableError::BeforeHistory { .. } => Kind::Absent,
            TableError::Gap { .. }
            | TableError::NoStart(_)
            | TableError::Incomplete { .. }
            | TableError::TwoLive { .. }
            | TableError::Malformed { .. }
            | TableError::Outside(_) => Kind::Corrupt,
            TableError::Feature { .. } => Kind::Unsupported,
            TableError::AppendOnly => Kind::Denied,
            TableError::Conflict(_)
            | TableError::Created
            | TableError::Overtaken { .. }
            | TableError::Contention { .. } => Kind::Conflict,
            TableError::Unknown { .. } => Kind::Unavailable,
        }
    }

    fn facts(&self) -> Vec<(&'static str, serde_json::Value)> {
        match self {
            TableError::Conflict(conflict) => conflict.facts(),
            _ => Vec::new(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            TableError::Store(e) => e.hint(),
            TableError::Feature { help, .. } => Some(help.clone()),
            TableError::Vector { source, .. } => source.hint(),
            TableError::DataFile { source, .. } => source.hint(),
            TableError::AppendOnly => Some(
                "set delta.appendOnly to false if rows may be removed from this table".to_owned(),
            ),
            TableError::Conflict(conflict) => Some(conflict.hint()),
            TableError::Created | TableError::Overtaken { .. } | TableError::Contention { .. } => {
                Some("nothing was committed; try again".to_owned())
            }
            TableError::Unknown { version, .. } => Some(format!(
                "look at version {version} in .delta/history before trying again"
            )),
            TableError::Gap { .. } | TableError::NoStart(_) => Some(
                "restore the missing file of _delta_log from a backup; deltafs does not guess"
                    .to_owned(),
            ),
            TableError::Forgotten { earliest, .. } => {
                let version = (*earliest)?;
                Some(format!(
                    "the earliest version that can be opened is {version}"
                ))
            }
            TableError::BeforeHistory { earliest, .. } => {
                let (version, time) = (*earliest)?;
                Some(format!(
                    "the earliest version that can be opened is {version}, of {}",
                    utc(time)
                ))
            }
            TableError::Log(_)
            | TableError::Schema(_)
            | TableError::NotATable(_)
            | TableError::NoSuchVersion(_)
            | TableError::Incomplete { .. }
            | TableError::TwoLive { .. }
            | TableError::Malformed { .. }
            | TableError::Outside(_) => None,
        }
    }
}

/// `2026-11-30T12:00:00.000Z`
pub(super) fn utc(millis: i64) -> String {
    chrono::DateTime::from_timestamp_millis(millis).map_or_else(
        || format!("{millis} ms"),
        |t| t.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
    )
}
