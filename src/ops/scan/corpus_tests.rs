//! Every table of the corpus, at every version: schema, protocol and rows, or the right refusal.
//!
//! The newest version is held against the rows that the corpus has beside the table (`expected`), and every version
//! against `corpus.txt`: its rows were compared with what delta-rs, DuckDB and the Rust kernel read when the line was
//! written (`scripts/interop corpus`). `DELTAFS_BLESS=1` writes the file anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType as Arrow, Field, Fields, Schema, TimeUnit};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use serde_json::Value;

use super::testing::{differ, open, read, rows_of};
use crate::error::{Failure as _, Kind};
use crate::schema::{StructType, arrow_schema};

/// Tables in the corpus. A new one is not silently left out.
const TABLES: usize = 74;

/// Tables whose newest version is refused: what kind of error, some of its words, and why that is right.
const REFUSED: &[(&str, Kind, &str, &str)] = &[
    (
        "delta-spark/table-with-dv-large",
        Kind::Corrupt,
        "deletion_vector_afcbf9f8-7558-4a5a-b1e2-7432c30bf452.bin",
        "its vector files have a prefix that the log does not know (a setting of Delta's own tests); see `repaired`",
    ),
    (
        "delta-spark/table-with-dv-special-char",
        Kind::Corrupt,
        "{{FOLDER_WITH_SPECIAL_CHAR}}",
        "the absolute path of its vector is a placeholder that Delta's test fills in; see `repaired`",
    ),
    (
        "negative/crc-malformed",
        Kind::Absent,
        "is not a Delta table",
        "there is a `.crc` file alone, and no commit",
    ),
    (
        "negative/data_err_logs/table_a",
        Kind::Corrupt,
        "of version 13 is not there",
        "the log is whole, but the corpus has none of its data files",
    ),
    (
        "negative/data_err_logs/table_b",
        Kind::Corrupt,
        "of version 13 is not there",
        "commit 7 is missing before the checkpoint, which does no harm; the data files are not in the corpus",
    ),
    (
        "negative/data_err_logs/table_c",
        Kind::Corrupt,
        "version 12 is missing",
        "commit 12 is missing after the checkpoint",
    ),
    (
        "negative/data_err_logs/table_d",
        Kind::Unsupported,
        "catalogOwned",
        "managed by a catalog",
    ),
    (
        "negative/data_err_logs/table_e",
        Kind::Unsupported,
        "catalogOwned",
        "managed by a catalog",
    ),
    (
        "negative/data_err_logs/table_f",
        Kind::Unsupported,
        "catalogOwned",
        "managed by a catalog",
    ),
    (
        "negative/data_err_logs/table_g",
        Kind::Corrupt,
        "of version 9999 is not there",
        "the checkpoint of version 9999 carries the log; the data files are not in the corpus",
    ),
    (
        "negative/data_err_logs/table_h",
        Kind::Unsupported,
        "catalogOwned",
        "managed by a catalog",
    ),
    (
        "negative/data_err_logs/table_i",
        Kind::Unsupported,
        "catalogOwned",
        "as table_h",
    ),
    (
        "negative/deltalog-invalid-protocol-version",
        Kind::Unsupported,
        "reader version 99",
        "from the future",
    ),
    (
        "negative/deltalog-state-reconstruction-without-protocol",
        Kind::Corrupt,
        "no protocol action",
        "no protocol",
    ),
    (
        "negative/simple_table_features",
        Kind::Unsupported,
        "reader version 5",
        "no reader version that exists",
    ),
    (
        "negative/versions-not-contiguous",
        Kind::Corrupt,
        "version 1 is missing",
        "version 1 is missing (and the metaData of version 0 has no schema)",
    ),
];

/// Expected rows with one value written otherwise than the table has it: what they say, and what is right.
const OTHER_VALUES: &[(&str, &str, &str)] = &[
    // The partition value is a timestamp without a zone. Spark's session, seven hours behind UTC, took it for its own
    // time; we take it for UTC (BUGS.md D59), as delta-rs and DuckDB do.
    (
        "kernel-golden/data-reader-partition-values/delta",
        "1631124671000000us",
        "1631099471000000us",
    ),
];

/// As `corpus.txt`, and compared with other readers like it: the first and the newest version, and the other table.
const REPAIRED: [&str; 3] = [
    "2000 rows 06ecde9f",
    "1993 rows 0c9e7cd3",
    "5 rows 882e9fa3",
];

fn corpus() -> Option<PathBuf> {
    let folder = std::env::var_os("DELTAFS_CORPUS").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let folder = fs::canonicalize(folder.unwrap_or_else(beside)).ok();
    if folder.is_none() {
        eprintln!("skipped: no corpus (set DELTAFS_CORPUS)");
    }
    folder
}

