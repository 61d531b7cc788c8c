//! Deletion vectors, decoded and encoded from PROTOCOL.md B alone: nothing here comes from the product.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

const MAGIC: u32 = 1_681_511_377;
const Z85: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

pub(crate) fn z85_decode(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 5, 0, "z85 text of {} characters", text.len());
    let digit = |c: &u8| Z85.iter().position(|d| d == c).expect("a z85 digit") as u32;
    let groups = text.as_bytes().chunks(5);
    groups
        .flat_map(|g| g.iter().fold(0_u32, |n, c| n * 85 + digit(c)).to_be_bytes())
        .collect()
}

pub(crate) fn z85_encode(bytes: &[u8]) -> String {
    assert_eq!(bytes.len() % 4, 0);
    let mut text = String::new();
    for word in bytes.chunks(4) {
        let n = u32::from_be_bytes(word.try_into().unwrap());
        for power in [52_200_625, 614_125, 7225, 85, 1] {
            text.push(char::from(Z85[(n / power % 85) as usize]));
        }
    }
    text
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Little-endian numbers off the front of some bytes.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self
            .0
            .split_at_checked(count)
            .expect("a bitmap that is whole");
        self.0 = tail;
        head
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take(2).try_into().unwrap())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }
}

/// The rows of a serialised vector: the magic, then a portable 64-bit roaring bitmap.
pub(crate) fn rows(data: &[u8]) -> BTreeSet<u64> {
    let mut input = Cursor(data);
    assert_eq!(input.u32(), MAGIC, "a vector's magic number");
    let mut rows = BTreeSet::new();
    let mut last = None;
    for _ in 0..input.u64() {
        let key = input.u32();
        assert!(last < Some(key), "bucket keys ascend");
        last = Some(key);
        rows.extend(bitmap(&mut input).map(|low| u64::from(key) << 32 | u64::from(low)));
    }
    assert!(input.0.is_empty(), "bytes after the bitmap");
    rows
}

/// One 32-bit roaring bitmap in the portable format.
fn bitmap(input: &mut Cursor<'_>) -> impl Iterator<Item = u32> + use<> {
    const NO_RUNS: u32 = 12346;
    const RUNS: u32 = 12347;
    let cookie = input.u32();
    let (containers, run_flags) = if cookie & 0xFFFF == RUNS {
        let containers = (cookie >> 16) as usize + 1;
        (containers, input.take(containers.div_ceil(8)).to_vec())
    } else {
        assert_eq!(cookie, NO_RUNS, "a roaring cookie");
        (input.u32() as usize, Vec::new())
    };
    let headers: Vec<(u16, usize)> = (0..containers)
        .map(|_| (input.u16(), usize::from(input.u16()) + 1))
        .collect();
    if run_flags.is_empty() || containers >= 4 {
        input.take(4 * containers); // offsets, which sequential reading doesn't need
    }
    let mut found = Vec::new();
    for (i, (key, cardinality)) in headers.into_iter().enumerate() {
        let start = found.len();
        let mut push = |low: u16| found.push(u32::from(key) << 16 | u32::from(low));
        if run_flags.get(i / 8).is_some_and(|f| f >> (i % 8) & 1 == 1) {
            for _ in 0..input.u16() {
                let (first, more) = (input.u16(), input.u16());
                (first..=first.checked_add(more).unwrap()).for_each(&mut push);
            }
        } else if cardinality <= 4096 {
            (0..cardinality).for_each(|_| push(input.u16()));
        } else {
            for word in 0..1024_u16 {
                let bits = input.u64();
                let set = (0..64_u16).filter(|bit| bits >> bit & 1 == 1);
                set.for_each(|bit| push(word * 64 + bit));
            }
        }
        assert_eq!(
            found.len() - start,
            cardinality,
            "a container's cardinality"
        );
    }
    found.into_iter()
}

