//! Whether the stored bytes of a data file are what the table means: its columns under their logical names and
//! in their types (DESIGN.md §3).

use std::fs::File;

use parquet::basic::Type as Physical;

use super::adopt::{Inspected, inspect};
use super::conform::is_partition;
use super::convert::MappingMode;
use super::error::DataFileError;
use crate::schema::{
    DataType, Primitive, SchemaError, StructType, from_arrow_schema, from_arrow_type,
};

/// What a plain Parquet reader sees in the stored bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawView {
    /// The table's columns.
    Same,
    /// Something else, and what.
    Differs(String),
}

/// Some writers leave the change feed's column, empty, in data files; readers ignore it (PROTOCOL.md H).
const CHANGE_TYPE: &str = "_change_type";

/// Why stored names are not to be taken for the table's. The names alone don't tell: two columns may have
/// swapped theirs.
fn renamed(schema: &StructType, mapping: MappingMode) -> Option<String> {
    match mapping {
        MappingMode::None => None,
        MappingMode::Id => Some("its columns are mapped by id".to_owned()),
        MappingMode::Name => {
            let mut found = None;
            schema.any_field(&mut |f| {
                if f.physical_name() != f.name {
                    found = Some(format!(
                        "its column `{}` is stored under another name",
                        f.name
                    ));
                }
                found.is_some()
            });
            found
        }
    }
}

/// Compares the columns of `file` with the table's. Costs a read of the footer.
///
/// # Errors
/// [`DataFileError`] when the file is damaged.
pub fn raw_view(
    file: &File,
    schema: &StructType,
    partition_columns: &[String],
    mapping: MappingMode,
) -> Result<RawView, DataFileError> {
    if let Some(reason) = renamed(schema, mapping) {
        return Ok(RawView::Differs(reason));
    }
    let file = inspect(file)?;
    let int96 = int96_leaves(&file);
    let fields = file.schema.fields();
    for column in &schema.fields {
        if is_partition(partition_columns, &column.name) {
            continue;
        }
        let void = column.data_type == DataType::Primitive(Primitive::Void);
        match fields.iter().find(|f| *f.name() == column.name) {
            None if void => {}
            None => {
                return Ok(RawView::Differs(format!(
                    "it has no column `{}`",
                    column.name
                )));
            }
            Some(found) => {
                let same = match from_arrow_type(found.data_type()) {
                    Ok(found) => same_type(&found, &column.data_type, int96.contains(&column.name)),
                    // A type that Delta does not have can't be one of the table's.
                    Err(_) => false,
                };
                if !same {
                    return Ok(RawView::Differs(format!(
                        "its column `{}` is stored in another form than the table's {}",
                        column.name, column.data_type
                    )));
                }
            }
        }
    }
    let extra = fields
        .iter()
        .filter(|f| f.name() != CHANGE_TYPE)
        .find(|f| schema.fields.iter().all(|c| c.name != *f.name()));
    Ok(match extra {
        Some(field) => {
            RawView::Differs(format!("its column `{}` is not the table's", field.name()))
        }
        None => RawView::Same,
    })
}

/// The schema of a table that is made from a file.
///
/// # Errors
/// [`SchemaError`] names the column that no Delta table can hold.
pub fn table_schema(file: &Inspected) -> Result<StructType, SchemaError> {
    let mut schema = from_arrow_schema(&file.schema)?;
    let int96 = int96_leaves(file);
    for field in &mut schema.fields {
        if int96.contains(&field.name) {
            zoned(&mut field.data_type);
        }
    }
    Ok(schema)
}

/// INT96 is an instant.
fn zoned(data_type: &mut DataType) {
    match data_type {
        DataType::Primitive(p) if *p == Primitive::TimestampNtz => *p = Primitive::Timestamp,
        DataType::Primitive(_) => {}
        DataType::Struct(s) => s.fields.iter_mut().for_each(|f| zoned(&mut f.data_type)),
        DataType::Array(a) => zoned(&mut a.element_type),
        DataType::Map(m) => {
            zoned(&mut m.key_type);
            zoned(&mut m.value_type);
        }
    }
}

