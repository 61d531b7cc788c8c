//! Versions and transactions of one table: open, refresh, travel, commit.
//!
//! Knows the log and the store; never a mount's paths, never DataFusion. Everything blocks.

mod catalog;
pub mod checksum;
mod commit;
mod conflict;
mod drafts;
mod error;
mod group;
mod history;
mod load;
mod names;
mod packed;
mod path;
pub mod properties;
pub mod protocol;
mod rebase;
mod replay;
mod row_ids;
mod segment;
mod snapshot;
mod travel;
mod txn;
mod validate;
mod vectors;
mod views;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

pub use catalog::{Catalog, Place};
pub use commit::{Outcome, create};
pub use conflict::{Class, Conflict, Reason};
pub use drafts::Drafts;
pub use error::TableError;
pub use history::HistoryEntry;
pub use packed::{PackedStats, TemplateValues};
pub use path::DataPath;
pub use snapshot::{FileRef, LiveFile, NAME_TAG, Scan, Snapshot, Totals};
pub use txn::{Bin, Condition, Level, Operation, ReadSet, Reads, Rows, Source, Staged, Touched};
pub use vectors::Private;

use crate::env::{Env, Millis};
use crate::log::{LOG_DIR, LogName};
use crate::store::Dir;
use segment::LogFile;

/// An open table. Snapshots are handed out as they are known; [`Table::refresh`] looks for newer ones.
#[derive(Debug)]
pub struct Table {
    dir: Dir,
    env: Env,
    /// Lock order: `committing`, then `current`. Neither is held across anything but the work on the log.
    current: RwLock<Known>,
    /// One commit at a time from this process: waiting here is cheaper than losing a race.
    committing: Mutex<()>,
    /// Appends that wait for it. Held for a moment only, also while `committing` is.
    waiting: Mutex<Vec<Arc<group::Waiting>>>,
    /// Whether a checkpoint is being written: one at a time is enough.
    checkpointing: Arc<AtomicBool>,
    views: views::Views,
    /// Earlier versions.
    travel: travel::Travel,
}

/// The turn of one checkpoint.
#[derive(Debug)]
pub struct CheckpointTurn(Arc<AtomicBool>);

impl Drop for CheckpointTurn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[derive(Debug, Clone)]
struct Known {
    snapshot: Arc<Snapshot>,
    /// The commit file of the snapshot's version; tells a table that was made anew in the same place.
    file: Option<LogFile>,
    /// When the log was last looked at.
    checked: Millis,
}

impl Table {
    /// Opens the table in `dir` at its newest version.
    ///
    /// # Errors
    /// [`TableError`]: not a table, or a log that can't be replayed.
    pub fn open(dir: Dir, env: Env) -> Result<Self, TableError> {
        let known = load(&dir, &env, None)?;
        Ok(Self::with(dir, env, known))
    }

    /// Opens the table in `dir` at `version` alone: newer ones need not be readable. [`Table::snapshot`] is that
    /// version until the first [`Table::refresh`].
    ///
    /// # Errors
    /// As [`Table::at`].
    pub fn open_at(dir: Dir, env: Env, version: u64) -> Result<Self, TableError> {
        let mut known = load(&dir, &env, Some(version))?;
        known.checked = Millis::MIN;
        Ok(Self::with(dir, env, known))
    }

