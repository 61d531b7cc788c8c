//! Statistics read back from the log, for pruning. Writers differ: what can't be understood is absent, and what is
//! known to be rounded by some writer is widened by as much.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::widen::{Side, decimal, double, legacy_max, moment};
use crate::schema::partition::{parse_date, parse_decimal, parse_ntz};
use crate::schema::{DataType, Primitive, Scalar};

/// What a timestamp in the log may be below the true one: it is cut to milliseconds (PROTOCOL.md E).
const CUT_MICROS: i64 = 999;
/// Deeper objects are not columns.
const MAX_DEPTH: usize = 64;

/// The statistics of one file, by physical column paths.
///
/// Bounds hold for every value that is not NULL. Where another writer ignored NaN, a NaN can lie outside of a
/// float column's bounds.
#[derive(Debug, Clone, Default)]
pub struct FileStats<'a> {
    num_records: Option<u64>,
    tight_bounds: bool,
    min: Node<'a>,
    max: Node<'a>,
    nulls: Node<'a>,
}

#[derive(Debug, Clone, Default)]
struct Node<'a> {
    text: Option<&'a str>,
    children: BTreeMap<Cow<'a, str>, Node<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(borrow, default)]
    num_records: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tight_bounds: Option<&'a RawValue>,
    #[serde(borrow, default)]
    min_values: Option<&'a RawValue>,
    #[serde(borrow, default)]
    max_values: Option<&'a RawValue>,
    #[serde(borrow, default)]
    null_count: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> FileStats<'a> {
    /// Parses `add.stats`. Malformed text has no statistics.
    pub fn parse(json: &'a str) -> Self {
        let Ok(wire) = serde_json::from_str::<Wire<'a>>(json) else {
            return FileStats::default();
        };
        let node = |raw: Option<&'a RawValue>| {
            raw.map_or_else(Node::default, |raw| Node::parse(raw.get(), 0))
        };
        FileStats {
            num_records: wire.num_records.and_then(|raw| count(raw.get())),
            // Absent means tight (PROTOCOL.md B).
            tight_bounds: wire.tight_bounds.is_none_or(|raw| raw.get() != "false"),
            min: node(wire.min_values),
            max: node(wire.max_values),
            nulls: node(wire.null_count),
        }
    }

    /// Physical rows, dead ones included.
    pub fn num_records(&self) -> Option<u64> {
        self.num_records
    }

    /// Whether bounds and counts are those of the live rows, not only outer ones.
    pub fn tight_bounds(&self) -> bool {
        self.tight_bounds
    }

    /// NULLs of a column. With wide bounds it means something only if it is 0 or [`Self::num_records`].
    pub fn null_count(&self, path: &[&str]) -> Option<u64> {
        count(self.nulls.leaf(path)?)
    }

    /// A value that no value of the column is below, as [`lower_bound`].
    pub fn min(&self, path: &[&str], data_type: &DataType) -> Option<Scalar> {
        lower_bound(self.min.leaf(path)?, data_type)
    }

    /// A value that no value of the column is above, as [`upper_bound`].
    pub fn max(&self, path: &[&str], data_type: &DataType) -> Option<Scalar> {
        upper_bound(self.max.leaf(path)?, data_type)
    }
}

/// A minimum from the JSON text of a value, whatever narrower type the column had (PROTOCOL.md D). Zero is -0.0.
pub fn lower_bound(json: &str, data_type: &DataType) -> Option<Scalar> {
    match scalar(json, data_type, Side::Min)? {
        Scalar::Float(0.0) => Some(Scalar::Float(-0.0)),
        Scalar::Double(0.0) => Some(Scalar::Double(-0.0)),
        value => Some(value),
    }
}

/// A maximum from the JSON text of a value: for timestamps 999 µs more than the text says, since it is cut. Zero
/// is 0.0.
pub fn upper_bound(json: &str, data_type: &DataType) -> Option<Scalar> {
    match scalar(json, data_type, Side::Max)? {
        Scalar::Float(0.0) => Some(Scalar::Float(0.0)),
        Scalar::Double(0.0) => Some(Scalar::Double(0.0)),
        Scalar::Timestamp(us) => Some(Scalar::Timestamp(us.saturating_add(CUT_MICROS))),
        Scalar::TimestampNtz(us) => Some(Scalar::TimestampNtz(us.saturating_add(CUT_MICROS))),
        value => Some(value),
    }
}

