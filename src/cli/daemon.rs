//! Going into the background without lying: the command ends when the mount can be used, or says why it cannot.

use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use super::CliError;

const READY: &[u8] = b"ready";
/// Between message and hint of a failure. Neither has one.
const SEPARATOR: u8 = 0;

/// Which of the two processes this is.
pub(super) enum Side {
    Parent(Parent),
    Child(Reporter),
}

/// The process that the user called.
pub(super) struct Parent {
    child: libc::pid_t,
    pipe: PipeReader,
}

/// Tells the parent how it went. Dropped without a word, as in a crash, it counts as a failure.
pub(super) struct Reporter(Option<PipeWriter>);

/// Splits the process. The child is the leader of its own session, in `/`, without standard streams and without the
/// descriptors of whoever called us (a lock, say, that would be held for as long as the mount).
///
/// Call it before there are threads and open files: only the calling thread lives on in the child.
///
/// # Errors
/// When there is no pipe or no process to be had.
pub(super) fn split() -> io::Result<Side> {
    // Closed on exec, or a helper program that outlives us would keep the parent waiting.
    let (reader, writer) = io::pipe()?;
    // SAFETY: the process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reader);
            // SAFETY: cannot fail in a new process.
            unsafe { libc::setsid() };
            close_inherited(&writer);
            std::env::set_current_dir(Path::new("/"))?;
            discard_standard_streams()?;
            Ok(Side::Child(Reporter(Some(writer))))
        }
        child => Ok(Side::Parent(Parent {
            child,
            pipe: reader,
        })),
    }
}

impl Parent {
    /// Waits for the child's report.
    pub(super) fn wait(mut self) -> Result<(), CliError> {
        let mut report = Vec::new();
        self.pipe
            .read_to_end(&mut report)
            .map_err(|error| CliError::new(format!("waiting for the daemon: {error}")))?;
        understand(&report).unwrap_or_else(|| Err(self.obituary()))
    }

    fn obituary(&self) -> CliError {
        let mut status = 0;
        // SAFETY: our own child, a valid pointer.
        unsafe { libc::waitpid(self.child, &raw mut status, 0) };
        let how = if libc::WIFSIGNALED(status) {
            format!("killed by signal {}", libc::WTERMSIG(status))
        } else {
            format!("exit status {}", libc::WEXITSTATUS(status))
        };
        CliError::new(format!(
            "the daemon ended before the mount could be used ({how})"
        ))
        .hint("run it with -f to see its log")
    }
}

impl Reporter {
    /// For the foreground: there is nobody to tell.
    pub(super) fn nobody() -> Self {
        Reporter(None)
    }

    /// # Errors
    /// When the parent has been killed: its caller takes that for a failure.
    pub(super) fn ready(self) -> io::Result<()> {
        self.send(READY)
    }

    pub(super) fn failed(self, error: &CliError) {
        drop(self.send(&put(error)));
    }

    fn send(self, report: &[u8]) -> io::Result<()> {
        match self.0 {
            Some(mut pipe) => pipe.write_all(report),
            None => Ok(()),
        }
    }
}

fn put(error: &CliError) -> Vec<u8> {
    let mut report = error.message.clone().into_bytes();
    if let Some(hint) = &error.hint {
        report.push(SEPARATOR);
        report.extend_from_slice(hint.as_bytes());
    }
    report
}

/// `None`: no report.
fn understand(report: &[u8]) -> Option<Result<(), CliError>> {
    if report == READY {
        return Some(Ok(()));
    }
    let mut parts = report.splitn(2, |byte| *byte == SEPARATOR);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let message = parts.next().filter(|message| !message.is_empty())?;
    Some(Err(CliError {
        message: text(message),
        hint: parts.next().map(text),
    }))
}

fn close_inherited(keep: &PipeWriter) {
    let Ok(keep) = libc::c_uint::try_from(keep.as_raw_fd()) else {
        return;
    };
    // SAFETY: nothing of ours is open but the pipe.
    unsafe {
        if keep > 3 {
            libc::close_range(3, keep - 1, 0);
        }
        libc::close_range(keep + 1, libc::c_uint::MAX, 0);
    }
}

fn discard_standard_streams() -> io::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    for stream in 0..=2 {
        // SAFETY: both descriptors are open.
        if unsafe { libc::dup2(null.as_raw_fd(), stream) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Every open file takes a descriptor here, so take what can be had.
pub(super) fn raise_descriptor_limit() {
    let enough = std::fs::read_to_string("/proc/sys/fs/nr_open")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1 << 20);
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid structure, read after it has been filled. The first setting takes a privilege, the second none.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == -1 {
            return;
        }
        let high = libc::rlimit {
            rlim_cur: enough,
            rlim_max: enough,
        };
        if enough <= limit.rlim_max || libc::setrlimit(libc::RLIMIT_NOFILE, &raw const high) == -1 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_pipe() {
        assert_eq!(understand(READY), Some(Ok(())));
        for error in [
            CliError::new("no such directory"),
            CliError::new("busy").hint("wait\nand try again"),
        ] {
            assert_eq!(understand(&put(&error)), Some(Err(error)));
        }
    }

    #[test]
    fn silence_is_no_report() {
        assert_eq!(understand(b""), None);
    }
}
