//! What must hold for any bytes, however hostile: one function a fuzz target. `scripts/fuzz` feeds them with
//! libFuzzer (it compiles this folder by path), the tests here with the seeds of `scripts/fuzz/seeds`.
//!
//! A property that does not hold panics. Memory and time are limited by whoever runs it.

mod file;
mod log;
mod text;
mod vector;

#[cfg(test)]
mod seeds;
#[cfg(test)]
mod tests;

/// Checks its properties for some bytes.
pub(crate) type Target = fn(&[u8]);

/// All targets, by the name of their binary and of their folder of seeds.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("checkpoint", log::checkpoint),
    ("commit_json", log::commit_json),
    ("crc", log::crc),
    ("data_file", file::data_file),
    ("json_manifest", log::json_manifest),
    ("last_checkpoint", log::last_checkpoint),
    ("partition_values", text::partition_values),
    ("paths", text::paths),
    ("schema", text::schema),
    ("stats", text::stats),
    ("vector_file", vector::vector_file),
    ("vector_inline", vector::vector_inline),
    ("z85", vector::z85),
];

/// The bytes as a file of their own.
fn file_of(bytes: &[u8]) -> std::fs::File {
    use std::io::Write as _;
    let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.write_all(bytes).unwrap();
    file
}
