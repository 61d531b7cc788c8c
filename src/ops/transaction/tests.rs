//! What a transaction commits, what it sees before, and what is left when it ends in another way.

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use super::super::{Replaces, append, create_from, delete, remove, scan};
use super::*;
use crate::env::Env;
use crate::error::{Failure as _, Kind};
use crate::log::{LOG_DIR, LogName};
use crate::settings::TableFeatures;
use crate::store::Dir;
use crate::table::Class;

/// A table in a directory of its own, whose first file `base.parquet` has the ids 0..10.
struct World {
    guard: tempfile::TempDir,
    table: Arc<Table>,
}

impl World {
    fn new() -> Self {
        Self::with(TableFeatures::Default)
    }

    fn with(features: TableFeatures) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let dir = Dir::open(guard.path()).unwrap();
        let input = file(0..10);
        let no_values = Default::default();
        let request = request("base.parquet", &input, &no_values, Replaces::Nothing);
        let (table, _) = create_from(&dir, &Env::real(), &request, features).unwrap();
        let table = Arc::new(table);
        World { guard, table }
    }

    fn begin(&self) -> Transaction {
        Transaction::begin(&self.table, "load", 1000).unwrap()
    }

    /// The same table as another process has it open.
    fn other(&self) -> Table {
        Table::open(Dir::open(self.guard.path()).unwrap(), Env::real()).unwrap()
    }

    fn ids(&self) -> Vec<i64> {
        ids_of(&self.table, &self.table.refresh().unwrap())
    }

    fn version(&self) -> u64 {
        self.table.refresh().unwrap().version()
    }

    /// Files that no live entry of the newest version refers to, apart from those that `but` knows.
    fn orphans(&self, but: &[String]) -> Vec<String> {
        let snapshot = self.table.refresh().unwrap();
        let mut known: BTreeSet<String> = but.iter().cloned().collect();
        for file in snapshot.live_files() {
            known.insert(file.path.key().to_owned());
            let vector = file.add.deletion_vector.as_ref().map(|dv| dv.location());
            if let Some(Ok(crate::deletion_vector::Location::Relative { path, .. })) = vector {
                known.insert(path);
            }
        }
        let mut files = self.files();
        files.retain(|file| !known.contains(file));
        files
    }

    /// The files of the table's directory, without its log.
    fn files(&self) -> Vec<String> {
        fn walk(dir: &Path, prefix: &str, into: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
                if name == LOG_DIR {
                    continue;
                }
                match entry.file_type().unwrap().is_dir() {
                    true => walk(&entry.path(), &format!("{name}/"), into),
                    false => into.push(name),
                }
            }
        }
        let mut files = Vec::new();
        walk(self.guard.path(), "", &mut files);
        files.sort();
        files
    }

    /// The actions of a version, by their kind.
    fn actions(&self, version: u64, kind: &str) -> Vec<Value> {
        let path = self
            .guard
            .path()
            .join(LOG_DIR)
            .join(LogName::commit(version));
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).unwrap());
        lines
            .filter_map(|mut l| l.get_mut(kind).map(Value::take))
            .collect()
    }

    fn info(&self, version: u64) -> Value {
        self.actions(version, "commitInfo").remove(0)
    }
}

fn ids_of(table: &Table, snapshot: &Arc<Snapshot>) -> Vec<i64> {
    let mut ids = Vec::new();
    for batch in scan(table, snapshot).unwrap() {
        let batch = batch.unwrap();
        let column = batch.column_by_name("id").unwrap();
        ids.extend(column.as_primitive::<Int64Type>().values());
    }
    ids.sort_unstable();
    ids
}

fn file(ids: std::ops::Range<i64>) -> File {
    let id: ArrayRef = Arc::new(ids.clone().collect::<Int64Array>());
    let s: ArrayRef = Arc::new(ids.map(|i| Some(format!("v{i}"))).collect::<StringArray>());
    let batch = RecordBatch::try_from_iter_with_nullable([("id", id, true), ("s", s, true)]);
    let batch = batch.unwrap();
    let file = tempfile::tempfile().unwrap();
    let mut writer = ArrowWriter::try_new(file.try_clone().unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    file
}

type Values = std::collections::BTreeMap<String, Option<String>>;

fn request<'a>(
    name: &'a str,
    input: &'a File,
    fixed: &'a Values,
    replaces: Replaces<'a>,
) -> Append<'a> {
    Append {
        input,
        name,
        fixed,
        stored: Box::leak(format!("part-00000-{}-c000.parquet", Env::real().uuid()).into()),
        replaces,
        scratch: &tempfile::tempfile,
    }
}

