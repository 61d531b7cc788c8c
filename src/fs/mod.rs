//! The file system without a kernel: what names, inodes and handles mean. Tests call it directly.
//!
//! [`Fs`] answers each request on a blocking thread of its own, so a commit never holds up a lookup.

mod api;
mod attr;
mod dir;
mod handle;
mod inode;
mod lookup;
mod node;
mod outcome;
mod overlay;
mod past;
mod read;
mod rejected;
mod rename;
mod render;
mod site;
mod stage;
mod transaction;
mod verb;
mod watch;
mod write;

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub use api::*;

use crate::env::{Env, Millis};
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Dir;
use crate::table::{Catalog, Snapshot, Table};
use handle::Handles;
use inode::Inodes;
use node::Node;
use outcome::{Outcome, Outcomes};
use overlay::Overlay;
use stage::Fresh;
use transaction::Transactions;

/// The file system of one mount.
#[derive(Debug, Clone)]
pub struct Fs {
    core: Arc<Core>,
    runtime: tokio::runtime::Handle,
}

/// What all requests share. Lock order: a stage's `settling`, `overlay`, a stage's state, `inodes`, `handles`;
/// none of the last four is held during I/O. Nor are `transactions` and then the state of one, which come last.
#[derive(Debug)]
struct Core {
    settings: Settings,
    env: Env,
    catalog: Catalog,
    inodes: Mutex<Inodes>,
    overlay: Mutex<Overlay>,
    handles: Mutex<Handles>,
    outcomes: Mutex<Outcomes>,
    transactions: Mutex<Transactions>,
    rendered: render::Cache,
    fresh: Fresh,
    passthrough: AtomicBool,
    /// When the mount began: the time of what never changes.
    started: Millis,
    invalidations: UnboundedSender<Invalidate>,
    receiver: Mutex<Option<UnboundedReceiver<Invalidate>>>,
    runtime: tokio::runtime::Handle,
}

impl Fs {
    /// Opens the source of `settings`. Looks for commits of others every `settings.refresh` from then on.
    ///
    /// # Errors
    /// When the source is not a directory that can be read.
    pub fn new(
        settings: &Settings,
        env: Env,
        runtime: tokio::runtime::Handle,
    ) -> Result<Self, FsError> {
        let root = Dir::open(&settings.source).map_err(|e| FsError::domain(&e))?;
        let chosen = settings.stage_dir.is_some() && !settings.read_only;
        let staging = settings.stage_dir.clone().unwrap_or_else(|| {
            settings
                .source
                .join(crate::namespace::PRIVATE_DIR)
                .join("stage")
        });
        let fresh = Fresh::new(staging, env.clone());
        if chosen {
            // Now, not at the first copy: whoever chose the directory is there to read of it.
            fresh.file()?;
        }
        let (invalidations, receiver) = unbounded_channel();
        let core = Arc::new(Core {
            settings: settings.clone(),
            catalog: Catalog::new(root, env.clone()),
            started: env.now(),
            env,
            inodes: Mutex::new(Inodes::new(Node::Dir(std::path::PathBuf::new()))),
            overlay: Mutex::default(),
            handles: Mutex::default(),
            outcomes: Mutex::default(),
            transactions: Mutex::default(),
            rendered: render::Cache::default(),
            fresh,
            passthrough: AtomicBool::new(false),
            invalidations,
            receiver: Mutex::new(Some(receiver)),
            runtime: runtime.clone(),
        });
        let fs = Fs { core, runtime };
        fs.watch();
        Ok(fs)
    }

    /// Runs `work` where it may block.
    async fn on<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Core>) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        let core = Arc::clone(&self.core);
        match self.runtime.spawn_blocking(move || work(&core)).await {
            Ok(outcome) => outcome,
            Err(error) => Err(FsError::Domain {
                kind: crate::error::Kind::Unavailable,
                message: format!("an internal error: {error}"),
                hint: Some(
                    "whether it was committed is not known: see .delta/history and the log of the daemon"
                        .to_owned(),
                ),
            }),
        }
    }
}

impl Fs {
    /// Runs short work on this thread, of which the runtime takes its other tasks away meanwhile: a change of
    /// threads costs more than the copy of a request's bytes.
    fn here<T>(&self, work: impl FnOnce(&Core) -> FsResult<T>) -> FsResult<T> {
        tokio::task::block_in_place(|| work(&self.core))
    }
}

