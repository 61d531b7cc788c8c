//! Commit files: one action a line.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::{Action, Add, LogError, PartitionValues, Remove, Tags};
use crate::deletion_vector::DeletionVectorDescriptor;
use crate::schema::json;

/// Parses the body of `V.json`. Actions of unknown kinds are skipped; a line that is no JSON object is
/// corruption.
///
/// # Errors
/// [`LogError`], naming `file` and the line.
pub fn parse_commit(file: &str, body: &[u8]) -> Result<Vec<Action>, LogError> {
    let mut actions = Vec::new();
    each_action(file, body, true, |action| actions.push(action))?;
    Ok(actions)
}

/// Hands out the actions of a commit one by one, commitInfo only if it is asked for.
///
/// # Errors
/// As [`parse_commit`].
pub fn each_action(
    file: &str,
    body: &[u8],
    with_info: bool,
    mut sink: impl FnMut(Action),
) -> Result<(), LogError> {
    let mut empty = true;
    for (index, line) in body.split(|b| *b == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        empty = false;
        let is_info = || line.starts_with(b"{\"commitInfo\":{");
        if !with_info && is_info() && serde_json::from_slice::<IgnoredAny>(line).is_ok() {
            continue;
        }
        if let Some(action) = parse_line(file, index + 1, line)? {
            sink(action);
        }
    }
    if empty {
        return Err(LogError::Empty {
            file: file.to_owned(),
        });
    }
    Ok(())
}

/// A file action without unknown fields: parsed without keeping every field aside until all are known.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Known {
    Add(KnownAdd),
    Remove(KnownRemove),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KnownAdd {
    path: String,
    partition_values: PartitionValues,
    size: i64,
    modification_time: i64,
    data_change: bool,
    stats: Option<String>,
    tags: Option<Tags>,
    deletion_vector: Option<DeletionVectorDescriptor>,
    base_row_id: Option<i64>,
    default_row_commit_version: Option<i64>,
    clustering_provider: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KnownRemove {
    path: String,
    deletion_timestamp: Option<i64>,
    data_change: bool,
    extended_file_metadata: Option<bool>,
    partition_values: Option<PartitionValues>,
    size: Option<i64>,
    stats: Option<String>,
    tags: Option<Tags>,
    deletion_vector: Option<DeletionVectorDescriptor>,
    base_row_id: Option<i64>,
    default_row_commit_version: Option<i64>,
}

impl From<Known> for Action {
    fn from(known: Known) -> Self {
        match known {
            Known::Add(add) => Action::Add(Add {
                path: add.path,
                partition_values: add.partition_values,
                size: add.size,
                modification_time: add.modification_time,
                data_change: add.data_change,
                stats: add.stats,
                tags: add.tags,
                deletion_vector: add.deletion_vector,
                base_row_id: add.base_row_id,
                default_row_commit_version: add.default_row_commit_version,
                clustering_provider: add.clustering_provider,
                unknown: Map::new(),
            }),
            Known::Remove(remove) => Action::Remove(Remove {
                path: remove.path,
                deletion_timestamp: remove.deletion_timestamp,
                data_change: remove.data_change,
                extended_file_metadata: remove.extended_file_metadata,
                partition_values: remove.partition_values,
                size: remove.size,
                stats: remove.stats,
                tags: remove.tags,
                deletion_vector: remove.deletion_vector,
                base_row_id: remove.base_row_id,
                default_row_commit_version: remove.default_row_commit_version,
                unknown: Map::new(),
            }),
        }
    }
}

/// One line; `None` for what carries nothing (an empty object, a null action).
pub(super) fn parse_line(file: &str, line: usize, text: &[u8]) -> Result<Option<Action>, LogError> {
    let of_file = [&b"{\"add\":"[..], b"{\"remove\":"];
    if of_file.iter().any(|start| text.starts_with(start))
        && let Ok(known) = serde_json::from_slice::<Known>(text)
    {
        return Ok(Some(known.into()));
    }
    let first = match serde_json::from_slice::<Action>(text) {
        Ok(action) if !action.has_fractions() => return Ok(Some(action)),
        // Its numbers are not exactly those that stand there.
        Ok(_) => None,
        Err(error) => Some(error),
    };
    let bad = |reason: String| LogError::Action {
        file: file.to_owned(),
        line,
        reason,
    };
    let Value::Object(mut object) = json::from_slice(text).map_err(|e| bad(e.to_string()))? else {
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
            .map_err(|error| bad(first.unwrap_or(error).to_string())),
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
    fn unknown_numbers_do_not_drift() {
        for number in ["1.1844674407370957e+20", "1e-7", "-0.0", "0.1"] {
            let add = format!(
                r#"{{"add":{{"path":"a","partitionValues":{{}},"size":1,"modificationTime":2,"dataChange":true,"x":{number}}}}}"#
            );
            let info = format!(r#"{{"commitInfo":{{"x":[{{"y":{number}}}]}}}}"#);
            for line in [add, info] {
                let actions = parse_commit("f", line.as_bytes()).unwrap();
                assert_eq!(write_commit(&actions).trim_ascii(), line.as_bytes());
            }
        }
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
