//! Parquet and JSON files of a checkpoint to actions.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use serde::Deserialize;
use serde_json::Map;

use super::columns::{Column, Group, Integers};
use super::footer;
use super::stats::ParsedStats;
use super::{CheckpointAction, Sidecar};
use crate::deletion_vector::DeletionVectorDescriptor;
use crate::error::caught;
use crate::log::commit::parse_line;
use crate::log::{
    Action, Add, DomainMetadata, Format, LogError, Metadata, Protocol, Remove, Txn,
    checked_batches, read_failure,
};

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 4096;

/// Every row is an action, and most have a path of their own. Rows of NULLs take next to nothing: without a limit, a
/// file of some kilobytes would keep a reader busy for hours.
const MAX_ROWS_PER_BYTE: u64 = 64;

type Sink<'s> = &'s mut dyn FnMut(CheckpointAction) -> Result<(), LogError>;

/// Columns that are read, by action. Others (`rowIdHighWaterMark`, `partitionValues_parsed`, `maxRowIndex`, what
/// writers add) are not even decoded.
const COLUMNS: &[(&str, &[&str])] = &[
    ("checkpointMetadata", &["version"]),
    (
        "protocol",
        &[
            "minReaderVersion",
            "minWriterVersion",
            "readerFeatures",
            "writerFeatures",
        ],
    ),
    (
        "metaData",
        &[
            "id",
            "name",
            "description",
            "format",
            "schemaString",
            "partitionColumns",
            "configuration",
            "createdTime",
        ],
    ),
    ("txn", &["appId", "version", "lastUpdated"]),
    ("domainMetadata", &["domain", "configuration", "removed"]),
    ("sidecar", &["path", "sizeInBytes", "modificationTime"]),
    (
        "remove",
        &[
            "path",
            "deletionTimestamp",
            "dataChange",
            "extendedFileMetadata",
            "partitionValues",
            "size",
            "stats",
            "tags",
            "deletionVector",
            "baseRowId",
            "defaultRowCommitVersion",
        ],
    ),
    (
        "add",
        &[
            "path",
            "partitionValues",
            "size",
            "modificationTime",
            "dataChange",
            "stats",
            "tags",
            "deletionVector",
            "baseRowId",
            "defaultRowCommitVersion",
            "clusteringProvider",
        ],
    ),
];

/// Reads a classic checkpoint, one part of a multi-part one, a V2 manifest or a sidecar, all in Parquet. The actions
/// come in no order that means anything. `name` is for messages.
///
/// # Errors
/// [`LogError`] when the file is damaged, a column has another type than its action or lacks a value; what `sink`
/// returns.
pub fn read_checkpoint(name: &str, file: File, sink: Sink<'_>) -> Result<(), LogError> {
    read_roots(name, file, |_| true, sink)
}

/// The sidecars that a Parquet checkpoint refers to; none for one that has no such column. Nothing else is decoded.
///
/// # Errors
/// As [`read_checkpoint`].
pub fn read_sidecar_references(name: &str, file: File) -> Result<Vec<Sidecar>, LogError> {
    let mut sidecars = Vec::new();
    read_roots(name, file, |root| root == "sidecar", &mut |action| {
        if let CheckpointAction::Sidecar(sidecar) = action {
            sidecars.push(sidecar);
        }
        Ok(())
    })?;
    Ok(sidecars)
}

/// Reads the actions of the kinds that `wanted` picks.
fn read_roots(
    name: &str,
    file: File,
    wanted: fn(&str) -> bool,
    sink: Sink<'_>,
) -> Result<(), LogError> {
    for batch in CheckpointBatches::open(name, file, wanted)? {
        batch?.actions(sink)?;
    }
    Ok(())
}

/// The decoded rows of a checkpoint file, for threads that turn them into actions.
///
/// # Errors
/// As [`read_checkpoint`].
pub fn checkpoint_batches(name: &str, file: File) -> Result<CheckpointBatches, LogError> {
    CheckpointBatches::open(name, file, |_| true)
}

/// See [`checkpoint_batches`]. Ends after the first error.
pub struct CheckpointBatches {
    name: Arc<str>,
    reader: Option<ParquetRecordBatchReader>,
    bytes: u64,
    /// Rows that may still come.
    left: u64,
}

