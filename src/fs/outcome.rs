//! What became of operations: `.delta/last` for each user, and the answer of each verb.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::site::TxName;
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
        let word = match report.version {
            Some(_) => "committed",
            None => "nothing to do",
        };
        Self::of(word, report, what, at)
    }

    /// A step of a transaction, which nobody else sees.
    pub(super) fn staged(tx: &TxName, report: &Report, what: &str, at: Millis) -> Self {
        let mut object = Self::object("staged", report, what);
        object.insert("transaction".to_owned(), json!(tx.name.to_string_lossy()));
        object.remove("version");
        Outcome {
            text: line(&object.into()),
            at,
        }
    }

    /// A transaction that ended without a commit.
    pub(super) fn aborted(tx: &TxName, message: &str, at: Millis) -> Self {
        let object = json!({
            "outcome": "aborted",
            "transaction": tx.name.to_string_lossy(),
            "message": message,
            "hint": "nothing was committed; rmdir the directory, and begin another transaction",
        });
        Outcome {
            text: line(&object),
            at,
        }
    }

    fn of(word: &str, report: &Report, what: &str, at: Millis) -> Self {
        Outcome {
            text: line(&Self::object(word, report, what).into()),
            at,
        }
    }

    fn object(word: &str, report: &Report, what: &str) -> Map<String, Value> {
        let metrics: Map<String, Value> = report
            .metrics
            .iter()
            .map(|(k, v)| ((*k).to_owned(), json!(v)))
            .collect();
        let mut object = Map::from_iter([
            ("outcome".to_owned(), json!(word)),
            ("operation".to_owned(), json!(report.operation)),
            ("subject".to_owned(), json!(what)),
            ("version".to_owned(), json!(report.version)),
            ("metrics".to_owned(), json!(metrics)),
        ]);
        if let Some(note) = &report.note {
            object.insert("note".to_owned(), json!(note));
        }
        object
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

pub(super) fn line(object: &Value) -> Bytes {
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
