//! Carries a transaction over the versions of others, one after the other: `conflict` judges, this looks at the rows
//! that it asks for, and moves what the transaction changes to where it is now (PROTOCOL.md F3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::conflict::{self, Carry, Change, Conflict, Mine, Ours, Reason, Winner};
use super::segment::Commit;
use super::txn::{Bin, Condition, Level, Move, Reads, Rows, Source, Staged, Touched};
use super::{DataPath, LiveFile, Snapshot, Table, TableError, properties, protocol, row_ids};
use crate::deletion_vector::RowSet;
use crate::env::Millis;

/// How long rows are compared before whole files decide.
const BUDGET_MS: Millis = 30_000;

/// A transaction on its way from what it has read to the newest version.
pub(super) struct Rebase<'a> {
    table: &'a Table,
    reading: Arc<Snapshot>,
    /// The version that it has been carried to.
    view: Arc<Snapshot>,
    level: Level,
    row_level: bool,
    vectors: bool,
    row_ids: bool,
    /// What it does not see, by the keys of files (WriteSerializable).
    hidden: BTreeMap<String, Hidden>,
    /// Milliseconds that comparing rows has taken.
    spent: Millis,
}

/// Rows of a file that a transaction does not see.
struct Hidden {
    /// The version that they came with.
    since: u64,
    /// `None` for all.
    rows: Option<RowSet>,
}

impl<'a> Rebase<'a> {
    pub(super) fn new(table: &'a Table, base: &Arc<Snapshot>, staged: &Staged) -> Self {
        let vectors = protocol::supports(base.protocol(), "deletionVectors")
            && protocol::flag(base.metadata(), "delta.enableDeletionVectors");
        let conditions = staged.read_set().map_or(&[][..], |reads| &reads.conditions);
        let whole = staged.read_set().is_some_and(|reads| reads.whole_table);
        let row_level = vectors
            && !whole
            && base.partition_columns().is_empty()
            && !has_identity(base)
            && conditions.iter().all(|c| c.is_row_local())
            && base.schema().field("_change_type").is_none();
        Rebase {
            table,
            reading: Arc::clone(base),
            view: Arc::clone(base),
            level: level(base, staged),
            row_level,
            vectors,
            row_ids: protocol::row_tracking_enabled(base.protocol(), base.metadata()),
            hidden: BTreeMap::new(),
            spent: 0,
        }
    }

    pub(super) fn view(&self) -> &Arc<Snapshot> {
        &self.view
    }

    pub(super) fn level(&self) -> Level {
        self.level
    }

    /// Goes on from the version that `view` is, which may have been read from elsewhere.
    pub(super) fn stand_on(&mut self, view: Arc<Snapshot>) {
        if view.version() == self.view.version() {
            self.view = view;
        }
    }

    /// Follows one more version. Gives whether anything of the transaction has changed but its number.
    ///
    /// # Errors
    /// [`TableError::Conflict`]; [`TableError::Feature`] when the table has become one that we can't write; those of
    /// reading rows.
    pub(super) fn follow(
        &mut self,
        staged: &mut Staged,
        commit: &Commit,
        version: u64,
    ) -> Result<bool, TableError> {
        let stamp = commit.in_commit_timestamp().unwrap_or(commit.modified);
        let winner = Winner::new(self.table.dir.path(), version, stamp, &commit.actions);
        let path = self.table.dir.path();
        let actions = commit.actions.clone();
        let next = Arc::new(self.view.next(path, version, commit.modified, actions)?);
        next.check_write()?;
        let hidden = self.hidden.iter();
        let hidden = hidden.map(|(key, h)| (key.clone(), h.since)).collect();
        let modifies = modified(self.table, staged);
        let carry = conflict::judge(
            &Ours {
                staged,
                level: self.level,
                row_level: self.row_level,
                vectors: self.vectors,
                row_ids: self.row_ids,
                reading: &self.reading,
                view: &self.view,
                hidden: &hidden,
                modifies,
            },
            &winner,
        )?;
        let changed = !carry.changed.is_empty();
        let started = self.table.env.now();
        self.look(staged, &winner, &carry, &next)?;
        let spent = self.table.env.now().saturating_sub(started);
        self.spent = self.spent.saturating_add(spent);
        if let Reads::Known(reads) = &mut staged.reads {
            reads.files.extend(winner.successors(&reads.files, path));
        }
        self.view = next;
        Ok(changed)
    }

