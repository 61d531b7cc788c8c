//! What people and their tools do all day: editors, recursive copies, searches. No surprises.

use crate::batch::orders;
use crate::case::{Cx, cases};

use super::dropping::{base_and, target};

cases!("everyday":
    vim_on_scratch,
    sed_in_place_on_scratch,
    grep_and_find_change_nothing,
    cp_recursive_copies_data_only,
    table_to_table_copy,
    archive_and_extract,
    diff_and_checksums,
    git_status_ignores,
    shell_globs,
    head_tail_wc,
    first_steps_of_a_newcomer,
    remount_keeps_everything,
);

fn vim_on_scratch(cx: &Cx) {
    cx.need("vim");
    let t = target(cx);
    for text in ["one", "two"] {
        cx.sh(&format!(
            "vim -es -u NONE -c '%d _' -c 'call setline(1, \"{text}\")' -c 'wq!' mnt/t/.notes"
        ))
        .ok();
        assert_eq!(cx.sh("cat mnt/t/.notes").ok(), format!("{text}\n"));
    }
    cx.sh("vim -es -c 'call setline(1, \"three\")' -c w -c w -c q mnt/t/notes.txt")
        .ok();
    assert_eq!(cx.sh("cat mnt/t/notes.txt").ok(), "three\n");
    t.holds(0, 0..10);
}

fn sed_in_place_on_scratch(cx: &Cx) {
    let t = target(cx);
    cx.sh("echo hello > mnt/t/.s; sed -i s/hello/bye/ mnt/t/.s; test \"$(cat mnt/t/.s)\" = bye; perl -pi -e s/bye/hi/ mnt/t/.s || true").ok();
    t.holds(0, 0..10);
    // On data it is refused or changes nothing; the rows stay.
    cx.sh("set +e; sed -i s/PAR1/PAR2/ mnt/t/base.parquet; true")
        .ok();
    assert_eq!(t.table.ids(), (0..10).collect::<Vec<_>>());
    assert_eq!(t.table.version(), 0);
}

/// D102.
fn grep_and_find_change_nothing(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/; cp in/x.parquet mnt/t/.scratch")
        .ok();
    cx.sh("grep -r . mnt > out || true
        grep -r . mnt/t/.delta > out || true
        find mnt mnt/t/.delta -type f -exec cat {} + > out
        find mnt mnt/t/.delta -type f -exec file {} + > out 2>&1 || true
        du -a mnt > out; ls -laR mnt mnt/t/.delta > out; tar cf out.tar mnt mnt/t/.delta
        wc -c mnt/t/* > out; stat mnt/t/.delta/ctl/* > out")
        .ok();
    t.holds(1, base_and(100..110));
    assert_eq!(
        cx.sh("ls -A mnt/t; ls -A mnt/t/.delta/rejected").ok(),
        ".scratch\nbase.parquet\nx.parquet\n"
    );
}

fn cp_recursive_copies_data_only(cx: &Cx) {
    let _t = target(cx);
    for script in [
        "cp -r mnt/t out",
        "cp -a mnt/t out",
        "mkdir out && cp -r mnt/t/. out",
    ] {
        cx.sh(&format!("{script}; test \"$(find out -type f)\" = out/base.parquet; cmp out/base.parquet wh/t/base.parquet; rm -r out")).ok();
    }
    if crate::shell::installed("rsync") {
        cx.sh("rsync -a mnt/t/ out/; test \"$(find out -type f)\" = out/base.parquet")
            .ok();
    }
}

/// Copying a table's directory makes a table of the same rows, not of its history.
fn table_to_table_copy(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/; cp -r mnt/t mnt/copy").ok();
    let copy = cx.table("copy");
    assert_eq!(copy.ids(), t.table.ids());
    assert_eq!(copy.version(), 1, "one version a file");
    assert_ne!(copy.state().metadata["id"], t.table.state().metadata["id"]);
    t.holds(1, base_and(100..110));
}

fn archive_and_extract(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/; tar czf out.tgz -C mnt t; mkdir mnt/back; tar xzf out.tgz -C mnt/back").ok();
    assert_eq!(cx.table("back/t").ids(), t.table.ids());
}

fn diff_and_checksums(cx: &Cx) {
    let _t = target(cx);
    cx.sh(
        "cp in/x.parquet mnt/t/; mkdir out; cp mnt/t/* out/; diff -r mnt/t out
        (cd mnt/t && sha256sum *) > sums; (cd out && sha256sum -c ../sums)",
    )
    .ok();
}

fn git_status_ignores(cx: &Cx) {
    cx.need("git");
    let t = target(cx);
    cx.sh("cd mnt/t; git status > /dev/null 2>&1 || true; git ls-files > /dev/null 2>&1 || true")
        .ok();
    t.holds(0, 0..10);
}

fn shell_globs(cx: &Cx) {
    cx.builder("ns/a")
        .orders()
        .file("1.parquet", &orders(0..1))
        .create();
    cx.builder("ns/b")
        .orders()
        .file("2.parquet", &orders(1..2))
        .create();
    let _m = cx.mount();
    assert_eq!(
        cx.sh("shopt -s globstar dotglob; cd mnt; echo **/*.parquet; echo *; echo ns/*/*")
            .ok(),
        "ns/a/1.parquet ns/b/2.parquet\nns\nns/a/1.parquet ns/b/2.parquet\n"
    );
}

fn head_tail_wc(cx: &Cx) {
    let _t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/; rm mnt/t/x.parquet
        test \"$(head -1 mnt/t/.delta/history | cut -d' ' -f1)\" = 2
        test \"$(tail -1 mnt/t/.delta/history | cut -d' ' -f1)\" = 0
        test $(wc -l < mnt/t/.delta/history) = 3
        test \"$(< mnt/t/.delta/version)\" = 2
        read v < mnt/t/.delta/version; test $v = 2")
        .ok();
}

/// The tour of the README, as one script.
fn first_steps_of_a_newcomer(cx: &Cx) {
    cx.sh("rmdir in").ok();
    crate::sample::write(&cx.path("in"));
    cx.sh("rmdir wh; mkdir wh mnt; deltafs mount wh mnt").ok();
    cx.sh("mkdir -p mnt/shop/orders
        cp in/january.parquet mnt/shop/orders/
        cp in/february.parquet in/march.parquet mnt/shop/orders/
        ls mnt/shop/orders; cat mnt/shop/orders/.delta/version mnt/shop/orders/.delta/history
        echo \"country = 'FR' AND amount < 10\" > mnt/shop/orders/.delta/ctl/delete
        cat mnt/shop/orders/.delta/last mnt/shop/orders/.delta/info.json
        rm mnt/shop/orders/march.parquet
        cat mnt/.delta/README mnt/shop/orders/.delta/README > readme
        deltafs umount mnt")
        .ok();
    let table = cx.table("shop/orders");
    assert_eq!(table.version(), 4);
    assert!(table.ids().iter().all(|id| (0..2000).contains(id)));
}

fn remount_keeps_everything(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/; cp in/x.parquet mnt/t/y.parquet; rm mnt/t/base.parquet; cp in/x.parquet mnt/t/.lost").ok();
    t.m.umount();
    let _m = cx.mount();
    assert_eq!(
        cx.sh("ls -A mnt/t; cat mnt/t/.delta/version").ok(),
        "x.parquet\ny.parquet\n3\n"
    );
    cx.sh("cmp keep/x.parquet mnt/t/x.parquet; cmp keep/x.parquet mnt/t/y.parquet")
        .ok();
}
