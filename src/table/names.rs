//! Visible names of live files. Which of two files gets the name that both want does not depend on which came first,
//! so that every mount shows the same.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::packed::{Edit, PackedMap, Record, Words, expand, naming, squeeze};
use super::replay::Changes;
use crate::log::{Metadata, PartitionValues};
use crate::schema::StructType;
use crate::schema::partition::dir_name;

/// The tag that keeps the name under which a file was copied in.
pub const NAME_TAG: &str = "deltafs.name";

/// Longest name of a file, in bytes.
const NAME_MAX: usize = 255;

/// A few writers key the values of a mapped table by logical name; the physical one wins (PROTOCOL.md C).
pub(super) fn value_of<'a>(
    values: &'a PartitionValues,
    physical: &str,
    logical: &str,
) -> Option<&'a str> {
    values
        .get(physical)
        .or_else(|| values.get(logical))
        .and_then(Option::as_deref)
}

/// Whether the name that a file of a table without partitions wants is its path as it is. Cheap, and never true
/// wrongly.
pub(super) fn is_plain(record: &Record<'_>) -> bool {
    let key = record.key_bytes();
    !record.has_tags()
        && key.len() <= NAME_MAX
        && !matches!(key.first(), None | Some(b'.' | b'_'))
        && !key.contains(&b'/')
        && !key.contains(&0)
}

/// Gives names.
pub(super) struct Namer<'a> {
    metadata: &'a Metadata,
    words: &'a Words,
    /// Logical and physical names.
    partition: Vec<(&'a str, &'a str)>,
}

