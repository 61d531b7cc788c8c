//! Earlier versions, request by request.

use super::*;
use crate::error::Kind;

async fn walk(fs: &Fs, path: &str) -> FsResult<Entry> {
    let mut found = fs.lookup(Ino::ROOT, "t".into(), CALLER).await?;
    for name in path.split('/') {
        found = fs.lookup(found.attr.ino, name.into(), CALLER).await?;
    }
    Ok(found)
}

/// Versions 0: a. 1: a, b. 2: b.
fn story() -> World {
    let w = World::new();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        for name in ["a.parquet", "b.parquet"] {
            put(fs, t, name, parquet(0..10, false)).await.unwrap();
        }
        fs.unlink(t, "a.parquet".into(), CALLER).await.unwrap();
    });
    w
}

fn is_read_only<T: std::fmt::Debug>(result: FsResult<T>) {
    let error = result.unwrap_err();
    let kind = matches!(
        &error,
        FsError::Domain {
            kind: Kind::ReadOnly,
            ..
        }
    );
    assert!(kind, "{error:?}");
}

#[test]
fn names_may_be_remembered_as_long_as_they_mean_the_same() {
    // The mount of these tests looks at the log at every request.
    let w = story();
    w.run(async |fs| {
        for path in [".delta/versions/1", ".delta/at/2099-01-01"] {
            let root = walk(fs, path).await.unwrap();
            assert_eq!(root.ttl, Duration::ZERO, "{path}");
        }
        for path in [
            ".delta/versions/1/a.parquet",
            ".delta/versions/1/.delta",
            ".delta/versions/1/.delta/version",
            ".delta/at/2099-01-01/b.parquet",
        ] {
            let below = walk(fs, path).await.unwrap();
            assert_eq!(below.ttl, lookup::LONG, "{path}");
        }
        let file = walk(fs, ".delta/versions/1/a.parquet").await.unwrap();
        assert_eq!(file.attr.ttl, lookup::LONG);
        let opened = fs.open(file.attr.ino, READ, CALLER).await.unwrap();
        assert!(matches!(opened.io, Io::Cached { keep: true }));
    });
}

#[test]
fn every_change_is_refused_as_read_only() {
    let w = story();
    w.run(async |fs| {
        let t = table_dir(fs).await;
        for dir in [
            ".delta/versions",
            ".delta/at",
            ".delta/versions/1",
            ".delta/versions/1/.delta",
        ] {
            let dir = walk(fs, dir).await.unwrap().attr.ino;
            for name in ["a.parquet", "x.parquet", "1", "version", "0"] {
                is_read_only(fs.create(dir, name.into(), WRITE, CALLER).await);
                is_read_only(fs.mkdir(dir, name.into(), CALLER).await);
                is_read_only(fs.unlink(dir, name.into(), CALLER).await);
                is_read_only(fs.rmdir(dir, name.into(), CALLER).await);
                let flags = RenameFlags::default();
                is_read_only(
                    fs.rename(dir, name.into(), t, "y.parquet".into(), flags, CALLER)
                        .await,
                );
                let from = "b.parquet".into();
                is_read_only(fs.rename(t, from, dir, name.into(), flags, CALLER).await);
            }
        }
        for file in [
            ".delta/versions/1/a.parquet",
            ".delta/versions/1/.delta/version",
        ] {
            let ino = walk(fs, file).await.unwrap().attr.ino;
            is_read_only(fs.open(ino, WRITE, CALLER).await);
            for size in [None, Some(0)] {
                let change = SetAttr {
                    size,
                    ..SetAttr::default()
                };
                is_read_only(fs.setattr(ino, None, change, CALLER).await);
            }
        }
    });
    assert_eq!((w.log().len(), w.rows()), (3, 10));
}

#[test]
fn what_the_kernel_forgets_is_forgotten() {
    let w = story();
    w.run(async |fs| {
        let known = || fs.core.inodes().len();
        walk(fs, ".delta/versions").await.unwrap();
        let before = known();
        let mut counted = Vec::new();
        for version in 0..=2 {
            let root = walk(fs, &format!(".delta/versions/{version}"))
                .await
                .unwrap()
                .attr
                .ino;
            counted.push(root);
            let fh = fs.opendir(root, CALLER).await.unwrap();
            for item in fs.readdir(root, fh, 0, 100).await.unwrap().iter().skip(2) {
                let entry = fs.lookup_listed(root, item, CALLER).await.unwrap();
                assert_eq!(entry.attr.ino, item.ino);
                counted.push(entry.attr.ino);
            }
            fs.releasedir(fh).await;
        }
        assert_eq!(known(), before + counted.len());
        for ino in counted {
            fs.forget(ino, 1);
        }
        assert_eq!(known(), before);
    });
}

#[test]
fn an_inode_of_another_log_is_dead() {
    let w = story();
    w.run(async |fs| {
        let root = walk(fs, ".delta/versions/1").await.unwrap().attr.ino;
        let file = walk(fs, ".delta/versions/1/a.parquet")
            .await
            .unwrap()
            .attr
            .ino;
        // Rolled back by one version.
        let log = w.dir.path().join("t/_delta_log");
        std::fs::remove_file(log.join("00000000000000000002.json")).unwrap();
        assert_eq!(w.snapshot().version(), 1);
        assert_eq!(fs.opendir(root, CALLER).await.unwrap_err(), FsError::Stale);
        assert_eq!(
            fs.open(file, READ, CALLER).await.unwrap_err(),
            FsError::Stale
        );
        let again = walk(fs, ".delta/versions/1/a.parquet").await.unwrap();
        assert_ne!(again.attr.ino, file);
        fs.open(again.attr.ino, READ, CALLER).await.unwrap();
    });
}
