//! Logs that lie: paths that lead out, broken files, odd names. Nothing outside is read or removed.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::batch::{columns, longs, orders};
use crate::builder::{add, commit, field};
use crate::case::{Cx, cases};
use crate::shell::{ENAMETOOLONG, EPERM};

use super::dropping::target;

cases!("hostile":
    paths_that_lead_out_are_not_read,
    paths_that_lead_out_are_not_removed,
    vectors_that_lead_out_are_not_read,
    symbolic_links_are_not_followed,
    log_behind_a_symbolic_link,
    staging_through_a_symbolic_link,
    partition_values_stay_in_their_directory,
    tags_cannot_shadow_or_escape,
    equal_names_are_all_shown,
    huge_names,
    broken_last_checkpoint,
    empty_commit_file,
    garbled_commit,
    version_gap,
    temporary_files_in_the_log,
    broken_checkpoint,
    lying_sizes,
    lying_vectors,
    strange_schema,
    deep_json,
    siblings_keep_working,
);

const SECRET: &str = "the secret";

/// Adds that point outside of `wh/t`, each with a data file there that must stay as it is.
fn outside(cx: &Cx) -> Vec<Value> {
    let file = cx.input("secret.parquet", &orders(500..510));
    fs::create_dir(cx.path("outside")).unwrap();
    for place in ["outside/secret.parquet", "wh/secret.parquet"] {
        fs::copy(&file, cx.path(place)).unwrap();
    }
    let size = fs::metadata(&file).unwrap().len();
    let absolute = cx.path("outside/secret.parquet").display().to_string();
    let paths = [
        "../secret.parquet".to_owned(),
        "../../outside/secret.parquet".to_owned(),
        "%2E%2E/secret.parquet".to_owned(),
        "..%2Fsecret.parquet".to_owned(),
        "x/../../secret.parquet".to_owned(),
        "./../secret.parquet".to_owned(),
        absolute.clone(),
        format!("file:{absolute}"),
        format!("file://{absolute}"),
        format!("FILE://{absolute}"),
        absolute.replace('/', "%2F"),
    ];
    paths.iter().map(|path| add(path, size, 10, &[])).collect()
}

#[track_caller]
fn nothing_outside_changed(cx: &Cx) {
    cx.sh("cmp in/secret.parquet outside/secret.parquet; cmp in/secret.parquet wh/secret.parquet; ls outside | wc -l").ok();
}

