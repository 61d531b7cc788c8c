#![no_main]
deltafs_fuzz::target!("crc");
