//! The rules of PROTOCOL.md A2, held against what we are about to write. A breach is our own mistake: it fails the
//! commit before anybody sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::{DataPath, LiveFile, Snapshot, TableError, protocol, row_ids};
use crate::log::{Action, Add, Metadata, Protocol, Remove};
use crate::schema::StructType;
use crate::schema::partition::{decode_path, encode_path};

/// What we write into the namespace that is not the users'.
const OUR_DOMAINS: &[&str] = &[row_ids::DOMAIN, "delta.clustering"];
/// Where the change feed's files lie.
const CHANGE_DATA: &str = "_change_data/";

/// What the actions are held against.
pub(super) struct Rules<'a> {
    /// The table's directory.
    pub(super) table: &'a Path,
    /// The version before; none for a new table.
    pub(super) base: Option<&'a Snapshot>,
    pub(super) version: u64,
    /// As they are after the commit.
    pub(super) protocol: &'a Protocol,
    pub(super) metadata: &'a Metadata,
    /// Whether the commit claims to be a blind append.
    pub(super) blind: bool,
}

/// Fails when `actions` (without their commitInfo) break a rule.
///
/// # Errors
/// [`TableError::Malformed`]; [`TableError::AppendOnly`].
pub(super) fn validate(rules: &Rules<'_>, actions: &[Action]) -> Result<(), TableError> {
    let bad = |what: &'static str, reason: String| rules.bad(what, reason);
    let mut adds: BTreeMap<String, &Add> = BTreeMap::new();
    let mut removes: BTreeMap<String, &Remove> = BTreeMap::new();
    let mut data_change = None;
    let (mut metadata, mut protocols) = (0, 0);
    let mut applications = BTreeSet::new();
    let mut domains = BTreeSet::new();
    for action in actions {
        let change = match action {
            Action::Add(add) => {
                let key = rules.key(&add.path);
                if adds.insert(key, add).is_some() {
                    return Err(bad("add", format!("{} is added twice", add.path)));
                }
                Some(add.data_change)
            }
            Action::Remove(remove) => {
                let key = rules.key(&remove.path);
                if removes.insert(key, remove).is_some() {
                    return Err(bad("remove", format!("{} is removed twice", remove.path)));
                }
                Some(remove.data_change)
            }
            Action::MetaData(_) => {
                metadata += 1;
                None
            }
            Action::Protocol(_) => {
                protocols += 1;
                None
            }
            Action::Txn(txn) => {
                if !applications.insert(txn.app_id.as_str()) {
                    let reason = format!("application {} is named twice", txn.app_id);
                    return Err(bad("txn", reason));
                }
                None
            }
            Action::DomainMetadata(domain) => {
                let name = domain.domain.as_str();
                if !domains.insert(name) {
                    return Err(bad("domainMetadata", format!("{name} is set twice")));
                }
                if name.starts_with("delta.") && !OUR_DOMAINS.contains(&name) {
                    let reason = format!("{name} is not ours to write");
                    return Err(bad("domainMetadata", reason));
                }
                if !protocol::supports(rules.protocol, "domainMetadata") {
                    let reason = format!("{name} needs the feature domainMetadata");
                    return Err(bad("domainMetadata", reason));
                }
                None
            }
            Action::Cdc(cdc) => {
                let place = decode_path(&cdc.path).unwrap_or_default();
                if !place.starts_with(CHANGE_DATA) || cdc.data_change {
                    let reason = format!("{} is no file of the change data feed", cdc.path);
                    return Err(bad("cdc", reason));
                }
                None
            }
            Action::CommitInfo(_) => {
                return Err(bad("commit", "it has two commitInfo actions".to_owned()));
            }
        };
        if let Some(change) = change {
            if data_change.is_some_and(|known| known != change) {
                let reason = "dataChange differs between its files".to_owned();
                return Err(bad("commit", reason));
            }
            data_change = Some(change);
        }
    }
    if metadata > 1 {
        return Err(bad("commit", "it has two metaData actions".to_owned()));
    }
    if protocols > 1 {
        return Err(bad("commit", "it has two protocol actions".to_owned()));
    }
    if rules.base.is_none() && (metadata, protocols) != (1, 1) {
        let reason = "a new table needs its metaData and its protocol".to_owned();
        return Err(bad("commit", reason));
    }
    if protocols == 1 {
        protocol::well_formed(rules.protocol, rules.version)?;
    }
    let schema = match rules.base {
        Some(base) if metadata == 0 => Arc::clone(base.schema()),
        _ => Arc::new(StructType::from_json(&rules.metadata.schema_string)?),
    };
    if metadata + protocols > 0 {
        rules.check_state(&schema)?;
    }
    rules.check_files(&schema, &adds, &removes)?;
    if let Some(base) = rules.base
        && !removes.is_empty()
        && data_change == Some(true)
    {
        base.check_append_only()?;
    }
    Ok(())
}

