#![no_main]
deltafs_fuzz::target!("commit_json");
