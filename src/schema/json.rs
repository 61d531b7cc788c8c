//! JSON as it stands.
//!
//! # Why
//! `serde_json::Value` reads an object whose first key is a private name of that crate as a document in a string,
//! parses that anew and starts to count its depth at 0 (feature `raw_value`). A log of a few kilobytes can so nest
//! thousands of levels deep: the stack overflows, which ends the process. Here an object is an object.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// A value of any kind.
pub(crate) struct Json(pub(crate) Value);

/// Reads a whole text. Numbers are the nearest that there are: those of `serde_json` are one off at times, so that what
/// is read and written again and again drifts away.
///
/// # Errors
/// Those of `serde_json`: also for more than its 128 levels.
pub(crate) fn from_slice(text: &[u8]) -> serde_json::Result<Value> {
    let Json(value) = serde_json::from_slice(text)?;
    if has_fraction(&value) {
        return serde_json::from_slice::<&RawValue>(text).and_then(|text| exact(text.get()));
    }
    Ok(value)
}

/// Whether there is a number in it that may not be the nearest.
pub(crate) fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(members) => has_fractions(members),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// As [`has_fraction`].
pub(crate) fn has_fractions(members: &Map<String, Value>) -> bool {
    members.values().any(has_fraction)
}

/// A text that is known to be one value, not too deep.
fn exact(text: &str) -> serde_json::Result<Value> {
    match text.as_bytes().first() {
        Some(b'{') => serde_json::from_str::<Members<'_>>(text)?
            .0
            .into_iter()
            .map(|(name, member)| Ok((name, exact(member.get())?)))
            .collect::<serde_json::Result<Map<_, _>>>()
            .map(Value::Object),
        Some(b'[') => serde_json::from_str::<Vec<&RawValue>>(text)?
            .into_iter()
            .map(|item| exact(item.get()))
            .collect::<serde_json::Result<Vec<_>>>()
            .map(Value::Array),
        _ => {
            let Json(value) = serde_json::from_str(text)?;
            let nearest = match value.is_f64() {
                true => text.parse().ok().and_then(Number::from_f64),
                false => None,
            };
            Ok(nearest.map_or(value, Value::Number))
        }
    }
}

/// The members of an object as they stand.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = from.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(MembersVisitor)
    }
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

    #[test]
    fn a_number_is_the_nearest() {
        let text = r#"{"a":[118446744073709551615,{"b":-0,"c":" 1.5"}],"a":[ 1.1844674407370957e20, 1e-7 ,-0.0, 3]}"#;
        let value = from_slice(text.as_bytes()).unwrap();
        let written = value.to_string();
        assert_eq!(written, r#"{"a":[1.1844674407370957e+20,1e-7,-0.0,3]}"#);
        assert_eq!(from_slice(written.as_bytes()).unwrap(), value);
        for text in [
            "118446744073709551615",
            "1.1844674407370957e20",
            "-0",
            "5e-324",
        ] {
            let nearest: f64 = text.parse().unwrap();
            let found = from_slice(text.as_bytes()).unwrap().as_f64().unwrap();
            assert_eq!(found.to_bits(), nearest.to_bits(), "{text}");
        }
        let deep = [&b"{\"x\":".repeat(120)[..], b"0.1", &b"}".repeat(120)[..]].concat();
        assert!(has_fraction(&from_slice(&deep).unwrap()));
        assert!(from_slice(b"0.1 0.2").is_err());
    }
}
