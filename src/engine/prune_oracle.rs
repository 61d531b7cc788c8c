//! Statistics from end to end, against brute force: rows are made, described as this and other writers do, read back
//! from the log's JSON, and asked. A file that is left out must have no live row that matches.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Int32Builder, ListBuilder, RecordBatch, StructArray, new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType as Arrow, Field, Schema};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::datafile::{MappingMode, StatsBuilder, StatsConfig, Writer, footer_stats, inspect};
use crate::engine::{FileFacts, Predicate, Verdict};
use crate::schema::partition::{format_date, format_decimal, format_value, parse_value};
use crate::schema::{ArrayType, MAPPING_PHYSICAL_NAME, Primitive, StructField, arrow_type};

/// Name, type in the file, type in the table. A dot is a level.
const COLUMNS: [(&str, &str, &str); 27] = [
    ("b", "byte", "byte"),
    ("sh", "short", "short"),
    ("i", "integer", "integer"),
    ("l", "long", "long"),
    ("s", "string", "string"),
    ("f", "float", "float"),
    ("d", "double", "double"),
    ("dec", "decimal(10,2)", "decimal(10,2)"),
    ("dec38", "decimal(38,18)", "decimal(38,18)"),
    ("dec18", "decimal(18,1)", "decimal(18,1)"),
    ("day", "date", "date"),
    ("ts", "timestamp", "timestamp"),
    ("ntz", "timestamp_ntz", "timestamp_ntz"),
    ("flag", "boolean", "boolean"),
    ("bin", "binary", "binary"),
    // Widened since.
    ("wl", "byte", "long"),
    ("wi", "short", "integer"),
    ("wd", "float", "double"),
    ("wn", "integer", "double"),
    ("wdec", "integer", "decimal(12,2)"),
    ("wdd", "decimal(18,1)", "decimal(22,3)"),
    ("wt", "date", "timestamp_ntz"),
    ("st.x", "integer", "integer"),
    ("st.s", "string", "string"),
    ("st.t", "timestamp", "timestamp"),
    ("st.w", "short", "long"),
    ("st.in.d", "decimal(38,18)", "decimal(38,18)"),
];
const PARTITIONS: [(&str, &str); 9] = [
    ("ps", "string"),
    ("pl", "long"),
    ("pf", "float"),
    ("pd", "double"),
    ("pdec", "decimal(38,18)"),
    ("pday", "date"),
    ("pts", "timestamp"),
    ("pntz", "timestamp_ntz"),
    ("pflag", "boolean"),
];
/// The structs around them; a row has NULL or a mark.
const STRUCTS: [&str; 2] = ["st", "st.in"];

fn primitive(text: &str) -> Primitive {
    match serde_json::from_value(Value::String(text.to_owned())).unwrap() {
        DataType::Primitive(primitive) => primitive,
        other => panic!("{other}"),
    }
}

fn text() -> BoxedStrategy<Scalar> {
    let edge = || {
        prop::sample::select(vec![
            'a',
            '?',
            '\u{7e}',
            '\u{7f}',
            'é',
            '\u{d7ff}',
            '\u{e000}',
            '\u{fffd}',
            '\u{ffff}',
            '\u{10000}',
            '🦀',
            '\u{10ffff}',
        ])
    };
    let long = (
        edge(),
        prop::sample::select(vec![30_usize, 31, 32, 33, 61, 62, 63, 64, 65]),
        prop::collection::vec(edge(), 0..4),
    )
        .prop_map(|(base, len, tail)| {
            std::iter::repeat_n(base, len)
                .chain(tail)
                .collect::<String>()
        });
    let short = prop::collection::vec(edge(), 0..3).prop_map(|c| c.into_iter().collect::<String>());
    prop_oneof![2 => long, 1 => short]
        .prop_map(Scalar::String)
        .boxed()
}

