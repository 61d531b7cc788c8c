//! What may be in a dropped file: columns by name, conversions that keep the value, and clear refusals.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, Decimal256Array, Float32Array, Int8Array, Int16Array, LargeStringArray,
    ListArray, NullArray, StructArray, TimestampMillisecondArray, TimestampNanosecondArray,
    UInt32Array, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, i256};
use arrow::record_batch::RecordBatch;
use serde_json::{Value, json};

use crate::batch::{bools, columns, dates, decimals, doubles, ints, longs, micros, orders, texts};
use crate::builder::{field, not_null, structure};
use crate::case::{Cx, cases};
use crate::mount::Mount;

use super::dropping::{accepts, base_and, refuses, target};

cases!("content":
    columns_in_any_order_and_case,
    missing_nullable_columns_are_null,
    missing_not_null_column_refused,
    extra_column_refused,
    two_columns_of_one_name_refused,
    wrong_type_refused,
    integers_widen,
    integer_out_of_range_refused,
    unsigned_integers,
    floats,
    decimals_keep_their_value,
    decimal_too_wide_refused,
    timestamps_of_every_unit,
    timestamps_of_every_zone,
    naive_timestamp_refused,
    naive_into_timestamp_ntz,
    nanoseconds_that_would_be_lost_refused,
    int96_timestamps,
    dates_and_booleans,
    all_null_column,
    large_strings,
    dictionaries,
    nested_by_name,
    nested_extra_field_refused,
    null_in_not_null_refused,
    null_in_nested_not_null_refused,
    required_without_nulls,
    no_rows,
    adopted_without_copying,
    statistics,
    refusal_is_in_last_and_in_rejected,
);

/// A mounted, empty table `t` with these columns.
fn table(cx: &Cx, fields: Vec<Value>) -> Mount {
    cx.builder("t").fields(fields).create();
    cx.mount()
}

#[track_caller]
fn rows(cx: &Cx, expected: &[&str]) {
    assert_eq!(cx.table("t").rows(), expected);
}

fn columns_in_any_order_and_case(cx: &Cx) {
    let t = target(cx);
    let file = columns(vec![
        ("AMOUNT", doubles([50.0])),
        ("Name", texts(["n100"])),
        ("iD", longs([100])),
    ]);
    accepts(cx, "y.parquet", &file);
    t.holds(1, base_and(100..101));
}

fn missing_nullable_columns_are_null(cx: &Cx) {
    let _m = table(cx, vec![field("id", "long"), field("name", "string")]);
    accepts(cx, "a.parquet", &columns(vec![("id", longs([1, 2]))]));
    accepts(cx, "b.parquet", &columns(vec![("name", texts(["x"]))]));
    rows(cx, &["1|NULL", "2|NULL", "NULL|x"]);
}

fn missing_not_null_column_refused(cx: &Cx) {
    let _m = table(
        cx,
        vec![not_null(field("id", "long")), field("name", "string")],
    );
    refuses(
        cx,
        "a.parquet",
        &columns(vec![("name", texts(["x"]))]),
        &["id"],
    );
}

fn extra_column_refused(cx: &Cx) {
    let _m = table(cx, vec![field("id", "long")]);
    let file = columns(vec![("id", longs([1])), ("surplus", texts(["x"]))]);
    refuses(cx, "a.parquet", &file, &["surplus"]);
}

/// D64.
fn two_columns_of_one_name_refused(cx: &Cx) {
    let _m = table(cx, vec![field("a", "long")]);
    refuses(
        cx,
        "a.parquet",
        &columns(vec![("a", longs([1])), ("A", longs([2]))]),
        &["A"],
    );
    refuses(
        cx,
        "b.parquet",
        &columns(vec![("a", longs([1])), ("a", longs([2]))]),
        &["a"],
    );
}

fn wrong_type_refused(cx: &Cx) {
    let _m = table(
        cx,
        vec![
            field("number", "long"),
            field("word", "string"),
            field("day", "date"),
        ],
    );
    refuses(
        cx,
        "a.parquet",
        &columns(vec![("number", texts(["7"]))]),
        &["number", "long"],
    );
    refuses(
        cx,
        "b.parquet",
        &columns(vec![("word", longs([7]))]),
        &["word", "string"],
    );
    refuses(
        cx,
        "c.parquet",
        &columns(vec![("day", texts(["2026-01-01"]))]),
        &["day", "date"],
    );
    refuses(
        cx,
        "d.parquet",
        &columns(vec![("number", bools([true]))]),
        &["number", "long"],
    );
    refuses(
        cx,
        "e.parquet",
        &columns(vec![("number", doubles([1.5]))]),
        &["number"],
    );
}

