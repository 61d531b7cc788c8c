//! What is packed comes back as it was.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::deletion_vector::DeletionVectorDescriptor;
use crate::log::{Add, Remove};
use crate::table::DataPath;

fn unpacked(add: &Add, dictionary: &Dictionary, packer: &mut Packer<'_>) -> (Add, DataPath) {
    let path = DataPath::parse(&add.path, Path::new("/w/t"));
    let mut bytes = Vec::new();
    packer.add(add, &path, &mut bytes);
    let record = Record::read(path.key().as_bytes(), &bytes);
    let countable = add.num_records().filter(|n| *n < u64::MAX);
    assert_eq!(record.num_records, countable);
    assert_eq!(record.deleted_rows(), add.deleted_rows());
    assert_eq!(record.vector_id(), vector_id(add.deletion_vector.as_ref()));
    (record.to_add(&Words::of(dictionary)), record.data_path())
}

fn add(stats: Option<&str>) -> Add {
    Add {
        path: "a.parquet".to_owned(),
        partition_values: BTreeMap::new(),
        size: 1,
        modification_time: 2,
        data_change: true,
        stats: stats.map(str::to_owned),
        tags: None,
        deletion_vector: None,
        base_row_id: None,
        default_row_commit_version: None,
        clustering_provider: None,
        unknown: Map::new(),
    }
}

/// Texts of statistics as writers leave them, and as nobody should.
const STATS: &[&str] = &[
    r#"{"numRecords":3,"minValues":{"id":0,"s":"a","ts":"2026-01-01T00:00:00.000Z"},"maxValues":{"id":2,"s":"b","ts":"2026-01-02T03:04:05.678Z"},"nullCount":{"id":0,"s":1,"ts":0}}"#,
    r#"{"numRecords":4,"minValues":{"id":-5,"s":"","ts":"1969-12-31T23:59:59.999Z"},"maxValues":{"id":200000,"s":"\"\\\u0000é","ts":"9999-12-31T23:59:59.999Z"},"nullCount":{"id":0,"s":1,"ts":0}}"#,
    r#"{"numRecords":18446744073709551615}"#,
    r#"{"numRecords":-1}"#,
    r#"{"numRecords":"3"}"#,
    r#"{"numRecords":3.0}"#,
    r#"{"numRecords":03}"#,
    r#"{"numRecords":-0,"minValues":{"d":"2026-02-30","e":"2026-02-28","n":"2026-01-01T00:00:00.000","m":"2026-01-01T24:00:00.000Z","f":1e5,"g":1.50}}"#,
    " { \"numRecords\" : 3 , \"minValues\" : { } }\n",
    r#"{}"#,
    r#"{"a":[1,"]",{"b":[2]}],"c":null,"d":true}"#,
    r#"{"a":1,"a":2}"#,
    r#"{"minValues":{"x":{"y":{"z":1}}},"é\"":{"\u0061":9}}"#,
    "",
    "null",
    "not JSON",
    r#"{"a":}"#,
    r#"{"a":1"#,
    r#"{"a":1}}"#,
    r#"{"a":"x"#,
    r#"{"a":1,}"#,
    r#"{"a" 1}"#,
    r#"{"minValues":{"big":9223372036854775807,"bigger":9223372036854775808,"small":-9223372036854775808}}"#,
];

#[test]
fn statistics_come_back_byte_by_byte() {
    let dictionary = Dictionary::default();
    let mut packer = Packer::new(&dictionary);
    // Twice: the second time each template is known.
    for stats in STATS.iter().chain(STATS) {
        let add = add(Some(stats));
        assert_eq!(unpacked(&add, &dictionary, &mut packer).0, add, "{stats}");
    }
}

#[test]
fn one_value_is_found_by_its_path() {
    let dictionary = Dictionary::default();
    let mut packer = Packer::new(&dictionary);
    for stats in &STATS[..2] {
        let mut bytes = Vec::new();
        let add = add(Some(stats));
        let path = DataPath::Inside("a".to_owned());
        packer.add(&add, &path, &mut bytes);
        let words = Words::of(&dictionary);
        let PackedStats::Values(values) = Record::read(b"a", &bytes).stats(&words) else {
            panic!("{stats} has the usual shape");
        };
        let json: serde_json::Value = serde_json::from_str(stats).unwrap();
        for path in [["minValues", "ts"], ["maxValues", "s"], ["nullCount", "s"]] {
            let found: serde_json::Value =
                serde_json::from_str(&values.value(values.find(&path).unwrap())).unwrap();
            assert_eq!(found, json[path[0]][path[1]]);
        }
        assert_eq!(values.find(&["minValues"]), None);
        assert_eq!(values.find(&["minValues", "none"]), None);
    }
}

