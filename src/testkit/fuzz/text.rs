//! Paths, partition values, statistics and schemas: text in actions.

use std::path::Path;

use serde_json::Value;

use crate::datafile::{FileStats, location};
use crate::log::PartitionValues;
use crate::schema::partition::{
    HIVE_DEFAULT, decode_path, dir_name, encode_path, format_value, parse_dir, parse_value,
};
use crate::schema::{DataType, Primitive, Scalar, StructField, StructType, arrow_schema};
use crate::table::DataPath;

/// Tables in odd places.
const TABLES: &[&str] = &["/w/t", "/", "/w/a b%20ü/t"];

/// A path of the log, and the two lines of the input as a partition's column and value.
pub(super) fn paths(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    assert_eq!(decode_path(&encode_path(text)).as_deref(), Some(text));
    for table in TABLES {
        if let DataPath::Inside(path) = DataPath::parse(text, Path::new(table)) {
            stays_inside(&path);
            for spelling in spellings(table, &path) {
                let again = DataPath::parse(&spelling, Path::new(table));
                assert_eq!(again, DataPath::Inside(path.clone()), "{spelling}");
            }
        }
    }
    let _ = parse_dir(text);
    let (column, value) = text.split_once('\n').unwrap_or((text, ""));
    partition(column, value);
}

fn stays_inside(path: &str) {
    assert!(!path.contains('\0'), "{path:?}");
    for part in path.split('/') {
        assert!(!matches!(part, "" | "." | ".."), "{path:?}");
    }
}

/// Texts that lead to a path below the table.
fn spellings(table: &str, path: &str) -> [String; 4] {
    let root = table.trim_end_matches('/');
    [
        format!("./{}", encode_path(path)),
        format!("{}/{}", encode_path(root), encode_path(path)),
        format!("file:{}/{}", encode_path(root), encode_path(path)),
        format!("file://{}/{}", encode_path(root), encode_path(path)),
    ]
}

/// The directory of a value is one part of a path, comes back, and its file's `add.path` leads to the file.
fn partition(column: &str, value: &str) {
    if column.is_empty() {
        return;
    }
    let dir = dir_name(column, Some(value));
    assert!(!dir.contains(['/', '\0']) && !matches!(dir.as_str(), "." | ".."));
    let back = parse_dir(&dir);
    let expected = (!value.is_empty()).then(|| value.to_owned());
    // A value that is the name of NULL may come back as NULL, but as nothing else.
    let null = Some((column.to_owned(), None));
    assert!(
        back == Some((column.to_owned(), expected)) || (value == HIVE_DEFAULT && back == null),
        "{back:?}"
    );

    let string = DataType::Primitive(Primitive::String);
    let schema = StructType {
        fields: vec![StructField::new(column, string, true)],
    };
    let values = PartitionValues::from([(column.to_owned(), Some(value.to_owned()))]);
    let place = location("f.parquet", &schema, &[column.to_owned()], &values, None);
    stays_inside(&place.relative);
    assert!(place.relative.split('/').all(|part| part.len() <= 255));
    for table in TABLES {
        let parsed = DataPath::parse(&place.add_path, Path::new(table));
        assert_eq!(parsed, DataPath::Inside(place.relative.clone()));
    }
}

/// Types that partition columns can have.
const PRIMITIVES: &[Primitive] = &[
    Primitive::String,
    Primitive::Long,
    Primitive::Integer,
    Primitive::Short,
    Primitive::Byte,
    Primitive::Float,
    Primitive::Double,
    Primitive::Decimal(10, 2),
    Primitive::Decimal(38, 0),
    Primitive::Decimal(38, 38),
    Primitive::Boolean,
    Primitive::Binary,
    Primitive::Date,
    Primitive::Timestamp,
    Primitive::TimestampNtz,
];

