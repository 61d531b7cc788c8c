//! Parquet data files: checked, converted, written and read. Knows schemas and bytes; never versions of a
//! table, queries or a mount's paths. Everything here blocks: call it from a blocking thread.

mod adopt;
mod conform;
mod convert;
mod error;
mod footer;
mod physical;
mod source;
mod stats;

pub use adopt::{Inspected, inspect, is_parquet_complete};
pub use conform::{Conformance, Outcome, Target, conform};
pub use convert::MappingMode;
pub use error::{DataFileError, Loss};
pub use stats::{FileStats, Partial, StatsBuilder, StatsConfig, footer_stats};
