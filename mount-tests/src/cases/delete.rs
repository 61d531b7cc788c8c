//! `.delta/ctl/delete`: once per statement, errors where they are seen, rows exactly as SQL says.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use serde_json::{Value, json};

use crate::batch::orders;
use crate::case::{Cx, cases};
use crate::shell::{EBUSY, EINVAL, EPERM};

use super::dropping::target;

cases!("delete":
    rows_by_predicate,
    vector_is_written_as_the_protocol_says,
    commit_info,
    existing_vectors_grow,
    untouched_vectors_stay,
    one_vector_file_a_commit,
    whole_file_is_removed,
    errors_reach_echo,
    unknown_column,
    printf_without_newline,
    pieces,
    python_write_and_close,
    here_document,
    several_tools,
    second_write_on_a_handle_refused,
    line_by_line_printf_refused,
    append_redirect,
    vim_saves_once,
    nothing_runs_without_a_statement,
    reading_runs_nothing,
    bom_and_crlf,
    nul_and_invalid_utf8_refused,
    oversized_statement_refused,
    append_only,
    copy_on_write_without_vectors,
    own_result_on_a_read_write_handle,
    last_tells_the_outcome,
    deletes_from_two_mounts,
    overlapping_deletes_from_two_mounts,
    delete_during_appends,
    deleted_file_is_refused_until_the_logical_view,
    interrupted,
    half_a_statement_is_not_run_by_a_child,
    half_a_statement_of_a_killed_writer_is_dropped,
    options_by_echo,
    quoted_columns_refused,
);

pub(crate) const CTL: &str = "mnt/t/.delta/ctl/delete";

/// Runs `echo 'PREDICATE' > ctl/delete`.
#[track_caller]
pub(crate) fn delete(cx: &Cx, predicate: &str) {
    let quoted = predicate.replace('\'', r"'\''");
    cx.sh(&format!("echo '{quoted}' > {CTL}")).ok();
}

fn rows_by_predicate(cx: &Cx) {
    let t = target(cx);
    delete(cx, "id < 5");
    t.holds(1, 5..10);
    delete(cx, "id = 7 OR amount > 4");
    t.holds(2, [5, 6, 8]);
    cx.sh("cp in/x.parquet mnt/t/").ok();
    delete(cx, "name = 'n5' AND id BETWEEN 0 AND 1000");
    t.holds(4, [6, 8].into_iter().chain(100..110));
}

