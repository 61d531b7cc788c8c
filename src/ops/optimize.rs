//! OPTIMIZE: small files of a partition, and files with many deleted rows, become fewer and larger ones
//! (PROTOCOL.md H, Compaction). No row changes.
//!
//! # Why the sources of a file follow each other in the order in which they were written
//! Which files come together is decided by size, as everywhere. Rows that came in order stay in order that way, and
//! the bounds of row groups stay narrow. Each source is one run of rows in the new file: whoever deletes rows of a
//! source at the same time finds them there again (PROTOCOL.md F3).
//!
//! # Why clustered files stay
//! A clustered table may have files that are clustered already, and new ones that wait for it. Mixing the former into
//! others would undo work and break nothing; only the latter are put together, and stay unclustered.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use super::parallel::on_every_core;
use super::rewrite::{New, Rewrite};
use super::{
    OpError, Options, Report, Start, discard, elapsed_ms, is_unknown, kept_files, layout, run,
};
use crate::deletion_vector::RowSet;
use crate::engine::Predicate;
use crate::env::Millis;
use crate::table::{
    Bin, DataPath, FileRef, LiveFile, Operation, ReadSet, Reads, Snapshot, Source, Staged, Table,
    properties,
};

/// A file is rewritten for its deleted rows when they are more than one in so many.
const DELETED_ONE_IN: u64 = 20;

/// An OPTIMIZE as it is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Optimize<'a> {
    /// Which partitions; `None` for all. Knows no other columns than those of the partitions.
    pub predicate: Option<&'a str>,
    pub options: &'a Options,
}

/// Puts files together. Makes no version when there is nothing to put together, or when others have done it meanwhile.
///
/// # Errors
/// [`OpError`]: nothing was committed and nothing is left behind, unless the outcome itself is unknown.
pub fn optimize(
    table: &Table,
    request: &Optimize<'_>,
    base: Option<&Arc<Snapshot>>,
    scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
) -> Result<Report, OpError> {
    let mut written = Vec::new();
    let start = Start {
        base: base.cloned(),
        retries: request.options.retries,
    };
    let mut done = None;
    let mut left = Left::default();
    let outcome = run(table, start, |base| {
        discard(table, &mut written);
        done = request.options.already_done(base);
        if done.is_some() {
            return Ok(None);
        }
        let staged = stage(table, base, request, scratch, &mut written, &mut left)?;
        let why = match &staged {
            Some(_) => "others have put these files together, or removed them, meanwhile",
            None => "there are no two files to put together",
        };
        done = Some(format!("{why}: no version was made"));
        Ok(staged)
    });
    match outcome {
        Ok(Some((snapshot, staged))) => Ok(Report {
            operation: "OPTIMIZE",
            version: Some(snapshot.version()),
            metrics: staged.operation.metrics,
            note: left.note(),
            snapshot: Some(snapshot),
        }),
        Ok(None) => {
            let notes = done.into_iter().chain(left.note());
            Ok(Report {
                operation: "OPTIMIZE",
                version: None,
                metrics: BTreeMap::from([("numAddedFiles", 0), ("numRemovedFiles", 0)]),
                note: Some(notes.collect::<Vec<_>>().join("; ")),
                snapshot: None,
            })
        }
        Err(error) => {
            if !is_unknown(&error) {
                discard(table, &mut written);
            }
            Err(error)
        }
    }
}

/// Files that would have been put together, and were not.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Left {
    outside: u64,
    clustered: u64,
}

impl Left {
    fn note(self) -> Option<String> {
        let outside = format!("{} files outside of the table's directory", self.outside);
        let clustered = format!("{} files that are clustered already", self.clustered);
        let notes = [(self.outside, outside), (self.clustered, clustered)];
        let notes = notes.into_iter().filter(|(count, _)| *count > 0);
        let notes: Vec<String> = notes.map(|(_, note)| note).collect();
        (!notes.is_empty()).then(|| format!("left as they are: {}", notes.join(", ")))
    }
}

/// What an OPTIMIZE does to one snapshot; `None` when nothing is to be put together. `written` gets the files that it
/// has made, `left` those that it can't take.
///
/// # Errors
/// [`OpError`].
pub(super) fn stage(
    table: &Table,
    base: &Arc<Snapshot>,
    request: &Optimize<'_>,
    scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
    written: &mut Vec<String>,
    left: &mut Left,
) -> Result<Option<Staged>, OpError> {
    let started = table.env().now();
    base.check_write()?;
    let condition = request
        .predicate
        .map(|text| condition(base, text, started))
        .transpose()?;
    let groups = groups(base, condition.as_ref(), left)?;
    if groups.is_empty() {
        return Ok(None);
    }
    let places = Mutex::new(std::mem::take(written));
    let bins = on_every_core(&groups, |group| {
        put_together(table, base, group, scratch, &places)
    });
    *written = places.into_inner().unwrap_or_else(PoisonError::into_inner);
    let bins: Vec<Bin> = bins?.into_iter().flatten().collect();
    if bins.is_empty() {
        return Ok(None);
    }
    let predicate: Vec<String> = condition
        .iter()
        .map(|condition| format!("({})", condition.text()))
        .collect();
    let operation = Operation {
        name: "OPTIMIZE",
        parameters: vec![
            ("predicate", serde_json::json!(predicate).to_string()),
            ("zOrderBy", "[]".to_owned()),
            ("clusterBy", "[]".to_owned()),
            ("auto", "false".to_owned()),
        ],
        metrics: BTreeMap::from([("executionTimeMs", elapsed_ms(table, started))]),
        user_metadata: request.options.user_metadata.clone(),
    };
    // What it puts together it does not read: nobody's new rows are in its way.
    let reads = Reads::Known(ReadSet::default());
    let actions = request.options.actions(table.env()).into_iter().collect();
    let mut staged = Staged::with(actions, operation, reads);
    staged.bins = bins;
    Ok(Some(staged))
}

