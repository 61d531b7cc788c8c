//! Deletion vectors of live files, read and written in the table's directory (PROTOCOL.md B), and the actions of the
//! files that a transaction changes through them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_json::value::RawValue;

use super::txn::{Move, Rows, Staged};
use super::{DataPath, LiveFile, Snapshot, Table, TableError, temporary_name};
use crate::deletion_vector::{
    DeletionVectorDescriptor, Location, RowSet, read_vector, write_vectors,
};
use crate::log::{Action, Add};
use crate::store::StoreError;

impl Table {
    /// The dead rows of a live file; empty without a vector.
    ///
    /// # Errors
    /// [`TableError::Vector`]: a vector that can't be read is never an empty one.
    pub fn dead_rows(&self, file: &LiveFile) -> Result<RowSet, TableError> {
        let Some(descriptor) = &file.add.deletion_vector else {
            return Ok(RowSet::new());
        };
        let open = |location: &Location| {
            let path = match location {
                Location::Relative { path, .. } => PathBuf::from(path),
                Location::Absolute { uri, .. } => match DataPath::parse(uri, self.dir.path()) {
                    DataPath::Inside(path) => PathBuf::from(path),
                    DataPath::Outside(uri) => {
                        return Err(StoreError::Outside {
                            path: PathBuf::from(uri),
                        });
                    }
                },
                Location::Inline(_) => PathBuf::new(),
            };
            self.dir.open_file(&path)
        };
        read_vector(descriptor, open, file.add.num_records()).map_err(|source| TableError::Vector {
            path: file.path.key().to_owned(),
            source,
        })
    }

    /// Writes one file with a vector for each set, durable on return. The file is an orphan until a commit
    /// refers to it; remove it with [`Table::discard`] when none will.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn write_vectors(
        &self,
        sets: &[&RowSet],
    ) -> Result<(String, Vec<DeletionVectorDescriptor>), TableError> {
        let file =
            write_vectors(self.env.uuid(), "", sets).map_err(|source| TableError::Vector {
                path: "a new vector file".to_owned(),
                source,
            })?;
        let temporary = temporary_name(&self.env);
        self.dir
            .put(Path::new(&file.path), temporary.as_ref(), &file.bytes)?;
        Ok((file.path, file.descriptors))
    }

    /// Removes a file that this process wrote and no version refers to.
    pub fn discard(&self, path: &str) {
        if let Err(error) = self.dir.remove_file(Path::new(path))
            && !error.is_absent()
        {
            tracing::warn!(%error, "an orphan stays until VACUUM");
        }
    }
}

/// What a transaction has made of the table for itself alone.
#[derive(Debug)]
pub struct Private {
    /// Under the number of the version that it began with: it is no version.
    pub snapshot: Snapshot,
    /// The vector file that lies on the disk for it, to be removed with [`Table::discard`] when no version refers to it.
    pub vectors: Option<String>,
}

impl Table {
    /// What `staged` makes of `view`, to nobody but its maker: nothing is written to the log. Afterwards its metrics
    /// are complete.
    ///
    /// # Errors
    /// [`TableError`]: nothing is left on the disk.
    pub fn apply(&self, view: &Snapshot, staged: &mut Staged) -> Result<Private, TableError> {
        let mut prepared = Prepared::of(self, staged)?;
        let mut actions = staged.actions.clone();
        actions.extend_from_slice(&prepared.actions);
        match view.next(self.dir.path(), view.version(), self.env.now(), actions) {
            Ok(snapshot) => {
                staged.operation.metrics = prepared.metrics(staged);
                Ok(Private {
                    snapshot,
                    vectors: prepared.path.take(),
                })
            }
            Err(error) => {
                prepared.discard(self);
                Err(error)
            }
        }
    }
}

/// The actions of the files that a transaction touches, as they are right for one version; with the vector file that
/// lies on the disk for them.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) actions: Vec<Action>,
    path: Option<String>,
    counts: BTreeMap<&'static str, u64>,
    stale: bool,
}

