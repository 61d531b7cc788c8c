//! Files from before a column was widened, and columns that no file holds (PROTOCOL.md A4, D).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType as Arrow, Field, Fields, Int32Type};

use crate::datafile::testing::{batch, data_type, parquet, prepared, table, target};
use crate::datafile::*;
use crate::error::{Failure, Kind};
use crate::schema::{DataType, Scalar, SchemaError, StructType};

use super::*;

/// Every pair of the protocol with values at the edges of the old type, and what they are in the new one.
fn pairs() -> Vec<(ArrayRef, &'static str, Vec<Scalar>)> {
    let bytes = || Arc::new(Int8Array::from(vec![i8::MIN, 7, i8::MAX])) as ArrayRef;
    let shorts = || Arc::new(Int16Array::from(vec![i16::MIN, 7, i16::MAX])) as ArrayRef;
    let ints = || Arc::new(Int32Array::from(vec![i32::MIN, 7, i32::MAX])) as ArrayRef;
    let longs = || Arc::new(Int64Array::from(vec![i64::MIN, 7, i64::MAX])) as ArrayRef;
    let decimal = |values: Vec<i128>, p: u8, s: i8| {
        let array = Decimal128Array::from(values);
        Arc::new(array.with_precision_and_scale(p, s).unwrap()) as ArrayRef
    };
    let (b, s, i) = (
        [-128, 7, 127],
        [-32_768, 7, 32_767],
        [i32::MIN, 7, i32::MAX],
    );
    let l = [i64::MIN, 7, i64::MAX];
    let exact = |values: &[i64], p: u8, scale: i8| -> Vec<Scalar> {
        let by = 10_i128.pow(u32::from(scale.unsigned_abs()));
        let unscaled = values.iter().map(|v| i128::from(*v) * by);
        unscaled.map(|v| Scalar::Decimal(v, p, scale)).collect()
    };
    let wide = |values: &[i32]| values.iter().map(|v| i64::from(*v)).collect::<Vec<_>>();
    vec![
        (
            bytes(),
            "short",
            b.map(|v| Scalar::Short(v as i16)).to_vec(),
        ),
        (bytes(), "integer", b.map(Scalar::Integer).to_vec()),
        (bytes(), "long", b.map(|v| Scalar::Long(v.into())).to_vec()),
        (shorts(), "integer", s.map(Scalar::Integer).to_vec()),
        (shorts(), "long", s.map(|v| Scalar::Long(v.into())).to_vec()),
        (ints(), "long", i.map(|v| Scalar::Long(v.into())).to_vec()),
        (
            bytes(),
            "double",
            b.map(|v| Scalar::Double(v.into())).to_vec(),
        ),
        (
            shorts(),
            "double",
            s.map(|v| Scalar::Double(v.into())).to_vec(),
        ),
        (
            ints(),
            "double",
            i.map(|v| Scalar::Double(v.into())).to_vec(),
        ),
        (
            Arc::new(Float32Array::from(vec![0.1, -0.0, f32::MAX])),
            "double",
            [0.1_f32, -0.0, f32::MAX]
                .map(|v| Scalar::Double(v.into()))
                .to_vec(),
        ),
        (
            Arc::new(Date32Array::from(vec![-719_162, -1, 2_932_896])),
            "timestamp_ntz",
            [-719_162_i64, -1, 2_932_896]
                .map(|v| Scalar::TimestampNtz(v * 86_400_000_000))
                .to_vec(),
        ),
        (bytes(), "decimal(10,0)", exact(&wide(&b), 10, 0)),
        (shorts(), "decimal(11,1)", exact(&wide(&s), 11, 1)),
        (ints(), "decimal(10,0)", exact(&wide(&i), 10, 0)),
        (ints(), "decimal(38,28)", exact(&wide(&i), 38, 28)),
        (longs(), "decimal(20,0)", exact(&l, 20, 0)),
        (longs(), "decimal(38,18)", exact(&l, 38, 18)),
        (
            decimal(vec![-99_999, 1, 99_999], 5, 2),
            "decimal(8,2)",
            [-99_999, 1, 99_999]
                .map(|v| Scalar::Decimal(v, 8, 2))
                .to_vec(),
        ),
        (
            decimal(vec![-99_999, 1, 99_999], 5, 2),
            "decimal(38,5)",
            [-99_999_000, 1000, 99_999_000]
                .map(|v| Scalar::Decimal(v, 38, 5))
                .to_vec(),
        ),
    ]
}

