#![no_main]
deltafs_fuzz::target!("json_manifest");
