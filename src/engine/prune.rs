//! Which files can hold a matching row, from partition values and statistics. Never says that a file with a
//! matching row has none: statistics are outer bounds, and what is unknown is kept.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::{DataType as Arrow, Field, Schema, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DataFusionError, Result as Engine, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, TryCast};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};

use crate::schema::{DataType, Primitive, Scalar, StructField, StructType, arrow_type};

use super::error::EngineError;
use super::expr::{Ask, Predicate, Rows};
use super::functions::opaque;
use super::session;
use super::typing::{Typing, path_of, physical};

/// Outer bounds of the values in one file. `column` is a path of logical names. `None` is unknown.
///
/// A bound may be wider than the values, never narrower: rounding is the implementer's to undo, and so is what text of
/// a column's former type is in the new one.
pub trait Bounds {
    /// At most every value that is not NULL.
    fn min(&self, column: &[String]) -> Option<Scalar>;
    /// At least every value that is not NULL.
    fn max(&self, column: &[String]) -> Option<Scalar>;
    /// How many rows are NULL; for a field of a struct, those of a NULL struct count.
    fn null_count(&self, column: &[String]) -> Option<u64>;
    /// Whether a float column surely has no NaN. Writers disagree on whether a bound covers NaN, which Spark takes
    /// for the largest value, so a maximum counts only if this is true.
    fn nan_free(&self, _column: &[String]) -> bool {
        false
    }
}

/// A file without statistics.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoBounds;

impl Bounds for NoBounds {
    fn min(&self, _column: &[String]) -> Option<Scalar> {
        None
    }

    fn max(&self, _column: &[String]) -> Option<Scalar> {
        None
    }

    fn null_count(&self, _column: &[String]) -> Option<u64> {
        None
    }
}

/// What is known of a file without reading it.
pub struct FileFacts<'a> {
    /// By logical name; NULL is [`Scalar::Null`]. A partition column that is missing here is unknown.
    pub partition: BTreeMap<String, Scalar>,
    /// Rows in the file, deleted ones included.
    pub num_records: Option<u64>,
    pub bounds: &'a dyn Bounds,
}

/// What a predicate says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It surely has no matching row.
    NoRow,
    /// It must be read.
    SomeRows,
    /// Every row matches.
    EveryRow,
}

impl Predicate {
    /// What the predicate says of each file, in order.
    ///
    /// # Errors
    /// [`EngineError::Evaluate`] when a predicate over partition columns fails on a value,
    /// [`EngineError::Schema`] when a partition value is not of its column's type.
    pub fn verdict(&self, files: &[FileFacts<'_>]) -> Result<Vec<Verdict>, EngineError> {
        if self.is_always_true() {
            return Ok(vec![Verdict::EveryRow; files.len()]);
        }
        let pruning = self.pruning();
        let mut verdicts = vec![Verdict::SomeRows; files.len()];
        if let Some(part) = &pruning.partition {
            match part.ask(files) {
                Ok(answers) => {
                    for (verdict, answer) in verdicts.iter_mut().zip(answers) {
                        *verdict = match answer {
                            Some(false) => Verdict::NoRow,
                            Some(true) if self.is_partition_only() => Verdict::EveryRow,
                            _ => Verdict::SomeRows,
                        };
                    }
                }
                Err(Ask::Rows(error)) => return Err(error),
                Err(Ask::Engine(error)) if self.is_partition_only() => {
                    return Err(EngineError::Evaluate {
                        predicate: self.text().to_owned(),
                        reason: error.strip_backtrace(),
                    });
                }
                // The rest of the predicate may keep such rows from being asked; reading them will tell.
                Err(Ask::Engine(_)) => {}
            }
        }
        if let Some(stats) = &pruning.stats {
            for (verdict, keep) in verdicts.iter_mut().zip(stats.keep(files)) {
                if !keep {
                    *verdict = Verdict::NoRow;
                }
            }
        }
        Ok(verdicts)
    }
}

/// How a predicate is asked about files; made at the first question.
#[derive(Debug)]
pub(super) struct Pruning {
    partition: Option<ByPartition>,
    stats: Option<ByStats>,
}

impl Pruning {
    pub(super) fn new(predicate: &Predicate) -> Self {
        let fields = StructType {
            fields: predicate.fields().to_vec(),
        };
        let of_partition = |name: &str| predicate.partition_columns().iter().any(|p| p == name);
        let mut exact = Vec::new();
        let mut bounded = Vec::new();
        let Some(logical) = refutable(predicate, &fields) else {
            return Pruning {
                partition: None,
                stats: None,
            };
        };
        for part in split_conjunction(&logical) {
            if part.is_volatile() {
                continue;
            }
            if part.column_refs().iter().all(|c| of_partition(&c.name)) {
                exact.push(part.clone());
            } else {
                bounded.push(part.clone());
            }
        }
        Pruning {
            partition: conjunction(exact).and_then(|e| ByPartition::new(&e, &fields)),
            stats: conjunction(bounded).and_then(|e| ByStats::new(e, &fields, &of_partition)),
        }
    }
}

fn refutable(predicate: &Predicate, fields: &StructType) -> Option<Expr> {
    let names: Vec<String> = fields.fields.iter().map(|f| f.name.clone()).collect();
    let scope = Rows::new(fields, &names).ok()?.scope().ok()?;
    let typing = Typing::new(session::state(), &scope);
    typing.refutable(predicate.logical().clone()).ok()
}

/// The part that partition values decide, evaluated on one row per file.
#[derive(Debug)]
struct ByPartition {
    rows: Rows,
    fields: Vec<StructField>,
    physical: Arc<dyn PhysicalExpr>,
}

impl ByPartition {
    fn new(expr: &Expr, schema: &StructType) -> Option<Self> {
        let refs = expr.column_refs();
        let fields: Vec<StructField> = schema
            .fields
            .iter()
            .filter(|f| refs.iter().any(|c| c.name == f.name))
            .cloned()
            .collect();
        let names: Vec<String> = fields.iter().map(|f| f.name.clone()).collect();
        let rows = Rows::new(schema, &names).ok()?;
        let physical = physical(expr, &rows.scope().ok()?).ok()?;
        Some(ByPartition {
            rows,
            fields,
            physical,
        })
    }

