//! Reading data files: the same bytes by every way, and never a row that is deleted.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use crate::batch::orders;
use crate::builder::{field, with_metadata};
use crate::case::{Cx, cases};
use crate::shell::{EOPNOTSUPP, EPERM};

cases!("read":
    raw_bytes,
    raw_bytes_without_passthrough,
    passthrough_and_plain_mounts_at_once,
    file_with_deletion_vector_refused,
    file_without_an_added_column_refused,
    mapped_file_refused,
    open_file_survives_rm,
    open_file_survives_overwrite,
    many_open_files,
    readers_during_appends,
    locks,
    no_random_writes,
    hive_directories,
    pyarrow,
    duckdb,
    polars,
    pandas,
);

/// A file of some megabytes, so that reads take more than one request.
fn big(cx: &Cx) {
    cx.builder("t")
        .orders()
        .file("big.parquet", &orders(0..300_000))
        .file("small.parquet", &orders(0..3))
        .create();
}

fn every_way(cx: &Cx, arguments: &[&str]) {
    big(cx);
    let m = cx.mount_with(arguments);
    for file in ["big.parquet", "small.parquet"] {
        cx.sh(&format!(
            "w=wh/t/{file} f=mnt/t/{file}
            cat $f | cmp - $w; cmp $f $w
            cp $f out; cmp out $w
            dd if=$f bs=4093 status=none | cmp - $w
            dd if=$f bs=1M iflag=direct status=none | cmp - $w
            tail -c 8 $f | cmp - <(tail -c 8 $w)
            tail -c +100 $f | cmp - <(tail -c +100 $w)
            head -c 100 $f | cmp - <(head -c 100 $w)
            tar cf - $f | tar xOf - | cmp - $w
            test $(stat -c %s $f) = $(stat -c %s $w)"
        ))
        .ok();
        let expected = fs::read(cx.path("wh/t").join(file)).unwrap();
        let path = m.path.join("t").join(file);
        for flags in [libc::MAP_PRIVATE, libc::MAP_SHARED] {
            assert!(
                mapped(&path, flags) == expected,
                "mmap with flags {flags} of {file}"
            );
        }
        assert!(
            sent(&path, &cx.path("sent")) == expected,
            "sendfile of {file}"
        );
        let mut source = File::open(&path).unwrap();
        for offset in [0, 1, 4095, 131_071, 1_000_003] {
            let offset = offset % expected.len();
            source.seek(SeekFrom::Start(offset as u64)).unwrap();
            let mut found = vec![0; 10_000.min(expected.len() - offset)];
            source.read_exact(&mut found).unwrap();
            assert!(
                found == expected[offset..offset + found.len()],
                "{file} at {offset}"
            );
        }
        assert_eq!(
            source.seek(SeekFrom::End(0)).unwrap(),
            expected.len() as u64
        );
        assert_eq!(source.read(&mut [0; 10]).unwrap(), 0, "end of {file}");
    }
    if crate::shell::installed("rsync") {
        cx.sh("rsync -a mnt/t/ copy; cmp copy/big.parquet wh/t/big.parquet; ls -A copy")
            .ok();
    }
    assert_eq!(cx.table("t").version(), 0);
}

fn raw_bytes(cx: &Cx) {
    every_way(cx, &[]);
}

fn raw_bytes_without_passthrough(cx: &Cx) {
    every_way(cx, &["--no-passthrough"]);
}

fn passthrough_and_plain_mounts_at_once(cx: &Cx) {
    big(cx);
    let _a = cx.mount_at("wh", "a", &[]);
    let _b = cx.mount_at("wh", "b", &["--no-passthrough"]);
    cx.sh("for i in 1 2 3; do cmp a/t/big.parquet b/t/big.parquet; done")
        .ok();
}

