//! OPTIMIZE, DELETE and appends at the same time: each statement reads the version at which it was begun, and whoever
//! commits second is carried over the others (PROTOCOL.md F3). No row comes back, none goes, none is doubled.

use std::collections::BTreeSet;

use arrow::array::{ArrayRef, StringArray};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::table_testing::{Made, Shape, longs};
use super::*;
use crate::error::{Failure as _, Kind};
use crate::failpoint;
use crate::table::TableError;

fn without(all: std::ops::Range<i64>, gone: &[i64]) -> impl Iterator<Item = i64> {
    all.filter(move |id| !gone.contains(id))
}

#[track_caller]
fn conflict(outcome: Result<Report, OpError>) -> String {
    match outcome {
        Err(OpError::Table(TableError::Conflict(conflict))) => conflict.to_string(),
        other => panic!("no conflict: {other:?}"),
    }
}

#[test]
fn rows_deleted_while_files_are_put_together_stay_deleted() {
    // D6: with vectors before, and without.
    for early in [&[][..], &[1, 2, 12]] {
        let made = Made::create(&Shape::ids());
        made.append_files(0..3);
        if !early.is_empty() {
            made.delete("id IN (1, 2, 12)");
        }
        let base = made.newest();
        made.delete("id IN (0, 5, 13)");
        made.delete("id IN (6, 19, 20)");
        let report = made.try_optimize(None, &base).unwrap();
        let [file] = &made.files()[..] else { panic!() };
        assert_eq!(file.add.deleted_rows(), 6);
        assert_eq!(file.add.num_records(), Some(30 - early.len() as u64));
        made.holds(without(0..30, &[early, &[0, 5, 13, 6, 19, 20]].concat()));
        // The entries that are removed are those of now.
        let info = &made.actions(report.version.unwrap(), "commitInfo")[0];
        assert_eq!(info["readVersion"], base.version());
        for action in made.actions(report.version.unwrap(), "add") {
            assert_eq!(action["dataChange"], false);
        }
        // And once more, without the race.
        assert_eq!(made.optimize().version, None);
    }
}

#[test]
fn a_file_that_goes_while_it_is_copied_stays_gone() {
    let made = Made::create(&Shape::ids());
    made.append_files(0..4);
    let base = made.newest();
    made.delete("id >= 10 AND id < 20");
    let report = made.try_optimize(None, &base).unwrap();
    assert_eq!(report.metrics["numRemovedFiles"], 3);
    made.holds(without(0..40, &(10..20).collect::<Vec<_>>()));
}

#[test]
fn what_is_mostly_gone_is_left_as_it_is() {
    let made = Made::create(&Shape::ids());
    made.append_files(0..2);
    let base = made.newest();
    made.delete("id >= 2 AND id < 15");
    let report = made.try_optimize(None, &base).unwrap();
    assert_eq!(report.version, None);
    assert!(report.note.unwrap().contains("meanwhile"));
    made.holds([0, 1, 15, 16, 17, 18, 19]);
    // Everything.
    let base = made.newest();
    made.delete("TRUE");
    assert_eq!(made.try_optimize(None, &base).unwrap().version, None);
    made.holds([]);
}

#[test]
fn a_delete_finds_its_rows_where_they_were_put() {
    // D6, the other order.
    for early in [&[][..], &[1, 2, 12]] {
        let made = Made::create(&Shape::ids());
        made.append_files(0..3);
        if !early.is_empty() {
            made.delete("id IN (1, 2, 12)");
        }
        let base = made.newest();
        assert!(made.optimize().version.is_some());
        let report = made.try_delete("id IN (0, 9, 13, 29)", &base).unwrap();
        assert_eq!(report.metrics["numDeletedRows"], 4);
        let [file] = &made.files()[..] else { panic!() };
        assert_eq!(file.add.deleted_rows(), 4);
        made.holds(without(0..30, &[early, &[0, 9, 13, 29]].concat()));
        // A whole file, which is a part of one now.
        made.try_delete("id >= 10 AND id < 20", &made.newest())
            .unwrap();
        made.holds(without(
            0..30,
            &[early, &(10..20).collect::<Vec<_>>(), &[0, 9, 29]].concat(),
        ));
    }
}

