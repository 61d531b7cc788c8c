//! Tables with column mapping, row tracking, in-commit timestamps, clustering: written as their features demand.

use std::fs;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, ListArray, RecordBatch, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use crate::batch::{columns, doubles, longs, order_rows, orders, texts};
use crate::builder::{field, structure};
use crate::case::{Cx, cases};
use crate::shell::EOPNOTSUPP;
use crate::table::Table;

use super::dropping::{accepts, refuses};

cases!("modern":
    append_to_a_table_mapped_by_name,
    append_to_a_table_mapped_by_id,
    mapped_partitions,
    mapped_nested_columns,
    broken_mapping_is_refused,
    row_ids_of_appends,
    row_ids_survive_vectors,
    row_ids_survive_rewriting,
    row_ids_survive_rewriting_of_a_mapped_table,
    hidden_columns_are_not_adopted,
    in_commit_timestamps_rise,
    every_version_has_a_checksum,
    clustering_columns_have_statistics,
    partition_columns_in_files,
    iceberg_compatibility_refused,
    new_modern_table,
    new_modern_table_with_odd_names,
);

/// D81: appends and both kinds of DELETE on a table whose columns have other names in files.
fn mapped(cx: &Cx, mode: &str) {
    for (name, vectors) in [("dv", "true"), ("cow", "false")] {
        cx.builder(name)
            .orders()
            .mapped(mode)
            .features(&[], &["checkConstraints"])
            .property("delta.constraints.positive", "amount >= 0 AND id >= 0")
            .property("delta.enableDeletionVectors", vectors)
            .create();
    }
    cx.input("x.parquet", &orders(0..10));
    cx.input("bad.parquet", &orders(-5..5));
    let _m = cx.mount();
    for name in ["dv", "cow"] {
        cx.sh(&format!("cp in/x.parquet mnt/{name}/")).ok();
        let table = cx.table(name);
        assert_eq!(table.rows(), order_rows(0..10));
        let state = table.state();
        let add = state.only();
        let place = add["path"].as_str().unwrap();
        let (prefix, _) = place.split_once('/').expect("a random directory");
        assert_eq!(prefix.len(), 2, "{place}");
        let stats: Value = serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
        assert_eq!(stats["minValues"]["col-1"], 0, "{stats}");
        assert!(stats["minValues"]["id"].is_null(), "{stats}");
        let last = cx.sh(&format!(
            "! cp in/bad.parquet mnt/{name}/ 2> err; cat mnt/{name}/.delta/last"
        ));
        assert!(last.ok().contains("positive"));
        cx.sh(&format!(
            "echo \"id < 4 AND name <> 'n1'\" > mnt/{name}/.delta/ctl/delete"
        ))
        .ok();
        let left: Vec<i64> = [1].into_iter().chain(4..10).collect();
        assert_eq!(table.rows(), order_rows(left), "{name}");
        cx.sh(&format!(
            "ls mnt/{name} && test \"$(ls mnt/{name})\" = x.parquet"
        ))
        .ok();
        assert_eq!(
            table.state().only()["deletionVector"].is_null(),
            name == "cow"
        );
    }
}

fn append_to_a_table_mapped_by_name(cx: &Cx) {
    mapped(cx, "name");
}

fn append_to_a_table_mapped_by_id(cx: &Cx) {
    mapped(cx, "id");
}

