//! Removes the part of the log that no retained version needs (PROTOCOL.md A3).
//!
//! What is safe at every moment, also next to other cleaners, checkpointers and readers, and when it stops half-way:
//! the checkpoint that the log starts with from now on is read first, whole, and nothing at or after its version is
//! ever removed. So every version from there on opens, before, while and after. Commits go before checkpoints, the
//! oldest first: what is left of the older versions is never a checkpoint's worth of lies, only less and less.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::checkpoint::{point, pointed};
use super::{OpError, modified_ms};
use crate::env::Millis;
use crate::log::{
    Action, CheckpointAction, LOG_DIR, LastCheckpoint, LogError, LogName, SIDECAR_DIR, Sidecar,
    parse_commit, read_checkpoint, read_json_manifest, read_sidecar_references,
};
use crate::schema::StructType;
use crate::store::{Dir, EntryKind};
use crate::table::{Snapshot, Table, TableError, properties, temporary_name};

const DAY_MS: Millis = 24 * 3_600_000;

/// What a cleanup of the log did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub kept: Kept,
    pub commits: u64,
    pub checksums: u64,
    pub compacted: u64,
    /// Files, not checkpoints.
    pub checkpoints: u64,
    pub sidecars: u64,
}

/// What the log starts with after a cleanup, or why it stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Kept {
    /// Nothing is expired, or nothing before the checkpoint that it could start with.
    #[default]
    All,
    /// The checkpoint of this version and all that is newer.
    From(u64),
    /// `delta.enableExpiredLogCleanup` is false.
    SwitchedOff,
    /// `delta.logRetentionDuration` is no duration; its text.
    NoDuration(String),
    /// No checkpoint of an expired version can be read.
    NoCheckpoint,
    /// History before this version is protected (feature `checkpointProtection`) and could not go all at once.
    Protected(u64),
    /// Another table has taken the place, or versions are gone.
    Moved,
}

impl Cleaned {
    fn nothing(kept: Kept) -> Self {
        Cleaned {
            kept,
            ..Cleaned::default()
        }
    }

    /// Files that were removed.
    pub fn total(&self) -> u64 {
        self.commits + self.checksums + self.compacted + self.checkpoints + self.sidecars
    }
}

/// Removes expired commits, checkpoints, checksums, compactions and sidecars of the table of which `snapshot` is a
/// version. Its newest properties count, as they are now. A file that somebody else has removed first is no failure.
///
/// # Errors
/// [`OpError::Table`]: the table has a feature that we can't write or is managed by a catalog, or the store fails.
/// The log is usable then, too.
pub fn cleanup(table: &Table, snapshot: &Snapshot) -> Result<Cleaned, OpError> {
    let newest = table.refresh()?;
    let same = newest.metadata().id == snapshot.metadata().id;
    if !same || newest.version() < snapshot.version() {
        return Ok(Cleaned::nothing(Kept::Moved));
    }
    newest.check_write()?;
    let metadata = newest.metadata();
    if !properties::log_cleanup(metadata) {
        return Ok(Cleaned::nothing(Kept::SwitchedOff));
    }
    let Some(retention) = properties::log_retention_ms(metadata) else {
        let text = metadata.configuration.get(properties::LOG_RETENTION);
        let text = text.cloned().unwrap_or_default();
        return Ok(Cleaned::nothing(Kept::NoDuration(text)));
    };
    let today = midnight(table.env().now());
    let plan = plan(table, &newest, today.saturating_sub(retention))?;
    prepare(table, &plan)?;
    let mut cleaned = Cleaned::nothing(plan.kept);
    carry_out(table.dir(), &plan.expired, &mut cleaned)?;
    cleaned.sidecars = sweep_sidecars(table.dir(), today)?;
    Ok(cleaned)
}

/// 00:00 UTC of the day.
fn midnight(now: Millis) -> Millis {
    now.div_euclid(DAY_MS) * DAY_MS
}

/// What there is to do.
struct Plan {
    kept: Kept,
    /// The checkpoint that the log is to start with.
    hint: Option<LastCheckpoint>,
    /// Its manifest, if there is no checkpoint of the version under a name that old readers know.
    unknown_to_old: Option<String>,
    expired: Vec<Expired>,
}

