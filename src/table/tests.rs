//! Replay and commits against hand-made logs.

use serde_json::{Value, json};

use super::*;
use crate::log::Action;

/// A table of hand-made commits.
pub(super) struct Made {
    guard: tempfile::TempDir,
}

impl Made {
    pub(super) fn new() -> Self {
        let guard = tempfile::tempdir().unwrap();
        std::fs::create_dir(guard.path().join(LOG_DIR)).unwrap();
        let schema = json!({"type": "struct", "fields": [
            {"name": "id", "type": "long", "nullable": true, "metadata": {}}]});
        let made = Made { guard };
        made.commit(
            0,
            &[
                json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}}),
                json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
                "schemaString": schema.to_string(), "partitionColumns": [], "configuration": {}}}),
            ],
        );
        made
    }

    pub(super) fn commit(&self, version: u64, lines: &[Value]) {
        let body: Vec<String> = lines.iter().map(Value::to_string).collect();
        let path = self
            .guard
            .path()
            .join(LOG_DIR)
            .join(LogName::commit(version));
        std::fs::write(path, body.join("\n")).unwrap();
    }

    pub(super) fn log(&self) -> std::path::PathBuf {
        self.guard.path().join(LOG_DIR)
    }

    /// A data file with a column `id`.
    pub(super) fn parquet(&self, path: &str, rows: i64) {
        let ids = arrow::array::Int64Array::from_iter_values(0..rows);
        let ids: arrow::array::ArrayRef = Arc::new(ids);
        let batch = arrow::array::RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let file = std::fs::File::create(self.guard.path().join(path)).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    pub(super) fn open(&self) -> Result<Table, TableError> {
        Table::open(Dir::open(self.guard.path()).unwrap(), Env::fixed(1_000_000))
    }
}

pub(super) fn add(path: &str, dv: Option<&str>) -> Value {
    let mut add = json!({"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": true,
        "stats": "{\"numRecords\":10}"});
    if let Some(dv) = dv {
        add["deletionVector"] = json!({"storageType": "u", "pathOrInlineDv": dv, "offset": 1, "sizeInBytes": 36,
            "cardinality": 2});
    }
    json!({ "add": add })
}

pub(super) fn remove(path: &str, dv: Option<&str>) -> Value {
    let mut remove = add(path, dv)["add"].clone();
    remove["deletionTimestamp"] = 5.into();
    json!({ "remove": remove })
}

pub(super) fn append(path: &str) -> Staged {
    let action: Action = serde_json::from_value(add(path, None)).unwrap();
    Staged::append(vec![action], Operation::new("WRITE"))
}

#[test]
fn the_order_of_lines_means_nothing() {
    let made = Made::new();
    made.commit(1, &[add("a", None), add("b", None)]);
    // D15, D24: the remove has the old vector's id, the add the new one's.
    made.commit(
        2,
        &[add("a", Some("ab^-aqEH.-t@S}K{vb[*k^")), remove("a", None)],
    );
    let snapshot = made.open().unwrap().snapshot();
    assert_eq!(
        snapshot.totals(),
        Totals {
            files: 2,
            bytes: 2,
            records: 20,
            deleted: 2,
            uncounted: 0
        }
    );
    let a = snapshot
        .live_file(&DataPath::Inside("a".to_owned()))
        .unwrap();
    assert!(a.add.deletion_vector.is_some());
}

#[test]
fn two_vectors_of_one_file_are_corruption() {
    // D25
    let made = Made::new();
    made.commit(1, &[add("a", Some("x"))]);
    made.commit(2, &[add("a", Some("y"))]);
    assert!(matches!(
        made.open(),
        Err(TableError::TwoLive { version: 2, .. })
    ));
}

#[test]
fn a_gap_or_an_empty_commit_is_corruption() {
    let made = Made::new();
    made.commit(2, &[add("a", None)]);
    assert!(matches!(
        made.open(),
        Err(TableError::Gap {
            missing: 1,
            present: 2
        })
    ));
    made.commit(1, &[]);
    assert!(matches!(made.open(), Err(TableError::Log(_))));
}

