//! Opening and reading.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::handle::Handle;
use super::node::Node;
use super::site::Site;
use super::stage::{Phase, Stage, data_name, io_error, process_of};
use super::transaction::TxEntry;
use super::verb::{Statement, VerbHandle};
use super::{
    Caller, Core, Entry, Fh, FsError, FsResult, Ino, Io, OpenFlags, Opened, domain, free_name,
    not_permitted,
};
use crate::datafile::{RawView, raw_view};
use crate::error::Kind;
use crate::namespace::{Control, Dropped, classify};
use crate::table::{DataPath, LiveFile, Snapshot, Table};

impl Core {
    pub(super) fn open(&self, ino: Ino, flags: OpenFlags, caller: Caller) -> FsResult<Opened> {
        let node = self.node(ino)?;
        if flags.write {
            self.writable()?;
        }
        match node {
            Node::Dir(_) | Node::Partition { .. } => Err(FsError::IsDir),
            Node::Data {
                table,
                handle,
                file,
            } => {
                let (_, snapshot) = self.table(&table)?;
                let site = Site::table(&table);
                self.open_listed(&site, &handle, &snapshot, &file, flags, caller)
            }
            Node::Staged(stage) => self.open_stage(&stage, flags, caller),
            Node::Foreign(path) => {
                if flags.write {
                    return Err(foreign(&path));
                }
                let file = self
                    .catalog
                    .root()
                    .open_file(&path)
                    .map_err(|e| domain(&e))?;
                self.open_file(file, false)
            }
            Node::Control { owner, entry } => self.open_control(&owner, &entry, flags, caller),
            Node::Past { table, at, entry } => self.open_past(&table, &at, &entry, flags),
            Node::Tx { tx, entry } => self.open_tx(&tx, &entry, flags, caller),
        }
    }

    /// A data file of a snapshot, unless that is not the newest one any more.
    pub(super) fn open_listed(
        &self,
        site: &Site,
        handle: &Table,
        snapshot: &Arc<Snapshot>,
        file: &Arc<LiveFile>,
        flags: OpenFlags,
        caller: Caller,
    ) -> FsResult<Opened> {
        let live = snapshot.live_file(&file.path);
        if live.is_none_or(|l| l.add.dv_id() != file.add.dv_id()) {
            return Err(FsError::Stale);
        }
        if flags.write {
            return self.begin_overwrite(site, snapshot, file, flags, caller);
        }
        self.open_data(snapshot, handle, file)
    }

    /// A data file as it is stored, if that is what the table means.
    pub(super) fn open_data(
        &self,
        snapshot: &Snapshot,
        table: &Table,
        live: &LiveFile,
    ) -> FsResult<Opened> {
        snapshot.check_read().map_err(|e| domain(&e))?;
        let file = open_live(table, live)?;
        if let Some(vector) = &live.add.deletion_vector {
            return Err(needs_logical_view(
                &live.visible,
                &format!(
                    "{} of its rows are deleted by a deletion vector",
                    vector.cardinality
                ),
            ));
        }
        let view = table.raw_view(snapshot, live, || {
            let columns = snapshot.partition_columns();
            raw_view(&file, snapshot.schema(), columns, snapshot.mapping())
        });
        match view.map_err(|e| domain(&e))? {
            RawView::Same => self.open_file(file, true),
            RawView::Differs(reason) => Err(needs_logical_view(&live.visible, &reason)),
        }
    }

    /// Opens content that has just been made.
    pub(super) fn open_text(&self, text: Bytes) -> Opened {
        let fh = self.handles().open(Handle::Text(text));
        Opened { fh, io: Io::Direct }
    }

