use std::cmp::Ordering;
use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow::buffer::NullBuffer;
use proptest::prelude::*;

use super::*;
use crate::schema::partition::{format_date, format_value};

fn of(primitive: Primitive) -> DataType {
    DataType::Primitive(primitive)
}

/// Data columns, then those below the struct `st`, then partition columns.
const DATA: [(&str, Kind); 10] = [
    ("b", Kind::Byte),
    ("i", Kind::Int),
    ("l", Kind::Long),
    ("s", Kind::Text),
    ("d", Kind::Double),
    ("f", Kind::Float),
    ("dec", Kind::Decimal),
    ("day", Kind::Date),
    ("ts", Kind::Timestamp),
    ("flag", Kind::Bool),
];
const NESTED: [(&str, Kind); 3] = [
    ("st.x", Kind::Int),
    ("st.s", Kind::Text),
    ("st.d", Kind::Double),
];
const PARTITION: [(&str, Kind); 4] = [
    ("p", Kind::Text),
    ("q", Kind::Int),
    ("r", Kind::Double),
    ("pd", Kind::Date),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Byte,
    Int,
    Long,
    Text,
    Double,
    Float,
    Decimal,
    Date,
    Timestamp,
    Bool,
}

impl Kind {
    fn primitive(self) -> Primitive {
        match self {
            Kind::Byte => Primitive::Byte,
            Kind::Int => Primitive::Integer,
            Kind::Long => Primitive::Long,
            Kind::Text => Primitive::String,
            Kind::Double => Primitive::Double,
            Kind::Float => Primitive::Float,
            Kind::Decimal => Primitive::Decimal(10, 2),
            Kind::Date => Primitive::Date,
            Kind::Timestamp => Primitive::Timestamp,
            Kind::Bool => Primitive::Boolean,
        }
    }

    fn value(self) -> BoxedStrategy<Scalar> {
        let value = match self {
            Kind::Byte => prop::sample::select(vec![-128_i8, -1, 0, 1, 5, 127])
                .prop_map(Scalar::Byte)
                .boxed(),
            Kind::Int => {
                prop::sample::select(vec![i32::MIN, -10, -1, 0, 1, 2, 3, 10, 300, i32::MAX])
                    .prop_map(Scalar::Integer)
                    .boxed()
            }
            Kind::Long => prop::sample::select(vec![i64::MIN, -1, 0, 1, 2, 5, 1 << 40, i64::MAX])
                .prop_map(Scalar::Long)
                .boxed(),
            Kind::Text => prop::sample::select(vec![
                "",
                "a",
                "ab",
                "abc",
                "a_b",
                "a%",
                "b",
                "z",
                "é",
                "😀",
                "😀b",
                "\u{10ffff}",
                "5",
                "-1",
            ])
            .prop_map(|v| Scalar::String(v.to_owned()))
            .boxed(),
            Kind::Double => prop::sample::select(vec![
                f64::NEG_INFINITY,
                -1.5,
                -0.0,
                0.0,
                0.1,
                1.0,
                2.0,
                5.0,
                f64::INFINITY,
                f64::NAN,
                -f64::NAN,
            ])
            .prop_map(Scalar::Double)
            .boxed(),
            Kind::Float => prop::sample::select(vec![
                f32::NEG_INFINITY,
                -0.0,
                0.0,
                0.1,
                1.0,
                5.0,
                f32::INFINITY,
                f32::NAN,
            ])
            .prop_map(Scalar::Float)
            .boxed(),
            Kind::Decimal => {
                prop::sample::select(vec![-100_i128, -1, 0, 1, 100, 150, 500, 9_999_999_999])
                    .prop_map(|v| Scalar::Decimal(v, 10, 2))
                    .boxed()
            }
            Kind::Date => prop::sample::select(vec![-1, 0, 1, 365, 19_884, 19_889])
                .prop_map(Scalar::Date)
                .boxed(),
            Kind::Timestamp => prop::sample::select(vec![
                -1_i64,
                0,
                1,
                1_000,
                1_001,
                86_400_000_000,
                1_718_000_000_123_456,
                253_402_300_799_000_000,
            ])
            .prop_map(Scalar::Timestamp)
            .boxed(),
            Kind::Bool => any::<bool>().prop_map(Scalar::Boolean).boxed(),
        };
        prop_oneof![1 => Just(Scalar::Null), 5 => value].boxed()
    }

