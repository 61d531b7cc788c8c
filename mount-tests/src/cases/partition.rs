//! Partitioned tables: values from directories, files that are split, odd values.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::StringArray;
use serde_json::Value;

use crate::batch::{bools, columns, dates, decimals, ints, longs, micros, texts};
use crate::builder::field;
use crate::case::{Cx, cases};
use crate::mount::Mount;
use crate::shell::EINVAL;
use crate::table::Table;

cases!("partition":
    directory_supplies_the_value,
    same_value_in_the_file,
    different_value_refused,
    new_partition,
    new_partition_by_scratch_and_rename,
    rsync_into_a_partition,
    two_levels,
    root_drop_is_split,
    root_drop_needs_the_column,
    foreign_directories_refused,
    bad_values_refused,
    odd_values_round_trip,
    odd_values_by_directory,
    null_partition,
    typed_values,
    old_timestamps,
    decimals_at_scale,
    empty_table,
    rm_of_a_file,
    rm_of_a_partition,
    copying_a_table_recursively,
);

fn by_country(cx: &Cx) -> (Table, Mount) {
    let de = columns(vec![("id", longs([1, 2]))]);
    let table = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("country", "string")])
        .partitioned_by(&["country"])
        .file_in("country=DE/de.parquet", &de, &[("country", Some("DE"))])
        .create();
    cx.input("x.parquet", &columns(vec![("id", longs([7, 8]))]));
    (table, cx.mount())
}

fn directory_supplies_the_value(cx: &Cx) {
    let (table, _m) = by_country(cx);
    cx.sh("cp in/x.parquet mnt/t/country=DE/; cmp in/x.parquet mnt/t/country=DE/x.parquet")
        .ok();
    assert_eq!(table.version(), 1);
    assert_eq!(table.rows(), ["1|DE", "2|DE", "7|DE", "8|DE"]);
    assert_eq!(
        cx.sh("ls -A mnt/t mnt/t/country=DE").ok().lines().count(),
        6
    );
}

fn same_value_in_the_file(cx: &Cx) {
    let (table, _m) = by_country(cx);
    cx.input(
        "y.parquet",
        &columns(vec![("country", texts(["DE"])), ("id", longs([9]))]),
    );
    cx.sh("cp in/y.parquet mnt/t/country=DE/").ok();
    assert_eq!(table.rows(), ["1|DE", "2|DE", "9|DE"]);
}

fn different_value_refused(cx: &Cx) {
    let (table, _m) = by_country(cx);
    for country in [Some("FR"), None] {
        cx.input(
            "y.parquet",
            &columns(vec![
                ("id", longs([9, 10])),
                ("country", texts([Some("DE"), country])),
            ]),
        );
        cx.sh("cp in/y.parquet mnt/t/country=DE/").fails(EINVAL);
        let last = cx.sh("cat mnt/t/.delta/last").ok();
        assert!(last.contains("country"), "{last}");
    }
    assert_eq!(table.version(), 0);
}

fn new_partition(cx: &Cx) {
    let (table, _m) = by_country(cx);
    cx.sh("mkdir mnt/t/country=IT").ok();
    assert_eq!(table.version(), 0, "mkdir of a partition commits nothing");
    cx.sh("test -d mnt/t/country=IT; cp in/x.parquet mnt/t/country=IT/")
        .ok();
    cx.sh("cmp in/x.parquet mnt/t/country=IT/x.parquet; mkdir mnt/t/country=XX; rmdir mnt/t/country=XX").ok();
    assert_eq!(table.version(), 1);
    assert_eq!(table.rows(), ["1|DE", "2|DE", "7|IT", "8|IT"]);
    cx.sh("mkdir mnt/t/country=IT").fails("File exists");
}

fn new_partition_by_scratch_and_rename(cx: &Cx) {
    let (table, _m) = by_country(cx);
    cx.sh(
        "mkdir mnt/t/country=IT; cp in/x.parquet mnt/t/.x; mv mnt/t/.x mnt/t/country=IT/x.parquet",
    )
    .ok();
    cx.sh("cp in/x.parquet mnt/t/country=IT/.y; mv mnt/t/country=IT/.y mnt/t/country=IT/y.parquet")
        .ok();
    assert_eq!(table.version(), 2);
    assert_eq!(
        table.rows(),
        ["1|DE", "2|DE", "7|IT", "7|IT", "8|IT", "8|IT"]
    );
}