/// The condition on partitions.
fn condition(base: &Snapshot, text: &str, now: Millis) -> Result<Predicate, OpError> {
    let columns = base.partition_columns();
    let predicate = Predicate::parse(text, base.schema(), columns, now)?;
    if predicate.is_partition_only() {
        return Ok(predicate);
    }
    let others = predicate.columns().iter();
    Err(OpError::NotOfPartitions {
        columns: others.filter(|c| !columns.contains(c)).cloned().collect(),
        partition_columns: columns.to_vec(),
    })
}

/// The files that become one each, in the order in which their rows follow.
fn groups(
    base: &Snapshot,
    condition: Option<&Predicate>,
    left: &mut Left,
) -> Result<Vec<Vec<Arc<LiveFile>>>, OpError> {
    let target = properties::target_file_bytes(base.metadata());
    let candidates: Vec<Arc<LiveFile>> = match condition {
        None => {
            let wanted = |file: &FileRef<'_>| {
                let (rows, dead) = (file.num_records(), file.deleted_rows());
                is_wanted(bytes(file.size()), rows, dead, target)
            };
            let scan = base.scan();
            let files = scan.files().filter(wanted);
            files.map(|file| file.unpack()).collect()
        }
        Some(condition) => {
            let wanted = |file: &LiveFile| {
                let add = &file.add;
                is_wanted(
                    bytes(add.size),
                    add.num_records(),
                    add.deleted_rows(),
                    target,
                )
            };
            let files = kept_files(base, condition)?.into_iter();
            files.map(|(f, _)| f).filter(|f| wanted(f)).collect()
        }
    };
    let is_clustered = !base.clustering_columns().is_empty();
    *left = Left::default();
    let mut partitions: HashMap<Vec<Option<String>>, Vec<Arc<LiveFile>>> = HashMap::new();
    for file in candidates {
        if matches!(file.path, DataPath::Outside(_)) {
            left.outside += 1;
        } else if is_clustered && file.add.clustering_provider.is_some() {
            left.clustered += 1;
        } else {
            let partition = layout::partition_of(base, &file.add)?;
            partitions.entry(partition).or_default().push(file);
        }
    }
    let mut groups: Vec<_> = partitions
        .into_values()
        .flat_map(|files| pack(files, target))
        .collect();
    // The largest first, so that no core is left alone with it.
    let size = |group: &[Arc<LiveFile>]| group.iter().map(|f| bytes(f.add.size)).sum::<u64>();
    groups.sort_by_cached_key(|group| {
        let first = group.first().map(|f| f.path.key().to_owned());
        (std::cmp::Reverse(size(group)), first)
    });
    Ok(groups)
}

fn bytes(size: i64) -> u64 {
    u64::try_from(size).unwrap_or(0)
}

/// Whether a file is small, or has many deleted rows. One whose rows nobody has counted may have.
fn is_wanted(bytes: u64, rows: Option<u64>, dead: u64, target: u64) -> bool {
    let many_dead = match rows {
        Some(rows) => dead.saturating_mul(DELETED_ONE_IN) > rows,
        None => dead > 0,
    };
    bytes < target || many_dead
}

/// Fills bins up to `target` bytes with the files of one partition, the smallest first, one bin after the other. What is
/// alone in its bin stays as it is.
fn pack(mut files: Vec<Arc<LiveFile>>, target: u64) -> Vec<Vec<Arc<LiveFile>>> {
    files.sort_by(|a, b| (a.add.size, a.path.key()).cmp(&(b.add.size, b.path.key())));
    let mut bins: Vec<Vec<Arc<LiveFile>>> = Vec::new();
    let mut room = 0;
    for file in files {
        let size = bytes(file.add.size);
        match bins.last_mut() {
            Some(bin) if size <= room => {
                room -= size;
                bin.push(file);
            }
            _ => {
                room = target.saturating_sub(size);
                bins.push(vec![file]);
            }
        }
    }
    bins.retain(|bin| bin.len() > 1);
    for bin in &mut bins {
        let written = |f: &LiveFile| (f.add.modification_time, f.path.key().to_owned());
        bin.sort_by_cached_key(|f| written(f));
    }
    bins
}

/// Writes the live rows of `files` to a new one. `None` when there are none.
fn put_together(
    table: &Table,
    base: &Snapshot,
    files: &[Arc<LiveFile>],
    scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
    written: &Mutex<Vec<String>>,
) -> Result<Option<Bin>, OpError> {
    let Some(first) = files.first() else {
        return Ok(None);
    };
    let mut rewrite = Rewrite::begin(table, base, first, scratch)?;
    let mut sources = Vec::with_capacity(files.len());
    for file in files {
        let dead = table.dead_rows(file)?;
        let start = rewrite.rows();
        let rows = rewrite.append(file, false, &dead)?;
        sources.push(Source {
            vector: file.add.deletion_vector.clone(),
            file: Arc::clone(file),
            dead,
            start,
            rows,
            live: true,
        });
    }
    if rewrite.rows() == 0 {
        return Ok(None);
    }
    let New { path, mut add } = rewrite.finish()?;
    let mut places = written.lock().unwrap_or_else(PoisonError::into_inner);
    places.push(path.clone());
    drop(places);
    add.data_change = false;
    Ok(Some(Bin {
        add,
        path,
        sources,
        dead: RowSet::new(),
        in_order: true,
    }))
}

#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod tests;
