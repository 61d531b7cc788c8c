//! What is mounted, as the kernel tells it.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The type under which our mounts appear.
pub(super) const FS_TYPE: &str = "fuse.deltafs";

/// How long a mount may take to answer before it counts as silent.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Major and minor device number: one for each mounted file system, also when it appears in several places.
    pub device: (u32, u32),
    pub mountpoint: PathBuf,
    pub fs_type: String,
    pub source: PathBuf,
}

/// Whether a mount answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Alive,
    /// Its daemon is gone: the connection has been cut.
    Dead,
    /// No answer in time.
    Silent,
}

/// All mounts, later ones cover earlier ones.
///
/// # Errors
/// When `/proc` is not there.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|b| *b == b'\n').filter_map(parse).collect())
}

impl MountEntry {
    /// What is visible at a path, if the path is a mount point.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        Ok(mounts()?.into_iter().rev().find(|m| m.mountpoint == path))
    }

    pub fn is_deltafs(&self) -> bool {
        self.fs_type == FS_TYPE
    }

    /// Asks for an answer that the kernel cannot give by itself.
    pub fn health(&self) -> Health {
        let (answer, answered) = mpsc::channel();
        let path = self.mountpoint.clone();
        // A thread, because a request to a hung daemon cannot be given up.
        let asked = thread::Builder::new()
            .name("probe".to_owned())
            .spawn(move || drop(answer.send(statfs(&path))));
        if asked.is_err() {
            return Health::Silent;
        }
        match answered.recv_timeout(PROBE_TIMEOUT) {
            Ok(Err(error))
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOTCONN | libc::ECONNABORTED)
                ) =>
            {
                Health::Dead
            }
            // Even a refusal is an answer.
            Ok(_) => Health::Alive,
            Err(_) => Health::Silent,
        }
    }

    /// The process that holds the mount's connection, if this process may see it.
    pub fn daemon_pid(&self) -> Option<u32> {
        let wanted = format!("fuse_connection:\t{}", self.device.1);
        fs::read_dir("/proc")
            .ok()?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .find(|pid| serves(*pid, &wanted))
    }
}

fn serves(pid: u32, wanted: &str) -> bool {
    // Only our own kind: to look at the descriptors of a process in the middle of exec may wait for its end.
    let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
    if !comm.is_ok_and(|name| name.starts_with("deltafs") || name.starts_with("mount.deltafs")) {
        return false;
    }
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    descriptors.flatten().any(|fd| {
        fs::read_link(fd.path()).is_ok_and(|target| target == Path::new("/dev/fuse"))
            && fs::read_to_string(Path::new(&format!("/proc/{pid}/fdinfo")).join(fd.file_name()))
                .is_ok_and(|info| info.lines().any(|line| line == wanted))
    })
}

/// statfs(2): the kernel passes it on to the daemon every time.
fn statfs(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut figures = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: both pointers are valid for the call, and what is written is not read.
    match unsafe { libc::statfs(path.as_ptr(), figures.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `36 35 0:42 / /mnt/a\040b rw,nosuid shared:1 - fuse.deltafs /w rw,user_id=0`
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|b| *b == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let mountpoint = unescape(fields.nth(1)?);
    // Optional fields end with a dash of their own.
    fields.find(|field| *field == b"-")?;
    Some(MountEntry {
        device: (major.parse().ok()?, minor.parse().ok()?),
        mountpoint,
        fs_type: String::from_utf8_lossy(fields.next()?).into_owned(),
        source: unescape(fields.next()?),
    })
}

/// Blanks, tabs, newlines and backslashes are written as three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_with_and_without_optional_fields() {
        let line =
            br"36 35 0:42 / /mnt/a\040b\134c rw,nosuid shared:1 master:2 - fuse.deltafs /w\011x rw";
        let entry = parse(line).unwrap();
        assert_eq!(entry.device, (0, 42));
        assert_eq!(entry.mountpoint, Path::new("/mnt/a b\\c"));
        assert_eq!(entry.source, Path::new("/w\tx"));
        assert!(entry.is_deltafs());
        let plain = parse(b"22 1 8:1 / / rw - ext4 /dev/sda1 rw").unwrap();
        assert_eq!(
            (plain.mountpoint.as_path(), plain.is_deltafs()),
            (Path::new("/"), false)
        );
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn the_root_is_a_mount_point_that_answers() {
        let root = MountEntry::at(Path::new("/")).unwrap().unwrap();
        assert_eq!(root.health(), Health::Alive);
        assert!(
            MountEntry::at(Path::new("/no/such/mountpoint"))
                .unwrap()
                .is_none()
        );
    }
}