fn integers_widen(cx: &Cx) {
    let _m = table(
        cx,
        vec![
            field("l", "long"),
            field("i", "integer"),
            field("s", "short"),
        ],
    );
    let file = columns(vec![
        ("l", ints([i32::MAX, i32::MIN])),
        ("i", Arc::new(Int16Array::from(vec![i16::MAX, i16::MIN]))),
        ("s", Arc::new(Int8Array::from(vec![i8::MAX, i8::MIN]))),
    ]);
    accepts(cx, "a.parquet", &file);
    rows(cx, &["-2147483648|-32768|-128", "2147483647|32767|127"]);
}

fn integer_out_of_range_refused(cx: &Cx) {
    let _m = table(cx, vec![field("small", "integer")]);
    let file = columns(vec![("small", longs([1, 3_000_000_000]))]);
    refuses(cx, "a.parquet", &file, &["small", "3000000000"]);
}

fn unsigned_integers(cx: &Cx) {
    let _m = table(cx, vec![field("l", "long")]);
    accepts(
        cx,
        "a.parquet",
        &columns(vec![("l", Arc::new(UInt32Array::from(vec![u32::MAX])))]),
    );
    let file = columns(vec![(
        "l",
        Arc::new(UInt64Array::from(vec![u64::MAX])) as ArrayRef,
    )]);
    refuses(cx, "b.parquet", &file, &["l", "18446744073709551615"]);
    rows(cx, &["4294967295"]);
}

fn floats(cx: &Cx) {
    let _m = table(cx, vec![field("d", "double"), field("f", "float")]);
    let file = columns(vec![(
        "d",
        Arc::new(Float32Array::from(vec![0.5, f32::INFINITY])),
    )]);
    accepts(cx, "a.parquet", &file);
    refuses(
        cx,
        "b.parquet",
        &columns(vec![("f", doubles([0.1]))]),
        &["f", "0.1"],
    );
    // NaN keeps no bounds, and is no reason to fail.
    accepts(
        cx,
        "c.parquet",
        &columns(vec![("d", doubles([f64::NAN, 1.0]))]),
    );
    rows(cx, &["0.5|NULL", "1.0|NULL", "NaN|NULL", "inf|NULL"]);
}

fn decimals_keep_their_value(cx: &Cx) {
    let _m = table(cx, vec![field("price", "decimal(10,2)")]);
    accepts(
        cx,
        "a.parquet",
        &columns(vec![("price", decimals(8, 1, &[Some(15), Some(-1)]))]),
    );
    accepts(
        cx,
        "b.parquet",
        &columns(vec![("price", decimals(12, 4, &[Some(12_500)]))]),
    );
    accepts(
        cx,
        "c.parquet",
        &columns(vec![("price", decimals(10, 2, &[Some(7), None]))]),
    );
    rows(cx, &["-0.10", "0.07", "1.25", "1.50", "NULL"]);
}

/// D76.
fn decimal_too_wide_refused(cx: &Cx) {
    let _m = table(cx, vec![field("price", "decimal(10,2)")]);
    let lossy = columns(vec![("price", decimals(10, 4, &[Some(12_345)]))]);
    refuses(cx, "a.parquet", &lossy, &["price", "1.2345"]);
    let wide = columns(vec![("price", decimals(20, 2, &[Some(1_234_567_890_123)]))]);
    refuses(cx, "b.parquet", &wide, &["price"]);
    let wider = Decimal256Array::from(vec![i256::from(1)])
        .with_precision_and_scale(39, 2)
        .unwrap();
    let file = columns(vec![("price", Arc::new(wider) as ArrayRef)]);
    let before = cx.table("t").versions();
    cx.input("c.parquet", &file);
    let ran = cx.sh("cp in/c.parquet mnt/t/");
    // 0.01 fits; what must not happen is a table that nobody can read.
    if ran.succeeded() {
        rows(cx, &["0.01"]);
    } else {
        assert_eq!(cx.table("t").versions(), before);
    }
}

/// 2026-01-02T03:04:05Z.
const INSTANT: i64 = 1_767_323_045;