fn expected(values: &[Scalar], ty: &DataType) -> ArrayRef {
    let arrays: Vec<ArrayRef> = values.iter().map(|v| v.to_array(ty, 1).unwrap()).collect();
    let arrays: Vec<&dyn Array> = arrays.iter().map(|a| a.as_ref()).collect();
    arrow::compute::concat(&arrays).unwrap()
}

fn read(file: File, schema: &StructType) -> Result<RecordBatch, DataFileError> {
    let columns: Vec<String> = schema.fields.iter().map(|f| f.name.clone()).collect();
    let none = BTreeMap::new();
    let mut reader = Reader::open(file, schema, &columns, &none, MappingMode::None, None, 100)?;
    reader.next().unwrap().map(|(batch, _)| batch)
}

#[test]
fn every_pair_is_read_at_every_depth() {
    for (stored, to, values) in pairs() {
        let ty = data_type(to);
        let wanted = expected(&values, &ty);
        let rows = stored.len();
        let element = Arc::new(Field::new("element", stored.data_type().clone(), true));
        let offsets = arrow::buffer::OffsetBuffer::from_lengths([0, rows, 0]);
        let list = ListArray::new(element, offsets.clone(), Arc::clone(&stored), None);
        let entries = StructArray::from(vec![
            (
                Arc::new(Field::new("key", stored.data_type().clone(), false)),
                Arc::clone(&stored),
            ),
            (
                Arc::new(Field::new("value", stored.data_type().clone(), true)),
                Arc::clone(&stored),
            ),
        ]);
        let field = Arc::new(Field::new("key_value", entries.data_type().clone(), false));
        let map = MapArray::new(field, offsets, entries, None, false);
        let inner = StructArray::from(vec![(
            Arc::new(Field::new("x", stored.data_type().clone(), true)),
            Arc::clone(&stored),
        )]);
        let file = parquet(&batch(vec![
            ("v", Arc::clone(&stored)),
            ("l", Arc::new(list)),
            ("m", Arc::new(map)),
            ("s", Arc::new(inner)),
        ]));
        let array = format!(r#"{{"type":"array","elementType":"{to}","containsNull":true}}"#);
        let map = format!(
            r#"{{"type":"map","keyType":"{to}","valueType":"{to}","valueContainsNull":true}}"#
        );
        let inner = format!(
            r#"{{"type":"struct","fields":[{{"name":"x","type":"{to}","nullable":true,"metadata":{{}}}}]}}"#
        );
        let schema = table(&[("v", to), ("l", &array), ("m", &map), ("s", &inner)]);
        let rows = read(file, &schema).unwrap();
        assert_eq!(rows.column(0), &wanted, "{to}");
        assert_eq!(
            rows.column(1).as_list::<i32>().values(),
            &wanted,
            "{to} in a list"
        );
        assert_eq!(rows.column(2).as_map().keys(), &wanted, "{to} as a key");
        assert_eq!(rows.column(2).as_map().values(), &wanted, "{to} as a value");
        assert_eq!(
            rows.column(3).as_struct().column(0),
            &wanted,
            "{to} in a struct"
        );
    }
}

#[test]
fn what_is_no_widening_is_never_guessed() {
    let file = |array: ArrayRef| parquet(&batch(vec![("v", array)]));
    let stored: [(ArrayRef, &str); 7] = [
        (Arc::new(Int64Array::from(vec![i64::MAX])), "integer"),
        (Arc::new(Int64Array::from(vec![i64::MAX])), "double"),
        (Arc::new(Float64Array::from(vec![0.1])), "float"),
        (Arc::new(Int32Array::from(vec![1])), "string"),
        (Arc::new(StringArray::from(vec!["1"])), "long"),
        (Arc::new(Date32Array::from(vec![1])), "timestamp"),
        (Arc::new(Int32Array::from(vec![123])), "decimal(2,0)"),
    ];
    for (array, to) in stored {
        let error = read(file(array), &table(&[("v", to)])).unwrap_err();
        assert!(
            matches!(
                error,
                DataFileError::Type { .. } | DataFileError::Value { .. }
            ),
            "{to}: {error}"
        );
    }
}

#[test]
fn a_column_whose_change_is_not_known_is_not_read() {
    let mut schema = table(&[("v", "long"), ("w", "long")]);
    let changes = serde_json::json!([{"fromType": "timestamp", "toType": "long"}]);
    schema.fields[0]
        .metadata
        .insert("delta.typeChanges".to_owned(), changes);
    let file = || {
        parquet(&batch(vec![
            ("v", longs(&[Some(1)])),
            ("w", longs(&[Some(2)])),
        ]))
    };
    let error = read(file(), &schema).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(matches!(
        error,
        DataFileError::Schema(SchemaError::TypeChange { .. })
    ));
    schema.fields.remove(0);
    assert_eq!(read(file(), &schema).unwrap().num_rows(), 1);
}

#[test]
fn void_is_null_at_any_depth_and_written_nowhere() {
    let nested = r#"{"type":"struct","fields":[
        {"name":"a","type":"integer","nullable":true,"metadata":{}},
        {"name":"n","type":"void","nullable":true,"metadata":{}}]}"#;
    let schema = table(&[("s", nested), ("v", "void")]);
    let inner = StructArray::from(vec![(
        Arc::new(Field::new("a", Arrow::Int32, true)),
        Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef,
    )]);
    let file = parquet(&batch(vec![("s", Arc::new(inner) as ArrayRef)]));
    let rows = read(file.try_clone().unwrap(), &schema).unwrap();
    assert_eq!(rows.column(1).logical_null_count(), 2);
    let s = rows.column(0).as_struct();
    assert_eq!(s.column(0).as_primitive::<Int32Type>().value(0), 1);
    assert_eq!(s.column(1).logical_null_count(), 2);
    // With the void columns there, as NULLs; they are left out of the file and of the statistics.
    let full = StructArray::new(
        Fields::from(vec![
            Field::new("a", Arrow::Int32, true),
            Field::new("n", Arrow::Null, true),
        ]),
        vec![
            Arc::new(Int32Array::from(vec![Some(1), None])),
            Arc::new(NullArray::new(2)),
        ],
        None,
    );
    let mut writer = Writer::new(
        tempfile::tempfile().unwrap(),
        &schema,
        &StatsConfig::default(),
        MappingMode::None,
    )
    .unwrap();
    let columns: Vec<(&str, ArrayRef)> =
        vec![("s", Arc::new(full)), ("v", Arc::new(NullArray::new(2)))];
    writer.write(&batch(columns)).unwrap();
    let written = writer.finish().unwrap();
    assert_eq!(
        written.stats,
        concat!(
            r#"{"numRecords":2,"minValues":{"s":{"a":1}},"maxValues":{"s":{"a":1}},"#,
            r#""nullCount":{"s":{"a":1}},"tightBounds":true}"#
        )
    );
    let stored = inspect(&written.file).unwrap();
    assert_eq!(stored.schema.fields().len(), 1);
    assert_eq!(read(written.file, &schema).unwrap(), rows);
}

