//! INT96 timestamps, checked before they are decoded: parquet-rs wraps what microseconds can't hold and drops
//! nanoseconds without a word (D77).

use std::sync::Arc;

use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::data_type::Int96;

use super::error::{DataFileError, Loss};
use super::source::Source;
use crate::error::caught;
use crate::log::CheckedPages;

const JULIAN_DAY_OF_EPOCH: i128 = 2_440_588;
const MICROS_PER_DAY: i128 = 86_400_000_000;
const BATCH: usize = 8192;

/// # Errors
/// [`DataFileError::Value`] for the first INT96 value that is no number of microseconds.
pub(crate) fn check(source: &Source) -> Result<(), DataFileError> {
    let metadata = source.metadata();
    let descriptor = metadata.file_metadata().schema_descr();
    let input = Arc::new(source.input().clone());
    for leaf in 0..descriptor.num_columns() {
        if descriptor.column(leaf).physical_type() != Physical::INT96 {
            continue;
        }
        let mut row = 0_u64;
        for group in metadata.row_groups() {
            let Some(chunk) = group.columns().get(leaf) else {
                continue;
            };
            let rows = usize::try_from(group.num_rows()).unwrap_or(0);
            if rows == 0 {
                continue;
            }
            let name = chunk.column_path().string();
            let decode = || {
                let pages = CheckedPages::new(Arc::clone(&input), chunk, rows, BATCH)
                    .map_err(DataFileError::Pages)?;
                let column = get_column_reader(descriptor.column(leaf), Box::new(pages));
                check_chunk(column, &name, row)
            };
            caught(decode).unwrap_or(Err(DataFileError::Decoder))?;
            row += u64::try_from(group.num_rows()).unwrap_or(0);
        }
    }
    Ok(())
}

fn check_chunk(reader: ColumnReader, column: &str, first_row: u64) -> Result<(), DataFileError> {
    let ColumnReader::Int96ColumnReader(mut reader) = reader else {
        return Ok(());
    };
    let mut records = 0_u64;
    loop {
        let (mut values, mut defs, mut reps) = (Vec::new(), Vec::new(), Vec::new());
        let (read, _, _) = reader
            .read_records(BATCH, Some(&mut defs), Some(&mut reps), &mut values)
            .map_err(DataFileError::Pages)?;
        if read == 0 {
            return Ok(());
        }
        if let Some((index, loss)) = first_bad(&values) {
            return Err(DataFileError::Value {
                column: column.to_owned(),
                expected: "timestamp".to_owned(),
                found: "INT96".to_owned(),
                value: values.get(index).map_or_else(String::new, show),
                row: first_row + records + record_of(index, &defs, &reps),
                loss,
            });
        }
        records += read as u64;
    }
}

fn first_bad(values: &[Int96]) -> Option<(usize, Loss)> {
    values.iter().enumerate().find_map(|(index, value)| {
        let (day, nanos) = parts(value);
        let micros =
            (i128::from(day) - JULIAN_DAY_OF_EPOCH) * MICROS_PER_DAY + i128::from(nanos / 1000);
        let loss = if i64::try_from(micros).is_err() || i64::try_from(nanos).is_err() {
            Loss::Range
        } else if nanos % 1000 != 0 {
            Loss::Nanoseconds
        } else {
            return None;
        };
        Some((index, loss))
    })
}

/// Julian day and nanoseconds of the day.
fn parts(value: &Int96) -> (i32, u64) {
    match value.data() {
        [low, high, day] => (
            i32::from_le_bytes(day.to_le_bytes()),
            (u64::from(*high) << 32) | u64::from(*low),
        ),
        _ => (0, 0),
    }
}

fn show(value: &Int96) -> String {
    let (day, nanos) = parts(value);
    format!("Julian day {day} + {nanos} ns")
}

/// Which of the batch's records the `index`-th value is in.
fn record_of(index: usize, defs: &[i16], reps: &[i16]) -> u64 {
    let highest = defs.iter().max().copied().unwrap_or(0);
    let (mut seen, mut record) = (0, 0_u64);
    let levels = defs.len().max(reps.len());
    for level in 0..levels {
        let starts = reps.get(level).is_none_or(|r| *r == 0);
        record += u64::from(starts);
        if defs.get(level).is_none_or(|d| *d == highest) {
            if seen == index {
                return record.saturating_sub(1);
            }
            seen += 1;
        }
    }
    index as u64
}
