//! Many writers, big files, dead writers and dead daemons: what was acknowledged is there, and nothing else.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, LargeBinaryArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::Value;

use crate::batch::{columns, longs, orders};
use crate::builder::field;
use crate::case::{Cx, cases};
use crate::shell::{self, EBUSY, ENOTCONN};

use super::dropping::{base_and, target, target_with};

cases!("load":
    three_hundred_appends_from_eight_processes,
    sixty_four_appends_at_once,
    big_copy_in_little_memory,
    big_copy_without_passthrough,
    writer_killed_in_the_middle,
    writer_killed_before_close,
    cp_killed_at_any_point,
    cancelled_copies_do_not_hang,
    daemon_killed_during_appends,
    daemon_killed_with_open_files,
    staging_is_swept_at_mount,
    checkpoint_after_ten_commits,
    checkpoint_interval_of_the_table,
    checkpoint_replaces_the_commits_before_it,
    other_writers_commits_are_seen,
    lost_race_is_no_failure,
    appends_stay_fast,
    many_scratch_files_open,
    full_disk,
);

/// The measure: 300 appends, 8 processes, 2 mounts; every one in, versions contiguous (D8).
fn three_hundred_appends_from_eight_processes(cx: &Cx) {
    cx.time_limit(400);
    let table = cx.orders();
    cx.sh("rm wh/t/_delta_log/*; rm wh/t/base.parquet").ok();
    cx.builder("t").orders().create();
    for i in 0..300 {
        cx.input(&format!("f{i}.parquet"), &orders(i..i + 1));
    }
    let a = cx.mount_at("wh", "a", &[]);
    let b = cx.mount_at("wh", "b", &[]);
    cx.sh("
        for p in 0 1 2 3 4 5 6 7; do
            m=a; [ $((p % 2)) = 1 ] && m=b
            (for ((i = p; i < 300; i += 8)); do
                cp in/f$i.parquet $m/t/ || { echo \"f$i failed\" >&2; exit 1; }
             done) &
            pids+=($!)
        done
        for pid in ${pids[@]}; do wait $pid; done")
        .ok();
    table.assert_contiguous();
    assert_eq!(table.ids(), (0..300).collect::<Vec<_>>());
    assert!(table.version() <= 300, "one version a file at most");
    for m in [&a, &b] {
        cx.within(
            Duration::from_secs(5),
            "all files show on both mounts",
            || fs::read_dir(m.path.join("t")).unwrap().count() == 300,
        );
    }
    cx.sh("for ((i = 0; i < 300; i++)); do cmp in/f$i.parquet a/t/f$i.parquet; cmp in/f$i.parquet b/t/f$i.parquet; done").ok();
}

/// D9.
fn sixty_four_appends_at_once(cx: &Cx) {
    cx.time_limit(240);
    let t = target(cx);
    for i in 0..64 {
        cx.input(&format!("f{i}.parquet"), &orders(1000 + i..1001 + i));
    }
    cx.sh("for i in {0..63}; do cp in/f$i.parquet mnt/t/ & pids+=($!); done; for pid in ${pids[@]}; do wait $pid; done").ok();
    t.table.assert_contiguous();
    assert_eq!(t.table.ids(), base_and(1000..1064));
}

/// Writes about this many MiB of incompressible rows: `id` and `blob`.
fn write_big(path: &std::path::Path, mebibytes: i64) {
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(16))
        .build();
    let rows = |ids: std::ops::Range<i64>| {
        let blob = |id: i64| vec![id as u8; 1 << 20];
        let blobs = LargeBinaryArray::from_iter_values(ids.clone().map(blob));
        columns(vec![
            ("id", longs(ids)),
            ("blob", Arc::new(blobs) as ArrayRef),
        ])
    };
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows(0..0).schema(), Some(properties)).unwrap();
    for first in (0..mebibytes).step_by(16) {
        writer
            .write(&rows(first..(first + 16).min(mebibytes)))
            .unwrap();
    }
    writer.close().unwrap();
}

const BIG_MIB: i64 = 300;