impl<'a> Namer<'a> {
    pub(super) fn new(schema: &'a StructType, metadata: &'a Metadata, words: &'a Words) -> Self {
        let physical = |column: &'a String| {
            let field = schema.field(column);
            (
                column.as_str(),
                field.map_or(column.as_str(), |f| f.physical_name()),
            )
        };
        Namer {
            metadata,
            words,
            partition: metadata.partition_columns.iter().map(physical).collect(),
        }
    }

    /// A partition value by the column's logical and physical name.
    pub(super) fn partition_value<'r>(
        &self,
        record: &Record<'r>,
        logical: &str,
        physical: &str,
    ) -> Option<&'r str> {
        record
            .partition_value(self.words, physical)
            .or_else(|| record.partition_value(self.words, logical))
            .flatten()
    }

    /// The name that a file has.
    pub(super) fn visible<'r>(&self, record: &Record<'r>) -> Cow<'r, str> {
        if record.naming == naming::IS_KEY {
            return Cow::Borrowed(record.key());
        }
        let mut name = self.wanted(record);
        let level = match record.naming {
            naming::UNNAMED => 0,
            level => level,
        };
        for _ in 0..level {
            name = Cow::Owned(disambiguate(&name, record.key()));
        }
        name
    }

    /// The name that a file wants.
    fn wanted<'r>(&self, record: &Record<'r>) -> Cow<'r, str> {
        if self.metadata.partition_columns.is_empty() && is_plain(record) {
            return Cow::Borrowed(record.key());
        }
        let mut visible = String::new();
        for (logical, physical) in &self.partition {
            let value = self.partition_value(record, logical, physical);
            visible.push_str(&dir_name(logical, value));
            visible.push('/');
        }
        let kept = record
            .tag(self.words, NAME_TAG)
            .filter(|name| !name.is_empty());
        let base = kept.unwrap_or_else(|| {
            let key = record.key();
            key.trim_end_matches('/').rsplit('/').next().unwrap_or(key)
        });
        visible.push_str(&plain_name(base));
        Cow::Owned(visible)
    }

    /// Names every file: the files with their names, and the map of those names that are not paths.
    pub(super) fn all(&self, files: &PackedMap) -> (PackedMap, PackedMap) {
        struct Wish<'f> {
            wanted: String,
            record: Record<'f>,
        }
        let mut wishes: Vec<Wish<'_>> = Vec::new();
        let by_path = self.metadata.partition_columns.is_empty();
        for (key, record) in files.iter() {
            // Whoever named it so, it wants no other name without partitions.
            if by_path && record.first() == Some(&naming::IS_KEY) && !key.contains(&b'/') {
                continue;
            }
            let record = Record::read(key, record);
            let wanted = self.wanted(&record);
            if *wanted != *record.key() {
                wishes.push(Wish {
                    wanted: wanted.into_owned(),
                    record,
                });
            }
        }
        wishes.sort_unstable_by(|a, b| {
            (a.wanted.as_str(), order(&a.record)).cmp(&(b.wanted.as_str(), order(&b.record)))
        });
        let plain = |key: &str| {
            let record = Record::read(key.as_bytes(), files.get(key.as_bytes())?);
            (*self.wanted(&record) == *key).then_some(files.get_key_value(key.as_bytes())?)
        };
        let mut names: BTreeMap<String, &[u8]> = BTreeMap::new();
        let mut bytes: Vec<(&[u8], u8)> = Vec::new();
        let mut losers: Vec<(&str, &[u8])> = Vec::new();
        for group in wishes.chunk_by(|a, b| a.wanted == b.wanted) {
            let Some(first) = group.first() else {
                continue;
            };
            let mut rest = group;
            match plain(&first.wanted) {
                // A file whose path it is and that is older keeps it.
                Some((key, record)) if order(&Record::read(key, record)) < order(&first.record) => {
                }
                holder => {
                    names.insert(first.wanted.clone(), first.record.key().as_bytes());
                    bytes.push((first.record.key().as_bytes(), 0));
                    losers.extend(holder.map(|(key, _)| (first.wanted.as_str(), key)));
                    rest = group.get(1..).unwrap_or_default();
                }
            }
            let others = rest
                .iter()
                .map(|w| (w.wanted.as_str(), w.record.key().as_bytes()));
            losers.extend(others);
        }
        let dethroned: std::collections::HashSet<&[u8]> =
            losers.iter().map(|(_, key)| *key).collect();
        for (wanted, key) in &losers {
            let text = String::from_utf8_lossy(key);
            let mut name = (*wanted).to_owned();
            let mut level = 0;
            loop {
                name = disambiguate(&name, &text);
                level += 1;
                let by_path = plain(&name).is_some_and(|(key, _)| !dethroned.contains(key));
                if level == LEVELS || !(by_path || names.contains_key(&name)) {
                    break;
                }
            }
            names.insert(name, key);
            bytes.push((key, level));
        }
        bytes.sort_unstable();
        let mut bytes = bytes.into_iter().peekable();
        let mut edits: Vec<(&[u8], u8, &[u8])> = Vec::new();
        for (key, record) in files.iter() {
            let byte = match bytes.next_if(|(k, _)| *k == key) {
                Some((_, byte)) => byte,
                None => naming::IS_KEY,
            };
            if record.first() != Some(&byte) {
                edits.push((key, byte, record));
            }
        }
        let files = renamed(files, edits.into_iter());
        let names: Vec<(&String, Vec<u8>)> = names
            .iter()
            .map(|(name, key)| (name, squeeze(key)))
            .collect();
        let entries = names
            .iter()
            .map(|(name, key)| (name.as_bytes(), [key.as_slice(), &[]]));
        (files, PackedMap::from_sorted(entries))
    }

    /// Takes the names of files that have gone, and names those that came.
    pub(super) fn update(
        &self,
        files: &PackedMap,
        names: &PackedMap,
        changes: &Changes,
    ) -> (PackedMap, PackedMap) {
        let mut update = Update {
            namer: self,
            files,
            names,
            bytes: BTreeMap::new(),
            edits: BTreeMap::new(),
        };
        let mut freed = Vec::new();
        for (key, record) in &changes.gone {
            let record = Record::read(key, record);
            let visible = self.visible(&record).into_owned();
            if record.naming != naming::IS_KEY {
                update.edits.insert(visible.clone(), None);
            }
            freed.push(visible);
        }
        for key in &changes.came {
            update.give(key);
        }
        for visible in freed {
            update.inherit(&visible);
        }
        let edits = update.bytes.iter().filter_map(|(key, byte)| {
            let record = files.get(key)?;
            Some((key.as_slice(), *byte, record))
        });
        let renamed = renamed(files, edits);
        let edits: Vec<(&String, Option<Vec<u8>>)> = update
            .edits
            .iter()
            .map(|(name, key)| (name, key.as_deref().map(squeeze)))
            .collect();
        let names = names.edited(edits.iter().map(|(name, key)| {
            let edit: Edit<'_> = key.as_deref().map(|key| [key, &[]]);
            (name.as_bytes(), edit)
        }));
        (renamed, names)
    }
}

/// How often a hash may be put into a name until it is free.
const LEVELS: u8 = 100;

/// Every name byte.
static BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut i = 0;
    while i < 256 {
        bytes[i] = i as u8;
        i += 1;
    }
    bytes
};

/// Files with other name bytes, in order.
fn renamed<'e>(
    files: &PackedMap,
    edits: impl Iterator<Item = (&'e [u8], u8, &'e [u8])>,
) -> PackedMap {
    files.edited(edits.map(|(key, byte, record)| {
        let at = usize::from(byte);
        let byte = BYTES.get(at..=at).unwrap_or_default();
        (key, Some([byte, record.get(1..).unwrap_or_default()]))
    }))
}

/// Names on their way from one version to the next.
struct Update<'u> {
    namer: &'u Namer<'u>,
    files: &'u PackedMap,
    names: &'u PackedMap,
    bytes: BTreeMap<Vec<u8>, u8>,
    edits: BTreeMap<String, Option<Vec<u8>>>,
}

