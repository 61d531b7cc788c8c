//! The file system without a kernel: what a sequence of requests does to the table behind it.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use serde_json::Value;

use super::*;
use crate::settings::{TableFeatures, TransactionLimits};

mod past_tests;
mod tx_tests;

const CALLER: Caller = Caller {
    uid: 0,
    gid: 0,
    pid: 0,
};
const WRITE: OpenFlags = OpenFlags {
    read: false,
    write: true,
    append: false,
    truncate: true,
    exclusive: false,
};
const READ: OpenFlags = OpenFlags {
    read: true,
    write: false,
    append: false,
    truncate: false,
    exclusive: false,
};

/// A complete Parquet file: `id`, `s`, and `p` (even or odd) where asked for.
fn parquet(ids: std::ops::Range<i64>, with_p: bool) -> Bytes {
    let id: ArrayRef = Arc::new(ids.clone().collect::<Int64Array>());
    let s: ArrayRef = Arc::new(
        ids.clone()
            .map(|i| Some(format!("v{i}")))
            .collect::<StringArray>(),
    );
    let p: ArrayRef = Arc::new(ids.map(|i| i32::from(i % 2 == 1)).collect::<Int32Array>());
    let mut columns = vec![("id", id, true), ("s", s, true)];
    if with_p {
        columns.push(("p", p, true));
    }
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut out = Vec::new();
    let mut writer =
        ::parquet::arrow::ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    out.into()
}

/// A mounted warehouse with the empty directory `t`.
struct World {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    fs: Fs,
}

impl World {
    fn new() -> Self {
        Self::with(Env::real(), TransactionLimits::default())
    }

    fn with(env: Env, transactions: TransactionLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("t")).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let settings = Settings {
            source: dir.path().to_owned(),
            mountpoint: PathBuf::from("/nowhere"),
            read_only: false,
            allow_other: false,
            noexec: false,
            uid: None,
            gid: None,
            umask: None,
            file_mode: None,
            dir_mode: None,
            list_control: false,
            stage_dir: None,
            cache_dir: None,
            // Every request looks at the log.
            refresh: Duration::ZERO,
            passthrough: false,
            table_features: TableFeatures::Default,
            transactions,
        };
        let fs = {
            let _inside = runtime.enter();
            Fs::new(&settings, env, runtime.handle().clone()).unwrap()
        };
        World { dir, runtime, fs }
    }

    /// Makes `t` an empty table that is partitioned by the integer `p`.
    fn partitioned(&self) {
        let log = self.dir.path().join("t/_delta_log");
        std::fs::create_dir(&log).unwrap();
        let field = |name: &str, t: &str| serde_json::json!({"name": name, "type": t, "nullable": true, "metadata": {}});
        let schema = serde_json::json!({"type": "struct", "fields":
            [field("id", "long"), field("s", "string"), field("p", "integer")]});
        let metadata = serde_json::json!({"metaData": {"id": "x", "format": {"provider": "parquet"},
            "schemaString": schema.to_string(), "partitionColumns": ["p"], "configuration": {}}});
        let protocol =
            serde_json::json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}});
        let body = format!("{protocol}\n{metadata}\n");
        std::fs::write(log.join("00000000000000000000.json"), body).unwrap();
    }

    fn run<T>(&self, work: impl AsyncFnOnce(&Fs) -> T) -> T {
        self.runtime.block_on(work(&self.fs))
    }

    fn table(&self) -> Arc<Table> {
        self.fs.core.catalog.table(Path::new("t")).unwrap()
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.table().refresh().unwrap()
    }

    fn rows(&self) -> u64 {
        let totals = self.snapshot().totals();
        assert_eq!(totals.uncounted, 0);
        totals.records - totals.deleted
    }

    /// Visible names and sizes, which are those on the disk.
    fn files(&self) -> BTreeSet<(String, i64)> {
        let snapshot = self.snapshot();
        for file in snapshot.live_files() {
            let stored = self.dir.path().join("t").join(file.path.key());
            assert_eq!(
                i64::try_from(stored.metadata().unwrap().size()).unwrap(),
                file.add.size
            );
        }
        snapshot
            .live_files()
            .map(|f| (f.visible.to_string(), f.add.size))
            .collect()
    }

    fn log(&self) -> Vec<String> {
        let listed = std::fs::read_dir(self.dir.path().join("t/_delta_log")).unwrap();
        let mut names: Vec<String> = listed
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|n| n.ends_with(".json"));
        names.sort();
        names
    }
}