/// A value has one text, and the text is that value.
pub(super) fn partition_values(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for primitive in PRIMITIVES {
        let data_type = DataType::Primitive(primitive.clone());
        let Ok(value) = parse_value(Some(text), &data_type) else {
            continue;
        };
        assert_eq!(value.to_array(&data_type, 1).unwrap().len(), 1);
        let Ok(canonical) = format_value(&value) else {
            assert!(matches!(value, Scalar::Binary(_)));
            continue;
        };
        let again = parse_value(canonical.as_deref(), &data_type).unwrap();
        assert!(
            same(&again, &value),
            "{text:?} {canonical:?} {again:?} {value:?}"
        );
        assert_eq!(format_value(&again).unwrap(), canonical);
    }
}

/// Equal bits: also for NaN, and not for zeros of two signs.
fn same(a: &Scalar, b: &Scalar) -> bool {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        (Scalar::Double(a), Scalar::Double(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        // Nothing distinguishes what is empty from NULL.
        (Scalar::Null, Scalar::Binary(bytes)) => bytes.is_empty(),
        _ => a == b,
    }
}

/// Statistics: every bound is what the JSON says, or absent.
pub(super) fn stats(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let stats = FileStats::parse(text);
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    if document.is_null() {
        return;
    }
    if let Some(count) = document.get("numRecords").and_then(Value::as_u64) {
        assert!(stats.num_records().is_none_or(|found| found == count));
    }
    for part in ["minValues", "maxValues", "nullCount"] {
        let mut path = Vec::new();
        if let Some(member) = document.get(part) {
            leaves(part, member, &mut path, &stats);
        }
    }
}

fn leaves<'v>(part: &str, value: &'v Value, path: &mut Vec<&'v str>, stats: &FileStats<'_>) {
    if let Value::Object(members) = value {
        for (name, member) in members.iter().take(100) {
            path.push(name);
            leaves(part, member, path, stats);
            path.pop();
        }
        return;
    }
    if part == "nullCount" {
        if let (Some(found), Some(count)) = (stats.null_count(path), value.as_u64()) {
            assert_eq!(found, count);
        }
        return;
    }
    for primitive in PRIMITIVES {
        let data_type = DataType::Primitive(primitive.clone());
        let bound = match part {
            "minValues" => stats.min(path, &data_type),
            _ => stats.max(path, &data_type),
        };
        match (bound, value) {
            (Some(Scalar::Long(found)), Value::Number(n)) if n.is_i64() => {
                assert_eq!(Some(found), n.as_i64());
            }
            // A maximum that Spark has cut is moved up.
            (Some(Scalar::String(found)), Value::String(text)) if part == "maxValues" => {
                assert!(found.as_str() >= text.as_str(), "{found}");
            }
            (Some(Scalar::String(found)), text) => assert_eq!(Some(found.as_str()), text.as_str()),
            (Some(Scalar::Double(found)), Value::Number(n)) => {
                assert!(found.is_finite() && n.as_f64().is_some());
            }
            (Some(_), Value::Null | Value::Array(_) | Value::Object(_)) => {
                panic!("a bound out of {value}")
            }
            _ => {}
        }
    }
}

/// A schema is written as it was read, and has an Arrow form or a reason why not.
pub(super) fn schema(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(parsed) = StructType::from_json(text) else {
        return;
    };
    let json = parsed.to_json();
    assert_eq!(StructType::from_json(&json).as_ref(), Ok(&parsed));
    parsed.check_names().unwrap();
    let mut fields = 0;
    parsed.any_field(&mut |field| {
        assert!(!field.name.is_empty());
        let _ = (field.physical_name(), field.mapping_id());
        fields += 1;
        false
    });
    assert!(fields >= parsed.fields.len());
    for field in &parsed.fields {
        assert!(
            parsed
                .field(&field.name)
                .is_some_and(|found| found == field)
        );
    }
    if let Ok(arrow) = arrow_schema(&parsed) {
        assert_eq!(arrow.fields().len(), parsed.fields.len());
    }
    let _ = DataType::Struct(parsed).to_string();
}
