//! Whether a version that came first is in the way of a transaction (PROTOCOL.md F2, F3): one function a check, in
//! the order of F2. Pure: no I/O, no DataFusion. Where rows decide, the verdict names the files whose rows have to
//! be looked at; `rebase` looks, and asks [`changed_rows`] and [`new_rows`].

#![deny(
    clippy::wildcard_enum_match_arm,
    clippy::match_wildcard_for_single_variants,
    reason = "a new kind of action or read must be judged, not overlooked"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::txn::{Level, MOVES, Move, ReadSet, Reads, Staged};
use super::{DataPath, Snapshot};
use crate::deletion_vector::RowSet;
use crate::log::{Action, Add, CommitInfo, Metadata, Remove};

/// Why a transaction can't be committed any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub class: Class,
    /// The version that was in the way.
    pub version: u64,
    /// What made it, as its commitInfo says.
    pub operation: String,
    /// When, in milliseconds since the epoch.
    pub timestamp: i64,
    /// The first file that both are about, as the log has it.
    pub file: Option<String>,
    /// How many of its rows, where rows were compared.
    pub rows: Option<u64>,
    pub reason: Reason,
}

/// The exception classes of Delta's documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    ProtocolChanged,
    MetadataChanged,
    ConcurrentTransaction,
    ConcurrentAppend,
    ConcurrentDeleteRead,
    ConcurrentDeleteDelete,
}

impl Class {
    /// The name in Delta's documents.
    pub fn name(self) -> &'static str {
        match self {
            Class::ProtocolChanged => "ProtocolChangedException",
            Class::MetadataChanged => "MetadataChangedException",
            Class::ConcurrentTransaction => "ConcurrentTransactionException",
            Class::ConcurrentAppend => "ConcurrentAppendException",
            Class::ConcurrentDeleteRead => "ConcurrentDeleteReadException",
            Class::ConcurrentDeleteDelete => "ConcurrentDeleteDeleteException",
        }
    }
}

impl Conflict {
    /// What a program can read of it.
    pub fn facts(&self) -> Vec<(&'static str, Value)> {
        let winner = serde_json::json!({
            "version": self.version,
            "operation": self.operation,
            "timestamp": super::error::utc(self.timestamp),
        });
        let reason = match &self.reason {
            Reason::Table | Reason::OtherTable | Reason::Named(_) => None,
            Reason::Files => Some("FILE_LEVEL_CHANGES"),
            Reason::Rows | Reason::Revived | Reason::Unasked(_) => Some("ROW_LEVEL_CHANGES"),
            Reason::Time => Some("ALLOTTED_TIME_EXCEEDED"),
        };
        let mut facts = vec![("exception", self.class.name().into()), ("winner", winner)];
        facts.extend(reason.map(|reason| ("reason", reason.into())));
        facts.extend(self.file.clone().map(|file| ("file", file.into())));
        facts.extend(self.rows.map(|rows| ("rows", rows.into())));
        facts
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        let again = "nothing was committed; run it again on the newest version";
        match (self.class, &self.reason) {
            (Class::ProtocolChanged | Class::MetadataChanged, _) => {
                format!("{again}, and check that it still fits the schema and the properties")
            }
            (Class::ConcurrentTransaction, _) => format!(
                "nothing was committed; see in .delta/history whether version {} has already done it",
                self.version
            ),
            (_, Reason::Files) => format!(
                "{again}; a condition on the partition columns, or an unpartitioned table with deletion vectors, keeps \
                 statements apart that change different rows"
            ),
            (
                _,
                Reason::Table
                | Reason::OtherTable
                | Reason::Named(_)
                | Reason::Rows
                | Reason::Revived
                | Reason::Unasked(_)
                | Reason::Time,
            ) => format!("{again} (a line `-- retries: 3` before the statement does so by itself)"),
        }
    }
}

