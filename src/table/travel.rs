//! Earlier versions: which the log can still rebuild, and the few that are kept rebuilt.
//!
//! Knows the names of the log's folder; what they hold is `segment`'s business, when they were made `history`'s.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hasher as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::history::Times;
use super::{Snapshot, Table, TableError, segment};
use crate::env::Millis;
use crate::log::{LOG_DIR, LogName};
use crate::store::EntryKind;

/// Rebuilt snapshots that are kept for a table: each may be as large as the newest one.
const SNAPSHOTS: usize = 4;
/// A rebuilt snapshot that nobody asked for this long is dropped.
const IDLE_MS: Millis = 60_000;
/// How late it is seen that somebody has cleaned up the log. New versions are seen at once.
const RECHECK_MS: Millis = 1000;
/// A folder that was changed this shortly before it was read may have changed since without another time.
const TICK_MS: Millis = 50;

/// A version is rebuilt from an earlier one that is at hand when no more commits than this are between them.
const NEAR: u64 = 64;

/// What a table remembers of its earlier versions. All locks are leaves, but for `rebuilding`.
#[derive(Debug, Default)]
pub(super) struct Travel {
    kept: Mutex<Option<Arc<Kept>>>,
    /// The last used one is the last.
    slots: Mutex<Vec<Slot>>,
    /// Those that somebody holds, kept or not.
    held: Mutex<HashMap<u64, Weak<Snapshot>>>,
    /// One at a time, however many are asked for: it takes as much memory as the table, and all cores.
    rebuilding: Mutex<()>,
    pub(super) times: Mutex<Times>,
    /// How often the log was found to be another one.
    replaced: AtomicU64,
}

#[derive(Debug, Clone)]
struct Slot {
    used: Millis,
    snapshot: Arc<Snapshot>,
}

/// What the log can tell, at one look at its folder.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// The versions that can be rebuilt, ascending.
    pub(super) versions: Vec<u64>,
    /// The versions that have a commit file, ascending.
    pub(super) commits: Vec<u64>,
    newest: u64,
    read: Millis,
    /// The folder's time of change.
    changed_ns: i128,
}

impl Travel {
    /// The log is not the one that it was: what was known counts for nothing.
    pub(super) fn replaced(&self) {
        self.replaced.fetch_add(1, Ordering::Relaxed);
        *lock(&self.kept) = None;
        lock(&self.slots).clear();
        lock(&self.held).clear();
        *lock(&self.times) = Times::default();
    }

    /// The snapshot of a version that is at hand.
    fn known(&self, version: u64, now: Millis) -> Option<Arc<Snapshot>> {
        let held = lock(&self.held).get(&version).and_then(Weak::upgrade)?;
        self.keep(&held, now);
        Some(held)
    }

    fn keep(&self, snapshot: &Arc<Snapshot>, now: Millis) {
        let version = snapshot.version();
        let mut slots = lock(&self.slots);
        slots.retain(|s| s.snapshot.version() != version);
        slots.push(Slot {
            used: now,
            snapshot: Arc::clone(snapshot),
        });
        let spare = slots.len().saturating_sub(SNAPSHOTS);
        let dropped: Vec<Slot> = slots.drain(..spare).collect();
        drop(slots);
        let mut held = lock(&self.held);
        held.insert(version, Arc::downgrade(snapshot));
        drop(dropped);
        held.retain(|_, snapshot| snapshot.strong_count() > 0);
    }