/// Some rows of a checkpoint.
pub struct CheckpointBatch {
    name: Arc<str>,
    batch: RecordBatch,
}

impl CheckpointBatches {
    fn open(name: &str, file: File, wanted: fn(&str) -> bool) -> Result<Self, LogError> {
        footer::check(&file).map_err(|e| read_failure(name, &e))?;
        let bytes = file.metadata().map_err(|e| read_failure(name, &e))?.len();
        let reader = guarded(name, || open(file, wanted))?;
        Ok(CheckpointBatches {
            name: name.into(),
            reader: Some(reader),
            bytes,
            left: bytes.saturating_mul(MAX_ROWS_PER_BYTE),
        })
    }

    fn decode(&mut self) -> Result<Option<CheckpointBatch>, LogError> {
        let Some(reader) = &mut self.reader else {
            return Ok(None);
        };
        let batch = guarded(&self.name, || reader.next().transpose().map_err(Into::into))?;
        let Some(batch) = batch else {
            return Ok(None);
        };
        let rows = batch.num_rows() as u64;
        self.left = self
            .left
            .checked_sub(rows)
            .ok_or_else(|| LogError::Checkpoint {
                file: self.name.to_string(),
                reason: format!(
                    "{} bytes can't hold as many actions as it has rows",
                    self.bytes
                ),
            })?;
        let name = Arc::clone(&self.name);
        Ok(Some(CheckpointBatch { name, batch }))
    }
}

impl Iterator for CheckpointBatches {
    type Item = Result<CheckpointBatch, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let decoded = self.decode().transpose();
        if !matches!(decoded, Some(Ok(_))) {
            self.reader = None;
        }
        decoded
    }
}

impl CheckpointBatch {
    /// # Errors
    /// As [`read_checkpoint`].
    pub fn actions(&self, sink: Sink<'_>) -> Result<(), LogError> {
        read_batch(&self.name, &self.batch, sink)
    }
}

/// Some damage makes the Parquet decoder panic instead of failing. Its state is dropped then.
fn guarded<T>(file: &str, decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, LogError> {
    match caught(decode) {
        Some(decoded) => decoded.map_err(|e| read_failure(file, &e)),
        None => Err(undecodable(file)),
    }
}

fn undecodable(file: &str) -> LogError {
    LogError::Checkpoint {
        file: file.to_owned(),
        reason: "the Parquet decoder has failed on it".to_owned(),
    }
}

fn open(file: File, wanted: fn(&str) -> bool) -> Result<ParquetRecordBatchReader, ParquetError> {
    // An embedded Arrow schema could ask for any type that the values can be cast to.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let loaded = ArrowReaderMetadata::load(&file, options.clone())?;
    let metadata = loaded.metadata();
    let types = instants_in_micros(loaded.schema().fields());
    let with_types = options.with_schema(Arc::new(Schema::new(types.clone())));
    ArrowReaderMetadata::try_new(Arc::clone(metadata), with_types)?;
    let mask = ProjectionMask::leaves(
        metadata.file_metadata().schema_descr(),
        leaves(metadata, wanted),
    );
    checked_batches(file, metadata, mask, Some(&types), BATCH_ROWS, None)
}

/// Only INT96 comes as zoneless nanoseconds here, and nanoseconds overflow beyond the year 2262. Spark stores instants
/// in it.
fn instants_in_micros(fields: &Fields) -> Fields {
    let convert = |field: &Arc<Field>| match field.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, None) => {
            let micros = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
            Arc::new(field.as_ref().clone().with_data_type(micros))
        }
        DataType::Struct(inner) => {
            let inner = DataType::Struct(instants_in_micros(inner));
            Arc::new(field.as_ref().clone().with_data_type(inner))
        }
        _ => Arc::clone(field),
    };
    fields.iter().map(convert).collect()
}

