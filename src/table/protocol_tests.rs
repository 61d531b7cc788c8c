//! The gate and upgrades.

use super::*;
use crate::schema::StructField;

fn protocol(reader: i32, writer: i32, r: &[&str], w: &[&str]) -> Protocol {
    let list = |names: &[&str]| Some(names.iter().map(|n| (*n).to_owned()).collect());
    Protocol {
        min_reader_version: reader,
        min_writer_version: writer,
        reader_features: if reader == 3 { list(r) } else { None },
        writer_features: if writer == 7 { list(w) } else { None },
    }
}

fn metadata(configuration: &[(&str, &str)]) -> Metadata {
    Metadata {
        id: "x".to_owned(),
        name: None,
        description: None,
        format: crate::log::Format::default(),
        schema_string: String::new(),
        partition_columns: Vec::new(),
        created_time: None,
        configuration: configuration
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        unknown: serde_json::Map::new(),
    }
}

/// The message and the hint of a refusal.
fn told(result: Result<(), TableError>) -> String {
    use crate::error::Failure as _;
    let error = result.unwrap_err();
    format!("{error}; {}", error.hint().unwrap_or_default())
}

#[test]
fn a_refusal_names_the_feature() {
    let schema = StructType::default();
    let p = protocol(3, 7, &["zap"], &["zap"]);
    let said = told(check_read(&p, &metadata(&[]), &schema));
    assert!(said.contains("the feature zap"), "{said}");
    let p = protocol(1, 7, &[], &["zap"]);
    assert!(check_read(&p, &metadata(&[]), &schema).is_ok());
    let said = told(check_write(&p, &metadata(&[]), &schema));
    assert!(
        said.contains("zap") && said.contains("reading works"),
        "{said}"
    );
    let said = told(check_read(
        &protocol(99, 2, &[], &[]),
        &metadata(&[]),
        &schema,
    ));
    assert!(said.contains("reader version 99"), "{said}");
    for lists in [(&["catalogManaged"][..], 3), (&[], 1)] {
        let p = protocol(lists.1, 7, lists.0, &["catalogManaged"]);
        let said = told(check_read(&p, &metadata(&[]), &schema));
        assert!(
            said.contains("catalogManaged") && said.contains("through that catalog"),
            "{said}"
        );
    }
}

/// Every row of PROTOCOL.md A4: what may be read, what may be written where the table makes no use of it.
#[test]
fn the_gate_has_every_row() {
    let schema = StructType::default();
    let read = |name: &str| {
        let p = protocol(3, 7, &[name], &[name]);
        check_read(&p, &metadata(&[]), &schema).is_ok()
    };
    let write = |name: &str| {
        let p = upgrade(&protocol(1, 2, &[], &[]), &[name]).unwrap();
        check_write(&p, &metadata(&[]), &schema).is_ok()
    };
    let written = "appendOnly invariants checkConstraints changeDataFeed generatedColumns columnMapping \
        identityColumns deletionVectors timestampNtz timestampWithoutTimezone typeWidening typeWidening-preview \
        domainMetadata rowTracking v2Checkpoint inCommitTimestamp clustering vacuumProtocolCheck \
        allowColumnDefaults checkpointProtection materializePartitionColumns icebergCompatV1 icebergCompatV2 \
        icebergCompatV3 variantType variantType-preview variantShredding variantShredding-preview collations \
        collations-preview";
    let only_read = "inCommitTimestamp-preview icebergWriterCompatV1 icebergWriterCompatV3 columnMappingUsageTracking \
        redirectWriterOnly-preview";
    let refused = "geospatial geospatial-dev timestampNanos adaptiveMetadata-preview redirectReaderWriter-preview \
        catalogManaged catalogOwned catalogOwned-preview coordinatedCommits-preview";
    let mut all: Vec<&str> = Vec::new();
    for name in written.split_whitespace() {
        assert!(read(name) && write(name), "{name}");
        all.push(name);
    }
    for name in only_read.split_whitespace() {
        assert!(read(name) && !write(name), "{name}");
        all.push(name);
    }
    for name in refused.split_whitespace() {
        assert!(!read(name) && !write(name), "{name}");
        all.push(name);
    }
    let mut rows: Vec<&str> = FEATURES.iter().map(|f| f.name).collect();
    rows.sort_unstable();
    all.sort_unstable();
    assert_eq!(rows, all);
}

