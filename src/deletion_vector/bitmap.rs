//! The bytes of a row set: a magic number and the portable form of a 64-bit Roaring bitmap.

use roaring::RoaringBitmap;

use super::{RowSet, VectorFault};

/// Little-endian. The other number that documents mention is for a form that no writer uses (PROTOCOL.md 0).
const MAGIC: u32 = 1_681_511_377;

/// The least that a bucket takes: a key, a cookie and a count.
const MIN_BUCKET_BYTES: u64 = 12;

/// The data of a vector. Runs of rows are stored as such.
pub fn encode_rows(rows: &RowSet) -> Vec<u8> {
    let mut rows = rows.clone();
    rows.optimize();
    let mut bytes = Vec::with_capacity(4 + rows.serialized_size());
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    // Writing to memory does not fail.
    let _ = rows.serialize_into(&mut bytes);
    bytes
}

/// The row set in the data of a vector.
///
/// # Errors
/// Everything that differs from what the format says, bytes after the end too.
pub fn decode_rows(bytes: &[u8]) -> Result<RowSet, VectorFault> {
    let total = bytes.len();
    let mut rest = bytes;
    let short = |expected: usize| VectorFault::Short {
        found: total as u64,
        expected: expected as u64,
    };
    let magic = u32::from_le_bytes(take(&mut rest).ok_or_else(|| short(12))?);
    if magic != MAGIC {
        return Err(VectorFault::Magic(magic));
    }
    let buckets = u64::from_le_bytes(take(&mut rest).ok_or_else(|| short(12))?);
    if buckets > rest.len() as u64 / MIN_BUCKET_BYTES {
        return Err(VectorFault::Buckets {
            buckets,
            bytes: total,
        });
    }
    let mut bitmaps: Vec<(u32, RoaringBitmap)> = Vec::new();
    let mut last = None;
    for _ in 0..buckets {
        let key = u32::from_le_bytes(take(&mut rest).ok_or_else(|| short(total + 4))?);
        if key > i32::MAX.unsigned_abs() || last.is_some_and(|last| key <= last) {
            return Err(VectorFault::Key { key });
        }
        last = Some(key);
        // Checks order and counts, and takes no more memory than a few times the bytes that are there.
        let bitmap = RoaringBitmap::deserialize_from(&mut rest)
            .map_err(|source| VectorFault::Bitmap { key, source })?;
        // Some writers store the gaps between buckets, too.
        if !bitmap.is_empty() {
            bitmaps.push((key, bitmap));
        }
    }
    if !rest.is_empty() {
        return Err(VectorFault::Trailing { bytes: rest.len() });
    }
    Ok(RowSet::from_bitmaps(bitmaps))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sparse rows, dense runs and rows far beyond 32 bits.
    fn rows() -> impl Strategy<Value = RowSet> {
        let start = prop_oneof![
            0..200_000_u64,
            (1_u64 << 32) - 50..(1_u64 << 32) + 50,
            0..1_u64 << 62
        ];
        proptest::collection::vec((start, prop_oneof![Just(1_u64), 1..9000_u64]), 0..12).prop_map(
            |runs| {
                let mut rows = RowSet::new();
                for (start, len) in runs {
                    rows.insert_range(start..start + len);
                }
                rows
            },
        )
    }

    fn with_buckets(buckets: &[(u32, &[u32])]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend_from_slice(&(buckets.len() as u64).to_le_bytes());
        for (key, rows) in buckets {
            bytes.extend_from_slice(&key.to_le_bytes());
            let bitmap: RoaringBitmap = rows.iter().copied().collect();
            bitmap.serialize_into(&mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn buckets_ascend_and_nothing_follows() {
        let good = with_buckets(&[(0, &[1]), (1, &[]), (7, &[2])]);
        let rows = decode_rows(&good).unwrap();
        assert_eq!(rows.iter().collect::<Vec<_>>(), [1, (7 << 32) + 2]);
        assert_eq!(rows, [1, (7 << 32) + 2].into_iter().collect());
        let unordered = with_buckets(&[(3, &[1]), (3, &[2])]);
        assert!(matches!(
            decode_rows(&unordered),
            Err(VectorFault::Key { key: 3 })
        ));
        let negative = with_buckets(&[(1 << 31, &[1])]);
        assert!(matches!(
            decode_rows(&negative),
            Err(VectorFault::Key { .. })
        ));
        let mut trailing = good.clone();
        trailing.push(0);
        assert!(matches!(
            decode_rows(&trailing),
            Err(VectorFault::Trailing { bytes: 1 })
        ));
        let mut many = good;
        many[4..12].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(
            decode_rows(&many),
            Err(VectorFault::Buckets { .. })
        ));
        // The pre-portable form.
        assert!(matches!(
            decode_rows(&1_681_511_376_u32.to_be_bytes()),
            Err(VectorFault::Magic(_))
        ));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn rows_survive(rows in rows()) {
            prop_assert_eq!(decode_rows(&encode_rows(&rows)).unwrap(), rows);
        }

        #[test]
        fn a_part_of_a_vector_is_no_vector(rows in rows(), cut in any::<prop::sample::Index>()) {
            let bytes = encode_rows(&rows);
            prop_assert!(decode_rows(&bytes[..cut.index(bytes.len())]).is_err());
        }

        #[test]
        fn garbled_bytes_never_panic(
            rows in rows(),
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut bytes = encode_rows(&rows);
            // Most of what can be wrong is in the head.
            let head = bytes.len().min(64);
            for (at, value) in edits {
                let at = at.index(head);
                bytes[at] = value;
            }
            let _ = decode_rows(&bytes);
        }
    }
}
