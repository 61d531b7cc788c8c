//! `delta.*` table properties.

use super::txn::Level;
use crate::log::{Metadata, Protocol};

const HOUR_MS: i64 = 3_600_000;

/// `delta.checkpointInterval`, default 10; at least 1.
pub fn checkpoint_interval(metadata: &Metadata) -> u64 {
    metadata
        .configuration
        .get("delta.checkpointInterval")
        .and_then(|v| v.trim().parse().ok())
        .filter(|v| *v > 0)
        .unwrap_or(10)
}

/// `delta.deletedFileRetentionDuration` in milliseconds, default 7 days.
pub fn deleted_file_retention_ms(metadata: &Metadata) -> i64 {
    metadata
        .configuration
        .get("delta.deletedFileRetentionDuration")
        .and_then(|v| parse_interval_ms(v))
        .unwrap_or(7 * 24 * HOUR_MS)
}

/// `delta.logRetentionDuration` in milliseconds, default 30 days; `None` when it is no duration.
pub fn log_retention_ms(metadata: &Metadata) -> Option<i64> {
    match metadata.configuration.get(LOG_RETENTION) {
        Some(text) => parse_interval_ms(text),
        None => Some(30 * 24 * HOUR_MS),
    }
}

/// `delta.enableExpiredLogCleanup`, default true.
pub fn log_cleanup(metadata: &Metadata) -> bool {
    on_by_default(metadata, "delta.enableExpiredLogCleanup")
}

/// Whether checkpoints are to be V2 ones: `delta.checkpointPolicy` says `v2`, and the protocol allows it.
pub fn v2_checkpoints(protocol: &Protocol, metadata: &Metadata) -> bool {
    let policy = metadata.configuration.get("delta.checkpointPolicy");
    policy.is_some_and(|p| p.trim().eq_ignore_ascii_case("v2"))
        && super::protocol::supports(protocol, "v2Checkpoint")
}

/// `delta.checkpoint.writeStatsAsJson`, default true.
pub fn checkpoint_stats_json(metadata: &Metadata) -> bool {
    on_by_default(metadata, "delta.checkpoint.writeStatsAsJson")
}

/// `delta.checkpoint.writeStatsAsStruct`; absent is true (PROTOCOL.md 0).
pub fn checkpoint_stats_struct(metadata: &Metadata) -> bool {
    on_by_default(metadata, "delta.checkpoint.writeStatsAsStruct")
}

/// The version before which no checkpoint may be removed unless all of that history goes with it (feature
/// `checkpointProtection`); 0 when nothing is protected, and the largest number when it can't be told.
pub fn protected_before(protocol: &Protocol, metadata: &Metadata) -> u64 {
    if !super::protocol::supports(protocol, "checkpointProtection") {
        return 0;
    }
    let key = "delta.requireCheckpointProtectionBeforeVersion";
    match metadata.configuration.get(key) {
        Some(text) => text.trim().parse().unwrap_or(u64::MAX),
        None => 0,
    }
}

/// The first version that has an in-commit timestamp for certain; `None` when they are not enabled.
pub fn in_commit_timestamps_since(protocol: &Protocol, metadata: &Metadata) -> Option<u64> {
    let enabled = super::protocol::supports(protocol, "inCommitTimestamp")
        && super::protocol::flag(metadata, "delta.enableInCommitTimestamps");
    let since = metadata
        .configuration
        .get("delta.inCommitTimestampEnablementVersion");
    // Absent: since version 0.
    enabled.then(|| since.map_or(0, |text| text.trim().parse().unwrap_or(u64::MAX)))
}

/// The name of the property, for messages.
pub const LOG_RETENTION: &str = "delta.logRetentionDuration";

fn on_by_default(metadata: &Metadata, key: &str) -> bool {
    let value = metadata.configuration.get(key);
    value.is_none_or(|v| !v.trim().eq_ignore_ascii_case("false"))
}

/// `delta.targetFileSize` in bytes, default 1 GiB (PROTOCOL.md H): what OPTIMIZE puts files together to. A text that is no
/// size counts as the default.
pub fn target_file_bytes(metadata: &Metadata) -> u64 {
    metadata
        .configuration
        .get("delta.targetFileSize")
        .and_then(|v| parse_bytes(v))
        .unwrap_or(1 << 30)
}

/// `104857600`, `100mb`, `1 GB` in bytes, each unit 1024 times the one before; none for anything else, also for zero.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes > 0).then_some(bytes)
}

/// `delta.isolationLevel`; absent is WriteSerializable (PROTOCOL.md 0).
pub fn isolation_level(metadata: &Metadata) -> Level {
    match metadata
        .configuration
        .get("delta.isolationLevel")
        .map(String::as_str)
    {
        Some("Serializable") => Level::Serializable,
        _ => Level::WriteSerializable,
    }
}

