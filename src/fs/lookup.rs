//! From a parent and a name to a node.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::node::Node;
use super::past::{PastEntry, changeable};
use super::site::{Place, Site};
use super::stage::Phase;
use super::transaction::TxEntry;
use super::{Core, Entry, FsError, FsResult, Ino, domain};
use crate::namespace::{CONTROL_DIR, Control, PRIVATE_DIR, TxControl, is_reserved};
use crate::schema::partition;
use crate::store::EntryKind;
use crate::table::{self, Snapshot, Table};

/// How long the kernel may believe names and attributes that only a commit changes. Commits push invalidations.
pub(super) const LONG: Duration = Duration::from_secs(300);

/// What a directory node is at this moment.
#[derive(Debug, Clone)]
pub(super) enum DirKind {
    Plain,
    Table(Arc<Table>, Arc<Snapshot>),
}

impl Core {
    pub(super) fn lookup(&self, parent: Ino, name: &OsStr, pid: u32) -> FsResult<Entry> {
        let parent = self.node(parent)?;
        if let Ok(place) = self.place_of(&parent)
            && let Some(stage) = self.overlay().kept(&place, name, pid)
        {
            return self.entry(Node::Staged(stage));
        }
        let node = self.child(&parent, name)?;
        self.entry(node)
    }

    /// Counts a lookup of the node.
    pub(super) fn entry(&self, node: Node) -> FsResult<Entry> {
        // Attributes first: a failure must not leave a lookup that nobody takes back.
        let mut attr = self.attr(&node)?;
        let ttl = self.name_ttl(&node);
        let pinned = match &node {
            Node::Data { handle, file, .. } => Some((Arc::clone(handle), Arc::clone(file))),
            _ => None,
        };
        let (ino, replaced) = self.inodes().look_up(node);
        drop(replaced);
        attr.ino = ino;
        // A commit between the look at the table and this line has told the kernel of a name that it did not have
        // yet: it must not keep it now.
        let still = pinned.is_none_or(|(handle, file)| {
            let now = handle.snapshot();
            let live = now.named(&file.visible);
            live.is_some_and(|l| l.path == file.path && l.add.dv_id() == file.add.dv_id())
        });
        let ttl = if still { ttl } else { Duration::ZERO };
        Ok(Entry { attr, ttl })
    }

    fn name_ttl(&self, node: &Node) -> Duration {
        match node {
            // What is physical changes behind our back.
            Node::Control {
                entry: Control::Raw(_),
                ..
            } => self.settings.refresh,
            Node::Data { .. } | Node::Control { .. } => LONG,
            Node::Dir(_) | Node::Partition { .. } | Node::Foreign(_) => self.settings.refresh,
            Node::Past { table, at, entry } => match entry {
                PastEntry::Dir(dir) if dir.is_empty() => {
                    // The next commit may be an answer to the same question.
                    let newest = || self.catalog.table(table).map(|t| t.snapshot().version());
                    let open = at.asked.is_some() && newest().is_ok_and(|n| n == at.version);
                    if open {
                        Duration::ZERO
                    } else {
                        self.settings.refresh
                    }
                }
                PastEntry::Dir(_) | PastEntry::Data(_) | PastEntry::Control(_) => LONG,
            },
            // A transaction ends whenever its user likes.
            Node::Tx { .. } => Duration::ZERO,
            Node::Staged(stage) if stage.place.site.tx.is_some() => Duration::ZERO,
            Node::Staged(stage) => match stage.state().phase {
                Phase::Committed(_) => LONG,
                // The name may stand for another file the moment that this one is done.
                Phase::Open | Phase::Scattered(_) | Phase::Gone => Duration::ZERO,
            },
        }
    }

    /// The node under `name`.
    pub(super) fn child(&self, parent: &Node, name: &OsStr) -> FsResult<Node> {
        if name.len() > 255 {
            return Err(FsError::NameTooLong);
        }
        match parent {
            Node::Dir(path) => self.child_of_dir(path, name),
            Node::Partition { table, dir } => {
                let (handle, snapshot) = self.table(table)?;
                let place = Site::table(table).at(dir);
                self.child_of_table(&place, &handle, &snapshot, name)
            }
            Node::Tx { tx, entry } => self.child_of_tx(tx, entry, name),
            Node::Control { owner, entry } => self.child_of_control(owner, entry, name),
            Node::Past { table, at, entry } => self.child_of_past(table, at, entry, name),
            Node::Data { .. } | Node::Staged(_) | Node::Foreign(_) => Err(FsError::NotDir),
        }
    }