#[test]
fn a_delete_of_whole_files_finds_them_where_they_were_put() {
    let made = Made::create(&Shape::ids());
    made.append_files(0..3);
    made.delete("id = 15");
    let base = made.newest();
    made.optimize();
    made.try_delete("id >= 10 AND id < 20", &base).unwrap();
    made.holds(without(0..30, &(10..20).collect::<Vec<_>>()));
    // All that is in the new file.
    let base = made.newest();
    made.append_files(5..6);
    made.optimize();
    made.try_delete("id < 50", &base).unwrap();
    made.holds(50..60);
    let base = made.newest();
    made.append_files(6..7);
    made.optimize();
    made.try_delete("TRUE", &base).unwrap();
    made.holds(60..70);
}

#[test]
fn partitioned_tables_have_the_map_too() {
    let shape = Shape::ids().column("p", "long").partitioned_by(&["p"]);
    let made = Made::create(&shape);
    for round in 0..3 {
        let ids = round * 10..round * 10 + 10;
        let p = longs(ids.clone().map(|id| id % 2));
        made.append(vec![("id", longs(ids)), ("p", p)]);
    }
    let rows = |gone: &[i64]| {
        let mut rows: Vec<String> = without(0..30, gone)
            .map(|id| format!("{id}|{}", id % 2))
            .collect();
        rows.sort();
        rows
    };
    let base = made.newest();
    made.optimize();
    made.try_delete("id IN (0, 1, 13) AND p >= 0", &base)
        .unwrap();
    assert_eq!(made.sorted(), rows(&[0, 1, 13]));
    // The other way round.
    let made = Made::create(&Shape::ids().column("p", "long").partitioned_by(&["p"]));
    for round in 0..3 {
        let ids = round * 10..round * 10 + 10;
        let p = longs(ids.clone().map(|id| id % 2));
        made.append(vec![("id", longs(ids)), ("p", p)]);
    }
    let base = made.newest();
    made.delete("id IN (2, 3, 23)");
    made.delete("p = 1 AND id > 10 AND id < 20");
    let report = made.try_optimize(None, &base).unwrap();
    assert_eq!(report.metrics["numAddedFiles"], 2);
    assert_eq!(made.sorted(), rows(&[2, 3, 23, 11, 13, 15, 17, 19]));
    made.has_no_orphans();
}

#[test]
fn three_at_once() {
    // A DELETE, a DELETE and an OPTIMIZE have read the same version.
    let made = Made::create(&Shape::ids());
    made.append_files(0..3);
    let base = made.newest();
    made.try_delete("id IN (3, 14)", &base).unwrap();
    made.try_optimize(None, &base).unwrap();
    made.try_delete("id IN (4, 13, 20)", &base).unwrap();
    made.holds(without(0..30, &[3, 14, 4, 13, 20]));
    // A row that somebody else has deleted, whether or not it was moved since.
    let said = conflict(made.try_delete("id IN (5, 14)", &base));
    assert!(said.contains("ConcurrentDeleteRead"), "{said}");
    let said = conflict(made.try_delete("id IN (5, 20)", &base));
    assert!(said.contains("changed 1 row of"), "{said}");
    made.holds(without(0..30, &[3, 14, 4, 13, 20]));
}

