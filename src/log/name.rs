//! Names of the files in `_delta_log` (PROTOCOL.md A1).

/// The folder of the log in a table.
pub const LOG_DIR: &str = "_delta_log";

/// The folder of the sidecars in the folder of the log.
pub const SIDECAR_DIR: &str = "_sidecars";

/// A name that means something to the protocol. Anything else in the folder is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogName {
    Commit(u64),
    Classic(u64),
    Part {
        version: u64,
        part: u32,
        parts: u32,
    },
    /// A V2 checkpoint's manifest, JSON or Parquet.
    V2 {
        version: u64,
        json: bool,
    },
    Compacted {
        from: u64,
        to: u64,
    },
    Crc(u64),
}

impl LogName {
    /// Parses a file name.
    pub fn parse(file: &str) -> Option<Self> {
        let mut parts = file.split('.');
        let version = digits(parts.next()?, 20).filter(|v| i64::try_from(*v).is_ok())?;
        let rest: Vec<&str> = parts.collect();
        Some(match rest.as_slice() {
            ["json"] => LogName::Commit(version),
            ["crc"] => LogName::Crc(version),
            ["checkpoint", "parquet"] => LogName::Classic(version),
            ["checkpoint", part, parts, "parquet"] => {
                let part = u32::try_from(digits(part, 10)?).ok()?;
                let parts = u32::try_from(digits(parts, 10)?).ok()?;
                if part == 0 || part > parts {
                    return None;
                }
                LogName::Part {
                    version,
                    part,
                    parts,
                }
            }
            ["checkpoint", id, kind @ ("json" | "parquet")]
                if uuid::Uuid::parse_str(id).is_ok() =>
            {
                LogName::V2 {
                    version,
                    json: *kind == "json",
                }
            }
            [to, "compacted", "json"] => {
                let to = digits(to, 20)?;
                if to <= version {
                    return None;
                }
                LogName::Compacted { from: version, to }
            }
            _ => return None,
        })
    }

    /// `V.json`.
    pub fn commit(version: u64) -> String {
        format!("{version:020}.json")
    }

    /// `X.Y.compacted.json`.
    pub fn compacted(from: u64, to: u64) -> String {
        format!("{from:020}.{to:020}.compacted.json")
    }

    /// `V.checkpoint.parquet`.
    pub fn classic(version: u64) -> String {
        format!("{version:020}.checkpoint.parquet")
    }

    /// `V.checkpoint.<uuid>.parquet`, the manifest of a V2 checkpoint.
    pub fn manifest(version: u64, id: uuid::Uuid) -> String {
        format!("{version:020}.checkpoint.{id}.parquet")
    }

    /// `V.crc`.
    pub fn crc(version: u64) -> String {
        format!("{version:020}.crc")
    }

    /// The version of the file; of a range, the first one.
    pub fn version(&self) -> u64 {
        match self {
            LogName::Commit(version)
            | LogName::Classic(version)
            | LogName::Part { version, .. }
            | LogName::V2 { version, .. }
            | LogName::Compacted { from: version, .. }
            | LogName::Crc(version) => *version,
        }
    }

    /// The name in [`SIDECAR_DIR`] that a sidecar's path means: by some writers, it is a whole URI. `None` when it
    /// names no file there.
    pub fn of_sidecar(path: &str) -> Option<String> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let name = crate::schema::partition::decode_path(name)?;
        let is_name =
            !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
        is_name.then_some(name)
    }
}

fn digits(text: &str, len: usize) -> Option<u64> {
    (text.len() == len && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_protocols_names_mean_something() {
        let v = "00000000000000000012";
        assert_eq!(
            LogName::parse(&format!("{v}.json")),
            Some(LogName::Commit(12))
        );
        assert_eq!(
            LogName::parse(&format!("{v}.checkpoint.parquet")),
            Some(LogName::Classic(12))
        );
        assert_eq!(
            LogName::parse(&format!("{v}.checkpoint.0000000001.0000000002.parquet")),
            Some(LogName::Part {
                version: 12,
                part: 1,
                parts: 2
            })
        );
        assert_eq!(
            LogName::parse(&format!(
                "{v}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
            )),
            Some(LogName::V2 {
                version: 12,
                json: true
            })
        );
        let id = uuid::Uuid::from_u128(7);
        assert_eq!(
            LogName::parse(&LogName::manifest(12, id)),
            Some(LogName::V2 {
                version: 12,
                json: false
            })
        );
        assert_eq!(LogName::parse(&LogName::crc(3)), Some(LogName::Crc(3)));
        // D84
        for other in [
            "_commit_1.json.tmp",
            ".00000000000000000005.json.crc",
            "5.json",
            "00000000000000000005.json.tmp",
            "00000000000000000005.checkpoint.0000000003.0000000002.parquet",
            "_last_checkpoint",
            "",
        ] {
            assert_eq!(LogName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_sidecar_is_a_name_in_its_folder() {
        for (path, name) in [
            ("a.parquet", Some("a.parquet")),
            (
                "file:///w/t/_delta_log/_sidecars/a%20b.parquet",
                Some("a b.parquet"),
            ),
            ("..", None),
            ("x/", None),
            ("%2E%2E", None),
            ("a%2Fb", None),
            ("a%00", None),
        ] {
            assert_eq!(LogName::of_sidecar(path).as_deref(), name, "{path}");
        }
    }
}
