//! Statistics taken from a Parquet footer, as far as it can be trusted.

use parquet::basic::{ColumnOrder, SortOrder};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;

use super::build::Column;
use super::{Leaf, StatsBuilder, StatsConfig};
use crate::schema::{DataType, Primitive, Scalar, StructType};

/// What the footer knows, and what only the rows do.
#[derive(Debug, Clone)]
pub struct Partial {
    /// Complete but for the columns of `scan`; give it batches with (at least) those.
    pub builder: StatsBuilder,
    /// Top-level columns whose values have to be read.
    pub scan: Vec<String>,
}

/// Statistics of a file whose columns are exactly the table's, from its footer.
///
/// A count or bound that the footer lacks is unknown, never 0 (D50). Floats are always read: Parquet's bounds
/// hide NaN. Bounds of strings and binary decimals need Parquet's defined order; they may be wider than the
/// values, as Delta's are, too.
pub fn footer_stats(
    metadata: &ParquetMetaData,
    schema: &StructType,
    partition_columns: &[String],
    config: &StatsConfig,
) -> Partial {
    let mut builder = StatsBuilder::new(schema, partition_columns, config);
    builder.rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
    builder.rows_known = true;
    let mut scan: Vec<String> = Vec::new();
    for column in &mut builder.columns {
        match from_footer(metadata, &column.leaf) {
            Some(mut known) => {
                known.done = true;
                *column = known;
            }
            None => {
                if let Some(top) = column.leaf.logical.first()
                    && !scan.contains(top)
                {
                    scan.push(top.clone());
                }
            }
        }
    }
    Partial { builder, scan }
}

fn from_footer(metadata: &ParquetMetaData, leaf: &Leaf) -> Option<Column> {
    let descriptor = metadata.file_metadata().schema_descr();
    let index = (0..descriptor.num_columns()).find(|i| {
        descriptor
            .column(*i)
            .path()
            .parts()
            .starts_with(&leaf.logical)
    })?;
    let mut column = Column::new(leaf.clone());
    let mut nulls = 0_u64;
    let groups = metadata.row_groups().iter().filter(|g| g.num_rows() > 0);
    for group in groups {
        let chunk = group.columns().get(index)?;
        let rows = u64::try_from(group.num_rows()).ok()?;
        let missing = match &leaf.data_type {
            DataType::Primitive(_) => leaf_nulls(chunk)?,
            DataType::Array(_) | DataType::Map(_) => list_nulls(group, chunk, leaf)?,
            DataType::Struct(_) => return None,
        };
        if missing > rows {
            return None;
        }
        nulls += missing;
        if leaf.has_bounds() && missing < rows {
            let order = metadata.file_metadata().column_order(index);
            let (min, max) = bounds(chunk, order, leaf)?;
            if super::bound::order(&min, &max)?.is_gt() {
                return None;
            }
            column.include(min, max);
        }
    }
    column.nulls = Some(nulls);
    Some(column)
}

fn leaf_nulls(chunk: &ColumnChunkMetaData) -> Option<u64> {
    if chunk.column_descr().max_def_level() == 0 {
        return Some(0);
    }
    chunk.statistics()?.null_count_opt()
}

/// NULL lists (not elements): counted by the definition levels, or none when no leaf below is NULL.
fn list_nulls(group: &RowGroupMetaData, chunk: &ColumnChunkMetaData, leaf: &Leaf) -> Option<u64> {
    if leaf_nulls(chunk) == Some(0) {
        return Some(0);
    }
    // The level from which on the list itself is there.
    let mut node = group.schema_descr().root_schema();
    let mut level = 0_usize;
    for name in &leaf.logical {
        if !node.is_group() {
            return None;
        }
        node = node.get_fields().iter().find(|f| f.name() == name)?;
        level += usize::from(node.is_optional());
    }
    if level == 0 {
        return Some(0);
    }
    let histogram = chunk.definition_level_histogram()?;
    let counts = histogram.values();
    let total = counts
        .iter()
        .try_fold(0_i64, |sum, n| sum.checked_add(*n))?;
    if total != chunk.num_values() || counts.iter().any(|n| *n < 0) {
        return None;
    }
    let missing: i64 = counts.get(..level)?.iter().sum();
    u64::try_from(missing).ok()
}

