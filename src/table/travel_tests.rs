//! Which versions are there, when they were made, and what of them is kept.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::*;
use crate::env::Env;
use crate::store::Dir;

const DAY: i64 = 86_400_000;
/// 2023-11-14T22:13:20Z
const START: i64 = 1_700_000_000_000;

struct Made {
    guard: tempfile::TempDir,
}

impl Made {
    /// Version 0 with these properties, of the time `START`.
    fn new(properties: &Value) -> Self {
        let guard = tempfile::tempdir().unwrap();
        fs::create_dir(guard.path().join(LOG_DIR)).unwrap();
        let made = Made { guard };
        made.commit(0, START, &[made.info(None), protocol(), meta(properties)]);
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.guard.path().join(LOG_DIR).join(name)
    }

    fn info(&self, stamp: Option<i64>) -> Value {
        json!({"commitInfo": {"inCommitTimestamp": stamp, "operation": "TEST"}})
    }

    fn commit(&self, version: u64, mtime: i64, lines: &[Value]) {
        let body: Vec<String> = lines.iter().map(Value::to_string).collect();
        let path = self.path(&LogName::commit(version));
        fs::write(&path, body.join("\n")).unwrap();
        let time = UNIX_EPOCH + Duration::from_millis(mtime.unsigned_abs());
        File::options()
            .append(true)
            .open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }

    /// An append of one file, with or without a stamp.
    fn append(&self, version: u64, mtime: i64, stamp: Option<i64>) {
        let add = json!({"add": {"path": format!("f{version}"), "partitionValues": {}, "size": 1,
            "modificationTime": 1, "dataChange": true}});
        self.commit(version, mtime, &[self.info(stamp), add]);
    }

    fn open(&self) -> Table {
        Table::open(Dir::open(self.guard.path()).unwrap(), Env::real()).unwrap()
    }
}

fn protocol() -> Value {
    json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}})
}

fn meta(properties: &Value) -> Value {
    json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
        "schemaString": json!({"type": "struct", "fields": []}).to_string(), "partitionColumns": [],
        "configuration": properties}})
}

fn versions(commits: &[u64], starts: &[u64]) -> Vec<u64> {
    rebuildable(
        &commits.iter().copied().collect(),
        &starts.iter().copied().collect(),
    )
}

#[test]
fn a_version_needs_an_unbroken_row_of_commits() {
    assert_eq!(versions(&[0, 1, 2], &[]), [0, 1, 2]);
    assert!(versions(&[1, 2], &[]).is_empty());
    assert_eq!(versions(&[0, 1, 3, 4], &[]), [0, 1]);
    assert_eq!(versions(&[2, 3, 4], &[3]), [3, 4]);
    assert_eq!(versions(&[4, 5], &[3]), [3, 4, 5]);
    assert_eq!(versions(&[0, 1, 5, 6, 8], &[1, 5, 8]), [0, 1, 5, 6, 8]);
    assert_eq!(versions(&[], &[7]), [7]);
    assert!(versions(&[], &[]).is_empty());
}

#[test]
fn only_complete_checkpoints_are_a_start() {
    let made = Made::new(&json!({}));
    for version in 1..=9 {
        made.append(version, START + 1, None);
    }
    let table = made.open();
    assert_eq!(table.versions().unwrap(), (0..=9).collect::<Vec<_>>());
    // Somebody cleans up.
    for version in [0, 1, 2, 3] {
        fs::remove_file(made.path(&LogName::commit(version))).unwrap();
    }
    let part = |n: u32, of: u32| format!("{:020}.checkpoint.{n:010}.{of:010}.parquet", 3);
    File::create(made.path(&part(1, 2))).unwrap();
    for other in ["00000000000000000002.checkpoint.parquet.tmp", "7.json", "x"] {
        File::create(made.path(other)).unwrap();
    }
    table.travel.replaced();
    // Only what is in memory.
    assert_eq!(table.versions().unwrap(), [9]);
    File::create(made.path(&part(2, 2))).unwrap();
    table.travel.replaced();
    assert_eq!(table.versions().unwrap(), (3..=9).collect::<Vec<_>>());
    assert!(table.check_version(3).is_ok());
    let Err(TableError::Forgotten { version, earliest }) = table.check_version(2) else {
        panic!("version 2 is gone");
    };
    assert_eq!((version, earliest), (2, Some(3)));
    assert!(matches!(
        table.check_version(10),
        Err(TableError::NoSuchVersion(10))
    ));
    let error = table.past(0).unwrap_err();
    assert!(
        matches!(error, TableError::Forgotten { version: 0, .. }),
        "{error}"
    );
}

