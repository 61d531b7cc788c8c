//! What a file's Parquet schema says, held against a table's types: is it what any Delta reader expects?

use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical,
};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::Type;

use super::conform::same_name;
use super::convert::MappingMode;
use crate::schema::{DataType, Primitive, StructField, StructType};

/// Whether the file holds exactly `schema` (a table's columns without its partition columns), under its
/// spelling, as types, encodings and codecs that every Delta reader knows. Order and REQUIRED may differ. With
/// column mapping the names are the physical ones, and every field has its id.
pub(crate) fn conforms(
    metadata: &ParquetMetaData,
    schema: &StructType,
    mapping: MappingMode,
) -> bool {
    let root = metadata.file_metadata().schema();
    fields_conform(root, schema, mapping)
        && metadata.row_groups().iter().all(|group| {
            group.columns().iter().all(|chunk| {
                let codec = matches!(
                    chunk.compression(),
                    Compression::UNCOMPRESSED
                        | Compression::SNAPPY
                        | Compression::GZIP(_)
                        | Compression::ZSTD(_)
                        | Compression::LZ4_RAW
                );
                // Spark's vectorized reader lacks BYTE_STREAM_SPLIT.
                codec && chunk.encodings().all(|e| e != Encoding::BYTE_STREAM_SPLIT)
            })
        })
}

/// Whether a field of the file is this one, by its name and where that counts by its id.
fn is_field(ty: &Type, field: &StructField, mapping: MappingMode) -> bool {
    if mapping == MappingMode::None {
        return ty.name() == field.name;
    }
    let info = ty.get_basic_info();
    ty.name() == field.physical_name()
        && info.has_id()
        && field.mapping_id() == Some(i64::from(info.id()))
}

fn fields_conform(group: &Type, schema: &StructType, mapping: MappingMode) -> bool {
    let children = group.get_fields();
    let void = DataType::Primitive(Primitive::Void);
    let written = schema.fields.iter().filter(|f| f.data_type != void);
    let mut count = 0;
    for field in written {
        count += 1;
        let mut hits = children.iter().filter(|c| is_field(c, field, mapping));
        match (hits.next(), hits.next()) {
            (Some(child), None) if type_conforms(child, &field.data_type, mapping) => {}
            _ => return false,
        }
    }
    count > 0 && count == children.len()
}

fn repetition(ty: &Type) -> Repetition {
    let info = ty.get_basic_info();
    if info.has_repetition() {
        info.repetition()
    } else {
        Repetition::REQUIRED
    }
}

fn type_conforms(ty: &Type, data_type: &DataType, mapping: MappingMode) -> bool {
    if repetition(ty) == Repetition::REPEATED {
        return false;
    }
    match data_type {
        DataType::Primitive(primitive) => leaf_conforms(ty, primitive),
        DataType::Struct(fields) => {
            let info = ty.get_basic_info();
            ty.is_group()
                && info.logical_type_ref().is_none()
                && info.converted_type() == ConvertedType::NONE
                && fields_conform(ty, fields, mapping)
        }
        DataType::Array(array) => {
            element(ty).is_some_and(|e| type_conforms(e, &array.element_type, mapping))
        }
        DataType::Map(map) => entries(ty).is_some_and(|(key, value)| {
            repetition(key) == Repetition::REQUIRED
                && type_conforms(key, &map.key_type, mapping)
                && type_conforms(value, &map.value_type, mapping)
        }),
    }
}

/// The element of a standard three-level list.
fn element(ty: &Type) -> Option<&Type> {
    let info = ty.get_basic_info();
    let list = ty.is_group()
        && (info.converted_type() == ConvertedType::LIST
            || matches!(info.logical_type_ref(), Some(LogicalType::List)));
    let [repeated] = ty_fields(ty)? else {
        return None;
    };
    // Names that mean a two-level list to old readers.
    let two_level = repeated.name() == "array" || repeated.name() == format!("{}_tuple", ty.name());
    match ty_fields(repeated)? {
        [element]
            if list
                && !two_level
                && repetition(repeated) == Repetition::REPEATED
                && repetition(element) != Repetition::REPEATED =>
        {
            Some(element)
        }
        _ => None,
    }
}

/// Key and value of a standard map.
fn entries(ty: &Type) -> Option<(&Type, &Type)> {
    let info = ty.get_basic_info();
    let map = ty.is_group()
        && (info.converted_type() == ConvertedType::MAP
            || matches!(info.logical_type_ref(), Some(LogicalType::Map)));
    let [repeated] = ty_fields(ty)? else {
        return None;
    };
    match ty_fields(repeated)? {
        [key, value] if map && repetition(repeated) == Repetition::REPEATED => Some((key, value)),
        _ => None,
    }
}

fn ty_fields(ty: &Type) -> Option<&[std::sync::Arc<Type>]> {
    ty.is_group().then(|| ty.get_fields())
}

