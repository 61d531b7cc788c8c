//! Earlier versions: `.delta/versions/N/` and `.delta/at/TIME/`. Nothing below them ever changes.
//!
//! # Why no snapshots in nodes
//! The kernel remembers names for as long as it likes: a node keeps the number of its version only, and the table the
//! few snapshots that are in use.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use super::node::Node;
use super::render::Content;
use super::{Core, FsError, FsResult, OpenFlags, Opened, domain};
use crate::env::Millis;
use crate::error::Kind;
use crate::namespace::{CONTROL_DIR, Control, TIME_FORMS, parse_time, parse_version};
use crate::table::{DataPath, LiveFile, Snapshot, Table, TableError};

/// Which version, and how it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct At {
    pub(super) version: u64,
    /// Of the log: when it is another one, the version is another one, too.
    incarnation: u64,
    /// The name in `at/`. A directory has one parent only, so each way to a version has inodes of its own.
    pub(super) asked: Option<Box<str>>,
}

/// What of it.
#[derive(Debug, Clone)]
pub(super) enum PastEntry {
    /// The root (empty) or a directory of partition values: `a=1/b=2/`.
    Dir(String),
    Data(Arc<LiveFile>),
    /// `.delta` or one of [`Control::of_a_version`].
    Control(Control),
}

impl At {
    /// What tells nodes of one version, asked for in one way, from all others.
    pub(super) fn key(&self) -> [Vec<u8>; 3] {
        [
            self.version.to_string().into_bytes(),
            format!("{:x}", self.incarnation).into_bytes(),
            self.asked.as_deref().unwrap_or_default().into(),
        ]
    }

    /// Its path below the table, for people.
    pub(super) fn path(&self) -> String {
        match &self.asked {
            Some(asked) => format!("{CONTROL_DIR}/at/{asked}"),
            None => format!("{CONTROL_DIR}/versions/{}", self.version),
        }
    }
}

impl PastEntry {
    /// A letter for its kind, and what it is.
    pub(super) fn key(&self) -> (u8, Vec<u8>) {
        match self {
            PastEntry::Dir(dir) => (b'd', dir.clone().into_bytes()),
            PastEntry::Data(file) => {
                let dv = file.add.dv_id().unwrap_or_default();
                (b'f', [file.path.key(), &dv].join("\0").into_bytes())
            }
            PastEntry::Control(entry) => (b'c', entry.key()),
        }
    }

    /// Its path below the version's root, for people.
    pub(super) fn path(&self) -> String {
        match self {
            PastEntry::Dir(dir) => dir.trim_end_matches('/').to_owned(),
            PastEntry::Data(file) => file.visible.to_string(),
            PastEntry::Control(entry) => format!("{CONTROL_DIR}/{}", entry.path()),
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self, PastEntry::Dir(_) | PastEntry::Control(Control::Dir))
    }
}

/// Fails in a directory in which nothing ever changes, whoever asks.
pub(super) fn changeable(parent: &Node) -> FsResult<()> {
    match parent {
        Node::Past { .. }
        | Node::Control {
            entry: Control::Versions | Control::At,
            ..
        } => Err(read_only(&parent.subject())),
        _ => Ok(()),
    }
}

pub(super) fn read_only(subject: &str) -> FsError {
    FsError::Domain {
        kind: Kind::ReadOnly,
        message: format!("{subject} is read-only: earlier versions never change"),
        hint: Some(
            "copy what you need out of it; a file copied into the table's directory appends its rows"
                .to_owned(),
        ),
    }
}

impl Core {
    /// The root of the version with that name in `versions/`.
    pub(super) fn version_named(&self, owner: &Path, name: &OsStr) -> FsResult<Node> {
        let version = name.to_str().and_then(parse_version);
        let version = version.ok_or(FsError::NotFound)?;
        let (table, _) = self.table(owner)?;
        match table.check_version(version) {
            Ok(()) => Ok(root(owner, &table, version, None)),
            Err(TableError::NoSuchVersion(_)) => Err(FsError::NotFound),
            Err(e) => Err(domain(&e)),
        }
    }

