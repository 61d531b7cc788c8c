//! Group commit: appends that wait at the same time become one version, and each gets its own outcome.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::commit::{Attempt, DEADLINE_MS, Outcome};
use super::txn::{Operation, Staged};
use super::vectors::Prepared;
use super::{Snapshot, Table, TableError, properties};
use crate::log::Action;

/// Files that one version takes up at most.
const MAX_FILES: usize = 10_000;
/// Longest pause between two attempts.
const PAUSE_MS: u64 = 20;
/// The parameter of an append that names its file.
const FILE: &str = "file";

/// An append that waits for its version.
#[derive(Debug)]
pub(super) struct Waiting {
    base: Arc<Snapshot>,
    staged: Staged,
    answer: Mutex<Option<Answer>>,
}

/// What a member is told.
#[derive(Debug)]
enum Answer {
    Done(Result<Outcome, TableError>),
    /// The table has another schema, protocol or history by now: it has to be judged by itself.
    Alone,
}

/// Whether a transaction can be committed together with others: new files and nothing else.
pub(super) fn fits(staged: &Staged) -> bool {
    let adds = |a: &Action| matches!(a, Action::Add(_));
    staged.is_blind() && staged.actions.iter().all(adds) && staged.operation.user_metadata.is_none()
}

impl Waiting {
    fn answer(&self, outcome: Result<Outcome, TableError>) {
        self.tell(Answer::Done(outcome));
    }

    fn tell(&self, what: Answer) {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        *answer = Some(what);
    }

    fn take(&self) -> Option<Answer> {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.take()
    }

    fn is_answered(&self) -> bool {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.is_some()
    }
}

impl Table {
    /// Commits an append with whatever else waits for its turn. `None` when it has to be judged by itself.
    pub(super) fn commit_in_group(
        &self,
        base: &Arc<Snapshot>,
        staged: &Staged,
    ) -> Option<Result<Outcome, TableError>> {
        let mine = Arc::new(Waiting {
            base: Arc::clone(base),
            staged: staged.clone(),
            answer: Mutex::new(None),
        });
        self.waiting().push(Arc::clone(&mine));
        let turn = match self.turn() {
            Ok(turn) => turn,
            Err(error) => {
                // Whoever has the turn may have taken it along all the same.
                self.waiting().retain(|w| !Arc::ptr_eq(w, &mine));
                return match mine.take() {
                    Some(Answer::Done(outcome)) => Some(outcome),
                    Some(Answer::Alone) => None,
                    None => Some(Err(error)),
                };
            }
        };
        if !mine.is_answered() {
            let mut group = std::mem::take(&mut *self.waiting());
            self.commit_group(&mut group);
        }
        drop(turn);
        match mine.take() {
            Some(Answer::Done(outcome)) => Some(outcome),
            Some(Answer::Alone) => None,
            None => Some(Err(TableError::Unknown {
                version: base.version(),
                reason: "the group that it was committed with left no answer".to_owned(),
            })),
        }
    }

