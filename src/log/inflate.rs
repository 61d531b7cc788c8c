//! Compressed pages that are longer than they say. parquet-rs reserves what a header claims, and some of its codecs go
//! on for as long as there is something to decompress: a page of a few kilobytes fills any memory.

use std::io::Read;

use parquet::basic::Compression;

/// Bytes that every codec may have beyond its expansion.
const ROUNDING: u64 = 1 << 16;
/// Bytes that may come out of a page beyond what it claims. Pages of the usual size can't have more, so that
/// nothing is decompressed twice.
const SLACK: u64 = 256 << 20;
const BUFFER_BYTES: usize = 16 << 10;

/// The most that `stored` bytes can become.
fn longest(codec: Compression, stored: u64) -> u64 {
    let expansion = match codec {
        Compression::UNCOMPRESSED => 1,
        // A copy of 64 bytes takes three.
        Compression::SNAPPY => 22,
        // Each byte of a length stands for 255.
        Compression::LZ4 | Compression::LZ4_RAW => 256,
        // A copy of 258 bytes takes two bits.
        Compression::GZIP(_) => 1032,
        // A block of 128 KiB takes four bytes.
        Compression::ZSTD(_) => 1 << 15,
        // A copy of 16 MiB takes a few bits.
        _ => return u64::MAX,
    };
    stored.saturating_mul(expansion).saturating_add(ROUNDING)
}

/// Whether it takes [`check`] to know that `stored` bytes do not become much more than the `claimed`.
///
/// # Errors
/// When so many can't come out. Says so in words for the user.
pub(super) fn needs_check(
    codec: Compression,
    stored: usize,
    claimed: usize,
) -> Result<bool, String> {
    let longest = longest(codec, stored as u64);
    if claimed as u64 > longest {
        return Err(format!(
            "a page of {stored} bytes claims {claimed} without compression"
        ));
    }
    let endless = match codec {
        Compression::GZIP(_) | Compression::LZ4 | Compression::BROTLI(_) => true,
        // Their output ends with what is claimed.
        _ => false,
    };
    Ok(endless && longest > (claimed as u64).saturating_add(SLACK))
}

/// Decompresses `page`, without its levels, up to what it claims and throws it away.
///
/// # Errors
/// When there is more. Says so in words for the user.
pub(super) fn check(codec: Compression, page: &[u8], claimed: usize) -> Result<(), String> {
    let limit = claimed as u64;
    let found = match codec {
        Compression::GZIP(_) => length(flate2::read::MultiGzDecoder::new(page), limit),
        Compression::LZ4 => length(lz4_flex::frame::FrameDecoder::new(page), limit),
        Compression::BROTLI(_) => length(brotli::Decompressor::new(page, BUFFER_BYTES), limit),
        _ => return Ok(()),
    };
    // The decoder of Brotli reserves what is claimed even twice, and has no expansion that it can't reach.
    let short = found < limit && matches!(codec, Compression::BROTLI(_));
    if found > limit || short {
        let found = if short { "less" } else { "more" };
        return Err(format!(
            "a page has {found} than the {claimed} bytes that it claims without compression"
        ));
    }
    Ok(())
}

/// Bytes that come out, up to the first ones beyond `limit`; those before the place where decompressing fails.
fn length(mut from: impl Read, limit: u64) -> u64 {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut total = 0_u64;
    while total <= limit {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => total = total.saturating_add(read as u64),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const BYTES: usize = 1 << 20;

    fn gzip() -> (Compression, Vec<u8>) {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(&[0; BYTES]).unwrap();
        let one = writer.finish().unwrap();
        // Members follow one another.
        let page = [one.as_slice(), one.as_slice()].concat();
        (Compression::GZIP(Default::default()), page)
    }

    fn lz4() -> (Compression, Vec<u8>) {
        let mut writer = lz4_flex::frame::FrameEncoder::new(Vec::new());
        writer.write_all(&[0; 2 * BYTES]).unwrap();
        (Compression::LZ4, writer.finish().unwrap())
    }

    fn brotli() -> (Compression, Vec<u8>) {
        let mut page = Vec::new();
        let mut writer = brotli::CompressorWriter::new(&mut page, BUFFER_BYTES, 5, 22);
        writer.write_all(&[0; 2 * BYTES]).unwrap();
        drop(writer);
        (Compression::BROTLI(Default::default()), page)
    }

    #[test]
    fn a_page_has_no_more_than_it_claims() {
        for (codec, page) in [gzip(), lz4(), brotli()] {
            assert_eq!(check(codec, &page, 2 * BYTES), Ok(()), "{codec}");
            let error = check(codec, &page, 2 * BYTES - 1).unwrap_err();
            assert!(error.contains("has more than the 2097151 bytes"), "{error}");
        }
        let (codec, page) = brotli();
        let error = check(codec, &page, i32::MAX as usize).unwrap_err();
        assert!(error.contains("has less than"), "{error}");
    }

    #[test]
    fn what_no_codec_reaches_is_refused_unseen() {
        let claim = |codec, claimed| needs_check(codec, 1000, claimed);
        let zstd = Compression::ZSTD(Default::default());
        let gzip = Compression::GZIP(Default::default());
        for (codec, most) in [
            (Compression::UNCOMPRESSED, 1000),
            (Compression::SNAPPY, 22_000),
            (Compression::LZ4, 256_000),
            (Compression::LZ4_RAW, 256_000),
            (gzip, 1_032_000),
            (zstd, 32_768_000),
        ] {
            let most = most + ROUNDING as usize;
            assert_eq!(claim(codec, most), Ok(false), "{codec}");
            let error = claim(codec, most + 1).unwrap_err();
            assert!(error.starts_with("a page of 1000 bytes claims"), "{error}");
        }
        assert_eq!(needs_check(gzip, 1 << 20, 1 << 20), Ok(true));
        assert_eq!(needs_check(Compression::LZ4, 1 << 20, 1 << 20), Ok(false));
        let brotli = Compression::BROTLI(Default::default());
        assert_eq!(claim(brotli, i32::MAX as usize), Ok(true));
    }
}
