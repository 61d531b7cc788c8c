use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields};
use arrow::ipc::reader::StreamReader;
use proptest::prelude::*;

use super::*;

fn written(format: Format, batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = RowWriter::new(format, &batch.schema(), &mut bytes).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    bytes
}

fn text(format: Format, batch: &RecordBatch) -> String {
    String::from_utf8(written(format, batch)).unwrap()
}

fn one(name: &str, array: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([(name, array, true)]).unwrap()
}

/// The lines of a column as JSON values and as CSV fields.
fn column(array: ArrayRef) -> Vec<(String, String)> {
    let batch = one("c", array);
    let json = text(Format::JsonLines, &batch);
    let json = json.lines().map(|line| {
        let value = line.strip_prefix("{\"c\":").unwrap();
        value.strip_suffix('}').unwrap().to_owned()
    });
    let csv = text(Format::Csv, &batch);
    let csv = csv.lines().skip(1).map(str::to_owned);
    json.zip(csv).collect()
}

#[track_caller]
fn assert_column(array: ArrayRef, expected: &[(&str, &str)]) {
    let found = column(array);
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|(j, c)| (j.as_str(), c.as_str()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn numbers_keep_every_digit() {
    assert_column(
        Arc::new(Int64Array::from(vec![Some(i64::MIN), None])),
        &[
            ("-9223372036854775808", "-9223372036854775808"),
            ("null", ""),
        ],
    );
    let decimals = Decimal128Array::from(vec![-5, 10_i128.pow(38) - 1]);
    assert_column(
        Arc::new(decimals.with_precision_and_scale(38, 2).unwrap()),
        &[
            ("-0.05", "-0.05"),
            (
                "999999999999999999999999999999999999.99",
                "999999999999999999999999999999999999.99",
            ),
        ],
    );
    assert_column(
        Arc::new(Float64Array::from(vec![0.1, -0.0, 1e300, f64::NAN])),
        &[
            ("0.1", "0.1"),
            ("-0.0", "-0.0"),
            ("1e300", "1e300"),
            ("\"NaN\"", "NaN"),
        ],
    );
    assert_column(
        Arc::new(Float32Array::from(vec![
            0.1,
            f32::INFINITY,
            f32::NEG_INFINITY,
        ])),
        &[
            ("0.1", "0.1"),
            ("\"Infinity\"", "Infinity"),
            ("\"-Infinity\"", "-Infinity"),
        ],
    );
}

#[test]
fn times_have_one_form_wherever_they_are() {
    assert_column(
        Arc::new(Date32Array::from(vec![0, -1, 11_016, 2_932_897, i32::MIN])),
        &[
            ("\"1970-01-01\"", "1970-01-01"),
            ("\"1969-12-31\"", "1969-12-31"),
            ("\"2000-02-29\"", "2000-02-29"),
            ("\"+10000-01-01\"", "+10000-01-01"),
            ("\"-5877641-06-23\"", "-5877641-06-23"),
        ],
    );
    let instants = TimestampMicrosecondArray::from(vec![-1, 0, -2_342_342_342, i64::MAX]);
    assert_column(
        Arc::new(instants.clone().with_timezone("UTC")),
        &[
            (
                "\"1969-12-31T23:59:59.999999Z\"",
                "1969-12-31T23:59:59.999999Z",
            ),
            (
                "\"1970-01-01T00:00:00.000000Z\"",
                "1970-01-01T00:00:00.000000Z",
            ),
            (
                "\"1969-12-31T23:20:57.657658Z\"",
                "1969-12-31T23:20:57.657658Z",
            ),
            (
                "\"+294247-01-10T04:00:54.775807Z\"",
                "+294247-01-10T04:00:54.775807Z",
            ),
        ],
    );
    let without: Vec<String> = column(Arc::new(instants))
        .into_iter()
        .map(|(j, _)| j)
        .collect();
    assert_eq!(without[0], "\"1969-12-31T23:59:59.999999\"");
}

#[test]
fn null_is_not_the_empty_string() {
    assert_column(
        Arc::new(StringArray::from(vec![
            Some(""),
            None,
            Some("a"),
            Some(" a"),
        ])),
        &[
            ("\"\"", "\"\""),
            ("null", ""),
            ("\"a\"", "a"),
            ("\" a\"", "\" a\""),
        ],
    );
    assert_column(
        Arc::new(BinaryArray::from_opt_vec(vec![
            Some(b""),
            None,
            Some(b"\x00\xff"),
        ])),
        &[("\"\"", "\"\""), ("null", ""), ("\"00ff\"", "00ff")],
    );
    assert_column(Arc::new(NullArray::new(1)), &[("null", "")]);
    assert_column(
        Arc::new(BooleanArray::from(vec![Some(true), None])),
        &[("true", "true"), ("null", "")],
    );
}

#[test]
fn what_separates_is_escaped() {
    let batch = one(
        "a \"b\",c",
        Arc::new(StringArray::from(vec!["x,\"y\"\r\nz\\\u{1}é"])),
    );
    assert_eq!(
        text(Format::JsonLines, &batch),
        "{\"a \\\"b\\\",c\":\"x,\\\"y\\\"\\r\\nz\\\\\\u0001é\"}\n"
    );
    assert_eq!(
        text(Format::Csv, &batch),
        "\"a \"\"b\"\",c\"\n\"x,\"\"y\"\"\r\nz\\\u{1}é\"\n"
    );
}

#[test]
fn nested_values_are_json() {
    let ids: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
    let list = ListArray::new(
        Arc::new(Field::new("element", DataType::Int32, true)),
        OffsetBuffer::from_lengths([2, 0, 1]),
        ids.clone(),
        Some(NullBuffer::from(vec![true, false, true])),
    );
    assert_column(
        Arc::new(list.slice(0, 3)),
        &[("[1,null]", "\"[1,null]\""), ("null", ""), ("[3]", "[3]")],
    );
    assert_column(Arc::new(list.slice(2, 1)), &[("[3]", "[3]")]);
    let fields = Fields::from(vec![
        Field::new("key", DataType::Int32, false),
        Field::new("value", DataType::Int32, true),
    ]);
    let keys: ArrayRef = Arc::new(Int32Array::from(vec![7, 7, 8]));
    let entries = StructArray::new(fields.clone(), vec![keys, ids.clone()], None);
    let map = MapArray::new(
        Arc::new(Field::new("key_value", DataType::Struct(fields), false)),
        OffsetBuffer::from_lengths([2, 1]),
        entries,
        None,
        false,
    );
    let json = "[{\"key\":7,\"value\":1},{\"key\":7,\"value\":null}]";
    let csv = format!("\"{}\"", json.replace('"', "\"\""));
    assert_eq!(column(Arc::new(map))[0], (json.to_owned(), csv));
    let members = Fields::from(vec![Field::new("é\"", DataType::Int32, true)]);
    let nulls = NullBuffer::from(vec![true, true, false]);
    let row = StructArray::new(members, vec![ids], Some(nulls));
    let found: Vec<String> = column(Arc::new(row)).into_iter().map(|(j, _)| j).collect();
    assert_eq!(found, ["{\"é\\\"\":1}", "{\"é\\\"\":null}", "null"]);
}

#[test]
fn an_arrow_stream_that_is_abandoned_is_no_stream() {
    let batch = one("id", Arc::new(Int64Array::from(vec![1, 2])));
    let whole = written(Format::Arrow, &batch);
    let read = |bytes: &[u8]| -> Result<usize, ArrowError> {
        let mut rows = 0;
        for batch in StreamReader::try_new(bytes, None)? {
            rows += batch?.num_rows();
        }
        Ok(rows)
    };
    assert_eq!(read(&whole).unwrap(), 2);
    let mut bytes = Vec::new();
    let mut writer = RowWriter::new(Format::Arrow, &batch.schema(), &mut bytes).unwrap();
    writer.write(&batch).unwrap();
    writer.abandon().unwrap();
    assert!(read(&bytes).is_err());
}

#[test]
fn nothing_but_a_header_for_no_rows() {
    let batch = RecordBatch::new_empty(one("id", Arc::new(Int64Array::from(vec![1]))).schema());
    assert_eq!(text(Format::JsonLines, &batch), "");
    assert_eq!(text(Format::Csv, &batch), "id\n");
}

/// Fields of CSV as a reader of the same rules finds them: `None` where nothing is.
fn fields(text: &str) -> Vec<Vec<Option<String>>> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), None::<String>);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                let value = field.get_or_insert_default();
                while let Some(c) = chars.next() {
                    match c {
                        '"' if chars.next_if_eq(&'"').is_some() => value.push('"'),
                        '"' => break,
                        c => value.push(c),
                    }
                }
            }
            ',' => row.push(field.take()),
            '\n' => {
                row.push(field.take());
                rows.push(std::mem::take(&mut row));
            }
            c => field.get_or_insert_default().push(c),
        }
    }
    rows
}

