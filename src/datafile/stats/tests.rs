use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType as Arrow, Field, Fields};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use proptest::prelude::*;

use super::*;
use crate::datafile::testing::{batch, data_type, parquet_with, table};
use crate::datafile::{MappingMode, inspect};
use crate::schema::{Scalar, StructType};

fn config(properties: &[(&str, &str)]) -> StatsConfig {
    let map: BTreeMap<String, String> = properties
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    StatsConfig::from_configuration(&map)
}

fn scanned(schema: &StructType, batches: &[RecordBatch]) -> String {
    let mut builder = StatsBuilder::new(schema, &[], &StatsConfig::default());
    for batch in batches {
        builder.update(batch).unwrap();
    }
    builder.finish()
}

/// From the footer as far as it goes, then from the rows.
fn footer_then_scan(
    schema: &StructType,
    batches: &[RecordBatch],
    file: &File,
) -> (Vec<String>, String) {
    let metadata = inspect(file).unwrap().metadata;
    let mut partial = footer_stats(&metadata, schema, &[], &StatsConfig::default());
    for batch in batches {
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
    (partial.scan, partial.builder.finish())
}

#[test]
fn columns_are_chosen_by_the_properties() {
    let schema = table(&[
        ("p", "long"),
        ("a.b", "long"),
        (
            "s",
            r#"{"type":"struct","fields":[
            {"name":"x","type":"long","nullable":true,"metadata":{}},
            {"name":"y","type":"long","nullable":true,"metadata":{}}]}"#,
        ),
        ("c", "long"),
    ]);
    let partition = ["p".to_owned()];
    let chosen = |config: &StatsConfig| -> Vec<String> {
        let leaves = config.leaves(&schema, &partition);
        leaves.iter().map(|l| l.physical.join("/")).collect()
    };
    assert_eq!(chosen(&config(&[])), ["a.b", "s/x", "s/y", "c"]);
    assert_eq!(chosen(&config(&[(INDEXED_COLUMNS, "2")])), ["a.b", "s/x"]);
    assert_eq!(chosen(&config(&[(INDEXED_COLUMNS, "0")])), [""; 0]);
    assert_eq!(chosen(&config(&[(INDEXED_COLUMNS, "-1")])).len(), 4);
    assert_eq!(chosen(&config(&[(INDEXED_COLUMNS, "?")])).len(), 4);
    // D52
    let named = config(&[(STATS_COLUMNS, "`a.b`, C"), (INDEXED_COLUMNS, "1")]);
    assert_eq!(chosen(&named), ["a.b", "c"]);
    assert_eq!(chosen(&config(&[(STATS_COLUMNS, "s")])), ["s/x", "s/y"]);
    assert_eq!(chosen(&config(&[(STATS_COLUMNS, "s.`y`")])), ["s/y"]);
    assert_eq!(chosen(&config(&[(STATS_COLUMNS, "")])), [""; 0]);
    let clustered = config(&[(INDEXED_COLUMNS, "0")]).with_clustering(vec![vec!["c".to_owned()]]);
    assert_eq!(chosen(&clustered), ["c"]);
    assert_eq!(
        parse_names("`we``ird`.x,y "),
        [vec!["we`ird", "x"], vec!["y"]]
    );
}

#[test]
fn forty_columns_have_thirty_two() {
    // D51
    let names: Vec<String> = (0..40).map(|i| format!("c{i}")).collect();
    let schema = table(
        &names
            .iter()
            .map(|n| (n.as_str(), "long"))
            .collect::<Vec<_>>(),
    );
    let columns = names
        .iter()
        .map(|n| (n.as_str(), Arc::new(Int64Array::from(vec![1])) as ArrayRef));
    let stats = scanned(&schema, &[batch(columns.collect())]);
    assert!(stats.contains("\"c31\":1") && !stats.contains("\"c32\""));
}