    /// TRUE or not for each file, `None` where a value is missing.
    fn ask(&self, files: &[FileFacts<'_>]) -> Result<Vec<Option<bool>>, Ask> {
        let mut fields = Vec::with_capacity(self.fields.len());
        let mut columns = Vec::with_capacity(self.fields.len());
        let mut known = vec![true; files.len()];
        for field in &self.fields {
            let target = arrow_type(&field.data_type).map_err(|e| Ask::Rows(e.into()))?;
            let mut values = Vec::with_capacity(files.len());
            for (file, known) in files.iter().zip(&mut known) {
                let value = file.partition.get(&field.name);
                *known &= value.is_some();
                let value = value.unwrap_or(&Scalar::Null);
                values.push(exactly(value, &target).ok_or_else(|| {
                    Ask::Rows(EngineError::ColumnType {
                        column: field.name.clone(),
                        expected: field.data_type.to_string(),
                        found: format!("{value:?}"),
                    })
                })?);
            }
            columns.push(to_array(values, &target).map_err(Ask::Engine)?);
            fields.push(Field::new(&field.name, target, true));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(files.len()));
        let batch =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
                .map_err(|e| Ask::Engine(e.into()))?;
        let answer = self.rows.ask(self.physical.as_ref(), &batch)?;
        let answer = answer
            .as_any()
            .downcast_ref::<BooleanArray>()
            .ok_or_else(|| Ask::Engine(DataFusionError::Internal("not boolean".to_owned())))?;
        Ok(answer
            .iter()
            .zip(known)
            .map(|(answer, known)| known.then_some(answer == Some(true)))
            .collect())
    }
}

/// The part that statistics can refute.
#[derive(Debug)]
struct ByStats {
    rule: PruningPredicate,
    columns: Vec<StatColumn>,
}

/// A column or a field below structs, under the name that the rule has for it.
#[derive(Debug)]
struct StatColumn {
    name: String,
    path: Vec<String>,
    /// `None` when it has no bounds that we trust.
    primitive: Option<Primitive>,
    arrow: Arrow,
    partition: bool,
}

impl ByStats {
    /// `None` when no statistics could refute it.
    fn new(expr: Expr, schema: &StructType, of_partition: &dyn Fn(&str) -> bool) -> Option<Self> {
        let names: Vec<String> = schema.fields.iter().map(|f| f.name.clone()).collect();
        let scope = Rows::new(schema, &names).ok()?.scope().ok()?;
        let hidden = expr.transform_down(|e| hide(e, &scope)).ok()?.data;
        let mut columns: Vec<StatColumn> = Vec::new();
        let mut unknown = false;
        let flat = hidden
            .transform_down(|e| {
                let Some(path) = path_of(&e) else {
                    return Ok(Transformed::no(e));
                };
                // Unlike any column's name: a path is one column to the rule.
                let name = path.join("\u{0}");
                if !columns.iter().any(|c| c.name == name) {
                    match StatColumn::new(schema, &name, path, of_partition) {
                        Some(column) => columns.push(column),
                        None => unknown = true,
                    }
                }
                let column = Expr::Column(Column::new_unqualified(name));
                Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
            })
            .ok()?
            .data;
        if unknown {
            return None;
        }
        let fields: Vec<Field> = columns
            .iter()
            .map(|c| Field::new(&c.name, c.arrow.clone(), true))
            .collect();
        let arrow: SchemaRef = Arc::new(Schema::new(fields));
        let scope = DFSchema::try_from(Arc::clone(&arrow)).ok()?;
        let rule = PruningPredicateBuilder::new()
            .with_file_schema(arrow)
            .try_build(physical(&flat, &scope).ok()?)
            .ok()?;
        (!rule.always_true()).then_some(ByStats { rule, columns })
    }