fn paths_that_lead_out_are_not_read(cx: &Cx) {
    for (i, action) in outside(cx).into_iter().enumerate() {
        cx.builder(&format!("t{i}"))
            .orders()
            .action("add", action)
            .create();
    }
    cx.orders();
    let _m = cx.mount();
    let ran = cx.sh("set +e; cd mnt; for t in t[0-9]*; do
            for f in $(find $t -type f 2>/dev/null) $t/secret.parquet; do
                cat $f 2>/dev/null && echo \"$f was served\"
            done
            echo 'id < 505' > $t/.delta/ctl/delete 2>/dev/null && echo \"$t was read by delete\"
        done; true");
    assert!(
        !ran.out.contains("was"),
        "{}",
        ran.out
            .replace(|c: char| !c.is_ascii_graphic() && c != '\n', ".")
    );
    cx.sh("cmp mnt/t/base.parquet wh/t/base.parquet").ok();
    nothing_outside_changed(cx);
}

fn paths_that_lead_out_are_not_removed(cx: &Cx) {
    for (i, action) in outside(cx).into_iter().enumerate() {
        cx.builder(&format!("t{i}"))
            .orders()
            .action("add", action)
            .create();
    }
    let _m = cx.mount();
    // These may succeed on the log, or be refused; the files are not the table's to remove.
    cx.sh("set +e; cd mnt; for t in t[0-9]*; do
            find $t -type f -exec rm -f {} + 2>/dev/null
            echo TRUE > $t/.delta/ctl/delete 2>/dev/null
            cp ../in/secret.parquet $t/secret.parquet 2>/dev/null
            rm -rf $t 2>/dev/null
        done; true")
        .ok();
    nothing_outside_changed(cx);
}

/// The absolute form of vectors is for clones inside the roots that are mounted.
fn vectors_that_lead_out_are_not_read(cx: &Cx) {
    fs::write(cx.path("vector.bin"), SECRET).unwrap();
    let uri = format!("file://{}", cx.path("vector.bin").display());
    for (i, path) in [uri.as_str(), "/etc/passwd", "../../vector.bin"]
        .iter()
        .enumerate()
    {
        let name = format!("t{i}");
        let table = cx
            .builder(&name)
            .orders()
            .file("base.parquet", &orders(0..10))
            .create();
        let state = table.state();
        let mut action = state.only().clone();
        let remove = json!({"path": "base.parquet", "dataChange": true, "deletionTimestamp": 1});
        action["deletionVector"] = json!({"storageType": "p", "pathOrInlineDv": path, "offset": 1,
            "sizeInBytes": 4, "cardinality": 1});
        commit(&table, &[json!({"remove": remove}), json!({"add": action})]);
    }
    let _m = cx.mount();
    for t in ["t0", "t1", "t2"] {
        for script in [
            format!("cat mnt/{t}/base.parquet"),
            format!("echo 'id = 3' > mnt/{t}/.delta/ctl/delete"),
        ] {
            let ran = cx.sh(&script);
            assert!(!ran.succeeded(), "{ran}");
        }
        let said = cx.sh(&format!("cat mnt/{t}/.delta/last")).ok();
        assert!(!said.contains(SECRET) && !said.contains("root:"), "{said}");
    }
}

fn symbolic_links_are_not_followed(cx: &Cx) {
    fs::create_dir(cx.path("outside")).unwrap();
    fs::write(cx.path("outside/notes.txt"), SECRET).unwrap();
    let input = cx.input("secret.parquet", &orders(500..510));
    fs::copy(&input, cx.path("outside/secret.parquet")).unwrap();
    let size = fs::metadata(&input).unwrap().len();
    let table = cx
        .builder("t")
        .orders()
        .action("add", add("link/secret.parquet", size, 10, &[]))
        .action("add", add("direct.parquet", size, 10, &[]))
        .create();
    symlink(cx.path("outside"), table.path.join("link")).unwrap();
    symlink(
        cx.path("outside/secret.parquet"),
        table.path.join("direct.parquet"),
    )
    .unwrap();
    symlink(cx.path("outside"), cx.path("wh/dir")).unwrap();
    symlink(cx.path("outside/notes.txt"), cx.path("wh/notes.txt")).unwrap();
    let _m = cx.mount();
    let ran = cx.sh("set +e; find mnt mnt/t/.delta/raw -type f -exec cat {} + 2>/dev/null; ls -lR mnt mnt/t/.delta/raw;
        cat mnt/dir/notes.txt mnt/notes.txt mnt/t/secret.parquet mnt/t/direct.parquet mnt/t/.delta/raw/link/notes.txt 2>/dev/null; true");
    assert!(
        !ran.out.contains(SECRET),
        "read through a link: {}",
        ran.out
    );
    for script in [
        "echo 'id = 505' > mnt/t/.delta/ctl/delete",
        "cp in/secret.parquet mnt/dir/new.parquet",
        "mkdir mnt/dir/new",
        "echo x > mnt/notes.txt",
    ] {
        let ran = cx.sh(script);
        assert!(!ran.succeeded(), "{ran}");
    }
    cx.sh("set +e; rm -f mnt/t/secret.parquet mnt/t/direct.parquet; echo TRUE > mnt/t/.delta/ctl/delete; rm -rf mnt/dir; true").ok();
    assert_eq!(
        cx.sh("ls outside; cat outside/notes.txt").ok(),
        format!("notes.txt\nsecret.parquet\n{SECRET}")
    );
}

fn log_behind_a_symbolic_link(cx: &Cx) {
    let table = cx
        .builder("hidden")
        .orders()
        .file("x.parquet", &orders(0..3))
        .create();
    cx.sh("mv wh/hidden outside; mkdir wh/t; ln -s $PWD/outside/_delta_log wh/t/_delta_log; cp outside/x.parquet wh/t/").ok();
    let _m = cx.mount();
    cx.input("y.parquet", &orders(3..6));
    cx.sh("set +e; cp in/y.parquet mnt/t/; rm -f mnt/t/x.parquet; true");
    assert_eq!(
        cx.sh("ls outside/_delta_log").ok(),
        "00000000000000000000.json\n",
        "nothing was committed there"
    );
    assert!(!table.path.exists());
}

/// A directory that is swapped for a link while it is mounted.
fn staging_through_a_symbolic_link(cx: &Cx) {
    let _t = target(cx);
    cx.sh("mkdir outside; mkdir mnt/u; ls mnt/u; rmdir wh/u; ln -s $PWD/outside wh/u; cp in/x.parquet mnt/u/ || true").ok();
    assert_eq!(
        cx.sh("find outside").ok(),
        "outside\n",
        "nothing was written through the link"
    );
}

fn partition_values_stay_in_their_directory(cx: &Cx) {
    let mut builder = cx
        .builder("t")
        .fields(vec![field("id", "long"), field("p", "string")])
        .partitioned_by(&["p"]);
    let values = [
        "..", ".", "../..", "/etc", "a/b", "%2F", "", "\n", "\u{7f}", "x\u{0}y",
    ];
    let rows = columns(vec![("id", longs([1]))]);
    for (i, value) in values.iter().enumerate() {
        builder = builder.file_in(&format!("{i}.parquet"), &rows, &[("p", Some(value))]);
    }
    builder.create();
    let m = cx.mount();
    assert_eq!(
        cx.sh("find mnt/t -name '*.parquet' | wc -l").ok().trim(),
        values.len().to_string()
    );
    assert_eq!(cx.sh("find mnt/t -name '*.parquet' -print0 | xargs -0 cat | wc -c; cat wh/t/*.parquet | wc -c").ok().lines().collect::<std::collections::BTreeSet<_>>().len(), 1);
    for entry in fs::read_dir(m.path.join("t")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with("p=") && !name.contains('\n'), "{name:?}");
    }
}

/// `deltafs.name` is what another writer says, too.
fn tags_cannot_shadow_or_escape(cx: &Cx) {
    let names = [
        ".delta",
        "_delta_log",
        "..",
        ".",
        "",
        "a/b",
        "../../x.parquet",
        "/etc/passwd",
        "x\u{0}.parquet",
        "country=DE",
        ".hidden.parquet",
        "new\nline.parquet",
    ];
    let mut builder = cx.builder("t").orders();
    let file = cx.input("x.parquet", &orders(0..1));
    let size = fs::metadata(&file).unwrap().len();
    for (i, name) in names.iter().enumerate() {
        let path = format!("{i}.parquet");
        fs::copy(&file, cx.path("wh/t").join(&path)).unwrap();
        let mut action = add(&path, size, 1, &[]);
        action["tags"] = json!({"deltafs.name": name});
        builder = builder.action("add", action);
    }
    builder.create();
    let _m = cx.mount();
    assert_eq!(
        cx.sh("cat mnt/t/.delta/version").ok(),
        "0\n",
        "the control directory is not shadowed"
    );
    cx.sh("ls mnt/t/.delta/ctl; test ! -e mnt/t/_delta_log")
        .ok();
    // Every row can be reached by a plain reader, under whatever name.
    let count = cx
        .sh("find mnt/t -type f -print0 | tr -cd '\\0' | wc -c")
        .ok();
    assert_eq!(count.trim(), names.len().to_string());
    let total = cx
        .sh("find mnt/t -type f -print0 | xargs -0 cat | wc -c")
        .ok();
    assert_eq!(total.trim(), (names.len() as u64 * size).to_string());
    assert_eq!(cx.sh("find mnt/t -mindepth 1 -type d").ok(), "");
}

fn equal_names_are_all_shown(cx: &Cx) {
    let table = cx
        .builder("t")
        .orders()
        .file("a/part.parquet", &orders(0..3))
        .file("b/part.parquet", &orders(3..6))
        .file("part.parquet", &orders(6..9))
        .create();
    let m = cx.mount();
    let listed = fs::read_dir(m.path.join("t")).unwrap();
    let names: Vec<_> = listed.map(|e| e.unwrap().path()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let mut ids: Vec<i64> = names
        .iter()
        .flat_map(|path| crate::table::ids_of_file(path))
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..9).collect::<Vec<_>>());
    // Removing one removes that one.
    let gone = crate::table::ids_of_file(&names[0]);
    fs::remove_file(&names[0]).unwrap();
    assert_eq!(
        table.ids(),
        (0..9).filter(|id| !gone.contains(id)).collect::<Vec<_>>()
    );
}

fn huge_names(cx: &Cx) {
    let long = "x".repeat(300);
    let mut named = add("y.parquet", 10, 1, &[]);
    named["tags"] = json!({"deltafs.name": format!("{long}.parquet")});
    cx.builder("t")
        .fields(vec![field("id", "long"), field("p", "string")])
        .partitioned_by(&["p"])
        .action(
            "add",
            add(&format!("{long}.parquet"), 10, 1, &[("p", Some("a"))]),
        )
        .action(
            "add",
            add("z.parquet", 10, 1, &[("p", Some(long.as_str()))]),
        )
        .file_in(
            "good.parquet",
            &columns(vec![("id", longs([1]))]),
            &[("p", Some("a"))],
        )
        .create();
    cx.builder("u").orders().action("add", named).create();
    let _m = cx.mount();
    // A name that no directory can hold is an error of its own; what else there is stays in reach.
    let ran = cx.sh("ls -lR mnt > out");
    assert!(ran.succeeded() || ran.err.contains(ENAMETOOLONG), "{ran}");
    cx.sh("cmp wh/t/good.parquet mnt/t/p=a/good.parquet; cat mnt/t/.delta/version mnt/u/.delta/version").ok();
}

/// D82.
fn broken_last_checkpoint(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/").ok();
    t.m.umount();
    for garbage in [
        "",
        "{",
        "garbage",
        "{\"version\":-1,\"size\":1}",
        "{\"version\":99,\"size\":1}",
        "[]",
        "{\"version\":\"1\"}",
    ] {
        fs::write(cx.path("wh/t/_delta_log/_last_checkpoint"), garbage).unwrap();
        let m = cx.mount();
        assert_eq!(
            cx.sh("ls mnt/t; cat mnt/t/.delta/version").ok(),
            "base.parquet\nx.parquet\n1\n",
            "{garbage}"
        );
        m.umount();
    }
}

/// D83: an empty file is not a version, and nothing is built on it.
fn empty_commit_file(cx: &Cx) {
    let t = target(cx);
    t.m.umount();
    fs::write(t.table.commit_path(1), "").unwrap();
    let _m = cx.mount();
    let ran = cx.sh("cat mnt/t/.delta/version");
    assert!(!ran.succeeded(), "{ran}");
    for script in [
        "cp in/x.parquet mnt/t/",
        "echo TRUE > mnt/t/.delta/ctl/delete",
    ] {
        let ran = cx.sh(script);
        assert!(!ran.succeeded(), "{ran}");
    }
    assert_eq!(cx.sh("ls wh/t/_delta_log").ok().lines().count(), 2);
}

fn garbled_commit(cx: &Cx) {
    for (i, garbage) in [
        "{\"add\":",
        "not json\n",
        "\u{0}\u{0}\u{0}",
        "[1,2]\n",
        "{\"add\":7}\n",
        "{\"remove\":{}}\n",
    ]
    .iter()
    .enumerate()
    {
        let table = cx
            .builder(&format!("t{i}"))
            .orders()
            .file("x.parquet", &orders(0..3))
            .create();
        fs::write(table.commit_path(1), garbage).unwrap();
    }
    cx.orders();
    let _m = cx.mount();
    for i in 0..6 {
        let ran = cx.sh(&format!("cat mnt/t{i}/.delta/version"));
        assert!(!ran.succeeded(), "{ran}");
    }
    cx.sh("cmp mnt/t/base.parquet wh/t/base.parquet; ls mnt")
        .ok();
}

fn version_gap(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/a.parquet; cp in/x.parquet mnt/t/b.parquet")
        .ok();
    t.m.umount();
    fs::remove_file(t.table.commit_path(1)).unwrap();
    let _m = cx.mount();
    let ran = cx.sh("cat mnt/t/.delta/version");
    assert!(!ran.succeeded(), "{ran}");
    let ran = cx.sh("cp in/x.parquet mnt/t/c.parquet");
    assert!(!ran.succeeded(), "{ran}");
    assert!(!t.table.commit_path(1).exists() && !t.table.commit_path(3).exists());
}

/// D84.
fn temporary_files_in_the_log(cx: &Cx) {
    let t = target(cx);
    cx.sh(
        "cd wh/t/_delta_log; echo x > _commit_ab.json.tmp; echo x > .00000000000000000005.json.crc
        echo x > 00000000000000000001.json.tmp; echo x > .tmp_1; mkdir _staged_commits _sidecars
        echo x > _staged_commits/00000000000000000001.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json
        echo x > 1.json; echo x > 00000000000000000001.json.gz; mkdir 00000000000000000007.json.d
        echo x > 00000000000000000001.crc",
    )
    .ok();
    cx.sh("cat mnt/t/.delta/version; cp in/x.parquet mnt/t/")
        .ok();
    assert_eq!(t.table.version(), 1);
    t.m.umount();
    let _m = cx.mount();
    assert_eq!(
        cx.sh("cat mnt/t/.delta/version; ls mnt/t").ok(),
        "1\nbase.parquet\nx.parquet\n"
    );
}

/// A checkpoint that can't be read is no reason to fail while the commits are there.
fn broken_checkpoint(cx: &Cx) {
    let t = target(cx);
    cx.sh("cp in/x.parquet mnt/t/").ok();
    t.m.umount();
    for garbage in [&b""[..], b"PAR1", &[0; 1000]] {
        fs::write(
            cx.path("wh/t/_delta_log/00000000000000000001.checkpoint.parquet"),
            garbage,
        )
        .unwrap();
        fs::write(
            cx.path("wh/t/_delta_log/_last_checkpoint"),
            "{\"version\":1,\"size\":3}",
        )
        .unwrap();
        let m = cx.mount();
        assert_eq!(
            cx.sh("cat mnt/t/.delta/version; ls mnt/t").ok(),
            "1\nbase.parquet\nx.parquet\n"
        );
        m.umount();
    }
}

/// The log's size is not the file's: an error, or the true bytes; never more, never padding.
fn lying_sizes(cx: &Cx) {
    for (i, size) in [0_u64, 1, 10_000_000, i64::MAX as u64].iter().enumerate() {
        let table = cx
            .builder(&format!("t{i}"))
            .orders()
            .action("add", add("x.parquet", *size, 3, &[]))
            .create();
        crate::sample::write_parquet(&table.path.join("x.parquet"), &orders(0..3));
    }
    cx.orders();
    let _m = cx.mount();
    for i in 0..4 {
        let ran = cx.sh(&format!(
            "ls -l mnt/t{i}; timeout 30 cat mnt/t{i}/x.parquet > out"
        ));
        assert!(ran.status != 124, "{ran}");
        let served = fs::read(cx.path("out")).unwrap();
        let stored = fs::read(cx.path(&format!("wh/t{i}/x.parquet"))).unwrap();
        assert!(
            stored.starts_with(&served),
            "t{i}: bytes that the file does not have"
        );
    }
    cx.sh("cmp mnt/t/base.parquet wh/t/base.parquet").ok();
}

fn lying_vectors(cx: &Cx) {
    for (i, edit) in [
        ("cardinality", json!(3)),
        ("sizeInBytes", json!(7)),
        ("sizeInBytes", json!(4_000_000_000_u64)),
        ("offset", json!(1_000_000)),
        ("storageType", json!("x")),
        ("pathOrInlineDv", json!("nosuchfile")),
    ]
    .iter()
    .enumerate()
    {
        let table = cx
            .builder(&format!("t{i}"))
            .orders()
            .file_with_vector("x.parquet", &orders(0..10), &[1, 2])
            .create();
        let path = table.commit_path(0);
        let lines = fs::read_to_string(&path).unwrap();
        let edited = lines.lines().map(|line| {
            let mut action: Value = serde_json::from_str(line).unwrap();
            if action.get("add").is_some() {
                action["add"]["deletionVector"][edit.0] = edit.1.clone();
            }
            format!("{action}\n")
        });
        fs::write(&path, edited.collect::<String>()).unwrap();
    }
    let _m = cx.mount();
    for i in 0..6 {
        for script in [
            format!("cat mnt/t{i}/x.parquet"),
            format!("echo 'id = 5' > mnt/t{i}/.delta/ctl/delete"),
        ] {
            let ran = cx.sh(&script);
            assert!(!ran.succeeded(), "never an empty vector: {ran}");
        }
        assert_eq!(cx.table(&format!("t{i}")).versions(), [0]);
    }
}

fn strange_schema(cx: &Cx) {
    for (i, schema) in [
        "", "{", "7", "{\"type\":\"struct\"}", "{\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"quaternion\",\"nullable\":true,\"metadata\":{}}]}",
        "{\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"decimal(99,1)\",\"nullable\":true,\"metadata\":{}}]}",
        "{\"type\":\"struct\",\"fields\":[]}",
    ]
    .iter()
    .enumerate()
    {
        let table = cx.builder(&format!("t{i}")).create();
        let path = table.commit_path(0);
        let lines = fs::read_to_string(&path).unwrap();
        let edited = lines.lines().map(|line| {
            let mut action: Value = serde_json::from_str(line).unwrap();
            if action.get("metaData").is_some() {
                action["metaData"]["schemaString"] = json!(schema);
            }
            format!("{action}\n")
        });
        fs::write(&path, edited.collect::<String>()).unwrap();
    }
    cx.input("x.parquet", &orders(0..3));
    cx.orders();
    let _m = cx.mount();
    for i in 0..7 {
        let ran = cx.sh(&format!("cp in/x.parquet mnt/t{i}/"));
        assert!(!ran.succeeded(), "{ran}");
        cx.sh(&format!("set +e; ls mnt/t{i}; cat mnt/t{i}/.delta/*; true"));
    }
    cx.sh("ls mnt; cmp mnt/t/base.parquet wh/t/base.parquet")
        .ok();
}

fn deep_json(cx: &Cx) {
    let table = cx.builder("deep").orders().create();
    let deep = format!(
        "{{\"commitInfo\":{}{}}}\n",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    fs::write(table.commit_path(1), deep).unwrap();
    let table = cx.builder("nested").create();
    let path = table.commit_path(0);
    let mut kind = json!("long");
    for _ in 0..60 {
        kind = json!({"type": "array", "elementType": kind, "containsNull": true});
    }
    let schema = json!({"type": "struct", "fields": [field("a", kind)]}).to_string();
    let lines = fs::read_to_string(&path).unwrap();
    let edited = lines.lines().map(|line| {
        let mut action: Value = serde_json::from_str(line).unwrap();
        if action.get("metaData").is_some() {
            action["metaData"]["schemaString"] = json!(schema);
        }
        format!("{action}\n")
    });
    fs::write(&path, edited.collect::<String>()).unwrap();
    cx.orders();
    let m = cx.mount();
    cx.sh("set +e; ls -R mnt; cat mnt/deep/.delta/version mnt/nested/.delta/schema.json; true");
    assert!(m.is_running(), "the daemon survives deep nesting");
    cx.sh("cmp mnt/t/base.parquet wh/t/base.parquet").ok();
}

fn siblings_keep_working(cx: &Cx) {
    let t = target(cx);
    let bad = cx.builder("bad").orders().create();
    fs::write(bad.commit_path(0), "garbage").unwrap();
    fs::create_dir_all(cx.path("wh/emptylog/_delta_log")).unwrap();
    fs::create_dir_all(cx.path("wh/filelog")).unwrap();
    fs::write(cx.path("wh/filelog/_delta_log"), "a file").unwrap();
    cx.within(
        std::time::Duration::from_secs(3),
        "the new directories show",
        || cx.path("mnt/filelog").exists(),
    );
    cx.sh("ls mnt; cp in/x.parquet mnt/t/; echo 'id = 1' > mnt/t/.delta/ctl/delete")
        .ok();
    assert_eq!(t.table.version(), 2);
    let ran = cx.sh("cat mnt/bad/.delta/version");
    assert!(!ran.succeeded(), "{ran}");
    cx.sh("set +e; cp in/x.parquet mnt/filelog/; true");
    assert_eq!(
        fs::read_to_string(cx.path("wh/filelog/_delta_log")).unwrap(),
        "a file"
    );
    let ran = cx.sh("ln -s /etc mnt/t/etc");
    ran.fails(EPERM);
}
