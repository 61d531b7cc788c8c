//! Predicates: user text to a question about rows.

use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType as Arrow, Field, FieldRef, Schema};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::physical_expr::PhysicalExpr;

use crate::env::Millis;
use crate::schema::{DataType, Primitive, StructField, StructType, arrow_type};

use super::error::EngineError;
use super::normal::normal;
use super::prune::Pruning;
use super::typing::{Typing, delta_name};
use super::{resolve, session};

/// A boolean SQL expression over the columns of one schema, parsed once. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Predicate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    text: String,
    /// What the expression reads, after simplification.
    rows: Rows,
    /// Simplified and typed; over all columns of `rows`.
    logical: Expr,
    physical: Arc<dyn PhysicalExpr>,
    partition_columns: Vec<String>,
    deterministic: bool,
    pruning: OnceLock<Pruning>,
}

impl Predicate {
    /// Parses the text of a condition: what follows WHERE, without that word.
    ///
    /// Columns are found ignoring case. `current_date()` and `current_timestamp()` are `now`, in UTC.
    /// `partition_columns` are logical names.
    ///
    /// # Errors
    /// Every [`EngineError`] but those about rows; the place in the text is given where it is known.
    pub fn parse(
        sql: &str,
        schema: &StructType,
        partition_columns: &[String],
        now: Millis,
    ) -> Result<Self, EngineError> {
        let text = sql.trim().trim_end_matches([';', ' ', '\n']).to_owned();
        let state = session::state();
        let resolved = resolve::resolve(sql, schema, now, state)?;
        let plan_error = |e| plan_error(&text, e);
        let rows = Rows::new(schema, &resolved.columns)?;
        let scope = rows.scope().map_err(plan_error)?;
        let typing = Typing::new(state, &scope);
        let logical = typing.logical(resolved.expr).map_err(plan_error)?;
        let logical = typing.plan(logical).map_err(plan_error)?;
        let found = logical.get_type(&scope).map_err(plan_error)?;
        let logical = match found {
            Arrow::Boolean => logical,
            Arrow::Null => Expr::Literal(ScalarValue::Boolean(None), None),
            other => {
                return Err(EngineError::NotBoolean {
                    predicate: text,
                    found: delta_name(&other),
                });
            }
        };
        let used: Vec<String> = resolved
            .columns
            .into_iter()
            .filter(|c| logical.column_refs().iter().any(|used| used.name == *c))
            .collect();
        let rows = Rows::new(schema, &used)?;
        let scope = rows.scope().map_err(plan_error)?;
        let physical = Typing::new(state, &scope)
            .physical(&logical)
            .map_err(plan_error)?;
        Ok(Predicate(Arc::new(Inner {
            deterministic: !logical.is_volatile(),
            partition_columns: partition_columns.to_vec(),
            pruning: OnceLock::new(),
            text,
            rows,
            logical,
            physical,
        })))
    }

    /// The user's text.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The top-level columns that the answer depends on, in the table's spelling.
    pub fn columns(&self) -> &[String] {
        &self.0.rows.names
    }

    /// Whether the values of the partition columns alone decide.
    pub fn is_partition_only(&self) -> bool {
        self.0.deterministic
            && self
                .columns()
                .iter()
                .all(|c| self.0.partition_columns.contains(c))
    }

    /// Whether asking twice about one row gives one answer. `current_timestamp()` is fixed by then.
    pub fn is_deterministic(&self) -> bool {
        self.0.deterministic
    }

    /// Whether one row's values decide about it: no sub-query, aggregate, window, file name or dice. All but the
    /// dice are refused by [`Predicate::parse`].
    pub fn is_row_local(&self) -> bool {
        self.0.deterministic
    }

    /// Whether it reads a struct, array, map or variant column, or something inside one (PROTOCOL.md F3).
    pub fn uses_complex_type(&self) -> bool {
        self.0
            .rows
            .fields
            .iter()
            .any(|f| !matches!(&f.data_type, DataType::Primitive(p) if *p != Primitive::Variant))
    }

    /// Whether it is true for every row, NULLs included.
    pub fn is_always_true(&self) -> bool {
        matches!(
            self.0.logical,
            Expr::Literal(ScalarValue::Boolean(Some(true)), _)
        )
    }

    /// The answer for each row; NULL means not selected, as FALSE does.
    ///
    /// # Errors
    /// [`EngineError::MissingColumn`], [`EngineError::ColumnType`], [`EngineError::Evaluate`].
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray, EngineError> {
        let inner = &*self.0;
        let answer = inner
            .rows
            .ask(inner.physical.as_ref(), batch)
            .map_err(|e| match e {
                Ask::Rows(error) => error,
                Ask::Engine(error) => EngineError::Evaluate {
                    predicate: inner.text.clone(),
                    reason: reason(&error),
                },
            })?;
        match answer.as_any().downcast_ref::<BooleanArray>() {
            Some(answer) => Ok(answer.clone()),
            None => Err(EngineError::NotBoolean {
                predicate: inner.text.clone(),
                found: answer.data_type().to_string(),
            }),
        }
    }

    /// The columns that are read.
    pub(super) fn fields(&self) -> &[StructField] {
        &self.0.rows.fields
    }

