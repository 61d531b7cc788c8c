//! Names and files that are not data (yet): scratch, placeholders, unfinished and broken files.

use std::fs;

use crate::batch::orders;
use crate::case::{Cx, cases};
use crate::shell::{EINVAL, EPERM};

use super::dropping::{base_and, target};

cases!("scratch":
    scratch_names_never_commit,
    scratch_can_be_written_anyhow,
    renamed_scratch_commits,
    renamed_over_a_live_file_replaces_it,
    renamed_broken_scratch_refused,
    scratch_is_private_to_its_directory,
    touch_commits_nothing,
    truncating_redirect_commits_nothing,
    empty_file_is_a_placeholder,
    unfinished_file_rejected,
    garbled_files_rejected,
    name_is_free_after_a_refusal,
    rejected_can_be_removed,
    plain_directory_takes_scratch_only_with_a_table,
    failed_reflink_leaves_no_version,
    rm_of_uncommitted_files,
);

/// Scratch by its name: temporary files of tools, backups, junk of operating systems.
const NAMES: &[&str] = &[
    ".x",
    ".x.parquet",
    "_x",
    "_x.parquet",
    "x.parquet.tmp",
    "x.tmp",
    "x.parquet.part",
    "x.part",
    "x.parquet~",
    "sedAbCdEf",
    ".x.parquet.Ab12Cd",
    ".base.parquet.swp",
    "tmp_base.parquet",
    "tmpab12cd34",
    "notes.txt",
    "x.parquet.crdownload",
    ".DS_Store",
    "._x.parquet",
    "Thumbs.db",
    "desktop.ini",
    ".nfs000000000001",
    "4913",
];

fn scratch_names_never_commit(cx: &Cx) {
    let t = target(cx);
    for name in NAMES {
        cx.sh(&format!(
            "cp in/x.parquet 'mnt/t/{name}'; cmp in/x.parquet 'mnt/t/{name}'"
        ))
        .ok();
        assert_eq!(t.table.version(), 0, "{name} was committed");
        let listed = cx.sh("ls -A mnt/t").ok();
        assert!(
            listed.lines().any(|l| l == *name),
            "{name} is not listed: {listed}"
        );
        assert!(
            !t.table.path.join(name).exists(),
            "{name} is in the table's directory"
        );
        cx.sh(&format!("rm 'mnt/t/{name}'; test ! -e 'mnt/t/{name}'"))
            .ok();
    }
    assert_eq!(cx.sh("ls -A mnt/t").ok(), "base.parquet\n");
    t.holds(0, 0..10);
}

