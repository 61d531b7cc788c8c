//! Which dropped names are data, and which stay scratch (DESIGN.md §2).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::log::LOG_DIR;

/// The control directory of a table and of the mount's root.
pub const CONTROL_DIR: &str = ".delta";
/// Our own folder at the root of a source: staging and refused files. Hidden.
pub const PRIVATE_DIR: &str = ".deltafs";

/// What a file of that name becomes when it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// A data file: it is committed.
    Data,
    /// Private to whoever writes it, until it is renamed to a data name.
    Scratch,
    /// Rows as text or Arrow: a format that this version does not take.
    Text,
}

/// Classifies a name. `taken` says whether a name of the same directory is a live file: DuckDB writes
/// `tmp_NAME.parquet` before it replaces `NAME.parquet`.
pub fn classify(name: &OsStr, taken: impl Fn(&str) -> bool) -> Dropped {
    let Some(text) = name.to_str() else {
        return Dropped::Scratch;
    };
    if text.starts_with(['.', '_']) || text.ends_with('~') {
        return Dropped::Scratch;
    }
    let extension = text
        .rsplit_once('.')
        .map_or("", |(_, e)| e)
        .to_ascii_lowercase();
    match extension.as_str() {
        "parquet" => match text.strip_prefix("tmp_") {
            Some(target) if taken(target) => Dropped::Scratch,
            _ => Dropped::Data,
        },
        "csv" | "jsonl" | "arrow" => Dropped::Text,
        _ => Dropped::Scratch,
    }
}

/// Names that nobody can create: the control directory, the log, our own folder, and what is no name.
pub fn is_reserved(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    bytes.is_empty()
        || bytes.contains(&b'/')
        || [".", "..", CONTROL_DIR, PRIVATE_DIR, LOG_DIR]
            .iter()
            .any(|r| bytes == r.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_names_are_data() {
        let kind = |name: &str| classify(OsStr::new(name), |n| n == "o.parquet");
        for data in [
            "a.parquet",
            "A.PARQUET",
            "tmp_x.parquet",
            "part-0.snappy.parquet",
            "é b.parquet",
        ] {
            assert_eq!(kind(data), Dropped::Data, "{data}");
        }
        for scratch in [
            ".a.parquet.Xy12Zq",
            "_a.parquet",
            "a.tmp",
            "a.parquet.part",
            "a.parquet~",
            "sedAbC123",
            ".DS_Store",
            "Thumbs.db",
            "._x.parquet",
            ".nfs0001",
            "tmp_o.parquet",
            "XXabcd",
            "4913",
        ] {
            assert_eq!(kind(scratch), Dropped::Scratch, "{scratch}");
        }
        assert_eq!(kind("rows.csv"), Dropped::Text);
        for reserved in ["", ".", "..", ".delta", "_delta_log", "a/b", ".deltafs"] {
            assert!(is_reserved(OsStr::new(reserved)), "{reserved}");
        }
    }
}
