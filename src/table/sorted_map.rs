//! A sorted map whose copies share structure: a clone costs a pointer per chunk, a change one chunk.

use std::sync::Arc;

/// Entries per chunk after a split; a chunk is split when it has twice as many.
const CHUNK: usize = 256;

type Chunk<V> = Vec<(Box<str>, V)>;

/// Keys are text in byte order.
#[derive(Debug)]
pub(crate) struct SortedMap<V> {
    /// Never empty chunks, in order.
    chunks: Vec<Arc<Chunk<V>>>,
}

impl<V> Clone for SortedMap<V> {
    fn clone(&self) -> Self {
        SortedMap {
            chunks: self.chunks.clone(),
        }
    }
}

impl<V> Default for SortedMap<V> {
    fn default() -> Self {
        SortedMap { chunks: Vec::new() }
    }
}

impl<V: Clone> SortedMap<V> {
    pub(crate) fn get(&self, key: &str) -> Option<&V> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        chunk.get(at).map(|(_, v)| v)
    }

    /// Returns the value that was there.
    pub(crate) fn insert(&mut self, key: &str, value: V) -> Option<V> {
        let index = self.chunk_of(key);
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.chunks.push(Arc::new(vec![(key.into(), value)]));
            return None;
        };
        let entries = Arc::make_mut(chunk);
        match entries.binary_search_by(|(k, _)| (**k).cmp(key)) {
            Ok(at) => entries
                .get_mut(at)
                .map(|(_, v)| std::mem::replace(v, value)),
            Err(at) => {
                entries.insert(at, (key.into(), value));
                if entries.len() >= 2 * CHUNK {
                    let rest = entries.split_off(CHUNK);
                    self.chunks.insert(index + 1, Arc::new(rest));
                }
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<V> {
        let index = self.chunk_of(key);
        let chunk = self.chunks.get_mut(index)?;
        let at = chunk.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        let entries = Arc::make_mut(chunk);
        let (_, value) = entries.remove(at);
        if entries.is_empty() {
            self.chunks.remove(index);
        }
        Some(value)
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter().map(|(k, v)| (&**k, v)))
    }

    /// The entries from the first key that is not less than `key`.
    pub(crate) fn from<'a>(
        &'a self,
        key: &str,
    ) -> impl Iterator<Item = (&'a str, &'a V)> + use<'a, V> {
        let index = self.chunk_of(key);
        let skip = self
            .chunks
            .get(index)
            .map_or(0, |chunk| chunk.partition_point(|(k, _)| **k < *key));
        self.chunks
            .get(index..)
            .unwrap_or_default()
            .iter()
            .flat_map(|chunk| chunk.iter().map(|(k, v)| (&**k, v)))
            .skip(skip)
    }

    /// The entries of chunks that `other` does not share: whatever differs is among them.
    pub(crate) fn changed_in<'a>(
        &'a self,
        other: &SortedMap<V>,
    ) -> impl Iterator<Item = (&'a str, &'a V)> + use<'a, V> {
        let shared: std::collections::HashSet<*const Chunk<V>> =
            other.chunks.iter().map(Arc::as_ptr).collect();
        self.chunks
            .iter()
            .filter(move |chunk| !shared.contains(&Arc::as_ptr(chunk)))
            .flat_map(|chunk| chunk.iter().map(|(k, v)| (&**k, v)))
    }

    /// The chunk that holds `key` or would.
    fn chunk_of(&self, key: &str) -> usize {
        let after = self
            .chunks
            .partition_point(|chunk| chunk.first().is_some_and(|(first, _)| **first <= *key));
        after.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_as_a_btree_and_old_copies_stay(
            steps in prop::collection::vec((0u16..800, prop::bool::weighted(0.7)), 0..3000),
            probe in 0u16..800,
        ) {
            let mut ours = SortedMap::default();
            let mut reference = BTreeMap::new();
            let middle = steps.len() / 2;
            let mut kept = None;
            for (i, (key, add)) in steps.into_iter().enumerate() {
                if i == middle {
                    kept = Some((ours.clone(), reference.clone()));
                }
                let key = format!("{key:04}");
                if add {
                    prop_assert_eq!(ours.insert(&key, i), reference.insert(key, i));
                } else {
                    prop_assert_eq!(ours.remove(&key), reference.remove(&key));
                }
            }
            for (ours, reference) in kept.into_iter().chain([(ours, reference)]) {
                prop_assert!(ours.iter().eq(reference.iter().map(|(k, v)| (k.as_str(), v))));
                let probe = format!("{probe:04}");
                prop_assert_eq!(ours.get(&probe), reference.get(&probe));
                prop_assert!(ours.from(&probe).eq(reference.range(probe.clone()..).map(|(k, v)| (k.as_str(), v))));
            }
        }
    }
}
