//! Typed access to the columns of a checkpoint. A column that is absent reads as NULL; one of another type is an
//! error that names it. Where an action is NULL, so is all of it, also what its writer declared as required (as delta-rs
//! does): such columns have no NULLs of their own.

use std::collections::BTreeMap;

use arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, Int32Array, Int64Array, ListArray, MapArray,
    RecordBatch, StringArray, StructArray,
};
use arrow::buffer::NullBuffer;

use crate::log::LogError;

/// A struct column: an action or a part of one.
pub(super) struct Group<'a> {
    file: &'a str,
    path: String,
    array: &'a StructArray,
    /// Where it or what it is in is NULL.
    nulls: Option<NullBuffer>,
}

impl<'a> Group<'a> {
    pub(super) fn root(
        file: &'a str,
        batch: &'a RecordBatch,
        name: &str,
    ) -> Result<Option<Self>, LogError> {
        batch
            .column_by_name(name)
            .map(|array| Self::of(file, name.to_owned(), array, None))
            .transpose()
    }

    fn of(
        file: &'a str,
        path: String,
        array: &'a ArrayRef,
        around: Option<&NullBuffer>,
    ) -> Result<Self, LogError> {
        match array.as_struct_opt() {
            Some(array) => Ok(Group {
                file,
                path,
                array,
                nulls: NullBuffer::union(around, array.nulls()),
            }),
            None => Err(wrong_type(file, path, "a group", array)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.array.len()
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    pub(super) fn array(&self) -> &'a StructArray {
        self.array
    }

    fn column_path(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    pub(super) fn group(&self, name: &str) -> Result<Option<Group<'a>>, LogError> {
        self.array
            .column_by_name(name)
            .map(|array| {
                Self::of(
                    self.file,
                    self.column_path(name),
                    array,
                    self.nulls.as_ref(),
                )
            })
            .transpose()
    }

    /// A column with the array that `cast` sees in it.
    fn column<T>(
        &self,
        name: &str,
        expected: &'static str,
        cast: impl FnOnce(&'a ArrayRef) -> Option<T>,
    ) -> Result<Column<'a, T>, LogError> {
        let path = self.column_path(name);
        let array = match self.array.column_by_name(name) {
            None => None,
            Some(array) => match cast(array) {
                Some(array) => Some(array),
                None => return Err(wrong_type(self.file, path, expected, array)),
            },
        };
        Ok(Column {
            file: self.file,
            path,
            array,
            nulls: self.nulls.clone(),
        })
    }

    pub(super) fn text(&self, name: &str) -> Result<Column<'a, &'a StringArray>, LogError> {
        self.column(name, "a string", |a| a.as_string_opt())
    }

    pub(super) fn flag(&self, name: &str) -> Result<Column<'a, &'a BooleanArray>, LogError> {
        self.column(name, "a boolean", |a| a.as_boolean_opt())
    }

    pub(super) fn integer(&self, name: &str) -> Result<Column<'a, Integers<'a>>, LogError> {
        self.column(name, "an integer", |a| {
            a.as_primitive_opt()
                .map(Integers::Long)
                .or_else(|| a.as_primitive_opt().map(Integers::Int))
        })
    }

    pub(super) fn map(&self, name: &str) -> Result<Column<'a, Entries<'a>>, LogError> {
        self.column(name, "a map of strings", |a| {
            let map = a.as_map_opt()?;
            Some(Entries {
                map,
                keys: map.keys().as_string_opt()?,
                values: map.values().as_string_opt()?,
            })
        })
    }

    pub(super) fn list(&self, name: &str) -> Result<Column<'a, Items<'a>>, LogError> {
        self.column(name, "a list of strings", |a| {
            let list: &ListArray = a.as_list_opt()?;
            Some(Items {
                list,
                items: list.values().as_string_opt()?,
            })
        })
    }
}

/// One column of a group.
pub(super) struct Column<'a, T> {
    file: &'a str,
    path: String,
    array: Option<T>,
    /// Those of its group.
    nulls: Option<NullBuffer>,
}

pub(super) enum Integers<'a> {
    Int(&'a Int32Array),
    Long(&'a Int64Array),
}

pub(super) struct Entries<'a> {
    map: &'a MapArray,
    keys: &'a StringArray,
    values: &'a StringArray,
}

pub(super) struct Items<'a> {
    list: &'a ListArray,
    items: &'a StringArray,
}

impl<T> Column<'_, T> {
    /// The array, where its group is there.
    fn there(&self, row: usize) -> Option<&T> {
        let absent = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        self.array.as_ref().filter(|_| !absent)
    }

    pub(super) fn bad(&self, reason: &'static str) -> LogError {
        LogError::CheckpointColumn {
            file: self.file.to_owned(),
            column: self.path.clone(),
            reason: reason.to_owned(),
        }
    }

    pub(super) fn need<V>(&self, value: Option<V>) -> Result<V, LogError> {
        value.ok_or_else(|| self.bad("is NULL where a value is needed"))
    }
}

impl<'a> Column<'a, &'a StringArray> {
    pub(super) fn get(&self, row: usize) -> Option<&'a str> {
        let array = *self.there(row)?;
        array.is_valid(row).then(|| array.value(row))
    }

    pub(super) fn owned(&self, row: usize) -> Option<String> {
        self.get(row).map(str::to_owned)
    }
}

