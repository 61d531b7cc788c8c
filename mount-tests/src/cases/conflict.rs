//! Statements that overlap: what a handle has read when it was opened, who is in whose way, and how it is said.

use std::fs::File;
use std::io::Write as _;

use serde_json::{Value, json};

use crate::batch::orders;
use crate::builder::commit;
use crate::case::{Cx, cases};
use crate::shell::EBUSY;
use crate::table::Table;

use super::delete::{CTL, delete};
use super::dropping::{base_and, target};

cases!("conflict":
    a_statement_reads_what_was_there_at_open,
    serializable_sees_the_append,
    the_same_row,
    other_rows_of_the_same_file,
    eight_deleters_of_one_file,
    partitions_apart_and_the_same,
    another_schema,
    another_protocol,
    retries,
    a_transaction_of_an_application_once,
    the_document_of_a_lost_race,
);

/// Opens the verb: from now on it reads this version.
fn open(cx: &Cx) -> File {
    let verb = File::options().write(true).open(cx.path(CTL));
    verb.unwrap()
}

fn last(cx: &Cx) -> Value {
    serde_json::from_str(&cx.sh("cat mnt/t/.delta/last").ok()).unwrap()
}

#[track_caller]
fn refused(cx: &Cx, handle: &mut File, statement: &str) -> Value {
    let error = handle.write_all(statement.as_bytes()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY), "{error}");
    last(cx)
}

fn a_statement_reads_what_was_there_at_open(cx: &Cx) {
    let t = target(cx);
    let mut held = open(cx);
    cx.sh("cp in/x.parquet mnt/t/").ok();
    held.write_all(b"id >= 0\n").unwrap();
    // WriteSerializable: as if the file had come afterwards.
    t.holds(2, 100..110);
    let info = t.table.commit_info(2);
    assert_eq!(info["readVersion"], 0, "{info}");
    assert_eq!(info["operationMetrics"]["numDeletedRows"], "10", "{info}");
}

fn serializable(cx: &Cx) -> Table {
    let builder = cx.builder("t").orders();
    let builder = builder.property("delta.isolationLevel", "Serializable");
    builder.file("f.parquet", &orders(0..10)).create()
}

fn serializable_sees_the_append(cx: &Cx) {
    let table = serializable(cx);
    cx.input("x.parquet", &orders(100..110));
    let _m = cx.mount();
    let mut held = open(cx);
    cx.sh("cp in/x.parquet mnt/t/").ok();
    let said = refused(cx, &mut held, "id >= 5\n");
    assert_eq!(said["exception"], "ConcurrentAppendException", "{said}");
    assert_eq!(
        (&said["winner"]["version"], &said["rows"]),
        (&json!(1), &json!(10)),
        "{said}"
    );
    assert_eq!(table.ids(), base_and(100..110));
    // Rows that it does not select are in nobody's way.
    let mut held = open(cx);
    cx.input("y.parquet", &orders(200..203));
    cx.sh("cp in/y.parquet mnt/t/").ok();
    held.write_all(b"id < 5\n").unwrap();
    let left = (5..10).chain(100..110).chain(200..203);
    assert_eq!(table.ids(), left.collect::<Vec<i64>>());
    assert_eq!(table.commit_info(3)["isolationLevel"], "Serializable");
}

