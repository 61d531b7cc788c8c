//! A mount under test: started, watched, and gone when the case ends, whatever state it is in.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::case::{Live, poll};

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The binary under test.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("DELTAFS_BIN") {
        Some(binary) => fs::canonicalize(&binary).unwrap_or_else(|_| PathBuf::from(binary)),
        None => std::env::current_exe().unwrap().with_file_name("deltafs"),
    })
}

/// Checks what every case needs, and gives the watchdog its means to abort connections.
pub(crate) fn prepare() -> Result<(), String> {
    let binary = binary();
    if !binary.is_file() {
        return Err(format!(
            "{} is missing: build it with `cargo build`, or set DELTAFS_BIN",
            binary.display()
        ));
    }
    if !Path::new("/dev/fuse").exists() {
        return Err("/dev/fuse is missing: the kernel's fuse module is not there".to_owned());
    }
    let empty = fs::read_dir(CONNECTIONS).map_or(true, |mut dir| dir.next().is_none());
    if empty && device(Path::new(CONNECTIONS)).is_none() {
        let _ = Command::new("mount")
            .args(["-t", "fusectl", "none", CONNECTIONS])
            .output();
    }
    Ok(())
}

/// The mounted directories and their devices (`major:minor`), in the order of mounting. Never touches them.
fn mounts() -> Vec<(PathBuf, String)> {
    let table = fs::read("/proc/self/mountinfo").unwrap();
    let lines = table.split(|b| *b == b'\n');
    lines
        .filter_map(|line| {
            let mut fields = line.split(|b| *b == b' ').skip(2);
            let device = String::from_utf8_lossy(fields.next()?).into_owned();
            let path = unescaped(fields.nth(1)?);
            Some((PathBuf::from(OsStr::from_bytes(&path)), device))
        })
        .collect()
}

/// Undoes the `\040` of mountinfo.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        let code = octal.and_then(|d| u8::from_str_radix(d, 8).ok());
        match (first, code) {
            (b'\\', Some(code)) => {
                out.push(code);
                rest = &tail[3..];
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// The device on top of a mountpoint.
pub(crate) fn device(mountpoint: &Path) -> Option<String> {
    let mounts = mounts();
    let found = mounts
        .into_iter()
        .rev()
        .find(|(path, _)| path == mountpoint);
    found.map(|(_, device)| device)
}

/// What is mounted below a directory, the innermost first.
pub(crate) fn below(dir: &Path) -> Vec<PathBuf> {
    let mounts = mounts().into_iter().rev();
    mounts
        .map(|(path, _)| path)
        .filter(|path| path.starts_with(dir))
        .collect()
}

/// Ends a FUSE connection: every request that waits for it fails.
pub(crate) fn abort(device: &str) {
    if let Some((_, minor)) = device.split_once(':') {
        let _ = fs::write(format!("{CONNECTIONS}/{minor}/abort"), "1");
    }
}

/// Takes the topmost mount off a directory, now.
pub(crate) fn detach(mountpoint: &Path) {
    if let Ok(path) = CString::new(mountpoint.as_os_str().as_bytes()) {
        // SAFETY: `path` is a NUL-terminated string that lives through the call.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// The daemons that serve a mountpoint, found by their command line.
pub(crate) fn daemons(mountpoint: &Path) -> Vec<i32> {
    let mountpoint = mountpoint.as_os_str().as_bytes();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            // By `comm` first: the command line of a process that hangs in exec can't be read.
            let name = fs::read(entry.path().join("comm")).ok()?;
            if name.trim_ascii() != b"deltafs" {
                return None;
            }
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
            let serves = words.contains(&b"mount".as_slice()) && words.contains(&mountpoint);
            (serves && !is_zombie(pid)).then_some(pid)
        })
        .collect()
}

fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| rest.starts_with('Z'))
}

/// Where the threads of a process are: what the kernel waits for, and what a debugger sees of our code.
pub(crate) fn stacks(pid: i32) -> String {
    let mut said = String::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (name, waits) = (read("comm"), read("wchan"));
        said += &format!("  {} in {waits}\n", name.trim());
    }
    // Not by `exe` or `cmdline`: those of a process that hangs in exec can't be read.
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim() != "deltafs" {
        return said;
    }
    // A thread that is stuck in the kernel can't be stopped for the debugger.
    let debugger = Command::new("timeout")
        .args([
            "-k",
            "1",
            "20",
            "gdb",
            "-batch",
            "-ex",
            "thread apply all bt 40",
            "-p",
        ])
        .arg(pid.to_string())
        .stdin(Stdio::null())
        .output();
    let trace = debugger.map(|output| output.stdout).unwrap_or_default();
    for line in String::from_utf8_lossy(&trace).lines() {
        if line.starts_with("Thread ") || line.contains(" at src/") {
            said += &format!("  {line}\n");
        }
    }
    said
}