    /// A literal to compare with, as text and as a value of any kind that compares.
    fn literal(self) -> BoxedStrategy<(String, Scalar)> {
        match self {
            Kind::Byte | Kind::Int | Kind::Long | Kind::Decimal => prop::sample::select(vec![
                "-128",
                "-1",
                "0",
                "1",
                "2",
                "3",
                "5",
                "127",
                "300",
                "1.5",
                "0.01",
                "1.005",
                "-0.5",
                "99999999.99",
                "2147483648",
                "9223372036854775807",
                "-9223372036854775808",
                "9223372036854775808",
                "1e20",
                "'1'",
                "'5'",
                "NULL",
            ])
            .prop_map(|t| (t.to_owned(), exact(t.trim_matches('\''))))
            .boxed(),
            Kind::Double => prop::sample::select(vec![
                "-1.5",
                "0",
                "-0.0",
                "0.1",
                "1",
                "5.0",
                "1e300",
                "double('NaN')",
                "double('Infinity')",
                "'NaN'",
                "'-Infinity'",
                "'0.1'",
                "NULL",
            ])
            .prop_map(|t| {
                let bare = t.trim_start_matches("double(").trim_end_matches(')');
                (
                    t.to_owned(),
                    bare.trim_matches('\'')
                        .parse()
                        .map_or(Scalar::Null, Scalar::Double),
                )
            })
            .boxed(),
            Kind::Float => {
                prop::sample::select(vec!["0", "0.1", "-0.0", "1", "5", "'NaN'", "'inf'", "NULL"])
                    .prop_map(|t| {
                        let value = t.trim_matches('\'').parse();
                        (t.to_owned(), value.map_or(Scalar::Null, Scalar::Float))
                    })
                    .boxed()
            }
            kind => kind.value().prop_map(move |v| (kind.text(&v), v)).boxed(),
        }
    }

    fn text(self, value: &Scalar) -> String {
        match value {
            Scalar::Null => "NULL".to_owned(),
            Scalar::Date(v) => format!("'{}'", format_date(*v)),
            Scalar::Boolean(v) => v.to_string(),
            other => format!("'{}'", format_value(other).unwrap().unwrap_or_default()),
        }
    }
}

/// A number at scale 3.
fn exact(text: &str) -> Scalar {
    crate::schema::partition::parse_decimal(text, 38, 3)
        .map_or(Scalar::Null, |v| Scalar::Decimal(v, 38, 3))
}

/// Spark's order: NaN is the largest and equal to itself, -0.0 is 0.0, text is ordered by bytes.
fn order(a: &Scalar, b: &Scalar) -> Option<Ordering> {
    let thousandths = |v: &Scalar| match v {
        Scalar::Byte(v) => Some(i128::from(*v) * 1000),
        Scalar::Integer(v) => Some(i128::from(*v) * 1000),
        Scalar::Long(v) => Some(i128::from(*v) * 1000),
        Scalar::Decimal(v, _, 2) => Some(v * 10),
        Scalar::Decimal(v, ..) => Some(*v),
        _ => None,
    };
    let floats = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap(),
        (a, b) => a.cmp(&b),
    };
    Some(match (a, b) {
        (Scalar::Null, _) | (_, Scalar::Null) => return None,
        (Scalar::String(a), Scalar::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Scalar::Double(a), Scalar::Double(b)) => floats(*a, *b),
        (Scalar::Float(a), Scalar::Float(b)) => floats(f64::from(*a), f64::from(*b)),
        (Scalar::Date(a), Scalar::Date(b)) => a.cmp(b),
        (Scalar::Timestamp(a), Scalar::Timestamp(b)) => a.cmp(b),
        (Scalar::Boolean(a), Scalar::Boolean(b)) => a.cmp(b),
        (a, b) => thousandths(a).unwrap().cmp(&thousandths(b).unwrap()),
    })
}

