//! Whether what clients were told and what a table holds fit together: acknowledged effects are there once, others are
//! not, and the versions are the work of the transactions one after the other, in an order that their isolation level
//! allows. Knows nothing of how conflicts are found.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{State, Statement};
use crate::table::Level;

/// What a client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is this version.
    Version(u64),
    /// There was nothing to do.
    Nothing,
    /// Nothing was committed, because of this.
    Refused(String),
}

/// A transaction as its client knows it.
#[derive(Debug, Clone)]
pub(crate) struct Txn {
    pub(crate) client: usize,
    pub(crate) statement: Statement,
    /// The application's name for it.
    pub(crate) app: Option<(String, i64)>,
    /// The version that it has read.
    pub(crate) read: u64,
    /// Where it had nothing to do: the last one that it may have read.
    pub(crate) until: u64,
    pub(crate) answer: Answer,
}

impl Txn {
    pub(crate) fn version(&self) -> Option<u64> {
        match self.answer {
            Answer::Version(version) => Some(version),
            Answer::Nothing | Answer::Refused(_) => None,
        }
    }
}

/// Holds a history against the states of the versions from 0 on. Gives an order of the committed transactions that
/// explains the last one.
///
/// # Errors
/// What does not fit.
pub(crate) fn check(history: &[Txn], states: &[State]) -> Result<Vec<usize>, String> {
    let makers = ledger(history, states)?;
    nothing_to_do(history, states)?;
    metadata_stays(history)?;
    let mut order = Vec::new();
    for last in 0..states.len() {
        order = Orders::new(history, &states[..=last], &makers[..=last]).find()?;
        explains(history, states, last, &order)?;
    }
    Ok(order)
}

/// Who has made each version: one transaction, or blind appends that waited together.
fn ledger(history: &[Txn], states: &[State]) -> Result<Vec<Vec<usize>>, String> {
    let mut makers = vec![Vec::new(); states.len()];
    for (index, txn) in history.iter().enumerate() {
        let Some(version) = txn.version() else {
            continue;
        };
        let slot = usize::try_from(version)
            .ok()
            .and_then(|v| makers.get_mut(v));
        let slot: &mut Vec<usize> =
            slot.ok_or_else(|| format!("version {version} was promised and is not there"))?;
        slot.push(index);
        if txn.read >= version {
            return Err(format!(
                "version {version} says that it has read {}",
                txn.read
            ));
        }
    }
    for (version, makers) in makers.iter().enumerate().skip(1) {
        let appends = makers.iter().all(|m| history[*m].statement.is_append());
        match makers.len() {
            0 => return Err(format!("nobody was told of version {version}")),
            1 => {}
            _ if appends => {}
            _ => return Err(format!("version {version} is the work of {makers:?}")),
        }
    }
    Ok(makers)
}

/// Those who had nothing to do had nothing to do in the version that they had read.
fn nothing_to_do(history: &[Txn], states: &[State]) -> Result<(), String> {
    for (index, txn) in history.iter().enumerate() {
        let Statement::Delete(pred) = &txn.statement else {
            continue;
        };
        let nothing = |version: u64| {
            let state = &states[usize::try_from(version).unwrap()];
            let done = |(app, number): &(String, i64)| state.apps.get(app) >= Some(number);
            state.count(pred) == 0 || txn.app.as_ref().is_some_and(done)
        };
        if txn.answer == Answer::Nothing && !(txn.read..=txn.until).any(nothing) {
            return Err(format!(
                "{index} had something to do in version {}",
                txn.read
            ));
        }
    }
    Ok(())
}

/// No transaction is committed over a change of the metadata that it does not know.
fn metadata_stays(history: &[Txn]) -> Result<(), String> {
    for alter in history.iter().filter(|t| t.statement.is_alter()) {
        let Some(at) = alter.version() else { continue };
        for (index, txn) in history.iter().enumerate() {
            if txn.read < at && txn.version().is_some_and(|v| v > at) {
                return Err(format!(
                    "{index} has read version {} and not the metadata of {at}",
                    txn.read
                ));
            }
        }
    }
    Ok(())
}

/// The orders in which each transaction sees what it has seen.
struct Orders<'a> {
    history: &'a [Txn],
    /// Committed ones, by version.
    txns: Vec<usize>,
    /// Who must come before whom, whatever they have seen.
    before: BTreeSet<(usize, usize)>,
    seen: Vec<Sight>,
}

/// What a transaction that would have read a row has to do with it.
struct Sight {
    reader: usize,
    writer: usize,
    deleter: Option<usize>,
    /// Whether it was there.
    seen: bool,
}

