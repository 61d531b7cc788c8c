//! Row ids of what a commit adds (PROTOCOL.md H, F2 step 5). They depend on what was committed before: each attempt
//! at a version numbers anew.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::Int64Type;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{DataPath, LiveFile, Snapshot, Table, TableError, protocol};
use crate::datafile::{DataFileError, Reader, inspect};
use crate::log::{Action, Add, DomainMetadata};
use crate::schema::{DataType, Primitive, StructField, StructType};
use crate::store::Dir;

/// Rows read at a time.
const BATCH_ROWS: usize = 16_384;

/// The domain of the watermark.
pub(super) const DOMAIN: &str = "delta.rowTracking";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Watermark {
    /// The highest row id ever given.
    row_id_high_water_mark: i64,
}

/// Numbers the rows of the adds among `actions` that have no ids yet, and adds the new watermark. A live file that
/// is added again keeps its ids and its version.
///
/// # Errors
/// [`TableError::Malformed`] when rows can't be counted, or ids would be given twice.
pub(super) fn assign(
    dir: &Dir,
    base: Option<&Snapshot>,
    actions: &mut Vec<Action>,
    version: u64,
) -> Result<(), TableError> {
    let bad = |what: &'static str, reason: String| TableError::Malformed {
        version,
        what,
        reason,
    };
    let given = match base {
        Some(base) => watermark(base)?,
        None => -1,
    };
    let commit = i64::try_from(version).unwrap_or(i64::MAX);
    let mut mark = given;
    for action in actions.iter_mut() {
        let Action::Add(add) = action else { continue };
        let path = DataPath::parse(&add.path, dir.path());
        if let Some(live) = base.and_then(|b| b.live_file(&path)) {
            add.base_row_id = live.add.base_row_id;
            add.default_row_commit_version = live.add.default_row_commit_version;
        }
        if let Some(id) = add.base_row_id {
            let rows = add.num_records().unwrap_or(0);
            if id < 0 || last_id(id, rows).is_none_or(|last| last > given) {
                let path = &add.path;
                return Err(bad(
                    "add",
                    format!("{path} has the row ids from {id} on, which are still to be given"),
                ));
            }
            add.default_row_commit_version.get_or_insert(commit);
            continue;
        }
        let rows = rows_of(dir, add, &path).map_err(|reason| bad("add", reason))?;
        let first = mark.checked_add(1);
        let last = first.and_then(|first| last_id(first, rows));
        let (Some(first), Some(last)) = (first, last) else {
            return Err(bad("add", format!("no row ids are left after {mark}")));
        };
        add.base_row_id = Some(first);
        add.default_row_commit_version = Some(commit);
        mark = last;
    }
    let known = base.is_some_and(|b| b.domains().any(|d| d.domain == DOMAIN));
    let any = actions.iter().any(|a| matches!(a, Action::Add(_)));
    if mark > given || (any && !known) {
        let configuration = serde_json::to_string(&Watermark {
            row_id_high_water_mark: mark,
        });
        actions.push(Action::DomainMetadata(DomainMetadata {
            domain: DOMAIN.to_owned(),
            configuration: configuration.map_err(|e| bad("domainMetadata", e.to_string()))?,
            removed: false,
        }));
    }
    Ok(())
}

/// The ids of the live rows of a file by their physical positions, in the order of the file: what its hidden column
/// says, else its entry in the log. `None` for a row that has none.
///
/// # Errors
/// [`TableError`] when the file or its vector can't be read.
pub(super) fn read(
    table: &Table,
    snapshot: &Snapshot,
    file: &LiveFile,
    mut sink: impl FnMut(u64, Option<i64>),
) -> Result<(), TableError> {
    let DataPath::Inside(path) = &file.path else {
        return Err(TableError::Outside(file.path.key().to_owned()));
    };
    let column = protocol::materialized_columns(snapshot.metadata())?.row_id;
    let long = DataType::Primitive(Primitive::Long);
    let schema = StructType {
        fields: vec![StructField::new(column, long, true)],
    };
    let unreadable = |e: DataFileError| TableError::DataFile {
        path: path.clone(),
        source: Box::new(e),
    };
    let dead = table.dead_rows(file)?;
    let reader = Reader::open(
        table.dir.open_file(Path::new(path))?,
        &schema,
        &[column.to_owned()],
        &BTreeMap::new(),
        snapshot.mapping(),
        Some(&dead),
        BATCH_ROWS,
    );
    for batch in reader.map_err(unreadable)? {
        let (batch, positions) = batch.map_err(unreadable)?;
        let ids = batch.column(0).as_primitive_opt::<Int64Type>();
        for (index, row) in positions.iter().enumerate() {
            let stored = ids.filter(|ids| index < ids.len() && ids.is_valid(index));
            let fresh = || file.add.base_row_id?.checked_add(i64::try_from(row).ok()?);
            sink(row, stored.map(|ids| ids.value(index)).or_else(fresh));
        }
    }
    Ok(())
}

/// The id of the last of `rows` rows; the one before `first` for none.
fn last_id(first: i64, rows: u64) -> Option<i64> {
    first.checked_add(i64::try_from(rows).ok()?)?.checked_sub(1)
}

/// The highest row id that was given so far, -1 for none.
fn watermark(base: &Snapshot) -> Result<i64, TableError> {
    let bad = |reason: String| TableError::Malformed {
        version: base.version(),
        what: "row id watermark",
        reason,
    };
    match base.domains().find(|d| d.domain == DOMAIN) {
        Some(domain) => match serde_json::from_str::<Watermark>(&domain.configuration) {
            Ok(mark) if mark.row_id_high_water_mark >= -1 => Ok(mark.row_id_high_water_mark),
            _ => Err(bad(domain.configuration.clone())),
        },
        // Only a table that never gave one has none.
        None if base.live_files().any(|f| f.add.base_row_id.is_some()) => Err(bad(format!(
            "files have row ids, but there is no domain {DOMAIN}"
        ))),
        None => Ok(-1),
    }
}

/// Physical rows, counted where the statistics don't; they do afterwards.
fn rows_of(dir: &Dir, add: &mut Add, path: &DataPath) -> Result<u64, String> {
    if let Some(rows) = add.num_records() {
        return Ok(rows);
    }
    let DataPath::Inside(inside) = path else {
        return Err(format!(
            "{} has no numRecords, and is not in the table's directory to be counted",
            add.path
        ));
    };
    let counted = dir
        .open_file(Path::new(inside))
        .map_err(|e| e.to_string())
        .and_then(|file| inspect(&file).map_err(|e| e.to_string()));
    let rows = counted
        .map_err(|e| format!("{} has no numRecords, and can't be counted: {e}", add.path))?
        .rows;
    let mut fields: BTreeMap<String, Box<RawValue>> = add
        .stats
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    if let Ok(count) = RawValue::from_string(rows.to_string()) {
        fields.insert("numRecords".to_owned(), count);
    }
    add.stats = serde_json::to_string(&fields).ok();
    Ok(rows)
}
