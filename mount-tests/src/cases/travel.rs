//! Time travel: `.delta/versions/N/` and `.delta/at/TIME/` show what was, and nothing in them ever changes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::batch::{columns, longs, orders, texts};
use crate::builder::{add, commit, field};
use crate::case::{Cx, cases};
use crate::mount::Mount;
use crate::shell::{EIO, ENOENT, EOPNOTSUPP, EROFS};
use crate::table::{Table, visible_name};

cases!("travel":
    a_version_is_the_table_as_of_then,
    partitions_of_then,
    inodes_and_times_are_stable,
    odd_names_are_absent,
    everything_is_read_only,
    no_version_within_a_version,
    its_own_control_files,
    a_vector_of_then,
    a_column_of_then,
    files_that_vacuum_removed,
    an_open_file_outlives_vacuum,
    a_cleaned_log,
    a_broken_checkpoint,
    ten_thousand_versions,
    versions_without_memory,
    another_table_in_its_place,
    times_by_file,
    times_in_every_form,
    times_by_stamp,
    times_out_of_range,
    the_future_is_now,
    at_is_not_listed,
    tools,
    read_only_mount,
);

/// Version 0: a, b. 1: c in. 2: a out. 3: b overwritten.
fn story(cx: &Cx) -> (Table, Mount) {
    let table = cx
        .builder("t")
        .orders()
        .file("a.parquet", &orders(0..10))
        .file("b.parquet", &orders(10..300))
        .create();
    cx.input("c.parquet", &orders(300..310));
    cx.input("b.parquet", &orders(500..510));
    let m = cx.mount();
    cx.sh("cp in/c.parquet mnt/t/; rm mnt/t/a.parquet; cp in/b.parquet mnt/t/")
        .ok();
    assert_eq!(table.version(), 3);
    (table, m)
}

/// Every file of `dir` is that of the table's version, byte for byte, and there is no other one.
#[track_caller]
fn shows(table: &Table, version: u64, dir: &Path) {
    let state = table.state_at(version);
    let expected: BTreeSet<String> = state.live().map(visible_name).collect();
    let listed = fs::read_dir(dir).unwrap();
    let listed: BTreeSet<String> = listed
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(listed, expected, "{}", dir.display());
    for add in state.live() {
        let (stored, shown) = (table.file(add), dir.join(visible_name(add)));
        let bytes = fs::read(&stored).unwrap();
        assert!(
            fs::read(&shown).unwrap() == bytes,
            "{} is not {}",
            shown.display(),
            stored.display()
        );
        let meta = fs::metadata(&shown).unwrap();
        assert_eq!(meta.len(), bytes.len() as u64, "{}", shown.display());
        let modified = add["modificationTime"].as_i64().unwrap();
        assert_eq!(meta.mtime(), modified / 1000, "{}", shown.display());
    }
}

fn last(cx: &Cx) -> Value {
    serde_json::from_str(&cx.sh("cat mnt/t/.delta/last").ok()).unwrap()
}

#[track_caller]
fn says(cx: &Cx, words: &[&str]) {
    let last = last(cx);
    let text = format!("{} {}", last["message"], last["hint"]);
    for word in words {
        assert!(text.contains(word), "`last` should say {word}: {last}");
    }
}

fn a_version_is_the_table_as_of_then(cx: &Cx) {
    let (table, m) = story(cx);
    assert_eq!(cx.sh("ls mnt/t/.delta/versions").ok(), "0\n1\n2\n3\n");
    for _ in 0..2 {
        for version in [0, 1, 2, 3] {
            let dir = m.path.join(format!("t/.delta/versions/{version}"));
            shows(&table, version, &dir);
        }
    }
    // The newest one stays what it is when it is not the newest any more.
    cx.sh("rm mnt/t/c.parquet; cmp in/c.parquet mnt/t/.delta/versions/3/c.parquet; ls mnt/t/.delta/versions/4")
        .ok();
    assert_eq!(cx.sh("ls mnt/t/.delta/versions/4").ok(), "b.parquet\n");
    // Both ways of reading, and what is not in a version.
    cx.sh("cd mnt/t/.delta/versions/1; cp -r . $OLDPWD/copy; diff -r . $OLDPWD/copy; tar cf - . | tar tf - | wc -l")
        .ok();
    cx.sh("cat mnt/t/.delta/versions/2/a.parquet").fails(ENOENT);
    cx.sh("cat mnt/t/.delta/versions/0/c.parquet").fails(ENOENT);
    assert_eq!(table.version(), 4, "reading changes nothing");
}