#[test]
fn more_shapes_than_the_dictionary_takes_are_kept_as_text() {
    let dictionary = Dictionary::default();
    let mut packer = Packer::new(&dictionary);
    for i in 0..5000 {
        let mut add = add(Some(&format!("{{\"column{i}\":{i}}}")));
        add.tags = Some([(format!("tag{i}"), None)].into());
        assert_eq!(unpacked(&add, &dictionary, &mut packer).0, add);
    }
}

fn vector() -> impl Strategy<Value = DeletionVectorDescriptor> {
    let offset = prop::option::of(prop_oneof![Just(0), Just(1), any::<i32>()]);
    ("[uip]", ".{0,40}", offset, any::<i32>(), any::<i64>()).prop_map(
        |(storage_type, path_or_inline_dv, offset, size_in_bytes, cardinality)| {
            DeletionVectorDescriptor {
                storage_type,
                path_or_inline_dv,
                offset,
                size_in_bytes,
                cardinality,
            }
        },
    )
}

fn text_map() -> impl Strategy<Value = BTreeMap<String, Option<String>>> {
    prop::collection::btree_map("[a-c]{0,2}", prop::option::of(".{0,9}"), 0..4)
}

fn unknown() -> impl Strategy<Value = Map<String, serde_json::Value>> {
    prop::collection::vec(("[x-z]{1,3}", any::<i64>()), 0..3)
        .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k, v.into())).collect())
}

/// Values as in statistics, and others.
fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,12}".prop_map(Into::into),
        "[0-9]{4}-[01][0-9]-[0-3][0-9]".prop_map(Into::into),
        "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]\\.[0-9]{3}Z?"
            .prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
            prop::collection::vec((".{0,5}", inner), 0..4)
                .prop_map(|pairs| { serde_json::Value::Object(pairs.into_iter().collect()) }),
        ]
    })
}

