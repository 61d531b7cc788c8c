//! A first walk over the Thrift bytes of a Parquet footer, that of a checkpoint or of a data file. parquet-rs allocates
//! by the counts that a footer claims and recurses as deep as its schema nests, and neither a failed allocation nor a
//! full stack can be caught: what it can't survive is refused here.

/// Row groups that parquet-rs can number.
const MAX_ROW_GROUPS: usize = i16::MAX as usize;
/// Schema nodes: more than any real table has, and still a small allocation.
const MAX_SCHEMA_NODES: usize = 1_000_000;
/// Levels of nesting in the schema.
const MAX_SCHEMA_DEPTH: usize = 100;
/// Bytes of a fixed-length value. A decoder makes room for a batch of them, also where all are NULL.
const MAX_FIXED_BYTES: i64 = 1 << 16;
/// Levels of nesting in the Thrift structures; Parquet's own need about twelve.
const MAX_THRIFT_DEPTH: u8 = 32;

const BOOL_TRUE: u8 = 1;
const BOOL_FALSE: u8 = 2;
const I32: u8 = 5;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Walks the Thrift bytes of a `FileMetaData`.
///
/// # Errors
/// Says what is wrong, in words for the user.
pub(crate) fn check_footer(bytes: &[u8]) -> Result<(), String> {
    let mut walk = Walk { bytes };
    walk.fields(&mut |walk, id, kind| match (id, kind) {
        (2, LIST) => walk.schema(),
        (4, LIST) => {
            let (count, element) = walk.list_header()?;
            if count > MAX_ROW_GROUPS {
                return Err(format!("{count} row groups"));
            }
            (0..count).try_for_each(|_| walk.element(element, MAX_THRIFT_DEPTH))
        }
        _ => walk.value(kind, MAX_THRIFT_DEPTH),
    })
}

struct Walk<'a> {
    bytes: &'a [u8],
}

type Step = Result<(), String>;

impl Walk<'_> {
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

    fn skip(&mut self, count: u64) -> Step {
        let rest = usize::try_from(count)
            .ok()
            .and_then(|n| self.bytes.get(n..))
            .ok_or_else(|| "it ends too early".to_owned())?;
        self.bytes = rest;
        Ok(())
    }

    fn list_header(&mut self) -> Result<(usize, u8), String> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        let count = usize::try_from(count)
            .ok()
            .filter(|n| *n <= self.bytes.len())
            .ok_or_else(|| "a list is longer than the footer".to_owned())?;
        Ok((count, head & 0x0f))
    }

    fn fields(&mut self, visit: &mut dyn FnMut(&mut Self, i64, u8) -> Step) -> Step {
        let mut id = 0_i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            id = match head >> 4 {
                0 => self.zigzag()?,
                delta => id.saturating_add(i64::from(delta)),
            };
            visit(self, id, head & 0x0f)?;
        }
    }

    /// A field's value; booleans live in the field's head.
    fn value(&mut self, kind: u8, depth: u8) -> Step {
        match kind {
            BOOL_TRUE | BOOL_FALSE => Ok(()),
            _ => self.element(kind, depth),
        }
    }

    fn element(&mut self, kind: u8, depth: u8) -> Step {
        let Some(depth) = depth.checked_sub(1) else {
            return Err("it nests too deep".to_owned());
        };
        match kind {
            BOOL_TRUE | BOOL_FALSE | 3 => self.skip(1),
            4 | I32 | 6 => self.varint().map(|_| ()),
            7 => self.skip(8),
            8 => {
                let len = self.varint()?;
                self.skip(len)
            }
            LIST | 10 => {
                let (count, element) = self.list_header()?;
                (0..count).try_for_each(|_| self.element(element, depth))
            }
            11 => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                if count > self.bytes.len() as u64 {
                    return Err("a map is longer than the footer".to_owned());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.element(kinds >> 4, depth)?;
                    self.element(kinds & 0x0f, depth)
                })
            }
            STRUCT => self.fields(&mut |walk, _, kind| walk.value(kind, depth)),
            13 => self.skip(16),
            other => Err(format!("unknown Thrift type {other}")),
        }
    }

    fn schema(&mut self) -> Step {
        let (count, element) = self.list_header()?;
        if element != STRUCT {
            return Err("the schema is not a list of columns".to_owned());
        }
        if count > MAX_SCHEMA_NODES {
            return Err(format!("the schema has {count} nodes"));
        }
        // Children still to come at each open level.
        let mut open: Vec<usize> = Vec::new();
        for index in 0..count {
            let (mut children, mut repetition) = (0_i64, None);
            self.fields(&mut |walk, id, kind| {
                match (id, kind) {
                    (2, I32) => {
                        let bytes = walk.zigzag()?;
                        if bytes > MAX_FIXED_BYTES {
                            return Err(format!("a column has values of {bytes} bytes each"));
                        }
                    }
                    (3, I32) => repetition = Some(walk.zigzag()?),
                    (5, I32) => children = walk.zigzag()?,
                    _ => walk.value(kind, MAX_THRIFT_DEPTH)?,
                }
                Ok(())
            })?;
            let children = usize::try_from(children)
                .ok()
                .filter(|n| *n < count)
                .ok_or_else(|| format!("a column claims {children} children"))?;
            if index > 0 {
                if !matches!(repetition, Some(0..=2)) {
                    return Err("a column is neither required, optional nor repeated".to_owned());
                }
                while open.last() == Some(&0) {
                    open.pop();
                }
                match open.last_mut() {
                    Some(left) => *left -= 1,
                    None => return Err("the schema has more than one root".to_owned()),
                }
            }
            if children > 0 || index == 0 {
                open.push(children);
                if open.len() > MAX_SCHEMA_DEPTH {
                    return Err(format!("the schema nests deeper than {MAX_SCHEMA_DEPTH}"));
                }
            }
        }
        Ok(())
    }
}