#[test]
fn every_type_has_its_form() {
    let decimals = Decimal128Array::from(vec![0, 1, 99_999_999_999_999_999_999_999_999_999_999])
        .with_precision_and_scale(32, 16)
        .unwrap();
    let times = vec![-1, 1_577_836_800_000_999, 0];
    let rows = batch(vec![
        (
            "b",
            Arc::new(BooleanArray::from(vec![true, false, true])) as ArrayRef,
        ),
        ("d", Arc::new(Date32Array::from(vec![0, -1, 18_262]))),
        ("n", Arc::new(decimals)),
        (
            "t",
            Arc::new(TimestampMicrosecondArray::from(times.clone()).with_timezone("UTC")),
        ),
        ("z", Arc::new(TimestampMicrosecondArray::from(times))),
        (
            "y",
            Arc::new(BinaryArray::from_vec(vec![b"\x7f", b"\x80", b"\xff"])),
        ),
        ("e", Arc::new(Int8Array::from(vec![None, None, None::<i8>]))),
        ("f", Arc::new(Float32Array::from(vec![0.1, 0.0, -0.0]))),
        ("q\"\\", Arc::new(StringArray::from(vec!["\"", "\n", "ü"]))),
    ]);
    let schema = table(&[
        ("b", "boolean"),
        ("d", "date"),
        ("n", "decimal(32,16)"),
        ("t", "timestamp"),
        ("z", "timestamp_ntz"),
        ("y", "binary"),
        ("e", "byte"),
        ("f", "float"),
        ("q\"\\", "string"),
    ]);
    // D48, D49, D54: exact decimals, all-NULL columns, no bounds of binary.
    assert_eq!(
        scanned(&schema, &[rows]),
        concat!(
            r#"{"numRecords":3,"minValues":{"d":"1969-12-31","n":0.0000000000000000,"#,
            r#""t":"1969-12-31T23:59:59.999Z","z":"1969-12-31T23:59:59.999","f":-0.0,"q\"\\":"\n"},"#,
            r#""maxValues":{"d":"2020-01-01","n":9999999999999999.9999999999999999,"#,
            r#""t":"2020-01-01T00:00:00.000Z","z":"2020-01-01T00:00:00.000","f":0.10000000149011612,"q\"\\":"ü"},"#,
            r#""nullCount":{"b":0,"d":0,"n":0,"t":0,"z":0,"y":0,"e":3,"f":0,"q\"\\":0},"tightBounds":true}"#
        )
    );
}

