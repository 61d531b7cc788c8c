//! Transactions, request by request.

use super::*;
use crate::error::Kind;

const HOUR_MS: Millis = 3_600_000;
const ALICE: Caller = Caller {
    uid: 1000,
    gid: 1000,
    pid: 0,
};
const BOB: Caller = Caller { uid: 1001, ..ALICE };

async fn walk(fs: &Fs, path: &str) -> FsResult<Entry> {
    let mut found = fs.lookup(Ino::ROOT, "t".into(), CALLER).await?;
    for name in path.split('/') {
        found = fs.lookup(found.attr.ino, name.into(), CALLER).await?;
    }
    Ok(found)
}

async fn ino(fs: &Fs, path: &str) -> Ino {
    walk(fs, path).await.unwrap().attr.ino
}

/// A table with the file `a.parquet`, of the ids 0..10.
fn story() -> World {
    story_with(World::new())
}

fn story_with(w: World) -> World {
    w.run(async |fs| {
        let t = table_dir(fs).await;
        put(fs, t, "a.parquet", parquet(0..10, false))
            .await
            .unwrap();
    });
    w
}

async fn begin(fs: &Fs, name: &str, caller: Caller) -> FsResult<Ino> {
    let all = ino(fs, ".delta/tx").await;
    let begun = fs.mkdir(all, name.into(), caller).await?;
    assert_eq!(begun.ttl, Duration::ZERO);
    Ok(begun.attr.ino)
}

/// `echo TEXT > FILE` below a directory.
async fn say(fs: &Fs, dir: Ino, file: &str, text: &str, caller: Caller) -> FsResult<()> {
    let mut at = dir;
    for name in file.split('/') {
        at = fs.lookup(at, name.into(), caller).await?.attr.ino;
    }
    let opened = fs.open(at, WRITE, caller).await?;
    let text = Bytes::from(format!("{text}\n"));
    let said = fs.write(at, opened.fh, 0, text, caller).await;
    let flushed = fs.flush(at, opened.fh, caller).await;
    fs.release(at, opened.fh).await;
    said?;
    flushed
}

async fn text(fs: &Fs, dir: Ino, file: &str) -> Value {
    let entry = fs.lookup(dir, file.into(), CALLER).await.unwrap();
    let opened = fs.open(entry.attr.ino, READ, CALLER).await.unwrap();
    let bytes = fs.read(entry.attr.ino, opened.fh, 0, 1 << 16).await;
    fs.release(entry.attr.ino, opened.fh).await;
    let bytes = bytes.unwrap();
    assert_eq!(entry.attr.size, bytes.len() as u64);
    serde_json::from_slice(&bytes).unwrap()
}

async fn list(fs: &Fs, dir: Ino) -> Vec<String> {
    let fh = fs.opendir(dir, CALLER).await.unwrap();
    let items = fs.readdir(dir, fh, 0, 1000).await.unwrap();
    fs.releasedir(fh).await;
    let names = items.into_iter().skip(2).map(|i| i.name);
    names.map(|n| n.into_string().unwrap()).collect()
}

#[track_caller]
fn kind<T: std::fmt::Debug>(result: FsResult<T>) -> Kind {
    match result {
        Err(FsError::Domain { kind, .. }) => kind,
        other => panic!("{other:?}"),
    }
}

/// Files beside the log.
fn stored(w: &World) -> usize {
    let listed = std::fs::read_dir(w.dir.path().join("t")).unwrap();
    listed.count() - 1
}

