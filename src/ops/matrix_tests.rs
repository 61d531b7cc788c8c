//! Both matrices of PROTOCOL.md F4, cell by cell: every loser against every winner, at both levels, partitioned and
//! not, with vectors and without, where they clash and where they don't.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use super::{Delete, Options, rewrite, scan};
use crate::deletion_vector::RowSet;
use crate::env::Env;
use crate::log::{Action, Add, LogName};
use crate::store::Dir;
use crate::table::{
    Bin, Class, LiveFile, Operation, Outcome, ReadSet, Reads, Snapshot, Source, Staged, Table,
    TableError,
};

/// How a table is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) partitioned: bool,
    pub(super) vectors: bool,
    pub(super) serializable: bool,
}

impl Layout {
    /// F3: automatically.
    fn row_level(self) -> bool {
        self.vectors && !self.partitioned
    }
}

/// A transaction. The table has the files A (ids 0 to 9, partition `a`), B (100 to 109, `b`) and a second one of each
/// partition, A2 (20 to 29) and B2 (120 to 129).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// A blind append of one row to a partition.
    Insert(i64, &'static str),
    /// DELETE of one row of a partition; the condition names both.
    Delete(i64, &'static str),
    /// DELETE of every row of the file with this id; the condition names the partition and the ids of the file.
    DeleteFile(i64, &'static str),
    /// UPDATE of one row of a partition that gives it another id.
    Update(i64, i64, &'static str),
    /// Compaction of both files of a partition, in order.
    Optimize(&'static str),
    /// The same with its rows in another order.
    Zorder(&'static str),
    /// Another property.
    Alter,
    /// Another protocol.
    Upgrade,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Fine,
    /// It has nothing left to do.
    Superseded,
    Fails(Class),
}

use Act::*;
use Expected::{Fails, Fine, Superseded};

/// What a version is, in the words of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letter {
    I,
    D,
    O,
    Z,
    M,
}

impl Act {
    fn letter(self) -> Letter {
        match self {
            Insert(..) => Letter::I,
            Delete(..) | DeleteFile(..) | Update(..) => Letter::D,
            Optimize(_) => Letter::O,
            Zorder(_) => Letter::Z,
            Alter | Upgrade => Letter::M,
        }
    }

    fn partition(self) -> Option<&'static str> {
        match self {
            Insert(_, p) | Delete(_, p) | DeleteFile(_, p) | Update(_, _, p) => Some(p),
            Optimize(p) | Zorder(p) => Some(p),
            Alter | Upgrade => None,
        }
    }

    /// The first ids of the files that it changes.
    fn files(self) -> BTreeSet<i64> {
        let both = |p| if p == "a" { [0, 20] } else { [100, 120] };
        match self {
            Insert(..) | Alter | Upgrade => BTreeSet::new(),
            Delete(id, _) | DeleteFile(id, _) | Update(id, ..) => [id / 10 * 10].into(),
            Optimize(p) | Zorder(p) => both(p).into(),
        }
    }

    /// Rows whose values its condition selects.
    fn selects(self, id: i64, partition: &str) -> bool {
        match self {
            Delete(one, p) | Update(one, _, p) => one == id && p == partition,
            DeleteFile(one, p) => one / 10 == id / 10 && p == partition,
            Insert(..) | Optimize(_) | Zorder(_) | Alter | Upgrade => false,
        }
    }

    /// Rows that it adds with their partition.
    fn adds(self) -> Option<(i64, &'static str)> {
        match self {
            Insert(id, p) | Update(_, id, p) => Some((id, p)),
            Delete(..) | DeleteFile(..) | Optimize(_) | Zorder(_) | Alter | Upgrade => None,
        }
    }

    /// Whether it leaves new entries with changed rows in its partition.
    fn adds_files(self) -> bool {
        match self {
            Insert(..) | Update(..) => true,
            // The vector of a file, or the rest of it.
            Delete(..) => true,
            DeleteFile(..) | Optimize(_) | Zorder(_) | Alter | Upgrade => false,
        }
    }
}

/// The cell of F4, read aloud.
fn expected(layout: Layout, loser: Act, winner: Act) -> Expected {
    use Letter::*;
    let same_file = !loser.files().is_disjoint(&winner.files());
    let partition = !layout.partitioned || loser.partition() == winner.partition();
    match (loser.letter(), winner.letter()) {
        (_, M) => Fails(match winner {
            Upgrade => Class::ProtocolChanged,
            _ => Class::MetadataChanged,
        }),
        (I | M, _) => Fine,
        (D, I) => {
            let matches = winner.adds().is_some_and(|(id, p)| loser.selects(id, p));
            let reads = if layout.row_level() {
                matches
            } else {
                partition
            };
            match layout.serializable && reads {
                true => Fails(Class::ConcurrentAppend),
                false => Fine,
            }
        }
        (D, D) if layout.row_level() => {
            let wrote = winner.adds().is_some_and(|(id, p)| loser.selects(id, p));
            // Ids tell the rows of the base apart.
            let same_row = (0..200).any(|id| {
                let p = if id < 100 { "a" } else { "b" };
                loser.selects(id, p) && winner.selects(id, p)
            });
            match (wrote, same_row) {
                (true, _) => Fails(Class::ConcurrentAppend),
                (false, true) => Fails(Class::ConcurrentDeleteRead),
                (false, false) => Fine,
            }
        }
        (D, D) => {
            if partition && winner.adds_files() {
                return Fails(Class::ConcurrentAppend);
            }
            match same_file {
                true => Fails(Class::ConcurrentDeleteRead),
                false => Fine,
            }
        }
        (D, O) if layout.vectors => Fine,
        (D, O | Z) if same_file => Fails(Class::ConcurrentDeleteRead),
        (O | Z, I) => Fine,
        (O, D) if layout.vectors => Fine,
        (O, O | Z) if layout.vectors && same_file => Superseded,
        (O | Z, D | O | Z) if same_file => Fails(Class::ConcurrentDeleteDelete),
        (D | O | Z, D | O | Z) => Fine,
    }
}

pub(super) struct Made {
    guard: tempfile::TempDir,
}

pub(super) fn scratch() -> std::io::Result<File> {
    tempfile::tempfile()
}

impl Made {
    pub(super) fn new(layout: Layout) -> Self {
        Self::tracked(layout, false)
    }

    /// With row ids, or without.
    pub(super) fn tracked(layout: Layout, tracked: bool) -> Self {
        let guard = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let made = Made {
            guard: guard.unwrap(),
        };
        std::fs::create_dir(made.path().join("_delta_log")).unwrap();
        let field = |name: &str, kind: &str| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
        let schema =
            json!({"type": "struct", "fields": [field("id", "long"), field("p", "string")]});
        let mut properties = BTreeMap::new();
        properties.insert("delta.enableDeletionVectors", layout.vectors.to_string());
        if layout.serializable {
            properties.insert("delta.isolationLevel", "Serializable".to_owned());
        }
        let mut features = vec!["deletionVectors", "appendOnly"];
        if tracked {
            features.extend(["rowTracking", "domainMetadata"]);
            properties.extend([
                ("delta.enableRowTracking", "true".to_owned()),
                (
                    "delta.rowTracking.materializedRowIdColumnName",
                    "_id".to_owned(),
                ),
                (
                    "delta.rowTracking.materializedRowCommitVersionColumnName",
                    "_version".to_owned(),
                ),
            ]);
        }
        let partition: &[&str] = if layout.partitioned { &["p"] } else { &[] };
        let mut lines = vec![
            json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"], "writerFeatures": features}}),
            json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
                "schemaString": schema.to_string(), "partitionColumns": partition, "configuration": properties}}),
        ];
        if tracked {
            let mark = json!({"rowIdHighWaterMark": 39}).to_string();
            lines.push(json!({"domainMetadata": {"domain": "delta.rowTracking", "configuration": mark, "removed": false}}));
        }
        for (first, p) in [(0, "a"), (20, "a"), (100, "b"), (120, "b")] {
            let ids: Vec<i64> = (first..first + 10).collect();
            let mut add = made.file(&format!("f{first:03}"), layout, &ids, p);
            if tracked {
                add.base_row_id = Some(first % 100 / 2 + if first < 100 { 0 } else { 20 });
                add.default_row_commit_version = Some(0);
            }
            lines.push(json!({ "add": add }));
        }
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        let commit = made.path().join("_delta_log").join(LogName::commit(0));
        std::fs::write(commit, lines.join("\n")).unwrap();
        made
    }

    pub(super) fn path(&self) -> &Path {
        self.guard.path()
    }

    pub(super) fn open(&self) -> Table {
        Table::open(Dir::open(self.path()).unwrap(), Env::real()).unwrap()
    }

    /// A data file in the table's directory.
    pub(super) fn file(&self, name: &str, layout: Layout, ids: &[i64], p: &str) -> Add {
        let path = format!("{name}.parquet");
        let ids_column: ArrayRef = Arc::new(Int64Array::from(ids.to_vec()));
        let mut columns = vec![("id", ids_column)];
        if !layout.partitioned {
            let p: ArrayRef = Arc::new(StringArray::from(vec![p; ids.len()]));
            columns.push(("p", p));
        }
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = File::create_new(self.path().join(&path)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let size = std::fs::metadata(self.path().join(&path)).unwrap().len();
        let mut bounds = json!({"numRecords": ids.len(), "minValues": {"id": ids.iter().min()},
            "maxValues": {"id": ids.iter().max()}, "nullCount": {"id": 0}});
        if !layout.partitioned {
            bounds["minValues"]["p"] = json!(p);
            bounds["maxValues"]["p"] = json!(p);
        }
        let values = if layout.partitioned {
            json!({"p": p})
        } else {
            json!({})
        };
        serde_json::from_value(
            json!({"path": path, "partitionValues": values, "size": size, "modificationTime": 1,
            "dataChange": true, "stats": bounds.to_string()}),
        )
        .unwrap()
    }

    /// Version 1 by another system: both files of the partition `a` in one, `sorted` backwards, with the ids that the
    /// rows had if they had any.
    pub(super) fn foreign_compaction(&self, base: &Snapshot, tracked: bool, sorted: bool) {
        let mut order: Vec<i64> = (0..10).chain(20..30).collect();
        if sorted {
            order.reverse();
        }
        let row_ids = order.iter().map(|id| if *id < 10 { *id } else { id - 10 });
        let row_ids: ArrayRef = Arc::new(Int64Array::from_iter_values(row_ids));
        let versions: ArrayRef = Arc::new(Int64Array::from(vec![0; 20]));
        let ids: ArrayRef = Arc::new(Int64Array::from(order));
        let p: ArrayRef = Arc::new(StringArray::from(vec!["a"; 20]));
        let mut columns = vec![("id", ids), ("p", p)];
        if tracked {
            columns.extend([("_id", row_ids), ("_version", versions)]);
        }
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = File::create_new(self.path().join("theirs.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let mut lines = vec![json!({"commitInfo": {"operation": "OPTIMIZE", "timestamp": 5}})];
        for name in files_of("a") {
            let live = base.live_file_of(&format!("{name}.parquet")).unwrap();
            lines.push(json!({"remove": live.add.to_remove(1, false)}));
        }
        let mut add = json!({"path": "theirs.parquet", "partitionValues": {}, "size": 1000, "modificationTime": 1,
            "dataChange": false, "stats": "{\"numRecords\":20}"});
        if tracked {
            add["baseRowId"] = json!(40);
            add["defaultRowCommitVersion"] = json!(1);
            let mark = json!({"rowIdHighWaterMark": 59}).to_string();
            lines.push(json!({"domainMetadata": {"domain": "delta.rowTracking", "configuration": mark, "removed": false}}));
        }
        lines.push(json!({ "add": add }));
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        let commit = self.path().join("_delta_log").join(LogName::commit(1));
        std::fs::write(commit, lines.join("\n")).unwrap();
    }

    /// Stages a transaction against a snapshot.
    pub(super) fn stage(
        &self,
        table: &Table,
        base: &Arc<Snapshot>,
        act: Act,
        layout: Layout,
    ) -> Staged {
        let name = |what: &str| format!("{what}-{}", table.env().uuid());
        match act {
            Insert(id, p) => {
                let add = self.file(&name("insert"), layout, &[id], p);
                Staged::append(vec![Action::Add(add)], Operation::new("WRITE"))
            }
            Delete(id, p) => self.deleting(table, base, &format!("p = '{p}' AND id = {id}")),
            DeleteFile(id, p) => {
                let first = id / 10 * 10;
                let (from, to) = (first, first + 10);
                let text = format!("p = '{p}' AND id >= {from} AND id < {to}");
                self.deleting(table, base, &text)
            }
            Update(id, new, p) => {
                let mut staged = self.deleting(table, base, &format!("p = '{p}' AND id = {id}"));
                let add = self.file(&name("update"), layout, &[new], p);
                staged.actions.push(Action::Add(add));
                staged.operation.name = "UPDATE";
                staged
            }
            Optimize(p) => self.compacting(table, base, layout, p, files_of(p), true),
            Zorder(p) => self.compacting(table, base, layout, p, files_of(p), false),
            Alter => {
                let mut metadata = base.metadata().clone();
                let now = table.env().uuid().to_string();
                metadata.configuration.insert("user.key".to_owned(), now);
                let actions = vec![Action::MetaData(metadata)];
                let operation = Operation::new("SET TBLPROPERTIES");
                Staged::with(actions, operation, Reads::Known(ReadSet::default()))
            }
            Upgrade => {
                let mut protocol = base.protocol().clone();
                let features = protocol.writer_features.get_or_insert_default();
                features.push("changeDataFeed".to_owned());
                let actions = vec![Action::Protocol(protocol)];
                let operation = Operation::new("UPGRADE PROTOCOL");
                Staged::with(actions, operation, Reads::Known(ReadSet::default()))
            }
        }
    }

    pub(super) fn deleting(&self, table: &Table, base: &Arc<Snapshot>, predicate: &str) -> Staged {
        let options = Options::default();
        let request = Delete {
            predicate,
            options: &options,
        };
        let mut written = Vec::new();
        let staged = super::delete::stage(table, base, &request, &scratch, &mut written);
        staged.unwrap().expect("it selects something")
    }

    /// A compaction of files of a partition, made by hand.
    pub(super) fn compacting(
        &self,
        table: &Table,
        base: &Arc<Snapshot>,
        layout: Layout,
        p: &str,
        files: &[&str],
        in_order: bool,
    ) -> Staged {
        let mut ids = Vec::new();
        let mut sources = Vec::new();
        for first in files {
            let file = base.live_file_of(&format!("{first}.parquet")).unwrap();
            let dead = table.dead_rows(&file).unwrap();
            let start = ids.len() as u64;
            ids.extend(ids_of(table, base, &file, &dead));
            sources.push(Source {
                vector: file.add.deletion_vector.clone(),
                file,
                dead,
                start,
                rows: ids.len() as u64 - start,
                live: true,
            });
        }
        if !in_order {
            ids.reverse();
        }
        let mut add = self.file(&format!("bin-{}", table.env().uuid()), layout, &ids, p);
        add.data_change = false;
        let operation = Operation::new("OPTIMIZE");
        let reads = Reads::Known(ReadSet::default());
        let mut staged = Staged::with(Vec::new(), operation, reads);
        staged.bins.push(Bin {
            path: add.path.clone(),
            add,
            sources,
            dead: RowSet::new(),
            in_order,
        });
        staged
    }
}

fn files_of(p: &str) -> &'static [&'static str] {
    if p == "a" {
        &["f000", "f020"]
    } else {
        &["f100", "f120"]
    }
}

fn ids_of(table: &Table, base: &Snapshot, file: &LiveFile, dead: &RowSet) -> Vec<i64> {
    let columns = ["id".to_owned()];
    let reader = rewrite::open(table, base, file, base.schema(), &columns, dead).unwrap();
    let mut ids = Vec::new();
    for batch in reader {
        let (batch, _) = batch.unwrap();
        ids.extend(batch.column(0).as_primitive::<Int64Type>().values());
    }
    ids
}

/// The rows of the newest version, read anew.
pub(super) fn rows(made: &Made) -> Vec<(i64, String)> {
    let table = made.open();
    let mut rows = Vec::new();
    for batch in scan(&table, &table.snapshot()).unwrap() {
        let batch = batch.unwrap();
        let ids = batch.column_by_name("id").unwrap().clone();
        let ps = batch.column_by_name("p").unwrap().clone();
        let ps = arrow::compute::cast(&ps, &arrow::datatypes::DataType::Utf8).unwrap();
        for (id, p) in ids
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .zip(ps.as_string::<i32>())
        {
            rows.push((*id, p.unwrap().to_owned()));
        }
    }
    rows.sort();
    rows
}

/// What both transactions come to when both are committed: neither sees the other's rows.
pub(super) fn model(acts: &[Act]) -> Vec<(i64, String)> {
    let base = (0..10).chain(20..30).chain(100..110).chain(120..130);
    let base = base.map(|id| (id, if id < 100 { "a" } else { "b" }));
    let kept = base.filter(|(id, p)| !acts.iter().any(|act| act.selects(*id, p)));
    let added = acts.iter().filter_map(|act| act.adds());
    let mut rows: Vec<_> = kept
        .chain(added)
        .map(|(id, p)| (id, p.to_owned()))
        .collect();
    rows.sort();
    rows
}

/// Every loser against every winner.
const LOSERS: &[Act] = &[
    Insert(3, "a"),
    Delete(3, "a"),
    DeleteFile(3, "a"),
    Update(3, 33, "a"),
    Optimize("a"),
    Zorder("a"),
    Alter,
    Upgrade,
];

const WINNERS: &[Act] = &[
    // The same row, another one of the same file, of the same partition, of another one.
    Insert(3, "a"),
    Insert(50, "a"),
    Insert(3, "b"),
    Delete(3, "a"),
    Delete(4, "a"),
    Delete(24, "a"),
    Delete(104, "b"),
    DeleteFile(3, "a"),
    DeleteFile(24, "a"),
    DeleteFile(104, "b"),
    Update(3, 34, "a"),
    Update(4, 3, "a"),
    Update(4, 44, "a"),
    Update(104, 144, "b"),
    Optimize("a"),
    Optimize("b"),
    Zorder("a"),
    Zorder("b"),
    Alter,
    Upgrade,
];

fn every_cell(layout: Layout) {
    let mut wrong = Vec::new();
    for &loser in LOSERS {
        for &winner in WINNERS {
            let found = cell(layout, loser, winner);
            let wanted = expected(layout, loser, winner);
            if found != Ok(wanted) {
                wrong.push(format!(
                    "{layout:?}: {loser:?} after {winner:?}: {found:?}, not {wanted:?}"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cells:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The first matrix: row-level concurrency.
#[test]
fn every_cell_with_rows_compared() {
    for serializable in [false, true] {
        every_cell(Layout {
            partitioned: false,
            vectors: true,
            serializable,
        });
    }
}

/// The second matrix.
#[test]
fn every_cell_of_a_partitioned_table_with_vectors() {
    for serializable in [false, true] {
        every_cell(Layout {
            partitioned: true,
            vectors: true,
            serializable,
        });
    }
}

#[test]
fn every_cell_of_a_partitioned_table_without_vectors() {
    for serializable in [false, true] {
        every_cell(Layout {
            partitioned: true,
            vectors: false,
            serializable,
        });
    }
}

#[test]
fn every_cell_of_a_plain_table_without_vectors() {
    for serializable in [false, true] {
        every_cell(Layout {
            partitioned: false,
            vectors: false,
            serializable,
        });
    }
}

/// Both start at version 0; the winner commits version 1, then the loser tries.
fn cell(layout: Layout, loser: Act, winner: Act) -> Result<Expected, String> {
    let made = Made::new(layout);
    let (ours, theirs) = (made.open(), made.open());
    let base = ours.snapshot();
    let mut lost = made.stage(&ours, &base, loser, layout);
    let mut won = made.stage(&theirs, &theirs.snapshot(), winner, layout);
    match theirs.commit(&theirs.snapshot(), &mut won) {
        Ok(Outcome::Committed(snapshot)) if snapshot.version() == 1 => {}
        other => return Err(format!("the winner: {other:?}")),
    }
    let outcome = ours.commit(&base, &mut lost);
    let found = match outcome {
        Ok(Outcome::Committed(snapshot)) if snapshot.version() == 2 => Fine,
        Ok(Outcome::Superseded(snapshot)) if snapshot.version() == 1 => Superseded,
        Err(TableError::Conflict(conflict)) => {
            if conflict.version != 1 || conflict.operation != won.operation.name {
                return Err(format!("{conflict} names another winner"));
            }
            Fails(conflict.class)
        }
        other => return Err(format!("{other:?}")),
    };
    let acts: &[Act] = match found {
        Fine => &[loser, winner],
        Superseded | Fails(_) => &[winner],
    };
    let (rows, model) = (rows(&made), model(acts));
    if rows != model {
        return Err(format!("{found:?}, and the rows are {rows:?}"));
    }
    Ok(found)
}