/// A file to remove. In the order of the removal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Expired {
    phase: Phase,
    version: u64,
    kind: Kind,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Commits,
    Checkpoints,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    // A range whose first commits are gone is of use to nobody, so ranges go before them.
    Compacted,
    Checksum,
    Commit,
    Checkpoint,
}

impl Expired {
    /// The file, if the log can start with the checkpoint of version `kept`.
    fn before(kept: u64, name: &LogName, file: &str) -> Option<Self> {
        let (phase, kind) = match name {
            LogName::Compacted { .. } => (Phase::Commits, Kind::Compacted),
            LogName::Crc(_) => (Phase::Commits, Kind::Checksum),
            LogName::Commit(_) => (Phase::Commits, Kind::Commit),
            LogName::Classic(_) | LogName::Part { .. } | LogName::V2 { .. } => {
                (Phase::Checkpoints, Kind::Checkpoint)
            }
        };
        let version = name.version();
        let expired = version < kept || kind == Kind::Compacted && version == kept;
        expired.then(|| Expired {
            phase,
            version,
            kind,
            name: file.to_owned(),
        })
    }
}

/// A complete checkpoint.
enum Form<'a> {
    Parquet(Vec<&'a str>),
    Json(&'a str),
}

impl Form<'_> {
    /// The file, when it is a V2 manifest under a name of its own.
    fn manifest(&self) -> Option<&str> {
        let file = match self {
            Form::Json(file) => *file,
            Form::Parquet(files) => files.first().copied()?,
        };
        matches!(LogName::parse(file), Some(LogName::V2 { .. })).then_some(file)
    }
}

fn plan(table: &Table, newest: &Snapshot, cutoff: Millis) -> Result<Plan, OpError> {
    let nothing = |kept| Plan {
        kept,
        hint: None,
        unknown_to_old: None,
        expired: Vec::new(),
    };
    let dir = table.dir();
    let files = list(dir)?;
    let commits: Vec<u64> = files
        .iter()
        .filter(|(name, _)| matches!(name, LogName::Commit(_)))
        .map(|(name, _)| name.version())
        .collect::<BTreeSet<u64>>()
        .into_iter()
        .collect();
    let Some(last) = last_expired(dir, newest, &commits, cutoff)? else {
        return Ok(nothing(Kept::All));
    };
    let forms = checkpoints(&files);
    for (&version, forms) in forms.range(..=last).rev() {
        let mut expired: Vec<Expired> = files
            .iter()
            .filter_map(|(name, file)| Expired::before(version, name, file))
            .collect();
        if expired.is_empty() {
            return Ok(nothing(Kept::All));
        }
        let before = properties::protected_before(newest.protocol(), newest.metadata());
        if version < before {
            return Ok(nothing(Kept::Protected(before)));
        }
        for form in forms {
            match read_whole(dir, version, form) {
                Ok(hint) => {
                    expired.sort();
                    let known = forms.iter().any(|form| form.manifest().is_none());
                    let manifest = form.manifest().filter(|_| !known);
                    return Ok(Plan {
                        kept: Kept::From(version),
                        hint: Some(hint),
                        unknown_to_old: manifest.map(str::to_owned),
                        expired,
                    });
                }
                Err(error) => tracing::warn!(
                    table = %dir.path().display(), version, %error,
                    "a checkpoint can't be used; the log before it stays"
                ),
            }
        }
    }
    Ok(nothing(Kept::NoCheckpoint))
}

/// What has to be there before anything goes.
fn prepare(table: &Table, plan: &Plan) -> Result<(), OpError> {
    let Some(hint) = &plan.hint else {
        return Ok(());
    };
    // A pointer at what is about to go would send readers there.
    if pointed(table.dir())?.is_some_and(|there| there.version < hint.version) {
        point(table, hint)?;
    }
    let Some(manifest) = plan.unknown_to_old.as_deref() else {
        return Ok(());
    };
    // A reader that knows no V2 checkpoints would see a log without a start. Under the classic name, which a V2
    // checkpoint may have, it finds the protocol and can say what it lacks. A manifest in JSON has no such twin.
    if manifest.ends_with(".parquet")
        && let Err(error) = copy_as_classic(table, hint.version, manifest)
    {
        tracing::warn!(
            table = %table.dir().path().display(), %error,
            "readers without V2 checkpoints will not find the protocol"
        );
    }
    Ok(())
}