fn rsync_into_a_partition(cx: &Cx) {
    cx.need("rsync");
    let (table, _m) = by_country(cx);
    cx.sh("mkdir -p in/tree/country=FR in/tree/country=DE; cp in/x.parquet in/tree/country=FR/; cp in/x.parquet in/tree/country=DE/").ok();
    cx.sh("rsync -a in/tree/ mnt/t/").ok();
    assert_eq!(table.version(), 2);
    assert_eq!(
        table.rows(),
        ["1|DE", "2|DE", "7|DE", "7|FR", "8|DE", "8|FR"]
    );
}

fn two_levels(cx: &Cx) {
    let table = cx
        .builder("t")
        .fields(vec![
            field("year", "integer"),
            field("id", "long"),
            field("month", "integer"),
        ])
        .partitioned_by(&["year", "month"])
        .create();
    cx.input("x.parquet", &columns(vec![("id", longs([7]))]));
    let _m = cx.mount();
    cx.sh("mkdir -p mnt/t/year=2026/month=1; cp in/x.parquet mnt/t/year=2026/month=1/")
        .ok();
    assert_eq!(table.rows(), ["2026|7|1"]);
    // One level alone does not say it all.
    cx.sh("cp in/x.parquet mnt/t/year=2026/").fails(EINVAL);
    // The order of the levels is the table's.
    let ran = cx.sh("mkdir mnt/t/month=2");
    assert!(!ran.succeeded(), "{ran}");
    assert_eq!(table.version(), 1);
}

fn root_drop_is_split(cx: &Cx) {
    let (table, _m) = by_country(cx);
    cx.input(
        "mixed.parquet",
        &columns(vec![
            ("id", longs([5, 6, 7, 8])),
            ("country", texts([Some("FR"), Some("DE"), None, Some("FR")])),
        ]),
    );
    cx.sh("cp in/mixed.parquet mnt/t/").ok();
    assert_eq!(table.version(), 1, "one commit for one file");
    assert_eq!(
        table.actions(1, "add").len(),
        3,
        "one data file a partition"
    );
    assert_eq!(
        table.rows(),
        ["1|DE", "2|DE", "5|FR", "6|DE", "7|NULL", "8|FR"]
    );
    assert_eq!(table.commit_info(1)["isBlindAppend"], true);
    assert_eq!(cx.sh("find mnt/t -name '*.parquet' | wc -l").ok(), "4\n");
    assert_eq!(
        cx.sh("ls mnt/t")
            .ok()
            .lines()
            .filter(|l| l.starts_with("country="))
            .count(),
        3
    );
}

/// A row's partition is never guessed: neither the path nor the file gives it.
fn root_drop_needs_the_column(cx: &Cx) {
    let (table, _m) = by_country(cx);
    cx.sh("cp in/x.parquet mnt/t/").fails(EINVAL);
    let last = cx.sh("cat mnt/t/.delta/last").ok();
    assert!(last.contains("country"), "{last}");
    assert_eq!(table.version(), 0);
}

fn foreign_directories_refused(cx: &Cx) {
    let (table, _m) = by_country(cx);
    for name in [
        "plain",
        "nosuch=1",
        "country",
        "=DE",
        "id=1",
        "country=DE/country=FR",
        "country=DE/sub",
    ] {
        let ran = cx.sh(&format!("mkdir 'mnt/t/{name}'"));
        assert!(!ran.succeeded(), "mkdir {name}: {ran}");
    }
    assert_eq!(table.version(), 0);
}

fn bad_values_refused(cx: &Cx) {
    let table = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("day", "date")])
        .partitioned_by(&["day"])
        .create();
    cx.input("x.parquet", &columns(vec![("id", longs([7]))]));
    let _m = cx.mount();
    for day in ["yesterday", "2026-13-01", "2026-02-30"] {
        let script = format!("mkdir mnt/t/day={day} && cp in/x.parquet mnt/t/day={day}/");
        let ran = cx.sh(&script);
        assert!(!ran.succeeded(), "{ran}");
    }
    assert_eq!(table.version(), 0);
}

