use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::rows::struct_of;
use super::*;
use crate::deletion_vector::DeletionVectorDescriptor;
use crate::error::{Failure as _, Kind};
use crate::log::{Add, DomainMetadata, LogError, LogName, Metadata, Protocol, Remove, Txn};
use crate::schema::StructType;

const JSON_ONLY: CheckpointOptions<'_> = CheckpointOptions {
    write_stats_json: true,
    parsed: None,
};

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn read(file: File) -> Result<Vec<CheckpointAction>, LogError> {
    let mut actions = Vec::new();
    read_checkpoint("f", file, &mut |action| {
        actions.push(action);
        Ok(())
    })?;
    Ok(actions)
}

fn write(actions: &[Action], options: &CheckpointOptions<'_>) -> (Vec<u8>, CheckpointSummary) {
    let mut bytes = Vec::new();
    let summary = write_classic(&mut bytes, actions.iter().cloned(), options).unwrap();
    (bytes, summary)
}

/// Sorted, since a reader gives them kind by kind.
fn read_back(bytes: &[u8]) -> Vec<Action> {
    let mut actions: Vec<Action> = read(file_of(bytes))
        .unwrap()
        .into_iter()
        .map(|action| match action {
            CheckpointAction::Action(action) => action,
            other => panic!("{other:?}"),
        })
        .collect();
    sort(&mut actions);
    actions
}

fn sort(actions: &mut [Action]) {
    actions.sort_by_key(|action| format!("{action:?}"));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9/=%]{1,12}", Just(String::new()), "\\PC{0,6}"]
}

fn descriptor() -> impl Strategy<Value = DeletionVectorDescriptor> {
    (
        prop_oneof!["u", "p", "i"],
        text(),
        option::of(any::<i32>()),
        any::<i32>(),
        any::<i64>(),
    )
        .prop_map(
            |(storage_type, path_or_inline_dv, offset, size, cardinality)| {
                DeletionVectorDescriptor {
                    storage_type,
                    path_or_inline_dv,
                    offset,
                    size_in_bytes: size,
                    cardinality,
                }
            },
        )
}

fn values() -> impl Strategy<Value = std::collections::BTreeMap<String, Option<String>>> {
    btree_map(text(), option::of(text()), 0..3)
}

fn add() -> impl Strategy<Value = Action> {
    (
        (text(), values(), any::<i64>(), any::<i64>()),
        (
            option::of(text()),
            option::of(values()),
            option::of(descriptor()),
        ),
        (
            option::of(any::<i64>()),
            option::of(any::<i64>()),
            option::of(text()),
        ),
    )
        .prop_map(|(file, more, ids)| {
            Action::Add(Add {
                path: file.0,
                partition_values: file.1,
                size: file.2,
                modification_time: file.3,
                data_change: false,
                stats: more.0,
                tags: more.1,
                deletion_vector: more.2,
                base_row_id: ids.0,
                default_row_commit_version: ids.1,
                clustering_provider: ids.2,
                unknown: Map::new(),
            })
        })
}

fn remove() -> impl Strategy<Value = Action> {
    (
        (text(), option::of(any::<i64>()), option::of(any::<bool>())),
        (
            option::of(values()),
            option::of(any::<i64>()),
            option::of(descriptor()),
        ),
        (option::of(any::<i64>()), option::of(any::<i64>())),
    )
        .prop_map(|(file, more, ids)| {
            Action::Remove(Remove {
                path: file.0,
                deletion_timestamp: file.1,
                data_change: false,
                extended_file_metadata: file.2,
                partition_values: more.0,
                size: more.1,
                stats: None,
                tags: None,
                deletion_vector: more.2,
                base_row_id: ids.0,
                default_row_commit_version: ids.1,
                unknown: Map::new(),
            })
        })
}

fn metadata() -> impl Strategy<Value = Action> {
    (
        (text(), option::of(text()), option::of(text()), text()),
        (vec(text(), 0..3), option::of(any::<i64>())),
        (
            text(),
            btree_map(text(), text(), 0..3),
            btree_map(text(), text(), 0..2),
        ),
    )
        .prop_map(|(names, columns, maps)| {
            Action::MetaData(Metadata {
                id: names.0,
                name: names.1,
                description: names.2,
                format: crate::log::Format {
                    provider: maps.0,
                    options: maps.2,
                },
                schema_string: names.3,
                partition_columns: columns.0,
                created_time: columns.1,
                configuration: maps.1,
                unknown: Map::new(),
            })
        })
}

