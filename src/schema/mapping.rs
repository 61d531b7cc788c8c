//! Column mapping in the schema: ids and physical names at every depth (PROTOCOL.md C).

use std::collections::HashSet;

use super::field::{DataType, MAPPING_ID, MAPPING_PHYSICAL_NAME, StructField, StructType};

/// Property of the mode: `none`, `name` or `id`.
pub const MAPPING_MODE: &str = "delta.columnMapping.mode";
/// Property of the highest id that was ever given.
pub const MAX_COLUMN_ID: &str = "delta.columnMapping.maxColumnId";

/// Characters that Delta takes in column names only with column mapping (PROTOCOL.md C).
pub const FORBIDDEN: &[char] = &[' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='];

/// A mapping that does not say which column of a file a column is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingFault {
    #[error("column `{0}` has no id")]
    NoId(String),
    #[error("column `{0}` has no physical name")]
    NoName(String),
    #[error("two columns have the id {id}, one of them `{column}`")]
    SameId { id: i64, column: String },
    #[error("two columns have the physical name `{name}`, one of them `{column}`")]
    SameName { name: String, column: String },
    #[error("column `{column}` has the id {id}, above {MAX_COLUMN_ID} ({max})")]
    AboveMax { id: i64, column: String, max: i64 },
    #[error("{MAX_COLUMN_ID} is missing or no number")]
    NoMax,
}

/// Gives every field at any depth an id from `last_id` on and a physical name: its own where every Parquet
/// reader takes it, else one that `unique` makes. Returns the last id given.
///
/// # Why physical names that can be read
/// The protocol wants them unique, not random. Files whose columns have the table's names are served as they are
/// and can be read by any Parquet reader. A name is never used twice: who drops a column and adds one of the same
/// name has to make a new physical name.
pub fn assign(schema: &mut StructType, last_id: i64, unique: &mut dyn FnMut() -> String) -> i64 {
    let mut last = last_id;
    for field in &mut schema.fields {
        last = last.saturating_add(1);
        let plain = !field.name.contains(FORBIDDEN);
        let physical = if plain {
            field.name.clone()
        } else {
            format!("col-{}", unique())
        };
        field.metadata.insert(MAPPING_ID.to_owned(), last.into());
        field
            .metadata
            .insert(MAPPING_PHYSICAL_NAME.to_owned(), physical.into());
        last = assign_type(&mut field.data_type, last, unique);
    }
    last
}

fn assign_type(data_type: &mut DataType, last: i64, unique: &mut dyn FnMut() -> String) -> i64 {
    match data_type {
        DataType::Primitive(_) => last,
        DataType::Struct(fields) => assign(fields, last, unique),
        DataType::Array(array) => assign_type(&mut array.element_type, last, unique),
        DataType::Map(map) => {
            let last = assign_type(&mut map.key_type, last, unique);
            assign_type(&mut map.value_type, last, unique)
        }
    }
}

/// Fails when a field lacks its id or its physical name, or shares one. `max` is the table's `maxColumnId`.
///
/// # Errors
/// [`MappingFault`], for the first such column.
pub fn check(schema: &StructType, max: Option<i64>) -> Result<(), MappingFault> {
    let max = max.ok_or(MappingFault::NoMax)?;
    let mut ids = HashSet::new();
    check_struct(schema, None, &mut |field, path| {
        let id = field
            .mapping_id()
            .ok_or_else(|| MappingFault::NoId(path.to_owned()))?;
        if !ids.insert(id) {
            let column = path.to_owned();
            return Err(MappingFault::SameId { id, column });
        }
        if id > max {
            let column = path.to_owned();
            return Err(MappingFault::AboveMax { id, column, max });
        }
        Ok(())
    })
}

type Visit<'v> = dyn FnMut(&StructField, &str) -> Result<(), MappingFault> + 'v;

