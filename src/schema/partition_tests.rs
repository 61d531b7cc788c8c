use proptest::prelude::*;

use super::*;

fn of(primitive: Primitive) -> DataType {
    DataType::Primitive(primitive)
}

fn round(text: &str, primitive: Primitive) -> String {
    format_value(&parse_value(Some(text), &of(primitive)).unwrap())
        .unwrap()
        .unwrap()
}

#[test]
fn values_keep_their_text() {
    assert_eq!(round("-0.10", Primitive::Decimal(10, 2)), "-0.10");
    assert_eq!(round("1.5", Primitive::Decimal(10, 2)), "1.50");
    assert_eq!(round("0", Primitive::Decimal(10, 2)), "0.00");
    assert_eq!(round("1969-12-31", Primitive::Date), "1969-12-31");
    assert_eq!(round("true", Primitive::Boolean), "true");
    assert_eq!(
        round("2020-01-01 00:00:00", Primitive::Timestamp),
        "2020-01-01T00:00:00.000000Z"
    );
    assert_eq!(
        round("2020-01-01T01:00:00+01:00", Primitive::Timestamp),
        "2020-01-01T00:00:00.000000Z"
    );
    assert_eq!(
        round("2020-01-01 00:00:00.5", Primitive::TimestampNtz),
        "2020-01-01 00:00:00.500000"
    );
}

#[test]
fn a_timestamp_before_1970_keeps_its_second() {
    // D60
    assert_eq!(
        format_value(&Scalar::Timestamp(-2_342_342_342))
            .unwrap()
            .unwrap(),
        "1969-12-31T23:20:57.657658Z"
    );
}

#[test]
fn floats_are_written_as_java_does() {
    for (value, text) in [
        (1.0, "1.0"),
        (1e10, "1.0E10"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (1_234_567.0, "1234567.0"),
        (12_345_678.0, "1.2345678E7"),
        (-0.0, "-0.0"),
        (f64::INFINITY, "Infinity"),
    ] {
        assert_eq!(format_value(&Scalar::Double(value)).unwrap().unwrap(), text);
        assert_eq!(
            parse_value(Some(text), &of(Primitive::Double)).unwrap(),
            Scalar::Double(value)
        );
    }
    assert_eq!(
        format_value(&Scalar::Float(f32::NAN)).unwrap().unwrap(),
        "NaN"
    );
    assert_eq!(format_value(&Scalar::Float(0.1)).unwrap().unwrap(), "0.1");
}

#[test]
fn odd_values_become_one_path_segment_and_come_back() {
    // D55, D56
    for value in [
        "a/b", "50%", "a b", "x=y", "#", "?", "é", "\"q\"", "it's", "a:b", "..", "\u{1}",
    ] {
        let dir = dir_name("p", Some(value));
        assert!(!dir.contains('/'), "{dir}");
        assert_eq!(
            parse_dir(&dir),
            Some(("p".to_owned(), Some(value.to_owned())))
        );
        let path = encode_path(&format!("{dir}/f.parquet"));
        assert_eq!(decode_path(&path), Some(format!("{dir}/f.parquet")));
    }
    assert_eq!(encode_path(&dir_name("p", Some("a:b"))), "p=a%253Ab");
    assert_eq!(dir_name("p", None), "p=__HIVE_DEFAULT_PARTITION__");
    assert_eq!(dir_name("p", Some("")), "p=__HIVE_DEFAULT_PARTITION__");
}

#[test]
fn a_decimal_that_does_not_fit_is_refused() {
    assert_eq!(parse_decimal("100", 3, 1), None);
    assert_eq!(parse_decimal("0.05", 3, 1), None);
    assert_eq!(parse_decimal("1E2", 5, 1), Some(1000));
    assert_eq!(
        parse_decimal("99999999999999999999999999999999999999", 38, 0).map(|v| v > 0),
        Some(true)
    );
}

fn scalar_of(primitive: Primitive) -> BoxedStrategy<Scalar> {
    match primitive {
        Primitive::String => ".{0,40}".prop_map(Scalar::String).boxed(),
        Primitive::Long => any::<i64>().prop_map(Scalar::Long).boxed(),
        Primitive::Integer => any::<i32>().prop_map(Scalar::Integer).boxed(),
        Primitive::Short => any::<i16>().prop_map(Scalar::Short).boxed(),
        Primitive::Byte => any::<i8>().prop_map(Scalar::Byte).boxed(),
        Primitive::Float => any::<u32>()
            .prop_map(|bits| Scalar::Float(f32::from_bits(bits)))
            .boxed(),
        Primitive::Double => any::<u64>()
            .prop_map(|bits| Scalar::Double(f64::from_bits(bits)))
            .boxed(),
        Primitive::Decimal(p, s) => any::<i128>()
            .prop_map(move |v| Scalar::Decimal(v % 10_i128.pow(u32::from(p)), p, s))
            .boxed(),
        Primitive::Boolean => any::<bool>().prop_map(Scalar::Boolean).boxed(),
        Primitive::Binary => prop_oneof![
            ".{0,20}".prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 0..8),
            "(\\\\u00[0-9a-f]{2}){0,3}.?".prop_map(String::into_bytes),
        ]
        .prop_map(Scalar::Binary)
        .boxed(),
        Primitive::Date => any::<i32>().prop_map(Scalar::Date).boxed(),
        Primitive::Timestamp => any::<i64>().prop_map(Scalar::Timestamp).boxed(),
        Primitive::TimestampNtz => any::<i64>().prop_map(Scalar::TimestampNtz).boxed(),
        other => panic!("{other:?}"),
    }
}

