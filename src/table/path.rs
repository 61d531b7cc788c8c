//! Paths of the log: decoded once, kept inside the table's directory (PROTOCOL.md E, Security).

use std::path::Path;

use crate::schema::partition::decode_path;

/// Where an `add.path`, `remove.path` or a deletion vector's URI leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataPath {
    /// Below the table's directory, decoded, without `.`, `..` or a leading slash.
    Inside(String),
    /// Anywhere else, or nowhere: as the log has it. Never opened, never removed.
    Outside(String),
}

impl DataPath {
    /// Parses the text of the log for a table in the directory `table`.
    pub fn parse(text: &str, table: &Path) -> Self {
        Self::inside(text, table)
            .map_or_else(|| DataPath::Outside(text.to_owned()), DataPath::Inside)
    }

    fn inside(text: &str, table: &Path) -> Option<String> {
        if is_simple(text) {
            return Some(text.to_owned());
        }
        let relative = match absolute(text) {
            Some(path) => {
                let path = decode_path(path)?;
                let table = table.to_str()?.trim_end_matches('/');
                path.strip_prefix(table)?.strip_prefix('/')?.to_owned()
            }
            None => decode_path(text)?,
        };
        if relative.contains('\0') {
            return None;
        }
        let mut parts = Vec::new();
        for part in relative.split('/') {
            match part {
                "" | "." => {}
                ".." => return None,
                part => parts.push(part),
            }
        }
        (!parts.is_empty()).then(|| parts.join("/"))
    }

    /// What identifies the file in a snapshot.
    pub fn key(&self) -> &str {
        match self {
            DataPath::Inside(path) | DataPath::Outside(path) => path,
        }
    }
}

/// Whether a text is the path that it stands for: most are.
fn is_simple(text: &str) -> bool {
    let bytes = text.as_bytes();
    let special = bytes.contains(&b'%') || bytes.contains(&b':') || bytes.contains(&0);
    let is_part = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    !special && bytes.split(|b| *b == b'/').all(is_part)
}

/// The path of an absolute URI or path; a foreign scheme gives a path that no table has.
fn absolute(text: &str) -> Option<&str> {
    if text.starts_with('/') {
        return Some(text);
    }
    let (scheme, rest) = text.split_once(':')?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme {
        return None;
    }
    if scheme == "file" {
        return Some(rest.strip_prefix("//").unwrap_or(rest));
    }
    Some("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_once_and_stay_inside() {
        let table = Path::new("/w/t");
        let inside = |text: &str| match DataPath::parse(text, table) {
            DataPath::Inside(path) => Some(path),
            DataPath::Outside(_) => None,
        };
        assert_eq!(
            inside("p=a%253Ab/f.parquet").as_deref(),
            Some("p=a%3Ab/f.parquet")
        );
        assert_eq!(inside("a+b").as_deref(), Some("a+b"));
        for same in [
            "file:/w/t/x/f",
            "file:///w/t/x/f",
            "/w/t/x/f",
            "x/f",
            "./x//f",
        ] {
            assert_eq!(inside(same).as_deref(), Some("x/f"), "{same}");
        }
        for bad in [
            "../x",
            "a/../../x",
            "a/%2E%2E/x",
            "/etc/passwd",
            "file:///etc/passwd",
            "s3://b/k",
            "",
            "/w/t/../x",
            "a%00b",
            "/w/tother/f",
            ".",
        ] {
            assert_eq!(inside(bad), None, "{bad}");
        }
    }
}
