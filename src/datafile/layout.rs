//! Where new data files go (PROTOCOL.md E). Directories are cosmetic: nobody parses them.

use uuid::Uuid;

use crate::log::PartitionValues;
use crate::schema::StructType;
use crate::schema::partition::{dir_name, encode_path};

/// What file systems accept as one name, in bytes.
const MAX_NAME: usize = 255;

/// The place of a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Relative to the table, as it is on the disk.
    pub relative: String,
    /// The text for `add.path`.
    pub add_path: String,
}

/// A name in the form that Spark gives its files.
pub fn new_file_name(id: Uuid) -> String {
    format!("part-00000-{id}.c000.snappy.parquet")
}

/// The place of `file_name` among the directories of its partition values (by physical name), in the order of
/// `partition_columns`. With `prefix` (`delta.randomizeFilePrefixes`, column mapping) that one directory stands
/// instead. Where a value is too long for a name, the file goes to the table's root.
pub fn location(
    file_name: &str,
    schema: &StructType,
    partition_columns: &[String],
    values: &PartitionValues,
    prefix: Option<&str>,
) -> Location {
    let mut parts: Vec<String> = match prefix {
        Some(prefix) => vec![prefix.to_owned()],
        None => partition_columns
            .iter()
            .map(|name| {
                let physical = schema
                    .field(name)
                    .map_or(name.as_str(), |f| f.physical_name());
                let value = values.get(physical).and_then(Option::as_deref);
                dir_name(name, value)
            })
            .collect(),
    };
    if parts.iter().any(|part| part.len() > MAX_NAME) {
        parts.clear();
    }
    parts.push(file_name.to_owned());
    let relative = parts.join("/");
    Location {
        add_path: encode_path(&relative),
        relative,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::partition::decode_path;
    use crate::schema::{DataType, Primitive, StructField};

    fn schema() -> StructType {
        let string = || DataType::Primitive(Primitive::String);
        StructType {
            fields: vec![
                StructField::new("p", string(), true),
                StructField::new("q", string(), true),
            ],
        }
    }

    fn place(p: Option<&str>, q: Option<&str>) -> Location {
        let values = PartitionValues::from([
            ("p".to_owned(), p.map(str::to_owned)),
            ("q".to_owned(), q.map(str::to_owned)),
        ]);
        let columns = ["p".to_owned(), "q".to_owned()];
        location("f.parquet", &schema(), &columns, &values, None)
    }

    #[test]
    fn odd_values_are_encoded_once_for_the_disk_and_once_for_the_log() {
        // D55, D56
        let place = place(Some("a/b:c é"), None);
        assert_eq!(
            place.relative,
            "p=a%2Fb%3Ac é/q=__HIVE_DEFAULT_PARTITION__/f.parquet"
        );
        assert!(place.add_path.starts_with("p=a%252Fb%253Ac%20%C3%A9/"));
        assert_eq!(decode_path(&place.add_path), Some(place.relative));
    }

    #[test]
    fn a_value_too_long_for_a_name_has_no_directory() {
        let place = place(Some(&"x".repeat(300)), Some("y"));
        assert_eq!(place.relative, "f.parquet");
    }

    #[test]
    fn a_prefix_replaces_the_partition_directories() {
        let columns = ["p".to_owned()];
        let values = PartitionValues::new();
        let place = location("f", &schema(), &columns, &values, Some("aB"));
        assert_eq!(place.relative, "aB/f");
    }

    #[test]
    fn names_look_like_sparks() {
        let name = new_file_name(Uuid::from_u128(1));
        assert_eq!(
            name,
            "part-00000-00000000-0000-0000-0000-000000000001.c000.snappy.parquet"
        );
    }
}
