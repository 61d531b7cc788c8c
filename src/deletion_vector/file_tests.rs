use std::io::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::error::{Failure as _, Kind};

const ID: Uuid = Uuid::from_u128(0xd2c6_39aa_8816_431a_aaf6_d3fe_2512_ff61);

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn set(rows: &[u64]) -> RowSet {
    rows.iter().copied().collect()
}

fn no_file(location: &Location) -> Result<File, StoreError> {
    panic!("opened {location:?}")
}

fn fault(bytes: &[u8], descriptor: &DeletionVectorDescriptor, rows: u64) -> VectorFault {
    read_vector(descriptor, |_| Ok(file_of(bytes)), Some(rows))
        .unwrap_err()
        .fault
}

#[test]
fn the_inline_example_decodes() {
    let descriptor = DeletionVectorDescriptor {
        storage_type: "i".to_owned(),
        path_or_inline_dv: "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L".to_owned(),
        offset: None,
        size_in_bytes: 44,
        cardinality: 6,
    };
    let expected = set(&[3, 4, 7, 11, 18, 29]);
    assert_eq!(
        read_vector(&descriptor, no_file, Some(30)).unwrap(),
        expected
    );
    assert_eq!(inline_vector(&expected).unwrap(), descriptor);
    assert!(matches!(
        read_vector(&descriptor, no_file, Some(29))
            .unwrap_err()
            .fault,
        VectorFault::Row {
            row: 29,
            num_records: 29
        }
    ));
    let empty = DeletionVectorDescriptor {
        path_or_inline_dv: String::new(),
        size_in_bytes: 0,
        cardinality: 0,
        ..descriptor
    };
    assert!(read_vector(&empty, no_file, None).unwrap().is_empty());
}

#[test]
fn several_vectors_share_a_file() {
    let sets = [set(&[0]), (5..70_000).collect(), set(&[1, 1 << 40])];
    let written = write_vectors(ID, "xy", &sets.each_ref()).unwrap();
    assert_eq!(
        written.path,
        "xy/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    );
    assert_eq!(written.descriptors[0].offset, Some(1));
    for (descriptor, rows) in written.descriptors.iter().zip(&sets) {
        let open = |location: &Location| {
            assert!(matches!(location, Location::Relative { path, .. } if *path == written.path));
            Ok(file_of(&written.bytes))
        };
        assert_eq!(&read_vector(descriptor, open, None).unwrap(), rows);
    }
    assert!(write_vectors(ID, "../x", &[]).is_err());
}

#[test]
fn everything_is_verified() {
    let written = write_vectors(ID, "", &[&set(&[1, 2, 9])]).unwrap();
    let (bytes, good) = (&written.bytes, &written.descriptors[0]);
    let data = 5..bytes.len() - 4;
    assert!(matches!(
        fault(bytes, good, 9),
        VectorFault::Row { row: 9, .. }
    ));
    let count = DeletionVectorDescriptor {
        cardinality: 2,
        ..good.clone()
    };
    assert!(matches!(
        fault(bytes, &count, 10),
        VectorFault::Cardinality { found: 3, .. }
    ));
    let size = DeletionVectorDescriptor {
        size_in_bytes: good.size_in_bytes - 1,
        ..good.clone()
    };
    assert!(matches!(fault(bytes, &size, 10), VectorFault::Size { .. }));
    let big = DeletionVectorDescriptor {
        size_in_bytes: i32::MAX,
        ..good.clone()
    };
    assert!(matches!(
        fault(bytes, &big, 10),
        VectorFault::TooLarge { .. }
    ));
    let beyond = DeletionVectorDescriptor {
        offset: Some(i32::MAX),
        ..good.clone()
    };
    assert!(matches!(
        fault(bytes, &beyond, 10),
        VectorFault::Short { .. }
    ));
    let mut version = bytes.clone();
    version[0] = 2;
    assert!(matches!(
        fault(&version, good, 10),
        VectorFault::FileVersion(2)
    ));
    for at in data {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        assert!(matches!(
            fault(&flipped, good, 10),
            VectorFault::Checksum { .. }
        ));
    }
    assert!(matches!(
        fault(&bytes[..bytes.len() - 1], good, 10),
        VectorFault::Short { .. }
    ));
}

#[test]
fn a_lost_file_is_damage() {
    let written = write_vectors(ID, "", &[&set(&[1])]).unwrap();
    let error = read_vector(
        &written.descriptors[0],
        |_| {
            Err(StoreError::Io {
                action: "open",
                path: "x".into(),
                source: std::io::ErrorKind::NotFound.into(),
            })
        },
        None,
    )
    .unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn garbled_files_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        offset in proptest::option::of(any::<i32>()),
        size in -1..100_i32,
        cardinality in any::<i64>(),
    ) {
        let descriptor = DeletionVectorDescriptor {
            storage_type: "p".to_owned(),
            path_or_inline_dv: "file:///x".to_owned(),
            offset,
            size_in_bytes: size,
            cardinality,
        };
        prop_assert!(read_vector(&descriptor, |_| Ok(file_of(&bytes)), None).is_err());
    }
}

/// Every table of the corpus: each vector of its JSON log whose file is there.
#[test]
fn the_vectors_of_other_writers_are_read() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    if !corpus.is_dir() {
        println!("skipped: no corpus at {}", corpus.display());
        return;
    }
    let mut logs = Vec::new();
    find_logs(&corpus, &mut logs);
    let (mut read, mut missing) = (0, 0);
    for log in logs {
        let table = log.parent().unwrap();
        for (descriptor, num_records) in descriptors(&log) {
            let found = std::cell::Cell::new(true);
            let open = |location: &Location| {
                let file = open_in(table, location);
                found.set(file.is_ok());
                file
            };
            match read_vector(&descriptor, open, num_records) {
                Ok(rows) => {
                    read += 1;
                    let again = read_vector(&inline_vector(&rows).unwrap(), no_file, num_records);
                    assert_eq!(again.unwrap(), rows);
                }
                Err(_) if !found.get() => missing += 1,
                Err(error) => panic!("{}: {error}", table.display()),
            }
        }
    }
    println!("{read} vectors read, files of {missing} are not in the corpus");
    assert!(read > 80, "{read} vectors");
}

/// Delta's own tests put a prefix before the name of a file.
fn open_in(table: &Path, location: &Location) -> Result<File, StoreError> {
    let io = |source| StoreError::Io {
        action: "open",
        path: table.to_owned(),
        source,
    };
    match location {
        Location::Relative { path, .. } => File::open(table.join(path))
            .or_else(|_| File::open(table.join(format!("test%dv%prefix-{path}"))))
            .map_err(io),
        _ => Err(io(std::io::ErrorKind::NotFound.into())),
    }
}

fn find_logs(dir: &Path, logs: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.ends_with("_delta_log") {
                logs.push(path);
            } else {
                find_logs(&path, logs);
            }
        }
    }
}

fn descriptors(log: &Path) -> Vec<(DeletionVectorDescriptor, Option<u64>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(log).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            for kind in ["add", "remove"] {
                let vector = &line[kind]["deletionVector"];
                if vector.is_object() {
                    let stats: Value = line[kind]["stats"]
                        .as_str()
                        .map_or(Value::Null, |s| serde_json::from_str(s).unwrap());
                    found.push((
                        serde_json::from_value(vector.clone()).unwrap(),
                        stats["numRecords"].as_u64(),
                    ));
                }
            }
        }
    }
    found
}