#[test]
fn new_versions_are_there_at_once() {
    let made = Made::new(&json!({}));
    let table = made.open();
    assert_eq!(table.versions().unwrap(), [0]);
    made.append(1, START + 5, None);
    made.append(2, START + 9, None);
    assert_eq!(table.versions().unwrap(), [0], "it has not looked yet");
    table.refresh().unwrap();
    assert_eq!(table.versions().unwrap(), [0, 1, 2]);
    assert_eq!(table.version_at(START + 5).unwrap(), 1);
    assert_eq!(table.version_at(START + 9).unwrap(), 2);
}

#[test]
fn the_last_few_snapshots_are_kept() {
    let made = Made::new(&json!({}));
    for version in 1..=19 {
        made.append(version, START, None);
    }
    let table = made.open();
    let first = table.past(0).unwrap();
    assert!(Arc::ptr_eq(&first, &table.past(0).unwrap()));
    let slots = || lock(&table.travel.slots).len();
    for version in 1..=15 {
        let snapshot = table.past(version).unwrap();
        assert_eq!(
            (snapshot.version(), snapshot.totals().files),
            (version, version)
        );
    }
    assert_eq!(slots(), SNAPSHOTS);
    // Whoever holds one shares it, also when it is not kept any more.
    assert!(Arc::ptr_eq(&first, &table.past(0).unwrap()));
    drop(first);
    for version in 1..=15 {
        table.past(version).unwrap();
    }
    assert!(lock(&table.travel.held).len() <= SNAPSHOTS);
    assert_eq!(table.past(0).unwrap().totals().files, 0);
    assert!(
        Arc::ptr_eq(&table.past(19).unwrap(), &table.snapshot()),
        "the newest takes no slot"
    );
    table.forget_idle();
    assert_eq!(slots(), SNAPSHOTS);
    for slot in lock(&table.travel.slots).iter_mut() {
        slot.used -= IDLE_MS;
    }
    table.forget_idle();
    assert_eq!(slots(), 0);
    assert!(table.travel.before(19).is_none());
}

/// By whichever way a version was reached, it is the same.
#[test]
fn versions_from_near_ones_are_those_of_the_log() {
    let made = Made::new(&json!({}));
    for version in 1..=30 {
        made.append(version, START, None);
    }
    let remove = json!({"remove": {"path": "f3", "deletionTimestamp": 1, "dataChange": true}});
    made.commit(31, START, &[remove]);
    made.append(32, START, None);
    let (walked, table) = (made.open(), made.open());
    for version in (0..32).chain([31, 5, 7, 30]) {
        let (one, other) = (walked.past(version).unwrap(), table.at(version).unwrap());
        assert_eq!(one.totals(), other.totals(), "{version}");
        assert_eq!(one.timestamp(), other.timestamp(), "{version}");
        let names = |s: &Snapshot| -> Vec<String> {
            s.live_files().map(|f| f.visible.to_string()).collect()
        };
        assert_eq!(names(&one), names(&other), "{version}");
    }
}

#[test]
fn a_version_that_cannot_be_read_is_not_kept() {
    let made = Made::new(&json!({}));
    made.append(1, START, None);
    made.append(2, START, None);
    let table = made.open();
    let whole = fs::read(made.path(&LogName::commit(1))).unwrap();
    fs::write(made.path(&LogName::commit(1)), "{").unwrap();
    assert!(matches!(table.past(1), Err(TableError::Log(_))));
    fs::write(made.path(&LogName::commit(1)), whole).unwrap();
    assert_eq!(table.past(1).unwrap().totals().files, 1);
}

#[test]
fn another_log_in_the_same_place_has_other_versions() {
    let made = Made::new(&json!({}));
    made.append(1, START, None);
    made.append(2, START, None);
    let table = made.open();
    let (before, old) = (table.incarnation(), table.past(1).unwrap());
    assert_eq!(table.refresh().unwrap().version(), 2);
    assert_eq!(table.incarnation(), before);
    // Rolled back to version 0, and another version 1 after that.
    fs::remove_file(made.path(&LogName::commit(2))).unwrap();
    made.commit(1, START, &[made.info(None)]);
    assert_eq!(table.refresh().unwrap().version(), 1);
    assert_ne!(table.incarnation(), before);
    assert_eq!(table.versions().unwrap(), [0, 1]);
    assert_eq!(old.totals().files, 1);
    assert_eq!(table.past(1).unwrap().totals().files, 0);
}

