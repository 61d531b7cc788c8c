use arrow::array::{
    Array, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, ListArray, MapBuilder, RecordBatch, StringArray,
    StringBuilder, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::Int32Type;

use super::*;
use crate::engine::Position;
use crate::error::{Failure, Kind};
use crate::schema::{ArrayType, MapType};

/// 2024-06-15 12:30:00 UTC.
const NOW: Millis = 1_718_454_600_000;

fn of(primitive: Primitive) -> DataType {
    DataType::Primitive(primitive)
}

fn schema() -> StructType {
    let field = |name: &str, t| StructField::new(name, t, true);
    StructType {
        fields: vec![
            field("id", of(Primitive::Integer)),
            field("name", of(Primitive::String)),
            field("b", of(Primitive::Byte)),
            field("s", of(Primitive::Short)),
            field("l", of(Primitive::Long)),
            field("f", of(Primitive::Float)),
            field("d", of(Primitive::Double)),
            field("dec", of(Primitive::Decimal(10, 2))),
            field("flag", of(Primitive::Boolean)),
            field("day", of(Primitive::Date)),
            field("ts", of(Primitive::Timestamp)),
            field("ntz", of(Primitive::TimestampNtz)),
            field(
                "addr",
                DataType::Struct(StructType {
                    fields: vec![
                        field("city", of(Primitive::String)),
                        field("Zip", of(Primitive::Integer)),
                    ],
                }),
            ),
            field(
                "tags",
                DataType::Array(Box::new(ArrayType {
                    element_type: of(Primitive::Integer),
                    contains_null: true,
                })),
            ),
            field(
                "m",
                DataType::Map(Box::new(MapType {
                    key_type: of(Primitive::String),
                    value_type: of(Primitive::Integer),
                    value_contains_null: true,
                })),
            ),
            field("my col", of(Primitive::Integer)),
            field("Product.Id", of(Primitive::Integer)),
            field("y--1", of(Primitive::Integer)),
            field("1inch", of(Primitive::Integer)),
            field("Größe", of(Primitive::Integer)),
            field("MixedCase", of(Primitive::Integer)),
            field("@v", of(Primitive::Integer)),
            field("it's", of(Primitive::Integer)),
            field("big", of(Primitive::Decimal(38, 10))),
        ],
    }
}

/// Four rows; the last is all NULL.
fn rows() -> RecordBatch {
    let ints = || Arc::new(Int32Array::from(vec![Some(1), Some(2), Some(3), None])) as ArrayRef;
    let addr = StructArray::try_from(vec![
        (
            "city",
            // Something below a NULL struct.
            Arc::new(StringArray::from(vec![
                Some("X"),
                Some("Y"),
                None,
                Some("X"),
            ])) as ArrayRef,
        ),
        ("Zip", ints()),
    ])
    .unwrap();
    let (fields, children, _) = addr.into_parts();
    let addr = StructArray::new(
        fields,
        children,
        Some(NullBuffer::from(vec![true, true, true, false])),
    );
    let tags = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
        Some(vec![Some(10), Some(11)]),
        Some(vec![Some(20)]),
        Some(vec![]),
        None,
    ]);
    let mut m = MapBuilder::new(
        None,
        StringBuilder::new(),
        arrow::array::Int32Builder::new(),
    );
    for value in [Some(7), Some(8), None, None] {
        if let Some(value) = value {
            m.keys().append_value("k");
            m.values().append_value(value);
        }
        m.append(true).unwrap();
    }
    let micros = |v: [Option<&str>; 4]| -> TimestampMicrosecondArray {
        v.into_iter()
            .map(|t| t.map(|t| crate::schema::partition::parse_timestamp(t).unwrap()))
            .collect()
    };
    let times = [
        Some("2024-06-10 00:00:00"),
        Some("2024-06-15 12:00:00.000001"),
        Some("9999-12-31 23:59:59"),
        None,
    ];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", ints()),
        (
            "name",
            Arc::new(StringArray::from(vec![
                Some("ab"),
                Some("b_c"),
                Some("3"),
                None,
            ])),
        ),
        (
            "b",
            Arc::new(Int8Array::from(vec![Some(1), Some(-128), Some(127), None])),
        ),
        (
            "s",
            Arc::new(Int16Array::from(vec![Some(1), Some(300), Some(-5), None])),
        ),
        (
            "l",
            Arc::new(Int64Array::from(vec![
                Some(1),
                Some(i64::MAX),
                Some(i64::MIN),
                None,
            ])),
        ),
        (
            "f",
            Arc::new(Float32Array::from(vec![
                Some(0.1),
                Some(-0.0),
                Some(f32::NAN),
                None,
            ])),
        ),
        (
            "d",
            Arc::new(Float64Array::from(vec![
                Some(0.1),
                Some(-0.0),
                Some(f64::NAN),
                None,
            ])),
        ),
        (
            "dec",
            Arc::new(
                Decimal128Array::from(vec![Some(150), Some(-1), Some(9_999_999_999), None])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            ),
        ),
        (
            "flag",
            Arc::new(BooleanArray::from(vec![
                Some(true),
                Some(false),
                Some(true),
                None,
            ])),
        ),
        (
            "day",
            // 2024-06-10, 2024-06-15, 1969-12-31
            Arc::new(Date32Array::from(vec![
                Some(19_884),
                Some(19_889),
                Some(-1),
                None,
            ])),
        ),
        ("ts", Arc::new(micros(times).with_timezone("UTC"))),
        ("ntz", Arc::new(micros(times))),
        ("addr", Arc::new(addr)),
        ("tags", Arc::new(tags)),
        ("m", Arc::new(m.finish())),
        ("my col", ints()),
        ("Product.Id", ints()),
        ("y--1", ints()),
        ("1inch", ints()),
        ("Größe", ints()),
        ("MixedCase", ints()),
        ("@v", ints()),
        ("it's", ints()),
        (
            "big",
            Arc::new(
                Decimal128Array::from(vec![Some(10_000_000_000), Some(5), Some(0), None])
                    .with_precision_and_scale(38, 10)
                    .unwrap(),
            ),
        ),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn parse(sql: &str) -> Result<Predicate, EngineError> {
    Predicate::parse(sql, &schema(), &[], NOW)
}