    /// Whether each file may hold a matching row.
    fn keep(&self, files: &[FileFacts<'_>]) -> Vec<bool> {
        let ask = |files| self.rule.prune(&Statistics::new(files, &self.columns));
        match ask(files) {
            Ok(keep) if keep.len() == files.len() => keep,
            // Some bound cannot be cast or computed with: that file alone must be read.
            _ => files
                .iter()
                .map(|file| match ask(std::slice::from_ref(file)) {
                    Ok(keep) => keep != [false],
                    Err(_) => true,
                })
                .collect(),
        }
    }
}

/// Puts out of the rule's sight what it would reason about wrongly. It takes every cast for one that can be undone
/// (`CAST(x AS INT) <= 1` becomes `x <= 1`, which 1.5 is not), and forgets that -MIN is MIN.
fn hide(expr: Expr, scope: &DFSchema) -> Engine<Transformed<Expr>> {
    let keep = match &expr {
        Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field }) => {
            inner
                .get_type(scope)
                .is_ok_and(|from| is_lossless(&from, field.data_type()))
        }
        Expr::Negative(_) => false,
        _ => true,
    };
    if keep {
        return Ok(Transformed::no(expr));
    }
    let hidden = Expr::ScalarFunction(ScalarFunction::new_udf(opaque(), vec![expr]));
    Ok(Transformed::new(hidden, true, TreeNodeRecursion::Jump))
}

/// Whether every value has its own in the other type, in the same order.
fn is_lossless(from: &Arrow, to: &Arrow) -> bool {
    use Arrow::{
        Date32, Decimal128, Decimal256, Float32, Float64, Int8, Int16, Int32, Int64, Timestamp,
    };
    let digits = |t: &Arrow| match t {
        Int8 => Some((3, 0)),
        Int16 => Some((5, 0)),
        Int32 => Some((10, 0)),
        Int64 => Some((19, 0)),
        Decimal128(p, s) | Decimal256(p, s) => Some((i16::from(*p) - i16::from(*s), *s)),
        _ => None,
    };
    match (from, to) {
        (from, to) if from == to => true,
        (Int8, Int16 | Int32 | Int64) | (Int16, Int32 | Int64) | (Int32, Int64) => true,
        (Int8 | Int16, Float32 | Float64) | (Int32 | Float32, Float64) => true,
        (Date32, Timestamp(..)) => true,
        (_, Decimal128(..) | Decimal256(..)) => match (digits(from), digits(to)) {
            (Some((whole, scale)), Some((wider, finer))) => whole <= wider && scale <= finer,
            _ => false,
        },
        _ => false,
    }
}

impl StatColumn {
    fn new(
        schema: &StructType,
        name: &str,
        path: Vec<String>,
        of_partition: &dyn Fn(&str) -> bool,
    ) -> Option<Self> {
        let mut field: Option<&StructField> = None;
        for step in &path {
            field = match field.map(|f| &f.data_type) {
                None => schema.field(step),
                Some(DataType::Struct(inner)) => inner.field(step),
                Some(_) => None,
            };
        }
        let field = field?;
        let partition = matches!(path.as_slice(), [top] if of_partition(top));
        let primitive = match &field.data_type {
            // The protocol gives binary no bounds; writers that do disagree on signed bytes (D54).
            DataType::Primitive(Primitive::Binary) if !partition => None,
            DataType::Primitive(p) => Some(p.clone()),
            _ => None,
        };
        Some(StatColumn {
            name: name.to_owned(),
            primitive,
            arrow: arrow_type(&field.data_type).ok()?,
            partition,
            path,
        })
    }