fn values(primitive: &Primitive) -> BoxedStrategy<Scalar> {
    use prop::sample::select;
    match primitive {
        Primitive::Byte => select(vec![i8::MIN, -1, 0, 1, 2, i8::MAX])
            .prop_map(Scalar::Byte)
            .boxed(),
        Primitive::Short => select(vec![i16::MIN, -1, 0, 1, 2, 300, i16::MAX])
            .prop_map(Scalar::Short)
            .boxed(),
        Primitive::Integer => select(vec![i32::MIN, -1, 0, 1, 2, 300, i32::MAX])
            .prop_map(Scalar::Integer)
            .boxed(),
        Primitive::Long => select(vec![
            i64::MIN,
            -(1 << 53) - 1,
            -1,
            0,
            1,
            2,
            300,
            (1 << 53) + 1,
            i64::MAX,
        ])
        .prop_map(Scalar::Long)
        .boxed(),
        Primitive::Float => select(vec![
            f32::NEG_INFINITY,
            f32::MIN,
            -1.5,
            -0.0,
            0.0,
            f32::from_bits(1),
            0.1,
            3.4,
            16_777_217.0,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ])
        .prop_map(Scalar::Float)
        .boxed(),
        Primitive::Double => select(vec![
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -0.0,
            0.0,
            f64::from_bits(1),
            0.1,
            f64::from(0.1_f32),
            3.4,
            1e300,
            f64::INFINITY,
            f64::NAN,
        ])
        .prop_map(Scalar::Double)
        .boxed(),
        Primitive::Decimal(p, s) => {
            let (p, s) = (*p, *s);
            let limit = 10_i128.pow(u32::from(p));
            let near = limit / 10 * 9 + 7_199_254_740_993 % limit;
            prop_oneof![
                2 => select(vec![-limit + 1, -1, 0, 1, 2, 100, limit / 2, near % limit, limit - 1]),
                1 => any::<i128>().prop_map(move |v| v % limit),
                1 => (any::<i64>(), 0_i128..4).prop_map(move |(v, by)| (i128::from(v) + by) % limit),
            ]
            .prop_map(move |v| Scalar::Decimal(v, p, s))
            .boxed()
        }
        Primitive::String => text(),
        Primitive::Boolean => any::<bool>().prop_map(Scalar::Boolean).boxed(),
        Primitive::Binary => select(vec![&b""[..], b"\x7f", b"\x80", b"\xff", b"a"])
            .prop_map(|v| Scalar::Binary(v.to_vec()))
            .boxed(),
        Primitive::Date => select(vec![
            -719_529, -719_528, -719_163, -719_162, -1, 0, 1, 19_884, 2_932_896, 2_932_897,
        ])
        .prop_map(Scalar::Date)
        .boxed(),
        Primitive::Timestamp => moments().prop_map(Scalar::Timestamp).boxed(),
        Primitive::TimestampNtz => moments().prop_map(Scalar::TimestampNtz).boxed(),
        other => panic!("{other:?}"),
    }
}

fn moments() -> impl Strategy<Value = i64> {
    prop::sample::select(vec![
        i64::MIN,
        -62_135_596_800_000_001,
        -62_135_596_800_000_000,
        -1_001,
        -1_000,
        -999,
        -1,
        0,
        1,
        999,
        1_000,
        1_718_000_000_123_456,
        1_718_000_000_123_999,
        1_718_000_000_124_000,
        253_402_300_799_999_999,
        253_402_300_800_000_000,
        i64::MAX,
    ])
}

/// The value after the column was widened (PROTOCOL.md D).
fn widened(value: &Scalar, to: &Primitive) -> Scalar {
    let whole = |v: &Scalar| match v {
        Scalar::Byte(v) => Some(i128::from(*v)),
        Scalar::Short(v) => Some(i128::from(*v)),
        Scalar::Integer(v) => Some(i128::from(*v)),
        Scalar::Long(v) => Some(i128::from(*v)),
        _ => None,
    };
    match (value, to) {
        (Scalar::Null, _) => Scalar::Null,
        (Scalar::Float(v), Primitive::Double) => Scalar::Double(f64::from(*v)),
        (Scalar::Date(v), Primitive::TimestampNtz) => {
            Scalar::TimestampNtz(i64::from(*v) * 86_400_000_000)
        }
        (Scalar::Decimal(v, _, from), Primitive::Decimal(p, s)) => {
            let by = u32::from((s - from).unsigned_abs());
            Scalar::Decimal(v * 10_i128.pow(by), *p, *s)
        }
        (v, to) => match (whole(v), to) {
            (Some(v), Primitive::Long) => Scalar::Long(v as i64),
            (Some(v), Primitive::Integer) => Scalar::Integer(v as i32),
            (Some(v), Primitive::Double) => Scalar::Double(v as f64),
            (Some(v), Primitive::Decimal(p, s)) => {
                Scalar::Decimal(v * 10_i128.pow(u32::from(s.unsigned_abs())), *p, *s)
            }
            _ => v.clone(),
        },
    }
}

/// Spark's order: NaN is the largest and equal to itself, -0.0 is 0.0, text and binary are ordered by bytes.
fn order(a: &Scalar, b: &Scalar) -> Option<Ordering> {
    let floats = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap(),
        (a, b) => a.cmp(&b),
    };
    Some(match (a, b) {
        (Scalar::Null, _) | (_, Scalar::Null) => return None,
        (Scalar::String(a), Scalar::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Scalar::Binary(a), Scalar::Binary(b)) => a.cmp(b),
        (Scalar::Double(a), Scalar::Double(b)) => floats(*a, *b),
        (Scalar::Float(a), Scalar::Float(b)) => floats(f64::from(*a), f64::from(*b)),
        (Scalar::Byte(a), Scalar::Byte(b)) => a.cmp(b),
        (Scalar::Short(a), Scalar::Short(b)) => a.cmp(b),
        (Scalar::Integer(a), Scalar::Integer(b)) => a.cmp(b),
        (Scalar::Long(a), Scalar::Long(b)) => a.cmp(b),
        (Scalar::Decimal(a, ..), Scalar::Decimal(b, ..)) => a.cmp(b),
        (Scalar::Date(a), Scalar::Date(b)) => a.cmp(b),
        (Scalar::Timestamp(a), Scalar::Timestamp(b)) => a.cmp(b),
        (Scalar::TimestampNtz(a), Scalar::TimestampNtz(b)) => a.cmp(b),
        (Scalar::Boolean(a), Scalar::Boolean(b)) => a.cmp(b),
        (a, b) => panic!("{a:?} {b:?}"),
    })
}

