//! Commits that others make in the backing directory, and the physical table that their readers open.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use serde_json::{Value, json};

use crate::batch::{columns, longs, orders};
use crate::builder::{add, commit, field};
use crate::case::{Cx, cases};
use crate::mount::Mount;
use crate::shell::{ENOENT, EOPNOTSUPP};
use crate::table::Table;
use crate::{sample, vector};

cases!("foreign":
    an_append_shows_within_the_refresh_time,
    the_refresh_time_can_be_chosen,
    a_removed_file_goes,
    a_replaced_file_is_the_new_one,
    a_new_vector_stops_old_rows,
    a_new_schema_is_told,
    partitions_come_and_go,
    many_commits_between_two_looks,
    a_checkpoint_and_a_clean_up,
    a_commit_while_it_is_listed,
    raw_is_exact,
    raw_follows_others,
    raw_hides_our_temporary_files,
    delta_rs_appends,
    delta_rs_checkpoints,
    delta_rs_reads_raw,
);

/// The refresh time and what a busy machine needs on top.
const SOON: Duration = Duration::from_secs(3);

/// Writes a data file as another system would, and tells its `add`.
fn stored(table: &Table, path: &str, rows: &RecordBatch) -> Value {
    let file = table.path.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    sample::write_parquet(&file, rows);
    add(path, file.metadata().unwrap().len(), rows.num_rows(), &[])
}

fn remove(path: &str) -> Value {
    json!({"remove": {"path": path, "deletionTimestamp": 1_800_000_000_000_u64, "dataChange": true}})
}

fn told(m: &Mount, name: &str) -> String {
    fs::read_to_string(m.path.join("t/.delta").join(name)).unwrap()
}

fn an_append_shows_within_the_refresh_time(cx: &Cx) {
    let table = cx.orders();
    let m = cx.mount();
    for round in 1..=3 {
        let name = format!("theirs-{round}.parquet");
        // Everything that the kernel could remember is asked for before.
        cx.sh(&format!(
            "cd mnt/t; ls -l . .delta .delta/raw/_delta_log; cat base.parquet .delta/version .delta/history .delta/info.json; \
             test ! -e {name}; test ! -e .delta/versions/{round}"
        ))
        .ok();
        let action = stored(&table, &name, &orders(100 * round..100 * round + 10));
        commit(
            &table,
            &[
                json!({"commitInfo": {"operation": "WRITE"}}),
                json!({"add": action}),
            ],
        );
        let began = Instant::now();
        cx.within(SOON, "its file", || m.path.join("t").join(&name).exists());
        println!("seen after {:?}", began.elapsed());
        assert_eq!(told(&m, "version"), format!("{round}\n"));
        assert_eq!(told(&m, "history").lines().count(), round as usize + 1);
        let info: Value = serde_json::from_str(&told(&m, "info.json")).unwrap();
        assert_eq!(info["rows"], 10 + 10 * round, "{info}");
        cx.sh(&format!(
            "cd mnt/t; ls | grep -x {name}; cmp {name} $OLDPWD/wh/t/{name}; \
             cmp .delta/versions/{round}/{name} {name}; cmp .delta/raw/{name} {name}; \
             test $(ls .delta/raw/_delta_log | wc -l) = {}",
            round + 1
        ))
        .ok();
    }
}

fn the_refresh_time_can_be_chosen(cx: &Cx) {
    let table = cx.orders();
    let m = cx.mount_with(&["--refresh", "50"]);
    cx.sh("ls -l mnt/t; test ! -e mnt/t/x.parquet").ok();
    let action = stored(&table, "x.parquet", &orders(0..1));
    commit(&table, &[json!({"add": action})]);
    cx.within(Duration::from_secs(1), "its file", || {
        m.path.join("t/x.parquet").exists()
    });
    m.umount();
    // Nothing is looked at before the time has come, and nobody is told of it wrongly meanwhile.
    let m = cx.mount_with(&["--refresh", "60000"]);
    assert_eq!(told(&m, "version"), "1\n");
    let action = stored(&table, "y.parquet", &orders(0..1));
    commit(&table, &[json!({"add": action})]);
    assert_eq!(told(&m, "version"), "1\n");
    assert_eq!(cx.sh("ls mnt/t").ok(), "base.parquet\nx.parquet\n");
    cx.sh("stat mnt/t/y.parquet").fails(ENOENT);
    cx.sh("stat mnt/t/.delta/versions/2").fails(ENOENT);
}

