//! What a mount shows: directories, tables, control files, names, inodes, listings.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::Value;

use crate::batch::orders;
use crate::builder::add;
use crate::case::{Cx, cases};
use crate::shell::{self, ENAMETOOLONG, ENOENT, ENOTEMPTY, EPERM};
use crate::table::Table;

cases!("namespace":
    plain_directories,
    table_directory_stays,
    nested_tables,
    control_is_not_listed,
    list_control,
    control_files,
    control_files_have_exact_sizes,
    history_follows_commits,
    control_files_are_read_only,
    raw_is_the_physical_table,
    log_is_hidden,
    hostile_names,
    names_too_long,
    inodes_are_stable,
    stat_is_stable,
    a_hundred_thousand_files,
    listing_survives_commits,
    foreign_files_are_read_only,
    no_table_at_the_root_or_above_others,
    links_and_special_files_refused,
    absent_names,
    statfs,
);

fn plain_directories(cx: &Cx) {
    let _m = cx.mount();
    cx.sh("mkdir -p mnt/a/b 'mnt/c d'; test -d wh/a/b; test -d 'wh/c d'")
        .ok();
    cx.sh("rmdir mnt/a").fails(ENOTEMPTY);
    cx.sh("rmdir mnt/a/b mnt/a; test ! -e wh/a; ls mnt").ok();
    cx.sh("mkdir mnt/x; rmdir mnt/x; mkdir mnt/x; rmdir mnt/x")
        .ok();
    cx.sh("mkdir 'mnt/c d'").fails("File exists");
    // Made behind the mount.
    cx.sh("mkdir wh/behind").ok();
    cx.eventually("a directory made behind the mount", || {
        cx.path("mnt/behind").is_dir()
    });
}

fn table_directory_stays(cx: &Cx) {
    let table = cx.orders();
    let _m = cx.mount();
    let ran = cx.sh("rmdir mnt/t");
    assert!(!ran.succeeded(), "rmdir of a table: {ran}");
    assert!(table.exists());
    assert_eq!(table.ids(), (0..10).collect::<Vec<_>>());
}

fn nested_tables(cx: &Cx) {
    cx.builder("sales/eu/t")
        .orders()
        .file("a.parquet", &orders(0..3))
        .create();
    cx.builder("sales/t")
        .orders()
        .file("b.parquet", &orders(3..5))
        .create();
    let _m = cx.mount();
    let found = cx.sh("cd mnt && find . | sort").ok();
    assert_eq!(
        found.lines().collect::<Vec<_>>(),
        [
            ".",
            "./sales",
            "./sales/eu",
            "./sales/eu/t",
            "./sales/eu/t/a.parquet",
            "./sales/t",
            "./sales/t/b.parquet"
        ]
    );
    assert_eq!(cx.sh("cat mnt/sales/eu/t/.delta/version").ok(), "0\n");
}

fn control_is_not_listed(cx: &Cx) {
    cx.orders();
    let _m = cx.mount();
    assert_eq!(cx.sh("ls -A mnt; ls -A mnt/t").ok(), "t\nbase.parquet\n");
    let listed = cx
        .sh("ls mnt/t/.delta mnt/t/.delta/ctl mnt/t/.delta/in")
        .ok();
    for name in [
        "README",
        "version",
        "info.json",
        "history",
        "history.jsonl",
        "schema.json",
        "last",
        "rejected",
        "raw",
        "ctl",
        "in",
        "delete",
        "append",
    ] {
        assert!(
            listed.lines().any(|l| l == name),
            "{name} is not in .delta: {listed}"
        );
    }
    cx.sh("cat mnt/.delta/README; ls mnt/.delta").ok();
    cx.sh("cp -r mnt/t out; tar cf out.tar mnt; test \"$(ls -A out)\" = base.parquet")
        .ok();
    assert!(!cx.sh("tar tf out.tar").ok().contains(".delta"));
}