/// By column name; the values are those of the file.
type Row = BTreeMap<&'static str, Scalar>;

/// Who described the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Describer {
    /// We, from the rows.
    Scan,
    /// We, from the footer of a file that was taken over.
    Footer,
    /// Decimals and floats as doubles, NaN ignored, nothing cut.
    DeltaRs,
    /// Delta Spark before 3: UTF-16 units, U+FFFD, offsets; NaN is the largest.
    OldSpark,
}

#[derive(Debug, Clone)]
struct Table {
    rows: Vec<Row>,
    dead: BTreeSet<usize>,
    partition: BTreeMap<&'static str, Scalar>,
    writer: Describer,
    /// The statistics of a file with dead rows count these, too.
    outer: bool,
    damage: Vec<(u8, usize, usize)>,
}

fn tables() -> impl Strategy<Value = Table> {
    let pools: Vec<_> = COLUMNS
        .iter()
        .map(|(name, stored, _)| {
            let value = prop_oneof![1 => Just(Scalar::Null), 4 => values(&primitive(stored))];
            (Just(*name), prop::collection::vec(value, 1..4))
        })
        .collect();
    let partition: Vec<_> = PARTITIONS
        .iter()
        .map(|(name, ty)| {
            let value = prop_oneof![1 => Just(Scalar::Null), 4 => values(&primitive(ty))];
            (Just(*name), value)
        })
        .collect();
    let writer = prop::sample::select(vec![
        Describer::Scan,
        Describer::Footer,
        Describer::DeltaRs,
        Describer::OldSpark,
    ]);
    (
        pools,
        partition,
        prop::collection::vec(
            (
                any::<u32>(),
                prop::bool::weighted(0.2),
                prop::bool::weighted(0.3),
            ),
            1..6,
        ),
        writer,
        any::<bool>(),
        prop_oneof![
            2 => Just(Vec::new()),
            1 => prop::collection::vec((0_u8..10, any::<usize>(), any::<usize>()), 1..6),
        ],
    )
        .prop_map(|(pools, partition, picks, writer, outer, damage)| {
            let dead = picks
                .iter()
                .enumerate()
                .filter(|(_, p)| p.2)
                .map(|(i, _)| i);
            let mut dead: BTreeSet<usize> = dead.collect();
            if dead.len() == picks.len() {
                dead.clear();
            }
            let rows = picks.iter().map(|(pick, no_struct, _)| {
                let mut row = Row::new();
                for (at, (column, pool)) in pools.iter().enumerate() {
                    let value = &pool[(*pick as usize).rotate_left(at as u32) % pool.len()];
                    let gone = *no_struct && column.starts_with("st.");
                    let gone = gone || (pick % 5 == 0 && column.starts_with("st.in."));
                    row.insert(*column, if gone { Scalar::Null } else { value.clone() });
                }
                for name in STRUCTS {
                    let gone = *no_struct || (pick % 5 == 0 && name == "st.in");
                    row.insert(
                        name,
                        if gone {
                            Scalar::Null
                        } else {
                            Scalar::Boolean(true)
                        },
                    );
                }
                row
            });
            Table {
                rows: rows.collect(),
                dead,
                partition: partition.into_iter().collect(),
                writer,
                outer,
                damage,
            }
        })
}

fn field(name: &str, ty: &str, changed: bool) -> StructField {
    let mut field = StructField::new(name, DataType::Primitive(primitive(ty)), true);
    if changed {
        field
            .metadata
            .insert("delta.typeChanges".to_owned(), json!([]));
    }
    // Statistics are by physical names.
    if name == "l" || name == "x" {
        let physical = json!(format!("col-{name}"));
        field
            .metadata
            .insert(MAPPING_PHYSICAL_NAME.to_owned(), physical);
    }
    field
}

/// The data columns, by their types in the file or in the table.
fn schema(stored: bool) -> StructType {
    let of = |prefix: &str| -> Vec<StructField> {
        COLUMNS
            .iter()
            .filter_map(|(name, from, to)| {
                let name = name.strip_prefix(prefix).filter(|n| !n.contains('.'))?;
                Some(field(name, if stored { from } else { to }, from != to))
            })
            .collect()
    };
    let strukt =
        |name: &str, fields| StructField::new(name, DataType::Struct(StructType { fields }), true);
    let mut fields = of("");
    let mut inner = of("st.");
    inner.push(strukt("in", of("st.in.")));
    fields.push(strukt("st", inner));
    let array = ArrayType {
        element_type: DataType::Primitive(Primitive::Integer),
        contains_null: true,
    };
    fields.push(StructField::new(
        "arr",
        DataType::Array(Box::new(array)),
        true,
    ));
    StructType { fields }
}

fn table_schema() -> StructType {
    let mut schema = schema(false);
    schema
        .fields
        .extend(PARTITIONS.iter().map(|(name, ty)| field(name, ty, false)));
    schema
}

