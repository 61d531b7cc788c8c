//! Files that lie in the table's directory for a transaction, and that no version refers to yet.
//!
//! # Why they are written down
//! A transaction may gather thousands of them for hours. When its daemon dies, the next one must not leave them to
//! VACUUM: their paths stand in a file beside them, which its daemon keeps locked for as long as it lives. That file
//! is gone for good before a commit is tried: what it names is in no version, whoever reads it.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::Path;

use super::{DataPath, Table, TableError};
use crate::log::LOG_DIR;
use crate::store::StoreError;

/// How the names of these lists end. They begin as those of our temporary files do.
pub(super) const LIST: &str = ".tx";

/// Files that this process has made for a transaction.
#[derive(Debug, Default)]
pub struct Drafts {
    /// Relative to the table.
    paths: Vec<String>,
    list: Option<List>,
}

/// Their paths on the disk, one JSON text a line.
#[derive(Debug)]
struct List {
    name: String,
    /// Locked.
    file: File,
}

impl Drafts {
    /// Takes up files that lie in the table's directory already.
    ///
    /// # Errors
    /// [`TableError::Store`] when they can't be written down: they are still their caller's.
    pub fn add(&mut self, table: &Table, paths: &[String]) -> Result<(), TableError> {
        if paths.is_empty() {
            return Ok(());
        }
        match &mut self.list {
            Some(list) => list.append(table, paths)?,
            None => {
                let mut list = List::new(table)?;
                let listed = list.append(table, &self.paths);
                if let Err(error) = listed.and_then(|()| list.append(table, paths)) {
                    list.remove(table);
                    return Err(error);
                }
                self.list = Some(list);
            }
        }
        self.paths.extend_from_slice(paths);
        Ok(())
    }

    /// Lets no other process remove them any more. Durable on return.
    ///
    /// # Errors
    /// [`TableError::Store`]: nothing has changed.
    pub fn release(&mut self, table: &Table) -> Result<(), TableError> {
        let Some(list) = &self.list else {
            return Ok(());
        };
        match table.dir.remove_file(Path::new(&list.name)) {
            Err(e) if !e.is_absent() => return Err(e.into()),
            Ok(()) | Err(_) => {}
        }
        table.dir.sync_dir(Path::new("."))?;
        self.list = None;
        Ok(())
    }

    /// Removes those that `keep` does not want, and forgets all of them.
    pub fn discard(&mut self, table: &Table, keep: impl Fn(&str) -> bool) {
        for path in self.paths.drain(..).filter(|path| !keep(path)) {
            table.discard(&path);
        }
        if let Some(list) = self.list.take() {
            list.remove(table);
        }
    }
}

impl List {
    fn new(table: &Table) -> Result<Self, TableError> {
        let temporary = super::temporary_name(&table.env);
        let name = temporary.trim_end_matches(super::TEMPORARY.1).to_owned() + LIST;
        let file = table.dir.create_new(Path::new(&temporary))?;
        // Whoever finds it under its name finds it locked.
        let locked = file
            .try_lock()
            .map_err(|e| io(table, "lock", &name, e.into()));
        let named = locked.and_then(|()| {
            let renamed = table.dir.rename(Path::new(&temporary), Path::new(&name));
            renamed.map_err(TableError::from)
        });
        match named {
            Ok(()) => Ok(List { name, file }),
            Err(error) => {
                table.discard(&temporary);
                Err(error)
            }
        }
    }

    fn append(&mut self, table: &Table, paths: &[String]) -> Result<(), TableError> {
        let lines = paths
            .iter()
            .map(|path| format!("{}\n", serde_json::json!(path)));
        let lines: String = lines.collect();
        let written = self.file.write_all(lines.as_bytes());
        written.map_err(|e| io(table, "write", &self.name, e))
    }

    fn remove(self, table: &Table) {
        table.discard(&self.name);
    }
}

fn io(table: &Table, action: &'static str, name: &str, source: std::io::Error) -> TableError {
    StoreError::Io {
        action,
        path: table.dir.path().join(name),
        source,
    }
    .into()
}

impl Table {
    /// Removes what transactions of dead daemons have left behind.
    pub(super) fn sweep_drafts(&self) {
        let Ok(entries) = self.dir.list(Path::new("")) else {
            return;
        };
        for entry in entries {
            let Some(name) = entry.name.to_str() else {
                continue;
            };
            if name.starts_with(super::TEMPORARY.0)
                && name.ends_with(LIST)
                && let Err(error) = self.sweep_list(name)
            {
                tracing::debug!(name, %error, "what a dead daemon has left can't be looked at");
            }
        }
    }

    fn sweep_list(&self, name: &str) -> Result<(), TableError> {
        let mut file = self.dir.open_file(Path::new(name))?;
        match file.try_lock() {
            Ok(()) => {}
            // Its daemon lives.
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(e)) => return Err(io(self, "lock", name, e)),
        }
        let mut text = String::new();
        file.read_to_string(&mut text)
            .map_err(|e| io(self, "read", name, e))?;
        let snapshot = self.refresh()?;
        // The last line may be half written: then its file stays.
        let paths = text
            .lines()
            .filter_map(|l| serde_json::from_str::<String>(l).ok());
        let mut removed = 0_u64;
        for path in paths {
            let live = snapshot
                .live_file(&DataPath::Inside(path.clone()))
                .is_some();
            if live || Path::new(&path).starts_with(LOG_DIR) {
                tracing::warn!(
                    name,
                    path,
                    "a list of files without a version names one of the table"
                );
                continue;
            }
            self.discard(&path);
            removed += 1;
        }
        self.discard(name);
        tracing::info!(name, removed, "a transaction of a dead daemon is aborted");
        Ok(())
    }
}