    pub(super) fn logical(&self) -> &Expr {
        &self.0.logical
    }

    pub(super) fn partition_columns(&self) -> &[String] {
        &self.0.partition_columns
    }

    pub(super) fn pruning(&self) -> &Pruning {
        self.0.pruning.get_or_init(|| Pruning::new(self))
    }
}

/// Columns by logical name, in the types of `schema::arrow_type`.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    names: Vec<String>,
    fields: Vec<StructField>,
    arrow: Vec<FieldRef>,
}

/// Why rows gave no answer.
pub(super) enum Ask {
    Rows(EngineError),
    Engine(DataFusionError),
}

impl Rows {
    pub(super) fn new(schema: &StructType, names: &[String]) -> Result<Self, EngineError> {
        let fields: Vec<StructField> = names
            .iter()
            .filter_map(|name| schema.field(name).cloned())
            .collect();
        let arrow = fields
            .iter()
            .map(|f| {
                Ok(Arc::new(Field::new(
                    &f.name,
                    nullable(&arrow_type(&f.data_type)?),
                    true,
                )))
            })
            .collect::<Result<_, EngineError>>()?;
        Ok(Rows {
            names: fields.iter().map(|f| f.name.clone()).collect(),
            fields,
            arrow,
        })
    }

    /// What an expression over these columns is planned against. Everything is nullable: a file of another
    /// writer may hold NULLs where the table says there are none, and then the rules must not simplify them away.
    pub(super) fn scope(&self) -> Result<DFSchema, DataFusionError> {
        DFSchema::try_from(Schema::new(self.arrow.clone()))
    }

    /// Evaluates an expression that was planned against [`Rows::scope`].
    pub(super) fn ask(
        &self,
        expr: &dyn PhysicalExpr,
        batch: &RecordBatch,
    ) -> Result<ArrayRef, Ask> {
        let mut fields = Vec::with_capacity(self.arrow.len());
        let mut columns = Vec::with_capacity(self.arrow.len());
        for expected in &self.arrow {
            let name = expected.name();
            let Some(column) = batch.column_by_name(name) else {
                return Err(Ask::Rows(EngineError::MissingColumn {
                    column: name.clone(),
                }));
            };
            if !same_type(column.data_type(), expected.data_type()) {
                return Err(Ask::Rows(EngineError::ColumnType {
                    column: name.clone(),
                    expected: expected.data_type().to_string(),
                    found: column.data_type().to_string(),
                }));
            }
            let column = normal(column).map_err(|e| Ask::Engine(e.into()))?;
            fields.push(Field::new(name, column.data_type().clone(), true));
            columns.push(column);
        }
        let rows = batch.num_rows();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
            .map_err(DataFusionError::from)
            .and_then(|input| expr.evaluate(&input)?.into_array(rows))
            .map_err(Ask::Engine)
    }
}

/// The type with nothing required inside.
fn nullable(data_type: &Arrow) -> Arrow {
    let inner = |f: &FieldRef| {
        let inner = f.as_ref().clone().with_data_type(nullable(f.data_type()));
        Arc::new(inner.with_nullable(true))
    };
    match data_type {
        Arrow::Struct(fields) => Arrow::Struct(fields.iter().map(inner).collect()),
        Arrow::List(field) => Arrow::List(inner(field)),
        other => other.clone(),
    }
}

/// Equal but for what is required and for the names inside lists and maps.
fn same_type(a: &Arrow, b: &Arrow) -> bool {
    match (a, b) {
        (Arrow::Struct(a), Arrow::Struct(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| a.name() == b.name() && same_type(a.data_type(), b.data_type()))
        }
        (Arrow::List(a), Arrow::List(b)) => same_type(a.data_type(), b.data_type()),
        (Arrow::Map(a, _), Arrow::Map(b, _)) => match (a.data_type(), b.data_type()) {
            (Arrow::Struct(a), Arrow::Struct(b)) => {
                a.len() == b.len()
                    && a.iter()
                        .zip(b)
                        .all(|(a, b)| same_type(a.data_type(), b.data_type()))
            }
            _ => false,
        },
        (a, b) => a == b,
    }
}

fn plan_error(predicate: &str, error: DataFusionError) -> EngineError {
    match error.find_root() {
        DataFusionError::External(inner) => match inner.downcast_ref::<EngineError>() {
            Some(ours) => ours.clone(),
            None => EngineError::Plan {
                predicate: predicate.to_owned(),
                reason: inner.to_string(),
            },
        },
        _ => EngineError::Plan {
            predicate: predicate.to_owned(),
            reason: reason(&error),
        },
    }
}

/// DataFusion's message without the prefixes that name its own parts, on one line.
fn reason(error: &DataFusionError) -> String {
    let text = error.find_root().strip_backtrace();
    let mut text = text.as_str();
    if text.contains("Unsupported ast node") {
        return "this syntax is not supported".to_owned();
    }
    for prefix in [
        "Error during planning: ",
        "Execution error: ",
        "Arrow error: ",
        "Cast error: ",
        "Compute error: ",
        "Invalid argument error: ",
        "Parser error: ",
    ] {
        text = text.strip_prefix(prefix).unwrap_or(text);
    }
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
#[path = "expr_tests.rs"]
mod tests;
