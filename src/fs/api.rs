//! What `fuse` asks of a file system, in the words of POSIX and without a kernel.
//!
//! `fuse` translates every kernel request into one call of [`FileSystem`] and every answer back. Nothing here knows
//! errno, wire formats or `/dev/fuse`, so tests call an implementation directly.

use std::ffi::OsString;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::env::Millis;
use crate::error::{Failure, Kind};

/// The number of an inode.
///
/// A number is never given to another file while the kernel may still know it, that is until [`FileSystem::forget`]
/// has taken back every lookup; after that only if the kernel cannot take the new file for the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root of the mount. It exists from the start and is never forgotten.
    pub const ROOT: Ino = Ino(1);
}

/// An open file or an open directory; unique among everything that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fh(pub u64);

/// Who asks.
///
/// `pid` is the id of the *thread* (see `Tgid` in `/proc/PID/status`), 0 when the kernel asks by itself or for a process
/// that this process namespace does not see. Permission bits have been checked by the kernel (`default_permissions`) before a request arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

/// What an inode is. There are no links, devices, pipes or sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    Dir,
    File,
}

/// What `stat` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    pub ino: Ino,
    pub kind: FileKind,
    /// Size in bytes. Exact for whatever can be read, also with [`Io::Direct`]: many tools believe it.
    pub size: u64,
    /// Permission bits (`0o7777`); the kind of file comes from `kind`.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Modification time; also shown as the time of the last access.
    pub mtime_ms: Millis,
    /// Time of the last change of attributes.
    pub ctime_ms: Millis,
    pub nlink: u32,
    /// For how long the kernel may answer `stat` by itself. Zero: it asks every time.
    pub ttl: Duration,
}

/// The answer to a lookup: an inode under a name.
///
/// Every entry that is handed out counts as one lookup of `attr.ino`, taken back by [`FileSystem::forget`]. What
/// does not exist is [`FsError::NotFound`], which the kernel never caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub attr: Attr,
    /// For how long the kernel may resolve the name by itself. CREATE and listings with attributes can carry one
    /// duration only: there the shorter one of this and `attr.ttl` counts for both.
    pub ttl: Duration,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFlags {
    pub read: bool,
    pub write: bool,
    /// O_APPEND. The kernel computes the offsets of writes, from the size that it knows.
    pub append: bool,
    /// O_TRUNC is part of the open: no SETATTR with size 0 follows.
    pub truncate: bool,
    /// O_EXCL. Set for `create` only.
    pub exclusive: bool,
}

/// How the kernel does the input and output of an open file.
///
/// An inode is open in one way at a time: `fuse` gives the second open of an inode what the first one got as far as
/// passthrough is concerned (the kernel answers EIO to a mixture). So **every handle must be able to serve `read`
/// and `write`, also one that offered [`Io::Passthrough`]**: the kernel may lack it, may refuse the file, or the
/// inode may be open in another way. The reverse happens too: a handle that asked for `Cached` or `Direct` while
/// the inode is open for passthrough goes to the same backing file.
#[derive(Debug, Clone)]
pub enum Io {
    /// Through the page cache.
    Cached {
        /// Keep what is cached from earlier opens. Without it every open reads afresh.
        keep: bool,
    },
    /// Past the page cache: each read and write of the program is one request.
    Direct,
    /// The kernel reads and writes this regular file by itself and no READ or WRITE arrives (SETATTR, FLUSH, FSYNC,
    /// COPY_FILE_RANGE, FALLOCATE and RELEASE do). It opens the file anew with the program's flags and with the
    /// daemon's rights: the mode that the descriptor was opened with does not matter.
    Passthrough(Arc<std::fs::File>),
}

/// The answer to an open.
#[derive(Debug, Clone)]
pub struct Opened {
    pub fh: Fh,
    pub io: Io,
}

/// Attributes to change; `None` leaves one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    pub size: Option<u64>,
    /// Permission bits (`0o7777`).
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime_ms: Option<Millis>,
    pub mtime_ms: Option<Millis>,
}

/// One name of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirItem {
    pub ino: Ino,
    pub name: OsString,
    pub kind: FileKind,
    /// The offset of the *next* item: a listing that goes on behind this one starts there. Never 0. Stays valid as
    /// long as the directory is open, also while files come and go.
    pub cookie: u64,
}

/// Flags of renameat2(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RenameFlags {
    /// Fail with [`FsError::Exists`] when the new name is taken.
    pub noreplace: bool,
    /// Swap the two.
    pub exchange: bool,
}

/// A range of one open file to be copied into another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    pub from: Ino,
    pub from_fh: Fh,
    pub from_offset: u64,
    pub to: Ino,
    pub to_fh: Fh,
    pub to_offset: u64,
    pub length: u32,
}

