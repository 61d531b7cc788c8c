//! Thrift's compact protocol, walked without keeping anything, by the rules of a decoder that believes every byte.
//!
//! # Why
//! parquet-rs reads a known field as what it should be, whatever type the bytes say it has, cuts an id to 16 bits, takes
//! no byte for an item of a list of booleans and none of a value that lies behind the end. What we walk otherwise than
//! it does is not what it reads then: lists of billions of nothings, or a schema nested so deep that the stack is full.
//! So a known field must have its own type here, and what the decoder reads in its own way is refused.

/// Levels of nesting in the structures; Parquet's own need about twelve.
const MAX_DEPTH: u8 = 32;

pub(super) const BOOL_TRUE: u8 = 1;
pub(super) const BOOL_FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// What a decoder takes a field for.
#[derive(Debug)]
pub(super) enum Shape {
    Bool,
    Byte,
    /// Of 16, 32 or 64 bits: they are written alike.
    Int,
    Double,
    Bytes,
    List(&'static Shape),
    Struct(&'static Fields),
}

/// The fields that a decoder knows of a structure, by id.
pub(super) type Fields = [(i16, Shape)];

/// Why bytes are not what they should be, in words for the user.
pub(super) type Step = Result<(), String>;

/// What is done at a field of a structure, given its id and type. Takes the whole value.
pub(super) type Visit<'v, 'b> = &'v mut dyn FnMut(&mut Walk<'b>, i16, u8) -> Step;

#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Walk<'a> {
    fn byte(&mut self) -> Result<u8, String> {
        let (first, rest) = self
            .bytes
            .split_first()
            .ok_or_else(|| "it ends too early".to_owned())?;
        self.bytes = rest;
        Ok(*first)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is too long".to_owned())
    }

    fn zigzag(&mut self) -> Result<i64, String> {
        let raw = self.varint()?;
        let half = i64::try_from(raw >> 1).unwrap_or(i64::MAX);
        Ok(if raw & 1 == 0 { half } else { -half - 1 })
    }

    /// A number that a decoder cuts to 32 bits.
    pub(super) fn int(&mut self) -> Result<i32, String> {
        let value = self.zigzag()?;
        i32::try_from(value).map_err(|_| format!("{value} is no number of 32 bits"))
    }

    fn skip(&mut self, count: u64) -> Step {
        let rest = usize::try_from(count)
            .ok()
            .and_then(|n| self.bytes.get(n..))
            .ok_or_else(|| "it ends too early".to_owned())?;
        self.bytes = rest;
        Ok(())
    }

    /// The count of items and their type.
    fn list_header(&mut self) -> Result<(usize, u8), String> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        Ok((self.count(count)?, head & 0x0f))
    }

    /// An item takes a byte at least.
    fn count(&self, count: u64) -> Result<usize, String> {
        usize::try_from(count)
            .ok()
            .filter(|n| *n <= self.bytes.len())
            .ok_or_else(|| format!("a list claims {count} items in {} bytes", self.bytes.len()))
    }

    /// The items of a field of type `kind` that has to be a list of structures; `visit` takes a whole one.
    pub(super) fn structs(
        &mut self,
        kind: u8,
        max: usize,
        visit: &mut dyn FnMut(&mut Self, usize) -> Step,
    ) -> Step {
        if kind != LIST {
            return Err(mistaken(kind));
        }
        let (count, element) = self.list_header()?;
        if count > max {
            return Err(format!("a list has {count} items, more than {max}"));
        }
        for _ in 0..count {
            if element != STRUCT {
                return Err(mistaken(element));
            }
            visit(self, count)?;
        }
        Ok(())
    }

    /// The fields of a structure, up to its end.
    pub(super) fn fields(&mut self, visit: Visit<'_, 'a>) -> Step {
        let mut id = 0_i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            let next = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).ok(),
                delta => id.checked_add(delta.into()),
            };
            id = next.ok_or_else(|| "a field has no possible number".to_owned())?;
            visit(self, id, head & 0x0f)?;
        }
    }

    /// The fields of a structure of which `known` have their types.
    pub(super) fn known(&mut self, known: &'static Fields) -> Step {
        self.known_in(known, MAX_DEPTH)
    }

    fn known_in(&mut self, known: &'static Fields, depth: u8) -> Step {
        self.fields(&mut |walk, id, kind| walk.field_in(known, id, kind, depth))
    }

    /// The value of field `id` of a structure of which `known` have their types.
    pub(super) fn field(&mut self, known: &'static Fields, id: i16, kind: u8) -> Step {
        self.field_in(known, id, kind, MAX_DEPTH)
    }

    fn field_in(&mut self, known: &'static Fields, id: i16, kind: u8, depth: u8) -> Step {
        match known.iter().find(|(known, _)| *known == id) {
            Some((_, shape)) => self.shaped(kind, shape, depth),
            // Booleans live in the field's head.
            None if matches!(kind, BOOL_TRUE | BOOL_FALSE) => Ok(()),
            None => self.unknown(kind, depth),
        }
    }

    fn shaped(&mut self, kind: u8, shape: &'static Shape, depth: u8) -> Step {
        let depth = deeper(depth)?;
        match (shape, kind) {
            (Shape::Bool, BOOL_TRUE | BOOL_FALSE) => Ok(()),
            (Shape::Byte, BYTE)
            | (Shape::Int, I16 | I32 | I64)
            | (Shape::Double, DOUBLE)
            | (Shape::Bytes, BINARY) => self.unknown(kind, depth),
            (Shape::List(item), LIST) => {
                let (count, element) = self.list_header()?;
                (0..count).try_for_each(|_| self.shaped(element, item, depth))
            }
            (Shape::Struct(known), STRUCT) => self.known_in(known, depth),
            _ => Err(mistaken(kind)),
        }
    }

    /// A value that a decoder skips.
    fn unknown(&mut self, kind: u8, depth: u8) -> Step {
        let depth = deeper(depth)?;
        match kind {
            BYTE => self.skip(1),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => self.skip(8),
            BINARY => {
                let len = self.varint()?;
                self.skip(len)
            }
            LIST | SET => {
                let (count, element) = self.list_header()?;
                (0..count).try_for_each(|_| self.unknown(element, depth))
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let count = self.count(count)?;
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.unknown(kinds >> 4, depth)?;
                    self.unknown(kinds & 0x0f, depth)
                })
            }
            STRUCT => self.known_in(&[], depth),
            UUID => self.skip(16),
            other => Err(mistaken(other)),
        }
    }
}

fn deeper(depth: u8) -> Result<u8, String> {
    depth
        .checked_sub(1)
        .ok_or_else(|| "it nests too deep".to_owned())
}

fn mistaken(kind: u8) -> String {
    format!("a value has the Thrift type {kind}, which Parquet does not have there")
}