#[test]
fn what_is_staged_shows_inside_only() {
    let w = story();
    w.run(async |fs| {
        let tx = begin(fs, "load", CALLER).await.unwrap();
        put(fs, tx, "b.parquet", parquet(10..20, false))
            .await
            .unwrap();
        say(fs, tx, "ctl/delete", "id = 3 OR id = 12", CALLER)
            .await
            .unwrap();
        assert_eq!(list(fs, tx).await, ["a.parquet", "b.parquet"]);
        let t = table_dir(fs).await;
        assert_eq!(list(fs, t).await, ["a.parquet"]);
        assert_eq!((w.rows(), w.log().len()), (10, 1));
        let outcome = text(fs, tx, "outcome").await;
        assert_eq!(outcome["outcome"], "open");
        assert_eq!(outcome["read_version"], 0);
        assert_eq!(
            outcome["staged"],
            serde_json::json!({"steps": 2, "files_added": 1, "files_changed": 1, "files_removed": 0})
        );
        assert_eq!(outcome["rows"], 18);
        // An empty body runs nothing.
        let commit = ino(fs, ".delta/tx/load/commit").await;
        let opened = fs.open(commit, WRITE, CALLER).await.unwrap();
        fs.flush(commit, opened.fh, CALLER).await.unwrap();
        fs.release(commit, opened.fh).await;
        // Nor does any other word.
        let other = say(fs, tx, "commit", "yes", CALLER).await;
        assert_eq!(kind(other), Kind::Invalid);
        assert_eq!(w.log().len(), 1);
        say(fs, tx, "commit", "commit", CALLER).await.unwrap();
        assert_eq!((w.rows(), w.log().len()), (18, 2));
        let outcome = text(fs, tx, "outcome").await;
        assert_eq!(outcome["outcome"], "committed");
        assert_eq!(outcome["version"], 1);
        assert_eq!(outcome["operation"], "TRANSACTION");
        // It is over: it shows nothing more and takes nothing more.
        assert_eq!(list(fs, tx).await, [""; 0]);
        assert_eq!(list(fs, t).await, ["a.parquet", "b.parquet"]);
        let late = put(fs, tx, "c.parquet", parquet(0..1, false)).await;
        assert_eq!(kind(late), Kind::ReadOnly);
        for file in ["commit", "ctl/delete"] {
            assert_eq!(kind(say(fs, tx, file, "TRUE", CALLER).await), Kind::ReadOnly);
        }
        assert_eq!(w.log().len(), 2);
        let all = ino(fs, ".delta/tx").await;
        fs.rmdir(all, "load".into(), CALLER).await.unwrap();
        assert!(matches!(walk(fs, ".delta/tx/load").await, Err(FsError::NotFound)));
    });
}

#[test]
fn scratch_names_replacements_and_removals_work_as_outside() {
    let w = story();
    w.run(async |fs| {
        let tx = begin(fs, "load", CALLER).await.unwrap();
        put(fs, tx, ".b.parquet.tmp", parquet(10..20, false))
            .await
            .unwrap();
        assert_eq!(list(fs, tx).await, ["a.parquet", ".b.parquet.tmp"]);
        let flags = RenameFlags::default();
        let (from, to) = (".b.parquet.tmp".into(), "b.parquet".into());
        fs.rename(tx, from, tx, to, flags, CALLER).await.unwrap();
        assert_eq!(list(fs, tx).await, ["a.parquet", "b.parquet"]);
        // A new file is renamed, one that is in a version is copied by mv.
        let (from, to) = ("b.parquet".into(), "c.parquet".into());
        fs.rename(tx, from, tx, to, flags, CALLER).await.unwrap();
        let (from, to) = ("a.parquet".into(), "z.parquet".into());
        let moved = fs.rename(tx, from, tx, to, flags, CALLER).await;
        assert_eq!(moved, Err(FsError::CrossDevice));
        // Twice over one name, and what is in in/append is not in its way.
        for n in [3, 4] {
            put(fs, tx, "a.parquet", parquet(0..n, false))
                .await
                .unwrap();
        }
        let append = ino(fs, ".delta/tx/load/in/append").await;
        put(fs, append, "a.parquet", parquet(100..107, false))
            .await
            .unwrap();
        assert_eq!(text(fs, tx, "outcome").await["rows"], 4 + 7 + 10);
        fs.unlink(tx, "c.parquet".into(), CALLER).await.unwrap();
        assert_eq!(text(fs, tx, "outcome").await["rows"], 4 + 7);
        say(fs, tx, "commit", "commit", CALLER).await.unwrap();
    });
    assert_eq!((w.rows(), w.log().len()), (11, 2));
    assert_eq!(w.files().len(), 2);
}

