//! A table at one version. Immutable; the next version shares all that it does not change.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::names::Namer;
use super::packed::{Dictionary, PackedMap, Record, Words, expand, naming, to_remove};
use super::{DataPath, TableError, protocol, replay};
use crate::datafile::MappingMode;
use crate::log::{Action, Add, DomainMetadata, Metadata, Protocol, Remove, Txn};
use crate::schema::StructType;

pub use super::names::NAME_TAG;

/// A data file of a snapshot.
#[derive(Debug, Clone)]
pub struct LiveFile {
    pub add: Add,
    pub path: DataPath,
    /// Hive-style partition directories and the file's name, as the mount shows it. Unique in a snapshot.
    pub visible: Box<str>,
}

/// Sums over the live files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub files: u64,
    pub bytes: u64,
    /// Physical rows of the files whose statistics count them.
    pub records: u64,
    /// Rows that deletion vectors hide.
    pub deleted: u64,
    /// Files without a row count.
    pub uncounted: u64,
}

impl Totals {
    /// Adds the sums over other files.
    pub(super) fn append(&mut self, other: &Totals) {
        let sum = |total: &mut u64, by: u64| *total = total.saturating_add(by);
        sum(&mut self.files, other.files);
        sum(&mut self.bytes, other.bytes);
        sum(&mut self.records, other.records);
        sum(&mut self.deleted, other.deleted);
        sum(&mut self.uncounted, other.uncounted);
    }

    /// Takes a file in or out.
    pub(super) fn count(&mut self, file: &Record<'_>, up: bool) {
        let change = |total: &mut u64, by: u64| {
            *total = if up {
                total.saturating_add(by)
            } else {
                total.saturating_sub(by)
            };
        };
        change(&mut self.files, 1);
        change(&mut self.bytes, u64::try_from(file.size).unwrap_or(0));
        change(&mut self.deleted, file.deleted_rows());
        match file.num_records {
            Some(rows) => change(&mut self.records, rows),
            None => change(&mut self.uncounted, 1),
        }
    }
}

/// A table at one version.
#[derive(Debug, Clone)]
pub struct Snapshot(Parts);

/// What a snapshot is made of.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    pub(super) version: u64,
    pub(super) timestamp: i64,
    pub(super) in_commit_timestamp: Option<i64>,
    pub(super) protocol: Arc<Protocol>,
    pub(super) metadata: Arc<Metadata>,
    pub(super) schema: Arc<StructType>,
    pub(super) dictionary: Arc<Dictionary>,
    /// Records of live files by [`DataPath::key`].
    pub(super) files: PackedMap,
    /// Keys of those live files whose visible name is not their key, by visible name.
    pub(super) names: PackedMap,
    pub(super) tombstones: PackedMap,
    pub(super) txns: Arc<BTreeMap<String, Txn>>,
    pub(super) domains: Arc<BTreeMap<String, DomainMetadata>>,
    pub(super) totals: Totals,
    pub(super) checkpoint: Option<u64>,
    /// Whether the log contradicts itself about this state or one that it grew from.
    pub(super) doubted: bool,
}

impl Snapshot {
    pub(super) fn of(parts: Parts) -> Self {
        Snapshot(parts)
    }

    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// When the version was committed, in milliseconds since the epoch (in-commit timestamp, else the
    /// commit file's time).
    pub fn timestamp(&self) -> i64 {
        self.0.in_commit_timestamp.unwrap_or(self.0.timestamp)
    }

    /// `commitInfo.inCommitTimestamp` of this version.
    pub fn in_commit_timestamp(&self) -> Option<i64> {
        self.0.in_commit_timestamp
    }

    pub fn protocol(&self) -> &Protocol {
        &self.0.protocol
    }

    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    pub fn schema(&self) -> &Arc<StructType> {
        &self.0.schema
    }

    pub fn totals(&self) -> Totals {
        self.0.totals
    }

    /// The newest checkpoint that the snapshot was read from or that was written since.
    pub fn checkpoint(&self) -> Option<u64> {
        self.0.checkpoint
    }

    /// Whether the log contradicts itself about this state: then nothing may be derived from it that would hide what
    /// the log really holds.
    pub fn is_doubted(&self) -> bool {
        self.0.doubted
    }

    pub(super) fn doubted(mut self) -> Snapshot {
        self.0.doubted = true;
        self
    }

    pub fn mapping(&self) -> MappingMode {
        protocol::mapping_mode(&self.0.metadata)
    }

    /// Logical names.
    pub fn partition_columns(&self) -> &[String] {
        &self.0.metadata.partition_columns
    }

