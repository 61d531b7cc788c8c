//! Records of adds and removes.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Map;

use super::bytes::{Input, put_bytes, put_signed, put_varint, text};
use super::dictionary::{Dictionary, Inner};
use super::stats::{PackedStats, StatsPacker, TemplateValues};
use crate::deletion_vector::DeletionVectorDescriptor;
use crate::log::{Add, PartitionValues, Remove, Tags};
use crate::table::DataPath;

/// How a file came to its visible name: the first byte of its record, the only one that changes in its life.
pub(in crate::table) mod naming {
    /// It has none yet.
    pub(in crate::table) const UNNAMED: u8 = 0xff;
    /// Its visible name is its key; such a file is not in the map of names.
    pub(in crate::table) const IS_KEY: u8 = 0x80;
    // Else: how often the hash of its path was put into the name that it wants.
}

const PATH_IS_KEY: u64 = 1;
const OUTSIDE: u64 = 1 << 1;
const DATA_CHANGE: u64 = 1 << 2;
const VECTOR: u64 = 1 << 3;
const PARTITION_VALUES: u64 = 1 << 4;
const BASE_ROW_ID: u64 = 1 << 5;
const COMMIT_VERSION: u64 = 1 << 6;
const CLUSTERING: u64 = 1 << 7;
const TAGS: u64 = 1 << 8;
const UNKNOWN: u64 = 1 << 9;
const STATS_TEXT: u64 = 1 << 10;
const STATS_VALUES: u64 = 1 << 11;
// Of tombstones:
const DELETION_TIMESTAMP: u64 = 1 << 12;
const EXTENDED: u64 = 1 << 13;
const EXTENDED_TRUE: u64 = 1 << 14;
const SIZE: u64 = 1 << 15;

/// Packs actions.
#[derive(Debug)]
pub(in crate::table) struct Packer<'d> {
    dictionary: &'d Dictionary,
    stats: StatsPacker,
    /// Words that were looked up, with their ids.
    words: Vec<(Box<str>, u64)>,
}

impl<'d> Packer<'d> {
    pub(in crate::table) fn new(dictionary: &'d Dictionary) -> Self {
        Packer {
            dictionary,
            stats: StatsPacker::default(),
            words: Vec::new(),
        }
    }

    /// Appends the record of a live file without a name.
    pub(in crate::table) fn add(&mut self, add: &Add, path: &DataPath, out: &mut Vec<u8>) {
        out.push(naming::UNNAMED);
        let mut flags = path_flags(path, &add.path);
        let flag = |on: bool, bit: u64| if on { bit } else { 0 };
        flags |= flag(add.data_change, DATA_CHANGE)
            | flag(add.deletion_vector.is_some(), VECTOR)
            | flag(!add.partition_values.is_empty(), PARTITION_VALUES)
            | flag(add.base_row_id.is_some(), BASE_ROW_ID)
            | flag(add.default_row_commit_version.is_some(), COMMIT_VERSION)
            | flag(add.clustering_provider.is_some(), CLUSTERING)
            | flag(add.tags.is_some(), TAGS)
            | flag(!add.unknown.is_empty(), UNKNOWN);
        let mut stats = Vec::new();
        let mut num_records = None;
        if let Some(json) = &add.stats {
            match self.stats.pack(json, self.dictionary, &mut stats) {
                Some((template, values)) => {
                    flags |= STATS_VALUES;
                    num_records = template.num_records_at().and_then(|at| {
                        let values = stats.get(values..).unwrap_or_default();
                        let value = TemplateValues { template, values }.integer(at)?;
                        u64::try_from(value).ok()
                    });
                }
                None => {
                    flags |= STATS_TEXT;
                    stats.extend_from_slice(json.as_bytes());
                }
            }
            // However else a count may be written.
            num_records = num_records.or_else(|| add.num_records());
            // 0 is none.
            num_records = num_records.filter(|n| *n < u64::MAX);
        }
        put_varint(out, flags);
        if flags & PATH_IS_KEY == 0 {
            put_bytes(out, add.path.as_bytes());
        }
        put_signed(out, add.size);
        put_signed(out, add.modification_time);
        put_varint(out, num_records.map_or(0, |n| n + 1));
        if let Some(vector) = &add.deletion_vector {
            put_vector(out, vector);
        }
        if flags & PARTITION_VALUES != 0 {
            self.put_map(out, &add.partition_values);
        }
        if let Some(id) = add.base_row_id {
            put_signed(out, id);
        }
        if let Some(version) = add.default_row_commit_version {
            put_signed(out, version);
        }
        if let Some(provider) = &add.clustering_provider {
            self.put_word(out, provider);
        }
        if let Some(tags) = &add.tags {
            self.put_map(out, tags);
        }
        if flags & UNKNOWN != 0 {
            put_json(out, &add.unknown);
        }
        out.extend_from_slice(&stats);
    }

