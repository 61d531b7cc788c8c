//! Actions on their way to a snapshot: newest wins (PROTOCOL.md A2).
//!
//! File actions are packed as they come and reconciled in one pass over their keys in order: for the 100,000 files
//! of a checkpoint as for the one file of a new commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::names::{Namer, is_plain};
use super::packed::{
    Dictionary, Edit, PackedMap, Packer, Record, Words, naming, tombstone_key, vector_id,
};
use super::snapshot::{Parts, Totals};
use super::{DataPath, Snapshot, TableError, protocol};
use crate::deletion_vector::DeletionVectorDescriptor;
use crate::log::{Action, Add, DomainMetadata, Metadata, Protocol, Remove, Txn};
use crate::schema::StructType;

/// Pending file actions are reconciled when they are so many: a long history must not be held as a whole.
const PENDING: usize = 1 << 19;
/// Fewer operations are one thread's work; tests want several threads for few.
const SORT_ALONE: usize = if cfg!(test) { 8 } else { 1 << 14 };

/// The file actions of one commit, or of a part of a checkpoint, packed.
#[derive(Debug, Default)]
pub(super) struct FileOps {
    data: Vec<u8>,
    ops: Vec<FileOp>,
}

#[derive(Debug, Clone, Copy)]
struct FileOp {
    start: usize,
    key_len: u32,
    record_len: u32,
    /// Of the record: the id of its deletion vector, which lies behind it.
    vector_len: u32,
    kind: Kind,
}

/// Removes come before adds: the order of lines in a commit means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A tombstone of a checkpoint: it takes nothing away.
    Bury,
    Remove,
    Add,
}

impl FileOps {
    fn add(&mut self, packer: &mut Packer<'_>, table: &Path, add: &Add) {
        let path = DataPath::parse(&add.path, table);
        let vector = vector_id(add.deletion_vector.as_ref());
        self.push(Kind::Add, path.key(), &vector, |out| {
            packer.add(add, &path, out);
        });
    }

    fn remove(&mut self, packer: &mut Packer<'_>, table: &Path, remove: &Remove, kind: Kind) {
        let path = DataPath::parse(&remove.path, table);
        let vector = vector_id(remove.deletion_vector.as_ref());
        self.push(kind, path.key(), &vector, |out| {
            packer.remove(remove, &path, out);
        });
    }

    fn push(&mut self, kind: Kind, key: &str, vector: &[u8], record: impl FnOnce(&mut Vec<u8>)) {
        let len = |from: usize, to: usize| u32::try_from(to - from).unwrap_or(u32::MAX);
        let start = self.data.len();
        self.data.extend_from_slice(key.as_bytes());
        let record_start = self.data.len();
        record(&mut self.data);
        let record_end = self.data.len();
        self.data.extend_from_slice(vector);
        self.ops.push(FileOp {
            start,
            key_len: len(start, record_start),
            record_len: len(record_start, record_end),
            vector_len: len(record_end, self.data.len()),
            kind,
        });
    }

    fn part(&self, start: usize, len: u32) -> &[u8] {
        self.data
            .get(start..start + len as usize)
            .unwrap_or_default()
    }

    fn key(&self, op: FileOp) -> &[u8] {
        self.part(op.start, op.key_len)
    }

    fn record(&self, op: FileOp) -> &[u8] {
        self.part(op.start + op.key_len as usize, op.record_len)
    }

    fn vector(&self, op: FileOp) -> &[u8] {
        let start = op.start + op.key_len as usize + op.record_len as usize;
        self.part(start, op.vector_len)
    }
}

/// A commit, or a part of a checkpoint, ready to be applied. Made by any thread.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    version: u64,
    files: FileOps,
    /// Actions that are not about files.
    others: Vec<Action>,
}

impl Parsed {
    /// Nothing yet of the commit or checkpoint `version`.
    pub(super) fn empty(version: u64) -> Self {
        Parsed {
            version,
            ..Parsed::default()
        }
    }

    /// One more action of a commit.
    pub(super) fn commit_action(&mut self, packer: &mut Packer<'_>, table: &Path, action: Action) {
        self.take(packer, table, action, Kind::Remove);
    }

    /// One more action of a checkpoint.
    pub(super) fn checkpoint_action(
        &mut self,
        packer: &mut Packer<'_>,
        table: &Path,
        action: Action,
    ) {
        self.take(packer, table, action, Kind::Bury);
    }

