//! The log's statistics as the bounds that pruning asks for.

use super::prune::Bounds;
use crate::datafile::FileStats;
use crate::schema::{DataType, Scalar, StructType};

/// The statistics of one file as the log has them, by logical names.
#[derive(Debug, Clone, Copy)]
pub struct StatsBounds<'a> {
    stats: &'a FileStats<'a>,
    schema: &'a StructType,
}

impl<'a> StatsBounds<'a> {
    /// `schema` is the table's, whatever the types were when the file was written.
    pub fn new(stats: &'a FileStats<'a>, schema: &'a StructType) -> Self {
        StatsBounds { stats, schema }
    }

    /// Physical path and type of a logical path.
    fn physical(&self, column: &[String]) -> Option<(Vec<&str>, &DataType)> {
        let (first, rest) = column.split_first()?;
        let mut field = self.schema.field(first)?;
        let mut path = vec![field.physical_name()];
        for name in rest {
            let DataType::Struct(inner) = &field.data_type else {
                return None;
            };
            field = inner.field(name)?;
            path.push(field.physical_name());
        }
        Some((path, &field.data_type))
    }
}

impl Bounds for StatsBounds<'_> {
    fn min(&self, column: &[String]) -> Option<Scalar> {
        let (path, data_type) = self.physical(column)?;
        self.stats.min(&path, data_type)
    }

    fn max(&self, column: &[String]) -> Option<Scalar> {
        let (path, data_type) = self.physical(column)?;
        self.stats.max(&path, data_type)
    }

    fn null_count(&self, column: &[String]) -> Option<u64> {
        let (path, _) = self.physical(column)?;
        self.stats.null_count(&path)
    }
}

#[cfg(test)]
#[path = "prune_oracle.rs"]
mod oracle;
