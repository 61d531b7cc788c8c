//! Whether a file fits a table, and how: taken over as it is, rewritten, or split by its partition values.

use std::collections::BTreeMap;

use arrow::array::new_empty_array;
use arrow::datatypes::{DataType as Arrow, Fields};

use super::adopt::Inspected;
use super::convert::{MappingMode, Path, Place, Rows, Rules, convert};
use super::error::DataFileError;
use super::physical;
use super::stats::StatsConfig;
use crate::schema::{DataType, Primitive, Scalar, StructField, StructType, partition::parse_value};

/// The table that a file is to join.
#[derive(Debug, Clone)]
pub struct Target {
    /// All columns, partition columns included.
    pub schema: StructType,
    /// Logical names.
    pub partition_columns: Vec<String>,
    /// Partition values that the directory fixes, by logical name, as text; not necessarily all.
    pub fixed: BTreeMap<String, Option<String>>,
    pub stats: StatsConfig,
    pub mapping: MappingMode,
    /// Columns of the table's files that are none of the table: left out of what comes in.
    pub hidden: Vec<String>,
    /// Data files hold the partition columns, too (feature `materializePartitionColumns`).
    pub materialized: bool,
}

impl Target {
    /// The columns that data files hold, in schema order.
    pub fn data_schema(&self) -> StructType {
        if self.materialized {
            self.schema.clone()
        } else {
            data_schema(&self.schema, &self.partition_columns)
        }
    }
}

/// `schema` without its partition columns.
pub(crate) fn data_schema(schema: &StructType, partition_columns: &[String]) -> StructType {
    let fields = schema.fields.iter();
    StructType {
        fields: fields
            .filter(|f| !is_partition(partition_columns, &f.name))
            .cloned()
            .collect(),
    }
}

pub(crate) fn is_partition(partition_columns: &[String], name: &str) -> bool {
    partition_columns.iter().any(|p| same_name(p, name))
}

/// Delta's column names ignore case.
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    a == b || a.to_lowercase() == b.to_lowercase()
}

/// What has to happen to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: any Delta reader reads it as the table's columns. Whether it has NULLs where it may not is
    /// not decided yet.
    Adopt,
    /// Its rows are written anew into one partition.
    Rewrite,
    /// Its rows are written anew, into a file for each of their partition values.
    Split,
}

/// How a file fits a table.
#[derive(Debug, Clone)]
pub struct Conformance {
    pub outcome: Outcome,
    pub(crate) partitions: Vec<Partition>,
}

/// One partition column of the rows.
#[derive(Debug, Clone)]
pub(crate) struct Partition {
    pub(crate) field: StructField,
    /// The value of every row; `None` when the rows bring their own.
    pub(crate) fixed: Option<Scalar>,
    /// The file has the column, too.
    pub(crate) in_file: bool,
}

/// Decides whether `file` fits `target`, by its schema alone.
///
/// Columns match by name at every depth, ignoring case, in any order. Missing nullable columns become NULL; a
/// partition column that neither file nor directory gives is an error: its rows would all be NULL there, and
/// nobody has said so.
///
/// A file whose columns have the physical names *and* the field ids of a mapped table, at every depth, is one of
/// its data files, whatever its names would mean otherwise (PROTOCOL.md C).
///
/// # Errors
/// The first column that does not fit: [`DataFileError::ExtraColumn`], [`DataFileError::Ambiguous`],
/// [`DataFileError::MissingRequired`], [`DataFileError::Type`] and its kin, [`DataFileError::NotPartition`].
pub fn conform(file: &Inspected, target: &Target) -> Result<Conformance, DataFileError> {
    let fixed = parse_fixed(target)?;
    let shown = file.schema.fields().iter();
    let shown: Fields = shown
        .filter(|f| !target.hidden.contains(f.name()))
        .cloned()
        .collect();
    let fields = &shown;
    if file.rows > 0 && fields.is_empty() {
        return Err(DataFileError::NoColumns);
    }
    let given = |name: &str| fixed.iter().any(|(f, _)| same_name(f, name));
    // Partition columns in the file would have to be compared with what the directory says.
    let comparable = target.materialized && !target.partition_columns.is_empty();
    let physical = !comparable
        && target.partition_columns.iter().all(|name| given(name))
        && physical::conforms(&file.metadata, &target.data_schema(), target.mapping);
    let mapped = physical && target.mapping != MappingMode::None;
    if !mapped {
        check_names(fields, &target.schema, None, &given)?;
        for field in &target.schema.fields {
            if let [index] = matches(fields, field).as_slice()
                && let Some(found) = fields.get(*index)
            {
                let at = Place {
                    path: Path::top(&field.name),
                    rows: Rows::From(0),
                };
                let empty = new_empty_array(found.data_type());
                convert(
                    &empty,
                    &field.data_type,
                    MappingMode::None,
                    Rules::Exact,
                    &at,
                )?;
            }
        }
    }
    let mut partitions = Vec::new();
    for name in &target.partition_columns {
        let field = target
            .schema
            .field(name)
            .ok_or_else(|| DataFileError::NotPartition {
                column: name.clone(),
            })?;
        let in_file = !mapped && !matches(fields, field).is_empty();
        let given = fixed.iter().find(|(f, _)| same_name(f, name));
        let value = match given {
            Some((_, value)) => Some(value.clone()),
            None if in_file || file.rows == 0 => None,
            None => {
                return Err(DataFileError::NoPartition {
                    column: field.name.clone(),
                });
            }
        };
        if value == Some(Scalar::Null) && !field.nullable && file.rows > 0 {
            return Err(DataFileError::Nulls {
                column: field.name.clone(),
                rows: file.rows,
            });
        }
        partitions.push(Partition {
            field: field.clone(),
            fixed: value,
            in_file,
        });
    }
    let outcome = if partitions.iter().any(|p| p.fixed.is_none()) {
        Outcome::Split
    } else if physical {
        Outcome::Adopt
    } else {
        Outcome::Rewrite
    };
    Ok(Conformance {
        outcome,
        partitions,
    })
}

