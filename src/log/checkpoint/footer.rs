//! How deep the schema of a Parquet file is nested, before a decoder walks it.
//!
//! # Why
//! The decoder recurses into the schema without a limit, and a stack that overflows ends the process: nothing can be
//! caught. A footer of a few kilobytes is enough. So the list of schema elements is read here first, which takes no
//! more than the Thrift compact protocol's few rules.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Levels that are decoded. No table comes near.
const MAX_DEPTH: usize = 100;

/// Length and magic at the end of a file.
const TAIL_BYTES: u64 = 8;

/// Fails for a schema that is nested too deeply and for a footer that is none.
pub(super) fn check_nesting(file: &File) -> io::Result<()> {
    let end = file.metadata()?.len();
    let bad = |reason| io::Error::new(io::ErrorKind::InvalidData, reason);
    let tail_at = end
        .checked_sub(TAIL_BYTES)
        .ok_or_else(|| bad("it is too short for a Parquet file"))?;
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, tail_at)?;
    let [length @ .., b'P', b'A', b'R', b'1'] = tail else {
        return Err(bad("it does not end as a Parquet file"));
    };
    let length = u32::from_le_bytes(length);
    let footer_at = tail_at
        .checked_sub(length.into())
        .ok_or_else(|| bad("its footer is longer than the file"))?;
    let mut footer = vec![0; length as usize];
    file.read_exact_at(&mut footer, footer_at)?;
    match depth(&mut Compact(&footer)) {
        None => Err(bad("its footer is damaged")),
        Some(depth) if depth > MAX_DEPTH => Err(bad("its schema is nested too deeply")),
        Some(_) => Ok(()),
    }
}

/// The depth of `FileMetaData.schema` (field 2); `None` for bytes that are no such thing.
fn depth(input: &mut Compact<'_>) -> Option<usize> {
    let mut id = 0;
    while let Some(kind) = input.field(&mut id)? {
        if (id, kind) != (2, Compact::LIST) {
            input.skip(kind, 0)?;
            continue;
        }
        let (count, Compact::STRUCT) = input.list()? else {
            return None;
        };
        let (mut deepest, mut open) = (0, Vec::new());
        for _ in 0..count {
            while open.pop_if(|children| *children == 0).is_some() {}
            if let Some(children) = open.last_mut() {
                *children -= 1;
            }
            open.push(input.num_children()?);
            deepest = deepest.max(open.len());
        }
        return Some(deepest);
    }
    None
}

/// Thrift's compact protocol.
struct Compact<'a>(&'a [u8]);

impl Compact<'_> {
    const LIST: u8 = 9;
    const STRUCT: u8 = 12;

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, count: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// The kind of the next field, its id in `id`; `Some(None)` at the end of the struct.
    fn field(&mut self, id: &mut i64) -> Option<Option<u8>> {
        let header = self.byte()?;
        let kind = header & 0x0f;
        if kind == 0 {
            return Some(None);
        }
        *id = match header >> 4 {
            0 => self.zigzag()?,
            delta => id.checked_add(delta.into())?,
        };
        Some(Some(kind))
    }

    /// The length of a list and the kind of its items.
    fn list(&mut self) -> Option<(u64, u8)> {
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => self.varint()?,
            short => short.into(),
        };
        Some((count, header & 0x0f))
    }

    /// Reads a `SchemaElement` for `num_children` (field 5).
    fn num_children(&mut self) -> Option<u64> {
        let (mut id, mut children) = (0, 0);
        while let Some(kind) = self.field(&mut id)? {
            if (id, kind) == (5, 5) {
                children = u64::try_from(self.zigzag()?).ok()?;
            } else {
                self.skip(kind, 0)?;
            }
        }
        Some(children)
    }

    fn skip(&mut self, kind: u8, level: usize) -> Option<()> {
        if level > MAX_DEPTH {
            return None;
        }
        match kind {
            // The value of a boolean field is its kind.
            1 | 2 => Some(()),
            3 => self.bytes(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.bytes(8),
            8 => {
                let count = self.varint()?;
                self.bytes(count)
            }
            Self::LIST | 10 => {
                let (count, item) = self.list()?;
                for _ in 0..count {
                    self.skip_item(item, level)?;
                }
                Some(())
            }
            11 => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                for _ in 0..count {
                    self.skip_item(kinds >> 4, level)?;
                    self.skip_item(kinds & 0x0f, level)?;
                }
                Some(())
            }
            Self::STRUCT => {
                let mut id = 0;
                while let Some(kind) = self.field(&mut id)? {
                    self.skip(kind, level + 1)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// In a collection, a boolean takes a byte; everything takes one, so a count that lies soon ends.
    fn skip_item(&mut self, kind: u8, level: usize) -> Option<()> {
        match kind {
            1 | 2 => self.bytes(1),
            kind => self.skip(kind, level + 1),
        }
    }
}
