//! Explicit transactions: `.delta/tx/NAME/` is the table as one transaction sees it (DESIGN.md §6). mkdir begins it,
//! `commit` commits it, rmdir aborts it; so do the end of the mount and being left alone.
//!
//! # Why nodes only name their transaction
//! The kernel remembers names for as long as it likes, and whoever lets go of a transaction last removes its files.
//! Nothing is cached under its names either: its end is seen at once.

mod nodes;
mod steps;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) use nodes::TxEntry;

use super::node::Node;
use super::outcome::Outcome;
use super::past::changeable;
use super::site::{Site, TxName};
use super::stage::Phase as StagePhase;
use super::{Caller, Core, Entry, FsError, FsResult, domain, free_name, not_permitted};
use crate::env::Millis;
use crate::error::Kind;
use crate::namespace::Verb;
use crate::ops::Transaction;
use crate::table::{Snapshot, Table};

/// The transactions of a mount, by table and name; those that have ended, too, until their outcome has been kept for
/// long enough.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    known: BTreeMap<(PathBuf, OsString), Arc<Tx>>,
    /// The number of the last one.
    last: u64,
}

/// A transaction and what became of it.
#[derive(Debug)]
pub(super) struct Tx {
    pub(super) name: Arc<TxName>,
    pub(super) uid: u32,
    table: Arc<Table>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When it was used last, or when it ended.
    used: Millis,
    /// What became of the last step of each verb.
    verbs: BTreeMap<Verb, Outcome>,
}

#[derive(Debug, Clone)]
enum Phase {
    Open(Arc<Transaction>),
    Over {
        outcome: Outcome,
        /// In words.
        how: String,
    },
}

impl Tx {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its steps are taken with.
    ///
    /// # Errors
    /// [`Kind::ReadOnly`] when it is over.
    pub(super) fn steps(&self) -> FsResult<Arc<Transaction>> {
        match &self.state().phase {
            Phase::Open(steps) => Ok(Arc::clone(steps)),
            Phase::Over { how, .. } => Err(FsError::Domain {
                kind: Kind::ReadOnly,
                message: format!(
                    "the transaction {} is over: {how}",
                    self.name.name.display()
                ),
                hint: Some(format!(
                    "see {0}/outcome; rmdir {0}, and begin another one with mkdir",
                    self.name.path()
                )),
            }),
        }
    }

    fn touch(&self, now: Millis) {
        let mut state = self.state();
        if let Phase::Open(_) = state.phase {
            state.used = now;
        }
    }

    /// Keeps what became of a step.
    pub(super) fn note(&self, verb: Verb, outcome: Outcome) {
        self.state().verbs.insert(verb, outcome);
    }

    /// Ends it. What comes back is to be dropped without a lock: that removes what is left on the disk.
    #[must_use]
    fn end(&self, how: String, outcome: Outcome) -> Option<Arc<Transaction>> {
        let mut state = self.state();
        state.used = outcome.at;
        match std::mem::replace(&mut state.phase, Phase::Over { outcome, how }) {
            Phase::Open(steps) => Some(steps),
            over @ Phase::Over { .. } => {
                // What it came to first counts.
                state.phase = over;
                None
            }
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.state().phase, Phase::Open(_))
    }

    fn root(&self) -> Node {
        Site::inside(&self.name).folder("")
    }
}

impl Core {
    fn transactions(&self) -> MutexGuard<'_, Transactions> {
        self.transactions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The transaction of a node.
    ///
    /// # Errors
    /// [`FsError::NotFound`] when it is no more, also when another one has its name.
    fn tx(&self, name: &TxName) -> FsResult<Arc<Tx>> {
        let key = (name.table.clone(), name.name.clone());
        let found = self.transactions().known.get(&key).cloned();
        let found = found.filter(|tx| tx.name.number == name.number);
        found.ok_or(FsError::NotFound)
    }

    /// A transaction of which something is asked, and what its steps are taken with.
    ///
    /// # Errors
    /// [`FsError::NotFound`]; [`Kind::ReadOnly`] when it is over.
    pub(super) fn open_steps(&self, name: &TxName) -> FsResult<(Arc<Tx>, Arc<Transaction>)> {
        let tx = self.tx(name)?;
        tx.touch(self.env.now());
        let steps = tx.steps()?;
        Ok((tx, steps))
    }

