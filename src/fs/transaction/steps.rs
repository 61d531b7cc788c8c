//! What is done in a transaction's directory beside dropping files: removals, new names, the commit.

use std::ffi::OsStr;
use std::sync::Arc;

use super::Tx;
use crate::control::Statement;
use crate::error::{Failure, Kind};
use crate::fs::node::Node;
use crate::fs::outcome::Outcome;
use crate::fs::rename::{is_place_of, new_data_name};
use crate::fs::site::{Site, TxName};
use crate::fs::verb::boxed;
use crate::fs::{Caller, Core, FsError, FsResult, domain};
use crate::ops::{OpError, Report};
use crate::table::LiveFile;

impl Core {
    /// `rm` of a file that a transaction sees.
    pub(in crate::fs) fn remove_staged(
        &self,
        name: &TxName,
        live: &LiveFile,
        caller: Caller,
    ) -> FsResult<()> {
        let (tx, steps) = self.open_steps(name)?;
        let report = match steps.remove(&live.path) {
            // Somebody has put another file under the name: the name is what was meant.
            Err(OpError::Gone(gone)) => match steps.view().named(&live.visible) {
                Some(other) => steps.remove(&other.path),
                None => Err(OpError::Gone(gone)),
            },
            report => report,
        };
        self.note_step(&tx, caller, "DELETE", &live.visible, &report);
        report.map_err(|e| match e {
            OpError::Gone(_) => FsError::NotFound,
            e => domain(&e),
        })?;
        self.keep_dir(&Site::inside(&tx.name), &steps.view(), &live.visible);
        Ok(())
    }

    /// `mv` of a file that a transaction sees, in its directory. Of what is in a version already the new name would
    /// be told to others as new rows: mv copies and removes it.
    pub(in crate::fs) fn rename_staged(
        &self,
        name: &Arc<TxName>,
        live: &LiveFile,
        to: &Node,
        new_name: &OsStr,
        taken: bool,
        caller: Caller,
    ) -> FsResult<()> {
        let site = Site::inside(name);
        let place = self.place_of(to)?;
        let (tx, steps) = self.open_steps(name)?;
        if taken || !is_place_of(&place, &site, live) || !steps.is_new(live) {
            return Err(FsError::CrossDevice);
        }
        let new_name = new_data_name(new_name)?;
        let renamed = steps.rename(&live.path, new_name).map_err(|e| match e {
            OpError::Gone(_) => FsError::NotFound,
            e => domain(&e),
        })?;
        let replaced = self.inodes().replace(&site.data(&tx.table, renamed));
        drop(replaced);
        let report = Report {
            operation: "RENAME FILE",
            version: None,
            metrics: Default::default(),
            note: None,
            snapshot: None,
        };
        self.note_step(&tx, caller, "RENAME FILE", &live.visible, &Ok(report));
        Ok(())
    }

    /// Notes what became of a step where its user can read it.
    fn note_step(
        &self,
        tx: &Tx,
        caller: Caller,
        operation: &str,
        subject: &str,
        report: &Result<Report, OpError>,
    ) {
        let now = self.env.now();
        let outcome = match report {
            Ok(report) => Outcome::staged(&tx.name, report, subject, now),
            Err(e) => Outcome::failed(operation, subject, e, now),
        };
        let table = &tx.name.table;
        self.outcomes().note(table, caller.uid, None, outcome);
    }

    /// `echo commit > commit`.
    ///
    /// # Errors
    /// Nothing was committed, unless the error itself says that it can't tell.
    pub(in crate::fs) fn commit_tx(
        &self,
        tx: &Tx,
        statement: &Statement,
    ) -> Result<Report, Box<dyn Failure>> {
        if !statement.text.eq_ignore_ascii_case("commit") {
            return Err(boxed(FsError::Domain {
                kind: Kind::Invalid,
                message: format!("`{}` is no statement of this file", statement.text),
                hint: Some("write `commit`; rmdir of the directory aborts".to_owned()),
            }));
        }
        let steps = tx.steps().map_err(boxed)?;
        let before = tx.table.snapshot();
        let report = steps.commit(&statement.options);
        let now = self.env.now();
        let subject = tx.name.name.to_string_lossy();
        let (how, outcome) = match &report {
            Ok(report) => match report.version {
                Some(version) => (
                    format!("it was committed as version {version}"),
                    Outcome::done(report, &subject, now),
                ),
                None => (
                    "there was nothing to commit".to_owned(),
                    Outcome::done(report, &subject, now),
                ),
            },
            Err(e) => (
                format!("its commit failed: {e}"),
                Outcome::failed("COMMIT", &subject, e, now),
            ),
        };
        if steps.is_over() {
            tracing::info!(table = %tx.name.table.display(), name = %subject, how, "a transaction ends");
            let ended = tx.end(how, outcome);
            self.close(tx);
            drop(ended);
        }
        drop(steps);
        let report = report.map_err(boxed)?;
        self.done(&tx.name.table, &before, &report);
        Ok(report)
    }
}
