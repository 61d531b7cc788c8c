//! Checkpoints of logs made by hand: what is written, what is left of a failure, who may go on at the same time.

use serde_json::{Value, json};

use super::super::log_testing::{Made, NOW, STATS, add, remove, state};
use super::*;
use crate::error::{Failure as _, Kind};
use crate::log::LogName;

const V2: &[(&str, &str)] = &[("delta.checkpointPolicy", "v2")];

/// Versions 1 to `newest` add a file each; the odd ones also remove the one before, and all keep a transaction id.
fn fill(made: &Made, newest: u64) {
    for version in 1..=newest {
        let mut lines = vec![
            add(&format!("p=a%2520b/f{version}.parquet")),
            json!({"txn": {"appId": format!("app{}", version % 3), "version": version}}),
        ];
        if version > 1 && !version.is_multiple_of(2) {
            lines.push(remove(&format!("p=a%2520b/f{}.parquet", version - 1)));
        }
        made.commit(version, &lines);
    }
}

/// Opens with nothing but the checkpoints.
fn without_commits(made: &Made, kept: u64) -> Made {
    let copy = made.copy();
    for version in 0..kept {
        std::fs::remove_file(copy.log().join(LogName::commit(version))).unwrap();
    }
    copy
}

fn pointer(made: &Made) -> LastCheckpoint {
    LastCheckpoint::parse(&std::fs::read(made.log().join(LAST_CHECKPOINT)).unwrap()).unwrap()
}

#[test]
fn the_policy_of_the_table_decides_on_the_form() {
    for (features, configuration, v2) in [
        (&["v2Checkpoint"][..], V2, true),
        (&["v2Checkpoint"], &[][..], false),
        (&[], V2, false),
        (
            &["v2Checkpoint"],
            &[("delta.checkpointPolicy", "classic")],
            false,
        ),
    ] {
        let made = Made::new(features, configuration);
        fill(&made, 5);
        let table = made.open();
        let before = state(&table.snapshot());
        write(&table, &table.snapshot(), 2).unwrap();
        let names = made.names("");
        let forms: Vec<LogName> = names.iter().filter_map(|n| LogName::parse(n)).collect();
        let expected = match v2 {
            true => LogName::V2 {
                version: 5,
                json: false,
            },
            false => LogName::Classic(5),
        };
        assert!(forms.contains(&expected), "{names:?}");
        assert_eq!(forms.len(), 7, "{names:?}");
        let sidecars = made.names(SIDECAR_DIR);
        // Three live files and two tombstones.
        assert_eq!(sidecars.len(), if v2 { 3 } else { 0 });
        assert_eq!(table.snapshot().checkpoint(), Some(5));
        let alone = without_commits(&made, 5).open();
        assert_eq!(alone.snapshot().checkpoint(), Some(5));
        assert_eq!(state(&alone.snapshot()), before);

        let pointer = pointer(&made);
        assert_eq!((pointer.version, pointer.num_of_add_files), (5, Some(3)));
        let bytes = |folder: &str, name: &String| {
            std::fs::metadata(made.log().join(folder).join(name))
                .unwrap()
                .len()
        };
        let is_checkpoint = |name: &&String| name.contains(".checkpoint.");
        let checkpoint = names.iter().find(is_checkpoint).unwrap();
        let mut all: u64 = sidecars.iter().map(|s| bytes(SIDECAR_DIR, s)).sum();
        all += bytes("", checkpoint);
        assert_eq!(pointer.size_in_bytes, Some(all));
        // protocol, metaData, three ids; five files; one checkpointMetadata and three sidecars.
        assert_eq!(pointer.size, Some(if v2 { 14 } else { 10 }));
        assert_eq!(pointer.v2_checkpoint.is_some(), v2);
        if let Some(hint) = pointer.v2_checkpoint {
            assert_eq!(&hint.path, checkpoint);
            assert_eq!(hint.size_in_bytes.cast_unsigned(), bytes("", checkpoint));
        }
    }
}

