//! `_last_checkpoint`: a hint at a checkpoint (PROTOCOL.md A1). A file that is of no use is no error: list the folder.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::md5::md5_hex;
use crate::schema::json;

/// The name of the file in `_delta_log`.
pub const LAST_CHECKPOINT: &str = "_last_checkpoint";

/// What the hint says. All but the version is for statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastCheckpoint {
    pub version: u64,
    /// Actions.
    pub size: Option<u64>,
    /// Files of a multi-part checkpoint.
    pub parts: Option<u32>,
    pub size_in_bytes: Option<u64>,
    pub num_of_add_files: Option<u64>,
    /// The manifest, for a V2 checkpoint under a name of its own.
    pub v2_checkpoint: Option<V2Hint>,
    /// Free-form; kept as they are.
    pub tags: Option<Map<String, Value>>,
}

/// `v2Checkpoint`: which file of the version it is, as Delta Spark writes it. What the file holds (`nonFileActions`,
/// `sidecarFiles`) may stand here, too; it is not written, so that the hint stays small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct V2Hint {
    /// The manifest's name.
    pub path: String,
    /// Of the manifest alone.
    pub size_in_bytes: i64,
    /// Milliseconds since the epoch.
    pub modification_time: i64,
}

/// Why a hint is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HintFault {
    #[error("it is empty")]
    Empty,
    #[error("it is not a JSON object")]
    NotAnObject,
    #[error("it has no version")]
    NoVersion,
    #[error("its checksum is {stored}, that of its content is {computed}")]
    Checksum { stored: String, computed: String },
}

impl LastCheckpoint {
    /// Parses the file. Fields of a wrong type count as absent, except for the version.
    ///
    /// # Errors
    /// [`HintFault`]: read the folder instead.
    pub fn parse(body: &[u8]) -> Result<Self, HintFault> {
        if body.trim_ascii().is_empty() {
            return Err(HintFault::Empty);
        }
        let Ok(Value::Object(object)) = json::from_slice(body) else {
            return Err(HintFault::NotAnObject);
        };
        if let Some(stored) = object.get("checksum").and_then(Value::as_str) {
            let computed = checksum(&object);
            if !stored.eq_ignore_ascii_case(&computed) {
                return Err(HintFault::Checksum {
                    stored: stored.to_owned(),
                    computed,
                });
            }
        }
        let number = |key: &str| object.get(key).and_then(Value::as_u64);
        Ok(LastCheckpoint {
            version: number("version").ok_or(HintFault::NoVersion)?,
            size: number("size"),
            parts: number("parts").and_then(|parts| u32::try_from(parts).ok()),
            size_in_bytes: number("sizeInBytes"),
            num_of_add_files: number("numOfAddFiles"),
            v2_checkpoint: object.get("v2Checkpoint").and_then(V2Hint::parse),
            tags: object.get("tags").and_then(Value::as_object).cloned(),
        })
    }

    /// The content of the file, with its checksum.
    pub fn to_json(&self) -> String {
        let numbers = [
            ("version", Some(self.version)),
            ("size", self.size),
            ("parts", self.parts.map(u64::from)),
            ("sizeInBytes", self.size_in_bytes),
            ("numOfAddFiles", self.num_of_add_files),
        ];
        let mut object = Map::new();
        for (key, number) in numbers {
            if let Some(number) = number {
                object.insert(key.to_owned(), number.into());
            }
        }
        if let Some(hint) = &self.v2_checkpoint {
            object.insert("v2Checkpoint".to_owned(), hint.to_value());
        }
        if let Some(tags) = &self.tags {
            object.insert("tags".to_owned(), Value::Object(tags.clone()));
        }
        let checksum = checksum(&object);
        object.insert("checksum".to_owned(), checksum.into());
        Value::Object(object).to_string()
    }
}

impl V2Hint {
    fn parse(value: &Value) -> Option<Self> {
        Some(V2Hint {
            path: value.get("path")?.as_str()?.to_owned(),
            size_in_bytes: value.get("sizeInBytes")?.as_i64()?,
            modification_time: value.get("modificationTime")?.as_i64()?,
        })
    }

