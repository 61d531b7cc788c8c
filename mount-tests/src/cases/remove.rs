//! `rm`, overwriting and renaming of live files.

use crate::batch::orders;
use crate::case::{Cx, cases};
use crate::shell::{ENOENT, EPERM};

use super::dropping::{base_and, target};

cases!("remove":
    rm_removes_the_rows,
    rm_of_several_files,
    rm_of_a_file_with_a_vector,
    rm_recursively,
    rm_twice,
    overwrite_is_one_version,
    overwrite_many_times,
    overwrite_of_a_file_with_a_vector,
    rename_of_a_live_file,
    rename_of_a_directory,
    data_stays_on_disk,
    removed_behind_our_back,
    overwrites_at_once_are_one_writers_each,
    readers_of_an_overwritten_file_keep_the_old_one,
    rm_of_what_another_mount_has_replaced,
);

fn rm_removes_the_rows(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/; rm mnt/t/base.parquet; test ! -e mnt/t/base.parquet")
        .ok();
    t.holds(2, 100..110);
    assert_eq!(t.table.actions(2, "remove").len(), 1);
    assert!(
        t.table.actions(2, "add").is_empty(),
        "a metadata-only DELETE"
    );
    let remove = &t.table.actions(2, "remove")[0];
    assert_eq!(remove["dataChange"], true);
    assert!(remove["deletionTimestamp"].is_u64());
    let info = t.table.commit_info(2);
    assert_eq!(info["operation"], "DELETE", "{info}");
    assert_eq!(info["isBlindAppend"], false, "{info}");
}

fn rm_of_several_files(cx: &Cx) {
    let t = target(cx);
    cx.sh("for i in 1 2 3 4; do cp in/x.parquet mnt/t/$i.parquet; done; rm mnt/t/[0-9].parquet")
        .ok();
    assert_eq!(t.table.ids(), (0..10).collect::<Vec<_>>());
    t.table.assert_contiguous();
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "base.parquet\n");
}

fn rm_of_a_file_with_a_vector(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .file_with_vector("dv.parquet", &orders(0..10), &[2, 3])
        .file("plain.parquet", &orders(10..20))
        .create();
    let _m = cx.mount();
    cx.sh("rm mnt/t/dv.parquet").ok();
    assert_eq!(table.ids(), (10..20).collect::<Vec<_>>());
    let remove = &table.actions(1, "remove")[0];
    assert!(
        remove["deletionVector"].is_object(),
        "the remove names the vector: {remove}"
    );
}

/// `rm -r` of a table removes its rows; the table is still a table, and no other directory is touched.
fn rm_recursively(cx: &Cx) {
    let t = target(cx);
    cx.builder("u")
        .orders()
        .file("u.parquet", &orders(0..3))
        .create();
    cx.sh("rm -r mnt/t").fails("mnt/t");
    assert!(t.table.ids().is_empty());
    assert!(t.table.exists(), "the log stays");
    assert_eq!(cx.table("u").ids(), [0, 1, 2]);
}

fn rm_twice(cx: &Cx) {
    let t = target(cx);
    cx.sh("rm mnt/t/base.parquet").ok();
    cx.sh("rm mnt/t/base.parquet").fails(ENOENT);
    cx.sh("rm mnt/t/nosuch.parquet").fails(ENOENT);
    t.holds(1, []);
    // The name is free.
    cx.sh("cp in/x.parquet mnt/t/base.parquet; cmp in/x.parquet mnt/t/base.parquet")
        .ok();
    t.holds(2, 100..110);
}

fn overwrite_is_one_version(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/base.parquet; cmp in/x.parquet mnt/t/base.parquet")
        .ok();
    t.holds(1, 100..110);
    assert_eq!(t.table.actions(1, "remove").len(), 1);
    assert_eq!(t.table.actions(1, "add").len(), 1);
    assert_eq!(t.table.commit_info(1)["isBlindAppend"], false);
    t.stored_names_are_new();
}

fn overwrite_many_times(cx: &Cx) {
    let t = target(cx);
    for round in 1..=12_i64 {
        cx.input("y.parquet", &orders(round * 100..round * 100 + round));
        cx.sh("cp in/y.parquet mnt/t/base.parquet; cmp in/y.parquet mnt/t/base.parquet")
            .ok();
        t.holds(round as u64, round * 100..round * 100 + round);
    }
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "base.parquet\n");
}

fn overwrite_of_a_file_with_a_vector(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .file_with_vector("dv.parquet", &orders(0..10), &[2, 3])
        .create();
    cx.input("x.parquet", &orders(100..110));
    let _m = cx.mount();
    cx.sh("cp in/x.parquet mnt/t/dv.parquet; cmp in/x.parquet mnt/t/dv.parquet")
        .ok();
    assert_eq!(table.version(), 1);
    assert_eq!(table.ids(), (100..110).collect::<Vec<_>>());
}