fn vector_is_written_as_the_protocol_says(cx: &Cx) {
    let t = target(cx);
    delete(cx, "id IN (1, 3, 8)");
    let (adds, removes) = (t.table.actions(1, "add"), t.table.actions(1, "remove"));
    assert_eq!((adds.len(), removes.len()), (1, 1));
    let (added, removed) = (&adds[0], &removes[0]);
    assert_eq!(
        added["path"], removed["path"],
        "the data file stays the same"
    );
    assert_eq!(removed["deletionVector"], Value::Null);
    let vector = &added["deletionVector"];
    assert_eq!(vector["storageType"], "u", "{vector}");
    assert_eq!(vector["cardinality"], 3, "{vector}");
    assert!(
        vector["offset"].is_u64(),
        "the offset is always written: {vector}"
    );
    // The oracle checks the checksum; the file lies in the table's root.
    assert_eq!(
        cx.sh("ls wh/t | grep -c '^deletion_vector_.*[.]bin$'").ok(),
        "1\n"
    );
    let stats: Value = serde_json::from_str(added["stats"].as_str().unwrap()).unwrap();
    assert_eq!(stats["numRecords"], 10, "physical rows: {stats}");
    assert_eq!(stats["tightBounds"], false, "D23: {stats}");
    assert_eq!(
        (&added["dataChange"], &removed["dataChange"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(t.table.ids(), [0, 2, 4, 5, 6, 7, 9]);
}

fn commit_info(cx: &Cx) {
    let t = target(cx);
    delete(cx, "id < 4");
    let info = t.table.commit_info(1);
    assert_eq!(info["operation"], "DELETE", "{info}");
    assert_eq!(info["readVersion"], 0, "{info}");
    assert_eq!(info["isBlindAppend"], false, "{info}");
    assert_eq!(info["isolationLevel"], "WriteSerializable", "{info}");
    assert!(
        info["txnId"].is_string() && info["timestamp"].is_u64(),
        "{info}"
    );
    let metrics = &info["operationMetrics"];
    assert_eq!(metrics["numDeletedRows"], "4", "values are strings: {info}");
    assert!(
        info["operationParameters"]["predicate"]
            .to_string()
            .contains("id"),
        "{info}"
    );
}

fn existing_vectors_grow(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .file_with_vector("dv.parquet", &orders(0..10), &[2, 3])
        .create();
    let _m = cx.mount();
    delete(cx, "id IN (3, 4)");
    assert_eq!(table.ids(), [0, 1, 5, 6, 7, 8, 9]);
    let (added, removed) = (table.actions(1, "add"), table.actions(1, "remove"));
    assert_eq!(added[0]["deletionVector"]["cardinality"], 3);
    assert_eq!(
        removed[0]["deletionVector"]["cardinality"], 2,
        "the remove names the old vector"
    );
    assert_eq!(
        table.commit_info(1)["operationMetrics"]["numDeletedRows"],
        "1"
    );
}

/// Files that a DELETE does not touch keep their vectors.
fn untouched_vectors_stay(cx: &Cx) {
    let mut builder = cx.builder("t").orders();
    for i in 0..4_i64 {
        builder =
            builder.file_with_vector(&format!("{i}.parquet"), &orders(i * 10..i * 10 + 10), &[0]);
    }
    let table = builder.create();
    let _m = cx.mount();
    delete(cx, "id = 5");
    let expected = (0..40).filter(|id| id % 10 != 0 && *id != 5);
    assert_eq!(table.ids(), expected.collect::<Vec<_>>());
    assert_eq!(table.actions(1, "add").len(), 1);
}

fn one_vector_file_a_commit(cx: &Cx) {
    let mut builder = cx.builder("t").orders();
    for i in 0..5_i64 {
        builder = builder.file(&format!("{i}.parquet"), &orders(i * 10..i * 10 + 10));
    }
    let table = builder.create();
    let _m = cx.mount();
    delete(cx, "id % 10 = 3");
    assert_eq!(table.actions(1, "add").len(), 5);
    assert_eq!(
        cx.sh("ls wh/t | grep -c '^deletion_vector'").ok(),
        "1\n",
        "five vectors, one file"
    );
    assert_eq!(
        table.ids(),
        (0..50).filter(|id| id % 10 != 3).collect::<Vec<_>>()
    );
}

fn whole_file_is_removed(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/").ok();
    delete(cx, "id >= 100");
    t.holds(2, 0..10);
    assert!(
        t.table.actions(2, "add").is_empty(),
        "no vector for a file without rows"
    );
    // In two steps.
    delete(cx, "id < 5");
    delete(cx, "id >= 5");
    t.holds(4, []);
    assert!(t.table.actions(4, "add").is_empty());
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "");
}

fn errors_reach_echo(cx: &Cx) {
    let t = target(cx);
    for statement in [
        "nosuch < 5",
        "id <",
        "id = 'x' AND",
        "DELETE",
        "id",
        "1",
        "id < 5; id < 6",
        "name",
        ")",
    ] {
        cx.sh(&format!("echo \"{statement}\" > {CTL}"))
            .fails(EINVAL);
    }
    t.holds(0, 0..10);
    delete(cx, "id = 1");
    t.holds(1, (0..10).filter(|id| *id != 1));
}

fn unknown_column(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!("echo 'amonut > 3' > {CTL}")).fails(EINVAL);
    let last: Value = serde_json::from_str(&cx.sh("cat mnt/t/.delta/last").ok()).unwrap();
    assert!(
        last["message"]
            .as_str()
            .is_some_and(|m| m.contains("amonut")),
        "{last}"
    );
    t.holds(0, 0..10);
}

fn printf_without_newline(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!("printf 'id = 3' > {CTL}")).ok();
    t.holds(1, (0..10).filter(|id| *id != 3));
    // The error of a close reaches those that ask.
    let ran = cx.py(&format!(
        "
import os
fd = os.open('{CTL}', os.O_WRONLY)
os.write(fd, b'nosuch = 3')
os.close(fd)"
    ));
    ran.fails(EINVAL);
    t.holds(1, (0..10).filter(|id| *id != 3));
}

