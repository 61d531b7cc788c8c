use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, StringArray, StructArray};

use super::*;
use crate::error::{Failure, Kind};
use crate::schema::{ArrayType, Primitive};

fn field(name: &str, data_type: DataType, invariant: Option<&str>) -> StructField {
    let mut field = StructField::new(name, data_type, true);
    if let Some(sql) = invariant {
        let json = serde_json::json!({ "expression": { "expression": sql } });
        field
            .metadata
            .insert(INVARIANTS.to_owned(), json.to_string().into());
    }
    field
}

fn int() -> DataType {
    DataType::Primitive(Primitive::Integer)
}

fn schema(invariant: Option<&str>) -> StructType {
    StructType {
        fields: vec![
            field("x", int(), invariant),
            field("name", DataType::Primitive(Primitive::String), None),
        ],
    }
}

fn checks(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn rows(x: Vec<Option<i32>>) -> RecordBatch {
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(
        x.iter().map(|v| format!("n{}", v.unwrap_or_default())),
    ));
    let x: ArrayRef = Arc::new(Int32Array::from(x));
    RecordBatch::try_from_iter([("x", x), ("name", names)]).unwrap()
}

#[test]
fn a_table_without_conditions_has_none() {
    let settings = checks(&[("delta.appendOnly", "true"), ("delta.constraintsX", "no")]);
    assert!(
        Constraints::parse(&schema(None), &settings, 0)
            .unwrap()
            .is_none()
    );
}

#[test]
fn false_and_null_are_violations() {
    // D72
    let settings = checks(&[("delta.constraints.positive", "x > 0")]);
    let constraints = Constraints::parse(&schema(None), &settings, 0)
        .unwrap()
        .unwrap();
    assert!(constraints.check(&rows(vec![Some(1), Some(2)]), 0).is_ok());
    assert!(constraints.check(&rows(vec![]), 0).is_ok());
    let error = constraints
        .check(&rows(vec![Some(1), None]), 100)
        .unwrap_err();
    assert_eq!(
        error,
        EngineError::Violation {
            constraint: "positive".to_owned(),
            expression: "x > 0".to_owned(),
            row: 101,
            values: "x = NULL".to_owned(),
        }
    );
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(
        constraints
            .check(&rows(vec![Some(-5)]), 0)
            .unwrap_err()
            .to_string(),
        "row 0 violates constraint `positive` (x > 0): x = -5"
    );
}

#[test]
fn the_first_bad_row_is_shown() {
    let settings = checks(&[
        ("delta.constraints.a", "x < 10"),
        ("DELTA.Constraints.b", "x > 0 AND name <> 'n-1'"),
    ]);
    let constraints = Constraints::parse(&schema(None), &settings, 0)
        .unwrap()
        .unwrap();
    let error = constraints
        .check(&rows(vec![Some(1), Some(-1), Some(99)]), 0)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "row 1 violates constraint `b` (x > 0 AND name <> 'n-1'): x = -1, name = n-1"
    );
    assert_eq!(constraints.columns(), ["name", "x"]);
}

#[test]
fn invariants_hold_on_nullable_and_nested_columns() {
    // D73
    let constraints = Constraints::parse(&schema(Some("x > 3")), &BTreeMap::new(), 0)
        .unwrap()
        .unwrap();
    assert!(constraints.check(&rows(vec![Some(4)]), 0).is_ok());
    let error = constraints.check(&rows(vec![None]), 0).unwrap_err();
    assert!(matches!(error, EngineError::Violation { constraint, .. } if constraint == "x"));

    let nested = StructType {
        fields: vec![field(
            "st",
            DataType::Struct(StructType {
                fields: vec![field("y", int(), Some("st.y > 0"))],
            }),
            None,
        )],
    };
    let constraints = Constraints::parse(&nested, &BTreeMap::new(), 0)
        .unwrap()
        .unwrap();
    let y: ArrayRef = Arc::new(Int32Array::from(vec![1, 0]));
    let st: ArrayRef = Arc::new(StructArray::try_from(vec![("y", y)]).unwrap());
    let batch = RecordBatch::try_from_iter([("st", st)]).unwrap();
    assert_eq!(
        constraints.check(&batch, 0).unwrap_err().to_string(),
        "row 1 violates constraint `st.y` (st.y > 0): st = {y: 0}"
    );
}

#[test]
fn what_cannot_be_checked_refuses_the_table() {
    let unknown = checks(&[("delta.constraints.odd", "frobnicate(x) > 0")]);
    let error = Constraints::parse(&schema(None), &unknown, 0).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert_eq!(
        error.to_string(),
        "constraint `odd` cannot be checked: unknown function `frobnicate` at line 1, column 1"
    );
    let mut broken = schema(None);
    broken.fields[0]
        .metadata
        .insert(INVARIANTS.to_owned(), "not json".into());
    assert_eq!(
        Constraints::parse(&broken, &BTreeMap::new(), 0)
            .unwrap_err()
            .kind(),
        Kind::Unsupported
    );
    let below = StructType {
        fields: vec![StructField::new(
            "a",
            DataType::Array(Box::new(ArrayType {
                element_type: DataType::Struct(StructType {
                    fields: vec![field("y", int(), Some("y > 0"))],
                }),
                contains_null: true,
            })),
            true,
        )],
    };
    assert_eq!(
        Constraints::parse(&below, &BTreeMap::new(), 0)
            .unwrap_err()
            .kind(),
        Kind::Unsupported
    );
}
