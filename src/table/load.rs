//! Files of the log to a state, on all cores: parsing and packing take the time, applying does not.

use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use super::TableError;
use super::packed::{Dictionary, Packer};
use super::replay::{Parsed, Replay};
use super::segment::{Checkpoint, modified_ms};
use crate::log::{
    Action, CheckpointAction, CheckpointBatch, LOG_DIR, LogError, LogName, SIDECAR_DIR,
    checkpoint_batches, each_action, read_json_manifest,
};
use crate::store::{Dir, StoreError};

/// What takes a state from one version to a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Commit(u64),
    Compacted {
        from: u64,
        to: u64,
        /// Whether all its commits are there, too.
        optional: bool,
    },
}

/// Steps that one thread parses at a time.
const BLOCK: usize = 32;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Applies `steps` in order.
///
/// # Errors
/// The first failure in the order of versions.
pub(super) fn commits(dir: &Dir, replay: &mut Replay, steps: &[Step]) -> Result<(), TableError> {
    if steps.is_empty() {
        return Ok(());
    }
    let log = dir.sub(Path::new(LOG_DIR))?;
    let dictionary = replay.dictionary();
    let source = Source {
        log: &log,
        table: dir.path(),
        last: steps.last().copied(),
    };
    let blocks: Vec<&[Step]> = steps.chunks(BLOCK).collect();
    let mut apply = |block: Vec<(Parsed, i64)>| {
        let mut all = block.into_iter();
        all.try_for_each(|(parsed, modified)| replay.apply(parsed, modified))
    };
    if blocks.len() == 1 {
        return apply(source.block(&dictionary, steps)?);
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Blocks come out of order; a thread that is far ahead waits.
        let (sender, receiver) = mpsc::sync_channel(2 * threads());
        for _ in 0..threads().min(blocks.len()) {
            let (sender, next, blocks) = (sender.clone(), &next, &blocks);
            let (source, dictionary) = (&source, &dictionary);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(block) = blocks.get(index) else {
                        return;
                    };
                    let parsed = source.block(dictionary, block);
                    if sender.send((index, parsed)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut due = 0;
        for (index, block) in receiver {
            early.insert(index, block);
            while let Some(block) = early.remove(&due) {
                apply(block?)?;
                due += 1;
            }
        }
        Ok(())
    })
}

/// Where commits come from.
struct Source<'a> {
    log: &'a Dir,
    table: &'a Path,
    /// The step whose time and commitInfo count.
    last: Option<Step>,
}