fn parse_fixed(target: &Target) -> Result<Vec<(String, Scalar)>, DataFileError> {
    let mut fixed = Vec::with_capacity(target.fixed.len());
    for (name, text) in &target.fixed {
        let field = target
            .schema
            .field(name)
            .filter(|f| is_partition(&target.partition_columns, &f.name))
            .ok_or_else(|| DataFileError::NotPartition {
                column: name.clone(),
            })?;
        let value = parse_value(text.as_deref(), &field.data_type)?;
        fixed.push((field.name.clone(), value));
    }
    Ok(fixed)
}

/// The file's columns for one of the table.
fn matches(fields: &Fields, field: &StructField) -> Vec<usize> {
    let hits = fields.iter().enumerate();
    hits.filter(|(_, f)| same_name(f.name(), &field.name))
        .map(|(index, _)| index)
        .collect()
}

/// `given` says which top-level columns need not be in the file.
fn check_names(
    fields: &Fields,
    table: &StructType,
    parent: Option<&Path<'_>>,
    given: &dyn Fn(&str) -> bool,
) -> Result<(), DataFileError> {
    let path = |name: &str| match parent {
        Some(parent) => format!("{parent}.{name}"),
        None => name.to_owned(),
    };
    for found in fields {
        if !table
            .fields
            .iter()
            .any(|f| same_name(&f.name, found.name()))
        {
            return Err(DataFileError::ExtraColumn {
                column: path(found.name()),
            });
        }
    }
    for field in &table.fields {
        let hits = matches(fields, field);
        match hits.as_slice() {
            [] => {
                if !field.nullable && !given(&field.name) {
                    return Err(DataFileError::MissingRequired {
                        column: path(&field.name),
                    });
                }
            }
            [index] => {
                let inner = match parent {
                    Some(parent) => parent.join(&field.name),
                    None => Path::top(&field.name),
                };
                if let Some(found) = fields.get(*index) {
                    check_inner(found.data_type(), &field.data_type, &inner)?;
                }
            }
            several => {
                let names = several.iter().filter_map(|i| fields.get(*i));
                return Err(DataFileError::Ambiguous {
                    column: path(&field.name),
                    found: names
                        .map(|f| format!("`{}`", f.name()))
                        .collect::<Vec<_>>()
                        .join(", "),
                });
            }
        }
    }
    Ok(())
}

fn check_inner(found: &Arrow, table: &DataType, path: &Path<'_>) -> Result<(), DataFileError> {
    match (found, table) {
        (Arrow::Struct(fields), DataType::Struct(table)) => {
            check_names(fields, table, Some(path), &|_| false)
        }
        (Arrow::List(item), DataType::Array(array)) => {
            check_inner(item.data_type(), &array.element_type, &path.join("element"))
        }
        (Arrow::Map(entries, _), DataType::Map(map)) => match entries.data_type() {
            Arrow::Struct(kv) => match kv.iter().as_slice() {
                [key, value] => {
                    check_inner(key.data_type(), &map.key_type, &path.join("key"))?;
                    check_inner(value.data_type(), &map.value_type, &path.join("value"))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// `schema` as it is written: void columns are left out at every depth (PROTOCOL.md A4).
///
/// # Errors
/// [`DataFileError::Unwritable`] for types that no file holds, and where nothing would be left.
pub(crate) fn written_schema(schema: &StructType) -> Result<StructType, DataFileError> {
    written_struct(schema, None)
}

fn written_struct(
    schema: &StructType,
    parent: Option<&Path<'_>>,
) -> Result<StructType, DataFileError> {
    let mut fields = Vec::with_capacity(schema.fields.len());
    for field in &schema.fields {
        let path = match parent {
            Some(parent) => parent.join(&field.name),
            None => Path::top(&field.name),
        };
        if field.data_type == DataType::Primitive(Primitive::Void) {
            continue;
        }
        fields.push(StructField {
            data_type: written_type(&field.data_type, &path)?,
            ..field.clone()
        });
    }
    if fields.is_empty()
        && let Some(path) = parent
    {
        return Err(DataFileError::Unwritable {
            column: path.to_string(),
            found: DataType::Struct(schema.clone()).to_string(),
        });
    }
    Ok(StructType { fields })
}

fn written_type(data_type: &DataType, path: &Path<'_>) -> Result<DataType, DataFileError> {
    let mut made = data_type.clone();
    match &mut made {
        DataType::Primitive(Primitive::Void | Primitive::Variant | Primitive::Other(_)) => {
            return Err(DataFileError::Unwritable {
                column: path.to_string(),
                found: data_type.to_string(),
            });
        }
        DataType::Primitive(_) => {}
        DataType::Struct(fields) => *fields = written_struct(fields, Some(path))?,
        DataType::Array(array) => {
            array.element_type = written_type(&array.element_type, &path.join("element"))?;
        }
        DataType::Map(map) => {
            map.key_type = written_type(&map.key_type, &path.join("key"))?;
            map.value_type = written_type(&map.value_type, &path.join("value"))?;
        }
    }
    Ok(made)
}