/// D67.
fn timestamps_of_every_unit(cx: &Cx) {
    let _m = table(cx, vec![field("at", "timestamp")]);
    let utc = |array: ArrayRef| columns(vec![("at", array)]);
    let millis = TimestampMillisecondArray::from(vec![INSTANT * 1000]).with_timezone("UTC");
    let nanos = TimestampNanosecondArray::from(vec![INSTANT * 1_000_000_000]).with_timezone("UTC");
    accepts(cx, "ms.parquet", &utc(Arc::new(millis)));
    accepts(
        cx,
        "us.parquet",
        &utc(micros(Some("UTC"), &[Some(INSTANT * 1_000_000)])),
    );
    accepts(cx, "ns.parquet", &utc(Arc::new(nanos)));
    rows(cx, &["1767323045000000us"; 3]);
}

fn timestamps_of_every_zone(cx: &Cx) {
    let _m = table(cx, vec![field("at", "timestamp")]);
    for (i, zone) in ["UTC", "+00:00", "Europe/Rome", "-08:00"]
        .iter()
        .enumerate()
    {
        let file = columns(vec![(
            "at",
            micros(Some(zone), &[Some(INSTANT * 1_000_000)]),
        )]);
        accepts(cx, &format!("z{i}.parquet"), &file);
    }
    rows(cx, &["1767323045000000us"; 4]);
}

fn naive_timestamp_refused(cx: &Cx) {
    let _m = table(cx, vec![field("at", "timestamp")]);
    let file = columns(vec![("at", micros(None, &[Some(INSTANT * 1_000_000)]))]);
    refuses(cx, "a.parquet", &file, &["at", "zone"]);
}

fn naive_into_timestamp_ntz(cx: &Cx) {
    cx.builder("t")
        .features(&["timestampNtz"], &["timestampNtz"])
        .fields(vec![field("at", "timestamp_ntz")])
        .create();
    let _m = cx.mount();
    accepts(
        cx,
        "a.parquet",
        &columns(vec![("at", micros(None, &[Some(-1), None]))]),
    );
    let nanos = TimestampNanosecondArray::from(vec![5000]);
    accepts(cx, "b.parquet", &columns(vec![("at", Arc::new(nanos))]));
    rows(cx, &["-1us", "5us", "NULL"]);
}

fn nanoseconds_that_would_be_lost_refused(cx: &Cx) {
    let _m = table(cx, vec![field("at", "timestamp")]);
    let nanos = TimestampNanosecondArray::from(vec![1000, 1001]).with_timezone("UTC");
    refuses(
        cx,
        "a.parquet",
        &columns(vec![("at", Arc::new(nanos))]),
        &["at"],
    );
}

/// D77: what old writers use for timestamps. Their zone is UTC by convention.
fn int96_timestamps(cx: &Cx) {
    let _m = table(cx, vec![field("at", "timestamp")]);
    cx.py_with(
        &["pyarrow"],
        "
import pyarrow as pa, pyarrow.parquet as pq, datetime as dt
days = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2026, 1, 2, 3, 4, 5)]
table = pa.table({'at': pa.array(days, pa.timestamp('us', 'UTC'))})
pq.write_table(table, 'in/a.parquet', use_deprecated_int96_timestamps=True, store_schema=False)",
    )
    .ok();
    cx.sh("cp in/a.parquet mnt/t/").ok();
    rows(cx, &["-1us", "1767323045000000us"]);
}

fn dates_and_booleans(cx: &Cx) {
    let _m = table(
        cx,
        vec![
            field("day", "date"),
            field("yes", "boolean"),
            field("bytes", "binary"),
        ],
    );
    let file = columns(vec![
        ("day", dates([0, -1])),
        ("yes", bools([Some(true), None])),
    ]);
    accepts(cx, "a.parquet", &file);
    rows(cx, &["1969-12-31|NULL|NULL", "1970-01-01|true|NULL"]);
}

/// D65.
fn all_null_column(cx: &Cx) {
    let _m = table(cx, vec![field("id", "long"), field("name", "string")]);
    let file = columns(vec![
        ("id", longs([1, 2])),
        ("name", Arc::new(NullArray::new(2))),
    ]);
    accepts(cx, "a.parquet", &file);
    rows(cx, &["1|NULL", "2|NULL"]);
}

fn large_strings(cx: &Cx) {
    let _m = table(cx, vec![field("word", "string")]);
    let file = columns(vec![(
        "word",
        Arc::new(LargeStringArray::from(vec!["a", "ü"])),
    )]);
    accepts(cx, "a.parquet", &file);
    rows(cx, &["a", "ü"]);
}

fn dictionaries(cx: &Cx) {
    let _m = table(cx, vec![field("word", "string")]);
    cx.py_with(
        &["pyarrow"],
        "
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({'word': pa.array(['a', 'b', 'a']).dictionary_encode()}), 'in/a.parquet')",
    )
    .ok();
    cx.sh("cp in/a.parquet mnt/t/").ok();
    rows(cx, &["a", "a", "b"]);
}

