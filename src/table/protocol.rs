//! The feature gate (PROTOCOL.md A4): what we read, what we write, what we refuse, in one table; and the way from
//! one protocol to a higher one. Knows protocol, metadata and schema; never files or versions.

use super::TableError;
use crate::datafile::MappingMode;
use crate::log::{Metadata, Protocol};
use crate::schema::mapping::{self, MAPPING_MODE, MAX_COLUMN_ID};
use crate::schema::{DataType, INVARIANTS, Primitive, StructType};

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

/// One row of PROTOCOL.md A4.
struct Feature {
    name: &'static str,
    binds: Binds,
    /// The legacy reader and writer versions that imply it.
    legacy: Option<(i32, i32)>,
    /// Features without which it can't be listed.
    needs: &'static [&'static str],
    read: Can,
    write: Can,
    /// What helps where we refuse; a general hint without.
    help: Option<&'static str>,
}

impl Feature {
    const fn writer(name: &'static str, write: Can) -> Self {
        Feature {
            name,
            binds: Writer,
            legacy: None,
            needs: &[],
            read: Yes,
            write,
            help: None,
        }
    }

    const fn both(name: &'static str, read: Can, write: Can) -> Self {
        Feature {
            binds: Both,
            read,
            ..Feature::writer(name, write)
        }
    }

    const fn legacy(mut self, reader: i32, writer: i32) -> Self {
        self.legacy = Some((reader, writer));
        self
    }

    const fn needs(mut self, features: &'static [&'static str]) -> Self {
        self.needs = features;
        self
    }

    const fn help(mut self, help: &'static str) -> Self {
        self.help = Some(help);
        self
    }

    /// The reader version that the feature asks for at least.
    fn reader_version(&self) -> i32 {
        match (self.binds, self.legacy) {
            (Writer, _) => 1,
            (Both, Some((reader, _))) => reader,
            (Both, None) => 3,
        }
    }

    /// Whether legacy versions imply it. Both count for a feature that binds both.
    fn implied(&self, protocol: &Protocol) -> bool {
        protocol.min_writer_version < 7
            && self.legacy.is_some_and(|(reader, writer)| {
                protocol.min_writer_version >= writer && protocol.min_reader_version >= reader
            })
    }
}

use Binds::{Both, Writer};
use Can::{No, Unused, Yes};

const DOMAINS: &[&str] = &["domainMetadata"];
const BY_CATALOG: &str = "the table is managed by a catalog: use it through that catalog";
const ICEBERG: &str = "write with the system that keeps the Iceberg metadata, or switch the compatibility off there \
     (delta.enableIcebergCompatV1, V2, V3 = false)";
const REDIRECTED: &str = "the table has moved: mount the one that it redirects to";
const SHREDDED: &str = "drop or cast the variant columns with the system that has them";

