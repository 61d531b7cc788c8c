//! A walk over the page headers of a file that is to be taken over as it is: holes and garbage between the magic
//! and the footer are found without decoding a value.

use std::fs::File;
use std::sync::Arc;

use parquet::column::page::PageReader as _;
use parquet::file::metadata::ParquetMetaData;

use super::error::DataFileError;
use super::source::Positioned;
use crate::error::caught;
use crate::log::CheckedPages;

/// Fails unless every column chunk is a row of pages with as many values as the footer counts.
///
/// # Errors
/// [`DataFileError::Page`] names the column; [`DataFileError::Io`].
pub(crate) fn check_pages(file: &File, metadata: &ParquetMetaData) -> Result<(), DataFileError> {
    let copy = file
        .try_clone()
        .map_err(|e| DataFileError::io("reading", e))?;
    let input = Arc::new(Positioned::new(copy).map_err(|e| DataFileError::io("reading", e))?);
    for group in metadata.row_groups() {
        if group.num_rows() == 0 {
            continue;
        }
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
        for chunk in group.columns() {
            let damaged = |reason: String| DataFileError::Page {
                column: chunk.column_path().string(),
                reason,
            };
            let walk = || -> parquet::errors::Result<i64> {
                let mut pages = CheckedPages::new(Arc::clone(&input), chunk, rows, rows)?;
                let mut values = 0_i64;
                while let Some(page) = pages.peek_next_page()? {
                    let found = page.num_levels.or(page.num_rows).unwrap_or(0);
                    if !page.is_dict {
                        values = values.saturating_add(i64::try_from(found).unwrap_or(i64::MAX));
                    }
                    pages.skip_next_page()?;
                }
                Ok(values)
            };
            let values = caught(walk)
                .ok_or_else(|| damaged("the decoder has failed on them".to_owned()))?
                .map_err(|e| damaged(e.to_string()))?;
            if values != chunk.num_values() {
                return Err(damaged(format!(
                    "the footer counts {} values, they have {values}",
                    chunk.num_values()
                )));
            }
        }
    }
    Ok(())
}
