"""Others write below a mount, and read through it. Run by scripts/interop-mount; `deltafs` and `mount-tests` are in the PATH."""
import contextlib
import datetime as dt
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake

SOON_S = 3  # the refresh time of 1 s, and what a busy machine needs
PROBLEMS = []
CHECKS = 0


def check(holds, what):
    global CHECKS
    CHECKS += 1
    if not holds:
        PROBLEMS.append(what)


# ---- readers: a table's directory to a pyarrow table

def delta_rs(path):
    return pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("select * from t"))


def duckdb_delta(path):
    import duckdb
    import duckdb_extension_delta
    package = os.path.dirname(duckdb_extension_delta.__file__)
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("LOAD '%s'" % glob.glob(package + "/extensions/*/delta.duckdb_extension")[0])
    return connection.execute("select * from delta_scan(?)", [path]).to_arrow_table()


def polars_delta(path):
    import polars
    return polars.scan_delta(path).collect().to_arrow()


def polars_kernel(path):
    import polars_deltalake
    return polars_deltalake.scan_delta(path).collect().to_arrow()


READERS = [delta_rs, duckdb_delta, polars_delta, polars_kernel]


def rows(table):
    """As sorted texts, so that views, dictionaries and zones of the readers do not matter."""
    names = sorted(table.column_names)
    return sorted(repr([row[name] for name in names]) for row in table.to_pylist())


def same_through_raw(what, backing, mounted, readers=READERS):
    """Every reader gets through the mount's raw/ what it gets from the disk."""
    raw = f"{mounted}/.delta/raw"
    for reader in readers:
        try:
            direct = rows(reader(backing))
        except BaseException as error:  # pyo3 panics are no Exceptions
            print(f"  {what}: {reader.__name__} can't read it from the disk either: {str(error)[:100]}")
            continue
        try:
            through = rows(reader(raw))
        except BaseException as error:
            check(False, f"{what}: {reader.__name__} fails on raw/: {error}")
            continue
        check(direct == through, f"{what}: {reader.__name__} reads {len(through)} rows of raw/, {len(direct)} of the disk")
        print(f"  {what}: {reader.__name__}: {len(through)} rows")


# ---- the mount against delta-rs

def version(mounted):
    return int(pathlib.Path(mounted, ".delta/version").read_text())


def names(directory):
    found = set()
    for where, _, files in os.walk(directory):
        found.update(os.path.join(os.path.relpath(where, directory), name) for name in files)
    return {os.path.normpath(name) for name in found}


def live(table, backing):
    """The files of a delta-rs table as the mount names them: its writer stores them in their partition directories."""
    root = "file://" + urllib.parse.quote(backing) + "/"
    uris = table.file_uris()
    return {urllib.parse.unquote(u.removeprefix(root).removeprefix(backing + "/")) for u in uris}


def in_time(what, backing, mounted, exact=True):
    """The newest version shows within the refresh time: number, listing, history and rows."""
    theirs = DeltaTable(backing)
    began = time.monotonic()
    while version(mounted) != theirs.version():
        if time.monotonic() - began > SOON_S:
            check(False, f"{what}: the mount is at {version(mounted)}, delta-rs at {theirs.version()}")
            return
        time.sleep(0.02)
    took = time.monotonic() - began
    expected, found = live(theirs, backing), names(mounted)
    # What we wrote shows under the name it was dropped with, not under that of the log.
    same = found == expected if exact else len(found) == len(expected)
    check(same, f"{what}: listed are {sorted(found ^ expected)[:4]} too many or too few")
    newest = pathlib.Path(mounted, ".delta/history").read_text().split(maxsplit=1)[0]
    check(int(newest) == theirs.version(), f"{what}: history begins with {newest}")
    print(f"{what}: version {theirs.version()} after {took:.2f} s, {len(found)} files")


def by_version(what, backing, mounted, first=0, exact=True):
    """Every version: the same files, and rows where all files are as the table means them."""
    newest = DeltaTable(backing).version()
    listed = sorted(map(int, os.listdir(f"{mounted}/.delta/versions")))
    check(listed == list(range(first, newest + 1)), f"{what}: versions {listed[:3]}…{listed[-3:]}, not {first}…{newest}")
    for number in listed:
        theirs = DeltaTable(backing, version=number)
        directory = f"{mounted}/.delta/versions/{number}"
        expected = live(theirs, backing)
        found = names(directory)
        same = found == expected if exact else len(found) == len(expected)
        check(same, f"{what}: files of version {number}")
        if not all(os.path.exists(f"{backing}/{name}") for name in expected):
            continue
        try:
            found = ds.dataset(directory, partitioning="hive").to_table() if expected else None
        except OSError as error:
            if error.errno == 95:  # a column was added: refused until the logical view is there
                continue
            check(False, f"{what}: version {number}: {error}")
            continue
        count = found.num_rows if expected else 0
        wanted = pa.table(QueryBuilder().register("t", theirs).execute("select * from t"))
        check(count == wanted.num_rows, f"{what}: version {number} has {count} rows, not {wanted.num_rows}")
        if expected and "id" in found.column_names:
            check(sorted(found["id"].to_pylist()) == sorted(wanted["id"].to_pylist()), f"{what}: ids of version {number}")


