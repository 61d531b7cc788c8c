//! Where the daemon's log goes.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::panic;

use tracing::error;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

const VARIABLE: &str = "DELTAFS_LOG";

/// Starts to log for a command that runs once: what the user should know, on standard error.
pub(super) fn start_for_command() {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new("warn"));
    let builder = fmt().with_env_filter(filter).with_target(false);
    let colours = io::stderr().is_terminal();
    let builder = builder.without_time().with_ansi(colours);
    drop(builder.with_writer(io::stderr).try_init());
    panic::set_hook(Box::new(|panic| error!("{panic}")));
}

/// Starts to log: into a file, else to standard error in the foreground, else nowhere.
pub(super) fn start(file: Option<File>, foreground: bool) {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = fmt().with_env_filter(filter).with_target(false);
    // A second start, as in tests, changes nothing.
    match file {
        Some(file) => drop(builder.with_ansi(false).with_writer(file).try_init()),
        None if foreground => {
            let colours = io::stderr().is_terminal();
            drop(
                builder
                    .with_ansi(colours)
                    .with_writer(io::stderr)
                    .try_init(),
            );
        }
        None => {}
    }
    panic::set_hook(Box::new(|panic| error!("{panic}")));
}
