//! Explicit transactions (DESIGN.md §6): steps that only the transaction sees, committed as one version.
//!
//! Each step is staged like an operation of its own, against a private view of the table. What is committed is the
//! difference between that view and the version that the transaction began with, file by file (`net`): how many
//! steps it took makes no difference, and one check holds all that they have read and changed against the others.
//!
//! # Why the files lie in the table's directory before the commit
//! The entry of a file names its place, and the view's entries are those that are committed. Until then no version
//! refers to them; whoever ends the transaction in another way removes them, `Drop` if nobody else does.

mod net;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::append::{self, Placed};
use super::{Append, Appended, Delete, OpError, Options, Report, delete, files};
use crate::failpoint::{self, Point};
use crate::log::Action;
use crate::table::{
    DataPath, Drafts, LiveFile, NAME_TAG, Operation, Outcome, ReadSet, Reads, Snapshot, Staged,
    Table, TableError,
};
use net::Net;
use steps::{Step, Steps};

/// A transaction of several steps on one table. Every method may be called from any thread.
#[derive(Debug)]
pub struct Transaction {
    table: Arc<Table>,
    /// What its user calls it.
    name: String,
    /// How many files it may change.
    max_files: usize,
    /// The version that it has read.
    base: Arc<Snapshot>,
    /// One step at a time. Taken before the other two, which are held for a moment only.
    work: Mutex<Work>,
    seen: RwLock<Seen>,
    phase: Mutex<Phase>,
}

/// What the steps so far come to.
#[derive(Debug, Default)]
struct Work {
    reads: ReadSet,
    /// Whether a step has read rows: without, it is a blind append.
    has_read: bool,
    /// [`DataPath::key`] of every file that a step has added, changed or removed.
    touched: BTreeSet<String>,
    /// Files on the disk that no version refers to.
    drafts: Drafts,
    steps: Steps,
    user_metadata: Option<String>,
}

#[derive(Debug, Clone)]
struct Seen {
    view: Arc<Snapshot>,
    counts: Counts,
}

/// How a transaction's view differs from the version that it has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub steps: u64,
    pub files_added: u64,
    /// Files with fewer rows.
    pub files_changed: u64,
    pub files_removed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Committing,
    Over,
}

impl Transaction {
    /// Begins at the newest version.
    ///
    /// # Errors
    /// [`OpError::Table`] when the table can't be read or written.
    pub fn begin(table: &Arc<Table>, name: &str, max_files: usize) -> Result<Self, OpError> {
        let base = table.refresh()?;
        base.check_write()?;
        Ok(Transaction {
            table: Arc::clone(table),
            name: name.to_owned(),
            max_files,
            seen: RwLock::new(Seen {
                view: Arc::clone(&base),
                counts: Counts::default(),
            }),
            base,
            work: Mutex::default(),
            phase: Mutex::new(Phase::Open),
        })
    }

    /// The version that it has read.
    pub fn read_version(&self) -> u64 {
        self.base.version()
    }

    /// The table as the transaction sees it, under the number of the version that it has read.
    pub fn view(&self) -> Arc<Snapshot> {
        Arc::clone(&self.seen().view)
    }

    pub fn counts(&self) -> Counts {
        self.seen().counts
    }

    /// Whether a file of the view is in no version.
    pub fn is_new(&self, file: &LiveFile) -> bool {
        self.base.live_file(&file.path).is_none()
    }

    /// Whether no step is running.
    pub fn is_idle(&self) -> bool {
        self.work.try_lock().is_ok()
    }

    /// Whether nothing can be done with it any more.
    pub fn is_over(&self) -> bool {
        *self.phase() == Phase::Over
    }

    /// Appends a file, or replaces the rows of one that the transaction sees.
    ///
    /// # Errors
    /// [`OpError`]: the view is as it was, and nothing is left behind.
    pub fn append(&self, request: &Append<'_>) -> Result<Appended, OpError> {
        self.check_open()?;
        // Schema and properties are the same all the time: several files are prepared at once.
        let placed = Placed::new(&self.table, &self.base, request)?;
        let taken = self.take_up(request, &placed);
        if taken.is_err() {
            placed.discard(&self.table);
        }
        taken
    }