fn list_of_longs(values: Vec<Vec<Option<i64>>>) -> ArrayRef {
    let lists = values.into_iter().map(Some);
    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
}

/// Fields of structs match by name at every depth; list elements may be called anything.
fn nested_by_name(cx: &Cx) {
    let _m = table(
        cx,
        vec![
            field("id", "long"),
            field(
                "addr",
                structure(vec![
                    field("zip", "string"),
                    field(
                        "city",
                        structure(vec![field("name", "string"), field("size", "long")]),
                    ),
                ]),
            ),
            field(
                "tags",
                json!({"type": "array", "elementType": "long", "containsNull": true}),
            ),
        ],
    );
    let city = StructArray::from(vec![
        (
            Arc::new(Field::new("SIZE", DataType::Int32, true)),
            ints([5]),
        ),
        (
            Arc::new(Field::new("name", DataType::Utf8, true)),
            texts(["Rome"]),
        ),
    ]);
    let addr = StructArray::from(vec![
        (
            Arc::new(Field::new("City", city.data_type().clone(), true)),
            Arc::new(city) as ArrayRef,
        ),
        (
            Arc::new(Field::new("ZIP", DataType::Utf8, true)),
            texts(["00100"]),
        ),
    ]);
    let items = Arc::new(Field::new("odd_name", DataType::Int64, true));
    let tags = ListArray::new(items, OffsetBuffer::from_lengths([2]), longs([7, 8]), None);
    accepts(
        cx,
        "a.parquet",
        &columns(vec![
            ("tags", Arc::new(tags)),
            ("addr", Arc::new(addr)),
            ("id", longs([1])),
        ]),
    );
    // A field that is missing inside of a struct is null.
    let addr = StructArray::from(vec![(
        Arc::new(Field::new("zip", DataType::Utf8, true)),
        texts(["10115"]),
    )]);
    accepts(
        cx,
        "b.parquet",
        &columns(vec![
            ("id", longs([2])),
            ("addr", Arc::new(addr)),
            ("tags", list_of_longs(vec![vec![None]])),
        ]),
    );
    let rows = cx.table("t").rows();
    assert_eq!(rows[0], "1|{zip:00100,city:{name:Rome,size:5}}|[7,8]");
    assert!(
        rows[1].starts_with("2|{zip:10115,city:") && rows[1].ends_with("|[NULL]"),
        "{rows:?}"
    );
}

fn nested_extra_field_refused(cx: &Cx) {
    let _m = table(
        cx,
        vec![field("addr", structure(vec![field("zip", "string")]))],
    );
    let addr = StructArray::from(vec![
        (
            Arc::new(Field::new("zip", DataType::Utf8, true)),
            texts(["1"]),
        ),
        (
            Arc::new(Field::new("surplus", DataType::Utf8, true)),
            texts(["1"]),
        ),
    ]);
    refuses(
        cx,
        "a.parquet",
        &columns(vec![("addr", Arc::new(addr))]),
        &["addr.surplus"],
    );
}

/// D66.
fn null_in_not_null_refused(cx: &Cx) {
    let _m = table(
        cx,
        vec![not_null(field("id", "long")), field("name", "string")],
    );
    accepts(cx, "a.parquet", &columns(vec![("id", longs([1, 2]))]));
    refuses(
        cx,
        "b.parquet",
        &columns(vec![("id", longs([Some(1), None]))]),
        &["id"],
    );
    rows(cx, &["1|NULL", "2|NULL"]);
}

/// D71.
fn null_in_nested_not_null_refused(cx: &Cx) {
    let _m = table(
        cx,
        vec![field(
            "addr",
            structure(vec![not_null(field("zip", "string"))]),
        )],
    );
    let addr = |zips: ArrayRef| {
        let zip = Arc::new(Field::new("zip", DataType::Utf8, true));
        columns(vec![(
            "addr",
            Arc::new(StructArray::from(vec![(zip, zips)])) as ArrayRef,
        )])
    };
    accepts(cx, "a.parquet", &addr(texts(["1"])));
    refuses(
        cx,
        "b.parquet",
        &addr(texts([Some("1"), None])),
        &["addr.zip"],
    );
}

/// Columns that the file declares as required, in a table that would take nulls.
fn required_without_nulls(cx: &Cx) {
    let _m = table(cx, vec![field("id", "long"), field("name", "string")]);
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, false),
    ]);
    let file = RecordBatch::try_new(Arc::new(schema), vec![longs([1]), texts(["x"])]).unwrap();
    accepts(cx, "a.parquet", &file);
    rows(cx, &["1|x"]);
}

