//! What the cases about dropped files share: a table, a file to drop, and what must be so afterwards.

use std::fs;
use std::ops::Range;

use arrow::record_batch::RecordBatch;

use crate::batch::{order_rows, orders};
use crate::case::Cx;
use crate::mount::Mount;
use crate::shell::EINVAL;
use crate::table::{Table, visible_name};

/// A mounted table `mnt/t` of orders 0..10; `in/x.parquet` holds 100..110, `keep/x.parquet` the same.
pub(crate) struct Target {
    pub(crate) m: Mount,
    pub(crate) table: Table,
}

/// The ids of the table's first file, and more.
pub(crate) fn base_and(more: Range<i64>) -> Vec<i64> {
    (0..10).chain(more).collect()
}

pub(crate) fn target(cx: &Cx) -> Target {
    target_with(cx, &[])
}

pub(crate) fn target_with(cx: &Cx, arguments: &[&str]) -> Target {
    let table = cx.orders();
    cx.input("x.parquet", &orders(100..110));
    cx.sh("mkdir keep; cp in/x.parquet keep/").ok();
    let m = cx.mount_with(arguments);
    Target { m, table }
}

impl Target {
    /// The table is at `version` and holds exactly these ids, every row right.
    #[track_caller]
    pub(crate) fn holds(&self, version: u64, ids: impl IntoIterator<Item = i64>) {
        let ids: Vec<i64> = ids.into_iter().collect();
        let table = &self.table;
        let info = table.commit_info(table.version());
        assert_eq!(
            table.version(),
            version,
            "the version; the last commit was {info}"
        );
        assert_eq!(table.ids(), ids, "ids after {info}");
        assert_eq!(table.rows(), order_rows(ids), "rows after {info}");
        let shown = fs::read_to_string(self.m.path.join("t/.delta/version")).unwrap();
        assert_eq!(shown, format!("{version}\n"), ".delta/version");
    }

    /// `x.parquet` was appended by the last version, as a blind append of one file under its name.
    #[track_caller]
    pub(crate) fn appended(&self, version: u64) {
        let info = self.table.commit_info(version);
        assert_eq!(info["operation"], "WRITE", "{info}");
        let adds = self.table.actions(version, "add");
        assert_eq!(adds.len(), 1, "one file, one add");
        assert_eq!(visible_name(&adds[0]), "x.parquet");
        assert_eq!(adds[0]["dataChange"], true);
        if self.table.actions(version, "remove").is_empty() {
            assert_eq!(info["isBlindAppend"], true, "{info}");
        }
        self.stored_names_are_new();
    }

    /// No commit ever wrote to a path that an earlier one used.
    #[track_caller]
    pub(crate) fn stored_names_are_new(&self) {
        let mut seen = std::collections::BTreeSet::new();
        for version in self.table.versions() {
            for add in self.table.actions(version, "add") {
                let path = add["path"].as_str().unwrap().to_owned();
                let vector = !add["deletionVector"].is_null();
                assert!(
                    seen.insert(path.clone()) || vector,
                    "{path} was stored twice"
                );
            }
        }
    }
}

/// Runs `script`, which puts `in/x.parquet` into the table under its own name.
#[track_caller]
pub(crate) fn drop_new(cx: &Cx, script: &str) {
    let t = target(cx);
    cx.sh(script).ok();
    t.appended(t.table.version());
    t.holds(1, base_and(100..110));
    cx.sh("cmp keep/x.parquet mnt/t/x.parquet").ok();
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "base.parquet\nx.parquet\n");
}

/// The same where `x.parquet` has ids 50..60 already; `versions` more are made.
#[track_caller]
pub(crate) fn drop_over(cx: &Cx, script: &str, versions: u64) {
    let t = target(cx);
    cx.input("old.parquet", &orders(50..60));
    cx.sh("cp in/old.parquet mnt/t/x.parquet").ok();
    cx.sh(script).ok();
    t.appended(t.table.version());
    t.holds(1 + versions, base_and(100..110));
    cx.sh("cmp keep/x.parquet mnt/t/x.parquet").ok();
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "base.parquet\nx.parquet\n");
    let removes = (2..=1 + versions).map(|v| t.table.actions(v, "remove").len());
    assert_eq!(removes.sum::<usize>(), 1, "the old file was removed once");
}

/// Drops rows as `in/FILE` into `wh/t`, which takes them as they are meant.
#[track_caller]
pub(crate) fn accepts(cx: &Cx, file: &str, rows: &RecordBatch) {
    let version = cx.table("t").version();
    cx.input(file, rows);
    cx.sh(&format!("cp in/{file} mnt/t/")).ok();
    assert_eq!(
        cx.table("t").version(),
        version + 1,
        "{file} makes one version"
    );
}

/// Drops rows as `in/FILE` into `wh/t`: `cp` fails, nothing is committed, and the reason has all the words.
#[track_caller]
pub(crate) fn refuses(cx: &Cx, file: &str, rows: &RecordBatch, words: &[&str]) {
    let before = cx.table("t").versions();
    cx.input(file, rows);
    cx.sh(&format!("cp in/{file} mnt/t/")).fails(EINVAL);
    assert_eq!(
        cx.table("t").versions(),
        before,
        "a refused file makes no version"
    );
    let last = cx.sh("cat mnt/t/.delta/last").ok();
    for word in words {
        assert!(last.contains(word), "`last` should name `{word}`: {last}");
    }
    let rejected = || {
        cx.sh(&format!("cat mnt/t/.delta/rejected/*{file}*.reason"))
            .out
    };
    cx.eventually("the file lands in rejected/ with its reason", || {
        let reason = rejected();
        words.iter().all(|word| reason.contains(word))
    });
    cx.eventually("the refused file leaves the table's directory", || {
        !cx.path("mnt/t").join(file).exists()
    });
    cx.sh(&format!(
        "for f in mnt/t/.delta/rejected/*{file}*; do
            case $f in *.reason) ;; *) cmp in/{file} $f ;; esac
        done"
    ))
    .ok();
}