/// What exactly was in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Protocol or metadata, whatever was changed in them.
    Table,
    /// The table was made anew.
    OtherTable,
    /// An application id or a domain.
    Named(String),
    /// Whole files were compared.
    Files,
    /// Rows were compared.
    Rows,
    /// Rows that had been deleted were brought back.
    Revived,
    /// The condition could not be asked about the rows.
    Unasked(String),
    /// Comparing rows took too long.
    Time,
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Conflict {
            version, operation, ..
        } = self;
        write!(f, "{}: version {version} ({operation}, ", self.class.name())?;
        write!(f, "{}) ", super::error::utc(self.timestamp))?;
        let file = self.file.as_deref().unwrap_or("a file");
        let what = match (&self.reason, self.class) {
            (Reason::OtherTable, _) => "made the table anew".to_owned(),
            (Reason::Table, Class::ProtocolChanged) => {
                "changed the protocol of the table".to_owned()
            }
            (Reason::Table, _) => "changed the schema or the properties of the table".to_owned(),
            (Reason::Named(name), _) => format!("committed for {name}, too"),
            (Reason::Revived, _) => format!("brought back rows of {file}"),
            (Reason::Unasked(why), _) => {
                format!("wrote rows to {file} for which the condition can't be asked: {why}")
            }
            (Reason::Files | Reason::Rows | Reason::Time, Class::ConcurrentAppend) => {
                match self.rows {
                    Some(rows) => {
                        format!("wrote {} to {file} that the condition selects", count(rows))
                    }
                    None => format!("added {file} where this transaction has read"),
                }
            }
            (Reason::Files | Reason::Rows | Reason::Time, Class::ConcurrentDeleteDelete) => {
                format!("removed {file}, which this transaction removes as well")
            }
            (Reason::Files | Reason::Rows | Reason::Time, _) => match self.rows {
                Some(rows) => format!(
                    "changed {} of {file} that this transaction changes as well",
                    count(rows)
                ),
                None => format!("removed or changed {file}, which this transaction has read"),
            },
        };
        f.write_str(&what)?;
        if self.reason == Reason::Time {
            f.write_str(" (comparing rows took too long)")?;
        }
        Ok(())
    }
}

fn count(rows: u64) -> String {
    match rows {
        1 => "1 row".to_owned(),
        rows => format!("{rows} rows"),
    }
}

/// A version that came first.
#[derive(Debug)]
pub(super) struct Winner<'a> {
    pub(super) version: u64,
    pub(super) timestamp: i64,
    pub(super) info: Option<&'a CommitInfo>,
    pub(super) actions: &'a [Action],
    adds: BTreeMap<String, &'a Add>,
    removes: BTreeMap<String, &'a Remove>,
}

impl<'a> Winner<'a> {
    pub(super) fn new(table: &Path, version: u64, timestamp: i64, actions: &'a [Action]) -> Self {
        let key = |path: &str| DataPath::parse(path, table).key().to_owned();
        let mut winner = Winner {
            version,
            timestamp,
            info: None,
            actions,
            adds: BTreeMap::new(),
            removes: BTreeMap::new(),
        };
        for action in actions {
            match action {
                Action::Add(add) => {
                    winner.adds.insert(key(&add.path), add);
                }
                Action::Remove(remove) => {
                    winner.removes.insert(key(&remove.path), remove);
                }
                Action::CommitInfo(info) => winner.info = Some(info),
                Action::Protocol(_)
                | Action::MetaData(_)
                | Action::Txn(_)
                | Action::DomainMetadata(_)
                | Action::Cdc(_) => {}
            }
        }
        winner
    }

    /// Its files, by key.
    pub(super) fn new_files(&self) -> impl Iterator<Item = (&str, &'a Add)> {
        self.adds.iter().map(|(key, add)| (key.as_str(), *add))
    }

    /// Whether it claims to have read nothing, and does not contradict that.
    pub(super) fn is_blind(&self) -> bool {
        let claims = self
            .info
            .and_then(|info| info.0.get("isBlindAppend"))
            .is_some_and(|v| v == &Value::Bool(true) || v.as_str() == Some("true"));
        claims && self.removes.is_empty()
    }

    /// Whether it has written rows after having read others than those that it has changed, as far as anybody can
    /// tell: a DELETE or UPDATE reads none.
    fn is_witness(&self) -> bool {
        let mut adds = self.adds.iter();
        let writes = adds.any(|(key, add)| add.data_change && !self.removes.contains_key(key));
        let operation = self.info.and_then(|info| info.text("operation"));
        writes && !self.is_blind() && !matches!(operation, Some("DELETE" | "UPDATE"))
    }