async fn look(fs: &Fs, parent: Ino, name: &str) -> FsResult<Ino> {
    fs.lookup(parent, name.into(), CALLER)
        .await
        .map(|e| e.attr.ino)
}

async fn table_dir(fs: &Fs) -> Ino {
    look(fs, Ino::ROOT, "t").await.unwrap()
}

/// Opens or creates a name for writing, as the kernel does it for O_CREAT|O_TRUNC.
async fn open_new(fs: &Fs, dir: Ino, name: &str) -> FsResult<(Ino, Fh)> {
    for _ in 0..2 {
        match look(fs, dir, name).await {
            Ok(ino) => match fs.open(ino, WRITE, CALLER).await {
                Ok(opened) => return Ok((ino, opened.fh)),
                Err(FsError::Stale) => {}
                Err(e) => return Err(e),
            },
            Err(FsError::NotFound) => {
                let (entry, opened) = fs.create(dir, name.into(), WRITE, CALLER).await?;
                return Ok((entry.attr.ino, opened.fh));
            }
            Err(e) => return Err(e),
        }
    }
    Err(FsError::Stale)
}

/// `cp`.
async fn put(fs: &Fs, dir: Ino, name: &str, body: Bytes) -> FsResult<()> {
    let (ino, fh) = open_new(fs, dir, name).await?;
    fs.write(ino, fh, 0, body, CALLER).await?;
    let flushed = fs.flush(ino, fh, CALLER).await;
    fs.release(ino, fh).await;
    flushed
}

async fn append_dir(fs: &Fs) -> Ino {
    let table = table_dir(fs).await;
    let mut ino = table;
    for name in [".delta", "in", "append"] {
        ino = look(fs, ino, name).await.unwrap();
    }
    ino
}

#[test]
fn a_copy_is_one_version_under_its_name() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "a.parquet", parquet(0..10, false))
            .await
            .unwrap();
        put(fs, t, "b.parquet", parquet(0..5, false)).await.unwrap();
        put(fs, t, "a.parquet", parquet(0..20, false))
            .await
            .unwrap();
    });
    assert_eq!(w.rows(), 25);
    assert_eq!(w.log().len(), 3);
    let names: Vec<String> = w.files().into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, ["a.parquet", "b.parquet"]);
}

#[test]
fn dropping_one_name_again_and_again_into_append_appends_each() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "a.parquet", parquet(0..10, false))
            .await
            .unwrap();
        let append = append_dir(fs).await;
        for k in 1..4 {
            put(fs, append, "a.parquet", parquet(0..100 * k, false))
                .await
                .unwrap();
        }
    });
    assert_eq!(w.rows(), 10 + 100 + 200 + 300);
    assert_eq!(w.files().len(), 4);
}

#[test]
fn names_are_the_same_for_whoever_opens_the_table_later() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "a.parquet", parquet(0..10, false))
            .await
            .unwrap();
        let append = append_dir(fs).await;
        for k in 0..6 {
            put(fs, append, "a.parquet", parquet(0..10 + 100 * k, false))
                .await
                .unwrap();
        }
        let again = || {
            let dir = Dir::open(&w.dir.path().join("t")).unwrap();
            let table = Table::open(dir, Env::real()).unwrap();
            let snapshot = table.snapshot();
            snapshot
                .live_files()
                .map(|f| (f.visible.to_string(), f.add.size))
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(w.files(), again());
        // The next one in line gets the name, here as there.
        fs.unlink(t, "a.parquet".into(), CALLER).await.unwrap();
        assert_eq!(w.files(), again());
        assert!(w.files().iter().any(|(name, _)| name == "a.parquet"));
    });
}

