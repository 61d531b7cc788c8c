//! The feature gate (PROTOCOL.md A4): what we read, what we write, what we refuse, in one table.

use super::TableError;
use crate::datafile::MappingMode;
use crate::log::{Metadata, Protocol};
use crate::schema::{DataType, Primitive, StructType};

/// Whom a feature binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binds {
    Writer,
    Both,
}

/// Whether we do what a feature asks.
#[derive(Clone, Copy)]
enum Can {
    Yes,
    /// Only while the table makes no use of it; the function says whether it does.
    Unused(fn(&Metadata, &StructType) -> bool),
    No,
}

struct Feature {
    name: &'static str,
    binds: Binds,
    /// The legacy reader and writer versions that imply it.
    legacy: Option<(i32, i32)>,
    read: Can,
    write: Can,
}

const fn feature(
    name: &'static str,
    binds: Binds,
    legacy: Option<(i32, i32)>,
    read: Can,
    write: Can,
) -> Feature {
    Feature {
        name,
        binds,
        legacy,
        read,
        write,
    }
}

use Binds::{Both, Writer};
use Can::{No, Unused, Yes};

const FEATURES: &[Feature] = &[
    feature("appendOnly", Writer, Some((1, 2)), Yes, Yes),
    feature("invariants", Writer, Some((1, 2)), Yes, Yes),
    feature("checkConstraints", Writer, Some((1, 3)), Yes, Yes),
    feature("changeDataFeed", Writer, Some((1, 4)), Yes, Yes),
    feature(
        "generatedColumns",
        Writer,
        Some((1, 4)),
        Yes,
        Unused(generated_columns),
    ),
    feature("columnMapping", Both, Some((2, 5)), Yes, Unused(mapped)),
    feature(
        "identityColumns",
        Writer,
        Some((1, 6)),
        Yes,
        Unused(identity_columns),
    ),
    feature("deletionVectors", Both, None, Yes, Yes),
    feature("timestampNtz", Both, None, Yes, Yes),
    feature("timestampWithoutTimezone", Both, None, Yes, Yes),
    feature("typeWidening", Both, None, Yes, Yes),
    feature("typeWidening-preview", Both, None, Yes, Yes),
    feature("domainMetadata", Writer, None, Yes, Yes),
    feature("rowTracking", Writer, None, Yes, No),
    feature("v2Checkpoint", Both, None, Yes, Yes),
    feature("inCommitTimestamp", Writer, None, Yes, Yes),
    feature("inCommitTimestamp-preview", Writer, None, Yes, No),
    feature("clustering", Writer, None, Yes, No),
    feature("vacuumProtocolCheck", Both, None, Yes, Yes),
    feature(
        "allowColumnDefaults",
        Writer,
        None,
        Yes,
        Unused(column_defaults),
    ),
    feature("checkpointProtection", Writer, None, Yes, Yes),
    feature("materializePartitionColumns", Writer, None, Yes, No),
    feature("icebergCompatV1", Writer, None, Yes, No),
    feature("icebergCompatV2", Writer, None, Yes, No),
    feature("icebergCompatV3", Writer, None, Yes, No),
    feature("icebergWriterCompatV1", Writer, None, Yes, No),
    feature("variantType", Both, None, Yes, Unused(variants)),
    feature("variantType-preview", Both, None, Yes, Unused(variants)),
    feature("variantShredding", Both, None, Yes, No),
    feature("variantShredding-preview", Both, None, Yes, No),
    feature("collations", Writer, None, Yes, No),
    feature("collations-preview", Writer, None, Yes, No),
];

/// Features of tables whose versions a catalog hands out: the log on disk is not the truth.
const CATALOG: &[&str] = &[
    "catalogManaged",
    "catalogOwned",
    "catalogOwned-preview",
    "coordinatedCommits-preview",
];

fn in_field(schema: &StructType, key: &str) -> bool {
    schema.any_field(&mut |f| f.metadata.contains_key(key))
}

fn generated_columns(_: &Metadata, schema: &StructType) -> bool {
    in_field(schema, "delta.generationExpression")
}

fn identity_columns(_: &Metadata, schema: &StructType) -> bool {
    schema.any_field(&mut |f| f.metadata.keys().any(|k| k.starts_with("delta.identity.")))
}

fn column_defaults(_: &Metadata, schema: &StructType) -> bool {
    in_field(schema, "CURRENT_DEFAULT")
}

fn mapped(metadata: &Metadata, _: &StructType) -> bool {
    mapping_mode(metadata) != MappingMode::None
}

fn variants(_: &Metadata, schema: &StructType) -> bool {
    DataType::Struct(schema.clone()).any_primitive(&mut |p| *p == Primitive::Variant)
}

