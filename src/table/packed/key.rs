//! Keys as values: most paths end in a UUID, which takes 16 bytes instead of 36.

use std::borrow::Cow;

/// Characters of a UUID.
const TEXT: usize = 36;
const BYTES: usize = 16;

/// The first byte: as it is, or where the UUID starts, plus one.
const AS_IT_IS: u8 = 0;

/// A key as [`expand`] takes it.
pub(in crate::table) fn squeeze(key: &[u8]) -> Vec<u8> {
    let found = key.windows(TEXT).take(usize::from(u8::MAX)).enumerate();
    let found = found
        .filter(|(_, text)| text.get(8) == Some(&b'-') && text.get(23) == Some(&b'-'))
        .find_map(|(at, text)| Some((at, uuid_of(text)?)));
    match found {
        Some((at, id)) => {
            let mut out = Vec::with_capacity(key.len() + 1 + BYTES - TEXT);
            // At most 254: the windows end there.
            out.push(u8::try_from(at + 1).unwrap_or(u8::MAX));
            out.extend_from_slice(&id);
            out.extend_from_slice(key.get(..at).unwrap_or_default());
            out.extend_from_slice(key.get(at + TEXT..).unwrap_or_default());
            out
        }
        None => [&[AS_IT_IS], key].concat(),
    }
}

/// Only the form that comes back as it was.
fn uuid_of(text: &[u8]) -> Option<[u8; BYTES]> {
    let id = uuid::Uuid::try_parse_ascii(text).ok()?;
    let mut buffer = uuid::Uuid::encode_buffer();
    let same = id.as_hyphenated().encode_lower(&mut buffer).as_bytes() == text;
    same.then(|| id.into_bytes())
}

/// The key again.
pub(in crate::table) fn expand(squeezed: &[u8]) -> Cow<'_, [u8]> {
    let Some((first, rest)) = squeezed.split_first() else {
        return Cow::Borrowed(&[]);
    };
    let Some(at) = first.checked_sub(1) else {
        return Cow::Borrowed(rest);
    };
    let (id, rest) = rest.split_at_checked(BYTES).unwrap_or((rest, &[]));
    let (before, behind) = rest.split_at_checked(at.into()).unwrap_or((rest, &[]));
    let id = uuid::Uuid::from_slice(id).unwrap_or_default();
    let mut buffer = uuid::Uuid::encode_buffer();
    let id = id.as_hyphenated().encode_lower(&mut buffer).as_bytes();
    Cow::Owned([before, id, behind].concat())
}