fn a_removed_file_goes(cx: &Cx) {
    let table = cx.orders();
    let m = cx.mount();
    let path = m.path.join("t/base.parquet");
    let mut open = File::open(&path).unwrap();
    cx.sh("stat mnt/t/base.parquet; cat mnt/t/base.parquet > out")
        .ok();
    commit(&table, &[remove("base.parquet")]);
    cx.within(SOON, "it is gone", || !path.exists());
    assert_eq!(cx.sh("ls mnt/t").ok(), "");
    cx.sh("cat mnt/t/base.parquet").fails(ENOENT);
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert!(bytes == fs::read(table.path.join("base.parquet")).unwrap());
    cx.sh("cmp mnt/t/.delta/versions/0/base.parquet wh/t/base.parquet")
        .ok();
}

/// Another file under the name that the kernel has pages and attributes of.
fn a_replaced_file_is_the_new_one(cx: &Cx) {
    for arguments in [&[][..], &["--no-passthrough"]] {
        let table = cx
            .builder("t")
            .orders()
            .file("one.parquet", &orders(0..1000))
            .create();
        let m = cx.mount_with(arguments);
        let path = m.path.join("t/one.parquet");
        let before = fs::read(&path).unwrap();
        let mut action = stored(&table, "two.parquet", &orders(5000..7000));
        action["tags"] = json!({"deltafs.name": "one.parquet"});
        commit(&table, &[remove("one.parquet"), json!({"add": action})]);
        let after = fs::read(table.path.join("two.parquet")).unwrap();
        cx.within(SOON, "the other file", || {
            let found = fs::read(&path).unwrap();
            assert!(found == before || found == after, "a mixture of two files");
            found == after
        });
        assert_eq!(fs::metadata(&path).unwrap().len(), after.len() as u64);
        cx.sh("cmp mnt/t/.delta/versions/0/one.parquet wh/t/one.parquet; cmp mnt/t/.delta/versions/1/one.parquet wh/t/two.parquet")
            .ok();
        m.umount();
        cx.sh("rm -r wh/t").ok();
    }
}

fn a_new_vector_stops_old_rows(cx: &Cx) {
    let table = cx.orders();
    let m = cx.mount();
    let path = m.path.join("t/base.parquet");
    let mut open = File::open(&path).unwrap();
    cx.sh("cat mnt/t/base.parquet > out").ok();
    let mut action = table.state().named("base.parquet").clone();
    action["deletionVector"] = vector::write(&table.path, 77, &[2, 3]);
    action["stats"] = json!(json!({"numRecords": 10, "tightBounds": false}).to_string());
    commit(&table, &[remove("base.parquet"), json!({"add": action})]);
    cx.within(SOON, "the vector is known", || {
        cx.sh("cat mnt/t/base.parquet").err.contains(EOPNOTSUPP)
    });
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert!(
        bytes == fs::read(table.path.join("base.parquet")).unwrap(),
        "an open pins its version"
    );
    let info: Value = serde_json::from_str(&told(&m, "info.json")).unwrap();
    assert_eq!(
        (&info["rows"], &info["deleted_rows"]),
        (&json!(8), &json!(2))
    );
}

