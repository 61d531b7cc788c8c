//! Delta's schema tree and its JSON form (`metaData.schemaString`).

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::json::{self, Json};
use crate::error::{Failure, Kind};

/// Field metadata key of a column's mapping id (PROTOCOL.md C).
pub const MAPPING_ID: &str = "delta.columnMapping.id";
/// Field metadata key of a column's physical name (PROTOCOL.md C).
pub const MAPPING_PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";
/// Field metadata key of a column's invariant expression (PROTOCOL.md A4).
pub const INVARIANTS: &str = "delta.invariants";

/// A schema or a value that can't be what it claims to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("the schema is not valid JSON of a Delta schema: {0}")]
    Json(String),
    #[error("two columns differ only in case: `{0}` and `{1}`")]
    Duplicate(String, String),
    #[error("column `{column}` has the type {found}, which Delta tables cannot hold")]
    NoDeltaType { column: String, found: String },
    #[error("`{text}` is not a value of type {expected}")]
    Value { text: String, expected: String },
    #[error("a {0} value cannot be a partition value")]
    NotPartitionable(String),
    #[error("a column has an empty name")]
    EmptyName,
    #[error(
        "column `{column}` was changed from {from} to {to}, a change that is not known to deltafs"
    )]
    TypeChange {
        column: String,
        from: String,
        to: String,
    },
}

impl Failure for SchemaError {
    fn kind(&self) -> Kind {
        match self {
            SchemaError::Json(_) => Kind::Corrupt,
            SchemaError::TypeChange { .. } => Kind::Unsupported,
            SchemaError::Duplicate(..)
            | SchemaError::NoDeltaType { .. }
            | SchemaError::Value { .. }
            | SchemaError::NotPartitionable(_)
            | SchemaError::EmptyName => Kind::Invalid,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            SchemaError::TypeChange { .. } => Some(
                "leave the column out, or rewrite the table with the system that changed it"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// A leaf type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Primitive {
    String,
    Long,
    Integer,
    Short,
    Byte,
    Float,
    Double,
    /// Precision 1..=38, scale 0..=precision.
    Decimal(u8, i8),
    Boolean,
    Binary,
    Date,
    Timestamp,
    TimestampNtz,
    Void,
    Variant,
    /// A type name that this version does not know (interval, geometry, …): listed, not read.
    Other(String),
}

/// Any type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataType {
    Primitive(Primitive),
    Struct(StructType),
    Array(Box<ArrayType>),
    Map(Box<MapType>),
}

/// `array<element>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArrayType {
    pub element_type: DataType,
    pub contains_null: bool,
}

/// `map<key, value>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MapType {
    pub key_type: DataType,
    pub value_type: DataType,
    pub value_contains_null: bool,
}

/// Fields in order. Names are unique ignoring case; case is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StructType {
    pub fields: Vec<StructField>,
}

/// One column or struct member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StructField {
    pub name: String,
    #[serde(rename = "type")]
    pub data_type: DataType,
    pub nullable: bool,
    #[serde(default, deserialize_with = "super::json::object")]
    pub metadata: Map<String, Value>,
}

impl StructField {
    /// A field without metadata.
    pub fn new(name: impl Into<String>, data_type: DataType, nullable: bool) -> Self {
        StructField {
            name: name.into(),
            data_type,
            nullable,
            metadata: Map::new(),
        }
    }

    /// The name in data files, statistics and partition values (PROTOCOL.md C).
    pub fn physical_name(&self) -> &str {
        self.metadata
            .get(MAPPING_PHYSICAL_NAME)
            .and_then(Value::as_str)
            .unwrap_or(&self.name)
    }

    /// The Parquet `field_id`, where the column has a mapping id.
    pub fn mapping_id(&self) -> Option<i64> {
        self.metadata.get(MAPPING_ID).and_then(Value::as_i64)
    }
}

impl StructType {
    /// Parses `metaData.schemaString`.
    ///
    /// # Errors
    /// [`SchemaError::Json`] when it is no schema, [`SchemaError::Duplicate`] when names clash ignoring case.
    pub fn from_json(text: &str) -> Result<Self, SchemaError> {
        match DataType::read(text).map_err(|e| SchemaError::Json(e.to_string()))? {
            DataType::Struct(fields) => {
                fields.check_names()?;
                Ok(fields)
            }
            other => Err(SchemaError::Json(format!(
                "the top level is {other}, not a struct"
            ))),
        }
    }

    /// The text for `metaData.schemaString`.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&DataType::Struct(self.clone())).unwrap_or_default()
    }

    /// The field of this name; an exact match wins over one that ignores case.
    pub fn field(&self, name: &str) -> Option<&StructField> {
        self.fields
            .iter()
            .find(|f| f.name == name)
            .or_else(|| self.fields.iter().find(|f| same_name(&f.name, name)))
    }

    /// Fails when two siblings at any depth differ only in case, or a name is empty.
    ///
    /// # Errors
    /// [`SchemaError::Duplicate`] or [`SchemaError::EmptyName`].
    pub fn check_names(&self) -> Result<(), SchemaError> {
        let mut seen = std::collections::HashMap::new();
        for field in &self.fields {
            if field.name.is_empty() {
                return Err(SchemaError::EmptyName);
            }
            if let Some(other) = seen.insert(field.name.to_lowercase(), &field.name) {
                return Err(SchemaError::Duplicate(other.clone(), field.name.clone()));
            }
            field.data_type.check_names()?;
        }
        Ok(())
    }

    /// Whether any field at any depth satisfies `test`.
    pub fn any_field(&self, test: &mut dyn FnMut(&StructField) -> bool) -> bool {
        self.fields
            .iter()
            .any(|f| test(f) || f.data_type.any_field(test))
    }
}

