//! What became of operations: `.delta/last` for each user, and the answer of each verb.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::env::Millis;
use crate::error::Failure;
use crate::namespace::Verb;
use crate::ops::Report;

/// A result as its reader sees it: one JSON object and a newline.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) text: Bytes,
    pub(super) at: Millis,
}

impl Outcome {
    /// An operation that is done; `what` names a file or gives the statement.
    pub(super) fn done(report: &Report, what: &str, at: Millis) -> Self {
        let metrics: Map<String, Value> = report
            .metrics
            .iter()
            .map(|(k, v)| ((*k).to_owned(), json!(v)))
            .collect();
        let mut object = json!({
            "outcome": if report.version.is_some() { "committed" } else { "nothing to do" },
            "operation": report.operation,
            "subject": what,
            "version": report.version,
            "metrics": metrics,
        });
        if let Some(note) = &report.note
            && let Some(object) = object.as_object_mut()
        {
            object.insert("note".to_owned(), json!(note));
        }
        Outcome {
            text: line(&object),
            at,
        }
    }

    /// An operation that failed: nothing was committed, unless the error itself says that it can't tell.
    pub(super) fn failed(operation: &str, what: &str, error: &dyn Failure, at: Millis) -> Self {
        let mut object = json!({
            "outcome": "failed",
            "operation": operation,
            "subject": what,
            "error": error.kind().name(),
            "message": error.to_string(),
            "hint": error.hint(),
        });
        if let Some(object) = object.as_object_mut() {
            let facts = error.facts().into_iter();
            object.extend(facts.map(|(key, value)| (key.to_owned(), value)));
        }
        Outcome {
            text: line(&object),
            at,
        }
    }
}

fn line(object: &Value) -> Bytes {
    let mut text = object.to_string();
    text.push('\n');
    Bytes::from(text)
}

#[derive(Debug, Default)]
pub(super) struct Outcomes {
    last: HashMap<(PathBuf, u32), Outcome>,
    newest: HashMap<PathBuf, Outcome>,
    verbs: HashMap<(PathBuf, Verb), Outcome>,
}

impl Outcomes {
    pub(super) fn note(&mut self, table: &Path, uid: u32, verb: Option<Verb>, outcome: Outcome) {
        if let Some(verb) = verb {
            self.verbs.insert((table.to_owned(), verb), outcome.clone());
        }
        self.newest.insert(table.to_owned(), outcome.clone());
        self.last.insert((table.to_owned(), uid), outcome);
    }

    /// The last outcome of a user; without a user, anybody's.
    pub(super) fn last(&self, table: &Path, uid: Option<u32>) -> Option<&Outcome> {
        match uid {
            Some(uid) => self.last.get(&(table.to_owned(), uid)),
            None => self.newest.get(table),
        }
    }

    pub(super) fn verb(&self, table: &Path, verb: Verb) -> Option<&Outcome> {
        self.verbs.get(&(table.to_owned(), verb))
    }
}
