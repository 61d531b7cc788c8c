//! A checkpoint of one version, classic or V2 (PROTOCOL.md A1, A2).
//!
//! # Why the manifest of a V2 checkpoint is Parquet
//! Both forms are read. Parquet has one writer for all files of a checkpoint, streams however many transaction ids there
//! are, and its bytes can stand under the classic name as they are, where old readers find the protocol (`cleanup`).

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::OpError;
use crate::datafile::StatsConfig;
use crate::failpoint::{self, Point};
use crate::log::{
    Action, CheckpointAction, CheckpointOptions, CheckpointSummary, Digest, LAST_CHECKPOINT,
    LOG_DIR, LastCheckpoint, LogError, LogName, ParsedColumns, Remove, SIDECAR_DIR, Sidecar,
    V2Hint, read_checkpoint, write_classic, write_manifest, write_sidecar,
};
use crate::schema::StructType;
use crate::store::{Dir, StoreError};
use crate::table::{Snapshot, Table, TableError, properties, protocol, temporary_name};

/// File actions in one sidecar.
const SIDECAR_ACTIONS: usize = 50_000;

/// Writes the checkpoint of `snapshot`, reads it back, and only then points to it. The pointer does not go back
/// (BUGS.md D85). Never needed for correctness: a failure is for the log of the daemon.
///
/// # Errors
/// [`OpError::Table`], also when the table has a feature that we can't write. What was written is gone then.
pub fn checkpoint(table: &Table, snapshot: &Snapshot) -> Result<(), OpError> {
    write(table, snapshot, SIDECAR_ACTIONS)
}

pub(super) fn write(
    table: &Table,
    snapshot: &Snapshot,
    sidecar_actions: usize,
) -> Result<(), OpError> {
    snapshot.check_write()?;
    if snapshot.is_doubted() {
        return Err(TableError::Malformed {
            version: snapshot.version(),
            what: "log",
            reason: "its files contradict each other, and a checkpoint would hide it".to_owned(),
        }
        .into());
    }
    let (stats, partition) = parsed_columns(snapshot);
    let options = options(snapshot, &stats, &partition);
    let hint = if properties::v2_checkpoints(snapshot.protocol(), snapshot.metadata()) {
        v2(table, snapshot, &options, sidecar_actions)?
    } else {
        classic(table, snapshot, &options)?
    };
    failpoint::hit(Point::CheckpointNamed);
    table.checkpointed(snapshot.version());
    point(table, &hint)?;
    failpoint::hit(Point::CheckpointPointed);
    Ok(())
}

/// The columns with typed statistics, and the partition columns.
fn parsed_columns(snapshot: &Snapshot) -> (StructType, StructType) {
    let (schema, metadata) = (snapshot.schema(), snapshot.metadata());
    let stats = StatsConfig::from_configuration(&metadata.configuration)
        .with_clustering(snapshot.clustering_columns())
        .columns(schema, &metadata.partition_columns);
    let columns = metadata.partition_columns.iter();
    let fields = columns.filter_map(|name| schema.field(name).cloned());
    let fields = fields.collect();
    (stats, StructType { fields })
}

fn options<'a>(
    snapshot: &Snapshot,
    stats: &'a StructType,
    partition: &'a StructType,
) -> CheckpointOptions<'a> {
    const NONE: &StructType = &StructType { fields: Vec::new() };
    let metadata = snapshot.metadata();
    let write_stats_json = properties::checkpoint_stats_json(metadata);
    let vectors = protocol::supports(snapshot.protocol(), "deletionVectors");
    let parsed = if properties::checkpoint_stats_struct(metadata) {
        Some(ParsedColumns { stats, partition })
    } else if !write_stats_json && vectors {
        // A file with a vector must keep its number of rows (PROTOCOL.md B), whatever the properties say.
        Some(ParsedColumns {
            stats: NONE,
            partition: NONE,
        })
    } else {
        None
    };
    CheckpointOptions {
        write_stats_json,
        parsed,
    }
}

/// A log that was rolled back or replaced meanwhile must not get the state of the old one.
///
/// # Errors
/// [`TableError::NoSuchVersion`].
fn check_current(table: &Table, snapshot: &Snapshot) -> Result<(), OpError> {
    let newest = table.refresh()?;
    let same = newest.metadata().id == snapshot.metadata().id;
    if same && newest.version() >= snapshot.version() {
        Ok(())
    } else {
        Err(TableError::NoSuchVersion(snapshot.version()).into())
    }
}