#[test]
fn a_table_without_files_has_a_manifest_and_no_sidecars() {
    let made = Made::new(&["v2Checkpoint"], V2);
    made.commit(1, &[json!({"txn": {"appId": "a", "version": 1}})]);
    let table = made.open();
    checkpoint(&table, &table.snapshot()).unwrap();
    assert!(made.names(SIDECAR_DIR).is_empty());
    let alone = without_commits(&made, 1).open().snapshot();
    assert_eq!(state(&alone), state(&table.snapshot()));
}

#[test]
fn statistics_are_kept_in_the_forms_that_the_table_asks_for() {
    let json = "delta.checkpoint.writeStatsAsJson";
    let typed = "delta.checkpoint.writeStatsAsStruct";
    for (configuration, has_json, has_typed, kept) in [
        (&[][..], true, true, Some(STATS)),
        (&[(typed, "false")], true, false, Some(STATS)),
        (&[(json, "false")], false, true, Some(STATS)),
        (&[(json, "false"), (typed, "false")], false, false, None),
        // Only some columns; the others lose their bounds, the file keeps its number of rows.
        (
            &[(json, "false"), ("delta.dataSkippingNumIndexedCols", "0")],
            false,
            true,
            Some(r#"{"numRecords":10,"tightBounds":true}"#),
        ),
    ] {
        for v2 in [false, true] {
            let mut configuration = configuration.to_vec();
            if v2 {
                configuration.extend(V2);
            }
            let made = Made::new(&["v2Checkpoint"], &configuration);
            fill(&made, 3);
            let table = made.open();
            write(&table, &table.snapshot(), 2).unwrap();
            let is = |name: &&String| match v2 {
                true => !name.starts_with('.'),
                false => name.contains(".checkpoint."),
            };
            let folder = if v2 { SIDECAR_DIR } else { "" };
            let names = made.names(folder);
            let file = names.iter().find(is).unwrap();
            let columns = columns_of_add(&made.log().join(folder).join(file));
            assert_eq!(
                columns.contains(&"stats".to_owned()),
                has_json,
                "{configuration:?}"
            );
            for name in ["stats_parsed", "partitionValues_parsed"] {
                assert_eq!(
                    columns.contains(&name.to_owned()),
                    has_typed,
                    "{configuration:?}"
                );
            }
            let alone = without_commits(&made, 3).open().snapshot();
            assert_eq!(alone.checkpoint(), Some(3));
            for file in alone.live_files() {
                assert_eq!(file.add.stats.as_deref(), kept, "{configuration:?}");
            }
        }
    }
}

#[test]
fn a_table_with_vectors_never_loses_its_numbers_of_rows() {
    let off = [
        ("delta.checkpoint.writeStatsAsJson", "false"),
        ("delta.checkpoint.writeStatsAsStruct", "false"),
    ];
    let made = Made::new(&["deletionVectors"], &off);
    fill(&made, 3);
    let table = made.open();
    checkpoint(&table, &table.snapshot()).unwrap();
    let alone = without_commits(&made, 3).open().snapshot();
    for file in alone.live_files() {
        assert_eq!(file.add.num_records(), Some(10));
    }
    assert_eq!(alone.totals(), table.snapshot().totals());
}

fn columns_of_add(path: &Path) -> Vec<String> {
    use arrow::datatypes::DataType;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let schema = reader.schema().clone();
    let DataType::Struct(fields) = schema.field_with_name("add").unwrap().data_type() else {
        panic!("{schema}");
    };
    fields.iter().map(|f| f.name().clone()).collect()
}

#[test]
fn a_failure_leaves_nothing_behind() {
    // Ids count up from 1: sidecars, the manifest, its temporary name.
    let id = |n: u128| uuid::Uuid::from_u128(n);
    let made = Made::new(&["v2Checkpoint"], V2);
    fill(&made, 5);
    let log = made.log();
    for blocked in [
        log.join(SIDECAR_DIR).join(format!("{}.parquet", id(1))),
        log.join(SIDECAR_DIR).join(format!("{}.parquet", id(3))),
        log.join(format!(".deltafs-{}.tmp", id(5))),
    ] {
        let made = made.copy();
        let blocked = made.log().join(blocked.strip_prefix(&log).unwrap());
        std::fs::create_dir_all(blocked.parent().unwrap()).unwrap();
        std::fs::write(&blocked, "in the way").unwrap();
        let before = (made.names(""), made.names(SIDECAR_DIR));
        let env = crate::env::Env::fixed(NOW);
        let table = Table::open(Dir::open(made.path()).unwrap(), env).unwrap();
        let error = write(&table, &table.snapshot(), 2).unwrap_err();
        assert!(error.to_string().contains("create"), "{error}");
        let mut after = (made.names(""), made.names(SIDECAR_DIR));
        // The folder itself may stay.
        after.0.retain(|n| n != SIDECAR_DIR || before.0.contains(n));
        assert_eq!(after, before, "{blocked:?}");
        assert_eq!(table.snapshot().checkpoint(), None);
        // And the next attempt goes through.
        write(&table, &table.snapshot(), 2).unwrap();
        assert_eq!(pointer(&made).version, 5);
    }
}

#[test]
fn what_is_read_back_wrongly_is_not_pointed_to() {
    let made = Made::new(&["v2Checkpoint"], V2);
    fill(&made, 3);
    let table = made.open();
    let path = Path::new(LOG_DIR).join("x");
    let mut scratch = Scratch::new(table.dir());
    let (_, mut summary) = write_file(&mut scratch, &path, |out| {
        write_manifest(
            out,
            3,
            &[],
            &CheckpointSummary::default(),
            table_actions(&table.snapshot()),
        )
    })
    .unwrap();
    let back = read_back(&table, &path, true).unwrap();
    back.expect(&path, &summary, Some(3), &[]).unwrap();
    assert!(back.expect(&path, &summary, Some(4), &[]).is_err());
    assert!(back.expect(&path, &summary, None, &[]).is_err());
    let sidecar = Sidecar {
        path: "y".to_owned(),
        size_in_bytes: 1,
        modification_time: 1,
    };
    assert!(back.expect(&path, &summary, Some(3), &[sidecar]).is_err());
    let txn = serde_json::from_value(json!({"txn": {"appId": "z", "version": 1}}));
    summary.digest.add(&txn.unwrap(), true);
    let error = back.expect(&path, &summary, Some(3), &[]).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("6 actions"), "{error}");
}