#[test]
fn a_delete_follows_its_rows_through_several_compactions() {
    for appends in [false, true] {
        let made = Made::create(&Shape::ids());
        made.append_files(0..2);
        let base = made.newest();
        let mut next = 2;
        let mut append = || {
            made.append_files(next..next + 1);
            next += 1;
        };
        if appends {
            append();
        }
        made.optimize();
        append();
        made.optimize();
        made.delete("id = 1");
        append();
        made.optimize();
        assert_eq!(made.files().len(), 1);
        made.try_delete("id IN (0, 7, 18)", &base).unwrap();
        // What it has not read it does not delete.
        made.holds(without(0..next * 10, &[0, 7, 18, 1]));
    }
}

#[test]
fn rows_that_a_delete_has_not_seen_stay_apart_in_a_new_file() {
    // F3: rows of a blind append are hidden; when somebody else changes them they are looked at.
    let made = Made::create(&Shape::ids());
    made.append_files(0..2);
    let base = made.newest();
    made.append_files(2..3);
    made.optimize();
    made.try_delete("id % 10 = 4", &base).unwrap();
    made.holds(without(0..30, &[4, 14]));
    let base = made.newest();
    made.append_files(3..4);
    made.optimize();
    made.delete("id = 33");
    let said = conflict(made.try_delete("id % 10 = 5", &base));
    assert!(said.contains("ConcurrentAppend"), "{said}");
    // Nothing of what was changed there is meant.
    made.try_delete("id = 5", &base).unwrap();
    made.holds(without(0..40, &[4, 14, 33, 5]));
}

#[test]
fn a_file_of_hidden_rows_that_a_delete_has_touched_may_go() {
    let made = Made::create(&Shape::ids());
    made.append_files(0..1);
    let base = made.newest();
    made.append_files(1..2);
    made.optimize();
    made.delete("TRUE");
    conflict(made.try_delete("id = 4", &base));
    made.holds([]);
}

