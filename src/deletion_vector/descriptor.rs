//! Where a vector is and what it must hold.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{VectorError, VectorFault, z85};

/// Characters of a UUID in Z85.
const UUID_CHARS: usize = 20;

/// Which rows of a file are dead (PROTOCOL.md B).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionVectorDescriptor {
    /// `u`, `p` or `i`.
    pub storage_type: String,
    pub path_or_inline_dv: String,
    /// Byte position of the size field in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i32>,
    /// Bytes of the data, magic included, size and checksum excluded.
    pub size_in_bytes: i32,
    /// Dead rows.
    pub cardinality: i64,
}

/// Where the bytes of a vector are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// The data itself.
    Inline(Vec<u8>),
    /// A file of the table.
    Relative {
        /// From the table's root, never URI-encoded.
        path: String,
        /// Byte position of the size field.
        offset: u64,
        /// Bytes of the data.
        size: u32,
    },
    /// A file anywhere.
    Absolute {
        /// As the log has it: URI-encoded.
        uri: String,
        /// Byte position of the size field.
        offset: u64,
        /// Bytes of the data.
        size: u32,
    },
}

impl DeletionVectorDescriptor {
    /// The id that joins with the path to the key of a live file.
    pub fn unique_id(&self) -> String {
        match self.offset {
            Some(offset) => format!("{}{}@{offset}", self.storage_type, self.path_or_inline_dv),
            None => format!("{}{}", self.storage_type, self.path_or_inline_dv),
        }
    }

    /// Where the vector is. A path has no `..` and no empty part; whether an absolute URI may be followed is for
    /// the caller to decide.
    ///
    /// # Errors
    /// [`VectorFault::StorageType`], [`VectorFault::Field`] for a negative number, [`VectorFault::Path`],
    /// [`VectorFault::Text`], [`VectorFault::Short`].
    pub fn location(&self) -> Result<Location, VectorError> {
        self.locate().map_err(|fault| fault.of(&self.unique_id()))
    }

    fn locate(&self) -> Result<Location, VectorFault> {
        let size = u32::try_from(self.size_in_bytes).map_err(|_| VectorFault::Field {
            field: "sizeInBytes",
            value: self.size_in_bytes.into(),
        })?;
        // Byte 0 is the file's version, so 0 can only mean "not given" (PROTOCOL.md 0).
        let offset = match self.offset {
            None | Some(0) => 1,
            Some(offset) => u64::try_from(offset).map_err(|_| VectorFault::Field {
                field: "offset",
                value: offset.into(),
            })?,
        };
        match self.storage_type.as_str() {
            "i" => inline(&self.path_or_inline_dv, size).map(Location::Inline),
            "u" => Ok(Location::Relative {
                path: relative(&self.path_or_inline_dv)
                    .ok_or_else(|| VectorFault::Path(self.path_or_inline_dv.clone()))?,
                offset,
                size,
            }),
            "p" => Ok(Location::Absolute {
                uri: self.path_or_inline_dv.clone(),
                offset,
                size,
            }),
            other => Err(VectorFault::StorageType(other.to_owned())),
        }
    }
}

/// The text carries up to three bytes of padding.
fn inline(text: &str, size: u32) -> Result<Vec<u8>, VectorFault> {
    let mut bytes = z85::decode(text).ok_or(VectorFault::Text)?;
    let (found, expected) = (bytes.len() as u64, u64::from(size));
    if found < expected {
        return Err(VectorFault::Short { found, expected });
    }
    if found - expected > 3 {
        return Err(VectorFault::Trailing {
            bytes: bytes.len() - size as usize,
        });
    }
    bytes.truncate(size as usize);
    Ok(bytes)
}

