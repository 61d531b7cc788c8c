//! The only door to the log (PROTOCOL.md G): put-if-absent, conflict checks and rebase over the versions of others,
//! group commit of appends, read-back of an unknown outcome. What a version carries beside its caller's actions is
//! made here, for each attempt: commitInfo, in-commit timestamp, row ids, checksum.
//!
//! # Why a blind append is not judged
//! It read nothing but schema and protocol; as long as these are the same objects its actions are right for the next
//! number, too, however many versions lie between. Everything else follows the versions one by one.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use super::conflict::{Class, Conflict, Reason};
use super::rebase::Rebase;
use super::segment::{LogFile, modified_ms};
use super::txn::{Level, MOVES, Staged};
use super::validate::{Rules, validate};
use super::vectors::Prepared;
use super::{
    Known, Snapshot, Table, TableError, checksum, group, protocol, row_ids, segment, temporary_name,
};
use crate::env::{Env, Millis};
use crate::failpoint::{self, Point};
use crate::log::{Action, CommitInfo, LOG_DIR, LogName, Metadata, Protocol, write_commit};
use crate::store::{Dir, Put, StoreError};

/// How long one commit may go on losing races.
pub(super) const DEADLINE_MS: Millis = 60_000;
/// Longest pause between two attempts.
const PAUSE_MS: u64 = 20;
/// After as many lost races the commits of this process wait until the transaction has followed.
const PATIENCE: u32 = 3;

/// What became of a transaction.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    Committed(Arc<Snapshot>),
    /// Somebody else's version came first, and the transaction has to be staged again; this is the newest one.
    /// Nothing was committed.
    Raced(Arc<Snapshot>),
    /// Others have done what was left to do: no version was made.
    Superseded(Arc<Snapshot>),
}

impl Table {
    /// Commits `staged`, which was made against `base`; carries it over the versions of others first. Afterwards
    /// `staged` is what was committed.
    ///
    /// # Errors
    /// [`TableError::Conflict`] when a version of others is in the way, [`TableError::Contention`] when it lost races
    /// for a minute, [`TableError::Unknown`] when the store failed in a way that does not tell,
    /// [`TableError::Malformed`] when the actions break the protocol. Files that were made here for the transaction
    /// are gone then, unless the outcome is unknown; those that its caller made are not.
    pub fn commit(&self, base: &Arc<Snapshot>, staged: &mut Staged) -> Result<Outcome, TableError> {
        if group::fits(staged)
            && let Some(outcome) = self.commit_in_group(base, staged)
        {
            return outcome;
        }
        self.commit_unshared(base, staged)
    }

    /// As [`Table::commit`], in a version that holds nothing else and is judged like any other.
    ///
    /// # Errors
    /// As [`Table::commit`].
    pub fn commit_unshared(
        &self,
        base: &Arc<Snapshot>,
        staged: &mut Staged,
    ) -> Result<Outcome, TableError> {
        let mut prepared = Prepared::default();
        let outcome = self.commit_alone(base, staged, &mut prepared);
        match &outcome {
            Ok(Outcome::Committed(_)) => staged.operation.metrics = prepared.metrics(staged),
            Err(TableError::Unknown { .. }) => {}
            Ok(Outcome::Raced(_) | Outcome::Superseded(_)) | Err(_) => prepared.discard(self),
        }
        outcome
    }

