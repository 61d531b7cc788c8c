//! The kernel's protocol, and nothing else: requests become calls of a [`FileSystem`], results become replies.
//!
//! A callback copies its arguments, moves the reply into a task of the I/O runtime and returns, so the threads that
//! read requests never wait. Knows nothing of tables, paths or what a request means.

mod backing;
mod errno;
mod list;
mod mount;
mod mountinfo;
mod notify;
mod reply;
mod session;

pub use mount::{detach_path, lazily_detach_path};
pub use mountinfo::{Health, MountEntry, mounts};
pub use session::{FuseError, Mounted, mount};

use std::convert::Infallible;
use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenAccMode, PollEvents, PollFlags, PollNotifier,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{Instrument, Span, debug_span, warn};

use self::backing::Backings;
use crate::env::Env;
use crate::fs::{Caller, CopyRange, Fh, FileSystem, Ino, OpenFlags, Opened, RenameFlags, SetAttr};

/// Requests that the kernel may send ahead, as for reading ahead.
const MAX_BACKGROUND: u16 = 64;
/// As much as the kernel puts into one WRITE without being told otherwise.
const MAX_WRITE_BYTES: u32 = 1024 * 1024;

/// fuser's callbacks over a file system.
struct Translator<F> {
    fs: Arc<F>,
    io: Handle,
    env: Env,
    /// Whether the user allows passthrough.
    passthrough: bool,
    backings: Arc<Backings>,
    /// Every running request holds a clone: the receiver sees the end of the last one.
    running: mpsc::Sender<Infallible>,
}

impl<F: FileSystem> Translator<F> {
    fn spawn(&self, span: Span, work: impl Future<Output = ()> + Send + 'static) {
        let running = self.running.clone();
        self.io.spawn(
            async move {
                work.await;
                drop(running);
            }
            .instrument(span),
        );
    }

    fn time(&self, time: TimeOrNow) -> i64 {
        match time {
            TimeOrNow::SpecificTime(time) => reply::to_millis(time),
            TimeOrNow::Now => self.env.now(),
        }
    }

    /// Asks the kernel for what it has of `wanted`, one by one.
    fn ask(config: &mut KernelConfig, wanted: InitFlags) -> bool {
        let mut all = true;
        for flag in wanted.iter() {
            if config.add_capabilities(flag).is_err() {
                warn!(?flag, "the kernel has no such capability");
                all = false;
            }
        }
        all
    }
}

