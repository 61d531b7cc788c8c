//! A new table from the first file that is dropped into an empty directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::append::{Here, Placed, done};
use super::{Append, Appended, OpError};
use crate::datafile::{MappingMode, StatsConfig, Target, inspect, table_schema};
use crate::env::Env;
use crate::log::{Action, Format, Metadata};
use crate::schema::StructType;
use crate::schema::mapping::{self, FORBIDDEN, MAPPING_MODE, MAX_COLUMN_ID};
use crate::settings::TableFeatures;
use crate::store::Dir;
use crate::table::{Operation, Staged, Table, create, protocol};

/// Creates a table with the file's schema and the file's rows as version 0.
///
/// # Errors
/// [`OpError`]; [`crate::table::TableError::Created`] when somebody else created it meanwhile.
pub fn create_from(
    dir: &Dir,
    env: &Env,
    request: &Append<'_>,
    features: TableFeatures,
) -> Result<(Table, Appended), OpError> {
    let file = inspect(request.input).map_err(|e| OpError::Input(Box::new(e)))?;
    let mut schema = table_schema(&file)?;
    if schema.fields.is_empty() {
        return Err(OpError::NoColumns);
    }
    let configuration = configure(features, &mut schema, env);
    let metadata = Metadata {
        id: env.uuid().to_string(),
        name: None,
        description: None,
        format: Format::default(),
        schema_string: schema.to_json(),
        partition_columns: Vec::new(),
        created_time: Some(env.now()),
        configuration,
        unknown: serde_json::Map::new(),
    };
    let mapping = protocol::mapping_mode(&metadata);
    if mapping == MappingMode::None {
        check_names(&schema)?;
    }
    let target = Target {
        schema: schema.clone(),
        partition_columns: Vec::new(),
        fixed: request.fixed.clone(),
        stats: StatsConfig::from_configuration(&metadata.configuration),
        mapping,
        hidden: Vec::new(),
        materialized: false,
    };
    let protocol = protocol::new_table(&metadata, &schema)?;
    let here = Here {
        dir,
        env,
        metadata: &metadata,
    };
    let placed = Placed::place(&here, &target, None, request)?;
    let mut actions = vec![Action::Protocol(protocol), Action::MetaData(metadata)];
    actions.extend(placed.adds.iter().cloned().map(Action::Add));
    let staged = Staged::append(
        actions,
        Operation {
            name: "CREATE TABLE AS SELECT",
            parameters: vec![
                ("partitionBy", "[]".to_owned()),
                ("isManaged", "false".to_owned()),
                ("file", request.name.to_owned()),
            ],
            metrics: placed.metrics(None),
            user_metadata: None,
        },
    );
    match create(dir, env, &staged) {
        Ok(table) => {
            let snapshot = table.snapshot();
            let appended = done(
                "CREATE TABLE AS SELECT",
                placed.rows,
                Some((Arc::clone(&snapshot), staged)),
            );
            Ok((table, appended))
        }
        Err(error) => {
            let error = OpError::from(error);
            if !super::is_unknown(&error) {
                placed.discard_in(dir);
            }
            Err(error)
        }
    }
}

/// The properties of a new table; with column mapping the schema gets its ids and physical names.
fn configure(
    features: TableFeatures,
    schema: &mut StructType,
    env: &Env,
) -> BTreeMap<String, String> {
    let mut properties = vec![("deltafs.autoUpgrade", "true".to_owned())];
    match features {
        TableFeatures::Minimal => {}
        TableFeatures::Default => {
            properties.push(("delta.enableDeletionVectors", "true".to_owned()));
        }
        TableFeatures::Modern => {
            let last = mapping::assign(schema, 0, &mut || env.uuid().to_string());
            properties.extend([
                ("delta.enableDeletionVectors", "true".to_owned()),
                (MAPPING_MODE, "name".to_owned()),
                (MAX_COLUMN_ID, last.to_string()),
                ("delta.enableInCommitTimestamps", "true".to_owned()),
                ("delta.enableRowTracking", "true".to_owned()),
                (
                    protocol::ROW_ID_COLUMN,
                    format!("_row-id-col-{}", env.uuid()),
                ),
                (
                    protocol::ROW_VERSION_COLUMN,
                    format!("_row-commit-version-col-{}", env.uuid()),
                ),
                ("delta.checkpointPolicy", "v2".to_owned()),
            ]);
        }
    }
    let properties = properties.into_iter();
    properties.map(|(k, v)| (k.to_owned(), v)).collect()
}

fn check_names(schema: &StructType) -> Result<(), OpError> {
    let mut bad = None;
    schema.any_field(&mut |f| {
        if f.name.contains(FORBIDDEN) {
            bad = Some(f.name.clone());
        }
        bad.is_some()
    });
    match bad {
        Some(name) => Err(OpError::ColumnName(name)),
        None => Ok(()),
    }
}