fn bounds(
    chunk: &ColumnChunkMetaData,
    order: ColumnOrder,
    leaf: &Leaf,
) -> Option<(Scalar, Scalar)> {
    let stats = chunk.statistics()?;
    let DataType::Primitive(primitive) = &leaf.data_type else {
        return None;
    };
    let ordered = |wanted: SortOrder| {
        !stats.is_min_max_deprecated()
            && matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(found) if found == wanted)
    };
    let one = |value: Value<'_>| scalar(primitive, value).filter(within_precision);
    match stats {
        Statistics::Int32(v) => Some((
            one(Value::Int(i64::from(*v.min_opt()?)))?,
            one(Value::Int(i64::from(*v.max_opt()?)))?,
        )),
        Statistics::Int64(v) => Some((
            one(Value::Int(*v.min_opt()?))?,
            one(Value::Int(*v.max_opt()?))?,
        )),
        Statistics::ByteArray(v) if ordered(SortOrder::UNSIGNED) => Some((
            one(Value::Bytes(v.min_opt()?.data()))?,
            one(Value::Bytes(v.max_opt()?.data()))?,
        )),
        Statistics::FixedLenByteArray(v) if ordered(SortOrder::SIGNED) => {
            let len = usize::try_from(chunk.column_descr().type_length()).ok()?;
            let (min, max) = (v.min_opt()?.data(), v.max_opt()?.data());
            if min.len() != len || max.len() != len {
                return None;
            }
            Some((one(Value::Bytes(min))?, one(Value::Bytes(max))?))
        }
        _ => None,
    }
}

enum Value<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

fn scalar(primitive: &Primitive, value: Value<'_>) -> Option<Scalar> {
    Some(match (primitive, value) {
        (Primitive::Long, Value::Int(v)) => Scalar::Long(v),
        (Primitive::Integer, Value::Int(v)) => Scalar::Integer(i32::try_from(v).ok()?),
        (Primitive::Short, Value::Int(v)) => Scalar::Short(i16::try_from(v).ok()?),
        (Primitive::Byte, Value::Int(v)) => Scalar::Byte(i8::try_from(v).ok()?),
        (Primitive::Date, Value::Int(v)) => Scalar::Date(i32::try_from(v).ok()?),
        (Primitive::Timestamp, Value::Int(v)) => Scalar::Timestamp(v),
        (Primitive::TimestampNtz, Value::Int(v)) => Scalar::TimestampNtz(v),
        (Primitive::Decimal(p, s), Value::Int(v)) => Scalar::Decimal(i128::from(v), *p, *s),
        (Primitive::Decimal(p, s), Value::Bytes(v)) => Scalar::Decimal(big_endian(v)?, *p, *s),
        (Primitive::String, Value::Bytes(v)) => {
            Scalar::String(std::str::from_utf8(v).ok()?.to_owned())
        }
        _ => return None,
    })
}

/// A decimal of more digits than its type has is no bound that the log could say.
fn within_precision(value: &Scalar) -> bool {
    match value {
        Scalar::Decimal(v, precision, _) => 10_u128
            .checked_pow(u32::from(*precision))
            .is_none_or(|limit| v.unsigned_abs() < limit),
        _ => true,
    }
}

/// A two's complement number.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    if bytes.is_empty() || bytes.len() > 16 {
        return None;
    }
    let sign = if bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
    let mut full = [sign; 16];
    full.get_mut(16 - bytes.len()..)?.copy_from_slice(bytes);
    Some(i128::from_be_bytes(full))
}
