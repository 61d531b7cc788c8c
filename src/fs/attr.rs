//! Attributes: what `stat` says of each node.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use super::handle::Handle;
use super::lookup::LONG;
use super::node::Node;
use super::past::{At, PastEntry, read_only};
use super::site::Site;
use super::stage::Phase;
use super::transaction::TxEntry;
use super::{Attr, Core, Fh, FileKind, FsResult, Ino, SetAttr, StatFs, not_permitted};
use crate::env::Millis;
use crate::namespace::{Control, TxControl};
use crate::table::{DataPath, LiveFile, Table};

/// Owner, mode and time of a backing file.
struct Backing {
    size: u64,
    mode: u16,
    uid: u32,
    gid: u32,
    mtime_ms: Millis,
}

impl Backing {
    fn of(meta: &std::fs::Metadata) -> Self {
        Backing {
            size: meta.len(),
            mode: u16::try_from(meta.mode() & 0o7777).unwrap_or(0o644),
            uid: meta.uid(),
            gid: meta.gid(),
            mtime_ms: meta
                .mtime()
                .saturating_mul(1000)
                .saturating_add(meta.mtime_nsec() / 1_000_000),
        }
    }
}

impl Core {
    pub(super) fn getattr(&self, ino: Ino, fh: Option<Fh>) -> FsResult<Attr> {
        let node = self.node(ino)?;
        let mut attr = self.attr(&node)?;
        attr.ino = ino;
        // An open handle shows what it reads: the content of the moment it was opened.
        if let Some(fh) = fh {
            match self.handles().get(fh) {
                Ok(Handle::Text(text)) => attr.size = text.len() as u64,
                Ok(Handle::Verb(verb)) => attr.size = super::verb::size(&verb),
                Ok(Handle::Stage { stage, write: true }) => attr.size = stage.private_size(),
                _ => {}
            }
        }
        Ok(attr)
    }

    pub(super) fn attr(&self, node: &Node) -> FsResult<Attr> {
        match node {
            Node::Dir(path) => self.dir_attr(node, path, None),
            Node::Partition { table, dir } => {
                let (_, snapshot) = self.table(table)?;
                if !snapshot.has_dir(dir) && !self.overlay().has_dir(&Site::table(table), dir) {
                    return Err(super::FsError::NotFound);
                }
                self.dir_attr(node, table, Some(snapshot.timestamp()))
            }
            Node::Data {
                table,
                handle,
                file,
            } => self.data_attr(node, table, handle, file),
            Node::Staged(stage) => {
                let size = stage.size();
                let (modified, phase) = {
                    let state = stage.state();
                    (state.modified, state.phase.clone())
                };
                let mtime_ms = match phase {
                    Phase::Committed(file) => file.add.modification_time,
                    Phase::Open | Phase::Scattered(_) | Phase::Gone => modified,
                };
                let backing = Backing {
                    size,
                    mode: 0o644,
                    uid: stage.uid,
                    gid: stage.gid,
                    mtime_ms,
                };
                Ok(self.file_attr(node, &backing, Duration::ZERO))
            }
            Node::Foreign(path) => {
                let meta = self.stat(path)?;
                let mut backing = Backing::of(&meta);
                backing.mode &= 0o555;
                Ok(self.file_attr(node, &backing, self.settings.refresh))
            }
            Node::Control { owner, entry } => self.control_attr(node, owner, entry),
            Node::Past { table, at, entry } => self.past_attr(node, table, at, entry),
            Node::Tx { tx, entry } => self.tx_attr(node, tx, entry),
        }
    }