/// `[prefix]` + UUID in Z85 → `[prefix/]deletion_vector_<uuid>.bin`.
fn relative(text: &str) -> Option<String> {
    let (prefix, id) = text.split_at_checked(text.len().checked_sub(UUID_CHARS)?)?;
    let id = Uuid::from_slice(&z85::decode(id)?).ok()?;
    if !is_prefix(prefix) {
        return None;
    }
    Some(file_path(prefix, id))
}

/// Whether `prefix` is empty or a relative path that stays below where it starts.
pub(super) fn is_prefix(prefix: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    prefix.is_empty() || prefix.split('/').all(part)
}

/// Path of a vector file from the table's root.
pub(super) fn file_path(prefix: &str, id: Uuid) -> String {
    if prefix.is_empty() {
        format!("deletion_vector_{id}.bin")
    } else {
        format!("{prefix}/deletion_vector_{id}.bin")
    }
}

/// `pathOrInlineDv` of a vector in [`file_path`].
pub(super) fn file_id(prefix: &str, id: Uuid) -> String {
    format!("{prefix}{}", z85::encode(id.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(storage: &str, text: &str, offset: Option<i32>) -> DeletionVectorDescriptor {
        DeletionVectorDescriptor {
            storage_type: storage.to_owned(),
            path_or_inline_dv: text.to_owned(),
            offset,
            size_in_bytes: 40,
            cardinality: 6,
        }
    }

    fn fault(descriptor: &DeletionVectorDescriptor) -> VectorFault {
        descriptor.location().unwrap_err().fault
    }

    #[test]
    fn ids_have_the_offset_only_where_it_is_given() {
        // D24
        assert_eq!(descriptor("i", "abc", None).unique_id(), "iabc");
        assert_eq!(descriptor("u", "abc", Some(0)).unique_id(), "uabc@0");
        assert_eq!(descriptor("u", "abc", Some(4)).unique_id(), "uabc@4");
    }

    #[test]
    fn a_relative_vector_is_below_the_root() {
        // The example of the protocol.
        for (offset, expected) in [(None, 1), (Some(0), 1), (Some(4), 4)] {
            let location = descriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", offset).location();
            assert_eq!(
                location.unwrap(),
                Location::Relative {
                    path: "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin".to_owned(),
                    offset: expected,
                    size: 40
                }
            );
        }
        let id = Uuid::from_u128(0xd2c6_39aa_8816_431a_aaf6_d3fe_2512_ff61);
        assert_eq!(file_id("ab", id), "ab^-aqEH.-t@S}K{vb[*k^");
        for prefix in ["../", "..", "/etc", "a//b", "a/../b", "a/", "\0"] {
            let text = format!("{prefix}^-aqEH.-t@S}}K{{vb[*k^");
            assert!(matches!(
                fault(&descriptor("u", &text, None)),
                VectorFault::Path(_)
            ));
        }
        for text in ["", "short", "ä^-aqEH.-t@S}K{vb[*k", "\"-aqEH.-t@S}K{vb[*k^"] {
            assert!(matches!(
                fault(&descriptor("u", text, None)),
                VectorFault::Path(_)
            ));
        }
    }

    #[test]
    fn what_can_not_be_is_refused() {
        assert!(matches!(
            fault(&descriptor("r", "x", None)),
            VectorFault::StorageType(_)
        ));
        assert!(matches!(
            fault(&descriptor("p", "file:///x", Some(-1))),
            VectorFault::Field { .. }
        ));
        let negative = DeletionVectorDescriptor {
            size_in_bytes: -1,
            ..descriptor("p", "file:///x", None)
        };
        assert!(matches!(fault(&negative), VectorFault::Field { .. }));
        assert!(matches!(
            fault(&descriptor("i", "HelloWorld", None)),
            VectorFault::Short { .. }
        ));
        assert!(matches!(
            fault(&descriptor("i", &"HelloWorld".repeat(6), None)),
            VectorFault::Trailing { bytes: 8 }
        ));
        assert!(matches!(
            fault(&descriptor("i", "Hello World", None)),
            VectorFault::Text
        ));
    }
}