/// One letter per row: t, f, or n for NULL.
fn answer(sql: &str) -> String {
    let predicate = parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let answer = predicate
        .evaluate(&rows())
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    (0..answer.len())
        .map(
            |i| match (answer.is_null(i), answer.is_valid(i) && answer.value(i)) {
                (true, _) => 'n',
                (_, true) => 't',
                (_, false) => 'f',
            },
        )
        .collect()
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let mut wrong = String::new();
    for (sql, expected) in cases {
        let found = std::panic::catch_unwind(|| answer(sql)).unwrap_or_else(|_| "panic".into());
        if found != *expected {
            wrong.push_str(&format!("{sql}: {found}, not {expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn error(sql: &str) -> EngineError {
    match parse(sql) {
        Ok(p) => panic!("{sql} was accepted: {:?}", p.0.logical),
        Err(error) => error,
    }
}

#[test]
fn the_inputs_of_the_engine_study() {
    check(&[
        ("id < 5 AND name LIKE 'a%'", "tffn"),
        ("addr.city = 'X'", "tfnn"),
        ("ADDR.CITY = 'X'", "tfnn"),
        ("addr['Zip'] = 2", "ftfn"),
        ("addr[\"zip\"] = 2", "ftfn"),
        ("`my col` = 2", "ftfn"),
        ("mixedcase = 2", "ftfn"),
        ("ts >= current_date() - interval '7' day", "tttn"),
        ("ts >= current_date - interval 2 days", "fttn"),
        ("ts < current_timestamp()", "ttfn"),
        ("ntz < now()", "ttfn"),
        (
            "year(day) = 2024 AND month(ts) = 6 AND day(ntz) = 15",
            "ftfn",
        ),
        ("size(tags) = 2", "tfff"),
        ("if(id > 1, 'a', 'b') = 'a'", "fttf"),
        ("datediff(day, '2024-06-10') = 5", "ftfn"),
        ("trunc(day, 'MM') = '2024-06-01'", "ttfn"),
        ("date_add(day, 1) = '2024-06-11'", "tffn"),
        ("id / 2 = 0.5", "tffn"),
        ("id DIV 2 = 1", "fttn"),
        ("concat(name, NULL) IS NULL", "tttt"),
        ("1/0 IS NULL", "tttt"),
    ]);
    // A string, as in Spark, that is no number.
    assert!(parse("\"my col\" = 2").is_err());
}

#[test]
fn odd_names_are_found() {
    // D38
    check(&[
        ("`Product.Id` = 2", "ftfn"),
        ("`product.id` = 2", "ftfn"),
        ("`y--1` = 2 AND `Y--1` > 0", "ftfn"),
        ("`1inch` = 2", "ftfn"),
        ("1inch = 2", "ftfn"),
        ("Größe = 2", "ftfn"),
        ("GRÖßE = 2", "ftfn"),
        ("`@v` = 2", "ftfn"),
        ("`it's` = 2", "ftfn"),
        ("`addr`.`city` = 'X'", "tfnn"),
    ]);
    assert_eq!(
        error("product.ID = 1").hint().unwrap(),
        "Did you mean `Product.Id`?"
    );
    let predicate = parse("MIXEDCASE = 1 AND `product.id` = 2 AND addr.zip = 3").unwrap();
    assert_eq!(predicate.columns(), ["MixedCase", "Product.Id", "addr"]);
}

#[test]
fn null_is_neither_true_nor_false() {
    // D40
    check(&[
        ("id > 1", "fttn"),
        ("NOT (id > 1)", "tffn"),
        ("id <> 1", "fttn"),
        ("id > 1 OR name IS NULL", "fttt"),
        ("id > 1 AND name IS NULL", "fffn"),
        ("id IN (1, NULL)", "tnnn"),
        ("id NOT IN (1, NULL)", "fnnn"),
        ("id NOT IN (1, 2)", "fftn"),
        ("id = NULL", "nnnn"),
        ("id <=> NULL", "ffft"),
        ("id <=> 1", "tfff"),
        ("id IS NULL", "ffft"),
        ("NOT id IS NULL", "tttf"),
        ("id BETWEEN 2 AND 3", "fttn"),
        ("id NOT BETWEEN 2 AND 3", "tffn"),
        ("id BETWEEN NULL AND 1", "nffn"),
        ("NULL", "nnnn"),
        ("TRUE", "tttt"),
        ("FALSE OR NULL", "nnnn"),
        ("flag", "tftn"),
        ("NOT flag", "ftfn"),
        ("! flag", "ftfn"),
        ("flag = true", "tftn"),
        ("flag IS NOT TRUE", "ftft"),
        ("id = id", "tttn"),
        ("id <> id", "fffn"),
        ("d = d", "tttn"),
        ("id IS DISTINCT FROM 1 AND id < 3", "ftfn"),
        ("flag IS DISTINCT FROM true AND id > 1", "ftfn"),
        ("id IS NOT DISTINCT FROM 1 OR id = 3", "tftn"),
        ("6 DIV id = 3 OR id = 1", "ttfn"),
        ("NOT id = 1 AND id < 3", "ftfn"),
        ("NOT flag OR id = 1", "ttfn"),
        ("!flag AND id = 2", "ftfn"),
        ("-id + 3 = 2 AND -id * 2 < 0", "tffn"),
        (
            "id + 1 BETWEEN 2 AND 3 AND name LIKE 'a%' OR id = 3",
            "tftn",
        ),
        ("id & 1 = 1 AND id | 2 = 3", "tftn"),
        ("NOT (id IN (1, 2) AND id IN (7, 8))", "tttn"),
        ("id NOT IN (1, 2) OR id NOT IN (7, 8)", "tttn"),
        ("id IN (1, 2) AND id NOT IN (1, NULL)", "fnfn"),
        ("(id IN (1, 2) AND id IN (7, 8)) IS NULL", "ffft"),
        ("NOT ((id = 1 OR id = 2) AND (id = 7 OR id = 8))", "tttn"),
        ("CASE WHEN id > 1 THEN true ELSE false END", "fttf"),
        (
            "CASE WHEN id > 1 THEN false WHEN id = 1 THEN true END",
            "tffn",
        ),
        (
            "NOT CASE WHEN id > 1 THEN true WHEN id = 1 THEN false END",
            "tffn",
        ),
    ]);
}

#[test]
fn literals_take_the_type_of_the_column() {
    // D43, D44
    check(&[
        ("name = 'ab'", "tffn"),
        ("b = 1", "tffn"),
        ("b = 300", "fffn"),
        ("b <> 300", "tttn"),
        ("b < 300", "tttn"),
        ("b >= -129", "tttn"),
        ("b IN (1, 300)", "tffn"),
        ("b IN (300)", "fffn"),
        ("b IN (300, 400)", "fffn"),
        ("b NOT IN (300)", "tttn"),
        ("b NOT IN (1, 300)", "fttn"),
        ("b = -128", "ftfn"),
        ("s IN (300, 70000)", "ftfn"),
        ("s = 70000", "fffn"),
        ("id = 99999999999999999999", "fffn"),
        ("id < 99999999999999999999", "tttn"),
        ("id < 1e30", "tttn"),
        ("id > -1e37", "tttn"),
        ("l = 9223372036854775807", "ftfn"),
        ("l = 9223372036854775808", "fffn"),
        ("l = -9223372036854775808", "fftn"),
        ("l < 18446744073709551615", "tttn"),
        ("id = 1.0", "tffn"),
        ("id = 1.5", "fffn"),
        ("id > 1.5", "fttn"),
        ("id IN (1.0, 2.5)", "tffn"),
        ("f = 0.1", "tffn"),
        ("d = 0.1", "tffn"),
        ("d = 0.10000000000000000555", "tffn"),
        ("d IN (0.1, 5)", "tffn"),
        ("d = 0", "ftfn"),
        ("d >= 0", "tttn"),
        ("d > -0.0", "tftn"),
        ("d * -1 = 0", "ftfn"),
        ("f >= 0 AND f <= 0", "ftfn"),
        ("d = double('NaN')", "fftn"),
        ("d > double('Infinity')", "fftn"),
        ("isnan(d)", "fftn"),
        ("dec = 1.5", "tffn"),
        ("dec = 1.50", "tffn"),
        ("dec = 1.500", "tffn"),
        ("dec = 1.505", "fffn"),
        ("dec < 1.505", "ttfn"),
        ("dec = 100000000000", "fffn"),
        ("dec < 100000000000", "tttn"),
        ("dec IN (1.5, -0.01, 1e20)", "ttfn"),
        ("big = 1", "tffn"),
        ("big < 1e30", "tttn"),
        ("big < 1e37", "tttn"),
        ("big = 12345678901234567890123456789012345678", "fffn"),
        ("big > 0.00000000049999999999", "ttfn"),
        ("id = '2'", "ftfn"),
        ("id IN ('1', 2)", "ttfn"),
        ("id = ' 2 '", "ftfn"),
        ("b = '300'", "fffn"),
        ("d = '0.1'", "tffn"),
        ("d = 'NaN'", "fftn"),
        ("dec = '1.5'", "tffn"),
        ("flag = 'true'", "tftn"),
        ("day = '2024-06-15'", "ftfn"),
        ("day > '1970-01-01'", "ttfn"),
        ("day IN ('2024-06-15')", "ftfn"),
        ("day = DATE '2024-06-15'", "ftfn"),
        ("day < TIMESTAMP '2024-06-15 00:00:01'", "tttn"),
        ("ts = '2024-06-10'", "tffn"),
        ("ts = '2024-06-10T02:00:00+02:00'", "tffn"),
        ("ts > '2024-06-15 12:00:00'", "fttn"),
        ("ts = TIMESTAMP '9999-12-31 23:59:59'", "fftn"),
        ("ts > day", "fttn"),
        ("ntz = '2024-06-15 12:00:00.000001'", "ftfn"),
        ("name = 3", "nntn"),
        ("name > 2", "nntn"),
        ("name IN (3, 4)", "fftn"),
        ("10L = id", "fffn"),
        ("id = 1L OR id = 2S OR d = 0.1D OR dec = 1.5BD", "ttfn"),
        ("2 > id", "tffn"),
    ]);
}

#[test]
fn functions_and_operators() {
    check(&[
        ("name LIKE 'b\\_c'", "ftfn"),
        ("name LIKE 'b_c'", "ftfn"),
        ("name LIKE '%B%' OR name ILIKE 'B%'", "ftfn"),
        ("name NOT LIKE 'a%'", "fttn"),
        ("name RLIKE '^[ab]'", "ttfn"),
        ("name NOT RLIKE '^[ab]'", "fftn"),
        ("name REGEXP '\\\\d'", "fftn"),
        ("rlike(name, 'b')", "ttfn"),
        ("upper(name) = 'AB'", "tffn"),
        ("length(name) = 3 OR len(name) = 1", "fttn"),
        ("substring(name, 1, 1) = 'a'", "tffn"),
        ("substr(name, -1) = 'c'", "ftfn"),
        (
            "startswith(name, 'a') OR endswith(name, 'c') OR contains(name, '3')",
            "tttn",
        ),
        ("trim(name) = 'ab'", "tffn"),
        ("name || 'x' = 'abx'", "tffn"),
        ("coalesce(name, 'z') = 'z'", "ffft"),
        ("nvl(id, 9) = 9 AND ifnull(id, 9) = 9", "ffft"),
        ("isnull(id)", "ffft"),
        ("isnotnull(id)", "tttf"),
        ("nullif(id, 1) = 2", "ntfn"),
        ("greatest(id, 2) = 2", "ttft"),
        (
            "CASE WHEN id = 1 THEN 'a' WHEN id = 2 THEN 'b' ELSE 'c' END = 'b'",
            "ftff",
        ),
        ("CASE id WHEN 1 THEN true ELSE false END", "tfff"),
        ("CAST(id AS STRING) = '1'", "tffn"),
        ("string(id) = '1'", "tffn"),
        ("TRY_CAST(name AS INT) = 3", "nntn"),
        ("int('5') = 5", "tttt"),
        ("id % 2 = 1", "tftn"),
        ("id % 0 IS NULL", "tttt"),
        ("id / (id - 1) > 0", "nttn"),
        ("mod(id, 2) = 1", "tftn"),
        ("abs(-id) = 1", "tffn"),
        ("round(d, 1) = 0.1", "tffn"),
        ("floor(d) = 0 AND ceil(f) = 1", "tffn"),
        ("-id = -1", "tffn"),
        ("id & 1 = 1", "tftn"),
        ("~id = -2", "tffn"),
        ("id == 1", "tffn"),
        ("id != 1", "fttn"),
        ("tags[0] = 10", "tfnn"),
        ("tags[1] = 11", "tnnn"),
        ("tags[-1] = 11", "nnnn"),
        ("tags[id - 1] = 10", "tnnn"),
        ("element_at(tags, 1) = 10", "tfnn"),
        ("array_contains(tags, 10)", "tffn"),
        ("m['k'] = 7", "tfnn"),
        ("m.k = 7", "tfnn"),
        ("element_at(m, 'k') = 7", "tfnn"),
        ("string_to_array(name, '_')[1] = 'c'", "ntnn"),
        (
            "hour(ts) = 12 AND minute(ts) = 0 AND second(ts) = 0",
            "ftfn",
        ),
        ("dayofweek(day) = 7", "ftfn"),
        ("quarter(day) = 2", "ttfn"),
        ("dayofyear(day) = 365", "fftn"),
        ("year(day) < 1970", "fftn"),
        ("year('2024-01-01') = 2024", "tttt"),
        ("extract(year FROM day) = 2024", "ttfn"),
        ("last_day(day) = '2024-06-30'", "ttfn"),
        ("add_months(day, 1) = '2024-07-10'", "tffn"),
        ("date(ts) = '2024-06-15'", "ftfn"),
        ("CAST(ts AS DATE) = '9999-12-31'", "fftn"),
        ("to_date('2024-06-10') = day", "tffn"),
        ("to_timestamp('2024-06-10 00:00:00') = ts", "tffn"),
        ("date_trunc('MONTH', timestamp(day)) = '2024-06-01'", "ttfn"),
        ("day + interval 5 days = '2024-06-15'", "tffn"),
        ("ts - interval '1' hour < '2024-06-10'", "tffn"),
        ("ts > now() - interval '7 days'", "tttn"),
        ("extract(dow FROM day) = 2", "tffn"),
        ("regexp_replace('aba', 'a', 'x') = 'xbx'", "tttt"),
        ("abs(log(d) + 2.302585) < 0.001", "tffn"),
        ("(id, l) IN ((1, 1))", "tfff"),
        ("id::string = '1'", "tffn"),
        ("day - DATE '2024-06-10' = 5", "ftfn"),
        ("current_date() = '2024-06-15'", "tttt"),
        ("current_timestamp() = '2024-06-15 12:30:00'", "tttt"),
        ("id = 1 -- a comment", "tffn"),
        ("/* one */ id = 1;", "tffn"),
        ("name = 'it\\'s' OR name = 'ab'", "tffn"),
        ("name = 'it''s' OR name = \"ab\"", "tffn"),
        ("addr IS NULL", "ffft"),
        ("addr.city IS NULL", "fftt"),
        ("hex(id) = '1'", "tffn"),
    ]);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let place = |line, column| Position { line, column };
    let EngineError::UnknownColumn {
        name, at, nearest, ..
    } = error("id = 1 AND\n  nam = 'x'")
    else {
        panic!()
    };
    assert_eq!((name.as_str(), at), ("nam", place(2, 3)));
    assert_eq!(nearest.as_deref(), Some("name"));
    assert!(
        error("nam = 1")
            .to_string()
            .starts_with("unknown column `nam` at line 1, column 1; columns are: id, name, b,")
    );
    assert_eq!(error("nam = 1").hint().unwrap(), "Did you mean `name`?");
    let EngineError::UnknownField {
        name,
        parent,
        at,
        nearest,
        fields,
    } = error("addr.cty = 'X'")
    else {
        panic!()
    };
    assert_eq!(
        (name.as_str(), parent.as_str(), at),
        ("cty", "addr", place(1, 6))
    );
    assert_eq!(nearest.as_deref(), Some("city"));
    assert_eq!(fields, ["city", "Zip"]);
    assert!(matches!(error("id.x = 1"), EngineError::NoFields { column, .. } if column == "id"));
    let EngineError::UnknownFunction { name, at, .. } = error("id = 1 OR foo(id)") else {
        panic!()
    };
    assert_eq!((name.as_str(), at), ("foo", place(1, 11)));
    for (sql, what) in [
        ("id IN (SELECT 1)", "a sub-query"),
        ("EXISTS (SELECT 1)", "a sub-query"),
        ("id = (SELECT max(id) FROM t)", "a sub-query"),
        ("max(id) > 1", "an aggregate function"),
        ("count(*) > 1", "an aggregate function"),
        ("row_number() OVER (ORDER BY id) = 1", "a window function"),
        ("sum(id) OVER () = 1", "a window function"),
        ("id = ?", "a parameter"),
        ("name COLLATE utf8 = 'x'", "COLLATE"),
        (
            "input_file_name() = 'x'",
            "a function that does not depend on the row alone",
        ),
        ("exists(tags, x -> x > 1)", "a lambda function"),
    ] {
        match error(sql) {
            EngineError::NotAllowed { what: found, .. } => assert_eq!(found, what, "{sql}"),
            other => panic!("{sql}: {other}"),
        }
    }
    for sql in ["", "  ", ";", " -- nothing", "\n;\n"] {
        assert_eq!(error(sql), EngineError::Empty, "{sql:?}");
    }
    assert_eq!(
        error("id = 1 id = 2").to_string(),
        "expected end of predicate, found `id` at line 1, column 8"
    );
    assert_eq!(
        error("id = 1; DROP TABLE t").to_string(),
        "expected end of predicate, found `DROP` at line 1, column 9"
    );
    assert_eq!(
        error("id = 1\n AND ").to_string(),
        "expected an expression, found the end at line 2, column 6"
    );
    // Not what Spark means by these names.
    for sql in [
        "date_format(ts, 'yyyy') = '2024'",
        "to_date(name, 'yyyy') = day",
    ] {
        assert!(matches!(error(sql), EngineError::UnknownFunction { .. }));
    }
    assert!(matches!(
        error("WHERE id = 1"),
        EngineError::Syntax { .. } | EngineError::UnknownColumn { .. }
    ));
    assert!(matches!(
        error("id = 'unfinished"),
        EngineError::Syntax { .. }
    ));
    assert!(matches!(error("(id = 1"), EngineError::Syntax { .. }));
}

#[test]
fn what_is_no_condition_is_refused() {
    for (sql, message) in [
        (
            "id = 'abc'",
            "`abc` cannot be compared with `id`: it is not a value of type integer",
        ),
        (
            "addr.zip = 'x'",
            "`x` cannot be compared with `addr.Zip`: it is not a value of type integer",
        ),
        (
            "day = 'soon'",
            "`soon` cannot be compared with `day`: it is not a value of type date",
        ),
        (
            "id IN (1, 'x')",
            "`x` cannot be compared with `id`: it is not a value of type integer",
        ),
        (
            "id BETWEEN 1 AND 'x'",
            "`x` cannot be compared with `id`: it is not a value of type integer",
        ),
        (
            "id",
            "`id` is not a condition: its type is integer, not boolean",
        ),
        (
            "'x'",
            "`'x'` is not a condition: its type is string, not boolean",
        ),
    ] {
        assert_eq!(error(sql).to_string(), message);
        assert_eq!(error(sql).kind(), Kind::Invalid);
    }
    for sql in [
        "name + 1",
        "b and id",
        "upper(name, 1) = 'X'",
        "addr = 1",
        "CAST('abc' AS INT) = 1",
        "day = DATE 'soon'",
        "tags = 1",
        "day = 19884",
        "ts IN (1, 2)",
        "id > day",
        "name LIKE ANY ('a%', 'b%')",
    ] {
        let error = error(sql);
        assert!(
            matches!(
                error,
                EngineError::Plan { .. } | EngineError::NotBoolean { .. }
            ),
            "{sql}: {error}"
        );
    }
}

#[test]
fn properties_of_a_predicate() {
    let of = |sql: &str| {
        Predicate::parse(sql, &schema(), &["day".to_owned(), "b".to_owned()], NOW).unwrap()
    };
    assert!(of("day = '2024-01-01' AND b IN (1, 2)").is_partition_only());
    assert!(!of("day = '2024-01-01' AND id = 1").is_partition_only());
    assert!(of("TRUE").is_partition_only());
    assert!(!of("rand() < 0.5").is_partition_only());
    assert!(!of("rand() < 0.5").is_deterministic());
    assert!(!of("uuid() = 'x'").is_deterministic());
    assert!(of("ts < now()").is_deterministic());
    assert!(!of("rand() < 0.5").is_row_local());
    assert!(of("addr.city = 'X'").uses_complex_type());
    assert!(of("size(tags) = 1").uses_complex_type());
    assert!(!of("id = 1").uses_complex_type());
    assert!(of("TRUE").is_always_true());
    assert!(of("1 = 1").is_always_true());
    assert!(of("id = 1 OR TRUE").is_always_true());
    assert!(of("id = 1 OR TRUE").columns().is_empty());
    assert!(!of("id = id").is_always_true());
    assert!(!of("FALSE").is_always_true());
    assert_eq!(of("  id = 1 ;\n").text(), "id = 1");
}

#[test]
fn a_batch_must_have_the_columns() {
    let batch = rows().project(&[1, 0]).unwrap();
    assert_eq!(
        parse("id = 1")
            .unwrap()
            .evaluate(&batch)
            .unwrap()
            .true_count(),
        1
    );
    assert_eq!(
        parse("b = 1").unwrap().evaluate(&batch).unwrap_err(),
        EngineError::MissingColumn {
            column: "b".to_owned()
        }
    );
    let wrong =
        RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(vec![1])) as ArrayRef)])
            .unwrap();
    assert!(matches!(
        parse("id = 1").unwrap().evaluate(&wrong).unwrap_err(),
        EngineError::ColumnType { .. }
    ));
    let empty = rows().slice(0, 0);
    assert_eq!(parse("id = 1").unwrap().evaluate(&empty).unwrap().len(), 0);
    assert_eq!(parse("TRUE").unwrap().evaluate(&empty).unwrap().len(), 0);
}