fn list_control(cx: &Cx) {
    cx.orders();
    let _m = cx.mount_with(&["--list-control"]);
    assert_eq!(
        cx.sh("ls -A mnt; ls -A mnt/t").ok(),
        ".delta\nt\n.delta\nbase.parquet\n"
    );
    cx.sh("find mnt -type f | xargs cat > all").ok();
    assert_eq!(
        cx.table("t").version(),
        0,
        "reading everything changes nothing"
    );
}

fn control_files(cx: &Cx) {
    let table = cx.orders();
    cx.input("x.parquet", &orders(100..110));
    let m = cx.mount();
    cx.sh("cp in/x.parquet mnt/t/; echo 'id < 3' > mnt/t/.delta/ctl/delete")
        .ok();
    let control = m.path.join("t/.delta");
    let json = |name: &str| -> Value {
        let text = fs::read_to_string(control.join(name)).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"))
    };

    assert_eq!(fs::read_to_string(control.join("version")).unwrap(), "2\n");
    let info = json("info.json");
    let state = table.state();
    assert_eq!(info["id"], state.metadata["id"], "info.json: {info}");
    assert_eq!(info["version"], 2, "info.json: {info}");
    assert_eq!(info["files"], 2, "info.json: {info}");
    assert_eq!(info["rows"], 17, "rows without the deleted ones: {info}");
    for part in ["protocol", "isolation", "bytes", "deletionVectors"] {
        let text = info.to_string();
        assert!(
            text.contains(part),
            "info.json does not tell {part}: {text}"
        );
    }
    assert_eq!(json("schema.json"), state.schema());

    let last = json("last");
    assert_eq!(last["version"], 2, "last: {last}");
    let readme = fs::read_to_string(control.join("README")).unwrap();
    for word in ["ctl/delete", "in/append", "history", "rejected", "raw"] {
        assert!(readme.contains(word), "README does not explain {word}");
    }
    assert_eq!(fs::read_dir(control.join("rejected")).unwrap().count(), 0);
}