fn put(tx: &Transaction, name: &str, ids: std::ops::Range<i64>) -> Result<Appended, OpError> {
    let (input, fixed) = (file(ids), Values::new());
    tx.append(&request(name, &input, &fixed, Replaces::IfLive(name)))
}

fn cut(tx: &Transaction, predicate: &str) -> Result<Report, OpError> {
    let options = Options::default();
    let request = Delete {
        predicate,
        options: &options,
    };
    tx.delete(&request, &tempfile::tempfile)
}

fn commit(tx: &Transaction) -> Result<Report, OpError> {
    tx.commit(&Options::default())
}

/// A DELETE of somebody else, at once.
fn cut_outside(table: &Table, predicate: &str) {
    let options = Options::default();
    let request = Delete {
        predicate,
        options: &options,
    };
    let report = delete(table, &request, None, &tempfile::tempfile).unwrap();
    assert!(report.version.is_some());
}

fn put_outside(table: &Table, name: &str, ids: std::ops::Range<i64>) {
    let (input, fixed) = (file(ids), Values::new());
    append(table, &request(name, &input, &fixed, Replaces::Nothing)).unwrap();
}

#[track_caller]
fn class(result: Result<Report, OpError>) -> Class {
    match result {
        Err(OpError::TransactionConflict(conflict)) => conflict.class,
        other => panic!("no conflict: {other:?}"),
    }
}

#[test]
fn many_files_are_one_version() {
    let w = World::new();
    let tx = w.begin();
    for n in 0..30 {
        put(&tx, &format!("f{n}.parquet"), 100 + n..101 + n).unwrap();
    }
    assert_eq!(
        (w.version(), w.ids()),
        (0, (0..10).collect()),
        "nobody sees them"
    );
    assert_eq!(
        ids_of(&w.table, &tx.view()).len(),
        40,
        "the transaction does"
    );
    assert_eq!(tx.view().version(), 0);
    let report = commit(&tx).unwrap();
    assert_eq!((report.operation, report.version), ("WRITE", Some(1)));
    assert_eq!(report.metrics["numFiles"], 30);
    assert_eq!(report.metrics["numOutputRows"], 30);
    assert_eq!(w.ids(), (0..10).chain(100..130).collect::<Vec<_>>());
    let info = w.info(1);
    assert_eq!(info["isBlindAppend"], true, "{info}");
    let parameters = &info["operationParameters"];
    assert_eq!(parameters["transaction"], "load");
    assert_eq!(parameters["mode"], "Append");
    assert_eq!(parameters["numSteps"], "30");
    assert!(
        parameters["files"]
            .as_str()
            .unwrap()
            .contains("f29.parquet")
    );
    assert_eq!(w.orphans(&[]), [""; 0]);
    assert!(
        w.table.snapshot().named("f7.parquet").is_some(),
        "names are kept"
    );
}