#[test]
fn a_handle_that_goes_on_after_its_commit_replaces_what_it_committed() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        let (ino, fh) = open_new(fs, t, "a.parquet").await.unwrap();
        fs.write(ino, fh, 0, parquet(0..10, false), CALLER)
            .await
            .unwrap();
        fs.fsync(ino, fh, false, CALLER).await.unwrap();
        assert_eq!(w.rows(), 10);
        let empty = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        fs.setattr(ino, Some(fh), empty, CALLER).await.unwrap();
        fs.write(ino, fh, 0, parquet(0..20, false), CALLER)
            .await
            .unwrap();
        assert_eq!((w.rows(), w.files().len()), (10, 1), "until it is flushed");
        fs.flush(ino, fh, CALLER).await.unwrap();
        assert_eq!((w.rows(), w.files().len()), (20, 1));
        // Garbage behind it never reaches the table's file.
        fs.write(ino, fh, 0, Bytes::from_static(b"garbage"), CALLER)
            .await
            .unwrap();
        assert!(fs.flush(ino, fh, CALLER).await.is_err());
        fs.release(ino, fh).await;
        assert_eq!((w.rows(), w.files().len()), (20, 1));
    });
}

#[test]
fn two_writers_of_one_name_make_two_whole_commits() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        let (a, b) = (parquet(0..1000, false), parquet(5000..5900, false));
        let (ino1, fh1) = open_new(fs, t, "x.parquet").await.unwrap();
        fs.write(ino1, fh1, 0, a.slice(..100), CALLER)
            .await
            .unwrap();
        let (ino2, fh2) = open_new(fs, t, "x.parquet").await.unwrap();
        fs.write(ino2, fh2, 0, b.clone(), CALLER).await.unwrap();
        fs.write(ino1, fh1, 100, a.slice(100..), CALLER)
            .await
            .unwrap();
        fs.flush(ino1, fh1, CALLER).await.unwrap();
        assert_eq!(w.rows(), 1000);
        fs.flush(ino2, fh2, CALLER).await.unwrap();
        for (ino, fh) in [(ino1, fh1), (ino2, fh2)] {
            fs.release(ino, fh).await;
        }
        assert_eq!((w.rows(), w.files().len()), (900, 1));
    });
}

#[test]
fn an_open_during_a_commit_never_touches_the_committed_bytes() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        for k in 0..20 {
            let name = format!("f{k}.parquet");
            let (ino, fh) = open_new(fs, t, &name).await.unwrap();
            fs.write(ino, fh, 0, parquet(0..2000, false), CALLER)
                .await
                .unwrap();
            let (flushed, opened) =
                tokio::join!(fs.flush(ino, fh, CALLER), fs.open(ino, WRITE, CALLER));
            flushed.unwrap();
            if let Ok(opened) = opened {
                fs.release(ino, opened.fh).await;
            }
            fs.release(ino, fh).await;
        }
        // Compares every size with the disk's.
        assert_eq!(w.files().len(), 20);
        assert_eq!(w.rows(), 20 * 2000);
    });
}

