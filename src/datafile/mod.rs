//! Parquet data files: checked, converted, written and read. Knows schemas and bytes; never versions of a
//! table, queries or a mount's paths. Everything here blocks: call it from a blocking thread.

mod adopt;
mod error;
mod footer;
mod source;

pub use adopt::{Inspected, inspect, is_parquet_complete};
pub use error::{DataFileError, Loss};
