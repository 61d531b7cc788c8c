//! Transactions of several clients on two mounts, in thousands of orders: what the clients were told, what is in the
//! table and what the isolation level promises fit together.
//!
//! `DELTAFS_SEEDS=N` plays N seeds; `DELTAFS_SEED=N` plays one and tells what happened in it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::testkit::check;
use crate::testkit::model::Row;
use crate::testkit::strategy::{Lie, Run, play};

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

/// A run as text.
fn story(seed: u64, run: &Run) -> String {
    let mut lines = vec![format!("seed {seed}: {:?}", run.shape)];
    lines.extend(run.history.iter().enumerate().map(|(index, txn)| {
        format!(
            "  {index}: client {}, read {}, {:?}{}: {:?}",
            txn.client,
            txn.read,
            txn.statement,
            txn.app
                .as_ref()
                .map_or(String::new(), |app| format!(" as {app:?}")),
            txn.answer
        )
    }));
    for (number, version) in run.versions.iter().enumerate() {
        lines.push(format!("  version {number}: {}", version.info["operation"]));
        let files = version.files.iter();
        lines.extend(files.map(|(path, entry)| {
            let ids: Vec<i64> = entry.rows.iter().map(|row| row.id).collect();
            format!("    {path} {ids:?}")
        }));
    }
    lines.push(format!(
        "  {}",
        run.fault.as_deref().unwrap_or("all is well")
    ));
    lines.join("\n")
}

/// Plays seeds on all cores; gives what was seen.
fn play_all(count: u64, real: bool) -> BTreeMap<String, usize> {
    if let Some(seed) = number("DELTAFS_SEED") {
        let run = play(seed, real, None);
        println!("{}", story(seed, &run));
        assert!(run.fault.is_none(), "see above");
        return BTreeMap::new();
    }
    let next = AtomicU64::new(0);
    let seen: Mutex<BTreeMap<String, usize>> = Mutex::default();
    let fault: Mutex<Option<String>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        return;
                    }
                    let run = std::panic::catch_unwind(|| play(seed, real, None));
                    let run = run.unwrap_or_else(|cause| {
                        println!("seed {seed}");
                        std::panic::resume_unwind(cause)
                    });
                    if run.fault.is_some() {
                        next.store(count, Ordering::Relaxed);
                        fault.lock().unwrap().get_or_insert(story(seed, &run));
                        return;
                    }
                    let mut all = seen.lock().unwrap();
                    for (what, times) in run.seen {
                        *all.entry(what).or_insert(0) += times;
                    }
                }
            });
        }
    });
    if let Some(story) = fault.into_inner().unwrap() {
        panic!("{story}");
    }
    let seen = seen.into_inner().unwrap();
    for (what, times) in &seen {
        println!("{times:7} {what}");
    }
    seen
}

#[test]
fn every_history_has_an_order() {
    let count = number("DELTAFS_SEEDS").unwrap_or(2000);
    let seen = play_all(count, false);
    if count < 2000 || seen.is_empty() {
        return;
    }
    // Else it would prove little.
    for what in [
        "append carried",
        "append raced",
        "group",
        "delete carried",
        "delete had nothing to do",
        "delete refused: ConcurrentAppendException",
        "delete refused: ConcurrentDeleteReadException",
        "delete refused: ConcurrentTransactionException",
        "delete refused: MetadataChangedException",
        "replace committed",
        "count carried",
        "count refused: ConcurrentAppendException",
        "alter carried",
        "constrain carried",
        "constrain refused: ConcurrentAppendException",
        "rearrange carried",
        "rearrange had nothing to do",
        "rearrange refused: ConcurrentDeleteDeleteException",
        "rows compared",
        "checkpoint",
        "another order than that of the versions",
    ] {
        assert!(
            seen.get(what).is_some_and(|n| *n > 4),
            "{what}: {:?}",
            seen.get(what)
        );
    }
}

#[test]
fn every_history_of_real_files_has_an_order() {
    play_all(number("DELTAFS_SEEDS").unwrap_or(150), true);
}

/// The check is worth something: clients that lie about what they have read are found out.
#[test]
fn lies_are_found_out() {
    for lie in [Lie::Counts, Lie::Deletes, Lie::Constraints] {
        let found = (0..300).find(|seed| {
            let fault = play(*seed, false, Some(lie)).fault;
            fault.is_some_and(|fault| fault.contains("order") || fault.contains("rows"))
        });
        assert!(found.is_some(), "{lie:?}");
    }
}

/// So are histories that are not what happened.
#[test]
fn false_histories_are_found_out() {
    let mut found = BTreeMap::new();
    for seed in 0..200 {
        let run = play(seed, false, None);
        assert_eq!(run.fault, None);
        let states: Vec<_> = run.versions.iter().map(|v| v.state.clone()).collect();
        check::check(&run.history, &states).unwrap();
        let last = states.len() as u64 - 1;
        for (index, txn) in run.history.iter().enumerate() {
            let mut other = run.history.clone();
            let mut after = states.clone();
            let what = match (&txn.answer, txn.statement.rows()) {
                // An acknowledged row is lost again, in the last version or in all.
                (check::Answer::Version(_), [row, ..])
                    if states[states.len() - 1].rows.contains_key(&row.id) =>
                {
                    for state in &mut after {
                        state.rows.remove(&row.id);
                    }
                    "a lost row"
                }
                // Nobody was told of what was done.
                (check::Answer::Version(_), []) => {
                    other[index].answer = check::Answer::Nothing;
                    "a version without a client"
                }
                // What was refused is called committed, and has done nothing.
                (check::Answer::Refused(_), []) => {
                    let read = usize::try_from(txn.read).unwrap();
                    let newest = after[after.len() - 1].clone();
                    let pred = txn.statement.reads();
                    let selected = |row: &&Row| pred.as_ref().is_some_and(|p| p.selects(row));
                    let mut rows = states[read].rows.values().filter(selected);
                    if !rows.any(|row| newest.rows.contains_key(&row.id)) {
                        continue;
                    }
                    after.push(newest);
                    other[index].answer = check::Answer::Version(last + 1);
                    "a refused transaction that is called committed"
                }
                (check::Answer::Refused(_), [row, ..]) => {
                    let row = *row;
                    if let Some(state) = after.last_mut() {
                        state.rows.insert(row.id, row);
                    }
                    "a row of a refused transaction"
                }
                _ => continue,
            };
            assert!(
                check::check(&other, &after).is_err(),
                "{what}: {}",
                story(seed, &run)
            );
            *found.entry(what).or_insert(0) += 1;
        }
    }
    assert!(
        found.len() == 4 && found.values().all(|n| *n > 10),
        "{found:?}"
    );
}
