//! Which rows a predicate deletes: Spark's SQL on the table's columns, NULL logic, pruning.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, Float32Array, Int8Array, Int16Array, StructArray};
use arrow::datatypes::{DataType, Field};
use serde_json::{Value, json};

use crate::batch::{columns, dates, decimals, doubles, ints, longs, micros, orders, texts};
use crate::builder::{add, field, structure};
use crate::case::{Cx, cases};
use crate::shell::EINVAL;
use crate::table::Table;

use super::delete::{CTL, delete};
use super::dropping::target;

cases!("predicate":
    everything,
    partition_only_reads_no_data,
    statistics_prune_files,
    nothing_to_delete,
    same_delete_twice,
    nulls,
    nested_fields,
    quoted_names,
    like_in_between_and_functions,
    literals_take_the_columns_type,
    timestamps_and_dates,
    partition_not_equal,
    long_in_list,
    comments_and_case,
    injection_refused,
);

fn everything(cx: &Cx) {
    let t = target(cx);
    delete(cx, "TRUE");
    t.holds(1, []);
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "");
    cx.sh("cp in/x.parquet mnt/t/").ok();
    t.holds(2, 100..110);
}

/// D41: the files do not even exist.
fn partition_only_reads_no_data(cx: &Cx) {
    let mut builder = cx
        .builder("t")
        .fields(vec![
            field("id", "long"),
            field("p", "string"),
            field("day", "date"),
        ])
        .partitioned_by(&["p", "day"]);
    for i in 0..200 {
        let (p, day) = (["a", "b"][i % 2], format!("2026-01-{:02}", i % 20 + 1));
        let values = [("p", Some(p)), ("day", Some(day.as_str()))];
        builder = builder.action("add", add(&format!("{i}.parquet"), 1000, 10, &values));
    }
    let table = builder.create();
    let _m = cx.mount();
    delete(cx, "day < '2026-01-11' AND p = 'a'");
    assert_eq!(table.actions(1, "remove").len(), 50);
    assert!(table.actions(1, "add").is_empty());
    delete(cx, "p = 'b' OR day IN ('2026-01-11', DATE '2026-01-13')");
    assert_eq!(table.state().live().count(), 30);
}

/// Files whose bounds exclude every row are not opened: here they do not exist.
fn statistics_prune_files(cx: &Cx) {
    let mut builder = cx
        .builder("t")
        .orders()
        .file("real.parquet", &orders(0..10));
    for i in 1..50_i64 {
        let mut action = add(&format!("fake-{i}.parquet"), 1000, 10, &[]);
        let stats = json!({"numRecords": 10, "minValues": {"id": i * 100}, "maxValues": {"id": i * 100 + 9},
            "nullCount": {"id": 0}});
        action["stats"] = json!(stats.to_string());
        builder = builder.action("add", action);
    }
    let table = builder.create();
    let _m = cx.mount();
    delete(cx, "id < 5 AND amount < 100");
    assert_eq!(table.actions(1, "add").len(), 1);
    assert_eq!(
        table.commit_info(1)["operationMetrics"]["numDeletedRows"],
        "5"
    );
    // One that has to be read and isn't there: an error, and nothing is committed.
    let ran = cx.sh(&format!("echo 'id = 105' > {CTL}"));
    assert!(!ran.succeeded(), "{ran}");
    assert_eq!(table.version(), 1);
}

fn nothing_to_delete(cx: &Cx) {
    let t = target(cx);
    delete(cx, "id > 1000");
    delete(cx, "FALSE");
    delete(cx, "id IS NULL");
    t.holds(0, 0..10);
}

/// D22.
fn same_delete_twice(cx: &Cx) {
    let t = target(cx);
    delete(cx, "id < 5");
    delete(cx, "id < 5");
    t.holds(1, 5..10);
    let last: Value = serde_json::from_str(&cx.sh("cat mnt/t/.delta/last").ok()).unwrap();
    assert!(last["error"].is_null(), "a success: {last}");
}

/// A table `t` of one file `f.parquet`, mounted.
fn table_of(
    cx: &Cx,
    fields: Vec<Value>,
    columns_: Vec<(&str, ArrayRef)>,
) -> (Table, crate::mount::Mount) {
    let table = cx
        .builder("t")
        .fields(fields)
        .file("f.parquet", &columns(columns_))
        .create();
    (table, cx.mount())
}

