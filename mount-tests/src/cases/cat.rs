//! `deltafs cat`: rows of a table without a mount.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, StringArray};
use serde_json::json;

use crate::batch::{self, columns, doubles, longs, texts};
use crate::builder::{self, field};
use crate::case::{Cx, cases};

cases!("cat":
    rows_in_every_format,
    partitions_and_vectors_are_those_of_the_log,
    earlier_versions,
    a_reader_that_goes_away_is_no_error,
    a_missing_or_damaged_file_fails_after_the_rows_before_it,
    output_that_cannot_be_written_fails,
    tables_of_a_mount,
    a_table_that_needs_more_is_refused,
    memory_does_not_grow_with_the_table,
    files_that_a_predicate_keeps,
);

fn files_that_a_predicate_keeps(cx: &Cx) {
    let _m = cx.mount();
    cx.sh("mkdir mnt/t").ok();
    for (name, from) in [("low", 0), ("high", 100)] {
        let rows = columns(vec![("id", longs(from..from + 10))]);
        cx.input(&format!("{name}.parquet"), &rows);
        cx.sh(&format!("cp in/{name}.parquet mnt/t/")).ok();
    }
    let all = cx.sh("deltafs files wh/t").ok();
    assert_eq!(all.lines().count(), 2, "{all}");
    for path in all.lines() {
        assert!(cx.path("wh/t").join(path).is_file(), "{path}");
    }
    let kept = cx.sh("deltafs files wh/t --where 'id >= 105'").ok();
    assert_eq!(kept.lines().count(), 1, "{kept}");
    let long = cx.sh("deltafs files wh/t -l --where 'id >= 105'").ok();
    let words: Vec<&str> = long.split_whitespace().collect();
    let size = cx.path("wh/t").join(kept.trim()).metadata().unwrap().len();
    assert_eq!(words, [&size.to_string(), "10", kept.trim()], "{long}");
    assert_eq!(cx.sh("deltafs files wh/t --where 'id = 50'").ok(), "");
    assert_eq!(
        cx.sh("deltafs files wh/t --version 0 | wc -l").ok().trim(),
        "1"
    );
    assert_eq!(
        cx.sh("deltafs files wh/t -0 | tr -d '\\n' | tr '\\0' '\\n' | wc -l")
            .ok()
            .trim(),
        "2"
    );
    cx.sh("deltafs files wh/t --where 'nope = 1'").fails("nope");
    cx.sh("deltafs files wh/t --version 9").fails("9");
    cx.sh("deltafs files wh/none").fails("none");
}

fn rows_in_every_format(cx: &Cx) {
    let rows = columns(vec![
        ("id", longs([1, 2])),
        ("the \"name\", é", texts([Some(""), None])),
        ("x", doubles([Some(f64::NAN), Some(0.1)])),
        (
            "b",
            Arc::new(BinaryArray::from_opt_vec(vec![Some(b"\x00\xff"), None])) as ArrayRef,
        ),
    ]);
    let fields = vec![
        field("id", "long"),
        field("the \"name\", é", "string"),
        field("x", "double"),
        field("b", "binary"),
        field("later", "date"),
    ];
    cx.builder("t")
        .fields(fields)
        .file("a.parquet", &rows)
        .create();
    let json = "{\"id\":1,\"the \\\"name\\\", é\":\"\",\"x\":\"NaN\",\"b\":\"00ff\",\"later\":null}\n\
                {\"id\":2,\"the \\\"name\\\", é\":null,\"x\":0.1,\"b\":null,\"later\":null}\n";
    assert_eq!(cx.sh("deltafs cat wh/t").ok(), json);
    assert_eq!(
        cx.sh("deltafs cat --format jsonl \"file://$PWD/wh/t/\"")
            .ok(),
        json
    );
    let csv = "id,\"the \"\"name\"\", é\",x,b,later\n1,\"\",NaN,00ff,\n2,,0.1,,\n";
    assert_eq!(cx.sh("deltafs cat wh/t --format csv").ok(), csv);
    // The continuation marks of the schema and of the end.
    cx.sh(
        "deltafs cat wh/t --format arrow > out; head -c 4 out | od -An -tx1 | grep 'ff ff ff ff'
         tail -c 8 out | od -An -tx1 | grep 'ff ff ff ff 00 00 00 00'",
    )
    .ok();
    cx.sh("deltafs cat wh/t --format xml")
        .fails("possible values");
    let help = cx.sh("deltafs cat --help").ok();
    for word in ["jsonl", "csv", "arrow", "NULL", "--version"] {
        assert!(help.contains(word), "{help}");
    }
}

fn partitions_and_vectors_are_those_of_the_log(cx: &Cx) {
    // The file holds the partition column, too, with other values: the log decides.
    let rows = columns(vec![("id", longs(0..3)), ("p", texts(["x", "x", "x"]))]);
    cx.builder("t")
        .fields(vec![field("p", "string"), field("id", "long")])
        .partitioned_by(&["p"])
        .file_in("a%20b/1.parquet", &rows, &[("p", None)])
        .create();
    std::fs::rename(cx.path("wh/t/a%20b"), cx.path("wh/t/a b")).unwrap();
    assert_eq!(
        cx.sh("deltafs cat wh/t --format csv").ok(),
        "p,id\n,0\n,1\n,2\n"
    );
    cx.builder("dv")
        .orders()
        .file_with_vector("x.parquet", &batch::orders(0..5), &[0, 2, 4])
        .create();
    assert_eq!(
        cx.sh("deltafs cat wh/dv --format csv").ok(),
        "id,name,amount\n1,n1,0.5\n3,n3,1.5\n"
    );
}