fn big_copy(cx: &Cx, arguments: &[&str]) {
    cx.time_limit(400);
    let table = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("blob", "binary")])
        .create();
    write_big(&cx.path("in/big.parquet"), BIG_MIB);
    let m = cx.mount_with(arguments);
    let size = fs::metadata(cx.path("in/big.parquet")).unwrap().len();
    let written = m.written_bytes();
    cx.sh("cp in/big.parquet mnt/t/; cmp in/big.parquet mnt/t/big.parquet")
        .ok();
    let peak = m.memory_kb("VmHWM") / 1024;
    assert!(peak < 200, "the daemon's memory peaked at {peak} MiB");
    let written = m.written_bytes() - written;
    let most = size + size / 10;
    assert!(
        written < most,
        "the daemon wrote {written} bytes for a file of {size}"
    );
    let used = cx
        .sh("du -s -B1 wh | cut -f1")
        .ok()
        .trim()
        .parse::<u64>()
        .unwrap();
    assert!(used < most, "{used} bytes are used in the warehouse");
    assert_eq!(table.version(), 1);
    assert_eq!(table.state().live().count(), 1);
    let ids = crate::table::ids_of_file(&m.path.join("t/big.parquet"));
    assert_eq!(ids.len() as i64, BIG_MIB);
}

fn big_copy_in_little_memory(cx: &Cx) {
    big_copy(cx, &[]);
}

fn big_copy_without_passthrough(cx: &Cx) {
    big_copy(cx, &["--no-passthrough"]);
}