/// D40: a condition that is NULL deletes nothing.
fn nulls(cx: &Cx) {
    let (table, _m) = table_of(
        cx,
        vec![field("id", "long"), field("x", "long")],
        vec![
            ("id", longs([1, 2, 3, 4])),
            ("x", longs([Some(1), None, Some(3), None])),
        ],
    );
    for predicate in [
        "x > 100",
        "NOT (x < 100)",
        "x <> 1 AND x <> 3",
        "x = NULL",
        "NULL",
        "x NOT IN (1, 3)",
    ] {
        let ran = cx.sh(&format!("echo '{predicate}' > {CTL}"));
        assert!(ran.succeeded() || predicate == "NULL", "{ran}");
        assert_eq!(table.version(), 0, "{predicate}");
    }
    delete(cx, "x <> 1");
    assert_eq!(table.ids(), [1, 2, 4]);
    delete(cx, "x IS NULL AND id > 2");
    assert_eq!(table.ids(), [1, 2]);
    delete(cx, "x IS NOT DISTINCT FROM NULL");
    assert_eq!(table.ids(), [1]);
}

fn nested_fields(cx: &Cx) {
    let city = StructArray::from(vec![(
        Arc::new(Field::new("name", DataType::Utf8, true)),
        texts(["Rome", "Paris", "Berlin"]),
    )]);
    let addr = StructArray::from(vec![
        (
            Arc::new(Field::new("zip", DataType::Int64, true)),
            longs([1, 2, 3]),
        ),
        (
            Arc::new(Field::new("city", city.data_type().clone(), true)),
            Arc::new(city) as ArrayRef,
        ),
    ]);
    let (table, _m) = table_of(
        cx,
        vec![
            field("id", "long"),
            field(
                "addr",
                structure(vec![
                    field("zip", "long"),
                    field("city", structure(vec![field("name", "string")])),
                ]),
            ),
        ],
        vec![("id", longs([1, 2, 3])), ("addr", Arc::new(addr))],
    );
    delete(cx, "addr.zip = 2");
    assert_eq!(table.ids(), [1, 3]);
    delete(cx, "addr.city.name = 'Rome'");
    assert_eq!(table.ids(), [3]);
    cx.sh(&format!("echo 'addr.nosuch = 1' > {CTL}"))
        .fails(EINVAL);
}

/// D38.
fn quoted_names(cx: &Cx) {
    let names = [
        "id",
        "Y",
        "y--1",
        "a a",
        "1inch",
        "Product.Id",
        "select",
        "tick`s",
        "ü",
    ];
    let fields = names.iter().map(|name| field(name, "long")).collect();
    let columns = names.iter().map(|name| (*name, longs(0..20))).collect();
    let (table, _m) = table_of(cx, fields, columns);
    let mut left: BTreeSet<i64> = (0..20).collect();
    for (id, name) in (0..).zip(names) {
        delete(cx, &format!("`{}` = {id}", name.replace('`', "``")));
        left.remove(&id);
        assert_eq!(
            table.ids(),
            left.iter().copied().collect::<Vec<_>>(),
            "by `{name}`"
        );
    }
    delete(cx, "Y = 10 OR ID = 11");
    assert_eq!(
        table.ids(),
        [9, 12, 13, 14, 15, 16, 17, 18, 19],
        "names in any case"
    );
}

fn like_in_between_and_functions(cx: &Cx) {
    let t = target(cx);
    let mut left: Vec<i64> = (0..10).collect();
    for (predicate, gone) in [
        ("name LIKE '%3'", 3),
        ("name IN ('n4', 'zzz')", 4),
        ("id BETWEEN 5 AND 5", 5),
        ("upper(name) = 'N6'", 6),
        ("length(concat(name, 'x')) = 3 AND id = 7", 7),
        ("CASE WHEN id = 8 THEN TRUE ELSE FALSE END", 8),
        ("coalesce(nullif(id, 9), -1) = -1", 9),
        ("abs(id - 2) < 1", 2),
        ("NOT (id <> 1)", 1),
    ] {
        delete(cx, predicate);
        left.retain(|id| *id != gone);
        assert_eq!(t.table.ids(), left, "after {predicate}");
    }
}

