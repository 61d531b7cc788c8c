//! The difference between two views of a table, file by file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::OpError;
use crate::deletion_vector::{Location, RowSet};
use crate::log::Action;
use crate::table::{DataPath, LiveFile, Rows, Snapshot, Table, Touched, protocol};

/// What has to be committed to get from one to the other.
#[derive(Debug, Default)]
pub(super) struct Net {
    /// New files, and those that go from a table without deletion vectors.
    pub(super) actions: Vec<Action>,
    /// Files that lose rows.
    pub(super) touched: Vec<Touched>,
    added: Sums,
    removed: Sums,
    /// New files that have a vector already.
    marked: u64,
}

#[derive(Debug, Default)]
struct Sums {
    files: u64,
    bytes: u64,
}

impl Sums {
    fn count(&mut self, file: &LiveFile) {
        self.files = self.files.saturating_add(1);
        let bytes = u64::try_from(file.add.size).unwrap_or(0);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Net {
    /// What `view` differs from `base` in, among the files of `keys`.
    ///
    /// # Errors
    /// [`OpError::Table`] when a vector can't be read.
    pub(super) fn between(
        table: &Table,
        base: &Snapshot,
        view: &Snapshot,
        keys: &BTreeSet<String>,
    ) -> Result<Self, OpError> {
        let vectors = protocol::supports(base.protocol(), "deletionVectors")
            && protocol::flag(base.metadata(), "delta.enableDeletionVectors");
        let now = table.env().now();
        let mut net = Net::default();
        for key in keys {
            let path = DataPath::Inside(key.clone());
            match (base.live_file(&path), view.live_file(&path)) {
                (None, Some(after)) => net.add(&after),
                // Its rows may be in a copy: what others do to the file meanwhile is a conflict, whatever it is.
                (Some(before), None) if !vectors => {
                    net.removed.count(&before);
                    let remove = before.add.to_remove(now, true);
                    net.actions.push(Action::Remove(remove));
                }
                (Some(before), None) => net.touch(before, None, Rows::All, None),
                (Some(before), Some(after)) if before.add.dv_id() != after.add.dv_id() => {
                    let dead = table.dead_rows(&before)?;
                    let rows = Rows::These(&table.dead_rows(&after)? - &dead);
                    net.touch(before, Some(dead), rows, after.add.num_records());
                }
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        Ok(net)
    }

    fn add(&mut self, file: &LiveFile) {
        self.added.count(file);
        let mut add = file.add.clone();
        add.data_change = true;
        if add.deletion_vector.is_some() {
            self.marked = self.marked.saturating_add(1);
        }
        self.actions.push(Action::Add(add));
    }

    fn touch(
        &mut self,
        file: Arc<LiveFile>,
        dead: Option<RowSet>,
        rows: Rows,
        physical: Option<u64>,
    ) {
        self.touched.push(Touched {
            file,
            dead,
            rows,
            read: RowSet::new(),
            physical,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.touched.is_empty()
    }

    /// Whether rows go that were there before.
    pub(super) fn replaces(&self) -> bool {
        self.removed.files > 0 || !self.touched.is_empty()
    }

    /// What the commit refers to on the disk, relative to the table.
    pub(super) fn kept(&self, table: &Table) -> BTreeSet<String> {
        let mut kept = BTreeSet::new();
        for action in &self.actions {
            let Action::Add(add) = action else { continue };
            let path = DataPath::parse(&add.path, table.dir().path());
            kept.insert(path.key().to_owned());
            let vector = add.deletion_vector.as_ref().map(|dv| dv.location());
            if let Some(Ok(Location::Relative { path, .. })) = vector {
                kept.insert(path);
            }
        }
        kept
    }

    /// Files and bytes, under the names of an operation. Those of the touched files are counted by the commit.
    pub(super) fn metrics(&self, append: bool) -> BTreeMap<&'static str, u64> {
        let (files, bytes) = match append {
            true => ("numFiles", "numOutputBytes"),
            false => ("numAddedFiles", "numAddedBytes"),
        };
        let mut metrics = BTreeMap::from([(files, self.added.files), (bytes, self.added.bytes)]);
        if self.removed.files > 0 {
            metrics.insert("numRemovedFiles", self.removed.files);
            metrics.insert("numRemovedBytes", self.removed.bytes);
        }
        if self.marked > 0 {
            metrics.insert("numDeletionVectorsAdded", self.marked);
        }
        metrics
    }
}