/// Whatever a rename of committed data means: the rows stay, and the name is either the old or the new.
fn rename_of_a_live_file(cx: &Cx) {
    let t = target(cx);
    let ran = cx.sh("mv mnt/t/base.parquet mnt/t/renamed.parquet");
    assert_eq!(t.table.ids(), (0..10).collect::<Vec<_>>());
    let name = if ran.succeeded() {
        "renamed.parquet"
    } else {
        "base.parquet"
    };
    assert_eq!(cx.sh("ls -A mnt/t").ok(), format!("{name}\n"), "{ran}");
    cx.sh(&format!("cmp wh/t/base.parquet mnt/t/{name}")).ok();
    // Onto another live file: its rows go, or nothing happens.
    cx.sh("cp in/x.parquet mnt/t/").ok();
    let ran = cx.sh(&format!("mv mnt/t/{name} mnt/t/x.parquet"));
    if ran.succeeded() {
        assert_eq!(t.table.ids(), (0..10).collect::<Vec<_>>());
    } else {
        assert_eq!(t.table.ids(), base_and(100..110));
    }
}

fn rename_of_a_directory(cx: &Cx) {
    let t = target(cx);
    cx.builder("u").orders().create();
    for script in [
        "mv -T mnt/t mnt/u",
        "mv mnt/t mnt/u/",
        "mv mnt/t mnt/t/.delta/",
    ] {
        let ran = cx.sh(script);
        assert!(!ran.succeeded(), "{ran}");
    }
    t.holds(0, 0..10);
    // A plain directory, empty or not, moves or is refused as a whole.
    cx.sh("mkdir -p mnt/plain/sub").ok();
    let ran = cx.sh("mv mnt/plain mnt/other");
    let name = if ran.succeeded() { "other" } else { "plain" };
    cx.sh(&format!("test -d mnt/{name}/sub; test -d wh/{name}/sub"))
        .ok();
}

/// Removed files are for readers of older versions until VACUUM.
fn data_stays_on_disk(cx: &Cx) {
    let t = target(cx);
    cx.sh("rm mnt/t/base.parquet; test -f wh/t/base.parquet; cmp wh/t/base.parquet mnt/t/.delta/raw/base.parquet").ok();
    t.holds(1, []);
}

/// The data file is gone from the disk: reading says so, and the entry can still be removed.
fn removed_behind_our_back(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/; rm wh/t/base.parquet").ok();
    let ran = cx.sh("cat mnt/t/base.parquet");
    assert!(!ran.succeeded() && !ran.err.contains(EPERM), "{ran}");
    cx.sh("cmp in/x.parquet mnt/t/x.parquet; ls -l mnt/t; rm mnt/t/base.parquet")
        .ok();
    assert_eq!(t.table.ids(), (100..110).collect::<Vec<_>>());
}

/// Sixteen writers of one name: whoever is told that it succeeded did, and what stays is whole and one writer's. (A
/// few may be told ESTALE: the kernel shares one look at the name among those who ask at once.)
fn overwrites_at_once_are_one_writers_each(cx: &Cx) {
    let t = target(cx);
    for i in 1..=16 {
        cx.input(
            &format!("w{i}.parquet"),
            &orders(i * 1000..i * 1000 + 500 + i),
        );
    }
    let done = cx
        .sh("for i in $(seq 16); do (cp in/w$i.parquet mnt/t/base.parquet && echo $i) 2> /dev/null & done; wait")
        .ok();
    let done: Vec<i64> = done.lines().map(|line| line.parse().unwrap()).collect();
    assert!(!done.is_empty());
    assert_eq!(
        t.table.version(),
        done.len() as u64,
        "a version for each that was told so: {done:?}"
    );
    let ids = t.table.ids();
    let writer = ids[0] / 1000;
    assert!(done.contains(&writer), "{writer} of {done:?}");
    assert_eq!(
        ids,
        (writer * 1000..writer * 1000 + 500 + writer).collect::<Vec<_>>()
    );
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "base.parquet\n");
}

fn readers_of_an_overwritten_file_keep_the_old_one(cx: &Cx) {
    let t = target(cx);
    cx.input("x.parquet", &orders(100..900));
    cx.sh("$PY -c \"
import mmap, os
path, old, new = 'mnt/t/base.parquet', open('mnt/t/base.parquet', 'rb').read(), open('in/x.parquet', 'rb').read()
w = os.open(path, os.O_WRONLY | os.O_TRUNC)
os.write(w, new[:500])
r = open(path, 'rb')
assert os.fstat(r.fileno()).st_size == len(old)
m = mmap.mmap(r.fileno(), 0, prot=mmap.PROT_READ)
os.write(w, new[500:])
os.close(w)
assert r.read() == old and m[:] == old and os.fstat(r.fileno()).st_size == len(old)
assert open(path, 'rb').read() == new and os.stat(path).st_size == len(new)
\"")
    .ok();
    t.holds(1, 100..900);
}

/// The other mount has not looked yet: the name is what is meant.
fn rm_of_what_another_mount_has_replaced(cx: &Cx) {
    let t = target(cx);
    let _other = cx.mount_at("wh", "other", &["--refresh", "60000"]);
    cx.input("x.parquet", &orders(100..110));
    cx.sh("stat other/t/base.parquet > out; cp in/x.parquet mnt/t/base.parquet; rm other/t/base.parquet").ok();
    assert_eq!(t.table.ids(), Vec::<i64>::new());
}
