//! Names that change: rename, unlink, mkdir, rmdir.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use super::lookup::{DirKind, shown};
use super::node::Node;
use super::outcome::Outcome;
use super::past::read_only;
use super::site::{Place, Site};
use super::stage::{Phase, Stage, data_name, io_error};
use super::transaction::TxEntry;
use super::{
    Caller, Core, Entry, FsError, FsResult, Ino, RenameFlags, domain, free_name, not_permitted,
};
use crate::datafile::is_parquet_complete;
use crate::error::Kind;
use crate::namespace::{Control, Dropped, classify};
use crate::ops::{self, OpError, Report};
use crate::table::{LiveFile, Snapshot, Table};

impl Core {
    pub(super) fn unlink(&self, parent: Ino, name: &OsStr, caller: Caller) -> FsResult<()> {
        self.writable()?;
        let parent = self.node(parent)?;
        self.may_change(&parent, caller)?;
        match self.child(&parent, name)? {
            Node::Staged(stage) => self.unlink_stage(&stage, name),
            Node::Data {
                table,
                handle,
                file,
            } => self.remove_live(&table, &handle, &file, caller),
            Node::Tx { tx, entry } => match entry {
                TxEntry::Data(file) => self.remove_staged(&tx, &file, caller),
                TxEntry::Dir(_) => Err(FsError::IsDir),
                TxEntry::Control(entry) if entry.is_dir() => Err(FsError::IsDir),
                TxEntry::Control(_) => Err(not_permitted(
                    "control files can't be removed",
                    "rmdir of the transaction's directory aborts it",
                )),
            },
            Node::Control {
                owner,
                entry: Control::RejectedFile(name),
            } => self.remove_rejected(&owner, &name),
            Node::Control { .. } => Err(not_permitted(
                "control files can't be removed",
                "see .delta/README for what can be done here",
            )),
            Node::Foreign(path) => Err(not_permitted(
                format!(
                    "{} belongs to no table and is read-only here",
                    path.display()
                ),
                "remove it in the source directory",
            )),
            node @ Node::Past { .. } => Err(read_only(&node.subject())),
            Node::Dir(_) | Node::Partition { .. } => Err(FsError::IsDir),
        }
    }

    /// Removing the name of a file that is being written: its bytes are dropped, whatever is still written to it.
    fn unlink_stage(&self, stage: &Arc<Stage>, name: &OsStr) -> FsResult<()> {
        let _settling = stage.settle();
        {
            let mut state = stage.state();
            match state.phase {
                Phase::Committed(_) => return Err(FsError::Stale),
                // Its rows are under other names: there is nothing of this name.
                Phase::Scattered(_) | Phase::Gone => return Err(FsError::NotFound),
                Phase::Open => state.phase = Phase::Gone,
            }
        }
        self.overlay().remove(stage, name);
        Ok(())
    }

    fn remove_live(
        &self,
        path: &Path,
        table: &Arc<Table>,
        live: &Arc<LiveFile>,
        caller: Caller,
    ) -> FsResult<()> {
        let before = table.snapshot();
        let report = ops::remove(table, &live.path);
        let now = table.snapshot();
        let report = match (report, now.named(&live.visible)) {
            // Somebody has put another file under the name: the name is what was meant.
            (Err(OpError::Gone(_)), Some(other)) => ops::remove(table, &other.path),
            (report, _) => report,
        };
        self.note(path, caller, "DELETE", &live.visible, &report);
        let report = report.map_err(|e| match e {
            OpError::Gone(_) => FsError::NotFound,
            e => domain(&e),
        })?;
        if let Some(after) = &report.snapshot {
            self.keep_dir(&Site::table(path), after, &live.visible);
        }
        self.done(path, &before, &report);
        Ok(())
    }

    /// POSIX keeps a directory whose last file is removed.
    pub(super) fn keep_dir(&self, site: &Site, after: &Snapshot, removed: &str) {
        if let Some((dir, _)) = removed.rsplit_once('/') {
            let dir = format!("{dir}/");
            if !after.has_dir(&dir) {
                self.overlay().add_dir(site, &dir);
            }
        }
    }

    /// Notes what became of an operation where its user can read it.
    pub(super) fn note(
        &self,
        path: &Path,
        caller: Caller,
        operation: &str,
        subject: &str,
        report: &Result<Report, OpError>,
    ) {
        let now = self.env.now();
        let outcome = match report {
            Ok(report) => Outcome::done(report, subject, now),
            Err(e) => {
                tracing::warn!(table = %path.display(), operation, subject, error = %e, "failed");
                Outcome::failed(operation, subject, e, now)
            }
        };
        self.outcomes().note(path, caller.uid, None, outcome);
    }

