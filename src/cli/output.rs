//! The only place that prints.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;

use super::CliError;

/// One line for the user. A reader that has gone away is no error.
pub(super) fn line(text: &str) {
    drop(writeln!(io::stdout().lock(), "{text}"));
}

/// Text as it is. A reader that has gone away is no error.
pub(super) fn text(text: &str) {
    drop(io::stdout().lock().write_all(text.as_bytes()));
}

/// Standard output for many bytes, without the line buffer of [`io::stdout`].
pub(super) fn bytes() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

/// What went wrong, and the way out.
pub(super) fn error(error: &CliError) {
    let mut stderr = io::stderr().lock();
    drop(writeln!(stderr, "deltafs: {}", error.message));
    if let Some(hint) = &error.hint {
        drop(writeln!(stderr, "hint: {hint}"));
    }
}
