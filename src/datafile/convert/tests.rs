use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType as Arrow, Decimal128Type, Field, Fields, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, i256,
};
use proptest::prelude::*;

use super::*;
use crate::datafile::testing::data_type;

fn place() -> Place<'static> {
    Place {
        path: Path::top("c"),
        rows: Rows::From(10),
    }
}

fn exact(array: impl Array + 'static, to: &str) -> Result<ArrayRef, DataFileError> {
    let array: ArrayRef = Arc::new(array);
    convert(
        &array,
        &data_type(to),
        MappingMode::None,
        Rules::Exact,
        &place(),
    )
}

fn stored(array: impl Array + 'static, to: &str) -> Result<ArrayRef, DataFileError> {
    let array: ArrayRef = Arc::new(array);
    convert(
        &array,
        &data_type(to),
        MappingMode::None,
        Rules::Stored,
        &place(),
    )
}

/// Row and loss of a refused value.
fn refused(result: Result<ArrayRef, DataFileError>) -> (u64, Loss) {
    match result {
        Err(DataFileError::Value {
            row, loss, column, ..
        }) => {
            assert!(column.starts_with('c'));
            (row, loss)
        }
        other => panic!("{other:?}"),
    }
}

fn no_way(result: Result<ArrayRef, DataFileError>) {
    assert!(
        matches!(result, Err(DataFileError::Type { .. })),
        "{result:?}"
    );
}

#[test]
fn integers_fit_or_are_named() {
    let made = exact(Int64Array::from(vec![Some(-128), None, Some(127)]), "byte").unwrap();
    assert_eq!(made.as_primitive::<Int8Type>().value(2), 127);
    assert!(made.is_null(1));
    assert_eq!(
        refused(exact(Int64Array::from(vec![1, 128]), "byte")),
        (11, Loss::Range)
    );
    assert_eq!(
        refused(exact(UInt64Array::from(vec![u64::MAX]), "long")),
        (10, Loss::Range)
    );
    exact(UInt32Array::from(vec![u32::MAX]), "long").unwrap();
    exact(UInt64Array::from(vec![u64::MAX]), "decimal(20,0)").unwrap();
    assert_eq!(
        refused(exact(Int64Array::from(vec![(1 << 53) + 1]), "double")),
        (10, Loss::Rounded)
    );
    assert_eq!(
        refused(exact(Int32Array::from(vec![(1 << 24) + 1]), "float")),
        (10, Loss::Rounded)
    );
    exact(Int64Array::from(vec![i64::MIN]), "double").unwrap();
    assert_eq!(
        refused(exact(Int64Array::from(vec![i64::MAX]), "double")),
        (10, Loss::Rounded)
    );
    no_way(exact(Float64Array::from(vec![1.0]), "long"));
    no_way(exact(StringArray::from(vec!["1"]), "long"));
    no_way(exact(BooleanArray::from(vec![true]), "long"));
    no_way(exact(Int64Array::from(vec![1]), "timestamp"));
    no_way(exact(Int64Array::from(vec![1]), "string"));
}

#[test]
fn an_error_says_everything() {
    let error = exact(Int64Array::from(vec![5, 300]), "byte").unwrap_err();
    assert_eq!(
        error.to_string(),
        "column `c`, row 11: 300 (Int64) does not become a byte without loss: out of range"
    );
    let error = exact(StringArray::from(vec!["x"]), "double").unwrap_err();
    assert_eq!(
        error.to_string(),
        "column `c` has the type Utf8 in the file, but double in the table"
    );
}

#[test]
fn floats_survive_or_are_named() {
    let made = exact(
        Float64Array::from(vec![0.5, -0.0, f64::INFINITY, f64::NAN]),
        "float",
    )
    .unwrap();
    let made = made.as_primitive::<Float32Type>();
    assert!(made.value(1).is_sign_negative() && made.value(3).is_nan());
    assert_eq!(
        refused(exact(Float64Array::from(vec![0.1]), "float")),
        (10, Loss::Rounded)
    );
    assert_eq!(
        refused(exact(Float64Array::from(vec![1e300]), "float")),
        (10, Loss::Rounded)
    );
}