/// The state without its files.
pub(super) fn table_actions(snapshot: &Snapshot) -> impl Iterator<Item = Action> {
    let head = [
        Action::Protocol(snapshot.protocol().clone()),
        Action::MetaData(snapshot.metadata().clone()),
    ];
    let txns = snapshot.txns().cloned().map(Action::Txn);
    let domains = snapshot.domains().cloned().map(Action::DomainMetadata);
    head.into_iter().chain(txns).chain(domains)
}

/// Live files, and tombstones as long as VACUUM has to know them.
pub(super) fn file_actions(table: &Table, snapshot: &Snapshot) -> impl Iterator<Item = Action> {
    let retention = properties::deleted_file_retention_ms(snapshot.metadata());
    let horizon = table.env().now().saturating_sub(retention);
    let adds = snapshot.live_files().map(|file| {
        let mut add = Arc::unwrap_or_clone(file).add;
        add.data_change = false;
        Action::Add(add)
    });
    let removes = snapshot
        .tombstones()
        .filter(move |r| r.deletion_timestamp.unwrap_or(0) > horizon)
        .map(|r| {
            Action::Remove(Remove {
                data_change: false,
                ..r
            })
        });
    adds.chain(removes)
}

fn classic(
    table: &Table,
    snapshot: &Snapshot,
    options: &CheckpointOptions<'_>,
) -> Result<LastCheckpoint, OpError> {
    let version = snapshot.version();
    let log = Path::new(LOG_DIR);
    let mut scratch = Scratch::new(table.dir());
    let temporary = log.join(temporary_name(table.env()));
    let actions = table_actions(snapshot).chain(file_actions(table, snapshot));
    let (_, summary) = write_file(&mut scratch, &temporary, |out| {
        write_classic(out, actions, options)
    })?;
    let back = read_back(table, &temporary, options.write_stats_json)?;
    back.expect(&temporary, &summary, None, &[])?;
    check_current(table, snapshot)?;
    failpoint::hit(Point::CheckpointWritten);
    table
        .dir()
        .rename(&temporary, &log.join(LogName::classic(version)))?;
    scratch.keep();
    Ok(LastCheckpoint {
        version,
        size: Some(summary.size),
        size_in_bytes: Some(summary.bytes),
        num_of_add_files: Some(summary.num_adds),
        ..LastCheckpoint::default()
    })
}

fn v2(
    table: &Table,
    snapshot: &Snapshot,
    options: &CheckpointOptions<'_>,
    sidecar_actions: usize,
) -> Result<LastCheckpoint, OpError> {
    let (dir, env) = (table.dir(), table.env());
    let version = snapshot.version();
    let log = Path::new(LOG_DIR);
    let folder = log.join(SIDECAR_DIR);
    let mut scratch = Scratch::new(dir);
    let mut sidecars = Vec::new();
    let mut total = CheckpointSummary::default();
    let mut files = file_actions(table, snapshot).peekable();
    while files.peek().is_some() {
        if sidecars.is_empty() {
            dir.create_dir_all(&folder)?;
        }
        let name = format!("{}.parquet", env.uuid());
        // Nobody reads it before a manifest names it, so it needs no other name until then.
        let path = folder.join(&name);
        let part = files.by_ref().take(sidecar_actions.max(1));
        let (modification_time, summary) =
            write_file(&mut scratch, &path, |out| write_sidecar(out, part, options))?;
        let back = read_back(table, &path, options.write_stats_json)?;
        back.expect(&path, &summary, None, &[])?;
        total.size += summary.size;
        total.num_adds += summary.num_adds;
        total.bytes += summary.bytes;
        sidecars.push(Sidecar {
            path: name,
            size_in_bytes: summary.bytes.cast_signed(),
            modification_time,
        });
    }
    if !sidecars.is_empty() {
        dir.sync_dir(&folder)?;
    }
    let name = LogName::manifest(version, env.uuid());
    let temporary = log.join(temporary_name(env));
    let signed = version.cast_signed();
    let (modification_time, summary) = write_file(&mut scratch, &temporary, |out| {
        write_manifest(out, signed, &sidecars, &total, table_actions(snapshot))
    })?;
    let back = read_back(table, &temporary, true)?;
    back.expect(&temporary, &summary, Some(signed), &sidecars)?;
    check_current(table, snapshot)?;
    failpoint::hit(Point::CheckpointWritten);
    let manifest = log.join(&name);
    // The name may be there in spite of an error.
    scratch.paths.push(manifest.clone());
    dir.rename(&temporary, &manifest)?;
    scratch.keep();
    Ok(LastCheckpoint {
        version,
        size: Some(total.size + summary.size),
        size_in_bytes: Some(total.bytes + summary.bytes),
        num_of_add_files: Some(total.num_adds),
        v2_checkpoint: Some(V2Hint {
            path: name,
            size_in_bytes: summary.bytes.cast_signed(),
            modification_time,
        }),
        ..LastCheckpoint::default()
    })
}

