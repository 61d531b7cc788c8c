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

/// A descriptor of one file of vectors as an absolute URI, as a clone has it.
fn absolute(of: &DeletionVectorDescriptor, offset: Option<i32>) -> DeletionVectorDescriptor {
    DeletionVectorDescriptor {
        storage_type: "p".to_owned(),
        path_or_inline_dv: "file:///t/x.bin".to_owned(),
        offset,
        ..of.clone()
    }
}

#[test]
fn no_offset_is_the_first_vector() {
    let sets = [set(&[3, 9]), set(&[4])];
    let written = write_vectors(ID, "", &sets.each_ref()).unwrap();
    let read = |descriptor: &DeletionVectorDescriptor| {
        let open = |location: &Location| {
            assert!(matches!(location, Location::Absolute { uri, .. } if uri == "file:///t/x.bin"));
            Ok(file_of(&written.bytes))
        };
        read_vector(descriptor, open, Some(10))
    };
    for offset in [None, Some(0), Some(1)] {
        let rows = read(&absolute(&written.descriptors[0], offset)).unwrap();
        assert_eq!(rows, sets[0]);
    }
    let second = written.descriptors[1].offset;
    let rows = read(&absolute(&written.descriptors[1], second)).unwrap();
    assert_eq!(rows, sets[1]);
    // Anywhere else there is no vector.
    for offset in 2..i32::try_from(written.bytes.len()).unwrap() {
        if Some(offset) != second {
            assert!(read(&absolute(&written.descriptors[0], Some(offset))).is_err());
        }
    }
}

#[test]
fn the_sample_of_the_old_form_is_refused() {
    // PROTOCOL.md 0: big-endian, with another magic number.
    let descriptor = DeletionVectorDescriptor {
        storage_type: "i".to_owned(),
        path_or_inline_dv: "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L".to_owned(),
        offset: None,
        size_in_bytes: 40,
        cardinality: 6,
    };
    let error = read_vector(&descriptor, no_file, None).unwrap_err();
    assert!(matches!(error.fault, VectorFault::Magic(_)), "{error}");
    assert_eq!(error.kind(), Kind::Corrupt);
}

/// A vector in the log of one bucket with these bytes: no checksum protects it.
fn inline_of(bitmap: &[u8], cardinality: i64) -> DeletionVectorDescriptor {
    let mut data = 1_681_511_377_u32.to_le_bytes().to_vec();
    data.extend_from_slice(&1_u64.to_le_bytes());
    data.extend_from_slice(&0_u32.to_le_bytes());
    data.extend_from_slice(bitmap);
    DeletionVectorDescriptor {
        storage_type: "i".to_owned(),
        path_or_inline_dv: z85::encode(&data),
        offset: None,
        size_in_bytes: i32::try_from(data.len()).unwrap(),
        cardinality,
    }
}

