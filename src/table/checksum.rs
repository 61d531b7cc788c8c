//! `V.crc` of our commits, and everybody's held against a replay (PROTOCOL.md A1). A checksum is a second opinion:
//! without one, or with one that can't be read, nothing is wrong.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Snapshot, protocol, temporary_name};
use crate::env::Env;
use crate::log::{Crc, DomainMetadata, LOG_DIR, LogName, Metadata, Protocol, Txn};
use crate::store::{Dir, Put};

/// Lists longer than this are left out: the file is written with every commit, and must stay small against it. A
/// reader without them replays the log, as for any version without a checksum.
const MAX_LISTED: usize = 100;

/// What is wrong with a checksum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// It is no checksum: it says nothing about the version.
    #[error("the checksum of version {version} can't be read: {reason}")]
    Malformed { version: u64, reason: String },
    /// It and the replay can't both be right.
    #[error(
        "the checksum of version {version} says {field} is {recorded}, the log says {replayed}"
    )]
    Differs {
        version: u64,
        field: &'static str,
        recorded: String,
        replayed: String,
    },
}

impl Mismatch {
    /// Whether another way through the log could lead to another answer: not if it is no checksum or only times
    /// differ.
    pub fn is_of_state(&self) -> bool {
        match self {
            Mismatch::Malformed { .. } => false,
            Mismatch::Differs { field, .. } => *field != "inCommitTimestampOpt",
        }
    }
}

/// Holds `snapshot` against the body of its version's `.crc`. Reads nothing.
///
/// # Errors
/// The first [`Mismatch`].
pub fn check(snapshot: &Snapshot, body: &[u8]) -> Result<(), Mismatch> {
    let version = snapshot.version();
    let crc = Crc::parse(body).map_err(|reason| Mismatch::Malformed { version, reason })?;
    let same = |field, recorded: String, replayed: String| {
        if recorded == replayed {
            Ok(())
        } else {
            Err(Mismatch::Differs {
                version,
                field,
                recorded,
                replayed,
            })
        }
    };
    let number = |field, recorded: i64, replayed: u64| {
        same(field, recorded.to_string(), replayed.to_string())
    };
    let totals = snapshot.totals();
    number("numMetadata", crc.num_metadata, 1)?;
    number("numProtocol", crc.num_protocol, 1)?;
    number("numFiles", crc.num_files, totals.files)?;
    number("tableSizeBytes", crc.table_size_bytes, totals.bytes)?;
    if let Some(deleted) = crc.num_deleted_records_opt {
        number("numDeletedRecordsOpt", deleted, totals.deleted)?;
    }
    if let Some(recorded) = &crc.protocol {
        same(
            "protocol",
            protocol_text(recorded),
            protocol_text(snapshot.protocol()),
        )?;
    }
    if let Some(recorded) = &crc.metadata {
        same(
            "metadata",
            metadata_text(recorded),
            metadata_text(snapshot.metadata()),
        )?;
    }
    let stamps = protocol::in_commit_timestamps(snapshot.protocol(), snapshot.metadata());
    // A version whose commit file is gone has no timestamp to compare with.
    if let (true, Some(recorded), Some(replayed)) = (
        stamps,
        crc.in_commit_timestamp_opt,
        snapshot.in_commit_timestamp(),
    ) {
        same(
            "inCommitTimestampOpt",
            recorded.to_string(),
            replayed.to_string(),
        )?;
    }
    if let Some(recorded) = &crc.set_transactions {
        // Writers may leave out what has expired: what is listed must be right.
        let ours: BTreeMap<&str, i64> = snapshot
            .txns()
            .map(|txn| (txn.app_id.as_str(), txn.version))
            .collect();
        for txn in recorded {
            same(
                "setTransactions",
                format!("{} at {}", txn.app_id, txn.version),
                match ours.get(txn.app_id.as_str()) {
                    Some(version) => format!("{} at {version}", txn.app_id),
                    None => format!("{} not there", txn.app_id),
                },
            )?;
        }
    }
    if let Some(recorded) = &crc.domain_metadata {
        let live = recorded.iter().filter(|d| !d.removed);
        same(
            "domainMetadata",
            domains_text(live),
            domains_text(snapshot.domains()),
        )?;
    }
    Ok(())
}