/// D58: partition values of a mapped table have physical keys, its directories logical names.
fn mapped_partitions(cx: &Cx) {
    let table = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("country", "string")])
        .mapped("name")
        .partitioned_by(&["country"])
        .create();
    let _m = cx.mount();
    cx.input("x.parquet", &columns(vec![("id", longs([1]))]));
    cx.input(
        "y.parquet",
        &columns(vec![
            ("country", texts([Some("DE"), Some("FR"), None])),
            ("id", longs([2, 3, 4])),
        ]),
    );
    cx.sh("mkdir mnt/t/country=DE; cp in/x.parquet mnt/t/country=DE/; cp in/y.parquet mnt/t/")
        .ok();
    assert_eq!(table.rows(), ["1|DE", "2|DE", "3|FR", "4|NULL"]);
    for add in table.state().live() {
        let keys: Vec<&String> = add["partitionValues"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["col-2"]);
        assert!(!add["path"].as_str().unwrap().contains("country"), "{add}");
    }
    cx.sh("ls mnt/t/country=FR mnt/t/country=DE; echo \"country = 'DE' AND id = 2\" > mnt/t/.delta/ctl/delete")
        .ok();
    assert_eq!(table.rows(), ["1|DE", "3|FR", "4|NULL"]);
    cx.sh("rm -r mnt/t/country=FR").ok();
    assert_eq!(table.rows(), ["1|DE", "4|NULL"]);
}

/// A column `items` of lists of structs with one field `x`.
fn items(values: &[i64]) -> ArrayRef {
    let x = Arc::new(Field::new("x", DataType::Int64, true));
    let inner = StructArray::from(vec![(x, longs(values.iter().copied()))]);
    let element = Arc::new(Field::new("element", inner.data_type().clone(), true));
    let ends = (0..=values.len()).map(|n| n as i32).collect::<Vec<_>>();
    let offsets = OffsetBuffer::new(ends.into());
    Arc::new(ListArray::new(element, offsets, Arc::new(inner), None))
}

/// D80: fields inside of arrays are mapped, too, and survive a rewrite.
fn mapped_nested_columns(cx: &Cx) {
    let list = json!({"type": "array", "elementType": structure(vec![field("x", "long")]), "containsNull": true});
    for mode in ["name", "id"] {
        let table = cx
            .builder(mode)
            .fields(vec![field("id", "long"), field("items", list.clone())])
            .mapped(mode)
            .property("delta.enableDeletionVectors", "false")
            .create();
        assert!(!table.exists() || table.version() == 0);
    }
    let rows: RecordBatch = columns(vec![("items", items(&[7, 8, 9])), ("id", longs([1, 2, 3]))]);
    cx.input("x.parquet", &rows);
    let _m = cx.mount();
    for mode in ["name", "id"] {
        cx.sh(&format!(
            "cp in/x.parquet mnt/{mode}/; echo 'id = 2' > mnt/{mode}/.delta/ctl/delete"
        ))
        .ok();
        let table = cx.table(mode);
        assert_eq!(table.rows(), ["1|[{col-3:7}]", "3|[{col-3:9}]"]);
        for version in [1, 2] {
            let add = &table.actions(version, "add")[0];
            let file = fs::File::open(table.file(add)).unwrap();
            let file = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            let leaf = file.parquet_schema().column(1);
            let leaf = leaf.self_type().get_basic_info();
            assert_eq!((leaf.name(), leaf.id()), ("col-3", 3));
        }
    }
}

fn broken_mapping_is_refused(cx: &Cx) {
    let unmapped = cx
        .builder("t")
        .orders()
        .features(&["columnMapping"], &["columnMapping"])
        .property("delta.columnMapping.mode", "name")
        .property("delta.columnMapping.maxColumnId", "3")
        .create();
    cx.input("x.parquet", &orders(0..10));
    let _m = cx.mount();
    cx.sh("cp in/x.parquet mnt/t/").fails(EOPNOTSUPP);
    let last = cx.sh("cat mnt/t/.delta/last").ok();
    assert!(last.contains("physical name"), "{last}");
    assert_eq!(unmapped.version(), 0);
}

#[track_caller]
fn watermark(table: &Table, version: u64) -> Option<i64> {
    let domains = table.actions(version, "domainMetadata").into_iter();
    let mut ours = domains.filter(|d| d["domain"] == "delta.rowTracking");
    let domain = ours.next()?;
    let mark: Value = serde_json::from_str(domain["configuration"].as_str().unwrap()).unwrap();
    mark["rowIdHighWaterMark"].as_i64()
}