    /// Looks at the rows that the verdict depends on: first at new ones, then at those that are not what they were (F3).
    fn look(
        &mut self,
        staged: &mut Staged,
        winner: &Winner<'_>,
        carry: &Carry,
        next: &Arc<Snapshot>,
    ) -> Result<(), TableError> {
        for key in &carry.revived {
            let ours = carry.changed.iter().any(|(changed, _)| changed == key);
            if !ours {
                self.revived(winner, key, next)?;
            }
        }
        let conditions = staged
            .read_set()
            .map_or_else(Vec::new, |r| r.conditions.clone());
        for key in &carry.fresh {
            let among = self.hidden.remove(key).and_then(|hidden| hidden.rows);
            self.probe(winner, key, next, &conditions, among.as_ref())?;
        }
        self.follow_hidden(winner, carry, next, &conditions)?;
        for key in &carry.hide {
            let since = next.version();
            self.hidden
                .insert(key.clone(), Hidden { since, rows: None });
        }
        for (key, change) in &carry.changed {
            if staged.touched.iter().any(|t| t.file.path.key() == key) {
                self.touched(staged, winner, key, *change, next)?;
            }
            self.source(staged, key, *change, next)?;
        }
        Ok(())
    }

    /// The live file of a key in `next`. A verdict says that it is there.
    fn file(&self, next: &Snapshot, key: &str) -> Result<Arc<LiveFile>, TableError> {
        let path = DataPath::Inside(key.to_owned());
        next.live_file(&path).ok_or_else(|| TableError::Malformed {
            version: next.version(),
            what: "add",
            reason: format!("{key} is not live after it was added"),
        })
    }

    fn touched(
        &mut self,
        staged: &mut Staged,
        winner: &Winner<'_>,
        key: &str,
        change: Change,
        next: &Arc<Snapshot>,
    ) -> Result<(), TableError> {
        let at = |t: &Touched| t.file.path.key() == key;
        let Some(index) = staged.touched.iter().position(at) else {
            return Ok(());
        };
        match change {
            Change::Vector => {
                let file = self.file(next, key)?;
                let touched = &mut staged.touched[index];
                let before = self.dead(touched)?;
                let after = if file.add.dv_id() == touched.file.add.dv_id() {
                    before.clone()
                } else {
                    self.table.dead_rows(&file)?
                };
                let mine = match &touched.rows {
                    Rows::All => Mine::EveryRow,
                    Rows::These(rows) => Mine::These(rows, &touched.read),
                };
                conflict::changed_rows(winner, &file.add.path, &before, &after, &mine)?;
                touched.dead = Some(after);
                touched.file = file;
            }
            Change::Removed => {
                let touched = &staged.touched[index];
                let rows = match &touched.rows {
                    Rows::All => None,
                    Rows::These(rows) => Some((rows | &touched.read).len()),
                };
                if rows != Some(0) {
                    let class = conflict::Class::ConcurrentDeleteRead;
                    let path = &touched.file.add.path;
                    return Err(winner.about(class, Reason::Rows, path, rows).into());
                }
                staged.touched.remove(index);
            }
            Change::Moved => {
                let touched = staged.touched.remove(index);
                self.moved(staged, winner, touched, next)?;
            }
        }
        Ok(())
    }

    fn dead(&self, touched: &mut Touched) -> Result<RowSet, TableError> {
        if touched.dead.is_none() {
            touched.dead = Some(self.table.dead_rows(&touched.file)?);
        }
        Ok(touched.dead.clone().unwrap_or_default())
    }

