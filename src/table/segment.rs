//! From a listing of `_delta_log` to a snapshot: which checkpoint, which commits, and what to fall back to.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::snapshot::{Replay, Snapshot};
use super::{TableError, protocol};
use crate::log::{
    Action, CheckpointAction, LOG_DIR, LogError, LogName, parse_commit, read_checkpoint,
    read_json_manifest,
};
use crate::store::{Dir, EntryKind};

/// What the folder of the log holds.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) commits: BTreeSet<u64>,
    checkpoints: BTreeMap<u64, Vec<Checkpoint>>,
}

/// A complete checkpoint: a file of its own, or all its parts.
#[derive(Debug, Clone)]
enum Checkpoint {
    Parquet(Vec<String>),
    Json(String),
}

impl Listing {
    /// # Errors
    /// [`TableError::NotATable`] when there is no log folder.
    pub(super) fn read(dir: &Dir) -> Result<Self, TableError> {
        let entries = dir.list(Path::new(LOG_DIR)).map_err(|e| {
            if e.is_absent() {
                TableError::NotATable(dir.path().display().to_string())
            } else {
                e.into()
            }
        })?;
        let mut listing = Listing::default();
        let mut parts: BTreeMap<(u64, u32), BTreeMap<u32, String>> = BTreeMap::new();
        for entry in entries {
            let Some(file) = entry.name.to_str() else {
                continue;
            };
            if entry.kind == EntryKind::Dir {
                continue;
            }
            match LogName::parse(file) {
                Some(LogName::Commit(version)) => {
                    listing.commits.insert(version);
                }
                Some(LogName::Classic(version)) => {
                    listing.offer(version, Checkpoint::Parquet(vec![file.to_owned()]));
                }
                Some(LogName::V2 {
                    version,
                    json: true,
                }) => {
                    listing.offer(version, Checkpoint::Json(file.to_owned()));
                }
                Some(LogName::V2 {
                    version,
                    json: false,
                }) => {
                    listing.offer(version, Checkpoint::Parquet(vec![file.to_owned()]));
                }
                Some(LogName::Part {
                    version,
                    part,
                    parts: of,
                }) => {
                    parts
                        .entry((version, of))
                        .or_default()
                        .insert(part, file.to_owned());
                }
                Some(LogName::Compacted { .. } | LogName::Crc(_)) | None => {}
            }
        }
        for ((version, of), files) in parts {
            if u32::try_from(files.len()) == Ok(of) {
                listing.offer(version, Checkpoint::Parquet(files.into_values().collect()));
            }
        }
        Ok(listing)
    }

    fn offer(&mut self, version: u64, checkpoint: Checkpoint) {
        self.checkpoints
            .entry(version)
            .or_default()
            .push(checkpoint);
    }

    /// The newest version that the folder knows of.
    pub(super) fn newest(&self) -> Option<u64> {
        let commit = self.commits.last().copied();
        commit.max(self.checkpoints.last_key_value().map(|(v, _)| *v))
    }
}

/// Loads the snapshot of `version`, or of the newest version.
///
/// A checkpoint that can't be read gives way to an older one and in the end to version 0, with a warning.
///
/// # Errors
/// [`TableError`]; an error of one table is no other table's error.
pub(super) fn load(dir: &Dir, version: Option<u64>) -> Result<Snapshot, TableError> {
    match load_listed(dir, version) {
        // A clean-up of the log by somebody else makes a listing old: one more look tells.
        Err(TableError::Gap { .. } | TableError::NoStart(_)) => load_listed(dir, version),
        other => other,
    }
}

fn load_listed(dir: &Dir, version: Option<u64>) -> Result<Snapshot, TableError> {
    let listing = Listing::read(dir)?;
    let newest = listing
        .newest()
        .ok_or_else(|| TableError::NotATable(dir.path().display().to_string()))?;
    let target = version.unwrap_or(newest);
    if target > newest {
        return Err(TableError::NoSuchVersion(target));
    }
    let mut first_error = None;
    for (&start, candidates) in listing.checkpoints.range(..=target).rev() {
        for checkpoint in candidates {
            match from_checkpoint(dir, start, checkpoint) {
                Ok(replay) => match commits(dir, &listing, replay, Some(start), target) {
                    Ok(snapshot) => return with_in_commit_timestamp(dir, snapshot),
                    // What follows a checkpoint is the same for an older one: no fall-back helps.
                    Err(e) => return Err(e),
                },
                Err(e) => {
                    tracing::warn!(
                        table = %dir.path().display(), version = start, error = %e,
                        "a checkpoint can't be used; trying an older one"
                    );
                    first_error.get_or_insert(e);
                }
            }
        }
    }
    if !listing.commits.contains(&0) {
        return Err(first_error.unwrap_or(TableError::NoStart(0)));
    }
    let snapshot = commits(dir, &listing, Replay::default(), None, target)?;
    with_in_commit_timestamp(dir, snapshot)
}