#[test]
fn void_where_nothing_could_be_written_is_refused() {
    let array = r#"{"type":"array","elementType":"void","containsNull":true}"#;
    let map = r#"{"type":"map","keyType":"string","valueType":"void","valueContainsNull":true}"#;
    let only =
        r#"{"type":"struct","fields":[{"name":"n","type":"void","nullable":true,"metadata":{}}]}"#;
    for schema in [
        table(&[("a", "long"), ("x", array)]),
        table(&[("a", "long"), ("x", map)]),
        table(&[("a", "long"), ("x", only)]),
        table(&[("x", "void")]),
    ] {
        let made = Writer::new(
            tempfile::tempfile().unwrap(),
            &schema,
            &StatsConfig::default(),
            MappingMode::None,
        );
        let error = made.map(|_| ()).unwrap_err();
        assert!(matches!(error, DataFileError::Unwritable { .. }), "{error}");
        assert_eq!(error.kind(), Kind::Unsupported);
        let file = parquet(&batch(vec![("a", longs(&[Some(1)]))]));
        assert!(prepared(&file, &target(schema, &[])).is_err());
    }
}

#[test]
fn times_without_a_zone_stay_what_the_clock_showed() {
    let times = Arc::new(TimestampMicrosecondArray::from(vec![-1, 0, i64::MAX])) as ArrayRef;
    let schema = table(&[("t", "timestamp_ntz")]);
    let file = parquet(&batch(vec![("t", Arc::clone(&times))]));
    assert!(is_original(
        &prepared(&file, &target(schema.clone(), &[])).unwrap()
    ));
    assert_eq!(read(file, &schema).unwrap().column(0), &times);
}