fn domains_text<D: std::borrow::Borrow<DomainMetadata>>(
    domains: impl Iterator<Item = D>,
) -> String {
    let texts: BTreeMap<String, String> = domains
        .map(|d| (d.borrow().domain.clone(), d.borrow().configuration.clone()))
        .collect();
    format!("{texts:?}")
}

/// What a protocol says, whatever the order of its lists.
fn protocol_text(protocol: &Protocol) -> String {
    let list = |names: &Option<Vec<String>>| {
        let mut names: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names.join(",")
    };
    format!(
        "{}/{} [{}] [{}]",
        protocol.min_reader_version,
        protocol.min_writer_version,
        list(&protocol.reader_features),
        list(&protocol.writer_features)
    )
}

/// What matters of the metadata to a reader.
fn metadata_text(metadata: &Metadata) -> String {
    let schema = crate::schema::json::from_slice(metadata.schema_string.as_bytes());
    let schema = schema.map_or_else(|_| metadata.schema_string.clone(), |s| s.to_string());
    format!(
        "{} {:?} {:?} {schema}",
        metadata.id, metadata.partition_columns, metadata.configuration
    )
}

/// The checksum of a snapshot.
pub(super) fn of(snapshot: &Snapshot, txn_id: &str) -> Crc {
    let totals = snapshot.totals();
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let txns: Vec<Txn> = snapshot.txns().take(MAX_LISTED + 1).cloned().collect();
    let domains: Vec<DomainMetadata> = snapshot.domains().take(MAX_LISTED + 1).cloned().collect();
    let vectors = protocol::supports(snapshot.protocol(), "deletionVectors");
    let stamps = protocol::in_commit_timestamps(snapshot.protocol(), snapshot.metadata());
    Crc {
        txn_id: Some(txn_id.to_owned()),
        table_size_bytes: count(totals.bytes),
        num_files: count(totals.files),
        num_metadata: 1,
        num_protocol: 1,
        in_commit_timestamp_opt: snapshot.in_commit_timestamp().filter(|_| stamps),
        set_transactions: (txns.len() <= MAX_LISTED).then_some(txns),
        domain_metadata: (domains.len() <= MAX_LISTED).then_some(domains),
        metadata: Some(snapshot.metadata().clone()),
        protocol: Some(snapshot.protocol().clone()),
        file_size_histogram: None,
        all_files: None,
        num_deleted_records_opt: vectors.then(|| count(totals.deleted)),
        num_deletion_vectors_opt: None,
        deleted_record_counts_histogram_opt: None,
        unknown: serde_json::Map::new(),
    }
}

/// Writes the checksum of a version that was just committed. A failure is a warning: the version stands.
pub(super) fn write(dir: &Dir, env: &Env, snapshot: &Snapshot, txn_id: &str) {
    if snapshot.is_doubted() {
        return;
    }
    let path = Path::new(LOG_DIR).join(LogName::crc(snapshot.version()));
    let body = of(snapshot, txn_id).to_json();
    let temporary = temporary_name(env);
    let version = snapshot.version();
    match dir.offer(&path, temporary.as_ref(), body.as_bytes()) {
        Ok(Put::Created) => {}
        // Whoever rolled a log back left it: it is another commit's. What the log says counts.
        Ok(Put::Exists) => tracing::warn!(
            table = %dir.path().display(), version,
            "there was a checksum before the version: it may be wrong, and can be removed"
        ),
        Err(error) => tracing::warn!(
            table = %dir.path().display(), version, %error,
            "a version stays without its checksum"
        ),
    }
}

#[cfg(test)]
#[path = "checksum_tests.rs"]
mod tests;
