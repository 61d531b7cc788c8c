//! Writing, and the commit points: FLUSH and FSYNC of a handle that wrote (DESIGN.md §2). Never RELEASE.

use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;

use super::handle::Handle;
use super::outcome::Outcome;
use super::site::{Site, TxName};
use super::stage::{Phase, Stage, data_name, io_error, is_killed, process_of};
use super::{Caller, CopyRange, Core, Fh, FsError, FsResult, Invalidate};
use crate::datafile::is_parquet_complete;
use crate::error::{Failure, Kind};
use crate::namespace::{Dropped, classify};
use crate::ops::{self, Append, Appended, OpError, Replaces};
use crate::table::Snapshot;

/// Why a FLUSH did not commit.
const INCOMPLETE: &str = "not a complete Parquet file";

impl Core {
    pub(super) fn write(&self, fh: Fh, offset: u64, data: &[u8]) -> FsResult<u32> {
        let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
        match self.handles().get(fh)? {
            Handle::Stage { stage, write: true } => {
                let _settling = stage.settle();
                if let Some(tx) = &stage.place.site.tx {
                    self.touch_tx(tx);
                }
                stage
                    .write(offset, data, &self.env, &self.fresh)
                    .map_err(|e| self.refused(&stage, stage.uid, e))?;
                Ok(written)
            }
            Handle::Verb(verb) => {
                self.verb_write(&verb, data)?;
                Ok(written)
            }
            Handle::Stage { write: false, .. }
            | Handle::Dir { .. }
            | Handle::File(_)
            | Handle::Text(_) => Err(FsError::BadHandle),
        }
    }

    pub(super) fn flush(&self, fh: Fh, caller: Caller) -> FsResult<()> {
        match self.handles().get(fh)? {
            Handle::Stage { stage, write: true } => self.settle(&stage, caller),
            Handle::Verb(verb) => self.verb_flush(&verb, caller),
            Handle::Stage { write: false, .. }
            | Handle::Dir { .. }
            | Handle::File(_)
            | Handle::Text(_) => Ok(()),
        }
    }

    pub(super) fn fsync(&self, fh: Fh, caller: Caller) -> FsResult<()> {
        match self.handles().get(fh)? {
            Handle::Stage { stage, write: true } => {
                let file = stage.file();
                file.sync_data().map_err(|e| io_error("fsync", &e))?;
                // A file that is not whole yet is durable as what it is: the FLUSH will judge it.
                match is_parquet_complete(&file) {
                    Ok(true) => self.settle(&stage, caller),
                    Ok(false) => Ok(()),
                    Err(e) => Err(io_error("fsync", &e)),
                }
            }
            Handle::Verb(verb) => self.verb_flush(&verb, caller),
            Handle::Stage { write: false, .. }
            | Handle::Dir { .. }
            | Handle::File(_)
            | Handle::Text(_) => Ok(()),
        }
    }

    /// Commits a staged file if it is a complete data file that has changed.
    fn settle(&self, stage: &Arc<Stage>, caller: Caller) -> FsResult<()> {
        let _settling = stage.settle();
        let killed = is_killed(caller.pid);
        let (file, name, opener) = {
            let mut state = stage.state();
            state.killed = killed;
            if !state.dirty || !matches!(state.phase, Phase::Open) {
                return Ok(());
            }
            (Arc::clone(&state.file), state.name.clone(), state.opener)
        };
        let broken = {
            let state = stage.state();
            state.failure.clone().filter(|_| state.broken)
        };
        if let Some(error) = broken {
            return Err(self.refused(stage, caller.uid, error));
        }
        let length = file.metadata().map_err(|e| io_error("stat", &e))?.len();
        let kind = self
            .kind_of(stage)
            .map_err(|e| self.refused(stage, caller.uid, e))?;
        if length == 0 || kind != Dropped::Data {
            return Ok(());
        }
        if killed {
            stage.state().failure = Some(FsError::Domain {
                kind: Kind::Invalid,
                message: "the writer was killed before it closed the file".to_owned(),
                hint: None,
            });
            return Ok(());
        }
        if !is_parquet_complete(&file).map_err(|e| io_error("reading", &e))? {
            // A child that inherited the descriptor closes its copy in the middle of the work of others.
            let process = process_of(caller.pid);
            if process.is_some() && opener.is_some() && process != opener {
                return Ok(());
            }
            let error = FsError::Domain {
                kind: Kind::Invalid,
                message: format!("{}: {INCOMPLETE} ({length} bytes)", name.display()),
                hint: Some("nothing was committed; copy the whole file again".to_owned()),
            };
            return Err(self.refused(stage, caller.uid, error));
        }
        self.commit_as(stage, &name, caller)
    }