impl Rules<'_> {
    fn bad(&self, what: &'static str, reason: String) -> TableError {
        TableError::Malformed {
            version: self.version,
            what,
            reason,
        }
    }

    /// What identifies a file, however its path is spelled.
    fn key(&self, path: &str) -> String {
        DataPath::parse(path, self.table).key().to_owned()
    }

    /// What the table says of itself afterwards: we can write it, and its protocol covers its properties.
    fn check_state(&self, schema: &StructType) -> Result<(), TableError> {
        protocol::check_write(self.protocol, self.metadata, schema)?;
        let needed = protocol::required(self.metadata, schema);
        let missing = needed
            .into_iter()
            .find(|name| !protocol::supports(self.protocol, name));
        match missing {
            Some(name) => Err(self.bad("metaData", format!("it needs the feature {name}"))),
            None => Ok(()),
        }
    }

    fn check_files(
        &self,
        schema: &StructType,
        adds: &BTreeMap<String, &Add>,
        removes: &BTreeMap<String, &Remove>,
    ) -> Result<(), TableError> {
        let mut columns = BTreeSet::new();
        for name in &self.metadata.partition_columns {
            let field = schema.field(name).ok_or_else(|| {
                let reason = format!("the schema has no partition column {name}");
                self.bad("metaData", reason)
            })?;
            columns.insert(field.physical_name());
        }
        let live = |path: &str| {
            let path = DataPath::parse(path, self.table);
            self.base.and_then(|base| base.live_file(&path))
        };
        for remove in removes.values() {
            let dv = remove.deletion_vector.as_ref().map(|dv| dv.unique_id());
            if live(&remove.path).is_none_or(|file| file.add.dv_id() != dv) {
                let reason = format!("{} is not live with the vector {dv:?}", remove.path);
                return Err(self.bad("remove", reason));
            }
            let extended = remove.extended_file_metadata == Some(true);
            if extended && (remove.partition_values.is_none() || remove.size.is_none()) {
                let reason = format!("{} lacks its partition values or its size", remove.path);
                return Err(self.bad("remove", reason));
            }
        }
        if self.blind && !removes.is_empty() {
            let reason = "a blind append removes nothing".to_owned();
            return Err(self.bad("commit", reason));
        }
        for (key, add) in adds {
            let file = live(&add.path);
            let file = file.as_ref().map(|f| -> &LiveFile { f });
            let dv = add.dv_id();
            let removed = removes.get(key).is_some();
            match file.map(|f| f.add.dv_id()) {
                Some(old) if old == dv && removed => {
                    let reason = format!("{} is removed and added with one vector", add.path);
                    return Err(self.bad("add", reason));
                }
                Some(old) if old != dv && !removed => {
                    let reason =
                        format!("{} is live with the vector {old:?}, not {dv:?}", add.path);
                    return Err(self.bad("add", reason));
                }
                _ => {}
            }
            if self.blind && file.is_some() {
                let reason = format!("{} is live: no blind append adds it", add.path);
                return Err(self.bad("commit", reason));
            }
            self.check_add(add, file, &columns)?;
        }
        Ok(())
    }

    fn check_add(
        &self,
        add: &Add,
        live: Option<&LiveFile>,
        columns: &BTreeSet<&str>,
    ) -> Result<(), TableError> {
        let bad = |reason: String| Err(self.bad("add", reason));
        if add.size < 0 {
            return bad(format!("{} has the size {}", add.path, add.size));
        }
        // A file of somebody else keeps its spelling and its keys.
        if live.is_none() {
            let decoded = decode_path(&add.path);
            let relative = matches!(
                DataPath::parse(&add.path, self.table),
                DataPath::Inside(inside) if decoded.as_deref() == Some(inside.as_str())
            );
            if !relative || decoded.is_none_or(|d| encode_path(&d) != add.path) {
                return bad(format!(
                    "{} is not a relative, encoded path of a file in the table",
                    add.path
                ));
            }
            let keys: BTreeSet<&str> = add.partition_values.keys().map(String::as_str).collect();
            if keys != *columns {
                return bad(format!(
                    "{} has values for {keys:?}, the partition columns are {columns:?}",
                    add.path
                ));
            }
        }
        let Some(vector) = &add.deletion_vector else {
            return Ok(());
        };
        let stats = add.stats.as_deref().unwrap_or("{}");
        let stats = serde_json::from_str::<Stats>(stats).unwrap_or_default();
        let Some(rows) = stats.num_records else {
            return bad(format!("{} has a vector, but no numRecords", add.path));
        };
        if u64::try_from(vector.cardinality).is_ok_and(|dead| dead > rows) {
            return bad(format!(
                "{} has {rows} rows, its vector {}",
                add.path, vector.cardinality
            ));
        }
        if live.is_some_and(|file| file.add.dv_id() == add.dv_id()) {
            return Ok(());
        }
        if stats.tight_bounds != Some(false) {
            return bad(format!(
                "{} has a new vector, but claims tight bounds",
                add.path
            ));
        }
        let enabled = protocol::supports(self.protocol, "deletionVectors")
            && protocol::flag(self.metadata, "delta.enableDeletionVectors");
        if !enabled {
            return bad(format!(
                "{} has a new vector, but vectors are not enabled",
                add.path
            ));
        }
        Ok(())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    num_records: Option<u64>,
    tight_bounds: Option<bool>,
}
