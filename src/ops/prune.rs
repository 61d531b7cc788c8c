//! Which files of a snapshot a predicate keeps, by partition values and statistics.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::OpError;
use crate::datafile::{FileStats, count, lower_bound, upper_bound};
use crate::engine::{Bounds, FileFacts, Predicate, Verdict};
use crate::schema::{DataType, Primitive, Scalar, StructField, StructType, partition};
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
        let columns = Columns::default();
        loop {
            let batch: Vec<FileRef<'f>> = files.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(kept);
            }
            let stats: Vec<PackedStats<'f>> = batch.iter().map(FileRef::stats).collect();
            let bounds: Vec<FileBounds<'_, 'a>> = stats
                .iter()
                .map(|stats| FileBounds::new(stats, self.schema, &columns))
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

/// A column that the predicate asks for, and where the template that was met last has its values.
struct Asked<'a> {
    logical: Vec<String>,
    physical: Vec<&'a str>,
    data_type: &'a DataType,
    places: Cell<Option<(usize, Places)>>,
}

/// Of minimum, maximum and NULL count.
#[derive(Clone, Copy)]
struct Places([Option<usize>; 3]);

#[derive(Clone, Copy)]
enum Part {
    Min,
    Max,
    Nulls,
}

/// The columns that have been asked for: a few, looked up once for all files.
#[derive(Default)]
struct Columns<'a>(RefCell<Vec<Rc<Asked<'a>>>>);

impl<'a> Columns<'a> {
    fn get(&self, schema: &'a StructType, column: &[String]) -> Option<Rc<Asked<'a>>> {
        let mut known = self.0.borrow_mut();
        if let Some(asked) = known.iter().find(|asked| asked.logical == column) {
            return Some(Rc::clone(asked));
        }
        let (physical, data_type) = physical(schema, column)?;
        let asked = Rc::new(Asked {
            logical: column.to_vec(),
            physical,
            data_type,
            places: Cell::new(None),
        });
        known.push(Rc::clone(&asked));
        Some(asked)
    }
}

impl Asked<'_> {
    fn place(&self, values: &TemplateValues<'_>, part: Part) -> Option<usize> {
        let id = values.template_id();
        let places = match self.places.get() {
            Some((of, places)) if of == id => places,
            _ => {
                let find = |of: &str| values.find(&[&[of], self.physical.as_slice()].concat());
                let places = Places([find("minValues"), find("maxValues"), find("nullCount")]);
                self.places.set(Some((id, places)));
                places
            }
        };
        let [min, max, nulls] = places.0;
        match part {
            Part::Min => min,
            Part::Max => max,
            Part::Nulls => nulls,
        }
    }
}

/// The statistics of one file.
struct FileBounds<'a, 's> {
    schema: &'s StructType,
    columns: &'a Columns<'s>,
    stats: Known<'a>,
}

enum Known<'a> {
    Nothing,
    Json(FileStats<'a>),
    Values(&'a TemplateValues<'a>),
}

impl<'a, 's> FileBounds<'a, 's> {
    fn new(stats: &'a PackedStats<'a>, schema: &'s StructType, columns: &'a Columns<'s>) -> Self {
        FileBounds {
            schema,
            columns,
            stats: match stats {
                PackedStats::Absent => Known::Nothing,
                PackedStats::Text(json) => Known::Json(FileStats::parse(json)),
                PackedStats::Values(values) => Known::Values(values),
            },
        }
    }

    fn bound(&self, column: &[String], part: Part) -> Option<Scalar> {
        let asked = self.columns.get(self.schema, column)?;
        let data_type = asked.data_type;
        match (&self.stats, part) {
            (Known::Nothing, _) => None,
            (Known::Json(stats), Part::Min) => stats.min(&asked.physical, data_type),
            (Known::Json(stats), _) => stats.max(&asked.physical, data_type),
            (Known::Values(values), _) => {
                let at = asked.place(values, part)?;
                if *data_type == DataType::Primitive(Primitive::Long)
                    && let Some(value) = values.integer(at)
                {
                    return Some(Scalar::Long(value));
                }
                let json = values.value(at);
                match part {
                    Part::Min => lower_bound(&json, data_type),
                    Part::Max | Part::Nulls => upper_bound(&json, data_type),
                }
            }
        }
    }
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

impl Bounds for FileBounds<'_, '_> {
    fn min(&self, column: &[String]) -> Option<Scalar> {
        self.bound(column, Part::Min)
    }

    fn max(&self, column: &[String]) -> Option<Scalar> {
        self.bound(column, Part::Max)
    }

    fn null_count(&self, column: &[String]) -> Option<u64> {
        let asked = self.columns.get(self.schema, column)?;
        match &self.stats {
            Known::Nothing => None,
            Known::Json(stats) => stats.null_count(&asked.physical),
            Known::Values(values) => {
                let at = asked.place(values, Part::Nulls)?;
                match values.integer(at) {
                    Some(nulls) => u64::try_from(nulls).ok(),
                    None => count(&values.value(at)),
                }
            }
        }
    }
}
