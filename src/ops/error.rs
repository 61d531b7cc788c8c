//! What can go wrong with an operation.

use crate::datafile::DataFileError;
use crate::engine::EngineError;
use crate::error::{Failure, Kind};
use crate::schema::SchemaError;
use crate::store::StoreError;
use crate::table::{Class, Conflict, TableError};

/// A failed operation. Unless the error itself says that it can't tell, nothing was committed.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    DataFile(Box<DataFileError>),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{path}: {source}")]
    File {
        path: String,
        source: Box<DataFileError>,
    },
    #[error(transparent)]
    Input(Box<DataFileError>),
    #[error("the data file {path} of version {version} is not there")]
    MissingFile { path: String, version: u64 },
    #[error("column `{column}` has the type {found}, which this version of deltafs can't read")]
    UnreadableType { column: String, found: String },
    #[error("{0} is not a live file of the table any more")]
    Gone(String),
    #[error("{0} was removed or rewritten by somebody else while it was being overwritten")]
    Replaced(String),
    #[error("the column name `{0}` holds a character that Delta allows only with column mapping")]
    ColumnName(String),
    #[error("the file has no columns")]
    NoColumns,
    #[error("rows of {path} would have to be rewritten, and the table keeps a change data feed")]
    FeedNeedsVectors { path: String },
    #[error("the transaction is over")]
    TransactionOver,
    #[error("{0}")]
    TransactionConflict(Box<Conflict>),
    #[error("the file {0}, which the transaction has staged, has been removed behind its back")]
    Vanished(String),
    #[error("the transaction is being committed")]
    TransactionBusy,
    #[error("a transaction changes {0} files at most")]
    TransactionFull(usize),
    #[error("a transaction can't be run again by itself: `retries` is for single statements")]
    TransactionRetries,
    #[error("{}", not_of_partitions(columns))]
    NotOfPartitions {
        /// Columns of the condition that partition nothing; none when it asks for more than values.
        columns: Vec<String>,
        partition_columns: Vec<String>,
    },
    #[error("staging: {0}")]
    Staging(#[source] std::io::Error),
}

fn not_of_partitions(columns: &[String]) -> String {
    let chooses = "the condition chooses whole partitions";
    match columns {
        [] => format!("{chooses}, and this one is not about their values"),
        [column] => format!("{chooses}, and `{column}` is no partition column"),
        columns => format!(
            "{chooses}, and {} are no partition columns",
            listed(columns)
        ),
    }
}

fn listed(columns: &[String]) -> String {
    let columns = columns.iter().map(|c| format!("`{c}`"));
    columns.collect::<Vec<_>>().join(", ")
}

impl From<DataFileError> for OpError {
    fn from(error: DataFileError) -> Self {
        OpError::DataFile(Box::new(error))
    }
}

impl From<SchemaError> for OpError {
    fn from(error: SchemaError) -> Self {
        OpError::Table(error.into())
    }
}

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> Self {
        OpError::Table(error.into())
    }
}

impl Failure for OpError {
    fn kind(&self) -> Kind {
        match self {
            OpError::Table(e) => e.kind(),
            OpError::DataFile(e) => e.kind(),
            OpError::Engine(e) => e.kind(),
            OpError::File { source, .. } => source.kind(),
            // Damage in a file that somebody brings is their mistake, not the store's.
            OpError::Input(e) => match e.kind() {
                Kind::Corrupt => Kind::Invalid,
                kind => kind,
            },
            OpError::MissingFile { .. } | OpError::Vanished(_) => Kind::Corrupt,
            OpError::UnreadableType { .. } => Kind::Unsupported,
            OpError::Replaced(_) | OpError::TransactionBusy | OpError::TransactionConflict(_) => {
                Kind::Conflict
            }
            OpError::TransactionOver => Kind::ReadOnly,
            OpError::TransactionFull(_) => Kind::NoSpace,
            OpError::TransactionRetries => Kind::Invalid,
            OpError::Gone(_) => Kind::Absent,
            OpError::ColumnName(_) | OpError::NoColumns | OpError::NotOfPartitions { .. } => {
                Kind::Invalid
            }
            OpError::FeedNeedsVectors { .. } => Kind::Unsupported,
            OpError::Staging(e) => crate::error::io_kind(e),
        }
    }

    fn facts(&self) -> Vec<(&'static str, serde_json::Value)> {
        match self {
            OpError::Table(e) => e.facts(),
            OpError::TransactionConflict(conflict) => conflict.facts(),
            _ => Vec::new(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            OpError::Table(e) => e.hint(),
            OpError::DataFile(e) => e.hint(),
            OpError::Engine(e) => e.hint(),
            OpError::File { source, .. } => source.hint(),
            OpError::Input(e) => e.hint(),
            OpError::MissingFile { .. } => Some(
                "VACUUM removes the files of old versions, and a copied log may be older than its data: read another \
                 version, or bring the file back from a backup"
                    .to_owned(),
            ),
            OpError::UnreadableType { .. } => {
                Some("use a newer deltafs, or a system that has this type".to_owned())
            }
            OpError::Replaced(_) => Some(
                "nothing was committed; look at .delta/history, and copy the file again if it is still wanted"
                    .to_owned(),
            ),
            OpError::ColumnName(_) => Some(
                "rename the column in the file: none of ` ,;{}()` and no line break or tab, or `=`"
                    .to_owned(),
            ),
            OpError::FeedNeedsVectors { .. } => Some(
                "turn deletion vectors on (delta.enableDeletionVectors=true): deletes then rewrite nothing"
                    .to_owned(),
            ),
            OpError::NotOfPartitions {
                partition_columns, ..
            } => Some(match partition_columns.as_slice() {
                [] => "the table has no partitions: leave the condition away".to_owned(),
                columns => format!(
                    "its partition columns are {}; without a condition all of it is meant",
                    listed(columns)
                ),
            }),
            OpError::TransactionConflict(conflict) => Some(match conflict.class {
                Class::ConcurrentTransaction => conflict.hint(),
                Class::ProtocolChanged
                | Class::MetadataChanged
                | Class::ConcurrentAppend
                | Class::ConcurrentDeleteRead
                | Class::ConcurrentDeleteDelete => {
                    "nothing was committed; begin another transaction, and run its steps again on the newest version"
                        .to_owned()
                }
            }),
            OpError::TransactionOver => {
                Some("remove its directory, and begin another transaction with mkdir".to_owned())
            }
            OpError::TransactionFull(_) => Some(
                "commit what is staged, and begin another transaction for the rest;                  --transaction-files allows more"
                    .to_owned(),
            ),
            OpError::Vanished(_) => Some(
                "nothing was committed; see who removes files from the table's directory (VACUUM with a retention of less \
                 than a transaction takes?), begin another transaction, and run its steps again"
                    .to_owned(),
            ),
            OpError::TransactionRetries => {
                Some("when it fails, begin another one and run its steps again".to_owned())
            }
            OpError::TransactionBusy
            | OpError::Gone(_)
            | OpError::NoColumns
            | OpError::Staging(_) => None,
        }
    }
}