    fn commit_alone(
        &self,
        base: &Arc<Snapshot>,
        staged: &mut Staged,
        prepared: &mut Prepared,
    ) -> Result<Outcome, TableError> {
        let started = self.env.now();
        let txn_id = self.env.uuid().to_string();
        let mut rebase = Rebase::new(self, base, staged);
        let mut lost: u32 = 0;
        *prepared = Prepared::of(self, staged)?;
        loop {
            let mut turn = (lost >= PATIENCE).then(|| self.turn()).transpose()?;
            match self.follow(&mut rebase, base, staged, prepared, &txn_id)? {
                Followed::Raced(newest) => return Ok(Outcome::Raced(newest)),
                Followed::Ours(version) => {
                    // It is committed: that it can't be looked at is no failure of it.
                    let after = self.at(version).map_err(|e| TableError::Unknown {
                        version,
                        reason: e.to_string(),
                    })?;
                    return Ok(Outcome::Committed(after));
                }
                Followed::Newest => {}
            }
            if staged.is_empty() {
                return Ok(Outcome::Superseded(Arc::clone(rebase.view())));
            }
            if prepared.is_stale() {
                *prepared = Prepared::of(self, staged)?;
            }
            if turn.is_none() {
                turn = Some(self.turn()?);
            }
            let newest = self.snapshot();
            let same = newest.version() == rebase.view().version()
                && newest.metadata().id == base.metadata().id;
            if same {
                rebase.stand_on(newest);
                let attempt = Attempt {
                    staged,
                    prepared,
                    level: rebase.level(),
                    txn_id: &txn_id,
                    read_version: base.version(),
                };
                if let Some(after) = self.attempt(rebase.view(), &attempt)? {
                    return Ok(Outcome::Committed(after));
                }
            }
            drop(turn);
            lost += 1;
            let millis = self.env.now().saturating_sub(started);
            if millis > DEADLINE_MS {
                return Err(TableError::Contention {
                    attempts: lost,
                    millis,
                });
            }
            if lost > 1 {
                self.env
                    .pause(Duration::from_millis(self.env.below(PAUSE_MS)));
            }
        }
    }

    /// The turn to commit: one of this process at a time, since waiting here is cheaper than losing a race. A log that
    /// was rolled back or made anew behind us must not get a gap, or another table's commit.
    pub(super) fn turn(&self) -> Result<MutexGuard<'_, ()>, TableError> {
        let turn = self
            .committing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = self.known();
        if !self.is_same_log(&known) || self.is_behind_checkpoint(&known) {
            self.refresh()?;
        }
        Ok(turn)
    }

    /// Carries a transaction to the newest version.
    fn follow(
        &self,
        rebase: &mut Rebase<'_>,
        base: &Arc<Snapshot>,
        staged: &mut Staged,
        prepared: &mut Prepared,
        txn_id: &str,
    ) -> Result<Followed, TableError> {
        let newest = self.refresh()?;
        let goes_on = newest.metadata().id == base.metadata().id
            && newest.version() >= rebase.view().version();
        if !goes_on {
            return Err(made_anew(&newest).into());
        }
        if matches!(staged.reads, super::Reads::Restage) {
            let same = newest.version() == base.version();
            return Ok(if same {
                Followed::Newest
            } else {
                Followed::Raced(newest)
            });
        }
        loop {
            let version = rebase.view().version().saturating_add(1);
            let Some(commit) = segment::read_commit(&self.dir, version)? else {
                if version <= newest.version() {
                    // Cleaned up: nobody can tell any more what was in the way.
                    return Err(TableError::Overtaken { version });
                }
                return Ok(Followed::Newest);
            };
            if is_ours(&commit.actions, txn_id) {
                return Ok(Followed::Ours(version));
            }
            if staged
                .absent
                .as_ref()
                .is_some_and(|name| newest.named(name).is_some())
            {
                return Ok(Followed::Raced(newest));
            }
            if rebase.follow(staged, &commit, version)? {
                prepared.discard(self);
            }
        }
    }

    /// One attempt at the version after `base`, which is the newest one that is known. `None` when somebody else was
    /// first. The caller has the turn.
    pub(super) fn attempt(
        &self,
        base: &Arc<Snapshot>,
        attempt: &Attempt<'_>,
    ) -> Result<Option<Arc<Snapshot>>, TableError> {
        let version = base.version().saturating_add(1);
        let actions = complete(&self.dir, &self.env, Some(base), attempt)?;
        let body = write_commit(&actions);
        match put_commit(&self.dir, &self.env, version, attempt.txn_id, &body)? {
            Put::Created => {
                failpoint::hit(Point::Committed);
                let adopted = self.adopt(base, version, actions, attempt.txn_id);
                adopted.map(Some)
            }
            Put::Exists => {
                let newest = self.refresh()?;
                if newest.version() < version {
                    // A version that is there but does not count: refresh has said why, or it is gone.
                    return Err(TableError::NoSuchVersion(version));
                }
                Ok(None)
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
        failpoint::hit(Point::Checksummed);
        Ok(self.learn(Known {
            snapshot: Arc::new(next),
            file: inode,
            checked: now,
        }))
    }
}

/// How far a transaction has come.
enum Followed {
    /// It stands on the newest version.
    Newest,
    /// It has to be staged again.
    Raced(Arc<Snapshot>),
    /// A version is its own: the answer to the attempt got lost.
    Ours(u64),
}

/// What one attempt commits.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) staged: &'a Staged,
    pub(super) prepared: &'a Prepared,
    pub(super) level: Level,
    pub(super) txn_id: &'a str,
    /// The version that the transaction has read, for commitInfo.
    pub(super) read_version: u64,
}