#[derive(Debug, Clone)]
enum Cond {
    Compare(&'static str, &'static str, (String, Scalar)),
    In(&'static str, bool, Vec<(String, Scalar)>),
    Between(&'static str, bool, (String, Scalar), (String, Scalar)),
    IsNull(&'static str, bool),
    Like(&'static str, bool, &'static str),
    And(Box<Cond>, Box<Cond>),
    Or(Box<Cond>, Box<Cond>),
    Not(Box<Cond>),
    /// Only DataFusion knows its value.
    Opaque(&'static str),
}

const OPERATORS: [&str; 7] = ["<", "<=", "=", "<>", ">=", ">", "<=>"];

const OPAQUE_CONDITIONS: &[&str] = &[
    "CAST(i AS BIGINT) > 2",
    "CAST(i AS STRING) > '2'",
    "CAST(b AS BOOLEAN)",
    "NOT CAST(b AS BOOLEAN)",
    "CAST(i AS BOOLEAN) = false",
    "TRY_CAST(i AS TINYINT) = 1",
    "TRY_CAST(i AS TINYINT) <> 1",
    "TRY_CAST(l AS INT) >= 2",
    "TRY_CAST(s AS INT) = 5",
    "TRY_CAST(d AS INT) = 1",
    "TRY_CAST(d AS INT) <> 0",
    "CAST(dec AS INT) = 1",
    "CAST(dec AS DOUBLE) = 1.5",
    "CAST(ts AS DATE) = '1970-01-01'",
    "CAST(ts AS DATE) <> '1969-12-31'",
    "'1970-01-01' < CAST(ts AS DATE)",
    "date(ts) <= '1969-12-31'",
    "CAST(l AS DOUBLE) = 9223372036854775807D",
    "CAST(dec AS DECIMAL(10,0)) = 2",
    "TRY_CAST(dec AS DECIMAL(5,3)) > 1",
    "CAST(f AS DOUBLE) > 0.1",
    "CAST(day AS TIMESTAMP) >= '1970-01-02'",
    "i + 1 > 2",
    "i - 1 = 0",
    "i % 2 = 1",
    "-i < 2",
    "-b > 1",
    "-l < 0",
    "d * -1 = 0",
    "i / 2 = 0.5",
    "l DIV 2 = 1",
    "i = l",
    "i < b",
    "d > f",
    "s = 5",
    "s > 1",
    "upper(s) = 'A'",
    "length(s) = 1",
    "starts_with(s, 'a')",
    "starts_with(s, 'a%')",
    "year(ts) = 1970",
    "year(day) <> 1970",
    "floor(d) = 0",
    "coalesce(i, 7) = 7",
    "flag",
    "NOT flag",
    "day < ts",
    "st IS NULL",
    "(i IN (1, 2) AND i IN (3, 10)) IS NULL",
    "(i = 1 OR s = 'a') IS NOT TRUE",
    "(i > 1 AND s < 'b') IS TRUE",
    "(i > 1) IS FALSE",
    "CASE WHEN i > 1 THEN s = 'a' ELSE l = 1 END",
    "CASE WHEN i > 1 THEN true WHEN i = 1 THEN false END",
    "coalesce(i > 1, true)",
    "(i > 1) = (l > 1)",
    "if(flag, i, l) = 1",
    "year(day) IN (1969, 1970)",
    "year(day) NOT IN (1969, 2024)",
    "year(ts) IS DISTINCT FROM 1970",
    "nvl(s, 'a') LIKE 'a%'",
];

const LIKES: [&str; 8] = ["a%", "a", "a\\\\_%", "a\\\\%", "%b", "_b", "😀%", ""];

impl Cond {
    fn sql(&self) -> String {
        let not = |n: &bool| if *n { "NOT " } else { "" };
        match self {
            Cond::Compare(c, op, (text, _)) => format!("{c} {op} {text}"),
            Cond::In(c, n, list) => {
                let list: Vec<_> = list.iter().map(|(t, _)| t.as_str()).collect();
                format!("{c} {}IN ({})", not(n), list.join(", "))
            }
            Cond::Between(c, n, (a, _), (b, _)) => format!("{c} {}BETWEEN {a} AND {b}", not(n)),
            Cond::IsNull(c, n) => format!("{c} IS {}NULL", not(n)),
            Cond::Like(c, n, pattern) => format!("{c} {}LIKE '{pattern}'", not(n)),
            Cond::And(a, b) => format!("({} AND {})", a.sql(), b.sql()),
            Cond::Or(a, b) => format!("({} OR {})", a.sql(), b.sql()),
            Cond::Not(a) => format!("NOT ({})", a.sql()),
            Cond::Opaque(text) => (*text).to_owned(),
        }
    }

    /// What the condition is for a row; `Err` when only DataFusion knows.
    fn value(&self, row: &BTreeMap<&str, Scalar>) -> Result<Option<bool>, ()> {
        let compare = |a: &Scalar, op: &str, b: &Scalar| {
            if op == "<=>" {
                return Some(match order(a, b) {
                    Some(order) => order.is_eq(),
                    None => *a == Scalar::Null && *b == Scalar::Null,
                });
            }
            order(a, b).map(|o| match op {
                "<" => o.is_lt(),
                "<=" => o.is_le(),
                "=" => o.is_eq(),
                "<>" => o.is_ne(),
                ">=" => o.is_ge(),
                _ => o.is_gt(),
            })
        };
        Ok(match self {
            Cond::Compare(c, op, (_, v)) => compare(&row[c], op, v),
            Cond::In(c, n, list) => {
                let mut any = Some(false);
                for (_, value) in list {
                    any = or(any, compare(&row[c], "=", value));
                }
                if *n { any.map(|b| !b) } else { any }
            }
            Cond::Between(c, n, (_, a), (_, b)) => {
                let within = and(compare(&row[c], ">=", a), compare(&row[c], "<=", b));
                if *n { within.map(|b| !b) } else { within }
            }
            Cond::IsNull(c, n) => Some((row[c] == Scalar::Null) != *n),
            Cond::Like(..) | Cond::Opaque(_) => return Err(()),
            Cond::And(a, b) => and(a.value(row)?, b.value(row)?),
            Cond::Or(a, b) => or(a.value(row)?, b.value(row)?),
            Cond::Not(a) => a.value(row)?.map(|b| !b),
        })
    }
}

fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    and(a.map(|b| !b), b.map(|b| !b)).map(|b| !b)
}

fn column() -> impl Strategy<Value = (&'static str, Kind)> {
    let all: Vec<_> = DATA.into_iter().chain(NESTED).chain(PARTITION).collect();
    prop::sample::select(all)
}

fn atom() -> impl Strategy<Value = Cond> {
    prop_oneof![
        6 => column().prop_flat_map(|(c, kind)| {
            (prop::sample::select(OPERATORS.to_vec()), kind.literal())
                .prop_map(move |(op, v)| Cond::Compare(c, op, v))
        }),
        2 => column().prop_flat_map(|(c, kind)| {
            (any::<bool>(), prop::collection::vec(kind.literal(), 1..5))
                .prop_map(move |(n, list)| Cond::In(c, n, list))
        }),
        2 => column().prop_flat_map(|(c, kind)| {
            (any::<bool>(), kind.literal(), kind.literal())
                .prop_map(move |(n, a, b)| Cond::Between(c, n, a, b))
        }),
        2 => (column(), any::<bool>()).prop_map(|((c, _), n)| Cond::IsNull(c, n)),
        1 => (
            prop::sample::select(vec!["s", "st.s", "p"]),
            any::<bool>(),
            prop::sample::select(LIKES.to_vec()),
        )
            .prop_map(|(c, n, p)| Cond::Like(c, n, p)),
        4 => prop::sample::select(OPAQUE_CONDITIONS.to_vec()).prop_map(Cond::Opaque),
    ]
}

fn cond() -> impl Strategy<Value = Cond> {
    atom().prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| Cond::And(a.into(), b.into())),
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| Cond::Or(a.into(), b.into())),
            1 => inner.prop_map(|a| Cond::Not(a.into())),
        ]
    })
}

