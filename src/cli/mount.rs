//! `deltafs mount` and `mount.deltafs`: check, go into the background, serve.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::{ArgAction, Args, Parser};
use tokio::runtime::{self, Handle, Runtime};
use tracing::{error, info};

use super::daemon::{Reporter, Side, raise_descriptor_limit, split};
use super::options::{Options, parse};
use super::{CliError, locate, log, plain};
use crate::env::Env;
use crate::fs::FileSystem;
use crate::fuse::{Health, MountEntry, Mounted, lazily_detach_path};
use crate::settings::{Settings, TableFeatures, TransactionLimits};
use crate::store::parse_source;

/// Threads of the I/O runtime, at least.
const MIN_IO_THREADS: usize = 4;
/// How long blocking calls may go on after the end.
const RUNTIME_SHUTDOWN: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(super) struct MountArgs {
    /// Directory or file:// URL: a warehouse of tables, or one table.
    source: OsString,
    /// Directory that shows it.
    mountpoint: PathBuf,
    /// Stay in the foreground and log to standard error.
    #[arg(short, long)]
    foreground: bool,
    /// Options of mount(8): ro, allow_other, noexec, uid=N, gid=N, umask=OCTAL, fmode=OCTAL, dmode=OCTAL, and every
    /// option below with an underscore (list_control, refresh=500, …).
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Show the control directory `.delta` in listings.
    #[arg(long)]
    list_control: bool,
    /// Where written files wait for their commit; fastest on the source's file system.
    #[arg(long, value_name = "DIR")]
    stage_dir: Option<PathBuf>,
    /// Where rebuilt data files will be kept; this version rebuilds none.
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// How late the commits of others may be seen, in milliseconds [default: 1000].
    #[arg(long, value_name = "MS")]
    refresh: Option<u64>,
    /// Never let the kernel read and write local files by itself.
    #[arg(long)]
    no_passthrough: bool,
    /// Table features of new tables [default: default].
    #[arg(long, value_enum)]
    table_features: Option<TableFeatures>,
    /// Append the log to this file.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Abort transactions that were left alone for so long, in seconds [default: 3600].
    #[arg(long, value_name = "S")]
    transaction_idle: Option<u64>,
    /// How many transactions may be open at a time [default: 64].
    #[arg(long, value_name = "N")]
    transactions: Option<usize>,
    /// How many files a transaction may add, change and remove [default: 100000].
    #[arg(long, value_name = "N")]
    transaction_files: Option<usize>,
}

/// The arguments that mount(8) gives its helpers.
#[derive(Debug, Parser)]
#[command(name = "mount.deltafs", version)]
pub(super) struct HelperArgs {
    source: OsString,
    mountpoint: PathBuf,
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Check everything, mount nothing.
    #[arg(short = 'f')]
    fake: bool,
    /// Pass over unknown options.
    #[arg(short = 's')]
    sloppy: bool,
    /// Accepted: there is nothing more to say.
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Accepted: there is no mtab to be written.
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Accepted: type and subtype.
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
}

/// What to mount and how, before anything has been looked at.
struct Request {
    source: OsString,
    mountpoint: PathBuf,
    options: Options,
    foreground: bool,
    fake: bool,
}

/// `deltafs mount`
pub(super) fn run<F: FileSystem, E: Into<CliError>>(
    args: MountArgs,
    make_fs: impl FnOnce(&Settings, Env, Handle) -> Result<F, E>,
) -> Result<(), CliError> {
    let mut options = Options::default();
    for list in &args.options {
        parse(list, false, &mut options).map_err(refused_option)?;
    }
    // A flag has the last word.
    let flags = Options {
        list_control: options.list_control || args.list_control,
        no_passthrough: options.no_passthrough || args.no_passthrough,
        refresh: args.refresh.map(Duration::from_millis).or(options.refresh),
        stage_dir: args.stage_dir.or(options.stage_dir),
        cache_dir: args.cache_dir.or(options.cache_dir),
        log_file: args.log_file.or(options.log_file),
        table_features: args.table_features.or(options.table_features),
        transaction_idle: args
            .transaction_idle
            .map(Duration::from_secs)
            .or(options.transaction_idle),
        transactions: args.transactions.or(options.transactions),
        transaction_files: args.transaction_files.or(options.transaction_files),
        ..options
    };
    let request = Request {
        source: args.source,
        mountpoint: args.mountpoint,
        options: flags,
        foreground: args.foreground,
        fake: false,
    };
    mount(request, make_fs)
}

/// `mount.deltafs`
pub(super) fn run_helper<F: FileSystem, E: Into<CliError>>(
    args: HelperArgs,
    make_fs: impl FnOnce(&Settings, Env, Handle) -> Result<F, E>,
) -> Result<(), CliError> {
    let mut options = Options::default();
    for list in &args.options {
        parse(list, args.sloppy, &mut options).map_err(refused_option)?;
    }
    let request = Request {
        source: args.source,
        mountpoint: args.mountpoint,
        options,
        foreground: false,
        fake: args.fake,
    };
    mount(request, make_fs)
}

