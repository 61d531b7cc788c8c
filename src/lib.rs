//! deltafs: a transactional file system over Delta Lake tables.
//!
//! Layers, imports only point right:
//! `cli → fuse → fs → namespace, control → ops → engine → table → datafile → log → deletion_vector → schema →
//! store → env, error`.

pub mod cli;
pub mod env;
pub mod error;
pub mod fs;
pub mod fuse;
pub mod log;
pub mod schema;
pub mod settings;
pub mod store;
