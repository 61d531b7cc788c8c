//! Tools that tests share.

mod fuzz;
