//! Tables that other systems wrote: every one mounts, and what is served is right or refused.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

use crate::case::{Cx, cases};
use crate::shell::{EOPNOTSUPP, Ran};
use crate::table::{State, Table, decoded, visible_name};

cases!("corpus":
    kernel_golden,
    kernel_data,
    delta_golden,
    delta_spark,
    delta_rs,
    negative_tables_fail_alone,
    negative_error_logs,
    broken_tables_say_why,
    cat_writes_every_table,
    appends_and_deletes_on_a_copy,
);

/// The folder of the corpus; skips the case where there is none.
fn folder(cx: &Cx) -> PathBuf {
    let folder = std::env::var_os("DELTAFS_CORPUS").map(PathBuf::from);
    let folder =
        folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus"));
    match fs::canonicalize(&folder) {
        Ok(folder) => folder,
        Err(_) => cx.skip(format!("{} is absent", folder.display())),
    }
}

/// Mounts one group of the corpus read-only at `mnt`, and checks each of its tables.
fn group(cx: &Cx, name: &str) {
    cx.time_limit(400);
    let source = folder(cx).join(name);
    let _m = cx.mount_at(source.to_str().unwrap(), "mnt", &["-o", "ro"]);
    let mut problems = Vec::new();
    let mut tables = 0;
    for entry in fs::read_dir(&source).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let inner = if source.join(&name).join("delta").is_dir() {
            format!("{name}/delta")
        } else {
            name
        };
        if !source.join(&inner).join("_delta_log").is_dir() {
            continue;
        }
        tables += 1;
        let check = std::panic::AssertUnwindSafe(|| table(cx, &source.join(&inner), &inner));
        match std::panic::catch_unwind(check) {
            Ok(found) => problems.extend(found.into_iter().map(|p| format!("{inner}: {p}"))),
            Err(_) => problems.push(format!("{inner}: the check itself failed")),
        }
    }
    assert!(tables > 0, "no tables in {}", source.display());
    assert!(
        problems.is_empty(),
        "{tables} tables, {} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

/// The regular files below a directory, and the directories that can't be listed.
fn files(dir: &Path) -> (Vec<PathBuf>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) => {
                problems.push(format!("listing {}: {e}", dir.display()));
                continue;
            }
        };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(_) => found.push(entry.path()),
                Err(e) => problems.push(format!("{}: {e}", entry.path().display())),
            }
        }
    }
    (found, problems)
}

/// What a table's protocol says that stops us from reading it at all.
fn blocked(cx: &Cx, shown: &str) -> Option<Ran> {
    let ran = cx.sh(&format!("cat mnt/{shown}/.delta/version"));
    (!ran.succeeded()).then_some(ran)
}

/// The control files answer; each listed file is served byte by byte, or refused with EOPNOTSUPP.
fn table(cx: &Cx, backing: &Path, shown: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(ran) = blocked(cx, shown) {
        // Reading may be blocked by a feature, which must be named.
        if !ran.err.contains(EOPNOTSUPP) {
            problems.push(format!("version: {ran}"));
        }
    }
    for file in ["info.json", "schema.json", "history", "history.jsonl"] {
        let ran = cx.sh(&format!("cat mnt/{shown}/.delta/{file}"));
        if !ran.succeeded() && !ran.err.contains(EOPNOTSUPP) {
            problems.push(format!("{file}: {ran}"));
        } else if file.ends_with("json")
            && ran.succeeded()
            && let Err(e) = serde_json::from_str::<Value>(&ran.out)
        {
            problems.push(format!("{file} is not JSON: {e}"));
        }
    }

    // By the base name, which is all that a listing shows of the physical path.
    let mut physical: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in files(backing).0 {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        physical.entry(name).or_default().push(path);
    }
    let oracle = Table::at(backing);
    let state = oracle.exists().then(|| {
        let commits_only = oracle.versions().len() as u64 == oracle.version() + 1;
        commits_only.then(|| oracle.state())
    });
    let state = state.flatten();

    let mut listed = Vec::new();
    let (served, unlisted) = files(&cx.path("mnt").join(shown));
    problems.extend(unlisted);
    for path in served {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        listed.push(name.clone());
        let same_name = physical.get(&name).map(Vec::as_slice).unwrap_or_default();
        let add = state
            .as_ref()
            .and_then(|s| s.live().find(|add| visible_name(add) == name));
        let plain = add.and_then(|add| is_plain(&oracle, state.as_ref()?, add));
        match fs::read(&path) {
            Ok(bytes) => {
                if plain == Some(false) {
                    problems.push(format!("{name} needs the logical view, but is served"));
                } else if !same_name
                    .iter()
                    .any(|p| fs::read(p).is_ok_and(|b| b == bytes))
                {
                    problems.push(format!(
                        "{name} is served with other bytes than the stored ones"
                    ));
                }
            }
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                if plain == Some(true) {
                    problems.push(format!("{name} could be served as it is, but is refused"));
                }
            }
            Err(e) if !same_name.is_empty() => problems.push(format!("{name}: {e}")),
            Err(_) => {} // the corpus has only the log of some tables
        }
    }
    listed.sort();
    if let Some(state) = &state {
        let mut live: Vec<String> = state.live().map(visible_name).collect();
        live.sort();
        if listed != live {
            problems.push(format!("listed {listed:?}, live are {live:?}"));
        }
    }
    problems
}