    /// The version that it has read, if it says so.
    fn read_version(&self) -> Option<u64> {
        let read = self.info.and_then(|info| info.integer("readVersion"))?;
        u64::try_from(read).ok()
    }

    /// Where the rows of its sources lie now, by the new file's path.
    pub(super) fn moves(&self) -> BTreeMap<String, Vec<Move>> {
        self.info
            .and_then(|info| info.0.get(MOVES))
            .and_then(|moves| serde_json::from_value(moves.clone()).ok())
            .unwrap_or_default()
    }

    /// The files that hold what some of `files` held before: where the winner has put their rows, or all that it may
    /// have put them into when it does not say.
    pub(super) fn successors(&self, files: &BTreeSet<String>, table: &Path) -> BTreeSet<String> {
        let key = |path: &str| DataPath::parse(path, table).key().to_owned();
        let gone = self.removes.iter().filter(|(key, remove)| {
            !remove.data_change && files.contains(*key) && !self.adds.contains_key(*key)
        });
        let mut gone: BTreeSet<&String> = gone.map(|(key, _)| key).collect();
        let mut found = BTreeSet::new();
        for (target, sources) in self.moves() {
            for source in sources {
                if gone.remove(&key(&source.path)) {
                    found.insert(key(&target));
                }
            }
        }
        if !gone.is_empty() {
            let moved = self.adds.iter().filter(|(_, add)| !add.data_change);
            found.extend(moved.map(|(key, _)| key.clone()));
        }
        found
    }

    fn conflict(&self, class: Class, reason: Reason) -> Conflict {
        Conflict {
            class,
            version: self.version,
            operation: self
                .info
                .and_then(|info| info.text("operation"))
                .unwrap_or("an operation that left no name")
                .to_owned(),
            timestamp: self.timestamp,
            file: None,
            rows: None,
            reason,
        }
    }

    /// A conflict about one file.
    pub(super) fn about(
        &self,
        class: Class,
        reason: Reason,
        file: &str,
        rows: Option<u64>,
    ) -> Conflict {
        Conflict {
            file: Some(file.to_owned()),
            rows,
            ..self.conflict(class, reason)
        }
    }
}

/// What a transaction is, to those who judge it.
#[derive(Debug)]
pub(super) struct Ours<'a> {
    pub(super) staged: &'a Staged,
    pub(super) level: Level,
    /// Rows decide, not files (PROTOCOL.md F3).
    pub(super) row_level: bool,
    /// Compactions and changes of rows get out of each other's way: vectors are enabled.
    pub(super) vectors: bool,
    /// Rows have ids, by which they can be found wherever they were put.
    pub(super) row_ids: bool,
    /// The snapshot that it has read.
    pub(super) reading: &'a Snapshot,
    /// The version before the winner.
    pub(super) view: &'a Snapshot,
    /// Files of blind appends in `view` that the transaction does not see (WriteSerializable), with the versions that
    /// their rows came with.
    pub(super) hidden: &'a BTreeMap<String, u64>,
    /// Files that it changes, apart from the sources of bins.
    pub(super) modifies: BTreeSet<String>,
}

/// What the winner leaves to be looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Carry {
    /// Files of ours whose rows or entries it has changed.
    pub(super) changed: Vec<(String, Change)>,
    /// Files in which rows may be back that the transaction has not seen.
    pub(super) revived: Vec<String>,
    /// Files whose rows are new to the transaction.
    pub(super) fresh: Vec<String>,
    /// Files that it goes on not to see.
    pub(super) hide: Vec<String>,
    /// Hidden files that were put into others.
    pub(super) hidden_moved: Vec<String>,
}

/// What became of a file of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It has another vector.
    Vector,
    /// It is gone with its rows.
    Removed,
    /// Its rows are in another file.
    Moved,
}