fn partition_columns() -> Vec<String> {
    PARTITIONS
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

/// The rows in the types of the file or of the table.
fn batch(rows: &[&Row], schema: &StructType, stored: bool) -> RecordBatch {
    fn column(rows: &[&Row], field: &StructField, path: &str, stored: bool) -> ArrayRef {
        match &field.data_type {
            DataType::Struct(inner) => {
                let columns: Vec<ArrayRef> = inner
                    .fields
                    .iter()
                    .map(|f| column(rows, f, &format!("{path}.{}", f.name), stored))
                    .collect();
                let Arrow::Struct(fields) = arrow_type(&field.data_type).unwrap() else {
                    panic!("a struct");
                };
                let nulls = NullBuffer::from_iter(rows.iter().map(|r| r[path] != Scalar::Null));
                Arc::new(StructArray::new(fields, columns, Some(nulls)))
            }
            DataType::Primitive(ty) => {
                let arrays: Vec<ArrayRef> = rows
                    .iter()
                    .map(|r| {
                        let value = if stored {
                            r[path].clone()
                        } else {
                            widened(&r[path], ty)
                        };
                        value.to_array(&field.data_type, 1).unwrap()
                    })
                    .collect();
                let arrays: Vec<&dyn Array> = arrays.iter().map(|a| a.as_ref()).collect();
                if arrays.is_empty() {
                    return new_null_array(&arrow_type(&field.data_type).unwrap(), 0);
                }
                arrow::compute::concat(&arrays).unwrap()
            }
            _ => {
                let element = Field::new("element", Arrow::Int32, true);
                let mut lists = ListBuilder::new(Int32Builder::new()).with_field(element);
                for row in rows {
                    // Empty, NULL, or with a NULL in it.
                    match &row["b"] {
                        Scalar::Null => lists.append(false),
                        Scalar::Byte(0) => lists.append(true),
                        _ => {
                            lists.values().append_null();
                            lists.append(true);
                        }
                    }
                }
                Arc::new(lists.finish())
            }
        }
    }
    let fields: Vec<Field> = schema
        .fields
        .iter()
        .map(|f| Field::new(&f.name, arrow_type(&f.data_type).unwrap(), true))
        .collect();
    let columns = schema
        .fields
        .iter()
        .map(|f| column(rows, f, &f.name, stored));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.collect()).unwrap()
}

fn ours(table: &Table, rows: &[&Row]) -> String {
    let schema = schema(true);
    let config = StatsConfig::from_configuration(&BTreeMap::from([(
        "delta.dataSkippingNumIndexedCols".to_owned(),
        "-1".to_owned(),
    )]));
    let half = rows.len() / 2;
    let batches = [&rows[..half], &rows[half..]].map(|rows| batch(rows, &schema, true));
    if table.writer != Describer::Footer {
        let mut builder = StatsBuilder::new(&schema, &[], &config);
        for batch in &batches {
            builder.update(batch).unwrap();
        }
        return builder.finish();
    }
    // In memory where there is such a place: the writer waits for the disk.
    let file = tempfile::tempfile_in("/dev/shm")
        .or_else(|_| tempfile::tempfile())
        .unwrap();
    let mut writer = Writer::new(file, &schema, &config, MappingMode::None).unwrap();
    for batch in &batches {
        writer.write(batch).unwrap();
        writer.flush().unwrap();
    }
    let written = writer.finish().unwrap();
    let metadata = inspect(&written.file).unwrap().metadata;
    let mut partial = footer_stats(&metadata, &schema, &[], &config);
    for batch in &batches {
        let wanted: Vec<usize> = partial
            .scan
            .iter()
            .map(|name| batch.schema().index_of(name).unwrap())
            .collect();
        partial
            .builder
            .update(&batch.project(&wanted).unwrap())
            .unwrap();
    }
    partial.builder.finish()
}

fn theirs(writer: Describer, rows: &[&Row]) -> String {
    let (mut min, mut max, mut nulls) = (json!({}), json!({}), json!({}));
    for (name, _, _) in COLUMNS {
        let real: Vec<&Scalar> = rows
            .iter()
            .map(|r| &r[name])
            .filter(|v| **v != Scalar::Null)
            .collect();
        let is_nan = |v: &Scalar| match v {
            Scalar::Float(v) => v.is_nan(),
            Scalar::Double(v) => v.is_nan(),
            _ => false,
        };
        put(&mut nulls, name, json!(rows.len() - real.len()));
        let bounded = real
            .iter()
            .filter(|v| writer == Describer::OldSpark || !is_nan(v));
        let by = |a: &&&Scalar, b: &&&Scalar| order(a, b).unwrap();
        if let (Some(least), Some(most)) = (bounded.clone().min_by(by), bounded.max_by(by)) {
            if let Some(v) = foreign(writer, least, false) {
                put(&mut min, name, v);
            }
            if let Some(v) = foreign(writer, most, true) {
                put(&mut max, name, v);
            }
        }
    }
    format!(
        r#"{{"numRecords":{},"minValues":{min},"maxValues":{max},"nullCount":{nulls}}}"#,
        rows.len()
    )
}

