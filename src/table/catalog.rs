//! The tables below one root.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::segment::Listing;
use super::{Table, TableError};
use crate::env::Env;
use crate::log::LOG_DIR;
use crate::store::{Dir, EntryKind, StoreError};

/// What a path below the root is.
#[derive(Debug, Clone)]
pub enum Place {
    /// A plain directory.
    Plain,
    /// The root of a table.
    Table,
    /// A file that belongs to no table.
    File,
}

/// Opens each table once.
#[derive(Debug)]
pub struct Catalog {
    root: Dir,
    env: Env,
    tables: Mutex<HashMap<PathBuf, Arc<Table>>>,
}

impl Catalog {
    pub fn new(root: Dir, env: Env) -> Self {
        Catalog {
            root,
            env,
            tables: Mutex::default(),
        }
    }

    pub fn root(&self) -> &Dir {
        &self.root
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    /// What is under `path`, which must not lie inside of a table.
    ///
    /// # Errors
    /// [`TableError::Store`], absent when nothing is there.
    pub fn place(&self, path: &Path) -> Result<Place, TableError> {
        let meta = self.root.metadata(path)?;
        if !meta.is_dir() {
            return Ok(Place::File);
        }
        Ok(if self.is_table(path)? {
            Place::Table
        } else {
            Place::Plain
        })
    }

    /// A directory is a table when its log holds a commit or a checkpoint. An empty log folder is what a crash
    /// during the creation of a table leaves.
    fn is_table(&self, path: &Path) -> Result<bool, TableError> {
        match self.root.metadata(&path.join(LOG_DIR)) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Ok(false),
            Err(e) if e.is_absent() => return Ok(false),
            // A symbolic link that leads out is no log.
            Err(StoreError::Outside { .. }) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        if self.known(path).is_some() {
            return Ok(true);
        }
        Ok(Listing::read(&self.root.sub(path)?)?.newest().is_some())
    }

    /// The table in the directory `path`.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn table(&self, path: &Path) -> Result<Arc<Table>, TableError> {
        self.open(path).map(|(table, _)| table)
    }

    /// The table in the directory `path`, and whether this call has opened it.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn open(&self, path: &Path) -> Result<(Arc<Table>, bool), TableError> {
        if let Some(table) = self.known(path) {
            return Ok((table, false));
        }
        let table = Arc::new(Table::open(self.root.sub(path)?, self.env.clone())?);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((
            Arc::clone(tables.entry(path.to_owned()).or_insert(table)),
            true,
        ))
    }

    /// Takes over a table that has just been created.
    pub fn register(&self, path: &Path, table: Table) -> Arc<Table> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        // A lookup may have opened it meanwhile: there is one object for a table.
        Arc::clone(
            tables
                .entry(path.to_owned())
                .or_insert_with(|| Arc::new(table)),
        )
    }

    /// Forgets a table whose directory is gone.
    pub fn forget(&self, path: &Path) {
        self.tables
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(path);
    }

    /// The tables that are open.
    pub fn open_tables(&self) -> Vec<(PathBuf, Arc<Table>)> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables
            .iter()
            .map(|(p, t)| (p.clone(), Arc::clone(t)))
            .collect()
    }

    /// The entries of a plain directory, without the logs of tables; unsorted.
    ///
    /// # Errors
    /// [`TableError::Store`].
    pub fn list_plain(
        &self,
        path: &Path,
    ) -> Result<Vec<(std::ffi::OsString, EntryKind)>, TableError> {
        let entries = self.root.list(path)?;
        Ok(entries
            .into_iter()
            .filter(|e| e.name != LOG_DIR)
            .map(|e| (e.name, e.kind))
            .collect())
    }

    /// The open table of a path, if it is still the directory that it was opened in.
    fn known(&self, path: &Path) -> Option<Arc<Table>> {
        let table = {
            let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
            tables.get(path).cloned()?
        };
        let here = self.root.sub(path).and_then(|dir| dir.identity()).ok();
        if here.is_some() && here == table.dir().identity().ok() {
            return Some(table);
        }
        self.forget(path);
        None
    }
}
