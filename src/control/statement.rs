//! The text of one WRITE (DESIGN.md §4): options in comment lines, then the statement.

use crate::engine::EngineError;
use crate::error::{Failure, Kind};
use crate::ops::Options;

/// Longest statement in bytes; longer ones come from a file.
pub const MAX_BYTES: usize = 1 << 20;

/// A statement that can't be taken as text. Nothing was run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
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
    #[error("option `{option}` is {value:?}, which is no {expected}")]
    OptionValue {
        option: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("the options txnAppId and txnVersion belong together, and one of them is missing")]
    HalfTxn,
    #[error("{what} is not there yet")]
    NotYet {
        what: &'static str,
        /// What is.
        there: &'static str,
    },
    #[error("expected {expected}; found {found:?}")]
    Expected {
        expected: &'static str,
        found: String,
    },
    #[error(transparent)]
    Text(#[from] EngineError),
    #[error("this handle has run its statement; one write is one statement")]
    Second,
}

impl Failure for ControlError {
    fn kind(&self) -> Kind {
        match self {
            ControlError::NotYet { .. } => Kind::Unsupported,
            ControlError::Text(e) => e.kind(),
            ControlError::TooLong
            | ControlError::NotUtf8(_)
            | ControlError::Nul(_)
            | ControlError::Empty
            | ControlError::UnknownOption(_)
            | ControlError::OptionValue { .. }
            | ControlError::HalfTxn
            | ControlError::Expected { .. }
            | ControlError::Second => Kind::Invalid,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            ControlError::Second => Some(
                "only what came first was run: see .delta/ctl; send a statement of several lines in one write (a here-document; echo and printf send each line by itself)"
                    .to_owned(),
            ),
            ControlError::UnknownOption(_) => {
                Some(OPTIONS.to_owned())
            }
            ControlError::HalfTxn => Some(OPTIONS.to_owned()),
            ControlError::NotYet { there, .. } => Some(format!("write {there}")),
            ControlError::Expected { .. } => Some(
                "the table is that of the directory and is not named; one write is one statement"
                    .to_owned(),
            ),
            ControlError::Text(e) => e.hint(),
            _ => None,
        }
    }
}

/// What there is.
const OPTIONS: &str = "options are lines before the statement: `-- userMetadata: text`, `-- txnAppId: name` with \
                       `-- txnVersion: number` (what was committed once is not committed again), `-- retries: number` \
                       (run again on the newest version after a conflict)";

/// A statement and its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Never empty; without the option lines, surrounding blanks and a final semicolon.
    pub text: String,
    pub options: Options,
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
        let mut options = Options::default();
        let (mut app_id, mut app_version) = (None, None);
        let mut rest = text.trim_start();
        while let Some(comment) = rest.strip_prefix("--") {
            let (line, after) = comment.split_once('\n').unwrap_or((comment, ""));
            if let Some((key, value)) = line.split_once(':') {
                match key.trim() {
                    "userMetadata" => options.user_metadata = Some(value.trim().to_owned()),
                    "txnAppId" if value.trim().is_empty() => {
                        return Err(bad_value("txnAppId", value, "name"));
                    }
                    "txnAppId" => app_id = Some(value.trim().to_owned()),
                    "txnVersion" => {
                        let number = value.trim().parse();
                        let bad = |_| bad_value("txnVersion", value, "whole number");
                        app_version = Some(number.map_err(bad)?);
                    }
                    "retries" => {
                        let number = value.trim().parse();
                        options.retries =
                            number.map_err(|_| bad_value("retries", value, "whole number"))?;
                    }
                    // `-- note: it is late` is a comment; a single word before the colon is meant as an option.
                    key if !key.is_empty() && key.chars().all(char::is_alphanumeric) => {
                        return Err(ControlError::UnknownOption(key.to_owned()));
                    }
                    _ => {}
                }
            }
            rest = after.trim_start();
        }
        options.txn = match (app_id, app_version) {
            (None, None) => None,
            (Some(id), Some(version)) => Some((id, version)),
            _ => return Err(ControlError::HalfTxn),
        };
        let text = rest.trim_end().trim_end_matches(';').trim_end();
        if text.is_empty() {
            return Err(ControlError::Empty);
        }
        Ok(Statement {
            text: text.to_owned(),
            options,
        })
    }
}

fn bad_value(option: &'static str, value: &str, expected: &'static str) -> ControlError {
    ControlError::OptionValue {
        option,
        value: value.trim().to_owned(),
        expected,
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
        assert_eq!(s.options.user_metadata.as_deref(), Some("ticket 7"));
        assert_eq!(s.text, "id = 1");
        assert_eq!(
            Statement::parse(b"-- userMeta: x\nid = 1"),
            Err(ControlError::UnknownOption("userMeta".to_owned()))
        );
        let s = Statement::parse(b"-- txnAppId: job 1\n-- txnVersion: 7\n-- retries: 2\nid = 1\n");
        let options = s.unwrap().options;
        assert_eq!(options.txn, Some(("job 1".to_owned(), 7)));
        assert_eq!(options.retries, 2);
        for half in ["-- txnAppId: x\nid = 1", "-- txnVersion: 1\nid = 1"] {
            assert_eq!(
                Statement::parse(half.as_bytes()),
                Err(ControlError::HalfTxn)
            );
        }
        for bad in [
            "-- retries: some\nid = 1",
            "-- txnVersion: x\nid = 1",
            "-- txnAppId:\nid = 1",
        ] {
            let parsed = Statement::parse(bad.as_bytes());
            assert!(
                matches!(parsed, Err(ControlError::OptionValue { .. })),
                "{bad}"
            );
        }
    }
}
