//! A first walk over the Thrift bytes of a Parquet footer, that of a checkpoint or of a data file. parquet-rs allocates
//! by the counts that a footer claims and recurses as deep as its schema nests, and neither a failed allocation nor a
//! full stack can be caught: what it can't survive is refused here.

use super::thrift::{Fields, Shape, Step, Walk};
use Shape::{Bool, Byte, Bytes, Double, Int, List, Struct};

/// Row groups that parquet-rs can number.
const MAX_ROW_GROUPS: usize = i16::MAX as usize;
/// Schema nodes: more than any real table has, and still a small allocation.
const MAX_SCHEMA_NODES: usize = 1_000_000;
/// Levels of nesting in the schema.
const MAX_SCHEMA_DEPTH: usize = 100;
/// Bytes of a fixed-length value. A decoder makes room for a batch of them, also where all are NULL.
const MAX_FIXED_BYTES: i32 = 1 << 16;

const FILE: &Fields = &[
    (1, Int),
    (3, Int),
    (5, List(&Struct(KEY_VALUE))),
    (6, Bytes),
    (7, List(&Struct(COLUMN_ORDER))),
];
const KEY_VALUE: &Fields = &[(1, Bytes), (2, Bytes)];
const COLUMN_ORDER: &Fields = &[(1, EMPTY)];
const ROW_GROUP: &Fields = &[
    (1, List(&Struct(COLUMN_CHUNK))),
    (2, Int),
    (3, Int),
    (4, List(&Struct(SORTING_COLUMN))),
    (5, Int),
    (6, Int),
    (7, Int),
];
const SORTING_COLUMN: &Fields = &[(1, Int), (2, Bool), (3, Bool)];
const COLUMN_CHUNK: &Fields = &[
    (1, Bytes),
    (2, Int),
    (3, Struct(COLUMN)),
    (4, Int),
    (5, Int),
    (6, Int),
    (7, Int),
];
const COLUMN: &Fields = &[
    (1, Int),
    (2, List(&Int)),
    (3, List(&Bytes)),
    (4, Int),
    (5, Int),
    (6, Int),
    (7, Int),
    (8, List(&Struct(KEY_VALUE))),
    (9, Int),
    (10, Int),
    (11, Int),
    (12, Struct(STATISTICS)),
    (13, List(&Struct(&[(1, Int), (2, Int), (3, Int)]))),
    (14, Int),
    (15, Int),
    (16, Struct(&[(1, Int), (2, List(&Int)), (3, List(&Int))])),
    (17, Struct(&[(1, Struct(BOUNDING_BOX)), (2, List(&Int))])),
];
pub(super) const STATISTICS: &Fields = &[
    (1, Bytes),
    (2, Bytes),
    (3, Int),
    (4, Int),
    (5, Bytes),
    (6, Bytes),
    (7, Bool),
    (8, Bool),
];
const BOUNDING_BOX: &Fields = &[
    (1, Double),
    (2, Double),
    (3, Double),
    (4, Double),
    (5, Double),
    (6, Double),
    (7, Double),
    (8, Double),
];
const SCHEMA_ELEMENT: &Fields = &[
    (1, Int),
    (2, Int),
    (3, Int),
    (4, Bytes),
    (5, Int),
    (6, Int),
    (7, Int),
    (8, Int),
    (9, Int),
    (10, Struct(LOGICAL_TYPE)),
];
const LOGICAL_TYPE: &Fields = &[
    (1, EMPTY),
    (2, EMPTY),
    (3, EMPTY),
    (4, EMPTY),
    (5, Struct(&[(1, Int), (2, Int)])),
    (6, EMPTY),
    (7, Struct(TIME)),
    (8, Struct(TIME)),
    (10, Struct(&[(1, Byte), (2, Bool)])),
    (11, EMPTY),
    (12, EMPTY),
    (13, EMPTY),
    (14, EMPTY),
    (15, EMPTY),
    (16, Struct(&[(1, Byte)])),
    (17, Struct(&[(1, Bytes)])),
    (18, Struct(&[(1, Bytes), (2, Int)])),
];
const TIME: &Fields = &[
    (1, Bool),
    (2, Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)])),
];
const EMPTY: Shape = Struct(&[]);

