//! Conflicts that take more than one winner, and what a statement may rely on: PROTOCOL.md F3, F5.

use std::sync::Arc;

use serde_json::{Value, json};

use super::matrix_tests::{Act, Layout, Made, model, rows};
use super::{Delete, OpError, Options, delete};
use crate::deletion_vector::RowSet;
use crate::engine::Predicate;
use crate::log::{Action, Add, DomainMetadata, Txn};
use crate::table::{
    Class, Condition, Conflict, LiveFile, Operation, Outcome, ReadSet, Reads, Reason, Snapshot,
    Staged, Table, TableError,
};

use Act::*;

const PLAIN: Layout = Layout {
    partitioned: false,
    vectors: true,
    serializable: false,
};

const SERIALIZABLE: Layout = Layout {
    serializable: true,
    ..PLAIN
};

const PARTITIONED: Layout = Layout {
    partitioned: true,
    ..PLAIN
};

#[track_caller]
fn committed(outcome: Result<Outcome, TableError>) -> Arc<Snapshot> {
    match outcome {
        Ok(Outcome::Committed(snapshot)) => snapshot,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn conflict(outcome: Result<Outcome, TableError>) -> Conflict {
    match outcome {
        Err(TableError::Conflict(conflict)) => *conflict,
        other => panic!("{other:?}"),
    }
}

/// Somebody else stages and commits.
#[track_caller]
fn win(made: &Made, layout: Layout, act: Act) -> Arc<Snapshot> {
    let table = made.open();
    let base = table.snapshot();
    let mut staged = made.stage(&table, &base, act, layout);
    committed(table.commit(&base, &mut staged))
}

/// DELETE of whatever a text selects, staged against a snapshot.
fn deleting(made: &Made, table: &Table, base: &Arc<Snapshot>, predicate: &str) -> Staged {
    made.deleting(table, base, predicate)
}

#[test]
fn hidden_rows_are_checked_once_somebody_else_may_have_seen_them() {
    // PROTOCOL.md F5, JP "Important".
    for (masked, left, class) in [
        (3, 3, Some(Class::ConcurrentAppend)),
        (3, 55, None),
        (55, 3, Some(Class::ConcurrentAppend)),
    ] {
        let made = Made::new(PLAIN);
        let table = made.open();
        let base = table.snapshot();
        let mut update = made.stage(&table, &base, Update(3, 33, "a"), PLAIN);
        // Two rows come in one file; then one of them goes.
        let add = made.file("both", PLAIN, &[masked + 1000, left], "a");
        let other = made.open();
        let mut insert = Staged::append(vec![Action::Add(add)], Operation::new("WRITE"));
        committed(other.commit(&other.snapshot(), &mut insert));
        let text = format!("id = {}", masked + 1000);
        let mut mask = deleting(&made, &other, &other.snapshot(), &text);
        committed(other.commit(&other.snapshot(), &mut mask));
        let outcome = table.commit(&base, &mut update);
        match class {
            None => assert_eq!(committed(outcome).version(), 3),
            Some(class) => {
                let found = conflict(outcome);
                assert_eq!(
                    (found.class, found.version, found.rows),
                    (class, 2, Some(1))
                );
            }
        }
    }
}

#[test]
fn whoever_reads_hidden_rows_and_writes_others_brings_them_to_light() {
    // T deletes, and does not see an insert that came after it had read: it comes before it. Whoever counts both the
    // inserted row and the one that T deletes comes after the insert and before T: there is no order.
    for (layout, inserted, partition, reads_it, fails) in [
        (PLAIN, 3, "a", true, true),
        (PLAIN, 3, "a", false, false),
        (PLAIN, 55, "a", true, false),
        (PARTITIONED, 3, "a", true, true),
        (PARTITIONED, 103, "b", true, false),
    ] {
        let made = Made::new(layout);
        let table = made.open();
        let base = table.snapshot();
        let mut delete = deleting(&made, &table, &base, "id = 3 AND p = 'a'");
        let after = win(&made, layout, Insert(inserted, partition));
        let other = made.open();
        let read = if reads_it { after } else { Arc::clone(&base) };
        let count = made.file("count", layout, &[500], "b");
        let actions = vec![Action::Add(count)];
        let reads = Reads::Known(ReadSet::default());
        let mut count = Staged::with(actions, Operation::new("WRITE"), reads);
        committed(other.commit(&read, &mut count));
        let outcome = table.commit(&base, &mut delete);
        if fails {
            let found = conflict(outcome);
            assert_eq!((found.class, found.version), (Class::ConcurrentAppend, 2));
        } else {
            assert_eq!(committed(outcome).version(), 3);
        }
    }
}

#[test]
fn a_compaction_carries_hidden_rows_along() {
    // The rows of a blind append are in another file by the time somebody masks one of them.
    for (left, fails) in [(3, true), (55, false)] {
        let made = Made::new(PLAIN);
        let table = made.open();
        let base = table.snapshot();
        let mut delete = deleting(&made, &table, &base, "id = 3 AND p = 'a'");
        let other = made.open();
        let add = made.file("both", PLAIN, &[1003, left], "a");
        let mut insert = Staged::append(vec![Action::Add(add)], Operation::new("WRITE"));
        committed(other.commit(&other.snapshot(), &mut insert));
        let files = ["f000", "both"];
        let mut bins = made.compacting(&other, &other.snapshot(), PLAIN, "a", &files, true);
        committed(other.commit(&other.snapshot(), &mut bins));
        let mut mask = deleting(&made, &other, &other.snapshot(), "id = 1003");
        committed(other.commit(&other.snapshot(), &mut mask));
        let outcome = table.commit(&base, &mut delete);
        if fails {
            let found = conflict(outcome);
            assert_eq!((found.class, found.version), (Class::ConcurrentAppend, 3));
        } else {
            assert_eq!(committed(outcome).version(), 4);
            let mut expected = model(&[Delete(3, "a")]);
            expected.push((55, "a".to_owned()));
            expected.sort();
            assert_eq!(rows(&made), expected);
        }
    }
}

#[test]
fn a_compaction_that_nobody_can_follow_shows_what_was_hidden() {
    for (inserted, fails) in [(3, true), (55, false)] {
        let made = Made::new(PLAIN);
        let table = made.open();
        let base = table.snapshot();
        let mut delete = deleting(&made, &table, &base, "id = 3 AND p = 'a'");
        let other = made.open();
        let add = made.file("new", PLAIN, &[inserted], "a");
        let mut insert = Staged::append(vec![Action::Add(add)], Operation::new("WRITE"));
        committed(other.commit(&other.snapshot(), &mut insert));
        let files = ["f020", "new"];
        let mut bins = made.compacting(&other, &other.snapshot(), PLAIN, "a", &files, false);
        committed(other.commit(&other.snapshot(), &mut bins));
        let outcome = table.commit(&base, &mut delete);
        match fails {
            true => assert_eq!(conflict(outcome).class, Class::ConcurrentAppend),
            false => assert_eq!(committed(outcome).version(), 3),
        }
    }
}

#[test]
fn rows_are_followed_through_one_compaction_after_the_other() {
    for layout in [PLAIN, PARTITIONED] {
        let made = Made::new(layout);
        let table = made.open();
        let base = table.snapshot();
        let mut lost = made.stage(&table, &base, Delete(23, "a"), layout);
        win(&made, layout, Optimize("a"));
        let other = made.open();
        let newest = other.snapshot();
        let bin = newest
            .live_files()
            .find(|f| f.path.key().starts_with("bin-"));
        let bin = bin
            .unwrap()
            .path
            .key()
            .trim_end_matches(".parquet")
            .to_owned();
        let mut again = made.compacting(&other, &newest, layout, "a", &[&bin], true);
        committed(other.commit(&newest, &mut again));
        // And back: its rows lie in a file that has lost some by then.
        if layout == PLAIN {
            win(&made, layout, Delete(24, "a"));
        }
        committed(table.commit(&base, &mut lost));
        let acts: &[Act] = match layout == PLAIN {
            true => &[Delete(23, "a"), Delete(24, "a")],
            false => &[Delete(23, "a")],
        };
        assert_eq!(rows(&made), model(acts));
    }
}

#[test]
fn a_compaction_keeps_what_died_in_its_sources_dead() {
    // D6: both files change, one of them twice, another row goes with its whole file.
    let made = Made::new(PLAIN);
    win(&made, PLAIN, Delete(1, "a"));
    let table = made.open();
    let base = table.snapshot();
    let mut lost = made.stage(&table, &base, Optimize("a"), PLAIN);
    win(&made, PLAIN, Delete(2, "a"));
    win(&made, PLAIN, Delete(9, "a"));
    win(&made, PLAIN, Delete(20, "a"));
    let after = committed(table.commit(&base, &mut lost));
    let acts = [1, 2, 9, 20].map(|id| Delete(id, "a"));
    assert_eq!(rows(&made), model(&acts));
    let bin = after
        .live_files()
        .find(|f| f.path.key().starts_with("bin-"))
        .unwrap();
    assert_eq!(bin.add.deleted_rows(), 3);
    assert_eq!(after.totals().files, 3);
}

#[test]
fn a_bin_whose_rows_are_mostly_gone_is_dropped() {
    let made = Made::new(PLAIN);
    let table = made.open();
    let base = table.snapshot();
    let mut lost = made.stage(&table, &base, Optimize("a"), PLAIN);
    let bin = lost.bins[0].path.clone();
    win(&made, PLAIN, DeleteFile(0, "a"));
    win(&made, PLAIN, Delete(20, "a"));
    let outcome = table.commit(&base, &mut lost);
    assert!(matches!(outcome, Ok(Outcome::Superseded(_))), "{outcome:?}");
    assert!(!made.path().join(bin).exists());
    assert_eq!(rows(&made), model(&[DeleteFile(0, "a"), Delete(20, "a")]));
}

#[test]
fn rows_that_come_back_are_rows_that_nobody_saw() {
    let made = Made::new(PLAIN);
    win(&made, PLAIN, Delete(3, "a"));
    let table = made.open();
    let base = table.snapshot();
    let mut lost = made.stage(&table, &base, Delete(5, "a"), PLAIN);
    // As RESTORE does it.
    let other = made.open();
    let file = base.live_file_of("f000.parquet").unwrap();
    let mut add = file.add.clone();
    add.deletion_vector = None;
    let actions = vec![
        Action::Remove(file.add.to_remove(1, true)),
        Action::Add(add),
    ];
    let mut restore = Staged::with(actions, Operation::new("RESTORE"), Reads::Restage);
    committed(other.commit(&other.snapshot(), &mut restore));
    let found = conflict(table.commit(&base, &mut lost));
    assert_eq!(
        (found.class, found.reason),
        (Class::ConcurrentAppend, Reason::Revived)
    );
}

#[test]
fn the_documents_example_of_reordering() {
    // PROTOCOL.md F5, ISO: a DELETE and an INSERT start at one version, the INSERT commits first.
    let made = Made::new(SERIALIZABLE);
    let table = made.open();
    let base = table.snapshot();
    let mut lost = made.stage(&table, &base, Delete(3, "a"), SERIALIZABLE);
    win(&made, SERIALIZABLE, Insert(3, "a"));
    assert_eq!(
        conflict(table.commit(&base, &mut lost)).class,
        Class::ConcurrentAppend
    );
    let made = Made::new(PLAIN);
    let table = made.open();
    let base = table.snapshot();
    let mut lost = made.stage(&table, &base, Delete(3, "a"), PLAIN);
    win(&made, PLAIN, Insert(3, "a"));
    committed(table.commit(&base, &mut lost));
    assert_eq!(rows(&made), model(&[Delete(3, "a"), Insert(3, "a")]));
    let info = info(&made, 2);
    assert_eq!(
        (&info["readVersion"], &info["isolationLevel"]),
        (&json!(0), &json!("WriteSerializable"))
    );
}

/// The commitInfo of a version.
fn info(made: &Made, version: u64) -> Value {
    let path = made.path().join(format!("_delta_log/{version:020}.json"));
    let body = std::fs::read_to_string(path).unwrap();
    let line: Value = serde_json::from_str(body.lines().next().unwrap()).unwrap();
    line["commitInfo"].clone()
}

#[test]
fn what_a_condition_must_be_for_rows_to_be_compared() {
    // D7: dice are not thrown again; PROTOCOL.md F3.
    let made = Made::new(SERIALIZABLE);
    let table = made.open();
    let base = table.snapshot();
    let mut lost = deleting(&made, &table, &base, "rand() < 2 AND id < 5");
    win(&made, SERIALIZABLE, Insert(50, "a"));
    let found = conflict(table.commit(&base, &mut lost));
    assert_eq!(
        (found.class, found.reason),
        (Class::ConcurrentAppend, Reason::Files)
    );
    // A row that a file has lost is not asked about again, either: whole files count.
    let made = Made::new(PLAIN);
    let table = made.open();
    let base = table.snapshot();
    let mut lost = deleting(&made, &table, &base, "rand() < 2 AND id < 5");
    win(&made, PLAIN, Delete(9, "a"));
    assert_eq!(
        conflict(table.commit(&base, &mut lost)).class,
        Class::ConcurrentAppend
    );
    let parsed = |text: &str| {
        let schema = crate::schema::StructType::from_json(
            r#"{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},
               {"name":"s","type":{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]},
                "nullable":true,"metadata":{}}]}"#,
        )
        .unwrap();
        let predicate = Predicate::parse(text, &schema, &[], 0).unwrap();
        super::condition::shared(&predicate).is_row_local()
    };
    assert!(parsed("id = 1"));
    assert!(!parsed("s.x = 1") && !parsed("id = 1 AND rand() < 0.5"));
}

