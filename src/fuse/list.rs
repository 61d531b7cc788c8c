//! Listings: filling a reply of unknown size without losing a name or a lookup.

use std::time::Duration;

use fuser::{INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use super::reply::{GENERATION, bare_dir, file_attr, file_type, refused, shorter_ttl};
use crate::fs::{Caller, DirItem, Fh, FileSystem, FsResult, Ino};

/// Names asked for at a time: about as many as fit into the 32 KiB of a getdents(2) of the C library.
pub(super) const NAMES_AT_A_TIME: usize = 1024;
/// The same with attributes, which take much more room.
const ENTRIES_AT_A_TIME: usize = 192;

/// As many names as the reply holds; none mean the end.
pub(super) fn names(items: FsResult<Vec<DirItem>>, mut reply: ReplyDirectory) {
    match items {
        Ok(items) => {
            for item in &items {
                let kind = file_type(item.kind);
                if reply.add(INodeNo(item.ino.0), item.cookie, kind, &item.name) {
                    break;
                }
            }
            reply.ok();
        }
        Err(failure) => reply.error(refused(&failure)),
    }
}

/// As many names with attributes as the reply holds; none mean the end.
pub(super) async fn entries<F: FileSystem>(
    fs: &F,
    dir: Ino,
    fh: Fh,
    mut offset: u64,
    caller: Caller,
    mut reply: ReplyDirectoryPlus,
) {
    loop {
        let items = match fs.readdir(dir, fh, offset, ENTRIES_AT_A_TIME).await {
            Ok(items) => items,
            Err(failure) => return reply.error(refused(&failure)),
        };
        let Some(last) = items.last() else {
            return reply.ok();
        };
        offset = last.cookie;
        let mut listed = false;
        for item in &items {
            if item.name == "." || item.name == ".." {
                let attr = bare_dir(INodeNo(item.ino.0));
                let (cookie, ttl) = (item.cookie, Duration::ZERO);
                // The kernel counts no lookup for these two.
                if reply.add(attr.ino, cookie, &item.name, &ttl, &attr, GENERATION) {
                    return reply.ok();
                }
                listed = true;
                continue;
            }
            let Some(entry) = fs.lookup_listed(dir, item, caller).await else {
                continue;
            };
            let (attr, ttl) = (file_attr(&entry.attr), shorter_ttl(&entry));
            if reply.add(attr.ino, item.cookie, &item.name, &ttl, &attr, GENERATION) {
                // No room: the kernel will never hear of this lookup.
                fs.forget(entry.attr.ino, 1);
                return reply.ok();
            }
            listed = true;
        }
        // A reply without names would mean the end.
        if listed {
            return reply.ok();
        }
    }
}