impl Source<'_> {
    fn block(
        &self,
        dictionary: &Dictionary,
        steps: &[Step],
    ) -> Result<Vec<(Parsed, i64)>, TableError> {
        let mut packer = Packer::new(dictionary);
        let mut body = Vec::new();
        let mut all = Vec::with_capacity(steps.len());
        for step in steps {
            match *step {
                Step::Commit(version) => {
                    let name = LogName::commit(version);
                    let read = self.step(&mut packer, &mut body, &name, version, *step)?;
                    all.push(read.ok_or(TableError::Gap {
                        missing: version,
                        present: version,
                    })?);
                }
                Step::Compacted { from, to, optional } => {
                    let name = LogName::compacted(from, to);
                    match self.step(&mut packer, &mut body, &name, to, *step) {
                        Ok(Some(read)) => all.push(read),
                        unread if optional => {
                            if let Err(error) = unread {
                                tracing::warn!(
                                    table = %self.table.display(), %error,
                                    "a log compaction can't be used; reading its commits"
                                );
                            }
                            let commits: Vec<Step> = (from..=to).map(Step::Commit).collect();
                            all.extend(self.block(dictionary, &commits)?);
                        }
                        Ok(None) => {
                            return Err(TableError::Gap {
                                missing: from,
                                present: to,
                            });
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(all)
    }

    /// The path of a file action of the commit `version`, if that is there, which is not among `keys`.
    fn lacks(&self, version: u64, keys: &HashSet<FileKey>) -> Option<String> {
        let name = LogName::commit(version);
        let body = self.log.read(Path::new(&name)).ok()?;
        let mut lacking = None;
        let read = each_action(&name, &body, false, |action| {
            if let Some(key) = file_key(&action).filter(|key| !keys.contains(key)) {
                lacking.get_or_insert(key.0);
            }
        });
        read.ok().and(lacking)
    }

    /// `None` when the file is not there.
    fn step(
        &self,
        packer: &mut Packer<'_>,
        body: &mut Vec<u8>,
        name: &str,
        version: u64,
        step: Step,
    ) -> Result<Option<(Parsed, i64)>, TableError> {
        let path = Path::new(name);
        let mut file = match self.log.open_file(path) {
            Ok(file) => file,
            Err(e) if e.is_absent() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let io = |source| StoreError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        };
        let is_last = self.last == Some(step);
        let modified = if is_last {
            modified_ms(&file.metadata().map_err(io)?)
        } else {
            0
        };
        body.clear();
        file.read_to_end(body).map_err(io)?;
        let mut parsed = Parsed::empty(version);
        // Some writers only string the commits together: then a file is added and removed, and no order tells what
        // holds (PROTOCOL.md A1: a compaction is reconciled).
        let is_compaction = matches!(step, Step::Compacted { .. });
        let (mut keys, mut twice) = (HashSet::new(), None);
        each_action(name, body, is_last, |action| {
            if is_compaction
                && let Some(key) = file_key(&action)
                && let Some((path, _)) = keys.replace(key)
            {
                twice.get_or_insert(path);
            }
            parsed.commit_action(packer, self.table, action);
        })?;
        let malformed = |reason| {
            Err(TableError::Malformed {
                version,
                what: "log compaction",
                reason,
            })
        };
        if let Some(path) = twice {
            return malformed(format!("it has two actions for {path}"));
        }
        // One that ends early lacks what its last commit did.
        if is_compaction && let Some(path) = self.lacks(version, &keys) {
            return malformed(format!("it lacks {path} of version {version}"));
        }
        Ok(Some((parsed, modified)))
    }
}

/// Path and deletion vector.
type FileKey = (String, Option<String>);

/// What identifies the logical file of an action (PROTOCOL.md A2).
fn file_key(action: &Action) -> Option<FileKey> {
    match action {
        Action::Add(add) => Some((add.path.clone(), add.dv_id())),
        Action::Remove(remove) => {
            let vector = remove.deletion_vector.as_ref();
            Some((remove.path.clone(), vector.map(|v| v.unique_id())))
        }
        Action::Cdc(_)
        | Action::CommitInfo(_)
        | Action::Protocol(_)
        | Action::MetaData(_)
        | Action::Txn(_)
        | Action::DomainMetadata(_) => None,
    }
}

/// The state of the checkpoint of `version`, and how many live files it lists.
///
/// # Errors
/// [`TableError`] when a file of it is missing or damaged.
pub(super) fn checkpoint(
    dir: &Dir,
    version: u64,
    checkpoint: &Checkpoint,
) -> Result<(Replay, u64), TableError> {
    let mut replay = Replay::default();
    let mut adds = 0;
    let mut sidecars = Vec::new();
    let log = Path::new(LOG_DIR);
    let files: Vec<(String, PathBuf)> = match checkpoint {
        Checkpoint::Parquet(files) => files
            .iter()
            .map(|file| (file.clone(), log.join(file)))
            .collect(),
        Checkpoint::Json(file) => {
            let dictionary = replay.dictionary();
            let mut part = Part::new(dir.path(), version, &dictionary);
            let body = dir.read(&log.join(file))?;
            read_json_manifest(file, &body, &mut |action| {
                part.take(action);
                Ok(())
            })?;
            let handed = part.hand_on()?;
            adds += handed.adds;
            sidecars.extend(handed.sidecars);
            replay.apply_checkpoint(handed.parsed)?;
            Vec::new()
        }
    };
    adds += read_files(dir, version, &files, &mut replay, &mut sidecars)?;
    let mut files = Vec::new();
    for sidecar in sidecars {
        let name = LogName::of_sidecar(&sidecar);
        let name = name.ok_or_else(|| TableError::Outside(sidecar.clone()))?;
        files.push((sidecar, log.join(SIDECAR_DIR).join(name)));
    }
    let mut none = Vec::new();
    adds += read_files(dir, version, &files, &mut replay, &mut none)?;
    replay.check_complete(version)?;
    Ok((replay, adds))
}

/// What the commit of `version`, if it is there, says against the state of a checkpoint of the same version: the files
/// that it adds are live, those that it only removes are not.
///
/// # Errors
/// Those of the replay.
pub(super) fn contradicts_commit(
    dir: &Dir,
    replay: &mut Replay,
    version: u64,
) -> Result<Option<String>, TableError> {
    let name = LogName::commit(version);
    let Ok(body) = dir.read(&Path::new(LOG_DIR).join(&name)) else {
        return Ok(None);
    };
    let mut actions = Vec::new();
    if each_action(&name, &body, false, |action| actions.push(action)).is_err() {
        return Ok(None);
    }
    let added: HashSet<&str> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Add(add) => Some(add.path.as_str()),
            _ => None,
        })
        .collect();
    for action in &actions {
        let (path, vector, expected) = match action {
            Action::Add(add) => (&add.path, add.deletion_vector.as_ref(), true),
            Action::Remove(remove) if !added.contains(remove.path.as_str()) => {
                (&remove.path, remove.deletion_vector.as_ref(), false)
            }
            _ => continue,
        };
        if replay.is_live(dir.path(), path, vector)? != expected {
            let does = if expected { "adds" } else { "removes" };
            return Ok(Some(format!(
                "{name} {does} {path}, which the checkpoint of the same version does not know"
            )));
        }
    }
    Ok(None)
}

/// Reads Parquet files of a checkpoint; gives the number of live files. Packing takes much longer than decoding, so
/// all threads pack what some of them decode.
fn read_files(
    dir: &Dir,
    version: u64,
    files: &[(String, PathBuf)],
    replay: &mut Replay,
    sidecars: &mut Vec<String>,
) -> Result<u64, TableError> {
    let mut adds = 0;
    let dictionary = replay.dictionary();
    let (next, read) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (decoded, batches) = mpsc::sync_channel::<CheckpointBatch>(2 * threads());
        let (packed, parts) = mpsc::sync_channel::<Result<Handed, TableError>>(2 * threads());
        let batches = Arc::new(Mutex::new(batches));
        for _ in 0..threads().min(files.len()) {
            let (decoded, packed) = (decoded.clone(), packed.clone());
            let (next, read) = (&next, &read);
            scope.spawn(move || {
                while let Some((name, path)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let all = || -> Result<(), TableError> {
                        for batch in checkpoint_batches(name, dir.open_file(path)?)? {
                            // Nobody takes it when another file has failed.
                            if decoded.send(batch?).is_err() {
                                return Ok(());
                            }
                        }
                        read.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    };
                    if let Err(error) = all() {
                        let _ = packed.send(Err(error));
                        return;
                    }
                }
            });
        }
        drop(decoded);
        for _ in 0..threads() {
            let (batches, packed, dictionary) = (Arc::clone(&batches), packed.clone(), &dictionary);
            scope.spawn(move || {
                let mut part = Part::new(dir.path(), version, dictionary);
                let take = || {
                    batches
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .recv()
                };
                while let Ok(batch) = take() {
                    let taken = batch.actions(&mut |action| {
                        part.take(action);
                        Ok(())
                    });
                    let handed = taken
                        .map_err(TableError::from)
                        .and_then(|()| part.hand_on());
                    if packed.send(handed).is_err() {
                        return;
                    }
                }
            });
        }
        drop((batches, packed));
        for part in parts {
            let handed = part?;
            adds += handed.adds;
            sidecars.extend(handed.sidecars);
            replay.apply_checkpoint(handed.parsed)?;
        }
        Ok::<_, TableError>(())
    })?;
    // Only what was read to its end counts.
    if read.into_inner() != files.len() {
        return Err(TableError::from(LogError::Checkpoint {
            file: version.to_string(),
            reason: "it was not read to its end".to_owned(),
        }));
    }
    Ok(adds)
}