#[test]
fn decimals_keep_their_digits() {
    // D76
    let wide = |v: Vec<i128>, p, s| {
        Decimal128Array::from(v)
            .with_precision_and_scale(p, s)
            .unwrap()
    };
    let made = exact(wide(vec![12_300], 10, 4), "decimal(10,2)").unwrap();
    assert_eq!(made.as_primitive::<Decimal128Type>().value(0), 123);
    assert_eq!(
        refused(exact(wide(vec![12_345], 10, 4), "decimal(10,2)")),
        (10, Loss::Digits)
    );
    assert_eq!(
        refused(exact(wide(vec![100_000], 10, 2), "decimal(5,2)")),
        (10, Loss::Range)
    );
    assert_eq!(
        refused(exact(wide(vec![150], 10, 2), "long")),
        (10, Loss::Digits)
    );
    exact(wide(vec![100], 10, 2), "long").unwrap();
    let huge = Decimal256Array::from(vec![i256::from_i128(i128::MAX)])
        .with_precision_and_scale(39, 2)
        .unwrap();
    assert_eq!(refused(exact(huge, "decimal(38,2)")), (10, Loss::Range));
    let fine = Decimal256Array::from(vec![i256::from_i128(-500)])
        .with_precision_and_scale(50, 2)
        .unwrap();
    let made = exact(fine, "decimal(3,0)").unwrap();
    assert_eq!(made.as_primitive::<Decimal128Type>().value(0), -5);
    let made = exact(Int32Array::from(vec![-7]), "decimal(3,2)").unwrap();
    assert_eq!(made.as_primitive::<Decimal128Type>().value(0), -700);
    assert_eq!(
        refused(exact(Int32Array::from(vec![10]), "decimal(3,2)")),
        (10, Loss::Range)
    );
    no_way(exact(Float64Array::from(vec![1.0]), "decimal(3,2)"));
}

#[test]
fn timestamps_keep_the_instant() {
    // D67
    let rome: Arc<str> = "Europe/Rome".into();
    let cases: [(ArrayRef, i64); 4] = [
        (
            Arc::new(TimestampSecondArray::from(vec![-7]).with_timezone("+02:00")),
            -7_000_000,
        ),
        (
            Arc::new(TimestampMillisecondArray::from(vec![-7]).with_timezone(Arc::clone(&rome))),
            -7_000,
        ),
        (
            Arc::new(TimestampMicrosecondArray::from(vec![-7]).with_timezone(rome)),
            -7,
        ),
        (
            Arc::new(TimestampNanosecondArray::from(vec![-7_000]).with_timezone("UTC")),
            -7,
        ),
    ];
    for (array, micros) in cases {
        let made = convert(
            &array,
            &data_type("timestamp"),
            MappingMode::None,
            Rules::Exact,
            &place(),
        );
        let made = made.unwrap();
        assert_eq!(
            made.data_type(),
            &Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
        );
        assert_eq!(
            made.as_primitive::<TimestampMicrosecondType>().value(0),
            micros
        );
        let error = convert(
            &array,
            &data_type("timestamp_ntz"),
            MappingMode::None,
            Rules::Exact,
            &place(),
        );
        assert!(matches!(error, Err(DataFileError::Zoned { .. })));
    }
    let naive = || TimestampMillisecondArray::from(vec![5]);
    let error = exact(naive(), "timestamp").unwrap_err();
    assert!(matches!(error, DataFileError::NoZone { .. }));
    let made = exact(naive(), "timestamp_ntz").unwrap();
    assert_eq!(
        made.as_primitive::<TimestampMicrosecondType>().value(0),
        5000
    );
    assert_eq!(
        refused(exact(
            TimestampNanosecondArray::from(vec![1000, 1001]),
            "timestamp_ntz"
        )),
        (11, Loss::Nanoseconds)
    );
    assert_eq!(
        refused(exact(
            TimestampSecondArray::from(vec![i64::MAX]),
            "timestamp_ntz"
        )),
        (10, Loss::Range)
    );
    let made = exact(Date32Array::from(vec![1]), "timestamp_ntz").unwrap();
    assert_eq!(
        made.as_primitive::<TimestampMicrosecondType>().value(0),
        86_400_000_000
    );
    assert_eq!(
        refused(exact(Date32Array::from(vec![i32::MAX]), "timestamp_ntz")),
        (10, Loss::Range)
    );
    no_way(exact(Date32Array::from(vec![1]), "timestamp"));
    no_way(exact(naive(), "date"));
    // What is stored already is read as it was meant.
    let made = stored(TimestampNanosecondArray::from(vec![-1]), "timestamp").unwrap();
    assert_eq!(made.as_primitive::<TimestampMicrosecondType>().value(0), -1);
}

