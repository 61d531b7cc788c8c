"""Tables that deltafs wrote, read by others. Run by scripts/interop; `deltafs` and `mount-tests` are in the PATH.

The reference is `mount-tests rows`, an independent replay of the physical table as the mount shows it in `.delta/raw`.
"""
import argparse
import contextlib
import datetime as dt
import decimal
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet as pq

from interop_rows import delta_rs, duckdb_delta, polars_kernel

PROBLEMS = []
CHECKS = 0


# ---- readers: a table's directory to a pyarrow table

def polars_delta(path):
    import polars
    return polars.scan_delta(path).collect().to_arrow()


READERS = [delta_rs, duckdb_delta, polars_delta, polars_kernel]


# ---- rows as text, as `mount-tests rows` prints them

def text(value):
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case dt.datetime():
            epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC if value.tzinfo else None)
            return f"{(value - epoch) // dt.timedelta(microseconds=1)}us"
        case decimal.Decimal():
            return format(value, "f")
        case dict():
            return "{%s}" % ",".join(f"{k}:{text(v)}" for k, v in value.items())
        case list():
            return "[%s]" % ",".join(text(v) for v in value)
        case _:
            return str(value)


def rows(table, order):
    columns = [table[name].to_pylist() for name in order]
    return sorted("|".join(text(v) for v in row) for row in zip(*columns))


def ours(path):
    return subprocess.run(["mount-tests", "rows", path], check=True, capture_output=True, text=True).stdout.splitlines()


def compare(what, backing, mounted, without=(), expected=None):
    """Every reader against the reference, on the backing directory and through the mount's raw/. `expected`: the
    reference's rows of before, when it can't read the log any more."""
    global CHECKS
    raw = f"{mounted}/.delta/raw"
    expected = ours(raw) if expected is None else expected
    schema = json.loads(pathlib.Path(mounted, ".delta/schema.json").read_text())
    order = [field["name"] for field in schema["fields"]]
    version = pathlib.Path(mounted, ".delta/version").read_text().strip()
    readers = [reader for reader in READERS if reader not in without]
    for reader in readers:
        for place, path in (("backing", backing), ("raw", raw)):
            CHECKS += 1
            try:
                found = rows(reader(path), order)
            except BaseException as error:  # pyo3 panics are no Exceptions
                PROBLEMS.append(f"{what}, version {version}: {reader.__name__} on {place} fails: {error}")
                continue
            if found != expected:
                extra = sorted(set(found) - set(expected))[:3]
                missing = sorted(set(expected) - set(found))[:3]
                PROBLEMS.append(f"{what}, version {version}: {reader.__name__} on {place} reads {len(found)} rows, "
                                f"we {len(expected)}; extra {extra}, missing {missing}")
    print(f"{what}: version {version}, {len(expected)} rows, {len(readers)} readers")


# ---- what is written

def orders(first, count, countries=None):
    ids = range(first, first + count)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "name": pa.array([None if i % 7 == 0 else f"n{i} é" for i in ids]),
        "amount": pa.array([i / 4 for i in ids], pa.float64()),
        "price": pa.array([decimal.Decimal(i).scaleb(-2) for i in ids], pa.decimal128(10, 2)),
        "day": pa.array([dt.date(1969, 12, 25) + dt.timedelta(days=i % 400) for i in ids]),
        "at": pa.array([i * 1_000_003 - 5_000_000 for i in ids], pa.timestamp("us", "UTC")),
        "yes": pa.array([i % 3 == 0 for i in ids]),
        "tags": pa.array([[i, None] if i % 2 else [] for i in ids], pa.list_(pa.int32())),
        "addr": pa.array([{"zip": f"{i:05}", "city": None} for i in ids],
                         pa.struct([("zip", pa.string()), ("city", pa.string())])),
    }
    if countries:
        columns["country"] = pa.array([countries[i % len(countries)] for i in ids])
    return pa.table(columns)


def delete(table, predicate):
    with open(f"{table}/.delta/ctl/delete", "w") as control:
        control.write(predicate + "\n")


