//! `.delta/tx/NAME/`: many steps, one version; seen inside only; gone without a trace when it is aborted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::batch::{columns, longs, order_rows, orders, texts};
use crate::case::{Cx, cases};
use crate::mount;
use crate::shell::{EBUSY, EINVAL, ENOSPC, ENOTEMPTY, EPERM, EROFS};
use crate::table::Table;

use super::delete::delete;
use super::dropping::{base_and, target, target_with};

cases!("transaction":
    a_thousand_files_are_one_version,
    only_the_transaction_sees_its_steps,
    statements_see_the_files_before_them,
    a_conflict_commits_nothing,
    rows_of_one_file_apart,
    another_schema,
    rmdir_aborts,
    rm_r_aborts,
    the_end_of_the_mount_aborts,
    a_killed_daemon_leaves_nothing,
    two_mounts,
    the_commit_is_written_once,
    over_is_read_only,
    what_is_still_open_is_not_committed,
    tools,
    partitions,
    names,
    limits,
    left_alone,
    only_its_owner_writes,
    options,
    row_ids,
    readers_and_the_history,
);

const TX: &str = "mnt/t/.delta/tx/load";

fn outcome(cx: &Cx) -> Value {
    outcome_of(cx, TX)
}

fn outcome_of(cx: &Cx, tx: &str) -> Value {
    serde_json::from_str(&cx.sh(&format!("cat '{tx}/outcome'")).ok()).unwrap()
}

/// The files of the table's directory, lists and vectors included, without the log.
fn stored(table: &Table) -> BTreeSet<String> {
    fn walk(dir: &std::path::Path, prefix: &str, into: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true if name == "_delta_log" => {}
                true => walk(&entry.path(), &format!("{name}/"), into),
                false => {
                    into.insert(name);
                }
            }
        }
    }
    let mut files = BTreeSet::new();
    walk(&table.path, "", &mut files);
    files
}

fn a_thousand_files_are_one_version(cx: &Cx) {
    cx.time_limit(300);
    let t = target(cx);
    cx.sh("rm in/x.parquet").ok();
    for n in 0..1000 {
        cx.input(&format!("f{n:04}.parquet"), &orders(100 + n..101 + n));
    }
    cx.sh(&format!("mkdir {TX}; cp in/*.parquet {TX}/")).ok();
    assert_eq!(cx.sh(&format!("ls {TX} | wc -l")).ok(), "1001\n");
    assert_eq!(t.table.version(), 0);
    cx.sh(&format!("echo commit > {TX}/commit")).ok();
    t.holds(1, base_and(100..1100));
    let info = t.table.commit_info(1);
    assert_eq!(info["operation"], "WRITE", "{info}");
    assert_eq!(info["isBlindAppend"], true, "{info}");
    assert_eq!(info["operationMetrics"]["numFiles"], "1000", "{info}");
    assert_eq!(info["operationParameters"]["transaction"], "load", "{info}");
    assert_eq!(info["operationParameters"]["numSteps"], "1000", "{info}");
    t.stored_names_are_new();
    let files = t.table.state().live().count();
    assert_eq!(stored(&t.table).len(), files, "nothing but what is live");
    // Each under its name, byte for byte.
    cx.sh("cmp in/f0777.parquet mnt/t/f0777.parquet").ok();
}

