//! DELETE: whole files where the statistics or the partition say so, deletion vectors for the rest, a rewrite
//! only where the table has no vectors (PROTOCOL.md B, H).

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use arrow::array::{Array as _, BooleanArray};
use serde_json::value::RawValue;

use super::{OpError, Report, kept_files, rewrite, run};
use crate::datafile::Reader;
use crate::deletion_vector::RowSet;
use crate::engine::{Predicate, Verdict};
use crate::log::Action;
use crate::table::{LiveFile, Operation, Snapshot, Staged, Table, protocol};

/// Deletes the rows for which a predicate is true. Makes no version when there is none.
///
/// # Errors
/// [`OpError`]: nothing was committed and nothing is left behind, unless the outcome itself is unknown.
pub fn delete(
    table: &Table,
    predicate: &str,
    user_metadata: Option<&str>,
    scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
) -> Result<Report, OpError> {
    let started = table.env().now();
    let mut written = Vec::new();
    let mut metrics = BTreeMap::new();
    let outcome = run(table, |base| {
        discard(table, &mut written);
        metrics.clear();
        base.check_write()?;
        base.check_append_only()?;
        let text = strip_where(predicate);
        let predicate = Predicate::parse(
            text,
            base.schema(),
            base.partition_columns(),
            table.env().now(),
        )?;
        let plan = Plan {
            table,
            base,
            predicate: &predicate,
            scratch,
        };
        let changes = plan.changes()?;
        if changes.is_empty() {
            return Ok(None);
        }
        let actions = plan.actions(changes, &mut metrics, &mut written)?;
        metrics.insert("executionTimeMs", elapsed(table, started));
        let parameters = vec![(
            "predicate",
            serde_json::json!([format!("({text})")]).to_string(),
        )];
        Ok(Some(Staged {
            actions,
            operation: Operation {
                name: "DELETE",
                parameters,
                metrics: metrics.clone(),
                user_metadata: user_metadata.map(str::to_owned),
            },
            blind: false,
            absent: None,
        }))
    });
    match outcome {
        Ok(committed) => {
            let snapshot = committed.map(|(snapshot, _)| snapshot);
            if snapshot.is_none() {
                metrics.insert("numDeletedRows", 0);
            }
            Ok(Report {
                operation: "DELETE",
                version: snapshot.as_ref().map(|s| s.version()),
                metrics,
                note: snapshot
                    .is_none()
                    .then(|| "no row matches: no version was made".to_owned()),
                snapshot,
            })
        }
        Err(error) => {
            if !super::is_unknown(&error) {
                discard(table, &mut written);
            }
            Err(error)
        }
    }
}

fn elapsed(table: &Table, started: i64) -> u64 {
    u64::try_from(table.env().now().saturating_sub(started)).unwrap_or(0)
}

fn discard(table: &Table, written: &mut Vec<String>) {
    for path in written.drain(..) {
        table.discard(&path);
    }
}

/// The keyword may be there, as people write it.
fn strip_where(text: &str) -> &str {
    match text.get(..5) {
        Some(word) if word.eq_ignore_ascii_case("where") => match text.get(5..) {
            Some(rest) if rest.starts_with(|c: char| c.is_whitespace() || c == '(') => {
                rest.trim_start()
            }
            _ => text,
        },
        _ => text,
    }
}

/// What a DELETE does to one file.
struct Change {
    file: Arc<LiveFile>,
    /// Live rows that go.
    deleted: u64,
    what: Effect,
}

enum Effect {
    /// Every live row goes.
    Remove,
    /// These rows are dead afterwards, those that were before included; with the physical rows of the file.
    Mark(RowSet, u64),
}

struct Plan<'a> {
    table: &'a Table,
    base: &'a Arc<Snapshot>,
    predicate: &'a Predicate,
    scratch: &'a (dyn Fn() -> std::io::Result<File> + Sync),
}

