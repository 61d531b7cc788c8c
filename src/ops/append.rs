//! A dropped Parquet file becomes rows of a table: adopted as it is, converted, or split by partition.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;

use super::{OpError, Report, Start, layout, run};
use crate::datafile::{Bytes, DataFileError, PreparedFile, RowCheck, Target, location, prepare};
use crate::engine::Constraints;
use crate::env::Env;
use crate::error::Failure as _;
use crate::log::{Action, Add, Metadata};
use crate::store::Dir;
use crate::table::{LiveFile, NAME_TAG, Operation, Reads, Snapshot, Staged, Table};

/// A file that was dropped into a table's directory.
#[derive(Clone, Copy)]
pub struct Append<'a> {
    /// A complete Parquet file that nobody writes to any more.
    pub input: &'a File,
    /// Its visible name, kept in the tags of what it becomes.
    pub name: &'a str,
    /// Partition values that its directory gives, by logical name, as text.
    pub fixed: &'a BTreeMap<String, Option<String>>,
    /// Base name under which it is stored, never used before.
    pub stored: &'a str,
    pub replaces: Replaces<'a>,
    /// Makes an empty file that can be given a name in the table.
    pub scratch: &'a dyn Fn() -> std::io::Result<File>,
}

/// Whose rows a dropped file replaces, by visible name at the version that it is committed after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaces<'a> {
    Nothing,
    /// Those of the live file of that name, if there is one by then.
    IfLive(&'a str),
    /// Those of the live file of that name, which somebody opened to overwrite it: without one its rows went
    /// elsewhere meanwhile, and an append would double them.
    Live(&'a str),
}

impl std::fmt::Debug for Append<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Append")
            .field("name", &self.name)
            .field("stored", &self.stored)
            .finish_non_exhaustive()
    }
}

/// What became of a dropped file.
#[derive(Debug)]
pub struct Appended {
    pub report: Report,
    /// Its live files; none when it had no rows.
    pub files: Vec<Arc<LiveFile>>,
    pub snapshot: Option<Arc<Snapshot>>,
}

/// Appends a file, or replaces the rows of a live one, in one version. A file without rows commits nothing.
///
/// # Errors
/// [`OpError`]: nothing was committed and nothing is left behind, unless the outcome itself is unknown.
pub fn append(table: &Table, request: &Append<'_>) -> Result<Appended, OpError> {
    // What one look at the table came to: reused as long as schema and properties are the same.
    let mut placed: Option<(Arc<Snapshot>, Placed)> = None;
    // Nothing but another schema or protocol is in the way of an append: then the file is checked against that.
    let start = Start {
        retries: u32::MAX,
        ..Start::default()
    };
    let outcome = run(table, start, |base| {
        let same = placed.as_ref().is_some_and(|(at, _)| {
            at.metadata() == base.metadata() && at.protocol() == base.protocol()
        });
        if !same {
            if let Some((_, old)) = placed.take() {
                old.discard(table);
            }
            placed = Some((Arc::clone(base), Placed::new(table, base, request)?));
        }
        let Some((_, placed)) = &placed else {
            return Ok(None);
        };
        stage(table, base, request, placed)
    });
    let committed = match outcome {
        Ok(committed) => committed,
        Err(error) => {
            if let Some((_, placed)) = placed
                && !super::is_unknown(&error)
            {
                placed.discard(table);
            }
            return Err(error);
        }
    };
    let rows = placed.map_or(0, |(_, placed)| placed.rows);
    Ok(done("WRITE", rows, committed))
}

/// What a placed file does to one snapshot; `None` when there is nothing to do.
///
/// # Errors
/// [`OpError::Replaced`].
pub(super) fn stage(
    table: &Table,
    base: &Snapshot,
    request: &Append<'_>,
    placed: &Placed,
) -> Result<Option<Staged>, OpError> {
    let replaced = match request.replaces {
        Replaces::Nothing => None,
        Replaces::IfLive(visible) => base.named(visible),
        Replaces::Live(visible) => {
            let live = base.named(visible);
            Some(live.ok_or_else(|| OpError::Replaced(visible.to_owned()))?)
        }
    };
    if placed.adds.is_empty() && replaced.is_none() {
        return Ok(None);
    }
    let now = table.env().now();
    let mut actions: Vec<Action> = Vec::new();
    actions.extend(
        replaced
            .iter()
            .map(|live| Action::Remove(live.add.to_remove(now, true))),
    );
    actions.extend(placed.adds.iter().cloned().map(Action::Add));
    let metrics = placed.metrics(replaced.as_deref());
    let mode = if replaced.is_some() {
        "Overwrite"
    } else {
        "Append"
    };
    let mut parameters = vec![
        ("mode", mode.to_owned()),
        (
            "partitionBy",
            serde_json::json!(base.partition_columns()).to_string(),
        ),
    ];
    parameters.push(("file", request.name.to_owned()));
    let operation = Operation {
        name: "WRITE",
        parameters,
        metrics,
        user_metadata: None,
    };
    let reads = match replaced {
        Some(_) => Reads::Restage,
        None => Reads::Nothing,
    };
    let mut staged = Staged::with(actions, operation, reads);
    staged.absent = match request.replaces {
        Replaces::IfLive(visible) => Some(visible.to_owned()),
        Replaces::Nothing | Replaces::Live(_) => None,
    };
    Ok(Some(staged))
}