/// The directories that have a log, relative to the corpus.
fn tables(corpus: &Path) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), vec![corpus.to_owned()]);
    while let Some(dir) = open.pop() {
        if dir.join("_delta_log").is_dir() {
            let name = dir.strip_prefix(corpus).unwrap();
            found.push(name.to_str().unwrap().to_owned());
            continue;
        }
        let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        open.extend(entries.filter(|path| path.is_dir()));
    }
    found.sort();
    found
}

/// The versions of the log, from the names of its files: the newest may be a checkpoint's.
fn versions(table: &Path) -> Vec<u64> {
    let names = fs::read_dir(table.join("_delta_log")).unwrap();
    let mut versions: Vec<u64> = names
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let (digits, rest) = name.split_at_checked(20)?;
            let counts = rest == ".json" || rest.starts_with(".checkpoint");
            digits.parse().ok().filter(|_| counts)
        })
        .collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

/// A type without nullability and the names that writers give to list items.
fn shape(data_type: &Arrow) -> String {
    match data_type {
        Arrow::Struct(fields) => {
            let members = fields
                .iter()
                .map(|f| format!("{}:{}", f.name(), shape(f.data_type())));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Arrow::List(item) => format!("[{}]", shape(item.data_type())),
        Arrow::Map(entries, _) => match entries.data_type() {
            Arrow::Struct(kv) => {
                let parts: Vec<String> = kv.iter().map(|f| shape(f.data_type())).collect();
                format!("map[{}]", parts.join(","))
            }
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

fn shapes(schema: &Schema) -> Vec<String> {
    let fields = schema.fields().iter();
    let shapes = fields.map(|f| format!("{} {}", f.name(), shape(f.data_type())));
    shapes.collect()
}

// ---- the rows that the corpus expects

/// INT96 as what it is: an instant, and in microseconds, since nanoseconds end in 2262.
fn instants(fields: &Fields) -> Fields {
    let instant = |field: &Arc<Field>| {
        let data_type = match field.data_type() {
            Arrow::Timestamp(TimeUnit::Nanosecond, None) => {
                Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            }
            Arrow::Struct(children) => Arrow::Struct(instants(children)),
            Arrow::List(item) => Arrow::List(Arc::clone(
                &instants(&Fields::from(vec![Arc::clone(item)]))[0],
            )),
            other => other.clone(),
        };
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    fields.iter().map(instant).collect()
}

fn expected(folder: &Path) -> (Vec<String>, Vec<String>) {
    let (mut found, mut texts) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "parquet") {
            continue;
        }
        let file = File::open(path).unwrap();
        let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let plain = ArrowReaderMetadata::load(&file, options()).unwrap();
        let schema = Arc::new(Schema::new(instants(plain.schema().fields())));
        let metadata = ArrowReaderMetadata::load(&file, options().with_schema(schema)).unwrap();
        found = shapes(metadata.schema());
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
        for batch in reader.build().unwrap() {
            texts.extend(rows_of(&batch.unwrap()));
        }
    }
    texts.sort();
    (found, texts)
}

// ---- what the log itself says

/// The newest actions of a kind in the JSON commits, when there is one.
fn last_action(table: &Path, kind: &str) -> Option<Value> {
    let mut last = None;
    for version in versions(table) {
        let commit = table.join(format!("_delta_log/{version:020}.json"));
        let text = fs::read_to_string(commit).unwrap_or_default();
        for line in text.lines() {
            let action: Value = serde_json::from_str(line).unwrap();
            if let Some(found) = action.get(kind) {
                last = Some(found.clone());
            }
        }
    }
    last
}

/// Schema, version and protocol of a readable table against the files of its log.
fn check_log(path: &Path) -> Result<(), String> {
    let table = open(path, None).map_err(|e| e.to_string())?;
    let snapshot = table.snapshot();
    if Some(&snapshot.version()) != versions(path).last() {
        return Err(format!("version {}", snapshot.version()));
    }
    if let Some(metadata) = last_action(path, "metaData") {
        let text = metadata["schemaString"].as_str().unwrap();
        let schema = StructType::from_json(text).unwrap();
        if schema != **snapshot.schema() {
            return Err(format!(
                "schema {}, the log says {text}",
                snapshot.schema().to_json()
            ));
        }
        arrow_schema(&schema).map_err(|e| e.to_string())?;
    }
    if let Some(protocol) = last_action(path, "protocol") {
        let ours = snapshot.protocol();
        let features = |kind: &str| {
            let list = protocol[kind].as_array()?.iter();
            Some(
                list.map(|f| f.as_str().unwrap().to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        let same = protocol["minReaderVersion"] == ours.min_reader_version
            && protocol["minWriterVersion"] == ours.min_writer_version
            && features("readerFeatures") == ours.reader_features
            && features("writerFeatures") == ours.writer_features;
        if !same {
            return Err(format!("protocol {ours:?}, the log says {protocol}"));
        }
    }
    Ok(())
}

/// One line of `corpus.txt`.
fn outcome(path: &Path, version: u64) -> String {
    match read(path, Some(version)) {
        Ok((schema, rows)) => {
            let mut bytes = shapes(&schema).join("\n");
            for row in &rows {
                let _ = write!(bytes, "\n{row}");
            }
            format!(
                "{} rows {:08x}",
                rows.len(),
                crc32fast::hash(bytes.as_bytes())
            )
        }
        // The words for the newest version are in `REFUSED`.
        Err(error) => error.kind().name().to_owned(),
    }
}

#[test]
fn every_table_has_its_schema_protocol_and_expected_rows() {
    let Some(corpus) = corpus() else { return };
    let (mut problems, mut with_expected, mut refused) = (Vec::new(), 0, 0);
    let tables = tables(&corpus);
    for name in &tables {
        let path = corpus.join(name);
        let refusal = REFUSED.iter().find(|(table, ..)| table == name);
        let (schema, rows) = match (read(&path, None), refusal) {
            (Ok(read), None) => read,
            (Ok(_), Some((.., why))) => {
                problems.push(format!("{name} is read, though {why}"));
                continue;
            }
            (Err(error), None) => {
                problems.push(format!("{name}: {error}"));
                continue;
            }
            (Err(error), Some((_, kind, words, _))) => {
                refused += 1;
                if error.kind() != *kind || !error.to_string().contains(words) {
                    problems.push(format!("{name}: {:?}: {error}", error.kind()));
                }
                continue;
            }
        };
        if let Err(problem) = check_log(&path) {
            problems.push(format!("{name}: {problem}"));
        }
        let folder = path.with_file_name("expected");
        if !folder.is_dir() {
            continue;
        }
        with_expected += 1;
        let (types, mut texts) = expected(&folder);
        if let Some((_, theirs, right)) = OTHER_VALUES.iter().find(|(table, ..)| table == name) {
            let before = texts.clone();
            texts
                .iter_mut()
                .for_each(|row| *row = row.replace(theirs, right));
            assert_ne!(before, texts, "{name} expects what it should");
        }
        if shapes(&schema) != types {
            problems.push(format!(
                "{name}: columns {:?}, expected {types:?}",
                shapes(&schema)
            ));
        } else if rows != texts {
            problems.push(format!("{name}: {}", differ(&rows, &texts)));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(tables.len(), TABLES, "{tables:?}");
    assert_eq!((with_expected, refused), (33, REFUSED.len()));
}

#[test]
fn every_version_has_the_rows_that_other_readers_saw() {
    let Some(corpus) = corpus() else { return };
    let (mut found, mut lines) = (BTreeMap::new(), String::new());
    for name in tables(&corpus) {
        for version in versions(&corpus.join(&name)) {
            let outcome = outcome(&corpus.join(&name), version);
            let _ = writeln!(lines, "{name} {version}: {outcome}");
            found.insert(format!("{name} {version}"), outcome);
        }
    }
    if std::env::var_os("DELTAFS_BLESS").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops/scan/corpus.txt");
        fs::write(file, &lines).unwrap();
        return;
    }
    let known = include_str!("corpus.txt").lines();
    let known: BTreeMap<String, String> = known
        .map(|line| line.split_once(": ").unwrap())
        .map(|(what, outcome)| (what.to_owned(), outcome.to_owned()))
        .collect();
    let differ: Vec<String> = found
        .iter()
        .filter(|(what, outcome)| known.get(*what) != Some(outcome))
        .map(|(what, outcome)| format!("{what}: {outcome}, was {:?}", known.get(what)))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert_eq!(found.len(), known.len(), "versions");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Two tables whose vector files do not lie where their logs say are read once the files do.
#[test]
fn repaired_tables_are_read() {
    let Some(corpus) = corpus() else { return };
    let guard = tempfile::tempdir().unwrap();
    let large = guard.path().join("large");
    copy(&corpus.join("delta-spark/table-with-dv-large"), &large);
    for entry in fs::read_dir(&large).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some(at) = name.find("deletion_vector_") {
            fs::rename(&path, large.join(&name[at..])).unwrap();
        }
    }
    let special = guard.path().join("special");
    copy(
        &corpus.join("delta-spark/table-with-dv-special-char"),
        &special,
    );
    let commit = special.join("_delta_log/00000000000000000000.json");
    let folder = format!("//{}/folder&with%25special%20char", special.display());
    let text = fs::read_to_string(&commit).unwrap();
    fs::write(
        &commit,
        text.replace("{{FOLDER_WITH_SPECIAL_CHAR}}", &folder),
    )
    .unwrap();
    let outcomes = [outcome(&large, 0), outcome(&large, 4), outcome(&special, 0)];
    assert_eq!(outcomes, REPAIRED);
}