    /// What a staged file's name makes of it.
    pub(super) fn kind_of(&self, stage: &Stage) -> FsResult<Dropped> {
        let name = stage.name();
        let place = &stage.place;
        let snapshot = self.seen(&place.site)?.map(|(_, snapshot)| snapshot);
        Ok(classify(&name, |n| {
            snapshot
                .as_ref()
                .is_some_and(|s| s.named(&format!("{}{n}", place.dir)).is_some())
        }))
    }

    /// Commits a complete staged file under `name`. The caller holds `settling`.
    pub(super) fn commit_as(
        &self,
        stage: &Arc<Stage>,
        name: &std::ffi::OsStr,
        caller: Caller,
    ) -> FsResult<()> {
        let text = data_name(name)?;
        let now = || self.env.now();
        let outcome = match &stage.place.site.tx {
            None => self.append(stage, text).map(|(before, appended)| {
                self.appended(stage, name, &appended);
                self.committed(&stage.place.site, before.as_ref(), &appended);
                Outcome::done(&appended.report, text, now())
            }),
            Some(tx) => self.append_inside(tx, stage, text).map(|appended| {
                self.appended(stage, name, &appended);
                Outcome::staged(tx, &appended.report, text, now())
            }),
        };
        let outcome = outcome.map_err(|e| self.refused(stage, caller.uid, e))?;
        self.outcomes()
            .note(&stage.place.site.table, caller.uid, None, outcome);
        Ok(())
    }

    /// Appends a staged file to its table, which it creates if it is the first one.
    fn append(&self, stage: &Stage, name: &str) -> FsResult<(Option<Arc<Snapshot>>, Appended)> {
        let path = &stage.place.site.table;
        let appended = self.with_request(stage, name, |request| {
            let is_table = matches!(self.catalog.place(path)?, crate::table::Place::Table);
            if is_table {
                let table = self.catalog.table(path)?;
                let before = table.snapshot();
                let appended = ops::append(&table, request)?;
                return Ok((Some(before), appended));
            }
            let dir = self.catalog.root().sub(path)?;
            match ops::create_from(&dir, &self.env, request, self.settings.table_features) {
                Ok((table, appended)) => {
                    self.catalog.register(path, table);
                    Ok((None, appended))
                }
                // Somebody else created it at the same moment: this is an append, then (BUGS.md D11).
                Err(OpError::Table(crate::table::TableError::Created)) => {
                    let table = self.catalog.table(path)?;
                    let before = table.snapshot();
                    let appended = ops::append(&table, request)?;
                    Ok((Some(before), appended))
                }
                Err(e) => Err(e),
            }
        });
        appended.map_err(|e| domain_in(name, &e))
    }

    /// Makes a staged file a step of a transaction.
    fn append_inside(&self, tx: &TxName, stage: &Stage, name: &str) -> FsResult<Appended> {
        let (_, steps) = self.open_steps(tx)?;
        let appended = self.with_request(stage, name, |request| steps.append(request));
        self.touch_tx(tx);
        appended.map_err(|e| domain_in(name, &e))
    }