#[test]
fn partition_directories() {
    let w = World::new();
    w.partitioned();
    w.run(async |fs| {
        let tx = begin(fs, "load", CALLER).await.unwrap();
        let made = fs.mkdir(tx, "p=7".into(), CALLER).await.unwrap();
        let p7 = made.attr.ino;
        assert_eq!(list(fs, tx).await, ["p=7"]);
        assert_eq!(list(fs, table_dir(fs).await).await, [""; 0]);
        put(fs, p7, "a.parquet", parquet(0..5, false))
            .await
            .unwrap();
        put(fs, tx, "b.parquet", parquet(0..6, true)).await.unwrap();
        assert_eq!(list(fs, tx).await, ["p=0", "p=1", "p=7"]);
        assert_eq!(list(fs, p7).await, ["a.parquet"]);
        let full = fs.rmdir(tx, "p=7".into(), CALLER).await;
        assert_eq!(full, Err(FsError::NotEmpty));
        fs.unlink(p7, "a.parquet".into(), CALLER).await.unwrap();
        assert_eq!(list(fs, tx).await, ["p=0", "p=1", "p=7"]);
        fs.rmdir(tx, "p=7".into(), CALLER).await.unwrap();
        assert_eq!(list(fs, tx).await, ["p=0", "p=1"]);
        assert_eq!(kind(fs.mkdir(tx, "q=1".into(), CALLER).await), Kind::Denied);
        say(fs, tx, "commit", "commit", CALLER).await.unwrap();
        assert_eq!(list(fs, table_dir(fs).await).await, ["p=0", "p=1"]);
    });
    assert_eq!((w.rows(), w.log().len()), (6, 2));
}

#[test]
fn aborting_leaves_nothing() {
    let w = story();
    assert_eq!(stored(&w), 1);
    w.run(async |fs| {
        let tx = begin(fs, "load", CALLER).await.unwrap();
        put(fs, tx, "b.parquet", parquet(10..20, false))
            .await
            .unwrap();
        put(fs, tx, "scratch.tmp", parquet(10..20, false))
            .await
            .unwrap();
        say(fs, tx, "ctl/delete", "id = 3 OR id = 12", CALLER)
            .await
            .unwrap();
        let (open, fh) = open_new(fs, tx, "late.parquet").await.unwrap();
        fs.write(open, fh, 0, parquet(0..5, false), CALLER)
            .await
            .unwrap();
        assert!(stored(&w) > 1);
        let all = ino(fs, ".delta/tx").await;
        fs.rmdir(all, "load".into(), CALLER).await.unwrap();
        assert_eq!(stored(&w), 1);
        // What was still being written hears of it at its close.
        assert!(fs.flush(open, fh, CALLER).await.is_err());
        fs.release(open, fh).await;
        assert_eq!((stored(&w), w.rows(), w.log().len()), (1, 10, 1));
        // The name is free again, and means another one.
        let again = begin(fs, "load", CALLER).await.unwrap();
        assert_ne!(again, tx);
        assert_eq!(list(fs, again).await, ["a.parquet"]);
        assert_eq!(text(fs, again, "outcome").await["staged"]["steps"], 0);
        let old = fs.opendir(tx, CALLER).await;
        assert_eq!(old.err(), Some(FsError::NotFound));
    });
}

#[test]
fn a_conflict_ends_it() {
    let w = story();
    w.run(async |fs| {
        let tx = begin(fs, "load", CALLER).await.unwrap();
        put(fs, tx, "b.parquet", parquet(10..20, false))
            .await
            .unwrap();
        say(fs, tx, "ctl/delete", "id = 3", CALLER).await.unwrap();
        let control = ino(fs, ".delta").await;
        say(fs, control, "ctl/delete", "id = 3", CALLER)
            .await
            .unwrap();
        let lost = say(fs, tx, "commit", "commit", CALLER).await;
        assert_eq!(kind(lost), Kind::Conflict);
        let outcome = text(fs, tx, "outcome").await;
        assert_eq!(outcome["outcome"], "failed");
        assert_eq!(outcome["error"], "conflict");
        assert_eq!(outcome["exception"], "ConcurrentDeleteReadException");
        assert_eq!(outcome["winner"]["version"], 1);
        let again = say(fs, tx, "commit", "commit", CALLER).await;
        assert_eq!(kind(again), Kind::ReadOnly);
    });
    assert_eq!((w.rows(), w.log().len(), stored(&w)), (9, 2, 2));
}

