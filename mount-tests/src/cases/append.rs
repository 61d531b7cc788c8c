//! Every tool that puts a Parquet file into a table: one version, the rows, the bytes, the exit status.

use crate::batch::orders;
use crate::case::{Cx, cases};
use crate::shell::EPERM;

use super::dropping::{base_and, drop_new, drop_over, target};

cases!("append":
    cp,
    cp_preserving,
    cp_archive,
    cp_reflink_auto,
    cp_over,
    cp_recursively,
    cp_within_the_mount,
    mv_in,
    mv_over,
    mv_within_the_mount,
    mv_between_tables_keeps_rows,
    install,
    install_over,
    rsync,
    rsync_archive,
    rsync_over,
    rsync_inplace,
    rsync_inplace_over,
    rsync_again_changes_nothing,
    cat_redirect,
    cat_redirect_over,
    redirect_of_a_group,
    redirect_by_exec,
    tee,
    dd,
    dd_fsync,
    dd_direct,
    tar_extract,
    tar_extract_over,
    gunzip,
    curl,
    python_open,
    python_copy2,
    python_replace,
    python_zipfile,
    python_out_of_order,
    python_fork_while_open,
    exec_while_open,
    python_fsync_then_close,
    python_dup_closes_twice,
    pyarrow_write_table,
    pandas_to_parquet,
    polars_write_parquet,
    polars_sink_parquet,
    duckdb_copy,
    duckdb_copy_over,
    in_append,
    append_redirect_refused,
    without_passthrough,
    several_files_several_versions,
    chmod_chown_and_times_after_the_commit,
);

fn cp(cx: &Cx) {
    drop_new(cx, "cp in/x.parquet mnt/t/");
}

fn cp_preserving(cx: &Cx) {
    drop_new(cx, "cp -p in/x.parquet mnt/t/");
}

fn cp_archive(cx: &Cx) {
    drop_new(cx, "cp -a in/x.parquet mnt/t/");
}

fn cp_reflink_auto(cx: &Cx) {
    drop_new(cx, "cp --reflink=auto in/x.parquet mnt/t/");
}

fn cp_over(cx: &Cx) {
    drop_over(cx, "cp in/x.parquet mnt/t/x.parquet", 1);
}

fn cp_recursively(cx: &Cx) {
    drop_new(cx, "cp -r in/. mnt/t/");
}

fn cp_within_the_mount(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp mnt/t/base.parquet mnt/t/twin.parquet; cmp mnt/t/base.parquet mnt/t/twin.parquet")
        .ok();
    assert_eq!(t.table.version(), 1);
    let twice = (0..10).flat_map(|id| [id, id]);
    assert_eq!(t.table.ids(), twice.collect::<Vec<_>>());
}

fn mv_in(cx: &Cx) {
    drop_new(cx, "mv in/x.parquet mnt/t/; test ! -e in/x.parquet");
}

/// From another file system `mv` unlinks the target first: two versions.
fn mv_over(cx: &Cx) {
    drop_over(cx, "mv in/x.parquet mnt/t/; test ! -e in/x.parquet", 2);
}

fn mv_within_the_mount(cx: &Cx) {
    drop_new(
        cx,
        "cp in/x.parquet mnt/t/x.parquet.tmp; mv mnt/t/x.parquet.tmp mnt/t/x.parquet",
    );
}

/// Whether `mv` copies and unlinks or is refused: the rows are in exactly one of the tables.
fn mv_between_tables_keeps_rows(cx: &Cx) {
    let t = target(cx);
    cx.builder("u").orders().create();
    let moved = cx.sh("mv mnt/t/base.parquet mnt/u/");
    let (from, to) = (t.table.ids(), cx.table("u").ids());
    let expected: Vec<i64> = (0..10).collect();
    if moved.succeeded() {
        assert_eq!((from, to), (vec![], expected), "{moved}");
    } else {
        assert_eq!((from, to), (expected, vec![]), "{moved}");
    }
}

fn install(cx: &Cx) {
    drop_new(cx, "install -m 600 in/x.parquet mnt/t/");
}

fn install_over(cx: &Cx) {
    drop_over(cx, "install in/x.parquet mnt/t/", 2);
}