    fn take(&mut self, packer: &mut Packer<'_>, table: &Path, action: Action, removes: Kind) {
        match action {
            Action::Add(add) => self.files.add(packer, table, &add),
            Action::Remove(remove) => self.files.remove(packer, table, &remove, removes),
            Action::Cdc(_) => {}
            other @ (Action::CommitInfo(_)
            | Action::Protocol(_)
            | Action::MetaData(_)
            | Action::Txn(_)
            | Action::DomainMetadata(_)) => self.others.push(other),
        }
    }
}

/// What is known so far, and what is still to be reconciled with it.
#[derive(Debug, Default)]
pub(super) struct Replay {
    version: u64,
    timestamp: i64,
    in_commit_timestamp: Option<i64>,
    protocol: Option<Arc<Protocol>>,
    metadata: Option<Arc<Metadata>>,
    /// Absent until the end of a load, or when a metaData action may have renamed every directory.
    schema: Option<Arc<StructType>>,
    dictionary: Arc<Dictionary>,
    files: PackedMap,
    /// Absent when every file has to be named anew.
    names: Option<PackedMap>,
    tombstones: PackedMap,
    txns: Arc<BTreeMap<String, Txn>>,
    domains: Arc<BTreeMap<String, DomainMetadata>>,
    totals: Totals,
    checkpoint: Option<u64>,
    doubted: bool,
    pending: Vec<(u64, FileOps)>,
    pending_ops: usize,
}

impl Replay {
    /// Goes on from a snapshot.
    pub(super) fn resume(at: &Parts) -> Self {
        Replay {
            version: at.version,
            timestamp: at.timestamp,
            in_commit_timestamp: at.in_commit_timestamp,
            protocol: Some(Arc::clone(&at.protocol)),
            metadata: Some(Arc::clone(&at.metadata)),
            schema: Some(Arc::clone(&at.schema)),
            dictionary: Arc::clone(&at.dictionary),
            files: at.files.clone(),
            names: Some(at.names.clone()),
            tombstones: at.tombstones.clone(),
            txns: Arc::clone(&at.txns),
            domains: Arc::clone(&at.domains),
            totals: at.totals,
            checkpoint: at.checkpoint,
            doubted: at.doubted,
            pending: Vec::new(),
            pending_ops: 0,
        }
    }

    pub(super) fn dictionary(&self) -> Arc<Dictionary> {
        Arc::clone(&self.dictionary)
    }

