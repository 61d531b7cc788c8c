//! A verb of `ctl/`: one write, one statement (DESIGN.md §4).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::outcome::Outcome;
use super::stage::{is_killed, process_of};
use super::{Caller, Core, FsError, FsResult, domain};
use crate::control::{ControlError, Statement};
use crate::error::Failure;
use crate::namespace::Verb;
use crate::ops;
use crate::table::{Snapshot, Table};

/// One open of a verb for writing.
#[derive(Debug)]
pub(super) struct VerbHandle {
    verb: Verb,
    owner: PathBuf,
    table: Arc<Table>,
    /// What its statement reads: the newest version when it was opened.
    base: Arc<Snapshot>,
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
    pub(super) fn new(
        verb: Verb,
        owner: PathBuf,
        table: Arc<Table>,
        base: Arc<Snapshot>,
        caller: Caller,
    ) -> Self {
        VerbHandle {
            verb,
            owner,
            table,
            base,
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
        let statement = match Statement::parse(&text) {
            Ok(statement) => statement,
            Err(e) => {
                let shown = String::from_utf8_lossy(&text).trim().to_owned();
                return self.verb_result(state, Err(Box::new(e)), &shown);
            }
        };
        let table = Arc::clone(&state.table);
        let before = table.snapshot();
        let scratch = || {
            self.fresh
                .file()
                .map_err(|e| std::io::Error::other(e.to_string()))
        };
        let outcome = match state.verb {
            Verb::Delete => ops::delete(
                &table,
                &ops::Delete {
                    predicate: &statement.text,
                    options: &statement.options,
                },
                Some(&state.base),
                &scratch,
            ),
        };
        if let Ok(report) = &outcome {
            self.done(&state.owner, &before, report);
        }
        let outcome = outcome.map_err(|e| Box::new(e) as Box<dyn Failure>);
        self.verb_result(state, outcome, &statement.text)
    }

    /// Keeps the answer for the handle, for the verb's file and for `last`.
    fn verb_result(
        &self,
        state: &mut VerbHandle,
        outcome: Result<ops::Report, Box<dyn Failure>>,
        text: &str,
    ) -> FsResult<()> {
        let now = self.env.now();
        let name = state.verb.name().to_uppercase();
        let (kept, result) = match outcome {
            Ok(report) => (Outcome::done(&report, text, now), Ok(())),
            Err(e) => {
                tracing::warn!(table = %state.owner.display(), operation = name, statement = text, error = %e, "failed");
                (Outcome::failed(&name, text, &*e, now), Err(domain(&*e)))
            }
        };
        state.answer = Some(kept.text.clone());
        state.failure = result.as_ref().err().cloned();
        self.outcomes()
            .note(&state.owner, state.uid, Some(state.verb), kept);
        result
    }
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