impl Column<'_, &BooleanArray> {
    pub(super) fn get(&self, row: usize) -> Option<bool> {
        let array = *self.there(row)?;
        array.is_valid(row).then(|| array.value(row))
    }
}

impl Column<'_, Integers<'_>> {
    pub(super) fn long(&self, row: usize) -> Option<i64> {
        match self.there(row)? {
            Integers::Int(array) => array.is_valid(row).then(|| array.value(row).into()),
            Integers::Long(array) => array.is_valid(row).then(|| array.value(row)),
        }
    }

    pub(super) fn int(&self, row: usize) -> Result<Option<i32>, LogError> {
        match self.long(row) {
            None => Ok(None),
            Some(value) => i32::try_from(value)
                .map(Some)
                .map_err(|_| self.bad("holds a number beyond 32 bits")),
        }
    }
}

impl Column<'_, Entries<'_>> {
    /// A map whose NULL values mean something.
    pub(super) fn get(
        &self,
        row: usize,
    ) -> Result<Option<BTreeMap<String, Option<String>>>, LogError> {
        self.collect(row, |key, value| Some((key, value)))
    }

    /// A map without NULL values.
    pub(super) fn present(&self, row: usize) -> Result<Option<BTreeMap<String, String>>, LogError> {
        self.collect(row, |key, value| Some((key, value?)))
    }

    fn collect<V>(
        &self,
        row: usize,
        entry: impl Fn(String, Option<String>) -> Option<(String, V)>,
    ) -> Result<Option<BTreeMap<String, V>>, LogError> {
        let Some(Entries { map, keys, values }) = self.there(row) else {
            return Ok(None);
        };
        if map.is_null(row) {
            return Ok(None);
        }
        let mut collected = BTreeMap::new();
        for at in range(map.value_offsets(), row) {
            if keys.is_null(at) {
                return Err(self.bad("has an entry without a key"));
            }
            let value = values.is_valid(at).then(|| values.value(at).to_owned());
            collected.extend(entry(keys.value(at).to_owned(), value));
        }
        Ok(Some(collected))
    }
}

impl Column<'_, Items<'_>> {
    pub(super) fn get(&self, row: usize) -> Result<Option<Vec<String>>, LogError> {
        let Some(Items { list, items }) = self.there(row) else {
            return Ok(None);
        };
        if list.is_null(row) {
            return Ok(None);
        }
        let mut collected = Vec::new();
        for at in range(list.value_offsets(), row) {
            if items.is_null(at) {
                return Err(self.bad("has an item that is NULL"));
            }
            collected.push(items.value(at).to_owned());
        }
        Ok(Some(collected))
    }
}

/// Arrow has checked that offsets ascend from 0 and end in the values.
fn range(offsets: &[i32], row: usize) -> std::ops::Range<usize> {
    let at = |index: usize| {
        let offset = offsets.get(index).copied().unwrap_or_default();
        usize::try_from(offset).unwrap_or_default()
    };
    at(row)..at(row + 1)
}

fn wrong_type(file: &str, column: String, expected: &'static str, found: &ArrayRef) -> LogError {
    LogError::CheckpointColumn {
        file: file.to_owned(),
        column,
        reason: format!("is {}, not {expected}", found.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Fields};

    use super::*;

    /// The columns of delta-rs: what an action must have is required, and holds nothing where the action is NULL.
    #[test]
    fn what_is_required_of_an_absent_action_is_absent() {
        let format: ArrayRef = Arc::new(StructArray::from(vec![(
            Arc::new(Field::new("provider", DataType::Utf8, false)),
            Arc::new(StringArray::from(vec!["", "parquet"])) as ArrayRef,
        )]));
        let fields = Fields::from(vec![
            Field::new("id", DataType::Utf8, false),
            Field::new("version", DataType::Int32, false),
            Field::new("flag", DataType::Boolean, false),
            Field::new("format", format.data_type().clone(), false),
        ]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec!["", "x"])),
            Arc::new(Int32Array::from(vec![0, 3])),
            Arc::new(BooleanArray::from(vec![false, true])),
            format,
        ];
        let nulls = NullBuffer::from(vec![false, true]);
        let action: ArrayRef = Arc::new(StructArray::new(fields, columns, Some(nulls)));
        let batch = RecordBatch::try_from_iter_with_nullable([("metaData", action, true)]).unwrap();
        let group = Group::root("f", &batch, "metaData").unwrap().unwrap();
        let format = group.group("format").unwrap().unwrap();
        let (id, provider) = (group.text("id").unwrap(), format.text("provider").unwrap());
        let version = group.integer("version").unwrap();
        let flag = group.flag("flag").unwrap();
        assert_eq!((id.get(0), id.get(1)), (None, Some("x")));
        assert_eq!((version.long(0), version.long(1)), (None, Some(3)));
        assert_eq!((flag.get(0), flag.get(1)), (None, Some(true)));
        assert_eq!((provider.get(0), provider.get(1)), (None, Some("parquet")));
        assert!(group.is_null(0) && format.is_null(0) && !format.is_null(1));
    }
}
