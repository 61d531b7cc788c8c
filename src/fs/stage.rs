//! Files on their way into a table: private bytes under a name, until they are committed or refused.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::node::data_key;
use super::{Caller, FsError, FsResult};
use crate::env::{Env, Millis};
use crate::error::{Kind, io_kind};
use crate::table::LiveFile;

/// Where a staged file goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    /// The directory that is a table or becomes one, relative to the source.
    pub(super) table: PathBuf,
    /// The visible directory in it: empty, or partition directories that end in `/`.
    pub(super) dir: String,
    /// Dropped into `in/append/`: never replaces a file of its name.
    pub(super) append_only: bool,
}

/// A file that was created or is being overwritten.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) place: Place,
    /// The base name under which it will be stored; never the visible one, never used before.
    pub(super) stored: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// One commit at a time, and none while bytes change. Taken before `state`.
    pub(super) settling: Mutex<()>,
    state: Mutex<State>,
}

/// What changes about a staged file.
#[derive(Debug)]
pub(super) struct State {
    pub(super) name: OsString,
    pub(super) file: Arc<File>,
    pub(super) phase: Phase,
    /// Bytes have changed since the last commit.
    pub(super) dirty: bool,
    /// The live file that it takes the place of when it is committed.
    pub(super) replaces: Option<Arc<LiveFile>>,
    /// The writer has not emptied the file that it replaces: it may only be written anew from the start.
    pub(super) sequential: Option<u64>,
    pub(super) writers: usize,
    /// Process that opened it last for writing: its FLUSH decides.
    pub(super) opener: Option<u32>,
    /// Why the last attempt failed.
    pub(super) failure: Option<String>,
    /// The last writer has not closed it, or died from a signal.
    pub(super) killed: bool,
    pub(super) modified: Millis,
}

/// How far a staged file has come.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Open,
    /// It is the live file, under the same inode.
    Committed(Arc<LiveFile>),
    /// Its rows are in the table under other names; the name stays reachable for a moment, because tools set
    /// modes and times on what they have just written.
    Scattered(Millis),
    /// Unlinked or refused.
    Gone,
}