    /// Bytes on the heap that the files, their names and tombstones take.
    pub fn heap_bytes(&self) -> usize {
        let maps = [&self.0.files, &self.0.names, &self.0.tombstones];
        maps.iter().map(|map| map.heap_bytes()).sum()
    }

    /// The part of the files' records that another snapshot shares.
    #[cfg(test)]
    pub(super) fn shared_with(&self, other: &Snapshot) -> f64 {
        let changed = self.0.files.changed_in(&other.0.files).count();
        1.0 - changed as f64 / self.0.files.iter().count() as f64
    }

    /// Looks at files without unpacking them.
    pub fn scan(&self) -> Scan<'_> {
        Scan {
            parts: &self.0,
            words: Words::of(&self.0.dictionary),
        }
    }

    /// The live files in the order of their paths.
    pub fn live_files(&self) -> impl Iterator<Item = Arc<LiveFile>> {
        let scan = self.scan();
        self.0
            .files
            .iter()
            .map(move |(key, record)| scan.unpack(&Record::read(key, record)))
    }

    /// The live file of a path of the log.
    pub fn live_file(&self, path: &DataPath) -> Option<Arc<LiveFile>> {
        self.by_key(path.key().as_bytes())
    }

    fn by_key(&self, key: &[u8]) -> Option<Arc<LiveFile>> {
        let record = self.0.files.get(key)?;
        Some(self.scan().unpack(&Record::read(key, record)))
    }

    /// The live file of an `add.path` of this table, as it was written by us.
    pub fn live_file_of(&self, add_path: &str) -> Option<Arc<LiveFile>> {
        let path = crate::schema::partition::decode_path(add_path)?;
        self.by_key(path.as_bytes())
    }

    /// Physical paths of the clustering columns (domain `delta.clustering`; both forms that writers use).
    pub fn clustering_columns(&self) -> Vec<Vec<String>> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Column {
            Name(String),
            Path(Vec<String>),
        }
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Clustering {
            clustering_columns: Vec<Column>,
        }
        let Some(domain) = self.0.domains.get("delta.clustering") else {
            return Vec::new();
        };
        let parsed = serde_json::from_str::<Clustering>(&domain.configuration);
        parsed.map_or_else(
            |_| Vec::new(),
            |c| {
                c.clustering_columns
                    .into_iter()
                    .map(|column| match column {
                        Column::Name(name) => vec![name],
                        Column::Path(path) => path,
                    })
                    .collect()
            },
        )
    }

    /// The key of the live file under a visible name.
    fn named_key(&self, visible: &str) -> Option<Cow<'_, [u8]>> {
        if let Some(key) = self.0.names.get(visible.as_bytes()) {
            return Some(expand(key));
        }
        let (key, record) = self.0.files.get_key_value(visible.as_bytes())?;
        (record.first() == Some(&naming::IS_KEY)).then_some(Cow::Borrowed(key))
    }

    /// The live file under a visible name.
    pub fn named(&self, visible: &str) -> Option<Arc<LiveFile>> {
        self.by_key(&self.named_key(visible)?)
    }

    /// The visible names of `before` that stand for no file, or for another one, in this snapshot.
    pub fn names_gone_since(&self, before: &Snapshot) -> Vec<Box<str>> {
        let scan = before.scan();
        let namer = scan.namer();
        let mut gone = Vec::new();
        let mut look = |visible: &str, key: &[u8], old: &Record<'_>| {
            let now = self.named_key(visible);
            let same = now.as_deref() == Some(key)
                && self
                    .0
                    .files
                    .get(key)
                    .is_some_and(|now| Record::read(key, now).vector_id() == old.vector_id());
            if !same {
                gone.push(visible.into());
            }
        };
        for (key, record) in before.0.files.changed_in(&self.0.files) {
            let record = Record::read(key, record);
            look(&namer.visible(&record), key, &record);
        }
        // A name may go over to a file that was there all the time.
        for (visible, key) in before.0.names.changed_in(&self.0.names) {
            let key = &*expand(key);
            if let (Ok(visible), Some(record)) =
                (std::str::from_utf8(visible), before.0.files.get(key))
            {
                look(visible, key, &Record::read(key, record));
            }
        }
        gone.sort_unstable();
        gone.dedup();
        gone
    }

    /// The live files in the order of their visible names, from the first name that is not less than `from`.
    fn named_from<'a>(&'a self, from: &str) -> Named<'a> {
        let mut named = Named {
            parts: &self.0,
            by_path: Cursor::default(),
            by_name: Cursor::default(),
        };
        named.by_path.start(self.0.plain_from(from));
        named.by_name.start(self.0.named_from(from));
        named
    }

    /// What lies directly in the visible directory `dir` (empty, or ending in `/`): subdirectories without
    /// and files with their live file, in order.
    pub fn entries(&self, dir: &str) -> Vec<(String, Option<Arc<LiveFile>>)> {
        let scan = self.scan();
        let mut entries = Vec::new();
        let mut named = self.named_from(dir);
        while let Some((name, key)) = named.peek() {
            let Some(rest) = name.strip_prefix(dir) else {
                break;
            };
            match rest.split_once('/') {
                None => {
                    let file = self
                        .0
                        .files
                        .get(key)
                        .map(|r| scan.unpack(&Record::read(key, r)));
                    entries.push((rest.to_owned(), file));
                    named.advance();
                }
                Some((sub, _)) => {
                    entries.push((sub.to_owned(), None));
                    // The first name behind everything in `sub/`: `0` follows `/`.
                    named.seek(&format!("{dir}{sub}0"));
                }
            }
        }
        entries
    }

    /// Whether anything lies below the visible directory `dir` (ending in `/`).
    pub fn has_dir(&self, dir: &str) -> bool {
        let below = |name: &[u8]| name.starts_with(dir.as_bytes());
        let mut by_name = self.0.named_from(dir);
        let mut by_path = self
            .0
            .files
            .from(dir.as_bytes())
            .take_while(|(key, _)| below(key));
        by_name.next().is_some_and(|(name, _)| below(name))
            || by_path.any(|(_, record)| record.first() == Some(&naming::IS_KEY))
    }

    /// The live files below the visible directory `dir` (empty, or ending in `/`).
    pub fn below(&self, dir: &str) -> Vec<Arc<LiveFile>> {
        let scan = self.scan();
        let mut files = Vec::new();
        let mut named = self.named_from(dir);
        while let Some((name, key)) = named.peek() {
            if !name.starts_with(dir) {
                break;
            }
            files.extend(
                self.0
                    .files
                    .get(key)
                    .map(|r| scan.unpack(&Record::read(key, r))),
            );
            named.advance();
        }
        files
    }

    /// Tombstones, expired ones included.
    pub fn tombstones(&self) -> impl Iterator<Item = Remove> {
        let words = Words::of(&self.0.dictionary);
        self.0
            .tombstones
            .iter()
            .map(move |(key, record)| to_remove(key, record, &words))
    }

    pub fn txns(&self) -> impl Iterator<Item = &Txn> {
        self.0.txns.values()
    }

    pub fn domains(&self) -> impl Iterator<Item = &DomainMetadata> {
        self.0.domains.values()
    }

    /// # Errors
    /// [`TableError::Feature`] when we can't read such a table rightly.
    pub fn check_read(&self) -> Result<(), TableError> {
        protocol::check_read(&self.0.protocol, &self.0.metadata, &self.0.schema)
    }

    /// # Errors
    /// [`TableError::Feature`] when we can't write such a table rightly.
    pub fn check_write(&self) -> Result<(), TableError> {
        protocol::check_write(&self.0.protocol, &self.0.metadata, &self.0.schema)
    }

    /// # Errors
    /// [`TableError::AppendOnly`] when no row may be removed.
    pub fn check_append_only(&self) -> Result<(), TableError> {
        let append_only = protocol::flag(&self.0.metadata, "delta.appendOnly")
            && protocol::supports(&self.0.protocol, "appendOnly");
        if append_only {
            Err(TableError::AppendOnly)
        } else {
            Ok(())
        }
    }

    /// A partition value of a file by the column's logical name.
    pub fn partition_value<'a>(&self, add: &'a Add, column: &str) -> Option<&'a str> {
        let physical = self
            .0
            .schema
            .field(column)
            .map_or(column, |f| f.physical_name());
        super::names::value_of(&add.partition_values, physical, column)
    }

    /// The next version: this one and `actions`.
    pub(crate) fn next(
        &self,
        table: &Path,
        version: u64,
        timestamp: i64,
        actions: Vec<Action>,
    ) -> Result<Snapshot, TableError> {
        replay::next(&self.0, table, version, timestamp, actions)
    }

    pub(crate) fn with_checkpoint(mut self, version: Option<u64>) -> Snapshot {
        self.0.checkpoint = version.max(self.0.checkpoint);
        self
    }

    pub(crate) fn with_timestamps(
        mut self,
        modified: Option<i64>,
        in_commit: Option<i64>,
    ) -> Snapshot {
        self.0.timestamp = modified.unwrap_or(self.0.timestamp);
        self.0.in_commit_timestamp = in_commit;
        self
    }
}