const FEATURES: &[Feature] = &[
    Feature::writer("appendOnly", Yes).legacy(1, 2),
    Feature::writer("invariants", Yes).legacy(1, 2),
    Feature::writer("checkConstraints", Yes).legacy(1, 3),
    Feature::writer("changeDataFeed", Yes).legacy(1, 4),
    Feature::writer("generatedColumns", Unused(generated_columns))
        .legacy(1, 4)
        .help("write with a system that computes generated columns, or drop those columns there"),
    Feature::both("columnMapping", Yes, Yes).legacy(2, 5),
    Feature::writer("identityColumns", Unused(identity_columns))
        .legacy(1, 6)
        .help("write with a system that numbers identity columns, or drop those columns there"),
    Feature::both("deletionVectors", Yes, Yes),
    Feature::both("timestampNtz", Yes, Yes),
    // What the first writers called it.
    Feature::both("timestampWithoutTimezone", Yes, Yes),
    Feature::both("typeWidening", Yes, Yes),
    Feature::both("typeWidening-preview", Yes, Yes),
    Feature::writer("domainMetadata", Yes),
    Feature::writer("rowTracking", Yes).needs(DOMAINS),
    Feature::both("v2Checkpoint", Yes, Yes),
    Feature::writer("inCommitTimestamp", Yes),
    // Spark 3.2 alone wrote it, with properties of other names; since the name went final (delta PR 3416) Spark
    // refuses it, too.
    Feature::writer("inCommitTimestamp-preview", No).help(
        "drop the feature with Delta Spark 3.2, which wrote it, and enable inCommitTimestamp instead",
    ),
    Feature::writer("clustering", Yes).needs(DOMAINS),
    Feature::both("vacuumProtocolCheck", Yes, Yes),
    Feature::writer("allowColumnDefaults", Unused(column_defaults))
        .help("write with a system that fills column defaults, or drop the defaults there"),
    Feature::writer("checkpointProtection", Yes),
    Feature::writer("materializePartitionColumns", Yes),
    Feature::writer("icebergCompatV1", Unused(|m, _| flag(m, "delta.enableIcebergCompatV1")))
        .needs(&["columnMapping"])
        .help(ICEBERG),
    Feature::writer("icebergCompatV2", Unused(|m, _| flag(m, "delta.enableIcebergCompatV2")))
        .needs(&["columnMapping"])
        .help(ICEBERG),
    Feature::writer("icebergCompatV3", Unused(|m, _| flag(m, "delta.enableIcebergCompatV3")))
        .needs(&["columnMapping", "rowTracking", "domainMetadata"])
        .help(ICEBERG),
    Feature::writer("icebergWriterCompatV1", No).help(ICEBERG),
    Feature::writer("icebergWriterCompatV3", No).help(ICEBERG),
    Feature::both("variantType", Yes, Unused(variants)).help(SHREDDED),
    Feature::both("variantType-preview", Yes, Unused(variants)).help(SHREDDED),
    Feature::both("variantShredding", Yes, Unused(variants)).help(SHREDDED),
    Feature::both("variantShredding-preview", Yes, Unused(variants)).help(SHREDDED),
    Feature::writer("collations", Unused(collated))
        .needs(DOMAINS)
        .help("write with a system that has collations: they decide what is equal and what statistics say"),
    Feature::writer("collations-preview", Unused(collated))
        .needs(DOMAINS)
        .help("write with a system that has collations: they decide what is equal and what statistics say"),
    Feature::both("geospatial", No, No),
    Feature::both("geospatial-dev", No, No),
    Feature::both("timestampNanos", No, No),
    Feature::both("adaptiveMetadata-preview", No, No),
    Feature::writer("columnMappingUsageTracking", No),
    Feature::both("redirectReaderWriter-preview", No, No).help(REDIRECTED),
    Feature::writer("redirectWriterOnly-preview", No).help(REDIRECTED),
    // A catalog hands out the versions of these: the log on disk is not the truth.
    Feature::both("catalogManaged", No, No).help(BY_CATALOG),
    Feature::both("catalogOwned", No, No).help(BY_CATALOG),
    Feature::both("catalogOwned-preview", No, No).help(BY_CATALOG),
    Feature::both("coordinatedCommits-preview", No, No).help(BY_CATALOG),
];

fn known(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|f| f.name == name)
}

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

fn collated(_: &Metadata, schema: &StructType) -> bool {
    in_field(schema, "__COLLATIONS")
}

fn variants(_: &Metadata, schema: &StructType) -> bool {
    has_type(schema, &Primitive::Variant)
}

fn has_type(schema: &StructType, wanted: &Primitive) -> bool {
    let fields = schema.fields.iter();
    let mut types = fields.map(|f| &f.data_type);
    types.any(|t| t.any_primitive(&mut |p| p == wanted))
}

/// How data files name columns, by `delta.columnMapping.mode` (PROTOCOL.md C).
pub fn mapping_mode(metadata: &Metadata) -> MappingMode {
    match metadata.configuration.get(MAPPING_MODE).map(String::as_str) {
        Some("name") => MappingMode::Name,
        Some("id") => MappingMode::Id,
        _ => MappingMode::None,
    }
}

