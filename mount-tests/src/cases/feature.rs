//! What a table's protocol, constraints and properties demand of a writer: honoured, or refused by name.

use serde_json::json;

use crate::batch::{columns, doubles, longs, orders, texts};
use crate::builder::{field, with_metadata};
use crate::case::{Cx, cases};
use crate::shell::{EINVAL, EOPNOTSUPP, EPERM};

use super::dropping::{accepts, refuses};

cases!("feature":
    unknown_writer_feature_refuses_writes_only,
    refusals_are_told_in_last,
    unknown_reader_feature_refuses_reads,
    future_reader_version_refused,
    append_only,
    check_constraint,
    check_constraint_null_is_not_true,
    invariant,
    generated_column,
    identity_column,
    column_default,
    legacy_protocols,
    catalog_managed_refused,
    foreign_actions_are_kept,
    change_data_feed_is_not_broken,
);

fn unknown_writer_feature_refuses_writes_only(cx: &Cx) {
    let table = cx
        .builder("t")
        .features(&[], &["fancyFuture"])
        .orders()
        .file("base.parquet", &orders(0..10))
        .create();
    let _m = cx.mount();
    cx.sh("cmp mnt/t/base.parquet wh/t/base.parquet; cat mnt/t/.delta/info.json")
        .ok();
    cx.input("x.parquet", &orders(100..110));
    for script in [
        "cp in/x.parquet mnt/t/",
        "cp in/x.parquet mnt/t/base.parquet",
        "rm mnt/t/base.parquet",
        "echo 'id = 1' > mnt/t/.delta/ctl/delete",
    ] {
        cx.sh(script).fails(EOPNOTSUPP);
    }
    assert_eq!(table.version(), 0);
    assert!(
        cx.sh("cat mnt/t/.delta/info.json")
            .ok()
            .contains("fancyFuture")
    );
}

/// STYLE 11: what a refusal says is readable in `last`, whichever request was refused.
fn refusals_are_told_in_last(cx: &Cx) {
    cx.builder("dv")
        .orders()
        .file_with_vector("dv.parquet", &orders(0..10), &[2, 3])
        .create();
    let future = cx
        .builder("future")
        .features(&[], &["fancyFuture"])
        .orders();
    future.file("base.parquet", &orders(0..10)).create();
    let plain = cx.builder("plain").orders();
    plain.file("base.parquet", &orders(0..10)).create();
    cx.input("x.parquet", &orders(100..110));
    let _m = cx.mount();
    cx.sh("echo no > mnt/plain/.x").ok();
    let mut silent = Vec::new();
    for (table, script, word) in [
        ("dv", "cat mnt/dv/dv.parquet", "deletion vector"),
        ("future", "cp in/x.parquet mnt/future/", "fancyFuture"),
        ("future", "rm mnt/future/base.parquet", "fancyFuture"),
        ("plain", "mv mnt/plain/.x mnt/plain/x.parquet", "Parquet"),
        ("plain", "echo x >> mnt/plain/base.parquet", "append"),
    ] {
        let ran = cx.sh(script);
        assert!(!ran.succeeded(), "{ran}");
        let last = cx.sh(&format!("cat mnt/{table}/.delta/last")).ok();
        if !last.contains(word) {
            silent.push(format!("{script}: {last}"));
        }
    }
    assert!(silent.is_empty(), "no word in `last`:\n{}", silent.join(""));
}

fn unknown_reader_feature_refuses_reads(cx: &Cx) {
    cx.builder("t")
        .features(&["fancyFuture"], &["fancyFuture"])
        .orders()
        .file("base.parquet", &orders(0..10))
        .create();
    cx.builder("good")
        .orders()
        .file("good.parquet", &orders(0..10))
        .create();
    let _m = cx.mount();
    let ran = cx.sh("cat mnt/t/base.parquet");
    ran.fails(EOPNOTSUPP);
    cx.sh("cmp mnt/good/good.parquet wh/good/good.parquet; ls mnt")
        .ok();
    let hint = cx
        .sh("cat mnt/t/.delta/last mnt/t/.delta/info.json 2>/dev/null || true")
        .ok();
    assert!(hint.contains("fancyFuture"), "the feature is named: {hint}");
}

