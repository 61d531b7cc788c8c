//! Commands as text: what a control file or the command line is asked to do. Pure.

mod statement;

pub use statement::{ControlError, MAX_BYTES, Statement};