    /// Appends the record of a tombstone, without its statistics and tags: a checkpoint holds neither, and nothing
    /// else asks for them.
    pub(in crate::table) fn remove(&mut self, remove: &Remove, path: &DataPath, out: &mut Vec<u8>) {
        let mut flags = path_flags(path, &remove.path);
        let flag = |on: bool, bit: u64| if on { bit } else { 0 };
        flags |= flag(remove.data_change, DATA_CHANGE)
            | flag(remove.deletion_vector.is_some(), VECTOR)
            | flag(remove.partition_values.is_some(), PARTITION_VALUES)
            | flag(remove.base_row_id.is_some(), BASE_ROW_ID)
            | flag(remove.default_row_commit_version.is_some(), COMMIT_VERSION)
            | flag(remove.deletion_timestamp.is_some(), DELETION_TIMESTAMP)
            | flag(remove.extended_file_metadata.is_some(), EXTENDED)
            | flag(remove.extended_file_metadata == Some(true), EXTENDED_TRUE)
            | flag(remove.size.is_some(), SIZE)
            | flag(!remove.unknown.is_empty(), UNKNOWN);
        put_varint(out, flags);
        if flags & PATH_IS_KEY == 0 {
            put_bytes(out, remove.path.as_bytes());
        }
        for number in [
            remove.deletion_timestamp,
            remove.size,
            remove.base_row_id,
            remove.default_row_commit_version,
        ]
        .into_iter()
        .flatten()
        {
            put_signed(out, number);
        }
        if let Some(vector) = &remove.deletion_vector {
            put_vector(out, vector);
        }
        if let Some(values) = &remove.partition_values {
            self.put_map(out, values);
        }
        if flags & UNKNOWN != 0 {
            put_json(out, &remove.unknown);
        }
    }

    fn put_map(&mut self, out: &mut Vec<u8>, map: &PartitionValues) {
        put_varint(out, map.len() as u64);
        for (name, value) in map {
            self.put_word(out, name);
            match value {
                None => put_varint(out, 0),
                Some(value) => {
                    put_varint(out, value.len() as u64 + 1);
                    out.extend_from_slice(value.as_bytes());
                }
            }
        }
    }

    fn put_word(&mut self, out: &mut Vec<u8>, word: &str) {
        const REMEMBERED: usize = 16;
        let known = self.words.iter().find(|(w, _)| **w == *word);
        let id = match known {
            Some((_, id)) => Some(*id),
            None => {
                let id = self.dictionary.word_id(word);
                if let Some(id) = id
                    && self.words.len() < REMEMBERED
                {
                    self.words.push((word.into(), id));
                }
                id
            }
        };
        match id {
            Some(id) => put_varint(out, id + 1),
            None => {
                put_varint(out, 0);
                put_bytes(out, word.as_bytes());
            }
        }
    }
}

