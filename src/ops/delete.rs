//! DELETE: whole files where the statistics or the partition say so, deletion vectors for the rest, a rewrite
//! only where the table has no vectors (PROTOCOL.md B, H).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;

use super::condition::{self, is_hit};
use super::parallel::on_every_core;
use super::{OpError, Options, Report, Start, discard, elapsed_ms, kept_files, rewrite, run};
use crate::datafile::Reader;
use crate::deletion_vector::RowSet;
use crate::engine::{Predicate, Verdict};
use crate::log::Action;
use crate::table::{
    LiveFile, Operation, ReadSet, Reads, Rows, Snapshot, Staged, Table, Touched, protocol,
};

/// A DELETE as it is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Delete<'a> {
    /// What follows WHERE; the word itself may be there.
    pub predicate: &'a str,
    pub options: &'a Options,
}

/// Deletes the rows for which a predicate is true. Makes no version when there is none.
///
/// # Errors
/// [`OpError`]: nothing was committed and nothing is left behind, unless the outcome itself is unknown.
pub fn delete(
    table: &Table,
    request: &Delete<'_>,
    base: Option<&Arc<Snapshot>>,
    scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
) -> Result<Report, OpError> {
    let mut written = Vec::new();
    let start = Start {
        base: base.cloned(),
        retries: request.options.retries,
    };
    let mut done = None;
    let outcome = run(table, start, |base| {
        discard(table, &mut written);
        done = request.options.already_done(base);
        if done.is_some() {
            return Ok(None);
        }
        stage(table, base, request, scratch, &mut written)
    });
    match outcome {
        Ok(Some((snapshot, staged))) => Ok(Report {
            operation: "DELETE",
            version: Some(snapshot.version()),
            metrics: staged.operation.metrics,
            note: None,
            snapshot: Some(snapshot),
        }),
        Ok(None) => {
            let nothing = || "no row matches: no version was made".to_owned();
            Ok(Report {
                operation: "DELETE",
                version: None,
                metrics: BTreeMap::from([("numDeletedRows", 0)]),
                note: Some(done.unwrap_or_else(nothing)),
                snapshot: None,
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

/// What a DELETE does to one snapshot; `None` when no row matches. `written` gets the files that it has made.
///
/// # Errors
/// [`OpError`].
pub(super) fn stage(
    table: &Table,
    base: &Arc<Snapshot>,
    request: &Delete<'_>,
    scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
    written: &mut Vec<String>,
) -> Result<Option<Staged>, OpError> {
    let staged = stage_step(table, base, request, scratch, &|_| false, written)?;
    Ok(Some(staged).filter(|staged| !staged.is_empty()))
}

/// As [`stage`], with what it has read also when no row matches. `is_new` knows the files that are in no version yet.
///
/// # Errors
/// [`OpError`].
pub(super) fn stage_step(
    table: &Table,
    base: &Arc<Snapshot>,
    request: &Delete<'_>,
    scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
    is_new: &dyn Fn(&LiveFile) -> bool,
    written: &mut Vec<String>,
) -> Result<Staged, OpError> {
    let started = table.env().now();
    base.check_write()?;
    base.check_append_only()?;
    let text = strip_where(request.predicate);
    let predicate = Predicate::parse(text, base.schema(), base.partition_columns(), started)?;
    let plan = Plan {
        table,
        base,
        predicate: &predicate,
        scratch,
    };
    let (changes, files) = plan.changes()?;
    let mut operation = Operation::new("DELETE");
    operation
        .user_metadata
        .clone_from(&request.options.user_metadata);
    operation.parameters = vec![(
        "predicate",
        serde_json::json!([format!("({text})")]).to_string(),
    )];
    let reads = ReadSet {
        conditions: vec![condition::shared(&predicate)],
        files,
        ..ReadSet::default()
    };
    let mut staged = Staged::with(Vec::new(), operation, Reads::Known(reads));
    if changes.is_empty() {
        return Ok(staged);
    }
    plan.effects(changes, is_new, &mut staged, written)?;
    staged.actions.extend(request.options.actions(table.env()));
    let metrics = &mut staged.operation.metrics;
    metrics.insert("executionTimeMs", elapsed_ms(table, started));
    Ok(staged)
}

/// The keyword may be there, as people write it.
pub(super) fn strip_where(text: &str) -> &str {
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
    /// Every live row goes, without having been looked at.
    Remove,
    Mark {
        dead: RowSet,
        /// Live rows that go.
        rows: RowSet,
        physical: u64,
    },
}

struct Plan<'a> {
    table: &'a Table,
    base: &'a Arc<Snapshot>,
    predicate: &'a Predicate,
    scratch: &'a (dyn Fn() -> std::io::Result<File> + Sync),
}

impl Plan<'_> {
    /// The files that lose rows, in the order of their paths, and all that were looked at.
    fn changes(&self) -> Result<(Vec<Change>, BTreeSet<String>), OpError> {
        let work = kept_files(self.base, self.predicate)?;
        let read = work.iter().map(|(file, _)| file.path.key().to_owned());
        let read = read.collect();
        let changes = on_every_core(&work, |(file, verdict)| self.change(file, *verdict))?;
        let changes = changes.into_iter().flatten().collect();
        Ok((changes, read))
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
        let mut marked = RowSet::new();
        for batch in reader {
            let (batch, positions) = batch.map_err(|e| rewrite::in_file(file, e))?;
            let hits = self.predicate.evaluate(&batch)?;
            for (index, row) in positions.iter().enumerate() {
                if is_hit(&hits, index) {
                    marked.insert(row);
                }
            }
        }
        let deleted = marked.len();
        if deleted == 0 {
            return Ok(None);
        }
        let what = Effect::Mark {
            dead,
            rows: marked,
            physical,
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

    /// What the changes come to; `written` gets what is on the disk for them.
    fn effects(
        &self,
        changes: Vec<Change>,
        is_new: &dyn Fn(&LiveFile) -> bool,
        staged: &mut Staged,
        written: &mut Vec<String>,
    ) -> Result<(), OpError> {
        let vectors = protocol::supports(self.base.protocol(), "deletionVectors")
            && protocol::flag(self.base.metadata(), "delta.enableDeletionVectors");
        let now = self.table.env().now();
        let metrics = &mut staged.operation.metrics;
        let mut count = |key, by: u64| *metrics.entry(key).or_insert(0) += by;
        for key in [
            "numRemovedFiles",
            "numAddedFiles",
            "numDeletedRows",
            "numCopiedRows",
        ] {
            count(key, 0);
        }
        for Change {
            file,
            deleted,
            what,
        } in changes
        {
            count("numDeletedRows", deleted);
            let (dead, rows, physical) = match what {
                Effect::Remove => (None, Rows::All, None),
                // Without vectors the whole file is rewritten or goes.
                Effect::Mark {
                    dead,
                    rows,
                    physical,
                } if vectors || dead.len() + rows.len() == physical => {
                    (Some(dead), Rows::These(rows), Some(physical))
                }
                Effect::Mark { dead, rows, .. } => {
                    if protocol::flag(self.base.metadata(), "delta.enableChangeDataFeed") {
                        let path = file.visible.to_string();
                        return Err(OpError::FeedNeedsVectors { path });
                    }
                    let (table, base) = (self.table, self.base);
                    let gone = dead | rows;
                    let new = is_new(&file);
                    let (copy, kept) =
                        rewrite::copy(table, base, &file, new, &gone, self.scratch, written)?;
                    count("numRemovedFiles", 1);
                    count("numRemovedBytes", u64::try_from(file.add.size).unwrap_or(0));
                    count("numAddedFiles", 1);
                    count("numAddedBytes", u64::try_from(copy.size).unwrap_or(0));
                    count("numCopiedRows", kept);
                    let remove = file.add.to_remove(now, true);
                    staged.actions.push(Action::Remove(remove));
                    staged.actions.push(Action::Add(copy));
                    continue;
                }
            };
            staged.touched.push(Touched {
                file,
                dead,
                rows,
                read: RowSet::new(),
                physical,
            });
        }
        Ok(())
    }
}
