//! Deletion vectors of live files, read and written in the table's directory (PROTOCOL.md B).

use std::path::{Path, PathBuf};

use super::{DataPath, LiveFile, Table, TableError, temporary_name};
use crate::deletion_vector::{
    DeletionVectorDescriptor, Location, RowSet, read_vector, write_vectors,
};
use crate::store::StoreError;

impl Table {
    /// The dead rows of a live file; empty without a vector.
    ///
    /// # Errors
    /// [`TableError::Vector`]: a vector that can't be read is never an empty one.
    pub fn dead_rows(&self, file: &LiveFile) -> Result<RowSet, TableError> {
        let Some(descriptor) = &file.add.deletion_vector else {
            return Ok(RowSet::new());
        };
        let open = |location: &Location| {
            let path = match location {
                Location::Relative { path, .. } => PathBuf::from(path),
                Location::Absolute { uri, .. } => match DataPath::parse(uri, self.dir.path()) {
                    DataPath::Inside(path) => PathBuf::from(path),
                    DataPath::Outside(uri) => {
                        return Err(StoreError::Outside {
                            path: PathBuf::from(uri),
                        });
                    }
                },
                Location::Inline(_) => PathBuf::new(),
            };
            self.dir.open_file(&path)
        };
        read_vector(descriptor, open, file.add.num_records()).map_err(|source| TableError::Vector {
            path: file.path.key().to_owned(),
            source,
        })
    }

    /// Writes one file with a vector for each set, durable on return. The file is an orphan until a commit
    /// refers to it; remove it with [`Table::discard`] when none will.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn write_vectors(
        &self,
        sets: &[&RowSet],
    ) -> Result<(String, Vec<DeletionVectorDescriptor>), TableError> {
        let file =
            write_vectors(self.env.uuid(), "", sets).map_err(|source| TableError::Vector {
                path: "a new vector file".to_owned(),
                source,
            })?;
        let temporary = temporary_name(&self.env);
        self.dir
            .put(Path::new(&file.path), temporary.as_ref(), &file.bytes)?;
        Ok((file.path, file.descriptors))
    }

    /// Removes a file that this process wrote and no version refers to.
    pub fn discard(&self, path: &str) {
        if let Err(error) = self.dir.remove_file(Path::new(path))
            && !error.is_absent()
        {
            tracing::warn!(%error, "an orphan stays until VACUUM");
        }
    }
}