/// rsync, tar and DuckDB believe the size that stat tells (FUSE.md 1d).
fn control_files_have_exact_sizes(cx: &Cx) {
    cx.orders();
    let _m = cx.mount();
    cx.sh("cd mnt/t/.delta
        for f in README version info.json history history.jsonl schema.json; do
            test $(stat -c %s $f) -gt 0
            test $(stat -c %s $f) = $(cat $f | wc -c)
            test $(stat -c %s $f) = $(tail -c +1 $f | wc -c)
            cp $f $OLDPWD/copy; cmp $f $OLDPWD/copy
            tar cf - $f | tar xOf - | cmp - $f
        done")
        .ok();
}

fn history_follows_commits(cx: &Cx) {
    cx.orders();
    for name in ["a", "b", "c"] {
        cx.input(&format!("{name}.parquet"), &orders(0..1));
    }
    let m = cx.mount();
    for (version, name) in [(1_usize, "a"), (2, "b"), (3, "c")] {
        cx.sh(&format!("cp in/{name}.parquet mnt/t/")).ok();
        let history = fs::read_to_string(m.path.join("t/.delta/history")).unwrap();
        let lines: Vec<&str> = history.lines().collect();
        assert_eq!(lines.len(), version + 1, "one line a version: {history}");
        for (back, line) in lines.iter().enumerate() {
            let found = line.split_whitespace().next();
            assert_eq!(
                found,
                Some((version - back).to_string().as_str()),
                "newest first: {line}"
            );
        }
        assert!(lines[0].contains("WRITE"), "{history}");
    }
    let text = fs::read_to_string(m.path.join("t/.delta/history.jsonl")).unwrap();
    let entries: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let versions: Vec<&Value> = entries.iter().map(|e| &e["version"]).collect();
    assert_eq!(versions, [3, 2, 1, 0], "{text}");
    assert!(
        entries
            .iter()
            .all(|e| e.to_string().contains("\"operation\"")),
        "{text}"
    );
}

fn control_files_are_read_only(cx: &Cx) {
    cx.orders();
    cx.input("x.parquet", &orders(0..1));
    let _m = cx.mount();
    let before = cx.sh("cat mnt/t/.delta/version mnt/t/.delta/README").ok();
    for script in [
        "echo 5 > mnt/t/.delta/version",
        "echo 5 >> mnt/t/.delta/history",
        "rm mnt/t/.delta/version",
        "rm -r mnt/t/.delta",
        "mv mnt/t/.delta/version mnt/t/.delta/v",
        "mv mnt/t/.delta mnt/t/delta",
        "mkdir mnt/t/.delta/new",
        "touch mnt/t/.delta/new",
        "cp in/x.parquet mnt/t/.delta/",
        "rm mnt/t/.delta/ctl/delete",
        "touch mnt/t/.delta/raw/new",
        "rm mnt/t/.delta/raw/base.parquet",
        "rm -r mnt/t/.delta/raw/_delta_log",
        "cp in/x.parquet mnt/t/.delta/raw/",
        "echo '{}' >> mnt/t/.delta/raw/_delta_log/00000000000000000000.json",
    ] {
        let ran = cx.sh(script);
        assert!(!ran.succeeded(), "{ran}");
        assert!(!ran.err.contains("not implemented"), "never ENOSYS: {ran}");
    }
    assert_eq!(
        cx.sh("cat mnt/t/.delta/version mnt/t/.delta/README").ok(),
        before
    );
    assert_eq!(cx.table("t").versions(), [0]);
    assert_eq!(
        cx.sh("ls wh/t wh/t/_delta_log").ok().lines().count(),
        6,
        "nothing was left behind"
    );
}

fn raw_is_the_physical_table(cx: &Cx) {
    cx.builder("t")
        .orders()
        .file("sub/one.parquet", &orders(0..5))
        .file_with_vector("two.parquet", &orders(5..9), &[1])
        .create();
    cx.input("x.parquet", &orders(100..110));
    let _m = cx.mount();
    cx.sh("diff -r wh/t mnt/t/.delta/raw").ok();
    cx.sh("cp in/x.parquet mnt/t/; diff -r wh/t mnt/t/.delta/raw")
        .ok();
    let raw = Table::at(cx.path("mnt/t/.delta/raw"));
    assert_eq!(raw.rows(), cx.table("t").rows());
}

fn log_is_hidden(cx: &Cx) {
    let table = cx.orders();
    cx.input("x.parquet", &orders(0..1));
    let _m = cx.mount();
    assert_eq!(cx.sh("find mnt -name '_delta*'").ok(), "");
    for script in [
        "cp in/x.parquet mnt/t/_delta_log/",
        "echo '{}' > mnt/t/_delta_log/00000000000000000001.json",
        "rm -r mnt/t/_delta_log",
        "mkdir -p mnt/plain && mkdir mnt/plain/_delta_log",
        "mkdir -p mnt/plain mnt/log && mv mnt/log mnt/plain/_delta_log",
    ] {
        let ran = cx.sh(script);
        assert!(!ran.succeeded(), "{ran}");
    }
    assert_eq!(table.versions(), [0]);
    cx.sh("test ! -e wh/plain/_delta_log").ok();
}

fn hostile_names(cx: &Cx) {
    cx.orders();
    let input = cx.input("x.parquet", &orders(100..101));
    let m = cx.mount();
    let mut count = 0;
    for name in [
        "two words",
        "-rf",
        "--help",
        "'quotes\"",
        "new\nline",
        "tab\there",
        "\u{1F600} Zürich",
        "back\\slash",
        "$(date)",
        "*",
        "?",
        "a&b;c|d",
        "percent%2Fslash",
        "50%",
        "trailing ",
        " leading",
        "trailing.",
        "COLON:",
        "a=b",
        "#hash",
        "version",
        "ctl",
    ] {
        let dir = m.path.join(name);
        fs::create_dir(&dir).unwrap_or_else(|e| panic!("mkdir {name:?}: {e}"));
        assert!(
            cx.path("wh").join(name).is_dir(),
            "{name:?} in the warehouse"
        );
        let file = m.path.join("t").join(format!("{name}.parquet"));
        // Not by this process: an open file of ours would be flushed by every program that other cases start.
        let (from, to) = (input.to_str().unwrap(), file.to_str().unwrap());
        shell::run(cx, "cp", &["--", from, to]).ok();
        assert_eq!(
            fs::read(&file).unwrap(),
            fs::read(&input).unwrap(),
            "{name:?}"
        );
        count += 1;
        assert_eq!(cx.table("t").version(), count, "after {name:?}");
        let listed = fs::read_dir(m.path.join("t")).unwrap();
        let listed: Vec<_> = listed.map(|e| e.unwrap().file_name()).collect();
        assert!(
            listed.contains(&file.file_name().unwrap().to_owned()),
            "{name:?}: {listed:?}"
        );
    }
    let bytes = OsStr::from_bytes(b"not \xFF utf-8");
    fs::create_dir(m.path.join(bytes)).expect("names are bytes");
    let listed = fs::read_dir(&m.path).unwrap();
    assert!(
        listed
            .map(|e| e.unwrap().file_name())
            .any(|name| name == bytes)
    );
    cx.table("t").rows();
}

fn names_too_long(cx: &Cx) {
    cx.orders();
    cx.input("x.parquet", &orders(0..1));
    let _m = cx.mount();
    cx.sh("n=$(printf 'd%.0s' {1..255}); mkdir mnt/$n; rmdir mnt/$n")
        .ok();
    cx.sh("n=$(printf 'd%.0s' {1..256}); mkdir mnt/$n")
        .fails(ENAMETOOLONG);
    cx.sh(
        "n=$(printf 'd%.0s' {1..247}).parquet; cp in/x.parquet mnt/t/$n; cmp in/x.parquet mnt/t/$n",
    )
    .ok();
    cx.sh("n=$(printf 'd%.0s' {1..248}).parquet; cp in/x.parquet mnt/t/$n")
        .fails(ENAMETOOLONG);
}

fn inodes_are_stable(cx: &Cx) {
    cx.builder("t")
        .orders()
        .file("a.parquet", &orders(0..3))
        .file("b.parquet", &orders(3..6))
        .create();
    cx.input("x.parquet", &orders(100..110));
    let m = cx.mount();
    let inodes = || {
        let paths = [
            "t",
            "t/a.parquet",
            "t/.delta",
            "t/.delta/version",
            "t/.delta/ctl/delete",
        ];
        paths.map(|path| fs::metadata(m.path.join(path)).unwrap().ino())
    };
    let before = inodes();
    assert_eq!(
        before.iter().collect::<BTreeSet<_>>().len(),
        before.len(),
        "{before:?}"
    );
    cx.sh("cp in/x.parquet mnt/t/.scratch; mv mnt/t/.scratch mnt/t/x.parquet")
        .ok();
    cx.sh("rm mnt/t/b.parquet; cp in/x.parquet mnt/t/y.parquet; rm mnt/t/x.parquet")
        .ok();
    assert_eq!(inodes(), before);
    let listed = cx.sh("ls -i mnt/t/a.parquet").ok();
    assert!(
        listed.starts_with(&before[1].to_string()),
        "readdir and stat agree: {listed}"
    );
}

/// Editors warn when a file's times move without a change (D114).
fn stat_is_stable(cx: &Cx) {
    cx.orders();
    cx.input("x.parquet", &orders(100..110));
    let _m = cx.mount();
    let script = "stat -c '%n %i %s %Y %y %Z' mnt mnt/t mnt/t/base.parquet mnt/t/.delta/* mnt/t/.delta/ctl/*";
    let first = cx.sh(script).ok();
    cx.sh("cat mnt/t/.delta/history mnt/t/base.parquet > out; ls -lR mnt > out")
        .ok();
    assert_eq!(cx.sh(script).ok(), first);
    let version = "stat -c '%s %y' mnt/t/.delta/schema.json";
    let schema = cx.sh(version).ok();
    cx.sh("cp in/x.parquet mnt/t/").ok();
    assert_eq!(
        cx.sh(version).ok(),
        schema,
        "an append does not touch the schema"
    );
}

/// An open directory, read entry by entry through libc.
struct Directory(*mut libc::DIR);

impl Directory {
    fn open(path: &Path) -> Self {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: `path` is a NUL-terminated string that lives through the call.
        let dir = unsafe { libc::opendir(path.as_ptr()) };
        assert!(
            !dir.is_null(),
            "opendir: {}",
            std::io::Error::last_os_error()
        );
        Directory(dir)
    }

    fn next(&mut self) -> Option<String> {
        // SAFETY: the stream is open, and the entry is copied before the next call.
        unsafe {
            let entry = libc::readdir(self.0);
            if entry.is_null() {
                return None;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr());
            Some(name.to_string_lossy().into_owned())
        }
    }

    fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next()).collect()
    }

    fn position(&mut self) -> libc::c_long {
        // SAFETY: the stream is open.
        unsafe { libc::telldir(self.0) }
    }

    fn seek(&mut self, position: libc::c_long) {
        // SAFETY: the stream is open and `position` came from telldir on it.
        unsafe { libc::seekdir(self.0, position) }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: the stream is open and not used again.
        unsafe { libc::closedir(self.0) };
    }
}