#[test]
fn what_json_cannot_say_is_left_out() {
    // D47, D53
    let schema = table(&[
        ("i", "double"),
        ("n", "double"),
        ("t", "timestamp"),
        ("d", "date"),
    ]);
    let rows = batch(vec![
        (
            "i",
            Arc::new(Float64Array::from(vec![f64::INFINITY, -1.0])) as ArrayRef,
        ),
        ("n", Arc::new(Float64Array::from(vec![f64::NAN, -1.0]))),
        (
            "t",
            Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX, 0]).with_timezone("UTC")),
        ),
        ("d", Arc::new(Date32Array::from(vec![i32::MIN, 0]))),
    ]);
    let stats = scanned(&schema, &[rows]);
    serde_json::from_str::<serde_json::Value>(&stats).unwrap();
    assert!(
        stats.contains(r#""minValues":{"i":-1.0,"t":"1970-01-01T00:00:00.000Z"}"#),
        "{stats}"
    );
    assert!(
        stats.contains(r#""maxValues":{"d":"1970-01-01"}"#),
        "{stats}"
    );
}

#[test]
fn long_strings_are_cut_between_characters() {
    let cut = |text: &str| {
        let value = Scalar::String(text.to_owned());
        let read = |json: Option<String>| json.map(|j| serde_json::from_str::<String>(&j).unwrap());
        (
            read(bound::min_json(&value)).unwrap(),
            read(bound::max_json(&value)),
        )
    };
    let a32 = "a".repeat(32);
    assert_eq!(cut(&a32), (a32.clone(), Some(a32.clone())));
    let tied = format!("{a32}\u{7f}");
    assert_eq!(cut(&format!("{a32}b")), (a32.clone(), Some(tied)));
    let high = format!("{a32}\u{10ffff}");
    assert_eq!(cut(&format!("{a32}\u{7f}x")).1, Some(high.clone()));
    assert_eq!(cut(&format!("{a32}é")).1, Some(high));
    let tops = format!("{a32}\u{10ffff}\u{10ffff}b");
    assert_eq!(
        cut(&tops).1,
        Some(format!("{a32}\u{10ffff}\u{10ffff}\u{7f}"))
    );
    assert_eq!(
        cut(&"\u{10ffff}".repeat(64)).1,
        Some("\u{10ffff}".repeat(64))
    );
    assert_eq!(
        cut(&"\u{10ffff}".repeat(65)),
        ("\u{10ffff}".repeat(32), None)
    );
    assert_eq!(cut(&"🦀".repeat(40)).0.chars().count(), 32);
}

#[test]
fn the_footer_is_believed_only_where_it_may_be() {
    let lists = ListBuilder::new(Int32Builder::new());
    let mut lists = lists.with_field(Field::new("item", Arrow::Int32, true));
    for i in 0..4 {
        lists.values().append_null();
        lists.append(i != 2);
    }
    let inner: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
    let nested = StructArray::try_new(
        Fields::from(vec![Field::new("x", Arrow::Int32, true)]),
        vec![inner],
        Some(vec![true, true, false, true].into()),
    );
    let rows = batch(vec![
        (
            "id",
            Arc::new(Int64Array::from(vec![Some(4), None, Some(-4), Some(0)])) as ArrayRef,
        ),
        ("s", Arc::new(StringArray::from(vec!["b", "a", "z", "ä"]))),
        ("f", Arc::new(Float64Array::from(vec![1.0; 4]))),
        ("l", Arc::new(lists.finish())),
        ("n", Arc::new(nested.unwrap())),
        (
            "m",
            Arc::new(
                Decimal128Array::from(vec![-5, 7, 0, 1])
                    .with_precision_and_scale(30, 1)
                    .unwrap(),
            ),
        ),
    ]);
    let schema = table(&[
        ("id", "long"),
        ("s", "string"),
        ("f", "double"),
        (
            "l",
            r#"{"type":"array","elementType":"integer","containsNull":true}"#,
        ),
        (
            "n",
            r#"{"type":"struct","fields":[{"name":"x","type":"integer","nullable":true,"metadata":{}}]}"#,
        ),
        ("m", "decimal(30,1)"),
    ]);
    let batches = [rows.clone(), rows.slice(1, 2)];
    let full = scanned(&schema, &batches);
    let file = parquet_with(&batches, WriterProperties::default());
    let (scan, stats) = footer_then_scan(&schema, &batches, &file);
    assert_eq!(scan, ["f"]);
    assert_eq!(stats, full);
    // D50: absent is unknown.
    let none = WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let file = parquet_with(&batches, none);
    let (scan, stats) = footer_then_scan(&schema, &batches, &file);
    // parquet-rs writes size statistics all the same: NULL lists are known by their levels.
    assert!(scan.len() >= 5, "{scan:?}");
    assert_eq!(stats, full);
}

#[test]
fn foreign_statistics_are_understood_or_absent() {
    let json = r#"{"numRecords":"7","tightBounds":false,
        "minValues":{"a":"3","b":1e2,"c":{"d":"2020-01-01T01:00:00.123+01:00"},"s":"x","f":"NaN","n":1.50,"z":"2020-01-01T00:00:00.000Z","bad":[1],"dt":"2020-01-01"},
        "maxValues":{"a":3.0,"b":1.5,"c":{"d":"2020-01-01T00:00:00.123Z"},"s":null,"f":1e999,"n":"1.5","o":-0.0,"t":true},
        "nullCount":{"a":0,"c":{"d":2},"s":-1}}"#;
    let stats = FileStats::parse(json);
    let of = data_type;
    assert_eq!(stats.num_records(), Some(7));
    assert!(!stats.tight_bounds());
    assert_eq!(stats.min(&["a"], &of("long")), Some(Scalar::Long(3)));
    assert_eq!(stats.max(&["a"], &of("integer")), Some(Scalar::Integer(3)));
    assert_eq!(stats.min(&["b"], &of("short")), Some(Scalar::Short(100)));
    assert_eq!(stats.max(&["b"], &of("short")), None);
    let micros = 1_577_836_800_123_000;
    assert_eq!(
        stats.min(&["c", "d"], &of("timestamp")),
        Some(Scalar::Timestamp(micros))
    );
    assert_eq!(
        stats.max(&["c", "d"], &of("timestamp")),
        Some(Scalar::Timestamp(micros + 999))
    );
    assert_eq!(
        stats.min(&["s"], &of("string")),
        Some(Scalar::String("x".to_owned()))
    );
    assert_eq!(stats.max(&["s"], &of("string")), None);
    assert_eq!(stats.min(&["f"], &of("double")), None);
    assert_eq!(stats.max(&["f"], &of("double")), None);
    assert_eq!(
        stats.min(&["n"], &of("decimal(5,2)")),
        Some(Scalar::Decimal(150, 5, 2))
    );
    assert_eq!(
        stats.max(&["n"], &of("decimal(5,2)")),
        Some(Scalar::Decimal(150, 5, 2))
    );
    assert_eq!(
        stats.min(&["z"], &of("timestamp_ntz")),
        Some(Scalar::TimestampNtz(micros - 123_000))
    );
    assert_eq!(stats.min(&["dt"], &of("date")), Some(Scalar::Date(18_262)));
    match stats.max(&["o"], &of("double")) {
        Some(Scalar::Double(zero)) => assert!(zero.is_sign_positive()),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        stats.max(&["t"], &of("boolean")),
        Some(Scalar::Boolean(true))
    );
    for path in [&["bad"][..], &["c"], &["c", "x"], &["missing"], &[]] {
        assert_eq!(stats.min(path, &of("string")), None);
    }
    assert_eq!(stats.null_count(&["a"]), Some(0));
    assert_eq!(stats.null_count(&["c", "d"]), Some(2));
    assert_eq!(stats.null_count(&["s"]), None);
    for broken in [
        "",
        "{",
        "[]",
        "7",
        "null",
        r#"{"numRecords":1.5,"minValues":7}"#,
    ] {
        let stats = FileStats::parse(broken);
        assert_eq!(stats.num_records(), None);
        assert_eq!(stats.min(&["a"], &of("long")), None);
    }
    let deep = format!(
        "{{\"minValues\":{}1{}}}",
        "{\"a\":".repeat(100),
        "}".repeat(100)
    );
    assert_eq!(FileStats::parse(&deep).min(&["a"; 100], &of("long")), None);
}