fn copy_as_classic(table: &Table, version: u64, manifest: &str) -> Result<(), OpError> {
    let (dir, log) = (table.dir(), Path::new(LOG_DIR));
    let bytes = dir.read(&log.join(manifest))?;
    let classic = log.join(LogName::classic(version));
    dir.put(&classic, temporary_name(table.env()).as_ref(), &bytes)?;
    Ok(())
}

/// The files of the log that mean something.
fn list(dir: &Dir) -> Result<Vec<(LogName, String)>, OpError> {
    let entries = dir.list(Path::new(LOG_DIR))?;
    let named = entries.into_iter().filter_map(|entry| {
        let file = entry.name.into_string().ok()?;
        let name = LogName::parse(&file)?;
        (entry.kind != EntryKind::Dir).then_some((name, file))
    });
    Ok(named.collect())
}

/// By version; a multi-part one only with all its parts.
fn checkpoints(files: &[(LogName, String)]) -> BTreeMap<u64, Vec<Form<'_>>> {
    let mut forms: BTreeMap<u64, Vec<Form<'_>>> = BTreeMap::new();
    let mut parts: BTreeMap<(u64, u32), BTreeMap<u32, &str>> = BTreeMap::new();
    for (name, file) in files {
        let form = match name {
            LogName::V2 { json: true, .. } => Form::Json(file),
            LogName::Classic(_) | LogName::V2 { json: false, .. } => Form::Parquet(vec![file]),
            LogName::Part {
                version,
                part,
                parts: of,
            } => {
                let known = parts.entry((*version, *of)).or_default();
                known.insert(*part, file);
                continue;
            }
            LogName::Commit(_) | LogName::Compacted { .. } | LogName::Crc(_) => continue,
        };
        forms.entry(name.version()).or_default().push(form);
    }
    for ((version, of), files) in parts {
        if u32::try_from(files.len()) == Ok(of) {
            let form = Form::Parquet(files.into_values().collect());
            forms.entry(version).or_default().push(form);
        }
    }
    forms
}

/// The newest commit that is not newer than `cutoff`: by its in-commit timestamp where there is one, else by its
/// file's time, of which none counts as older than the one before it.
fn last_expired(
    dir: &Dir,
    newest: &Snapshot,
    commits: &[u64],
    cutoff: Millis,
) -> Result<Option<u64>, OpError> {
    let since = properties::in_commit_timestamps_since(newest.protocol(), newest.metadata());
    let since = since.unwrap_or(u64::MAX);
    let (unstamped, stamped) = commits.split_at(commits.partition_point(|v| *v < since));
    // They ascend. What can't be read counts as new; each that counts as expired was read.
    let expired = stamped.partition_point(|version| {
        let stamp = in_commit_timestamp(dir, *version);
        stamp.is_some_and(|stamp| stamp <= cutoff)
    });
    if let Some(version) = expired.checked_sub(1).and_then(|at| stamped.get(at)) {
        return Ok(Some(*version));
    }
    let (mut last, mut previous) = (None, Millis::MIN);
    for &version in unstamped {
        let path = Path::new(LOG_DIR).join(LogName::commit(version));
        let modified = match dir.metadata(&path) {
            Ok(meta) => modified_ms(&meta),
            // Another cleaner was first.
            Err(e) if e.is_absent() => continue,
            Err(e) => return Err(e.into()),
        };
        previous = modified.max(previous.saturating_add(1));
        if previous > cutoff {
            break;
        }
        last = Some(version);
    }
    Ok(last)
}

/// `commitInfo.inCommitTimestamp` of a commit; it is in the first line (PROTOCOL.md A2).
fn in_commit_timestamp(dir: &Dir, version: u64) -> Option<Millis> {
    const LINE_BYTES: u64 = 16 << 20;
    let name = LogName::commit(version);
    let file = dir.open_file(&Path::new(LOG_DIR).join(&name)).ok()?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(file.take(LINE_BYTES));
    reader.read_until(b'\n', &mut line).ok()?;
    match parse_commit(&name, &line).ok()?.first()? {
        Action::CommitInfo(info) => info.integer("inCommitTimestamp"),
        _ => None,
    }
}

