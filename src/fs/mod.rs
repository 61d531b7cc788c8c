//! The file system itself, without a kernel.

mod api;

pub use api::*;