/// How a writer described one column.
#[derive(Debug, Clone, Copy)]
struct Style {
    bounds: u8,
    counts: bool,
    nan_free: bool,
}

#[derive(Debug, Clone)]
struct File {
    rows: Vec<BTreeMap<&'static str, Scalar>>,
    partition: BTreeMap<String, Scalar>,
    styles: BTreeMap<&'static str, Style>,
    count_rows: bool,
}

fn file() -> impl Strategy<Value = File> {
    let narrow = |kind: Kind| {
        // Few distinct values, so that files differ.
        prop::collection::vec(kind.value(), 1..3)
    };
    let pools: Vec<_> = DATA
        .into_iter()
        .chain(NESTED)
        .map(|(c, kind)| (Just(c), narrow(kind)))
        .collect();
    let partition: Vec<_> = PARTITION
        .into_iter()
        .map(|(c, kind)| (Just(c), kind.value()))
        .collect();
    let styles: Vec<_> = DATA
        .into_iter()
        .chain(NESTED)
        .map(|(c, _)| {
            (0_u8..4, any::<bool>(), any::<bool>()).prop_map(move |(bounds, counts, nan_free)| {
                (
                    c,
                    Style {
                        bounds,
                        counts,
                        nan_free,
                    },
                )
            })
        })
        .collect();
    (
        pools,
        partition,
        styles,
        any::<bool>(),
        prop::collection::vec((any::<u8>(), prop::bool::weighted(0.2)), 1..5),
    )
        .prop_map(|(pools, partition, styles, count_rows, picks)| {
            let rows = picks
                .into_iter()
                .map(|(pick, no_struct)| {
                    let mut row: BTreeMap<_, _> = pools
                        .iter()
                        .map(|(c, pool)| {
                            let gone = no_struct && c.starts_with("st.");
                            let value = pool[(usize::from(pick) + c.len()) % pool.len()].clone();
                            (*c, if gone { Scalar::Null } else { value })
                        })
                        .collect();
                    row.extend(partition.iter().cloned());
                    row.insert(
                        "st",
                        if no_struct {
                            Scalar::Null
                        } else {
                            Scalar::Boolean(true)
                        },
                    );
                    row
                })
                .collect();
            File {
                rows,
                partition: partition
                    .into_iter()
                    .map(|(c, v)| (c.to_owned(), v))
                    .collect(),
                styles: styles.into_iter().collect(),
                count_rows,
            }
        })
}