    /// Both bounds; neither where they contradict each other.
    fn bounds(&self, file: &FileFacts<'_>) -> (Option<ScalarValue>, Option<ScalarValue>) {
        let (min, max) = (self.min(file), self.max(file));
        match (&min, &max) {
            (Some(least), Some(most)) if least > most => (None, None),
            _ => (min, max),
        }
    }

    fn min(&self, file: &FileFacts<'_>) -> Option<ScalarValue> {
        let value = match self.known_partition(file) {
            Some(value) => return exactly(value, &self.arrow),
            None => file.bounds.min(&self.path)?,
        };
        exactly(&value, &self.arrow).filter(|v| !is_nan(v))
    }

    fn max(&self, file: &FileFacts<'_>) -> Option<ScalarValue> {
        let value = match self.known_partition(file) {
            Some(value) => return exactly(value, &self.arrow),
            None => file.bounds.max(&self.path)?,
        };
        let floats = matches!(self.primitive, Some(Primitive::Float | Primitive::Double));
        if floats && !file.bounds.nan_free(&self.path) {
            return None;
        }
        let value = match value {
            // Whole milliseconds are what is left of microseconds (PROTOCOL.md E).
            Scalar::Timestamp(us) if us % 1000 == 0 => Scalar::Timestamp(us.saturating_add(1000)),
            Scalar::TimestampNtz(us) if us % 1000 == 0 => {
                Scalar::TimestampNtz(us.saturating_add(1000))
            }
            other => other,
        };
        exactly(&value, &self.arrow).filter(|v| !is_nan(v))
    }

    /// Only "none" and "all" are believed: anything between may count rows that are deleted by now.
    fn null_count(&self, file: &FileFacts<'_>) -> Option<u64> {
        let rows = rows_of(file);
        if self.partition {
            let value = file.partition.get(&self.name)?;
            return Some(if *value == Scalar::Null { rows } else { 0 });
        }
        // No file is written for no row: whoever says so counts nothing.
        if file.num_records == Some(0) {
            return None;
        }
        match file.bounds.null_count(&self.path)? {
            0 => Some(0),
            // Values that have a bound are not NULL.
            nulls if file.num_records == Some(nulls) && !self.has_bound(file) => Some(nulls),
            _ => None,
        }
    }

    fn has_bound(&self, file: &FileFacts<'_>) -> bool {
        let known = |bound: Option<Scalar>| bound.is_some_and(|value| value != Scalar::Null);
        known(file.bounds.min(&self.path)) || known(file.bounds.max(&self.path))
    }

    fn known_partition<'f>(&self, file: &'f FileFacts<'_>) -> Option<&'f Scalar> {
        if self.partition {
            // Partition columns have no statistics; if there are any, they are not to be trusted.
            Some(file.partition.get(&self.name).unwrap_or(&Scalar::Null))
        } else {
            None
        }
    }
}

/// The rule only compares this with null counts, of which we give none and all: it is never 0.
fn rows_of(file: &FileFacts<'_>) -> u64 {
    file.num_records.unwrap_or(1).max(1)
}

struct Statistics<'a> {
    files: &'a [FileFacts<'a>],
    columns: &'a [StatColumn],
    /// Minima and maxima of each of `columns`, once they are asked for.
    bounds: Vec<OnceCell<Option<(ArrayRef, ArrayRef)>>>,
}