fn refused_option(error: super::options::OptionError) -> CliError {
    CliError::new(error.to_string()).hint("`deltafs mount --help` lists the options")
}

fn mount<F: FileSystem, E: Into<CliError>>(
    request: Request,
    make_fs: impl FnOnce(&Settings, Env, Handle) -> Result<F, E>,
) -> Result<(), CliError> {
    let (fake, foreground) = (request.fake, request.foreground);
    let log_file = request.options.log_file.as_deref().map(whole).transpose()?;
    let settings = check(request)?;
    if fake {
        return Ok(());
    }
    let reporter = if foreground {
        Reporter::nobody()
    } else {
        match split().map_err(|error| CliError::new(format!("cannot start a daemon: {error}")))? {
            Side::Parent(parent) => return parent.wait(),
            Side::Child(reporter) => reporter,
        }
    };
    raise_descriptor_limit();
    let started = log_file
        .as_deref()
        .map(open_log)
        .transpose()
        .and_then(|file| {
            log::start(file, foreground);
            start(&settings, make_fs)
        });
    match started {
        Ok((runtime, mounted)) => {
            let result = match reporter.ready() {
                Ok(()) => mounted.wait(),
                Err(_) => {
                    error!("the command was interrupted");
                    mounted.end()
                }
            };
            runtime.shutdown_timeout(RUNTIME_SHUTDOWN);
            result.map_err(|failure| {
                error!("{failure}");
                failure.into()
            })
        }
        Err(failure) => {
            error!("{}", failure.message);
            reporter.failed(&failure);
            Err(failure)
        }
    }
}

fn start<F: FileSystem, E: Into<CliError>>(
    settings: &Settings,
    make_fs: impl FnOnce(&Settings, Env, Handle) -> Result<F, E>,
) -> Result<(Runtime, Mounted<F>), CliError> {
    info!(source = %settings.source.display(), "opening");
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(cores.max(MIN_IO_THREADS))
        .thread_name("deltafs-io")
        .enable_all()
        .build()
        .map_err(|error| CliError::new(format!("cannot start the runtime: {error}")))?;
    let env = Env::real();
    let fs = {
        let _inside = runtime.enter();
        make_fs(settings, env.clone(), runtime.handle().clone()).map_err(Into::into)?
    };
    let mounted = crate::fuse::mount(fs, settings, env, runtime.handle())?;
    Ok((runtime, mounted))
}

fn open_log(path: &Path) -> Result<File, CliError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| CliError::new(format!("{}: {}", path.display(), plain(&error))))
}

/// Turns a request into settings, or says what stands in the way. Detaches a dead mount of ours.
fn check(request: Request) -> Result<Settings, CliError> {
    let source = find_source(&request.source)?;
    let mountpoint = find_mountpoint(&request.mountpoint)?;
    for (inner, outer) in [(&mountpoint, &source), (&source, &mountpoint)] {
        if inner.starts_with(outer) {
            return Err(CliError::new(format!(
                "{} is inside of {}",
                inner.display(),
                outer.display()
            ))
            .hint("mount on a directory outside of the source"));
        }
    }
    let options = request.options;
    let usual = TransactionLimits::default();
    let transactions = TransactionLimits {
        idle: options.transaction_idle.unwrap_or(usual.idle),
        open: options.transactions.unwrap_or(usual.open),
        files: options.transaction_files.unwrap_or(usual.files),
    };
    let outside = |dir: Option<PathBuf>| dir.map(|dir| outside_of(&mountpoint, &dir)).transpose();
    Ok(Settings {
        read_only: options.read_only,
        allow_other: options.allow_other,
        noexec: options.noexec,
        uid: options.uid,
        gid: options.gid,
        umask: options.umask,
        file_mode: options.file_mode,
        dir_mode: options.dir_mode,
        list_control: options.list_control,
        stage_dir: outside(options.stage_dir)?,
        cache_dir: outside(options.cache_dir)?,
        refresh: options.refresh.unwrap_or(Settings::REFRESH),
        passthrough: !options.no_passthrough,
        table_features: options.table_features.unwrap_or_default(),
        transactions,
        source,
        mountpoint,
    })
}

fn find_source(given: &OsString) -> Result<PathBuf, CliError> {
    let path = match given.to_str() {
        Some(text) => parse_source(text)?,
        None => PathBuf::from(given),
    };
    let failed = |error| CliError::new(format!("source {}: {}", path.display(), plain(&error)));
    let source = path.canonicalize().map_err(failed)?;
    if source.metadata().map_err(failed)?.is_dir() {
        Ok(source)
    } else {
        Err(
            CliError::new(format!("source {} is not a directory", path.display()))
                .hint("give the directory of a warehouse or of one table"),
        )
    }
}

