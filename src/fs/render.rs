//! The text of control files, made when they are looked at and kept until the table moves.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};

use super::lookup::DirKind;
use super::outcome::Outcome;
use super::{Core, FsError, FsResult, domain};
use crate::env::Millis;
use crate::namespace::{Control, Mode, TIME_FORMS, Verb};
use crate::table::{HistoryEntry, Snapshot, Table, properties, protocol};

/// Content and the time it is from.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) text: Bytes,
    pub(super) mtime_ms: Millis,
}

/// What has been made for the newest version of each table, and its history, which only grows.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<HashMap<PathBuf, Rendered>>);

#[derive(Debug, Default)]
struct Rendered {
    table: String,
    /// By entry: the version for which it was made, and the time of the version since which it is the same.
    texts: HashMap<String, (u64, Content)>,
    history: Arc<Vec<HistoryEntry>>,
}

impl Core {
    /// The content of a control file of `owner`.
    pub(super) fn content(&self, owner: &Path, entry: &Control) -> FsResult<Content> {
        match entry {
            Control::Last => return Ok(self.last(owner, None)),
            Control::Readme => {
                let text = Bytes::from(readme(self.is_table(owner)?));
                return Ok(Content {
                    text,
                    mtime_ms: self.started,
                });
            }
            Control::Verb(verb) => {
                return Ok(match self.outcomes().verb(owner, *verb) {
                    Some(outcome) => Content {
                        text: outcome.text.clone(),
                        mtime_ms: outcome.at,
                    },
                    None => Content {
                        text: usage(*verb).into(),
                        mtime_ms: self.started,
                    },
                });
            }
            _ => {}
        }
        let DirKind::Table(table, snapshot) = self.dir_kind(owner)? else {
            return Err(FsError::NotFound);
        };
        // What an unknown protocol means is unknown, its version and schema included.
        snapshot.check_read().map_err(|e| domain(&e))?;
        let key = entry.path();
        if let Some(content) = self.rendered.get(owner, &snapshot, &key) {
            return Ok(content);
        }
        let text = self.text_of(owner, &table, &snapshot, entry)?;
        Ok(self.rendered.keep(owner, &snapshot, key, text.into()))
    }

    /// What there is to say of a snapshot of any version.
    pub(super) fn text_of(
        &self,
        owner: &Path,
        table: &Table,
        snapshot: &Snapshot,
        entry: &Control,
    ) -> FsResult<String> {
        snapshot.check_read().map_err(|e| domain(&e))?;
        Ok(match entry {
            Control::Version => format!("{}\n", snapshot.version()),
            Control::Info => info(owner, snapshot),
            Control::SchemaJson => schema_json(snapshot),
            Control::History | Control::HistoryJsonl => {
                // Kept for the newest version; an earlier one's is the beginning of it.
                let all = self.history(owner, table, &table.snapshot())?;
                let end = all.partition_point(|e| e.version <= snapshot.version());
                match entry {
                    Control::History => history(&all[..end]),
                    _ => history_jsonl(&all[..end]),
                }
            }
            _ => return Err(FsError::IsDir),
        })
    }

    /// The outcome of the last operation of a user, or of anybody.
    pub(super) fn last(&self, owner: &Path, uid: Option<u32>) -> Content {
        let outcomes = self.outcomes();
        match outcomes.last(owner, uid) {
            Some(Outcome { text, at }) => Content {
                text: text.clone(),
                mtime_ms: *at,
            },
            None => Content {
                text: Bytes::from_static(b"{\"outcome\":\"none yet\"}\n"),
                mtime_ms: self.started,
            },
        }
    }

    fn history(
        &self,
        owner: &Path,
        table: &Table,
        snapshot: &Snapshot,
    ) -> FsResult<Arc<Vec<HistoryEntry>>> {
        let known = self.rendered.history(owner, snapshot);
        let after = known.last().map(|e| e.version);
        let new = table
            .history(after, snapshot.version())
            .map_err(|e| domain(&e))?;
        if new.is_empty() {
            return Ok(known);
        }
        let mut all = Vec::clone(&known);
        all.extend(new);
        let all = Arc::new(all);
        self.rendered.keep_history(owner, snapshot, &all);
        Ok(all)
    }
}

impl Cache {
    fn with<T>(
        &self,
        owner: &Path,
        snapshot: &Snapshot,
        work: impl FnOnce(&mut Rendered) -> T,
    ) -> T {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rendered = cache.entry(owner.to_owned()).or_default();
        if rendered.table != snapshot.metadata().id {
            *rendered = Rendered {
                table: snapshot.metadata().id.clone(),
                ..Rendered::default()
            };
        }
        work(rendered)
    }

