//! The condition of a statement as those see it who check for conflicts: asked about the files and rows of others.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array as _, BooleanArray};

use super::{OpError, rewrite};
use crate::deletion_vector::RowSet;
use crate::engine::{FileFacts, NoBounds, Predicate, Verdict};
use crate::log::Add;
use crate::schema::partition;
use crate::table::{Condition, LiveFile, Snapshot, Table};

/// The rows for which a predicate is true.
#[derive(Debug, Clone)]
pub(super) struct Where(pub(super) Predicate);

impl Where {
    /// What the partition values alone say of a file.
    fn verdict(&self, reading: &Snapshot, file: &Add) -> Result<Verdict, OpError> {
        let mut values = BTreeMap::new();
        for column in reading.partition_columns() {
            let Some(field) = reading.schema().field(column) else {
                return Ok(Verdict::SomeRows);
            };
            let text = reading.partition_value(file, column);
            values.insert(
                column.clone(),
                partition::parse_value(text, &field.data_type)?,
            );
        }
        let facts = FileFacts {
            partition: values,
            num_records: None,
            bounds: &NoBounds,
        };
        let verdicts = self.0.verdict(&[facts])?;
        Ok(verdicts.first().copied().unwrap_or(Verdict::SomeRows))
    }

    fn count(
        &self,
        table: &Table,
        view: &Snapshot,
        file: &LiveFile,
        among: Option<&RowSet>,
    ) -> Result<u64, OpError> {
        let dead = table.dead_rows(file)?;
        let schema = view.schema();
        let mut count = 0;
        for batch in rewrite::open(table, view, file, schema, self.0.columns(), &dead)? {
            let (batch, positions) = batch.map_err(|e| rewrite::in_file(file, e))?;
            let hits = self.0.evaluate(&batch)?;
            for (index, row) in positions.iter().enumerate() {
                if is_hit(&hits, index) && among.is_none_or(|rows| rows.contains(row)) {
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}

impl Condition for Where {
    fn may_select(&self, reading: &Snapshot, file: &Add) -> bool {
        // Whatever can't be told is a yes: an odd value of somebody else must not hide a conflict.
        self.verdict(reading, file)
            .map_or(true, |verdict| verdict != Verdict::NoRow)
    }

    fn is_row_local(&self) -> bool {
        self.0.is_row_local() && !self.0.uses_complex_type()
    }

    fn selected(
        &self,
        table: &Table,
        view: &Snapshot,
        file: &LiveFile,
        among: Option<&RowSet>,
    ) -> Result<u64, String> {
        self.count(table, view, file, among)
            .map_err(|e| e.to_string())
    }
}

/// Whether the answer for a row is yes; NULL is none.
pub(super) fn is_hit(hits: &BooleanArray, index: usize) -> bool {
    index < hits.len() && hits.is_valid(index) && hits.value(index)
}

/// As a transaction keeps it.
pub(super) fn shared(predicate: &Predicate) -> Arc<dyn Condition> {
    Arc::new(Where(predicate.clone()))
}
