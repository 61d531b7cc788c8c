//! A table at one version. Immutable; the next version shares all that it does not change.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::protocol;
use super::sorted_map::SortedMap;
use super::{DataPath, TableError};
use crate::datafile::{MappingMode, RawView};
use crate::log::{Action, Add, DomainMetadata, Metadata, PartitionValues, Protocol, Remove, Txn};
use crate::schema::StructType;
use crate::schema::partition::dir_name;

/// The tag that keeps the name under which a file was copied in.
pub const NAME_TAG: &str = "deltafs.name";

/// A data file of a snapshot.
#[derive(Debug, Clone)]
pub struct LiveFile {
    pub add: Add,
    pub path: DataPath,
    /// Hive-style partition directories and the file's name, as the mount shows it. Unique in a snapshot.
    pub visible: Box<str>,
    /// Whether its stored bytes are what the table means, once somebody has asked.
    pub view: OnceLock<RawView>,
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

/// A table at one version.
#[derive(Debug, Clone)]
pub struct Snapshot {
    version: u64,
    timestamp: i64,
    in_commit_timestamp: Option<i64>,
    protocol: Arc<Protocol>,
    metadata: Arc<Metadata>,
    schema: Arc<StructType>,
    files: SortedMap<Arc<LiveFile>>,
    names: SortedMap<Arc<LiveFile>>,
    tombstones: SortedMap<Arc<Remove>>,
    txns: Arc<BTreeMap<String, Txn>>,
    domains: Arc<BTreeMap<String, DomainMetadata>>,
    totals: Totals,
    checkpoint: Option<u64>,
}

impl Snapshot {
    pub fn version(&self) -> u64 {
        self.version
    }

    /// When the version was committed, in milliseconds since the epoch (in-commit timestamp, else the
    /// commit file's time).
    pub fn timestamp(&self) -> i64 {
        self.in_commit_timestamp.unwrap_or(self.timestamp)
    }

    /// `commitInfo.inCommitTimestamp` of this version.
    pub fn in_commit_timestamp(&self) -> Option<i64> {
        self.in_commit_timestamp
    }

