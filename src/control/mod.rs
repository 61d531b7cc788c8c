//! Commands as text: what a control file or the command line is asked to do. Pure.

mod optimize;
mod statement;

pub use optimize::optimize;
pub use statement::{ControlError, MAX_BYTES, Statement};
