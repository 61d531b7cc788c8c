//! From a listing of `_delta_log` to a snapshot: which checkpoint, which commits, and what to fall back to.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::load::{self, Step};
use super::{Snapshot, TableError, checksum, protocol};
use crate::error::{Failure as _, Kind};
use crate::log::{Action, Crc, LAST_CHECKPOINT, LOG_DIR, LastCheckpoint, LogName, parse_commit};
use crate::store::{Dir, EntryKind};

/// What the folder of the log holds.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) commits: BTreeSet<u64>,
    checkpoints: BTreeMap<u64, Vec<Checkpoint>>,
    /// Where compactions that start at a version end.
    compactions: BTreeMap<u64, BTreeSet<u64>>,
}

/// A complete checkpoint: a file of its own, or all its parts.
#[derive(Debug, Clone)]
pub(super) enum Checkpoint {
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
                Some(LogName::Compacted { from, to }) => {
                    listing.compactions.entry(from).or_default().insert(to);
                }
                Some(LogName::Crc(_)) | None => {}
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
/// A checkpoint that can't be read, or whose state contradicts the version's checksum, gives way to an older one and
/// in the end to version 0, with a warning.
///
/// # Errors
/// [`TableError`]; an error of one table is no other table's error.
pub(super) fn load(dir: &Dir, version: Option<u64>) -> Result<Snapshot, TableError> {
    // A clean-up of the log by somebody else makes a listing old: another look tells.
    const LOOKS: usize = 4;
    let mut outcome = load_listed(dir, version);
    for _ in 1..LOOKS {
        match &outcome {
            Err(TableError::Gap { .. } | TableError::NoStart(_)) => {}
            Err(e @ (TableError::Store(_) | TableError::Log(_))) if e.kind() == Kind::Absent => {}
            _ => break,
        }
        outcome = load_listed(dir, version);
    }
    outcome
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
    let mut suspect = None;
    let starts = listing.checkpoints.range(..=target).rev();
    let starts = starts.flat_map(|(version, all)| all.iter().map(|c| Some((*version, c))));
    let from_the_first = listing.has_first().then_some(None);
    for start in starts.chain(from_the_first) {
        let from = start.map(|(version, _)| version);
        // What contradicts a checksum once is read without short cuts.
        let mut outcome = replay(
            dir,
            start,
            listing.steps(from, target, suspect.is_none()),
            target,
        );
        if let Err(Broken::Commits(e)) = &outcome
            && suspect.is_none()
            && listing.has_compaction(from, target)
        {
            tracing::warn!(
                table = %dir.path().display(), version = target, error = %e,
                "the log can't be replayed with its compactions; trying without"
            );
            let without = replay(dir, start, listing.steps(from, target, false), target);
            // Else it is the compaction that has to be told of.
            if without.is_ok() {
                outcome = without;
            }
        }
        if matches!(&outcome, Ok((_, Some(_)))) && listing.has_compaction(from, target) {
            // A compaction that lacks something is the likeliest reason.
            let without = replay(dir, start, listing.steps(from, target, false), target);
            if matches!(&without, Ok((_, None))) {
                tracing::warn!(
                    table = %dir.path().display(), version = target,
                    "a compaction of the log is wrong; its commits are right"
                );
                outcome = without;
            }
        }
        match outcome {
            Ok((snapshot, None)) => return Ok(snapshot),
            Ok((snapshot, Some(doubt))) => {
                tracing::warn!(
                    table = %dir.path().display(), version = target,
                    start = from, %doubt,
                    "a checkpoint or checksum of the log is wrong; trying without"
                );
                suspect.get_or_insert(snapshot.doubted());
            }
            // What follows a checkpoint is the same for an older one: no fall-back helps.
            Err(Broken::Commits(e)) => return suspect.ok_or(e),
            Err(Broken::Checkpoint(e)) => {
                tracing::warn!(
                    table = %dir.path().display(), version = from, error = %e,
                    "a checkpoint can't be used; trying an older one"
                );
                first_error.get_or_insert(e);
            }
        }
    }
    match suspect {
        // No way leads to a state that nothing contradicts. There is nothing better than the newest start, and the
        // log has been told.
        Some(snapshot) => Ok(snapshot),
        None => Err(first_error.unwrap_or(TableError::NoStart(0))),
    }
}

/// What keeps a start from leading to the target.
enum Broken {
    Checkpoint(TableError),
    Commits(TableError),
}

/// The state at `target` from one start, and what speaks against it.
fn replay(
    dir: &Dir,
    start: Option<(u64, &Checkpoint)>,
    steps: Result<Vec<Step>, TableError>,
    target: u64,
) -> Result<(Snapshot, Option<String>), Broken> {
    let mut doubt = None;
    let mut replay = super::replay::Replay::default();
    if let Some((version, checkpoint)) = start {
        let (from, adds) =
            load::checkpoint(dir, version, checkpoint).map_err(Broken::Checkpoint)?;
        replay = from;
        doubt = doubt_of_checkpoint(dir, version, adds);
        if doubt.is_none() {
            doubt =
                load::contradicts_commit(dir, &mut replay, version).map_err(Broken::Checkpoint)?;
        }
    }
    // A stale or double entry of a checkpoint shows only when what follows is held against it.
    let broken = |e: TableError| match e {
        TableError::TwoLive { .. } if start.is_some() => Broken::Checkpoint(e),
        e => Broken::Commits(e),
    };
    let steps = steps.map_err(Broken::Commits)?;
    load::commits(dir, &mut replay, &steps).map_err(broken)?;
    let snapshot = replay.finish().map_err(broken)?;
    if snapshot.version() != target {
        return Err(Broken::Commits(TableError::NoSuchVersion(target)));
    }
    let ends_with_commit = matches!(steps.last(), Some(Step::Commit(_)));
    let snapshot = if ends_with_commit {
        snapshot
    } else {
        with_timestamps(dir, snapshot)
    };
    let checksum =
        checksum_of(dir, target).and_then(|body| checksum::check(&snapshot, &body).err());
    match checksum {
        // It is no checksum, or it says nothing about the files: nothing else has to be tried.
        Some(mismatch) if !mismatch.is_of_state() => tracing::warn!(
            table = %dir.path().display(), version = target, error = %mismatch,
            "the checksum of a version is not used"
        ),
        Some(mismatch) => doubt = Some(mismatch.to_string()),
        None => {}
    }
    Ok((snapshot, doubt))
}

/// What speaks against a checkpoint that lists `adds` live files: the pointer to it, or its version's checksum.
fn doubt_of_checkpoint(dir: &Dir, version: u64, adds: u64) -> Option<String> {
    let hint = hint(dir).filter(|hint| hint.version == version);
    let recorded = checksum_of(dir, version).and_then(|body| Crc::parse(&body).ok());
    let promises = [
        (LAST_CHECKPOINT, hint.and_then(|hint| hint.num_of_add_files)),
        (
            "its checksum",
            recorded.and_then(|crc| u64::try_from(crc.num_files).ok()),
        ),
    ];
    promises.into_iter().find_map(|(who, promised)| {
        let promised = promised.filter(|promised| *promised != adds)?;
        Some(format!(
            "{who} promises {promised} files in the checkpoint of version {version}, which has {adds}"
        ))
    })
}

fn checksum_of(dir: &Dir, version: u64) -> Option<Vec<u8>> {
    advisory(dir, &LogName::crc(version))
}

/// A file that helps and is never needed: a huge one helps nobody.
fn advisory(dir: &Dir, name: &str) -> Option<Vec<u8>> {
    const MAX_BYTES: u64 = 64 << 20;
    let path = Path::new(LOG_DIR).join(name);
    let meta = dir.metadata(&path).ok()?;
    (meta.is_file() && meta.len() <= MAX_BYTES).then(|| dir.read(&path).ok())?
}

/// What the pointer says, if it can be read.
pub(super) fn hint(dir: &Dir) -> Option<LastCheckpoint> {
    LastCheckpoint::parse(&advisory(dir, LAST_CHECKPOINT)?).ok()
}

impl Listing {
    /// Whether the log goes back to the first version.
    fn has_first(&self) -> bool {
        self.commits.contains(&0) || self.compactions.contains_key(&0)
    }

