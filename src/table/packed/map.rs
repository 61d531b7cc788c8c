//! A sorted map of bytes to bytes whose copies share structure: a clone costs a pointer per chunk, a change one chunk.

use std::sync::Arc;

use super::bytes::{Input, put_varint};

/// Entries per chunk when a chunk is split; it is split at twice as many.
const CHUNK: usize = 256;
/// A changed chunk with fewer entries takes in its neighbour.
const SMALL: usize = 64;

/// Keys are in byte order.
#[derive(Debug, Clone, Default)]
pub(in crate::table) struct PackedMap {
    /// Never empty chunks, in order.
    chunks: Vec<Arc<Chunk>>,
}

#[derive(Debug)]
struct Chunk {
    /// For each entry the length of its key, the key, the value.
    data: Box<[u8]>,
    /// Where each entry ends.
    ends: Box<[u32]>,
}

impl Chunk {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn entry(&self, index: usize) -> (&[u8], &[u8]) {
        let end = |i: usize| self.ends.get(i).map_or(0, |e| *e as usize);
        let start = index.checked_sub(1).map_or(0, end);
        let mut input = Input(self.data.get(start..end(index)).unwrap_or_default());
        let key = input.bytes();
        (key, input.0)
    }

    fn first(&self) -> &[u8] {
        self.entry(0).0
    }

    /// The first entry whose key is not less.
    fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.entry(middle).0 < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn from(&self, index: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        (index..self.len()).map(|i| self.entry(i))
    }
}

/// What becomes of a key: the parts of its value one after the other, or nothing.
pub(in crate::table) type Edit<'e> = Option<[&'e [u8]; 2]>;

impl PackedMap {
    /// Entries in ascending order of different keys.
    pub(in crate::table) fn from_sorted<'e>(
        entries: impl Iterator<Item = (&'e [u8], [&'e [u8]; 2])>,
    ) -> Self {
        let mut builder = Builder::default();
        for (key, value) in entries {
            builder.push(key, value);
        }
        builder.finish()
    }

    /// One map of several, whose keys are in ascending order from the first to the last.
    pub(in crate::table) fn concat(maps: Vec<PackedMap>) -> Self {
        PackedMap {
            chunks: maps.into_iter().flat_map(|map| map.chunks).collect(),
        }
    }

    pub(in crate::table) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(in crate::table) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub(in crate::table) fn get_key_value(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.lower_bound(key);
        (at < chunk.len())
            .then(|| chunk.entry(at))
            .filter(|(k, _)| *k == key)
    }

    /// All entries in order.
    pub(in crate::table) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.chunks.iter().flat_map(|chunk| chunk.from(0))
    }

    /// All entries in at most `parts` ranges of about the same size.
    pub(in crate::table) fn split(
        &self,
        parts: usize,
    ) -> Vec<impl Iterator<Item = (&[u8], &[u8])>> {
        let size = self.chunks.len().div_ceil(parts.max(1)).max(1);
        let ranges = self.chunks.chunks(size);
        ranges
            .map(|range| range.iter().flat_map(|chunk| chunk.from(0)))
            .collect()
    }

    /// The entries from the first key that is not less than `key`.
    pub(in crate::table) fn from<'a>(
        &'a self,
        key: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let index = self.chunk_of(key);
        let skip = self.chunks.get(index).map_or(0, |c| c.lower_bound(key));
        let chunks = self.chunks.get(index..).unwrap_or_default().iter();
        chunks
            .enumerate()
            .flat_map(move |(i, chunk)| chunk.from(if i == 0 { skip } else { 0 }))
    }

    /// The entries of chunks that `other` does not share: whatever differs is among them.
    pub(in crate::table) fn changed_in<'a>(
        &'a self,
        other: &PackedMap,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let shared: std::collections::HashSet<*const Chunk> =
            other.chunks.iter().map(Arc::as_ptr).collect();
        self.chunks
            .iter()
            .filter(move |chunk| !shared.contains(&Arc::as_ptr(chunk)))
            .flat_map(|chunk| chunk.from(0))
    }

    /// As it is after `edits`, which are in ascending order of different keys.
    pub(in crate::table) fn edited<'e>(
        &self,
        edits: impl Iterator<Item = (&'e [u8], Edit<'e>)>,
    ) -> Self {
        let mut edits = edits.peekable();
        let mut builder = Builder::default();
        for (index, chunk) in self.chunks.iter().enumerate() {
            let end = self.chunks.get(index + 1).map(|next| next.first());
            let here = |key: &[u8]| end.is_none_or(|end| key < end);
            let touched = edits.peek().is_some_and(|(key, _)| here(key));
            if !touched && !builder.is_small() {
                builder.share(chunk);
                continue;
            }
            let mut old = chunk.from(0).peekable();
            loop {
                let edit = edits
                    .peek()
                    .filter(|(key, _)| here(key))
                    .map(|(key, _)| *key);
                match (old.peek(), edit) {
                    (None, None) => break,
                    (Some((key, value)), None) => {
                        builder.push(key, [value, &[]]);
                        old.next();
                    }
                    (Some((key, value)), Some(edited)) if *key < edited => {
                        builder.push(key, [value, &[]]);
                        old.next();
                    }
                    (old_entry, Some(edited)) => {
                        if old_entry.is_some_and(|(key, _)| *key == edited) {
                            old.next();
                        }
                        if let Some((key, Some(value))) = edits.next() {
                            builder.push(key, value);
                        }
                    }
                }
            }
        }
        for (key, edit) in edits {
            if let Some(value) = edit {
                builder.push(key, value);
            }
        }
        builder.finish()
    }

    /// The chunk that holds `key` or would.
    fn chunk_of(&self, key: &[u8]) -> usize {
        let after = self.chunks.partition_point(|chunk| chunk.first() <= key);
        after.saturating_sub(1)
    }

    /// Bytes on the heap.
    pub(in crate::table) fn heap_bytes(&self) -> usize {
        let chunk = |c: &Arc<Chunk>| {
            c.data.len() + c.ends.len() * size_of::<u32>() + size_of::<Chunk>() + 16
        };
        self.chunks.capacity() * size_of::<Arc<Chunk>>()
            + self.chunks.iter().map(chunk).sum::<usize>()
    }
}

