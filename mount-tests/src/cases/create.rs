//! `mkdir t && cp x.parquet t/`: a table from its first file.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, Time64MicrosecondArray, TimestampNanosecondArray};
use serde_json::json;

use crate::batch::{bools, columns, dates, decimals, doubles, ints, longs, micros, orders, texts};
use crate::case::{Cx, cases};
use crate::mount::Mount;
use crate::shell::Ran;
use crate::table::Table;

cases!("create":
    first_file_makes_a_table,
    types_of_the_first_file,
    timestamp_ntz_is_listed_when_needed,
    by_rename_and_by_rsync,
    in_a_nested_directory,
    minimal_features,
    unsupported_type_makes_no_table,
    broken_first_file_makes_no_table,
    bad_column_names_make_no_table,
    first_file_without_rows,
    two_creators_at_once,
    eight_creators_on_two_mounts,
    partitioned_tree_is_not_guessed,
    directory_with_foreign_files,
    usable_at_once,
);

fn create(cx: &Cx, rows: &arrow::record_batch::RecordBatch) -> (Table, Mount) {
    cx.input("x.parquet", rows);
    let m = cx.mount();
    cx.sh("mkdir mnt/t; cp in/x.parquet mnt/t/").ok();
    (cx.table("t"), m)
}

fn first_file_makes_a_table(cx: &Cx) {
    let (table, _m) = create(cx, &orders(0..10));
    assert_eq!(table.versions(), [0], "one commit makes table and rows");
    assert_eq!(table.ids(), (0..10).collect::<Vec<_>>());
    let state = table.state();
    assert_eq!(state.protocol["minReaderVersion"], 3);
    assert_eq!(state.protocol["minWriterVersion"], 7);
    assert_eq!(state.features("readerFeatures"), ["deletionVectors"]);
    // A table that reaches writer version 7 lists what the versions below implied and it may use.
    let writer = state.features("writerFeatures");
    for feature in ["appendOnly", "deletionVectors", "invariants"] {
        assert!(
            writer.iter().any(|f| f == feature),
            "{feature} is not listed: {writer:?}"
        );
    }
    for foreign in [
        "columnMapping",
        "inCommitTimestamp",
        "rowTracking",
        "v2Checkpoint",
    ] {
        assert!(
            !writer.iter().any(|f| f == foreign),
            "other systems stumble on {foreign}"
        );
    }
    assert_eq!(state.property("delta.enableDeletionVectors"), Some("true"));
    assert_eq!(state.property("deltafs.autoUpgrade"), Some("true"));
    assert_eq!(state.metadata["partitionColumns"], json!([]));
    assert_eq!(state.metadata["format"]["provider"], "parquet");
    assert!(state.metadata["createdTime"].is_u64());
    let info = table.commit_info(0);
    assert!(
        info["timestamp"].is_u64() && info["operation"].is_string(),
        "{info}"
    );
    cx.sh("cmp in/x.parquet mnt/t/x.parquet; test \"$(ls -A mnt/t)\" = x.parquet; test \"$(cat mnt/t/.delta/version)\" = 0").ok();
}

