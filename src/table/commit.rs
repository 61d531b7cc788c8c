//! The only door to the log (PROTOCOL.md G): put-if-absent, re-numbering of blind appends, read-back of an
//! unknown outcome. What a version carries beside its caller's actions is made here, for each attempt: commitInfo,
//! in-commit timestamp, row ids, checksum.
//!
//! # Why a race without reads is re-numbered here and every other one is handed back
//! A blind append read nothing but schema and protocol; as long as these are the same objects its actions are
//! right for the next number, too. Anything that read rows must look again: its caller stages it anew.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use super::segment::{LogFile, modified_ms};
use super::validate::{Rules, validate};
use super::{
    Known, Snapshot, Table, TableError, checksum, properties, protocol, row_ids, segment,
    temporary_name,
};
use crate::env::{Env, Millis};
use crate::log::{Action, CommitInfo, LOG_DIR, LogName, Metadata, Protocol, write_commit};
use crate::store::{Dir, Put, StoreError};

/// How long one commit may go on losing races.
const DEADLINE_MS: Millis = 60_000;
/// Longest pause between two attempts.
const PAUSE_MS: u64 = 20;

/// What `commitInfo` says of a commit.
#[derive(Debug, Clone)]
pub struct Operation {
    /// `WRITE`, `DELETE`, …
    pub name: &'static str,
    /// Values are text or JSON in text, as Delta Spark has them.
    pub parameters: Vec<(&'static str, String)>,
    pub metrics: BTreeMap<&'static str, u64>,
    pub user_metadata: Option<String>,
}

/// Actions that wait for a version.
#[derive(Debug, Clone)]
pub struct Staged {
    pub actions: Vec<Action>,
    pub operation: Operation,
    /// Only adds, and nothing of the table was read.
    pub blind: bool,
    /// A visible name that must not be live when it is committed: the file would have replaced it.
    pub absent: Option<String>,
}

/// What became of an attempt.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    Committed(Arc<Snapshot>),
    /// Somebody else's version came first; this is the newest one. Nothing was committed.
    Raced(Arc<Snapshot>),
}

impl Table {
    /// Commits `staged`, which was made against `base`.
    ///
    /// # Errors
    /// [`TableError::Contention`] when a blind append lost for a minute, [`TableError::Unknown`] when the store
    /// failed in a way that does not tell, [`TableError::Malformed`] when the actions break the protocol.
    pub fn commit(&self, base: &Arc<Snapshot>, staged: &Staged) -> Result<Outcome, TableError> {
        let started = self.env.now();
        let _turn = self
            .committing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A log that was rolled back or made anew behind us must not get a gap, or another table's commit.
        let known = self.known();
        if !self.is_same_log(&known) || self.is_behind_checkpoint(&known) {
            self.refresh()?;
        }
        let txn_id = self.env.uuid().to_string();
        let mut base = Arc::clone(base);
        let mut attempts: u32 = 0;
        loop {
            let newest = self.snapshot();
            if newest.version() != base.version() || newest.metadata().id != base.metadata().id {
                if newest.version() < base.version() || !renumbers(staged, &base, &newest) {
                    return Ok(Outcome::Raced(newest));
                }
                base = newest;
            }
            attempts += 1;
            let version = base.version().saturating_add(1);
            let actions = complete(&self.dir, &self.env, Some(&base), staged, &txn_id)?;
            match put_commit(
                &self.dir,
                &self.env,
                version,
                &txn_id,
                &write_commit(&actions),
            )? {
                Put::Created => {
                    let adopted = self.adopt(&base, version, actions, &txn_id);
                    return adopted.map(Outcome::Committed);
                }
                Put::Exists => {
                    let newest = self.refresh()?;
                    if newest.version() < version {
                        // A version that is there but does not count: refresh has said why, or it is gone.
                        return Err(TableError::NoSuchVersion(version));
                    }
                }
            }
            let millis = self.env.now().saturating_sub(started);
            if millis > DEADLINE_MS {
                return Err(TableError::Contention { attempts, millis });
            }
            if attempts > 1 {
                self.env
                    .pause(Duration::from_millis(self.env.below(PAUSE_MS)));
            }
        }
    }

