//! The seeds that the fuzzer starts from. Small, so that a change hits something that matters.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array,
    Int64Array, ListArray, MapBuilder, RecordBatch, StringArray, StringBuilder, StructArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, Int32Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};

use super::vector::HEAD;
use crate::deletion_vector::{RowSet, encode_rows, inline_vector, write_vectors};
use crate::log::{CheckpointOptions, LastCheckpoint, parse_commit, write_classic};

type Seed = (&'static str, String, Vec<u8>);

pub(super) fn all() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut put = |target, name: &str, bytes: Vec<u8>| {
        seeds.push((target, name.to_owned(), bytes));
    };
    commits(&mut put);
    checkpoints(&mut put);
    checksums(&mut put);
    hints(&mut put);
    vectors(&mut put);
    texts(&mut put);
    files(&mut put);
    seeds
}

type Put<'p> = &'p mut dyn FnMut(&'static str, &str, Vec<u8>);

const CREATE: &str = r#"{"commitInfo":{"timestamp":1700000000000,"operation":"CREATE TABLE","operationParameters":{"partitionBy":"[\"p\"]","isManaged":false},"isBlindAppend":true,"txnId":"t","more":[1,2.5,null,{"a":"b"}]}}
{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors","appendOnly"]}}
{"metaData":{"id":"i","name":"n","description":"d","format":{"provider":"parquet","options":{"a":"b"}},"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":["p"],"createdTime":1,"configuration":{"delta.appendOnly":"true"},"future":1}}"#;

const FILES: &str = r#"{"add":{"path":"p=a%20b/f.parquet","partitionValues":{"p":"a b","q":null},"size":1,"modificationTime":2,"dataChange":true,"stats":"{\"numRecords\":3,\"minValues\":{\"a\":1}}","tags":{"x":"y","z":null},"deletionVector":{"storageType":"u","pathOrInlineDv":"vBn[lx{q8@P<9BNH/isA","offset":1,"sizeInBytes":36,"cardinality":2},"baseRowId":0,"defaultRowCommitVersion":1,"clusteringProvider":"liquid","future":{"x":[1]}}}
{"remove":{"path":"g","deletionTimestamp":5,"dataChange":false,"extendedFileMetadata":true,"partitionValues":{},"size":9,"stats":"{}","tags":{},"baseRowId":7,"defaultRowCommitVersion":2}}
{"cdc":{"path":"_change_data/c","partitionValues":{"p":""},"size":4,"dataChange":false}}"#;

const OTHERS: &str = r#"{"txn":{"appId":"app","version":-3,"lastUpdated":4}}
{"domainMetadata":{"domain":"delta.rowTracking","configuration":"{\"rowIdHighWaterMark\":9}","removed":false}}
{"add":null,"remove":null,"txn":{"appId":"a","version":3}}
{}
{"zap":{"deep":[[[[[[{}]]]]]]}}"#;

fn commits(put: Put<'_>) {
    for (name, text) in [("create", CREATE), ("files", FILES), ("others", OTHERS)] {
        put("commit_json", name, text.into());
        put("json_manifest", name, text.into());
    }
    let deep = format!(
        r#"{{"commitInfo":{{"a":{}0{}}}}}"#,
        "[".repeat(120),
        "]".repeat(120)
    );
    put("commit_json", "deep", deep.into());
    for levels in [3, 20] {
        let private = private_names(levels);
        let unknown = format!(
            r#"{{"add":{{"path":"a","partitionValues":{{}},"size":1,"modificationTime":2,"dataChange":true,"x":{private}}}}}"#
        );
        let info = format!(r#"{{"commitInfo":{{"a":{private}}}}}"#);
        let other = format!(r#"{{"zap":{private},"add":null}}"#);
        let body = [unknown, info, other].join("\n");
        put(
            "commit_json",
            &format!("private_names_{levels}"),
            body.clone().into(),
        );
        put(
            "json_manifest",
            &format!("private_names_{levels}"),
            body.into(),
        );
    }
    let twice = r#"{"txn":{"appId":"a","appId":"b","version":1}}"#;
    put("commit_json", "twice", twice.into());
    let pointer = r#"{"checkpointMetadata":{"version":5,"tags":{"a":"b"}}}
{"sidecar":{"path":"a.parquet","sizeInBytes":100,"modificationTime":3,"tags":null}}"#;
    put("json_manifest", "v2", pointer.into());
}

fn checkpoints(put: Put<'_>) {
    let body = [CREATE, FILES, OTHERS].join("\n");
    let actions = parse_commit("f", body.as_bytes()).unwrap();
    let options = CheckpointOptions {
        write_stats_json: true,
        parsed: None,
    };
    let mut whole = Vec::new();
    write_classic(&mut whole, actions.into_iter(), &options).unwrap();
    put("checkpoint", "classic", whole);

    let text =
        |values: &[Option<&str>]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let long = |values: &[i64]| -> ArrayRef { Arc::new(Int64Array::from(values.to_vec())) };
    let group = |members: Vec<(&str, ArrayRef)>| -> ArrayRef {
        Arc::new(StructArray::from(
            members
                .into_iter()
                .map(|(name, array)| {
                    let field = Field::new(name, array.data_type().clone(), true);
                    (Arc::new(field), array)
                })
                .collect::<Vec<_>>(),
        ))
    };
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    map.keys().append_value("p");
    map.values().append_null();
    map.append(true).unwrap();
    map.append(true).unwrap();
    let adds = |more: Vec<(&'static str, ArrayRef)>| {
        let mut members = vec![
            ("path", text(&[Some("a"), Some("b")])),
            ("size", long(&[1, 2])),
            ("modificationTime", long(&[3, 4])),
            (
                "dataChange",
                Arc::new(BooleanArray::from(vec![true, false])) as ArrayRef,
            ),
        ];
        members.extend(more);
        vec![("add", group(members))]
    };
    let values: ArrayRef = Arc::new(map.finish());
    let vector = group(vec![
        ("storageType", text(&[Some("u"), None])),
        (
            "pathOrInlineDv",
            text(&[Some("vBn[lx{q8@P<9BNH/isA"), None]),
        ),
        (
            "offset",
            Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef,
        ),
        (
            "sizeInBytes",
            Arc::new(Int32Array::from(vec![36, 0])) as ArrayRef,
        ),
        ("cardinality", long(&[2, 0])),
    ]);
    let bounds = |times: ArrayRef| {
        group(vec![
            ("l", long(&[1, 2])),
            (
                "d",
                Arc::new(Date32Array::from(vec![1, i32::MAX])) as ArrayRef,
            ),
            ("t", times),
            (
                "f",
                Arc::new(Float64Array::from(vec![f64::NAN, -0.0])) as ArrayRef,
            ),
            (
                "n",
                Arc::new(
                    Decimal128Array::from(vec![12, -5])
                        .with_precision_and_scale(10, 2)
                        .unwrap(),
                ) as ArrayRef,
            ),
        ])
    };
    let times: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from(vec![-1, i64::MAX]).with_timezone("UTC"));
    let parsed = group(vec![
        ("numRecords", long(&[5, 6])),
        ("minValues", bounds(times)),
        ("nullCount", group(vec![("l", long(&[0, 1]))])),
    ]);
    let partition = ("partitionValues", values);
    put(
        "checkpoint",
        "adds",
        small(&adds(vec![partition.clone()]), plain()),
    );
    put(
        "checkpoint",
        "vector",
        small(
            &adds(vec![partition.clone(), ("deletionVector", vector)]),
            plain(),
        ),
    );
    put(
        "checkpoint",
        "parsed",
        small(&adds(vec![partition, ("stats_parsed", parsed)]), plain()),
    );
    let sidecars = vec![
        (
            "checkpointMetadata",
            group(vec![("version", long(&[7, 7]))]),
        ),
        (
            "sidecar",
            group(vec![
                ("path", text(&[Some("s.parquet"), None])),
                ("sizeInBytes", long(&[1, 2])),
                ("modificationTime", long(&[1, 2])),
            ]),
        ),
    ];
    put("checkpoint", "sidecars", small(&sidecars, plain()));
    let lists: ArrayRef = {
        let mut list = arrow::array::ListBuilder::new(StringBuilder::new());
        list.append_value([Some("deletionVectors")]);
        list.append_null();
        Arc::new(list.finish())
    };
    let protocol = vec![
        (
            "protocol",
            group(vec![
                (
                    "minReaderVersion",
                    Arc::new(Int32Array::from(vec![3, 1])) as ArrayRef,
                ),
                (
                    "minWriterVersion",
                    Arc::new(Int32Array::from(vec![7, 2])) as ArrayRef,
                ),
                ("readerFeatures", Arc::clone(&lists)),
                ("writerFeatures", lists),
            ]),
        ),
        (
            "txn",
            group(vec![
                ("appId", text(&[Some("a"), None])),
                ("version", long(&[1, 2])),
            ]),
        ),
    ];
    let properties = plain().set_writer_version(WriterVersion::PARQUET_2_0);
    put("checkpoint", "protocol", small(&protocol, properties));
}

/// No compression, no statistics: most bytes mean something.
fn plain() -> parquet::file::properties::WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by(String::new())
}

fn small(
    columns: &[(&str, ArrayRef)],
    properties: parquet::file::properties::WriterPropertiesBuilder,
) -> Vec<u8> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), array.is_nullable()))
        .collect();
    let arrays = columns.iter().map(|(_, array)| Arc::clone(array)).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let mut bytes = Vec::new();
    let options = ArrowWriterOptions::new()
        .with_skip_arrow_metadata(true)
        .with_properties(properties.build());
    let mut writer =
        ArrowWriter::try_new_with_options(&mut bytes, batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// Documents in strings in documents, by the name that `serde_json::Value` opens them at: each level of the text is
/// a hundred of the value.
fn private_names(levels: usize) -> String {
    let mut document = "1".to_owned();
    for _ in 0..levels {
        let inner = document.replace('\\', "\\u005c").replace('"', "\\u0022");
        document = format!(
            r#"{}{{"$serde_json::private::RawValue":"{inner}"}}{}"#,
            "[".repeat(100),
            "]".repeat(100)
        );
    }
    document
}

/// Of the actions above, as a checksum has them.
fn checksums(put: Put<'_>) {
    let member = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line.as_object()
            .unwrap()
            .values()
            .next()
            .unwrap()
            .to_string()
    };
    let lines: Vec<String> = CREATE.lines().map(member).collect();
    let required = format!(
        r#""tableSizeBytes":10,"numFiles":1,"numMetadata":1,"numProtocol":1,"metadata":{},"protocol":{}"#,
        lines[2], lines[1]
    );
    put("crc", "required", format!("{{{required}}}").into());
    let bins = r#""sortedBinBoundaries":[0,8192],"fileCounts":[1,0],"totalBytes":[10,0]"#;
    let counts = r#""numDeletedRecordsOpt":2,"numDeletionVectorsOpt":1,"deletedRecordCountsHistogramOpt":{"deletedRecordCounts":[0,1,0,0,0,0,0,0,0,0]}"#;
    put(
        "crc",
        "counts",
        format!(r#"{{{required},"histogramOpt":{{{bins}}},{counts}}}"#).into(),
    );
    let all = format!(
        r#""txnId":"t","inCommitTimestampOpt":5,"setTransactions":[{}],"domainMetadata":[{}],"fileSizeHistogram":{{{bins}}},"allFiles":[{}],"more":{{"x":[1]}}"#,
        member(OTHERS.lines().next().unwrap()),
        member(OTHERS.lines().nth(1).unwrap()),
        member(FILES.lines().next().unwrap()),
    );
    put("crc", "all", format!("{{{required},{all}}}").into());
    let private = private_names(20);
    put(
        "crc",
        "private_names",
        format!(r#"{{{required},"x":{private}}}"#).into(),
    );
}

fn hints(put: Put<'_>) {
    let private = format!(r#"{{"version":1,"tags":{{"a":{}}}}}"#, private_names(20));
    put("last_checkpoint", "private_names", private.into());
    let full = r#"{"version":20,"size":5,"parts":2,"sizeInBytes":27370,"numOfAddFiles":1,"tags":{"a":"b","c":[1,{"d":null}],"e~f":true}}"#;
    let full = LastCheckpoint::parse(full.as_bytes()).unwrap();
    put("last_checkpoint", "full", full.to_json().into());
    let bare = LastCheckpoint {
        version: 3,
        ..LastCheckpoint::default()
    };
    put("last_checkpoint", "bare", bare.to_json().into());
    let spark = r#"{"version":10,"size":12,"sizeInBytes":100,"numOfAddFiles":2,"checkpointSchema":{"type":"struct","fields":[{"name":"txn","type":"string","nullable":true,"metadata":{}}]},"v2Checkpoint":{"path":"x","sizeInBytes":1}}"#;
    put("last_checkpoint", "spark", spark.into());
    put(
        "last_checkpoint",
        "wrong",
        br#"{"version":1,"checksum":"00"}"#.to_vec(),
    );
    put(
        "last_checkpoint",
        "odd",
        br#"{"version":3,"size":"x","parts":-1,"tags":[]}"#.to_vec(),
    );
}

fn vectors(put: Put<'_>) {
    let sparse = RowSet::from_iter([0, 5, 70_000, 1 << 33]);
    let mut runs = RowSet::new();
    runs.insert_range(10..5000);
    runs.insert_range(1 << 32..(1 << 32) + 3);
    let dense: RowSet = (0..9000).step_by(2).collect();
    for (name, rows) in [("sparse", &sparse), ("runs", &runs), ("dense", &dense)] {
        let mut whole = vec![0; HEAD];
        whole[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        whole.extend(encode_rows(rows));
        put("vector_file", name, whole);
        let inline = inline_vector(rows).unwrap();
        put("vector_inline", name, serde_json::to_vec(&inline).unwrap());
    }
    let file = write_vectors(uuid::Uuid::nil(), "", &[&sparse, &runs]).unwrap();
    for (name, descriptor) in ["first", "second"].into_iter().zip(&file.descriptors) {
        let mut bytes = descriptor.offset.unwrap().to_le_bytes().to_vec();
        bytes.extend(descriptor.size_in_bytes.to_le_bytes());
        bytes.extend(descriptor.cardinality.to_le_bytes());
        bytes.extend((1_u64 << 40).to_le_bytes());
        bytes.extend(&file.bytes);
        put("vector_file", name, bytes);
        put(
            "vector_inline",
            name,
            serde_json::to_vec(descriptor).unwrap(),
        );
    }
    for (name, text) in [
        (
            "prefix",
            r#"{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6}"#,
        ),
        (
            "absolute",
            r#"{"storageType":"p","pathOrInlineDv":"file:///a/b%20c.bin","offset":0,"sizeInBytes":40,"cardinality":6}"#,
        ),
        (
            "climb",
            r#"{"storageType":"u","pathOrInlineDv":"../../vBn[lx{q8@P<9BNH/isA","sizeInBytes":40,"cardinality":6}"#,
        ),
        (
            "empty",
            r#"{"storageType":"i","pathOrInlineDv":"","sizeInBytes":0,"cardinality":0}"#,
        ),
        (
            "negative",
            r#"{"storageType":"i","pathOrInlineDv":"","offset":-1,"sizeInBytes":-1,"cardinality":-1}"#,
        ),
    ] {
        put("vector_inline", name, text.into());
    }
    for (name, text) in [
        ("hello", "HelloWorld"),
        ("tail", "HelloWorld###01"),
        ("full", "%nSc0"),
        ("over", "#####"),
        ("uuid", "vBn[lx{q8@P<9BNH/isA"),
        ("bytes", "\0\u{1}\u{7f}ÿ"),
    ] {
        put("z85", name, text.into());
    }
}

fn texts(put: Put<'_>) {
    for (name, text) in [
        ("hive", "p=a%253Ab/q=__HIVE_DEFAULT_PARTITION__/f.parquet"),
        ("uri", "file:///w/t/x%20y/f.parquet"),
        ("absolute", "/w/t/./x//f"),
        ("odd_table", "/w/a%20b%2520%C3%BC/t/f"),
        ("climb", "a/%2E%2E/../x"),
        ("foreign", "s3a://bucket/key+1"),
        ("scheme", "./a:b"),
        ("escape", "a%00b%zz%C3"),
        ("pair", "a=b/c\n..%/:é\u{1}\""),
        ("null", "p\n__HIVE_DEFAULT_PARTITION__"),
    ] {
        put("paths", name, text.into());
    }
    for (name, text) in [
        ("integer", "-9223372036854775808"),
        ("plus", "+0"),
        ("decimal", "-0.10"),
        ("exponent", "1.50E+3"),
        ("float", "1.17549435E-38"),
        ("infinity", "-Infinity"),
        ("nan", "NaN"),
        ("boolean", "TRUE"),
        ("date", "1969-12-31"),
        ("far_date", "+262142-12-31"),
        ("old_date", "-0001-02-03"),
        ("zoned", "2020-01-01T01:00:00.123456+01:30"),
        ("utc", "1582-10-04T23:59:60.999999999Z"),
        ("ntz", "2020-01-01 00:00:00.5"),
        ("binary", "a\\u0001\\u00ff\\u005cu0041\\uzz"),
    ] {
        put("partition_values", name, text.into());
    }
    for (name, text) in [
        (
            "full",
            r#"{"numRecords":3,"tightBounds":false,"minValues":{"a":1,"b":"x\u0000","c":{"d":-0.0,"e":"2020-01-01T00:00:00.000Z"}},"maxValues":{"a":9.0,"b":"y","c":{"d":1e300,"e":"2020-01-01"}},"nullCount":{"a":0,"b":2,"c":{"d":3}}}"#,
        ),
        (
            "text",
            r#"{"numRecords":"3","minValues":{"a":"12.50","b":null},"nullCount":{"a":1e0}}"#,
        ),
        (
            "twice",
            r#"{"numRecords":1,"minValues":{"a":1,"a":{"b":2}},"maxValues":[1]}"#,
        ),
        (
            "deep",
            r#"{"minValues":{"a":{"a":{"a":{"a":{"a":{"a":true}}}}}}}"#,
        ),
    ] {
        put("stats", name, text.into());
    }
    let field = |inner: &str| {
        format!(
            r#"{{"type":"struct","fields":[{{"name":"a","type":{inner},"nullable":true,"metadata":{{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1","comment":"é"}}}}]}}"#
        )
    };
    put("schema", "plain", field(r#""decimal(10,2)""#).into());
    put(
        "schema",
        "array",
        field(r#"{"type":"array","elementType":"timestamp_ntz","containsNull":false}"#).into(),
    );
    put("schema", "map", field(r#"{"type":"map","keyType":"string","valueType":{"type":"udt","class":"c","sqlType":"binary"},"valueContainsNull":true}"#).into());
    put(
        "schema",
        "nested",
        field(&field(r#""interval year""#)).into(),
    );
    let mut deep = r#""long""#.to_owned();
    for _ in 0..40 {
        deep = format!(r#"{{"type":"array","elementType":{deep},"containsNull":true}}"#);
    }
    put("schema", "deep", field(&deep).into());
    let private = field(r#""long""#).replace(r#""é""#, &private_names(20));
    put("schema", "private_names", private.into());
}

fn files(put: Put<'_>) {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let names: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("a")]));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
    ]));
    let x: ArrayRef = Arc::new(Float64Array::from(vec![Some(0.5), None, Some(f64::NAN)]));
    let whole = [
        ("id", Arc::clone(&ids)),
        ("name", Arc::clone(&names)),
        ("list", lists),
        ("x", Arc::clone(&x)),
    ];
    put("data_file", "whole", small(&whole, plain()));
    let page_2 = plain().set_writer_version(WriterVersion::PARQUET_2_0);
    put("data_file", "page_2", small(&whole, page_2));
    let stats = WriterProperties::builder().set_compression(Compression::SNAPPY);
    put("data_file", "snappy", small(&whole[..2], stats));
    for (name, codec) in [
        ("brotli", Compression::BROTLI(Default::default())),
        ("gzip", Compression::GZIP(Default::default())),
        ("lz4", Compression::LZ4),
        ("lz4_raw", Compression::LZ4_RAW),
        ("zstd", Compression::ZSTD(Default::default())),
    ] {
        put(
            "data_file",
            name,
            small(&whole[..2], plain().set_compression(codec)),
        );
    }
    put(
        "data_file",
        "narrow",
        small(&[("ID", narrow), ("x", x)], plain()),
    );
    let odd = [
        (
            "d",
            Arc::new(
                Decimal128Array::from(vec![1, 2, 3])
                    .with_precision_and_scale(20, 3)
                    .unwrap(),
            ) as ArrayRef,
        ),
        (
            "t",
            Arc::new(TimestampMicrosecondArray::from(vec![1, 2, 3])) as ArrayRef,
        ),
        (
            "b",
            Arc::new(BooleanArray::from(vec![Some(true), None, None])) as ArrayRef,
        ),
    ];
    put("data_file", "odd", small(&odd, plain()));
    put(
        "data_file",
        "empty",
        small(&[("id", ids.slice(0, 0))], plain()),
    );
    // The frame is checked before anything else.
    put("data_file", "frame", b"PAR1\0\0\0\0PAR1".to_vec());
}
