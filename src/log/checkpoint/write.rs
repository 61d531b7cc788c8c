//! Actions to a classic checkpoint.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, ListBuilder, MapBuilder, MapFieldNames,
    RecordBatch, StringArray, StringBuilder, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::ParsedColumns;
use crate::deletion_vector::DeletionVectorDescriptor;
use crate::log::{
    Action, Add, DomainMetadata, LogError, Metadata, Protocol, Remove, Txn, write_failure,
};

/// Actions that are encoded at a time, unless [`BATCH_BYTES`] come first.
const BATCH_ROWS: usize = 10_000;

/// Bytes of text that are encoded at a time. An Arrow array takes 2 GiB.
const BATCH_BYTES: usize = 64 << 20;

/// Bytes of text that one action may have.
const MAX_ACTION_BYTES: usize = 1 << 30;

/// Rows that a reader may skip at a time.
const ROW_GROUP_ROWS: usize = 100_000;

/// What goes into a checkpoint beside the actions.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointOptions<'a> {
    /// `add.stats`.
    pub write_stats_json: bool,
    /// `add.stats_parsed` and `add.partitionValues_parsed`.
    pub parsed: Option<ParsedColumns<'a>>,
}

/// What `_last_checkpoint` says about a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Actions.
    pub size: u64,
    pub num_adds: u64,
    pub bytes: u64,
}

/// Writes a classic checkpoint to `out`, a batch at a time. `actions` are those of the reconciled state: tombstones
/// that have expired are left out by the caller. Here, what no checkpoint holds is passed over: commitInfo, cdc,
/// domains that are removed, the statistics and tags of tombstones, fields that the protocol does not know. All
/// files get `dataChange` false, as Delta Spark writes them.
///
/// # Errors
/// [`LogError::Write`].
pub fn write_classic(
    out: &mut (impl Write + Send),
    actions: impl Iterator<Item = Action>,
    options: &CheckpointOptions<'_>,
) -> Result<CheckpointSummary, LogError> {
    let mut out = Counted { out, bytes: 0 };
    let schema = batch(&[], options).map_err(|e| write_failure(&e))?.schema();
    let writer_options = ArrowWriterOptions::new()
        .with_skip_arrow_metadata(true)
        .with_schema_root("spark_schema".to_owned())
        .with_properties(properties());
    let mut writer = ArrowWriter::try_new_with_options(&mut out, schema, writer_options)
        .map_err(|e| write_failure(&e))?;
    let mut summary = CheckpointSummary::default();
    let mut pending = Vec::new();
    let mut pending_bytes = 0;
    let mut encode = |pending: &mut Vec<Action>| {
        let batch = batch(pending, options).map_err(|e| write_failure(&e))?;
        pending.clear();
        writer.write(&batch).map_err(|e| write_failure(&e))
    };
    for action in actions.filter(is_state) {
        let bytes = text_bytes(&action);
        if bytes > MAX_ACTION_BYTES {
            return Err(LogError::Write {
                reason: format!("an action has {bytes} bytes"),
                kind: crate::error::Kind::Unsupported,
            });
        }
        if pending.len() == BATCH_ROWS || pending_bytes + bytes > BATCH_BYTES {
            encode(&mut pending)?;
            pending_bytes = 0;
        }
        summary.size += 1;
        summary.num_adds += u64::from(matches!(action, Action::Add(_)));
        pending_bytes += bytes;
        pending.push(action);
    }
    encode(&mut pending)?;
    writer.close().map_err(|e| write_failure(&e))?;
    summary.bytes = out.bytes;
    Ok(summary)
}

fn is_state(action: &Action) -> bool {
    match action {
        Action::CommitInfo(_) | Action::Cdc(_) => false,
        Action::DomainMetadata(domain) => !domain.removed,
        Action::Protocol(_)
        | Action::MetaData(_)
        | Action::Txn(_)
        | Action::Add(_)
        | Action::Remove(_) => true,
    }
}