#[test]
fn what_a_statement_has_read_is_followed_into_new_files() {
    // In a partitioned table whole files decide: those that hold what was read are read.
    let shape = Shape::ids().column("p", "string").partitioned_by(&["p"]);
    let made = Made::create(&shape);
    let append = |ids: [i64; 2], p: &str| {
        let p: ArrayRef = Arc::new(StringArray::from(vec![p, p]));
        made.append(vec![("id", longs(ids)), ("p", p)]);
    };
    append([0, 10], "a");
    append([1, 9], "b");
    append([20, 30], "b");
    let base = made.newest();
    made.optimize();
    made.delete("p = 'b'");
    // It has read the file of 1 and 9.
    let said = conflict(made.try_delete("id IN (4, 10)", &base));
    assert!(said.contains("ConcurrentDeleteRead"), "{said}");
    // It has read nothing of the partition.
    made.try_delete("id IN (10) AND p = 'a'", &base).unwrap();
    assert_eq!(made.sorted(), [r#"0|"a""#]);
}

#[test]
fn appends_go_on_meanwhile() {
    // D4, D5, D10
    let made = Made::create(&Shape::ids());
    made.append_files(0..5);
    let base = made.newest();
    made.append_files(5..8);
    let report = made.try_optimize(None, &base).unwrap();
    assert_eq!(report.metrics["numRemovedFiles"], 5);
    assert_eq!(made.files().len(), 4);
    made.holds(0..80);
    // While it runs, in threads.
    std::thread::scope(|scope| {
        scope.spawn(|| made.append_files(8..20));
        for _ in 0..4 {
            let report = made.try_optimize(None, &made.newest());
            report.unwrap();
        }
    });
    made.holds(0..200);
    let mut counts = BTreeSet::new();
    for version in 0..=made.version() {
        let snapshot = made.table.at(version).unwrap();
        counts.insert(snapshot.totals().records);
    }
    let whole = (0..=20).map(|files| files * 10).collect();
    assert_eq!(counts, whole, "every version has whole appends, each once");
}

#[test]
fn two_at_once_do_it_once() {
    let made = Made::create(&Shape::ids().row_tracking());
    made.append_files(0..3);
    let ids = made.identities();
    let base = made.newest();
    made.try_optimize(None, &base).unwrap();
    let second = made.try_optimize(None, &base).unwrap();
    assert_eq!(second.version, None);
    assert!(second.note.unwrap().contains("meanwhile"));
    assert_eq!(made.identities(), ids);
    made.holds(0..30);

    // A part of it.
    let made = Made::create(&Shape::ids().column("p", "long").partitioned_by(&["p"]));
    for round in 0..2 {
        let p = longs([0, 1]);
        made.append(vec![("id", longs([round, round + 10])), ("p", p)]);
    }
    let before = made.sorted();
    let base = made.newest();
    made.try_optimize(Some("p = 1"), &base).unwrap();
    let second = made.try_optimize(None, &base).unwrap();
    assert_eq!(second.metrics["numRemovedFiles"], 2);
    assert_eq!(second.metrics["numAddedFiles"], 1);
    assert_eq!(made.sorted(), before);
    assert_eq!(made.files().len(), 2);
    made.has_no_orphans();
}

#[test]
fn without_vectors_whole_files_decide() {
    let made = Made::create(&Shape::ids().without_vectors());
    made.append_files(0..3);
    let base = made.newest();
    made.delete("id = 5");
    let said = conflict(made.try_optimize(None, &base));
    assert!(said.contains("ConcurrentDeleteDelete"), "{said}");
    made.holds(without(0..30, &[5]));
    // What it asks for is done on the newest version when it is told to.
    let options = Options {
        retries: 1,
        ..Options::default()
    };
    let request = Optimize {
        predicate: None,
        options: &options,
    };
    let again = optimize(&made.open(), &request, Some(&base), &|| made.scratch()).unwrap();
    assert_eq!(again.metrics["numRemovedFiles"], 3);
    made.holds(without(0..30, &[5]));
    let base = made.newest();
    made.append_files(3..4);
    made.optimize();
    conflict(made.try_delete("id = 6", &base));
    made.append_files(4..5);
    made.holds(without(0..50, &[5]));
}

#[test]
fn other_changes_of_the_table_come_first() {
    let made = Made::create(&Shape::ids());
    made.append_files(0..2);
    let base = made.newest();
    let mut metadata = serde_json::to_value(base.metadata()).unwrap();
    metadata["configuration"]["delta.enableDeletionVectors"] = json!("false");
    made.commit(&[json!({ "metaData": metadata })]);
    let error = made.try_optimize(None, &base).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.to_string().contains("MetadataChanged"), "{error}");
    made.holds(0..20);
}

#[test]
fn rows_that_come_back_while_files_are_put_together_are_there() {
    // A RESTORE: once of rows that went since OPTIMIZE began, once of rows that were gone before.
    let made = Made::create(&Shape::ids());
    made.append_files(0..3);
    let base = made.newest();
    made.delete("id IN (3, 14)");
    restore(&made, &base);
    let report = made.try_optimize(None, &base).unwrap();
    assert!(report.version.is_some());
    made.holds(0..30);

    let made = Made::create(&Shape::ids());
    made.append_files(0..3);
    let first = made.newest();
    made.delete("id IN (3, 14)");
    let base = made.newest();
    restore(&made, &first);
    assert_eq!(made.try_optimize(None, &base).unwrap().version, None);
    made.holds(0..30);

    // A file that was gone meanwhile.
    let made = Made::create(&Shape::ids());
    made.append_files(0..4);
    let base = made.newest();
    made.delete("id < 10");
    restore(&made, &base);
    made.try_optimize(None, &base).unwrap();
    made.holds(0..40);
}

#[test]
fn a_new_name_meanwhile_is_no_change_of_rows() {
    let made = Made::create(&Shape::ids());
    made.append_files(0..2);
    let base = made.newest();
    let path = made.files()[0].path.clone();
    super::super::rename(&made.open(), &path, "b.parquet").unwrap();
    assert!(made.try_optimize(None, &base).unwrap().version.is_some());
    made.holds(0..20);
}

#[test]
fn a_crash_anywhere_leaves_a_whole_table() {
    for point in failpoint::TRANSACTION {
        let made = Made::create(&Shape::ids());
        made.append_files(0..3);
        let base = made.newest();
        // So that there is a vector to be written.
        made.delete("id IN (1, 12)");
        let left: Vec<i64> = without(0..30, &[1, 12]).collect();
        let version = made.version();
        let done = failpoint::crash_at(*point, || made.try_optimize(None, &base));
        assert!(done.is_none(), "{point:?} is never met");
        let committed = point.is_committed();
        assert_eq!(made.version(), version + u64::from(committed), "{point:?}");
        let mut ids: Vec<i64> = made.rows().iter().map(|id| id.parse().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, left, "{point:?}");
        // Whoever comes after is not in the way of what it left.
        let again = made.optimize();
        assert_eq!(again.version.is_some(), !committed);
        made.delete("id = 2");
        assert_eq!(made.rows().len(), left.len() - 1);
    }
}

/// What RESTORE commits: the difference by path and vector.
fn restore(made: &Made, to: &Arc<Snapshot>) {
    let now = made.newest();
    let key = |f: &Arc<LiveFile>| (f.path.key().to_owned(), f.add.dv_id());
    let entries = |s: &Snapshot| s.live_files().map(|f| key(&f)).collect::<BTreeSet<_>>();
    let (before, after) = (entries(&now), entries(to));
    let mut lines: Vec<Value> = vec![json!({"commitInfo": {"operation": "RESTORE"}})];
    for file in now.live_files().filter(|f| !after.contains(&key(f))) {
        let remove = file.add.to_remove(1, true);
        lines.push(json!({ "remove": remove }));
    }
    for file in to.live_files().filter(|f| !before.contains(&key(f))) {
        let mut add = serde_json::to_value(&file.add).unwrap();
        add["dataChange"] = json!(true);
        lines.push(json!({ "add": add }));
    }
    made.commit(&lines);
}

// ---- any schedule

#[derive(Debug, Clone)]
enum Op {
    /// So many rows in a file.
    Append(i64),
    /// Each row that was there at the base with this chance in eight. The base is so many versions ago.
    Delete {
        ago: usize,
        chance: u64,
        salt: u64,
    },
    /// As [`Op::Delete`], with a condition that knows nothing of rows: every fourth, also of those that came later.
    DeleteWhere {
        ago: usize,
        rest: i64,
    },
    Optimize {
        ago: usize,
    },
    Restore {
        ago: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let ago = || 0..6_usize;
    prop_oneof![
        3 => (1..8_i64).prop_map(Op::Append),
        4 => (ago(), 1..5_u64, any::<u64>()).prop_map(|(ago, chance, salt)| Op::Delete { ago, chance, salt }),
        2 => (ago(), 0..4_i64).prop_map(|(ago, rest)| Op::DeleteWhere { ago, rest }),
        4 => ago().prop_map(|ago| Op::Optimize { ago }),
        1 => ago().prop_map(|ago| Op::Restore { ago }),
    ]
}

impl Op {
    fn selects(&self, id: i64) -> bool {
        match self {
            Op::Delete { chance, salt, .. } => {
                (id as u64 + 1).wrapping_mul(salt | 1).rotate_left(17) % 8 < *chance
            }
            Op::DeleteWhere { rest, .. } => id % 4 == *rest,
            Op::Append(_) | Op::Optimize { .. } | Op::Restore { .. } => false,
        }
    }
}

/// A version: its snapshot, the rows that it must have, and whether it brought rows back.
type Past = (Arc<Snapshot>, BTreeSet<i64>, bool);

fn run_schedule(shape: &Shape<'_>, ops: &[Op]) {
    let made = Made::create(shape);
    let partitioned = !shape.partitions.is_empty();
    let tracked = shape.features.contains(&"rowTracking");
    let mut past: Vec<Past> = vec![(made.newest(), BTreeSet::new(), false)];
    let mut next = 0;
    for op in ops {
        let (_, live, _) = past.last().unwrap();
        let mut live = live.clone();
        let back = |ago: &usize| past.len().saturating_sub(1 + ago);
        let ids_before = (tracked && !live.is_empty()).then(|| made.identities());
        let mut restored = false;
        match op {
            Op::Append(rows) => {
                let ids = next..next + rows;
                next += rows;
                let mut columns = vec![("id", longs(ids.clone()))];
                if partitioned {
                    columns.push(("p", longs(ids.clone().map(|id| id % 2))));
                }
                made.append(columns);
                live.extend(ids);
            }
            Op::Delete { ago, .. } | Op::DeleteWhere { ago, .. } => {
                let (base, seen, _) = &past[back(ago)];
                let chosen: BTreeSet<i64> =
                    seen.iter().copied().filter(|id| op.selects(*id)).collect();
                if chosen.is_empty() {
                    continue;
                }
                let list: Vec<String> = chosen.iter().map(i64::to_string).collect();
                let predicate = match op {
                    Op::DeleteWhere { rest, .. } => format!("id % 4 = {rest}"),
                    _ => format!("id IN ({})", list.join(",")),
                };
                let outcome = made.try_delete(&predicate, base);
                let gone = chosen.difference(&live).count();
                let since = past[back(ago) + 1..].iter().any(|(.., restored)| *restored);
                match outcome {
                    Ok(report) => {
                        assert_eq!(gone, 0, "rows of others are deleted twice");
                        assert_eq!(report.metrics["numDeletedRows"], chosen.len() as u64);
                        // What came later was not read, and stays.
                        live.retain(|id| !chosen.contains(id));
                    }
                    Err(OpError::Table(TableError::Conflict(conflict))) => {
                        let later = live.iter().any(|id| op.selects(*id) && !seen.contains(id));
                        let unseen = matches!(op, Op::DeleteWhere { .. }) && later;
                        let fair = gone > 0 || partitioned || since || unseen;
                        assert!(fair, "nobody else has changed these rows: {conflict}");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Optimize { ago } => {
                let (base, ..) = &past[back(ago)];
                made.try_optimize(None, base).unwrap();
            }
            Op::Restore { ago } => {
                let (to, then, _) = &past[back(ago)];
                restore(&made, to);
                live.clone_from(then);
                restored = true;
            }
        }
        if partitioned {
            let ids = made.rows().into_iter();
            let mut ids: Vec<i64> = ids
                .map(|r| r.split('|').next().unwrap().parse().unwrap())
                .collect();
            ids.sort_unstable();
            assert_eq!(ids, live.iter().copied().collect::<Vec<_>>());
            made.has_no_orphans();
        } else {
            made.holds(live.iter().copied());
        }
        if let Some(before) = ids_before.filter(|_| !restored && !live.is_empty()) {
            let after = made.identities();
            let moved = before
                .iter()
                .find(|(row, id)| after.get(*row).is_some_and(|now| now != *id));
            assert_eq!(moved, None, "a row has another id");
        }
        let newest = made.newest();
        if newest.version() > past.last().unwrap().0.version() {
            past.push((newest, live, restored));
        }
    }
}

fn schedules() -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 4..16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_keeps_every_row_once(ops in schedules()) {
        run_schedule(&Shape::ids(), &ops);
    }

    #[test]
    fn every_schedule_keeps_every_row_id(ops in schedules()) {
        run_schedule(&Shape::ids().row_tracking(), &ops);
    }

    #[test]
    fn every_schedule_of_small_targets_and_partitions(ops in schedules()) {
        let shape = Shape::ids().column("p", "long").partitioned_by(&["p"]);
        run_schedule(&shape.property("delta.targetFileSize", "2kb"), &ops);
    }
}
