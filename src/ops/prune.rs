//! Which files of a snapshot a predicate keeps, by partition values and statistics.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::OpError;
use crate::datafile::{FileStats, count, lower_bound, upper_bound};
use crate::engine::{Bounds, FileFacts, Predicate, Verdict};
use crate::schema::{DataType, Scalar, StructField, StructType, partition};
use crate::table::{FileRef, LiveFile, PackedStats, Snapshot, TemplateValues};

/// Files that are asked about at a time.
const BATCH: usize = 4096;

/// The files that may hold a row for which the predicate is true, in the order of their paths, with what it says of
/// each.
///
/// # Errors
/// [`OpError`] when a partition value is not of its column's type, or the predicate fails on one.
pub fn kept_files(
    snapshot: &Snapshot,
    predicate: &Predicate,
) -> Result<Vec<(Arc<LiveFile>, Verdict)>, OpError> {
    let scan = snapshot.scan();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = scan.split(threads);
    std::thread::scope(|scope| {
        let ask = |files| Question::new(snapshot, predicate).ask(files);
        let asked: Vec<_> = parts
            .into_iter()
            .map(|files| scope.spawn(move || ask(files)))
            .collect();
        let mut kept = Vec::new();
        for thread in asked {
            let answer = thread.join();
            kept.append(&mut answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(kept)
    })
}

/// A predicate and what it asks of.
struct Question<'a> {
    schema: &'a StructType,
    predicate: &'a Predicate,
    partition: Vec<&'a StructField>,
}

impl<'a> Question<'a> {
    fn new(snapshot: &'a Snapshot, predicate: &'a Predicate) -> Self {
        let schema = snapshot.schema();
        let columns = snapshot.partition_columns().iter();
        Question {
            schema,
            predicate,
            partition: columns.filter_map(|c| schema.field(c)).collect(),
        }
    }

    fn ask<'f>(
        &self,
        mut files: impl Iterator<Item = FileRef<'f>>,
    ) -> Result<Vec<(Arc<LiveFile>, Verdict)>, OpError> {
        let mut kept = Vec::new();
        loop {
            let batch: Vec<FileRef<'f>> = files.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(kept);
            }
            let stats: Vec<PackedStats<'f>> = batch.iter().map(FileRef::stats).collect();
            let bounds: Vec<FileBounds<'_>> = stats
                .iter()
                .map(|stats| FileBounds::new(stats, self.schema))
                .collect();
            let mut facts = Vec::with_capacity(batch.len());
            for (file, bounds) in batch.iter().zip(&bounds) {
                facts.push(FileFacts {
                    partition: self.partition(file)?,
                    num_records: file.num_records(),
                    bounds,
                });
            }
            let verdicts = self.predicate.verdict(&facts)?;
            let pairs = batch.iter().zip(verdicts);
            kept.extend(
                pairs
                    .filter(|(_, verdict)| *verdict != Verdict::NoRow)
                    .map(|(file, verdict)| (file.unpack(), verdict)),
            );
        }
    }

    /// The typed partition values of a file by logical name.
    fn partition(&self, file: &FileRef<'_>) -> Result<BTreeMap<String, Scalar>, OpError> {
        let mut values = BTreeMap::new();
        for field in &self.partition {
            let text = file.partition_value(&field.name, field.physical_name());
            let value = partition::parse_value(text, &field.data_type)?;
            values.insert(field.name.clone(), value);
        }
        Ok(values)
    }
}

/// The statistics of one file.
enum FileBounds<'a> {
    None,
    Json(FileStats<'a>, &'a StructType),
    Values(&'a TemplateValues<'a>, &'a StructType),
}

impl<'a> FileBounds<'a> {
    fn new(stats: &'a PackedStats<'a>, schema: &'a StructType) -> Self {
        match stats {
            PackedStats::Absent => FileBounds::None,
            PackedStats::Text(json) => FileBounds::Json(FileStats::parse(json), schema),
            PackedStats::Values(values) => FileBounds::Values(values, schema),
        }
    }
}

/// The JSON text of a value of a template.
fn value(values: &TemplateValues<'_>, of: &str, column: &[&str]) -> Option<String> {
    let at = values.find(&[&[of], column].concat())?;
    Some(values.value(at))
}

/// Physical path and type of a logical path.
fn physical<'s>(schema: &'s StructType, column: &[String]) -> Option<(Vec<&'s str>, &'s DataType)> {
    let (first, rest) = column.split_first()?;
    let mut field = schema.field(first)?;
    let mut path = vec![field.physical_name()];
    for name in rest {
        let DataType::Struct(inner) = &field.data_type else {
            return None;
        };
        field = inner.field(name)?;
        path.push(field.physical_name());
    }
    Some((path, &field.data_type))
}

impl Bounds for FileBounds<'_> {
    fn min(&self, column: &[String]) -> Option<Scalar> {
        match self {
            FileBounds::None => None,
            FileBounds::Json(stats, schema) => {
                let (path, data_type) = physical(schema, column)?;
                stats.min(&path, data_type)
            }
            FileBounds::Values(values, schema) => {
                let (path, data_type) = physical(schema, column)?;
                lower_bound(&value(values, "minValues", &path)?, data_type)
            }
        }
    }

    fn max(&self, column: &[String]) -> Option<Scalar> {
        match self {
            FileBounds::None => None,
            FileBounds::Json(stats, schema) => {
                let (path, data_type) = physical(schema, column)?;
                stats.max(&path, data_type)
            }
            FileBounds::Values(values, schema) => {
                let (path, data_type) = physical(schema, column)?;
                upper_bound(&value(values, "maxValues", &path)?, data_type)
            }
        }
    }

    fn null_count(&self, column: &[String]) -> Option<u64> {
        match self {
            FileBounds::None => None,
            FileBounds::Json(stats, schema) => {
                let (path, _) = physical(schema, column)?;
                stats.null_count(&path)
            }
            FileBounds::Values(values, schema) => {
                let (path, _) = physical(schema, column)?;
                count(&value(values, "nullCount", &path)?)
            }
        }
    }
}