/// D55, D56: characters that escape badly somewhere between log, disk and directory.
const ODD: &[&str] = &[
    "a/b",
    "50%",
    "%41",
    "a b",
    "a=b",
    "#",
    "?",
    "é",
    "\"q\"",
    "o'n",
    "a:b",
    "back\\slash",
    "+",
    "&",
    "*",
    "[x]",
    "{y}",
    "^",
    "~",
    "..",
    ".",
    " lead",
    "trail ",
    "tab\tx",
    "\u{1F600}",
    "CASE",
    "case",
];

fn odd_values_round_trip(cx: &Cx) {
    let (table, m) = by_country(cx);
    let ids = 100..100 + ODD.len() as i64;
    cx.input(
        "odd.parquet",
        &columns(vec![
            ("id", longs(ids.clone())),
            ("country", Arc::new(StringArray::from(ODD.to_vec()))),
        ]),
    );
    cx.sh("cp in/odd.parquet mnt/t/").ok();
    let mut expected: Vec<String> = ids
        .zip(ODD)
        .map(|(id, value)| format!("{id}|{value}"))
        .collect();
    expected.extend(["1|DE".to_owned(), "2|DE".to_owned()]);
    expected.sort();
    assert_eq!(table.rows(), expected);
    let values: BTreeSet<String> = table
        .actions(1, "add")
        .iter()
        .map(|add| {
            add["partitionValues"]["country"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(values, ODD.iter().map(|v| (*v).to_owned()).collect());
    // One path segment each, and all of them listed.
    let listed = std::fs::read_dir(m.path.join("t")).unwrap();
    let names: Vec<String> = listed
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), ODD.len() + 1, "{names:?}");
    assert!(names.contains(&"country=a%2Fb".to_owned()), "{names:?}");
    assert!(names.contains(&"country=50%25".to_owned()), "{names:?}");
    cx.sh("find mnt/t -type f -print0 | xargs -0 cat > all")
        .ok();
    assert_eq!(
        cx.sh("find mnt/t -type f -print0 | tr -cd '\\0' | wc -c")
            .ok()
            .trim(),
        (ODD.len() + 1).to_string()
    );
}

fn odd_values_by_directory(cx: &Cx) {
    let (table, _m) = by_country(cx);
    cx.sh("mkdir 'mnt/t/country=a%2Fb'; cp in/x.parquet 'mnt/t/country=a%2Fb/'")
        .ok();
    cx.sh("mkdir 'mnt/t/country=50%25 é'; cp in/x.parquet 'mnt/t/country=50%25 é/'")
        .ok();
    assert_eq!(
        table.rows(),
        ["1|DE", "2|DE", "7|50% é", "7|a/b", "8|50% é", "8|a/b"]
    );
}

fn null_partition(cx: &Cx) {
    let (table, _m) = by_country(cx);
    cx.sh("mkdir mnt/t/country=__HIVE_DEFAULT_PARTITION__; cp in/x.parquet mnt/t/country=__HIVE_DEFAULT_PARTITION__/").ok();
    assert_eq!(
        table.actions(1, "add")[0]["partitionValues"]["country"],
        Value::Null
    );
    assert_eq!(table.rows(), ["1|DE", "2|DE", "7|NULL", "8|NULL"]);
    cx.sh("echo 'country IS NULL' > mnt/t/.delta/ctl/delete")
        .ok();
    assert_eq!(table.rows(), ["1|DE", "2|DE"]);
}

fn typed_values(cx: &Cx) {
    let names = ["n", "yes", "day", "at"];
    let table = cx
        .builder("t")
        .fields(vec![
            field("id", "long"),
            field("n", "integer"),
            field("yes", "boolean"),
            field("day", "date"),
            field("at", "timestamp"),
        ])
        .partitioned_by(&names)
        .create();
    cx.input(
        "x.parquet",
        &columns(vec![
            ("id", longs([1, 2])),
            ("n", ints([-5, 0])),
            ("yes", bools([true, false])),
            ("day", dates([-1, 20_000])),
            (
                "at",
                micros(Some("UTC"), &[Some(1), Some(1_767_323_045_000_000)]),
            ),
        ]),
    );
    let _m = cx.mount();
    cx.sh("cp in/x.parquet mnt/t/").ok();
    let mut values: Vec<Vec<String>> = table
        .actions(1, "add")
        .iter()
        .map(|add| {
            names
                .map(|n| add["partitionValues"][n].as_str().unwrap().to_owned())
                .to_vec()
        })
        .collect();
    values.sort();
    assert_eq!(
        values,
        [
            ["-5", "true", "1969-12-31", "1970-01-01T00:00:00.000001Z"],
            ["0", "false", "2024-10-04", "2026-01-02T03:04:05.000000Z"],
        ]
    );
    // By directory: a spelling of the same value is the same partition.
    cx.input("y.parquet", &columns(vec![("id", longs([3]))]));
    cx.sh("d=$(dirname \"$(find mnt/t -name '*.parquet' -path '*yes=true*')\"); cp in/y.parquet \"$d/\"").ok();
    let add = &table.actions(2, "add")[0];
    assert_eq!(add["partitionValues"]["day"], "1969-12-31");
    assert_eq!(add["partitionValues"]["yes"], "true");
}

/// D60: before 1970, a fraction of a second must not round towards zero.
fn old_timestamps(cx: &Cx) {
    let table = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("at", "timestamp")])
        .partitioned_by(&["at"])
        .create();
    cx.input(
        "x.parquet",
        &columns(vec![
            ("id", longs([1])),
            ("at", micros(Some("UTC"), &[Some(-2_342_342_342)])),
        ]),
    );
    let _m = cx.mount();
    cx.sh("cp in/x.parquet mnt/t/").ok();
    let add = &table.actions(1, "add")[0];
    assert_eq!(add["partitionValues"]["at"], "1969-12-31T23:20:57.657658Z");
}

