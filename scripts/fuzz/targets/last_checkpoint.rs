#![no_main]
deltafs_fuzz::target!("last_checkpoint");