#[test]
fn what_a_table_uses_and_we_do_not_write_is_refused_with_a_way_out() {
    let field = |key: &str| {
        let mut field = StructField::new("c", DataType::Primitive(Primitive::Long), true);
        field.metadata.insert(key.to_owned(), "1".into());
        StructType {
            fields: vec![field],
        }
    };
    let variant = StructType {
        fields: vec![StructField::new(
            "c",
            DataType::Primitive(Primitive::Variant),
            true,
        )],
    };
    for (feature, schema, property, word) in [
        (
            "generatedColumns",
            field("delta.generationExpression"),
            "",
            "generated",
        ),
        (
            "identityColumns",
            field("delta.identity.start"),
            "",
            "identity",
        ),
        (
            "allowColumnDefaults",
            field("CURRENT_DEFAULT"),
            "",
            "defaults",
        ),
        ("collations", field("__COLLATIONS"), "", "collations"),
        ("variantType", variant, "", "variant"),
        (
            "icebergCompatV2",
            StructType::default(),
            "delta.enableIcebergCompatV2",
            "Iceberg",
        ),
    ] {
        let p = upgrade(&protocol(1, 2, &[], &[]), &[feature]).unwrap();
        let metadata = metadata(&[(property, "true")]);
        assert!(check_read(&p, &metadata, &schema).is_ok(), "{feature}");
        let said = told(check_write(&p, &metadata, &schema));
        assert!(said.contains(feature) && said.contains(word), "{said}");
    }
}

#[test]
fn a_legacy_version_is_refused_only_for_what_is_used() {
    // D75
    let schema = StructType {
        fields: vec![StructField::new(
            "a",
            DataType::Primitive(Primitive::Long),
            true,
        )],
    };
    let p = protocol(2, 6, &[], &[]);
    assert!(check_write(&p, &metadata(&[]), &schema).is_ok());
    let on = metadata(&[(MAPPING_MODE, "name"), (MAX_COLUMN_ID, "1")]);
    let said = told(check_write(&p, &on, &schema));
    assert!(said.contains("column `a` has no"), "{said}");
    let mut mapped = schema.clone();
    mapping::assign(&mut mapped, 0, &mut String::new);
    assert!(check_write(&p, &on, &mapped).is_ok());
    // The versions that imply the feature are both needed.
    let said = told(check_write(&protocol(1, 2, &[], &[]), &on, &mapped));
    assert!(said.contains("does not list columnMapping"), "{said}");
    let said = told(check_read(
        &p,
        &metadata(&[(MAPPING_MODE, "sideways")]),
        &mapped,
    ));
    assert!(said.contains("sideways"), "{said}");
}

#[test]
fn physical_names_without_mapping_are_not_written_over() {
    let mut schema = StructType {
        fields: vec![StructField::new(
            "a",
            DataType::Primitive(Primitive::Long),
            true,
        )],
    };
    schema.fields[0].metadata.insert(
        crate::schema::MAPPING_PHYSICAL_NAME.to_owned(),
        "col-1".into(),
    );
    let said = told(check_write(
        &protocol(2, 5, &[], &[]),
        &metadata(&[]),
        &schema,
    ));
    assert!(said.contains("another physical name"), "{said}");
}

#[test]
fn lists_that_contradict_each_other_are_errors() {
    let bad = [
        protocol(3, 6, &["deletionVectors"], &[]),
        protocol(0, 2, &[], &[]),
        Protocol {
            reader_features: None,
            ..protocol(3, 7, &[], &[])
        },
        Protocol {
            writer_features: None,
            ..protocol(1, 7, &[], &[])
        },
        Protocol {
            writer_features: Some(vec!["appendOnly".to_owned()]),
            ..protocol(1, 2, &[], &[])
        },
        Protocol {
            reader_features: Some(vec!["columnMapping".to_owned()]),
            ..protocol(2, 7, &[], &["columnMapping"])
        },
    ];
    for p in bad {
        assert!(
            matches!(well_formed(&p, 3), Err(TableError::Malformed { .. })),
            "{p:?}"
        );
    }
    let said = told(check_read(
        &protocol(3, 7, &["deletionVectors"], &[]),
        &metadata(&[]),
        &StructType::default(),
    ));
    assert!(
        said.contains("deletionVectors among writerFeatures"),
        "{said}"
    );
    // Readers that don't know of it read it wrongly: nothing to build upon, but reading is our own affair.
    let schema = StructType::default();
    for p in [
        protocol(1, 7, &[], &["deletionVectors"]),
        protocol(3, 7, &[], &["deletionVectors"]),
        protocol(1, 7, &[], &["columnMapping"]),
        protocol(1, 7, &[], &["rowTracking"]),
    ] {
        assert!(well_formed(&p, 3).is_ok(), "{p:?}");
        assert!(check_read(&p, &metadata(&[]), &schema).is_ok(), "{p:?}");
        assert!(check_write(&p, &metadata(&[]), &schema).is_err(), "{p:?}");
    }
    assert!(
        check_write(
            &protocol(2, 7, &[], &["columnMapping"]),
            &metadata(&[]),
            &schema
        )
        .is_ok()
    );
}