#[test]
fn a_file_that_was_compacted_while_it_was_overwritten_is_not_doubled() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "a.parquet", parquet(0..10, false))
            .await
            .unwrap();
        let (ino, fh) = open_new(fs, t, "a.parquet").await.unwrap();
        fs.write(ino, fh, 0, parquet(0..20, false), CALLER)
            .await
            .unwrap();
        // Readers of the name see what is committed, under the inode that it has had.
        let read = fs.lookup(t, "a.parquet".into(), CALLER).await.unwrap();
        assert_ne!(read.attr.ino, ino);
        assert_eq!(read.attr.size, parquet(0..10, false).len() as u64);
        fs.open(read.attr.ino, READ, CALLER).await.unwrap();
        let log = w.dir.path().join("t/_delta_log");
        let v0 = std::fs::read_to_string(log.join("00000000000000000000.json")).unwrap();
        let line = v0.lines().find(|l| l.starts_with("{\"add\"")).unwrap();
        let mut add: Value = serde_json::from_str(line).unwrap();
        let old = add["add"]["path"].as_str().unwrap().to_owned();
        let table = w.dir.path().join("t");
        std::fs::copy(table.join(&old), table.join("compact.parquet")).unwrap();
        add["add"]["path"] = "compact.parquet".into();
        add["add"]["dataChange"] = false.into();
        add["add"]["tags"] = Value::Null;
        let remove = serde_json::json!(
            {"remove": {"path": old, "deletionTimestamp": 1, "dataChange": false}});
        let body = format!("{remove}\n{add}\n");
        std::fs::write(log.join("00000000000000000001.json"), body).unwrap();
        let error = fs.flush(ino, fh, CALLER).await.unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Conflict, "{error}");
        fs.release(ino, fh).await;
        assert_eq!(w.rows(), 10);
        assert_eq!(w.log().len(), 2);
    });
}

#[test]
fn a_table_that_was_replaced_behind_the_mount_is_the_new_one() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "a.parquet", parquet(0..10, false))
            .await
            .unwrap();
        let (here, old) = (w.dir.path().join("t"), w.dir.path().join("old"));
        std::fs::rename(&here, &old).unwrap();
        let copied = std::process::Command::new("cp")
            .arg("-r")
            .arg(&old)
            .arg(&here)
            .status();
        assert!(copied.unwrap().success());
        put(fs, t, "b.parquet", parquet(0..10, false))
            .await
            .unwrap();
        assert!(!old.join(format!("_delta_log/{:020}.json", 1)).exists());
        assert_eq!(w.log().len(), 2);
        std::fs::remove_dir_all(&old).unwrap();
        look(fs, t, "a.parquet").await.unwrap();
        fs.opendir(t, CALLER).await.unwrap();
    });
}

#[test]
fn a_log_that_was_rolled_back_gets_no_gap() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        for k in 0..4 {
            put(fs, t, &format!("{k}.parquet"), parquet(0..10, false))
                .await
                .unwrap();
        }
        for k in 2..4 {
            let file = format!("t/_delta_log/{k:020}.json");
            std::fs::remove_file(w.dir.path().join(file)).unwrap();
        }
        put(fs, t, "x.parquet", parquet(0..10, false))
            .await
            .unwrap();
    });
    let versions: Vec<String> = (0..3).map(|v| format!("{v:020}.json")).collect();
    assert_eq!(w.log(), versions);
    assert_eq!(w.rows(), 30);
}

#[test]
fn a_split_file_can_be_dropped_again_and_its_name_removes_nothing() {
    let w = World::new();
    w.partitioned();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "x.parquet", parquet(0..10, true)).await.unwrap();
        assert_eq!(w.rows(), 10);
        // The pieces keep the name; a second drop is a second append (it can't know which pieces are meant).
        put(fs, t, "x.parquet", parquet(0..100, true))
            .await
            .unwrap();
        assert_eq!(w.rows(), 110);
        assert_eq!(
            fs.unlink(t, "x.parquet".into(), CALLER).await,
            Err(FsError::NotFound)
        );
        assert_eq!(w.rows(), 110);
        // Only a moment's grace keeps the shadow and what it holds.
        assert!(fs.core.overlay().expired(i64::MAX).len() <= 1);
        assert_eq!(fs.core.overlay().all().len(), 0);
    });
}

