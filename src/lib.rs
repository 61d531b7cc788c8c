//! deltafs: a transactional file system over Delta Lake tables.
//!
//! Layers, imports only point right:
//! `cli → fuse → fs → namespace, control → ops → engine → table → datafile → log → deletion_vector → schema →
//! store → env, error`.

pub mod datafile;
pub mod env;
pub mod error;
pub mod log;
pub mod schema;
pub mod store;