/// Whether a feature is in force: named by the protocol, or implied by its legacy versions.
pub fn supports(protocol: &Protocol, name: &str) -> bool {
    let named = |list: &Option<Vec<String>>| list.iter().flatten().any(|f| f == name);
    named(&protocol.reader_features)
        || named(&protocol.writer_features)
        || known(name).is_some_and(|f| f.implied(protocol))
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
    let names = |list: &'_ Option<Vec<String>>| list.clone().into_iter().flatten();
    // What only writers must know can still forbid reading: versions that a catalog hands out.
    let forbidden = names(&protocol.writer_features)
        .filter_map(|name| known(&name))
        .filter(|f| matches!(f.read, No));
    if let Some(feature) = forbidden.into_iter().next() {
        return Err(refusal("reading", feature.name, feature.help));
    }
    if !(1..=3).contains(&protocol.min_reader_version) {
        return Err(beyond("reading", "reader", protocol.min_reader_version));
    }
    for name in protocol.reader_features.iter().flatten() {
        check(name, "reading", |f| f.read, metadata, schema)?;
    }
    // Both lists have it, or the table's writers do not know what its readers do.
    let written = |name: &String| protocol.writer_features.iter().flatten().any(|w| w == name);
    if let Some(name) = names(&protocol.reader_features).find(|name| !written(name)) {
        return Err(broken(
            "reading",
            format!("the feature {name} among writerFeatures, too, which do not list it"),
        ));
    }
    let mode = metadata.configuration.get(MAPPING_MODE);
    match mode.map(String::as_str) {
        None | Some("none") => Ok(()),
        // A column without its id or name would read as NULL where the file has values.
        Some("name" | "id") if supports(protocol, "columnMapping") => {
            mapping::check(schema, Some(i64::MAX)).map_err(|e| TableError::Feature {
                access: "reading",
                feature: format!("column mapping as the protocol has it: {e}"),
                help: "repair the mapping with the system that made it; deltafs does not guess which column a file means"
                    .to_owned(),
            })
        }
        Some("name" | "id") => Ok(()),
        Some(mode) => Err(TableError::Feature {
            access: "reading",
            feature: format!(
                "the column mapping mode `{mode}`, which deltafs {} does not know",
                env!("CARGO_PKG_VERSION")
            ),
            help: NEWER.to_owned(),
        }),
    }
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
        return Err(beyond("writing", "writer", version));
    }
    for name in protocol
        .writer_features
        .iter()
        .flatten()
        .chain(protocol.reader_features.iter().flatten())
    {
        check(name, "writing", |f| f.write, metadata, schema)?;
    }
    for feature in FEATURES.iter().filter(|f| f.implied(protocol)) {
        check(feature.name, "writing", |f| f.write, metadata, schema)?;
    }
    consistent(protocol)?;
    check_mapping(protocol, metadata, schema)?;
    // Types that are there without their feature: still not ours to write.
    let mut unknown = None;
    DataType::Struct(schema.clone()).any_primitive(&mut |p| {
        if let Primitive::Other(name) = p {
            unknown = Some(name.clone());
        }
        unknown.is_some()
    });
    match unknown {
        Some(name) => Err(TableError::Feature {
            access: "writing",
            feature: format!(
                "the type {name}, which deltafs {} does not implement",
                env!("CARGO_PKG_VERSION")
            ),
            help: DROP.to_owned(),
        }),
        None => Ok(()),
    }
}

fn broken(access: &'static str, feature: String) -> TableError {
    TableError::Feature {
        access,
        feature,
        help: "repair the protocol action with the system that wrote it".to_owned(),
    }
}

/// What a writer must not build upon: lists that leave open who has to know a feature.
fn consistent(protocol: &Protocol) -> Result<(), TableError> {
    let listed = |list: &Option<Vec<String>>, name: &str| list.iter().flatten().any(|f| f == name);
    let broken = |feature: String| broken("writing", feature);
    for name in protocol.writer_features.iter().flatten() {
        let Some(feature) = known(name) else { continue };
        let readers_know = match protocol.min_reader_version {
            3 => listed(&protocol.reader_features, name),
            version => version >= feature.reader_version(),
        };
        if feature.binds == Both && !readers_know {
            return Err(broken(format!(
                "the feature {name} among readerFeatures, too, which do not list it"
            )));
        }
        if let Some(missing) = feature.needs.iter().find(|n| !supports(protocol, n)) {
            return Err(broken(format!(
                "the feature {missing}, without which {name} can't be, and which is not listed"
            )));
        }
    }
    Ok(())
}

fn check_mapping(
    protocol: &Protocol,
    metadata: &Metadata,
    schema: &StructType,
) -> Result<(), TableError> {
    let broken = |reason: String| {
        TableError::Feature {
        access: "writing",
        feature: format!("column mapping as the protocol has it: {reason}"),
        help: "repair the mapping with the system that made it; deltafs does not guess which column a file means"
            .to_owned(),
    }
    };
    if mapping_mode(metadata) == MappingMode::None {
        return match mapping::unmapped_name(schema) {
            Some(name) => Err(broken(format!(
                "column `{name}` has another physical name, but {MAPPING_MODE} is none"
            ))),
            None => Ok(()),
        };
    }
    if !supports(protocol, "columnMapping") {
        return Err(broken(format!(
            "{MAPPING_MODE} is set, but the protocol does not list columnMapping"
        )));
    }
    let max = metadata
        .configuration
        .get(MAX_COLUMN_ID)
        .and_then(|id| id.trim().parse().ok());
    mapping::check(schema, max).map_err(|e| broken(e.to_string()))
}

fn check(
    name: &str,
    access: &'static str,
    can: impl Fn(&Feature) -> Can,
    metadata: &Metadata,
    schema: &StructType,
) -> Result<(), TableError> {
    let Some(feature) = known(name) else {
        return Err(refusal(access, name, None));
    };
    match can(feature) {
        Yes => Ok(()),
        Unused(in_use) if !in_use(metadata, schema) => Ok(()),
        Unused(_) | No => Err(refusal(access, name, feature.help)),
    }
}