fn path_flags(path: &DataPath, in_log: &str) -> u64 {
    let outside = match path {
        DataPath::Inside(_) => 0,
        DataPath::Outside(_) => OUTSIDE,
    };
    // NUL ends the path in the key of a tombstone.
    let same = path.key() == in_log && !in_log.contains('\0');
    let same = if same { PATH_IS_KEY } else { 0 };
    outside | same
}

fn put_vector_id(out: &mut Vec<u8>, vector: &DeletionVectorDescriptor) {
    put_bytes(out, vector.storage_type.as_bytes());
    put_bytes(out, vector.path_or_inline_dv.as_bytes());
    match vector.offset {
        None => out.push(0),
        Some(offset) => {
            out.push(1);
            put_signed(out, offset.into());
        }
    }
}

fn put_vector(out: &mut Vec<u8>, vector: &DeletionVectorDescriptor) {
    put_bytes(out, &vector_id(Some(vector)));
    put_signed(out, vector.size_in_bytes.into());
    put_signed(out, vector.cardinality);
}

fn put_json(out: &mut Vec<u8>, object: &Map<String, serde_json::Value>) {
    // Serialising JSON to memory can't fail.
    put_bytes(out, &serde_json::to_vec(object).unwrap_or_default());
}

fn json(bytes: &[u8]) -> Map<String, serde_json::Value> {
    match crate::schema::json::from_slice(bytes) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// The record of a live file, seen without unpacking it.
#[derive(Debug, Clone, Copy)]
pub(in crate::table) struct Record<'a> {
    pub(in crate::table) naming: u8,
    flags: u64,
    key: &'a [u8],
    path: Option<&'a [u8]>,
    pub(in crate::table) size: i64,
    pub(in crate::table) modification_time: i64,
    pub(in crate::table) num_records: Option<u64>,
    vector: Option<Vector<'a>>,
    /// What follows.
    rest: Input<'a>,
}

#[derive(Debug, Clone, Copy)]
struct Vector<'a> {
    id: &'a [u8],
    size_in_bytes: i64,
    cardinality: i64,
}

impl<'a> Vector<'a> {
    fn read(input: &mut Input<'a>) -> Self {
        Vector {
            id: input.bytes(),
            size_in_bytes: input.signed(),
            cardinality: input.signed(),
        }
    }

    fn descriptor(&self) -> DeletionVectorDescriptor {
        let mut id = Input(self.id);
        let int = |value: i64| i32::try_from(value).unwrap_or_default();
        DeletionVectorDescriptor {
            storage_type: id.text().to_owned(),
            path_or_inline_dv: id.text().to_owned(),
            offset: (id.byte() == 1).then(|| int(id.signed())),
            size_in_bytes: int(self.size_in_bytes),
            cardinality: self.cardinality,
        }
    }
}

impl<'a> Record<'a> {
    pub(in crate::table) fn read(key: &'a [u8], record: &'a [u8]) -> Self {
        let mut input = Input(record);
        let naming = input.byte();
        let flags = input.varint();
        Record {
            naming,
            flags,
            key,
            path: (flags & PATH_IS_KEY == 0).then(|| input.bytes()),
            size: input.signed(),
            modification_time: input.signed(),
            num_records: input.varint().checked_sub(1),
            vector: (flags & VECTOR != 0).then(|| Vector::read(&mut input)),
            rest: input,
        }
    }

    pub(in crate::table) fn with_naming(self, naming: u8) -> Self {
        Record { naming, ..self }
    }