fn the_same_row(cx: &Cx) {
    let t = target(cx);
    let mut held = open(cx);
    delete(cx, "id = 3");
    let said = refused(cx, &mut held, "id < 5\n");
    assert_eq!(said["exception"], "ConcurrentDeleteReadException", "{said}");
    assert_eq!(
        (&said["reason"], &said["rows"]),
        (&json!("ROW_LEVEL_CHANGES"), &json!(1))
    );
    t.holds(1, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
    // Its vector file is gone with it.
    assert_eq!(cx.sh("ls wh/t | grep -c '^deletion_vector_'").ok(), "1\n");
}

fn other_rows_of_the_same_file(cx: &Cx) {
    let t = target(cx);
    let (mut one, mut other) = (open(cx), open(cx));
    delete(cx, "id = 3");
    one.write_all(b"id = 7\n").unwrap();
    other.write_all(b"id > 7\n").unwrap();
    t.holds(3, [0, 1, 2, 4, 5, 6]);
    let added = t.table.actions(3, "add");
    assert_eq!(added[0]["deletionVector"]["cardinality"], 4, "{added:?}");
    // The vectors that lost the first race are not left behind.
    assert_eq!(cx.sh("ls wh/t | grep -c '^deletion_vector_'").ok(), "3\n");
}

fn eight_deleters_of_one_file(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .file("f.parquet", &orders(0..80))
        .create();
    let _a = cx.mount_at("wh", "a", &[]);
    let _b = cx.mount_at("wh", "b", &[]);
    let one = |k: i64| {
        let m = if k % 2 == 0 { "a" } else { "b" };
        let script = format!(
            "for i in {{0..4}}; do echo \"id = $((i * 8 + {k}))\" > {m}/t/.delta/ctl/delete || exit 1; done"
        );
        cx.sh(&script)
    };
    let all = (0..8).map(|k| -> Box<dyn FnOnce() -> _ + Send> { Box::new(move || one(k)) });
    for ran in cx.together(all.collect()) {
        ran.ok();
    }
    assert_eq!(table.ids(), (40..80).collect::<Vec<i64>>());
    assert_eq!(table.version(), 40);
    table.assert_contiguous();
    assert_eq!(table.state().only()["deletionVector"]["cardinality"], 40);
}

fn partitions_apart_and_the_same(cx: &Cx) {
    let table = cx.builder("t").orders().partitioned_by(&["name"]);
    let table = table
        .file_in("a.parquet", &orders(0..5), &[("name", Some("a"))])
        .file_in("b.parquet", &orders(5..10), &[("name", Some("b"))])
        .create();
    let _m = cx.mount();
    let (mut apart, mut same) = (open(cx), open(cx));
    delete(cx, "name = 'a' AND id = 1");
    apart.write_all(b"name = 'b' AND id = 6\n").unwrap();
    let said = refused(cx, &mut same, "name = 'a' AND id = 2\n");
    assert_eq!(said["exception"], "ConcurrentAppendException", "{said}");
    assert_eq!(said["reason"], "FILE_LEVEL_CHANGES", "{said}");
    assert!(
        said["hint"].as_str().unwrap().contains("partition"),
        "{said}"
    );
    assert_eq!(table.ids(), [0, 2, 3, 4, 5, 7, 8, 9]);
}

fn another_schema(cx: &Cx) {
    let t = target(cx);
    let mut held = open(cx);
    let mut metadata = t.table.actions(0, "metaData")[0].clone();
    metadata["description"] = json!("changed");
    let info = json!({"commitInfo": {"operation": "CHANGE COLUMN", "timestamp": 5}});
    commit(&t.table, &[info, json!({ "metaData": metadata })]);
    let said = refused(cx, &mut held, "id < 5\n");
    assert_eq!(said["exception"], "MetadataChangedException", "{said}");
    assert_eq!(said["winner"]["operation"], "CHANGE COLUMN", "{said}");
    // An append is checked against the new one.
    cx.sh("cp in/x.parquet mnt/t/").ok();
    t.holds(2, base_and(100..110));
}

fn another_protocol(cx: &Cx) {
    let t = target(cx);
    let mut held = open(cx);
    let mut protocol = t.table.actions(0, "protocol")[0].clone();
    let features = protocol["writerFeatures"].as_array_mut().unwrap();
    features.push(json!("appendOnly"));
    commit(&t.table, &[json!({ "protocol": protocol })]);
    let said = refused(cx, &mut held, "id < 5\n");
    assert_eq!(said["exception"], "ProtocolChangedException", "{said}");
    assert_eq!(t.table.ids(), base_and(0..0));
}

fn retries(cx: &Cx) {
    let t = target(cx);
    let mut held = open(cx);
    delete(cx, "id = 3");
    held.write_all(b"-- retries: 2\nid < 5\n").unwrap();
    t.holds(2, 5..10);
    assert_eq!(t.table.commit_info(2)["readVersion"], 1);
}

fn a_transaction_of_an_application_once(cx: &Cx) {
    let t = target(cx);
    let run = |version: u64, predicate: &str| {
        cx.sh(&format!(
            "cat > {CTL} <<'E'\n-- txnAppId: nightly\n-- txnVersion: {version}\n{predicate}\nE"
        ))
        .ok()
    };
    run(7, "id = 1");
    let txn = &t.table.actions(1, "txn")[0];
    assert_eq!(
        (&txn["appId"], &txn["version"]),
        (&json!("nightly"), &json!(7))
    );
    run(7, "id = 2");
    run(6, "id = 2");
    t.holds(1, [0, 2, 3, 4, 5, 6, 7, 8, 9]);
    let said = last(cx);
    assert_eq!(said["outcome"], "nothing to do", "{said}");
    assert!(said["note"].as_str().unwrap().contains("nightly"), "{said}");
    run(8, "id = 2");
    t.holds(2, [0, 3, 4, 5, 6, 7, 8, 9]);
}

/// Exit status, error text, the verb's file and `last` say the same.
fn the_document_of_a_lost_race(cx: &Cx) {
    let t = target(cx);
    let script = format!(
        "exec 5>{CTL}; echo 'id = 3' > {CTL}; echo 'id IN (3, 4)' >&5 || echo \"status $?\""
    );
    let ran = cx.sh(&script);
    assert!(ran.err.contains(EBUSY), "{ran}");
    assert!(ran.out.contains("status 1"), "{ran}");
    let said = last(cx);
    let verb: Value = serde_json::from_str(&cx.sh(&format!("cat {CTL}")).ok()).unwrap();
    assert_eq!(said, verb);
    assert_eq!(
        (&said["outcome"], &said["error"]),
        (&json!("failed"), &json!("conflict"))
    );
    let message = said["message"].as_str().unwrap();
    for part in [
        "ConcurrentDeleteReadException",
        "version 1 (DELETE",
        "1 row of",
    ] {
        assert!(message.contains(part), "{part}: {said}");
    }
    let file = said["file"].as_str().unwrap();
    assert_eq!(t.table.actions(1, "add")[0]["path"], file, "{said}");
    assert!(
        said["winner"]["timestamp"]
            .as_str()
            .unwrap()
            .starts_with("20"),
        "{said}"
    );
    assert!(
        said["hint"].as_str().unwrap().contains("run it again"),
        "{said}"
    );
    t.holds(1, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
}
