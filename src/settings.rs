//! What the user chose for a mount. Data only: `cli` fills it in, every layer reads it.

use std::path::PathBuf;
use std::time::Duration;

/// Which table features a new table gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum TableFeatures {
    /// Deletion vectors.
    #[default]
    Default,
    /// Also column mapping, in-commit timestamps, row tracking and V2 checkpoints.
    Modern,
    /// None.
    Minimal,
}

/// What transactions of a mount may take up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionLimits {
    /// How long one may be left alone before it is aborted, and how long its outcome is kept after that.
    pub idle: Duration,
    /// How many may be open at a time.
    pub open: usize,
    /// How many files one may add, change and remove.
    pub files: usize,
}

impl Default for TransactionLimits {
    fn default() -> Self {
        TransactionLimits {
            idle: Duration::from_secs(3600),
            open: 64,
            files: 100_000,
        }
    }
}

/// One mount. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Directory of the warehouse or of one table, without symbolic links.
    pub source: PathBuf,
    /// Directory that the mount covers, without symbolic links.
    pub mountpoint: PathBuf,
    pub read_only: bool,
    /// Other users than the one who mounts may use it; permission bits are checked in any case.
    pub allow_other: bool,
    pub noexec: bool,
    /// Owner shown for everything, instead of the backing file's.
    pub uid: Option<u32>,
    /// Group shown for everything, instead of the backing file's.
    pub gid: Option<u32>,
    /// Permission bits taken from everything.
    pub umask: Option<u16>,
    /// Permission bits of files, before `umask`.
    pub file_mode: Option<u16>,
    /// Permission bits of directories, before `umask`.
    pub dir_mode: Option<u16>,
    /// `.delta` appears in listings.
    pub list_control: bool,
    /// Where written files wait for their commit.
    pub stage_dir: Option<PathBuf>,
    /// Where rebuilt data files are kept.
    pub cache_dir: Option<PathBuf>,
    /// How late a commit of somebody else may be seen.
    pub refresh: Duration,
    /// Let the kernel read and write local files by itself.
    pub passthrough: bool,
    pub table_features: TableFeatures,
    pub transactions: TransactionLimits,
}

impl Settings {
    /// The default of `refresh`.
    pub const REFRESH: Duration = Duration::from_millis(1000);
}
