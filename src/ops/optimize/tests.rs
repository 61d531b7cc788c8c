//! What OPTIMIZE does to a table that nobody else works on.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, Float64Array, Int32Array, StringArray};
use serde_json::{Value, json};

use super::super::table_testing::{Made, Shape, longs};
use super::super::{checkpoint, optimize};
use super::*;
use crate::error::{Failure as _, Kind};
use crate::log::Add;
use crate::table::TableError;

fn texts<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn number(report: &Report, metric: &str) -> Option<u64> {
    report.metrics.get(metric).copied()
}

#[test]
fn small_files_become_one_and_rows_keep_their_order() {
    // D94
    let made = Made::create(&Shape::ids());
    made.append_files(0..5);
    let before = made.files();
    let report = made.optimize();
    assert_eq!((report.operation, report.version), ("OPTIMIZE", Some(6)));
    let [file] = &made.files()[..] else {
        panic!("{:?}", made.files());
    };
    let in_order: Vec<String> = (0..50).map(|id: i64| id.to_string()).collect();
    assert_eq!(made.rows(), in_order);
    let stats: Value = serde_json::from_str(file.add.stats.as_ref().unwrap()).unwrap();
    assert_eq!(stats["numRecords"], 50);
    assert_eq!(
        (&stats["minValues"]["id"], &stats["maxValues"]["id"]),
        (&json!(0), &json!(49))
    );
    assert_eq!(file.add.tags, None);

    let info = &made.actions(6, "commitInfo")[0];
    assert_eq!(info["operation"], "OPTIMIZE");
    let none = json!({"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": "false"});
    assert_eq!(info["operationParameters"], none);
    assert_eq!(info["isolationLevel"], "SnapshotIsolation");
    assert_eq!(info["isBlindAppend"], false);
    assert_eq!(number(&report, "numRemovedFiles"), Some(5));
    assert_eq!(number(&report, "numAddedFiles"), Some(1));
    let removed: i64 = before.iter().map(|f| f.add.size).sum();
    assert_eq!(number(&report, "numRemovedBytes"), Some(removed as u64));
    for size in ["numAddedBytes", "minFileSize", "p50FileSize", "maxFileSize"] {
        assert_eq!(number(&report, size), Some(file.add.size as u64), "{size}");
        assert_eq!(info["operationMetrics"][size], file.add.size.to_string());
    }
    let removes = made.actions(6, "remove");
    assert_eq!(removes.len(), 5);
    for action in removes.iter().chain(&made.actions(6, "add")) {
        assert_eq!(action["dataChange"], false, "{action}");
    }
    made.holds(0..50);
}

#[test]
fn nothing_to_put_together_makes_no_version() {
    let made = Made::create(&Shape::ids());
    assert_eq!(made.optimize().version, None);
    made.append_ids(0..10);
    let report = made.optimize();
    assert_eq!(report.version, None);
    assert!(report.note.unwrap().contains("no version"));
    made.append_ids(10..20);
    assert_eq!(made.optimize().version, Some(3));
    assert_eq!(made.optimize().version, None);
    made.holds(0..20);
}

#[test]
fn small_targets_and_checkpoints_double_nothing() {
    // D93
    // A file has some 9 kB.
    for (target, merges) in [("1", false), ("8kb", false), ("20kb", true), ("1gb", true)] {
        let made = Made::create(&Shape::ids().property("delta.targetFileSize", target));
        for round in 0..4 {
            made.append_ids(round * 1000..round * 1000 + 1000);
        }
        checkpoint(&made.table, &made.newest()).unwrap();
        let mut files = vec![made.files().len()];
        loop {
            let report = made.optimize();
            made.holds(0..4000);
            checkpoint(&made.table, &made.newest()).unwrap();
            made.holds(0..4000);
            files.push(made.files().len());
            if report.version.is_none() {
                break;
            }
            assert!(files.is_sorted_by(|a, b| a > b), "{target}: {files:?}");
        }
        assert_eq!(files.last() < Some(&4), merges, "{target}: {files:?}");
    }
}

/// A live file of some size, written at some time.
fn file(size: i64, time: i64) -> Arc<LiveFile> {
    let add = json!({"path": format!("{size}-{time}"), "partitionValues": {}, "size": size, "modificationTime": time,
        "dataChange": true});
    let add: Add = serde_json::from_value(add).unwrap();
    let path = DataPath::Inside(add.path.clone());
    let visible = add.path.clone().into();
    Arc::new(LiveFile { add, path, visible })
}