impl Prepared {
    /// Writes the vectors that `staged` needs, in one file.
    ///
    /// # Errors
    /// [`TableError`]: nothing is left on the disk.
    pub(super) fn of(table: &Table, staged: &Staged) -> Result<Self, TableError> {
        let now = table.env.now();
        let mut prepared = Prepared::default();
        let mut marks: Vec<(Add, RowSet, u64, bool)> = Vec::new();
        let mut sizes = Vec::new();
        for touched in &staged.touched {
            let rows = match &touched.rows {
                Rows::These(rows) if rows.is_empty() => continue,
                Rows::These(rows) => Some(rows),
                Rows::All => None,
            };
            let add = &touched.file.add;
            if add.deletion_vector.is_some() {
                prepared.count("numDeletionVectorsRemoved", 1);
            }
            let mut whole = true;
            if let Some(rows) = rows {
                let dead = match &touched.dead {
                    Some(dead) => dead.clone(),
                    None => table.dead_rows(&touched.file)?,
                };
                let dead = dead | rows;
                let physical = physical_rows(touched.physical, add)?;
                if dead.len() < physical {
                    prepared.count("numDeletionVectorsAdded", 1);
                    if add.deletion_vector.is_some() {
                        prepared.count("numDeletionVectorsUpdated", 1);
                    }
                    marks.push((add.clone(), dead, physical, true));
                    whole = false;
                }
            }
            if whole {
                prepared.count("numRemovedFiles", 1);
                prepared.count("numRemovedBytes", u64::try_from(add.size).unwrap_or(0));
            }
            prepared
                .actions
                .push(Action::Remove(add.to_remove(now, true)));
        }
        for bin in &staged.bins {
            for source in bin.sources.iter().filter(|s| s.live) {
                let add = &source.file.add;
                if add.deletion_vector.is_some() {
                    prepared.count("numDeletionVectorsRemoved", 1);
                }
                prepared.count("numRemovedFiles", 1);
                prepared.count("numRemovedBytes", u64::try_from(add.size).unwrap_or(0));
                let remove = add.to_remove(now, false);
                prepared.actions.push(Action::Remove(remove));
            }
            let size = u64::try_from(bin.add.size).unwrap_or(0);
            sizes.push(size);
            prepared.count("numAddedFiles", 1);
            prepared.count("numAddedBytes", size);
            if bin.dead.is_empty() {
                prepared.actions.push(Action::Add(bin.add.clone()));
            } else {
                let physical = physical_rows(None, &bin.add)?;
                marks.push((bin.add.clone(), bin.dead.clone(), physical, false));
            }
        }
        prepared.count_sizes(sizes);
        if !marks.is_empty() {
            let sets: Vec<&RowSet> = marks.iter().map(|(_, rows, ..)| rows).collect();
            let (path, descriptors) = table.write_vectors(&sets)?;
            prepared.path = Some(path);
            for ((mut add, _, physical, changes), descriptor) in marks.into_iter().zip(descriptors)
            {
                add.stats = Some(loose_stats(add.stats.as_deref(), physical));
                add.deletion_vector = Some(descriptor);
                add.data_change = changes;
                prepared.actions.push(Action::Add(add));
            }
        }
        crate::failpoint::hit(crate::failpoint::Point::VectorsWritten);
        Ok(prepared)
    }

    fn count(&mut self, key: &'static str, by: u64) {
        let count = self.counts.entry(key).or_insert(0);
        *count = count.saturating_add(by);
    }

    /// How large the files are that others became.
    fn count_sizes(&mut self, mut sizes: Vec<u64>) {
        sizes.sort_unstable();
        let parts = [
            ("minFileSize", 0),
            ("p25FileSize", 25),
            ("p50FileSize", 50),
            ("p75FileSize", 75),
            ("maxFileSize", 100),
        ];
        for (key, percent) in parts {
            let at = sizes.len().saturating_sub(1).saturating_mul(percent) / 100;
            if let Some(size) = sizes.get(at) {
                self.count(key, *size);
            }
        }
    }

    /// Whether it must be made anew.
    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    /// Takes back what lies on the disk: no version refers to it.
    pub(super) fn discard(&mut self, table: &Table) {
        if let Some(path) = self.path.take() {
            table.discard(&path);
        }
        self.stale = true;
    }

    /// The metrics of the operation with those of its files.
    pub(super) fn metrics(&self, staged: &Staged) -> BTreeMap<&'static str, u64> {
        let mut metrics = staged.operation.metrics.clone();
        for (key, count) in &self.counts {
            let sum = metrics.entry(key).or_insert(0);
            *sum = sum.saturating_add(*count);
        }
        metrics
    }

    /// Where compacted rows have gone, for commitInfo.
    pub(super) fn moves(&self, staged: &Staged) -> Option<Value> {
        let mut moves: BTreeMap<&str, Vec<Move>> = BTreeMap::new();
        for bin in staged.bins.iter().filter(|b| b.in_order) {
            let sources = bin.sources.iter().filter(|s| s.live).map(|source| Move {
                path: source.file.add.path.clone(),
                deletion_vector: source.vector.clone(),
                start: source.start,
                rows: source.rows,
            });
            moves.insert(&bin.add.path, sources.collect());
        }
        if moves.is_empty() {
            return None;
        }
        serde_json::to_value(moves).ok()
    }
}

fn physical_rows(counted: Option<u64>, add: &Add) -> Result<u64, TableError> {
    let rows = counted.or_else(|| add.num_records());
    rows.ok_or_else(|| TableError::Vector {
        path: add.path.clone(),
        source: crate::deletion_vector::VectorError {
            vector: "new".to_owned(),
            fault: crate::deletion_vector::VectorFault::Uncounted,
        },
    })
}

/// Statistics of a file with a vector: they count physical rows, and their bounds are outer ones (PROTOCOL.md B).
/// Numbers keep their text: a decimal bound has more digits than a float.
pub(super) fn loose_stats(stats: Option<&str>, physical: u64) -> String {
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