fn action() -> impl Strategy<Value = Action> {
    let features = || option::of(vec(text(), 0..4));
    let protocol = (any::<i32>(), any::<i32>(), features(), features());
    let protocol = protocol.prop_map(|(reader, writer, reader_features, writer_features)| {
        Action::Protocol(Protocol {
            min_reader_version: reader,
            min_writer_version: writer,
            reader_features,
            writer_features,
        })
    });
    let txn = (text(), any::<i64>(), option::of(any::<i64>()));
    let txn = txn.prop_map(|(app_id, version, last_updated)| {
        Action::Txn(Txn {
            app_id,
            version,
            last_updated,
        })
    });
    let domain = (text(), text()).prop_map(|(domain, configuration)| {
        Action::DomainMetadata(DomainMetadata {
            domain,
            configuration,
            removed: false,
        })
    });
    prop_oneof![4 => add(), 3 => remove(), 1 => metadata(), 1 => protocol, 1 => txn, 1 => domain]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_written_is_read(mut actions in vec(action(), 0..30)) {
        let (bytes, summary) = write(&actions, &JSON_ONLY);
        let adds = actions.iter().filter(|a| matches!(a, Action::Add(_))).count();
        let back = read_back(&bytes);
        prop_assert_eq!(summary, CheckpointSummary {
            size: actions.len() as u64,
            num_adds: adds as u64,
            bytes: bytes.len() as u64,
            digest: digest(&back),
        });
        sort(&mut actions);
        prop_assert_eq!(back, actions);
    }

    /// Manifest and sidecars together are the actions, each where it belongs.
    #[test]
    fn a_v2_checkpoint_in_pieces_is_read_whole(mut actions in vec(action(), 0..30), size in 1_usize..8) {
        let is_file = |a: &&Action| matches!(a, Action::Add(_) | Action::Remove(_));
        let mut files = actions.iter().filter(is_file).cloned().peekable();
        let (mut sidecars, mut found, mut total) = (Vec::new(), Vec::new(), CheckpointSummary::default());
        while files.peek().is_some() {
            let mut bytes = Vec::new();
            let part = files.by_ref().take(size);
            let summary = write_sidecar(&mut bytes, part, &JSON_ONLY).unwrap();
            let back = read_back(&bytes);
            prop_assert!(back.iter().all(|a| is_file(&a)));
            prop_assert_eq!(summary.digest, digest(&back));
            total.size += summary.size;
            found.extend(back);
            sidecars.push(Sidecar {
                path: format!("{}.parquet", sidecars.len()),
                size_in_bytes: bytes.len() as i64,
                modification_time: 5,
            });
        }
        let mut bytes = Vec::new();
        let all = actions.iter().cloned();
        let summary = write_manifest(&mut bytes, 7, &sidecars, &total, all).unwrap();
        prop_assert_eq!(summary.size as usize + found.len(), 1 + sidecars.len() + actions.len());
        prop_assert_eq!(&read_sidecar_references("f", file_of(&bytes)).unwrap(), &sidecars);
        let mut refers = Vec::new();
        for action in read(file_of(&bytes)).unwrap() {
            match action {
                CheckpointAction::Action(action) => {
                    prop_assert!(!is_file(&&action));
                    found.push(action);
                }
                CheckpointAction::CheckpointMetadata { version } => prop_assert_eq!(version, 7),
                CheckpointAction::Sidecar(sidecar) => refers.push(sidecar),
            }
        }
        prop_assert_eq!(refers, sidecars);
        sort(&mut actions);
        sort(&mut found);
        prop_assert_eq!(found, actions);
    }

    /// Whatever is lost or changed, the sum tells.
    #[test]
    fn a_digest_tells_every_difference(actions in vec(action(), 1..12), at in any::<prop::sample::Index>(), other in action()) {
        let whole = digest(&actions);
        let mut turned = actions.clone();
        turned.reverse();
        prop_assert_eq!(digest(&turned), whole);
        let at = at.index(actions.len());
        let mut less = actions.clone();
        let lost = less.remove(at);
        prop_assert_ne!(digest(&less), whole);
        if lost != other {
            less.push(other);
            prop_assert_ne!(digest(&less), whole);
        }
    }

    #[test]
    fn garbled_bytes_never_panic(
        actions in vec(action(), 1..12),
        cut in option::of(any::<prop::sample::Index>()),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..24),
    ) {
        let (mut bytes, _) = write(&actions, &JSON_ONLY);
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = read(file_of(&bytes));
        let _ = read_sidecar_references("f", file_of(&bytes));
    }
}

