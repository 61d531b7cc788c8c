//! What a transaction's directory shows, and how it is opened.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Phase, Tx, owned_by};
use crate::fs::dir::Listing;
use crate::fs::node::Node;
use crate::fs::outcome::line;
use crate::fs::render::{Content, usage};
use crate::fs::site::{Site, TxName};
use crate::fs::verb::Statement;
use crate::fs::{
    Attr, Caller, Core, FileKind, FsError, FsResult, OpenFlags, Opened, not_permitted,
};
use crate::namespace::{CONTROL_DIR, TxControl};
use crate::ops::Transaction;
use crate::table::LiveFile;

/// Something of a transaction.
#[derive(Debug, Clone)]
pub(in crate::fs) enum TxEntry {
    /// The root (empty) or a directory of partition values: `a=1/b=2/`.
    Dir(String),
    Data(Arc<LiveFile>),
    Control(TxControl),
}

impl TxEntry {
    /// Its path below the transaction's directory, for people.
    pub(in crate::fs) fn path(&self) -> String {
        match self {
            TxEntry::Dir(dir) => dir.trim_end_matches('/').to_owned(),
            TxEntry::Data(file) => file.visible.to_string(),
            TxEntry::Control(entry) => entry.path(),
        }
    }
}

impl Core {
    pub(in crate::fs) fn child_of_tx(
        &self,
        tx: &Arc<TxName>,
        entry: &TxEntry,
        name: &OsStr,
    ) -> FsResult<Node> {
        let site = Site::inside(tx);
        let control = |entry| Node::Tx {
            tx: Arc::clone(tx),
            entry: TxEntry::Control(entry),
        };
        match entry {
            TxEntry::Dir(dir) => {
                let fixed = TxControl::ROOT.into_iter().filter(|_| dir.is_empty());
                if let Some((_, entry)) = fixed.into_iter().find(|(known, _)| *known == name) {
                    self.tx(tx)?;
                    return Ok(control(entry));
                }
                if name == CONTROL_DIR {
                    return Err(FsError::NotFound);
                }
                let (handle, view) = self.shown(tx)?.ok_or(FsError::NotFound)?;
                self.child_of_table(&site.at(dir), &handle, &view, name)
            }
            TxEntry::Control(TxControl::Mode(_)) => self
                .staged(&site.appending(), name)
                .ok_or(FsError::NotFound),
            TxEntry::Control(entry) if entry.is_dir() => {
                let mut children = entry.children().into_iter();
                let found = children.find(|(known, _)| *known == name);
                found
                    .map(|(_, entry)| control(entry))
                    .ok_or(FsError::NotFound)
            }
            TxEntry::Control(_) | TxEntry::Data(_) => Err(FsError::NotDir),
        }
    }

    pub(in crate::fs) fn list_tx(
        &self,
        tx: &Arc<TxName>,
        entry: &TxEntry,
        listing: &mut Listing,
    ) -> FsResult<()> {
        let site = Site::inside(tx);
        let mut fixed = Vec::new();
        match entry {
            TxEntry::Dir(dir) => {
                if dir.is_empty() && self.settings.list_control {
                    fixed.extend(TxControl::ROOT);
                }
                if let Some((handle, view)) = self.shown(tx)? {
                    self.list_table(&site.at(dir), &handle, &view, listing)?;
                }
            }
            TxEntry::Control(TxControl::Mode(_)) => {
                self.list_staged(&site.appending(), &|_| false, listing);
            }
            TxEntry::Control(entry) if entry.is_dir() => fixed = entry.children(),
            TxEntry::Control(_) | TxEntry::Data(_) => return Err(FsError::NotDir),
        }
        for (name, entry) in fixed {
            let kind = match entry.is_dir() {
                true => FileKind::Dir,
                false => FileKind::File,
            };
            let node = Node::Tx {
                tx: Arc::clone(tx),
                entry: TxEntry::Control(entry),
            };
            listing.push(name, node.number(), kind);
        }
        Ok(())
    }