    /// The rows of a file that was compacted are in another one now.
    fn moved(
        &mut self,
        staged: &mut Staged,
        winner: &Winner<'_>,
        touched: Touched,
        next: &Arc<Snapshot>,
    ) -> Result<(), TableError> {
        let lost = || {
            let class = conflict::Class::ConcurrentDeleteRead;
            let path = &touched.file.add.path;
            TableError::from(winner.about(class, Reason::Files, path, None))
        };
        let key = touched.file.path.key();
        let Some((place, target)) = self.place(winner, key) else {
            return self.moved_by_ids(staged, winner, &touched, next, &lost);
        };
        let path = DataPath::parse(&target, self.table.dir.path());
        let file = next.live_file(&path).ok_or_else(lost)?;
        let map = Map::new(self.table, &touched.file, &place)?;
        let dead = self.table.dead_rows(&file)?;
        let rows = match &touched.rows {
            Rows::All => map.every_row() - &dead,
            Rows::These(rows) => map.rows(rows).ok_or_else(lost)?,
        };
        let read = map.rows(&touched.read).ok_or_else(lost)?;
        // Somebody deleted them before they were moved, and told nobody.
        if !rows.is_disjoint(&dead) {
            return Err(lost());
        }
        touch(staged, file, dead, rows, read);
        Ok(())
    }

    /// The same after a compaction of another system, or one that has sorted the rows: they are known by their ids.
    fn moved_by_ids(
        &self,
        staged: &mut Staged,
        winner: &Winner<'_>,
        touched: &Touched,
        next: &Arc<Snapshot>,
        lost: &dyn Fn() -> TableError,
    ) -> Result<(), TableError> {
        if !self.row_ids {
            return Err(lost());
        }
        let all = RowSet::new();
        let (mine, every) = match &touched.rows {
            Rows::All => (&all, true),
            Rows::These(rows) => (rows, false),
        };
        // Which of our rows have which ids, and whether they are only read.
        let mut wanted: BTreeMap<i64, bool> = BTreeMap::new();
        let mut nameless = false;
        row_ids::read(self.table, &self.view, &touched.file, |row, id| {
            let changed = every || mine.contains(row);
            if changed || touched.read.contains(row) {
                match id {
                    Some(id) => {
                        wanted.insert(id, changed);
                    }
                    None => nameless = true,
                }
            }
        })?;
        if nameless {
            return Err(lost());
        }
        for (target, add) in winner.new_files() {
            if add.data_change || wanted.is_empty() {
                continue;
            }
            let file = self.file(next, target)?;
            let (mut rows, mut read) = (RowSet::new(), RowSet::new());
            row_ids::read(self.table, next, &file, |row, id| {
                match id.and_then(|id| wanted.remove(&id)) {
                    Some(true) => {
                        rows.insert(row);
                    }
                    Some(false) => {
                        read.insert(row);
                    }
                    None => {}
                }
            })?;
            if !(rows.is_empty() && read.is_empty()) {
                let dead = self.table.dead_rows(&file)?;
                touch(staged, file, dead, rows, read);
            }
        }
        // A row that is in none of them has gone, and nobody was told.
        match wanted.is_empty() {
            true => Ok(()),
            false => Err(lost()),
        }
    }

    /// Where the winner has put the rows of a file.
    fn place(&self, winner: &Winner<'_>, key: &str) -> Option<(Move, String)> {
        let table = self.table.dir.path();
        winner.moves().into_iter().find_map(|(target, sources)| {
            let mut sources = sources.into_iter();
            let found = sources.find(|m| DataPath::parse(&m.path, table).key() == key)?;
            Some((found, target))
        })
    }