/// A part of a checkpoint.
struct Part<'a> {
    table: &'a Path,
    packer: Packer<'a>,
    version: u64,
    parsed: Parsed,
    adds: u64,
    sidecars: Vec<String>,
    /// The version that a V2 checkpoint says it is of, if it is another one.
    stranger: Option<i64>,
}

/// What a part of a checkpoint held.
struct Handed {
    parsed: Parsed,
    /// Live files.
    adds: u64,
    sidecars: Vec<String>,
}

impl<'a> Part<'a> {
    fn new(table: &'a Path, version: u64, dictionary: &'a Dictionary) -> Self {
        Part {
            table,
            packer: Packer::new(dictionary),
            version,
            parsed: Parsed::empty(version),
            adds: 0,
            sidecars: Vec::new(),
            stranger: None,
        }
    }

    fn take(&mut self, action: CheckpointAction) {
        match action {
            CheckpointAction::Action(action) => {
                self.adds += u64::from(matches!(action, Action::Add(_)));
                self.parsed
                    .checkpoint_action(&mut self.packer, self.table, action);
            }
            CheckpointAction::Sidecar(sidecar) => self.sidecars.push(sidecar.path),
            CheckpointAction::CheckpointMetadata { version } => {
                if u64::try_from(version) != Ok(self.version) {
                    self.stranger = Some(version);
                }
            }
        }
    }

    /// What has come so far.
    fn hand_on(&mut self) -> Result<Handed, TableError> {
        if let Some(other) = self.stranger {
            return Err(TableError::Malformed {
                version: self.version,
                what: "checkpoint",
                reason: format!("it says that it is of version {other}"),
            });
        }
        Ok(Handed {
            parsed: std::mem::replace(&mut self.parsed, Parsed::empty(self.version)),
            adds: std::mem::take(&mut self.adds),
            sidecars: std::mem::take(&mut self.sidecars),
        })
    }
}