fn earlier_versions(cx: &Cx) {
    let table = cx.orders();
    let gone = table.state().only().clone();
    builder::commit(
        &table,
        &[json!({"remove": {"path": gone["path"], "dataChange": true, "deletionTimestamp": 1}})],
    );
    let rows = |options: &str| {
        cx.sh(&format!("deltafs cat wh/t {options}"))
            .ok()
            .lines()
            .count()
    };
    assert_eq!(
        (rows(""), rows("--version 1"), rows("--version 0")),
        (0, 0, 10)
    );
    let said = cx.sh("deltafs cat wh/t --version 7").fails("version 7 of");
    assert!(said.contains("there are the versions 0 to 1"), "{said}");
    // What comes later needs not be readable.
    std::fs::write(table.commit_path(1), "{").unwrap();
    cx.sh("deltafs cat wh/t").fails("00000000000000000001.json");
    assert_eq!(rows("--version 0"), 10);
}

fn a_reader_that_goes_away_is_no_error(cx: &Cx) {
    cx.builder("t")
        .orders()
        .file("a.parquet", &batch::orders(0..200_000))
        .create();
    for format in ["jsonl", "csv", "arrow"] {
        let ran = cx.sh(&format!(
            "deltafs cat wh/t --format {format} | head -c 10 | wc -c"
        ));
        assert!(ran.succeeded() && ran.err.is_empty(), "{ran}");
    }
}

fn a_missing_or_damaged_file_fails_after_the_rows_before_it(cx: &Cx) {
    cx.builder("t")
        .orders()
        .file("a.parquet", &batch::orders(0..3))
        .file("b.parquet", &batch::orders(3..6))
        .create();
    cx.sh("mv wh/t/b.parquet kept").ok();
    let ran = cx.sh("deltafs cat wh/t");
    assert_eq!((ran.status, ran.out.lines().count()), (1, 3), "{ran}");
    ran.fails("the data file b.parquet of version 0 is not there");
    cx.sh("head -c 100 kept > wh/t/b.parquet; deltafs cat wh/t")
        .fails("b.parquet: ");
    // An Arrow stream stops in the middle of a message, not between two.
    let tail = cx
        .sh("deltafs cat wh/t --format arrow > out || tail -c 8 out | od -An -tx1")
        .ok();
    assert_eq!(tail.trim(), "ff ff ff ff 08 00 00 00");
}

fn output_that_cannot_be_written_fails(cx: &Cx) {
    cx.orders();
    for format in ["jsonl", "csv", "arrow"] {
        cx.sh(&format!("deltafs cat wh/t --format {format} > /dev/full"))
            .fails("No space left on device");
    }
}

fn tables_of_a_mount(cx: &Cx) {
    cx.orders();
    let _m = cx.mount();
    cx.sh("deltafs cat mnt/t").fails(".delta/raw");
    let ran = cx.sh("cmp <(deltafs cat mnt/t/.delta/raw) <(deltafs cat wh/t)");
    ran.ok();
    cx.sh("deltafs cat wh").fails("is not a Delta table");
    cx.sh("deltafs cat wh/nothing")
        .fails("No such file or directory");
}

fn a_table_that_needs_more_is_refused(cx: &Cx) {
    cx.builder("t")
        .orders()
        .features(&["zap"], &["zap"])
        .create();
    let ran = cx.sh("deltafs cat wh/t");
    assert!(ran.out.is_empty() && ran.status == 1, "{ran}");
    ran.fails("the feature zap");
    let fields = vec![field("id", "long"), field("i", "interval day")];
    cx.builder("i").fields(fields).create();
    cx.sh("deltafs cat wh/i")
        .fails("column `i` has the type interval day");
}

/// Ten times the table, about the same memory: also when it is one file with one row group.
fn memory_does_not_grow_with_the_table(cx: &Cx) {
    cx.time_limit(300);
    let peak_kib = |rows: i64| -> u64 {
        let name = format!("t{rows}");
        let wide = (0..rows).map(|id| format!("{id:01000}"));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(wide));
        let rows = columns(vec![("id", longs(0..rows)), ("s", texts)]);
        cx.builder(&name)
            .fields(vec![field("id", "long"), field("s", "string")])
            .file("a.parquet", &rows)
            .create();
        let program = format!(
            "import resource, subprocess\n\
             for form in 'jsonl', 'arrow':\n\
             \x20   subprocess.run(['deltafs', 'cat', '--format', form, 'wh/{name}'], stdout=subprocess.DEVNULL, check=True)\n\
             print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        );
        cx.py(&program).ok().trim().parse().unwrap()
    };
    let (small, large) = (peak_kib(10_000), peak_kib(100_000));
    println!("peak of 10 MB: {small} KiB, of 100 MB: {large} KiB");
    assert!(large < small + 24 * 1024, "{small} KiB, then {large} KiB");
}