    fn take_up(&self, request: &Append<'_>, placed: &Placed) -> Result<Appended, OpError> {
        let mut work = self.work();
        let seen = self.seen();
        let staged = append::stage(&self.table, &seen.view, request, placed)?;
        let Some(mut staged) = staged else {
            let note = "the file has no rows: nothing was staged";
            return Ok(Appended {
                report: report("WRITE", Operation::new("WRITE"), Some(note)),
                files: Vec::new(),
                snapshot: None,
            });
        };
        let replaced = staged.actions.iter().find_map(|action| match action {
            Action::Remove(remove) => seen.view.live_file_of(&remove.path),
            _ => None,
        });
        let reads = replaced.and_then(|file| self.reads_of(&file));
        let step = Step::Write(request.name.to_owned());
        let view = self.apply(&mut work, &seen, &mut staged, reads, &placed.paths, step)?;
        let adds = staged.actions.iter().filter_map(|action| match action {
            Action::Add(add) => view.live_file_of(&add.path),
            _ => None,
        });
        Ok(Appended {
            files: adds.collect(),
            report: report("WRITE", staged.operation, None),
            snapshot: Some(view),
        })
    }

    /// Deletes the rows for which a predicate is true, among those that the transaction sees.
    ///
    /// # Errors
    /// [`OpError`]: the view is as it was, and nothing is left behind.
    pub fn delete(
        &self,
        request: &Delete<'_>,
        scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
    ) -> Result<Report, OpError> {
        let mut work = self.work();
        self.check_open()?;
        let seen = self.seen();
        if let Some(done) = request.options.already_done(&seen.view) {
            return Ok(report("DELETE", Operation::new("DELETE"), Some(&done)));
        }
        let mut written = Vec::new();
        let done = self.delete_from(&mut work, &seen, request, scratch, &mut written);
        if done.is_err() {
            super::discard(&self.table, &mut written);
        }
        done
    }

    fn delete_from(
        &self,
        work: &mut Work,
        seen: &Seen,
        request: &Delete<'_>,
        scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
        written: &mut Vec<String>,
    ) -> Result<Report, OpError> {
        let is_new = |file: &LiveFile| self.is_new(file);
        let view = &seen.view;
        let mut staged = delete::stage_step(&self.table, view, request, scratch, &is_new, written)?;
        let mut reads = match std::mem::replace(&mut staged.reads, Reads::Nothing) {
            Reads::Known(reads) => reads,
            Reads::Nothing | Reads::Restage => ReadSet::default(),
        };
        // Nobody else can change what is in no version.
        let touched = &work.touched;
        reads.files.retain(|key| {
            let path = DataPath::Inside(key.clone());
            !touched.contains(key) || self.base.live_file(&path).is_some()
        });
        if let Some((app_id, _)) = &request.options.txn {
            reads.app_ids.insert(app_id.clone());
        }
        if staged.is_empty() {
            // That no row matches is something that it has read.
            work.read(reads);
            let note = "no row matches: nothing was staged";
            return Ok(report("DELETE", staged.operation, Some(note)));
        }
        if let Some(text) = &request.options.user_metadata {
            work.user_metadata = Some(text.clone());
        }
        let step = Step::Delete(delete::strip_where(request.predicate).to_owned());
        self.apply(work, seen, &mut staged, Some(reads), written, step)?;
        Ok(report("DELETE", staged.operation, None))
    }

