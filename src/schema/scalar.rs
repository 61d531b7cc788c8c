//! One typed value: a partition value or a bound from the statistics.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
    new_null_array,
};

use super::arrow::arrow_type;
use super::field::{DataType, Primitive, SchemaError};

/// A value of a primitive Delta type. Timestamps are microseconds since the epoch, dates are days.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    Null,
    String(String),
    Long(i64),
    Integer(i32),
    Short(i16),
    Byte(i8),
    Float(f32),
    Double(f64),
    /// Unscaled value, precision, scale.
    Decimal(i128, u8, i8),
    Boolean(bool),
    Binary(Vec<u8>),
    Date(i32),
    Timestamp(i64),
    TimestampNtz(i64),
}

impl Scalar {
    /// `len` copies of the value as an array of `data_type`'s Arrow type.
    ///
    /// # Errors
    /// [`SchemaError::NoDeltaType`] when the type has no Arrow form or the value is of another type.
    pub fn to_array(&self, data_type: &DataType, len: usize) -> Result<ArrayRef, SchemaError> {
        let arrow = arrow_type(data_type)?;
        let array: ArrayRef = match (self, data_type) {
            (Scalar::Null, _) => new_null_array(&arrow, len),
            (Scalar::String(v), DataType::Primitive(Primitive::String)) => {
                Arc::new(StringArray::from_iter_values(std::iter::repeat_n(v, len)))
            }
            (Scalar::Long(v), DataType::Primitive(Primitive::Long)) => {
                Arc::new(Int64Array::from_value(*v, len))
            }
            (Scalar::Integer(v), DataType::Primitive(Primitive::Integer)) => {
                Arc::new(Int32Array::from_value(*v, len))
            }
            (Scalar::Short(v), DataType::Primitive(Primitive::Short)) => {
                Arc::new(Int16Array::from_value(*v, len))
            }
            (Scalar::Byte(v), DataType::Primitive(Primitive::Byte)) => {
                Arc::new(Int8Array::from_value(*v, len))
            }
            (Scalar::Float(v), DataType::Primitive(Primitive::Float)) => {
                Arc::new(Float32Array::from_value(*v, len))
            }
            (Scalar::Double(v), DataType::Primitive(Primitive::Double)) => {
                Arc::new(Float64Array::from_value(*v, len))
            }
            (Scalar::Decimal(v, ..), DataType::Primitive(Primitive::Decimal(p, s))) => Arc::new(
                Decimal128Array::from_value(*v, len)
                    .with_precision_and_scale(*p, *s)
                    .map_err(|e| SchemaError::Value {
                        text: v.to_string(),
                        expected: e.to_string(),
                    })?,
            ),
            (Scalar::Boolean(v), DataType::Primitive(Primitive::Boolean)) => {
                Arc::new(BooleanArray::from(vec![*v; len]))
            }
            (Scalar::Binary(v), DataType::Primitive(Primitive::Binary)) => {
                Arc::new(BinaryArray::from_iter_values(std::iter::repeat_n(v, len)))
            }
            (Scalar::Date(v), DataType::Primitive(Primitive::Date)) => {
                Arc::new(Date32Array::from_value(*v, len))
            }
            (Scalar::Timestamp(v), DataType::Primitive(Primitive::Timestamp)) => {
                Arc::new(TimestampMicrosecondArray::from_value(*v, len).with_timezone("UTC"))
            }
            (Scalar::TimestampNtz(v), DataType::Primitive(Primitive::TimestampNtz)) => {
                Arc::new(TimestampMicrosecondArray::from_value(*v, len))
            }
            (value, _) => {
                return Err(SchemaError::Value {
                    text: format!("{value:?}"),
                    expected: data_type.to_string(),
                });
            }
        };
        Ok(array)
    }
}
