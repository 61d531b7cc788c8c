//! Statistics gathered from rows.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNumericType, AsArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowNativeType, DataType as Arrow, Date32Type, Decimal128Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};

use super::bound::{max_json, min_json, order};
use super::{Leaf, StatsConfig};
use crate::datafile::error::DataFileError;
use crate::schema::{DataType, Primitive, Scalar, StructType};

/// Statistics of one file, gathered batch by batch.
#[derive(Debug, Clone)]
pub struct StatsBuilder {
    pub(super) rows: u64,
    /// The rows are known already: batches do not add to them.
    pub(super) rows_known: bool,
    pub(super) columns: Vec<Column>,
}

#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) leaf: Leaf,
    pub(super) nulls: Option<u64>,
    pub(super) min: Option<Scalar>,
    pub(super) max: Option<Scalar>,
    /// No bound holds (NaN).
    pub(super) unbounded: bool,
    /// Complete: batches do not add to it.
    pub(super) done: bool,
}

impl Column {
    pub(super) fn new(leaf: Leaf) -> Self {
        Column {
            leaf,
            nulls: Some(0),
            min: None,
            max: None,
            unbounded: false,
            done: false,
        }
    }

    pub(super) fn include(&mut self, min: Scalar, max: Scalar) {
        include(&mut self.min, min, Ordering::Less);
        include(&mut self.max, max, Ordering::Greater);
    }
}

fn include(bound: &mut Option<Scalar>, value: Scalar, better: Ordering) {
    match bound {
        None => *bound = Some(value),
        Some(old) if order(&value, old) == Some(better) => *bound = Some(value),
        Some(_) => {}
    }
}

impl StatsBuilder {
    /// Gathers for a table's `schema`; batches are given by logical names, with or without partition columns.
    pub fn new(schema: &StructType, partition_columns: &[String], config: &StatsConfig) -> Self {
        StatsBuilder {
            rows: 0,
            rows_known: false,
            columns: config
                .leaves(schema, partition_columns)
                .into_iter()
                .map(Column::new)
                .collect(),
        }
    }

    /// Adds rows whose columns have the table's Arrow types, nullable or not.
    ///
    /// # Errors
    /// [`DataFileError::Rows`] when Arrow refuses an array.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<(), DataFileError> {
        if !self.rows_known {
            self.rows += batch.num_rows() as u64;
        }
        for column in self.columns.iter_mut().filter(|c| !c.done) {
            match leaf_array(batch, &column.leaf.logical)? {
                Some(array) => column.update(&array),
                // Not given: nothing is known.
                None => {
                    column.nulls = None;
                    column.unbounded = true;
                }
            }
        }
        Ok(())
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The text for `add.stats`, with physical names.
    pub fn finish(&self) -> String {
        let mut min = Node::default();
        let mut max = Node::default();
        let mut nulls = Node::default();
        for column in &self.columns {
            let path = &column.leaf.physical;
            if !column.unbounded {
                if let Some(text) = column.min.as_ref().and_then(min_json) {
                    min.insert(path, text);
                }
                if let Some(text) = column.max.as_ref().and_then(max_json) {
                    max.insert(path, text);
                }
            }
            if let Some(count) = column.nulls {
                nulls.insert(path, count.to_string());
            }
        }
        let mut out = format!("{{\"numRecords\":{}", self.rows);
        for (key, node) in [("minValues", min), ("maxValues", max), ("nullCount", nulls)] {
            let _ = write!(out, ",\"{key}\":");
            node.write(&mut out);
        }
        out.push_str(",\"tightBounds\":true}");
        out
    }
}

/// A nested JSON object whose leaves are finished text.
#[derive(Default)]
struct Node {
    text: Option<String>,
    children: Vec<(String, Node)>,
}

impl Node {
    fn insert(&mut self, path: &[String], text: String) {
        match path.split_first() {
            None => self.text = Some(text),
            Some((name, rest)) => {
                // Leaves come in schema order: siblings are neighbours.
                if self.children.last().is_none_or(|(last, _)| last != name) {
                    self.children.push((name.clone(), Node::default()));
                }
                if let Some((_, child)) = self.children.last_mut() {
                    child.insert(rest, text);
                }
            }
        }
    }

    fn write(&self, out: &mut String) {
        if let Some(text) = &self.text {
            out.push_str(text);
            return;
        }
        out.push('{');
        for (index, (name, child)) in self.children.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(&serde_json::to_string(name).unwrap_or_default());
            out.push(':');
            child.write(out);
        }
        out.push('}');
    }
}