fn rsync(cx: &Cx) {
    cx.need("rsync");
    drop_new(cx, "rsync in/x.parquet mnt/t/");
}

fn rsync_archive(cx: &Cx) {
    cx.need("rsync");
    drop_new(cx, "rsync -a in/ mnt/t/");
}

fn rsync_over(cx: &Cx) {
    cx.need("rsync");
    drop_over(cx, "rsync --ignore-times in/x.parquet mnt/t/", 1);
}

fn rsync_inplace(cx: &Cx) {
    cx.need("rsync");
    drop_new(cx, "rsync --inplace in/x.parquet mnt/t/");
}

/// rsync opens the live file for writing without truncating it, and truncates at the end: if a live
/// file may only be replaced as a whole, this is refused. Either way nothing is half done.
fn rsync_inplace_over(cx: &Cx) {
    cx.need("rsync");
    let t = target(cx);
    cx.input("old.parquet", &orders(50..60));
    cx.sh("cp in/old.parquet mnt/t/x.parquet").ok();
    let ran = cx.sh("rsync --inplace --whole-file --ignore-times in/x.parquet mnt/t/");
    if ran.succeeded() {
        t.holds(2, base_and(100..110));
    } else {
        t.holds(1, base_and(50..60));
    }
}

fn rsync_again_changes_nothing(cx: &Cx) {
    cx.need("rsync");
    let t = target(cx);
    cx.sh("rsync -c in/x.parquet mnt/t/; rsync -c in/x.parquet mnt/t/")
        .ok();
    t.holds(1, base_and(100..110));
}

fn cat_redirect(cx: &Cx) {
    drop_new(cx, "cat in/x.parquet > mnt/t/x.parquet");
}

fn cat_redirect_over(cx: &Cx) {
    drop_over(cx, "cat in/x.parquet > mnt/t/x.parquet", 1);
}

/// Several processes write in turn; each one's end sends a FLUSH of the unfinished file (which `head` may
/// see fail: nobody can know that more comes).
fn redirect_of_a_group(cx: &Cx) {
    drop_new(
        cx,
        "(head -c 100 in/x.parquet || true; sh -c true; tail -c +101 in/x.parquet) > mnt/t/x.parquet",
    );
}

fn redirect_by_exec(cx: &Cx) {
    drop_new(
        cx,
        "exec 3> mnt/t/x.parquet; head -c 100 in/x.parquet >&3 || true; tail -c +101 in/x.parquet >&3; exec 3>&-",
    );
}

fn tee(cx: &Cx) {
    drop_new(cx, "tee mnt/t/x.parquet < in/x.parquet > tee.out");
}

fn dd(cx: &Cx) {
    drop_new(
        cx,
        "dd if=in/x.parquet of=mnt/t/x.parquet bs=97 status=none",
    );
}

fn dd_fsync(cx: &Cx) {
    drop_new(
        cx,
        "dd if=in/x.parquet of=mnt/t/x.parquet conv=fsync status=none",
    );
}

fn dd_direct(cx: &Cx) {
    // The last, short block cannot be written directly: dd switches O_DIRECT off for it.
    drop_new(
        cx,
        "dd if=in/x.parquet of=mnt/t/x.parquet oflag=direct bs=512 status=none",
    );
}

fn tar_extract(cx: &Cx) {
    drop_new(cx, "tar cf in.tar -C in x.parquet; tar xf in.tar -C mnt/t");
}

fn tar_extract_over(cx: &Cx) {
    drop_over(
        cx,
        "tar cf in.tar -C in x.parquet; tar xf in.tar -C mnt/t",
        2,
    );
}

fn gunzip(cx: &Cx) {
    drop_new(
        cx,
        "gzip -c in/x.parquet > mnt/t/x.parquet.gz; gunzip mnt/t/x.parquet.gz",
    );
}

fn curl(cx: &Cx) {
    cx.need("curl");
    drop_new(cx, "curl -sS -o mnt/t/x.parquet file://$PWD/in/x.parquet");
}

