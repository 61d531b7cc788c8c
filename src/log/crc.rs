//! `V.crc`: what a version sums up to, for whoever wants to check a replay (PROTOCOL.md A1).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Add, DomainMetadata, Metadata, Protocol, Txn};
use crate::schema::json;

/// The one JSON object of the file. `None` says nothing about the version; an empty list says that there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Crc {
    /// That of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txn_id: Option<String>,
    /// Bytes of the live files.
    pub table_size_bytes: i64,
    /// Live files.
    pub num_files: i64,
    /// Always 1.
    pub num_metadata: i64,
    /// Always 1.
    pub num_protocol: i64,
    /// There exactly where in-commit timestamps are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_commit_timestamp_opt: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_transactions: Option<Vec<Txn>>,
    /// Live domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_metadata: Option<Vec<DomainMetadata>>,
    /// Required, but writers of before 2022 left it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// As `metadata`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    #[serde(
        default,
        alias = "histogramOpt",
        skip_serializing_if = "Option::is_none"
    )]
    pub file_size_histogram: Option<FileSizeHistogram>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_files: Option<Vec<Add>>,
    /// Rows that deletion vectors hide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_deleted_records_opt: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_deletion_vectors_opt: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_record_counts_histogram_opt: Option<DeletedRecordCounts>,
    #[serde(flatten, deserialize_with = "crate::schema::json::object")]
    pub unknown: Map<String, Value>,
}

/// How the live files are spread over sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileSizeHistogram {
    /// Where each bin starts, in bytes; the first is 0.
    pub sorted_bin_boundaries: Vec<i64>,
    pub file_counts: Vec<i64>,
    pub total_bytes: Vec<i64>,
}

/// How the live files are spread over deleted rows: 0, 1–9, 10–99, …, 10 bins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletedRecordCounts {
    pub deleted_record_counts: Vec<i64>,
}

impl Crc {
    /// Parses the body of `V.crc`.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let parsed = serde_json::from_slice::<Crc>(body).map_err(|e| e.to_string())?;
        if !parsed.has_fractions() {
            return Ok(parsed);
        }
        let exact = json::from_slice(body).and_then(serde_json::from_value);
        exact.map_err(|e| e.to_string())
    }

    /// Whether a field that we do not know has a number that is no integer.
    fn has_fractions(&self) -> bool {
        let of_file = |add: &Add| json::has_fractions(&add.unknown);
        json::has_fractions(&self.unknown)
            || self
                .metadata
                .as_ref()
                .is_some_and(|metadata| json::has_fractions(&metadata.unknown))
            || self
                .all_files
                .as_ref()
                .is_some_and(|files| files.iter().any(of_file))
    }

    /// The body of `V.crc`.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"txnId":"t","tableSizeBytes":5,"numFiles":1,"numMetadata":1,"numProtocol":1,
        "metadata":{"id":"m","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],
        "configuration":{}},"protocol":{"minReaderVersion":1,"minWriterVersion":2},
        "histogramOpt":{"sortedBinBoundaries":[0],"fileCounts":[1],"totalBytes":[5]},"future":{"x":[1]}}"#;

    #[test]
    fn both_names_of_the_histogram_are_read_and_the_unknown_is_kept() {
        let crc = Crc::parse(SMALL.as_bytes()).unwrap();
        assert_eq!(crc.file_size_histogram.as_ref().unwrap().total_bytes, [5]);
        let again: Value = serde_json::from_str(&crc.to_json()).unwrap();
        assert_eq!(again["future"], serde_json::json!({"x": [1]}));
        assert!(again.get("histogramOpt").is_none());
        assert_eq!(again["fileSizeHistogram"]["fileCounts"][0], 1);
        for absent in ["setTransactions", "domainMetadata", "inCommitTimestampOpt"] {
            assert!(again.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn what_is_required_is_required() {
        for field in ["tableSizeBytes", "numFiles", "numMetadata", "numProtocol"] {
            let mut value: Value = serde_json::from_str(SMALL).unwrap();
            value.as_object_mut().unwrap().shift_remove(field);
            let error = Crc::parse(value.to_string().as_bytes()).unwrap_err();
            assert!(error.contains(field), "{error}");
        }
        let old = br#"{"tableSizeBytes":0,"numFiles":0,"numMetadata":1,"numProtocol":1,"numTransactions":0}"#;
        assert_eq!(Crc::parse(old).unwrap().metadata, None);
        assert!(Crc::parse(b"").is_err());
        assert!(Crc::parse(b"[]").is_err());
    }
}