def by_time(what, backing, mounted):
    """`at/` chooses as delta-rs does, at each commit's time and around it."""
    history = DeltaTable(backing).history()
    for entry in history:
        for shift in (0, 1):
            millis = entry["timestamp"] + shift
            when = dt.datetime.fromtimestamp(millis / 1000, dt.UTC)
            text = when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{millis % 1000:03}Z"
            theirs = DeltaTable(backing)
            theirs.load_as_version(when)
            try:
                found = int(pathlib.Path(mounted, f".delta/at/{text}/.delta/version").read_text())
            except OSError as error:
                found = error
            check(found == theirs.version(), f"{what}: at {text} we say {found}, delta-rs {theirs.version()}")


# ---- what is written

def orders(first, count, **more):
    ids = range(first, first + count)
    columns = {"id": pa.array(ids, pa.int64()), "name": pa.array([f"n{i} é" for i in ids])}
    columns.update({name: pa.array([values[i % len(values)] for i in ids]) for name, values in more.items()})
    return pa.table(columns)


def appends(warehouse, lake):
    backing, mounted = f"{warehouse}/plain", f"{lake}/plain"
    write_deltalake(backing, orders(0, 100))
    os.listdir(lake), os.listdir(mounted)
    in_time("created", backing, mounted)
    for i in range(1, 4):
        time.sleep(0.01)
        write_deltalake(backing, orders(100 * i, 100), mode="append")
        in_time("appended", backing, mounted)
    DeltaTable(backing).delete("id % 7 = 3")
    in_time("deleted", backing, mounted)
    DeltaTable(backing).optimize.compact()
    in_time("compacted", backing, mounted)
    by_version("plain", backing, mounted)
    by_time("plain", backing, mounted)
    same_through_raw("plain", backing, mounted)
    pq.write_table(orders(9000, 10), f"{mounted}/ours.parquet")
    write_deltalake(backing, orders(5000, 5), mode="append")
    in_time("in turns", backing, mounted, exact=False)
    check(len(rows(delta_rs(backing))) == 400 - 57 + 15, "rows of two writers in turns")
    write_deltalake(backing, orders(6000, 5).append_column("later", pa.array(range(5))), mode="append",
                    schema_mode="merge")
    in_time("a column added", backing, mounted, exact=False)
    check("later" in pathlib.Path(mounted, ".delta/schema.json").read_text(), "the new column in schema.json")
    check("later" not in pathlib.Path(mounted, ".delta/versions/2/.delta/schema.json").read_text(), "schema.json of then")
    by_version("with another schema", backing, mounted, exact=False)
    same_through_raw("with another schema", backing, mounted)


def odd_partitions(warehouse, lake):
    backing, mounted = f"{warehouse}/odd", f"{lake}/odd"
    values = ["DE", "a/b", "50% é", "x=y z", "q'\"#?", None]
    write_deltalake(backing, orders(0, 60, country=values), partition_by=["country"])
    write_deltalake(backing, orders(60, 60, country=values), partition_by=["country"], mode="append")
    DeltaTable(backing).create_checkpoint()
    write_deltalake(backing, orders(120, 6, country=["IT"]), mode="append")
    os.listdir(mounted)
    # The directories come from the log's values, delta-rs spells some characters in another way.
    check(sum(len(files) for _, _, files in os.walk(mounted)) == len(DeltaTable(backing).file_uris()), "odd: files")
    for number, count in ((0, 60), (1, 120), (2, 126)):
        directory = f"{mounted}/.delta/versions/{number}"
        found = sum(pq.read_metadata(f"{where}/{name}").num_rows for where, _, files in os.walk(directory) for name in files)
        check(found == count, f"odd: version {number} has {found} rows, not {count}")
    same_through_raw("odd partitions", backing, mounted)