    /// The next part of the checkpoint of `version`.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(super) fn apply_checkpoint(&mut self, parsed: Parsed) -> Result<(), TableError> {
        self.checkpoint = Some(parsed.version);
        self.take(parsed)
    }

    /// Whether the whole checkpoint of `version` was one: it has to tell protocol and metadata.
    ///
    /// # Errors
    /// [`TableError::Incomplete`].
    pub(super) fn check_complete(&mut self, version: u64) -> Result<(), TableError> {
        self.version = version;
        self.checkpoint = Some(version);
        let incomplete = |action| Err(TableError::Incomplete { version, action });
        match (&self.protocol, &self.metadata) {
            (None, _) => incomplete("protocol"),
            (_, None) => incomplete("metaData"),
            (Some(_), Some(_)) => Ok(()),
        }
    }

    /// Whether the file of a path of the log is live, with this deletion vector.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(super) fn is_live(
        &mut self,
        table: &Path,
        path: &str,
        vector: Option<&DeletionVectorDescriptor>,
    ) -> Result<bool, TableError> {
        if self.pending_ops > 0 {
            self.names = None;
            self.reconcile()?;
        }
        let path = DataPath::parse(path, table);
        let key = path.key().as_bytes();
        let live = self.files.get(key);
        Ok(live.is_some_and(|live| Record::read(key, live).vector_id() == vector_id(vector)))
    }

    /// The next commit, or the actions of several ones that reconcile to it.
    ///
    /// # Errors
    /// [`TableError::TwoLive`], [`TableError::Malformed`], or a schema that can't be parsed.
    pub(super) fn apply(&mut self, parsed: Parsed, timestamp: i64) -> Result<(), TableError> {
        self.timestamp = timestamp;
        self.in_commit_timestamp = None;
        self.take(parsed)
    }

    fn take(&mut self, parsed: Parsed) -> Result<(), TableError> {
        self.version = parsed.version;
        for action in parsed.others {
            self.other(parsed.version, action)?;
        }
        self.pending_ops += parsed.files.ops.len();
        if !parsed.files.ops.is_empty() {
            self.pending.push((parsed.version, parsed.files));
        }
        if self.pending_ops > PENDING {
            // Names wait for the end: what the metadata will be is not known yet.
            self.names = None;
            self.reconcile()?;
        }
        Ok(())
    }

    fn other(&mut self, version: u64, action: Action) -> Result<(), TableError> {
        match action {
            Action::Protocol(p) => {
                protocol::well_formed(&p, version)?;
                self.protocol = Some(Arc::new(p));
            }
            Action::MetaData(m) => {
                let schema = StructType::from_json(&m.schema_string)?;
                let same_layout = self.schema.as_deref() == Some(&schema)
                    && self
                        .metadata
                        .as_ref()
                        .is_some_and(|old| old.partition_columns == m.partition_columns);
                if !same_layout {
                    self.names = None;
                    self.schema = Some(Arc::new(schema));
                }
                self.metadata = Some(Arc::new(m));
            }
            Action::Txn(txn) => {
                Arc::make_mut(&mut self.txns).insert(txn.app_id.clone(), txn);
            }
            Action::DomainMetadata(domain) => {
                let domains = Arc::make_mut(&mut self.domains);
                if domain.removed {
                    domains.remove(&domain.domain);
                } else {
                    domains.insert(domain.domain.clone(), domain);
                }
            }
            Action::CommitInfo(info) => {
                self.in_commit_timestamp = info.integer("inCommitTimestamp");
            }
            Action::Cdc(_) | Action::Add(_) | Action::Remove(_) => {}
        }
        Ok(())
    }

    /// Reconciles what is pending: afterwards `files` and `tombstones` are right. New files have no name yet, unless
    /// nothing had names before. Returns the changed files.
    fn reconcile(&mut self) -> Result<Changes, TableError> {
        let pending = std::mem::take(&mut self.pending);
        self.pending_ops = 0;
        let order = in_order(&pending);
        // When all is to be named anew, most names are those of the paths: then the records are right at once.
        let guess = self.names.is_none()
            && self
                .metadata
                .as_ref()
                .is_some_and(|m| m.partition_columns.is_empty());
        let mut tombs = BTreeMap::new();
        let mut changes = Changes::default();
        if self.files.is_empty() {
            // Nothing to look up in: the threads share the keys.
            let ranges = ranges(&pending, &order);
            let swept: Result<Vec<(Swept<'_>, PackedMap)>, TableError> =
                std::thread::scope(|scope| {
                    let sweep = |range| {
                        let swept = self.sweep(&pending, range)?;
                        let files = self.files.edited(swept.edits(guess));
                        Ok((swept, files))
                    };
                    let threads: Vec<_> = ranges
                        .into_iter()
                        .map(|range| scope.spawn(move || sweep(range)))
                        .collect();
                    threads
                        .into_iter()
                        .map(|thread| {
                            let swept = thread.join();
                            swept.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                        })
                        .collect()
                });
            let mut parts = Vec::new();
            let mut totals = Totals::default();
            for (mut swept, files) in swept? {
                tombs.append(&mut swept.tombs);
                totals.append(&swept.totals);
                parts.push(files);
            }
            if self.names.is_some() {
                let keys = parts.iter().flat_map(PackedMap::iter);
                changes.came = keys.map(|(key, _)| key.to_vec()).collect();
            }
            self.files = PackedMap::concat(parts);
            self.totals = totals;
        } else {
            let mut swept = self.sweep(&pending, &order)?;
            tombs.append(&mut swept.tombs);
            if self.names.is_some() {
                changes = Changes::of(&self.files, &swept.changed);
            }
            let files = self.files.edited(swept.edits(guess));
            self.totals = swept.totals;
            self.files = files;
        }
        self.tombstones = self.tombstones.edited(tombs.iter().map(|(key, tomb)| {
            let edit: Edit<'_> = tomb.map(|tomb| [tomb, &[][..]]);
            (key.as_slice(), edit)
        }));
        Ok(changes)
    }

    /// What operations on a range of keys, in order, come to.
    fn sweep<'p>(
        &self,
        pending: &'p [(u64, FileOps)],
        order: &[(u32, u32)],
    ) -> Result<Swept<'p>, TableError> {
        let op = |at: &(u32, u32)| {
            let (version, ops) = pending.get(at.0 as usize)?;
            Some((*version, ops, *ops.ops.get(at.1 as usize)?))
        };
        let key = |at: &(u32, u32)| key_of(pending, at);
        let mut swept = Swept::default();
        if !self.files.is_empty() {
            swept.totals = self.totals;
        }
        // Of one key, by deletion vector: what is buried, and what an add has brought back.
        let mut graves: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
        for group in order.chunk_by(|a, b| key(a) == key(b)) {
            let Some(key) = group.first().map(key) else {
                continue;
            };
            let before = self.files.get(key);
            let mut live = Live::Before(before);
            graves.clear();
            for (version, ops, op) in group.iter().filter_map(op) {
                let (vector, record) = (ops.vector(op), ops.record(op));
                let live_vector = live.record().map(|l| Record::read(key, l).vector_id());
                let grave = match op.kind {
                    Kind::Add => {
                        if live_vector.is_some_and(|live| live != vector) {
                            return Err(two_live(version, key, live.record(), record));
                        }
                        live = Live::Now(Some(record));
                        None
                    }
                    Kind::Remove => {
                        if live_vector == Some(vector) {
                            live = Live::Now(None);
                        }
                        Some(record)
                    }
                    Kind::Bury => Some(record),
                };
                match graves.iter_mut().find(|(of, _)| *of == vector) {
                    Some((_, known)) => *known = grave,
                    None => graves.push((vector, grave)),
                }
            }
            for (vector, grave) in &graves {
                // Most adds are of files that were never removed.
                if grave.is_none() && self.tombstones.is_empty() {
                    continue;
                }
                let tomb = tombstone_key(key, vector);
                if grave.is_some() || self.tombstones.get(&tomb).is_some() {
                    swept.tombs.insert(tomb, *grave);
                }
            }
            // Added and removed again is no change.
            if let Live::Now(live) = live
                && (live.is_some() || before.is_some())
            {
                if let Some(before) = before {
                    swept.totals.count(&Record::read(key, before), false);
                }
                if let Some(live) = live {
                    swept.totals.count(&Record::read(key, live), true);
                }
                swept.changed.push((key, live));
            }
        }
        Ok(swept)
    }

    /// The snapshot after all that was applied.
    ///
    /// # Errors
    /// [`TableError::Incomplete`] without protocol or metadata; as [`Self::apply`].
    pub(super) fn finish(mut self) -> Result<Snapshot, TableError> {
        let version = self.version;
        let changes = self.reconcile()?;
        let protocol = self.protocol.take().ok_or(TableError::Incomplete {
            version,
            action: "protocol",
        })?;
        let metadata = self.metadata.take().ok_or(TableError::Incomplete {
            version,
            action: "metaData",
        })?;
        let schema = match self.schema.take() {
            Some(schema) => schema,
            None => Arc::new(StructType::from_json(&metadata.schema_string)?),
        };
        let words = Words::of(&self.dictionary);
        let namer = Namer::new(&schema, &metadata, &words);
        let (files, names) = match &self.names {
            Some(names) => namer.update(&self.files, names, &changes),
            None => namer.all(&self.files),
        };
        drop(words);
        Ok(Snapshot::of(Parts {
            version,
            timestamp: self.timestamp,
            in_commit_timestamp: self.in_commit_timestamp,
            protocol,
            metadata,
            schema,
            dictionary: self.dictionary,
            files,
            names,
            tombstones: self.tombstones,
            txns: self.txns,
            domains: self.domains,
            totals: self.totals,
            checkpoint: self.checkpoint,
            doubted: self.doubted,
        }))
    }
}