    fn with(dir: Dir, env: Env, known: Known) -> Self {
        Table {
            dir,
            env,
            current: RwLock::new(known),
            committing: Mutex::new(()),
            waiting: Mutex::default(),
            checkpointing: Arc::default(),
            views: views::Views::default(),
            travel: travel::Travel::default(),
        }
    }

    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The newest snapshot that is known, without looking.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.known().snapshot)
    }

    /// The newest snapshot if the log was looked at less than `max_age` milliseconds ago.
    pub fn recent(&self, max_age: Millis) -> Option<Arc<Snapshot>> {
        let known = self.known();
        let age = self.env.now().saturating_sub(known.checked);
        ((0..max_age).contains(&age)).then_some(known.snapshot)
    }

    /// Looks for new versions. Costs one failing `open` when there is none, and what is new when there is.
    ///
    /// # Errors
    /// [`TableError`]; the snapshot that was known stays.
    pub fn refresh(&self) -> Result<Arc<Snapshot>, TableError> {
        let started = self.env.instant();
        let now = self.env.now();
        let mut known = self.known();
        let mut moved = false;
        while let Some(commit) =
            segment::read_commit(&self.dir, known.snapshot.version().saturating_add(1))?
        {
            // What follows is another log's when the known version is.
            if !moved && !self.is_same_log(&known) {
                break;
            }
            let version = known.snapshot.version().saturating_add(1);
            let next =
                known
                    .snapshot
                    .next(self.dir.path(), version, commit.modified, commit.actions)?;
            known = Known {
                snapshot: Arc::new(next),
                file: Some(commit.file),
                checked: now,
            };
            moved = true;
        }
        if !moved && (!self.is_same_log(&known) || self.is_behind_checkpoint(&known)) {
            // Rolled back, another table by now, or cleaned up beyond it: what was known counts for nothing.
            let before = known.snapshot;
            let mut known = load(&self.dir, &self.env, None)?;
            known.checked = now;
            let goes_on = known.snapshot.metadata().id == before.metadata().id
                && known.snapshot.version() > before.version();
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            *current = known;
            let snapshot = Arc::clone(&current.snapshot);
            drop(current);
            if !goes_on {
                self.travel.replaced();
            }
            return Ok(snapshot);
        }
        known.checked = now;
        let version = known.snapshot.version();
        let snapshot = self.learn(known);
        if moved {
            let micros = started.elapsed().as_micros();
            tracing::debug!(table = %self.dir.path().display(), version, micros, "new versions");
        }
        Ok(snapshot)
    }

    /// The snapshot of a version.
    ///
    /// # Errors
    /// [`TableError::NoSuchVersion`] when it never was or is gone.
    pub fn at(&self, version: u64) -> Result<Arc<Snapshot>, TableError> {
        let newest = self.snapshot();
        if newest.version() == version {
            return Ok(newest);
        }
        segment::load(&self.dir, Some(version)).map(Arc::new)
    }

    /// Whether the commit of the known version is still the file that it was.
    fn is_same_log(&self, known: &Known) -> bool {
        let path = Path::new(LOG_DIR).join(LogName::commit(known.snapshot.version()));
        match (self.dir.metadata(&path), known.file) {
            (Ok(meta), Some(file)) => LogFile::of(&meta) == file,
            // A checkpoint without its commit file: there is no telling, and nothing newer.
            (Err(e), None) => e.is_absent(),
            _ => false,
        }
    }

    /// Whether the log goes on without the next commit: others have made a checkpoint of newer versions and cleaned
    /// up theirs. Then the number after the known one is free and must not be taken.
    fn is_behind_checkpoint(&self, known: &Known) -> bool {
        let next = known.snapshot.version().saturating_add(1);
        let path = Path::new(LOG_DIR).join(LogName::commit(next));
        segment::hint(&self.dir).is_some_and(|hint| hint.version >= next)
            && self.dir.metadata(&path).is_err_and(|e| e.is_absent())
    }

    fn known(&self) -> Known {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes over what is newer; an older answer of a slower thread never replaces a newer one.
    fn learn(&self, new: Known) -> Arc<Snapshot> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let other_table = current.snapshot.metadata().id != new.snapshot.metadata().id;
        if other_table || new.snapshot.version() >= current.snapshot.version() {
            let checkpoint = current.snapshot.checkpoint().filter(|_| !other_table);
            *current = new;
            if checkpoint > current.snapshot.checkpoint() {
                current.snapshot =
                    Arc::new(Snapshot::clone(&current.snapshot).with_checkpoint(checkpoint));
            }
        }
        Arc::clone(&current.snapshot)
    }

    /// The turn to write a checkpoint; `None` while another one is being written.
    pub fn begin_checkpoint(&self) -> Option<CheckpointTurn> {
        let taken = self.checkpointing.swap(true, Ordering::Acquire);
        (!taken).then(|| CheckpointTurn(Arc::clone(&self.checkpointing)))
    }

    /// Removes temporary files of ours that a dead daemon has left, older than an hour, and what its transactions have
    /// left.
    pub fn sweep(&self) {
        self.sweep_drafts();
        for folder in ["", LOG_DIR] {
            sweep(&self.dir, Path::new(folder), self.env.now());
        }
    }

    /// Notes that a checkpoint of `version` exists.
    pub(crate) fn checkpointed(&self, version: u64) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.snapshot.version() >= version {
            current.snapshot =
                Arc::new(Snapshot::clone(&current.snapshot).with_checkpoint(Some(version)));
        }
    }
}

/// Removes temporary files of ours from a folder when they are older than an hour: no write takes that long.
pub fn sweep(dir: &Dir, folder: &Path, now: Millis) {
    const OLD_MS: Millis = 3_600_000;
    let Ok(entries) = dir.list(folder) else {
        return;
    };
    for entry in entries {
        let ours = has_ending(&entry.name, TEMPORARY.1);
        let path = folder.join(&entry.name);
        let old = || {
            let age = |m: &std::fs::Metadata| now.saturating_sub(segment::modified_ms(m));
            dir.metadata(&path).is_ok_and(|m| age(&m) > OLD_MS)
        };
        if ours && old() {
            tracing::info!(path = %path.display(), "a temporary file of a dead daemon is removed");
            let _ = dir.remove_file(&path);
        }
    }
}

/// How the names of our temporary files start and end; the protocol gives them no meaning.
const TEMPORARY: (&str, &str) = (".deltafs-", ".tmp");

/// Whether a file of that name is a temporary one of ours: in the middle of being written, or a list of [`Drafts`].
pub fn is_temporary(name: &std::ffi::OsStr) -> bool {
    has_ending(name, TEMPORARY.1) || has_ending(name, drafts::LIST)
}

fn has_ending(name: &std::ffi::OsStr, ending: &str) -> bool {
    name.to_str()
        .is_some_and(|n| n.starts_with(TEMPORARY.0) && n.ends_with(ending))
}

/// A new name for a temporary file.
pub(crate) fn temporary_name(env: &Env) -> String {
    format!("{}{}{}", TEMPORARY.0, env.uuid(), TEMPORARY.1)
}

fn load(dir: &Dir, env: &Env, version: Option<u64>) -> Result<Known, TableError> {
    let checked = env.now();
    let snapshot = Arc::new(segment::load(dir, version)?);
    let path = Path::new(LOG_DIR).join(LogName::commit(snapshot.version()));
    let file = dir.metadata(&path).ok().map(|m| LogFile::of(&m));
    Ok(Known {
        snapshot,
        file,
        checked,
    })
}

#[cfg(test)]
mod commit_tests;
#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod tests;