#[test]
fn names_and_owners() {
    let w = story();
    w.run(async |fs| {
        let tx = begin(fs, "alice", ALICE).await.unwrap();
        assert_eq!(begin(fs, "alice", ALICE).await, Err(FsError::Exists));
        assert_eq!(kind(begin(fs, ".delta", ALICE).await), Kind::Denied);
        let long = "x".repeat(256);
        assert_eq!(begin(fs, &long, ALICE).await, Err(FsError::NameTooLong));
        let odd = "é (2) \n".to_owned() + &"x".repeat(200);
        begin(fs, &odd, ALICE).await.unwrap();
        let all = ino(fs, ".delta/tx").await;
        assert_eq!(list(fs, all).await, ["alice", &odd]);
        let attr = fs.getattr(tx, None).await.unwrap();
        assert_eq!((attr.uid, attr.mode & 0o722), (1000, 0o700));
        // Bob may do nothing with it, root anything.
        assert_eq!(
            kind(say(fs, tx, "ctl/delete", "TRUE", BOB).await),
            Kind::Denied
        );
        assert_eq!(
            kind(say(fs, tx, "commit", "commit", BOB).await),
            Kind::Denied
        );
        let refused = fs.create(tx, "b.parquet".into(), WRITE, BOB).await;
        assert_eq!(kind(refused.map(|_| ())), Kind::Denied);
        assert_eq!(
            kind(fs.unlink(tx, "a.parquet".into(), BOB).await),
            Kind::Denied
        );
        let file = ino(fs, ".delta/tx/alice/a.parquet").await;
        assert_eq!(kind(fs.open(file, WRITE, BOB).await), Kind::Denied);
        assert!(fs.open(file, READ, BOB).await.is_ok());
        assert_eq!(kind(fs.rmdir(all, "alice".into(), BOB).await), Kind::Denied);
        assert_eq!(text(fs, tx, "outcome").await["staged"]["steps"], 0);
        say(fs, tx, "ctl/delete", "id = 1", CALLER).await.unwrap();
        say(fs, tx, "commit", "commit", ALICE).await.unwrap();
        fs.rmdir(all, "alice".into(), CALLER).await.unwrap();
    });
    assert_eq!(w.rows(), 9);
}

#[test]
fn no_more_than_there_may_be() {
    let limits = TransactionLimits {
        open: 2,
        files: 3,
        ..TransactionLimits::default()
    };
    let w = story_with(World::with(Env::real(), limits));
    w.run(async |fs| {
        let one = begin(fs, "one", CALLER).await.unwrap();
        begin(fs, "two", CALLER).await.unwrap();
        assert_eq!(kind(begin(fs, "three", CALLER).await), Kind::NoSpace);
        for n in 0..3 {
            let name = format!("f{n}.parquet");
            put(fs, one, &name, parquet(n..n + 1, false)).await.unwrap();
        }
        let full = put(fs, one, "f3.parquet", parquet(9..10, false)).await;
        assert_eq!(kind(full), Kind::NoSpace);
        let full = say(fs, one, "ctl/delete", "TRUE", CALLER).await;
        assert_eq!(kind(full), Kind::NoSpace);
        say(fs, one, "commit", "commit", CALLER).await.unwrap();
        assert_eq!(w.rows(), 13);
        // Those that are over don't count, and are not kept without end.
        begin(fs, "three", CALLER).await.unwrap();
        let all = ino(fs, ".delta/tx").await;
        fs.rmdir(all, "three".into(), CALLER).await.unwrap();
        for n in 0..20 {
            let tx = begin(fs, &format!("t{n}"), CALLER).await.unwrap();
            put(fs, tx, "x.parquet", parquet(n..n + 1, false))
                .await
                .unwrap();
            say(fs, tx, "commit", "commit", CALLER).await.unwrap();
        }
        let kept = list(fs, all).await;
        assert!(
            kept.len() < 12 && kept.contains(&"t19".to_owned()),
            "{kept:?}"
        );
    });
}

