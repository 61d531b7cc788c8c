//! Delta types to and from Arrow's.

use std::sync::Arc;

use arrow::datatypes::{DataType as Arrow, Field, Fields, Schema, TimeUnit};

use super::field::{ArrayType, DataType, MapType, Primitive, SchemaError, StructField, StructType};

/// The Arrow schema of a table, by logical names. Timestamps are microseconds, zoned ones in UTC.
///
/// # Errors
/// [`SchemaError::NoDeltaType`] for types that this version cannot read.
pub fn arrow_schema(schema: &StructType) -> Result<Schema, SchemaError> {
    Ok(Schema::new(arrow_fields(schema)?))
}

fn arrow_fields(schema: &StructType) -> Result<Fields, SchemaError> {
    schema.fields.iter().map(arrow_field).collect()
}

fn arrow_field(field: &StructField) -> Result<Field, SchemaError> {
    let data_type = arrow_type(&field.data_type).map_err(|e| in_column(&field.name, e))?;
    Ok(Field::new(&field.name, data_type, field.nullable))
}

/// Prefixes the column of a type error with the name of the field around it.
fn in_column(name: &str, error: SchemaError) -> SchemaError {
    match error {
        SchemaError::NoDeltaType { column, found } if column.is_empty() => {
            SchemaError::NoDeltaType {
                column: name.to_owned(),
                found,
            }
        }
        SchemaError::NoDeltaType { column, found } => SchemaError::NoDeltaType {
            column: format!("{name}.{column}"),
            found,
        },
        other => other,
    }
}

/// The Arrow type of one Delta type.
///
/// # Errors
/// [`SchemaError::NoDeltaType`] for types that this version cannot read.
pub fn arrow_type(data_type: &DataType) -> Result<Arrow, SchemaError> {
    Ok(match data_type {
        DataType::Primitive(p) => match p {
            Primitive::String => Arrow::Utf8,
            Primitive::Long => Arrow::Int64,
            Primitive::Integer => Arrow::Int32,
            Primitive::Short => Arrow::Int16,
            Primitive::Byte => Arrow::Int8,
            Primitive::Float => Arrow::Float32,
            Primitive::Double => Arrow::Float64,
            Primitive::Decimal(precision, scale) => Arrow::Decimal128(*precision, *scale),
            Primitive::Boolean => Arrow::Boolean,
            Primitive::Binary => Arrow::Binary,
            Primitive::Date => Arrow::Date32,
            Primitive::Timestamp => Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Primitive::TimestampNtz => Arrow::Timestamp(TimeUnit::Microsecond, None),
            Primitive::Void => Arrow::Null,
            Primitive::Variant => Arrow::Struct(Fields::from(vec![
                Field::new("metadata", Arrow::Binary, false),
                Field::new("value", Arrow::Binary, false),
            ])),
            Primitive::Other(name) => {
                return Err(SchemaError::NoDeltaType {
                    column: String::new(),
                    found: name.clone(),
                });
            }
        },
        DataType::Struct(fields) => Arrow::Struct(arrow_fields(fields)?),
        DataType::Array(array) => Arrow::List(Arc::new(Field::new(
            "element",
            arrow_type(&array.element_type).map_err(|e| in_column("element", e))?,
            array.contains_null,
        ))),
        DataType::Map(map) => Arrow::Map(
            Arc::new(Field::new(
                "key_value",
                Arrow::Struct(Fields::from(vec![
                    Field::new(
                        "key",
                        arrow_type(&map.key_type).map_err(|e| in_column("key", e))?,
                        false,
                    ),
                    Field::new(
                        "value",
                        arrow_type(&map.value_type).map_err(|e| in_column("value", e))?,
                        map.value_contains_null,
                    ),
                ])),
                false,
            )),
            false,
        ),
    })
}

/// The Delta schema of a file's Arrow schema, for a table that is created from it. Every column becomes
/// nullable, as Spark makes it: a file's REQUIRED says nothing of the rows to come.
///
/// # Errors
/// [`SchemaError::NoDeltaType`] names the column that no Delta type can hold; [`SchemaError::Duplicate`].
pub fn from_arrow_schema(schema: &Schema) -> Result<StructType, SchemaError> {
    let fields = StructType {
        fields: from_arrow_fields(schema.fields())?,
    };
    fields.check_names()?;
    Ok(fields)
}

fn from_arrow_fields(fields: &Fields) -> Result<Vec<StructField>, SchemaError> {
    fields
        .iter()
        .map(|f| {
            let data_type = from_arrow_type(f.data_type()).map_err(|e| in_column(f.name(), e))?;
            Ok(StructField::new(f.name().as_str(), data_type, true))
        })
        .collect()
}