fn a_new_schema_is_told(cx: &Cx) {
    let table = cx.orders();
    let m = cx.mount();
    cx.sh("cat mnt/t/base.parquet mnt/t/.delta/schema.json > out; stat mnt/t/.delta/schema.json")
        .ok();
    let mut metadata = table.state().metadata;
    let mut schema = table.state().schema();
    schema["fields"]
        .as_array_mut()
        .unwrap()
        .push(field("later", "string"));
    metadata["schemaString"] = json!(schema.to_string());
    commit(&table, &[json!({"metaData": metadata})]);
    cx.within(SOON, "the new schema", || {
        told(&m, "schema.json").contains("later")
    });
    assert_eq!(
        serde_json::from_str::<Value>(&told(&m, "schema.json")).unwrap(),
        schema
    );
    cx.sh("test $(stat -c %s mnt/t/.delta/schema.json) = $(cat mnt/t/.delta/schema.json | wc -c)")
        .ok();
    cx.sh("cat mnt/t/base.parquet").fails(EOPNOTSUPP);
}

fn partitions_come_and_go(cx: &Cx) {
    let table = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("p", "string")])
        .partitioned_by(&["p"])
        .file_in(
            "p=a/1.parquet",
            &columns(vec![("id", longs(0..5))]),
            &[("p", Some("a"))],
        )
        .create();
    let m = cx.mount();
    cx.sh("ls -lR mnt/t; test ! -e mnt/t/p=b").ok();
    let mut action = stored(&table, "p=b/2.parquet", &columns(vec![("id", longs(5..9))]));
    action["partitionValues"] = json!({"p": "b"});
    commit(&table, &[remove("p=a/1.parquet"), json!({"add": action})]);
    cx.within(SOON, "the new partition", || {
        m.path.join("t/p=b/2.parquet").exists()
    });
    cx.within(SOON, "the old partition is gone", || {
        !m.path.join("t/p=a").exists()
    });
    assert_eq!(
        cx.sh("cd mnt/t; find . -name '*.parquet'").ok(),
        "./p=b/2.parquet\n"
    );
    assert_eq!(
        cx.sh("cd mnt/t/.delta/versions/0; find . -name '*.parquet'")
            .ok(),
        "./p=a/1.parquet\n"
    );
}

fn many_commits_between_two_looks(cx: &Cx) {
    let table = cx.orders();
    let m = cx.mount();
    cx.sh("ls mnt/t").ok();
    for i in 1..=200_i64 {
        let action = stored(
            &table,
            &format!("f{i}.parquet"),
            &orders(i * 10..i * 10 + 1),
        );
        commit(&table, &[json!({"add": action})]);
    }
    cx.within(SOON, "all of them", || told(&m, "version") == "200\n");
    assert_eq!(fs::read_dir(m.path.join("t")).unwrap().count(), 201);
    // One's own commit goes on from theirs.
    cx.input("ours.parquet", &orders(90_000..90_001));
    cx.sh("cp in/ours.parquet mnt/t/").ok();
    table.assert_contiguous();
    assert_eq!(table.version(), 201);
    assert_eq!(table.ids().len(), 211);
}

/// What others do to the log under a mount that has the table open.
fn a_checkpoint_and_a_clean_up(cx: &Cx) {
    let table = cx.orders();
    let other = cx.mount_at("wh", "other", &[]);
    let m = cx.mount();
    cx.sh("ls mnt/t; cat mnt/t/.delta/history > out").ok();
    for i in 1..=12 {
        cx.input("x.parquet", &orders(i..i + 1));
        cx.sh(&format!("cp in/x.parquet other/t/x{i}.parquet")).ok();
    }
    let log = table.path.join("_delta_log");
    cx.eventually("the other mount's checkpoint", || {
        log.join("00000000000000000010.checkpoint.parquet").exists()
    });
    other.umount();
    for version in 0..10 {
        fs::remove_file(table.commit_path(version)).unwrap();
    }
    cx.within(SOON, "their commits", || told(&m, "version") == "12\n");
    assert_eq!(fs::read_dir(m.path.join("t")).unwrap().count(), 13);
    cx.input("y.parquet", &orders(50..51));
    cx.sh("cp in/y.parquet mnt/t/; cmp in/y.parquet mnt/t/y.parquet; rm mnt/t/base.parquet")
        .ok();
    assert_eq!(table.versions(), (10..=14).collect::<Vec<_>>());
    cx.within(SOON, "what can still be opened", || {
        cx.sh("ls mnt/t/.delta/versions").ok() == "10\n11\n12\n13\n14\n"
    });
}