#[test]
fn containers_of_every_kind_are_checked() {
    let array = |rows: &[u16]| {
        let mut bytes = 12_346_u32.to_le_bytes().to_vec();
        bytes.extend_from_slice(&1_u32.to_le_bytes());
        bytes.extend_from_slice(&0_u16.to_le_bytes());
        bytes.extend_from_slice(&(u16::try_from(rows.len()).unwrap() - 1).to_le_bytes());
        bytes.extend_from_slice(&16_u32.to_le_bytes());
        rows.iter()
            .for_each(|row| bytes.extend_from_slice(&row.to_le_bytes()));
        bytes
    };
    // Starts and lengths less one.
    let runs = |runs: &[(u16, u16)]| {
        let mut bytes = 12_347_u32.to_le_bytes().to_vec();
        bytes.push(1);
        bytes.extend_from_slice(&0_u16.to_le_bytes());
        bytes.extend_from_slice(&0_u16.to_le_bytes());
        bytes.extend_from_slice(&u16::try_from(runs.len()).unwrap().to_le_bytes());
        for (start, more) in runs {
            bytes.extend_from_slice(&start.to_le_bytes());
            bytes.extend_from_slice(&more.to_le_bytes());
        }
        bytes
    };
    let bits = |declared: u32| {
        let mut bytes = 12_346_u32.to_le_bytes().to_vec();
        bytes.extend_from_slice(&1_u32.to_le_bytes());
        bytes.extend_from_slice(&0_u16.to_le_bytes());
        bytes.extend_from_slice(&u16::try_from(declared - 1).unwrap().to_le_bytes());
        bytes.extend_from_slice(&16_u32.to_le_bytes());
        bytes.extend(std::iter::repeat_n(0xff, 1000));
        bytes.extend(std::iter::repeat_n(0, 7192));
        bytes
    };
    let read = |bytes: &[u8], cardinality| {
        read_vector(&inline_of(bytes, cardinality), no_file, Some(1 << 16))
    };
    assert_eq!(read(&array(&[1, 5, 7]), 3).unwrap(), set(&[1, 5, 7]));
    let expected: RowSet = (3..=5).chain(9..=65_535).collect();
    assert_eq!(
        read(&runs(&[(3, 2), (9, 65_526)]), 65_530).unwrap(),
        expected
    );
    assert_eq!(read(&bits(8000), 8000).unwrap(), (0..8000).collect());
    for (bytes, cardinality) in [
        (array(&[5, 1, 7]), 3),
        (array(&[1, 1, 7]), 3),
        (array(&[1, 5, 7]), 2),
        (runs(&[(9, 1), (3, 2)]), 5),
        (runs(&[(3, 4), (5, 4)]), 10),
        (runs(&[(65_535, 1)]), 2),
        (runs(&[]), 0),
        (bits(8001), 8001),
        (bits(8000), 8001),
    ] {
        assert!(read(&bytes, cardinality).is_err());
    }
}

/// Sparse rows, dense runs, and rows far beyond 32 bits.
fn rows() -> impl Strategy<Value = RowSet> {
    let start = prop_oneof![
        4 => 0..200_000_u64,
        2 => (1_u64 << 32) - 50..(1_u64 << 32) + 50,
        1 => 0..1_u64 << 62
    ];
    let run = (start, prop_oneof![Just(1_u64), 1..9000_u64]);
    proptest::collection::vec(run, 0..8).prop_map(|runs| {
        let mut rows = RowSet::new();
        for (start, len) in runs {
            rows.insert_range(start..start + len);
        }
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(
        sets in proptest::collection::vec(rows(), 1..6),
        prefix in "([a-zA-Z0-9]{1,3}(/[a-z]{1,3})?)?",
        id in any::<u128>(),
    ) {
        let sets: Vec<&RowSet> = sets.iter().collect();
        let written = write_vectors(Uuid::from_u128(id), &prefix, &sets).unwrap();
        for (descriptor, rows) in written.descriptors.iter().zip(sets) {
            // Through the log's JSON.
            let json = serde_json::to_string(descriptor).unwrap();
            let descriptor: DeletionVectorDescriptor = serde_json::from_str(&json).unwrap();
            let open = |location: &Location| {
                assert!(matches!(location, Location::Relative { path, .. } if *path == written.path));
                Ok(file_of(&written.bytes))
            };
            let physical = rows.max().map_or(0, |last| last + 1);
            prop_assert_eq!(&read_vector(&descriptor, open, Some(physical)).unwrap(), rows);
            let inline = inline_vector(rows).unwrap();
            prop_assert_eq!(&read_vector(&inline, no_file, Some(physical)).unwrap(), rows);
            if let Some(last) = rows.max() {
                prop_assert!(read_vector(&inline, no_file, Some(last)).is_err());
                let fewer = DeletionVectorDescriptor { cardinality: inline.cardinality - 1, ..inline.clone() };
                prop_assert!(read_vector(&fewer, no_file, None).is_err());
            }
        }
    }

    /// No byte of a vector in a file can change unseen, and none can be missing.
    #[test]
    fn a_changed_byte_is_an_error(rows in rows(), at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let written = write_vectors(ID, "", &[&rows]).unwrap();
        let mut bytes = written.bytes.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let read = |bytes: &[u8]| read_vector(&written.descriptors[0], |_| Ok(file_of(bytes)), None);
        prop_assert!(read(&bytes).is_err());
        prop_assert!(read(&written.bytes[..at]).is_err());
    }

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