    fn open_file(&self, file: File, immutable: bool) -> FsResult<Opened> {
        let meta = file.metadata().map_err(|e| io_error("open", &e))?;
        if !meta.is_file() {
            return Err(not_permitted(
                "this is not a regular file",
                "only regular files can be read",
            ));
        }
        let file = Arc::new(file);
        let io = if self.passthrough.load(Ordering::Relaxed) {
            Io::Passthrough(Arc::clone(&file))
        } else {
            Io::Cached { keep: immutable }
        };
        let fh = self.handles().open(Handle::File(file));
        Ok(Opened { fh, io })
    }

    fn open_control(
        &self,
        owner: &Path,
        entry: &Control,
        flags: OpenFlags,
        caller: Caller,
    ) -> FsResult<Opened> {
        if let Control::Verb(verb) = entry {
            if flags.write {
                let (table, _) = self.table(owner)?;
                let base = table.refresh().map_err(|e| domain(&e))?;
                base.check_write().map_err(|e| domain(&e))?;
                let statement = Statement::Verb {
                    verb: *verb,
                    table,
                    base,
                };
                return Ok(self.open_statement(statement, owner, caller));
            }
            let content = self.content(owner, entry)?;
            let fh = self.handles().open(Handle::Text(content.text));
            return Ok(Opened { fh, io: Io::Direct });
        }
        if flags.write {
            return Err(not_permitted(
                format!(".delta/{} is read-only", entry.path()),
                "statements are written to the files in .delta/ctl; see .delta/README",
            ));
        }
        match entry {
            Control::Raw(path) => {
                let (table, _) = self.table(owner)?;
                let file = table.raw_file(path).map_err(|e| domain(&e))?;
                self.open_file(file, false)
            }
            Control::RejectedFile(name) => {
                let file = self.rejected_file(owner, name)?;
                self.open_file(file, false)
            }
            Control::Last => {
                let text = self.last(owner, Some(caller.uid));
                Ok(Opened {
                    fh: self.handles().open(Handle::Text(text.text)),
                    io: Io::Direct,
                })
            }
            _ if entry.is_dir() != Some(false) => Err(FsError::IsDir),
            _ => {
                let content = self.content(owner, entry)?;
                let fh = self.handles().open(Handle::Text(content.text));
                Ok(Opened { fh, io: Io::Direct })
            }
        }
    }

    /// A handle that takes a statement.
    pub(super) fn open_statement(
        &self,
        statement: Statement,
        owner: &Path,
        caller: Caller,
    ) -> Opened {
        let state = VerbHandle::new(statement, owner.to_owned(), caller);
        let state = Handle::Verb(Arc::new(std::sync::Mutex::new(state)));
        Opened {
            fh: self.handles().open(state),
            io: Io::Direct,
        }
    }

    fn open_stage(&self, stage: &Arc<Stage>, flags: OpenFlags, caller: Caller) -> FsResult<Opened> {
        if flags.write {
            self.may_write(&stage.place.site, caller)?;
            return self.open_for_writing(stage, flags, caller);
        }
        let (phase, file, replaces) = {
            let state = stage.state();
            (
                state.phase.clone(),
                Arc::clone(&state.file),
                state.replaces.clone(),
            )
        };
        match (phase, replaces) {
            // Until a replacement is committed, the name stands for the live file, which has an inode of its own.
            (Phase::Gone, _) | (Phase::Open, Some(_)) => Err(FsError::Stale),
            // The inode went on as a data file; only a handle from before can still ask for the stage.
            (Phase::Committed(live), _) => {
                let (table, snapshot) = self.seen(&stage.place.site)?.ok_or(FsError::Stale)?;
                self.open_data(&snapshot, &table, &live)
            }
            (Phase::Open | Phase::Scattered(_), _) => {
                let fh = self.handles().open(Handle::File(file));
                Ok(Opened { fh, io: Io::Direct })
            }
        }
    }

