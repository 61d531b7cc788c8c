//! Files that were refused, kept with the reason beside them until somebody removes them.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::{Core, FsError, FsResult, domain};
use crate::namespace::PRIVATE_DIR;

/// Refused files kept for each table; the oldest give way.
const KEEP: usize = 64;
const REASON: &str = ".reason";

/// The folder for a table's refused files, below the source.
fn folder(table: &Path) -> PathBuf {
    let name = match table.to_str() {
        Some("") => "%root".to_owned(),
        Some(text) => text.replace('%', "%25").replace('/', "%2F"),
        None => format!("{:?}", table.as_os_str()),
    };
    Path::new(PRIVATE_DIR).join("rejected").join(name)
}

impl Core {
    /// Keeps a refused file. What fails here is only logged: the writer has been told of the refusal itself.
    pub(super) fn reject(&self, table: &Path, name: &str, file: &File, reason: &str) {
        tracing::warn!(table = %table.display(), name, reason, "refused");
        if self.settings.read_only {
            return;
        }
        if let Err(error) = self.try_reject(table, name, file, reason) {
            tracing::warn!(table = %table.display(), name, %error, "a refused file could not be kept");
        }
    }

    fn try_reject(&self, table: &Path, name: &str, file: &File, reason: &str) -> FsResult<()> {
        let root = self.catalog.root();
        let folder = folder(table);
        crate::table::sweep(root, &folder, self.env.now());
        root.create_dir_all(&folder).map_err(|e| domain(&e))?;
        let mut names = self.rejected_names(table)?;
        names.retain(|n| !n.ends_with(REASON));
        let mut kept = name.to_owned();
        let mut next = 1;
        while names.contains(&kept) {
            kept = format!("{name}.{next}");
            next += 1;
        }
        root.adopt(file, &folder.join(&kept))
            .map_err(|e| domain(&e))?;
        let temporary = crate::table::temporary_name(&self.env);
        let text = format!("{reason}\n");
        root.put(
            &folder.join(format!("{kept}{REASON}")),
            temporary.as_ref(),
            text.as_bytes(),
        )
        .map_err(|e| domain(&e))?;
        let mut aged: Vec<_> = names
            .into_iter()
            .filter_map(|n| {
                let modified = root.metadata(&folder.join(&n)).ok()?.modified().ok()?;
                Some((modified, n))
            })
            .collect();
        aged.sort();
        for (_, old) in aged.iter().take((aged.len() + 1).saturating_sub(KEEP)) {
            for old in [old.clone(), format!("{old}{REASON}")] {
                let _ = root.remove_file(&folder.join(old));
            }
        }
        Ok(())
    }

    pub(super) fn rejected_names(&self, table: &Path) -> FsResult<Vec<String>> {
        let listed = match self.catalog.root().list(&folder(table)) {
            Ok(listed) => listed,
            Err(e) if e.is_absent() => return Ok(Vec::new()),
            Err(e) => return Err(domain(&e)),
        };
        let mut names: Vec<String> = listed
            .into_iter()
            .filter_map(|e| e.name.into_string().ok())
            .filter(|n| !n.starts_with(PRIVATE_DIR))
            .collect();
        names.sort();
        Ok(names)
    }

    pub(super) fn rejected_file(&self, table: &Path, name: &str) -> FsResult<File> {
        self.catalog
            .root()
            .open_file(&folder(table).join(name))
            .map_err(|e| {
                if e.is_absent() {
                    FsError::NotFound
                } else {
                    domain(&e)
                }
            })
    }

    pub(super) fn remove_rejected(&self, table: &Path, name: &str) -> FsResult<()> {
        self.catalog
            .root()
            .remove_file(&folder(table).join(name))
            .map_err(|e| {
                if e.is_absent() {
                    FsError::NotFound
                } else {
                    domain(&e)
                }
            })
    }
}
