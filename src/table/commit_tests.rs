//! What a commit writes beside its caller's actions, and what it refuses to write.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::tests::{Made, add, append, remove};
use super::*;
use crate::log::Action;

const DV: &str = "ab^-aqEH.-t@S}K{vb[*k^";

fn action(value: Value) -> Action {
    serde_json::from_value(value).unwrap()
}

fn staged(actions: Vec<Value>) -> Staged {
    Staged {
        actions: actions.into_iter().map(action).collect(),
        reads: Reads::Restage,
        ..append("x")
    }
}

/// A table with these writer features and properties, empty at version 0.
fn made(features: &[&str], properties: &[(&str, &str)]) -> Made {
    let made = Made::new();
    let properties: BTreeMap<&str, &str> = properties.iter().copied().collect();
    let mut writer = vec!["deletionVectors"];
    writer.extend(features);
    let schema = json!({"type": "struct", "fields": [
        {"name": "id", "type": "long", "nullable": true, "metadata": {}}]});
    made.commit(
        0,
        &[
            json!({"commitInfo": {"timestamp": 5, "inCommitTimestamp": 5}}),
            json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"], "writerFeatures": writer}}),
            json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
                "schemaString": schema.to_string(), "partitionColumns": [], "configuration": properties}}),
        ],
    );
    made
}

#[track_caller]
fn commit(table: &Table, actions: Vec<Value>) -> Arc<Snapshot> {
    let outcome = table.commit(&table.snapshot(), &mut staged(actions));
    match outcome.unwrap() {
        Outcome::Committed(snapshot) => snapshot,
        Outcome::Raced(_) | Outcome::Superseded(_) => panic!("nobody else is here"),
    }
}

/// First row id and version of a live file.
fn ids(snapshot: &Snapshot, path: &str) -> (Option<i64>, Option<i64>) {
    let file = snapshot.live_file_of(path).unwrap();
    (file.add.base_row_id, file.add.default_row_commit_version)
}

fn mark(snapshot: &Snapshot) -> Option<String> {
    let mut domains = snapshot.domains();
    let found = domains.find(|d| d.domain == "delta.rowTracking");
    found.map(|d| d.configuration.clone())
}

const TRACKED: &[&str] = &["rowTracking", "domainMetadata"];