/// Judges a winner. `Ok` says what of it has to be looked at before the transaction may follow it.
///
/// # Errors
/// [`Conflict`].
pub(super) fn judge(ours: &Ours<'_>, winner: &Winner<'_>) -> Result<Carry, Conflict> {
    protocol_changed(winner)?;
    metadata_changed(ours, winner)?;
    domains(ours, winner)?;
    applications(ours, winner)?;
    let mut carry = Carry::default();
    added_files(ours, winner, &mut carry)?;
    witnessed_files(ours, winner, &mut carry)?;
    removed_files(ours, winner, &mut carry)?;
    Ok(carry)
}

/// F2 step 1: nothing follows a change of the protocol unseen.
fn protocol_changed(winner: &Winner<'_>) -> Result<(), Conflict> {
    for action in winner.actions {
        match action {
            Action::Protocol(_) => {
                return Err(winner.conflict(Class::ProtocolChanged, Reason::Table));
            }
            Action::CommitInfo(_)
            | Action::MetaData(_)
            | Action::Txn(_)
            | Action::DomainMetadata(_)
            | Action::Add(_)
            | Action::Remove(_)
            | Action::Cdc(_) => {}
        }
    }
    Ok(())
}

/// F2 step 2: nor a change of the metadata, unless only an identity column went on counting and we leave the
/// metadata alone.
fn metadata_changed(ours: &Ours<'_>, winner: &Winner<'_>) -> Result<(), Conflict> {
    let changed = winner.actions.iter().find_map(metadata_of);
    match changed {
        None => Ok(()),
        Some(theirs)
            if !writes_metadata(ours.staged) && only_counts_on(ours.view.metadata(), theirs) =>
        {
            Ok(())
        }
        Some(_) => Err(winner.conflict(Class::MetadataChanged, Reason::Table)),
    }
}

fn metadata_of(action: &Action) -> Option<&Metadata> {
    match action {
        Action::MetaData(metadata) => Some(metadata),
        Action::CommitInfo(_)
        | Action::Protocol(_)
        | Action::Txn(_)
        | Action::DomainMetadata(_)
        | Action::Add(_)
        | Action::Remove(_)
        | Action::Cdc(_) => None,
    }
}

pub(super) fn writes_metadata(staged: &Staged) -> bool {
    staged.actions.iter().any(|a| metadata_of(a).is_some())
}

/// Whether two states of the metadata differ in nothing but the high water marks of identity columns.
fn only_counts_on(before: &Metadata, after: &Metadata) -> bool {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.remove("delta.identity.highWaterMark");
                object.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let schema = |metadata: &Metadata| {
        let mut schema: Value = serde_json::from_str(&metadata.schema_string).ok()?;
        strip(&mut schema);
        Some(schema)
    };
    let same_schema = matches!((schema(before), schema(after)), (Some(a), Some(b)) if a == b);
    let rest = Metadata {
        schema_string: after.schema_string.clone(),
        ..before.clone()
    };
    same_schema && before.schema_string != after.schema_string && rest == *after
}

/// F2 step 3: one writer of a domain at a time. The watermark of row ids is counted anew for each attempt.
fn domains(ours: &Ours<'_>, winner: &Winner<'_>) -> Result<(), Conflict> {
    let mine: BTreeSet<&str> = ours.staged.actions.iter().filter_map(domain_of).collect();
    let both = winner.actions.iter().filter_map(domain_of);
    match both.into_iter().find(|d| mine.contains(d)) {
        None | Some(super::row_ids::DOMAIN) => Ok(()),
        Some(domain) => Err(winner.conflict(
            Class::ConcurrentTransaction,
            Reason::Named(format!("the domain {domain}")),
        )),
    }
}

fn domain_of(action: &Action) -> Option<&str> {
    match action {
        Action::DomainMetadata(domain) if domain.domain != super::row_ids::DOMAIN => {
            Some(&domain.domain)
        }
        Action::DomainMetadata(_)
        | Action::CommitInfo(_)
        | Action::Protocol(_)
        | Action::MetaData(_)
        | Action::Txn(_)
        | Action::Add(_)
        | Action::Remove(_)
        | Action::Cdc(_) => None,
    }
}