#[test]
fn long_texts_do_not_use_up_the_stack() {
    let or: Vec<String> = (0..2_000)
        .map(|i| format!("id = {i} AND l > {i}"))
        .collect();
    let predicate = parse(&or.join(" OR ")).unwrap();
    assert_eq!(predicate.evaluate(&rows()).unwrap().len(), 4);
    let list: Vec<String> = (0..50_000).map(|i| i.to_string()).collect();
    assert_eq!(answer(&format!("id IN ({})", list.join(","))), "tttn");
    let sum = vec!["id"; 100_000].join(" + ");
    assert!(matches!(
        error(&format!("{sum} > 1")),
        EngineError::TooDeep { .. }
    ));
    let eq = vec!["flag"; 100_000].join(" = ");
    assert!(matches!(error(&eq), EngineError::TooDeep { .. }));
    let nested = format!("{}id = 1{}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(matches!(error(&nested), EngineError::TooDeep { .. }));
    let not = format!("{} flag", "NOT ".repeat(10_000));
    assert!(matches!(error(&not), EngineError::TooDeep { .. }));
    let sum = vec!["id"; 400].join(" + ");
    assert_eq!(answer(&format!("{sum} = 400")), "tffn");
}

#[test]
#[ignore = "a measurement: cargo test --release … -- --ignored --nocapture"]
fn a_million_rows() {
    let clock = crate::env::Env::real();
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..1_000_000));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..1_000_000).map(|i| format!("{}{i}", if i % 3 == 0 { 'a' } else { 'b' })),
    ));
    let batch = RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap();
    let start = clock.instant();
    let predicate = parse("id % 10 = 0 AND name LIKE 'a%'").unwrap();
    println!("first parse {:?}", start.elapsed());
    let start = clock.instant();
    let predicate = parse(predicate.text()).unwrap();
    println!("second parse {:?}", start.elapsed());
    for _ in 0..3 {
        let start = clock.instant();
        let hits = predicate.evaluate(&batch).unwrap().true_count();
        println!("one batch: {hits} hits in {:?}", start.elapsed());
    }
    let start = clock.instant();
    let hits: usize = (0..1_000_000)
        .step_by(8192)
        .map(|at| batch.slice(at, 8192.min(1_000_000 - at)))
        .map(|b| predicate.evaluate(&b).unwrap().true_count())
        .sum();
    println!("batches of 8192: {hits} hits in {:?}", start.elapsed());
}
