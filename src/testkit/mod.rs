//! Tools that tests share.

pub(crate) mod check;
pub(crate) mod dice;
pub(crate) mod files;
mod fuzz;
pub(crate) mod model;
pub(crate) mod observe;
pub(crate) mod strategy;