/// Bounds hold for every value, NULL counts are right, from the rows and from the footer.
fn bounds_hold(
    kind: &str,
    values: ArrayRef,
    each: impl Fn(usize) -> Option<Scalar>,
) -> Result<(), TestCaseError> {
    let schema = table(&[("v", kind)]);
    let rows = batch(vec![("v", values)]);
    let half = rows.num_rows() / 2;
    let batches = [
        rows.slice(0, half),
        rows.slice(half, rows.num_rows() - half),
    ];
    let full = scanned(&schema, &batches);
    let file = parquet_with(&batches, WriterProperties::default());
    let (_, from_footer) = footer_then_scan(&schema, &batches, &file);
    serde_json::from_str::<serde_json::Value>(&full).unwrap();
    for text in [&full, &from_footer] {
        let stats = FileStats::parse(text);
        let ty = data_type(kind);
        let (min, max) = (stats.min(&["v"], &ty), stats.max(&["v"], &ty));
        let mut nulls = 0;
        for index in 0..rows.num_rows() {
            let Some(value) = each(index) else {
                nulls += 1;
                continue;
            };
            for (bound, wrong) in [
                (&min, std::cmp::Ordering::Less),
                (&max, std::cmp::Ordering::Greater),
            ] {
                if let Some(bound) = bound {
                    let order = bound::order(&value, bound);
                    prop_assert!(
                        order.is_some_and(|o| o != wrong),
                        "{value:?} {bound:?} in {text}"
                    );
                }
            }
        }
        prop_assert_eq!(stats.null_count(&["v"]), Some(nulls));
        prop_assert_eq!(stats.num_records(), Some(rows.num_rows() as u64));
    }
    Ok(())
}