DELTA_TYPES = {"id": "long", "name": "string", "amount": "double", "price": "decimal(10,2)", "day": "date",
               "at": "timestamp", "yes": "boolean",
               "tags": {"type": "array", "elementType": "integer", "containsNull": True},
               "addr": {"type": "struct", "fields": [
                   {"name": n, "type": "string", "nullable": True, "metadata": {}} for n in ("zip", "city")]},
               "country": "string"}


def partitioned(path):
    """An empty partitioned table with deletion vectors, as another system would make it."""
    os.makedirs(f"{path}/_delta_log")
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in DELTA_TYPES.items()]
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                      "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}},
        {"metaData": {"id": "6f1c4d2e-0a53-4a59-9d1f-1d2f6a3b8c55", "format": {"provider": "parquet", "options": {}},
                      "schemaString": json.dumps({"type": "struct", "fields": fields}),
                      "partitionColumns": ["country"],
                      "configuration": {"delta.enableDeletionVectors": "true"}, "createdTime": 1700000000000}},
    ]
    pathlib.Path(path, "_delta_log", "0" * 20 + ".json").write_text("".join(json.dumps(a) + "\n" for a in actions))


def drop(rows_, target):
    """By way of a file beside the mount, as `cp` would."""
    with tempfile.NamedTemporaryFile(suffix=".parquet") as source:
        pq.write_table(rows_, source.name)
        shutil.copyfile(source.name, target)


def plain(warehouse, lake):
    table = f"{lake}/plain"
    os.mkdir(table)
    for i in range(3):
        drop(orders(i * 1000, 1000), f"{table}/{i}.parquet")
    compare("three appends", f"{warehouse}/plain", table)
    delete(table, "id % 10 = 3 AND name IS NOT NULL")
    compare("scattered rows deleted", f"{warehouse}/plain", table)
    delete(table, "at < TIMESTAMP '1970-01-01T00:05:00Z' OR price BETWEEN 12 AND 13.5")
    compare("deleted again", f"{warehouse}/plain", table)
    pq.write_table(orders(9000, 10), f"{table}/2.parquet")
    compare("a file overwritten", f"{warehouse}/plain", table)
    os.unlink(f"{table}/0.parquet")
    delete(table, "id >= 1000 AND id < 2000")
    compare("files removed", f"{warehouse}/plain", table)
    delete(table, "TRUE")
    compare("everything deleted", f"{warehouse}/plain", table)


def parts(warehouse, lake, name="parts", values=("DE", "JP", "IT", "x", None), without=()):
    partitioned(f"{warehouse}/{name}")
    table = f"{lake}/{name}"
    drop(orders(0, 500, values), f"{table}/mixed.parquet")
    os.mkdir(f"{table}/country=FR")
    drop(orders(1000, 100), f"{table}/country=FR/fr.parquet")
    compare(f"{name}: partitions", f"{warehouse}/{name}", table)
    delete(table, f"country = '{values[1]}' OR country IS NULL AND id < 100")
    compare(f"{name}: a partition deleted", f"{warehouse}/{name}", table)
    delete(table, "amount > 40 AND country <> 'FR'")
    compare(f"{name}: rows of partitions deleted", f"{warehouse}/{name}", table, without)


def odd_parts(warehouse, lake):
    """polars 2.1 forgets the vectors of files whose path in the log is percent-encoded: deleted rows come back."""
    parts(warehouse, lake, "odd", ("DE", "a/b", "50% é", "x=y z", None), without=(polars_delta,))


def long_log(warehouse, lake):
    table = f"{lake}/long"
    os.mkdir(table)
    for i in range(25):
        drop(orders(i * 10, 10), f"{table}/{i:02}.parquet")
        if i % 6 == 5:
            delete(table, f"id % 10 = {i // 6}")
    compare("a log with checkpoints", f"{warehouse}/long", table)
    if not os.path.exists(f"{warehouse}/long/_delta_log/_last_checkpoint"):
        PROBLEMS.append("no checkpoint after 25 appends")


