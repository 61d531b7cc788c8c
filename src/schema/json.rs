//! JSON as it stands.
//!
//! # Why
//! `serde_json::Value` reads an object whose first key is a private name of that crate as a document in a string,
//! parses that anew and starts to count its depth at 0 (feature `raw_value`). A log of a few kilobytes can so nest
//! thousands of levels deep: the stack overflows, which ends the process. Here an object is an object.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value of any kind.
pub(crate) struct Json(pub(crate) Value);

/// Reads a whole text.
///
/// # Errors
/// Those of `serde_json`: also for more than its 128 levels.
pub(crate) fn from_slice(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text).map(|Json(value)| value)
}

/// Reads an object; for `#[serde(deserialize_with)]`, also of a flattened member.
///
/// # Errors
/// Those of the format.
pub(crate) fn object<'de, D: Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    from.deserialize_map(ObjectVisitor)
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(JsonVisitor).map(Json)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Json(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Value, A::Error> {
        ObjectVisitor.visit_map(members).map(Value::Object)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Json(member))) = members.next_entry::<String, Json>()? {
            object.insert(name, member);
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_serde_json_keeps_for_itself_is_a_name() {
        for text in [
            r#"{"$serde_json::private::RawValue":"[1]"}"#,
            r#"{"a":[{"$serde_json::private::RawValue":"[1]","b":2}]}"#,
            r#"{"$serde_json::private::RawValue":{"c":[null,true,-1,18446744073709551615,0.5,"\u0000"]}}"#,
        ] {
            assert_eq!(from_slice(text.as_bytes()).unwrap().to_string(), text);
        }
        for text in ["", "{", "[1,]", "{\"a\":1}2"] {
            assert!(from_slice(text.as_bytes()).is_err(), "{text}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(from_slice(deep.as_bytes()).is_err());
    }
}