#[test]
fn a_new_file_is_committed_with_the_vector_that_it_has() {
    let w = World::new();
    let tx = w.begin();
    put(&tx, "a.parquet", 10..20).unwrap();
    assert_eq!(
        cut(&tx, "id >= 8 AND id < 13").unwrap().metrics["numDeletedRows"],
        5
    );
    cut(&tx, "id = 17").unwrap();
    let kept: Vec<i64> = (0..8).chain(13..17).chain(18..20).collect();
    assert_eq!(ids_of(&w.table, &tx.view()), kept);
    let report = commit(&tx).unwrap();
    assert_eq!((report.operation, report.version), ("TRANSACTION", Some(1)));
    assert_eq!(report.metrics["numDeletedRows"], 6);
    assert_eq!(report.metrics["numAddedFiles"], 1);
    assert_eq!(w.ids(), kept);
    // The file of before loses its rows through a pair, the new one is added once.
    let (adds, removes) = (w.actions(1, "add"), w.actions(1, "remove"));
    assert_eq!((adds.len(), removes.len()), (2, 1));
    let cardinality = |add: &Value| add["deletionVector"]["cardinality"].as_i64();
    let mut dead: Vec<_> = adds.iter().map(cardinality).collect();
    dead.sort_unstable();
    assert_eq!(dead, [Some(2), Some(4)]);
    let steps = w.info(1)["operationParameters"]["steps"].clone();
    let steps: Value = serde_json::from_str(steps.as_str().unwrap()).unwrap();
    assert_eq!(
        steps,
        json!([
            {"operation": "WRITE", "file": "a.parquet"},
            {"operation": "DELETE", "predicate": "id >= 8 AND id < 13"},
            {"operation": "DELETE", "predicate": "id = 17"},
        ])
    );
    assert_eq!(w.orphans(&[]), [""; 0], "the vectors on the way are gone");
}

