//! Whether what is read back from a checkpoint is what was written.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::log::Action;

/// A sum over actions, whatever their order. It tells a loss or a change from none; it is no defence against anybody,
/// and it is never stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest {
    count: u64,
    sum: u64,
}

impl Digest {
    /// Takes an action in, with all that a checkpoint keeps of it. `stats`: whether statistics are kept as they are;
    /// typed ones come back in another text.
    pub fn add(&mut self, action: &Action, stats: bool) {
        let mut hasher = DefaultHasher::new();
        match action {
            Action::Add(a) => {
                let kept = a.stats.as_deref().filter(|_| stats);
                let ids = (a.base_row_id, a.default_row_commit_version);
                let file = (&a.path, &a.partition_values, a.size, a.modification_time);
                let more = (kept, &a.tags, &a.deletion_vector, &a.clustering_provider);
                ("add", file, more, ids).hash(&mut hasher);
            }
            Action::Remove(r) => {
                let ids = (r.base_row_id, r.default_row_commit_version);
                let file = (&r.path, &r.partition_values, r.size, r.deletion_timestamp);
                let more = (r.extended_file_metadata, &r.deletion_vector);
                ("remove", file, more, ids).hash(&mut hasher);
            }
            Action::MetaData(m) => {
                let names = (&m.id, &m.name, &m.description, &m.format.provider);
                let columns = (&m.schema_string, &m.partition_columns);
                let more = (&m.configuration, &m.format.options, m.created_time);
                ("metaData", names, columns, more).hash(&mut hasher);
            }
            Action::Protocol(p) => {
                let features = (&p.reader_features, &p.writer_features);
                let versions = (p.min_reader_version, p.min_writer_version);
                ("protocol", versions, features).hash(&mut hasher);
            }
            Action::Txn(t) => {
                ("txn", &t.app_id, t.version, t.last_updated).hash(&mut hasher);
            }
            Action::DomainMetadata(d) => {
                ("domain", &d.domain, &d.configuration, d.removed).hash(&mut hasher);
            }
            Action::CommitInfo(_) | Action::Cdc(_) => return,
        }
        self.count += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }

    /// Actions that were taken in.
    pub fn count(&self) -> u64 {
        self.count
    }
}