    /// What follows a commit: the kernel's caches, and a checkpoint when it is time.
    pub(super) fn done(&self, path: &Path, before: &Arc<Snapshot>, report: &Report) {
        if let Some(after) = &report.snapshot {
            self.moved(path, before, after);
        }
        self.maybe_checkpoint(path, report.snapshot.as_ref());
    }

    pub(super) fn mkdir(&self, parent: Ino, name: &OsStr, caller: Caller) -> FsResult<Entry> {
        self.writable()?;
        let parent = self.node(parent)?;
        self.may_change(&parent, caller)?;
        match self.child(&parent, name) {
            Ok(_) => return Err(FsError::Exists),
            Err(FsError::NotFound) => {}
            Err(e) => return Err(e),
        }
        free_name(name)?;
        let (site, dir) = match &parent {
            Node::Dir(path) => match self.dir_kind(path)? {
                DirKind::Plain => {
                    if self.overlay().is_used(&Site::table(path), "") {
                        return Err(not_permitted(
                            format!("{} is about to become a table", shown(path).display()),
                            "a table holds no plain directories",
                        ));
                    }
                    let child = path.join(name);
                    self.catalog
                        .root()
                        .create_dir(&child)
                        .map_err(|e| domain(&e))?;
                    // Only root can give a directory away; others own what they make.
                    let given = self
                        .catalog
                        .root()
                        .sub(&child)
                        .and_then(|d| d.give_to(caller.uid, caller.gid));
                    if let Err(error) = given {
                        tracing::debug!(%error, "the directory keeps the daemon's owner");
                    }
                    return self.entry(Node::Dir(child));
                }
                DirKind::Table(..) => (Site::table(path), String::new()),
            },
            Node::Partition { table, dir } => (Site::table(table), dir.clone()),
            Node::Tx {
                tx,
                entry: TxEntry::Dir(dir),
            } => (Site::inside(tx), dir.clone()),
            Node::Control {
                owner,
                entry: Control::Tx,
            } => return self.begin_tx(owner, name, caller),
            Node::Control { .. }
            | Node::Tx {
                entry: TxEntry::Control(_),
                ..
            } => {
                return Err(not_permitted(
                    "no directory can be made in a control directory",
                    "see .delta/README",
                ));
            }
            Node::Data { .. }
            | Node::Staged(_)
            | Node::Foreign(_)
            | Node::Past { .. }
            | Node::Tx {
                entry: TxEntry::Data(_),
                ..
            } => {
                return Err(FsError::NotDir);
            }
        };
        let (_, snapshot) = self.seen(&site)?.ok_or(FsError::Stale)?;
        let text = name.to_str().unwrap_or_default();
        if Self::next_partition(&snapshot, &dir, text).is_none() {
            let depth = dir.matches('/').count();
            let hint = match snapshot.partition_columns().get(depth) {
                Some(column) => {
                    let spelled = Self::canonical_dir(&snapshot, column, text);
                    if let Some(spelled) = spelled {
                        return Err(not_permitted(
                            format!(
                                "{} is not how this table spells the partition",
                                name.display()
                            ),
                            &format!("the directory is named {spelled}"),
                        ));
                    }
                    format!(
                        "here a directory is named {}=VALUE",
                        crate::schema::partition::escape_dir(column)
                    )
                }
                None => {
                    "the table has no partition column for a directory at this depth".to_owned()
                }
            };
            return Err(not_permitted(
                format!(
                    "{} is not a partition directory of this table",
                    name.display()
                ),
                &hint,
            ));
        }
        let below = format!("{dir}{text}/");
        self.overlay().add_dir(&site, &below);
        self.entry(site.folder(&below))
    }

    /// Removes an empty partition directory.
    fn remove_folder(&self, site: &Site, dir: &str) -> FsResult<()> {
        let (_, snapshot) = self.seen(site)?.ok_or(FsError::Stale)?;
        let mut overlay = self.overlay();
        let holds_dirs = overlay.dirs_below(site, dir).any(|d| d != dir);
        if snapshot.has_dir(dir) || holds_dirs || overlay.is_used(site, dir) {
            return Err(FsError::NotEmpty);
        }
        overlay.remove_dir(site, dir);
        // As for files: the directory above stays until it is removed, too.
        if let Some((above, _)) = dir.trim_end_matches('/').rsplit_once('/') {
            let above = format!("{above}/");
            if !snapshot.has_dir(&above) {
                overlay.add_dir(site, &above);
            }
        }
        Ok(())
    }