/// D44: a bare literal has the column's type, and one that doesn't fit matches nothing.
fn literals_take_the_columns_type(cx: &Cx) {
    let (table, _m) = table_of(
        cx,
        vec![
            field("id", "long"),
            field("b", "byte"),
            field("s", "short"),
            field("i", "integer"),
            field("f", "float"),
            field("d", "double"),
            field("p", "decimal(10,2)"),
        ],
        vec![
            ("id", longs(0..8)),
            ("b", Arc::new(Int8Array::from_iter_values(0..8))),
            ("s", Arc::new(Int16Array::from_iter_values(0..8))),
            ("i", ints(0..8)),
            (
                "f",
                Arc::new(Float32Array::from_iter_values((0..8).map(|i| i as f32))),
            ),
            ("d", doubles((0..8).map(f64::from))),
            (
                "p",
                decimals(10, 2, &(0..8).map(|i| Some(i * 100)).collect::<Vec<_>>()),
            ),
        ],
    );
    for column in ["b", "s", "i", "p"] {
        delete(
            cx,
            &format!("{column} = 30000000000 OR {column} IN (-99999999999)"),
        );
    }
    assert_eq!(table.version(), 0, "literals out of range match nothing");
    for (id, predicate) in [
        (1, "b = 1"),
        (2, "s IN (2)"),
        (3, "i = 3.0"),
        (4, "f = 4"),
        (5, "d = 5"),
        (6, "p = 6"),
        (7, "p = '7.00'"),
    ] {
        delete(cx, predicate);
        assert_eq!(
            table.ids(),
            [0].into_iter().chain(id + 1..8).collect::<Vec<_>>(),
            "{predicate}"
        );
    }
}

fn timestamps_and_dates(cx: &Cx) {
    let hour = 3_600_000_000;
    let (table, _m) = table_of(
        cx,
        vec![
            field("id", "long"),
            field("at", "timestamp"),
            field("day", "date"),
        ],
        vec![
            ("id", longs(0..6)),
            (
                "at",
                micros(
                    Some("UTC"),
                    &(0..6).map(|i| Some(i * hour)).collect::<Vec<_>>(),
                ),
            ),
            ("day", dates(0..6)),
        ],
    );
    // Without a zone it is UTC, whatever the zone of daemon (New York) and client (Rome).
    for (id, predicate) in [
        (1, "at = '1970-01-01 01:00:00'"),
        (2, "at = TIMESTAMP '1970-01-01T02:00:00Z'"),
        (3, "at >= '1970-01-01T04:00:00+01:00' AND id = 3"),
        (4, "day = '1970-01-05'"),
        (5, "day = DATE '1970-01-06'"),
    ] {
        delete(cx, predicate);
        assert_eq!(
            table.ids(),
            [0].into_iter().chain(id + 1..6).collect::<Vec<_>>(),
            "{predicate}"
        );
    }
}

/// D45: the same before and after a checkpoint.
fn partition_not_equal(cx: &Cx) {
    for interval in ["100", "1"] {
        let name = format!("t{interval}");
        let mut builder = cx
            .builder(&name)
            .fields(vec![field("id", "long"), field("p", "string")])
            .partitioned_by(&["p"])
            .property("delta.checkpointInterval", interval);
        for (id, p) in [(1, Some("A")), (2, Some("B")), (3, Some("C")), (4, None)] {
            let rows = columns(vec![("id", longs([id]))]);
            builder = builder.file_in(&format!("{id}.parquet"), &rows, &[("p", p)]);
        }
        builder.create();
    }
    cx.input("x.parquet", &columns(vec![("id", longs([5]))]));
    let _m = cx.mount();
    for name in ["t100", "t1"] {
        cx.sh(&format!("cp in/x.parquet mnt/{name}/p=A/")).ok();
        cx.sh(&format!("echo \"p <> 'A'\" > mnt/{name}/.delta/ctl/delete"))
            .ok();
        assert_eq!(
            cx.table(name).ids(),
            [1, 4, 5],
            "{name}: NULL is not matched"
        );
    }
}

fn long_in_list(cx: &Cx) {
    let t = target(cx);
    let list: Vec<String> = (5..5000).map(|i| i.to_string()).collect();
    fs::write(
        cx.path("long.sql"),
        format!("id IN ({})\n", list.join(", ")),
    )
    .unwrap();
    cx.sh(&format!("cat long.sql > {CTL}")).ok();
    t.holds(1, 0..5);
}

fn comments_and_case(cx: &Cx) {
    let t = target(cx);
    cx.py(&format!(
        "open('{CTL}', 'w').write('-- tidy up\\nid = 1 -- one\\n  or /* two */ ID = 2\\n')"
    ))
    .ok();
    t.holds(1, [0, 3, 4, 5, 6, 7, 8, 9]);
}

/// A predicate is a predicate: no files of the host, no other statements.
fn injection_refused(cx: &Cx) {
    let t = target(cx);
    for statement in [
        "TRUE; DROP TABLE t",
        "id IN (SELECT id FROM read_parquet('/etc/passwd'))",
        "EXISTS (SELECT 1 FROM '/etc/passwd')",
        "id = 1) OR (TRUE",
    ] {
        let quoted = statement.replace('\'', r"'\''");
        let ran = cx.sh(&format!("echo '{quoted}' > {CTL}"));
        assert!(!ran.succeeded(), "{ran}");
    }
    t.holds(0, 0..10);
}