fn leaf_conforms(ty: &Type, primitive: &Primitive) -> bool {
    let Type::PrimitiveType {
        basic_info,
        physical_type,
        scale,
        precision,
        ..
    } = ty
    else {
        return false;
    };
    let logical = basic_info.logical_type_ref();
    let converted = basic_info.converted_type();
    let plain = logical.is_none() && converted == ConvertedType::NONE;
    let integer = |bits: i8, old: ConvertedType| match logical {
        Some(LogicalType::Integer(int)) => int.bit_width == bits && int.is_signed,
        Some(_) => false,
        None => converted == old,
    };
    let timestamp = |utc: bool| match logical {
        Some(LogicalType::Timestamp(ts)) => {
            ts.is_adjusted_to_u_t_c == utc && ts.unit == TimeUnit::MICROS
        }
        Some(_) => false,
        None => utc && converted == ConvertedType::TIMESTAMP_MICROS,
    };
    match (primitive, *physical_type) {
        (Primitive::String, Physical::BYTE_ARRAY) => match logical {
            Some(logical) => matches!(logical, LogicalType::String),
            None => converted == ConvertedType::UTF8,
        },
        (Primitive::Binary, Physical::BYTE_ARRAY)
        | (Primitive::Boolean, Physical::BOOLEAN)
        | (Primitive::Float, Physical::FLOAT)
        | (Primitive::Double, Physical::DOUBLE) => plain,
        (Primitive::Long, Physical::INT64) => plain || integer(64, ConvertedType::INT_64),
        (Primitive::Integer, Physical::INT32) => plain || integer(32, ConvertedType::INT_32),
        (Primitive::Short, Physical::INT32) => integer(16, ConvertedType::INT_16),
        (Primitive::Byte, Physical::INT32) => integer(8, ConvertedType::INT_8),
        (Primitive::Date, Physical::INT32) => match logical {
            Some(logical) => matches!(logical, LogicalType::Date),
            None => converted == ConvertedType::DATE,
        },
        (Primitive::Timestamp, Physical::INT64) => timestamp(true),
        (Primitive::TimestampNtz, Physical::INT64) => timestamp(false),
        (Primitive::Decimal(p, s), physical) => {
            let same = match logical {
                Some(LogicalType::Decimal(d)) => {
                    d.precision == i32::from(*p) && d.scale == i32::from(*s)
                }
                Some(_) => false,
                None => {
                    converted == ConvertedType::DECIMAL
                        && *precision == i32::from(*p)
                        && *scale == i32::from(*s)
                }
            };
            same && match physical {
                Physical::INT32 => *p <= 9,
                Physical::INT64 => (10..=18).contains(p),
                Physical::FIXED_LEN_BYTE_ARRAY => true,
                _ => false,
            }
        }
        _ => false,
    }
}

/// Top-level columns of a conforming file in which NOT NULL can be violated as far as the footer says.
pub(crate) fn unproven_not_null(metadata: &ParquetMetaData, schema: &StructType) -> Vec<String> {
    let mut leaf = 0;
    let mut unproven = Vec::new();
    for child in metadata.file_metadata().schema().get_fields() {
        let field = schema
            .fields
            .iter()
            .find(|f| same_name(&f.name, child.name()));
        let proven = match field {
            Some(field) => {
                not_null_proven(metadata, child, &field.data_type, field.nullable, &mut leaf)
            }
            None => {
                leaf += leaves(child);
                true
            }
        };
        if let (false, Some(field)) = (proven, field) {
            unproven.push(field.name.clone());
        }
    }
    unproven
}

fn leaves(ty: &Type) -> usize {
    match ty_fields(ty) {
        None => 1,
        Some(children) => children.iter().map(|c| leaves(c)).sum(),
    }
}

/// Advances `leaf` over the leaves of `ty`.
fn not_null_proven(
    metadata: &ParquetMetaData,
    ty: &Type,
    data_type: &DataType,
    nullable: bool,
    leaf: &mut usize,
) -> bool {
    let first = *leaf;
    let inner = match data_type {
        DataType::Primitive(_) => true,
        DataType::Struct(fields) => ty_fields(ty).unwrap_or_default().iter().all(|child| {
            match fields
                .fields
                .iter()
                .find(|f| same_name(&f.name, child.name()))
            {
                Some(f) => not_null_proven(metadata, child, &f.data_type, f.nullable, leaf),
                None => {
                    *leaf += leaves(child);
                    true
                }
            }
        }),
        DataType::Array(array) => element(ty).is_some_and(|e| {
            not_null_proven(metadata, e, &array.element_type, array.contains_null, leaf)
        }),
        DataType::Map(map) => entries(ty).is_some_and(|(key, value)| {
            not_null_proven(metadata, key, &map.key_type, false, leaf)
                && not_null_proven(
                    metadata,
                    value,
                    &map.value_type,
                    map.value_contains_null,
                    leaf,
                )
        }),
    };
    *leaf = first + leaves(ty);
    if !inner {
        return false;
    }
    // A leaf that is never NULL has no NULL ancestor.
    nullable
        || repetition(ty) == Repetition::REQUIRED
        || (first..*leaf).any(|index| {
            metadata.row_groups().iter().all(|group| {
                let chunk = group.columns().get(index);
                chunk.and_then(|c| c.statistics()?.null_count_opt()) == Some(0)
            })
        })
}