    /// A source of one of our compactions is not as it was when it was copied.
    fn source(
        &mut self,
        staged: &mut Staged,
        key: &str,
        change: Change,
        next: &Arc<Snapshot>,
    ) -> Result<(), TableError> {
        let is_it = |s: &Source| s.live && s.file.path.key() == key;
        let Some(at) = staged.bins.iter().position(|b| b.sources.iter().any(is_it)) else {
            return Ok(());
        };
        if change == Change::Moved {
            self.drop_bin(staged, at);
            return Ok(());
        }
        let bin = &mut staged.bins[at];
        let Some(source) = bin.sources.iter_mut().find(|s| is_it(s)) else {
            return Ok(());
        };
        let copied = source.start..source.start.saturating_add(source.rows);
        match change {
            Change::Vector => {
                let file = self.file(next, key)?;
                let after = self.table.dead_rows(&file)?;
                let moved = Map::of(source).rows(&(&after - &source.dead));
                // A row that is back and was not copied: the new file can't have it.
                let back = !source.dead.is_subset(&after);
                let Some(dead) = moved.filter(|_| !back) else {
                    self.drop_bin(staged, at);
                    return Ok(());
                };
                // Rows that went since it was copied may be back, too.
                bin.dead.remove_range(copied);
                bin.dead |= dead;
                source.file = file;
            }
            Change::Removed => {
                bin.dead.insert_range(copied);
                source.live = false;
            }
            Change::Moved => {}
        }
        let total: u64 = bin.sources.iter().map(|s| s.rows).sum();
        // What is mostly dead is better left as it was.
        if bin.dead.len().saturating_mul(2) > total || bin.sources.iter().all(|s| !s.live) {
            self.drop_bin(staged, at);
        }
        Ok(())
    }

    fn drop_bin(&self, staged: &mut Staged, at: usize) {
        let bin: Bin = staged.bins.remove(at);
        // Nobody but this transaction knows of it.
        self.table.discard(&bin.path);
    }

    /// A file that was there before has another vector: it must not have got rows back.
    fn revived(
        &mut self,
        winner: &Winner<'_>,
        key: &str,
        next: &Arc<Snapshot>,
    ) -> Result<(), TableError> {
        let path = DataPath::Inside(key.to_owned());
        let (Some(before), Some(after)) = (self.view.live_file(&path), next.live_file(&path))
        else {
            return Ok(());
        };
        if before.add.dv_id() == after.add.dv_id() || before.add.deletion_vector.is_none() {
            return Ok(());
        }
        let (old, new) = (
            self.table.dead_rows(&before)?,
            self.table.dead_rows(&after)?,
        );
        let none = RowSet::new();
        let mine = Mine::These(&none, &none);
        Ok(conflict::changed_rows(
            winner,
            &after.add.path,
            &old,
            &new,
            &mine,
        )?)
    }

    /// Asks the conditions about rows that the transaction has not seen.
    fn probe(
        &self,
        winner: &Winner<'_>,
        key: &str,
        next: &Arc<Snapshot>,
        conditions: &[Arc<dyn Condition>],
        among: Option<&RowSet>,
    ) -> Result<(), TableError> {
        let file = self.file(next, key)?;
        if self.spent > BUDGET_MS {
            let class = conflict::Class::ConcurrentAppend;
            return Err(winner
                .about(class, Reason::Time, &file.add.path, None)
                .into());
        }
        for condition in conditions {
            let selected = condition.selected(self.table, next, &file, among);
            conflict::new_rows(winner, &file.add.path, selected)?;
        }
        Ok(())
    }