fn digest(actions: &[Action]) -> Digest {
    let mut digest = Digest::default();
    actions.iter().for_each(|action| digest.add(action, true));
    digest
}

#[test]
fn a_classic_checkpoint_refers_to_no_sidecars() {
    let (bytes, _) = write(&[Action::Add(plain_add(None))], &JSON_ONLY);
    assert!(
        read_sidecar_references("f", file_of(&bytes))
            .unwrap()
            .is_empty()
    );
    assert!(read_sidecar_references("f", file_of(b"PAR1")).is_err());
}

#[test]
fn the_columns_of_a_manifest_are_those_that_others_write() {
    let mut bytes = Vec::new();
    let none = CheckpointSummary::default();
    write_manifest(&mut bytes, 1, &[], &none, std::iter::empty()).unwrap();
    let columns = |bytes: &[u8]| -> Vec<String> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(file_of(bytes)).unwrap();
        let fields = reader.schema().fields().iter();
        fields.map(|f| f.name().clone()).collect()
    };
    let expected = [
        "txn",
        "add",
        "remove",
        "metaData",
        "protocol",
        "domainMetadata",
        "checkpointMetadata",
        "sidecar",
    ];
    assert_eq!(columns(&bytes), expected);
    let mut bytes = Vec::new();
    write_sidecar(&mut bytes, std::iter::empty(), &JSON_ONLY).unwrap();
    assert_eq!(columns(&bytes), ["add", "remove"]);
}

#[test]
fn nan_is_no_bound_in_a_typed_column() {
    let (schema, partition) = parsed_schema();
    let options = CheckpointOptions {
        write_stats_json: false,
        parsed: Some(ParsedColumns {
            stats: &schema,
            partition: &partition,
        }),
    };
    let stats = r#"{"numRecords":1,"minValues":{"f":"NaN"},"maxValues":{"f":2.5}}"#;
    let back = read_back(&write(&[Action::Add(plain_add(Some(stats)))], &options).0);
    let [Action::Add(add)] = back.as_slice() else {
        panic!("{back:?}");
    };
    let value: Value = serde_json::from_str(add.stats.as_deref().unwrap()).unwrap();
    assert_eq!(value["maxValues"]["f"], 2.5);
    assert!(value["minValues"].get("f").is_none(), "{value}");
}

fn plain_add(stats: Option<&str>) -> Add {
    Add {
        path: "p=1/a.parquet".to_owned(),
        partition_values: [("p".to_owned(), Some("1".to_owned()))].into(),
        size: 10,
        modification_time: 20,
        data_change: false,
        stats: stats.map(str::to_owned),
        tags: None,
        deletion_vector: None,
        base_row_id: None,
        default_row_commit_version: None,
        clustering_provider: None,
        unknown: Map::new(),
    }
}

#[test]
fn no_vector_is_null_and_features_stay() {
    // D21, D86
    let protocol = Action::Protocol(Protocol {
        min_reader_version: 3,
        min_writer_version: 7,
        reader_features: Some(vec!["deletionVectors".to_owned()]),
        writer_features: Some(vec!["deletionVectors".to_owned(), "x".to_owned()]),
    });
    let actions = [protocol.clone(), Action::Add(plain_add(None))];
    let (bytes, _) = write(&actions, &JSON_ONLY);
    let reader = ParquetRecordBatchReaderBuilder::try_new(file_of(&bytes)).unwrap();
    let batch = reader.build().unwrap().next().unwrap().unwrap();
    let add = batch.column_by_name("add").unwrap().as_struct();
    assert_eq!(
        add.column_by_name("deletionVector").unwrap().null_count(),
        2
    );
    assert!(read_back(&bytes).contains(&protocol));
}