#[test]
fn bins_are_filled_in_sequence_and_no_file_is_alone_in_one() {
    let sizes = |sizes: &[i64]| {
        let files = sizes.iter().zip(0..).map(|(size, time)| file(*size, -time));
        let bins = pack(files.collect(), 100).into_iter();
        let sizes = bins.map(|bin| {
            let mut sizes: Vec<i64> = bin.iter().map(|f| f.add.size).collect();
            sizes.sort_unstable();
            sizes
        });
        sizes.collect::<Vec<_>>()
    };
    // What does not fit begins a new bin, and the one before is not looked at again.
    assert_eq!(sizes(&[50, 10, 20, 40, 60]), [[10, 20, 40]]);
    assert_eq!(
        sizes(&[30, 30, 40, 50, 50]),
        [vec![30, 30, 40], vec![50, 50]]
    );
    assert!(sizes(&[100]).is_empty());
    assert!(sizes(&[100, 300, 200]).is_empty());
    assert_eq!(sizes(&[0, 0, 100, 1]), [[0, 0, 1]]);
    // Bins go by size, rows by time.
    let bins = pack(vec![file(9, 1), file(3, 3), file(5, 2), file(4, 2)], 100);
    let order: Vec<&str> = bins[0].iter().map(|f| &*f.visible).collect();
    assert_eq!(order, ["9-1", "4-2", "5-2", "3-3"]);
}

#[test]
fn files_are_wanted_for_their_size_or_their_deleted_rows() {
    assert!(is_wanted(9, Some(100), 0, 10));
    assert!(!is_wanted(10, Some(100), 5, 10));
    assert!(is_wanted(10, Some(100), 6, 10));
    assert!(!is_wanted(10, None, 0, 10));
    assert!(is_wanted(10, None, 1, 10));
    assert!(!is_wanted(10, Some(0), 0, 10));
}

#[test]
fn deleted_rows_are_gone_for_good() {
    let made = Made::create(&Shape::ids());
    made.append_files(0..3);
    made.delete("id IN (0, 11, 12, 19, 29)");
    let report = made.optimize();
    assert_eq!(number(&report, "numDeletionVectorsRemoved"), Some(3));
    let gone = [0, 11, 12, 19, 29];
    let left = (0..30).filter(|id| !gone.contains(id));
    let in_order: Vec<String> = left.clone().map(|id| id.to_string()).collect();
    assert_eq!(made.rows(), in_order);
    made.holds(left);
    let [file] = &made.files()[..] else { panic!() };
    assert!(file.add.deletion_vector.is_none());
    assert_eq!(file.add.num_records(), Some(25));
    // The removes name the vectors.
    let removes = made.actions(report.version.unwrap(), "remove");
    assert!(removes.iter().all(|r| r["deletionVector"].is_object()));
}

/// Partition values that are hard to write down, and NULL.
const ODD: [Option<&str>; 6] = [
    None,
    Some("a/b"),
    Some("50%"),
    Some("x=y z+"),
    Some("__HIVE_DEFAULT_PARTITION_"),
    Some("é\u{1F980}"),
];

#[test]
fn partitions_stay_apart_whatever_their_values() {
    for features in [None, Some("materializePartitionColumns")] {
        for mapped in [None, Some("name"), Some("id")] {
            let mut shape = Shape::ids().column("p", "string").column("q", "double");
            shape = shape.partitioned_by(&["p", "q"]);
            shape.features.extend(features);
            if let Some(mode) = mapped {
                shape = shape.feature("columnMapping");
                shape = shape.property("delta.columnMapping.mode", mode);
                shape = shape.property("delta.columnMapping.maxColumnId", "3");
            }
            let made = Made::create(&shape);
            let rows = ODD.len() as i64;
            for round in 0..3 {
                let qs = ODD
                    .iter()
                    .enumerate()
                    .map(|(i, _)| [None, Some(0.1), Some(f64::NAN)][i % 3]);
                made.append(vec![
                    ("id", longs(round * rows..(round + 1) * rows)),
                    ("p", texts(ODD)),
                    ("q", Arc::new(qs.collect::<Float64Array>())),
                ]);
            }
            let before = made.sorted();
            assert_eq!(before.len(), 3 * ODD.len());
            let report = made.optimize();
            assert_eq!(number(&report, "numAddedFiles"), Some(6));
            assert_eq!(number(&report, "numRemovedFiles"), Some(18));
            assert_eq!(made.sorted(), before, "{features:?} {mapped:?}");
            made.has_no_orphans();
            assert_eq!(made.optimize().version, None);
        }
    }
}