/// Whether the stored bytes are the logical file: no vector, no mapping, exactly the table's columns. `None` where
/// that takes a look at the types, too.
fn is_plain(table: &Table, state: &State, add: &Value) -> Option<bool> {
    let mapped = state
        .property("delta.columnMapping.mode")
        .is_some_and(|mode| mode != "none");
    if !add["deletionVector"].is_null() {
        return Some(false);
    }
    // A mapped column may still have its first name.
    if mapped || state.metadata.to_string().contains("typeChanges") {
        return None;
    }
    let file = File::open(table.path.join(decoded(add["path"].as_str()?))).ok()?;
    let stored = ParquetRecordBatchReaderBuilder::try_new(file).ok()?;
    let stored: Vec<&String> = stored.schema().fields().iter().map(|f| f.name()).collect();
    let partition = state.metadata["partitionColumns"].as_array()?;
    let schema = state.schema();
    // A void column is NULL, and never stored.
    let mut logical = schema["fields"]
        .as_array()?
        .iter()
        .filter(|field| field["type"] != "void" && !partition.iter().any(|p| *p == field["name"]));
    Some(logical.all(|field| stored.iter().any(|s| field["name"] == s.as_str())))
}

fn kernel_golden(cx: &Cx) {
    group(cx, "kernel-golden");
}

fn kernel_data(cx: &Cx) {
    group(cx, "kernel-data");
}

fn delta_golden(cx: &Cx) {
    group(cx, "delta-golden");
}

fn delta_spark(cx: &Cx) {
    group(cx, "delta-spark");
}

fn delta_rs(cx: &Cx) {
    group(cx, "delta-rs");
}

/// A log that can't be read is an error of that table alone, and of the right class.
#[track_caller]
fn is_corrupt(cx: &Cx, shown: &str) {
    let ran = cx.sh(&format!("timeout 30 cat mnt/{shown}/.delta/version"));
    ran.fails("Input/output error");
}

/// A table that asks for more than we have: what it is can be looked at, its data can't be read or written.
#[track_caller]
fn is_unsupported(cx: &Cx, shown: &str) {
    let ran = cx.sh(&format!(
        "set +e; find mnt/{shown} -type f > listed; [ $? = 0 ] || exit 0
         while read -r f; do cat \"$f\" 2>/dev/null > out && echo \"$f was served\"; done < listed; true"
    ));
    assert!(!ran.out.contains("served"), "{ran}");
    cx.sh(&format!("cp wh/good/x.parquet mnt/{shown}/x.parquet"))
        .fails(EOPNOTSUPP);
}

fn negative_tables_fail_alone(cx: &Cx) {
    let source = folder(cx).join("negative");
    let good = cx.builder("good").orders();
    good.file("x.parquet", &crate::batch::orders(0..3)).create();
    cx.sh(&format!(
        "cp -r --no-preserve=mode '{}' wh/",
        source.display()
    ))
    .ok();
    let _m = cx.mount();
    is_unsupported(cx, "negative/deltalog-invalid-protocol-version");
    is_unsupported(cx, "negative/simple_table_features");
    is_corrupt(
        cx,
        "negative/deltalog-state-reconstruction-without-protocol",
    );
    is_corrupt(cx, "negative/versions-not-contiguous");
    let ran = cx.sh("cp wh/good/x.parquet mnt/negative/versions-not-contiguous/");
    assert!(!ran.succeeded(), "{ran}");
    cx.sh("cmp mnt/good/x.parquet wh/good/x.parquet; ls mnt mnt/negative mnt/good")
        .ok();
    let files = "find . -type f | sort";
    let before = cx.sh(&format!("cd '{}'; {files}", source.display())).ok();
    assert_eq!(
        cx.sh(&format!("cd wh/negative; {files}")).ok(),
        before,
        "nothing was written"
    );
}