/// Scratch is an ordinary file: random writes, growth, holes, appending, truncation.
fn scratch_can_be_written_anyhow(cx: &Cx) {
    let t = target(cx);
    cx.sh("
        echo one > mnt/t/.s; echo two >> mnt/t/.s; test \"$(cat mnt/t/.s)\" = $'one\\ntwo'
        printf X | dd of=mnt/t/.s bs=1 seek=4 conv=notrunc status=none; test \"$(cat mnt/t/.s)\" = $'one\\nXwo'
        truncate -s 3 mnt/t/.s; test \"$(cat mnt/t/.s)\" = one
        truncate -s 100000 mnt/t/.s; test $(stat -c %s mnt/t/.s) = 100000
        echo new > mnt/t/.s; test \"$(cat mnt/t/.s)\" = new
        mv mnt/t/.s mnt/t/.s2; test ! -e mnt/t/.s; test \"$(cat mnt/t/.s2)\" = new
        sed -i s/new/newer/ mnt/t/.s2; test \"$(cat mnt/t/.s2)\" = newer
        chmod 600 mnt/t/.s2; touch -d 2020-01-01 mnt/t/.s2; cp -p mnt/t/.s2 mnt/t/.s3")
        .ok();
    t.holds(0, 0..10);
}

fn renamed_scratch_commits(cx: &Cx) {
    let t = target(cx);
    for (i, name) in [".x", "_x.parquet", "x.parquet.part", "x.tmp"]
        .iter()
        .enumerate()
    {
        cx.sh(&format!(
            "cp in/x.parquet mnt/t/{name}; mv mnt/t/{name} mnt/t/x{i}.parquet
             test ! -e mnt/t/{name}; cmp in/x.parquet mnt/t/x{i}.parquet"
        ))
        .ok();
        assert_eq!(t.table.version(), i as u64 + 1, "after {name}");
    }
    assert_eq!(t.table.ids().len(), 50);
}

fn renamed_over_a_live_file_replaces_it(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/.new; mv mnt/t/.new mnt/t/base.parquet; cmp in/x.parquet mnt/t/base.parquet").ok();
    t.holds(1, 100..110);
    assert_eq!(t.table.actions(1, "remove").len(), 1);
}

fn renamed_broken_scratch_refused(cx: &Cx) {
    let t = target(cx);
    cx.sh("head -c 200 in/x.parquet > mnt/t/.x").ok();
    // EINVAL of a rename would read "cannot move to a subdirectory of itself".
    let said = cx.sh("mv mnt/t/.x mnt/t/x.parquet").fails("mv:");
    assert!(!said.contains("subdirectory"), "{said}");
    let said = cx.sh("mv mnt/t/.x mnt/t/base.parquet").fails("mv:");
    assert!(!said.contains("subdirectory"), "{said}");
    t.holds(0, 0..10);
    cx.sh("cmp <(head -c 200 in/x.parquet) mnt/t/.x; cmp wh/t/base.parquet mnt/t/base.parquet")
        .ok();
}

fn scratch_is_private_to_its_directory(cx: &Cx) {
    let _t = target(cx);
    cx.builder("u").orders().create();
    cx.sh("cp in/x.parquet mnt/t/.x; test ! -e mnt/u/.x; cp in/x.parquet mnt/u/.x; rm mnt/t/.x; cmp in/x.parquet mnt/u/.x").ok();
    // Not in the warehouse either, where other readers would find it.
    assert_eq!(cx.sh("find wh/t wh/u -name '.x*'").ok(), "");
}

fn touch_commits_nothing(cx: &Cx) {
    let t = target(cx);
    cx.sh("touch mnt/t/new.parquet mnt/t/base.parquet; touch mnt/t/new.parquet")
        .ok();
    t.holds(0, 0..10);
    cx.sh("cmp wh/t/base.parquet mnt/t/base.parquet").ok();
}

/// D103: a truncation alone is never "delete all".
fn truncating_redirect_commits_nothing(cx: &Cx) {
    let t = target(cx);
    cx.sh(": > mnt/t/new.parquet; : > mnt/t/base.parquet; : > mnt/t/.x")
        .ok();
    t.holds(0, 0..10);
    cx.py("import os; os.close(os.open('mnt/t/base.parquet', os.O_RDWR | os.O_TRUNC))")
        .ok();
    t.holds(0, 0..10);
    // The rows are still there, so the file must be, too.
    cx.eventually("the live file shows again", || {
        cx.sh("cmp wh/t/base.parquet mnt/t/base.parquet")
            .succeeded()
    });
}

fn empty_file_is_a_placeholder(cx: &Cx) {
    let t = target(cx);
    cx.sh("touch mnt/t/x.parquet; test -e mnt/t/x.parquet; test ! -s mnt/t/x.parquet")
        .ok();
    assert_eq!(cx.sh("ls mnt/t").ok(), "base.parquet\nx.parquet\n");
    // Some tools create, close and reopen.
    cx.sh("cat in/x.parquet > mnt/t/x.parquet; cmp in/x.parquet mnt/t/x.parquet")
        .ok();
    t.holds(1, base_and(100..110));
    cx.sh("touch mnt/t/y.parquet; rm mnt/t/y.parquet; test ! -e mnt/t/y.parquet")
        .ok();
    t.holds(1, base_and(100..110));
}

fn unfinished_file_rejected(cx: &Cx) {
    let t = target(cx);
    cx.sh("head -c 700 in/x.parquet > in/half.parquet").ok();
    for (script, name) in [
        ("cp in/half.parquet mnt/t/", "half.parquet"),
        ("cat in/half.parquet > mnt/t/half2.parquet", "half2.parquet"),
        (
            "dd if=in/half.parquet of=mnt/t/half3.parquet status=none",
            "half3.parquet",
        ),
        (
            "$PY -c \"import os; fd = os.open('mnt/t/half4.parquet', os.O_WRONLY | os.O_CREAT); \
             os.write(fd, open('in/half.parquet', 'rb').read()); os.close(fd)\"",
            "half4.parquet",
        ),
        (
            "cp in/half.parquet mnt/t/.delta/in/append/half5.parquet",
            "half5.parquet",
        ),
    ] {
        cx.sh(script).fails(EINVAL);
        cx.eventually("the half file is in rejected/ with a reason", || {
            cx.sh(&format!(
                "cmp in/half.parquet mnt/t/.delta/rejected/*{name}; test -s mnt/t/.delta/rejected/*{name}.reason"
            ))
            .succeeded()
        });
        cx.eventually("the half file leaves the table", || {
            !t.m.path.join("t").join(name).exists()
        });
    }
    t.holds(0, 0..10);
    // `mv` keeps its source.
    cx.sh("mv in/half.parquet mnt/t/").fails(EINVAL);
    assert!(cx.path("in/half.parquet").exists());
}

/// D68, issue: garbled Parquet is found out before it is acknowledged.
fn garbled_files_rejected(cx: &Cx) {
    let t = target(cx);
    let good = fs::read(cx.path("in/x.parquet")).unwrap();
    let size = good.len();
    let edited = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        edit(&mut bytes);
        bytes
    };
    let footer =
        size - 8 - u32::from_le_bytes(good[size - 8..size - 4].try_into().unwrap()) as usize;
    for (name, bytes) in [
        ("text", b"id,name\n1,a\n".to_vec()),
        ("magic-only", b"PAR1PAR1".to_vec()),
        ("no-first-magic", edited(&|b| b[0] = b'X')),
        ("no-last-magic", edited(&|b| b[size - 1] = b'X')),
        (
            "footer-length-huge",
            edited(&|b| b[size - 8..size - 4].fill(0xFF)),
        ),
        ("footer-length-negative", edited(&|b| b[size - 5] = 0x80)),
        (
            "footer-garbled",
            edited(&|b| b[footer..footer + 40].fill(0xA5)),
        ),
        ("footer-of-another", edited(&|b| drop(b.drain(4..footer)))),
        ("twice", [good.as_slice(), &good].concat()),
        ("zeros", vec![0; size]),
    ] {
        fs::write(cx.path("in/bad.parquet"), bytes).unwrap();
        let ran = cx.sh(&format!(
            "timeout 30 cp in/bad.parquet mnt/t/{name}.parquet"
        ));
        if name == "twice" {
            // The offsets of the second copy's footer point into the first: a readable file of the same rows.
            if ran.succeeded() {
                cx.sh(&format!("rm mnt/t/{name}.parquet")).ok();
            }
        } else {
            ran.fails(EINVAL);
        }
    }
    assert_eq!(t.table.ids(), (0..10).collect::<Vec<_>>());
}