fn row_ids_of_appends(cx: &Cx) {
    let table = cx.builder("t").orders().row_tracking().create();
    let _m = cx.mount();
    accepts(cx, "a.parquet", &orders(0..10));
    accepts(cx, "b.parquet", &orders(10..15));
    assert_eq!(watermark(&table, 2), Some(14));
    let wanted = |id: i64| (id, (id, if id < 10 { 1 } else { 2 }));
    assert_eq!(table.identities(), (0..15).map(wanted).collect());
    // Another name is the same rows; other rows under the same name are new ones.
    cx.sh("mv mnt/t/a.parquet mnt/t/c.parquet").ok();
    assert_eq!(table.identities(), (0..15).map(wanted).collect());
    assert_eq!(watermark(&table, 3), None);
    cx.sh("cp in/b.parquet mnt/t/c.parquet").ok();
    assert_eq!(watermark(&table, 4), Some(19));
    let remove = &table.actions(4, "remove")[0];
    assert_eq!(
        (&remove["baseRowId"], &remove["defaultRowCommitVersion"]),
        (&json!(0), &json!(1))
    );
    let tags = &table.commit_info(4)["tags"];
    assert_eq!(tags["delta.rowTracking.preserved"], "true");
}

fn row_ids_survive_vectors(cx: &Cx) {
    let table = cx.builder("t").orders().row_tracking().create();
    let _m = cx.mount();
    accepts(cx, "a.parquet", &orders(0..10));
    let before = table.identities();
    for predicate in ["id IN (2, 5)", "id = 7"] {
        cx.sh(&format!("echo '{predicate}' > mnt/t/.delta/ctl/delete"))
            .ok();
    }
    let left = before.into_iter().filter(|(id, _)| ![2, 5, 7].contains(id));
    assert_eq!(table.identities(), left.collect());
    assert_eq!((watermark(&table, 2), watermark(&table, 3)), (None, None));
}

/// A file that is rewritten holds what its rows were; a second time it holds the same.
#[track_caller]
fn survive_rewriting(cx: &Cx, table: &Table) {
    let _m = cx.mount();
    accepts(cx, "a.parquet", &orders(0..10));
    accepts(cx, "b.parquet", &orders(20..30));
    let before = table.identities();
    cx.sh("echo 'id IN (2, 25)' > mnt/t/.delta/ctl/delete").ok();
    cx.sh("echo 'id IN (5, 0)' > mnt/t/.delta/ctl/delete").ok();
    let left = before
        .into_iter()
        .filter(|(id, _)| ![0, 2, 5, 25].contains(id));
    let left: std::collections::BTreeMap<_, _> = left.collect();
    assert_eq!(table.identities(), left);
    assert_eq!(table.ids(), left.keys().copied().collect::<Vec<_>>());
    // The new files have ids of their own, for rows that bring none.
    assert_eq!(
        (watermark(table, 3), watermark(table, 4)),
        (Some(37), Some(44))
    );
    for add in table.state().live() {
        assert!(add["deletionVector"].is_null());
        let stats = add["stats"].as_str().unwrap();
        assert!(!stats.contains("_row-"), "{stats}");
    }
    cx.sh("ls mnt/t/a.parquet mnt/t/b.parquet").ok();
}

fn row_ids_survive_rewriting(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .row_tracking()
        .property("delta.enableDeletionVectors", "false")
        .create();
    survive_rewriting(cx, &table);
}

fn row_ids_survive_rewriting_of_a_mapped_table(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .mapped("id")
        .row_tracking()
        .property("delta.enableDeletionVectors", "false")
        .create();
    survive_rewriting(cx, &table);
}

