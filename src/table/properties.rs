//! `delta.*` table properties.

use crate::log::Metadata;

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

/// `delta.isolationLevel`; absent is WriteSerializable (PROTOCOL.md 0).
pub fn isolation_level(metadata: &Metadata) -> &'static str {
    match metadata
        .configuration
        .get("delta.isolationLevel")
        .map(String::as_str)
    {
        Some("Serializable") => "Serializable",
        _ => "WriteSerializable",
    }
}

/// `interval 7 days`, `7 days`, `interval 1 week 2 hours` in milliseconds.
fn parse_interval_ms(text: &str) -> Option<i64> {
    let text = text.trim().to_lowercase();
    let text = text.strip_prefix("interval").unwrap_or(&text);
    let mut total: i64 = 0;
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
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        any = true;
    }
    any.then_some(total)
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
    }
}
