//! The command line: what the user says becomes settings, what comes of it becomes an exit status.

mod cat;
mod daemon;
mod files;
mod log;
mod mount;
mod options;
mod output;
mod status;
mod umount;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, io};

use clap::{Parser, Subcommand};
use tokio::runtime::Handle;

use crate::env::Env;
use crate::error::Failure;
use crate::fs::FileSystem;
use crate::settings::Settings;

/// Under this name the program takes the arguments of a helper of mount(8).
const HELPER_NAME: &str = "mount.deltafs";
/// Exit status of a mount helper: "mount failure".
const HELPER_FAILURE: u8 = 32;

const EXIT_CODES: &str = "\
Exit status:
  0   done; for `mount`: the mount can be used; for `status`: mounts were found and all of them answer
  1   failed: the reason, and a hint if there is one, are on standard error
  2   wrong usage
  32  failed, when called as the helper `mount.deltafs` by mount(8)

Environment:
  DELTAFS_LOG  what to log, as in RUST_LOG: `info` (the default), `debug`, `deltafs::fuse=debug`, …";

/// A transactional file system over Delta Lake tables.
#[derive(Debug, Parser)]
#[command(name = "deltafs", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Mount a warehouse of tables, or one table, on a directory.
    #[command(after_help = EXIT_CODES)]
    Mount(mount::MountArgs),
    /// Unmount, and wait until everything is on disk.
    #[command(visible_alias = "unmount", after_help = EXIT_CODES)]
    Umount(umount::UmountArgs),
    /// List the mounts of deltafs and whether they answer.
    #[command(after_help = EXIT_CODES)]
    Status(status::StatusArgs),
    /// List the live data files of a table, or those that a predicate keeps.
    Files(files::FilesArgs),
    /// Write the rows of a table to standard output.
    #[command(after_help = cat::FORMATS)]
    Cat(cat::CatArgs),
}

/// Why a command failed, in words for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    pub message: String,
    pub hint: Option<String>,
}

impl CliError {
    fn new(message: impl Into<String>) -> Self {
        CliError {
            message: message.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl<E: Failure> From<E> for CliError {
    fn from(error: E) -> Self {
        CliError {
            message: error.to_string(),
            hint: error.hint(),
        }
    }
}

impl From<String> for CliError {
    fn from(message: String) -> Self {
        CliError::new(message)
    }
}

/// Runs the command that the process was called for. `make_fs` opens the file system of a mount; it runs in the
/// daemon, inside of the runtime whose handle it gets.
pub fn run<F, E>(make_fs: impl FnOnce(&Settings, Env, Handle) -> Result<F, E>) -> ExitCode
where
    F: FileSystem,
    E: Into<CliError>,
{
    let arguments: Vec<OsString> = env::args_os().collect();
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    let (result, failure) = if called.is_some_and(|name| name == HELPER_NAME) {
        let parsed = mount::HelperArgs::try_parse_from(&arguments);
        let run = |args: mount::HelperArgs| mount::run_helper(args, make_fs);
        (parsed.map(run), HELPER_FAILURE)
    } else {
        let run = |cli: Cli| match cli.command {
            Command::Mount(args) => mount::run(args, make_fs),
            Command::Umount(args) => umount::run(&args),
            Command::Status(args) => status::run(&args),
            Command::Files(args) => files::run(&args, &Env::real()),
            Command::Cat(args) => cat::run(&args),
        };
        (Cli::try_parse_from(&arguments).map(run), 1)
    };
    match result {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            output::error(&error);
            ExitCode::from(failure)
        }
        Err(usage) => {
            // Help and version come here too, with status 0.
            drop(usage.print());
            ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2))
        }
    }
}

/// A path without symbolic links. Works for the mountpoint of a dead mount, which answers nothing.
fn locate(path: &Path) -> Result<PathBuf, CliError> {
    let failed = |error: io::Error| CliError::new(format!("{}: {}", path.display(), plain(&error)));
    let error = match path.canonicalize() {
        Ok(path) => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(failed(error)),
        Err(error) => error,
    };
    let whole = std::path::absolute(path).map_err(failed)?;
    match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize().map_err(failed)?.join(name)),
        _ => Err(failed(error)),
    }
}

/// The text of an operating system error without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
        mount::HelperArgs::command().debug_assert();
    }

    #[test]
    fn system_errors_are_shown_without_numbers() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(plain(&error), "No such file or directory");
    }

    #[test]
    fn located_paths_have_no_links_and_no_dots() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        let found = locate(&dir.path().join("real/../link")).unwrap();
        assert_eq!(found, real.canonicalize().unwrap());
        assert!(locate(&dir.path().join("absent")).is_err());
    }
}