fn properties() -> WriterProperties {
    // Each is different in every row: a dictionary only costs.
    let distinct = [["add", "path"], ["add", "stats"], ["remove", "path"]];
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS));
    for path in distinct {
        let path = ColumnPath::new(path.map(str::to_owned).to_vec());
        properties = properties.set_column_dictionary_enabled(path, false);
    }
    properties.build()
}

struct Counted<'a, W> {
    out: &'a mut W,
    bytes: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(buf)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Bytes of an action that go to arrays of text.
fn text_bytes(action: &Action) -> usize {
    let len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let map = |map: &BTreeMap<String, Option<String>>| {
        map.iter().map(|(k, v)| k.len() + len(v)).sum::<usize>()
    };
    let vector = |vector: &Option<DeletionVectorDescriptor>| {
        vector.as_ref().map_or(0, |v| v.path_or_inline_dv.len())
    };
    match action {
        Action::Add(add) => {
            add.path.len()
                + len(&add.stats)
                + map(&add.partition_values)
                + add.tags.as_ref().map_or(0, map)
                + vector(&add.deletion_vector)
        }
        Action::Remove(remove) => {
            remove.path.len()
                + remove.partition_values.as_ref().map_or(0, map)
                + vector(&remove.deletion_vector)
        }
        Action::MetaData(metadata) => {
            let pairs = metadata.configuration.iter();
            metadata.schema_string.len()
                + len(&metadata.description)
                + pairs.map(|(k, v)| k.len() + v.len()).sum::<usize>()
        }
        Action::DomainMetadata(domain) => domain.domain.len() + domain.configuration.len(),
        Action::Txn(txn) => txn.app_id.len(),
        Action::Protocol(_) | Action::CommitInfo(_) | Action::Cdc(_) => 0,
    }
}