fn every_type() -> impl Strategy<Value = Primitive> {
    prop_oneof![
        11 => prop::sample::select(vec![
            Primitive::String,
            Primitive::Long,
            Primitive::Integer,
            Primitive::Short,
            Primitive::Byte,
            Primitive::Float,
            Primitive::Double,
            Primitive::Boolean,
            Primitive::Binary,
            Primitive::Date,
            Primitive::Timestamp,
            Primitive::TimestampNtz,
        ]),
        3 => (1_u8..=38).prop_flat_map(|p| (Just(p), 0..=i8::try_from(p).unwrap()))
            .prop_map(|(p, s)| Primitive::Decimal(p, s)),
    ]
}

fn typed_value() -> impl Strategy<Value = (Primitive, Scalar)> {
    every_type().prop_flat_map(|ty| (Just(ty.clone()), scalar_of(ty)))
}

/// To the bit, NaN with NaN.
fn identical(a: &Scalar, b: &Scalar) -> bool {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => {
            a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
        }
        (Scalar::Double(a), Scalar::Double(b)) => {
            a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
        }
        (a, b) => a == b,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_value_comes_back_from_its_text((ty, value) in typed_value()) {
        let text = match format_value(&value) {
            Ok(text) => text,
            Err(SchemaError::NotPartitionable(_)) => {
                prop_assert_eq!(&ty, &Primitive::Binary);
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        let back = parse_value(text.as_deref(), &of(ty)).unwrap();
        match (&value, text.as_deref()) {
            // The protocol can't tell it from NULL.
            (Scalar::String(v), None) => prop_assert!(v.is_empty() && back == Scalar::Null),
            (Scalar::Binary(v), None) => prop_assert!(v.is_empty() && back == Scalar::Null),
            (_, text) => {
                prop_assert!(identical(&back, &value), "{value:?} {text:?} {back:?}");
                prop_assert!(text.is_some_and(|t| !t.is_empty()));
            }
        }
    }

    #[test]
    fn every_value_comes_back_from_its_directory((_, value) in typed_value(), column in ".{1,20}") {
        let Ok(text) = format_value(&value) else { return Ok(()) };
        let dir = dir_name(&column, text.as_deref());
        prop_assert!(!dir.contains(['/', '\0']) && dir != "." && dir != "..");
        prop_assert_eq!(parse_dir(&dir), Some((column, text)));
    }

    #[test]
    fn directories_and_paths_of_any_text_come_back(column in ".{1,12}", value in ".{1,24}", file in "[^/]{1,24}") {
        let dir = dir_name(&column, Some(&value));
        prop_assert_eq!(parse_dir(&dir), Some((column, Some(value))));
        let path = format!("{dir}/{file}");
        let add_path = encode_path(&path);
        prop_assert!(add_path.is_ascii() && !add_path.contains([' ', '#', '?', '"', '\\']));
        // Exactly once: what is decoded may hold escapes of its own.
        prop_assert_eq!(decode_path(&add_path), Some(path));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}", ty in every_type()) {
        let _ = parse_value(Some(&text), &of(ty));
        let _ = (parse_dir(&text), unescape_dir(&text), decode_path(&text));
    }

    /// A text that is accepted is written in one form, which means the same.
    #[test]
    fn numbers_and_times_have_one_form(text in "[-+]?[0-9]{0,5}[-.eE+:TZ 0-9]{0,24}", ty in every_type()) {
        if ty == Primitive::String || ty == Primitive::Binary {
            return Ok(());
        }
        if let Ok(value) = parse_value(Some(&text), &of(ty.clone())) {
            let again = format_value(&value).unwrap();
            let back = parse_value(again.as_deref(), &of(ty)).unwrap();
            prop_assert!(identical(&back, &value), "{text} {again:?}");
        }
    }
}

#[test]
fn days_and_moments_beyond_four_digit_years_keep_their_text() {
    for (value, text) in [
        (Scalar::Date(i32::MAX), "+5881580-07-11"),
        (Scalar::Date(-719_529), "-0001-12-31"),
        (
            Scalar::Timestamp(i64::MIN),
            "-290308-12-21T19:59:05.224192Z",
        ),
        (
            Scalar::TimestampNtz(i64::MAX),
            "+294247-01-10 04:00:54.775807",
        ),
    ] {
        assert_eq!(format_value(&value).unwrap().unwrap(), text);
    }
    assert_eq!(
        round("+12020-01-01T01:00:00+01:00", Primitive::Timestamp),
        "+12020-01-01T00:00:00.000000Z"
    );
}

#[test]
fn the_name_of_null_is_a_value_too() {
    let dir = dir_name("p", Some(HIVE_DEFAULT));
    assert_ne!(dir, dir_name("p", None));
    assert_eq!(
        parse_dir(&dir),
        Some(("p".to_owned(), Some(HIVE_DEFAULT.to_owned())))
    );
    assert_eq!(
        parse_dir("p=__HIVE_DEFAULT_PARTITION__"),
        Some(("p".to_owned(), None))
    );
    assert_eq!(parse_dir("p="), Some(("p".to_owned(), None)));
    assert_eq!(parse_dir("=x"), None);
    assert_eq!(parse_dir("p"), None);
    // In the log it is text like any other.
    assert_eq!(
        parse_value(Some(HIVE_DEFAULT), &of(Primitive::String)).unwrap(),
        Scalar::String(HIVE_DEFAULT.to_owned())
    );
}

#[test]
fn a_percent_that_escapes_nothing_is_one() {
    for (dir, value) in [("p=50%", "50%"), ("p=%zz", "%zz"), ("p=%4", "%4")] {
        assert_eq!(
            parse_dir(dir),
            Some(("p".to_owned(), Some(value.to_owned())))
        );
    }
    assert_eq!(parse_dir("p=%FF"), None);
}

#[test]
fn binary_is_read_as_spark_and_as_delta_rs_write_it() {
    let read = |text: &str| match parse_value(Some(text), &of(Primitive::Binary)).unwrap() {
        Scalar::Binary(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!(read("a\u{1}é"), "a\u{1}é".as_bytes());
    // delta-rs 1.6: every byte is escaped.
    assert_eq!(read("\\u0061\\u00FF\\u0000"), b"a\xff\0");
    // Text that has an escape in it is text.
    for text in [
        "x\\u0061", "\\u0061x", "\\u1234", "\\u+041", "\\u00+1", "\\u",
    ] {
        assert_eq!(read(text), text.as_bytes(), "{text}");
    }
    for bytes in [&b"\xff\xfe"[..], b"\\u0061", b"\\u0061\\u0062"] {
        assert!(matches!(
            format_value(&Scalar::Binary(bytes.to_vec())),
            Err(SchemaError::NotPartitionable(_))
        ));
    }
}

#[test]
fn java_never_has_one_digit() {
    for (value, text) in [
        (f64::from_bits(1), "4.9E-324"),
        (f64::from_bits(2), "9.9E-324"),
        (f64::from_bits(4), "2.0E-323"),
        (2e23, "2.0E23"),
        (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
        (f64::MAX, "1.7976931348623157E308"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (9.99e-4, "9.99E-4"),
        (100.0, "100.0"),
        (0.0, "0.0"),
    ] {
        assert_eq!(format_value(&Scalar::Double(value)).unwrap().unwrap(), text);
    }
    let float = |v| format_value(&Scalar::Float(v)).unwrap().unwrap();
    assert_eq!(float(f32::from_bits(1)), "1.4E-45");
    assert_eq!(float(f32::MAX), "3.4028235E38");
    assert_eq!(float(1.0e10), "1.0E10");
}

#[test]
fn decimals_may_have_zeros_without_end() {
    let text = format!("0.5{}", "0".repeat(60));
    assert_eq!(parse_decimal(&text, 3, 1), Some(5));
    assert_eq!(parse_decimal("1e-2147483648", 38, 38), None);
    assert_eq!(parse_decimal("0e2147483647", 38, 38), Some(0));
}

/// Each line is `d` or `f`, the bits as an unsigned number, and `Double.toString` or `Float.toString` of it.
#[test]
#[ignore = "needs a file that Java wrote: JAVA_FLOATS"]
fn java_says_the_same() {
    let path = std::env::var("JAVA_FLOATS").unwrap();
    let (mut same, mut other) = (0, 0);
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let [kind, bits, text] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let (value, ty) = match kind {
            "d" => (
                Scalar::Double(f64::from_bits(bits.parse().unwrap())),
                Primitive::Double,
            ),
            _ => (
                Scalar::Float(f32::from_bits(bits.parse().unwrap())),
                Primitive::Float,
            ),
        };
        assert!(
            identical(&parse_value(Some(text), &of(ty)).unwrap(), &value),
            "{line}"
        );
        let ours = format_value(&value).unwrap().unwrap();
        if ours == text {
            same += 1;
        } else {
            // Before Java 19 some texts were not the shortest or nearest ones (JDK-4511638).
            assert!(ours.len() <= text.len(), "{line} ours {ours}");
            other += 1;
            if other < 10 {
                println!("{line} ours {ours}");
            }
        }
    }
    println!("{same} the same, {other} not");
    assert!(other * 20 < same);
}

#[test]
fn spellings_of_one_value_are_one_partition() {
    let same = |kind: Primitive, a: &str, b: &str| {
        let kind = DataType::Primitive(kind);
        identity(Some(a), &kind).unwrap() == identity(Some(b), &kind).unwrap()
    };
    assert!(same(Primitive::Long, "+7", "07"));
    assert!(same(Primitive::Double, "1e10", "1.0E10"));
    assert!(same(Primitive::Double, "NaN", "NaN"));
    assert!(same(Primitive::Decimal(10, 2), "1.5", "1.50"));
    assert!(same(Primitive::Boolean, "TRUE", "true"));
    assert!(same(Primitive::Binary, "A", r"\u0041"));
    let timestamp = Primitive::Timestamp;
    assert!(same(
        timestamp.clone(),
        "2024-01-01T01:00:00+01:00",
        "2024-01-01T00:00:00.000000Z"
    ));
    assert!(same(
        timestamp.clone(),
        "2024-01-01 00:00:00",
        "2024-01-01 00:00:00.000"
    ));
    // Which one it is depends on the reader.
    assert!(!same(
        timestamp,
        "2024-01-01 00:00:00",
        "2024-01-01T00:00:00Z"
    ));
    // Equal to a comparison, but not the same value.
    assert!(!same(Primitive::Double, "0.0", "-0.0"));
    assert!(!same(Primitive::String, "a", "A"));
    let text = DataType::Primitive(Primitive::String);
    assert_eq!(identity(None, &text).unwrap(), None);
    assert_eq!(identity(Some(""), &text).unwrap(), None);
    assert!(identity(Some("x"), &DataType::Primitive(Primitive::Long)).is_err());
}