impl Parts {
    /// The files whose name is their path, from `from` on, by name.
    fn plain_from<'a>(&'a self, from: &str) -> impl Iterator<Item = NameAndKey<'a>> + use<'a> {
        self.files
            .from(from.as_bytes())
            .filter(|(_, record)| record.first() == Some(&naming::IS_KEY))
            .map(|(key, _)| (key, Cow::Borrowed(key)))
    }

    /// The other ones.
    fn named_from<'a>(&'a self, from: &str) -> impl Iterator<Item = NameAndKey<'a>> + use<'a> {
        let names = self.names.from(from.as_bytes());
        names.map(|(name, key)| (name, expand(key)))
    }
}

type NameAndKey<'a> = (&'a [u8], Cow<'a, [u8]>);

/// Live files in the order of their visible names.
struct Named<'a> {
    parts: &'a Parts,
    by_path: Cursor<'a>,
    by_name: Cursor<'a>,
}

#[derive(Default)]
struct Cursor<'a> {
    at: Option<NameAndKey<'a>>,
    rest: Option<Box<dyn Iterator<Item = NameAndKey<'a>> + 'a>>,
}

impl<'a> Cursor<'a> {
    fn start(&mut self, entries: impl Iterator<Item = NameAndKey<'a>> + 'a) {
        let mut entries = Box::new(entries);
        self.at = entries.next();
        self.rest = Some(entries);
    }