    pub fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub fn schema(&self) -> &Arc<StructType> {
        &self.schema
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The newest checkpoint that the snapshot was read from or that was written since.
    pub fn checkpoint(&self) -> Option<u64> {
        self.checkpoint
    }

    pub fn mapping(&self) -> MappingMode {
        protocol::mapping_mode(&self.metadata)
    }

    /// Logical names.
    pub fn partition_columns(&self) -> &[String] {
        &self.metadata.partition_columns
    }

    /// The live files in the order of their paths.
    pub fn live_files(&self) -> impl Iterator<Item = &Arc<LiveFile>> {
        self.files.iter().map(|(_, file)| file)
    }

    /// The live file of a path of the log.
    pub fn live_file(&self, path: &DataPath) -> Option<&Arc<LiveFile>> {
        self.files.get(path.key())
    }

    /// The live file of an `add.path` of this table, as it was written by us.
    pub fn live_file_of(&self, add_path: &str) -> Option<Arc<LiveFile>> {
        let path = crate::schema::partition::decode_path(add_path)?;
        self.files.get(&path).cloned()
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
        let Some(domain) = self.domains.get("delta.clustering") else {
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

    /// The live file under a visible name.
    pub fn named(&self, visible: &str) -> Option<&Arc<LiveFile>> {
        self.names.get(visible)
    }

    /// The visible names of `before` that stand for no file, or for another one, in this snapshot.
    pub fn names_gone_since(&self, before: &Snapshot) -> Vec<Box<str>> {
        let changed = before.names.changed_in(&self.names);
        changed
            .filter(|(name, old)| {
                self.names
                    .get(name)
                    .is_none_or(|new| new.path != old.path || new.add.dv_id() != old.add.dv_id())
            })
            .map(|(name, _)| name.into())
            .collect()
    }

    /// What lies directly in the visible directory `dir` (empty, or ending in `/`): subdirectories without
    /// and files with their live file, in order.
    pub fn entries(&self, dir: &str) -> Vec<(String, Option<Arc<LiveFile>>)> {
        let mut entries = Vec::new();
        let mut from = dir.to_owned();
        'next: loop {
            for (name, file) in self.names.from(&from) {
                let Some(rest) = name.strip_prefix(dir) else {
                    break 'next;
                };
                match rest.split_once('/') {
                    None => entries.push((rest.to_owned(), Some(Arc::clone(file)))),
                    Some((sub, _)) => {
                        entries.push((sub.to_owned(), None));
                        // The first key behind everything in `sub/`: `0` follows `/`.
                        from = format!("{dir}{sub}0");
                        continue 'next;
                    }
                }
            }
            break;
        }
        entries
    }

    /// Whether anything lies below the visible directory `dir` (ending in `/`).
    pub fn has_dir(&self, dir: &str) -> bool {
        self.names
            .from(dir)
            .next()
            .is_some_and(|(name, _)| name.starts_with(dir))
    }

    /// The live files below the visible directory `dir` (empty, or ending in `/`).
    pub fn below<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = &'a Arc<LiveFile>> {
        self.names
            .from(dir)
            .take_while(move |(name, _)| name.starts_with(dir))
            .map(|(_, f)| f)
    }

    /// Tombstones, expired ones included.
    pub fn tombstones(&self) -> impl Iterator<Item = &Arc<Remove>> {
        self.tombstones.iter().map(|(_, r)| r)
    }

    pub fn txns(&self) -> impl Iterator<Item = &Txn> {
        self.txns.values()
    }

    pub fn domains(&self) -> impl Iterator<Item = &DomainMetadata> {
        self.domains.values()
    }

    /// # Errors
    /// [`TableError::Feature`] when we can't read such a table rightly.
    pub fn check_read(&self) -> Result<(), TableError> {
        protocol::check_read(&self.protocol, &self.metadata, &self.schema)
    }

    /// # Errors
    /// [`TableError::Feature`] when we can't write such a table rightly.
    pub fn check_write(&self) -> Result<(), TableError> {
        protocol::check_write(&self.protocol, &self.metadata, &self.schema)
    }

    /// # Errors
    /// [`TableError::AppendOnly`] when no row may be removed.
    pub fn check_append_only(&self) -> Result<(), TableError> {
        let append_only = protocol::flag(&self.metadata, "delta.appendOnly")
            && protocol::supports(&self.protocol, "appendOnly");
        if append_only {
            Err(TableError::AppendOnly)
        } else {
            Ok(())
        }
    }

    /// A partition value of a file by the column's logical name.
    pub fn partition_value<'a>(&self, add: &'a Add, column: &str) -> Option<&'a str> {
        let physical = self
            .schema
            .field(column)
            .map_or(column, |f| f.physical_name());
        value_of(&add.partition_values, physical, column)
    }

    /// The next version: this one and `actions`.
    pub(crate) fn next(
        &self,
        table: &Path,
        version: u64,
        timestamp: i64,
        actions: Vec<Action>,
    ) -> Result<Snapshot, TableError> {
        let mut replay = Replay::resume(self);
        replay.apply(table, version, timestamp, actions)?;
        replay.finish()
    }

    pub(crate) fn with_checkpoint(mut self, version: Option<u64>) -> Snapshot {
        self.checkpoint = version.max(self.checkpoint);
        self
    }

    pub(crate) fn with_timestamps(
        mut self,
        modified: Option<i64>,
        in_commit: Option<i64>,
    ) -> Snapshot {
        self.timestamp = modified.unwrap_or(self.timestamp);
        self.in_commit_timestamp = in_commit;
        self
    }
}

/// A few writers key the values of a mapped table by logical name; the physical one wins (PROTOCOL.md C).
fn value_of<'a>(values: &'a PartitionValues, physical: &str, logical: &str) -> Option<&'a str> {
    values
        .get(physical)
        .or_else(|| values.get(logical))
        .and_then(Option::as_deref)
}

