//! Checksums of ours and of other systems against the log.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;
use crate::table::tests::{Made, add, append};
use crate::table::{Outcome, Table};

fn corpus() -> Option<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    if corpus.is_dir() {
        return Some(corpus);
    }
    println!("skipped: no corpus at {}", corpus.display());
    None
}

/// Every `.crc` below `folder`, with its version.
fn checksums(folder: &Path, found: &mut Vec<(PathBuf, u64)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            checksums(&entry.path(), found);
        } else if let Some(LogName::Crc(version)) = LogName::parse(&name) {
            found.push((entry.path(), version));
        }
    }
}

#[test]
fn other_systems_checksums_agree_with_the_replay() {
    let Some(corpus) = corpus() else { return };
    let mut found = Vec::new();
    checksums(&corpus, &mut found);
    let (mut agreed, mut malformed) = (0, 0);
    let mut differ = std::collections::BTreeSet::new();
    for (path, version) in found {
        let body = std::fs::read(&path).unwrap();
        if let Err(reason) = Crc::parse(&body) {
            assert!(
                path.to_str().unwrap().contains("malformed"),
                "{path:?}: {reason}"
            );
            malformed += 1;
            continue;
        }
        let table = path.parent().unwrap().parent().unwrap();
        let dir = Dir::open(table).unwrap();
        let Ok(table) = Table::open(dir, Env::fixed(1)) else {
            continue;
        };
        let Ok(snapshot) = table.at(version) else {
            continue;
        };
        match check(&snapshot, &body) {
            Ok(()) => agreed += 1,
            Err(Mismatch::Differs { field, .. }) => {
                let name = table.dir().path().file_name().unwrap().to_str().unwrap();
                differ.insert((name.to_owned(), field));
            }
            Err(malformed) => panic!("{}: {malformed}", path.display()),
        }
    }
    assert!(agreed > 20 && malformed == 1, "{agreed} {malformed}");
    // Both were edited by hand: one's commits got other timestamps, one's checksum was made for a test of parsers.
    let known = [
        ("cdc_ict_table", "inCommitTimestampOpt"),
        ("crc-full", "numFiles"),
    ];
    let known = known.map(|(table, field)| (table.to_owned(), field));
    assert_eq!(differ, known.into());
}

#[test]
fn every_field_of_the_fullest_checksum_is_known() {
    let Some(corpus) = corpus() else { return };
    let path = corpus
        .join("kernel-data/crc-full/_delta_log")
        .join(LogName::crc(0));
    let body = std::fs::read(path).unwrap();
    let crc = Crc::parse(&body).unwrap();
    assert!(crc.unknown.is_empty(), "{:?}", crc.unknown);
    assert!(crc.file_size_histogram.is_some() && crc.all_files.is_some());
    assert!(crc.deleted_record_counts_histogram_opt.is_some());
    let (before, after): (Value, Value) = (
        serde_json::from_slice(&body).unwrap(),
        serde_json::from_str(&crc.to_json()).unwrap(),
    );
    for key in before.as_object().unwrap().keys() {
        assert!(after.get(key).is_some(), "{key} is lost");
    }
}

/// A table at version 1 with a checksum that fits.
fn committed() -> (Made, Table, Value) {
    let made = Made::new();
    let table = made.open().unwrap();
    let base = table.snapshot();
    assert!(matches!(
        table.commit(&base, &mut append("a")),
        Ok(Outcome::Committed(_))
    ));
    let body = std::fs::read(made.log().join(LogName::crc(1))).unwrap();
    let body = serde_json::from_slice(&body).unwrap();
    (made, table, body)
}

#[test]
fn every_commit_has_a_checksum_that_fits() {
    let (made, table, body) = committed();
    let snapshot = table.snapshot();
    check(&snapshot, body.to_string().as_bytes()).unwrap();
    assert_eq!(body["numFiles"], 1);
    assert_eq!(body["tableSizeBytes"], 1);
    assert_eq!(body["numDeletedRecordsOpt"], 0);
    assert_eq!(
        (&body["setTransactions"], &body["domainMetadata"]),
        (&json!([]), &json!([]))
    );
    assert!(body.get("inCommitTimestampOpt").is_none());
    let commit = std::fs::read_to_string(made.log().join(LogName::commit(1))).unwrap();
    assert!(commit.contains(body["txnId"].as_str().unwrap()));
    let left = std::fs::read_dir(made.log()).unwrap().count();
    assert_eq!(left, 3, "two commits, a checksum and nothing else");
}

#[test]
fn a_checksum_that_is_there_stays() {
    let made = Made::new();
    let table = made.open().unwrap();
    let path = made.log().join(LogName::crc(1));
    std::fs::write(&path, "theirs").unwrap();
    let outcome = table.commit(&table.snapshot(), &mut append("a"));
    assert!(matches!(outcome, Ok(Outcome::Committed(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");
    assert!(matches!(
        check(&table.snapshot(), b"theirs"),
        Err(Mismatch::Malformed { version: 1, .. })
    ));
    // Nor does a commit fail where none can be written.
    let path = made.log().join(LogName::crc(2));
    std::fs::create_dir(&path).unwrap();
    let outcome = table.commit(&table.snapshot(), &mut append("b"));
    assert!(matches!(outcome, Ok(Outcome::Committed(_))));
}

#[test]
fn what_differs_is_named_with_both_values() {
    let (_made, table, body) = committed();
    let snapshot = table.snapshot();
    for (field, value) in [
        ("numFiles", json!(2)),
        ("tableSizeBytes", json!(7)),
        ("numMetadata", json!(0)),
        ("numProtocol", json!(2)),
        ("numDeletedRecordsOpt", json!(3)),
        (
            "protocol",
            json!({"minReaderVersion": 1, "minWriterVersion": 2}),
        ),
        ("metadata", {
            let mut metadata = body["metadata"].clone();
            metadata["configuration"] = json!({"delta.appendOnly": "true"});
            metadata
        }),
        ("setTransactions", json!([{"appId": "a", "version": 1}])),
        (
            "domainMetadata",
            json!([{"domain": "d", "configuration": "", "removed": false}]),
        ),
    ] {
        let mut wrong = body.clone();
        wrong[field] = value;
        let Err(Mismatch::Differs {
            version: 1,
            field: named,
            recorded,
            replayed,
        }) = check(&snapshot, wrong.to_string().as_bytes())
        else {
            panic!("{field} is not checked");
        };
        assert_eq!(named, field);
        assert_ne!(recorded, replayed);
    }
    // What another writer leaves out, or has in another order, is no difference.
    let mut other = body.clone();
    let object = other.as_object_mut().unwrap();
    for absent in ["setTransactions", "domainMetadata", "txnId"] {
        object.shift_remove(absent);
    }
    other["protocol"]["writerFeatures"]
        .as_array_mut()
        .unwrap()
        .reverse();
    check(&snapshot, other.to_string().as_bytes()).unwrap();
}

#[test]
fn long_lists_are_left_out() {
    let made = Made::new();
    let txn = |n: usize| json!({"txn": {"appId": format!("a{n}"), "version": n}});
    let few: Vec<Value> = (0..MAX_LISTED).map(txn).chain([add("x", None)]).collect();
    made.commit(1, &few);
    let table = made.open().unwrap();
    let listed = |table: &Table| of(&table.snapshot(), "t").set_transactions.map(|t| t.len());
    assert_eq!(listed(&table), Some(MAX_LISTED));
    made.commit(2, &[txn(MAX_LISTED)]);
    table.refresh().unwrap();
    assert_eq!(listed(&table), None);
}