fn only_the_transaction_sees_its_steps(cx: &Cx) {
    let t = target(cx);
    let other = cx.mount_at("wh", "other", &["--refresh", "20"]);
    cx.sh(&format!(
        "mkdir {TX}; cp in/x.parquet {TX}/; rm {TX}/base.parquet"
    ))
    .ok();
    assert_eq!(cx.sh(&format!("ls -A {TX}")).ok(), "x.parquet\n");
    for dir in ["mnt/t", "other/t"] {
        assert_eq!(cx.sh(&format!("ls -A {dir}")).ok(), "base.parquet\n");
        assert_eq!(cx.sh(&format!("cat {dir}/.delta/version")).ok(), "0\n");
    }
    // The other mount does not even know of it.
    assert_eq!(cx.sh("ls -A other/t/.delta/tx").ok(), "");
    assert_eq!(cx.sh("ls -A mnt/t/.delta/tx").ok(), "load\n");
    // What others commit meanwhile does not show inside.
    cx.sh("cp in/x.parquet other/t/y.parquet").ok();
    cx.eventually("the append shows outside", || {
        cx.sh("ls mnt/t").ok() == "base.parquet\ny.parquet\n"
    });
    assert_eq!(cx.sh(&format!("ls -A {TX}")).ok(), "x.parquet\n");
    cx.sh(&format!("echo commit > {TX}/commit")).ok();
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "x.parquet\ny.parquet\n");
    assert_eq!(t.table.version(), 2);
    cx.eventually("the commit shows on the other mount", || {
        cx.sh("ls other/t").ok() == "x.parquet\ny.parquet\n"
    });
    other.umount();
}

fn statements_see_the_files_before_them(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!(
        "mkdir {TX}
         cp in/x.parquet {TX}/
         echo 'id IN (3, 105)' > {TX}/ctl/delete
         cp in/x.parquet {TX}/in/append/
         echo 'id < 2 OR id > 107' > {TX}/ctl/delete"
    ))
    .ok();
    let said = outcome(cx);
    assert_eq!(said["outcome"], "open", "{said}");
    assert_eq!(said["read_version"], 0, "{said}");
    let staged = json!({"steps": 4, "files_added": 2, "files_changed": 1, "files_removed": 0});
    assert_eq!(said["staged"], staged, "{said}");
    // 2, 4 to 9; 100 to 107 without 105; 100 to 107.
    assert_eq!(said["rows"], 7 + 7 + 8, "{said}");
    let step: Value = serde_json::from_str(&cx.sh(&format!("cat {TX}/ctl/delete")).ok()).unwrap();
    assert_eq!(step["outcome"], "staged", "{step}");
    assert_eq!(step["metrics"]["numDeletedRows"], 6, "{step}");
    t.holds(0, 0..10);
    cx.sh(&format!("echo commit > {TX}/commit")).ok();
    let mut ids: Vec<i64> = [2].into_iter().chain(4..10).chain(100..108).collect();
    ids.extend((100..108).filter(|id| *id != 105));
    ids.sort_unstable();
    t.holds(1, ids);
    let adds = t.table.actions(1, "add");
    assert_eq!(
        adds.len(),
        3,
        "one a file, whatever was done to it: {adds:?}"
    );
    let said = outcome(cx);
    assert_eq!(said["outcome"], "committed", "{said}");
    assert_eq!(said["version"], 1, "{said}");
    assert_eq!(said["operation"], "TRANSACTION", "{said}");
    // The vectors on the way are gone: one is left of the commit, one of the steps.
    let vectors = stored(&t.table);
    let vectors = vectors.iter().filter(|f| f.ends_with(".bin"));
    assert!(vectors.count() <= 3);
}

fn a_conflict_commits_nothing(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!(
        "mkdir {TX}; cp in/x.parquet {TX}/; echo 'id IN (3, 105)' > {TX}/ctl/delete"
    ))
    .ok();
    delete(cx, "id = 3");
    let before = t.table.version();
    cx.sh(&format!("echo commit > {TX}/commit")).fails(EBUSY);
    t.holds(before, (0..10).filter(|id| *id != 3));
    let said = outcome(cx);
    assert_eq!(said["outcome"], "failed", "{said}");
    assert_eq!(said["error"], "conflict", "{said}");
    assert_eq!(said["exception"], "ConcurrentDeleteReadException", "{said}");
    assert_eq!(said["winner"]["version"], 1, "{said}");
    assert_eq!(said["rows"], 1, "{said}");
    assert!(
        said["hint"].to_string().contains("another transaction"),
        "{said}"
    );
    // It is over, and nothing of it is left.
    cx.sh(&format!("echo commit > {TX}/commit")).fails(EROFS);
    assert_eq!(cx.sh(&format!("ls -A {TX}")).ok(), "");
    let live = t.table.state().live().count();
    assert_eq!(stored(&t.table).len(), live + 1, "and the winner's vector");
    // Again, on what is there now.
    cx.sh(&format!(
        "rmdir {TX}; mkdir {TX}; cp in/x.parquet {TX}/; echo 'id IN (4, 105)' > {TX}/ctl/delete
         echo commit > {TX}/commit"
    ))
    .ok();
    let left = base_and(100..110).into_iter();
    t.holds(2, left.filter(|id| ![3, 4, 105].contains(id)));
}