/// F2 step 4: an application whose last transaction we have asked for, or write ourselves, has gone on.
fn applications(ours: &Ours<'_>, winner: &Winner<'_>) -> Result<(), Conflict> {
    let mut read: BTreeSet<&str> = ours
        .staged
        .actions
        .iter()
        .filter_map(application_of)
        .collect();
    if let Some(reads) = ours.staged.read_set() {
        read.extend(reads.app_ids.iter().map(String::as_str));
    }
    let mut theirs = winner.actions.iter().filter_map(application_of);
    match theirs.find(|id| read.contains(id)) {
        None => Ok(()),
        Some(id) => Err(winner.conflict(
            Class::ConcurrentTransaction,
            Reason::Named(format!("the application {id}")),
        )),
    }
}

fn application_of(action: &Action) -> Option<&str> {
    match action {
        Action::Txn(txn) => Some(&txn.app_id),
        Action::CommitInfo(_)
        | Action::Protocol(_)
        | Action::MetaData(_)
        | Action::DomainMetadata(_)
        | Action::Add(_)
        | Action::Remove(_)
        | Action::Cdc(_) => None,
    }
}

/// F2 step 6: rows that the transaction would have read. Files without new rows count for nothing; those of blind
/// appends only under Serializable, or when the metadata is changed with them in place.
fn added_files(ours: &Ours<'_>, winner: &Winner<'_>, carry: &mut Carry) -> Result<(), Conflict> {
    let (Some(reads), Level::Serializable | Level::WriteSerializable) =
        (ours.staged.read_set(), ours.level)
    else {
        return Ok(());
    };
    if !reads.reads_rows() {
        return Ok(());
    }
    let unseen = winner.is_blind()
        && ours.level == Level::WriteSerializable
        && !writes_metadata(ours.staged);
    for (key, add) in &winner.adds {
        if !add.data_change {
            continue;
        }
        if unseen {
            // A new entry of a file that was there brings no rows.
            if !is_known(ours, key) {
                carry.hide.push(key.clone());
            }
            continue;
        }
        if !may_read(ours, reads, add) {
            continue;
        }
        let class = Class::ConcurrentAppend;
        if !ours.row_level {
            return Err(winner.about(class, Reason::Files, &add.path, None));
        }
        let known = is_known(ours, key);
        // A file that was there with the same rows or fewer brings nothing new.
        match known {
            true => carry.revived.push(key.clone()),
            false => carry.fresh.push(key.clone()),
        }
    }
    Ok(())
}

/// F2 step 6 for rows that the transaction does not see: as if it had run before they came. That is over once somebody
/// has read them, and perhaps rows that the transaction changes, and has written what follows from it: whoever read
/// both can neither come before the one nor after the other.
fn witnessed_files(
    ours: &Ours<'_>,
    winner: &Winner<'_>,
    carry: &mut Carry,
) -> Result<(), Conflict> {
    let Some(reads) = ours.staged.read_set().filter(|_| winner.is_witness()) else {
        return Ok(());
    };
    let read = winner.read_version();
    let hidden = ours.hidden.iter();
    for (key, _) in hidden.filter(|(_, since)| read.is_none_or(|read| **since <= read)) {
        let file = ours.view.live_file(&DataPath::Inside(key.clone()));
        let Some(file) = file.filter(|_| !winner.removes.contains_key(key)) else {
            continue;
        };
        if !may_read(ours, reads, &file.add) {
            continue;
        }
        if !ours.row_level {
            let class = Class::ConcurrentAppend;
            return Err(winner.about(class, Reason::Files, &file.add.path, None));
        }
        carry.fresh.push(key.clone());
    }
    Ok(())
}

/// Whether a file may hold rows that the transaction has read, by its partition.
fn may_read(ours: &Ours<'_>, reads: &ReadSet, add: &Add) -> bool {
    reads.whole_table
        || reads
            .conditions
            .iter()
            .any(|c| c.may_select(ours.reading, add))
}

/// Whether the transaction has seen the file.
fn is_known(ours: &Ours<'_>, key: &str) -> bool {
    !ours.hidden.contains_key(key)
        && ours
            .view
            .live_file(&DataPath::Inside(key.to_owned()))
            .is_some()
}

