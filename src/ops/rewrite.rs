//! Copy-on-write: the rows of live files that stay, in a new file. Where row tracking is enabled they keep their
//! ids and the versions they were written in (PROTOCOL.md H).

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Int64Array, RecordBatch};
use arrow::datatypes::{Field, Int64Type, Schema};

use super::{OpError, layout};
use crate::datafile::{Columns, DataFileError, Positions, Reader, Writer, location, new_file_name};
use crate::deletion_vector::RowSet;
use crate::log::{Add, PartitionValues};
use crate::schema::{DataType, Primitive, StructField, StructType};
use crate::table::{DataPath, LiveFile, NAME_TAG, Snapshot, Table, TableError, protocol};

/// Rows read at a time.
const BATCH_ROWS: usize = 16_384;

/// Opens a live file for `columns` of `schema`, which is the table's or more. `dead` rows are left out.
///
/// # Errors
/// [`OpError`], naming the file.
pub(super) fn open(
    table: &Table,
    base: &Snapshot,
    file: &LiveFile,
    schema: &StructType,
    columns: &[String],
    dead: &RowSet,
) -> Result<Reader, OpError> {
    let path = match &file.path {
        DataPath::Inside(path) => path,
        DataPath::Outside(path) => return Err(TableError::Outside(path.clone()).into()),
    };
    let bytes = table.dir().open_file(Path::new(path)).map_err(|e| {
        if e.is_absent() {
            OpError::MissingFile {
                path: path.clone(),
                version: base.version(),
            }
        } else {
            e.into()
        }
    })?;
    Reader::open(
        bytes,
        schema,
        columns,
        &partition_values(base, &file.add),
        base.mapping(),
        Some(dead),
        BATCH_ROWS,
    )
    .map_err(|e| in_file(file, e))
}

pub(super) fn in_file(file: &LiveFile, source: DataFileError) -> OpError {
    OpError::File {
        path: file.visible.to_string(),
        source: Box::new(source),
    }
}

/// The partition values of a file under the keys that they should have: some writers use logical names.
fn partition_values(base: &Snapshot, add: &Add) -> PartitionValues {
    let columns = base.partition_columns().iter();
    let values = columns.map(|column| {
        let field = base.schema().field(column);
        let physical = field.map_or(column.as_str(), StructField::physical_name);
        let value = base.partition_value(add, column);
        (physical.to_owned(), value.map(str::to_owned))
    });
    values.collect()
}

/// A new data file of one partition that takes up rows of live files, one file after the other.
pub(super) struct Rewrite<'a> {
    table: &'a Table,
    base: &'a Snapshot,
    values: PartitionValues,
    /// The columns that keep row ids and row commit versions, where row tracking is enabled.
    hidden: Option<[&'a str; 2]>,
    /// The table's schema and the hidden columns.
    wide: StructType,
    /// What is read of each file.
    columns: Vec<String>,
    writer: Writer,
}

impl<'a> Rewrite<'a> {
    /// Starts a file for the partition of `file`.
    ///
    /// # Errors
    /// [`OpError`].
    pub(super) fn begin(
        table: &'a Table,
        base: &'a Snapshot,
        file: &LiveFile,
        scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
    ) -> Result<Self, OpError> {
        let values = partition_values(base, &file.add);
        let stored = base.schema().fields.iter();
        let stored = stored
            .filter(|f| layout::materialized(base) || !values.contains_key(f.physical_name()));
        let schema = StructType {
            fields: stored.cloned().collect(),
        };
        let hidden = if protocol::row_tracking_enabled(base.protocol(), base.metadata()) {
            let columns = protocol::materialized_columns(base.metadata())?;
            layout::hidden(base)?;
            Some([columns.row_id, columns.row_commit_version])
        } else {
            None
        };
        let names: &[&str] = hidden.as_ref().map_or(&[], |names| names);
        let mut wide = (**base.schema()).clone();
        let long = || DataType::Primitive(Primitive::Long);
        let fields = names.iter().map(|n| StructField::new(*n, long(), true));
        wide.fields.extend(fields);
        let mut columns: Vec<String> = schema.fields.iter().map(|f| f.name.clone()).collect();
        columns.extend(names.iter().map(|n| (*n).to_owned()));
        let staged = scratch().map_err(OpError::Staging)?;
        let content = Columns {
            schema: &schema,
            partition_columns: base.partition_columns(),
            hidden: names,
        };
        let writer = Writer::open(staged, &content, &layout::stats(base)?, base.mapping())?;
        Ok(Rewrite {
            table,
            base,
            values,
            hidden,
            wide,
            columns,
            writer,
        })
    }

    /// Appends the rows of `file` that are not in `dead`, in their order, and counts them. A `new` file is in no version
    /// yet: its rows get their ids when this one is committed.
    ///
    /// # Errors
    /// [`OpError`], naming the file; [`TableError::Malformed`] when rows have no ids that they could keep.
    pub(super) fn append(
        &mut self,
        file: &LiveFile,
        new: bool,
        dead: &RowSet,
    ) -> Result<u64, OpError> {
        let before = self.writer.rows();
        let identity = self.hidden.map(|columns| Identity {
            columns,
            path: &file.visible,
            version: self.base.version(),
            base_row_id: file.add.base_row_id,
            commit_version: file.add.default_row_commit_version,
            new,
        });
        for batch in open(self.table, self.base, file, &self.wide, &self.columns, dead)? {
            let (batch, positions) = batch.map_err(|e| in_file(file, e))?;
            match &identity {
                Some(identity) => self.writer.write(&identity.fill(&batch, &positions)?)?,
                None => self.writer.write(&batch)?,
            }
        }
        Ok(self.writer.rows().saturating_sub(before))
    }

