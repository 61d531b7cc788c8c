//! Type changes that a table has seen (PROTOCOL.md D): which there are, and which a reader may know.

use serde_json::Value;

use super::field::{DataType, Primitive, SchemaError, StructField, StructType};

/// Field metadata key of the list of changes.
const TYPE_CHANGES: &str = "delta.typeChanges";

/// Whether every value of the one type has its own in the other, by the list of the protocol.
pub fn is_widening(from: &Primitive, to: &Primitive) -> bool {
    use Primitive::{Byte, Date, Decimal, Double, Float, Integer, Long, Short, TimestampNtz};
    // Digits before the point that an integer needs.
    let whole =
        |digits: u8, p: u8, s: i8| s >= 0 && i16::from(p) - i16::from(s) >= i16::from(digits);
    match (from, to) {
        (Byte, Short | Integer | Long | Double)
        | (Short, Integer | Long | Double)
        | (Integer, Long | Double)
        | (Float, Double)
        | (Date, TimestampNtz) => true,
        (Byte | Short | Integer, Decimal(p, s)) => whole(10, *p, *s),
        (Long, Decimal(p, s)) => whole(20, *p, *s),
        (Decimal(p, s), Decimal(q, t)) => {
            let (more, finer) = (i16::from(*q) - i16::from(*p), i16::from(*t) - i16::from(*s));
            finer >= 0 && more >= finer
        }
        _ => false,
    }
}

/// Fails when a recorded change of `field` or of a field below is none that the protocol lists: how the old files
/// would have to be read is then unknown.
///
/// # Errors
/// [`SchemaError::TypeChange`] names the column.
pub fn check_type_changes(field: &StructField) -> Result<(), SchemaError> {
    check_field(field, "")
}

fn check_field(field: &StructField, parent: &str) -> Result<(), SchemaError> {
    let path = match parent {
        "" => field.name.clone(),
        parent => format!("{parent}.{}", field.name),
    };
    let changes = match field.metadata.get(TYPE_CHANGES) {
        None => &[],
        Some(Value::Array(changes)) => changes.as_slice(),
        Some(other) => std::slice::from_ref(other),
    };
    for change in changes {
        let part = |key: &str| change.get(key).and_then(Value::as_str);
        let (from, to) = (part("fromType"), part("toType"));
        let listed = match (from.and_then(primitive), to.and_then(primitive)) {
            (Some(from), Some(to)) => is_widening(&from, &to),
            _ => false,
        };
        if !listed {
            let column = match part("fieldPath") {
                Some(inner) => format!("{path}.{inner}"),
                None => path,
            };
            let shown = |ty: Option<&str>| ty.unwrap_or("?").to_owned();
            return Err(SchemaError::TypeChange {
                column,
                from: shown(from),
                to: shown(to),
            });
        }
    }
    check_type(&field.data_type, &path)
}

fn check_type(data_type: &DataType, path: &str) -> Result<(), SchemaError> {
    match data_type {
        DataType::Primitive(_) => Ok(()),
        DataType::Struct(StructType { fields }) => {
            fields.iter().try_for_each(|field| check_field(field, path))
        }
        DataType::Array(array) => check_type(&array.element_type, &format!("{path}.element")),
        DataType::Map(map) => {
            check_type(&map.key_type, &format!("{path}.key"))?;
            check_type(&map.value_type, &format!("{path}.value"))
        }
    }
}

fn primitive(name: &str) -> Option<Primitive> {
    match serde_json::from_value(Value::String(name.to_owned())).ok()? {
        DataType::Primitive(primitive) => Some(primitive),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Failure as _, Kind};

    fn listed(from: &str, to: &str) -> bool {
        is_widening(&primitive(from).unwrap(), &primitive(to).unwrap())
    }

    #[test]
    fn every_listed_change_is_known_and_no_other() {
        let types = [
            "byte",
            "short",
            "integer",
            "long",
            "float",
            "double",
            "date",
            "timestamp_ntz",
            "timestamp",
            "string",
            "binary",
            "boolean",
            "decimal(10,0)",
            "decimal(11,1)",
            "decimal(20,0)",
            "decimal(21,2)",
            "decimal(5,2)",
            "decimal(7,4)",
            "decimal(6,4)",
        ];
        let known = "
            byte: short integer long double decimal(10,0) decimal(11,1) decimal(20,0) decimal(21,2)
            short: integer long double decimal(10,0) decimal(11,1) decimal(20,0) decimal(21,2)
            integer: long double decimal(10,0) decimal(11,1) decimal(20,0) decimal(21,2)
            long: decimal(20,0)
            float: double
            date: timestamp_ntz
            decimal(10,0): decimal(10,0) decimal(11,1) decimal(20,0) decimal(21,2)
            decimal(11,1): decimal(11,1) decimal(21,2)
            decimal(20,0): decimal(20,0)
            decimal(21,2): decimal(21,2)
            decimal(5,2): decimal(5,2) decimal(7,4) decimal(21,2)
            decimal(7,4): decimal(7,4)
            decimal(6,4): decimal(6,4) decimal(7,4)";
        for from in types {
            let mut lines = known.lines();
            let row = lines.find_map(|l| l.trim().strip_prefix(&format!("{from}: ")));
            for to in types {
                let expected = row.is_some_and(|row| row.split(' ').any(|t| t == to));
                assert_eq!(listed(from, to), expected, "{from} to {to}");
            }
        }
    }

    fn field(json: &str) -> StructField {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn an_unlisted_change_is_an_error_at_any_depth() {
        let change = |from: &str, to: &str, path: &str| {
            format!(
                r#"{{"delta.typeChanges":[{{"fromType":"byte","toType":"short","tableVersion":1}},
                {{"fromType":"{from}","toType":"{to}"{path}}}]}}"#
            )
        };
        let top = |metadata: &str| {
            field(&format!(
                r#"{{"name":"a","type":"long","nullable":true,"metadata":{metadata}}}"#
            ))
        };
        check_type_changes(&top(&change("short", "long", ""))).unwrap();
        let error = check_type_changes(&top(&change("string", "long", ""))).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert_eq!(
            error.to_string(),
            "column `a` was changed from string to long, a change that is not known to deltafs"
        );
        let nested = field(&format!(
            r#"{{"name":"m","type":{{"type":"map","keyType":"string","valueContainsNull":true,"valueType":
            {{"type":"struct","fields":[{{"name":"x","nullable":true,"metadata":{},
            "type":{{"type":"array","elementType":"long","containsNull":true}}}}]}}}},
            "nullable":true,"metadata":{{}}}}"#,
            change("long", "integer", r#","fieldPath":"element""#)
        ));
        match check_type_changes(&nested).unwrap_err() {
            SchemaError::TypeChange { column, .. } => assert_eq!(column, "m.value.x.element"),
            other => panic!("{other}"),
        }
        for odd in [
            r#"{"delta.typeChanges":7}"#,
            r#"{"delta.typeChanges":[{}]}"#,
        ] {
            assert!(check_type_changes(&top(odd)).is_err(), "{odd}");
        }
        check_type_changes(&top(r#"{"delta.typeChanges":[]}"#)).unwrap();
    }
}