/// Pieces are kept until the newline comes; flushes of children in between change nothing.
fn pieces(cx: &Cx) {
    let t = target(cx);
    cx.py(&format!(
        "
import os, subprocess
fd = os.open('{CTL}', os.O_WRONLY | os.O_TRUNC)
os.write(fd, b'id ')
os.write(fd, b'= 3 OR ')
os.write(fd, b'id = 4\\n')
os.fsync(fd)
os.fsync(fd)
os.close(fd)"
    ))
    .ok();
    t.holds(1, (0..10).filter(|id| ![3, 4].contains(id)));
}

fn python_write_and_close(cx: &Cx) {
    let t = target(cx);
    cx.py(&format!(
        "
with open('{CTL}', 'w') as f:
    f.write('id = 3')"
    ))
    .ok();
    cx.py(&format!(
        "
with open('{CTL}', 'w') as f:
    print('id = 4', file=f)"
    ))
    .ok();
    cx.py(&format!(
        "import pathlib; pathlib.Path('{CTL}').write_text('id = 5\\n')"
    ))
    .ok();
    t.holds(3, (0..10).filter(|id| ![3, 4, 5].contains(id)));
}

fn here_document(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!("cat > {CTL} <<END\nid = 3\n  OR\n  id = 4\nEND"))
        .ok();
    t.holds(1, (0..10).filter(|id| ![3, 4].contains(id)));
}

fn several_tools(cx: &Cx) {
    let t = target(cx);
    cx.sh("for i in 0 1 2 3 4 5; do echo \"id = $i\" > s$i; done")
        .ok();
    for (version, script) in [
        (1, format!("cp s0 {CTL}")),
        (2, format!("cat s1 > {CTL}")),
        (3, format!("tee {CTL} < s2 > out")),
        (4, format!("dd if=s3 of={CTL} status=none")),
        (5, format!("dd if=s4 of={CTL} conv=fsync status=none")),
        (6, format!("sh -c 'echo id = 5 > {CTL}'")),
    ] {
        cx.sh(&script).ok();
        assert_eq!(
            t.table.version(),
            version,
            "{script} runs its statement once"
        );
    }
    t.holds(6, 6..10);
}

fn second_write_on_a_handle_refused(cx: &Cx) {
    let t = target(cx);
    cx.py(&format!(
        "
import os
fd = os.open('{CTL}', os.O_WRONLY)
os.write(fd, b'id = 3\\n')
os.write(fd, b'id = 4\\n')"
    ))
    .fails(EINVAL);
    t.holds(1, (0..10).filter(|id| *id != 3));
}

/// bash sends `printf 'a\nb\n'` line by line: the second half must not run as a statement.
fn line_by_line_printf_refused(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!("printf 'id = 3 OR\\nid < 9\\n' > {CTL}"))
        .fails(EINVAL);
    t.holds(0, 0..10);
    cx.sh(&format!("printf 'id = 3\\nid < 9\\n' > {CTL}"))
        .fails(EINVAL);
    t.holds(1, (0..10).filter(|id| *id != 3));
}

/// D109: for a control file, `>>` is `>`.
fn append_redirect(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!("echo 'id = 3' >> {CTL}; echo 'id = 4' >> {CTL}"))
        .ok();
    t.holds(2, (0..10).filter(|id| ![3, 4].contains(id)));
}

/// D100: one action per save, swap files stay scratch, fsync succeeds.
fn vim_saves_once(cx: &Cx) {
    cx.need("vim");
    let t = target(cx);
    for (version, id) in [(1, 3), (2, 4)] {
        cx.sh(&format!(
            "vim -es -u NONE -c '%d _' -c 'call setline(1, \"id = {id}\")' -c 'wq!' {CTL}"
        ))
        .ok();
        assert_eq!(t.table.version(), version, "one save, one statement");
    }
    t.holds(2, (0..10).filter(|id| ![3, 4].contains(id)));
}