/// F2 steps 7 and 8: rows that the transaction has read or changes, and that are not where they were.
fn removed_files(ours: &Ours<'_>, winner: &Winner<'_>, carry: &mut Carry) -> Result<(), Conflict> {
    let moved = moved_files(winner);
    for (key, remove) in &winner.removes {
        let again = winner.adds.contains_key(key);
        if ours.hidden.contains_key(key) && !again {
            // Hidden rows live on in another file, or nowhere.
            if !remove.data_change {
                carry.hidden_moved.push(key.clone());
            }
            // A file that was put together may hold rows of both kinds.
            if !ours.modifies.contains(key) && !is_source(ours.staged, key) {
                continue;
            }
        }
        if is_source(ours.staged, key) {
            source_changed(ours, winner, key, remove, again, carry)?;
        } else if remove.data_change {
            rows_changed(ours, winner, key, remove, again, carry)?;
        } else if ours.modifies.contains(key) {
            // Only who changes its rows has to know where they are now.
            let traceable = ours.row_ids || moved.contains(&remove.path);
            match (again, traceable && ours.vectors) {
                (true, _) if is_touched(ours.staged, key) => {
                    carry.changed.push((key.clone(), Change::Vector));
                }
                (false, true) if is_touched(ours.staged, key) => {
                    carry.changed.push((key.clone(), Change::Moved));
                }
                (true | false, _) => {
                    let class = Class::ConcurrentDeleteRead;
                    return Err(winner.about(class, Reason::Files, &remove.path, None));
                }
            }
        }
    }
    // A new entry without a remove: a new name, or other statistics.
    for (key, add) in &winner.adds {
        let ours_too = ours.modifies.contains(key) || is_source(ours.staged, key);
        if ours_too && !winner.removes.contains_key(key) {
            if !is_touched(ours.staged, key) && !is_source(ours.staged, key) {
                let class = Class::ConcurrentDeleteRead;
                return Err(winner.about(class, Reason::Files, &add.path, None));
            }
            carry.changed.push((key.clone(), Change::Vector));
        }
    }
    Ok(())
}

/// A change of rows in a file that is not ours to move.
fn rows_changed(
    ours: &Ours<'_>,
    winner: &Winner<'_>,
    key: &str,
    remove: &Remove,
    again: bool,
    carry: &mut Carry,
) -> Result<(), Conflict> {
    let modifies = ours.modifies.contains(key);
    let reads = match &ours.staged.reads {
        Reads::Known(reads) => reads.whole_table || reads.files.contains(key),
        Reads::Nothing | Reads::Restage => false,
    };
    let about = |class| Err(winner.about(class, Reason::Files, &remove.path, None));
    if ours.row_level && (is_touched(ours.staged, key) || !modifies) {
        if is_touched(ours.staged, key) {
            let change = if again {
                Change::Vector
            } else {
                Change::Removed
            };
            carry.changed.push((key.to_owned(), change));
        }
        return Ok(());
    }
    if reads {
        return about(Class::ConcurrentDeleteRead);
    }
    if modifies {
        return about(Class::ConcurrentDeleteDelete);
    }
    Ok(())
}

/// A source of a compaction that is not as it was.
fn source_changed(
    ours: &Ours<'_>,
    winner: &Winner<'_>,
    key: &str,
    remove: &Remove,
    again: bool,
    carry: &mut Carry,
) -> Result<(), Conflict> {
    let in_order = ours
        .staged
        .bins
        .iter()
        .filter(|bin| bin.in_order)
        .any(|bin| {
            bin.sources
                .iter()
                .any(|s| s.live && s.file.path.key() == key)
        });
    if !ours.vectors || !in_order {
        let class = Class::ConcurrentDeleteDelete;
        return Err(winner.about(class, Reason::Files, &remove.path, None));
    }
    let change = match (again, remove.data_change) {
        (true, _) => Change::Vector,
        (false, true) => Change::Removed,
        (false, false) => Change::Moved,
    };
    carry.changed.push((key.to_owned(), change));
    Ok(())
}

fn is_source(staged: &Staged, key: &str) -> bool {
    let mut sources = staged.bins.iter().flat_map(|bin| &bin.sources);
    sources.any(|source| source.live && source.file.path.key() == key)
}

fn is_touched(staged: &Staged, key: &str) -> bool {
    staged.touched.iter().any(|t| t.file.path.key() == key)
}