    /// Attributes. The directory is its owner's; others read what they may read of the table.
    pub(in crate::fs) fn tx_attr(
        &self,
        node: &Node,
        name: &Arc<TxName>,
        entry: &TxEntry,
    ) -> FsResult<Attr> {
        let tx = self.tx(name)?;
        let table = &name.table;
        let mut attr = match entry {
            TxEntry::Data(file) => self.data_attr(node, table, &tx.table, file)?,
            TxEntry::Dir(dir) => {
                // To look at it is not to use it.
                let view = tx.steps().ok().map(|steps| steps.view());
                let site = Site::inside(name);
                let known = dir.is_empty()
                    || view.as_ref().is_some_and(|view| {
                        view.has_dir(dir) || self.overlay().has_dir(&site, dir)
                    });
                if !known {
                    return Err(FsError::NotFound);
                }
                let mtime = view.map_or_else(|| tx.state().used, |view| view.timestamp());
                self.tx_dir_attr(node, table, &tx, mtime, 0o300)?
            }
            TxEntry::Control(entry) if entry.is_dir() => {
                let write = match entry {
                    TxControl::Mode(_) => 0o300,
                    _ => 0o100,
                };
                self.tx_dir_attr(node, table, &tx, self.started, write)?
            }
            TxEntry::Control(entry) => {
                let content = self.tx_content(&tx, *entry);
                let write = match entry {
                    TxControl::Commit | TxControl::Verb(_) => 0o200,
                    _ => 0,
                };
                let mut attr = self.tx_dir_attr(node, table, &tx, content.mtime_ms, write)?;
                (attr.kind, attr.nlink) = (FileKind::File, 1);
                attr.size = content.text.len() as u64;
                attr.mode &= !0o111;
                attr
            }
        };
        // It may end at any time.
        attr.ttl = Duration::ZERO;
        Ok(attr)
    }

    /// As the table's directory, but only its owner's to write; `own` are the bits that only the owner has.
    fn tx_dir_attr(
        &self,
        node: &Node,
        table: &Path,
        tx: &Tx,
        mtime_ms: i64,
        own: u16,
    ) -> FsResult<Attr> {
        let mut attr = self.dir_attr(node, table, Some(mtime_ms))?;
        let mask = !self.settings.umask.unwrap_or(0);
        attr.mode = (attr.mode & 0o055) | ((0o400 | own) & mask);
        attr.uid = self.settings.uid.unwrap_or(tx.uid);
        Ok(attr)
    }

    fn tx_content(&self, tx: &Tx, entry: TxControl) -> Content {
        let (phase, used, last) = {
            let state = tx.state();
            let last = match entry {
                TxControl::Verb(verb) => state.verbs.get(&verb).cloned(),
                _ => None,
            };
            (state.phase.clone(), state.used, last)
        };
        match (entry, phase) {
            (TxControl::Verb(verb), _) => match last {
                Some(outcome) => Content {
                    text: outcome.text,
                    mtime_ms: outcome.at,
                },
                None => Content {
                    text: usage(verb).into(),
                    mtime_ms: self.started,
                },
            },
            (_, Phase::Over { outcome, .. }) => Content {
                text: outcome.text,
                mtime_ms: outcome.at,
            },
            (TxControl::Commit, Phase::Open(_)) => Content {
                text: COMMIT_USAGE.into(),
                mtime_ms: self.started,
            },
            (_, Phase::Open(steps)) => Content {
                text: line(&open_outcome(tx, &steps)),
                mtime_ms: used,
            },
        }
    }

    pub(in crate::fs) fn open_tx(
        &self,
        name: &Arc<TxName>,
        entry: &TxEntry,
        flags: OpenFlags,
        caller: Caller,
    ) -> FsResult<Opened> {
        match entry {
            TxEntry::Dir(_) => Err(FsError::IsDir),
            TxEntry::Data(file) => {
                let site = Site::inside(name);
                if flags.write {
                    self.may_write(&site, caller)?;
                }
                let (handle, view) = self.shown(name)?.ok_or(FsError::Stale)?;
                self.open_listed(&site, &handle, &view, file, flags, caller)
            }
            TxEntry::Control(entry) => {
                let tx = self.tx(name)?;
                if entry.is_dir() {
                    return Err(FsError::IsDir);
                }
                if !flags.write {
                    return Ok(self.open_text(self.tx_content(&tx, *entry).text));
                }
                let statement = match entry {
                    TxControl::Commit => Statement::Commit(Arc::clone(&tx)),
                    TxControl::Verb(verb) => Statement::Step(*verb, Arc::clone(&tx)),
                    _ => {
                        return Err(not_permitted(
                            format!("{}/{} is read-only", name.path(), entry.path()),
                            "statements are written to the files in ctl, and `commit` to commit",
                        ));
                    }
                };
                owned_by(&tx, caller)?;
                self.open_steps(name)?;
                Ok(self.open_statement(statement, &name.table, caller))
            }
        }
    }
}

const COMMIT_USAGE: &str = "# commit: write `commit` here, and all that was done in this directory is one version\n\
                            # echo commit > commit; rmdir of the directory aborts\n";

fn open_outcome(tx: &Tx, steps: &Transaction) -> serde_json::Value {
    let counts = steps.counts();
    let totals = steps.view().totals();
    let rows = (totals.uncounted == 0).then(|| totals.records.saturating_sub(totals.deleted));
    json!({
        "outcome": "open",
        "transaction": tx.name.name.to_string_lossy(),
        "read_version": steps.read_version(),
        "staged": {
            "steps": counts.steps,
            "files_added": counts.files_added,
            "files_changed": counts.files_changed,
            "files_removed": counts.files_removed,
        },
        "files": totals.files,
        "rows": rows,
    })
}