fn partitions_of_then(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .fields(vec![field("country", "string")])
        .partitioned_by(&["country"])
        .file_in("x/1.parquet", &orders(0..2), &[("country", Some("DE"))])
        .file_in(
            "x/2.parquet",
            &orders(2..4),
            &[("country", Some("a/b: c%"))],
        )
        .file_in("x/3.parquet", &orders(4..6), &[("country", None)])
        .create();
    let _m = cx.mount();
    cx.sh("rm -r mnt/t/country=DE 'mnt/t/country=a%2Fb%3A c%25'")
        .ok();
    assert_eq!(table.version(), 2);
    assert_eq!(
        cx.sh("cd mnt/t/.delta/versions; find 0 1 2 -name '*.parquet' | sort")
            .ok(),
        "0/country=DE/1.parquet\n\
         0/country=__HIVE_DEFAULT_PARTITION__/3.parquet\n\
         0/country=a%2Fb%3A c%25/2.parquet\n\
         1/country=__HIVE_DEFAULT_PARTITION__/3.parquet\n\
         1/country=a%2Fb%3A c%25/2.parquet\n\
         2/country=__HIVE_DEFAULT_PARTITION__/3.parquet\n"
    );
    cx.sh("cmp mnt/t/.delta/versions/0/country=DE/1.parquet wh/t/x/1.parquet")
        .ok();
    cx.sh("ls mnt/t/.delta/versions/2/country=DE").fails(ENOENT);
    cx.sh("cat mnt/t/.delta/versions/0/country=DE")
        .fails("Is a directory");
    cx.sh("ls mnt/t/.delta/versions/0/country=DE/1.parquet/x")
        .fails("Not a directory");
}

fn inodes_and_times_are_stable(cx: &Cx) {
    let (_, m) = story(cx);
    let script = "cd mnt/t/.delta; stat -c '%n %i %s %y %h %a' versions/* versions/*/* versions/1/.delta \
                  versions/1/.delta/* at/2099-01-01 at/2099-01-01/*";
    let first = cx.sh(script).ok();
    cx.sh("cat mnt/t/.delta/versions/*/*.parquet | wc -c; ls -lR mnt/t/.delta/versions > out")
        .ok();
    assert_eq!(cx.sh(script).ok(), first);
    // Whatever is live, in a version, or reached by a time, is an inode of its own; the listing agrees.
    let path = |p: &str| m.path.join("t").join(p);
    let inodes = [
        "b.parquet",
        ".delta/versions/3/b.parquet",
        ".delta/versions/2/b.parquet",
        ".delta/at/2099-01-01/b.parquet",
        ".delta/versions/3",
        ".delta/versions/2",
        ".delta/at/2099-01-01",
        ".delta/versions",
        ".delta/at",
        ".delta",
    ]
    .map(|p| fs::metadata(path(p)).unwrap().ino());
    assert_eq!(inodes.iter().collect::<BTreeSet<_>>().len(), inodes.len());
    let listed = cx
        .sh("cd mnt/t/.delta/versions; ls -di 2/b.parquet; ls -i 2 | grep b.parquet; ls -i . | grep -w 2")
        .ok();
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(
        [words[0], words[2], words[4]],
        [
            inodes[2].to_string(),
            inodes[2].to_string(),
            inodes[5].to_string()
        ],
        "{listed}"
    );
    // After another mount, too.
    m.umount();
    let _m = cx.mount();
    assert_eq!(cx.sh(script).ok(), first);
}

fn odd_names_are_absent(cx: &Cx) {
    let (table, m) = story(cx);
    let long = "9".repeat(200);
    for name in [
        "007",
        "00",
        "+1",
        "-1",
        "-0",
        "1.0",
        "0x1",
        "1e0",
        " 1",
        "1 ",
        "４",
        "4",
        "99",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        &long,
        "latest",
        "1.parquet",
        ".delta",
        ".git",
        "%31",
        "1\n",
        "_delta_log",
        "*",
    ] {
        let path = m.path.join("t/.delta/versions").join(name);
        let error = fs::metadata(&path).expect_err(name);
        assert_eq!(
            error.raw_os_error(),
            Some(libc::ENOENT),
            "{name:?}: {error}"
        );
        // Asked again: nothing of it is remembered.
        assert!(fs::read_dir(&path).is_err(), "{name:?}");
    }
    // What is not there yet is there once it is.
    cx.sh("test ! -e mnt/t/.delta/versions/4; rm mnt/t/b.parquet; test -d mnt/t/.delta/versions/4")
        .ok();
    assert_eq!(table.version(), 4);
    cx.sh("cat mnt/t/.delta/versions/3").fails("Is a directory");
}