/// The table is another one than that which the transaction has read.
pub(super) fn made_anew(newest: &Snapshot) -> Conflict {
    Conflict {
        class: Class::ProtocolChanged,
        version: newest.version(),
        operation: "CREATE TABLE".to_owned(),
        timestamp: newest.timestamp(),
        file: None,
        rows: None,
        reason: Reason::OtherTable,
    }
}

/// Creates a table in `dir` with `staged` as version 0.
///
/// # Errors
/// [`TableError::Created`] when somebody else created it at the same moment: nothing was committed.
pub fn create(dir: &Dir, env: &Env, staged: &Staged) -> Result<Table, TableError> {
    let txn_id = env.uuid().to_string();
    let attempt = Attempt {
        staged,
        prepared: &Prepared::default(),
        level: Level::WriteSerializable,
        txn_id: &txn_id,
        read_version: 0,
    };
    let actions = complete(dir, env, None, &attempt)?;
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
        Put::Exists => Err(TableError::Created),
    }
}

/// The actions with their commitInfo in front, as they are right after `base` and nowhere else: timestamps, row
/// ids and what depends on them. Checked.
fn complete(
    dir: &Dir,
    env: &Env,
    base: Option<&Snapshot>,
    attempt: &Attempt<'_>,
) -> Result<Vec<Action>, TableError> {
    let staged = attempt.staged;
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
    actions.extend_from_slice(&attempt.prepared.actions);
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
        blind: staged.is_blind(),
    };
    validate(&rules, &actions)?;
    let told = Told {
        now,
        stamp,
        read_version: base.map(|_| attempt.read_version),
        preserves_rows: protocol::row_tracking_enabled(protocol, &metadata),
    };
    actions.insert(0, Action::CommitInfo(commit_info(attempt, &told)));
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
    failpoint::hit(Point::BeforeCommit);
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

/// What commitInfo says beside the operation.
struct Told {
    now: Millis,
    stamp: Option<Millis>,
    read_version: Option<u64>,
    /// Rows keep their ids where they are written again.
    preserves_rows: bool,
}

fn commit_info(attempt: &Attempt<'_>, told: &Told) -> CommitInfo {
    let Attempt {
        staged, prepared, ..
    } = *attempt;
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
    info.insert("isolationLevel".to_owned(), attempt.level.name().into());
    info.insert("isBlindAppend".to_owned(), staged.is_blind().into());
    let metrics: Map<String, Value> = prepared
        .metrics(staged)
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
    if let Some(moves) = prepared.moves(staged) {
        info.insert(MOVES.to_owned(), moves);
    }
    info.insert("txnId".to_owned(), attempt.txn_id.into());
    CommitInfo(info)
}