impl<'a> Orders<'a> {
    fn new(history: &'a [Txn], states: &[State], makers: &[Vec<usize>]) -> Self {
        let mut orders = Orders {
            history,
            txns: makers.iter().flatten().copied().collect(),
            before: BTreeSet::new(),
            seen: Vec::new(),
        };
        // Where rows went.
        let mut deleters = BTreeMap::new();
        for (version, pair) in states.windows(2).enumerate() {
            for id in pair[0]
                .rows
                .keys()
                .filter(|id| !pair[1].rows.contains_key(id))
            {
                let by = makers[version + 1].first().copied();
                deleters.insert(*id, (by, version as u64 + 1));
            }
        }
        for reader in orders.txns.clone() {
            let txn = &history[reader];
            orders.apart(reader, &states[usize::try_from(txn.read).unwrap()]);
            let Some(pred) = txn.statement.reads() else {
                continue;
            };
            for writer in orders.txns.clone() {
                let there = history[writer].version() <= Some(txn.read);
                let rows = history[writer].statement.rows().iter();
                for row in rows.filter(|row| pred.selects(row) && writer != reader) {
                    let gone = deleters.get(&row.id);
                    orders.seen.push(Sight {
                        reader,
                        writer,
                        deleter: gone.and_then(|(by, _)| *by),
                        seen: there && gone.is_none_or(|(_, version)| *version > txn.read),
                    });
                }
            }
        }
        orders
    }

    /// Those that nothing moves: under Serializable, and what changes the metadata.
    fn apart(&mut self, later: usize, read: &State) {
        let txn = &self.history[later];
        for earlier in &self.txns {
            let other = &self.history[*earlier];
            let metadata = txn.statement.is_alter() || other.statement.is_alter();
            let first = other.version() < txn.version();
            if first && (metadata || read.level == Level::Serializable) {
                self.before.insert((*earlier, later));
            }
            if let (Some((app, number)), Some((same, previous))) = (&txn.app, &other.app)
                && app == same
                && previous < number
            {
                self.before.insert((*earlier, later));
            }
        }
    }

    /// One of the orders, close to that of the versions.
    fn find(&self) -> Result<Vec<usize>, String> {
        let mut order = Vec::new();
        if self.extend(&mut order, &mut BTreeSet::new()) {
            return Ok(order);
        }
        let versions = self.txns.iter().map(|i| (*i, self.history[*i].version()));
        let mut why: Vec<String> = self
            .before
            .iter()
            .map(|(a, b)| format!("{a} before {b}"))
            .collect();
        why.extend(self.seen.iter().map(|s| {
            let sees = if s.seen { "sees" } else { "does not see" };
            format!("{} {sees} {} until {:?}", s.reader, s.writer, s.deleter)
        }));
        why.dedup();
        Err(format!(
            "no order explains {:?}: {}",
            versions.collect::<Vec<_>>(),
            why.join(", ")
        ))
    }

    fn extend(&self, order: &mut Vec<usize>, failed: &mut BTreeSet<Vec<usize>>) -> bool {
        if order.len() == self.txns.len() {
            return true;
        }
        let mut placed = order.clone();
        placed.sort_unstable();
        if failed.contains(&placed) {
            return false;
        }
        for next in &self.txns {
            if !placed.contains(next) && self.fits(*next, &placed) {
                order.push(*next);
                if self.extend(order, failed) {
                    return true;
                }
                order.pop();
            }
        }
        failed.insert(placed);
        false
    }

    fn fits(&self, next: usize, placed: &[usize]) -> bool {
        let is = |txn: usize| placed.contains(&txn);
        let mut first = self.before.iter().filter(|(_, b)| *b == next);
        let mut sights = self.seen.iter().filter(|s| s.reader == next);
        first.all(|(a, _)| is(*a))
            && sights.all(|s| {
                let gone = s.deleter.is_some_and(|by| by != next && is(by));
                s.seen == (is(s.writer) && !gone)
            })
    }
}

/// Runs the transactions in this order and holds the outcome against a version.
fn explains(
    history: &[Txn],
    states: &[State],
    version: usize,
    order: &[usize],
) -> Result<(), String> {
    let mut state = states[0].clone();
    for index in order {
        let txn = &history[*index];
        state
            .run(&txn.statement, txn.app.as_ref())
            .map_err(|e| format!("version {version}, {index}: {e} (in the order {order:?})"))?;
    }
    match states[version].differs(&state) {
        None => Ok(()),
        Some(difference) => Err(format!(
            "version {version}: {difference} (in the order {order:?})"
        )),
    }
}