/// The file of a key on its way through the operations on it.
enum Live<'b, 'p> {
    /// As it was before them.
    Before(Option<&'b [u8]>),
    Now(Option<&'p [u8]>),
}

impl Live<'_, '_> {
    fn record(&self) -> Option<&[u8]> {
        match self {
            Live::Before(record) => *record,
            Live::Now(record) => *record,
        }
    }
}

/// What the operations on a range of keys come to.
#[derive(Default)]
struct Swept<'p> {
    /// Records by key, in order; `None` for a file that has gone.
    changed: Vec<(&'p [u8], Option<&'p [u8]>)>,
    tombs: BTreeMap<Vec<u8>, Option<&'p [u8]>>,
    totals: Totals,
}

impl<'p> Swept<'p> {
    /// The changes, with the names of those files whose path is what they want, if `guess` says so.
    fn edits(&self, guess: bool) -> impl Iterator<Item = (&'p [u8], Edit<'p>)> {
        self.changed.iter().map(move |(key, live)| {
            let edit: Edit<'p> = live.map(|record| {
                if guess && is_plain(&Record::read(key, record)) {
                    [&[naming::IS_KEY][..], record.get(1..).unwrap_or_default()]
                } else {
                    [record, &[]]
                }
            });
            (*key, edit)
        })
    }
}