fn rows_of_one_file_apart(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!(
        "mkdir {TX}; echo 'id = 1' > {TX}/ctl/delete; echo 'id = 2' > {TX}/ctl/delete"
    ))
    .ok();
    delete(cx, "id = 3");
    cx.sh("cp in/x.parquet mnt/t/").ok();
    delete(cx, "id = 4 OR id = 104");
    cx.sh(&format!("echo commit > {TX}/commit")).ok();
    let left = base_and(100..110).into_iter();
    t.holds(4, left.filter(|id| ![1, 2, 3, 4, 104].contains(id)));
    let info = t.table.commit_info(4);
    assert_eq!(info["operation"], "DELETE", "{info}");
    assert_eq!(info["readVersion"], 0, "{info}");
    assert_eq!(t.table.actions(4, "add").len(), 1, "one vector for both");
}

fn another_schema(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!("mkdir {TX}; cp in/x.parquet {TX}/")).ok();
    let mut metadata = t.table.state().metadata;
    metadata["configuration"]["x"] = json!("y");
    let actions = [
        json!({"commitInfo": {"operation": "SET TBLPROPERTIES"}}),
        json!({"metaData": metadata}),
    ];
    crate::builder::commit(&t.table, &actions);
    cx.sh(&format!("echo commit > {TX}/commit")).fails(EBUSY);
    let said = outcome(cx);
    assert_eq!(said["exception"], "MetadataChangedException", "{said}");
    assert_eq!((t.table.version(), t.table.ids()), (1, (0..10).collect()));
}

fn rmdir_aborts(cx: &Cx) {
    let t = target(cx);
    let before = stored(&t.table);
    cx.sh(&format!(
        "mkdir {TX}; cp in/x.parquet {TX}/; cp in/x.parquet {TX}/scratch.tmp
         echo 'id IN (3, 105)' > {TX}/ctl/delete"
    ))
    .ok();
    assert!(stored(&t.table).len() > before.len());
    cx.sh(&format!("rmdir {TX}")).ok();
    assert_eq!(stored(&t.table), before);
    t.holds(0, 0..10);
    assert_eq!(cx.sh("ls -A mnt/t/.delta/tx").ok(), "");
    // So does rmdir of one that is over: its name is free.
    cx.sh(&format!(
        "mkdir {TX}; cp in/x.parquet {TX}/; echo commit > {TX}/commit; rmdir {TX}; ! ls {TX} 2>/dev/null
         mkdir {TX}; rmdir {TX}"
    ))
    .ok();
    t.holds(1, base_and(100..110));
}

fn rm_r_aborts(cx: &Cx) {
    let t = target(cx);
    let before = stored(&t.table);
    cx.sh(&format!("mkdir {TX}; cp in/x.parquet {TX}/; rm -r {TX}"))
        .ok();
    assert_eq!(stored(&t.table), before);
    t.holds(0, 0..10);
}

fn the_end_of_the_mount_aborts(cx: &Cx) {
    let t = target(cx);
    let before = stored(&t.table);
    let script = format!("mkdir {TX}; cp in/x.parquet {TX}/; echo 'id = 105' > {TX}/ctl/delete");
    cx.sh(&script).ok();
    t.m.umount();
    assert_eq!(stored(&t.table), before);
    // A signal is as good, also while a shell stands in it.
    let m = cx.mount();
    cx.sh(&script).ok();
    mount::signal(m.pid(), libc::SIGTERM);
    cx.eventually("the daemon ends", || !m.is_running());
    assert_eq!(stored(&t.table), before);
    let _m = cx.mount();
    assert_eq!(cx.sh("ls -A mnt/t/.delta/tx").ok(), "");
    assert_eq!((t.table.version(), t.table.ids()), (0, (0..10).collect()));
}

