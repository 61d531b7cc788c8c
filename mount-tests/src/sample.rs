//! Parquet files for the cases and for the quickstart.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::array::StringArray;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::batch;

/// Writes one Parquet file, Snappy-compressed as most tools do.
pub(crate) fn write_parquet(path: &Path, rows: &RecordBatch) {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    write_parquet_with(path, rows, properties.build());
}

pub(crate) fn write_parquet_with(path: &Path, rows: &RecordBatch, properties: WriterProperties) {
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

/// Orders of a small shop: one file a month, 1,000 rows each.
pub(crate) fn write(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    for (month, name) in ["january", "february", "march"].into_iter().enumerate() {
        let file = dir.join(format!("{name}.parquet"));
        write_parquet(&file, &shop_orders(month as i64));
        println!("{}", file.display());
    }
}

fn shop_orders(month: i64) -> RecordBatch {
    const COUNTRIES: [&str; 4] = ["DE", "FR", "IT", "JP"];
    const ROWS: i64 = 1000;
    const JANUARY: i64 = 1_767_225_600; // 2026-01-01T00:00:00Z
    let ids = month * ROWS..(month + 1) * ROWS;
    // A fixed scramble, so that the sample is the same everywhere.
    let mixed = |id: i64, salt: i64| (id * 7919 + salt * 104_729) % 1_000_003;
    let customers: Vec<String> = ids
        .clone()
        .map(|id| format!("customer-{:03}", mixed(id, 1) % 200))
        .collect();
    let times: Vec<Option<i64>> = ids
        .clone()
        .map(|id| {
            let seconds = month * 31 * 86_400 + (id % ROWS) * 2_592;
            Some((JANUARY + seconds) * 1_000_000)
        })
        .collect();
    let amounts: Vec<Option<i128>> = ids
        .clone()
        .map(|id| Some(i128::from(mixed(id, 2) % 50_000 + 100)))
        .collect();
    batch::columns(vec![
        ("id", batch::longs(ids.clone())),
        ("customer", Arc::new(StringArray::from(customers))),
        (
            "country",
            batch::texts(ids.map(|id| COUNTRIES[(mixed(id, 3) % 4) as usize])),
        ),
        ("amount", batch::decimals(10, 2, &amounts)),
        ("ordered_at", batch::micros(Some("UTC"), &times)),
    ])
}