    /// Removes a file that the transaction sees, with all its rows.
    ///
    /// # Errors
    /// [`OpError::Gone`] when it does not see it; [`OpError`].
    pub fn remove(&self, path: &DataPath) -> Result<Report, OpError> {
        let mut work = self.work();
        let seen = self.seen();
        let file = seen.view.live_file(path);
        let file = file.ok_or_else(|| OpError::Gone(path.key().to_owned()))?;
        let mut staged = files::removal(&file, self.table.env().now());
        let step = Step::Remove(file.visible.to_string());
        let reads = self.reads_of(&file);
        self.apply(&mut work, &seen, &mut staged, reads, &[], step)?;
        Ok(report("DELETE", staged.operation, None))
    }

    /// Changes the visible name of a file that is in no version yet, and gives it under its new one.
    ///
    /// # Errors
    /// [`OpError::Gone`] when there is no such file; [`OpError`].
    pub fn rename(&self, path: &DataPath, name: &str) -> Result<Arc<LiveFile>, OpError> {
        let mut work = self.work();
        let seen = self.seen();
        let gone = || OpError::Gone(path.key().to_owned());
        let file = seen.view.live_file(path).filter(|file| self.is_new(file));
        let mut add = file.ok_or_else(gone)?.add.clone();
        let tags = add.tags.get_or_insert_default();
        tags.insert(NAME_TAG.to_owned(), Some(name.to_owned()));
        let operation = Operation::new("RENAME FILE");
        let mut staged = Staged::append(vec![Action::Add(add)], operation);
        let view = self.apply(&mut work, &seen, &mut staged, None, &[], Step::Rename)?;
        view.live_file(path).ok_or_else(gone)
    }

    /// What somebody has read of the table who removes a file.
    fn reads_of(&self, file: &LiveFile) -> Option<ReadSet> {
        let key = file.path.key().to_owned();
        (!self.is_new(file)).then(|| ReadSet {
            files: BTreeSet::from([key]),
            ..ReadSet::default()
        })
    }

    /// Makes a staged step part of the view. `written` lies on the disk for it, and is its caller's when it fails.
    fn apply(
        &self,
        work: &mut Work,
        seen: &Seen,
        staged: &mut Staged,
        reads: Option<ReadSet>,
        written: &[String],
        step: Step,
    ) -> Result<Arc<Snapshot>, OpError> {
        self.check_open()?;
        let keys = self.keys(staged);
        let live = |key: &String| self.base.live_file(&DataPath::Inside(key.clone()));
        if keys.iter().any(|key| live(key).is_some()) {
            self.base.check_append_only()?;
        }
        let more = keys.iter().filter(|key| !work.touched.contains(*key));
        if work.touched.len().saturating_add(more.count()) > self.max_files {
            return Err(OpError::TransactionFull(self.max_files));
        }
        let private = self.table.apply(&seen.view, staged)?;
        let view = Arc::new(private.snapshot);
        let mut counts = seen.counts;
        counts.steps = counts.steps.saturating_add(1);
        for key in &keys {
            counts.count(&self.base, &seen.view, key, false);
            counts.count(&self.base, &view, key, true);
        }
        let made: Vec<String> = written.iter().chain(&private.vectors).cloned().collect();
        if let Err(error) = work.drafts.add(&self.table, &made) {
            if let Some(path) = &private.vectors {
                self.table.discard(path);
            }
            return Err(error.into());
        }
        // Whoever ends it meanwhile finds either nothing of the step or all of it.
        let phase = self.phase();
        if *phase != Phase::Open {
            return Err(OpError::TransactionOver);
        }
        work.touched.extend(keys);
        work.steps.push(step, &staged.operation.metrics);
        if let Some(reads) = reads {
            work.read(reads);
        }
        let seen = Seen {
            view: Arc::clone(&view),
            counts,
        };
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = seen;
        Ok(view)
    }

    /// The files that a step adds, changes or removes.
    fn keys(&self, staged: &Staged) -> BTreeSet<String> {
        let table = self.table.dir().path();
        let key = |path: &str| DataPath::parse(path, table).key().to_owned();
        let actions = staged.actions.iter().filter_map(|action| match action {
            Action::Add(add) => Some(key(&add.path)),
            Action::Remove(remove) => Some(key(&remove.path)),
            _ => None,
        });
        let touched = staged.touched.iter();
        let touched = touched.map(|t| t.file.path.key().to_owned());
        actions.chain(touched).collect()
    }