/// Walks the Thrift bytes of a `FileMetaData`.
///
/// # Errors
/// Says what is wrong, in words for the user.
pub(crate) fn check_footer(bytes: &[u8]) -> Result<(), String> {
    let mut walk = Walk { bytes };
    walk.fields(&mut |walk, id, kind| match id {
        2 => schema(walk, kind),
        4 => walk.structs(kind, MAX_ROW_GROUPS, &mut |walk, _| walk.known(ROW_GROUP)),
        _ => walk.field(FILE, id, kind),
    })
}

fn schema(walk: &mut Walk<'_>, kind: u8) -> Step {
    // Children still to come at each open level.
    let mut open: Vec<usize> = Vec::new();
    walk.structs(kind, MAX_SCHEMA_NODES, &mut |walk, count| {
        let (children, repetition) = element(walk)?;
        let children = usize::try_from(children)
            .ok()
            .filter(|n| *n < count)
            .ok_or_else(|| format!("a column claims {children} children"))?;
        let is_root = open.is_empty();
        if !is_root {
            if !matches!(repetition, Some(0..=2)) {
                return Err("a column is neither required, optional nor repeated".to_owned());
            }
            while open.len() > 1 && open.last() == Some(&0) {
                open.pop();
            }
            match open.last_mut() {
                Some(left) if *left > 0 => *left -= 1,
                _ => return Err("the schema has more than one root".to_owned()),
            }
        }
        if children > 0 || is_root {
            open.push(children);
            if open.len() > MAX_SCHEMA_DEPTH {
                return Err(format!("the schema nests deeper than {MAX_SCHEMA_DEPTH}"));
            }
        }
        Ok(())
    })
}

/// How many children a schema element has, and its repetition.
fn element(walk: &mut Walk<'_>) -> Result<(i32, Option<i32>), String> {
    let (mut children, mut repetition) = (0, None);
    walk.fields(&mut |walk, id, kind| {
        let mut value = Walk { bytes: walk.bytes };
        walk.field(SCHEMA_ELEMENT, id, kind)?;
        match id {
            2 => {
                let bytes = value.int()?;
                if bytes > MAX_FIXED_BYTES {
                    return Err(format!("a column has values of {bytes} bytes each"));
                }
            }
            3 => repetition = Some(value.int()?),
            5 => children = value.int()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((children, repetition))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer of a schema with one column, no rows and no row groups; `middle` stands before the row groups.
    fn footer(middle: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x15, 2];
        bytes.extend([0x19, 0x2c]);
        bytes.extend([0x48, 1, b'r', 0x15, 2, 0]);
        bytes.extend([0x15, 2, 0x25, 0, 0x18, 1, b'c', 0]);
        bytes.extend(middle);
        bytes.extend([0x16, 0, 0x19, 0x0c, 0]);
        bytes
    }

    fn refused(bytes: &[u8], reason: &str) {
        let error = check_footer(bytes).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn a_known_field_has_its_own_type() {
        assert_eq!(check_footer(&footer(&[])), Ok(()));
        // The decoder takes the bytes of the text for fields.
        let mut hidden = footer(&[]);
        hidden.splice(0..2, [0x18, 4, 0x19, 0xfb, 0xff, 0x0f]);
        refused(&hidden, "Thrift type 8");
        // It reads children in any kind of number.
        let mut children = footer(&[]);
        assert_eq!(children[7..9], [0x15, 2]);
        children.splice(7..9, [0x16, 4]);
        refused(&children, "claims 2 children");
        children.splice(8..9, [0x82, 0x80, 0x80, 0x80, 0x20]);
        refused(&children, "is no number of 32 bits");
    }

    #[test]
    fn a_field_that_is_skipped_takes_as_many_bytes_as_the_decoder_skips() {
        // A text as a field of a higher number.
        assert_eq!(check_footer(&footer(&[0x08, 40, 1, b'x'])), Ok(()));
        // Of this number the decoder only sees 16 bits: the first field.
        refused(&footer(&[0x05, 0x82, 0x80, 0x08, 2]), "no possible number");
        // A list of booleans takes no bytes, so that the decoder counts up to two billions.
        refused(&footer(&[0x09, 40, 0x32, 0, 0, 0]), "Thrift type 2");
        refused(&footer(&[0x0b, 40, 0x01, 0x31, 0]), "Thrift type 1");
        refused(&footer(&[0x09, 40, 0xfd, 0xff, 0xff, 0x0f]), "claims");
    }
}
