//! Cleanup of logs made by hand: what goes, what stays, and that every version which stays is what it was.

use proptest::prelude::*;
use serde_json::json;

use super::super::checkpoint::{file_actions, table_actions, write};
use super::super::log_testing::{
    DAY, Made, NOW, add, at, protocol, remove as remove_file, set_time, state,
};
use super::*;
use crate::error::{Failure as _, Kind as ErrorKind};

const WEEK: (&str, &str) = ("delta.logRetentionDuration", "interval 7 days");
const V2: (&str, &str) = ("delta.checkpointPolicy", "v2");

/// Versions 1 to `newest`, each a day after the one before; the newest is of today.
fn daily(features: &[&str], configuration: &[(&str, &str)], newest: u64) -> Made {
    let made = Made::new(features, configuration);
    for version in 1..=newest {
        commit(&made, version);
    }
    for version in 0..=newest {
        made.at(version, NOW - DAY * (newest - version).cast_signed());
    }
    made
}

fn commit(made: &Made, version: u64) {
    let mut lines = vec![
        add(&format!("f{version}")),
        json!({"txn": {"appId": format!("a{}", version % 4), "version": version}}),
    ];
    if version.is_multiple_of(3) {
        lines.push(remove_file(&format!("f{}", version - 1)));
    }
    made.commit(version, &lines);
}

fn checkpoint_at(made: &Made, versions: &[u64]) {
    let table = made.open();
    for &version in versions {
        write(&table, &table.at(version).unwrap(), 2).unwrap();
    }
}

fn clean(made: &Made) -> Cleaned {
    let table = made.open();
    cleanup(&table, &table.snapshot()).unwrap()
}

fn touch(made: &Made, name: &str) {
    std::fs::write(made.log().join(name), "{}").unwrap();
}

/// The commits `from` to `to` reconciled in one file.
fn compact(made: &Made, from: u64, to: u64) {
    let mut kept: BTreeMap<String, String> = BTreeMap::new();
    for version in from..=to {
        let body = std::fs::read_to_string(made.log().join(LogName::commit(version))).unwrap();
        for line in body.lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |pointer| value.pointer(pointer).map(ToString::to_string);
            let key = ["/add/path", "/remove/path", "/txn/appId"]
                .into_iter()
                .find_map(text);
            let kind = value.as_object().unwrap().keys().next().unwrap().clone();
            kept.insert(key.unwrap_or(kind), line.to_owned());
        }
    }
    let name = format!("{from:020}.{to:020}.compacted.json");
    let lines: Vec<String> = kept.into_values().collect();
    std::fs::write(made.log().join(name), lines.join("\n")).unwrap();
}

/// Versions of the files of a kind.
fn versions(made: &Made, suffix: &str) -> Vec<u64> {
    let names = made.names("").into_iter();
    let ours = names.filter(|n| n.ends_with(suffix) && n.len() == 20 + suffix.len());
    ours.map(|n| n[..20].parse().unwrap()).collect()
}

#[test]
fn what_no_retained_version_needs_goes() {
    let made = daily(&[], &[WEEK], 20);
    checkpoint_at(&made, &[3, 9, 11, 18]);
    for version in 0..=20 {
        touch(&made, &LogName::crc(version));
    }
    for range in [(2, 5), (9, 13), (11, 14), (12, 15)] {
        compact(&made, range.0, range.1);
    }
    touch(&made, "_last_vacuum_info");
    let before = made.states(20);
    // The newest commit that is older than a week at midnight is 12; the checkpoint of 11 serves it.
    let cleaned = clean(&made);
    assert_eq!(
        cleaned,
        Cleaned {
            kept: Kept::From(11),
            commits: 11,
            checksums: 11,
            compacted: 3,
            checkpoints: 2,
            sidecars: 0
        }
    );
    let rest: Vec<u64> = (11..=20).collect();
    assert_eq!(versions(&made, ".json"), rest);
    assert_eq!(versions(&made, ".crc"), rest);
    assert_eq!(versions(&made, ".checkpoint.parquet"), [11, 18]);
    let names = made.names("");
    assert!(
        names
            .iter()
            .any(|n| n.starts_with("00000000000000000012.") && n.contains("compacted"))
    );
    assert_eq!(names.iter().filter(|n| n.contains("compacted")).count(), 1);
    assert!(names.contains(&"_last_vacuum_info".to_owned()));
    // D87: the time of version 11 is that of its own commit file, too.
    let after = made.states(20);
    assert!(after.iter().eq(before.range(11..)));
    // Once is enough.
    assert_eq!(clean(&made), Cleaned::default());
}

