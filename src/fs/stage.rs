//! Files on their way into a table: private bytes under a name, until they are committed or refused.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, fchown};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::node::data_key;
use super::site::Place;
use super::{Caller, FsError, FsResult};
use crate::env::{Env, Millis};
use crate::error::{Kind, io_kind};
use crate::table::LiveFile;

/// A file that was created or is being overwritten.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) place: Place,
    /// The base name under which its first commit is stored: what identifies it for the kernel.
    first_stored: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Held while bytes or the phase change: no write in the middle of a commit, no commit in the middle of a
    /// write. Taken before every other lock, also across I/O.
    pub(super) settling: Mutex<()>,
    /// Never held across I/O.
    state: Mutex<State>,
}

/// What changes about a staged file.
#[derive(Debug)]
pub(super) struct State {
    pub(super) name: OsString,
    /// Private bytes while it is open; once they are the table's, a descriptor that can't write.
    pub(super) file: Arc<File>,
    /// The base name under which the next commit is stored; never the visible one, never used before.
    pub(super) stored: String,
    pub(super) phase: Phase,
    /// Bytes have changed since the last commit.
    pub(super) dirty: bool,
    /// The live file whose name was opened to be overwritten: the commit takes its place.
    pub(super) replaces: Option<Arc<LiveFile>>,
    /// The writer has not emptied the file that it replaces: it may only be written anew from the start.
    pub(super) sequential: Option<u64>,
    pub(super) writers: usize,
    /// Process that opened it last for writing: its FLUSH decides.
    pub(super) opener: Option<u32>,
    /// Why the last attempt failed.
    pub(super) failure: Option<FsError>,
    /// A write failed: what is there is not what was meant.
    pub(super) broken: bool,
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
    /// Its rows are in the table under another inode; the name stays reachable for a moment, because tools set
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
        let stored = stored_name(env);
        Stage {
            place,
            first_stored: stored.clone(),
            uid: caller.uid,
            gid: caller.gid,
            settling: Mutex::new(()),
            state: Mutex::new(State {
                name,
                file: Arc::new(file),
                stored,
                phase: Phase::Open,
                dirty: false,
                replaces,
                sequential,
                writers: 0,
                opener: None,
                failure: None,
                broken: false,
                killed: false,
                modified: env.now(),
            }),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a write or a commit that is under way.
    pub(super) fn settle(&self) -> MutexGuard<'_, ()> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.state().file)
    }

    /// The key that its data file has when its first commit adopts it as it is: one inode from CREATE on.
    pub(super) fn key(&self) -> Vec<u8> {
        let stored = format!("{}{}", self.place.dir, self.first_stored);
        data_key(&self.place.site, &stored, None)
    }

    pub(super) fn name(&self) -> OsString {
        self.state().name.clone()
    }

    /// Bytes that readers of the name get: until a replacement is committed, those of the live file.
    pub(super) fn size(&self) -> u64 {
        let file = {
            let state = self.state();
            match (&state.phase, &state.replaces) {
                (Phase::Committed(live), _) | (_, Some(live)) => {
                    return u64::try_from(live.add.size).unwrap_or(0);
                }
                _ => Arc::clone(&state.file),
            }
        };
        file.metadata().map_or(0, |m| m.len())
    }

    /// Bytes that its writer has.
    pub(super) fn private_size(&self) -> u64 {
        self.file().metadata().map_or(0, |m| m.len())
    }

    /// Writes at `offset`. The caller holds `settling`.
    ///
    /// # Errors
    /// No space, or a random write into a committed file.
    pub(super) fn write(&self, offset: u64, data: &[u8], env: &Env, fresh: &Fresh) -> FsResult<()> {
        self.reopen(env, fresh)?;
        let file = {
            let mut state = self.state();
            if let Some(next) = state.sequential {
                if offset != next {
                    // What was written before it is not what was meant, either: no part of it is committed.
                    state.broken = true;
                    state.failure = Some(random_write());
                    return Err(random_write());
                }
                state.sequential = Some(next.saturating_add(data.len() as u64));
            }
            state.dirty = true;
            state.modified = env.now();
            Arc::clone(&state.file)
        };
        file.write_all_at(data, offset).map_err(|e| {
            let error = io_error("writing", &e);
            let mut state = self.state();
            state.broken = true;
            state.failure = Some(error.clone());
            error
        })
    }