#[test]
fn a_condition_chooses_partitions_and_nulls_none_of_the_others() {
    // D57
    let shape = Shape::ids().column("a", "string").column("b", "string");
    let made = Made::create(&shape.partitioned_by(&["a", "b"]));
    for round in 0..3 {
        let ids = longs(round * 4..round * 4 + 4);
        let a = texts(["1", "2", "1", "2"].map(Some));
        let b = texts(["x", "x", "y", "y"].map(Some));
        made.append(vec![("id", ids), ("a", a), ("b", b)]);
    }
    let before = made.sorted();
    let report = made.try_optimize(Some("b = 'x'"), &made.newest()).unwrap();
    assert_eq!(number(&report, "numRemovedFiles"), Some(6));
    assert_eq!(number(&report, "numAddedFiles"), Some(2));
    assert_eq!(made.sorted(), before);
    let mut files: BTreeMap<String, u64> = BTreeMap::new();
    for file in made.files() {
        let (partition, _) = file.visible.rsplit_once('/').unwrap();
        *files.entry(partition.to_owned()).or_default() += 1;
    }
    let expected = [
        ("a=1/b=x", 1),
        ("a=1/b=y", 3),
        ("a=2/b=x", 1),
        ("a=2/b=y", 3),
    ];
    assert_eq!(files, expected.map(|(p, n)| (p.to_owned(), n)).into());
    let info = &made.actions(report.version.unwrap(), "commitInfo")[0];
    assert_eq!(info["operationParameters"]["predicate"], r#"["(b = 'x')"]"#);
    // Nothing there.
    let none = made
        .try_optimize(Some("a IS NULL"), &made.newest())
        .unwrap();
    assert_eq!(none.version, None);
}

#[test]
fn a_condition_knows_no_other_columns() {
    let made = Made::create(&Shape::ids().column("p", "string").partitioned_by(&["p"]));
    let version = made.version();
    for (bad, named) in [
        ("id = 1", "`id` is no partition column"),
        ("p = 'x' OR id > 3", "`id`"),
        ("rand() < 0.5", "not about their values"),
        ("nosuch = 1", "nosuch"),
        ("p =", "expected"),
    ] {
        let error = made.try_optimize(Some(bad), &made.newest()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{bad}: {error}");
        assert!(error.to_string().contains(named), "{bad}: {error}");
    }
    let error = made
        .try_optimize(Some("id = 1"), &made.newest())
        .unwrap_err();
    assert!(error.hint().unwrap().contains("`p`"));
    let plain = Made::create(&Shape::ids());
    let error = plain
        .try_optimize(Some("id = 1"), &plain.newest())
        .unwrap_err();
    assert!(error.hint().unwrap().contains("no partitions"));
    assert_eq!(made.version(), version);
}

#[test]
fn one_value_in_two_spellings_is_one_partition() {
    let made = Made::create(&Shape::ids().column("p", "double").partitioned_by(&["p"]));
    for value in [1.0, 1.0, 2.0] {
        let p = Arc::new(Float64Array::from(vec![value]));
        made.append(vec![("id", longs([value as i64])), ("p", p)]);
    }
    // Somebody writes his 1.0 in another way.
    let files = made.files();
    let one = files
        .iter()
        .find(|f| f.visible.starts_with("p=1.0/"))
        .unwrap();
    let mut add = serde_json::to_value(&one.add).unwrap();
    add["partitionValues"]["p"] = json!("1");
    made.commit(&[json!({ "add": add })]);
    let before = made.sorted();
    assert_eq!(number(&made.optimize(), "numRemovedFiles"), Some(2));
    assert_eq!(made.sorted(), before);
}

#[test]
fn rows_keep_their_ids() {
    let made = Made::create(&Shape::ids().row_tracking());
    made.append_files(0..3);
    made.delete("id IN (5, 25)");
    let before = made.identities();
    assert_eq!(before["7"], (7, 1));
    assert_eq!(before["27"], (27, 3));
    made.optimize();
    assert_eq!(made.identities(), before);
    // Rows that have their ids in the file, and rows that have them by their place.
    made.append_files(3..4);
    let before = made.identities();
    made.optimize();
    assert_eq!(made.files().len(), 1);
    assert_eq!(made.identities(), before);
    let left = (0..40).filter(|id| ![5, 25].contains(id));
    made.holds(left);
}

#[test]
fn columns_that_were_added_or_widened_are_as_readers_see_them() {
    let shape = Shape::ids().column("n", "integer").feature("typeWidening");
    let made = Made::create(&shape.property("delta.enableTypeWidening", "true"));
    let old = |ids: std::ops::Range<i64>| {
        let n: ArrayRef = Arc::new(Int32Array::from_iter_values(
            ids.clone().map(|id| id as i32),
        ));
        vec![("id", longs(ids)), ("n", n)]
    };
    made.append(old(0..3));
    made.append(old(3..6));
    let mut metadata = serde_json::to_value(made.newest().metadata()).unwrap();
    let field = |name: &str, kind: &str, metadata: Value| json!({"name": name, "type": kind, "nullable": true, "metadata": metadata});
    let changes = json!({"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]});
    let fields = [
        field("id", "long", json!({})),
        field("new", "string", json!({})),
        field("n", "long", changes),
    ];
    metadata["schemaString"] = json!({"type": "struct", "fields": fields})
        .to_string()
        .into();
    made.commit(&[json!({ "metaData": metadata })]);
    made.append(vec![
        ("id", longs([6])),
        ("new", texts([Some("x")])),
        ("n", longs([1 << 40])),
    ]);
    let before = made.sorted();
    assert!(
        before.contains(&r#"6|"x"|1099511627776"#.to_owned()),
        "{before:?}"
    );
    made.optimize();
    let [file] = &made.files()[..] else { panic!() };
    assert_eq!(made.sorted(), before);
    let stats = file.add.stats.as_deref().unwrap();
    assert!(stats.contains("1099511627776"), "{stats}");
}

#[test]
fn files_elsewhere_are_left_as_they_are() {
    let made = Made::create(&Shape::ids());
    made.append_files(0..2);
    let outside = "file:///elsewhere/a.parquet";
    made.commit(&[
        json!({"add": {"path": outside, "partitionValues": {}, "size": 1, "modificationTime": 1,
        "dataChange": true}}),
    ]);
    let report = made.optimize();
    assert_eq!(number(&report, "numRemovedFiles"), Some(2));
    assert!(report.note.unwrap().contains("1 files outside"));
    let paths: Vec<String> = made.files().iter().map(|f| f.add.path.clone()).collect();
    assert!(
        paths.len() == 2 && paths.iter().any(|p| p == outside),
        "{paths:?}"
    );
}

#[test]
fn clustered_files_stay_and_the_others_do_not() {
    let shape = Shape::ids().feature("clustering").feature("domainMetadata");
    let made = Made::create(&shape);
    let columns = json!({"clusteringColumns": [["id"]]}).to_string();
    made.commit(&[
        json!({"domainMetadata": {"domain": "delta.clustering", "configuration": columns,
        "removed": false}}),
    ]);
    made.append_files(0..4);
    for file in &made.files()[..2] {
        let mut add = serde_json::to_value(&file.add).unwrap();
        add["clusteringProvider"] = json!("liquid");
        made.commit(&[json!({ "add": add })]);
    }
    let report = made.optimize();
    assert_eq!(number(&report, "numRemovedFiles"), Some(2));
    assert!(report.note.unwrap().contains("2 files that are clustered"));
    let providers = made
        .files()
        .into_iter()
        .map(|f| f.add.clustering_provider.clone());
    assert_eq!(providers.filter(Option::is_none).count(), 1);
    made.holds(0..40);
}

#[test]
fn an_append_only_table_is_compacted() {
    let shape = Shape::ids().feature("appendOnly");
    let made = Made::create(&shape.property("delta.appendOnly", "true"));
    made.append_files(0..3);
    assert!(made.optimize().version.is_some());
    made.holds(0..30);
}

#[test]
fn what_can_not_be_read_fails_all_and_leaves_nothing_behind() {
    let shape = Shape::ids().column("p", "string").partitioned_by(&["p"]);
    let made = Made::create(&shape);
    for round in 0..2 {
        let p = texts([Some("a"), Some("b")]);
        made.append(vec![("id", longs([round, round + 10])), ("p", p)]);
    }
    let version = made.version();
    let lost = made
        .files()
        .into_iter()
        .find(|f| f.visible.starts_with("p=b"))
        .unwrap();
    std::fs::remove_file(made.path().join(lost.path.key())).unwrap();
    let error = made.try_optimize(None, &made.newest()).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains(lost.path.key()), "{error}");
    assert_eq!(made.version(), version);
    made.has_no_orphans();
    // The other partition is well.
    made.try_optimize(Some("p = 'a'"), &made.newest()).unwrap();
    assert_eq!(made.version(), version + 1);
}

#[test]
fn a_table_that_we_can_not_write_is_refused() {
    let made = Made::create(&Shape::ids().feature("noSuchFeature"));
    let error = made.try_optimize(None, &made.newest()).unwrap_err();
    assert!(
        matches!(&error, OpError::Table(TableError::Feature { .. })),
        "{error}"
    );
}

#[test]
fn options_go_into_the_commit_and_once_is_enough() {
    let made = Made::create(&Shape::ids());
    made.append_files(0..2);
    let options = Options {
        user_metadata: Some("nightly".to_owned()),
        txn: Some(("job".to_owned(), 7)),
        retries: 0,
    };
    let request = Optimize {
        predicate: None,
        options: &options,
    };
    let run = || optimize(&made.open(), &request, None, &|| made.scratch()).unwrap();
    assert_eq!(run().version, Some(3));
    assert_eq!(made.actions(3, "commitInfo")[0]["userMetadata"], "nightly");
    assert_eq!(made.actions(3, "txn")[0]["version"], 7);
    made.append_files(2..4);
    let again = run();
    assert_eq!(again.version, None);
    assert!(again.note.unwrap().contains("job"));
    assert_eq!(made.files().len(), 3);
}