    pub(super) fn data_attr(
        &self,
        node: &Node,
        table: &Path,
        handle: &Table,
        file: &LiveFile,
    ) -> FsResult<Attr> {
        let DataPath::Inside(path) = &file.path else {
            // Never opened; what the log says is all there is.
            let size = u64::try_from(file.add.size).unwrap_or(0);
            let mut attr = self.dir_attr(node, table, Some(file.add.modification_time))?;
            (attr.kind, attr.size, attr.mode, attr.nlink) = (FileKind::File, size, 0o444, 1);
            return Ok(attr);
        };
        let found = handle.dir().metadata(Path::new(path));
        let mut backing = match &found {
            Ok(meta) => Backing::of(meta),
            // Vacuumed or broken: listed as the log has it, refused when it is opened.
            Err(_) => Backing::of(&self.stat(table)?),
        };
        if found.is_err() {
            backing.mode &= 0o666;
            backing.size = u64::try_from(file.add.size).unwrap_or(0);
        }
        backing.mtime_ms = file.add.modification_time;
        Ok(self.file_attr(node, &backing, LONG))
    }

    fn past_attr(&self, node: &Node, table: &Path, at: &At, entry: &PastEntry) -> FsResult<Attr> {
        let (handle, mtime_ms) = self.past_time(table, at)?;
        let mut attr = match entry {
            PastEntry::Data(file) => self.data_attr(node, table, &handle, file)?,
            entry if entry.is_dir() => self.dir_attr(node, table, Some(mtime_ms))?,
            PastEntry::Dir(_) | PastEntry::Control(_) => {
                let content = self.past_content(table, at, entry)?;
                let mut backing = Backing::of(&self.stat(table)?);
                (backing.size, backing.mtime_ms) = (content.text.len() as u64, mtime_ms);
                backing.mode &= 0o666;
                self.file_attr(node, &backing, Duration::ZERO)
            }
        };
        attr.mode &= 0o555;
        Ok(attr)
    }

    fn control_attr(&self, node: &Node, owner: &Path, entry: &Control) -> FsResult<Attr> {
        if let Control::Raw(path) = entry
            && !path.as_os_str().is_empty()
        {
            let (table, _) = self.table(owner)?;
            let meta = table.dir().metadata(path).map_err(|e| super::domain(&e))?;
            let mut backing = Backing::of(&meta);
            backing.mode &= 0o555;
            let mut attr = self.file_attr(node, &backing, self.settings.refresh);
            if meta.is_dir() {
                (attr.kind, attr.nlink) = (FileKind::Dir, 2);
            }
            return Ok(attr);
        }
        let meta = self.stat(owner)?;
        let mut backing = Backing::of(&meta);
        if let Control::RejectedFile(name) = entry {
            let file = self.rejected_file(owner, name)?;
            let meta = file
                .metadata()
                .map_err(|e| super::stage::io_error("stat", &e))?;
            let rejected = Backing::of(&meta);
            (backing.size, backing.mtime_ms) = (rejected.size, rejected.mtime_ms);
            backing.mode &= 0o666;
            return Ok(self.file_attr(node, &backing, self.settings.refresh));
        }
        if entry.is_dir() != Some(false) {
            let mut attr = self.file_attr(node, &backing, self.settings.refresh);
            (attr.kind, attr.nlink) = (FileKind::Dir, 2);
            if !matches!(entry, Control::Mode(_) | Control::Rejected | Control::Tx) {
                attr.mode &= 0o555;
            }
            return Ok(attr);
        }
        let content = self.content(owner, entry)?;
        backing.size = content.text.len() as u64;
        backing.mtime_ms = content.mtime_ms;
        // Whoever may write the table's directory may write its verbs.
        backing.mode &= if matches!(entry, Control::Verb(_)) {
            0o666
        } else {
            0o444
        };
        Ok(self.file_attr(node, &backing, Duration::ZERO))
    }

    fn stat(&self, path: &Path) -> FsResult<std::fs::Metadata> {
        self.catalog.root().metadata(path).map_err(|e| {
            if e.is_absent() {
                super::FsError::NotFound
            } else {
                super::domain(&e)
            }
        })
    }