impl File {
    fn extreme(&self, path: &[String], largest: bool) -> Option<Scalar> {
        let name = path.join(".");
        let style = self.styles[name.as_str()];
        let values: Vec<&Scalar> = self.rows.iter().map(|r| &r[name.as_str()]).collect();
        let nan = |v: &Scalar| {
            matches!(v, Scalar::Double(v) if v.is_nan())
                || matches!(v, Scalar::Float(v) if v.is_nan())
        };
        let real = values
            .iter()
            .filter(|v| ***v != Scalar::Null && (style.bounds == 1 || !nan(v)));
        let best = real.max_by(|a, b| {
            let order = order(a, b).unwrap();
            if largest { order } else { order.reverse() }
        })?;
        let best = match (*best, style.bounds) {
            (_, 0) => return None,
            // The protocol's statistics hold milliseconds, cut off.
            (Scalar::Timestamp(us), _) => Scalar::Timestamp(us.div_euclid(1000) * 1000),
            (Scalar::String(v), 2 | 3) => {
                let prefix: String = v.chars().take(1).collect();
                match largest {
                    false => Scalar::String(prefix),
                    true if prefix == *v => Scalar::String(prefix),
                    true => Scalar::String(format!("{prefix}\u{10ffff}")),
                }
            }
            (Scalar::Integer(v), 3) if largest => Scalar::Integer(v.saturating_add(2)),
            (Scalar::Integer(v), 3) => Scalar::Integer(v.saturating_sub(2)),
            (Scalar::Double(v), _) if *v == 0.0 => Scalar::Double(0.0),
            (other, _) => other.clone(),
        };
        Some(best)
    }
}

impl Bounds for File {
    fn min(&self, column: &[String]) -> Option<Scalar> {
        self.extreme(column, false)
    }

    fn max(&self, column: &[String]) -> Option<Scalar> {
        self.extreme(column, true)
    }

    fn null_count(&self, column: &[String]) -> Option<u64> {
        let name = column.join(".");
        self.styles.get(name.as_str())?.counts.then(|| {
            self.rows
                .iter()
                .filter(|r| r[name.as_str()] == Scalar::Null)
                .count() as u64
        })
    }

    fn nan_free(&self, column: &[String]) -> bool {
        let name = column.join(".");
        self.styles[name.as_str()].nan_free
            && !self.rows.iter().any(|r| match r[name.as_str()] {
                Scalar::Double(v) => v.is_nan(),
                Scalar::Float(v) => v.is_nan(),
                _ => false,
            })
    }
}

fn schema() -> StructType {
    let field = |(name, kind): (&str, Kind)| StructField::new(name, of(kind.primitive()), true);
    let nested = NESTED.map(|(c, kind)| field((c.strip_prefix("st.").unwrap(), kind)));
    let mut fields: Vec<_> = DATA.map(field).to_vec();
    fields.push(StructField::new(
        "st",
        DataType::Struct(StructType {
            fields: nested.to_vec(),
        }),
        true,
    ));
    fields.extend(PARTITION.map(field));
    StructType { fields }
}

fn partition_columns() -> Vec<String> {
    PARTITION.iter().map(|(c, _)| (*c).to_owned()).collect()
}