    /// Hidden rows stay hidden where a compaction has put them; where nobody knows where that is, they are looked at.
    fn follow_hidden(
        &mut self,
        winner: &Winner<'_>,
        carry: &Carry,
        next: &Arc<Snapshot>,
        conditions: &[Arc<dyn Condition>],
    ) -> Result<(), TableError> {
        for key in &carry.hidden_moved {
            let Some(hidden) = self.hidden.remove(key) else {
                continue;
            };
            let before = self.view.live_file(&DataPath::Inside(key.clone()));
            let place = self.place(winner, key).zip(before);
            let Some(((place, target), before)) = place else {
                for (target, _) in winner.new_files() {
                    self.probe(winner, target, next, conditions, None)?;
                }
                continue;
            };
            let map = Map::new(self.table, &before, &place)?;
            let rows = match &hidden.rows {
                None => Some(map.every_row()),
                Some(rows) => map.rows(&(rows - &map.dead)),
            };
            let target = DataPath::parse(&target, self.table.dir.path())
                .key()
                .to_owned();
            let since = hidden.since;
            let all = self.hidden.entry(target).or_insert_with(|| Hidden {
                since,
                rows: Some(RowSet::new()),
            });
            all.since = all.since.min(since);
            if let (Some(all), Some(rows)) = (&mut all.rows, rows) {
                *all |= rows;
            }
        }
        Ok(())
    }
}

/// Rows of a file that a transaction changes and reads, beside those that it knew of.
fn touch(staged: &mut Staged, file: Arc<LiveFile>, dead: RowSet, rows: RowSet, read: RowSet) {
    let same = |t: &&mut Touched| t.file.path.key() == file.path.key();
    if let Some(known) = staged.touched.iter_mut().find(same) {
        known.read |= read;
        if let Rows::These(all) = &mut known.rows {
            *all |= rows;
        }
        return;
    }
    let physical = file.add.num_records();
    staged.touched.push(Touched {
        file,
        dead: Some(dead),
        rows: Rows::These(rows),
        read,
        physical,
    });
}

impl From<Conflict> for TableError {
    fn from(conflict: Conflict) -> Self {
        TableError::Conflict(Box::new(conflict))
    }
}

/// Where rows of a file lie in the file that they were put into: the live ones follow each other.
struct Map {
    dead: RowSet,
    start: u64,
    rows: u64,
}

impl Map {
    fn new(table: &Table, file: &LiveFile, place: &Move) -> Result<Self, TableError> {
        let mut copied = file.clone();
        copied
            .add
            .deletion_vector
            .clone_from(&place.deletion_vector);
        Ok(Map {
            dead: table.dead_rows(&copied)?,
            start: place.start,
            rows: place.rows,
        })
    }

    fn of(source: &Source) -> Self {
        Map {
            dead: source.dead.clone(),
            start: source.start,
            rows: source.rows,
        }
    }

    fn every_row(&self) -> RowSet {
        let mut rows = RowSet::new();
        rows.insert_range(self.start..self.start.saturating_add(self.rows));
        rows
    }

    /// `None` when a row is not where the map can have it.
    fn rows(&self, rows: &RowSet) -> Option<RowSet> {
        let mut moved = RowSet::new();
        for row in rows {
            if self.dead.contains(row) {
                return None;
            }
            let rank = row.checked_sub(self.dead.rank(row))?;
            if rank >= self.rows {
                return None;
            }
            moved.insert(self.start.checked_add(rank)?);
        }
        Some(moved)
    }
}

/// The level that a transaction runs at (PROTOCOL.md F1).
pub(super) fn level(base: &Snapshot, staged: &Staged) -> Level {
    if !staged.bins.is_empty() {
        return Level::Snapshot;
    }
    properties::isolation_level(base.metadata())
}

/// Whether a column of the table counts by itself.
fn has_identity(base: &Snapshot) -> bool {
    protocol::supports(base.protocol(), "identityColumns")
        && base
            .schema()
            .any_field(&mut |f| f.metadata.contains_key("delta.identity.start"))
}

/// The files that a transaction removes or adds again, apart from the sources of its bins.
fn modified(table: &Table, staged: &Staged) -> BTreeSet<String> {
    let path = table.dir.path();
    let removed = staged.actions.iter().filter_map(|a| match a {
        crate::log::Action::Remove(remove) => {
            Some(DataPath::parse(&remove.path, path).key().to_owned())
        }
        _ => None,
    });
    let touched = staged.touched.iter();
    let touched = touched.map(|t| t.file.path.key().to_owned());
    removed.chain(touched).collect()
}