#[test]
fn a_partition_has_one_directory() {
    let w = World::new();
    w.partitioned();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        let p = fs.mkdir(t, "p=01".into(), CALLER).await.map(|e| e.attr.ino);
        if let Ok(p) = p {
            put(fs, p, "x.parquet", parquet(0..10, false))
                .await
                .unwrap();
            put(fs, p, "x.parquet", parquet(0..100, false))
                .await
                .unwrap();
            assert_eq!(w.rows(), 110);
        }
        assert!(w.files().iter().all(|(name, _)| name.starts_with("p=1/")));
    });
}

#[test]
fn an_empty_file_takes_no_live_files_name() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "x.parquet", parquet(0..10, false))
            .await
            .unwrap();
        put(fs, t, "e.tmp", Bytes::new()).await.unwrap();
        let renamed = fs
            .rename(
                t,
                "e.tmp".into(),
                t,
                "x.parquet".into(),
                RenameFlags::default(),
                CALLER,
            )
            .await;
        assert!(renamed.is_err());
        let fh = fs.opendir(t, CALLER).await.unwrap();
        let names: Vec<OsString> = fs
            .readdir(t, fh, 2, 100)
            .await
            .unwrap()
            .into_iter()
            .map(|i| i.name)
            .collect();
        assert_eq!(names, ["x.parquet", "e.tmp"]);
        assert_eq!(w.rows(), 10);
    });
}

#[test]
fn refused_files_are_kept_with_their_reason() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "a.parquet", parquet(0..10, false))
            .await
            .unwrap();
        let whole = parquet(0..10, false);
        let error = put(fs, t, "cut.parquet", whole.slice(..whole.len() - 9))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Invalid);
        assert_eq!(look(fs, t, "cut.parquet").await, Err(FsError::NotFound));
        let control = look(fs, t, ".delta").await.unwrap();
        let rejected = look(fs, control, "rejected").await.unwrap();
        let reason = look(fs, rejected, "cut.parquet.reason").await.unwrap();
        let opened = fs.open(reason, READ, CALLER).await.unwrap();
        let text = fs.read(reason, opened.fh, 0, 4096).await.unwrap();
        assert!(
            text.starts_with(b"cut.parquet: not a complete Parquet file"),
            "{text:?}"
        );
        look(fs, rejected, "cut.parquet").await.unwrap();
        let last = look(fs, control, "last").await.unwrap();
        let opened = fs.open(last, READ, CALLER).await.unwrap();
        let text = fs.read(last, opened.fh, 0, 4096).await.unwrap();
        let last: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            (last["outcome"].as_str(), last["error"].as_str()),
            (Some("failed"), Some("invalid"))
        );
        fs.unlink(rejected, "cut.parquet".into(), CALLER)
            .await
            .unwrap();
        assert_eq!(
            look(fs, rejected, "cut.parquet").await,
            Err(FsError::NotFound)
        );
    });
    assert_eq!(w.log().len(), 1);
}

#[test]
fn directories_of_any_bytes_are_directories_of_their_own() {
    use std::os::unix::ffi::OsStringExt as _;
    let w = World::new();
    w.run(async |fs| {
        let name = |byte| OsString::from_vec(vec![byte]);
        let a = fs
            .mkdir(Ino::ROOT, name(0xff), CALLER)
            .await
            .unwrap()
            .attr
            .ino;
        let b = fs
            .mkdir(Ino::ROOT, name(0xfe), CALLER)
            .await
            .unwrap()
            .attr
            .ino;
        assert_ne!(a, b);
        put(fs, a, "x.parquet", parquet(0..3, false)).await.unwrap();
        look(fs, a, "x.parquet").await.unwrap();
        assert_eq!(look(fs, b, "x.parquet").await, Err(FsError::NotFound));
    });
}

