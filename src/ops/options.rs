//! What every statement can be told beside its text.

use crate::env::Env;
use crate::log::{Action, Txn};
use crate::table::Snapshot;

/// Options of a statement (DESIGN.md §4).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Goes into `commitInfo.userMetadata`.
    pub user_metadata: Option<String>,
    /// The application and its transaction: what has been committed once is not committed again.
    pub txn: Option<(String, i64)>,
    /// How often it is run again on the newest version after a conflict.
    pub retries: u32,
}

impl Options {
    /// Why there is nothing to do, if the application's transaction is in the table already.
    pub(super) fn already_done(&self, base: &Snapshot) -> Option<String> {
        let (app_id, version) = self.txn.as_ref()?;
        let known = base.txns().find(|t| t.app_id == *app_id)?;
        (known.version >= *version).then(|| {
            format!(
                "transaction {version} of the application {app_id} is in the table already (it is at {}): no version \
                 was made",
                known.version
            )
        })
    }

    /// What the options put into the commit.
    pub(super) fn actions(&self, env: &Env) -> Option<Action> {
        let (app_id, version) = self.txn.clone()?;
        Some(Action::Txn(Txn {
            app_id,
            version,
            last_updated: Some(env.now()),
        }))
    }
}