#[test]
fn what_is_no_state_is_left_out() {
    let mut file = plain_add(None);
    file.data_change = true;
    let mut tombstone = file.to_remove(5, true);
    tombstone.tags = Some([("a".to_owned(), None)].into());
    tombstone.stats = Some("{}".to_owned());
    let actions = [
        Action::CommitInfo(crate::log::CommitInfo::default()),
        Action::DomainMetadata(DomainMetadata {
            domain: "d".to_owned(),
            configuration: String::new(),
            removed: true,
        }),
        Action::Add(file.clone()),
        Action::Remove(tombstone),
    ];
    let (bytes, summary) = write(&actions, &JSON_ONLY);
    assert_eq!((summary.size, summary.num_adds), (2, 1));
    file.data_change = false;
    let expected = [
        Action::Add(file.clone()),
        Action::Remove(Remove {
            tags: None,
            ..file.to_remove(5, false)
        }),
    ];
    assert_eq!(read_back(&bytes), expected);
}

#[test]
fn large_checkpoints_take_several_batches() {
    let actions = (0..25_000).map(|i| {
        let mut add = plain_add(Some("{\"numRecords\":1}"));
        add.path = format!("{i}");
        Action::Add(add)
    });
    let mut bytes = Vec::new();
    let summary = write_classic(&mut bytes, actions, &JSON_ONLY).unwrap();
    assert_eq!((summary.size, summary.num_adds), (25_000, 25_000));
    let read = read_back(&bytes);
    let mut paths: Vec<_> = read
        .iter()
        .map(|action| match action {
            Action::Add(add) => add.path.parse::<u32>().unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    paths.sort_unstable();
    assert!(paths.into_iter().eq(0..25_000));
}

#[test]
fn a_full_disk_is_told_from_damage() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = write_classic(&mut Full, std::iter::empty(), &JSON_ONLY).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace);
}

/// A checkpoint with one column `add` made of `members`.
fn adds_of(members: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let rows = members[0].1.len();
    let add = struct_of(arrow::buffer::NullBuffer::new_valid(rows), members);
    let batch = RecordBatch::try_from_iter_with_nullable([("add", add, true)]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn longs(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

#[test]
fn wrong_columns_are_named() {
    let column = |members| match read(file_of(&adds_of(members))).unwrap_err() {
        LogError::CheckpointColumn { column, file, .. } => (file, column),
        other => panic!("{other}"),
    };
    let at = |name: &str| ("f".to_owned(), name.to_owned());
    let number = column(vec![("path", longs(&[Some(1)]))]);
    assert_eq!(number, at("add.path"));
    let missing = column(vec![("path", texts(&[Some("a")]))]);
    assert_eq!(missing, at("add.partitionValues"));
    let flat = column(vec![
        ("path", texts(&[Some("a")])),
        ("deletionVector", texts(&[None])),
    ]);
    assert_eq!(flat, at("add.deletionVector"));
    let batch = RecordBatch::try_from_iter([("protocol", longs(&[Some(3)]))]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let error = read(file_of(&bytes)).unwrap_err();
    assert!(error.to_string().contains("protocol"), "{error}");
    assert_eq!(error.kind(), Kind::Corrupt);
}

#[test]
fn a_struct_of_nulls_is_no_vector_and_a_part_of_one_is_damage() {
    // D21: read what others have written wrongly, but never lose a vector.
    let with = |storage: Option<&str>, path: Option<&str>, cardinality| {
        let vector = struct_of(
            arrow::buffer::NullBuffer::new_valid(1),
            vec![
                ("storageType", texts(&[storage])),
                ("pathOrInlineDv", texts(&[path])),
                ("cardinality", longs(&[cardinality])),
            ],
        );
        let (bytes, _) = write(&[Action::Add(plain_add(None))], &JSON_ONLY);
        let reader = ParquetRecordBatchReaderBuilder::try_new(file_of(&bytes)).unwrap();
        let batch = reader.build().unwrap().next().unwrap().unwrap();
        let add = batch.column_by_name("add").unwrap().as_struct();
        let column = |name| (name, Arc::clone(add.column_by_name(name).unwrap()));
        read(file_of(&adds_of(vec![
            column("path"),
            column("partitionValues"),
            column("size"),
            column("modificationTime"),
            ("deletionVector", vector),
        ])))
    };
    for none in [with(None, None, None), with(Some(""), Some(""), Some(0))] {
        let none = none.unwrap();
        assert!(
            matches!(&none[..], [CheckpointAction::Action(Action::Add(add))] if add.deletion_vector.is_none())
        );
    }
    assert!(with(Some("u"), None, None).is_err());
    assert!(with(None, Some("x"), None).is_err());
    assert!(with(None, None, Some(1)).is_err());
}

fn parsed_schema() -> (StructType, StructType) {
    let stats = r#"{"type":"struct","fields":[
        {"name":"id","type":"long","nullable":true,"metadata":{}},
        {"name":"b","type":"boolean","nullable":true,"metadata":{}},
        {"name":"d","type":"date","nullable":true,"metadata":{}},
        {"name":"m","type":"decimal(38,2)","nullable":true,"metadata":{}},
        {"name":"f","type":"double","nullable":true,"metadata":{}},
        {"name":"t","type":"timestamp","nullable":true,"metadata":{}},
        {"name":"n","type":"timestamp_ntz","nullable":true,"metadata":{}},
        {"name":"list","type":{"type":"array","elementType":"long","containsNull":true},"nullable":true,"metadata":{}},
        {"name":"s","type":{"type":"struct","fields":[
            {"name":"x","type":"string","nullable":true,
             "metadata":{"delta.columnMapping.physicalName":"col-\"x\""}}]},"nullable":true,"metadata":{}}]}"#;
    let partition = r#"{"type":"struct","fields":[
        {"name":"p","type":"integer","nullable":true,"metadata":{}}]}"#;
    (
        StructType::from_json(stats).unwrap(),
        StructType::from_json(partition).unwrap(),
    )
}

