#![no_main]
deltafs_fuzz::target!("data_file");
