//! A process that dies at each named place of each operation: all of its work is there or nothing of it, the table
//! opens, and others go on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{Append, Delete, Options, Replaces, append, checkpoint, create_from, delete};
use crate::env::Env;
use crate::failpoint::{self, Point, crash_at};
use crate::log::{Action, LOG_DIR};
use crate::settings::TableFeatures;
use crate::store::Dir;
use crate::table::{DataPath, Operation, Staged, Table, TableError};
use crate::testkit::files::{contents, folder, names, write_parquet};
use crate::testkit::model::Row;
use crate::testkit::observe::{self, Version};
use crate::testkit::strategy::{Shape, create};

/// What is done to a table with the rows 1 to 6 in `one.parquet` and 7 to 9 in `two.parquet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Append,
    /// Files in two partitions.
    Split,
    /// Rows of both files.
    Delete,
    /// A file that loses its last rows.
    DeleteFile,
    Replace,
    Remove,
    Rename,
    /// Three appends in one version.
    Group,
}

const WORK: [Work; 8] = [
    Work::Append,
    Work::Split,
    Work::Delete,
    Work::DeleteFile,
    Work::Replace,
    Work::Remove,
    Work::Rename,
    Work::Group,
];

struct Made {
    guard: tempfile::TempDir,
    env: Env,
    partitioned: bool,
}

fn row(id: i64) -> Row {
    Row {
        id,
        k: id % 3,
        p: if id % 2 == 0 { 'a' } else { 'b' },
        n: 0,
    }
}

impl Made {
    fn new(vectors: bool, partitioned: bool) -> Self {
        let made = Made {
            guard: folder(),
            env: Env::fixed(1_000_000),
            partitioned,
        };
        let shape = Shape {
            vectors,
            partitioned,
            serializable: false,
            modern: false,
            interval: None,
            real: true,
            clients: 0,
            transactions: 0,
        };
        create(made.path(), &shape);
        let table = made.open();
        made.put(&table, "one.parquet", 1..7, Replaces::Nothing)
            .unwrap();
        made.put(&table, "two.parquet", 7..10, Replaces::Nothing)
            .unwrap();
        made
    }

    fn path(&self) -> &Path {
        self.guard.path()
    }

    fn open(&self) -> Table {
        Table::open(Dir::open(self.path()).unwrap(), self.env.clone()).unwrap()
    }

    fn put(
        &self,
        table: &Table,
        name: &str,
        ids: std::ops::Range<i64>,
        replaces: Replaces<'_>,
    ) -> Result<u64, super::OpError> {
        let directory = self.path().to_owned();
        let scratch = move || tempfile::tempfile_in(&directory);
        let input = scratch().unwrap();
        // In a partitioned table all go to one partition, unless the file is to be split.
        let split = name == "split.parquet";
        let rows: Vec<Row> = ids.map(row).collect();
        write_parquet(
            input.try_clone().unwrap(),
            &rows,
            !self.partitioned || split,
        );
        let fixed = BTreeMap::from([("p".to_owned(), Some("a".to_owned()))]);
        let fixed = if self.partitioned && !split {
            fixed
        } else {
            BTreeMap::new()
        };
        let request = Append {
            input: &input,
            name,
            fixed: &fixed,
            stored: &format!("{}.parquet", table.env().uuid()),
            replaces,
            scratch: &scratch,
        };
        Ok(append(table, &request)?.report.version.unwrap())
    }

    fn delete(&self, table: &Table, predicate: &str) -> Option<u64> {
        let directory = self.path().to_owned();
        let scratch = move || tempfile::tempfile_in(&directory);
        let request = Delete {
            predicate,
            options: &Options::default(),
        };
        delete(table, &request, None, &scratch).unwrap().version
    }

    fn visible(&self, name: &str) -> String {
        match self.partitioned {
            true => format!("p=a/{name}"),
            false => name.to_owned(),
        }
    }

    fn live(&self, table: &Table, name: &str) -> DataPath {
        let file = table.snapshot().named(&self.visible(name));
        file.unwrap().path.clone()
    }

    fn run(&self, table: &Table, work: Work) {
        match work {
            Work::Append => {
                self.put(table, "new.parquet", 20..23, Replaces::Nothing)
                    .unwrap();
            }
            Work::Split => {
                self.put(table, "split.parquet", 20..24, Replaces::Nothing)
                    .unwrap();
            }
            Work::Delete => {
                self.delete(table, "id IN (2, 3, 8)").unwrap();
            }
            Work::DeleteFile => {
                self.delete(table, "id IN (2, 7, 8, 9)").unwrap();
            }
            Work::Replace => {
                let name = self.visible("one.parquet");
                self.put(table, "one.parquet", 20..23, Replaces::Live(&name))
                    .unwrap();
            }
            Work::Remove => {
                super::remove(table, &self.live(table, "two.parquet")).unwrap();
            }
            Work::Rename => {
                super::rename(table, &self.live(table, "two.parquet"), "three.parquet").unwrap();
            }
            Work::Group => self.group(table, None),
        }
    }