fn many<T: std::fmt::Debug>(
    one: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<Option<T>>> {
    prop::collection::vec(prop::option::of(one), 1..12)
}

fn odd_f64() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(0.0),
        Just(-0.0),
        Just(f64::MIN_POSITIVE),
        Just(f64::INFINITY),
        Just(-f64::INFINITY),
        Just(f64::NAN),
        Just(-f64::NAN),
    ]
}

fn odd_text() -> impl Strategy<Value = String> {
    let c = prop_oneof![
        Just('a'),
        Just('\u{7e}'),
        Just('\u{7f}'),
        Just('é'),
        Just('\u{ffff}'),
        Just('🦀'),
        Just('\u{10ffff}'),
        any::<char>(),
    ];
    prop::collection::vec(c, 0..80).prop_map(|c| c.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bounds_of_doubles(values in many(odd_f64())) {
        let array = Arc::new(Float64Array::from(values.clone()));
        bounds_hold("double", array, |i| values[i].map(Scalar::Double))?;
    }

    #[test]
    fn bounds_of_floats(values in many(odd_f64())) {
        let values: Vec<Option<f32>> = values.iter().map(|v| v.map(|v| v as f32)).collect();
        let array = Arc::new(Float32Array::from(values.clone()));
        bounds_hold("float", array, |i| values[i].map(Scalar::Float))?;
    }

    #[test]
    fn bounds_of_strings(values in many(odd_text())) {
        let array = Arc::new(StringArray::from(values.clone()));
        bounds_hold("string", array, |i| values[i].clone().map(Scalar::String))?;
    }

    #[test]
    fn bounds_of_timestamps(values in many(prop_oneof![any::<i64>(), -62_135_596_800_000_000..253_402_300_800_000_000_i64, -2000..2000_i64])) {
        let array = TimestampMicrosecondArray::from(values.clone());
        bounds_hold("timestamp_ntz", Arc::new(array.clone()), |i| values[i].map(Scalar::TimestampNtz))?;
        bounds_hold("timestamp", Arc::new(array.with_timezone("UTC")), |i| values[i].map(Scalar::Timestamp))?;
    }

    #[test]
    fn bounds_of_dates(values in many(prop_oneof![any::<i32>(), -800_000..3_000_000_i32])) {
        let array = Arc::new(Date32Array::from(values.clone()));
        bounds_hold("date", array, |i| values[i].map(Scalar::Date))?;
    }

    #[test]
    fn bounds_of_decimals(values in many(any::<i128>()), wide in any::<bool>(), scale in 0_i8..9) {
        let precision = if wide { 38 } else { 9 };
        let limit = 10_i128.pow(precision);
        let values: Vec<Option<i128>> = values.iter().map(|v| v.map(|v| v % limit)).collect();
        let precision = u8::try_from(precision).unwrap();
        let array = Decimal128Array::from(values.clone()).with_precision_and_scale(precision, scale).unwrap();
        let kind = format!("decimal({precision},{scale})");
        bounds_hold(&kind, Arc::new(array), |i| values[i].map(|v| Scalar::Decimal(v, precision, scale)))?;
    }

    #[test]
    fn any_text_parses_without_panic(text in "[{}\\[\\]\":,a-z0-9.eE+-]{0,60}") {
        let stats = FileStats::parse(&text);
        let _ = stats.min(&["a"], &data_type("decimal(10,2)"));
        let wrapped = format!("{{\"minValues\":{{\"a\":\"{text}\"}}}}");
        let stats = FileStats::parse(&wrapped);
        for kind in ["long", "double", "timestamp", "date", "decimal(38,38)", "string"] {
            let _ = stats.min(&["a"], &data_type(kind));
        }
    }
}

#[test]
fn physical_names_are_used() {
    let json = r#"{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,
        "metadata":{"delta.columnMapping.physicalName":"col-1","delta.columnMapping.id":1}}]}"#;
    let schema = StructType::from_json(json).unwrap();
    let rows = batch(vec![("a", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]);
    assert!(scanned(&schema, &[rows]).contains("\"minValues\":{\"col-1\":1}"));
    assert_eq!(MappingMode::default(), MappingMode::None);
}