/// The leaf of a path with the NULLs of its parents.
fn leaf_array(batch: &RecordBatch, path: &[String]) -> Result<Option<ArrayRef>, DataFileError> {
    let Some((top, rest)) = path.split_first() else {
        return Ok(None);
    };
    let Some(mut array) = batch.column_by_name(top).cloned() else {
        return Ok(None);
    };
    let mut nulls: Option<NullBuffer> = None;
    for name in rest {
        let Some(parent) = array.as_struct_opt() else {
            return Ok(None);
        };
        nulls = NullBuffer::union(nulls.as_ref(), parent.nulls());
        let Some(child) = parent.column_by_name(name) else {
            return Ok(None);
        };
        array = Arc::clone(child);
    }
    if nulls.as_ref().is_none_or(|n| n.null_count() == 0) {
        return Ok(Some(array));
    }
    let nulls = NullBuffer::union(nulls.as_ref(), array.logical_nulls().as_ref());
    if array.data_type() == &Arrow::Null {
        return Ok(Some(array));
    }
    let data = array.to_data().into_builder().nulls(nulls).build();
    let masked = data.map_err(DataFileError::rows)?;
    Ok(Some(arrow::array::make_array(masked)))
}

impl Column {
    fn update(&mut self, array: &ArrayRef) {
        let nulls = array.logical_null_count();
        self.nulls = self.nulls.map(|n| n + nulls as u64);
        if nulls == array.len() || self.unbounded || !self.leaf.has_bounds() {
            return;
        }
        match extremes(array, &self.leaf.data_type) {
            Some((min, max)) => self.include(min, max),
            None => self.unbounded = true,
        }
    }
}

/// Least and greatest value; `None` when there is no such thing.
fn extremes(array: &ArrayRef, data_type: &DataType) -> Option<(Scalar, Scalar)> {
    let DataType::Primitive(primitive) = data_type else {
        return None;
    };
    match primitive {
        Primitive::Long => pair::<Int64Type>(array, Scalar::Long),
        Primitive::Integer => pair::<Int32Type>(array, Scalar::Integer),
        Primitive::Short => pair::<Int16Type>(array, Scalar::Short),
        Primitive::Byte => pair::<Int8Type>(array, Scalar::Byte),
        Primitive::Date => pair::<Date32Type>(array, Scalar::Date),
        Primitive::Timestamp => pair::<TimestampMicrosecondType>(array, Scalar::Timestamp),
        Primitive::TimestampNtz => pair::<TimestampMicrosecondType>(array, Scalar::TimestampNtz),
        Primitive::Decimal(p, s) => pair::<Decimal128Type>(array, |v| Scalar::Decimal(v, *p, *s)),
        Primitive::Float => {
            let array = array.as_primitive_opt::<Float32Type>()?;
            let (min, max) = floats(array.iter().flatten(), f32::total_cmp, f32::is_nan)?;
            Some((Scalar::Float(min), Scalar::Float(max)))
        }
        Primitive::Double => {
            let array = array.as_primitive_opt::<Float64Type>()?;
            let (min, max) = floats(array.iter().flatten(), f64::total_cmp, f64::is_nan)?;
            Some((Scalar::Double(min), Scalar::Double(max)))
        }
        Primitive::String => {
            let array = array.as_string_opt::<i32>()?;
            let min = arrow::compute::min_string(array)?;
            let max = arrow::compute::max_string(array)?;
            Some((
                Scalar::String(min.to_owned()),
                Scalar::String(max.to_owned()),
            ))
        }
        Primitive::Boolean
        | Primitive::Binary
        | Primitive::Void
        | Primitive::Variant
        | Primitive::Other(_) => None,
    }
}

fn pair<T>(array: &ArrayRef, wrap: impl Fn(T::Native) -> Scalar) -> Option<(Scalar, Scalar)>
where
    T: ArrowNumericType,
    T::Native: ArrowNativeType,
{
    let array = array.as_primitive_opt::<T>()?;
    let min = arrow::compute::min(array)?;
    let max = arrow::compute::max(array)?;
    Some((wrap(min), wrap(max)))
}

/// `None` when a NaN is among them: it has no place in the order that all readers agree on.
fn floats<F: Copy>(
    values: impl Iterator<Item = F>,
    order: impl Fn(&F, &F) -> Ordering,
    is_nan: impl Fn(F) -> bool,
) -> Option<(F, F)> {
    let mut found: Option<(F, F)> = None;
    for value in values {
        if is_nan(value) {
            return None;
        }
        found = Some(match found {
            None => (value, value),
            Some((min, max)) => (
                if order(&value, &min).is_lt() {
                    value
                } else {
                    min
                },
                if order(&value, &max).is_gt() {
                    value
                } else {
                    max
                },
            ),
        });
    }
    found
}