    pub(super) fn dir_attr(
        &self,
        node: &Node,
        path: &Path,
        mtime_ms: Option<Millis>,
    ) -> FsResult<Attr> {
        let mut backing = Backing::of(&self.stat(path)?);
        backing.size = 4096;
        // Every commit shows in the log's own folder; looking at it replays nothing.
        let log = self
            .catalog
            .root()
            .metadata(&path.join(crate::log::LOG_DIR));
        match (mtime_ms, log) {
            (Some(mtime_ms), _) => backing.mtime_ms = mtime_ms,
            (None, Ok(log)) => backing.mtime_ms = Backing::of(&log).mtime_ms,
            (None, Err(_)) => {}
        }
        let mut attr = self.file_attr(node, &backing, self.settings.refresh);
        (attr.kind, attr.nlink) = (FileKind::Dir, 2);
        attr.mode = self.mode(backing.mode, true);
        Ok(attr)
    }

    fn file_attr(&self, node: &Node, backing: &Backing, ttl: Duration) -> Attr {
        Attr {
            ino: node.number(),
            kind: FileKind::File,
            size: backing.size,
            mode: self.mode(backing.mode, false),
            uid: self.settings.uid.unwrap_or(backing.uid),
            gid: self.settings.gid.unwrap_or(backing.gid),
            mtime_ms: backing.mtime_ms,
            ctime_ms: backing.mtime_ms,
            nlink: 1,
            ttl,
        }
    }

    fn mode(&self, backing: u16, is_dir: bool) -> u16 {
        let chosen = if is_dir {
            self.settings.dir_mode
        } else {
            self.settings.file_mode
        };
        chosen.unwrap_or(backing) & 0o7777 & !self.settings.umask.unwrap_or(0)
    }

    /// Modes, owners and times are taken and not kept: tools set them on what they have written, and a data file
    /// never changes. Sizes are kept for staged files.
    pub(super) fn setattr(&self, ino: Ino, fh: Option<Fh>, change: SetAttr) -> FsResult<Attr> {
        let node = self.node(ino)?;
        if let Node::Past { .. } = node {
            return Err(read_only(&node.subject()));
        }
        if let Some(size) = change.size {
            let staged = match fh.map(|fh| self.handles().get(fh)).transpose()? {
                Some(Handle::Stage { stage, write: true }) => Some(stage),
                _ => match &node {
                    Node::Staged(stage) => Some(std::sync::Arc::clone(stage)),
                    _ => None,
                },
            };
            match (staged, &node) {
                (Some(stage), _) => {
                    let _settling = stage.settle();
                    stage.truncate(size, &self.env, &self.fresh)?;
                }
                // Shells truncate before they write; an empty body never runs anything.
                (
                    None,
                    Node::Control {
                        entry: Control::Verb(_),
                        ..
                    }
                    | Node::Tx {
                        entry: TxEntry::Control(TxControl::Verb(_) | TxControl::Commit),
                        ..
                    },
                ) => {}
                (None, _) if self.attr(&node)?.size == size => {}
                (
                    None,
                    Node::Data { .. }
                    | Node::Tx {
                        entry: TxEntry::Data(_),
                        ..
                    },
                ) => {
                    return Err(not_permitted(
                        "a committed data file can't be truncated",
                        "remove it with rm, or write the whole file anew with cp",
                    ));
                }
                (None, _) => {
                    return Err(not_permitted("this file is read-only", "see .delta/README"));
                }
            }
        }
        self.getattr(ino, fh)
    }

    pub(super) fn statfs(&self) -> FsResult<StatFs> {
        let s = self
            .catalog
            .root()
            .statvfs()
            .map_err(|e| super::domain(&e))?;
        Ok(StatFs {
            block_size: u32::try_from(s.f_frsize).unwrap_or(4096),
            blocks: s.f_blocks,
            free: s.f_bfree,
            available: s.f_bavail,
            files: s.f_files,
            files_free: s.f_ffree,
            name_max: 255,
        })
    }
}