/// Reads a checkpoint with its sidecars to the last action, and gives what a pointer says about it.
///
/// # Errors
/// When the log could not start with it.
fn read_whole(dir: &Dir, version: u64, form: &Form<'_>) -> Result<LastCheckpoint, OpError> {
    let log = Path::new(LOG_DIR);
    let mut found = Found::default();
    let mut sidecars: Vec<Sidecar> = Vec::new();
    let mut bytes = 0;
    let mut sink = |action: CheckpointAction| {
        found.size += 1;
        match action {
            CheckpointAction::Action(action) => found.action(action),
            CheckpointAction::Sidecar(sidecar) => sidecars.push(sidecar),
            CheckpointAction::CheckpointMetadata { version } => found.versions.push(version),
        }
        Ok(())
    };
    let file = match form {
        Form::Parquet(files) => {
            for file in files {
                let open = dir.open_file(&log.join(file))?;
                bytes += open.metadata().map_or(0, |m| m.len());
                read_checkpoint(file, open, &mut sink).map_err(TableError::from)?;
            }
            files.first().copied().unwrap_or_default()
        }
        Form::Json(file) => {
            let body = dir.read(&log.join(file))?;
            bytes += body.len() as u64;
            read_json_manifest(file, &body, &mut sink).map_err(TableError::from)?;
            file
        }
    };
    let bad = |reason: String| {
        let file = file.to_owned();
        OpError::from(TableError::from(LogError::Checkpoint { file, reason }))
    };
    for sidecar in sidecars {
        let name = LogName::of_sidecar(&sidecar.path)
            .ok_or_else(|| bad(format!("`{}` names no sidecar", sidecar.path)))?;
        let open = dir.open_file(&log.join(SIDECAR_DIR).join(&name))?;
        bytes += open.metadata().map_or(0, |m| m.len());
        let mut sink = |action| {
            found.size += 1;
            if let CheckpointAction::Action(action) = action {
                found.action(action);
            }
            Ok(())
        };
        read_checkpoint(&name, open, &mut sink).map_err(TableError::from)?;
    }
    found.check(version).map_err(&bad)?;
    if let Some(reason) = contradiction(dir, version, &found) {
        return Err(bad(reason));
    }
    Ok(LastCheckpoint {
        version,
        size: Some(found.size),
        size_in_bytes: Some(bytes),
        num_of_add_files: Some(found.adds),
        parts: match form {
            Form::Parquet(files) if files.len() > 1 => u32::try_from(files.len()).ok(),
            Form::Parquet(_) | Form::Json(_) => None,
        },
        ..LastCheckpoint::default()
    })
}

/// What a checkpoint holds.
#[derive(Default)]
struct Found {
    size: u64,
    adds: u64,
    add_bytes: i64,
    protocols: u64,
    schemas: Vec<String>,
    versions: Vec<i64>,
}

impl Found {
    fn action(&mut self, action: Action) {
        match action {
            Action::Add(add) => {
                self.adds += 1;
                self.add_bytes = self.add_bytes.saturating_add(add.size);
            }
            Action::Protocol(_) => self.protocols += 1,
            Action::MetaData(metadata) => self.schemas.push(metadata.schema_string),
            Action::Remove(_)
            | Action::Txn(_)
            | Action::DomainMetadata(_)
            | Action::Cdc(_)
            | Action::CommitInfo(_) => {}
        }
    }

    fn check(&self, version: u64) -> Result<(), String> {
        let [schema] = self.schemas.as_slice() else {
            return Err(format!("it has {} metaData actions", self.schemas.len()));
        };
        StructType::from_json(schema).map_err(|e| e.to_string())?;
        if self.protocols != 1 {
            return Err(format!("it has {} protocol actions", self.protocols));
        }
        match self.versions.as_slice() {
            [] => Ok(()),
            [of] if u64::try_from(*of) == Ok(version) => Ok(()),
            of => Err(format!("it says that it is of version {of:?}")),
        }
    }
}

/// How the checksum file of the version contradicts a checkpoint, if it is there and can be read.
fn contradiction(dir: &Dir, version: u64, found: &Found) -> Option<String> {
    let body = dir
        .read(&Path::new(LOG_DIR).join(LogName::crc(version)))
        .ok()?;
    let value = crate::schema::json::from_slice(&body).ok()?;
    let files = value.get("numFiles")?.as_u64()?;
    let bytes = value.get("tableSizeBytes")?.as_i64()?;
    let same = files == found.adds && bytes == found.add_bytes;
    (!same).then(|| {
        format!(
            "it has {} files of {} bytes, the checksum file of the version says {files} of {bytes}",
            found.adds, found.add_bytes
        )
    })
}

