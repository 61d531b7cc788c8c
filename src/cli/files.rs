//! `deltafs files`

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::{CliError, output};
use crate::engine::Predicate;
use crate::env::Env;
use crate::ops::kept_files;
use crate::store::Dir;
use crate::table::{LiveFile, Table};

#[derive(Debug, Args)]
pub(super) struct FilesArgs {
    /// The table's directory.
    table: PathBuf,
    /// Only files that may hold a row for which this is true, by partition values and statistics. No file is opened.
    #[arg(long = "where", value_name = "PREDICATE")]
    predicate: Option<String>,
    /// As of this version, not the newest.
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Sizes in bytes and rows that are not deleted (`?` where the log doesn't count them) before each path.
    #[arg(long, short)]
    long: bool,
    /// End each line with NUL instead of a line feed.
    #[arg(long, short = '0')]
    null: bool,
}

pub(super) fn run(args: &FilesArgs, env: &Env) -> Result<(), CliError> {
    let dir = Dir::open(&args.table)?;
    let table = match args.version {
        Some(version) => Table::open_at(dir, env.clone(), version)?,
        None => Table::open(dir, env.clone())?,
    };
    let snapshot = table.snapshot();
    snapshot.check_read()?;
    let files: Vec<Arc<LiveFile>> = match &args.predicate {
        None => snapshot.live_files().collect(),
        Some(text) => {
            let columns = snapshot.partition_columns();
            let predicate = Predicate::parse(text, snapshot.schema(), columns, env.now())?;
            let kept = kept_files(&snapshot, &predicate)?;
            kept.into_iter().map(|(file, _)| file).collect()
        }
    };
    let end = if args.null { '\0' } else { '\n' };
    let mut text = String::new();
    for file in files {
        if args.long {
            let rows = file.add.num_records();
            let rows = rows.map(|rows| rows.saturating_sub(file.add.deleted_rows()));
            let rows = rows.map_or_else(|| "?".to_owned(), |rows| rows.to_string());
            text.push_str(&format!("{:>12} {rows:>12} ", file.add.size));
        }
        text.push_str(file.path.key());
        text.push(end);
    }
    output::text(&text);
    Ok(())
}