const NEWER: &str = "use a newer deltafs, or a system that has it";
const DROP: &str = "reading works; write with a system that has it, or drop the feature there";

fn refusal(access: &'static str, name: &str, help: Option<&str>) -> TableError {
    TableError::Feature {
        access,
        feature: format!(
            "the feature {name}, which deltafs {} does not implement",
            env!("CARGO_PKG_VERSION")
        ),
        help: match (help, access) {
            (Some(help), "writing") => format!("reading works; {help}"),
            (Some(help), _) => help.to_owned(),
            (None, "writing") => DROP.to_owned(),
            (None, _) => NEWER.to_owned(),
        },
    }
}

/// A version that did not exist when this was written.
fn beyond(access: &'static str, side: &str, version: i32) -> TableError {
    TableError::Feature {
        access,
        feature: format!(
            "{side} version {version}, which deltafs {} does not implement",
            env!("CARGO_PKG_VERSION")
        ),
        help: NEWER.to_owned(),
    }
}

/// `protocol` with `features`, and with what these need. Nothing is lowered. A legacy protocol that has to
/// change goes to writer version 7 and lists every feature that its versions implied (PROTOCOL.md A4).
///
/// # Errors
/// [`TableError::Feature`] for a name that is no feature we know of.
pub fn upgrade(protocol: &Protocol, features: &[&str]) -> Result<Protocol, TableError> {
    let mut added: Vec<&Feature> = Vec::new();
    for name in features {
        let feature = known(name).ok_or_else(|| refusal("changing", name, None))?;
        added.push(feature);
        added.extend(feature.needs.iter().filter_map(|n| known(n)));
    }
    if added.iter().all(|f| supports(protocol, f.name)) {
        return Ok(protocol.clone());
    }
    let implied = FEATURES.iter().filter(|f| f.implied(protocol));
    let listed = protocol
        .writer_features
        .iter()
        .chain(&protocol.reader_features)
        .flatten();
    let mut writer: Vec<String> = added
        .iter()
        .copied()
        .chain(implied)
        .map(|f| f.name.to_owned())
        .chain(listed.cloned())
        .collect();
    writer.sort();
    writer.dedup();
    let needed = added.iter().map(|f| f.reader_version());
    let reader_version = needed.fold(protocol.min_reader_version, i32::max);
    let reader = (reader_version >= 3).then(|| {
        let old = protocol.reader_features.iter().flatten();
        let mut reader: Vec<String> = writer
            .iter()
            .filter(|name| known(name).is_some_and(|f| f.binds == Both))
            .chain(old)
            .cloned()
            .collect();
        reader.sort();
        reader.dedup();
        reader
    });
    Ok(Protocol {
        min_reader_version: reader_version,
        min_writer_version: protocol.min_writer_version.max(7),
        reader_features: reader,
        writer_features: Some(writer),
    })
}

/// The features that a table of these properties and columns can't be without.
pub fn required(metadata: &Metadata, schema: &StructType) -> Vec<&'static str> {
    let set = |key: &str, wanted: &str| {
        let value = metadata.configuration.get(key);
        value.is_some_and(|v| v.eq_ignore_ascii_case(wanted))
    };
    let constrained = metadata
        .configuration
        .keys()
        .any(|key| key.starts_with("delta.constraints."));
    let needed = [
        ("appendOnly", flag(metadata, "delta.appendOnly")),
        ("invariants", in_field(schema, INVARIANTS)),
        ("checkConstraints", constrained),
        (
            "changeDataFeed",
            flag(metadata, "delta.enableChangeDataFeed"),
        ),
        ("columnMapping", mapping_mode(metadata) != MappingMode::None),
        (
            "deletionVectors",
            flag(metadata, "delta.enableDeletionVectors"),
        ),
        ("timestampNtz", has_type(schema, &Primitive::TimestampNtz)),
        ("typeWidening", flag(metadata, "delta.enableTypeWidening")),
        ("rowTracking", flag(metadata, ENABLE_ROW_TRACKING)),
        ("v2Checkpoint", set("delta.checkpointPolicy", "v2")),
        ("inCommitTimestamp", flag(metadata, ENABLE_TIMESTAMPS)),
    ];
    let needed = needed.into_iter().filter(|(_, needed)| *needed);
    needed.map(|(name, _)| name).collect()
}