/// Whether two column names are the same column (Delta ignores case).
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    a == b || a.eq_ignore_ascii_case(b) || a.to_lowercase() == b.to_lowercase()
}

impl DataType {
    fn read(text: &str) -> serde_json::Result<Self> {
        let parsed: DataType = serde_json::from_str(text)?;
        if parsed.any_field(&mut |field| json::has_fractions(&field.metadata)) {
            // Its numbers are not exactly those that stand there.
            return json::from_slice(text.as_bytes()).and_then(serde_json::from_value);
        }
        Ok(parsed)
    }

    fn check_names(&self) -> Result<(), SchemaError> {
        match self {
            DataType::Primitive(_) => Ok(()),
            DataType::Struct(fields) => fields.check_names(),
            DataType::Array(array) => array.element_type.check_names(),
            DataType::Map(map) => {
                map.key_type.check_names()?;
                map.value_type.check_names()
            }
        }
    }

    fn any_field(&self, test: &mut dyn FnMut(&StructField) -> bool) -> bool {
        match self {
            DataType::Primitive(_) => false,
            DataType::Struct(fields) => fields.any_field(test),
            DataType::Array(array) => array.element_type.any_field(test),
            DataType::Map(map) => map.key_type.any_field(test) || map.value_type.any_field(test),
        }
    }

    /// Whether `test` holds for any leaf type.
    pub fn any_primitive(&self, test: &mut dyn FnMut(&Primitive) -> bool) -> bool {
        match self {
            DataType::Primitive(p) => test(p),
            DataType::Struct(s) => s.fields.iter().any(|f| f.data_type.any_primitive(test)),
            DataType::Array(a) => a.element_type.any_primitive(test),
            DataType::Map(m) => m.key_type.any_primitive(test) || m.value_type.any_primitive(test),
        }
    }
}

impl Primitive {
    fn parse(name: &str) -> Self {
        match name {
            "string" => Primitive::String,
            "long" => Primitive::Long,
            "integer" => Primitive::Integer,
            "short" => Primitive::Short,
            "byte" => Primitive::Byte,
            "float" => Primitive::Float,
            "double" => Primitive::Double,
            "boolean" => Primitive::Boolean,
            "binary" => Primitive::Binary,
            "date" => Primitive::Date,
            "timestamp" => Primitive::Timestamp,
            "timestamp_ntz" => Primitive::TimestampNtz,
            "void" | "null" => Primitive::Void,
            "variant" => Primitive::Variant,
            "decimal" => Primitive::Decimal(10, 0),
            other => {
                Self::parse_decimal(other).unwrap_or_else(|| Primitive::Other(other.to_owned()))
            }
        }
    }

    fn parse_decimal(name: &str) -> Option<Self> {
        let inner = name.strip_prefix("decimal(")?.strip_suffix(')')?;
        let (precision, scale) = inner.split_once(',')?;
        let (precision, scale): (u8, i8) =
            (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
        let fits = (1..=38).contains(&precision) && scale >= 0 && scale.unsigned_abs() <= precision;
        fits.then_some(Primitive::Decimal(precision, scale))
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Primitive::String => "string",
            Primitive::Long => "long",
            Primitive::Integer => "integer",
            Primitive::Short => "short",
            Primitive::Byte => "byte",
            Primitive::Float => "float",
            Primitive::Double => "double",
            Primitive::Decimal(precision, scale) => {
                return write!(f, "decimal({precision},{scale})");
            }
            Primitive::Boolean => "boolean",
            Primitive::Binary => "binary",
            Primitive::Date => "date",
            Primitive::Timestamp => "timestamp",
            Primitive::TimestampNtz => "timestamp_ntz",
            Primitive::Void => "void",
            Primitive::Variant => "variant",
            Primitive::Other(name) => name,
        };
        f.write_str(name)
    }
}

/// As in DDL and error messages: `struct<a:long,b:array<string>>`.
impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Primitive(p) => p.fmt(f),
            DataType::Struct(s) => {
                f.write_str("struct<")?;
                for (i, field) in s.fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{}:{}", field.name, field.data_type)?;
                }
                f.write_str(">")
            }
            DataType::Array(a) => write!(f, "array<{}>", a.element_type),
            DataType::Map(m) => write!(f, "map<{},{}>", m.key_type, m.value_type),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Tagged<'a> {
    Struct(&'a StructType),
    Array(&'a ArrayType),
    Map(&'a MapType),
}

impl Serialize for DataType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            DataType::Primitive(p) => serializer.collect_str(p),
            DataType::Struct(s) => Tagged::Struct(s).serialize(serializer),
            DataType::Array(a) => Tagged::Array(a).serialize(serializer),
            DataType::Map(m) => Tagged::Map(m).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for DataType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Json(value) = Json::deserialize(deserializer)?;
        let kind = match &value {
            Value::String(name) => return Ok(DataType::Primitive(Primitive::parse(name))),
            Value::Object(object) => object
                .get("type")
                .and_then(Value::as_str)
                .map(str::to_owned),
            _ => None,
        };
        match kind.as_deref() {
            Some("struct") => serde_json::from_value(value)
                .map(DataType::Struct)
                .map_err(D::Error::custom),
            Some("array") => serde_json::from_value(value)
                .map(DataType::Array)
                .map_err(D::Error::custom),
            Some("map") => serde_json::from_value(value)
                .map(DataType::Map)
                .map_err(D::Error::custom),
            // A user-defined type: its storage type is what the files hold.
            Some("udt") => match value.get("sqlType") {
                Some(sql) => serde_json::from_value(sql.clone()).map_err(D::Error::custom),
                None => Err(D::Error::custom("a udt without sqlType")),
            },
            _ => Err(D::Error::custom(format!("not a type: {value}"))),
        }
    }
}
