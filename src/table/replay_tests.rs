//! A snapshot that grew commit by commit is the one that is loaded at once, and both are what the protocol says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::log::Action;

const SCHEMA: &str = r#"{"type":"struct","fields":[
    {"name":"id","type":"long","nullable":true,"metadata":{}},
    {"name":"p","type":"string","nullable":true,"metadata":{}}]}"#;

/// One step of a table's life.
#[derive(Debug, Clone)]
enum Op {
    /// Path, name to keep, partition value, time.
    Add(u8, Option<u8>, Option<u8>, u8),
    Remove(usize),
    /// Another deletion vector for a live file.
    Mark(usize, u8),
}

fn op() -> impl Strategy<Value = Op> {
    let add = (
        0u8..60,
        prop::option::of(0u8..8),
        prop::option::of(0u8..3),
        0u8..4,
    );
    prop_oneof![
        4 => add.prop_map(|(path, name, p, time)| Op::Add(path, name, p, time)),
        2 => any::<usize>().prop_map(Op::Remove),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(i, dv)| Op::Mark(i, dv)),
    ]
}

fn metadata(partitioned: bool) -> Value {
    let columns: &[&str] = if partitioned { &["p"] } else { &[] };
    json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA, "partitionColumns": columns, "configuration": {}}})
}

/// Live files by path: the add action.
type Model = BTreeMap<String, Value>;

fn remove_of(add: &Value) -> Value {
    let mut remove = json!({"path": add["path"], "dataChange": true, "deletionTimestamp": 7});
    if let Some(dv) = add.get("deletionVector") {
        remove["deletionVector"] = dv.clone();
    }
    json!({ "remove": remove })
}

fn commit(model: &mut Model, ops: &[Op]) -> Vec<Value> {
    let mut lines = Vec::new();
    let mut touched = BTreeSet::new();
    for op in ops {
        let pick = |model: &Model, i: usize| model.keys().nth(i % model.len().max(1)).cloned();
        match op {
            Op::Add(path, name, p, time) => {
                // Some paths look like names of others, with and without directories.
                let path = match path {
                    0..8 => format!("n{path}.parquet"),
                    8..16 => format!("p={}/n{}.parquet", path % 3, path % 8),
                    other => format!("f{other}"),
                };
                if model.contains_key(&path) || !touched.insert(path.clone()) {
                    continue;
                }
                let mut add = json!({"path": path, "partitionValues": {"p": p.map(|p| p.to_string())}, "size": 3,
                    "modificationTime": time, "dataChange": true, "stats": format!("{{\"numRecords\":{time}}}")});
                if let Some(name) = name {
                    add["tags"] = json!({NAME_TAG: format!("n{name}.parquet")});
                }
                lines.push(json!({"add": add.clone()}));
                model.insert(path, add);
            }
            Op::Remove(i) => {
                let Some(path) = pick(model, *i).filter(|p| touched.insert(p.clone())) else {
                    continue;
                };
                lines.extend(model.remove(&path).map(|add| remove_of(&add)));
            }
            Op::Mark(i, dv) => {
                let Some(path) = pick(model, *i).filter(|p| touched.insert(p.clone())) else {
                    continue;
                };
                let Some(add) = model.get_mut(&path) else {
                    continue;
                };
                let removed = remove_of(add);
                add["deletionVector"] = json!({"storageType": "u", "pathOrInlineDv": format!("{dv:020}"),
                    "offset": 1, "sizeInBytes": 40, "cardinality": 1});
                // An add and its remove in any order, if they are different files.
                if removed["remove"].get("deletionVector") == add.get("deletionVector") {
                    continue;
                }
                lines.push(json!({"add": add.clone()}));
                lines.push(removed);
            }
        }
    }
    lines
}

fn actions(lines: &[Value]) -> Vec<Action> {
    let parse = |line: &Value| serde_json::from_value(line.clone()).unwrap();
    lines.iter().map(parse).collect()
}