/// Actions on their way to a snapshot: newest wins (PROTOCOL.md A2).
#[derive(Debug, Default)]
pub(crate) struct Replay {
    version: u64,
    timestamp: i64,
    in_commit_timestamp: Option<i64>,
    protocol: Option<Arc<Protocol>>,
    metadata: Option<Arc<Metadata>>,
    /// Absent until the end of a load, or when a metaData action may have renamed every directory.
    schema: Option<Arc<StructType>>,
    files: SortedMap<Arc<LiveFile>>,
    names: Option<SortedMap<Arc<LiveFile>>>,
    tombstones: SortedMap<Arc<Remove>>,
    txns: Arc<BTreeMap<String, Txn>>,
    domains: Arc<BTreeMap<String, DomainMetadata>>,
    totals: Totals,
    checkpoint: Option<u64>,
    /// Files whose visible name is still to be made, by path; only filled while `names` is there.
    unnamed: BTreeMap<String, Arc<LiveFile>>,
    /// Visible names whose file has gone.
    freed: Vec<Box<str>>,
}

impl Replay {
    fn resume(at: &Snapshot) -> Self {
        Replay {
            version: at.version,
            timestamp: at.timestamp,
            in_commit_timestamp: at.in_commit_timestamp,
            protocol: Some(Arc::clone(&at.protocol)),
            metadata: Some(Arc::clone(&at.metadata)),
            schema: Some(Arc::clone(&at.schema)),
            files: at.files.clone(),
            names: Some(at.names.clone()),
            tombstones: at.tombstones.clone(),
            txns: Arc::clone(&at.txns),
            domains: Arc::clone(&at.domains),
            totals: at.totals,
            checkpoint: at.checkpoint,
            unnamed: BTreeMap::new(),
            freed: Vec::new(),
        }
    }

    /// One action of the checkpoint of `version`.
    pub(crate) fn checkpoint_action(
        &mut self,
        table: &Path,
        version: u64,
        action: Action,
    ) -> Result<(), TableError> {
        self.version = version;
        self.checkpoint = Some(version);
        match action {
            Action::Add(add) => self.add(table, version, add),
            Action::Remove(remove) => {
                self.bury(table, remove);
                Ok(())
            }
            other => self.other(version, other),
        }
    }