#[test]
fn nothing_goes_without_a_reason() {
    let off = ("delta.enableExpiredLogCleanup", "false");
    let odd = ("delta.logRetentionDuration", "a while");
    let negative = ("delta.logRetentionDuration", "interval -9 days");
    for (configuration, checkpoints, kept) in [
        (&[][..], &[3, 9][..], Kept::All),
        (&[WEEK], &[], Kept::NoCheckpoint),
        (&[WEEK], &[13, 18], Kept::NoCheckpoint),
        (&[WEEK, off], &[9], Kept::SwitchedOff),
        (&[odd], &[9], Kept::NoDuration(odd.1.to_owned())),
        (&[negative], &[9], Kept::NoDuration(negative.1.to_owned())),
    ] {
        let made = daily(&[], configuration, 20);
        checkpoint_at(&made, checkpoints);
        let names = made.names("");
        assert_eq!(clean(&made), Cleaned::nothing(kept), "{configuration:?}");
        assert_eq!(made.names(""), names);
    }
}

#[test]
fn midnight_is_where_a_day_ends() {
    let made = daily(&[], &[("delta.logRetentionDuration", "0 hours")], 4);
    checkpoint_at(&made, &[1, 2, 3, 4]);
    // Midnight itself is old enough, a millisecond later is not.
    made.at(2, NOW - DAY / 2);
    made.at(3, NOW - DAY / 2 + 1);
    assert_eq!(clean(&made).kept, Kept::From(2));
    assert_eq!(midnight(NOW), NOW - DAY / 2);
    assert_eq!(midnight(-1), -DAY_MS);
}

#[test]
fn times_that_go_back_count_as_later_than_the_one_before() {
    let made = daily(&[], &[WEEK], 20);
    checkpoint_at(&made, &[5, 9]);
    // Version 6 was copied in today, so nothing after it is old.
    made.at(6, NOW);
    assert_eq!(clean(&made).kept, Kept::From(5));
}

#[test]
fn in_commit_timestamps_count_where_they_are_enabled() {
    let since = "delta.inCommitTimestampEnablementVersion";
    for (enabled, kept) in [("0", 12), ("8", 12), ("13", 5)] {
        let on = ("delta.enableInCommitTimestamps", "true");
        let made = daily(&["inCommitTimestamp"], &[WEEK, on, (since, enabled)], 20);
        let from: u64 = enabled.parse().unwrap();
        for version in from.max(1)..=20 {
            let stamp = NOW - DAY * (20 - version).cast_signed();
            let info = json!({"commitInfo": {"inCommitTimestamp": stamp, "operation": "WRITE"}});
            made.commit(version, &[info, add(&format!("f{version}"))]);
        }
        checkpoint_at(&made, &[2, 5, 12, 14]);
        // The files were copied today; the first ones earlier.
        for version in 0..=20 {
            made.at(version, if version < 6 { NOW - 30 * DAY } else { NOW });
        }
        let before = made.states(20);
        assert_eq!(clean(&made).kept, Kept::From(kept), "since {enabled}");
        assert!(made.states(20).iter().eq(before.range(kept..)));
    }
}

#[test]
fn protected_checkpoints_go_with_all_that_is_before_them() {
    let before = "delta.requireCheckpointProtectionBeforeVersion";
    for (version, kept) in [
        ("15", Kept::Protected(15)),
        ("11", Kept::From(11)),
        ("x", Kept::Protected(u64::MAX)),
    ] {
        let made = daily(&["checkpointProtection"], &[WEEK, (before, version)], 20);
        checkpoint_at(&made, &[3, 11, 18]);
        let names = made.names("");
        assert_eq!(clean(&made).kept, kept);
        assert_eq!(made.names("") == names, kept != Kept::From(11));
    }
    // Without the feature, the property says nothing.
    let made = daily(&[], &[WEEK, (before, "15")], 20);
    checkpoint_at(&made, &[3, 11, 18]);
    assert_eq!(clean(&made).kept, Kept::From(11));
}