fn a_hundred_thousand_files(cx: &Cx) {
    cx.time_limit(400);
    const FILES: usize = 100_000;
    let mut builder = cx.builder("t").orders();
    for i in 0..FILES {
        builder = builder.action("add", add(&format!("part-{i:06}.parquet"), 1000, 10, &[]));
    }
    builder.create();
    let m = cx.mount();
    assert_eq!(
        cx.sh("ls -f mnt/t | wc -l").ok().trim(),
        (FILES + 2).to_string()
    );
    assert_eq!(
        cx.sh("ls -f mnt/t | sort -u | wc -l").ok().trim(),
        (FILES + 2).to_string()
    );
    assert_eq!(cx.sh("stat -c %s mnt/t/part-077777.parquet").ok(), "1000\n");

    let mut directory = Directory::open(&m.path.join("t"));
    let head: Vec<String> = (0..60_000).map(|_| directory.next().unwrap()).collect();
    let position = directory.position();
    let tail = directory.rest();
    assert_eq!(head.len() + tail.len(), FILES + 2);
    directory.seek(position);
    assert_eq!(
        directory.rest(),
        tail,
        "seekdir returns to where telldir was"
    );
}

/// A listing streams from one snapshot: no entry twice, none of the old ones missing (D107).
fn listing_survives_commits(cx: &Cx) {
    let mut builder = cx.builder("t").orders();
    for i in 0..5000 {
        builder = builder.action("add", add(&format!("part-{i:06}.parquet"), 1000, 10, &[]));
    }
    builder.create();
    cx.input("x.parquet", &orders(100..110));
    let m = cx.mount();
    let mut directory = Directory::open(&m.path.join("t"));
    let mut seen: Vec<String> = (0..1000).map(|_| directory.next().unwrap()).collect();
    cx.sh("for i in 1 2 3; do cp in/x.parquet mnt/t/a$i.parquet; done; rm mnt/t/part-000001.parquet mnt/t/part-004999.parquet").ok();
    seen.extend(directory.rest());
    let unique: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "an entry was listed twice");
    let missing: Vec<String> = (2..4999)
        .map(|i| format!("part-{i:06}.parquet"))
        .filter(|name| !unique.contains(name))
        .collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
    assert_eq!(
        cx.sh("ls mnt/t | wc -l").ok(),
        "5001\n",
        "a new listing is of the new version"
    );
}