fn a_killed_daemon_leaves_nothing(cx: &Cx) {
    let t = target(cx);
    let before = stored(&t.table);
    cx.sh(&format!(
        "mkdir {TX}; for n in 1 2 3; do cp in/x.parquet {TX}/$n.parquet; done
         echo 'id < 5 OR id = 105' > {TX}/ctl/delete"
    ))
    .ok();
    let staged = stored(&t.table);
    // Another mount does not take what is in use.
    let other = cx.mount_at("wh", "other", &[]);
    assert_eq!(cx.sh("ls -A other/t").ok(), "base.parquet\n");
    cx.sh("cp in/x.parquet other/t/").ok();
    assert!(stored(&t.table).is_superset(&staged));
    other.umount();
    t.m.kill();
    assert!(stored(&t.table).is_superset(&staged));
    let _m = cx.mount();
    assert_eq!(
        cx.sh("ls -A mnt/t mnt/t/.delta/tx").ok(),
        "mnt/t:\nbase.parquet\nx.parquet\n\nmnt/t/.delta/tx:\n"
    );
    cx.eventually("what the dead daemon had staged is removed", || {
        stored(&t.table).len() == before.len() + 1
    });
    assert_eq!((t.table.version(), t.table.ids()), (1, base_and(100..110)));
}

fn two_mounts(cx: &Cx) {
    let t = target(cx);
    let _other = cx.mount_at("wh", "other", &[]);
    let other = "other/t/.delta/tx/load";
    cx.sh(&format!(
        "mkdir {TX} {other}
         cp in/x.parquet {TX}/; echo 'id = 1' > {TX}/ctl/delete
         cp in/x.parquet {other}/y.parquet; echo 'id = 2' > {other}/ctl/delete
         echo commit > {TX}/commit"
    ))
    .ok();
    assert_eq!(outcome(cx)["version"], 1);
    // Under WriteSerializable a condition counts for the rows of others who have read: those have none for it.
    cx.sh(&format!("echo commit > {other}/commit")).ok();
    assert_eq!(outcome_of(cx, other)["version"], 2);
    let mut ids: Vec<i64> = base_and(100..110).into_iter().chain(100..110).collect();
    ids.retain(|id| ![1, 2].contains(id));
    ids.sort_unstable();
    assert_eq!((t.table.version(), t.table.ids()), (2, ids));
    assert_eq!(t.table.commit_info(2)["readVersion"], 0);
}

fn the_commit_is_written_once(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!(
        "mkdir {TX}; cp in/x.parquet {TX}/
         : > {TX}/commit; touch {TX}/commit; cat {TX}/commit; echo > {TX}/commit
         printf ' \\n\\t' > {TX}/commit"
    ))
    .ok();
    for wrong in ["yes", "COMMIT WORK", "commit; commit", "rollback"] {
        cx.sh(&format!("echo '{wrong}' > {TX}/commit"))
            .fails(EINVAL);
    }
    assert_eq!(
        (t.table.version(), &outcome(cx)["outcome"]),
        (0, &json!("open"))
    );
    // Without a final newline it runs at close, and python hears of it there.
    cx.py(&format!(
        "f = open('{TX}/commit', 'w'); f.write('-- userMetadata: ticket 7\\nCommit;'); f.close()"
    ))
    .ok();
    t.holds(1, base_and(100..110));
    assert_eq!(t.table.commit_info(1)["userMetadata"], "ticket 7");
    // One handle, one commit.
    cx.sh(&format!(
        "rmdir {TX}; mkdir {TX}; cp in/x.parquet {TX}/y.parquet"
    ))
    .ok();
    let mut handle = File::options()
        .write(true)
        .open(cx.path(TX).join("commit"))
        .unwrap();
    handle.write_all(b"commit\n").unwrap();
    let again = handle.write_all(b"commit\n").unwrap_err();
    assert_eq!(again.raw_os_error(), Some(libc::EINVAL));
    drop(handle);
    assert_eq!(t.table.version(), 2);
    // Nothing staged is no version, and no failure.
    cx.sh(&format!(
        "rmdir {TX}; mkdir {TX}; echo 'id = 77' > {TX}/ctl/delete; echo commit > {TX}/commit"
    ))
    .ok();
    let said = outcome(cx);
    assert_eq!(
        (&said["outcome"], t.table.version()),
        (&json!("nothing to do"), 2)
    );
}

