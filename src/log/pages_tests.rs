use arrow::array::{ArrayRef, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion,
};

use super::*;

fn written(column: ArrayRef, properties: WriterPropertiesBuilder) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable([("c", column, true)]).unwrap();
    let mut bytes = Vec::new();
    let properties = Some(properties.build());
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), properties).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn read(bytes: Vec<u8>) -> std::result::Result<Vec<RecordBatch>, String> {
    let bytes = Bytes::from(bytes);
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes);
    let metadata = Arc::new(metadata.map_err(|e| e.to_string())?);
    let mask = ProjectionMask::all();
    let batches = checked_batches(bytes, &metadata, mask, None, 1000, None);
    let batches = batches.map_err(|e| e.to_string())?;
    batches
        .map(|batch| batch.map_err(|e| e.to_string()))
        .collect()
}

fn delta(encoding: Encoding, version: WriterVersion) -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_encoding(encoding)
        .set_writer_version(version)
}

const DELTAS: [Encoding; 2] = [
    Encoding::DELTA_LENGTH_BYTE_ARRAY,
    Encoding::DELTA_BYTE_ARRAY,
];
const VERSIONS: [WriterVersion; 2] = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];

#[test]
fn whole_pages_are_read() {
    let text = |i: usize| (!i.is_multiple_of(7)).then(|| "x".repeat(i % 50) + &(i / 3).to_string());
    for rows in [0, 1, 2, 33, 129, 5000] {
        let flat: StringArray = (0..rows).map(text).collect();
        let mut nested = ListBuilder::new(StringBuilder::new());
        for i in 0..rows {
            nested.append_option((i % 5 != 0).then(|| (0..i % 4).map(|n| text(i + n))));
        }
        let columns: [ArrayRef; 2] = [Arc::new(flat), Arc::new(nested.finish())];
        for column in columns {
            for encoding in DELTAS {
                for version in VERSIONS {
                    let bytes = written(Arc::clone(&column), delta(encoding, version));
                    let batches = read(bytes).unwrap();
                    let found: usize = batches.iter().map(RecordBatch::num_rows).sum();
                    assert_eq!(found, rows, "{encoding} {version:?}");
                    let mut at = 0;
                    for batch in batches {
                        let expected = column.slice(at, batch.num_rows());
                        assert_eq!(batch.column(0).as_ref(), expected.as_ref());
                        at += batch.num_rows();
                    }
                }
            }
        }
    }
}

/// The bytes with `new` instead of the `nth` occurrence of `old`.
fn patched(mut bytes: Vec<u8>, old: &[u8], new: &[u8], nth: usize) -> Vec<u8> {
    let mut places = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(old));
    let at = places.nth(nth).unwrap();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[test]