#[test]
fn an_application_commits_a_transaction_once() {
    let made = Made::new(PLAIN);
    let table = made.open();
    let options = |version| Options {
        txn: Some(("job".to_owned(), version)),
        ..Options::default()
    };
    let run = |predicate: &str, version, base: Option<&Arc<Snapshot>>| {
        let options = options(version);
        let request = Delete {
            predicate,
            options: &options,
        };
        delete(&table, &request, base, &super::matrix_tests::scratch)
    };
    let base = table.snapshot();
    let first = run("id = 1", 7, None).unwrap();
    assert_eq!(first.version, Some(1));
    for version in [7, 6] {
        let again = run("id = 2", version, None).unwrap();
        assert_eq!(again.version, None);
        assert!(again.note.unwrap().contains("application job"), "{version}");
    }
    // It began before the other attempt of the same job was done.
    let late = run("id = 3", 8, Some(&base));
    let Err(OpError::Table(TableError::Conflict(found))) = late else {
        panic!("{late:?}");
    };
    assert_eq!(
        (found.class, found.version),
        (Class::ConcurrentTransaction, 1)
    );
    assert!(found.to_string().contains("application job"), "{found}");
    assert_eq!(run("id = 3", 8, None).unwrap().version, Some(2));
}

#[test]
fn an_application_has_one_writer_at_a_time() {
    let made = Made::new(PLAIN);
    let table = made.open();
    let base = table.snapshot();
    let txn = |app: &str| {
        Action::Txn(Txn {
            app_id: app.to_owned(),
            version: 1,
            last_updated: None,
        })
    };
    let staged = |actions| Staged::with(actions, Operation::new("WRITE"), Reads::Nothing);
    committed(made.open().commit(&base, &mut staged(vec![txn("x")])));
    let found = conflict(table.commit(&base, &mut staged(vec![txn("x")])));
    assert_eq!(found.class, Class::ConcurrentTransaction);
    // Whoever has only asked is in the same place.
    let reads = ReadSet {
        app_ids: ["x".to_owned()].into(),
        ..ReadSet::default()
    };
    let mut asks = staged(vec![txn("y")]);
    asks.reads = Reads::Known(reads);
    let found = conflict(table.commit(&base, &mut asks));
    assert_eq!(found.class, Class::ConcurrentTransaction);
    committed(table.commit(&base, &mut staged(vec![txn("z")])));
}

