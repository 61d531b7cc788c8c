//! Numbers and text as bytes. Reading is total: what this process has packed is never short, and what is missing
//! reads as zero or empty.

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small negative numbers stay short.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value.wrapping_shl(1) ^ (value >> 63)).cast_unsigned());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads from the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub(super) fn varint(&mut self) -> u64 {
        let mut value = 0_u64;
        let mut shift = 0;
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 || shift > 63 {
                return value;
            }
        }
    }

    pub(super) fn signed(&mut self) -> i64 {
        let value = self.varint();
        (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
    }

    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at_checked(len).unwrap_or((self.0, &[]));
        self.0 = rest;
        head
    }

    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let len = self.varint();
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    pub(super) fn text(&mut self) -> &'a str {
        text(self.bytes())
    }
}

/// Only text was packed as text.
pub(super) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