fn foreign_files_are_read_only(cx: &Cx) {
    cx.orders();
    cx.sh("echo words > wh/notes.txt; mkdir wh/docs; echo more > wh/docs/more.md")
        .ok();
    let _m = cx.mount();
    cx.sh("cmp wh/notes.txt mnt/notes.txt; cmp wh/docs/more.md mnt/docs/more.md")
        .ok();
    for script in [
        "echo x >> mnt/notes.txt",
        "echo x > mnt/notes.txt",
        "truncate -s 0 mnt/notes.txt",
        "rm mnt/docs/more.md",
        "mv mnt/notes.txt mnt/other.txt",
    ] {
        let ran = cx.sh(script);
        assert!(!ran.succeeded(), "{ran}");
    }
    assert_eq!(
        cx.sh("cat wh/notes.txt wh/docs/more.md").ok(),
        "words\nmore\n"
    );
}

fn no_table_at_the_root_or_above_others(cx: &Cx) {
    cx.builder("ns/t")
        .orders()
        .file("a.parquet", &orders(0..3))
        .create();
    cx.input("x.parquet", &orders(0..3));
    let _m = cx.mount();
    cx.sh("cp in/x.parquet mnt/").fails(EPERM);
    cx.sh("cp in/x.parquet mnt/ns/").fails(EPERM);
    cx.sh("test ! -e wh/_delta_log; test ! -e wh/ns/_delta_log; test \"$(ls wh wh/ns)\" = $'wh:\\nns\\n\\nwh/ns:\\nt'").ok();
}