    pub(in crate::table) fn key_bytes(&self) -> &'a [u8] {
        self.key
    }

    pub(in crate::table) fn key(&self) -> &'a str {
        text(self.key)
    }

    pub(in crate::table) fn data_path(&self) -> DataPath {
        let key = self.key().to_owned();
        if self.flags & OUTSIDE == 0 {
            DataPath::Inside(key)
        } else {
            DataPath::Outside(key)
        }
    }

    /// What tells its deletion vector from another one; empty without one.
    pub(in crate::table) fn vector_id(&self) -> &'a [u8] {
        self.vector.map_or(&[], |v| v.id)
    }

    /// Dead rows.
    pub(in crate::table) fn deleted_rows(&self) -> u64 {
        let dead = self.vector.map_or(0, |v| v.cardinality);
        u64::try_from(dead).unwrap_or(0)
    }

    pub(in crate::table) fn descriptor(&self) -> Option<DeletionVectorDescriptor> {
        self.vector.map(|v| v.descriptor())
    }

    /// Partition values by physical name.
    pub(in crate::table) fn partition_values(&self, words: &Words) -> PartitionValues {
        self.rest()
            .partition_values
            .map_or_else(PartitionValues::new, |map| map.collect(words))
    }

    /// The value of a partition column; `None` when it is not there at all.
    pub(in crate::table) fn partition_value(
        &self,
        words: &Words,
        name: &str,
    ) -> Option<Option<&'a str>> {
        self.rest().partition_values?.get(words, name)
    }

    pub(in crate::table) fn has_tags(&self) -> bool {
        self.flags & TAGS != 0
    }

    pub(in crate::table) fn tag(&self, words: &Words, name: &str) -> Option<&'a str> {
        self.rest().tags?.get(words, name).flatten()
    }

    pub(in crate::table) fn stats(&self, words: &Words) -> PackedStats<'a> {
        let mut stats = self.rest().stats;
        if self.flags & STATS_TEXT != 0 {
            return PackedStats::Text(text(stats.0));
        }
        let id = stats.varint();
        match words.0.template(id) {
            Some(template) if self.flags & STATS_VALUES != 0 => {
                PackedStats::Values(TemplateValues {
                    template: Arc::clone(template),
                    values: stats.0,
                })
            }
            _ => PackedStats::Absent,
        }
    }

    /// The action, as it was in the log.
    pub(in crate::table) fn to_add(self, words: &Words) -> Add {
        let rest = self.rest();
        Add {
            path: text(self.path.unwrap_or(self.key)).to_owned(),
            partition_values: self.partition_values(words),
            size: self.size,
            modification_time: self.modification_time,
            data_change: self.flags & DATA_CHANGE != 0,
            stats: self.stats(words).to_json().map(Cow::into_owned),
            tags: rest.tags.map(|map| map.collect(words)),
            deletion_vector: self.vector.map(|v| v.descriptor()),
            base_row_id: rest.base_row_id,
            default_row_commit_version: rest.commit_version,
            clustering_provider: rest.clustering_provider.map(|w| words.text(w).to_owned()),
            unknown: rest.unknown.map(json).unwrap_or_default(),
        }
    }

    fn rest(&self) -> Rest<'a> {
        let mut input = self.rest;
        let on = |flag: u64| self.flags & flag != 0;
        Rest {
            partition_values: on(PARTITION_VALUES).then(|| PackedEntries::read(&mut input)),
            base_row_id: on(BASE_ROW_ID).then(|| input.signed()),
            commit_version: on(COMMIT_VERSION).then(|| input.signed()),
            clustering_provider: on(CLUSTERING).then(|| Word::read(&mut input)),
            tags: on(TAGS).then(|| PackedEntries::read(&mut input)),
            unknown: on(UNKNOWN).then(|| input.bytes()),
            stats: input,
        }
    }
}

/// What seldom counts.
struct Rest<'a> {
    partition_values: Option<PackedEntries<'a>>,
    base_row_id: Option<i64>,
    commit_version: Option<i64>,
    clustering_provider: Option<Word<'a>>,
    tags: Option<PackedEntries<'a>>,
    unknown: Option<&'a [u8]>,
    stats: Input<'a>,
}

/// The dictionary as it is needed to read records that are there already.
#[derive(Debug, Clone)]
pub(in crate::table) struct Words(Arc<Inner>);