fn from_checkpoint(dir: &Dir, version: u64, checkpoint: &Checkpoint) -> Result<Replay, TableError> {
    let mut replay = Replay::default();
    let mut sidecars: Vec<String> = Vec::new();
    let mut failed = None;
    let table = dir.path();
    let log = Path::new(LOG_DIR);
    let mut sink = |action: CheckpointAction| {
        match action {
            CheckpointAction::Action(action) => {
                if let Err(e) = replay.checkpoint_action(table, version, action) {
                    let reason = e.to_string();
                    failed.get_or_insert(e);
                    return Err(LogError::Checkpoint {
                        file: version.to_string(),
                        reason,
                    });
                }
            }
            CheckpointAction::Sidecar(sidecar) => sidecars.push(sidecar.path),
            CheckpointAction::CheckpointMetadata { .. } => {}
        }
        Ok(())
    };
    let outcome = (|| {
        match checkpoint {
            Checkpoint::Parquet(files) => {
                for file in files {
                    read_checkpoint(file, dir.open_file(&log.join(file))?, &mut sink)?;
                }
            }
            Checkpoint::Json(file) => {
                read_json_manifest(file, &dir.read(&log.join(file))?, &mut sink)?;
            }
        }
        Ok::<_, TableError>(())
    })();
    if let Some(e) = failed {
        return Err(e);
    }
    outcome?;
    for sidecar in sidecars {
        let path = sidecar_path(&sidecar).ok_or_else(|| TableError::Outside(sidecar.clone()))?;
        let mut sink = |action: CheckpointAction| {
            if let CheckpointAction::Action(action) = action
                && let Err(e) = replay.checkpoint_action(table, version, action)
            {
                return Err(LogError::Checkpoint {
                    file: sidecar.clone(),
                    reason: e.to_string(),
                });
            }
            Ok(())
        };
        read_checkpoint(&sidecar, dir.open_file(&path)?, &mut sink)?;
    }
    Ok(replay)
}

/// A sidecar is named by its file name or, by some writers, by its path; it always lies in `_sidecars`.
fn sidecar_path(text: &str) -> Option<PathBuf> {
    let name = text
        .rsplit('/')
        .next()
        .filter(|n| !n.is_empty() && *n != "..")?;
    Some(Path::new(LOG_DIR).join("_sidecars").join(name))
}

fn commits(
    dir: &Dir,
    listing: &Listing,
    mut replay: Replay,
    after: Option<u64>,
    target: u64,
) -> Result<Snapshot, TableError> {
    let mut next = after.map_or(0, |v| v.saturating_add(1));
    // The checkpoint may be the target itself: then there is nothing to add.
    for &version in listing.commits.range(next..).take_while(|v| **v <= target) {
        if version != next {
            return Err(TableError::Gap {
                missing: next,
                present: version,
            });
        }
        let commit = read_commit(dir, version)?.ok_or(TableError::Gap {
            missing: version,
            present: target,
        })?;
        replay.apply(dir.path(), version, commit.modified, commit.actions)?;
        next = version.saturating_add(1);
    }
    if next <= target {
        return Err(TableError::Gap {
            missing: next,
            present: target,
        });
    }
    let snapshot = replay.finish()?;
    if snapshot.version() != target {
        return Err(TableError::NoSuchVersion(target));
    }
    Ok(snapshot)
}

/// A snapshot that ends with a checkpoint knows its in-commit timestamp only from the commit beside it.
fn with_in_commit_timestamp(dir: &Dir, snapshot: Snapshot) -> Result<Snapshot, TableError> {
    if snapshot.checkpoint() != Some(snapshot.version()) {
        return Ok(snapshot);
    }
    let commit = match read_commit(dir, snapshot.version()) {
        Ok(commit) => commit,
        Err(e) => {
            tracing::warn!(table = %dir.path().display(), error = %e, "the commit beside a checkpoint can't be read");
            None
        }
    };
    let stamped = commit.as_ref().and_then(Commit::in_commit_timestamp);
    if stamped.is_none() && protocol::flag(snapshot.metadata(), "delta.enableInCommitTimestamps") {
        tracing::warn!(
            table = %dir.path().display(), version = snapshot.version(),
            "the in-commit timestamp of this version is gone with its commit file"
        );
    }
    let modified = match &commit {
        Some(commit) => Some(commit.modified),
        // The checkpoint was written a little later: the best that is left.
        None => {
            let classic = Path::new(LOG_DIR).join(LogName::classic(snapshot.version()));
            dir.metadata(&classic).ok().map(|m| modified_ms(&m))
        }
    };
    Ok(snapshot.with_timestamps(modified, stamped))
}

/// A commit file.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) actions: Vec<Action>,
    /// The file's time, in milliseconds since the epoch.
    pub(super) modified: i64,
    pub(super) file: LogFile,
}

impl Commit {
    pub(super) fn in_commit_timestamp(&self) -> Option<i64> {
        self.actions.iter().find_map(|a| match a {
            Action::CommitInfo(info) => info.integer("inCommitTimestamp"),
            _ => None,
        })
    }
}

/// Reads one commit; `None` when it does not exist.
pub(super) fn read_commit(dir: &Dir, version: u64) -> Result<Option<Commit>, TableError> {
    use std::io::Read as _;
    let name = LogName::commit(version);
    let path = Path::new(LOG_DIR).join(&name);
    let mut file = match dir.open_file(&path) {
        Ok(file) => file,
        Err(e) if e.is_absent() => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let io = |source| crate::store::StoreError::Io {
        action: "read",
        path: path.clone(),
        source,
    };
    let meta = file.metadata().map_err(io)?;
    let mut body = Vec::new();
    file.read_to_end(&mut body).map_err(io)?;
    Ok(Some(Commit {
        actions: parse_commit(&name, &body)?,
        modified: modified_ms(&meta),
        file: LogFile::of(&meta),
    }))
}

/// What tells the file of a version from another one under its name, also when the inode number was used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogFile {
    inode: u64,
    bytes: u64,
    modified_ns: i128,
}

impl LogFile {
    pub(super) fn of(meta: &std::fs::Metadata) -> Self {
        LogFile {
            inode: meta.ino(),
            bytes: meta.len(),
            modified_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        }
    }
}

/// A file's time in milliseconds since the epoch.
pub(super) fn modified_ms(meta: &std::fs::Metadata) -> i64 {
    meta.mtime()
        .saturating_mul(1000)
        .saturating_add(meta.mtime_nsec() / 1_000_000)
}