/// D101, D103.
fn nothing_runs_without_a_statement(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!(
        "touch {CTL}
         : > {CTL}
         truncate -s 0 {CTL}
         cat /dev/null > {CTL}
         printf '' > {CTL}
         cp /dev/null {CTL}
         chmod 600 {CTL}; touch -d 2020-01-01 {CTL}"
    ))
    .ok();
    // A blank line may be refused or ignored.
    cx.sh(&format!(
        "echo > {CTL}; echo '   ' > {CTL}; printf '\\n\\n' > {CTL}; echo '-- a comment' > {CTL}"
    ));
    cx.py(&format!(
        "
import os
os.close(os.open('{CTL}', os.O_RDWR | os.O_TRUNC))
os.close(os.open('{CTL}', os.O_WRONLY))
fd = os.open('{CTL}', os.O_WRONLY)
os.ftruncate(fd, 0)
os.fsync(fd)
os.close(fd)"
    ))
    .ok();
    t.holds(0, 0..10);
}

fn reading_runs_nothing(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!(
        "cat {CTL}; head -c 10 {CTL}; wc -c {CTL}; stat {CTL}; cp {CTL} out"
    ))
    .ok();
    delete(cx, "id = 1");
    cx.sh(&format!(
        "for i in 1 2 3; do cat {CTL} > out; done; grep -r version mnt/t/.delta/ctl > out"
    ))
    .ok();
    t.holds(1, (0..10).filter(|id| *id != 1));
}

/// D113.
fn bom_and_crlf(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!("printf '\\xEF\\xBB\\xBFid = 3\\r\\n' > {CTL}"))
        .ok();
    cx.py(&format!(
        "open('{CTL}', 'wb').write(b'id = 4\\r\\n  OR id = 5\\r\\n')"
    ))
    .ok();
    cx.sh(&format!("printf '  \\t id = 6 \\t \\n' > {CTL}"))
        .ok();
    t.holds(3, [0, 1, 2, 7, 8, 9]);
}

fn nul_and_invalid_utf8_refused(cx: &Cx) {
    let t = target(cx);
    for bytes in [
        "id = 3\\x00\\n",
        "id = 3 OR name = '\\xFF'\\n",
        "\\xFF\\xFEi\\x00d\\x00\\n",
    ] {
        cx.py(&format!("open('{CTL}', 'wb', 0).write(b\"{bytes}\")"))
            .fails(EINVAL);
    }
    t.holds(0, 0..10);
}

/// Up to 1 MiB (DESIGN §4); more is an error and never half a statement.
fn oversized_statement_refused(cx: &Cx) {
    let t = target(cx);
    let padding = " ".repeat(900_000);
    fs::write(cx.path("fits.sql"), format!("id = 1{padding}\n")).unwrap();
    fs::write(
        cx.path("big.sql"),
        format!("id = 2{padding}{padding} OR id = 3\n"),
    )
    .unwrap();
    cx.sh(&format!("cp fits.sql {CTL}")).ok();
    let ran = cx.sh(&format!("cp big.sql {CTL}"));
    assert!(!ran.succeeded(), "{ran}");
    t.holds(1, (0..10).filter(|id| *id != 1));
}

/// D74.
fn append_only(cx: &Cx) {
    let table = cx
        .builder("t")
        .legacy(2)
        .property("delta.appendOnly", "true")
        .orders()
        .file("base.parquet", &orders(0..10))
        .create();
    let _m = cx.mount();
    cx.sh(&format!("echo 'id = 1' > {CTL}")).fails(EPERM);
    assert_eq!(table.version(), 0);
}