#[test]
fn new_files_get_row_ids_and_live_ones_keep_theirs() {
    let made = made(TRACKED, &[("delta.enableDeletionVectors", "true")]);
    let table = made.open().unwrap();
    let one = commit(&table, vec![add("a", None), add("b", None)]);
    assert_eq!(ids(&one, "a"), (Some(0), Some(1)));
    assert_eq!(ids(&one, "b"), (Some(10), Some(1)));
    assert_eq!(mark(&one).unwrap(), r#"{"rowIdHighWaterMark":19}"#);
    // A vector, a new name: the same rows. Whoever staged it need not know their ids.
    let mut marked = add("a", Some(DV));
    marked["add"]["stats"] = json!(r#"{"numRecords":10,"tightBounds":false}"#);
    let two = commit(&table, vec![remove("a", None), marked, add("c", None)]);
    assert_eq!(ids(&two, "a"), (Some(0), Some(1)));
    assert_eq!(ids(&two, "c"), (Some(20), Some(2)));
    assert_eq!(mark(&two).unwrap(), r#"{"rowIdHighWaterMark":29}"#);
    let three = commit(&table, vec![add("b", None)]);
    assert_eq!(ids(&three, "b"), (Some(10), Some(1)));
    assert_eq!(mark(&three), mark(&two));
    // What is gone leaves its ids behind.
    let four = commit(&table, vec![remove("b", None)]);
    assert_eq!(mark(&four), mark(&two));
    let five = commit(&table, vec![add("d", None)]);
    assert_eq!(ids(&five, "d"), (Some(30), Some(5)));
}

#[test]
fn a_lost_race_numbers_anew() {
    // PROTOCOL.md F2 step 5.
    let made = made(TRACKED, &[]);
    let table = made.open().unwrap();
    let base = table.snapshot();
    let dir = Dir::open(made.log().parent().unwrap()).unwrap();
    let other = Table::open(dir, Env::real()).unwrap();
    commit(&other, vec![add("theirs", None)]);
    let Outcome::Committed(after) = table.commit(&base, &mut append("ours")).unwrap() else {
        panic!("a blind append is never in anybody's way");
    };
    assert_eq!(ids(&after, "theirs"), (Some(0), Some(1)));
    assert_eq!(ids(&after, "ours"), (Some(10), Some(2)));
    assert_eq!(mark(&after).unwrap(), r#"{"rowIdHighWaterMark":19}"#);
}

#[test]
fn a_suspended_table_gets_no_ids() {
    let made = made(TRACKED, &[("delta.rowTrackingSuspended", "true")]);
    let table = made.open().unwrap();
    let one = commit(&table, vec![add("a", None)]);
    assert_eq!((ids(&one, "a"), mark(&one)), ((None, None), None));
    let without = self::made(&["domainMetadata"], &[("delta.enableRowTracking", "true")]);
    let one = commit(&without.open().unwrap(), vec![add("a", None)]);
    assert_eq!((ids(&one, "a"), mark(&one)), ((None, None), None));
}

#[test]
fn rows_are_counted_where_the_statistics_do_not() {
    let made = made(TRACKED, &[]);
    let table = made.open().unwrap();
    let uncounted = |path: &str| {
        let mut add = add(path, None);
        add["add"]["stats"] = json!(r#"{"minValues":{"id":1.50}}"#);
        add
    };
    let gone = table.commit(&table.snapshot(), &mut staged(vec![uncounted("gone")]));
    assert!(
        matches!(gone, Err(TableError::Malformed { .. })),
        "{gone:?}"
    );
    made.parquet("a", 7);
    let one = commit(&table, vec![uncounted("a"), add("b", None)]);
    assert_eq!(ids(&one, "b"), (Some(7), Some(1)));
    let file = one.live_file_of("a").unwrap();
    let stats = file.add.stats.clone().unwrap();
    assert!(
        stats.contains("1.50") && stats.contains(r#""numRecords":7"#),
        "{stats}"
    );
}

#[test]
fn ids_never_collide() {
    let made = made(TRACKED, &[]);
    let table = made.open().unwrap();
    commit(&table, vec![add("a", None)]);
    // A restored file brings its own, as long as they were given.
    let with = |path: &str, id: i64| {
        let mut add = add(path, None);
        add["add"]["baseRowId"] = id.into();
        add
    };
    commit(&table, vec![remove("a", None)]);
    let back = commit(&table, vec![with("a", 0)]);
    assert_eq!(ids(&back, "a").0, Some(0));
    for id in [1, 10, -1, i64::MAX] {
        let outcome = table.commit(&table.snapshot(), &mut staged(vec![with("b", id)]));
        assert!(matches!(outcome, Err(TableError::Malformed { .. })), "{id}");
    }
    // A watermark that is lost or broken is no zero.
    let lost = self::made(TRACKED, &[]);
    lost.commit(1, &[with("a", 100)]);
    let table = lost.open().unwrap();
    let outcome = table.commit(&table.snapshot(), &mut append("b"));
    assert!(matches!(outcome, Err(TableError::Malformed { .. })));
    let broken = self::made(TRACKED, &[]);
    broken.commit(
        1,
        &[json!({"domainMetadata": {"domain": "delta.rowTracking", "configuration": "{}", "removed": false}})],
    );
    let table = broken.open().unwrap();
    let outcome = table.commit(&table.snapshot(), &mut append("b"));
    assert!(matches!(outcome, Err(TableError::Malformed { .. })));
}

const STAMPED: &[(&str, &str)] = &[("delta.enableInCommitTimestamps", "true")];

#[test]
fn in_commit_timestamps_rise_and_stand_first() {
    let made = made(&["inCommitTimestamp"], STAMPED);
    made.commit(
        1,
        &[
            json!({"commitInfo": {"timestamp": 5, "inCommitTimestamp": 9_000_000}}),
            add("a", None),
        ],
    );
    // The clock is behind what the table says.
    let table = made.open().unwrap();
    let two = commit(&table, vec![add("b", None)]);
    assert_eq!(two.in_commit_timestamp(), Some(9_000_001));
    let text = std::fs::read_to_string(made.log().join(LogName::commit(2))).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["commitInfo"]["inCommitTimestamp"], 9_000_001);
    let crc = std::fs::read(made.log().join(LogName::crc(2))).unwrap();
    let crc: Value = serde_json::from_slice(&crc).unwrap();
    assert_eq!(crc["inCommitTimestampOpt"], 9_000_001);
}

#[test]
fn enabling_timestamps_on_an_old_table_says_since_when() {
    let made = made(&["inCommitTimestamp"], &[]);
    let table = made.open().unwrap();
    let file = std::fs::File::open(made.log().join(LogName::commit(0))).unwrap();
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 << 32);
    file.set_modified(modified).unwrap();
    let table = {
        drop(table);
        made.open().unwrap()
    };
    let mut metadata = table.snapshot().metadata().clone();
    let on = "delta.enableInCommitTimestamps";
    metadata
        .configuration
        .insert(on.to_owned(), "true".to_owned());
    let mut alter = staged(vec![]);
    alter.actions.push(Action::MetaData(metadata));
    let Outcome::Committed(one) = table.commit(&table.snapshot(), &mut alter).unwrap() else {
        panic!("nobody else is here");
    };
    // Its version 0 has a stale timestamp in its commitInfo, which counts; else the file's time does.
    let stamp = one.in_commit_timestamp().unwrap();
    assert!(stamp > table.at(0).unwrap().timestamp());
    let property = |key: &str| one.metadata().configuration.get(key).cloned();
    assert_eq!(
        property("delta.inCommitTimestampEnablementVersion").as_deref(),
        Some("1")
    );
    assert_eq!(
        property("delta.inCommitTimestampEnablementTimestamp"),
        Some(stamp.to_string())
    );
    // The next one is no enabling commit.
    let two = commit(&table, vec![add("a", None)]);
    assert_eq!(two.metadata(), one.metadata());
    assert!(two.in_commit_timestamp() > one.in_commit_timestamp());
}

#[test]
fn a_new_table_with_timestamps_has_them_from_its_first_version() {
    let guard = tempfile::tempdir().unwrap();
    let dir = Dir::open(guard.path()).unwrap();
    let mut first = staged(vec![
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7,
            "writerFeatures": ["inCommitTimestamp", "rowTracking", "domainMetadata"]}}),
        json!({"metaData": {"id": "t", "schemaString": "{\"type\":\"struct\",\"fields\":[]}",
            "configuration": {"delta.enableInCommitTimestamps": "true", "delta.enableRowTracking": "true"}}}),
        add("a", None),
    ]);
    first.reads = Reads::Nothing;
    let table = create(&dir, &Env::fixed(77), &first).unwrap();
    let zero = table.snapshot();
    assert!(zero.in_commit_timestamp().is_some());
    assert!(
        !zero
            .metadata()
            .configuration
            .keys()
            .any(|k| k.contains("Enablement"))
    );
    assert_eq!(ids(&zero, "a"), (Some(0), Some(0)));
    assert_eq!(mark(&zero).unwrap(), r#"{"rowIdHighWaterMark":9}"#);
    let log = guard.path().join(LOG_DIR);
    let crc = std::fs::read(log.join(LogName::crc(0))).unwrap();
    checksum::check(&zero, &crc).unwrap();
    let text = std::fs::read_to_string(log.join(LogName::commit(0))).unwrap();
    let info: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(
        info["commitInfo"]["tags"]["delta.rowTracking.preserved"],
        "true"
    );
    // A second creator gets nothing.
    assert!(matches!(
        create(&dir, &Env::real(), &first),
        Err(TableError::Created)
    ));
}

/// PROTOCOL.md A2, rule by rule: each of these must never reach the log.
#[test]
fn what_breaks_a_rule_is_not_committed() {
    let made = made(
        &["domainMetadata"],
        &[("delta.enableDeletionVectors", "true")],
    );
    let mut live = add("live", Some(DV));
    live["add"]["stats"] = json!(r#"{"numRecords":10,"tightBounds":false}"#);
    made.commit(1, &[live.clone(), add("plain", None)]);
    let table = made.open().unwrap();
    let marked = |path: &str, dv: &str, stats: &str| {
        let mut add = add(path, Some(dv));
        add["add"]["stats"] = json!(stats);
        add
    };
    let loose = r#"{"numRecords":10,"tightBounds":false}"#;
    let other = "0^-aqEH.-t@S}K{vb[*k^x";
    let domain = |name: &str| json!({"domainMetadata": {"domain": name, "configuration": "{}", "removed": false}});
    let txn = json!({"txn": {"appId": "a", "version": 1}});
    let metadata = json!({"metaData": serde_json::to_value(table.snapshot().metadata()).unwrap()});
    let protocol = json!({"protocol": serde_json::to_value(table.snapshot().protocol()).unwrap()});
    let field = |action: &Value, kind: &str, key: &str, value: Value| {
        let mut action = action.clone();
        action[kind][key] = value;
        action
    };
    let lists = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}});
    let untracked = json!({"delta.enableRowTracking": "true"});
    let untracked = field(&metadata, "metaData", "configuration", untracked);
    let columns = field(&metadata, "metaData", "partitionColumns", json!(["nope"]));
    let cases: Vec<(&str, Vec<Value>)> = vec![
        (
            "two adds of one file",
            vec![add("a", None), add("./a", None)],
        ),
        (
            "two removes",
            vec![remove("plain", None), remove("plain", None)],
        ),
        (
            "removed and added with one vector",
            vec![remove("plain", None), add("plain", None)],
        ),
        (
            "another vector without a remove",
            vec![marked("plain", DV, loose)],
        ),
        (
            "another vector, the wrong remove",
            vec![remove("live", None), marked("live", other, loose)],
        ),
        ("a remove of what is not live", vec![remove("gone", None)]),
        ("a remove of another vector", vec![remove("live", None)]),
        (
            "a new vector without a count",
            vec![
                remove("plain", None),
                marked("plain", DV, r#"{"tightBounds":false}"#),
            ],
        ),
        (
            "a new vector with tight bounds",
            vec![
                remove("plain", None),
                marked("plain", DV, r#"{"numRecords":10}"#),
            ],
        ),
        (
            "more dead rows than rows",
            vec![
                remove("plain", None),
                marked("plain", DV, r#"{"numRecords":1,"tightBounds":false}"#),
            ],
        ),
        (
            "an extended remove without its size",
            vec![field(
                &field(
                    &remove("plain", None),
                    "remove",
                    "extendedFileMetadata",
                    json!(true),
                ),
                "remove",
                "size",
                Value::Null,
            )],
        ),
        ("an absolute path", vec![add("/etc/passwd", None)]),
        ("a path out of the table", vec![add("../a", None)]),
        ("a path that is not encoded", vec![add("a b", None)]),
        (
            "a foreign partition value",
            vec![field(
                &add("a", None),
                "add",
                "partitionValues",
                json!({"p": "1"}),
            )],
        ),
        (
            "a negative size",
            vec![field(&add("a", None), "add", "size", json!(-1))],
        ),
        (
            "two values of dataChange",
            vec![
                add("a", None),
                field(&add("b", None), "add", "dataChange", json!(false)),
            ],
        ),
        ("an application twice", vec![txn.clone(), txn.clone()]),
        ("a domain twice", vec![domain("u"), domain("u")]),
        ("a domain of Delta's", vec![domain("delta.future")]),
        ("two metaData", vec![metadata.clone(), metadata.clone()]),
        ("two protocols", vec![protocol.clone(), protocol.clone()]),
        ("a protocol without lists", vec![lists]),
        ("a partition column that is none", vec![columns]),
        ("a property without its feature", vec![untracked]),
        ("a second commitInfo", vec![json!({"commitInfo": {}})]),
        (
            "a change file elsewhere",
            vec![
                json!({"cdc": {"path": "a", "partitionValues": {}, "size": 1, "dataChange": false}}),
            ],
        ),
        (
            "a change file that changes data",
            vec![
                json!({"cdc": {"path": "_change_data/a", "partitionValues": {}, "size": 1, "dataChange": true}}),
            ],
        ),
    ];
    for (what, actions) in cases {
        let outcome = table.commit(&table.snapshot(), &mut staged(actions));
        assert!(
            matches!(outcome, Err(TableError::Malformed { .. })),
            "{what}: {outcome:?}"
        );
    }
    let mut blind = append("live");
    blind.actions = vec![action(live)];
    let outcome = table.commit(&table.snapshot(), &mut blind);
    assert!(
        matches!(outcome, Err(TableError::Malformed { .. })),
        "{outcome:?}"
    );
    assert_eq!(table.refresh().unwrap().version(), 1);
    // Without the property no new vector is written, whatever the feature.
    let off = self::made(&[], &[]);
    off.commit(1, &[add("plain", None)]);
    let table = off.open().unwrap();
    let actions = vec![remove("plain", None), marked("plain", DV, loose)];
    assert!(
        table
            .commit(&table.snapshot(), &mut staged(actions))
            .is_err()
    );
    assert!(
        table
            .commit(&table.snapshot(), &mut staged(vec![domain("u")]))
            .is_err()
    );
}

/// The same rules let through what we do write.
#[test]
fn what_keeps_the_rules_is_committed() {
    let made = made(
        &["domainMetadata"],
        &[("delta.enableDeletionVectors", "true")],
    );
    let table = made.open().unwrap();
    commit(&table, vec![add("a%20b", None), add("c", None)]);
    let mut marked = add("a%20b", Some(DV));
    marked["add"]["stats"] = json!(r#"{"numRecords":10,"tightBounds":false}"#);
    commit(&table, vec![remove("a%20b", None), marked.clone()]);
    let mut renamed = marked;
    renamed["add"]["dataChange"] = false.into();
    renamed["add"]["tags"] = json!({"deltafs.name": "n"});
    commit(&table, vec![renamed]);
    let txn = |app: &str| json!({"txn": {"appId": app, "version": 1}});
    let change = json!({"cdc": {"path": "_change_data/a", "partitionValues": {}, "size": 1, "dataChange": false}});
    let five = commit(
        &table,
        vec![remove("a%20b", Some(DV)), change, txn("a"), txn("b")],
    );
    assert_eq!((five.version(), five.totals().files), (4, 1));
}
