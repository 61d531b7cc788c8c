//! The only door to the log (PROTOCOL.md G): put-if-absent, re-numbering of blind appends, read-back of an
//! unknown outcome.
//!
//! # Why a race without reads is re-numbered here and every other one is handed back
//! A blind append read nothing but schema and protocol; as long as these are the same objects its actions are
//! right for the next number, too. Anything that read rows must look again: its caller stages it anew.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use super::segment::{LogFile, modified_ms};
use super::{Known, Snapshot, Table, TableError, properties, protocol, segment, temporary_name};
use crate::env::{Env, Millis};
use crate::log::{Action, CommitInfo, LOG_DIR, LogName, write_commit};
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
        if !self.is_same_log(&self.known()) {
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
            let actions = self.complete(&base, staged, &txn_id)?;
            match self.put(version, &txn_id, &write_commit(&actions))? {
                Put::Created => return self.adopt(&base, version, actions).map(Outcome::Committed),
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

    fn put(&self, version: u64, txn_id: &str, body: &[u8]) -> Result<Put, TableError> {
        put_commit(&self.dir, &self.env, version, txn_id, body)
    }

    /// The committed version as a snapshot. What follows the commit never fails it.
    fn adopt(
        &self,
        base: &Snapshot,
        version: u64,
        actions: Vec<Action>,
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
        Ok(self.learn(Known {
            snapshot: Arc::new(next),
            file: inode,
            checked: now,
        }))
    }

    /// The actions with their commitInfo in front, checked.
    fn complete(
        &self,
        base: &Snapshot,
        staged: &Staged,
        txn_id: &str,
    ) -> Result<Vec<Action>, TableError> {
        let version = base.version().saturating_add(1);
        validate(base, &staged.actions, version)?;
        let now = self.env.now();
        let stamps = protocol::supports(base.protocol(), "inCommitTimestamp")
            && protocol::flag(base.metadata(), "delta.enableInCommitTimestamps");
        let stamp = if stamps {
            let previous = base.in_commit_timestamp().ok_or(TableError::Malformed {
                version: base.version(),
                what: "commitInfo",
                reason: "in-commit timestamps are on, but this version has none".to_owned(),
            })?;
            Some(now.max(previous.saturating_add(1)))
        } else {
            None
        };
        let level = properties::isolation_level(base.metadata());
        let info = commit_info(staged, now, stamp, Some(base.version()), level, txn_id);
        let mut actions = vec![Action::CommitInfo(info)];
        actions.extend(staged.actions.iter().cloned());
        Ok(actions)
    }
}

/// Creates a table in `dir` with `staged` as version 0.
///
/// # Errors
/// [`TableError::Conflict`] when somebody else created it at the same moment: nothing was committed.
pub fn create(dir: &Dir, env: &Env, staged: &Staged) -> Result<Table, TableError> {
    let now = env.now();
    let txn_id = env.uuid().to_string();
    let info = commit_info(staged, now, None, None, "WriteSerializable", &txn_id);
    let mut actions = vec![Action::CommitInfo(info)];
    actions.extend(staged.actions.iter().cloned());
    match dir.create_dir(Path::new(LOG_DIR)) {
        Err(StoreError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    match put_commit(dir, env, 0, &txn_id, &write_commit(&actions))? {
        // It is committed, whatever the look at it says.
        Put::Created => Table::open(dir.clone(), env.clone()).map_err(|e| TableError::Unknown {
            version: 0,
            reason: e.to_string(),
        }),
        Put::Exists => Err(TableError::Conflict {
            version: 0,
            operation: "another CREATE TABLE".to_owned(),
        }),
    }
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

fn commit_info(
    staged: &Staged,
    now: Millis,
    stamp: Option<i64>,
    read_version: Option<u64>,
    isolation_level: &str,
    txn_id: &str,
) -> CommitInfo {
    let operation = &staged.operation;
    let mut info = Map::new();
    if let Some(stamp) = stamp {
        info.insert("inCommitTimestamp".to_owned(), stamp.into());
    }
    info.insert("timestamp".to_owned(), now.into());
    info.insert("operation".to_owned(), operation.name.into());
    let parameters: Map<String, Value> = operation
        .parameters
        .iter()
        .map(|(k, v)| ((*k).to_owned(), Value::from(v.as_str())))
        .collect();
    info.insert("operationParameters".to_owned(), Value::Object(parameters));
    if let Some(version) = read_version {
        info.insert("readVersion".to_owned(), version.into());
    }
    info.insert("isolationLevel".to_owned(), isolation_level.into());
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
    info.insert(
        "engineInfo".to_owned(),
        concat!("deltafs/", env!("CARGO_PKG_VERSION")).into(),
    );
    info.insert("txnId".to_owned(), txn_id.into());
    CommitInfo(info)
}

/// The rules of PROTOCOL.md A2 on what we are about to write.
fn validate(base: &Snapshot, actions: &[Action], version: u64) -> Result<(), TableError> {
    let bad = |what: &'static str, reason: String| TableError::Malformed {
        version,
        what,
        reason,
    };
    let mut added = HashSet::new();
    let mut removed = HashSet::new();
    let mut data_change = None;
    let mut metadata = 0;
    for action in actions {
        let change = match action {
            Action::Add(add) => {
                if !added.insert(add.path.as_str()) {
                    return Err(bad("add", format!("{} is added twice", add.path)));
                }
                Some(add.data_change)
            }
            Action::Remove(remove) => {
                if !removed.insert(remove.path.as_str()) {
                    return Err(bad("remove", format!("{} is removed twice", remove.path)));
                }
                Some(remove.data_change)
            }
            Action::MetaData(_) => {
                metadata += 1;
                None
            }
            Action::CommitInfo(_)
            | Action::Protocol(_)
            | Action::Txn(_)
            | Action::DomainMetadata(_)
            | Action::Cdc(_) => None,
        };
        if let Some(change) = change {
            if data_change.is_some_and(|known| known != change) {
                return Err(bad(
                    "commit",
                    "dataChange differs between its files".to_owned(),
                ));
            }
            data_change = Some(change);
        }
    }
    if metadata > 1 {
        return Err(bad("commit", "it has two metaData actions".to_owned()));
    }
    if !removed.is_empty() && data_change == Some(true) {
        base.check_append_only()?;
    }
    Ok(())
}
