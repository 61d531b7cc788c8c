"""Tables of every type, partition type and kind of vector that our own code wrote, read by others.

Run by `scripts/interop types [FILTER…]`. The tables come from the round trip tests of `ops::scan`, which have held them
against what was written; here delta-rs, DuckDB and the Rust kernel must see the same.
"""
import argparse
import datetime as dt
import decimal
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pyarrow as pa

from interop_rows import cat, deltafs, difference, walk

EXPLAINED = {}


# ---- the text forms, read back by what `deltafs cat --help` says

def parsed(value, kind):
    """The value of a JSON text, or of a CSV field that is not nested, as one of the type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        assert list(value) == [f.name for f in kind], value
        return {f.name: parsed(value[f.name], f.type) for f in kind}
    if pa.types.is_map(kind):
        return [(parsed(e["key"], kind.key_type), parsed(e["value"], kind.item_type)) for e in value]
    if pa.types.is_list(kind):
        return [parsed(v, kind.value_type) for v in value]
    if pa.types.is_binary(kind):
        return bytes.fromhex(value)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        assert value.endswith("Z") == (kind.tz is not None), value
        return dt.datetime.fromisoformat(value)
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[value] if isinstance(value, str) else value
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(value)
    if pa.types.is_integer(kind):
        return int(value)
    return value


def numbers_as_text(text):
    """JSON with the digits of every number kept."""
    return json.loads(text, parse_float=str, parse_int=str)


def fields(text):
    """The rows of CSV; an empty field is None, a quoted one is not."""
    rows, row, at = [], [], 0
    while at < len(text):
        if text[at] == '"':
            value, at = "", at + 1
            while True:
                end = text.index('"', at)
                value += text[at:end]
                if text[end + 1:end + 2] != '"':
                    break
                value += '"'
                at = end + 2
            at = end + 1
        else:
            end = min(e for e in (text.find(",", at), text.find("\n", at)) if e >= 0)
            value, at = text[at:end] or None, end
        row.append(value)
        if text[at] == "\n":
            rows.append(row)
            row = []
        at += 1
    return rows


def table(schema, rows):
    columns = list(zip(*rows)) or [()] * len(schema)
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema)], schema=schema)


def from_jsonl(path, schema):
    rows = [numbers_as_text(line) for line in cat(path, "jsonl").decode().split("\n")[:-1]]
    assert all(list(row) == schema.names for row in rows)
    return table(schema, [[parsed(row[f.name], f.type) for f in schema] for row in rows])


def from_csv(path, schema):
    header, *rows = fields(cat(path, "csv").decode())
    assert header == schema.names, header

    def value(text, kind):
        nested = pa.types.is_nested(kind) and text is not None
        return parsed(numbers_as_text(text) if nested else text, kind)

    return table(schema, [[value(text, f.type) for text, f in zip(row, schema)] for row in rows])


def texts(todo):
    """Whether some table's text forms don't read back as the same rows."""
    problems = 0
    for name, path in todo:
        ours = deltafs(str(path))
        schema = pa.schema([pa.field(f.name, f.type) for f in ours.schema])
        for read in (from_jsonl, from_csv):
            if other := difference(ours, read(str(path), schema)):
                print(f"{name}: {read.__name__}: {other}")
                problems += 1
    print(f"the text forms of {len(todo)} tables read back, {problems} problems")
    return bool(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("filter", nargs="*", help="only tables whose name holds one of these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deltafs-types-") as folder:
        subprocess.run(["cargo", "test", "--quiet", "--locked", "--lib", "ops::scan::round_trip"], check=True,
                       env=os.environ | {"DELTAFS_TABLES": folder})
        todo = [(path.name, path) for path in sorted(pathlib.Path(folder).iterdir())]
        if options.filter:
            todo = [t for t in todo if any(f in t[0] for f in options.filter)]
        sys.exit(texts(todo) | walk(todo, EXPLAINED, partial=bool(options.filter)))


main()