#[test]
fn whoever_read_everything_is_in_everybodys_way() {
    let made = Made::new(PLAIN);
    let table = made.open();
    let base = table.snapshot();
    let reads = ReadSet {
        whole_table: true,
        ..ReadSet::default()
    };
    let add = made.file("all", PLAIN, &[500], "a");
    let staged = || {
        let reads = Reads::Known(reads.clone());
        Staged::with(
            vec![Action::Add(add.clone())],
            Operation::new("WRITE"),
            reads,
        )
    };
    // D2, D3. A blind append may have come later; what somebody removed was read.
    win(&made, PLAIN, Insert(50, "a"));
    let after_insert = made.open().snapshot();
    win(&made, PLAIN, DeleteFile(100, "b"));
    let found = conflict(table.commit(&base, &mut staged()));
    assert_eq!(
        (found.class, found.version),
        (Class::ConcurrentDeleteRead, 2)
    );
    let found = conflict(table.commit(&after_insert, &mut staged()));
    assert_eq!(
        (found.class, found.version),
        (Class::ConcurrentDeleteRead, 2)
    );
}

#[test]
fn a_message_says_who_was_first_and_what_to_do() {
    let made = Made::new(PLAIN);
    let table = made.open();
    let base = table.snapshot();
    let mut lost = made.stage(&table, &base, Delete(3, "a"), PLAIN);
    win(&made, PLAIN, Delete(3, "a"));
    let error = table.commit(&base, &mut lost).unwrap_err();
    use crate::error::Failure as _;
    let text = error.to_string();
    for part in [
        "ConcurrentDeleteReadException",
        "version 1",
        "DELETE",
        "1 row of f000.parquet",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(error.hint().unwrap().contains("retries"));
    assert_eq!(error.kind(), crate::error::Kind::Conflict);
    let facts: serde_json::Map<String, Value> = error
        .facts()
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v))
        .collect();
    assert_eq!(facts["exception"], "ConcurrentDeleteReadException");
    assert_eq!(facts["winner"]["version"], 1);
    assert_eq!(
        (&facts["file"], &facts["rows"]),
        (&json!("f000.parquet"), &json!(1))
    );
}

