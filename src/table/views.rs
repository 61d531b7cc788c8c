//! What looking at a data file has shown: whether its stored bytes are what the table means.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{LiveFile, Snapshot, Table};
use crate::datafile::RawView;
use crate::schema::StructType;

/// More files than this are looked at again.
const REMEMBERED: usize = 1 << 16;

/// By the path of a file: the schema for which it was looked at, and what was seen. A path is never written twice.
#[derive(Debug, Default)]
pub(super) struct Views(Mutex<HashMap<Box<str>, Seen>>);

type Seen = (Arc<StructType>, RawView);

impl Table {
    /// Whether the stored bytes of `file` are what `snapshot` means, looking with `look` if nobody has.
    ///
    /// # Errors
    /// What `look` returns.
    pub fn raw_view<E>(
        &self,
        snapshot: &Snapshot,
        file: &LiveFile,
        look: impl FnOnce() -> Result<RawView, E>,
    ) -> Result<RawView, E> {
        let views = || self.views.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = views().get(file.path.key()).cloned();
        if let Some((schema, view)) = known
            && Arc::ptr_eq(&schema, snapshot.schema())
        {
            return Ok(view);
        }
        let view = look()?;
        let mut views = views();
        if views.len() >= REMEMBERED {
            views.clear();
        }
        let seen = (Arc::clone(snapshot.schema()), view.clone());
        views.insert(file.path.key().into(), seen);
        Ok(view)
    }
}