/// `interval 7 days`, `7 days`, `interval 1 week 2 hours` in milliseconds, rounded down. `None` for anything else,
/// also for months and years, which have no fixed length, and for what is negative.
fn parse_interval_ms(text: &str) -> Option<i64> {
    let text = text.trim().to_lowercase();
    let text = text.strip_prefix("interval").unwrap_or(&text);
    let mut total: i64 = 0;
    let mut micros: i64 = 0;
    let mut words = text.split_whitespace();
    let mut any = false;
    while let Some(number) = words.next() {
        let number: i64 = number.trim_matches('\'').parse().ok()?;
        let unit = match words.next()?.trim_matches('\'').trim_end_matches('s') {
            "week" => 7 * 24 * HOUR_MS,
            "day" => 24 * HOUR_MS,
            "hour" => HOUR_MS,
            "minute" => 60_000,
            "second" => 1000,
            "millisecond" => 1,
            "microsecond" => {
                micros = micros.checked_add(number)?;
                any = true;
                continue;
            }
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        any = true;
    }
    let total = total.checked_add(micros.div_euclid(1000))?;
    (any && total >= 0).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_in_sparks_forms() {
        assert_eq!(parse_interval_ms("interval 7 days"), Some(7 * 24 * HOUR_MS));
        assert_eq!(
            parse_interval_ms("interval 1 week 2 hours"),
            Some(170 * HOUR_MS)
        );
        assert_eq!(parse_interval_ms("0 hours"), Some(0));
        assert_eq!(parse_interval_ms("soon"), None);
        assert_eq!(parse_interval_ms("interval"), None);
        assert_eq!(
            parse_interval_ms("INTERVAL '1' DAY 1500 microseconds"),
            Some(24 * HOUR_MS + 1)
        );
        // A negative one would make everything old.
        for bad in [
            "interval -7 days",
            "1 month",
            "1 year",
            "7",
            "days",
            "9223372036854775807 weeks",
            "",
        ] {
            assert_eq!(parse_interval_ms(bad), None, "{bad}");
        }
    }

    fn metadata(configuration: &[(&str, &str)]) -> Metadata {
        let pairs = configuration.iter();
        Metadata {
            id: String::new(),
            name: None,
            description: None,
            format: crate::log::Format::default(),
            schema_string: String::new(),
            partition_columns: Vec::new(),
            created_time: None,
            configuration: pairs
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            unknown: serde_json::Map::new(),
        }
    }

    fn protocol(features: &[&str]) -> Protocol {
        let names: Vec<String> = features.iter().map(|f| (*f).to_owned()).collect();
        Protocol {
            min_reader_version: 3,
            min_writer_version: 7,
            reader_features: Some(names.clone()),
            writer_features: Some(names),
        }
    }

    #[test]
    fn defaults_are_on_and_a_wrong_duration_is_none() {
        let absent = metadata(&[]);
        assert!(
            log_cleanup(&absent)
                && checkpoint_stats_json(&absent)
                && checkpoint_stats_struct(&absent)
        );
        assert_eq!(log_retention_ms(&absent), Some(30 * 24 * HOUR_MS));
        let set = metadata(&[
            ("delta.enableExpiredLogCleanup", "FALSE"),
            ("delta.checkpoint.writeStatsAsJson", "false"),
            ("delta.checkpoint.writeStatsAsStruct", " false"),
            (LOG_RETENTION, "soon"),
        ]);
        assert!(
            !log_cleanup(&set) && !checkpoint_stats_json(&set) && !checkpoint_stats_struct(&set)
        );
        assert_eq!(log_retention_ms(&set), None);
    }

    #[test]
    fn sizes_have_units_or_are_bytes() {
        let size = |text| target_file_bytes(&metadata(&[("delta.targetFileSize", text)]));
        assert_eq!(size("104857600"), 100 << 20);
        assert_eq!(size("100mb"), 100 << 20);
        assert_eq!(size(" 1 GB "), 1 << 30);
        assert_eq!(size("64k"), 64 << 10);
        assert_eq!(size("2b"), 2);
        for none in ["", "0", "-1", "1.5gb", "mb", "1 mib", "99999999999tb"] {
            assert_eq!(size(none), 1 << 30, "{none}");
        }
        assert_eq!(target_file_bytes(&metadata(&[])), 1 << 30);
    }

    #[test]
    fn a_property_without_its_feature_asks_for_nothing() {
        let set = metadata(&[
            ("delta.checkpointPolicy", "v2"),
            ("delta.requireCheckpointProtectionBeforeVersion", "5"),
            ("delta.enableInCommitTimestamps", "true"),
            ("delta.inCommitTimestampEnablementVersion", "3"),
        ]);
        let none = protocol(&[]);
        assert!(!v2_checkpoints(&none, &set));
        assert_eq!(protected_before(&none, &set), 0);
        assert_eq!(in_commit_timestamps_since(&none, &set), None);
        let all = protocol(&["v2Checkpoint", "checkpointProtection", "inCommitTimestamp"]);
        assert!(v2_checkpoints(&all, &set) && !v2_checkpoints(&all, &metadata(&[])));
        assert_eq!(protected_before(&all, &set), 5);
        assert_eq!(in_commit_timestamps_since(&all, &set), Some(3));
        let garbled = metadata(&[("delta.requireCheckpointProtectionBeforeVersion", "x")]);
        assert_eq!(protected_before(&all, &garbled), u64::MAX);
    }
}