/// D91: the clock went back by an hour, and files were copied in one moment.
#[test]
fn file_times_are_made_monotonic() {
    let made = Made::new(&json!({}));
    made.append(1, START + 3_600_000, None);
    made.append(2, START + 60_000, None);
    made.append(3, START + 60_000, None);
    made.append(4, START + 7_200_000, None);
    let table = made.open();
    let one = START + 3_600_000;
    for (asked, version) in [
        (START, 0),
        (START + 60_000, 0),
        (one - 1, 0),
        (one, 1),
        (one + 1, 2),
        (one + 2, 3),
        (START + 7_199_999, 3),
        (START + 7_200_000, 4),
        (i64::MAX, 4),
    ] {
        assert_eq!(table.version_at(asked).unwrap(), version, "{asked}");
    }
    let times: Vec<i64> = table
        .history(None, 4)
        .unwrap()
        .iter()
        .map(|e| e.timestamp)
        .collect();
    assert_eq!(times, [START, one, one + 1, one + 2, START + 7_200_000]);
    assert_eq!(table.version_time(3).unwrap(), Some(one + 2));
    let error = table.version_at(START - 1).unwrap_err();
    assert!(
        matches!(error, TableError::BeforeHistory { earliest: Some((0, t)), .. } if t == START)
    );
    use crate::error::Failure as _;
    assert_eq!(
        error.to_string(),
        "the table has no version of 2023-11-14T22:13:19.999Z"
    );
    let hint = error.hint().unwrap();
    assert!(hint.contains("is 0, of 2023-11-14T22:13:20.000Z"), "{hint}");
}

/// When file times decide, no commit is opened.
#[test]
fn no_commit_is_read_for_file_times() {
    let made = Made::new(&json!({}));
    for version in 1..50 {
        made.append(version, START + i64::try_from(version).unwrap() * DAY, None);
    }
    let table = made.open();
    for version in 0..50 {
        let path = made.path(&LogName::commit(version));
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "no JSON").unwrap();
        let file = File::options().append(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    }
    assert_eq!(table.version_at(START + 20 * DAY).unwrap(), 20);
    assert_eq!(table.version_at(START + 20 * DAY - 1).unwrap(), 19);
}

#[test]
fn stamps_decide_from_the_start_when_they_were_enabled_with_the_table() {
    let made = Made::new(&json!({"delta.enableInCommitTimestamps": "true"}));
    made.commit(
        0,
        START + 900 * DAY,
        &[
            made.info(Some(START)),
            protocol(),
            meta(&json!({"delta.enableInCommitTimestamps": "true"})),
        ],
    );
    // A copied table: all files are of one time, in no order.
    for version in 1..100 {
        let n = i64::try_from(version).unwrap();
        made.append(version, START + 900 * DAY - n, Some(START + n * 1000));
    }
    let table = made.open();
    for version in [0_u64, 1, 2, 49, 98, 99] {
        let time = START + i64::try_from(version).unwrap() * 1000;
        assert_eq!(table.version_at(time).unwrap(), version);
        assert_eq!(table.version_at(time + 999).unwrap(), version);
        assert_eq!(table.version_time(version).unwrap(), Some(time));
    }
    assert_eq!(table.version_at(START + 901 * DAY).unwrap(), 99);
    assert!(matches!(
        table.version_at(START - 1),
        Err(TableError::BeforeHistory { earliest: Some((0, t)), .. }) if t == START
    ));
    // By halves: commits that the search does not meet may be unreadable.
    let others = [3, 10, 20, 30, 40];
    for version in others {
        fs::write(made.path(&LogName::commit(version)), "no JSON").unwrap();
    }
    assert_eq!(table.version_at(START + 75_500).unwrap(), 75);
}

/// Enabled at version 3 at the time START + 3 days; the file of version 2 is older than that, as it must be.
fn enabled_later(old_times: [i64; 3]) -> Made {
    let made = Made::new(&json!({}));
    made.commit(
        0,
        old_times[0],
        &[made.info(None), protocol(), meta(&json!({}))],
    );
    made.append(1, old_times[1], None);
    made.append(2, old_times[2], None);
    let properties = json!({"delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "3",
        "delta.inCommitTimestampEnablementTimestamp": (START + 3 * DAY).to_string()});
    let stamp = made.info(Some(START + 3 * DAY));
    made.commit(3, START + 50 * DAY, &[stamp, meta(&properties)]);
    made.append(4, START + 50 * DAY, Some(START + 4 * DAY));
    made.append(5, START + 49 * DAY, Some(START + 5 * DAY));
    made
}