fn everything_is_read_only(cx: &Cx) {
    let (table, _m) = story(cx);
    cx.input("x.parquet", &orders(0..1));
    cx.sh("cp in/x.parquet mnt/t/.scratch").ok();
    for root in [".delta/versions/1", ".delta/at/2099-01-01"] {
        for script in [
            "touch $V/new",
            "touch $V/b.parquet",
            "touch $V",
            "chmod 600 $V/b.parquet",
            "cp in/x.parquet $V/",
            "cp in/x.parquet $V/b.parquet",
            "cp in/x.parquet $V/.hidden",
            "echo x > $V/b.parquet",
            "echo x >> $V/b.parquet",
            "truncate -s 0 $V/b.parquet",
            "mkdir $V/dir",
            "rm $V/b.parquet",
            "rm -r $V",
            "rmdir $V",
            "mv $V/b.parquet $V/d.parquet",
            "mv $V/b.parquet mnt/t/d.parquet",
            "mv mnt/t/.scratch $V/d.parquet",
            "mv mnt/t/b.parquet $V/d.parquet",
            "mv $V $V-2",
            "mkdir ${V%/*}/7",
            "touch ${V%/*}/7",
            "mv ${V%/*} mnt/t/.delta/old",
            "touch $V/.delta/new",
            "echo 5 > $V/.delta/version",
            "rm $V/.delta/version",
            "mkdir $V/.delta/ctl",
            "mkdir $V/.delta/versions",
        ] {
            let ran = cx.sh(&format!("V=mnt/t/{root}; {script}"));
            // The directory above is .delta, of which nothing can be moved either.
            let other = script.contains("${V%/*} mnt") && !ran.succeeded();
            assert!(
                other || (!ran.succeeded() && ran.err.contains(EROFS)),
                "{ran}"
            );
        }
        let ran = cx.sh(&format!("ln mnt/t/{root}/b.parquet mnt/t/l.parquet"));
        assert!(!ran.succeeded(), "{ran}");
    }
    says(cx, &["earlier versions never change"]);
    assert_eq!(table.version(), 3);
    cx.sh("cmp wh/t/b.parquet mnt/t/.delta/versions/1/b.parquet; ls wh/t/_delta_log | wc -l")
        .ok();
    // Permission bits say so, too.
    cx.sh("test $(stat -c %a mnt/t/.delta/versions/1/b.parquet) = 444; test $(stat -c %a mnt/t/.delta/versions/1) = 555")
        .ok();
}

fn no_version_within_a_version(cx: &Cx) {
    let (_, _m) = story(cx);
    for name in [
        "versions",
        "versions/1",
        "at",
        "at/2099-01-01",
        "raw",
        "ctl",
        "ctl/delete",
        "in",
        "last",
        "rejected",
        ".delta",
        "README",
    ] {
        cx.sh(&format!("stat mnt/t/.delta/versions/2/.delta/{name}"))
            .fails(ENOENT);
    }
    assert_eq!(
        cx.sh("ls -A mnt/t/.delta/versions/2/.delta").ok(),
        "history\nhistory.jsonl\ninfo.json\nschema.json\nversion\n"
    );
    assert_eq!(
        cx.sh("ls -A mnt/t/.delta/versions/2").ok(),
        "b.parquet\nc.parquet\n",
        "its control directory is not listed"
    );
    cx.sh("cd mnt/t/.delta/versions/2/.delta/../../../..; test -e b.parquet; ls ..")
        .ok();
    // A walk over everything that can be listed ends.
    cx.sh("timeout 60 find mnt/t/.delta | wc -l").ok();
    cx.sh("deltafs umount mnt").ok();
    let _m = cx.mount_with(&["--list-control"]);
    let found = cx.sh("timeout 60 find mnt/t -name version").ok();
    assert_eq!(found.lines().count(), 1 + 4, "{found}");
}