#[test]
fn deletes_of_one_file_are_one_vector() {
    let w = World::new();
    let tx = w.begin();
    for predicate in ["id = 1", "id = 3", "id > 7"] {
        cut(&tx, predicate).unwrap();
    }
    let report = commit(&tx).unwrap();
    assert_eq!((report.operation, report.version), ("DELETE", Some(1)));
    assert_eq!(w.ids(), [0, 2, 4, 5, 6, 7]);
    let adds = w.actions(1, "add");
    assert_eq!((adds.len(), w.actions(1, "remove").len()), (1, 1));
    assert_eq!(adds[0]["deletionVector"]["cardinality"], 4);
    let predicate = w.info(1)["operationParameters"]["predicate"].clone();
    assert_eq!(predicate, r#"["(id = 1)","(id = 3)","(id > 7)"]"#);
    assert_eq!(w.orphans(&[]), [""; 0]);
    // Every row of it, in two steps: no vector at all.
    let tx = w.begin();
    cut(&tx, "id < 5").unwrap();
    cut(&tx, "TRUE").unwrap();
    commit(&tx).unwrap();
    assert_eq!(w.ids(), [0; 0]);
    assert_eq!(
        (w.actions(2, "add").len(), w.actions(2, "remove").len()),
        (0, 1)
    );
}

#[test]
fn what_came_and_went_is_not_committed() {
    let w = World::new();
    let before = w.files();
    let tx = w.begin();
    let file = put(&tx, "a.parquet", 10..20).unwrap().files.remove(0);
    put(&tx, "b.parquet", 20..30).unwrap();
    tx.remove(&file.path).unwrap();
    cut(&tx, "id >= 20").unwrap();
    assert_eq!(tx.counts().files_added, 0);
    let report = commit(&tx).unwrap();
    assert_eq!(report.version, None);
    assert!(report.note.is_some());
    assert_eq!((w.version(), w.files()), (0, before));
    assert!(tx.is_over());
}

#[test]
fn files_are_removed_and_replaced_by_name() {
    let w = World::new();
    put_outside(&w.table, "other.parquet", 50..60);
    let tx = w.begin();
    put(&tx, "base.parquet", 100..102).unwrap();
    put(&tx, "base.parquet", 200..202).unwrap();
    let other = tx.view().named("other.parquet").unwrap();
    tx.remove(&other.path).unwrap();
    assert!(matches!(tx.remove(&other.path), Err(OpError::Gone(_))));
    assert_eq!(ids_of(&w.table, &tx.view()), [200, 201]);
    let counts = tx.counts();
    assert_eq!(
        (counts.files_added, counts.files_removed, counts.steps),
        (1, 2, 3)
    );
    let removed = [w.table.snapshot().named("base.parquet"), Some(other)];
    let tombs = removed.map(|f| f.unwrap().path.key().to_owned());
    commit(&tx).unwrap();
    assert_eq!(w.ids(), [200, 201]);
    assert_eq!(
        (w.actions(2, "add").len(), w.actions(2, "remove").len()),
        (1, 2)
    );
    assert_eq!(w.orphans(&tombs), [""; 0]);
}

#[test]
fn a_new_file_gets_another_name() {
    let w = World::new();
    let tx = w.begin();
    let file = put(&tx, "a.parquet", 10..12).unwrap().files.remove(0);
    let renamed = tx.rename(&file.path, "b.parquet").unwrap();
    assert_eq!(&*renamed.visible, "b.parquet");
    let base = tx.view().named("base.parquet").unwrap();
    assert!(matches!(
        tx.rename(&base.path, "c.parquet"),
        Err(OpError::Gone(_))
    ));
    let report = commit(&tx).unwrap();
    assert_eq!(report.operation, "WRITE");
    let newest = w.table.snapshot();
    assert!(newest.named("b.parquet").is_some() && newest.named("a.parquet").is_none());
}

#[test]
fn the_same_row_deleted_by_others_is_a_conflict() {
    let w = World::new();
    let before = w.files();
    let tx = w.begin();
    put(&tx, "a.parquet", 10..20).unwrap();
    cut(&tx, "id = 3 OR id = 12").unwrap();
    let other = w.other();
    cut_outside(&other, "id = 3");
    assert_eq!(class(commit(&tx)), Class::ConcurrentDeleteRead);
    assert!(tx.is_over());
    assert!(matches!(commit(&tx), Err(OpError::TransactionOver)));
    assert!(matches!(
        put(&tx, "b.parquet", 0..1),
        Err(OpError::TransactionOver)
    ));
    assert_eq!(w.version(), 1);
    assert_eq!(w.orphans(&[]), [""; 0]);
    assert_eq!(w.files().len(), before.len() + 1, "the other one's vector");
}

#[test]
fn other_rows_of_one_file_are_none() {
    let w = World::new();
    let tx = w.begin();
    put(&tx, "a.parquet", 10..20).unwrap();
    cut(&tx, "id = 3").unwrap();
    cut(&tx, "id = 4 OR id = 12").unwrap();
    let other = w.other();
    cut_outside(&other, "id = 5");
    put_outside(&other, "b.parquet", 30..40);
    cut_outside(&other, "id = 6 OR id = 35");
    let report = commit(&tx).unwrap();
    assert_eq!(report.version, Some(4));
    let gone = [3, 4, 5, 6, 12, 35];
    let left = (0..20).chain(30..40).filter(|id| !gone.contains(id));
    assert_eq!(w.ids(), left.collect::<Vec<_>>());
    assert_eq!(w.info(4)["readVersion"], 0);
}

#[test]
fn what_a_statement_has_read_counts_also_when_it_found_nothing() {
    // Two who delete an id and add it anew, as an upsert does.
    let w = World::new();
    let (one, two) = (w.begin(), w.begin());
    for (tx, name) in [(&one, "one.parquet"), (&two, "two.parquet")] {
        let nothing = cut(tx, "id = 77").unwrap();
        assert!(nothing.note.is_some() && nothing.version.is_none());
        put(tx, name, 77..78).unwrap();
    }
    commit(&one).unwrap();
    assert_eq!(w.info(1)["isBlindAppend"], false);
    assert_eq!(class(commit(&two)), Class::ConcurrentAppend);
    assert_eq!(w.ids().iter().filter(|id| **id == 77).count(), 1);
    assert_eq!(w.orphans(&[]), [""; 0]);
}

#[test]
fn a_file_that_others_removed_is_a_conflict() {
    for step in ["rm", "cp", "delete"] {
        let w = World::new();
        let tx = w.begin();
        match step {
            "rm" => {
                let base = tx.view().named("base.parquet").unwrap();
                tx.remove(&base.path).unwrap();
            }
            "cp" => {
                put(&tx, "base.parquet", 20..30).unwrap();
            }
            _ => {
                cut(&tx, "TRUE").unwrap();
            }
        }
        let other = w.other();
        let base = other.snapshot().named("base.parquet").unwrap();
        remove(&other, &base.path).unwrap();
        assert_eq!(class(commit(&tx)), Class::ConcurrentDeleteRead, "{step}");
    }
}

#[test]
fn a_change_of_the_metadata_is_a_conflict() {
    for read in [false, true] {
        let w = World::new();
        let before = w.files();
        let tx = w.begin();
        put(&tx, "a.parquet", 10..20).unwrap();
        if read {
            cut(&tx, "id = 12").unwrap();
        }
        let mut metadata = w.actions(0, "metaData").remove(0);
        metadata["description"] = json!("changed");
        let path = w.guard.path().join(LOG_DIR).join(LogName::commit(1));
        let lines = [
            json!({"commitInfo": {"operation": "X"}}),
            json!({"metaData": metadata}),
        ];
        std::fs::write(path, lines.map(|l| l.to_string()).join("\n")).unwrap();
        assert_eq!(class(commit(&tx)), Class::MetadataChanged);
        assert_eq!((w.version(), w.files()), (1, before));
    }
}

#[test]
fn blind_appends_follow_whatever_does_not_change_the_table() {
    let w = World::new();
    let tx = w.begin();
    put(&tx, "a.parquet", 10..12).unwrap();
    let other = w.other();
    cut_outside(&other, "id < 5");
    put_outside(&other, "a.parquet", 20..22);
    assert_eq!(commit(&tx).unwrap().version, Some(3));
    assert_eq!(w.ids(), [5, 6, 7, 8, 9, 10, 11, 20, 21]);
}

#[test]
fn an_aborted_one_leaves_nothing() {
    let w = World::new();
    let before = w.files();
    let tx = w.begin();
    put(&tx, "a.parquet", 10..20).unwrap();
    cut(&tx, "id = 3 OR id = 12").unwrap();
    assert!(w.files().len() > before.len());
    tx.abort().unwrap();
    assert!(matches!(
        put(&tx, "b.parquet", 0..1),
        Err(OpError::TransactionOver)
    ));
    assert!(matches!(cut(&tx, "TRUE"), Err(OpError::TransactionOver)));
    assert!(matches!(commit(&tx), Err(OpError::TransactionOver)));
    drop(tx);
    assert_eq!((w.version(), w.files()), (0, before));
}

#[test]
fn a_failed_step_changes_nothing() {
    let w = World::new();
    let before = w.files();
    let tx = Transaction::begin(&w.table, "t", 2).unwrap();
    put(&tx, "a.parquet", 10..20).unwrap();
    let view = tx.view();
    assert!(cut(&tx, "nothing = 1").is_err());
    let (input, fixed) = (tempfile::tempfile().unwrap(), Values::new());
    let bad = request("x.parquet", &input, &fixed, Replaces::Nothing);
    assert!(tx.append(&bad).is_err());
    let missing = request("x.parquet", &input, &fixed, Replaces::Live("x.parquet"));
    assert!(tx.append(&missing).is_err());
    cut(&tx, "id = 3").unwrap();
    let full = put(&tx, "b.parquet", 20..21).unwrap_err();
    assert!(matches!(full, OpError::TransactionFull(2)));
    assert_eq!(full.kind(), Kind::NoSpace);
    assert!(Arc::ptr_eq(view.schema(), tx.view().schema()));
    assert_eq!(tx.counts().steps, 2);
    drop(tx);
    assert_eq!(w.files(), before);
}

#[test]
fn nothing_is_committed_that_is_not_there() {
    let w = World::new();
    let tx = w.begin();
    let file = put(&tx, "a.parquet", 10..20).unwrap().files.remove(0);
    std::fs::remove_file(w.guard.path().join(file.path.key())).unwrap();
    let error = commit(&tx).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert_eq!(w.version(), 0);
    // Without it, the rest can be committed.
    put(&tx, "b.parquet", 20..30).unwrap();
    tx.remove(&file.path).unwrap();
    commit(&tx).unwrap();
    assert_eq!(w.ids(), (0..10).chain(20..30).collect::<Vec<_>>());
}

#[test]
fn copies_are_made_of_copies_without_vectors() {
    let w = World::with(TableFeatures::Minimal);
    let tx = w.begin();
    put(&tx, "a.parquet", 10..20).unwrap();
    cut(&tx, "id = 3 OR id = 12").unwrap();
    cut(&tx, "id = 4 OR id = 13").unwrap();
    let base = w.table.snapshot().named("base.parquet").unwrap();
    commit(&tx).unwrap();
    let gone = [3, 4, 12, 13];
    assert_eq!(
        w.ids(),
        (0..20).filter(|id| !gone.contains(id)).collect::<Vec<_>>()
    );
    assert_eq!(
        (w.actions(1, "add").len(), w.actions(1, "remove").len()),
        (2, 1)
    );
    assert_eq!(w.orphans(&[base.path.key().to_owned()]), [""; 0]);
    // Whatever others do to a file that was rewritten is a conflict.
    let tx = w.begin();
    cut(&tx, "id = 5").unwrap();
    cut_outside(&w.other(), "id = 6");
    assert_eq!(class(commit(&tx)), Class::ConcurrentAppend);
}

#[test]
fn rows_get_their_ids_when_they_are_committed() {
    let w = World::with(TableFeatures::Modern);
    let tx = w.begin();
    put(&tx, "a.parquet", 10..20).unwrap();
    cut(&tx, "id = 3 OR id = 12").unwrap();
    put_outside(&w.other(), "b.parquet", 30..40);
    commit(&tx).unwrap();
    let newest = w.table.snapshot();
    let first = |name: &str| newest.named(name).unwrap().add.base_row_id;
    assert_eq!(first("base.parquet"), Some(0));
    assert_eq!(first("b.parquet"), Some(10));
    assert_eq!(first("a.parquet"), Some(20));
}

#[test]
fn options_of_the_commit_and_of_its_statements() {
    let w = World::new();
    let app = |id: &str, version| Options {
        txn: Some((id.to_owned(), version)),
        user_metadata: Some(id.to_owned()),
        retries: 0,
    };
    let tx = w.begin();
    let inner = app("inner", 4);
    let request = Delete {
        predicate: "id = 1",
        options: &inner,
    };
    tx.delete(&request, &tempfile::tempfile).unwrap();
    let again = tx.delete(&request, &tempfile::tempfile).unwrap();
    assert!(again.note.unwrap().contains("already"));
    let retries = Options {
        retries: 1,
        ..Options::default()
    };
    let refused = tx.commit(&retries).unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid);
    assert!(!tx.is_over(), "a wrong statement does not end it");
    tx.commit(&app("job", 7)).unwrap();
    let mut txns = w.actions(1, "txn");
    txns.sort_by_key(|t| t["appId"].to_string());
    let said = |t: &Value| (t["appId"].clone(), t["version"].clone());
    let said: Vec<_> = txns.iter().map(said).collect();
    assert_eq!(said, [(json!("inner"), json!(4)), (json!("job"), json!(7))]);
    assert_eq!(w.info(1)["userMetadata"], "job");
    // What was committed once is not committed again.
    let tx = w.begin();
    put(&tx, "a.parquet", 10..20).unwrap();
    let report = tx.commit(&app("job", 7)).unwrap();
    assert_eq!(report.version, None);
    assert_eq!(w.version(), 1);
    assert_eq!(w.orphans(&[]), [""; 0]);
    // Two of one application at a time.
    let (one, two) = (w.begin(), w.begin());
    put(&one, "a.parquet", 10..20).unwrap();
    put(&two, "b.parquet", 20..30).unwrap();
    one.commit(&app("job", 8)).unwrap();
    assert_eq!(
        class(two.commit(&app("job", 9))),
        Class::ConcurrentTransaction
    );
}