fn copy_on_write_without_vectors(cx: &Cx) {
    let table = cx
        .builder("t")
        .legacy(2)
        .orders()
        .file("a.parquet", &orders(0..10))
        .file("b.parquet", &orders(10..20))
        .create();
    let _m = cx.mount();
    delete(cx, "id < 5");
    assert_eq!(table.ids(), (5..20).collect::<Vec<_>>());
    let (adds, removes) = (table.actions(1, "add"), table.actions(1, "remove"));
    assert_eq!(
        (adds.len(), removes.len()),
        (1, 1),
        "only the touched file is rewritten"
    );
    assert_ne!(adds[0]["path"], removes[0]["path"]);
    assert!(adds[0]["deletionVector"].is_null());
    let metrics = &table.commit_info(1)["operationMetrics"];
    assert_eq!(
        (&metrics["numDeletedRows"], &metrics["numCopiedRows"]),
        (&json!("5"), &json!("5")),
        "{metrics}"
    );
    // What was rewritten is whole, so it can be read.
    cx.sh("cat mnt/t/* > out").ok();
    assert_eq!(cx.sh("ls mnt/t | wc -l").ok(), "2\n");
    delete(cx, "id < 10");
    assert!(table.actions(2, "add").is_empty());
    assert_eq!(table.ids(), (10..20).collect::<Vec<_>>());
}

fn own_result_on_a_read_write_handle(cx: &Cx) {
    let t = target(cx);
    let open = || {
        File::options()
            .read(true)
            .write(true)
            .open(cx.path(CTL))
            .unwrap()
    };
    let result = |file: &File| -> Value {
        let mut bytes = vec![0; 100_000];
        let count = file.read_at(&mut bytes, 0).unwrap();
        serde_json::from_slice(&bytes[..count])
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&bytes[..count])))
    };
    let (mut one, mut two, mut bad) = (open(), open(), open());
    one.write_all(b"id = 1\n").unwrap();
    two.write_all(b"id = 2\n").unwrap();
    let refused = bad.write_all(b"nosuch = 2\n").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    assert_eq!(result(&one)["version"], 1, "{}", result(&one));
    assert_eq!(result(&two)["version"], 2, "{}", result(&two));
    assert!(
        result(&bad).to_string().contains("nosuch"),
        "{}",
        result(&bad)
    );
    t.holds(2, [0].into_iter().chain(3..10));
}

fn last_tells_the_outcome(cx: &Cx) {
    let _t = target(cx);
    let last = || -> Value { serde_json::from_str(&cx.sh("cat mnt/t/.delta/last").ok()).unwrap() };
    delete(cx, "id < 3");
    let found = last();
    assert_eq!(found["version"], 1, "{found}");
    assert!(found.to_string().contains("\"numDeletedRows\""), "{found}");
    cx.sh(&format!("echo 'nosuch = 1' > {CTL}")).fails(EINVAL);
    let found = last();
    assert!(
        found["version"].is_null() && found["message"].is_string(),
        "{found}"
    );
    let shown = cx.sh(&format!("cat {CTL}")).ok();
    assert!(
        shown.contains("nosuch"),
        "the verb's file tells the same: {shown}"
    );
}

/// Disjoint rows of one file, at the same moment: both are gone.
fn deletes_from_two_mounts(cx: &Cx) {
    let table = cx.orders();
    let _a = cx.mount_at("wh", "a", &[]);
    let _b = cx.mount_at("wh", "b", &[]);
    for round in 0..5 {
        let one = |m: &str, id: i64| cx.sh(&format!("echo 'id = {id}' > {m}/t/.delta/ctl/delete"));
        let ran = cx.together(vec![
            Box::new(move || one("a", round * 2)),
            Box::new(move || one("b", round * 2 + 1)),
        ]);
        for ran in ran {
            ran.ok();
        }
        assert_eq!(
            table.ids(),
            (round * 2 + 2..10).collect::<Vec<_>>(),
            "round {round}"
        );
    }
    table.assert_contiguous();
}

/// D1: overlapping ranges. A loser may say EBUSY; then its other rows are still there.
fn overlapping_deletes_from_two_mounts(cx: &Cx) {
    let _a = cx.mount_at("wh", "a", &[]);
    let _b = cx.mount_at("wh", "b", &[]);
    for round in 0..5 {
        let name = format!("t{round}");
        let table = cx
            .builder(&name)
            .orders()
            .file("f.parquet", &orders(0..10))
            .create();
        cx.within(
            std::time::Duration::from_secs(3),
            "both mounts know the table",
            || {
                ["a", "b"]
                    .iter()
                    .all(|m| cx.path(m).join(&name).join("f.parquet").exists())
            },
        );
        let one = |m: &str, predicate: &str| {
            cx.sh(&format!(
                "echo '{predicate}' > {m}/{name}/.delta/ctl/delete"
            ))
        };
        let ran = cx.together(vec![
            Box::new(|| one("a", "id < 6")),
            Box::new(|| one("b", "id > 3")),
        ]);
        let mut left: Vec<i64> = (0..10).collect();
        for (ran, gone) in ran.iter().zip([0..6, 4..10]) {
            if ran.succeeded() {
                left.retain(|id| !gone.contains(id));
            } else {
                assert!(ran.err.contains(EBUSY), "{ran}");
            }
        }
        assert_eq!(table.ids(), left, "{} {}", ran[0], ran[1]);
        table.assert_contiguous();
    }
}