/// D61.
fn decimals_at_scale(cx: &Cx) {
    let table = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("price", "decimal(10,2)")])
        .partitioned_by(&["price"])
        .create();
    cx.input(
        "x.parquet",
        &columns(vec![
            ("id", longs([1, 2, 3])),
            ("price", decimals(10, 2, &[Some(150), Some(0), Some(-10)])),
        ]),
    );
    let _m = cx.mount();
    cx.sh("cp in/x.parquet mnt/t/").ok();
    assert_eq!(table.rows(), ["1|1.50", "2|0.00", "3|-0.10"]);
}

/// D63.
fn empty_table(cx: &Cx) {
    let table = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("country", "string")])
        .partitioned_by(&["country"])
        .create();
    let _m = cx.mount();
    assert_eq!(cx.sh("ls -A mnt/t; cat mnt/t/.delta/version").ok(), "0\n");
    cx.sh("echo 'id = 1' > mnt/t/.delta/ctl/delete; echo TRUE > mnt/t/.delta/ctl/delete")
        .ok();
    assert_eq!(table.version(), 0, "nothing to delete, no version");
}

fn rm_of_a_file(cx: &Cx) {
    let (table, _m) = by_country(cx);
    cx.sh("cp in/x.parquet mnt/t/country=DE/; rm mnt/t/country=DE/de.parquet")
        .ok();
    assert_eq!(table.rows(), ["7|DE", "8|DE"]);
    cx.sh("rm mnt/t/country=DE/x.parquet").ok();
    assert_eq!(table.rows(), Vec::<String>::new());
}

fn rm_of_a_partition(cx: &Cx) {
    let (table, _m) = by_country(cx);
    cx.sh("mkdir mnt/t/country=IT
        for i in 1 2 3; do cp in/x.parquet mnt/t/country=IT/$i.parquet; cp in/x.parquet mnt/t/country=DE/$i.parquet; done
        rm -r mnt/t/country=DE; test ! -e mnt/t/country=DE; ls mnt/t")
        .ok();
    assert_eq!(
        table.rows(),
        ["7|IT", "7|IT", "7|IT", "8|IT", "8|IT", "8|IT"]
    );
    let removed = (7..=table.version()).map(|v| table.actions(v, "remove").len());
    assert_eq!(removed.sum::<usize>(), 4);
    table.assert_contiguous();
}

/// A copy of a table's directory brings its data files only; where the columns live in the path, the
/// copy is a table of what the files hold.
fn copying_a_table_recursively(cx: &Cx) {
    let (_table, _m) = by_country(cx);
    cx.sh("cp -r mnt/t out; test -f out/country=DE/de.parquet; test ! -e out/.delta; test ! -e out/_delta_log").ok();
}