impl<'a> Statistics<'a> {
    fn new(files: &'a [FileFacts<'a>], columns: &'a [StatColumn]) -> Self {
        Statistics {
            files,
            columns,
            bounds: columns.iter().map(|_| OnceCell::new()).collect(),
        }
    }

    fn bounds(&self, column: &Column) -> Option<&(ArrayRef, ArrayRef)> {
        let index = self.columns.iter().position(|c| c.name == column.name)?;
        let column = self.columns.get(index)?;
        let made = self.bounds.get(index)?.get_or_init(|| {
            column.primitive.as_ref()?;
            let null = ScalarValue::try_new_null(&column.arrow).ok()?;
            let (mut least, mut most) = (Vec::new(), Vec::new());
            for file in self.files {
                let (min, max) = column.bounds(file);
                least.push(min.unwrap_or_else(|| null.clone()));
                most.push(max.unwrap_or_else(|| null.clone()));
            }
            let least = to_array(least, &column.arrow).ok()?;
            Some((least, to_array(most, &column.arrow).ok()?))
        });
        made.as_ref()
    }
}

impl PruningStatistics for Statistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::clone(&self.bounds(column)?.0))
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::clone(&self.bounds(column)?.1))
    }

    fn num_containers(&self) -> usize {
        self.files.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let column = self.columns.iter().find(|c| c.name == column.name)?;
        let counts: UInt64Array = self.files.iter().map(|f| column.null_count(f)).collect();
        Some(Arc::new(counts))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let counts: UInt64Array = self.files.iter().map(|f| Some(rows_of(f))).collect();
        Some(Arc::new(counts))
    }

    fn contained(&self, _column: &Column, _values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

fn is_nan(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float32(Some(v)) => v.is_nan(),
        ScalarValue::Float64(Some(v)) => v.is_nan(),
        _ => false,
    }
}

/// The value in the column's type, if it is exactly that; statistics of a widened column may be in the old one.
fn exactly(value: &Scalar, target: &Arrow) -> Option<ScalarValue> {
    let value = match value {
        Scalar::Null => return ScalarValue::try_new_null(target).ok(),
        Scalar::String(v) => ScalarValue::Utf8(Some(v.clone())),
        Scalar::Long(v) => ScalarValue::Int64(Some(*v)),
        Scalar::Integer(v) => ScalarValue::Int32(Some(*v)),
        Scalar::Short(v) => ScalarValue::Int16(Some(*v)),
        Scalar::Byte(v) => ScalarValue::Int8(Some(*v)),
        Scalar::Float(v) if v.is_nan() => ScalarValue::Float32(Some(f32::NAN)),
        Scalar::Float(v) => ScalarValue::Float32(Some(v + 0.0)),
        Scalar::Double(v) if v.is_nan() => ScalarValue::Float64(Some(f64::NAN)),
        Scalar::Double(v) => ScalarValue::Float64(Some(v + 0.0)),
        Scalar::Decimal(v, p, s) => ScalarValue::Decimal128(Some(*v), *p, *s),
        Scalar::Boolean(v) => ScalarValue::Boolean(Some(*v)),
        Scalar::Binary(v) => ScalarValue::Binary(Some(v.clone())),
        Scalar::Date(v) => ScalarValue::Date32(Some(*v)),
        Scalar::Timestamp(v) => ScalarValue::TimestampMicrosecond(Some(*v), Some("UTC".into())),
        Scalar::TimestampNtz(v) => ScalarValue::TimestampMicrosecond(Some(*v), None),
    };
    let from = value.data_type();
    if from == *target {
        return Some(value);
    }
    let widens = match (&from, target) {
        (Arrow::Decimal128(_, s), Arrow::Decimal128(_, t)) => s <= t,
        (from, to) if from.is_integer() => {
            to.is_integer() || to.is_floating() || matches!(to, Arrow::Decimal128(..))
        }
        (Arrow::Float32, Arrow::Float64) => true,
        (Arrow::Date32, Arrow::Timestamp(..)) => true,
        _ => false,
    };
    if !widens {
        return None;
    }
    let cast = value.cast_to(target).ok()?;
    // Casting back tells whether anything was lost.
    (cast.cast_to(&from).ok()? == value).then_some(cast)
}

fn to_array(values: Vec<ScalarValue>, target: &Arrow) -> Result<ArrayRef, DataFusionError> {
    if values.is_empty() {
        return Ok(arrow::array::new_empty_array(target));
    }
    ScalarValue::iter_to_array(values)
}

#[cfg(test)]
#[path = "prune_tests.rs"]
mod tests;