fn types_of_the_first_file(cx: &Cx) {
    let (table, _m) = create(
        cx,
        &columns(vec![
            ("l", longs([1])),
            ("i", ints([1])),
            ("d", doubles([1.0])),
            ("b", bools([true])),
            ("s", texts(["x"])),
            ("day", dates([0])),
            ("price", decimals(12, 3, &[Some(1)])),
            ("at", micros(Some("UTC"), &[Some(0)])),
        ]),
    );
    let schema = table.state().schema();
    let fields = schema["fields"].as_array().unwrap().iter();
    let types: Vec<String> = fields
        .map(|f| {
            format!(
                "{} {}",
                f["name"].as_str().unwrap(),
                f["type"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        types,
        [
            "l long",
            "i integer",
            "d double",
            "b boolean",
            "s string",
            "day date",
            "price decimal(12,3)",
            "at timestamp"
        ]
    );
    assert_eq!(table.rows(), ["1|1|1.0|true|x|1970-01-01|0.001|0us"]);
}

fn timestamp_ntz_is_listed_when_needed(cx: &Cx) {
    let (table, _m) = create(cx, &columns(vec![("at", micros(None, &[Some(1)]))]));
    let state = table.state();
    assert_eq!(state.schema()["fields"][0]["type"], "timestamp_ntz");
    for kind in ["readerFeatures", "writerFeatures"] {
        let features = state.features(kind);
        assert!(
            features.iter().any(|f| f == "timestampNtz"),
            "{kind}: {features:?}"
        );
    }
    // Nanoseconds, as pandas writes them: no Delta type has them, microseconds keep these.
    let nanos = Arc::new(TimestampNanosecondArray::from(vec![5000])) as ArrayRef;
    cx.input("n.parquet", &columns(vec![("at", nanos)]));
    cx.sh("mkdir mnt/n; cp in/n.parquet mnt/n/").ok();
    assert_eq!(cx.table("n").rows(), ["5us"]);
}

fn by_rename_and_by_rsync(cx: &Cx) {
    cx.input("x.parquet", &orders(0..3));
    let _m = cx.mount();
    cx.sh("mkdir mnt/a mnt/b; cp in/x.parquet mnt/a/x.tmp; mv mnt/a/x.tmp mnt/a/x.parquet")
        .ok();
    assert_eq!(cx.table("a").ids(), [0, 1, 2]);
    cx.need("rsync");
    cx.sh("rsync -a in/ mnt/b/; rsync -a in/ mnt/c/").ok();
    assert_eq!(cx.table("b").ids(), [0, 1, 2]);
    assert_eq!(cx.table("c").ids(), [0, 1, 2]);
}

fn in_a_nested_directory(cx: &Cx) {
    cx.input("x.parquet", &orders(0..3));
    let _m = cx.mount();
    cx.sh("mkdir -p mnt/a/b/t; cp in/x.parquet mnt/a/b/t/; cp in/x.parquet mnt/a/b/t/y.parquet")
        .ok();
    assert_eq!(cx.table("a/b/t").version(), 1);
    // What holds tables is not going to be one.
    let ran = cx.sh("cp in/x.parquet mnt/a/b/");
    assert!(!ran.succeeded(), "{ran}");
}

fn minimal_features(cx: &Cx) {
    cx.input("x.parquet", &orders(0..10));
    let _m = cx.mount_with(&["--table-features=minimal"]);
    cx.sh("mkdir mnt/t; cp in/x.parquet mnt/t/; echo 'id < 4' > mnt/t/.delta/ctl/delete")
        .ok();
    let table = cx.table("t");
    let state = table.state();
    let text = format!("{} {}", state.protocol, state.metadata["configuration"]);
    assert!(!text.contains("eletionVectors"), "{text}");
    assert_eq!(table.ids(), (4..10).collect::<Vec<_>>());
    assert!(state.only()["deletionVector"].is_null());
}

#[track_caller]
fn makes_no_table(cx: &Cx, ran: &Ran) {
    assert!(!ran.succeeded(), "{ran}");
    assert!(!cx.table("t").exists(), "a refused first file left a log");
    assert!(cx.path("mnt/t").is_dir(), "the directory stays");
}

fn unsupported_type_makes_no_table(cx: &Cx) {
    let time = Arc::new(Time64MicrosecondArray::from(vec![1])) as ArrayRef;
    cx.input(
        "x.parquet",
        &columns(vec![("id", longs([1])), ("clock", time)]),
    );
    let _m = cx.mount();
    let ran = cx.sh("mkdir mnt/t; cp in/x.parquet mnt/t/");
    makes_no_table(cx, &ran);
    // The directory is free for a better file.
    cx.input("good.parquet", &orders(0..3));
    cx.sh("cp in/good.parquet mnt/t/").ok();
    assert_eq!(cx.table("t").ids(), [0, 1, 2]);
}

fn broken_first_file_makes_no_table(cx: &Cx) {
    cx.input("x.parquet", &orders(0..10));
    let _m = cx.mount();
    let ran =
        cx.sh("mkdir mnt/t; head -c 500 in/x.parquet > in/half.parquet; cp in/half.parquet mnt/t/");
    makes_no_table(cx, &ran);
    cx.sh("touch mnt/t/x.parquet; : > mnt/t/y.parquet").ok();
    assert!(!cx.table("t").exists());
}

/// PROTOCOL.md C: names that need column mapping, and names that differ only in case.
fn bad_column_names_make_no_table(cx: &Cx) {
    let _m = cx.mount();
    cx.sh("mkdir mnt/t").ok();
    for (one, other) in [
        ("id", "two words"),
        ("id", "a,b"),
        ("id", "x=y"),
        ("id", "ID"),
    ] {
        cx.input(
            "x.parquet",
            &columns(vec![(one, longs([1])), (other, longs([2]))]),
        );
        let ran = cx.sh("cp in/x.parquet mnt/t/");
        makes_no_table(cx, &ran);
    }
}

/// A schema without rows is still a schema.
fn first_file_without_rows(cx: &Cx) {
    cx.input("x.parquet", &orders(0..0));
    cx.input("y.parquet", &orders(0..3));
    let _m = cx.mount();
    cx.sh("mkdir mnt/t; cp in/x.parquet mnt/t/; cp in/y.parquet mnt/t/")
        .ok();
    let table = cx.table("t");
    assert_eq!(table.ids(), [0, 1, 2]);
    assert_eq!(table.state().live().count(), 1);
}

/// D11: one table, and whatever was acknowledged is in it.
fn two_creators_at_once(cx: &Cx) {
    cx.input("a.parquet", &orders(0..10));
    cx.input("b.parquet", &orders(10..20));
    let _a = cx.mount_at("wh", "a", &[]);
    let _b = cx.mount_at("wh", "b", &[]);
    for round in 0..5 {
        let one = |mount: &'static str| {
            cx.sh(&format!(
                "mkdir -p {mount}/t{round}; cp in/{mount}.parquet {mount}/t{round}/"
            ))
        };
        let ran = cx.together(vec![Box::new(|| one("a")), Box::new(|| one("b"))]);
        let table = cx.table(&format!("t{round}"));
        table.assert_contiguous();
        let ids: BTreeSet<String> = table
            .versions()
            .into_iter()
            .flat_map(|v| table.actions(v, "metaData"))
            .map(|metadata| metadata["id"].to_string())
            .collect();
        assert_eq!(ids.len(), 1, "one table id: {ids:?}");
        let mut expected = Vec::new();
        if ran[0].succeeded() {
            expected.extend(0..10);
        }
        if ran[1].succeeded() {
            expected.extend(10..20);
        }
        assert!(!expected.is_empty(), "{} {}", ran[0], ran[1]);
        assert_eq!(
            table.ids(),
            expected,
            "what was acknowledged: {} {}",
            ran[0],
            ran[1]
        );
    }
}

fn eight_creators_on_two_mounts(cx: &Cx) {
    let _a = cx.mount_at("wh", "a", &[]);
    let _b = cx.mount_at("wh", "b", &[]);
    for i in 0..8 {
        cx.input(&format!("f{i}.parquet"), &orders(i * 10..i * 10 + 10));
    }
    let ran = cx
        .sh("
        for i in 0 1 2 3 4 5 6 7; do
            m=a; [ $((i % 2)) = 1 ] && m=b
            (mkdir -p $m/t && cp in/f$i.parquet $m/t/ && echo $i >> done) &
        done
        wait; sort -n done")
        .ok();
    let table = cx.table("t");
    table.assert_contiguous();
    let expected: Vec<i64> = ran
        .lines()
        .flat_map(|i| {
            let first = i.parse::<i64>().unwrap() * 10;
            first..first + 10
        })
        .collect();
    assert_eq!(table.ids(), expected);
}

/// Without a table there are no partition columns: `k=v` below a plain directory is a plain directory.
fn partitioned_tree_is_not_guessed(cx: &Cx) {
    cx.input("x.parquet", &orders(0..3));
    let _m = cx.mount();
    let ran = cx.sh("mkdir -p mnt/t/country=DE && cp in/x.parquet mnt/t/country=DE/");
    if ran.succeeded() {
        assert!(
            !cx.table("t").exists(),
            "the parent of a plain directory is no table"
        );
    }
}

/// Only an empty directory becomes a table.
fn directory_with_foreign_files(cx: &Cx) {
    cx.input("x.parquet", &orders(0..3));
    cx.sh("mkdir wh/t; echo words > wh/t/notes.txt").ok();
    let _m = cx.mount();
    let ran = cx.sh("cp in/x.parquet mnt/t/");
    if ran.succeeded() {
        assert_eq!(cx.table("t").ids(), [0, 1, 2]);
    } else {
        assert!(!cx.table("t").exists());
    }
    assert_eq!(cx.sh("cat wh/t/notes.txt").ok(), "words\n");
}

fn usable_at_once(cx: &Cx) {
    let (table, m) = create(cx, &orders(0..10));
    cx.sh("ls mnt/t/.delta/ctl; echo 'id = 1' > mnt/t/.delta/ctl/delete; cp in/x.parquet mnt/t/y.parquet; rm mnt/t/y.parquet").ok();
    assert_eq!(table.version(), 3);
    assert_eq!(table.ids(), [0, 2, 3, 4, 5, 6, 7, 8, 9]);
    m.umount();
    let _m = cx.mount();
    assert_eq!(cx.sh("cat mnt/t/.delta/version").ok(), "3\n");
}