fn python_open(cx: &Cx) {
    drop_new(
        cx,
        "$PY -c \"
data = open('in/x.parquet', 'rb').read()
with open('mnt/t/x.parquet', 'wb') as f:
    for i in range(0, len(data), 100):
        f.write(data[i:i + 100])
        f.flush()\"",
    );
}

fn python_copy2(cx: &Cx) {
    drop_new(
        cx,
        "$PY -c \"import shutil; shutil.copy2('in/x.parquet', 'mnt/t/')\"",
    );
}

fn python_replace(cx: &Cx) {
    drop_new(
        cx,
        "$PY -c \"
import os, shutil, tempfile
fd, name = tempfile.mkstemp(dir='mnt/t')
os.write(fd, open('in/x.parquet', 'rb').read())
os.fsync(fd)
os.close(fd)
os.replace(name, 'mnt/t/x.parquet')\"",
    );
}

fn python_zipfile(cx: &Cx) {
    drop_new(
        cx,
        "$PY -c \"
import zipfile
with zipfile.ZipFile('x.zip', 'w') as z: z.write('in/x.parquet', 'x.parquet')
zipfile.ZipFile('x.zip').extractall('mnt/t')\"",
    );
}

/// DuckDB writes from several threads, the end before the middle.
fn python_out_of_order(cx: &Cx) {
    drop_new(
        cx,
        "$PY -c \"
import os
data = open('in/x.parquet', 'rb').read()
fd = os.open('mnt/t/x.parquet', os.O_WRONLY | os.O_CREAT | os.O_EXCL)
os.ftruncate(fd, 0)
for i in reversed(range(0, len(data), 64)):
    os.pwrite(fd, data[i:i + 64], i)
os.close(fd)\"",
    );
}

fn python_fork_while_open(cx: &Cx) {
    drop_new(
        cx,
        "$PY -c \"
import subprocess, os
data = open('in/x.parquet', 'rb').read()
fd = os.open('mnt/t/x.parquet', os.O_WRONLY | os.O_CREAT)
os.set_inheritable(fd, True)
os.write(fd, data[:200])
subprocess.run(['true'], close_fds=False, check=True)
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
os.write(fd, data[200:])
os.close(fd)\"",
    );
}

/// A close-on-exec descriptor is flushed in the middle of the child's exec, when the kernel lets nobody look at
/// that process: a daemon that reads /proc/PID/stat of its caller waits for itself.
fn exec_while_open(cx: &Cx) {
    cx.time_limit(40);
    drop_new(
        cx,
        "$PY -c \"
import os, subprocess
data = open('in/x.parquet', 'rb').read()
fd = os.open('mnt/t/x.parquet', os.O_WRONLY | os.O_CREAT)
os.write(fd, data[:200])
subprocess.run(['true'], close_fds=False, check=True)
os.write(fd, data[200:])
subprocess.run(['true'], close_fds=False, check=True)
os.close(fd)\"",
    );
}

fn python_fsync_then_close(cx: &Cx) {
    drop_new(
        cx,
        "$PY -c \"
import os
fd = os.open('mnt/t/x.parquet', os.O_WRONLY | os.O_CREAT)
os.write(fd, open('in/x.parquet', 'rb').read())
os.fsync(fd)
os.fsync(fd)
os.fdatasync(fd)
os.close(fd)\"",
    );
}

fn python_dup_closes_twice(cx: &Cx) {
    drop_new(
        cx,
        "$PY -c \"
import os
fd = os.open('mnt/t/x.parquet', os.O_RDWR | os.O_CREAT)
twin = os.dup(fd)
os.write(fd, open('in/x.parquet', 'rb').read())
os.close(fd)
os.close(twin)\"",
    );
}

/// The columns of `batch::orders(100..110)` in python.
const COLUMNS: &str = "
ids = list(range(100, 110))
columns = {'id': ids, 'name': [f'n{i}' for i in ids], 'amount': [i / 2 for i in ids]}
";

#[track_caller]
fn written_by_library(cx: &Cx, modules: &[&str], program: &str) {
    let t = target(cx);
    cx.py_with(modules, &format!("{COLUMNS}{program}")).ok();
    t.appended(t.table.version());
    t.holds(1, base_and(100..110));
}