impl<F: FileSystem> Filesystem for Translator<F> {
    // No FUSE_WRITEBACK_CACHE: it turns errors into EIO, never sends FLUSH and reorders SETATTR. No remote locks: the
    // kernel's own are enough for one machine.
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        Self::ask(
            config,
            InitFlags::FUSE_ATOMIC_O_TRUNC
                | InitFlags::FUSE_PARALLEL_DIROPS
                | InitFlags::FUSE_ASYNC_DIO
                | InitFlags::FUSE_DO_READDIRPLUS
                | InitFlags::FUSE_READDIRPLUS_AUTO
                | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        );
        if config.set_max_background(MAX_BACKGROUND).is_err()
            || config.set_max_write(MAX_WRITE_BYTES).is_err()
        {
            warn!("the kernel's own limits stay");
        }
        // 1: on ordinary file systems, and such a mount may itself be under an overlay.
        let passthrough = self.passthrough
            && config.set_max_stack_depth(1).is_ok()
            && Self::ask(config, InitFlags::FUSE_PASSTHROUGH);
        if !passthrough {
            self.backings = Arc::new(Backings::new(false));
        }
        self.fs.set_passthrough(passthrough);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (fs, parent, caller) = (self.fs.clone(), Ino(parent.0), caller(req));
        let name = name.to_owned();
        let span = debug_span!("lookup", parent = parent.0, ?name);
        self.spawn(span, async move {
            reply::entry(fs.lookup(parent, name, caller).await, reply);
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, count: u64) {
        self.fs.forget(Ino(ino.0), count);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let (fs, ino, fh) = (self.fs.clone(), Ino(ino.0), fh.map(handle));
        self.spawn(debug_span!("getattr", ino = ino.0), async move {
            reply::attr(fs.getattr(ino, fh).await, reply);
        });
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (fs, ino, fh, caller) = (self.fs.clone(), Ino(ino.0), fh.map(handle), caller(req));
        let change = SetAttr {
            size,
            mode: mode.map(permissions),
            uid,
            gid,
            atime_ms: atime.map(|time| self.time(time)),
            mtime_ms: mtime.map(|time| self.time(time)),
        };
        self.spawn(debug_span!("setattr", ino = ino.0, ?size), async move {
            reply::attr(fs.setattr(ino, fh, change, caller).await, reply);
        });
    }

    fn readlink(&self, _req: &Request, _ino: INodeNo, reply: ReplyData) {
        reply.error(errno::NOT_A_LINK);
    }

    fn mknod(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(errno::NO_SUCH_KIND_OF_FILE);
    }

    fn symlink(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _link_name: &OsStr,
        _target: &Path,
        reply: ReplyEntry,
    ) {
        reply.error(errno::NO_SUCH_KIND_OF_FILE);
    }

    fn link(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _newparent: INodeNo,
        _newname: &OsStr,
        reply: ReplyEntry,
    ) {
        reply.error(errno::NO_SUCH_KIND_OF_FILE);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let (fs, parent, caller) = (self.fs.clone(), Ino(parent.0), caller(req));
        let name = name.to_owned();
        let span = debug_span!("mkdir", parent = parent.0, ?name);
        self.spawn(span, async move {
            reply::entry(fs.mkdir(parent, name, caller).await, reply);
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (fs, parent, caller) = (self.fs.clone(), Ino(parent.0), caller(req));
        let name = name.to_owned();
        let span = debug_span!("unlink", parent = parent.0, ?name);
        self.spawn(span, async move {
            reply::empty(fs.unlink(parent, name, caller).await, reply);
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (fs, parent, caller) = (self.fs.clone(), Ino(parent.0), caller(req));
        let name = name.to_owned();
        let span = debug_span!("rmdir", parent = parent.0, ?name);
        self.spawn(span, async move {
            reply::empty(fs.rmdir(parent, name, caller).await, reply);
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.contains(fuser::RenameFlags::RENAME_WHITEOUT) {
            return reply.error(errno::UNKNOWN_FLAG);
        }
        let flags = RenameFlags {
            noreplace: flags.contains(fuser::RenameFlags::RENAME_NOREPLACE),
            exchange: flags.contains(fuser::RenameFlags::RENAME_EXCHANGE),
        };
        let (fs, from, to) = (self.fs.clone(), Ino(parent.0), Ino(newparent.0));
        let (name, new_name, caller) = (name.to_owned(), newname.to_owned(), caller(req));
        let span = debug_span!("rename", from = from.0, ?name, to = to.0, ?new_name);
        self.spawn(span, async move {
            match fs.rename(from, name, to, new_name, flags, caller).await {
                Ok(()) => reply.ok(),
                Err(failure) => {
                    let number = errno::rename_errno(&failure);
                    reply.error(reply::refused_as(&failure, number));
                }
            }
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: fuser::OpenFlags, reply: ReplyOpen) {
        let (fs, ino, caller) = (self.fs.clone(), Ino(ino.0), caller(req));
        let (flags, backings) = (open_flags(flags.0), self.backings.clone());
        self.spawn(debug_span!("open", ino = ino.0, ?flags), async move {
            match fs.open(ino, flags, caller).await {
                Ok(Opened { fh, io }) => {
                    let register = |file: &std::fs::File| reply.open_backing(file);
                    let usable = backings.usable();
                    let grant = backings.open(ino, &io, flags, register);
                    if usable && !backings.usable() {
                        fs.set_passthrough(false);
                    }
                    reply::opened(fh, &grant, reply);
                }
                Err(failure) => reply.error(reply::refused(&failure)),
            }
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (fs, parent, caller) = (self.fs.clone(), Ino(parent.0), caller(req));
        let (flags, backings) = (open_flags(flags), self.backings.clone());
        let name = name.to_owned();
        let span = debug_span!("create", parent = parent.0, ?name, ?flags);
        self.spawn(span, async move {
            match fs.create(parent, name, flags, caller).await {
                Ok((entry, Opened { fh, io })) => {
                    let register = |file: &std::fs::File| reply.open_backing(file);
                    let usable = backings.usable();
                    let grant = backings.open(entry.attr.ino, &io, flags, register);
                    if usable && !backings.usable() {
                        fs.set_passthrough(false);
                    }
                    reply::created(&entry, fh, &grant, reply);
                }
                Err(failure) => reply.error(reply::refused(&failure)),
            }
        });
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (fs, ino, fh) = (self.fs.clone(), Ino(ino.0), handle(fh));
        let span = debug_span!("read", ino = ino.0, offset, size);
        self.spawn(span, async move {
            reply::data(fs.read(ino, fh, offset, size).await, reply);
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (fs, ino, fh, caller) = (self.fs.clone(), Ino(ino.0), handle(fh), caller(req));
        let data = Bytes::copy_from_slice(data);
        let span = debug_span!("write", ino = ino.0, offset, size = data.len());
        self.spawn(span, async move {
            reply::written(fs.write(ino, fh, offset, data, caller).await, reply);
        });
    }

    fn flush(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let (fs, ino, fh, caller) = (self.fs.clone(), Ino(ino.0), handle(fh), caller(req));
        self.spawn(debug_span!("flush", ino = ino.0, fh = fh.0), async move {
            reply::empty(fs.flush(ino, fh, caller).await, reply);
        });
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let (fs, ino, fh) = (self.fs.clone(), Ino(ino.0), handle(fh));
        let backings = self.backings.clone();
        self.spawn(debug_span!("release", ino = ino.0, fh = fh.0), async move {
            backings.close(ino);
            fs.release(ino, fh).await;
            reply.ok();
        });
    }

    fn fsync(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let (fs, ino, fh, caller) = (self.fs.clone(), Ino(ino.0), handle(fh), caller(req));
        self.spawn(debug_span!("fsync", ino = ino.0, fh = fh.0), async move {
            reply::empty(fs.fsync(ino, fh, datasync, caller).await, reply);
        });
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: fuser::OpenFlags, reply: ReplyOpen) {
        let (fs, ino, caller) = (self.fs.clone(), Ino(ino.0), caller(req));
        self.spawn(debug_span!("opendir", ino = ino.0), async move {
            reply::opened_dir(fs.opendir(ino, caller).await, reply);
        });
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let (fs, ino, fh) = (self.fs.clone(), Ino(ino.0), handle(fh));
        self.spawn(debug_span!("readdir", ino = ino.0, offset), async move {
            let items = fs.readdir(ino, fh, offset, list::NAMES_AT_A_TIME).await;
            list::names(items, reply);
        });
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (fs, ino, fh, caller) = (self.fs.clone(), Ino(ino.0), handle(fh), caller(req));
        let span = debug_span!("readdirplus", ino = ino.0, offset);
        self.spawn(span, async move {
            list::entries(&*fs, ino, fh, offset, caller, reply).await;
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: fuser::OpenFlags,
        reply: ReplyEmpty,
    ) {
        let (fs, fh) = (self.fs.clone(), handle(fh));
        self.spawn(debug_span!("releasedir", ino = ino.0), async move {
            fs.releasedir(fh).await;
            reply.ok();
        });
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let (fs, ino, fh, caller) = (self.fs.clone(), Ino(ino.0), handle(fh), caller(req));
        self.spawn(debug_span!("fsyncdir", ino = ino.0), async move {
            reply::empty(fs.fsyncdir(ino, fh, datasync, caller).await, reply);
        });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let fs = self.fs.clone();
        self.spawn(debug_span!("statfs"), async move {
            reply::statfs(fs.statfs().await, reply);
        });
    }

    fn setxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(errno::LEFT_TO_THE_KERNEL);
    }

    fn getxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(errno::LEFT_TO_THE_KERNEL);
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(errno::LEFT_TO_THE_KERNEL);
    }

    fn removexattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(errno::LEFT_TO_THE_KERNEL);
    }

    // Never asked for with default_permissions.
    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    // Never asked for without FUSE_POSIX_LOCKS.
    fn getlk(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        reply.error(errno::NOT_SUPPORTED);
    }

    // Never asked for without FUSE_POSIX_LOCKS and FUSE_FLOCK_LOCKS.
    fn setlk(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        _sleep: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(errno::NOT_SUPPORTED);
    }

    // Never asked for without a block device.
    fn bmap(&self, _req: &Request, _ino: INodeNo, _blocksize: u32, _idx: u64, reply: ReplyBmap) {
        reply.error(errno::NOT_SUPPORTED);
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(errno::NO_IOCTL);
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(errno::LEFT_TO_THE_KERNEL);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (fs, ino, fh, caller) = (self.fs.clone(), Ino(ino.0), handle(fh), caller(req));
        let span = debug_span!("fallocate", ino = ino.0, offset, length, mode);
        self.spawn(span, async move {
            let result = fs.fallocate(ino, fh, offset, length, mode, caller).await;
            reply::empty(result, reply);
        });
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        reply.error(errno::LEFT_TO_THE_KERNEL);
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (fs, caller) = (self.fs.clone(), caller(req));
        let range = CopyRange {
            from: Ino(ino_in.0),
            from_fh: handle(fh_in),
            from_offset: offset_in,
            to: Ino(ino_out.0),
            to_fh: handle(fh_out),
            to_offset: offset_out,
            // The reply has 32 bits; the program asks for the rest.
            length: u32::try_from(len).unwrap_or(!0xfff),
        };
        self.spawn(debug_span!("copy_file_range", ?range), async move {
            reply::written(fs.copy_file_range(range, caller).await, reply);
        });
    }
}

fn caller(req: &Request) -> Caller {
    Caller {
        uid: req.uid(),
        gid: req.gid(),
        pid: req.pid(),
    }
}

fn handle(fh: FileHandle) -> Fh {
    Fh(fh.0)
}

/// The permission bits of a mode.
fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or(0)
}

fn open_flags(flags: i32) -> OpenFlags {
    // The fourth combination, as used for ioctl only, is neither.
    let access = fuser::OpenFlags(flags).acc_mode();
    let neither = flags & libc::O_ACCMODE == libc::O_ACCMODE;
    OpenFlags {
        read: access != OpenAccMode::O_WRONLY && !neither,
        write: access != OpenAccMode::O_RDONLY,
        append: flags & libc::O_APPEND != 0,
        truncate: flags & libc::O_TRUNC != 0,
        exclusive: flags & libc::O_EXCL != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_flags_are_taken_apart() {
        let flags = open_flags(libc::O_WRONLY | libc::O_TRUNC | libc::O_APPEND);
        assert_eq!(
            flags,
            OpenFlags {
                read: false,
                write: true,
                append: true,
                truncate: true,
                exclusive: false
            }
        );
        let both = open_flags(libc::O_RDWR | libc::O_EXCL);
        assert!(both.read && both.write && both.exclusive);
        let neither = open_flags(libc::O_ACCMODE);
        assert!(!neither.read && !neither.write);
        assert!(open_flags(libc::O_RDONLY).read);
    }

    #[test]
    fn modes_lose_the_kind_of_file() {
        assert_eq!(permissions(libc::S_IFREG | 0o4755), 0o4755);
    }
}