#[test]
fn what_is_left_alone_is_aborted() {
    let env = Env::fixed(1_800_000_000_000);
    let w = story_with(World::with(env.clone(), TransactionLimits::default()));
    let pass = |ms: Millis| {
        let until = env.now() + ms;
        while env.now() < until {}
    };
    w.run(async |fs| {
        let tx = begin(fs, "load", CALLER).await.unwrap();
        put(fs, tx, "b.parquet", parquet(10..20, false))
            .await
            .unwrap();
        for _ in 0..3 {
            pass(HOUR_MS * 2 / 3);
            say(fs, tx, "ctl/delete", "id = 77", CALLER).await.unwrap();
            fs.core.expire_transactions();
        }
        assert_eq!(
            text(fs, tx, "outcome").await["outcome"],
            "open",
            "it is in use"
        );
        // Neither is a file that somebody has open left alone, however slowly it is written.
        let (open, fh) = open_new(fs, tx, "c.parquet").await.unwrap();
        pass(HOUR_MS + 1000);
        fs.core.expire_transactions();
        assert_eq!(text(fs, tx, "outcome").await["outcome"], "open");
        fs.write(open, fh, 0, parquet(20..30, false), CALLER)
            .await
            .unwrap();
        fs.flush(open, fh, CALLER).await.unwrap();
        fs.release(open, fh).await;
        assert_eq!(stored(&w), 4, "with the list of what is staged");
        pass(HOUR_MS + 1000);
        fs.core.expire_transactions();
        let outcome = text(fs, tx, "outcome").await;
        assert_eq!(outcome["outcome"], "aborted", "{outcome}");
        assert!(
            outcome["message"].to_string().contains("3600 s"),
            "{outcome}"
        );
        assert_eq!((stored(&w), w.log().len()), (1, 1));
        assert_eq!(
            kind(say(fs, tx, "commit", "commit", CALLER).await),
            Kind::ReadOnly
        );
        // The outcome is kept for as long again.
        pass(HOUR_MS / 2);
        fs.core.expire_transactions();
        assert!(walk(fs, ".delta/tx/load/outcome").await.is_ok());
        pass(HOUR_MS);
        fs.core.expire_transactions();
        assert!(matches!(
            walk(fs, ".delta/tx/load").await,
            Err(FsError::NotFound)
        ));
    });
}

#[test]
fn the_end_of_the_mount_aborts() {
    let w = story();
    w.run(async |fs| {
        let tx = begin(fs, "load", CALLER).await.unwrap();
        put(fs, tx, "b.parquet", parquet(10..20, false))
            .await
            .unwrap();
        let done = begin(fs, "done", CALLER).await.unwrap();
        put(fs, done, "c.parquet", parquet(20..30, false))
            .await
            .unwrap();
        say(fs, done, "commit", "commit", CALLER).await.unwrap();
        fs.shutdown().await;
    });
    assert_eq!((w.rows(), w.log().len(), stored(&w)), (20, 2, 2));
}

#[test]
fn inodes_go_on_from_the_first_byte() {
    let w = story();
    w.run(async |fs| {
        let tx = begin(fs, "load", CALLER).await.unwrap();
        let (created, fh) = open_new(fs, tx, "b.parquet").await.unwrap();
        fs.write(created, fh, 0, parquet(10..20, false), CALLER)
            .await
            .unwrap();
        fs.flush(created, fh, CALLER).await.unwrap();
        fs.release(created, fh).await;
        assert_eq!(look(fs, tx, "b.parquet").await, Ok(created));
        let read = fs.open(created, READ, CALLER).await.unwrap();
        let bytes = fs.read(created, read.fh, 0, 4).await.unwrap();
        assert_eq!(&bytes[..], b"PAR1");
        // The same file of the table is another inode: it lives longer.
        let inside = look(fs, tx, "a.parquet").await.unwrap();
        let outside = look(fs, table_dir(fs).await, "a.parquet").await.unwrap();
        assert_ne!(inside, outside);
        say(fs, tx, "ctl/delete", "id = 1", CALLER).await.unwrap();
        // With another vector it is another file, and the old inode is dead.
        assert_ne!(look(fs, tx, "a.parquet").await, Ok(inside));
        let stale = fs.open(inside, READ, CALLER).await;
        assert_eq!(stale.err(), Some(FsError::Stale));
        assert!(fs.open(outside, READ, CALLER).await.is_ok());
    });
}
