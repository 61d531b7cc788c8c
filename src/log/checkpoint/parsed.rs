//! Statistics and partition values as typed columns: `add.stats_parsed`, `add.partitionValues_parsed`
//! (`delta.checkpoint.writeStatsAsStruct`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::error::ArrowError;
use serde_json::value::RawValue;

use super::rows::{flags, longs, struct_of};
use crate::log::Add;
use crate::schema::partition::parse_value;
use crate::schema::{DataType, Primitive, Scalar, StructType};

/// The columns that get typed values. Both are parts of the table's schema; names in the file are physical.
#[derive(Debug, Clone, Copy)]
pub struct ParsedColumns<'a> {
    /// Columns with statistics.
    pub stats: &'a StructType,
    /// Partition columns.
    pub partition: &'a StructType,
}

/// JSON with numbers as text: a decimal loses digits as a float, and a bound that is rounded is a wrong one.
enum Json {
    Object(BTreeMap<String, Json>),
    Text(String),
    /// A number, a word, or an array.
    Other(String),
}

/// Levels of structs; deeper ones have no statistics.
const MAX_DEPTH: usize = 64;

impl Json {
    fn parse(text: &str, depth: usize) -> Option<Self> {
        match text.as_bytes().first()? {
            b'{' if depth == 0 => None,
            b'{' => {
                let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
                let members = members
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, Json::parse(value.get(), depth - 1)?)));
                Some(Json::Object(members.collect()))
            }
            b'"' => serde_json::from_str(text).ok().map(Json::Text),
            _ => Some(Json::Other(text.to_owned())),
        }
    }

    fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.get(name),
            Json::Text(_) | Json::Other(_) => None,
        }
    }

    fn literal<T: std::str::FromStr>(&self) -> Option<T> {
        match self {
            Json::Other(text) => text.parse().ok(),
            Json::Object(_) | Json::Text(_) => None,
        }
    }
}

type Documents<'a> = Vec<Option<&'a Json>>;

impl ParsedColumns<'_> {
    /// The members of `add`. What does not parse is NULL: no bound, never a wrong one.
    pub(super) fn columns(
        &self,
        rows: &Vec<Option<&Add>>,
    ) -> Result<Vec<(&'static str, ArrayRef)>, ArrowError> {
        let parsed: Vec<Option<Json>> = rows.iter().map(|row| stats(row.as_ref()?)).collect();
        let documents: Documents<'_> = parsed.iter().map(Option::as_ref).collect();
        let part = |name: &str| member(&documents, name);
        let mut members = vec![(
            "numRecords",
            longs(&documents, |d| d.get("numRecords")?.literal()),
        )];
        for name in ["minValues", "maxValues"] {
            members.extend(bounds(self.stats, &part(name))?.map(|array| (name, array)));
        }
        members.extend(counts(self.stats, &part("nullCount")).map(|array| ("nullCount", array)));
        members.push((
            "tightBounds",
            flags(&documents, |d| d.get("tightBounds")?.literal()),
        ));
        let mut columns = vec![("stats_parsed", struct_of(validity(&documents), members))];
        if !self.partition.fields.is_empty() {
            columns.push(("partitionValues_parsed", self.partition_values(rows)?));
        }
        Ok(columns)
    }

    fn partition_values(&self, rows: &[Option<&Add>]) -> Result<ArrayRef, ArrowError> {
        let mut members = Vec::new();
        for field in &self.partition.fields {
            let DataType::Primitive(primitive) = &field.data_type else {
                continue;
            };
            let name = field.physical_name();
            let value = |add: &Add| {
                let text = add.partition_values.get(name)?.as_deref();
                parse_value(text, &field.data_type).ok()
            };
            let scalars = rows.iter().map(|row| row.and_then(value));
            members.extend(array(primitive, scalars)?.map(|array| (name, array)));
        }
        let validity = rows.iter().map(Option::is_some).collect();
        Ok(struct_of(validity, members))
    }
}

fn stats(add: &Add) -> Option<Json> {
    Json::parse(add.stats.as_deref()?.trim(), MAX_DEPTH)
}

fn member<'a>(documents: &Documents<'a>, name: &str) -> Documents<'a> {
    let get = |document: &Option<&'a Json>| document.and_then(|d| d.get(name));
    documents.iter().map(get).collect()
}

fn validity(documents: &Documents<'_>) -> NullBuffer {
    let is_object = |document: &Option<&Json>| matches!(document, Some(Json::Object(_)));
    documents.iter().map(is_object).collect()
}