#[test]
fn a_statement_is_run_again_as_often_as_it_says() {
    let made = Made::new(PLAIN);
    let table = made.open();
    let base = table.snapshot();
    win(&made, PLAIN, Update(3, 33, "a"));
    let options = Options {
        retries: 1,
        ..Options::default()
    };
    let request = Delete {
        predicate: "id < 5 OR id = 33",
        options: &options,
    };
    let report = delete(&table, &request, Some(&base), &super::matrix_tests::scratch).unwrap();
    assert_eq!(report.version, Some(2));
    assert_eq!(report.metrics["numDeletedRows"], 5);
    let acts = [0, 1, 2, 3, 4].map(|id| Delete(id, "a"));
    assert_eq!(rows(&made), model(&acts));
}

#[test]
fn appends_that_wait_together_become_one_version() {
    const WRITERS: usize = 16;
    let made = Made::new(PLAIN);
    let table = made.open();
    let base = table.snapshot();
    let mut all: Vec<Staged> = (0..WRITERS)
        .map(|i| {
            let add = made.file(&format!("w{i}"), PLAIN, &[1000 + i as i64], "a");
            Staged::append(vec![Action::Add(add)], Operation::new("WRITE"))
        })
        .collect();
    // One is impossible: it adds a file that is there.
    let live = base.live_file_of("f000.parquet").unwrap();
    all[5].actions = vec![Action::Add(live.add.clone())];
    let turn = table.hold_turn();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = all
            .iter_mut()
            .map(|staged| scope.spawn(|| table.commit(&base, staged)))
            .collect();
        while table.waiting_appends() < WRITERS {
            std::thread::yield_now();
        }
        drop(turn);
        let mut versions = std::collections::BTreeSet::new();
        for (i, outcome) in waiting.into_iter().enumerate() {
            match outcome.join().unwrap() {
                Ok(Outcome::Committed(after)) if i != 5 => {
                    versions.insert(after.version());
                }
                Err(TableError::Malformed { .. }) if i == 5 => {}
                other => panic!("{i}: {other:?}"),
            }
        }
        // The bad one makes the others commit one by one; without it they are one version.
        assert_eq!(versions.len(), WRITERS - 1);
    });
    let newest = made.open().snapshot().version();
    let good: Vec<usize> = (0..WRITERS).filter(|i| *i != 5).collect();
    let mut more: Vec<Staged> = good
        .iter()
        .map(|i| {
            let add = made.file(&format!("x{i}"), PLAIN, &[2000 + *i as i64], "a");
            Staged::append(vec![Action::Add(add)], Operation::new("WRITE"))
        })
        .collect();
    let turn = table.hold_turn();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = more
            .iter_mut()
            .map(|staged| scope.spawn(|| table.commit(&base, staged)))
            .collect();
        while table.waiting_appends() < good.len() {
            std::thread::yield_now();
        }
        drop(turn);
        for outcome in waiting {
            assert_eq!(committed(outcome.join().unwrap()).version(), newest + 1);
        }
    });
    let ids: Vec<i64> = rows(&made)
        .iter()
        .map(|(id, _)| *id)
        .filter(|id| *id >= 1000)
        .collect();
    let expected = good.iter().map(|i| 1000 + *i as i64);
    let expected: Vec<i64> = expected
        .chain(good.iter().map(|i| 2000 + *i as i64))
        .collect();
    assert_eq!(ids, expected);
}