    /// The nearest version before `version` that is at hand.
    fn before(&self, version: u64) -> Option<Arc<Snapshot>> {
        let held = lock(&self.held);
        let near = held.iter().filter(|(v, _)| **v < version);
        near.filter_map(|(_, snapshot)| snapshot.upgrade())
            .max_by_key(|snapshot| snapshot.version())
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// The versions that can be rebuilt from the log, ascending, up to the newest one that is known. Costs one `stat`
    /// while the folder of the log stays as it is.
    ///
    /// # Errors
    /// [`TableError::Store`] when the folder can't be listed.
    pub fn versions(&self) -> Result<Vec<u64>, TableError> {
        let newest = self.snapshot();
        Ok(self.kept(newest.version())?.versions.clone())
    }

    /// Whether a version can be rebuilt.
    ///
    /// # Errors
    /// [`TableError::NoSuchVersion`] when it never was, [`TableError::Forgotten`] when the log does not tell of it any
    /// more; [`TableError::Store`].
    pub fn check_version(&self, version: u64) -> Result<(), TableError> {
        let newest = self.snapshot().version();
        if version == newest {
            return Ok(());
        }
        if version > newest {
            return Err(TableError::NoSuchVersion(version));
        }
        let kept = self.kept(newest)?;
        if kept.versions.binary_search(&version).is_ok() {
            return Ok(());
        }
        Err(TableError::Forgotten {
            version,
            earliest: kept.versions.first().copied(),
        })
    }

    /// The snapshot of a version, as [`Table::at`] has it; the last few are kept.
    ///
    /// # Errors
    /// As [`Table::check_version`], and any [`TableError`] of a log that can't be replayed.
    pub fn past(&self, version: u64) -> Result<Arc<Snapshot>, TableError> {
        let newest = self.snapshot();
        if version == newest.version() {
            return Ok(newest);
        }
        self.check_version(version)?;
        let known = || self.travel.known(version, self.env.now());
        if let Some(snapshot) = known() {
            return Ok(snapshot);
        }
        let _turn = lock(&self.travel.rebuilding);
        // Others may have waited for the same one.
        if let Some(snapshot) = known() {
            return Ok(snapshot);
        }
        let incarnation = self.incarnation();
        match self.rebuild(version) {
            Ok(rebuilt) => {
                if self.incarnation() == incarnation {
                    self.travel.keep(&rebuilt, self.env.now());
                }
                Ok(rebuilt)
            }
            Err(error) => {
                // A clean-up meanwhile is no corruption.
                *lock(&self.travel.kept) = None;
                self.check_version(version)?;
                Err(error)
            }
        }
    }

    /// From a version that is at hand and near, else from the log.
    fn rebuild(&self, version: u64) -> Result<Arc<Snapshot>, TableError> {
        let Some(mut at) = self.travel.before(version) else {
            return self.at(version);
        };
        if version.saturating_sub(at.version()) > NEAR {
            return self.at(version);
        }
        while at.version() < version {
            let next = at.version().saturating_add(1);
            let Some(commit) = segment::read_commit(&self.dir, next)? else {
                return self.at(version);
            };
            let after = at.next(self.dir.path(), next, commit.modified, commit.actions)?;
            at = Arc::new(after);
        }
        Ok(at)
    }

    /// Drops what nobody has asked for lately.
    pub fn forget_idle(&self) {
        let now = self.env.now();
        let idle = |s: &mut Slot| !(0..IDLE_MS).contains(&now.saturating_sub(s.used));
        let dropped: Vec<Slot> = lock(&self.travel.slots).extract_if(.., idle).collect();
        // Without the lock: they may be large.
        drop(dropped);
    }

    /// Tells the log from another one that was or will be in its place: versions of the same number differ then.
    pub fn incarnation(&self) -> u64 {
        let (device, inode) = self.dir.identity().unwrap_or_default();
        let mut hasher = std::hash::DefaultHasher::new();
        for part in [device, inode, self.travel.replaced.load(Ordering::Relaxed)] {
            hasher.write_u64(part);
        }
        hasher.finish()
    }

    /// What the folder of the log holds for versions up to `newest`, which is known to be there.
    pub(super) fn kept(&self, newest: u64) -> Result<Arc<Kept>, TableError> {
        let now = self.env.now();
        let known = lock(&self.travel.kept).clone();
        if let Some(known) = &known
            && known.newest <= newest
        {
            let fresh = (0..RECHECK_MS).contains(&now.saturating_sub(known.read));
            // Whoever has replayed a commit knows that it is there, and what it builds on.
            if fresh && known.newest == newest {
                return Ok(Arc::clone(known));
            }
            if fresh {
                let mut grown = Kept::clone(known);
                grown.versions.extend(known.newest + 1..=newest);
                grown.commits.extend(known.newest + 1..=newest);
                grown.newest = newest;
                return Ok(self.keep(grown));
            }
            let settled = known.read.saturating_sub(millis(known.changed_ns)) > TICK_MS;
            if known.newest == newest && settled && self.log_changed_ns()? == known.changed_ns {
                let mut again = Kept::clone(known);
                again.read = now;
                return Ok(self.keep(again));
            }
        }
        let changed_ns = self.log_changed_ns()?;
        let (commits, starts) = self.list_log(newest)?;
        let mut versions = rebuildable(&commits, &starts);
        // It is in memory.
        if versions.last() != Some(&newest) {
            versions.push(newest);
        }
        Ok(self.keep(Kept {
            versions,
            commits: commits.into_iter().collect(),
            newest,
            read: now,
            changed_ns,
        }))
    }

    fn keep(&self, kept: Kept) -> Arc<Kept> {
        let kept = Arc::new(kept);
        *lock(&self.travel.kept) = Some(Arc::clone(&kept));
        kept
    }

    fn log_changed_ns(&self) -> Result<i128, TableError> {
        let meta = self.dir.metadata(Path::new(LOG_DIR))?;
        Ok(i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()))
    }

    /// The commits and the complete checkpoints up to a version. Nothing is opened.
    fn list_log(&self, newest: u64) -> Result<(BTreeSet<u64>, BTreeSet<u64>), TableError> {
        let (mut commits, mut starts) = (BTreeSet::new(), BTreeSet::new());
        let mut parts: BTreeMap<(u64, u32), BTreeSet<u32>> = BTreeMap::new();
        for entry in self.dir.list(Path::new(LOG_DIR))? {
            if entry.kind == EntryKind::Dir {
                continue;
            }
            match entry.name.to_str().and_then(LogName::parse) {
                Some(LogName::Commit(version)) => {
                    commits.insert(version);
                }
                Some(LogName::Classic(version) | LogName::V2 { version, .. }) => {
                    starts.insert(version);
                }
                Some(LogName::Part {
                    version,
                    part,
                    parts: of,
                }) => {
                    parts.entry((version, of)).or_default().insert(part);
                }
                Some(LogName::Compacted { .. } | LogName::Crc(_)) | None => {}
            }
        }
        let whole = |of: u32, found: &BTreeSet<u32>| u32::try_from(found.len()) == Ok(of);
        let multi = parts.iter().filter(|((_, of), found)| whole(*of, found));
        starts.extend(multi.map(|((version, _), _)| *version));
        commits.retain(|version| *version <= newest);
        starts.retain(|version| *version <= newest);
        Ok((commits, starts))
    }
}

/// The versions with an unbroken row of commits from version 0 or from a checkpoint.
fn rebuildable(commits: &BTreeSet<u64>, starts: &BTreeSet<u64>) -> Vec<u64> {
    let mut versions: Vec<u64> = Vec::new();
    for &version in commits.union(starts) {
        let follows = version == 0 || versions.last().is_some_and(|last| last + 1 == version);
        if starts.contains(&version) || (follows && commits.contains(&version)) {
            versions.push(version);
        }
    }
    versions
}

fn millis(nanos: i128) -> Millis {
    Millis::try_from(nanos / 1_000_000).unwrap_or(Millis::MAX)
}

#[cfg(test)]
#[path = "travel_tests.rs"]
mod tests;
