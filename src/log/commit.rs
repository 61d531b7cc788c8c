//! Commit files: one action a line.

use serde_json::Value;

use super::{Action, LogError};

/// Parses the body of `V.json`. Actions of unknown kinds are skipped; a line that is no JSON object is
/// corruption.
///
/// # Errors
/// [`LogError`], naming `file` and the line.
pub fn parse_commit(file: &str, body: &[u8]) -> Result<Vec<Action>, LogError> {
    let mut actions = Vec::new();
    for (index, line) in body.split(|b| *b == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if let Some(action) = parse_line(file, index + 1, line)? {
            actions.push(action);
        }
    }
    if actions.is_empty() && body.trim_ascii().is_empty() {
        return Err(LogError::Empty {
            file: file.to_owned(),
        });
    }
    Ok(actions)
}

/// One line; `None` for what carries nothing (an empty object, a null action).
pub(super) fn parse_line(file: &str, line: usize, text: &[u8]) -> Result<Option<Action>, LogError> {
    let first = match serde_json::from_slice::<Action>(text) {
        Ok(action) => return Ok(Some(action)),
        Err(error) => error,
    };
    let bad = |reason: String| LogError::Action {
        file: file.to_owned(),
        line,
        reason,
    };
    let Value::Object(mut object) =
        serde_json::from_slice::<Value>(text).map_err(|e| bad(e.to_string()))?
    else {
        return Err(bad("not a JSON object".to_owned()));
    };
    // Some writers list every kind, with null for all but one.
    object.retain(|_, v| !v.is_null());
    let Some(key) = object.keys().next().cloned() else {
        return Ok(None);
    };
    match key.as_str() {
        "commitInfo" | "protocol" | "metaData" | "txn" | "domainMetadata" | "add" | "remove"
        | "cdc" => serde_json::from_value(Value::Object(object))
            .map(Some)
            .map_err(|_| bad(first.to_string())),
        // Actions of features that need them are guarded by the protocol action, not by their name.
        _ => Ok(None),
    }
}

/// The body of a commit.
pub fn write_commit(actions: &[Action]) -> Vec<u8> {
    let mut body = Vec::new();
    for action in actions {
        // Serialising our own types to memory can't fail: no non-string keys, no fallible impls.
        if serde_json::to_writer(&mut body, action).is_ok() {
            body.push(b'\n');
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_of_a_file_survive() {
        let line = br#"{"add":{"path":"a","partitionValues":{"p":null},"size":1,"modificationTime":2,"dataChange":true,"future":{"x":1}}}"#;
        let actions = parse_commit("f", line).unwrap();
        assert_eq!(write_commit(&actions).trim_ascii(), line);
    }

    #[test]
    fn an_empty_commit_is_corruption() {
        // D83
        assert!(matches!(
            parse_commit("f", b" \n"),
            Err(LogError::Empty { .. })
        ));
        assert!(matches!(
            parse_commit("f", b"{"),
            Err(LogError::Action { line: 1, .. })
        ));
        assert_eq!(
            parse_commit("f", b"{\"commitInfo\":{}}\n{\"zap\":{}}")
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn a_line_that_lists_every_kind_is_read() {
        let line = br#"{"add":null,"remove":null,"txn":{"appId":"a","version":3}}"#;
        assert!(matches!(
            parse_commit("f", line).unwrap()[..],
            [Action::Txn(_)]
        ));
    }
}