/// The rows that an `add` action's descriptor marks as deleted, with every check of the protocol.
pub(crate) fn deleted(table: &Path, descriptor: &Value) -> BTreeSet<u64> {
    let text = descriptor["pathOrInlineDv"].as_str().unwrap();
    let size = descriptor["sizeInBytes"].as_u64().unwrap() as usize;
    let found = match descriptor["storageType"].as_str().unwrap() {
        "i" => rows(&z85_decode(text)[..size]),
        "u" => {
            let (prefix, id) = text.split_at(text.len() - 20);
            let file = table.join(prefix).join(file_name(&z85_decode(id)));
            let bytes = fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            assert_eq!(bytes[0], 1, "the format version of {}", file.display());
            let offset = descriptor["offset"].as_u64().unwrap_or(1) as usize;
            let (head, rest) = bytes[offset..].split_at(4);
            assert_eq!(
                u32::from_be_bytes(head.try_into().unwrap()) as usize,
                size,
                "sizeInBytes of the descriptor is the size in the file"
            );
            let sum = u32::from_be_bytes(rest[size..size + 4].try_into().unwrap());
            assert_eq!(sum, crc32(&rest[..size]), "checksum in {}", file.display());
            rows(&rest[..size])
        }
        other => panic!("the oracle does not follow vectors of storage type `{other}`"),
    };
    assert_eq!(
        Some(found.len() as u64),
        descriptor["cardinality"].as_u64(),
        "cardinality of the descriptor"
    );
    found
}

fn file_name(uuid: &[u8]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    let (a, b, c, d, e) = (
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    );
    format!("deletion_vector_{a}-{b}-{c}-{d}-{e}.bin")
}

/// Writes a vector file for a few low rows into a table, as another system would; returns the descriptor.
pub(crate) fn write(table: &Path, id: u8, deleted: &[u16]) -> Value {
    let mut data = MAGIC.to_le_bytes().to_vec();
    data.extend(1_u64.to_le_bytes());
    data.extend(0_u32.to_le_bytes());
    data.extend(12346_u32.to_le_bytes());
    data.extend(1_u32.to_le_bytes());
    data.extend(0_u16.to_le_bytes());
    data.extend((deleted.len() as u16 - 1).to_le_bytes());
    data.extend(16_u32.to_le_bytes());
    data.extend(deleted.iter().flat_map(|row| row.to_le_bytes()));

    let uuid = [id; 16];
    let mut file = vec![1];
    file.extend((data.len() as u32).to_be_bytes());
    file.extend(&data);
    file.extend(crc32(&data).to_be_bytes());
    fs::write(table.join(file_name(&uuid)), file).unwrap();
    json!({
        "storageType": "u",
        "pathOrInlineDv": z85_encode(&uuid),
        "offset": 1,
        "sizeInBytes": data.len(),
        "cardinality": deleted.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_the_sample_of_the_digest() {
        let data = z85_decode("^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L");
        let expected = [3, 4, 7, 11, 18, 29].into_iter().collect();
        assert_eq!(rows(&data[..44]), expected);
        assert_eq!(z85_decode(&z85_encode(&data)), data);
    }

    #[test]
    fn decodes_bitmap_and_run_containers() {
        let mut data = MAGIC.to_le_bytes().to_vec();
        data.extend(1_u64.to_le_bytes());
        data.extend(0_u32.to_le_bytes());
        data.extend((12347_u32 | 1 << 16).to_le_bytes());
        data.push(0b10);
        for header in [0_u16, 4999, 2, 9] {
            data.extend(header.to_le_bytes());
        }
        // 5,000 rows as a bitmap, then the run 131072 + 7 ..= 131072 + 16.
        let words = (0..1024_u64).map(|w| match w {
            0..78 => u64::MAX,
            78 => 0xFF,
            _ => 0,
        });
        data.extend(words.flat_map(u64::to_le_bytes));
        for run in [1_u16, 7, 9] {
            data.extend(run.to_le_bytes());
        }
        let expected = (0..5000).chain(131_079..131_089).collect();
        assert_eq!(rows(&data), expected);
    }

    #[test]
    fn reads_back_what_it_writes() {
        let dir = tempfile::tempdir().unwrap();
        let descriptor = write(dir.path(), 7, &[1, 5, 9]);
        assert_eq!(deleted(dir.path(), &descriptor), [1, 5, 9].into());
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }
}
