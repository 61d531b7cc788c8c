//! Tools that tests share.

pub(crate) mod check;
pub(crate) mod dice;
mod fuzz;
pub(crate) mod model;
pub(crate) mod observe;
pub(crate) mod strategy;