/// The protocol of a new table: the lowest that its properties and columns allow, and writer version 2 at least,
/// which everybody writes.
pub(crate) fn new_table(metadata: &Metadata, schema: &StructType) -> Result<Protocol, TableError> {
    let lowest = Protocol {
        min_reader_version: 1,
        min_writer_version: 2,
        reader_features: None,
        writer_features: None,
    };
    upgrade(&lowest, &required(metadata, schema))
}

/// The features in force, for messages and `info.json`.
pub fn feature_names(protocol: &Protocol) -> Vec<String> {
    let implied = FEATURES.iter().filter(|f| f.implied(protocol));
    let mut names: Vec<String> = protocol
        .reader_features
        .iter()
        .chain(&protocol.writer_features)
        .flatten()
        .cloned()
        .chain(implied.map(|f| f.name.to_owned()))
        .collect();
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
    let (reader, writer) = (protocol.min_reader_version, protocol.min_writer_version);
    if reader < 1 || writer < 1 {
        return malformed("versions start at 1");
    }
    if reader == 3 && writer < 7 {
        return malformed("reader version 3 needs writer version 7");
    }
    if reader == 3 && protocol.reader_features.is_none() {
        return malformed("reader version 3 needs readerFeatures");
    }
    if writer == 7 && protocol.writer_features.is_none() {
        return malformed("writer version 7 needs writerFeatures");
    }
    // An empty list says nothing: some writers leave it.
    let lists = |list: &Option<Vec<String>>| list.iter().flatten().next().is_some();
    if reader < 3 && lists(&protocol.reader_features) {
        return malformed("readerFeatures need reader version 3");
    }
    if writer < 7 && lists(&protocol.writer_features) {
        return malformed("writerFeatures need writer version 7");
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

const ENABLE_TIMESTAMPS: &str = "delta.enableInCommitTimestamps";
const ENABLE_ROW_TRACKING: &str = "delta.enableRowTracking";

/// Whether commits carry an in-commit timestamp (PROTOCOL.md A3).
pub fn in_commit_timestamps(protocol: &Protocol, metadata: &Metadata) -> bool {
    supports(protocol, "inCommitTimestamp") && flag(metadata, ENABLE_TIMESTAMPS)
}

/// Notes in the metadata since when commits have in-commit timestamps, for a table that has older commits: the
/// version that enables them, and its own timestamp in milliseconds since the epoch (PROTOCOL.md A3).
pub(crate) fn record_timestamps_from(metadata: &mut Metadata, version: u64, timestamp: i64) {
    for (key, value) in [
        (
            "delta.inCommitTimestampEnablementVersion",
            version.to_string(),
        ),
        (
            "delta.inCommitTimestampEnablementTimestamp",
            timestamp.to_string(),
        ),
    ] {
        metadata.configuration.insert(key.to_owned(), value);
    }
}

/// Whether new files get row ids (PROTOCOL.md H).
pub fn assigns_row_ids(protocol: &Protocol, metadata: &Metadata) -> bool {
    supports(protocol, "rowTracking") && !flag(metadata, "delta.rowTrackingSuspended")
}

/// Whether rows that are written again must keep their ids (PROTOCOL.md H).
pub fn row_tracking_enabled(protocol: &Protocol, metadata: &Metadata) -> bool {
    assigns_row_ids(protocol, metadata) && flag(metadata, ENABLE_ROW_TRACKING)
}

/// The columns of data files, unknown to the schema, that keep what rows bring from older files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Materialized<'a> {
    pub row_id: &'a str,
    pub row_commit_version: &'a str,
}

/// Property of the column that holds row ids (PROTOCOL.md H).
pub const ROW_ID_COLUMN: &str = "delta.rowTracking.materializedRowIdColumnName";
/// Property of the column that holds the versions in which rows were last written (PROTOCOL.md H).
pub const ROW_VERSION_COLUMN: &str = "delta.rowTracking.materializedRowCommitVersionColumnName";

/// The names of the hidden columns.
///
/// # Errors
/// [`TableError::Feature`] when row tracking is enabled without them.
pub fn materialized_columns(metadata: &Metadata) -> Result<Materialized<'_>, TableError> {
    let name = |key: &str| {
        let name = metadata.configuration.get(key).map(String::as_str);
        name.filter(|n| !n.is_empty())
            .ok_or_else(|| TableError::Feature {
                access: "writing",
                feature: format!("the property {key}, since row tracking is enabled"),
                help: "disable row tracking and enable it again with the system that did"
                    .to_owned(),
            })
    };
    Ok(Materialized {
        row_id: name(ROW_ID_COLUMN)?,
        row_commit_version: name(ROW_VERSION_COLUMN)?,
    })
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
