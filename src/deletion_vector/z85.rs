//! Z85, ZeroMQ's text form of bytes: five characters for four bytes, big-endian (ZeroMQ RFC 32).

const ALPHABET: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Value of each byte; 255 marks one that is not in the alphabet.
const VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut i = 0;
    while i < ALPHABET.len() {
        values[ALPHABET[i] as usize] = i as u8;
        i += 1;
    }
    values
};

/// The text of `bytes`, padded with zeros to a multiple of four.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(4) * 5);
    for chunk in bytes.chunks(4) {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(word);
        for divisor in [85 * 85 * 85 * 85, 85 * 85 * 85, 85 * 85, 85, 1] {
            text.push(char::from(ALPHABET[(word / divisor % 85) as usize]));
        }
    }
    text
}

/// The bytes of `text`; `None` for what is no Z85.
///
/// delta-kernel-rs does not pad: it writes the last one to three bytes as a number behind as many `#` as bytes are
/// missing. A full group never begins with `#`, since that is more than 32 bits.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let (chunks, []) = text.as_bytes().as_chunks::<5>() else {
        return None;
    };
    let mut bytes = Vec::with_capacity(chunks.len() * 4);
    for (index, chunk) in chunks.iter().enumerate() {
        let missing = chunk.iter().take_while(|byte| **byte == b'#').count();
        if missing > 0 && (missing > 3 || index + 1 < chunks.len()) {
            return None;
        }
        let mut word = 0_u64;
        for byte in chunk.get(missing..)? {
            let value = VALUES[usize::from(*byte)];
            if value == u8::MAX {
                return None;
            }
            word = word * 85 + u64::from(value);
        }
        let word = u32::try_from(word).ok()?.to_be_bytes();
        let (absent, tail) = word.split_at_checked(missing)?;
        if absent.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(tail);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        let bytes = [0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B];
        assert_eq!(encode(&bytes), "HelloWorld");
        assert_eq!(decode("HelloWorld").unwrap(), bytes);
    }

    #[test]
    fn what_is_not_z85_is_refused() {
        // Too short, not in the alphabet, more than 32 bits.
        for text in [
            "Hell",
            "Hel\"o",
            "#####",
            "####1",
            "Hellö",
            "%nSc1",
            "##$$$",
            "##093Hello",
        ] {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!(decode("%nSc0"), Some(vec![0xff; 4]));
        assert_eq!(decode(""), Some(Vec::new()));
    }

    #[test]
    fn a_tail_without_padding_is_read() {
        assert_eq!(decode("##093").unwrap(), [3, 0]);
        assert_eq!(decode("HelloWorld###01").unwrap()[8..], [1]);
        assert_eq!(decode("#00aa").unwrap(), [0, 3, 92]);
    }

    proptest! {
        #[test]
        fn bytes_survive(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut decoded = decode(&encode(&bytes)).unwrap();
            prop_assert!(decoded.len() < bytes.len() + 4);
            decoded.truncate(bytes.len());
            prop_assert_eq!(decoded, bytes);
        }

        #[test]
        fn text_has_one_form(text in "[ -~]{5}") {
            if let Some(bytes) = decode(&text)
                && bytes.len() == 4
            {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
