"""What interop.py and interop_corpus.py share: readers of Delta tables, and rows that can be compared whatever read them."""
import collections
import datetime as dt
import decimal
import glob
import math
import os
import re
import subprocess

import pyarrow as pa
import pyarrow.ipc


class Refused(Exception):
    """`deltafs cat` has refused to read."""


def cat(path, form, version=None):
    at = [] if version is None else ["--version", str(version)]
    ran = subprocess.run(["deltafs", "cat", "--format", form, *at, path], capture_output=True)
    if ran.returncode:
        raise Refused(ran.stderr.decode().strip())
    return ran.stdout


def deltafs(path, version=None):
    return pa.ipc.open_stream(cat(path, "arrow", version)).read_all()


def delta_rs(path, version=None):
    from deltalake import DeltaTable, QueryBuilder
    table = DeltaTable(path, version=version)
    return pa.table(QueryBuilder().register("t", table).execute("select * from t"))


def duckdb_delta(path, version=None):
    import duckdb
    import duckdb_extension_delta
    package = os.path.dirname(duckdb_extension_delta.__file__)
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("LOAD '%s'" % glob.glob(package + "/extensions/*/delta.duckdb_extension")[0])
    at = "" if version is None else f", version=>{version}"
    return connection.execute(f"select * from delta_scan(?{at})", [path]).to_arrow_table()


def polars_kernel(path, version=None):
    import polars_deltalake
    return polars_deltalake.scan_delta(path, version=version).collect().to_arrow()


READERS = [delta_rs, duckdb_delta, polars_kernel]


# ---- comparing

def plain(kind):
    """The type without what readers are free in: views, large offsets, names of list items, units and zones."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, plain(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    return kind


def numbers(kind):
    """The plain type with days and microseconds as integers: Python's own end with the year 9999."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, numbers(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(numbers(kind.key_type), numbers(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", numbers(kind.value_type)))
    return kind


def key(value, kind):
    """The value as text: equal texts are equal values, and the type's kind is part of it."""
    if value is None:
        return "NULL"
    if pa.types.is_struct(kind):
        return "{%s}" % ",".join(f"{f.name}:{key(value[f.name], f.type)}" for f in kind)
    if pa.types.is_map(kind):
        return "map[%s]" % ",".join(sorted(f"{key(k, kind.key_type)}={key(v, kind.item_type)}" for k, v in value))
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) and [f.name for f in kind.value_type] == ["key", "value"]:
        # Some readers know no maps.
        k, v = kind.value_type
        return "map[%s]" % ",".join(sorted(f"{key(e['key'], k.type)}={key(e['value'], v.type)}" for e in value))
    if pa.types.is_list(kind):
        return "[%s]" % ",".join(key(v, kind.value_type) for v in value)
    if pa.types.is_floating(kind):
        return "NaN" if math.isnan(value) else repr(value)
    if pa.types.is_decimal(kind):
        return format(value.normalize(decimal.Context(prec=60)) + 0, "f")
    return repr(value)


def cast(column, kind):
    """`column` as `kind`; what has no cast for it stays."""
    try:
        return column.cast(kind, safe=False)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return column


def rows(table, names=None):
    """The rows as texts, counted, their values in the order of `names`."""
    columns = []
    for name in names or table.column_names:
        column = table.column(name)
        column = cast(column, plain(column.type))
        column = cast(column, numbers(column.type))
        kind = column.type
        columns.append([key(v, kind) for v in column.to_pylist()])
    return collections.Counter("|".join(row) for row in zip(*columns))


def shape(kind):
    """The plain type as text; a map is the list of its entries, as which readers without maps give it."""
    kind = plain(kind)
    if pa.types.is_struct(kind):
        return "{%s}" % ",".join(f"{f.name}:{shape(f.type)}" for f in kind)
    if pa.types.is_map(kind):
        return f"[{{key:{shape(kind.key_type)},value:{shape(kind.item_type)}}}]"
    if pa.types.is_list(kind):
        return f"[{shape(kind.value_type)}]"
    return str(kind)


def difference(ours, theirs):
    """What `theirs` has and lacks, or None. Both are tables of pyarrow."""
    names = ours.column_names
    if sorted(names) != sorted(theirs.column_names):
        return f"columns {theirs.column_names}, ours {names}"
    kinds = [(n, shape(ours.schema.field(n).type), shape(theirs.schema.field(n).type)) for n in names]
    if other := [kind for kind in kinds if kind[1] != kind[2]]:
        return f"other types (ours first) {other}"
    expected, found = rows(ours), rows(theirs, names)
    if expected == found:
        return None
    extra, missing = found - expected, expected - found
    cut = lambda counter: [text[:300] for text in list(counter)[:2]]
    return (f"{found.total()} rows, we {expected.total()}; only there {extra.total()}: {cut(extra)}, "
            f"only ours {missing.total()}: {cut(missing)}")


# ---- comparing a table with all readers

def versions(table):
    names = [path.name for path in (table / "_delta_log").iterdir()]
    return sorted(int(n[:20]) for n in names if re.fullmatch(r"\d{20}\.json", n))


def walk(todo, explained, partial=False):
    """Compares every version of the tables (name, path) in `todo` with what every reader reads, and tells. Differences
    in `explained`, by (table, reader), are none of ours; in a whole walk, each must explain something. Returns whether
    there are problems."""
    problems, used, readings, refused = [], set(), 0, 0
    for name, path in todo:
        wanted = [None] + versions(path)[:-1]
        agreed = 0
        for version in wanted:
            what = f"{name}@{'newest' if version is None else version}"
            try:
                ours = deltafs(str(path), version)
            except Refused as error:
                ours, why = None, str(error).splitlines()[-1 if "hint" not in str(error) else -2]
            found = {}
            for reader in READERS:
                try:
                    found[reader.__name__] = reader(str(path), version)
                except BaseException as error:  # pyo3 panics are no Exceptions
                    found[reader.__name__] = None
                    failure = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
                    found[reader.__name__ + " error"] = failure
            for reader in READERS:
                readings += 1
                theirs = found[reader.__name__]
                if ours is None and theirs is None:
                    refused += 1
                    continue
                if ours is None:
                    said = f"reads {theirs.num_rows} rows, we refuse: {why}"
                elif theirs is None:
                    said = f"fails, we read {ours.num_rows} rows: {found[reader.__name__ + ' error']}"
                else:
                    said = difference(ours, theirs)
                if said is None:
                    agreed += 1
                    continue
                if (name, reader.__name__) in explained:
                    used.add((name, reader.__name__))
                else:
                    problems.append(f"{what}: {reader.__name__} {said}")
        print(f"{name}: {len(wanted)} versions, {agreed} readings agree", flush=True)
    if not partial:
        problems += [f"nothing left to explain: {e}" for e in explained.keys() - used]
    for what in sorted(used):
        print(f"explained: {what[0]}, {what[1]}: {explained[what]}")
    for problem in problems:
        print(problem)
    print(f"{len(todo)} tables, {readings} readings, {refused} refused by us and by them, {len(used)} explained, "
          f"{len(problems)} problems")
    return bool(problems)
