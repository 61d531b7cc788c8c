//! `deltafs umount`

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{CliError, locate, plain};
use crate::fuse::{Health, MountEntry, detach_path, lazily_detach_path};

/// How long the daemon may take to settle after it has been unmounted.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(super) struct UmountArgs {
    mountpoint: PathBuf,
    /// Take it away at once, also when it is in use; the daemon ends with the last open file.
    #[arg(short = 'l', long)]
    lazy: bool,
}

pub(super) fn run(args: &UmountArgs) -> Result<(), CliError> {
    let path = locate(&args.mountpoint)?;
    let shown = path.display();
    let failed = |error: io::Error| {
        let text = CliError::new(format!("{shown}: {}", plain(&error)));
        if error.kind() == io::ErrorKind::ResourceBusy {
            text.hint(format!(
                "`fuser -vm {shown}` shows who uses it; --lazy does not wait for them"
            ))
        } else {
            text
        }
    };
    let entry = MountEntry::at(&path)
        .map_err(failed)?
        .filter(MountEntry::is_deltafs)
        .ok_or_else(|| CliError::new(format!("{shown} is not a mount of deltafs")))?;
    if args.lazy || entry.health() == Health::Dead {
        return lazily_detach_path(&path).map_err(failed);
    }
    // While it is mounted: afterwards nothing connects the two.
    let daemon = entry.daemon_pid().and_then(Daemon::open);
    detach_path(&path).map_err(failed)?;
    match daemon {
        Some(daemon) if !daemon.ends_within(SETTLE_TIMEOUT) => Err(CliError::new(format!(
            "{shown} is unmounted, but its daemon has not ended yet"
        ))),
        _ => Ok(()),
    }
}

/// The process behind a mount; not a child of ours.
struct Daemon(OwnedFd);

impl Daemon {
    fn open(pid: u32) -> Option<Self> {
        // SAFETY: no pointers; the new descriptor is nobody else's.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
            Some(Daemon(OwnedFd::from_raw_fd(fd)))
        }
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one valid structure.
        unsafe { libc::poll(&raw mut poll, 1, millis) == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_process_is_seen_and_a_running_one_is_not() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let daemon = Daemon::open(child.id()).unwrap();
        assert!(!daemon.ends_within(Duration::ZERO));
        drop(child.stdin.take());
        assert!(daemon.ends_within(Duration::from_secs(10)));
        child.wait().unwrap();
    }
}