/// Minima or maxima of the columns that have an order; `None` when there are none, since Parquet knows no empty group.
fn bounds(schema: &StructType, documents: &Documents<'_>) -> Result<Option<ArrayRef>, ArrowError> {
    let mut members = Vec::new();
    for field in &schema.fields {
        let name = field.physical_name();
        let values = member(documents, name);
        let column = match &field.data_type {
            DataType::Struct(inner) => bounds(inner, &values)?,
            DataType::Primitive(Primitive::Boolean | Primitive::Binary) => None,
            DataType::Primitive(primitive) => {
                let scalar = |value: &Json| scalar(value, &field.data_type);
                array(primitive, values.iter().map(|value| value.and_then(scalar)))?
            }
            DataType::Array(_) | DataType::Map(_) => None,
        };
        members.extend(column.map(|column| (name, column)));
    }
    Ok((!members.is_empty()).then(|| struct_of(validity(documents), members)))
}

fn counts(schema: &StructType, documents: &Documents<'_>) -> Option<ArrayRef> {
    let mut members = Vec::new();
    for field in &schema.fields {
        let name = field.physical_name();
        let values = member(documents, name);
        let column = match &field.data_type {
            DataType::Struct(inner) => counts(inner, &values),
            DataType::Primitive(_) | DataType::Array(_) | DataType::Map(_) => {
                Some(longs(&values, Json::literal))
            }
        };
        members.extend(column.map(|column| (name, column)));
    }
    (!members.is_empty()).then(|| struct_of(validity(documents), members))
}

fn scalar(value: &Json, data_type: &DataType) -> Option<Scalar> {
    match value {
        // Empty text is a value here; only in partition values it is NULL.
        Json::Text(text) if *data_type == DataType::Primitive(Primitive::String) => {
            Some(Scalar::String(text.clone()))
        }
        Json::Other(_) if *data_type == DataType::Primitive(Primitive::String) => None,
        // NaN is no bound: readers disagree on its place in the order.
        Json::Text(text) | Json::Other(text) => {
            parse_value(Some(text), data_type)
                .ok()
                .filter(|scalar| match scalar {
                    Scalar::Float(value) => !value.is_nan(),
                    Scalar::Double(value) => !value.is_nan(),
                    _ => true,
                })
        }
        Json::Object(_) => None,
    }
}

/// `None` for a type that has no typed form in a checkpoint.
fn array(
    primitive: &Primitive,
    scalars: impl Iterator<Item = Option<Scalar>>,
) -> Result<Option<ArrayRef>, ArrowError> {
    /// Values of one variant; anything else is NULL.
    macro_rules! collect {
        ($array:ty, $variant:ident) => {
            scalars
                .map(|scalar| match scalar {
                    Some(Scalar::$variant(value)) => Some(value),
                    _ => None,
                })
                .collect::<$array>()
        };
    }
    let array: ArrayRef = match primitive {
        Primitive::String => Arc::new(collect!(StringArray, String)),
        Primitive::Long => Arc::new(collect!(Int64Array, Long)),
        Primitive::Integer => Arc::new(collect!(Int32Array, Integer)),
        Primitive::Short => Arc::new(collect!(Int16Array, Short)),
        Primitive::Byte => Arc::new(collect!(Int8Array, Byte)),
        Primitive::Float => Arc::new(collect!(Float32Array, Float)),
        Primitive::Double => Arc::new(collect!(Float64Array, Double)),
        Primitive::Boolean => Arc::new(collect!(BooleanArray, Boolean)),
        Primitive::Binary => Arc::new(collect!(BinaryArray, Binary)),
        Primitive::Date => Arc::new(collect!(Date32Array, Date)),
        Primitive::Timestamp => {
            Arc::new(collect!(TimestampMicrosecondArray, Timestamp).with_timezone("UTC"))
        }
        Primitive::TimestampNtz => Arc::new(collect!(TimestampMicrosecondArray, TimestampNtz)),
        Primitive::Decimal(precision, scale) => {
            let unscaled = scalars.map(|scalar| match scalar {
                Some(Scalar::Decimal(value, ..)) => Some(value),
                _ => None,
            });
            let array = unscaled.collect::<Decimal128Array>();
            Arc::new(array.with_precision_and_scale(*precision, *scale)?)
        }
        Primitive::Void | Primitive::Variant | Primitive::Other(_) => return Ok(None),
    };
    Ok(Some(array))
}