fn future_reader_version_refused(cx: &Cx) {
    cx.builder("t")
        .orders()
        .file("base.parquet", &orders(0..10))
        .create();
    let log = cx.table("t").commit_path(0);
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(
        &log,
        text.replace("\"minReaderVersion\":3", "\"minReaderVersion\":99"),
    )
    .unwrap();
    let _m = cx.mount();
    cx.sh("ls mnt").ok();
    cx.sh("cat mnt/t/base.parquet").fails(EOPNOTSUPP);
}

/// D74.
fn append_only(cx: &Cx) {
    let table = cx
        .builder("t")
        .features(&[], &["appendOnly"])
        .property("delta.appendOnly", "true")
        .orders()
        .file("base.parquet", &orders(0..10))
        .create();
    let _m = cx.mount();
    accepts(cx, "x.parquet", &orders(100..110));
    for script in [
        "rm mnt/t/base.parquet",
        "cp in/x.parquet mnt/t/base.parquet",
        "echo 'id = 1' > mnt/t/.delta/ctl/delete",
        "echo TRUE > mnt/t/.delta/ctl/delete",
    ] {
        cx.sh(script).fails(EPERM);
        let last = cx.sh("cat mnt/t/.delta/last").ok();
        assert!(last.contains("ppend"), "`last` says why: {last}");
    }
    assert_eq!(table.version(), 1);
    cx.eventually("the live file shows", || {
        cx.sh("cmp mnt/t/base.parquet wh/t/base.parquet")
            .succeeded()
    });
}

fn with_check(cx: &Cx) {
    cx.builder("t")
        .features(&[], &["checkConstraints"])
        .property("delta.constraints.positive", "amount > 0")
        .property("delta.constraints.named", "name IS NOT NULL OR `id` >= 0")
        .orders()
        .create();
}

fn check_constraint(cx: &Cx) {
    with_check(cx);
    let _m = cx.mount();
    accepts(cx, "good.parquet", &orders(1..10));
    refuses(cx, "bad.parquet", &orders(0..10), &["positive"]);
    assert_eq!(cx.table("t").ids(), (1..10).collect::<Vec<_>>());
}

/// D72: the protocol wants true; NULL isn't.
fn check_constraint_null_is_not_true(cx: &Cx) {
    with_check(cx);
    let _m = cx.mount();
    let rows = columns(vec![
        ("id", longs([1, 2])),
        ("name", texts(["a", "b"])),
        ("amount", doubles([Some(1.0), None])),
    ]);
    refuses(cx, "null.parquet", &rows, &["positive"]);
}

/// D73.
fn invariant(cx: &Cx) {
    let rule = json!({"expression": {"expression": "id > 3"}}).to_string();
    cx.builder("t")
        .legacy(2)
        .fields(vec![with_metadata(
            field("id", "long"),
            "delta.invariants",
            rule,
        )])
        .create();
    let _m = cx.mount();
    accepts(cx, "good.parquet", &columns(vec![("id", longs([4, 5]))]));
    refuses(
        cx,
        "bad.parquet",
        &columns(vec![("id", longs([4, 3]))]),
        &["id"],
    );
    refuses(
        cx,
        "null.parquet",
        &columns(vec![("id", longs([Some(4), None]))]),
        &["id"],
    );
}

/// Whether a feature is implemented or refused: a value that the table's rule does not give is never stored.
#[track_caller]
fn honoured_or_refused(cx: &Cx, feature: &str, good: &[&str]) {
    cx.input("x.parquet", &columns(vec![("id", longs([1, 2]))]));
    let ran = cx.sh("cp in/x.parquet mnt/t/");
    if ran.succeeded() {
        assert_eq!(cx.table("t").rows(), good);
    } else {
        assert!(
            ran.err.contains(EOPNOTSUPP) || ran.err.contains(EINVAL),
            "{ran}"
        );
        let said = cx.sh("cat mnt/t/.delta/last mnt/t/.delta/info.json").ok();
        assert!(said.contains(feature), "the feature is named: {said}");
        assert_eq!(cx.table("t").version(), 0);
    }
}

fn generated_column(cx: &Cx) {
    let double = field("double", "long");
    cx.builder("t")
        .features(&[], &["generatedColumns"])
        .fields(vec![
            field("id", "long"),
            with_metadata(double, "delta.generationExpression", "id * 2"),
        ])
        .create();
    let _m = cx.mount();
    honoured_or_refused(cx, "generatedColumns", &["1|2", "2|4"]);
    let wrong = columns(vec![("id", longs([1])), ("double", longs([3]))]);
    cx.input("wrong.parquet", &wrong);
    let ran = cx.sh("cp in/wrong.parquet mnt/t/");
    assert!(
        !ran.succeeded(),
        "a value that the expression doesn't give: {ran}"
    );
}