/// The outcome in the words of a report.
pub(super) fn done(
    operation: &'static str,
    rows: u64,
    committed: Option<(Arc<Snapshot>, Staged)>,
) -> Appended {
    let Some((snapshot, staged)) = committed else {
        return Appended {
            report: Report {
                operation,
                version: None,
                metrics: BTreeMap::from([("numOutputRows", rows)]),
                note: Some("the file has no rows: nothing was committed".to_owned()),
                snapshot: None,
            },
            files: Vec::new(),
            snapshot: None,
        };
    };
    let files = staged
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Add(add) => snapshot.live_file_of(&add.path),
            _ => None,
        })
        .collect();
    Appended {
        report: Report {
            operation,
            version: Some(snapshot.version()),
            metrics: staged.operation.metrics,
            note: None,
            snapshot: Some(Arc::clone(&snapshot)),
        },
        files,
        snapshot: Some(snapshot),
    }
}

/// Where files are put, and by which properties.
pub(super) struct Here<'a> {
    pub(super) dir: &'a Dir,
    pub(super) env: &'a Env,
    pub(super) metadata: &'a Metadata,
}

/// Files that lie in the table's directory and wait for the commit that refers to them.
pub(super) struct Placed {
    pub(super) adds: Vec<Add>,
    /// On the disk, relative to the table.
    pub(super) paths: Vec<String>,
    pub(super) rows: u64,
}

impl Placed {
    /// Checks the file against the table and puts what it becomes into the table's directory.
    ///
    /// # Errors
    /// [`OpError`]: nothing is left behind.
    pub(super) fn new(
        table: &Table,
        base: &Snapshot,
        request: &Append<'_>,
    ) -> Result<Self, OpError> {
        base.check_write()?;
        let now = table.env().now();
        let target = layout::target(base, request.fixed)?;
        let constraints = Constraints::parse(&target.schema, &base.metadata().configuration, now)?;
        let here = Here {
            dir: table.dir(),
            env: table.env(),
            metadata: base.metadata(),
        };
        Self::place(&here, &target, constraints, request)
    }

    /// Checks the file and gives what it becomes a name in the table's directory.
    pub(super) fn place(
        here: &Here<'_>,
        target: &Target,
        constraints: Option<Constraints>,
        request: &Append<'_>,
    ) -> Result<Self, OpError> {
        // Durable before anything refers to it.
        request.input.sync_all().map_err(OpError::Staging)?;
        let mut check = constraints.map(Check);
        let mut scratch =
            || (request.scratch)().map_err(|source| DataFileError::io("making", source));
        let prepared = prepare(
            request.input,
            target,
            &mut scratch,
            check.as_mut().map(|c| c as &mut dyn RowCheck),
        )
        .map_err(|e| OpError::Input(Box::new(e)))?;
        let mut placed = Placed {
            adds: Vec::new(),
            paths: Vec::new(),
            rows: prepared.rows,
        };
        for (index, file) in prepared.files.iter().enumerate() {
            if let Err(error) = placed.put(here, target, request, index, file) {
                placed.discard_in(here.dir);
                return Err(error);
            }
        }
        Ok(placed)
    }

    fn put(
        &mut self,
        here: &Here<'_>,
        target: &Target,
        request: &Append<'_>,
        index: usize,
        file: &PreparedFile,
    ) -> Result<(), OpError> {
        let dir = here.dir;
        let prefix = layout::prefix(here.metadata, here.env);
        let base_name = match index {
            0 => request.stored.to_owned(),
            n => format!(
                "part-{n:05}-{}",
                request.stored.trim_start_matches("part-00000-")
            ),
        };
        let place = location(
            &base_name,
            &target.schema,
            &target.partition_columns,
            &file.partition_values,
            prefix.as_deref(),
        );
        let path = Path::new(&place.relative);
        if let Some(parent) = path.parent() {
            dir.create_dir_all(parent)?;
        }
        let bytes = match &file.bytes {
            Bytes::Original => request.input,
            Bytes::New(file) => file,
        };
        dir.adopt(bytes, path)?;
        self.paths.push(place.relative);
        self.adds.push(Add {
            path: place.add_path,
            partition_values: file.partition_values.clone(),
            size: i64::try_from(file.size).unwrap_or(i64::MAX),
            modification_time: here.env.now(),
            data_change: true,
            stats: Some(file.stats.clone()),
            tags: Some([(NAME_TAG.to_owned(), Some(request.name.to_owned()))].into()),
            deletion_vector: None,
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
            unknown: serde_json::Map::new(),
        });
        Ok(())
    }

    pub(super) fn metrics(&self, replaced: Option<&LiveFile>) -> BTreeMap<&'static str, u64> {
        let bytes = self
            .adds
            .iter()
            .filter_map(|a| u64::try_from(a.size).ok())
            .sum();
        let mut metrics = BTreeMap::from([
            ("numFiles", self.adds.len() as u64),
            ("numOutputRows", self.rows),
            ("numOutputBytes", bytes),
        ]);
        if let Some(live) = replaced {
            metrics.insert("numRemovedFiles", 1);
            metrics.insert("numRemovedBytes", u64::try_from(live.add.size).unwrap_or(0));
            if let Some(rows) = super::files::live_rows(live) {
                metrics.insert("numDeletedRows", rows);
            }
        }
        metrics
    }

    pub(super) fn discard(&self, table: &Table) {
        self.discard_in(table.dir());
    }

    pub(super) fn discard_in(&self, dir: &Dir) {
        for path in &self.paths {
            if let Err(error) = dir.remove_file(Path::new(path)) {
                tracing::warn!(%error, "an orphan stays until VACUUM");
            }
        }
    }
}

/// CHECK constraints and invariants, asked for every row.
struct Check(Constraints);

impl RowCheck for Check {
    fn check(&mut self, batch: &RecordBatch, first_row: u64) -> Result<(), DataFileError> {
        self.0
            .check(batch, first_row)
            .map_err(|e| DataFileError::Refused {
                message: e.to_string(),
                kind: e.kind(),
                hint: e.hint(),
            })
    }
}