/// Logs with a missing commit before and after a checkpoint, and catalog-managed ones.
fn negative_error_logs(cx: &Cx) {
    let source = folder(cx).join("negative/data_err_logs");
    let good = cx.builder("good").orders();
    good.file("x.parquet", &crate::batch::orders(0..3)).create();
    cx.sh(&format!(
        "cp -r --no-preserve=mode '{}'/* wh/",
        source.display()
    ))
    .ok();
    let _m = cx.mount();
    for name in ["table_a", "table_b"] {
        cx.sh(&format!(
            "cat mnt/{name}/.delta/version mnt/{name}/.delta/info.json; ls mnt/{name}"
        ))
        .ok();
    }
    is_corrupt(cx, "table_c");
    for name in ["table_d", "table_e", "table_f", "table_h", "table_i"] {
        let ran = cx.sh(&format!("ls mnt/{name}; cat mnt/{name}/.delta/version"));
        assert!(!ran.succeeded(), "{name}: {ran}");
        for text in ["not implemented", "Stale", "Transport"] {
            assert!(!ran.err.contains(text), "{name}: {ran}");
        }
    }
    cx.sh("cmp mnt/good/x.parquet wh/good/x.parquet; ls mnt")
        .ok();
}

/// EIO and EOPNOTSUPP alone help nobody: the words are where the user can read them.
fn broken_tables_say_why(cx: &Cx) {
    let source = folder(cx).join("negative");
    let _m = cx.mount_at(source.to_str().unwrap(), "mnt", &["-o", "ro"]);
    for name in [
        "deltalog-invalid-protocol-version",
        "deltalog-state-reconstruction-without-protocol",
        "versions-not-contiguous",
        "simple_table_features",
    ] {
        cx.sh(&format!("ls mnt/{name}; cat mnt/{name}/.delta/version"));
        let said = cx.sh(&format!(
            "set +e; cat mnt/{name}/.delta/last mnt/{name}/.delta/info.json mnt/.delta/last 2>/dev/null; true"
        ));
        let words = ["\"message\"", "_refused\": \""];
        assert!(
            words.iter().any(|w| said.out.contains(w)),
            "{name} says nothing: {said}"
        );
    }
}

/// The program reads each table as the unit tests of the scan know it (`src/ops/scan/corpus.txt`, which also has every
/// older version): so many lines, or a failure in words.
fn cat_writes_every_table(cx: &Cx) {
    let source = folder(cx);
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/ops/scan/corpus.txt");
    let known = fs::read_to_string(known).unwrap();
    // The newest version of a table is the last line that names it.
    let mut newest = BTreeMap::new();
    for line in known.lines() {
        let (table, outcome) = line.split_once(": ").unwrap();
        let (table, version) = table.rsplit_once(' ').unwrap();
        newest.insert(table, (version, outcome));
    }
    let mut problems = Vec::new();
    for (table, (version, outcome)) in &newest {
        for option in ["", &format!("--version {version}")] {
            let ran = cx.sh(&format!(
                "deltafs cat {option} '{}/{table}'",
                source.display()
            ));
            let lines = ran.out.lines().count();
            let right = match outcome.split_once(" rows ") {
                Some((rows, _)) => ran.succeeded() && rows.parse() == Ok(lines),
                None => ran.status == 1 && ran.err.contains("deltafs: "),
            };
            if !right || ran.err.contains("panicked") {
                problems.push(format!("{table} {option}: expected {outcome}: {ran}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // All but `crc-malformed`, which has no version.
    assert_eq!(newest.len(), 73);
}

fn appends_and_deletes_on_a_copy(cx: &Cx) {
    let source = folder(cx).join("kernel-golden");
    for name in [
        "basic-with-inserts-deletes-checkpoint",
        "multi-part-checkpoint",
        "v2-checkpoint-json",
    ] {
        let from = source.join(name).join("delta");
        cx.sh(&format!(
            "cp -r --no-preserve=mode '{}' wh/{name}",
            from.display()
        ))
        .ok();
    }
    let _m = cx.mount();
    for name in [
        "basic-with-inserts-deletes-checkpoint",
        "multi-part-checkpoint",
        "v2-checkpoint-json",
    ] {
        let version = cx.table(name).version();
        let rows = |cx: &Cx| -> u64 {
            let text = cx.sh(&format!("cat mnt/{name}/.delta/info.json")).ok();
            let info: Value = serde_json::from_str(&text).unwrap();
            info["rows"]
                .as_u64()
                .unwrap_or_else(|| panic!("{name}: rows in {text}"))
        };
        let before = rows(cx);
        let ran = cx.sh(&format!(
            "f=$(find mnt/{name} -name '*.parquet' -size +0 | head -1); cat \"$f\" > in/{name}.parquet
             cp in/{name}.parquet mnt/{name}/more.parquet; cmp in/{name}.parquet mnt/{name}/more.parquet"
        ));
        if !ran.succeeded() {
            // A writer feature that we lack refuses the write, and says so.
            assert!(ran.err.contains(EOPNOTSUPP), "{ran}");
            assert_eq!(cx.table(name).version(), version);
            continue;
        }
        assert_eq!(cx.table(name).version(), version + 1);
        assert!(rows(cx) > before, "{name}");
        cx.sh(&format!("echo TRUE > mnt/{name}/.delta/ctl/delete"))
            .ok();
        assert_eq!(rows(cx), 0, "{name}");
    }
}