    /// Commits all steps as one version. A conflict ends the transaction, and so does an outcome that is not known;
    /// after any other failure it is as it was.
    ///
    /// # Errors
    /// [`OpError`]: nothing was committed, unless the outcome itself is unknown.
    pub fn commit(&self, options: &Options) -> Result<Report, OpError> {
        if options.retries > 0 {
            return Err(OpError::TransactionRetries);
        }
        let mut work = self.work();
        let committing = self.begin_commit()?;
        let outcome = self.commit_work(&mut work, options);
        let outcome = outcome.map_err(|error| match error {
            OpError::Table(TableError::Conflict(conflict)) => {
                OpError::TransactionConflict(conflict)
            }
            other => other,
        });
        match &outcome {
            Err(error) if !is_final(error) => committing.give_up(),
            Ok(_) | Err(_) => {
                drop(committing);
                work.drafts.discard(&self.table, |_| false);
            }
        }
        outcome
    }

    fn commit_work(&self, work: &mut Work, options: &Options) -> Result<Report, OpError> {
        let view = self.view();
        let newest = self.table.refresh()?;
        let nothing = |work: &mut Work, note: &str| {
            work.drafts.discard(&self.table, |_| false);
            Ok(report(
                work.steps.operation(),
                Operation::new("TRANSACTION"),
                Some(note),
            ))
        };
        if let Some(done) = options.already_done(&newest) {
            return nothing(work, &done);
        }
        let net = Net::between(&self.table, &self.base, &view, &work.touched)?;
        if net.is_empty() {
            return nothing(work, "nothing is left to be committed: no version was made");
        }
        let kept = net.kept(&self.table);
        self.check_there(&kept)?;
        let mut staged = self.staged(work, &view, net, options);
        // From here on nobody can tell whether a version refers to them, until the outcome is known.
        let mut drafts = std::mem::take(&mut work.drafts);
        failpoint::hit(Point::DataWritten);
        if let Err(error) = drafts.release(&self.table) {
            work.drafts = drafts;
            return Err(error.into());
        }
        match self.table.commit_unshared(&self.base, &mut staged) {
            Ok(Outcome::Committed(after)) => {
                drafts.discard(&self.table, |path| kept.contains(path));
                Ok(Report {
                    version: Some(after.version()),
                    snapshot: Some(after),
                    ..report(staged.operation.name, staged.operation, None)
                })
            }
            Ok(Outcome::Superseded(_)) => {
                work.drafts = drafts;
                nothing(work, "others have done all of it: no version was made")
            }
            Ok(Outcome::Raced(_)) => {
                work.drafts = drafts;
                let (attempts, millis) = (1, 0);
                Err(TableError::Contention { attempts, millis }.into())
            }
            Err(error) => {
                let error = OpError::from(error);
                if !super::is_unknown(&error) {
                    work.drafts = drafts;
                }
                Err(error)
            }
        }
    }

    /// Hours may have passed since they were written, and somebody may have cleaned up.
    fn check_there(&self, files: &BTreeSet<String>) -> Result<(), OpError> {
        let dir = self.table.dir();
        for path in files {
            match dir.metadata(Path::new(path)) {
                Err(e) if e.is_absent() => return Err(OpError::Vanished(path.clone())),
                other => other?,
            };
        }
        Ok(())
    }