fn lengths_that_a_page_claims_without_having_them_are_refused() {
    let column: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("abc")]));
    for version in VERSIONS {
        for (encoding, nth) in [(DELTAS[0], 0), (DELTAS[1], 0), (DELTAS[1], 1)] {
            let bytes = written(Arc::clone(&column), delta(encoding, version));
            // 128 values a block, 4 mini blocks, 2 values.
            let head = [0x80, 1, 4, 2];
            let bytes = patched(bytes, &head, &[0x80, 1, 4, 4], nth);
            let error = read(bytes).unwrap_err();
            assert!(
                error.contains("a page of 3 values claims 4 texts"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_list_that_a_few_bytes_can_t_hold_is_refused() {
    let page = |num_values| Page::DataPage {
        buf: Bytes::from_static(&[0; 16]),
        num_values,
        encoding: Encoding::PLAIN,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    assert!(check(&page(16 << 16), 1, 3).is_ok());
    assert!(check(&page((16 << 16) + 1), 1, 3).is_err());
    assert!(check(&page(u32::MAX), 0, 1).is_ok());
}

#[test]
fn a_dictionary_that_claims_more_than_its_bytes_is_refused() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let bytes = written(column, WriterProperties::builder());
    // Field 7, a struct: 3 values, PLAIN.
    let bytes = patched(bytes, &[0x4c, 0x15, 6, 0x15], &[0x4c, 0x15, 0x7e, 0x15], 0);
    let error = read(bytes).unwrap_err();
    assert!(error.contains("claims 63 values in 24 bytes"), "{error}");
}

#[test]
fn compressed_pages_are_what_they_claim() {
    let text = "x".repeat(1_500_000);
    let column: ArrayRef = Arc::new(StringArray::from(vec![text.as_str()]));
    for codec in [
        Compression::SNAPPY,
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::GZIP(Default::default()),
        Compression::ZSTD(Default::default()),
        Compression::BROTLI(Default::default()),
    ] {
        for version in VERSIONS {
            let properties = delta(Encoding::PLAIN, version).set_compression(codec);
            let bytes = written(Arc::clone(&column), properties);
            let batches = read(bytes.clone()).unwrap();
            assert_eq!(batches[0].column(0).as_ref(), column.as_ref());
            // The header starts the file: a type, and the size without compression in four bytes.
            assert_eq!((bytes[4], bytes[6]), (0x15, 0x15));
            let claiming = |last| {
                let mut bytes = bytes.clone();
                assert!(bytes[9] >= 0x80 && bytes[10] < 0x80);
                bytes[10] = last;
                read(bytes).unwrap_err()
            };
            claiming(0);
            let error = claiming(0x7f);
            let expected = match codec {
                Compression::GZIP(_) | Compression::ZSTD(_) => "",
                Compression::BROTLI(_) => "a page has less than",
                _ => "without compression",
            };
            assert!(error.contains(expected), "{codec}: {error}");
        }
    }
}

#[test]
fn a_header_with_long_statistics_is_read() {
    let text = "x".repeat(100_000);
    let column: ArrayRef = Arc::new(StringArray::from(vec![text.as_str(); 3]));
    for version in VERSIONS {
        let properties = delta(Encoding::PLAIN, version)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_statistics_truncate_length(None)
            .set_write_page_header_statistics(true);
        let bytes = written(Arc::clone(&column), properties);
        assert!(bytes.len() > 500_000);
        let batches = read(bytes).unwrap();
        assert_eq!(batches[0].column(0).as_ref(), column.as_ref());
    }
}

#[test]
fn a_batch_of_rows_has_not_more_list_items_than_fit() {
    const ITEMS: usize = 1 << 18;
    let mut lists = ListBuilder::new(StringBuilder::new());
    lists.append_value(vec![Some("x"); ITEMS]);
    let bytes = Bytes::from(written(
        Arc::new(lists.finish()),
        WriterProperties::builder(),
    ));
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes);
    let metadata = metadata.unwrap();
    let chunk = metadata.row_group(0).column(0);
    let (start, length) = chunk.byte_range();
    let dictionary = page_header(&bytes, start, start + length).unwrap();
    let page = start + dictionary.len + dictionary.stored as u64;
    let page = &bytes[page as usize..(start + length) as usize];
    assert!(page.len() < 200, "{}", page.len());
    // The row, a thousand times.
    let pages = Bytes::from(page.repeat(1000));
    let chunk = chunk.clone().into_builder();
    let chunk = chunk
        .set_data_page_offset(0)
        .set_dictionary_page_offset(None)
        .set_total_compressed_size(pages.len() as i64)
        .build()
        .unwrap();
    let read = |batch_rows| {
        let pages = Arc::new(pages.clone());
        let mut pages = CheckedPages::new(pages, &chunk, 1000, batch_rows).unwrap();
        let failed = pages.find_map(std::result::Result::err);
        failed.map(|error| error.to_string())
    };
    assert_eq!(read(250), None);
    let error = read(1000).unwrap();
    assert!(error.contains("257 rows have more than"), "{error}");
}

/// Every file of other writers, read with and without the checks.
#[test]
fn files_of_other_writers_pass() {
    let Some(folder) = std::env::var_os("DELTAFS_CORPUS") else {
        eprintln!("skipped: no corpus (set DELTAFS_CORPUS)");
        return;
    };
    let mut folders = vec![std::path::PathBuf::from(folder)];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|ext| ext != "parquet") {
                continue;
            }
            let bytes = Bytes::from(std::fs::read(&path).unwrap());
            let Ok(plain) = unchecked(bytes.clone()) else {
                continue;
            };
            files += 1;
            let footer = footer_of(&bytes);
            assert_eq!(crate::log::check_footer(&footer), Ok(()), "{path:?}");
            let checked = read(bytes.to_vec());
            assert_eq!(checked.as_ref(), Ok(&plain), "{path:?}");
        }
    }
    assert!(files > 0);
}

fn unchecked(bytes: Bytes) -> Result<Vec<RecordBatch>> {
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options)?;
    let batches = builder.with_batch_size(1000).build()?;
    batches
        .collect::<std::result::Result<_, _>>()
        .map_err(Into::into)
}

fn footer_of(bytes: &Bytes) -> Bytes {
    let (rest, tail) = bytes.split_at(bytes.len() - 8);
    let length = u32::from_le_bytes(tail[..4].try_into().unwrap()) as usize;
    bytes.slice(rest.len() - length..rest.len())
}