impl Update<'_> {
    fn record<'k>(&'k self, key: &'k [u8]) -> Option<Record<'k>> {
        let record = Record::read(key, self.files.get(key)?);
        Some(match self.bytes.get(key) {
            Some(naming) => record.with_naming(*naming),
            None => record,
        })
    }

    /// The key of the file that has a name.
    fn holder(&self, visible: &str) -> Option<Vec<u8>> {
        let named = match self.edits.get(visible) {
            Some(edit) => edit.clone(),
            None => {
                let key = self.names.get(visible.as_bytes());
                key.map(|key| expand(key).into_owned())
            }
        };
        named.or_else(|| {
            let record = self.record(visible.as_bytes())?;
            (record.naming == naming::IS_KEY).then(|| visible.as_bytes().to_vec())
        })
    }

    fn give(&mut self, key: &[u8]) {
        let Some(record) = self.record(key) else {
            return;
        };
        let wanted = self.namer.wanted(&record).into_owned();
        let Some(holder) = self.holder(&wanted) else {
            self.put(&wanted, key, 0);
            return;
        };
        let mut loser = key.to_vec();
        let ours_first = self
            .record(&holder)
            .is_none_or(|other| order(&record) < order(&other));
        if ours_first {
            self.put(&wanted, key, 0);
            loser = holder;
        }
        let text = String::from_utf8_lossy(&loser).into_owned();
        let mut name = wanted;
        let mut level = 0;
        loop {
            name = disambiguate(&name, &text);
            level += 1;
            if level == LEVELS || self.holder(&name).is_none_or(|other| other == loser) {
                break;
            }
        }
        self.put(&name, &loser, level);
    }

    fn put(&mut self, visible: &str, key: &[u8], level: u8) {
        if visible.as_bytes() == key && level == 0 {
            self.bytes.insert(key.to_vec(), naming::IS_KEY);
            let known = self.names.get(key).is_some() || self.edits.contains_key(visible);
            if known {
                self.edits.insert(visible.to_owned(), None);
            }
        } else {
            self.bytes.insert(key.to_vec(), level);
            self.edits.insert(visible.to_owned(), Some(key.to_vec()));
        }
    }

    /// After the file under `visible` has gone: the first of those that want the name gets it, unless who has it by
    /// now comes before.
    fn inherit(&mut self, visible: &str) {
        let prefix = rivals(visible);
        let kept = self
            .names
            .from(prefix.as_bytes())
            .take_while(|(name, _)| name.starts_with(prefix.as_bytes()))
            .filter_map(|(name, key)| Some((std::str::from_utf8(name).ok()?, expand(key))))
            .filter(|(name, _)| !self.edits.contains_key(*name));
        let edited = self
            .edits
            .range(prefix.clone()..)
            .take_while(|(name, _)| name.starts_with(&prefix))
            .filter_map(|(name, key)| Some((name.as_str(), Cow::Borrowed(key.as_deref()?))));
        let rank = |key: &[u8]| {
            let record = self.record(key)?;
            let (time, key) = order(&record);
            (*self.namer.wanted(&record) == *visible).then(|| (time, key.to_owned()))
        };
        let next = kept
            .chain(edited)
            .filter_map(|(name, key)| Some((rank(&key)?, name)))
            .min();
        let Some((next, name)) = next else {
            return;
        };
        let holder = self.holder(visible);
        if holder.is_none_or(|holder| rank(&holder).is_none_or(|holder| next < holder)) {
            let name = name.to_owned();
            self.edits.insert(name, None);
            self.give(next.1.as_bytes());
        }
    }
}

fn order<'r>(record: &Record<'r>) -> (i64, &'r str) {
    (record.modification_time, record.key())
}

/// A name that no reader takes for hidden, that is one path segment and not too long.
fn plain_name(base: &str) -> String {
    let mut name = String::with_capacity(base.len());
    for (i, c) in base.chars().enumerate() {
        match c {
            '/' => name.push_str("%2F"),
            '\0' => name.push_str("%00"),
            '.' if i == 0 => name.push_str("%2E"),
            '_' if i == 0 => name.push_str("%5F"),
            c => name.push(c),
        }
    }
    if name.len() > NAME_MAX {
        let id = short_hash(base);
        let mut end = 200;
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let extension = if base.ends_with(".parquet") {
            ".parquet"
        } else {
            ""
        };
        name = format!("{}~{id}{extension}", &name[..end]);
    }
    name
}

/// Two files may want one name: the later one gets the hash of its path.
fn disambiguate(visible: &str, path: &str) -> String {
    let id = short_hash(path);
    match split_extension(visible) {
        Some((stem, extension)) => format!("{stem}~{id}.{extension}"),
        None => format!("{visible}~{id}"),
    }
}

/// What the names of all files start with that want `visible` and have not got it.
fn rivals(visible: &str) -> String {
    let stem = split_extension(visible).map_or(visible, |(stem, _)| stem);
    format!("{stem}~")
}

fn split_extension(visible: &str) -> Option<(&str, &str)> {
    visible
        .rsplit_once('.')
        .filter(|(_, extension)| !extension.contains('/'))
}

fn short_hash(text: &str) -> String {
    use std::hash::Hasher as _;
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(text.as_bytes());
    format!("{:016x}", hasher.finish())
}