/// How data files name columns, by `delta.columnMapping.mode` (PROTOCOL.md C).
pub fn mapping_mode(metadata: &Metadata) -> MappingMode {
    match metadata
        .configuration
        .get("delta.columnMapping.mode")
        .map(String::as_str)
    {
        Some("name") => MappingMode::Name,
        Some("id") => MappingMode::Id,
        _ => MappingMode::None,
    }
}

/// Whether a feature is in force: named by the protocol, or implied by its legacy versions.
pub fn supports(protocol: &Protocol, name: &str) -> bool {
    let named = |list: &Option<Vec<String>>| list.iter().flatten().any(|f| f == name);
    if named(&protocol.reader_features) || named(&protocol.writer_features) {
        return true;
    }
    protocol.min_writer_version < 7
        && FEATURES
            .iter()
            .find(|f| f.name == name)
            .and_then(|f| f.legacy)
            .is_some_and(|(_, writer)| protocol.min_writer_version >= writer)
}

/// Fails when we can't read such a table rightly.
///
/// # Errors
/// [`TableError::Feature`], naming the feature.
pub fn check_read(
    protocol: &Protocol,
    metadata: &Metadata,
    schema: &StructType,
) -> Result<(), TableError> {
    check_catalog(protocol)?;
    if !(1..=3).contains(&protocol.min_reader_version) {
        return Err(refusal(
            "reading",
            &format!("reader version {}", protocol.min_reader_version),
        ));
    }
    for name in protocol.reader_features.iter().flatten() {
        check(
            name,
            "reading",
            FEATURES.iter().find(|f| f.name == name).map(|f| f.read),
            metadata,
            schema,
        )?;
    }
    Ok(())
}

/// Fails when we can't write such a table rightly (reading it is checked, too).
///
/// # Errors
/// [`TableError::Feature`], naming the feature.
pub fn check_write(
    protocol: &Protocol,
    metadata: &Metadata,
    schema: &StructType,
) -> Result<(), TableError> {
    check_read(protocol, metadata, schema)?;
    let version = protocol.min_writer_version;
    if !(1..=7).contains(&version) {
        return Err(refusal("writing", &format!("writer version {version}")));
    }
    for name in protocol
        .writer_features
        .iter()
        .flatten()
        .chain(protocol.reader_features.iter().flatten())
    {
        check(
            name,
            "writing",
            FEATURES.iter().find(|f| f.name == name).map(|f| f.write),
            metadata,
            schema,
        )?;
    }
    if version < 7 {
        for feature in FEATURES {
            if feature.legacy.is_some_and(|(_, writer)| version >= writer) {
                check(
                    feature.name,
                    "writing",
                    Some(feature.write),
                    metadata,
                    schema,
                )?;
            }
        }
    }
    // Types that are there without their feature: still not ours to write.
    let mut unknown = None;
    DataType::Struct(schema.clone()).any_primitive(&mut |p| {
        if let Primitive::Other(name) = p {
            unknown = Some(name.clone());
        }
        unknown.is_some()
    });
    match unknown {
        Some(name) => Err(refusal("writing", &format!("the type {name}"))),
        None => Ok(()),
    }
}

fn check_catalog(protocol: &Protocol) -> Result<(), TableError> {
    let all = protocol
        .reader_features
        .iter()
        .chain(&protocol.writer_features)
        .flatten();
    match all.into_iter().find(|f| CATALOG.contains(&f.as_str())) {
        Some(name) => Err(TableError::Feature {
            access: "reading and writing",
            feature: format!("the feature {name}"),
            help: "the table is managed by a catalog: use it through that catalog".to_owned(),
        }),
        None => Ok(()),
    }
}

fn check(
    name: &str,
    access: &'static str,
    can: Option<Can>,
    metadata: &Metadata,
    schema: &StructType,
) -> Result<(), TableError> {
    match can {
        Some(Yes) => Ok(()),
        Some(Unused(in_use)) if !in_use(metadata, schema) => Ok(()),
        Some(Unused(_) | No) | None => Err(refusal(access, &format!("the feature {name}"))),
    }
}

fn refusal(access: &'static str, what: &str) -> TableError {
    TableError::Feature {
        access,
        feature: format!(
            "{what}, which deltafs {} does not implement",
            env!("CARGO_PKG_VERSION")
        ),
        help: if access == "writing" {
            "reading works; write with a system that has it, or drop the feature there".to_owned()
        } else {
            "use a newer deltafs, or a system that has it".to_owned()
        },
    }
}