#[test]
fn a_statement_runs_once_and_in_its_write() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "a.parquet", parquet(0..10, false))
            .await
            .unwrap();
        let mut ino = t;
        for name in [".delta", "ctl", "delete"] {
            ino = look(fs, ino, name).await.unwrap();
        }
        let fh = fs.open(ino, WRITE, CALLER).await.unwrap().fh;
        fs.flush(ino, fh, CALLER).await.unwrap();
        fs.write(ino, fh, 0, Bytes::from_static(b"id <"), CALLER)
            .await
            .unwrap();
        assert_eq!(w.rows(), 10);
        fs.write(ino, fh, 4, Bytes::from_static(b" 3\n"), CALLER)
            .await
            .unwrap();
        assert_eq!(w.rows(), 7);
        assert!(
            fs.write(ino, fh, 7, Bytes::from_static(b"TRUE\n"), CALLER)
                .await
                .is_err()
        );
        for _ in 0..2 {
            fs.flush(ino, fh, CALLER).await.unwrap();
        }
        fs.release(ino, fh).await;
        assert_eq!((w.rows(), w.log().len()), (7, 2));
    });
}

#[test]
fn a_checkpoint_has_the_time_of_its_version() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        for k in 0..3 {
            put(fs, t, &format!("{k}.parquet"), parquet(0..10, false))
                .await
                .unwrap();
        }
    });
    let table = w.table();
    let snapshot = table.snapshot();
    crate::ops::checkpoint(&table, &snapshot).unwrap();
    for v in 0..2 {
        std::fs::remove_file(w.dir.path().join(format!("t/_delta_log/{v:020}.json"))).unwrap();
    }
    let dir = Dir::open(&w.dir.path().join("t")).unwrap();
    let again = Table::open(dir, Env::real()).unwrap().snapshot();
    assert_eq!(again.checkpoint(), Some(2));
    assert_eq!(again.timestamp(), snapshot.timestamp());
    assert_eq!(again.totals(), snapshot.totals());
    assert_eq!(again.metadata(), snapshot.metadata());
    assert_eq!(again.protocol(), snapshot.protocol());
}

#[test]
fn a_write_that_was_refused_is_not_half_committed() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "x.parquet", parquet(0..10, false))
            .await
            .unwrap();
        // Not emptied first, as rsync --inplace: only from the start, in order.
        let flags = OpenFlags {
            truncate: false,
            ..WRITE
        };
        let live = look(fs, t, "x.parquet").await.unwrap();
        assert_eq!(
            fs.open(live, flags, CALLER).await.err(),
            Some(FsError::Stale)
        );
        let ino = look(fs, t, "x.parquet").await.unwrap();
        let fh = fs.open(ino, flags, CALLER).await.unwrap().fh;
        let whole = parquet(0..20, false);
        fs.write(ino, fh, 0, whole.clone(), CALLER).await.unwrap();
        let error = fs
            .write(ino, fh, 7, Bytes::from_static(b"x"), CALLER)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Denied);
        assert!(fs.flush(ino, fh, CALLER).await.is_err());
        assert_eq!((w.rows(), w.log().len()), (10, 1));
        // Emptied, it can start again.
        let empty = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        fs.setattr(ino, Some(fh), empty, CALLER).await.unwrap();
        fs.write(ino, fh, 0, whole, CALLER).await.unwrap();
        fs.flush(ino, fh, CALLER).await.unwrap();
        fs.release(ino, fh).await;
        assert_eq!((w.rows(), w.log().len(), w.files().len()), (20, 2, 1));
    });
}

#[test]
fn holes_and_garbage_between_magic_and_footer_are_refused() {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "x.parquet", parquet(0..10, false))
            .await
            .unwrap();
        for byte in [0, 0xff] {
            let mut body = parquet(0..1000, false).to_vec();
            body[4..60].fill(byte);
            let error = put(fs, t, "hole.parquet", body.into()).await.unwrap_err();
            assert_eq!(error.kind(), crate::error::Kind::Invalid, "{error}");
        }
    });
    assert_eq!((w.rows(), w.log().len()), (10, 1));
}
