//! Files of a snapshot as bytes: a sorted map with shared chunks, records of actions, statistics by template. Knows
//! actions; never replay and never names.
//!
//! # Why not structs
//! A live file as a struct with its statistics as text takes a kilobyte and a dozen allocations. Packed it takes
//! what its values take, a snapshot's copy costs a pointer per chunk, and pruning reads numbers instead of JSON.

mod bytes;
mod dictionary;
mod key;
mod map;
mod record;
mod stats;

pub(super) use dictionary::Dictionary;
pub(super) use key::{expand, squeeze};
pub(super) use map::{Edit, PackedMap};
pub(super) use record::{Packer, Record, Words, naming, to_remove, tombstone_key, vector_id};
pub use stats::{PackedStats, TemplateValues};

#[cfg(test)]
mod tests;