#[derive(Default)]
struct Builder {
    chunks: Vec<Arc<Chunk>>,
    data: Vec<u8>,
    ends: Vec<u32>,
}

impl Builder {
    /// Whether what is pending should not be a chunk of its own if there is more to take in.
    fn is_small(&self) -> bool {
        (1..SMALL).contains(&self.ends.len())
    }

    fn push(&mut self, key: &[u8], value: [&[u8]; 2]) {
        put_varint(&mut self.data, key.len() as u64);
        self.data.extend_from_slice(key);
        for part in value {
            self.data.extend_from_slice(part);
        }
        // The largest action is far below 4 GiB; a chunk of such ones is cut early.
        self.ends
            .push(u32::try_from(self.data.len()).unwrap_or(u32::MAX));
        if self.ends.len() == 2 * CHUNK {
            self.cut(CHUNK);
        } else if self.data.len() > 1 << 24 {
            self.cut(self.ends.len());
        }
    }

    fn share(&mut self, chunk: &Arc<Chunk>) {
        self.cut(self.ends.len());
        self.chunks.push(Arc::clone(chunk));
    }

    /// Makes a chunk of the first `entries` that are pending.
    fn cut(&mut self, entries: usize) {
        let Some(&end) = entries.checked_sub(1).and_then(|last| self.ends.get(last)) else {
            return;
        };
        let rest = self.data.split_off((end as usize).min(self.data.len()));
        let data = std::mem::replace(&mut self.data, rest);
        let rest = self.ends.split_off(entries);
        let ends = std::mem::replace(&mut self.ends, rest);
        for left in &mut self.ends {
            *left -= end;
        }
        self.chunks.push(Arc::new(Chunk {
            data: data.into_boxed_slice(),
            ends: ends.into_boxed_slice(),
        }));
    }

    fn finish(mut self) -> PackedMap {
        self.cut(self.ends.len());
        self.chunks.shrink_to_fit();
        PackedMap {
            chunks: self.chunks,
        }
    }
}
