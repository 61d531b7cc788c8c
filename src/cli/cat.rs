//! `deltafs cat`

use std::io::{self, IsTerminal as _};
use std::path::Path;

use clap::{Args, ValueEnum};

use super::{CliError, log, output};
use crate::env::Env;
use crate::format::{Format, FormatError, RowWriter};
use crate::log::{LOG_DIR, LogName};
use crate::ops::scan;
use crate::store::{Dir, parse_source};
use crate::table::{Table, TableError};

pub(super) const FORMATS: &str = "\
Formats:
  jsonl  One JSON object a row, all columns in the table's order; NULL is `null`. Integers and decimals are numbers
         with all their digits, floats the shortest number that reads back as the same, or \"NaN\", \"Infinity\",
         \"-Infinity\". Dates are \"2026-11-30\", timestamps \"2026-11-30T12:00:00.000000Z\" in UTC, without the Z for
         timestamp_ntz. Binary is hexadecimal. A struct is an object, an array an array, a map an array of
         {\"key\":…,\"value\":…}, a variant an object of its two binaries.
  csv    RFC 4180 with a header, lines end with \\n. NULL is an empty field, the empty string is \"\". Values as above
         without their quotes; structs, arrays and maps as JSON text. In a table of one column a NULL is an empty
         line, which many readers pass over.
  arrow  An Arrow IPC stream in the table's types.

Rows come file by file in the order of the files' paths; the order means nothing. If a data file is missing or
damaged, the exit status is 1, whatever was written before; an Arrow stream then ends in a way that readers refuse.

Exit status:
  0  every row was written, or the reader has gone away (`| head`)
  1  failed: the reason, and a hint if there is one, are on standard error
  2  wrong usage";

#[derive(Debug, Args)]
pub(super) struct CatArgs {
    /// The table's directory, not of a mount but of what is mounted.
    table: String,
    /// The version to read (default: the newest).
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// How the rows are written.
    #[arg(long, value_enum, default_value_t = Rows::Jsonl)]
    format: Rows,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rows {
    Jsonl,
    Csv,
    Arrow,
}

impl From<Rows> for Format {
    fn from(rows: Rows) -> Self {
        match rows {
            Rows::Jsonl => Format::JsonLines,
            Rows::Csv => Format::Csv,
            Rows::Arrow => Format::Arrow,
        }
    }
}

pub(super) fn run(args: &CatArgs) -> Result<(), CliError> {
    log::start_for_command();
    if args.format == Rows::Arrow && io::stdout().is_terminal() {
        return Err(CliError::new("an Arrow stream is not for a terminal")
            .hint("redirect it into a file or a program, or use --format jsonl"));
    }
    let table = open(&parse_source(&args.table)?, args.version)?;
    let snapshot = table.snapshot();
    let mut rows = scan(&table, &snapshot)?;
    let out = output::bytes().map_err(FormatError::from)?;
    let quiet = |error: FormatError| {
        if error.is_broken_pipe() {
            Ok(())
        } else {
            Err(CliError::from(error))
        }
    };
    let mut writer = match RowWriter::new(args.format.into(), rows.schema(), out) {
        Ok(writer) => writer,
        Err(error) => return quiet(error),
    };
    loop {
        match rows.next() {
            None => return writer.finish().or_else(quiet),
            Some(Ok(batch)) => {
                if let Err(error) = writer.write(&batch) {
                    return quiet(error);
                }
            }
            Some(Err(error)) => {
                // The scan's error is the one to tell.
                drop(writer.abandon());
                return Err(error.into());
            }
        }
    }
}

fn open(path: &Path, version: Option<u64>) -> Result<Table, CliError> {
    let dir = Dir::open(path)?;
    let opened = match version {
        None => Table::open(dir.clone(), Env::real()),
        Some(version) => Table::open_at(dir.clone(), Env::real(), version),
    };
    let control = path.join(".delta/raw").join(LOG_DIR);
    opened.map_err(|error| match (&error, version, versions(&dir)) {
        (TableError::NotATable(_), ..) if control.is_dir() => {
            CliError::from(error).hint(format!(
                "this is a table of a mount: give the directory that is mounted, or {}/.delta/raw",
                path.display()
            ))
        }
        (_, Some(version), Some((oldest, newest))) if !(oldest..=newest).contains(&version) => {
            CliError::new(format!(
                "version {version} of {} does not exist: there are the versions {oldest} to {newest}",
                dir.path().display()
            ))
        }
        _ => error.into(),
    })
}

/// The oldest and the newest version that the log's files tell of: its beginning or its first checkpoint, and its
/// last file.
fn versions(table: &Dir) -> Option<(u64, u64)> {
    let (mut oldest, mut newest) = (None, None);
    for entry in table.list(Path::new(LOG_DIR)).ok()? {
        let (version, is_start) = match entry.name.to_str().and_then(LogName::parse) {
            Some(LogName::Commit(version)) => (version, version == 0),
            Some(
                LogName::Classic(version)
                | LogName::V2 { version, .. }
                | LogName::Part { version, .. },
            ) => (version, true),
            Some(LogName::Compacted { .. } | LogName::Crc(_)) | None => continue,
        };
        newest = newest.max(Some(version));
        if is_start {
            oldest = Some(oldest.map_or(version, |oldest: u64| oldest.min(version)));
        }
    }
    oldest.zip(newest)
}