fn its_own_control_files(cx: &Cx) {
    let (table, m) = story(cx);
    // Version 4: another system adds a column.
    let mut metadata = table.state().metadata;
    let mut schema: Value = table.state().schema();
    schema["fields"]
        .as_array_mut()
        .unwrap()
        .push(field("later", "string"));
    metadata["schemaString"] = json!(schema.to_string());
    commit(
        &table,
        &[
            json!({"commitInfo": {"operation": "ADD COLUMNS"}}),
            json!({"metaData": metadata}),
        ],
    );
    cx.eventually("version 4", || {
        fs::read_to_string(m.path.join("t/.delta/version")).unwrap() == "4\n"
    });
    let text = |path: &str| fs::read_to_string(m.path.join("t/.delta").join(path)).unwrap();
    let json = |path: &str| -> Value { serde_json::from_str(&text(path)).unwrap() };
    for version in 0..=4_u64 {
        let of = |name: &str| format!("versions/{version}/.delta/{name}");
        assert_eq!(text(&of("version")), format!("{version}\n"));
        assert_eq!(json(&of("schema.json")), table.state_at(version).schema());
        let info = json(&of("info.json"));
        assert_eq!(info["version"], version, "{info}");
        assert_eq!(info["files"], table.state_at(version).live().count());
        let history = text(&of("history"));
        let all = text("history");
        let skipped = 4 - usize::try_from(version).unwrap();
        let expected: Vec<&str> = all.lines().skip(skipped).collect();
        assert_eq!(history.lines().collect::<Vec<_>>(), expected);
        assert_eq!(text(&of("history.jsonl")).lines().count(), expected.len());
    }
    assert_ne!(text("versions/3/.delta/schema.json"), text("schema.json"));
    cx.sh("cd mnt/t/.delta/versions/3/.delta
        for f in *; do
            test $(stat -c %s $f) = $(cat $f | wc -c)
            tar cf - $f | tar xOf - | cmp - $f
        done
        cd ../../../at/2099-01-01/.delta; test $(cat version) = 4")
        .ok();
}

/// What is refused is what live files are refused for, and never served wrongly.
fn a_vector_of_then(cx: &Cx) {
    cx.builder("t")
        .orders()
        .file("a.parquet", &orders(0..10))
        .create();
    let _m = cx.mount();
    cx.sh("echo 'id = 3' > mnt/t/.delta/ctl/delete").ok();
    cx.sh("cmp mnt/t/.delta/versions/0/a.parquet wh/t/a.parquet")
        .ok();
    cx.sh("cat mnt/t/.delta/versions/1/a.parquet")
        .fails(EOPNOTSUPP);
    says(cx, &["a.parquet", "deletion vector", ".delta/raw"]);
    cx.sh("cat mnt/t/a.parquet").fails(EOPNOTSUPP);
    cx.sh("cmp mnt/t/.delta/versions/0/a.parquet wh/t/a.parquet")
        .ok();
}

/// A file is judged by the schema of its version.
fn a_column_of_then(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .file("a.parquet", &orders(0..10))
        .create();
    let m = cx.mount();
    let mut metadata = table.state().metadata;
    let mut schema: Value = table.state().schema();
    schema["fields"]
        .as_array_mut()
        .unwrap()
        .push(field("later", "string"));
    metadata["schemaString"] = json!(schema.to_string());
    commit(&table, &[json!({"metaData": metadata})]);
    cx.eventually("version 1", || m.path.join("t/.delta/versions/1").is_dir());
    for _ in 0..2 {
        cx.sh("cat mnt/t/.delta/versions/1/a.parquet")
            .fails(EOPNOTSUPP);
        cx.sh("cmp mnt/t/.delta/versions/0/a.parquet wh/t/a.parquet")
            .ok();
    }
}

/// Not ENOENT: a copy of the version must not pass for whole.
fn files_that_vacuum_removed(cx: &Cx) {
    let (table, m) = story(cx);
    let gone = table.state_at(0).named("b.parquet").clone();
    fs::remove_file(table.file(&gone)).unwrap();
    cx.sh("cat mnt/t/.delta/versions/0/b.parquet").fails(EIO);
    says(cx, &["b.parquet", "version 0", "missing", "VACUUM"]);
    // It is listed with the size that the log tells, and the rest can be read.
    let size = fs::metadata(m.path.join("t/.delta/versions/1/b.parquet"))
        .unwrap()
        .len();
    assert_eq!(Some(size), gone["size"].as_u64());
    cx.sh("cat mnt/t/.delta/versions/0/a.parquet > out; cmp out wh/t/a.parquet")
        .ok();
    let ran = cx.sh("cp -r mnt/t/.delta/versions/0 copy");
    assert!(!ran.succeeded(), "{ran}");
    cx.sh("cmp in/b.parquet mnt/t/.delta/versions/3/b.parquet")
        .ok();
}

fn an_open_file_outlives_vacuum(cx: &Cx) {
    let (table, m) = story(cx);
    m.umount();
    for arguments in [&["--no-passthrough"][..], &[]] {
        let m = cx.mount_with(arguments);
        let stored = table.file(table.state_at(0).named("b.parquet"));
        let bytes = fs::read(&stored).unwrap();
        let mut file = File::open(m.path.join("t/.delta/versions/0/b.parquet")).unwrap();
        let mut found = vec![0; 100];
        file.read_exact(&mut found).unwrap();
        fs::rename(&stored, cx.path("kept")).unwrap();
        file.read_to_end(&mut found).unwrap();
        assert!(found == bytes);
        fs::rename(cx.path("kept"), &stored).unwrap();
        drop(file);
        m.umount();
    }
}

fn appends(table: &Table, count: u64) {
    for _ in 0..count {
        let version = table.version() + 1;
        let action = add(&format!("f{version}.parquet"), 1000, 1, &[]);
        commit(
            table,
            &[
                json!({"commitInfo": {"operation": "WRITE"}}),
                json!({"add": action}),
            ],
        );
    }
}

fn a_cleaned_log(cx: &Cx) {
    let table = cx.orders();
    for i in 0..23 {
        cx.input(&format!("f{i}.parquet"), &orders(i..i + 1));
    }
    let m = cx.mount();
    cx.sh("for i in $(seq 0 22); do cp in/f$i.parquet mnt/t/; done")
        .ok();
    let checkpoint = table
        .path
        .join("_delta_log/00000000000000000020.checkpoint.parquet");
    cx.eventually("the checkpoint of version 20", || checkpoint.exists());
    assert_eq!(cx.sh("ls mnt/t/.delta/versions | wc -l").ok(), "24\n");
    cx.sh("ls mnt/t/.delta/versions/5 mnt/t/.delta/versions/20 > out")
        .ok();
    // Another system cleans up before the checkpoint of version 20.
    for version in 0..20 {
        fs::remove_file(table.commit_path(version)).unwrap();
    }
    cx.sh(
        "rm -f wh/t/_delta_log/00000000000000000010.checkpoint.parquet wh/t/_delta_log/*0[0-9].crc",
    )
    .ok();
    let listed = || cx.sh("ls mnt/t/.delta/versions").ok();
    cx.within(Duration::from_secs(3), "the clean-up is seen", || {
        listed() == "20\n21\n22\n23\n"
    });
    for version in [0, 5, 19] {
        cx.sh(&format!("ls mnt/t/.delta/versions/{version}"))
            .fails(ENOENT);
        says(cx, &[&format!("version {version} "), "cleaned up", "is 20"]);
    }
    cx.sh("ls mnt/t/.delta/at/2020-01-01").fails(ENOENT);
    says(cx, &["2020-01-01T00:00:00.000Z", "is 20, of 20"]);
    for version in 20..=23 {
        let dir = m.path.join(format!("t/.delta/versions/{version}"));
        assert_eq!(fs::read_dir(dir).unwrap().count(), version + 1);
    }
    cx.sh("cmp in/f3.parquet mnt/t/.delta/versions/20/f3.parquet")
        .ok();
    // The same for whoever mounts it now.
    m.umount();
    let _m = cx.mount();
    assert_eq!(listed(), "20\n21\n22\n23\n");
    cx.sh("ls mnt/t/.delta/versions/19").fails(ENOENT);
    cx.sh("cmp in/f3.parquet mnt/t/.delta/versions/21/f3.parquet")
        .ok();
}

/// What the listing promises and the content does not hold is an error with its reason, of that version only.
fn a_broken_checkpoint(cx: &Cx) {
    let table = cx.orders();
    appends(&table, 6);
    let m = cx.mount();
    cx.sh("ls mnt/t").ok();
    let log = table.path.join("_delta_log");
    fs::write(log.join("00000000000000000003.checkpoint.parquet"), "PAR1").unwrap();
    fs::remove_file(table.commit_path(1)).unwrap();
    cx.within(Duration::from_secs(3), "version 1 is gone", || {
        cx.sh("ls mnt/t/.delta/versions").ok() == "0\n3\n4\n5\n6\n"
    });
    cx.sh("ls mnt/t/.delta/versions/4").fails(EIO);
    assert_eq!(last(cx)["error"], "corrupt");
    assert_eq!(cx.sh("ls mnt/t/.delta/versions/0").ok(), "base.parquet\n");
    assert_eq!(cx.sh("ls mnt/t/.delta/versions/6 | wc -l").ok(), "7\n");
    assert_eq!(fs::read_dir(m.path.join("t")).unwrap().count(), 7);
}

fn ten_thousand_versions(cx: &Cx) {
    cx.time_limit(300);
    const VERSIONS: u64 = 10_000;
    let table = cx.orders();
    for version in 1..VERSIONS {
        let action = add(&format!("f{version}.parquet"), 1000, 1, &[]);
        fs::write(
            table.commit_path(version),
            json!({"add": action}).to_string(),
        )
        .unwrap();
    }
    let m = cx.mount();
    assert_eq!(cx.sh("cat mnt/t/.delta/version").ok(), "9999\n");
    let timed = |script: &str| {
        let began = Instant::now();
        let out = cx.sh(script).ok();
        println!("{:?}  {script}", began.elapsed());
        (out, began.elapsed())
    };
    let before = m.memory_kb("VmRSS");
    for _ in 0..2 {
        let (out, took) = timed(
            "ls mnt/t/.delta/versions | sort -n | cmp - <(seq 0 9999); ls -f mnt/t/.delta/versions | wc -l",
        );
        assert_eq!(out, "10002\n");
        assert!(took < Duration::from_secs(5), "listed in {took:?}");
    }
    let (out, took) = timed("ls -l mnt/t/.delta/versions | wc -l");
    assert_eq!(out, "10001\n");
    assert!(
        took < Duration::from_secs(30),
        "listed with ls -l in {took:?}"
    );
    let after = m.memory_kb("VmRSS");
    println!("{before} kB before, {after} kB after");
    assert!(
        after < before + 60_000,
        "no version was opened: {before} kB, then {after} kB"
    );
    let (out, _) =
        timed("ls mnt/t/.delta/versions/17 | wc -l; ls mnt/t/.delta/versions/5000 | wc -l");
    assert_eq!(out, "18\n5001\n");
    let (_, took) = timed(
        "ls mnt/t/.delta/versions/5000 mnt/t/.delta/versions/17 > out; ls mnt/t/.delta/at/2099-01-01 > out",
    );
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// A walk over many versions keeps a few of them in memory, and ends.
fn versions_without_memory(cx: &Cx) {
    cx.time_limit(300);
    const FILES: usize = 5000;
    const VERSIONS: usize = 40;
    let mut builder = cx.builder("t").orders();
    for i in 0..FILES {
        builder = builder.action("add", add(&format!("part-{i:06}.parquet"), 1000, 10, &[]));
    }
    let table = builder.create();
    appends(&table, VERSIONS as u64);
    let m = cx.mount();
    cx.sh("ls mnt/t | wc -l; ls -f mnt/t/.delta/versions/3 | wc -l")
        .ok();
    let one = m.memory_kb("VmRSS");
    let began = Instant::now();
    let count = |script: &str| cx.sh(script).ok().trim().parse::<usize>().unwrap();
    let files = count("cd mnt/t/.delta/versions; for v in *; do ls -f $v; done | grep -c parquet");
    assert_eq!(files, (0..=VERSIONS).map(|v| FILES + v).sum::<usize>());
    println!("{VERSIONS} versions walked in {:?}", began.elapsed());
    // Many at once, one by many, and name by name across more versions than are kept.
    cx.sh("cd mnt/t/.delta/versions
        for v in $(seq 0 15); do ls -l $v | wc -l & done; wait
        for i in $(seq 8); do ls -f 9 | wc -l & done; wait
        for n in 1 2 3; do stat -c %s {0..12}/part-00000$n.parquet; done")
        .ok();
    println!("all done after {:?}", began.elapsed());
    let (all, peak) = (m.memory_kb("VmRSS"), m.memory_kb("VmHWM"));
    println!("{one} kB with one version, {all} kB after all, at most {peak} kB");
    assert!(all < one * 6, "{one} kB with one, {all} kB after all");
}

/// The same name, the same version numbers, even the same paths: another table.
fn another_table_in_its_place(cx: &Cx) {
    let build = |ids: std::ops::Range<i64>| {
        cx.builder("t")
            .orders()
            .file("a.parquet", &orders(ids))
            .create()
    };
    build(0..10);
    let _m = cx.mount();
    cx.input("x.parquet", &orders(90..91));
    cx.sh("cp in/x.parquet mnt/t/; cmp wh/t/a.parquet mnt/t/.delta/versions/0/a.parquet; stat mnt/t/.delta/versions/1/x.parquet")
        .ok();
    cx.sh("rm -r wh/t").ok();
    build(100..300);
    cx.within(Duration::from_secs(5), "the new table's version 0", || {
        cx.sh("cmp wh/t/a.parquet mnt/t/.delta/versions/0/a.parquet && test ! -e mnt/t/.delta/versions/1")
            .succeeded()
    });
    assert_eq!(cx.sh("ls mnt/t/.delta/versions").ok(), "0\n");
    // Rolled back and gone another way.
    cx.sh("cp in/x.parquet mnt/t/x.parquet; cat mnt/t/.delta/versions/1/x.parquet > out")
        .ok();
    let table = cx.table("t");
    fs::remove_file(table.commit_path(1)).unwrap();
    cx.eventually("version 1 is gone", || {
        !cx.path("mnt/t/.delta/versions/1").exists()
    });
    commit(&table, &[json!({"commitInfo": {"operation": "NOTHING"}})]);
    cx.eventually("another version 1", || {
        cx.sh("ls mnt/t/.delta/versions/1").out == "a.parquet\n"
    });
}

/// Versions of these times: 0: noon of 2026-03-01, 1: a day later, 2: 1 h earlier than 1, 3: two days later.
fn dated(cx: &Cx) -> Table {
    let table = cx.orders();
    appends(&table, 3);
    cx.sh("cd wh/t/_delta_log
        touch -d 2026-03-01T12:00:00Z 00000000000000000000.json
        touch -d 2026-03-02T12:00:00Z 00000000000000000001.json
        touch -d 2026-03-02T11:00:00Z 00000000000000000002.json
        touch -d 2026-03-03T12:00:00Z 00000000000000000003.json")
        .ok();
    table
}

#[track_caller]
fn at(cx: &Cx, time: &str) -> String {
    cx.sh(&format!("cat 'mnt/t/.delta/at/{time}/.delta/version'"))
        .ok()
        .trim()
        .to_owned()
}

/// Without in-commit timestamps the commit files' times decide, made monotonic (D91).
fn times_by_file(cx: &Cx) {
    dated(cx);
    let m = cx.mount();
    for (time, version) in [
        ("2026-03-01T12:00:00Z", "0"),
        ("2026-03-02T11:59:59.999Z", "0"),
        ("2026-03-02T12:00:00Z", "1"),
        ("2026-03-02T12:00:00.001Z", "2"),
        ("2026-03-03T11:59:59Z", "2"),
        ("2026-03-03T12:00:00Z", "3"),
        ("2026-03-04", "3"),
    ] {
        assert_eq!(at(cx, time), version, "{time}");
    }
    // The directory is the version's: files, times, sizes.
    cx.sh(
        "cd mnt/t/.delta; diff <(ls versions/1) <(ls at/2026-03-02T12:00:00Z)
        cmp at/2026-03-02T12:00:00Z/base.parquet versions/1/base.parquet",
    )
    .ok();
    // What history and `ls -l` tell is what `at` goes by.
    let history = fs::read_to_string(m.path.join("t/.delta/history")).unwrap();
    for line in history.lines() {
        let mut words = line.split_whitespace();
        let (version, time) = (words.next().unwrap(), words.next().unwrap());
        assert_eq!(at(cx, time), version, "{line}");
    }
    assert_eq!(
        cx.sh("cd mnt/t/.delta/versions; TZ=UTC stat -c %y 0 1 2 3 | cut -c1-23")
            .ok(),
        "2026-03-01 12:00:00.000\n2026-03-02 12:00:00.000\n2026-03-02 12:00:00.001\n2026-03-03 12:00:00.000\n"
    );
}

fn times_in_every_form(cx: &Cx) {
    dated(cx);
    let _m = cx.mount();
    for time in [
        "2026-03-02T12:00:00Z",
        "2026-03-02t12:00:00z",
        "2026-03-02T12:00:00",
        "2026-03-02 12:00:00",
        "2026-03-02 12:00",
        "2026-03-02T12:00:00.0009Z",
        "2026-03-02T13:00:00+01:00",
        "2026-03-02T06:30:00-05:30",
        "1772452800000",
    ] {
        assert_eq!(at(cx, time), "1", "{time}");
    }
    assert_eq!(at(cx, "2026-03-02"), "0", "a date is its midnight, UTC");
    for odd in [
        "now",
        "2026",
        "2026-03",
        "2026-3-2",
        "2026-02-30",
        "2026-03-02T25:00:00Z",
        "2026-03-02T12:00:00+99:00",
        "20260302",
        "1772452800",
        "-1",
        "+2026-03-02",
        ".git",
        "2026-03-02T12:00:00Z.parquet",
    ] {
        cx.sh(&format!("stat 'mnt/t/.delta/at/{odd}'"))
            .fails(ENOENT);
    }
    cx.sh("ls mnt/t/.delta/at/2026-02-30").fails(ENOENT);
    says(cx, &["2026-02-30 is no time", "2026-11-30T12:00:00Z"]);
    // Names that tools look for by themselves are no mistake to tell of.
    cx.sh("ls mnt/t/.delta/at/.git").fails(ENOENT);
    says(cx, &["2026-02-30 is no time"]);
}

/// In-commit timestamps decide, whatever times the files of a copied table have.
fn times_by_stamp(cx: &Cx) {
    let table = cx
        .builder("t")
        .features(&[], &["inCommitTimestamp"])
        .orders()
        .property("delta.enableInCommitTimestamps", "true")
        .property("delta.inCommitTimestampEnablementVersion", "2")
        .property(
            "delta.inCommitTimestampEnablementTimestamp",
            "1772496000000",
        )
        .create();
    // 2026-03-03, a day and another: the last three versions.
    for (version, stamp) in [(1, None), (2, Some(0)), (3, Some(1)), (4, Some(2))] {
        let mut info = json!({"operation": "WRITE"});
        if let Some(days) = stamp {
            info["inCommitTimestamp"] = json!(1_772_496_000_000_i64 + days * 86_400_000);
        }
        let action = add(&format!("f{version}.parquet"), 1000, 1, &[]);
        commit(
            &table,
            &[json!({"commitInfo": info}), json!({"add": action})],
        );
    }
    let _m = cx.mount();
    // The files are of today, all of them.
    for (time, version) in [
        ("2026-03-03", "2"),
        ("2026-03-03T23:59:59.999Z", "2"),
        ("2026-03-04T00:00:00Z", "3"),
        ("2026-03-05", "4"),
        ("2099-01-01", "4"),
    ] {
        assert_eq!(at(cx, time), version, "{time}");
    }
    cx.sh("ls mnt/t/.delta/at/2026-03-02T23:59:59Z")
        .fails(ENOENT);
    says(cx, &["is 2, of 2026-03-03T00:00:00.000Z"]);
    assert_eq!(
        cx.sh("cd mnt/t/.delta/versions; TZ=UTC stat -c %y 2 3 4 | cut -c1-19")
            .ok(),
        "2026-03-03 00:00:00\n2026-03-04 00:00:00\n2026-03-05 00:00:00\n"
    );
    cx.sh("deltafs umount mnt; cd wh/t/_delta_log; touch -d 2026-03-01T00:00:00Z *0.json; touch -d 2026-03-02T00:00:00Z *1.json")
        .ok();
    let _m = cx.mount();
    for (time, version) in [
        ("2026-03-01", "0"),
        ("2026-03-02", "1"),
        ("2026-03-02T23:59:59.999Z", "1"),
        ("2026-03-03", "2"),
    ] {
        assert_eq!(at(cx, time), version, "{time}");
    }
}

fn times_out_of_range(cx: &Cx) {
    dated(cx);
    let _m = cx.mount();
    for time in ["2026-03-01T11:59:59.999Z", "1970-01-01", "0001-01-01"] {
        cx.sh(&format!("ls mnt/t/.delta/at/{time}")).fails(ENOENT);
        says(
            cx,
            &["has no version of", "is 0, of 2026-03-01T12:00:00.000Z"],
        );
    }
    for time in [
        "2026-03-03T12:00:00.001Z",
        "2999-12-31",
        "9999-12-31T23:59:59Z",
    ] {
        assert_eq!(at(cx, time), "3", "{time}");
    }
    // A plain directory has no versions.
    cx.sh("mkdir mnt/plain").ok();
    for name in ["versions", "versions/0", "at", "at/2026-03-03"] {
        cx.sh(&format!("stat mnt/plain/.delta/{name}"))
            .fails(ENOENT);
    }
}

/// After the last commit it is the newest version, and the kernel does not remember that for long.
fn the_future_is_now(cx: &Cx) {
    let table = cx.orders();
    let m = cx.mount();
    for i in 1..=5 {
        cx.input("x.parquet", &orders(i..i + 1));
        assert_eq!(at(cx, "2099-01-01"), (i - 1).to_string());
        let name = format!("x{i}.parquet");
        cx.sh(&format!(
            "cp in/x.parquet mnt/t/{name}; cmp in/x.parquet mnt/t/.delta/at/2099-01-01/{name}"
        ))
        .ok();
        assert_eq!(
            at(cx, "2099-01-01"),
            i.to_string(),
            "one's own commit at once"
        );
    }
    appends(&table, 1);
    cx.within(Duration::from_secs(3), "a commit of somebody else", || {
        at(cx, "2099-01-01") == "6"
    });
    // Whoever is in there stays where he is.
    let inside = File::open(m.path.join("t/.delta/at/2099-01-01")).unwrap();
    appends(&table, 1);
    cx.within(Duration::from_secs(3), "the next one", || {
        at(cx, "2099-01-01") == "7"
    });
    let via = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        std::os::fd::AsRawFd::as_raw_fd(&inside)
    );
    assert_eq!(fs::read_dir(via).unwrap().count(), 7);
}

fn at_is_not_listed(cx: &Cx) {
    dated(cx);
    let _m = cx.mount();
    assert_eq!(
        cx.sh("ls -A mnt/t/.delta/at; stat -c %F mnt/t/.delta/at")
            .ok(),
        "directory\n"
    );
    at(cx, "2026-03-03");
    assert_eq!(cx.sh("ls -A mnt/t/.delta/at").ok(), "");
    let readme = cx.sh("cat mnt/t/.delta/README").ok();
    for word in ["versions/N/", "at/TIME/", "2026-11-30T12:00:00Z", "VACUUM"] {
        assert!(
            readme.contains(word),
            "README does not tell of {word}: {readme}"
        );
    }
}

fn tools(cx: &Cx) {
    let table = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("p", "string")])
        .partitioned_by(&["p"])
        .file_in(
            "1.parquet",
            &columns(vec![("id", longs(0..1000))]),
            &[("p", Some("x"))],
        )
        .create();
    cx.input(
        "2.parquet",
        &columns(vec![("id", longs(1000..3000)), ("p", texts(["y"; 2000]))]),
    );
    let _m = cx.mount();
    cx.sh("cp in/2.parquet mnt/t/; rm -r mnt/t/p=x").ok();
    assert_eq!(table.version(), 2);
    cx.py_with(
        &["duckdb", "pyarrow", "polars"],
        "
import duckdb, pyarrow.dataset as ds, polars as pl
for v, n in [(0, 1000), (1, 3000), (2, 2000)]:
    d = f'mnt/t/.delta/versions/{v}'
    q = f\"select count(*), count(distinct id), min(p), max(p) from read_parquet('{d}/**/*.parquet', hive_partitioning=true)\"
    assert duckdb.sql(q).fetchall() == [(n, n, 'x' if v < 2 else 'y', 'x' if v == 0 else 'y')], v
    t = ds.dataset(d, partitioning='hive').to_table()
    assert t.num_rows == n and t.column_names == ['id', 'p'], v
    assert pl.scan_parquet(d + '/**/*.parquet', hive_partitioning=True).collect().height == n, v",
    )
    .ok();
    cx.sh("rm -rf out; mkdir out; cp -r mnt/t/.delta/versions/* out/; diff -r mnt/t/.delta/versions out; \
           rsync -a mnt/t/.delta/versions/1/ copy/ && diff -r copy out/1; grep -rl PAR1 mnt/t/.delta/versions | wc -l")
        .ok();
}

fn read_only_mount(cx: &Cx) {
    dated(cx);
    let _m = cx.mount_with(&["-o", "ro"]);
    assert_eq!(cx.sh("ls mnt/t/.delta/versions").ok(), "0\n1\n2\n3\n");
    assert_eq!(at(cx, "2026-03-02T12:00:00Z"), "1");
    cx.sh("touch mnt/t/.delta/versions/1/x").fails(EROFS);
    cx.sh("cmp wh/t/base.parquet mnt/t/.delta/versions/2/base.parquet")
        .ok();
}
