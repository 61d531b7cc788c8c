//! Commits of others: seen within the refresh time, and told to the kernel.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use super::node::Node;
use super::site::Site;
use super::stage::Phase;
use super::{Core, Fs, Invalidate};
use crate::table::{Snapshot, TableError};

impl Fs {
    /// Looks at every open table once per refresh time.
    pub(super) fn watch(&self) {
        let core = Arc::downgrade(&self.core);
        let runtime = self.runtime.clone();
        let period = self
            .core
            .settings
            .refresh
            .max(std::time::Duration::from_millis(10));
        self.runtime.spawn(async move {
            let mut ticks = tokio::time::interval(period);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(core) = core.upgrade() else { return };
                // One look at a time: a slow disk must not pile them up.
                let looked = runtime.spawn_blocking(move || core.look()).await;
                if looked.is_err() {
                    return;
                }
            }
        });
    }
}

impl Core {
    fn look(&self) {
        let expired = self.overlay().expired(self.env.now());
        for stage in expired {
            let _settling = stage.settle();
            if !matches!(stage.state().phase, Phase::Committed(_)) {
                stage.expire();
            }
        }
        self.expire_transactions();
        for (path, table) in self.catalog.open_tables() {
            table.forget_idle();
            let before = table.snapshot();
            match table.refresh() {
                Ok(after) => self.moved(&path, &before, &after),
                Err(TableError::NotATable(_)) => {
                    self.catalog.forget(&path);
                    let ino = Node::Dir(path.clone()).number();
                    self.invalidate(Invalidate::Content(ino));
                }
                Err(error) => {
                    tracing::debug!(table = %path.display(), %error, "can't be refreshed");
                }
            }
        }
    }

    /// Tells the kernel what is different between two versions of a table. Costs what has changed.
    pub(super) fn moved(&self, path: &Path, before: &Arc<Snapshot>, after: &Arc<Snapshot>) {
        if Arc::ptr_eq(before, after) {
            return;
        }
        let gone = after.names_gone_since(before);
        let site = Site::table(path);
        let mut dirs = vec![Node::Dir(path.to_owned()).number()];
        dirs.extend(gone.iter().filter_map(|visible| {
            let (dir, _) = visible.rsplit_once('/')?;
            Some(site.folder(&format!("{dir}/")).number())
        }));
        dirs.sort_unstable();
        dirs.dedup();
        for ino in dirs {
            self.invalidate(Invalidate::Attributes(ino));
        }
        for visible in gone {
            let (dir, name) = match visible.rsplit_once('/') {
                Some((dir, name)) => (format!("{dir}/"), name),
                None => (String::new(), &*visible),
            };
            let parent = site.folder(&dir).number();
            self.invalidate(Invalidate::Name {
                parent,
                name: OsString::from(name),
            });
        }
    }
}