#[test]
fn dates_texts_and_bytes() {
    let day = 86_400_000;
    let made = exact(Date64Array::from(vec![-day]), "date").unwrap();
    assert_eq!(
        made.as_primitive::<arrow::datatypes::Date32Type>().value(0),
        -1
    );
    assert_eq!(
        refused(exact(Date64Array::from(vec![day + 1]), "date")),
        (10, Loss::TimeOfDay)
    );
    for array in [
        Arc::new(LargeStringArray::from(vec![Some("é"), None])) as ArrayRef,
        Arc::new(StringViewArray::from(vec![Some("é"), None])),
        Arc::new(BinaryArray::from_opt_vec(vec![Some("é".as_bytes()), None])),
        Arc::new(DictionaryArray::<Int8Type>::from_iter([Some("é"), None])),
    ] {
        for to in ["string", "binary"] {
            let made = convert(
                &array,
                &data_type(to),
                MappingMode::None,
                Rules::Exact,
                &place(),
            );
            let made = cast(&made.unwrap(), &Arrow::Utf8).unwrap();
            assert_eq!(made.as_ref(), &StringArray::from(vec![Some("é"), None]));
        }
    }
    let bytes = BinaryArray::from_vec(vec![b"ok", b"\xff"]);
    assert_eq!(refused(exact(bytes, "string")), (11, Loss::Utf8));
    assert_eq!(
        refused(exact(Int32Array::from(vec![None, Some(1)]), "void")),
        (11, Loss::NotNull)
    );
    assert_eq!(
        exact(NullArray::new(3), "decimal(3,1)")
            .unwrap()
            .null_count(),
        3
    );
}

const LIST: &str = r#"{"type":"array","elementType":"byte","containsNull":true}"#;
const MAP: &str =
    r#"{"type":"map","keyType":"string","valueType":"long","valueContainsNull":true}"#;

fn item(to: Arrow) -> Arc<Field> {
    Arc::new(Field::new("item", to, true))
}

#[test]
fn every_kind_of_list_becomes_one() {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 1000, 3, 4]));
    let nulls = Some(NullBuffer::from(vec![true, false, true]));
    // The NULL in the middle hides a value that does not fit.
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 2, 3, 5]));
    let list = ListArray::try_new(
        item(Arrow::Int64),
        offsets,
        Arc::clone(&values),
        nulls.clone(),
    );
    let large = OffsetBuffer::new(ScalarBuffer::from(vec![0_i64, 2, 3, 5]));
    let large = LargeListArray::try_new(
        item(Arrow::Int64),
        large,
        Arc::clone(&values),
        nulls.clone(),
    );
    let view = ListViewArray::try_new(
        item(Arrow::Int64),
        ScalarBuffer::from(vec![0, 0, 3]),
        ScalarBuffer::from(vec![2, 5, 2]),
        Arc::clone(&values),
        nulls.clone(),
    );
    let fixed: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 1000, 1000, 3, 4]));
    let fixed = FixedSizeListArray::try_new(item(Arrow::Int64), 2, fixed, nulls);
    let arrays: [ArrayRef; 4] = [
        Arc::new(list.unwrap()),
        Arc::new(large.unwrap()),
        Arc::new(view.unwrap()),
        Arc::new(fixed.unwrap()),
    ];
    for array in arrays {
        let made = convert(
            &array,
            &data_type(LIST),
            MappingMode::None,
            Rules::Exact,
            &place(),
        )
        .unwrap();
        let made = made.as_list::<i32>();
        assert_eq!(made.value(0).as_primitive::<Int8Type>().values(), &[1, 2]);
        assert!(made.is_null(1));
        assert_eq!(made.value(2).as_primitive::<Int8Type>().values(), &[3, 4]);
        assert_eq!(made.values().len(), 4);
    }
}

#[test]
fn a_value_in_a_list_is_named_by_its_row() {
    let values = Int64Array::from(vec![1, 2, 3, 1000]);
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 2, 2, 4]));
    let list = ListArray::new(item(Arrow::Int64), offsets, Arc::new(values), None);
    let list: ArrayRef = Arc::new(list);
    match convert(
        &list,
        &data_type(LIST),
        MappingMode::None,
        Rules::Exact,
        &place(),
    ) {
        Err(DataFileError::Value { column, row, .. }) => {
            assert_eq!((column.as_str(), row), ("c.element", 12));
        }
        other => panic!("{other:?}"),
    }
    // The same through a slice.
    let made = convert(
        &list.slice(0, 2),
        &data_type(LIST),
        MappingMode::None,
        Rules::Exact,
        &place(),
    );
    assert_eq!(made.unwrap().len(), 2);
}