    /// Rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.writer.rows()
    }

    /// Gives the file its place in the table's directory, and its entry; it is durable then.
    ///
    /// # Errors
    /// [`OpError`].
    pub(super) fn finish(self) -> Result<New, OpError> {
        let Rewrite { table, base, .. } = self;
        let written = self.writer.finish()?;
        let prefix = layout::prefix(base.metadata(), table.env());
        let place = location(
            &new_file_name(table.env().uuid()),
            base.schema(),
            base.partition_columns(),
            &self.values,
            prefix.as_deref(),
        );
        if let Some(parent) = Path::new(&place.relative).parent() {
            table.dir().create_dir_all(parent)?;
        }
        table
            .dir()
            .adopt(&written.file, Path::new(&place.relative))?;
        Ok(New {
            path: place.relative,
            add: Add {
                path: place.add_path,
                partition_values: self.values,
                size: i64::try_from(written.size).unwrap_or(i64::MAX),
                modification_time: table.env().now(),
                data_change: true,
                stats: Some(written.stats),
                tags: None,
                deletion_vector: None,
                base_row_id: None,
                default_row_commit_version: None,
                clustering_provider: None,
                unknown: serde_json::Map::new(),
            },
        })
    }
}

/// A file that lies in the table's directory and waits for the commit that refers to it.
pub(super) struct New {
    /// On the disk, relative to the table.
    pub(super) path: String,
    pub(super) add: Add,
}

/// Writes the rows of `file` that are not in `dead` to a new file and gives its entry and its rows. `written` gets
/// the path. A `new` file is in no version yet: its rows get their ids when the copy is committed.
///
/// # Errors
/// [`OpError`]; [`TableError::Malformed`] when rows have no ids that they could keep.
pub(super) fn copy(
    table: &Table,
    base: &Snapshot,
    file: &LiveFile,
    new: bool,
    dead: &RowSet,
    scratch: &(dyn Fn() -> std::io::Result<File> + Sync),
    written: &mut Vec<String>,
) -> Result<(Add, u64), OpError> {
    let mut rewrite = Rewrite::begin(table, base, file, scratch)?;
    let rows = rewrite.append(file, new, dead)?;
    let New { path, mut add } = rewrite.finish()?;
    written.push(path);
    // Its name stays; what else was said of the file need not be true of this one.
    let name = file.add.tags.as_ref().and_then(|tags| tags.get(NAME_TAG));
    add.tags = name.map(|name| [(NAME_TAG.to_owned(), name.clone())].into());
    Ok((add, rows))
}

/// Who the rows of a file are: what its hidden columns say, else its entry in the log.
struct Identity<'a> {
    /// The last columns of the batches: row ids, row commit versions.
    columns: [&'a str; 2],
    path: &'a str,
    version: u64,
    base_row_id: Option<i64>,
    commit_version: Option<i64>,
    /// Whether rows may have none yet.
    new: bool,
}

impl Identity<'_> {
    /// The batch with both columns complete. `positions` are its rows in the old file.
    fn fill(&self, batch: &RecordBatch, positions: &Positions) -> Result<RecordBatch, OpError> {
        let count = batch.num_columns().saturating_sub(2);
        let (stored, hidden) = batch.columns().split_at(count);
        let [ids, versions] = hidden else {
            return Err(self.unknown().into());
        };
        let fresh = positions.iter();
        let ids = self.column(
            ids,
            fresh.map(|row| self.base_row_id.and_then(|id| at(id, row))),
        )?;
        let versions = self.column(versions, positions.iter().map(|_| self.commit_version))?;
        let fields = batch.schema_ref().fields().iter().take(count).cloned();
        let own = self.columns.map(|n| {
            let field = Field::new(n, arrow::datatypes::DataType::Int64, true);
            Arc::new(field)
        });
        let schema = Schema::new(fields.chain(own).collect::<Vec<_>>());
        let columns = stored.iter().cloned().chain([ids, versions]).collect();
        RecordBatch::try_new(Arc::new(schema), columns)
            .map_err(|e| OpError::from(DataFileError::Rows(e)))
    }

    fn column(
        &self,
        found: &ArrayRef,
        fresh: impl Iterator<Item = Option<i64>>,
    ) -> Result<ArrayRef, TableError> {
        let found = found
            .as_primitive_opt::<Int64Type>()
            .ok_or_else(|| self.unknown())?;
        let mut values = Vec::with_capacity(found.len());
        for (index, fresh) in fresh.enumerate().take(found.len()) {
            let kept = found.is_valid(index).then(|| found.value(index));
            let value = kept.or(fresh);
            if value.is_none() && !self.new {
                return Err(self.unknown());
            }
            values.push(value);
        }
        Ok(Arc::new(Int64Array::from(values)))
    }

    fn unknown(&self) -> TableError {
        TableError::Malformed {
            version: self.version,
            what: "entry",
            reason: format!(
                "row tracking is enabled, but rows of {} have no ids",
                self.path
            ),
        }
    }
}

fn at(base_row_id: i64, row: u64) -> Option<i64> {
    base_row_id.checked_add(i64::try_from(row).ok()?)
}
