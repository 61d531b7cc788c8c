//! Attaching to and detaching from the tree of mounts: mount(2) and umount2(2), or fusermount3 for those who may not.
//!
//! # Why not fuser's own mounting
//! fuser 0.18 unmounts once more at the end of a session, whatever is mounted there by then, and cannot detach a busy
//! mount. Here a mount is recognised by its device number, which cannot be given away while its connection lives.

use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr;

use tracing::debug;

use super::mountinfo::{FS_TYPE, MountEntry, mounts};
use super::session::FuseError;
use crate::settings::Settings;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

/// What became of an attempt to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detached {
    Done,
    Busy,
}

/// A mount of this process.
pub(super) struct Attached {
    /// Tells whether the connection still lives.
    connection: OwnedFd,
    device: (u32, u32),
}

impl Attached {
    /// Mounts; the descriptor is the kernel's end of the connection.
    pub(super) fn new(settings: &Settings) -> Result<(OwnedFd, Self), FuseError> {
        let failed = |source| FuseError::Mount {
            path: settings.mountpoint.clone(),
            source,
        };
        // Two commands at once: the second one finds the first one's mount. The lock ends with the descriptor.
        let covered = File::open(&settings.mountpoint).map_err(failed)?;
        covered.lock().map_err(failed)?;
        if MountEntry::at(&settings.mountpoint)
            .map_err(failed)?
            .is_some()
        {
            return Err(FuseError::Covered(settings.mountpoint.clone()));
        }
        let device = match mount_directly(settings) {
            Ok(device) => device,
            Err(FuseError::Mount { source, .. } | FuseError::Device(source))
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                debug!(error = %source, "mounting through {HELPER}");
                mount_by_helper(settings)?
            }
            Err(error) => return Err(error),
        };
        let connection = device.try_clone().map_err(failed)?;
        let entry = MountEntry::at(&settings.mountpoint)
            .map_err(failed)?
            .filter(MountEntry::is_deltafs)
            .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let attached = Attached {
            connection,
            device: entry.device,
        };
        Ok((device, attached))
    }

    /// Unmounts wherever this file system is mounted; lazily: also what is busy, which lives on until the last close.
    /// Nothing else is touched, even if it is mounted at the same place.
    pub(super) fn detach(&self, lazily: bool) -> io::Result<Detached> {
        let mut outcome = Detached::Done;
        for entry in mounts()?.iter().rev() {
            // The order matters: a live connection makes the number ours.
            if entry.device != self.device || !self.connected() {
                continue;
            }
            match unmount(&entry.mountpoint, lazily) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => outcome = Detached::Busy,
                // Somebody was faster.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(outcome)
    }

    fn connected(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.connection.as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: one valid structure, no waiting.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
        ready == 0 || poll.revents & libc::POLLERR == 0
    }
}

/// Unmounts what is visible at a path.
///
/// # Errors
/// `EBUSY` (as `ResourceBusy`) when it is in use.
pub fn detach_path(path: &Path) -> io::Result<()> {
    unmount(path, false)
}

/// Takes what is visible at a path out of the tree at once; it ends when nobody uses it any more.
///
/// # Errors
/// When it cannot be unmounted.
pub fn lazily_detach_path(path: &Path) -> io::Result<()> {
    unmount(path, true)
}

fn unmount(path: &Path, lazily: bool) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: a valid string.
    if unsafe { libc::umount2(name.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EPERM) {
        return Err(error);
    }
    let mut helper = Command::new(HELPER);
    helper.arg("-u");
    if lazily {
        helper.arg("-z");
    }
    let output = helper.arg("--").arg(path).output().map_err(|_| error)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(if said.contains("busy") {
        io::ErrorKind::ResourceBusy.into()
    } else {
        io::Error::other(said.trim().to_owned())
    })
}

fn mount_directly(settings: &Settings) -> Result<OwnedFd, FuseError> {
    let device = open_device().map_err(FuseError::Device)?;
    let (uid, gid) = ids();
    let mut data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions",
        device.as_raw_fd()
    );
    if settings.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = libc::MS_NOSUID | libc::MS_NODEV;
    if settings.read_only {
        flags |= libc::MS_RDONLY;
    }
    if settings.noexec {
        flags |= libc::MS_NOEXEC;
    }
    let mounted = call_mount(&settings.source, &settings.mountpoint, flags, &data);
    mounted.map_err(|source| FuseError::Mount {
        path: settings.mountpoint.clone(),
        source,
    })?;
    Ok(device.into())
}

