//! What a transaction has read and what it wants to commit: enough to carry it over the versions of others
//! (PROTOCOL.md F1). Plain data; `conflict` judges it, `rebase` carries it forward, `commit` commits it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{LiveFile, Snapshot, Table};
use crate::deletion_vector::{DeletionVectorDescriptor, RowSet};
use crate::log::{Action, Add};

/// What `commitInfo` says of a commit.
#[derive(Debug, Clone)]
pub struct Operation {
    /// `WRITE`, `DELETE`, …
    pub name: &'static str,
    /// Values are text or JSON in text, as Delta Spark has them.
    pub parameters: Vec<(&'static str, String)>,
    pub metrics: BTreeMap<&'static str, u64>,
    pub user_metadata: Option<String>,
}

impl Operation {
    /// Nothing but a name.
    pub fn new(name: &'static str) -> Self {
        Operation {
            name,
            parameters: Vec::new(),
            metrics: BTreeMap::new(),
            user_metadata: None,
        }
    }
}

/// A transaction that waits for a version. What it was staged against is its base.
#[derive(Debug, Clone)]
pub struct Staged {
    /// What stays as it is whoever commits before: new files, whole-file rewrites, metadata, application ids.
    pub actions: Vec<Action>,
    /// Files that lose rows. Their actions are made for each attempt.
    pub touched: Vec<Touched>,
    /// Files that are put together. Their actions are made for each attempt.
    pub bins: Vec<Bin>,
    pub operation: Operation,
    pub reads: Reads,
    /// A visible name that must not be live when it is committed: the file would have replaced it.
    pub absent: Option<String>,
}

impl Staged {
    /// New files whose writer has read nothing of the table.
    pub fn append(actions: Vec<Action>, operation: Operation) -> Self {
        Self::with(actions, operation, Reads::Nothing)
    }

    /// Actions of a transaction that has read something.
    pub fn with(actions: Vec<Action>, operation: Operation, reads: Reads) -> Self {
        Staged {
            actions,
            touched: Vec::new(),
            bins: Vec::new(),
            operation,
            reads,
            absent: None,
        }
    }

    /// Whether it is a blind append: every file action is an add, and nothing of the table was read.
    pub fn is_blind(&self) -> bool {
        matches!(self.reads, Reads::Nothing)
    }

    /// Whether there is nothing to be committed, as of a compaction whose files have all gone.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.touched.is_empty() && self.bins.is_empty()
    }

    pub(super) fn read_set(&self) -> Option<&ReadSet> {
        match &self.reads {
            Reads::Known(reads) => Some(reads),
            Reads::Nothing | Reads::Restage => None,
        }
    }
}

/// What a transaction has read.
#[derive(Debug, Clone)]
pub enum Reads {
    /// Schema and protocol only.
    Nothing,
    /// It must be staged again when anybody was first: cheap operations on what is newest, such as `rm`.
    Restage,
    /// What others may have changed under it.
    Known(ReadSet),
}

/// What a transaction has read of the rows.
#[derive(Debug, Clone, Default)]
pub struct ReadSet {
    /// Every row, whatever it is.
    pub whole_table: bool,
    /// The rows that these select.
    pub conditions: Vec<Arc<dyn Condition>>,
    /// [`super::DataPath::key`] of the files that may hold such rows.
    pub files: BTreeSet<String>,
    /// Applications whose last transaction was asked for. Those that it writes count by themselves.
    pub app_ids: BTreeSet<String>,
}

impl ReadSet {
    /// Whether rows were read at all.
    pub(super) fn reads_rows(&self) -> bool {
        self.whole_table || !self.conditions.is_empty()
    }
}

/// A condition of a statement, asked about files and rows of others.
pub trait Condition: Debug + Send + Sync {
    /// Whether the partition values of a file leave room for a row that it selects. What is not deterministic
    /// counts as true. `reading` is the snapshot that the statement has read.
    fn may_select(&self, reading: &Snapshot, file: &Add) -> bool;

    /// Whether each row by itself gives the answer, the same one each time (PROTOCOL.md F3: no sub-query, nothing
    /// non-deterministic, no struct, array or map column).
    fn is_row_local(&self) -> bool;

    /// How many live rows of a file of `view` it selects, `among` some of its physical rows if they are given.
    ///
    /// # Errors
    /// Why they can't be asked.
    fn selected(
        &self,
        table: &Table,
        view: &Snapshot,
        file: &LiveFile,
        among: Option<&RowSet>,
    ) -> Result<u64, String>;
}

/// A file that loses rows.
#[derive(Debug, Clone)]
pub struct Touched {
    /// As it is in the version that the transaction is carried to.
    pub file: Arc<LiveFile>,
    /// Its dead rows in that version; `None` while nobody has asked.
    pub dead: Option<RowSet>,
    pub rows: Rows,
    /// Rows whose change by somebody else is a conflict although they stay (MERGE: matched without an effect).
    pub read: RowSet,
    /// Physical rows, where they have been counted.
    pub physical: Option<u64>,
}

/// Rows of a file that go.
#[derive(Debug, Clone)]
pub enum Rows {
    /// Every live one.
    All,
    These(RowSet),
}

/// Files that become one.
#[derive(Debug, Clone)]
pub struct Bin {
    /// The new file.
    pub add: Add,
    /// Where it lies, relative to the table.
    pub path: String,
    /// Their rows follow each other in the new file.
    pub sources: Vec<Source>,
    /// Rows of the new file that others have deleted in a source meanwhile.
    pub dead: RowSet,
    /// Whether the rows lie in it in the order of the sources: only then can rows be found again (PROTOCOL.md F3).
    pub in_order: bool,
}

/// A file whose rows go over to another one.
#[derive(Debug, Clone)]
pub struct Source {
    pub file: Arc<LiveFile>,
    /// Its vector when its rows were copied.
    pub vector: Option<DeletionVectorDescriptor>,
    /// Its dead rows when its rows were copied.
    pub dead: RowSet,
    /// Where its rows begin in the new file.
    pub start: u64,
    /// Rows that were copied.
    pub rows: u64,
    /// Whether it is still live.
    pub live: bool,
}

/// Where the rows of a file that was compacted have gone: `commitInfo["deltafs.moves"]`, by the new file's path.
///
/// # Why in commitInfo and not in the tags of the new file
/// Whoever needs it reads the commit. Tags would stay in every snapshot and checkpoint for as long as the file lives.
pub(super) const MOVES: &str = "deltafs.moves";

/// One entry of [`MOVES`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Move {
    /// `add.path` of the source.
    pub(super) path: String,
    /// Its vector when its rows were copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deletion_vector: Option<DeletionVectorDescriptor>,
    /// Where its rows begin in the new file.
    pub(super) start: u64,
    /// Rows that were copied.
    pub(super) rows: u64,
}

/// The isolation level of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Serializable,
    WriteSerializable,
    /// Of those that change no row.
    Snapshot,
}

impl Level {
    /// As `commitInfo.isolationLevel` has it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Serializable => "Serializable",
            Level::WriteSerializable => "WriteSerializable",
            Level::Snapshot => "SnapshotIsolation",
        }
    }
}