/// A python that writes part of a file, says so, and waits to be killed.
fn writer(cx: &Cx, name: &str, bytes: &str) -> Child {
    let program = format!(
        "import os, sys, time
data = open('in/x.parquet', 'rb').read()
fd = os.open('mnt/t/{name}', os.O_WRONLY | os.O_CREAT)
os.write(fd, data[:{bytes}])
print('written', flush=True)
sys.stdin.read()"
    );
    let mut child = shell::command(&cx.dir, &shell::python())
        .args(["-c", &program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    cx.live().started(child.id().cast_signed());
    let mut said = [0; 8];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut said)
        .unwrap();
    assert_eq!(&said, b"written\n");
    child
}

fn kill(cx: &Cx, mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
    cx.live().ended(child.id().cast_signed());
}

fn writer_killed_in_the_middle(cx: &Cx) {
    let t = target(cx);
    let child = writer(cx, "half.parquet", "300");
    kill(cx, child);
    cx.eventually("the half file leaves the table", || {
        !t.m.path.join("t/half.parquet").exists()
    });
    t.holds(0, 0..10);
    cx.sh("cp in/x.parquet mnt/t/half.parquet; cmp in/x.parquet mnt/t/half.parquet")
        .ok();
    t.holds(1, base_and(100..110));
}

/// Every byte is there, but the writer died before it closed: nobody was told that it is in (DESIGN §2).
fn writer_killed_before_close(cx: &Cx) {
    let t = target(cx);
    for i in 0..5 {
        let child = writer(cx, &format!("dead{i}.parquet"), "len(data)");
        kill(cx, child);
    }
    cx.eventually("the dead writers' files leave the table", || {
        cx.sh("ls -A mnt/t").out == "base.parquet\n"
    });
    t.holds(0, 0..10);
}

fn cp_killed_at_any_point(cx: &Cx) {
    cx.time_limit(240);
    let t = target(cx);
    cx.input("mid.parquet", &orders(1000..60_000));
    let done = cx
        .sh("
        for i in $(seq 40); do
            timeout -s KILL 0.0$((i * 7 % 60 + 10)) cp in/mid.parquet mnt/t/m$i.parquet 2>/dev/null && echo m$i.parquet
        done || true")
        .ok();
    cx.eventually("only whole files are left", || {
        // A writer that died before its first byte leaves a placeholder.
        let listed = cx.sh("find mnt/t -type f -size +0 | wc -l").out;
        let live = t.table.state().live().count();
        listed.trim() == live.to_string()
    });
    t.table.assert_contiguous();
    for name in done.lines() {
        cx.sh(&format!("cmp in/mid.parquet mnt/t/{name}")).ok();
    }
    // One that was killed may have been in before; it must be whole then.
    cx.sh("for f in mnt/t/m*.parquet; do [ -s $f ] || continue; cmp in/mid.parquet $f; done")
        .ok();
    let files = t.table.state().live().count() as i64 - 1;
    assert_eq!(t.table.ids().len() as i64, 10 + files * 59_000);
}

/// D117.
fn cancelled_copies_do_not_hang(cx: &Cx) {
    let t = target(cx);
    write_big(&cx.path("in/big.parquet"), 40);
    cx.sh("
        for i in $(seq 20); do timeout -s INT 0.02 cp in/big.parquet mnt/t/b$i.parquet & done
        wait || true
        timeout 20 ls mnt/t; timeout 20 cp in/x.parquet mnt/t/")
        .ok();
    assert!(t.table.ids().len() >= 20);
    t.table.assert_contiguous();
}

fn daemon_killed_during_appends(cx: &Cx) {
    cx.time_limit(240);
    let stage = cx.path("stage");
    fs::create_dir(&stage).unwrap();
    let arguments = ["--stage-dir", stage.to_str().unwrap()];
    let t = target_with(cx, &arguments);
    let mut m = t.m;
    for i in 0..200 {
        cx.input(
            &format!("f{i}.parquet"),
            &orders(1000 + i * 10..1010 + i * 10),
        );
    }
    for round in 0..3 {
        let first = round * 60;
        let script = format!(
            "touch done; for p in 0 1 2; do
                (for ((i = {first} + p; i < {first} + 60; i += 3)); do
                    cp in/f$i.parquet mnt/t/ 2>/dev/null && echo f$i >> done || exit 0
                 done) &
             done; wait"
        );
        let acknowledged = cx.path("done");
        let before = fs::read_to_string(&acknowledged)
            .unwrap_or_default()
            .lines()
            .count();
        cx.together(vec![
            Box::new(|| drop(cx.sh(&script))),
            Box::new(|| {
                cx.within(
                    Duration::from_secs(60),
                    "some appends are acknowledged",
                    || {
                        let done = fs::read_to_string(&acknowledged).unwrap_or_default();
                        done.lines().count() >= before + 8
                    },
                );
                crate::mount::signal(m.pid(), libc::SIGKILL);
            }),
        ]);
        cx.sh("ls mnt").fails(ENOTCONN);
        m = {
            let next = cx.mount_with(&arguments);
            std::mem::forget(m);
            next
        };
        assert_eq!(
            cx.sh("find stage -type f -size +0").ok(),
            "",
            "staging is swept at mount"
        );
        t.table.assert_contiguous();
        let done = fs::read_to_string(&acknowledged).unwrap();
        for name in done.lines() {
            cx.sh(&format!("cmp in/{name}.parquet mnt/t/{name}.parquet"))
                .ok();
        }
        cx.sh("for f in mnt/t/f*.parquet; do cmp in/$(basename $f) $f; done")
            .ok();
        let ids = t.table.ids();
        let files = t.table.state().live().count();
        assert_eq!(ids.len(), files * 10, "only whole files");
        assert!(files > done.lines().count(), "{files} files");
    }
    m.umount();
}

fn daemon_killed_with_open_files(cx: &Cx) {
    let t = target(cx);
    let child = writer(cx, "open.parquet", "len(data)");
    let m = t.m;
    m.kill();
    kill(cx, child);
    cx.sh("echo 'id = 1' > mnt/t/.delta/ctl/delete")
        .fails(ENOTCONN);
    std::mem::forget(m);
    let _m = cx.mount();
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "base.parquet\n");
    assert_eq!(t.table.version(), 0);
}

fn staging_is_swept_at_mount(cx: &Cx) {
    let stage = cx.path("stage");
    fs::create_dir(&stage).unwrap();
    let arguments = ["--stage-dir", stage.to_str().unwrap()];
    let t = target_with(cx, &arguments);
    cx.sh("cp in/x.parquet mnt/t/.x; cp in/x.parquet mnt/t/y.tmp; head -c 100 in/x.parquet > mnt/t/.z").ok();
    let m = t.m;
    // A second mount of the same warehouse must not sweep what the first one still stages.
    let other = cx.mount_at("wh", "other", &arguments);
    cx.sh("cmp in/x.parquet mnt/t/.x; mv mnt/t/y.tmp mnt/t/y.parquet; cmp in/x.parquet mnt/t/y.parquet").ok();
    other.umount();
    cx.sh("cmp in/x.parquet mnt/t/.x").ok();
    m.kill();
    std::mem::forget(m);
    let m = cx.mount_with(&arguments);
    assert_eq!(cx.sh("find stage -type f -size +0").ok(), "");
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "base.parquet\ny.parquet\n");
    m.umount();
    assert_eq!(t.table.ids(), base_and(100..110));
}

/// The version that `_last_checkpoint` names, once there is one.
fn last_checkpoint(cx: &Cx) -> Option<u64> {
    let text = fs::read_to_string(cx.path("wh/t/_delta_log/_last_checkpoint")).ok()?;
    let hint: Value = serde_json::from_str(&text).ok()?;
    hint["version"].as_u64()
}

fn checkpoint_after_ten_commits(cx: &Cx) {
    let t = target(cx);
    cx.sh("for i in $(seq 12); do cp in/x.parquet mnt/t/$i.parquet; done")
        .ok();
    // In the background, so that it may be of a version that came meanwhile.
    cx.eventually("_last_checkpoint names version 10 or a later one", || {
        last_checkpoint(cx) >= Some(10)
    });
    let version = last_checkpoint(cx).unwrap();
    let path = t
        .table
        .commit_path(version)
        .with_extension("checkpoint.parquet");
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let rows = reader.metadata().file_metadata().num_rows();
    let expected = 2 + 1 + version;
    assert_eq!(rows as u64, expected, "protocol, metaData and the adds");
    let names: Vec<&str> = reader
        .schema()
        .fields()
        .iter()
        .map(|f| f.name().as_str())
        .collect();
    for name in ["protocol", "metaData", "add"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!names.contains(&"commitInfo"), "{names:?}");
    assert_eq!(t.table.version(), 12);
    assert_eq!(cx.sh("cat mnt/t/.delta/history | wc -l").ok(), "13\n");
}

fn checkpoint_interval_of_the_table(cx: &Cx) {
    cx.builder("t")
        .orders()
        .property("delta.checkpointInterval", "3")
        .create();
    cx.input("x.parquet", &orders(0..3));
    let _m = cx.mount();
    cx.sh("for i in 1 2 3 4; do cp in/x.parquet mnt/t/$i.parquet; done")
        .ok();
    cx.eventually("a checkpoint at version 3", || {
        last_checkpoint(cx) >= Some(3)
    });
}

/// The checkpoint holds everything: partition values, vectors, tags, the table's own properties.
fn checkpoint_replaces_the_commits_before_it(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .fields(vec![field("p", "string")])
        .partitioned_by(&["p"])
        .property("delta.checkpointInterval", "4")
        .create();
    cx.input("x.parquet", &orders(0..10));
    let m = cx.mount();
    cx.sh("mkdir mnt/t/p=a mnt/t/p=b
        cp in/x.parquet mnt/t/p=a/one.parquet; cp in/x.parquet mnt/t/p=b/two.parquet
        echo \"p = 'b' AND id < 3\" > mnt/t/.delta/ctl/delete
        mkdir mnt/t/p=a%2Fb; cp in/x.parquet mnt/t/p=a%2Fb/three.parquet")
        .ok();
    cx.eventually("a checkpoint at version 4", || {
        last_checkpoint(cx) >= Some(4)
    });
    cx.sh("rm -r mnt/t/p=a").ok();
    let rows = table.rows();
    let shown = cx.sh("find mnt/t | sort; cat mnt/t/.delta/version mnt/t/.delta/info.json mnt/t/.delta/schema.json").ok();
    m.umount();
    cx.sh("rm wh/t/_delta_log/0000000000000000000[0-3].json")
        .ok();
    let _m = cx.mount();
    let again = cx.sh("find mnt/t | sort; cat mnt/t/.delta/version mnt/t/.delta/info.json mnt/t/.delta/schema.json").ok();
    assert_eq!(
        again, shown,
        "the same without the commits before the checkpoint"
    );
    cx.sh("cmp in/x.parquet mnt/t/p=a%2Fb/three.parquet; mkdir mnt/t/p=a; cp in/x.parquet mnt/t/p=a/; echo 'id = 9' > mnt/t/.delta/ctl/delete").ok();
    assert_eq!(table.version(), 7);
    assert_eq!(rows.len(), 17);
    // Without the hint, the listing finds the checkpoint (D82).
    cx.sh("rm wh/t/_delta_log/_last_checkpoint").ok();
    let _other = cx.mount_at("wh", "other", &[]);
    cx.sh(
        "test \"$(cat other/t/.delta/version)\" = 7; diff -r mnt/t/.delta/raw other/t/.delta/raw",
    )
    .ok();
}

/// Somebody else (Spark, another tool) commits to the same table.
fn other_writers_commits_are_seen(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet wh/t/foreign.parquet; cat mnt/t/.delta/version")
        .ok();
    let size = fs::metadata(cx.path("in/x.parquet")).unwrap().len();
    let add = crate::builder::add("foreign.parquet", size, 10, &[]);
    crate::builder::commit(&t.table, &[serde_json::json!({ "add": add })]);
    cx.within(Duration::from_secs(3), "the foreign commit shows", || {
        t.m.path.join("t/foreign.parquet").exists()
    });
    cx.sh("cmp in/x.parquet mnt/t/foreign.parquet; test \"$(cat mnt/t/.delta/version)\" = 1")
        .ok();
    cx.sh("cp in/x.parquet mnt/t/ours.parquet").ok();
    assert_eq!(t.table.version(), 2);
    assert_eq!(t.table.ids().len(), 30);
}

/// A blind append that finds its number taken takes the next one.
fn lost_race_is_no_failure(cx: &Cx) {
    let t = target(cx);
    for round in 0..20_u64 {
        cx.sh("cat mnt/t/.delta/version").ok();
        crate::builder::commit(
            &t.table,
            &[serde_json::json!({"txn": {"appId": "other", "version": round}})],
        );
        cx.sh(&format!("cp in/x.parquet mnt/t/{round}.parquet"))
            .ok();
    }
    t.table.assert_contiguous();
    assert_eq!(t.table.version(), 40);
    assert_eq!(t.table.ids().len(), 210);
}

/// DESIGN §8: the latency of an append does not grow with the number of versions.
fn appends_stay_fast(cx: &Cx) {
    cx.time_limit(400);
    let t = target(cx);
    let seconds = |first: u32, last: u32| -> f64 {
        let began = std::time::Instant::now();
        cx.sh(&format!(
            "for i in $(seq {first} {last}); do cp in/x.parquet mnt/t/$i.parquet; done"
        ))
        .ok();
        began.elapsed().as_secs_f64()
    };
    let early = seconds(1, 40);
    seconds(41, 260);
    let late = seconds(261, 300);
    assert_eq!(t.table.version(), 300);
    assert!(
        late < early * 4.0 + 1.0,
        "40 appends took {early:.2} s at first, {late:.2} s after 260"
    );
}

fn many_scratch_files_open(cx: &Cx) {
    let t = target(cx);
    let ran = cx.py("
import errno
files = []
try:
    for i in range(900):
        files.append(open(f'mnt/t/.s{i}', 'wb'))
        files[-1].write(b'x')
except OSError as e:
    assert e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM), e
for f in files: f.close()");
    ran.ok();
    let ran = cx.sh("cp in/x.parquet mnt/t/");
    assert!(!ran.err.contains(EBUSY), "{ran}");
    ran.ok();
    t.holds(1, base_and(100..110));
}

/// No room is an error of the copy that found none; nothing of it stays to take up what is left.
fn full_disk(cx: &Cx) {
    cx.sh("mkdir small && mount -t tmpfs -o size=8m none small && mkdir small/w")
        .ok();
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cx.input("big.parquet", &orders(0..1_000_000));
        cx.input("x.parquet", &orders(0..10));
        let m = cx.mount_at("small/w", "mnt", &[]);
        cx.sh("mkdir mnt/t; cp in/x.parquet mnt/t/").ok();
        for _ in 0..3 {
            cx.sh("cp in/big.parquet mnt/t/")
                .fails("No space left on device");
            assert!(cx.sh("cat mnt/t/.delta/last").ok().contains("no_space"));
            cx.eventually("the room is free again", || {
                cx.sh("cp in/x.parquet mnt/t/").succeeded()
            });
        }
        cx.sh("echo 'id = 3' > mnt/t/.delta/ctl/delete; test -z \"$(ls mnt/t/.delta/rejected)\"")
            .ok();
        let table = crate::table::Table::at(cx.path("small/w/t"));
        assert_eq!(
            table.ids(),
            (0..10).filter(|id| *id != 3).collect::<Vec<_>>()
        );
        m.umount();
    }));
    cx.sh("umount -l small").ok();
    if let Err(panic) = ran {
        std::panic::resume_unwind(panic);
    }
}