impl Core {
    fn inodes(&self) -> MutexGuard<'_, Inodes> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overlay(&self) -> MutexGuard<'_, Overlay> {
        self.overlay.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcomes(&self) -> MutexGuard<'_, Outcomes> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, ino: Ino) -> FsResult<Node> {
        self.inodes().node(ino).cloned().ok_or(FsError::Stale)
    }

    /// The table at `path`, at a snapshot that is at most `refresh` old.
    fn table(&self, path: &Path) -> FsResult<(Arc<Table>, Arc<Snapshot>)> {
        let (table, new) = self.catalog.open(path).map_err(|e| FsError::domain(&e))?;
        if new && !self.settings.read_only {
            let table = Arc::clone(&table);
            self.runtime.spawn_blocking(move || table.sweep());
        }
        let age = i64::try_from(self.settings.refresh.as_millis()).unwrap_or(i64::MAX);
        if let Some(snapshot) = table.recent(age) {
            return Ok((table, snapshot));
        }
        let before = table.snapshot();
        let snapshot = table.refresh().map_err(|e| FsError::domain(&e))?;
        self.moved(path, &before, &snapshot);
        Ok((table, snapshot))
    }

    fn writable(&self) -> FsResult<()> {
        if self.settings.read_only {
            return Err(FsError::Domain {
                kind: crate::error::Kind::ReadOnly,
                message: "the mount is read-only".to_owned(),
                hint: None,
            });
        }
        Ok(())
    }

    /// Keeps a refusal where its user can read it: `.delta/last` of the table.
    fn told<T>(
        &self,
        ino: Ino,
        caller: Caller,
        operation: &str,
        name: impl AsRef<std::ffi::OsStr>,
        result: FsResult<T>,
    ) -> FsResult<T> {
        if let Err(error @ FsError::Domain { .. }) = &result
            && let Ok(node) = self.node(ino)
            && let Some(owner) = node.owner()
        {
            let mut subject = node.subject();
            if !name.as_ref().is_empty() {
                subject.push('/');
                subject.push_str(&name.as_ref().to_string_lossy());
            }
            let subject = subject.trim_start_matches('/');
            let outcome = Outcome::failed(operation, subject, error, self.env.now());
            self.outcomes().note(owner, caller.uid, None, outcome);
        }
        result
    }

    fn invalidate(&self, what: Invalidate) {
        // Without a mount there is nobody to tell.
        let _ = self.invalidations.send(what);
    }
}

fn not_permitted(message: impl Into<String>, hint: &str) -> FsError {
    FsError::Domain {
        kind: crate::error::Kind::Denied,
        message: message.into(),
        hint: Some(hint.to_owned()),
    }
}

/// Fails for a name that nobody may give.
fn free_name(name: &std::ffi::OsStr) -> FsResult<()> {
    if crate::namespace::is_reserved(name) {
        return Err(not_permitted(
            format!("the name {} is reserved", name.display()),
            "choose another name",
        ));
    }
    Ok(())
}

fn domain(failure: &dyn Failure) -> FsError {
    FsError::domain(failure)
}

impl FileSystem for Fs {
    async fn lookup(&self, parent: Ino, name: OsString, caller: Caller) -> FsResult<Entry> {
        self.on(move |core| {
            core.told(
                parent,
                caller,
                "LOOKUP",
                &name,
                core.lookup(parent, &name, caller.pid),
            )
        })
        .await
    }

    fn forget(&self, ino: Ino, count: u64) {
        let forgotten = self.core.inodes().forget(ino, count);
        // The last descriptor of a large nameless file is slow to close: not on the thread that reads requests.
        if let Some(node @ Node::Staged(_)) = forgotten {
            self.runtime.spawn_blocking(move || drop(node));
        }
    }

    async fn getattr(&self, ino: Ino, fh: Option<Fh>) -> FsResult<Attr> {
        self.on(move |core| core.getattr(ino, fh)).await
    }

    async fn setattr(
        &self,
        ino: Ino,
        fh: Option<Fh>,
        change: SetAttr,
        caller: Caller,
    ) -> FsResult<Attr> {
        self.on(move |core| core.told(ino, caller, "SETATTR", "", core.setattr(ino, fh, change)))
            .await
    }

    async fn mkdir(&self, parent: Ino, name: OsString, caller: Caller) -> FsResult<Entry> {
        self.on(move |core| {
            core.told(
                parent,
                caller,
                "MKDIR",
                &name,
                core.mkdir(parent, &name, caller),
            )
        })
        .await
    }