fn over_is_read_only(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!(
        "mkdir {TX}; cp in/x.parquet {TX}/; echo commit > {TX}/commit"
    ))
    .ok();
    for write in [
        format!("cp in/x.parquet {TX}/y.parquet"),
        format!("mkdir {TX}/p=1"),
        format!("echo 'id = 1' > {TX}/ctl/delete"),
        format!("echo commit > {TX}/commit"),
        format!("touch {TX}/new.tmp"),
    ] {
        cx.sh(&write).fails(EROFS);
        let last = cx.sh("cat mnt/t/.delta/last").ok();
        assert!(last.contains("it was committed as version 1"), "{last}");
    }
    cx.sh(&format!("rm {TX}/outcome")).fails(EROFS);
    t.holds(1, base_and(100..110));
    assert_eq!(outcome(cx)["version"], 1);
    // Read-only mounts begin none.
    drop(t.m);
    let _m = cx.mount_with(&["-o", "ro"]);
    cx.sh(&format!("mkdir {TX}")).fails(EROFS);
}

fn what_is_still_open_is_not_committed(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!("mkdir {TX}; cp in/x.parquet {TX}/a.parquet"))
        .ok();
    let mut late = File::create(cx.path(TX).join("late.parquet")).unwrap();
    let bytes = fs::read(cx.path("in/x.parquet")).unwrap();
    // Not all of it yet: a whole file counts from its first fsync or close on, whoever closes it.
    let (first, rest) = bytes.split_at(100);
    late.write_all(first).unwrap();
    cx.sh(&format!("echo commit > {TX}/commit")).ok();
    t.holds(1, base_and(100..110));
    // Its writer hears of it, and its bytes are kept.
    late.write_all(rest).unwrap();
    let closed = late.sync_all().unwrap_err();
    assert_eq!(closed.raw_os_error(), Some(libc::EROFS));
    drop(late);
    cx.eventually("the file is kept with its reason", || {
        cx.sh("cat mnt/t/.delta/rejected/late.parquet.reason")
            .out
            .contains("is over")
    });
    cx.sh("cmp in/x.parquet mnt/t/.delta/rejected/late.parquet")
        .ok();
    t.holds(1, base_and(100..110));
}

fn tools(cx: &Cx) {
    let t = target(cx);
    cx.need("rsync");
    cx.sh(&format!(
        "mkdir {TX}
         rsync -a in/x.parquet {TX}/rsync.parquet
         install in/x.parquet {TX}/install.parquet
         dd if=in/x.parquet of={TX}/dd.parquet bs=777 status=none
         cp in/x.parquet {TX}/.hidden; mv {TX}/.hidden {TX}/moved.parquet
         cp in/x.parquet {TX}/again.parquet; cp in/x.parquet {TX}/again.parquet
         cp in/x.parquet {TX}/old.parquet; mv {TX}/old.parquet {TX}/new.parquet
         mv {TX}/base.parquet {TX}/first.parquet
         cp in/x.parquet {TX}/gone.parquet; rm {TX}/gone.parquet
         cat in/x.parquet > {TX}/cat.parquet
         tar -C in -cf - x.parquet | tar -C {TX} -xf -
         printf garbage > {TX}/scratch.tmp"
    ))
    .ok();
    cx.sh(&format!(
        "printf garbage > {TX}/bad.parquet; cp in/nothing {TX}/ 2>&1"
    ))
    .fails("");
    let names = "again cat dd first install moved new rsync x";
    let listed: String = names.split(' ').map(|n| format!("{n}.parquet\n")).collect();
    let listed = listed + "scratch.tmp\n";
    let mut shown: Vec<&str> = listed.lines().collect();
    shown.sort_unstable();
    assert_eq!(
        cx.sh(&format!("ls {TX} | LC_ALL=C sort")).ok(),
        shown.join("\n") + "\n"
    );
    cx.sh(&format!(
        "for f in again dd rsync x; do cmp in/x.parquet {TX}/$f.parquet; done"
    ))
    .ok();
    assert_eq!(t.table.version(), 0);
    cx.sh(&format!("echo commit > {TX}/commit")).ok();
    let mut ids: Vec<i64> = (0..10).chain((0..8).flat_map(|_| 100..110)).collect();
    ids.sort_unstable();
    t.holds(1, ids);
    assert_eq!(cx.sh("ls mnt/t").ok(), listed.replace("scratch.tmp\n", ""));
    let live = t.table.state().live().count();
    assert_eq!(
        stored(&t.table).len(),
        live + 1,
        "what is live, and the base file that mv removed"
    );
}