fn pyarrow_write_table(cx: &Cx) {
    written_by_library(
        cx,
        &["pyarrow"],
        "
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table(columns), 'mnt/t/x.parquet')
assert pq.read_table('mnt/t/x.parquet').num_rows == 10",
    );
}

fn pandas_to_parquet(cx: &Cx) {
    written_by_library(
        cx,
        &["pandas", "pyarrow"],
        "
import pandas as pd
pd.DataFrame(columns).to_parquet('mnt/t/x.parquet')
assert len(pd.read_parquet('mnt/t/x.parquet')) == 10",
    );
}

fn polars_write_parquet(cx: &Cx) {
    written_by_library(
        cx,
        &["polars"],
        "
import polars as pl
pl.DataFrame(columns).write_parquet('mnt/t/x.parquet')
assert pl.read_parquet('mnt/t/x.parquet').height == 10",
    );
}

fn polars_sink_parquet(cx: &Cx) {
    written_by_library(
        cx,
        &["polars"],
        "
import polars as pl
pl.LazyFrame(columns).sink_parquet('mnt/t/x.parquet')",
    );
}

const DUCKDB_COPY: &str = "
import duckdb
duckdb.sql(\"copy (select i as id, 'n' || i as name, i / 2.0::double as amount from range(100, 110) r(i)) to 'mnt/t/x.parquet' (format parquet)\")
assert duckdb.sql(\"select count(*) from 'mnt/t/x.parquet'\").fetchall() == [(10,)]";

fn duckdb_copy(cx: &Cx) {
    written_by_library(cx, &["duckdb"], DUCKDB_COPY);
}

/// DuckDB writes `tmp_x.parquet` beside it and renames: scratch, although it ends in `.parquet`.
fn duckdb_copy_over(cx: &Cx) {
    let t = target(cx);
    cx.input("old.parquet", &orders(50..60));
    cx.sh("cp in/old.parquet mnt/t/x.parquet").ok();
    cx.py_with(&["duckdb"], DUCKDB_COPY).ok();
    t.appended(t.table.version());
    t.holds(2, base_and(100..110));
}

fn in_append(cx: &Cx) {
    drop_new(cx, "cp in/x.parquet mnt/t/.delta/in/append/");
}

/// D109: a committed file is not appended to.
fn append_redirect_refused(cx: &Cx) {
    let t = target(cx);
    cx.sh("cat in/x.parquet >> mnt/t/base.parquet").fails(EPERM);
    t.holds(0, 0..10);
    cx.sh("cmp mnt/t/base.parquet wh/t/base.parquet").ok();
    // A new name is a new file.
    cx.sh("cat in/x.parquet >> mnt/t/x.parquet").ok();
    t.holds(1, base_and(100..110));
}

fn without_passthrough(cx: &Cx) {
    let t = super::dropping::target_with(cx, &["--no-passthrough"]);
    cx.sh("cp in/x.parquet mnt/t/; cmp keep/x.parquet mnt/t/x.parquet")
        .ok();
    t.appended(1);
    t.holds(1, base_and(100..110));
    cx.sh("cat in/x.parquet > mnt/t/x.parquet").ok();
    t.holds(2, base_and(100..110));
}

fn several_files_several_versions(cx: &Cx) {
    let t = target(cx);
    for i in 1..=5 {
        cx.input(&format!("many/f{i}.parquet"), &orders(i * 100..i * 100 + 3));
    }
    cx.sh("cp in/many/*.parquet mnt/t/").ok();
    let ids = (1..=5).flat_map(|i| i * 100..i * 100 + 3);
    t.holds(5, (0..10).chain(ids));
}

/// D105: what tools do to a file after its bytes are in.
fn chmod_chown_and_times_after_the_commit(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/
        chmod 600 mnt/t/x.parquet; chown 1:1 mnt/t/x.parquet
        touch mnt/t/x.parquet; touch -d 2020-01-01 mnt/t/x.parquet mnt/t
        cmp keep/x.parquet mnt/t/x.parquet")
        .ok();
    cx.py("import os; os.utime('mnt/t/x.parquet'); os.sync()")
        .ok();
    t.holds(1, base_and(100..110));
}
