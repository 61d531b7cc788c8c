//! What the log on the disk says, version by version: replayed here once more, in the plainest way, and held against
//! the protocol and against what `table` makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::model::{Row, State};
use crate::deletion_vector::{DeletionVectorDescriptor, Location, RowSet, read_vector};
use crate::log::LOG_DIR;
use crate::store::Dir;
use crate::table::{Level, Snapshot, Table};

/// The property that says who changed the metadata last.
pub(crate) const MARK: &str = "deltafs.mark";

/// How names begin of which there is one live file at most.
pub(crate) const OWN: &str = "own";

/// The physical rows of data files, by path.
pub(crate) type Contents = BTreeMap<String, Vec<Row>>;

/// A live file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    vector: Option<DeletionVectorDescriptor>,
    name: Option<String>,
    base_row_id: Option<i64>,
    /// Those that are alive.
    pub(crate) rows: Vec<Row>,
}

/// One version.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) state: State,
    pub(crate) files: BTreeMap<String, Entry>,
    /// Its commitInfo.
    pub(crate) info: Value,
}

impl Version {
    /// The version that its transaction has read, as it says.
    pub(crate) fn read(&self) -> Option<u64> {
        self.info["readVersion"].as_u64()
    }
}

/// Replays the log in `table`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn observe(table: &Path, contents: &Contents) -> Result<Vec<Version>, String> {
    let mut log = Log {
        table,
        contents,
        vectors: BTreeMap::new(),
        ids: BTreeMap::new(),
    };
    let mut versions: Vec<Version> = Vec::new();
    for (version, path) in commits(table)?.into_iter().enumerate() {
        let text = std::fs::read_to_string(&path).map_err(|e| e.to_string())?;
        let next = log
            .next(versions.last(), &text)
            .map_err(|e| format!("version {version}: {e}"))?;
        versions.push(next);
    }
    Ok(versions)
}

/// The commit files in their order; there is no gap.
fn commits(table: &Path) -> Result<Vec<PathBuf>, String> {
    let log = table.join(LOG_DIR);
    let mut commits = BTreeMap::new();
    for entry in std::fs::read_dir(&log).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let number = name.strip_suffix(".json").filter(|n| n.len() == 20);
        if let Some(version) = number.and_then(|n| n.parse::<usize>().ok()) {
            commits.insert(version, log.join(name));
        }
    }
    let contiguous = commits.keys().copied().eq(0..commits.len());
    if !contiguous {
        return Err(format!("the log has the versions {:?}", commits.keys()));
    }
    Ok(commits.into_values().collect())
}

struct Log<'a> {
    table: &'a Path,
    contents: &'a Contents,
    vectors: BTreeMap<String, RowSet>,
    /// Row ids: which file has them from here on, and how many.
    ids: BTreeMap<i64, (String, i64)>,
}

impl Log<'_> {
    fn next(&mut self, before: Option<&Version>, text: &str) -> Result<Version, String> {
        let mut next = match before {
            Some(before) => before.clone(),
            None => Version {
                state: State {
                    rows: BTreeMap::new(),
                    mark: 0,
                    apps: BTreeMap::new(),
                    level: Level::WriteSerializable,
                },
                files: BTreeMap::new(),
                info: Value::Null,
            },
        };
        next.info = Value::Null;
        let actions = text.lines().map(serde_json::from_str::<Value>);
        let actions: Vec<Value> = actions
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())?;
        let of = |kind: &'static str| actions.iter().filter_map(move |a| a.get(kind));
        for metadata in of("metaData") {
            let property = |key: &str| metadata["configuration"][key].as_str();
            next.state.mark = property(MARK).map_or(0, |n| n.parse().unwrap());
            next.state.level = match property("delta.isolationLevel") {
                Some("Serializable") => Level::Serializable,
                _ => Level::WriteSerializable,
            };
        }
        for txn in of("txn") {
            let (app, version) = (
                txn["appId"].as_str().unwrap(),
                txn["version"].as_i64().unwrap(),
            );
            next.state.apps.insert(app.to_owned(), version);
        }
        // The order of the lines means nothing: a file may lose its old vector after it has got a new one.
        for remove in of("remove") {
            let path = remove["path"].as_str().unwrap();
            let vector = vector(remove)?;
            match next.files.remove(path) {
                Some(live) if live.vector == vector => {}
                Some(_) => {
                    return Err(format!(
                        "{path} is removed with a vector that it does not have"
                    ));
                }
                None => return Err(format!("{path} is removed and not live")),
            }
        }
        for add in of("add") {
            let path = add["path"].as_str().unwrap();
            let entry = self.entry(path, add)?;
            if let Some(live) = next.files.insert(path.to_owned(), entry.clone())
                && live.vector != entry.vector
            {
                return Err(format!("{path} is live twice"));
            }
        }
        next.info = of("commitInfo").next().cloned().unwrap_or_default();
        if let Some(before) = before {
            in_order(before, &next)?;
        }
        next.state.rows.clear();
        let mut names = BTreeSet::new();
        for (path, entry) in &next.files {
            for row in &entry.rows {
                if next.state.rows.insert(row.id, *row).is_some() {
                    return Err(format!("row {} is there twice, once in {path}", row.id));
                }
            }
            if let Some(name) = &entry.name
                && !names.insert(name)
            {
                return Err(format!("two live files are {name}"));
            }
        }
        Ok(next)
    }

    /// A live file of the log, checked against what lies on the disk.
    fn entry(&mut self, path: &str, add: &Value) -> Result<Entry, String> {
        if !self.table.join(path).is_file() {
            return Err(format!("{path} is live and not on the disk"));
        }
        let physical = self.contents.get(path);
        let physical = physical.ok_or_else(|| format!("nobody knows of {path}"))?;
        let stats: Value = serde_json::from_str(add["stats"].as_str().unwrap_or("{}")).unwrap();
        if stats["numRecords"]
            .as_u64()
            .is_some_and(|n| n != physical.len() as u64)
        {
            return Err(format!("{path} has {} rows, not {stats}", physical.len()));
        }
        let vector = vector(add)?;
        let dead = match &vector {
            Some(descriptor) => self.dead(path, descriptor, physical.len())?,
            None => RowSet::new(),
        };
        let base_row_id = add["baseRowId"].as_i64();
        if let Some(first) = base_row_id {
            self.number(path, first, i64::try_from(physical.len()).unwrap())?;
        }
        let rows = physical.iter().zip(0..).filter(|(_, i)| !dead.contains(*i));
        // Some names may be taken once only.
        let name = add["tags"][crate::table::NAME_TAG].as_str();
        let name = name.filter(|n| n.starts_with(OWN));
        Ok(Entry {
            vector,
            name: name.map(|name| format!("{}/{name}", add["partitionValues"])),
            base_row_id,
            rows: rows.map(|(row, _)| *row).collect(),
        })
    }

    fn dead(
        &mut self,
        path: &str,
        descriptor: &DeletionVectorDescriptor,
        physical: usize,
    ) -> Result<RowSet, String> {
        let id = format!("{path} {}", descriptor.unique_id());
        if let Some(known) = self.vectors.get(&id) {
            return Ok(known.clone());
        }
        let dir = Dir::open(self.table).unwrap();
        let open = |location: &Location| match location {
            Location::Relative { path, .. } => dir.open_file(Path::new(path)),
            other => panic!("{other:?} is nothing that we write"),
        };
        let dead = read_vector(descriptor, open, Some(physical as u64))
            .map_err(|e| format!("{path}: {e}"))?;
        self.vectors.insert(id, dead.clone());
        Ok(dead)
    }

    /// Row ids of a file: its own for good, and nobody else's.
    fn number(&mut self, path: &str, first: i64, rows: i64) -> Result<(), String> {
        match self.ids.get(&first) {
            Some((owner, _)) if owner == path => return Ok(()),
            Some((owner, _)) if rows > 0 => {
                return Err(format!(
                    "{path} and {owner} have the row ids from {first} on"
                ));
            }
            _ => {}
        }
        if let Some((other, _)) = self.ids.values().find(|(owner, _)| owner == path) {
            return Err(format!("{other} gets other row ids than it had"));
        }
        let overlaps = |(start, (_, many)): (&i64, &(String, i64))| {
            *start < first + rows && first < start + many
        };
        if self.ids.iter().any(overlaps) {
            return Err(format!(
                "{path} has row ids of another file from {first} on"
            ));
        }
        self.ids.insert(first, (path.to_owned(), rows));
        Ok(())
    }
}