/// D68.
fn no_rows(cx: &Cx) {
    let t = target(cx);
    cx.input("none.parquet", &orders(0..0));
    cx.sh("cp in/none.parquet mnt/t/").ok();
    assert_eq!(
        t.table.state().live().count(),
        1,
        "no data file for no rows"
    );
    assert_eq!(t.table.ids(), (0..10).collect::<Vec<_>>());
}

/// The staged file itself becomes the data file: same inode, so no byte was written twice.
fn adopted_without_copying(cx: &Cx) {
    let t = target(cx);
    let input = cx.input("big.parquet", &orders(0..200_000));
    let size = std::fs::metadata(&input).unwrap().len();
    cx.sh("cp in/big.parquet mnt/t/.big").ok();
    // Staged under a name in the warehouse, or without one and only open in the daemon.
    let pid = t.m.pid();
    let inode = cx.sh(&format!(
        "(find wh -type f -size {size}c -printf '%i\\n'
          for f in /proc/{pid}/fd/*; do stat -L -c '%s %i' $f 2>/dev/null || true; done | sed -n 's/^{size} //p') | sort -u"
    ));
    let inode = inode.ok();
    assert_eq!(inode.lines().count(), 1, "one staged file: {inode}");
    cx.sh("mv mnt/t/.big mnt/t/big.parquet; cmp in/big.parquet mnt/t/big.parquet")
        .ok();
    let state = t.table.state();
    let stored = t.table.file(state.named("big.parquet"));
    let found = cx.sh(&format!("stat -c %i '{}'", stored.display())).ok();
    assert_eq!(found, inode, "the data file is the staged file");
}

/// PROTOCOL.md E: the oracle checks counts and bounds of every file; here, that they are there.
fn statistics(cx: &Cx) {
    let t = target(cx);
    let file = columns(vec![
        ("id", longs([Some(7), None, Some(-3)])),
        ("name", texts([Some("b"), Some("a"), None])),
        ("amount", doubles([Some(f64::NAN), Some(1.0), None])),
    ]);
    accepts(cx, "y.parquet", &file);
    let state = t.table.state();
    let stats: Value =
        serde_json::from_str(state.named("y.parquet")["stats"].as_str().unwrap()).unwrap();
    assert_eq!(stats["numRecords"], 3, "{stats}");
    assert_eq!(
        (&stats["minValues"]["id"], &stats["maxValues"]["id"]),
        (&json!(-3), &json!(7)),
        "{stats}"
    );
    assert_eq!(stats["minValues"]["name"], "a", "{stats}");
    assert_eq!(stats["maxValues"]["name"], "b", "{stats}");
    assert_eq!(
        stats["nullCount"],
        json!({"id": 1, "name": 1, "amount": 1}),
        "{stats}"
    );
    assert_eq!(
        stats["minValues"]["amount"],
        Value::Null,
        "no bounds beside NaN: {stats}"
    );
    let long = "é".repeat(100);
    accepts(
        cx,
        "z.parquet",
        &columns(vec![("name", texts([long.as_str()]))]),
    );
    let state = t.table.state();
    let stats: Value =
        serde_json::from_str(state.named("z.parquet")["stats"].as_str().unwrap()).unwrap();
    let (low, high) = (
        stats["minValues"]["name"].as_str(),
        stats["maxValues"]["name"].as_str(),
    );
    assert!(low.is_none_or(|low| *low <= *long), "{stats}");
    assert!(high.is_none_or(|high| *high >= *long), "{stats}");
}

fn refusal_is_in_last_and_in_rejected(cx: &Cx) {
    let _t = target(cx);
    let file = columns(vec![("id", longs([1])), ("surplus", texts(["x"]))]);
    refuses(cx, "y.parquet", &file, &["surplus"]);
    let last: Value = serde_json::from_str(&cx.sh("cat mnt/t/.delta/last").ok()).unwrap();
    assert!(
        last.get("version").is_none_or(Value::is_null),
        "nothing was committed: {last}"
    );
    for key in ["error", "message"] {
        assert!(last.get(key).is_some(), "`last` has `{key}`: {last}");
    }
    cx.sh("cp in/x.parquet mnt/t/").ok();
    let last: Value = serde_json::from_str(&cx.sh("cat mnt/t/.delta/last").ok()).unwrap();
    assert_eq!(
        last["version"], 1,
        "the outcome of the last operation: {last}"
    );
}