    /// The committed version as a snapshot. What follows the commit never fails it.
    fn adopt(
        &self,
        base: &Snapshot,
        version: u64,
        actions: Vec<Action>,
        txn_id: &str,
    ) -> Result<Arc<Snapshot>, TableError> {
        let path = Path::new(LOG_DIR).join(LogName::commit(version));
        let now = self.env.now();
        let (modified, inode) = match self.dir.metadata(&path) {
            Ok(m) => (modified_ms(&m), Some(LogFile::of(&m))),
            Err(_) => (now, None),
        };
        // It is committed: whatever fails from here on must not make its caller take anything back.
        let next = base
            .next(self.dir.path(), version, modified, actions)
            .map_err(|e| TableError::Unknown {
                version,
                reason: e.to_string(),
            })?;
        checksum::write(&self.dir, &self.env, &next, txn_id);
        Ok(self.learn(Known {
            snapshot: Arc::new(next),
            file: inode,
            checked: now,
        }))
    }
}

/// Creates a table in `dir` with `staged` as version 0.
///
/// # Errors
/// [`TableError::Conflict`] when somebody else created it at the same moment: nothing was committed.
pub fn create(dir: &Dir, env: &Env, staged: &Staged) -> Result<Table, TableError> {
    let txn_id = env.uuid().to_string();
    let actions = complete(dir, env, None, staged, &txn_id)?;
    match dir.create_dir(Path::new(LOG_DIR)) {
        Err(StoreError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    match put_commit(dir, env, 0, &txn_id, &write_commit(&actions))? {
        // It is committed, whatever the look at it says.
        Put::Created => {
            let table = Table::open(dir.clone(), env.clone()).map_err(|e| TableError::Unknown {
                version: 0,
                reason: e.to_string(),
            })?;
            let snapshot = table.snapshot();
            if snapshot.version() == 0 {
                checksum::write(dir, env, &snapshot, &txn_id);
            }
            Ok(table)
        }
        Put::Exists => Err(TableError::Conflict {
            version: 0,
            operation: "another CREATE TABLE".to_owned(),
        }),
    }
}

/// The actions with their commitInfo in front, as they are right after `base` and nowhere else: timestamps, row
/// ids and what depends on them. Checked.
fn complete(
    dir: &Dir,
    env: &Env,
    base: Option<&Snapshot>,
    staged: &Staged,
    txn_id: &str,
) -> Result<Vec<Action>, TableError> {
    let version = base.map_or(0, |b| b.version().saturating_add(1));
    // Nobody reads a file name with a higher one.
    if i64::try_from(version).is_err() {
        return Err(TableError::Malformed {
            version,
            what: "version",
            reason: "the log has no higher number".to_owned(),
        });
    }
    let mut actions = staged.actions.clone();
    let protocol = staged.actions.iter().find_map(|a| match a {
        Action::Protocol(p) => Some(p),
        _ => None,
    });
    let metadata = staged.actions.iter().find_map(|a| match a {
        Action::MetaData(m) => Some(m),
        _ => None,
    });
    let incomplete = |action| TableError::Incomplete { version, action };
    let protocol = protocol
        .or_else(|| base.map(Snapshot::protocol))
        .ok_or(incomplete("protocol"))?;
    let metadata = metadata
        .or_else(|| base.map(Snapshot::metadata))
        .ok_or(incomplete("metaData"))?;
    let mut metadata = Cow::Borrowed(metadata);
    let now = env.now();
    let stamp = stamp(base, protocol, &metadata, now)?;
    if let (Some(base), Some(stamp)) = (base, stamp)
        && !protocol::in_commit_timestamps(base.protocol(), base.metadata())
    {
        protocol::record_timestamps_from(metadata.to_mut(), version, stamp);
        actions.retain(|a| !matches!(a, Action::MetaData(_)));
        actions.insert(0, Action::MetaData(metadata.clone().into_owned()));
    }
    if protocol::assigns_row_ids(protocol, &metadata) {
        row_ids::assign(dir, base, &mut actions, version)?;
    }
    let rules = Rules {
        table: dir.path(),
        base,
        version,
        protocol,
        metadata: &metadata,
        blind: staged.blind,
    };
    validate(&rules, &actions)?;
    let told = Told {
        now,
        stamp,
        read_version: base.map(Snapshot::version),
        isolation_level: properties::isolation_level(base.map_or(&metadata, |b| b.metadata())),
        preserves_rows: protocol::row_tracking_enabled(protocol, &metadata),
        txn_id,
    };
    actions.insert(0, Action::CommitInfo(commit_info(staged, &told)));
    Ok(actions)
}

/// The in-commit timestamp of the version after `base`; `None` where commits have none (PROTOCOL.md A3). The first
/// one exceeds the time of the file before, so that the history stays in order.
fn stamp(
    base: Option<&Snapshot>,
    protocol: &Protocol,
    metadata: &Metadata,
    now: Millis,
) -> Result<Option<Millis>, TableError> {
    if !protocol::in_commit_timestamps(protocol, metadata) {
        return Ok(None);
    }
    let Some(base) = base else {
        return Ok(Some(now));
    };
    let previous = if protocol::in_commit_timestamps(base.protocol(), base.metadata()) {
        base.in_commit_timestamp().ok_or(TableError::Malformed {
            version: base.version(),
            what: "commitInfo",
            reason: "in-commit timestamps are on, but this version has none".to_owned(),
        })?
    } else {
        base.timestamp()
    };
    let next = previous
        .checked_add(1)
        .ok_or_else(|| TableError::Malformed {
            version: base.version(),
            what: "commitInfo",
            reason: "its in-commit timestamp is the last one that there is".to_owned(),
        })?;
    Ok(Some(now.max(next)))
}

fn put_commit(
    dir: &Dir,
    env: &Env,
    version: u64,
    txn_id: &str,
    body: &[u8],
) -> Result<Put, TableError> {
    let path = Path::new(LOG_DIR).join(LogName::commit(version));
    let temporary = temporary_name(env);
    match dir.put_if_absent(&path, temporary.as_ref(), body) {
        Ok(Put::Created) => Ok(Put::Created),
        // Some file systems repeat a link that has landed, and then it is there already.
        Ok(Put::Exists) => match segment::read_commit(dir, version) {
            Ok(Some(commit)) if is_ours(&commit.actions, txn_id) => Ok(Put::Created),
            _ => Ok(Put::Exists),
        },
        Err(source) => {
            // The failure may have come after the link: only the file itself can tell.
            match segment::read_commit(dir, version) {
                Ok(None) => Err(source.into()),
                Ok(Some(commit)) if is_ours(&commit.actions, txn_id) => {
                    match dir.sync_dir(Path::new(LOG_DIR)) {
                        Ok(()) => Ok(Put::Created),
                        Err(e) => Err(TableError::Unknown {
                            version,
                            reason: e.to_string(),
                        }),
                    }
                }
                Ok(Some(_)) => Ok(Put::Exists),
                Err(_) => Err(TableError::Unknown {
                    version,
                    reason: source.to_string(),
                }),
            }
        }
    }
}

fn is_ours(actions: &[Action], txn_id: &str) -> bool {
    actions.iter().any(|a| match a {
        Action::CommitInfo(info) => info.text("txnId") == Some(txn_id),
        _ => false,
    })
}

/// Whether actions made for `base` are as right after `newest`.
fn renumbers(staged: &Staged, base: &Snapshot, newest: &Snapshot) -> bool {
    let absent = staged
        .absent
        .as_ref()
        .is_none_or(|name| newest.named(name).is_none());
    staged.blind
        && absent
        && base.metadata() == newest.metadata()
        && base.protocol() == newest.protocol()
}

/// What commitInfo says beside the operation.
struct Told<'a> {
    now: Millis,
    stamp: Option<Millis>,
    read_version: Option<u64>,
    isolation_level: &'a str,
    /// Rows keep their ids where they are written again.
    preserves_rows: bool,
    txn_id: &'a str,
}

fn commit_info(staged: &Staged, told: &Told<'_>) -> CommitInfo {
    let operation = &staged.operation;
    let mut info = Map::new();
    if let Some(stamp) = told.stamp {
        info.insert("inCommitTimestamp".to_owned(), stamp.into());
    }
    info.insert("timestamp".to_owned(), told.now.into());
    info.insert("operation".to_owned(), operation.name.into());
    let parameters: Map<String, Value> = operation
        .parameters
        .iter()
        .map(|(k, v)| ((*k).to_owned(), Value::from(v.as_str())))
        .collect();
    info.insert("operationParameters".to_owned(), Value::Object(parameters));
    if let Some(version) = told.read_version {
        info.insert("readVersion".to_owned(), version.into());
    }
    info.insert("isolationLevel".to_owned(), told.isolation_level.into());
    info.insert("isBlindAppend".to_owned(), staged.blind.into());
    let metrics: Map<String, Value> = operation
        .metrics
        .iter()
        .map(|(k, v)| ((*k).to_owned(), Value::from(v.to_string())))
        .collect();
    info.insert("operationMetrics".to_owned(), Value::Object(metrics));
    if let Some(text) = &operation.user_metadata {
        info.insert("userMetadata".to_owned(), text.as_str().into());
    }
    if told.preserves_rows {
        let tags = serde_json::json!({"delta.rowTracking.preserved": "true"});
        info.insert("tags".to_owned(), tags);
    }
    info.insert(
        "engineInfo".to_owned(),
        concat!("deltafs/", env!("CARGO_PKG_VERSION")).into(),
    );
    info.insert("txnId".to_owned(), told.txn_id.into());
    CommitInfo(info)
}
