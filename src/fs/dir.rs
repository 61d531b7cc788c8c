//! Listings: one snapshot a handle, so names neither repeat nor vanish while they are read.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use super::handle::Handle;
use super::lookup::DirKind;
use super::node::Node;
use super::site::{Place, Site};
use super::{Core, DirItem, Fh, FileKind, FsError, FsResult, Ino};
use crate::namespace::{CONTROL_DIR, Control, Dropped, PRIVATE_DIR, classify};
use crate::store::EntryKind;
use crate::table::{Snapshot, Table, is_temporary};

/// Names gathered for one listing.
pub(super) struct Listing {
    items: Vec<DirItem>,
}

impl Listing {
    pub(super) fn push(&mut self, name: impl Into<OsString>, ino: Ino, kind: FileKind) {
        let cookie = self.items.len() as u64 + 1;
        self.items.push(DirItem {
            ino,
            name: name.into(),
            kind,
            cookie,
        });
    }
}

impl Core {
    pub(super) fn opendir(&self, ino: Ino) -> FsResult<Fh> {
        let node = self.node(ino)?;
        let mut listing = Listing { items: Vec::new() };
        let mut pin = None;
        listing.push(".", ino, FileKind::Dir);
        listing.push("..", ino, FileKind::Dir);
        match &node {
            Node::Dir(path) => self.list_dir(path, &mut listing)?,
            Node::Partition { table, dir } => {
                let (handle, snapshot) = self.table(table)?;
                let place = Site::table(table).at(dir);
                self.list_table(&place, &handle, &snapshot, &mut listing)?;
            }
            Node::Tx { tx, entry } => self.list_tx(tx, entry, &mut listing)?,
            Node::Control { owner, entry } => self.list_control(owner, entry, &mut listing)?,
            Node::Past { table, at, entry } => {
                pin = Some(self.past(table, at)?.1);
                for (name, node) in self.past_entries(table, at, entry)? {
                    let is_dir = matches!(&node, Node::Past { entry, .. } if entry.is_dir());
                    let kind = if is_dir {
                        FileKind::Dir
                    } else {
                        FileKind::File
                    };
                    listing.push(name, node.number(), kind);
                }
            }
            Node::Data { .. } | Node::Staged(_) | Node::Foreign(_) => return Err(FsError::NotDir),
        }
        Ok(self.handles().open(Handle::Dir {
            items: listing.items.into(),
            _pin: pin,
        }))
    }

    pub(super) fn readdir(&self, fh: Fh, offset: u64, max: usize) -> FsResult<Vec<DirItem>> {
        let Handle::Dir { items, .. } = self.handles().get(fh)? else {
            return Err(FsError::BadHandle);
        };
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(items.len());
        Ok(items[from..].iter().take(max).cloned().collect())
    }

    fn list_dir(&self, path: &Path, listing: &mut Listing) -> FsResult<()> {
        let is_root = path.as_os_str().is_empty();
        let kind = self.dir_kind(path)?;
        let has_control = is_root || matches!(kind, DirKind::Table(..));
        if has_control && self.settings.list_control {
            let control = Node::Control {
                owner: path.to_owned(),
                entry: Control::Dir,
            };
            listing.push(CONTROL_DIR, control.number(), FileKind::Dir);
        }
        match kind {
            DirKind::Table(table, snapshot) => {
                self.list_table(&Site::table(path).at(""), &table, &snapshot, listing)
            }
            DirKind::Plain => {
                for (name, node) in self.plain_entries(path)? {
                    let kind = match node {
                        Node::Dir(_) => FileKind::Dir,
                        _ => FileKind::File,
                    };
                    listing.push(name, node.number(), kind);
                }
                self.list_staged(&Site::table(path).at(""), &|_| false, listing);
                Ok(())
            }
        }
    }

    pub(super) fn list_table(
        &self,
        place: &Place,
        handle: &Arc<Table>,
        snapshot: &Snapshot,
        listing: &mut Listing,
    ) -> FsResult<()> {
        let (site, dir) = (&place.site, place.dir.as_str());
        snapshot.check_read().map_err(|e| super::domain(&e))?;
        let mut dirs: Vec<String> = Vec::new();
        for (name, file) in snapshot.entries(dir) {
            if name.len() > 255 {
                return Err(FsError::NameTooLong);
            }
            match file {
                Some(file) => {
                    let node = site.data(handle, file);
                    listing.push(name, node.number(), FileKind::File);
                }
                None => dirs.push(name),
            }
        }
        // Directories that have no file yet.
        for below in self.overlay().dirs_below(site, dir) {
            if let Some((name, _)) = below.strip_prefix(dir).and_then(|r| r.split_once('/')) {
                dirs.push(name.to_owned());
            }
        }
        dirs.sort();
        dirs.dedup();
        for name in dirs {
            let node = site.folder(&format!("{dir}{name}/"));
            listing.push(name, node.number(), FileKind::Dir);
        }
        let taken = |name: &str| snapshot.named(&format!("{dir}{name}")).is_some();
        self.list_staged(place, &taken, listing);
        Ok(())
    }

    pub(super) fn list_staged(
        &self,
        place: &Place,
        taken: &dyn Fn(&str) -> bool,
        listing: &mut Listing,
    ) {
        let is_data = |name: &OsStr| classify(name, taken) == Dropped::Data;
        let staged = self.overlay().listed(place, is_data);
        for stage in staged {
            let name = stage.name();
            listing.push(name, Node::Staged(stage).number(), FileKind::File);
        }
    }

    fn list_control(&self, owner: &Path, entry: &Control, listing: &mut Listing) -> FsResult<()> {
        let number = |entry: Control| {
            Node::Control {
                owner: owner.to_owned(),
                entry,
            }
            .number()
        };
        match entry {
            Control::Rejected => {
                for name in self.rejected_names(owner)? {
                    listing.push(
                        name.clone(),
                        number(Control::RejectedFile(name)),
                        FileKind::File,
                    );
                }
            }
            Control::Raw(path) => {
                let (table, _) = self.table(owner)?;
                let mut entries = table.dir().list(path).map_err(|e| super::domain(&e))?;
                entries.sort_by(|a, b| a.name.cmp(&b.name));
                for raw in entries {
                    let kind = match raw.kind {
                        EntryKind::Dir => FileKind::Dir,
                        EntryKind::File => FileKind::File,
                        EntryKind::Symlink | EntryKind::Other => continue,
                    };
                    let private = path.as_os_str().is_empty() && raw.name == PRIVATE_DIR;
                    if private || is_temporary(&raw.name) {
                        continue;
                    }
                    let ino = number(Control::Raw(path.join(&raw.name)));
                    listing.push(raw.name, ino, kind);
                }
            }
            Control::Versions => {
                for (name, root) in self.version_roots(owner)? {
                    listing.push(name, root.number(), FileKind::Dir);
                }
            }
            Control::Tx => {
                for (name, root) in self.tx_roots(owner) {
                    listing.push(name, root.number(), FileKind::Dir);
                }
            }
            // Every time is a name.
            Control::At => {}
            Control::Mode(_) => {
                self.list_staged(&Site::table(owner).appending(), &|_| false, listing);
            }
            _ => {
                let is_table = self.is_table(owner)?;
                for (name, child) in entry.children(is_table) {
                    let kind = match child.is_dir() {
                        Some(false) => FileKind::File,
                        Some(true) | None => FileKind::Dir,
                    };
                    listing.push(name, number(child), kind);
                }
            }
        }
        Ok(())
    }
}