#[test]
fn what_a_catalog_manages_is_left_to_it() {
    let made = daily(&[], &[WEEK], 20);
    checkpoint_at(&made, &[3, 11]);
    made.commit(21, &[protocol(&["catalogManaged"])]);
    let names = made.names("");
    let table = made.open();
    let error = cleanup(&table, &table.snapshot()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("catalogManaged"), "{error}");
    assert_eq!(made.names(""), names);
}

#[test]
fn another_table_in_the_same_place_is_none_of_ours() {
    let made = daily(&[], &[WEEK], 20);
    checkpoint_at(&made, &[3, 11]);
    let other = daily(&[], &[WEEK], 20);
    let line = std::fs::read_to_string(other.log().join(LogName::commit(0))).unwrap();
    let line = line.replace("\"id\":\"t\"", "\"id\":\"u\"");
    std::fs::write(other.log().join(LogName::commit(0)), line).unwrap();
    let snapshot = other.open().snapshot();
    assert_eq!(cleanup(&made.open(), &snapshot).unwrap().kept, Kept::Moved);
    assert_eq!(versions(&made, ".json").len(), 21);
}

/// A name, and what it does.
type Damage<'a> = (&'a str, &'a dyn Fn(&Made));

/// Damages that a checkpoint may have; each makes the log start with the one before.
#[test]
fn only_a_checkpoint_that_can_be_read_whole_is_a_start() {
    let checkpoint = |made: &Made, version: u64| {
        let start = format!("{version:020}.checkpoint.");
        let mut names = made.names("").into_iter();
        made.log()
            .join(names.rfind(|n| n.starts_with(&start)).unwrap())
    };
    let sidecars_of = |made: &Made, version: u64| {
        let file = std::fs::File::open(checkpoint(made, version)).unwrap();
        let sidecars = read_sidecar_references("f", file).unwrap();
        let folder = made.log().join(SIDECAR_DIR);
        let paths = sidecars.into_iter().map(|s| folder.join(s.path));
        paths.collect::<Vec<_>>()
    };
    let damages: [Damage<'_>; 6] = [
        ("empty", &|m| std::fs::write(checkpoint(m, 11), "").unwrap()),
        ("no sidecar", &|m| {
            std::fs::remove_file(&sidecars_of(m, 11)[1]).unwrap()
        }),
        ("cut sidecar", &|m| {
            let path = &sidecars_of(m, 11)[0];
            let bytes = std::fs::read(path).unwrap();
            std::fs::write(path, &bytes[..bytes.len() - 9]).unwrap();
        }),
        ("of another version", &|m| {
            std::fs::copy(checkpoint(m, 7), checkpoint(m, 11)).unwrap();
        }),
        ("another number of files", &|m| {
            let crc = json!({"numFiles": 3, "tableSizeBytes": 21});
            std::fs::write(m.log().join(LogName::crc(11)), crc.to_string()).unwrap();
        }),
        ("a sidecar for a manifest", &|m| {
            std::fs::copy(&sidecars_of(m, 11)[0], checkpoint(m, 11)).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let made = daily(&["v2Checkpoint"], &[WEEK, V2], 20);
        checkpoint_at(&made, &[3, 7, 11]);
        let before = made.states(20);
        let table = made.open();
        damage(&made);
        let cleaned = cleanup(&table, &table.snapshot()).unwrap();
        assert_eq!(cleaned.kept, Kept::From(7), "{what}");
        // What a reader makes of a checkpoint that lies is another question.
        let lies = [
            "another number of files",
            "of another version",
            "a sidecar for a manifest",
        ];
        if lies.contains(&what) {
            continue;
        }
        let mut after = made.states(20);
        // Version 11 has lost nothing but what only its checkpoint knows.
        assert_eq!(after.len(), 14, "{what}");
        after.retain(|v, _| *v != 11);
        assert!(after.iter().all(|(v, state)| before[v] == *state), "{what}");
    }
}

#[test]
fn checkpoints_of_every_form_are_a_start() {
    // By others: a manifest in JSON, with sidecars or with files of its own; several parts.
    for form in ["json", "embedded", "parts"] {
        let made = daily(&["v2Checkpoint"], &[WEEK, V2], 20);
        checkpoint_at(&made, &[3, 11]);
        let before = made.states(20);
        let mut names = made.names("").into_iter();
        let manifest = names.rfind(|n| n.contains("11.checkpoint")).unwrap();
        let path = made.log().join(&manifest);
        let sidecars = read_sidecar_references("f", std::fs::File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let table = made.open();
        let snapshot = table.at(11).unwrap();
        let mut actions: Vec<Action> = table_actions(&snapshot).collect();
        if form != "json" {
            actions.extend(file_actions(&table, &snapshot));
        }
        if form == "parts" {
            let middle = actions.len() / 2;
            let options = crate::log::CheckpointOptions {
                write_stats_json: true,
                parsed: None,
            };
            for (part, actions) in [&actions[..middle], &actions[middle..]].iter().enumerate() {
                let name = format!("{:020}.checkpoint.{:010}.{:010}.parquet", 11, part + 1, 2);
                let mut file = std::fs::File::create(made.log().join(name)).unwrap();
                let actions = actions.iter().cloned();
                crate::log::write_classic(&mut file, actions, &options).unwrap();
            }
        } else {
            let mut lines = vec![json!({"checkpointMetadata": {"version": 11}})];
            if form == "json" {
                lines.extend(sidecars.iter().map(|s| json!({"sidecar": s})));
            }
            lines.extend(actions.iter().map(|a| serde_json::to_value(a).unwrap()));
            let body: Vec<String> = lines.iter().map(ToString::to_string).collect();
            let name = manifest.replace(".parquet", ".json");
            std::fs::write(made.log().join(name), body.join("\n")).unwrap();
        }
        for name in made.names(SIDECAR_DIR) {
            set_time(&made.log().join(SIDECAR_DIR).join(name), NOW - 9 * DAY);
        }
        // A part alone is no checkpoint.
        let half = made.copy();
        let cleaned = clean(&made);
        assert_eq!(cleaned.kept, Kept::From(11), "{form}");
        assert_kept(&made, &before, 11, 20);
        let left = if form == "json" { sidecars.len() } else { 0 };
        assert_eq!(made.names(SIDECAR_DIR).len(), left, "{form}");
        if form == "parts" {
            let name = format!("{:020}.checkpoint.{:010}.{:010}.parquet", 11, 2, 2);
            std::fs::remove_file(half.log().join(name)).unwrap();
            assert_eq!(clean(&half).kept, Kept::From(3));
        }
    }
}

#[test]
fn old_readers_still_find_the_protocol() {
    let made = daily(&["v2Checkpoint"], &[WEEK, V2], 20);
    checkpoint_at(&made, &[3, 11]);
    let before = made.states(20);
    assert_eq!(clean(&made).kept, Kept::From(11));
    // The same content under the classic name, and enough by itself.
    let names = made.names("").into_iter();
    let of_11 = names.filter(|n| n.contains("11.checkpoint."));
    let (classic, manifest): (Vec<_>, Vec<_>) =
        of_11.partition(|n| n.ends_with("11.checkpoint.parquet"));
    assert_eq!((classic.len(), manifest.len()), (1, 1));
    std::fs::remove_file(made.log().join(&manifest[0])).unwrap();
    assert_kept(&made, &before, 11, 20);
    // It keeps its sidecars, too.
    for name in made.names(SIDECAR_DIR) {
        set_time(&made.log().join(SIDECAR_DIR).join(name), NOW - 9 * DAY);
    }
    clean(&made);
    assert_kept(&made, &before, 11, 20);
}

#[test]
fn a_pointer_at_what_goes_is_moved_first() {
    let made = daily(&[], &[WEEK], 20);
    checkpoint_at(&made, &[3]);
    let pointer = made.log().join("_last_checkpoint");
    let old = std::fs::read(&pointer).unwrap();
    checkpoint_at(&made, &[11]);
    std::fs::write(&pointer, old).unwrap();
    clean(&made);
    let hint = LastCheckpoint::parse(&std::fs::read(&pointer).unwrap()).unwrap();
    assert_eq!(hint.version, 11);
    // Version 11 has eight files and three tombstones.
    assert_eq!((hint.num_of_add_files, hint.size), (Some(8), Some(17)));
}

#[test]
fn sidecars_go_when_nobody_refers_to_them_and_they_are_old() {
    let made = daily(&["v2Checkpoint"], &[WEEK, V2], 20);
    checkpoint_at(&made, &[3, 11, 18]);
    let folder = made.log().join(SIDECAR_DIR);
    let all = made.names(SIDECAR_DIR);
    std::fs::write(folder.join("old.parquet"), "from a crash").unwrap();
    std::fs::write(folder.join("young.parquet"), "on its way").unwrap();
    std::fs::write(folder.join("notes.txt"), "not ours").unwrap();
    for name in made.names(SIDECAR_DIR) {
        set_time(&folder.join(name), NOW - 9 * DAY);
    }
    set_time(&folder.join("young.parquet"), NOW - DAY);
    // Not before all that may refer to them can be read.
    let copy = made.copy();
    std::fs::write(copy.log().join(LogName::classic(19)), "PAR1").unwrap();
    assert_eq!(clean(&copy).sidecars, 0);
    assert_eq!(copy.names(SIDECAR_DIR).len(), all.len() + 3);

    let before = made.states(20);
    let cleaned = clean(&made);
    // Version 3 had two live files and a tombstone, in two sidecars.
    assert_eq!((cleaned.checkpoints, cleaned.sidecars), (1, 3));
    let left = made.names(SIDECAR_DIR);
    assert_eq!(left.len(), all.len() - 2 + 2);
    assert!(left.contains(&"young.parquet".to_owned()) && left.contains(&"notes.txt".to_owned()));
    assert!(made.states(20).iter().eq(before.range(11..)));
    for name in left {
        set_time(&folder.join(name), NOW - 9 * DAY);
    }
    assert_eq!(clean(&made).sidecars, 1);
}

/// The retained versions of a log, if all of them are what they were.
fn assert_kept(made: &Made, before: &BTreeMap<u64, Vec<String>>, kept: u64, newest: u64) {
    let after = made.states(newest);
    let retained = after.range(kept..);
    assert!(
        retained.eq(before.range(kept..)),
        "versions from {kept} on have changed"
    );
}

#[test]
fn wherever_it_stops_the_retained_versions_open() {
    for configuration in [&[WEEK][..], &[WEEK, V2]] {
        let made = daily(&["v2Checkpoint"], configuration, 13);
        checkpoint_at(&made, &[1, 3, 5, 9]);
        for version in [0, 3, 4] {
            touch(&made, &LogName::crc(version));
        }
        compact(&made, 3, 6);
        for name in made.names(SIDECAR_DIR) {
            set_time(&made.log().join(SIDECAR_DIR).join(name), NOW - 9 * DAY);
        }
        let before = made.states(13);
        let whole = made.copy();
        assert_eq!(clean(&whole).kept, Kept::From(5));
        let table = made.open();
        let plan = plan(&table, &table.snapshot(), midnight(NOW) - 7 * DAY).unwrap();
        assert_eq!(plan.expired.len(), 5 + 3 + 1 + 2);
        for steps in 0..=plan.expired.len() {
            let copy = made.copy();
            let table = copy.open();
            let mut done = Cleaned::default();
            prepare(&table, &plan).unwrap();
            carry_out(table.dir(), &plan.expired[..steps], &mut done).unwrap();
            assert_eq!(done.total(), steps as u64);
            assert_kept(&copy, &before, 5, 13);
            // The next one finishes it.
            clean(&copy);
            assert_eq!(copy.names(""), whole.names(""), "stopped after {steps}");
            assert_eq!(copy.names(SIDECAR_DIR), whole.names(SIDECAR_DIR));
        }
    }
}

#[test]
fn cleaners_checkpointers_and_readers_go_on_at_the_same_time() {
    for configuration in [&[WEEK][..], &[WEEK, V2]] {
        let made = daily(&["v2Checkpoint"], configuration, 30);
        checkpoint_at(&made, &[4, 9, 14, 20]);
        let before = made.states(30);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| clean(&made));
            }
            for version in [7, 22, 26, 30] {
                let made = &made;
                scope.spawn(move || {
                    let table = made.open();
                    // A version that is on its way out may be gone.
                    if let Ok(snapshot) = at(&table, version) {
                        write(&table, &snapshot, 2).unwrap();
                    } else {
                        assert!(version < 20);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    let table = made.open();
                    for version in (20..=30).chain(20..=30) {
                        assert_eq!(state(&at(&table, version).unwrap()), before[&version]);
                    }
                });
            }
        });
        assert_kept(&made, &before, 20, 30);
    }
}