fn vector(action: &Value) -> Result<Option<DeletionVectorDescriptor>, String> {
    match &action["deletionVector"] {
        Value::Null => Ok(None),
        found => serde_json::from_value(found.clone())
            .map(Some)
            .map_err(|e| e.to_string()),
    }
}

/// In-commit timestamps rise.
fn in_order(before: &Version, next: &Version) -> Result<(), String> {
    let stamp = |v: &Version| v.info["inCommitTimestamp"].as_i64();
    match (stamp(before), stamp(next)) {
        (Some(before), Some(next)) if before >= next => {
            Err(format!("the in-commit timestamp {next} follows {before}"))
        }
        (Some(_), None) => Err("the in-commit timestamp is missing".to_owned()),
        _ => Ok(()),
    }
}

/// Holds a snapshot against a version: the same files with the same vectors, the same metadata.
///
/// # Errors
/// Where they differ.
pub(crate) fn compare(snapshot: &Snapshot, versions: &[Version]) -> Result<(), String> {
    let number = snapshot.version();
    let version = usize::try_from(number).ok().and_then(|v| versions.get(v));
    let version = version.ok_or_else(|| format!("a snapshot is of version {number}"))?;
    let live: BTreeMap<String, Option<DeletionVectorDescriptor>> = snapshot
        .live_files()
        .map(|file| (file.add.path.clone(), file.add.deletion_vector.clone()))
        .collect();
    let expected = version.files.iter();
    let expected: BTreeMap<String, Option<DeletionVectorDescriptor>> = expected
        .map(|(path, entry)| (path.clone(), entry.vector.clone()))
        .collect();
    if live != expected {
        return Err(format!(
            "the snapshot of version {number} has {live:?}, not {expected:?}"
        ));
    }
    let mark = snapshot.metadata().configuration.get(MARK);
    if mark.map_or(0, |n| n.parse().unwrap()) != version.state.mark {
        return Err(format!(
            "the snapshot of version {number} has other metadata"
        ));
    }
    if snapshot.is_doubted() {
        return Err(format!("the snapshot of version {number} is doubted"));
    }
    Ok(())
}

/// Opens the table anew, at its newest version and at `some` others.
///
/// # Errors
/// What is wrong with one.
pub(crate) fn reopen(
    table: &Table,
    versions: &[Version],
    some: impl IntoIterator<Item = u64>,
) -> Result<(), String> {
    let open = || Table::open(Dir::open(table.dir().path()).unwrap(), table.env().clone());
    let fresh = open().map_err(|e| e.to_string())?;
    let newest = fresh.snapshot();
    if newest.version() + 1 != versions.len() as u64 {
        return Err(format!(
            "version {} opens as the newest one",
            newest.version()
        ));
    }
    compare(&newest, versions)?;
    for version in some {
        let at: Arc<Snapshot> = fresh.at(version).map_err(|e| e.to_string())?;
        compare(&at, versions)?;
    }
    Ok(())
}
