//! `.delta/ctl/optimize`: small files become large ones, and nobody who reads or writes meanwhile sees anything else.

use serde_json::json;

use crate::batch::{columns, longs, order_rows, orders, texts};
use crate::builder::field;
use crate::case::{Cx, cases};
use crate::shell::{EINVAL, EOPNOTSUPP};

cases!("optimize":
    small_files_become_one,
    partitions_by_condition,
    statements_that_are_refused,
    open_files_are_read_to_their_end,
    listing_meanwhile,
    appends_and_deletes_meanwhile,
);

const CTL: &str = "mnt/t/.delta/ctl/optimize";

fn small_files_become_one(cx: &Cx) {
    let table = cx.builder("t").orders().create();
    for i in 0..5_i64 {
        cx.input(&format!("{i}.parquet"), &orders(i * 10..i * 10 + 10));
    }
    let _m = cx.mount();
    cx.sh("for i in 0 1 2 3 4; do cp in/$i.parquet mnt/t/; done; echo 'id IN (3, 14)' > mnt/t/.delta/ctl/delete")
        .ok();
    cx.sh(&format!("echo OPTIMIZE > {CTL}")).ok();
    assert_eq!(table.version(), 7);
    let left = || (0..50).filter(|id| ![3, 14].contains(id));
    assert_eq!(table.rows(), order_rows(left()));
    assert!(table.state().only()["deletionVector"].is_null());
    for action in ["add", "remove"]
        .map(|kind| table.actions(7, kind))
        .concat()
    {
        assert_eq!(action["dataChange"], false, "{action}");
    }
    assert_eq!(table.commit_info(7)["operation"], "OPTIMIZE");
    let last = cx.sh("cat mnt/t/.delta/last").ok();
    assert!(last.contains("\"numRemovedFiles\":5"), "{last}");
    // One file in the directory, too, and its rows are the table's, in the order in which they came.
    assert_eq!(cx.sh("ls mnt/t/*.parquet | wc -l").ok().trim(), "1");
    let ids = cx.py_with(
        &["pyarrow"],
        "import glob, pyarrow.parquet as p; print(p.read_table(glob.glob('mnt/t/*.parquet')[0])['id'].to_pylist())",
    );
    assert_eq!(
        ids.ok().trim(),
        format!("{:?}", left().collect::<Vec<i64>>())
    );
    // Nothing is left to do, and nothing is done.
    let again = cx.sh(&format!("echo 'optimize;' > {CTL}; cat {CTL}")).ok();
    assert!(again.contains("nothing to do"), "{again}");
    assert_eq!(table.version(), 7);
}

/// D57
fn partitions_by_condition(cx: &Cx) {
    let table = cx
        .builder("t")
        .fields(vec![
            field("id", "long"),
            field("a", "string"),
            field("b", "string"),
        ])
        .partitioned_by(&["a", "b"])
        .create();
    let rows = columns(vec![
        ("id", longs([1, 2, 3, 4])),
        ("a", texts([Some("1"), Some("2"), None, Some("1")])),
        ("b", texts([Some("x"), Some("x"), Some("x"), Some("y")])),
    ]);
    cx.input("x.parquet", &rows);
    let _m = cx.mount();
    cx.sh("for i in 1 2; do cp in/x.parquet mnt/t/$i.parquet; done")
        .ok();
    let before = table.rows();
    assert_eq!(table.state().live().count(), 8);
    cx.sh(&format!("echo \"OPTIMIZE WHERE b = 'x'\" > {CTL}"))
        .ok();
    assert_eq!(table.rows(), before);
    assert_eq!(table.state().live().count(), 5);
    cx.sh(&format!("echo \"WHERE a IS NOT NULL\" > {CTL}")).ok();
    assert_eq!(table.rows(), before);
    assert_eq!(table.state().live().count(), 4);
    assert_eq!(cx.sh("ls mnt/t/a=1/b=y/*.parquet | wc -l").ok().trim(), "1");
}