fn leaves(metadata: &ParquetMetaData, wanted: fn(&str) -> bool) -> Vec<usize> {
    let parsed = needs_parsed_stats(metadata);
    let is_read = |path: &[String]| {
        let Some((root, rest)) = path.split_first() else {
            return false;
        };
        let known = COLUMNS.iter().find(|(name, _)| name == root);
        let Some((_, columns)) = known.filter(|(name, _)| wanted(name)) else {
            return false;
        };
        match rest.first().map(String::as_str) {
            // No group at all: reading it tells the user so.
            None => true,
            Some("stats_parsed") => parsed && root == "add",
            Some("deletionVector") => rest.get(1).is_none_or(|name| name != "maxRowIndex"),
            Some(name) => columns.contains(&name),
        }
    };
    let schema = metadata.file_metadata().schema_descr();
    (0..schema.num_columns())
        .filter(|leaf| is_read(schema.column(*leaf).path().parts()))
        .collect()
}

/// Whether some file may lack its statistics as JSON. They are read from typed columns only then, which takes longer.
fn needs_parsed_stats(metadata: &ParquetMetaData) -> bool {
    let schema = metadata.file_metadata().schema_descr();
    let leaf = |name| {
        (0..schema.num_columns()).find(|i| schema.column(*i).path().parts() == ["add", name])
    };
    let (Some(path), Some(stats)) = (leaf("path"), leaf("stats")) else {
        return true;
    };
    metadata.row_groups().iter().any(|group| {
        let nulls = |leaf: usize| group.columns().get(leaf)?.statistics()?.null_count_opt();
        match (nulls(path), nulls(stats)) {
            (Some(path), Some(stats)) => stats > path,
            _ => true,
        }
    })
}

fn read_batch(file: &str, batch: &RecordBatch, sink: Sink<'_>) -> Result<(), LogError> {
    for (root, _) in COLUMNS {
        let Some(group) = Group::root(file, batch, root)? else {
            continue;
        };
        match *root {
            "checkpointMetadata" => read_checkpoint_metadata(&group, sink)?,
            "protocol" => read_protocol(&group, sink)?,
            "metaData" => read_metadata(&group, sink)?,
            "txn" => read_txn(&group, sink)?,
            "domainMetadata" => read_domain(&group, sink)?,
            "sidecar" => read_sidecar(&group, sink)?,
            "remove" => read_remove(&group, sink)?,
            _ => read_add(&group, sink)?,
        }
    }
    Ok(())
}

fn read_checkpoint_metadata(group: &Group<'_>, sink: Sink<'_>) -> Result<(), LogError> {
    let version = group.integer("version")?;
    for row in 0..group.len() {
        if let Some(version) = version.long(row) {
            sink(CheckpointAction::CheckpointMetadata { version })?;
        }
    }
    Ok(())
}

fn read_protocol(group: &Group<'_>, sink: Sink<'_>) -> Result<(), LogError> {
    let reader = group.integer("minReaderVersion")?;
    let writer = group.integer("minWriterVersion")?;
    let reader_features = group.list("readerFeatures")?;
    let writer_features = group.list("writerFeatures")?;
    for row in 0..group.len() {
        let Some(min_reader_version) = reader.int(row)? else {
            continue;
        };
        sink(CheckpointAction::Action(Action::Protocol(Protocol {
            min_reader_version,
            min_writer_version: writer.need(writer.int(row)?)?,
            reader_features: reader_features.get(row)?,
            writer_features: writer_features.get(row)?,
        })))?;
    }
    Ok(())
}

fn read_metadata(group: &Group<'_>, sink: Sink<'_>) -> Result<(), LogError> {
    let id = group.text("id")?;
    let name = group.text("name")?;
    let description = group.text("description")?;
    let format = match group.group("format")? {
        Some(format) => Some((format.text("provider")?, format.map("options")?)),
        None => None,
    };
    let schema_string = group.text("schemaString")?;
    let partition_columns = group.list("partitionColumns")?;
    let configuration = group.map("configuration")?;
    let created_time = group.integer("createdTime")?;
    for row in 0..group.len() {
        let Some(id) = id.owned(row) else {
            continue;
        };
        let format = match &format {
            Some((provider, options)) => match provider.owned(row) {
                Some(provider) => Format {
                    provider,
                    options: options.present(row)?.unwrap_or_default(),
                },
                None => Format::default(),
            },
            None => Format::default(),
        };
        sink(CheckpointAction::Action(Action::MetaData(Metadata {
            id,
            name: name.owned(row),
            description: description.owned(row),
            format,
            schema_string: schema_string.need(schema_string.owned(row))?,
            partition_columns: partition_columns.get(row)?.unwrap_or_default(),
            created_time: created_time.long(row),
            configuration: configuration.present(row)?.unwrap_or_default(),
            unknown: Map::new(),
        })))?;
    }
    Ok(())
}