fn mapped(path: &Path, flags: i32) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len() as usize;
    // SAFETY: the mapping is checked, copied while it stands and only within its length, then unmapped.
    unsafe {
        let map = libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ,
            flags,
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

fn sent(from: &Path, to: &Path) -> Vec<u8> {
    let (source, target) = (File::open(from).unwrap(), File::create(to).unwrap());
    loop {
        let (input, output) = (source.as_raw_fd(), target.as_raw_fd());
        // SAFETY: both descriptors are open, and a null offset means the file's own position.
        let count = unsafe { libc::sendfile(output, input, std::ptr::null_mut(), 1 << 20) };
        assert!(count >= 0, "sendfile: {}", std::io::Error::last_os_error());
        if count == 0 {
            return fs::read(to).unwrap();
        }
    }
}

fn file_with_deletion_vector_refused(cx: &Cx) {
    cx.builder("t")
        .orders()
        .file_with_vector("dv.parquet", &orders(0..10), &[2, 3])
        .file("plain.parquet", &orders(10..20))
        .create();
    let _m = cx.mount();
    assert_eq!(cx.sh("ls mnt/t").ok(), "dv.parquet\nplain.parquet\n");
    cx.sh("cat mnt/t/dv.parquet").fails(EOPNOTSUPP);
    cx.sh("cp mnt/t/dv.parquet out").fails(EOPNOTSUPP);
    cx.sh("cmp mnt/t/plain.parquet wh/t/plain.parquet").ok();
    cx.sh("cmp mnt/t/.delta/raw/dv.parquet wh/t/dv.parquet")
        .ok();
}

fn file_without_an_added_column_refused(cx: &Cx) {
    cx.builder("t")
        .orders()
        .fields(vec![field("later", "string")])
        .file("old.parquet", &orders(0..10))
        .create();
    let _m = cx.mount();
    cx.sh("cat mnt/t/old.parquet").fails(EOPNOTSUPP);
}

fn mapped_file_refused(cx: &Cx) {
    let mapped = |name: &str, kind: &str, id: u64, physical: &str| {
        let field = with_metadata(field(name, kind), "delta.columnMapping.id", id);
        with_metadata(field, "delta.columnMapping.physicalName", physical)
    };
    cx.builder("t")
        .features(&["columnMapping"], &["columnMapping"])
        .property("delta.columnMapping.mode", "name")
        .property("delta.columnMapping.maxColumnId", "3")
        .fields(vec![
            mapped("key", "long", 1, "id"),
            mapped("name", "string", 2, "name"),
            mapped("amount", "double", 3, "amount"),
        ])
        .file("mapped.parquet", &orders(0..10))
        .create();
    let _m = cx.mount();
    cx.sh("cat mnt/t/mapped.parquet").fails(EOPNOTSUPP);
    assert!(
        cx.sh("cat mnt/t/.delta/schema.json")
            .ok()
            .contains("\"key\"")
    );
}

fn open_file_survives_rm(cx: &Cx) {
    big(cx);
    for arguments in [&[][..], &["--no-passthrough"]] {
        cx.sh("cp wh/t/big.parquet in/again.parquet").ok();
        let m = cx.mount_with(arguments);
        cx.sh("cp in/again.parquet mnt/t/again.parquet").ok();
        let mut file = File::open(m.path.join("t/again.parquet")).unwrap();
        let mut found = vec![0; 100_000];
        file.read_exact(&mut found).unwrap();
        cx.sh("rm mnt/t/again.parquet; test ! -e mnt/t/again.parquet")
            .ok();
        file.read_to_end(&mut found)
            .expect("an open file can be read to its end");
        assert!(found == fs::read(cx.path("in/again.parquet")).unwrap());
        drop(file);
        m.umount();
    }
}

fn open_file_survives_overwrite(cx: &Cx) {
    cx.orders();
    cx.input("x.parquet", &orders(100..200));
    let m = cx.mount();
    let mut file = File::open(m.path.join("t/base.parquet")).unwrap();
    let old = fs::read(cx.path("wh/t/base.parquet")).unwrap();
    cx.sh("cp in/x.parquet mnt/t/base.parquet; cmp in/x.parquet mnt/t/base.parquet")
        .ok();
    let mut found = Vec::new();
    file.read_to_end(&mut found).unwrap();
    assert!(
        found == old,
        "an open file shows the version it was opened at"
    );
}

fn many_open_files(cx: &Cx) {
    big(cx);
    let m = cx.mount();
    let path = m.path.join("t/big.parquet");
    let files: Vec<File> = (0..400).map(|_| File::open(&path).unwrap()).collect();
    let expected = fs::read(&path).unwrap();
    let mut last = Vec::new();
    let mut reader = files.last().unwrap();
    reader.read_to_end(&mut last).unwrap();
    assert!(last == expected);
}

fn readers_during_appends(cx: &Cx) {
    big(cx);
    cx.input("x.parquet", &orders(0..10));
    let _m = cx.mount();
    cx.together(vec![
        Box::new(|| {
            cx.sh("for i in $(seq 30); do cp in/x.parquet mnt/t/a$i.parquet; done").ok();
        }),
        Box::new(|| {
            cx.sh("for i in $(seq 30); do cmp mnt/t/big.parquet wh/t/big.parquet; ls -l mnt/t > out; done").ok();
        }),
        Box::new(|| {
            cx.sh("for i in $(seq 100); do cat mnt/t/.delta/history mnt/t/.delta/info.json > out2; done").ok();
        }),
    ]);
    assert_eq!(cx.table("t").version(), 30);
}

fn locks(cx: &Cx) {
    cx.orders();
    let _m = cx.mount();
    cx.py("import fcntl
f = open('mnt/t/base.parquet', 'rb')
fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
fcntl.lockf(f, fcntl.LOCK_UN)")
        .ok();
}

/// DESIGN §9: a committed file is never changed in place.
fn no_random_writes(cx: &Cx) {
    let table = cx.orders();
    let _m = cx.mount();
    for script in [
        "dd if=/dev/zero of=mnt/t/base.parquet conv=notrunc bs=1 count=4 seek=8 status=none",
        "echo x >> mnt/t/base.parquet",
    ] {
        cx.sh(script).fails(EPERM);
    }
    for script in [
        "$PY -c \"f = open('mnt/t/base.parquet', 'r+b'); f.write(b'PAR2'); f.close()\"",
        "truncate -s 10 mnt/t/base.parquet",
        "truncate -s +10 mnt/t/base.parquet",
        "fallocate -l 1M mnt/t/base.parquet",
    ] {
        let ran = cx.sh(script);
        assert!(!ran.succeeded(), "{ran}");
    }
    cx.sh("cmp mnt/t/base.parquet wh/t/base.parquet").ok();
    assert_eq!(table.version(), 0);
    assert_eq!(table.ids(), (0..10).collect::<Vec<_>>());
}

/// The directories come from the log's values, whatever the physical path is.
fn hive_directories(cx: &Cx) {
    cx.builder("t")
        .orders()
        .fields(vec![field("country", "string"), field("day", "date")])
        .partitioned_by(&["country", "day"])
        .file_in(
            "ab/1.parquet",
            &orders(0..2),
            &[("country", Some("DE")), ("day", Some("2026-01-31"))],
        )
        .file_in(
            "cd/2.parquet",
            &orders(2..4),
            &[("country", Some("DE")), ("day", None)],
        )
        .file_in(
            "3.parquet",
            &orders(4..6),
            &[("country", Some("a/b: c%")), ("day", Some("2026-02-01"))],
        )
        .create();
    let _m = cx.mount();
    assert_eq!(
        cx.sh("cd mnt/t; find . -name '*.parquet' | sort").ok(),
        "./country=DE/day=2026-01-31/1.parquet\n\
         ./country=DE/day=__HIVE_DEFAULT_PARTITION__/2.parquet\n\
         ./country=a%2Fb%3A c%25/day=2026-02-01/3.parquet\n"
    );
    cx.sh("cmp mnt/t/country=DE/day=2026-01-31/1.parquet wh/t/ab/1.parquet")
        .ok();
    cx.sh("test \"$(find mnt/t -type d | wc -l)\" = 6").ok();
}

fn parquet_tools(cx: &Cx) {
    cx.builder("t")
        .orders()
        .file("a.parquet", &orders(0..50_000))
        .file("b.parquet", &orders(50_000..50_010))
        .create();
}

fn pyarrow(cx: &Cx) {
    parquet_tools(cx);
    let _m = cx.mount();
    cx.py_with(
        &["pyarrow"],
        "
import pyarrow.parquet as pq, pyarrow.dataset as ds
for mapped in (False, True):
    t = pq.read_table('mnt/t/a.parquet', memory_map=mapped)
    assert t.num_rows == 50000 and t['id'].to_pylist()[-1] == 49999
assert ds.dataset('mnt/t').to_table().num_rows == 50010
assert pq.read_metadata('mnt/t/b.parquet').num_rows == 10",
    )
    .ok();
}

fn duckdb(cx: &Cx) {
    parquet_tools(cx);
    let _m = cx.mount();
    cx.py_with(&["duckdb"], "
import duckdb
q = duckdb.sql(\"select count(*), sum(id), count(distinct filename) from read_parquet('mnt/**/*.parquet', filename=true)\")
assert q.fetchall() == [(50010, sum(range(50010)), 2)]")
        .ok();
}

fn polars(cx: &Cx) {
    parquet_tools(cx);
    let _m = cx.mount();
    cx.py_with(&["polars"], "
import polars as pl
assert pl.scan_parquet('mnt/t/*.parquet').select(pl.col('id').sum()).collect().item() == sum(range(50010))
assert pl.read_parquet('mnt/t/b.parquet')['name'].to_list()[0] == 'n50000'")
        .ok();
}

fn pandas(cx: &Cx) {
    parquet_tools(cx);
    let _m = cx.mount();
    cx.py_with(
        &["pandas", "pyarrow"],
        "
import pandas as pd
assert len(pd.read_parquet('mnt/t')) == 50010
assert pd.read_parquet('mnt/t/b.parquet')['amount'].iloc[1] == 25000.5",
    )
    .ok();
}
