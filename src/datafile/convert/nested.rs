//! Structs, lists and maps.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, OffsetSizeTrait, StructArray, UInt64Array,
    new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType as Arrow, Field, Fields};

use super::{
    MappingMode, Place, Rows, Rules, cast, convert, find, mask, relaxed_fields, relaxed_type,
    type_error,
};
use crate::datafile::error::DataFileError;
use crate::schema::{ArrayType, DataType, MapType, Primitive, StructType};

#[derive(Debug, Clone, Copy)]
pub(super) struct Cx {
    pub(super) mode: MappingMode,
    pub(super) rules: Rules,
}

/// The `key_value` field of a map.
pub(super) fn entries_field(key: Arrow, value: Arrow, value_nullable: bool) -> Field {
    Field::new(
        "key_value",
        Arrow::Struct(Fields::from(vec![
            Field::new("key", key, false),
            Field::new("value", value, value_nullable),
        ])),
        false,
    )
}

pub(super) fn to_struct(
    array: &ArrayRef,
    to: &StructType,
    cx: Cx,
    at: &Place<'_>,
) -> Result<ArrayRef, DataFileError> {
    let Some(from) = array.as_struct_opt() else {
        return Err(type_error(array, &DataType::Struct(to.clone()), at));
    };
    let mut columns = Vec::with_capacity(to.fields.len());
    for field in &to.fields {
        columns.push(match find(from.fields(), field, cx.mode) {
            Some(index) => {
                let inner = Place {
                    path: at.path.join(&field.name),
                    rows: at.rows,
                };
                let child = mask(from.column(index), from.nulls())?;
                convert(&child, &field.data_type, cx.mode, cx.rules, &inner)?
            }
            None => new_null_array(&relaxed_type(&field.data_type)?, from.len()),
        });
    }
    let nulls = from.nulls().cloned();
    let made = if columns.is_empty() {
        StructArray::new_empty_fields(from.len(), nulls)
    } else {
        StructArray::try_new(relaxed_fields(to)?, columns, nulls).map_err(DataFileError::rows)?
    };
    Ok(Arc::new(made))
}

/// An unshredded variant: two binaries, as they are stored.
pub(super) fn to_variant(array: &ArrayRef, at: &Place<'_>) -> Result<ArrayRef, DataFileError> {
    let variant = DataType::Primitive(Primitive::Variant);
    let (Some(from), Arrow::Struct(fields)) = (array.as_struct_opt(), relaxed_type(&variant)?)
    else {
        return Err(type_error(array, &variant, at));
    };
    if from.column_by_name("typed_value").is_some() {
        return Err(DataFileError::Type {
            column: at.path.to_string(),
            expected: "unshredded variant".to_owned(),
            found: "shredded variant".to_owned(),
        });
    }
    let mut columns = Vec::with_capacity(2);
    for field in &fields {
        match from.column_by_name(field.name()) {
            Some(column) => columns.push(cast(column, field.data_type())?),
            None => return Err(type_error(array, &variant, at)),
        }
    }
    let made = StructArray::try_new(fields, columns, from.nulls().cloned());
    Ok(Arc::new(made.map_err(DataFileError::rows)?))
}

/// Slots of a list-like array: start and length among the values.
struct Slots {
    ranges: Vec<(usize, usize)>,
    nulls: Option<NullBuffer>,
    values: ArrayRef,
}

impl Slots {
    fn of(array: &ArrayRef) -> Option<Slots> {
        let (ranges, values) = match array.data_type() {
            Arrow::List(_) => {
                let list = array.as_list_opt::<i32>()?;
                (by_offsets(list.offsets()), list.values())
            }
            Arrow::LargeList(_) => {
                let list = array.as_list_opt::<i64>()?;
                (by_offsets(list.offsets()), list.values())
            }
            Arrow::ListView(_) => {
                let list = array.as_list_view_opt::<i32>()?;
                (by_sizes(list.offsets(), list.sizes()), list.values())
            }
            Arrow::LargeListView(_) => {
                let list = array.as_list_view_opt::<i64>()?;
                (by_sizes(list.offsets(), list.sizes()), list.values())
            }
            Arrow::FixedSizeList(_, _) => {
                let list = array.as_fixed_size_list_opt()?;
                let size = usize::try_from(list.value_length()).ok()?;
                let ranges = (0..list.len()).map(|i| (i * size, size)).collect();
                (ranges, list.values())
            }
            Arrow::Map(_, _) => {
                let map = array.as_map_opt()?;
                let entries: ArrayRef = Arc::new(map.entries().clone());
                return Some(Slots {
                    ranges: by_offsets(map.offsets()),
                    nulls: map.nulls().cloned(),
                    values: entries,
                });
            }
            _ => return None,
        };
        Some(Slots {
            ranges,
            nulls: array.nulls().cloned(),
            values: Arc::clone(values),
        })
    }