    /// Opens a staged file for writing, or says that its name stands for another file by now.
    fn open_for_writing(
        &self,
        stage: &Arc<Stage>,
        flags: OpenFlags,
        caller: Caller,
    ) -> FsResult<Opened> {
        // Not in the middle of a commit: what is adopted must not change under it.
        let _settling = stage.settle();
        let (phase, replaces, busy) = {
            let state = stage.state();
            (
                state.phase.clone(),
                state.replaces.is_some(),
                state.writers > 0,
            )
        };
        match phase {
            Phase::Open => {}
            Phase::Scattered(_) => {
                // A new file of that name is another one.
                let name = stage.name();
                self.overlay().remove(stage, &name);
                return Err(FsError::Stale);
            }
            Phase::Committed(_) | Phase::Gone => return Err(FsError::Stale),
        }
        if flags.append && replaces {
            return Err(append_refused());
        }
        if flags.truncate && busy {
            // Somebody else has it open to write it. Two files make two commits, each of one writer's
            // bytes; one file would be a mixture.
            let own = self.stage_anew(stage, caller)?;
            self.overlay().reserve(&own, caller.pid, self.env.now());
            return Err(FsError::Stale);
        }
        if flags.truncate {
            stage.truncate(0, &self.env, &self.fresh)?;
        }
        self.join(stage, caller)
    }

    /// Counts a writer of a staged file.
    fn join(&self, stage: &Arc<Stage>, caller: Caller) -> FsResult<Opened> {
        let opener = process_of(caller.pid);
        // A file that takes the place of a live one stays private: the name stands for the live one until then.
        let replaces = stage.state().replaces.is_some();
        let mut overlay = self.overlay();
        overlay.hand_over(stage);
        if !replaces {
            overlay.insert(stage);
        }
        drop(overlay);
        {
            let mut state = stage.state();
            state.writers += 1;
            state.opener = opener;
            // Until it is closed: a writer that dies in its open sends a RELEASE and no FLUSH.
            state.killed = true;
        }
        let handle = Handle::Stage {
            stage: Arc::clone(stage),
            write: true,
        };
        Ok(Opened {
            fh: self.handles().open(handle),
            io: Io::Direct,
        })
    }

    /// A staged file of its own in place of one that others are writing; theirs is committed all the same.
    fn stage_anew(&self, other: &Stage, caller: Caller) -> FsResult<Arc<Stage>> {
        let (name, replaces) = {
            let state = other.state();
            (state.name.clone(), state.replaces.clone())
        };
        let file = self.fresh.owned(caller)?;
        let stage = Arc::new(Stage::new(
            other.place.clone(),
            name,
            file,
            replaces,
            caller,
            &self.env,
        ));
        stage.state().sequential = None;
        Ok(stage)
    }

    /// Opening a live file for writing: the name gets a private file, and the kernel is told to look again.
    fn begin_overwrite(
        &self,
        site: &Site,
        snapshot: &Arc<Snapshot>,
        live: &Arc<LiveFile>,
        flags: OpenFlags,
        caller: Caller,
    ) -> FsResult<Opened> {
        if flags.append {
            return Err(append_refused());
        }
        // Whoever wants to read it, too, means to change it in place.
        if flags.read && !flags.truncate {
            return Err(super::stage::random_write());
        }
        let stage = self.overwrite(site, snapshot, live, caller)?;
        self.overlay().reserve(&stage, caller.pid, self.env.now());
        Err(FsError::Stale)
    }

    fn overwrite(
        &self,
        site: &Site,
        snapshot: &Arc<Snapshot>,
        live: &Arc<LiveFile>,
        caller: Caller,
    ) -> FsResult<Arc<Stage>> {
        snapshot.check_write().map_err(|e| domain(&e))?;
        let (dir, name) = live
            .visible
            .rsplit_once('/')
            .map_or(("", &*live.visible), |(d, n)| (d, n));
        let dir = if dir.is_empty() {
            String::new()
        } else {
            format!("{dir}/")
        };
        let stage = Arc::new(Stage::new(
            site.at(&dir),
            name.into(),
            self.fresh.owned(caller)?,
            Some(Arc::clone(live)),
            caller,
            &self.env,
        ));
        Ok(stage)
    }

