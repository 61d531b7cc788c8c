//! The footer of a checkpoint, checked before a decoder sees it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::log::check_footer;

/// Length and magic at the end of a file.
const TAIL_BYTES: u64 = 8;

/// Fails for what is no footer and for one that a decoder does not survive.
pub(super) fn check(file: &File) -> io::Result<()> {
    let end = file.metadata()?.len();
    let bad = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let tail_at = end
        .checked_sub(TAIL_BYTES)
        .ok_or_else(|| bad("it is too short for a Parquet file".to_owned()))?;
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, tail_at)?;
    let [length @ .., b'P', b'A', b'R', b'1'] = tail else {
        return Err(bad("it does not end as a Parquet file".to_owned()));
    };
    let length = u32::from_le_bytes(length);
    let footer_at = tail_at
        .checked_sub(length.into())
        .ok_or_else(|| bad("its footer is longer than the file".to_owned()))?;
    let mut footer = vec![0; length as usize];
    file.read_exact_at(&mut footer, footer_at)?;
    check_footer(&footer).map_err(|reason| bad(format!("its footer is damaged: {reason}")))
}