    /// Notes that a transaction is in use.
    pub(super) fn touch_tx(&self, name: &TxName) {
        if let Ok(tx) = self.tx(name) {
            tx.touch(self.env.now());
        }
    }

    /// The table as a transaction sees it.
    ///
    /// # Errors
    /// As [`Core::open_steps`].
    pub(super) fn view(&self, name: &TxName) -> FsResult<(Arc<Table>, Arc<Snapshot>)> {
        let (tx, steps) = self.open_steps(name)?;
        Ok((Arc::clone(&tx.table), steps.view()))
    }

    /// As [`Core::view`]; a transaction that is over shows nothing.
    fn shown(&self, name: &TxName) -> FsResult<Option<(Arc<Table>, Arc<Snapshot>)>> {
        match self.tx(name)?.is_open() {
            true => self.view(name).map(Some),
            false => Ok(None),
        }
    }

    /// Fails where nothing can be changed, or not by this caller.
    pub(super) fn may_change(&self, parent: &Node, caller: Caller) -> FsResult<()> {
        changeable(parent)?;
        match parent {
            Node::Tx { tx, .. } => self.may_write(&Site::inside(tx), caller),
            _ => Ok(()),
        }
    }

    /// Fails in a transaction that is over, or somebody else's.
    pub(super) fn may_write(&self, site: &Site, caller: Caller) -> FsResult<()> {
        let Some(name) = &site.tx else {
            return Ok(());
        };
        let (tx, _) = self.open_steps(name)?;
        owned_by(&tx, caller)
    }

    /// The transaction with that name in `tx/`.
    pub(super) fn tx_named(&self, owner: &Path, name: &OsStr) -> FsResult<Node> {
        let key = (owner.to_owned(), name.to_owned());
        let found = self.transactions().known.get(&key).map(|tx| tx.root());
        found.ok_or(FsError::NotFound)
    }

    /// The transactions of a table, by name.
    pub(super) fn tx_roots(&self, owner: &Path) -> Vec<(OsString, Node)> {
        let transactions = self.transactions();
        let of_table = transactions.known.iter().filter(|((o, _), _)| o == owner);
        of_table
            .map(|((_, name), tx)| (name.clone(), tx.root()))
            .collect()
    }

    /// `mkdir .delta/tx/NAME`.
    pub(super) fn begin_tx(&self, owner: &Path, name: &OsStr, caller: Caller) -> FsResult<Entry> {
        free_name(name)?;
        let limits = self.settings.transactions;
        self.room_for(limits.open)?;
        let (table, _) = self.table(owner)?;
        let shown = name.to_string_lossy();
        let steps = Transaction::begin(&table, &shown, limits.files).map_err(|e| domain(&e))?;
        let mut transactions = self.transactions();
        transactions.has_room(limits.open)?;
        let key = (owner.to_owned(), name.to_owned());
        if transactions.known.contains_key(&key) {
            return Err(FsError::Exists);
        }
        transactions.last += 1;
        let tx = Arc::new(Tx {
            name: Arc::new(TxName {
                table: owner.to_owned(),
                name: name.to_owned(),
                number: transactions.last,
            }),
            uid: caller.uid,
            table,
            state: Mutex::new(State {
                phase: Phase::Open(Arc::new(steps)),
                used: self.env.now(),
                verbs: BTreeMap::new(),
            }),
        });
        transactions.known.insert(key, Arc::clone(&tx));
        drop(transactions);
        tracing::info!(table = %owner.display(), name = %shown, uid = caller.uid, "a transaction begins");
        self.entry(tx.root())
    }

    fn room_for(&self, limit: usize) -> FsResult<()> {
        let mut transactions = self.transactions();
        let forgotten = transactions.forget_oldest(limit);
        let room = transactions.has_room(limit);
        drop(transactions);
        drop(forgotten);
        room
    }