    fn staged(&self, work: &Work, view: &Snapshot, net: Net, options: &Options) -> Staged {
        let mut operation = Operation::new(work.steps.operation());
        operation.parameters = work.steps.parameters(&self.base, net.replaces());
        operation
            .parameters
            .push(("transaction", self.name.clone()));
        operation.metrics = work.steps.metrics(&net);
        let user_metadata = options.user_metadata.as_ref();
        operation.user_metadata = user_metadata.or(work.user_metadata.as_ref()).cloned();
        let reads = match work.has_read {
            true => Reads::Known(work.reads.clone()),
            false => Reads::Nothing,
        };
        let mut staged = Staged::with(net.actions, operation, reads);
        staged.touched = net.touched;
        let own = options.actions(self.table.env());
        let own_id = options.txn.as_ref().map(|(app_id, _)| app_id);
        // Those of its statements; the last word of an application counts.
        let said = view.txns().filter(|txn| {
            let known = self.base.txns().find(|known| known.app_id == txn.app_id);
            known.is_none_or(|known| known.version != txn.version) && own_id != Some(&txn.app_id)
        });
        let said: Vec<Action> = said.cloned().map(Action::Txn).collect();
        staged.actions.extend(said);
        staged.actions.extend(own);
        staged
    }

    /// Ends it without a commit. A step that is running fails at its end. What lies on the disk goes when the last
    /// user has let go of the transaction.
    ///
    /// # Errors
    /// [`OpError::TransactionBusy`] while it is being committed.
    pub fn abort(&self) -> Result<(), OpError> {
        let mut phase = self.phase();
        match *phase {
            Phase::Committing => return Err(OpError::TransactionBusy),
            Phase::Open | Phase::Over => *phase = Phase::Over,
        }
        Ok(())
    }

    fn begin_commit(&self) -> Result<Committing<'_>, OpError> {
        let mut phase = self.phase();
        if *phase != Phase::Open {
            return Err(OpError::TransactionOver);
        }
        *phase = Phase::Committing;
        Ok(Committing(self))
    }

    fn check_open(&self) -> Result<(), OpError> {
        match *self.phase() {
            Phase::Open => Ok(()),
            Phase::Committing | Phase::Over => Err(OpError::TransactionOver),
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> Seen {
        self.seen
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let work = self.work.get_mut().unwrap_or_else(PoisonError::into_inner);
        work.drafts.discard(&self.table, |_| false);
    }
}

/// The transaction is over when this is dropped.
struct Committing<'a>(&'a Transaction);

impl Committing<'_> {
    /// It is open again.
    fn give_up(self) {
        *self.0.phase() = Phase::Open;
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let mut phase = self.0.phase();
        if *phase == Phase::Committing {
            *phase = Phase::Over;
        }
    }
}

impl Work {
    /// Adds what a step has read.
    fn read(&mut self, more: ReadSet) {
        self.has_read = true;
        self.reads.whole_table |= more.whole_table;
        self.reads.conditions.extend(more.conditions);
        self.reads.files.extend(more.files);
        self.reads.app_ids.extend(more.app_ids);
    }
}

impl Counts {
    /// Takes a file of `view` in or out.
    fn count(&mut self, base: &Snapshot, view: &Snapshot, key: &str, up: bool) {
        let path = DataPath::Inside(key.to_owned());
        let kind = match (base.live_file(&path), view.live_file(&path)) {
            (None, Some(_)) => &mut self.files_added,
            (Some(_), None) => &mut self.files_removed,
            (Some(before), Some(after)) if before.add.dv_id() != after.add.dv_id() => {
                &mut self.files_changed
            }
            _ => return,
        };
        *kind = match up {
            true => kind.saturating_add(1),
            false => kind.saturating_sub(1),
        };
    }
}

/// What a step did, or a commit for which there was nothing to do.
fn report(name: &'static str, operation: Operation, note: Option<&str>) -> Report {
    Report {
        operation: name,
        version: None,
        metrics: operation.metrics,
        note: note.map(str::to_owned),
        snapshot: None,
    }
}

/// Whether a failed commit would fail for ever, or may have happened.
fn is_final(error: &OpError) -> bool {
    match error {
        OpError::TransactionConflict(_) => true,
        OpError::Table(error) => matches!(
            error,
            TableError::Conflict(_)
                | TableError::Unknown { .. }
                | TableError::Overtaken { .. }
                | TableError::Feature { .. }
                | TableError::AppendOnly
        ),
        _ => false,
    }
}
