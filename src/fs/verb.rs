//! A verb of `ctl/`: one write, one statement (DESIGN.md §4).

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::outcome::Outcome;
use super::stage::{is_killed, process_of};
use super::transaction::Tx;
use super::{Caller, Core, FsError, FsResult, domain};
use crate::control::{self, ControlError};
use crate::error::Failure;
use crate::namespace::Verb;
use crate::ops;
use crate::table::{Snapshot, Table};

/// What a control file runs.
#[derive(Debug, Clone)]
pub(super) enum Statement {
    Verb {
        verb: Verb,
        table: Arc<Table>,
        /// What it reads: the newest version when the file was opened.
        base: Arc<Snapshot>,
    },
    /// A step of a transaction, which reads what came before it.
    Step(Verb, Arc<Tx>),
    Commit(Arc<Tx>),
}

impl Statement {
    /// As outcomes name it before it has run.
    fn name(&self) -> String {
        match self {
            Statement::Verb { verb, .. } | Statement::Step(verb, _) => verb.name().to_uppercase(),
            Statement::Commit(_) => "COMMIT".to_owned(),
        }
    }
}

/// One open of a verb for writing.
#[derive(Debug)]
pub(super) struct VerbHandle {
    statement: Statement,
    owner: PathBuf,
    uid: u32,
    pending: Vec<u8>,
    /// The process that opened it: only its close says that the statement is whole.
    opener: Option<u32>,
    /// What became of a statement that was refused, for the close as well.
    failure: Option<FsError>,
    /// Set once: whatever follows is not run.
    answer: Option<Bytes>,
}

impl VerbHandle {
    pub(super) fn new(statement: Statement, owner: PathBuf, caller: Caller) -> Self {
        VerbHandle {
            statement,
            owner,
            uid: caller.uid,
            pending: Vec::new(),
            opener: process_of(caller.pid),
            failure: None,
            answer: None,
        }
    }
}

fn lock(verb: &Mutex<VerbHandle>) -> MutexGuard<'_, VerbHandle> {
    verb.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a read of the handle gives: its own result, once there is one.
pub(super) fn answer(verb: &Mutex<VerbHandle>) -> Bytes {
    lock(verb).answer.clone().unwrap_or_default()
}

pub(super) fn size(verb: &Mutex<VerbHandle>) -> u64 {
    answer(verb).len() as u64
}

impl Core {
    /// A write that ends in a newline is a whole statement and runs at once; anything else waits.
    pub(super) fn verb_write(&self, verb: &Mutex<VerbHandle>, data: &[u8]) -> FsResult<()> {
        let mut state = lock(verb);
        if state.answer.is_some() {
            return Err(domain(&ControlError::Second));
        }
        if state.pending.len() + data.len() > crate::control::MAX_BYTES {
            state.pending.clear();
            return self.verb_result(&mut state, Err(Box::new(ControlError::TooLong)), "");
        }
        state.pending.extend_from_slice(data);
        if data.last() == Some(&b'\n') && !is_preamble(&state.pending) {
            return self.verb_run(&mut state);
        }
        Ok(())
    }

    /// Runs what a handle has been given without a final newline.
    pub(super) fn verb_flush(&self, verb: &Mutex<VerbHandle>, caller: Caller) -> FsResult<()> {
        let mut state = lock(verb);
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.answer.is_some() || is_blank(&state.pending) {
            return Ok(());
        }
        // A child that inherited the descriptor closes its copy in the middle of the statement, and so does whoever
        // is killed: what is half written is nobody's wish.
        let process = process_of(caller.pid);
        if process.is_some() && state.opener.is_some() && process != state.opener {
            return Ok(());
        }
        if is_killed(caller.pid) {
            state.pending.clear();
            return Ok(());
        }
        self.verb_run(&mut state)
    }