#[test]
fn appends_at_once() {
    let w = World::new();
    let tx = w.begin();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tx = &tx;
            scope.spawn(move || {
                for n in 0..10 {
                    let id = 100 + thread * 10 + n;
                    put(tx, &format!("{id}.parquet"), id..id + 1).unwrap();
                }
            });
        }
        scope.spawn(|| cut(&tx, "id < 5").unwrap());
    });
    commit(&tx).unwrap();
    assert_eq!(w.ids(), (5..10).chain(100..140).collect::<Vec<_>>());
    assert_eq!(w.version(), 1);
}

#[test]
fn a_crash_leaves_all_or_nothing() {
    for point in failpoint::TRANSACTION {
        let w = World::new();
        let tx = w.begin();
        put(&tx, "a.parquet", 10..20).unwrap();
        cut(&tx, "id = 3 OR id = 12").unwrap();
        let crashed = failpoint::crash_at(*point, || commit(&tx)).is_none();
        assert!(crashed, "{point:?}");
        assert!(tx.is_over());
        // Whatever is dropped now must not be what a version refers to.
        drop(tx);
        let other = w.other();
        other.sweep();
        let ids = ids_of(&other, &other.snapshot());
        let after: Vec<i64> = (0..20).filter(|id| ![3, 12].contains(id)).collect();
        let before: Vec<i64> = (0..10).collect();
        let expected = if point.is_committed() { after } else { before };
        assert_eq!(ids, expected, "{point:?}");
        if *point == Point::DataWritten {
            assert_eq!(w.orphans(&[]), [""; 0]);
        }
    }
}

