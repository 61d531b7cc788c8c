//! What can be wrong with a data file, a value in it, or writing one.

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

use crate::error::{Failure, Kind, io_kind};
use crate::schema::SchemaError;

/// A data file that can't be read, taken over or written. Rows are counted from 0.
#[derive(Debug, thiserror::Error)]
pub enum DataFileError {
    #[error("{action} a data file: {source}")]
    Io {
        action: &'static str,
        source: std::io::Error,
    },
    #[error("the file is empty: not a Parquet file")]
    Empty,
    #[error("not a Parquet file: it does not start with the bytes PAR1")]
    NotParquet,
    #[error("the footer is cut off: the file of {size} bytes does not end with the bytes PAR1")]
    NoTail { size: u64 },
    #[error("the footer is cut off: it claims {footer} bytes of a file of {size}")]
    FooterLength { footer: u64, size: u64 },
    #[error("the file's footer is encrypted")]
    Encrypted,
    #[error("the footer is damaged: {reason}")]
    Footer { reason: String },
    #[error(
        "the footer lies: the {part} of column `{column}` in row group {row_group} would be at bytes \
         {start}+{len}, but data ends at byte {limit}"
    )]
    OutOfFile {
        column: String,
        row_group: usize,
        part: &'static str,
        start: i64,
        len: i64,
        limit: u64,
    },
    #[error("the footer lies: it counts {expected} rows for {what}, but finds {found}")]
    RowCount {
        what: String,
        expected: i64,
        found: i64,
    },
    #[error("column `{column}` is stored outside of the file, in `{path}`")]
    External { column: String, path: String },
    #[error("the data pages are damaged: {0}")]
    Pages(ParquetError),
    #[error("the data pages of column `{column}` are damaged: {reason}")]
    Page { column: String, reason: String },
    #[error("the data pages are damaged: the Parquet decoder has failed on them")]
    Decoder,
    #[error("the rows cannot be decoded: {0}")]
    Rows(ArrowError),
    #[error("writing Parquet: {0}")]
    Write(ParquetError),
    #[error(transparent)]
    Schema(#[from] SchemaError),

    #[error("column `{column}` is not in the table")]
    ExtraColumn { column: String },
    #[error("columns {found} of the file would all be the table's column `{column}`")]
    Ambiguous { column: String, found: String },
    #[error("column `{column}` is NOT NULL in the table, but the file does not have it")]
    MissingRequired { column: String },
    #[error("the file has rows, but none of the table's columns")]
    NoColumns,
    #[error("column `{column}` has the type {found} in the file, but {expected} in the table")]
    Type {
        column: String,
        expected: String,
        found: String,
    },
    #[error(
        "column `{column}` is a {found} without a time zone, but the table's type is timestamp: \
         which instants it means is unknown"
    )]
    NoZone { column: String, found: String },
    #[error(
        "column `{column}` is a {found} with a time zone, but the table's type is timestamp_ntz"
    )]
    Zoned { column: String, found: String },
    #[error(
        "column `{column}`, row {row}: {value} ({found}) does not become a {expected} without loss: {loss}"
    )]
    Value {
        column: String,
        expected: String,
        found: String,
        value: String,
        row: u64,
        loss: Loss,
    },
    #[error("column `{column}` is NOT NULL, but {rows} rows of the file have a NULL there")]
    Nulls { column: String, rows: u64 },
    #[error(
        "column `{column}`, row {row}: the file has {found}, but its directory says {expected}"
    )]
    PartitionDiffers {
        column: String,
        row: u64,
        expected: String,
        found: String,
    },
    #[error(
        "the table is partitioned by `{column}`, which neither the file nor its directory gives"
    )]
    NoPartition { column: String },
    #[error("`{column}` is not a partition column of the table")]
    NotPartition { column: String },
    #[error("partition column `{column}`: the value {value} has no text form that reads back")]
    PartitionText { column: String, value: String },
    #[error("the file's rows belong to more than {limit} partitions")]
    TooManyPartitions { limit: usize },
    #[error("column `{column}` has the type {found}, which deltafs does not write")]
    Unwritable { column: String, found: String },
    #[error("the file has no field ids, but the table maps columns by id")]
    NoFieldIds,
    #[error("the deletion vector marks row {row}, but the file has {rows} rows")]
    DeadRow { row: u64, rows: u64 },
    #[error("a batch of {rows} rows is too large for one array")]
    TooLarge { rows: u64 },
    /// A check of a layer above (constraints) refused the rows.
    #[error("{message}")]
    Refused {
        message: String,
        kind: Kind,
        hint: Option<String>,
    },
}

