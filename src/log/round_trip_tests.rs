//! Every action, written and read again: the same, with what we do not know.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,8}",
        any::<String>(),
        Just("\"\\\u{0}\u{1f}\u{2028}é𝄞".to_owned()),
    ]
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), Just(i64::MAX), Just(i64::MIN), 0..100_i64]
}

fn maybe<S: Strategy>(inner: S) -> impl Strategy<Value = Option<S::Value>>
where
    S::Value: Clone,
{
    proptest::option::of(inner)
}

fn texts() -> impl Strategy<Value = BTreeMap<String, Option<String>>> {
    proptest::collection::btree_map(text(), maybe(text()), 0..4)
}

/// Fields of a later protocol.
fn unknown() -> impl Strategy<Value = Map<String, Value>> {
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number().prop_map(Value::from),
        text().prop_map(Value::from),
        proptest::collection::vec(number(), 0..3).prop_map(Value::from),
    ];
    let value = value.prop_recursive(2, 6, 3, |inner| {
        proptest::collection::btree_map(text(), inner, 0..3)
            .prop_map(|m| Value::Object(m.into_iter().collect()))
    });
    proptest::collection::btree_map("future[A-Z][a-z]{1,4}", value, 0..3)
        .prop_map(|m| m.into_iter().collect())
}

fn vector() -> impl Strategy<Value = DeletionVectorDescriptor> {
    let kind = prop_oneof![Just("u"), Just("i"), Just("p")];
    (kind, "[!-~]{1,30}", maybe(1..9_i32), 1..99_i32, 0..99_i64).prop_map(
        |(kind, path, offset, size, cardinality)| {
            let mut value = serde_json::json!({"storageType": kind, "pathOrInlineDv": path, "sizeInBytes": size,
                "cardinality": cardinality});
            if let Some(offset) = offset {
                value["offset"] = offset.into();
            }
            serde_json::from_value(value).unwrap()
        },
    )
}

fn add() -> impl Strategy<Value = Add> {
    let first = (
        text(),
        texts(),
        number(),
        number(),
        any::<bool>(),
        maybe(text()),
    );
    let second = (
        maybe(texts()),
        maybe(vector()),
        maybe(number()),
        maybe(number()),
        maybe(text()),
        unknown(),
    );
    (first, second).prop_map(|(a, b)| Add {
        path: a.0,
        partition_values: a.1,
        size: a.2,
        modification_time: a.3,
        data_change: a.4,
        stats: a.5,
        tags: b.0,
        deletion_vector: b.1,
        base_row_id: b.2,
        default_row_commit_version: b.3,
        clustering_provider: b.4,
        unknown: b.5,
    })
}

fn remove() -> impl Strategy<Value = Remove> {
    let first = (
        text(),
        maybe(number()),
        any::<bool>(),
        maybe(any::<bool>()),
        maybe(texts()),
        maybe(number()),
    );
    let second = (
        maybe(text()),
        maybe(texts()),
        maybe(vector()),
        maybe(number()),
        maybe(number()),
        unknown(),
    );
    (first, second).prop_map(|(a, b)| Remove {
        path: a.0,
        deletion_timestamp: a.1,
        data_change: a.2,
        extended_file_metadata: a.3,
        partition_values: a.4,
        size: a.5,
        stats: b.0,
        tags: b.1,
        deletion_vector: b.2,
        base_row_id: b.3,
        default_row_commit_version: b.4,
        unknown: b.5,
    })
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let plain = proptest::collection::btree_map(text(), text(), 0..4);
    let options = proptest::collection::btree_map(text(), text(), 0..2);
    let names = proptest::collection::vec(text(), 0..3);
    let first = (text(), maybe(text()), maybe(text()), text(), options);
    let second = (text(), names, maybe(number()), plain, unknown());
    (first, second).prop_map(|(a, b)| Metadata {
        id: a.0,
        name: a.1,
        description: a.2,
        format: Format {
            provider: a.3,
            options: a.4,
        },
        schema_string: b.0,
        partition_columns: b.1,
        created_time: b.2,
        configuration: b.3,
        unknown: b.4,
    })
}

fn action() -> impl Strategy<Value = Action> {
    let names = || maybe(proptest::collection::vec(text(), 0..4));
    prop_oneof![
        add().prop_map(Action::Add),
        remove().prop_map(Action::Remove),
        metadata().prop_map(Action::MetaData),
        (any::<i32>(), any::<i32>(), names(), names()).prop_map(|(r, w, reader, writer)| {
            Action::Protocol(Protocol {
                min_reader_version: r,
                min_writer_version: w,
                reader_features: reader,
                writer_features: writer,
            })
        }),
        (text(), number(), maybe(number())).prop_map(|(app_id, version, last_updated)| {
            Action::Txn(Txn {
                app_id,
                version,
                last_updated,
            })
        }),
        (text(), text(), any::<bool>()).prop_map(|(domain, configuration, removed)| {
            Action::DomainMetadata(DomainMetadata {
                domain,
                configuration,
                removed,
            })
        }),
        (text(), texts(), number(), any::<bool>(), maybe(texts())).prop_map(
            |(path, partition_values, size, data_change, tags)| {
                Action::Cdc(Cdc {
                    path,
                    partition_values,
                    size,
                    data_change,
                    tags,
                })
            }
        ),
        unknown().prop_map(|info| Action::CommitInfo(CommitInfo(info))),
    ]
}

proptest! {
    #[test]
    fn actions_come_back_as_they_were(actions in proptest::collection::vec(action(), 1..5)) {
        let body = write_commit(&actions);
        prop_assert_eq!(body.iter().filter(|b| **b == b'\n').count(), actions.len());
        prop_assert_eq!(parse_commit("f", &body).unwrap(), actions);
    }

    #[test]
    fn a_checksum_comes_back_as_it_was(metadata in metadata(), txns in maybe(Just(Vec::new())), size in number(),
        unknown in unknown())
    {
        let crc = Crc {
            txn_id: Some("t".to_owned()),
            table_size_bytes: size,
            num_files: 1,
            num_metadata: 1,
            num_protocol: 1,
            in_commit_timestamp_opt: Some(size),
            set_transactions: txns,
            domain_metadata: None,
            metadata: Some(metadata),
            protocol: None,
            file_size_histogram: None,
            all_files: None,
            num_deleted_records_opt: None,
            num_deletion_vectors_opt: None,
            deleted_record_counts_histogram_opt: None,
            unknown,
        };
        prop_assert_eq!(Crc::parse(crc.to_json().as_bytes()).unwrap(), crc);
    }
}