fn a_commit_while_it_is_listed(cx: &Cx) {
    let table = cx.orders();
    for i in 1..=50_i64 {
        let action = stored(&table, &format!("f{i:03}.parquet"), &orders(i..i + 1));
        commit(&table, &[json!({"add": action})]);
    }
    let _m = cx.mount_with(&["--refresh", "20"]);
    cx.together(vec![
        Box::new(|| {
            for i in 51..=150_i64 {
                let name = format!("f{i:03}.parquet");
                let action = stored(&table, &name, &orders(i..i + 1));
                commit(
                    &table,
                    &[
                        remove(&format!("f{:03}.parquet", i - 50)),
                        json!({"add": action}),
                    ],
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }),
        Box::new(|| {
            // No name twice, and of an earlier version all that it held, however the table moves.
            cx.sh("for i in $(seq 40); do
                    test \"$(ls -f mnt/t | sort | uniq -d)\" = ''
                    v=$(cat mnt/t/.delta/version)
                    test $(ls mnt/t/.delta/versions/$v | wc -l) = 51
                    test $(ls -l mnt/t/.delta/versions/$(((v + 50) / 2)) | wc -l) = 52
                    test $(ls mnt/t/.delta/versions | wc -l) -gt $v
                done")
                .ok();
        }),
    ]);
}

/// Bytes, sizes, times, listings, at any place and by any way.
fn raw_is_exact(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .fields(vec![field("p", "string")])
        .partitioned_by(&["p"])
        .file_in(
            "p=a%252Fb%20c/1.parquet",
            &orders(0..100_000),
            &[("p", Some("a/b c"))],
        )
        .file_in("p=%C3%A9/2.parquet", &orders(0..3), &[("p", Some("é"))])
        .create();
    // The builder takes the path of the log for that of the disk.
    cx.sh("cd wh/t; mv 'p=a%252Fb%20c' 'p=a%2Fb c'; mv p=%C3%A9 p=é; mkdir -p _change_data; echo x > _change_data/x; \
           echo '{\"version\":0}' > _delta_log/_last_checkpoint; touch -d 2020-01-02T03:04:05Z p=é/2.parquet")
        .ok();
    for arguments in [&[][..], &["--no-passthrough"]] {
        let m = cx.mount_with(arguments);
        cx.sh("diff -r wh/t mnt/t/.delta/raw
            diff <(cd wh/t; find . -printf '%p %s %y %Ts\\n' | grep -v ' d ' | sort) \
                 <(cd mnt/t/.delta/raw; find . -printf '%p %s %y %Ts\\n' | grep -v ' d ' | sort)
            cd mnt/t/.delta/raw; find . -type f -exec tail -c 8 {} + > /dev/null; cat _delta_log/_last_checkpoint")
            .ok();
        let path = m.path.join("t/.delta/raw/p=a%2Fb c/1.parquet");
        let expected = fs::read(table.path.join("p=a%2Fb c/1.parquet")).unwrap();
        let mut file = File::open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), expected.len() as u64);
        for offset in [0, 1, 4095, 131_071, 1_000_003, 7] {
            let offset = offset % (expected.len() - 5000);
            file.seek(SeekFrom::Start(offset as u64)).unwrap();
            let mut found = vec![0; 5000];
            file.read_exact(&mut found).unwrap();
            assert!(found == expected[offset..offset + 5000], "at {offset}");
        }
        drop(file);
        assert!(mapped(&path) == expected, "mmap");
        cx.sh("cat mnt/t/.delta/raw/../raw/_delta_log/00000000000000000000.json | cmp - wh/t/_delta_log/00000000000000000000.json")
            .ok();
        cx.sh("stat mnt/t/.delta/raw/_delta_log/00000000000000000001.json")
            .fails(ENOENT);
        m.umount();
    }
}

fn mapped(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len() as usize;
    // SAFETY: the mapping is checked, copied while it stands and only within its length, then unmapped.
    unsafe {
        let map = libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert!(
            map != libc::MAP_FAILED,
            "mmap: {}",
            std::io::Error::last_os_error()
        );
        let bytes = std::slice::from_raw_parts(map.cast::<u8>(), size).to_vec();
        libc::munmap(map, size);
        bytes
    }
}

/// Pointers that are rewritten, files that come and go.
fn raw_follows_others(cx: &Cx) {
    let table = cx.orders();
    let m = cx.mount();
    let raw = m.path.join("t/.delta/raw");
    let pointer = table.path.join("_delta_log/_last_checkpoint");
    for version in 0..20 {
        // Longer and shorter, in place and by rename.
        let body = format!(
            "{{\"version\":{version},\"size\":{}}}",
            "1".repeat(1 + version * 7 % 30)
        );
        if version % 2 == 0 {
            fs::write(&pointer, &body).unwrap();
        } else {
            fs::write(pointer.with_extension("new"), &body).unwrap();
            fs::rename(pointer.with_extension("new"), &pointer).unwrap();
        }
        cx.within(SOON, "the pointer as it is now", || {
            fs::read_to_string(raw.join("_delta_log/_last_checkpoint"))
                .is_ok_and(|found| found == body)
        });
    }
    cx.sh("cat mnt/t/.delta/raw/base.parquet > out; stat mnt/t/.delta/raw/base.parquet")
        .ok();
    fs::remove_file(table.path.join("base.parquet")).unwrap();
    cx.within(SOON, "a removed file", || {
        !raw.join("base.parquet").exists()
    });
    fs::create_dir(table.path.join("base.parquet")).unwrap();
    cx.within(SOON, "a directory in its place", || {
        raw.join("base.parquet").is_dir()
    });
    let inode = fs::metadata(raw.join("_delta_log")).unwrap().ino();
    assert_eq!(fs::metadata(raw.join("_delta_log")).unwrap().ino(), inode);
}

fn raw_hides_our_temporary_files(cx: &Cx) {
    let table = cx.orders();
    let _m = cx.mount();
    for place in ["", "_delta_log"] {
        fs::write(
            table.path.join(place).join(".deltafs-0123.tmp"),
            "half a file",
        )
        .unwrap();
        fs::write(table.path.join(place).join(".theirs.tmp"), "x").unwrap();
    }
    let listed = cx
        .sh("cd mnt/t/.delta/raw; find . -name '.*.tmp' | sort")
        .ok();
    assert_eq!(listed, "./.theirs.tmp\n./_delta_log/.theirs.tmp\n");
    cx.sh("stat mnt/t/.delta/raw/.deltafs-0123.tmp")
        .fails(ENOENT);
    cx.sh("cat mnt/t/.delta/raw/_delta_log/.deltafs-0123.tmp")
        .fails(ENOENT);
}

fn delta_rs_appends(cx: &Cx) {
    cx.time_limit(200);
    let table = cx
        .builder("t")
        .legacy(2)
        .orders()
        .file("base.parquet", &orders(0..10))
        .create();
    cx.input("ours.parquet", &orders(700..705));
    let m = cx.mount();
    cx.sh("ls -l mnt/t mnt/t/.delta/versions; cat mnt/t/.delta/history > out")
        .ok();
    let append = |first: i64| {
        cx.py_with(&["deltalake", "pyarrow"], &format!("
import pyarrow as pa
from deltalake import write_deltalake
ids = list(range({first}, {first} + 5))
rows = pa.table({{'id': pa.array(ids, pa.int64()), 'name': [f'n{{i}}' for i in ids], 'amount': [i / 2 for i in ids]}})
write_deltalake('wh/t', rows, mode='append')"))
            .ok();
    };
    for round in 1..=3_i64 {
        append(round * 100);
        let version = 2 * round - 1;
        cx.within(SOON, "the append of delta-rs", || {
            told(&m, "version") == format!("{version}\n")
        });
        assert_eq!(
            fs::read_dir(m.path.join("t")).unwrap().count() as i64,
            2 * round
        );
        assert!(
            told(&m, "history")
                .lines()
                .next()
                .unwrap()
                .contains("WRITE")
        );
        // Its file is readable at its name, and ours goes on top.
        cx.sh(&format!("cp in/ours.parquet mnt/t/ours{round}.parquet; cat mnt/t/*.parquet > out; ls mnt/t/.delta/versions/{version}"))
            .ok();
    }
    table.assert_contiguous();
    assert_eq!(table.ids().len(), 10 + 3 * 5 + 3 * 5);
}

/// Its checkpoints declare what an action must have as required, unlike those of Spark and ours.
fn delta_rs_checkpoints(cx: &Cx) {
    cx.time_limit(200);
    let table = cx.orders();
    cx.py_with(
        &["deltalake"],
        "
from deltalake import DeltaTable
DeltaTable('wh/t').create_checkpoint()",
    )
    .ok();
    appended(&table);
    // Only the checkpoint tells of version 0 now.
    fs::remove_file(table.commit_path(0)).unwrap();
    let m = cx.mount();
    assert_eq!(cx.sh("ls mnt/t").ok(), "base.parquet\nx.parquet\n");
    assert_eq!(
        cx.sh("ls mnt/t/.delta/versions; ls mnt/t/.delta/versions/0")
            .ok(),
        "0\n1\nbase.parquet\n"
    );
    let info: Value = serde_json::from_str(&told(&m, "info.json")).unwrap();
    assert_eq!(
        (&info["rows"], &info["files"]),
        (&json!(20), &json!(2)),
        "{info}"
    );
}

fn appended(table: &Table) {
    let action = stored(table, "x.parquet", &orders(100..110));
    commit(
        table,
        &[
            json!({"commitInfo": {"operation": "WRITE"}}),
            json!({"add": action}),
        ],
    );
}

fn delta_rs_reads_raw(cx: &Cx) {
    cx.time_limit(200);
    cx.builder("t")
        .orders()
        .fields(vec![field("p", "string")])
        .partitioned_by(&["p"])
        .create();
    let rows = |first: i64, p: &str| {
        let batch = orders(first..first + 20);
        let mut named: Vec<(&str, arrow::array::ArrayRef)> = vec![];
        for name in ["id", "name", "amount"] {
            named.push((name, batch.column_by_name(name).unwrap().clone()));
        }
        named.push(("p", crate::batch::texts(vec![p; 20])));
        columns(named)
    };
    let m = cx.mount();
    for (i, p) in ["a/b", "50% é", "x=y z", "DE"].iter().enumerate() {
        cx.input("x.parquet", &rows(i as i64 * 100, p));
        cx.sh(&format!(
            "for k in 1 2 3 4; do cp in/x.parquet mnt/t/x{i}-$k.parquet; done"
        ))
        .ok();
    }
    cx.sh("echo 'id % 10 = 3' > mnt/t/.delta/ctl/delete").ok();
    let expected = cx.table("t").ids();
    cx.py_with(&["deltalake", "pyarrow"], &format!("
from deltalake import DeltaTable, QueryBuilder
import pyarrow as pa
for place in ('wh/t', 'mnt/t/.delta/raw'):
    t = DeltaTable(place)
    assert t.version() == {}, t.version()
    ids = sorted(pa.table(QueryBuilder().register('t', t).execute('select id from t'))['id'].to_pylist())
    assert ids == {expected:?}, (place, len(ids))",
        told(&m, "version").trim()))
        .ok();
}