fn read_txn(group: &Group<'_>, sink: Sink<'_>) -> Result<(), LogError> {
    let app_id = group.text("appId")?;
    let version = group.integer("version")?;
    let last_updated = group.integer("lastUpdated")?;
    for row in 0..group.len() {
        let Some(app_id) = app_id.owned(row) else {
            continue;
        };
        sink(CheckpointAction::Action(Action::Txn(Txn {
            app_id,
            version: version.need(version.long(row))?,
            last_updated: last_updated.long(row),
        })))?;
    }
    Ok(())
}

fn read_domain(group: &Group<'_>, sink: Sink<'_>) -> Result<(), LogError> {
    let domain = group.text("domain")?;
    let configuration = group.text("configuration")?;
    let removed = group.flag("removed")?;
    for row in 0..group.len() {
        let Some(domain) = domain.owned(row) else {
            continue;
        };
        let action = Action::DomainMetadata(DomainMetadata {
            domain,
            configuration: configuration.need(configuration.owned(row))?,
            removed: removed.get(row).unwrap_or(false),
        });
        sink(CheckpointAction::Action(action))?;
    }
    Ok(())
}

fn read_sidecar(group: &Group<'_>, sink: Sink<'_>) -> Result<(), LogError> {
    let path = group.text("path")?;
    let size = group.integer("sizeInBytes")?;
    let modification_time = group.integer("modificationTime")?;
    for row in 0..group.len() {
        let Some(path) = path.owned(row) else {
            continue;
        };
        sink(CheckpointAction::Sidecar(Sidecar {
            path,
            size_in_bytes: size.need(size.long(row))?,
            modification_time: modification_time.need(modification_time.long(row))?,
        }))?;
    }
    Ok(())
}

fn read_remove(group: &Group<'_>, sink: Sink<'_>) -> Result<(), LogError> {
    let path = group.text("path")?;
    let deletion_timestamp = group.integer("deletionTimestamp")?;
    let data_change = group.flag("dataChange")?;
    let extended = group.flag("extendedFileMetadata")?;
    let partition_values = group.map("partitionValues")?;
    let size = group.integer("size")?;
    let stats = group.text("stats")?;
    let tags = group.map("tags")?;
    let vector = Vector::of(group)?;
    let base_row_id = group.integer("baseRowId")?;
    let commit_version = group.integer("defaultRowCommitVersion")?;
    for row in 0..group.len() {
        let Some(path) = path.owned(row) else {
            continue;
        };
        sink(CheckpointAction::Action(Action::Remove(Remove {
            path,
            deletion_timestamp: deletion_timestamp.long(row),
            data_change: data_change.get(row).unwrap_or(false),
            extended_file_metadata: extended.get(row),
            partition_values: partition_values.get(row)?,
            size: size.long(row),
            stats: stats.owned(row),
            tags: tags.get(row)?,
            deletion_vector: vector.as_ref().map_or(Ok(None), |v| v.get(row))?,
            base_row_id: base_row_id.long(row),
            default_row_commit_version: commit_version.long(row),
            unknown: Map::new(),
        })))?;
    }
    Ok(())
}