fn partitions(cx: &Cx) {
    let rows = columns(vec![("id", longs([1, 2, 3]))]);
    let table = cx
        .builder("t")
        .fields(vec![
            crate::builder::field("id", "long"),
            crate::builder::field("country", "string"),
        ])
        .partitioned_by(&["country"])
        .create();
    cx.input("ids.parquet", &rows);
    let both = columns(vec![
        ("id", longs([4, 5, 6])),
        ("country", texts(["DE", "FR", "FR"])),
    ]);
    cx.input("both.parquet", &both);
    let _m = cx.mount();
    cx.sh(&format!(
        "mkdir {TX}; mkdir {TX}/country=IT; cp in/ids.parquet {TX}/country=IT/; cp in/both.parquet {TX}/"
    ))
    .ok();
    assert_eq!(
        cx.sh(&format!("ls {TX}")).ok(),
        "country=DE\ncountry=FR\ncountry=IT\n"
    );
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "");
    cx.sh(&format!("rmdir {TX}/country=IT")).fails(ENOTEMPTY);
    cx.sh(&format!("mkdir {TX}/other=1")).fails(EPERM);
    cx.sh(&format!(
        "rm -r {TX}/country=DE; echo \"country = 'FR' AND id = 5\" > {TX}/ctl/delete; echo commit > {TX}/commit"
    ))
    .ok();
    assert_eq!(table.version(), 1);
    assert_eq!(table.rows(), ["1|IT", "2|IT", "3|IT", "6|FR"]);
    assert_eq!(cx.sh("ls mnt/t").ok(), "country=FR\ncountry=IT\n");
}

fn names(cx: &Cx) {
    let t = target(cx);
    let odd = "é (2) 'x' %2F \t";
    let long = "n".repeat(255);
    for name in [odd, "commit", "tx", "-n", &long] {
        let tx = cx.path("mnt/t/.delta/tx").join(name);
        fs::create_dir(&tx).unwrap();
        let said: Value = serde_json::from_slice(&fs::read(tx.join("outcome")).unwrap()).unwrap();
        assert_eq!(
            (&said["outcome"], &said["transaction"]),
            (&json!("open"), &json!(name))
        );
        let taken = fs::create_dir(&tx).unwrap_err();
        assert_eq!(taken.raw_os_error(), Some(libc::EEXIST));
    }
    for (name, errno) in [
        ("n".repeat(256), libc::ENAMETOOLONG),
        (".delta".to_owned(), libc::EPERM),
    ] {
        let refused = fs::create_dir(cx.path("mnt/t/.delta/tx").join(name)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(errno));
    }
    cx.sh("mv mnt/t/.delta/tx/tx mnt/t/.delta/tx/other")
        .fails(EPERM);
    cx.sh("touch mnt/t/.delta/tx/file").fails(EPERM);
    // Nothing of the table's control directory but what belongs to it.
    cx.sh(
        "cd mnt/t/.delta/tx/tx; for d in .delta versions raw history; do ! ls $d 2>/dev/null; done",
    )
    .ok();
    t.holds(0, 0..10);
}

