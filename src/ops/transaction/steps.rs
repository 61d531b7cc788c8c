//! What the steps of a transaction were, for the history.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::net::Net;
use crate::table::Snapshot;

/// Steps that the history tells of.
const MAX_TOLD: usize = 100;
/// And how long their texts may be together, in bytes.
const MAX_TEXT: usize = 16 * 1024;
/// Metrics of steps that add up. Files are counted at the end: a step may undo what another one did.
const ROWS: [&str; 3] = ["numOutputRows", "numDeletedRows", "numCopiedRows"];

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A file was dropped.
    Write(String),
    /// Rows were deleted by a predicate.
    Delete(String),
    /// A file was removed.
    Remove(String),
    /// A new file got another name, which changes nothing that is told.
    Rename,
}

/// All steps, as far as they are told.
#[derive(Debug, Default)]
pub(super) struct Steps {
    told: Vec<Step>,
    text: usize,
    writes: u64,
    deletes: u64,
    rows: BTreeMap<&'static str, u64>,
}

impl Steps {
    pub(super) fn push(&mut self, step: Step, metrics: &BTreeMap<&'static str, u64>) {
        let (count, text) = match &step {
            Step::Write(file) => (&mut self.writes, file.len()),
            Step::Delete(text) | Step::Remove(text) => (&mut self.deletes, text.len()),
            Step::Rename => return,
        };
        *count = count.saturating_add(1);
        for key in ROWS {
            if let Some(rows) = metrics.get(key) {
                let sum = self.rows.entry(key).or_insert(0);
                *sum = sum.saturating_add(*rows);
            }
        }
        if self.told.len() < MAX_TOLD && self.text.saturating_add(text) <= MAX_TEXT {
            self.text += text;
            self.told.push(step);
        }
    }

    /// What the whole is called.
    pub(super) fn operation(&self) -> &'static str {
        match (self.writes, self.deletes) {
            (1.., 0) => "WRITE",
            (0, 1..) => "DELETE",
            _ => "TRANSACTION",
        }
    }

    /// As a single operation of the name has them, with all its files or predicates.
    pub(super) fn parameters(
        &self,
        base: &Snapshot,
        replaces: bool,
    ) -> Vec<(&'static str, String)> {
        let (mut files, mut predicates) = (Vec::new(), Vec::new());
        for step in &self.told {
            match step {
                Step::Write(text) | Step::Remove(text) => files.push(text),
                Step::Delete(text) => predicates.push(format!("({text})")),
                Step::Rename => {}
            }
        }
        let mut parameters = match self.operation() {
            "WRITE" => {
                let mode = if replaces { "Overwrite" } else { "Append" };
                let columns = json!(base.partition_columns()).to_string();
                vec![("mode", mode.to_owned()), ("partitionBy", columns)]
            }
            "DELETE" => vec![("predicate", json!(predicates).to_string())],
            _ => vec![(
                "steps",
                json!(self.told.iter().map(tell).collect::<Vec<_>>()).to_string(),
            )],
        };
        if self.operation() != "TRANSACTION" && !files.is_empty() {
            parameters.push(("files", json!(files).to_string()));
        }
        let all = self.writes.saturating_add(self.deletes);
        parameters.push(("numSteps", all.to_string()));
        parameters
    }

    pub(super) fn metrics(&self, net: &Net) -> BTreeMap<&'static str, u64> {
        let mut metrics = net.metrics(self.operation() == "WRITE");
        metrics.extend(self.rows.iter().map(|(key, rows)| (*key, *rows)));
        metrics
    }
}

fn tell(step: &Step) -> Value {
    match step {
        Step::Write(file) => json!({"operation": "WRITE", "file": file}),
        Step::Delete(predicate) => json!({"operation": "DELETE", "predicate": predicate}),
        Step::Remove(file) => json!({"operation": "DELETE", "file": file}),
        Step::Rename => Value::Null,
    }
}