fn put(at: &mut Value, path: &str, value: Value) {
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    let step = match step {
        "l" | "x" => format!("col-{step}"),
        step => step.to_owned(),
    };
    if let Value::Object(members) = at {
        let place = members.entry(step).or_insert_with(|| json!({}));
        if rest.is_empty() {
            *place = value;
        } else {
            put(place, rest, value);
        }
    }
}

fn foreign(writer: Describer, value: &Scalar, largest: bool) -> Option<Value> {
    let millis = |us: &i64| {
        let floor = us.saturating_sub(us.rem_euclid(1000));
        let text = crate::schema::partition::format_value(&Scalar::TimestampNtz(floor));
        let text = text.unwrap().unwrap().replacen(' ', "T", 1);
        text[..text.len() - 3].to_owned()
    };
    let in_years = |us: &i64| (-62_135_596_800_000_000..253_402_300_800_000_000).contains(us);
    Some(match value {
        Scalar::Byte(v) => json!(v),
        Scalar::Short(v) => json!(v),
        Scalar::Integer(v) => json!(v),
        Scalar::Long(v) => json!(v),
        Scalar::Float(v) if writer == Describer::OldSpark => {
            let text = format_value(&Scalar::Float(*v)).unwrap().unwrap();
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        Scalar::Float(v) => json!(f64::from(*v)),
        Scalar::Double(v) if !v.is_finite() && writer == Describer::OldSpark => {
            json!(format_value(&Scalar::Double(*v)).unwrap())
        }
        Scalar::Double(v) => json!(v),
        Scalar::Decimal(v, _, s) => {
            let text = format_decimal(*v, *s);
            match writer {
                // Through a double and back.
                Describer::DeltaRs => json!(text.parse::<f64>().unwrap()),
                _ => Value::String(text),
            }
        }
        Scalar::Date(v) => json!(format_date(*v)),
        Scalar::Timestamp(us) if writer == Describer::OldSpark && in_years(us) => {
            json!(format!("{}+05:45", millis(&(us + 20_700_000_000))))
        }
        Scalar::Timestamp(us) => json!(format!("{}Z", millis(us))),
        Scalar::TimestampNtz(us) => json!(millis(us)),
        Scalar::Boolean(v) => json!(v),
        Scalar::String(v) if writer == Describer::OldSpark && !largest => {
            json!(v.chars().take(32).collect::<String>())
        }
        Scalar::String(v) if writer == Describer::OldSpark => {
            let units: Vec<u16> = v.encode_utf16().collect();
            if units.len() <= 32 {
                return Some(json!(v));
            }
            let more = units[32..].iter().take_while(|u| **u >= 0xfffd);
            let mut cut: Vec<u16> = units[..32].iter().chain(more).copied().collect();
            cut.push(0xfffd);
            let chars = char::decode_utf16(cut).map(|c| c.unwrap_or('?'));
            json!(chars.collect::<String>())
        }
        Scalar::String(v) => json!(v),
        Scalar::Binary(_) | Scalar::Null => return None,
    })
}

/// The statistics after deletions, and with what broken writers make of them: whatever can be seen to be wrong.
fn described(table: &Table) -> String {
    let all: Vec<&Row> = table.rows.iter().collect();
    let live: Vec<&Row> = live(table);
    let rows = if table.outer { &all } else { &live };
    let json = match table.writer {
        Describer::Scan | Describer::Footer => ours(table, rows),
        writer => theirs(writer, rows),
    };
    if table.dead.is_empty() && table.damage.is_empty() {
        return json;
    }
    let mut stats: Members = serde_json::from_str(&json).unwrap();
    if !table.dead.is_empty() {
        // A column of NULLs only is said to be that of every physical row (PROTOCOL.md B).
        if !table.outer {
            let counts = all_null_to_physical(&stats["nullCount"], live.len(), all.len());
            stats.insert("nullCount".to_owned(), counts);
        }
        stats.insert("numRecords".to_owned(), raw(all.len()));
        stats.insert("tightBounds".to_owned(), raw(false));
    }
    // Turned around and then torn apart, what is left would look right.
    let turned = table.damage.iter().find(|(kind, ..)| *kind == 5);
    for (kind, a, b) in turned.map_or(&table.damage[..], std::slice::from_ref) {
        damage(&mut stats, *kind, *a, *b);
    }
    write_members(stats.iter().map(|(k, v)| (k.as_str(), v.get())))
}

/// Text of numbers is kept: decimals have more digits than doubles.
type Raw = Box<serde_json::value::RawValue>;
type Members = BTreeMap<String, Raw>;

fn raw(value: impl ToString) -> Raw {
    serde_json::value::RawValue::from_string(value.to_string()).unwrap()
}

fn write_members<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let members: Vec<String> = members
        .map(|(key, text)| format!("{}:{text}", Value::String(key.to_owned())))
        .collect();
    format!("{{{}}}", members.join(","))
}

fn all_null_to_physical(counts: &Raw, live: usize, all: usize) -> Raw {
    fn step(value: Value, live: usize, all: usize) -> Value {
        match value {
            Value::Object(map) => Value::Object(
                map.into_iter()
                    .map(|(k, v)| (k, step(v, live, all)))
                    .collect::<Map<_, _>>(),
            ),
            count if count == json!(live) => json!(all),
            count => count,
        }
    }
    raw(step(serde_json::from_str(counts.get()).unwrap(), live, all))
}