/// Figures for `df`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the three counts of blocks, in bytes.
    pub block_size: u32,
    pub blocks: u64,
    pub free: u64,
    /// Free for users without privileges.
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
    /// Longest name, in bytes.
    pub name_max: u32,
}

/// What the kernel has cached and must not believe any longer.
///
/// Delivered by a thread of its own after the fact, so it may be queued from anywhere, also from inside a request
/// on the same inode. What the kernel does not know is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Invalidate {
    /// Attributes and pages of a file; attributes and the cached listing of a directory.
    Content(Ino),
    /// Attributes only.
    Attributes(Ino),
    /// What a name stands for: removed or replaced files. Not for a directory that lives on, or programs that are
    /// in it lose their path; use `Content` of the directory.
    Name { parent: Ino, name: OsString },
}

/// Why a request failed. The first few are answers that POSIX gives to everybody; what the domain has to say is
/// [`FsError::Domain`]. Which errno each becomes is decided in `fuse/errno.rs` only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FsError {
    #[error("no such file or directory")]
    NotFound,
    #[error("it exists already")]
    Exists,
    #[error("not a directory")]
    NotDir,
    #[error("is a directory")]
    IsDir,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// The inode is dead and its name may stand for another one by now: the kernel looks it up and asks once more.
    /// The right answer to OPEN of a removed or replaced file. Never for a conflict: the call would be repeated.
    #[error("the file has been removed or replaced")]
    Stale,
    /// A rename that has to be done as a copy and a removal: `mv` does that by itself.
    #[error("that is another file system")]
    CrossDevice,
    #[error("no such open file")]
    BadHandle,
    /// Not on this path, whoever asks.
    #[error("{0}")]
    NotPermitted(String),
    #[error("{message}")]
    Domain {
        kind: Kind,
        message: String,
        hint: Option<String>,
    },
}

impl FsError {
    /// The failure of a lower layer, with its hint.
    pub fn domain(failure: &dyn Failure) -> Self {
        FsError::Domain {
            kind: failure.kind(),
            message: failure.to_string(),
            hint: failure.hint(),
        }
    }
}

impl Failure for FsError {
    fn kind(&self) -> Kind {
        match self {
            FsError::NotFound | FsError::Stale => Kind::Absent,
            FsError::Exists
            | FsError::NotDir
            | FsError::IsDir
            | FsError::NotEmpty
            | FsError::NameTooLong
            | FsError::BadHandle => Kind::Invalid,
            FsError::CrossDevice => Kind::Unsupported,
            FsError::NotPermitted(_) => Kind::Denied,
            FsError::Domain { kind, .. } => *kind,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            FsError::Domain { hint, .. } => hint.clone(),
            _ => None,
        }
    }
}

/// What a request comes to.
pub type FsResult<T> = Result<T, FsError>;

