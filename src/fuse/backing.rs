//! Passthrough: which open inodes the kernel reads and writes by itself.
//!
//! # Why a table
//! The kernel knows one way of input and output for an inode that is open. A second backing id, or one open through
//! the page cache and one past it, is EIO; so is an id that is closed before the last file. This table is always at
//! least as full as the kernel's: it counts an open before the reply is sent and a close when RELEASE arrives.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{BackingId, FopenFlags};
use tracing::{debug, info};

use crate::fs::{Ino, Io, OpenFlags};

/// How one open was granted.
pub(super) struct Grant<B = BackingId> {
    pub(super) flags: FopenFlags,
    pub(super) backing: Option<Arc<B>>,
}

/// The open inodes.
pub(super) struct Backings<B = BackingId> {
    /// Leaf lock. Held during one ioctl that does no input or output.
    open: Mutex<HashMap<Ino, OpenInode<B>>>,
    usable: AtomicBool,
}

struct OpenInode<B> {
    count: u64,
    /// Decided by the first open, for all until the last close.
    backing: Option<Arc<B>>,
}

impl<B> Backings<B> {
    pub(super) fn new(usable: bool) -> Self {
        Backings {
            open: Mutex::new(HashMap::new()),
            usable: AtomicBool::new(usable),
        }
    }

    /// Whether passthrough has been refused for good.
    pub(super) fn usable(&self) -> bool {
        self.usable.load(Ordering::Relaxed)
    }

    /// Counts an open and decides how it is done.
    pub(super) fn open(
        &self,
        ino: Ino,
        wanted: &Io,
        how: OpenFlags,
        register: impl FnOnce(&File) -> io::Result<B>,
    ) -> Grant<B> {
        let mut open = self.lock();
        let inode = open.entry(ino).or_insert_with(|| OpenInode {
            count: 0,
            backing: match wanted {
                Io::Passthrough(file) if self.usable() => self.register(ino, file, register),
                _ => None,
            },
        });
        inode.count += 1;
        let backing = inode.backing.clone();
        let mut flags = match (&backing, wanted) {
            // The kernel refuses KEEP_CACHE together with passthrough.
            (Some(_), Io::Passthrough(_)) => FopenFlags::empty(),
            (Some(_), Io::Cached { .. } | Io::Direct) => {
                debug!(
                    ino = ino.0,
                    "opened for passthrough like the opens before it"
                );
                FopenFlags::empty()
            }
            (None, Io::Direct) => FopenFlags::FOPEN_DIRECT_IO,
            (None, Io::Cached { keep: true }) => FopenFlags::FOPEN_KEEP_CACHE,
            (None, Io::Cached { keep: false } | Io::Passthrough(_)) => FopenFlags::empty(),
        };
        if !how.write {
            // Nothing can come of a FLUSH; leaving it out saves a request for each close.
            flags |= FopenFlags::FOPEN_NOFLUSH;
        }
        Grant { flags, backing }
    }

    /// Counts a close.
    pub(super) fn close(&self, ino: Ino) {
        let mut open = self.lock();
        if let Some(inode) = open.get_mut(&ino) {
            inode.count -= 1;
            if inode.count == 0 {
                open.remove(&ino);
            }
        }
    }

    fn register(
        &self,
        ino: Ino,
        file: &File,
        register: impl FnOnce(&File) -> io::Result<B>,
    ) -> Option<Arc<B>> {
        match register(file) {
            Ok(id) => Some(Arc::new(id)),
            Err(error) => {
                if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOTTY)) {
                    info!(%error, "the kernel does no passthrough for this process");
                    self.usable.store(false, Ordering::Relaxed);
                } else {
                    debug!(ino = ino.0, %error, "no passthrough for this file");
                }
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, OpenInode<B>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino(5);
    const READ: OpenFlags = OpenFlags {
        read: true,
        write: false,
        append: false,
        truncate: false,
        exclusive: false,
    };

    fn offer() -> Io {
        Io::Passthrough(Arc::new(File::open("/dev/null").unwrap()))
    }

    fn refuse(number: i32) -> impl FnOnce(&File) -> io::Result<u32> {
        move |_| Err(io::Error::from_raw_os_error(number))
    }

    #[test]
    fn all_opens_of_an_inode_share_the_first_ones_id() {
        let table = Backings::<u32>::new(true);
        let first = table.open(INO, &offer(), READ, |_| Ok(1));
        let second = table.open(INO, &offer(), READ, |_| Ok(2));
        assert_eq!(first.backing.as_deref(), Some(&1));
        assert_eq!(second.backing.as_deref(), Some(&1));
        table.close(INO);
        let third = table.open(INO, &Io::Direct, READ, |_| Ok(3));
        assert_eq!(third.backing.as_deref(), Some(&1));
        assert!(!third.flags.contains(FopenFlags::FOPEN_DIRECT_IO));
    }

    #[test]
    fn the_last_close_ends_the_id_and_the_next_open_decides_anew() {
        let table = Backings::<u32>::new(true);
        let id = table.open(INO, &offer(), READ, |_| Ok(1)).backing.unwrap();
        assert_eq!(Arc::strong_count(&id), 2);
        table.close(INO);
        assert_eq!(Arc::strong_count(&id), 1);
        assert!(
            table
                .open(INO, &Io::Cached { keep: true }, READ, |_| Ok(2))
                .backing
                .is_none()
        );
        assert!(table.open(INO, &offer(), READ, |_| Ok(3)).backing.is_none());
    }

    #[test]
    fn a_refused_file_is_cached_until_its_last_close() {
        let table = Backings::<u32>::new(true);
        let grant = table.open(INO, &offer(), READ, refuse(libc::ELOOP));
        assert!(grant.backing.is_none());
        assert!(table.open(INO, &offer(), READ, |_| Ok(1)).backing.is_none());
        assert!(table.usable());
    }

    #[test]
    fn a_refusal_of_the_process_is_final() {
        let table = Backings::<u32>::new(true);
        table.open(INO, &offer(), READ, refuse(libc::EPERM));
        assert!(!table.usable());
        assert!(
            table
                .open(Ino(6), &offer(), READ, |_| Ok(1))
                .backing
                .is_none()
        );
    }

    #[test]
    fn only_writers_send_a_flush() {
        let table = Backings::<u32>::new(true);
        let cached = Io::Cached { keep: false };
        let write = OpenFlags {
            write: true,
            ..READ
        };
        let none = |_: &File| Ok(0);
        assert_eq!(
            table.open(INO, &cached, READ, none).flags,
            FopenFlags::FOPEN_NOFLUSH
        );
        assert_eq!(
            table.open(INO, &cached, write, none).flags,
            FopenFlags::empty()
        );
    }
}