#[test]
fn what_a_dead_daemon_leaves_is_removed_by_the_next_one() {
    let w = World::new();
    let before = w.files();
    let tx = w.begin();
    put(&tx, "a.parquet", 10..20).unwrap();
    cut(&tx, "id = 3 OR id = 12").unwrap();
    put(&tx, "b.parquet", 20..30).unwrap();
    let staged = w.files();
    // Whoever opens the table while it lives leaves it alone.
    w.other().sweep();
    assert_eq!(w.files(), staged);
    // As after kill -9: the lock is gone, the files are not.
    let list = staged.iter().find(|f| f.ends_with(".tx")).unwrap();
    assert!(crate::table::is_temporary(list.as_ref()));
    let path = w.guard.path().join(list);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), staged.len() - before.len() - 1);
    std::fs::remove_file(&path).unwrap();
    let base = serde_json::to_string(&before[0]).unwrap();
    let log = json!(format!("{LOG_DIR}/{}", LogName::commit(0)));
    let foreign = json!("../outside");
    std::fs::write(&path, format!("{text}{base}\n{log}\n{foreign}\n\"half")).unwrap();
    w.other().sweep();
    assert_eq!(w.files(), before, "and nothing that the table needs");
    assert_eq!(
        ids_of(&w.table, &w.other().snapshot()),
        (0..10).collect::<Vec<_>>()
    );
    // Once it is committed there is nothing to be swept.
    let tx = w.begin();
    put(&tx, "a.parquet", 10..20).unwrap();
    commit(&tx).unwrap();
    assert!(w.files().iter().all(|f| !f.ends_with(".tx")));
    w.other().sweep();
    assert_eq!(w.ids(), (0..20).collect::<Vec<_>>());
}