    /// The root of the version that was the newest one at the time with that name in `at/`.
    pub(super) fn version_at(&self, owner: &Path, name: &OsStr) -> FsResult<Node> {
        let name = name.to_str().ok_or(FsError::NotFound)?;
        let Some(asked) = parse_time(name) else {
            // Shells and file managers look for names of their own everywhere.
            if !name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(FsError::NotFound);
            }
            return Err(FsError::Domain {
                kind: Kind::Absent,
                message: format!("{name} is no time"),
                hint: Some(format!("write it as {TIME_FORMS}")),
            });
        };
        let (table, _) = self.table(owner)?;
        let version = table.version_at(asked).map_err(|e| domain(&e))?;
        Ok(root(owner, &table, version, Some(name)))
    }

    /// The roots of all versions that can be opened, by name, oldest first. None is opened.
    pub(super) fn version_roots(&self, owner: &Path) -> FsResult<Vec<(String, Node)>> {
        let (table, _) = self.table(owner)?;
        let versions = table.versions().map_err(|e| domain(&e))?;
        let incarnation = table.incarnation();
        let named = |version: u64| {
            let at = At {
                version,
                incarnation,
                asked: None,
            };
            (version.to_string(), at.root(owner))
        };
        Ok(versions.into_iter().map(named).collect())
    }

    /// The table of a node, unless its log is another one by now.
    fn past_table(&self, table: &Path, at: &At) -> FsResult<Arc<Table>> {
        let (handle, _) = self.table(table)?;
        if handle.incarnation() != at.incarnation {
            return Err(FsError::Stale);
        }
        Ok(handle)
    }

    pub(super) fn past(&self, table: &Path, at: &At) -> FsResult<(Arc<Table>, Arc<Snapshot>)> {
        let handle = self.past_table(table, at)?;
        let snapshot = handle.past(at.version).map_err(|e| domain(&e))?;
        Ok((handle, snapshot))
    }

    /// When the version was committed; the mount's start where nothing tells it.
    pub(super) fn past_time(&self, table: &Path, at: &At) -> FsResult<(Arc<Table>, Millis)> {
        let handle = self.past_table(table, at)?;
        let time = handle.version_time(at.version).map_err(|e| domain(&e))?;
        Ok((handle, time.unwrap_or(self.started)))
    }

    pub(super) fn child_of_past(
        &self,
        table: &Path,
        at: &At,
        entry: &PastEntry,
        name: &OsStr,
    ) -> FsResult<Node> {
        let node = |entry| Node::Past {
            table: table.to_owned(),
            at: at.clone(),
            entry,
        };
        let name = name.to_str().ok_or(FsError::NotFound)?;
        match entry {
            PastEntry::Dir(dir) => {
                if dir.is_empty() && name == CONTROL_DIR {
                    return Ok(node(PastEntry::Control(Control::Dir)));
                }
                let (_, snapshot) = self.past(table, at)?;
                let visible = format!("{dir}{name}");
                if let Some(file) = snapshot.named(&visible) {
                    return Ok(node(PastEntry::Data(file.clone())));
                }
                let below = format!("{visible}/");
                if snapshot.has_dir(&below) {
                    return Ok(node(PastEntry::Dir(below)));
                }
                Err(FsError::NotFound)
            }
            PastEntry::Control(Control::Dir) => {
                let mut known = Control::of_a_version().into_iter();
                let found = known.find(|(known, _)| *known == name);
                let (_, entry) = found.ok_or(FsError::NotFound)?;
                Ok(node(PastEntry::Control(entry)))
            }
            PastEntry::Data(_) | PastEntry::Control(_) => Err(FsError::NotDir),
        }
    }

    /// What a directory of a version holds, by name.
    pub(super) fn past_entries(
        &self,
        table: &Path,
        at: &At,
        entry: &PastEntry,
    ) -> FsResult<Vec<(String, Node)>> {
        let node = |entry| Node::Past {
            table: table.to_owned(),
            at: at.clone(),
            entry,
        };
        let mut found = Vec::new();
        match entry {
            PastEntry::Dir(dir) => {
                let (_, snapshot) = self.past(table, at)?;
                snapshot.check_read().map_err(|e| domain(&e))?;
                if dir.is_empty() && self.settings.list_control {
                    let control = PastEntry::Control(Control::Dir);
                    found.push((CONTROL_DIR.to_owned(), node(control)));
                }
                for (name, file) in snapshot.entries(dir) {
                    if name.len() > 255 {
                        return Err(FsError::NameTooLong);
                    }
                    let entry = match file {
                        Some(file) => PastEntry::Data(file),
                        None => PastEntry::Dir(format!("{dir}{name}/")),
                    };
                    found.push((name, node(entry)));
                }
            }
            PastEntry::Control(Control::Dir) => {
                for (name, entry) in Control::of_a_version() {
                    found.push((name.to_owned(), node(PastEntry::Control(entry))));
                }
            }
            PastEntry::Data(_) | PastEntry::Control(_) => return Err(FsError::NotDir),
        }
        Ok(found)
    }

    pub(super) fn open_past(
        &self,
        table: &Path,
        at: &At,
        entry: &PastEntry,
        flags: OpenFlags,
    ) -> FsResult<Opened> {
        if flags.write {
            return Err(read_only(&format!("{}/{}", at.path(), entry.path())));
        }
        match entry {
            entry if entry.is_dir() => Err(FsError::IsDir),
            PastEntry::Data(file) => {
                let (handle, snapshot) = self.past(table, at)?;
                if let DataPath::Inside(path) = &file.path
                    && let Err(e) = handle.dir().metadata(Path::new(path))
                    && e.is_absent()
                {
                    return Err(vacuumed(at.version, path));
                }
                self.open_data(&snapshot, &handle, file)
            }
            PastEntry::Dir(_) | PastEntry::Control(_) => {
                let content = self.past_content(table, at, entry)?;
                Ok(self.open_text(content.text))
            }
        }
    }

    /// The content of a control file of a version.
    pub(super) fn past_content(
        &self,
        table: &Path,
        at: &At,
        entry: &PastEntry,
    ) -> FsResult<Content> {
        let PastEntry::Control(control) = entry else {
            return Err(FsError::IsDir);
        };
        let (_, mtime_ms) = self.past_time(table, at)?;
        let (handle, snapshot) = self.past(table, at)?;
        let text = self.text_of(table, &handle, &snapshot, control)?;
        Ok(Content {
            text: text.into(),
            mtime_ms,
        })
    }
}

impl At {
    fn root(self, table: &Path) -> Node {
        Node::Past {
            table: table.to_owned(),
            at: self,
            entry: PastEntry::Dir(String::new()),
        }
    }
}

fn root(owner: &Path, table: &Table, version: u64, asked: Option<&str>) -> Node {
    let at = At {
        version,
        incarnation: table.incarnation(),
        asked: asked.map(Into::into),
    };
    at.root(owner)
}

/// Not ENOENT, though it is absent: tools that copy or read a directory pass over files that have vanished, and the
/// rest would look like the whole version.
fn vacuumed(version: u64, path: &str) -> FsError {
    FsError::Domain {
        kind: Kind::Unavailable,
        message: format!("the data file {path} of version {version} is missing"),
        hint: Some(
            "VACUUM removes the data files of earlier versions once they are older than delta.deletedFileRetentionDuration; \
             a later version or a backup has the rows that are left"
                .to_owned(),
        ),
    }
}