fn damage(stats: &mut Members, kind: u8, a: usize, b: usize) {
    let sections = ["minValues", "maxValues", "nullCount"];
    let section = sections[a % 3];
    let odd = [
        "null",
        "\"x\"",
        "[1]",
        "{}",
        "{\"a\":{}}",
        "true",
        "\"NaN\"",
        "-1",
        "1e999",
        "\"\"",
    ];
    match kind {
        0 => drop(stats.remove(section)),
        1 => drop(stats.remove("numRecords")),
        2 => drop(stats.insert("numRecords".to_owned(), raw(odd[b % odd.len()]))),
        3 => drop(stats.insert("numRecords".to_owned(), raw(0))),
        4 => drop(stats.insert(section.to_owned(), raw(odd[b % odd.len()]))),
        // The bounds the wrong way round, where there are two: one alone may be any.
        5 => {
            let section = |name: &str| -> Option<Members> {
                serde_json::from_str(stats.get(name)?.get()).ok()
            };
            let (Some(mut min), Some(mut max)) = (section("minValues"), section("maxValues"))
            else {
                return;
            };
            for (name, least) in &mut min {
                if let Some(most) = max.get_mut(name)
                    && !most.get().starts_with('{')
                    && most.get() != "null"
                    && least.get() != "null"
                {
                    std::mem::swap(least, most);
                }
            }
            for (name, columns) in [("minValues", min), ("maxValues", max)] {
                let members = columns.iter().map(|(k, v)| (k.as_str(), v.get()));
                stats.insert(name.to_owned(), raw(write_members(members)));
            }
        }
        _ => {
            let Some(mut columns) = stats
                .get(section)
                .and_then(|c| serde_json::from_str::<Members>(c.get()).ok())
            else {
                return;
            };
            let Some(name) = columns.keys().nth(b % columns.len().max(1)).cloned() else {
                return;
            };
            match kind {
                6 => drop(columns.remove(&name)),
                7 => drop(columns.insert(name, raw(odd[a % odd.len()]))),
                // Twice, and differently.
                8 => {
                    let members = columns.iter().map(|(k, v)| (k.as_str(), v.get()));
                    let twice = [(name.as_str(), odd[b % odd.len()])];
                    stats.insert(section.to_owned(), raw(write_members(members.chain(twice))));
                    return;
                }
                _ => drop(columns.insert("unknown".to_owned(), raw("{\"x\":[{}]}"))),
            }
            let members = columns.iter().map(|(k, v)| (k.as_str(), v.get()));
            stats.insert(section.to_owned(), raw(write_members(members)));
        }
    }
}

fn live(table: &Table) -> Vec<&Row> {
    let rows = table.rows.iter().enumerate();
    rows.filter(|(i, _)| !table.dead.contains(i))
        .map(|(_, r)| r)
        .collect()
}