/// All that a snapshot shows.
fn state(snapshot: &Snapshot) -> Value {
    let files: BTreeMap<String, Value> = snapshot
        .live_files()
        .map(|f| {
            let add = serde_json::to_value(&f.add).unwrap();
            (f.visible.to_string(), add)
        })
        .collect();
    assert_eq!(
        files.len() as u64,
        snapshot.totals().files,
        "every name is unique"
    );
    for (visible, add) in &files {
        let named = snapshot.named(visible).unwrap();
        assert_eq!(&*named.add.path, add["path"].as_str().unwrap());
        assert_eq!(*named.visible, **visible);
    }
    let mut tombstones: Vec<Value> = snapshot
        .tombstones()
        .map(|r| serde_json::to_value(r).unwrap())
        .collect();
    tombstones.sort_by_key(Value::to_string);
    // A listing from directory to directory finds every file once, in order.
    let mut walked = Vec::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        let entries = snapshot.entries(&dir);
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "{entries:?}");
        for (name, file) in entries {
            match file {
                Some(file) => {
                    assert_eq!(format!("{dir}{name}"), *file.visible);
                    walked.push(file.visible.to_string());
                }
                None => {
                    assert!(snapshot.has_dir(&format!("{dir}{name}/")));
                    dirs.push(format!("{dir}{name}/"));
                }
            }
        }
        let below: Vec<String> = snapshot
            .below(&dir)
            .iter()
            .map(|f| f.visible.to_string())
            .collect();
        let expected: Vec<&String> = files.keys().filter(|n| n.starts_with(&dir)).collect();
        assert!(below.iter().eq(expected), "{below:?}");
    }
    walked.sort();
    assert!(walked.iter().eq(files.keys()), "{walked:?}");
    assert!(!snapshot.has_dir("nowhere/"));
    json!({"version": snapshot.version(), "files": files, "tombstones": tombstones,
        "totals": format!("{:?}", snapshot.totals())})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn growing_and_loading_come_to_the_same(
        commits in prop::collection::vec(prop::collection::vec(op(), 0..12), 1..14),
        repartitioned in prop::option::weighted(0.4, 0usize..14),
        again in prop::option::weighted(0.4, 0usize..14),
    ) {
        let table = Path::new("/t");
        let mut model = Model::new();
        let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}});
        let mut log: Vec<Vec<Value>> = vec![vec![protocol, metadata(false)]];
        for (index, ops) in commits.iter().enumerate() {
            let mut lines = commit(&mut model, ops);
            if repartitioned == Some(index) {
                lines.push(metadata(true));
            } else if again == Some(index) {
                lines.push(metadata(repartitioned.is_none()));
            }
            log.push(lines);
        }
        let mut grown: Option<Snapshot> = None;
        for (version, lines) in log.iter().enumerate() {
            let mut loader = replay::Replay::default();
            let dictionary = loader.dictionary();
            let mut packer = packed::Packer::new(&dictionary);
            for (version, lines) in log.iter().take(version + 1).enumerate() {
                let mut parsed = replay::Parsed::empty(version as u64);
                for action in actions(lines) {
                    parsed.commit_action(&mut packer, table, action);
                }
                loader.apply(parsed, 0).unwrap();
            }
            let loaded = loader.finish().unwrap();
            let next = match &grown {
                Some(before) => {
                    let next = before.next(table, version as u64, 0, actions(lines)).unwrap();
                    // Whoever knew a name of before learns that it means something else now.
                    let gone: BTreeSet<_> = next.names_gone_since(before).into_iter().collect();
                    for old in before.live_files() {
                        let same = next.named(&old.visible).is_some_and(|now| {
                            now.path == old.path && now.add.dv_id() == old.add.dv_id()
                        });
                        prop_assert_eq!(same, !gone.contains(&old.visible), "{}", old.visible);
                    }
                    next
                }
                None => loaded.clone(),
            };
            prop_assert_eq!(state(&next), state(&loaded));
            grown = Some(next);
        }
        let end = grown.unwrap();
        let live: BTreeMap<String, Value> = end
            .live_files()
            .map(|f| (f.path.key().to_owned(), serde_json::to_value(&f.add).unwrap()))
            .collect();
        prop_assert!(live.len() == model.len());
        for (path, add) in &model {
            prop_assert_eq!(&live[path], add);
        }
    }
}