    /// Appends that wait together; whoever commits them dies.
    fn group(&self, table: &Table, point: Option<Point>) {
        let base = table.refresh().unwrap();
        std::thread::scope(|scope| {
            let turn = table.hold_turn();
            for index in 0..3 {
                let base = &base;
                let mut add = base.live_files().next().unwrap().add.clone();
                add.path = format!("group{index}.parquet");
                add.stats = Some(r#"{"numRecords":1}"#.to_owned());
                add.tags = None;
                if self.partitioned {
                    add.path = format!("p=a/{}", add.path);
                }
                let out = std::fs::File::create(self.path().join(&add.path)).unwrap();
                write_parquet(out, &[row(20 + index)], !self.partitioned);
                scope.spawn(move || {
                    let mut staged =
                        Staged::append(vec![Action::Add(add)], Operation::new("WRITE"));
                    let outcome = match point {
                        Some(point) => crash_at(point, || table.commit(base, &mut staged)),
                        None => Some(table.commit(base, &mut staged)),
                    };
                    let died_with_it =
                        matches!(outcome, None | Some(Err(TableError::Unknown { .. })));
                    assert!(died_with_it == point.is_some(), "{outcome:?}");
                });
                while table.waiting_appends() <= usize::try_from(index).unwrap() {
                    std::thread::yield_now();
                }
            }
            drop(turn);
        });
    }

    /// Whether it died.
    fn crash(&self, table: &Table, work: Work, point: Point) -> bool {
        match work {
            // They do not place their files through an operation, and vectors are nobody's there.
            Work::Group if matches!(point, Point::DataWritten | Point::VectorsWritten) => false,
            Work::Group => {
                self.group(table, Some(point));
                true
            }
            _ => crash_at(point, || self.run(table, work)).is_none(),
        }
    }

    /// The versions, replayed in the plainest way and as a new mount opens them.
    fn observe(&self) -> Vec<Version> {
        let versions = observe::observe(self.path(), &contents(self.path())).unwrap();
        observe::reopen(&self.open(), &versions, 0..versions.len() as u64).unwrap();
        versions
    }

    fn files(&self) -> Vec<String> {
        names(self.path())
    }
}

/// The ids in the newest version.
fn ids(versions: &[Version]) -> Vec<i64> {
    versions
        .last()
        .unwrap()
        .state
        .rows
        .keys()
        .copied()
        .collect()
}

/// What the work comes to where nobody dies.
fn expected(vectors: bool, partitioned: bool, work: Work) -> (Vec<i64>, Vec<i64>) {
    let made = Made::new(vectors, partitioned);
    let before = ids(&made.observe());
    made.run(&made.open(), work);
    (before, ids(&made.observe()))
}

#[test]
fn all_or_nothing_at_every_point() {
    let mut met: BTreeMap<String, usize> = BTreeMap::new();
    for (vectors, partitioned) in [(true, false), (false, false), (true, true)] {
        for work in WORK {
            if work == Work::Split && !partitioned {
                continue;
            }
            let (before, after) = expected(vectors, partitioned, work);
            for point in failpoint::TRANSACTION {
                let what =
                    format!("{work:?} at {point:?}, vectors {vectors}, partitioned {partitioned}");
                let made = Made::new(vectors, partitioned);
                // Another mount, which has it open all the time.
                let other = made.open();
                let table = made.open();
                let crashed = made.crash(&table, work, *point);
                *met.entry(format!("{point:?} {crashed}")).or_insert(0) += 1;
                drop(table);
                let versions = made.observe();
                let done = !crashed && work != Work::Group || crashed && point.is_committed();
                let is = if done { &after } else { &before };
                assert_eq!(&ids(&versions), is, "{what}");
                for path in versions.iter().flat_map(|v| v.files.keys()) {
                    let name = path.rsplit('/').next().unwrap();
                    assert!(
                        !crate::table::is_temporary(name.as_ref()),
                        "{what}: {path} is live"
                    );
                }
                goes_on(&made, &other, work, done, &after, &what);
            }
        }
    }
    // Each of them was met, or the test tests nothing.
    for point in failpoint::TRANSACTION {
        let times = met.get(&format!("{point:?} true")).copied().unwrap_or(0);
        assert!(times >= WORK.len(), "{point:?}: {met:?}");
    }
}

/// Others write on; what was not done is done once more; what nobody refers to is nobody's loss.
fn goes_on(made: &Made, other: &Table, work: Work, done: bool, after: &[i64], what: &str) {
    if !done {
        if work == Work::Group {
            // The files of its writers, which died before they could remove them.
            let orphans = made.files();
            for name in orphans.iter().filter(|n| n.contains("group")) {
                std::fs::remove_file(made.path().join(name)).unwrap();
            }
        }
        other.refresh().unwrap();
        made.run(other, work);
        assert_eq!(ids(&made.observe()), after, "{what}, once more");
    }
    made.put(other, "later.parquet", 30..33, Replaces::Nothing)
        .unwrap();
    made.delete(&made.open(), "id = 31").unwrap();
    let mut expected: Vec<i64> = after.to_vec();
    expected.extend([30, 32]);
    assert_eq!(ids(&made.observe()), expected, "{what}, and more");
    // Hours later the next daemon tidies up: what the versions need stays.
    for hours in [0, 2] {
        let later = Env::fixed(Env::real().now() + hours * 3_600_000);
        Table::open(Dir::open(made.path()).unwrap(), later)
            .unwrap()
            .sweep();
        assert_eq!(ids(&made.observe()), expected, "{what}, swept");
    }
    let log = names(&made.path().join(LOG_DIR));
    let left = made.files().into_iter().chain(log);
    let left: Vec<String> = left
        .filter(|n| crate::table::is_temporary(n.as_ref()))
        .collect();
    assert_eq!(left, [""; 0], "{what}");
}

#[test]
fn a_new_table_is_there_or_not() {
    let points = [
        Point::BeforeCommit,
        Point::CommitWritten,
        Point::CommitNamed,
    ];
    for point in points {
        let (guard, env) = (folder(), Env::fixed(1_000_000));
        let dir = Dir::open(guard.path()).unwrap();
        let make = || {
            let input = tempfile::tempfile_in(guard.path()).unwrap();
            write_parquet(input.try_clone().unwrap(), &[row(1), row(2)], true);
            let scratch = || tempfile::tempfile_in(guard.path());
            let request = Append {
                input: &input,
                name: "new.parquet",
                fixed: &BTreeMap::new(),
                stored: &format!("{}.parquet", env.uuid()),
                replaces: Replaces::Nothing,
                scratch: &scratch,
            };
            create_from(&dir, &env, &request, TableFeatures::Default).map(drop)
        };
        assert!(crash_at(point, make).is_none(), "{point:?}");
        let observed = || observe::observe(guard.path(), &contents(guard.path())).unwrap();
        let open = || Table::open(dir.clone(), env.clone());
        if point.is_committed() {
            assert_eq!(ids(&observed()), [1, 2]);
            assert!(make().is_err(), "it is there already");
        } else {
            assert!(matches!(open(), Err(TableError::NotATable(_))), "{point:?}");
            make().unwrap();
        }
        assert_eq!(ids(&observed()), [1, 2]);
        observe::reopen(&open().unwrap(), &observed(), [0]).unwrap();
    }
}

#[test]
fn half_a_checkpoint_is_none() {
    for v2 in [false, true] {
        for point in failpoint::CHECKPOINT {
            let made = Made::new(true, false);
            let table = made.open();
            if v2 {
                with_v2_checkpoints(&made, &table);
            }
            made.delete(&table, "id = 2").unwrap();
            let snapshot = table.refresh().unwrap();
            let crashed = crash_at(*point, || checkpoint(&table, &snapshot)).is_none();
            assert!(crashed, "{point:?}");
            drop(table);
            let before = ids(&made.observe());
            // Whatever is there of it, the next one comes to its end.
            let table = made.open();
            made.put(&table, "later.parquet", 30..33, Replaces::Nothing)
                .unwrap();
            let expected: Vec<i64> = before.into_iter().chain(30..33).collect();
            checkpoint(&table, &table.snapshot()).unwrap();
            assert_eq!(ids(&made.observe()), expected, "{point:?}");
            let newest = made.open().snapshot();
            assert_eq!(newest.checkpoint(), Some(newest.version()), "{point:?}");
        }
    }
}

fn with_v2_checkpoints(made: &Made, table: &Table) {
    let base = table.refresh().unwrap();
    let mut protocol = base.protocol().clone();
    let features = [&mut protocol.reader_features, &mut protocol.writer_features];
    for features in features {
        features
            .get_or_insert_default()
            .push("v2Checkpoint".to_owned());
    }
    let mut metadata = base.metadata().clone();
    let policy = ("delta.checkpointPolicy".to_owned(), "v2".to_owned());
    metadata.configuration.extend([policy]);
    let actions = vec![Action::Protocol(protocol), Action::MetaData(metadata)];
    let reads = crate::table::Reads::Restage;
    let mut staged = Staged::with(actions, Operation::new("UPGRADE PROTOCOL"), reads);
    let _ = table.commit(&Arc::clone(&base), &mut staged).unwrap();
    assert_eq!(made.open().snapshot().version(), base.version() + 1);
}