fn identity_column(cx: &Cx) {
    let mut key = field("key", "long");
    key["metadata"] = json!({"delta.identity.start": 10, "delta.identity.step": 5,
        "delta.identity.allowExplicitInsert": false});
    cx.builder("t")
        .features(&[], &["identityColumns"])
        .fields(vec![field("id", "long"), key])
        .create();
    let _m = cx.mount();
    honoured_or_refused(cx, "identityColumns", &["1|10", "2|15"]);
}

fn column_default(cx: &Cx) {
    cx.builder("t")
        .features(&[], &["allowColumnDefaults"])
        .fields(vec![
            field("id", "long"),
            with_metadata(field("state", "string"), "CURRENT_DEFAULT", "'new'"),
        ])
        .create();
    let _m = cx.mount();
    honoured_or_refused(cx, "allowColumnDefaults", &["1|new", "2|new"]);
}

fn legacy_protocols(cx: &Cx) {
    for writer in [1, 2] {
        let name = format!("w{writer}");
        let builder = cx.builder(&name).legacy(writer).orders();
        builder.file("base.parquet", &orders(0..10)).create();
    }
    cx.input("x.parquet", &orders(100..110));
    let _m = cx.mount();
    for name in ["w1", "w2"] {
        cx.sh(&format!("cp in/x.parquet mnt/{name}/; echo 'id < 5' > mnt/{name}/.delta/ctl/delete; rm mnt/{name}/x.parquet")).ok();
        let table = cx.table(name);
        assert_eq!(table.ids(), (5..10).collect::<Vec<_>>());
        let state = table.state();
        assert_eq!(
            state.protocol["minReaderVersion"], 1,
            "the protocol is left alone"
        );
        assert!(
            state.live().all(|add| add["deletionVector"].is_null()),
            "no vectors in a table without the feature"
        );
    }
}

fn catalog_managed_refused(cx: &Cx) {
    cx.builder("t")
        .features(&["catalogManaged"], &["catalogManaged"])
        .orders()
        .file("base.parquet", &orders(0..10))
        .create();
    cx.input("x.parquet", &orders(0..1));
    let _m = cx.mount();
    cx.sh("cat mnt/t/base.parquet").fails(EOPNOTSUPP);
    let ran = cx.sh("cp in/x.parquet mnt/t/");
    assert!(!ran.succeeded(), "{ran}");
    assert_eq!(cx.table("t").version(), 0);
}

/// Tags, transactions and domains of other writers are none of our business, and survive a checkpoint.
fn foreign_actions_are_kept(cx: &Cx) {
    let mut foreign = crate::builder::add("p.parquet", 10, 1, &[]);
    foreign["tags"] = json!({"INSERTION_TIME": "7", "odd": null});
    foreign["unknownField"] = json!({"a": 1});
    let table = cx
        .builder("t")
        .features(&[], &["domainMetadata"])
        .orders()
        .action("add", foreign)
        .action("txn", json!({"appId": "stream", "version": 7}))
        .action(
            "domainMetadata",
            json!({"domain": "user.x", "configuration": "{}", "removed": false}),
        )
        .action("futureAction", json!({"x": 1}))
        .create();
    let _m = cx.mount();
    accepts(cx, "x.parquet", &orders(0..3));
    assert_eq!(table.version(), 1);
    assert!(table.actions(1, "txn").is_empty() && table.actions(1, "domainMetadata").is_empty());
}

/// With the feed on, a DELETE with vectors and a copy-on-write one owe different things (PROTOCOL.md H).
fn change_data_feed_is_not_broken(cx: &Cx) {
    let table = cx
        .builder("t")
        .features(&[], &["changeDataFeed"])
        .property("delta.enableChangeDataFeed", "true")
        .property("delta.enableDeletionVectors", "false")
        .orders()
        .file("base.parquet", &orders(0..10))
        .create();
    let _m = cx.mount();
    let ran = cx.sh("echo 'id < 5' > mnt/t/.delta/ctl/delete");
    if ran.succeeded() {
        assert_eq!(
            table.actions(1, "cdc").len(),
            1,
            "a partial copy-on-write delete writes the feed"
        );
        assert_eq!(table.ids(), (5..10).collect::<Vec<_>>());
    } else {
        assert!(ran.err.contains(EOPNOTSUPP), "{ran}");
        assert_eq!(table.version(), 0);
    }
}
