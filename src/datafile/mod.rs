//! Parquet data files: checked, converted, written and read. Knows schemas and bytes; never versions of a
//! table, queries or a mount's paths. Everything here blocks: call it from a blocking thread.
//!
//! Footers are checked before parquet-rs sees them. Inside of damaged pages parquet-rs itself can panic (a
//! level run longer than its page, a dictionary that is not there): a caller must take a panic of its blocking
//! thread for an error.

mod adopt;
mod conform;
mod convert;
mod error;
mod int96;
mod layout;
mod pages;
mod physical;
mod prepare;
mod raw;
mod read;
mod source;
mod split;
mod stats;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod write;

pub use adopt::{Inspected, inspect, is_parquet_complete};
pub use conform::{Conformance, Outcome, Target, conform};
pub use convert::MappingMode;
pub use error::{DataFileError, Loss};
pub use layout::{Location, location, new_file_name};
pub use prepare::{Bytes, Prepared, PreparedFile, RowCheck, prepare};
pub use raw::{RawView, raw_view, table_schema};
pub use read::{Positions, Reader};
pub use stats::{
    FileStats, Partial, StatsBuilder, StatsConfig, count, footer_stats, lower_bound, upper_bound,
};
pub use write::{Columns, Writer, Written};