proptest! {
    #[test]
    fn adds_come_back(
        path in prop_oneof!["[ -~]{1,20}", "/w/t/[a-z]{1,5}", "s3://b/[a-z]{1,5}", "[a-z]{1,9}\\.parquet"],
        maps in (text_map(), prop::option::of(text_map())),
        numbers in (any::<i64>(), any::<i64>(), prop::option::of(any::<i64>()), prop::option::of(any::<i64>())),
        rest in (any::<bool>(), prop::option::of(vector()), prop::option::of("[a-z]{0,5}"), unknown()),
        stats in prop::option::of(json_value()),
    ) {
        let dictionary = Dictionary::default();
        let mut packer = Packer::new(&dictionary);
        let add = Add {
            path: path.clone(),
            partition_values: maps.0,
            size: numbers.0,
            modification_time: numbers.1,
            data_change: rest.0,
            stats: stats.map(|s| s.to_string()),
            tags: maps.1,
            deletion_vector: rest.1,
            base_row_id: numbers.2,
            default_row_commit_version: numbers.3,
            clustering_provider: rest.2,
            unknown: rest.3,
        };
        for _ in 0..2 {
            let (back, data_path) = unpacked(&add, &dictionary, &mut packer);
            prop_assert_eq!(&back, &add);
            prop_assert_eq!(data_path, DataPath::parse(&path, Path::new("/w/t")));
        }
    }

    #[test]
    fn keys_come_back(
        before in "[a-z0-9-]{0,300}", id in any::<u128>(), upper in any::<bool>(), behind in ".{0,40}",
    ) {
        let mut id = uuid::Uuid::from_u128(id).to_string();
        if upper {
            id = id.to_uppercase();
        }
        for key in [format!("{before}{id}{behind}"), behind.clone(), format!("part-{id}.parquet")] {
            let squeezed = squeeze(key.as_bytes());
            prop_assert_eq!(&*expand(&squeezed), key.as_bytes());
        }
        let squeezed = squeeze(format!("part-{id}.parquet").as_bytes());
        prop_assert!(upper || squeezed.len() == 5 + 16 + 8 + 1);
    }

    #[test]
    fn any_text_of_statistics_comes_back(texts in prop::collection::vec(
        prop_oneof![".{0,60}", "[{}\\[\\]\",:a01.-]{0,20}", json_value().prop_map(|v| v.to_string())], 1..5))
    {
        let dictionary = Dictionary::default();
        let mut packer = Packer::new(&dictionary);
        for text in texts {
            let add = add(Some(&text));
            prop_assert_eq!(unpacked(&add, &dictionary, &mut packer).0, add);
        }
    }

    #[test]
    fn removes_come_back_without_statistics(
        path in prop_oneof!["[ -~]{1,20}", "/w/t/[a-z]{1,5}", "s3://b/[a-z\u{0}]{1,5}"],
        values in prop::option::of(text_map()),
        numbers in prop::array::uniform4(prop::option::of(any::<i64>())),
        rest in (any::<bool>(), prop::option::of(any::<bool>()), prop::option::of(vector()), unknown()),
    ) {
        let dictionary = Dictionary::default();
        let mut packer = Packer::new(&dictionary);
        let remove = Remove {
            path: path.clone(),
            deletion_timestamp: numbers[0],
            data_change: rest.0,
            extended_file_metadata: rest.1,
            partition_values: values,
            size: numbers[1],
            stats: None,
            tags: None,
            deletion_vector: rest.2,
            base_row_id: numbers[2],
            default_row_commit_version: numbers[3],
            unknown: rest.3,
        };
        let path = DataPath::parse(&path, Path::new("/w/t"));
        let mut bytes = Vec::new();
        packer.remove(&remove, &path, &mut bytes);
        let key = tombstone_key(path.key().as_bytes(), &vector_id(remove.deletion_vector.as_ref()));
        prop_assert_eq!(to_remove(&key, &bytes, &Words::of(&dictionary)), remove);
    }

    #[test]
    fn the_map_behaves_as_a_btree_and_old_copies_stay(
        start in prop::collection::btree_map(0u16..3000, 0u8..9, 0..2000),
        rounds in prop::collection::vec(
            prop::collection::btree_map(0u16..3000, prop::option::weighted(0.6, 0u8..9), 0..300), 0..8),
        probe in 0u16..3000,
    ) {
        let key = |k: u16| format!("{k:04}").into_bytes();
        let entries: Vec<_> = start.iter().map(|(k, v)| (key(*k), [*v])).collect();
        let mut ours = PackedMap::from_sorted(entries.iter().map(|(k, v)| (k.as_slice(), [&v[..], &[]])));
        let mut reference: BTreeMap<Vec<u8>, Vec<u8>> = entries.iter().map(|(k, v)| (k.clone(), v.to_vec())).collect();
        let mut states = vec![(ours.clone(), reference.clone())];
        for round in rounds {
            let edits: Vec<_> = round.into_iter().map(|(k, v)| (key(k), v.map(|v| [v]))).collect();
            let before = ours.clone();
            ours = ours.edited(edits.iter().map(|(k, v)| {
                (k.as_slice(), v.as_ref().map(|v| [&[][..], &v[..]]))
            }));
            for (k, v) in &edits {
                match v {
                    Some(v) => reference.insert(k.clone(), v.to_vec()),
                    None => reference.remove(k),
                };
            }
            let unshared: Vec<&[u8]> = ours.changed_in(&before).map(|(k, _)| k).collect();
            for (k, v) in ours.iter() {
                prop_assert!(before.get(k) == Some(v) || unshared.binary_search(&k).is_ok());
            }
            states.push((ours.clone(), reference.clone()));
        }
        let probe = key(probe);
        for (ours, reference) in &states {
            prop_assert!(ours.iter().eq(reference.iter().map(|(k, v)| (k.as_slice(), v.as_slice()))));
            prop_assert_eq!(ours.get(&probe), reference.get(&probe).map(Vec::as_slice));
            let from = reference.range(probe.clone()..).map(|(k, v)| (k.as_slice(), v.as_slice()));
            prop_assert!(ours.from(&probe).eq(from));
            let parts = ours.split(3);
            prop_assert!(parts.len() <= 3);
            prop_assert!(parts.into_iter().flatten().eq(ours.iter()));
        }
    }
}