    pub(super) fn rmdir(&self, parent: Ino, name: &OsStr, caller: Caller) -> FsResult<()> {
        self.writable()?;
        let parent = self.node(parent)?;
        self.may_change(&parent, caller)?;
        match self.child(&parent, name)? {
            Node::Partition { table, dir } => self.remove_folder(&Site::table(&table), &dir),
            Node::Tx { tx, entry } => match entry {
                TxEntry::Dir(dir) if dir.is_empty() => self.abort_tx(&tx, caller),
                TxEntry::Dir(dir) => self.remove_folder(&Site::inside(&tx), &dir),
                TxEntry::Control(entry) if entry.is_dir() => Err(not_permitted(
                    "control directories can't be removed",
                    "rmdir of the transaction's directory aborts it",
                )),
                TxEntry::Control(_) | TxEntry::Data(_) => Err(FsError::NotDir),
            },
            Node::Dir(path) => match self.dir_kind(&path)? {
                DirKind::Table(..) => Err(not_permitted(
                    format!(
                        "{} is a table, and its history is in the directory",
                        path.display()
                    ),
                    "remove its rows with rm, or the table itself in the source directory",
                )),
                DirKind::Plain => {
                    if !self.plain_entries(&path)?.is_empty()
                        || self.overlay().is_used(&Site::table(&path), "")
                    {
                        return Err(FsError::NotEmpty);
                    }
                    let root = self.catalog.root();
                    // What a crash during the creation of a table may have left.
                    let _ = root.remove_dir(&path.join(crate::log::LOG_DIR));
                    root.remove_dir(&path).map_err(|e| match &e {
                        crate::store::StoreError::Io { source, .. }
                            if source.kind() == std::io::ErrorKind::DirectoryNotEmpty =>
                        {
                            FsError::NotEmpty
                        }
                        _ => domain(&e),
                    })?;
                    self.catalog.forget(&path);
                    Ok(())
                }
            },
            Node::Control { .. } => Err(not_permitted(
                "control directories can't be removed",
                "see .delta/README",
            )),
            node @ Node::Past { .. } => Err(read_only(&node.subject())),
            Node::Data { .. } | Node::Staged(_) | Node::Foreign(_) => Err(FsError::NotDir),
        }
    }

    pub(super) fn rename(
        &self,
        parent: Ino,
        name: &OsStr,
        new_parent: Ino,
        new_name: &OsStr,
        flags: RenameFlags,
        caller: Caller,
    ) -> FsResult<()> {
        self.writable()?;
        let from = self.node(parent)?;
        let to = self.node(new_parent)?;
        self.may_change(&from, caller)?;
        self.may_change(&to, caller)?;
        if new_name.len() > 255 {
            return Err(FsError::NameTooLong);
        }
        let source = self.child(&from, name)?;
        let target = match self.child(&to, new_name) {
            Ok(node) => Some(node),
            Err(FsError::NotFound) => None,
            Err(e) => return Err(e),
        };
        if flags.exchange {
            return Err(not_permitted(
                "names can't be exchanged",
                "rename one after the other",
            ));
        }
        if flags.noreplace && target.is_some() {
            return Err(FsError::Exists);
        }
        free_name(new_name)?;
        match source {
            Node::Staged(stage) => self.rename_stage(&stage, name, &to, new_name, target, caller),
            Node::Data {
                table,
                handle,
                file,
            } => self.rename_live(
                &table,
                &handle,
                &file,
                &to,
                new_name,
                target.is_some(),
                caller,
            ),
            Node::Dir(path) => Err(not_permitted(
                format!("{} can't be renamed through the mount", path.display()),
                "rename the directory in the source, where no mount uses it",
            )),
            Node::Partition { dir, .. } => Err(not_permitted(
                format!(
                    "the partition {} can't be renamed",
                    dir.trim_end_matches('/')
                ),
                "the name is the value of a column: copy the rows into the other partition, then remove these",
            )),
            Node::Foreign(path) => Err(not_permitted(
                format!(
                    "{} belongs to no table and is read-only here",
                    path.display()
                ),
                "copy it instead",
            )),
            node @ Node::Past { .. } => Err(read_only(&node.subject())),
            Node::Tx {
                tx,
                entry: TxEntry::Data(file),
            } => {
                let taken = target.is_some();
                self.rename_staged(&tx, &file, &to, new_name, taken, caller)
            }
            Node::Tx { .. } => Err(not_permitted(
                "transactions, their partitions and control files can't be renamed",
                "see .delta/README",
            )),
            Node::Control { .. } => Err(not_permitted(
                "control files can't be renamed",
                "see .delta/README",
            )),
        }
    }

