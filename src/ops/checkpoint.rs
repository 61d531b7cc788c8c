//! A classic checkpoint of one version (PROTOCOL.md A1, A2).

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use super::OpError;
use crate::log::{
    Action, CheckpointOptions, LAST_CHECKPOINT, LOG_DIR, LastCheckpoint, LogError, LogName, Remove,
    read_checkpoint, write_classic,
};
use crate::store::StoreError;
use crate::table::{Snapshot, Table, TableError, properties, temporary_name};

/// Writes the checkpoint of `snapshot`, reads it back, and only then points to it. The pointer does not go back
/// (BUGS.md D85). Never needed for correctness: a failure is for the log of the daemon.
///
/// # Errors
/// [`OpError::Table`].
pub fn checkpoint(table: &Table, snapshot: &Snapshot) -> Result<(), OpError> {
    let version = snapshot.version();
    let log = Path::new(LOG_DIR);
    let env = table.env();
    let temporary = log.join(temporary_name(env));
    let path = log.join(LogName::classic(version));
    let dir = table.dir();
    let write = || -> Result<_, OpError> {
        let file = dir.create_new(&temporary)?;
        let mut out = BufWriter::new(&file);
        let horizon = env
            .now()
            .saturating_sub(properties::deleted_file_retention_ms(snapshot.metadata()));
        let options = CheckpointOptions {
            write_stats_json: true,
            parsed: None,
        };
        let actions = actions(snapshot, horizon);
        let summary = write_classic(&mut out, actions, &options).map_err(TableError::from)?;
        let io = |source| StoreError::Io {
            action: "write",
            path: path.clone(),
            source,
        };
        out.flush().map_err(io)?;
        drop(out);
        file.sync_all().map_err(io)?;
        verify(table, &temporary, summary.size)?;
        dir.rename(&temporary, &path)?;
        Ok(summary)
    };
    let summary = write().inspect_err(|_| {
        // Only a temporary name is left, which nobody reads.
        let _ = dir.remove_file(&temporary);
    })?;
    table.checkpointed(version);
    let pointer = log.join(LAST_CHECKPOINT);
    let pointed = || match dir.read(&pointer) {
        Ok(body) => Ok(LastCheckpoint::parse(&body).ok().map(|hint| hint.version)),
        Err(e) if e.is_absent() => Ok(None),
        Err(e) => Err(OpError::from(e)),
    };
    let hint = LastCheckpoint {
        version,
        size: Some(summary.size),
        parts: None,
        size_in_bytes: Some(summary.bytes),
        num_of_add_files: Some(summary.num_adds),
        tags: None,
    };
    let body = hint.to_json();
    // Another mount may write a newer one between the look and the put, or an older one after it: look again. The
    // rounds end, since each of the others is a checkpoint of its own.
    for _ in 0..10 {
        if pointed()?.is_some_and(|newest| newest >= version) {
            break;
        }
        dir.put(&pointer, temporary_name(env).as_ref(), body.as_bytes())?;
    }
    Ok(())
}

/// The reconciled state: tombstones as long as VACUUM has to know them, never commitInfo or cdc.
fn actions(snapshot: &Snapshot, horizon: i64) -> impl Iterator<Item = Action> {
    let head = [
        Action::Protocol(snapshot.protocol().clone()),
        Action::MetaData(snapshot.metadata().clone()),
    ];
    let txns = snapshot.txns().cloned().map(Action::Txn);
    let domains = snapshot.domains().cloned().map(Action::DomainMetadata);
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
    head.into_iter()
        .chain(txns)
        .chain(domains)
        .chain(adds)
        .chain(removes)
}

/// Reads what was written and counts it.
fn verify(table: &Table, path: &Path, size: u64) -> Result<(), OpError> {
    let name = path.display().to_string();
    let file = table.dir().open_file(path)?;
    let mut found = 0;
    read_checkpoint(&name, file, &mut |_| {
        found += 1;
        Ok(())
    })
    .map_err(TableError::from)?;
    if found != size {
        let reason = format!("{size} actions were written, {found} are read back");
        return Err(TableError::from(LogError::Checkpoint { file: name, reason }).into());
    }
    Ok(())
}