/// Top-level columns with an INT96 leaf: Arrow shows them without the zone that they have.
fn int96_leaves(file: &Inspected) -> Vec<String> {
    let schema = file.metadata.file_metadata().schema_descr();
    schema
        .columns()
        .iter()
        .filter(|leaf| leaf.physical_type() == Physical::INT96)
        .filter_map(|leaf| leaf.path().parts().first().cloned())
        .collect()
}

fn same_type(found: &DataType, wanted: &DataType, int96: bool) -> bool {
    match (found, wanted) {
        (DataType::Primitive(f), DataType::Primitive(w)) => {
            f == w || (int96 && *f == Primitive::TimestampNtz && *w == Primitive::Timestamp)
        }
        (DataType::Struct(f), DataType::Primitive(Primitive::Variant)) => {
            f.field("metadata").is_some() && f.field("value").is_some()
        }
        (DataType::Struct(f), DataType::Struct(w)) => {
            let stored = |name: &str| f.fields.iter().find(|c| c.name == name);
            f.fields
                .iter()
                .all(|c| w.fields.iter().any(|x| x.name == c.name))
                && w.fields.iter().all(|c| match stored(&c.name) {
                    Some(field) => same_type(&field.data_type, &c.data_type, int96),
                    None => c.data_type == DataType::Primitive(Primitive::Void),
                })
        }
        (DataType::Array(f), DataType::Array(w)) => {
            same_type(&f.element_type, &w.element_type, int96)
        }
        (DataType::Map(f), DataType::Map(w)) => {
            same_type(&f.key_type, &w.key_type, int96)
                && same_type(&f.value_type, &w.value_type, int96)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;

    use super::*;
    use crate::schema::{MAPPING_PHYSICAL_NAME, StructField};

    fn file(columns: Vec<(&str, ArrayRef)>) -> File {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut out = tempfile::tempfile().unwrap();
        let mut writer = ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        out
    }

    fn table(columns: &[(&str, Primitive)]) -> StructType {
        let field = |(name, p): &(&str, Primitive)| {
            StructField::new(*name, DataType::Primitive(p.clone()), true)
        };
        StructType {
            fields: columns.iter().map(field).collect(),
        }
    }

    fn same(file: &File, schema: &StructType, mapping: MappingMode) -> bool {
        raw_view(file, schema, &["p".to_owned()], mapping).unwrap() == RawView::Same
    }

    #[test]
    fn only_the_tables_own_columns_are_served_as_they_are() {
        let ints: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        let longs: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let stored = file(vec![("a", longs.clone()), ("b", texts.clone())]);
        let ab = table(&[("a", Primitive::Long), ("b", Primitive::String)]);
        assert!(same(&stored, &ab, MappingMode::None));
        // Another order is the same columns; a partition column and a void one are in no file.
        let ba = table(&[
            ("b", Primitive::String),
            ("p", Primitive::Long),
            ("v", Primitive::Void),
            ("a", Primitive::Long),
        ]);
        assert!(same(&stored, &ba, MappingMode::None));
        let added = table(&[
            ("a", Primitive::Long),
            ("b", Primitive::String),
            ("c", Primitive::Long),
        ]);
        assert!(!same(&stored, &added, MappingMode::None));
        assert!(!same(
            &stored,
            &table(&[("a", Primitive::Long)]),
            MappingMode::None
        ));
        assert!(!same(
            &stored,
            &table(&[("A", Primitive::Long), ("b", Primitive::String)]),
            MappingMode::None
        ));
        let narrow = file(vec![("a", ints), ("b", texts.clone())]);
        assert!(!same(&narrow, &ab, MappingMode::None), "widened since");
        let feed = file(vec![
            ("a", longs),
            ("b", texts.clone()),
            ("_change_type", texts),
        ]);
        assert!(same(&feed, &ab, MappingMode::None));
    }

    #[test]
    fn swapped_names_are_not_the_same_names() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let stored = file(vec![("a", texts.clone()), ("b", texts)]);
        let mut schema = table(&[("a", Primitive::String), ("b", Primitive::String)]);
        assert!(same(&stored, &schema, MappingMode::Name));
        assert!(!same(&stored, &schema, MappingMode::Id));
        for (field, physical) in schema.fields.iter_mut().zip(["b", "a"]) {
            field
                .metadata
                .insert(MAPPING_PHYSICAL_NAME.to_owned(), physical.into());
        }
        assert!(!same(&stored, &schema, MappingMode::Name));
    }
}
