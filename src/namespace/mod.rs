//! What names mean: data files, scratch files, control entries. Pure: whether a thing exists is a later question.

mod control;
mod name;
mod past;

pub use control::{Control, Mode, TxControl, Verb};
pub use name::{CONTROL_DIR, Dropped, PRIVATE_DIR, classify, is_reserved};
pub use past::{TIME_FORMS, parse_time, parse_version};