fn check_struct(
    schema: &StructType,
    parent: Option<&str>,
    visit: &mut Visit<'_>,
) -> Result<(), MappingFault> {
    let mut names = HashSet::new();
    for field in &schema.fields {
        let path = match parent {
            Some(parent) => format!("{parent}.{}", field.name),
            None => field.name.clone(),
        };
        if !field.metadata.contains_key(MAPPING_PHYSICAL_NAME) {
            return Err(MappingFault::NoName(path));
        }
        if !names.insert(field.physical_name()) {
            let name = field.physical_name().to_owned();
            return Err(MappingFault::SameName { name, column: path });
        }
        visit(field, &path)?;
        check_type(&field.data_type, &path, visit)?;
    }
    Ok(())
}

fn check_type(data_type: &DataType, path: &str, visit: &mut Visit<'_>) -> Result<(), MappingFault> {
    match data_type {
        DataType::Primitive(_) => Ok(()),
        DataType::Struct(fields) => check_struct(fields, Some(path), visit),
        DataType::Array(array) => {
            check_type(&array.element_type, &format!("{path}.element"), visit)
        }
        DataType::Map(map) => {
            check_type(&map.key_type, &format!("{path}.key"), visit)?;
            check_type(&map.value_type, &format!("{path}.value"), visit)
        }
    }
}

/// A column with another physical name than its own, if there is one.
pub fn unmapped_name(schema: &StructType) -> Option<String> {
    let mut found = None;
    schema.any_field(&mut |f| {
        if f.physical_name() != f.name {
            found = Some(f.name.clone());
        }
        found.is_some()
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested() -> StructType {
        StructType::from_json(
            r#"{"type":"struct","fields":[
            {"name":"id","type":"long","nullable":true,"metadata":{}},
            {"name":"a b","type":{"type":"struct","fields":[
                {"name":"x","type":"string","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},
            {"name":"m","type":{"type":"map","keyType":{"type":"struct","fields":[
                {"name":"k","type":"long","nullable":true,"metadata":{}}]},"valueType":{"type":"array","elementType":
                {"type":"struct","fields":[{"name":"v","type":"long","nullable":true,"metadata":{}}]},
                "containsNull":true},"valueContainsNull":true},"nullable":true,"metadata":{}}]}"#,
        )
        .unwrap()
    }

    fn mapped() -> (StructType, i64) {
        let mut schema = nested();
        let mut made = 0;
        let last = assign(&mut schema, 0, &mut || {
            made += 1;
            format!("u{made}")
        });
        (schema, last)
    }

    #[test]
    fn every_field_at_any_depth_gets_an_id_and_a_name() {
        let (schema, last) = mapped();
        assert_eq!(last, 6);
        check(&schema, Some(6)).unwrap();
        let mut seen = Vec::new();
        schema.any_field(&mut |f| {
            seen.push((f.mapping_id().unwrap(), f.physical_name().to_owned()));
            false
        });
        let names = ["id", "col-u1", "x", "m", "k", "v"];
        let wanted = (1..).zip(names.map(str::to_owned)).collect::<Vec<_>>();
        assert_eq!(seen, wanted);
        assert_eq!(unmapped_name(&schema), Some("a b".to_owned()));
        assert_eq!(unmapped_name(&nested()), None);
    }

    #[test]
    fn a_mapping_that_leaves_a_column_open_is_found() {
        let (schema, _) = mapped();
        assert_eq!(check(&schema, None), Err(MappingFault::NoMax));
        assert!(matches!(
            check(&schema, Some(5)),
            Err(MappingFault::AboveMax { id: 6, .. })
        ));
        assert_eq!(
            check(&nested(), Some(9)),
            Err(MappingFault::NoName("id".to_owned()))
        );
        let mut twice = schema.clone();
        twice.fields[2]
            .metadata
            .insert(MAPPING_ID.to_owned(), 1.into());
        assert!(matches!(
            check(&twice, Some(6)),
            Err(MappingFault::SameId { id: 1, .. })
        ));
        let mut twice = schema.clone();
        twice.fields[2]
            .metadata
            .insert(MAPPING_PHYSICAL_NAME.to_owned(), "id".into());
        assert!(matches!(
            check(&twice, Some(6)),
            Err(MappingFault::SameName { .. })
        ));
        let mut bare = schema;
        bare.fields[0].metadata.remove(MAPPING_ID);
        assert_eq!(
            check(&bare, Some(6)),
            Err(MappingFault::NoId("id".to_owned()))
        );
    }
}