/// A range of the operations for each thread; all operations on a key are in one of them.
fn ranges<'o>(pending: &[(u64, FileOps)], order: &'o [(u32, u32)]) -> Vec<&'o [(u32, u32)]> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let size = (order.len() / threads + 1).max(SORT_ALONE);
    let mut ranges = Vec::new();
    let mut rest = order;
    while rest.len() > size {
        let mut end = size;
        let key = |at: usize| rest.get(at).map(|at| key_of(pending, at));
        while end < rest.len() && key(end) == key(end - 1) {
            end += 1;
        }
        let (range, behind) = rest.split_at(end);
        ranges.push(range);
        rest = behind;
    }
    ranges.push(rest);
    ranges
}

fn key_of<'p>(pending: &'p [(u64, FileOps)], at: &(u32, u32)) -> &'p [u8] {
    let ops = pending.get(at.0 as usize).map(|(_, ops)| ops);
    let op = ops.and_then(|ops| Some((ops, *ops.ops.get(at.1 as usize)?)));
    op.map_or(&[], |(ops, op)| ops.key(op))
}

/// Files that differ from those before.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Records that have gone, with their names.
    pub(super) gone: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keys of records that came, without names.
    pub(super) came: Vec<Vec<u8>>,
}

impl Changes {
    fn of(before: &PackedMap, changed: &[(&[u8], Option<&[u8]>)]) -> Self {
        let mut changes = Changes::default();
        for (key, now) in changed {
            if let Some(old) = before.get(key) {
                changes.gone.push((key.to_vec(), old.to_vec()));
            }
            if now.is_some() {
                changes.came.push(key.to_vec());
            }
        }
        changes
    }
}

fn two_live(version: u64, key: &[u8], first: Option<&[u8]>, second: &[u8]) -> TableError {
    let id = |record: &[u8]| {
        let descriptor = Record::read(key, record).descriptor();
        descriptor.map(|d| d.unique_id())
    };
    TableError::TwoLive {
        version,
        path: String::from_utf8_lossy(key).into_owned(),
        first: first.and_then(id),
        second: id(second),
    }
}

/// The pending operations by key, each key's in the order in which they happened.
fn in_order(pending: &[(u64, FileOps)]) -> Vec<(u32, u32)> {
    let index = |i: usize| u32::try_from(i).unwrap_or(u32::MAX);
    let mut order: Vec<(u32, u32)> = pending
        .iter()
        .enumerate()
        .flat_map(|(batch, (_, ops))| (0..ops.ops.len()).map(move |op| (index(batch), index(op))))
        .collect();
    type Rank<'p> = (&'p [u8], u64, Option<Kind>, (u32, u32));
    let rank = |at: &(u32, u32)| -> Rank<'_> {
        let Some((version, ops)) = pending.get(at.0 as usize) else {
            return (&[], 0, None, *at);
        };
        match ops.ops.get(at.1 as usize) {
            Some(op) => (ops.key(*op), *version, Some(op.kind), *at),
            None => (&[], 0, None, *at),
        }
    };
    let compare = |a: &(u32, u32), b: &(u32, u32)| rank(a).cmp(&rank(b));
    if order.is_sorted_by(|a, b| compare(a, b).is_le()) {
        return order;
    }
    if order.len() > SORT_ALONE {
        // The second sort finds two sorted runs and only merges them.
        let middle = order.len() / 2;
        let (left, right) = order.split_at_mut(middle);
        std::thread::scope(|scope| {
            scope.spawn(|| left.sort_by(compare));
            right.sort_by(compare);
        });
    }
    order.sort_by(compare);
    order
}

/// The next version: a snapshot and `actions`.
pub(super) fn next(
    at: &Parts,
    table: &Path,
    version: u64,
    timestamp: i64,
    actions: Vec<Action>,
) -> Result<Snapshot, TableError> {
    let mut replay = Replay::resume(at);
    let dictionary = replay.dictionary();
    let mut packer = Packer::new(&dictionary);
    let mut parsed = Parsed::empty(version);
    for action in actions {
        parsed.commit_action(&mut packer, table, action);
    }
    replay.apply(parsed, timestamp)?;
    replay.finish()
}
