//! What new data files of a table look like and where they go.

use std::collections::BTreeMap;

use super::OpError;
use crate::datafile::{MappingMode, StatsConfig, Target};
use crate::env::Env;
use crate::log::{Add, Metadata};
use crate::schema::{DataType, Primitive, partition};
use crate::table::protocol::{self, Materialized};
use crate::table::{Snapshot, TableError};

/// Spark's default of `delta.randomPrefixLength`, and the length with column mapping.
const PREFIX_CHARS: usize = 2;
/// As many as an id has.
const MAX_PREFIX_CHARS: usize = 32;

/// What a dropped file is held against. `fixed` are the partition values of its directory, by logical name.
pub(super) fn target(
    base: &Snapshot,
    fixed: &BTreeMap<String, Option<String>>,
) -> Result<Target, OpError> {
    let hidden = hidden(base)?;
    let names = hidden.map(|h| [h.row_id, h.row_commit_version]);
    Ok(Target {
        schema: (**base.schema()).clone(),
        partition_columns: base.partition_columns().to_vec(),
        fixed: fixed.clone(),
        stats: stats(base)?,
        mapping: base.mapping(),
        hidden: names.iter().flatten().map(|n| (*n).to_owned()).collect(),
        materialized: materialized(base),
    })
}

/// Whether data files hold the partition columns, too.
pub(super) fn materialized(base: &Snapshot) -> bool {
    protocol::supports(base.protocol(), "materializePartitionColumns")
}

/// What the files of one partition have in common: [`partition::identity`] of each value, in the order of the columns.
///
/// # Errors
/// [`OpError::Table`] when a value is not of its column's type.
pub(super) fn partition_of(base: &Snapshot, add: &Add) -> Result<Vec<Option<String>>, OpError> {
    let mut values = Vec::new();
    for column in base.partition_columns() {
        let text = base.partition_value(add, column);
        let string = DataType::Primitive(Primitive::String);
        let data_type = base
            .schema()
            .field(column)
            .map_or(&string, |f| &f.data_type);
        values.push(partition::identity(text, data_type)?);
    }
    Ok(values)
}

/// The columns that get statistics.
///
/// # Errors
/// [`TableError::Malformed`] when it can't be told which columns the table is clustered by: they have to get some.
pub(super) fn stats(base: &Snapshot) -> Result<StatsConfig, OpError> {
    let columns = base.clustering_columns();
    let domain = base.domains().find(|d| d.domain == "delta.clustering");
    if let Some(domain) = domain
        && columns.is_empty()
        && !says_none(&domain.configuration)
    {
        return Err(TableError::Malformed {
            version: base.version(),
            what: "domain delta.clustering",
            reason: domain.configuration.clone(),
        }
        .into());
    }
    let config = StatsConfig::from_configuration(&base.metadata().configuration);
    Ok(config.with_clustering(columns))
}

/// Whether a clustering domain names no column, as it does after `CLUSTER BY NONE`.
fn says_none(configuration: &str) -> bool {
    let value = crate::schema::json::from_slice(configuration.as_bytes()).unwrap_or_default();
    value["clusteringColumns"]
        .as_array()
        .is_some_and(Vec::is_empty)
}

/// The columns of the table's files that keep row ids; `None` where row tracking is not enabled, or no file can
/// have them.
///
/// # Errors
/// [`TableError::Malformed`] when a column of the table has the name of one.
pub(super) fn hidden(base: &Snapshot) -> Result<Option<Materialized<'_>>, OpError> {
    if !protocol::row_tracking_enabled(base.protocol(), base.metadata()) {
        return Ok(None);
    }
    // Only who rewrites a file needs them, and says so then.
    let Ok(columns) = protocol::materialized_columns(base.metadata()) else {
        return Ok(None);
    };
    let both = [columns.row_id, columns.row_commit_version];
    let fields = base.schema().fields.iter();
    let mut names = fields.flat_map(|f| [f.name.as_str(), f.physical_name()]);
    let clash = names.find(|name| both.contains(name));
    if clash.is_some() || columns.row_id == columns.row_commit_version {
        return Err(TableError::Malformed {
            version: base.version(),
            what: "row tracking",
            reason: format!("{both:?} must be two columns that the table does not have"),
        }
        .into());
    }
    Ok(Some(columns))
}

/// The directory that stands in place of partition directories: with column mapping, whose names are not to show,
/// and with `delta.randomizeFilePrefixes`.
pub(super) fn prefix(metadata: &Metadata, env: &Env) -> Option<String> {
    let mapped = protocol::mapping_mode(metadata) != MappingMode::None;
    if !mapped && !protocol::flag(metadata, "delta.randomizeFilePrefixes") {
        return None;
    }
    let length = metadata
        .configuration
        .get("delta.randomPrefixLength")
        .and_then(|n| n.trim().parse().ok())
        .filter(|n| (1..=MAX_PREFIX_CHARS).contains(n));
    let id = env.uuid().simple().to_string();
    let from = id.len().saturating_sub(length.unwrap_or(PREFIX_CHARS));
    id.get(from..).map(str::to_owned)
}