impl Words {
    pub(in crate::table) fn of(dictionary: &Dictionary) -> Self {
        Words(dictionary.read())
    }

    fn text<'w>(&'w self, word: Word<'w>) -> &'w str {
        match word {
            Word::Shared(id) => self.0.word(id),
            Word::Own(text) => text,
        }
    }
}

#[derive(Clone, Copy)]
enum Word<'a> {
    Shared(u64),
    Own(&'a str),
}

impl<'a> Word<'a> {
    fn read(input: &mut Input<'a>) -> Self {
        match input.varint().checked_sub(1) {
            Some(id) => Word::Shared(id),
            None => Word::Own(input.text()),
        }
    }
}

/// A map of text.
#[derive(Clone, Copy)]
struct PackedEntries<'a> {
    len: u64,
    entries: Input<'a>,
}

impl<'a> PackedEntries<'a> {
    /// Reads over it.
    fn read(input: &mut Input<'a>) -> Self {
        let len = input.varint();
        let map = PackedEntries {
            len,
            entries: *input,
        };
        for _ in 0..len {
            Self::entry(input);
        }
        map
    }

    fn entry(input: &mut Input<'a>) -> (Word<'a>, Option<&'a str>) {
        let name = Word::read(input);
        let value = input.varint().checked_sub(1);
        let value = value.map(|len| text(input.take(usize::try_from(len).unwrap_or(usize::MAX))));
        (name, value)
    }

    fn get(mut self, words: &Words, name: &str) -> Option<Option<&'a str>> {
        (0..self.len)
            .map(|_| Self::entry(&mut self.entries))
            .find(|(word, _)| words.text(*word) == name)
            .map(|(_, value)| value)
    }

    fn collect(mut self, words: &Words) -> Tags {
        (0..self.len)
            .map(|_| {
                let (name, value) = Self::entry(&mut self.entries);
                (words.text(name).to_owned(), value.map(str::to_owned))
            })
            .collect()
    }
}

/// What tells a deletion vector from another one of the same file.
pub(in crate::table) fn vector_id(vector: Option<&DeletionVectorDescriptor>) -> Vec<u8> {
    let mut id = Vec::new();
    if let Some(vector) = vector {
        put_vector_id(&mut id, vector);
    }
    id
}

/// The key of a tombstone: those of a path lie together.
pub(in crate::table) fn tombstone_key(path: &[u8], vector_id: &[u8]) -> Vec<u8> {
    [path, &[0], vector_id].concat()
}

/// The action of a tombstone, without statistics and tags.
pub(in crate::table) fn to_remove(key: &[u8], record: &[u8], words: &Words) -> Remove {
    let mut input = Input(record);
    let flags = input.varint();
    let on = |flag: u64| flags & flag != 0;
    let path = if on(PATH_IS_KEY) {
        key.split(|b| *b == 0).next().map_or("", text)
    } else {
        input.text()
    };
    let deletion_timestamp = on(DELETION_TIMESTAMP).then(|| input.signed());
    let size = on(SIZE).then(|| input.signed());
    let base_row_id = on(BASE_ROW_ID).then(|| input.signed());
    let default_row_commit_version = on(COMMIT_VERSION).then(|| input.signed());
    let deletion_vector = on(VECTOR).then(|| Vector::read(&mut input).descriptor());
    let partition_values =
        on(PARTITION_VALUES).then(|| PackedEntries::read(&mut input).collect(words));
    Remove {
        path: path.to_owned(),
        deletion_timestamp,
        data_change: on(DATA_CHANGE),
        extended_file_metadata: on(EXTENDED).then(|| on(EXTENDED_TRUE)),
        partition_values,
        size,
        stats: None,
        tags: None,
        deletion_vector,
        base_row_id,
        default_row_commit_version,
        unknown: if on(UNKNOWN) {
            json(input.bytes())
        } else {
            Map::new()
        },
    }
}