    fn get(&self, owner: &Path, snapshot: &Snapshot, key: &str) -> Option<Content> {
        self.with(owner, snapshot, |r| {
            r.texts
                .get(key)
                .filter(|(v, _)| *v == snapshot.version())
                .map(|(_, c)| c.clone())
        })
    }

    /// Content that a new version did not change keeps its time: editors warn otherwise (BUGS.md D114).
    fn keep(&self, owner: &Path, snapshot: &Snapshot, key: String, text: Bytes) -> Content {
        self.with(owner, snapshot, |r| {
            let content = match r.texts.get(&key) {
                Some((_, old)) if old.text == text => old.clone(),
                _ => Content {
                    text,
                    mtime_ms: snapshot.timestamp(),
                },
            };
            r.texts.insert(key, (snapshot.version(), content.clone()));
            content
        })
    }

    fn history(&self, owner: &Path, snapshot: &Snapshot) -> Arc<Vec<HistoryEntry>> {
        self.with(owner, snapshot, |r| {
            // A table that was restored from a backup may be shorter than it was.
            if r.history
                .last()
                .is_some_and(|e| e.version > snapshot.version())
            {
                r.history = Arc::default();
            }
            Arc::clone(&r.history)
        })
    }

    fn keep_history(&self, owner: &Path, snapshot: &Snapshot, history: &Arc<Vec<HistoryEntry>>) {
        self.with(owner, snapshot, |r| {
            if history.len() > r.history.len() {
                r.history = Arc::clone(history);
            }
        });
    }
}

fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

fn info(owner: &Path, snapshot: &Snapshot) -> String {
    let totals = snapshot.totals();
    let metadata = snapshot.metadata();
    let rows = (totals.uncounted == 0).then(|| totals.records.saturating_sub(totals.deleted));
    let writing = snapshot.check_write().err().map(|e| e.to_string());
    pretty(&json!({
        "id": metadata.id,
        "name": metadata.name.clone().or_else(|| Some(owner.file_name()?.to_string_lossy().into_owned())),
        "description": metadata.description,
        "version": snapshot.version(),
        "timestamp_ms": snapshot.timestamp(),
        "protocol": {
            "minReaderVersion": snapshot.protocol().min_reader_version,
            "minWriterVersion": snapshot.protocol().min_writer_version,
        },
        "features": protocol::feature_names(snapshot.protocol()),
        "writing_refused": writing,
        "isolation_level": properties::isolation_level(metadata).name(),
        "partition_columns": metadata.partition_columns,
        "properties": metadata.configuration,
        "files": totals.files,
        "bytes": totals.bytes,
        "rows": rows,
        "deleted_rows": totals.deleted,
        "files_without_row_count": totals.uncounted,
        "last_checkpoint": snapshot.checkpoint(),
    }))
}

fn schema_json(snapshot: &Snapshot) -> String {
    match serde_json::from_str::<Value>(&snapshot.metadata().schema_string) {
        Ok(schema) => pretty(&schema),
        Err(_) => snapshot.metadata().schema_string.clone(),
    }
}

/// `2026-11-30T12:00:00.000Z`
fn utc(ms: Millis) -> String {
    chrono::DateTime::from_timestamp_millis(ms).map_or_else(
        || ms.to_string(),
        |t| t.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
    )
}

