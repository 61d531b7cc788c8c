#![no_main]
deltafs_fuzz::target!("paths");
