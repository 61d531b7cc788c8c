//! Where data files are shown and dropped: a table, or the table as a transaction sees it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::node::Node;
use super::transaction::TxEntry;
use crate::namespace::CONTROL_DIR;
use crate::table::{LiveFile, Table};

/// Which transaction. Names are used again, numbers are not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TxName {
    /// The table's directory, relative to the source.
    pub(super) table: PathBuf,
    pub(super) name: OsString,
    pub(super) number: u64,
}

impl TxName {
    /// Its path below the table, for people.
    pub(super) fn path(&self) -> String {
        format!("{CONTROL_DIR}/tx/{}", self.name.display())
    }
}

/// A table, as everybody sees it or as a transaction does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Site {
    /// The directory that is a table or becomes one, relative to the source.
    pub(super) table: PathBuf,
    pub(super) tx: Option<Arc<TxName>>,
}

impl Site {
    /// As everybody sees it.
    pub(super) fn table(path: &Path) -> Self {
        Site {
            table: path.to_owned(),
            tx: None,
        }
    }

    pub(super) fn inside(tx: &Arc<TxName>) -> Self {
        Site {
            table: tx.table.clone(),
            tx: Some(Arc::clone(tx)),
        }
    }

    /// The node of a visible directory: empty, or partition directories that end in `/`.
    pub(super) fn folder(&self, dir: &str) -> Node {
        match &self.tx {
            Some(tx) => Node::Tx {
                tx: Arc::clone(tx),
                entry: TxEntry::Dir(dir.to_owned()),
            },
            None if dir.is_empty() => Node::Dir(self.table.clone()),
            None => Node::Partition {
                table: self.table.clone(),
                dir: dir.to_owned(),
            },
        }
    }

    /// The node of a live file.
    pub(super) fn data(&self, handle: &Arc<Table>, file: Arc<LiveFile>) -> Node {
        match &self.tx {
            Some(tx) => Node::Tx {
                tx: Arc::clone(tx),
                entry: TxEntry::Data(file),
            },
            None => Node::Data {
                table: self.table.clone(),
                handle: Arc::clone(handle),
                file,
            },
        }
    }

    /// The place of the files in a visible directory.
    pub(super) fn at(&self, dir: &str) -> Place {
        Place {
            site: self.clone(),
            dir: dir.to_owned(),
            append_only: false,
        }
    }

    /// The place of what is dropped into its `in/append/`.
    pub(super) fn appending(&self) -> Place {
        Place {
            append_only: true,
            ..self.at("")
        }
    }
}

/// Where a staged file goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) site: Site,
    /// The visible directory in it: empty, or partition directories that end in `/`.
    pub(super) dir: String,
    /// Dropped into `in/append/`: never replaces a file of its name.
    pub(super) append_only: bool,
}
