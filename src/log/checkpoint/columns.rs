//! Typed access to the columns of a checkpoint. A column that is absent reads as NULL; one of another type is an
//! error that names it.

use std::collections::BTreeMap;

use arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, Int32Array, Int64Array, ListArray, MapArray,
    RecordBatch, StringArray, StructArray,
};

use crate::log::LogError;

/// A struct column: an action or a part of one.
pub(super) struct Group<'a> {
    file: &'a str,
    path: String,
    array: &'a StructArray,
}

impl<'a> Group<'a> {
    pub(super) fn root(
        file: &'a str,
        batch: &'a RecordBatch,
        name: &str,
    ) -> Result<Option<Self>, LogError> {
        batch
            .column_by_name(name)
            .map(|array| Self::of(file, name.to_owned(), array))
            .transpose()
    }

    fn of(file: &'a str, path: String, array: &'a ArrayRef) -> Result<Self, LogError> {
        match array.as_struct_opt() {
            Some(array) => Ok(Group { file, path, array }),
            None => Err(wrong_type(file, path, "a group", array)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.array.len()
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row)
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
            .map(|array| Self::of(self.file, self.column_path(name), array))
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
        let array = self.array?;
        array.is_valid(row).then(|| array.value(row))
    }

    pub(super) fn owned(&self, row: usize) -> Option<String> {
        self.get(row).map(str::to_owned)
    }
}

impl Column<'_, &BooleanArray> {
    pub(super) fn get(&self, row: usize) -> Option<bool> {
        let array = self.array?;
        array.is_valid(row).then(|| array.value(row))
    }
}

impl Column<'_, Integers<'_>> {
    pub(super) fn long(&self, row: usize) -> Option<i64> {
        match self.array.as_ref()? {
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
        let Some(Entries { map, keys, values }) = &self.array else {
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
        let Some(Items { list, items }) = &self.array else {
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