#[test]
fn statistics_survive_as_columns_alone() {
    let stats = json!({
        "numRecords": 3,
        "minValues": {"id": -5, "d": "1969-12-31", "f": 1.5, "t": "2024-01-02T03:04:05.678Z",
            "n": "1901-01-01T00:00:00.001", "s": {"col-\"x\"": "a\\\n\u{e9}"}},
        "maxValues": {"id": i64::MAX, "d": "9999-12-31", "f": 1e300, "t": "9999-12-31T23:59:59.999Z",
            "n": "2024-01-01T00:00:00.000", "s": {"col-\"x\"": ""}},
        "nullCount": {"id": 0, "b": 1, "d": 0, "m": 0, "f": 0, "t": 0, "n": 0, "list": 2,
            "s": {"col-\"x\"": 3}},
        "tightBounds": false,
    });
    // A decimal that no float holds.
    let text = stats
        .to_string()
        .replacen("\"f\":", "\"m\":12345678901234567.25,\"f\":", 1);
    let (schema, partition) = parsed_schema();
    let options = CheckpointOptions {
        write_stats_json: false,
        parsed: Some(ParsedColumns {
            stats: &schema,
            partition: &partition,
        }),
    };
    let actions = [
        Action::Add(plain_add(Some(&text))),
        Action::Add(plain_add(None)),
        Action::Add(plain_add(Some("garbage"))),
    ];
    let (bytes, _) = write(&actions, &options);
    let read = read_back(&bytes);
    let mut found = read.iter().map(|action| match action {
        Action::Add(add) => add.stats.clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(found.by_ref().filter(Option::is_none).count(), 2);
    let found = read.iter().find_map(|action| match action {
        Action::Add(add) => add.stats.clone(),
        _ => None,
    });
    let found = found.unwrap();
    assert!(found.contains("\"m\":12345678901234567.25,"), "{found}");
    let mut value: Value = serde_json::from_str(&found).unwrap();
    value["minValues"].as_object_mut().unwrap().remove("m");
    assert_eq!(value, stats);

    let both = CheckpointOptions {
        write_stats_json: true,
        ..options
    };
    assert_eq!(read_back(&write(&actions, &both).0), {
        let mut actions = actions.to_vec();
        sort(&mut actions);
        actions
    });
    let reader = ParquetRecordBatchReaderBuilder::try_new(file_of(&bytes)).unwrap();
    let batch = reader.build().unwrap().next().unwrap().unwrap();
    let add = batch.column_by_name("add").unwrap().as_struct();
    let values = add.column_by_name("partitionValues_parsed").unwrap();
    let p = values.as_struct().column_by_name("p").unwrap();
    assert_eq!(
        p.as_primitive::<arrow::datatypes::Int32Type>().values(),
        &[1, 1, 1]
    );
}

#[test]
fn a_manifest_has_what_only_a_manifest_has() {
    let body = br#"{"checkpointMetadata":{"version":6,"tags":{"a":"b"}}}
{"sidecar":{"path":"x.parquet","sizeInBytes":14740,"modificationTime":1754751124000}}

{"txn":{"appId":"a","version":3}}
{"future":{}}"#;
    let mut actions = Vec::new();
    read_json_manifest("f", body, &mut |action| {
        actions.push(action);
        Ok(())
    })
    .unwrap();
    assert_eq!(
        actions,
        [
            CheckpointAction::CheckpointMetadata { version: 6 },
            CheckpointAction::Sidecar(Sidecar {
                path: "x.parquet".to_owned(),
                size_in_bytes: 14740,
                modification_time: 1_754_751_124_000
            }),
            CheckpointAction::Action(Action::Txn(Txn {
                app_id: "a".to_owned(),
                version: 3,
                last_updated: None
            })),
        ]
    );
    let bad = read_json_manifest("f", b"{\"sidecar\":{\"path\":1}}", &mut |_| Ok(()));
    assert!(matches!(bad, Err(LogError::Action { line: 1, .. })));
}

fn corpus() -> Option<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    if corpus.is_dir() {
        return Some(corpus);
    }
    println!("skipped: no corpus at {}", corpus.display());
    None
}

fn files_of_logs(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_of_logs(&path, files);
        } else if path
            .components()
            .any(|part| part.as_os_str() == "_delta_log")
        {
            files.push(path);
        }
    }
}

