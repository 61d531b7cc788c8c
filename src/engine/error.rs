//! What can be wrong with an expression or with the rows that it is asked about.

use std::fmt;

use crate::error::{Failure, Kind};
use crate::schema::SchemaError;

/// Where in the user's text, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: u64,
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The first names of a list: a table may have thousands of columns.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 40;
    let shown = names.get(..SHOWN).unwrap_or(names).join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A refused expression, or rows that it could not be evaluated on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EngineError {
    #[error("the predicate is empty")]
    Empty,
    #[error("{reason} at {at}")]
    Syntax { reason: String, at: Position },
    #[error("expected end of predicate, found {found} at {at}")]
    Trailing { found: String, at: Position },
    #[error("the predicate is nested too deeply (more than {limit} levels)")]
    TooDeep { limit: usize },
    #[error("unknown column `{name}` at {at}; columns are: {}", listed(columns))]
    UnknownColumn {
        name: String,
        at: Position,
        nearest: Option<String>,
        columns: Vec<String>,
    },
    #[error(
        "`{parent}` has no field `{name}` at {at}; its fields are: {}",
        listed(fields)
    )]
    UnknownField {
        name: String,
        parent: String,
        at: Position,
        nearest: Option<String>,
        fields: Vec<String>,
    },
    #[error("`{column}` is {found}, which has no fields, at {at}")]
    NoFields {
        column: String,
        found: String,
        at: Position,
    },
    #[error("unknown function `{name}` at {at}")]
    UnknownFunction {
        name: String,
        at: Position,
        nearest: Option<String>,
    },
    #[error("{what} cannot be used in a predicate, at {at}")]
    NotAllowed { what: &'static str, at: Position },
    #[error("\"{column}\" at {at} is text here, but also the name of a column")]
    QuotedColumn { column: String, at: Position },
    #[error("`{text}` cannot be compared with `{column}`: it is not a value of type {expected}")]
    Literal {
        column: String,
        text: String,
        expected: String,
    },
    #[error("`{predicate}` is not a condition: its type is {found}, not boolean")]
    NotBoolean { predicate: String, found: String },
    #[error("`{predicate}`: {reason}")]
    Plan { predicate: String, reason: String },
    #[error("`{predicate}` could not be evaluated: {reason}")]
    Evaluate { predicate: String, reason: String },
    #[error("the rows have no column `{column}`")]
    MissingColumn { column: String },
    #[error("column `{column}` has the type {found} instead of {expected}")]
    ColumnType {
        column: String,
        expected: String,
        found: String,
    },
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error("constraint `{constraint}` cannot be checked: {source}")]
    Constraint {
        constraint: String,
        source: Box<EngineError>,
    },
    #[error("row {row} violates constraint `{constraint}` ({expression}): {values}")]
    Violation {
        constraint: String,
        expression: String,
        /// Index of the row, from 0, counted from the caller's first row.
        row: u64,
        /// `name = value` of the columns that the expression reads.
        values: String,
    },
}

impl Failure for EngineError {
    fn kind(&self) -> Kind {
        match self {
            EngineError::Constraint { .. } => Kind::Unsupported,
            EngineError::Schema(error) => error.kind(),
            EngineError::Empty
            | EngineError::Syntax { .. }
            | EngineError::Trailing { .. }
            | EngineError::TooDeep { .. }
            | EngineError::UnknownColumn { .. }
            | EngineError::UnknownField { .. }
            | EngineError::NoFields { .. }
            | EngineError::UnknownFunction { .. }
            | EngineError::NotAllowed { .. }
            | EngineError::QuotedColumn { .. }
            | EngineError::Literal { .. }
            | EngineError::NotBoolean { .. }
            | EngineError::Plan { .. }
            | EngineError::Evaluate { .. }
            | EngineError::MissingColumn { .. }
            | EngineError::ColumnType { .. }
            | EngineError::Violation { .. } => Kind::Invalid,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            EngineError::Empty => Some("To mean every row, write TRUE.".to_owned()),
            EngineError::UnknownColumn {
                nearest: Some(near),
                ..
            }
            | EngineError::UnknownField {
                nearest: Some(near),
                ..
            }
            | EngineError::UnknownFunction {
                nearest: Some(near),
                ..
            } => Some(format!("Did you mean `{near}`?")),
            EngineError::UnknownColumn { .. } => Some(
                "Write text in single quotes, and back-tick names that hold anything but letters, digits and _."
                    .to_owned(),
            ),
            EngineError::QuotedColumn { column, .. } => {
                Some(format!("Write `{column}` for the column, or '{column}' for the text."))
            }
            EngineError::Trailing { .. } => Some(
                "Write the condition alone: no DELETE FROM, no table, no second statement.".to_owned(),
            ),
            EngineError::TooDeep { .. } => {
                Some("Write a list of values with IN instead of many ORs.".to_owned())
            }
            EngineError::Constraint { .. } => Some(
                "Rows cannot be written while a constraint cannot be checked; drop it with ALTER TABLE … DROP CONSTRAINT."
                    .to_owned(),
            ),
            _ => None,
        }
    }
}
