//! Open files and directories.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::stage::Stage;
use super::verb::VerbHandle;
use super::{DirItem, Fh, FsError, FsResult};
use crate::table::Snapshot;

/// Something open.
#[derive(Debug, Clone)]
pub(super) enum Handle {
    /// A listing, of one moment.
    Dir {
        items: Arc<[DirItem]>,
        /// Keeps an earlier version at hand for those who look at what is listed, one after the other.
        _pin: Option<Arc<Snapshot>>,
    },
    /// A file that is only read; it stays readable whatever happens to its name.
    File(Arc<File>),
    /// Content that was made when the handle was opened.
    Text(Bytes),
    /// A staged file.
    Stage { stage: Arc<Stage>, write: bool },
    /// A verb of `ctl/`.
    Verb(Arc<Mutex<VerbHandle>>),
}

#[derive(Debug, Default)]
pub(super) struct Handles {
    open: HashMap<Fh, Handle>,
    last: u64,
}

impl Handles {
    pub(super) fn open(&mut self, handle: Handle) -> Fh {
        self.last += 1;
        let fh = Fh(self.last);
        self.open.insert(fh, handle);
        fh
    }

    pub(super) fn get(&self, fh: Fh) -> FsResult<Handle> {
        self.open.get(&fh).cloned().ok_or(FsError::BadHandle)
    }

    pub(super) fn close(&mut self, fh: Fh) -> Option<Handle> {
        self.open.remove(&fh)
    }

    pub(super) fn drain(&mut self) -> Vec<Handle> {
        self.open.drain().map(|(_, handle)| handle).collect()
    }
}