/// The protocol of a new table.
pub(crate) fn new_table(
    schema: &StructType,
    mut reader: Vec<&'static str>,
    mut writer: Vec<&'static str>,
) -> Protocol {
    let ntz =
        DataType::Struct(schema.clone()).any_primitive(&mut |p| *p == Primitive::TimestampNtz);
    if ntz {
        reader.push("timestampNtz");
    }
    // A writer of version 7 must name what version 2 implies.
    writer.extend(["appendOnly", "invariants"]);
    if reader.is_empty() {
        return Protocol {
            min_reader_version: 1,
            min_writer_version: 2,
            reader_features: None,
            writer_features: None,
        };
    }
    let both = reader.iter().copied();
    let mut all: Vec<String> = both.chain(writer).map(str::to_owned).collect();
    all.sort();
    all.dedup();
    let mut reader: Vec<String> = reader.into_iter().map(str::to_owned).collect();
    reader.sort();
    Protocol {
        min_reader_version: 3,
        min_writer_version: 7,
        reader_features: Some(reader),
        writer_features: Some(all),
    }
}

/// The features that need both sides, for messages and `info.json`.
pub fn feature_names(protocol: &Protocol) -> Vec<String> {
    let mut names: Vec<String> = protocol
        .reader_features
        .iter()
        .chain(&protocol.writer_features)
        .flatten()
        .cloned()
        .collect();
    if protocol.min_writer_version < 7 {
        names.extend(
            FEATURES
                .iter()
                .filter(|f| {
                    f.legacy.is_some_and(|(reader, writer)| {
                        protocol.min_writer_version >= writer
                            && (f.binds == Writer || protocol.min_reader_version >= reader)
                    })
                })
                .map(|f| f.name.to_owned()),
        );
    }
    names.sort();
    names.dedup();
    names
}

/// Fails when an action names features in a way that the protocol forbids.
pub(crate) fn well_formed(protocol: &Protocol, version: u64) -> Result<(), TableError> {
    let malformed = |reason: &str| {
        Err(TableError::Malformed {
            version,
            what: "protocol action",
            reason: reason.to_owned(),
        })
    };
    if protocol.min_reader_version < 1 || protocol.min_writer_version < 1 {
        return malformed("versions start at 1");
    }
    if protocol.min_reader_version == 3 && protocol.reader_features.is_none() {
        return malformed("reader version 3 needs readerFeatures");
    }
    if protocol.min_writer_version == 7 && protocol.writer_features.is_none() {
        return malformed("writer version 7 needs writerFeatures");
    }
    Ok(())
}

/// A `delta.*` property as a boolean; anything but `true` is false.
pub fn flag(metadata: &Metadata, key: &str) -> bool {
    metadata
        .configuration
        .get(key)
        .is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_refusal_names_the_feature() {
        let schema = StructType::default();
        let p = protocol(3, 7, &["zap"], &["zap"]);
        let error = check_read(&p, &metadata(&[]), &schema)
            .unwrap_err()
            .to_string();
        assert!(error.contains("the feature zap"), "{error}");
        let p = protocol(1, 7, &[], &["rowTracking", "domainMetadata"]);
        assert!(check_read(&p, &metadata(&[]), &schema).is_ok());
        let error = check_write(&p, &metadata(&[]), &schema)
            .unwrap_err()
            .to_string();
        assert!(error.contains("rowTracking"), "{error}");
        assert!(check_read(&protocol(99, 2, &[], &[]), &metadata(&[]), &schema).is_err());
        let p = protocol(3, 7, &["catalogManaged"], &["catalogManaged"]);
        assert!(
            check_read(&p, &metadata(&[]), &schema)
                .unwrap_err()
                .to_string()
                .contains("catalogManaged")
        );
    }

    #[test]
    fn a_legacy_version_is_refused_only_for_what_is_used() {
        // D75
        let schema = StructType::default();
        let p = protocol(2, 6, &[], &[]);
        assert!(check_write(&p, &metadata(&[]), &schema).is_ok());
        let mapped = metadata(&[("delta.columnMapping.mode", "name")]);
        assert!(check_write(&p, &mapped, &schema).is_err());
    }

    #[test]
    fn a_new_table_names_what_version_2_implied() {
        let p = new_table(&StructType::default(), vec!["deletionVectors"], vec![]);
        assert_eq!((p.min_reader_version, p.min_writer_version), (3, 7));
        assert_eq!(p.reader_features.unwrap(), ["deletionVectors"]);
        assert_eq!(
            p.writer_features.unwrap(),
            ["appendOnly", "deletionVectors", "invariants"]
        );
        let p = new_table(&StructType::default(), vec![], vec![]);
        assert_eq!((p.min_reader_version, p.min_writer_version), (1, 2));
    }
}