fn read_path(path: &Path) -> Option<Vec<CheckpointAction>> {
    let name = path.file_name()?.to_str()?;
    let is_sidecar = path.parent()?.ends_with("_sidecars") && name.ends_with(".parquet");
    let mut actions = Vec::new();
    let sink = &mut |action| {
        actions.push(action);
        Ok(())
    };
    let done = match LogName::parse(name) {
        Some(LogName::V2 { json: true, .. }) => {
            read_json_manifest(name, &std::fs::read(path).unwrap(), sink)
        }
        Some(LogName::Classic(_) | LogName::Part { .. } | LogName::V2 { .. }) => {
            read_checkpoint(name, File::open(path).unwrap(), sink)
        }
        _ if is_sidecar => read_checkpoint(name, File::open(path).unwrap(), sink),
        _ => return None,
    };
    done.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Some(actions)
}

#[test]
fn the_checkpoints_of_other_writers_are_read() {
    let Some(corpus) = corpus() else { return };
    let mut files = Vec::new();
    files_of_logs(&corpus, &mut files);
    let (mut read, mut adds, mut with_stats, mut vectors) = (0, 0, 0, 0);
    for path in files {
        let Some(actions) = read_path(&path) else {
            continue;
        };
        read += 1;
        assert!(!actions.is_empty(), "{}", path.display());
        for action in &actions {
            if let CheckpointAction::Action(Action::Add(add)) = action {
                adds += 1;
                with_stats += usize::from(add.num_records().is_some());
                vectors += usize::from(add.deletion_vector.is_some());
                let stats = add.stats.as_deref();
                assert!(stats.is_none_or(|s| serde_json::from_str::<Value>(s).is_ok()));
            }
        }
        // Ours says the same.
        let actions: Vec<Action> = actions
            .into_iter()
            .filter_map(|action| match action {
                CheckpointAction::Action(Action::Remove(mut remove)) => {
                    remove.tags = None;
                    remove.stats = None;
                    Some(Action::Remove(remove))
                }
                CheckpointAction::Action(Action::Add(mut add)) => {
                    add.data_change = false;
                    Some(Action::Add(add))
                }
                CheckpointAction::Action(action) => Some(action),
                _ => None,
            })
            .collect();
        let mut expected = actions.clone();
        sort(&mut expected);
        assert_eq!(read_back(&write(&actions, &JSON_ONLY).0), expected);
    }
    println!("{read} files, {adds} adds, {with_stats} with statistics, {vectors} vectors");
    assert!(read > 60);
}