#[test]
fn append_only_tables_lose_no_rows() {
    let w = World::new();
    let mut metadata = w.actions(0, "metaData").remove(0);
    metadata["configuration"]["delta.appendOnly"] = json!("true");
    let mut protocol = w.actions(0, "protocol").remove(0);
    protocol["writerFeatures"]
        .as_array_mut()
        .unwrap()
        .push(json!("appendOnly"));
    let path = w.guard.path().join(LOG_DIR).join(LogName::commit(1));
    let lines = [json!({"metaData": metadata}), json!({"protocol": protocol})];
    std::fs::write(path, lines.map(|l| l.to_string()).join("\n")).unwrap();
    let tx = w.begin();
    let file = put(&tx, "a.parquet", 10..20).unwrap().files.remove(0);
    let base = tx.view().named("base.parquet").unwrap();
    let refused = [cut(&tx, "id = 1"), tx.remove(&base.path)];
    for refused in refused {
        assert_eq!(refused.unwrap_err().kind(), Kind::Denied);
    }
    assert_eq!(
        put(&tx, "base.parquet", 0..1).unwrap_err().kind(),
        Kind::Denied
    );
    // What is in no version yet is nobody's.
    tx.remove(&file.path).unwrap();
    put(&tx, "b.parquet", 20..22).unwrap();
    commit(&tx).unwrap();
    assert_eq!(w.ids(), (0..10).chain(20..22).collect::<Vec<_>>());
    assert_eq!(w.orphans(&[]), [""; 0]);
}