impl<'a> Node<'a> {
    fn parse(text: &'a str, depth: usize) -> Self {
        let text = text.trim();
        if !text.starts_with('{') {
            return Node {
                text: Some(text),
                children: BTreeMap::new(),
            };
        }
        if depth == MAX_DEPTH {
            return Node::default();
        }
        let mut children: BTreeMap<Cow<'a, str>, Node<'a>> = BTreeMap::new();
        for (name, raw) in
            serde_json::from_str::<Children<'a>>(text).map_or_else(|_| Vec::new(), |c| c.0)
        {
            match children.entry(name) {
                Entry::Vacant(place) => {
                    place.insert(Node::parse(raw.get(), depth + 1));
                }
                // A name that stands twice says nothing: which of the two is meant?
                Entry::Occupied(mut place) => {
                    place.insert(Node::default());
                }
            }
        }
        Node {
            text: None,
            children,
        }
    }

    fn leaf(&self, path: &[&str]) -> Option<&'a str> {
        let mut node = self;
        for name in path {
            node = node.children.get(*name)?;
        }
        node.text
    }
}

/// An object's members, borrowed.
struct Children<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Children<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> serde::de::Visitor<'de> for Visit<'a> {
            type Value = Children<'a>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Key(name)) = map.next_key::<Key<'a>>()? {
                    members.push((name, map.next_value::<&'a RawValue>()?));
                }
                Ok(Children(members))
            }
        }
        deserializer.deserialize_map(Visit(std::marker::PhantomData))
    }
}

/// A JSON string's content, or the bare text of anything else; `None` for null and composites.
fn unquote(text: &str) -> Option<Cow<'_, str>> {
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str::<Key<'_>>(text).ok().map(|key| key.0),
        b'n' | b'{' | b'[' => None,
        _ => Some(Cow::Borrowed(text)),
    }
}

/// A count from the JSON text of a value.
pub fn count(text: &str) -> Option<u64> {
    let text = unquote(text)?;
    u64::try_from(whole(&text)?).ok()
}

/// An integer however it is written: `7`, `7.0`, `7e0`. One that went through a double is believed only as far as
/// doubles count one by one.
fn whole(text: &str) -> Option<i128> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    parse_decimal(text, 38, 0).filter(|v| v.unsigned_abs() <= 1 << 53)
}

fn scalar(text: &str, data_type: &DataType, side: Side) -> Option<Scalar> {
    let DataType::Primitive(primitive) = data_type else {
        return None;
    };
    let quoted = text.starts_with('"');
    let text = unquote(text)?;
    Some(match primitive {
        Primitive::String if !quoted => return None,
        Primitive::String => Scalar::String(match side {
            Side::Min => text.into_owned(),
            Side::Max => legacy_max(text.into_owned())?,
        }),
        Primitive::Long => Scalar::Long(i64::try_from(whole(&text)?).ok()?),
        Primitive::Integer => Scalar::Integer(i32::try_from(whole(&text)?).ok()?),
        Primitive::Short => Scalar::Short(i16::try_from(whole(&text)?).ok()?),
        Primitive::Byte => Scalar::Byte(i8::try_from(whole(&text)?).ok()?),
        Primitive::Float => Scalar::Float(float(&text, f32::is_finite)?),
        Primitive::Double => Scalar::Double(double(float(&text, f64::is_finite)?, side)),
        Primitive::Decimal(p, s) => Scalar::Decimal(decimal(&text, *p, *s, side)?, *p, *s),
        Primitive::Boolean => Scalar::Boolean(text.parse().ok()?),
        Primitive::Date => Scalar::Date(parse_date(&text)?),
        Primitive::Timestamp => Scalar::Timestamp(moment(&text, side)?),
        Primitive::TimestampNtz => {
            Scalar::TimestampNtz(parse_ntz(text.strip_suffix('Z').unwrap_or(&text))?)
        }
        _ => return None,
    })
}

/// Finite: infinities in the log are as often overflows as values.
fn float<F>(text: &str, finite: impl Fn(F) -> bool) -> Option<F>
where
    F: std::str::FromStr + Copy,
{
    text.parse().ok().filter(|v| finite(*v))
}