/// The smallest Delta type that holds every value of an Arrow type. Unsigned integers go to the next wider
/// signed type, `uint64` to `decimal(20,0)`; seconds and milliseconds become microseconds, nanoseconds are
/// checked for loss when values are converted.
///
/// # Errors
/// [`SchemaError::NoDeltaType`] when there is none.
pub fn from_arrow_type(data_type: &Arrow) -> Result<DataType, SchemaError> {
    let primitive = match data_type {
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View => Primitive::String,
        Arrow::Int64 | Arrow::UInt32 => Primitive::Long,
        Arrow::Int32 | Arrow::UInt16 => Primitive::Integer,
        Arrow::Int16 | Arrow::UInt8 => Primitive::Short,
        Arrow::Int8 => Primitive::Byte,
        Arrow::UInt64 => Primitive::Decimal(20, 0),
        Arrow::Float16 | Arrow::Float32 => Primitive::Float,
        Arrow::Float64 => Primitive::Double,
        Arrow::Decimal32(p, s) | Arrow::Decimal64(p, s) | Arrow::Decimal128(p, s) if *s >= 0 => {
            Primitive::Decimal(*p, *s)
        }
        Arrow::Decimal256(p, s) if *p <= 38 && *s >= 0 => Primitive::Decimal(*p, *s),
        Arrow::Boolean => Primitive::Boolean,
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView | Arrow::FixedSizeBinary(_) => {
            Primitive::Binary
        }
        Arrow::Date32 | Arrow::Date64 => Primitive::Date,
        Arrow::Timestamp(_, Some(_)) => Primitive::Timestamp,
        Arrow::Timestamp(_, None) => Primitive::TimestampNtz,
        Arrow::Dictionary(_, value) => return from_arrow_type(value),
        Arrow::Struct(fields) => {
            return Ok(DataType::Struct(StructType {
                fields: from_arrow_fields(fields)?,
            }));
        }
        Arrow::List(item)
        | Arrow::LargeList(item)
        | Arrow::FixedSizeList(item, _)
        | Arrow::ListView(item)
        | Arrow::LargeListView(item) => {
            let element_type =
                from_arrow_type(item.data_type()).map_err(|e| in_column("element", e))?;
            return Ok(DataType::Array(Box::new(ArrayType {
                element_type,
                contains_null: true,
            })));
        }
        Arrow::Map(entries, _) => {
            if let Arrow::Struct(kv) = entries.data_type()
                && let [key, value] = kv.iter().as_slice()
            {
                return Ok(DataType::Map(Box::new(MapType {
                    key_type: from_arrow_type(key.data_type()).map_err(|e| in_column("key", e))?,
                    value_type: from_arrow_type(value.data_type())
                        .map_err(|e| in_column("value", e))?,
                    value_contains_null: true,
                })));
            }
            return Err(no_type(data_type));
        }
        _ => return Err(no_type(data_type)),
    };
    Ok(DataType::Primitive(primitive))
}

fn no_type(data_type: &Arrow) -> SchemaError {
    SchemaError::NoDeltaType {
        column: String::new(),
        found: data_type.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_goes_to_arrow_and_back() {
        let json = r#"{"type":"struct","fields":[
            {"name":"id","type":"long","nullable":true,"metadata":{}},
            {"name":"d","type":"decimal(12,3)","nullable":true,"metadata":{}},
            {"name":"addr","type":{"type":"struct","fields":[
                {"name":"zip","type":"string","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},
            {"name":"tags","type":{"type":"array","elementType":"string","containsNull":true},"nullable":true,"metadata":{}},
            {"name":"m","type":{"type":"map","keyType":"string","valueType":"timestamp_ntz","valueContainsNull":true},"nullable":true,"metadata":{}}]}"#;
        let schema = StructType::from_json(json).unwrap();
        let arrow = arrow_schema(&schema).unwrap();
        assert_eq!(from_arrow_schema(&arrow).unwrap(), schema);
        assert_eq!(StructType::from_json(&schema.to_json()).unwrap(), schema);
    }

    #[test]
    fn an_impossible_type_is_named_with_its_path() {
        let schema = Schema::new(vec![Field::new(
            "a",
            Arrow::Struct(Fields::from(vec![Field::new(
                "t",
                Arrow::Time64(TimeUnit::Nanosecond),
                true,
            )])),
            true,
        )]);
        let error = from_arrow_schema(&schema).unwrap_err();
        assert!(matches!(error, SchemaError::NoDeltaType { ref column, .. } if column == "a.t"));
    }

    #[test]
    fn names_that_differ_only_in_case_are_refused() {
        let schema = Schema::new(vec![
            Field::new("a", Arrow::Int32, true),
            Field::new("A", Arrow::Int32, true),
        ]);
        assert!(matches!(
            from_arrow_schema(&schema),
            Err(SchemaError::Duplicate(..))
        ));
    }
}