    fn child_of_dir(&self, path: &Path, name: &OsStr) -> FsResult<Node> {
        if name == CONTROL_DIR {
            // Also where no table is yet, or none that can be read: what was refused there is told there.
            return Ok(Node::Control {
                owner: path.to_owned(),
                entry: Control::Dir,
            });
        }
        if is_reserved(name) {
            return Err(FsError::NotFound);
        }
        match self.dir_kind(path)? {
            DirKind::Table(handle, snapshot) => {
                let place = Site::table(path).at("");
                self.child_of_table(&place, &handle, &snapshot, name)
            }
            DirKind::Plain => {
                let place = Site::table(path).at("");
                if let Some(stage) = self.staged(&place, name) {
                    return Ok(stage);
                }
                let child = path.join(name);
                match self.catalog.place(&child).map_err(|e| self.absent(&e))? {
                    table::Place::Plain | table::Place::Table => Ok(Node::Dir(child)),
                    table::Place::File => Ok(Node::Foreign(child)),
                }
            }
        }
    }

    /// A link that leads out of the source is shown to nobody.
    fn absent(&self, error: &table::TableError) -> FsError {
        match error {
            table::TableError::Store(crate::store::StoreError::Outside { .. }) => FsError::NotFound,
            table::TableError::Store(e) if e.is_absent() => FsError::NotFound,
            other => domain(other),
        }
    }

    pub(super) fn is_table(&self, path: &Path) -> FsResult<bool> {
        let place = self.catalog.place(path).map_err(|e| self.absent(&e))?;
        Ok(matches!(place, table::Place::Table))
    }

    pub(super) fn dir_kind(&self, path: &Path) -> FsResult<DirKind> {
        match self.catalog.place(path).map_err(|e| self.absent(&e))? {
            table::Place::Plain => Ok(DirKind::Plain),
            table::Place::Table => {
                let (table, snapshot) = self.table(path)?;
                Ok(DirKind::Table(table, snapshot))
            }
            table::Place::File => Err(FsError::NotDir),
        }
    }

    /// What a site shows; `None` where no table is yet.
    pub(super) fn seen(&self, site: &Site) -> FsResult<Option<(Arc<Table>, Arc<Snapshot>)>> {
        match &site.tx {
            Some(tx) => self.view(tx).map(Some),
            None => match self.dir_kind(&site.table)? {
                DirKind::Table(handle, snapshot) => Ok(Some((handle, snapshot))),
                DirKind::Plain => Ok(None),
            },
        }
    }

    pub(super) fn staged(&self, place: &Place, name: &OsStr) -> Option<Node> {
        let now = self.env.now();
        self.overlay().get(place, name, now).map(Node::Staged)
    }

    /// The node under a name in a directory of a table, or of a table as a transaction sees it.
    pub(super) fn child_of_table(
        &self,
        place: &Place,
        handle: &Arc<Table>,
        snapshot: &Snapshot,
        name: &OsStr,
    ) -> FsResult<Node> {
        let staged = self.staged(place, name);
        // What is live under the name comes before the shadow of a file whose rows went elsewhere.
        let shadow = matches!(&staged, Some(Node::Staged(s)) if matches!(s.state().phase, Phase::Scattered(_)));
        if let Some(stage) = staged.clone().filter(|_| !shadow) {
            return Ok(stage);
        }
        let Some(name) = name.to_str() else {
            return staged.ok_or(FsError::NotFound);
        };
        let visible = format!("{}{name}", place.dir);
        if let Some(file) = snapshot.named(&visible) {
            return Ok(place.site.data(handle, file));
        }
        if let Some(stage) = staged {
            return Ok(stage);
        }
        let below = format!("{visible}/");
        if snapshot.has_dir(&below) || self.overlay().has_dir(&place.site, &below) {
            return Ok(place.site.folder(&below));
        }
        Err(FsError::NotFound)
    }

    fn child_of_control(&self, owner: &Path, entry: &Control, name: &OsStr) -> FsResult<Node> {
        let node = |entry| {
            Ok(Node::Control {
                owner: owner.to_owned(),
                entry,
            })
        };
        match entry {
            Control::Rejected => {
                let name = name.to_str().ok_or(FsError::NotFound)?;
                if self.rejected_file(owner, name).is_ok() {
                    return node(Control::RejectedFile(name.to_owned()));
                }
                Err(FsError::NotFound)
            }
            Control::Versions => self.version_named(owner, name),
            Control::At => self.version_at(owner, name),
            Control::Tx => self.tx_named(owner, name),
            Control::Raw(path) => {
                let child = path.join(name);
                let (table, _) = self.table(owner)?;
                if child.starts_with(PRIVATE_DIR) || table::is_temporary(name) {
                    return Err(FsError::NotFound);
                }
                match table.dir().metadata(&child) {
                    Ok(_) => node(Control::Raw(child)),
                    Err(e) => Err(self.absent(&e.into())),
                }
            }
            Control::Mode(_) => {
                let place = Site::table(owner).appending();
                self.staged(&place, name).ok_or(FsError::NotFound)
            }
            _ => {
                let is_table = self.is_table(owner)?;
                let name = name.to_str().ok_or(FsError::NotFound)?;
                match entry.child(name, is_table) {
                    Some(child) => node(child),
                    None if entry.is_dir() == Some(false) => Err(FsError::NotDir),
                    None => Err(FsError::NotFound),
                }
            }
        }
    }