    fn is_before(&self, from: &str) -> bool {
        self.at
            .as_ref()
            .is_some_and(|(name, _)| *name < from.as_bytes())
    }
}

impl<'a> Named<'a> {
    /// The next name, and the key of its file.
    fn peek(&self) -> Option<(&'a str, &[u8])> {
        let (name, key) = match (&self.by_path.at, &self.by_name.at) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.as_ref().or(b.as_ref())?,
        };
        Some((std::str::from_utf8(name).unwrap_or_default(), key))
    }

    fn advance(&mut self) {
        let first = match (&self.by_path.at, &self.by_name.at) {
            (Some(a), Some(b)) if a > b => &mut self.by_name,
            (None, _) => &mut self.by_name,
            _ => &mut self.by_path,
        };
        first.at = first.rest.as_mut().and_then(Iterator::next);
    }

    /// Goes on at the first name that is not less.
    fn seek(&mut self, from: &str) {
        if self.by_path.is_before(from) {
            self.by_path.start(self.parts.plain_from(from));
        }
        if self.by_name.is_before(from) {
            self.by_name.start(self.parts.named_from(from));
        }
    }
}

/// The files of a snapshot, looked at without unpacking them.
#[derive(Debug, Clone)]
pub struct Scan<'s> {
    parts: &'s Parts,
    words: Words,
}

impl<'s> Scan<'s> {
    /// The live files in the order of their paths.
    pub fn files(&self) -> impl Iterator<Item = FileRef<'_>> {
        self.parts.files.iter().map(|(key, record)| FileRef {
            record: Record::read(key, record),
            scan: self,
        })
    }

    /// The live files in at most `parts` ranges of about the same size, in order.
    pub fn split(&self, parts: usize) -> Vec<impl Iterator<Item = FileRef<'_>>> {
        let file = |(key, record)| FileRef {
            record: Record::read(key, record),
            scan: self,
        };
        let ranges = self.parts.files.split(parts).into_iter();
        ranges.map(|range| range.map(file)).collect()
    }

    fn namer(&self) -> Namer<'_> {
        Namer::new(&self.parts.schema, &self.parts.metadata, &self.words)
    }

    fn unpack(&self, record: &Record<'_>) -> Arc<LiveFile> {
        Arc::new(LiveFile {
            visible: self.namer().visible(record).into(),
            path: record.data_path(),
            add: record.to_add(&self.words),
        })
    }
}

/// A live file, looked at without unpacking it.
#[derive(Debug, Clone, Copy)]
pub struct FileRef<'a> {
    record: Record<'a>,
    scan: &'a Scan<'a>,
}

impl<'a> FileRef<'a> {
    /// As [`DataPath::key`].
    pub fn key(&self) -> &'a str {
        self.record.key()
    }

    /// Bytes.
    pub fn size(&self) -> i64 {
        self.record.size
    }

    /// Physical rows, dead ones included.
    pub fn num_records(&self) -> Option<u64> {
        self.record.num_records
    }

    pub fn deleted_rows(&self) -> u64 {
        self.record.deleted_rows()
    }

    /// A partition value by the column's logical and physical name; `None` is NULL.
    pub fn partition_value(&self, logical: &str, physical: &str) -> Option<&'a str> {
        let value = |name| self.record.partition_value(&self.scan.words, name);
        value(physical).or_else(|| value(logical)).flatten()
    }

    pub fn stats(&self) -> super::PackedStats<'a> {
        self.record.stats(&self.scan.words)
    }

    pub fn unpack(&self) -> Arc<LiveFile> {
        self.scan.unpack(&self.record)
    }
}
