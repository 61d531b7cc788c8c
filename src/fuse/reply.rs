//! Results into replies. Whatever failed is logged here, once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate,
    ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
};
use tracing::{debug, error, info, warn};

use super::backing::Grant;
use super::errno::errno;
use crate::env::Millis;
use crate::error::{Failure, Kind};
use crate::fs::{Attr, Entry, Fh, FileKind, FsError, FsResult, StatFs};

/// Inode numbers are not reused while the kernel knows them, so there is one generation.
pub(super) const GENERATION: Generation = Generation(0);

/// Reported as the best unit of input and output, and the most that one request carries: programs that buffer by it
/// write a whole statement at once, and copy with an eighth of the requests of cp's own unit.
const BLOCK_BYTES: u32 = 1024 * 1024;

/// Logs a failure and tells its number.
pub(super) fn refused(failure: &FsError) -> Errno {
    refused_as(failure, errno(failure))
}

/// Logs a failure and passes its number on.
pub(super) fn refused_as(failure: &FsError, number: Errno) -> Errno {
    let code = number.code();
    let hint = failure.hint().unwrap_or_default();
    match failure {
        FsError::Domain { kind, .. } => match kind {
            Kind::Absent => debug!(errno = code, hint, "{failure}"),
            Kind::Conflict | Kind::Invalid | Kind::Denied | Kind::ReadOnly | Kind::Unsupported => {
                info!(errno = code, hint, "{failure}");
            }
            Kind::NoSpace => warn!(errno = code, hint, "{failure}"),
            Kind::Corrupt | Kind::Unavailable => error!(errno = code, hint, "{failure}"),
        },
        _ => debug!(errno = code, "{failure}"),
    }
    number
}

pub(super) fn empty(result: FsResult<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(failure) => reply.error(refused(&failure)),
    }
}

pub(super) fn entry(result: FsResult<Entry>, reply: ReplyEntry) {
    match result {
        Ok(entry) => reply.entry_with_ttls(
            &entry.attr.ttl,
            &entry.ttl,
            &file_attr(&entry.attr),
            GENERATION,
        ),
        Err(failure) => reply.error(refused(&failure)),
    }
}

pub(super) fn attr(result: FsResult<Attr>, reply: ReplyAttr) {
    match result {
        Ok(attr) => reply.attr(&attr.ttl, &file_attr(&attr)),
        Err(failure) => reply.error(refused(&failure)),
    }
}

pub(super) fn data(result: FsResult<Bytes>, reply: ReplyData) {
    match result {
        Ok(bytes) => reply.data(&bytes),
        Err(failure) => reply.error(refused(&failure)),
    }
}

pub(super) fn written(result: FsResult<u32>, reply: ReplyWrite) {
    match result {
        Ok(bytes) => reply.written(bytes),
        Err(failure) => reply.error(refused(&failure)),
    }
}

pub(super) fn opened(fh: Fh, grant: &Grant, reply: ReplyOpen) {
    match &grant.backing {
        Some(id) => reply.opened_passthrough(FileHandle(fh.0), grant.flags, id),
        None => reply.opened(FileHandle(fh.0), grant.flags),
    }
}

pub(super) fn created(entry: &Entry, fh: Fh, grant: &Grant, reply: ReplyCreate) {
    let (ttl, attr) = (shorter_ttl(entry), file_attr(&entry.attr));
    let fh = FileHandle(fh.0);
    match &grant.backing {
        Some(id) => reply.created_passthrough(&ttl, &attr, GENERATION, fh, grant.flags, id),
        None => reply.created(&ttl, &attr, GENERATION, fh, grant.flags),
    }
}

pub(super) fn opened_dir(result: FsResult<Fh>, reply: ReplyOpen) {
    match result {
        Ok(fh) => reply.opened(FileHandle(fh.0), FopenFlags::empty()),
        Err(failure) => reply.error(refused(&failure)),
    }
}

pub(super) fn statfs(result: FsResult<StatFs>, reply: ReplyStatfs) {
    match result {
        Ok(s) => reply.statfs(
            s.blocks,
            s.free,
            s.available,
            s.files,
            s.files_free,
            s.block_size,
            s.name_max,
            s.block_size,
        ),
        Err(failure) => reply.error(refused(&failure)),
    }
}

/// The duration for replies that carry one for name and attributes.
pub(super) fn shorter_ttl(entry: &Entry) -> Duration {
    entry.ttl.min(entry.attr.ttl)
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Dir => FileType::Directory,
        FileKind::File => FileType::RegularFile,
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    let mtime = to_system(attr.mtime_ms);
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: mtime,
        mtime,
        ctime: to_system(attr.ctime_ms),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: attr.mode & 0o7777,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Attributes for `.` and `..`, of which the kernel takes number and kind only.
pub(super) fn bare_dir(ino: INodeNo) -> FileAttr {
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

pub(super) fn to_millis(time: SystemTime) -> Millis {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}

/// Milliseconds as the kernel takes them; what it cannot hold becomes the epoch.
fn to_system(millis: Millis) -> SystemTime {
    let distance = Duration::from_millis(millis.unsigned_abs());
    let time = if millis < 0 {
        UNIX_EPOCH.checked_sub(distance)
    } else {
        UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::Ino;

    #[test]
    fn times_survive_both_ways_also_before_the_epoch() {
        for millis in [0, 1, -1, 1_700_000_000_123, -86_400_000] {
            assert_eq!(to_millis(to_system(millis)), millis);
        }
    }

    #[test]
    fn attributes_carry_only_permission_bits_and_round_blocks_up() {
        let attr = Attr {
            ino: Ino(7),
            kind: FileKind::File,
            size: 513,
            mode: 0o100_644_u32 as u16,
            uid: 1,
            gid: 2,
            mtime_ms: 5,
            ctime_ms: 6,
            nlink: 1,
            ttl: Duration::ZERO,
        };
        let shown = file_attr(&attr);
        assert_eq!((shown.perm, shown.blocks), (0o644, 2));
        assert_eq!(shown.kind, FileType::RegularFile);
    }

    #[test]
    fn a_reply_with_one_duration_takes_the_shorter() {
        let mut attr = Attr {
            ino: Ino::ROOT,
            kind: FileKind::Dir,
            size: 0,
            mode: 0o755,
            uid: 0,
            gid: 0,
            mtime_ms: 0,
            ctime_ms: 0,
            nlink: 1,
            ttl: Duration::from_secs(5),
        };
        let ttl = Duration::from_secs(9);
        assert_eq!(shorter_ttl(&Entry { attr, ttl }), Duration::from_secs(5));
        attr.ttl = Duration::from_secs(60);
        assert_eq!(shorter_ttl(&Entry { attr, ttl }), ttl);
    }
}