/// A copy of a file of the table brings rows, not their ids.
fn hidden_columns_are_not_adopted(cx: &Cx) {
    let table = cx.builder("t").orders().row_tracking().create();
    let rows = columns(vec![
        ("id", longs([1, 2])),
        ("name", texts(["n1", "n2"])),
        ("amount", doubles([0.5, 1.0])),
        ("_row-id-col-x", longs([500, 501])),
        ("_row-commit-version-col-x", longs([0, 0])),
    ]);
    let _m = cx.mount();
    accepts(cx, "x.parquet", &rows);
    assert_eq!(table.rows(), order_rows([1, 2]));
    assert_eq!(table.identities(), [(1, (0, 1)), (2, (1, 1))].into());
    let other = columns(vec![("id", longs([1])), ("_row-id-col-y", longs([5]))]);
    refuses(cx, "y.parquet", &other, &["_row-id-col-y"]);
}

fn in_commit_timestamps_rise(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .features(&[], &["inCommitTimestamp"])
        .property("delta.enableInCommitTimestamps", "true")
        .create();
    // The first commit comes from a clock that is far ahead.
    let text = fs::read_to_string(table.commit_path(0)).unwrap();
    let ahead = 4_000_000_000_000_i64;
    let text = text.replacen(
        "{\"commitInfo\":{",
        &format!("{{\"commitInfo\":{{\"inCommitTimestamp\":{ahead},"),
        1,
    );
    fs::write(table.commit_path(0), text).unwrap();
    let _m = cx.mount();
    accepts(cx, "a.parquet", &orders(0..10));
    cx.sh("rm mnt/t/a.parquet").ok();
    for version in [1, 2] {
        let first = &table.commit(version)[0]["commitInfo"];
        assert_eq!(first["inCommitTimestamp"], ahead + version as i64);
    }
    assert!(table.actions(1, "metaData").is_empty());
}

fn every_version_has_a_checksum(cx: &Cx) {
    cx.input("x.parquet", &orders(0..10));
    let _m = cx.mount();
    cx.sh("mkdir mnt/t; cp in/x.parquet mnt/t/; echo 'id < 4' > mnt/t/.delta/ctl/delete; rm mnt/t/x.parquet")
        .ok();
    let table = cx.table("t");
    assert_eq!(table.version(), 2);
    for version in 0..=2 {
        let path = table.commit_path(version).with_extension("crc");
        let crc: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let state = table.state_at(version);
        let bytes: u64 = state.live().map(|add| add["size"].as_u64().unwrap()).sum();
        assert_eq!(crc["numFiles"], state.live().count());
        assert_eq!(crc["tableSizeBytes"], bytes);
        assert_eq!(crc["metadata"], state.metadata);
        assert_eq!(crc["protocol"], state.protocol);
        assert_eq!(crc["txnId"], table.commit_info(version)["txnId"]);
        assert_eq!(
            crc["numDeletedRecordsOpt"],
            if version == 1 { 4 } else { 0 }
        );
    }
}

fn clustering_columns_have_statistics(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .features(&[], &["clustering", "domainMetadata"])
        .property("delta.dataSkippingStatsColumns", "name")
        .action(
            "domainMetadata",
            json!({"domain": "delta.clustering", "configuration": "{\"clusteringColumns\":[[\"id\"]]}",
                "removed": false}),
        )
        .create();
    let _m = cx.mount();
    accepts(cx, "a.parquet", &orders(0..10));
    let add = &table.actions(1, "add")[0];
    let stats: Value = serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
    assert_eq!(stats["minValues"], json!({"id": 0, "name": "n0"}));
    assert!(
        add["clusteringProvider"].is_null(),
        "nobody has clustered it"
    );
}

fn partition_columns_in_files(cx: &Cx) {
    let table = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("p", "string")])
        .features(&[], &["materializePartitionColumns"])
        .property("delta.enableDeletionVectors", "false")
        .partitioned_by(&["p"])
        .create();
    let _m = cx.mount();
    let rows = columns(vec![
        ("id", longs([1, 2, 3])),
        ("p", texts(["a", "b", "b"])),
    ]);
    cx.input("x.parquet", &rows);
    cx.sh("cp in/x.parquet mnt/t/; echo 'id = 2' > mnt/t/.delta/ctl/delete")
        .ok();
    assert_eq!(table.rows(), ["1|a", "3|b"]);
    for add in table.state().live() {
        let file = fs::File::open(table.file(add)).unwrap();
        let file = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        assert!(file.schema().column_with_name("p").is_some(), "{add}");
        let stats = add["stats"].as_str().unwrap();
        assert!(!stats.contains("\"p\""), "{stats}");
    }
}