/// The files whose rows the winner says where to find.
fn moved_files(winner: &Winner<'_>) -> BTreeSet<String> {
    let moves = winner.moves().into_values().flatten();
    moves.map(|moved| moved.path).collect()
}

/// F3: rows of a file of ours that somebody else has deleted. `before` and `after` are its dead rows, `mine` says which
/// rows the transaction has changed or relied on.
///
/// # Errors
/// [`Conflict`] when a row is both's, or when rows are back that the transaction has not seen.
pub(super) fn changed_rows(
    winner: &Winner<'_>,
    file: &str,
    before: &RowSet,
    after: &RowSet,
    mine: &Mine<'_>,
) -> Result<(), Conflict> {
    if !before.is_subset(after) {
        let rows = Some((before - after).len());
        return Err(winner.about(Class::ConcurrentAppend, Reason::Revived, file, rows));
    }
    let theirs = after - before;
    let both = match mine {
        Mine::EveryRow => theirs.len(),
        Mine::These(rows, read) => (&theirs & *rows).len() + ((&theirs & *read) - *rows).len(),
    };
    match both {
        0 => Ok(()),
        both => Err(winner.about(Class::ConcurrentDeleteRead, Reason::Rows, file, Some(both))),
    }
}

/// Rows of a file that a transaction relies on.
#[derive(Debug)]
pub(super) enum Mine<'a> {
    EveryRow,
    /// Those that it changes, and those that it has only read.
    These(&'a RowSet, &'a RowSet),
}

/// F3: how many rows of a file are new and selected by the condition.
///
/// # Errors
/// [`Conflict`] unless there are none.
pub(super) fn new_rows(
    winner: &Winner<'_>,
    file: &str,
    selected: Result<u64, String>,
) -> Result<(), Conflict> {
    let class = Class::ConcurrentAppend;
    match selected {
        Ok(0) => Ok(()),
        Ok(rows) => Err(winner.about(class, Reason::Rows, file, Some(rows))),
        Err(reason) => Err(winner.about(class, Reason::Unasked(reason), file, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Format;

    fn metadata(mark: Option<&str>, comment: &str) -> Metadata {
        let mark = mark.map_or(String::new(), |m| {
            format!(r#""delta.identity.highWaterMark":{m},"#)
        });
        Metadata {
            id: "t".to_owned(),
            name: None,
            description: None,
            format: Format::default(),
            schema_string: format!(
                r#"{{"type":"struct","fields":[{{"name":"id","type":"long","nullable":true,"metadata":{{{mark}"comment":"{comment}"}}}}]}}"#
            ),
            partition_columns: Vec::new(),
            created_time: None,
            configuration: BTreeMap::new(),
            unknown: serde_json::Map::new(),
        }
    }

    #[test]
    fn a_column_that_only_counts_on_is_no_new_schema() {
        let before = metadata(Some("5"), "x");
        assert!(only_counts_on(&before, &metadata(Some("9"), "x")));
        assert!(only_counts_on(&metadata(None, "x"), &before));
        assert!(!only_counts_on(&before, &metadata(Some("9"), "y")));
        // The same text twice is somebody's change all the same.
        assert!(!only_counts_on(&before, &before));
        let mut other = metadata(Some("9"), "x");
        other.configuration.insert("k".to_owned(), "v".to_owned());
        assert!(!only_counts_on(&before, &other));
    }

    #[test]
    fn a_claim_to_have_read_nothing_must_not_be_contradicted() {
        let parse = |text: &str| crate::log::parse_commit("c", text.as_bytes()).unwrap();
        let blind = |text: &str| Winner::new(Path::new("/t"), 1, 0, &parse(text)).is_blind();
        let remove = r#"{"remove":{"path":"a","dataChange":true}}"#;
        assert!(blind(r#"{"commitInfo":{"isBlindAppend":true}}"#));
        assert!(!blind(r#"{"commitInfo":{"isBlindAppend":false}}"#));
        assert!(!blind(r#"{"commitInfo":{}}"#));
        assert!(!blind(&format!(
            "{{\"commitInfo\":{{\"isBlindAppend\":true}}}}\n{remove}"
        )));
    }
}
