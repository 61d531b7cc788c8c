//! Actions to Arrow: the columns of a checkpoint's files, one row an action.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, ListBuilder, MapBuilder, MapFieldNames,
    RecordBatch, StringArray, StringBuilder, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use arrow::error::ArrowError;

use super::{CheckpointOptions, Sidecar};
use crate::deletion_vector::DeletionVectorDescriptor;
use crate::log::{Action, Add, DomainMetadata, Metadata, Protocol, Remove, Tags, Txn};

/// Which file of a checkpoint is written. Every file of a kind has the same columns, whatever it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// All actions.
    Classic,
    /// All but file actions, whose columns are there and empty: old readers look for them.
    Manifest,
    /// File actions only.
    Sidecar,
}

/// A row.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every row is an action, and a batch at a time is kept"
)]
pub(super) enum Row {
    Action(Action),
    CheckpointMetadata { version: i64, tags: Tags },
    Sidecar(Sidecar),
}

/// `checkpointMetadata` as a row has it.
struct Meta<'a> {
    version: i64,
    tags: &'a Tags,
}

/// The schema of a batch is that of the file: every column, whatever the actions.
pub(super) fn batch(
    rows: &[Row],
    shape: Shape,
    options: &CheckpointOptions<'_>,
) -> Result<RecordBatch, ArrowError> {
    let adds = add(
        &actions(rows, |a| match a {
            Action::Add(add) => Some(add),
            _ => None,
        }),
        options,
    )?;
    let removes = remove(&actions(rows, |a| match a {
        Action::Remove(remove) => Some(remove),
        _ => None,
    }))?;
    if shape == Shape::Sidecar {
        return record([("add", adds), ("remove", removes)]);
    }
    let others = [
        (
            "txn",
            txn(&actions(rows, |a| match a {
                Action::Txn(txn) => Some(txn),
                _ => None,
            })),
        ),
        ("add", adds),
        ("remove", removes),
        (
            "metaData",
            metadata(&actions(rows, |a| match a {
                Action::MetaData(metadata) => Some(metadata),
                _ => None,
            }))?,
        ),
        (
            "protocol",
            protocol(&actions(rows, |a| match a {
                Action::Protocol(protocol) => Some(protocol),
                _ => None,
            })),
        ),
        (
            "domainMetadata",
            domain(&actions(rows, |a| match a {
                Action::DomainMetadata(domain) => Some(domain),
                _ => None,
            })),
        ),
    ];
    if shape == Shape::Classic {
        return record(others);
    }
    let metas: Vec<Option<Meta<'_>>> = rows
        .iter()
        .map(|row| match row {
            Row::CheckpointMetadata { version, tags } => Some(Meta {
                version: *version,
                tags,
            }),
            Row::Action(_) | Row::Sidecar(_) => None,
        })
        .collect();
    let metas = metas.iter().map(Option::as_ref).collect();
    let sidecars = rows
        .iter()
        .map(|row| match row {
            Row::Sidecar(sidecar) => Some(sidecar),
            Row::Action(_) | Row::CheckpointMetadata { .. } => None,
        })
        .collect();
    record(others.into_iter().chain([
        ("checkpointMetadata", checkpoint_metadata(&metas)?),
        ("sidecar", sidecar(&sidecars)?),
    ]))
}

fn record(
    columns: impl IntoIterator<Item = (&'static str, ArrayRef)>,
) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
}

/// One entry a row: the action, if it is of this kind.
type Rows<'a, T> = Vec<Option<&'a T>>;

fn actions<'a, T>(rows: &'a [Row], kind: impl Fn(&'a Action) -> Option<&'a T>) -> Rows<'a, T> {
    let action = |row: &'a Row| match row {
        Row::Action(action) => kind(action),
        Row::CheckpointMetadata { .. } | Row::Sidecar(_) => None,
    };
    rows.iter().map(action).collect()
}

fn checkpoint_metadata(rows: &Rows<'_, Meta<'_>>) -> Result<ArrayRef, ArrowError> {
    Ok(group(
        rows,
        vec![
            ("version", longs(rows, |m| Some(m.version))),
            ("tags", maps(rows, |m| Some(m.tags))?),
        ],
    ))
}

fn sidecar(rows: &Rows<'_, Sidecar>) -> Result<ArrayRef, ArrowError> {
    Ok(group(
        rows,
        vec![
            ("path", texts(rows, |s| Some(&s.path))),
            ("sizeInBytes", longs(rows, |s| Some(s.size_in_bytes))),
            (
                "modificationTime",
                longs(rows, |s| Some(s.modification_time)),
            ),
            // Nothing of ours to say; the column is part of the schema that others expect.
            ("tags", maps(rows, |_| None)?),
        ],
    ))
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