    /// Keeps everybody else from committing, for tests of those who wait.
    #[cfg(test)]
    pub(crate) fn hold_turn(&self) -> std::sync::MutexGuard<'_, ()> {
        self.committing.lock().unwrap()
    }

    #[cfg(test)]
    pub(crate) fn waiting_appends(&self) -> usize {
        self.waiting().len()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers every member. The caller has the turn.
    fn commit_group(&self, group: &mut Vec<Arc<Waiting>>) {
        let started = self.env.now();
        let mut attempts = 0;
        while !group.is_empty() {
            let newest = self.snapshot();
            let members = self.members(group, &newest);
            if members.is_empty() {
                continue;
            }
            attempts += 1;
            match self.attempt_group(&newest, &members) {
                Ok(Some(after)) => {
                    for member in &members {
                        member.answer(Ok(Outcome::Committed(Arc::clone(&after))));
                    }
                }
                // Somebody else was first; they are looked at again.
                Ok(None) => {}
                Err(TableError::Unknown { version, reason }) => {
                    for member in &members {
                        member.answer(Err(TableError::Unknown {
                            version,
                            reason: reason.clone(),
                        }));
                    }
                }
                Err(error) => match members.as_slice() {
                    [single] => single.answer(Err(error)),
                    // What is wrong with one is not to fail the others: each by itself.
                    all => {
                        for member in all {
                            self.commit_group(&mut vec![Arc::clone(member)]);
                        }
                    }
                },
            }
            group.retain(|w| !w.is_answered());
            let millis = self.env.now().saturating_sub(started);
            if millis > DEADLINE_MS {
                for late in group.drain(..) {
                    late.answer(Err(TableError::Contention { attempts, millis }));
                }
            }
            if attempts > 1 && !group.is_empty() {
                self.env
                    .pause(Duration::from_millis(self.env.below(PAUSE_MS)));
            }
        }
    }

    /// Those of `group` that can follow `newest` in one version. The others are answered, or wait for the next one.
    fn members(&self, group: &mut Vec<Arc<Waiting>>, newest: &Arc<Snapshot>) -> Vec<Arc<Waiting>> {
        let mut members: Vec<Arc<Waiting>> = Vec::new();
        let mut names = BTreeSet::new();
        let mut files = 0;
        group.retain(|waiting| {
            let Waiting { base, staged, .. } = &**waiting;
            let goes_on = newest.version() >= base.version()
                && newest.metadata() == base.metadata()
                && newest.protocol() == base.protocol();
            if !goes_on {
                waiting.tell(Answer::Alone);
                return false;
            }
            let taken = |name: &String| newest.named(name).is_some();
            if staged.absent.as_ref().is_some_and(taken) {
                waiting.answer(Ok(Outcome::Raced(Arc::clone(newest))));
                return false;
            }
            // The second of a name replaces the first: not in one version.
            let first = staged.absent.iter().all(|name| names.insert(name.clone()));
            files += staged.actions.len();
            if first && (members.is_empty() || files <= MAX_FILES) {
                members.push(Arc::clone(waiting));
            }
            true
        });
        members
    }

    fn attempt_group(
        &self,
        newest: &Arc<Snapshot>,
        members: &[Arc<Waiting>],
    ) -> Result<Option<Arc<Snapshot>>, TableError> {
        let staged = merged(members);
        let read = members.iter().map(|m| m.base.version()).min();
        let attempt = Attempt {
            staged: &staged,
            prepared: &Prepared::default(),
            level: properties::isolation_level(newest.metadata()),
            txn_id: &self.env.uuid().to_string(),
            read_version: read.unwrap_or_else(|| newest.version()),
        };
        self.attempt(newest, &attempt)
    }
}

/// The members as one transaction; a single one as it is.
fn merged(members: &[Arc<Waiting>]) -> Staged {
    let [first, others @ ..] = members else {
        return Staged::append(Vec::new(), Operation::new("WRITE"));
    };
    let mut merged = first.staged.clone();
    if others.is_empty() {
        return merged;
    }
    let mut files = Vec::new();
    for member in members {
        let operation = &member.staged.operation;
        files.extend(
            operation
                .parameters
                .iter()
                .filter(|(key, _)| *key == FILE)
                .map(|(_, v)| v),
        );
    }
    let files = serde_json::json!(files).to_string();
    merged.operation.parameters.retain(|(key, _)| *key != FILE);
    merged.operation.parameters.push(("files", files));
    for Waiting { staged, .. } in others.iter().map(|m| &**m) {
        merged.actions.extend_from_slice(&staged.actions);
        for (key, value) in &staged.operation.metrics {
            let sum = merged.operation.metrics.entry(key).or_insert(0);
            *sum = sum.saturating_add(*value);
        }
    }
    merged
}
