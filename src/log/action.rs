//! Actions of a commit (PROTOCOL.md A2). Fields that we do not know are kept where an action is written again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::deletion_vector::DeletionVectorDescriptor;
use crate::schema::json;

/// Partition values by physical column name; `None` is NULL.
pub type PartitionValues = BTreeMap<String, Option<String>>;

/// Free-form tags.
pub type Tags = BTreeMap<String, Option<String>>;

/// One line of a commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    CommitInfo(CommitInfo),
    Protocol(Protocol),
    MetaData(Metadata),
    Txn(Txn),
    DomainMetadata(DomainMetadata),
    Add(Add),
    Remove(Remove),
    Cdc(Cdc),
}

impl Action {
    /// Whether a field that we do not know has a number that is no integer.
    pub(super) fn has_fractions(&self) -> bool {
        match self {
            Action::CommitInfo(info) => json::has_fractions(&info.0),
            Action::MetaData(metadata) => json::has_fractions(&metadata.unknown),
            Action::Add(add) => json::has_fractions(&add.unknown),
            Action::Remove(remove) => json::has_fractions(&remove.unknown),
            Action::Protocol(_) | Action::Txn(_) | Action::DomainMetadata(_) | Action::Cdc(_) => {
                false
            }
        }
    }
}

/// A live data file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Add {
    /// Relative to the table and URI-encoded, or an absolute URI.
    pub path: String,
    pub partition_values: PartitionValues,
    /// Bytes.
    pub size: i64,
    /// Milliseconds since the epoch.
    pub modification_time: i64,
    pub data_change: bool,
    /// JSON of the statistics (PROTOCOL.md E).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<DeletionVectorDescriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_row_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_row_commit_version: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clustering_provider: Option<String>,
    #[serde(flatten, deserialize_with = "json::object")]
    pub unknown: Map<String, Value>,
}

/// A file that is not live any more (a tombstone).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remove {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<i64>,
    pub data_change: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended_file_metadata: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_values: Option<PartitionValues>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<DeletionVectorDescriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_row_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_row_commit_version: Option<i64>,
    #[serde(flatten, deserialize_with = "json::object")]
    pub unknown: Map<String, Value>,
}

/// The table's identity, schema and properties.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default)]
    pub format: Format,
    pub schema_string: String,
    /// Logical names.
    #[serde(default)]
    pub partition_columns: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_time: Option<i64>,
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
    #[serde(flatten, deserialize_with = "json::object")]
    pub unknown: Map<String, Value>,
}

/// The data files' format; always Parquet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    pub provider: String,
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

impl Default for Format {
    fn default() -> Self {
        Format {
            provider: "parquet".to_owned(),
            options: BTreeMap::new(),
        }
    }
}

/// What a reader and a writer must be able to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    pub min_reader_version: i32,
    pub min_writer_version: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader_features: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_features: Option<Vec<String>>,
}

/// The last transaction of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Txn {
    pub app_id: String,
    pub version: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<i64>,
}

/// A named configuration of a feature or a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainMetadata {
    pub domain: String,
    pub configuration: String,
    pub removed: bool,
}

/// A file of the change data feed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cdc {
    pub path: String,
    pub partition_values: PartitionValues,
    pub size: i64,
    pub data_change: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Tags>,
}

/// Where a commit came from: free-form JSON, since writers put anything there.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommitInfo(#[serde(deserialize_with = "json::object")] pub Map<String, Value>);

impl CommitInfo {
    /// A field as text, if it is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }

    /// A field as an integer; writers put numbers as text, too.
    pub fn integer(&self, key: &str) -> Option<i64> {
        let value = self.0.get(key)?;
        value.as_i64().or_else(|| value.as_str()?.parse().ok())
    }
}

impl Add {
    /// The key of a live file: path and deletion vector.
    pub fn dv_id(&self) -> Option<String> {
        self.deletion_vector
            .as_ref()
            .map(DeletionVectorDescriptor::unique_id)
    }

    /// The tombstone of this file. Everything that identifies rows is copied from the live entry.
    pub fn to_remove(&self, deletion_timestamp: i64, data_change: bool) -> Remove {
        Remove {
            path: self.path.clone(),
            deletion_timestamp: Some(deletion_timestamp),
            data_change,
            extended_file_metadata: Some(true),
            partition_values: Some(self.partition_values.clone()),
            size: Some(self.size),
            stats: None,
            tags: self.tags.clone(),
            deletion_vector: self.deletion_vector.clone(),
            base_row_id: self.base_row_id,
            default_row_commit_version: self.default_row_commit_version,
            unknown: Map::new(),
        }
    }

    /// `stats.numRecords`: physical rows, dead ones included.
    pub fn num_records(&self) -> Option<u64> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Count {
            num_records: Option<u64>,
        }
        serde_json::from_str::<Count>(self.stats.as_deref()?)
            .ok()?
            .num_records
    }

    /// Dead rows by the deletion vector.
    pub fn deleted_rows(&self) -> u64 {
        self.deletion_vector
            .as_ref()
            .map_or(0, |dv| u64::try_from(dv.cardinality).unwrap_or(0))
    }
}