/// Kills what still serves a mountpoint below a directory.
pub(crate) fn kill_daemons_below(dir: &Path) {
    for mountpoint in below(dir) {
        for pid in daemons(&mountpoint) {
            // SAFETY: kill takes no pointers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: i32, signal: i32) {
    // SAFETY: kill takes no pointers.
    let sent = unsafe { libc::kill(pid, signal) };
    assert_eq!(sent, 0, "cannot signal process {pid}");
}

/// One `deltafs mount`. Dropping it ends the daemon and the mount the hard way.
#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) path: PathBuf,
    pub(crate) log: PathBuf,
    pid: i32,
}

impl Mount {
    #[track_caller]
    pub(crate) fn start(
        live: &Arc<Live>,
        source: &str,
        mountpoint: &Path,
        arguments: &[&str],
        log: PathBuf,
    ) -> Self {
        // A dead mount answers ENOTCONN, and is to be mounted over.
        if device(mountpoint).is_none() {
            fs::create_dir_all(mountpoint).unwrap();
        }
        live.mounted(mountpoint);
        // What the command says and what the daemon logs, in one file.
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let mut command = Command::new(binary());
        command
            .args(["mount", "--log-file"])
            .arg(&log)
            .args(arguments)
            .arg(source)
            .arg(mountpoint)
            .env("RUST_BACKTRACE", "1")
            .env("DELTAFS_LOG", "info,deltafs=debug")
            // Nothing may depend on the host's zone.
            .env("TZ", "America/New_York")
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .process_group(0);
        let mut child = command.spawn().unwrap();
        let group = child.id().cast_signed();
        live.started(group);
        let status = child.wait().unwrap();
        live.ended(group);
        assert!(
            status.success(),
            "`deltafs mount {}` ended with {status}",
            arguments.join(" ")
        );
        assert!(
            device(mountpoint).is_some(),
            "`deltafs mount` succeeded, but nothing is mounted at {}",
            mountpoint.display()
        );
        let pid = daemons(mountpoint).last().copied();
        let pid =
            pid.expect("no process `deltafs mount … MOUNTPOINT` runs though the mount is there");
        live.started(pid);
        Mount {
            path: mountpoint.to_owned(),
            log,
            pid,
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn is_mounted(&self) -> bool {
        device(&self.path).is_some()
    }

    pub(crate) fn is_running(&self) -> bool {
        Path::new(&format!("/proc/{}", self.pid)).exists() && !is_zombie(self.pid)
    }

    /// `deltafs umount`, which must succeed and leave neither mount nor daemon.
    #[track_caller]
    pub(crate) fn umount(self) {
        let output = Command::new(binary())
            .arg("umount")
            .arg(&self.path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "`deltafs umount` failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!self.is_mounted(), "still mounted after `deltafs umount`");
        let gone = poll(Duration::from_secs(10), || !self.is_running());
        assert!(gone, "the daemon still runs 10 s after `deltafs umount`");
    }

    /// Kills the daemon with -9 and waits until it is gone. The dead mount stays.
    pub(crate) fn kill(&self) {
        signal(self.pid, libc::SIGKILL);
        assert!(
            poll(Duration::from_secs(10), || !self.is_running()),
            "the daemon survives SIGKILL"
        );
    }

    /// A number of kB from the daemon's /proc/PID/status, such as `VmHWM`.
    pub(crate) fn memory_kb(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|l| l.starts_with(field)).unwrap();
        let number = line.split_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }

    /// What the daemon itself has written to disks so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        let io = fs::read_to_string(format!("/proc/{}/io", self.pid)).unwrap();
        let line = io.lines().find(|l| l.starts_with("write_bytes")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// What a failed case left in the control files, into the log that is printed.
    fn note_last(&self) {
        let script = "cd \"$0\" && for t in . * */*; do f=$t/.delta/last; [ -s \"$f\" ] && echo \"--- $f\" && cat \"$f\"; \
                      for r in \"$t\"/.delta/rejected/*.reason; do [ -s \"$r\" ] && echo \"--- $r\" && cat \"$r\"; done; done";
        let Ok(log) = File::options().append(true).open(&self.log) else {
            return;
        };
        let _ = Command::new("timeout")
            .args(["-k", "1", "3", "bash", "-c", script])
            .arg(&self.path)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .status();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() && self.is_running() {
            self.note_last();
        }
        while let Some(device) = device(&self.path) {
            abort(&device);
            detach(&self.path);
        }
        if self.is_running() {
            // SAFETY: kill takes no pointers.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
    }
}
