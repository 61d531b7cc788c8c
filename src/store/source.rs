//! What a user may name as the source of a mount.

use std::path::PathBuf;

use super::StoreError;

/// The directory of a path or `file://` URL; a trailing slash makes no difference.
///
/// # Errors
/// [`StoreError::Source`] for other schemes.
pub fn parse_source(text: &str) -> Result<PathBuf, StoreError> {
    let bad = || StoreError::Source(text.to_owned());
    let path = match text.strip_prefix("file:") {
        Some(rest) => {
            let rest = rest.strip_prefix("//localhost").unwrap_or(rest);
            let rest = rest.strip_prefix("//").unwrap_or(rest);
            if !rest.starts_with('/') {
                return Err(bad());
            }
            percent_encoding::percent_decode_str(rest)
                .decode_utf8()
                .map_err(|_| bad())?
                .into_owned()
        }
        None if text.contains("://") || text.is_empty() => return Err(bad()),
        None => text.to_owned(),
    };
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_file_urls_are_sources() {
        assert_eq!(
            parse_source("file:///a%20b/").unwrap(),
            PathBuf::from("/a b/")
        );
        assert_eq!(parse_source("./w").unwrap(), PathBuf::from("./w"));
        for bad in ["s3://b/p", "", "file://host/x"] {
            assert!(parse_source(bad).is_err(), "{bad}");
        }
    }
}