#[test]
fn maps_and_structs() {
    let mut builder = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    builder.keys().append_value("a");
    builder.values().append_value(1);
    builder.append(true).unwrap();
    builder.append(false).unwrap();
    let made = exact(builder.finish(), MAP).unwrap();
    let made = made.as_map();
    assert_eq!(made.values().as_primitive::<Int64Type>().values(), &[1]);
    assert!(made.is_null(1));
    assert_eq!(made.data_type(), &relaxed_type(&data_type(MAP)).unwrap());
    no_way(exact(Int64Array::from(vec![1]), MAP));
    no_way(exact(Int64Array::from(vec![1]), LIST));

    let to = r#"{"type":"struct","fields":[
        {"name":"A","type":"byte","nullable":true,"metadata":{}},
        {"name":"new","type":"string","nullable":true,"metadata":{}}]}"#;
    let hidden = Int64Array::from(vec![1, 1000]);
    let from = StructArray::try_new(
        Fields::from(vec![Field::new("a", Arrow::Int64, false)]),
        vec![Arc::new(hidden)],
        Some(NullBuffer::from(vec![true, false])),
    );
    let made = exact(from.unwrap(), to).unwrap();
    let made = made.as_struct();
    assert_eq!(made.column(0).as_primitive::<Int8Type>().value(0), 1);
    assert_eq!(made.column(0).null_count(), 1);
    assert_eq!(made.column(1).null_count(), 2);
    no_way(exact(Int64Array::from(vec![1]), to));
}

#[test]
fn rows_of_ranges_and_nested_lists() {
    let ranges = [3..5, 9..12];
    let rows = Rows::Ranges(&ranges);
    assert_eq!([0, 1, 2, 4].map(|i| rows.row(i)), [3, 4, 9, 11]);
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 0, 2, 2, 3]));
    let elements = Rows::Elements(&rows, &offsets);
    assert_eq!([0, 1, 2].map(|i| elements.row(i)), [4, 4, 10]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What is accepted comes back when it is widened again; what is refused would not.
    #[test]
    fn accepted_values_round_trip(values in prop::collection::vec(prop::option::of(any::<i64>().prop_flat_map(
        |v| prop::sample::select(vec![v, v >> 16, v >> 32, v >> 48, v >> 56]))), 0..20))
    {
        let array: ArrayRef = Arc::new(Int64Array::from(values.clone()));
        for to in ["byte", "short", "integer", "long", "float", "double", "decimal(38,0)", "decimal(12,3)"] {
            let made = convert(&array, &data_type(to), MappingMode::None, Rules::Exact, &place());
            let fits = |v: i64| match to {
                "byte" => i8::try_from(v).is_ok(),
                "short" => i16::try_from(v).is_ok(),
                "integer" => i32::try_from(v).is_ok(),
                "float" => (v as f32) as i128 == i128::from(v),
                "double" => (v as f64) as i128 == i128::from(v),
                "decimal(12,3)" => v.unsigned_abs() < 1_000_000_000,
                _ => true,
            };
            let first_bad = values.iter().position(|v| v.is_some_and(|v| !fits(v)));
            match (made, first_bad) {
                (Ok(made), None) => {
                    let back: Vec<Option<i64>> = (0..made.len()).map(|i| made.is_valid(i).then(|| {
                        match made.data_type() {
                            Arrow::Int8 => i64::from(made.as_primitive::<Int8Type>().value(i)),
                            Arrow::Int16 => i64::from(made.as_primitive::<Int16Type>().value(i)),
                            Arrow::Int32 => i64::from(made.as_primitive::<Int32Type>().value(i)),
                            Arrow::Int64 => made.as_primitive::<Int64Type>().value(i),
                            Arrow::Float32 => made.as_primitive::<Float32Type>().value(i) as i64,
                            Arrow::Float64 => made.as_primitive::<Float64Type>().value(i) as i64,
                            Arrow::Decimal128(_, s) => {
                                let v = made.as_primitive::<Decimal128Type>().value(i);
                                (v / 10_i128.pow(*s as u32)) as i64
                            }
                            other => panic!("{other}"),
                        }
                    })).collect();
                    prop_assert_eq!(&back, &values);
                }
                (Err(DataFileError::Value { row, .. }), Some(bad)) => prop_assert_eq!(row, 10 + bad as u64),
                (made, bad) => prop_assert!(false, "{to}: {made:?} {bad:?}"),
            }
        }
    }

    #[test]
    fn rescaled_decimals_are_equal(value in any::<i64>(), from in 0_i8..10, to in 0_i8..10) {
        let array = Decimal128Array::from(vec![i128::from(value)]).with_precision_and_scale(38, from).unwrap();
        let made = exact(array, &format!("decimal(38,{to})"));
        let shifted = |v: i128, by: i8| v * 10_i128.pow(u32::from(by.unsigned_abs()));
        match made {
            Ok(made) => {
                let made = made.as_primitive::<Decimal128Type>().value(0);
                prop_assert_eq!(shifted(made, from), shifted(i128::from(value), to));
            }
            Err(_) => prop_assert!(to < from && i128::from(value) % shifted(1, from - to) != 0),
        }
    }
}
