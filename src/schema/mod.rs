//! Columns and types as the Delta protocol has them (PROTOCOL.md D). Knows Arrow types; never files, logs or queries.

mod arrow;
mod calendar;
mod field;
pub(crate) mod json;
pub mod mapping;
pub mod partition;
mod scalar;
mod widen;

pub use arrow::{arrow_schema, arrow_type, from_arrow_schema, from_arrow_type};
pub use field::{
    ArrayType, DataType, INVARIANTS, MAPPING_ID, MAPPING_PHYSICAL_NAME, MapType, Primitive,
    SchemaError, StructField, StructType,
};
pub use scalar::Scalar;
pub use widen::{check_type_changes, is_widening};
