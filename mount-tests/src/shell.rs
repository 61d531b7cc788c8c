//! Programs that a case runs: in a process group of their own, with their output and status.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::case::Cx;
use crate::mount;

/// The texts of the errors that matter, as every tool prints them.
pub(crate) const EBUSY: &str = "Device or resource busy";
pub(crate) const EIO: &str = "Input/output error";
pub(crate) const EINVAL: &str = "Invalid argument";
pub(crate) const ENAMETOOLONG: &str = "File name too long";
pub(crate) const ENOENT: &str = "No such file or directory";
pub(crate) const ENOSPC: &str = "No space left on device";
pub(crate) const ENOTCONN: &str = "Transport endpoint is not connected";
pub(crate) const ENOTEMPTY: &str = "Directory not empty";
pub(crate) const EOPNOTSUPP: &str = "Operation not supported";
pub(crate) const EPERM: &str = "Operation not permitted";
pub(crate) const EROFS: &str = "Read-only file system";

/// What a program did.
#[derive(Debug)]
pub(crate) struct Ran {
    what: String,
    /// The exit status; 128 + the signal that killed it.
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// It succeeded: its standard output.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert!(self.status == 0, "failed: {self}");
        self.out
    }

    /// It failed and said `text` on standard error, which is returned.
    #[track_caller]
    pub(crate) fn fails(self, text: &str) -> String {
        assert!(self.status != 0, "should fail with `{text}`: {self}");
        assert!(self.status != 124, "timed out: {self}");
        assert!(self.err.contains(text), "should say `{text}`: {self}");
        self.err
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.status == 0
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "\n$ {}\nstatus {}\nstdout: {}\nstderr: {}",
            self.what.trim(),
            self.status,
            shortened(&self.out),
            shortened(&self.err)
        )
    }
}

fn shortened(text: &str) -> String {
    let text = text.trim_end();
    if text.chars().count() <= 2000 {
        return text.to_owned();
    }
    text.chars().take(2000).chain("…".chars()).collect()
}

/// A command with the environment of the cases.
pub(crate) fn command(dir: &Path, program: &str) -> Command {
    let binary = mount::binary();
    let path = format!(
        "{}:{}",
        binary.parent().unwrap().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut command = Command::new(program);
    command
        .current_dir(dir)
        .env("PATH", path)
        .env("PY", python())
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "Europe/Rome")
        .stdin(Stdio::null())
        .process_group(0);
    command
}

/// Runs a program to its end.
pub(crate) fn run(cx: &Cx, program: &str, arguments: &[&str]) -> Ran {
    let mut command = command(&cx.dir, program);
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|e| panic!("{program}: {e}"));
    let group = child.id().cast_signed();
    cx.live().started(group);
    let output = child.wait_with_output().unwrap();
    cx.live().ended(group);
    let what = match (program, arguments) {
        ("bash", ["-c", script]) => script.trim_start_matches("set -euo pipefail\n").to_owned(),
        _ => format!("{program} {}", arguments.join(" ")),
    };
    let status = output.status;
    Ran {
        what,
        status: status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Whether a program is in the PATH.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The python to test with.
pub(crate) fn python() -> String {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON
        .get_or_init(|| {
            if let Ok(python) = std::env::var("DELTAFS_TEST_PYTHON") {
                return python;
            }
            let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
            let peers = home.join(".peers/a/bin/python");
            if peers.exists() {
                peers.display().to_string()
            } else {
                "python3".to_owned()
            }
        })
        .clone()
}

pub(crate) fn has_module(python: &str, module: &str) -> bool {
    Command::new(python)
        .args(["-c", &format!("import {module}")])
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success())
}