#[test]
fn rows_with_ids_are_found_wherever_others_have_put_them() {
    // A compaction of another system: no map, but row tracking.
    for (tracked, sorted) in [(true, false), (true, true), (false, true)] {
        let made = Made::tracked(PLAIN, tracked);
        let table = made.open();
        let base = table.snapshot();
        let mut lost = made.stage(&table, &base, Delete(23, "a"), PLAIN);
        let mut whole = made.stage(&table, &base, DeleteFile(0, "a"), PLAIN);
        made.foreign_compaction(&base, tracked, sorted);
        let outcome = table.commit(&base, &mut lost);
        if !tracked {
            assert_eq!(conflict(outcome).class, Class::ConcurrentDeleteRead);
            continue;
        }
        committed(outcome);
        committed(table.commit(&base, &mut whole));
        let acts = [Delete(23, "a"), DeleteFile(0, "a")];
        assert_eq!(rows(&made), model(&acts), "{sorted}");
    }
}

/// A condition that takes longer to be asked than there is time.
#[derive(Debug)]
struct Slow;

impl Condition for Slow {
    fn may_select(&self, _: &Snapshot, _: &Add) -> bool {
        true
    }

    fn is_row_local(&self) -> bool {
        true
    }

    fn selected(
        &self,
        table: &Table,
        _: &Snapshot,
        _: &LiveFile,
        _: Option<&RowSet>,
    ) -> Result<u64, String> {
        // Under a fixed clock each question takes a millisecond.
        for _ in 0..40_000 {
            table.env().now();
        }
        Ok(0)
    }
}