impl Plan<'_> {
    /// The files that lose rows, in the order of their paths.
    fn changes(&self) -> Result<Vec<Change>, OpError> {
        let work = kept_files(self.base, self.predicate)?;
        // Columns are evaluated file by file; a core each.
        let next = AtomicUsize::new(0);
        let results: Mutex<BTreeMap<usize, Result<Option<Change>, OpError>>> = Mutex::default();
        let threads = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(work.len());
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some((file, verdict)) = work.get(index) else {
                            return;
                        };
                        let result = self.change(file, *verdict);
                        let failed = result.is_err();
                        results
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .insert(index, result);
                        if failed {
                            // The others finish what they have and find no more.
                            next.store(work.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut changes = Vec::new();
        for (_, result) in results {
            changes.extend(result?);
        }
        Ok(changes)
    }

    fn change(&self, file: &Arc<LiveFile>, verdict: Verdict) -> Result<Option<Change>, OpError> {
        if verdict == Verdict::EveryRow {
            let deleted = match super::files::live_rows(file) {
                Some(rows) => rows,
                // Without statistics the footer counts.
                None => self
                    .reader(file, &[], &RowSet::new())?
                    .physical_rows()
                    .saturating_sub(file.add.deleted_rows()),
            };
            return Ok(Some(Change {
                file: Arc::clone(file),
                deleted,
                what: Effect::Remove,
            }));
        }
        let dead = self.table.dead_rows(file)?;
        let reader = self.reader(file, self.predicate.columns(), &dead)?;
        let physical = reader.physical_rows();
        let mut marked = dead.clone();
        for batch in reader {
            let (batch, positions) = batch.map_err(|e| rewrite::in_file(file, e))?;
            let hits = self.predicate.evaluate(&batch)?;
            for (index, row) in positions.iter().enumerate() {
                if is_hit(&hits, index) {
                    marked.insert(row);
                }
            }
        }
        let deleted = marked.len() - dead.len();
        let what = match deleted {
            0 => return Ok(None),
            _ if marked.len() == physical => Effect::Remove,
            _ => Effect::Mark(marked, physical),
        };
        Ok(Some(Change {
            file: Arc::clone(file),
            deleted,
            what,
        }))
    }

    fn reader(
        &self,
        file: &LiveFile,
        columns: &[String],
        dead: &RowSet,
    ) -> Result<Reader, OpError> {
        let base = self.base;
        rewrite::open(self.table, base, file, base.schema(), columns, dead)
    }

    /// The actions of all changes; `written` gets what is on the disk for them.
    fn actions(
        &self,
        changes: Vec<Change>,
        metrics: &mut BTreeMap<&'static str, u64>,
        written: &mut Vec<String>,
    ) -> Result<Vec<Action>, OpError> {
        let vectors = protocol::supports(self.base.protocol(), "deletionVectors")
            && protocol::flag(self.base.metadata(), "delta.enableDeletionVectors");
        let now = self.table.env().now();
        let mut count = |key, by: u64| *metrics.entry(key).or_insert(0) += by;
        for key in [
            "numRemovedFiles",
            "numAddedFiles",
            "numDeletedRows",
            "numCopiedRows",
        ] {
            count(key, 0);
        }
        let mut actions = Vec::new();
        let mut marks = Vec::new();
        for change in changes {
            let add = &change.file.add;
            count("numDeletedRows", change.deleted);
            match change.what {
                Effect::Remove => {
                    count("numRemovedFiles", 1);
                    count("numRemovedBytes", u64::try_from(add.size).unwrap_or(0));
                    if add.deletion_vector.is_some() {
                        count("numDeletionVectorsRemoved", 1);
                    }
                    actions.push(Action::Remove(add.to_remove(now, true)));
                }
                Effect::Mark(rows, physical) if vectors => {
                    count("numDeletionVectorsAdded", 1);
                    if add.deletion_vector.is_some() {
                        count("numDeletionVectorsRemoved", 1);
                        count("numDeletionVectorsUpdated", 1);
                    }
                    actions.push(Action::Remove(add.to_remove(now, true)));
                    marks.push((change.file, rows, physical));
                }
                Effect::Mark(rows, _) => {
                    if protocol::flag(self.base.metadata(), "delta.enableChangeDataFeed") {
                        let path = change.file.visible.to_string();
                        return Err(OpError::FeedNeedsVectors { path });
                    }
                    count("numRemovedFiles", 1);
                    count("numRemovedBytes", u64::try_from(add.size).unwrap_or(0));
                    let (copy, kept) = rewrite::copy(
                        self.table,
                        self.base,
                        &change.file,
                        &rows,
                        self.scratch,
                        written,
                    )?;
                    count("numAddedFiles", 1);
                    count("numAddedBytes", u64::try_from(copy.size).unwrap_or(0));
                    count("numCopiedRows", kept);
                    actions.push(Action::Remove(add.to_remove(now, true)));
                    actions.push(Action::Add(copy));
                }
            }
        }
        if !marks.is_empty() {
            let sets: Vec<&RowSet> = marks.iter().map(|(_, rows, _)| rows).collect();
            let (path, descriptors) = self.table.write_vectors(&sets)?;
            written.push(path);
            for ((file, _, physical), descriptor) in marks.into_iter().zip(descriptors) {
                let mut add = file.add.clone();
                add.stats = Some(loose_stats(add.stats.as_deref(), physical));
                add.deletion_vector = Some(descriptor);
                add.data_change = true;
                actions.push(Action::Add(add));
            }
        }
        Ok(actions)
    }
}

fn is_hit(hits: &BooleanArray, index: usize) -> bool {
    index < hits.len() && hits.is_valid(index) && hits.value(index)
}

/// Statistics of a file with a vector: they count physical rows, and their bounds are outer ones (PROTOCOL.md B).
/// Numbers keep their text: a decimal bound has more digits than a float.
fn loose_stats(stats: Option<&str>, physical: u64) -> String {
    let mut fields: BTreeMap<String, Box<RawValue>> = stats
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let raw = |text: String| RawValue::from_string(text).ok();
    if let Some(count) = raw(physical.to_string()) {
        fields.insert("numRecords".to_owned(), count);
    }
    if let Some(loose) = raw("false".to_owned()) {
        fields.insert("tightBounds".to_owned(), loose);
    }
    serde_json::to_string(&fields).unwrap_or_default()
}