/// What becomes of a version in a random log.
#[derive(Debug, Clone)]
struct Step {
    /// Days until the next one; a file's time may go back.
    days: i64,
    checkpoint: Option<Write>,
    crc: bool,
    compacted: bool,
}

#[derive(Debug, Clone, Copy)]
enum Write {
    Good,
    Garbage,
}

fn step() -> impl Strategy<Value = Step> {
    let write = prop_oneof![3 => Just(Write::Good), 1 => Just(Write::Garbage)];
    let checkpoint = prop_oneof![2 => Just(None), 1 => write.prop_map(Some)];
    (-2_i64..4, checkpoint, any::<bool>(), any::<bool>()).prop_map(
        |(days, checkpoint, crc, compacted)| Step {
            days,
            checkpoint,
            crc,
            compacted,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// D87
    #[test]
    fn every_retained_version_is_what_it_was(
        steps in prop::collection::vec(step(), 2..14),
        v2 in any::<bool>(),
        retention in 0_i64..16,
        stop in any::<prop::sample::Index>(),
    ) {
        let interval = format!("interval {retention} days");
        let mut configuration = vec![("delta.logRetentionDuration", interval.as_str())];
        configuration.extend(v2.then_some(V2));
        let made = Made::new(&["v2Checkpoint"], &configuration);
        let newest = steps.len() as u64;
        (1..=newest).for_each(|version| commit(&made, version));
        let mut times = vec![NOW - 20 * DAY];
        for (version, step) in (1..).zip(&steps) {
            times.push((times[version - 1] + step.days * DAY).min(NOW));
            let version = version as u64;
            if step.compacted {
                compact(&made, version - 1, version);
            }
            match step.checkpoint {
                Some(Write::Good) => checkpoint_at(&made, &[version]),
                Some(Write::Garbage) => touch(&made, &LogName::classic(version)),
                None => {}
            }
            if step.crc {
                touch(&made, &LogName::crc(version));
            }
        }
        for (version, time) in (0..).zip(&times) {
            made.at(version, *time);
        }
        let before = made.states(newest);
        prop_assert_eq!(before.len() as u64, newest + 1);
        let names = made.names("");
        let copy = made.copy();
        let cleaned = clean(&made);
        // What a version's time is, told once more.
        let cutoff = NOW - DAY / 2 - retention * DAY;
        let mut last_expired = None;
        let mut previous = Millis::MIN;
        for (version, time) in (0_u64..).zip(&times) {
            previous = (*time).max(previous.saturating_add(1));
            if previous <= cutoff {
                last_expired = Some(version);
            }
        }
        let good = |version: &u64| {
            let step = version.checked_sub(1).and_then(|at| steps.get(at as usize));
            step.is_some_and(|s| matches!(s.checkpoint, Some(Write::Good)))
        };
        let start = last_expired.and_then(|last| (0..=last).rev().find(good));
        match cleaned.kept {
            Kept::From(kept) => {
                prop_assert_eq!(Some(kept), start);
                assert_kept(&made, &before, kept, newest);
                let gone = |n: &String| LogName::parse(n).is_some_and(|n| n.version() < kept);
                prop_assert!(!made.names("").iter().any(gone));
                prop_assert_eq!(versions(&made, ".json"), (kept..=newest).collect::<Vec<_>>());
                // Stopped anywhere, too.
                let table = copy.open();
                let plan = plan(&table, &table.snapshot(), cutoff).unwrap();
                let steps = stop.index(plan.expired.len() + 1);
                carry_out(table.dir(), &plan.expired[..steps], &mut Cleaned::default()).unwrap();
                assert_kept(&copy, &before, kept, newest);
            }
            Kept::All | Kept::NoCheckpoint => {
                prop_assert!(start.is_none_or(|start| start == 0), "{:?}", start);
                prop_assert_eq!(made.names(""), names);
            }
            ref other => prop_assert!(false, "{:?}", other),
        }
    }
}
