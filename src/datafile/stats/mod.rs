//! Statistics of a data file as Delta's log has them (PROTOCOL.md E): which columns, their bounds and NULLs,
//! as JSON out and in.

mod bound;
mod build;
mod footer;
mod parse;
#[cfg(test)]
mod tests;
mod widen;

pub use build::StatsBuilder;
pub use footer::{Partial, footer_stats};
pub use parse::{FileStats, count, lower_bound, upper_bound};

use std::collections::{BTreeMap, BTreeSet};

use super::conform::{is_partition, same_name};
use crate::schema::{DataType, Primitive, StructType};

const STATS_COLUMNS: &str = "delta.dataSkippingStatsColumns";
const INDEXED_COLUMNS: &str = "delta.dataSkippingNumIndexedCols";
const DEFAULT_INDEXED: usize = 32;

/// Which columns get statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsConfig {
    select: Select,
    /// Physical paths that get statistics anyway.
    always: Vec<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Select {
    /// Logical paths; a struct means all of its leaves.
    Named(Vec<Vec<String>>),
    /// So many leaves in schema order.
    First(usize),
    All,
}

impl Default for StatsConfig {
    fn default() -> Self {
        StatsConfig {
            select: Select::First(DEFAULT_INDEXED),
            always: Vec::new(),
        }
    }
}

impl StatsConfig {
    /// From the table's properties: `delta.dataSkippingStatsColumns` (names between commas, dots between
    /// levels, backticks around odd names) wins over `delta.dataSkippingNumIndexedCols` (default 32, -1 for
    /// all). A number that is none counts as the default.
    pub fn from_configuration(configuration: &BTreeMap<String, String>) -> Self {
        let select = match configuration.get(STATS_COLUMNS) {
            Some(names) => Select::Named(parse_names(names)),
            None => match configuration
                .get(INDEXED_COLUMNS)
                .map(|n| n.trim().parse::<i64>())
            {
                Some(Ok(n)) => usize::try_from(n).map_or(Select::All, Select::First),
                Some(Err(_)) | None => Select::First(DEFAULT_INDEXED),
            },
        };
        StatsConfig {
            select,
            always: Vec::new(),
        }
    }

    /// Clustering columns get statistics always; `paths` are physical.
    #[must_use]
    pub fn with_clustering(mut self, paths: Vec<Vec<String>>) -> Self {
        self.always = paths;
        self
    }

    /// The part of `schema` that gets statistics: what typed statistics of a checkpoint have columns for.
    pub fn columns(&self, schema: &StructType, partition_columns: &[String]) -> StructType {
        let leaves = self.leaves(schema, partition_columns);
        let paths = leaves.into_iter().map(|leaf| leaf.physical).collect();
        only(schema, &mut Vec::new(), &paths)
    }

    /// The leaves of `schema` that get statistics, in schema order.
    fn leaves(&self, schema: &StructType, partition_columns: &[String]) -> Vec<Leaf> {
        let mut all = Vec::new();
        for field in &schema.fields {
            if !is_partition(partition_columns, &field.name) {
                let path = (
                    vec![field.name.clone()],
                    vec![field.physical_name().to_owned()],
                );
                collect(&field.data_type, path, &mut all);
            }
        }
        let wanted = |index: usize, leaf: &Leaf| match &self.select {
            Select::All => true,
            Select::First(n) => index < *n,
            Select::Named(names) => names.iter().any(|n| starts_with(&leaf.logical, n)),
        };
        let always = |leaf: &Leaf| self.always.contains(&leaf.physical);
        all.into_iter()
            .enumerate()
            .filter(|(index, leaf)| wanted(*index, leaf) || always(leaf))
            .map(|(_, leaf)| leaf)
            .filter(|leaf| leaf.data_type != DataType::Primitive(Primitive::Void))
            .collect()
    }
}

/// A column with statistics: anything but a struct.
#[derive(Debug, Clone)]
struct Leaf {
    logical: Vec<String>,
    physical: Vec<String>,
    data_type: DataType,
}

impl Leaf {
    /// Whether min and max are kept; others have a NULL count only.
    fn has_bounds(&self) -> bool {
        match &self.data_type {
            DataType::Primitive(p) => match p {
                Primitive::String
                | Primitive::Long
                | Primitive::Integer
                | Primitive::Short
                | Primitive::Byte
                | Primitive::Float
                | Primitive::Double
                | Primitive::Decimal(..)
                | Primitive::Date
                | Primitive::Timestamp
                | Primitive::TimestampNtz => true,
                Primitive::Boolean
                | Primitive::Binary
                | Primitive::Void
                | Primitive::Variant
                | Primitive::Other(_) => false,
            },
            DataType::Struct(_) | DataType::Array(_) | DataType::Map(_) => false,
        }
    }
}

fn collect(data_type: &DataType, path: (Vec<String>, Vec<String>), all: &mut Vec<Leaf>) {
    let (logical, physical) = path;
    match data_type {
        DataType::Struct(fields) => {
            for field in &fields.fields {
                let mut inner = (logical.clone(), physical.clone());
                inner.0.push(field.name.clone());
                inner.1.push(field.physical_name().to_owned());
                collect(&field.data_type, inner, all);
            }
        }
        DataType::Primitive(_) | DataType::Array(_) | DataType::Map(_) => all.push(Leaf {
            logical,
            physical,
            data_type: data_type.clone(),
        }),
    }
}

/// The fields on the physical `paths`; structs without any are left out.
fn only(schema: &StructType, at: &mut Vec<String>, paths: &BTreeSet<Vec<String>>) -> StructType {
    let mut fields = Vec::new();
    for field in &schema.fields {
        at.push(field.physical_name().to_owned());
        match &field.data_type {
            DataType::Struct(inner) => {
                let inner = only(inner, at, paths);
                if !inner.fields.is_empty() {
                    let mut field = field.clone();
                    field.data_type = DataType::Struct(inner);
                    fields.push(field);
                }
            }
            DataType::Primitive(_) | DataType::Array(_) | DataType::Map(_) => {
                if paths.contains(at) {
                    fields.push(field.clone());
                }
            }
        }
        at.pop();
    }
    StructType { fields }
}

fn starts_with(path: &[String], prefix: &[String]) -> bool {
    !prefix.is_empty()
        && path.len() >= prefix.len()
        && path.iter().zip(prefix).all(|(a, b)| same_name(a, b))
}

/// Paths between commas; a doubled backtick inside backticks is one.
fn parse_names(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut path = Vec::new();
    let mut name = String::new();
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '`' if quoted && chars.peek() == Some(&'`') => {
                chars.next();
                name.push('`');
            }
            '`' => quoted = !quoted,
            '.' if !quoted => path.push(std::mem::take(&mut name)),
            ',' if !quoted => {
                path.push(std::mem::take(&mut name));
                paths.push(std::mem::take(&mut path));
            }
            c if !quoted && c.is_whitespace() && name.is_empty() => {}
            c => name.push(c),
        }
    }
    path.push(name);
    paths.push(path);
    for name in paths.iter_mut().flatten() {
        let trimmed = name.trim_end();
        if trimmed.len() < name.len() {
            *name = trimmed.to_owned();
        }
    }
    paths.retain(|path| path.iter().all(|name| !name.is_empty()));
    paths
}