fn call_mount(source: &Path, target: &Path, flags: libc::c_ulong, data: &str) -> io::Result<()> {
    let source = CString::new(source.as_os_str().as_bytes())?;
    let target = CString::new(target.as_os_str().as_bytes())?;
    let fs_type = CString::new(FS_TYPE)?;
    let data = CString::new(data)?;
    // SAFETY: four valid strings.
    let done = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            fs_type.as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// fusermount3 mounts and sends the descriptor over a socket.
fn mount_by_helper(settings: &Settings) -> Result<OwnedFd, FuseError> {
    let failed = |source| FuseError::Mount {
        path: settings.mountpoint.clone(),
        source,
    };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let socket = theirs.as_raw_fd();
    let mut helper = Command::new(HELPER);
    helper
        .arg("-o")
        .arg(helper_options(settings))
        .arg("--")
        .arg(&settings.mountpoint)
        .env("_FUSE_COMMFD", socket.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: fcntl is async-signal-safe, and the descriptor is open until the child has been started.
    unsafe {
        helper.pre_exec(move || match libc::fcntl(socket, libc::F_SETFD, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut child = helper.spawn().map_err(FuseError::NoHelper)?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said).map_err(failed)?;
    }
    child.wait().map_err(failed)?;
    match received.map_err(failed)? {
        Some(device) => Ok(device),
        None => Err(FuseError::Helper(said.trim().to_owned())),
    }
}

fn helper_options(settings: &Settings) -> OsString {
    let mut options = OsString::from("default_permissions,nosuid,nodev,subtype=deltafs");
    for (wanted, option) in [
        (settings.read_only, ",ro"),
        (settings.noexec, ",noexec"),
        (settings.allow_other, ",allow_other"),
    ] {
        if wanted {
            options.push(option);
        }
    }
    options.push(",fsname=");
    // Within a value, fusermount3 wants commas and backslashes escaped.
    let mut name = Vec::new();
    for &byte in settings.source.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            name.push(b'\\');
        }
        name.push(byte);
    }
    options.push(std::ffi::OsStr::from_bytes(&name));
    options
}

/// The descriptor sent by the helper; `None` when it ended without one.
fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    // Room for one control message with one descriptor, aligned as its header.
    let mut control = [0_u64; 8];
    let mut byte = [0_u8; 1];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: byte.len(),
    };
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = mem::size_of_val(&control) as _;
    // SAFETY: the message points to buffers that outlive the call.
    let received =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    match received {
        -1 => return Err(io::Error::last_os_error()),
        0 => return Ok(None),
        _ => {}
    }
    // SAFETY: the kernel has filled the control buffer, and the header is checked before the data is read. The
    // descriptor is new and nobody else's.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null()
            || (*header).cmsg_level != libc::SOL_SOCKET
            || (*header).cmsg_type != libc::SCM_RIGHTS
        {
            return Ok(None);
        }
        let fd: i32 = ptr::read_unaligned(libc::CMSG_DATA(header).cast());
        Ok(Some(OwnedFd::from_raw_fd(fd)))
    }
}

/// Whether each thread can have a descriptor of its own.
pub(super) fn device_can_be_opened() -> bool {
    open_device().is_ok()
}

fn open_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

fn ids() -> (u32, u32) {
    // SAFETY: these calls cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::settings::{TableFeatures, TransactionLimits};

    #[test]
    fn the_helper_gets_an_escaped_source() {
        let settings = Settings {
            source: PathBuf::from("/a,b\\c"),
            mountpoint: PathBuf::from("/m"),
            read_only: true,
            allow_other: false,
            noexec: false,
            uid: None,
            gid: None,
            umask: None,
            file_mode: None,
            dir_mode: None,
            list_control: false,
            stage_dir: None,
            cache_dir: None,
            refresh: Settings::REFRESH,
            passthrough: true,
            table_features: TableFeatures::Default,
            transactions: TransactionLimits::default(),
        };
        assert_eq!(
            helper_options(&settings),
            "default_permissions,nosuid,nodev,subtype=deltafs,ro,fsname=/a\\,b\\\\c"
        );
    }

    #[test]
    fn a_helper_that_ends_without_a_descriptor_is_noticed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(receive_descriptor(&ours).unwrap().is_none());
    }
}
