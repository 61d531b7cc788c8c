//! Which files of the log are read, and what is done when one of them lies.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

struct Log {
    guard: tempfile::TempDir,
}

impl Log {
    /// A table with `versions` commits after the first; each adds `fN` and every third removes one.
    fn new(versions: u64) -> Self {
        let guard = tempfile::tempdir().unwrap();
        std::fs::create_dir(guard.path().join(LOG_DIR)).unwrap();
        let log = Log { guard };
        let schema = json!({"type": "struct", "fields": [
            {"name": "id", "type": "long", "nullable": true, "metadata": {}}]});
        log.write(
            0,
            &[
                json!({"commitInfo": {"inCommitTimestamp": 5}}),
                json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
                json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
                    "schemaString": schema.to_string(), "partitionColumns": [], "configuration": {}}}),
            ],
        );
        for version in 1..=versions {
            log.write(version, &lines(version));
        }
        log
    }

    fn path(&self, name: &str) -> PathBuf {
        self.guard.path().join(LOG_DIR).join(name)
    }

    fn write(&self, version: u64, lines: &[Value]) {
        self.put(&LogName::commit(version), lines);
    }

    fn put(&self, name: &str, lines: &[Value]) {
        let body: Vec<String> = lines.iter().map(Value::to_string).collect();
        std::fs::write(self.path(name), body.join("\n")).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    fn open(&self) -> Result<Table, TableError> {
        Table::open(Dir::open(self.guard.path()).unwrap(), Env::fixed(1_000_000))
    }

    fn files(&self) -> Vec<String> {
        paths(&self.open().unwrap().snapshot())
    }

    fn checkpoint(&self, version: u64) {
        let table = self.open().unwrap();
        let snapshot = table.at(version).unwrap();
        crate::ops::checkpoint(&table, &snapshot).unwrap();
    }
}

fn paths(snapshot: &Snapshot) -> Vec<String> {
    snapshot.live_files().map(|f| f.add.path.clone()).collect()
}

fn lines(version: u64) -> Vec<Value> {
    let mut lines = vec![
        json!({"commitInfo": {"operation": "WRITE", "inCommitTimestamp": version + 5}}),
        json!({"add": {"path": format!("f{version:04}"), "partitionValues": {}, "size": 1, "modificationTime": 1,
            "dataChange": true, "stats": "{\"numRecords\":1}"}}),
    ];
    if version.is_multiple_of(3) {
        lines.push(
            json!({"remove": {"path": format!("f{:04}", version - 1), "dataChange": true,
            "deletionTimestamp": 999_999}}),
        );
    }
    lines
}

/// What is live after `version`.
fn expected(version: u64) -> Vec<String> {
    (1..=version)
        .filter(|v| v % 3 != 2 || v + 1 > version)
        .map(|v| format!("f{v:04}"))
        .collect()
}

/// The reconciled actions of versions.
fn compacted(from: u64, to: u64) -> Vec<Value> {
    let mut state: BTreeMap<String, Value> = BTreeMap::new();
    for line in (from..=to).flat_map(lines) {
        let action = line.get("add").or(line.get("remove"));
        if let Some(path) = action.and_then(|a| a["path"].as_str()) {
            state.insert(path.to_owned(), line.clone());
        }
    }
    state.into_values().collect()
}

#[test]
fn many_commits_are_read_by_several_threads_in_order() {
    let log = Log::new(400);
    let table = log.open().unwrap();
    let snapshot = table.snapshot();
    assert_eq!(paths(&snapshot), expected(400));
    assert_eq!(snapshot.in_commit_timestamp(), Some(405));
    assert_eq!(snapshot.tombstones().count(), 133);
    assert_eq!(paths(&table.at(200).unwrap()), expected(200));
    // The first failure in the order of versions is the one that is told.
    for version in [390, 170, 300] {
        std::fs::write(log.path(&LogName::commit(version)), "{").unwrap();
    }
    let error = log.open().unwrap_err().to_string();
    assert!(error.contains("00000000000000000170.json"), "{error}");
}

#[test]
fn compactions_stand_for_their_commits() {
    let log = Log::new(40);
    log.put(&LogName::compacted(3, 20), &compacted(3, 20));
    log.put(&LogName::compacted(3, 9), &compacted(3, 9));
    log.put(&LogName::compacted(21, 50), &compacted(21, 50));
    // They are read: what a commit says that is covered does not count any more.
    std::fs::write(log.path(&LogName::commit(5)), "not read").unwrap();
    assert_eq!(log.files(), expected(40));
    let table = log.open().unwrap();
    assert_eq!(paths(&table.at(20).unwrap()), expected(20));
    assert_eq!(table.at(20).unwrap().in_commit_timestamp(), Some(25));
    // One that reaches beyond the version can't be used for it.
    assert!(table.at(8).is_err());
    log.write(5, &lines(5));
    assert_eq!(paths(&table.at(8).unwrap()), expected(8));
    // A damaged one gives way to the commits, and one without its commits is needed.
    std::fs::write(log.path(&LogName::compacted(3, 20)), "{\"add\":7}").unwrap();
    assert_eq!(log.files(), expected(40));
    log.remove(&LogName::commit(12));
    assert!(log.open().is_err());
    log.put(&LogName::compacted(3, 20), &compacted(3, 20));
    assert_eq!(log.files(), expected(40));
}

