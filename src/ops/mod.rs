//! What users do to tables, one file an operation. Knows tables and queries; never paths of a mount, inodes or
//! errno. An operation stages its actions against one snapshot and commits through `table`; when somebody else
//! was first it looks again at the new snapshot.

mod append;
mod checkpoint;
mod cleanup;
mod condition;
mod create;
mod delete;
mod error;
mod files;
mod layout;
#[cfg(test)]
mod log_testing;
mod optimize;
mod options;
mod parallel;
mod prune;
mod rewrite;
mod scan;
#[cfg(test)]
mod table_testing;
mod transaction;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use append::{Append, Appended, Replaces, append};
pub use checkpoint::checkpoint;
pub use cleanup::{Cleaned, Kept, cleanup};
pub use create::create_from;
pub use delete::{Delete, delete};
pub use error::OpError;
pub use files::{remove, rename};
pub use optimize::{Optimize, optimize};
pub use options::Options;
pub use prune::kept_files;
pub use scan::{Scan, scan};
pub use transaction::{Counts, Transaction};

use crate::env::Millis;
use crate::failpoint::{self, Point};
use crate::table::{Outcome, Snapshot, Staged, Table, TableError};

/// How long an operation goes on when others are first, each time with a new look.
const DEADLINE_MS: Millis = 60_000;

/// What an operation did.
#[derive(Debug, Clone)]
pub struct Report {
    /// As in `commitInfo.operation`.
    pub operation: &'static str,
    /// The version it committed; `None` when there was nothing to do.
    pub version: Option<u64>,
    pub metrics: BTreeMap<&'static str, u64>,
    /// What else its user should know.
    pub note: Option<String>,
    pub snapshot: Option<Arc<Snapshot>>,
}

/// Where an operation begins, and what it does about a conflict.
#[derive(Debug, Clone, Default)]
pub(super) struct Start {
    /// The snapshot that it reads; `None` for the newest one.
    base: Option<Arc<Snapshot>>,
    /// How often it is run again on the newest version after a conflict.
    retries: u32,
}

/// Stages and commits until it is committed or fails for good. `stage` gives `None` when there is nothing to do;
/// what it has written must be removed by itself when it is asked again.
fn run(
    table: &Table,
    start: Start,
    mut stage: impl FnMut(&Arc<Snapshot>) -> Result<Option<Staged>, OpError>,
) -> Result<Option<(Arc<Snapshot>, Staged)>, OpError> {
    let env = table.env();
    let started = env.now();
    let mut base = match start.base {
        Some(base) => base,
        None => table.refresh()?,
    };
    let mut retries = start.retries;
    let mut attempts = 0;
    loop {
        let Some(mut staged) = stage(&base)? else {
            return Ok(None);
        };
        attempts += 1;
        failpoint::hit(Point::DataWritten);
        match table.commit(&base, &mut staged) {
            Ok(Outcome::Committed(snapshot)) => return Ok(Some((snapshot, staged))),
            Ok(Outcome::Superseded(_)) => return Ok(None),
            Ok(Outcome::Raced(newest)) => base = newest,
            Err(TableError::Conflict(_) | TableError::Overtaken { .. }) if retries > 0 => {
                retries -= 1;
                base = table.refresh()?;
            }
            Err(error) => return Err(error.into()),
        }
        let millis = env.now().saturating_sub(started);
        if millis > DEADLINE_MS {
            return Err(TableError::Contention { attempts, millis }.into());
        }
        env.pause(std::time::Duration::from_millis(env.below(10)));
    }
}

/// Whether nobody can say if an error came before or after the commit: what it refers to must stay.
fn is_unknown(error: &OpError) -> bool {
    matches!(error, OpError::Table(TableError::Unknown { .. }))
}

/// Takes back files that nobody refers to.
fn discard(table: &Table, written: &mut Vec<String>) {
    for path in written.drain(..) {
        table.discard(&path);
    }
}

fn elapsed_ms(table: &Table, started: Millis) -> u64 {
    u64::try_from(table.env().now().saturating_sub(started)).unwrap_or(0)
}

/// A file's time in milliseconds since the epoch.
fn modified_ms(meta: &std::fs::Metadata) -> Millis {
    use std::os::unix::fs::MetadataExt as _;
    meta.mtime()
        .saturating_mul(1000)
        .saturating_add(meta.mtime_nsec() / 1_000_000)
}

#[cfg(test)]
mod conflict_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod matrix_tests;
#[cfg(test)]
mod serial_tests;
