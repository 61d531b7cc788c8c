//! Single files by name: `rm` removes the rows of one, `mv` changes its visible name.

use std::collections::BTreeMap;

use super::{OpError, Report, Start, run};
use crate::env::Millis;
use crate::log::Action;
use crate::table::{DataPath, LiveFile, NAME_TAG, Operation, Reads, Staged, Table};

/// Removes a live file with all its rows, whatever its deletion vector is by then.
///
/// # Errors
/// [`OpError::Gone`] when it is not live any more; [`OpError::Table`].
pub fn remove(table: &Table, path: &DataPath) -> Result<Report, OpError> {
    let mut metrics = BTreeMap::new();
    let committed = run(table, Start::default(), |base| {
        base.check_write()?;
        let file = base
            .live_file(path)
            .ok_or_else(|| OpError::Gone(path.key().to_owned()))?;
        let staged = removal(&file, table.env().now());
        metrics.clone_from(&staged.operation.metrics);
        Ok(Some(staged))
    })?;
    Ok(report("DELETE", committed, metrics))
}

/// What removes a live file.
pub(super) fn removal(file: &LiveFile, now: Millis) -> Staged {
    let mut operation = Operation::new("DELETE");
    operation.parameters = vec![
        ("predicate", "[]".to_owned()),
        ("file", file.visible.to_string()),
    ];
    operation.metrics = BTreeMap::from([
        ("numRemovedFiles", 1),
        ("numRemovedBytes", u64::try_from(file.add.size).unwrap_or(0)),
    ]);
    if let Some(rows) = live_rows(file) {
        operation.metrics.insert("numDeletedRows", rows);
    }
    let remove = Action::Remove(file.add.to_remove(now, true));
    Staged::with(vec![remove], operation, Reads::Restage)
}

/// Changes the visible name of a live file. No row changes.
///
/// # Errors
/// [`OpError::Gone`] when it is not live any more; [`OpError::Table`].
pub fn rename(table: &Table, path: &DataPath, name: &str) -> Result<Report, OpError> {
    let committed = run(table, Start::default(), |base| {
        base.check_write()?;
        let file = base
            .live_file(path)
            .ok_or_else(|| OpError::Gone(path.key().to_owned()))?;
        let mut add = file.add.clone();
        add.data_change = false;
        add.tags
            .get_or_insert_default()
            .insert(NAME_TAG.to_owned(), Some(name.to_owned()));
        Ok(Some(Staged::with(
            vec![Action::Add(add)],
            Operation {
                name: "RENAME FILE",
                parameters: vec![("from", file.visible.to_string()), ("to", name.to_owned())],
                metrics: BTreeMap::new(),
                user_metadata: None,
            },
            Reads::Restage,
        )))
    })?;
    Ok(report("RENAME FILE", committed, BTreeMap::new()))
}

fn report(
    operation: &'static str,
    committed: Option<(std::sync::Arc<crate::table::Snapshot>, Staged)>,
    metrics: BTreeMap<&'static str, u64>,
) -> Report {
    let snapshot = committed.map(|(snapshot, _)| snapshot);
    Report {
        operation,
        version: snapshot.as_ref().map(|s| s.version()),
        metrics,
        note: None,
        snapshot,
    }
}

/// Rows of a file that are not deleted; `None` when its statistics don't count them.
pub(super) fn live_rows(file: &LiveFile) -> Option<u64> {
    Some(
        file.add
            .num_records()?
            .saturating_sub(file.add.deleted_rows()),
    )
}