#[test]
fn a_damaged_v2_checkpoint_gives_way_to_what_is_older() {
    let made = Made::new(&["v2Checkpoint"], V2);
    fill(&made, 4);
    let table = made.open();
    let old = table.snapshot();
    write(&table, &old, 2).unwrap();
    fill(&made, 8);
    let new = table.refresh().unwrap();
    let older = made.names(SIDECAR_DIR);
    write(&table, &new, 2).unwrap();
    let expected = state(&new);
    let newer = |made: &Made| {
        let mut names = made.names(SIDECAR_DIR).into_iter();
        let name = names.rfind(|n| !older.contains(n)).unwrap();
        made.log().join(SIDECAR_DIR).join(name)
    };
    let manifest = made
        .names("")
        .into_iter()
        .find(|n| n.contains("08.checkpoint"))
        .unwrap();
    let damages: [&dyn Fn(&Made); 4] = [
        &|m| std::fs::remove_file(newer(m)).unwrap(),
        &|m| std::fs::write(newer(m), "PAR1").unwrap(),
        &|m| std::fs::write(m.log().join(&manifest), "").unwrap(),
        &|m| {
            let path = newer(m);
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes.truncate(middle);
            std::fs::write(path, bytes).unwrap();
        },
    ];
    for damage in damages {
        let copy = without_commits(&made, 3);
        damage(&copy);
        let found = copy.open().snapshot();
        assert_eq!((found.version(), found.checkpoint()), (8, Some(4)));
        assert_eq!(state(&found), expected);
    }
}

#[test]
fn a_pointer_ahead_of_the_table_is_put_right() {
    let made = Made::new(&[], &[]);
    fill(&made, 3);
    let lie = LastCheckpoint {
        version: 99,
        ..LastCheckpoint::default()
    };
    std::fs::write(made.log().join(LAST_CHECKPOINT), lie.to_json()).unwrap();
    let table = made.open();
    checkpoint(&table, &table.snapshot()).unwrap();
    assert_eq!(pointer(&made).version, 3);
}

