//! The text of one WRITE (DESIGN.md §4): options in comment lines, then the statement.

use crate::error::{Failure, Kind};

/// Longest statement in bytes; longer ones come from a file.
pub const MAX_BYTES: usize = 1 << 20;

/// A statement that can't be taken as text. Nothing was run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    #[error("the statement is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("the statement is not valid UTF-8 (byte {0})")]
    NotUtf8(usize),
    #[error("the statement holds a NUL character (byte {0})")]
    Nul(usize),
    #[error("the statement is empty; nothing was run")]
    Empty,
    #[error("unknown option `{0}`")]
    UnknownOption(String),
    #[error("this handle has run its statement; one write is one statement")]
    Second,
}

impl Failure for ControlError {
    fn kind(&self) -> Kind {
        Kind::Invalid
    }

    fn hint(&self) -> Option<String> {
        match self {
            ControlError::Second => Some(
                "only what came first was run: see .delta/ctl; send a statement of several lines in one write (a here-document; echo and printf send each line by itself)"
                    .to_owned(),
            ),
            ControlError::UnknownOption(_) => {
                Some("options are lines `-- userMetadata: text` before the statement".to_owned())
            }
            _ => None,
        }
    }
}

/// A statement and its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Never empty; without the option lines, surrounding blanks and a final semicolon.
    pub text: String,
    /// `-- userMetadata: …`
    pub user_metadata: Option<String>,
}

impl Statement {
    /// Parses the bytes of a control file. A byte order mark and CRLF are taken.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ControlError> {
        if bytes.len() > MAX_BYTES {
            return Err(ControlError::TooLong);
        }
        if let Some(at) = bytes.iter().position(|b| *b == 0) {
            return Err(ControlError::Nul(at));
        }
        let text =
            std::str::from_utf8(bytes).map_err(|e| ControlError::NotUtf8(e.valid_up_to()))?;
        let text = text
            .strip_prefix('\u{feff}')
            .unwrap_or(text)
            .replace("\r\n", "\n");
        let mut user_metadata = None;
        let mut rest = text.trim_start();
        while let Some(comment) = rest.strip_prefix("--") {
            let (line, after) = comment.split_once('\n').unwrap_or((comment, ""));
            if let Some((key, value)) = line.split_once(':') {
                match key.trim() {
                    "userMetadata" => user_metadata = Some(value.trim().to_owned()),
                    // `-- note: it is late` is a comment; a single word before the colon is meant as an option.
                    key if !key.is_empty() && key.chars().all(char::is_alphanumeric) => {
                        return Err(ControlError::UnknownOption(key.to_owned()));
                    }
                    _ => {}
                }
            }
            rest = after.trim_start();
        }
        let text = rest.trim_end().trim_end_matches(';').trim_end();
        if text.is_empty() {
            return Err(ControlError::Empty);
        }
        Ok(Statement {
            text: text.to_owned(),
            user_metadata,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_any_editor_is_one_statement() {
        // D113
        for text in [
            "id < 5",
            "\u{feff}id < 5\r\n",
            "  id < 5 ;\n",
            "-- why\nid < 5\n",
        ] {
            assert_eq!(
                Statement::parse(text.as_bytes()).unwrap().text,
                "id < 5",
                "{text:?}"
            );
        }
        assert_eq!(
            Statement::parse(b"a = 1\r\nAND b = 2\r\n").unwrap().text,
            "a = 1\nAND b = 2"
        );
    }

    #[test]
    fn what_is_no_statement_never_runs() {
        // D103
        for empty in ["", "\n", " ;\n", "-- only a comment", "\u{feff}"] {
            assert_eq!(
                Statement::parse(empty.as_bytes()),
                Err(ControlError::Empty),
                "{empty:?}"
            );
        }
        assert_eq!(Statement::parse(b"id\0"), Err(ControlError::Nul(2)));
        assert_eq!(Statement::parse(b"id \xff"), Err(ControlError::NotUtf8(3)));
        assert_eq!(
            Statement::parse(&vec![b'x'; MAX_BYTES + 1]),
            Err(ControlError::TooLong)
        );
    }

    #[test]
    fn options_come_first() {
        let s = Statement::parse(b"-- userMetadata: ticket 7\nid = 1\n").unwrap();
        assert_eq!(s.user_metadata.as_deref(), Some("ticket 7"));
        assert_eq!(s.text, "id = 1");
        assert_eq!(
            Statement::parse(b"-- userMeta: x\nid = 1"),
            Err(ControlError::UnknownOption("userMeta".to_owned()))
        );
    }
}
