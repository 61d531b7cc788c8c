//! What an inode stands for.

use std::hash::Hasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Ino;
use super::past::{At, PastEntry};
use super::site::{Site, TxName};
use super::stage::Stage;
use super::transaction::TxEntry;
use crate::namespace::Control;
use crate::table::{LiveFile, Table};

/// A node of the tree. Directories are resolved when they are used: a plain one may become a table.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// A plain directory or the root of a table; relative to the source.
    Dir(PathBuf),
    /// A directory of partition values inside a table: `a=1/b=2/`.
    Partition { table: PathBuf, dir: String },
    /// A data file at one version of itself; it never changes.
    Data {
        table: PathBuf,
        handle: Arc<Table>,
        file: Arc<LiveFile>,
    },
    /// A file that was created or is being written here.
    Staged(Arc<Stage>),
    /// A file beside tables.
    Foreign(PathBuf),
    /// An entry of the control directory of `owner`.
    Control { owner: PathBuf, entry: Control },
    /// Something of an earlier version.
    Past {
        table: PathBuf,
        at: At,
        entry: PastEntry,
    },
    /// Something of a transaction.
    Tx { tx: Arc<TxName>, entry: TxEntry },
}

impl Node {
    /// What identifies the node for as long as it lives: two nodes with one key are the same file.
    pub(super) fn key(&self) -> Vec<u8> {
        match self {
            Node::Dir(path) => key(b'd', path, &[]),
            Node::Partition { table, dir } => key(b'p', table, &[dir.as_bytes()]),
            Node::Data { table, file, .. } => {
                let dv = file.add.dv_id();
                data_key(&Site::table(table), file.path.key(), dv.as_deref())
            }
            Node::Staged(stage) => stage.key(),
            Node::Foreign(path) => key(b'x', path, &[]),
            Node::Control { owner, entry } => key(b'c', owner, &[&entry.key()]),
            Node::Past { table, at, entry } => {
                let [version, incarnation, asked] = at.key();
                let (kind, rest) = entry.key();
                key(
                    b'v',
                    table,
                    &[&version, &incarnation, &asked, &[kind], &rest],
                )
            }
            Node::Tx { tx, entry } => match entry {
                TxEntry::Data(file) => {
                    let dv = file.add.dv_id();
                    data_key(&Site::inside(tx), file.path.key(), dv.as_deref())
                }
                TxEntry::Dir(dir) => tx_key(tx, b"d", &[dir.as_bytes()]),
                TxEntry::Control(entry) => tx_key(tx, b"c", &[entry.path().as_bytes()]),
            },
        }
    }

    /// The directory of the table that it belongs to, or that it may be.
    pub(super) fn owner(&self) -> Option<&Path> {
        match self {
            Node::Dir(path) => Some(path),
            Node::Partition { table, .. } | Node::Data { table, .. } | Node::Past { table, .. } => {
                Some(table)
            }
            Node::Staged(stage) => Some(&stage.place.site.table),
            Node::Tx { tx, .. } => Some(&tx.table),
            Node::Control { owner, .. } => Some(owner),
            Node::Foreign(_) => None,
        }
    }

    /// What it is called below its table, for messages.
    pub(super) fn subject(&self) -> String {
        match self {
            Node::Dir(_) => String::new(),
            Node::Partition { dir, .. } => dir.trim_end_matches('/').to_owned(),
            Node::Data { file, .. } => file.visible.to_string(),
            Node::Staged(stage) => {
                let name = format!("{}{}", stage.place.dir, stage.name().display());
                match &stage.place.site.tx {
                    Some(tx) => format!("{}/{name}", tx.path()),
                    None => name,
                }
            }
            Node::Foreign(path) => path.display().to_string(),
            Node::Control { entry, .. } => format!(".delta/{}", entry.path()),
            Node::Past { at, entry, .. } => {
                let path = format!("{}/{}", at.path(), entry.path());
                path.trim_end_matches('/').to_owned()
            }
            Node::Tx { tx, entry } => {
                let path = format!("{}/{}", tx.path(), entry.path());
                path.trim_end_matches('/').to_owned()
            }
        }
    }

    /// The number of the node: a hash of its key, so that it is the same whoever asks and whenever.
    pub(super) fn number(&self) -> Ino {
        if let Node::Dir(path) = self
            && path.as_os_str().is_empty()
        {
            return Ino::ROOT;
        }
        number(&self.key())
    }
}

/// Key of a data file: where it is stored and which of its rows are dead.
pub(super) fn data_key(site: &Site, path: &str, dv: Option<&str>) -> Vec<u8> {
    let file = [path.as_bytes(), dv.unwrap_or_default().as_bytes()];
    match &site.tx {
        None => key(b'f', &site.table, &file),
        Some(tx) => tx_key(tx, b"f", &file),
    }
}

fn tx_key(tx: &TxName, kind: &[u8], rest: &[&[u8]]) -> Vec<u8> {
    let number = tx.number.to_string();
    key(
        b't',
        &tx.table,
        &[&[number.as_bytes(), kind], rest].concat(),
    )
}

/// Names are bytes; none holds a NUL.
fn key(kind: u8, path: &Path, rest: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![kind];
    for part in [path.as_os_str().as_bytes()].iter().chain(rest) {
        key.push(0);
        key.extend_from_slice(part);
    }
    key
}

pub(super) fn number(key: &[u8]) -> Ino {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(key);
    // 0 is no inode and 1 is the root.
    Ino(hasher.finish().max(2))
}
