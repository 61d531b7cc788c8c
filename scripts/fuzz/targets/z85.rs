#![no_main]
deltafs_fuzz::target!("z85");