#[test]
fn refreshing_reads_what_is_new_and_shares_the_rest() {
    let made = Made::new();
    made.commit(1, &[add("a", None)]);
    let table = made.open().unwrap();
    let before = table.snapshot();
    assert!(
        Arc::ptr_eq(&before, &table.refresh().unwrap()),
        "nothing is new"
    );
    made.commit(2, &[add("b", None)]);
    made.commit(3, &[remove("a", None)]);
    let after = table.refresh().unwrap();
    assert_eq!(after.version(), 3);
    assert_eq!(before.totals().files, 1, "old snapshots stay as they are");
    assert_eq!(after.names_gone_since(&before), ["a".into()]);
    assert_eq!(table.at(1).unwrap().totals(), before.totals());
    assert!(matches!(table.at(9), Err(TableError::NoSuchVersion(9))));
}

#[test]
fn a_blind_append_takes_the_next_number() {
    let made = Made::new();
    let table = made.open().unwrap();
    let base = table.snapshot();
    made.commit(1, &[add("theirs", None)]);
    let Outcome::Committed(after) = table.commit(&base, &mut append("ours")).unwrap() else {
        panic!("a blind append is never in anybody's way");
    };
    assert_eq!((after.version(), after.totals().files), (2, 2));
}

#[test]
fn what_read_the_table_looks_again_after_a_lost_race() {
    let made = Made::new();
    let table = made.open().unwrap();
    let base = table.snapshot();
    made.commit(1, &[add("theirs", None)]);
    let mut staged = append("ours");
    staged.reads = Reads::Restage;
    assert!(matches!(table.commit(&base, &mut staged), Ok(Outcome::Raced(n)) if n.version() == 1));
    // So does an append that was to be the only file of its name, or that met another schema.
    let mut staged = append("ours");
    staged.absent = Some("theirs".to_owned());
    assert!(matches!(
        table.commit(&base, &mut staged),
        Ok(Outcome::Raced(_))
    ));
    let schema = json!({"type": "struct", "fields": []});
    made.commit(
        2,
        &[
            json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.to_string(), "partitionColumns": [], "configuration": {}}}),
        ],
    );
    let Err(TableError::Conflict(conflict)) = table.commit(&base, &mut append("ours")) else {
        panic!("it was checked against another schema");
    };
    assert_eq!(
        (conflict.class, conflict.version),
        (Class::MetadataChanged, 2)
    );
    assert!(
        !made
            .guard
            .path()
            .join(LOG_DIR)
            .join(LogName::commit(3))
            .exists()
    );
}

#[test]
fn impossible_actions_never_reach_the_log() {
    let made = Made::new();
    let table = made.open().unwrap();
    let base = table.snapshot();
    let mut staged = append("a");
    staged.actions.extend(append("a").actions);
    assert!(matches!(
        table.commit(&base, &mut staged),
        Err(TableError::Malformed { .. })
    ));
    let mut staged = append("a");
    let other: Action = serde_json::from_value(remove("b", None)).unwrap();
    staged.actions.push(other);
    if let Some(Action::Add(add)) = staged.actions.first_mut() {
        add.data_change = false;
    }
    assert!(matches!(
        table.commit(&base, &mut staged),
        Err(TableError::Malformed { .. })
    ));
    assert_eq!(table.refresh().unwrap().version(), 0);
}

#[test]
fn the_pointer_to_a_checkpoint_does_not_go_back() {
    // D85, D82
    let made = Made::new();
    made.commit(1, &[add("a", None)]);
    let table = made.open().unwrap();
    let old = table.snapshot();
    made.commit(2, &[add("b", None), remove("a", None)]);
    let new = table.refresh().unwrap();
    crate::ops::checkpoint(&table, &new).unwrap();
    crate::ops::checkpoint(&table, &old).unwrap();
    let pointer = made.guard.path().join(LOG_DIR).join("_last_checkpoint");
    let body: Value = serde_json::from_slice(&std::fs::read(&pointer).unwrap()).unwrap();
    assert_eq!(body["version"], 2);
    // Without the commits before it, the checkpoint is enough; a damaged one gives way to the older.
    for version in 0..2 {
        std::fs::remove_file(
            made.guard
                .path()
                .join(LOG_DIR)
                .join(LogName::commit(version)),
        )
        .unwrap();
    }
    std::fs::write(&pointer, "").unwrap();
    assert_eq!(made.open().unwrap().snapshot().totals(), new.totals());
    let newest = made.guard.path().join(LOG_DIR).join(LogName::classic(2));
    std::fs::write(newest, "PAR1 is not enough").unwrap();
    let fallen_back = made.open().unwrap().snapshot();
    assert_eq!(
        (fallen_back.version(), fallen_back.checkpoint()),
        (2, Some(1))
    );
    assert_eq!(fallen_back.totals(), new.totals());
}

