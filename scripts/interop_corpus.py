"""The corpus through `deltafs cat`, delta-rs, DuckDB and the Rust kernel: every table, every version, row by row.

Run by `scripts/interop corpus [CORPUS] [FILTER…]`. A difference that EXPLAINED does not name is a failure; so is an
explanation that explains nothing any more.
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile
import urllib.parse

from interop_rows import walk

MAPPED_PARTITION = "DuckDB reads NULL for a mapped partition column that follows a data column"
# (table, reader): why it reads something else, or nothing. None of these is a fault of ours.
EXPLAINED = {
    ("delta-golden/type-widening", "delta_rs"): "delta-rs has no type widening",
    ("delta-golden/type-widening-nested", "delta_rs"): "delta-rs has no type widening",
    ("delta-golden/type-widening", "polars_kernel"): "widens no decimal that keeps its scale",
    ("kernel-data/void-column", "duckdb_delta"): "DuckDB has no type void",
    ("kernel-golden/basic-with-vacuum-protocol-check-feature/delta", "delta_rs"):
        "delta-rs refuses vacuumProtocolCheck, which asks nothing of a reader",
    ("kernel-golden/data-reader-timestamp_ntz-id-mode/delta", "duckdb_delta"): MAPPED_PARTITION,
    ("kernel-golden/data-reader-timestamp_ntz-name-mode/delta", "duckdb_delta"): MAPPED_PARTITION,
}


def tables(corpus):
    return sorted(path.parent for path in corpus.rglob("_delta_log") if path.is_dir())


def repaired(corpus, into):
    """Copies of two tables whose vectors do not lie where their logs say, with the vectors brought there."""
    large = into / "table-with-dv-large"
    shutil.copytree(corpus / "delta-spark/table-with-dv-large", large)
    for vector in large.glob("*deletion_vector_*.bin"):
        vector.rename(large / vector.name[vector.name.index("deletion_vector_"):])
    special = into / "table-with-dv-special-char"
    shutil.copytree(corpus / "delta-spark/table-with-dv-special-char", special)
    folder = next(path for path in special.iterdir() if path.name.startswith("folder"))
    uri = "//" + urllib.parse.quote(str(folder))
    for commit in (special / "_delta_log").glob("*.json"):
        commit.write_text(commit.read_text().replace("{{FOLDER_WITH_SPECIAL_CHAR}}", uri))
    return [large, special]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    default = os.environ.get("DELTAFS_CORPUS", str(pathlib.Path(__file__).resolve().parents[2] / "shared/corpus"))
    parser.add_argument("corpus", nargs="?", default=default)
    parser.add_argument("filter", nargs="*", help="only tables whose path holds one of these")
    options = parser.parse_args()
    corpus = pathlib.Path(options.corpus).resolve()
    with tempfile.TemporaryDirectory(prefix="deltafs-corpus-") as temporary:
        todo = [(str(t.relative_to(corpus)), t) for t in tables(corpus)]
        todo += [(f"repaired/{t.name}", t) for t in repaired(corpus, pathlib.Path(temporary))]
        if options.filter:
            todo = [t for t in todo if any(f in t[0] for f in options.filter)]
        sys.exit(walk(todo, EXPLAINED, partial=bool(options.filter)))


main()