def checkpoints(warehouse, lake):
    """Checkpoints of every form, alone: the commits before them are taken away."""
    json_off, typed_off = ("delta.checkpoint.writeStatsAsJson", "false"), ("delta.checkpoint.writeStatsAsStruct", "false")
    for name, v2, *properties in (("v2", True), ("v2-typed", True, json_off), ("classic", False),
                                  ("classic-typed", False, json_off), ("classic-json", False, typed_off)):
        backing, table = f"{warehouse}/{name}", f"{lake}/{name}"
        partitioned(backing)
        log = pathlib.Path(backing, "_delta_log")
        first = log / ("0" * 20 + ".json")
        protocol, metadata = map(json.loads, first.read_text().splitlines())
        metadata["metaData"]["configuration"] |= {"delta.checkpointInterval": "3", **dict(properties)}
        if v2:
            metadata["metaData"]["configuration"]["delta.checkpointPolicy"] = "v2"
            for side in ("readerFeatures", "writerFeatures"):
                protocol["protocol"][side].append("v2Checkpoint")
        first.write_text("".join(json.dumps(a) + "\n" for a in (protocol, metadata)))
        for i in range(7):
            drop(orders(i * 10, 10, ("DE", "JP", None)), f"{table}/{i}.parquet")
        delete(table, "id % 10 = 3")
        deadline = time.monotonic() + 60
        while not (found := sorted(log.glob("*.checkpoint.*"))) and time.monotonic() < deadline:
            time.sleep(0.1)
        if not found:
            PROBLEMS.append(f"{name}: no checkpoint after 8 commits")
            continue
        time.sleep(1)
        expected = ours(f"{table}/.delta/raw")
        newest = max(int(path.name[:20]) for path in log.glob("*.checkpoint.*"))
        for version in range(newest):
            (log / f"{version:020}.json").unlink()
        if v2 != any(log.glob("_sidecars/*.parquet")):
            PROBLEMS.append(f"{name}: sidecars {list(log.glob('_sidecars/*'))}")
        compare(f"{name}: a checkpoint alone", backing, table, (polars_delta,) if v2 else (), expected)


def others_go_on(warehouse, lake):
    """delta-rs appends to a table of ours, and we go on."""
    from deltalake import write_deltalake
    table = f"{lake}/both"
    os.mkdir(table)
    drop(orders(0, 100), f"{table}/a.parquet")
    delete(table, "id < 10")
    write_deltalake(f"{warehouse}/both", orders(100, 50), mode="append")
    drop(orders(200, 10), f"{table}/b.parquet")
    delete(table, "id IN (100, 205)")
    compare("delta-rs and deltafs in turns", f"{warehouse}/both", table)
    if len(ours(f"{warehouse}/both")) != 148:
        PROBLEMS.append(f"expected 148 rows of two writers, found {len(ours(f'{warehouse}/both'))}")


def minimal(warehouse, lake):
    table = f"{lake}/minimal"
    os.mkdir(table)
    drop(orders(0, 1000), f"{table}/a.parquet")
    delete(table, "id % 3 = 1")
    compare("copy-on-write", f"{warehouse}/minimal", table)


@contextlib.contextmanager
def mounted(warehouse, lake, *options):
    subprocess.run(["deltafs", "mount", *options, warehouse, lake], check=True)
    try:
        yield
    finally:
        subprocess.run(["deltafs", "umount", lake], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the tables")
    keep = parser.parse_args().keep
    root = tempfile.mkdtemp(prefix="deltafs-interop-")
    warehouse, lake = f"{root}/warehouse", f"{root}/lake"
    os.makedirs(warehouse)
    os.makedirs(lake)
    with mounted(warehouse, lake):
        for step in (plain, parts, odd_parts, long_log, checkpoints, others_go_on):
            step(warehouse, lake)
    with mounted(warehouse, lake, "--table-features=minimal"):
        minimal(warehouse, lake)
    if keep:
        print(f"kept {root}")
    else:
        shutil.rmtree(root)
    for problem in PROBLEMS:
        print(problem)
    print(f"{CHECKS} readings, {len(PROBLEMS)} problems")
    sys.exit(bool(PROBLEMS))


main()
