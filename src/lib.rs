//! deltafs: a transactional file system over Delta Lake tables.
//!
//! Layers, imports only point right:
//! `cli → fuse → fs → namespace, control → ops → engine → table → datafile → log → deletion_vector → schema →
//! store → env, error`.

pub mod cli;
pub mod control;
pub mod datafile;
pub mod deletion_vector;
pub mod engine;
pub mod env;
pub mod error;
pub mod failpoint;
pub mod format;
pub mod fs;
pub mod fuse;
pub mod log;
pub mod namespace;
pub mod ops;
pub mod schema;
pub mod settings;
pub mod store;
pub mod table;

#[cfg(test)]
mod testkit;