/// A file system. One call a request; calls run at the same time, in any order, each in a task of the I/O runtime.
///
/// The kernel holds a lock of the parent directory during `lookup`, `create`, `mkdir`, `unlink`, `rmdir` and
/// `rename`, and the client cannot be killed while it waits: every wait has to be bounded.
pub trait FileSystem: Send + Sync + 'static {
    /// The inode under a name. `.` and `..` are never asked for.
    fn lookup(
        &self,
        parent: Ino,
        name: OsString,
        caller: Caller,
    ) -> impl Future<Output = FsResult<Entry>> + Send;

    /// Takes back `count` lookups of an inode; with none left the kernel does not know it any more. Must not block:
    /// it is called on the thread that reads requests. Not every lookup is taken back before the end of the mount.
    fn forget(&self, ino: Ino, count: u64);

    /// Attributes; with a handle when the kernel asks for an open file.
    fn getattr(&self, ino: Ino, fh: Option<Fh>) -> impl Future<Output = FsResult<Attr>> + Send;

    /// Changes attributes and answers all of them. Comes with a handle for ftruncate(2).
    fn setattr(
        &self,
        ino: Ino,
        fh: Option<Fh>,
        change: SetAttr,
        caller: Caller,
    ) -> impl Future<Output = FsResult<Attr>> + Send;

    /// A new directory.
    fn mkdir(
        &self,
        parent: Ino,
        name: OsString,
        caller: Caller,
    ) -> impl Future<Output = FsResult<Entry>> + Send;

    /// Removes a file.
    fn unlink(
        &self,
        parent: Ino,
        name: OsString,
        caller: Caller,
    ) -> impl Future<Output = FsResult<()>> + Send;

    /// Removes a directory.
    fn rmdir(
        &self,
        parent: Ino,
        name: OsString,
        caller: Caller,
    ) -> impl Future<Output = FsResult<()>> + Send;

    /// Renames. [`Kind::Invalid`] becomes EPERM here: `mv` has a misleading text for EINVAL.
    fn rename(
        &self,
        parent: Ino,
        name: OsString,
        new_parent: Ino,
        new_name: OsString,
        flags: RenameFlags,
        caller: Caller,
    ) -> impl Future<Output = FsResult<()>> + Send;

    /// Opens a file. [`FsError::Stale`] for an inode that is dead.
    fn open(
        &self,
        ino: Ino,
        flags: OpenFlags,
        caller: Caller,
    ) -> impl Future<Output = FsResult<Opened>> + Send;

    /// Creates and opens a file. Also called for names that exist but that the kernel did not know: without
    /// `exclusive` that is an open.
    fn create(
        &self,
        parent: Ino,
        name: OsString,
        flags: OpenFlags,
        caller: Caller,
    ) -> impl Future<Output = FsResult<(Entry, Opened)>> + Send;

    /// Bytes from `offset`: exactly `size` of them unless the file ends before.
    fn read(
        &self,
        ino: Ino,
        fh: Fh,
        offset: u64,
        size: u32,
    ) -> impl Future<Output = FsResult<Bytes>> + Send;

    /// Stores bytes and answers how many. Fewer than all is allowed with [`Io::Direct`] only.
    fn write(
        &self,
        ino: Ino,
        fh: Fh,
        offset: u64,
        data: Bytes,
        caller: Caller,
    ) -> impl Future<Output = FsResult<u32>> + Send;

    /// A descriptor of the handle is closed. Not sent for handles that were opened only to read; else once for each
    /// duplicate, also from forked children and for writers that were killed. The last place where a program hears of
    /// an error.
    fn flush(&self, ino: Ino, fh: Fh, caller: Caller) -> impl Future<Output = FsResult<()>> + Send;

    /// fsync(2), or fdatasync(2) with `datasync`. The kernel has sent what it had cached before.
    fn fsync(
        &self,
        ino: Ino,
        fh: Fh,
        datasync: bool,
        caller: Caller,
    ) -> impl Future<Output = FsResult<()>> + Send;

    /// The handle is gone, exactly once. Late: requests of the same program may overtake it. Nobody hears of an
    /// error. Not sent for what is open when the mount ends.
    fn release(&self, ino: Ino, fh: Fh) -> impl Future<Output = ()> + Send;

    /// Opens a directory.
    fn opendir(&self, ino: Ino, caller: Caller) -> impl Future<Output = FsResult<Fh>> + Send;

    /// At most `max` names from `offset` (0, or the cookie of an item that was listed before); none at the end.
    /// The first two are `.` and `..`. Counts no lookups.
    fn readdir(
        &self,
        ino: Ino,
        fh: Fh,
        offset: u64,
        max: usize,
    ) -> impl Future<Output = FsResult<Vec<DirItem>>> + Send;

    /// The entry of an item of a listing, counted as a lookup. `None`: it has gone, and is left out. Not called for
    /// `.` and `..`.
    fn lookup_listed(
        &self,
        dir: Ino,
        item: &DirItem,
        caller: Caller,
    ) -> impl Future<Output = Option<Entry>> + Send;

    /// Closes a directory.
    fn releasedir(&self, fh: Fh) -> impl Future<Output = ()> + Send;

    /// fsync(2) of a directory.
    fn fsyncdir(
        &self,
        ino: Ino,
        fh: Fh,
        datasync: bool,
        caller: Caller,
    ) -> impl Future<Output = FsResult<()>> + Send;

    /// Figures for `df`.
    fn statfs(&self) -> impl Future<Output = FsResult<StatFs>> + Send;

    /// fallocate(2); `mode` is its raw second argument.
    fn fallocate(
        &self,
        ino: Ino,
        fh: Fh,
        offset: u64,
        length: u64,
        mode: i32,
        caller: Caller,
    ) -> impl Future<Output = FsResult<()>> + Send;

    /// copy_file_range(2). [`Kind::Unsupported`] and [`FsError::CrossDevice`] make the kernel read and write.
    fn copy_file_range(
        &self,
        range: CopyRange,
        caller: Caller,
    ) -> impl Future<Output = FsResult<u32>> + Send;

    /// The queue of what the kernel has to drop. Asked for once, when the mount starts; `None` the second time.
    fn take_invalidations(&self) -> Option<UnboundedReceiver<Invalidate>>;

    /// Whether [`Io::Passthrough`] has any use. Said when the mount starts, and once more if it turns out that the
    /// kernel refuses.
    fn set_passthrough(&self, available: bool);

    /// The mount is over: no request runs and none will come. Whatever is still open has to be settled here.
    fn shutdown(&self) -> impl Future<Output = ()> + Send;
}