#[derive(Debug, Clone)]
enum Cond {
    Compare(&'static str, &'static str, Scalar),
    In(&'static str, bool, Vec<Scalar>),
    Between(&'static str, bool, Scalar, Scalar),
    IsNull(&'static str, bool),
    And(Box<Cond>, Box<Cond>),
    Or(Box<Cond>, Box<Cond>),
    Not(Box<Cond>),
    /// Only DataFusion knows its value.
    Opaque(String),
}

fn literal(value: &Scalar) -> String {
    match value {
        Scalar::Null => "NULL".to_owned(),
        Scalar::Boolean(v) => v.to_string(),
        Scalar::Binary(v) => {
            let hex: String = v.iter().map(|b| format!("{b:02X}")).collect();
            format!("X'{hex}'")
        }
        value => format!("'{}'", format_value(value).unwrap().unwrap_or_default()),
    }
}

impl Cond {
    fn sql(&self) -> String {
        let not = |n: &bool| if *n { "NOT " } else { "" };
        match self {
            Cond::Compare(c, op, v) => format!("{c} {op} {}", literal(v)),
            Cond::In(c, n, list) => {
                let list: Vec<_> = list.iter().map(literal).collect();
                format!("{c} {}IN ({})", not(n), list.join(", "))
            }
            Cond::Between(c, n, a, b) => {
                format!("{c} {}BETWEEN {} AND {}", not(n), literal(a), literal(b))
            }
            Cond::IsNull(c, n) => format!("{c} IS {}NULL", not(n)),
            Cond::And(a, b) => format!("({} AND {})", a.sql(), b.sql()),
            Cond::Or(a, b) => format!("({} OR {})", a.sql(), b.sql()),
            Cond::Not(a) => format!("NOT ({})", a.sql()),
            Cond::Opaque(text) => text.clone(),
        }
    }

    /// `None` where only DataFusion knows; else SQL's three values.
    fn value(&self, row: &BTreeMap<&str, Scalar>) -> Option<Option<bool>> {
        let compare = |a: &Scalar, op: &str, b: &Scalar| {
            let order = order(a, b);
            match op {
                "<=>" => Some(match order {
                    Some(order) => order.is_eq(),
                    None => *a == Scalar::Null && *b == Scalar::Null,
                }),
                "<" => order.map(Ordering::is_lt),
                "<=" => order.map(Ordering::is_le),
                "=" => order.map(Ordering::is_eq),
                "<>" => order.map(Ordering::is_ne),
                ">=" => order.map(Ordering::is_ge),
                _ => order.map(Ordering::is_gt),
            }
        };
        let and = |a, b| match (a, b) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
        let not = |a: Option<bool>| a.map(|a| !a);
        Some(match self {
            Cond::Compare(c, op, v) => compare(&row[c], op, v),
            Cond::In(c, n, list) => {
                let mut none = Some(true);
                for v in list {
                    none = and(none, not(compare(&row[c], "=", v)));
                }
                if *n { none } else { not(none) }
            }
            Cond::Between(c, n, a, b) => {
                let within = and(compare(&row[c], ">=", a), compare(&row[c], "<=", b));
                if *n { not(within) } else { within }
            }
            Cond::IsNull(c, n) => Some((row[c] == Scalar::Null) != *n),
            Cond::And(a, b) => and(a.value(row)?, b.value(row)?),
            Cond::Or(a, b) => not(and(not(a.value(row)?), not(b.value(row)?))),
            Cond::Not(a) => not(a.value(row)?),
            Cond::Opaque(_) => return None,
        })
    }
}

const OPAQUE: [&str; 33] = [
    "length(s) > 32",
    "s LIKE 'a%'",
    "s NOT LIKE 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa%'",
    "st.s LIKE '\u{10ffff}%'",
    "starts_with(s, '🦀')",
    "upper(s) = 'A'",
    "CAST(ts AS DATE) = '1970-01-01'",
    "CAST(ts AS DATE) < '1970-01-01'",
    "date(st.t) >= '9999-12-31'",
    "CAST(ntz AS DATE) <> '1969-12-31'",
    "year(day) > 9999",
    "CAST(day AS TIMESTAMP) < '1970-01-01'",
    "CAST(i AS BIGINT) > 2",
    "CAST(l AS DOUBLE) = 9007199254740992D",
    "CAST(wd AS FLOAT) = 0.1",
    "wd = 0.1",
    "CAST(dec AS INT) = 0",
    "CAST(dec38 AS DOUBLE) > 0.5",
    "CAST(f AS DOUBLE) > 0.1",
    "TRY_CAST(s AS INT) = 1",
    "i + 1 > 2",
    "-b > 1",
    "abs(sh) = 1",
    "d * -1 = 0",
    "coalesce(i, 2) = 2",
    "st.x = i",
    "wl < b",
    "arr IS NULL",
    "arr IS NOT NULL",
    "st IS NULL",
    "st.in IS NULL",
    "st.in.d IS NULL",
    "bin > X'7F'",
];

/// The values that some file has in each column, in the table's types.
type Pools = BTreeMap<&'static str, Vec<Scalar>>;

fn pools(tables: &[Table]) -> Pools {
    let mut pools = Pools::new();
    for table in tables {
        for row in &table.rows {
            for (name, value) in seen(table, row) {
                pools.entry(name).or_default().push(value);
            }
        }
    }
    pools
}

fn atoms(pools: Pools) -> BoxedStrategy<Cond> {
    let mut columns: Vec<(&str, &str)> = COLUMNS.iter().map(|(n, _, ty)| (*n, *ty)).collect();
    columns.extend(PARTITIONS);
    let column = move || {
        prop::sample::select(columns.clone())
            .prop_map(|(name, ty)| (name, primitive(ty)))
            .boxed()
    };
    let value = |ty: &Primitive| {
        // The values of an old type are the likely ones.
        let narrow: Vec<BoxedStrategy<Scalar>> = COLUMNS
            .iter()
            .filter(|(_, from, to)| from != to && primitive(to) == *ty)
            .map(|(_, from, to)| {
                let to = primitive(to);
                values(&primitive(from))
                    .prop_map(move |v| widened(&v, &to))
                    .boxed()
            })
            .collect();
        match narrow.into_iter().next() {
            Some(narrow) => prop_oneof![1 => narrow, 1 => values(ty)].boxed(),
            None => values(ty),
        }
    };
    let pools = Arc::new(pools);
    let value = move |c: &str, ty: &Primitive| {
        let known = prop::sample::select(pools[c].clone());
        prop_oneof![10 => known, 5 => value(ty), 1 => Just(Scalar::Null)].boxed()
    };
    let (second, third) = (value.clone(), value.clone());
    let operators = ["<", "<=", "=", "<>", ">=", ">", "<=>"];
    prop_oneof![
        8 => column().prop_flat_map(move |(c, ty)| {
            (prop::sample::select(operators.to_vec()), value(c, &ty))
                .prop_map(move |(op, v)| Cond::Compare(c, op, v))
        }),
        2 => column().prop_flat_map(move |(c, ty)| {
            (any::<bool>(), prop::collection::vec(second(c, &ty), 1..5))
                .prop_map(move |(n, list)| Cond::In(c, n, list))
        }),
        2 => column().prop_flat_map(move |(c, ty)| {
            (any::<bool>(), third(c, &ty), third(c, &ty))
                .prop_map(move |(n, a, b)| Cond::Between(c, n, a, b))
        }),
        2 => (column(), any::<bool>()).prop_map(|((c, _), n)| Cond::IsNull(c, n)),
        3 => prop::sample::select(OPAQUE.to_vec()).prop_map(|t| Cond::Opaque(t.to_owned())),
    ]
    .boxed()
}

fn conds(pools: Pools) -> impl Strategy<Value = Cond> {
    atoms(pools).prop_recursive(3, 6, 2, |inner| {
        prop_oneof![
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| Cond::And(a.into(), b.into())),
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| Cond::Or(a.into(), b.into())),
            1 => inner.prop_map(|a| Cond::Not(a.into())),
        ]
    })
}

/// A partition value as it comes out of the log.
fn logged(value: &Scalar, ty: &str) -> Scalar {
    let text = format_value(value).unwrap();
    parse_value(text.as_deref(), &DataType::Primitive(primitive(ty))).unwrap()
}

fn evaluated(table: &Table, rows: &[&Row], schema: &StructType) -> RecordBatch {
    let data = batch(rows, &self::schema(false), false);
    let mut columns = data.columns().to_vec();
    for (name, ty) in PARTITIONS {
        let field = schema.field(name).unwrap();
        let value = logged(&table.partition[name], ty);
        columns.push(value.to_array(&field.data_type, rows.len()).unwrap());
    }
    let fields: Vec<Field> = schema
        .fields
        .iter()
        .map(|f| Field::new(&f.name, arrow_type(&f.data_type).unwrap(), true))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// The row as the independent evaluation sees it: in the table's types, with the partition's values.
fn seen(table: &Table, row: &Row) -> BTreeMap<&'static str, Scalar> {
    let mut seen: BTreeMap<&'static str, Scalar> = COLUMNS
        .iter()
        .map(|(name, _, to)| (*name, widened(&row[name], &primitive(to))))
        .collect();
    seen.extend(
        PARTITIONS
            .iter()
            .map(|(name, ty)| (*name, logged(&table.partition[name], ty))),
    );
    seen
}

#[test]
fn no_live_row_that_matches_is_in_a_file_left_out() {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|v| v.parse().ok());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: cases.unwrap_or(120),
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..ProptestConfig::default()
    });
    let counts = std::cell::Cell::new((0_u64, 0_u64, 0_u64));
    let schema = table_schema();
    let strategy = prop::collection::vec(tables(), 1..5).prop_flat_map(|tables| {
        let conds = prop::collection::vec(conds(pools(&tables)), 1..6);
        (conds, Just(tables))
    });
    let result = runner.run(&strategy, |(conds, tables)| {
        let texts: Vec<String> = tables.iter().map(described).collect();
        let stats: Vec<FileStats<'_>> = texts.iter().map(|t| FileStats::parse(t)).collect();
        let bounds: Vec<StatsBounds<'_>> =
            stats.iter().map(|s| StatsBounds::new(s, &schema)).collect();
        let facts: Vec<FileFacts<'_>> = tables
            .iter()
            .zip(&stats)
            .zip(&bounds)
            .map(|((table, stats), bounds)| FileFacts {
                partition: PARTITIONS
                    .iter()
                    .map(|(n, ty)| ((*n).to_owned(), logged(&table.partition[n], ty)))
                    .collect(),
                num_records: stats.num_records(),
                bounds,
            })
            .collect();
        let batches: Vec<RecordBatch> = tables
            .iter()
            .map(|t| evaluated(t, &live(t), &schema))
            .collect();
        for cond in &conds {
            let sql = cond.sql();
            let predicate = Predicate::parse(&sql, &schema, &partition_columns(), 0)
                .map_err(|e| TestCaseError::fail(format!("{sql}: {e}")))?;
            let verdicts = match predicate.verdict(&facts) {
                Ok(verdicts) => verdicts,
                Err(e) => return Err(TestCaseError::fail(format!("{sql}: {e}"))),
            };
            for (index, (table, verdict)) in tables.iter().zip(verdicts).enumerate() {
                let rows = live(table);
                let Ok(answer) = predicate.evaluate(&batches[index]) else {
                    continue;
                };
                for (row, found) in rows.iter().zip(answer.iter()) {
                    if let Some(expected) = cond.value(&seen(table, row)) {
                        prop_assert_eq!(found, expected, "{} on {:?}", sql, row);
                    }
                }
                let trues = answer.true_count();
                let (mut total, mut none, mut could) = counts.get();
                match verdict {
                    Verdict::NoRow => {
                        prop_assert_eq!(trues, 0, "{} on {}", sql, texts[index]);
                        none += 1;
                    }
                    Verdict::EveryRow => prop_assert_eq!(trues, answer.len(), "{}", sql),
                    Verdict::SomeRows => {}
                }
                total += 1;
                could += u64::from(trues == 0);
                counts.set((total, none, could));
            }
        }
        Ok(())
    });
    let (total, none, could) = counts.get();
    println!("{total} files: {none} of {could} without a match left out");
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(none * 4 > could, "pruning does nothing");
}
