//! Logs made by hand, for the tests of checkpoints and of their cleanup.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::env::{Env, Millis};
use crate::log::{LOG_DIR, LogName};
use crate::store::Dir;
use crate::table::{Snapshot, Table, TableError};

pub(super) const DAY: Millis = 24 * 3_600_000;

/// Some day at noon.
pub(super) const NOW: Millis = 20_000 * DAY + DAY / 2;

pub(super) struct Made {
    guard: tempfile::TempDir,
}

impl Made {
    /// Version 0: a table with a partition column `p`.
    pub(super) fn new(features: &[&str], configuration: &[(&str, &str)]) -> Self {
        let made = Made { guard: folder() };
        std::fs::create_dir(made.log()).unwrap();
        let field = |name: &str, kind: Value| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
        let inner = json!({"type": "struct", "fields": [field("x", json!("timestamp"))]});
        let schema = json!({"type": "struct", "fields": [
            field("id", json!("long")), field("m", json!("decimal(20,2)")), field("s", inner),
            field("p", json!("string"))]});
        made.commit(0, &[protocol(features), metadata(&schema, configuration)]);
        made
    }

    pub(super) fn path(&self) -> &Path {
        self.guard.path()
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path().join(LOG_DIR)
    }

    pub(super) fn commit(&self, version: u64, lines: &[Value]) {
        let body: Vec<String> = lines.iter().map(Value::to_string).collect();
        std::fs::write(self.log().join(LogName::commit(version)), body.join("\n")).unwrap();
    }

    /// The time of the commit's file.
    pub(super) fn at(&self, version: u64, time: Millis) {
        set_time(&self.log().join(LogName::commit(version)), time);
    }

    /// One for all, so that no id comes twice.
    pub(super) fn env() -> Env {
        static ENV: OnceLock<Env> = OnceLock::new();
        ENV.get_or_init(|| Env::fixed(NOW)).clone()
    }

    pub(super) fn try_open(&self) -> Result<Table, TableError> {
        Table::open(Dir::open(self.path()).unwrap(), Self::env())
    }

    pub(super) fn open(&self) -> Table {
        self.try_open().unwrap()
    }

    /// The names in a folder of the log, sorted.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.log().join(folder)) else {
            return Vec::new();
        };
        let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name().into_string();
        let mut names: Vec<String> = entries.map(|e| name(e).unwrap()).collect();
        names.sort();
        names
    }

    /// A copy of everything, times included.
    pub(super) fn copy(&self) -> Made {
        let guard = folder();
        copy_dir(self.path(), guard.path());
        Made { guard }
    }

    /// Every version that opens, with what it holds.
    pub(super) fn states(&self, newest: u64) -> BTreeMap<u64, Vec<String>> {
        self.states_from(0, newest)
    }

    pub(super) fn states_from(&self, oldest: u64, newest: u64) -> BTreeMap<u64, Vec<String>> {
        let table = self.open();
        let state = |v| at(&table, v).ok().map(|snapshot| (v, state(&snapshot)));
        (oldest..=newest).filter_map(state).collect()
    }
}

/// In memory, where syncing costs nothing.
pub(super) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Read from disk, also the newest version.
pub(super) fn at(table: &Table, version: u64) -> Result<Arc<Snapshot>, TableError> {
    if table.snapshot().version() != version {
        return table.at(version);
    }
    Ok(Table::open(table.dir().clone(), Made::env())?.snapshot())
}

/// All that a version is, as text.
pub(super) fn state(snapshot: &Snapshot) -> Vec<String> {
    let mut lines = vec![
        format!("{} at {}", snapshot.version(), snapshot.timestamp()),
        format!("{:?}", snapshot.protocol()),
        format!("{:?}", snapshot.metadata()),
    ];
    lines.extend(snapshot.txns().map(|t| format!("{t:?}")));
    lines.extend(snapshot.domains().map(|d| format!("{d:?}")));
    lines.extend(snapshot.live_files().map(|f| {
        let mut add = f.add.clone();
        add.data_change = false;
        format!("{add:?}")
    }));
    lines.extend(snapshot.tombstones().map(|r| {
        let vector = r.deletion_vector.as_ref();
        format!("{} {vector:?} {:?}", r.path, r.deletion_timestamp)
    }));
    lines
}

pub(super) fn protocol(features: &[&str]) -> Value {
    let reader = ["deletionVectors", "v2Checkpoint"];
    let reader: Vec<&&str> = features.iter().filter(|f| reader.contains(f)).collect();
    json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": reader, "writerFeatures": features}})
}

pub(super) fn metadata(schema: &Value, configuration: &[(&str, &str)]) -> Value {
    let configuration: BTreeMap<_, _> = configuration.iter().copied().collect();
    json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.to_string(), "partitionColumns": ["p"], "configuration": configuration}})
}

/// Statistics in the order in which we rebuild them.
pub(super) const STATS: &str = r#"{"numRecords":10,"minValues":{"id":1,"m":-0.25,"s":{"x":"2024-01-02T03:04:05.678Z"}},"maxValues":{"id":9,"m":123456789012345678.25,"s":{"x":"2024-02-02T03:04:05.678Z"}},"nullCount":{"id":0,"m":1,"s":{"x":2}},"tightBounds":true}"#;

pub(super) fn add(path: &str) -> Value {
    json!({"add": {"path": path, "partitionValues": {"p": "a b"}, "size": 7, "modificationTime": 1,
        "dataChange": true, "stats": STATS}})
}

pub(super) fn remove(path: &str) -> Value {
    json!({"remove": {"path": path, "deletionTimestamp": NOW, "dataChange": true,
        "extendedFileMetadata": true, "partitionValues": {"p": "a b"}, "size": 7}})
}

pub(super) fn set_time(path: &Path, time: Millis) {
    let time = UNIX_EPOCH + Duration::from_millis(u64::try_from(time).unwrap());
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

fn copy_dir(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
            let modified = entry.metadata().unwrap().modified().unwrap();
            let file = std::fs::File::options().write(true).open(&target);
            file.unwrap().set_modified(modified).unwrap();
        }
    }
}