/// The schema of a batch is that of the file: every column, whatever the actions.
fn batch(actions: &[Action], options: &CheckpointOptions<'_>) -> Result<RecordBatch, ArrowError> {
    let columns = [
        (
            "txn",
            txn(&rows(actions, |a| match a {
                Action::Txn(txn) => Some(txn),
                _ => None,
            })),
        ),
        (
            "add",
            add(
                &rows(actions, |a| match a {
                    Action::Add(add) => Some(add),
                    _ => None,
                }),
                options,
            )?,
        ),
        (
            "remove",
            remove(&rows(actions, |a| match a {
                Action::Remove(remove) => Some(remove),
                _ => None,
            }))?,
        ),
        (
            "metaData",
            metadata(&rows(actions, |a| match a {
                Action::MetaData(metadata) => Some(metadata),
                _ => None,
            }))?,
        ),
        (
            "protocol",
            protocol(&rows(actions, |a| match a {
                Action::Protocol(protocol) => Some(protocol),
                _ => None,
            })),
        ),
        (
            "domainMetadata",
            domain(&rows(actions, |a| match a {
                Action::DomainMetadata(domain) => Some(domain),
                _ => None,
            })),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
}

/// One entry a row: the action, if it is of this kind.
type Rows<'a, T> = Vec<Option<&'a T>>;

fn rows<T>(actions: &[Action], kind: impl Fn(&Action) -> Option<&T>) -> Rows<'_, T> {
    actions.iter().map(kind).collect()
}

fn txn(rows: &Rows<'_, Txn>) -> ArrayRef {
    group(
        rows,
        vec![
            ("appId", texts(rows, |t| Some(&t.app_id))),
            ("version", longs(rows, |t| Some(t.version))),
            ("lastUpdated", longs(rows, |t| t.last_updated)),
        ],
    )
}

fn add(rows: &Rows<'_, Add>, options: &CheckpointOptions<'_>) -> Result<ArrayRef, ArrowError> {
    let mut members = vec![
        ("path", texts(rows, |a| Some(&a.path))),
        (
            "partitionValues",
            maps(rows, |a| Some(&a.partition_values))?,
        ),
        ("size", longs(rows, |a| Some(a.size))),
        (
            "modificationTime",
            longs(rows, |a| Some(a.modification_time)),
        ),
        ("dataChange", flags(rows, |_| Some(false))),
        ("tags", maps(rows, |a| a.tags.as_ref())?),
        (
            "deletionVector",
            vectors(rows, |a| a.deletion_vector.as_ref()),
        ),
        ("baseRowId", longs(rows, |a| a.base_row_id)),
        (
            "defaultRowCommitVersion",
            longs(rows, |a| a.default_row_commit_version),
        ),
        (
            "clusteringProvider",
            texts(rows, |a| a.clustering_provider.as_ref()),
        ),
    ];
    if options.write_stats_json {
        members.push(("stats", texts(rows, |a| a.stats.as_ref())));
    }
    if let Some(parsed) = &options.parsed {
        members.extend(parsed.columns(rows)?);
    }
    Ok(group(rows, members))
}

fn remove(rows: &Rows<'_, Remove>) -> Result<ArrayRef, ArrowError> {
    Ok(group(
        rows,
        vec![
            ("path", texts(rows, |r| Some(&r.path))),
            ("deletionTimestamp", longs(rows, |r| r.deletion_timestamp)),
            ("dataChange", flags(rows, |_| Some(false))),
            (
                "extendedFileMetadata",
                flags(rows, |r| r.extended_file_metadata),
            ),
            (
                "partitionValues",
                maps(rows, |r| r.partition_values.as_ref())?,
            ),
            ("size", longs(rows, |r| r.size)),
            (
                "deletionVector",
                vectors(rows, |r| r.deletion_vector.as_ref()),
            ),
            ("baseRowId", longs(rows, |r| r.base_row_id)),
            (
                "defaultRowCommitVersion",
                longs(rows, |r| r.default_row_commit_version),
            ),
        ],
    ))
}

fn metadata(rows: &Rows<'_, Metadata>) -> Result<ArrayRef, ArrowError> {
    let formats: Rows<'_, _> = rows.iter().map(|m| m.map(|m| &m.format)).collect();
    let format = group(
        &formats,
        vec![
            ("provider", texts(&formats, |f| Some(&f.provider))),
            ("options", present_maps(&formats, |f| Some(&f.options))?),
        ],
    );
    Ok(group(
        rows,
        vec![
            ("id", texts(rows, |m| Some(&m.id))),
            ("name", texts(rows, |m| m.name.as_ref())),
            ("description", texts(rows, |m| m.description.as_ref())),
            ("format", format),
            ("schemaString", texts(rows, |m| Some(&m.schema_string))),
            (
                "partitionColumns",
                lists(rows, |m| Some(&m.partition_columns)),
            ),
            (
                "configuration",
                present_maps(rows, |m| Some(&m.configuration))?,
            ),
            ("createdTime", longs(rows, |m| m.created_time)),
        ],
    ))
}

fn protocol(rows: &Rows<'_, Protocol>) -> ArrayRef {
    group(
        rows,
        vec![
            (
                "minReaderVersion",
                ints(rows, |p| Some(p.min_reader_version)),
            ),
            (
                "minWriterVersion",
                ints(rows, |p| Some(p.min_writer_version)),
            ),
            (
                "readerFeatures",
                lists(rows, |p| p.reader_features.as_ref()),
            ),
            (
                "writerFeatures",
                lists(rows, |p| p.writer_features.as_ref()),
            ),
        ],
    )
}

fn domain(rows: &Rows<'_, DomainMetadata>) -> ArrayRef {
    group(
        rows,
        vec![
            ("domain", texts(rows, |d| Some(&d.domain))),
            ("configuration", texts(rows, |d| Some(&d.configuration))),
            ("removed", flags(rows, |d| Some(d.removed))),
        ],
    )
}

/// "No vector" is NULL, never a struct of NULLs (D21).
fn vectors<T>(
    rows: &Rows<'_, T>,
    get: impl Fn(&T) -> Option<&DeletionVectorDescriptor>,
) -> ArrayRef {
    let vectors: Rows<'_, _> = rows.iter().map(|row| row.and_then(&get)).collect();
    let vectors = &vectors;
    group(
        vectors,
        vec![
            ("storageType", texts(vectors, |v| Some(&v.storage_type))),
            (
                "pathOrInlineDv",
                texts(vectors, |v| Some(&v.path_or_inline_dv)),
            ),
            ("offset", ints(vectors, |v| v.offset)),
            ("sizeInBytes", ints(vectors, |v| Some(v.size_in_bytes))),
            ("cardinality", longs(vectors, |v| Some(v.cardinality))),
        ],
    )
}

/// A struct that is NULL where `rows` has nothing. All members are nullable, as Delta Spark writes them.
fn group<T>(rows: &Rows<'_, T>, members: Vec<(&str, ArrayRef)>) -> ArrayRef {
    struct_of(rows.iter().map(Option::is_some).collect(), members)
}

pub(super) fn struct_of(validity: NullBuffer, members: Vec<(&str, ArrayRef)>) -> ArrayRef {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = members
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    if arrays.is_empty() {
        return Arc::new(StructArray::new_empty_fields(
            validity.len(),
            Some(validity),
        ));
    }
    Arc::new(StructArray::new(
        Fields::from(fields),
        arrays,
        Some(validity),
    ))
}

fn texts<T>(rows: &Rows<'_, T>, get: impl Fn(&T) -> Option<&String>) -> ArrayRef {
    let values = rows.iter().map(|row| row.and_then(&get));
    Arc::new(values.collect::<StringArray>())
}

pub(super) fn longs<T>(rows: &Rows<'_, T>, get: impl Fn(&T) -> Option<i64>) -> ArrayRef {
    let values = rows.iter().map(|row| row.and_then(&get));
    Arc::new(values.collect::<Int64Array>())
}

fn ints<T>(rows: &Rows<'_, T>, get: impl Fn(&T) -> Option<i32>) -> ArrayRef {
    let values = rows.iter().map(|row| row.and_then(&get));
    Arc::new(values.collect::<Int32Array>())
}

pub(super) fn flags<T>(rows: &Rows<'_, T>, get: impl Fn(&T) -> Option<bool>) -> ArrayRef {
    let values = rows.iter().map(|row| row.and_then(&get));
    Arc::new(values.collect::<BooleanArray>())
}

fn maps<T>(
    rows: &Rows<'_, T>,
    get: impl Fn(&T) -> Option<&BTreeMap<String, Option<String>>>,
) -> Result<ArrayRef, ArrowError> {
    let mut builder = map_builder();
    for row in rows {
        let map = row.and_then(&get);
        for (key, value) in map.into_iter().flatten() {
            builder.keys().append_value(key);
            builder.values().append_option(value.as_ref());
        }
        builder.append(map.is_some())?;
    }
    Ok(Arc::new(builder.finish()))
}

fn present_maps<T>(
    rows: &Rows<'_, T>,
    get: impl Fn(&T) -> Option<&BTreeMap<String, String>>,
) -> Result<ArrayRef, ArrowError> {
    let mut builder = map_builder();
    for row in rows {
        let map = row.and_then(&get);
        for (key, value) in map.into_iter().flatten() {
            builder.keys().append_value(key);
            builder.values().append_value(value);
        }
        builder.append(map.is_some())?;
    }
    Ok(Arc::new(builder.finish()))
}

fn map_builder() -> MapBuilder<StringBuilder, StringBuilder> {
    let names = MapFieldNames {
        entry: "key_value".to_owned(),
        key: "key".to_owned(),
        value: "value".to_owned(),
    };
    MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
}

fn lists<T>(rows: &Rows<'_, T>, get: impl Fn(&T) -> Option<&Vec<String>>) -> ArrayRef {
    let element = Field::new("element", DataType::Utf8, true);
    let mut builder = ListBuilder::new(StringBuilder::new()).with_field(element);
    for row in rows {
        let list = row.and_then(&get);
        for item in list.into_iter().flatten() {
            builder.values().append_value(item);
        }
        builder.append(list.is_some());
    }
    Arc::new(builder.finish())
}