proptest! {
    #[test]
    fn strings_survive(values in proptest::collection::vec(proptest::option::of("\\PC*|[\"\\\\,\r\n\t \u{0}a]*"), 1..8)) {
        let array: ArrayRef = Arc::new(StringArray::from(values.clone()));
        let batch = one("c", array);
        let csv = fields(&text(Format::Csv, &batch));
        let csv: Vec<_> = csv.into_iter().skip(1).map(|mut row| row.remove(0)).collect();
        prop_assert_eq!(&csv, &values);
        let json = text(Format::JsonLines, &batch);
        prop_assert_eq!(json.lines().count(), values.len());
        for (line, value) in json.split_terminator('\n').zip(&values) {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            prop_assert_eq!(row["c"].as_str(), value.as_deref());
        }
    }

    #[test]
    fn doubles_survive(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let (json, csv) = column(Arc::new(Float64Array::from(vec![value]))).remove(0);
        let parsed: f64 = csv.parse().unwrap();
        prop_assert!(parsed.to_bits() == bits || (parsed.is_nan() && value.is_nan()));
        prop_assert_eq!(json.trim_matches('"'), csv);
    }

    #[test]
    fn days_are_those_of_the_calendar(days in -90_000_000..90_000_000_i32) {
        let (_, csv) = column(Arc::new(Date32Array::from(vec![days]))).remove(0);
        let day = chrono::NaiveDate::default() + chrono::TimeDelta::days(days.into());
        prop_assert_eq!(csv, day.format("%Y-%m-%d").to_string());
    }
}