#[test]
fn a_new_table_names_what_version_2_implied() {
    let schema = StructType::default();
    let vectors = metadata(&[("delta.enableDeletionVectors", "true")]);
    let p = new_table(&vectors, &schema).unwrap();
    assert_eq!((p.min_reader_version, p.min_writer_version), (3, 7));
    assert_eq!(p.reader_features.unwrap(), ["deletionVectors"]);
    assert_eq!(
        p.writer_features.unwrap(),
        ["appendOnly", "deletionVectors", "invariants"]
    );
    let p = new_table(&metadata(&[]), &schema).unwrap();
    assert_eq!((p.min_reader_version, p.min_writer_version), (1, 2));
    assert_eq!((&p.reader_features, &p.writer_features), (&None, &None));
    let tracked = metadata(&[("delta.enableRowTracking", "true")]);
    let p = new_table(&tracked, &schema).unwrap();
    assert_eq!((p.min_reader_version, p.min_writer_version), (1, 7));
    assert_eq!(
        p.writer_features.unwrap(),
        ["appendOnly", "domainMetadata", "invariants", "rowTracking"]
    );
}

#[test]
fn column_mapping_takes_reader_version_2_where_that_is_enough() {
    let p = upgrade(&protocol(1, 4, &[], &[]), &["columnMapping"]).unwrap();
    assert_eq!((p.min_reader_version, p.min_writer_version), (2, 7));
    assert_eq!(p.reader_features, None);
    assert!(supports(&p, "columnMapping") && supports(&p, "changeDataFeed"));
    let p = upgrade(&p, &["deletionVectors"]).unwrap();
    assert_eq!(
        p.reader_features.unwrap(),
        ["columnMapping", "deletionVectors"]
    );
    assert!(upgrade(&protocol(1, 2, &[], &[]), &["zap"]).is_err());
}

/// From every protocol with every feature: what was supported stays, what was asked for is, nothing is lowered.
#[test]
fn an_upgrade_loses_nothing() {
    let mut starts = Vec::new();
    for writer in 1..=6 {
        for reader in 1..=2 {
            starts.push(protocol(reader, writer, &[], &[]));
        }
    }
    starts.push(protocol(1, 7, &[], &[]));
    starts.push(protocol(1, 7, &[], &["appendOnly", "future"]));
    starts.push(protocol(2, 7, &[], &["columnMapping"]));
    starts.push(protocol(3, 7, &[], &[]));
    starts.push(protocol(3, 7, &["v2Checkpoint"], &["v2Checkpoint"]));
    for start in &starts {
        for feature in FEATURES {
            let made = upgrade(start, &[feature.name]).unwrap();
            well_formed(&made, 1).unwrap();
            consistent(&made).unwrap();
            assert!(made.min_reader_version >= start.min_reader_version);
            assert!(made.min_writer_version >= start.min_writer_version);
            assert!(supports(&made, feature.name), "{start:?} {}", feature.name);
            for needed in feature.needs {
                assert!(supports(&made, needed), "{start:?} {}", feature.name);
            }
            for old in feature_names(start) {
                assert!(
                    supports(&made, &old),
                    "{start:?} + {} lost {old}",
                    feature.name
                );
            }
            assert_eq!(upgrade(&made, &[feature.name]).unwrap(), made);
            // Nobody who was kept out is let in, and a reader is asked for no more than it takes.
            if made.min_reader_version == 3 && start.min_reader_version < 3 {
                let both = made.reader_features.as_deref().unwrap();
                assert!(both.iter().all(|n| known(n).unwrap().binds == Both));
            }
        }
    }
}