#[test]
fn a_table_that_we_cant_write_gets_no_checkpoint() {
    let made = Made::new(&["rowTracking", "domainMetadata"], &[]);
    fill(&made, 2);
    let table = made.open();
    if table.snapshot().check_write().is_ok() {
        return;
    }
    let error = checkpoint(&table, &table.snapshot()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(made.names("").iter().all(|n| n.ends_with(".json")));
}

#[test]
fn checkpointers_of_several_mounts_go_on_at_the_same_time() {
    // D85
    for configuration in [&[][..], V2] {
        let made = Made::new(&["v2Checkpoint"], configuration);
        let newest = 12;
        fill(&made, newest);
        let before = made.states(newest);
        std::thread::scope(|scope| {
            for first in [1, 2, 3] {
                let made = &made;
                scope.spawn(move || {
                    // Another table handle is another mount.
                    let table =
                        Table::open(Dir::open(made.path()).unwrap(), crate::env::Env::real())
                            .unwrap();
                    for version in (first..=newest).step_by(3) {
                        write(&table, &table.at(version).unwrap(), 2).unwrap();
                        assert!(pointer(made).version >= version);
                    }
                });
            }
        });
        assert_eq!(pointer(&made).version, newest);
        let alone = without_commits(&made, 1);
        // Tombstones older than a week of the real clock are gone from the checkpoints.
        let without_tombstones = |states: std::collections::BTreeMap<u64, Vec<String>>| {
            let keep = |line: &String| !line.starts_with("p=");
            let only = |lines: Vec<String>| lines.into_iter().filter(keep).collect::<Vec<_>>();
            states
                .into_iter()
                .skip_while(|(v, _)| *v == 0)
                .map(|(v, s)| (v, only(s)))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            without_tombstones(alone.states(newest)),
            without_tombstones(before)
        );
    }
}

/// Writes a checkpoint of the table in `DELTAFS_CHECKPOINT_TABLE`, `DELTAFS_CHECKPOINT_SIDECAR` actions a sidecar,
/// for other readers to look at.
#[test]
#[ignore = "a tool for trying other readers"]
fn write_for_others() {
    let path = std::env::var("DELTAFS_CHECKPOINT_TABLE").unwrap();
    let sidecar =
        std::env::var("DELTAFS_CHECKPOINT_SIDECAR").map_or(Ok(SIDECAR_ACTIONS), |n| n.parse());
    let env = crate::env::Env::real();
    let table = Table::open(Dir::open(Path::new(&path)).unwrap(), env.clone()).unwrap();
    let started = env.instant();
    let snapshot = table.snapshot();
    let (stats, partition) = parsed_columns(&snapshot);
    let options = options(&snapshot, &stats, &partition);
    let hint = if properties::v2_checkpoints(snapshot.protocol(), snapshot.metadata()) {
        v2(&table, &snapshot, &options, sidecar.unwrap()).unwrap()
    } else {
        classic(&table, &snapshot, &options).unwrap()
    };
    point(&table, &hint).unwrap();
    println!("{:?} {}", started.elapsed(), hint.to_json());
}

/// Time and size of the forms of statistics.
#[test]
#[ignore = "a measurement"]
fn what_typed_statistics_cost() {
    let env = crate::env::Env::real();
    for (json, typed) in [("true", "false"), ("false", "true"), ("true", "true")] {
        let made = Made::new(
            &[],
            &[
                ("delta.checkpoint.writeStatsAsJson", json),
                ("delta.checkpoint.writeStatsAsStruct", typed),
            ],
        );
        let lines: Vec<Value> = (0..100_000)
            .map(|i| {
                let mut line = add(&format!(
                    "p=a%2520b/part-{i:05}-6ba7b810-9dad-11d1-80b4-00c04fd430c8.c000.snappy.parquet"
                ));
                let stats = STATS
                    .replace("\"id\":1", &format!("\"id\":{}", i * 1000))
                    .replace("\"id\":9", &format!("\"id\":{}", i * 1000 + 999));
                line["add"]["stats"] = stats.into();
                line
            })
            .collect();
        made.commit(1, &lines);
        let table = made.open();
        let started = env.instant();
        checkpoint(&table, &table.snapshot()).unwrap();
        println!(
            "json {json} typed {typed}: {:?}, {:?} bytes",
            started.elapsed(),
            pointer(&made).size_in_bytes
        );
    }
}