    /// Where a file that is created in `parent` goes; an error where nothing can be dropped.
    pub(super) fn place_of(&self, parent: &Node) -> FsResult<Place> {
        changeable(parent)?;
        match parent {
            Node::Dir(path) => Ok(Site::table(path).at("")),
            Node::Partition { table, dir } => Ok(Site::table(table).at(dir)),
            Node::Control {
                owner,
                entry: Control::Mode(_),
            } => Ok(Site::table(owner).appending()),
            Node::Tx { tx, entry } => match entry {
                TxEntry::Dir(dir) => Ok(Site::inside(tx).at(dir)),
                TxEntry::Control(TxControl::Mode(_)) => Ok(Site::inside(tx).appending()),
                TxEntry::Control(entry) if entry.is_dir() => Err(super::not_permitted(
                    "no file can be created in this control directory",
                    "data files go into the transaction's directory or into its in/append",
                )),
                TxEntry::Control(_) | TxEntry::Data(_) => Err(FsError::NotDir),
            },
            Node::Control { .. } => Err(super::not_permitted(
                "no file can be created in this control directory",
                "data files go into the table's directory or into .delta/in/append",
            )),
            Node::Data { .. } | Node::Staged(_) | Node::Foreign(_) | Node::Past { .. } => {
                Err(FsError::NotDir)
            }
        }
    }

    /// The entries of a plain directory that the mount shows.
    pub(super) fn plain_entries(&self, path: &Path) -> FsResult<Vec<(std::ffi::OsString, Node)>> {
        let mut entries = Vec::new();
        for (name, kind) in self.catalog.list_plain(path).map_err(|e| self.absent(&e))? {
            if is_reserved(&name) {
                continue;
            }
            let child = path.join(&name);
            let node = match kind {
                EntryKind::Dir => Node::Dir(child),
                EntryKind::File => Node::Foreign(child),
                // What a link is depends on where it leads.
                EntryKind::Symlink => match self.catalog.place(&child) {
                    Ok(table::Place::Plain | table::Place::Table) => Node::Dir(child),
                    Ok(table::Place::File) => Node::Foreign(child),
                    Err(_) => continue,
                },
                EntryKind::Other => continue,
            };
            entries.push((name, node));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    /// Whether `name` in the visible directory `dir` is the next partition directory: `(column, value)`.
    pub(super) fn next_partition(
        snapshot: &Snapshot,
        dir: &str,
        name: &str,
    ) -> Option<(String, Option<String>)> {
        let depth = dir.matches('/').count();
        let column = snapshot.partition_columns().get(depth)?;
        let (found, value) = partition::parse_dir(name)?;
        if value.as_ref().is_some_and(|v| v.contains('\0')) {
            return None;
        }
        // One spelling of a value, or two directories would be one partition.
        let field = snapshot.schema().field(column)?;
        partition::parse_value(value.as_deref(), &field.data_type).ok()?;
        (found == *column && Self::canonical_dir(snapshot, column, name).is_none())
            .then_some((found, value))
    }

    /// How the directory of a partition is spelled that `name` means in another way.
    pub(super) fn canonical_dir(snapshot: &Snapshot, column: &str, name: &str) -> Option<String> {
        let (found, value) = partition::parse_dir(name)?;
        let field = snapshot
            .schema()
            .field(column)
            .filter(|_| found == column)?;
        let typed = partition::parse_value(value.as_deref(), &field.data_type).ok()?;
        let canonical = partition::format_value(&typed).ok()?;
        let spelled = partition::dir_name(column, canonical.as_deref());
        (spelled != name).then_some(spelled)
    }

    /// The partition values that the visible directory `dir` stands for, by logical column.
    pub(super) fn fixed_values(dir: &str) -> std::collections::BTreeMap<String, Option<String>> {
        dir.split('/').filter_map(partition::parse_dir).collect()
    }
}

/// The path of a node's directory for messages.
pub(super) fn shown(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() {
        PathBuf::from("/")
    } else {
        path.to_owned()
    }
}