/// Files that are to vanish unless all goes well, the last one first.
struct Scratch<'a> {
    dir: &'a Dir,
    paths: Vec<PathBuf>,
}

impl<'a> Scratch<'a> {
    fn new(dir: &'a Dir) -> Self {
        Scratch {
            dir,
            paths: Vec::new(),
        }
    }

    fn keep(mut self) {
        self.paths.clear();
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if failpoint::is_dying() {
            return;
        }
        while let Some(path) = self.paths.pop() {
            match self.dir.remove_file(&path) {
                Ok(()) => {}
                Err(e) if e.is_absent() => {}
                Err(error) => {
                    // A manifest that stays needs its sidecars. What is left is removed when it is old.
                    tracing::warn!(path = %path.display(), %error, "a part of a failed checkpoint stays");
                    return;
                }
            }
        }
    }
}

/// Writes a new file, durably; gives its time in milliseconds since the epoch and what was written.
fn write_file(
    scratch: &mut Scratch<'_>,
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> Result<CheckpointSummary, LogError>,
) -> Result<(i64, CheckpointSummary), OpError> {
    let file = scratch.dir.create_new(path)?;
    scratch.paths.push(path.to_owned());
    let mut out = BufWriter::new(&file);
    let summary = write(&mut out).map_err(TableError::from)?;
    let io = |source| StoreError::Io {
        action: "write",
        path: path.to_owned(),
        source,
    };
    out.flush().map_err(io)?;
    drop(out);
    file.sync_all().map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    Ok((super::modified_ms(&meta), summary))
}

/// What a file that was just written really holds.
#[derive(Debug, Default)]
struct ReadBack {
    digest: Digest,
    versions: Vec<i64>,
    sidecars: Vec<Sidecar>,
}

fn read_back(table: &Table, path: &Path, stats: bool) -> Result<ReadBack, OpError> {
    let name = path.display().to_string();
    let mut back = ReadBack::default();
    let file = table.dir().open_file(path)?;
    read_checkpoint(&name, file, &mut |action| {
        match action {
            CheckpointAction::Action(action) => back.digest.add(&action, stats),
            CheckpointAction::CheckpointMetadata { version } => back.versions.push(version),
            CheckpointAction::Sidecar(sidecar) => back.sidecars.push(sidecar),
        }
        Ok(())
    })
    .map_err(TableError::from)?;
    Ok(back)
}

impl ReadBack {
    fn expect(
        &self,
        path: &Path,
        written: &CheckpointSummary,
        version: Option<i64>,
        sidecars: &[Sidecar],
    ) -> Result<(), OpError> {
        let same = self.digest == written.digest
            && self.versions.iter().eq(version.iter())
            && self.sidecars == sidecars;
        if same {
            return Ok(());
        }
        let (wrote, found) = (written.digest.count(), self.digest.count());
        Err(TableError::from(LogError::Checkpoint {
            file: path.display().to_string(),
            reason: format!(
                "what is read back ({found} actions) is not what was written ({wrote} actions)"
            ),
        })
        .into())
    }
}

/// Lets `_last_checkpoint` name this checkpoint, unless it names one that is as new.
pub(super) fn point(table: &Table, hint: &LastCheckpoint) -> Result<(), OpError> {
    let (dir, env) = (table.dir(), table.env());
    let pointer = Path::new(LOG_DIR).join(LAST_CHECKPOINT);
    let body = hint.to_json();
    // Another mount may write a newer one between the look and the put, or an older one after it: look again. The
    // rounds end, since each of the others is a checkpoint of its own.
    for _ in 0..10 {
        let there = pointed(dir)?.map(|there| there.version);
        if let Some(there) = there.filter(|there| *there >= hint.version) {
            // One that is ahead of the table is left from another table in this place, or a lie.
            let lies = table.refresh().is_ok_and(|newest| there > newest.version());
            if !lies {
                break;
            }
        }
        dir.put(&pointer, temporary_name(env).as_ref(), body.as_bytes())?;
    }
    Ok(())
}

/// What `_last_checkpoint` says, if it says something.
pub(super) fn pointed(dir: &Dir) -> Result<Option<LastCheckpoint>, OpError> {
    match dir.read(&Path::new(LOG_DIR).join(LAST_CHECKPOINT)) {
        Ok(body) => Ok(LastCheckpoint::parse(&body).ok()),
        Err(e) if e.is_absent() => Ok(None),
        Err(e) => Err(OpError::from(e)),
    }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