    pub(super) fn create(
        &self,
        parent: Ino,
        name: &OsStr,
        flags: OpenFlags,
        caller: Caller,
    ) -> FsResult<(Entry, Opened)> {
        self.writable()?;
        let parent = self.node(parent)?;
        self.may_change(&parent, caller)?;
        if name.len() > 255 {
            return Err(FsError::NameTooLong);
        }
        match self.child(&parent, name) {
            Ok(_) if flags.exclusive => return Err(FsError::Exists),
            Ok(node) => return self.open_known(node, flags, caller),
            Err(FsError::NotFound) => {}
            Err(e) => return Err(e),
        }
        free_name(name)?;
        let place = self.place_of(&parent)?;
        let kind = match self.seen(&place.site)? {
            Some((_, snapshot)) => {
                snapshot.check_write().map_err(|e| domain(&e))?;
                let dir = place.dir.clone();
                classify(name, |n| snapshot.named(&format!("{dir}{n}")).is_some())
            }
            None => {
                self.check_new_table(&place.site.table)?;
                classify(name, |_| false)
            }
        };
        match kind {
            Dropped::Data => {
                data_name(name)?;
            }
            Dropped::Text => {
                return Err(FsError::Domain {
                    kind: Kind::Unsupported,
                    message: format!("{} can't be appended: only Parquet files are taken", name.display()),
                    hint: Some("convert it to Parquet first, for example with DuckDB: COPY (FROM 'x.csv') TO 'x.parquet'".to_owned()),
                });
            }
            Dropped::Scratch => {}
        }
        let file = self.fresh.owned(caller)?;
        let stage = Arc::new(Stage::new(
            place,
            name.to_owned(),
            file,
            None,
            caller,
            &self.env,
        ));
        let opened = self.open_for_writing(&stage, flags, caller)?;
        let entry = self.entry(Node::Staged(stage))?;
        Ok((entry, opened))
    }

    /// CREATE of a name that exists: the kernel did not know.
    fn open_known(
        &self,
        node: Node,
        flags: OpenFlags,
        caller: Caller,
    ) -> FsResult<(Entry, Opened)> {
        let stage = match &node {
            Node::Data { table, file, .. } => {
                if flags.append {
                    return Err(append_refused());
                }
                let (_, snapshot) = self.table(table)?;
                self.overwrite(&Site::table(table), &snapshot, file, caller)?
            }
            Node::Tx {
                tx,
                entry: TxEntry::Data(file),
            } => {
                if flags.append {
                    return Err(append_refused());
                }
                self.overwrite(&Site::inside(tx), &self.view(tx)?.1, file, caller)?
            }
            Node::Tx { tx, entry } => {
                let opened = self.open_tx(tx, entry, flags, caller)?;
                return Ok((self.entry(node)?, opened));
            }
            Node::Staged(stage) => Arc::clone(stage),
            Node::Dir(_) | Node::Partition { .. } => return Err(FsError::IsDir),
            Node::Foreign(path) => return Err(foreign(path)),
            Node::Past { table, at, entry } => {
                let opened = self.open_past(table, at, entry, flags)?;
                return Ok((self.entry(node)?, opened));
            }
            Node::Control { owner, entry } => {
                let opened = self.open_control(owner, entry, flags, caller)?;
                return Ok((self.entry(node)?, opened));
            }
        };
        match self.open_for_writing(&stage, flags, caller) {
            Ok(opened) => Ok((self.entry(Node::Staged(stage))?, opened)),
            // CREATE can't be told to look again: it gets what it would find.
            Err(FsError::Stale) => {
                let stage = self.stage_anew(&stage, caller)?;
                let opened = self.join(&stage, caller)?;
                Ok((self.entry(Node::Staged(stage))?, opened))
            }
            Err(e) => Err(e),
        }
    }