    /// `rmdir .delta/tx/NAME`: nothing of it stays.
    pub(super) fn abort_tx(&self, name: &TxName, caller: Caller) -> FsResult<()> {
        let tx = self.tx(name)?;
        owned_by(&tx, caller)?;
        if let Ok(steps) = tx.steps() {
            steps.abort().map_err(|e| domain(&e))?;
            drop(steps);
            self.end(&tx, "it was aborted by rmdir");
        }
        let key = (name.table.clone(), name.name.clone());
        let removed = self.transactions().known.remove(&key);
        drop(removed);
        Ok(())
    }

    /// Ends a transaction without a commit.
    fn end(&self, tx: &Tx, how: &str) {
        let outcome = Outcome::aborted(&tx.name, how, self.env.now());
        let steps = tx.end(how.to_owned(), outcome);
        self.close(tx);
        drop(steps);
        tracing::info!(table = %tx.name.table.display(), name = %tx.name.name.display(), how, "a transaction ends");
    }

    /// Forgets what was on its way into a transaction that is over. What somebody still writes is refused when it is
    /// closed.
    fn close(&self, tx: &Tx) {
        let stages = self.overlay().close(&Site::inside(&tx.name));
        for stage in stages {
            let mut state = stage.state();
            if state.writers == 0 && matches!(state.phase, StagePhase::Open) {
                state.phase = StagePhase::Gone;
            }
        }
    }

    /// Ends what was left alone, and forgets what has ended long ago.
    pub(super) fn expire_transactions(&self) {
        let idle = self.settings.transactions.idle;
        let limit = Millis::try_from(idle.as_millis()).unwrap_or(Millis::MAX);
        let now = self.env.now();
        let known: Vec<Arc<Tx>> = self.transactions().known.values().cloned().collect();
        for tx in known {
            let (open, used) = {
                let state = tx.state();
                let open = match &state.phase {
                    Phase::Open(steps) => Some(Arc::clone(steps)),
                    Phase::Over { .. } => None,
                };
                (open, state.used)
            };
            if now.saturating_sub(used) <= limit {
                continue;
            }
            match open {
                Some(steps) => {
                    let busy = !steps.is_idle()
                        || self.overlay().is_written(&Site::inside(&tx.name))
                        || steps.abort().is_err();
                    drop(steps);
                    if busy {
                        continue;
                    }
                    let how = format!("it was aborted after {} s of idleness", idle.as_secs());
                    self.end(&tx, &how);
                }
                None => {
                    let key = (tx.name.table.clone(), tx.name.name.clone());
                    let mut transactions = self.transactions();
                    let same = |known: &Arc<Tx>| Arc::ptr_eq(known, &tx);
                    if transactions.known.get(&key).is_some_and(same) {
                        transactions.known.remove(&key);
                    }
                }
            }
        }
    }

    /// The end of the mount.
    pub(super) fn end_transactions(&self) {
        let known = std::mem::take(&mut self.transactions().known);
        for tx in known.into_values().filter(|tx| tx.is_open()) {
            self.end(&tx, "it was aborted by the end of the mount");
        }
    }
}

impl Transactions {
    fn has_room(&self, limit: usize) -> FsResult<()> {
        let open = self.known.values().filter(|tx| tx.is_open()).count();
        if open < limit {
            return Ok(());
        }
        Err(FsError::Domain {
            kind: Kind::NoSpace,
            message: format!("{open} transactions are open in this mount, and that is the limit"),
            hint: Some(
                "commit one of them, or abort it with rmdir; mount with --transactions for more"
                    .to_owned(),
            ),
        })
    }

    /// Forgets one that has ended when there are many of them.
    fn forget_oldest(&mut self, limit: usize) -> Option<Arc<Tx>> {
        let over = || self.known.iter().filter(|(_, tx)| !tx.is_open());
        if over().count() <= limit.saturating_mul(4) {
            return None;
        }
        let oldest = over().min_by_key(|(_, tx)| tx.state().used);
        let key = oldest.map(|(key, _)| key.clone())?;
        self.known.remove(&key)
    }
}

/// Fails for everybody but its owner and root.
fn owned_by(tx: &Tx, caller: Caller) -> FsResult<()> {
    if caller.uid == tx.uid || caller.uid == 0 {
        return Ok(());
    }
    Err(not_permitted(
        format!(
            "the transaction {} belongs to the user {}",
            tx.name.name.display(),
            tx.uid
        ),
        "begin one of your own with mkdir",
    ))
}
