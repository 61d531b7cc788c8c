//! A directory as a capability: `openat2(RESOLVE_BENEATH)`, put-if-absent by link, fsync of file and directory.

use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::StoreError;
use crate::failpoint::{self, Point};

/// Result of a put-if-absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Put {
    Created,
    Exists,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    Dir,
    File,
    Symlink,
    Other,
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub struct Listed {
    pub name: OsString,
    pub kind: EntryKind,
}

/// A directory that can't be left: no `..`, no symbolic link and no absolute path leads out of it.
/// Paths are relative; the empty path is the directory itself.
#[derive(Debug, Clone)]
pub struct Dir(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    /// Directories below whose entries this process has seen to be durable.
    durable: Mutex<HashSet<PathBuf>>,
    /// For messages only.
    path: PathBuf,
}

impl Dir {
    /// Opens the root of a mount.
    ///
    /// # Errors
    /// When it is not a directory that can be read.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let file = std::fs::canonicalize(path)
            .and_then(|path| {
                let file = File::options().read(true).custom_flags_dir().open(&path)?;
                Ok((file, path))
            })
            .map_err(|source| StoreError::Io {
                action: "open",
                path: path.to_owned(),
                source,
            })?;
        Ok(Dir(Arc::new(Inner {
            fd: file.0.into(),
            durable: Mutex::default(),
            path: file.1,
        })))
    }

    /// Where the directory is, for messages.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// A directory below, as a capability of its own.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn sub(&self, path: &Path) -> Result<Dir, StoreError> {
        let fd = self.open_at(path, libc::O_RDONLY | libc::O_DIRECTORY, 0, "open")?;
        Ok(Dir(Arc::new(Inner {
            fd,
            durable: Mutex::default(),
            path: self.0.path.join(path),
        })))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`StoreError::Outside`] when the path or a link leads out; [`StoreError::Io`].
    pub fn open_file(&self, path: &Path) -> Result<File, StoreError> {
        // O_NONBLOCK: a FIFO planted in the table must not hang us.
        let fd = self.open_at(path, libc::O_RDONLY | libc::O_NONBLOCK, 0, "open")?;
        Ok(File::from(fd))
    }

    /// Creates a file that does not exist yet, open for reading and writing.
    ///
    /// # Errors
    /// As [`Dir::open_file`]; `AlreadyExists` when the name is taken.
    pub fn create_new(&self, path: &Path) -> Result<File, StoreError> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        Ok(File::from(self.open_at(path, flags, 0o644, "create")?))
    }

    /// The whole content.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn read(&self, path: &Path) -> Result<Vec<u8>, StoreError> {
        let mut file = self.open_file(path)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)
            .map_err(|e| self.io("read", path, e))?;
        Ok(content)
    }

    /// Attributes, following links that stay inside.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn metadata(&self, path: &Path) -> Result<std::fs::Metadata, StoreError> {
        let fd = self.open_at(path, libc::O_PATH, 0, "stat")?;
        // An O_PATH descriptor can be asked through its own File.
        File::from(fd)
            .metadata()
            .map_err(|e| self.io("stat", path, e))
    }

    /// The names in a directory, in the order of the file system.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn list(&self, path: &Path) -> Result<Vec<Listed>, StoreError> {
        let fd = self.open_at(path, libc::O_RDONLY | libc::O_DIRECTORY, 0, "list")?;
        // std can only list by path; the descriptor's own path in /proc stays inside whatever happens to the names.
        let via = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(via).map_err(|e| self.io("list", path, e))? {
            let entry = entry.map_err(|e| self.io("list", path, e))?;
            let kind = match entry.file_type() {
                Ok(t) if t.is_dir() => EntryKind::Dir,
                Ok(t) if t.is_file() => EntryKind::File,
                Ok(t) if t.is_symlink() => EntryKind::Symlink,
                Ok(t) if t.is_fifo() || t.is_socket() => EntryKind::Other,
                _ => EntryKind::Other,
            };
            entries.push(Listed {
                name: entry.file_name(),
                kind,
            });
        }
        Ok(entries)
    }

    /// Makes a directory; one that exists is left alone.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn create_dir_all(&self, path: &Path) -> Result<(), StoreError> {
        let mut done = PathBuf::new();
        for part in path.components() {
            done.push(part);
            let known = |set: &mut HashSet<PathBuf>| !set.insert(done.clone());
            match self.create_dir(&done) {
                Ok(()) => {
                    known(&mut self.durable());
                }
                // Whoever made it may not have synced it yet, and what lies in it is only as durable as its entry.
                Err(StoreError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::AlreadyExists =>
                {
                    if !self.durable().contains(&done) {
                        self.sync_dir(done.parent().unwrap_or(Path::new("")))?;
                        known(&mut self.durable());
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn durable(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.0
            .durable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one directory and syncs its parent.
    ///
    /// # Errors
    /// As [`Dir::open_file`]; `AlreadyExists`.
    pub fn create_dir(&self, path: &Path) -> Result<(), StoreError> {
        let (parent, name) = self.parent(path)?;
        // SAFETY: a valid descriptor and a NUL-terminated name.
        let rc = unsafe { libc::mkdirat(parent.as_raw_fd(), name.as_ptr(), 0o755) };
        self.check(rc, "create", path)?;
        sync(parent.as_fd()).map_err(|e| self.io("sync", path, e))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Dir::open_file`]; `DirectoryNotEmpty`.
    pub fn remove_dir(&self, path: &Path) -> Result<(), StoreError> {
        self.unlink(path, libc::AT_REMOVEDIR)
    }

    /// Removes a file or a link (never what the link points to).
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn remove_file(&self, path: &Path) -> Result<(), StoreError> {
        self.unlink(path, 0)
    }

    /// Removes a directory with everything in it, without following links.
    ///
    /// # Errors
    /// The first failure.
    pub fn remove_tree(&self, path: &Path) -> Result<(), StoreError> {
        for entry in self.list(path)? {
            let child = path.join(&entry.name);
            match entry.kind {
                EntryKind::Dir => self.remove_tree(&child)?,
                EntryKind::File | EntryKind::Symlink | EntryKind::Other => {
                    self.remove_file(&child)?;
                }
            }
        }
        self.remove_dir(path)
    }

    /// Writes `body` under `path` unless something is there: all of it or nothing, durable on return.
    /// `temporary` is a name beside it that the protocol gives no meaning to (PROTOCOL.md G).
    ///
    /// # Errors
    /// When the outcome is unknown, too: read `path` back to tell.
    pub fn put_if_absent(
        &self,
        path: &Path,
        temporary: &OsStr,
        body: &[u8],
    ) -> Result<Put, StoreError> {
        self.write_temporary(path, temporary, body)?;
        failpoint::hit(Point::CommitWritten);
        let (parent, name) = self.parent(path)?;
        let temporary_c = c_name(temporary).map_err(|e| self.io("put", path, e))?;
        // SAFETY: valid descriptors and NUL-terminated names.
        let rc = unsafe {
            libc::linkat(
                parent.as_raw_fd(),
                temporary_c.as_ptr(),
                parent.as_raw_fd(),
                name.as_ptr(),
                0,
            )
        };
        let linked = if rc == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        };
        let put = match linked {
            Ok(()) => {
                failpoint::hit(Point::CommitNamed);
                Put::Created
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Put::Exists,
            Err(e) if no_links(&e) => {
                return self.rename_noreplace(parent.as_fd(), &temporary_c, &name, path);
            }
            Err(e) => {
                self.remove_at(parent.as_fd(), &temporary_c);
                return Err(self.io("put", path, e));
            }
        };
        self.remove_at(parent.as_fd(), &temporary_c);
        sync(parent.as_fd()).map_err(|e| self.io("sync", path, e))?;
        Ok(put)
    }

    /// As [`Dir::put_if_absent`] for a file that nobody depends on: whoever looks sees all of it or nothing, and a
    /// power cut may leave it empty.
    ///
    /// # Errors
    /// As [`Dir::open_file`]; also where the file system has no rename that does not replace.
    pub fn offer(&self, path: &Path, temporary: &OsStr, body: &[u8]) -> Result<Put, StoreError> {
        let beside = path.with_file_name(temporary);
        let mut file = self.create_new(&beside)?;
        file.write_all(body).map_err(|e| {
            let _ = self.remove_file(&beside);
            self.io("write", path, e)
        })?;
        let (parent, name) = self.parent(path)?;
        let temporary = c_name(temporary).map_err(|e| self.io("put", path, e))?;
        // SAFETY: valid descriptors and NUL-terminated names.
        let rc = unsafe {
            libc::renameat2(
                parent.as_raw_fd(),
                temporary.as_ptr(),
                parent.as_raw_fd(),
                name.as_ptr(),
                libc::RENAME_NOREPLACE,
            )
        };
        if rc == 0 {
            return Ok(Put::Created);
        }
        let error = std::io::Error::last_os_error();
        self.remove_at(parent.as_fd(), &temporary);
        match error.kind() {
            std::io::ErrorKind::AlreadyExists => Ok(Put::Exists),
            _ => Err(self.io("put", path, error)),
        }
    }

    /// Writes `body` over whatever is under `path`: all of it or nothing, durable on return.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn put(&self, path: &Path, temporary: &OsStr, body: &[u8]) -> Result<(), StoreError> {
        self.write_temporary(path, temporary, body)?;
        let (parent, name) = self.parent(path)?;
        let temporary = c_name(temporary).map_err(|e| self.io("put", path, e))?;
        // SAFETY: valid descriptors and NUL-terminated names.
        let rc = unsafe {
            libc::renameat(
                parent.as_raw_fd(),
                temporary.as_ptr(),
                parent.as_raw_fd(),
                name.as_ptr(),
            )
        };
        if rc != 0 {
            let error = std::io::Error::last_os_error();
            self.remove_at(parent.as_fd(), &temporary);
            return Err(self.io("put", path, error));
        }
        sync(parent.as_fd()).map_err(|e| self.io("sync", path, e))
    }

    /// Gives the file `from` the name `to`, over whatever is there; both in one directory. Durable on return.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        let (parent, from) = self.parent(from)?;
        let (_, name) = self.parent(to)?;
        // SAFETY: a valid descriptor and NUL-terminated names.
        let rc = unsafe {
            libc::renameat(
                parent.as_raw_fd(),
                from.as_ptr(),
                parent.as_raw_fd(),
                name.as_ptr(),
            )
        };
        self.check(rc, "rename", to)?;
        sync(parent.as_fd()).map_err(|e| self.io("sync", to, e))
    }

    /// Gives the open file `from` the new name `path`, without copying a byte when both are on one file
    /// system, else by copying. Fails if the name is taken. Durable on return.
    ///
    /// # Errors
    /// As [`Dir::open_file`]; `AlreadyExists`.
    pub fn adopt(&self, from: &File, path: &Path) -> Result<(), StoreError> {
        let (parent, name) = self.parent(path)?;
        let via = format!("/proc/self/fd/{}", from.as_raw_fd());
        let via = CString::new(via).map_err(|e| self.io("adopt", path, e.into()))?;
        // SAFETY: valid descriptors and NUL-terminated names; the link is that of our own descriptor.
        let rc = unsafe {
            libc::linkat(
                libc::AT_FDCWD,
                via.as_ptr(),
                parent.as_raw_fd(),
                name.as_ptr(),
                libc::AT_SYMLINK_FOLLOW,
            )
        };
        if rc != 0 {
            let error = std::io::Error::last_os_error();
            // ENOENT: a nameless file whose only name was taken back can't be linked again.
            let copies = matches!(error.raw_os_error(), Some(libc::EXDEV | libc::ENOENT));
            if !copies && !no_links(&error) {
                return Err(self.io("adopt", path, error));
            }
            self.copy_in(from, path)?;
        }
        sync(parent.as_fd()).map_err(|e| self.io("sync", path, e))
    }

    fn copy_in(&self, from: &File, path: &Path) -> Result<(), StoreError> {
        let via = format!("/proc/self/fd/{}", from.as_raw_fd());
        let mut source = File::open(via).map_err(|e| self.io("read", path, e))?;
        let mut target = self.create_new(path)?;
        let copied = std::io::copy(&mut source, &mut target).and_then(|_| target.sync_all());
        copied.map_err(|e| {
            // A part of a copy is an orphan that nobody wants.
            let _ = self.remove_file(path);
            self.io("copy", path, e)
        })
    }

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn sync_dir(&self, path: &Path) -> Result<(), StoreError> {
        let fd = self.open_at(path, libc::O_RDONLY | libc::O_DIRECTORY, 0, "sync")?;
        sync(fd.as_fd()).map_err(|e| self.io("sync", path, e))
    }

    /// Free and total space as `statvfs` has it.
    ///
    /// # Errors
    /// When the file system does not answer.
    pub fn statvfs(&self) -> Result<libc::statvfs, StoreError> {
        let mut out = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
        // SAFETY: a valid descriptor and a buffer of the right type.
        let rc = unsafe { libc::fstatvfs(self.0.fd.as_raw_fd(), out.as_mut_ptr()) };
        self.check(rc, "statvfs", Path::new(""))?;
        // SAFETY: all-zero is a valid value, and the call has filled it.
        Ok(unsafe { out.assume_init() })
    }

    fn write_temporary(
        &self,
        path: &Path,
        temporary: &OsStr,
        body: &[u8],
    ) -> Result<(), StoreError> {
        let beside = path.with_file_name(temporary);
        let mut file = self.create_new(&beside)?;
        file.write_all(body)
            .and_then(|()| file.sync_all())
            .map_err(|e| {
                let _ = self.remove_file(&beside);
                self.io("write", path, e)
            })
    }

    /// Some file systems know no links: a rename that never replaces does as well.
    fn rename_noreplace(
        &self,
        parent: std::os::fd::BorrowedFd<'_>,
        temporary: &CString,
        name: &CString,
        path: &Path,
    ) -> Result<Put, StoreError> {
        // SAFETY: valid descriptors and NUL-terminated names.
        let rc = unsafe {
            libc::renameat2(
                parent.as_raw_fd(),
                temporary.as_ptr(),
                parent.as_raw_fd(),
                name.as_ptr(),
                libc::RENAME_NOREPLACE,
            )
        };
        if rc == 0 {
            failpoint::hit(Point::CommitNamed);
            sync(parent).map_err(|e| self.io("sync", path, e))?;
            return Ok(Put::Created);
        }
        let error = std::io::Error::last_os_error();
        self.remove_at(parent, temporary);
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            return Ok(Put::Exists);
        }
        Err(self.io("put", path, error))
    }

    /// Best effort: what stays is a temporary name that nobody reads and a later sweep removes.
    fn remove_at(&self, parent: std::os::fd::BorrowedFd<'_>, name: &CString) {
        // SAFETY: a valid descriptor and a NUL-terminated name.
        unsafe { libc::unlinkat(parent.as_raw_fd(), name.as_ptr(), 0) };
    }

    fn unlink(&self, path: &Path, flags: i32) -> Result<(), StoreError> {
        let (parent, name) = self.parent(path)?;
        // SAFETY: a valid descriptor and a NUL-terminated name.
        let rc = unsafe { libc::unlinkat(parent.as_raw_fd(), name.as_ptr(), flags) };
        self.check(rc, "remove", path)
    }

    /// The opened directory of `path` and its last name.
    fn parent(&self, path: &Path) -> Result<(OwnedFd, CString), StoreError> {
        let outside = || StoreError::Outside {
            path: self.0.path.join(path),
        };
        let name = path.file_name().ok_or_else(outside)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        let fd = self.open_at(parent, libc::O_RDONLY | libc::O_DIRECTORY, 0, "open")?;
        Ok((fd, c_name(name).map_err(|e| self.io("open", path, e))?))
    }

    fn open_at(
        &self,
        path: &Path,
        flags: i32,
        mode: u64,
        action: &'static str,
    ) -> Result<OwnedFd, StoreError> {
        let text = if path.as_os_str().is_empty() {
            OsStr::new(".")
        } else {
            path.as_os_str()
        };
        let name = c_name(text).map_err(|e| self.io(action, path, e))?;
        // SAFETY: all-zero is a valid open_how.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = u64::from((flags | libc::O_CLOEXEC).unsigned_abs());
        how.mode = mode;
        how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
        loop {
            // SAFETY: a valid descriptor, a NUL-terminated name, a struct of the size that is given.
            let fd = unsafe {
                libc::syscall(
                    libc::SYS_openat2,
                    self.0.fd.as_raw_fd(),
                    name.as_ptr(),
                    std::ptr::from_ref(&how),
                    size_of::<libc::open_how>(),
                )
            };
            if let Ok(fd) = i32::try_from(fd)
                && fd >= 0
            {
                // SAFETY: a descriptor that the kernel has just made and nobody else owns.
                return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
            }
            let error = std::io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EXDEV) => {
                    return Err(StoreError::Outside {
                        path: self.0.path.join(path),
                    });
                }
                // A rename elsewhere made the walk uncertain: the kernel asks to walk again.
                Some(libc::EAGAIN | libc::EINTR) => {}
                _ => return Err(self.io(action, path, error)),
            }
        }
    }

    fn check(&self, rc: i32, action: &'static str, path: &Path) -> Result<(), StoreError> {
        if rc == 0 {
            Ok(())
        } else {
            Err(self.io(action, path, std::io::Error::last_os_error()))
        }
    }

    fn io(&self, action: &'static str, path: &Path, source: std::io::Error) -> StoreError {
        StoreError::Io {
            action,
            path: self.0.path.join(path),
            source,
        }
    }

    /// Makes it somebody's.
    ///
    /// # Errors
    /// When the process may not give files away.
    pub fn give_to(&self, uid: u32, gid: u32) -> Result<(), StoreError> {
        std::os::unix::fs::fchown(&self.0.fd, Some(uid), Some(gid))
            .map_err(|e| self.io("chown", Path::new(""), e))
    }

    /// The numbers that identify the directory on this machine.
    ///
    /// # Errors
    /// When the file system does not answer.
    pub fn identity(&self) -> Result<(u64, u64), StoreError> {
        let meta = self.metadata(Path::new(""))?;
        Ok((meta.dev(), meta.ino()))
    }
}

trait DirFlags {
    fn custom_flags_dir(&mut self) -> &mut Self;
}

impl DirFlags for std::fs::OpenOptions {
    fn custom_flags_dir(&mut self) -> &mut Self {
        use std::os::unix::fs::OpenOptionsExt as _;
        self.custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
    }
}

fn c_name(name: &OsStr) -> std::io::Result<CString> {
    CString::new(name.as_bytes()).map_err(std::io::Error::from)
}

/// Whether the file system refuses links as such.
fn no_links(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS | libc::EMLINK)
    )
}

fn sync(fd: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
    // SAFETY: a valid descriptor.
    if unsafe { libc::fsync(fd.as_raw_fd()) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> (tempfile::TempDir, Dir) {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open(temporary.path()).unwrap();
        (temporary, dir)
    }

    #[test]
    fn only_the_first_put_wins() {
        let (_guard, dir) = dir();
        let path = Path::new("a");
        assert_eq!(
            dir.put_if_absent(path, OsStr::new(".t1"), b"one").unwrap(),
            Put::Created
        );
        assert_eq!(
            dir.put_if_absent(path, OsStr::new(".t2"), b"two").unwrap(),
            Put::Exists
        );
        assert_eq!(dir.read(path).unwrap(), b"one");
        dir.put(path, OsStr::new(".t3"), b"three").unwrap();
        assert_eq!(dir.read(path).unwrap(), b"three");
        assert_eq!(dir.list(Path::new("")).unwrap().len(), 1);
    }

    #[test]
    fn nothing_leads_outside() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), b"s").unwrap();
        let (guard, dir) = dir();
        std::os::unix::fs::symlink(outside.path(), guard.path().join("link")).unwrap();
        let secret = outside.path().join("secret");
        for path in [
            Path::new("../x"),
            Path::new("link/secret"),
            secret.as_path(),
            Path::new("link"),
        ] {
            assert!(dir.open_file(path).is_err(), "{}", path.display());
        }
        assert!(matches!(
            dir.open_file(Path::new("link/secret")),
            Err(StoreError::Outside { .. })
        ));
        assert!(dir.remove_file(Path::new("link/secret")).is_err());
        assert!(dir.create_new(Path::new("link/new")).is_err());
        dir.create_dir(Path::new("sub")).unwrap();
        std::os::unix::fs::symlink(outside.path(), guard.path().join("sub/link")).unwrap();
        dir.remove_tree(Path::new("sub")).unwrap();
        assert!(secret.exists());
    }

    #[test]
    fn adopting_makes_a_second_name_not_a_copy() {
        let (guard, dir) = dir();
        let file = dir.create_new(Path::new("staged")).unwrap();
        (&file).write_all(b"rows").unwrap();
        dir.adopt(&file, Path::new("data")).unwrap();
        let (a, b) = (guard.path().join("staged"), guard.path().join("data"));
        assert_eq!(a.metadata().unwrap().ino(), b.metadata().unwrap().ino());
        assert!(dir.adopt(&file, Path::new("data")).is_err());
    }
}