    /// Whether the plain directory `path` may become a table.
    pub(super) fn check_new_table(&self, path: &Path) -> FsResult<()> {
        if path.as_os_str().is_empty() {
            return Err(not_permitted(
                "files can't be created at the root of the mount",
                "make a directory for a new table: mkdir NAME; cp FILE.parquet NAME/",
            ));
        }
        if self
            .plain_entries(path)?
            .iter()
            .any(|(name, _)| !is_stored_name(name))
        {
            return Err(not_permitted(
                format!(
                    "{} holds other things and can't become a table",
                    path.display()
                ),
                "make an empty directory for a new table: mkdir NAME; cp FILE.parquet NAME/",
            ));
        }
        if path
            .file_name()
            .is_some_and(|n| n.as_encoded_bytes().contains(&b'='))
        {
            return Err(not_permitted(
                format!(
                    "{} looks like a partition directory, but is in no table",
                    path.display()
                ),
                "create the table first, in a directory without `=` in its name",
            ));
        }
        Ok(())
    }

    pub(super) fn read(&self, fh: Fh, offset: u64, size: u32) -> FsResult<Bytes> {
        let handle = self.handles().get(fh)?;
        match handle {
            Handle::Dir { .. } => Err(FsError::IsDir),
            Handle::File(file) => read_at(&file, offset, size),
            Handle::Text(text) => Ok(slice(&text, offset, size)),
            Handle::Stage { stage, .. } => read_at(&stage.file(), offset, size),
            Handle::Verb(verb) => Ok(slice(&super::verb::answer(&verb), offset, size)),
        }
    }
}

/// A data file of ours without a log yet: another mount is in the middle of creating the table.
fn is_stored_name(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("part-0") && name.ends_with("-c000.snappy.parquet")
}

/// Opens the stored bytes of a live file.
pub(super) fn open_live(table: &Table, live: &LiveFile) -> FsResult<File> {
    let path = match &live.path {
        DataPath::Inside(path) => path,
        DataPath::Outside(path) => {
            return Err(domain(&crate::table::TableError::Outside(path.clone())));
        }
    };
    let file = table.dir().open_file(Path::new(path)).map_err(|e| match e {
        e if e.is_absent() => FsError::Domain {
            kind: Kind::Corrupt,
            message: format!("the data file {path} of the table is missing"),
            hint: Some("it was removed behind the table's back, or by a VACUUM that was too eager; restore it".to_owned()),
        },
        e => domain(&e),
    })?;
    let size = file.metadata().map_err(|e| io_error("stat", &e))?.len();
    if u64::try_from(live.add.size) != Ok(size) {
        return Err(FsError::Domain {
            kind: Kind::Corrupt,
            message: format!(
                "the data file {path} has {size} bytes, but the log says {}",
                live.add.size
            ),
            hint: Some("the file was changed behind the table's back; restore it".to_owned()),
        });
    }
    Ok(file)
}

fn needs_logical_view(name: &str, reason: &str) -> FsError {
    FsError::Domain {
        kind: Kind::Unsupported,
        message: format!("{name} can't be served as it is stored: {reason}"),
        hint: Some(
            "read the table with a Delta reader: `.delta/raw` is the physical table".to_owned(),
        ),
    }
}

fn append_refused() -> FsError {
    not_permitted(
        "bytes can't be appended to a committed data file",
        "copy a whole Parquet file into the directory: that appends its rows",
    )
}

fn foreign(path: &Path) -> FsError {
    not_permitted(
        format!(
            "{} belongs to no table and is read-only here",
            path.display()
        ),
        "change it in the source directory",
    )
}

fn read_at(file: &File, offset: u64, size: u32) -> FsResult<Bytes> {
    let mut buffer = vec![0; size as usize];
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(io_error("reading", &e)),
        }
    }
    buffer.truncate(filled);
    Ok(buffer.into())
}

fn slice(text: &Bytes, offset: u64, size: u32) -> Bytes {
    let from = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(text.len());
    let to = from.saturating_add(size as usize).min(text.len());
    text.slice(from..to)
}