/// Why a value can't become one of the table's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    #[error("out of range")]
    Range,
    #[error("would lose digits")]
    Digits,
    #[error("would be rounded")]
    Rounded,
    #[error("would lose nanoseconds")]
    Nanoseconds,
    #[error("would lose the time of day")]
    TimeOfDay,
    #[error("not UTF-8")]
    Utf8,
    #[error("not NULL")]
    NotNull,
}

impl DataFileError {
    /// Wraps an I/O error with what was being done (`reading`, `writing`, …).
    pub fn io(action: &'static str, source: std::io::Error) -> Self {
        DataFileError::Io { action, source }
    }

    /// An error while rows are decoded: the operating system's errors stay recognisable.
    pub(crate) fn rows(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, source) => DataFileError::io("reading", source),
            other => DataFileError::Rows(other),
        }
    }

    /// Whether the bytes of the file (not its schema, not its values) are at fault.
    pub fn is_damage(&self) -> bool {
        self.kind() == Kind::Corrupt
    }
}

fn parquet_kind(error: &ParquetError, otherwise: Kind) -> Kind {
    match error {
        ParquetError::External(source) => match source.downcast_ref::<std::io::Error>() {
            Some(io) => io_kind(io),
            None => otherwise,
        },
        _ => otherwise,
    }
}

impl Failure for DataFileError {
    fn kind(&self) -> Kind {
        use DataFileError as E;
        match self {
            E::Io { source, .. } => io_kind(source),
            E::Empty
            | E::NotParquet
            | E::NoTail { .. }
            | E::FooterLength { .. }
            | E::Footer { .. }
            | E::OutOfFile { .. }
            | E::RowCount { .. }
            | E::DeadRow { .. }
            | E::NoFieldIds
            | E::Decoder
            | E::Page { .. }
            | E::Rows(_) => Kind::Corrupt,
            E::Pages(source) => parquet_kind(source, Kind::Corrupt),
            E::Write(source) => parquet_kind(source, Kind::Invalid),
            E::Schema(source) => source.kind(),
            E::Encrypted | E::External { .. } | E::Unwritable { .. } => Kind::Unsupported,
            E::Refused { kind, .. } => *kind,
            E::ExtraColumn { .. }
            | E::Ambiguous { .. }
            | E::MissingRequired { .. }
            | E::NoColumns
            | E::Type { .. }
            | E::NoZone { .. }
            | E::Zoned { .. }
            | E::Value { .. }
            | E::Nulls { .. }
            | E::PartitionDiffers { .. }
            | E::NoPartition { .. }
            | E::NotPartition { .. }
            | E::PartitionText { .. }
            | E::TooManyPartitions { .. }
            | E::TooLarge { .. } => Kind::Invalid,
        }
    }

    fn hint(&self) -> Option<String> {
        use DataFileError as E;
        if let E::NoPartition { column } = self {
            return Some(format!(
                "copy it into the directory {column}=VALUE of the table (mkdir it if it is new), or add the column"
            ));
        }
        let text = match self {
            E::Schema(source) => return source.hint(),
            E::Refused { hint, .. } => return hint.clone(),
            E::Empty | E::NotParquet | E::NoTail { .. } | E::FooterLength { .. } => {
                "write the whole file, then close it: Parquet's footer comes last"
            }
            E::Encrypted => "write the file without Parquet encryption",
            E::External { .. } => "write all columns into one file",
            E::ExtraColumn { .. } => {
                "drop it from the file (pandas: index=False), or add the column to the table first"
            }
            E::Ambiguous { .. } => "Delta column names ignore case: keep one of these columns",
            E::MissingRequired { .. } | E::Nulls { .. } => {
                "fill the column, or drop its NOT NULL constraint first"
            }
            E::NoColumns => "check that the file belongs to this table",
            E::Type { .. } => "cast the column before writing the file",
            E::NoZone { .. } => {
                "give the column a time zone (for example UTC), or make the table's column timestamp_ntz"
            }
            E::Zoned { .. } => {
                "remove the column's time zone, or make the table's column timestamp"
            }
            E::Value { .. } => "round or cast the value before writing the file",
            E::PartitionDiffers { .. } => {
                "write the file into the directory of its value, or at the root of the table to have it split"
            }
            E::TooManyPartitions { .. } => "split the file by its partition values before writing",
            _ => return None,
        };
        Some(text.to_owned())
    }
}