fn links_and_special_files_refused(cx: &Cx) {
    cx.orders();
    let _m = cx.mount();
    for script in [
        "ln mnt/t/base.parquet mnt/t/hard.parquet",
        "ln -s base.parquet mnt/t/soft.parquet",
        "ln -s t mnt/link",
        "mkfifo mnt/t/fifo",
        "mkfifo mnt/fifo",
        "mknod mnt/t/null c 1 3",
    ] {
        cx.sh(script).fails(EPERM);
    }
    cx.py("import socket; socket.socket(socket.AF_UNIX).bind('mnt/t/socket')")
        .fails(EPERM);
    assert_eq!(cx.table("t").version(), 0);
    assert_eq!(
        cx.sh("ls -A mnt mnt/t").ok(),
        "mnt:\nt\n\nmnt/t:\nbase.parquet\n"
    );
}

fn absent_names(cx: &Cx) {
    cx.orders();
    let _m = cx.mount();
    for path in [
        "nosuch",
        "t/nosuch.parquet",
        "t/.delta/nosuch",
        "t/.delta/ctl/nosuch",
        "t/.delta/raw/nosuch",
        "t/.delta/rejected/nosuch",
        "t/nosuch=1",
        ".delta/nosuch",
    ] {
        cx.sh(&format!("stat mnt/{path}")).fails(ENOENT);
        cx.sh(&format!("cat mnt/{path}")).fails(ENOENT);
    }
    cx.sh("ls mnt/t/base.parquet/x").fails("Not a directory");
    // A directory in a table is a partition of it, and this table has none.
    let ran = cx.sh("mkdir mnt/t/country=DE");
    assert!(!ran.succeeded(), "{ran}");
}

fn statfs(cx: &Cx) {
    cx.orders();
    let _m = cx.mount();
    let shown = cx.sh("df --output=size,avail,target mnt | tail -1").ok();
    let numbers: Vec<u64> = shown
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    assert!(
        numbers.len() == 2 && numbers.iter().all(|n| *n > 0),
        "df says {shown}"
    );
    assert!(
        shown.contains(cx.path("mnt").to_str().unwrap()),
        "df says {shown}"
    );
}
