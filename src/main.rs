//! The `deltafs` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    deltafs::cli::run(deltafs::fs::Fs::new)
}