fn bounds_of(kind: &str, min: &str, max: &str) -> (Option<Scalar>, Option<Scalar>) {
    let json = format!("{{\"minValues\":{{\"v\":{min}}},\"maxValues\":{{\"v\":{max}}}}}");
    let stats = FileStats::parse(&json);
    let ty = data_type(kind);
    (stats.min(&["v"], &ty), stats.max(&["v"], &ty))
}

#[test]
fn decimals_that_went_through_a_double_are_widened() {
    // What delta-rs 1.6 writes for 9007199254740993.01 and .03: both bounds are above the values.
    let unscaled = |v: Option<Scalar>| match v {
        Some(Scalar::Decimal(v, ..)) => v,
        other => panic!("{other:?}"),
    };
    let (min, max) = bounds_of("decimal(18,2)", "9007199254740994.0", "9007199254740994.0");
    assert!(unscaled(min) <= 900_719_925_474_099_301);
    assert!(unscaled(max) >= 900_719_925_474_099_403);
    let (min, max) = bounds_of("decimal(38,19)", "0.12345678901234568", "1e16");
    assert!(unscaled(min) <= 1_234_567_890_123_456_789);
    assert!(unscaled(max) >= 99_999_999_999_999_999_999_999_999_999_999_999);
    // What a double can tell apart, and what has more digits than one, is exact.
    let exact = bounds_of("decimal(18,2)", "\"1234567890123.45\"", "1234567890123.45");
    assert_eq!(exact.0, Some(Scalar::Decimal(123_456_789_012_345, 18, 2)));
    assert_eq!(exact.0, exact.1);
    let long = "9999999999999999.9999999999999999";
    let (min, max) = bounds_of("decimal(32,16)", long, long);
    assert_eq!(
        unscaled(min.clone()),
        99_999_999_999_999_999_999_999_999_999_999
    );
    assert_eq!(min, max);
    // Never beyond what the type holds.
    let (min, max) = bounds_of("decimal(16,0)", "-9999999999999999", "9999999999999999");
    assert_eq!(unscaled(min), -9_999_999_999_999_999);
    assert_eq!(unscaled(max), 9_999_999_999_999_999);
}

#[test]
fn integers_that_went_through_a_double_are_believed_while_doubles_count() {
    let (min, max) = bounds_of("long", "9007199254740992.0", "9.007199254740994e15");
    assert_eq!(min, Some(Scalar::Long(1 << 53)));
    assert_eq!(max, None);
    let (min, _) = bounds_of("long", "9223372036854775807", "0");
    assert_eq!(min, Some(Scalar::Long(i64::MAX)));
}

#[test]
fn a_double_may_have_been_a_float() {
    // 0.7 as a float is less than 0.7, 0.1 is more.
    let (min, max) = bounds_of("double", "0.7", "0.1");
    assert_eq!(min, Some(Scalar::Double(f64::from(0.7_f32))));
    assert_eq!(max, Some(Scalar::Double(f64::from(0.1_f32))));
    let (min, max) = bounds_of("double", "0.1", "0.7");
    assert_eq!(
        (min, max),
        (Some(Scalar::Double(0.1)), Some(Scalar::Double(0.7)))
    );
    let (min, max) = bounds_of("double", "-1e300", "1e300");
    assert_eq!(
        (min, max),
        (Some(Scalar::Double(-1e300)), Some(Scalar::Double(1e300)))
    );
}