fn batch(rows: &[BTreeMap<&str, Scalar>]) -> RecordBatch {
    let array = |(name, kind): (&str, Kind)| -> ArrayRef {
        let arrays: Vec<_> = rows
            .iter()
            .map(|r| r[name].to_array(&of(kind.primitive()), 1).unwrap())
            .collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(|a| a.as_ref()).collect();
        arrow::compute::concat(&arrays).unwrap()
    };
    let fields: Vec<_> = NESTED
        .iter()
        .map(|(c, kind)| {
            let arrow = arrow_type(&of(kind.primitive())).unwrap();
            Field::new(c.strip_prefix("st.").unwrap(), arrow, true)
        })
        .collect();
    let nulls = NullBuffer::from_iter(rows.iter().map(|r| r["st"] != Scalar::Null));
    let st = StructArray::new(fields.into(), NESTED.map(array).to_vec(), Some(nulls));
    let columns = DATA
        .into_iter()
        .chain(PARTITION)
        .map(|c| (c.0, array(c)))
        .chain([("st", Arc::new(st) as ArrayRef)]);
    RecordBatch::try_from_iter_with_nullable(columns.map(|(c, a)| (c, a, true))).unwrap()
}

fn facts(file: &File) -> FileFacts<'_> {
    FileFacts {
        partition: file.partition.clone(),
        num_records: file.count_rows.then_some(file.rows.len() as u64),
        bounds: file,
    }
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(400)
}

#[test]
fn no_file_with_a_matching_row_is_left_out() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let pruned = std::cell::Cell::new((0_u64, 0_u64, 0_u64, 0_u64));
    let strategy = (cond(), prop::collection::vec(file(), 1..8));
    runner
        .run(&strategy, |(cond, files)| {
            let sql = cond.sql();
            let predicate = Predicate::parse(&sql, &schema(), &partition_columns(), 0)
                .map_err(|e| TestCaseError::fail(format!("{sql}: {e}")))?;
            let answers: Vec<_> = files
                .iter()
                .map(|f| predicate.evaluate(&batch(&f.rows)))
                .collect();
            let facts: Vec<_> = files.iter().map(facts).collect();
            let verdicts = match predicate.verdict(&facts) {
                Ok(verdicts) => verdicts,
                // A value of a partition that the predicate fails on, as on rows.
                Err(EngineError::Evaluate { .. }) if answers.iter().any(Result::is_err) => {
                    return Ok(());
                }
                Err(e) => return Err(TestCaseError::fail(format!("{sql}: {e}"))),
            };
            let (mut total, mut none, mut every, mut could) = pruned.get();
            for ((file, answer), verdict) in files.iter().zip(answers).zip(verdicts) {
                let Ok(answer) = answer else {
                    prop_assert!(
                        verdict == Verdict::SomeRows || file.rows.is_empty(),
                        "{sql}"
                    );
                    continue;
                };
                for (row, found) in file.rows.iter().zip(answer.iter()) {
                    if let Ok(expected) = cond.value(row) {
                        prop_assert_eq!(found, expected, "{} on {:?}", sql, row);
                    }
                }
                let trues = answer.true_count();
                match verdict {
                    Verdict::NoRow => prop_assert_eq!(trues, 0, "{} on {:?}", sql, file),
                    Verdict::EveryRow => {
                        prop_assert_eq!(trues, answer.len(), "{} on {:?}", sql, file)
                    }
                    Verdict::SomeRows => {}
                }
                if verdict == Verdict::SomeRows {
                    prop_assert!(!predicate.is_partition_only(), "{}", sql);
                }
                total += 1;
                none += u64::from(verdict == Verdict::NoRow);
                every += u64::from(verdict == Verdict::EveryRow);
                could += u64::from(trues == 0);
            }
            pruned.set((total, none, every, could));
            Ok(())
        })
        .unwrap();
    let (total, none, every, could) = pruned.get();
    println!("{total} files: {none} of {could} without a match left out, {every} whole");
    assert!(none * 5 > could, "pruning does nothing");
    assert!(every > 0);
}

/// One file's statistics by hand.
struct Stats {
    min: Scalar,
    max: Scalar,
    nulls: Option<u64>,
}

impl Bounds for Stats {
    fn min(&self, _: &[String]) -> Option<Scalar> {
        Some(self.min.clone())
    }

    fn max(&self, _: &[String]) -> Option<Scalar> {
        Some(self.max.clone())
    }

    fn null_count(&self, _: &[String]) -> Option<u64> {
        self.nulls
    }
}