#[test]
fn a_checkpoint_that_lacks_files_gives_way() {
    let log = Log::new(30);
    log.checkpoint(10);
    log.checkpoint(20);
    // A checkpoint of another state under this one's name: readable, and wrong.
    std::fs::copy(
        log.path(&LogName::classic(10)),
        log.path(&LogName::classic(20)),
    )
    .unwrap();
    let snapshot = log.open().unwrap().snapshot();
    assert_eq!(paths(&snapshot), expected(30));
    assert_eq!(snapshot.checkpoint(), Some(10));
    // Without another way, what there is is taken.
    for version in 0..=10 {
        log.remove(&LogName::commit(version));
    }
    log.remove(&LogName::classic(10));
    let table = log.open().unwrap();
    assert_eq!(table.snapshot().version(), 30);
}

#[test]
fn a_pointer_that_lies_changes_nothing() {
    let log = Log::new(30);
    log.checkpoint(20);
    for pointer in [
        r#"{"version":20,"size":3,"numOfAddFiles":999}"#,
        r#"{"version":29,"size":3}"#,
        r#"{"version":7,"size":3}"#,
        "{",
        "",
        "null",
    ] {
        std::fs::write(log.path("_last_checkpoint"), pointer).unwrap();
        assert_eq!(log.files(), expected(30), "{pointer}");
    }
}

#[test]
fn a_live_file_takes_few_bytes() {
    let stats = |i: u64| {
        json!({"numRecords": 1000,
            "minValues": {"id": i, "i32": 0, "dbl": 0.5, "low": "alpha", "high": format!("{i:020}"),
                "ts": "2026-01-01T00:00:00.000Z", "d": "2026-01-01"},
            "maxValues": {"id": i + 999, "i32": 999_999, "dbl": 1e6, "low": "zeta", "high": format!("{:020}", i + 999),
                "ts": "2026-02-01T00:00:00.000Z", "d": "2026-02-01"},
            "nullCount": {"id": 0, "i32": 0, "dbl": 0, "low": 0, "high": 0, "ts": 0, "d": 0, "b": 0}})
    };
    let log = Log::new(0);
    let adds = |tag: bool| -> Vec<Value> {
        (0..3_000u64)
            .map(|i| {
                let mut add = json!({"path": format!("part-{i:06}-{}.snappy.parquet", uuid::Uuid::from_u128(i.into())),
                    "partitionValues": {}, "size": 40_000 + i % 999, "modificationTime": 1_790_000_000_000u64 + i,
                    "dataChange": true, "stats": stats(i * 1000).to_string()});
                if tag {
                    add["tags"] = json!({NAME_TAG: format!("jan-{i}.parquet")});
                }
                json!({ "add": add })
            })
            .collect()
    };
    for tag in [false, true] {
        log.write(1, &adds(tag));
        let snapshot = log.open().unwrap().snapshot();
        let per_file = snapshot.heap_bytes() / 3_000;
        assert!(per_file < 300, "{per_file} bytes, tags: {tag}");
    }
}

#[test]
fn a_refresh_shares_all_that_did_not_change() {
    let log = Log::new(3000);
    let table = log.open().unwrap();
    let before = table.snapshot();
    log.write(3001, &lines(3001));
    let after = table.refresh().unwrap();
    let shared = after.shared_with(&before);
    assert!(shared > 0.7, "{shared}");
    assert_eq!(paths(&after), expected(3001));
}

/// Commits strung together are no compaction: no order of theirs tells which of two actions for a file holds.
#[test]
fn a_compaction_that_is_not_reconciled_is_not_used() {
    let log = Log::new(6);
    let strung: Vec<Value> = (1..=6).rev().flat_map(lines).collect();
    log.put(&LogName::compacted(1, 6), &strung);
    let table = log.open().unwrap();
    assert_eq!(paths(&table.snapshot()), expected(6));
    // Without its commits there is nothing to fall back to.
    std::fs::remove_file(log.path(&LogName::commit(3))).unwrap();
    let error = log.open().unwrap_err().to_string();
    assert!(error.contains("log compaction"), "{error}");
}

#[test]
fn a_compaction_that_lacks_rows_loses_none() {
    // With a checksum, and without one by what its last commit did.
    for checksum in [true, false] {
        let log = Log::new(8);
        let table = log.open().unwrap();
        if checksum {
            let env = Env::fixed(1);
            checksum::write(table.dir(), &env, &table.snapshot(), "t");
        }
        log.put(&LogName::compacted(2, 6), &lines(2));
        let snapshot = log.open().unwrap().snapshot();
        assert_eq!(paths(&snapshot), expected(8), "checksum: {checksum}");
        assert!(!snapshot.is_doubted());
    }
}

#[test]
fn what_is_doubted_is_not_made_the_truth() {
    let log = Log::new(8);
    let table = log.open().unwrap();
    checksum::write(table.dir(), &Env::fixed(1), &table.snapshot(), "t");
    log.checkpoint(4);
    // Its commits are gone, and so are files that the checksum counts.
    for version in 0..=4 {
        log.remove(&LogName::commit(version));
    }
    log.write(7, &lines(7)[..1]);
    let table = log.open().unwrap();
    let snapshot = table.snapshot();
    assert!(snapshot.is_doubted());
    assert!(crate::ops::checkpoint(&table, &snapshot).is_err());
    assert!(!log.path(&LogName::classic(8)).exists());
}

#[test]
fn a_checkpoint_that_does_not_know_its_own_commit_gives_way() {
    let log = Log::new(9);
    log.checkpoint(4);
    std::fs::copy(
        log.path(&LogName::classic(4)),
        log.path(&LogName::classic(7)),
    )
    .unwrap();
    let snapshot = log.open().unwrap().snapshot();
    assert_eq!(
        (paths(&snapshot), snapshot.checkpoint()),
        (expected(9), Some(4))
    );
}