#[test]
fn the_tie_breaker_of_old_spark_is_below_four_byte_characters() {
    let a31 = "a".repeat(31);
    let max = |text: &str| match bounds_of("string", "0", &format!("\"{text}\"")).1 {
        Some(Scalar::String(max)) => Some(max),
        None => None,
        other => panic!("{other:?}"),
    };
    // Cut behind 32 characters, before and inside of a 🦀.
    for (log, value) in [
        (format!("{a31}a\u{fffd}"), format!("{a31}a🦀")),
        (format!("{a31}?\u{fffd}"), format!("{a31}🦀b")),
        (
            format!("{a31}a\u{fffd}"),
            format!("{a31}a\u{10ffff}\u{10ffff}b"),
        ),
    ] {
        assert!(log < value, "or there was no fault");
        assert!(max(&log).unwrap() > value, "{log}");
    }
    assert_eq!(max("ab\u{fffd}").as_deref(), Some("ac"));
    assert_eq!(max("a\u{d7ff}\u{fffd}").as_deref(), Some("a\u{e000}"));
    assert_eq!(max("a\u{10ffff}\u{fffd}").as_deref(), Some("b"));
    assert_eq!(max("\u{10ffff}\u{fffd}"), None);
    assert_eq!(max("\u{fffd}"), None);
    assert_eq!(max("ab?").as_deref(), Some("ab?"));
}

#[test]
fn a_moment_without_a_zone_may_be_of_any() {
    // D59
    let hours = |h: i64| h * 3_600_000_000;
    let (min, max) = bounds_of(
        "timestamp",
        "\"1970-01-02 00:00:00\"",
        "\"1970-01-02T00:00\"",
    );
    assert_eq!(min, Some(Scalar::Timestamp(hours(24 - 18))));
    assert_eq!(max, Some(Scalar::Timestamp(hours(24 + 18) + 999)));
    let (min, max) = bounds_of(
        "timestamp_ntz",
        "\"1970-01-02\"",
        "\"1970-01-02T00:00:00+01:00\"",
    );
    assert_eq!(min, Some(Scalar::TimestampNtz(hours(24))));
    assert_eq!(max, None);
    let (min, _) = bounds_of("timestamp", "\"+10000-01-01T00:00:00.000Z\"", "0");
    assert_eq!(min, Some(Scalar::Timestamp(253_402_300_800_000_000)));
}

#[test]
fn a_name_that_stands_twice_says_nothing() {
    let json = r#"{"numRecords":2,"minValues":{"a":1,"b":{"c":1},"\u0061":5,"d":1},
        "nullCount":{"b":{"c":0,"c":2},"d":0}}"#;
    let stats = FileStats::parse(json);
    assert_eq!(stats.min(&["a"], &data_type("long")), None);
    assert_eq!(
        stats.min(&["b", "c"], &data_type("long")),
        Some(Scalar::Long(1))
    );
    assert_eq!(stats.null_count(&["b", "c"]), None);
    assert_eq!(stats.null_count(&["d"]), Some(0));
    let twice = FileStats::parse(r#"{"minValues":{"d":1},"minValues":{"d":2},"numRecords":2}"#);
    assert_eq!(twice.min(&["d"], &data_type("long")), None);
}

#[test]
fn a_footer_that_breaks_its_type_is_not_believed() {
    // Three digits fit nowhere in decimal(2,1): the bound would be no value of the column.
    let decimals = |precision| {
        Decimal128Array::from(vec![Some(123), None])
            .with_precision_and_scale(precision, 1)
            .unwrap()
    };
    let file = parquet_with(
        &[batch(vec![("n", Arc::new(decimals(3)) as ArrayRef)])],
        WriterProperties::default(),
    );
    let metadata = inspect(&file).unwrap().metadata;
    let made = footer_stats(
        &metadata,
        &table(&[("n", "decimal(2,1)")]),
        &[],
        &config(&[]),
    );
    assert_eq!(made.scan, ["n"]);
    let made = footer_stats(
        &metadata,
        &table(&[("n", "decimal(3,1)")]),
        &[],
        &config(&[]),
    );
    assert!(made.scan.is_empty());
}