#[test]
fn file_times_decide_before_stamps_were_enabled() {
    let made = enabled_later([START, START + 2 * DAY, START + DAY]);
    let table = made.open();
    for (asked, version) in [
        (START, 0),
        (START + 2 * DAY - 1, 0),
        (START + 2 * DAY, 1),
        (START + 2 * DAY + 1, 2),
        (START + 3 * DAY - 1, 2),
        (START + 3 * DAY, 3),
        (START + 4 * DAY, 4),
        (START + 5 * DAY - 1, 4),
        (START + 5 * DAY, 5),
        (START + 60 * DAY, 5),
    ] {
        assert_eq!(table.version_at(asked).unwrap(), version, "{asked}");
    }
    assert_eq!(table.version_time(2).unwrap(), Some(START + 2 * DAY + 1));
    assert_eq!(table.version_time(4).unwrap(), Some(START + 4 * DAY));
}

#[test]
fn file_times_of_a_copy_say_nothing_against_stamps() {
    // All file times are of the copy, later than the stamps.
    let made = enabled_later([START + 50 * DAY; 3]);
    let table = made.open();
    assert_eq!(table.version_at(START + 4 * DAY).unwrap(), 4);
    assert_eq!(table.version_at(START + 60 * DAY).unwrap(), 5);
    assert!(matches!(
        table.version_at(START + 2 * DAY),
        Err(TableError::BeforeHistory { earliest: Some((3, t)), .. }) if t == START + 3 * DAY
    ));
}

#[test]
fn a_cleaned_log_names_the_earliest_time_that_is_left() {
    let made = Made::new(&json!({}));
    for version in 1..=6 {
        made.append(version, START + i64::try_from(version).unwrap() * DAY, None);
    }
    let table = made.open();
    crate::ops::checkpoint(&table, &table.past(3).unwrap()).unwrap();
    for version in 0..3 {
        fs::remove_file(made.path(&LogName::commit(version))).unwrap();
    }
    table.travel.replaced();
    assert_eq!(table.versions().unwrap(), [3, 4, 5, 6]);
    assert_eq!(table.version_at(START + 3 * DAY).unwrap(), 3);
    assert_eq!(table.version_at(START + 5 * DAY - 1).unwrap(), 4);
    assert!(matches!(
        table.version_at(START + 3 * DAY - 1),
        Err(TableError::BeforeHistory { earliest: Some((3, t)), .. }) if t == START + 3 * DAY
    ));
    // Without the commit beside it, nothing tells when the checkpoint's version was made.
    fs::remove_file(made.path(&LogName::commit(3))).unwrap();
    table.travel.replaced();
    assert_eq!(table.versions().unwrap(), [3, 4, 5, 6]);
    assert!(matches!(
        table.version_at(START + 3 * DAY),
        Err(TableError::BeforeHistory { earliest: Some((4, t)), .. }) if t == START + 4 * DAY
    ));
    assert_eq!(table.version_time(3).unwrap(), None);
    assert_eq!(table.past(3).unwrap().totals().files, 3);
}

#[test]
fn a_stamp_that_is_missing_or_malformed_is_an_error_of_that_version() {
    let made = enabled_later([START; 3]);
    made.append(4, START, None);
    let table = made.open();
    let error = table.version_at(START + 4 * DAY).unwrap_err();
    assert!(
        matches!(error, TableError::Malformed { version: 4, .. }),
        "{error}"
    );
    let made = Made::new(&json!({"delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "soon",
        "delta.inCommitTimestampEnablementTimestamp": "1"}));
    let table = made.open();
    let error = table.version_at(START).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("delta.inCommitTimestampEnablementVersion"),
        "{error}"
    );
}

/// Writers differ in where they put the line and how they print it.
#[test]
fn a_stamp_is_found_wherever_it_stands() {
    let made = Made::new(&json!({"delta.enableInCommitTimestamps": "true"}));
    let add = json!({"add": {"path": "f", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": true}});
    made.commit(1, START + 90 * DAY, &[add, made.info(Some(START + DAY))]);
    let long = json!({"commitInfo": {"padding": "x".repeat(400_000), "inCommitTimestamp": START + 2 * DAY}});
    made.commit(2, START + 80 * DAY, &[long]);
    let table = made.open();
    assert_eq!(table.version_time(1).unwrap(), Some(START + DAY));
    assert_eq!(table.version_time(2).unwrap(), Some(START + 2 * DAY));
}
