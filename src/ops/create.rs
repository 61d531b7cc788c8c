//! A new table from the first file that is dropped into an empty directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::append::{Placed, done};
use super::{Append, Appended, OpError};
use crate::datafile::{MappingMode, StatsConfig, Target, inspect, table_schema};
use crate::env::Env;
use crate::log::{Action, Format, Metadata};
use crate::schema::StructType;
use crate::settings::TableFeatures;
use crate::store::Dir;
use crate::table::{Operation, Staged, Table, create, protocol};

/// Characters that Delta takes in column names only with column mapping (PROTOCOL.md C).
const FORBIDDEN: &[char] = &[' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='];

/// Creates a table with the file's schema and the file's rows as version 0.
///
/// # Errors
/// [`OpError`]; [`crate::table::TableError::Conflict`] at version 0 when somebody else created it meanwhile.
pub fn create_from(
    dir: &Dir,
    env: &Env,
    request: &Append<'_>,
    features: TableFeatures,
) -> Result<(Table, Appended), OpError> {
    let file = inspect(request.input).map_err(|e| OpError::Input(Box::new(e)))?;
    let schema = table_schema(&file)?;
    if schema.fields.is_empty() {
        return Err(OpError::NoColumns);
    }
    check_names(&schema)?;
    let (reader, vectors) = match features {
        TableFeatures::Default => (vec!["deletionVectors"], true),
        TableFeatures::Minimal => (Vec::new(), false),
        TableFeatures::Modern => return Err(OpError::ModernFeatures),
    };
    let mut configuration = BTreeMap::from([("deltafs.autoUpgrade".to_owned(), "true".to_owned())]);
    if vectors {
        configuration.insert("delta.enableDeletionVectors".to_owned(), "true".to_owned());
    }
    let now = env.now();
    let target = Target {
        schema: schema.clone(),
        partition_columns: Vec::new(),
        fixed: request.fixed.clone(),
        stats: StatsConfig::from_configuration(&configuration),
        mapping: MappingMode::None,
    };
    let placed = Placed::place(dir, &target, None, request, now)?;
    let metadata = Metadata {
        id: env.uuid().to_string(),
        name: None,
        description: None,
        format: Format::default(),
        schema_string: schema.to_json(),
        partition_columns: Vec::new(),
        created_time: Some(now),
        configuration,
        unknown: serde_json::Map::new(),
    };
    let mut actions = vec![
        Action::Protocol(protocol::new_table(&schema, reader, Vec::new())),
        Action::MetaData(metadata),
    ];
    actions.extend(placed.adds.iter().cloned().map(Action::Add));
    let staged = Staged {
        actions,
        operation: Operation {
            name: "CREATE TABLE AS SELECT",
            parameters: vec![
                ("partitionBy", "[]".to_owned()),
                ("isManaged", "false".to_owned()),
                ("file", request.name.to_owned()),
            ],
            metrics: placed.metrics(None),
            user_metadata: None,
        },
        blind: true,
        absent: None,
    };
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