    fn to_value(&self) -> Value {
        let mut object = Map::new();
        object.insert("path".to_owned(), self.path.as_str().into());
        object.insert("sizeInBytes".to_owned(), self.size_in_bytes.into());
        object.insert("modificationTime".to_owned(), self.modification_time.into());
        Value::Object(object)
    }
}

/// The MD5 of the canonical form: `path=value` of every leaf, sorted, joined by commas.
fn checksum(object: &Map<String, Value>) -> String {
    let mut leaves = Vec::new();
    for (key, value) in object {
        if key != "checksum" {
            flatten(quoted(key), value, &mut leaves);
        }
    }
    leaves.sort_unstable();
    let lines: Vec<String> = leaves
        .into_iter()
        .map(|(p, v)| format!("{p}={v}"))
        .collect();
    md5_hex(lines.join(",").as_bytes())
}

fn flatten(path: String, value: &Value, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                flatten(format!("{path}+{}", quoted(key)), value, leaves);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                flatten(format!("{path}+{index}"), value, leaves);
            }
        }
        Value::String(text) => leaves.push((path, quoted(text))),
        Value::Null | Value::Bool(_) | Value::Number(_) => leaves.push((path, value.to_string())),
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let hint = LastCheckpoint {
            version: 20,
            size: Some(5),
            size_in_bytes: Some(27_370),
            num_of_add_files: Some(1),
            ..LastCheckpoint::default()
        };
        let json = hint.to_json();
        assert!(json.starts_with(r#"{"version":20,"size":5,"sizeInBytes":27370,"#));
        assert_eq!(LastCheckpoint::parse(json.as_bytes()).unwrap(), hint);
        let lied = json.replace("27370", "27371");
        assert!(matches!(
            LastCheckpoint::parse(lied.as_bytes()),
            Err(HintFault::Checksum { .. })
        ));
        let hint = LastCheckpoint {
            v2_checkpoint: Some(V2Hint {
                path: "x.parquet".to_owned(),
                size_in_bytes: 7,
                modification_time: -1,
            }),
            ..hint
        };
        assert_eq!(
            LastCheckpoint::parse(hint.to_json().as_bytes()).unwrap(),
            hint
        );
        let odd = LastCheckpoint::parse(b"{\"version\":3,\"v2Checkpoint\":{\"path\":1}}");
        assert_eq!(odd.unwrap().v2_checkpoint, None);
    }

    #[test]
    fn garbage_has_a_reason() {
        // D82
        for (body, fault) in [
            ("", HintFault::Empty),
            (" \n", HintFault::Empty),
            ("{\"version\":", HintFault::NotAnObject),
            ("[1]", HintFault::NotAnObject),
            ("{\"size\":3}", HintFault::NoVersion),
            ("{\"version\":-1}", HintFault::NoVersion),
            ("\0\0\0", HintFault::NotAnObject),
        ] {
            assert_eq!(LastCheckpoint::parse(body.as_bytes()), Err(fault), "{body}");
        }
        let tolerant = LastCheckpoint::parse(b"{\"version\":3,\"size\":\"x\",\"more\":1}").unwrap();
        assert_eq!((tolerant.version, tolerant.size), (3, None));
    }

    #[test]
    fn the_example_of_the_protocol() {
        let object = r#"{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}"#;
        let object: Map<String, Value> = serde_json::from_str(object).unwrap();
        assert_eq!(checksum(&object), "6a92d155a59bf2eecbd4b4ec7fd1f875");
    }

    #[test]
    fn the_hints_of_other_writers_are_right() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
        if !corpus.is_dir() {
            println!("skipped: no corpus at {}", corpus.display());
            return;
        }
        let (mut read, mut summed) = (0, 0);
        let mut folders = vec![corpus];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.ends_with(LAST_CHECKPOINT) {
                    let body = std::fs::read(&path).unwrap();
                    match LastCheckpoint::parse(&body) {
                        Ok(_) => read += 1,
                        Err(fault) => assert_eq!(fault, HintFault::Empty, "{}", path.display()),
                    }
                    let text = String::from_utf8_lossy(&body);
                    summed += usize::from(text.contains("\"checksum\""));
                }
            }
        }
        println!("{read} hints read, {summed} with a checksum");
        assert!(summed > 15);
    }
}