fn iceberg_compatibility_refused(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .mapped("name")
        .features(&[], &["icebergCompatV2"])
        .property("delta.enableIcebergCompatV2", "true")
        .create();
    cx.input("x.parquet", &orders(0..10));
    let _m = cx.mount();
    cx.sh("cp in/x.parquet mnt/t/").fails(EOPNOTSUPP);
    let last = cx.sh("cat mnt/t/.delta/last").ok();
    assert!(
        last.contains("icebergCompatV2") && last.contains("delta.enableIcebergCompat"),
        "{last}"
    );
    assert_eq!(table.version(), 0);
}

fn new_modern_table(cx: &Cx) {
    cx.input("x.parquet", &orders(0..10));
    cx.input("y.parquet", &orders(10..20));
    let _m = cx.mount_with(&["--table-features=modern"]);
    cx.sh("mkdir mnt/t; cp in/x.parquet mnt/t/; cp in/y.parquet mnt/t/; echo 'id < 4' > mnt/t/.delta/ctl/delete")
        .ok();
    let table = cx.table("t");
    let state = table.state();
    assert_eq!(
        state.features("readerFeatures"),
        ["columnMapping", "deletionVectors", "v2Checkpoint"]
    );
    assert_eq!(
        state.features("writerFeatures"),
        [
            "appendOnly",
            "columnMapping",
            "deletionVectors",
            "domainMetadata",
            "inCommitTimestamp",
            "invariants",
            "rowTracking",
            "v2Checkpoint"
        ]
    );
    for (key, value) in [
        ("delta.columnMapping.mode", "name"),
        ("delta.columnMapping.maxColumnId", "3"),
        ("delta.enableInCommitTimestamps", "true"),
        ("delta.enableRowTracking", "true"),
        ("delta.enableDeletionVectors", "true"),
        ("delta.checkpointPolicy", "v2"),
    ] {
        assert_eq!(state.property(key), Some(value), "{key}");
    }
    let version = |id: i64| i64::from(id >= 10);
    let wanted = (4..20).map(|id| (id, (id, version(id))));
    assert_eq!(table.identities(), wanted.collect());
    assert_eq!(table.rows(), order_rows(4..20));
    assert_eq!(
        (watermark(&table, 0), watermark(&table, 1)),
        (Some(9), Some(19))
    );
    for version in 0..=2 {
        assert!(table.commit(version)[0]["commitInfo"]["inCommitTimestamp"].is_i64());
    }
    // Names that any Parquet reader understands: the files are served as they are.
    cx.sh("cat mnt/t/y.parquet > out").ok();
    assert_eq!(
        crate::table::ids_of_file(&cx.path("out")),
        (10..20).collect::<Vec<_>>()
    );
}

/// Column mapping takes names that Delta does not take without it.
fn new_modern_table_with_odd_names(cx: &Cx) {
    let rows = columns(vec![("id", longs([1, 2])), ("a b;(c)", texts(["x", "y"]))]);
    cx.input("x.parquet", &rows);
    let _m = cx.mount_with(&["--table-features=modern"]);
    cx.sh("mkdir mnt/t; cp in/x.parquet mnt/t/").ok();
    let table = cx.table("t");
    assert_eq!(table.rows(), ["1|x", "2|y"]);
    assert!(table.state().physical("a b;(c)").starts_with("col-"));
    assert_eq!(table.state().physical("id"), "id");
    cx.sh("echo \"\\`a b;(c)\\` = 'x'\" > mnt/t/.delta/ctl/delete")
        .ok();
    assert_eq!(table.rows(), ["2|y"]);
}
