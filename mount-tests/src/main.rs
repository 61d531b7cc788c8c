//! Black-box tests: the real `deltafs` binary under the real kernel, judged from the backing directory.
//!
//! `cargo run -p mount-tests -- [filter…]` runs the cases whose `area::name` holds one of the filters.
//! `make-sample DIR` writes sample Parquet files and `rows TABLE` prints a table's rows by the oracle.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test program: a broken expectation ends the case, deadlines are real time, the answer is printed"
)]

mod batch;
mod builder;
mod case;
mod cases;
mod mount;
mod runner;
mod sample;
mod shell;
mod table;
mod vector;

use std::path::Path;
use std::process::ExitCode;

use runner::Options;

const USAGE: &str = "\
usage: mount-tests [OPTIONS] [FILTER…]   run the cases whose area::name contains a FILTER (`=name` for exactly it)
       mount-tests make-sample DIR       write sample Parquet files of orders to DIR
       mount-tests rows TABLE            print the rows of a table's directory, sorted

  --list         print the names of the cases
  --jobs N       cases at a time (2)
  --no-skip      a case that is skipped for a missing tool fails
  --keep         leave the directories of failed cases

DELTAFS_BIN is the binary under test (default: `deltafs` beside this program), DELTAFS_TEST_PYTHON a python
with pyarrow, pandas, polars and duckdb, DELTAFS_CORPUS the folder of tables that other systems wrote.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["-h" | "--help", ..] => print!("{USAGE}"),
        ["make-sample", dir] => sample::write(Path::new(dir)),
        ["rows", table] => {
            for row in table::Table::at(table).rows() {
                println!("{row}");
            }
        }
        _ => match Options::parse(&words) {
            Ok(options) => return runner::run(&options),
            Err(problem) => {
                eprintln!("mount-tests: {problem}\n\n{USAGE}");
                return ExitCode::from(2);
            }
        },
    }
    ExitCode::SUCCESS
}