fn statements_that_are_refused(cx: &Cx) {
    let table = cx.orders();
    let _m = cx.mount();
    let refused = |text: &str, errno: &str| {
        cx.sh(&format!("echo '{text}' > {CTL}")).fails(errno);
        cx.sh("cat mnt/t/.delta/last").ok()
    };
    assert!(refused("OPTIMIZE FULL", EOPNOTSUPP).contains("FULL"));
    assert!(refused("OPTIMIZE ZORDER BY (id)", EOPNOTSUPP).contains("ZORDER BY"));
    assert!(refused("OPTIMIZE WHERE id < 5", EINVAL).contains("no partition column"));
    for text in ["TRUE", "OPTIMIZE t", "id < 5", "OPTIMIZE WHERE"] {
        refused(text, EINVAL);
    }
    cx.sh(&format!(": > {CTL}; touch {CTL}; cat {CTL}")).ok();
    assert_eq!(table.version(), 0);
    let readme = cx.sh("cat mnt/t/.delta/README").ok();
    assert!(readme.contains("ctl/optimize"), "{readme}");
}

/// D108: a reader that holds a file keeps it, whether or not it has read of it yet.
fn open_files_are_read_to_their_end(cx: &Cx) {
    let table = cx.orders();
    cx.input("x.parquet", &orders(10..5000));
    let _m = cx.mount();
    cx.sh("cp in/x.parquet mnt/t/\n$PY -c \"
import mmap, os
old = open('in/x.parquet', 'rb').read()
r = open('mnt/t/x.parquet', 'rb')
begun = open('mnt/t/x.parquet', 'rb', buffering=0)
head = begun.read(1000)
m = mmap.mmap(r.fileno(), 0, prot=mmap.PROT_READ)
with open('mnt/t/.delta/ctl/optimize', 'w') as f: f.write('OPTIMIZE\\n')
assert not os.path.exists('mnt/t/x.parquet')
assert head + begun.readall() == old
assert r.read() == old and m[:] == old and os.fstat(r.fileno()).st_size == len(old)
assert open('mnt/t/.delta/versions/1/x.parquet', 'rb').read() == old
\"")
        .ok();
    assert_eq!(table.rows(), order_rows(0..5000));
}

/// D107: whoever lists meanwhile gets no errors.
fn listing_meanwhile(cx: &Cx) {
    let table = cx.builder("t").orders().create();
    for i in 0..4_i64 {
        cx.input(&format!("{i}.parquet"), &orders(i * 10..i * 10 + 10));
    }
    let _m = cx.mount();
    cx.sh(&format!(
        "(while test ! -e done; do ls mnt/t mnt/t/.delta/versions > out; done) & lister=$!
        for round in $(seq 10); do
            for i in 0 1 2 3; do cp in/$i.parquet mnt/t/r$round-$i.parquet; done
            echo OPTIMIZE > {CTL}
        done
        touch done; wait $lister"
    ))
    .ok();
    assert_eq!(table.state().live().count(), 1);
    assert_eq!(table.rows().len(), 400);
}

/// D4, D5, D10: whatever comes in between is there once, and what goes stays gone.
fn appends_and_deletes_meanwhile(cx: &Cx) {
    cx.time_limit(120);
    let table = cx
        .builder("t")
        .orders()
        .property("delta.targetFileSize", "20kb")
        .create();
    for i in 0..40_i64 {
        cx.input(&format!("{i}.parquet"), &orders(i * 10..i * 10 + 10));
    }
    let _m = cx.mount();
    let _other = cx.mount_at("wh", "other", &["--refresh", "20"]);
    cx.sh(&format!(
        "(for i in $(seq 0 39); do cp in/$i.parquet mnt/t/; done; touch done) & appends=$!
        (for i in $(seq 0 2 39); do
            while test $(cat other/t/.delta/version) -lt 5; do :; done
            printf -- '-- retries: 20\\nid %% 100 = %d\\n' $i > stmt; cat stmt > other/t/.delta/ctl/delete
        done) & deletes=$!
        while test ! -e done; do echo OPTIMIZE > {CTL}; done
        wait $appends; wait $deletes
        for i in $(seq 0 2 39); do echo \"id % 100 = $i\" > mnt/t/.delta/ctl/delete; done
        echo OPTIMIZE > {CTL}"
    ))
    .ok();
    let left = (0..400).filter(|id| id % 100 >= 40 || id % 2 == 1);
    assert_eq!(table.rows(), order_rows(left));
    table.assert_contiguous();
    let operations = (0..=table.version()).map(|v| table.commit_info(v)["operation"].clone());
    assert!(operations.filter(|o| *o == json!("OPTIMIZE")).count() > 1);
}