    async fn unlink(&self, parent: Ino, name: OsString, caller: Caller) -> FsResult<()> {
        self.on(move |core| {
            core.told(
                parent,
                caller,
                "UNLINK",
                &name,
                core.unlink(parent, &name, caller),
            )
        })
        .await
    }

    async fn rmdir(&self, parent: Ino, name: OsString, caller: Caller) -> FsResult<()> {
        self.on(move |core| {
            core.told(
                parent,
                caller,
                "RMDIR",
                &name,
                core.rmdir(parent, &name, caller),
            )
        })
        .await
    }

    async fn rename(
        &self,
        parent: Ino,
        name: OsString,
        new_parent: Ino,
        new_name: OsString,
        flags: RenameFlags,
        caller: Caller,
    ) -> FsResult<()> {
        self.on(move |core| {
            let renamed = core.rename(parent, &name, new_parent, &new_name, flags, caller);
            core.told(parent, caller, "RENAME", &name, renamed)
        })
        .await
    }

    async fn open(&self, ino: Ino, flags: OpenFlags, caller: Caller) -> FsResult<Opened> {
        self.on(move |core| core.told(ino, caller, "OPEN", "", core.open(ino, flags, caller)))
            .await
    }

    async fn create(
        &self,
        parent: Ino,
        name: OsString,
        flags: OpenFlags,
        caller: Caller,
    ) -> FsResult<(Entry, Opened)> {
        self.on(move |core| {
            core.told(
                parent,
                caller,
                "CREATE",
                &name,
                core.create(parent, &name, flags, caller),
            )
        })
        .await
    }

    async fn read(&self, _ino: Ino, fh: Fh, offset: u64, size: u32) -> FsResult<Bytes> {
        self.here(|core| core.read(fh, offset, size))
    }

    async fn write(
        &self,
        _ino: Ino,
        fh: Fh,
        offset: u64,
        data: Bytes,
        _caller: Caller,
    ) -> FsResult<u32> {
        self.here(|core| core.write(fh, offset, &data))
    }

    async fn flush(&self, _ino: Ino, fh: Fh, caller: Caller) -> FsResult<()> {
        self.on(move |core| core.flush(fh, caller)).await
    }

    async fn fsync(&self, _ino: Ino, fh: Fh, _datasync: bool, caller: Caller) -> FsResult<()> {
        self.on(move |core| core.fsync(fh, caller)).await
    }

    async fn release(&self, _ino: Ino, fh: Fh) {
        let _ = self
            .on(move |core| {
                core.release(fh);
                Ok(())
            })
            .await;
    }

    async fn opendir(&self, ino: Ino, caller: Caller) -> FsResult<Fh> {
        self.on(move |core| core.told(ino, caller, "OPENDIR", "", core.opendir(ino)))
            .await
    }

    async fn readdir(&self, _ino: Ino, fh: Fh, offset: u64, max: usize) -> FsResult<Vec<DirItem>> {
        self.core.readdir(fh, offset, max)
    }

    async fn lookup_listed(&self, dir: Ino, item: &DirItem, _caller: Caller) -> Option<Entry> {
        let name = item.name.clone();
        self.on(move |core| core.lookup(dir, &name, 0)).await.ok()
    }

    async fn releasedir(&self, fh: Fh) {
        self.core.handles().close(fh);
    }

    async fn fsyncdir(&self, _ino: Ino, _fh: Fh, _datasync: bool, _caller: Caller) -> FsResult<()> {
        // Whatever was acknowledged is durable.
        Ok(())
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        self.on(|core| core.statfs()).await
    }

    async fn fallocate(
        &self,
        ino: Ino,
        fh: Fh,
        offset: u64,
        length: u64,
        mode: i32,
        caller: Caller,
    ) -> FsResult<()> {
        self.on(move |core| {
            core.told(
                ino,
                caller,
                "FALLOCATE",
                "",
                core.fallocate(fh, offset, length, mode),
            )
        })
        .await
    }

    async fn copy_file_range(&self, range: CopyRange, caller: Caller) -> FsResult<u32> {
        self.on(move |core| core.copy_file_range(range, caller))
            .await
    }

    fn take_invalidations(&self) -> Option<UnboundedReceiver<Invalidate>> {
        self.core
            .receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn set_passthrough(&self, available: bool) {
        self.core.passthrough.store(
            available && self.core.settings.passthrough,
            Ordering::Relaxed,
        );
    }

    async fn shutdown(&self) {
        let _ = self
            .on(|core| {
                core.settle_all();
                core.end_transactions();
                Ok(())
            })
            .await;
    }
}

#[cfg(test)]
mod tests;
