"""Tables of every type, partition type and kind of vector that our own code wrote, read by others.

Run by `scripts/interop types [FILTER…]`. The tables come from the round trip tests of `ops::scan`, which have held them
against what was written; here delta-rs, DuckDB and the Rust kernel must see the same.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from interop_rows import walk

EXPLAINED = {}


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
        sys.exit(walk(todo, EXPLAINED, partial=bool(options.filter)))


main()