fn find_mountpoint(given: &Path) -> Result<PathBuf, CliError> {
    let path = locate(given).map_err(|mut error| {
        error.message.insert_str(0, "mountpoint ");
        error.hint("make the directory first")
    })?;
    let shown = path.display();
    let failed = |error| CliError::new(format!("mountpoint {shown}: {}", plain(&error)));
    while let Some(entry) = MountEntry::at(&path).map_err(failed)? {
        if !entry.is_deltafs() {
            return Err(CliError::new(format!(
                "{shown} is a mount point already ({} of type {})",
                entry.source.display(),
                entry.fs_type
            ))
            .hint("use an ordinary directory"));
        }
        match entry.health() {
            Health::Alive => {
                return Err(CliError::new(format!(
                    "{shown} is mounted already: deltafs shows {} there",
                    entry.source.display()
                ))
                .hint(format!("unmount it with `deltafs umount {shown}`")));
            }
            Health::Silent => {
                return Err(CliError::new(format!(
                    "{shown} is mounted already, and its daemon does not answer"
                ))
                .hint(format!("take it away with `deltafs umount --lazy {shown}`")));
            }
            Health::Dead => lazily_detach_path(&path).map_err(failed)?,
        }
    }
    if path.metadata().map_err(failed)?.is_dir() {
        Ok(path)
    } else {
        Err(CliError::new(format!(
            "mountpoint {shown} is not a directory"
        )))
    }
}

fn whole(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path)
        .map_err(|error| CliError::new(format!("{}: {}", path.display(), plain(&error))))
}

/// The daemon must not work inside of its own mount: it would wait for itself.
fn outside_of(mountpoint: &Path, dir: &Path) -> Result<PathBuf, CliError> {
    let whole = whole(dir)?;
    // It may not exist yet; what exists of it decides.
    let existing = whole.ancestors().find_map(|part| part.canonicalize().ok());
    if existing.is_some_and(|part| part.starts_with(mountpoint)) {
        return Err(CliError::new(format!(
            "{} is inside of the mountpoint",
            dir.display()
        )));
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(source: &Path, mountpoint: &Path) -> Request {
        Request {
            source: source.into(),
            mountpoint: mountpoint.into(),
            options: Options::default(),
            foreground: false,
            fake: false,
        }
    }

    fn refusal(source: &Path, mountpoint: &Path) -> String {
        check(request(source, mountpoint)).unwrap_err().message
    }

    struct Dirs {
        _keep: tempfile::TempDir,
        root: PathBuf,
        source: PathBuf,
        mountpoint: PathBuf,
    }

    fn dirs() -> Dirs {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().canonicalize().unwrap();
        let (source, mountpoint) = (root.join("w"), root.join("m"));
        std::fs::create_dir(&source).unwrap();
        std::fs::create_dir(&mountpoint).unwrap();
        Dirs {
            _keep: keep,
            root,
            source,
            mountpoint,
        }
    }

    #[test]
    fn two_directories_make_settings_with_absolute_paths() {
        let d = dirs();
        let mut request = request(&d.root.join("w/."), &d.mountpoint);
        request.options.stage_dir = Some("stage".into());
        let settings = check(request).unwrap();
        assert_eq!(settings.source, d.source);
        assert_eq!(settings.mountpoint, d.mountpoint);
        assert_eq!(settings.refresh, Settings::REFRESH);
        assert!(settings.stage_dir.unwrap().is_absolute());
    }

    #[test]
    fn neither_may_contain_the_other() {
        let d = dirs();
        let inside = d.source.join("t");
        std::fs::create_dir(&inside).unwrap();
        for (source, mountpoint) in [
            (&d.source, &inside),
            (&inside, &d.source),
            (&d.source, &d.source),
        ] {
            assert!(refusal(source, mountpoint).contains(" is inside of "));
        }
    }

    #[test]
    fn what_is_missing_or_no_directory_is_named() {
        let d = dirs();
        let file = d.root.join("file");
        File::create(&file).unwrap();
        let absent = d.root.join("absent");
        assert!(refusal(&absent, &d.mountpoint).starts_with("source "));
        assert!(refusal(&file, &d.mountpoint).ends_with("is not a directory"));
        assert!(refusal(&d.source, &absent).starts_with("mountpoint "));
        assert!(refusal(&d.source, &file).ends_with("is not a directory"));
        assert!(refusal(Path::new("s3://b/p"), &d.mountpoint).contains("not a source"));
    }

    #[test]
    fn the_daemon_does_not_work_inside_of_its_own_mount() {
        let d = dirs();
        let mut request = request(&d.source, &d.mountpoint);
        request.options.cache_dir = Some(d.mountpoint.join("not/yet/there"));
        assert!(
            check(request)
                .unwrap_err()
                .message
                .ends_with("inside of the mountpoint")
        );
    }

    #[test]
    fn a_mount_point_is_not_covered() {
        let d = dirs();
        assert!(refusal(&d.source, Path::new("/proc")).contains("is a mount point already"));
    }
}
