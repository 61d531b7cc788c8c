//! Words and templates that many records share.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::stats::Template;

/// More words or templates than this are not shared: a table that has them has no use of sharing.
const LIMIT: usize = 4096;

/// Grows only; shared by all snapshots of a table. A reader has its own state of it, so that nobody waits and no
/// reader can lock itself out.
#[derive(Debug, Default)]
pub(in crate::table) struct Dictionary(RwLock<Arc<Inner>>);

#[derive(Debug, Clone, Default)]
pub(super) struct Inner {
    words: Vec<Arc<str>>,
    word_ids: HashMap<Arc<str>, u64>,
    templates: Vec<Arc<Template>>,
    template_ids: HashMap<Box<[u8]>, u64>,
}

impl Inner {
    pub(super) fn word(&self, id: u64) -> &str {
        let word = usize::try_from(id).ok().and_then(|id| self.words.get(id));
        word.map_or("", |word| word)
    }

    pub(super) fn template(&self, id: u64) -> Option<&Arc<Template>> {
        self.templates.get(usize::try_from(id).ok()?)
    }
}

impl Dictionary {
    pub(super) fn read(&self) -> Arc<Inner> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What `find` finds, if need be after `add` has added it; `None` when it is full.
    fn intern<T>(
        &self,
        find: impl Fn(&Inner) -> Option<T>,
        is_full: impl Fn(&Inner) -> bool,
        add: impl FnOnce(&mut Inner),
    ) -> Option<T> {
        if let Some(found) = find(&self.read()) {
            return Some(found);
        }
        let mut inner = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = find(&inner) {
            return Some(found);
        }
        if is_full(&inner) {
            return None;
        }
        add(Arc::make_mut(&mut inner));
        find(&inner)
    }

    /// `None` when there are too many words.
    pub(super) fn word_id(&self, word: &str) -> Option<u64> {
        self.intern(
            |inner| inner.word_ids.get(word).copied(),
            |inner| inner.words.len() == LIMIT,
            |inner| {
                let id = inner.words.len() as u64;
                let word: Arc<str> = word.into();
                inner.words.push(Arc::clone(&word));
                inner.word_ids.insert(word, id);
            },
        )
    }

    /// The template of this shape; `None` when there are too many.
    pub(super) fn template_id(
        &self,
        shape: &[u8],
        template: Template,
    ) -> Option<(u64, Arc<Template>)> {
        self.intern(
            |inner| {
                let id = *inner.template_ids.get(shape)?;
                Some((id, Arc::clone(inner.template(id)?)))
            },
            |inner| inner.templates.len() == LIMIT,
            |inner| {
                let id = inner.templates.len() as u64;
                inner.templates.push(Arc::new(template));
                inner.template_ids.insert(shape.into(), id);
            },
        )
    }
}