fn name_is_free_after_a_refusal(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet in/good.parquet; head -c 700 in/good.parquet > in/x.parquet")
        .ok();
    cx.sh("cp in/x.parquet mnt/t/").fails(EINVAL);
    cx.sh("cp in/good.parquet mnt/t/x.parquet; cmp in/good.parquet mnt/t/x.parquet")
        .ok();
    t.holds(1, base_and(100..110));
    // A refused overwrite leaves the live file alone.
    cx.sh("cp in/x.parquet mnt/t/base.parquet").fails(EINVAL);
    t.holds(1, base_and(100..110));
    cx.eventually("the live file shows again", || {
        cx.sh("cmp wh/t/base.parquet mnt/t/base.parquet")
            .succeeded()
    });
}

fn rejected_can_be_removed(cx: &Cx) {
    let t = target(cx);
    cx.sh("echo no > in/no.parquet; cp in/no.parquet mnt/t/")
        .fails(EINVAL);
    cx.eventually("rejected", || {
        cx.sh("test -n \"$(ls mnt/t/.delta/rejected)\"").succeeded()
    });
    cx.sh("cp in/x.parquet mnt/t/.delta/rejected/").fails("cp:");
    cx.sh("rm mnt/t/.delta/rejected/*; test -z \"$(ls -A mnt/t/.delta/rejected)\"")
        .ok();
    t.holds(0, 0..10);
}

/// Files of no table have no place to be: only data files can make one.
fn plain_directory_takes_scratch_only_with_a_table(cx: &Cx) {
    cx.input("x.parquet", &orders(0..3));
    let _m = cx.mount();
    cx.sh("mkdir mnt/new; cp in/x.parquet mnt/.x").fails(EPERM);
    cx.sh("cp in/x.parquet mnt/new/.x; mv mnt/new/.x mnt/new/x.parquet")
        .ok();
    assert_eq!(cx.table("new").ids(), [0, 1, 2]);
}

fn failed_reflink_leaves_no_version(cx: &Cx) {
    let t = target(cx);
    let ran = cx.sh("cp --reflink=always in/x.parquet mnt/t/");
    assert!(!ran.succeeded(), "no reflink across file systems: {ran}");
    t.holds(0, 0..10);
    cx.sh("cp in/x.parquet mnt/t/").ok();
    t.holds(1, base_and(100..110));
}

/// pyarrow removes its output after a failed close.
fn rm_of_uncommitted_files(cx: &Cx) {
    let t = target(cx);
    cx.py("
import os
fd = os.open('mnt/t/bad.parquet', os.O_WRONLY | os.O_CREAT)
os.write(fd, b'PAR1 and no more')
try:
    os.fsync(fd)
except OSError:
    pass
os.unlink('mnt/t/bad.parquet')
try:
    os.close(fd)
except OSError:
    pass
assert not os.path.exists('mnt/t/bad.parquet')")
        .ok();
    // Unlinked while open, then complete: the writer gave it up.
    cx.py("
import os
fd = os.open('mnt/t/gone.parquet', os.O_WRONLY | os.O_CREAT)
data = open('in/x.parquet', 'rb').read()
os.write(fd, data[:100])
os.unlink('mnt/t/gone.parquet')
os.write(fd, data[100:])
try:
    os.close(fd)
except OSError:
    pass")
        .ok();
    t.holds(0, 0..10);
}