    fn verb_run(&self, state: &mut VerbHandle) -> FsResult<()> {
        let text = std::mem::take(&mut state.pending);
        let parsed = match control::Statement::parse(&text) {
            Ok(parsed) => parsed,
            Err(e) => {
                let shown = String::from_utf8_lossy(&text).trim().to_owned();
                return self.verb_result(state, Err(Box::new(e)), &shown);
            }
        };
        let outcome: Result<ops::Report, Box<dyn Failure>> = match &state.statement {
            Statement::Verb { verb, table, base } => {
                let before = table.snapshot();
                let outcome = self.run_verb(*verb, table, base, &parsed);
                if let Ok(report) = &outcome {
                    self.done(&state.owner, &before, report);
                }
                outcome
            }
            Statement::Step(verb, tx) => self.run_step(*verb, tx, &parsed),
            Statement::Commit(tx) => self.commit_tx(tx, &parsed),
        };
        let subject = match &state.statement {
            Statement::Commit(tx) => tx.name.name.to_string_lossy().into_owned(),
            Statement::Verb { .. } | Statement::Step(..) => parsed.text,
        };
        self.verb_result(state, outcome, &subject)
    }

    fn run_verb(
        &self,
        verb: Verb,
        table: &Table,
        base: &Arc<Snapshot>,
        parsed: &control::Statement,
    ) -> Result<ops::Report, Box<dyn Failure>> {
        match verb {
            Verb::Delete => {
                let request = ops::Delete {
                    predicate: &parsed.text,
                    options: &parsed.options,
                };
                ops::delete(table, &request, Some(base), &|| self.scratch()).map_err(boxed)
            }
            Verb::Optimize => {
                let request = ops::Optimize {
                    predicate: control::optimize(&parsed.text).map_err(boxed)?,
                    options: &parsed.options,
                };
                ops::optimize(table, &request, Some(base), &|| self.scratch()).map_err(boxed)
            }
        }
    }

    fn run_step(
        &self,
        verb: Verb,
        tx: &Tx,
        parsed: &control::Statement,
    ) -> Result<ops::Report, Box<dyn Failure>> {
        let steps = tx.steps().map_err(boxed)?;
        let outcome = match verb {
            Verb::Delete => {
                let request = ops::Delete {
                    predicate: &parsed.text,
                    options: &parsed.options,
                };
                steps.delete(&request, &|| self.scratch())
            }
            Verb::Optimize => {
                return Err(boxed(ControlError::NotYet {
                    what: "OPTIMIZE inside of a transaction",
                    there: "it to ctl/optimize of the table itself, after the transaction",
                }));
            }
        };
        self.touch_tx(&tx.name);
        outcome.map_err(boxed)
    }

    /// A file for what a statement writes.
    fn scratch(&self) -> std::io::Result<File> {
        let file = self.fresh.file();
        file.map_err(|e| std::io::Error::other(e.to_string()))
    }

    /// Keeps the answer for the handle, for the verb's file and for `last`.
    fn verb_result(
        &self,
        state: &mut VerbHandle,
        outcome: Result<ops::Report, Box<dyn Failure>>,
        text: &str,
    ) -> FsResult<()> {
        let now = self.env.now();
        let name = state.statement.name();
        let (kept, result) = match outcome {
            Ok(report) => match &state.statement {
                Statement::Step(_, tx) => (Outcome::staged(&tx.name, &report, text, now), Ok(())),
                Statement::Verb { .. } | Statement::Commit(_) => {
                    (Outcome::done(&report, text, now), Ok(()))
                }
            },
            Err(e) => {
                tracing::warn!(table = %state.owner.display(), operation = name, statement = text, error = %e, "failed");
                (Outcome::failed(&name, text, &*e, now), Err(domain(&*e)))
            }
        };
        state.answer = Some(kept.text.clone());
        state.failure = result.as_ref().err().cloned();
        let verb = match &state.statement {
            Statement::Verb { verb, .. } => Some(*verb),
            Statement::Step(verb, tx) => {
                tx.note(*verb, kept.clone());
                None
            }
            Statement::Commit(_) => None,
        };
        self.outcomes().note(&state.owner, state.uid, verb, kept);
        result
    }
}

pub(super) fn boxed(error: impl Failure + 'static) -> Box<dyn Failure> {
    Box::new(error)
}

/// Nothing but blanks and comment lines, options among them: the statement is still to come.
fn is_preamble(text: &[u8]) -> bool {
    text.split(|b| *b == b'\n')
        .map(<[u8]>::trim_ascii)
        .all(|l| l.is_empty() || l.starts_with(b"--"))
}

/// Nothing but blanks: no statement, and no error either (`: > ctl/delete`, an editor's empty save).
fn is_blank(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_whitespace)
}