fn verdict(sql: &str, bounds: &dyn Bounds) -> Verdict {
    let facts = FileFacts {
        partition: BTreeMap::new(),
        num_records: Some(10),
        bounds,
    };
    let predicate = Predicate::parse(sql, &schema(), &partition_columns(), 0).unwrap();
    predicate.verdict(&[facts]).unwrap()[0]
}

#[test]
fn statistics_refute() {
    let stats = Stats {
        min: Scalar::Integer(10),
        max: Scalar::Integer(20),
        nulls: Some(0),
    };
    for sql in [
        "i < 10",
        "i = 21",
        "i > 20",
        "i IN (1, 2, 30)",
        "i BETWEEN 21 AND 30",
        "i IS NULL",
        "NOT (i >= 10)",
        "CAST(i AS BIGINT) = 5",
        "i = 5000000000",
        "i = '5'",
        "st.x = 5",
        "i < 10 AND upper(s) = 'A'",
        "i < 10 AND rand() < 2",
        "i <=> NULL",
        "i = 1 OR i = 2 OR i = 3 OR i = 4 OR i = 5",
        "FALSE",
        "NULL",
        "i = NULL",
    ] {
        assert_eq!(verdict(sql, &stats), Verdict::NoRow, "{sql}");
    }
    for sql in [
        "i <= 10",
        "i = 15",
        "i <> 10",
        "i IS NOT NULL",
        "i + 1 < 5",
        "abs(i) = 1",
        "i < 10 OR s = 'a'",
        "rand() < 2",
        "i >= 10",
        "i < 10 OR rand() < 0.5",
        "i > rand() * 100",
    ] {
        assert_eq!(verdict(sql, &stats), Verdict::SomeRows, "{sql}");
    }
    assert_eq!(verdict("TRUE", &stats), Verdict::EveryRow);
    // D49: a column of NULLs.
    let nulls = Stats {
        min: Scalar::Null,
        max: Scalar::Null,
        nulls: Some(10),
    };
    assert_eq!(verdict("i < 10", &nulls), Verdict::NoRow);
    assert_eq!(verdict("i IS NOT NULL", &nulls), Verdict::NoRow);
    assert_eq!(verdict("i IS NULL", &nulls), Verdict::SomeRows);
    // D50: nothing is known.
    for sql in ["i < 10", "i IS NULL", "i IS NOT NULL", "st.x = 1", "flag"] {
        assert_eq!(verdict(sql, &NoBounds), Verdict::SomeRows, "{sql}");
    }
    // A NaN may hide behind any maximum.
    let floats = Stats {
        min: Scalar::Double(1.0),
        max: Scalar::Double(2.0),
        nulls: Some(0),
    };
    for sql in ["d > 5", "d >= 5", "d <> 1", "d = 'NaN'", "isnan(d)"] {
        assert_eq!(verdict(sql, &floats), Verdict::SomeRows, "{sql}");
    }
    assert_eq!(verdict("d < 1", &floats), Verdict::NoRow);
    // Milliseconds are cut off.
    let times = Stats {
        min: Scalar::Timestamp(0),
        max: Scalar::Timestamp(1000),
        nulls: Some(0),
    };
    assert_eq!(verdict("date(ts) = '1970-01-02'", &times), Verdict::NoRow);
    assert_eq!(verdict("year(ts) > 1970", &times), Verdict::NoRow);
    assert_eq!(
        verdict("date(ts) <= '1970-01-01'", &times),
        Verdict::SomeRows
    );
    assert_eq!(
        verdict("ts > '1970-01-01 00:00:00.0015'", &times),
        Verdict::SomeRows
    );
    assert_eq!(
        verdict("ts > '1970-01-01 00:00:00.0025'", &times),
        Verdict::NoRow
    );
}