impl Stage {
    pub(super) fn new(
        place: Place,
        name: OsString,
        file: File,
        replaces: Option<Arc<LiveFile>>,
        caller: Caller,
        env: &Env,
    ) -> Self {
        let sequential = replaces.as_ref().map(|_| 0);
        Stage {
            place,
            stored: format!("part-00000-{}-c000.snappy.parquet", env.uuid()),
            uid: caller.uid,
            gid: caller.gid,
            settling: Mutex::new(()),
            state: Mutex::new(State {
                name,
                file: Arc::new(file),
                phase: Phase::Open,
                dirty: false,
                replaces,
                sequential,
                writers: 0,
                opener: None,
                failure: None,
                killed: false,
                modified: env.now(),
            }),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key that its data file will have when it is adopted as it is: one inode from CREATE on.
    pub(super) fn key(&self) -> String {
        data_key(
            &self.place.table,
            &format!("{}{}", self.place.dir, self.stored),
            None,
        )
    }

    pub(super) fn name(&self) -> OsString {
        self.state().name.clone()
    }

    /// Bytes that readers of the name get.
    pub(super) fn size(&self) -> u64 {
        let state = self.state();
        match (&state.phase, &state.replaces) {
            (Phase::Committed(file), _) => u64::try_from(file.add.size).unwrap_or(0),
            (_, Some(old)) if !state.dirty => u64::try_from(old.add.size).unwrap_or(0),
            _ => state.file.metadata().map_or(0, |m| m.len()),
        }
    }

    /// Writes at `offset`.
    ///
    /// # Errors
    /// No space, or a random write into a committed file.
    pub(super) fn write(
        &self,
        offset: u64,
        data: &[u8],
        now: Millis,
        fresh: &Fresh,
    ) -> FsResult<()> {
        let mut state = self.state();
        if let Some(next) = state.sequential {
            if offset != next {
                return Err(random_write());
            }
            state.sequential = Some(next.saturating_add(data.len() as u64));
        }
        state.reopen(fresh)?;
        state
            .file
            .write_all_at(data, offset)
            .map_err(|e| io_error("writing", &e))?;
        state.dirty = true;
        state.modified = now;
        Ok(())
    }

    /// ftruncate, or O_TRUNC of an open.
    pub(super) fn truncate(&self, size: u64, now: Millis, fresh: &Fresh) -> FsResult<()> {
        let mut state = self.state();
        if size == 0 {
            state.sequential = None;
        }
        if let Some(written) = state.sequential
            && size != written
        {
            return Err(random_write());
        }
        let committed = matches!(state.phase, Phase::Committed(_));
        if committed && size == 0 {
            // What is written next replaces the committed file; until then the file stays as it is.
            state.restart(fresh)?;
            return Ok(());
        }
        let length = state
            .file
            .metadata()
            .map_err(|e| io_error("truncating", &e))?
            .len();
        if length == size {
            return Ok(());
        }
        state.reopen(fresh)?;
        state
            .file
            .set_len(size)
            .map_err(|e| io_error("truncating", &e))?;
        state.dirty = true;
        state.modified = now;
        Ok(())
    }
}

impl State {
    /// The bytes of a committed file are the table's: a later write goes to a private copy.
    fn reopen(&mut self, fresh: &Fresh) -> FsResult<()> {
        let Phase::Committed(live) = &self.phase else {
            return Ok(());
        };
        let live = Arc::clone(live);
        let copy = fresh.file()?;
        let mut source = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
            .map_err(|e| io_error("copying", &e))?;
        std::io::copy(&mut source, &mut &copy).map_err(|e| io_error("copying", &e))?;
        self.file = Arc::new(copy);
        self.replaces = Some(live);
        self.phase = Phase::Open;
        Ok(())
    }

    /// Starts from nothing, in place of the committed file.
    fn restart(&mut self, fresh: &Fresh) -> FsResult<()> {
        if let Phase::Committed(live) = &self.phase {
            self.replaces = Some(Arc::clone(live));
        }
        self.file = Arc::new(fresh.file()?);
        self.phase = Phase::Open;
        self.dirty = false;
        Ok(())
    }
}

pub(super) fn random_write() -> FsError {
    FsError::Domain {
        kind: Kind::Denied,
        message: "a committed data file can't be changed in place".to_owned(),
        hint: Some(
            "write the whole file anew (cp, mv, or open with O_TRUNC): that replaces its rows in one transaction"
                .to_owned(),
        ),
    }
}

pub(super) fn io_error(action: &str, error: &std::io::Error) -> FsError {
    FsError::Domain {
        kind: io_kind(error),
        message: format!("{action}: {error}"),
        hint: None,
    }
}

/// Makes private files: nameless, so that nothing is left of them when the daemon dies.
#[derive(Debug)]
pub(super) struct Fresh {
    path: PathBuf,
    ready: OnceLock<()>,
}

impl Fresh {
    pub(super) fn new(path: PathBuf) -> Self {
        Fresh {
            path,
            ready: OnceLock::new(),
        }
    }

    /// A new private file, readable and writable, of mode 0644.
    pub(super) fn file(&self) -> FsResult<File> {
        if self.ready.get().is_none() {
            std::fs::create_dir_all(&self.path).map_err(|e| self.error(&e))?;
            let _ = self.ready.set(());
        }
        let mut options = File::options();
        options.read(true).write(true).mode(0o644);
        match options
            .clone()
            .custom_flags(libc::O_TMPFILE)
            .open(&self.path)
        {
            Ok(file) => Ok(file),
            // A file system without nameless files: a name that goes away at once does, but costs a copy later.
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::Unsupported | std::io::ErrorKind::IsADirectory
                ) =>
            {
                let path = self.path.join(format!("stage-{}", uuid_like(&self.path)));
                let file = options
                    .create_new(true)
                    .open(&path)
                    .map_err(|e| self.error(&e))?;
                std::fs::remove_file(&path).map_err(|e| self.error(&e))?;
                Ok(file)
            }
            Err(e) => Err(self.error(&e)),
        }
    }

    /// A new private file that belongs to `caller`.
    pub(super) fn owned(&self, caller: Caller) -> FsResult<File> {
        let file = self.file()?;
        // Only root can give files away; others own what they make.
        if let Err(error) = fchown(&file, Some(caller.uid), Some(caller.gid)) {
            tracing::debug!(%error, "the staged file keeps the daemon's owner");
        }
        Ok(file)
    }

    fn error(&self, error: &std::io::Error) -> FsError {
        FsError::Domain {
            kind: io_kind(error),
            message: format!("staging in {}: {error}", self.path.display()),
            hint: Some("mount with --stage-dir on a file system that can be written".to_owned()),
        }
    }
}

/// A name that is unlikely to be taken; `create_new` decides.
fn uuid_like(path: &Path) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{next}-{:x}", std::process::id(), path.as_os_str().len())
}

/// Whether the process that sends a FLUSH is dying from a signal: what it left half done is not its will.
pub(super) fn is_killed(pid: u32) -> bool {
    const PF_EXITING: u64 = 0x4;
    if pid == 0 {
        return false;
    }
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // Fields after the command's name, which may hold blanks and parentheses; the first is field 3.
    let Some((_, rest)) = stat.rsplit_once(") ") else {
        return false;
    };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index - 3).and_then(|f| f.parse::<u64>().ok());
    let exiting = number(9).is_some_and(|flags| flags & PF_EXITING != 0);
    exiting && number(52).is_some_and(|code| code & 0x7f != 0)
}

/// The process of a thread; `None` when this name space does not see it.
pub(super) fn process_of(thread: u32) -> Option<u32> {
    if thread == 0 {
        return None;
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// The name as the log keeps it.
///
/// # Errors
/// A name that is not UTF-8 can't be kept.
pub(super) fn data_name(name: &OsStr) -> FsResult<&str> {
    name.to_str().ok_or_else(|| FsError::Domain {
        kind: Kind::Invalid,
        message: format!(
            "the name {} is not valid UTF-8, which the log needs",
            name.display()
        ),
        hint: Some("copy the file under another name".to_owned()),
    })
}