fn read_add(group: &Group<'_>, sink: Sink<'_>) -> Result<(), LogError> {
    let path = group.text("path")?;
    let partition_values = group.map("partitionValues")?;
    let size = group.integer("size")?;
    let modification_time = group.integer("modificationTime")?;
    let data_change = group.flag("dataChange")?;
    let stats = group.text("stats")?;
    let parsed = group.group("stats_parsed")?;
    let parsed = parsed.map(|parsed| ParsedStats::of(parsed.array()));
    let tags = group.map("tags")?;
    let vector = Vector::of(group)?;
    let base_row_id = group.integer("baseRowId")?;
    let commit_version = group.integer("defaultRowCommitVersion")?;
    let clustering_provider = group.text("clusteringProvider")?;
    for row in 0..group.len() {
        let Some(path) = path.owned(row) else {
            continue;
        };
        let stats = stats.owned(row);
        let stats = stats.or_else(|| parsed.as_ref().and_then(|parsed| parsed.json(row)));
        sink(CheckpointAction::Action(Action::Add(Add {
            path,
            partition_values: partition_values.need(partition_values.get(row)?)?,
            size: size.need(size.long(row))?,
            modification_time: modification_time.need(modification_time.long(row))?,
            data_change: data_change.get(row).unwrap_or(false),
            stats,
            tags: tags.get(row)?,
            deletion_vector: vector.as_ref().map_or(Ok(None), |v| v.get(row))?,
            base_row_id: base_row_id.long(row),
            default_row_commit_version: commit_version.long(row),
            clustering_provider: clustering_provider.owned(row),
            unknown: Map::new(),
        })))?;
    }
    Ok(())
}

/// The deletion vector of an add or a remove.
struct Vector<'a> {
    group: Group<'a>,
    storage_type: Column<'a, &'a StringArray>,
    text: Column<'a, &'a StringArray>,
    offset: Column<'a, Integers<'a>>,
    size: Column<'a, Integers<'a>>,
    cardinality: Column<'a, Integers<'a>>,
}

impl<'a> Vector<'a> {
    fn of(file_action: &Group<'a>) -> Result<Option<Self>, LogError> {
        let Some(group) = file_action.group("deletionVector")? else {
            return Ok(None);
        };
        Ok(Some(Vector {
            storage_type: group.text("storageType")?,
            text: group.text("pathOrInlineDv")?,
            offset: group.integer("offset")?,
            size: group.integer("sizeInBytes")?,
            cardinality: group.integer("cardinality")?,
            group,
        }))
    }

    /// Some writers store "none" as a struct of NULLs or of defaults (D21). A vector of which only a part is there
    /// is an error: it must not read as none.
    fn get(&self, row: usize) -> Result<Option<DeletionVectorDescriptor>, LogError> {
        if self.group.is_null(row) {
            return Ok(None);
        }
        let storage_type = self.storage_type.get(row).filter(|text| !text.is_empty());
        let text = self.text.get(row);
        let cardinality = self.cardinality.long(row);
        if storage_type.is_none()
            && text.is_none_or(str::is_empty)
            && matches!(cardinality, None | Some(0))
        {
            return Ok(None);
        }
        Ok(Some(DeletionVectorDescriptor {
            storage_type: self.storage_type.need(storage_type)?.to_owned(),
            path_or_inline_dv: self.text.need(text)?.to_owned(),
            offset: self.offset.int(row)?,
            size_in_bytes: self.size.need(self.size.int(row)?)?,
            cardinality: self.cardinality.need(cardinality)?,
        }))
    }
}

/// Reads a V2 manifest in JSON.
///
/// # Errors
/// As [`read_checkpoint`].
pub fn read_json_manifest(name: &str, body: &[u8], sink: Sink<'_>) -> Result<(), LogError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Line {
        checkpoint_metadata: Option<Version>,
        sidecar: Option<Sidecar>,
    }
    #[derive(Deserialize)]
    struct Version {
        version: i64,
    }
    for (index, text) in body.split(|b| *b == b'\n').enumerate() {
        let text = text.trim_ascii();
        if text.is_empty() {
            continue;
        }
        if let Some(action) = parse_line(name, index + 1, text)? {
            sink(CheckpointAction::Action(action))?;
            continue;
        }
        let line: Line = serde_json::from_slice(text).map_err(|e| LogError::Action {
            file: name.to_owned(),
            line: index + 1,
            reason: e.to_string(),
        })?;
        if let Some(Version { version }) = line.checkpoint_metadata {
            sink(CheckpointAction::CheckpointMetadata { version })?;
        }
        if let Some(sidecar) = line.sidecar {
            sink(CheckpointAction::Sidecar(sidecar))?;
        }
    }
    Ok(())
}