fn limits(cx: &Cx) {
    let t = target_with(cx, &["--transactions", "1", "--transaction-files", "3"]);
    cx.sh(&format!("mkdir {TX}")).ok();
    cx.sh("mkdir mnt/t/.delta/tx/more").fails(ENOSPC);
    let last = cx.sh("cat mnt/t/.delta/last").ok();
    assert!(
        last.contains("no_space") && last.contains("--transactions"),
        "{last}"
    );
    cx.sh(&format!(
        "for n in 1 2 3; do cp in/x.parquet {TX}/$n.parquet; done"
    ))
    .ok();
    cx.sh(&format!("cp in/x.parquet {TX}/4.parquet"))
        .fails(ENOSPC);
    cx.sh(&format!("echo 'id = 1' > {TX}/ctl/delete"))
        .fails(ENOSPC);
    let last = cx.sh("cat mnt/t/.delta/last").ok();
    assert!(last.contains("3 files at most"), "{last}");
    // What it has changed already it may go on changing.
    cx.sh(&format!(
        "echo 'id = 101' > {TX}/ctl/delete; rm {TX}/3.parquet"
    ))
    .ok();
    cx.sh(&format!(
        "echo commit > {TX}/commit; mkdir mnt/t/.delta/tx/more"
    ))
    .ok();
    let mut ids: Vec<i64> = base_and(100..110).into_iter().chain(100..110).collect();
    ids.retain(|id| *id != 101);
    ids.sort_unstable();
    t.holds(1, ids);
}

fn left_alone(cx: &Cx) {
    let t = target_with(cx, &["--transaction-idle", "1", "--refresh", "20"]);
    let before = stored(&t.table);
    cx.sh(&format!("mkdir {TX}; cp in/x.parquet {TX}/")).ok();
    // To ask for the outcome is not to use it.
    cx.within(Duration::from_secs(20), "it is aborted", || {
        outcome(cx)["outcome"] == "aborted"
    });
    assert_eq!(stored(&t.table), before);
    cx.sh(&format!("echo commit > {TX}/commit")).fails(EROFS);
    let last = cx.sh("cat mnt/t/.delta/last").ok();
    assert!(last.contains("after 1 s of idleness"), "{last}");
    cx.within(
        Duration::from_secs(20),
        "its outcome is forgotten, too",
        || cx.sh("ls mnt/t/.delta/tx").ok().is_empty(),
    );
    t.holds(0, 0..10);
}

fn only_its_owner_writes(cx: &Cx) {
    cx.need("setpriv");
    let t = target_with(cx, &["-o", "allow_other"]);
    // Whoever may write the table may begin one; it is theirs alone.
    cx.sh("chmod 777 wh/t").ok();
    let user = |uid: u32, script: &str| {
        let script = script.replace('\'', r"'\''");
        cx.sh(&format!(
            "setpriv --reuid {uid} --regid {uid} --clear-groups bash -c 'set -eu; {script}'"
        ))
    };
    cx.eventually("the new mode shows", || {
        user(4001, "test -w mnt/t").succeeded()
    });
    user(
        4001,
        &format!("mkdir {TX}; cp in/x.parquet {TX}/; echo \"id = 1\" > {TX}/ctl/delete"),
    )
    .ok();
    assert_eq!(
        cx.sh(&format!("stat -c '%u %A' {TX}")).ok(),
        "4001 drwxr-xr-x\n"
    );
    for script in [
        format!("cp in/x.parquet {TX}/y.parquet"),
        format!("rm -f {TX}/x.parquet"),
        format!("echo \"id = 2\" > {TX}/ctl/delete"),
        format!("echo commit > {TX}/commit"),
        format!("mv {TX}/x.parquet {TX}/y.parquet"),
        format!("rmdir {TX}"),
    ] {
        let refused = user(4002, &script);
        assert!(!refused.succeeded(), "{refused}");
    }
    user(
        4002,
        &format!("cat {TX}/outcome {TX}/x.parquet > /dev/null"),
    )
    .ok();
    assert_eq!(outcome(cx)["staged"]["steps"], 2);
    t.holds(0, 0..10);
    // Root may.
    cx.sh(&format!("cp in/x.parquet {TX}/root.parquet")).ok();
    user(4001, &format!("echo commit > {TX}/commit; rmdir {TX}")).ok();
    let mut ids: Vec<i64> = base_and(100..110).into_iter().chain(100..110).collect();
    ids.retain(|id| *id != 1);
    ids.sort_unstable();
    assert_eq!((t.table.version(), t.table.ids()), (1, ids));
}