    /// One commit. Removes are taken before adds: the order of lines means nothing.
    pub(crate) fn apply(
        &mut self,
        table: &Path,
        version: u64,
        timestamp: i64,
        actions: Vec<Action>,
    ) -> Result<(), TableError> {
        self.version = version;
        self.timestamp = timestamp;
        self.in_commit_timestamp = None;
        let mut adds = Vec::new();
        for action in actions {
            match action {
                Action::Add(add) => adds.push(add),
                Action::Remove(remove) => self.remove(table, remove),
                other => self.other(version, other)?,
            }
        }
        for add in adds {
            self.add(table, version, add)?;
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

    fn add(&mut self, table: &Path, version: u64, add: Add) -> Result<(), TableError> {
        let path = DataPath::parse(&add.path, table);
        if let Some(old) = self.files.get(path.key()) {
            let (first, second) = (old.add.dv_id(), add.dv_id());
            if first != second {
                return Err(TableError::TwoLive {
                    version,
                    path: path.key().to_owned(),
                    first,
                    second,
                });
            }
            let old = Arc::clone(old);
            self.forget(&old);
        }
        let tombstone = tombstone_key(path.key(), add.dv_id().as_deref());
        self.tombstones.remove(&tombstone);
        self.count(&add, true);
        let key = path.key().to_owned();
        let file = Arc::new(LiveFile {
            add,
            path,
            visible: "".into(),
            view: OnceLock::new(),
        });
        self.files.insert(&key, Arc::clone(&file));
        if self.names.is_some() {
            self.unnamed.insert(key, file);
        }
        Ok(())
    }

    fn remove(&mut self, table: &Path, remove: Remove) {
        let path = DataPath::parse(&remove.path, table);
        let dv = remove.deletion_vector.as_ref().map(|dv| dv.unique_id());
        if let Some(live) = self.files.get(path.key())
            && live.add.dv_id() == dv
        {
            let live = Arc::clone(live);
            self.forget(&live);
            self.files.remove(path.key());
        }
        self.bury(table, remove);
    }

    fn bury(&mut self, table: &Path, mut remove: Remove) {
        let path = DataPath::parse(&remove.path, table);
        let dv = remove.deletion_vector.as_ref().map(|dv| dv.unique_id());
        let key = tombstone_key(path.key(), dv.as_deref());
        // A checkpoint holds neither, and nothing else asks for them.
        remove.stats = None;
        remove.tags = None;
        self.tombstones.insert(&key, Arc::new(remove));
    }

    /// Takes a file out of the sums and the names.
    fn forget(&mut self, file: &LiveFile) {
        self.count(&file.add, false);
        if let Some(names) = &mut self.names {
            if !file.visible.is_empty() {
                names.remove(&file.visible);
                self.freed.push(file.visible.clone());
            }
            self.unnamed.remove(file.path.key());
        }
    }

    fn count(&mut self, add: &Add, up: bool) {
        let change = |total: &mut u64, by: u64| {
            *total = if up {
                total.saturating_add(by)
            } else {
                total.saturating_sub(by)
            };
        };
        change(&mut self.totals.files, 1);
        change(&mut self.totals.bytes, u64::try_from(add.size).unwrap_or(0));
        change(&mut self.totals.deleted, add.deleted_rows());
        match add.num_records() {
            Some(rows) => change(&mut self.totals.records, rows),
            None => change(&mut self.totals.uncounted, 1),
        }
    }

    /// The snapshot after all that was applied.
    pub(crate) fn finish(mut self) -> Result<Snapshot, TableError> {
        let version = self.version;
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
        let (mut names, unnamed) = match self.names.take() {
            Some(names) => (
                names,
                std::mem::take(&mut self.unnamed).into_values().collect(),
            ),
            // Everything anew.
            None => (
                SortedMap::default(),
                self.files
                    .iter()
                    .map(|(_, file)| Arc::clone(file))
                    .collect::<Vec<_>>(),
            ),
        };
        let namer = Namer {
            schema: &schema,
            metadata: &metadata,
        };
        for file in unnamed {
            namer.give(&mut names, &mut self.files, file);
        }
        for visible in std::mem::take(&mut self.freed) {
            if names.get(&visible).is_none() {
                namer.inherit(&mut names, &mut self.files, &visible);
            }
        }
        Ok(Snapshot {
            version,
            timestamp: self.timestamp,
            in_commit_timestamp: self.in_commit_timestamp,
            protocol,
            metadata,
            schema,
            files: self.files,
            names,
            tombstones: self.tombstones,
            txns: self.txns,
            domains: self.domains,
            totals: self.totals,
            checkpoint: self.checkpoint,
        })
    }
}

fn tombstone_key(path: &str, dv: Option<&str>) -> String {
    format!("{path}\0{}", dv.unwrap_or_default())
}

/// The Hive-style directories of a file's partition values, each followed by `/`.
pub fn partition_dirs(schema: &StructType, columns: &[String], values: &PartitionValues) -> String {
    let mut dirs = String::new();
    for column in columns {
        let physical = schema
            .field(column)
            .map_or(column.as_str(), |f| f.physical_name());
        dirs.push_str(&dir_name(column, value_of(values, physical, column)));
        dirs.push('/');
    }
    dirs
}

/// Gives visible names. Which of two files gets the name that both want does not depend on which came first, so
/// that every mount shows the same.
struct Namer<'a> {
    schema: &'a StructType,
    metadata: &'a Metadata,
}

impl Namer<'_> {
    fn give(
        &self,
        names: &mut SortedMap<Arc<LiveFile>>,
        files: &mut SortedMap<Arc<LiveFile>>,
        file: Arc<LiveFile>,
    ) {
        let mut wanted = self.wanted(&file);
        let mut file = file;
        if let Some(holder) = names.get(&wanted) {
            let holder = Arc::clone(holder);
            if order(&file) < order(&holder) {
                Self::put(names, files, &wanted, file);
                file = holder;
            }
            wanted = disambiguate(&wanted, file.path.key());
        }
        Self::put(names, files, &wanted, file);
    }