    /// Whether a compaction lies between `start` and `target`.
    fn has_compaction(&self, start: Option<u64>, target: u64) -> bool {
        let next = start.map_or(0, |v| v.saturating_add(1));
        let mut between = self.compactions.range(next..=target);
        between.any(|(_, ends)| ends.range(..=target).next().is_some())
    }

    /// What has to be read after the checkpoint `start` to come to `target`.
    fn steps(
        &self,
        start: Option<u64>,
        target: u64,
        compactions: bool,
    ) -> Result<Vec<Step>, TableError> {
        let mut steps = Vec::new();
        let mut next = start.map_or(0, |v| v.saturating_add(1));
        while next <= target {
            let compaction = self.compactions.get(&next).filter(|_| compactions);
            let end = compaction.and_then(|ends| ends.range(..=target).next_back());
            match end {
                Some(end) => {
                    let known = self.commits.range(next..=*end).count() as u64 == end - next + 1;
                    steps.push(Step::Compacted {
                        from: next,
                        to: *end,
                        // Then the commits do as well.
                        optional: known,
                    });
                    next = end.saturating_add(1);
                }
                None if self.commits.contains(&next) => {
                    steps.push(Step::Commit(next));
                    next = next.saturating_add(1);
                }
                None => {
                    let present = self.commits.range(next..).next();
                    return Err(TableError::Gap {
                        missing: next,
                        present: present.copied().unwrap_or(target),
                    });
                }
            }
        }
        Ok(steps)
    }
}

/// A snapshot that ends with a checkpoint or a compaction knows its times only from the commit beside it.
fn with_timestamps(dir: &Dir, snapshot: Snapshot) -> Snapshot {
    let commit = match read_commit(dir, snapshot.version()) {
        Ok(commit) => commit,
        Err(e) => {
            tracing::warn!(
                table = %dir.path().display(), error = %e,
                "the commit beside a checkpoint can't be read"
            );
            None
        }
    };
    let stamped = commit.as_ref().and_then(Commit::in_commit_timestamp);
    if stamped.is_none() && protocol::in_commit_timestamps(snapshot.protocol(), snapshot.metadata())
    {
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
    snapshot.with_timestamps(modified, stamped)
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
