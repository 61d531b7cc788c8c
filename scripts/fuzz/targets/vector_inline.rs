#![no_main]
deltafs_fuzz::target!("vector_inline");
