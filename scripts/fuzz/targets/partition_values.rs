#![no_main]
deltafs_fuzz::target!("partition_values");