#[test]
fn comparing_rows_has_a_budget() {
    let made = Made::new(PLAIN);
    let dir = crate::store::Dir::open(made.path()).unwrap();
    let table = Table::open(dir, crate::env::Env::fixed(1_000)).unwrap();
    let base = table.snapshot();
    let mut lost = deleting(&made, &table, &base, "id = 3");
    let Reads::Known(reads) = &mut lost.reads else {
        panic!("a DELETE reads");
    };
    reads.conditions = vec![Arc::new(Slow)];
    win(&made, PLAIN, Update(4, 44, "a"));
    win(&made, PLAIN, Update(5, 55, "a"));
    let found = conflict(table.commit(&base, &mut lost));
    assert_eq!((found.version, found.reason), (2, Reason::Time));
}

#[test]
fn a_domain_has_one_writer_at_a_time() {
    let made = Made::tracked(PLAIN, true);
    let table = made.open();
    let base = table.snapshot();
    let staged = |name: &str| {
        let domain = Action::DomainMetadata(DomainMetadata {
            domain: name.to_owned(),
            configuration: "{}".to_owned(),
            removed: false,
        });
        let reads = Reads::Known(ReadSet::default());
        Staged::with(vec![domain], Operation::new("SET DOMAIN"), reads)
    };
    committed(made.open().commit(&base, &mut staged("mine")));
    let found = conflict(table.commit(&base, &mut staged("mine")));
    assert_eq!(found.class, Class::ConcurrentTransaction);
    committed(table.commit(&base, &mut staged("yours")));
    // The watermark of row ids is everybody's: whoever is second counts on from it.
    for id in [50, 51] {
        let mut insert = made.stage(&table, &base, Insert(id, "a"), PLAIN);
        committed(table.commit(&base, &mut insert));
    }
    let marks = table.snapshot();
    let mark = marks.domains().find(|d| d.domain == "delta.rowTracking");
    assert_eq!(mark.unwrap().configuration, r#"{"rowIdHighWaterMark":41}"#);
}

#[test]
fn a_statement_that_changes_the_schema_sees_every_append() {
    // PROTOCOL.md F4, the note on M: it is its D row, and blind appends count at both levels.
    for (winner, class) in [
        (Insert(3, "a"), Some(Class::ConcurrentAppend)),
        (Insert(50, "a"), None),
        (Delete(3, "a"), Some(Class::ConcurrentDeleteRead)),
        (Delete(4, "a"), None),
        (Optimize("a"), None),
        (Alter, Some(Class::MetadataChanged)),
    ] {
        let made = Made::new(PLAIN);
        let table = made.open();
        let base = table.snapshot();
        let mut lost = made.stage(&table, &base, Delete(3, "a"), PLAIN);
        lost.actions
            .extend(made.stage(&table, &base, Alter, PLAIN).actions);
        win(&made, PLAIN, winner);
        let outcome = table.commit(&base, &mut lost);
        match class {
            Some(class) => assert_eq!(conflict(outcome).class, class, "{winner:?}"),
            None => assert_eq!(committed(outcome).version(), 2, "{winner:?}"),
        }
    }
}