    /// Values one after the other, none under a NULL.
    fn compact(mut self) -> Result<(OffsetBuffer<i32>, ArrayRef), DataFileError> {
        if let Some(nulls) = self.nulls.as_ref().filter(|n| n.null_count() > 0) {
            for (index, range) in self.ranges.iter_mut().enumerate() {
                if nulls.is_null(index) {
                    range.1 = 0;
                }
            }
        }
        let total: usize = self.ranges.iter().map(|(_, len)| *len).sum();
        if i32::try_from(total).is_err() {
            return Err(DataFileError::TooLarge { rows: total as u64 });
        }
        let offsets = OffsetBuffer::from_lengths(self.ranges.iter().map(|(_, len)| *len));
        let mut filled = self.ranges.iter().filter(|(_, len)| *len > 0);
        let first = filled.next().map_or(0, |(start, _)| *start);
        let mut next = first;
        let dense = self
            .ranges
            .iter()
            .filter(|(_, len)| *len > 0)
            .all(|(start, len)| {
                let follows = *start == next;
                next = start + len;
                follows
            });
        if dense {
            return Ok((offsets, self.values.slice(first, total)));
        }
        let indices: UInt64Array = self
            .ranges
            .iter()
            .flat_map(|(start, len)| (*start..start + len).map(|i| i as u64))
            .collect::<Vec<_>>()
            .into();
        let values =
            arrow::compute::take(&self.values, &indices, None).map_err(DataFileError::rows)?;
        Ok((offsets, values))
    }
}

fn by_offsets<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Vec<(usize, usize)> {
    offsets
        .windows(2)
        .map(|w| match w {
            [start, end] => (start.as_usize(), end.as_usize() - start.as_usize()),
            _ => (0, 0),
        })
        .collect()
}

fn by_sizes<O: OffsetSizeTrait>(
    offsets: &ScalarBuffer<O>,
    sizes: &ScalarBuffer<O>,
) -> Vec<(usize, usize)> {
    offsets
        .iter()
        .zip(sizes.iter())
        .map(|(start, len)| (start.as_usize(), len.as_usize()))
        .collect()
}

pub(super) fn to_list(
    array: &ArrayRef,
    to: &ArrayType,
    cx: Cx,
    at: &Place<'_>,
) -> Result<ArrayRef, DataFileError> {
    let expected = || DataType::Array(Box::new(to.clone()));
    let slots = match array.data_type() {
        Arrow::Map(..) => None,
        _ => Slots::of(array),
    }
    .ok_or_else(|| type_error(array, &expected(), at))?;
    let nulls = slots.nulls.clone();
    let (offsets, values) = slots.compact()?;
    let inner = Place {
        path: at.path.join("element"),
        rows: Rows::Elements(&at.rows, &offsets),
    };
    let values = convert(&values, &to.element_type, cx.mode, cx.rules, &inner)?;
    let field = Arc::new(Field::new("element", values.data_type().clone(), true));
    let made = ListArray::try_new(field, offsets, values, nulls).map_err(DataFileError::rows)?;
    Ok(Arc::new(made))
}

pub(super) fn to_map(
    array: &ArrayRef,
    to: &MapType,
    cx: Cx,
    at: &Place<'_>,
) -> Result<ArrayRef, DataFileError> {
    let expected = || DataType::Map(Box::new(to.clone()));
    let slots = match array.data_type() {
        Arrow::Map(..) => Slots::of(array),
        _ => None,
    }
    .ok_or_else(|| type_error(array, &expected(), at))?;
    let nulls = slots.nulls.clone();
    let (offsets, entries) = slots.compact()?;
    let Some([keys, values]) = entries.as_struct_opt().map(StructArray::columns) else {
        return Err(type_error(array, &expected(), at));
    };
    let rows = Rows::Elements(&at.rows, &offsets);
    let inner = |name| Place {
        path: at.path.join(name),
        rows,
    };
    let keys = convert(keys, &to.key_type, cx.mode, cx.rules, &inner("key"))?;
    let values = convert(values, &to.value_type, cx.mode, cx.rules, &inner("value"))?;
    if keys.logical_null_count() > 0 {
        return Err(DataFileError::Nulls {
            column: inner("key").path.to_string(),
            rows: keys.logical_null_count() as u64,
        });
    }
    let field = entries_field(keys.data_type().clone(), values.data_type().clone(), true);
    let Arrow::Struct(fields) = field.data_type().clone() else {
        return Err(type_error(array, &expected(), at));
    };
    let entries = StructArray::try_new(fields, vec![keys, values], None);
    let made = entries
        .and_then(|entries| MapArray::try_new(Arc::new(field), offsets, entries, nulls, false))
        .map_err(DataFileError::rows)?;
    Ok(Arc::new(made))
}