def vectors(warehouse, lake):
    """Ours, since delta-rs writes none."""
    backing, mounted = f"{warehouse}/vectors", f"{lake}/vectors"
    os.mkdir(mounted)
    for i in range(13):
        pq.write_table(orders(i * 100, 100), f"{mounted}/{i}.parquet")
    pathlib.Path(mounted, ".delta/ctl/delete").write_text("id % 10 = 3\n")
    same_through_raw("deletion vectors and a checkpoint", backing, mounted)
    write_deltalake(backing, orders(7000, 10), mode="append")
    os.listdir(mounted)
    time.sleep(SOON_S)
    same_through_raw("and an append of delta-rs", backing, mounted)


def cleaned(warehouse, lake):
    backing, mounted = f"{warehouse}/cleaned", f"{lake}/cleaned"
    write_deltalake(backing, orders(0, 10), configuration={"delta.logRetentionDuration": "interval 1 days"})
    for i in range(1, 15):
        write_deltalake(backing, orders(i * 10, 10), mode="append")
    os.listdir(mounted)
    DeltaTable(backing).create_checkpoint()
    write_deltalake(backing, orders(990, 10), mode="append")
    old = time.time() - 40 * 86400
    for number in range(15):
        path = f"{backing}/_delta_log/{number:020}.json"
        os.utime(path, (old + number, old + number))
    DeltaTable(backing).cleanup_metadata()
    left = sorted(p for p in os.listdir(f"{backing}/_delta_log") if p.endswith(".json") and p[0].isdigit())
    print(f"cleaned: {len(left)} commits left, the first is {left[0]}")
    time.sleep(SOON_S)
    in_time("cleaned up", backing, mounted)
    listed = sorted(map(int, os.listdir(f"{mounted}/.delta/versions")))
    check(listed[-1] == 15 and len(listed) < 16, f"cleaned: versions {listed}")
    for number in range(16):
        try:
            theirs = live(DeltaTable(backing, version=number), backing)
        except Exception:
            theirs = None
        ours = names(f"{mounted}/.delta/versions/{number}") if number in listed else None
        check(ours == theirs, f"cleaned: version {number}: {ours and len(ours)} files, delta-rs {theirs and len(theirs)}")
    DeltaTable(backing).delete("id < 100")
    DeltaTable(backing).optimize.compact()
    DeltaTable(backing).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    time.sleep(SOON_S)
    in_time("vacuumed", backing, mounted)
    gone = [n for n in names(f"{mounted}/.delta/versions/15") if not os.path.exists(f"{backing}/{n}")]
    check(bool(gone), "the vacuum removed files of version 15")
    for name in gone:
        try:
            open(f"{mounted}/.delta/versions/15/{name}", "rb")
            check(False, f"a file that is gone opens: {name}")
        except OSError as error:
            check(error.errno == 5, f"a file that is gone: {error}")
    same_through_raw("vacuumed", backing, mounted)


def corpus(root):
    """Tables of Spark and others with vectors, mapping and all kinds of checkpoints, through raw/."""
    source = os.environ.get("DELTAFS_CORPUS")
    if not source:
        return print("no DELTAFS_CORPUS: others' tables are left out")
    tables = [os.path.dirname(log) for log in glob.glob(f"{source}/**/_delta_log", recursive=True)]
    wanted = ("dv", "special", "checkpoint", "escaped", "v2", "columnmapping", "multi-part", "time-travel", "partition")
    tables = sorted(t for t in tables if any(word in t for word in wanted) and "negative" not in t)
    lake = f"{root}/corpus"
    os.makedirs(lake)
    with mounted_at(source, lake, "-o", "ro"):
        for table in tables:
            name = os.path.relpath(table, source)
            same_through_raw(name, table, f"{lake}/{name}", [delta_rs, duckdb_delta, polars_kernel])


@contextlib.contextmanager
def mounted_at(warehouse, lake, *options):
    subprocess.run(["deltafs", "mount", *options, warehouse, lake], check=True)
    try:
        yield
    finally:
        subprocess.run(["deltafs", "umount", "--lazy", lake], check=True)


def main():
    root = os.path.realpath(tempfile.mkdtemp(prefix="deltafs-interop-"))
    warehouse, lake = f"{root}/warehouse", f"{root}/lake"
    os.makedirs(warehouse)
    os.makedirs(lake)
    with mounted_at(warehouse, lake):
        for step in (appends, odd_partitions, vectors, cleaned):
            step(warehouse, lake)
    corpus(root)
    shutil.rmtree(root, ignore_errors=True)
    for problem in PROBLEMS:
        print(problem)
    print(f"{CHECKS} checks, {len(PROBLEMS)} problems")
    sys.exit(bool(PROBLEMS))


main()