#[test]
fn only_old_temporary_files_of_ours_are_swept() {
    let made = Made::new();
    let log = made.guard.path().join(LOG_DIR);
    let env = Env::real();
    let hours_ago = |hours: u64| {
        std::time::UNIX_EPOCH
            + std::time::Duration::from_millis(
                u64::try_from(env.now()).unwrap() - hours * 3_600_000,
            )
    };
    for (name, hours) in [
        (".deltafs-old.tmp", 2),
        (".deltafs-new.tmp", 0),
        ("_commit_1.json.tmp", 9),
    ] {
        let file = std::fs::File::create(log.join(name)).unwrap();
        file.set_modified(hours_ago(hours)).unwrap();
    }
    Table::open(Dir::open(made.guard.path()).unwrap(), env.clone())
        .unwrap()
        .sweep();
    let left = |name: &str| log.join(name).exists();
    assert!(!left(".deltafs-old.tmp"));
    assert!(left(".deltafs-new.tmp") && left("_commit_1.json.tmp"));
    assert!(left(&LogName::commit(0)));
}

#[test]
fn a_log_that_was_replaced_by_a_longer_one_is_not_mixed_with_the_old_one() {
    let made = Made::new();
    made.commit(1, &[add("old", None)]);
    let table = made.open().unwrap();
    // Written anew beside the old ones: other files under the same names.
    let log = made.guard.path().join(LOG_DIR);
    std::fs::rename(&log, made.guard.path().join("old")).unwrap();
    std::fs::create_dir(&log).unwrap();
    std::fs::copy(
        made.guard.path().join("old").join(LogName::commit(0)),
        log.join(LogName::commit(0)),
    )
    .unwrap();
    made.commit(1, &[add("new1", None)]);
    made.commit(2, &[add("new2", None)]);
    let paths = |s: &Snapshot| {
        s.live_files()
            .map(|f| f.add.path.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(paths(&table.refresh().unwrap()), ["new1", "new2"]);
}

#[test]
fn a_checkpoint_that_names_a_file_twice_gives_way_to_the_commits() {
    let made = Made::new();
    made.commit(1, &[add("a", None)]);
    let checkpoint = made
        .guard
        .path()
        .join(LOG_DIR)
        .join("00000000000000000001.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json");
    let first = std::fs::read_to_string(made.guard.path().join(LOG_DIR).join(LogName::commit(0)));
    let dv = "ab^-aqEH.-t@S}K{vb[*k^";
    let lines = [
        json!({"checkpointMetadata": {"version": 1}}).to_string(),
        first.unwrap(),
        add("a", None).to_string(),
        add("a", Some(dv)).to_string(),
    ];
    std::fs::write(checkpoint, lines.join("\n")).unwrap();
    let snapshot = made.open().unwrap().snapshot();
    assert_eq!((snapshot.totals().files, snapshot.checkpoint()), (1, None));
}

#[test]
fn a_version_that_others_cleaned_up_is_not_taken_again() {
    let made = Made::new();
    let mine = made.open().unwrap();
    let base = mine.snapshot();
    made.commit(1, &[add("a", None)]);
    made.commit(2, &[add("b", None)]);
    let theirs = made.open().unwrap();
    crate::ops::checkpoint(&theirs, &theirs.snapshot()).unwrap();
    let log = made.guard.path().join(LOG_DIR);
    std::fs::remove_file(log.join(LogName::commit(1))).unwrap();
    let Ok(Outcome::Committed(after)) = mine.commit(&base, &mut append("c")) else {
        panic!("a blind append goes behind what others did");
    };
    assert_eq!((after.version(), after.totals().files), (3, 3));
    assert!(!log.join(LogName::commit(1)).exists());
    assert_eq!(mine.refresh().unwrap().version(), 3);
}