    fn put(
        names: &mut SortedMap<Arc<LiveFile>>,
        files: &mut SortedMap<Arc<LiveFile>>,
        visible: &str,
        file: Arc<LiveFile>,
    ) {
        let file = Arc::unwrap_or_clone(file);
        let named = Arc::new(LiveFile {
            visible: visible.into(),
            view: OnceLock::new(),
            ..file
        });
        names.insert(visible, Arc::clone(&named));
        files.insert(named.path.key(), Arc::clone(&named));
    }

    /// After the file under `visible` has gone: the next that wants the name gets it.
    fn inherit(
        &self,
        names: &mut SortedMap<Arc<LiveFile>>,
        files: &mut SortedMap<Arc<LiveFile>>,
        visible: &str,
    ) {
        let prefix = rivals(visible);
        let next = names
            .from(&prefix)
            .take_while(|(name, _)| name.starts_with(&prefix))
            .map(|(_, file)| file)
            .filter(|file| self.wanted(file) == visible)
            .min_by(|a, b| order(a).cmp(&order(b)))
            .cloned();
        if let Some(file) = next {
            names.remove(&file.visible);
            Self::put(names, files, visible, file);
        }
    }

    fn wanted(&self, file: &LiveFile) -> String {
        visible_name(file, self.schema, self.metadata)
    }
}

fn order(file: &LiveFile) -> (i64, &str) {
    (file.add.modification_time, file.path.key())
}

fn visible_name(file: &LiveFile, schema: &StructType, metadata: &Metadata) -> String {
    let mut visible = partition_dirs(
        schema,
        &metadata.partition_columns,
        &file.add.partition_values,
    );
    let kept = file
        .add
        .tags
        .as_ref()
        .and_then(|tags| tags.get(NAME_TAG))
        .and_then(Option::as_deref);
    let base = kept.filter(|n| !n.is_empty()).unwrap_or_else(|| {
        let key = file.path.key();
        key.trim_end_matches('/').rsplit('/').next().unwrap_or(key)
    });
    visible.push_str(&plain_name(base));
    visible
}

/// A name that no reader takes for hidden, that is one path segment and not too long.
fn plain_name(base: &str) -> String {
    let mut name = String::with_capacity(base.len());
    for (i, c) in base.chars().enumerate() {
        match c {
            '/' => name.push_str("%2F"),
            '\0' => name.push_str("%00"),
            '.' if i == 0 => name.push_str("%2E"),
            '_' if i == 0 => name.push_str("%5F"),
            c => name.push(c),
        }
    }
    if name.len() > 255 {
        let id = short_hash(base);
        let mut end = 200;
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let extension = if base.ends_with(".parquet") {
            ".parquet"
        } else {
            ""
        };
        name = format!("{}~{id}{extension}", &name[..end]);
    }
    name
}

/// Two files may want one name: the later one gets the hash of its path.
fn disambiguate(visible: &str, path: &str) -> String {
    let id = short_hash(path);
    match split_extension(visible) {
        Some((stem, extension)) => format!("{stem}~{id}.{extension}"),
        None => format!("{visible}~{id}"),
    }
}

/// What the names of all files start with that want `visible` and have not got it.
fn rivals(visible: &str) -> String {
    let stem = split_extension(visible).map_or(visible, |(stem, _)| stem);
    format!("{stem}~")
}

fn split_extension(visible: &str) -> Option<(&str, &str)> {
    visible
        .rsplit_once('.')
        .filter(|(_, extension)| !extension.contains('/'))
}

fn short_hash(text: &str) -> String {
    use std::hash::Hasher as _;
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(text.as_bytes());
    format!("{:016x}", hasher.finish())
}