fn delete_during_appends(cx: &Cx) {
    cx.time_limit(240);
    let t = target(cx);
    for i in 0..30 {
        cx.input(&format!("f{i}.parquet"), &orders(1000 + i..1001 + i));
    }
    cx.together(vec![
        Box::new(|| {
            drop(
                cx.sh("for i in {0..29}; do cp in/f$i.parquet mnt/t/; done")
                    .ok(),
            )
        }),
        Box::new(|| {
            for id in 0..10 {
                delete(cx, &format!("id = {id}"));
            }
        }),
    ]);
    t.table.assert_contiguous();
    assert_eq!(t.table.ids(), (1000..1030).collect::<Vec<_>>());
}

/// Never raw bytes with deleted rows in them.
fn deleted_file_is_refused_until_the_logical_view(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/; cat mnt/t/base.parquet > out")
        .ok();
    delete(cx, "id = 5");
    let ran = cx.sh("cat mnt/t/base.parquet > out");
    if ran.succeeded() {
        let ids = crate::table::ids_of_file(&cx.path("out"));
        assert_eq!(
            ids,
            (0..10).filter(|id| *id != 5).collect::<Vec<_>>(),
            "deleted rows were served"
        );
    } else {
        assert!(ran.err.contains(crate::shell::EOPNOTSUPP), "{ran}");
    }
    cx.sh("cmp in/x.parquet mnt/t/x.parquet").ok();
    assert_eq!(t.table.version(), 2);
}

/// A client that is killed while its statement runs: all or nothing.
fn interrupted(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!(
        "for i in 0 1 2 3 4; do timeout -s KILL 0.0$((i + 1)) bash -c \"echo 'id = $i' > {CTL}\" || true; done; ls mnt/t"
    ))
    .ok();
    t.table.assert_contiguous();
    let left: BTreeSet<i64> = t.table.ids().into_iter().collect();
    assert_eq!(
        left.len() as u64,
        10 - t.table.version(),
        "one row a version"
    );
    assert!((5..10).all(|id| left.contains(&id)));
}

/// `$(…)` closes its copy of the descriptor in the middle of the statement.
fn half_a_statement_is_not_run_by_a_child(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!(
        "{{ printf 'id >= 0 '; x=$(date +%s); printf 'AND id < 3\\n'; }} > {CTL}"
    ))
    .ok();
    t.holds(1, 3..10);
}

fn half_a_statement_of_a_killed_writer_is_dropped(cx: &Cx) {
    let t = target(cx);
    for signal in ["KILL", "TERM", "INT"] {
        cx.sh(&format!(
            "bash -c '{{ printf \"id >= 0 \"; kill -{signal} $$; while :; do :; done; }} > {CTL}' || true"
        ))
        .ok();
    }
    t.holds(0, 0..10);
}

/// bash sends the option line as a write of its own.
fn options_by_echo(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!("echo '-- userMetadata: ticket 7\nid = 3' > {CTL}"))
        .ok();
    t.holds(1, (0..10).filter(|id| *id != 3));
    assert_eq!(t.table.commit_info(1)["userMetadata"], "ticket 7");
}

/// Text in Spark, a column elsewhere: all rows would go.
fn quoted_columns_refused(cx: &Cx) {
    let t = target(cx);
    cx.sh(&format!("echo '\"name\" <> 1' > {CTL}"))
        .fails(EINVAL);
    assert!(
        cx.sh("cat mnt/t/.delta/last")
            .ok()
            .contains("also the name of a column")
    );
    t.holds(0, 0..10);
}
