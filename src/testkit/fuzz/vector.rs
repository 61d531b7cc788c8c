//! Deletion vectors.

use uuid::Uuid;

use super::file_of;
use crate::deletion_vector::{
    DeletionVectorDescriptor, Location, RowSet, VectorFault, decode_rows, inline_vector,
    read_vector, write_vectors, z85 as text,
};
use crate::error::Failure as _;
use crate::store::StoreError;

/// Bytes of the descriptor before those of the file: offset, size, cardinality and physical rows.
pub(super) const HEAD: usize = 4 + 4 + 8 + 8;

/// A vector file as it is, and the same bytes as the data of a whole one, which a checksum protects otherwise.
pub(super) fn vector_file(data: &[u8]) {
    let Some((head, file)) = data.split_first_chunk::<HEAD>() else {
        return;
    };
    let (offset, head) = head.split_first_chunk().unwrap();
    let (size, head) = head.split_first_chunk().unwrap();
    let (cardinality, rows) = head.split_first_chunk().unwrap();
    let num_records = u64::from_le_bytes(rows.try_into().unwrap());
    let descriptor = DeletionVectorDescriptor {
        storage_type: "u".to_owned(),
        path_or_inline_dv: "vBn[lx{q8@P<9BNH/isA".to_owned(),
        offset: Some(i32::from_le_bytes(*offset)),
        size_in_bytes: i32::from_le_bytes(*size),
        cardinality: i64::from_le_bytes(*cardinality),
    };
    read(&descriptor, file, Some(num_records));

    let decoded = decode_rows(file);
    let mut whole = vec![1];
    whole.extend_from_slice(&(file.len() as u32).to_be_bytes());
    whole.extend_from_slice(file);
    whole.extend_from_slice(&crc32fast::hash(file).to_be_bytes());
    let exact = DeletionVectorDescriptor {
        offset: Some(1),
        size_in_bytes: file.len().try_into().unwrap(),
        cardinality: decoded.as_ref().map_or(0, |rows| rows.len() as i64),
        ..descriptor
    };
    let read_rows = read(&exact, &whole, None);
    assert_eq!(read_rows, decoded.ok());
    if let Some(rows) = read_rows {
        let beyond = rows.max().map(|row| read(&exact, &whole, Some(row)));
        assert!(
            matches!(beyond, None | Some(None)),
            "a row that the file has not"
        );
        survives(&rows);
    }
}

fn read(
    descriptor: &DeletionVectorDescriptor,
    file: &[u8],
    num_records: Option<u64>,
) -> Option<RowSet> {
    match read_vector(descriptor, |_| Ok(file_of(file)), num_records) {
        Ok(rows) => {
            assert_eq!(rows.len(), descriptor.cardinality as u64);
            assert!(rows.max() < num_records.or(Some(u64::MAX)));
            Some(rows)
        }
        Err(error) => {
            assert!(error.to_string().contains(&descriptor.unique_id()));
            let _ = (error.kind(), error.hint());
            None
        }
    }
}

/// A descriptor as the log has it: its place stays in the table, and what is inline is read as any other.
pub(super) fn vector_inline(data: &[u8]) {
    let Ok(descriptor) = serde_json::from_slice::<DeletionVectorDescriptor>(data) else {
        return;
    };
    match descriptor.location() {
        Ok(Location::Relative { path, offset, .. }) => {
            let mut parts = path.split('/');
            assert!(parts.all(|part| !matches!(part, "" | "." | "..")), "{path}");
            assert!(!path.contains('\0') && path.ends_with(".bin"));
            assert!(offset > 0);
        }
        Ok(Location::Inline(bytes)) => assert_eq!(bytes.len(), descriptor.size_in_bytes as usize),
        Ok(Location::Absolute { uri, offset, .. }) => {
            assert_eq!(uri, descriptor.path_or_inline_dv);
            assert!(offset > 0);
        }
        Err(_) => {}
    }
    let nowhere = |_: &Location| Err(StoreError::Outside { path: "x".into() });
    match read_vector(&descriptor, nowhere, None) {
        Ok(rows) => {
            assert_eq!(descriptor.storage_type, "i");
            assert_eq!(rows.len(), descriptor.cardinality as u64);
            survives(&rows);
        }
        Err(error) => {
            let opened = matches!(error.fault, VectorFault::Open(_));
            assert!(!opened || matches!(descriptor.storage_type.as_str(), "u" | "p"));
        }
    }
}

/// Rows that we write are those that are read.
fn survives(rows: &RowSet) {
    let inline = inline_vector(rows).unwrap();
    let nowhere = |_: &Location| Err(StoreError::Outside { path: "x".into() });
    assert_eq!(&read_vector(&inline, nowhere, None).unwrap(), rows);
    let two = write_vectors(Uuid::nil(), "", &[&RowSet::new(), rows]).unwrap();
    assert_eq!(
        read(&two.descriptors[1], &two.bytes, None).as_ref(),
        Some(rows)
    );
    assert_eq!(
        read(&two.descriptors[0], &two.bytes, Some(0)),
        Some(RowSet::new())
    );
}

/// Bytes have one text, and a text has one meaning.
pub(super) fn z85(data: &[u8]) {
    let mut decoded = text::decode(&text::encode(data)).unwrap();
    assert!(decoded.len() < data.len() + 4);
    assert!(decoded[data.len()..].iter().all(|byte| *byte == 0));
    decoded.truncate(data.len());
    assert_eq!(decoded, data);
    let Ok(any) = std::str::from_utf8(data) else {
        return;
    };
    if let Some(bytes) = text::decode(any) {
        assert!(bytes.len() <= any.len() / 5 * 4);
        if bytes.len().is_multiple_of(4) {
            assert_eq!(text::encode(&bytes), any);
        } else {
            // The form without padding: it differs in the last group only.
            let whole = bytes.len() / 4 * 4;
            assert_eq!(text::encode(&bytes[..whole]), any[..any.len() - 5]);
        }
    }
}