fn history(entries: &[HistoryEntry]) -> String {
    let mut out = String::new();
    for entry in entries.iter().rev() {
        let operation = entry.info.text("operation").unwrap_or("-");
        let mut line = format!("{}  {}  {operation}", entry.version, utc(entry.timestamp));
        for key in ["operationParameters", "operationMetrics"] {
            if let Some(Value::Object(fields)) = entry.info.0.get(key) {
                for (name, value) in fields {
                    let value = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    let _ = write!(line, "  {name}={}", one_line(&value));
                }
            }
        }
        if let Some(text) = entry.info.text("userMetadata") {
            let _ = write!(line, "  userMetadata={}", one_line(text));
        }
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Text without line breaks and other control characters.
fn one_line(text: &str) -> String {
    let plain = |c: char| {
        if c.is_control() {
            c.escape_debug().to_string()
        } else {
            c.to_string()
        }
    };
    text.chars().map(plain).collect()
}

fn history_jsonl(entries: &[HistoryEntry]) -> String {
    let mut out = String::new();
    for entry in entries.iter().rev() {
        let mut object = serde_json::Map::new();
        object.insert("version".to_owned(), json!(entry.version));
        object.insert("timestamp_ms".to_owned(), json!(entry.timestamp));
        object.insert("commitInfo".to_owned(), Value::Object(entry.info.0.clone()));
        out.push_str(&Value::Object(object).to_string());
        out.push('\n');
    }
    out
}

pub(super) fn usage(verb: Verb) -> String {
    format!(
        "# {}: {}\n# {}\n",
        verb.name(),
        verb.grammar(),
        verb.example()
    )
}

const TRANSACTIONS: &str = "\nSeveral steps as one version:\n\
    \x20 mkdir .delta/tx/load1                       begins: the directory is the table as it is now\n\
    \x20 cp *.parquet .delta/tx/load1/               files dropped, replaced or removed there, and\n\
    \x20 echo 'id < 5' > .delta/tx/load1/ctl/delete  statements written there, show in that directory only\n\
    \x20 echo commit > .delta/tx/load1/commit        commits all of it as one version, or nothing of it\n\
    \x20 rmdir .delta/tx/load1                       aborts it, or clears away one that is over\n\
    commit, outcome, ctl/ and in/ are reachable by name, not listed. `outcome` is one JSON object: what is staged, then what\n\
    became of it. A conflict with versions of others (EBUSY) ends it. It is aborted by the end of the mount, and when it is\n\
    left alone for too long (an hour, or --transaction-idle).\n";

fn readme(table: bool) -> String {
    let mut out = String::from(
        "deltafs: this directory tree is a warehouse of Delta Lake tables.\n\n\
         A table is a directory of Parquet files. Each of these is one transaction:\n\
         \x20 cp new.parquet TABLE/                append its rows (exit status 0: committed and durable)\n\
         \x20 cp new.parquet TABLE/live.parquet    replace the rows of live.parquet\n\
         \x20 rm TABLE/live.parquet                remove its rows\n\
         \x20 mkdir NEW; cp x.parquet NEW/         create a table\n\
         A name that starts with `.` or `_`, or does not end in .parquet, is private scratch until it is renamed\n\
         to *.parquet; that rename is its commit. A copy that fails is kept in .delta/rejected with the reason.\n",
    );
    if !table {
        out.push_str(
            "\nHere, .delta/last is the outcome of your last operation in this directory, and .delta/rejected/ has the\n\
             files that were refused, each with NAME.reason.\n",
        );
        out.push_str(
            "\nEvery table has a control directory TABLE/.delta (reachable by name, not listed); start with\n\
             \x20 cat TABLE/.delta/README\n",
        );
        return out;
    }
    out.push_str(
        "\nIn .delta/\n\
         \x20 version            number of the newest version\n\
         \x20 info.json          id, features, properties, files, rows, bytes\n\
         \x20 history            one line a version, newest first; history.jsonl has the whole commitInfo\n\
         \x20 schema.json        the schema as Delta has it\n\
         \x20 last               outcome of your last operation on this table, one JSON object\n\
         \x20 rejected/          files that were refused, each with NAME.reason; rm them when done\n\
         \x20 versions/N/        the table as of version N, read-only; listed are those that can still be opened\n\
         \x20 at/TIME/           the table as it was at that time, read-only; after the last commit, as it is now\n\
         \x20 raw/               the physical table, read-only, for Delta readers\n\
         \x20 tx/NAME/           a transaction of several steps; mkdir begins one\n",
    );
    for mode in Mode::ALL {
        let _ = writeln!(
            out,
            "  in/{:<15} {}",
            format!("{}/", mode.name()),
            mode.meaning()
        );
    }
    let _ = write!(
        out,
        "\n\
         A TIME is {TIME_FORMS}:\n\
         \x20 cp -r .delta/versions/3 /tmp/v3; ls .delta/at/2026-11-30T12:00:00Z\n\
         Each version has a .delta with its version, info.json, history, history.jsonl and schema.json. The data of earlier\n\
         versions lasts until VACUUM: opening a file that it has removed is an I/O error.\n"
    );
    out.push_str(
        "\nStatements: one write, one statement; the exit status says whether it was committed.\n",
    );
    for verb in Verb::ALL {
        let _ = writeln!(
            out,
            "  ctl/{:<14} {}\n      {}",
            verb.name(),
            verb.grammar(),
            verb.example()
        );
    }
    out.push_str(TRANSACTIONS);
    out.push_str(
        "\nLines before the statement: `-- userMetadata: TEXT` goes into the history; `-- txnAppId: NAME` with\n\
         `-- txnVersion: NUMBER` commits nothing when that application has committed that number or a later one already;\n\
         `-- retries: NUMBER` runs it again on the newest version after a conflict. A statement reads the version that was\n\
         the newest one when its handle was opened; EBUSY says that somebody else was first and in its way, with the\n\
         exception, the winner, the file and the rows in the result. Read the verb's file or `last` for the result.\n\
         `echo` reports errors; `printf` without a final newline runs at close, where shells do not.\n\
         A statement of several lines needs a here-document: `echo` and `printf` of a shell send each line as a statement\n\
         of its own, and the first would run alone. Columns with odd names stand in back-ticks, text in single quotes.\n",
    );
    out
}