#[test]
fn partition_values_decide_alone() {
    // D41, D45
    let predicate = |sql| Predicate::parse(sql, &schema(), &partition_columns(), 0).unwrap();
    let file = |p: Scalar| FileFacts {
        partition: BTreeMap::from([("p".to_owned(), p)]),
        num_records: None,
        bounds: &NoBounds,
    };
    let files = [
        file(Scalar::String("A".to_owned())),
        file(Scalar::String("B".to_owned())),
        file(Scalar::Null),
    ];
    use Verdict::{EveryRow, NoRow, SomeRows};
    let ask = |sql| predicate(sql).verdict(&files).unwrap();
    assert_eq!(ask("p <> 'A'"), [NoRow, EveryRow, NoRow]);
    assert_eq!(ask("NOT (p = 'A')"), [NoRow, EveryRow, NoRow]);
    assert_eq!(ask("p IS NULL"), [NoRow, NoRow, EveryRow]);
    assert_eq!(ask("upper(p) LIKE '%B'"), [NoRow, EveryRow, NoRow]);
    assert_eq!(ask("p = 'A' AND i = 1"), [SomeRows, NoRow, NoRow]);
    assert_eq!(
        ask("lower(p) = 'a' AND rand() < 1"),
        [SomeRows, NoRow, NoRow]
    );
    assert_eq!(ask("p = 'A' OR i = 1"), [SomeRows; 3]);
    assert_eq!(ask("FALSE"), [NoRow; 3]);
    // Not known.
    assert_eq!(ask("q = 1"), [SomeRows; 3]);
    assert_eq!(ask("q IS NULL AND i = 1"), [SomeRows; 3]);
    let wrong = [file(Scalar::Integer(1))];
    assert!(matches!(
        predicate("p = 'A'").verdict(&wrong),
        Err(EngineError::ColumnType { .. })
    ));
    assert!(predicate("p = 'A'").verdict(&[]).unwrap().is_empty());
}

#[test]
fn statistics_of_the_old_type_of_a_widened_column() {
    let stats = Stats {
        min: Scalar::Byte(10),
        max: Scalar::Byte(20),
        nulls: Some(0),
    };
    assert_eq!(verdict("l < 10", &stats), Verdict::NoRow);
    assert_eq!(verdict("dec > 20.5", &stats), Verdict::NoRow);
    assert_eq!(verdict("dec > 19.5", &stats), Verdict::SomeRows);
    // Of another type altogether: unknown.
    assert_eq!(verdict("s = 'x'", &stats), Verdict::SomeRows);
}

#[test]
fn statistics_that_contradict_themselves_refute_nothing() {
    let stats = |min, max, nulls| Stats {
        min,
        max,
        nulls: Some(nulls),
    };
    let swapped = stats(Scalar::Integer(20), Scalar::Integer(10), 0);
    for sql in ["i = 15", "i < 5", "i > 25", "i IN (1, 2)"] {
        assert_eq!(verdict(sql, &swapped), Verdict::SomeRows, "{sql}");
    }
    // All of the ten rows are NULL, yet there is a least one.
    let full = stats(Scalar::Integer(10), Scalar::Integer(20), 10);
    assert_eq!(verdict("i IS NOT NULL", &full), Verdict::SomeRows);
    assert_eq!(verdict("i = 15", &full), Verdict::SomeRows);
    assert_eq!(verdict("i = 25", &full), Verdict::NoRow);
    let more = stats(Scalar::Null, Scalar::Null, 11);
    assert_eq!(verdict("i IS NOT NULL", &more), Verdict::SomeRows);
    // Nobody writes a file without a row.
    let empty = stats(Scalar::Null, Scalar::Null, 0);
    for sql in [
        "i = 1",
        "i IS NULL",
        "i IS NOT NULL",
        "i IS NOT NULL AND p = 'a'",
    ] {
        let facts = FileFacts {
            partition: BTreeMap::from([("p".to_owned(), Scalar::String("a".to_owned()))]),
            num_records: Some(0),
            bounds: &empty,
        };
        let predicate = Predicate::parse(sql, &schema(), &partition_columns(), 0).unwrap();
        assert_eq!(
            predicate.verdict(&[facts]).unwrap(),
            [Verdict::SomeRows],
            "{sql}"
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn a_hundred_thousand_files() {
    let clock = crate::env::Env::real();
    let stats: Vec<Stats> = (0..100_000)
        .map(|i| Stats {
            min: Scalar::Integer(i),
            max: Scalar::Integer(i + 10),
            nulls: Some(0),
        })
        .collect();
    let files: Vec<FileFacts<'_>> = stats
        .iter()
        .map(|bounds| FileFacts {
            partition: BTreeMap::from([("p".to_owned(), Scalar::String("A".to_owned()))]),
            num_records: Some(10),
            bounds,
        })
        .collect();
    for sql in ["i = 5000", "p = 'A'", "p = 'A' AND i = 5000"] {
        let predicate = Predicate::parse(sql, &schema(), &partition_columns(), 0).unwrap();
        let start = clock.instant();
        let verdicts = predicate.verdict(&files).unwrap();
        let kept = verdicts.iter().filter(|v| **v != Verdict::NoRow).count();
        println!("{sql}: {kept} of 100000 kept in {:?}", start.elapsed());
    }
}
