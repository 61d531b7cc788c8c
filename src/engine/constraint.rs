//! CHECK constraints and column invariants (PROTOCOL.md A4): every row that is written must make them true.

use std::collections::BTreeMap;

use arrow::array::{Array, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::env::Millis;
use crate::schema::{DataType, INVARIANTS, StructField, StructType};

use super::error::EngineError;
use super::expr::Predicate;

/// Prefix of the table property that holds a CHECK constraint.
const CHECK: &str = "delta.constraints.";

/// All conditions on a table's rows.
#[derive(Debug, Clone)]
pub struct Constraints(Vec<Constraint>);

#[derive(Debug, Clone)]
struct Constraint {
    name: String,
    predicate: Predicate,
}

impl Constraints {
    /// The conditions of a table, or `None` when there are none. A CHECK constraint has its own name, an
    /// invariant that of its column.
    ///
    /// # Errors
    /// [`EngineError::Constraint`] names the one that can't be understood: then no row may be written.
    pub fn parse(
        schema: &StructType,
        configuration: &BTreeMap<String, String>,
        now: Millis,
    ) -> Result<Option<Self>, EngineError> {
        let mut constraints = Vec::new();
        let mut add = |name: String, sql: &str| {
            let predicate =
                Predicate::parse(sql, schema, &[], now).map_err(|e| broken(&name, e))?;
            constraints.push(Constraint { name, predicate });
            Ok(())
        };
        for (key, sql) in configuration {
            if let Some(prefix) = key.get(..CHECK.len())
                && prefix.eq_ignore_ascii_case(CHECK)
            {
                add(key.split_at(CHECK.len()).1.to_owned(), sql)?;
            }
        }
        for field in &schema.fields {
            invariants(&field.name, field, true, &mut add)?;
        }
        Ok((!constraints.is_empty()).then_some(Constraints(constraints)))
    }

    /// Checks rows before they are written; `first_row` is the number of the batch's first row in the error.
    ///
    /// # Errors
    /// [`EngineError::Violation`] for the first row that does not make every condition true (NULL does not, D72),
    /// or the error of evaluating one.
    pub fn check(&self, batch: &RecordBatch, first_row: u64) -> Result<(), EngineError> {
        let mut first: Option<(usize, &Constraint)> = None;
        for constraint in &self.0 {
            let answer = constraint.predicate.evaluate(batch)?;
            if answer.true_count() == answer.len() {
                continue;
            }
            let bad = (0..answer.len()).find(|i| answer.is_null(*i) || !answer.value(*i));
            if let Some(row) = bad
                && first.is_none_or(|(other, _)| row < other)
            {
                first = Some((row, constraint));
            }
        }
        match first {
            None => Ok(()),
            Some((row, constraint)) => Err(EngineError::Violation {
                constraint: constraint.name.clone(),
                expression: constraint.predicate.text().to_owned(),
                row: first_row.saturating_add(row as u64),
                values: values(batch, constraint.predicate.columns(), row),
            }),
        }
    }

    /// The top-level columns that the conditions read.
    pub fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = self
            .0
            .iter()
            .flat_map(|c| c.predicate.columns())
            .map(String::as_str)
            .collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

fn broken(constraint: &str, source: EngineError) -> EngineError {
    EngineError::Constraint {
        constraint: constraint.to_owned(),
        source: Box::new(source),
    }
}

/// The invariants of a column and of the fields below it (D73). Below an array or map there is no row to ask.
fn invariants(
    path: &str,
    field: &StructField,
    in_row: bool,
    add: &mut dyn FnMut(String, &str) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    if let Some(value) = field.metadata.get(INVARIANTS) {
        let sql = expression(value).filter(|_| in_row).ok_or_else(|| {
            let value = value.to_string();
            broken(
                path,
                EngineError::Plan {
                    predicate: value,
                    reason: "it is no invariant that deltafs knows".to_owned(),
                },
            )
        })?;
        add(path.to_owned(), &sql)?;
    }
    below(path, &field.data_type, in_row, add)
}

fn below(
    path: &str,
    data_type: &DataType,
    in_row: bool,
    add: &mut dyn FnMut(String, &str) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    match data_type {
        DataType::Primitive(_) => Ok(()),
        DataType::Struct(inner) => inner
            .fields
            .iter()
            .try_for_each(|f| invariants(&format!("{path}.{}", f.name), f, in_row, add)),
        DataType::Array(array) => {
            below(&format!("{path}.element"), &array.element_type, false, add)
        }
        DataType::Map(map) => {
            below(&format!("{path}.key"), &map.key_type, false, add)?;
            below(&format!("{path}.value"), &map.value_type, false, add)
        }
    }
}

/// The SQL in `{"expression":{"expression":"x > 3"}}`, which is JSON inside a JSON string.
fn expression(value: &serde_json::Value) -> Option<String> {
    let parsed: serde_json::Value = match value {
        serde_json::Value::String(text) => serde_json::from_str(text).ok()?,
        other => other.clone(),
    };
    Some(
        parsed
            .get("expression")?
            .get("expression")?
            .as_str()?
            .to_owned(),
    )
}

/// `a = 1, b = NULL` of one row.
fn values(batch: &RecordBatch, columns: &[String], row: usize) -> String {
    let options = FormatOptions::new().with_null("NULL");
    let shown: Vec<String> = columns
        .iter()
        .filter_map(|name| {
            let column = batch.column_by_name(name)?;
            let formatter = ArrayFormatter::try_new(column.as_ref(), &options).ok()?;
            Some(format!("{name} = {}", formatter.value(row)))
        })
        .collect();
    shown.join(", ")
}

#[cfg(test)]
#[path = "constraint_tests.rs"]
mod tests;