    /// A staged file gets another name; a data name is its commit point.
    fn rename_stage(
        &self,
        stage: &Arc<Stage>,
        name: &OsStr,
        to: &Node,
        new_name: &OsStr,
        target: Option<Node>,
        caller: Caller,
    ) -> FsResult<()> {
        let _settling = stage.settle();
        let place = self.place_of(to)?;
        if place != stage.place {
            // mv copies, which commits in the other place.
            return Err(FsError::CrossDevice);
        }
        let over_live = matches!(
            target,
            Some(
                Node::Data { .. }
                    | Node::Tx {
                        entry: TxEntry::Data(_),
                        ..
                    }
            )
        );
        let replaced = match target {
            None => None,
            Some(_) if over_live => None,
            Some(Node::Staged(other)) if Arc::ptr_eq(&other, stage) => return Ok(()),
            Some(Node::Staged(other)) => Some(other),
            Some(_) => return Err(FsError::IsDir),
        };
        let kind = match self.seen(&place.site)? {
            Some((_, snapshot)) => classify(new_name, |n| {
                snapshot.named(&format!("{}{n}", place.dir)).is_some()
            }),
            None => classify(new_name, |_| false),
        };
        let (file, open) = {
            let state = stage.state();
            (Arc::clone(&state.file), matches!(state.phase, Phase::Open))
        };
        if !open {
            return Err(FsError::Stale);
        }
        let length = file.metadata().map_err(|e| io_error("stat", &e))?.len();
        match kind {
            Dropped::Text => {
                return Err(FsError::Domain {
                    kind: Kind::Unsupported,
                    message: format!(
                        "{} can't be appended: only Parquet files are taken",
                        new_name.display()
                    ),
                    hint: Some("convert it to Parquet first".to_owned()),
                });
            }
            Dropped::Data if length > 0 => {
                data_name(new_name)?;
                if !is_parquet_complete(&file).map_err(|e| io_error("reading", &e))? {
                    return Err(FsError::Domain {
                        kind: Kind::Invalid,
                        message: format!(
                            "{}: not a complete Parquet file ({length} bytes)",
                            name.display()
                        ),
                        hint: Some("nothing was committed, and the name is as it was".to_owned()),
                    });
                }
                self.commit_as(stage, new_name, caller)?;
            }
            Dropped::Data if over_live => {
                return Err(not_permitted(
                    format!("{} is empty and can't replace a data file", name.display()),
                    "rm removes the rows of a data file",
                ));
            }
            Dropped::Data | Dropped::Scratch => {}
        }
        // Committed or not, the kernel now knows the file under the new name.
        let mut overlay = self.overlay();
        overlay.remove(stage, name);
        if let Some(other) = replaced {
            other.state().phase = Phase::Gone;
            overlay.remove(&other, new_name);
        }
        stage.state().name = new_name.to_owned();
        if !matches!(stage.state().phase, Phase::Committed(_)) {
            overlay.insert(stage);
        }
        Ok(())
    }

    /// A live file gets another name in its directory: a change of its tag, not of its rows.
    #[allow(
        clippy::too_many_arguments,
        reason = "the two names and their places, as in rename(2)"
    )]
    fn rename_live(
        &self,
        path: &Path,
        table: &Arc<Table>,
        live: &Arc<LiveFile>,
        to: &Node,
        new_name: &OsStr,
        taken: bool,
        caller: Caller,
    ) -> FsResult<()> {
        let place = self.place_of(to)?;
        if taken || !is_place_of(&place, &Site::table(path), live) {
            // mv copies and removes, each a transaction of its own.
            return Err(FsError::CrossDevice);
        }
        let new_name = new_data_name(new_name)?;
        let before = table.snapshot();
        let report = ops::rename(table, &live.path, new_name);
        self.note(path, caller, "RENAME FILE", &live.visible, &report);
        let report = report.map_err(|e| match e {
            OpError::Gone(_) => FsError::NotFound,
            e => domain(&e),
        })?;
        // The inode stays: it is the same file.
        if let Some(file) = report
            .snapshot
            .as_ref()
            .and_then(|s| s.live_file(&live.path))
        {
            let node = Node::Data {
                table: path.to_owned(),
                handle: Arc::clone(table),
                file,
            };
            let replaced = self.inodes().replace(&node);
            drop(replaced);
        }
        self.done(path, &before, &report);
        Ok(())
    }
}

/// Whether a live file of `site` stays in its directory when it goes to `place`.
pub(super) fn is_place_of(place: &Place, site: &Site, live: &LiveFile) -> bool {
    let dir = live.visible.rsplit_once('/');
    let dir = dir.map(|(dir, _)| format!("{dir}/")).unwrap_or_default();
    *place == site.at(&dir)
}

/// The name that a live file gets.
///
/// # Errors
/// [`Kind::Denied`] for that of a scratch file: nobody would find the rows.
pub(super) fn new_data_name(name: &OsStr) -> FsResult<&str> {
    if classify(name, |_| false) != Dropped::Data {
        return Err(not_permitted(
            format!("{} is not the name of a data file", name.display()),
            "a data file is named *.parquet and does not start with `.` or `_`; rm removes its rows",
        ));
    }
    data_name(name)
}