/// Without its JSON statistics, a file of Databricks gives the same ones.
#[test]
fn rebuilt_statistics_are_those_of_the_writer() {
    let Some(corpus) = corpus() else { return };
    let mut files = Vec::new();
    files_of_logs(&corpus, &mut files);
    let mut compared = 0;
    for path in files
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "parquet"))
    {
        let mut bytes = Vec::new();
        File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
        // The name of the column, in the footer: nobody knows `statz`.
        let mut renamed = bytes.clone();
        let mut at = 0;
        while let Some(found) = find(&renamed[at..], b"\x18\x05stats\x25") {
            renamed[at + found + 2..][..5].copy_from_slice(b"statz");
            at += found + 1;
        }
        let adds = |bytes: &[u8]| -> Vec<Add> {
            let actions = read(file_of(bytes)).unwrap().into_iter();
            actions
                .filter_map(|action| match action {
                    CheckpointAction::Action(Action::Add(add)) => Some(add),
                    _ => None,
                })
                .collect()
        };
        for (written, rebuilt) in adds(&bytes).iter().zip(adds(&renamed)) {
            if let (Some(written), Some(rebuilt)) = (&written.stats, &rebuilt.stats) {
                // One of the writers has declared its instants to be zoneless.
                let value = |text: &str| -> Value {
                    serde_json::from_str(&text.replace("000Z\"", "000\"")).unwrap()
                };
                assert_eq!(value(written), value(rebuilt), "{}", path.display());
            }
            compared += usize::from(rebuilt.stats.is_some());
        }
    }
    assert!(compared > 20, "{compared}");
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// A Parquet file whose schema is `depth` groups in one another.
fn nested(depth: usize) -> Vec<u8> {
    use parquet::basic::{Repetition, Type as Physical};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::Type;
    // The writer recurses, too.
    let write = move || {
        let leaf = Type::primitive_type_builder("x", Physical::INT32);
        let mut inner = leaf.build().unwrap();
        for _ in 0..depth {
            let group = Type::group_type_builder("x").with_fields(vec![Arc::new(inner)]);
            let group = group.with_repetition(Repetition::OPTIONAL);
            inner = group.build().unwrap();
        }
        let root = Type::group_type_builder("s").with_fields(vec![Arc::new(inner)]);
        let root = Arc::new(root.build().unwrap());
        let writer = SerializedFileWriter::new(Vec::new(), root, Arc::default());
        writer.unwrap().into_inner().unwrap()
    };
    let thread = std::thread::Builder::new().stack_size(256 << 20);
    thread.spawn(write).unwrap().join().unwrap()
}

#[test]
fn a_schema_without_a_bottom_does_not_end_the_process() {
    assert!(read(file_of(&nested(90))).unwrap().is_empty());
    let error = read(file_of(&nested(20_000))).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("nests deeper"), "{error}");
}

/// A decoder would allocate for as many as are claimed; a failed allocation ends the process.
#[test]
fn a_footer_that_claims_more_than_it_has_is_an_error() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0x07];
    let root = [0x48, 1, b'r', 0];
    // Field 1 (version), the schema with a root alone, then a list of 2^31 row groups; or of as many nodes.
    let groups = [&[0x15, 2, 0x19, 0x1c][..], &root, &[0x29, 0xfc], &huge].concat();
    let nodes = [&[0x15, 2, 0x19, 0xfc][..], &huge, &root].concat();
    for footer in [groups, nodes] {
        let mut bytes = b"PAR1".to_vec();
        bytes.extend_from_slice(&footer);
        bytes.extend_from_slice(&(footer.len() as u32).to_le_bytes());
        bytes.extend_from_slice(b"PAR1");
        let error = read(file_of(&bytes)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains("footer is damaged"), "{error}");
    }
}