/// Removes the files in their order.
fn carry_out(dir: &Dir, expired: &[Expired], cleaned: &mut Cleaned) -> Result<(), OpError> {
    let log = Path::new(LOG_DIR);
    let mut phase = Phase::Commits;
    for file in expired {
        if file.phase != phase {
            // Not even a power failure lets a checkpoint go before its commits.
            dir.sync_dir(log)?;
            phase = file.phase;
        }
        if remove(dir, &log.join(&file.name))? {
            let count = match file.kind {
                Kind::Compacted => &mut cleaned.compacted,
                Kind::Checksum => &mut cleaned.checksums,
                Kind::Commit => &mut cleaned.commits,
                Kind::Checkpoint => &mut cleaned.checkpoints,
            };
            *count += 1;
        }
    }
    Ok(())
}

/// Whether we were the one who removed it.
fn remove(dir: &Dir, path: &Path) -> Result<bool, OpError> {
    match dir.remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.is_absent() => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Removes sidecars that no checkpoint refers to and that were a day old at midnight: younger ones may belong to a
/// checkpoint whose manifest is still to come.
fn sweep_sidecars(dir: &Dir, today: Millis) -> Result<u64, OpError> {
    let folder = Path::new(LOG_DIR).join(SIDECAR_DIR);
    let entries = match dir.list(&folder) {
        Ok(entries) => entries,
        Err(e) if e.is_absent() => return Ok(0),
        Err(e) => return Err(e.into()),
    };
    let old = |path: &PathBuf| {
        let meta = dir.metadata(path);
        meta.is_ok_and(|m| modified_ms(&m) < today.saturating_sub(DAY_MS))
    };
    let names = entries
        .into_iter()
        .filter(|entry| entry.kind != EntryKind::Dir)
        .filter_map(|entry| entry.name.into_string().ok())
        .filter(|name| name.ends_with(".parquet"));
    let old: Vec<String> = names.filter(|name| old(&folder.join(name))).collect();
    if old.is_empty() {
        return Ok(0);
    }
    // Looked up after the listing: what comes into being from now on refers to younger ones.
    let referenced = match referenced(dir) {
        Ok(referenced) => referenced,
        Err(error) => {
            tracing::warn!(
                table = %dir.path().display(), %error,
                "sidecars stay, since a checkpoint does not tell which ones it needs"
            );
            return Ok(0);
        }
    };
    let mut removed = 0;
    for name in old.iter().filter(|name| !referenced.contains(*name)) {
        removed += u64::from(remove(dir, &folder.join(name))?);
    }
    Ok(removed)
}

/// The sidecars of all checkpoints that are there.
fn referenced(dir: &Dir) -> Result<HashSet<String>, OpError> {
    let log = Path::new(LOG_DIR);
    let mut names = HashSet::new();
    for (name, file) in list(dir)? {
        let path = log.join(&file);
        let read = || -> Result<Vec<Sidecar>, OpError> {
            match name {
                LogName::Classic(_) | LogName::V2 { json: false, .. } => {
                    let open = dir.open_file(&path)?;
                    Ok(read_sidecar_references(&file, open).map_err(TableError::from)?)
                }
                LogName::V2 { json: true, .. } => {
                    let mut sidecars = Vec::new();
                    let mut sink = |action| {
                        if let CheckpointAction::Sidecar(sidecar) = action {
                            sidecars.push(sidecar);
                        }
                        Ok(())
                    };
                    read_json_manifest(&file, &dir.read(&path)?, &mut sink)
                        .map_err(TableError::from)?;
                    Ok(sidecars)
                }
                // Multi-part checkpoints have none.
                LogName::Part { .. }
                | LogName::Commit(_)
                | LogName::Compacted { .. }
                | LogName::Crc(_) => Ok(Vec::new()),
            }
        };
        match read() {
            Ok(sidecars) => names.extend(
                sidecars
                    .iter()
                    .filter_map(|sidecar| LogName::of_sidecar(&sidecar.path)),
            ),
            // Another cleaner has removed it since it was listed.
            Err(OpError::Table(TableError::Store(e))) if e.is_absent() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(names)
}

#[cfg(test)]
#[path = "cleanup_tests.rs"]
mod tests;
