//! Actions to the Parquet files of a checkpoint, classic or V2.

use std::collections::BTreeMap;
use std::io::Write;

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::rows::{Row, Shape, batch};
use super::{Digest, ParsedColumns, Sidecar};
use crate::deletion_vector::DeletionVectorDescriptor;
use crate::log::{Action, LogError, write_failure};

/// Actions that are encoded at a time, unless [`BATCH_BYTES`] come first.
const BATCH_ROWS: usize = 10_000;

/// Bytes of text that are encoded at a time. An Arrow array takes 2 GiB.
const BATCH_BYTES: usize = 64 << 20;

/// Bytes of text that one action may have.
const MAX_ACTION_BYTES: usize = 1 << 30;

/// Rows that a reader may skip at a time.
const ROW_GROUP_ROWS: usize = 100_000;

/// Encoded bytes that wait for their row group to be full, which is all of them that are in memory.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// What goes into a checkpoint beside the actions.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointOptions<'a> {
    /// `add.stats`.
    pub write_stats_json: bool,
    /// `add.stats_parsed` and `add.partitionValues_parsed`.
    pub parsed: Option<ParsedColumns<'a>>,
}

/// What was written to one file of a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Actions; in a manifest, those that only a manifest has, too.
    pub size: u64,
    pub num_adds: u64,
    pub bytes: u64,
    /// Of what was written, to compare with what is read back.
    pub digest: Digest,
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
    let rows = actions.filter(is_state).map(Row::Action);
    write(out, rows, Shape::Classic, options)
}

/// Writes a sidecar: file actions alone, as [`write_classic`] has them. Other actions are passed over.
///
/// # Errors
/// [`LogError::Write`].
pub fn write_sidecar(
    out: &mut (impl Write + Send),
    actions: impl Iterator<Item = Action>,
    options: &CheckpointOptions<'_>,
) -> Result<CheckpointSummary, LogError> {
    let rows = actions.filter(is_file).map(Row::Action);
    write(out, rows, Shape::Sidecar, options)
}

/// Writes the manifest of a V2 checkpoint of `version` whose file actions are all in `sidecars`: `actions` gives the
/// others, file actions are passed over. `in_sidecars` sums up what the sidecars hold.
///
/// # Errors
/// [`LogError::Write`].
pub fn write_manifest(
    out: &mut (impl Write + Send),
    version: i64,
    sidecars: &[Sidecar],
    in_sidecars: &CheckpointSummary,
    actions: impl Iterator<Item = Action>,
) -> Result<CheckpointSummary, LogError> {
    let tags = [
        ("sidecarNumActions", in_sidecars.size),
        ("sidecarSizeInBytes", in_sidecars.bytes),
        ("numOfAddFiles", in_sidecars.num_adds),
    ];
    let tags = tags.map(|(key, number)| (key.to_owned(), Some(number.to_string())));
    let head = Row::CheckpointMetadata {
        version,
        tags: tags.into(),
    };
    let others = actions.filter(|action| is_state(action) && !is_file(action));
    let rows = std::iter::once(head)
        .chain(sidecars.iter().cloned().map(Row::Sidecar))
        .chain(others.map(Row::Action));
    let options = CheckpointOptions {
        write_stats_json: true,
        parsed: None,
    };
    write(out, rows, Shape::Manifest, &options)
}

fn write(
    out: &mut (impl Write + Send),
    rows: impl Iterator<Item = Row>,
    shape: Shape,
    options: &CheckpointOptions<'_>,
) -> Result<CheckpointSummary, LogError> {
    let mut out = Counted { out, bytes: 0 };
    let schema = batch(&[], shape, options).map_err(|e| write_failure(&e))?;
    let writer_options = ArrowWriterOptions::new()
        .with_skip_arrow_metadata(true)
        .with_schema_root("spark_schema".to_owned())
        .with_properties(properties());
    let mut writer = ArrowWriter::try_new_with_options(&mut out, schema.schema(), writer_options)
        .map_err(|e| write_failure(&e))?;
    let mut summary = CheckpointSummary::default();
    let mut pending = Vec::new();
    let mut pending_bytes = 0;
    let mut encode = |pending: &mut Vec<Row>| {
        let batch = batch(pending, shape, options).map_err(|e| write_failure(&e))?;
        pending.clear();
        writer.write(&batch).map_err(|e| write_failure(&e))?;
        if writer.in_progress_size() > ROW_GROUP_BYTES {
            writer.flush().map_err(|e| write_failure(&e))?;
        }
        Ok(())
    };
    for row in rows {
        let bytes = match &row {
            Row::Action(action) => text_bytes(action),
            Row::CheckpointMetadata { .. } | Row::Sidecar(_) => 0,
        };
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
        if let Row::Action(action) = &row {
            summary.num_adds += u64::from(matches!(action, Action::Add(_)));
            summary.digest.add(action, options.write_stats_json);
        }
        pending_bytes += bytes;
        pending.push(row);
    }
    encode(&mut pending)?;
    writer.close().map_err(|e| write_failure(&e))?;
    summary.bytes = out.bytes;
    Ok(summary)
}

fn is_file(action: &Action) -> bool {
    matches!(action, Action::Add(_) | Action::Remove(_))
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