    /// What is asked for with a staged file.
    fn with_request<T>(&self, stage: &Stage, name: &str, work: impl FnOnce(&Append<'_>) -> T) -> T {
        let (file, stored, overwrites) = {
            let state = stage.state();
            (
                Arc::clone(&state.file),
                state.stored.clone(),
                state.replaces.is_some(),
            )
        };
        let place = &stage.place;
        let fixed = Self::fixed_values(&place.dir);
        let owner = Caller {
            uid: stage.uid,
            gid: stage.gid,
            pid: 0,
        };
        let scratch = || {
            self.fresh
                .owned(owner)
                .map_err(|e| std::io::Error::other(e.to_string()))
        };
        let visible = format!("{}{name}", place.dir);
        let replaces = match (place.append_only, overwrites) {
            (true, _) => Replaces::Nothing,
            // Dropped under the name of a live file: its rows are replaced, whoever made it live meanwhile.
            (false, false) => Replaces::IfLive(&visible),
            (false, true) => Replaces::Live(&visible),
        };
        let request = Append {
            input: &file,
            name,
            fixed: &fixed,
            stored: &stored,
            replaces,
            scratch: &scratch,
        };
        work(&request)
    }

    /// The staged file has become the table's.
    fn appended(&self, stage: &Arc<Stage>, name: &std::ffi::OsStr, appended: &Appended) {
        let place = &stage.place;
        let visible = format!("{}{}", place.dir, name.display());
        // It stays the same inode for whoever has it open when it was stored as it was planned at CREATE.
        let key = stage.key();
        let live = appended.files.iter().find(|f| *f.visible == *visible);
        let phase = match live {
            Some(file) => Phase::Committed(Arc::clone(file)),
            None => Phase::Scattered(self.env.now()),
        };
        stage.give_up_bytes(phase);
        if let Some(file) = live {
            self.overlay().remove(stage, name);
            let dv = file.add.dv_id();
            let same = super::node::data_key(&place.site, file.path.key(), dv.as_deref()) == key;
            if same && let Ok(handle) = self.catalog.table(&place.site.table) {
                let node = place.site.data(&handle, Arc::clone(file));
                let replaced = self.inodes().replace(&node);
                drop(replaced);
            }
        }
    }

    /// What follows the commit of a file.
    fn committed(&self, site: &Site, before: Option<&Arc<Snapshot>>, appended: &Appended) {
        if let (Some(before), Some(after)) = (before, &appended.snapshot) {
            self.moved(&site.table, before, after);
        }
        self.invalidate(Invalidate::Attributes(site.folder("").number()));
        self.maybe_checkpoint(&site.table, appended.snapshot.as_ref());
    }

    /// Notes a refusal where the user can read it.
    fn refused(&self, stage: &Stage, uid: u32, error: FsError) -> FsError {
        let name = stage.name();
        stage.state().failure = Some(error.clone());
        let outcome = Outcome::failed("WRITE", &name.to_string_lossy(), &error, self.env.now());
        self.outcomes()
            .note(&stage.place.site.table, uid, None, outcome);
        error
    }

    /// The last close of a handle. What is not committed by now never will be: nobody would hear of it.
    pub(super) fn release(&self, fh: Fh) {
        let handle = self.handles().close(fh);
        if let Some(Handle::Stage { stage, write: true }) = handle {
            self.let_go(&stage);
        }
    }

    fn let_go(&self, stage: &Arc<Stage>) {
        let _settling = stage.settle();
        let (name, file, failure, dirty, dropped, broken) = {
            let mut state = stage.state();
            state.writers = state.writers.saturating_sub(1);
            if state.writers > 0 || !matches!(state.phase, Phase::Open) {
                return;
            }
            (
                state.name.clone(),
                Arc::clone(&state.file),
                state.failure.clone(),
                state.dirty,
                state.replaces.is_some() || state.killed,
                state.broken,
            )
        };
        let length = file.metadata().map_or(0, |m| m.len());
        let is_data = self.kind_of(stage).unwrap_or(Dropped::Data) == Dropped::Data;
        if dirty && length > 0 && is_data && !broken {
            let reason = failure.map_or_else(
                || {
                    format!(
                        "{INCOMPLETE} when its last descriptor was closed; nothing was committed"
                    )
                },
                |error| match error.hint() {
                    Some(hint) => format!("{error}\n{hint}"),
                    None => error.to_string(),
                },
            );
            self.reject(
                &stage.place.site.table,
                &name.to_string_lossy(),
                &file,
                &reason,
            );
        } else if !(dropped || broken) || !is_data {
            // Scratch, or a placeholder that waits for its first byte. Nobody waits for that of a dead writer, and
            // what did not find room is not kept to take up what is left of it.
            return;
        }
        stage.state().phase = Phase::Gone;
        self.overlay().remove(stage, &name);
        let parent = stage.place.site.folder(&stage.place.dir).number();
        self.invalidate(Invalidate::Name { parent, name });
    }

    /// The mount is over: what is still open is refused, not lost.
    pub(super) fn settle_all(&self) {
        let handles = self.handles().drain();
        for handle in handles {
            if let Handle::Stage { stage, write: true } = handle {
                self.let_go(&stage);
            }
        }
        for stage in self.overlay().all() {
            let state = stage.state();
            let left = matches!(state.phase, Phase::Open)
                && state.file.metadata().is_ok_and(|m| m.len() > 0);
            if left {
                tracing::info!(
                    table = %stage.place.site.table.display(), name = %state.name.display(),
                    "scratch file dropped at the end of the mount"
                );
            }
        }
    }

    pub(super) fn fallocate(&self, fh: Fh, offset: u64, length: u64, mode: i32) -> FsResult<()> {
        let Handle::Stage { stage, write: true } = self.handles().get(fh)? else {
            return Err(FsError::BadHandle);
        };
        let _settling = stage.settle();
        let (file, plain) = {
            let state = stage.state();
            let plain = matches!(state.phase, Phase::Open) && state.sequential.is_none();
            (Arc::clone(&state.file), plain)
        };
        if !plain {
            return Err(super::not_permitted(
                "a committed data file can't be changed in place",
                "write the whole file anew",
            ));
        }
        let (Ok(offset), Ok(length)) = (offset.try_into(), length.try_into()) else {
            return Err(FsError::Domain {
                kind: Kind::Invalid,
                message: "fallocate: the range is too large".to_owned(),
                hint: None,
            });
        };
        // SAFETY: a valid descriptor.
        let rc = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) };
        if rc != 0 {
            return Err(io_error("fallocate", &std::io::Error::last_os_error()));
        }
        let mut state = stage.state();
        state.dirty = true;
        state.modified = self.env.now();
        Ok(())
    }

    pub(super) fn copy_file_range(&self, range: CopyRange, _caller: Caller) -> FsResult<u32> {
        let no_range = || FsError::Domain {
            kind: Kind::Unsupported,
            message: "this range can't be copied by the daemon".to_owned(),
            hint: None,
        };
        let source = match self.handles().get(range.from_fh)? {
            Handle::File(file) => file,
            Handle::Stage { stage, .. } => stage.file(),
            Handle::Dir { .. } | Handle::Text(_) | Handle::Verb(_) => return Err(no_range()),
        };
        let Handle::Stage { stage, write: true } = self.handles().get(range.to_fh)? else {
            return Err(no_range());
        };
        let _settling = stage.settle();
        let target = {
            let state = stage.state();
            // Anything but a plain new file goes through WRITE, where its rules are.
            if !matches!(state.phase, Phase::Open) || state.sequential.is_some() {
                return Err(no_range());
            }
            Arc::clone(&state.file)
        };
        let mut from = i64::try_from(range.from_offset).map_err(|_| no_range())?;
        let mut to = i64::try_from(range.to_offset).map_err(|_| no_range())?;
        // SAFETY: valid descriptors, offsets that outlive the call.
        let copied = unsafe {
            libc::copy_file_range(
                source.as_raw_fd(),
                &raw mut from,
                target.as_raw_fd(),
                &raw mut to,
                range.length as usize,
                0,
            )
        };
        let Ok(copied) = u32::try_from(copied) else {
            return Err(no_range());
        };
        if copied > 0 {
            let mut state = stage.state();
            state.dirty = true;
            state.modified = self.env.now();
        }
        Ok(copied)
    }

    /// Writes a checkpoint and cleans the log up in the background when its version has come.
    pub(super) fn maybe_checkpoint(&self, path: &Path, snapshot: Option<&Arc<Snapshot>>) {
        let Some(snapshot) = snapshot else { return };
        let interval = crate::table::properties::checkpoint_interval(snapshot.metadata());
        let since = snapshot.version() - snapshot.checkpoint().unwrap_or(0).min(snapshot.version());
        if snapshot.version() == 0 || since < interval {
            return;
        }
        let Ok(table) = self.catalog.table(path) else {
            return;
        };
        let Some(turn) = table.begin_checkpoint() else {
            return;
        };
        let snapshot = Arc::clone(snapshot);
        self.runtime.spawn_blocking(move || {
            let _turn = turn;
            let path = table.dir().path().display();
            if let Err(error) = ops::checkpoint(&table, &snapshot) {
                tracing::warn!(table = %path, version = snapshot.version(), %error, "no checkpoint was written");
                return;
            }
            match ops::cleanup(&table, &snapshot) {
                Ok(cleaned) if cleaned.total() > 0 => {
                    tracing::info!(table = %path, ?cleaned, "expired files of the log are removed");
                }
                Ok(cleaned) => tracing::debug!(table = %path, kept = ?cleaned.kept, "the log stays as it is"),
                Err(error) => tracing::warn!(table = %path, %error, "the log was not cleaned up"),
            }
        });
    }
}

/// The error of an append with the file's name in front.
fn domain_in(name: &str, error: &OpError) -> FsError {
    FsError::Domain {
        kind: error.kind(),
        message: format!("{name}: {error}"),
        hint: error.hint(),
    }
}