fn options(cx: &Cx) {
    let t = target(cx);
    let load = format!(
        "mkdir {TX}; cp in/x.parquet {TX}/
         printf '%s\\n' '-- userMetadata: night' '-- txnAppId: job' '-- txnVersion: 7' commit > script; cat script > {TX}/commit"
    );
    cx.sh(&load).ok();
    t.holds(1, base_and(100..110));
    assert_eq!(t.table.commit_info(1)["userMetadata"], "night");
    assert_eq!(t.table.actions(1, "txn")[0]["version"], 7);
    // Repeated, it is committed no second time.
    cx.sh(&format!("rmdir {TX}; {load}")).ok();
    t.holds(1, base_and(100..110));
    let said = outcome(cx);
    assert_eq!(said["outcome"], "nothing to do", "{said}");
    assert!(said["note"].to_string().contains("already"), "{said}");
    // It can't run itself again; that is no end of it.
    cx.sh(&format!(
        "rmdir {TX}; mkdir {TX}; cp in/x.parquet {TX}/y.parquet
         printf '%s\\n' '-- retries: 3' commit > script; cat script > {TX}/commit"
    ))
    .fails(EINVAL);
    cx.sh(&format!("echo commit > {TX}/commit")).ok();
    assert_eq!(t.table.version(), 2);
}

fn row_ids(cx: &Cx) {
    for (name, vectors) in [("with", "true"), ("without", "false")] {
        let table = cx
            .builder(name)
            .orders()
            .row_tracking()
            .property("delta.enableDeletionVectors", vectors)
            .file("base.parquet", &orders(0..0))
            .create();
        cx.input("one.parquet", &orders(0..10));
        cx.input("two.parquet", &orders(10..20));
        let m = cx.mount();
        let tx = format!("mnt/{name}/.delta/tx/load");
        cx.sh(&format!("cp in/one.parquet mnt/{name}/")).ok();
        let before = table.identities();
        cx.sh(&format!(
            "mkdir {tx}; cp in/two.parquet {tx}/
             echo 'id IN (3, 12)' > {tx}/ctl/delete; echo 'id IN (4, 13)' > {tx}/ctl/delete
             echo commit > {tx}/commit"
        ))
        .ok();
        let left: Vec<i64> = (0..20).filter(|id| ![3, 4, 12, 13].contains(id)).collect();
        assert_eq!(table.rows(), order_rows(left.clone()), "{name}");
        let after = table.identities();
        assert_eq!(after.len(), left.len());
        for (id, identity) in &after {
            match before.get(id) {
                Some(old) => assert_eq!(identity, old, "row {id} stays who it was ({name})"),
                None => assert!(
                    identity.0 >= 10 && identity.1 == 2,
                    "{id}: {identity:?} ({name})"
                ),
            }
        }
        m.umount();
    }
}

fn readers_and_the_history(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!(
        "mkdir {TX}; cp in/x.parquet {TX}/; echo 'id < 10' > {TX}/ctl/delete"
    ))
    .ok();
    let count = format!(
        "import duckdb\nprint(duckdb.sql(\"SELECT count(*), min(id) FROM read_parquet('{TX}/**/*.parquet')\").fetchall())"
    );
    assert_eq!(cx.py_with(&["duckdb"], &count).ok(), "[(10, 100)]\n");
    cx.sh(&format!("echo commit > {TX}/commit")).ok();
    t.holds(1, 100..110);
    let history = cx.sh("head -1 mnt/t/.delta/history").ok();
    for part in ["TRANSACTION", "transaction=load", "x.parquet", "id < 10"] {
        assert!(history.contains(part), "{part}: {history}");
    }
    let readme = cx.sh("cat mnt/t/.delta/README").ok();
    assert!(readme.contains(".delta/tx/load1"), "{readme}");
}