    /// ftruncate, or O_TRUNC of an open. The caller holds `settling`.
    pub(super) fn truncate(&self, size: u64, env: &Env, fresh: &Fresh) -> FsResult<()> {
        if size == 0 {
            // What is written next is a new file; a committed one stays as it is until then.
            let phase = self.state().phase.clone();
            match phase {
                Phase::Committed(_) => return self.restart(None, env, fresh),
                Phase::Scattered(_) => return Err(scattered()),
                Phase::Open | Phase::Gone => {
                    // Emptied: what went wrong before has gone with the bytes.
                    let mut state = self.state();
                    state.sequential = None;
                    state.broken = false;
                    state.failure = None;
                }
            }
        }
        {
            let state = self.state();
            if let Some(written) = state.sequential
                && size != written
            {
                return Err(random_write());
            }
        }
        if self.private_size() == size {
            return Ok(());
        }
        self.reopen(env, fresh)?;
        self.file()
            .set_len(size)
            .map_err(|e| io_error("truncating", &e))?;
        let mut state = self.state();
        state.dirty = true;
        state.modified = env.now();
        Ok(())
    }

    /// The bytes of a committed file are the table's: a later write goes to a private copy.
    fn reopen(&self, env: &Env, fresh: &Fresh) -> FsResult<()> {
        let committed = {
            let state = self.state();
            match state.phase {
                // What was unlinked stays private, whatever is still written to it.
                Phase::Open | Phase::Gone => return Ok(()),
                Phase::Scattered(_) => return Err(scattered()),
                Phase::Committed(_) => Arc::clone(&state.file),
            }
        };
        self.restart(Some(&committed), env, fresh)
    }

    /// Starts anew with a copy of `content`, under a stored name of its own.
    fn restart(&self, content: Option<&File>, env: &Env, fresh: &Fresh) -> FsResult<()> {
        let file = fresh.owned(Caller {
            uid: self.uid,
            gid: self.gid,
            pid: 0,
        })?;
        if let Some(content) = content {
            let mut source = reading(content).map_err(|e| io_error("copying", &e))?;
            std::io::copy(&mut source, &mut &file).map_err(|e| io_error("copying", &e))?;
        }
        let mut state = self.state();
        state.replaces = match &state.phase {
            Phase::Committed(live) => Some(Arc::clone(live)),
            Phase::Open | Phase::Scattered(_) | Phase::Gone => None,
        };
        state.file = Arc::new(file);
        state.stored = stored_name(env);
        state.sequential = None;
        state.dirty = false;
        state.broken = false;
        state.phase = Phase::Open;
        Ok(())
    }

    /// Its bytes are the table's from now on: nothing that goes wrong here can write to them any more.
    pub(super) fn give_up_bytes(&self, phase: Phase) {
        let file = self.file();
        let reader = reading(&file).or_else(|_| File::open("/dev/null"));
        let mut state = self.state();
        if let Ok(reader) = reader {
            state.file = Arc::new(reader);
        }
        state.dirty = false;
        state.broken = false;
        state.replaces = None;
        state.sequential = None;
        state.failure = None;
        state.phase = phase;
    }

    /// Lets go of what only a moment's grace has kept.
    pub(super) fn expire(&self) {
        let nothing = File::open("/dev/null");
        let mut state = self.state();
        state.phase = Phase::Gone;
        if let Ok(nothing) = nothing {
            state.file = Arc::new(nothing);
        }
    }
}

fn stored_name(env: &Env) -> String {
    format!("part-00000-{}-c000.snappy.parquet", env.uuid())
}

/// A descriptor of the same file that reads from the start and can't write.
fn reading(file: &File) -> std::io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn scattered() -> FsError {
    super::not_permitted(
        "the rows of this file are in the table already, under other names",
        "copy a new file instead of writing on",
    )
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
    env: Env,
    ready: OnceLock<()>,
}

impl Fresh {
    pub(super) fn new(path: PathBuf, env: Env) -> Self {
        Fresh {
            path,
            env,
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
                let path = self.path.join(format!("stage-{}", self.env.uuid()));
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

/// How long the kernel may take to answer about a process.
const PROC_ANSWER: Duration = Duration::from_millis(100);

/// Reads a file of /proc, unless that takes too long: a process in the middle of exec is locked, and it may be
/// waiting for our very answer to the FLUSH of a descriptor that it closes there. The thread ends when it is.
fn ask_proc(path: String) -> Option<String> {
    let (answer, question) = std::sync::mpsc::channel();
    let asked = std::thread::Builder::new()
        .name("deltafs-proc".to_owned())
        .spawn(move || {
            let _ = answer.send(std::fs::read_to_string(path));
        });
    asked.ok()?;
    question.recv_timeout(PROC_ANSWER).ok()?.ok()
}

/// Whether the process that sends a FLUSH is dying from a signal: what it left half done is not its will.
pub(super) fn is_killed(pid: u32) -> bool {
    const PF_EXITING: u64 = 0x4;
    if pid == 0 {
        return false;
    }
    let Some(stat) = ask_proc(format!("/proc/{pid}/stat")) else {
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
    let status = ask_proc(format!("/proc/{thread}/status"))?;
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
